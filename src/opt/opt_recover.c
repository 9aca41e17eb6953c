/* RECOVER: COVER in stages, for objectives with a Polyak-Lojasiewicz condition. Qi, Guo, Xu, Jin,
 * Yang: "An Online Method for A Class of Distributionally Robust Optimization with Non-Convex
 * Objectives", NeurIPS 2021, Algorithm 2 and Theorem 2.
 *
 *   (w_k, u_k, v_k) = COVER(w_{k-1}, u_{k-1}, v_{k-1}; eta_k, T_k)
 *
 * A stage passes w and the estimators u and v to the next, so a restart is only a smaller eta: no
 * new estimate, no large batch. The stages are schedules (schedule.c): `step` divides eta at the
 * steps named by `stages` (the paper's experiments), `theory` is Theorem 2. The recursion, its
 * deviations and the automatic a are COVER's (opt_cover.c, backend/weigh.h).
 *
 * output=random makes every stage end at a random step, as Algorithm 1 returns a random iterate. */
#include "storm.h"

static const dro__param_row own[] = {
    DRO__ETA_SCHEDULE("step"),
    DRO__WARMUP("100"),
    DRO__STAGES("0.5,0.75"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_recover = {
    .name = "recover",
    .summary = "RECOVER: COVER in stages that keep w, u and v; the recommended method",
    .tables = {dro__params_common, dro__params_tilt, dro__params_objective, dro__params_storm,
               dro__params_scale, dro__params_sam, own},
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
