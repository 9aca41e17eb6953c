/* Steps on a device that is not waited for (backend/queue.h): where the state is, and what happens when a step that
 * was queued turns out to have been refused. What an optimiser's own numbers are is its own business
 * (cls->push, cls->pull). */
#include "opt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Regularisers that are worked out element by element. */
static bool elementwise(int32_t reg)
{
    return reg != DRO__REG_GROUP && reg != DRO__REG_BALL;
}

void dro__device_open(dro_optimizer *o, const dro__step_plan *own)
{
    const dro__settings *set = dro__settings_of(o);
    const dro__queue *queue = o->is_composite ? NULL : o->problem.queue;
    if (!queue || !elementwise(set->reg))
        return;
    dro__step_plan plan = *own;
    plan.dim = o->dim;
    plan.batch = (size_t)set->batch;
    plan.w = o->w;
    plan.weight_decay = set->weight_decay;
    plan.reg = set->reg;
    plan.reg_strength = set->reg_strength;
    plan.reg_ratio = set->reg_ratio;
    plan.reg_low = set->reg_low;
    plan.reg_high = set->reg_high;
    if (queue->open(queue->user, &plan) == DRO_OK)
        o->queue = queue;
}

static bool is_mine(const dro_optimizer *o)
{
    return o->queue->owner(o->queue->user) == o->w;
}

static dro_status check_mine(const dro_optimizer *o)
{
    return is_mine(o) ? DRO_OK
                      : dro__fail(o->ctx, DRO_ERR_STATE,
                                  "another optimiser was started on this network, which took its "
                                  "place on the device: one at a time");
}

dro_status dro__device_step(dro_optimizer *o, const dro_batch *parts, int count,
                            const dro__step_ticket *ticket)
{
    const dro__queue *q = o->queue;
    DRO_TRY(check_mine(o));
    if (!o->away) {
        DRO_TRY(o->cls->push(o));
        o->away = true;
        o->queued = 0;
    }
    DRO_TRY(q->step(q->user, parts, count, ticket));
    dro__step_state news;
    q->news(q->user, &news);
    if (news.done > 0)
        dro__device_tell(o, &news);
    for (int k = 0; k < count; k++)
        o->run.evaluations += parts[k].count;
    return DRO_OK;
}

void dro__device_tell(dro_optimizer *o, const dro__step_state *s)
{
    dro__run *r = &o->run;
    r->eta = s->eta;
    r->loss = s->loss;
    r->largest_weight = s->largest_weight;
    r->effective = s->effective;
    if (!o->cls->robust)
        return;
    r->a = s->a;
    r->log_u = s->log_u;
    r->caps = s->caps;
    r->floors = s->floors;
    r->fresh_starts = s->fresh_starts;
}

dro__step_state dro__device_told(const dro_optimizer *o)
{
    const dro__run *r = &o->before;
    return (dro__step_state){.eta = r->eta,
                             .lambda = r->lambda,
                             .a = r->a,
                             .loss = r->loss,
                             .log_u = r->log_u,
                             .largest_weight = r->largest_weight,
                             .effective = r->effective,
                             .caps = r->caps,
                             .floors = r->floors,
                             .fresh_starts = r->fresh_starts};
}

/* The run goes back to before the step that was refused; the next step() says so. */
static void rewind_run(dro_optimizer *o, const dro__step_state *s)
{
    const dro__trail *t = &o->trail[s->done % DRO__TRAIL];
    const dro__trail_part *p = &t->parts[s->refused_part];
    uint64_t step = t->run.step;
    o->run = t->run;
    dro__device_tell(o, s);
    o->cls->rewind(o, t);
    o->refused = true;
    o->refused_position = p->position;
    o->refused_count = p->count;
    o->failed = true;
    o->late = DRO_ERR_NUMBER;
    if (s->refused == DRO__REFUSED_LOSS)
        snprintf(o->late_text, sizeof o->late_text,
                 "loss %lld of the batch at position %llu is %g at step %llu: the step is refused, "
                 "nothing has changed",
                 (long long)s->refused_index, (unsigned long long)p->position, s->refused_value,
                 (unsigned long long)step);
    else
        snprintf(o->late_text, sizeof o->late_text,
                 "gradient entry %lld is %g at step %llu (batch of %zu at position %llu): the step "
                 "is refused, nothing has changed",
                 (long long)s->refused_index, s->refused_value, (unsigned long long)step, p->count,
                 (unsigned long long)p->position);
}

dro_status dro__device_wait(const dro_optimizer *o)
{
    return o->away && is_mine(o) ? o->queue->wait(o->queue->user) : DRO_OK;
}

dro_status dro__device_settle(dro_optimizer *o)
{
    dro__step_state state;
    if (!o->away)
        return DRO_OK;
    DRO_TRY(check_mine(o));
    DRO_TRY(o->cls->pull(o, &state));
    o->away = false;
    if (state.refused)
        rewind_run(o, &state);
    else if (o->queued > 0)
        dro__device_tell(o, &state);
    return DRO_OK;
}

void dro__device_trail(dro_optimizer *o, const dro__trail *before)
{
    o->trail[o->queued++ % DRO__TRAIL] = *before;
}

dro_status dro__device_begin(dro_optimizer *o)
{
    dro__step_state news;
    if (o->away) {
        DRO_TRY(check_mine(o));
        o->queue->news(o->queue->user, &news);
        bool changes = o->cls->robust && (uint64_t)dro__level(o) != o->run.level;
        if (news.refused || changes) /* another level has other groups: they begin on the host */
            DRO_TRY(dro__device_settle(o));
    }
    if (o->late == DRO_OK)
        return DRO_OK;
    dro_status status = o->late;
    o->late = DRO_OK;
    return dro__fail(o->ctx, status, "%s", o->late_text);
}
