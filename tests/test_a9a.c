/* RECOVER on real data, a9a: it comes within 1e-3 of the optimum that L-BFGS finds (refs/a9a.txt,
 * made by refs/make_a9a.py), and with default settings it does not diverge, whatever lambda, batch
 * and eta. Runs with the defaults of recover and scent, and with steps around them. Skips, saying
 * so, where the data is not there. */
#include "a9a.h"

#include <dro/dro.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static a9a *data;
static dro_context *ctx;
static dro_linear *model;

/* F at the optimum for lambda, from the reference file. */
static double optimum(double lambda)
{
    FILE *file = fopen(DRO_TEST_DIR "/refs/a9a.txt", "r");
    char line[200];
    double at, value, found = NAN;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%lf %lf", &at, &value) == 2 && at == lambda)
            found = value;
    fclose(file);
    assert_true(isfinite(found));
    return found;
}

/* The relative gap to the optimum after `passes` over the data. planned: eta falls in stages. */
static double gap(double lambda, int batch, double eta, double passes, bool planned, int seed)
{
    dro_problem problem;
    dro_optimizer *opt;
    float w[A9A_FEATURES];
    double value, best = optimum(lambda);
    long steps = (long)(passes * A9A_ROWS / batch);
    assert_int_equal(dro_linear_problem(model, &problem), DRO_OK);
    assert_int_equal(dro_optimizer_create(ctx, "recover", &problem, &opt), DRO_OK);
    assert_int_equal(dro_optimizer_set_real(opt, "lambda", lambda), DRO_OK);
    assert_int_equal(dro_optimizer_set_real(opt, "batch", batch), DRO_OK);
    assert_int_equal(dro_optimizer_set_real(opt, "eta", eta), DRO_OK);
    assert_int_equal(dro_optimizer_set_real(opt, "seed", seed), DRO_OK);
    if (planned)
        assert_int_equal(dro_optimizer_set_real(opt, "steps", (double)steps), DRO_OK);
    assert_int_equal(dro_optimizer_start(opt, NULL), DRO_OK);
    for (long t = 0; t < steps; t++)
        assert_int_equal(dro_optimizer_step(opt), DRO_OK);
    assert_int_equal(dro_optimizer_weights(opt, w), DRO_OK);
    assert_int_equal(dro_linear_objective(model, w, lambda, &value), DRO_OK);
    dro_optimizer_destroy(opt);
    return (value - best) / best;
}

static void need_data(void)
{
    if (data)
        return;
    print_message("skipped: a9a is not beside this checkout\n");
    skip();
}

static void test_reaches_the_optimum(void **state)
{
    (void)state;
    need_data();
    for (int lambda = 1; lambda <= 5; lambda += 4)
        for (int seed = 1; seed <= 3; seed++) {
            double g = gap(lambda, 32, 0.7, 20, true, seed);
            print_message("lambda %d seed %d: %.2e above the optimum\n", lambda, seed, g);
            assert_true(g < 1e-3);
            assert_true(g > -1e-6);
        }
}

static void test_never_diverges(void **state)
{
    (void)state;
    need_data();
    static const double lambdas[] = {0.5, 1, 5, 100}, etas[] = {0.1, 0.5, 1, 2};
    double worst[2] = {0};
    for (int l = 0; l < 4; l++)
        for (int batch = 32; batch <= 128; batch += 96)
            for (int e = 0; e < 4; e++)
                for (int planned = 0; planned < 2; planned++) {
                    /* Where eta falls it converges; a constant eta only has to stay near. The
                     * start, w = 0, is 0.38 to 1.1 above. */
                    double g = gap(lambdas[l], batch, etas[e], 10, planned, 1);
                    if (!(g < (planned ? 0.03 : 0.3)))
                        fail_msg("lambda %g batch %d eta %g planned %d: gap %g", lambdas[l], batch,
                                 etas[e], planned, g);
                    worst[planned] = fmax(worst[planned], g);
                }
    print_message("32 runs in stages: at most %.2e above the optimum; 32 with constant eta: %.2e\n",
                  worst[1], worst[0]);
}

/* A run with the program's defaults, 975,000 evaluations; eta 0: the default. Returns F minus the
 * optimum and puts eta back. */
static double run_gap(const char *optimizer, double lambda, int seed, double *eta)
{
    dro_train *train;
    char text[32];
    bool twice = strcmp(optimizer, "recover") == 0; /* evaluations per example */
    const char *const pairs[][2] = {{"data", "libsvm:" DRO_SHARED_DATA "/tabular/a9a"},
                                    {"optimizer", optimizer},
                                    {"reg", "none"},
                                    {"eval_train", "yes"},
                                    {"eval_every", "1000"},
                                    {"steps", twice ? "3808" : "7617"}};
    assert_int_equal(dro_train_create(ctx, &train), DRO_OK);
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
        assert_int_equal(dro_train_set(train, pairs[k][0], pairs[k][1]), DRO_OK);
    snprintf(text, sizeof text, "%g", lambda);
    assert_int_equal(dro_train_set(train, "lambda", text), DRO_OK);
    snprintf(text, sizeof text, "%d", seed);
    assert_int_equal(dro_train_set(train, "seed", text), DRO_OK);
    snprintf(text, sizeof text, "%.17g", *eta);
    if (*eta > 0)
        assert_int_equal(dro_train_set(train, "eta", text), DRO_OK);
    assert_int_equal(dro_train_run(train, NULL, false, NULL), DRO_OK);
    const dro_train_record *last = dro_train_last(train);
    double found = last->train.objective - optimum(lambda);
    assert_true(last->info.evaluations > 970000 && last->info.evaluations <= 975000);
    const char *config = strstr(dro_train_config(train), "\"eta\":");
    assert_non_null(config);
    *eta = strtod(config + 6, NULL);
    dro_train_destroy(train);
    return found;
}

/* Three seeds with the default step; a tenth and ten times of it with one. */
static void test_defaults_of_runs(void **state)
{
    (void)state;
    need_data();
    static const struct {
        const char *optimizer;
        double most;
    } cases[] = {{"recover", 1e-4}, {"scent", 2e-5}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int lambda = 1; lambda <= 5; lambda += 4) {
            double eta = 0;
            for (int run = 0; run < 5; run++) {
                static const double factors[] = {1, 1, 1, 0.1, 10};
                double used = run < 3 ? 0 : eta * factors[run];
                double g = run_gap(cases[k].optimizer, lambda, run < 3 ? run + 1 : 1, &used);
                eta = run < 3 ? used : eta;
                print_message("%s lambda %d, eta %g: %.2e above the optimum\n", cases[k].optimizer,
                              lambda, used, g);
                assert_true(g > -1e-7 && g < (run < 3 ? cases[k].most : 1e-3));
            }
        }
}

int main(int argc, char **argv)
{
    data = a9a_read(DRO_SHARED_DATA "/tabular/a9a");
    if (dro_context_create("auto", 1, &ctx) != DRO_OK)
        return 1;
    if (data) {
        dro_linear_data d = a9a_data(data);
        if (dro_linear_create(ctx, &d, &model) != DRO_OK)
            return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reaches_the_optimum),
        cmocka_unit_test(test_never_diverges),
        cmocka_unit_test(test_defaults_of_runs),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
    free(data);
    return failed;
}
