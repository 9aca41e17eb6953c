/* A data set and a model: the problem that is trained, and the function that is evaluated. */
#include "image_files.h"
#include "text.h"
#include "scale.h"
#include "train.h"

#include <stdio.h>
#include <string.h>

/* ---- which model ---- */

static void choose_model(dro__task *t, const dro__model_choice *c)
{
    const char *name = !*c->model && c->start ? c->start->model : c->model;
    bool small = t->info.kind == DRO_DATA_PIXELS;
    if (!*name && t->images)
        name = !small ? "resnet18"
               : strcmp(t->info.format, "synth") == 0 || strcmp(t->info.format, "idx") == 0
                   ? "glyphnet"
                   : "resnet20";
    else if (!*name)
        name = "linear";
    snprintf(t->model, sizeof t->model, "%s", name);
    t->sparse = t->info.kind == DRO_DATA_SPARSE && (t->info.features > DRO__DENSE_MOST || c->rows);
}

static dro_status check_data(dro__task *t, const dro__model_choice *c)
{
    const dro_data_info *info = &t->info;
    if (c->train && info->examples[DRO_TRAIN] < 1)
        return dro__fail(t->ctx, DRO_ERR_DATA, "%s: there are no training examples", c->data);
    if (c->train && t->images && info->classes == 0)
        return dro__fail(
            t->ctx, DRO_ERR_UNSUPPORTED,
            "%s: the label of images is a class: a real-valued target requires a table", c->data);
    if (info->classes == 1 && c->train)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "%s: all examples are of one class, '%.60s': expected two or more",
                         c->data, info->class_names ? info->class_names[0] : "0");
    if (c->train && !t->images && info->features == (size_t)(t->data->bias != 0))
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "%s: no column is left to learn from: `dro data` says which were left out",
                         c->data);
    if (c->train)
        DRO_TRY(dro__trainable(t->data));
    if (info->classes == 0 && c->settings && c->settings->set.recipe)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: recipes are for classes, the label is a real-valued target "
                         "(target=class makes each number a class)",
                         c->data);
    if (c->train && !t->images && !dro__model_of_rows(t->model))
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "model %s is for images, the data is a table of %zu features: expected "
                         "linear or mlp",
                         t->model, info->features - (t->data->bias != 0));
    if (t->sparse && strcmp(t->model, "linear") != 0)
        return dro__fail(
            t->ctx, DRO_ERR_UNSUPPORTED,
            "model %s on sparse rows of %zu features: expected at most %d features, or "
            "the model linear",
            t->model, info->features, DRO__DENSE_MOST);
    if (c->train && t->sparse && info->classes != 2 && info->classes != 0)
        return dro__fail(
            t->ctx, DRO_ERR_UNSUPPORTED,
            "sparse rows of %zu features with %d classes: expected two classes, a real "
            "target, or at most %d features",
            info->features, info->classes, DRO__DENSE_MOST);
    return DRO_OK;
}

/* Checks that the data fits the weights of a file. */
static dro_status check_shape(const dro__task *t, const dro__model_choice *c)
{
    const dro_data_info *i = &t->info;
    const dro_model_shape *s = &c->shape;
    if (s->channels == 0)
        return DRO_OK;
    bool rows = i->kind == DRO_DATA_DENSE || i->kind == DRO_DATA_SPARSE, flat = s->height == 1;
    bool of_rows = flat && s->width == 1 && !(c->about && (c->about->files || c->about->arrays));
    size_t width = (size_t)s->channels;
    char weights[80];
    size_t bias = dro__kept_bias(dro__rows_kept(c->encoding));
    if (bias && i->kind == DRO_DATA_DENSE)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "the weights are for sparse rows of %zu features: expected data of the "
                         "format that they were trained on",
                         bias);
    if (of_rows)
        snprintf(weights, sizeof weights, "rows of %zu features", width - (bias > 0));
    else
        snprintf(weights, sizeof weights, "images of %d x %d x %d", s->channels, s->height,
                 s->width);
    if (rows &&
        (!flat || i->features > width || (i->kind == DRO_DATA_DENSE && i->features != width)))
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "the weights are for %s, the data has rows of %zu features", weights,
                         i->features);
    if (!rows && of_rows)
        return dro__fail(t->ctx, DRO_ERR_DATA, "the weights are for %s, the data has images",
                         weights);
    if (i->kind == DRO_DATA_PIXELS &&
        (i->channels != s->channels || i->height != s->height || i->width != s->width))
        return dro__fail(t->ctx, DRO_ERR_DATA, "the weights are for %s, the data has %d x %d x %d",
                         weights, i->channels, i->height, i->width);
    if (i->kind == DRO_DATA_FILES && (s->channels != 3 || s->height != s->width))
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "the weights are for %s: images in files become square and of three "
                         "channels",
                         weights);
    return DRO_OK;
}

static dro_model_shape shape_of(const dro__task *t, const dro__model_choice *c)
{
    const dro_data_info *i = &t->info;
    dro_model_shape s = {(int32_t)i->features, 1, 1, i->classes ? i->classes : 1};
    int32_t side = c->size ? c->size : c->start && c->start->files ? c->start->shape.height : 224;
    if (i->kind == DRO_DATA_PIXELS)
        s = (dro_model_shape){i->channels, i->height, i->width, s.outputs};
    else if (i->kind == DRO_DATA_FILES)
        s.channels = 3, s.height = s.width = side;
    return s;
}

/* ---- shares ---- */

static dro_status count_shares(dro__task *t)
{
    const dro_data_info *i = &t->info;
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    t->class_share = dro__alloc((size_t)i->classes + 1, sizeof(double));
    t->group_share = dro__alloc((size_t)i->groups + 1, sizeof(double));
    int32_t most = i->classes > t->shape.outputs ? i->classes : t->shape.outputs;
    t->shift = dro__alloc((size_t)most + 1, sizeof(double));
    if (!t->class_share || !t->group_share || !t->shift)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the classes' shares");
    double mass = 0;
    for (int64_t k = 0; k < e->count; k++) {
        double weight = e->weights ? (double)e->weights[k] : 1;
        mass += weight;
        if (e->labels)
            t->class_share[e->labels[k]] += weight;
        if (e->groups)
            t->group_share[e->groups[k]] += weight;
    }
    for (int32_t k = 0; k < i->classes; k++)
        t->class_share[k] /= mass;
    for (int32_t k = 0; k < i->groups; k++)
        t->group_share[k] /= mass;
    return mass > 0 || e->count == 0
               ? DRO_OK
               : dro__fail(t->ctx, DRO_ERR_DATA, "no training example has a weight above 0");
}

/* The mean square of the features; features that a row does not have are 0. */
static double mean_square(dro__task *t)
{
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    const float *values = e->starts ? e->values : e->x;
    int64_t count = e->starts ? e->starts[e->count] : e->count * (int64_t)t->info.features;
    double sum = 0, some = 0;
    for (int64_t i = 0; values && i < count; i++) {
        sum += (double)values[i] * values[i];
        some += values[i] != 0;
    }
    t->norm = e->count > 0 && values ? sum / (double)e->count : 0;
    return some > 0 ? sum / some : 0;
}

/* ---- memory ---- */

/* Checks the memory of the vectors as long as w; with a device, those of the optimiser are there.
 * The other half of the memory is for the data, the network's values, and the copies for
 * checkpoints. */
static bool is_positive(const dro_train *t, const char *setting)
{
    char text[64];
    double value;
    return dro_settings_get(t->settings, setting, text, sizeof text) == DRO_OK &&
           dro__number_double(text, &value) && value > 0;
}

static uint64_t vectors_of(const dro__task *t, const dro__model_choice *c)
{
    uint64_t net = !t->sparse;
    if (!c->train)
        return net + 2; /* a predictor has w and the copy that it is read into */
    bool device = t->ctx->backend->host_alloc != NULL;
    const dro__train_settings *s = &c->settings->set;
    uint64_t own = dro__optimizer_vectors(s->optimizer) + is_positive(c->settings, "ema") +
                   is_positive(c->settings, "sam");
    return net + 1 + (s->best != 0) + (device ? 0 : own);
}

dro_status dro__model_fits(const dro__task *t, const dro__model_choice *c, size_t parameters)
{
    const dro_data_info *i = &t->info;
    uint64_t most = dro__machine_memory() / 2, vectors = vectors_of(t, c), bytes;
    char rows[64] = "", widest[80] = "";
    if (__builtin_mul_overflow(sizeof(float) * vectors, (uint64_t)parameters, &bytes))
        bytes = UINT64_MAX;
    if (bytes <= most)
        return DRO_OK;
    if (!t->images)
        snprintf(rows, sizeof rows, " for %zu features",
                 i->features - (t->data && t->data->bias != 0));
    if (t->data && t->data->widest)
        snprintf(widest, sizeof widest, " (line %lld of the %s file has the highest index)",
                 (long long)t->data->widest, t->data->widest_in == DRO_TEST ? "test" : "training");
    return dro__fail(t->ctx, DRO_ERR_MEMORY,
                     "%.200s: the model %.40s has %zu weights%s, and %llu vectors of them take "
                     "%llu MB: expected at most %llu MB, half of the available memory%s",
                     c->data, t->model, parameters, rows, (unsigned long long)vectors,
                     (unsigned long long)(bytes / 1000000), (unsigned long long)(most / 1000000),
                     widest);
}

/* ---- the network ---- */

static dro_status make_net(dro__task *t, const dro__model_choice *c)
{
    DRO_TRY(dro_net_model(t->ctx, t->model, &t->shape, &t->net));
    DRO_TRY(dro__model_fits(t, c, dro_net_parameters(t->net)));
    if (t->regression)
        DRO_TRY(dro_net_set(t->net, "loss", "squared"));
    if (c->about)
        DRO_TRY(dro__weights_loss(c->about, t->net));
    if (c->settings)
        DRO_TRY(dro__apply_net(c->settings, t->net));
    if (c->train && t->info.classes)
        DRO_TRY(dro_net_prior(t->net, t->class_share, (size_t)t->info.classes));
    if (c->train_only && *c->train_only)
        DRO_TRY(dro_net_train_only(t->net, c->train_only));
    DRO_TRY(dro_net_ready(t->net));
    t->outputs = (size_t)t->shape.outputs;
    t->dim = dro_net_dim(t->net);
    return dro_net_init(t->net, c->seed);
}

/* A linear network on rows can be solved exactly. */
static void offer_full(dro__task *t)
{
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    if (t->images || !dro__full_rows_net(&t->net->graph, &t->full))
        return;
    t->full.ctx = t->ctx;
    t->full.n = e->count;
    t->full.rows = (dro__row_matrix){.features = t->width,
                                     .x = e->x,
                                     .starts = e->starts,
                                     .columns = e->columns,
                                     .values = e->values};
    t->full.all = (dro_net_batch){.labels = e->labels, .targets = e->labels ? NULL : e->targets};
    dro__full_rows_open(&t->full);
    t->problem.library = &t->full.able;
}

/* Evaluates batches in pieces, unless shards do so already. */
static dro_status cut_batches(dro__task *t, const dro__model_choice *c)
{
    bool synced = c->shards || (c->sync_norm && dro_comm_size(c->comm) > 1);
    if (synced && c->microbatch)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "microbatch with %s=yes, which evaluates a batch as a whole: leave one of "
                         "them out",
                         c->shards ? "exact" : "sync_norm");
    if (synced)
        return DRO_OK;
    dro__pieces_options o = {
        .most = c->microbatch, .cut = t->images ? dro__feed_cut : NULL, .cut_user = t};
    dro_problem mine = t->problem;
    return dro__pieces_create(t->ctx, &mine, &o, &t->pieces, &t->problem);
}

/* r(w) excludes the output biases: without any feature they are the class shares. */
static void spare_biases(dro__task *t)
{
    const dro_net *net = t->net;
    if (t->sparse && t->data->bias) {
        t->problem.reg_free_first = t->data->bias;
        t->problem.reg_free_count = 1;
    }
    for (size_t k = 0; net && !t->images && k < net->tensor_count; k++) {
        const dro__net_entry *one = &net->tensors[k];
        const char *what = strrchr(one->name, '.');
        if (one->node == net->graph.heads[0] && one->place == DRO__IN_WEIGHTS && what &&
            strcmp(what, ".bias") == 0) {
            t->problem.reg_free_first = (size_t)one->offset;
            t->problem.reg_free_count = one->count;
        }
    }
}

static dro_status make_problem(dro__task *t, const dro__model_choice *c)
{
    int64_t n = t->info.examples[DRO_TRAIN];
    int64_t usual = c->batch ? (int64_t)c->batch : n / 8 < 128 ? n / 8 : 128;
    t->batch = (size_t)(usual > 0 ? usual : 1);
    if ((int64_t)t->batch > n)
        return dro__fail(t->ctx, DRO_ERR_RANGE, "batch %zu: there are %lld training examples",
                         t->batch, (long long)n);
    t->epoch_steps = (uint64_t)n / t->batch;
    dro_net_source source = {0};
    if (t->sparse) {
        DRO_TRY(dro_linear_problem(t->linear, &t->problem));
    } else {
        DRO_TRY(dro__feed_training(t, c, &source));
        DRO_TRY(dro_net_problem(t->net, &source, &t->problem));
        offer_full(t);
        t->problem.max_batch = t->ring_capacity > 2 * t->batch ? t->ring_capacity : 2 * t->batch;
    }
    spare_biases(t);
    t->problem.example_weights = t->feed[DRO_TRAIN].examples.weights;
    if (t->problem.example_weights && t->problem.class_share)
        t->problem.class_share = t->class_share; /* the linear model counts rows */
    DRO_TRY(cut_batches(t, c));
    return dro__ranks_open(t, c);
}

enum { SMALL = 96 }; /* the most pixels of a small image's side */

static bool is_large_model(const char *model)
{
    for (int k = 0; dro_model_name(k); k++)
        if (strcmp(dro_model_name(k), model) == 0)
            return dro_model_usual(k).height > SMALL;
    return false;
}

/* The side of the arrays that images in files become, 0: they stay in their files. */
static int32_t side_of_arrays(dro__task *t, const dro__model_choice *c)
{
    const dro__weights_about *start = c->start;
    bool square = start && start->shape.height == start->shape.width;
    int32_t side = c->size                                 ? c->size
                   : start && start->arrays && square      ? start->shape.height
                   : start && start->files                 ? 0
                   : *c->model && is_large_model(c->model) ? 0
                                                           : dro__files_side(t->data);
    return side <= SMALL ? side : 0;
}

/* Small images in files become arrays, of the size that is given, that of the weights file that
 * training starts from, or their own unless the model is for larger ones. */
static dro_status take_small_images(dro__task *t, const dro__model_choice *c)
{
    char spec[DRO__SPEC_MAX];
    if (t->data->kind != DRO_DATA_FILES)
        return DRO_OK;
    int32_t side = side_of_arrays(t, c);
    bool start = c->start && !c->size;
    bool grey = start && c->start->shape.channels == 1 && !dro__option(t->data, "channels");
    if (side == 0 || snprintf(spec, sizeof spec, "%s,size=%d%s", c->data, (int)side,
                              grey ? ",channels=1" : "") >= (int)sizeof spec)
        return DRO_OK;
    dro_data_close(t->data);
    t->data = NULL;
    DRO_TRY(dro__data_for_training(t->ctx, spec, &t->data));
    t->side = side;
    return c->size ? DRO_OK
                   : dro__remark(t->data,
                                 start ? "the images become %d x %d, as those of the weights file"
                                       : "the images' shorter side is %d pixels (median): all "
                                         "become %d x %d, as with size=%d",
                                 (int)side, (int)side, (int)side, (int)side);
}

/* The normalisation of images is that of a model's weights file, or their own. */
static void take_normal(dro__task *t, const dro__model_choice *c)
{
    const dro__weights_about *of = c->about ? c->about : c->start;
    t->normal = of && of->has_normal ? of->normal : dro__normal_of(t->data);
    t->data->normal = &t->normal;
}

static dro_status open_task(dro__task *t, const dro__model_choice *c)
{
    DRO_TRY(c->train ? dro__data_for_training(t->ctx, c->data, &t->data)
                     : dro__data_open_given(t->ctx, c->data, c->encoding, &t->data));
    if (c->train)
        DRO_TRY(take_small_images(t, c));
    if (c->about && c->about->regression)
        DRO_TRY(dro__data_without_classes(t->data));
    DRO_TRY(dro_data_info_get(t->data, &t->info));
    t->images = t->info.kind == DRO_DATA_PIXELS || t->info.kind == DRO_DATA_FILES;
    t->regression = t->info.classes == 0;
    choose_model(t, c);
    DRO_TRY(check_data(t, c));
    if (c->train && c->settings) {
        dro__choose_optimizer(c->settings);
        DRO_TRY(dro__recipe_set_own(c->settings));
    }
    if (c->train && c->size && !t->side && t->info.kind != DRO_DATA_FILES)
        return dro__fail(t->ctx, DRO_ERR_ARGUMENT,
                         "size %d: it is for images that stay in their files; %s", (int)c->size,
                         t->images ? "these are arrays (size=N of the data makes them so)"
                                   : "the data has none");
    if (t->images)
        take_normal(t, c);
    t->shape = c->shape.channels ? c->shape : shape_of(t, c);
    t->width = t->images ? 0 : (size_t)t->shape.channels;
    DRO_TRY(check_shape(t, c));
    for (int s = 0; s < DRO_SPLITS; s++)
        DRO_TRY(dro__feed_split(t, (dro_split)s, c));
    DRO_TRY(count_shares(t));
    t->square = c->train ? mean_square(t) : 0;
    DRO_TRY(t->sparse ? dro__sparse_open(t, c) : make_net(t, c));
    return c->train ? make_problem(t, c) : DRO_OK;
}

dro_status dro__task_open(dro_context *ctx, const dro__model_choice *choice, dro__task *t)
{
    *t = (dro__task){.ctx = ctx};
    dro_status status = open_task(t, choice);
    if (status != DRO_OK)
        dro__task_close(t);
    return status;
}

void dro__task_close(dro__task *t)
{
    dro__ranks_close(t);
    dro__pieces_free(t->pieces);
    dro__feed_close(t);
    dro_net_destroy(t->net);
    dro_linear_destroy(t->linear);
    dro__full_rows_close(&t->full);
    dro__free(t->y);
    dro__free(t->class_share);
    dro__free(t->group_share);
    dro__free(t->shift);
    dro__free(t->label_map);
    dro_data_close(t->data);
    *t = (dro__task){0};
}

size_t dro__task_statistics(const dro__task *t)
{
    return t->net ? dro_net_statistics_count(t->net) : 0;
}

size_t dro__task_frozen(const dro__task *t, uint64_t *sum)
{
    size_t count = t->net ? t->net->graph.frozen_size : 0;
    if (sum && count)
        *sum = dro__checksum(0, t->net->frozen, count * sizeof(float));
    return count;
}

dro_status dro__task_remember(dro__task *t, dro_status status)
{
    if (status != DRO_OK)
        memcpy(t->why, t->ctx->error, sizeof t->why);
    return status;
}

dro_status dro__task_recall(dro__task *t, dro_status status)
{
    if (status != DRO_OK && status != DRO_ERR_END && *dro__ranks_error(t))
        dro__fail(t->ctx, status, "%s", dro__ranks_error(t));
    else if (status != DRO_OK && status != DRO_ERR_END && t->why[0])
        dro__fail(t->ctx, status, "%s", t->why);
    t->why[0] = '\0';
    return status;
}

/* ---- evaluation ---- */

/* The sample is the beginning of one fixed order. */
static int64_t id_at(const dro__task *t, dro_split split, int64_t place)
{
    enum { SAMPLE_KEY = 0x5a3 };
    const dro__split_feed *feed = &t->feed[split];
    if (feed->count == feed->examples.count)
        return place;
    if (feed->loader)
        return dro__loader_example(feed->loader, (uint64_t)place);
    return (int64_t)dro__permute((uint64_t)feed->examples.count, SAMPLE_KEY, (uint64_t)place);
}

static dro__walk in_order(const dro__task *t, const dro_examples *e, int64_t first)
{
    return (dro__walk){.rows = e,
                       .ids = t->walk_ids,
                       .labels = e->labels ? e->labels + first : NULL,
                       .groups = e->groups ? e->groups + first : NULL,
                       .targets = e->targets ? e->targets + first : NULL,
                       .weights = e->weights ? e->weights + first : NULL};
}

dro__walk dro__task_walk(dro__task *t, dro__range range)
{
    dro_split split = range.split;
    int64_t first = range.first;
    const dro_examples *e = &t->feed[split].examples;
    bool sample = t->feed[split].count != e->count;
    dro__walk walk = in_order(t, e, sample ? 0 : first);
    for (size_t i = 0; i < range.count; i++) {
        int64_t id = id_at(t, split, first + (int64_t)i);
        t->walk_ids[i] = id;
        if (e->labels)
            t->walk_labels[i] = t->label_map ? t->label_map[e->labels[id]] : e->labels[id];
        t->walk_groups[i] = sample && e->groups ? e->groups[id] : 0;
        t->walk_targets[i] = sample && e->targets ? e->targets[id] : 0;
    }
    if (walk.labels && (sample || t->label_map))
        walk.labels = t->walk_labels;
    if (sample) { /* a sample of the training set, without example weights */
        walk.groups = e->groups ? t->walk_groups : NULL;
        walk.targets = e->targets ? t->walk_targets : NULL;
        walk.weights = NULL;
    }
    return walk;
}

dro_status dro__task_evaluate(dro__task *t, dro__range range, const float *w, float *logits,
                              float *losses)
{
    dro__walk walk = dro__task_walk(t, range);
    t->labels = walk.labels;
    if (t->sparse)
        return dro__sparse_evaluate(t, &walk, range.count, w, logits, losses);
    dro_net_batch batch = {0};
    DRO_TRY(dro__feed_batch(t, range, &batch));
    if (t->labels)
        batch.labels = t->labels;
    return dro_net_evaluate(t->net, w, &batch, logits, losses);
}
