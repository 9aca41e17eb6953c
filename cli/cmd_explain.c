/* dro explain: which examples have the largest weights in the worst case of a robust objective. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <string.h>

typedef struct explained {
    const dro_explanation *e;
    const dro_predictor *p;
    dro_examples examples;
    const char *objective, *over, *split;
    long long top; /* examples that are shown */
    const char *weights;
    dro_split which;
    dro_context *ctx;
} explained;

/* A word of --over, for sentences. */
static const char *several(const char *over)
{
    return strcmp(over, "class") == 0   ? "classes"
           : strcmp(over, "group") == 0 ? "groups"
                                        : "examples";
}

/* ---- one example ---- */

/* "" where there is none. */
static const char *class_name(const explained *x, int32_t class)
{
    const char *name = dro_predictor_class_name(x->p, class);
    return name ? name : "";
}

static bool is_real(const explained *x)
{
    return x->e->classes == 0;
}

/* The weight as a multiple of the mean weight. */
static double times(const explained *x, int64_t id)
{
    return x->e->weights[id] * (double)x->e->examples;
}

/* In the unit of the data, as predictions are. */
static double target_of(const explained *x, int64_t id)
{
    const dro_data_info *info = dro_predictor_data(x->p);
    return info->target_centre + info->target_scale * (double)x->examples.targets[id];
}

static void truth_text(const explained *x, int64_t id, char *text, size_t size)
{
    if (is_real(x))
        snprintf(text, size, "%.9g", target_of(x, id));
    else
        snprintf(text, size, "%s", class_name(x, x->e->labels[id]));
}

static void prediction_text(const explained *x, int64_t id, char *text, size_t size)
{
    if (isnan(x->e->losses[id]))
        snprintf(text, size, "%s", "");
    else if (is_real(x))
        snprintf(text, size, "%.9g", (double)x->e->outputs[id]);
    else
        snprintf(text, size, "%s", class_name(x, x->e->predictions[id]));
}

static const char *group_name(const explained *x, int64_t id)
{
    return dro_predictor_data(x->p)->group_names[x->e->groups[id]];
}

/* ---- a table of all examples ---- */

static void write_rows(const explained *x, FILE *to, char separator)
{
    const dro_explanation *e = x->e;
    char text[300];
    fprintf(to, "%s%clabel%cprediction%closs%cweight%ctimes",
            x->examples.paths ? "path" : "example", separator, separator, separator, separator,
            separator);
    fprintf(to, e->groups ? "%cgroup\n" : "\n", separator);
    for (int64_t k = 0; k < e->examples; k++) {
        int64_t id = e->order[k];
        if (x->examples.paths)
            cli_csv_text(to, separator, x->examples.paths[id]);
        else
            fprintf(to, "%lld", (long long)x->examples.records[id]);
        fputc(separator, to);
        truth_text(x, id, text, sizeof text);
        cli_csv_text(to, separator, text);
        fputc(separator, to);
        prediction_text(x, id, text, sizeof text);
        cli_csv_text(to, separator, text);
        if (isnan(e->losses[id]))
            fputc(separator, to);
        else
            fprintf(to, "%c%.9g", separator, e->losses[id]);
        fprintf(to, "%c%.9g%c%.6g", separator, e->weights[id], separator, times(x, id));
        if (e->groups) {
            fputc(separator, to);
            cli_csv_text(to, separator, group_name(x, id));
        }
        fputc('\n', to);
    }
}

/* ---- JSON ---- */

static json_t *example_json(const explained *x, int64_t id)
{
    const dro_explanation *e = x->e;
    json_t *o = json_object();
    char label[300], prediction[300];
    truth_text(x, id, label, sizeof label);
    prediction_text(x, id, prediction, sizeof prediction);
    if (x->examples.paths)
        json_object_set_new(o, "path", cli_path_json(x->examples.paths[id]));
    else
        json_object_set_new(o, "example", json_integer(x->examples.records[id]));
    if (is_real(x)) {
        json_object_set_new(o, "label", cli_number(target_of(x, id)));
        json_object_set_new(o, "prediction", cli_number((double)e->outputs[id]));
    } else {
        json_object_set_new(o, "label", cli_text_json(label));
        json_object_set_new(o, "prediction", *prediction ? cli_text_json(prediction) : json_null());
    }
    json_object_set_new(o, "loss", cli_number(e->losses[id]));
    json_object_set_new(o, "weight", cli_number(e->weights[id]));
    json_object_set_new(o, "times", cli_number(times(x, id)));
    if (e->groups)
        json_object_set_new(o, "group", cli_text_json(group_name(x, id)));
    return o;
}

static json_t *shares_json(const char *name, double share, double weight)
{
    return json_pack("{s:o, s:o, s:o}", "name", cli_text_json(name), "share", cli_number(share),
                     "weight", cli_number(weight));
}

static json_t *document(const explained *x, int64_t most)
{
    const dro_explanation *e = x->e;
    json_t *classes = json_array(), *groups = json_array(), *examples = json_array();
    for (int32_t k = 0; k < e->classes; k++)
        json_array_append_new(
            classes, shares_json(class_name(x, k), e->class_shares[k], e->class_weights[k]));
    for (int32_t k = 0; k < e->group_count; k++)
        json_array_append_new(groups, shares_json(dro_predictor_data(x->p)->group_names[k],
                                                  e->group_shares[k], e->group_weights[k]));
    for (int64_t k = 0; k < e->examples && k < most; k++)
        json_array_append_new(examples, example_json(x, e->order[k]));
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "objective", x->objective, "over", x->over, "split", x->split, "count",
                     (json_int_t)e->examples, "value", cli_number(e->value), "mean_loss",
                     cli_number(e->mean_loss), "lambda", cli_number(e->lambda), "threshold",
                     cli_number(e->threshold), "divergence", cli_number(e->divergence), "effective",
                     cli_number(e->effective), "classes", classes, "groups", groups, "examples",
                     examples);
}

/* ---- on the terminal ---- */

enum { MOST = 40 }; /* rows of classes and groups */

static void show_shares(const char *what, int32_t count, const char *const *names,
                        const double *shares, const double *weights)
{
    const char *const headers[] = {what, ">examples", ">weight", ">times"};
    if (count < 1)
        return;
    cli_table *t = cli_table_create(4, headers);
    for (int32_t k = 0; k < count && k < MOST; k++) {
        cli_table_cell(t, "%s", names[k]);
        cli_table_cell(t, "%.1f %%", cli_percent(shares[k]));
        cli_table_cell(t, "%.1f %%", cli_percent(weights[k]));
        if (shares[k] > 0)
            cli_table_cell(t, "%.2f", weights[k] / shares[k]);
        else
            cli_table_cell(t, "-");
    }
    cli_table_print(t);
    if (count > MOST)
        printf("... %d more: --json has them all\n", count - MOST);
    printf("\n");
}

static void show_top(const explained *x)
{
    const dro_explanation *e = x->e;
    const char *const headers[] = {x->examples.paths ? "path" : ">example", "label", "prediction",
                                   ">loss", ">times"};
    char text[300];
    cli_table *t = cli_table_create(5, headers);
    for (int64_t k = 0; k < e->examples && k < x->top; k++) {
        int64_t id = e->order[k];
        if (x->examples.paths)
            cli_table_cell(t, "%s", x->examples.paths[id]);
        else
            cli_table_cell(t, "%lld", (long long)x->examples.records[id]);
        truth_text(x, id, text, sizeof text);
        cli_table_cell(t, "%s", text);
        prediction_text(x, id, text, sizeof text);
        cli_table_cell(t, "%s", text);
        cli_table_cell(t, "%.4g", e->losses[id]);
        cli_table_cell(t, "%.3g", times(x, id));
    }
    cli_table_print(t);
}

static void show(const explained *x)
{
    enum { NAMES = 4096 };
    static const char *names[NAMES];
    const dro_explanation *e = x->e;
    int32_t classes = e->classes < NAMES ? e->classes : NAMES;
    char line[512], lambda[32] = "", threshold[32] = "";
    for (int32_t k = 0; k < classes; k++)
        names[k] = class_name(x, k);
    if (isfinite(e->lambda))
        snprintf(lambda, sizeof lambda, ", lambda %.4g", e->lambda);
    if (isfinite(e->threshold))
        snprintf(threshold, sizeof threshold, ", threshold %.4g", e->threshold);
    snprintf(line, sizeof line,
             "%s over %s of %s: %.6g (mean loss %.6g)%s%s, divergence %.4g, effective %.3f",
             x->objective, several(x->over), x->split, e->value, e->mean_loss, lambda, threshold,
             e->divergence, e->effective);
    cli_wrapped(stdout, line);
    printf("\n");
    show_shares("class", classes, names, e->class_shares, e->class_weights);
    show_shares("group", e->group_count, dro_predictor_data(x->p)->group_names, e->group_shares,
                e->group_weights);
    show_top(x);
}

/* ---- the command ---- */

/* The ending of --out, which determines the format; NULL: none of ours. */
static const char *ending(const char *out)
{
    static const char *const all[] = {".csv", ".tsv", ".json", ".html"};
    const char *dot = strrchr(out, '.');
    for (size_t k = 0; dot && k < sizeof all / sizeof all[0]; k++)
        if (strcmp(dot, all[k]) == 0)
            return dot;
    return NULL;
}

static int write_out(const explained *x, const char *out)
{
    const char *known = ending(out), *dot = known ? known : "";
    if (strcmp(dot, ".html") == 0) {
        dro_explanation_about about = {.objective = x->objective,
                                       .over = several(x->over),
                                       .weights = x->weights,
                                       .split = x->which,
                                       .top = x->top};
        return dro_report_explanation(x->ctx, x->p, x->e, &about, out) == DRO_OK
                   ? 0
                   : cli_fail("%s", dro_context_error(x->ctx));
    }
    cli_file file;
    int status = cli_file_open(&file, out);
    if (status)
        return status;
    if (strcmp(dot, ".json") == 0) {
        json_t *all = document(x, x->e->examples);
        if (json_dumpf(all, file.to, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
            status = cli_fail("cannot write to %s: %s", out, strerror(errno));
        json_decref(all);
    } else {
        write_rows(x, file.to, strcmp(dot, ".tsv") == 0 ? '\t' : ',');
    }
    return cli_file_close(&file, status);
}

static int explain(const cli_args *args, dro_context *ctx, dro_predictor *p)
{
    static const char *const words[DRO_SPLITS] = {"train", "test", "holdout"};
    const dro_data_info *info = dro_predictor_data(p);
    const char *out = cli_text(args, "out");
    dro_split split = DRO_TRAIN;
    int status =
        cli_text(args, "split") || !info->examples[DRO_TRAIN] ? cli_split(args, info, &split) : 0;
    if (status)
        return status;
    explained x = {.p = p,
                   .objective = cli_text(args, "objective"),
                   .over = cli_text(args, "over"),
                   .split = words[split],
                   .weights = cli_text(args, "weights"),
                   .which = split,
                   .ctx = ctx,
                   .top = cli_integer(args, "top")};
    cli_busy("evaluating");
    if (dro_predictor_explain(p, split, x.objective, x.over, &x.e) != DRO_OK ||
        dro_predictor_examples(p, split, &x.examples) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    cli_ready();
    if (out)
        status = write_out(&x, out);
    if (status)
        return status;
    if (cli_json(args))
        return cli_emit(document(&x, x.top));
    cli_print_remarks(p);
    show(&x);
    return cli_finish(0);
}

static int run(const cli_args *args)
{
    const char *const needed[] = {"weights", "data", "objective"};
    const char *out = cli_text(args, "out");
    for (size_t k = 0; k < sizeof needed / sizeof needed[0]; k++)
        if (!cli_text(args, needed[k]))
            return cli_usage("explain: --%s is missing: usage: dro explain --weights FILE --data "
                             "SPEC --objective NAME:X",
                             needed[k]);
    if (out && !ending(out))
        return cli_usage(
            "explain: --out %s: expected a name that ends in .csv, .tsv, .json or .html", out);
    if (out && (cli_same_file(cli_text(args, "weights"), out) ||
                cli_spec_reads(cli_text(args, "data"), out)))
        return cli_fail("%s is the input: write the weights to another file", out);
    dro_context *ctx = cli_context(args);
    dro_predictor *p = NULL;
    double loss = 0, weight, value;
    if (!ctx)
        return 1;
    if (dro_objective_value(ctx, cli_text(args, "objective"), &loss, 1, &weight, &value)) {
        int wrong = cli_usage("explain: %s", dro_context_error(ctx));
        dro_context_destroy(ctx);
        return wrong;
    }
    cli_busy("reading %s", cli_text(args, "data"));
    bool open =
        dro_predictor_open(ctx, cli_text(args, "weights"), cli_text(args, "data"), &p) == DRO_OK;
    cli_ready();
    int status = open ? explain(args, ctx, p) : cli_fail("%s", dro_context_error(ctx));
    dro_predictor_close(p);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("weights", "FILE", "a weights file written by dro train"),
    CLI_OPTION_TEXT("data", "SPEC", "format:path[,option=value...]"),
    CLI_OPTION_TEXT("objective", "NAME:X",
                    "kl:LAMBDA, kl-radius:RHO, cvar:ALPHA, chi2:RHO or mean"),
    {"over", CLI_TEXT, "WHAT", "example", 0, 0, "what is weighted: example, class or group"},
    CLI_OPTION_TEXT("split", "NAME", "train, test or holdout (default train)"),
    {"top", CLI_INTEGER, "N", "20", 0, 1e9, "show this many examples with the largest weights"},
    CLI_OPTION_TEXT("out", "FILE",
                    "all examples as .csv, .tsv or .json, or an .html page of the largest weights"),
    CLI_OPTIONS_END,
};

const cli_command cmd_explain = {
    .name = "explain",
    .usage = "--weights FILE --data SPEC --objective NAME:X [--over WHAT] [--top N] [--out FILE]",
    .summary = "show which examples a robust objective emphasises",
    .details =
        "A robust objective is a worst case over weightings of the examples. This command shows\n"
        "the worst-case weights for a trained model: of single examples, and in sum for classes\n"
        "and groups. Mislabelled examples often have the largest weights.\n"
        "  kl:LAMBDA      weights in proportion to exp(loss / LAMBDA)\n"
        "  kl-radius:RHO  the worst weights within a KL divergence of RHO\n"
        "  cvar:ALPHA     equal weights on the share ALPHA with the largest losses\n"
        "  chi2:RHO       the worst weights q with E(q - 1)^2 / 2 at most RHO\n"
        "Weights are shown as multiples of 1/n (column `times`). `example` counts the rows of the\n"
        "data from 0, without a header.",
    .options = options,
    .run = run,
};
