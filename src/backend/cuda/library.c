/* Convolutions through cuDNN and matrix products through cuBLAS. Values are (examples, height, width, channels),
 * weights (out, kernel, in). Algorithms are the library's first choice among those that give the same bits
 * every time. */
#include "net.h"

enum { BLAS_ROOM = 8 << 20, WORKSPACE_MOST = 512 << 20 };

static dro_status dnn_check(dro__cuda_network *net, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return DRO_OK;
    return dro__fail(net->ctx, DRO_ERR_DEVICE, "%.60s: %s", what, cudnnGetErrorString(status));
}
#define DNN(net, call) DRO_TRY(dnn_check((net), (call), #call))

/* In a pass there is nobody to return to: the failure waits until its end. */
static void note(dro__cuda_network *net, bool ok)
{
    net->failed = net->failed || !ok;
}

dro_status dro__library_open(dro__cuda_network *net)
{
    DNN(net, cudnnCreate(&net->dnn));
    net->blas_room = dro__cuda_alloc(BLAS_ROOM, 1);
    if (cublasCreate(&net->blas) != CUBLAS_STATUS_SUCCESS || !net->blas_room)
        return dro__fail(net->ctx, DRO_ERR_DEVICE, "cuBLAS cannot start");
    cublasSetWorkspace(net->blas, net->blas_room, BLAS_ROOM);
    cublasSetMathMode(net->blas, net->graph->precision == DRO__FP32 ? CUBLAS_DEFAULT_MATH
                                                                    : CUBLAS_TF32_TENSOR_OP_MATH);
    return DRO_OK;
}

static void conv_free(dro__gconv *c)
{
    cudnnTensorDescriptor_t all[] = {c->x,         c->z,         c->part_x[0],
                                     c->part_x[1], c->part_z[0], c->part_z[1]};
    for (int k = 0; k < 6; k++)
        if (all[k])
            cudnnDestroyTensorDescriptor(all[k]);
    if (c->w)
        cudnnDestroyFilterDescriptor(c->w);
    if (c->conv)
        cudnnDestroyConvolutionDescriptor(c->conv);
}

void dro__library_close(dro__cuda_network *net)
{
    for (int32_t i = 0; net->convs && i < net->graph->count; i++)
        conv_free(&net->convs[i]);
    if (net->blas)
        cublasDestroy(net->blas);
    if (net->dnn)
        cudnnDestroy(net->dnn);
    dro__cuda_free(net->blas_room);
}

/* ---- convolutions ---- */

static dro_status tensor(dro__cuda_network *net, cudnnTensorDescriptor_t *d, int n,
                         const dro__gvalue *v)
{
    if (!*d)
        DNN(net, cudnnCreateTensorDescriptor(d));
    DNN(net, cudnnSetTensor4dDescriptor(*d, CUDNN_TENSOR_NHWC,
                                        net->bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT, n,
                                        v->stored, v->extent.height, v->extent.width));
    return DRO_OK;
}

static dro_status describe(dro__cuda_network *net, dro__gconv *c, const dro__gop *op,
                           const dro__gvalue *in)
{
    const dro_window *w = &op->node->window;
    cudnnMathType_t math[] = {[DRO__TF32] = CUDNN_TENSOR_OP_MATH,
                              [DRO__FP32] = CUDNN_FMA_MATH,
                              [DRO__BF16] = CUDNN_TENSOR_OP_MATH};
    if (c->conv)
        return DRO_OK;
    DNN(net, cudnnCreateFilterDescriptor(&c->w));
    DNN(net, cudnnSetFilter4dDescriptor(c->w, net->bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT,
                                        CUDNN_TENSOR_NHWC, op->node->channels, in->stored,
                                        w->kernel[0], w->kernel[1]));
    DNN(net, cudnnCreateConvolutionDescriptor(&c->conv));
    DNN(net,
        cudnnSetConvolution2dDescriptor(c->conv, w->pad[0], w->pad[1], w->stride[0], w->stride[1],
                                        1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    return dnn_check(net, cudnnSetConvolutionMathType(c->conv, math[net->graph->precision]),
                     "cudnnSetConvolutionMathType");
}

/* The first that works, repeats its bits and is not too greedy; else the first that works. */
#define CHOOSE(list, count, to)                                                                    \
    do {                                                                                           \
        int found_ = -1;                                                                           \
        for (int k_ = (count)-1; k_ >= 0; k_--)                                                    \
            if ((list)[k_].status == CUDNN_STATUS_SUCCESS && (list)[k_].memory <= WORKSPACE_MOST)  \
                found_ = k_;                                                                       \
        for (int k_ = (count)-1; k_ >= 0; k_--)                                                    \
            if ((list)[k_].status == CUDNN_STATUS_SUCCESS &&                                       \
                (list)[k_].memory <= WORKSPACE_MOST &&                                             \
                (list)[k_].determinism == CUDNN_DETERMINISTIC)                                     \
                found_ = k_;                                                                       \
        if (found_ < 0)                                                                            \
            return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED, "cuDNN has no algorithm for a layer"); \
        (to) = (list)[found_].algo;                                                                \
        need = (list)[found_].memory > need ? (list)[found_].memory : need;                        \
    } while (0)

static dro_status choose(dro__cuda_network *net, dro__gconv *c, bool data, bool weight,
                         size_t *most)
{
    enum { LIST = 8 };
    int count;
    size_t need = 0;
    cudnnConvolutionFwdAlgoPerf_t forward[LIST];
    cudnnConvolutionBwdDataAlgoPerf_t back[LIST];
    cudnnConvolutionBwdFilterAlgoPerf_t filter[LIST];
    DNN(net, cudnnGetConvolutionForwardAlgorithm_v7(net->dnn, c->x, c->w, c->conv, c->z, LIST,
                                                    &count, forward));
    CHOOSE(forward, count, c->forward);
    if (data) {
        DNN(net, cudnnGetConvolutionBackwardDataAlgorithm_v7(net->dnn, c->w, c->z, c->conv, c->x,
                                                             LIST, &count, back));
        CHOOSE(back, count, c->data);
    }
    for (int k = 0; weight && k < net->parts.count; k++) {
        DNN(net, cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                     net->dnn, c->part_x[k], c->part_z[k], c->conv, c->w, LIST, &count, filter));
        CHOOSE(filter, count, c->weight[k]);
    }
    *most = need;
    return DRO_OK;
}

/* A larger block when the old one is too small. */
static dro_status grow(dro__cuda_network *net, void **block, size_t *size, size_t need)
{
    if (need <= *size)
        return DRO_OK;
    dro__cuda_free(*block);
    *size = 0;
    *block = dro__cuda_alloc(need, 1);
    if (!*block)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    *size = need;
    return DRO_OK;
}

dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    dro__gconv *c = &net->convs[op->index];
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    size_t element = net->bf16 ? 2 : 4, need,
           taps = (size_t)op->node->window.kernel[0] * (size_t)op->node->window.kernel[1];
    int total = dro__call_size(net), parts[2] = {total, 0};
    if (p->training)
        for (int k = 0; k < net->parts.count; k++)
            parts[k] = net->parts.first[k + 1] - net->parts.first[k];
    if (c->counts[0] == total && c->counts[1] == parts[0] && c->counts[2] == parts[1])
        return DRO_OK;
    DRO_TRY(describe(net, c, op, in));
    DRO_TRY(tensor(net, &c->x, total, in));
    DRO_TRY(tensor(net, &c->z, total, out));
    for (int k = 0; k < net->parts.count; k++) {
        DRO_TRY(tensor(net, &c->part_x[k], parts[k], in));
        DRO_TRY(tensor(net, &c->part_z[k], parts[k], out));
    }
    DRO_TRY(choose(net, c, op->back && in->wants, op->back && !op->node->frozen, &need));
    DRO_TRY(grow(net, &net->workspace, &net->workspace_size, need));
    if (op->back) {
        DRO_TRY(grow(net, &net->scratch, &net->scratch_size, p->room * out->size * element));
        DRO_TRY(grow(net, &net->dw, &net->dw_size,
                     (size_t)in->stored * (size_t)op->node->channels * taps * element));
    }
    c->counts[0] = total, c->counts[1] = parts[0], c->counts[2] = parts[1];
    return DRO_OK;
}

void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z)
{
    const dro__gconv *c = &net->convs[op->index];
    float one = 1, zero = 0;
    note(net, cudnnConvolutionForward(net->dnn, &one, c->x, x, c->w, net->packed[op->index],
                                      c->conv, c->forward, net->workspace, net->workspace_size,
                                      &zero, c->z, z) == CUDNN_STATUS_SUCCESS);
}

void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add)
{
    const dro__gconv *c = &net->convs[op->index];
    float one = 1, keep = add;
    note(net, cudnnConvolutionBackwardData(net->dnn, &one, c->w, net->packed[op->index], c->z, dz,
                                           c->conv, c->data, net->workspace, net->workspace_size,
                                           &keep, c->x, dx) == CUDNN_STATUS_SUCCESS);
}

void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     const void *x, const void *dz)
{
    const dro__gconv *c = &net->convs[op->index];
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    size_t element = net->bf16 ? 2 : 4;
    float one = 1, zero = 0;
    for (int k = 0; k < net->parts.count; k++) {
        size_t first = (size_t)net->parts.first[k];
        const char *from = (const char *)x + first * in->size * element;
        const char *slope = (const char *)dz + first * out->size * element;
        note(net, cudnnConvolutionBackwardFilter(net->dnn, &one, c->part_x[k], from, c->part_z[k],
                                                 slope, c->conv, c->weight[k], net->workspace,
                                                 net->workspace_size, &zero, c->w,
                                                 net->dw) == CUDNN_STATUS_SUCCESS);
        dro__gpu_unpack(net->stream, op->node->channels, in->extent.channels,
                        op->node->window.kernel[0] * op->node->window.kernel[1],
                        (dro__typed){net->dw, net->bf16}, net->grads[k] + op->node->weight);
    }
}

/* ---- linear layers, always in floats: y (n, out) = x (n, in) w^T + b ---- */

void dro__blas_linear_forward(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    int n = dro__call_size(net), i = (int)in->size, o = (int)out->size;
    float one = 1;
    const float *w = dro__parameters(net, op->node, op->node->weight);
    dro__gpu_rows_bias(net->stream, n, o, dro__parameters(net, op->node, op->node->bias),
                       out->data);
    note(net, cublasSgemm(net->blas, CUBLAS_OP_T, CUBLAS_OP_N, o, n, i, &one, w, i, in->data, i,
                          &one, out->data, o) == CUBLAS_STATUS_SUCCESS);
}

void dro__blas_linear_back(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op,
                           const float *dy, float *dx)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    const dro__node *node = op->node;
    int n = dro__call_size(net), i = (int)in->size, o = (int)out->size;
    float one = 1, zero = 0, *sums[2];
    const float *w = dro__parameters(net, node, node->weight);
    for (int k = 0; !node->frozen && k < net->parts.count; k++) {
        size_t first = (size_t)net->parts.first[k];
        int count = net->parts.first[k + 1] - net->parts.first[k];
        note(net, cublasSgemm(net->blas, CUBLAS_OP_N, CUBLAS_OP_T, i, o, count, &one,
                              (const float *)in->data + first * in->size, i, dy + first * out->size,
                              o, &zero, net->grads[k] + node->weight, i) == CUBLAS_STATUS_SUCCESS);
        sums[k] = net->grads[k] + node->bias;
    }
    if (!node->frozen && node->bias >= 0)
        dro__gpu_columns(net->stream, net->parts, o, dy, sums);
    if (dx)
        note(net,
             cublasSgemm(net->blas, CUBLAS_OP_N, CUBLAS_OP_N, i, n, o, &one, w, i, dy, o,
                         in->slope.p == in->grad ? &one : &zero, dx, i) == CUBLAS_STATUS_SUCCESS);
}
