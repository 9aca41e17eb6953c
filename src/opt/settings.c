/* The described parameters that several optimisers share. */
#include "opt.h"

#include <string.h>

#define S dro__optimizer_settings

const dro__param_row dro__params_common[] = {
    DRO__REAL("eta", eta.value, S, "0.1", 0, 1e9, "step size, also called lr"),
    DRO__ETA_SCHEDULE("constant"),
    DRO__REAL("eta_end", eta.end, S, "0", 0, 1e9, "cosine: eta at the last step"),
    DRO__WARMUP("0"),
    DRO__REAL("stage_factor", eta.factor, S, "10", 1, 1e6, "step: eta is divided by it per stage"),
    DRO__INTEGER("steps", steps, S, "0", 0, 1e15, "planned number of steps; 0: no end"),
    DRO__STAGES(""),
    DRO__REAL("poly_start", poly_start, S, "100", 1e-9, 1e15,
              "poly: eta_t = eta / (1 + t/poly_start)^poly_power"),
    DRO__REAL("poly_power", poly_power, S, "0.3333333333333333", 0, 4,
              "poly: the power of eta and lambda; for a twice this"),
    DRO__REAL("theory_mu", theory_mu, S, "0.1", 1e-12, 1e12, "theory: the PL constant mu"),
    DRO__REAL("theory_factor", theory_factor, S, "1", 1e-12, 1e12,
              "theory: stage lengths are Theorem 2's times this"),
    DRO__INTEGER("batch", batch, S, "32", 1, 1e9, "examples in a batch"),
    DRO__CHOICE("order", order, S, "shuffle", "shuffle|uniform|sequential",
                "how the library draws ids: epochs in random order, independently, in order"),
    DRO__INTEGER("seed", seed, S, "1", 0, 9e15, "seed of every random choice"),
    DRO__REAL("weight_decay", weight_decay, S, "0", 0, 1e6,
              "weight_decay times w is added to the gradient"),
    DRO__REAL("ema", ema, S, "0", 0, 0.99999,
              "the result is a moving average of w with this decay, at most (1 + t)/(10 + t) in "
              "step t; 0: w itself"),
    DRO__CHOICE("reg", reg, S, "none", "none|l2|l1|elastic|group|box|ball",
                "regulariser r(w), by its proximal operator (group, ball: approximate where steps "
                "are scaled); dro train also takes l1:1e-5"),
    DRO__REAL("reg_strength", reg_strength, S, "0", 0, 1e12,
              "strength s of l2 (s/2 |w|^2), l1, elastic, group"),
    DRO__REAL("reg_ratio", reg_ratio, S, "0.5", 0, 1, "elastic: the share of l1"),
    DRO__INTEGER("reg_block", reg_block, S, "1", 1, 1e15, "group: weights per block"),
    DRO__REAL("reg_low", reg_low, S, "-1", -1e30, 1e30, "box: the lower bound"),
    DRO__REAL("reg_high", reg_high, S, "1", -1e30, 1e30, "box: the upper bound"),
    DRO__REAL("reg_radius", reg_radius, S, "1", 0, 1e30, "ball: |w| is at most this"),
    DRO__CHOICE("output", output, S, "last", "last|random",
                "random: each stage stops at a random step, as in the theory"),
    DRO__PARAMS_END,
};

#define LEVELS     "none|example|class|group"
#define TILT_MEANS "what is reweighted: examples, classes or groups; --over is the same"

const dro__param_row dro__params_tilt[] = {
    DRO__REAL(
        "lambda", lambda.value, S, "1", 1e-9, 1e12,
        "robustness: smaller values emphasise high losses, larger ones approach the mean loss"),
    DRO__CHOICE("lambda_schedule", lambda.kind, S, "constant", DRO__SCHEDULES,
                "schedule of lambda"),
    DRO__REAL("lambda_end", lambda.end, S, "1", 1e-9, 1e12, "cosine: lambda at the last step"),
    DRO__REAL("lambda_start", lambda.start, S, "100", 1e-9, 1e12, "warm-up: the first lambda"),
    DRO__REAL("lambda_warmup", lambda.warmup, S, "0", 0, 1e15,
              "steps in which lambda moves linearly from lambda_start; below 1, a share of steps"),
    DRO__REAL("lambda_factor", lambda.factor, S, "1", 1e-6, 1e6,
              "step: lambda is divided by it per stage"),
    DRO__CHOICE("tilt", tilt, S, "example", LEVELS, TILT_MEANS),
    DRO__CHOICE("group_prior", group_prior, S, "uniform", "uniform|data",
                "prior over the classes or groups: uniform, or their shares of the data"),
    DRO__REAL("switch_step", switch_step, S, "0", 0, 1e15,
              "from this step on use switch_lambda and switch_tilt; below 1, a share of steps; 0: "
              "never"),
    DRO__REAL("switch_lambda", switch_lambda, S, "0", 0, 1e12,
              "lambda after the switch; 0: unchanged"),
    DRO__CHOICE("switch_tilt", switch_tilt, S, "same", "same|" LEVELS, "the tilt after the switch"),
    DRO__REAL("cap", cap, S, "10", 1, 60, "above this exponent, exp is replaced by its tangent"),
    DRO__PARAMS_END,
};

#define OBJECTIVES "kl:LAMBDA, kl-radius:RHO, cvar:ALPHA, chi2:RHO or mean"

const dro__param_row dro__params_objective[] = {
    {{"objective", DRO_PARAM_TEXT, "", 0, 0, "NAME:X", OBJECTIVES "; if not given, kl with lambda"},
     offsetof(S, objective)},
    DRO__PARAMS_END,
};

const dro__param_row dro__params_batch[] = {
    {{"objective", DRO_PARAM_TEXT, "mean", 0, 0, "NAME:X", OBJECTIVES}, offsetof(S, objective)},
    DRO__CHOICE("tilt", tilt, S, "example", LEVELS, TILT_MEANS),
    DRO__CHOICE("group_prior", group_prior, S, "uniform", "uniform|data",
                "prior over the classes or groups: uniform, or their shares of the data"),
    DRO__REAL("cap", cap, S, "10", 1, 60, "above this exponent, exp is replaced by its tangent"),
    DRO__REAL("gamma", gamma, S, "0.03", 1e-9, 1, "weight of the newest batch in u"),
    DRO__REAL("heaviest", heaviest, S, "3", 0, 1e9,
              "a batch whose mean weight exceeds heaviest * (largest eta / eta) is scaled down; "
              "0: off"),
    DRO__REAL("guard", guard, S, "0.25", 0, 1e9,
              "limits how far one step may change the weights of the examples (log_u for kl); "
              "0: off"),
    DRO__PARAMS_END,
};

const dro__param_row dro__params_storm[] = {
    DRO__CHOICE("a_rule", a_rule, S, "auto", "auto|fixed|eta2",
                "how a is chosen: from measured noise, the given value, or a_c eta^2"),
    DRO__REAL("a", a.value, S, "0.1", 0, 1, "fixed: the weight of the newest batch"),
    DRO__CHOICE("a_schedule", a.kind, S, "constant", DRO__SCHEDULES, "fixed: schedule of a"),
    DRO__REAL("a_end", a.end, S, "0", 0, 1, "fixed, cosine: a at the last step"),
    DRO__REAL("a_warmup", a.warmup, S, "0", 0, 1e15,
              "fixed: steps in which a falls linearly from 1; below 1, a share of steps"),
    DRO__REAL("a_decay", a.factor, S, "1", 1, 1e6, "fixed, step: a is divided by it per stage"),
    DRO__REAL("a_c", a_c, S, "1", 0, 1e12, "eta2: a = a_c eta^2, at most 1"),
    DRO__REAL("a_min", a_min, S, "0", 0, 1,
              "auto: lower limit of a, which is at least batch / examples where epochs are "
              "shuffled; 0.001 suits a stream that drifts"),
    DRO__REAL("guard", guard, S, "0.25", 0, 1e9,
              "eta is reduced so that no step changes log-weights by more than this (rms), 0: off"),
    DRO__CHOICE("form", form, S, "one-pass", "one-pass|two-point",
                "two batches at one point (same iterates, faster), or one batch at two points"),
    DRO__PARAMS_END,
};

const dro__param_row dro__params_scale[] = {
    DRO__CHOICE("precondition", precondition, S, "none", "none|rms|adam",
                "divide the step by the root of the gradient's second moment; adam: with momentum"),
    DRO__REAL("momentum", momentum, S, "0", 0, 0.9999,
              "momentum of the direction; with precondition=adam 0.9 unless given"),
    DRO__REAL("beta2", beta2, S, "0", 0, 0.999999,
              "decay of the second moment; 0: a window that grows with the run"),
    DRO__REAL("epsilon", epsilon, S, "1e-8", 0, 1, "added to the root of the second moment"),
    DRO__REAL("longest", longest, S, "1", 0, 1e9,
              "limit of the length of a scaled step (rms, before eta); 0: none"),
    DRO__PARAMS_END,
};

const dro__param_row dro__params_sam[] = {
    DRO__REAL("sam", sam, S, "0", 0, 1e6,
              "sharpness-aware steps: gradients are taken at w + sam g/|g|, where g is the batch's "
              "gradient at w; 0: at w"),
    DRO__CHOICE("sam_over", sam_over, S, "example", "example|class",
                "g is the gradient of the mean over the batch's examples, or over its classes"),
    DRO__PARAMS_END,
};

bool dro_regulariser_has_strength(const char *name)
{
    static const char *const those[] = {"l2", "l1", "elastic", "group"};
    for (size_t k = 0; name && k < sizeof those / sizeof those[0]; k++)
        if (strcmp(name, those[k]) == 0)
            return true;
    return false;
}
