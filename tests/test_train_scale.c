/* Features and targets of any size: the same rows times a factor train as well, and a run says so;
 * a network's first steps are not taken for a divergence; an epoch is as many examples for every
 * optimiser. */
#include "train_runs.h"

#include <math.h>

/* Two classes that a plane separates, eight features of about `size`. */
static void write_rows(const char *path, double size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < 600; i++) {
        double z = 0, x[8];
        for (uint64_t j = 0; j < 8; j++) {
            x[j] = dro__random_normal(1, i, j);
            z += x[j] * ((double)(j % 3) - 1);
        }
        fprintf(file, "%s", z > 0 ? "+1" : "-1");
        for (int j = 0; j < 8; j++)
            fprintf(file, " %d:%.6g", j + 1, size * x[j]);
        fprintf(file, "\n");
    }
    fclose(file);
}

static double loss_of(const char *optimizer, double size, const char *more, bool *told)
{
    char path[sizeof dir + 16], settings[sizeof path + 200];
    stopper s = {.at = UINT64_MAX};
    snprintf(path, sizeof path, "%s/rows", dir);
    write_rows(path, size);
    snprintf(settings, sizeof settings,
             "optimizer=%s data=libsvm:%s,scale=none best=none steps=400%s", optimizer, path, more);
    clear("run");
    OK(ctx, run_to(settings, "run", false, UINT64_MAX, &s));
    *told = strstr(s.note, "features are large") != NULL;
    unlink(path);
    return number_in("run", "\"loss\": ");
}

static void test_factors(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"recover", "sgd", "absgd"};
    for (int k = 0; k < 3; k++) {
        bool told;
        double plain = loss_of(optimizers[k], 1, "", &told);
        assert_false(told);
        assert_true(plain < 0.3);
        for (double size = 100; size < 1e7; size *= 100) {
            double large = loss_of(optimizers[k], size, "", &told);
            printf("  %s: %.3g times as large: loss %.4f after %.4f\n", optimizers[k], size, large,
                   plain);
            assert_true(told);
            assert_true(large < 0.4);
        }
    }
}

/* A run scales its rows itself: their size does not matter. */
static void test_scaled(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[sizeof dir + 200];
    snprintf(path, sizeof path, "%s/rows", dir);
    for (double size = 1e-6; size < 1e7; size *= 1e6) {
        write_rows(path, size);
        snprintf(settings, sizeof settings, "optimizer=recover data=libsvm:%s best=none steps=400",
                 path);
        clear("run");
        OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
        assert_true(number_in("run", "\"loss\": ") < 0.3);
    }
    unlink(path);
}

/* Rare columns are large where they are not 0, once they are scaled: nothing to say about it. */
static void test_rare_columns(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[sizeof dir + 200];
    stopper s = {.at = UINT64_MAX};
    snprintf(path, sizeof path, "%s/rows", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 400; i++)
        fprintf(file, "%s %d:1 %d:1\n", i % 3 ? "+1" : "-1", 1 + i % 100, 101 + i % 130);
    fclose(file);
    snprintf(settings, sizeof settings, "optimizer=recover data=libsvm:%s best=none steps=20",
             path);
    clear("run");
    OK(ctx, run_to(settings, "run", false, UINT64_MAX, &s));
    assert_null(strstr(s.note, "features are large"));
    unlink(path);
}

/* Rows of a plane and noise, target centre + size * z; heavy: one target of 500 is 60 times as
 * far. */
static void write_targets(const char *path, double centre, double size, bool heavy)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < 1000; i++) {
        double x[3], z = 0.1 * dro__random_normal(2, i, 3);
        for (uint64_t j = 0; j < 3; j++)
            z += (x[j] = dro__random_normal(2, i, j)) * ((double)j - 1);
        if (heavy && i % 500 == 250)
            z = 60;
        fprintf(file, "%.9g 1:%.6g 2:%.6g 3:%.6g\n", centre + size * z, x[0], x[1], x[2]);
    }
    fclose(file);
}

/* The mean square of what a run predicts for the rows minus their targets, ordinary ones alone,
 * over size^2. */
static double error_of(const char *path, double centre, double size)
{
    char weights[sizeof dir + 40], spec[sizeof dir + 60];
    dro_predictor *p;
    static float values[1000];
    double sum = 0;
    snprintf(weights, sizeof weights, "%s/run/weights.safetensors", dir);
    snprintf(spec, sizeof spec, "libsvm:%s,target=real", path);
    OK(ctx, dro_predictor_open(ctx, weights, spec, &p));
    OK(ctx, dro_predictor_logits(p, DRO_TRAIN, 0, 1000, values, NULL));
    for (uint64_t i = 0; i < 1000; i++) {
        double z = 0, off;
        for (uint64_t j = 0; j < 3; j++)
            z += dro__random_normal(2, i, j) * ((double)j - 1);
        off = (double)values[i] - (centre + size * z);
        sum += off * off / (size * size) / 1000;
    }
    dro_predictor_close(p);
    return sum;
}

/* Targets of any centre and size are learned by every kind of run, and predictions are in their
 * unit. */
static void test_targets(void **state)
{
    (void)state;
    static const char *const runs[] = {"",
                                       " optimizer=recover steps=600",
                                       " optimizer=sgd steps=600",
                                       " model=mlp optimizer=recover steps=800",
                                       " model=mlp optimizer=sgd steps=800",
                                       " optimizer=sgd progressive=yes batch=8"};
    static const double units[][2] = {{0, 1}, {1e5, 20}, {-3e-4, 1e-5}, {2e9, 1e9}};
    char path[sizeof dir + 16], settings[sizeof dir + 200];
    snprintf(path, sizeof path, "%s/rows", dir);
    for (int u = 0; u < 4; u++)
        for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
            write_targets(path, units[u][0], units[u][1], false);
            bool stream = strstr(runs[k], "progressive") != NULL;
            snprintf(settings, sizeof settings, "data=libsvm:%s,target=real%s best=none steps=%s",
                     path, stream ? ",features=3" : "", runs[k]);
            clear("run");
            OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
            double error = error_of(path, units[u][0], units[u][1]);
            printf("  centre %g, size %g%s: %.4f\n", units[u][0], units[u][1], runs[k], error);
            assert_true(error < 0.1); /* the variance is 2 */
        }
    unlink(path);
}

/* A few targets far out are not all that the default objective sees. */
static void test_heavy_targets(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[sizeof dir + 200];
    snprintf(path, sizeof path, "%s/rows", dir);
    write_targets(path, 0, 1, true);
    snprintf(settings, sizeof settings, "data=libsvm:%s,target=real best=none steps=", path);
    clear("run");
    OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
    assert_true(error_of(path, 0, 1) < 0.2);
    unlink(path);
}

static void test_given_step(void **state)
{
    (void)state;
    bool told;
    double loss = loss_of("sgd", 100, " eta=1e-5", &told);
    assert_true(told);
    assert_true(loss < 0.6);
}

static void test_few_steps(void **state)
{
    (void)state;
    clear("run");
    OK(ctx, run_to("data=synth:glyphs,n=400,test=40,size=16,classes=4 model=resnet20 batch=64 "
                   "steps=3 best=none",
                   "run", false, UINT64_MAX, NULL));
}

/* 40 epochs of 600 rows are 24,000 examples, also for those whose stages begin with a big batch
 * (civr, rcivr; 1,024 at most); with the steps given they may be more. */
static void test_epochs(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[sizeof dir + 200];
    snprintf(path, sizeof path, "%s/rows", dir);
    write_rows(path, 1);
    for (int k = 0; check_optimizer(k); k++) {
        snprintf(settings, sizeof settings,
                 "optimizer=%s data=libsvm:%s/rows best=none batch=20 steps= epochs=40",
                 check_optimizer(k), dir);
        clear("run");
        OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
        double examples = number_in("run", "\"examples\": "),
               epochs = number_in("run", "\"epochs\": ");
        printf("  %s: %.0f examples in %.0f steps\n", check_optimizer(k), examples,
               number_in("run", "\"step\": "));
        assert_true(epochs == 40);
        assert_true(fabs(examples - 24000) <= 1024 + 40 * 20);
    }
    unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_epochs),       cmocka_unit_test(test_factors),
    cmocka_unit_test(test_scaled),       cmocka_unit_test(test_given_step),
    cmocka_unit_test(test_rare_columns), cmocka_unit_test(test_few_steps),
    cmocka_unit_test(test_targets),      cmocka_unit_test(test_heavy_targets),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
