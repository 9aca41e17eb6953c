/* SGD with momentum: the yardstick. It minimises the mean loss, not the robust objective.
 *
 *   g = mean grad + weight_decay w,   m <- momentum m + g,   w <- prox(w - eta m)
 *
 * Nesterov: the step is along g + momentum m. The same form as PyTorch's SGD, so settings carry
 * over. */
#include "opt.h"

typedef struct settings {
    dro__settings common;
    double momentum;
    int32_t nesterov;
} settings;

static dro_status start(dro_optimizer *o)
{
    const settings *set = o->settings;
    o->k.plan.momentum = set->momentum;
    o->k.plan.nesterov = set->nesterov;
    DRO_TRY(dro__plain_start(o, DRO__PHASE_MEAN, DRO__MOVE_momentum));
    return dro__vector(o, o->dim, true, &o->k.v[DRO__D]);
}

static const dro__param own[] = {
    DRO__REAL("momentum", momentum, settings, "0.9", 0, 0.9999, "momentum of the direction"),
    DRO__CHOICE("nesterov", nesterov, settings, "no", "no|yes", "look ahead along the direction"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_sgd = {
    .name = "sgd",
    .summary = "momentum SGD on the mean loss: the baseline",
    .tables = {dro__params_common, own},
    .settings_size = sizeof(settings),
    .vectors = 3,
    .async = true,
    .start = start,
    .step = dro__plain_step,
};
