/* ASC-PG: accelerated stochastic compositional proximal gradient. Wang, Liu, Fang: "Accelerating
 * Stochastic Composition Optimization", JMLR 2017, Algorithm 1.
 *
 *   w' = prox(w - eta J(w;D)^T f'(y))
 *   z  = (1 - 1/beta) w + w'/beta                 the extrapolated point
 *   y' = (1-beta) y + beta g(z; D')               D' is the next step's batch: one draw per step
 *   eta = eta/t^eta_power,   beta = min(1, beta_scale eta/t^beta_power),   t = 1, 2, ...
 *
 * D' enters the average at the beginning of the step that uses it, so that whatever can fail comes
 * before any update; the iterates are the same.
 *
 * Deviations: y in log form with the cap of weigh.h, carried over when lambda moves; with
 * tilt=class or group, y is the mean loss of each group and q weighs. The first batch sets y at
 * w[0]. */
#include "storm.h"

#include <math.h>
#include <string.h>

typedef struct settings {
    dro__optimizer_settings common;
    double eta_power, beta_power, beta_scale;
} settings;

/* Compositional problems. */
typedef struct state {
    double *y, *g, *slope; /* (inner) */
    float *jacobian;       /* (inner, dim) */
} state;

static dro_status start(dro_optimizer *o)
{
    o->k.plan.ahead = DRO__PHASE_AHEAD;
    DRO_TRY(dro__plain_start(o, DRO__PHASE_FOLLOW, DRO__MOVE_ascpg));
    DRO_TRY(dro__vector(o, o->dim, true, &o->k.v[DRO__Z]));
    if (!o->is_composite)
        return DRO_OK;
    size_t inner = o->composite.inner;
    state *s = o->extra = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for a compositional problem");
    DRO_TRY(dro__array(o, inner, sizeof(double), DRO__SAVED | DRO__UNDONE, &s->y));
    DRO_TRY(dro__array(o, inner, sizeof(double), 0, &s->g));
    DRO_TRY(dro__array(o, inner, sizeof(double), 0, &s->slope));
    return dro__vector(o, inner * o->dim, false, &s->jacobian);
}

static dro_status composite_step(dro_optimizer *o, const dro_batch *batch)
{
    state *s = o->extra;
    dro__step *k = &o->k;
    size_t inner = o->composite.inner;
    if (o->s.have) {
        DRO_TRY(dro__evaluate(o, k->v[DRO__Z], batch, 1, s->g, NULL));
        for (size_t j = 0; j < inner; j++)
            s->y[j] = (1 - o->s.beta) * s->y[j] + o->s.beta * s->g[j];
    }
    DRO_TRY(dro__evaluate(o, k->v[DRO__W], batch, 1, s->g, &s->jacobian));
    if (!o->s.have)
        memcpy(s->y, s->g, inner * sizeof *s->y);
    DRO_TRY(dro__outer(o, s->y, &o->s.loss, s->slope));
    o->s.have = 1;
    o->s.eta = o->ticket.eta;
    o->s.lambda = o->ticket.lambda;
    o->s.beta = o->s.a = o->ticket.beta;
    dro__composite_contract(o, s->slope, s->jacobian, k->v[DRO__G]);
    dro__finish_step(o);
    return DRO_OK;
}

static dro_status step(dro_optimizer *o)
{
    const settings *set = o->settings;
    double t = (double)o->run.step + 1;
    double beta = fmin(1, set->beta_scale * set->common.eta.value / pow(t, set->beta_power));
    dro_batch batch;
    o->ticket.beta = fmax(beta, 1e-12);
    o->ticket.eta /= pow(t, set->eta_power);
    o->ticket.ahead = o->run.step > 0;
    DRO_TRY(dro__draw_next(o, (size_t)set->common.batch, &batch));
    return o->is_composite ? composite_step(o, &batch) : dro__take_step(o, &batch, 1);
}

static const dro__param_row own[] = {
    DRO__REAL("eta_power", eta_power, settings, "0.5", 0, 2, "eta falls as t^-eta_power"),
    DRO__REAL("beta_power", beta_power, settings, "0.4", 0, 2, "beta falls as t^-beta_power"),
    DRO__REAL("beta_scale", beta_scale, settings, "2", 0, 1e9, "beta starts at beta_scale eta"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_ascpg = {
    .name = "ascpg",
    .summary = "ASC-PG: a moving average of g at an extrapolated point",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(settings),
    .vectors = 3,
    .composite = true,
    .robust = true,
    .groups = true,
    .async = true,
    .start = start,
    .step = step,
};
