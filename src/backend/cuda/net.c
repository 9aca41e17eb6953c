/* A network of the cuda backend: creation and destruction, transfers between host and GPU, and
 * recorded passes.
 *
 * A pass is queued directly the first time a shape of call occurs, so that the libraries load what
 * they need, and recorded the second time. How much of the GPU the call takes is part of its shape:
 * when other networks come or go, the next call uses another recording. Everything that a recorded
 * pass accesses is at a fixed address: w and the examples are copied in before it, gradients are
 * copied out after it. */
#include "net.h"

#include <string.h>

/* ---- creation and destruction ---- */

static void rows_free(dro__cuda_network *net)
{
    dro__cuda_free(net->x);
    dro__cuda_host_free(net->losses);
    dro__cuda_host_free(net->coef);
    dro__cuda_host_free(net->targets);
    dro__cuda_host_free(net->labels);
    dro__cuda_host_free(net->keys);
    dro__cuda_host_free(net->cuts);
    dro__cuda_host_free(net->mixes);
    for (int h = 0; h < DRO__HEADS; h++) {
        dro__cuda_free(net->slopes[h]);
        net->slopes[h] = NULL;
    }
    net->x = net->losses = net->coef = net->targets = NULL;
    net->labels = NULL;
    net->keys = NULL;
    net->cuts = NULL;
    net->mixes = NULL;
    net->row_capacity = 0;
}

static void forget(dro__cuda_network *net)
{
    for (int k = 0; k < DRO__RECORDINGS; k++) {
        if (net->recordings[k].forward)
            cudaGraphExecDestroy(net->recordings[k].forward);
        if (net->recordings[k].backward)
            cudaGraphExecDestroy(net->recordings[k].backward);
        net->recordings[k] = (dro__recording){0};
    }
    dro__step_queue_forget_graphs(net->queue);
}

static void destroy(void *live)
{
    dro__cuda_network *net = live;
    if (!net)
        return;
    dro__step_queue_wait(net);
    forget(net);
    dro__step_queue_close(net);
    dro__net_end_libraries(net);
    for (int k = 0; k < 2; k++)
        dro__gprogram_destroy(&net->program[k]);
    for (int32_t i = 0; i < net->graph->count; i++) {
        if (net->packed)
            dro__cuda_free(net->packed[i]);
        if (net->scales)
            dro__cuda_free(net->scales[i]);
    }
    void *device[] = {net->packings,  net->w,         net->grads[0], net->grads[1], net->taken,
                      net->constants, net->workspace, net->scratch,  net->dw,       net->partial};
    for (size_t k = 0; k < sizeof device / sizeof device[0]; k++)
        dro__cuda_free(device[k]);
    rows_free(net);
    if (net->side)
        cudaStreamDestroy(net->side);
    if (net->weights_stream)
        cudaStreamDestroy(net->weights_stream);
    if (net->fork)
        cudaEventDestroy(net->fork);
    if (net->join)
        cudaEventDestroy(net->join);
    dro__free(net->host_sums);
    dro__free(net->convs);
    dro__free(net->packed);
    dro__free(net->scales);
    dro__free(net);
}

/* Allocates the packed weights of every convolution. The training program contains all of them. */
static dro_status make_packings(dro__cuda_network *net)
{
    const dro__gprogram *p = &net->program[1];
    dro__packing *table = dro__alloc((size_t)p->base.operation_count, sizeof *table);
    size_t partial = 0;
    bool ok = table != NULL;
    for (int32_t i = 0; ok && i < p->base.operation_count; i++) {
        const dro__gop *op = &p->ops[i];
        if (!dro__gpu_layers[op->base.op].packs)
            continue;
        dro__packing t = dro__packing_of(net, p, op);
        size_t size = (size_t)t.out * (size_t)t.stored_in * (size_t)t.taps * (op->own ? 2 : 1);
        t.to = (dro__typed){dro__cuda_alloc(size, net->bf16 ? 2 : 4), net->bf16, 0};
        net->packed[op->base.index] = t.to.p;
        size_t pairs = size / (size_t)t.taps;
        net->packing_largest = pairs > net->packing_largest ? pairs : net->packing_largest;
        partial = op->own ? dro__gpu_conv3_partial() : partial;
        table[net->packing_count++] = t;
        ok = t.to.p != NULL;
    }
    size_t bytes = (size_t)net->packing_count * sizeof *table;
    net->packings = ok ? dro__cuda_alloc(bytes, 1) : NULL;
    net->partial = ok ? dro__cuda_alloc(partial, sizeof(float)) : NULL;
    ok = net->packings && net->partial;
    cudaError_t error = cudaSuccess;
    if (ok)
        error = cudaMemcpy(net->packings, table, bytes, cudaMemcpyHostToDevice);
    dro__free(table);
    return ok ? dro__cuda_check(net->ctx, error, "the packing of weights")
              : dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
}

/* Copies the constants of the loss to the GPU. */
static dro_status send_constants(const dro__cuda_network *net)
{
    const dro__graph *g = net->graph;
    size_t bytes = 2 * dro__node_size(&g->nodes[g->heads[0]]) * sizeof(float);
    if (g->constants)
        DRO__CUDA(net->ctx,
                  cudaMemcpy(net->constants, g->constants, bytes, cudaMemcpyHostToDevice));
    return DRO_OK;
}

/* Discards the recordings, which contain the settings of the loss. */
static dro_status reset(void *live)
{
    dro__cuda_network *net = live;
    DRO_TRY(dro__step_queue_wait(net));
    forget(net);
    return send_constants(net);
}

/* Allocates the constants of the graph and copies them to the GPU. */
static dro_status make_constants(dro__cuda_network *net)
{
    const dro__graph *g = net->graph;
    size_t outputs = dro__node_size(&g->nodes[g->heads[0]]);
    for (int32_t i = 0; i < g->count; i++) {
        const dro__graph_node *node = &g->nodes[i];
        size_t bytes = (size_t)node->channels * sizeof(float);
        if (!node->scale)
            continue;
        float *to = net->scales[i] = dro__cuda_alloc(2 * bytes, 1);
        if (!to)
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
        DRO__CUDA(net->ctx, cudaMemcpy(to, node->scale, bytes, cudaMemcpyHostToDevice));
        DRO__CUDA(net->ctx,
                  cudaMemcpy(to + node->channels, node->shift, bytes, cudaMemcpyHostToDevice));
    }
    if (!g->constants)
        return DRO_OK;
    net->constants = dro__cuda_alloc(2 * outputs, sizeof(float));
    if (!net->constants)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    return send_constants(net);
}

static dro_status start(dro__cuda_network *net)
{
    const dro__graph *g = net->graph;
    size_t count = (size_t)g->count;
    net->convs = dro__alloc(count, sizeof *net->convs);
    net->packed = dro__alloc(count, sizeof *net->packed);
    net->scales = dro__alloc(count, sizeof *net->scales);
    net->w = dro__cuda_alloc(g->dim + 1, sizeof(float));
    net->taken = dro__cuda_alloc(g->statistics_size + 1, sizeof(float));
    for (int k = 0; k < DRO__PARTS; k++)
        net->grads[k] = dro__cuda_alloc(g->dim + 1, sizeof(float));
    if (!net->convs || !net->packed || !net->scales || !net->w || !net->taken || !net->grads[0] ||
        !net->grads[1])
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    int low = 0, high = 0;
    DRO__CUDA(net->ctx, cudaDeviceGetStreamPriorityRange(&low, &high));
    DRO__CUDA(net->ctx, cudaStreamCreateWithPriority(&net->side, cudaStreamNonBlocking, high));
    DRO__CUDA(net->ctx,
              cudaStreamCreateWithPriority(&net->weights_stream, cudaStreamNonBlocking, low));
    DRO__CUDA(net->ctx, cudaEventCreateWithFlags(&net->fork, cudaEventDisableTiming));
    DRO__CUDA(net->ctx, cudaEventCreateWithFlags(&net->join, cudaEventDisableTiming));
    DRO_TRY(dro__library_open(net));
    for (int training = 0; training < 2; training++)
        DRO_TRY(dro__gprogram_create(net, training));
    DRO_TRY(make_packings(net));
    return make_constants(net);
}

static dro_status create(dro_context *ctx, const dro__graph *graph, const dro__net_memory *memory,
                         void **live)
{
    dro__cuda_network *net = dro__alloc(1, sizeof *net);
    if (!net)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    net->ctx = ctx;
    net->graph = graph;
    net->memory = *memory;
    net->bf16 = graph->precision == DRO__BF16;
    dro_status status = start(net);
    if (status != DRO_OK) {
        destroy(net);
        return status;
    }
    *live = net;
    return DRO_OK;
}

/* ---- transfers ---- */

static dro_status rows_grow(dro__cuda_network *net, size_t rows)
{
    const dro__graph *g = net->graph;
    size_t outputs = dro__node_size(&g->nodes[g->heads[0]]), input = dro__node_size(&g->nodes[0]);
    if (rows <= net->row_capacity)
        return DRO_OK;
    forget(net);
    rows_free(net);
    net->x = dro__cuda_alloc(rows * input, sizeof(float));
    net->losses = dro__cuda_host_alloc(rows * sizeof(float));
    net->coef = dro__cuda_host_alloc(rows * sizeof(float));
    net->targets = dro__cuda_host_alloc(rows * outputs * sizeof(float));
    net->labels = dro__cuda_host_alloc(rows * sizeof(int32_t));
    net->keys = dro__cuda_host_alloc(rows * sizeof(uint64_t));
    net->cuts = dro__cuda_host_alloc(rows * sizeof *net->cuts);
    net->mixes = dro__cuda_host_alloc(rows * sizeof *net->mixes);
    bool ok = net->cuts && net->mixes && net->x && net->losses && net->coef && net->targets &&
              net->labels && net->keys;
    for (int h = 0; h < DRO__HEADS; h++) {
        net->slopes[h] = dro__cuda_alloc(rows * outputs, sizeof(float));
        ok = ok && net->slopes[h];
    }
    if (!ok) {
        rows_free(net);
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory for a batch of %zu",
                         rows);
    }
    net->row_capacity = rows;
    return DRO_OK;
}

/* Copies the labels, keys, targets and mixes of a part, which begins at example `first`. */
static void take_labels(dro__cuda_network *net, const dro_net_batch *part, size_t first)
{
    size_t outputs = dro__node_size(&net->graph->nodes[net->graph->heads[0]]);
    for (size_t i = 0; i < part->count; i++)
        net->keys[first + i] = part->keys ? part->keys[i] : i;
    for (size_t i = 0; net->has_mixes && i < part->count; i++)
        net->mixes[first + i] = dro__gpu_mix_at(part, i);
    if (part->labels)
        memcpy(net->labels + first, part->labels, part->count * sizeof *net->labels);
    float *to = net->targets + first * outputs;
    for (size_t i = 0; net->has_targets && i < part->count; i++)
        for (size_t j = 0; j < outputs; j++)
            to[i * outputs + j] = part->targets  ? part->targets[i * outputs + j]
                                  : outputs == 1 ? (float)part->labels[i]
                                                 : (float)((size_t)part->labels[i] == j);
}

/* Shared memory: two copies of an image that operations may change, three if there are mixes. */
dro__gpu_images dro__images_of(const dro__cuda_network *net, const dro__gprogram *p,
                               const dro_net_batch *part)
{
    const dro__graph_node *input = &net->graph->nodes[0];
    int size = (int)dro__node_size(input);
    bool changed = part->cuts && size <= DRO__IMAGE_CHANGED;
    dro__gpu_images k = {.bytes = part->images->bytes,
                         .e = {input->channels, input->height, input->width},
                         .stored = p->values[0].stored,
                         .shared_bytes = changed ? (net->has_mixes ? 3 : 2) * size : 0};
    for (int c = 0; c < input->channels; c++)
        k.scale[c] = part->images->scale[c], k.shift[c] = part->images->shift[c];
    return k;
}

dro__gpu_cut dro__gpu_cut_at(const dro_net_batch *part, size_t i)
{
    dro_cut none = {0};
    return (dro__gpu_cut){.id = part->images ? (int32_t)part->ids[i] : 0,
                          .cut = part->cuts ? part->cuts[i] : none};
}

dro__gpu_mix dro__gpu_mix_at(const dro_net_batch *part, size_t i)
{
    if (!part->mixes)
        return (dro__gpu_mix){.share = 1};
    const dro_mix *m = &part->mixes[i];
    return (dro__gpu_mix){.second = {.id = part->images ? (int32_t)m->id : 0, .cut = m->cut},
                          .label = m->label,
                          .share = m->share,
                          .box = m->box};
}

/* Makes the input of a part whose images are in GPU memory. */
static void take_images(dro__cuda_network *net, const dro__gprogram *p, const dro_net_batch *part,
                        size_t first)
{
    dro__gpu_images k = dro__images_of(net, p, part);
    k.cuts = net->cuts;
    k.mixes = part->mixes ? net->mixes : NULL;
    for (size_t i = 0; i < part->count; i++)
        net->cuts[first + i] = dro__gpu_cut_at(part, i);
    dro__gpu_images_pass(DRO__STREAM, &k, (int)first, (int)part->count,
                         dro__typed_of(&p->values[0], p->values[0].data));
}

/* Refuses operations on images that are too large to be changed in shared memory. */
static dro_status check_operations(const dro__cuda_network *net, const dro_net_batch *part)
{
    const dro__graph_node *input = &net->graph->nodes[0];
    if (!part->images || !part->cuts || dro__node_size(input) <= DRO__IMAGE_CHANGED)
        return DRO_OK;
    for (size_t i = 0; i < part->count; i++)
        for (int o = 0; o < DRO_OPERATIONS; o++)
            if (part->cuts[i].operations[o].kind)
                return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                                 "operations on images of %d x %d in the GPU's memory: they take "
                                 "images of at most %d bytes; give x instead",
                                 input->height, input->width, DRO__IMAGE_CHANGED);
    return DRO_OK;
}

dro_status dro__net_prepare(dro__cuda_network *net, dro__gprogram *p, const dro_net_batch *parts,
                            int count)
{
    size_t total = 0;
    net->parts = (dro__parts){.count = count};
    net->share = dro__share_of(net);
    net->has_targets = net->has_mixes = false;
    for (int k = 0; k < count; k++) {
        total += parts[k].count;
        if (total > INT32_MAX / 64)
            return dro__fail(net->ctx, DRO_ERR_RANGE, "a batch of %zu is too large", total);
        net->parts.first[k + 1] = (int)total;
        net->has_targets = net->has_targets || (parts[k].targets && (int)net->graph->loss >= 3);
        net->has_mixes = net->has_mixes || parts[k].mixes;
        DRO_TRY(check_operations(net, &parts[k]));
    }
    DRO_TRY(dro__step_queue_follow(net));
    if (total > net->row_capacity ||
        total > p->capacity) /* else memory and recordings in use would be freed */
        DRO_TRY(dro__step_queue_wait(net));
    DRO_TRY(rows_grow(net, total));
    if (total > p->capacity)
        forget(net);
    DRO_TRY(dro__gprogram_place(net, p, total));
    dro__norms_place(net, p);
    for (int32_t i = 0; i < p->base.operation_count; i++)
        if (dro__gpu_layers[p->ops[i].base.op].prepare)
            DRO_TRY(dro__gpu_layers[p->ops[i].base.op].prepare(net, p, &p->ops[i]));
    cudaGetLastError(); /* clears an error of an earlier call */
    return DRO_OK;
}

/* Prepares a call: reserves memory, chooses algorithms, and copies w and the examples to the
 * GPU. */
static dro_status begin(dro__cuda_network *net, dro__gprogram *p, const float *w,
                        const dro_net_batch *parts, int count)
{
    const dro__graph_node *input = &net->graph->nodes[0];
    size_t size = dro__node_size(input), first = 0;
    DRO_TRY(dro__net_prepare(net, p, parts, count));
    DRO__CUDA(net->ctx, cudaMemcpyAsync(net->w, w, net->graph->dim * sizeof(float),
                                        cudaMemcpyDefault, DRO__STREAM));
    dro__extent e = {input->channels, input->height, input->width};
    for (int k = 0; k < count; first += parts[k++].count) {
        const float *x = parts[k].x;
        take_labels(net, &parts[k], first);
        if (parts[k].images) {
            take_images(net, p, &parts[k], first);
            continue;
        }
        if (!dro__cuda_is_device(x)) {
            float *device_x = net->x + first * size;
            DRO__CUDA(net->ctx, cudaMemcpyAsync(device_x, x, parts[k].count * size * sizeof(float),
                                                cudaMemcpyHostToDevice, DRO__STREAM));
            x = device_x;
        }
        dro__gpu_input(DRO__STREAM, (int)first, (int)parts[k].count, e, p->values[0].stored, x,
                       dro__typed_of(&p->values[0], p->values[0].data));
    }
    return dro__cuda_check(net->ctx, cudaGetLastError(), "a batch on the GPU");
}

/* ---- recorded passes ---- */

static dro__recording *recording_of(dro__cuda_network *net, bool training)
{
    for (int k = 0; k < DRO__RECORDINGS; k++) {
        dro__recording *r = &net->recordings[k];
        if (r->used && r->training == training && r->targets == net->has_targets &&
            r->mixes == net->has_mixes && r->share == net->share &&
            memcmp(&r->parts, &net->parts, sizeof r->parts) == 0)
            return r;
    }
    dro__recording *r = &net->recordings[net->next_recording++ % DRO__RECORDINGS];
    if (r->forward)
        cudaGraphExecDestroy(r->forward);
    if (r->backward)
        cudaGraphExecDestroy(r->backward);
    *r = (dro__recording){.used = true,
                          .training = training,
                          .targets = net->has_targets,
                          .mixes = net->has_mixes,
                          .share = net->share,
                          .parts = net->parts};
    return r;
}

void dro__net_walk(dro__cuda_network *net, dro__gprogram *p, dro__walk body, cudaStream_t stream)
{
    net->stream = stream;
    net->failed =
        cudnnSetStream(net->dnn, stream) != CUDNN_STATUS_SUCCESS ||
        cublasSetStream(net->blas, stream) != CUBLAS_STATUS_SUCCESS ||
        cublasSetWorkspace(net->blas, net->blas_scratch, 8 << 20) != CUBLAS_STATUS_SUCCESS;
    body(net, p);
}

typedef struct pass {
    dro__gprogram *p;
    dro__walk body;
} pass;

static void walk_pass(dro__cuda_network *net, const void *what)
{
    const pass *now = what;
    dro__net_walk(net, now->p, now->body, net->side);
}

/* Runs a pass: queued the first time, recorded the second, replayed from then on. Passes in which
 * the host sums batch norms over ranks are never recorded. */
static dro_status run(dro__cuda_network *net, dro__gprogram *p, dro__walk body, bool *ran,
                      cudaGraphExec_t *recorded)
{
    if (!*recorded && (!*ran || dro__norms_sync_on_host(net, p))) {
        dro__net_walk(net, p, body, DRO__STREAM);
        DRO__CUDA(net->ctx, cudaGetLastError());
        if (net->failed)
            return dro__net_refused(net);
        *ran = true;
        return DRO_OK;
    }
    if (!*recorded) {
        pass what = {p, body};
        DRO_TRY(dro__net_record(net, walk_pass, &what, recorded));
    }
    return dro__cuda_check(net->ctx, cudaGraphLaunch(*recorded, DRO__STREAM), "cudaGraphLaunch");
}

/* Waits for what was queued, even if only part of it could be: it uses the caller's memory. */
static dro_status wait(dro__cuda_network *net, dro_status queued)
{
    cudaError_t error = cudaStreamSynchronize(DRO__STREAM);
    if (queued == DRO_OK)
        return dro__cuda_check(net->ctx, error, "a pass on the GPU");
    cudaGetLastError(); /* the first error has been reported */
    return queued;
}

/* Copies a small array between mapped memory and the caller's memory, which may be on the
 * device. */
static dro_status hand(dro__cuda_network *net, void *to, const void *from, size_t bytes)
{
    if (dro__cuda_is_device(to) || dro__cuda_is_device(from))
        return dro__cuda_check(net->ctx, dro__cuda_copy(to, from, bytes), "a copy");
    memcpy(to, from, bytes);
    return DRO_OK;
}

/* ---- the functions of the backend's table ---- */

static dro_status queue_forward(dro__cuda_network *net, const float *w, const dro_net_batch *parts,
                                int count)
{
    dro_status begun = begin(net, &net->program[1], w, parts, count);
    DRO_TRY(dro__norms_begin(net, &net->program[1], begun));
    dro__recording *r = recording_of(net, true);
    return run(net, &net->program[1], dro__gprogram_forward, &r->ran, &r->forward);
}

static dro_status forward(void *live, const float *w, const dro_net_batch *parts, int part_count,
                          float *losses)
{
    dro__cuda_network *net = live;
    net->pending = false;
    DRO_TRY(wait(net, queue_forward(net, w, parts, part_count)));
    size_t bytes = (size_t)dro__call_size(net) * sizeof(float);
    DRO_TRY(hand(net, losses, net->losses, bytes));
    net->pending = true;
    return DRO_OK;
}

static dro_status queue_backward(dro__cuda_network *net, float *const *grads)
{
    size_t bytes = net->graph->dim * sizeof(float);
    dro__recording *r = recording_of(net, true);
    DRO_TRY(run(net, &net->program[1], dro__gprogram_backward, &r->ran_back, &r->backward));
    for (int k = 0; k < net->parts.count; k++)
        DRO__CUDA(net->ctx,
                  cudaMemcpyAsync(grads[k], net->grads[k], bytes, cudaMemcpyDefault, DRO__STREAM));
    return DRO_OK;
}

static dro_status backward(void *live, const float *w, const float *coef, float *const *grads)
{
    dro__cuda_network *net = live;
    (void)w; /* the copy made by the forward pass is used */
    DRO_TRY(hand(net, net->coef, coef, (size_t)dro__call_size(net) * sizeof(float)));
    return wait(net, queue_backward(net, grads));
}

static void accept(void *live)
{
    dro__cuda_network *net = live;
    size_t size = net->graph->statistics_size;
    if (net->pending &&
        dro__cuda_copy(net->memory.statistics, net->taken, size * sizeof(float)) != cudaSuccess)
        dro__cuda_poison(net->memory.statistics, size);
    net->pending = false;
}

static dro_status queue_evaluation(dro__cuda_network *net, const float *w,
                                   const dro_net_batch *batch, float *logits)
{
    dro__gprogram *p = &net->program[0];
    DRO_TRY(begin(net, p, w, batch, 1));
    if (!batch->labels) /* losses are computed in any case */
        memset(net->labels, 0, batch->count * sizeof *net->labels);
    dro__recording *r = recording_of(net, false);
    DRO_TRY(run(net, p, dro__gprogram_forward, &r->ran, &r->forward));
    const dro__gvalue *head = &p->values[p->base.heads[0]];
    if (logits)
        DRO__CUDA(net->ctx,
                  cudaMemcpyAsync(logits, head->data, batch->count * head->size * sizeof(float),
                                  cudaMemcpyDefault, DRO__STREAM));
    return DRO_OK;
}

static dro_status evaluate(void *live, const float *w, const dro_net_batch *batch, float *logits,
                           float *losses)
{
    dro__cuda_network *net = live;
    net->pending = false;
    DRO_TRY(wait(net, queue_evaluation(net, w, batch, logits)));
    if (losses)
        DRO_TRY(hand(net, losses, net->losses, batch->count * sizeof(float)));
    return DRO_OK;
}

const dro__net_backend dro__cuda_net = {
    .images = true,
    .queue = &dro__cuda_queue,
    .create = create,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
    .accept = accept,
    .evaluate = evaluate,
    .reset = reset,
};
