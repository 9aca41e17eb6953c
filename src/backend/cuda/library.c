/* cuDNN and cuBLAS: opening and closing them, and matrix products through cuBLAS. */
#include "net.h"

enum { BLAS_SCRATCH = 8 << 20 };

static dro_status dnn_check(dro__cuda_network *net, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return DRO_OK;
    return dro__fail(net->ctx, DRO_ERR_DEVICE, "%.60s: %s", what, cudnnGetErrorString(status));
}
#define DNN(net, call) DRO_TRY(dnn_check((net), (call), #call))

/* A pass cannot return a status; a failure is reported at its end. */
static void note(dro__cuda_network *net, bool ok)
{
    net->failed = net->failed || !ok;
}

dro_status dro__net_refused(dro__cuda_network *net)
{
    return dro__fail(net->ctx, DRO_ERR_DEVICE, "cuDNN or cuBLAS refused a layer");
}

dro_status dro__library_open(dro__cuda_network *net)
{
    DNN(net, cudnnCreate(&net->dnn));
    DNN(net, cudnnCreate(&net->weights_dnn));
    net->blas_scratch = dro__cuda_alloc(BLAS_SCRATCH, 1);
    cublasStatus_t status =
        net->blas_scratch ? cublasCreate(&net->blas) : CUBLAS_STATUS_ALLOC_FAILED;
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    if (status != CUBLAS_STATUS_SUCCESS)
        return dro__fail(net->ctx, DRO_ERR_DEVICE, "cuBLAS cannot start: %s",
                         cublasGetStatusString(status));
    cublasSetWorkspace(net->blas, net->blas_scratch, BLAS_SCRATCH);
    cublasSetMathMode(net->blas, net->graph->precision == DRO__FP32 ? CUBLAS_DEFAULT_MATH
                                                                    : CUBLAS_TF32_TENSOR_OP_MATH);
    return DRO_OK;
}

void dro__library_close(dro__cuda_network *net)
{
    dro__dnn_close(net);
    if (net->blas)
        cublasDestroy(net->blas);
    if (net->dnn)
        cudnnDestroy(net->dnn);
    if (net->weights_dnn)
        cudnnDestroy(net->weights_dnn);
    dro__cuda_free(net->blas_scratch);
}

dro__packing dro__packing_of(const dro__cuda_network *net, const dro__gprogram *p,
                             const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->base.in[0].value];
    const dro__graph_node *node = op->base.node;
    dro__packing t = {.kind = op->own      ? DRO__PACK_PRODUCTS
                              : op->folded ? DRO__PACK_FOLDED
                                           : DRO__PACK_CUDNN,
                      .bands = op->bands,
                      .out = node->channels,
                      .in = op->folded ? in->extent.channels / 4 : in->extent.channels,
                      .stored_in = in->stored,
                      .taps = op->window.kernel[0] * op->window.kernel[1],
                      .from = dro__parameters(net, node, node->weight)};
    for (int k = 0; k < 2; k++) {
        t.kernel[k] = node->window.kernel[k];
        t.folded[k] = op->window.kernel[k];
        t.lead[k] = node->window.pad[k] % 2;
    }
    return t;
}

/* ---- linear layers, always in floats: y (n, out) = x (n, in) w^T + b ---- */

void dro__blas_linear_forward(const dro__gcall *c)
{
    const dro__graph_node *node = c->op->base.node;
    int i = (int)c->in->size, o = (int)c->out->size;
    float one = 1, *y = c->k.y.p;
    const float *w = dro__parameters(c->net, node, node->weight);
    dro__gpu_rows_bias(c->stream, c->k.n, o, dro__parameters(c->net, node, node->bias), y);
    note(c->net, cublasSgemm(c->net->blas, CUBLAS_OP_T, CUBLAS_OP_N, o, c->k.n, i, &one, w, i,
                             c->k.x.p, i, &one, y, o) == CUBLAS_STATUS_SUCCESS);
}

static void linear_weights(const dro__gcall *c)
{
    dro__cuda_network *net = c->net;
    const dro__graph_node *node = c->op->base.node;
    const float *x = c->k.x.p, *dy = c->k.dy.p;
    int i = (int)c->in->size, o = (int)c->out->size;
    float one = 1, zero = 0, *sums[DRO__PARTS];
    for (int k = 0; k < net->parts.count; k++) {
        size_t first = (size_t)net->parts.first[k];
        int count = net->parts.first[k + 1] - net->parts.first[k];
        note(net, cublasSgemm(net->blas, CUBLAS_OP_N, CUBLAS_OP_T, i, o, count, &one,
                              x + first * c->in->size, i, dy + first * c->out->size, o, &zero,
                              net->grads[k] + node->weight, i) == CUBLAS_STATUS_SUCCESS);
        sums[k] = net->grads[k] + node->bias;
    }
    if (node->bias >= 0)
        dro__gpu_columns(c->stream, net->parts, o, dy, sums);
}

void dro__blas_linear_backward(const dro__gcall *c)
{
    const dro__graph_node *node = c->op->base.node;
    int i = (int)c->in->size, o = (int)c->out->size;
    bool here = c->k.add.p == c->k.dx.p; /* dx is added to in place */
    float one = 1, share = here ? 1 : 0;
    if (!node->frozen)
        linear_weights(c);
    if (!c->in->base.wants)
        return;
    note(c->net, cublasSgemm(c->net->blas, CUBLAS_OP_N, CUBLAS_OP_N, i, c->k.n, o, &one,
                             dro__parameters(c->net, node, node->weight), i, c->k.dy.p, o, &share,
                             c->k.dx.p, i) == CUBLAS_STATUS_SUCCESS);
    dro__slope_written(c, c->op->base.in[0].value, here ? (dro__typed){NULL, 0, 0} : c->k.add);
}
