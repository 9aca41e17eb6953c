/* The linear model on sparse rows of many features: dro_linear trains it, or the loop over a stream
 * (progressive.c); the backend's rows_dot evaluates. One weight per feature and no bias; two
 * classes (logistic or squared loss) or a real-valued target (squared loss). A stream may have more
 * classes: one weight per feature for each of them, and cross-entropy. */
#include "text.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the loss: for a stream too ---- */

/* What the rows are, in words for messages. */
static void name_place(const dro__task *t, char *text, size_t size)
{
    int used = t->info.kind == DRO_DATA_STREAM ? snprintf(text, size, "a stream")
                                               : snprintf(text, size, "sparse rows of %zu features",
                                                          t->info.features - (t->data->bias != 0));
    if (t->regression)
        snprintf(text + used, size - (size_t)used, " with a real-valued target");
    else if (t->outputs > 2)
        snprintf(text + used, size - (size_t)used, " of %zu classes", t->outputs);
}

static dro_status take_loss(void *user, const char *name, const char *value)
{
    if (strcmp(name, "loss") == 0)
        snprintf(user, DRO__LOSS_SIZE, "%s", value);
    return DRO_OK;
}

/* Refuses a recipe that would have no effect here, or only part of its effect. */
static dro_status refuse_recipe(const dro__task *t, const dro__model_choice *c, const char *place,
                                const char *loss)
{
    char recipe[32];
    dro_train_get(c->settings, "recipe", recipe, sizeof recipe);
    if (t->regression)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "recipe %s on %s: its loss, %s, is for classes: leave the recipe out",
                         recipe, place, loss);
    return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                     "recipe %s on %s: its loss, %s, is not supported: use tilt=class with recover "
                     "instead, or set loss=%s to use only the rest of the recipe",
                     recipe, place, loss, t->outputs > 2 ? "cross-entropy" : "logistic");
}

/* Settings of losses that rows do not support; at their defaults they are in every network's
 * config.json. */
static dro_status check_loss_settings(const dro__task *t, const dro__model_choice *c,
                                      const char *place)
{
    dro_param p;
    char text[64], loss[DRO__LOSS_SIZE];
    double value, usual;
    dro__loss_text(t, loss, sizeof loss);
    for (int i = 0; dro_net_param(i, &p) == DRO_OK; i++) {
        bool of_loss = false;
        for (int k = 0; k < DRO__LOSS_SETTING_COUNT; k++)
            of_loss = of_loss || strcmp(dro__loss_settings[k], p.name) == 0;
        if (!of_loss || dro_train_get(c->settings, p.name, text, sizeof text) != DRO_OK)
            continue;
        if (!dro__number_double(text, &value) || !dro__number_double(p.fallback, &usual) ||
            value != usual)
            return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                             "%s=%s on %s: the loss, %s, has no %s: leave it out", p.name, text,
                             place, loss, p.name);
    }
    return DRO_OK;
}

dro_status dro__row_loss(dro__task *t, const dro__model_choice *c)
{
    char given[DRO__LOSS_SIZE] = "", name[DRO__LOSS_SIZE] = "", place[100];
    name_place(t, place, sizeof place);
    if (c->about)
        snprintf(name, sizeof name, "%s", c->about->loss);
    if (c->settings) {
        DRO_TRY(dro__recipe_apply(c->settings, take_loss, name));
        if (dro_train_get(c->settings, "loss", given, sizeof given) == DRO_OK)
            snprintf(name, sizeof name, "%s", given);
    }
    bool many = t->outputs > 2;
    bool squared = name[0] ? !many && strcmp(name, "squared") == 0 : t->regression;
    /* for two classes with logits 0 and <x, w>, cross-entropy is the logistic loss */
    bool logistic = !t->regression && (!name[0] || (!many && strcmp(name, "logistic") == 0) ||
                                       strcmp(name, "cross-entropy") == 0);
    if (!squared && !logistic && c->settings && !given[0])
        return refuse_recipe(t, c, place, name);
    const char *accepted = t->regression ? "squared" : "logistic or squared";
    accepted = many ? "cross-entropy" : accepted;
    if (!squared && !logistic)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED, "loss %s on %s: expected %s", name, place,
                         accepted);
    t->row_loss = squared ? DRO__LOSS_SQUARED : DRO__LOSS_LOGISTIC;
    return c->settings ? check_loss_settings(t, c, place) : DRO_OK;
}

/* ---- the model ---- */

static dro_status make_targets(dro__task *t)
{
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    t->y = dro__alloc((size_t)e->count + 1, sizeof(float));
    if (!t->y)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %lld labels", (long long)e->count);
    for (int64_t i = 0; i < e->count; i++)
        t->y[i] = e->labels ? (e->labels[i] == 1 ? 1.0f : -1.0f) : e->targets[i];
    return DRO_OK;
}

dro_status dro__sparse_model(const dro__task *t, dro_linear **model)
{
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    dro_linear_data data = dro_linear_data_default();
    data.n = e->count;
    data.features = t->info.features;
    data.starts = e->starts;
    data.columns = e->columns;
    data.values = e->values;
    data.y = t->y;
    data.groups = e->groups;
    data.group_count = t->info.groups;
    data.loss = t->row_loss == DRO__LOSS_SQUARED ? "squared" : "logistic";
    return dro_linear_create(t->ctx, &data, model);
}

dro_status dro__sparse_open(dro__task *t, const dro__model_choice *c)
{
    t->outputs = t->regression ? 1 : 2;
    if (c->about && !t->regression)
        t->outputs = (size_t)c->about->shape.outputs;
    t->dim = t->width * dro__row_heads(t);
    DRO_TRY(dro__row_loss(t, c));
    DRO_TRY(dro__model_fits(t, c, t->dim));
    if (!c->train)
        return DRO_OK;
    DRO_TRY(make_targets(t));
    return dro__sparse_model(t, &t->linear);
}

void dro__row_margins(const dro__task *t, const dro__row_matrix *rows, const dro__row_ids *of,
                      const float *w, float *column, float *margins)
{
    const dro__backend *be = t->ctx->backend;
    size_t heads = dro__row_heads(t);
    if (heads == 1) {
        be->rows_dot(t->ctx->pool, rows, of->ids, of->count, w, margins);
        return;
    }
    for (size_t k = 0; k < heads; k++) {
        be->rows_dot(t->ctx->pool, rows, of->ids, of->count, w + k * t->width, column);
        for (size_t i = 0; i < of->count; i++)
            margins[i * heads + k] = column[i];
    }
}

/* -log of the true class's share of exp(z), z (classes); slopes (classes), or NULL. */
static float cross_entropy(const float *z, size_t classes, int32_t label, float *slopes)
{
    double top = (double)z[0], sum = 0;
    for (size_t k = 1; k < classes; k++)
        top = fmax(top, (double)z[k]);
    for (size_t k = 0; k < classes; k++)
        sum += exp((double)z[k] - top);
    for (size_t k = 0; slopes && k < classes; k++)
        slopes[k] = (float)(exp((double)z[k] - top) / sum - ((int32_t)k == label));
    return label < 0 ? 0 : (float)(log(sum) + top - (double)z[label]);
}

void dro__row_losses(const dro__task *t, size_t count, const float *margins,
                     const dro__row_truth *truth, float *losses, float *slopes)
{
    size_t heads = dro__row_heads(t);
    if (heads == 1)
        t->ctx->backend->loss(t->row_loss, count, margins, truth->y, losses, slopes);
    for (size_t i = 0; heads > 1 && truth->classes && i < count; i++)
        losses[i] = cross_entropy(margins + i * heads, heads, truth->classes[i],
                                  slopes ? slopes + i * heads : NULL);
}

dro_status dro__sparse_evaluate(dro__task *t, const dro__walk *walk, size_t count, const float *w,
                                float *logits, float *losses)
{
    const dro_examples *e = walk->rows;
    dro__row_matrix rows = {
        .features = t->width, .starts = e->starts, .columns = e->columns, .values = e->values};
    float margins[DRO__EVAL_MOST], y[DRO__EVAL_MOST];
    float *out = t->outputs == 2 ? margins : logits;
    dro__row_margins(t, &rows, &(dro__row_ids){walk->ids, count}, w, margins, out);
    for (size_t i = 0; losses && i < count; i++)
        y[i] = !walk->labels ? walk->targets[i] : walk->labels[i] == 1 ? 1.0f : -1.0f;
    if (losses)
        dro__row_losses(t, count, out, &(dro__row_truth){y, walk->labels}, losses, NULL);
    for (size_t i = 0; t->outputs == 2 && i < count; i++) {
        logits[2 * i] = 0;
        logits[2 * i + 1] = margins[i];
    }
    return DRO_OK;
}
