/* COVER: Compositional Optimal VariancE Reduction. Qi, Guo, Xu, Jin, Yang: "An Online Method for A
 * Class of Distributionally Robust Optimization with Non-Convex Objectives", NeurIPS 2021,
 * Algorithm 1 and Theorem 1.
 *
 *   w' = prox(w - eta v^T f'(u))
 *   u' = g(w'; z') + (1-a)(u - g(w; z'))
 *   v' = J(w'; z') + (1-a)(v - J(w; z'))
 *
 * for KL-DRO g = exp(loss/lambda), f = lambda log, kept as log_u and d = v/u (backend/weigh.h).
 *
 * Deviations:
 *  - z is a batch, not one example.
 *  - One pass over two batches at one point instead of one batch at two points (storm.c); the
 *    iterates are the same, and form=two-point runs it as printed.
 *  - exp beyond a cap continues as its tangent; an estimator that leaves [0.1, 10] of itself in one
 *    step starts afresh. Both are counted.
 *  - a = c eta^2 is a_rule=eta2, with the eta of the step just taken (the proofs' index). The
 *    default is automatic (weigh.h), because with a small fixed a the recursion can diverge.
 *  - Output is the last iterate; output=random draws tau first and stops there.
 *  - The default eta follows Theorem 1: eta / (1 + t/poly_start)^(1/3). */
#include "storm.h"

dro_status dro__cover_check(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    if (o->is_composite && (set->precondition || set->momentum > 0))
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: momentum and precondition are for the tilted loss, not for general "
                         "compositional problems",
                         o->cls->name);
    return dro__check_parts(o, set->form == DRO__FORM_TWO_POINT ? 1 : 2);
}

dro_status dro__cover_start(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    return dro__storm_create(o, (size_t)set->batch, set->form == DRO__FORM_TWO_POINT);
}

dro_status dro__cover_step(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    size_t batch = (size_t)set->batch;
    if (set->form == DRO__FORM_TWO_POINT)
        return dro__storm_step_two_point(o, batch);
    return dro__storm_step(o, batch, dro__last_step(o) ? 0 : batch);
}

static const dro__param_row own[] = {
    DRO__ETA_SCHEDULE("poly"),
    DRO__WARMUP("100"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_cover = {
    .name = "cover",
    .summary = "COVER: recursive variance reduction, polynomial steps; under dro train recover's "
               "schedule",
    .tables = {dro__params_common, dro__params_tilt, dro__params_objective, dro__params_storm,
               dro__params_scale, own},
    .settings_size = sizeof(dro__optimizer_settings),
    .vectors = 7,
    .composite = true,
    .robust = true,
    .groups = true,
    .async = true,
    .check = dro__cover_check,
    .start = dro__cover_start,
    .step = dro__cover_step,
    .drop = dro__storm_drop,
};
