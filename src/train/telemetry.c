/* A record of a run as an event of TensorBoard: the optimiser's figures, those of each split, the
 * classes' and groups' accuracies and weights. */
#include "telemetry.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NAMED_MOST = 100, /* classes or groups that get curves of their own */
    TAG = 160
};

/* Values to be written; tags are in one block, so that nothing is allocated for each. */
typedef struct list {
    dro__summary *values;
    char (*tags)[TAG];
    size_t count, capacity;
} list;

static void add(list *l, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* NaN values do not apply here, or are not known yet; they are left out. */
static void add(list *l, double value, const char *format, ...)
{
    if (isnan(value) || l->count == l->capacity)
        return;
    va_list words;
    va_start(words, format);
    vsnprintf(l->tags[l->count], TAG, format, words);
    va_end(words);
    l->values[l->count] = (dro__summary){.tag = l->tags[l->count], .value = value};
    l->count++;
}

static void add_optimizer(list *l, const dro_info *i)
{
    add(l, i->eta, "optimizer/eta");
    add(l, i->lambda, "optimizer/lambda");
    add(l, i->a, "optimizer/a");
    add(l, i->log_u, "optimizer/log_u");
    add(l, i->threshold, "optimizer/threshold");
    add(l, i->radius, "optimizer/radius");
    add(l, i->loss, "optimizer/loss");
    add(l, i->objective, "optimizer/objective");
    add(l, i->largest_weight, "optimizer/largest_weight");
    add(l, i->effective, "optimizer/effective");
    add(l, (double)i->caps, "optimizer/caps");
    add(l, (double)i->floors, "optimizer/floors");
    add(l, (double)i->fresh_starts, "optimizer/fresh_starts");
    add(l, (double)i->examples, "optimizer/examples");
}

static void add_named(list *l, const char *heading, const char *const *names, const double *values,
                      int32_t count)
{
    for (int32_t k = 0; values && k < count && count <= NAMED_MOST; k++)
        add(l, values[k], "%s/%.100s", heading, names[k]);
}

static void add_split(list *l, const char *split, const dro_metrics *m, const dro_data_info *info)
{
    char heading[48];
#define X(name, code, title, better, unit, meaning) add(l, m->name, "%s/" #name, split);
    DRO_METRIC_LIST(X)
#undef X
    snprintf(heading, sizeof heading, "%s_class_accuracy", split);
    add_named(l, heading, info->class_names, m->per_class, m->classes);
    snprintf(heading, sizeof heading, "%s_class_precision", split);
    add_named(l, heading, info->class_names, m->class_precision, m->classes);
    snprintf(heading, sizeof heading, "%s_group_accuracy", split);
    add_named(l, heading, info->group_names, m->per_group, m->groups);
}

/* ---- the event ---- */

void dro__telemetry(dro__buffer *out, const dro_train_record *r, const dro_data_info *info,
                    double now)
{
    static const char *const names[] = {"train", "test", "holdout", "window"};
    const bool has[] = {r->has_train, r->has_test, r->has_holdout, r->has_window};
    const dro_metrics *splits[] = {&r->train, &r->test, &r->holdout, &r->window};
    list l = {.capacity = 5 * 3 * (NAMED_MOST + 16)};
    l.values = dro__alloc(l.capacity, sizeof *l.values);
    l.tags = dro__alloc(l.capacity, sizeof *l.tags);
    if (l.values && l.tags) {
        add_optimizer(&l, &r->info);
        add(&l, r->epoch, "optimizer/epoch");
        add_named(&l, "class_weight", info->class_names, r->class_weights, info->classes);
        add_named(&l, "group_weight", info->group_names, r->group_weights, info->groups);
        for (int s = 0; s < 4; s++)
            if (has[s])
                add_split(&l, names[s], splits[s], info);
        dro__events_add(out, (int64_t)r->info.step, now, l.values, l.count);
    } else {
        out->failed = true;
    }
    dro__free(l.values);
    dro__free(l.tags);
}
