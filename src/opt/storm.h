/* The recursive estimator of COVER, shared by cover, recover, civr and rcivr: u and v of
 * Algorithm 1, for the tilt (storm.c) and for compositional problems (storm_composite.c). */
#ifndef DRO_STORM_H
#define DRO_STORM_H

#include "opt.h"

/* What a compositional problem has besides the direction: o->extra. The vectors v, and gradients
 * likewise, are (inner, dim). */
typedef struct dro__composite_state {
    double *u, *waiting;    /* (inner) the estimate; g of the batch that waits, at its old point */
    double *values, *slope; /* (2, inner) g of both parts; (inner) f'(u) */
    float *direction;       /* (dim): v^T f'(u) */
} dro__composite_state;

/* largest: the most examples in one forward call of one part. */
dro_status dro__storm_create(dro_optimizer *o, size_t largest, bool two_point);
void dro__storm_drop(dro_optimizer *o);

/* One step: the estimator takes in the batch that waits (or a new one of `batch` examples), w
 * moves, and unless next == 0 the next batch is evaluated at the point that is being left. */
dro_status dro__storm_step(dro_optimizer *o, size_t batch, size_t next);
/* The same, one batch at two points. */
dro_status dro__storm_step_two_point(dro_optimizer *o, size_t batch);
/* A step from an estimator that is started afresh over `total` examples. */
dro_status dro__storm_step_big(dro_optimizer *o, size_t total, size_t next);

/* storm_composite.c: the same for compositional problems. */
dro_status dro__composite_create(dro_optimizer *o);
dro_status dro__composite_step(dro_optimizer *o, const dro_batch *parts, int count, bool drawn);
dro_status dro__composite_step_two_point(dro_optimizer *o, size_t batch);
dro_status dro__composite_step_big(dro_optimizer *o, size_t total, size_t next);
/* direction = sum over j of slope[j] * rows[j], rows being (inner, dim) */
void dro__composite_contract(dro_optimizer *o, const double *slope, const float *rows,
                             float *direction);

/* The whole of COVER, which RECOVER runs with stages (opt_cover.c). */
dro_status dro__cover_check(dro_optimizer *o);
dro_status dro__cover_start(dro_optimizer *o);
dro_status dro__cover_step(dro_optimizer *o);

/* Shared by the two files. */
void dro__storm_wait(dro_optimizer *o, const dro_batch *next);

#endif
