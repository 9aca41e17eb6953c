/* Convolutions of 3x3 with padding 1 and stride 1 or 2 by our own Winograd kernels (winograd.h), for machines
 * with AVX-512. */
#include "conv_winograd.h"

#include "onednn.h"
#include "winograd.h"

#include <string.h>

typedef struct convolution {
    dro__conv base;
    dro_context *ctx;
    int stride;
    float *weights[2]; /* transformed: for forward, for the gradient by the input */
} convolution;

bool dro__conv_winograd_fits(const dro__conv_shape *s)
{
    const dro_window *k = &s->window;
    bool three = k->kernel[0] == 3 && k->kernel[1] == 3 && k->pad[0] == 1 && k->pad[1] == 1;
    bool stride = k->stride[0] == k->stride[1] && (k->stride[0] == 1 || k->stride[0] == 2);
    bool blocked = dro__onednn_block() == 16 && !s->plain;
    return three && stride && blocked && s->in % 16 == 0 && s->out % 16 == 0 &&
           dro__winograd_works();
}

static void destroy(dro__conv *base)
{
    convolution *c = (convolution *)base;
    dro__free(c->weights[0]);
    dro__free(c->weights[1]);
    dro__free(c);
}

static dro_status ready(dro__conv *base, size_t count)
{
    (void)base; /* chunks of any size */
    (void)count;
    return DRO_OK;
}

static bool take(dro__conv *base, const float *w, bool back)
{
    convolution *c = (convolution *)base;
    const dro__conv_shape *s = &base->shape;
    float *forward = back ? NULL : c->weights[0], *backward = back ? c->weights[1] : NULL;
    if (c->stride == 1)
        dro__winograd_prepare(s->in, s->out, w, forward, backward);
    else
        dro__winograd2_prepare(s->in, s->out, w, forward, backward);
    return true;
}

static bool forward(dro__conv *base, size_t lane, size_t count, const float *x, float *z,
                    void *scratch)
{
    convolution *c = (convolution *)base;
    const dro__conv_shape *s = &base->shape;
    (void)lane;
    if (c->stride == 1)
        dro__winograd_forward((int)count, s->in, s->out, s->in_height, s->in_width, x,
                              c->weights[0], z, scratch);
    else
        dro__winograd2_forward((int)count, s->in, s->out, s->in_height, s->in_width, x,
                               c->weights[0], z, scratch);
    return true;
}

static bool data(dro__conv *base, size_t lane, size_t count, const float *dz, float *dx,
                 void *scratch)
{
    convolution *c = (convolution *)base;
    const dro__conv_shape *s = &base->shape;
    (void)lane;
    if (c->stride == 1) /* the gradient is itself such a convolution, from outputs to inputs */
        dro__winograd_forward((int)count, s->out, s->in, s->in_height, s->in_width, dz,
                              c->weights[1], dx, scratch);
    else
        dro__winograd2_backward((int)count, s->in, s->out, s->in_height, s->in_width, dz,
                                c->weights[1], dx, scratch);
    return true;
}

static bool slope(dro__conv *base, size_t lane, size_t count, const float *x, const float *dz,
                  bool first, float *sum, float *spare, void *scratch)
{
    convolution *c = (convolution *)base;
    const dro__conv_shape *s = &base->shape;
    (void)lane;
    (void)spare;
    if (first)
        memset(sum, 0, base->slope_size * sizeof *sum);
    if (c->stride == 1)
        dro__winograd_weights((int)count, s->in, s->out, s->in_height, s->in_width, x, dz, sum,
                              scratch);
    else
        dro__winograd2_weights((int)count, s->in, s->out, s->in_height, s->in_width, x, dz, sum,
                               scratch);
    return true;
}

static bool slope_out(dro__conv *base, const float *sum, float *dw)
{
    convolution *c = (convolution *)base;
    if (c->stride == 1)
        dro__winograd_weights_finish(base->shape.in, base->shape.out, sum, dw);
    else
        dro__winograd2_weights_finish(base->shape.in, base->shape.out, sum, dw);
    return true;
}

dro_status dro__conv_winograd(dro_context *ctx, const dro__conv_shape *shape, dro__conv **out)
{
    static const dro__conv_class class = {.destroy = destroy,
                                          .ready = ready,
                                          .take = take,
                                          .forward = forward,
                                          .data = data,
                                          .slope = slope,
                                          .slope_out = slope_out};
    convolution *c = dro__alloc(1, sizeof *c);
    if (!c)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    int in = shape->in, both = shape->out;
    size_t floats = dro__winograd_prepared(in, both);
    c->base.cls = &class;
    c->base.shape = *shape;
    c->base.slope_size = floats;
    c->stride = shape->window.stride[0];
    c->base.scratch =
        sizeof(float) * (c->stride == 1
                             ? dro__winograd_scratch(in, both, shape->in_height, shape->in_width)
                             : dro__winograd2_scratch(in, both, shape->in_height, shape->in_width));
    c->weights[0] = dro__alloc(floats, sizeof(float));
    c->weights[1] = shape->data ? dro__alloc(floats, sizeof(float)) : NULL;
    if (!c->weights[0] || (shape->data && !c->weights[1])) {
        destroy(&c->base);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    }
    *out = &c->base;
    return DRO_OK;
}
