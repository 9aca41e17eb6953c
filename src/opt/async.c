/* Asynchronous steps (backend/step.h): where the state is, and what happens when a step that was
 * queued turns out to have been refused. */
#include "opt.h"

#include <stdio.h>
#include <string.h>

void dro__async_open(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    const dro__async *async = o->able.async;
    bool elementwise = set->reg != DRO__REG_GROUP && set->reg != DRO__REG_BALL;
    if (!async || !elementwise || !o->cls->async || set->form == DRO__FORM_TWO_POINT)
        return;
    if (async->queue->open(async->net, &o->k) == DRO_OK)
        o->async = async;
}

static bool is_mine(const dro_optimizer *o)
{
    return o->async->queue->owner(o->async->net) == o->k.v[DRO__W];
}

static dro_status check_mine(const dro_optimizer *o)
{
    return is_mine(o) ? DRO_OK
                      : dro__fail(o->ctx, DRO_ERR_STATE,
                                  "another optimiser was started on this network: only one at a "
                                  "time can run on the device");
}

dro_status dro__async_step(dro_optimizer *o, const dro_batch *parts, int count)
{
    const dro__async *a = o->async;
    dro__past_step before = {.run = o->run_before};
    const int32_t *group_of[2] = {NULL, NULL};
    dro__fetched fetched = {.part_count = 0};
    DRO_TRY(check_mine(o));
    for (int k = 0; k < count; k++) {
        before.positions[k] = parts[k].position;
        before.counts[k] = parts[k].count;
        DRO_TRY(dro__tilt_labels(o, &parts[k], &group_of[k]));
    }
    if (!o->away) {
        DRO_TRY(a->queue->push(a->net, &o->k));
        o->away = true;
        o->queued = 0;
        o->pushed_level = o->ticket.level;
    }
    DRO_TRY(a->fetch(a->user, parts, count, &fetched));
    DRO_TRY(a->queue->step(a->net, &fetched, &o->ticket, group_of));
    dro__scalars snapshot;
    a->queue->snapshot(a->net, &snapshot);
    if (snapshot.done > 0)
        o->s = snapshot;
    for (int k = 0; k < count; k++)
        o->run.evaluations +=
            parts[k].count * (o->ticket.ahead || (k == 0 && o->k.plan.sam > 0) ? 2 : 1);
    o->past[o->queued++ % DRO__PAST_STEPS] = before;
    return DRO_OK;
}

/* Returns the run to the state before the refused step; the next step() reports it. */
static void rewind_run(dro_optimizer *o)
{
    dro__scalars *s = &o->s;
    const dro__past_step *t = &o->past[s->done % DRO__PAST_STEPS];
    unsigned long long position = t->positions[s->refused_part], step = t->run.step;
    size_t count = (size_t)t->counts[s->refused_part];
    o->run = t->run;
    o->refused = o->failed = true;
    o->live = false;
    o->refused_position = position;
    o->refused_count = count;
    o->late = DRO_ERR_NUMBER;
    if (s->refused == DRO__REFUSED_LOSS)
        snprintf(o->late_text, sizeof o->late_text,
                 "loss %lld of the batch at position %llu is %g at step %llu: the step is refused "
                 "and changes nothing",
                 (long long)s->refused_index, position, s->refused_value, step);
    else
        snprintf(o->late_text, sizeof o->late_text,
                 "gradient entry %lld is %g at step %llu (batch of %zu at position %llu): the step "
                 "is refused and changes nothing",
                 (long long)s->refused_index, s->refused_value, step, count, position);
}

dro_status dro__async_wait(const dro_optimizer *o)
{
    return o->away && is_mine(o) ? o->async->queue->wait(o->async->net) : DRO_OK;
}

dro_status dro__async_pull(dro_optimizer *o)
{
    if (!o->away)
        return DRO_OK;
    DRO_TRY(check_mine(o));
    DRO_TRY(o->async->queue->pull(o->async->net, &o->k));
    o->away = false;
    if (o->s.refused)
        rewind_run(o);
    o->s.done = 0;
    o->s.refused = o->s.refused_part = 0;
    o->s.refused_index = 0;
    o->s.refused_value = 0;
    return DRO_OK;
}

dro_status dro__async_leave(dro_optimizer *o)
{
    DRO_TRY(dro__async_pull(o));
    o->async = NULL;
    return DRO_OK;
}

dro_status dro__async_begin(dro_optimizer *o)
{
    if (o->away) {
        dro__scalars snapshot;
        DRO_TRY(check_mine(o));
        o->async->queue->snapshot(o->async->net, &snapshot);
        bool changes = o->cls->robust && dro__level(o) != o->pushed_level;
        /* Another level has other groups; their shares are sent with a push. */
        if (snapshot.refused || changes)
            DRO_TRY(dro__async_pull(o));
    }
    if (o->late == DRO_OK)
        return DRO_OK;
    dro_status status = o->late;
    o->late = DRO_OK;
    return dro__fail(o->ctx, status, "%s", o->late_text);
}
