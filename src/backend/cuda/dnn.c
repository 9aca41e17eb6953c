/* Convolutions through cuDNN's graph interface. Values are (examples, height, width, channels), weights (out, kernel,
 * in). For each shape the library names engines that might do it; those that repeat their bits and add up in
 * floats are tried, and the fastest on this GPU is kept as the shape's plan. Small shapes take the first. */
#include "net.h"

#include <string.h>

enum { CANDIDATES = 10, ASKED = 24, WORKSPACE_MOST = 256 << 20, TRIES = 4 };

/* Below this many operations a choice is not worth its time. */
static const double LARGE = 4e8;

typedef cudnnBackendDescriptor_t descriptor;

static bool ok(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS;
}

static bool set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values)
{
    return ok(cudnnBackendSetAttribute(d, name, type, count, values));
}

static void drop(descriptor *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* ---- what is asked ---- */

enum { ID_X = 1, ID_W, ID_Z };

/* A tensor of n, c, h, w that lies as n, h, w, c. */
static descriptor tensor(int64_t id, bool bf16, int64_t n, int64_t c, int64_t h, int64_t w)
{
    descriptor d = NULL;
    int64_t dims[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c}, align = 16;
    cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    while (c * (bf16 ? 2 : 4) % align) /* a part begins at any example */
        align /= 2;
    if (ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d)) &&
        set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
        set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims) &&
        set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides) &&
        set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id) &&
        set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align) &&
        ok(cudnnBackendFinalize(d)))
        return d;
    drop(&d);
    return NULL;
}

static descriptor convolution(const dro__dnn_shape *s)
{
    descriptor d = NULL;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t two = 2, one[] = {1, 1}, stride[] = {s->stride[0], s->stride[1]},
            pad[] = {s->pad[0], s->pad[1]};
    if (ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &d)) &&
        set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two) &&
        set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
        set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
        set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad) &&
        set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad) &&
        set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, one) &&
        set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride) &&
        ok(cudnnBackendFinalize(d)))
        return d;
    drop(&d);
    return NULL;
}

/* Names of a direction: its descriptor, and the attributes of convolution, x, w, z, alpha and beta. */
typedef struct direction {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, z, alpha, beta;
} direction;

static const direction directions[] = {
    [DRO__DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DRO__DNN_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [DRO__DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* The graph of one operation; the descriptors it is made of can go. */
static descriptor graph_of(const dro__cuda_network *net, const dro__dnn_shape *s)
{
    const direction *k = &directions[s->kind];
    descriptor conv = convolution(s), op = NULL, graph = NULL;
    descriptor x = tensor(ID_X, net->bf16, s->count, s->in, s->height, s->width);
    descriptor z = tensor(ID_Z, net->bf16, s->count, s->out, s->out_height, s->out_width);
    descriptor w = tensor(ID_W, net->bf16, s->out, s->in, s->kernel[0], s->kernel[1]);
    float alpha = 1, beta = (float)s->add;
    bool made = conv && x && z && w && ok(cudnnBackendCreateDescriptor(k->type, &op)) &&
                set(op, k->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x) &&
                set(op, k->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w) &&
                set(op, k->z, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &z) &&
                set(op, k->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv) &&
                set(op, k->alpha, CUDNN_TYPE_FLOAT, 1, &alpha) &&
                set(op, k->beta, CUDNN_TYPE_FLOAT, 1, &beta) && ok(cudnnBackendFinalize(op)) &&
                ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph)) &&
                set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op) &&
                set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &net->dnn) &&
                ok(cudnnBackendFinalize(graph));
    if (!made)
        drop(&graph);
    drop(&op), drop(&conv), drop(&x), drop(&z), drop(&w);
    return graph;
}

/* ---- what the library offers ---- */

/* Whether an engine's notes allow it. */
static bool allowed(const dro__cuda_network *net, descriptor config)
{
    descriptor engine = NULL;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    bool exact = net->graph->precision == DRO__FP32;
    bool good = ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine)) &&
                ok(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine)) &&
                ok(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                            CUDNN_TYPE_NUMERICAL_NOTE,
                                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
    for (int64_t k = 0; good && k < count; k++)
        switch (notes[k]) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            good = !exact;
            break;
        case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
            break;
        default: /* winograd, FFT, reduced precision, other bits every time */
            good = false;
        }
    drop(&engine);
    return good;
}

/* A plan of a configuration, and the memory it wants; NULL: it cannot do it. */
static descriptor plan_of(const dro__cuda_network *net, descriptor config, size_t *workspace)
{
    descriptor plan = NULL;
    int64_t bytes = 0, count;
    if (ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan)) &&
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &net->dnn) &&
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &config) &&
        ok(cudnnBackendFinalize(plan)) &&
        ok(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                    CUDNN_TYPE_INT64, 1, &count, &bytes)) &&
        bytes <= WORKSPACE_MOST) {
        *workspace = (size_t)bytes;
        return plan;
    }
    drop(&plan);
    return NULL;
}

/* Adds plans until there are `most`; the new number. */
static int plans_of(const dro__cuda_network *net, descriptor graph, cudnnBackendHeurMode_t mode,
                    dro__dnn_plan *list, int count, int most)
{
    descriptor heuristics = NULL, configs[ASKED] = {NULL};
    int64_t found = 0;
    bool asked =
        ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics)) &&
        set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &graph) &&
        set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
        ok(cudnnBackendFinalize(heuristics));
    for (int k = 0; asked && k < ASKED; k++)
        asked = ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[k]));
    asked = asked &&
            ok(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, ASKED, &found, configs));
    for (int k = 0; asked && k < found && k < ASKED && count < most; k++) {
        if (!allowed(net, configs[k]))
            continue;
        list[count].plan = plan_of(net, configs[k], &list[count].workspace);
        count += list[count].plan != NULL;
    }
    for (int k = 0; k < ASKED; k++)
        drop(&configs[k]);
    drop(&heuristics);
    return count;
}

/* ---- running and choosing ---- */

static bool execute(cudnnHandle_t handle, const dro__dnn_plan *p, const void *x, const void *w,
                    const void *z, void *workspace)
{
    descriptor pack = NULL;
    int64_t ids[] = {ID_X, ID_W, ID_Z};
    const void *pointers[] = {x, w, z};
    bool done =
        ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)) &&
        set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids) &&
        set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers) &&
        set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) &&
        ok(cudnnBackendFinalize(pack)) && ok(cudnnBackendExecute(handle, p->plan, pack));
    drop(&pack);
    return done;
}

/* Milliseconds of one run, negative when it fails. */
static float time_of(dro__cuda_network *net, const dro__dnn_plan *p, const void *x, const void *w,
                     const void *z)
{
    cudaEvent_t from, to;
    float ms = -1;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    bool good =
        ok(cudnnSetStream(net->dnn, DRO__STREAM)) && execute(net->dnn, p, x, w, z, net->workspace);
    cudaEventRecord(from, DRO__STREAM);
    for (int k = 0; good && k < TRIES; k++)
        good = execute(net->dnn, p, x, w, z, net->workspace);
    cudaEventRecord(to, DRO__STREAM);
    if (cudaEventSynchronize(to) != cudaSuccess || !good ||
        cudaEventElapsedTime(&ms, from, to) != cudaSuccess)
        ms = -1;
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return ms / TRIES;
}

/* A larger block when the old one is too small. The old one stays until the end: a recorded pass may use it. */
static dro_status grow(dro__cuda_network *net, void **block, size_t *size, size_t need)
{
    enum { RETIRED = sizeof net->retired / sizeof net->retired[0] };
    if (need <= *size)
        return DRO_OK;
    need = need > 2 * *size ? need : 2 * *size;
    void *larger = net->retired_count < RETIRED ? dro__cuda_alloc(need, 1) : NULL;
    if (!larger)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    if (*block)
        net->retired[net->retired_count++] = *block;
    *block = larger;
    *size = need;
    return DRO_OK;
}

static double operations(const dro__dnn_shape *s)
{
    return 2.0 * s->count * s->out_height * s->out_width * s->out * s->in * s->kernel[0] *
           s->kernel[1];
}

/* The best of a list, the others go. */
static dro_status choose(dro__cuda_network *net, dro__dnn_plan *list, int count, const void *x,
                         const void *w, const void *z)
{
    int best = 0;
    float least = -1;
    for (int k = 0; count > 1 && k < count; k++) {
        DRO_TRY(grow(net, &net->workspace, &net->workspace_size, list[k].workspace));
        float ms = time_of(net, &list[k], x, w, z);
        if (ms >= 0 && (least < 0 || ms < least))
            least = ms, best = k;
    }
    dro__dnn_plan kept = list[best];
    list[best] = list[0];
    list[0] = kept;
    for (int k = 1; k < count; k++)
        drop(&list[k].plan);
    return DRO_OK;
}

/* The plan of a shape: found again, or made and kept. -1 in *index: there is none. */
static dro_status find_plan(dro__cuda_network *net, const dro__dnn_shape *shape, const void *x,
                            const void *w, const void *z, int *index)
{
    dro__dnn_plan list[CANDIDATES] = {{.plan = NULL}};
    for (*index = 0; *index < net->plan_count; (*index)++)
        if (memcmp(&net->plans[*index].shape, shape, sizeof *shape) == 0)
            return DRO_OK;
    int most = operations(shape) > LARGE ? CANDIDATES : 1, count = 0;
    descriptor graph = graph_of(net, shape);
    *index = -1;
    if (graph) {
        count = plans_of(net, graph, CUDNN_HEUR_MODE_A, list, 0, most);
        count =
            plans_of(net, graph, CUDNN_HEUR_MODE_FALLBACK, list, count, count > 0 ? count : most);
    }
    drop(&graph);
    if (!count)
        return DRO_OK;
    if (net->plan_count == net->plan_room) {
        int room = net->plan_room ? 2 * net->plan_room : 64;
        dro__dnn_plan *more = dro__alloc((size_t)room, sizeof *more);
        if (!more)
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
        if (net->plans)
            memcpy(more, net->plans, (size_t)net->plan_count * sizeof *more);
        dro__free(net->plans);
        net->plans = more;
        net->plan_room = room;
    }
    dro_status status = choose(net, list, count, x, w, z);
    list[0].shape = *shape;
    net->plans[net->plan_count] = list[0];
    *index = net->plan_count++;
    return status;
}

void dro__dnn_close(dro__cuda_network *net)
{
    for (int k = 0; k < net->plan_count; k++)
        drop(&net->plans[k].plan);
    dro__free(net->plans);
    for (int k = 0; k < net->retired_count; k++)
        dro__cuda_free(net->retired[k]);
    dro__cuda_free(net->beside_workspace);
}

/* ---- the layers ---- */

static dro__dnn_shape shape_of(const dro__gop *op, const dro__gvalue *in, const dro__gvalue *out,
                               dro__dnn_kind kind, int count)
{
    const dro_window *w = &op->window;
    dro__dnn_shape s;
    memset(&s, 0, sizeof s); /* it is compared as bytes */
    s.kind = kind;
    s.count = count;
    s.in = in->stored, s.height = in->extent.height, s.width = in->extent.width;
    s.out = out->extent.channels;
    s.out_height = out->extent.height, s.out_width = out->extent.width;
    for (int k = 0; k < 2; k++)
        s.kernel[k] = w->kernel[k], s.stride[k] = w->stride[k], s.pad[k] = w->pad[k];
    return s;
}

static dro_status must(dro__cuda_network *net, const dro__gop *op, int plan)
{
    if (plan >= 0)
        return DRO_OK;
    const dro_window *w = &op->node->window;
    return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                     "cuDNN cannot do a convolution of %d x %d with stride %d to %d channels",
                     (int)w->kernel[0], (int)w->kernel[1], (int)w->stride[0],
                     (int)op->node->channels);
}

static dro_status prepare_data(dro__cuda_network *net, const dro__gop *op, const dro__gvalue *in,
                               const dro__gvalue *out, const void *z)
{
    dro__gconv *c = &net->convs[op->index];
    dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_DATA, c->counts[0]);
    const void *w = net->packed[op->index];
    DRO_TRY(find_plan(net, &s, in->grad, w, z, &c->data));
    DRO_TRY(must(net, op, c->data));
    DRO_TRY(grow(net, &net->workspace, &net->workspace_size, net->plans[c->data].workspace));
    c->data_add = -1;
    if (in->writers < 2)
        return DRO_OK;
    s.add = 1;
    DRO_TRY(find_plan(net, &s, in->grad, w, z, &c->data_add));
    if (c->data_add < 0)
        return grow(net, &net->scratch, &net->scratch_size,
                    (size_t)s.count * in->size * sizeof(float));
    return grow(net, &net->workspace, &net->workspace_size, net->plans[c->data_add].workspace);
}

static dro_status prepare_weight(dro__cuda_network *net, const dro__gop *op, const dro__gvalue *in,
                                 const dro__gvalue *out, const void *z)
{
    dro__gconv *c = &net->convs[op->index];
    for (int k = 0; k < net->parts.count; k++) {
        dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_WEIGHT, c->counts[k + 1]);
        size_t size = (size_t)s.in * (size_t)s.out * (size_t)s.kernel[0] * (size_t)s.kernel[1];
        DRO_TRY(grow(net, &net->dw, &net->dw_size, size * sizeof(float)));
        DRO_TRY(find_plan(net, &s, in->data, net->dw, z, &c->weight[k]));
        DRO_TRY(must(net, op, c->weight[k]));
        DRO_TRY(grow(net, &net->beside_workspace, &net->beside_size,
                     net->plans[c->weight[k]].workspace));
    }
    return DRO_OK;
}

dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    dro__gconv *c = &net->convs[op->index];
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    const void *z = p->tails[out->tail].z;
    int total = dro__call_size(net), parts[2] = {total, 0};
    if (p->training)
        for (int k = 0; k < net->parts.count; k++)
            parts[k] = net->parts.first[k + 1] - net->parts.first[k];
    if (c->ready == 1 + p->training && c->counts[0] == total && c->counts[1] == parts[0] &&
        c->counts[2] == parts[1])
        return DRO_OK;
    c->counts[0] = total, c->counts[1] = parts[0], c->counts[2] = parts[1];
    c->ready = 0;
    dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_FORWARD, total);
    DRO_TRY(find_plan(net, &s, in->data, net->packed[op->index], z, &c->forward));
    DRO_TRY(must(net, op, c->forward));
    DRO_TRY(grow(net, &net->workspace, &net->workspace_size, net->plans[c->forward].workspace));
    if (op->back && in->wants)
        DRO_TRY(prepare_data(net, op, in, out, z));
    if (op->back && !op->node->frozen)
        DRO_TRY(prepare_weight(net, op, in, out, z));
    c->ready = 1 + p->training;
    return DRO_OK;
}

/* In a pass there is nobody to return to: the failure waits until its end. */
static void note(dro__cuda_network *net, bool done)
{
    net->failed = net->failed || !done;
}

void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z)
{
    note(net, execute(net->dnn, &net->plans[net->convs[op->index].forward], x,
                      net->packed[op->index], z, net->workspace));
}

bool dro__dnn_adds(const dro__cuda_network *net, const dro__gop *op)
{
    return net->convs[op->index].data_add >= 0;
}

void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add)
{
    const dro__gconv *c = &net->convs[op->index];
    note(net, execute(net->dnn, &net->plans[add ? c->data_add : c->data], dx,
                      net->packed[op->index], dz, net->workspace));
}

void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     cudaStream_t stream, const void *x, const void *dz)
{
    const dro__gconv *c = &net->convs[op->index];
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    size_t element = net->bf16 ? 2 : 4;
    note(net, ok(cudnnSetStream(net->beside_dnn, stream)));
    for (int k = 0; k < net->parts.count; k++) {
        size_t first = (size_t)net->parts.first[k];
        const dro__dnn_plan *plan = &net->plans[c->weight[k]];
        const char *from = (const char *)x + first * in->size * element;
        const char *slope = (const char *)dz + first * out->size * element;
        note(net, execute(net->beside_dnn, plan, from, net->dw, slope, net->beside_workspace));
        dro__packing t = dro__packing_of(net, p, op);
        t.to = (dro__typed){net->dw, net->bf16, 0};
        dro__gpu_unpack(stream, &t, net->grads[k] + op->node->weight);
    }
}
