/* dro eval: the metrics of trained weights on data. */
#include "train.h"

#include <math.h>
#include <string.h>

static void put_groups(json_t *o, const dro_data_info *info, const dro_metrics *m)
{
    json_t *per_group = json_array(), *names = json_array();
    for (int32_t k = 0; k < m->groups; k++) {
        json_array_append_new(per_group, cli_number(m->per_group[k]));
        json_array_append_new(names, cli_text_json(info->group_names[k]));
    }
    if (m->groups) {
        json_object_set_new(o, "worst_group_accuracy", cli_number(m->worst_group_accuracy));
        json_object_set(o, "per_group", per_group);
        json_object_set(o, "groups", names);
    }
    json_decref(per_group);
    json_decref(names);
}

/* dro_predictor_skipped: the images that skip_bad skipped, or dro_predictor_remark. */
static json_t *texts(const dro_predictor *p, const char *(*text)(const dro_predictor *, int))
{
    json_t *all = json_array();
    for (int k = 0; text(p, k); k++)
        json_array_append_new(all, cli_text_json(text(p, k)));
    return all;
}

static void put_threshold(json_t *o, const dro_predictor *p)
{
    dro_threshold t = dro_predictor_threshold_get(p);
    if (t.class_name)
        json_object_set_new(o, "threshold",
                            json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "class",
                                      cli_text_json(t.class_name), "rule", t.rule, "probability",
                                      cli_number(t.probability), "precision",
                                      cli_number(t.precision), "recall", cli_number(t.recall), "f1",
                                      cli_number(t.f1)));
}

static json_t *metrics_json(const dro_predictor *p, const dro_metrics *m, const char *split)
{
    static const char *const real[] = {"rmse", "mae", "r2"};
    json_t *per_class = json_array(), *confusion = json_array(), *names = json_array();
    for (int32_t k = 0; k < m->classes; k++) {
        json_t *row = json_array();
        json_array_append_new(per_class, cli_number(m->per_class[k]));
        json_array_append_new(names, cli_text_json(dro_predictor_class_name(p, k)));
        for (int32_t j = 0; m->confusion && j < m->classes; j++)
            json_array_append_new(row, json_integer(m->confusion[k * m->classes + j]));
        json_array_append_new(confusion, row);
    }
    json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o}", "loss_name", dro_predictor_loss(p),
                          "model", dro_predictor_model(p), "split", split, "examples",
                          (json_int_t)m->examples, "per_class", per_class, "confusion", confusion,
                          "classes", names);
#define X(name, code, title, better, unit, meaning)                                                \
    json_object_set_new(o, #name, cli_number(m->name));
    DRO_METRIC_LIST(X)
#undef X
    if (m->classes && !m->confusion)
        json_object_del(o, "confusion");
    json_object_del(o, "objective"); /* no lambda is known here */
    for (size_t k = 0; m->classes && k < sizeof real / sizeof real[0]; k++)
        json_object_del(o, real[k]);
    if (o) {
        json_object_set_new(o, "skipped", texts(p, dro_predictor_skipped));
        json_object_set_new(o, "notes", texts(p, dro_predictor_remark));
    }
    put_groups(o, dro_predictor_data(p), m);
    put_threshold(o, p);
    return o;
}

/* The class names as the model has them, for the table. */
static void show(dro_predictor *p, const dro_metrics *m, const char *split)
{
    enum { MOST = 4096 };
    static const char *names[MOST];
    dro_data_info info = *dro_predictor_data(p);
    info.classes = m->classes < MOST ? m->classes : MOST;
    for (int32_t k = 0; k < info.classes; k++)
        names[k] = dro_predictor_class_name(p, k);
    info.class_names = names;
    cli_show_classes(m, &info, false);
    printf("\n");
    cli_show_metrics(split, m, dro_predictor_loss(p));
}

int cli_split(const cli_args *args, const dro_data_info *info, dro_split *split)
{
    static const char *const words[DRO_SPLITS] = {"train", "test", "holdout"};
    const char *word = cli_text(args, "split");
    *split = info->examples[DRO_TEST] ? DRO_TEST : DRO_TRAIN;
    if (!word)
        return 0;
    for (int s = 0; s < DRO_SPLITS; s++)
        if (strcmp(word, words[s]) == 0) {
            *split = (dro_split)s;
            if (info->examples[s] == 0)
                return cli_fail("the data has no %s examples", word);
            return 0;
        }
    return cli_usage("%s: --split %s: expected train, test or holdout", cli_name(args), word);
}

void cli_print_remarks(const dro_predictor *p)
{
    for (int k = 0; dro_predictor_remark(p, k); k++)
        cli_note(stderr, "note: %s", dro_predictor_remark(p, k));
    for (int k = 0; dro_predictor_skipped(p, k); k++)
        cli_note(stderr, "skipped %s", dro_predictor_skipped(p, k));
}

void cli_print_threshold(const dro_predictor *p, const char *where)
{
    dro_threshold t = dro_predictor_threshold_get(p);
    if (!t.class_name)
        return;
    char measured[200] = ", of the weights";
    if (isfinite(t.recall))
        snprintf(measured, sizeof measured,
                 ": precision %.3f, recall %.3f, F1 %.3f on the %s; kept in the weights",
                 t.precision, t.recall, t.f1, where);
    cli_note(stderr, "threshold: class '%s' from a probability of %.4g on (%s)%s", t.class_name,
             t.probability, t.rule, measured);
}

/* --threshold: chosen on the holdout if there is one, else on what is evaluated. */
static int take_threshold(const cli_args *args, dro_context *ctx, dro_predictor *p, dro_split split)
{
    static const char *const words[DRO_SPLITS] = {"training data", "test set", "holdout"};
    const char *rule = cli_text(args, "threshold");
    bool aside = dro_predictor_data(p)->examples[DRO_HOLDOUT] > 0;
    dro_split by = aside ? DRO_HOLDOUT : split;
    if (rule && cli_text(args, "prior"))
        return cli_usage("eval: --threshold is of probabilities with the prior of the training "
                         "data: leave out --prior");
    if (rule && dro_predictor_threshold(p, by, rule, cli_text(args, "class"), true) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    if (!cli_json(args))
        cli_print_threshold(p, words[by]);
    if (rule && !aside && !cli_json(args) && dro_predictor_threshold_get(p).class_name)
        fprintf(stderr, "dro: note: the threshold was chosen by the examples that the figures "
                        "below are of; holdout=0.2 in --data sets a fifth aside\n");
    return 0;
}

static int evaluate(const cli_args *args, dro_context *ctx, dro_predictor *p)
{
    static const char *const words[DRO_SPLITS] = {"train", "test", "holdout"};
    dro_split split;
    const dro_metrics *m;
    const dro_data_info *info = dro_predictor_data(p);
    int status = cli_split(args, info, &split);
    if (status)
        return status;
    /* a single split without a name: it may or may not have been trained on */
    bool whole =
        !cli_text(args, "split") && !info->examples[DRO_TEST] && !info->examples[DRO_HOLDOUT];
    const char *name = whole ? "data" : words[split];
    const char *prior = cli_text(args, "prior");
    status = take_threshold(args, ctx, p, split);
    if (status)
        return status;
    cli_progress("evaluating");
    if (prior && dro_predictor_prior(p, prior) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    if (dro_predictor_evaluate(p, split, &m) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    cli_progress(NULL);
    if (cli_json(args))
        return cli_emit(metrics_json(p, m, name));
    cli_print_remarks(p);
    show(p, m, name);
    return 0;
}

static int run(const cli_args *args)
{
    const char *weights = cli_text(args, "weights"), *data = cli_text(args, "data");
    if (!weights || !data)
        return cli_usage("eval: --%s is missing: usage: dro eval --weights FILE --data SPEC",
                         weights ? "data" : "weights");
    dro_context *ctx = cli_context(args);
    dro_predictor *p = NULL;
    if (!ctx)
        return 1;
    if (cli_json(args)) {
        cli_busy("evaluating %s on %s", weights, data);
    } else {
        cli_print("evaluating %s on %s\n", weights, data);
        printf("\n");
    }
    fflush(stdout);
    cli_progress("reading %s", data);
    int status = dro_predictor_open(ctx, weights, data, &p) == DRO_OK
                     ? evaluate(args, ctx, p)
                     : cli_fail("%s", dro_context_error(ctx));
    dro_predictor_close(p);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("weights", "FILE", "a weights file written by dro train"),
    CLI_OPTION_TEXT("data", "SPEC", "format:path[,option=value...]"),
    CLI_OPTION_TEXT("split", "NAME", "train, test or holdout (default test, or train if none)"),
    CLI_OPTION_TEXT("threshold", "RULE",
                    "how to choose the threshold: f1, recall:R, cost:A:B, a number or none"),
    CLI_OPTION_TEXT("class", "NAME", "the class that has the threshold (default the rarest)"),
    CLI_OPTION_TEXT("prior", "NAME",
                    "class prior: train (default), uniform, or a file of lines NAME,SHARE"),
    CLI_OPTIONS_END,
};

const cli_command cmd_eval = {
    .name = "eval",
    .usage = "--weights FILE --data SPEC [--split NAME] [--json]",
    .summary = "evaluate trained weights on data, class by class",
    .details =
        "The weights file holds the model, its classes and how images are normalised. The data's\n"
        "classes are matched by name.\n"
        "--threshold chooses the probability from which a class is predicted. It is chosen on the\n"
        "holdout if the data has one, and saved in the weights file for dro predict and dro eval.\n"
        "f1: the threshold with the largest F1; recall:0.9: the highest one with that recall;\n"
        "cost:10:1: a missed example costs 10, a false alarm 1.",
    .options = options,
    .run = run,
};
