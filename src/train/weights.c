/* Weights files that describe their model. The metadata holds all that is needed to use them:
 *
 *   dro.model, dro.shape "3,32,32,10", dro.classes (a JSON list)
 *   dro.scale, dro.shift   of pixels
 *   dro.images             "files", cropped at the centre, or "arrays"
 *   dro.loss, dro.loss_settings "smoothing=0,focal_gamma=2,tau=1"
 *   dro.prior              a JSON list: the classes' shares of the training data
 *   dro.prior_shift        a JSON list, where it is not 0: gives the probabilities that prior
 *                          (probabilities.c)
 *   dro.threshold          "PROBABILITY CLASS RULE": a class (by number) is predicted where it has
 *                          at least this probability (threshold.c)
 *   dro.encoding           how the cells of a table became features (src/data/csv_keep.c), or the
 *                          first index of libsvm's columns
 *   dro.kind               "network", or "rows": the linear model on sparse rows, whose one tensor
 *                          is fc.weight (1, features), of more than two classes (classes,
 *                          features) */
#include "buffer.h"
#include "safetensors.h"
#include "text.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if DRO_WITH_JANSSON
#include <jansson.h>
#endif

enum { PAIRS = 15, PATH_SIZE = 4352 };

static void three(char text[64], const float *values)
{
    char one[3][20];
    for (int k = 0; k < 3; k++) {
        snprintf(one[k], sizeof one[k], "%.9g", (double)values[k]);
        char *comma = strchr(one[k], ','); /* where the locale writes one */
        if (comma)
            *comma = '.';
    }
    snprintf(text, 64, "%s,%s,%s", one[0], one[1], one[2]);
}

void dro__loss_text(const dro__task *t, char *text, size_t size)
{
    const dro__param_row *const tables[DRO__TABLE_MAX] = {dro__params_net};
    if (t->net)
        dro__params_print(dro__param_find(tables, "loss"), &t->net->set, text, size);
    else if (t->outputs > 2)
        snprintf(text, size, "cross-entropy");
    else
        snprintf(text, size, "%s", t->row_loss == DRO__LOSS_SQUARED ? "squared" : "logistic");
}

/* The settings of the network that a file keeps: those of the loss and, where that is not linear,
 * of the classifier. NULL: no more. */
static const char *kept_setting(size_t k)
{
    static const char *const classifier[] = {"classifier", "classifier_scale", NULL};
    return k < DRO__LOSS_SETTING_COUNT ? dro__loss_settings[k]
                                       : classifier[k - DRO__LOSS_SETTING_COUNT];
}

/* "smoothing=0,focal_gamma=2,tau=1" */
static void loss_settings_text(const dro__task *t, char *text, size_t size)
{
    const dro__param_row *const tables[DRO__TABLE_MAX] = {dro__params_net};
    char value[64];
    size_t used = 0;
    *text = '\0';
    for (size_t k = 0; kept_setting(k) && used < size; k++) {
        if (k >= DRO__LOSS_SETTING_COUNT && !t->net->set.classifier)
            return;
        dro__params_print(dro__param_find(tables, kept_setting(k)), &t->net->set, value,
                          sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", k ? "," : "", kept_setting(k),
                                 value);
    }
}

/* A number for each class, as a JSON list. NULL: no memory. */
static char *list_text(const double *values, int32_t count)
{
    enum { NUMBER = 32 };
    size_t used = 1;
    char *text = dro__alloc((size_t)count + 1, NUMBER);
    if (!text)
        return NULL;
    text[0] = '[';
    for (int32_t k = 0; k < count; k++) {
        char *at = text + used;
        used += (size_t)snprintf(at, NUMBER, "%s%.17g", k ? ", " : "", values[k]);
        for (at += k ? 2 : 0; *at; at++)
            *at = *at == ',' ? '.' : *at; /* where the locale writes one */
    }
    text[used] = ']';
    return text;
}

/* What a file has for each class and each column. */
typedef struct class_texts {
    char *names, *prior, *shift, *features; /* the last three may be NULL */
} class_texts;

static void free_texts(class_texts *c)
{
    dro__free(c->features);
    dro__free(c->names);
    dro__free(c->prior);
    dro__free(c->shift);
}

static dro_status make_texts(const dro__task *t, class_texts *c)
{
    int32_t classes = t->info.classes;
    char *const *features = t->data ? t->data->feature_names : NULL;
    double sum = 0, shifted = 0;
    *c = (class_texts){.names = dro__names_text(t->info.class_names, classes)};
    if (features)
        c->features = dro__names_text((const char *const *)features, (int32_t)t->data->features);
    for (int32_t k = 0; t->class_share && k < classes; k++)
        sum += t->class_share[k];
    for (int32_t k = 0; t->shift && k < classes; k++)
        shifted += fabs(t->shift[k]);
    if (sum > 0)
        c->prior = list_text(t->class_share, classes);
    if (shifted > 0)
        c->shift = list_text(t->shift, classes);
    if (!c->names || (sum > 0 && !c->prior) || (shifted > 0 && !c->shift) ||
        (features && !c->features)) {
        free_texts(c);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the names of the classes");
    }
    c->names[strcspn(c->names, "\n")] = '\0';
    if (features)
        c->features[strcspn(c->features, "\n")] = '\0';
    return DRO_OK;
}

static dro_status save(dro__task *t, const char *path, const class_texts *classes, const float *w)
{
    char shape[64], loss[64], scale[64], shift[64], settings[256];
    const char *pairs[2 * PAIRS + 1] = {
        "format",   "pt", "dro.model",   t->model,       "dro.shape", shape,
        "dro.loss", loss, "dro.classes", classes->names, "dro.kind",  t->net ? "network" : "rows"};
    int used = 12;
    snprintf(shape, sizeof shape, "%d,%d,%d,%d", t->net ? t->shape.channels : (int)t->width,
             t->net ? t->shape.height : 1, t->net ? t->shape.width : 1, (int)t->outputs);
    dro__loss_text(t, loss, sizeof loss);
    if (t->net) {
        loss_settings_text(t, settings, sizeof settings);
        pairs[used++] = "dro.loss_settings";
        pairs[used++] = settings;
    }
    if (classes->prior) {
        pairs[used++] = "dro.prior";
        pairs[used++] = classes->prior;
    }
    if (classes->shift) {
        pairs[used++] = "dro.prior_shift";
        pairs[used++] = classes->shift;
    }
    if (classes->features) {
        pairs[used++] = "dro.features";
        pairs[used++] = classes->features;
    }
    if (t->images) {
        three(scale, t->normal.scale);
        three(shift, t->normal.shift);
        pairs[used++] = "dro.scale";
        pairs[used++] = scale;
        pairs[used++] = "dro.shift";
        pairs[used++] = shift;
        pairs[used++] = "dro.images";
        pairs[used++] = t->info.kind == DRO_DATA_FILES ? "files" : "arrays";
    }
    const char *encoding = t->data ? t->data->encoding : t->encoding;
    if (encoding) {
        pairs[used++] = "dro.encoding";
        pairs[used++] = encoding;
    }
    if (t->net)
        return dro_net_save_with(t->net, path, pairs);
    dro__file_tensor tensor = {.name = "fc.weight",
                               .rank = 2,
                               .shape = {(int64_t)dro__row_heads(t), (int64_t)t->width},
                               .data = w};
    return dro__safetensors_write(t->ctx, path, &tensor, 1, pairs);
}

dro_status dro__weights_save(dro__task *t, const char *folder, const char *name, const float *w,
                             const float *statistics)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return dro__fail(t->ctx, DRO_ERR_FILE, "the path of the folder is too long");
    class_texts classes;
    DRO_TRY(make_texts(t, &classes));
    dro_status status = DRO_OK;
    float *now = t->net ? dro__alloc(dro__task_statistics(t) + 1, sizeof(float)) : NULL;
    if (t->net && !now)
        status = dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory to write weights");
    if (status == DRO_OK && t->net) { /* the network keeps its own statistics */
        status = dro_net_statistics(t->net, now);
        if (status == DRO_OK)
            status = dro_net_set_weights(t->net, w);
        if (status == DRO_OK)
            status = dro_net_set_statistics(t->net, statistics);
    }
    if (status == DRO_OK)
        status = save(t, path, &classes, w);
    char why[DRO__ERROR_SIZE]; /* of the first failure */
    memcpy(why, t->ctx->error, sizeof why);
    dro_status restored = now ? dro_net_set_statistics(t->net, now) : DRO_OK;
    if (status == DRO_OK)
        status = restored;
    else
        memcpy(t->ctx->error, why, sizeof why);
    dro__free(now);
    free_texts(&classes);
    return status;
}

/* ---- reading ---- */

dro_status dro__weights_rows(dro_context *ctx, const char *path, float *w, size_t count)
{
    dro__safetensors *file;
    DRO_TRY(dro__safetensors_open(ctx, path, &file));
    int64_t at = dro__safetensors_find(file, "fc.weight");
    dro_status status = dro__safetensors_check(file);
    if (status == DRO_OK)
        status = at < 0 ? dro__fail(ctx, DRO_ERR_DATA, "%s: tensor 'fc.weight' is missing", path)
                        : dro__safetensors_read(file, (size_t)at, w, count);
    dro__safetensors_close(file);
    return status;
}

dro_status dro__weights_loss(const dro__weights_about *about, dro_net *net)
{
    char text[sizeof about->loss_settings], *rest = text, *word;
    memcpy(text, about->loss_settings, sizeof text);
    DRO_TRY(dro_net_set(net, "loss", about->loss));
    while ((word = strtok_r(rest, ",", &rest))) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        for (size_t k = 0; value && kept_setting(k); k++)
            if (strcmp(word, kept_setting(k)) == 0)
                DRO_TRY(dro_net_set(net, word, value));
    }
    return about->prior ? dro_net_prior(net, about->prior, (size_t)about->classes) : DRO_OK;
}

void dro__weights_about_free(dro__weights_about *about)
{
    for (int32_t k = 0; about->names && k < about->classes; k++)
        dro__free(about->names[k]);
    dro__free(about->names);
    dro__free(about->encoding);
    dro__free(about->prior);
    dro__free(about->prior_shift);
    *about = (dro__weights_about){0};
}

#if DRO_WITH_JANSSON

static bool needs_prior(const char *loss)
{
    for (int k = 0; k < DRO__NET_LOSSES; k++)
        if (strcmp(dro__net_losses[k].name, loss) == 0)
            return dro__net_losses[k].constant != NULL;
    return false;
}

static dro_status read_names(dro_context *ctx, const char *path, const char *list,
                             dro__weights_about *about)
{
    json_t *names = json_loads(list, 0, NULL);
    if (!json_is_array(names) || json_array_size(names) > DRO__OUTPUTS_MAX) {
        json_decref(names);
        return dro__fail(ctx, DRO_ERR_DATA, "%s: its metadata dro.classes is not a list", path);
    }
    about->names = dro__alloc(json_array_size(names) + 1, sizeof(char *));
    for (size_t k = 0; about->names && k < json_array_size(names); k++) {
        const char *name = json_string_value(json_array_get(names, k));
        size_t size = strlen(name ? name : "") + 1;
        about->names[k] = dro__alloc(size, 1);
        if (!about->names[k])
            break;
        memcpy(about->names[k], name ? name : "", size);
        about->classes = (int32_t)k + 1;
    }
    bool fine = about->names && (size_t)about->classes == json_array_size(names);
    json_decref(names);
    return fine ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the classes' names");
}

static dro_status read_numbers(dro_context *ctx, const char *path, const char *name,
                               const char *list, const dro__weights_about *about, double **out)
{
    json_t *numbers = json_loads(list, 0, NULL);
    bool fine = json_array_size(numbers) == (size_t)about->classes && about->classes > 0;
    for (int32_t k = 0; fine && k < about->classes; k++)
        fine = json_is_number(json_array_get(numbers, (size_t)k));
    if (!fine) {
        json_decref(numbers);
        return dro__fail(ctx, DRO_ERR_DATA, "%s: its metadata %s is not one number a class", path,
                         name);
    }
    *out = dro__alloc((size_t)about->classes, sizeof **out);
    for (int32_t k = 0; *out && k < about->classes; k++)
        (*out)[k] = json_number_value(json_array_get(numbers, (size_t)k));
    json_decref(numbers);
    return *out ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the classes' shares");
}

/* A file of an older version has no shares: its logits are the same, its loss is the plain one. */
static dro_status read_prior(dro_context *ctx, const char *path, const dro__safetensors *file,
                             dro__weights_about *about)
{
    const char *prior = dro__safetensors_metadata(file, "dro.prior");
    const char *shift = dro__safetensors_metadata(file, "dro.prior_shift");
    if (prior)
        DRO_TRY(read_numbers(ctx, path, "dro.prior", prior, about, &about->prior));
    else if (needs_prior(about->loss))
        strcpy(about->loss, "cross-entropy");
    if (shift)
        DRO_TRY(read_numbers(ctx, path, "dro.prior_shift", shift, about, &about->prior_shift));
    return DRO_OK;
}

static dro_status read_threshold(dro_context *ctx, const char *path, const char *text,
                                 dro__weights_about *about)
{
    double value;
    int class;
    const char *end = text ? dro__number_double(text, &value) : NULL;
    if (!text)
        return DRO_OK;
    if (!end || sscanf(end, "%d %63s", &class, about->rule) != 2 || !(value > 0 && value <= 1) ||
        class < 0 || class >= about->classes)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: its metadata dro.threshold is damaged", path);
    about->threshold = value;
    about->rare = class;
    return DRO_OK;
}

static bool read_three(const char *text, float *values)
{
    json_t *list = NULL;
    char buffer[128];
    if (!text || snprintf(buffer, sizeof buffer, "[%s]", text) >= (int)sizeof buffer)
        return false;
    list = json_loads(buffer, 0, NULL);
    bool fine = json_array_size(list) == 3;
    for (size_t k = 0; fine && k < 3; k++)
        values[k] = (float)json_number_value(json_array_get(list, k));
    json_decref(list);
    return fine;
}

static dro_status read_about(dro_context *ctx, const char *path, const dro__safetensors *file,
                             dro__weights_about *about)
{
    const char *model = dro__safetensors_metadata(file, "dro.model");
    const char *shape = dro__safetensors_metadata(file, "dro.shape");
    const char *kind = dro__safetensors_metadata(file, "dro.kind");
    const char *loss = dro__safetensors_metadata(file, "dro.loss");
    const char *classes = dro__safetensors_metadata(file, "dro.classes");
    const char *encoding = dro__safetensors_metadata(file, "dro.encoding");
    const char *settings = dro__safetensors_metadata(file, "dro.loss_settings");
    const char *images = dro__safetensors_metadata(file, "dro.images");
    dro_model_shape *s = &about->shape;
    if (!model || !shape || !kind || !classes ||
        sscanf(shape, "%d,%d,%d,%d", &s->channels, &s->height, &s->width, &s->outputs) != 4)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s does not name its model: expected a file written by dro train", path);
    snprintf(about->model, sizeof about->model, "%s", model);
    snprintf(about->loss, sizeof about->loss, "%s", loss ? loss : "cross-entropy");
    about->sparse = strcmp(kind, "rows") == 0;
    about->files = images && strcmp(images, "files") == 0;
    about->arrays = images && strcmp(images, "arrays") == 0;
    about->has_normal =
        read_three(dro__safetensors_metadata(file, "dro.scale"), about->normal.scale) &&
        read_three(dro__safetensors_metadata(file, "dro.shift"), about->normal.shift);
    DRO_TRY(read_names(ctx, path, classes, about));
    if (s->outputs != (about->classes ? about->classes : 1))
        return dro__fail(
            ctx, DRO_ERR_DATA,
            "%s: its metadata has %d outputs and the names of %d classes: expected one output each",
            path, s->outputs, about->classes);
    DRO_TRY(read_prior(ctx, path, file, about));
    DRO_TRY(read_threshold(ctx, path, dro__safetensors_metadata(file, "dro.threshold"), about));
    snprintf(about->loss_settings, sizeof about->loss_settings, "%s", settings ? settings : "");
    about->regression = about->classes == 0;
    if (encoding) {
        about->encoding = dro__copy_text(encoding);
        if (!about->encoding)
            return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    }
    return DRO_OK;
}

#else

static dro_status read_about(dro_context *ctx, const char *path, const dro__safetensors *file,
                             dro__weights_about *about)
{
    (void)file, (void)about;
    return dro__fail(ctx, DRO_ERR_UNSUPPORTED, "%s: this build of libdro has no jansson", path);
}

#endif

dro_status dro__weights_about_read(dro_context *ctx, const char *path, dro__weights_about *about)
{
    dro__safetensors *file;
    *about = (dro__weights_about){0};
    DRO_TRY(dro__safetensors_open(ctx, path, &file));
    dro__json_watch();
    dro_status status = read_about(ctx, path, file, about);
    if (dro__memory_ran_out())
        status = dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to read it", path);
    dro__safetensors_close(file);
    if (status != DRO_OK)
        dro__weights_about_free(about);
    return status;
}
