/* PG-SMD2: proximally guided stochastic mirror descent.
 * Rafique, Liu, Lin, Yang: "Weakly-Convex-Concave Min-Max Optimization: Provable Algorithms and
 * Applications in Machine Learning", 2018, Algorithm 2 (the variant for strongly concave duals).
 *
 *   stage k: min over w of phi(w, p) + gamma/2 |w - w_stage|^2, T_k = stage_steps (k+1) steps of
 *     w <- prox of SGD with eta/(k+1),    p_i <- p_i exp(dual_eta/(k+1) grad_p_i) / sum
 *   end:     w = mean of the stage's iterates, p = the exact maximiser, p_i ~ exp(loss_i(w)/lambda)
 *
 * The last costs n evaluations per stage, and they are counted. Deviations: the proximal term is
 * solved for, not linearised; the exponent of a single change of p is limited to +-cap (counted).
 * O(n) memory, O(b log n) time for a step. */
#include "primal_dual.h"

#include <math.h>
#include <string.h>

static dro_status start(dro_optimizer *o)
{
    return dro__pd_create(o, DRO__PD_STAGED | DRO__PD_ALL_LOSSES);
}

/* The losses of all examples at the mean of the stage's iterates. */
static dro_status evaluate_all(dro_optimizer *o, dro__pd *s)
{
    o->sweeping = true;
    for (int64_t at = 0; at < o->n;) {
        size_t size = dro__chunk(o, (size_t)(o->n - at));
        dro_batch batch;
        for (size_t i = 0; i < size; i++)
            s->ids[i] = at + (int64_t)i;
        DRO_TRY(dro__gather(o, s->ids, size, &batch));
        DRO_TRY(dro__forward(o, s->mean_next, &batch, 1, s->dual_losses));
        memcpy(s->all_losses + at, s->dual_losses, size * sizeof(float));
        at += (int64_t)size;
    }
    o->sweeping = false;
    return DRO_OK;
}

static void reset_p(dro_optimizer *o, dro__pd *s)
{
    double top = -HUGE_VAL, sum = 0, *p = dro__dual_values(s->p);
    for (int64_t i = 0; i < o->n; i++)
        top = fmax(top, (double)s->all_losses[i]);
    for (int64_t i = 0; i < o->n; i++)
        sum += p[i] = fmax(exp(((double)s->all_losses[i] - top) / o->s.lambda), 1e-280);
    for (int64_t i = 0; i < o->n; i++)
        p[i] /= sum;
    dro__dual_rebuild(s->p);
}

static dro_status step(dro_optimizer *o)
{
    const dro__pd_settings *set = o->settings;
    dro__pd *s = o->extra;
    double k = (double)o->run.stages + 1;
    bool stage_ends = (double)o->run.within + 1 >= dro__pd_stage(o) * k;
    dro_batch batch, dual;
    o->ticket.eta /= k;
    DRO_TRY(dro__pd_gradient(o, s, &batch));
    DRO_TRY(dro__pd_dual_batch(o, &batch, &dual));
    float *losses = o->k.losses;
    if (set->sampling == DRO__SAMPLE_BY_P) {
        losses = s->dual_losses;
        DRO_TRY(dro__forward(o, o->k.v[DRO__W], &dual, 1, losses));
    }
    dro__pd_staged_move(o, s, o->ticket.eta);
    bool reset = stage_ends && !o->run.keep_p;
    if (reset)
        DRO_TRY(evaluate_all(o, s));

    if (reset)
        reset_p(o, s);
    else
        dro__pd_ascend_entropic(o, s, &dual, losses, set->dual_eta / k);
    dro__swap(&s->mean, &s->mean_next);
    dro__swap(&o->k.v[DRO__W], &s->w_next);
    o->run.within++;
    if (stage_ends) {
        o->be->copy_in(o->k.v[DRO__W], s->mean, o->dim * sizeof(float));
        o->run.within = 0;
        o->run.keep_p = 0;
        o->run.stages++;
    }
    return DRO_OK;
}

static const dro__param_row own[] = {
    DRO__REAL("stage_steps", stage_steps, dro__pd_settings, "100", 1e-9, 1e12,
              "steps of the first stage; stage k has k+1 times as many; below 1, a share of steps"),
    DRO__REAL("gamma", gamma, dro__pd_settings, "0.1", 0, 1e9, "gamma in gamma/2 |w - w_stage|^2"),
    DRO__PD_DUAL_ETA,
    DRO__PD_SAMPLING,
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_pg_smd2 = {
    .name = "pg-smd2",
    .summary = "PG-SMD2: proximally guided stages, mirror ascent in p; O(n) memory",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(dro__pd_settings),
    .vectors = 6,
    .robust = true,
    .needs_n = true,
    .start = start,
    .stop = dro__pd_stop,
    .step = step,
    .drop = dro__pd_drop,
    .archive = dro__pd_archive,
};
