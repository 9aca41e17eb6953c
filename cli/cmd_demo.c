/* dro demo: what robust training is for, in a few seconds and without files. Two classes, one of them
 * rare; SGD on the mean loss against RECOVER on the robust objective, the same model, data and number
 * of examples. Every figure comes from the runs made while you wait. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000, FEATURES = 12, SEEDS = 3, EPOCHS = 5, BATCH = 32 };

static const double RARE = 0.04;  /* the share of the rare class */
static const double LAMBDA = 0.1; /* smaller chases the harder class more */

/* ---- the data: two overlapping Gaussian clouds, one rare; the last feature is constant ---- */

typedef struct table {
    float x[N][FEATURES], y[N];
} table;

static double unit(uint64_t counter)
{
    uint64_t x = (counter + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static double normal(uint64_t counter)
{
    return sqrt(-2 * log1p(-unit(2 * counter))) * cos(6.283185307179586 * unit(2 * counter + 1));
}

static void fill(table *t, uint64_t stream)
{
    for (uint64_t i = 0; i < N; i++) {
        uint64_t base = (stream * N + i) * 64;
        bool rare = unit(base + 62) < RARE;
        t->y[i] = rare ? 1.0f : -1.0f;
        for (uint64_t j = 0; j + 1 < FEATURES; j++) {
            double center = j < 4 ? (rare ? 0.6 : -0.6) : 0;
            t->x[i][j] = (float)(normal(base + j) + center);
        }
        t->x[i][FEATURES - 1] = 1;
    }
}

/* ---- the runs ---- */

enum { MEAN_LOSS, ROBUST, ACCURACY, COMMON, RARE_CLASS, METRICS };

static const char *const methods[] = {"sgd", "recover"};
enum { METHODS = 2 };

typedef struct demo {
    dro_context *ctx;
    dro_linear *model;
    dro_problem problem;
    table *train, *test;
    double metrics[METHODS][METRICS][SEEDS];
} demo;

/* Loss and right answers of each class, common and rare. */
typedef struct score {
    double loss[2], right[2], count[2];
} score;

static score evaluate(const table *t, const float *w)
{
    score s = {{0}, {0}, {0}};
    for (int i = 0; i < N; i++) {
        float margin = 0;
        for (int j = 0; j < FEATURES; j++)
            margin += t->x[i][j] * w[j];
        int rare = t->y[i] > 0;
        s.count[rare]++;
        s.right[rare] += (margin > 0) == rare;
        s.loss[rare] += log1p(exp((double)(-t->y[i] * margin)));
    }
    return s;
}

/* Losses on the training data, with F of the two classes' mean losses; accuracies on new data. */
static void measure(const demo *d, const float *w, double *metrics[METRICS])
{
    score train = evaluate(d->train, w), test = evaluate(d->test, w);
    double first = train.loss[0] / train.count[0], second = train.loss[1] / train.count[1];
    double top = fmax(first, second);
    *metrics[MEAN_LOSS] = (train.loss[0] + train.loss[1]) / N;
    *metrics[ROBUST] =
        top + LAMBDA * log((exp((first - top) / LAMBDA) + exp((second - top) / LAMBDA)) / 2);
    *metrics[ACCURACY] = (test.right[0] + test.right[1]) / N;
    *metrics[COMMON] = test.right[0] / test.count[0];
    *metrics[RARE_CLASS] = test.right[1] / test.count[1];
}

static dro_status train(demo *d, int method, int seed)
{
    const char *name = methods[method];
    dro_optimizer *opt = NULL;
    float w[FEATURES];
    int steps = EPOCHS * N / BATCH;
    dro_status s = dro_optimizer_create(d->ctx, name, &d->problem, &opt);
    s = s ? s : dro_optimizer_set_real(opt, "steps", steps);
    s = s ? s : dro_optimizer_set_real(opt, "batch", BATCH);
    s = s ? s : dro_optimizer_set_real(opt, "seed", seed + 1);
    if (strcmp(name, "recover") == 0) {
        s = s ? s : dro_optimizer_set(opt, "tilt", "class");
        s = s ? s : dro_optimizer_set_real(opt, "lambda", LAMBDA);
    }
    s = s ? s : dro_optimizer_start(opt, NULL);
    for (int t = 0; t < steps && !s; t++)
        s = dro_optimizer_step(opt);
    s = s ? s : dro_optimizer_weights(opt, w);
    double *slots[METRICS];
    for (int k = 0; k < METRICS; k++)
        slots[k] = &d->metrics[method][k][seed];
    if (!s)
        measure(d, w, slots);
    dro_optimizer_destroy(opt);
    return s;
}

/* ---- output ---- */

static double mean(const double *values)
{
    double sum = 0;
    for (int s = 0; s < SEEDS; s++)
        sum += values[s];
    return sum / SEEDS;
}

static const char *const keys[METRICS] = {"mean_loss", "robust_objective", "accuracy",
                                          "common_accuracy", "rare_accuracy"};

static int emit(const demo *d)
{
    json_t *rows = json_array();
    for (int m = 0; m < METHODS; m++) {
        json_t *row = json_pack("{s:s}", "optimizer", methods[m]);
        for (int k = 0; k < METRICS; k++)
            json_object_set_new(row, keys[k], cli_number(mean(d->metrics[m][k])));
        json_array_append_new(rows, row);
    }
    return cli_emit(json_pack("{s:f, s:f, s:i, s:i, s:o}", "rare_share", RARE, "lambda", LAMBDA,
                              "seeds", SEEDS, "examples", EPOCHS * N, "rows", rows));
}

static void print_table(const demo *d)
{
    const char *const headers[] = {"trained by", ">mean loss",    ">robust F",
                                   ">accuracy",  ">common class", ">rare class"};
    cli_table *out = cli_table_create(6, headers);
    for (int m = 0; m < METHODS; m++) {
        cli_table_cell(out, "%s", methods[m]);
        for (int k = 0; k < METRICS; k++)
            cli_table_cell(out, k <= ROBUST ? "%.3f" : "%.1f %%",
                           mean(d->metrics[m][k]) * (k <= ROBUST ? 1 : 100));
    }
    cli_table_print(out);
}

static void print_bars(const demo *d)
{
    static const struct {
        const char *label;
        int metric;
    } groups[] = {{"common", COMMON}, {"rare", RARE_CLASS}};
    enum { WIDTH = 46 };
    printf("\ncorrect on new data    0 %%%*s100 %%\n", WIDTH - 8, "");
    for (int g = 0; g < 2; g++)
        for (int m = 0; m < METHODS; m++) {
            double share = mean(d->metrics[m][groups[g].metric]);
            int full = (int)lround(WIDTH * share);
            char bar[WIDTH + 1];
            memset(bar, m ? '#' : '=', WIDTH);
            memset(bar + full, ' ', (size_t)(WIDTH - full));
            bar[WIDTH] = '\0';
            printf("  %-8s  %-8s  |%s|  %4.1f %%\n", m ? "" : groups[g].label, methods[m], bar,
                   100 * share);
        }
}

static int print(const demo *d, double seconds)
{
    printf("A linear classifier for two overlapping classes; the rare one is %.0f %% of all.\n"
           "sgd minimises the mean loss; recover F = lambda log mean_c exp(L_c / lambda),\n"
           "with L_c the loss of class c and lambda = %g. Accuracies are those on new data.\n\n",
           100 * RARE, LAMBDA);
    print_table(d);
    print_bars(d);
    printf("\nMeans of %d runs each, %d examples per run; %.1f seconds for all.\n", SEEDS,
           EPOCHS * N, seconds);
    return 0;
}

/* ---- the command ---- */

static int run_all(const cli_args *args, demo *d)
{
    double start = cli_seconds();
    fill(d->train, 1);
    fill(d->test, 2);
    dro_linear_data data = dro_linear_data_default();
    data.n = N;
    data.features = FEATURES;
    data.x = &d->train->x[0][0];
    data.y = d->train->y;
    dro_status status = dro_linear_create(d->ctx, &data, &d->model);
    if (status == DRO_OK)
        status = dro_linear_problem(d->model, &d->problem);
    for (int i = 0; i < METHODS * SEEDS && status == DRO_OK; i++) {
        cli_progress("%s, seed %d", methods[i / SEEDS], i % SEEDS + 1);
        status = train(d, i / SEEDS, i % SEEDS);
    }
    cli_progress(NULL);
    if (status != DRO_OK)
        return cli_fail("demo: %s", dro_context_error(d->ctx));
    return cli_json(args) ? emit(d) : print(d, cli_seconds() - start);
}

static int run(const cli_args *args)
{
    demo *d = calloc(1, sizeof *d);
    if (!d)
        return cli_fail("demo: no memory");
    d->train = malloc(sizeof *d->train);
    d->test = malloc(sizeof *d->test);
    d->ctx = cli_context(args);
    int status = !d->ctx ? 1 : d->train && d->test ? run_all(args, d) : cli_fail("demo: no memory");
    dro_linear_destroy(d->model);
    dro_context_destroy(d->ctx);
    free(d->train);
    free(d->test);
    free(d);
    return status;
}

const cli_command cmd_demo = {
    .name = "demo",
    .usage = "[--json]",
    .summary = "a rare class that plain training ignores and robust training does not",
    .details =
        "Trains a linear classifier by sgd and by recover on the same generated data, three\n"
        "seeds each, and prints how both do on each class of new data.",
    .run = run,
};
