/* Plans for convolutions through cuDNN's graph interface. Values are (examples, height, width,
 * channels), weights (out, kernel, in). For each shape the library proposes engines. Those that
 * give the same bits every time and accumulate in float are timed, and the fastest on this GPU
 * becomes the shape's plan (for all networks of the process: dnn_choice.c). Small shapes take the
 * first one. So do deterministic networks and fp32, which is for checking: their results must not
 * depend on a measurement. */
#include "net.h"

#include <string.h>

enum { CANDIDATES = 10, ASKED = 24, WORKSPACE_MOST = 256 << 20, TRIES = 4 };

/* Below this many operations, measuring is not worth its time. */
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

/* ---- the query ---- */

enum { ID_X = 1, ID_W, ID_Z };

/* A tensor of n, c, h, w, stored in the order n, h, w, c. */
static descriptor tensor(int64_t id, bool bf16, int64_t n, int64_t c, int64_t h, int64_t w)
{
    descriptor d = NULL;
    int64_t dims[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c}, align = 16;
    cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    while (c * (bf16 ? 2 : 4) % align) /* a part may begin at any example */
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

/* cuDNN's names for a direction: its descriptor, and the attributes for the convolution, x, w, z,
 * alpha and beta. */
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

/* The graph of one operation. The descriptors it was made from are destroyed. */
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

/* ---- candidates ---- */

/* Whether an engine's numerical notes are acceptable. */
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
        default: /* Winograd, FFT, reduced precision, not deterministic */
            good = false;
        }
    drop(&engine);
    return good;
}

/* The plan of a configuration and its workspace; NULL: unsupported, or too much workspace. */
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

/* Puts up to CANDIDATES plans into the list; returns how many. */
static int plans_of(const dro__cuda_network *net, descriptor graph, cudnnBackendHeurMode_t mode,
                    dro__dnn_plan *list)
{
    int count = 0;
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
    for (int k = 0; asked && k < found && k < ASKED && count < CANDIDATES; k++) {
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

bool dro__dnn_execute(cudnnHandle_t handle, const dro__dnn_plan *p, const void *x, const void *w,
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

/* Milliseconds per run; negative if it fails. */
static float time_of(dro__cuda_network *net, const dro__dnn_plan *p, const void *x, const void *w,
                     const void *z, void *workspace)
{
    cudaEvent_t from = NULL, to = NULL;
    float ms = -1;
    bool good = cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess &&
                ok(cudnnSetStream(net->dnn, DRO__STREAM)) &&
                dro__dnn_execute(net->dnn, p, x, w, z, workspace) &&
                cudaEventRecord(from, DRO__STREAM) == cudaSuccess;
    for (int k = 0; good && k < TRIES; k++)
        good = dro__dnn_execute(net->dnn, p, x, w, z, workspace);
    good = good && cudaEventRecord(to, DRO__STREAM) == cudaSuccess;
    if (cudaStreamSynchronize(DRO__STREAM) != cudaSuccess || !good ||
        cudaEventElapsedTime(&ms, from, to) != cudaSuccess)
        ms = -1;
    if (from)
        cudaEventDestroy(from);
    if (to)
        cudaEventDestroy(to);
    cudaGetLastError(); /* a plan that fails is left out */
    return ms / TRIES;
}

static double operations(const dro__dnn_shape *s)
{
    return 2.0 * s->count * s->out_height * s->out_width * s->out * s->in * s->kernel[0] *
           s->kernel[1];
}

static void drop_from(dro__dnn_plan *list, int first, int count)
{
    for (int k = first; k < count; k++)
        drop(&list[k].plan);
}

/* The index of the fastest plan of a list, each timed in the workspace that it will use; -1: none
 * could be timed. */
static int measure(dro__cuda_network *net, const dro__dnn_shape *shape, const dro__dnn_plan *list,
                   int count, const void *x, const void *w, const void *z)
{
    bool weights = shape->kind == DRO__DNN_WEIGHT;
    void **block = weights ? &net->weights_workspace : &net->workspace;
    size_t *size = weights ? &net->weights_workspace_size : &net->workspace_size;
    float least = -1;
    int best = -1;
    for (int k = 0; k < count; k++) {
        if (dro__dnn_grow(net, block, size, list[k].workspace) != DRO_OK)
            continue; /* another plan may need less */
        float ms = time_of(net, &list[k], x, w, z, *block);
        if (ms >= 0 && (least < 0 || ms < least))
            least = ms, best = k;
    }
    return best;
}

/* Moves the best plan of a list to the front and destroys the others. */
static void choose(dro__cuda_network *net, const dro__dnn_shape *shape, dro__dnn_plan *list,
                   int count, const void *x, const void *w, const void *z)
{
    int best = count > 1 ? dro__dnn_chosen(net, shape) : 0;
    if (best < 0 || best >= count) {
        best = measure(net, shape, list, count, x, w, z);
        int agreed = best < 0 ? 0 : dro__dnn_choose(net, shape, best); /* failures are not kept */
        best = agreed < count ? agreed : best;
    }
    dro__dnn_plan kept = list[best];
    list[best] = list[0];
    list[0] = kept;
    drop_from(list, 1, count);
}

/* Keeps only the plans with the smallest workspace. Winograd engines, which lose precision, need a
 * lot of it for transformed data, and not all of them say in their notes that they are Winograd.
 * (Weight gradients need workspace to split their sums, so theirs are kept except in fp32.) */
static int keep_plain(dro__dnn_plan *list, int count)
{
    size_t least = list[0].workspace;
    int kept = 0;
    for (int k = 1; k < count; k++)
        least = list[k].workspace < least ? list[k].workspace : least;
    for (int k = 0; k < count; k++)
        if (list[k].workspace == least)
            list[kept++] = list[k];
        else
            drop(&list[k].plan);
    return kept;
}

static dro_status reserve_plan(dro__cuda_network *net)
{
    if (net->plan_count < net->plan_capacity)
        return DRO_OK;
    int capacity = net->plan_capacity ? 2 * net->plan_capacity : 64;
    dro__dnn_plan *more = dro__alloc((size_t)capacity, sizeof *more);
    if (!more)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    if (net->plans)
        memcpy(more, net->plans, (size_t)net->plan_count * sizeof *more);
    dro__free(net->plans);
    net->plans = more;
    net->plan_capacity = capacity;
    return DRO_OK;
}

dro_status dro__dnn_find(dro__cuda_network *net, const dro__dnn_shape *shape, const void *x,
                         const void *w, const void *z, int *index)
{
    dro__dnn_plan list[CANDIDATES] = {{.plan = NULL}};
    for (*index = 0; *index < net->plan_count; (*index)++)
        if (memcmp(&net->plans[*index].shape, shape, sizeof *shape) == 0)
            return DRO_OK;
    *index = -1;
    DRO_TRY(reserve_plan(net));
    descriptor graph = graph_of(net, shape);
    bool exact = net->graph->precision == DRO__FP32;
    int count = graph ? plans_of(net, graph, CUDNN_HEUR_MODE_A, list) : 0;
    if (graph && !count)
        count = plans_of(net, graph, CUDNN_HEUR_MODE_FALLBACK, list);
    drop(&graph);
    if (!count)
        return DRO_OK;
    if (exact || shape->kind != DRO__DNN_WEIGHT)
        count = keep_plain(list, count);
    if (exact || net->graph->deterministic || operations(shape) < LARGE) {
        drop_from(list, 1, count);
        count = 1;
    }
    choose(net, shape, list, count, x, w, z);
    list[0].shape = *shape;
    net->plans[net->plan_count] = list[0];
    *index = net->plan_count++;
    return DRO_OK;
}

void dro__dnn_close(dro__cuda_network *net)
{
    for (int k = 0; k < net->plan_count; k++)
        drop(&net->plans[k].plan);
    dro__free(net->plans);
    for (int k = 0; k < net->retired_count; k++)
        dro__cuda_free(net->retired[k]);
    dro__cuda_free(net->weights_workspace);
    dro__cuda_free(net->unpackings);
}
