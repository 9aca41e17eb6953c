/* Using a trained model: a weights file that describes its model, and the data to predict. */
#include "predictor.h"
#include "buffer.h"
#include "safetensors.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SPEC_MOST = 8192 };

static _Thread_local char last_error[DRO__ERROR_SIZE];

/* The end of a call: an error is kept for the thread. */
static dro_status unlock(dro_predictor *p, dro_status status)
{
    if (status != DRO_OK)
        memcpy(last_error, p->ctx->error, sizeof last_error);
    pthread_mutex_unlock(&p->lock);
    return status;
}

const char *dro_predictor_error(void)
{
    return last_error;
}

/* ---- opening ---- */

/* The index of a name of this length among the model's classes, or -1. Labels of a stream are
 * numbers: +1 is 1. */
static int32_t find_exact(const dro__weights_about *about, const char *name, size_t length)
{
    for (size_t plus = 0; plus < 2; plus++)
        for (int32_t j = 0; j < about->classes; j++) {
            const char *other = about->names[j] + (plus && about->names[j][0] == '+');
            size_t skip = plus && *name == '+';
            if (strlen(other) == length - skip && memcmp(name + skip, other, length - skip) == 0)
                return j;
        }
    return -1;
}

/* A '.' at the end of a table's label is dropped if that gives a known class, as in a file of
 * test=. */
static int32_t find_name(const dro__weights_about *about, const char *name, bool dotted)
{
    size_t length = strlen(name);
    int32_t at = find_exact(about, name, length);
    return at < 0 && dotted && length > 1 && name[length - 1] == '.'
               ? find_exact(about, name, length - 1)
               : at;
}

/* Maps the data's classes to the model's by name. */
static dro_status map_labels(dro_predictor *p)
{
    const dro_data_info *info = &p->task.info;
    bool same = info->classes == p->about.classes, dotted = p->task.data->format->dotted;
    int32_t *map = dro__alloc((size_t)info->classes + 1, sizeof *map);
    if (!map)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for %d classes", info->classes);
    for (int32_t k = 0; k < info->classes; k++) {
        map[k] = find_name(&p->about, info->class_names[k], dotted);
        if (map[k] < 0 && !p->unknown[0])
            snprintf(p->unknown, sizeof p->unknown, "%.120s", info->class_names[k]);
        same = same && map[k] == k;
    }
    p->task.label_map = map;
    if (same) {
        dro__free(map);
        p->task.label_map = NULL;
    }
    return DRO_OK;
}

static dro_status check_target(const dro_predictor *p, const char *weights)
{
    bool classes = p->task.info.classes > 0;
    if (p->about.regression == classes)
        return dro__fail(p->ctx, DRO_ERR_DATA, "%s is for %s, the data has %s", weights,
                         classes ? "a real-valued target" : "classes",
                         classes ? "classes" : "a real-valued target");
    if (p->about.sparse != p->task.sparse)
        return dro__fail(p->ctx, DRO_ERR_DATA, "%s is for %s rows", weights,
                         p->about.sparse ? "sparse" : "dense");
    return DRO_OK;
}

static dro_status load(dro_predictor *p, const char *path)
{
    const dro__backend *be = p->ctx->backend;
    p->w = be->alloc(p->task.dim, sizeof(float));
    float *host = dro__alloc(p->task.dim, sizeof(float));
    dro_status status =
        p->w && host ? DRO_OK
                     : dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for %zu weights", p->task.dim);
    if (status == DRO_OK && p->task.net) {
        status = dro_net_load(p->task.net, path, NULL);
        if (status == DRO_OK)
            memcpy(host, dro_net_weights(p->task.net), p->task.dim * sizeof(float));
    } else if (status == DRO_OK) {
        status = dro__weights_rows(p->ctx, path, host, p->task.dim);
    }
    if (status == DRO_OK)
        status = dro__copy_in(p->ctx, p->w, host, p->task.dim * sizeof(float));
    dro__free(host);
    return status;
}

/* Images in files are prepared as for training: whole, as with size=, or cropped from the centre of
 * the enlarged picture. */
static dro_status taken_alike(const dro_predictor *p, const char *spec, char text[SPEC_MOST])
{
    const dro__weights_about *a = &p->about;
    bool files = dro__names_files(spec);
    bool sized = strstr(spec, ",size=") != NULL;
    if (files && sized && a->files)
        return dro__fail(p->ctx, DRO_ERR_ARGUMENT,
                         "the model was trained on images cut from their files: leave out size=");
    int length = snprintf(text, SPEC_MOST, "%s", spec);
    if (files && !sized && a->arrays && a->shape.height == a->shape.width)
        length =
            snprintf(text, SPEC_MOST, "%s,size=%d%s", spec, a->shape.height,
                     a->shape.channels == 1 && !strstr(spec, ",channels=") ? ",channels=1" : "");
    return length < SPEC_MOST ? DRO_OK
                              : dro__fail(p->ctx, DRO_ERR_ARGUMENT, "the data's name is too long");
}

static dro_status open_predictor(dro_predictor *p, const char *weights, const char *spec)
{
    char data[SPEC_MOST], full[DRO__SPEC_MAX];
    DRO_TRY(dro__weights_about_read(p->ctx, weights, &p->about));
    DRO_TRY(dro__spec_full(p->ctx, spec, full));
    DRO_TRY(taken_alike(p, full, data));
    const dro__weights_about *a = &p->about;
    dro__model_choice choice = {.data = data,
                                .model = a->model,
                                .shape = a->shape,
                                .rows = a->sparse,
                                .size = a->shape.height,
                                .encoding = a->encoding ? a->encoding : "",
                                .about = a};
    DRO_TRY(dro__task_open(p->ctx, &choice, &p->task));
    DRO_TRY(check_target(p, weights));
    DRO_TRY(load(p, weights));
    DRO_TRY(map_labels(p));
    dro__weights_shift(a, p->task.net, p->task.shift);
    return DRO_OK;
}

dro_status dro_predictor_open(dro_context *ctx, const char *weights, const char *spec,
                              dro_predictor **predictor)
{
    if (predictor)
        *predictor = NULL;
    if (!ctx || !weights || !spec || !predictor)
        return DRO_ERR_ARGUMENT;
    dro_predictor *p = dro__alloc(1, sizeof *p);
    if (!p)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a predictor");
    p->ctx = ctx;
    p->precision = p->recall = p->f1 = NAN;
    p->path = dro__copy_text(weights);
    pthread_mutex_init(&p->lock, NULL);
    dro_status status = p->path ? open_predictor(p, weights, spec)
                                : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a predictor");
    if (status != DRO_OK) {
        dro_predictor_close(p);
        return status;
    }
    *predictor = p;
    return dro__done(ctx, DRO_OK);
}

void dro_predictor_close(dro_predictor *p)
{
    if (!p)
        return;
    if (p->w)
        p->ctx->backend->free(p->w);
    if (p->measured)
        dro__evaluation_free(&p->evaluation);
    dro__explanation_free(p);
    dro__task_close(&p->task);
    dro__weights_about_free(&p->about);
    dro__free(p->path);
    pthread_mutex_destroy(&p->lock);
    dro__free(p);
}

/* ---- use ---- */

const dro_data_info *dro_predictor_data(const dro_predictor *p)
{
    return p ? &p->task.info : NULL;
}

const char *dro_predictor_model(const dro_predictor *p)
{
    return p ? p->about.model : NULL;
}

const char *dro_predictor_loss(const dro_predictor *p)
{
    return p ? p->about.loss : NULL;
}

int32_t dro_predictor_classes(const dro_predictor *p)
{
    return p ? p->about.classes : 0;
}

const char *dro_predictor_class_name(const dro_predictor *p, int32_t index)
{
    return p && index >= 0 && index < p->about.classes ? p->about.names[index] : NULL;
}

dro_status dro_predictor_examples(const dro_predictor *p, dro_split split, dro_examples *examples)
{
    return p ? dro_data_examples(p->task.data, split, examples) : DRO_ERR_ARGUMENT;
}

dro_status dro_predictor_cells(const dro_predictor *p, dro_split split, const int64_t *examples,
                               size_t count, size_t columns, dro_cells **cells)
{
    return p ? dro_data_cells(p->task.data, split, examples, count, columns, cells)
             : DRO_ERR_ARGUMENT;
}

const char *dro_predictor_skipped(const dro_predictor *p, int index)
{
    return p ? dro_data_skipped(p->task.data, index) : NULL;
}

const char *dro_predictor_remark(const dro_predictor *p, int index)
{
    return p ? dro_data_remark(p->task.data, index) : NULL;
}

static dro_status logits_of(dro_predictor *p, dro_split split, int64_t first, size_t count,
                            float *logits, int32_t *truth)
{
    int64_t total = p->task.feed[split].examples.count;
    if (first > total || count > (uint64_t)(total - first))
        return dro__fail(p->ctx, DRO_ERR_RANGE, "%zu examples from %lld on: there are %lld", count,
                         (long long)first, (long long)total);
    size_t step = p->task.feed[split].batch;
    for (size_t done = 0; done < count;) {
        size_t some = count - done < step ? count - done : step;
        dro__range range = {split, first + (int64_t)done, some};
        DRO_TRY(dro__task_evaluate(&p->task, range, p->w, logits + done * p->task.outputs, NULL));
        for (size_t i = 0; truth && i < some; i++)
            truth[done + i] = p->task.labels ? p->task.labels[i] : -1;
        const dro_data_info *info = &p->task.info;
        for (size_t i = 0; i < some * p->task.outputs; i++) {
            float *x = &logits[done * p->task.outputs + i];
            if (!info->classes)
                *x = (float)(info->target_centre + info->target_scale * (double)*x);
            if (p->task.unread[i / p->task.outputs])
                *x = NAN;
        }
        done += some;
    }
    return DRO_OK;
}

dro_status dro_predictor_logits(dro_predictor *p, dro_split split, int64_t first, size_t count,
                                float *logits, int32_t *truth)
{
    if (!p || !logits || split < 0 || split >= DRO_SPLITS || first < 0)
        return DRO_ERR_ARGUMENT;
    pthread_mutex_lock(&p->lock);
    return unlock(p, logits_of(p, split, first, count, logits, truth));
}

dro_status dro_predictor_probabilities(const dro_predictor *p, size_t count, const float *logits,
                                       double *probabilities)
{
    if (!p || !logits || !probabilities || p->about.classes < 1)
        return DRO_ERR_ARGUMENT;
    int32_t classes = p->about.classes;
    for (size_t i = 0; i < count; i++) {
        const float *row = logits + i * (size_t)classes;
        int32_t best = 0;
        for (int32_t k = 1; k < classes; k++)
            best = row[k] > row[best] ? k : best;
        dro__probability(dro__link_of(&p->task), p->task.shift, row, classes, best,
                         probabilities + i * (size_t)classes);
    }
    return DRO_OK;
}

dro_status dro__predictor_labelled(dro_predictor *p, dro_split split)
{
    if (p->task.info.examples[split] <= 0)
        return dro__fail(p->ctx, DRO_ERR_DATA, "this split of the data has no examples");
    if (p->task.data->unlabelled)
        return dro__fail(p->ctx, DRO_ERR_DATA,
                         "the data has no labels to compare with: name them, %s",
                         p->task.data->unlabelled);
    if (p->unknown[0])
        return dro__fail(p->ctx, DRO_ERR_DATA,
                         "the data has a class '%s', which the model does not know", p->unknown);
    return DRO_OK;
}

static dro_status evaluate(dro_predictor *p, dro_split split, const dro_metrics **metrics)
{
    DRO_TRY(dro__predictor_labelled(p, split));
    if (!p->measured) {
        /* figures are over the model's classes */
        DRO_TRY(dro__evaluation_create(&p->task, p->about.classes, &p->evaluation));
        p->measured = true;
    }
    p->evaluation.splits[split].decision = dro__predictor_decision(p);
    dro__measure_reset(&p->evaluation.splits[split], &dro__mean_loss);
    DRO_TRY(dro__evaluate_split(&p->task, &p->evaluation, split, p->w, 0, NULL));
    *metrics = &p->evaluation.splits[split].figures;
    return DRO_OK;
}

dro_status dro_predictor_evaluate(dro_predictor *p, dro_split split, const dro_metrics **metrics)
{
    if (!p || !metrics || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    dro__forget(p->ctx);
    pthread_mutex_lock(&p->lock);
    return unlock(p, evaluate(p, split, metrics));
}
