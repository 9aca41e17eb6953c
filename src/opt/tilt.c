/* The levels of the tilt: what the settings ask of a problem's classes and groups. The arithmetic
 * is in backend/weigh.h. */
#include "opt.h"

#include <math.h>
#include <string.h>

dro_status dro__objective_update(dro_optimizer *o)
{
    dro__optimizer_settings *set = dro__settings_of(o);
    dro__objective *to = &o->objective;
    *to = (dro__objective){.kind = DRO__OBJECTIVE_KL, .argument = set->lambda.value};
    if (*set->objective)
        DRO_TRY(dro__objective_parse(o->ctx, set->objective, to));
    if (*set->objective && to->kind == DRO__OBJECTIVE_KL)
        set->lambda.value = to->argument;
    bool radius = to->kind == DRO__OBJECTIVE_KL_RADIUS || to->kind == DRO__OBJECTIVE_CHI2;
    bool all = to->kind == DRO__OBJECTIVE_CVAR && to->argument == 1;
    if (all || (radius && to->argument == 0))
        *to = (dro__objective){.kind = DRO__OBJECTIVE_MEAN};
    if (to->kind > DRO__OBJECTIVE_KL && o->is_composite)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "objective=%.40s: a compositional problem is its own objective",
                         set->objective);
    return DRO_OK;
}

bool dro__is_mean(const dro_optimizer *o)
{
    return o->objective.kind == DRO__OBJECTIVE_MEAN;
}

static bool is_over_groups(dro__tilt_level level)
{
    return level == DRO__TILT_CLASS || level == DRO__TILT_GROUP;
}

static int32_t size_of(const dro_optimizer *o, dro__tilt_level level)
{
    if (!is_over_groups(level))
        return 0;
    return level == DRO__TILT_CLASS ? o->problem.classes : o->problem.groups;
}

static const double *shares_of(const dro_optimizer *o, dro__tilt_level level)
{
    if (!is_over_groups(level))
        return NULL;
    return level == DRO__TILT_CLASS ? o->problem.class_share : o->problem.group_share;
}

static dro_status check_level(dro_optimizer *o, dro__tilt_level level)
{
    if (!is_over_groups(level))
        return DRO_OK;
    const char *word = level == DRO__TILT_CLASS ? "class" : "group";
    const char *many = level == DRO__TILT_CLASS ? "classes" : "groups";
    if (o->is_composite)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "a compositional problem has no %s: use tilt=example", many);
    int32_t size = size_of(o, level);
    if (size <= 0)
        return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                         "tilt=%s: the problem does not say how many %s it has (problem.%s is 0)",
                         word, many, many);
    const double *shares = shares_of(o, level);
    double sum = 0;
    for (int32_t g = 0; shares && g < size; g++) {
        sum += shares[g];
        if (!(shares[g] >= 0) || (g == size - 1 && !(fabs(sum - 1) <= 1e-3)))
            return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                             "%s_share[%d] = %g: shares must be 0 or more and sum to 1", word, g,
                             shares[g]);
    }
    if (!o->problem.draw && !o->problem.labels)
        return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                         "the problem gives no %s: it needs the callback labels", many);
    return DRO_OK;
}

dro_status dro__tilt_create(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    dro__tilt_level first = dro__level_at(o, 0), second = first;
    if (set->switch_step > 0 && set->switch_tilt != DRO__SWITCH_SAME && !dro__is_mean(o))
        second = set->switch_tilt - DRO__SWITCH_FIRST;
    DRO_TRY(check_level(o, first));
    DRO_TRY(check_level(o, second));
    if (o->k.plan.sam_classes)
        DRO_TRY(check_level(o, DRO__TILT_CLASS));
    int32_t one = size_of(o, first), two = size_of(o, second), most = one > two ? one : two;
    o->k.plan.group_capacity = most;
    if (most || o->k.plan.sam_classes)
        DRO_TRY(dro__array(o, 2 * o->slot_size, sizeof *o->group_of, 0, &o->group_of));
    return most ? dro__array(o, (size_t)most, sizeof *o->k.groups, DRO__SAVED | DRO__UNDONE,
                             &o->k.groups)
                : DRO_OK;
}

void dro__tilt_ticket(dro_optimizer *o)
{
    dro__tilt_level level = dro__level(o);
    o->ticket.level = level;
    o->ticket.group_count = size_of(o, level);
    o->k.shares = shares_of(o, level);
    o->ticket.shares_given = o->k.shares != NULL;
}

dro_status dro__tilt_labels(dro_optimizer *o, const dro_batch *batch, const int32_t **labels)
{
    dro__tilt_level level = o->ticket.level;
    *labels = NULL;
    if (!is_over_groups(level)) {
        *labels = o->k.plan.sam_classes ? batch->classes : NULL;
        return !o->k.plan.sam_classes || batch->classes
                   ? DRO_OK
                   : dro__fail(o->ctx, DRO_ERR_CALLBACK,
                               "sam_over=class: a batch came without its class labels");
    }
    const char *word = level == DRO__TILT_CLASS ? "class" : "group";
    const int32_t *label = level == DRO__TILT_CLASS ? batch->classes : batch->groups;
    if (!label)
        return dro__fail(o->ctx, DRO_ERR_CALLBACK, "tilt=%s: a batch came without its %s labels",
                         word, word);
    for (size_t i = 0; i < batch->count; i++) {
        bool inside = label[i] >= 0 && label[i] < o->ticket.group_count;
        if (inside && !(o->k.shares && o->k.shares[label[i]] == 0))
            continue;
        dro__refuse(o, batch);
        if (inside)
            return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                             "%s %d of example %zu of the batch: its share is 0", word, label[i],
                             i);
        return dro__fail(o->ctx, DRO_ERR_CALLBACK,
                         "%s %d of example %zu of the batch: expected 0 to %d", word, label[i], i,
                         o->ticket.group_count - 1);
    }
    *labels = label;
    return DRO_OK;
}

size_t dro__tilt_weights(const dro_optimizer *o, double *q, size_t count)
{
    if (!is_over_groups(o->s.level))
        return 0;
    for (size_t g = 0; q && g < count && g < (size_t)o->s.group_count; g++)
        q[g] = o->k.groups[g].q;
    return (size_t)o->s.group_count;
}
