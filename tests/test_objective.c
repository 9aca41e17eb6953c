/* Worst-case weights of given losses: against SciPy's (refs/objectives.txt, made by
 * refs/make_objectives.py), as the gradient of the value, and where the set of weights is at its
 * limits. */
#include "check.h"
#include "objective.h"

enum { MOST = 64 };

typedef struct worst {
    dro__worst_case at;
    double q[MOST];
} worst;

static worst weigh_smoothly(const char *text, double smoothing, size_t n, const double *losses,
                            const double *prior)
{
    dro_context *ctx = check_context("ref", 1);
    dro__objective o;
    worst w;
    OK(ctx, dro__objective_parse(ctx, text, &o));
    o.smoothing = smoothing;
    dro__objective_weigh(&o, n, losses, prior, w.q, &w.at);
    dro__worst_case_measure(&o, n, prior, w.q, &w.at);
    dro_context_destroy(ctx);
    return w;
}

static worst weigh(const char *text, size_t n, const double *losses, const double *prior)
{
    return weigh_smoothly(text, 0, n, losses, prior);
}

static void read_numbers(FILE *file, size_t n, double *to)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fscanf(file, "%lf", &to[i]), 1);
}

static void test_references(void **state)
{
    (void)state;
    FILE *file = fopen(DRO_TEST_DIR "/refs/objectives.txt", "r");
    char line[200], name[40];
    int cases = 0;
    size_t n;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        double losses[MOST], prior[MOST], value, q[MOST];
        if (sscanf(line, "case %39s %zu", name, &n) != 2)
            continue;
        assert_true(n <= MOST);
        read_numbers(file, n, losses);
        read_numbers(file, n, prior);
        read_numbers(file, 1, &value);
        read_numbers(file, n, q);
        worst w = weigh(name, n, losses, prior);
        check_near(name, w.at.value, value, 1e-9);
        for (size_t i = 0; i < n; i++)
            check_near(name, w.q[i], q[i], 1e-8);
        cases++;
    }
    fclose(file);
    assert_int_equal(cases, 12);
}

static const char *const all[] = {"mean", "kl:0.3", "kl-radius:0.4", "cvar:0.33", "chi2:0.7"};

/* Danskin: the derivative of the value by a loss is its weight. */
static void test_gradient(void **state)
{
    (void)state;
    enum { N = 25 };
    double losses[N], prior[N], sum = 0;
    for (size_t i = 0; i < N; i++) {
        losses[i] = check_uniform(1, i, -1, 3);
        sum += prior[i] = check_uniform(2, i, 0.5, 1);
    }
    for (size_t i = 0; i < N; i++)
        prior[i] /= sum;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        worst at = weigh(all[k], N, losses, prior);
        double total = 0;
        for (size_t i = 0; i < N; i++) {
            const double h = 1e-5;
            double was = losses[i];
            losses[i] = was + h;
            double up = weigh(all[k], N, losses, prior).at.value;
            losses[i] = was - h;
            double down = weigh(all[k], N, losses, prior).at.value;
            losses[i] = was;
            check_near(all[k], (up - down) / (2 * h), at.q[i], 1e-7);
            total += at.q[i];
        }
        check_near(all[k], total, 1, 1e-12);
    }
}

/* The radius is reached exactly, and lambda of a radius gives the same weights as kl with it. */
static void test_radius(void **state)
{
    (void)state;
    enum { N = 30 };
    double losses[N];
    for (size_t i = 0; i < N; i++)
        losses[i] = check_uniform(3, i, 0, 1) * check_uniform(4, i, 0, 5);
    static const double radii[] = {1e-8, 1e-4, 0.01, 0.3, 1.5};
    for (size_t k = 0; k < sizeof radii / sizeof radii[0]; k++) {
        char text[40];
        snprintf(text, sizeof text, "kl-radius:%.17g", radii[k]);
        worst w = weigh(text, N, losses, NULL);
        check_near(text, w.at.divergence / radii[k], 1, 1e-5);
        snprintf(text, sizeof text, "kl:%.17g", w.at.lambda);
        worst same = weigh(text, N, losses, NULL);
        for (size_t i = 0; i < N; i++)
            check_near(text, same.q[i], w.q[i], 1e-12);
        check_near(text, same.at.value + w.at.lambda * radii[k], w.at.value, 1e-9);
        snprintf(text, sizeof text, "chi2:%.17g", radii[k]);
        check_near(text, weigh(text, N, losses, NULL).at.divergence / radii[k], 1, 1e-5);
    }
}

/* Where the set holds a point mass on the largest loss; equal losses share. */
static void test_limits(void **state)
{
    (void)state;
    const double losses[] = {1, 3, 2, 3}, same[] = {2, 2, 2};
    static const char *const wide[] = {"kl-radius:0.7", "chi2:0.5", "cvar:0.5", "cvar:0.01",
                                       "kl-radius:50"};
    for (size_t k = 0; k < sizeof wide / sizeof wide[0]; k++) {
        worst w = weigh(wide[k], 4, losses, NULL);
        check_near(wide[k], w.at.value, 3, 1e-12);
        check_near(wide[k], w.q[1], 0.5, 1e-12);
        check_near(wide[k], w.q[3], 0.5, 1e-12);
        check_near(wide[k], w.at.effective, 0.5, 1e-12);
    }
    worst part = weigh("cvar:0.75", 4, losses, NULL);
    check_near("cvar:0.75", part.q[2], 1.0 / 3, 1e-12);
    check_near("cvar:0.75", part.at.eta, 2, 0);
    static const char *const narrow[] = {"kl-radius:0", "chi2:0", "cvar:1", "mean"};
    for (size_t k = 0; k < sizeof narrow / sizeof narrow[0]; k++)
        check_near(narrow[k], weigh(narrow[k], 4, losses, NULL).at.value, 2.25, 1e-12);
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        worst w = weigh(all[k], 3, same, NULL);
        check_near(all[k], w.at.value, 2, 1e-12);
        check_near(all[k], w.q[1], 1.0 / 3, 1e-12);
        check_near(all[k], weigh(all[k], 1, same, NULL).q[0], 1, 1e-12);
    }
}

/* A smoothed value is as near as promised, its gradient is its weights, also where all losses are
 * equal. */
static void test_smoothing(void **state)
{
    (void)state;
    enum { N = 20 };
    static const char *const kinds[] = {"cvar:0.25", "chi2:0.6", "kl-radius:0.3"};
    for (int spread = 0; spread < 3; spread++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const double h = 1e-6, smoothing = 0.1;
            double losses[N], sum = 0, off;
            dro__objective o = {.kind = k == 0   ? DRO__OBJECTIVE_CVAR
                                        : k == 1 ? DRO__OBJECTIVE_CHI2
                                                 : DRO__OBJECTIVE_KL_RADIUS,
                                .argument = atof(strchr(kinds[k], ':') + 1),
                                .smoothing = smoothing};
            for (size_t i = 0; i < N; i++)
                losses[i] = 1 + 0.2 * spread * spread * check_uniform(8, i, 0, 1);
            worst w = weigh_smoothly(kinds[k], smoothing, N, losses, NULL);
            off = w.at.value - weigh(kinds[k], N, losses, NULL).at.value;
            assert_true((k ? off : -off) >= -1e-12 &&
                        fabs(off) <= dro__objective_slack(&o) + 1e-12);
            for (size_t i = 0; i < N; i++) {
                double was = losses[i];
                losses[i] = was + h;
                double up = weigh_smoothly(kinds[k], smoothing, N, losses, NULL).at.value;
                losses[i] = was - h;
                double down = weigh_smoothly(kinds[k], smoothing, N, losses, NULL).at.value;
                losses[i] = was;
                check_near(kinds[k], (up - down) / (2 * h), w.q[i], 1e-6);
                sum += w.q[i];
            }
            check_near(kinds[k], sum, 1, 1e-12);
        }
}

/* Large lambda: the mean and half of the variance over lambda. */
static void test_large_lambda(void **state)
{
    (void)state;
    const double losses[] = {1, 2, 4};
    double mean = 7.0 / 3, variance = (1 + 4 + 16) / 3.0 - mean * mean;
    check_near("kl:1e9", (weigh("kl:1e9", 3, losses, NULL).at.value - mean) * 1e9, variance / 2,
               1e-5);
}

/* The public call: the mean of the worst half, and what it refuses. */
static void test_public(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    double losses[] = {1, 5, 2, 8}, weights[4], value;
    assert_int_equal(dro_objective_value(ctx, "cvar:0.5", losses, 4, weights, &value), DRO_OK);
    assert_float_equal(value, 6.5, 1e-12);
    assert_float_equal(weights[1], 0.5, 1e-12);
    assert_float_equal(weights[0], 0, 1e-12);
    FAILS(ctx, dro_objective_value(ctx, "cvar:2", losses, 4, weights, &value), DRO_ERR_RANGE,
          "cvar");
    losses[2] = NAN;
    FAILS(ctx, dro_objective_value(ctx, "kl:1", losses, 4, weights, &value), DRO_ERR_NUMBER,
          "loss 2 is not finite");
    dro_context_destroy(ctx);
}

static void test_names(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__objective o;
    OK(ctx, dro__objective_parse(ctx, "cvar:0.1", &o));
    assert_int_equal(o.kind, DRO__OBJECTIVE_CVAR);
    assert_true(o.argument == 0.1);
    static const char *const unknown[] = {"kl",        "mean:1", "",
                                          "entropy:1", ":",      "klklklklklklklklkl:1"};
    for (size_t k = 0; k < sizeof unknown / sizeof unknown[0]; k++)
        FAILS(ctx, dro__objective_parse(ctx, unknown[k], &o), DRO_ERR_NAME, "kl-radius:RHO");
    static const char *const wrong[] = {"kl:0", "cvar:0", "cvar:1.5", "chi2:-1", "kl-radius:nan"};
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++)
        FAILS(ctx, dro__objective_parse(ctx, wrong[k], &o), DRO_ERR_RANGE, "objective");
    FAILS(ctx, dro__objective_parse(ctx, "kl:x", &o), DRO_ERR_RANGE, "objective");
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_references),   cmocka_unit_test(test_gradient),
    cmocka_unit_test(test_radius),       cmocka_unit_test(test_limits),
    cmocka_unit_test(test_large_lambda), cmocka_unit_test(test_smoothing),
    cmocka_unit_test(test_names),        cmocka_unit_test(test_public),
};

CHECK_MAIN(tests)
