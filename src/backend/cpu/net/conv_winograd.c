/* Convolutions of 3x3 with padding 1 and stride 1 or 2 by our own Winograd kernels (winograd.h). */
#include "conv_winograd.h"

#include "simd_kernels.h"

#include <string.h>

typedef struct convolution {
    dro__conv base;
    const dro__winograd *kernels;
    dro__winograd_shape shape;
} convolution;

bool dro__conv_winograd_fits(const dro__conv_shape *s, int block)
{
    const dro_window *k = &s->window;
    bool three = k->kernel[0] == 3 && k->kernel[1] == 3 && k->pad[0] == 1 && k->pad[1] == 1;
    bool stride = k->stride[0] == k->stride[1] && (k->stride[0] == 1 || k->stride[0] == 2);
    return three && stride && s->groups == 1 && !s->plain && s->in % block == 0 &&
           s->out % block == 0 && dro__simd_for(block);
}

static bool take(dro__conv *base, const float *w, bool back)
{
    convolution *c = (convolution *)base;
    c->kernels->prepare(&c->shape, w, back ? NULL : base->weights[0],
                        back ? base->weights[1] : NULL);
    return true;
}

static bool forward(dro__conv *base, const dro__conv_chunk *chunk, const float *x, float *z)
{
    convolution *c = (convolution *)base;
    c->kernels->forward(&c->shape, (int)chunk->count, x, base->weights[0], z, chunk->scratch);
    return true;
}

static bool data(dro__conv *base, const dro__conv_chunk *chunk, const float *dz, float *dx)
{
    convolution *c = (convolution *)base;
    c->kernels->backward(&c->shape, (int)chunk->count, dz, base->weights[1], dx, chunk->scratch);
    return true;
}

static bool slope(dro__conv *base, const dro__conv_chunk *chunk, const float *x, const float *dz,
                  bool first, float *sum)
{
    convolution *c = (convolution *)base;
    if (first)
        memset(sum, 0, base->slope_size * sizeof *sum);
    c->kernels->weights(&c->shape, (int)chunk->count, x, dz, sum, chunk->scratch);
    return true;
}

static bool slope_out(dro__conv *base, const float *sum, float *dw)
{
    convolution *c = (convolution *)base;
    c->kernels->finish(&c->shape, sum, dw);
    return true;
}

dro_status dro__conv_winograd(dro_context *ctx, const dro__conv_shape *shape, int block,
                              dro__conv **out)
{
    static const dro__conv_class class = {.destroy = dro__conv_free,
                                          .take = take,
                                          .forward = forward,
                                          .data = data,
                                          .slope = slope,
                                          .slope_out = slope_out};
    convolution *c = dro__alloc(1, sizeof *c);
    if (!c)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    c->kernels = dro__simd_for(block)->winograd;
    c->shape = (dro__winograd_shape){.stride = shape->window.stride[0],
                                     .ci = shape->in,
                                     .co = shape->out,
                                     .h = shape->in_height,
                                     .w = shape->in_width};
    c->base.cls = &class;
    c->base.shape = *shape;
    c->base.scratch = sizeof(float) * c->kernels->scratch(&c->shape);
    *out = &c->base;
    return dro__conv_weights(ctx, *out, dro__winograd_prepared(&c->shape));
}
