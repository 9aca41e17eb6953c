/* A network's weights: initialise, count, copy in and out. */
#include "nn.h"

#include <math.h>
#include <string.h>

enum { STREAM_INIT = 0x696e6974 };

/* A tensor's numbers in host memory; statistics are gathered into `statistics`. */
static float *tensor_memory(const dro_net *net, const dro__net_entry *t, float *statistics)
{
    float *places[] = {net->weights, net->frozen, statistics};
    return places[t->place] + t->offset;
}

static dro_status need_ready(const dro_net *net)
{
    if (!net)
        return DRO_ERR_ARGUMENT;
    if (!net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "call dro_net_ready first");
    return DRO_OK;
}

/* Waits for asynchronous steps, which read and change the statistics. */
static dro_status wait_for_steps(const dro_net *net)
{
    const dro__queue *queue = net->ctx->backend->net->queue;
    return queue ? queue->wait(net->live) : DRO_OK;
}

/* Copies the host's frozen parameters and the given statistics to the backend's memory. */
static dro_status send(dro_net *net, const float *statistics)
{
    DRO_TRY(wait_for_steps(net));
    DRO_TRY(dro__copy_in(net->ctx, (void *)net->memory.frozen, net->frozen,
                         net->graph.frozen_size * sizeof(float)));
    return dro__copy_in(net->ctx, net->memory.statistics, statistics,
                        net->graph.statistics_size * sizeof(float));
}

/* A single linear layer is a convex model: it starts at 0, where its losses are those of a uniform
 * guess for any features. */
static bool begins_at_zero(const dro_net *net)
{
    size_t matrices = 0;
    for (size_t k = 0; k < net->tensor_count; k++)
        matrices += net->tensors[k].rank > 1;
    return matrices == 1 && net->graph.nodes[net->graph.heads[0]].op != DRO__OP_COSINE;
}

typedef struct drawing {
    float *to;
    size_t count;
    double spread;
    uint64_t seed, stream;
} drawing;

enum { DRAWN = 1 << 14 }; /* numbers a task */

static void draw(void *task, size_t k)
{
    const drawing *d = task;
    size_t end = d->count - k * DRAWN < DRAWN ? d->count : (k + 1) * DRAWN;
    for (size_t j = k * DRAWN; j < end; j++)
        d->to[j] = (float)(d->spread * dro__random_normal(d->seed, d->stream, j));
}

dro_status dro_net_init(dro_net *net, uint64_t seed)
{
    DRO_TRY(need_ready(net));
    dro__forget(net->ctx);
    bool zero = begins_at_zero(net);
    float *statistics = dro__alloc(net->graph.statistics_size + 1, sizeof *statistics);
    if (!statistics)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for the running statistics");
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        const char *what = strrchr(t->name, '.') + 1;
        float *to = tensor_memory(net, t, statistics);
        bool one =
            strcmp(what, "running_var") == 0 || (t->rank == 1 && strcmp(what, "weight") == 0);
        double fan = (double)(t->shape[1] * t->shape[2] * t->shape[3]);
        drawing d = {to, t->count, sqrt(2 / fan), seed, STREAM_INIT + k};
        if (t->rank > 1 && !zero)
            dro__pool_run(net->ctx->pool, (t->count + DRAWN - 1) / DRAWN, draw, &d);
        for (size_t j = 0; (t->rank == 1 || zero) && j < t->count; j++)
            to[j] = t->rank == 1 ? (float)one : 0;
    }
    dro_status status = send(net, statistics);
    net->seed = seed;
    dro__free(statistics);
    return status;
}

size_t dro_net_dim(const dro_net *net)
{
    return net ? net->graph.dim : 0;
}

size_t dro_net_parameters(const dro_net *net)
{
    size_t sum = 0;
    for (size_t k = 0; net && k < net->tensor_count; k++)
        sum += net->tensors[k].place == DRO__IN_STATISTICS ? 0 : net->tensors[k].count;
    return sum;
}

/* Is a node needed for the first head? The auxiliary head is not part of an evaluation. */
static void mark(const dro__graph *g, int32_t index, bool *needed)
{
    needed[index] = true;
    for (int32_t i = index; i >= 0; i--)
        for (int k = 0; needed[i] && k < g->nodes[i].input_count; k++)
            needed[g->nodes[i].inputs[k]] = true;
}

uint64_t dro_net_multiply_adds(const dro_net *net)
{
    if (!net || net->graph.heads[0] < 0)
        return 0;
    bool *needed = dro__alloc((size_t)net->graph.count, sizeof *needed);
    uint64_t sum = 0;
    if (needed)
        mark(&net->graph, net->graph.heads[0], needed);
    for (size_t k = 0; needed && k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        const dro__graph_node *node = &net->graph.nodes[t->node];
        if (needed[t->node] && t->rank > 1) /* each weight is used once for each pixel */
            sum += (uint64_t)t->count * (uint64_t)node->height * (uint64_t)node->width;
    }
    dro__free(needed);
    return sum;
}

dro_model_shape dro_net_shape(const dro_net *net)
{
    if (!net)
        return (dro_model_shape){0};
    const dro__graph_node *in = &net->graph.nodes[0];
    int32_t head = net->graph.heads[0];
    return (dro_model_shape){in->channels, in->height, in->width,
                             head < 0 ? 0 : net->graph.nodes[head].channels};
}

const float *dro_net_weights(const dro_net *net)
{
    return net && net->ready ? net->weights : NULL;
}

dro_status dro_net_set_weights(dro_net *net, const float *w)
{
    DRO_TRY(need_ready(net));
    if (!w)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    memcpy(net->weights, w, net->graph.dim * sizeof *w);
    return DRO_OK;
}

size_t dro_net_statistics_count(const dro_net *net)
{
    return net ? net->graph.statistics_size : 0;
}

dro_status dro_net_statistics(const dro_net *net, float *statistics)
{
    DRO_TRY(need_ready(net));
    if (!statistics)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    DRO_TRY(wait_for_steps(net));
    return dro__copy_out(net->ctx, statistics, net->memory.statistics,
                         net->graph.statistics_size * sizeof(float));
}

dro_status dro_net_set_statistics(dro_net *net, const float *statistics)
{
    DRO_TRY(need_ready(net));
    if (!statistics)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    return send(net, statistics);
}

size_t dro_net_tensor_count(const dro_net *net)
{
    return net ? net->tensor_count : 0;
}

dro_status dro_net_tensor(const dro_net *net, size_t index, dro_tensor *tensor)
{
    if (!net || !tensor || index >= net->tensor_count)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    const dro__net_entry *t = &net->tensors[index];
    bool trained = t->place == DRO__IN_WEIGHTS;
    *tensor = (dro_tensor){.name = t->name,
                           .rank = t->rank,
                           .offset = trained && net->ready ? t->offset : -1,
                           .trained = trained};
    memcpy(tensor->shape, t->shape, sizeof tensor->shape);
    return DRO_OK;
}
