/* full: all examples at once, in double. What a problem may offer besides forward and backward, for
 * the exact solvers: with sums in single precision they could not get below 1e-7. */
#ifndef DRO_FULL_H
#define DRO_FULL_H

#include "base.h"

typedef struct dro__full {
    void *user;
    bool convex; /* every loss in w */
    /* The loss of every example, (n). */
    dro_status (*losses)(void *user, const double *w, double *losses);
    /* At the w of the last losses(): the sum over i of weights[i] d loss_i/dw, (dim). */
    void (*gradient)(void *user, const double *weights, double *gradient);
    /* At the same w: adds to the lower triangle of h, (dim, dim), the sum over i of
     * weights[i] (d^2 loss_i/dw^2 + tilt (d loss_i/dw)(d loss_i/dw)'). */
    void (*hessian)(void *user, const double *weights, double tilt, double *h);
    /* About the mean of d^2 loss_i / dw_j^2, positive, (dim). */
    void (*scale)(void *user, double *scale);
} dro__full;

/* What the library's own problems can do besides forward and backward; each may be NULL. */
typedef struct dro__abilities {
    const struct dro__async *async; /* asynchronous steps (step.h) */
    const dro__full *full;          /* all examples in double, for lbfgs and newton */
} dro__abilities;

#endif
