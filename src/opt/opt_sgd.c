/* SGD with momentum, on the mean loss or on a robust objective with one evaluation per example.
 *
 *   g = mean grad + weight_decay w,   m <- momentum m + g,   w <- prox(w - eta m)
 *
 * Nesterov: the step is along g + momentum m. The same form as PyTorch's SGD, so settings carry
 * over. The prox has the step eta / (1 - momentum), by which w moves for each g.
 *
 * With an objective other than mean, the examples of a batch are weighted by the state before the
 * batch (backend/weigh.h, weigh_before), and a guard limits the step:
 *
 *   g = sum_i weight_i grad_i / b,   m <- momentum m + (1 - momentum) g
 *   w <- prox(w - eta/(1 - momentum) (m / (1 - momentum^t) + weight_decay w))
 *
 * With constant gradients this step has the same length as the one above.
 *
 * sam: SAM, Foret et al. 2021, Algorithm 1, without the dual norms: the gradients are those at
 * w + sam g/|g|. Batch norm's running statistics are those of that point. */
#include "opt.h"

typedef struct settings {
    dro__optimizer_settings common;
    double momentum;
    int32_t nesterov;
} settings;

static dro_status check(dro_optimizer *o)
{
    const settings *set = o->settings;
    if (set->nesterov && !dro__is_mean(o))
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "sgd: nesterov=yes is for objective=mean; leave one of them out");
    return DRO_OK;
}

static dro_status start(dro_optimizer *o)
{
    const settings *set = o->settings;
    o->k.plan.momentum = set->momentum;
    o->k.plan.nesterov = set->nesterov;
    o->stretch = dro__is_mean(o) ? 1 : 1 / (1 - set->momentum);
    if (!dro__is_mean(o))
        return dro__tilted_start(o, false);
    o->k.plan.prox_stretch = 1 / (1 - set->momentum);
    DRO_TRY(dro__plain_start(o, DRO__PHASE_MEAN, DRO__MOVE_momentum));
    return dro__vector(o, o->dim, true, &o->k.v[DRO__D]);
}

static const dro__param_row own[] = {
    DRO__REAL("momentum", momentum, settings, "0.9", 0, 0.9999, "momentum of the direction"),
    DRO__CHOICE("nesterov", nesterov, settings, "no", "no|yes", "Nesterov momentum"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_sgd = {
    .name = "sgd",
    .summary = "momentum SGD on the mean loss, or on a robust objective (objective=NAME:X)",
    .tables = {dro__params_common, dro__params_batch, dro__params_sam, own},
    .settings_size = sizeof(settings),
    .vectors = 3,
    .robust = true,
    .groups = true,
    .async = true,
    .check = check,
    .start = start,
    .step = dro__plain_step,
};
