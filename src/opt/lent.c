/* Caller-driven steps (dro/step.h). In host memory the context's backend runs the phases. On a
 * device a module runs them (backend/step.h): rows and scalars then have copies there, which only
 * the device changes; the host keeps the counters and the schedules. */
#include "storm.h"

#include <dro/step.h>

#include <string.h>

enum { ALIGNED = 256 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static dro_status module_said(const dro_optimizer *o, const char *text)
{
    return text ? dro__fail(o->ctx, DRO_ERR_DEVICE, "the GPU's part of a step: %s", text) : DRO_OK;
}

/* ---- where the vectors are ---- */

static dro_status check_lendable(dro_optimizer *o, const dro__phases *module)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    bool storm = o->cls->step == dro__cover_step && set->form == DRO__FORM_TWO_POINT;
    if (!o->started || o->lent.open)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_optimizer_start first, between steps");
    bool plain = o->cls->step == dro__plain_step;
    if (o->is_composite || !(storm || plain))
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: the caller's steps are for one batch at a time: recover and cover "
                         "with form=two-point, scent, sgd, adamw, absgd, without sam",
                         o->cls->name);
    if (set->sam > 0)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: sam chooses where gradients are taken, which the caller's steps "
                         "cannot: leave it out",
                         o->cls->name);
    if (!module)
        return DRO_OK;
    if (module->step_size != sizeof o->k || module->ticket_size != sizeof o->ticket)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "libdro_step_cuda.so is of another build than libdro.so: install both "
                         "from one wheel");
    if (set->reg == DRO__REG_GROUP || set->reg == DRO__REG_BALL)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "reg=group and reg=ball are not computed on a GPU: use another "
                         "regulariser, or weights on the CPU");
    return DRO_OK;
}

static void *on_device(const dro_optimizer *o, const void *here)
{
    for (int r = 0; here && r < o->row_count; r++)
        if (*o->rows[r].data == here)
            return o->lent.device_rows[r];
    return NULL;
}

/* The step with the device's pointers. */
static dro__step device_step(const dro_optimizer *o)
{
    dro__step k = o->k;
    k.s = (dro__scalars *)(void *)o->lent.scalars;
    k.ticket = NULL;
    k.shares = o->lent.shares;
    k.groups = on_device(o, k.groups);
    k.group_of = on_device(o, o->group_of);
    k.losses = on_device(o, k.losses);
    k.coef = on_device(o, k.coef);
    k.old_losses = on_device(o, k.old_losses);
    for (int j = 0; j < DRO__VECTOR_ROLES; j++)
        k.v[j] = on_device(o, k.v[j]);
    return k;
}

/* Assigns the rows their places in the device memory; returns how many bytes that takes. */
static size_t place(dro_optimizer *o, const dro__phases *module, char *memory)
{
    size_t used = aligned(sizeof(dro__scalars));
    for (int r = 0; r < o->row_count; r++) {
        o->lent.device_rows[r] = memory ? memory + used : NULL;
        used += aligned(o->rows[r].bytes);
    }
    o->lent.shares = memory ? (double *)(void *)(memory + used) : NULL;
    used += aligned((size_t)o->k.plan.group_capacity * sizeof(double));
    return used + module->scratch_size(&o->k);
}

void dro__lent_close(dro_optimizer *o)
{
    if (o->lent.live)
        o->lent.phases->close(o->lent.live);
    o->lent = (dro__lent){0};
}

static dro_status lend_device(dro_optimizer *o, dro_lent *lent)
{
    const dro__phases *module = lent->module;
    dro__lent_close(o);
    size_t bytes = place(o, module, lent->memory), had = lent->bytes;
    lent->bytes = bytes;
    if (!lent->memory)
        return DRO_OK;
    if (had < bytes)
        return dro__fail(o->ctx, DRO_ERR_RANGE, "%zu bytes of the device: %zu are needed", had,
                         bytes);
    o->lent.phases = module;
    o->lent.stream = lent->stream;
    o->lent.scalars = lent->memory;
    dro__step k = device_step(o);
    char *scratch = (char *)lent->memory + bytes - module->scratch_size(&o->k);
    dro_status status = module_said(o, module->open(&k, scratch, &o->lent.live));
    if (status == DRO_OK)
        status = module_said(o, module->begin(o->lent.live, &o->ticket, lent->stream));
    if (status == DRO_OK)
        status = dro__lent_push(o);
    if (status != DRO_OK)
        dro__lent_close(o);
    return status;
}

dro_status dro_step_lend(dro_optimizer *o, dro_lent *lent)
{
    if (!o || !lent || lent->size != sizeof *lent)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    DRO_TRY(check_lendable(o, lent->module));
    DRO_TRY(dro__async_leave(o));
    if (lent->module)
        DRO_TRY(lend_device(o, lent));
    if (lent->module && !lent->memory)
        return DRO_OK;
    const float *w = o->k.v[DRO__W];
    float *g = o->k.v[DRO__G], *old = o->w_old ? o->k.v[DRO__OLD] : NULL;
    bool here = !lent->module;
    lent->w = here ? w : on_device(o, w);
    lent->before = here ? o->w_old : on_device(o, o->w_old);
    lent->gradient = here ? g : on_device(o, g);
    lent->gradient_before = here ? old : on_device(o, old);
    return DRO_OK;
}

/* ---- the state, to the device and back ---- */

/* All rows are sent to the device, scratch included: device memory is not initialised, and a step
 * without an old gradient multiplies that vector by 0, which leaves a NaN a NaN. */
static dro_status copy_rows(dro_optimizer *o, bool back)
{
    dro__lent *l = &o->lent;
    for (int r = 0; r < o->row_count; r++) {
        void *here = *o->rows[r].data;
        if (o->rows[r].saved || !back)
            DRO_TRY(
                module_said(o, l->phases->copy(l->live, back ? here : l->device_rows[r],
                                               back ? l->device_rows[r] : here, o->rows[r].bytes)));
    }
    return DRO_OK;
}

dro_status dro__lent_push(dro_optimizer *o)
{
    dro__lent *l = &o->lent;
    l->have = o->s.have;
    l->level = o->s.level;
    l->queued = 0;
    if (!l->phases)
        return DRO_OK;
    o->s.done = 0;
    DRO_TRY(module_said(o, l->phases->copy(l->live, l->scalars, &o->s, sizeof o->s)));
    l->reported = l->ended; /* all have ended: the copy waits; refusals are of the old state */
    return copy_rows(o, false);
}

/* A refused step stays refused: the next step reports it. */
dro_status dro__lent_pull(dro_optimizer *o, bool all)
{
    dro__lent *l = &o->lent;
    if (!l->phases)
        return DRO_OK;
    DRO_TRY(module_said(o, l->phases->copy(l->live, &o->s, l->scalars, sizeof o->s)));
    o->s.done = 0;
    o->s.refused = o->s.refused_part = 0;
    o->s.refused_index = 0;
    o->s.refused_value = 0;
    return all ? copy_rows(o, true) : DRO_OK;
}

/* An earlier step was refused: those after it were not taken either. */
static dro_status report_refused(dro_optimizer *o)
{
    dro__lent *l = &o->lent;
    dro__scalars s;
    if (l->phases->snapshot(l->live, &s) <= l->reported || !s.refused)
        return DRO_OK;
    DRO_TRY(module_said(o, l->phases->copy(l->live, &s, l->scalars, sizeof s)));
    o->run.step -= l->queued - s.done;
    const char *what = s.refused == DRO__REFUSED_LOSS ? "loss" : "gradient entry";
    if (s.refused == DRO__REFUSED_LABEL)
        what = "label";
    dro_status status =
        dro__fail(o->ctx, s.refused == DRO__REFUSED_LABEL ? DRO_ERR_DATA : DRO_ERR_NUMBER,
                  "%s %lld is %g at step %llu: the step was refused, and so were the %llu after it",
                  what, (long long)s.refused_index, s.refused_value,
                  (unsigned long long)o->run.step, (unsigned long long)(l->queued - s.done - 1));
    DRO_TRY(dro__lent_pull(o, false));
    DRO_TRY(module_said(o, l->phases->copy(l->live, l->scalars, &o->s, sizeof o->s)));
    l->have = o->s.have;
    l->level = o->s.level;
    l->queued = 0;
    l->reported = l->ended; /* the copy has waited for all */
    return status;
}

/* ---- a step ---- */

dro_status dro_step_cancel(dro_optimizer *o)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    dro__lent *l = &o->lent;
    if (!l->open)
        return DRO_OK;
    l->open = false;
    o->run = o->run_before;
    if (l->phases)
        return l->weighed ? module_said(o, l->phases->undo(l->live)) : DRO_OK;
    o->s = o->s_before;
    dro__rows_undo(o);
    return DRO_OK;
}

/* The error of a call, after the step was dropped. */
static dro_status dropped(dro_optimizer *o, dro_status status)
{
    if (status != DRO_OK)
        dro_step_cancel(o);
    return status;
}

/* The ticket of a step, and the shares of its groups where they are other ones than before. */
static dro_status begin_on_device(dro_optimizer *o)
{
    dro__lent *l = &o->lent;
    DRO_TRY(module_said(o, l->phases->begin(l->live, &o->ticket, l->stream)));
    if (!o->ticket.shares_given || l->shares_level == o->ticket.level)
        return DRO_OK;
    DRO_TRY(module_said(o, l->phases->copy(l->live, l->shares, o->k.shares,
                                           (size_t)o->ticket.group_count * sizeof(double))));
    l->shares_level = o->ticket.level;
    return DRO_OK;
}

dro_status dro_step_begin(dro_optimizer *o, void *stream, bool *twice)
{
    if (!o || !twice)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    dro__lent *l = &o->lent;
    DRO_TRY(check_lendable(o, l->phases));
    if (o->run.step >= o->ends)
        return dro__fail(o->ctx, DRO_ERR_END, "all %llu planned steps are done",
                         (unsigned long long)o->ends);
    if (l->phases)
        DRO_TRY(report_refused(o));
    o->run_before = o->run;
    if (!l->phases) {
        o->s_before = o->s;
        dro__rows_keep(o);
    }
    dro__begin_step(o);
    bool have = l->phases ? l->have : o->s.have;
    int32_t level = l->phases ? l->level : o->s.level;
    l->twice = o->w_old && have && level == o->ticket.level;
    l->open = true;
    l->weighed = 0;
    l->count = 0;
    l->stream = stream;
    o->ticket.drawn = !l->twice;
    *twice = l->twice;
    return l->phases ? dropped(o, begin_on_device(o)) : DRO_OK;
}

static dro_batch batch_here(const dro_optimizer *o)
{
    return (dro_batch){.position = o->run.position - o->lent.count, .count = o->lent.count};
}

static dro_status weigh_on_host(dro_optimizer *o, bool before, const dro_step_batch *batch)
{
    dro__step *k = &o->k;
    dro_batch parts[2] = {{0}, batch_here(o)};
    if (batch->labels && o->group_of) { /* behind those that dro__weigh writes */
        int32_t *labels = o->group_of + o->slot_size;
        for (size_t i = 0; i < o->lent.count; i++) {
            int64_t label = batch->labels[i];
            labels[i] = label < 0 || label > INT32_MAX ? -1 : (int32_t)label;
        }
        parts[1].classes = parts[1].groups = labels;
    }
    DRO_TRY(dro__check_losses(o, &parts[1], batch->losses));
    memcpy(k->losses, batch->losses, o->lent.count * sizeof *k->losses);
    o->run.evaluations += o->lent.count;
    if (before)
        DRO_TRY(dro__weigh(o, DRO__PHASE_OLD, parts, 2));
    else
        DRO_TRY(dro__weigh(o, k->plan.weigh, &parts[1], 1));
    memcpy(batch->coef, k->coef, o->lent.count * sizeof *k->coef);
    return DRO_OK;
}

static dro_status weigh_on_device(dro_optimizer *o, bool before, const dro_step_batch *batch)
{
    dro__lent *l = &o->lent;
    bool groups = o->ticket.level >= DRO__TILT_CLASS;
    if (groups && !batch->labels)
        return dro__fail(o->ctx, DRO_ERR_CALLBACK, "tilt=%s: a batch came without its labels",
                         o->ticket.level == DRO__TILT_CLASS ? "class" : "group");
    dro__phase_batch b = {batch->losses, groups ? batch->labels : NULL, batch->coef, (int)l->count};
    bool first = l->weighed == 0;
    o->run.evaluations += l->count;
    dro__phase phase = before ? DRO__PHASE_OLD : o->k.plan.weigh;
    return module_said(o, l->phases->weigh(l->live, phase, first, &b));
}

/* Both times the batch is the same. */
static dro_status take_count(dro_optimizer *o, size_t count)
{
    dro__lent *l = &o->lent;
    if (count == 0 || count > o->slot_size || (l->count && count != l->count))
        return dro__fail(o->ctx, DRO_ERR_RANGE,
                         "a batch of %zu examples: expected 1 to %zu, the setting batch, and as "
                         "many at both points",
                         count, o->slot_size);
    o->run.position += l->count ? 0 : count;
    o->run.examples += l->count ? 0 : count;
    l->count = count;
    return DRO_OK;
}

/* A step is weighed before its batch moves w: first at the old point, where it has one. */
static dro_status check_order(dro_optimizer *o, bool before, int weighed)
{
    const dro__lent *l = &o->lent;
    if (!l->open)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_step_begin first");
    if (before && !l->twice)
        return dro__fail(o->ctx, DRO_ERR_STATE, "this step evaluates its batch once");
    if (l->weighed == weighed)
        return DRO_OK;
    return dro__fail(o->ctx, DRO_ERR_STATE,
                     l->twice ? "a step is begin, weigh with before, weigh without, end"
                              : "a step is begin, weigh, end");
}

dro_status dro_step_weigh(dro_optimizer *o, bool before, const dro_step_batch *batch)
{
    if (!o || !batch || !batch->losses || !batch->coef)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    DRO_TRY(check_order(o, before, o->lent.twice && !before));
    DRO_TRY(dropped(o, take_count(o, batch->count)));
    dro_status status = (o->lent.phases ? weigh_on_device : weigh_on_host)(o, before, batch);
    o->lent.weighed++;
    return dropped(o, status);
}

static dro_status end_here(dro_optimizer *o)
{
    dro__step *k = &o->k;
    dro_batch batch = batch_here(o);
    if (o->lent.twice)
        DRO_TRY(dro__check_gradient(o, &batch, k->v[DRO__OLD], o->dim));
    DRO_TRY(dro__check_gradient(o, &batch, k->v[DRO__G], o->dim));
    if (o->w_old)
        dro__combine(o, &(dro__combination){.out = o->w_old, .x = {k->v[DRO__W]}, .plus = true});
    dro__finish_step(o);
    dro__average(o);
    return DRO_OK;
}

dro_status dro_step_end(dro_optimizer *o)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    dro__lent *l = &o->lent;
    DRO_TRY(check_order(o, false, 1 + l->twice));
    if (l->phases)
        DRO_TRY(
            dropped(o, module_said(o, l->phases->move(l->live, on_device(o, o->w_old), l->twice))));
    else
        DRO_TRY(dropped(o, end_here(o)));
    l->open = false;
    l->have = true;
    l->level = o->ticket.level;
    l->queued++;
    l->ended++;
    o->run.step++;
    return DRO_OK;
}

dro_status dro_step_replace(dro_optimizer *o, const float *w, const void *changed, void *stream)
{
    if (!o || !w)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    dro__lent *l = &o->lent;
    DRO_TRY(check_lendable(o, l->phases));
    if (l->phases)
        return module_said(o, l->phases->replace(l->live, w, changed, stream));
    o->s = (dro__scalars){0};
    for (int r = 0; r < o->row_count; r++)
        if (o->rows[r].saved)
            memset(*o->rows[r].data, 0, o->rows[r].bytes);
    DRO_TRY(dro__vector_in(o, o->k.v[DRO__W], w, o->dim * sizeof *w));
    o->ticket = (dro__ticket){0}; /* the average begins as the weights */
    dro__average(o);
    return DRO_OK;
}
