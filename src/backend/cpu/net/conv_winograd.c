/* Convolutions of 3x3 with padding 1 and stride 1 or 2 by our own Winograd kernels (winograd.h). */
#include "conv_winograd.h"

#include "simd_kernels.h"

#include <string.h>

typedef struct convolution {
    dro__conv base;
    const dro__winograd *kernels;
    dro__winograd_shape shape;
    float *weights[2]; /* transformed: for forward, for the gradient by the input */
} convolution;

bool dro__conv_winograd_fits(const dro__conv_shape *s, int block)
{
    const dro_window *k = &s->window;
    bool three = k->kernel[0] == 3 && k->kernel[1] == 3 && k->pad[0] == 1 && k->pad[1] == 1;
    bool stride = k->stride[0] == k->stride[1] && (k->stride[0] == 1 || k->stride[0] == 2);
    return three && stride && s->groups == 1 && !s->plain && s->in % block == 0 &&
           s->out % block == 0 && dro__simd_for(block);
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
    c->kernels->prepare(&c->shape, w, back ? NULL : c->weights[0], back ? c->weights[1] : NULL);
    return true;
}

static bool forward(dro__conv *base, size_t lane, size_t count, const float *x, float *z,
                    void *scratch)
{
    convolution *c = (convolution *)base;
    (void)lane;
    c->kernels->forward(&c->shape, (int)count, x, c->weights[0], z, scratch);
    return true;
}

static bool data(dro__conv *base, size_t lane, size_t count, const float *dz, float *dx,
                 void *scratch)
{
    convolution *c = (convolution *)base;
    (void)lane;
    c->kernels->backward(&c->shape, (int)count, dz, c->weights[1], dx, scratch);
    return true;
}

static bool slope(dro__conv *base, size_t lane, size_t count, const float *x, const float *dz,
                  bool first, float *sum, float *spare, void *scratch)
{
    convolution *c = (convolution *)base;
    (void)lane;
    (void)spare;
    if (first)
        memset(sum, 0, base->slope_size * sizeof *sum);
    c->kernels->weights(&c->shape, (int)count, x, dz, sum, scratch);
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
    c->kernels = dro__simd_for(block)->winograd;
    c->shape = (dro__winograd_shape){.stride = shape->window.stride[0],
                                     .ci = shape->in,
                                     .co = shape->out,
                                     .h = shape->in_height,
                                     .w = shape->in_width};
    size_t floats = dro__winograd_prepared(&c->shape);
    c->base.cls = &class;
    c->base.shape = *shape;
    c->base.slope_size = floats;
    c->base.scratch = sizeof(float) * c->kernels->scratch(&c->shape);
    c->weights[0] = dro__alloc(floats, sizeof(float));
    c->weights[1] = shape->data ? dro__alloc(floats, sizeof(float)) : NULL;
    if (!c->weights[0] || (shape->data && !c->weights[1])) {
        destroy(&c->base);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    }
    *out = &c->base;
    return DRO_OK;
}
