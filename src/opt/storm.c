/* The recursive estimator (storm.h) for the tilted loss: Algorithm 1's u and v as log_u and d =
 * v/u. The arithmetic is in backend/weigh.h and moves.h; here is which batch is evaluated where.
 *
 * One pass. Algorithm 1 needs batch z[t+1] at w[t] and at w[t+1]. Both z[t] and z[t+1] are
 * evaluated at w[t] as two parts of one batch: z[t] completes the estimator there, z[t+1] is kept
 * as the old-point gradient of the next step. The iterates are Algorithm 1's; one weight vector;
 * one large batch for the hardware. */
#include "storm.h"

dro_status dro__storm_create(dro_optimizer *o, size_t largest, bool two_point)
{
    size_t inner = o->is_composite ? o->composite.inner : 1, size = inner * o->dim;
    dro__step *k = &o->k;
    k->plan.batch = largest;
    k->plan.weigh = o->is_composite ? DRO__PHASE_COMPOSITE : DRO__PHASE_STORM;
    k->plan.move = o->is_composite ? DRO__MOVE_estimate : DRO__MOVE_storm;
    DRO_TRY(dro__slots_create(o, largest));
    DRO_TRY(dro__tilt_create(o));
    DRO_TRY(dro__vector(o, size, true, &k->v[DRO__D]));
    DRO_TRY(dro__vector(o, size, false, &k->v[DRO__G]));
    DRO_TRY(dro__vector(o, size, !two_point, &k->v[DRO__OLD]));
    if (two_point)
        DRO_TRY(dro__vector(o, o->dim, true, &o->w_old));
    else
        DRO_TRY(dro__vector(o, size, false, &k->v[DRO__NEXT]));
    if (o->is_composite)
        return dro__composite_create(o);
    DRO_TRY(dro__losses_create(o, 2 * largest));
    DRO_TRY(dro__array(o, largest, sizeof(float), DRO__SAVED | DRO__UNDONE, &k->old_losses));
    return dro__scale_create(o, DRO__MOVE_storm_moments);
}

void dro__storm_drop(dro_optimizer *o)
{
    o->run.waits = 0;
    o->s.have = 0;
}

/* The batch that waits, or a new one. */
static dro_status current(dro_optimizer *o, size_t batch, bool *drawn, dro_batch *part)
{
    *drawn = !o->run.waits;
    if (*drawn)
        return dro__draw_next(o, batch, part);
    if (!o->live || o->failed)
        return dro__draw_again(o, o->run.waiting_position, o->run.waiting_count, part);
    *part = o->waiting;
    return DRO_OK;
}

void dro__storm_wait(dro_optimizer *o, const dro_batch *next)
{
    o->live = next != NULL;
    o->run.waits = next != NULL;
    if (!next)
        return;
    o->waiting = *next;
    o->run.waiting_position = next->position;
    o->run.waiting_count = next->count;
}

dro_status dro__storm_step(dro_optimizer *o, size_t batch, size_t next)
{
    dro_batch parts[2];
    bool drawn;
    int count = 1;
    DRO_TRY(current(o, batch, &drawn, &parts[0]));
    if (next) {
        dro_status status = dro__draw_next(o, next, &parts[1]);
        if (status == DRO_OK)
            count = 2;
        else if (status != DRO_ERR_END)
            return status;
    }
    o->ticket.drawn = drawn;
    if (o->is_composite)
        DRO_TRY(dro__composite_step(o, parts, count, drawn));
    else
        DRO_TRY(dro__take_step(o, parts, count));
    dro__storm_wait(o, count == 2 ? &parts[1] : NULL);
    return DRO_OK;
}

dro_status dro__storm_step_two_point(dro_optimizer *o, size_t batch)
{
    if (o->is_composite)
        return dro__composite_step_two_point(o, batch);
    dro__step *k = &o->k;
    dro_batch parts[2];
    DRO_TRY(dro__draw_next(o, batch, &parts[0]));
    parts[1] = parts[0];
    size_t b = parts[0].count;
    bool twice = o->s.have && o->s.level == o->ticket.level;
    o->ticket.drawn = !twice;
    if (twice) {
        DRO_TRY(dro__forward(o, o->w_old, parts, 1, k->losses + b));
        DRO_TRY(dro__weigh(o, DRO__PHASE_OLD, parts, 2));
        DRO_TRY(dro__backward(o, o->w_old, parts, 1, k->coef + b, &k->v[DRO__OLD]));
    }
    DRO_TRY(dro__forward(o, k->v[DRO__W], parts, 1, k->losses));
    DRO_TRY(dro__weigh(o, DRO__PHASE_STORM, parts, 1));
    DRO_TRY(dro__backward(o, k->v[DRO__W], parts, 1, k->coef, &k->v[DRO__G]));
    dro__combine(o, &(dro__combination){.out = o->w_old, .x = {k->v[DRO__W]}, .plus = true});
    dro__finish_step(o);
    return DRO_OK;
}

/* The next batch at the point that is being left, on its own. */
static dro_status look_ahead(dro_optimizer *o, size_t next, dro_batch *batch)
{
    dro__step *k = &o->k;
    DRO_TRY(dro__draw_next(o, next, batch));
    DRO_TRY(dro__forward(o, k->v[DRO__W], batch, 1, k->losses));
    dro_batch parts[2] = {{0}, *batch};
    o->s.lambda_before = o->ticket.lambda;
    DRO_TRY(dro__weigh(o, DRO__PHASE_OLD, parts, 2));
    return dro__backward(o, k->v[DRO__W], batch, 1, k->coef, &k->v[DRO__NEXT]);
}

dro_status dro__storm_step_big(dro_optimizer *o, size_t total, size_t next)
{
    if (o->is_composite)
        return dro__composite_step_big(o, total, next);
    dro__step *k = &o->k;
    size_t left = total;
    DRO_TRY(dro__big_size(o, &total));
    o->ticket.total = (double)total;
    DRO_TRY(dro__weigh(o, DRO__PHASE_BIG_BEGIN, NULL, 0));
    /* The direction is gathered where the next batch's gradient will be. */
    dro__combine(o, &(dro__combination){.out = k->v[DRO__NEXT]});
    for (size_t size; (size = dro__big_next(o, &left));) {
        dro_batch part;
        DRO_TRY(dro__draw_whole(o, size, &part));
        DRO_TRY(dro__forward(o, k->v[DRO__W], &part, 1, k->losses));
        DRO_TRY(dro__weigh(o, DRO__PHASE_BIG_CHUNK, &part, 1));
        DRO_TRY(dro__backward(o, k->v[DRO__W], &part, 1, k->coef, &k->v[DRO__G]));
        dro__combine(o, &(dro__combination){.out = k->v[DRO__NEXT],
                                            .x = {k->v[DRO__NEXT], k->v[DRO__G]},
                                            .c = {o->s.keep, o->s.gain}});
    }
    o->sweeping = false;
    DRO_TRY(dro__weigh(o, DRO__PHASE_BIG_END, NULL, 0));
    dro__swap(&k->v[DRO__G], &k->v[DRO__NEXT]);
    dro_batch ahead;
    dro_status status = next ? look_ahead(o, next, &ahead) : DRO_OK;
    if (status == DRO_ERR_END)
        next = 0;
    else
        DRO_TRY(status);
    dro__finish_step(o);
    if (next)
        dro__swap(&k->v[DRO__OLD], &k->v[DRO__NEXT]);
    dro__storm_wait(o, next ? &ahead : NULL);
    return DRO_OK;
}
