/* Numbers that cannot overflow: RECOVER on scripted losses from 0 to 1e4 with lambda from 1e-3 to
 * 1e3, outliers that arrive suddenly, lambda moving smoothly and in jumps, against DESIGN.md's
 * recursion written out in long double.
 *
 * The script gives each example a loss, plus <x, w>, rounded to float; so a gradient is x. The
 * reference takes the losses that the library saw (at lambda = 1e-3 one rounding of a loss of 1e4
 * is a factor e) and computes everything else itself. */
#include "check.h"

#include "backend.h"

enum { B = 16, DIM = 4, STEPS = 160, MID = 80 };

static const double tolerance = 1e-4;
static const long double CAP = 10;

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
    long double change, noise, spread, fall; /* of the automatic a */
    uint64_t caps, floors, fresh_starts;
} reference;

/* Values and slopes of the capped exponential; G gets the weighted gradient, the mean is
 * returned. */
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
    r->spread = 1;
}

static long double drift(const reference *r)
{
    return r->observed && r->noise > 0 ? r->change / r->noise : 0;
}

/* After a step with weight a: the variance of d, then |G1-G0|^2 and |G0-d|^2 into their
 * averages. */
static void observe(reference *r, const long double *g1, long double a)
{
    long double change = 0, noise = 0, keep = r->observed ? 0.9L : 0;
    r->spread = (1 - a) * (1 - a) * (r->spread + drift(r)) + a * a;
    for (int j = 0; j < DIM; j++) {
        change += (g1[j] - r->g_old[j]) * (g1[j] - r->g_old[j]);
        noise += (r->g_old[j] - r->d[j]) * (r->g_old[j] - r->d[j]);
    }
    r->change = keep * r->change + (1 - keep) * change;
    r->noise = keep * r->noise + (1 - keep) * noise;
    r->observed = true;
}

/* Kalman's, at least sqrt(drift), at least the share by which the last step lowered u. */
static long double choose_a(const reference *r)
{
    if (!r->automatic)
        return 0.1L;
    long double known = r->spread + drift(r), a = known / (1 + known);
    return fminl(1, fmaxl(fmaxl(a, sqrtl(drift(r))), -expm1l(-r->fall)));
}

/* One step; losses: batch t, then batch t+1, both at w[t]. */
static void reference_step(reference *r, const float *losses, int64_t first, long double lambda,
                           long double eta)
{
    long double a = choose_a(r), g1[DIM];
    long double ratio =
        r->have ? weigh(r, losses, first, lambda, g1) + (1 - a) * (1 - r->mean_old) : 0;
    if (r->have && ratio >= 0.1L && ratio <= 10) {
        observe(r, g1, a);
        for (int j = 0; j < DIM; j++)
            r->d[j] = (g1[j] + (1 - a) * (r->d[j] - r->g_old[j])) / ratio;
        r->log_u += logl(ratio);
    } else {
        r->fresh_starts += r->have;
        r->floors += r->have && !(ratio >= 0.1L);
        afresh(r, losses, first, lambda);
    }
    r->have = true;
    r->fall = 0;
    for (int j = 0; j < DIM; j++) {
        r->w[j] -= eta * r->d[j];
        r->fall += eta / lambda * r->d[j] * r->d[j];
    }
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
    dro_problem problem = {.size = sizeof(dro_problem),
                           .user = &kept,
                           .dim = DIM,
                           .forward = forward,
                           .backward = backward};
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
        dro_problem problem = {.size = sizeof(dro_problem),
                               .user = &kept,
                               .dim = DIM,
                               .forward = forward,
                               .backward = backward};
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

/* ---- the backends' part of it ---- */

/* Coefficients, mean and caps of a batch whose estimate has the given log_u. */
static void check_tilt(const dro__backend *be)
{
    static const int sizes[] = {1, 15, 16, 17, 511, 513};
    static const double scales[] = {1e-3, 1, 100, 1e3, 1e20}, shifts[] = {-5, 0, 3, 700, 1e7};
    for (int k = 0; k < 25 * 6; k++) {
        int n = sizes[k % 6];
        double scale = scales[k / 6 % 5], log_u = shifts[k / 30], cap = k % 2 ? 10 : 30;
        float x[513], coef[513], old[513];
        dro__ticket ticket = {.lambda = 1 / scale, .level = DRO__TILT_EXAMPLE};
        dro__scalars s = {.have = 1,
                          .level = DRO__TILT_EXAMPLE,
                          .log_u = log_u,
                          .lambda_before = 1 / scale,
                          .caps = 7};
        dro__step step = {.plan = {.cap = cap},
                          .ticket = &ticket,
                          .s = &s,
                          .losses = x,
                          .coef = coef,
                          .old_losses = old,
                          .counts = {0, n}};
        uint64_t beyond = 7;
        long double mean = 0;
        for (int i = 0; i < n; i++) /* to 1e4 */
            x[i] = (float)check_uniform(55, (uint64_t)i, -2, 2) * (i % 5 ? 1 : 5000);
        be->weigh(&step, DRO__PHASE_OLD);
        for (int i = 0; i < n; i++) {
            double exponent = (double)x[i] * (1 / ticket.lambda) - log_u;
            long double slope = expl(fminl((long double)exponent, (long double)cap));
            long double over = fmaxl((long double)exponent - (long double)cap, 0);
            mean += slope * (1 + over) / n;
            beyond += exponent > cap;
            check_near("coef", (double)coef[i], (double)(slope / n),
                       (double)(slope / n) * 1e-7 + 1e-44);
            assert_true(old[i] == x[i]);
        }
        assert_int_equal(s.caps, beyond);
        check_near("mean", s.mean_old, (double)mean, 1e-13 * (double)mean + 1e-300);
    }
}

static void test_tilt(void **state)
{
    (void)state;
    for (int k = 0; dro_backend_name(k); k++) {
        dro_context *ctx = check_context(dro_backend_name(k), 1);
        check_tilt(ctx->backend);
        dro_context_destroy(ctx);
    }
}

/* ---- weight decay ---- */

enum { WIDE_DIM = 20000 };

static dro_status zero_forward(void *user, const float *w, const dro_batch *parts, int part_count,
                               float *losses)
{
    (void)user, (void)w;
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++)
            *losses++ = 1;
    return DRO_OK;
}

static dro_status zero_backward(void *user, const float *w, const dro_batch *parts, int part_count,
                                const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)parts, (void)coef;
    for (int k = 0; k < part_count; k++)
        memset(grads[k], 0, WIDE_DIM * sizeof(float));
    return DRO_OK;
}

/* eta weight_decay = 2e-7, as late in training. A float next to 1 is too coarse for 1 - 2e-7 (it
 * would be 1 - 1.8e-7 for every weight); over many weights the decay must be right. reg=l2
 * likewise. */
static void check_decay(const char *settings)
{
    static float w[WIDE_DIM];
    dro_problem p = {.size = sizeof(dro_problem),
                     .dim = WIDE_DIM,
                     .n = 100,
                     .forward = zero_forward,
                     .backward = zero_backward};
    for (size_t i = 0; i < WIDE_DIM; i++)
        w[i] = (float)check_uniform(56, i, 1, 4);
    for (int b = 0; dro_backend_name(b); b++) {
        dro_context *ctx = check_context(dro_backend_name(b), 1);
        for (int k = 0; check_optimizer(k); k++) {
            dro_optimizer *opt;
            dro_info info;
            double decay = 0;
            OK(ctx, dro_optimizer_create(ctx, check_optimizer(k), &p, &opt));
            check_set(ctx, opt,
                      "eta=0.001 weight_decay=0 batch=2 ?precondition=none ?momentum=0 ?epsilon=1 "
                      "?warmup=0 "
                      "?gamma=1e-9 ?big=4");
            check_set(ctx, opt, settings);
            OK(ctx, dro_optimizer_start(opt, w));
            OK(ctx, dro_optimizer_step(opt));
            OK(ctx, dro_optimizer_info(opt, &info));
            for (size_t i = 0; i < WIDE_DIM; i++)
                decay += (1 - (double)dro_optimizer_w(opt)[i] / (double)w[i]) / WIDE_DIM;
            check_near(check_optimizer(k), decay / (info.eta * 0.0002), 1, 0.02);
            dro_optimizer_destroy(opt);
        }
        dro_context_destroy(ctx);
    }
}

static void test_small_weight_decay(void **state)
{
    (void)state;
    check_decay("weight_decay=0.0002");
    check_decay("reg=l2 reg_strength=0.0002");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_constant_lambda),
    cmocka_unit_test(test_lambda_jumps),
    cmocka_unit_test(test_lambda_smooth),
    cmocka_unit_test(test_largest_cap),
    cmocka_unit_test(test_tilt),
    cmocka_unit_test(test_small_weight_decay),
};

CHECK_MAIN(tests)
