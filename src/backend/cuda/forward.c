/* The forward pass: queues every operation of a program. */
#include "net.h"

#include <string.h>

static const dro__typed none = {NULL, 0, 0};

dro__norm_source dro__norm_source_of(const dro__cuda_network *net, const dro__gtail *tail)
{
    const dro__graph_node *norm = tail->base.norm, *conv = tail->base.conv;
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

/* Two or three networks get half of the GPU each, four or more a quarter: fewer blocks, each with
 * more work, slow a network down less than waiting for the others would. */
int dro__share_of(const dro__cuda_network *net)
{
    int alive = dro__networks_alive();
    return net->graph->deterministic || alive < 2 ? 1 : alive < MANY ? 2 : MANY;
}

/* Whether a call's bfloat16 convolutions use the kernels by bands where both kinds support the
 * shape. With eight networks the kernels by bands are an eighth faster; with a single network those
 * by rows are faster. The two need the weights in different orders. The share is fixed during a
 * call, from packing the weights to the last gradient, so a call reads the weights in the order in
 * which it has packed them. */
static bool by_bands(const dro__cuda_network *net)
{
    return net->share >= MANY;
}

dro__conv3 dro__conv3_of(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->base.in[0].value], *out = &p->values[op->base.end];
    const dro__gtail *tail = &p->tails[out->base.tail];
    dro__conv3 c = {.parts = net->parts,
                    .bf16 = net->bf16,
                    .share = net->share,
                    .bands = op->bands && by_bands(net),
                    .in = in->stored,
                    .real_in = in->extent.channels,
                    .out = out->extent.channels,
                    .stride = op->base.node->window.stride[0],
                    .height = in->extent.height,
                    .width = in->extent.width,
                    .out_height = out->extent.height,
                    .out_width = out->extent.width,
                    .weights = net->packed[op->base.index],
                    .x = in->data,
                    .lazy = in->lazy,
                    .z = tail->z,
                    .sums = tail->base.deferred ? tail->numbers.sums : NULL,
                    .norm = tail->base.norm != NULL,
                    .numbers = tail->numbers};
    if (in->base.tail >= 0) {
        const dro__gtail *before = &p->tails[in->base.tail];
        c.x_numbers = before->numbers;
        c.x_relu = before->base.cap > 0;
        c.x_z = before->base.deferred ? before->z : NULL;
        if (in->lazy)
            c.x = before->z;
    }
    return c;
}

/* In the forward pass the reader of a lazy value, or the reader that also stores a value, computes
 * its tail. */
static void read_first(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                       dro__conv3 *c)
{
    const dro__gvalue *in = &p->values[op->base.in[0].value];
    bool fills = in->filler >= 0 && &p->ops[in->filler] == op;
    if (!in->lazy && !fills)
        return;
    const dro__gtail *before = &p->tails[in->base.tail];
    c->x = before->z;
    c->lazy = c->x_finish = 1;
    c->x_source = dro__norm_source_of(net, before);
    c->x_fill = fills ? in->data : NULL;
    c->x_residual = before->base.residual < 0 ? NULL : p->values[before->base.residual].data;
}

/* Computes the moments, the numbers and the value of a tail. */
void dro__gtail_forward(const dro__gcall *c)
{
    dro__cuda_network *net = c->net;
    const dro__gvalue *v = c->out;
    const dro__gtail *tail = &c->p->tails[v->base.tail];
    dro__typed z = tail->base.source < 0 ? dro__typed_of(v, tail->z) : c->k.x, residual = none;
    if (tail->base.deferred) {
        bool later = v->lazy || v->filler >= 0; /* a reader computes the numbers */
        bool synced = dro__net_synced(&net->memory);
        dro__norm_source from = dro__norm_source_of(net, tail);
        if (!c->op->own)
            dro__gpu_moments(c->stream, net->parts, v->extent, z, tail->numbers,
                             later || synced ? NULL : &from);
        if (synced)
            dro__norm_sync_forward(net, tail);
        if (later)
            return;
        net->chained = false;
        if (c->op->own || synced)
            dro__gpu_finish_forward(c->stream, net->parts, v->extent.height * v->extent.width,
                                    tail->numbers, from);
    }
    if (!tail->base.norm && tail->base.cap == 0 && tail->base.residual < 0 &&
        !tail->base.conv->has_bias)
        return;
    net->chained = false;
    if (tail->base.residual >= 0)
        residual = dro__data_of(c->p, &c->p->values[tail->base.residual]);
    dro__gpu_apply(c->stream, net->parts, v->extent, z, tail->numbers, residual, tail->base.cap,
                   c->k.y);
}

void dro__gconv_forward(const dro__gcall *c)
{
    if (c->op->own) {
        dro__conv3 conv = dro__conv3_of(c->net, c->p, c->op);
        read_first(c->net, c->p, c->op, &conv);
        conv.early = c->net->chained;
        dro__gpu_conv3_forward(c->stream, &conv);
        c->net->chained = true;
    } else {
        dro__dnn_forward(c->net, c->op, c->in->data, c->p->tails[c->out->base.tail].z);
    }
    dro__gtail_forward(c);
}

static void run_heads(dro__cuda_network *net, const dro__gprogram *p)
{
    const dro__graph *g = net->graph;
    for (int h = 0; h < DRO__HEADS; h++) {
        if (p->base.heads[h] < 0)
            continue;
        const dro__gvalue *v = &p->values[p->base.heads[h]];
        dro__loss_args a = {.kind = (int)g->loss,
                            .outputs = v->extent.channels,
                            .weight = h ? g->auxiliary_weight : 1,
                            .constants = net->constants,
                            .labels = net->labels,
                            .targets = net->has_targets ? net->targets : NULL,
                            .mixes = net->has_mixes ? net->mixes : NULL};
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
    if (p->base.training)
        cudaMemcpyAsync(net->taken, net->memory.statistics,
                        net->graph->statistics_size * sizeof(float), cudaMemcpyDeviceToDevice, s);
    for (int32_t k = 0; k < p->base.tail_count; k++)
        if (!p->tails[k].base.deferred)
            dro__gpu_constants(s, p->tails[k].numbers, dro__norm_source_of(net, &p->tails[k]));
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__gpu_layer *layer = &dro__gpu_layers[p->ops[i].base.op];
        dro__gcall c = dro__gcall_of(net, p, &p->ops[i]);
        net->chained = net->chained && p->ops[i].own;
        if (layer->forward)
            layer->forward(&c);
        else
            layer->kernel(s, &c.k);
    }
    run_heads(net, p);
}
