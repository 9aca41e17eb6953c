/* The optimisers. A run, from the first call to the last:
 *
 *     dro_optimizer *opt;
 *     dro_optimizer_create(ctx, "recover", &problem, &opt);
 *     dro_optimizer_set(opt, "eta", "0.1");            // names and ranges: dro_optimizer_param()
 *     dro_optimizer_set(opt, "steps", "1000");         // planned: schedules follow from it
 *     dro_optimizer_start(opt, w0);                    // settings are fixed from here on
 *     while (dro_optimizer_step(opt) == DRO_OK)        // one update of w; DRO_ERR_END at the last
 *         ;
 *     dro_optimizer_weights(opt, w);                   // copy out
 *     dro_optimizer_destroy(opt);
 *
 * Every call returns a status; on failure dro_context_error(ctx) describes the error. A refused
 * step (a NaN loss, an error in a callback) leaves w and the state unchanged: step again to retry
 * the same batch, or call dro_optimizer_skip() to skip it. Stable. */
#ifndef DRO_OPTIMIZER_H
#define DRO_OPTIMIZER_H

#include <dro/context.h>
#include <dro/param.h>
#include <dro/problem.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_optimizer dro_optimizer;

/* The problem is copied; what it points to is borrowed until destroy. */
DRO_API dro_status dro_optimizer_create(dro_context *ctx, const char *name,
                                        const dro_problem *problem, dro_optimizer **opt);
/* For cover, recover, ascpg, civr and rcivr. */
DRO_API dro_status dro_optimizer_create_composite(dro_context *ctx, const char *name,
                                                  const dro_composite *composite,
                                                  dro_optimizer **opt);
DRO_API void dro_optimizer_destroy(dro_optimizer *opt); /* NULL is fine */

/* Settings, before start. An unknown name or a value out of range is an error, changes nothing, and
 * the error text says what is allowed. */
DRO_API dro_status dro_optimizer_set(dro_optimizer *opt, const char *name, const char *value);
DRO_API dro_status dro_optimizer_set_real(dro_optimizer *opt, const char *name, double value);
/* The current value as text, truncated to size. */
DRO_API dro_status dro_optimizer_get(const dro_optimizer *opt, const char *name, char *text,
                                     size_t size);

/* w0 is (dim); NULL starts at zero. */
DRO_API dro_status dro_optimizer_start(dro_optimizer *opt, const float *w0);
/* One update of w. DRO_ERR_END: the stream has ended, the planned steps are done, or lbfgs or
 * newton has reached the minimum. */
DRO_API dro_status dro_optimizer_step(dro_optimizer *opt);
/* Multiplies the scheduled eta by this factor (initially 1) from the next step on, for your own
 * schedule. The factor is part of the saved state. */
DRO_API dro_status dro_optimizer_scale_eta(dro_optimizer *opt, double factor);
/* After a refused step: skip its batch. */
DRO_API dro_status dro_optimizer_skip(dro_optimizer *opt);
/* Copies w, (dim), to host memory; with the setting ema, the moving average of w. */
DRO_API dro_status dro_optimizer_weights(const dro_optimizer *opt, float *w);
/* The same in the memory that the callbacks use (dro_memory), borrowed until the next step. */
DRO_API const float *dro_optimizer_w(const dro_optimizer *opt);

/* Progress and statistics of a run. */
typedef struct dro_info {
    uint64_t step;         /* updates of w so far */
    uint64_t examples;     /* examples drawn */
    uint64_t evaluations;  /* times an example's loss or gradient was computed */
    double eta, lambda, a; /* of the last step; a is 0 where the method has none */
    double loss;           /* mean loss of the last batch, at the w where it was evaluated */
    double log_u;          /* the estimator of log E exp(loss/lambda) */
    double objective; /* running estimate of F with r(w); methods with a dual p: mean loss + r(w) */
    double regulariser;    /* r(w), after the step */
    double largest_weight; /* largest weight of one example, as a multiple of the mean */
    /* Effective sample size / batch, in (0, 1], an estimate from the last batch; 0 before the first
     * step. lbfgs, newton: over all examples. */
    double effective;
    uint64_t caps;         /* exponents above the cap, where exp continues as its tangent */
    uint64_t floors;       /* estimators that fell below the floor */
    uint64_t fresh_starts; /* fresh starts of the estimator, not counting the first */
    double gradient_norm;  /* lbfgs, newton: of F, over all examples, at w; else NaN */
    /* lbfgs, newton with l2 or elastic: F(w) - min F is at most this; else NaN. F is that without
     * smoothing. At a kink of cvar, kl-radius or chi2 the gradient is not small, the gap is. */
    double gap;
    /* cvar, chi2: losses below this have no weight; else NaN */
    double threshold;
    /* kl-radius, cvar: KL divergence of the weights from the prior; chi2: E (weight - 1)^2 / 2;
     * else NaN. An estimate, from the batches of many steps, at other w; lbfgs: over all examples.
     * In a record of a run that has evaluated F over the training set, lambda, threshold, radius
     * and effective are those of its worst case, at the w that was evaluated. */
    double radius;
} dro_info;
DRO_API dro_status dro_optimizer_info(const dro_optimizer *opt, dro_info *info);
/* The weights q of the classes or groups (tilt=class, group): copies at most `count` of them and
 * returns how many there are. */
DRO_API size_t dro_optimizer_group_weights(const dro_optimizer *opt, double *q, size_t count);

/* The state as a flat buffer. Load it into a started optimiser with the same problem and settings;
 * the run then continues bitwise as the saved one would have. */
DRO_API size_t dro_optimizer_state_size(const dro_optimizer *opt);
DRO_API dro_status dro_optimizer_save(const dro_optimizer *opt, void *buffer, size_t size);
DRO_API dro_status dro_optimizer_load(dro_optimizer *opt, const void *buffer, size_t size);

/* r(w) of the optimiser's regulariser, in double, for w in host memory; reg=group after start only
 * (NaN before). */
DRO_API double dro_optimizer_regulariser(const dro_optimizer *opt, const float *w);
/* Whether "reg_strength" scales the regulariser of this name (a value of "reg"), so that it does
 * nothing at 0. */
DRO_API bool dro_regulariser_has_strength(const char *name);

/* The i-th optimiser's name and one-line summary, NULL past the last. */
DRO_API const char *dro_optimizer_name(int index);
DRO_API const char *dro_optimizer_summary(int index);
/* The i-th parameter of the named optimiser: DRO_ERR_NAME if there is no such optimiser,
 * DRO_ERR_END past the last parameter. */
DRO_API dro_status dro_optimizer_param(const char *optimizer, int index, dro_param *param);

/* ---- experimental: the value of an objective ---- */

/* The value of "kl:LAMBDA", "kl-radius:RHO", "cvar:ALPHA", "chi2:RHO" or "mean" for n losses, all
 * finite, and the worst-case weights, (n) with sum 1. */
DRO_API dro_status dro_objective_value(dro_context *ctx, const char *objective,
                                       const double *losses, size_t n, double *weights,
                                       double *value);

#ifdef __cplusplus
}
#endif
#endif
