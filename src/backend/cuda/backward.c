/* The backward pass: the operations in reverse order. A value's slope is accumulated in
 * value->slope, which may be another value's memory as long as nothing has been added to it. Once
 * the last writer has written, the slope is closed. */
#include "net.h"

static const dro__typed none = {NULL, 0, 0};

static dro__norm_grads grads_of(const dro__cuda_network *net, const dro__gtail *tail)
{
    dro__norm_grads g = {{0}, {0}, {0}};
    const dro__graph_node *norm = tail->base.norm, *conv = tail->base.conv;
    for (int k = 0; k < net->parts.count; k++) {
        if (norm && !norm->frozen) {
            g.gamma[k] = net->grads[k] + norm->weight;
            g.beta[k] = net->grads[k] + norm->bias;
        }
        if (conv && conv->has_bias && !conv->frozen)
            g.bias[k] = net->grads[k] + conv->bias;
    }
    return g;
}

/* Whether the backward kernel that reads the slope also computes the tail's numbers: one of our own
 * convolutions does if it computes weight gradients. */
static bool finishes_itself(const dro__gprogram *p, const dro__gop *op)
{
    const dro__gtail *tail = &p->tails[p->values[op->base.end].base.tail];
    return op->own && tail->base.deferred && !op->base.node->frozen;
}

/* Whether a value's slope must be closed after the last write. */
static bool to_close(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = v->base.tail < 0 ? NULL : &p->tails[v->base.tail];
    return tail && (tail->base.cap > 0 || tail->base.norm ||
                    (tail->base.conv && tail->base.conv->has_bias && !tail->base.conv->frozen));
}

/* The ReLU's cap if its mask is recomputed from z where the slope is read, else 0. */
static float masks_later(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = &p->tails[v->base.tail];
    bool later = tail->base.deferred && tail->base.residual < 0 && !p->ops[v->base.maker].own;
    return later ? tail->base.cap : 0;
}

static dro__typed z_of(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = &p->tails[v->base.tail];
    if (!tail->base.deferred)
        return none;
    return tail->base.source < 0 ? dro__typed_of(v, tail->z)
                                 : dro__data_of(p, &p->values[tail->base.source]);
}

/* Computes the numbers once the sums are there; with synchronised batch norm, over all ranks. */
static void finish_all(dro__cuda_network *net, const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = &p->tails[v->base.tail];
    if (dro__net_synced(&net->memory))
        dro__norm_sync_backward(net, tail);
    if (finishes_itself(p, &p->ops[v->base.maker]))
        return;
    net->chained = false;
    dro__gpu_finish_backward(net->stream, net->parts, v->extent.height * v->extent.width,
                             tail->base.deferred, tail->numbers, grads_of(net, tail));
}

/* Called after each write of a value's slope; closes it after the last one. `more` is still to be
 * added to it. */
static void wrote(const dro__gcall *call, dro__gvalue *v, dro__typed more)
{
    dro__cuda_network *net = call->net;
    const dro__gprogram *p = call->p;
    if (--v->left > 0 || !to_close(p, v))
        return;
    const dro__gtail *tail = &p->tails[v->base.tail];
    bool later = masks_later(p, v) > 0, by_z = tail->base.deferred && tail->base.residual < 0;
    bool synced = tail->base.deferred && dro__net_synced(&net->memory);
    dro__closing c = {.slope = v->slope,
                      .more = more,
                      .y = tail->base.cap > 0 && !by_z ? dro__data_of(p, v) : none,
                      .z = z_of(p, v),
                      .cap = tail->base.cap,
                      .finish = !synced && !finishes_itself(p, &p->ops[v->base.maker]),
                      .batch = tail->base.deferred,
                      .grads = grads_of(net, tail)};
    if (more.p || (tail->base.cap > 0 && !later))
        c.g = dro__typed_of(v, v->grad);
    net->chained = false;
    dro__gpu_close(net->stream, net->parts, v->extent, &c, tail->numbers);
    if (c.g.p)
        v->slope = c.g;
    if (synced)
        finish_all(net, p, v);
}

/* Where an operation writes a slope. It adds v->slope, which was accumulated before. */
static dro__typed target(const dro__gvalue *v)
{
    return dro__typed_of(v, v->grad);
}

static void written(const dro__gcall *c, dro__gvalue *v)
{
    v->slope = target(v);
    wrote(c, v, none);
}

void dro__slope_written(const dro__gcall *c, int32_t value, dro__typed more)
{
    dro__gvalue *v = &c->p->values[value];
    v->slope = target(v);
    if (more.p && !(v->left == 1 && to_close(c->p, v))) {
        dro__gpu_add(c->stream, (size_t)c->k.n * v->size, v->slope, more, v->slope);
        more = none;
    }
    wrote(c, v, more);
}

void dro__slope_pass(const dro__gcall *c, int32_t value, dro__typed slope)
{
    dro__gvalue *v = &c->p->values[value];
    if (!v->base.wants)
        return;
    if (!v->slope.p && slope.bf16 == v->base.form) {
        v->slope = slope;
        wrote(c, v, none);
        return;
    }
    c->net->chained = false;
    dro__gpu_add(c->stream, (size_t)c->k.n * v->size, slope, v->slope, target(v));
    written(c, v);
}

/* ---- convolutions ---- */

/* Work queued on net->weights_stream from now on runs after all work already queued on
 * net->stream. */
void dro__branch_off(dro__cuda_network *net)
{
    net->forked = true;
    cudaEventRecord(net->fork, net->stream);
    cudaStreamWaitEvent(net->weights_stream, net->fork, 0);
}

/* Both gradients in one kernel; the sums over blocks are queued on weights_stream. The blocks'
 * partial sums of DRO__CONV3_TURNS (four) successive convolutions have separate places. Every third
 * convolution waits for all sums except that of the previous convolution. */
static void back_at_once(dro__cuda_network *net, dro__conv3 *c)
{
    enum { WAIT = DRO__CONV3_TURNS - 1 };
    int n = net->turns;
    c->early = net->chained;
    if (c->partial) {
        if (n && n % WAIT == 0) {
            cudaStreamWaitEvent(net->stream, net->join, 0);
            c->early = 0;
        }
        c->turn = n % DRO__CONV3_TURNS;
        net->turns++;
    }
    dro__gpu_conv3_back(net->stream, c);
    net->chained = true;
    if (!c->partial)
        return;
    if (n % WAIT == WAIT - 1)
        cudaEventRecord(net->join, net->weights_stream);
    dro__branch_off(net);
    dro__gpu_conv3_sum(net->weights_stream, c);
}

static void back_own(const dro__gcall *call)
{
    dro__cuda_network *net = call->net;
    const dro__gprogram *p = call->p;
    const dro__gop *op = call->op;
    dro__gvalue *in = call->in;
    const dro__gtail *tail = in->base.tail < 0 ? NULL : &p->tails[in->base.tail];
    dro__conv3 c = dro__conv3_of(net, p, op);
    c.g = call->k.dy.p;
    c.finish = finishes_itself(p, op);
    c.norm_grads = grads_of(net, &p->tails[call->out->base.tail]);
    if (!op->base.node->frozen) {
        for (int k = 0; k < net->parts.count; k++)
            c.grads[k] = net->grads[k] + op->base.node->weight;
        c.partial = net->partial;
    }
    if (in->base.wants) {
        c.add = in->slope.p;
        c.dx = in->grad;
        c.close = in->left == 1 && tail && tail->base.deferred && tail->base.conv &&
                  dro__conv3_knows(tail);
    }
    back_at_once(net, &c);
    if (!in->base.wants)
        return;
    if (!c.close) {
        written(call, in);
        return;
    }
    in->left = 0;
    in->slope = target(in);
    finish_all(net, p, in);
}

/* dz of a convolution, in memory that nothing overwrites later in this pass. */
void *dro__slope_of_z(const dro__gcall *c)
{
    const dro__gvalue *out = c->out;
    const dro__gtail *tail = &c->p->tails[out->base.tail];
    bool as_it_is =
        !tail->base.norm && c->k.dy.bf16 == out->base.form && c->k.dy.stride == out->stored;
    if (as_it_is)
        return c->k.dy.p;
    dro__typed dz = dro__typed_of(out, tail->base.residual < 0 ? out->grad : tail->dz);
    dro__gpu_slope(c->stream, c->net->parts, out->extent, c->k.dy, z_of(c->p, out),
                   masks_later(c->p, out), tail->numbers, none, dz);
    return dz.p;
}

static void back_dnn(const dro__gcall *c)
{
    dro__gvalue *in = c->in;
    const void *dz = dro__slope_of_z(c);
    if (!c->op->base.node->frozen) {
        dro__branch_off(c->net);
        dro__dnn_weight(c->net, c->p, c->op, c->net->weights_stream, in->data, dz);
    }
    if (!in->base.wants)
        return;
    bool here = c->k.add.p && c->k.add.p == in->grad, add = here && dro__dnn_adds(c->net, c->op);
    void *dx = here && !add ? c->net->scratch : in->grad;
    dro__dnn_data(c->net, c->op, dz, dx, add);
    dro__slope_written(c, c->op->base.in[0].value,
                       here ? dro__typed_of(in, add ? NULL : dx) : c->k.add);
}

void dro__slope_to_residual(const dro__gcall *c)
{
    if (c->op->base.residual.value >= 0)
        dro__slope_pass(c, c->op->base.residual.value, c->out->slope);
}

void dro__gconv_backward(const dro__gcall *c)
{
    if (c->op->own)
        back_own(c);
    else
        back_dnn(c);
    dro__slope_to_residual(c);
}

void dro__gnorm_backward(const dro__gcall *c)
{
    if (c->in->base.wants) {
        dro__gpu_slope(c->stream, c->net->parts, c->out->extent, c->k.dy, z_of(c->p, c->out),
                       masks_later(c->p, c->out), c->p->tails[c->out->base.tail].numbers, c->k.add,
                       c->k.dx);
        written(c, c->in);
    }
    dro__slope_to_residual(c);
}

/* ---- the whole pass ---- */

static void back_op(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gpu_layer *layer = &dro__gpu_layers[op->base.op];
    dro__gcall c = dro__gcall_of(net, p, op);
    net->chained = net->chained && op->own;
    if (layer->backward) {
        layer->backward(&c);
    } else if (c.in->base.wants) {
        layer->slope(c.stream, &c.k);
        written(&c, c.in);
    }
}

void dro__gprogram_backward(dro__cuda_network *net, dro__gprogram *p)
{
    net->turns = net->written = net->unpacked = 0;
    net->forked = false;
    net->chained = false;
    cudaMemsetAsync(p->back, 0, p->sums_bytes, net->stream);
    for (int32_t i = 0; i < p->base.value_count; i++) {
        p->values[i].slope = none;
        p->values[i].left = p->values[i].base.writers;
    }
    for (int h = 0; h < DRO__HEADS; h++) {
        dro__gvalue *v = p->base.heads[h] < 0 ? NULL : &p->values[p->base.heads[h]];
        if (!v || !v->base.wants)
            continue;
        dro__gpu_loss_back(net->stream, dro__call_size(net), v->extent.channels, net->coef,
                           net->slopes[h], v->slope, target(v));
        dro__gcall c = {.net = net, .p = p, .stream = net->stream, .k = {.n = dro__call_size(net)}};
        written(&c, v);
    }
    for (int32_t i = p->base.operation_count - 1; i >= 0; i--)
        if (p->ops[i].base.back)
            back_op(net, p, &p->ops[i]);
    if (net->written > net->unpacked)
        dro__dnn_unpack(net, net->weights_stream);
    if (net->forked) {
        cudaEventRecord(net->join, net->weights_stream);
        cudaStreamWaitEvent(net->stream, net->join, 0);
    }
}
