/* Shared parts of the primal-dual methods (primal_dual.h). */
#include "primal_dual.h"

#include <math.h>
#include <string.h>

enum { STREAM_DUAL = 0x6475 };

double dro__pd_stage(const dro_optimizer *o)
{
    const dro__pd_settings *set = o->settings;
    return fmax(1, dro__as_steps(&set->common, set->stage_steps));
}

dro_status dro__pd_create(dro_optimizer *o, dro__pd *s, unsigned extras)
{
    size_t batch = (size_t)dro__settings_of(o)->batch, n = (size_t)o->n;
    size_t chunk = dro__chunk(o, n), largest = batch > chunk ? batch : chunk;
    const dro__pd_settings *set = o->settings;
    if ((extras & DRO__PD_STAGED) && set->stage_steps < 1 && set->common.steps == 0)
        return dro__fail(o->ctx, DRO_ERR_RANGE, "stage_steps %g is a share of steps: set steps",
                         set->stage_steps);
    DRO_TRY(dro__dual_create(o->ctx, o->n, &s->p));
    DRO_TRY(dro__slots_create(o, largest));
    DRO_TRY(dro__vector(o, o->dim, &s->grad));
    DRO_TRY(dro__vector(o, o->dim, &s->w_next));
    if (extras & DRO__PD_STAGED) {
        DRO_TRY(dro__vector(o, o->dim, &s->w_ref));
        DRO_TRY(dro__vector(o, o->dim, &s->mean));
        DRO_TRY(dro__vector(o, o->dim, &s->mean_next));
    }
    DRO_TRY(dro__host_vector(o, largest, &s->losses));
    DRO_TRY(dro__host_vector(o, largest, &s->dual_losses));
    DRO_TRY(dro__host_vector(o, largest, &s->coef));
    s->ids = dro__alloc(largest, sizeof *s->ids);
    s->before = dro__alloc(largest, sizeof *s->before);
    if (extras & DRO__PD_ALL_LOSSES)
        s->all_losses = dro__alloc(n, sizeof *s->all_losses);
    if (extras & DRO__PD_P_MEAN)
        s->p_sum = dro__alloc(n, sizeof *s->p_sum);
    if (!s->ids || !s->before || ((extras & DRO__PD_ALL_LOSSES) && !s->all_losses) ||
        ((extras & DRO__PD_P_MEAN) && !s->p_sum))
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for %zu examples", n);
    return DRO_OK;
}

void dro__pd_stop(dro_optimizer *o)
{
    dro__pd *s = o->state;
    float *vectors[] = {s->grad, s->w_next, s->w_ref, s->mean, s->mean_next};
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++)
        dro__vector_free(o, vectors[k]);
    dro__dual_destroy(s->p);
    dro__free(s->losses);
    dro__free(s->dual_losses);
    dro__free(s->coef);
    dro__free(s->ids);
    dro__free(s->before);
    dro__free(s->all_losses);
    dro__free(s->p_sum);
}

void dro__pd_drop(dro_optimizer *o)
{
    dro__pd *s = o->state;
    if (o->sweeping)
        s->keep_p = true;
    else
        s->drawn += (uint64_t)dro__settings_of(o)->batch;
}

void dro__pd_archive(dro_optimizer *o, dro__archive *ar)
{
    dro__pd *s = o->state;
    DRO__ARCHIVE(ar, s->drawn);
    DRO__ARCHIVE(ar, s->stage);
    DRO__ARCHIVE(ar, s->within);
    DRO__ARCHIVE(ar, s->p_terms);
    dro__archive_flag(ar, &s->keep_p);
    dro__dual_archive(s->p, ar);
    if (s->w_ref) {
        /* at the start of a stage w itself is the reference, and w_ref scratch */
        bool scratch = ar->mode == DRO__ARCHIVE_SAVE && s->within == 0;
        dro__archive_vector(o, ar, scratch ? o->w : s->w_ref, o->dim);
        dro__archive_vector(o, ar, s->mean, o->dim);
    }
    if (s->p_sum)
        dro__archive_bytes(ar, s->p_sum, (size_t)o->n * sizeof *s->p_sum);
}

/* ---- gradients ---- */

static double weight(const dro_optimizer *o, dro__pd *s, int64_t id)
{
    (void)o;
    return fmax(dro__dual_get(s->p, id) / dro__dual_total(s->p), 1e-300);
}

static dro_status check_ids(dro_optimizer *o, const dro_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!batch->ids || batch->ids[i] < 0 || batch->ids[i] >= o->n)
            return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                             "%s needs the ids of a batch: that of example %zu is %lld, expected 0 "
                             "to %lld",
                             o->cls->name, i, batch->ids ? (long long)batch->ids[i] : -1,
                             (long long)o->n - 1);
    return DRO_OK;
}

dro_status dro__pd_gradient(dro_optimizer *o, dro__pd *s, dro_batch *batch)
{
    const dro__pd_settings *set = o->settings;
    size_t b = (size_t)set->common.batch;
    bool by_p = set->sampling == DRO__SAMPLE_BY_P;
    if (by_p) {
        for (size_t i = 0; i < b; i++)
            s->ids[i] = dro__dual_find(
                s->p, dro__random_unit((uint64_t)set->common.seed, STREAM_DUAL, s->drawn++));
        DRO_TRY(dro__gather(o, s->ids, b, batch));
        o->run.examples += b;
    } else {
        DRO_TRY(dro__draw_next(o, b, batch));
        DRO_TRY(check_ids(o, batch));
    }
    DRO_TRY(dro__forward(o, o->w, batch, 1, s->losses));
    double loss = 0, top = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < b; i++) {
        double c = by_p ? 1 : (double)o->n * weight(o, s, batch->ids[i]);
        s->coef[i] = (float)(c / (double)b);
        loss += (double)s->losses[i];
        top = fmax(top, c);
        sum += c;
        squares += c * c;
    }
    o->run.loss = loss / (double)b;
    o->run.largest_weight = top * (double)b / sum;
    o->run.effective = sum * sum / (squares * (double)b);
    return dro__backward(o, o->w, batch, 1, s->coef, &s->grad);
}

dro_status dro__pd_dual_batch(dro_optimizer *o, const dro_batch *batch, dro_batch *dual)
{
    const dro__pd_settings *set = o->settings;
    if (set->sampling == DRO__SAMPLE_BY_P) {
        DRO_TRY(dro__draw_next(o, (size_t)set->common.batch, dual));
        return check_ids(o, dual);
    }
    *dual = *batch;
    return DRO_OK;
}

/* step * n (loss - lambda (log(n p) + 1)) / b for every example, from p as it is before any moves. */
static double change(const dro_optimizer *o, double p, double loss, double step, size_t b)
{
    double n = (double)o->n;
    return step * n * (loss - o->run.lambda * (log(n * p) + 1)) / (double)b;
}

void dro__pd_ascend(dro_optimizer *o, dro__pd *s, const dro_batch *batch, const float *losses,
                    double step)
{
    const dro__pd_settings *set = o->settings;
    for (size_t i = 0; i < batch->count; i++)
        s->before[i] = weight(o, s, batch->ids[i]);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t id = batch->ids[i];
        double add = change(o, s->before[i], (double)losses[i], step, batch->count);
        dro__dual_set(s->p, id, dro__dual_get(s->p, id) + add);
    }
    dro__dual_project(s->p, set->delta / (double)o->n);
}

void dro__pd_ascend_entropic(dro_optimizer *o, dro__pd *s, const dro_batch *batch,
                             const float *losses, double step)
{
    double cap = dro__settings_of(o)->cap;
    for (size_t i = 0; i < batch->count; i++)
        s->before[i] = weight(o, s, batch->ids[i]);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t id = batch->ids[i];
        double x = change(o, s->before[i], (double)losses[i], step, batch->count);
        o->run.caps += fabs(x) > cap;
        x = fmin(fmax(x, -cap), cap);
        dro__dual_set(s->p, id, fmax(dro__dual_get(s->p, id) * exp(x), 1e-280));
    }
    double total = dro__dual_total(s->p);
    if (total > 1e50 || total < 1e-50) { /* far from 1: bring all back, once in a long while */
        double *values = dro__dual_values(s->p);
        for (int64_t i = 0; i < o->n; i++)
            values[i] /= total;
        dro__dual_rebuild(s->p);
    }
}

void dro__pd_staged_move(dro_optimizer *o, dro__pd *s, double eta)
{
    const dro__pd_settings *set = o->settings;
    double shrink = 1 / (1 + eta * set->gamma);
    dro__fused f = {.n = o->dim,
                    .inputs = 3,
                    .outputs = 1,
                    .in = {s->grad, o->w, s->w_ref},
                    .out = {s->w_next}};
    f.coef[0][0] = -eta * shrink;
    f.coef[0][1] = (1 - eta * set->common.weight_decay) * shrink;
    f.coef[0][2] = eta * set->gamma * shrink;
    if (s->within == 0) { /* the stage begins here: w itself is the reference */
        f.coef[0][1] += f.coef[0][2];
        f.coef[0][2] = 0;
        f.outputs = 2;
        f.out[1] = s->w_ref;
        f.coef[1][1] = 1;
    }
    dro__fused_step(o, &f, 0, eta * shrink);
    dro__fused mean = {.n = o->dim,
                       .inputs = 2,
                       .outputs = 1,
                       .in = {s->w_next, s->mean},
                       .out = {s->mean_next},
                       .prox_out = -1};
    double k = (double)s->within + 1;
    mean.coef[0][0] = 1 / k;
    mean.coef[0][1] = 1 - 1 / k;
    o->ctx->backend->fused(o->ctx->pool, &mean);
}
