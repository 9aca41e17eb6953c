/* The phases of a step over losses and scalars (step.h), written once. A team includes this file
 * after it has defined
 *
 *   FN              what stands before a function
 *   APART           the same, where it is better not inlined
 *   EACH(i, n)      a loop over 0 .. n-1, shared by the team
 *   EACH_SUM(i, n, a, b)  the same, with two sums that may be taken in any order
 *   ONE             whether this is the one of the team that writes scalars
 *   SYNC()          everybody has come here, and sees what the others have written
 *   ALL_SUM(x), ALL_MAX(x)  over the team, in a fixed order; the same for everybody
 *   EXP(x)          exp in double
 *   ALONE           1: the team is one thread, 0: it is not
 *
 * Examples. Never u or v: log_u in double, and d = v/u. With r1, r0 the batch's weights at the
 * new and the old point, relative to log_u,
 *     ratio = mean(r1) + (1-a) (1 - mean(r0)),
 *     d <- (G1 + (1-a)(d - G0)) / ratio,   log_u += log ratio.
 * Beyond a cap C, exp(x) continues as its tangent exp(C)(1 + x - C): the value enters the ratio,
 * the slope exp(C) the gradient, the same on both parts, so the estimator is still COVER's, of a
 * slightly different g. When ratio leaves [0.1, 10] the estimator has gone wrong: it starts
 * afresh from the newest batch. tilt=none is lambda = infinity.
 *
 * Groups. A group that is present does u_g <- m1_g + (1-a)(u_g - m0_g), an absent one keeps u_g,
 * first sight sets it. With the automatic a, each group has a gain of its own, and is corrected for
 * all k steps since it was last present:
 *     u_g <- m1_g + (1-gain)(u_g - m1_g + k (m1_g - m0_g)).
 * (With a fixed a that costs more in noise than it gains.) The gain is Kalman's, as below, with the
 * variances of u_g, m1_g - m0_g and m0_g - u_g in place of those of d, times the group's number of
 * examples in the batch. With the direction's a instead, a noisy q made the direction noisy, which
 * raised a, which made u and q noisy: a stayed near 1. q never sees the batch that it weighs: the
 * new point is weighed by q of the step before, the old point by the q before that.
 *
 * The automatic a. With V the variance of d, D = |G1 - G0|^2 the noise of one correction and S =
 * |G0 - d|^2 the noise of one batch (0.9 moving averages over earlier steps), the best weight of
 * the newest batch is Kalman's: in units of S, rho = V/S and delta = D/S,
 *     a = (rho + delta) / (1 + rho + delta),   rho <- (1-a)^2 (rho + delta) + a^2,
 *     rho = 1 after a fresh start:
 * 1/2, 1/3, 1/4 ... at first, sqrt(delta) in the long run, and after eta has dropped d forgets
 * the old stage's noise as fast as it pays. Two bounds from below keep it honest: sqrt(delta), so
 * that a recursion whose correction is as noisy as a batch is not used at all; and 1 - exp(-eta
 * |d|^2/lambda), because a step along d lowers u by that share: an estimate must not outlive the
 * step that it caused. (The last matters when one rare example dominates d: until it is drawn
 * again nothing else corrects for the move. On least squares at small lambda its absence was the
 * difference between 1/T and divergence.)
 *
 * The guard. F curves as 1/lambda, so with a small lambda an eta that suits the loss makes the
 * weights swing: every step undoes the last. The losses of one batch at two points show it: when
 * their change over lambda exceeds `guard` (rms, weighted), eta is reduced in proportion; and no
 * step may lower log_u by more than `guard` to first order. At gentle lambda nothing happens. The
 * eta used is reported. */
#include "step.h"

#define DRO__FLOOR   0.1
#define DRO__CEILING 10.0
#define DRO__MEMORY  0.9 /* of the moving averages of noise and pace */

FN double inverse(const dro__step *k, double lambda)
{
    return k->ticket->level == DRO__TILT_NONE ? 0 : 1 / lambda;
}

FN int by_group(const dro__step *k)
{
    return k->ticket->level >= DRO__TILT_CLASS;
}

FN double share(const dro__step *k, int g)
{
    return k->ticket->shares_given ? k->shares[g]
                                   : (double)k->groups[g].counted / (double)k->s->counted;
}

FN double prior(const dro__step *k, int g)
{
    return k->plan.group_prior ? share(k, g) : 1.0 / k->ticket->group_count;
}

#include "objectives.h"

/* lambda of this step; of an objective without one, what has its place in bounds of a step. Where
 * losses tie, as before training, that is 0: then it is a share of their size, so that no step is
 * bounded to nothing. Groups tie at the minimum, too; for examples the share falls with eta. The
 * weights of cvar and chi2 grow linearly with a loss, those of the others exponentially: longer
 * steps are safe, but for COVER's recursion over groups. */
FN double lambda_of(const dro__step *k)
{
    const dro__scalars *s = k->s;
    if (!has_dual(k))
        return k->ticket->lambda;
    double lambda = k->plan.objective == DRO__OBJECTIVE_CVAR ? s->excess : s->multiplier;
    double share = by_group(k) ? 1 : eta_share(k);
    int radius = k->plan.objective == DRO__OBJECTIVE_KL_RADIUS;
    if (!radius || by_group(k))
        lambda = fmax(lambda, DRO__TIED * s->least * share);
    if (radius || (by_group(k) && k->plan.weigh == DRO__PHASE_STORM))
        return lambda;
    return (1 + (DRO__LINEAR - 1) * share) * lambda;
}

/* ---- examples ---- */

/* log mean exp(loss * scale) over n examples from `first` on */
FN double log_mean_exp(const dro__step *k, int first, int n, double scale)
{
    double top = -HUGE_VAL, sum = 0;
    EACH (i, n)
        top = fmax(top, (double)k->losses[first + i]);
    top = ALL_MAX(top);
    EACH (i, n)
        sum += EXP(((double)k->losses[first + i] - top) * scale);
    return top * scale + log(ALL_SUM(sum) / n);
}

/* coef = slopes / n of the capped exponential relative to log_u; returns the mean value. */
FN double relative(const dro__step *k, int first, int n, double scale, double log_u)
{
    const float *losses = k->losses + first;
    float *coef = k->coef + first;
    double mean = 0, caps = 0, cap = k->plan.cap;
    EACH_SUM (i, n, mean, caps) {
        double x = (double)losses[i] * scale - log_u;
        double over = x > cap ? x - cap : 0, slope = EXP(x > cap ? cap : x);
        caps += x > cap ? 1 : 0;
        mean += slope * (1 + over);
        coef[i] = (float)(slope / n);
    }
    mean = ALL_SUM(mean) / n;
    caps = ALL_SUM(caps);
    if (ONE)
        k->s->caps += (uint64_t)caps;
    return mean;
}

FN void start_afresh(const dro__step *k, int n, double scale)
{
    double log_u = log_mean_exp(k, 0, n, scale);
    EACH (i, n)
        k->coef[i] = (float)(EXP((double)k->losses[i] * scale - log_u) / n);
    if (ONE) {
        k->s->log_u = log_u;
        k->s->fresh = 1;
        k->s->gain = 1;
        k->s->keep = 0;
    }
}

/* What the moments of the weights are off, by COVER's recursion; the averages take the batch in. */
FN void recur_off(const dro__step *k, int first, int n, double a, double *off)
{
    dro__scalars *s = k->s;
    if (!has_dual(k))
        return;
    double now[2], rate = dual_rate(k);
    dual_means m = dual_look(k, first, n);
    dual_off(k, &m, now);
    for (int j = 0; j < 2; j++)
        off[j] = now[j] + (a < 1 ? (1 - a) * (s->off[j] - s->off_old[j]) : 0);
    SYNC(); /* all have read the state */
    if (ONE)
        dual_note(k, &m, rate);
}

FN void update_examples(const dro__step *k, int n, int have, double a)
{
    dro__scalars *s = k->s;
    double scale = inverse(k, lambda_of(k)), ratio = 0, off[2] = {0, 0};
    if (have) {
        double mean = relative(k, 0, n, scale, s->log_u);
        ratio = mean + (1 - a) * (1 - s->mean_old);
        recur_off(k, 0, n, fmax(a, DRO__DUAL_RATE), off);
    }
    int good = have && ratio >= DRO__FLOOR && ratio <= DRO__CEILING;
    SYNC(); /* all have read the state */
    if (!good) {
        if (ONE) {
            s->fresh_starts += have ? 1 : 0;
            s->floors += have && !(ratio >= DRO__FLOOR) ? 1 : 0;
        }
        start_afresh(k, n, scale);
    } else {
        if (ONE) {
            s->fresh = 0;
            s->log_u += log(ratio);
            s->gain = 1 / ratio;
            s->keep = 1 - a;
            s->off[0] = 1 + (off[0] - 1) / ratio - log(ratio); /* relative to the new log_u */
        }
    }
    SYNC();
    if (!good && has_dual(k))
        recur_off(k, 0, n, 1, s->off);
    SYNC();
}

/* cvar and chi2: the gradient of a mean, without a ratio. */
FN void update_dual(const dro__step *k, int n, int have, double a)
{
    dro__scalars *s = k->s;
    double off[2];
    dual_coef(k, 0, n);
    recur_off(k, 0, n, have ? a : 1, off);
    int good = have && 1 + off[0] >= DRO__FLOOR && 1 + off[0] <= DRO__CEILING;
    if (have && !good)
        recur_off(k, 0, n, 1, off);
    SYNC(); /* all have read the state */
    if (ONE) {
        s->fresh_starts += have && !good ? 1 : 0;
        s->fresh = !good;
        s->gain = 1;
        s->keep = good ? 1 - a : 0;
        s->off[0] = off[0];
        s->off[1] = off[1];
    }
    SYNC();
}

/* ---- groups ---- */

/* Sums and counts of the groups; a batch that is new is counted into their shares. */
FN void sum_groups(const dro__step *k, int first, int n, int is_new)
{
    const int32_t *of = k->group_of + first;
    const float *losses = k->losses + first;
    EACH (g, k->ticket->group_count) {
        k->groups[g].sum = 0;
        k->groups[g].count = 0;
        for (int i = 0; !ALONE && i < n; i++)
            if (of[i] == g) {
                k->groups[g].sum += (double)losses[i];
                k->groups[g].count++;
            }
    }
    for (int i = 0; ALONE && i < n; i++) {
        k->groups[of[i]].sum += (double)losses[i];
        k->groups[of[i]].count++;
    }
    EACH (g, k->ticket->group_count)
        k->groups[g].counted += is_new ? (uint64_t)k->groups[g].count : 0;
    if (ONE)
        k->s->counted += is_new ? (uint64_t)n : 0;
    SYNC();
}

/* q = softmax over the groups seen so far of log prior + u/lambda; log_u of the same sum. */
FN void refresh_q(const dro__step *k)
{
    int groups = k->ticket->group_count;
    if (has_dual(k)) {
        dual_groups(k);
        return;
    }
    double scale = inverse(k, k->ticket->lambda), top = -HUGE_VAL, sum = 0, mass = 0;
    EACH (g, groups)
        if (k->groups[g].seen)
            top = fmax(top, k->groups[g].u * scale);
    top = ALL_MAX(top);
    EACH (g, groups) {
        dro__group *group = &k->groups[g];
        group->q_before = group->q;
        group->q = group->seen ? prior(k, g) * EXP(group->u * scale - top) : 0;
        mass += group->seen ? prior(k, g) : 0;
        sum += group->q;
    }
    sum = ALL_SUM(sum);
    mass = ALL_SUM(mass);
    EACH (g, groups)
        k->groups[g].q /= sum;
    if (ONE)
        k->s->log_u = top + log(sum / mass);
    SYNC();
}

enum { DRO__GROUPS_AVERAGE, DRO__GROUPS_CORRECT, DRO__GROUPS_EXTRAPOLATE };

/* The gain of a group that was last present `steps` ago, from the means of the batch at the new and
 * the old point; by one of the team. */
FN double group_gain(const dro__step *k, dro__group *g, double steps, double mean, double old)
{
    double one = 1 / (double)g->count, keep = g->noise > 0 ? DRO__MEMORY : 0;
    double drift = g->noise > 0 ? steps * steps * g->change / g->noise : 0;
    double known = g->spread + drift * one;
    double least = 1 - pow(1 - k->plan.a_min, steps);
    double gain = fmin(1.0, fmax(least, fmax(known / (one + known), sqrt(drift))));
    g->spread = (1 - gain) * (1 - gain) * known + gain * gain * one;
    g->change = keep * g->change + (1 - keep) * (mean - old) * (mean - old) / one;
    g->noise = keep * g->noise + (1 - keep) * (old - g->u) * (old - g->u) / one;
    return gain;
}

/* u of the groups that are present; `a` as in the recursion, 1 replaces. */
FN void move_groups(const dro__step *k, double a, int kind)
{
    EACH (g, k->ticket->group_count) {
        dro__group *group = &k->groups[g];
        double steps = (double)++group->away;
        if (!group->count)
            continue;
        group->away = 0;
        double mean = group->sum / (double)group->count;
        double old = group->old_sum / (double)group->old_count;
        if (!group->seen || kind == DRO__GROUPS_AVERAGE) {
            group->spread = 1 / (double)group->count;
            group->change = group->noise = 0;
        }
        if (!group->seen)
            group->u = mean;
        else if (kind == DRO__GROUPS_CORRECT)
            group->u = mean + (1 - a) * (group->u - old);
        else if (kind == DRO__GROUPS_EXTRAPOLATE)
            group->u = mean + (1 - group_gain(k, group, steps, mean, old)) *
                                  (group->u - mean + steps * (mean - old));
        else
            group->u = (1 - a) * group->u + a * mean;
        group->seen++;
    }
    SYNC();
}

FN void group_coef(const dro__step *k, int first, int n, int before)
{
    EACH (i, n) {
        int g = k->group_of[first + i];
        double q = before ? k->groups[g].q_before : k->groups[g].q;
        k->coef[first + i] = (float)(q / (n * share(k, g)));
    }
    SYNC();
}

FN void update_groups(const dro__step *k, int n, int have, double a)
{
    dro__scalars *s = k->s;
    if (ONE) {
        s->fresh = !have;
        s->gain = 1;
        s->keep = have ? 1 - a : 0;
    }
    if (have) {
        int automatic = k->plan.a_rule == DRO__A_AUTO;
        group_coef(k, 0, n, 0);
        move_groups(k, a, automatic ? DRO__GROUPS_EXTRAPOLATE : DRO__GROUPS_CORRECT);
        refresh_q(k);
        return;
    }
    move_groups(k, 1, DRO__GROUPS_AVERAGE); /* the first direction is weighed by the batch itself */
    refresh_q(k);
    group_coef(k, 0, n, 0);
    EACH (g, k->ticket->group_count)
        k->groups[g].q_before = k->groups[g].q;
    SYNC();
}

/* ---- what all phases do ---- */

/* Takes over the numbers of the ticket. Another level of the tilt begins again; returns whether an
 * estimate was lost that way. */
FN int begin(const dro__step *k)
{
    dro__scalars *s = k->s;
    int changed = s->level != k->ticket->level, lost = changed && s->have;
    SYNC(); /* all have read the state */
    if (ONE) {
        s->level = k->ticket->level;
        s->eta = k->ticket->eta;
        s->eta_most = changed ? s->eta : fmax(s->eta_most, s->eta);
        s->lambda = lambda_of(k);
        s->group_count = k->ticket->group_count;
        if (changed) {
            s->have = 0;
            s->counted = 0;
            s->duals = 0;
        }
    }
    if (changed)
        EACH (g, k->plan.group_capacity)
            k->groups[g] = DRO__NO_GROUP;
    SYNC();
    return lost;
}

FN void report(const dro__step *k, int n)
{
    double loss = 0, sum = 0, squares = 0, top = 0;
    EACH (i, n) {
        double c = (double)k->coef[i];
        loss += (double)k->losses[i];
        sum += c;
        squares += c * c;
        top = c > top ? c : top;
    }
    loss = ALL_SUM(loss);
    sum = ALL_SUM(sum);
    squares = ALL_SUM(squares);
    top = ALL_MAX(top);
    if (ONE) {
        k->s->lambda = lambda_of(k);
        k->s->loss = loss / n;
        k->s->largest_weight = sum > 0 ? top * n / sum : 0;
        k->s->effective = squares > 0 ? sum * sum / (squares * n) : 0;
    }
}

FN void weigh_mean(const dro__step *k)
{
    int n = k->counts[0];
    double loss = 0;
    EACH (i, n) {
        k->coef[i] = 1 / (float)n;
        loss += (double)k->losses[i];
    }
    loss = ALL_SUM(loss);
    if (ONE) {
        k->s->eta = k->ticket->eta;
        k->s->loss = loss / n;
        k->s->largest_weight = k->s->effective = 1;
    }
}

/* Coefficients of part 0 alone; no scalar changes. All examples of the batch have the same weight,
 * or all of its classes have. */
FN void weigh_ascent(const dro__step *k)
{
    int n = k->counts[0];
    double sum = 0;
    EACH (i, n) {
        int alike = 0;
        for (int j = 0; k->plan.sam_classes && j < n; j++)
            alike += k->group_of[j] == k->group_of[i];
        k->coef[i] = alike ? 1 / (float)alike : 1;
        sum += (double)k->coef[i];
    }
    sum = ALL_SUM(sum);
    EACH (i, n)
        k->coef[i] /= (float)sum;
    EACH (i, k->counts[1])
        k->coef[n + i] = 0;
}

/* ---- cover ---- */

/* |G1 - G0|^2 as a multiple of |G0 - d|^2 */
FN double drift_of(const dro__scalars *s)
{
    return s->observed && s->noise > 0 ? s->change / s->noise : 0;
}

FN double a_of(const dro__step *k)
{
    const dro__scalars *s = k->s;
    if (k->plan.a_rule == DRO__A_FIXED)
        return fmin(1.0, k->ticket->a);
    if (k->plan.a_rule == DRO__A_ETA2)
        return fmin(1.0, k->plan.a_c * s->eta_before * s->eta_before);
    double drift = drift_of(s), known = s->spread + drift;
    double best = fmax(known / (1 + known), sqrt(drift));
    if (has_dual(k) && !by_group(k)) /* no longer a memory than that of the scalars */
        best = fmax(best, dual_rate(k));
    return fmin(1.0, fmax(best, fmax(k->plan.a_least, 1 - EXP(-s->fall))));
}

/* How far the last step moved the logarithms of this batch's weights: the mean square of the
 * change of loss/lambda, weighted as the batch is, or of u_g/lambda over groups. */
FN double movement(const dro__step *k, int n)
{
    double scale = inverse(k, lambda_of(k)), sum = 0, mass = 0;
    if (by_group(k))
        EACH (g, k->ticket->group_count) {
            const dro__group *group = &k->groups[g];
            double q = group->count ? group->q : 0;
            double moved = q > 0 ? (group->sum - group->old_sum) / (double)group->count : 0;
            sum += q * moved * moved;
            mass += q;
        }
    else
        EACH (i, n) {
            double moved = (double)k->losses[i] - (double)k->old_losses[i], c = (double)k->coef[i];
            sum += c * moved * moved;
            mass += c;
        }
    sum = ALL_SUM(sum);
    mass = ALL_SUM(mass);
    return mass > 0 ? sum / mass * scale * scale : 0;
}

/* twice: the batch was seen at the old point too */
FN void limit_eta(const dro__step *k, int n, int twice)
{
    dro__scalars *s = k->s;
    double guard = k->plan.guard, before = s->eta_before;
    if (guard <= 0)
        return;
    double moved = twice && before > 0 ? movement(k, n) : 0;
    if (ONE) {
        if (twice && before > 0) { /* quick to brake, slow to let go */
            double pace = moved / (before * before);
            s->pace = fmax(pace, DRO__MEMORY * s->pace + (1 - DRO__MEMORY) * pace);
        }
        if (s->pace > 0)
            s->eta = fmin(s->eta, guard / sqrt(s->pace));
    }
    SYNC();
}

/* Part 1 at the point that will be its old one. */
FN void weigh_old(const dro__step *k, double lambda)
{
    int first = k->counts[0], n = k->counts[1];
    if (by_group(k)) {
        sum_groups(k, first, n, 1);
        EACH (g, k->ticket->group_count) {
            k->groups[g].old_sum = k->groups[g].sum;
            k->groups[g].old_count = k->groups[g].count;
        }
        SYNC();
        group_coef(k, first, n, 1);
    } else if (is_linear(k)) {
        dual_coef(k, first, n);
    } else {
        double mean = relative(k, first, n, inverse(k, lambda), k->s->log_u);
        if (ONE)
            k->s->mean_old = mean;
    }
    if (has_dual(k) && !by_group(k)) {
        dual_means m = dual_look(k, first, n);
        if (ONE)
            dual_off(k, &m, k->s->off_old);
    }
    EACH (i, n)
        k->old_losses[i] = k->losses[first + i];
    SYNC();
}

/* After a replacement of w that only a device knows of: this step makes a fresh start. */
FN void weigh_nothing(const dro__step *k)
{
    int first = k->counts[0], n = k->counts[1];
    EACH (i, n)
        k->coef[first + i] = 0;
    SYNC();
}

FN void weigh_storm(const dro__step *k)
{
    dro__scalars *s = k->s;
    int drawn = k->ticket->drawn, n = k->counts[0];
    int lost = begin(k), have = s->have && !drawn;
    if (has_dual(k) && !by_group(k))
        dual_ready(k, n);
    double a = a_of(k);
    SYNC(); /* all have read the state */
    if (by_group(k)) {
        sum_groups(k, 0, n, drawn || lost);
        update_groups(k, n, have, a);
    } else if (is_linear(k)) {
        update_dual(k, n, have, a);
    } else {
        update_examples(k, n, have, a);
    }
    if (ONE) {
        s->have = 1;
        s->a = s->fresh ? 1 : a;
    }
    report(k, n);
    limit_eta(k, n, !drawn && !lost);
    SYNC();
    if (k->counts[1])
        weigh_old(k, lambda_of(k));
}

/* u may be negative: the host keeps it; gain and keep are all that it needs. */
FN void weigh_composite(const dro__step *k)
{
    dro__scalars *s = k->s;
    begin(k);
    double a = a_of(k);
    int fresh = !s->have || k->ticket->drawn;
    SYNC(); /* all have read the state */
    if (ONE) {
        s->fresh = fresh;
        s->have = 1;
        s->gain = 1;
        s->keep = fresh ? 0 : 1 - a;
        s->a = fresh ? 1 : a;
    }
    SYNC();
}

/* ---- a moving average (absgd, asc-pg) ---- */

/* When lambda has moved, the average carries over as the value of the objective, lambda log u;
 * where a batch says that this is far from right, after a jump, it begins again with the batch. */
FN void carry_over(const dro__step *k, int n, double lambda)
{
    dro__scalars *s = k->s;
    int moved = s->have && s->log_u_lambda != lambda;
    double now = moved ? log_mean_exp(k, 0, n, inverse(k, lambda)) : 0;
    SYNC(); /* all have read the state */
    if (ONE) {
        if (moved) {
            s->log_u *= s->log_u_lambda / lambda;
            if (!(fabs(now - s->log_u) <= log(DRO__CEILING))) {
                s->log_u = now;
                s->fresh_starts++;
            }
        }
        s->log_u_lambda = lambda;
    }
    SYNC();
}

/* estimate <- (1-beta) estimate + beta batch; the first batch sets it */
FN void average(const dro__step *k, int n, double beta, double lambda)
{
    dro__scalars *s = k->s;
    if (by_group(k)) {
        sum_groups(k, 0, n, 1);
        move_groups(k, beta, DRO__GROUPS_AVERAGE);
        refresh_q(k);
    } else {
        double now = log_mean_exp(k, 0, n, inverse(k, lambda));
        carry_over(k, n, lambda);
        if (ONE) {
            if (!s->have || beta >= 1) {
                s->log_u = now;
            } else {
                double x = log1p(-beta) + s->log_u, y = log(beta) + now, top = fmax(x, y);
                s->log_u = top + log(exp(x - top) + exp(y - top));
            }
        }
    }
    SYNC();
    if (ONE)
        s->have = 1;
    SYNC();
}

/* Coefficients from the current estimate. */
FN void weigh_by_estimate(const dro__step *k, int n)
{
    if (by_group(k)) {
        group_coef(k, 0, n, 0);
    } else {
        carry_over(k, n, k->ticket->lambda);
        relative(k, 0, n, inverse(k, k->ticket->lambda), k->s->log_u);
    }
    SYNC();
    report(k, n);
}

FN void weigh_average(const dro__step *k)
{
    begin(k);
    average(k, k->counts[0], k->plan.gamma, k->ticket->lambda);
    weigh_by_estimate(k, k->counts[0]);
}

/* cvar and chi2: their weights are bounded, or grow as the losses do. */
FN void weigh_linear(const dro__step *k, int n)
{
    dual_coef(k, 0, n);
    double off[2];
    recur_off(k, 0, n, 1, off);
    report(k, n);
    SYNC(); /* all have read the state */
    if (ONE) {
        k->s->off[0] = off[0];
        k->s->off[1] = off[1];
        k->s->have = 1;
    }
    SYNC();
}

/* Weights by the estimate from before this batch: an average that includes the batch is biased when
 * the batch is small, because an example of large weight then divides by itself. A batch whose mean
 * weight is above `heaviest` is scaled down to that: while steps are long, it says that w has moved
 * away from what the estimate knows, and its square would stay in the second moment for long. The
 * limit rises as eta falls: w then stands still, and what is heavy is an example. */
FN void weigh_before(const dro__step *k)
{
    dro__scalars *s = k->s;
    int n = k->counts[0], dual = has_dual(k) && !by_group(k);
    double most = k->plan.heaviest, gamma = k->plan.gamma, off[2] = {0, 0};
    begin(k);
    if (dual)
        dual_ready(k, n);
    if (is_linear(k)) {
        weigh_linear(k, n);
        return;
    }
    if (!s->have || by_group(k)) {
        int first = !s->have;
        average(k, n, first ? 1 : gamma, lambda_of(k));
        if (by_group(k) || !dual) {
            weigh_by_estimate(k, n);
            return;
        }
    }
    if (dual)
        gamma = dual_rate(k); /* the scalars move together; log_u was carried over with lambda */
    else
        carry_over(k, n, k->ticket->lambda);
    double mean = relative(k, 0, n, inverse(k, lambda_of(k)), s->log_u);
    recur_off(k, 0, n, 1, off);
    double limit = k->ticket->eta > 0 ? most * s->eta_most / k->ticket->eta : HUGE_VAL;
    double share = most > 0 && mean > limit ? limit / mean : 1;
    EACH (i, n)
        k->coef[i] = (float)(share * (double)k->coef[i]);
    SYNC();
    report(k, n);
    if (ONE) {
        s->log_u += log(1 - gamma + gamma * share * mean);
        s->off[0] = off[0];
        s->fresh_starts += share < 1 ? 1 : 0;
    }
    SYNC();
}

FN void weigh_ahead(const dro__step *k)
{
    begin(k);
    if (k->s->have) /* with the lambda that the estimate was made with */
        average(k, k->counts[0], k->s->beta, k->s->log_u_lambda);
}

FN void weigh_follow(const dro__step *k)
{
    begin(k);
    if (!k->s->have)
        average(k, k->counts[0], 1, k->ticket->lambda);
    weigh_by_estimate(k, k->counts[0]);
    if (ONE) {
        k->s->beta = k->ticket->beta; /* for the point that the move extrapolates to */
        k->s->a = k->ticket->beta;
    }
}

/* ---- a big batch in chunks (civr); mean_old is the log of the sum so far ---- */

FN void big_begin(const dro__step *k)
{
    begin(k);
    if (ONE)
        k->s->mean_old = -HUGE_VAL;
    if (by_group(k))
        EACH (g, k->ticket->group_count) {
            k->groups[g].old_sum = 0;
            k->groups[g].old_count = 0;
        }
    SYNC();
}

FN void big_chunk(const dro__step *k)
{
    dro__scalars *s = k->s;
    int n = k->counts[0];
    if (by_group(k)) {
        sum_groups(k, 0, n, 1);
        EACH (g, k->ticket->group_count) {
            dro__group *group = &k->groups[g];
            group->old_sum += group->sum;
            group->old_count += group->count;
            if (!s->have)
                group->q = prior(k, g);
        }
        SYNC();
        group_coef(k, 0, n, 0);
        if (ONE) {
            s->gain = n / k->ticket->total;
            s->keep = 1;
        }
    } else {
        double scale = inverse(k, k->ticket->lambda);
        double part = log_mean_exp(k, 0, n, scale) + log((double)n), before = s->mean_old;
        double top = fmax(part, before), sum = top + log(EXP(part - top) + exp(before - top));
        EACH (i, n)
            k->coef[i] = (float)EXP((double)k->losses[i] * scale - part);
        SYNC();
        if (ONE) {
            s->keep = exp(before - sum);
            s->gain = EXP(part - sum);
            s->mean_old = sum;
        }
    }
    SYNC();
    report(k, n);
}

FN void big_end(const dro__step *k)
{
    dro__scalars *s = k->s;
    if (by_group(k)) {
        EACH (g, k->ticket->group_count) {
            k->groups[g].sum = k->groups[g].old_sum;
            k->groups[g].count = k->groups[g].old_count;
        }
        SYNC();
        move_groups(k, 1, DRO__GROUPS_AVERAGE);
        refresh_q(k);
    } else {
        if (ONE)
            s->log_u = s->mean_old - log(k->ticket->total);
    }
    if (ONE) {
        s->fresh = s->have = 1;
        s->gain = s->a = 1;
        s->keep = s->mean_old = 0;
    }
    SYNC();
}

/* ---- all of it ---- */

FN void run_phase(const dro__step *k, dro__phase phase)
{
    switch (phase) {
    case DRO__PHASE_MEAN:
        weigh_mean(k);
        break;
    case DRO__PHASE_AVERAGE:
        weigh_average(k);
        break;
    case DRO__PHASE_BEFORE:
        weigh_before(k);
        break;
    case DRO__PHASE_AHEAD:
        weigh_ahead(k);
        break;
    case DRO__PHASE_FOLLOW:
        weigh_follow(k);
        break;
    case DRO__PHASE_ASCENT:
        weigh_ascent(k);
        break;
    case DRO__PHASE_STORM:
        weigh_storm(k);
        break;
    case DRO__PHASE_OLD:
        begin(k);
        if (k->s->have)
            weigh_old(k, k->s->lambda_before);
        else
            weigh_nothing(k);
        break;
    case DRO__PHASE_COMPOSITE:
        weigh_composite(k);
        break;
    case DRO__PHASE_BIG_BEGIN:
        big_begin(k);
        break;
    case DRO__PHASE_BIG_CHUNK:
        big_chunk(k);
        break;
    case DRO__PHASE_BIG_END:
        big_end(k);
        break;
    default:
        break;
    }
}

/* ---- after a move: scalars alone, by one thread ---- */

/* The noise of a correction and of a batch. */
FN void observe(dro__scalars *s, double change, double noise)
{
    s->eta_before = s->eta;
    s->lambda_before = s->lambda;
    if (s->fresh) {
        s->spread = 1;
        return;
    }
    double a = s->a, keep = s->observed ? DRO__MEMORY : 0;
    s->spread = (1 - a) * (1 - a) * (s->spread + drift_of(s)) + a * a;
    s->change = keep * s->change + (1 - keep) * change;
    s->noise = keep * s->noise + (1 - keep) * noise;
    s->observed = 1;
}

/* A step along d lowers log_u by eta |d|^2 / lambda, to first order. When one example dominates
 * d, later batches do not correct for that until it is seen again, and d would be followed too
 * far. `square` is |d|^2 of the last step, or of this one where it starts afresh. */
FN double limited_eta(const dro__step *k)
{
    const dro__scalars *s = k->s;
    double guard = k->plan.guard;
    if (guard <= 0 || s->level == DRO__TILT_NONE || !(s->square > 0))
        return s->eta;
    return fmin(s->eta, guard * s->lambda / s->square);
}

/* beta2 = 0: a window that grows with the run. */
FN double second_decay(const dro__step *k)
{
    double t = (double)k->s->moments + 1;
    return k->plan.beta2 > 0 ? k->plan.beta2 : 1 - pow(t, -0.9);
}

/* The products of the moments' decays after the next step. They may underflow to 0. */
FN void next_powers(const dro__step *k, double beta2, double *power1, double *power2)
{
    const dro__scalars *s = k->s;
    *power1 = (s->moments ? s->power1 : 1) * k->plan.momentum;
    *power2 = (s->moments ? s->power2 : 1) * beta2;
}

FN void count_moments(const dro__step *k, double beta2)
{
    next_powers(k, beta2, &k->s->power1, &k->s->power2);
    k->s->moments++;
}

#define DRO__SLOWLY 5.0 /* over so many times the memory of the momentum */

/* eta for a step p along which the moments were taken (moves.h): p is no longer than `longest`
 * (root mean square), and log_u does not fall by more than `guard`. */
FN void settle_moments(const dro__step *k, const double *sums)
{
    dro__scalars *s = k->s;
    double size = sqrt(sums[3] / (double)k->n), guard = k->plan.guard;
    double fall = s->level == DRO__TILT_NONE ? 0 : s->eta * fmax(sums[0], 0.0) / s->lambda;
    double share = k->plan.longest > 0 && size > k->plan.longest ? k->plan.longest / size : 1;
    int heavy = k->plan.move == DRO__MOVE_moments && k->v[DRO__M] && !k->v[DRO__SECOND];
    if (heavy && !by_group(k)) /* so much of a heavy batch is still to come */
        guard *= 1 - k->plan.momentum;
    share = guard > 0 && fall * share > guard ? guard / fall : share;
    if (k->plan.move == DRO__MOVE_moments && guard > 0 && s->level != DRO__TILT_NONE) {
        /* Without a batch at two points the change of loss/lambda is predicted. */
        double change = s->eta * sqrt(k->counts[0] * sums[1]) / s->lambda;
        share = change * share > 1 ? 1 / change : share;
    }
    if (heavy) {
        /* The momentum that a heavy batch leaves must not meet long steps either, and all batches
         * take steps of about the same length: shortened alone, the heavy ones, which are those
         * with rare examples, would count too little. So eta recovers slowly. */
        double before = s->moments ? s->shortened : 1, back = (1 - k->plan.momentum) / DRO__SLOWLY;
        share = fmin(share, before + back * (1 - before));
        s->shortened = share;
    }
    s->eta *= share;
    s->fall = fall * share;
    s->square = fmax(sums[0], 0.0);
    count_moments(k, second_decay(k));
}

FN void settle(const dro__step *k, const double *sums)
{
    dro__scalars *s = k->s;
    if (k->plan.then == DRO__MOVE_scaled)
        settle_moments(k, sums);
    if (k->plan.move == DRO__MOVE_storm_moments)
        observe(s, sums[1], sums[2]);
    if (k->plan.move == DRO__MOVE_storm) {
        s->eta = limited_eta(k);
        s->square = sums[0];
        s->fall = s->level == DRO__TILT_NONE ? 0 : s->eta * sums[0] / s->lambda;
        observe(s, sums[1], sums[2]);
    } else if (k->plan.move == DRO__MOVE_estimate) {
        observe(s, sums[1], sums[2]);
    } else if (k->plan.move == DRO__MOVE_adamw) {
        count_moments(k, k->plan.beta2);
    }
}
