/* The exact solver (exact.h).
 *
 * L-BFGS: Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 7.5. The first matrix is
 * gamma / scale: with the mean squares of the features as scale, a9a takes 57 evaluations instead
 * of 510 to 1e-7. |w|_1: OWL-QN (Andrew and Gao 2007): the direction is computed from the
 * smallest subgradient and stays in its orthant, and so does the line search. Newton: (H + tau I) p
 * = -g with the smallest tau of 1e-12, 1e-10, ... (times the largest diagonal entry) for which
 * Cholesky's factorisation exists: w of a softmax, and of columns that depend on each other, is not
 * unique. Line search: bisection and doubling until the weak Wolfe conditions hold (Lewis and
 * Overton 2013); next to the minimum, where values are equal up to rounding, slopes decide (Hager
 * and Zhang 2005, the approximate conditions). */
#include "exact.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- life ---- */

dro_status dro__exact_create(dro_context *ctx, dro__exact *e, size_t dim, size_t memory,
                             bool newton)
{
    *e = (dro__exact){.dim = dim, .memory = newton ? 0 : memory};
    double **vectors[] = {&e->w, &e->g, &e->direction, &e->slope, &e->trial, &e->trial_g};
    bool fine = true;
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++)
        fine = (*vectors[k] = dro__alloc(dim, sizeof(double))) && fine;
    double **pairs[] = {&e->s, &e->y};
    for (size_t k = 0; !newton && k < sizeof pairs / sizeof pairs[0]; k++)
        fine = (*pairs[k] = dro__alloc(dim * memory, sizeof(double))) && fine;
    if (newton)
        fine = (e->h = dro__alloc(dim * dim, sizeof(double))) && fine;
    fine = (e->curvature = dro__alloc(memory + 1, sizeof(double))) && fine;
    fine = (e->alpha = dro__alloc(memory + 1, sizeof(double))) && fine;
    if (fine)
        return DRO_OK;
    dro__exact_free(e);
    return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an exact solver of %zu weights", dim);
}

void dro__exact_free(dro__exact *e)
{
    double *all[] = {e->w,     e->g,     e->s,       e->y,     e->curvature, e->direction,
                     e->slope, e->trial, e->trial_g, e->alpha, e->h};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        dro__free(all[k]);
    *e = (dro__exact){0};
}

/* ---- vectors ---- */

static double dot(size_t n, const double *x, const double *y)
{
    double sum[4] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum[0] += x[i] * y[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static void add(size_t n, double a, const double *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static double l1_at(const dro__smooth *f, size_t i)
{
    return i - f->free_first < f->free_count ? f->free_share * f->l1 : f->l1;
}

/* f and the norm of its gradient; the point must be the solver's own. */
static dro_status evaluate(dro__exact *e, const dro__smooth *f, const double *w, double *value,
                           double *g)
{
    e->current = false;
    DRO_TRY(f->value(f->user, w, value, g));
    e->evaluations++;
    for (size_t i = 0; f->l1 > 0 && i < e->dim; i++)
        *value += l1_at(f, i) * fabs(w[i]);
    return DRO_OK;
}

dro_status dro__exact_begin(dro__exact *e, const dro__smooth *f)
{
    if (e->begun && (e->memory || e->current))
        return DRO_OK;
    double value;
    DRO_TRY(evaluate(e, f, e->w, &value, e->trial_g));
    if (!isfinite(value) || !isfinite(dot(e->dim, e->trial_g, e->trial_g)))
        return DRO_ERR_NUMBER;
    memcpy(e->g, e->trial_g, e->dim * sizeof *e->g);
    e->value = value;
    e->begun = e->current = true;
    return DRO_OK;
}

/* The subgradient of f + l1 |w|_1 that is nearest to 0. */
double dro__exact_gradient(dro__exact *e, const dro__smooth *f)
{
    for (size_t i = 0; i < e->dim; i++) {
        double g = e->g[i], l1 = l1_at(f, i);
        if (e->w[i] != 0)
            e->slope[i] = g + copysign(l1, e->w[i]);
        else
            e->slope[i] = fabs(g) > l1 ? g - copysign(l1, g) : 0;
    }
    return sqrt(dot(e->dim, e->slope, e->slope));
}

/* ---- directions ---- */

/* direction = -H slope of the pairs, from the newest to the oldest and back. */
static void two_loops(dro__exact *e, const dro__smooth *f)
{
    size_t n = e->dim;
    double *p = e->direction, gamma = 1;
    for (size_t i = 0; i < n; i++)
        p[i] = -e->slope[i];
    for (size_t k = 0; k < e->pairs; k++) {
        size_t at = (e->next + e->memory - 1 - k) % e->memory;
        e->alpha[at] = dot(n, e->s + at * n, p) / e->curvature[at];
        add(n, -e->alpha[at], e->y + at * n, p);
    }
    if (e->pairs) {
        size_t newest = (e->next + e->memory - 1) % e->memory;
        const double *y = e->y + newest * n;
        double square = 0;
        for (size_t i = 0; i < n; i++)
            square += y[i] * y[i] / (f->scale ? f->scale[i] : 1);
        gamma = e->curvature[newest] / square;
    } else if (!f->scale) {
        gamma = 1 / fmax(1, sqrt(dot(n, p, p)));
    }
    for (size_t i = 0; i < n; i++)
        p[i] *= f->scale ? gamma / f->scale[i] : gamma;
    for (size_t k = e->pairs; k-- > 0;) {
        size_t at = (e->next + e->memory - 1 - k) % e->memory;
        double beta = dot(n, e->y + at * n, p) / e->curvature[at];
        add(n, e->alpha[at] - beta, e->s + at * n, p);
    }
}

/* h = L L', in place; false where it is not positive definite by a margin. */
static bool factorise(double *h, size_t n, double least)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            double rest = h[i * n + j] - dot(j, h + i * n, h + j * n);
            if (i == j && !(rest > least))
                return false;
            h[i * n + j] = i == j ? sqrt(rest) : rest / h[j * n + j];
        }
    return true;
}

static dro_status newton(dro__exact *e, const dro__smooth *f)
{
    size_t n = e->dim;
    double *p = e->direction, largest = 0;
    for (double tau = 1e-12;; tau *= 100) {
        DRO_TRY(f->hessian(f->user, e->h));
        for (size_t i = 0; i < n; i++)
            largest = fmax(largest, e->h[i * n + i]);
        largest = largest > 0 && isfinite(largest) ? largest : 1;
        for (size_t i = 0; i < n; i++)
            e->h[i * n + i] += tau * largest;
        if (factorise(e->h, n, tau * largest / 2))
            break;
        if (tau > 1)
            return DRO_ERR_NUMBER;
    }
    for (size_t i = 0; i < n; i++)
        p[i] = (-e->slope[i] - dot(i, e->h + i * n, p)) / e->h[i * n + i];
    for (size_t i = n; i-- > 0;) {
        p[i] /= e->h[i * n + i];
        for (size_t j = 0; j < i; j++)
            p[j] -= p[i] * e->h[i * n + j];
    }
    return DRO_OK;
}

/* ---- the line search ---- */

enum { TRIALS = 60, IDLE = 5 };

/* trial = w + t direction, kept in the orthant of the subgradient where there is an l1. */
static void move(dro__exact *e, const dro__smooth *f, double t)
{
    for (size_t i = 0; i < e->dim; i++) {
        double to = e->w[i] + t * e->direction[i];
        double orthant = e->w[i] != 0 ? e->w[i] : -e->slope[i];
        e->trial[i] = f->l1 > 0 && to * orthant <= 0 ? 0 : to;
    }
}

/* Leaves the accepted point in trial and trial_g; *value NaN: there was none. fall: <slope,
 * direction> < 0. */
static dro_status search(dro__exact *e, const dro__smooth *f, double fall, double *value)
{
    const double decrease = 1e-4, flatter = 0.9, rounding = 1e-12 * fabs(e->value);
    double low = 0, high = HUGE_VAL, t = 1;
    *value = NAN;
    for (int k = 0; k < TRIALS; k++) {
        double at, along = 0;
        move(e, f, t);
        DRO_TRY(evaluate(e, f, e->trial, &at, e->trial_g));
        for (size_t i = 0; f->l1 > 0 && i < e->dim; i++)
            along += e->slope[i] * (e->trial[i] - e->w[i]);
        double expected = f->l1 > 0 ? along : t * fall;
        if (f->l1 > 0 && -expected < DBL_EPSILON * fabs(e->value))
            return DRO_OK; /* lower by less than rounding errors */
        double slope = f->l1 > 0 ? 0 : dot(e->dim, e->trial_g, e->direction);
        bool alike = f->l1 == 0 && at <= e->value + rounding &&
                     slope <= (2 * decrease - 1) * fall; /* the slope is not too large */
        if (!(isfinite(at) && isfinite(slope)) || !(at <= e->value + decrease * expected || alike))
            high = t;
        else if (f->l1 == 0 && slope < flatter * fall)
            low = t;
        else {
            *value = at;
            return DRO_OK;
        }
        if (high - low <= DBL_EPSILON * low)
            return DRO_OK;
        t = isinf(high) ? 2 * t : (low + high) / 2;
    }
    return DRO_OK;
}

/* ---- a step ---- */

static void keep_pair(dro__exact *e)
{
    size_t n = e->dim;
    if (!e->memory)
        return;
    double *s = e->s + e->next * n, *y = e->y + e->next * n;
    for (size_t i = 0; i < n; i++) {
        s[i] = e->trial[i] - e->w[i];
        y[i] = e->trial_g[i] - e->g[i];
    }
    double product = dot(n, s, y);
    if (!(product > DBL_EPSILON * sqrt(dot(n, s, s) * dot(n, y, y)))) {
        e->pairs = 0; /* the slot may have held one of them */
        return;
    }
    e->curvature[e->next] = product;
    e->next = (e->next + 1) % e->memory;
    e->pairs += e->pairs < e->memory;
}

static dro_status choose(dro__exact *e, const dro__smooth *f, double *fall)
{
    if (e->memory)
        two_loops(e, f);
    else
        DRO_TRY(newton(e, f));
    for (size_t i = 0; f->l1 > 0 && i < e->dim; i++)
        if (e->direction[i] * e->slope[i] >= 0)
            e->direction[i] = 0;
    *fall = dot(e->dim, e->slope, e->direction);
    return DRO_OK;
}

dro_status dro__exact_step(dro__exact *e, const dro__smooth *f)
{
    double value, fall;
    DRO_TRY(dro__exact_begin(e, f));
    dro__exact_gradient(e, f);
    DRO_TRY(choose(e, f, &fall));
    value = NAN;
    if (fall < 0)
        DRO_TRY(search(e, f, fall, &value));
    if (isnan(value) && e->pairs) { /* once more, without the pairs */
        e->pairs = 0;
        DRO_TRY(choose(e, f, &fall));
        if (fall < 0)
            DRO_TRY(search(e, f, fall, &value));
    }
    if (isnan(value)) {
        e->stuck = true;
        return DRO_OK;
    }
    bool small = e->value - value <= fmax(f->enough, DBL_EPSILON * fabs(value));
    e->idle = small ? e->idle + 1 : 0;
    e->stuck = e->idle >= (f->patience ? f->patience : IDLE);
    keep_pair(e);
    double *w = e->w, *g = e->g;
    memcpy(w, e->trial, e->dim * sizeof *w);
    memcpy(g, e->trial_g, e->dim * sizeof *g);
    e->value = value;
    e->current = true;
    return DRO_OK;
}
