/* RECOVER with its defaults does not diverge: on a small network and rare classes, for every lambda
 * of the paper's range and beyond, at step sizes from 0.1 to 1, every loss stays finite and F
 * falls. Without the warm-up that a small lambda has by default it is as stable, and learns less
 * below 2. The full grid, resnet20 on CIFAR-10, is experiments/stability.sh. */
#include "train_runs.h"

#include <math.h>

#define IMAGES "synth:glyphs,n=600,test=100,size=16,classes=5,noise=0.2,longtail=exp:10"

typedef struct trace {
    double first, last, worst; /* F over the training set at evaluations */
    int count;
} trace;

static void follow(void *user, const dro_train_record *r)
{
    trace *t = user;
    double f = r->train.objective;
    t->first = t->count++ ? t->first : f;
    t->last = f;
    t->worst = isfinite(f) ? fmax(t->worst, f) : INFINITY;
}

/* The default of what is NULL. */
static trace train(const char *tilt, const char *lambda, const char *eta, const char *warmup)
{
    trace t = {.worst = -INFINITY};
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = &t, .evaluated = follow};
    dro_train *run;
    char folder[300];
    OK(ctx, dro_train_create(ctx, &run));
    set_all(run,
            "data=" IMAGES " model=glyphnet optimizer=recover batch=32 epochs=10 eval_every=1");
    OK(ctx, dro_train_set(run, "lambda", lambda));
    OK(ctx, dro_train_set(run, "tilt", tilt));
    if (eta)
        OK(ctx, dro_train_set(run, "eta", eta));
    OK(ctx, dro_train_set(run, "report_lambda", lambda));
    if (warmup)
        OK(ctx, dro_train_set(run, "lambda_warmup", warmup));
    clear("run");
    snprintf(folder, sizeof folder, "%s/run", dir);
    OK(ctx, dro_train_run(run, folder, false, &watch));
    if (dro_train_ended(run) != DRO_TRAIN_DONE)
        fail_msg("lambda %s, eta %s: the run did not come to its end", lambda, eta);
    dro_train_destroy(run);
    return t;
}

/* F ends below this share of what a network has that knows nothing. */
static void check_grid(const char *warmup, double share)
{
    static const char *const lambdas[] = {"0.5", "1", "2", "5", "10", "20", "100"};
    static const char *const etas[] = {"0.1", "0.3", "1"};
    double guess = log(5); /* F of a network that knows nothing */
    for (int k = 0; k < 7; k++)
        for (int i = 0; i < 3; i++) {
            trace t = train("example", lambdas[k], etas[i], warmup);
            print_message("lambda %-4s eta %-4s F %.3f, then %.3f (at most %.3f)\n", lambdas[k],
                          etas[i], t.first, t.last, t.worst);
            assert_int_equal(t.count, 10);
            assert_true(isfinite(t.worst)); /* early F may be high: batch norm lags */
            assert_true(t.last < share * guess);
            assert_true(t.last < t.first);
        }
}

static void test_default_recover_is_stable(void **state)
{
    (void)state;
    check_grid(NULL, 0.4);
}

static void test_fixed_lambda_is_stable(void **state)
{
    (void)state;
    check_grid("0", 0.8);
}

/* Over classes, with the default step, which is shorter the rarer a class is. */
static void test_classes_are_stable(void **state)
{
    (void)state;
    static const char *const lambdas[] = {"0.3", "1", "10", "1e6"};
    for (int k = 0; k < 4; k++) {
        trace t = train("class", lambdas[k], NULL, NULL);
        print_message("classes, lambda %-4s F %.3f, then %.3f (at most %.3f)\n", lambdas[k],
                      t.first, t.last, t.worst);
        assert_true(isfinite(t.worst));
        assert_true(t.last < 0.8 * log(5));
    }
}

/* chi2 with a small radius and small batches: every multiplier stays near the scale of the losses.
 * When only lambda's step was limited it grew by a fifth in every step. */
static void test_small_batches_keep_lambda(void **state)
{
    (void)state;
    enum { N = 1000, D = 10, STEPS = 5000 };
    static float x[N * D], y[N];
    uint64_t seed = 20210617;
    for (int i = 0; i < N * D + N; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float value = (float)((double)(seed >> 11) * 0x1p-52 - 1);
        *(i < N * D ? &x[i] : &y[i - N * D]) = i < N * D ? value : value / 2;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < D; j++)
            y[i] += (i % 10 ? 0.1f * (float)j : -0.5f) * x[i * D + j];
    dro_linear_data rows = dro_linear_data_default();
    rows.n = N, rows.features = D, rows.x = x, rows.y = y, rows.loss = "squared";
    static const char *const methods[] = {"adamw", "sgd", "recover", "scent"};
    for (int m = 0; m < 4; m++)
        for (int run = 1; run <= 10; run++) {
            dro_linear *model;
            dro_problem problem;
            dro_optimizer *opt;
            dro_info info;
            OK(ctx, dro_linear_create(ctx, &rows, &model));
            OK(ctx, dro_linear_problem(model, &problem));
            OK(ctx, dro_optimizer_create(ctx, methods[m], &problem, &opt));
            OK(ctx, dro_optimizer_set(opt, "objective", "chi2:0.1"));
            OK(ctx, dro_optimizer_set(opt, "batch", "8"));
            OK(ctx, dro_optimizer_set(opt, "eta", "0.02"));
            OK(ctx, dro_optimizer_set_real(opt, "seed", run));
            OK(ctx, dro_optimizer_start(opt, NULL));
            for (int t = 0; t < STEPS; t++)
                OK(ctx, dro_optimizer_step(opt));
            OK(ctx, dro_optimizer_info(opt, &info));
            if (!(info.lambda < 10))
                fail_msg("%s, seed %d: lambda %g", methods[m], run, info.lambda);
            dro_optimizer_destroy(opt);
            dro_linear_destroy(model);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_small_batches_keep_lambda),
    cmocka_unit_test(test_default_recover_is_stable),
    cmocka_unit_test(test_fixed_lambda_is_stable),
    cmocka_unit_test(test_classes_are_stable),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
