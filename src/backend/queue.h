/* queue: whole steps handed to a device that nobody waits for. What a problem may offer beside forward and backward
 * (dro_problem.queue), and what an optimiser and the device's kernels know of each other. Plain data: the kernels
 * include it too.
 *
 * The state of a run lives in one of two places. An optimiser pushes it before its first step there and pulls it
 * when somebody asks (save, info, the end); in between the device alone moves it. A step that meets a number that
 * is not finite changes nothing, nor do those behind it, until the state is pulled. */
#ifndef DRO_QUEUE_H
#define DRO_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* One class or group of the tilt (opt/tilt.h). */
typedef struct dro__group {
    double u;               /* estimate of the group's mean loss */
    double q, q_before;     /* weights: of the batch to come, and of the last direction */
    double old_sum;         /* of the waiting batch at the old point: sum of its losses */
    double sum;             /* scratch: of the present batch */
    uint64_t seen, counted; /* times u was set; examples drawn */
    int64_t old_count, count;
    uint64_t away; /* updates since it was last present */
} dro__group;

enum { DRO__STEP_SGD, DRO__STEP_STORM };

/* What stays the same for a run. */
typedef struct dro__step_plan {
    int32_t kind;
    size_t dim, batch;
    float *w, *d, *g_old; /* (dim) the backend's; sgd: d is the moving direction, no g_old */
    double weight_decay, momentum;
    int32_t nesterov;
    int32_t reg; /* those that are elementwise */
    double reg_strength, reg_ratio, reg_low, reg_high;
    int32_t a_rule, automatic; /* automatic: extrapolate rare groups */
    double a_c, a_min, guard, cap;
    int32_t group_prior; /* 1: the data's shares, 0: all the same */
    int32_t group_room;
} dro__step_plan;

/* What a step is told. */
typedef struct dro__step_ticket {
    double eta, lambda, a; /* a: of the schedule, where the rule is that */
    int32_t level;         /* dro__tilt_level */
    int32_t drawn;         /* part 0 was not seen at the old point */
    int32_t group_count;
    const int32_t *groups[2]; /* (host) of each part: what the tilt is over, NULL: examples */
} dro__step_ticket;

enum { DRO__REFUSED_LOSS = 1, DRO__REFUSED_GRADIENT };

/* The estimator, and what a step tells. */
typedef struct dro__step_state {
    int32_t level, have, fresh, observed, group_count;
    double log_u, mean_old, gain, keep;
    double spread, change, noise, eta_before, lambda_before, pace, square, fall;
    double eta, lambda, a, loss, largest_weight, effective;
    uint64_t caps, floors, fresh_starts;
    uint64_t done; /* steps since the push */
    int32_t refused, refused_part;
    int64_t refused_index;
    double refused_value;
} dro__step_state;

#ifndef __CUDACC__
#include <dro/problem.h>

typedef struct dro__queue {
    void *user;
    /* DRO_ERR_UNSUPPORTED: steps go the plain way. What was open before is closed. */
    dro_status (*open)(void *user, const dro__step_plan *plan);
    dro_status (*step)(void *user, const dro_batch *parts, int part_count,
                       const dro__step_ticket *ticket);
    /* As it was some steps ago; does not wait. */
    void (*news)(void *user, dro__step_state *state);
    /* The w of the plan that is open, NULL: none is. A problem has one queue, and who opened it last has it. */
    const float *(*owner)(void *user);
    /* For all steps, whichever thread queued them. */
    dro_status (*wait)(void *user);
    /* Both wait. groups: (group_room); old_losses: (batch) of the waiting batch at its old point, or NULL; shares:
     * (share_count) of what the tilt is over, or NULL. */
    dro_status (*pull)(void *user, dro__step_state *state, dro__group *groups, float *old_losses);
    dro_status (*push)(void *user, const dro__step_state *state, const dro__group *groups,
                       const float *old_losses, const double *shares, int32_t share_count);
} dro__queue;
#endif

#endif
