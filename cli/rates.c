/* The problems of `dro bench rates` (rates.h). */
#include "rates.h"

#include <math.h>
#include <string.h>

/* A small generator: the data must not depend on the library's. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 33;
    x *= 0xff51afd7ed558ccdu;
    return (double)((x ^ x >> 29) >> 11) * 0x1p-53;
}

static double residual(const rates_problem *p, const double *w, int i)
{
    double r = -p->y[i];
    for (int j = 0; j < RATES_D; j++)
        r += p->x[i][j] * w[j];
    return r;
}

/* Loss, its slope and curvature in the residual. */
static double loss_of(rates_kind kind, double r, double *slope, double *curve)
{
    double q = 1 + r * r;
    if (kind == RATES_PL) {
        *slope = r;
        *curve = 1;
        return r * r / 2;
    }
    *slope = 2 * r / (q * q);
    *curve = (2 - 6 * r * r) / (q * q * q);
    return r * r / q;
}

/* The weights p_i ~ exp(loss_i/lambda) at w and the slopes; returns F. */
static double weigh(const rates_problem *p, const double *w, double *weight, double *slope,
                    double *curve)
{
    double top = -HUGE_VAL, sum = 0;
    for (int i = 0; i < RATES_N; i++) {
        weight[i] = loss_of(p->kind, residual(p, w, i), &slope[i], &curve[i]) / p->lambda;
        top = fmax(top, weight[i]);
    }
    for (int i = 0; i < RATES_N; i++)
        sum += weight[i] = exp(weight[i] - top);
    for (int i = 0; i < RATES_N; i++)
        weight[i] /= sum;
    return p->lambda * (top + log(sum / RATES_N));
}

double rates_objective(const rates_problem *p, const double *w, double *gradient)
{
    double weight[RATES_N], slope[RATES_N], curve[RATES_N];
    double value = weigh(p, w, weight, slope, curve);
    if (gradient) {
        memset(gradient, 0, RATES_D * sizeof *gradient);
        for (int i = 0; i < RATES_N; i++)
            for (int j = 0; j < RATES_D; j++)
                gradient[j] += weight[i] * slope[i] * p->x[i][j];
    }
    return value;
}

/* H = sum p_i (loss'' + loss'^2/lambda) x x^T - g g^T/lambda */
static void hessian(const rates_problem *p, const double *w, double g[RATES_D],
                    double h[RATES_D][RATES_D])
{
    double weight[RATES_N], slope[RATES_N], curve[RATES_N];
    weigh(p, w, weight, slope, curve);
    memset(g, 0, RATES_D * sizeof *g);
    memset(h, 0, RATES_D * sizeof *h);
    for (int i = 0; i < RATES_N; i++) {
        double c = weight[i] * (curve[i] + slope[i] * slope[i] / p->lambda);
        for (int j = 0; j < RATES_D; j++) {
            g[j] += weight[i] * slope[i] * p->x[i][j];
            for (int k = 0; k < RATES_D; k++)
                h[j][k] += c * p->x[i][j] * p->x[i][k];
        }
    }
    for (int j = 0; j < RATES_D; j++)
        for (int k = 0; k < RATES_D; k++)
            h[j][k] -= g[j] * g[k] / p->lambda;
}

/* Solves h s = g by Gaussian elimination (h is positive definite). */
static void solve(double h[RATES_D][RATES_D], double *g)
{
    for (int j = 0; j < RATES_D; j++)
        for (int k = j + 1; k < RATES_D; k++) {
            double f = h[k][j] / h[j][j];
            for (int m = j; m < RATES_D; m++)
                h[k][m] -= f * h[j][m];
            g[k] -= f * g[j];
        }
    for (int j = RATES_D - 1; j >= 0; j--) {
        for (int k = j + 1; k < RATES_D; k++)
            g[j] -= h[j][k] * g[k];
        g[j] /= h[j][j];
    }
}

static double find_minimum(rates_problem *p)
{
    double w[RATES_D] = {0}, g[RATES_D], h[RATES_D][RATES_D], norm = 0;
    for (int round = 0; round < 100; round++) {
        hessian(p, w, g, h);
        norm = 0;
        for (int j = 0; j < RATES_D; j++)
            norm += g[j] * g[j];
        if (norm < 1e-26)
            break;
        solve(h, g);
        double before = rates_objective(p, w, NULL), size = 1, to[RATES_D];
        for (int half = 0; half < 40; half++, size /= 2) {
            for (int j = 0; j < RATES_D; j++)
                to[j] = w[j] - size * g[j];
            if (rates_objective(p, to, NULL) <= before)
                break;
        }
        memcpy(w, to, sizeof w);
    }
    p->best = rates_objective(p, w, NULL);
    memcpy(p->minimum, w, sizeof w);
    return sqrt(norm);
}

double rates_create(rates_problem *p, rates_kind kind, double lambda)
{
    uint64_t state = 20210617;
    double truth[RATES_D], other[RATES_D], zero[RATES_D] = {0};
    p->kind = kind;
    p->lambda = lambda;
    for (int j = 0; j < RATES_D; j++) {
        truth[j] = 2 * uniform(&state) - 1;
        other[j] = 2 * uniform(&state) - 1;
    }
    for (int i = 0; i < RATES_N; i++) {
        const double *rule = i % 10 ? truth : other;
        p->y[i] = uniform(&state) - 0.5;
        for (int j = 0; j < RATES_D; j++) {
            p->x[i][j] = 2 * uniform(&state) - 1;
            p->y[i] += rule[j] * p->x[i][j];
        }
    }
    p->start = rates_objective(p, zero, NULL);
    p->best = 0;
    return kind == RATES_PL ? find_minimum(p) : 0;
}

/* ---- as a dro_problem ---- */

static dro_status forward(void *user, const float *w, const dro_batch *parts, int count,
                          float *losses)
{
    rates_view *view = user;
    double *slope = view->slopes, unused, point[RATES_D];
    for (int j = 0; j < RATES_D; j++)
        point[j] = (double)w[j];
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            double r = residual(view->problem, point, (int)parts[k].ids[i]);
            *losses++ = (float)loss_of(view->problem->kind, r, slope++, &unused);
        }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int count,
                           const float *coef, float *const *grads)
{
    rates_view *view = user;
    const double *slope = view->slopes;
    (void)w;
    for (int k = 0; k < count; k++) {
        double sum[RATES_D] = {0};
        for (size_t i = 0; i < parts[k].count; i++) {
            const double *x = view->problem->x[parts[k].ids[i]];
            double c = (double)*coef++ * *slope++;
            for (int j = 0; j < RATES_D; j++)
                sum[j] += c * x[j];
        }
        for (int j = 0; j < RATES_D; j++)
            grads[k][j] = (float)sum[j];
    }
    return DRO_OK;
}

void rates_bind(const rates_problem *problem, rates_view *view, dro_problem *out)
{
    view->problem = problem;
    *out = (dro_problem){.size = sizeof(dro_problem),
                         .user = view,
                         .dim = RATES_D,
                         .n = RATES_N,
                         .forward = forward,
                         .backward = backward,
                         .max_batch = sizeof view->slopes / sizeof(double)};
}

/* ---- the variance of the stochastic gradient ---- */

/* E|c_i grad_i - mean|^2 over draws: uniform with c = n p_i, or by p with c = 1. */
static double measure(const rates_problem *p, const double *weight, const double *slope,
                      const double *mean, bool by_p, int draws)
{
    uint64_t state = 7;
    double total = 0;
    for (int t = 0; t < draws; t++) {
        int i = (int)(uniform(&state) * RATES_N);
        if (by_p) {
            double rest = uniform(&state);
            for (i = 0; i < RATES_N - 1 && rest >= weight[i]; i++)
                rest -= weight[i];
        }
        double c = slope[i] * (by_p ? 1 : RATES_N * weight[i]);
        for (int j = 0; j < RATES_D; j++)
            total += pow(c * p->x[i][j] - mean[j], 2);
    }
    return total / draws;
}

rates_variance rates_gradient_variance(const rates_problem *p, const double *w, int draws)
{
    double weight[RATES_N], slope[RATES_N], curve[RATES_N], mean[RATES_D], norm = 0;
    rates_variance v = {0};
    rates_objective(p, w, mean);
    weigh(p, w, weight, slope, curve);
    for (int j = 0; j < RATES_D; j++)
        norm += mean[j] * mean[j];
    for (int i = 0; i < RATES_N; i++) {
        double size = 0;
        for (int j = 0; j < RATES_D; j++)
            size += pow(slope[i] * p->x[i][j], 2);
        v.uniform += RATES_N * weight[i] * weight[i] * size;
        v.by_p += weight[i] * size;
        v.largest = fmax(v.largest, RATES_N * weight[i]);
    }
    v.uniform -= norm;
    v.by_p -= norm;
    v.measured_uniform = measure(p, weight, slope, mean, false, draws);
    v.measured_by_p = measure(p, weight, slope, mean, true, draws);
    return v;
}
