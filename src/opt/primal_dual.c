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

dro_status dro__pd_create(dro_optimizer *o, unsigned extras)
{
    size_t batch = (size_t)dro__settings_of(o)->batch, n = (size_t)o->n;
    size_t chunk = dro__chunk(o, n), largest = batch > chunk ? batch : chunk;
    const dro__pd_settings *set = o->settings;
    if ((extras & DRO__PD_STAGED) && set->stage_steps < 1 && set->common.steps == 0)
        return dro__fail(o->ctx, DRO_ERR_RANGE, "stage_steps %g is a share of steps: set steps",
                         set->stage_steps);
    dro__pd *s = o->extra = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for a primal-dual method");
    DRO_TRY(dro__dual_create(o->ctx, o->n, &s->p));
    DRO_TRY(dro__slots_create(o, largest));
    DRO_TRY(dro__vector(o, o->dim, false, &o->k.v[DRO__G]));
    DRO_TRY(dro__vector(o, o->dim, false, &s->w_next));
    if (extras & DRO__PD_STAGED) {
        DRO_TRY(dro__vector(o, o->dim, true, &s->w_ref));
        DRO_TRY(dro__vector(o, o->dim, true, &s->mean));
        DRO_TRY(dro__vector(o, o->dim, false, &s->mean_next));
    }
    DRO_TRY(dro__losses_create(o, largest));
    DRO_TRY(dro__array(o, largest, sizeof(float), 0, &s->dual_losses));
    DRO_TRY(dro__array(o, largest, sizeof(int64_t), 0, &s->ids));
    DRO_TRY(dro__array(o, largest, sizeof(double), 0, &s->before));
    if (extras & DRO__PD_ALL_LOSSES)
        DRO_TRY(dro__array(o, n, sizeof(float), 0, &s->all_losses));
    if (extras & DRO__PD_P_MEAN)
        DRO_TRY(dro__array(o, n, sizeof(double), DRO__SAVED, &s->p_sum));
    return DRO_OK;
}

void dro__pd_stop(dro_optimizer *o)
{
    dro__pd *s = o->extra;
    if (s)
        dro__dual_destroy(s->p);
}

void dro__pd_drop(dro_optimizer *o)
{
    if (o->sweeping)
        o->run.keep_p = 1;
    else
        o->run.drawn += (uint64_t)dro__settings_of(o)->batch;
}

void dro__pd_archive(dro_optimizer *o, dro__archive *ar)
{
    dro__pd *s = o->extra;
    dro__dual_archive(s->p, ar);
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
    dro__step *k = &o->k;
    o->s.eta = o->ticket.eta;
    o->s.lambda = o->ticket.lambda;
    if (by_p) {
        for (size_t i = 0; i < b; i++)
            s->ids[i] = dro__dual_find(
                s->p, dro__random_unit((uint64_t)set->common.seed, STREAM_DUAL, o->run.drawn++));
        DRO_TRY(dro__gather(o, s->ids, b, batch));
        o->run.examples += b;
    } else {
        DRO_TRY(dro__draw_next(o, b, batch));
        DRO_TRY(check_ids(o, batch));
    }
    DRO_TRY(dro__forward(o, k->v[DRO__W], batch, 1, k->losses));
    double loss = 0, top = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < b; i++) {
        double c = by_p ? 1 : (double)o->n * weight(o, s, batch->ids[i]);
        k->coef[i] = (float)(c / (double)b);
        loss += (double)k->losses[i];
        top = fmax(top, c);
        sum += c;
        squares += c * c;
    }
    o->s.loss = loss / (double)b;
    o->s.largest_weight = top * (double)b / sum;
    o->s.effective = sum * sum / (squares * (double)b);
    return dro__backward(o, k->v[DRO__W], batch, 1, k->coef, &k->v[DRO__G]);
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

/* step * n (loss - lambda (log(n p) + 1)) / b for every example, from p as it is before any
 * moves. */
static double change(const dro_optimizer *o, double p, double loss, double step, size_t b)
{
    double n = (double)o->n;
    return step * n * (loss - o->s.lambda * (log(n * p) + 1)) / (double)b;
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
        o->s.caps += fabs(x) > cap;
        x = fmin(fmax(x, -cap), cap);
        dro__dual_set(s->p, id, fmax(dro__dual_get(s->p, id) * exp(x), 1e-280));
    }
    double total = dro__dual_total(s->p);
    if (total > 1e50 || total < 1e-50) { /* rare: rescale all */
        double *values = dro__dual_values(s->p);
        for (int64_t i = 0; i < o->n; i++)
            values[i] /= total;
        dro__dual_rebuild(s->p);
    }
}

void dro__pd_staged_move(dro_optimizer *o, dro__pd *s, double eta)
{
    const dro__pd_settings *set = o->settings;
    float *w = o->k.v[DRO__W];
    double shrink = 1 / (1 + eta * set->gamma), pull = eta * set->gamma * shrink;
    double k = (double)o->run.within + 1;
    bool begins = o->run.within == 0; /* the stage begins here: w itself is the reference */
    dro__combination c = {.out = s->w_next, .eta = eta * shrink, .plus = true, .prox = true};
    c.x[0] = w, c.c[0] = (1 - eta * set->common.weight_decay) * shrink - 1 + (begins ? pull : 0);
    c.x[1] = o->k.v[DRO__G], c.c[1] = -eta * shrink;
    c.x[2] = begins ? NULL : s->w_ref, c.c[2] = pull;
    dro__combine(o, &c);
    if (begins)
        dro__combine(o, &(dro__combination){.out = s->w_ref, .x = {w}, .plus = true});
    dro__combine(o, &(dro__combination){
                        .out = s->mean_next, .x = {s->mean, s->w_next}, .c = {1 - 1 / k, 1 / k}});
}
