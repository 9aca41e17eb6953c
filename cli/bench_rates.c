/* `dro bench rates`: how many samples each method needs, with default and with tuned settings.
 *
 * A cell is a problem (rates.h) and an objective. A run has a budget of samples, which the
 * schedules know, and counts with F - F* at its end; budgets double from 1/128 of --samples on. The
 * samples that a method needs are the budget at which the mean of F - F* over the seeds reaches the
 * target, interpolated in logarithms. Defaults are those of `dro train` for the same rows and
 * budget. Tuned: the random setting (rates_methods.h) that needs the fewest samples on seeds that
 * are not used again; every method gets the same number of them.
 *
 * For each cell the default method's samples over those of the best method, paired: a bootstrap
 * draws the same seeds for both. */
#include "cli.h"
#include "rates.h"
#include "rates_methods.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { BUDGETS = 8, SEEDS_MAX = 64, TUNING_SEEDS = 2, RESAMPLES = 1000, CELLS_MAX = 64 };
enum { BY_DEFAULT, TUNED, COLUMNS };

static const double TARGET = 1e-3; /* of F - F* at w = 0 */
static const double FAILED = 1e30; /* of a run that diverged */
/* F(0) - F* below this share of F(0) is not measured: losses are floats, and the F that lbfgs
 * minimises is smoothed. */
static const double NO_GAP = 1e-6;
static const char objectives_all[] = "kl:1,kl:2,kl:5,kl-radius:0.1,cvar:0.5,chi2:0.1";

typedef struct rates_cell {
    const rates_problem *problem;
    char objective[40];
    double minimum, start; /* F*, F - F* at w = 0 */
    bool flat;             /* no F below that of w = 0 is known: nothing to measure */
} rates_cell;

/* F - F* of every run, and what follows from it. */
typedef struct rates_column {
    double gap[BUDGETS][SEEDS_MAX];
    double samples, low, high; /* to the target, and its 95 % interval; infinite: not reached */
    double exponent;           /* of the gap by samples, over the last five budgets */
    /* the default method's samples over these; infinite: only that one does not reach the target;
     * NaN: this one does not, or one of them was not run */
    double ratio, ratio_low, ratio_high;
} rates_column;

typedef struct result {
    const rates_cell *cell;
    const rates_method *method;
    bool supported;
    int setting;        /* the tuned one; 0: the default */
    double evaluations; /* per sample */
    rates_column columns[COLUMNS];
} result;

typedef struct plan {
    double samples; /* of the longest runs */
    int settings, seeds;
} plan;

/* ---- settings ---- */

static double unit(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 1) * 0x9e3779b97f4a7c15u + (b + 1) * 0xd1342543de82ef95u;
    x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 32) >> 11) * 0x1p-53;
}

/* The value of the k-th tuned parameter in setting number s, as text. */
static void draw_value(const rates_range *range, int s, int k, char *text, size_t size)
{
    double u = unit((uint64_t)s, (uint64_t)k);
    if (range->words) {
        int count = 1;
        for (const char *p = range->words; *p; p++)
            count += *p == '|';
        const char *word = range->words;
        for (int skip = (int)(u * count); skip > 0; skip--)
            word = strchr(word, '|') + 1;
        snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
        return;
    }
    double value = range->linear == 1 ? range->low + u * (range->high - range->low)
                                      : range->low * pow(range->high / range->low, u);
    snprintf(text, size, range->linear == 2 ? "%.0f" : "%.4g", value);
}

static void describe(const rates_method *m, int s, char *text, size_t size)
{
    size_t used = 0;
    snprintf(text, size, "default");
    for (int k = 0; s && k < RATES_TUNED_MAX && m->tuned[k].name && used < size; k++) {
        char value[32];
        draw_value(&m->tuned[k], s, k, value, sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", k ? " " : "",
                                 m->tuned[k].name, value);
    }
}

static bool stop_now(void *user, const dro_train_progress *progress)
{
    (void)user, (void)progress;
    return true;
}

/* config.json of a run of these rows that stops at once: the defaults. optimizer NULL: the
 * program's choice. NULL: the method does not have this objective. */
static json_t *defaults_of(rates_view *v, const char *optimizer, const char *objective,
                           double samples)
{
    dro_train *train = NULL;
    json_t *config = NULL;
    char steps[32], lambda[40];
    const char *name = "objective", *value = objective;
    if (optimizer && strncmp(objective, "kl:", 3) == 0) {
        name = "lambda", value = lambda;
        snprintf(lambda, sizeof lambda, "%s", objective + 3);
        dro_param p;
        for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
            if (strcmp(p.name, "objective") == 0)
                name = "objective", value = objective;
    }
    snprintf(steps, sizeof steps, "%.0f", fmax(samples / 128, 1));
    const char *const pairs[][2] = {{"data", v->from->spec}, {"model", "linear"},
                                    {"reg", "none"},         {"steps", steps},
                                    {name, value},           {"optimizer", optimizer}};
    dro_status status = rates_lend(v->from, v->ctx);
    status = status ? status : dro_train_create(v->ctx, &train);
    for (size_t k = 0; !status && k < sizeof pairs / sizeof pairs[0]; k++)
        if (pairs[k][1])
            status = dro_train_set(train, pairs[k][0], pairs[k][1]);
    dro_train_watch watch = {.size = sizeof watch, .step = stop_now};
    status = status ? status : dro_train_run(train, NULL, false, &watch);
    if (!status && dro_train_config(train))
        config = json_loads(dro_train_config(train), 0, NULL);
    dro_train_destroy(train);
    return config;
}

static dro_status set_json(dro_optimizer *opt, const char *name, const json_t *value)
{
    static const char *const others[] = {"seed", "steps"};
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (strcmp(others[k], name) == 0)
            return DRO_OK;
    if (json_is_string(value))
        return *json_string_value(value) ? dro_optimizer_set(opt, name, json_string_value(value))
                                         : DRO_OK;
    return json_is_number(value) ? dro_optimizer_set_real(opt, name, json_number_value(value))
                                 : DRO_OK;
}

/* The defaults of a budget, then what is fixed, then setting s. */
static dro_status configure(dro_optimizer *opt, const rates_method *m, const json_t *defaults,
                            int s, double samples)
{
    const char *name;
    json_t *value;
    char text[32];
    dro_status status = dro_optimizer_set_real(
        opt, "batch", (double)json_integer_value(json_object_get(defaults, "batch")));
    if (strcmp(m->optimizer, "civr") == 0)
        status = dro_optimizer_set(opt, "batch", "0");
    json_object_foreach(json_object_get(defaults, "optimizer_settings"), name, value) status =
        status ? status : set_json(opt, name, value);
    for (int k = 0; !status && k < RATES_FIXED_MAX && m->fixed[k][0]; k++)
        status = dro_optimizer_set(opt, m->fixed[k][0], m->fixed[k][1]);
    for (int k = 0; !status && s && k < RATES_TUNED_MAX && m->tuned[k].name; k++) {
        draw_value(&m->tuned[k], s, k, text, sizeof text);
        status = dro_optimizer_set(opt, m->tuned[k].name, text);
    }
    status = status ? status : dro_optimizer_get(opt, "batch", text, sizeof text);
    return status ? status
                  : dro_optimizer_set_real(opt, "steps", ceil(samples / fmax(atof(text), 1)));
}

/* ---- runs ---- */

typedef struct worker {
    rates_view view;
    const plan *plan;
    json_t *defaults[BUDGETS];
} worker;

static double budget(const plan *p, int k)
{
    return round(p->samples / pow(2, BUDGETS - 1 - k));
}

/* F - F* at the end of one run; FAILED where it diverges. */
static double one_run(worker *x, result *r, int setting, int k, int seed)
{
    dro_optimizer *opt = NULL;
    dro_info info;
    double samples = budget(x->plan, k), value = FAILED;
    rates_view *v = &x->view;
    dro_status status = dro_optimizer_create(v->ctx, r->method->optimizer, &v->problem, &opt);
    status = status ? status : configure(opt, r->method, x->defaults[k], setting, samples);
    status = status ? status : dro_optimizer_set_real(opt, "seed", seed);
    status = status ? status : dro_optimizer_start(opt, NULL);
    bool more = !status;
    while (more) {
        status = dro_optimizer_step(opt);
        if (status == DRO_ERR_END)
            break;
        more = !status && !dro_optimizer_info(opt, &info) && (double)info.examples < samples;
    }
    if ((status == DRO_OK || status == DRO_ERR_END) && opt &&
        dro_optimizer_weights(opt, v->w) == DRO_OK) {
        value = rates_value(v, v->w, r->cell->objective) - r->cell->minimum;
        if (!dro_optimizer_info(opt, &info) && info.examples)
            r->evaluations = (double)info.evaluations / (double)info.examples;
    }
    dro_optimizer_destroy(opt);
    return value;
}

/* Between two budgets the gap falls as a power. */
static double reach(const plan *p, const double *gaps, int count, double target)
{
    for (int k = 0; k < count; k++) {
        if (gaps[k] > target)
            continue;
        if (k == 0 || gaps[k - 1] >= FAILED || gaps[k] <= 0)
            return budget(p, k);
        double share = log(gaps[k - 1] / target) / log(gaps[k - 1] / gaps[k]);
        return budget(p, k - 1) * pow(2, share);
    }
    return HUGE_VAL;
}

/* Samples to the target on the tuning seeds; where it is not reached, a number that grows with the
 * last gap. Stops where it cannot be better than `best`. */
static double score(worker *x, result *r, int setting, double best)
{
    double gaps[BUDGETS], target = TARGET * r->cell->start;
    for (int k = 0; k < BUDGETS; k++) {
        gaps[k] = 0;
        for (int s = 0; s < TUNING_SEEDS; s++)
            gaps[k] += one_run(x, r, setting, k, 1000 + s) / TUNING_SEEDS;
        double samples = reach(x->plan, gaps, k + 1, target);
        if (isfinite(samples) || budget(x->plan, k) > best)
            return samples;
    }
    return x->plan->samples * (1 + fmin(gaps[BUDGETS - 1], FAILED) / target);
}

static void measure(worker *x, result *r, int setting, rates_column *c)
{
    for (int k = 0; k < BUDGETS; k++)
        for (int s = 0; s < x->plan->seeds; s++)
            c->gap[k][s] = one_run(x, r, setting, k, 1 + s);
}

static void work(const plan *p, result *r)
{
    worker x = {.plan = p};
    dro_status status = rates_open(r->cell->problem, &x.view);
    r->supported = !status;
    for (int k = 0; k < BUDGETS && r->supported; k++) {
        x.defaults[k] =
            defaults_of(&x.view, r->method->optimizer, r->cell->objective, budget(p, k));
        r->supported = x.defaults[k] != NULL;
    }
    if (r->supported) {
        double best = HUGE_VAL;
        measure(&x, r, 0, &r->columns[BY_DEFAULT]);
        for (int s = 0; s < p->settings; s++) {
            double samples = score(&x, r, s, best);
            if (samples < best)
                best = samples, r->setting = s;
        }
        if (r->setting)
            measure(&x, r, r->setting, &r->columns[TUNED]);
        else
            r->columns[TUNED] = r->columns[BY_DEFAULT];
    }
    for (int k = 0; k < BUDGETS; k++)
        json_decref(x.defaults[k]);
    rates_close(&x.view);
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Samples to the target for the mean over seeds; t below 0: all of them, else the t-th resample. */
static double resampled(const plan *p, const rates_column *c, double target, int t)
{
    double gaps[BUDGETS] = {0};
    for (int k = 0; k < BUDGETS; k++)
        for (int s = 0; s < p->seeds; s++) {
            int pick = t < 0 ? s : (int)(unit((uint64_t)t + 1000, (uint64_t)s) * p->seeds);
            gaps[k] += c->gap[k][pick] / p->seeds;
        }
    return reach(p, gaps, BUDGETS, target);
}

static double mean_gap(const plan *p, const rates_column *c, int k)
{
    double sum = 0;
    for (int s = 0; s < p->seeds; s++)
        sum += c->gap[k][s] / p->seeds;
    return sum;
}

static void fit(const plan *p, const rates_cell *cell, rates_column *c)
{
    double all[RESAMPLES], target = TARGET * cell->start, sx = 0, sy = 0, sxx = 0, sxy = 0, n = 0;
    for (int t = 0; t < RESAMPLES; t++)
        all[t] = resampled(p, c, target, t);
    qsort(all, RESAMPLES, sizeof *all, ascending);
    c->samples = resampled(p, c, target, -1);
    c->low = all[RESAMPLES / 40];
    c->high = all[RESAMPLES - 1 - RESAMPLES / 40];
    for (int k = BUDGETS - 5; k < BUDGETS; k++) {
        double x = log(budget(p, k)), y = log(fmax(mean_gap(p, c, k), 1e-12));
        n++, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    c->exponent = (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

static void compare(const plan *p, const rates_cell *cell, const rates_column *ours,
                    rates_column *c)
{
    double all[RESAMPLES], target = TARGET * cell->start;
    if (!isfinite(c->samples))
        return;
    for (int t = 0; t < RESAMPLES; t++) {
        double a = resampled(p, ours, target, t), b = resampled(p, c, target, t);
        all[t] = isfinite(a) || isfinite(b) ? a / b : 1;
    }
    qsort(all, RESAMPLES, sizeof *all, ascending);
    c->ratio = ours->samples / c->samples;
    c->ratio_low = all[RESAMPLES / 40];
    c->ratio_high = all[RESAMPLES - 1 - RESAMPLES / 40];
}

/* NULL: none reaches the target. */
static const result *best_of(const result *results, int column)
{
    const result *best = NULL;
    for (int i = 0; i < RATES_METHODS; i++) {
        const result *r = &results[i];
        if (r->supported && isfinite(r->columns[column].samples) &&
            (!best || r->columns[column].samples < best->columns[column].samples))
            best = r;
    }
    return best;
}

/* ---- output ---- */

static json_t *column_json(const plan *p, const rates_column *c)
{
    json_t *gaps = json_array(), *samples = json_array();
    for (int k = 0; k < BUDGETS; k++) {
        json_array_append_new(samples, json_real(budget(p, k)));
        json_array_append_new(gaps, cli_number(mean_gap(p, c, k)));
    }
    return json_pack("{s:o, s:[o,o], s:o, s:o, s:[o,o], s:o, s:o}", "samples",
                     cli_number(c->samples), "samples_ci", cli_number(c->low), cli_number(c->high),
                     "exponent", cli_number(c->exponent), "ratio", cli_number(c->ratio), "ratio_ci",
                     cli_number(c->ratio_low), cli_number(c->ratio_high), "budgets", samples,
                     "gaps", gaps);
}

static json_t *row_json(const plan *p, const result *r)
{
    char setting[256];
    describe(r->method, r->setting, setting, sizeof setting);
    double theory = r->cell->problem->kind == RATES_PL ? r->method->theory : 0;
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:s, s:o, s:o}", "problem",
                     rates_names[r->cell->problem->kind], "objective", r->cell->objective, "method",
                     r->method->label, "theory", theory < 0 ? json_real(theory) : json_null(),
                     "evaluations_per_sample", r->evaluations, "setting", setting, "default",
                     column_json(p, &r->columns[BY_DEFAULT]), "tuned",
                     column_json(p, &r->columns[TUNED]));
}

static void samples_cells(cli_table *t, const plan *p, const rates_column *c)
{
    if (isfinite(c->samples))
        cli_table_cell(t, "%.0f", c->samples);
    else
        cli_table_cell(t, "-");
    if (isfinite(c->high))
        cli_table_cell(t, "%.0f .. %.0f", c->low, c->high);
    else
        cli_table_cell(t, "-");
    double last = mean_gap(p, c, BUDGETS - 1);
    if (last < FAILED / SEEDS_MAX)
        cli_table_cell(t, "%.1e", last);
    else
        cli_table_cell(t, "diverged");
}

static bool any_run(const result *rows)
{
    bool any = false;
    for (int i = 0; i < RATES_METHODS; i++)
        any = any || rows[i].supported;
    return any;
}

static void print_cell(const plan *p, const rates_cell *cell, const result *results)
{
    static const char *const headers[] = {
        "method",         ">default",  ">95 % interval", ">last gap", ">tuned",
        ">95 % interval", ">last gap", ">exponent",      ">theory",   "setting"};
    const char *name = rates_names[cell->problem->kind];
    if (cell->flat) {
        printf("\n%s, %s: left out, as no F below that of w = 0 was found\n", name,
               cell->objective);
        return;
    }
    printf("\n%s, %s: F* %.6f, samples until F - F* is %.2g\n", name, cell->objective,
           cell->minimum, TARGET * cell->start);
    if (!any_run(results)) {
        printf("none of these methods has this objective\n");
        return;
    }
    cli_table *t = cli_table_create(10, headers);
    for (int i = 0; i < RATES_METHODS; i++) {
        const result *r = &results[i];
        char setting[256];
        if (!r->supported)
            continue;
        describe(r->method, r->setting, setting, sizeof setting);
        cli_table_cell(t, "%s", r->method->label);
        samples_cells(t, p, &r->columns[BY_DEFAULT]);
        samples_cells(t, p, &r->columns[TUNED]);
        cli_table_cell(t, "%.2f", r->columns[TUNED].exponent);
        if (cell->problem->kind == RATES_PL && r->method->theory < 0)
            cli_table_cell(t, "%.0f", r->method->theory);
        else
            cli_table_cell(t, "-");
        cli_table_cell(t, "%s", setting);
    }
    cli_table_print(t);
}

static void ratio_cells(cli_table *t, const result *best, int column)
{
    const rates_column *c = best ? &best->columns[column] : NULL;
    cli_table_cell(t, "%s", best ? best->method->label : "none reaches it");
    if (!c)
        cli_table_cell(t, "-");
    else if (isfinite(c->ratio))
        cli_table_cell(t, "%.2f (%.2f to %.2f)", c->ratio, c->ratio_low, c->ratio_high);
    else
        cli_table_cell(t, isnan(c->ratio) ? "-" : "not reached");
}

/* Every cell's best methods against the default method. */
static void print_summary(const rates_cell *cells, int count, const result *results,
                          const char *ours)
{
    static const char *const headers[] = {"problem",    "objective",     "best by default",
                                          ">over best", "best if tuned", ">over best"};
    int shown = 0;
    for (int c = 0; c < count; c++)
        shown += any_run(results + (size_t)c * RATES_METHODS);
    if (shown == 0)
        return;
    printf("\nSamples that %s, the default method, needs over those of the best method "
           "(95 %% intervals, paired)\n",
           ours);
    cli_table *t = cli_table_create(6, headers);
    for (int c = 0; c < count; c++) {
        const result *rows = results + (size_t)c * RATES_METHODS;
        if (!any_run(rows))
            continue;
        cli_table_cell(t, "%s", rates_names[cells[c].problem->kind]);
        cli_table_cell(t, "%s", cells[c].objective);
        for (int k = 0; k < COLUMNS; k++)
            ratio_cells(t, best_of(rows, k), k);
    }
    cli_table_print(t);
}

/* ---- the command ---- */

/* Whether a word is in a list with commas; NULL: every word is. */
static bool listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == length && memcmp(p, word, length) == 0)
            return true;
    return !list;
}

/* The next word of a list with commas, cut to its size; false at the end. */
static bool next_word(const char **list, char *word, size_t size)
{
    size_t length = strcspn(*list, ",");
    if (!**list)
        return false;
    snprintf(word, size, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

static int check_objectives(const char *list, dro_context *ctx)
{
    char word[256];
    double loss = 1, weight, value;
    int count = 0;
    for (; next_word(&list, word, sizeof word); count++) {
        if (dro_objective_value(ctx, word, &loss, 1, &weight, &value) != DRO_OK)
            return cli_usage("bench rates: --objectives: %s", dro_context_error(ctx));
        if (strlen(word) >= sizeof((rates_cell *)0)->objective)
            return cli_usage("bench rates: --objectives: '%s' is too long", word);
    }
    return count > 0 && count * RATES_KINDS <= CELLS_MAX
               ? 0
               : cli_usage("bench rates: --objectives: expected 1 to %d of them, with commas",
                           CELLS_MAX / RATES_KINDS);
}

static int check_methods(const char *list)
{
    char word[256], all[512];
    size_t used = 0;
    for (int i = 0; i < RATES_METHODS; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "",
                                 rates_methods[i].label);
    bool any = false, known = true;
    while (known && next_word(&list, word, sizeof word)) {
        any = true, known = false;
        for (int i = 0; i < RATES_METHODS; i++)
            known = known || strcmp(rates_methods[i].label, word) == 0;
    }
    if (any && known)
        return 0;
    return cli_usage("bench rates: --methods: no method '%s': expected some of %s", any ? word : "",
                     all);
}

static int check_problems(const char *list, bool data)
{
    char word[256];
    bool any = false, known = true;
    while (known && next_word(&list, word, sizeof word)) {
        any = true, known = false;
        for (int k = 0; k < RATES_KINDS; k++)
            known = known || (strcmp(rates_names[k], word) == 0 && (k != RATES_DATA || data));
    }
    if (any && known)
        return 0;
    return cli_usage("bench rates: --problems: expected pl, nonconvex or data (with --data)");
}

/* Before anything runs. */
static int check_lists(const cli_args *args, dro_context *ctx)
{
    const char *problems = cli_text(args, "problems"), *methods = cli_text(args, "methods");
    int status = check_objectives(cli_text(args, "objectives"), ctx);
    if (status == 0 && methods)
        status = check_methods(methods);
    if (status == 0 && problems)
        status = check_problems(problems, cli_text(args, "data") != NULL);
    return status;
}

static int make_cells(const cli_args *args, dro_context *ctx, rates_problem *problems,
                      rates_cell *cells)
{
    const char *spec = cli_text(args, "data"), *list = cli_text(args, "objectives");
    int count = 0;
    for (int kind = 0; kind < RATES_KINDS; kind++) {
        if (!listed(cli_text(args, "problems"), rates_names[kind]) || (kind == RATES_DATA && !spec))
            continue;
        dro_status status = rates_create(ctx, kind, spec, &problems[kind]);
        if (status) {
            cli_fail("%s: %s", kind == RATES_DATA ? spec : rates_names[kind],
                     status == DRO_ERR_UNSUPPORTED ? "expected a table with two classes"
                                                   : dro_context_error(ctx));
            return -1;
        }
        const char *rest = list;
        while (next_word(&rest, cells[count].objective, sizeof cells->objective))
            cells[count++].problem = &problems[kind];
    }
    return count;
}

/* F* and F - F* at w = 0. The F that lbfgs minimises is smoothed for cvar and chi2, so its end may
 * be above F(0). */
static void prepare(rates_cell *c)
{
    rates_view view;
    c->minimum = NAN;
    if (rates_open(c->problem, &view) == DRO_OK) {
        double start = rates_value(&view, view.w, c->objective);
        c->minimum = fmin(rates_minimum(&view, c->objective), start);
        c->start = start - c->minimum;
        c->flat = !(c->start > NO_GAP * fabs(start));
    }
    rates_close(&view);
}

/* What `dro train` uses for these rows when steps are given and no optimiser is. */
static void default_method(const rates_cell *c, char *name, size_t size)
{
    rates_view view;
    snprintf(name, size, "recover");
    if (rates_open(c->problem, &view) == DRO_OK) {
        json_t *config = defaults_of(&view, NULL, c->objective, 1000);
        const char *chosen = json_string_value(json_object_get(config, "optimizer"));
        if (chosen)
            snprintf(name, size, "%s", chosen);
        json_decref(config);
    }
    rates_close(&view);
}

/* F* becomes the lowest F seen. */
static void lower_minimum(const plan *p, rates_cell *cell, result *rows)
{
    double least = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < RATES_METHODS * COLUMNS * BUDGETS; i++) {
            result *r = &rows[i / (COLUMNS * BUDGETS)];
            double *gaps = r->columns[i / BUDGETS % COLUMNS].gap[i % BUDGETS];
            for (int s = 0; r->supported && s < p->seeds; s++)
                if (pass == 0)
                    least = fmin(least, gaps[s]);
                else
                    gaps[s] -= least;
        }
    cell->minimum += least;
    cell->start -= least;
}

static void finish(const plan *p, rates_cell *cell, result *rows, const char *ours)
{
    const result *own = NULL;
    lower_minimum(p, cell, rows);
    for (int i = 0; i < RATES_METHODS; i++)
        for (int k = 0; k < COLUMNS; k++) {
            rates_column *c = &rows[i].columns[k];
            c->ratio = c->ratio_low = c->ratio_high = NAN;
        }
    for (int i = 0; i < RATES_METHODS; i++)
        for (int k = 0; rows[i].supported && k < COLUMNS; k++)
            fit(p, cell, &rows[i].columns[k]);
    for (int i = 0; i < RATES_METHODS; i++)
        if (rows[i].supported && strcmp(rows[i].method->label, ours) == 0)
            own = &rows[i];
    for (int i = 0; own && i < RATES_METHODS; i++)
        for (int k = 0; rows[i].supported && k < COLUMNS; k++)
            compare(p, cell, &own->columns[k], &rows[i].columns[k]);
}

static int threads_of(const dro_context *ctx)
{
#ifdef _OPENMP
    return dro_context_threads(ctx);
#else
    (void)ctx;
    return 1;
#endif
}

static json_t *run_all(const cli_args *args, rates_cell *cells, int count, int threads)
{
    plan p = {.samples = cli_real(args, "samples"),
              .settings = (int)cli_integer(args, "settings"),
              .seeds = (int)cli_integer(args, "seeds")};
    int tasks = count * RATES_METHODS, done = 0;
    char ours[64];
    result *results = calloc((size_t)tasks, sizeof *results);
    json_t *rows = json_array();
    if (!results)
        return rows;
    (void)threads;
    cli_busy("the minima of %d objectives", count);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int c = 0; c < count; c++)
        prepare(&cells[c]);
    default_method(&cells[0], ours, sizeof ours);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int k = tasks - 1; k >= 0; k--) { /* real data first: its runs are longest */
        result *r = &results[k];
        r->cell = &cells[k / RATES_METHODS];
        r->method = &rates_methods[k % RATES_METHODS];
        if (!r->cell->flat && listed(cli_text(args, "methods"), r->method->label))
            work(&p, r);
#pragma omp critical
        cli_busy("%d of %d methods and objectives done", ++done, tasks);
    }
    cli_ready();
    for (int c = 0; c < count; c++) {
        result *of = results + (size_t)c * RATES_METHODS;
        finish(&p, &cells[c], of, ours);
        for (int i = 0; i < RATES_METHODS; i++)
            if (of[i].supported)
                json_array_append_new(rows, row_json(&p, &of[i]));
        if (!cli_json(args))
            print_cell(&p, &cells[c], of);
    }
    if (!cli_json(args))
        print_summary(cells, count, results, ours);
    if (!cli_json(args) && !listed(cli_text(args, "methods"), ours))
        printf("%s was not run: --methods leaves it out\n", ours);
    free(results);
    return rows;
}

static json_t *flat_json(const rates_cell *cells, int count)
{
    json_t *flat = json_array();
    for (int c = 0; c < count; c++)
        if (cells[c].flat)
            json_array_append_new(flat, json_pack("{s:s, s:s}", "problem",
                                                  rates_names[cells[c].problem->kind], "objective",
                                                  cells[c].objective));
    return flat;
}

static int run(const cli_args *args)
{
    static rates_problem problems[RATES_KINDS];
    static rates_cell cells[CELLS_MAX];
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    int status = check_lists(args, ctx), count = 0;
    if (status == 0) {
        cli_begin(args);
        count = make_cells(args, ctx, problems, cells);
        status = count < 0;
    }
    if (count > 0) {
        json_t *rows = run_all(args, cells, count, threads_of(ctx));
        json_t *document =
            json_pack("{s:s, s:f, s:i, s:i, s:f, s:o, s:o}", "machine", cli_cpu(), "samples",
                      cli_real(args, "samples"), "settings", (int)cli_integer(args, "settings"),
                      "seeds", (int)cli_integer(args, "seeds"), "target", TARGET, "rows", rows,
                      "left_out", flat_json(cells, count));
        status = 0;
        if (cli_json(args))
            status = cli_emit(document);
        else
            json_decref(document);
    }
    for (int kind = 0; kind < RATES_KINDS; kind++)
        rates_destroy(&problems[kind]);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    {"samples", CLI_REAL, "N", "524288", 1e4, 1e9, "examples of the longest runs"},
    {"settings", CLI_INTEGER, "N", "24", 1, 1000,
     "settings tried for every method: the default and random ones"},
    {"seeds", CLI_INTEGER, "N", "24", 2, SEEDS_MAX, "seeds of the measurement"},
    CLI_OPTION_TEXT("data", "SPEC", "also a table with two classes (problem data)"),
    CLI_OPTION_TEXT("problems", "LIST", "only these of pl,nonconvex,data"),
    {"objectives", CLI_TEXT, "LIST", objectives_all, 0, 0, "the objectives"},
    CLI_OPTION_TEXT("methods", "LIST", "only these methods"),
    CLI_OPTIONS_END,
};

const cli_command bench_rates = {
    .name = "bench rates",
    .usage = "[--json] [--data SPEC] [--problems LIST] [--objectives LIST] [--seeds N] ...",
    .summary = "samples that every method needs, with default and with tuned settings",
    .details =
        "Problems: pl (least squares), nonconvex (a bounded loss of the same rows) and data (the\n"
        "logistic loss of the table --data). The number of samples that a method needs is the\n"
        "length of its shortest run that ends with F - F* at a thousandth of its first value.\n"
        "Tuned: the best of --settings random settings, chosen on other seeds. Runs are divided\n"
        "among all processors.",
    .options = options,
    .run = run,
};
