/* The two problems of `dro bench rates`, with everything about them known exactly: the objective,
 * its gradient, and for the first one its minimum. */
#ifndef DRO_RATES_H
#define DRO_RATES_H

#include <dro/dro.h>
#include <stdbool.h>

enum { RATES_N = 1000, RATES_D = 10 };

typedef enum rates_kind {
    RATES_PL,       /* least squares, loss r^2/2, r = <x, w> - y: F is PL (Lemma 1 of the paper) */
    RATES_NONCONVEX /* loss r^2/(1 + r^2) of the same rows: smooth, bounded, not convex */
} rates_kind;

typedef struct rates_problem {
    rates_kind kind;
    double lambda;
    double x[RATES_N][RATES_D], y[RATES_N]; /* |x_j| <= 1 */
    double best;                            /* F at the minimum; 0 for the non-convex one */
    double minimum[RATES_D];                /* where it is */
    double start;                           /* F at w = 0 */
} rates_problem;

/* Rows from a fixed seed; one in ten follows another rule. Finds the minimum by Newton's method;
 * returns how small the gradient became there (0 for the non-convex problem). */
double rates_create(rates_problem *problem, rates_kind kind, double lambda);
/* F(w), and its gradient if not NULL. */
double rates_objective(const rates_problem *problem, const double *w, double *gradient);

/* A run's view of the problem: one per optimiser, because it keeps the residuals of the last
 * batch. */
typedef struct rates_view {
    const rates_problem *problem;
    double slopes[2 * 4096];
} rates_view;

/* Fills *out; view must outlive it. */
void rates_bind(const rates_problem *problem, rates_view *view, dro_problem *out);

/* The variance of the stochastic gradient of sum p_i loss_i at w, p the exact maximiser there, when
 * examples are drawn uniformly (and weighed n p_i) and when they are drawn by p. Exact, and
 * measured over `draws` draws with a generator of its own. */
typedef struct rates_variance {
    double uniform, by_p, measured_uniform, measured_by_p;
    double largest; /* the largest n p_i */
} rates_variance;
rates_variance rates_gradient_variance(const rates_problem *problem, const double *w, int draws);

#endif
