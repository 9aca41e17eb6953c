/* The recursive estimator of COVER, shared by cover, recover, civr and rcivr: u and v of Algorithm 1,
 * for the tilt (storm.c) and for general compositional problems (storm_composite.c). */
#ifndef DRO_STORM_H
#define DRO_STORM_H

#include "tilt.h"

typedef struct dro__storm {
    dro__tilt tilt;
    /* the direction and the weighted gradients of the batch: at the new point, at the old point, and
     * of the next batch; each (dim), or (inner, dim) for compositional problems, then called v */
    float *d, *g_new, *g_old, *g_next;
    float *w_old;         /* two-point: (dim) */
    float *losses, *coef; /* (2 * largest batch) */
    float *old_losses;    /* (largest batch) of the batch at its old point */
    /* the batch that waits: it was evaluated at the old point already */
    dro_batch waiting;
    bool waits, live; /* live: `waiting` can be used; otherwise draw it again */
    uint64_t waiting_position;
    uint64_t waiting_count;
    /* the automatic a */
    double spread; /* the variance of d as a multiple of one batch's */
    bool observed;
    double change, noise; /* averages of |G1 - G0|^2 and |G0 - d|^2 */
    double eta_before, lambda_before;
    double pace;   /* for the guard: mean square change of the log-weights per eta^2, */
    double square; /* and |d|^2 of the last step */
    double fall;   /* how much that step should have lowered log_u, to first order */
    /* compositional: u (inner), its copy for a step, g of both parts (2, inner), f'(u) */
    double *u, *u_working, *g_values, *slope, *g_waiting, *g_waiting_working;
    float *direction; /* (dim): v^T f'(u) */
    bool have;
} dro__storm;

/* largest: the most examples in one forward call of one part. */
dro_status dro__storm_create(dro_optimizer *o, dro__storm *s, size_t largest, bool two_point);
void dro__storm_destroy(dro_optimizer *o, dro__storm *s);
void dro__storm_archive(dro_optimizer *o, dro__storm *s, dro__archive *ar, bool two_point);
void dro__storm_drop(dro__storm *s);

/* a for this step by the rule of the settings (fixed, eta2, auto). */
double dro__storm_a(const dro_optimizer *o, const dro__storm *s);

/* One step: the estimator takes in the batch that waits (or a new one of `batch` examples), w moves,
 * and unless next == 0 the next batch is evaluated at the point that is being left. */
dro_status dro__storm_step(dro_optimizer *o, dro__storm *s, double a, size_t batch, size_t next);
/* The same, one batch at two points. */
dro_status dro__storm_step_two_point(dro_optimizer *o, dro__storm *s, double a, size_t batch);
/* A step from an estimator that is started afresh over `total` examples. */
dro_status dro__storm_step_big(dro_optimizer *o, dro__storm *s, size_t total, size_t next);

/* storm_composite.c: the same three for compositional problems. */
dro_status dro__composite_step(dro_optimizer *o, dro__storm *s, double a, size_t batch,
                               size_t next);
dro_status dro__composite_step_two_point(dro_optimizer *o, dro__storm *s, double a, size_t batch);
dro_status dro__composite_step_big(dro_optimizer *o, dro__storm *s, size_t total, size_t next);

/* storm_device.c: the same on a device that is not waited for. */
void dro__storm_open(dro_optimizer *o, dro__storm *s);
dro_status dro__storm_queue_step(dro_optimizer *o, dro__storm *s, size_t batch, size_t next);
dro_status dro__storm_push(dro_optimizer *o);
dro_status dro__storm_pull(dro_optimizer *o, dro__step_state *state);
void dro__storm_rewind(dro_optimizer *o, const dro__trail *trail);

/* The whole of COVER, which RECOVER runs with stages (opt_cover.c). */
dro_status dro__cover_check(dro_optimizer *o);
dro_status dro__cover_start(dro_optimizer *o);
void dro__cover_stop(dro_optimizer *o);
dro_status dro__cover_step(dro_optimizer *o);
void dro__cover_drop(dro_optimizer *o);
void dro__cover_archive(dro_optimizer *o, dro__archive *ar);

/* Shared by the two files. */
dro_status dro__storm_current(dro_optimizer *o, dro__storm *s, size_t batch, bool *drawn,
                              dro_batch *current);
void dro__storm_wait(dro__storm *s, const dro_batch *next);
void dro__storm_observe(dro_optimizer *o, dro__storm *s, bool fresh, const double *norm);

#endif
