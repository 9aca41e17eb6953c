/* Any convolution, by our own kernels (direct.h); and which set of kernels a machine uses. */
#include "conv_direct.h"

#include "isa.h"

#include <string.h>

const dro__simd *dro__simd_best(void)
{
#if defined(__x86_64__)
    if (dro__cpu_isa() >= DRO__ISA_AVX512)
        return &dro__avx512_simd;
    if (dro__cpu_isa() >= DRO__ISA_AVX2)
        return &dro__avx2_simd;
#endif
    return &dro__base_simd;
}

const dro__simd *dro__simd_for(int block)
{
    const dro__simd *best = dro__simd_best();
#if defined(__x86_64__)
    if (best->block != block && dro__cpu_isa() >= DRO__ISA_AVX2)
        best = &dro__avx2_simd;
#endif
    return best->block == block ? best : NULL;
}

typedef struct convolution {
    dro__conv base;
    const dro__direct *kernels;
    float *weights[2]; /* for forward, for the gradient by the input */
} convolution;

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
    c->kernels->prepare(&base->shape, w, back, c->weights[back]);
    return true;
}

static bool forward(dro__conv *base, size_t lane, size_t count, const float *x, float *z,
                    void *scratch)
{
    convolution *c = (convolution *)base;
    (void)lane;
    c->kernels->forward(&base->shape, count, x, c->weights[0], z, scratch);
    return true;
}

static bool data(dro__conv *base, size_t lane, size_t count, const float *dz, float *dx,
                 void *scratch)
{
    convolution *c = (convolution *)base;
    (void)lane;
    c->kernels->backward(&base->shape, count, dz, c->weights[1], dx, scratch);
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
    c->kernels->slope(&base->shape, count, x, dz, sum, scratch);
    return true;
}

static bool slope_out(dro__conv *base, const float *sum, float *dw)
{
    convolution *c = (convolution *)base;
    c->kernels->finish(&base->shape, sum, dw);
    return true;
}

dro_status dro__conv_direct(dro_context *ctx, const dro__conv_shape *shape, const dro__simd *simd,
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
    c->kernels = simd->direct;
    c->base.cls = &class;
    c->base.shape = *shape;
    c->base.slope_size = c->kernels->weights(shape);
    c->base.scratch = sizeof(float) * c->kernels->scratch(shape);
    c->weights[0] = dro__alloc(c->base.slope_size, sizeof(float));
    c->weights[1] = shape->data ? dro__alloc(c->base.slope_size, sizeof(float)) : NULL;
    if (!c->weights[0] || (shape->data && !c->weights[1])) {
        destroy(&c->base);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    }
    *out = &c->base;
    return DRO_OK;
}
