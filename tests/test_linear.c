/* Linear models as a problem: dense against sparse, gradients against finite differences, the
 * objective against a plain sum, and what create() refuses. */
#include "check.h"

enum { N = 300, D = 23 };

static float x[N * D], y_sign[N], y_real[N], w[D], values[N * D];
static int64_t starts[N + 1];
static int32_t columns[N * D], groups[N];

static void fill(void)
{
    int64_t at = 0;
    for (int i = 0; i < N; i++) {
        starts[i] = at;
        for (int j = 0; j < D; j++) {
            uint64_t k = (uint64_t)(i * D + j);
            bool zero = i % 11 == 4 || dro__random_unit(3, 71, k) < 0.6;
            float value = zero ? 0 : (float)check_uniform(72, k, -2, 2);
            x[i * D + j] = value;
            if (!zero)
                values[at] = value, columns[at++] = j;
        }
        y_sign[i] = dro__random_unit(3, 73, (uint64_t)i) < 0.3 ? 1 : -1;
        y_real[i] = (float)check_uniform(74, (uint64_t)i, -3, 3);
        groups[i] = i % 4;
    }
    starts[N] = at;
    for (int j = 0; j < D; j++)
        w[j] = (float)check_uniform(75, (uint64_t)j, -1, 1);
}

static dro_linear_data table(const char *loss, bool sparse)
{
    dro_linear_data data = dro_linear_data_default();
    fill();
    data.n = N;
    data.features = D;
    data.loss = loss;
    data.y = strcmp(loss, "squared") == 0 ? y_real : y_sign;
    data.groups = groups;
    data.group_count = 4;
    if (sparse) {
        data.starts = starts;
        data.columns = columns;
        data.values = values;
    } else {
        data.x = x;
    }
    return data;
}

/* The loss of row i at v, in double. */
static double truth(const char *loss, int64_t i, const double *v)
{
    double margin = 0;
    for (int j = 0; j < D; j++)
        margin += (double)x[i * D + j] * v[j];
    if (strcmp(loss, "squared") == 0)
        return (margin - (double)y_real[i]) * (margin - (double)y_real[i]) / 2;
    margin *= (double)y_sign[i];
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

static void widen(double *v)
{
    for (int j = 0; j < D; j++)
        v[j] = (double)w[j];
}

/* ---- gradients ---- */

enum { FIRST = 37, SECOND = 50 }; /* sizes of two parts */

/* Both parts in one call; ids with repetitions. */
static void evaluate(dro_context *ctx, dro_linear *model, int64_t *ids, float *coef, float *losses,
                     float grads[2][D])
{
    dro_problem p;
    float *const both[2] = {grads[0], grads[1]};
    for (int i = 0; i < FIRST + SECOND; i++) {
        ids[i] = (int64_t)dro__random_below(5, 76, (uint64_t)i, N);
        coef[i] = (float)check_uniform(77, (uint64_t)i, 0, 2);
    }
    dro_batch parts[2] = {{.count = FIRST, .ids = ids}, {.count = SECOND, .ids = ids + FIRST}};
    memset(grads, 0x7f, 2 * sizeof *grads); /* must be overwritten */
    OK(ctx, dro_linear_problem(model, &p));
    OK(ctx, p.forward(p.user, w, parts, 2, losses));
    OK(ctx, p.backward(p.user, w, parts, 2, coef, both));
}

static void check_gradient(const char *loss, const int64_t *ids, const float *coef,
                           const float *losses, float grads[2][D])
{
    double v[D];
    widen(v);
    for (int i = 0; i < FIRST + SECOND; i++) {
        double expected = truth(loss, ids[i], v);
        check_near("loss", (double)losses[i], expected, 4e-6 * (1 + expected));
    }
    for (int part = 0; part < 2; part++)
        for (int j = 0; j < D; j++) {
            double high = 0, low = 0, h = 1e-6;
            for (int i = part ? FIRST : 0; i < (part ? FIRST + SECOND : FIRST); i++) {
                v[j] = (double)w[j] + h;
                high += (double)coef[i] * truth(loss, ids[i], v);
                v[j] = (double)w[j] - h;
                low += (double)coef[i] * truth(loss, ids[i], v);
                v[j] = (double)w[j];
            }
            check_near("gradient", (double)grads[part][j], (high - low) / (2 * h), 2e-4);
        }
}

static void test_gradient(void **state)
{
    (void)state;
    static const char *const losses[] = {"logistic", "squared"};
    for (int b = 0; dro_backend_name(b); b++)
        for (int k = 0; k < 2; k++) {
            dro_context *ctx = check_context(dro_backend_name(b), 2);
            float grads[2][2][D], loss[2][FIRST + SECOND], coef[FIRST + SECOND];
            int64_t ids[FIRST + SECOND];
            for (int sparse = 0; sparse < 2; sparse++) {
                dro_linear_data data = table(losses[k], sparse);
                dro_linear *model;
                OK(ctx, dro_linear_create(ctx, &data, &model));
                evaluate(ctx, model, ids, coef, loss[sparse], grads[sparse]);
                check_gradient(losses[k], ids, coef, loss[sparse], grads[sparse]);
                dro_linear_destroy(model);
            }
            for (int i = 0; i < FIRST + SECOND; i++)
                check_near("sparse loss", (double)loss[1][i], (double)loss[0][i], 1e-5);
            for (int j = 0; j < 2 * D; j++)
                check_near("sparse gradient", (double)grads[1][j / D][j % D],
                           (double)grads[0][j / D][j % D], 1e-4);
            dro_context_destroy(ctx);
        }
}

/* ---- the objective ---- */

static void test_objective(void **state)
{
    (void)state;
    static const double lambdas[] = {1e-3, 0.1, 1, 50, 1e6};
    dro_context *ctx = check_context("auto", 2);
    for (int k = 0; k < 4; k++) {
        const char *loss = k % 2 ? "squared" : "logistic";
        dro_linear_data data = table(loss, k / 2);
        dro_linear *model;
        double v[D], top = -HUGE_VAL, mean = 0, value;
        widen(v);
        OK(ctx, dro_linear_create(ctx, &data, &model));
        for (int i = 0; i < N; i++) {
            top = fmax(top, truth(loss, i, v));
            mean += truth(loss, i, v) / N;
        }
        for (size_t l = 0; l < sizeof lambdas / sizeof lambdas[0]; l++) {
            double sum = 0;
            for (int i = 0; i < N; i++)
                sum += exp((truth(loss, i, v) - top) / lambdas[l]) / N;
            OK(ctx, dro_linear_objective(model, w, lambdas[l], &value));
            check_near("objective", value, top + lambdas[l] * log(sum), 1e-5 * top);
        }
        double whole;
        OK(ctx, dro_linear_objective(model, w, HUGE_VAL, &whole));
        check_near("mean loss", whole, mean, 1e-5 * mean);
        for (double large = 1e9; large < 1e16; large *= 1e3) {
            OK(ctx, dro_linear_objective(model, w, large, &value));
            check_near("objective, nearly the mean", value, whole, 1e-6 * whole);
        }
        assert_int_equal(dro_linear_objective(model, w, 0, &value), DRO_ERR_RANGE);
        assert_int_equal(dro_linear_objective(model, w, (double)NAN, &value), DRO_ERR_RANGE);
        assert_int_equal(dro_linear_objective(model, NULL, 1, &value), DRO_ERR_ARGUMENT);
        assert_int_equal(dro_linear_objective(NULL, w, 1, &value), DRO_ERR_ARGUMENT);
        dro_linear_destroy(model);
    }
    dro_context_destroy(ctx);
}

/* More rows than one batch of the objective holds, losses far beyond exp()'s range. */
static void test_objective_many(void **state)
{
    (void)state;
    enum { MANY = 10000 };
    static float ones[MANY], targets[MANY];
    dro_context *ctx = check_context("auto", 1);
    dro_linear_data data = {
        .size = sizeof data, .n = MANY, .features = 1, .x = ones, .y = targets, .loss = "squared"};
    for (int i = 0; i < MANY; i++) {
        ones[i] = 1;
        targets[i] = (float)(i % 100);
    }
    dro_linear *model;
    double value;
    const float zero[1] = {0};
    OK(ctx, dro_linear_create(ctx, &data, &model));
    OK(ctx,
       dro_linear_objective(model, zero, 1, &value)); /* the largest loss, 99^2/2, once in 100 */
    check_near("objective", value, 4900.5 - log(100), 1e-9 * 4900.5);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
}

/* ---- the problem ---- */

static void test_problem(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_linear_data data = table("logistic", false);
    dro_linear *model;
    dro_problem p;
    OK(ctx, dro_linear_create(ctx, &data, &model));
    OK(ctx, dro_linear_problem(model, &p));
    assert_true(p.dim == D && p.n == N && p.classes == 2 && p.groups == 4);
    double positive = 0;
    for (int i = 0; i < N; i++)
        positive += (y_sign[i] > 0) / (double)N;
    check_near("share of class 1", p.class_share[1], positive, 1e-12);
    check_near("share of class 0", p.class_share[0], 1 - positive, 1e-12);
    int64_t ids[] = {0, 7, 299, 7};
    int32_t classes[4], labels[4];
    OK(ctx, p.labels(p.user, ids, 4, classes, labels));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(classes[i], y_sign[ids[i]] > 0);
        assert_int_equal(labels[i], ids[i] % 4);
    }
    OK(ctx, p.labels(p.user, ids, 4, NULL, NULL));
    dro_linear_destroy(model);
    dro_linear_destroy(NULL);
    assert_int_equal(dro_linear_problem(NULL, &p), DRO_ERR_ARGUMENT);
    dro_context_destroy(ctx);
}

/* RECOVER lowers the objective, and as much on sparse rows as on dense ones. */
static void test_training(void **state)
{
    (void)state;
    for (int b = 0; dro_backend_name(b); b++) {
        dro_context *ctx = check_context(dro_backend_name(b), 1);
        double first = 0, last[2];
        for (int sparse = 0; sparse < 2; sparse++) {
            dro_linear_data data = table("logistic", sparse);
            dro_linear *model;
            dro_problem p;
            dro_optimizer *opt;
            OK(ctx, dro_linear_create(ctx, &data, &model));
            OK(ctx, dro_linear_problem(model, &p));
            OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
            check_set(ctx, opt, "lambda=0.5 eta=0.05 batch=20 a_rule=fixed warmup=0");
            OK(ctx, dro_optimizer_start(opt, w));
            OK(ctx, dro_linear_objective(model, w, 0.5, &first));
            for (int t = 0; t < 300; t++)
                OK(ctx, dro_optimizer_step(opt));
            OK(ctx, dro_linear_objective(model, dro_optimizer_w(opt), 0.5, &last[sparse]));
            dro_optimizer_destroy(opt);
            dro_linear_destroy(model);
        }
        assert_true(last[0] < 0.8 * first);
        check_near("sparse objective", last[1], last[0], 1e-3 * last[0]);
        dro_context_destroy(ctx);
    }
}

/* A moving average: after lambda has jumped or while it falls, w continues from where it is. */
static void test_moving_lambda(void **state)
{
    (void)state;
    static const char *const moves[] = {"switch_step=100 switch_lambda=0.1",
                                        "switch_step=100 switch_lambda=2",
                                        "steps=200 lambda=0.5 lambda_start=20 lambda_warmup=150"};
    dro_context *ctx = check_context("ref", 1);
    dro_linear_data data = table("logistic", false);
    dro_linear *model;
    dro_problem p;
    OK(ctx, dro_linear_create(ctx, &data, &model));
    OK(ctx, dro_linear_problem(model, &p));
    for (int k = 0; k < 3; k++) {
        double before, after = 0, worst = 0;
        dro_optimizer *opt;
        OK(ctx, dro_optimizer_create(ctx, "ascpg", &p, &opt));
        check_set(ctx, opt, "lambda=20 eta=0.05 batch=20");
        check_set(ctx, opt, moves[k]);
        OK(ctx, dro_optimizer_start(opt, w));
        for (int t = 0; t < 99; t++)
            OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_linear_objective(model, dro_optimizer_w(opt), HUGE_VAL, &before));
        for (int t = 99; t < 200; t++) {
            OK(ctx, dro_optimizer_step(opt));
            OK(ctx, dro_linear_objective(model, dro_optimizer_w(opt), HUGE_VAL, &after));
            worst = fmax(worst, after);
        }
        print_message("%s: loss %.3f, then %.3f, at most %.3f\n", moves[k], before, after, worst);
        assert_true(worst < 1.5 * before);
        dro_optimizer_destroy(opt);
    }
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
}

/* ---- what is refused ---- */

static void refuse(dro_context *ctx, const dro_linear_data *data, dro_status status,
                   const char *text)
{
    dro_linear *model = (dro_linear *)1;
    FAILS(ctx, dro_linear_create(ctx, data, &model), status, text);
    assert_null(model);
}

static void test_checks(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_linear_data good = table("logistic", true), d = good;
    d.n = 0;
    refuse(ctx, &d, DRO_ERR_ARGUMENT, "n > 0");
    d = good, d.features = 0;
    refuse(ctx, &d, DRO_ERR_ARGUMENT, "features");
    d = good, d.y = NULL;
    refuse(ctx, &d, DRO_ERR_ARGUMENT, "y");
    d = good, d.values = NULL;
    refuse(ctx, &d, DRO_ERR_ARGUMENT, "x, or starts, columns and values");
    d = good, d.loss = "hinge";
    refuse(ctx, &d, DRO_ERR_NAME, "loss 'hinge': expected logistic or squared");
    d = good, d.loss = NULL;
    refuse(ctx, &d, DRO_ERR_NAME, "(null)");
    y_sign[17] = 0;
    refuse(ctx, &good, DRO_ERR_RANGE, "y[17] is 0: the logistic loss needs -1 or 1");
    y_sign[17] = (float)NAN;
    refuse(ctx, &good, DRO_ERR_RANGE, "y[17] is");
    y_sign[17] = 1;
    columns[starts[9]] = D;
    refuse(ctx, &good, DRO_ERR_RANGE, "row 9 has column 23: expected 0 to 22");
    columns[starts[9]] = -1;
    refuse(ctx, &good, DRO_ERR_RANGE, "row 9 has column -1");
    columns[starts[9]] = 0;
    int64_t keep = starts[20];
    starts[20] = starts[19] - 1;
    refuse(ctx, &good, DRO_ERR_RANGE, "starts[20] is below the one before");
    starts[20] = keep;
    starts[0] = -1;
    refuse(ctx, &good, DRO_ERR_RANGE, "starts[");
    dro_linear *model;
    assert_int_equal(dro_linear_create(NULL, &good, &model), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_linear_create(ctx, NULL, &model), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_linear_create(ctx, &good, NULL), DRO_ERR_ARGUMENT);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gradient),       cmocka_unit_test(test_objective),
    cmocka_unit_test(test_objective_many), cmocka_unit_test(test_problem),
    cmocka_unit_test(test_training),       cmocka_unit_test(test_moving_lambda),
    cmocka_unit_test(test_checks),
};

CHECK_MAIN(tests)
