/* Stoc-AGDA: stochastic alternating gradient descent ascent. Yang, Kiyavash, He: "Global
 * Convergence and Variance Reduction for a Class of Nonconvex-Nonconcave Minimax Problems", NeurIPS
 * 2020, Algorithm 1.
 *
 *   w' = w - eta_t grad_w phi(w, p),    eta_t  = eta / (1 + t/tau1)          (beta1 = eta tau1)
 *   p' = project( p + dual_t grad_p phi(w', p) ),  dual_t = dual_eta / (1 + t/tau2)
 *   grad_p unbiased: n (loss_i - lambda (log(n p_i) + 1)) / b on the sampled examples
 *
 * Deviations: the projection onto {p in the simplex, p_i >= delta/n} (the original has no
 * constraint; log p needs one), r(w) through its prox. O(n) memory for p, O(b log n) time for a
 * step (dual.c). */
#include "primal_dual.h"

static dro_status start(dro_optimizer *o)
{
    return dro__pd_create(o, 0);
}

static dro_status step(dro_optimizer *o)
{
    const dro__pd_settings *set = o->settings;
    dro__pd *s = o->extra;
    double t = (double)o->run.step, dual_eta = set->dual_eta / (1 + t / set->tau2);
    dro_batch batch, dual;
    o->ticket.eta /= 1 + t / set->tau1;
    DRO_TRY(dro__pd_gradient(o, s, &batch));
    dro__descend(o, o->k.v[DRO__G], s->w_next);
    DRO_TRY(dro__pd_dual_batch(o, &batch, &dual));
    DRO_TRY(dro__forward(o, s->w_next, &dual, 1, s->dual_losses));

    dro__pd_ascend(o, s, &dual, s->dual_losses, dual_eta);
    dro__swap(&o->k.v[DRO__W], &s->w_next);
    return DRO_OK;
}

static const dro__param_row own[] = {
    DRO__REAL("tau1", tau1, dro__pd_settings, "100", 1e-9, 1e15, "eta_t = eta / (1 + t/tau1)"),
    DRO__REAL("tau2", tau2, dro__pd_settings, "100", 1e-9, 1e15,
              "dual_t = dual_eta / (1 + t/tau2)"),
    DRO__PD_DUAL_ETA,
    DRO__PD_DELTA,
    DRO__PD_SAMPLING,
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_stoc_agda = {
    .name = "stoc-agda",
    .summary = "Stoc-AGDA: alternating descent in w, ascent in p; O(n) memory",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(dro__pd_settings),
    .vectors = 3,
    .robust = true,
    .needs_n = true,
    .start = start,
    .stop = dro__pd_stop,
    .step = step,
    .drop = dro__pd_drop,
    .archive = dro__pd_archive,
};
