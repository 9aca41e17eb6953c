/* The estimator of storm.c on a device that is not waited for (device.c): what goes there, what comes back, and
 * what a step is told. The arithmetic is the backend's. */
#include "storm.h"

static int32_t group_count(const dro_optimizer *o, dro__tilt_level level, const double **shares)
{
    const dro_problem *p = &o->problem;
    *shares = level == DRO__TILT_CLASS   ? p->class_share
              : level == DRO__TILT_GROUP ? p->group_share
                                         : NULL;
    return level == DRO__TILT_CLASS ? p->classes : level == DRO__TILT_GROUP ? p->groups : 0;
}

void dro__storm_open(dro_optimizer *o, dro__storm *s)
{
    const dro__settings *set = dro__settings_of(o);
    bool classes = set->tilt == DRO__TILT_CLASS || set->switch_tilt == DRO__TILT_CLASS + 1;
    bool groups = set->tilt == DRO__TILT_GROUP || set->switch_tilt == DRO__TILT_GROUP + 1;
    if (set->form == DRO__FORM_TWO_POINT || (classes && !o->problem.class_share) ||
        (groups && !o->problem.group_share))
        return; /* shares that must be counted are counted here */
    dro__step_plan plan = {.kind = DRO__STEP_STORM,
                           .d = s->d,
                           .g_old = s->g_old,
                           .a_rule = set->a_rule,
                           .automatic = set->a_rule == DRO__A_AUTO,
                           .a_c = set->a_c,
                           .a_min = set->a_min,
                           .guard = set->guard,
                           .cap = set->cap,
                           .group_prior = set->group_prior,
                           .group_room = s->tilt.capacity};
    dro__device_open(o, &plan);
}

dro_status dro__storm_push(dro_optimizer *o)
{
    const dro__storm *s = o->state;
    const dro__tilt *t = &s->tilt;
    const double *shares;
    int32_t count = group_count(o, dro__level(o), &shares);
    dro__step_state state = dro__device_told(o);
    state.level = (int32_t)t->level;
    state.have = t->have;
    state.fresh = t->fresh;
    state.observed = s->observed;
    state.group_count = t->group_count;
    state.log_u = t->log_u;
    state.mean_old = t->mean_old;
    state.gain = t->gain;
    state.keep = t->keep;
    state.spread = s->spread;
    state.change = s->change;
    state.noise = s->noise;
    state.eta_before = s->eta_before;
    state.lambda_before = s->lambda_before;
    state.pace = s->pace;
    state.square = s->square;
    state.fall = s->fall;
    return o->queue->push(o->queue->user, &state, t->groups, s->old_losses, shares, count);
}

dro_status dro__storm_pull(dro_optimizer *o, dro__step_state *state)
{
    dro__storm *s = o->state;
    dro__tilt *t = &s->tilt;
    DRO_TRY(o->queue->pull(o->queue->user, state, t->groups, s->old_losses));
    t->level = (dro__tilt_level)state->level;
    t->have = state->have;
    t->fresh = state->fresh;
    t->group_count = state->group_count;
    t->log_u = state->log_u;
    t->mean_old = state->mean_old;
    t->gain = state->gain;
    t->keep = state->keep;
    s->observed = state->observed;
    s->spread = state->spread;
    s->change = state->change;
    s->noise = state->noise;
    s->eta_before = state->eta_before;
    s->lambda_before = state->lambda_before;
    s->pace = state->pace;
    s->square = state->square;
    s->fall = state->fall;
    return DRO_OK;
}

void dro__storm_rewind(dro_optimizer *o, const dro__trail *trail)
{
    dro__storm *s = o->state;
    s->waits = trail->waits;
    s->live = false;
    s->waiting_position = trail->parts[0].position;
    s->waiting_count = trail->parts[0].count;
}

static dro_status check_groups(dro_optimizer *o, const dro_batch *batch, const int32_t *label,
                               const dro__step_ticket *t, const double *shares)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!label || label[i] < 0 || label[i] >= t->group_count || shares[label[i]] == 0) {
            dro__refuse(o, batch);
            return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                             "example %zu of the batch at position %llu has no class or group with "
                             "a share of the data",
                             i, (unsigned long long)batch->position);
        }
    return DRO_OK;
}

dro_status dro__storm_queue_step(dro_optimizer *o, dro__storm *s, size_t batch, size_t next)
{
    const dro__settings *set = dro__settings_of(o);
    dro__tilt_level level = dro__level(o);
    dro__trail before = {.run = o->before, .waits = s->waits};
    const double *shares;
    dro_batch parts[2];
    bool drawn;
    int count = 1;
    DRO_TRY(dro__storm_current(o, s, batch, &drawn, &parts[0]));
    if (next) {
        dro_status status = dro__draw_next(o, next, &parts[1]);
        if (status == DRO_OK)
            count = 2;
        else if (status != DRO_ERR_END)
            return status;
    }
    dro__step_ticket ticket = {.eta = o->run.eta,
                               .lambda = o->run.lambda,
                               .a = dro__schedule_at(o, &set->a, o->run.step, 2),
                               .level = (int32_t)level,
                               .drawn = drawn,
                               .group_count = group_count(o, level, &shares)};
    for (int k = 0; k < count; k++) {
        before.parts[k] = (dro__trail_part){parts[k].position, parts[k].count};
        if (level < DRO__TILT_CLASS)
            continue;
        ticket.groups[k] = level == DRO__TILT_CLASS ? parts[k].classes : parts[k].groups;
        DRO_TRY(check_groups(o, &parts[k], ticket.groups[k], &ticket, shares));
    }
    DRO_TRY(dro__device_step(o, parts, count, &ticket));
    dro__device_trail(o, &before);
    dro__storm_wait(s, count == 2 ? &parts[1] : NULL);
    return DRO_OK;
}
