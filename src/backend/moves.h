/* The elementwise moves of a step (step.h), written once. A team includes this file after it has
 * defined `real`, the type in which it computes, and FN, what stands before a function.
 *
 * A move NAME is two functions: prepare_NAME makes coefficients from scalars and settings, once;
 * each_NAME moves element i and may add to three sums. A move more is these two and its name in
 * DRO__MOVES (step.h).
 *
 * The regulariser is applied last, through its proximal operator  prox(x) = argmin_w |w - x|^2 /
 * 2 + eta r(w):
 *   l2       s/2 |w|^2                    x / (1 + eta s)
 *   l1       s |w|_1                      soft(x, eta s)
 *   elastic  s (q |w|_1 + (1-q)/2 |w|^2)  soft(x, eta s q) / (1 + eta s (1-q))
 *   box      low <= w <= high             clip
 * (group and ball are not elementwise: opt/prox.c). In the metric of a preconditioner the step of
 * element i is eta / scale_i, and so are the threshold and the shrinking. */
#include "step.h"

typedef struct coefs {
    real eta, decay;        /* w <- w - eta * (direction + decay * w) */
    real threshold, shrink; /* prox: soft threshold, then x - shrink x, then clip */
    real low, high;
    real momentum, now, ahead; /* the step is along now * g + ahead * m */
    real gain, keep;
    real beta2, first, root, epsilon; /* adamw: first and second moment without their bias */
    real inverse;                     /* asc-pg: 1 / beta */
    real c[DRO__INPUTS], plus;
} coefs;

/* What most moves need: the step and the regulariser. */
FN void prepare_step(const dro__step *k, double eta, coefs *c)
{
    const dro__plan *p = &k->plan;
    double s = eta * p->reg_strength, q = p->reg_ratio;
    c->eta = (real)eta;
    c->decay = (real)p->weight_decay;
    c->threshold = (real)(p->reg == DRO__REG_L1 ? s : p->reg == DRO__REG_ELASTIC ? s * q : 0);
    double l2 = p->reg == DRO__REG_L2 ? s : p->reg == DRO__REG_ELASTIC ? s * (1 - q) : 0;
    c->shrink = (real)(l2 / (1 + l2));
    c->low = (real)(p->reg == DRO__REG_BOX ? p->reg_low : -HUGE_VAL);
    c->high = (real)(p->reg == DRO__REG_BOX ? p->reg_high : HUGE_VAL);
}

FN real prox(const coefs *c, real x)
{
    real size = (x < 0 ? -x : x) - c->threshold;
    size = size > 0 ? size : 0;
    real y = x < 0 ? -size : size;
    y -= y * c->shrink;
    y = y < c->low ? c->low : y;
    return y > c->high ? c->high : y;
}

#define AT(role)    ((real)v[role][i])
#define TO(role, x) (v[role][i] = (float)(x))

/* SGD's momentum:  m <- momentum m + g,  w <- prox(w - eta m); Nesterov's: along g + momentum m. */
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
    TO(DRO__W, reg ? prox(c, x) : x);
}

/* COVER's estimator:  d <- gain (G1 + keep (d - G0)). Sums: |d|^2, |G1 - G0|^2, |G0 - d|^2
 * before. */
FN void prepare_estimate(const dro__step *k, coefs *c)
{
    c->gain = (real)k->s->gain;
    c->keep = (real)(k->s->keep * k->s->gain);
}

FN void each_estimate(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)reg;
    real g = AT(DRO__G), old = AT(DRO__OLD), was = AT(DRO__D);
    real d = c->gain * g - c->keep * old + c->keep * was;
    sum[0] += d * d;
    sum[1] += (g - old) * (g - old);
    sum[2] += (old - was) * (old - was);
    TO(DRO__D, d);
}

/* COVER's step: the estimator, and  w <- prox(w - eta (d + decay w)). */
FN void prepare_storm(const dro__step *k, coefs *c)
{
    prepare_step(k, limited_eta(k), c);
    prepare_estimate(k, c);
}

FN void each_storm(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    real g = AT(DRO__G), old = AT(DRO__OLD), was = AT(DRO__D), w = AT(DRO__W);
    real d = c->gain * g - c->keep * old + c->keep * was, x = w - c->eta * (d + c->decay * w);
    sum[0] += d * d;
    sum[1] += (g - old) * (g - old);
    sum[2] += (old - was) * (old - was);
    TO(DRO__D, d);
    TO(DRO__W, reg ? prox(c, x) : x);
}

/* AdamW: moments of the gradient, decoupled weight decay. */
FN void prepare_adamw(const dro__step *k, coefs *c)
{
    const dro__scalars *s = k->s;
    double power1 = (s->power1 > 0 ? s->power1 : 1) * k->plan.momentum;
    double power2 = (s->power2 > 0 ? s->power2 : 1) * k->plan.beta2;
    prepare_step(k, s->eta, c);
    c->momentum = (real)k->plan.momentum;
    c->beta2 = (real)k->plan.beta2;
    c->first = (real)(1 / (1 - power1));
    c->root = (real)(1 / sqrt(1 - power2));
    c->epsilon = (real)k->plan.epsilon;
}

FN void each_adamw(float *const *v, const coefs *c, size_t i, int reg, real *sum)
{
    (void)sum;
    real w = AT(DRO__W), g = AT(DRO__G);
    real m = c->momentum * AT(DRO__D) + (1 - c->momentum) * g;
    real second = c->beta2 * AT(DRO__SECOND) + (1 - c->beta2) * g * g;
    real x = w - c->eta * (c->first * m / (ROOT(second) * c->root + c->epsilon) + c->decay * w);
    TO(DRO__D, m);
    TO(DRO__SECOND, second);
    TO(DRO__W, reg ? prox(c, x) : x);
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
    TO(DRO__W, reg ? prox(c, x) : x);
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
    TO(DRO__OUT, reg ? prox(c, x) : x);
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
