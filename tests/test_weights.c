/* Example weights: whole numbers do what rows that are repeated as often do, in F, in the metrics,
 * in the gradient of all examples and in the solution; who cannot take them says so. */
#include "train_runs.h"

#include <math.h>

enum { N = 60, FEATURES = 3, MOST = 4 * N };

typedef struct table {
    int n;
    float x[MOST][FEATURES], weights[MOST];
    int32_t labels[MOST], groups[MOST];
} table;

static table weighted, repeated;

static dro_arrays arrays_of(table *t, bool with_weights)
{
    return (dro_arrays){.size = sizeof(dro_arrays),
                        .count = t->n,
                        .x = t->x[0],
                        .features = FEATURES,
                        .labels = t->labels,
                        .groups = t->groups,
                        .weights = with_weights ? t->weights : NULL};
}

/* Rows of two classes that overlap, once with the weights (i + first) % 4, or half of that, and
 * once repeated. */
static void make_tables(int first, double scale)
{
    weighted.n = N;
    repeated.n = 0;
    for (int i = 0; i < N; i++) {
        int32_t label = dro__random_unit(1, 1, (uint64_t)i) < 0.4;
        for (int k = 0; k < FEATURES; k++)
            weighted.x[i][k] = (float)(dro__random_normal(2, (uint64_t)k, (uint64_t)i) +
                                       (label ? 0.7 : 0) * (k == 0));
        weighted.labels[i] = label;
        weighted.groups[i] = i % 3;
        int times = (i + first) % 4;
        weighted.weights[i] = (float)(times * scale);
        for (; times > 0; times--, repeated.n++) {
            memcpy(repeated.x[repeated.n], weighted.x[i], sizeof weighted.x[i]);
            repeated.labels[repeated.n] = label;
            repeated.groups[repeated.n] = i % 3;
        }
    }
    dro_arrays a = arrays_of(&weighted, true), b = arrays_of(&repeated, false);
    OK(ctx, dro_arrays_lend(ctx, "weighted", &a, &a));
    OK(ctx, dro_arrays_lend(ctx, "repeated", &b, &b));
}

/* The run of both: w, and the figures of the last evaluation. */
typedef struct outcome {
    float w[2 * (FEATURES + 1)];
    double figures[32];
    int count;
} outcome;

static outcome run(const char *data, const char *settings)
{
    outcome r = {0};
    char text[400];
    snprintf(text, sizeof text,
             "best=none model=linear eval_every=1000 data=arrays:%s,scale=none %s", data, settings);
    dro_train *t = make(text);
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    assert_int_equal(t->task.dim, sizeof r.w / sizeof r.w[0]);
    OK(ctx, dro_optimizer_weights(t->opt, r.w));
    const dro_metrics *m[] = {&dro_train_last(t)->train, &dro_train_last(t)->test};
    for (int s = 0; s < 2; s++) {
#define X(name, code, title, better, unit, meaning) r.figures[r.count++] = m[s]->name;
        DRO_METRIC_LIST(X)
#undef X
    }
    dro_train_destroy(t);
    return r;
}

static void same_outcome(const char *settings, const char *other, double tolerance)
{
    outcome a = run("weighted", settings), b = run("repeated", other);
    for (size_t k = 0; k < sizeof a.w / sizeof a.w[0]; k++)
        if (!(fabs((double)a.w[k] - (double)b.w[k]) <= tolerance))
            fail_msg("%s: w[%zu] is %.9g with weights, %.9g with rows repeated", settings, k,
                     (double)a.w[k], (double)b.w[k]);
    for (int k = 0; k < a.count; k++)
        if (!(isnan(a.figures[k]) && isnan(b.figures[k])) &&
            !(fabs(a.figures[k] - b.figures[k]) <= 100 * tolerance))
            fail_msg("%s: figure %d is %.9g with weights, %.9g with rows repeated", settings, k,
                     a.figures[k], b.figures[k]);
}

/* F and every metric at a w that does not move. */
static void test_figures(void **state)
{
    (void)state;
    static const char *const tilts[] = {"lambda=0.3", "lambda=0.3 tilt=class",
                                        "lambda=0.3 tilt=group group_prior=data", "lambda=5"};
    make_tables(0, 0.5);
    for (int k = 0; k < 4; k++) {
        char settings[100];
        snprintf(settings, sizeof settings, "optimizer=recover eta=0 steps=1 batch=8 %s", tilts[k]);
        same_outcome(settings, settings, 1e-9);
    }
}

/* The exact solvers find the same minimum of every objective. */
static void test_solution(void **state)
{
    (void)state;
    static const char *const objectives[] = {
        "objective=mean",          "lambda=0.5",
        "lambda=0.5 tilt=class",   "lambda=0.5 tilt=group group_prior=data",
        "objective=kl-radius:0.1", "objective=chi2:0.5"};
    for (int first = 0; first < 2; first++) {
        make_tables(first, 0.5 + first);
        for (int k = 0; k < 6; k++) {
            char settings[200];
            snprintf(settings, sizeof settings,
                     "optimizer=%s reg=l2 reg_strength=0.05 steps= batch= %s",
                     k % 2 == 0 && k < 4 ? "newton" : "lbfgs", objectives[k]);
            same_outcome(settings, settings, 2e-5);
        }
    }
}

/* Weights of mean 1: an epoch has the very rows of the table with repetitions, so a step over all
 * of them is the same but for the order of sums. */
static void test_gradient(void **state)
{
    (void)state;
    static const char *const methods[] = {"sgd eta=0.5", "recover eta=0.5 lambda=0.4 guard=0",
                                          "recover eta=0.5 lambda=0.4 tilt=group guard=0",
                                          "absgd eta=0.5 lambda=0.4", "adamw eta=0.01"};
    make_tables(0, 1);
    assert_int_equal(repeated.n, 90);
    int n = 0; /* sixty of weights 0, 1, 2, 1 */
    for (int i = 0; i < N; i++) {
        int times = i % 4 == 3 ? 1 : i % 4;
        weighted.weights[i] = (float)times;
        for (; times > 0; times--, n++) {
            memcpy(repeated.x[n], weighted.x[i], sizeof weighted.x[i]);
            repeated.labels[n] = weighted.labels[i];
            repeated.groups[n] = weighted.groups[i];
        }
    }
    repeated.n = n;
    assert_int_equal(n, N);
    dro_arrays a = arrays_of(&weighted, true), b = arrays_of(&repeated, false);
    OK(ctx, dro_arrays_lend(ctx, "weighted", &a, &a));
    OK(ctx, dro_arrays_lend(ctx, "repeated", &b, &b));
    for (int k = 0; k < 5; k++) {
        char settings[200];
        snprintf(settings, sizeof settings, "batch=60 steps=1 warmup=0 weight_decay=0 optimizer=%s",
                 methods[k]);
        same_outcome(settings, settings, 2e-6);
    }
}

/* In each epoch an example comes as often as its weight of mean 1 says, rounded up or down; in many
 * exactly. */
static void check_counts(const int64_t *counts, int epochs, double slack)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)weighted.weights[i];
    for (int i = 0; i < N; i++) {
        double expected = epochs * (double)weighted.weights[i] * N / sum;
        if (fabs((double)counts[i] - expected) >= slack)
            fail_msg("example %d came %d times in %d epochs, expected %g", i, (int)counts[i],
                     epochs, expected);
    }
}

static void test_draws(void **state)
{
    (void)state;
    enum { EPOCHS = 400 };
    static uint8_t pixels[N][16];
    int64_t once[N] = {0}, counts[N] = {0};
    double sums[N + 1];
    make_tables(0, 0.7);
    assert_true(dro__weights_sum(weighted.weights, N, sums));
    for (int place = 0; place < N; place++)
        once[dro__weights_pick(sums, N, place + 0.3)]++;
    check_counts(once, 1, 1);
    dro_arrays a = arrays_of(&weighted, true);
    a.x = NULL, a.pixels = pixels[0], a.channels = 1, a.height = a.width = 4, a.groups = NULL;
    dro_data *data;
    dro_loader *loader;
    dro_loaded loaded;
    dro_loader_options options = dro_loader_options_default();
    options.batch = N;
    OK(ctx, dro_data_from_arrays(ctx, &a, NULL, NULL, &data));
    OK(ctx, dro_loader_create(data, DRO_TRAIN, &options, &loader));
    for (uint64_t k = 0; k < EPOCHS; k++) {
        memset(once, 0, sizeof once);
        OK(ctx, dro_loader_draw(loader, k * N, &loaded));
        for (size_t i = 0; i < loaded.count; i++)
            once[loaded.ids[i]]++, counts[loaded.ids[i]]++;
        check_counts(once, 1, 1);
    }
    check_counts(counts, EPOCHS, 60); /* six standard deviations */
    dro_loader_destroy(loader);
    dro_data_close(data);
}

/* Every optimiser runs, or says by its name that it does not. */
static void test_every_optimizer(void **state)
{
    (void)state;
    make_tables(0, 1);
    for (int k = 0; dro_optimizer_name(k); k++) {
        char settings[200];
        const char *name = dro_optimizer_name(k);
        snprintf(settings, sizeof settings,
                 "best=none model=linear data=arrays:weighted steps=3 optimizer=%s", name);
        dro_train *t = make(settings);
        dro_status status = dro_train_run(t, NULL, false, NULL);
        bool own = strcmp(name, "stoc-agda") == 0 || strcmp(name, "pg-smd2") == 0 ||
                   strcmp(name, "pes-sgda") == 0;
        if (status != (own ? DRO_ERR_UNSUPPORTED : DRO_OK) ||
            (own && (!strstr(dro_context_error(ctx), name) ||
                     !strstr(dro_context_error(ctx), "takes no example weights"))))
            fail_msg("%s: %s", name, dro_context_error(ctx));
        dro_train_destroy(t);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_figures),         cmocka_unit_test(test_solution),
    cmocka_unit_test(test_gradient),        cmocka_unit_test(test_draws),
    cmocka_unit_test(test_every_optimizer),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
