/* Settings of the optimisers and what they do: schedules, planned lengths, regularisers; and
 * settings, problems and calls that make no sense. */
#include "check.h"

#include <stddef.h>

/* ---- schedules: eta, lambda and a of each step against closed forms ---- */

static double eta_poly(int t)
{
    return 0.3 / sqrt(1 + t / 10.0);
}

static double eta_step(int t)
{
    return 0.3 / (t >= 20 ? 16 : t >= 5 ? 4 : 1);
}

static double eta_cosine(int t)
{
    return 0.1 + 0.2 * (1 + cos(acos(-1) * t / 39)) / 2;
}

/* Theorem 2 at eta = 0.5, mu = 0.1, times 0.01: stages of 10, 14, 20, 28 steps. */
static double eta_theory(int t)
{
    return 0.5 * pow(2, -0.5 * ((t >= 10) + (t >= 24) + (t >= 44) + (t >= 72)));
}

static double eta_warmup(int t)
{
    return 0.3 * fmin(1, (t + 1) / 10.0);
}

static double eta_between(int t) /* a warm-up that is no whole number of steps */
{
    return 0.3 * fmin(1, (t + 1) / 2.5);
}

static double lambda_warmup(int t)
{
    return t < 10 ? 50 + (2 - 50) * (t + 1) / 10.0 : 2;
}

static double lambda_switch(int t)
{
    return t < 7 ? 2 / sqrt(1 + t / 10.0) : 0.5;
}

static double a_poly(int t)
{
    return t == 0 ? 1 : 0.8 / (1 + t / 10.0);
}

static double a_decay(int t)
{
    return t == 0 ? 1 : 0.8 / (t >= 20 ? 9 : t >= 5 ? 3 : 1);
}

static double a_warmup(int t)
{
    return t < 4 ? (t == 0 ? 1 : 1 - 0.2 * (t + 1) / 4) : 0.8;
}

static double a_eta2(int t) /* of the step just taken */
{
    return t == 0 ? 1 : fmin(1, 20 * pow(eta_poly(t - 1), 2));
}

static void test_schedules(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer, *settings;
        double (*value)(int t);
        size_t offset;
    } cases[] = {
#define ETA    offsetof(dro_info, eta)
#define LAMBDA offsetof(dro_info, lambda)
        {"sgd", "eta=0.3 eta_schedule=poly poly_start=10 poly_power=0.5", eta_poly, ETA},
        {"sgd", "eta=0.3 eta_schedule=step stages=5,20 stage_factor=4", eta_step, ETA},
        {"sgd", "eta=0.3 eta_schedule=step stages=0.125,0.5 stage_factor=4 steps=40", eta_step,
         ETA},
        {"sgd", "eta=0.3 eta_schedule=cosine eta_end=0.1 steps=40", eta_cosine, ETA},
        {"sgd", "eta=0.5 eta_schedule=theory theory_mu=0.1 theory_factor=0.01", eta_theory, ETA},
        {"sgd", "eta=0.3 warmup=10", eta_warmup, ETA},
        {"sgd", "eta=0.3 warmup=0.25 steps=40", eta_warmup, ETA},
        {"sgd", "eta=0.3 warmup=2.5", eta_between, ETA},
        {"absgd", "lambda=2 lambda_start=50 lambda_warmup=10", lambda_warmup, LAMBDA},
        {"absgd", "lambda=2 lambda_start=50 lambda_warmup=0.25 steps=40", lambda_warmup, LAMBDA},
        {"absgd",
         "lambda=2 lambda_schedule=poly poly_start=10 poly_power=0.5 switch_step=7 "
         "switch_lambda=0.5",
         lambda_switch, LAMBDA},
#define A offsetof(dro_info, a)
        {"cover", "a_rule=fixed a=0.8 a_schedule=poly poly_start=10 poly_power=0.5", a_poly, A},
        {"cover", "a_rule=fixed a=0.8 a_schedule=step a_decay=3 stages=5,20", a_decay, A},
        {"cover", "a_rule=fixed a=0.8 a_warmup=4", a_warmup, A},
        {"cover",
         "a_rule=eta2 a_c=20 warmup=0 eta=0.3 eta_schedule=poly poly_start=10 "
         "poly_power=0.5 lambda=1000",
         a_eta2, A},
    };
    dro_context *ctx = check_context("auto", 1);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        toy t = {0};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        OK(ctx, dro_optimizer_create(ctx, cases[k].optimizer, &p, &opt));
        check_set(ctx, opt, "eta=0.001 ?guard=0");
        check_set(ctx, opt, cases[k].settings);
        OK(ctx, dro_optimizer_start(opt, NULL));
        for (int step = 0; step < 90; step++) {
            dro_info info;
            dro_status status = dro_optimizer_step(opt);
            if (step == 40 && strstr(cases[k].settings, "steps=40")) {
                assert_int_equal(status, DRO_ERR_END);
                break;
            }
            OK(ctx, status);
            OK(ctx, dro_optimizer_info(opt, &info));
            check_near(cases[k].settings, *(double *)((char *)&info + cases[k].offset),
                       cases[k].value(step), 1e-12);
        }
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

/* ---- planned lengths ---- */

/* Steps until the end, and in lengths[] how many were taken with each eta. */
static int run_length(dro_context *ctx, const char *name, const char *settings, int64_t seed,
                      int *lengths)
{
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    dro_info info;
    int steps = 0;
    OK(ctx, dro_optimizer_create(ctx, name, &p, &opt));
    check_set(ctx, opt, "eta=0.001 warmup=0 eta_schedule=step stage_factor=10 ?guard=0 batch=2");
    check_set(ctx, opt, settings);
    OK(ctx, dro_optimizer_set_real(opt, "seed", (double)seed));
    OK(ctx, dro_optimizer_start(opt, NULL));
    while (steps < 1000 && dro_optimizer_step(opt) == DRO_OK) {
        OK(ctx, dro_optimizer_info(opt, &info));
        lengths[(int)lround(log10(0.001 / info.eta))]++;
        steps++;
    }
    assert_int_equal(dro_optimizer_step(opt), DRO_ERR_END);
    dro_optimizer_destroy(opt);
    return steps;
}

static void test_planned_steps(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings;
        int lengths[3];
    } cases[] = {
        {"recover", "steps=50 stages=", {50}},
        {"recover", "steps=50 stages=20", {20, 30}},
        {"recover", "steps=50 stages=20,90", {20, 30}},
        {"recover", "steps=50 stages=50,60", {50}},
        {"recover", "steps=50", {25, 12, 13}},
        {"recover", "steps=1", {1}},
        {"recover", "steps=2", {1, 1}},
        {"recover", "steps=50 stages=0,10", {10, 40}},
        {"pes-sgda", "steps=50 eta_schedule=constant stage_steps=7", {7, 43}},
        {"pes-sgda", "steps=50 eta_schedule=constant stage_steps=0.1", {5, 45}},
    };
    dro_context *ctx = check_context("auto", 1);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int lengths[8] = {0};
        run_length(ctx, cases[k].name, cases[k].settings, 1, lengths);
        for (int s = 0; s < 3; s++)
            if (lengths[s] != cases[k].lengths[s])
                fail_msg("%s: stages of %d %d %d steps", cases[k].settings, lengths[0], lengths[1],
                         lengths[2]);
    }
    dro_context_destroy(ctx);
}

/* output=random: each stage ends at a step drawn from 1..T_k, by the seed alone. */
static void test_output_random(void **state)
{
    (void)state;
    enum { SEEDS = 400 };
    static const int planned[3] = {40, 30, 30};
    double mean[3] = {0};
    dro_context *ctx = check_context("auto", 1);
    for (int seed = 0; seed < SEEDS; seed++) {
        int lengths[8] = {0}, again[8] = {0};
        run_length(ctx, "recover", "steps=100 stages=40,70 output=random", seed, lengths);
        if (seed < 5)
            run_length(ctx, "recover", "steps=100 stages=40,70 output=random", seed, again);
        for (int s = 0; s < 3; s++) {
            assert_true(lengths[s] >= 1 && lengths[s] <= planned[s]);
            assert_true(seed >= 5 || lengths[s] == again[s]);
            mean[s] += (double)lengths[s] / SEEDS;
        }
    }
    for (int s = 0; s < 3; s++)
        check_near("mean length", mean[s], (planned[s] + 1) / 2.0,
                   5 * planned[s] / sqrt(12.0 * SEEDS));
    dro_context_destroy(ctx);
}

/* ---- regularisers ---- */

static double reg_value(const char *settings, const double *w, const int64_t *blocks, int count)
{
    double l1 = 0, l2 = 0, norms = 0;
    for (int j = 0; j < TOY_DIM; j++)
        l1 += fabs(w[j]), l2 += w[j] * w[j];
    for (int k = 0; k < count; k++) {
        double norm = 0;
        for (int64_t j = blocks[k]; j < blocks[k + 1]; j++)
            norm += w[j] * w[j];
        norms += sqrt(norm);
    }
    double outside = 0;
    for (int j = 0; j < TOY_DIM; j++)
        outside += w[j] < -0.3 - 1e-7 || w[j] > 0.2 + 1e-7;
    if (strstr(settings, "box"))
        return outside ? HUGE_VAL : 0;
    if (strstr(settings, "ball"))
        return sqrt(l2) > (strstr(settings, "=50") ? 50 : 0.7) * (1 + 1e-6) ? HUGE_VAL : 0;
    return strstr(settings, "l2")      ? 3 * l2 / 2
           : strstr(settings, "l1")    ? 3 * l1
           : strstr(settings, "elas")  ? 3 * (0.25 * l1 + 0.75 * l2 / 2)
           : strstr(settings, "group") ? 3 * norms
                                       : 0;
}

/* One full-batch step of SGD makes w = argmin |w - x|^2/2 + eta r(w): no other point is better. */
static void check_prox(dro_context *ctx, const char *settings, const int64_t *blocks, int count,
                       bool given)
{
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    double x[TOY_DIM], w[TOY_DIM], other[TOY_DIM], eta = 0.1, best = 0;
    if (given)
        p.param_blocks = blocks, p.param_block_count = (size_t)count;
    OK(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt));
    check_set(ctx, opt, "batch=60 eta=0.1 reg_strength=3 momentum=0");
    check_set(ctx, opt, settings);
    OK(ctx, dro_optimizer_start(opt, w0));
    OK(ctx, dro_optimizer_step(opt));
    for (int j = 0; j < TOY_DIM; j++) {
        x[j] = (double)w0[j];
        for (int64_t i = 0; i < TOY_N; i++)
            x[j] -= eta * toy_residual(w0, i) * toy_x(i, j) / TOY_N;
        w[j] = (double)dro_optimizer_w(opt)[j];
        best += (w[j] - x[j]) * (w[j] - x[j]) / 2;
    }
    double r = reg_value(settings, w, blocks, count);
    check_near(settings, dro_optimizer_regulariser(opt, dro_optimizer_w(opt)), r, 1e-5);
    char name[16];
    assert_int_equal(sscanf(settings, "reg=%15s", name), 1);
    assert_int_equal(dro_regulariser_has_strength(name), r > 0);
    best += eta * r;
    for (uint64_t k = 0; k < 20000; k++) {
        double value = 0, scale = pow(10, check_uniform(95, k, -4, 0));
        for (int j = 0; j < TOY_DIM; j++) {
            uint64_t at = k * TOY_DIM + (uint64_t)j;
            other[j] = w[j] + (k % 2 && (uint64_t)j != k / 2 % TOY_DIM
                                   ? 0
                                   : scale * check_uniform(96, at, -1, 1));
            value += (other[j] - x[j]) * (other[j] - x[j]) / 2;
        }
        value += eta * reg_value(settings, other, blocks, count);
        if (!(value >= best - 2e-6))
            fail_msg("%s: %.9g can be improved to %.9g", settings, best, value);
    }
    dro_optimizer_destroy(opt);
}

static void test_prox(void **state)
{
    (void)state;
    static const int64_t equal[] = {0, 4, 6}, own[] = {0, 1, 3, 6};
    for (int b = 0; dro_backend_name(b); b++) {
        dro_context *ctx = check_context(dro_backend_name(b), 1);
        check_prox(ctx, "reg=none", equal, 0, false);
        check_prox(ctx, "reg=l2", equal, 0, false);
        check_prox(ctx, "reg=l1", equal, 0, false);
        check_prox(ctx, "reg=elastic reg_ratio=0.25", equal, 0, false);
        check_prox(ctx, "reg=group reg_block=4", equal, 2, false);
        check_prox(ctx, "reg=group", own, 3, true);
        check_prox(ctx, "reg=box reg_low=-0.3 reg_high=0.2", equal, 0, false);
        check_prox(ctx, "reg=ball reg_radius=0.7", equal, 0, false);
        check_prox(ctx, "reg=ball reg_radius=50", equal, 0, false);
        dro_context_destroy(ctx);
    }
}

/* F + r at w, lambda 0: the mean loss. r has a strength of 0.1. */
static double regularised(const char *reg, double lambda, const double *w)
{
    float at[TOY_DIM];
    double sum = 0;
    for (int j = 0; j < TOY_DIM; j++)
        at[j] = (float)w[j];
    for (int64_t i = 0; i < TOY_N; i++) {
        double r = toy_residual(at, i), loss = r * r / 2;
        sum += lambda > 0 ? exp(loss / lambda) / TOY_N : loss / TOY_N;
    }
    return (lambda > 0 ? lambda * log(sum) : sum) + reg_value(reg, w, NULL, 0) * 0.1 / 3;
}

/* Steps with all examples end where no other point is better, whatever moves w. */
static void check_minimum(dro_context *ctx, const char *name, const char *settings, double lambda,
                          const char *reg)
{
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    double w[TOY_DIM], other[TOY_DIM];
    OK(ctx, dro_optimizer_create(ctx, name, &p, &opt));
    check_set(ctx, opt, "batch=60 steps=3000 eta_schedule=cosine weight_decay=0 reg_strength=0.1");
    check_set(ctx, opt, settings);
    check_set(ctx, opt, reg);
    OK(ctx, dro_optimizer_start(opt, NULL));
    for (int k = 0; k < 3000; k++)
        OK(ctx, dro_optimizer_step(opt));
    for (int j = 0; j < TOY_DIM; j++)
        w[j] = (double)dro_optimizer_w(opt)[j];
    double best = regularised(reg, lambda, w);
    for (uint64_t k = 0; k < 4000; k++) {
        for (int j = 0; j < TOY_DIM; j++)
            other[j] = w[j] + pow(10, check_uniform(97, k, -3, 0)) *
                                  check_uniform(98, k * TOY_DIM + (uint64_t)j, -1, 1);
        double value = regularised(reg, lambda, other);
        if (!(value >= best - 2e-5))
            fail_msg("%s %s %s: %.9g can be improved to %.9g", name, settings, reg, best, value);
    }
    dro_optimizer_destroy(opt);
}

static void test_regularised_minimum(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings;
        double lambda;
    } rows[] = {
        {"sgd", "eta=0.01 momentum=0.9", 0},
        {"sgd", "eta=0.01 momentum=0.9 nesterov=yes", 0},
        {"sgd", "eta=0.01 momentum=0.9 objective=kl:5", 5},
        {"adamw", "eta=0.02", 0},
        {"adamw", "eta=0.02 objective=kl:5", 5},
        {"absgd", "eta=0.01 momentum=0.9 lambda=5", 5},
        {"scent", "eta=0.02 lambda=5", 5},
        {"cover", "eta=0.1 lambda=5", 5},
        {"recover", "eta=0.1 momentum=0.9 lambda=5", 5},
        {"recover", "eta=0.02 precondition=rms lambda=5", 5},
        {"recover", "eta=0.02 precondition=adam lambda=5", 5},
        {"ascpg", "eta=0.5 lambda=5 eta_power=0", 5},
    };
    static const char *const regs[] = {"reg=l2", "reg=l1", "reg=elastic reg_ratio=0.25"};
    dro_context *ctx = check_context("cpu", 1);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        for (int r = 0; r < 3; r++)
            check_minimum(ctx, rows[k].name, rows[k].settings, rows[k].lambda, regs[r]);
    dro_context_destroy(ctx);
}

/* ---- what makes no sense ---- */

static const int64_t falling[] = {0, 4, 3, 6}, beyond[] = {0, 3, 7};

/* start() must fail with this text, and must not keep a later start() from working. */
static void contradiction(dro_context *ctx, const char *name, const char *settings, dro_problem p,
                          dro_status status, const char *text)
{
    dro_optimizer *opt;
    float w[TOY_DIM];
    OK(ctx, dro_optimizer_create(ctx, name, &p, &opt));
    check_set(ctx, opt, settings);
    dro_status given = dro_optimizer_start(opt, w0);
    if (given != status || !strstr(dro_context_error(ctx), text))
        fail_msg("%s %s: %d (%s), expected %d, '%s'", name, settings, (int)given,
                 dro_context_error(ctx), (int)status, text);
    dro_optimizer_regulariser(opt, w0);
    assert_int_equal(dro_optimizer_weights(opt, w), DRO_ERR_STATE);
    check_set(ctx, opt, "steps=10 reg=none stages= ?tilt=example ?switch_tilt=same output=last");
    if (p.n > 0)
        OK(ctx, dro_optimizer_start(opt, w0));
    dro_optimizer_destroy(opt);
}

static void test_contradictions(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings, *text;
        dro_status status;
    } cases[] = {
        {"recover", "output=random", "set steps", DRO_ERR_RANGE},
        {"sgd", "eta_schedule=cosine", "steps", DRO_ERR_RANGE},
        {"absgd", "lambda_schedule=cosine", "steps", DRO_ERR_RANGE},
        {"sgd", "warmup=0.5", "steps", DRO_ERR_RANGE},
        {"absgd", "lambda_warmup=0.5", "steps", DRO_ERR_RANGE},
        {"cover", "a_rule=fixed a_warmup=0.5", "steps", DRO_ERR_RANGE},
        {"sgd", "stages=90,60", "stages must increase: 60 after 90", DRO_ERR_RANGE},
        {"sgd", "reg=box reg_low=2 reg_high=1", "reg_low 2 is above reg_high 1", DRO_ERR_RANGE},
        {"pes-sgda", "stage_steps=0.5", "stage_steps 0.5 is a share of steps: set steps",
         DRO_ERR_RANGE},
        {"stoc-agda", "tilt=class", "over examples only", DRO_ERR_UNSUPPORTED},
        {"pg-smd2", "tilt=none", "over examples only", DRO_ERR_UNSUPPORTED},
        {"pes-sgda", "switch_step=5 switch_tilt=group", "over examples only", DRO_ERR_UNSUPPORTED},
    };
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem good = toy_problem(&t), p;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        contradiction(ctx, cases[k].name, cases[k].settings, good, cases[k].status, cases[k].text);
    p = good, p.n = 0;
    contradiction(ctx, "stoc-agda", "", p, DRO_ERR_UNSUPPORTED, "must know n");
    contradiction(ctx, "pg-smd2", "", p, DRO_ERR_UNSUPPORTED, "must know n");
    contradiction(ctx, "pes-sgda", "", p, DRO_ERR_UNSUPPORTED, "must know n");
    p = good, p.classes = p.groups = 0;
    contradiction(ctx, "recover", "tilt=class", p, DRO_ERR_ARGUMENT, "problem.classes is 0");
    contradiction(ctx, "absgd", "switch_step=3 switch_tilt=group", p, DRO_ERR_ARGUMENT,
                  "problem.groups is 0");
    p = good, p.labels = NULL;
    contradiction(ctx, "recover", "tilt=class", p, DRO_ERR_ARGUMENT, "callback labels");
    p = good, p.param_blocks = falling, p.param_block_count = 3;
    contradiction(ctx, "sgd", "reg=group", p, DRO_ERR_ARGUMENT, "param_blocks[2] = 3");
    p.param_blocks = beyond, p.param_block_count = 2;
    contradiction(ctx, "sgd", "reg=group", p, DRO_ERR_ARGUMENT, "param_blocks[2] = 7");
    dro_context_destroy(ctx);
}

/* ---- misuse ---- */

static void test_nulls(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_composite c = toy_composite(&t);
    dro_optimizer *opt = NULL;
    dro_info info;
    float w[TOY_DIM];
    assert_int_equal(dro_optimizer_create(NULL, "sgd", &p, &opt), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_create(ctx, "sgd", NULL, &opt), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_create(ctx, "sgd", &p, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_create(ctx, NULL, &p, &opt), DRO_ERR_NAME);
    assert_int_equal(dro_optimizer_create_composite(ctx, "cover", NULL, &opt), DRO_ERR_ARGUMENT);
    FAILS(ctx, dro_optimizer_create_composite(ctx, "sgd", &c, &opt), DRO_ERR_UNSUPPORTED,
          "use one of cover recover ascpg civr rcivr");
    c.outer = NULL;
    FAILS(ctx, dro_optimizer_create_composite(ctx, "cover", &c, &opt), DRO_ERR_ARGUMENT, "outer");
    c = toy_composite(&t), c.inner = 0;
    FAILS(ctx, dro_optimizer_create_composite(ctx, "cover", &c, &opt), DRO_ERR_ARGUMENT, "inner");
    p.backward = NULL;
    FAILS(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt), DRO_ERR_ARGUMENT, "backward");
    p = toy_problem(&t), p.dim = 0;
    FAILS(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt), DRO_ERR_RANGE, "dim is 0");
    p = toy_problem(&t), p.n = -1;
    FAILS(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt), DRO_ERR_ARGUMENT, "n >= 0");
    assert_null(opt);
    assert_int_equal(dro_optimizer_start(NULL, w), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_step(NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_skip(NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_weights(NULL, w), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_info(NULL, &info), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_save(NULL, w, 4), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_load(NULL, w, 4), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_state_size(NULL), 0);
    assert_null(dro_optimizer_w(NULL));
    dro_optimizer_destroy(NULL);
    dro_context_destroy(ctx);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    dro_info info;
    float w[TOY_DIM] = {0};
    OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
    FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_STATE, "dro_optimizer_start first");
    FAILS(ctx, dro_optimizer_weights(opt, w), DRO_ERR_STATE, "dro_optimizer_start first");
    FAILS(ctx, dro_optimizer_info(opt, &info), DRO_ERR_STATE, "dro_optimizer_start first");
    FAILS(ctx, dro_optimizer_save(opt, w, sizeof w), DRO_ERR_STATE, "dro_optimizer_start first");
    assert_int_equal(dro_optimizer_state_size(opt), 0);
    w[4] = (float)NAN;
    FAILS(ctx, dro_optimizer_start(opt, w), DRO_ERR_NUMBER, "w0[4] is");
    w[4] = INFINITY;
    FAILS(ctx, dro_optimizer_start(opt, w), DRO_ERR_NUMBER, "w0[4] is");
    OK(ctx, dro_optimizer_start(opt, NULL));
    FAILS(ctx, dro_optimizer_start(opt, NULL), DRO_ERR_STATE, "started already");
    FAILS(ctx, dro_optimizer_set(opt, "eta", "1"), DRO_ERR_STATE, "eta cannot be set after");
    assert_int_equal(dro_optimizer_weights(opt, NULL), DRO_ERR_ARGUMENT);
    OK(ctx, dro_optimizer_weights(opt, w));
    for (int j = 0; j < TOY_DIM; j++)
        assert_true(w[j] == 0);
    OK(ctx, dro_optimizer_info(opt, &info));
    assert_true(info.step == 0 && info.examples == 0 && info.evaluations == 0);
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* Labels out of range: the step is refused with the place, w stays. */
static dro_status wrong_labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                               int32_t *groups)
{
    (void)ids, (void)groups;
    for (size_t i = 0; i < count; i++)
        classes[i] = i == 5 ? *(int *)user : 0;
    return DRO_OK;
}

static dro_status forward_of_labels(void *user, const float *w, const dro_batch *parts,
                                    int part_count, float *losses)
{
    (void)user;
    toy t = {0};
    return toy_forward(&t, w, parts, part_count, losses);
}

static void test_labels_out_of_range(void **state)
{
    (void)state;
    static int wrong[] = {2, -1, 1000000};
    static const char *const names[] = {"recover", "ascpg", "absgd", "civr"};
    dro_context *ctx = check_context("auto", 1);
    for (size_t k = 0; k < 12; k++) {
        char text[80];
        toy t = {0};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        p.user = &wrong[k % 3], p.labels = wrong_labels, p.groups = 0;
        p.forward = forward_of_labels;
        snprintf(text, sizeof text, "class %d of example 5 of the batch: expected 0 to 1",
                 wrong[k % 3]);
        OK(ctx, dro_optimizer_create(ctx, names[k / 3], &p, &opt));
        check_set(ctx, opt, "tilt=class batch=8");
        OK(ctx, dro_optimizer_start(opt, w0));
        FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_CALLBACK, text);
        OK(ctx, dro_optimizer_skip(opt));
        assert_memory_equal(dro_optimizer_w(opt), w0, sizeof w0);
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_schedules),
    cmocka_unit_test(test_planned_steps),
    cmocka_unit_test(test_output_random),
    cmocka_unit_test(test_prox),
    cmocka_unit_test(test_regularised_minimum),
    cmocka_unit_test(test_contradictions),
    cmocka_unit_test(test_nulls),
    cmocka_unit_test(test_order_of_calls),
    cmocka_unit_test(test_labels_out_of_range),
};

CHECK_MAIN(tests)
