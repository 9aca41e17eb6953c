/* ABSGD: momentum SGD on the weights exp(loss/lambda)/u.
 * Qi, Xu, Yin, Jin, Yang: "Attentional-Biased Stochastic Gradient Descent", 2020-2023.
 *
 *   u <- (1-gamma) u + gamma mean exp(loss/lambda)          (the first batch sets it)
 *   g  = sum_i exp(loss_i/lambda) / (b u) grad_i + weight_decay w
 *   m <- momentum m + g,   w <- prox(w - eta m), the prox with eta / (1 - momentum)
 *
 * Deviations: u in log form with the cap of weigh.h; tilt=class and tilt=group track a mean loss
 * per group instead (u_g a moving average) and weigh by q_g. No correction for the moving w: that
 * is what COVER adds. */
#include "opt.h"

typedef struct settings {
    dro__optimizer_settings common;
    double momentum, gamma;
} settings;

static dro_status start(dro_optimizer *o)
{
    const settings *set = o->settings;
    o->k.plan.momentum = set->momentum;
    o->k.plan.gamma = set->gamma;
    o->k.plan.prox_stretch = 1 / (1 - set->momentum);
    DRO_TRY(dro__plain_start(o, DRO__PHASE_AVERAGE, DRO__MOVE_momentum));
    return dro__vector(o, o->dim, true, &o->k.v[DRO__D]);
}

static const dro__param_row own[] = {
    DRO__REAL("momentum", momentum, settings, "0.9", 0, 0.9999, "momentum of the direction"),
    DRO__REAL("gamma", gamma, settings, "0.1", 1e-9, 1, "weight of the newest batch in u"),
    DRO__WARMUP("100"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_absgd = {
    .name = "absgd",
    .summary = "momentum SGD on weights exp(loss/lambda)/u, u a moving average",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(settings),
    .vectors = 3,
    .robust = true,
    .groups = true,
    .async = true,
    .start = start,
    .step = dro__plain_step,
};
