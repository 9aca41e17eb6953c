/* The tilt: from losses to the coefficients of the gradient, with numbers that cannot overflow.
 *
 * Examples: log_u estimates log E exp(loss/lambda); an example's coefficient is
 * exp(loss/lambda - log_u) / b. Classes and groups: u_g estimates L_g, q = softmax(log prior_g +
 * u_g/lambda), and a coefficient is q_g / (b share_g). */
#ifndef DRO_TILT_H
#define DRO_TILT_H

#include "opt.h"

typedef struct dro__tilt {
    dro__tilt_level level;
    bool have; /* there is an estimate */
    double log_u, mean_old;
    double lambda; /* of a moving average's log_u */
    /* what the last update asks of the direction: d <- gain * (G1 + keep * (d - G0)) */
    double gain, keep;
    bool fresh;
    /* groups */
    int32_t group_count, capacity;
    uint64_t counted;
    const double *shares;         /* given, or NULL: counted */
    dro__group *groups, *working; /* (capacity) the state and the copy a step writes */
} dro__tilt;

/* Room for the groups that the settings may need. */
dro_status dro__tilt_create(dro_optimizer *o, dro__tilt *t);
void dro__tilt_destroy(dro__tilt *t);
/* Once per step, before anything else: follows the schedule of levels, protects the groups. Returns
 * in *restarted whether the level changed, so that everything must start afresh. */
dro_status dro__tilt_begin(dro_optimizer *o, dro__tilt *t, bool *restarted);

/* A newly drawn batch: counts its groups, checks that they are in range. */
dro_status dro__tilt_count(dro_optimizer *o, dro__tilt *t, const dro_batch *batch);

/* COVER's recursion. `update`: the batch at the new point; sets gain, keep, fresh and coef.
 * `old`: the next batch at the same point, which will be its old one. */
void dro__tilt_update(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                      double a, float *coef);
void dro__tilt_old(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                   double lambda, float *coef);

/* How far the last step moved the logarithms of this batch's weights: the mean square of the change of
 * loss/lambda, weighted as the batch is (coef), or of u_g/lambda over groups. After update; `old` are
 * the batch's losses at the old point. */
double dro__tilt_movement(dro_optimizer *o, const dro__tilt *t, const dro_batch *batch,
                          const float *losses, const float *old, const float *coef);

/* A moving average instead (ASC-PG, ABSGD): estimate <- (1-beta) estimate + beta batch; the first
 * batch sets it. Then coefficients from the estimate as it stands. */
void dro__tilt_average(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                       double beta);
void dro__tilt_weigh(dro_optimizer *o, dro__tilt *t, const dro_batch *batch, const float *losses,
                     float *coef);

/* A batch too large for one call (CIVR): begin, then for each chunk coefficients and the factors
 * with which direction <- keep * direction + gain * (chunk's gradient), then end. */
void dro__tilt_big_begin(dro__tilt *t);
void dro__tilt_big_chunk(dro_optimizer *o, dro__tilt *t, const dro_batch *batch,
                         const float *losses, double total, float *coef);
void dro__tilt_big_end(dro_optimizer *o, dro__tilt *t, double total);

/* q of the groups, at most count; how many there are, 0 when the tilt is not over groups. */
size_t dro__tilt_weights(const dro__tilt *t, double *q, size_t count);

void dro__tilt_archive(dro__tilt *t, dro__archive *ar);

#endif
