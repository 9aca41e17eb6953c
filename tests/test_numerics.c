/* Numbers that cannot overflow: RECOVER on scripted losses from 0 to 1e4 with lambda from 1e-3 to 1e3,
 * outliers that arrive suddenly, lambda moving smoothly and in jumps, against DESIGN.md's recursion
 * written out in long double.
 *
 * The script gives each example a loss, plus <x, w>, rounded to float; so a gradient is x. The
 * reference takes the losses that the library saw (at lambda = 1e-3 one rounding of a loss of 1e4
 * is a factor e) and computes everything else itself. Also the schedules of eta, lambda and a. */
#include "check.h"

enum { B = 16, DIM = 4, STEPS = 160, MID = 80 };

static const double tolerance = 1e-4;
static const long double CAP = 10, A_MIN = 0.001L;

/* ---- the script ---- */

typedef enum script { CALM, WIDE, OUTLIERS, LEVELS, RISING, CONSTANT, SCRIPTS } script;

static const char *const script_names[] = {"calm",   "wide",   "outliers",
                                           "levels", "rising", "constant"};

static double scripted(script s, int64_t id)
{
    static const double levels[] = {0, 1e4, 50, 0.5, 3000};
    int64_t step = id / B;
    double u = check_uniform(51, (uint64_t)id, 0, 1);
    switch (s) {
    case WIDE:
        return 1e4 * u;
    case OUTLIERS:
        return step > 20 && u < 0.004 ? 1e4 : check_uniform(52, (uint64_t)id, 0, 1);
    case LEVELS:
        return levels[step / 15 % 5] + u;
    case RISING:
        return 1e4 * pow((double)step / STEPS, 4) * (1 + 0.1 * u);
    case CONSTANT:
        return 7;
    default:
        return u;
    }
}

static double feature(int64_t id, int j)
{
    return (double)(float)check_uniform(53, (uint64_t)(id * DIM + j), -1, 1);
}

/* ---- the problem, which keeps the losses of every call ---- */

typedef struct record {
    script script;
    int calls;
    float losses[STEPS + 1][2 * B];
    bool bad; /* a coefficient that was not finite and positive or zero */
} record;

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    record *r = user;
    float *keep = r->losses[r->calls++];
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            double loss = scripted(r->script, parts[k].ids[i]);
            for (int j = 0; j < DIM; j++)
                loss += feature(parts[k].ids[i], j) * (double)w[j];
            *losses++ = *keep++ = (float)loss;
        }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    record *r = user;
    (void)w;
    for (int k = 0; k < part_count; k++) {
        double sum[DIM] = {0};
        for (size_t i = 0; i < parts[k].count; i++, coef++) {
            r->bad |= !isfinite(*coef) || *coef < 0;
            for (int j = 0; j < DIM; j++)
                sum[j] += (double)*coef * feature(parts[k].ids[i], j);
        }
        for (int j = 0; j < DIM; j++)
            grads[k][j] = (float)sum[j];
    }
    return DRO_OK;
}

/* ---- the reference ---- */

typedef struct reference {
    bool have, observed, automatic;
    long double log_u, mean_old, d[DIM], w[DIM], g_old[DIM];
    long double change, noise;
    int since_fresh;
    uint64_t caps, floors, fresh_starts;
} reference;

/* Values and slopes of the capped exponential; G gets the weighted gradient, the mean is returned. */
static long double weigh(reference *r, const float *losses, int64_t first, long double lambda,
                         long double *g)
{
    long double mean = 0;
    for (int j = 0; j < DIM; j++)
        g[j] = 0;
    for (int i = 0; i < B; i++) {
        long double x = (long double)losses[i] / lambda - r->log_u;
        long double slope = expl(fminl(x, CAP));
        mean += (x > CAP ? slope * (1 + x - CAP) : slope) / B;
        r->caps += x > CAP;
        for (int j = 0; j < DIM; j++)
            g[j] += slope / B * (long double)feature(first + i, j);
    }
    return mean;
}

static void afresh(reference *r, const float *losses, int64_t first, long double lambda)
{
    long double top = (long double)losses[0], sum = 0;
    for (int i = 1; i < B; i++)
        top = fmaxl(top, (long double)losses[i]);
    for (int i = 0; i < B; i++)
        sum += expl(((long double)losses[i] - top) / lambda) / B;
    r->log_u = top / lambda + logl(sum);
    for (int j = 0; j < DIM; j++) {
        r->d[j] = 0;
        for (int i = 0; i < B; i++)
            r->d[j] += expl((long double)losses[i] / lambda - r->log_u) / B *
                       (long double)feature(first + i, j);
    }
    r->since_fresh = 0;
}

/* |G1-G0|^2 and |G0-d|^2 into their averages. */
static void observe(reference *r, const long double *g1)
{
    long double change = 0, noise = 0, keep = r->observed ? 0.9L : 0;
    for (int j = 0; j < DIM; j++) {
        change += (g1[j] - r->g_old[j]) * (g1[j] - r->g_old[j]);
        noise += (r->g_old[j] - r->d[j]) * (r->g_old[j] - r->d[j]);
    }
    r->change = keep * r->change + (1 - keep) * change;
    r->noise = keep * r->noise + (1 - keep) * noise;
    r->observed = true;
    r->since_fresh++;
}

static long double choose_a(const reference *r)
{
    if (!r->automatic)
        return 0.1L;
    long double low = fmaxl(A_MIN, 1 / (long double)(r->since_fresh + 2));
    if (!r->observed || !(r->noise > 0))
        return low;
    return fminl(1, fmaxl(low, sqrtl(r->change / r->noise)));
}

/* One step; losses: batch t, then batch t+1, both at w[t]. */
static void reference_step(reference *r, const float *losses, int64_t first, long double lambda,
                           long double eta)
{
    long double a = choose_a(r), g1[DIM];
    long double ratio =
        r->have ? weigh(r, losses, first, lambda, g1) + (1 - a) * (1 - r->mean_old) : 0;
    if (r->have && ratio >= 0.1L && ratio <= 10) {
        observe(r, g1);
        for (int j = 0; j < DIM; j++)
            r->d[j] = (g1[j] + (1 - a) * (r->d[j] - r->g_old[j])) / ratio;
        r->log_u += logl(ratio);
    } else {
        r->fresh_starts += r->have;
        r->floors += r->have && !(ratio >= 0.1L);
        afresh(r, losses, first, lambda);
    }
    r->have = true;
    for (int j = 0; j < DIM; j++)
        r->w[j] -= eta * r->d[j];
    r->mean_old = weigh(r, losses + B, first + B, lambda, r->g_old);
}

/* ---- running both ---- */

typedef struct moving {
    const char *settings; /* how lambda moves */
    double first, last;   /* its range, for lambda() */
    double (*lambda)(const struct moving *m, int t);
    double pace; /* eta / lambda: small, or so large that one step changes every weight */
} moving;

static double constant(const moving *m, int t)
{
    (void)t;
    return m->first;
}

static double jump(const moving *m, int t)
{
    return t < MID ? m->first : m->last;
}

static double cosine(const moving *m, int t)
{
    return m->last + (m->first - m->last) * (1 + cos(acos(-1) * t / STEPS)) / 2;
}

/* Linear from last to first in MID steps. */
static double warm(const moving *m, int t)
{
    return t < MID ? m->last + (m->first - m->last) * (t + 1) / MID : m->first;
}

static void check_finite(const dro_info *info)
{
    assert_true(isfinite(info->eta) && isfinite(info->lambda) && isfinite(info->a));
    assert_true(isfinite(info->loss) && isfinite(info->log_u) && isfinite(info->objective));
    assert_true(isfinite(info->largest_weight) && info->largest_weight <= B * 1.001);
    assert_true(info->effective >= 0 && info->effective <= 1.001); /* 0: all weights underflow */
}

static void compare(const char *name, int t, const reference *r, const dro_info *info,
                    const float *w, double *largest)
{
    double off = 0, size = 0;
    for (int j = 0; j < DIM; j++) {
        off = fmax(off, fabs((double)w[j] - (double)r->w[j]));
        size = fmax(size, fabs((double)r->w[j]));
    }
    *largest = fmax(*largest, size);
    if (!(off <= tolerance * *largest))
        fail_msg("%s, step %d: w is off by %.3g of %.3g", name, t, off, *largest);
    if (!(fabs(info->log_u - (double)r->log_u) <= tolerance * fmax(1, fabs((double)r->log_u))))
        fail_msg("%s, step %d: log_u is %.12g, not %.12g", name, t, info->log_u, (double)r->log_u);
    if (info->caps != r->caps || info->floors != r->floors || info->fresh_starts != r->fresh_starts)
        fail_msg("%s, step %d: caps %d floors %d fresh %d, not %d %d %d", name, t, (int)info->caps,
                 (int)info->floors, (int)info->fresh_starts, (int)r->caps, (int)r->floors,
                 (int)r->fresh_starts);
    check_finite(info);
}

/* One run next to its reference; adds what was exercised to `seen`. */
static void run(const char *backend, script s, const moving *m, const char *rule, dro_info *seen)
{
    static record kept;
    char name[200];
    kept = (record){.script = s};
    reference r = {.automatic = strstr(rule, "auto") != NULL};
    dro_problem problem = {.user = &kept, .dim = DIM, .forward = forward, .backward = backward};
    dro_context *ctx = check_context(backend, 1);
    dro_optimizer *opt;
    dro_info info = {0};
    double eta = m->pace * fmin(m->first, m->last), largest = 0;
    snprintf(name, sizeof name, "%s %s %s %s pace %g", backend, script_names[s], m->settings, rule,
             m->pace);
    OK(ctx, dro_optimizer_create(ctx, "recover", &problem, &opt));
    check_set(ctx, opt, "batch=16 warmup=0 eta_schedule=constant ?guard=0 stages=80");
    check_set(ctx, opt, rule);
    check_set(ctx, opt, m->settings);
    OK(ctx, dro_optimizer_set_real(opt, "eta", eta));
    OK(ctx, dro_optimizer_set_real(opt, "steps", STEPS + 1)); /* all of ours look ahead */
    OK(ctx, dro_optimizer_start(opt, NULL));
    for (int t = 0; t < STEPS; t++) {
        float w[DIM];
        OK(ctx, dro_optimizer_step(opt));
        assert_int_equal(kept.calls, t + 1);
        double lambda = m->lambda(m, t);
        reference_step(&r, kept.losses[t], (int64_t)t * B, (long double)lambda, (long double)eta);
        OK(ctx, dro_optimizer_weights(opt, w));
        OK(ctx, dro_optimizer_info(opt, &info));
        check_near("lambda", info.lambda, lambda, 1e-12 * lambda);
        compare(name, t, &r, &info, w, &largest);
    }
    assert_false(kept.bad);
    seen->caps += info.caps;
    seen->floors += info.floors;
    seen->fresh_starts += info.fresh_starts;
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

static void run_all(moving m, dro_info *seen)
{
    static const double paces[] = {0.01, 2};
    for (int p = 0; p < 2; p++)
        for (script s = 0; s < SCRIPTS; s++)
            for (int k = 0; dro_backend_name(k); k++) {
                m.pace = paces[p];
                run(dro_backend_name(k), s, &m, "a_rule=fixed a=0.1", seen);
                run(dro_backend_name(k), s, &m, "a_rule=auto", seen);
            }
}

/* ---- the tests ---- */

static void test_constant_lambda(void **state)
{
    (void)state;
    dro_info seen = {0};
    for (int decade = -3; decade <= 3; decade++) {
        char text[40];
        double lambda = pow(10, decade);
        snprintf(text, sizeof text, "lambda=%.17g", lambda);
        run_all((moving){text, lambda, lambda, constant, 0}, &seen);
    }
    /* The runs must have gone where it is hard. */
    assert_true(seen.caps > 1000 && seen.floors > 100 && seen.fresh_starts > seen.floors + 100);
}

static void test_lambda_jumps(void **state)
{
    (void)state;
    static const moving cases[] = {
        {"lambda=1000 switch_step=80 switch_lambda=0.001", 1000, 0.001, jump, 0},
        {"lambda=100 switch_step=80 switch_lambda=1", 100, 1, jump, 0},
        {"lambda=0.001 switch_step=80 switch_lambda=1000", 0.001, 1000, jump, 0},
        {"lambda=5 lambda_schedule=step lambda_factor=50", 5, 0.1, jump,
         0}, /* at the stage's end */
    };
    dro_info seen = {0};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        run_all(cases[k], &seen);
    assert_true(seen.caps > 100 && seen.floors > 10 && seen.fresh_starts > 100);
}

/* lambda moves in every step: the old point keeps its own, so calm losses need no fresh start. */
static void test_lambda_smooth(void **state)
{
    (void)state;
    static const moving cases[] = {
        {"lambda=10 lambda_schedule=cosine lambda_end=0.1", 10, 0.1, cosine, 0.01},
        {"lambda=0.05 lambda_schedule=cosine lambda_end=20", 0.05, 20, cosine, 0.01},
        {"lambda=0.5 lambda_start=1000 lambda_warmup=80", 0.5, 1000, warm, 0.01},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_info seen = {0}, calm = {0};
        run_all(cases[k], &seen);
        run("ref", CALM, &cases[k], "a_rule=fixed a=0.1", &calm);
        assert_int_equal(calm.fresh_starts, k == 1); /* lambda rises 60-fold in the first steps */
        assert_int_equal(calm.caps, 0);
        assert_true(seen.fresh_starts > 0);
    }
}

/* The largest cap that the table allows must still give coefficients that a float can hold. */
static void test_largest_cap(void **state)
{
    (void)state;
    static record kept;
    dro_param p = {0};
    for (int k = 0; dro_optimizer_param("recover", k, &p) == DRO_OK && strcmp(p.name, "cap");)
        k++;
    assert_string_equal(p.name, "cap");
    dro_context *ctx = check_context("auto", 1);
    for (script s = 0; s < SCRIPTS; s++) {
        kept = (record){.script = s};
        dro_problem problem = {.user = &kept, .dim = DIM, .forward = forward, .backward = backward};
        dro_optimizer *opt;
        OK(ctx, dro_optimizer_create(ctx, "recover", &problem, &opt));
        check_set(ctx, opt, "batch=16 lambda=0.01 eta=0.0001 a_rule=fixed");
        OK(ctx, dro_optimizer_set_real(opt, "cap", p.high));
        OK(ctx, dro_optimizer_start(opt, NULL));
        for (int t = 0; t < STEPS; t++)
            OK(ctx, dro_optimizer_step(opt));
        assert_false(kept.bad);
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_constant_lambda), cmocka_unit_test(test_lambda_jumps),
    cmocka_unit_test(test_lambda_smooth),   cmocka_unit_test(test_largest_cap),
    cmocka_unit_test(test_schedules),
};

CHECK_MAIN(tests)
