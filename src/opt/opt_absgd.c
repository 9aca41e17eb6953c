/* ABSGD: momentum SGD on the weights exp(loss/lambda)/u.
 * Qi, Xu, Yin, Jin, Yang: "Attentional-Biased Stochastic Gradient Descent", 2020-2023.
 *
 *   u <- (1-gamma) u + gamma mean exp(loss/lambda)          (the first batch sets it)
 *   g  = sum_i exp(loss_i/lambda) / (b u) grad_i + weight_decay w
 *   m <- momentum m + g,   w <- prox(w - eta m)
 *
 * Deviations: u in log form with the cap of tilt.c; tilt=class and tilt=group track a mean loss per
 * group instead (u_g a moving average) and weigh by q_g. No correction for the moving w: that is what
 * COVER adds. */
#include "tilt.h"

typedef struct settings {
    dro__settings common;
    double momentum, gamma;
} settings;

typedef struct state {
    dro__tilt tilt;
    float *m, *grad;
    float *losses, *coef;
} state;

static dro_status start(dro_optimizer *o)
{
    state *s = o->state;
    size_t batch = (size_t)dro__settings_of(o)->batch;
    DRO_TRY(dro__tilt_create(o, &s->tilt));
    DRO_TRY(dro__slots_create(o, batch));
    DRO_TRY(dro__vector(o, o->dim, &s->m));
    DRO_TRY(dro__vector(o, o->dim, &s->grad));
    DRO_TRY(dro__host_vector(o, batch, &s->losses));
    return dro__host_vector(o, batch, &s->coef);
}

static void stop(dro_optimizer *o)
{
    state *s = o->state;
    dro__tilt_destroy(&s->tilt);
    dro__vector_free(o, s->m);
    dro__vector_free(o, s->grad);
    dro__free(s->losses);
    dro__free(s->coef);
}

static dro_status step(dro_optimizer *o)
{
    const settings *set = o->settings;
    state *s = o->state;
    dro_batch batch;
    bool restarted;
    DRO_TRY(dro__draw_next(o, (size_t)set->common.batch, &batch));
    DRO_TRY(dro__forward(o, o->w, &batch, 1, s->losses));
    DRO_TRY(dro__tilt_begin(o, &s->tilt, &restarted));
    DRO_TRY(dro__tilt_count(o, &s->tilt, &batch));
    dro__tilt_average(o, &s->tilt, &batch, s->losses, set->gamma);
    dro__tilt_weigh(o, &s->tilt, &batch, s->losses, s->coef);
    DRO_TRY(dro__backward(o, o->w, &batch, 1, s->coef, &s->grad));

    double eta = o->run.eta;
    dro__fused f = {
        .n = o->dim, .inputs = 3, .outputs = 2, .in = {s->grad, s->m, o->w}, .out = {s->m, o->w}};
    f.coef[0][0] = 1;
    f.coef[0][1] = set->momentum;
    f.coef[0][2] = set->common.weight_decay;
    for (int k = 0; k < 3; k++)
        f.coef[1][k] = -eta * f.coef[0][k];
    f.coef[1][2] += 1;
    dro__fused_step(o, &f, 1, eta);
    return DRO_OK;
}

static void archive(dro_optimizer *o, dro__archive *ar)
{
    state *s = o->state;
    dro__tilt_archive(&s->tilt, ar);
    dro__archive_vector(o, ar, s->m, o->dim);
}

static const dro__param own[] = {
    DRO__REAL("momentum", momentum, settings, "0.9", 0, 0.9999, "of the moving direction"),
    DRO__REAL("gamma", gamma, settings, "0.1", 1e-9, 1, "weight of the newest batch in u"),
    DRO__REAL("warmup", common.eta.warmup, settings, "100", 0, 1e15,
              "steps in which eta rises linearly from 0; below 1, a share of steps"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_absgd = {
    .name = "absgd",
    .summary = "momentum SGD on weights exp(loss/lambda)/u, u a moving average",
    .tables = {dro__params_common, dro__params_tilt, own},
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .vectors = 3,
    .robust = true,
    .groups = true,
    .start = start,
    .stop = stop,
    .step = step,
    .archive = archive,
};
