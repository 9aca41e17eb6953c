/* What stoc-agda, pg-smd2 and pes-sgda share: phi(w, p) = sum p_i loss_i - lambda sum p_i log(n
 * p_i), its stochastic gradients in w and p, and sampling by p. */
#ifndef DRO_PRIMAL_DUAL_H
#define DRO_PRIMAL_DUAL_H

#include "dual.h"

typedef struct dro__pd_settings {
    dro__optimizer_settings common;
    double dual_eta, delta, gamma, tau1, tau2, growth, stage_steps;
    int32_t sampling;
} dro__pd_settings;

/* o->extra */
typedef struct dro__pd {
    dro__dual *p;
    float *w_next;                   /* (dim) */
    float *w_ref, *mean, *mean_next; /* (dim): staged methods */
    float *dual_losses;              /* (batch) */
    int64_t *ids;                    /* (batch) drawn by p */
    double *before;                  /* (batch) p of the sampled examples */
    float *all_losses;               /* (n): pg-smd2 */
    double *p_sum;                   /* (n): pes-sgda */
} dro__pd;

enum { DRO__PD_STAGED = 1, DRO__PD_ALL_LOSSES = 2, DRO__PD_P_MEAN = 4 };

dro_status dro__pd_create(dro_optimizer *o, unsigned extras);
double dro__pd_stage(const dro_optimizer *o); /* steps of the first stage */
void dro__pd_stop(dro_optimizer *o);
void dro__pd_drop(dro_optimizer *o);
void dro__pd_archive(dro_optimizer *o, dro__archive *ar);

/* Draws the batch for w (by p, or in order), evaluates it at w, and leaves the gradient in G. */
dro_status dro__pd_gradient(dro_optimizer *o, dro__pd *s, dro_batch *batch);
/* The examples for the step in p: `batch` itself, or with sampling=p a fresh uniform draw. */
dro_status dro__pd_dual_batch(dro_optimizer *o, const dro_batch *batch, dro_batch *dual);

/* p + step * grad_p on the batch, projected onto the simplex with floor delta/n. */
void dro__pd_ascend(dro_optimizer *o, dro__pd *s, const dro_batch *batch, const float *losses,
                    double step);
/* p * exp(step * grad_p), normalised. */
void dro__pd_ascend_entropic(dro_optimizer *o, dro__pd *s, const dro_batch *batch,
                             const float *losses, double step);

/* w_next = prox of the step with the proximal term gamma/2 |w - w_ref|^2; mean_next likewise. */
void dro__pd_staged_move(dro_optimizer *o, dro__pd *s, double eta);

#define DRO__PD_SAMPLING                                                                           \
    DRO__CHOICE("sampling", sampling, dro__pd_settings, "uniform", "p|uniform",                    \
                "draw by p, or uniformly with coefficients n p_i")
#define DRO__PD_DUAL_ETA                                                                           \
    DRO__REAL("dual_eta", dual_eta, dro__pd_settings, "0.0001", 0, 1e9, "step size of p")
#define DRO__PD_DELTA                                                                              \
    DRO__REAL("delta", delta, dro__pd_settings, "0.01", 0, 1, "every p_i is at least delta/n")

#endif
