/* lbfgs and newton: the minimum of the full F for linear models, to the last digits of a double
 * (exact.h).
 *
 *   F(w) = lambda log mean exp(loss/lambda) + r(w), over examples, classes or groups;
 *   or with kl-radius, cvar or chi2 (objective.h) instead of kl;  r: l2, l1, elastic
 *
 * Those three have kinks, at which minima lie: they are smoothed, less and less, until the value is
 * right up to dro__objective_slack(). The gradient is that of the worst-case weights q: sum_i q_i
 * grad loss_i. Newton's matrix adds to it (sum_k q_k g_k g_k' - g g') / lambda, k over what the
 * objective is robust over. The result is the w with the lowest F, without smoothing, of the start
 * and of the steps with the last smoothing.
 *
 * The certificate. For convex losses F is at least its tangent, so with g the gradient without r(w)
 *   min F >= F(w) - [ r(w) + r*(-g) + <w, g> ],     r*(v) = sum_j (|v_j| - l1)+^2 / (2 l2)
 * which is the duality gap; for l2 alone it is |grad F|^2 / (2 l2). At a kink g is that of one of
 * many tangents, and far from 0: there the bound is of a mean of the tangents of all steps. That of
 * the smoothed F at w lies below F without smoothing too, as its q is one of those that F is the
 * largest over. */
#include "exact.h"
#include "objective.h"
#include "opt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    dro__optimizer_settings common;
    double tolerance, smoothing;
    int64_t memory;
} settings;

typedef struct state {
    dro__exact solver;
    double *losses, *q;        /* (n) */
    double *prior;             /* (n) shares of the example weights, or NULL: all the same */
    double *scale;             /* (dim) */
    int32_t *of;               /* (n) class or group of each example */
    dro__groups groups;        /* count 0: over examples */
    dro__objective objective;  /* with the present smoothing */
    double *group_q, *group_g; /* newton over groups: (n), (dim) */
    double mean;               /* loss */
    dro__worst_case worst;
    /* kl-radius, cvar, chi2: */
    double *best;              /* (dim) the w of the lowest F */
    double *plane, *tangent;   /* (dim) F >= height + <plane, w> + r(w); scratch */
    double least, now, height; /* F at best and at w, both without smoothing */
    double lower;              /* min F is not below it */
    double tested;             /* |gradient| where the last smoothing ended */
    bool returned;             /* w is best, and the end */
} state;

enum { NEWTON_MOST = 2000, MEMORY_MOST = 50, MEMORY_LEAST = 5 };
/* kl-radius, cvar, chi2: solved with this smoothing; then, from that solution, with a quarter of
 * it, and so on. */
#define FIRST_SMOOTHING 0.1
/* Idle steps in a row that end a smoothing, and the last one where its gap is not small. */
enum { PATIENCE = 20, PATIENCE_LAST = 40 };

static double l1_of(const dro__optimizer_settings *set)
{
    if (set->reg == DRO__REG_L1)
        return set->reg_strength;
    return set->reg == DRO__REG_ELASTIC ? set->reg_strength * set->reg_ratio : 0;
}

static double l2_of(const dro__optimizer_settings *set)
{
    if (set->reg == DRO__REG_L2)
        return set->reg_strength;
    return set->reg == DRO__REG_ELASTIC ? set->reg_strength * (1 - set->reg_ratio) : 0;
}

/* From the settings: an objective by name, or kl with lambda. */
static void objective_of(dro_optimizer *o, dro__objective *objective)
{
    settings *set = o->settings;
    *objective = o->objective;
    if (dro__is_mean(o))
        set->common.tilt = DRO__TILT_NONE;
    if (set->common.tilt == DRO__TILT_NONE)
        *objective = (dro__objective){.kind = DRO__OBJECTIVE_MEAN};
    if (objective->kind > DRO__OBJECTIVE_KL)
        objective->smoothing = fmax(set->smoothing, FIRST_SMOOTHING);
}

/* ---- F ---- */

/* Examples without weight are ignored, even if their loss is the largest. */
static void hide_weightless(state *s, size_t n)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < n; i++)
        least = fmin(least, s->losses[i]);
    for (size_t i = 0; i < n; i++)
        s->losses[i] = s->prior[i] > 0 ? s->losses[i] : least;
}

static dro_status value(void *user, const double *w, double *to, double *gradient)
{
    dro_optimizer *o = user;
    state *s = o->extra;
    double l2 = l2_of(dro__settings_of(o));
    size_t n = (size_t)o->n;
    DRO_TRY(o->able.full->losses(o->able.full->user, w, s->losses));
    o->run.evaluations += n;
    s->mean = 0;
    for (size_t i = 0; i < n; i++)
        s->mean += s->losses[i] * (s->prior ? s->prior[i] : 1 / (double)n);
    *to = NAN;
    if (s->prior)
        hide_weightless(s, n);
    if (!isfinite(s->mean)) /* the line search takes a shorter step */
        return DRO_OK;
    if (s->groups.count)
        dro__objective_weigh_groups(&s->objective, &s->groups, s->losses, s->q, &s->worst);
    else
        dro__objective_weigh(&s->objective, n, s->losses, s->prior, s->q, &s->worst);
    o->able.full->gradient(o->able.full->user, s->q, gradient);
    double square = 0;
    for (size_t i = 0; i < o->dim; i++) {
        double share = dro__reg_share(o, i);
        square += share * w[i] * w[i];
        gradient[i] += share * l2 * w[i];
    }
    *to = s->worst.value + l2 / 2 * square;
    return DRO_OK;
}

/* h += a x x', the lower triangle. */
static void add_outer(size_t dim, double a, const double *x, double *h)
{
    for (size_t i = 0; i < dim; i++)
        for (size_t j = 0; x[i] != 0 && j <= i; j++)
            h[i * dim + j] += a * x[i] * x[j];
}

static dro_status hessian(void *user, double *h)
{
    dro_optimizer *o = user;
    state *s = o->extra;
    const dro__optimizer_settings *set = dro__settings_of(o);
    const dro__full *full = o->able.full;
    size_t dim = o->dim, n = (size_t)o->n;
    double bend = s->objective.kind == DRO__OBJECTIVE_KL ? 1 / s->objective.argument : 0;
    memset(h, 0, dim * dim * sizeof *h);
    full->hessian(full->user, s->q, s->groups.count ? 0 : bend, h);
    for (int32_t k = 0; k < s->groups.count; k++) { /* sum_i q_i g_i over a group is q_k g_k */
        if (!(s->groups.q[k] > 0))
            continue;
        for (size_t i = 0; i < n; i++)
            s->group_q[i] = s->of[i] == k ? s->q[i] : 0;
        full->gradient(full->user, s->group_q, s->group_g);
        add_outer(dim, bend / s->groups.q[k], s->group_g, h);
    }
    full->gradient(full->user, s->q, s->group_g);
    add_outer(dim, -bend, s->group_g, h);
    for (size_t i = 0; i < dim; i++)
        h[i * dim + i] += dro__reg_share(o, i) * l2_of(set);
    return DRO_OK;
}

static bool has_kinks(const dro_optimizer *o)
{
    return ((const state *)o->extra)->objective.kind > DRO__OBJECTIVE_KL;
}

static bool is_last(const dro_optimizer *o)
{
    const state *s = o->extra;
    return !(s->objective.smoothing > ((const settings *)o->settings)->smoothing);
}

/* A step that lowers F by less is idle. */
static double enough_of(const dro_optimizer *o)
{
    const double worth = 0.01; /* due to the smoothing */
    const state *s = o->extra;
    return s->worst.smoothed ? worth * dro__objective_slack(&s->objective) : 0;
}

static uint64_t patience_of(const dro_optimizer *o)
{
    const state *s = o->extra;
    if (!has_kinks(o))
        return 0;
    bool wide = s->now - s->lower > dro__objective_slack(&s->objective); /* not if it is NaN */
    return is_last(o) && wide && isfinite(s->lower) ? PATIENCE_LAST : PATIENCE;
}

static dro__smooth smooth_of(dro_optimizer *o)
{
    const state *s = o->extra;
    return (dro__smooth){.user = o,
                         .value = value,
                         .enough = enough_of(o),
                         .patience = patience_of(o),
                         .hessian = hessian,
                         .l1 = l1_of(dro__settings_of(o)),
                         .free_first = o->problem.reg_free_first,
                         .free_count = o->problem.reg_free_count,
                         .free_share = DRO__REG_FREE,
                         .scale = s->scale};
}

/* ---- the certificate ---- */

static bool has_gap(const dro_optimizer *o)
{
    return l2_of(dro__settings_of(o)) > 0 && o->able.full->convex;
}

/* Of the smoothed F. */
static double tangent_gap(const dro_optimizer *o)
{
    const state *s = o->extra;
    const dro__optimizer_settings *set = dro__settings_of(o);
    double gap = 0;
    if (!has_gap(o))
        return NAN;
    for (size_t i = 0; i < o->dim; i++) { /* no term is negative */
        double share = dro__reg_share(o, i), l1 = share * l1_of(set), l2 = share * l2_of(set);
        double w = s->solver.w[i], g = s->solver.g[i] - l2 * w, over = fmax(fabs(g) - l1, 0);
        gap += fmax(0, l2 / 2 * w * w + l1 * fabs(w) + w * g + over * over / (2 * l2));
    }
    return gap;
}

static double gap_of(const dro_optimizer *o)
{
    const state *s = o->extra;
    if (!has_gap(o) || !has_kinks(o))
        return tangent_gap(o);
    return fmax(0, s->now - s->lower);
}

/* min over w of <(1 - t) plane + t tangent, w> + r(w), which is -r*; *slope by t. */
static double lowest(const dro_optimizer *o, double t, double *slope)
{
    const state *s = o->extra;
    const dro__optimizer_settings *set = dro__settings_of(o);
    double sum = 0;
    *slope = 0;
    for (size_t i = 0; i < o->dim; i++) {
        double share = dro__reg_share(o, i), l1 = share * l1_of(set), l2 = share * l2_of(set);
        double change = s->tangent[i] - s->plane[i], g = s->plane[i] + t * change;
        double over = fmax(fabs(g) - l1, 0);
        sum -= over * over / (2 * l2);
        *slope -= copysign(over, g) * change / l2;
    }
    return sum;
}

/* The mean of the plane and the tangent at w with the highest bound becomes the plane: the slope of
 * the bound falls with t, for l2 alone along a line. */
static void raise_plane(dro_optimizer *o)
{
    enum { PASSES = 8 };
    state *s = o->extra;
    double l2 = l2_of(dro__settings_of(o)), height = 0, low, high, t = 1;
    for (int64_t i = 0; i < o->n; i++)
        height += s->q[i] * s->losses[i];
    for (size_t i = 0; i < o->dim; i++) {
        s->tangent[i] = s->solver.g[i] - dro__reg_share(o, i) * l2 * s->solver.w[i];
        height -= s->tangent[i] * s->solver.w[i];
    }
    if (isfinite(s->lower)) {
        double more = height - s->height, from = 0, to = 1, slope;
        lowest(o, 0, &low);
        lowest(o, 1, &high);
        low += more;
        high += more;
        t = low <= 0 ? 0 : 1;
        for (int k = 0; k < PASSES && low > 0 && high < 0; k++) {
            t = from + (to - from) * low / (low - high);
            lowest(o, t, &slope);
            slope += more;
            *(slope > 0 ? &from : &to) = t;
            *(slope > 0 ? &low : &high) = slope;
        }
    }
    for (size_t i = 0; i < o->dim; i++)
        s->plane[i] += t * (s->tangent[i] - s->plane[i]);
    s->height += t * (height - s->height);
    s->lower = fmax(s->lower, s->height + lowest(o, 0, &low));
}

/* At w, after value(): F without smoothing, with its q where this smoothing is the last one;
 * otherwise as much as it can be. */
static void look(dro_optimizer *o, double smoothed)
{
    state *s = o->extra;
    dro__objective sharp = s->objective;
    double rest = smoothed - s->worst.value;
    bool cvar = sharp.kind == DRO__OBJECTIVE_CVAR;
    s->now = smoothed + (s->worst.smoothed && cvar ? dro__objective_slack(&sharp) : 0);
    if (!s->worst.smoothed || !(is_last(o) || !o->run.step))
        return;
    sharp.smoothing = 0;
    if (s->groups.count)
        dro__objective_weigh_groups(&sharp, &s->groups, s->losses, s->q, &s->worst);
    else
        dro__objective_weigh(&sharp, (size_t)o->n, s->losses, s->prior, s->q, &s->worst);
    s->worst.smoothed = true;
    s->now = s->worst.value + rest;
}

/* After a step, or at the first w. */
static void certify(dro_optimizer *o)
{
    state *s = o->extra;
    if (!has_kinks(o))
        return;
    if (has_gap(o))
        raise_plane(o);
    look(o, s->solver.value);
    if (s->now < s->least) {
        s->least = s->now;
        memcpy(s->best, s->solver.w, o->dim * sizeof *s->best);
    }
}

/* ---- life ---- */

static bool is_newton(const dro_optimizer *o)
{
    return o->cls == &dro__optimizer_newton;
}

static dro_status check(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    const char *name = o->cls->name;
    if (o->is_composite || !o->able.full || o->n < 1)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s requires a linear model with a convex loss, and all rows at once (no "
                         "stream): use recover",
                         name);
    if (is_newton(o) && o->dim > NEWTON_MOST)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "newton keeps a matrix of %zu x %zu: expected at most %d weights; use "
                         "lbfgs",
                         o->dim, o->dim, NEWTON_MOST);
    if (is_newton(o) && l1_of(set) > 0)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "newton: |w|_1 has no second derivatives: use reg=l2, or lbfgs");
    dro__objective objective;
    objective_of(o, &objective);
    if (is_newton(o) && objective.kind > DRO__OBJECTIVE_KL)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "newton: objective=%.40s: expected kl or mean; use lbfgs", set->objective);
    if (set->tilt >= DRO__TILT_CLASS && !o->problem.labels)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED, "%s: the problem has no classes or groups",
                         name);
    return DRO_OK;
}

static dro_status label(dro_optimizer *o)
{
    state *s = o->extra;
    const dro__optimizer_settings *set = dro__settings_of(o);
    size_t n = (size_t)o->n;
    bool classes = set->tilt == DRO__TILT_CLASS;
    int32_t count = classes ? o->problem.classes : o->problem.groups;
    if (set->tilt < DRO__TILT_CLASS)
        return DRO_OK;
    if (count < 1)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED, "%s: the problem has no %s", o->cls->name,
                         classes ? "classes" : "groups");
    int64_t *ids = dro__alloc(n, sizeof *ids);
    s->of = dro__alloc(n, sizeof *s->of);
    dro_status status = ids && s->of ? DRO_OK : dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory");
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = (int64_t)i;
    if (status == DRO_OK)
        status = o->problem.labels(o->problem.user, ids, n, classes ? s->of : NULL,
                                   classes ? NULL : s->of);
    dro__free(ids);
    for (size_t i = 0; status == DRO_OK && i < n; i++)
        if (s->of[i] < 0 || s->of[i] >= count)
            status =
                dro__fail(o->ctx, DRO_ERR_RANGE, "example %zu is of group %d: expected 0 to %d", i,
                          s->of[i], count - 1);
    s->groups = (dro__groups){.n = n, .count = count, .of = s->of, .example_prior = s->prior};
    return status == DRO_OK ? dro__groups_create(o->ctx, &s->groups, set->group_prior == 0)
                            : status;
}

/* The number of pairs: many if w is short, few where they would take more than 64 MB. */
static size_t memory_of(const dro_optimizer *o)
{
    const settings *set = o->settings;
    size_t fits = ((size_t)64 << 20) / (2 * sizeof(double) * o->dim);
    if (set->memory)
        return (size_t)set->memory;
    if (fits < MEMORY_LEAST)
        return MEMORY_LEAST;
    return fits < MEMORY_MOST ? fits : MEMORY_MOST;
}

static dro_status start(dro_optimizer *o)
{
    state *s = o->extra = dro__alloc(1, sizeof *s);
    size_t n = (size_t)o->n;
    if (!s)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for an optimiser");
    objective_of(o, &s->objective);
    size_t kinks = has_kinks(o) ? o->dim : 0;
    DRO_TRY(dro__exact_create(o->ctx, &s->solver, o->dim, memory_of(o), is_newton(o)));
    s->losses = dro__alloc(n, sizeof(double));
    s->q = dro__alloc(n, sizeof(double));
    s->scale = dro__alloc(o->dim, sizeof(double));
    s->group_q = dro__alloc(is_newton(o) ? n : 0, sizeof(double));
    s->group_g = dro__alloc(o->dim, sizeof(double));
    s->prior = o->weight_sums ? dro__alloc(n, sizeof(double)) : NULL;
    s->best = dro__alloc(kinks, sizeof(double));
    s->plane = dro__alloc(kinks, sizeof(double));
    s->tangent = dro__alloc(kinks, sizeof(double));
    s->least = HUGE_VAL;
    s->lower = -HUGE_VAL;
    if (!s->losses || !s->q || !s->scale || !s->group_q || !s->group_g || !s->best || !s->plane ||
        !s->tangent || (o->weight_sums && !s->prior))
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for the losses of %zu examples", n);
    for (size_t i = 0; s->prior && i < n; i++)
        s->prior[i] = (o->weight_sums[i + 1] - o->weight_sums[i]) / (double)n;
    o->able.full->scale(o->able.full->user, s->scale);
    for (size_t i = 0; i < o->dim; i++)
        s->scale[i] += dro__reg_share(o, i) * l2_of(dro__settings_of(o));
    return label(o);
}

static void stop(dro_optimizer *o)
{
    state *s = o->extra;
    if (!s)
        return;
    dro__exact_free(&s->solver);
    dro__groups_free(&s->groups);
    dro__free(s->losses);
    dro__free(s->q);
    dro__free(s->scale);
    dro__free(s->of);
    dro__free(s->group_q);
    dro__free(s->group_g);
    dro__free(s->prior);
    dro__free(s->best);
    dro__free(s->plane);
    dro__free(s->tangent);
}

/* ---- a step ---- */

static dro_status as_floats(dro_optimizer *o)
{
    const state *s = o->extra;
    float *w = dro__alloc(o->dim, sizeof *w);
    if (!w)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for %zu weights", o->dim);
    for (size_t i = 0; i < o->dim; i++)
        w[i] = (float)s->solver.w[i];
    dro_status status = dro__vector_in(o, o->k.v[DRO__W], w, o->dim * sizeof *w);
    dro__free(w);
    return status;
}

/* The first point is w, which the start has filled. */
static dro_status begin(dro_optimizer *o)
{
    state *s = o->extra;
    float *w = dro__alloc(o->dim, sizeof *w);
    dro_status status = w ? dro__vector_out(o, w, o->k.v[DRO__W], o->dim * sizeof *w)
                          : dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for %zu weights", o->dim);
    for (size_t i = 0; status == DRO_OK && i < o->dim; i++)
        s->solver.w[i] = (double)w[i];
    dro__free(w);
    return status;
}

static void report(dro_optimizer *o, double gradient)
{
    state *s = o->extra;
    double largest = 0, square = 0;
    if (s->groups.count)
        dro__worst_case_measure(&s->objective, (size_t)s->groups.count, s->groups.prior,
                                s->groups.q, &s->worst);
    else
        dro__worst_case_measure(&s->objective, (size_t)o->n, s->prior, s->q, &s->worst);
    for (int64_t i = 0; i < o->n; i++) {
        largest = fmax(largest, s->q[i]);
        square += s->q[i] * s->q[i];
    }
    o->s.loss = s->mean;
    bool kl = s->objective.kind == DRO__OBJECTIVE_KL;
    o->s.level = o->ticket.level;
    o->s.lambda = isnan(s->worst.lambda) ? o->ticket.lambda : s->worst.lambda;
    o->s.log_u = kl ? s->worst.value / s->worst.lambda : 0;
    o->s.multiplier = o->s.lambda;
    o->s.threshold = isnan(s->worst.eta) ? 0 : s->worst.eta;
    o->s.radius = s->worst.divergence;
    o->s.largest_weight = largest * (double)o->n;
    o->s.effective = 1 / (square * (double)o->n);
    o->run.value = has_kinks(o) && is_last(o) ? s->now : s->solver.value;
    o->run.gradient = gradient;
    o->run.gap = gap_of(o);
}

/* The next smoothing; false: this was the last. */
static bool sharpen(dro_optimizer *o)
{
    const settings *set = o->settings;
    state *s = o->extra;
    if (!s->worst.smoothed || is_last(o))
        return false;
    s->objective.smoothing = fmax(set->smoothing, s->objective.smoothing / 4);
    s->solver.begun = s->solver.stuck = s->solver.idle = 0;
    return true;
}

static dro_status evaluated(dro_optimizer *o, const dro__smooth *f, double *gradient)
{
    state *s = o->extra;
    dro_status status = dro__exact_begin(&s->solver, f);
    if (status == DRO_ERR_NUMBER)
        return dro__fail(o->ctx, status, "%s: F is not finite at the first w", o->cls->name);
    DRO_TRY(status);
    *gradient = dro__exact_gradient(&s->solver, f);
    if (isinf(s->least))
        certify(o);
    return DRO_OK;
}

/* At the minimum, to the accuracy of this smoothing. */
static bool is_small(const dro_optimizer *o, double gradient)
{
    const settings *set = o->settings;
    double enough = is_last(o) ? set->tolerance : fmax(set->tolerance, enough_of(o));
    return gradient <= set->tolerance || gap_of(o) <= set->tolerance || tangent_gap(o) <= enough;
}

/* The end: says what was tested. */
static dro_status ended(const dro_optimizer *o)
{
    const state *s = o->extra;
    double tolerance = ((const settings *)o->settings)->tolerance, gap = gap_of(o);
    double slack = dro__objective_slack(&s->objective);
    char how[224], steps[32], within[64] = "";
    snprintf(steps, sizeof steps, "after %llu steps", (unsigned long long)o->run.step);
    if (has_kinks(o) && isfinite(gap))
        snprintf(within, sizeof within, ": F is within %.3g of the minimum", gap);
    if (gap <= tolerance)
        snprintf(how, sizeof how, "converged %s: gap %.3g", steps, gap);
    else if (s->worst.smoothed && gap <= slack)
        snprintf(how, sizeof how, "solved %s%s", steps, within);
    else if (s->tested <= tolerance)
        snprintf(how, sizeof how, "converged %s: |gradient| %.3g", steps, s->tested);
    else if (s->worst.smoothed && s->solver.idle)
        snprintf(how, sizeof how, "ended %s, the last %llu lower by less than %.2g each%s", steps,
                 (unsigned long long)s->solver.idle, enough_of(o), within);
    else
        snprintf(how, sizeof how, "no lower value was found %s: |gradient| %.3g", steps, s->tested);
    return dro__fail(o->ctx, DRO_ERR_END, "%s: %s", o->cls->name, how);
}

/* To the w of the lowest F, if that is another one. */
static dro_status go_back(dro_optimizer *o, const dro__smooth *f, bool *moved)
{
    state *s = o->extra;
    dro__exact *e = &s->solver;
    double value;
    *moved = has_kinks(o) && s->least < s->now - 1e-12 * fabs(s->now);
    if (!*moved)
        return DRO_OK;
    DRO_TRY(f->value(f->user, s->best, &value, e->trial_g));
    for (size_t i = 0; i < o->dim; i++)
        value += dro__reg_share(o, i) * l1_of(dro__settings_of(o)) * fabs(s->best[i]);
    e->value = value;
    e->stuck = s->returned = true;
    memcpy(e->w, s->best, o->dim * sizeof *e->w);
    memcpy(e->g, e->trial_g, o->dim * sizeof *e->g);
    return DRO_OK;
}

static dro_status take_step(dro_optimizer *o)
{
    state *s = o->extra;
    dro__exact *e = &s->solver;
    dro__smooth f = smooth_of(o);
    double gradient = NAN;
    bool last = is_last(o);
    if (!e->evaluations)
        DRO_TRY(begin(o));
    for (bool moved = false; !moved;) {
        DRO_TRY(evaluated(o, &f, &gradient));
        s->tested = s->returned ? s->tested : gradient;
        if (!e->stuck && !is_small(o, gradient)) {
            DRO_TRY(dro__exact_step(e, &f));
            moved = e->current;
        }
        if (!moved && !sharpen(o)) {
            DRO_TRY(go_back(o, &f, &moved));
            if (!moved && (last || !is_last(o)))
                return ended(o);
            moved = true; /* at least to the last smoothing, with its value */
        }
        f = smooth_of(o);
    }
    DRO_TRY(as_floats(o));
    certify(o);
    o->run.examples += (uint64_t)o->n;
    report(o, dro__exact_gradient(e, &f));
    return DRO_OK;
}

static dro_status step(dro_optimizer *o)
{
    state *s = o->extra, before = *s;
    dro_status status = take_step(o);
    if (status != DRO_OK) /* the vectors of the pairs, and w, are written last */
        *s = before;
    return status;
}

static uint64_t steps_for(const dro_optimizer *o, uint64_t examples)
{
    return o->n ? examples / (uint64_t)o->n : 0;
}

static size_t weights(const dro_optimizer *o, double *q, size_t count)
{
    const state *s = o->extra;
    size_t group_count = (size_t)s->groups.count;
    for (size_t k = 0; k < group_count && k < count; k++)
        q[k] = s->groups.q[k];
    return o->run.step ? group_count : 0;
}

static void archive(dro_optimizer *o, dro__archive *ar)
{
    state *s = o->extra;
    dro__exact *e = &s->solver;
    size_t bytes = e->dim * sizeof(double);
    DRO__ARCHIVE(ar, e->value);
    DRO__ARCHIVE(ar, e->pairs);
    DRO__ARCHIVE(ar, e->next);
    DRO__ARCHIVE(ar, e->evaluations);
    DRO__ARCHIVE(ar, e->begun);
    DRO__ARCHIVE(ar, e->stuck);
    DRO__ARCHIVE(ar, e->idle);
    DRO__ARCHIVE(ar, s->objective.smoothing);
    dro__archive_flag(ar, &s->worst.smoothed);
    if (has_kinks(o)) {
        DRO__ARCHIVE(ar, s->least);
        DRO__ARCHIVE(ar, s->now);
        DRO__ARCHIVE(ar, s->height);
        DRO__ARCHIVE(ar, s->lower);
        DRO__ARCHIVE(ar, s->tested);
        dro__archive_flag(ar, &s->returned);
        dro__archive_bytes(ar, s->best, bytes);
        dro__archive_bytes(ar, s->plane, bytes);
    }
    dro__archive_bytes(ar, e->w, bytes);
    dro__archive_bytes(ar, e->g, bytes);
    if (e->memory) {
        dro__archive_bytes(ar, e->s, bytes * e->memory);
        dro__archive_bytes(ar, e->y, bytes * e->memory);
        dro__archive_bytes(ar, e->curvature, e->memory * sizeof(double));
    }
    if (s->groups.count)
        dro__archive_bytes(ar, s->groups.q, (size_t)s->groups.count * sizeof(double));
    if (ar->mode != DRO__ARCHIVE_LOAD)
        return;
    ar->failed = ar->failed || e->begun > 1 || e->stuck > 1 || e->pairs > e->memory ||
                 (e->memory && e->next >= e->memory);
    e->current = false;
}

/* ---- settings ---- */

#define S dro__optimizer_settings

static const dro__param_row own[] = {
    DRO__REAL("tolerance", tolerance, settings, "1e-8", 0, 1,
              "stop when the duality gap (l2, elastic), else |gradient|, is at most this"),
    DRO__INTEGER("steps", common.steps, settings, "0", 0, 1e15,
                 "maximum number of iterations; 0: no limit"),
    DRO__INTEGER("seed", common.seed, settings, "1", 0, 9e15, "not used: nothing is random"),
    DRO__CHOICE("reg", common.reg, settings, "none", "none|l2|l1|elastic", "regulariser r(w)"),
    DRO__REAL("reg_strength", common.reg_strength, settings, "0", 0, 1e12,
              "strength s of l2 (s/2 |w|^2), l1, elastic"),
    DRO__REAL("reg_ratio", common.reg_ratio, settings, "0.5", 0, 1, "elastic: the share of l1"),
    DRO__REAL("lambda", common.lambda.value, settings, "1", 1e-9, 1e12,
              "robustness: smaller values emphasise high losses; larger ones approach the mean"),
    DRO__CHOICE("tilt", common.tilt, settings, "example", "none|example|class|group",
                "what is reweighted: examples, classes or groups; --over is the same"),
    DRO__CHOICE("group_prior", common.group_prior, settings, "uniform", "uniform|data",
                "prior over the classes or groups: uniform, or their shares of the data"),
    DRO__PARAMS_END,
};

static const dro__param_row pairs[] = {
    DRO__REAL("objective_smoothing", smoothing, settings, "1e-5", 1e-12, 1,
              "s: kl-radius and chi2 are solved up to s rho, cvar up to s (1/alpha - 1) / 2"),
    DRO__INTEGER("memory", memory, settings, "0", 0, 1000,
                 "pairs of steps and gradients; 0: 50, fewer where they take more than 64 MB"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_lbfgs = {
    .name = "lbfgs",
    .summary = "L-BFGS on the full F, in double: the minimum for linear models",
    .tables = {own, dro__params_objective, pairs},
    .settings_size = sizeof(settings),
    .vectors = 21 + 4 * MEMORY_LEAST, /* a double is two */
    .robust = true,
    .groups = true,
    .exact = true,
    .check = check,
    .start = start,
    .stop = stop,
    .step = step,
    .steps_for = steps_for,
    .archive = archive,
    .weights = weights,
};

const dro__optimizer_class dro__optimizer_newton = {
    .name = "newton",
    .summary = "Newton's method on the full F, in double: linear models of few features",
    .tables = {own, dro__params_objective},
    .settings_size = sizeof(settings),
    .vectors = 15, /* and a matrix */
    .robust = true,
    .groups = true,
    .exact = true,
    .check = check,
    .start = start,
    .stop = stop,
    .step = step,
    .steps_for = steps_for,
    .archive = archive,
    .weights = weights,
};
