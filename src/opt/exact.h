/* exact: the minimum of f(w) + l1 |w|_1 to the last digits, for a convex and smooth f, in double.
 * Knows nothing of models and optimisers: f is a function that gives value and gradient.
 *
 *     dro__exact e;
 *     dro__exact_create(ctx, &e, dim, 50, false);        // 50 pairs; true: Newton's method instead
 *     memcpy(e.w, w0, ...);
 *     while (!e.stuck && dro__exact_gradient(&e, &f) > 1e-8)
 *         dro__exact_step(&e, &f);                       // then e.value and e.g are those of e.w
 *     dro__exact_free(&e);
 */
#ifndef DRO_EXACT_H
#define DRO_EXACT_H

#include "base.h"

typedef struct dro__smooth {
    void *user;
    dro_status (*value)(void *user, const double *w, double *value, double *gradient);
    /* (Newton's method) At the w of the last value(): (dim, dim), the lower triangle. */
    dro_status (*hessian)(void *user, double *hessian);
    double l1;
    size_t free_first, free_count; /* of these weights only this share: */
    double free_share;
    const double *scale; /* (optional) (dim) about how f curves along each w, up to a factor */
    double enough;       /* a step that lowers the value by less is idle; 0: by rounding */
    uint64_t patience;   /* idle steps in a row after which it is stuck; 0: five */
} dro__smooth;

/* Plain data and pointers; w, g, s and y are all that a step needs of those before. */
typedef struct dro__exact {
    size_t dim, memory;        /* memory: pairs that are kept; 0: Newton's method */
    double value;              /* f(w) + l1 |w|_1 */
    double *w, *g;             /* (dim) g: the gradient of f */
    double *s, *y, *curvature; /* (memory, dim) changes of w and g; (memory) <s, y> */
    size_t pairs, next;        /* how many there are, and where the next one goes */
    uint64_t evaluations;
    uint64_t begun, stuck; /* stuck: no lower value was found, or it is out of patience */
    uint64_t idle;         /* steps in a row that lowered the value by less than `enough` */
    bool current;          /* the last value() was at w */
    double *direction, *slope, *trial, *trial_g, *alpha; /* scratch; slope: dro__exact_gradient() */
    double *h;                                           /* (dim, dim) Newton's method */
} dro__exact;

dro_status dro__exact_create(dro_context *ctx, dro__exact *e, size_t dim, size_t memory,
                             bool newton);
void dro__exact_free(dro__exact *e);
/* One iteration. An error of f, and a value that is not finite at w itself, leave everything as it
 * was. */
dro_status dro__exact_step(dro__exact *e, const dro__smooth *f);
/* f at w, if that was not yet computed. */
dro_status dro__exact_begin(dro__exact *e, const dro__smooth *f);
/* The norm of the smallest subgradient at w, after dro__exact_begin(). */
double dro__exact_gradient(dro__exact *e, const dro__smooth *f);

#endif
