/* A network's weights files: safetensors with PyTorch's tensor names. Loading takes everything or
 * nothing. */
#include "nn.h"
#include "safetensors.h"

#include <stdio.h>
#include <string.h>

/* Everything that a file may replace, until it is complete. */
typedef struct staged {
    float *weights, *frozen, *statistics;
} staged;

static void staged_free(staged *s)
{
    dro__free(s->weights);
    dro__free(s->frozen);
    dro__free(s->statistics);
}

static dro_status staged_make(const dro_net *net, staged *s)
{
    *s = (staged){.weights = dro__alloc(net->graph.dim + 1, sizeof(float)),
                  .frozen = dro__alloc(net->graph.frozen_size + 1, sizeof(float)),
                  .statistics = dro__alloc(net->graph.statistics_size + 1, sizeof(float))};
    if (!s->weights || !s->frozen || !s->statistics) {
        staged_free(s);
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for %zu parameters",
                         net->graph.dim + net->graph.frozen_size);
    }
    memcpy(s->weights, net->weights, net->graph.dim * sizeof(float));
    memcpy(s->frozen, net->frozen, net->graph.frozen_size * sizeof(float));
    dro_status status = dro_net_statistics(net, s->statistics);
    if (status != DRO_OK)
        staged_free(s);
    return status;
}

static float *tensor_memory(const staged *s, const dro__net_entry *t)
{
    float *places[] = {s->weights, s->frozen, s->statistics};
    return places[t->place] + t->offset;
}

/* A tensor by its name, or as DataParallel writes it. */
static int64_t find(const dro__safetensors *file, const char *name)
{
    char longer[512];
    int64_t at = dro__safetensors_find(file, name);
    if (at < 0 && snprintf(longer, sizeof longer, "module.%s", name) < (int)sizeof longer)
        at = dro__safetensors_find(file, longer);
    return at;
}

static void shape_text(char *text, size_t size, int rank, const int64_t *shape)
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < rank && used < size; k++)
        used +=
            (size_t)snprintf(text + used, size - used, k ? " x %lld" : "%lld", (long long)shape[k]);
    if (rank == 0)
        snprintf(text, size, "a single number");
}

static bool is_head(const dro_net *net, const dro__net_entry *t)
{
    return t->node == net->graph.heads[0] || t->node == net->graph.heads[1];
}

static dro_status check_variance(const dro_net *net, const char *path, const dro__net_entry *t,
                                 const float *values)
{
    const char *what = strrchr(t->name, '.') + 1;
    for (size_t k = 0; strcmp(what, "running_var") == 0 && k < t->count; k++)
        if (values[k] < 0)
            return dro__fail(net->ctx, DRO_ERR_DATA,
                             "%s: tensor '%s': number %zu is %g: a variance is at least 0", path,
                             t->name, k, (double)values[k]);
    return DRO_OK;
}

static dro_status read_tensor(const dro_net *net, dro__safetensors *file, const char *path,
                              const dro__net_entry *t, const staged *s, size_t *kept)
{
    int64_t at = find(file, t->name);
    if (at < 0)
        return dro__fail(net->ctx, DRO_ERR_DATA,
                         "%s: tensor '%s' is missing: is it another model's file?", path, t->name);
    const dro__tensor_info *info = dro__safetensors_tensor(file, (size_t)at);
    bool same = info->rank == t->rank, same_but_first = same;
    for (int k = 0; same_but_first && k < t->rank; k++) {
        same = same && info->shape[k] == t->shape[k];
        same_but_first = k == 0 || info->shape[k] == t->shape[k];
    }
    if (same) {
        DRO_TRY(dro__safetensors_read(file, (size_t)at, tensor_memory(s, t), t->count));
        return check_variance(net, path, t, tensor_memory(s, t));
    }
    if (is_head(net, t) && same_but_first) {
        ++*kept;
        return DRO_OK;
    }
    char have[128], want[128];
    shape_text(have, sizeof have, info->rank, info->shape);
    shape_text(want, sizeof want, t->rank, t->shape);
    return dro__fail(net->ctx, DRO_ERR_DATA, "%s: tensor '%s' is %s, the model needs %s", path,
                     t->name, have, want);
}

/* Tensors of the file that the network does not use: counters, and an auxiliary head that this
 * input size leaves out. */
static bool may_be_left(const dro_net *net, const char *name)
{
    const char *last = strrchr(name, '.');
    if (strncmp(name, "module.", 7) == 0)
        name += 7;
    if (last && strcmp(last, ".num_batches_tracked") == 0)
        return true;
    return net->graph.heads[1] < 0 && strncmp(name, "AuxLogits.", 10) == 0;
}

static dro_status check_leftovers(const dro_net *net, const dro__safetensors *file,
                                  const char *path)
{
    for (size_t k = 0; k < dro__safetensors_count(file); k++) {
        const char *name = dro__safetensors_tensor(file, k)->name, *plain = name;
        bool known = may_be_left(net, name);
        if (strncmp(plain, "module.", 7) == 0)
            plain += 7;
        for (size_t t = 0; !known && t < net->tensor_count; t++)
            known = strcmp(net->tensors[t].name, plain) == 0;
        if (!known)
            return dro__fail(
                net->ctx, DRO_ERR_DATA,
                "%s: tensor '%s' is not part of the model: is it another model's file?", path,
                name);
    }
    return DRO_OK;
}

static dro_status read_all(const dro_net *net, dro__safetensors *file, const char *path,
                           const staged *s, size_t *kept)
{
    bool was_kept = false;
    for (size_t k = 0; k < net->tensor_count; k++) {
        size_t before = *kept;
        DRO_TRY(read_tensor(net, file, path, &net->tensors[k], s, kept));
        const dro__net_entry *t = &net->tensors[k], *last = k ? t - 1 : t;
        bool again = k && last->node == t->node && is_head(net, t);
        if (again && (*kept > before) != was_kept)
            return dro__fail(net->ctx, DRO_ERR_DATA,
                             "%s: tensors '%s' and '%s' are for different numbers of outputs", path,
                             last->name, t->name);
        was_kept = *kept > before;
    }
    return check_leftovers(net, file, path);
}

dro_status dro_net_load(dro_net *net, const char *path, size_t *kept)
{
    if (!net || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    if (!net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "call dro_net_ready first");
    dro__safetensors *file;
    staged s;
    size_t left = 0;
    DRO_TRY(dro__safetensors_open(net->ctx, path, &file));
    dro_status status = dro__safetensors_check(file);
    if (status == DRO_OK)
        status = staged_make(net, &s);
    if (status == DRO_OK) {
        status = read_all(net, file, path, &s, &left);
        if (status == DRO_OK) {
            memcpy(net->weights, s.weights, net->graph.dim * sizeof(float));
            memcpy(net->frozen, s.frozen, net->graph.frozen_size * sizeof(float));
            status = dro_net_set_statistics(net, s.statistics);
        }
        staged_free(&s);
    }
    dro__safetensors_close(file);
    if (status == DRO_OK && kept)
        *kept = left;
    return status;
}

dro_status dro_net_save(const dro_net *net, const char *path)
{
    return dro_net_save_with(net, path, NULL);
}

dro_status dro_net_save_with(const dro_net *net, const char *path, const char *const *metadata)
{
    if (!net || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    if (!net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "call dro_net_ready first");
    dro__file_tensor *tensors = dro__alloc(net->tensor_count, sizeof *tensors);
    float *statistics = dro__alloc(net->graph.statistics_size + 1, sizeof *statistics);
    dro_status status = tensors && statistics
                            ? dro_net_statistics(net, statistics)
                            : dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory to write weights");
    staged s = {net->weights, net->frozen, statistics};
    for (size_t k = 0; status == DRO_OK && k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        tensors[k] =
            (dro__file_tensor){.name = t->name, .rank = t->rank, .data = tensor_memory(&s, t)};
        memcpy(tensors[k].shape, t->shape, sizeof t->shape);
    }
    if (status == DRO_OK) {
        static const char *const plain[] = {"format", "pt", NULL};
        status = dro__safetensors_write(net->ctx, path, tensors, net->tensor_count,
                                        metadata ? metadata : plain);
    }
    dro__free(tensors);
    dro__free(statistics);
    return status;
}
