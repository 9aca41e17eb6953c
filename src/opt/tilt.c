/* The tilt (tilt.h): the log form of DESIGN's numerics, for examples and for groups.
 *
 * Examples. Never u or v: log_u in double, and d = v/u. With r1, r0 the batch's weights at the new and
 * the old point, relative to log_u,
 *     ratio = mean(r1) + (1-a) (1 - mean(r0)),   d <- (G1 + (1-a)(d - G0)) / ratio,   log_u += log ratio.
 * Beyond a cap C, exp(x) continues as its tangent exp(C)(1 + x - C): the value enters the ratio, the
 * slope exp(C) the gradient, the same on both parts, so the estimator is still COVER's, of a slightly
 * different g. When ratio leaves [0.1, 10] the estimator has gone wrong: it starts afresh from the
 * newest batch. tilt=none is lambda = infinity.
 *
 * Groups. A group that is present does u_g <- m1_g + (1-a)(u_g - m0_g), an absent one keeps u_g, first
 * sight sets it. With the automatic a, which may be small, that leaves a rare group behind when w
 * drifts, because it is corrected for one step out of the k since it was last present: there
 * u_g <- m1_g + (1-a)^k (u_g - m1_g + k (m1_g - m0_g)). (With a fixed a the extrapolation costs more in
 * noise than it gains.) q never sees the batch that it weighs: the new point is weighed by q of the step
 * before, the old point by the q before that. */
#include "tilt.h"

#include <math.h>
#include <string.h>

static const double FLOOR = 0.1, CEILING = 10;

static double inverse(const dro__tilt *t, double lambda)
{
    return t->level == DRO__TILT_NONE ? 0 : 1 / lambda;
}

static bool by_group(const dro__tilt *t)
{
    return t->level == DRO__TILT_CLASS || t->level == DRO__TILT_GROUP;
}

static const int32_t *labels(const dro__tilt *t, const dro_batch *batch)
{
    return t->level == DRO__TILT_CLASS ? batch->classes : batch->groups;
}

/* ---- life ---- */

static dro_status level_size(dro_optimizer *o, dro__tilt_level level, int32_t *size)
{
    *size = 0;
    if (level != DRO__TILT_CLASS && level != DRO__TILT_GROUP)
        return DRO_OK;
    const char *word = level == DRO__TILT_CLASS ? "classes" : "groups";
    if (o->is_composite)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "a compositional problem has no %s: use tilt=example", word);
    *size = level == DRO__TILT_CLASS ? o->problem.classes : o->problem.groups;
    if (*size <= 0)
        return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                         "tilt=%s: the problem does not say how many %s it has (problem.%s is 0)",
                         level == DRO__TILT_CLASS ? "class" : "group", word, word);
    const double *shares =
        level == DRO__TILT_CLASS ? o->problem.class_share : o->problem.group_share;
    double sum = 0;
    for (int32_t g = 0; shares && g < *size; g++) {
        sum += shares[g];
        if (!(shares[g] >= 0) || (g == *size - 1 && !(fabs(sum - 1) <= 1e-3)))
            return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                             "%s_share[%d] = %g: shares must be 0 or more and sum to 1",
                             level == DRO__TILT_CLASS ? "class" : "group", g, shares[g]);
    }
    if (!o->problem.draw && !o->problem.labels)
        return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                         "the problem gives no %s: it needs the callback labels", word);
    return DRO_OK;
}

dro_status dro__tilt_create(dro_optimizer *o, dro__tilt *t)
{
    const dro__settings *set = dro__settings_of(o);
    int32_t first, second = 0;
    DRO_TRY(level_size(o, (dro__tilt_level)set->tilt, &first));
    if (set->switch_step > 0 && set->switch_tilt)
        DRO_TRY(level_size(o, (dro__tilt_level)(set->switch_tilt - 1), &second));
    t->capacity = first > second ? first : second;
    t->level = (dro__tilt_level)set->tilt;
    if (t->capacity == 0)
        return DRO_OK;
    t->groups = dro__alloc((size_t)t->capacity, sizeof *t->groups);
    t->working = dro__alloc((size_t)t->capacity, sizeof *t->working);
    if (!t->groups || !t->working)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for %d groups", t->capacity);
    return DRO_OK;
}

void dro__tilt_destroy(dro__tilt *t)
{
    dro__free(t->groups);
    dro__free(t->working);
}

dro_status dro__tilt_begin(dro_optimizer *o, dro__tilt *t, bool *restarted)
{
    dro__tilt_level level = dro__level(o);
    *restarted = false;
    if (t->capacity) { /* work on the copy; the caller's backup still points at the original */
        dro__group *original = t->groups;
        t->groups = t->working;
        t->working = original;
        memcpy(t->groups, original, (size_t)t->capacity * sizeof *original);
    }
    if (level != t->level) {
        t->level = level;
        *restarted = t->have;
        t->have = false;
        t->counted = 0;
        if (t->capacity)
            memset(t->groups, 0, (size_t)t->capacity * sizeof *t->groups);
    }
    t->shares = NULL;
    if (by_group(t)) {
        int32_t size;
        DRO_TRY(level_size(o, level, &size));
        t->group_count = size;
        t->shares = level == DRO__TILT_CLASS ? o->problem.class_share : o->problem.group_share;
    }
    return DRO_OK;
}

void dro__tilt_archive(dro__tilt *t, dro__archive *ar)
{
    int32_t capacity = t->capacity, level = (int32_t)t->level;
    DRO__ARCHIVE(ar, capacity);
    DRO__ARCHIVE(ar, level);
    if (capacity != t->capacity || level < DRO__TILT_NONE || level > DRO__TILT_GROUP) {
        ar->failed = true;
        return;
    }
    t->level = (dro__tilt_level)level;
    dro__archive_flag(ar, &t->have);
    dro__archive_flag(ar, &t->fresh);
    DRO__ARCHIVE(ar, t->log_u);
    DRO__ARCHIVE(ar, t->mean_old);
    DRO__ARCHIVE(ar, t->lambda);
    DRO__ARCHIVE(ar, t->gain);
    DRO__ARCHIVE(ar, t->keep);
    DRO__ARCHIVE(ar, t->counted);
    int32_t count = t->group_count;
    DRO__ARCHIVE(ar, count);
    if (count < 0 || count > t->capacity) {
        ar->failed = true;
        return;
    }
    t->group_count = count;
    dro__archive_bytes(ar, t->groups, (size_t)t->capacity * sizeof *t->groups);
}

size_t dro__tilt_weights(const dro__tilt *t, double *q, size_t count)
{
    if (!by_group(t))
        return 0;
    for (size_t g = 0; q && g < count && g < (size_t)t->group_count; g++)
        q[g] = t->groups[g].q;
    return (size_t)t->group_count;
}

/* ---- groups ---- */

dro_status dro__tilt_count(dro_optimizer *o, dro__tilt *t, const dro_batch *batch)
{
    if (!by_group(t))
        return DRO_OK;
    const int32_t *label = labels(t, batch);
    const char *word = t->level == DRO__TILT_CLASS ? "class" : "group";
    if (!label)
        return dro__fail(o->ctx, DRO_ERR_CALLBACK, "tilt=%s: a batch came without its %s labels",
                         word, word);
    for (size_t i = 0; i < batch->count; i++) {
        bool inside = label[i] >= 0 && label[i] < t->group_count;
        if (inside && !(t->shares && t->shares[label[i]] == 0))
            continue;
        dro__refuse(o, batch);
        if (inside)
            return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                             "%s %d of example %zu of the batch: its share was said to be 0", word,
                             label[i], i);
        return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                         "%s %d of example %zu of the batch: expected 0 to %d", word, label[i], i,
                         t->group_count - 1);
    }
    for (size_t i = 0; i < batch->count; i++)
        t->groups[label[i]].counted++;
    t->counted += batch->count;
    return DRO_OK;
}

static double share(const dro__tilt *t, int32_t g)
{
    return t->shares ? t->shares[g] : (double)t->groups[g].counted / (double)t->counted;
}

static double prior(const dro_optimizer *o, const dro__tilt *t, int32_t g)
{
    return dro__settings_of(o)->group_prior ? share(t, g) : 1.0 / t->group_count;
}

/* q = softmax over the groups seen so far of log prior + u/lambda; log_u of the same sum. */
static void refresh_q(dro_optimizer *o, dro__tilt *t)
{
    double top = -HUGE_VAL, sum = 0, mass = 0, scale = inverse(t, o->run.lambda);
    for (int32_t g = 0; g < t->group_count; g++)
        if (t->groups[g].seen)
            top = fmax(top, t->groups[g].u * scale);
    for (int32_t g = 0; g < t->group_count; g++) {
        dro__group *group = &t->groups[g];
        group->q_before = group->q;
        group->q = group->seen ? prior(o, t, g) * exp(group->u * scale - top) : 0;
        mass += group->seen ? prior(o, t, g) : 0;
        sum += group->q;
    }
    for (int32_t g = 0; g < t->group_count; g++)
        t->groups[g].q /= sum;
    t->log_u = top + log(sum / mass);
}

static void sum_groups(dro__tilt *t, const dro_batch *batch, const float *losses)
{
    const int32_t *label = labels(t, batch);
    for (int32_t g = 0; g < t->group_count; g++)
        t->groups[g].sum = 0, t->groups[g].count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        t->groups[label[i]].sum += (double)losses[i];
        t->groups[label[i]].count++;
    }
}

typedef enum move_kind { AVERAGE, CORRECT, EXTRAPOLATE } move_kind;

/* u of the groups that are present; `a` as in the recursion, 1 replaces. */
static void move_groups(dro__tilt *t, double a, move_kind kind)
{
    for (int32_t g = 0; g < t->group_count; g++) {
        dro__group *group = &t->groups[g];
        double steps = (double)++group->away;
        if (!group->count)
            continue;
        group->away = 0;
        double mean = group->sum / (double)group->count;
        if (!group->seen)
            group->u = mean;
        else if (kind == CORRECT)
            group->u = mean + (1 - a) * (group->u - group->old_sum / (double)group->old_count);
        else if (kind == EXTRAPOLATE)
            group->u = mean + pow(1 - a, steps) *
                                  (group->u - mean +
                                   steps * (mean - group->old_sum / (double)group->old_count));
        else
            group->u = (1 - a) * group->u + a * mean;
        group->seen++;
    }
}

static void group_coef(const dro__tilt *t, const dro_batch *batch, bool before, float *coef)
{
    const int32_t *label = labels(t, batch);
    double b = (double)batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        const dro__group *group = &t->groups[label[i]];
        coef[i] = (float)((before ? group->q_before : group->q) / (b * share(t, label[i])));
    }
}

/* ---- what is told about the weights ---- */

static void report(dro_optimizer *o, const dro__tilt *t, size_t n, const float *losses,
                   const float *coef)
{
    double loss = 0, sum = 0, squares = 0, top = 0;
    for (size_t i = 0; i < n; i++) {
        double c = (double)coef[i];
        loss += (double)losses[i];
        sum += c;
        squares += c * c;
        top = c > top ? c : top;
    }
    o->run.loss = loss / (double)n;
    o->run.log_u = t->log_u;
    o->run.largest_weight = sum > 0 ? top * (double)n / sum : 0;
    o->run.effective = squares > 0 ? sum * sum / (squares * (double)n) : 0;
}

/* ---- examples ---- */

/* log mean exp(loss * scale) */
static double log_mean_exp(size_t n, const float *losses, double scale)
{
    double top = -HUGE_VAL, sum = 0;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, (double)losses[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp(((double)losses[i] - top) * scale);
    return top * scale + log(sum / (double)n);
}

/* coef = slopes / n of the capped exponential relative to log_u; returns the mean value. */
static double relative(dro_optimizer *o, size_t n, const float *losses, double scale, double log_u,
                       float *coef)
{
    return o->ctx->backend->tilt(n, losses, scale, log_u, dro__settings_of(o)->cap, coef,
                                 &o->run.caps);
}

static void start_afresh(dro__tilt *t, size_t n, const float *losses, double scale, float *coef)
{
    t->log_u = log_mean_exp(n, losses, scale);
    for (size_t i = 0; i < n; i++)
        coef[i] = (float)(exp((double)losses[i] * scale - t->log_u) / (double)n);
    t->fresh = true;
    t->gain = 1;
    t->keep = 0;
}

static void update_examples(dro_optimizer *o, dro__tilt *t, size_t n, const float *losses, double a,
                            float *coef)
{
    double scale = inverse(t, o->run.lambda);
    t->fresh = false;
    if (!t->have) {
        start_afresh(t, n, losses, scale, coef);
        return;
    }
    double mean = relative(o, n, losses, scale, t->log_u, coef);
    double ratio = mean + (1 - a) * (1 - t->mean_old);
    if (!(ratio >= FLOOR && ratio <= CEILING)) {
        o->run.fresh_starts++;
        o->run.floors += !(ratio >= FLOOR);
        start_afresh(t, n, losses, scale, coef);
        return;
    }
    t->log_u += log(ratio);
    t->gain = 1 / ratio;
    t->keep = 1 - a;
}

static void update_groups(dro_optimizer *o, dro__tilt *t, const dro_batch *batch,
                          const float *losses, double a, float *coef)
{
    sum_groups(t, batch, losses);
    t->fresh = !t->have;
    t->gain = 1;
    t->keep = t->fresh ? 0 : 1 - a;
    if (t->fresh) { /* the first direction is weighed by what the batch itself says */
        move_groups(t, 1, AVERAGE);
        refresh_q(o, t);
        group_coef(t, batch, false, coef);
        for (int32_t g = 0; g < t->group_count; g++)
            t->groups[g].q_before = t->groups[g].q;
        return;
    }
    group_coef(t, batch, false, coef);
    bool automatic = dro__settings_of(o)->a_rule == DRO__A_AUTO && a > 0;
    move_groups(t, a, automatic ? EXTRAPOLATE : CORRECT);
    refresh_q(o, t);
}

void dro__tilt_update(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                      double a, float *coef)
{
    if (by_group(t))
        update_groups(o, t, batch, losses, a, coef);
    else
        update_examples(o, t, batch->count, losses, a, coef);
    t->have = true;
    report(o, t, batch->count, losses, coef);
}

void dro__tilt_old(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                   double lambda, float *coef)
{
    if (!by_group(t)) {
        t->mean_old = relative(o, batch->count, losses, inverse(t, lambda), t->log_u, coef);
        return;
    }
    sum_groups(t, batch, losses);
    for (int32_t g = 0; g < t->group_count; g++) {
        t->groups[g].old_sum = t->groups[g].sum;
        t->groups[g].old_count = t->groups[g].count;
    }
    group_coef(t, batch, true, coef);
}

double dro__tilt_movement(dro_optimizer *o, const dro__tilt *t, const dro_batch *batch,
                          const float *losses, const float *old, const float *coef)
{
    double scale = inverse(t, o->run.lambda), sum = 0, mass = 0;
    if (by_group(t)) {
        for (int32_t g = 0; g < t->group_count; g++) {
            const dro__group *group = &t->groups[g];
            double q = group->count ? group->q : 0;
            double moved = q > 0 ? (group->sum - group->old_sum) / (double)group->count : 0;
            sum += q * moved * moved;
            mass += q;
        }
    } else {
        for (size_t i = 0; i < batch->count; i++) {
            double moved = (double)losses[i] - (double)old[i], c = (double)coef[i];
            sum += c * moved * moved;
            mass += c;
        }
    }
    return mass > 0 ? sum / mass * scale * scale : 0;
}

/* ---- moving average ---- */

/* When lambda has moved, the average carries over as the value of the objective, lambda log u; where a batch says that
 * this is far from right, after a jump, it begins again with the batch. */
static void carry_over(dro_optimizer *o, dro__tilt *t, size_t n, const float *losses)
{
    double lambda = o->run.lambda;
    if (t->have && t->lambda != lambda) {
        double now = log_mean_exp(n, losses, inverse(t, lambda));
        t->log_u *= t->lambda / lambda;
        if (!(fabs(now - t->log_u) <= log(CEILING))) {
            t->log_u = now;
            o->run.fresh_starts++;
        }
    }
    t->lambda = lambda;
}

void dro__tilt_average(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                       double beta)
{
    if (by_group(t)) {
        sum_groups(t, batch, losses);
        move_groups(t, beta, AVERAGE);
        refresh_q(o, t);
    } else {
        double now = log_mean_exp(batch->count, losses, inverse(t, o->run.lambda));
        carry_over(o, t, batch->count, losses);
        if (!t->have || beta >= 1) {
            t->log_u = now;
        } else {
            double x = log1p(-beta) + t->log_u, y = log(beta) + now, top = fmax(x, y);
            t->log_u = top + log(exp(x - top) + exp(y - top));
        }
    }
    t->have = true;
}

void dro__tilt_weigh(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                     float *coef)
{
    if (by_group(t)) {
        group_coef(t, batch, false, coef);
    } else {
        carry_over(o, t, batch->count, losses);
        relative(o, batch->count, losses, inverse(t, o->run.lambda), t->log_u, coef);
    }
    report(o, t, batch->count, losses, coef);
}

/* ---- big batches ---- */

void dro__tilt_big_begin(dro__tilt *t)
{
    t->mean_old = -HUGE_VAL; /* here: log of the sum so far */
    for (int32_t g = 0; by_group(t) && g < t->group_count; g++)
        t->groups[g].old_sum = 0, t->groups[g].old_count = 0;
}

void dro__tilt_big_chunk(dro_optimizer *o, dro__tilt *t, const dro_batch *batch,
                         const float *losses, double total, float *coef)
{
    double n = (double)batch->count;
    if (by_group(t)) {
        sum_groups(t, batch, losses);
        for (int32_t g = 0; g < t->group_count; g++) {
            dro__group *group = &t->groups[g];
            group->old_sum += group->sum;
            group->old_count += group->count;
            if (!t->have)
                group->q = prior(o, t, g);
        }
        group_coef(t, batch, false, coef);
        t->gain = n / total;
        t->keep = 1;
    } else {
        double scale = inverse(t, o->run.lambda);
        double part = log_mean_exp(batch->count, losses, scale) + log(n);
        double top = fmax(part, t->mean_old);
        double sum = top + log(exp(part - top) + exp(t->mean_old - top));
        for (size_t i = 0; i < batch->count; i++)
            coef[i] = (float)exp((double)losses[i] * scale - part);
        t->keep = exp(t->mean_old - sum);
        t->gain = exp(part - sum);
        t->mean_old = sum;
    }
    report(o, t, batch->count, losses, coef);
}

void dro__tilt_big_end(dro_optimizer *o, dro__tilt *t, double total)
{
    if (by_group(t)) {
        for (int32_t g = 0; g < t->group_count; g++) {
            t->groups[g].sum = t->groups[g].old_sum;
            t->groups[g].count = t->groups[g].old_count;
        }
        move_groups(t, 1, AVERAGE);
        refresh_q(o, t);
    } else {
        t->log_u = t->mean_old - log(total);
    }
    t->fresh = true;
    t->have = true;
    o->run.log_u = t->log_u;
}
