/* RCIVR: CIVR restarted with growing big batches, for objectives with a PL condition.
 * Zhang, Xiao: "A Stochastic Composite Gradient Method with Incremental Variance Reduction", 2019,
 * Algorithm 2, with the growth that the comparison in the COVER paper uses.
 *
 *   restart k: `passes` stages of CIVR with big batches of B_k = big * big_growth^k
 *
 * Deviations: a restart begins at the last iterate (the original takes a random one); the big batch
 * never exceeds big_most, or 2^40 examples (`dro train` gives the number of training examples: a
 * big batch that is a whole pass has nothing to gain from growing). batch = 0 and inner = 0 follow
 * ceil(sqrt(B_k)). */
#include "civr.h"

static dro_status start(dro_optimizer *o)
{
    const dro__civr_settings *set = o->settings;
    /* Batches grow; a call never takes more than a chunk of them. */
    return dro__civr_start_with(o, set, (size_t)DRO__LARGEST_BIG);
}

static const dro__param_row own[] = {
    DRO__INTEGER("batch", common.batch, dro__civr_settings, "0", 0, 1e9,
                 "examples in an inner batch, 0: ceil(sqrt(big)), at most 2048"),
    DRO__INTEGER("big", big, dro__civr_settings, "128", 1, 1e12,
                 "examples at the first stage's start"),
    DRO__INTEGER("inner", inner, dro__civr_settings, "0", 0, 1e12,
                 "steps in a stage, 0: ceil(sqrt(big))"),
    DRO__REAL("big_growth", growth, dro__civr_settings, "10", 1, 1e6,
              "factor of big at each restart"),
    DRO__INTEGER("big_most", most, dro__civr_settings, "0", 0, 1e12, "upper limit of big; 0: none"),
    DRO__INTEGER("passes", passes, dro__civr_settings, "1", 1, 1e12, "stages between restarts"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_rcivr = {
    .name = "rcivr",
    .summary = "RCIVR: CIVR restarted with ten times larger big batches",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(dro__civr_settings),
    .vectors = 5,
    .composite = true,
    .robust = true,
    .groups = true,
    .check = dro__civr_check,
    .start = start,
    .step = dro__civr_step,
    .steps_for = dro__civr_steps_for,
    .drop = dro__civr_drop,
    .archive = dro__civr_archive,
};
