/* PES-SGDA: proximal epoch stochastic gradient descent ascent.
 * Guo, Yan, Yuan, Yang: "Fast Objective & Duality Gap Convergence for Non-Convex Strongly-Concave
 * Min-Max Problems with PL Condition", 2020, Algorithm 1 with SGDA inside.
 *
 *   stage k: phi(w, p) + gamma/2 |w - w_stage|^2, T_k = stage_steps growth^k steps of simultaneous
 *     w <- prox of SGD with eta/growth^k,   p <- project( p + dual_eta/growth^k grad_p )
 *   end:     w and p become the means of the stage's iterates
 *
 * Deviations: the projection keeps p_i >= delta/n. A mean of p costs O(n) to add to, so with n > 64
 * b only every (n / 64 b)-th iterate is added, and the last: O(b log n) per step, amortised. O(n)
 * memory. */
#include "primal_dual.h"

#include <math.h>
#include <string.h>

static dro_status start(dro_optimizer *o)
{
    return dro__pd_create(o, DRO__PD_STAGED | DRO__PD_P_MEAN);
}

static void add_to_mean(dro_optimizer *o, dro__pd *s)
{
    const double *p = dro__dual_values(s->p);
    for (int64_t i = 0; i < o->n; i++)
        s->p_sum[i] += p[i];
    o->run.p_terms++;
}

/* w and p from the means; the next stage begins. */
static void end_stage(dro_optimizer *o, dro__pd *s)
{
    double *p = dro__dual_values(s->p);
    for (int64_t i = 0; i < o->n; i++)
        p[i] = s->p_sum[i] / (double)o->run.p_terms;
    dro__dual_rebuild(s->p);
    memset(s->p_sum, 0, (size_t)o->n * sizeof *s->p_sum);
    o->be->copy_in(o->k.v[DRO__W], s->mean, o->dim * sizeof(float));
    o->run.p_terms = 0;
    o->run.within = 0;
    o->run.stages++;
}

static dro_status step(dro_optimizer *o)
{
    const dro__pd_settings *set = o->settings;
    dro__pd *s = o->extra;
    double scale = pow(set->growth, (double)o->run.stages);
    bool stage_ends = (double)o->run.within + 1 >= dro__pd_stage(o) * scale;
    dro_batch batch, dual;
    o->ticket.eta /= scale;
    DRO_TRY(dro__pd_gradient(o, s, &batch));
    DRO_TRY(dro__pd_dual_batch(o, &batch, &dual));
    float *losses = o->k.losses;
    if (set->sampling == DRO__SAMPLE_BY_P) {
        losses = s->dual_losses;
        DRO_TRY(dro__forward(o, o->k.v[DRO__W], &dual, 1, losses));
    }
    dro__pd_staged_move(o, s, o->ticket.eta);

    dro__pd_ascend(o, s, &dual, losses, set->dual_eta / scale);
    dro__swap(&s->mean, &s->mean_next);
    dro__swap(&o->k.v[DRO__W], &s->w_next);
    o->run.within++;
    int64_t every = o->n / (64 * set->common.batch);
    if (stage_ends || every <= 1 || o->run.within % (uint64_t)every == 0)
        add_to_mean(o, s);
    if (stage_ends)
        end_stage(o, s);
    return DRO_OK;
}

static const dro__param_row own[] = {
    DRO__REAL("stage_steps", stage_steps, dro__pd_settings, "100", 1e-9, 1e12,
              "steps of the first stage; below 1, a share of steps"),
    DRO__REAL("stage_growth", growth, dro__pd_settings, "10", 1, 1e6,
              "factor by which stages get longer and steps smaller"),
    DRO__REAL("gamma", gamma, dro__pd_settings, "0.1", 0, 1e9, "gamma in gamma/2 |w - w_stage|^2"),
    DRO__PD_DUAL_ETA,
    DRO__PD_DELTA,
    DRO__PD_SAMPLING,
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_pes_sgda = {
    .name = "pes-sgda",
    .summary = "PES-SGDA: proximal stages of simultaneous descent and ascent; O(n) memory",
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
