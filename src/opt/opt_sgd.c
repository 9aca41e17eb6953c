/* SGD with momentum: the yardstick. It minimises the mean loss, not the robust objective.
 *
 *   g = mean grad + weight_decay w,   m <- momentum m + g,   w <- prox(w - eta m)
 *
 * Nesterov: the step is along g + momentum m. The same form as PyTorch's SGD, so settings carry over. */
#include "opt.h"

typedef struct settings {
    dro__settings common;
    double momentum;
    int32_t nesterov;
} settings;

typedef struct state {
    float *m, *grad;      /* (dim) */
    float *losses, *coef; /* (batch) */
} state;

static dro_status start(dro_optimizer *o)
{
    state *s = o->state;
    size_t batch = (size_t)dro__settings_of(o)->batch;
    DRO_TRY(dro__slots_create(o, batch));
    DRO_TRY(dro__vector(o, o->dim, &s->m));
    DRO_TRY(dro__vector(o, o->dim, &s->grad));
    DRO_TRY(dro__host_vector(o, batch, &s->losses));
    DRO_TRY(dro__host_vector(o, batch, &s->coef));
    const settings *set = o->settings;
    dro__step_plan plan = {
        .kind = DRO__STEP_SGD, .d = s->m, .momentum = set->momentum, .nesterov = set->nesterov};
    dro__device_open(o, &plan);
    return DRO_OK;
}

static void stop(dro_optimizer *o)
{
    state *s = o->state;
    dro__vector_free(o, s->m);
    dro__vector_free(o, s->grad);
    dro__free(s->losses);
    dro__free(s->coef);
}

/* ---- on a device that is not waited for ---- */

static dro_status push(dro_optimizer *o)
{
    dro__step_state told = dro__device_told(o);
    return o->queue->push(o->queue->user, &told, NULL, NULL, NULL, 0);
}

static dro_status pull(dro_optimizer *o, dro__step_state *now)
{
    return o->queue->pull(o->queue->user, now, NULL, NULL);
}

static void rewind_step(dro_optimizer *o, const dro__trail *trail)
{
    (void)o, (void)trail; /* what it needs is all in o->run */
}

static dro_status queue_step(dro_optimizer *o)
{
    dro__trail before = {.run = o->before};
    dro__step_ticket ticket = {.eta = o->run.eta};
    dro_batch batch;
    DRO_TRY(dro__draw_next(o, (size_t)dro__settings_of(o)->batch, &batch));
    before.parts[0] = (dro__trail_part){batch.position, batch.count};
    DRO_TRY(dro__device_step(o, &batch, 1, &ticket));
    dro__device_trail(o, &before);
    return DRO_OK;
}

static dro_status step(dro_optimizer *o)
{
    const settings *set = o->settings;
    state *s = o->state;
    dro_batch batch;
    if (o->queue)
        return queue_step(o);
    DRO_TRY(dro__draw_next(o, (size_t)set->common.batch, &batch));
    size_t b = batch.count;
    DRO_TRY(dro__forward(o, o->w, &batch, 1, s->losses));
    double loss = 0;
    for (size_t i = 0; i < b; i++) {
        loss += (double)s->losses[i];
        s->coef[i] = 1 / (float)b;
    }
    DRO_TRY(dro__backward(o, o->w, &batch, 1, s->coef, &s->grad));
    o->run.loss = loss / (double)b;
    o->run.largest_weight = o->run.effective = 1;

    double eta = o->run.eta, mu = set->momentum, decay = set->common.weight_decay;
    dro__fused f = {
        .n = o->dim, .inputs = 3, .outputs = 2, .in = {s->grad, s->m, o->w}, .out = {s->m, o->w}};
    double along[] = {set->nesterov ? 1 + mu : 1, set->nesterov ? mu * mu : mu,
                      (set->nesterov ? 1 + mu : 1) * decay};
    f.coef[0][0] = 1;
    f.coef[0][1] = mu;
    f.coef[0][2] = decay;
    for (int k = 0; k < 3; k++)
        f.coef[1][k] = -eta * along[k];
    f.coef[1][2] += 1;
    dro__fused_step(o, &f, 1, eta);
    return DRO_OK;
}

static void archive(dro_optimizer *o, dro__archive *ar)
{
    state *s = o->state;
    dro__archive_vector(o, ar, s->m, o->dim);
}

static const dro__param own[] = {
    DRO__REAL("momentum", momentum, settings, "0.9", 0, 0.9999, "of the moving direction"),
    DRO__CHOICE("nesterov", nesterov, settings, "no", "no|yes", "look ahead along the direction"),
    DRO__PARAMS_END,
};

const dro__optimizer_class dro__optimizer_sgd = {
    .name = "sgd",
    .summary = "momentum SGD on the mean loss: the yardstick",
    .tables = {dro__params_common, own},
    .settings_size = sizeof(settings),
    .state_size = sizeof(state),
    .vectors = 3,
    .start = start,
    .stop = stop,
    .step = step,
    .archive = archive,
    .push = push,
    .pull = pull,
    .rewind = rewind_step,
};
