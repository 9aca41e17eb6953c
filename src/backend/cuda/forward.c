/* The forward pass: queues every operation of a program. */
#include "net.h"

#include <string.h>

static const dro__typed none = {NULL, 0, 0};

static dro__gpu_window window_of(const dro__node *node)
{
    const dro_window *w = &node->window;
    return (dro__gpu_window){
        {w->kernel[0], w->kernel[1]}, {w->stride[0], w->stride[1]}, {w->pad[0], w->pad[1]}};
}

dro__norm_source dro__norm_source_of(const dro__cuda_network *net, const dro__gtail *tail)
{
    const dro__node *norm = tail->norm, *conv = tail->conv;
    dro__norm_source s = {.momentum = 1.0 / DRO__NORM_MOMENTUM_INVERSE};
    if (conv && conv->has_bias)
        s.bias = dro__parameters(net, conv, conv->bias);
    if (norm) {
        s.gamma = dro__parameters(net, norm, norm->weight);
        s.beta = dro__parameters(net, norm, norm->bias);
        s.running = net->memory.statistics + norm->running;
        s.taken = net->taken + norm->running;
        s.eps = norm->eps;
    }
    return s;
}

enum { MANY = 4 };

/* Four for many: fewer blocks do more each, which costs less than it delays when others run beside. */
int dro__share_of(const dro__cuda_network *net)
{
    int alive = dro__networks_alive();
    return net->graph->deterministic || alive < 2 ? 1 : alive < MANY ? 2 : MANY;
}

/* Which kernels do a call's convolutions of bfloat16, where both fit: those by bands make eight networks an eighth
 * faster, those by rows a network that is alone. The two want the weights in different orders; a call has one share from
 * its packing to its last slope, so it reads what it has packed. */
static bool by_bands(const dro__cuda_network *net)
{
    return net->share >= MANY;
}

dro__conv3 dro__conv3_of(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    const dro__gtail *tail = &p->tails[out->tail];
    dro__conv3 c = {.parts = net->parts,
                    .bf16 = net->bf16,
                    .share = net->share,
                    .bands = op->bands && by_bands(net),
                    .in = in->stored,
                    .real_in = in->extent.channels,
                    .out = out->extent.channels,
                    .stride = op->node->window.stride[0],
                    .height = in->extent.height,
                    .width = in->extent.width,
                    .out_height = out->extent.height,
                    .out_width = out->extent.width,
                    .weights = net->packed[op->index],
                    .x = in->data,
                    .lazy = in->lazy,
                    .z = tail->z,
                    .sums = tail->deferred ? tail->numbers.sums : NULL,
                    .norm = tail->norm != NULL,
                    .numbers = tail->numbers};
    if (in->tail >= 0) {
        const dro__gtail *before = &p->tails[in->tail];
        c.x_numbers = before->numbers;
        c.x_relu = before->relu;
        c.x_z = before->deferred ? before->z : NULL;
        if (in->lazy)
            c.x = before->z;
    }
    return c;
}

/* In the forward pass the first reader of a value works out its tail. */
static void read_first(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                       dro__conv3 *c)
{
    const dro__gvalue *in = &p->values[op->in[0]];
    bool fills = in->filler >= 0 && &p->ops[in->filler] == op;
    if (!in->lazy && !fills)
        return;
    const dro__gtail *before = &p->tails[in->tail];
    c->x = before->z;
    c->lazy = c->x_finish = 1;
    c->x_source = dro__norm_source_of(net, before);
    c->x_fill = fills ? in->data : NULL;
    c->x_residual = before->residual < 0 ? NULL : p->values[before->residual].data;
}

/* From z to the value: moments, numbers, and the tail itself. */
static void run_tail(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *v = &p->values[op->end];
    dro__gtail *tail = &p->tails[v->tail];
    const dro__gvalue *source = tail->source < 0 ? NULL : &p->values[tail->source];
    dro__typed z = source ? dro__data_of(p, source) : dro__typed_of(v, tail->z);
    if (tail->deferred) {
        bool later = v->lazy || v->filler >= 0; /* a reader makes the numbers */
        dro__norm_source from = dro__norm_source_of(net, tail);
        if (!op->own)
            dro__gpu_moments(net->stream, net->parts, v->extent, z, tail->numbers,
                             later ? NULL : &from);
        if (later)
            return;
        net->chained = false;
        if (op->own)
            dro__gpu_finish_forward(net->stream, net->parts, v->extent.height * v->extent.width,
                                    tail->numbers, from);
    }
    bool nothing = !tail->norm && !tail->relu && tail->residual < 0 && !tail->conv->has_bias;
    if (nothing)
        return;
    net->chained = false;
    const dro__gvalue *residual = tail->residual < 0 ? NULL : &p->values[tail->residual];
    dro__gpu_apply(net->stream, net->parts, v->extent, z, tail->numbers,
                   residual ? dro__data_of(p, residual) : none, tail->relu, dro__data_of(p, v));
}

static void run_conv(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    if (op->own) {
        dro__conv3 c = dro__conv3_of(net, p, op);
        read_first(net, p, op, &c);
        c.early = net->chained;
        dro__gpu_conv3_forward(net->stream, &c);
        net->chained = true;
    } else {
        const dro__gvalue *in = &p->values[op->in[0]];
        dro__dnn_forward(net, op, in->data, p->tails[p->values[op->end].tail].z);
    }
    run_tail(net, p, op);
}

static void run_concat(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *out = &p->values[op->end];
    for (int k = 0, at = 0; k < op->input_count; k++) {
        const dro__gvalue *in = &p->values[op->in[k]];
        if (in->whole < 0)
            dro__gpu_concat(net->stream, dro__call_size(net), in->extent, out->extent.channels, at,
                            dro__typed_of(in, in->data), dro__typed_of(out, out->data));
        at += in->extent.channels;
    }
}

static void run_fold(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    int before[2] = {(op->window.pad[0] + 1) / 2, (op->window.pad[1] + 1) / 2};
    dro__gpu_fold(net->stream, dro__call_size(net), in->extent, dro__data_of(p, in), before,
                  out->extent, dro__data_of(p, out));
}

static void run_dropout(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    dro__typed x = dro__typed_of(in, in->data), y = dro__typed_of(out, out->data);
    int n = dro__call_size(net);
    if (p->training)
        dro__gpu_dropout(net->stream, n, in->extent, op->node->rate, op->index, net->keys, x, none,
                         y);
    else
        dro__gpu_add(net->stream, (size_t)n * in->size, x, none, y);
}

static void run_node(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__node *node = op->node;
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    dro__typed x = dro__data_of(p, in), y = dro__data_of(p, out);
    cudaStream_t s = net->stream;
    int n = dro__call_size(net);
    switch (node->op) {
    case DRO__OP_CONV:
        run_conv(net, p, op);
        return;
    case DRO__OP_NORM:
        run_tail(net, p, op);
        return;
    case DRO__OP_LINEAR:
        dro__blas_linear_forward(net, p, op);
        return;
    case DRO__OP_MAX_POOL:
        dro__gpu_max_pool(s, n, in->extent, out->extent, window_of(node), x, y, out->chosen);
        return;
    case DRO__OP_AVG_POOL:
        dro__gpu_avg_pool(s, n, in->extent, out->extent, window_of(node), x, y);
        return;
    case DRO__OP_GLOBAL_POOL:
        dro__gpu_global_pool(s, n, in->extent, x, y);
        return;
    case DRO__OP_ADD:
        dro__gpu_add(s, (size_t)n * in->size, x,
                     dro__typed_of(&p->values[op->in[1]], p->values[op->in[1]].data), y);
        return;
    case DRO__OP_CONCAT:
        run_concat(net, p, op);
        return;
    case DRO__OP_SHORTCUT:
        dro__gpu_shortcut(s, n, in->extent, out->extent, node->window.stride[0], x, y);
        return;
    case DRO__OP_AFFINE:
        dro__gpu_affine(s, n, in->extent, net->scales[op->index],
                        net->scales[op->index] + node->channels, x, none, y);
        return;
    case DRO__OP_RELU:
        dro__gpu_relu(s, (size_t)n * in->size, x, y);
        return;
    case DRO__OP_DROPOUT:
        run_dropout(net, p, op);
        return;
    case DRO__OP_FLATTEN:
        dro__gpu_flatten(s, n, in->extent, x, y);
        return;
    case DRO__OP_INPUT:
    case DRO__OP_COUNT:
        return;
    }
}

static void run_heads(dro__cuda_network *net, const dro__gprogram *p)
{
    const dro__graph *g = net->graph;
    for (int h = 0; h < DRO__HEADS; h++) {
        if (p->heads[h] < 0)
            continue;
        const dro__gvalue *v = &p->values[p->heads[h]];
        dro__loss_args a = {.kind = (int)g->loss,
                            .outputs = v->extent.channels,
                            .weight = h ? g->auxiliary_weight : 1,
                            .constants = net->constants,
                            .labels = net->labels,
                            .targets = net->has_targets ? net->targets : NULL};
        memcpy(a.set, g->loss_set, sizeof a.set);
        dro__gpu_loss(net->stream, dro__call_size(net), a, v->data, h > 0, net->losses,
                      net->slopes[h]);
    }
}

void dro__gprogram_forward(dro__cuda_network *net, dro__gprogram *p)
{
    cudaStream_t s = net->stream;
    net->chained = false;
    dro__gpu_pack(s, net->packing_count, net->packings, net->packing_largest, by_bands(net));
    cudaMemsetAsync(p->sums, 0, p->sums_bytes, s);
    if (p->training)
        cudaMemcpyAsync(net->taken, net->memory.statistics,
                        net->graph->statistics_size * sizeof(float), cudaMemcpyDeviceToDevice, s);
    for (int32_t k = 0; k < p->tail_count; k++)
        if (!p->tails[k].deferred)
            dro__gpu_constants(s, p->tails[k].numbers, dro__norm_source_of(net, &p->tails[k]));
    for (int32_t i = 0; i < p->op_count; i++) {
        const dro__gop *op = &p->ops[i];
        const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
        dro__typed x = dro__typed_of(in, in->data), y = dro__typed_of(out, out->data);
        net->chained = net->chained && op->own;
        if (op->kind == DRO__RUN_NODE)
            run_node(net, p, op);
        else if (op->kind == DRO__RUN_CONVERT)
            dro__gpu_add(s, (size_t)dro__call_size(net) * in->size, x, none, y);
        else if (op->kind == DRO__RUN_FOLD)
            run_fold(net, p, op);
        else
            dro__gpu_flatten(s, dro__call_size(net), in->extent, x, y);
    }
    run_heads(net, p);
}
