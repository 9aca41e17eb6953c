/* Convolutions through cuDNN: the plans they use, and their passes. Weight gradients run on a
 * separate stream and are unpacked into the parameters' order, PORTION convolutions at a time. */
#include "net.h"

#include <string.h>

enum { PORTION = 16 };

/* Replaces a block that is too small by a larger one. The old one is kept until the network is
 * destroyed, because a recorded pass may use it. */
dro_status dro__dnn_grow(dro__cuda_network *net, void **block, size_t *size, size_t need)
{
    enum { RETIRED = sizeof net->retired / sizeof net->retired[0] };
    if (need <= *size)
        return DRO_OK;
    need = need > 2 * *size ? need : 2 * *size;
    if (net->retired_count == RETIRED)
        return dro__fail(net->ctx, DRO_ERR_STATE,
                         "cuDNN's memory has grown %d times: create the network again",
                         (int)RETIRED);
    void *larger = dro__cuda_alloc(need, 1);
    if (!larger)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    if (*block)
        net->retired[net->retired_count++] = *block;
    *block = larger;
    *size = need;
    return DRO_OK;
}

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
    const dro_window *w = &op->base.node->window;
    return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                     "cuDNN cannot do a convolution of %d x %d with stride %d to %d channels",
                     (int)w->kernel[0], (int)w->kernel[1], (int)w->stride[0],
                     (int)op->base.node->channels);
}

static dro_status prepare_data(dro__cuda_network *net, const dro__gop *op, const dro__gvalue *in,
                               const dro__gvalue *out, const void *z)
{
    dro__gconv *c = &net->convs[op->base.index];
    dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_DATA, c->counts[0]);
    const void *w = net->packed[op->base.index];
    DRO_TRY(dro__dnn_find(net, &s, in->grad, w, z, &c->data));
    DRO_TRY(must(net, op, c->data));
    DRO_TRY(
        dro__dnn_grow(net, &net->workspace, &net->workspace_size, net->plans[c->data].workspace));
    c->data_add = -1;
    if (in->base.writers < 2)
        return DRO_OK;
    s.add = 1;
    DRO_TRY(dro__dnn_find(net, &s, in->grad, w, z, &c->data_add));
    if (c->data_add < 0)
        return dro__dnn_grow(net, &net->scratch, &net->scratch_size,
                             (size_t)s.count * in->size * sizeof(float));
    return dro__dnn_grow(net, &net->workspace, &net->workspace_size,
                         net->plans[c->data_add].workspace);
}

/* Allocates memory for all weight gradients in cuDNN's layout, and the table for unpacking them. */
static dro_status make_unpackings(dro__cuda_network *net, const dro__gprogram *p)
{
    enum { ALIGN = 128 };
    size_t used = 0, element = net->bf16 ? 2 : 4, count = 0;
    if (net->unpackings)
        return DRO_OK;
    dro__packing *table = dro__alloc(DRO__PARTS * (size_t)p->base.operation_count, sizeof *table);
    for (int pass = 0; table && pass < 2; pass++) { /* the first pass only counts */
        used = count = 0;
        for (int part = 0; part < DRO__PARTS; part++)
            for (int32_t i = p->base.operation_count - 1; i >= 0; i--) {
                const dro__gop *op = &p->ops[i];
                if (!op->base.back || !dro__gpu_layers[op->base.op].packs || op->own ||
                    op->base.node->frozen)
                    continue;
                dro__packing t = dro__packing_of(net, p, op);
                t.from = net->grads[part] + op->base.node->weight;
                t.to = (dro__typed){(char *)net->dw + used * element, net->bf16, 0};
                net->convs[op->base.index].dw[part] = t.to.p;
                table[count++] = t;
                used += ((size_t)t.out * (size_t)t.stored_in * (size_t)t.taps + ALIGN - 1) / ALIGN *
                        ALIGN;
            }
        if (!pass)
            net->dw = dro__cuda_alloc(used, element);
    }
    net->unpackings = net->dw ? dro__cuda_alloc(count, sizeof *table) : NULL;
    net->unpacking_count = (int)(count / DRO__PARTS);
    cudaError_t error = cudaSuccess;
    if (net->unpackings)
        error = cudaMemcpy(net->unpackings, table, count * sizeof *table, cudaMemcpyHostToDevice);
    dro__free(table);
    if (net->unpackings && error == cudaSuccess)
        return DRO_OK;
    dro__cuda_free(net->dw); /* they are allocated again when the call is retried */
    dro__cuda_free(net->unpackings);
    net->dw = NULL, net->unpackings = NULL;
    DRO__CUDA(net->ctx, error);
    return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
}

static dro_status prepare_weight(dro__cuda_network *net, const dro__gop *op, const dro__gvalue *in,
                                 const dro__gvalue *out, const void *z)
{
    dro__gconv *c = &net->convs[op->base.index];
    for (int k = 0; k < net->parts.count; k++) {
        dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_WEIGHT, c->counts[k + 1]);
        DRO_TRY(dro__dnn_find(net, &s, in->data, c->dw[k], z, &c->weight[k]));
        DRO_TRY(must(net, op, c->weight[k]));
        DRO_TRY(dro__dnn_grow(net, &net->weights_workspace, &net->weights_workspace_size,
                              net->plans[c->weight[k]].workspace));
    }
    return DRO_OK;
}

dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    dro__gconv *c = &net->convs[op->base.index];
    const dro__gvalue *in = &p->values[op->base.in[0].value], *out = &p->values[op->base.end];
    const void *z = p->tails[out->base.tail].z;
    int total = dro__call_size(net), parts[2] = {total, 0};
    if (op->own)
        return DRO_OK;
    if (p->base.training)
        for (int k = 0; k < net->parts.count; k++)
            parts[k] = net->parts.first[k + 1] - net->parts.first[k];
    if (c->ready == 1 + p->base.training && c->counts[0] == total && c->counts[1] == parts[0] &&
        c->counts[2] == parts[1])
        return DRO_OK;
    c->counts[0] = total, c->counts[1] = parts[0], c->counts[2] = parts[1];
    c->ready = 0;
    dro__dnn_shape s = shape_of(op, in, out, DRO__DNN_FORWARD, total);
    DRO_TRY(dro__dnn_find(net, &s, in->data, net->packed[op->base.index], z, &c->forward));
    DRO_TRY(must(net, op, c->forward));
    DRO_TRY(dro__dnn_grow(net, &net->workspace, &net->workspace_size,
                          net->plans[c->forward].workspace));
    if (op->base.back && in->base.wants)
        DRO_TRY(prepare_data(net, op, in, out, z));
    if (op->base.back && !op->base.node->frozen) {
        DRO_TRY(make_unpackings(net, p));
        DRO_TRY(prepare_weight(net, op, in, out, z));
    }
    c->ready = 1 + p->base.training;
    return DRO_OK;
}

/* A pass cannot return a status; a failure is reported at its end. */
static void note(dro__cuda_network *net, bool done)
{
    net->failed = net->failed || !done;
}

void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z)
{
    note(net, dro__dnn_execute(net->dnn, &net->plans[net->convs[op->base.index].forward], x,
                               net->packed[op->base.index], z, net->workspace));
}

bool dro__dnn_adds(const dro__cuda_network *net, const dro__gop *op)
{
    return net->convs[op->base.index].data_add >= 0;
}

void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add)
{
    const dro__gconv *c = &net->convs[op->base.index];
    note(net, dro__dnn_execute(net->dnn, &net->plans[add ? c->data_add : c->data], dx,
                               net->packed[op->base.index], dz, net->workspace));
}

void dro__dnn_unpack(dro__cuda_network *net, cudaStream_t stream)
{
    for (int k = 0; k < net->parts.count; k++)
        dro__gpu_unpack(stream, net->written - net->unpacked,
                        net->unpackings + k * net->unpacking_count + net->unpacked);
    net->unpacked = net->written;
}

void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     cudaStream_t stream, const void *x, const void *dz)
{
    const dro__gconv *c = &net->convs[op->base.index];
    const dro__gvalue *in = &p->values[op->base.in[0].value], *out = &p->values[op->base.end];
    size_t element = net->bf16 ? 2 : 4;
    note(net, cudnnSetStream(net->weights_dnn, stream) == CUDNN_STATUS_SUCCESS);
    for (int k = 0; k < net->parts.count; k++) {
        size_t first = (size_t)net->parts.first[k];
        const dro__dnn_plan *plan = &net->plans[c->weight[k]];
        const char *from = (const char *)x + first * in->size * element;
        const char *slope = (const char *)dz + first * out->size * element;
        note(net, dro__dnn_execute(net->weights_dnn, plan, from, c->dw[k], slope,
                                   net->weights_workspace));
    }
    net->written++;
    if (net->written - net->unpacked >= PORTION)
        dro__dnn_unpack(net, stream);
}
