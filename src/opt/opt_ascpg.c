/* ASC-PG: accelerated stochastic compositional proximal gradient.
 * Wang, Liu, Fang: "Accelerating Stochastic Composition Optimization", JMLR 2017, Algorithm 1.
 *
 *   w' = prox(w - eta J(w;D)^T f'(y))
 *   z  = (1 - 1/beta) w + w'/beta                      the extrapolated point
 *   y' = (1-beta) y + beta g(z; D')                    D' is the next step's batch: one draw per step
 *   eta = eta/t^eta_power,   beta = min(1, beta_scale eta/t^beta_power),   t = 1, 2, ...
 *
 * Deviations: y in log form with the cap of tilt.c, carried over when lambda moves; with tilt=class or
 * group, y is the mean loss of each group and q weighs (tilt.h). The first batch sets y at w[0]. */
#include "tilt.h"

#include <math.h>
#include <string.h>

typedef struct settings {
    dro__settings common;
    double eta_power, beta_power, beta_scale;
} settings;

typedef struct state {
    dro__tilt tilt;
    float *grad;                       /* (dim), or the Jacobian (inner, dim) */
    float *w_next, *z;                 /* (dim) */
    float *direction;                  /* (dim), compositional only */
    float *losses, *coef;              /* (batch) */
    double *y, *y_working, *g, *slope; /* (inner), compositional only */
    bool have, waits, live;
    dro_batch waiting;
    uint64_t waiting_position, waiting_count;
} state;

static dro_status start(dro_optimizer *o)
{
    state *s = o->state;
    size_t batch = (size_t)dro__settings_of(o)->batch;
    size_t inner = o->is_composite ? o->composite.inner : 1;
    DRO_TRY(dro__tilt_create(o, &s->tilt));
    DRO_TRY(dro__slots_create(o, batch));
    DRO_TRY(dro__vector(o, inner * o->dim, &s->grad));
    DRO_TRY(dro__vector(o, o->dim, &s->w_next));
    DRO_TRY(dro__vector(o, o->dim, &s->z));
    DRO_TRY(dro__vector(o, o->dim, &s->direction));
    DRO_TRY(dro__host_vector(o, batch, &s->losses));
    DRO_TRY(dro__host_vector(o, batch, &s->coef));
    s->y = dro__alloc(4 * inner, sizeof(double));
    if (!s->y)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for y of size %zu", inner);
    s->y_working = s->y + inner;
    s->g = s->y + 2 * inner;
    s->slope = s->y + 3 * inner;
    return DRO_OK;
}

static void stop(dro_optimizer *o)
{
    state *s = o->state;
    float *vectors[] = {s->grad, s->w_next, s->z, s->direction};
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++)
        dro__vector_free(o, vectors[k]);
    dro__free(s->losses);
    dro__free(s->coef);
    dro__free(s->y < s->y_working ? s->y : s->y_working);
    dro__tilt_destroy(&s->tilt);
}

/* The gradient of the batch at w, weighed by y, into *direction. */
static dro_status tilted_gradient(dro_optimizer *o, const dro_batch *batch, float **direction)
{
    state *s = o->state;
    bool restarted;
    DRO_TRY(dro__forward(o, o->w, batch, 1, s->losses));
    DRO_TRY(dro__tilt_begin(o, &s->tilt, &restarted));
    if (!s->tilt.have || !s->waits)
        DRO_TRY(dro__tilt_count(o, &s->tilt, batch));
    if (!s->tilt.have)
        dro__tilt_average(o, &s->tilt, batch, s->losses, 1);
    dro__tilt_weigh(o, &s->tilt, batch, s->losses, s->coef);
    *direction = s->grad;
    return dro__backward(o, o->w, batch, 1, s->coef, &s->grad);
}

static dro_status composite_gradient(dro_optimizer *o, const dro_batch *batch, float **direction)
{
    state *s = o->state;
    size_t inner = o->composite.inner;
    DRO_TRY(dro__evaluate(o, o->w, batch, 1, s->g, &s->grad));
    memcpy(s->y_working, s->have ? s->y : s->g, inner * sizeof *s->g);
    DRO_TRY(dro__outer(o, s->y_working, &o->run.loss, s->slope));
    for (size_t j = 0; j < inner; j++) {
        dro__fused f = {.n = o->dim,
                        .inputs = 2,
                        .outputs = 1,
                        .prox_out = -1,
                        .in = {s->grad + j * o->dim, s->direction},
                        .out = {s->direction}};
        f.coef[0][0] = s->slope[j];
        f.coef[0][1] = j > 0;
        o->ctx->backend->fused(o->ctx->pool, &f);
    }
    *direction = s->direction;
    return DRO_OK;
}

/* y' from the next batch at z. */
static dro_status follow(dro_optimizer *o, const dro_batch *next, double beta)
{
    state *s = o->state;
    if (!o->is_composite) {
        DRO_TRY(dro__forward(o, s->z, next, 1, s->losses));
        DRO_TRY(dro__tilt_count(o, &s->tilt, next));
        dro__tilt_average(o, &s->tilt, next, s->losses, beta);
        return DRO_OK;
    }
    DRO_TRY(dro__evaluate(o, s->z, next, 1, s->g, NULL));
    for (size_t j = 0; j < o->composite.inner; j++)
        s->y_working[j] = (1 - beta) * s->y_working[j] + beta * s->g[j];
    return DRO_OK;
}

static void move(dro_optimizer *o, const float *direction, double beta)
{
    state *s = o->state;
    dro__fused step = {
        .n = o->dim, .inputs = 2, .outputs = 1, .in = {direction, o->w}, .out = {s->w_next}};
    step.coef[0][0] = -o->run.eta;
    step.coef[0][1] = 1 - o->run.eta * dro__settings_of(o)->weight_decay;
    dro__fused_step(o, &step, 0, o->run.eta);
    dro__fused ahead = {.n = o->dim,
                        .inputs = 2,
                        .outputs = 1,
                        .in = {s->w_next, o->w},
                        .out = {s->z},
                        .prox_out = -1};
    ahead.coef[0][0] = 1 / beta;
    ahead.coef[0][1] = 1 - 1 / beta;
    o->ctx->backend->fused(o->ctx->pool, &ahead);
}

static dro_status step(dro_optimizer *o)
{
    const settings *set = o->settings;
    state *s = o->state;
    size_t b = (size_t)set->common.batch;
    double t = (double)o->run.step + 1;
    double beta = fmin(1, set->beta_scale * set->common.eta.value / pow(t, set->beta_power));
    dro_batch batch, next;
    float *direction;
    beta = fmax(beta, 1e-12);
    o->run.eta /= pow(t, set->eta_power);
    if (!s->waits)
        DRO_TRY(dro__draw_next(o, b, &batch));
    else if (!s->live || o->failed)
        DRO_TRY(dro__draw_again(o, s->waiting_position, s->waiting_count, &batch));
    else
        batch = s->waiting;
    DRO_TRY((o->is_composite ? composite_gradient : tilted_gradient)(o, &batch, &direction));
    move(o, direction, beta);
    dro_status more = dro__last_step(o) ? DRO_ERR_END : dro__draw_next(o, b, &next);
    if (more == DRO_OK)
        DRO_TRY(follow(o, &next, beta));
    else if (more != DRO_ERR_END)
        return more;

    float *w = o->w;
    o->w = s->w_next;
    s->w_next = w;
    double *y = s->y;
    s->y = s->y_working;
    s->y_working = y;
    s->have = true;
    s->waits = s->live = more == DRO_OK;
    if (s->waits) {
        s->waiting = next;
        s->waiting_position = next.position;
        s->waiting_count = next.count;
    }
    o->run.a = beta;
    return DRO_OK;
}

static void drop(dro_optimizer *o)
{
    ((state *)o->state)->waits = false;
}

static void archive(dro_optimizer *o, dro__archive *ar)
{
    state *s = o->state;
    dro__tilt_archive(&s->tilt, ar);
    dro__archive_flag(ar, &s->have);
    dro__archive_flag(ar, &s->waits);
    DRO__ARCHIVE(ar, s->waiting_position);
    DRO__ARCHIVE(ar, s->waiting_count);
    if (o->is_composite)
        dro__archive_bytes(ar, s->y, o->composite.inner * sizeof *s->y);
    if (ar->mode == DRO__ARCHIVE_LOAD) {
        s->live = false;
        ar->failed = ar->failed || s->waiting_count > o->slot_size;
    }
}

static const dro__param own[] = {
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
    .state_size = sizeof(state),
    .vectors = 5,
    .composite = true,
    .robust = true,
    .groups = true,
    .start = start,
    .stop = stop,
    .step = step,
    .drop = drop,
    .archive = archive,
};
