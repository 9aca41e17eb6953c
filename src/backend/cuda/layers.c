/* The table of operations of this backend. Layers that are a kernel or two are in this file;
 * convolutions and norms are in forward.c and backward.c, linear layers in library.c. */
#include "net.h"

static const dro__typed none = {NULL, 0, 0};

static dro__gpu_window window_of(const dro__gop *op)
{
    const dro_window *w = &op->base.node->window;
    return (dro__gpu_window){
        {w->kernel[0], w->kernel[1]}, {w->stride[0], w->stride[1]}, {w->pad[0], w->pad[1]}};
}

dro__gcall dro__gcall_of(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op)
{
    dro__gvalue *in = &p->values[op->base.in[0].value], *out = &p->values[op->base.end];
    dro__gcall c = {.net = net, .p = p, .op = op, .in = in, .out = out, .stream = net->stream};
    c.k = (dro__layer_pass){.n = dro__call_size(net),
                            .in = in->extent,
                            .out = out->extent,
                            .x = dro__data_of(p, in),
                            .y = dro__data_of(p, out),
                            .dy = out->slope,
                            .add = in->slope,
                            .dx = dro__typed_of(in, in->grad),
                            .layer = op->base.index,
                            .keys = net->keys,
                            .chosen = out->chosen};
    if (op->base.node) {
        c.k.k = window_of(op);
        c.k.scale = net->scales[op->base.index];
        c.k.cap = op->base.node->cap;
        c.k.rate = p->base.training ? op->base.node->rate : 0;
    }
    return c;
}

/* ---- compilation ---- */

/* The value has as many channels in memory as the input. */
static dro_status affine_make(dro__gprogram *p, dro__gop *op)
{
    dro__gvalue *v = &p->values[op->base.end];
    v->stored = p->values[op->base.in[0].value].stored;
    v->size = (size_t)v->stored * (size_t)v->extent.height * (size_t)v->extent.width;
    return DRO_OK;
}

static dro_status max_pool_make(dro__gprogram *p, dro__gop *op)
{
    const int32_t *k = op->base.node->window.kernel;
    if ((int64_t)k[0] * k[1] <= UINT16_MAX)
        return DRO_OK;
    return dro__fail(p->base.ctx, DRO_ERR_UNSUPPORTED, "a max pool of %d x %d is too large",
                     (int)k[0], (int)k[1]);
}

/* ---- layers with several inputs, and operations that are not in the graph ---- */

static void convert(const dro__gcall *c)
{
    dro__gpu_add(c->stream, (size_t)c->k.n * c->in->size, c->k.x, none, c->k.y);
}

static void fold(const dro__gcall *c)
{
    const dro_window *w = &c->op->window;
    int before[2] = {(w->pad[0] + 1) / 2, (w->pad[1] + 1) / 2};
    dro__gpu_fold(c->stream, c->k.n, c->k.in, c->k.x, before, c->k.out, c->k.y);
}

static void add(const dro__gcall *c)
{
    const dro__gvalue *other = &c->p->values[c->op->base.in[1].value];
    dro__gpu_add(c->stream, (size_t)c->k.n * c->in->size, c->k.x, dro__typed_of(other, other->data),
                 c->k.y);
}

/* Backward pass of a sum or a conversion: the slope is passed on unchanged. */
static void pass_on(const dro__gcall *c)
{
    for (int k = 0; k < c->op->base.input_count; k++)
        dro__slope_pass(c, c->op->base.in[k].value, c->out->slope);
}

static void concat(const dro__gcall *c)
{
    for (int k = 0, at = 0; k < c->op->base.input_count; k++) {
        const dro__gvalue *in = &c->p->values[c->op->base.in[k].value];
        dro__layer_pass part = c->k;
        part.in = in->extent;
        part.x = dro__typed_of(in, in->data);
        if (in->whole < 0)
            dro__gpu_concat(c->stream, &part, at, false);
        at += in->extent.channels;
    }
}

static void concat_backward(const dro__gcall *c)
{
    for (int k = 0, at = 0; k < c->op->base.input_count; k++) {
        int32_t value = c->op->base.in[k].value;
        const dro__gvalue *in = &c->p->values[value];
        dro__layer_pass part = c->k;
        part.in = in->extent;
        part.add = in->slope;
        part.dx = dro__typed_of(in, in->grad);
        dro__typed slice = {(char *)c->k.dy.p + (size_t)at * (in->base.form ? 2 : 4), in->base.form,
                            c->out->extent.channels};
        if (in->whole >= 0) {
            dro__slope_pass(c, value, slice);
        } else if (in->base.wants) {
            dro__gpu_concat(c->stream, &part, at, true);
            dro__slope_written(c, value, none);
        }
        at += in->extent.channels;
    }
}

/* ---- depthwise convolutions ---- */

static dro__depthwise depthwise_of(const dro__cuda_network *net, const dro__gprogram *p,
                                   const dro__gop *op)
{
    const dro__graph_node *node = op->base.node;
    return (dro__depthwise){.parts = net->parts,
                            .in = p->values[op->base.in[0].value].extent,
                            .out = p->values[op->base.end].extent,
                            .k = window_of(op),
                            .w = dro__parameters(net, node, node->weight)};
}

static dro_status depthwise_prepare(dro__cuda_network *net, const dro__gprogram *p,
                                    const dro__gop *op)
{
    dro__depthwise d = depthwise_of(net, p, op);
    return dro__dnn_grow(net, &net->weights_workspace, &net->weights_workspace_size,
                         op->base.back ? dro__gpu_depthwise_partial(&d) * sizeof(float) : 0);
}

static void depthwise(const dro__gcall *c)
{
    dro__depthwise d = depthwise_of(c->net, c->p, c->op);
    dro__gpu_depthwise(c->stream, &d, c->k.x,
                       dro__typed_of(c->out, c->p->tails[c->out->base.tail].z));
    dro__gtail_forward(c);
}

static void depthwise_backward(const dro__gcall *c)
{
    dro__depthwise d = depthwise_of(c->net, c->p, c->op);
    const dro__graph_node *node = c->op->base.node;
    dro__typed dz = dro__typed_of(c->out, dro__slope_of_z(c));
    float *grads[DRO__PARTS];
    for (int k = 0; k < DRO__PARTS; k++)
        grads[k] = c->net->grads[k] + node->weight;
    if (!node->frozen) {
        dro__branch_off(c->net);
        dro__gpu_depthwise_weight(c->net->weights_stream, &d, c->k.x, dz, c->net->weights_workspace,
                                  grads);
    }
    if (c->in->base.wants) {
        dro__gpu_depthwise_data(c->stream, &d, dz, c->k.add, c->k.dx);
        dro__slope_written(c, c->op->base.in[0].value, none);
    }
    dro__slope_to_residual(c);
}

/* ---- the cosine classifier ---- */

static dro__cosine cosine_of(const dro__gcall *c)
{
    const dro__graph_node *node = c->op->base.node;
    return (dro__cosine){.parts = c->net->parts,
                         .n = c->k.n,
                         .in = (int)c->in->size,
                         .out = (int)c->out->size,
                         .gain = node->gain,
                         .w = dro__parameters(c->net, node, node->weight),
                         .x = c->k.x.p,
                         .dy = c->k.dy.p};
}

static void cosine(const dro__gcall *c)
{
    dro__cosine k = cosine_of(c);
    dro__gpu_cosine(c->stream, &k, c->k.y.p);
}

static void cosine_backward(const dro__gcall *c)
{
    dro__cosine k = cosine_of(c);
    const dro__graph_node *node = c->op->base.node;
    float *grads[DRO__PARTS];
    for (int i = 0; i < DRO__PARTS; i++)
        grads[i] = c->net->grads[i] + node->weight;
    if (!node->frozen)
        dro__gpu_cosine_weight(c->stream, &k, grads);
    if (!c->in->base.wants)
        return;
    dro__gpu_cosine_data(c->stream, &k, c->k.add, c->k.dx.p);
    dro__slope_written(c, c->op->base.in[0].value, none);
}

/* ---- the table ---- */

#define ANY    DRO__FORM_ANY
#define COMMON DRO__FORM_COMMON
#define FLOATS DRO__FLOATS
#define CONVS                                                                                      \
    DRO__BF16_VALUES /* what convolutions read and write; floats in a network without bfloat16 */

const dro__gpu_layer dro__gpu_layers[DRO__OP_ALL] = {
    [DRO__OP_INPUT] = {.traits = {ANY, CONVS}},
    [DRO__OP_AFFINE] = {.traits = {ANY, COMMON},
                        .make = affine_make,
                        .kernel = dro__gpu_affine,
                        .slope = dro__gpu_affine_back},
    [DRO__OP_CONV] = {.traits = {CONVS, CONVS, .tail = true},
                      .packs = true,
                      .make = dro__gconv_make,
                      .prepare = dro__dnn_prepare,
                      .forward = dro__gconv_forward,
                      .backward = dro__gconv_backward},
    [DRO__OP_DEPTHWISE] = {.traits = {CONVS, CONVS, .tail = true},
                           .prepare = depthwise_prepare,
                           .forward = depthwise,
                           .backward = depthwise_backward},
    [DRO__OP_NORM] = {.traits = {ANY, COMMON, .tail = true},
                      .forward = dro__gtail_forward,
                      .backward = dro__gnorm_backward},
    [DRO__OP_RELU] = {.traits = {ANY, COMMON},
                      .kernel = dro__gpu_relu,
                      .slope = dro__gpu_relu_back},
    [DRO__OP_MAX_POOL] = {.traits = {ANY, COMMON},
                          .strided = true,
                          .chooses = true,
                          .make = max_pool_make,
                          .kernel = dro__gpu_max_pool,
                          .slope = dro__gpu_pool_back},
    [DRO__OP_AVG_POOL] = {.traits = {ANY, COMMON},
                          .strided = true,
                          .kernel = dro__gpu_avg_pool,
                          .slope = dro__gpu_pool_back},
    [DRO__OP_GLOBAL_POOL] = {.traits = {ANY, FLOATS},
                             .kernel = dro__gpu_global_pool,
                             .slope = dro__gpu_global_pool_back},
    [DRO__OP_ADD] = {.traits = {ANY, COMMON}, .forward = add, .backward = pass_on},
    [DRO__OP_CONCAT] = {.traits = {ANY, COMMON}, .forward = concat, .backward = concat_backward},
    [DRO__OP_FLATTEN] = {.traits = {ANY, FLOATS},
                         .kernel = dro__gpu_flatten,
                         .slope = dro__gpu_flatten_back},
    [DRO__OP_LINEAR] = {.traits = {FLOATS, FLOATS},
                        .forward = dro__blas_linear_forward,
                        .backward = dro__blas_linear_backward},
    [DRO__OP_COSINE] = {.traits = {FLOATS, FLOATS}, .forward = cosine, .backward = cosine_backward},
    [DRO__OP_DROPOUT] = {.traits = {ANY, COMMON},
                         .kernel = dro__gpu_dropout,
                         .slope = dro__gpu_dropout_back},
    [DRO__OP_SHORTCUT] = {.traits = {ANY, COMMON},
                          .kernel = dro__gpu_shortcut,
                          .slope = dro__gpu_shortcut_back},
    [DRO__OP_CONVERT] = {.forward = convert, .backward = pass_on},
    [DRO__OP_FOLD] = {.forward = fold},
};
