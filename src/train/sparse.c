/* The linear model on sparse rows of many features: dro_linear trains it, the backend's rows_dot evaluates.
 * One weight per feature and no bias; two classes (logistic loss) or a real target (squared loss). */
#include "train.h"

#include <stdio.h>
#include <string.h>

static dro_status choose_loss(dro__task *t, const dro__model_choice *c, const char **loss)
{
    char name[64] = "";
    if (c->about)
        snprintf(name, sizeof name, "%s", c->about->loss);
    if (c->settings && dro_train_get(c->settings, "loss", name, sizeof name) != DRO_OK)
        name[0] = '\0';
    *loss = t->regression ? "squared" : "logistic";
    if (strcmp(name, "squared") == 0)
        *loss = "squared";
    else if (name[0] && strcmp(name, "logistic") != 0 && strcmp(name, "cross-entropy") != 0)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "loss %s on sparse rows of %zu features: expected logistic or squared",
                         name, t->info.features);
    t->row_loss = strcmp(*loss, "squared") == 0 ? DRO__LOSS_SQUARED : DRO__LOSS_LOGISTIC;
    return DRO_OK;
}

dro_status dro__sparse_open(dro__task *t, const dro__model_choice *c)
{
    const char *loss;
    DRO_TRY(choose_loss(t, c, &loss));
    DRO_TRY(dro__model_fits(t, c, t->width));
    for (int s = 0; s < DRO_SPLITS; s++) {
        const dro_examples *e = &t->shelf[s].examples;
        t->y[s] = dro__alloc((size_t)e->count + 1, sizeof(float));
        if (!t->y[s])
            return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %lld labels",
                             (long long)e->count);
        for (int64_t i = 0; i < e->count; i++)
            t->y[s][i] = e->labels ? (e->labels[i] == 1 ? 1.0f : -1.0f) : e->targets[i];
    }
    t->outputs = t->regression ? 1 : 2;
    t->dim = t->width;
    const dro_examples *e = &t->shelf[DRO_TRAIN].examples;
    if (!c->train)
        return DRO_OK;
    dro_linear_data data = dro_linear_data_default();
    data.n = e->count;
    data.features = t->info.features;
    data.starts = e->starts;
    data.columns = e->columns;
    data.values = e->values;
    data.y = t->y[DRO_TRAIN];
    data.groups = e->groups;
    data.group_count = t->info.groups;
    data.loss = loss;
    return dro_linear_create(t->ctx, &data, &t->linear);
}

dro_status dro__sparse_evaluate(dro__task *t, dro_split split, int64_t first, size_t count,
                                const float *w, const int32_t *labels, float *logits, float *losses)
{
    const dro_examples *e = &t->shelf[split].examples;
    const dro__backend *be = t->ctx->backend;
    dro__rows rows = {
        .features = t->dim, .starts = e->starts, .columns = e->columns, .values = e->values};
    int64_t ids[DRO__EVAL_MOST] = {0};
    float margins[DRO__EVAL_MOST], y[DRO__EVAL_MOST];
    for (size_t i = 0; i < count; i++) {
        ids[i] = first + (int64_t)i;
        y[i] = !labels ? t->y[split][ids[i]] : labels[i] == 1 ? 1.0f : -1.0f;
    }
    be->rows_dot(t->ctx->pool, &rows, ids, count, w, margins);
    if (losses)
        be->loss(t->ctx->pool, t->row_loss, count, margins, y, losses, NULL);
    for (size_t i = 0; logits && i < count; i++) {
        if (t->outputs == 2)
            logits[2 * i] = 0;
        logits[t->outputs * i + t->outputs - 1] = margins[i];
    }
    return DRO_OK;
}
