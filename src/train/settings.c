/* The run's described parameters. Every other name goes on to the network or the optimiser. */
#include "text.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BEST_WORD(name, sign) "|" #name

#define S dro__train_settings
#define TEXT(name, fallback, meaning)                                                              \
    {                                                                                              \
        {#name, DRO_PARAM_TEXT, fallback, 0, 0, NULL, meaning}, offsetof(S, name)                  \
    }

static const dro__param own[] = {
    TEXT(data, "synth:glyphs", "the data's SPEC, format:path[,option=value...]"),
    TEXT(model, "", "the model; if not given, one that suits the data"),
    TEXT(optimizer, "recover", "the optimiser"),
    DRO__CHOICE("recipe", recipe, S, "none", "none|imbalanced",
                "settings that go together, under those that are given; dro_recipe_setting()"),
    TEXT(label, "", "what reports call the run; if not given, its optimiser"),
    TEXT(init, "", "a weights file to begin with"),
    TEXT(train_only, "", "patterns of tensors to train, as in layer4.*,fc.*; all if not given"),
    DRO__INTEGER("epochs", epochs, S, "0", 0, 1e6,
                 "passes over the data; 0: 15, more of few examples"),
    DRO__INTEGER("steps", steps, S, "0", 0, 1e15, "steps instead of epochs"),
    DRO__INTEGER("batch", batch, S, "0", 0, 1e9, "examples in a batch; 0: 128, less on few"),
    DRO__INTEGER("seed", seed, S, "1", 0, 9e15, "of every random choice"),
    DRO__REAL("eval_every", eval_every, S, "1", 1e-6, 1e6, "epochs between evaluations"),
    DRO__CHOICE("eval_train", eval_train, S, "yes", "yes|no|last",
                "whether F is worked out over the training set at evaluations"),
    DRO__CHOICE("best", best, S, "none", "none" DRO__BEST_LIST(BEST_WORD),
                "the holdout's measure by which the best weights are kept; objective: F, in all of "
                "the run that of its last step"),
    DRO__INTEGER("patience", patience, S, "0", 0, 1e9,
                 "stop after so many evaluations without a better one; 0: never"),
    DRO__REAL("max_time", max_time, S, "0", 0, 1e9, "stop after so many seconds; 0: never"),
    DRO__REAL("checkpoint_every", checkpoint_every, S, "60", 0, 1e9,
              "seconds between checkpoints, besides those at evaluations"),
    DRO__CHOICE("on_divergence", on_divergence, S, "stop", "stop|halve",
                "halve: go back to the last checkpoint with half the step"),
    DRO__CHOICE("augment", augment, S, "auto", "auto|yes|no",
                "crop and flip training images; auto: not those of characters"),
    DRO__INTEGER("size", size, S, "0", 0, 4096, "side of images in files; 0: 224"),
    DRO__REAL("report_lambda", report_lambda, S, "0", 0, 1e12,
              "the lambda of the F that is reported; 0: the optimiser's"),
    TEXT(report_like, "", "with report_lambda 0: that optimiser's default lambda instead"),
    DRO__CHOICE("report_tilt", report_tilt, S, "own", "own|example|class|group",
                "what the F that is reported is robust over; own: the optimiser's"),
    DRO__CHOICE(
        "exact", exact, S, "no", "no|yes",
        "the same bytes on 1, 2, 4 and 8 ranks and any number of threads (backends cpu, ref)"),
    DRO__CHOICE("sync_norm", sync_norm, S, "no", "no|yes",
                "several ranks: batch norm over all of them; exact=yes implies it"),
    DRO__CHOICE("progressive", progressive, S, "no", "no|yes",
                "a stream: predict each batch before learning from it"),
    DRO__INTEGER("report_every", report_every, S, "10000", 1, 1e15,
                 "progressive: examples between two lines"),
    DRO__PARAMS_END,
};

const dro__param *const dro__train_tables[DRO__TABLE_MAX] = {own};

dro_status dro_train_param(int index, dro_param *param)
{
    const dro__param *row = index < 0 ? NULL : dro__param_at(dro__train_tables, index);
    if (!row || !param)
        return row ? DRO_ERR_ARGUMENT : DRO_ERR_END;
    *param = row->about;
    return DRO_OK;
}

bool dro__net_has(const char *name)
{
    dro_param p;
    for (int i = 0; dro_net_param(i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

bool dro__optimizer_has(const char *optimizer, const char *name)
{
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = dro__alloc(size, 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static dro_status set_extra(dro_train *t, const char *name, const char *value)
{
    char *copy = copy_text(value);
    for (size_t k = 0; copy && k < t->extra_count; k++)
        if (strcmp(t->extras[k].name, name) == 0) {
            dro__free(t->extras[k].value);
            t->extras[k].value = copy;
            return DRO_OK;
        }
    if (!copy || dro__grow(t->ctx, (void **)&t->extras, &t->extra_room, t->extra_count + 1,
                           sizeof *t->extras) != DRO_OK) {
        dro__free(copy);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a setting");
    }
    char *own_name = copy_text(name);
    if (!own_name) {
        dro__free(copy);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a setting");
    }
    t->extras[t->extra_count++] = (dro__extra){own_name, copy};
    return DRO_OK;
}

dro_status dro_train_set(dro_train *t, const char *name, const char *value)
{
    if (!t || !name || !value)
        return DRO_ERR_ARGUMENT;
    if (dro__param_find(dro__train_tables, name))
        return dro__params_set(t->ctx, dro__train_tables, &t->set, "train", name, value);
    if (dro__net_has(name))
        DRO_TRY(dro__net_value(t->ctx, name, value));
    return set_extra(t, name, value);
}

dro_status dro_train_get(const dro_train *t, const char *name, char *text, size_t size)
{
    if (!t || !name || !text || size == 0)
        return DRO_ERR_ARGUMENT;
    const dro__param *row = dro__param_find(dro__train_tables, name);
    if (row) {
        dro__params_print(row, &t->set, text, size);
        return DRO_OK;
    }
    for (size_t k = 0; k < t->extra_count; k++)
        if (strcmp(t->extras[k].name, name) == 0) {
            snprintf(text, size, "%s", t->extras[k].value);
            return DRO_OK;
        }
    return dro__fail(t->ctx, DRO_ERR_NAME, "'%.60s' was not set", name);
}

static dro_status set_net(void *net, const char *name, const char *value)
{
    return dro__net_has(name) ? dro_net_set(net, name, value) : DRO_OK;
}

dro_status dro__apply_net(const dro_train *t, dro_net *net)
{
    DRO_TRY(dro__recipe_apply(t, set_net, net));
    for (size_t k = 0; k < t->extra_count; k++)
        if (dro__net_has(t->extras[k].name))
            DRO_TRY(dro_net_set(net, t->extras[k].name, t->extras[k].value));
    return DRO_OK;
}

/* ---- the optimiser ---- */

double dro__report_lambda(const dro_train *t)
{
    if (t->set.report_lambda > 0)
        return t->set.report_lambda;
    return *t->set.report_like ? dro__default_of(t, t->set.report_like, "lambda") : NAN;
}

static dro_status set_default(void *user, const char *name, const char *value)
{
    dro_train *t = user;
    if (!dro__optimizer_has(t->set.optimizer, name))
        return DRO_OK;
    return dro_optimizer_set(t->opt, name, value);
}

/* An epoch is as many examples for every optimiser, also for those that do not draw a batch in each step. Returns
 * whether that changed the number of steps, which some defaults are made of. */
static bool set_length(dro_train *t)
{
    uint64_t each = t->task.epoch_steps, batch = t->task.batch, before = t->steps;
    if (t->set.steps || !each)
        return false;
    uint64_t epochs = t->steps / each;
    uint64_t examples = epochs * ((uint64_t)t->task.info.examples[DRO_TRAIN] / batch) * batch;
    each = dro__steps_for(t->opt, examples) / epochs;
    t->task.epoch_steps = each ? each : 1;
    t->steps = epochs * t->task.epoch_steps;
    return t->steps != before;
}

static dro_status make_optimizer(dro_train *t)
{
    dro_optimizer_destroy(t->opt);
    t->opt = NULL;
    DRO_TRY(dro_optimizer_create(t->ctx, t->set.optimizer, &t->task.problem, &t->opt));
    DRO_TRY(dro__apply_defaults(t, false));
    DRO_TRY(dro__recipe_apply(t, set_default, t));
    for (size_t k = 0; k < t->extra_count; k++)
        if (!dro__net_has(t->extras[k].name))
            DRO_TRY(dro_optimizer_set(t->opt, t->extras[k].name, t->extras[k].value));
    DRO_TRY(dro__apply_defaults(t, true));
    return dro_optimizer_set_real(t->opt, "seed", (double)t->set.seed);
}

dro_status dro__make_optimizer(dro_train *t)
{
    DRO_TRY(make_optimizer(t));
    if (set_length(t))
        DRO_TRY(make_optimizer(t));
    return dro_optimizer_set_real(t->opt, "steps", (double)t->steps);
}
