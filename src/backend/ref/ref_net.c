/* The reference network: walks the graph forward, and backward in the reverse order. */
#include "ref_net.h"

#include <math.h>
#include <string.h>

typedef dro__real real;

static void free_arrays(dro__ref_state *s)
{
    for (int32_t i = 0; i < s->graph->count; i++) {
        if (s->value)
            dro__free(s->value[i]);
        if (s->slope)
            dro__free(s->slope[i]);
        if (s->value)
            s->value[i] = NULL;
        if (s->slope)
            s->slope[i] = NULL;
    }
    s->capacity = 0;
}

static void destroy(void *net)
{
    dro__ref_state *s = net;
    if (!s)
        return;
    free_arrays(s);
    for (int32_t i = 0; s->moments && i < s->graph->count; i++)
        dro__free(s->moments[i]);
    dro__free(s->value);
    dro__free(s->slope);
    dro__free(s->moments);
    dro__free(s->plane);
    dro__free(s->norm_sums);
    dro__free(s->row);
    dro__free(s->taken);
    dro__free(s);
}

static dro_status create(dro_context *ctx, const dro__graph *graph, const dro__net_memory *memory,
                         void **net)
{
    size_t count = (size_t)graph->count, area = 1, channels = 1;
    dro__ref_state *s = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    s->ctx = ctx;
    s->graph = graph;
    s->memory = *memory;
    s->value = dro__alloc(count, sizeof *s->value);
    s->slope = dro__alloc(count, sizeof *s->slope);
    s->moments = dro__alloc(count, sizeof *s->moments);
    s->taken = dro__alloc(graph->statistics_size + 1, sizeof *s->taken);
    bool ok = s->value && s->slope && s->moments && s->taken;
    for (size_t i = 0; ok && i < count; i++) {
        const dro__graph_node *node = &graph->nodes[i];
        size_t here = (size_t)node->height * (size_t)node->width;
        area = here > area ? here : area;
        channels = (size_t)node->channels > channels ? (size_t)node->channels : channels;
        if (node->op != DRO__OP_NORM)
            continue;
        s->moments[i] = dro__alloc(2 * DRO__PARTS * (size_t)node->channels, sizeof(double));
        ok = s->moments[i] != NULL;
    }
    s->plane = dro__alloc(area, sizeof *s->plane);
    s->norm_sums = dro__alloc(1 + 2 * channels, sizeof *s->norm_sums);
    s->row = dro__alloc(2 * DRO__OUTPUTS_MAX, sizeof *s->row);
    if (!ok || !s->plane || !s->norm_sums || !s->row) {
        destroy(s);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    }
    *net = s;
    return DRO_OK;
}

static dro_status reserve(dro__ref_state *s, size_t examples)
{
    if (examples <= s->capacity)
        return DRO_OK;
    free_arrays(s);
    for (int32_t i = 0; i < s->graph->count; i++) {
        size_t size = dro__node_size(&s->graph->nodes[i]);
        s->value[i] = dro__alloc(examples, size * sizeof(real));
        s->slope[i] = dro__alloc(examples, size * sizeof(real));
        if (!s->value[i] || !s->slope[i]) {
            free_arrays(s);
            return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", examples);
        }
    }
    s->capacity = examples;
    return DRO_OK;
}

/* Runs every layer for every part; the values are then in s->value. */
static dro_status run(dro__ref_state *s, const float *w, const dro_net_batch *parts, int part_count,
                      bool training)
{
    size_t total = 0, size = dro__node_size(&s->graph->nodes[0]), first = 0;
    for (int k = 0; k < part_count; k++)
        total += parts[k].count;
    DRO_TRY(reserve(s, total));
    s->w = w;
    s->training = training;
    s->part_count = part_count;
    memcpy(s->taken, s->memory.statistics, s->graph->statistics_size * sizeof *s->taken);
    for (int k = 0; k < part_count; first += parts[k++].count) {
        s->parts[k] = parts[k];
        for (size_t j = 0; j < parts[k].count * size; j++)
            s->value[0][first * size + j] = (real)parts[k].x[j];
        for (int32_t i = 1; i < s->graph->count; i++)
            dro__ref_layer_forward(s, i, k, first, parts[k].count);
    }
    return DRO_OK;
}

/* Losses of part k at `first`; with slopes also the heads' gradients, times coef. */
static void heads(dro__ref_state *s, int k, size_t first, const float *coef, float *losses)
{
    for (int h = 0; h < (s->training ? DRO__HEADS : 1); h++) {
        int32_t index = s->graph->heads[h];
        if (index < 0)
            continue;
        size_t outputs = dro__node_size(&s->graph->nodes[index]);
        double weight = h ? (double)s->graph->auxiliary_weight : 1;
        double *row = s->row, *slope = s->row + DRO__OUTPUTS_MAX;
        for (size_t n = 0; n < s->parts[k].count; n++) {
            real *value = s->value[index] + (first + n) * outputs;
            real *to = s->slope[index] + (first + n) * outputs;
            for (size_t j = 0; j < outputs; j++)
                row[j] = (double)value[j];
            double loss = dro__net_loss_row(s->graph, outputs, &s->parts[k], n, row, slope);
            if (losses)
                losses[n] = (h ? losses[n] : 0) + (float)(weight * loss);
            for (size_t j = 0; coef && j < outputs; j++)
                to[j] += (real)(weight * (double)coef[n] * slope[j]);
        }
    }
}

static dro_status forward(void *net, const float *w, const dro_net_batch *parts, int part_count,
                          float *losses)
{
    dro__ref_state *s = net;
    s->pending = false;
    DRO_TRY(run(s, w, parts, part_count, true));
    size_t first = 0;
    for (int k = 0; k < part_count; first += parts[k++].count)
        heads(s, k, first, NULL, losses + first);
    s->pending = true;
    return DRO_OK;
}

static dro_status backward(void *net, const float *w, const float *coef, float *const *grads)
{
    dro__ref_state *s = net;
    size_t first = 0, dim = s->graph->dim;
    double *grad = dro__alloc(dim, sizeof *grad);
    if (!grad)
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a gradient of %zu", dim);
    s->w = w;
    for (int k = 0; k < s->part_count; first += s->parts[k++].count) {
        size_t count = s->parts[k].count;
        for (int32_t i = 0; i < s->graph->count; i++) {
            size_t size = dro__node_size(&s->graph->nodes[i]);
            memset(s->slope[i] + first * size, 0, count * size * sizeof(real));
        }
        memset(grad, 0, dim * sizeof *grad);
        heads(s, k, first, coef + first, NULL);
        for (int32_t i = s->graph->count - 1; i > 0; i--)
            if (s->graph->nodes[i].grad)
                dro__ref_layer_backward(s, i, k, first, count, grad);
        for (size_t j = 0; j < dim; j++)
            grads[k][j] = (float)grad[j];
    }
    dro__free(grad);
    return DRO_OK;
}

static void accept(void *net)
{
    dro__ref_state *s = net;
    if (s->pending)
        memcpy(s->memory.statistics, s->taken, s->graph->statistics_size * sizeof *s->taken);
    s->pending = false;
}

static dro_status evaluate(void *net, const float *w, const dro_net_batch *batch, float *logits,
                           float *losses)
{
    dro__ref_state *s = net;
    int32_t index = s->graph->heads[0];
    size_t outputs = dro__node_size(&s->graph->nodes[index]);
    s->pending = false;
    DRO_TRY(run(s, w, batch, 1, false));
    if (losses)
        heads(s, 0, 0, NULL, losses);
    for (size_t j = 0; logits && j < batch->count * outputs; j++)
        logits[j] = (float)s->value[index][j];
    return DRO_OK;
}

const dro__net_backend dro__ref_net = {
    .create = create,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
    .accept = accept,
    .evaluate = evaluate,
};
