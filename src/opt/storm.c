/* The recursive estimator (storm.h) for the tilted loss: Algorithm 1's u and v as log_u and d = v/u.
 *
 * One pass. Algorithm 1 needs batch z[t+1] at w[t] and at w[t+1]. Both z[t] and z[t+1] are evaluated at
 * w[t] as two parts of one batch: z[t] completes the estimator there, z[t+1] is kept as the old-point
 * gradient of the next step. The iterates are Algorithm 1's; one weight vector; one large batch for the
 * hardware.
 *
 * The automatic a. With V the variance of d, D = |G1 - G0|^2 the noise of one correction and S = |G0 - d|^2
 * the noise of one batch (0.9 moving averages over earlier steps), the best weight of the newest batch is
 * Kalman's: in units of S, rho = V/S and delta = D/S,
 *     a = (rho + delta) / (1 + rho + delta),   rho <- (1-a)^2 (rho + delta) + a^2,   rho = 1 after a fresh start:
 * 1/2, 1/3, 1/4 ... at first, sqrt(delta) in the long run, and after eta has dropped d forgets the old
 * stage's noise as fast as it pays. Two bounds from below keep it honest: sqrt(delta), so that a recursion
 * whose correction is as noisy as a batch is not used at all; and 1 - exp(-eta |d|^2/lambda), because a
 * step along d lowers u by that share: an estimate must not outlive the step that it caused. (The last
 * matters when one rare example dominates d: until it is drawn again nothing else corrects for the move.
 * On least squares at small lambda its absence was the difference between 1/T and divergence.)
 *
 * The guard. F curves as 1/lambda, so with a small lambda an eta that suits the loss makes the weights
 * swing: every step undoes the last. The losses of one batch at two points show it: when their change
 * over lambda exceeds `guard` (rms, weighted), eta is reduced in proportion; and no step may lower log_u
 * by more than `guard` to first order. At gentle lambda nothing happens. The eta used is reported. */
#include "storm.h"

#include <math.h>
#include <string.h>

dro_status dro__storm_create(dro_optimizer *o, dro__storm *s, size_t largest, bool two_point)
{
    size_t inner = o->is_composite ? o->composite.inner : 1, size = inner * o->dim;
    DRO_TRY(dro__tilt_create(o, &s->tilt));
    DRO_TRY(dro__slots_create(o, largest));
    DRO_TRY(dro__vector(o, size, &s->d));
    DRO_TRY(dro__vector(o, size, &s->g_new));
    DRO_TRY(dro__vector(o, size, &s->g_old));
    if (two_point)
        DRO_TRY(dro__vector(o, o->dim, &s->w_old));
    else
        DRO_TRY(dro__vector(o, size, &s->g_next));
    if (!o->is_composite) {
        DRO_TRY(dro__host_vector(o, 2 * largest, &s->losses));
        DRO_TRY(dro__host_vector(o, largest, &s->old_losses));
        return dro__host_vector(o, 2 * largest, &s->coef);
    }
    DRO_TRY(dro__vector(o, o->dim, &s->direction));
    s->u = dro__alloc(7 * inner, sizeof(double));
    if (!s->u)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for u of size %zu", inner);
    s->u_working = s->u + inner;
    s->g_waiting = s->u + 2 * inner;
    s->g_waiting_working = s->u + 3 * inner;
    s->slope = s->u + 4 * inner;
    s->g_values = s->u + 5 * inner;
    return DRO_OK;
}

void dro__storm_destroy(dro_optimizer *o, dro__storm *s)
{
    float *vectors[] = {s->d, s->g_new, s->g_old, s->g_next, s->w_old, s->direction};
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++)
        dro__vector_free(o, vectors[k]);
    dro__free(s->losses);
    dro__free(s->coef);
    dro__free(s->old_losses);
    double *low = s->u < s->u_working ? s->u : s->u_working; /* they trade places */
    dro__free(low);
    dro__tilt_destroy(&s->tilt);
}

void dro__storm_archive(dro_optimizer *o, dro__storm *s, dro__archive *ar, bool two_point)
{
    size_t inner = o->is_composite ? o->composite.inner : 1, size = inner * o->dim;
    dro__tilt_archive(&s->tilt, ar);
    dro__archive_flag(ar, &s->waits);
    DRO__ARCHIVE(ar, s->waiting_position);
    DRO__ARCHIVE(ar, s->waiting_count);
    DRO__ARCHIVE(ar, s->spread);
    dro__archive_flag(ar, &s->observed);
    DRO__ARCHIVE(ar, s->change);
    DRO__ARCHIVE(ar, s->noise);
    DRO__ARCHIVE(ar, s->eta_before);
    DRO__ARCHIVE(ar, s->lambda_before);
    DRO__ARCHIVE(ar, s->pace);
    DRO__ARCHIVE(ar, s->square);
    DRO__ARCHIVE(ar, s->fall);
    dro__archive_flag(ar, &s->have);
    if (!o->is_composite && !two_point)
        dro__archive_bytes(ar, s->old_losses, o->slot_size * sizeof(float));
    if (o->is_composite) {
        dro__archive_bytes(ar, s->u, inner * sizeof *s->u);
        dro__archive_bytes(ar, s->g_waiting, inner * sizeof *s->g_waiting);
    }
    dro__archive_vector(o, ar, s->d, size);
    if (two_point)
        dro__archive_vector(o, ar, s->w_old, o->dim);
    else /* unless a batch waits, g_old is scratch */
        dro__archive_vector(o, ar, s->waits ? s->g_old : s->d, size);
    if (ar->mode == DRO__ARCHIVE_LOAD) {
        s->live = false;
        ar->failed = ar->failed || s->waiting_count > o->slot_size;
    }
}

void dro__storm_drop(dro__storm *s)
{
    s->waits = false;
    s->tilt.have = false;
    s->have = false;
}

/* |G1 - G0|^2 as a multiple of |G0 - d|^2 */
static double drift_of(const dro__storm *s)
{
    return s->observed && s->noise > 0 ? s->change / s->noise : 0;
}

double dro__storm_a(const dro_optimizer *o, const dro__storm *s)
{
    const dro__settings *set = dro__settings_of(o);
    if (set->a_rule == DRO__A_FIXED)
        return fmin(1, dro__schedule_at(o, &set->a, o->run.step, 2));
    if (set->a_rule == DRO__A_ETA2)
        return fmin(1, set->a_c * s->eta_before * s->eta_before);
    double drift = drift_of(s), known = s->spread + drift;
    double best = fmax(known / (1 + known), sqrt(drift));
    return fmin(1, fmax(best, fmax(set->a_min, 1 - exp(-s->fall))));
}

void dro__storm_observe(dro_optimizer *o, dro__storm *s, bool fresh, const double *norm)
{
    s->eta_before = o->run.eta;
    s->lambda_before = o->run.lambda;
    if (fresh) {
        s->spread = 1;
        return;
    }
    double a = o->run.a;
    s->spread = (1 - a) * (1 - a) * (s->spread + drift_of(s)) + a * a;
    double keep = s->observed ? 0.9 : 0;
    s->change = keep * s->change + (1 - keep) * norm[0];
    s->noise = keep * s->noise + (1 - keep) * norm[1];
    s->observed = true;
}

/* After the estimator has taken in a batch; twice: it was seen at the old point too. */
static void limit_eta(dro_optimizer *o, dro__storm *s, const dro_batch *batch, bool twice)
{
    double guard = dro__settings_of(o)->guard;
    if (guard <= 0)
        return;
    if (twice && s->eta_before > 0) {
        double moved = dro__tilt_movement(o, &s->tilt, batch, s->losses, s->old_losses, s->coef);
        double pace = moved / (s->eta_before * s->eta_before);
        s->pace = fmax(pace, 0.9 * s->pace + 0.1 * pace); /* quick to brake, slow to let go */
    }
    if (s->pace > 0)
        o->run.eta = fmin(o->run.eta, guard / sqrt(s->pace));
}

/* A step along d lowers log_u by eta |d|^2 / lambda, to first order. When one example dominates d, later
 * batches do not correct for that until it is seen again, and d would be followed too far. */
static void limit_fall(dro_optimizer *o, dro__storm *s)
{
    double guard = dro__settings_of(o)->guard;
    if (guard <= 0 || s->tilt.level == DRO__TILT_NONE)
        return;
    if (s->tilt.fresh)
        s->square = dro__norm2(o->ctx, o->dim, 1, s->g_new, 0, NULL);
    if (s->square > 0)
        o->run.eta = fmin(o->run.eta, guard * o->run.lambda / s->square);
}

dro_status dro__storm_current(dro_optimizer *o, dro__storm *s, size_t batch, bool *drawn,
                              dro_batch *current)
{
    *drawn = !s->waits;
    if (!s->waits)
        return dro__draw_next(o, batch, current);
    if (!s->live || o->failed)
        return dro__draw_again(o, s->waiting_position, s->waiting_count, current);
    *current = s->waiting;
    return DRO_OK;
}

void dro__storm_wait(dro__storm *s, const dro_batch *next)
{
    s->waits = s->live = next != NULL;
    if (!next)
        return;
    s->waiting = *next;
    s->waiting_position = next->position;
    s->waiting_count = next->count;
}

/* The end of a step, where nothing can fail: one pass moves d and w and measures the noise. The new w
 * goes to `to`. */
static void move(dro_optimizer *o, dro__storm *s, float *to)
{
    const dro__settings *set = dro__settings_of(o);
    limit_fall(o, s);
    double eta = o->run.eta, gain = s->tilt.gain, keep = s->tilt.keep * gain;
    dro__fused f = {.n = o->dim,
                    .inputs = 4,
                    .outputs = 2,
                    .norms = s->tilt.fresh ? 1 : 3,
                    .in = {s->g_new, s->g_old, s->d, o->w},
                    .out = {s->d, to}};
    double d[] = {gain, -keep, keep, 0};
    for (int k = 0; k < 4; k++) {
        f.coef[0][k] = f.norm_coef[0][k] = d[k];
        f.coef[1][k] = -eta * d[k];
    }
    f.coef[1][3] = 1 - eta * set->weight_decay;
    f.norm_coef[1][0] = f.norm_coef[2][1] = 1;
    f.norm_coef[1][1] = f.norm_coef[2][2] = -1;
    dro__fused_step(o, &f, 1, eta);
    s->square = f.norm[0];
    s->fall = s->tilt.level == DRO__TILT_NONE ? 0 : eta * s->square / o->run.lambda;
    dro__storm_observe(o, s, s->tilt.fresh, f.norm + 1);
}

static void trade(float **a, float **b)
{
    float *c = *a;
    *a = *b;
    *b = c;
}

dro_status dro__storm_step(dro_optimizer *o, dro__storm *s, double a, size_t batch, size_t next)
{
    if (o->is_composite)
        return dro__composite_step(o, s, a, batch, next);
    dro_batch parts[2];
    bool restarted, drawn;
    int count = 1;
    DRO_TRY(dro__storm_current(o, s, batch, &drawn, &parts[0]));
    if (drawn) /* never seen at the old point (a stream that had ended): nothing can be corrected */
        s->tilt.have = false;
    if (next) {
        dro_status status = dro__draw_next(o, next, &parts[1]);
        if (status == DRO_OK)
            count = 2;
        else if (status != DRO_ERR_END)
            return status;
    }
    DRO_TRY(dro__forward(o, o->w, parts, count, s->losses));
    DRO_TRY(dro__tilt_begin(o, &s->tilt, &restarted));
    if (drawn || restarted)
        DRO_TRY(dro__tilt_count(o, &s->tilt, &parts[0]));
    dro__tilt_update(o, &s->tilt, &parts[0], s->losses, a, s->coef);
    limit_eta(o, s, &parts[0], !drawn && !restarted);
    if (count == 2) {
        DRO_TRY(dro__tilt_count(o, &s->tilt, &parts[1]));
        dro__tilt_old(o, &s->tilt, &parts[1], s->losses + parts[0].count, o->run.lambda,
                      s->coef + parts[0].count);
    }
    float *grads[2] = {s->g_new, s->g_next};
    DRO_TRY(dro__backward(o, o->w, parts, count, s->coef, grads));
    o->run.a = s->tilt.fresh ? 1 : a;
    if (count == 2)
        memcpy(s->old_losses, s->losses + parts[0].count, parts[1].count * sizeof(float));
    move(o, s, o->w);
    trade(&s->g_old, &s->g_next);
    dro__storm_wait(s, count == 2 ? &parts[1] : NULL);
    return DRO_OK;
}

dro_status dro__storm_step_two_point(dro_optimizer *o, dro__storm *s, double a, size_t batch)
{
    if (o->is_composite)
        return dro__composite_step_two_point(o, s, a, batch);
    dro_batch z;
    bool restarted;
    DRO_TRY(dro__draw_next(o, batch, &z));
    DRO_TRY(dro__tilt_begin(o, &s->tilt, &restarted));
    DRO_TRY(dro__tilt_count(o, &s->tilt, &z));
    bool twice = s->tilt.have;
    if (twice) {
        DRO_TRY(dro__forward(o, s->w_old, &z, 1, s->old_losses));
        dro__tilt_old(o, &s->tilt, &z, s->old_losses, s->lambda_before, s->coef);
        DRO_TRY(dro__backward(o, s->w_old, &z, 1, s->coef, &s->g_old));
    }
    DRO_TRY(dro__forward(o, o->w, &z, 1, s->losses));
    dro__tilt_update(o, &s->tilt, &z, s->losses, a, s->coef);
    limit_eta(o, s, &z, twice);
    DRO_TRY(dro__backward(o, o->w, &z, 1, s->coef, &s->g_new));
    o->run.a = s->tilt.fresh ? 1 : a;
    move(o, s, s->w_old);
    trade(&o->w, &s->w_old);
    return DRO_OK;
}

/* The next batch at the point that is being left, on its own. */
static dro_status look_ahead(dro_optimizer *o, dro__storm *s, size_t next, dro_batch *batch)
{
    DRO_TRY(dro__draw_next(o, next, batch));
    DRO_TRY(dro__tilt_count(o, &s->tilt, batch));
    DRO_TRY(dro__forward(o, o->w, batch, 1, s->losses));
    dro__tilt_old(o, &s->tilt, batch, s->losses, o->run.lambda, s->coef);
    return dro__backward(o, o->w, batch, 1, s->coef, &s->g_next);
}

dro_status dro__storm_step_big(dro_optimizer *o, dro__storm *s, size_t total, size_t next)
{
    if (o->is_composite)
        return dro__composite_step_big(o, s, total, next);
    bool restarted;
    size_t left = total;
    DRO_TRY(dro__big_size(o, &total));
    DRO_TRY(dro__tilt_begin(o, &s->tilt, &restarted));
    dro__tilt_big_begin(&s->tilt);
    /* g_old is free now (the estimator starts afresh): it gathers the direction. */
    dro__fused zero = {.n = o->dim, .outputs = 1, .out = {s->g_old}, .prox_out = -1};
    o->ctx->backend->fused(o->ctx->pool, &zero);
    for (size_t size; (size = dro__big_next(o, &left));) {
        dro_batch part;
        DRO_TRY(dro__draw_whole(o, size, &part));
        DRO_TRY(dro__tilt_count(o, &s->tilt, &part));
        DRO_TRY(dro__forward(o, o->w, &part, 1, s->losses));
        dro__tilt_big_chunk(o, &s->tilt, &part, s->losses, (double)total, s->coef);
        DRO_TRY(dro__backward(o, o->w, &part, 1, s->coef, &s->g_new));
        dro__fused add = {.n = o->dim,
                          .inputs = 2,
                          .outputs = 1,
                          .in = {s->g_old, s->g_new},
                          .out = {s->g_old},
                          .prox_out = -1};
        add.coef[0][0] = s->tilt.keep;
        add.coef[0][1] = s->tilt.gain;
        o->ctx->backend->fused(o->ctx->pool, &add);
    }
    o->sweeping = false;
    dro__tilt_big_end(o, &s->tilt, (double)total);
    dro_batch ahead;
    dro_status status = next ? look_ahead(o, s, next, &ahead) : DRO_OK;
    if (status == DRO_ERR_END)
        next = 0;
    else
        DRO_TRY(status);
    o->run.a = 1;
    s->tilt.gain = 1;
    s->tilt.keep = 0;
    trade(&s->g_new, &s->g_old);
    move(o, s, o->w);
    trade(&s->g_old, &s->g_next);
    dro__storm_wait(s, next ? &ahead : NULL);
    return DRO_OK;
}
