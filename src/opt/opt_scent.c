/* The tilt with one evaluation per example: sgd's or AdamW's step on the weights exp(loss/lambda -
 * nu), nu = log u. After SCENT ("Stochastic Optimization of Compositional Entropic Risk", arXiv
 * 2602.02877).
 *
 *   g   = sum_i exp(loss_i/lambda - nu) / b grad_i
 *   nu <- nu + log( 1 - gamma + gamma mean exp(loss/lambda - nu) )
 *
 * and g goes through momentum and the preconditioner (backend/moves.h). It costs half of RECOVER,
 * and does not correct the estimate for the change of w.
 *
 * Deviations: the weights use nu from before the batch, and a batch of mean weight above `heaviest`
 * (times the largest eta over eta) is scaled down; SCENT's own rate, gamma = alpha e^nu / (1 +
 * alpha e^nu), was more biased with small batches. tilt=class and tilt=group track a mean loss
 * per group and weigh by q_g. */
#include "opt.h"

typedef dro__optimizer_settings settings;

static dro_status start(dro_optimizer *o)
{
    DRO_TRY(dro__plain_start(o, DRO__PHASE_BEFORE, DRO__MOVE_moments));
    o->k.plan.then = DRO__MOVE_scaled;
    return dro__scale_create(o, DRO__MOVE_moments);
}

static const dro__param_row own[] = {
    DRO__REAL("gamma", gamma, settings, "0.03", 1e-9, 1, "weight of the newest batch in u"),
    DRO__REAL("heaviest", heaviest, settings, "3", 0, 1e9,
              "a batch whose mean weight exceeds heaviest * (largest eta / eta) is scaled down; "
              "0: off"),
    DRO__WARMUP("100"),
    DRO__REAL("guard", guard, settings, "0.25", 0, 1e9,
              "limits how far one step may change the weights of the examples (log_u for kl); "
              "0: off"),
    DRO__CHOICE("precondition", precondition, settings, "adam", "none|rms|adam",
                "divide the step by the root of the gradient's second moment; adam: with momentum"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_scent = {
    .name = "scent",
    .summary = "SCENT: the tilt with one evaluation per example; steps of AdamW or SGD",
    .tables = {dro__params_common, dro__params_tilt, dro__params_objective, dro__params_scale, own},
    .settings_size = sizeof(settings),
    .vectors = 4,
    .robust = true,
    .groups = true,
    .async = true,
    .start = start,
    .step = dro__plain_step,
};
