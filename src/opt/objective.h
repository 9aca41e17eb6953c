/* objective: the value of a robust objective of given losses, and the worst-case weights that
 * attain it.
 *
 *     max over q of  sum_i q_i losses_i,   q a distribution near the prior p
 *
 *   mean           q = p
 *   kl:LAMBDA      minus lambda KL(q|p):        lambda log sum_i p_i exp(losses_i / lambda)
 *   kl-radius:RHO  KL(q|p) <= rho:              min over lambda of kl:lambda + lambda rho
 *   cvar:ALPHA     q_i <= p_i / alpha:          the mean of the worst share alpha
 *   chi2:RHO       sum_i p_i (q_i/p_i - 1)^2 / 2 <= rho:
 *                  min over eta of eta + sqrt(1 + 2 rho) sqrt(E (loss - eta)+^2)
 *
 * The weights are also the gradient of the value by the losses (one of them where it has a kink),
 * so a solver needs no more than this. Over classes or groups: the losses are their mean losses,
 * the prior their shares. */
#ifndef DRO_OBJECTIVE_H
#define DRO_OBJECTIVE_H

#include "base.h"
#include "step.h"

typedef struct dro__objective {
    dro__objective_kind kind;
    double argument; /* lambda, rho or alpha */
    /* Makes a gradient of what has kinks; 0: none. cvar: a penalty of smoothing/2 sum_i p_i
     * (q_i/p_i - 1)^2, which lowers the value by at most smoothing (1/alpha - 1) / 2. kl-radius,
     * chi2: the multiplier of the constraint is at least this, which raises the value by at most
     * smoothing rho (with equal losses the multiplier would be 0). */
    double smoothing;
} dro__objective;

typedef struct dro__worst_case {
    double value;
    /* kl, kl-radius: of the tilt; chi2: q = p (loss - eta)+ / lambda; 0: only the largest losses
     * count; or NaN */
    double lambda;
    double eta;    /* cvar, chi2: losses below it have no weight; or NaN */
    bool smoothed; /* the smoothing has changed the value */
    /* by dro__worst_case_measure() */
    double divergence; /* KL(q|p); for chi2: sum_i p_i (q_i/p_i - 1)^2 / 2 */
    double effective;  /* 1 / sum_i q_i^2/p_i, in (0, 1]: effective sample size / n */
} dro__worst_case;

/* "kl:1", "kl-radius:0.1", "cvar:0.1", "chi2:1" or "mean"; DRO_ERR_NAME or DRO_ERR_RANGE says what
 * is right. */
dro_status dro__objective_parse(dro_context *ctx, const char *text, dro__objective *o);
/* By how much the smoothing moves the value at most. */
double dro__objective_slack(const dro__objective *o);
/* The other way. */
void dro__objective_print(const dro__objective *o, char *text, size_t size);
/* prior (n), with sum 1; NULL: all the same. losses must be finite, the largest one with a positive
 * prior. weights (n, at least 1) is q. */
void dro__objective_weigh(const dro__objective *o, size_t n, const double *losses,
                          const double *prior, double *weights, dro__worst_case *worst);
/* How far q is from the prior. */
void dro__worst_case_measure(const dro__objective *o, size_t n, const double *prior,
                             const double *weights, dro__worst_case *worst);

/* ---- over classes or groups ---- */

typedef struct dro__groups {
    /* set before dro__groups_create(); borrowed */
    size_t n;
    int32_t count;
    const int32_t *of;           /* (n) the group of each example */
    const double *example_prior; /* (n), with sum 1; NULL: all the same */
    double *mean, *prior,
        *q;       /* (count) the last losses, shares, weights; prior 0: it has no examples */
    double *mass; /* (count) sums of example_prior */
} dro__groups;

/* uniform: all groups that occur have the same share; else that of their examples. */
dro_status dro__groups_create(dro_context *ctx, dro__groups *g, bool uniform);
void dro__groups_free(dro__groups *g);
/* The objective of the groups' mean losses; the weight of a group is shared by its examples. */
void dro__objective_weigh_groups(const dro__objective *o, dro__groups *g, const double *losses,
                                 double *weights, dro__worst_case *worst);

#endif
