/* RECOVER on real data, a9a: it comes within 1e-3 of the optimum that L-BFGS finds (refs/a9a.txt,
 * made by refs/make_a9a.py), and with default settings it does not diverge, whatever lambda, batch
 * and eta. Skips, saying so, where the data is not there. */
#include "a9a.h"

#include <dro/dro.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

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
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
    free(data);
    return failed;
}
