/* The elementwise moves of a step (step.h), written once. A team includes this file after it has
 * defined `real`, the type in which it computes, and FN, what stands before a function.
 *
 * A move NAME is two functions: prepare_NAME makes coefficients from scalars and settings, once;
 * each_NAME moves element i and may add to a few sums. A move more is these two, its name in
 * DRO__MOVES and, if it has sums, in DRO__MOVE_SUMS (step.h).
 *
 * The regulariser is applied last, through its proximal operator  prox(x) = argmin_w |w - x|^2 /
 * 2 + eta r(w):
 *   l2       s/2 |w|^2                    x / (1 + eta s)
 *   l1       s |w|_1                      soft(x, eta s)
 *   elastic  s (q |w|_1 + (1-q)/2 |w|^2)  soft(x, eta s q) / (1 + eta s (1-q))
 *   box      low <= w <= high             clip
 * (group and ball are not elementwise: opt/prox.c). In the metric of a preconditioner the step of
 * element i is eta / scale_i, and so are the threshold and the shrinking. Momentum that adds
 * gradients up moves w by eta / (1 - momentum) of each: prox_stretch is 1 / (1 - momentum) there,
 * or the regulariser would count for less than it should. For the plan's free weights (biases) both
 * are DRO__REG_FREE times that. */
#include "step.h"

typedef struct coefs {
    real eta, decay;        /* w <- w - eta * (direction + decay * w) */
    real threshold, shrink; /* prox: soft threshold, then x - shrink x, then clip */
    real low, high;
    size_t free_first, free_count;
    real momentum, now, ahead; /* the step is along now * g + ahead * m */
    real gain, keep;
    real fresh1, beta2, fresh2; /* moments: 1 - momentum, decay of the second, 1 - beta2 */
    real first, root, epsilon;  /* what takes their bias away */
    real inverse;               /* asc-pg: 1 / beta */
    real c[DRO__INPUTS], plus;
} coefs;

/* What most moves need: the step and the regulariser. */
FN void prepare_step(const dro__step *k, double eta, coefs *c)
{
    const dro__plan *p = &k->plan;
    double s = eta * p->prox_stretch * p->reg_strength, q = p->reg_ratio;
    c->eta = (real)eta;
    c->decay = (real)p->weight_decay;
    c->threshold = (real)(p->reg == DRO__REG_L1 ? s : p->reg == DRO__REG_ELASTIC ? s * q : 0);
    double l2 = p->reg == DRO__REG_L2 ? s : p->reg == DRO__REG_ELASTIC ? s * (1 - q) : 0;
    c->shrink = (real)(l2 / (1 + l2));
    c->low = (real)(p->reg == DRO__REG_BOX ? p->reg_low : -HUGE_VAL);
    c->high = (real)(p->reg == DRO__REG_BOX ? p->reg_high : HUGE_VAL);
    c->free_first = p->free_first;
    c->free_count = p->free_count;
}

/* The proximal operator in the metric of a preconditioner: the step of this element is `scale`
 * times as long. */
FN real prox_by(const coefs *c, size_t i, real x, real scale)
{
    scale *= i - c->free_first < c->free_count ? (real)DRO__REG_FREE : 1;
    real size = (x < 0 ? -x : x) - c->threshold * scale;
    size = size > 0 ? size : 0;
    real y = x < 0 ? -size : size;
    y -= y * (c->shrink * scale / (1 + c->shrink * (scale - 1)));
    y = y < c->low ? c->low : y;
    return y > c->high ? c->high : y;
}

FN real prox(const coefs *c, size_t i, real x)
{
    return prox_by(c, i, x, 1);
}

#define AT(role)    ((real)v[role][i])
#define TO(role, x) (v[role][i] = (float)(x))

FN void prepare_none(const dro__step *k, coefs *c)
{
    (void)k, (void)c;
}

FN void each_none(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)v, (void)c, (void)i, (void)reg, (void)sum;
}

/* SGD's momentum:  m <- momentum m + g,  w <- prox(w - eta m); Nesterov's: along g + momentum m.
 * The prox has the step eta / (1 - momentum). */
FN void prepare_momentum(const dro__step *k, coefs *c)
{
    prepare_step(k, k->s->eta, c);
    c->momentum = (real)k->plan.momentum;
    c->now = k->plan.nesterov ? 1 : 0;
    c->ahead = k->plan.nesterov ? c->momentum : 1;
}

FN void each_momentum(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real w = AT(DRO__W), g = AT(DRO__G) + c->decay * w, m = g + c->momentum * AT(DRO__D);
    real x = w - c->eta * (c->now * g + c->ahead * m);
    TO(DRO__D, m);
    TO(DRO__W, reg ? prox(c, i, x) : x);
}

/* COVER's estimator:  d <- gain (G1 + keep (d - G0)). Sums: |d|^2, |G1 - G0|^2, |G0 - d|^2
 * before. */
FN void prepare_estimate(const dro__step *k, coefs *c)
{
    c->gain = (real)k->s->gain;
    c->keep = (real)(k->s->keep * k->s->gain);
}

FN real next_direction(float *const *v, const coefs *c, size_t i, real *sum)
{
    real g = AT(DRO__G), old = AT(DRO__OLD), was = AT(DRO__D);
    real d = c->gain * g - c->keep * old + c->keep * was;
    sum[0] += d * d;
    sum[1] += (g - old) * (g - old);
    sum[2] += (old - was) * (old - was);
    TO(DRO__D, d);
    return d;
}

FN void each_estimate(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg;
    next_direction(v, c, i, sum);
}

/* COVER's step: the estimator, and  w <- prox(w - eta (d + decay w)). */
FN void prepare_storm(const dro__step *k, coefs *c)
{
    prepare_step(k, limited_eta(k), c);
    prepare_estimate(k, c);
}

FN void each_storm(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    real w = AT(DRO__W), d = next_direction(v, c, i, sum);
    real x = w - c->eta * (d + c->decay * w);
    TO(DRO__W, reg ? prox(c, i, x) : x);
}

/* The decays of both moments. The shares of the newest gradient are formed in double: 1 - beta2 of
 * a float is off by 1e-5. */
FN void prepare_decays(const dro__step *k, double beta2, coefs *c)
{
    c->momentum = (real)k->plan.momentum;
    c->fresh1 = (real)(1 - k->plan.momentum);
    c->beta2 = (real)beta2;
    c->fresh2 = (real)(1 - beta2);
}

FN void prepare_scale(const dro__step *k, double power1, double power2, coefs *c)
{
    c->first = (real)(1 / (1 - power1));
    c->root = (real)(1 / sqrt(1 - power2));
    c->epsilon = (real)k->plan.epsilon;
}

/* The moments of this step, which settle counts. */
FN void prepare_next(const dro__step *k, double beta2, coefs *c)
{
    double power1, power2;
    next_powers(k, beta2, &power1, &power2);
    prepare_decays(k, beta2, c);
    prepare_scale(k, power1, power2, c);
}

/* AdamW: moments of the gradient, decoupled weight decay; the prox in the metric of the step. */
FN void prepare_adamw(const dro__step *k, coefs *c)
{
    prepare_step(k, k->s->eta, c);
    prepare_next(k, k->plan.beta2, c);
}

FN void each_adamw(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real w = AT(DRO__W), g = AT(DRO__G);
    real m = c->momentum * AT(DRO__D) + c->fresh1 * g;
    real second = c->beta2 * AT(DRO__SECOND) + c->fresh2 * g * g;
    real scale = 1 / (ROOT(second) * c->root + c->epsilon);
    real x = w - c->eta * (c->first * m * scale + c->decay * w);
    TO(DRO__D, m);
    TO(DRO__SECOND, second);
    TO(DRO__W, reg ? prox_by(c, i, x, scale) : x);
}

/* ---- a direction with momentum and a diagonal preconditioner, in two passes ----
 *
 *   m <- beta1 m + (1-beta1) d,   s <- beta2 s + (1-beta2) g^2, p = (m / c1) / (sqrt(s / c2) +
 *                                 epsilon)
 *   w <- prox(w - eta (p + decay w))
 *
 * d is the direction (COVER's estimate, or the batch's gradient itself), g the gradient of the
 * newest batch, c1 and c2 take the moments' bias away. Between the passes eta is limited by what p
 * is (settle). Sums: p d, |G1 - G0|^2, |G0 - d|^2, |p|^2. */

FN void prepare_moments(const dro__step *k, coefs *c)
{
    prepare_next(k, second_decay(k), c);
}

FN void take_moments(float *const *v, const coefs *c, size_t i, real d, real *sum)
{
    real g = AT(DRO__G), p = d;
    if (v[DRO__M]) {
        real m = c->momentum * AT(DRO__M) + c->fresh1 * d;
        TO(DRO__M, m);
        p = m * c->first;
    }
    if (v[DRO__SECOND]) {
        real second = c->beta2 * AT(DRO__SECOND) + c->fresh2 * g * g;
        TO(DRO__SECOND, second);
        p /= ROOT(second) * c->root + c->epsilon;
    }
    sum[0] += p * d;
    sum[3] += p * p;
}

/* sum[1]: what the step does to the losses of a batch, |p|^2 in the metric of the second moment. */
FN void each_moments(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg;
    real g = AT(DRO__G), before = sum[3];
    take_moments(v, c, i, g, sum);
    real second = v[DRO__SECOND] ? AT(DRO__SECOND) * c->root * c->root : g * g;
    sum[1] += (sum[3] - before) * second;
}

FN void prepare_storm_moments(const dro__step *k, coefs *c)
{
    prepare_moments(k, c);
    prepare_estimate(k, c);
}

FN void each_storm_moments(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg;
    real all[DRO__SUMS] = {0};
    next_direction(v, c, i, all);
    sum[1] += all[1];
    sum[2] += all[2];
    take_moments(v, c, i, AT(DRO__D), sum);
}

/* The second pass: w. Without a first moment the step is along d, or g. */
FN void prepare_scaled(const dro__step *k, coefs *c)
{
    prepare_step(k, k->s->eta, c);
    prepare_scale(k, k->s->power1, k->s->power2, c);
}

FN void each_scaled(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real w = AT(DRO__W), scale = 1;
    real p = v[DRO__M] ? c->first * AT(DRO__M) : v[DRO__D] ? AT(DRO__D) : AT(DRO__G);
    if (v[DRO__SECOND])
        scale = 1 / (ROOT(AT(DRO__SECOND)) * c->root + c->epsilon);
    real x = w - c->eta * (p * scale + c->decay * w);
    TO(DRO__W, reg ? prox_by(c, i, x, scale) : x);
}

/* ASC-PG:  w' <- prox(w - eta (g + decay w)),  z = (1 - 1/beta) w + w'/beta. */
FN void prepare_ascpg(const dro__step *k, coefs *c)
{
    prepare_step(k, k->s->eta, c);
    c->inverse = (real)(1 / k->s->beta);
}

FN void each_ascpg(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real w = AT(DRO__W), x = w - c->eta * (AT(DRO__G) + c->decay * w);
    TO(DRO__W, reg ? prox(c, i, x) : x);
    TO(DRO__Z, c->inverse * AT(DRO__W) + (1 - c->inverse) * w);
}

/* out = prox( plus x[0] + sum of c[k] x[k] ): what else an optimiser needs. Inputs that are NULL
 * have no part. */
FN void prepare_combine(const dro__step *k, coefs *c)
{
    prepare_step(k, k->ticket->prox_eta, c);
    for (int j = 0; j < DRO__INPUTS; j++)
        c->c[j] = (real)k->ticket->c[j];
    c->plus = k->ticket->plus ? 1 : 0;
}

FN void each_combine(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real x = 0;
    for (int j = DRO__INPUTS - 1; j >= 0; j--)
        if (v[DRO__X + j])
            x += c->c[j] * AT(DRO__X + j);
    if (v[DRO__X])
        x += c->plus * AT(DRO__X);
    TO(DRO__OUT, reg ? prox(c, i, x) : x);
}

/* |x[0]|^2 */
FN void prepare_norm(const dro__step *k, coefs *c)
{
    (void)k;
    c->plus = 1;
}

FN void each_norm(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg;
    real x = c->plus * AT(DRO__X);
    sum[0] += x * x;
}

/* The moving average of the weights:  a <- keep a + (1 - keep) w */
FN void prepare_average(const dro__step *k, coefs *c)
{
    c->keep = (real)k->ticket->average_keep;
    c->gain = (real)(1 - k->ticket->average_keep);
}

FN void each_average(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg, (void)sum;
    TO(DRO__AVERAGE, c->keep * AT(DRO__AVERAGE) + c->gain * AT(DRO__W));
}

/* SAM:  z = w + rho G/|G|; w where 1/|G| is 0, also if G is not finite */
FN void prepare_ascend(const dro__step *k, coefs *c)
{
    c->gain = (real)(k->plan.sam * k->s->ascent);
}

FN void each_ascend(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg, (void)sum;
    TO(DRO__Z, AT(DRO__W) + (c->gain > 0 ? c->gain * AT(DRO__G) : 0));
}
