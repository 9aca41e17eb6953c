/* CIVR: Composite Incremental Variance Reduction.
 * Zhang, Xiao: "A Stochastic Composite Gradient Method with Incremental Variance Reduction", 2019,
 * Algorithm 1.
 *
 *   stage: y, z = means of g, J over a big batch of B examples at w; then tau steps in all,
 *     w' = prox(w - eta z^T f'(y)),   y += g(w';S) - g(w;S),   z += J(w';S) - J(w;S)
 *   with batches S of ceil(sqrt(B)) (or `batch`), tau = ceil(sqrt(B)) (or `inner`).
 *
 * That is COVER's recursion with a = 0 between fresh starts over B examples, and so it runs on the
 * same estimator (storm.c), in log form for KL-DRO, with its cap.
 *
 * Deviations: batches S are evaluated one step ahead at the point that is being left (the iterates
 * are the same); the last iterate is the output unless output=random. */
#include "civr.h"

#include <math.h>

static size_t root(size_t big)
{
    return (size_t)ceil(sqrt((double)big));
}

/* Two inner batches must fit into one call of the problem. */
static size_t inner_batch(const dro_optimizer *o, const dro__civr_settings *set, size_t big)
{
    size_t most = dro__chunk(o, SIZE_MAX) / 2, want = root(big);
    if (set->common.batch)
        return (size_t)set->common.batch;
    return want < most ? want : most > 0 ? most : 1;
}

dro_status dro__civr_start_with(dro_optimizer *o, const dro__civr_settings *set, size_t largest_big)
{
    size_t batch = inner_batch(o, set, largest_big), chunk = dro__chunk(o, largest_big);
    o->run.big = (uint64_t)set->big;
    o->k.plan.a_rule = DRO__A_FIXED; /* at 0 */
    return dro__storm_create(o, batch > chunk ? batch : chunk, false);
}

/* The examples at a stage's start; rcivr's grow at each restart, civr's do not. */
static size_t big_of(const dro__civr_settings *set, uint64_t stage)
{
    if (!set->passes)
        return (size_t)set->big;
    uint64_t restarts = stage / (uint64_t)set->passes;
    double big = nearbyint((double)set->big * pow(set->growth, (double)restarts));
    return (size_t)fmin(big, set->most ? (double)set->most : DRO__LARGEST_BIG);
}

dro_status dro__civr_step(dro_optimizer *o)
{
    const dro__civr_settings *set = o->settings;
    dro__run *r = &o->run;
    r->big = big_of(set, r->stages);
    size_t inner = set->inner ? (size_t)set->inner : root(r->big);
    size_t batch = inner_batch(o, set, r->big);
    bool stage_ends = r->within + 1 >= inner;
    size_t next = stage_ends || dro__last_step(o) ? 0 : batch;
    /* If the pending batch is missing (dropped, or the stream had ended): begin the stage again. */
    if (r->within == 0 || !r->waits)
        DRO_TRY(dro__storm_step_big(o, r->big, next));
    else
        DRO_TRY(dro__storm_step(o, batch, next));
    r->within = stage_ends ? 0 : r->within + 1;
    r->stages += stage_ends;
    return DRO_OK;
}

uint64_t dro__civr_steps_for(const dro_optimizer *o, uint64_t examples)
{
    const dro__civr_settings *set = o->settings;
    uint64_t steps = 0;
    for (uint64_t stage = 0; examples > 0; stage++) {
        size_t big = big_of(set, stage), batch = inner_batch(o, set, big);
        uint64_t inner = set->inner ? (uint64_t)set->inner : root(big);
        examples -= examples < big ? examples : big;
        uint64_t more = (examples + batch - 1) / batch;
        more = more < inner - 1 ? more : inner - 1;
        examples -= examples < more * batch ? examples : more * batch;
        steps += 1 + more;
    }
    return steps;
}

dro_status dro__civr_check(dro_optimizer *o)
{
    return dro__check_parts(o, 2);
}

static dro_status start(dro_optimizer *o)
{
    const dro__civr_settings *set = o->settings;
    return dro__civr_start_with(o, set, (size_t)set->big);
}

void dro__civr_drop(dro_optimizer *o)
{
    dro__storm_drop(o);
    o->run.within = 0;
}

/* Batches must fit into what was allocated. */
void dro__civr_archive(dro_optimizer *o, dro__archive *ar)
{
    if (ar->mode == DRO__ARCHIVE_LOAD)
        ar->failed = ar->failed || o->run.big == 0 || dro__chunk(o, o->run.big) > o->slot_size ||
                     inner_batch(o, o->settings, o->run.big) > o->slot_size;
}

static const dro__param_row own[] = {
    DRO__INTEGER("batch", common.batch, dro__civr_settings, "0", 0, 1e9,
                 "examples in an inner batch, 0: ceil(sqrt(big))"),
    DRO__INTEGER("big", big, dro__civr_settings, "1024", 1, 1e12, "examples at a stage's start"),
    DRO__INTEGER("inner", inner, dro__civr_settings, "0", 0, 1e12,
                 "steps in a stage, 0: ceil(sqrt(big))"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_civr = {
    .name = "civr",
    .summary = "CIVR: variance reduction from big batches at every stage",
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
