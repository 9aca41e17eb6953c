/* AdamW on the mean loss. Loshchilov, Hutter: "Decoupled Weight Decay Regularization", ICLR 2019,
 * Algorithm 2.
 *
 *   m <- beta1 m + (1-beta1) g,   s <- beta2 s + (1-beta2) g^2
 *   w <- prox(w - eta ( (m / (1-beta1^t)) / (sqrt(s / (1-beta2^t)) + epsilon) + weight_decay w ))
 *
 * The same form as PyTorch's AdamW, so settings carry over. The prox is that of the metric of the
 * step: its step for element i is eta / (sqrt(s_i / (1-beta2^t)) + epsilon). */
#include "opt.h"

typedef struct settings {
    dro__optimizer_settings common;
    double beta1, beta2, epsilon, longest;
} settings;

static dro_status start(dro_optimizer *o)
{
    const settings *set = o->settings;
    o->k.plan.momentum = set->beta1;
    o->k.plan.beta2 = set->beta2;
    o->k.plan.epsilon = set->epsilon;
    o->k.plan.longest = set->longest;
    if (!dro__is_mean(o))
        return dro__tilted_start(o, true);
    DRO_TRY(dro__plain_start(o, DRO__PHASE_MEAN, DRO__MOVE_adamw));
    DRO_TRY(dro__vector(o, o->dim, true, &o->k.v[DRO__D]));
    return dro__vector(o, o->dim, true, &o->k.v[DRO__SECOND]);
}

static const dro__param_row own[] = {
    DRO__REAL("eta", common.eta.value, settings, "0.001", 0, 1e9, "step size"),
    DRO__REAL("weight_decay", common.weight_decay, settings, "0.01", 0, 1e6,
              "decoupled: w is multiplied by 1 - eta weight_decay"),
    DRO__REAL("beta1", beta1, settings, "0.9", 0, 0.9999, "decay of the first moment"),
    DRO__REAL("beta2", beta2, settings, "0.999", 0, 0.999999, "decay of the second moment"),
    DRO__REAL("epsilon", epsilon, settings, "1e-8", 0, 1, "added to the root of the second moment"),
    DRO__REAL("longest", longest, settings, "1", 0, 1e9,
              "robust objectives: limit of the length of a step (rms, before eta); 0: none"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_adamw = {
    .name = "adamw",
    .summary = "AdamW on the mean loss, or on a robust objective (objective=NAME:X)",
    .tables = {dro__params_common, dro__params_batch, own},
    .settings_size = sizeof(settings),
    .vectors = 4,
    .robust = true,
    .groups = true,
    .async = true,
    .start = start,
    .step = dro__plain_step,
};
