/* The backward pass: the operations in the reverse order. A value's slope comes together in value->slope, which
 * may be another value's memory as long as nothing was added to it; when the last writer has written, it is
 * closed. */
#include "net.h"

static const dro__typed none = {NULL, 0, 0};

static dro__norm_grads grads_of(const dro__cuda_network *net, const dro__gtail *tail)
{
    dro__norm_grads g = {{0}, {0}, {0}};
    const dro__node *norm = tail->norm, *conv = tail->conv;
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

/* Whether a tail's numbers are made by those who read the slope: the weight gradient of one of our own
 * convolutions keeps them. */
static bool finishes_itself(const dro__gprogram *p, const dro__gop *op)
{
    const dro__gtail *tail = &p->tails[p->values[op->end].tail];
    return op->own && tail->deferred && !op->node->frozen;
}

/* Whether closing a value's slope is left to do when all has come together. */
static bool to_close(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = v->tail < 0 ? NULL : &p->tails[v->tail];
    return tail && (tail->relu || tail->norm ||
                    (tail->conv && tail->conv->has_bias && !tail->conv->frozen));
}

/* Whether the ReLU's mask is found again from z where the slope is read. */
static bool masks_later(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = &p->tails[v->tail];
    return tail->relu && tail->deferred && tail->residual < 0 && !p->ops[v->op].own;
}

static dro__typed z_of(const dro__gprogram *p, const dro__gvalue *v)
{
    const dro__gtail *tail = &p->tails[v->tail];
    if (!tail->deferred)
        return none;
    return tail->source < 0 ? dro__typed_of(v, tail->z) : dro__data_of(p, &p->values[tail->source]);
}

/* Somebody has written a value's slope; the last one closes it. `more` belongs to it too. */
static void wrote(dro__cuda_network *net, dro__gprogram *p, int32_t value, dro__typed more)
{
    dro__gvalue *v = &p->values[value];
    if (--v->left > 0 || !to_close(p, v))
        return;
    const dro__gtail *tail = &p->tails[v->tail];
    bool later = masks_later(p, v), by_z = tail->deferred && tail->residual < 0;
    dro__closing c = {.slope = v->slope,
                      .more = more,
                      .y = tail->relu && !by_z ? dro__data_of(p, v) : none,
                      .z = z_of(p, v),
                      .relu = tail->relu,
                      .finish = !finishes_itself(p, &p->ops[v->op]),
                      .batch = tail->deferred,
                      .grads = grads_of(net, tail)};
    if (more.p || (tail->relu && !later))
        c.g = dro__typed_of(v, v->grad);
    net->chained = false;
    dro__gpu_close(net->stream, net->parts, v->extent, &c, tail->numbers);
    if (c.g.p)
        v->slope = c.g;
}

/* Where an operation writes a slope; what has come so far is v->slope, which it adds. */
static dro__typed target(const dro__gvalue *v)
{
    return dro__typed_of(v, v->grad);
}

static void written(dro__cuda_network *net, dro__gprogram *p, int32_t value)
{
    p->values[value].slope = target(&p->values[value]);
    wrote(net, p, value, none);
}

/* The slope is in its place, but `more`, which may be none, is still to be added. */
static void written_but(dro__cuda_network *net, dro__gprogram *p, int32_t value, dro__typed more)
{
    dro__gvalue *v = &p->values[value];
    v->slope = target(v);
    if (more.p && !(v->left == 1 && to_close(p, v))) {
        dro__gpu_add(net->stream, (size_t)dro__call_size(net) * v->size, v->slope, more, v->slope);
        more = none;
    }
    wrote(net, p, value, more);
}

/* A slope that is passed on as it is. */
static void pass(dro__cuda_network *net, dro__gprogram *p, int32_t value, dro__typed slope)
{
    dro__gvalue *v = &p->values[value];
    if (!v->wants)
        return;
    if (!v->slope.p && slope.bf16 == (int)v->bf16) {
        v->slope = slope;
        wrote(net, p, value, none);
        return;
    }
    net->chained = false;
    dro__gpu_add(net->stream, (size_t)dro__call_size(net) * v->size, slope, v->slope, target(v));
    written(net, p, value);
}

/* ---- convolutions ---- */

/* What is queued on net->beside next comes behind all that was queued on net->stream. */
static void branch_off(dro__cuda_network *net)
{
    net->forked = true;
    cudaEventRecord(net->fork, net->stream);
    cudaStreamWaitEvent(net->beside, net->fork, 0);
}

/* Both gradients at once; the sum over blocks beside the rest. Four convolutions in a row have places of their own
 * for what they leave to be summed, and every third waits for the sums of all but the last two before it. */
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
        cudaEventRecord(net->join, net->beside);
    branch_off(net);
    dro__gpu_conv3_sum(net->beside, c);
}

static void back_own(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    const dro__gtail *tail = in->tail < 0 ? NULL : &p->tails[in->tail];
    dro__conv3 c = dro__conv3_of(net, p, op);
    c.g = out->slope.p;
    c.finish = finishes_itself(p, op);
    c.norm_grads = grads_of(net, &p->tails[out->tail]);
    if (!op->node->frozen) {
        for (int k = 0; k < net->parts.count; k++)
            c.grads[k] = net->grads[k] + op->node->weight;
        c.partial = net->partial;
    }
    if (in->wants) {
        c.add = in->slope.p;
        c.dx = in->grad;
        c.close = in->left == 1 && tail && tail->deferred && tail->conv;
    }
    back_at_once(net, &c);
    if (!in->wants)
        return;
    if (!c.close) {
        written(net, p, op->in[0]);
        return;
    }
    in->left = 0;
    in->slope = target(in);
    if (finishes_itself(p, &p->ops[in->op]))
        return;
    net->chained = false;
    dro__gpu_finish_backward(net->stream, net->parts, in->extent.height * in->extent.width,
                             tail->deferred, tail->numbers, grads_of(net, tail));
}

/* dz, in memory that nobody else uses in this pass. */
static void *slope_of_z(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *out = &p->values[op->end];
    const dro__gtail *tail = &p->tails[out->tail];
    bool as_it_is =
        !tail->norm && out->slope.bf16 == (int)out->bf16 && out->slope.stride == out->stored;
    if (as_it_is)
        return out->slope.p;
    dro__typed dz = dro__typed_of(out, tail->residual < 0 ? out->grad : tail->dz);
    dro__gpu_slope(net->stream, net->parts, out->extent, out->slope, z_of(p, out),
                   masks_later(p, out), tail->numbers, none, dz);
    return dz.p;
}

static void back_dnn(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *in = &p->values[op->in[0]];
    const void *dz = slope_of_z(net, p, op);
    if (!op->node->frozen) {
        branch_off(net);
        dro__dnn_weight(net, p, op, net->beside, in->data, dz);
    }
    if (!in->wants)
        return;
    bool here = in->slope.p && in->slope.p == in->grad, add = here && dro__dnn_adds(net, op);
    void *dx = here && !add ? net->scratch : in->grad;
    dro__dnn_data(net, op, dz, dx, add);
    dro__typed more = here ? dro__typed_of(in, add ? NULL : dx) : in->slope;
    written_but(net, p, op->in[0], more);
}

static void back_conv(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *out = &p->values[op->end];
    const dro__gtail *tail = &p->tails[out->tail];
    if (op->own)
        back_own(net, p, op);
    else
        back_dnn(net, p, op);
    if (tail->residual >= 0)
        pass(net, p, tail->residual, out->slope);
}

static void back_norm(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    const dro__gtail *tail = &p->tails[out->tail];
    if (in->wants) {
        dro__gpu_slope(net->stream, net->parts, out->extent, out->slope, z_of(p, out),
                       masks_later(p, out), tail->numbers, in->slope, target(in));
        written(net, p, op->in[0]);
    }
    if (tail->residual >= 0)
        pass(net, p, tail->residual, out->slope);
}

/* ---- the others ---- */

static void back_concat(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *out = &p->values[op->end];
    for (int k = 0, at = 0; k < op->input_count; k++) {
        dro__gvalue *in = &p->values[op->in[k]];
        dro__typed slice = {(char *)out->slope.p + (size_t)at * (in->bf16 ? 2 : 4), in->bf16,
                            out->extent.channels};
        if (in->whole >= 0) {
            pass(net, p, op->in[k], slice);
        } else if (in->wants) {
            dro__gpu_concat_back(net->stream, dro__call_size(net), in->extent, out->extent.channels,
                                 at, out->slope, in->slope, target(in));
            written(net, p, op->in[k]);
        }
        at += in->extent.channels;
    }
}

static void back_linear(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    bool other = in->slope.p && in->slope.p != in->grad;
    dro__blas_linear_back(net, p, op, out->slope.p, in->wants ? in->grad : NULL);
    if (in->wants)
        written_but(net, p, op->in[0], other ? in->slope : none);
}

/* Layers of one input whose backward pass is one kernel. */
static void back_simple(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__node *node = op->node;
    dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    dro__typed x = dro__typed_of(in, in->data), dy = out->slope, add = in->slope, dx = target(in);
    cudaStream_t s = net->stream;
    int n = dro__call_size(net);
    const dro_window *w = &node->window;
    dro__gpu_window k = {
        {w->kernel[0], w->kernel[1]}, {w->stride[0], w->stride[1]}, {w->pad[0], w->pad[1]}};
    if (node->op == DRO__OP_MAX_POOL || node->op == DRO__OP_AVG_POOL)
        dro__gpu_pool_back(s, n, in->extent, out->extent, k, out->chosen, dy, add, dx);
    else if (node->op == DRO__OP_GLOBAL_POOL)
        dro__gpu_global_pool_back(s, n, in->extent, dy, add, dx);
    else if (node->op == DRO__OP_SHORTCUT)
        dro__gpu_shortcut_back(s, n, in->extent, out->extent, node->window.stride[0], dy, add, dx);
    else if (node->op == DRO__OP_AFFINE)
        dro__gpu_affine(s, n, in->extent, net->scales[op->index], NULL, dy, add, dx);
    else if (node->op == DRO__OP_RELU)
        dro__gpu_relu_back(s, (size_t)n * in->size, x, dy, add, dx);
    else if (node->op == DRO__OP_DROPOUT)
        dro__gpu_dropout(s, n, in->extent, node->rate, op->index, net->keys, dy, add, dx);
    else
        dro__gpu_flatten_back(s, n, in->extent, dy, add, dx);
    written(net, p, op->in[0]);
}

static void back_op(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *in = &p->values[op->in[0]], *out = &p->values[op->end];
    net->chained = net->chained && op->own;
    if (op->kind == DRO__RUN_CONVERT) {
        pass(net, p, op->in[0], out->slope);
        return;
    }
    if (op->kind == DRO__RUN_FLATTEN) {
        dro__gpu_flatten_back(net->stream, dro__call_size(net), in->extent, out->slope, in->slope,
                              target(in));
        written(net, p, op->in[0]);
        return;
    }
    switch (op->node->op) {
    case DRO__OP_CONV:
        back_conv(net, p, op);
        return;
    case DRO__OP_NORM:
        back_norm(net, p, op);
        return;
    case DRO__OP_LINEAR:
        back_linear(net, p, op);
        return;
    case DRO__OP_CONCAT:
        back_concat(net, p, op);
        return;
    case DRO__OP_ADD:
        for (int k = 0; k < 2; k++)
            pass(net, p, op->in[k], out->slope);
        return;
    default:
        if (in->wants)
            back_simple(net, p, op);
        return;
    }
}

void dro__gprogram_backward(dro__cuda_network *net, dro__gprogram *p)
{
    net->turns = net->written = net->unpacked = 0;
    net->forked = false;
    net->chained = false;
    cudaMemsetAsync(p->back, 0, p->sums_bytes, net->stream);
    for (int32_t i = 0; i < p->value_count; i++) {
        p->values[i].slope = none;
        p->values[i].left = p->values[i].writers;
    }
    for (int h = 0; h < DRO__HEADS; h++) {
        dro__gvalue *v = p->heads[h] < 0 ? NULL : &p->values[p->heads[h]];
        if (!v || !v->wants)
            continue;
        dro__gpu_loss_back(net->stream, dro__call_size(net), v->extent.channels, net->coef,
                           net->slopes[h], v->slope, target(v));
        written(net, p, p->heads[h]);
    }
    for (int32_t i = p->op_count - 1; i >= 0; i--)
        if (p->ops[i].back) {
            net->chained = net->chained && p->ops[i].own;
            back_op(net, p, &p->ops[i]);
        }
    if (net->written > net->unpacked)
        dro__dnn_hand_on(net, net->beside);
    if (net->forked) {
        cudaEventRecord(net->join, net->beside);
        cudaStreamWaitEvent(net->stream, net->join, 0);
    }
}
