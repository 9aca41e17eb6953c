/* `dro bench rates`: the paper's Table 1, measured.
 *
 * Two problems with everything known (rates.h), every method with the same number of random
 * settings from its own space (rates_methods.h), the setting chosen by the final error on seeds
 * that are not used again, then several other seeds. Fitted over the last 1.5 decades of samples:
 * the mean gap to the minimum, or for the non-convex problem the running mean of |grad F|^2. */
#include "cli.h"
#include "rates.h"
#include "rates_methods.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PER_DECADE = 40,
    POINTS_MAX = 320,
    SEEDS_MAX = 64,
    FIRST = 100,
    TUNING_SEEDS = 3,
    BATCH = 8,
    RESAMPLES = 1000
};

static const double NONCONVEX_LAMBDA = 0.5;
static const double PL_TARGET = 1e-3, NONCONVEX_TARGET = 3e-3; /* of what it is at the start */

typedef struct curve {
    int points;
    double samples[POINTS_MAX], error[POINTS_MAX], evaluations[POINTS_MAX];
} curve;

typedef struct result {
    curve mean;
    double exponent, low, high;                      /* of the fit, and its 95% interval */
    double samples_to_target, evaluations_to_target; /* NAN: not reached */
    double samples_low, samples_high;                /* its 95% interval */
    int setting;
} result;

typedef struct plan {
    const rates_problem *problem;
    double samples; /* per run */
    int settings, tuning_seeds, seeds;
    double start; /* the error at w = 0 */
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
    text[0] = '\0';
    for (int k = 0; k < RATES_TUNED_MAX && m->tuned[k].name && used < size; k++) {
        char value[32];
        draw_value(&m->tuned[k], s, k, value, sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", k ? " " : "",
                                 m->tuned[k].name, value);
    }
}

static dro_status configure(dro_optimizer *opt, const rates_method *m, int s, int seed,
                            double lambda)
{
    dro_status status = dro_optimizer_set_real(opt, "batch", BATCH);
    status = status ? status : dro_optimizer_set(opt, "order", "uniform");
    status = status ? status : dro_optimizer_set_real(opt, "seed", seed);
    if (!status && strcmp(m->optimizer, "sgd") != 0)
        status = dro_optimizer_set_real(opt, "lambda", lambda);
    for (int k = 0; !status && k < RATES_FIXED_MAX && m->fixed[k][0]; k++)
        status = dro_optimizer_set(opt, m->fixed[k][0], m->fixed[k][1]);
    for (int k = 0; !status && k < RATES_TUNED_MAX && m->tuned[k].name; k++) {
        char value[32];
        draw_value(&m->tuned[k], s, k, value, sizeof value);
        status = dro_optimizer_set(opt, m->tuned[k].name, value);
    }
    return status ? status : dro_optimizer_start(opt, NULL);
}

/* ---- one run ---- */

/* The gap or |grad F|^2 at the optimiser's w. */
static double error_now(const plan *p, const dro_optimizer *opt)
{
    double w[RATES_D], g[RATES_D], norm = 0;
    for (int j = 0; j < RATES_D; j++)
        w[j] = (double)dro_optimizer_w(opt)[j];
    double value = rates_objective(p->problem, w, g);
    for (int j = 0; j < RATES_D; j++)
        norm += g[j] * g[j];
    double error = p->problem->kind == RATES_PL ? value - p->problem->best : norm;
    return isfinite(error) ? error : 1e30;
}

/* From the values at the points to the running mean over samples. */
static void run_mean(curve *c, double start)
{
    double area = 0, before = start, at = 0;
    for (int k = 0; k < c->points; k++) {
        area += (c->error[k] + before) / 2 * (c->samples[k] - at);
        before = c->error[k];
        at = c->samples[k];
        c->error[k] = area / at;
    }
}

static void fill(curve *c, const plan *p, int from, double error, double evaluations)
{
    for (int k = from; k < POINTS_MAX; k++) {
        double samples = FIRST * pow(10, (double)k / PER_DECADE);
        if (samples > p->samples * 1.0001)
            break;
        c->samples[k] = samples;
        c->error[k] = error;
        c->evaluations[k] = evaluations;
        c->points = k + 1;
    }
}

/* A run that fails (numbers beyond the range of a float) keeps a huge error until its end. */
static void one_run(const plan *p, const rates_method *m, int setting, int seed, curve *c)
{
    dro_context *ctx = NULL;
    dro_optimizer *opt = NULL;
    dro_problem problem;
    dro_info info;
    rates_view *view = malloc(sizeof *view);
    c->points = 0;
    fill(c, p, 0, 1e30, 0);
    if (view && dro_context_create("auto", 1, &ctx) == DRO_OK) {
        rates_bind(p->problem, view, &problem);
        dro_status status = dro_optimizer_create(ctx, m->optimizer, &problem, &opt);
        status = status ? status : configure(opt, m, setting, seed, p->problem->lambda);
        for (int k = 0; !status && k < c->points;) {
            status = dro_optimizer_step(opt);
            if (status || dro_optimizer_info(opt, &info))
                break;
            double error = (double)info.examples >= c->samples[k] ? error_now(p, opt) : 0;
            for (; k < c->points && (double)info.examples >= c->samples[k]; k++) {
                c->error[k] = error;
                c->evaluations[k] =
                    c->samples[k] * (double)info.evaluations / (double)info.examples;
            }
        }
    }
    if (p->problem->kind == RATES_NONCONVEX)
        run_mean(c, p->start);
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
    free(view);
}

/* ---- fits ---- */

static void mean_curve(const curve *runs, const int *pick, int count, curve *mean)
{
    *mean = runs[0];
    for (int k = 0; k < mean->points; k++) {
        mean->error[k] = mean->evaluations[k] = 0;
        for (int s = 0; s < count; s++) {
            mean->error[k] += runs[pick ? pick[s] : s].error[k] / count;
            mean->evaluations[k] += runs[pick ? pick[s] : s].evaluations[k] / count;
        }
    }
}

/* The slope of log error against log samples over the last 1.5 decades. */
static double slope(const curve *c)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int k = c->points - 1; k >= 0 && k >= c->points - 1 - PER_DECADE * 3 / 2; k--) {
        double x = log(c->samples[k]), y = log(fmax(c->error[k], 1e-300));
        n++, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/* The number of samples from which the mean error stays below the target for half a decade,
 * interpolated in logarithms; NAN if it does not. */
static double find_target(const curve *c, double target, double *evaluations)
{
    int below = 0;
    *evaluations = NAN;
    for (int k = 0; k < c->points; k++) {
        below = c->error[k] <= target ? below + 1 : 0;
        if (below <= PER_DECADE / 2 && !(below && k == c->points - 1))
            continue;
        int at = k - below + 1;
        double samples = c->samples[at], before = at ? c->error[at - 1] : 0;
        if (at && before > target && c->error[at] > 0 && before < 1e29)
            samples = c->samples[at - 1] * pow(samples / c->samples[at - 1],
                                               log(before / target) / log(before / c->error[at]));
        *evaluations = c->evaluations[at] * samples / c->samples[at];
        return samples;
    }
    return NAN;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The fits, and their bootstrap intervals over the seeds. */
static void fit(result *r, const plan *p, const curve *runs)
{
    double slopes[RESAMPLES] = {0}, reached[RESAMPLES] = {0}, unused;
    double target = (p->problem->kind == RATES_PL ? PL_TARGET : NONCONVEX_TARGET) * p->start;
    int pick[SEEDS_MAX];
    curve *again = malloc(sizeof *again);
    mean_curve(runs, NULL, p->seeds, &r->mean);
    r->exponent = slope(&r->mean);
    for (int t = 0; again && t < RESAMPLES; t++) {
        for (int s = 0; s < p->seeds; s++)
            pick[s] = (int)(unit((uint64_t)t + 1000, (uint64_t)s) * p->seeds);
        mean_curve(runs, pick, p->seeds, again);
        slopes[t] = slope(again);
        reached[t] = find_target(again, target, &unused);
        reached[t] = isnan(reached[t]) ? HUGE_VAL : reached[t];
    }
    qsort(slopes, RESAMPLES, sizeof *slopes, ascending);
    qsort(reached, RESAMPLES, sizeof *reached, ascending);
    r->samples_low = reached[RESAMPLES / 40];
    r->samples_high = reached[RESAMPLES - 1 - RESAMPLES / 40];
    r->samples_to_target = find_target(&r->mean, target, &r->evaluations_to_target);
    r->low = slopes[RESAMPLES / 40];
    r->high = slopes[RESAMPLES - 1 - RESAMPLES / 40];
    free(again);
}

static void measure(const plan *p, const rates_method *m, result *r)
{
    int tuning = p->settings * p->tuning_seeds;
    int most = tuning > p->seeds ? tuning : p->seeds;
    curve *runs = calloc((size_t)most, sizeof *runs);
    if (!runs)
        return;
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < tuning; k++)
        one_run(p, m, k / p->tuning_seeds, 1000 + k % p->tuning_seeds, &runs[k]);
    double best = HUGE_VAL;
    for (int s = 0; s < p->settings; s++) {
        double error = 0;
        for (int k = 0; k < p->tuning_seeds; k++) {
            const curve *c = &runs[s * p->tuning_seeds + k];
            error += c->error[c->points - 1];
        }
        if (error < best)
            best = error, r->setting = s;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < p->seeds; k++)
        one_run(p, m, r->setting, 1 + k, &runs[k]);
    fit(r, p, runs);
    free(runs);
}

/* ---- output ---- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *row_json(const plan *p, const rates_method *m, const result *r)
{
    bool pl = p->problem->kind == RATES_PL;
    double theory = pl ? m->theory_pl : m->theory_nonconvex;
    char setting[256];
    describe(m, r->setting, setting, sizeof setting);
    json_t *curve_samples = json_array(), *curve_error = json_array();
    for (int k = 0; k < r->mean.points; k += PER_DECADE / 4) {
        json_array_append_new(curve_samples, json_real(round(r->mean.samples[k])));
        json_array_append_new(curve_error, json_real(r->mean.error[k]));
    }
    return json_pack("{s:s, s:s, s:o, s:[o,o], s:o, s:o, s:[o,o], s:o, s:o, s:s, s:{s:o, s:o}}",
                     "problem", pl ? "pl" : "nonconvex", "optimizer", m->label, "exponent",
                     number(r->exponent), "exponent_ci", number(r->low), number(r->high), "theory",
                     theory < 0 ? json_real(theory) : json_null(), "samples_to_target",
                     number(r->samples_to_target), "samples_ci", number(r->samples_low),
                     number(r->samples_high), "evaluations_to_target",
                     number(r->evaluations_to_target), "final_error",
                     number(r->mean.error[r->mean.points - 1]), "setting", setting, "curve",
                     "samples", curve_samples, "error", curve_error);
}

static void count_cell(cli_table *t, double value)
{
    if (isfinite(value))
        cli_table_cell(t, "%.0f", value);
    else
        cli_table_cell(t, "-");
}

static void print_rows(const plan *p, const result *results)
{
    static const char *const headers[] = {"method",       ">exponent",    ">95% interval",
                                          ">theory",      ">samples",     ">95% interval",
                                          ">evaluations", ">final error", "setting"};
    bool pl = p->problem->kind == RATES_PL;
    printf("\n%s\n",
           pl ? "PL: DRO least squares, F - F*" : "Non-convex: running mean of |grad F|^2");
    cli_table *t = cli_table_create(9, headers);
    for (int i = 0; i < RATES_METHODS; i++) {
        const rates_method *m = &rates_methods[i];
        const result *r = &results[i];
        char setting[256];
        double theory = pl ? m->theory_pl : m->theory_nonconvex;
        describe(m, r->setting, setting, sizeof setting);
        cli_table_cell(t, "%s", m->label);
        cli_table_cell(t, "%.2f", r->exponent);
        cli_table_cell(t, "%.2f .. %.2f", r->low, r->high);
        if (theory < 0)
            cli_table_cell(t, "%.2f", theory);
        else
            cli_table_cell(t, "-");
        count_cell(t, r->samples_to_target);
        if (isfinite(r->samples_to_target) && isfinite(r->samples_high))
            cli_table_cell(t, "%.0f .. %.0f", r->samples_low, r->samples_high);
        else
            cli_table_cell(t, "-");
        count_cell(t, r->evaluations_to_target);
        cli_table_cell(t, "%.2e", r->mean.error[r->mean.points - 1]);
        cli_table_cell(t, "%s", setting);
    }
    cli_table_print(t);
}

/* The appendix of the paper: the cost of uniform sampling for a primal-dual method. */
static json_t *variance_table(bool json)
{
    static const double lambdas[] = {10, 5, 2, 1, 0.5, 0.2};
    static const char *const headers[] = {">lambda", ">largest n p", ">uniform",
                                          ">by p",   ">ratio",       ">measured ratio"};
    json_t *rows = json_array();
    rates_problem *problem = malloc(sizeof *problem);
    cli_table *t = json ? NULL : cli_table_create(6, headers);
    for (size_t k = 0; problem && k < sizeof lambdas / sizeof lambdas[0]; k++) {
        rates_create(problem, RATES_PL, lambdas[k]);
        double zero[RATES_D] = {0};
        rates_variance v = rates_gradient_variance(problem, zero, 200000);
        json_array_append_new(
            rows, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "lambda", lambdas[k], "largest_np",
                            v.largest, "uniform", v.uniform, "by_p", v.by_p, "measured_uniform",
                            v.measured_uniform, "measured_by_p", v.measured_by_p));
        if (!t)
            continue;
        cli_table_cell(t, "%g", lambdas[k]);
        cli_table_cell(t, "%.1f", v.largest);
        cli_table_cell(t, "%.3g", v.uniform);
        cli_table_cell(t, "%.3g", v.by_p);
        cli_table_cell(t, "%.1f", v.uniform / v.by_p);
        cli_table_cell(t, "%.1f", v.measured_uniform / v.measured_by_p);
    }
    if (t) {
        printf("\nVariance of the stochastic gradient at w = 0 and the best p (n = %d)\n", RATES_N);
        cli_table_print(t);
    }
    free(problem);
    return rows;
}

static int run(const cli_args *args)
{
    rates_problem *problem = malloc(sizeof *problem);
    result *results = calloc(RATES_METHODS, sizeof *results);
    if (!problem || !results)
        return cli_fail("no memory for the problems");
    json_t *rows = json_array();
    cli_begin(args);
    for (int kind = RATES_PL; kind <= RATES_NONCONVEX; kind++) {
        plan p = {.problem = problem,
                  .samples = cli_real(args, "samples"),
                  .settings = (int)cli_integer(args, "settings"),
                  .tuning_seeds = TUNING_SEEDS,
                  .seeds = (int)cli_integer(args, "seeds")};
        double zero[RATES_D] = {0}, g[RATES_D], norm = 0;
        rates_create(problem, kind, kind == RATES_PL ? cli_real(args, "lambda") : NONCONVEX_LAMBDA);
        rates_objective(problem, zero, g);
        for (int j = 0; j < RATES_D; j++)
            norm += g[j] * g[j];
        p.start = kind == RATES_PL ? problem->start - problem->best : norm;
        for (int i = 0; i < RATES_METHODS; i++) {
            cli_progress("%s: %s, tuning and %d seeds", kind == RATES_PL ? "PL" : "non-convex",
                         rates_methods[i].label, p.seeds);
            measure(&p, &rates_methods[i], &results[i]);
            json_array_append_new(rows, row_json(&p, &rates_methods[i], &results[i]));
        }
        cli_progress(NULL);
        if (!cli_json(args))
            print_rows(&p, results);
        memset(results, 0, RATES_METHODS * sizeof *results);
    }
    json_t *variance = variance_table(cli_json(args));
    free(results);
    free(problem);
    json_t *document =
        json_pack("{s:s, s:f, s:i, s:i, s:{s:f, s:f}, s:o, s:o}", "machine", cli_cpu(), "samples",
                  cli_real(args, "samples"), "settings", (int)cli_integer(args, "settings"),
                  "seeds", (int)cli_integer(args, "seeds"), "target", "pl", PL_TARGET, "nonconvex",
                  NONCONVEX_TARGET, "rows", rows, "variance", variance);
    if (cli_json(args))
        return cli_emit(document);
    printf(
        "\nTargets: F - F* at most %g of its first value, |grad F|^2 at most %g. Batch %d, except\n"
        "civr and rcivr. Settings were chosen by the final error on three other seeds.\n",
        PL_TARGET, NONCONVEX_TARGET, BATCH);
    json_decref(document);
    return 0;
}

static const cli_option options[] = {
    {"samples", CLI_REAL, "N", "1e6", 1e4, 1e9, "examples per run"},
    {"settings", CLI_INTEGER, "N", "36", 1, 1000, "random settings tried for every method"},
    {"lambda", CLI_REAL, "X", "2", 0.1, 1000,
     "lambda of the least-squares problem; smaller is harder"},
    {"seeds", CLI_INTEGER, "N", "24", 2, SEEDS_MAX, "seeds of the measurement"},
    CLI_OPTIONS_END,
};

const cli_command bench_rates = {
    .name = "bench rates",
    .usage = "[--json] [--samples N] [--settings N] [--seeds N] [--lambda X]",
    .summary = "convergence of every method, compared with the theory (the paper's Table 1)",
    .options = options,
    .run = run,
};
