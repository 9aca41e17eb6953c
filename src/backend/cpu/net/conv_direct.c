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
} convolution;

static bool take(dro__conv *base, const float *w, bool back)
{
    convolution *c = (convolution *)base;
    c->kernels->prepare(&base->shape, w, back, base->weights[back]);
    return true;
}

static bool forward(dro__conv *base, const dro__conv_chunk *chunk, const float *x, float *z)
{
    convolution *c = (convolution *)base;
    c->kernels->forward(&base->shape, chunk->count, x, base->weights[0], z, chunk->scratch);
    return true;
}

static bool data(dro__conv *base, const dro__conv_chunk *chunk, const float *dz, float *dx)
{
    convolution *c = (convolution *)base;
    c->kernels->backward(&base->shape, chunk->count, dz, base->weights[1], dx, chunk->scratch);
    return true;
}

static bool slope(dro__conv *base, const dro__conv_chunk *chunk, const float *x, const float *dz,
                  bool first, float *sum)
{
    convolution *c = (convolution *)base;
    if (first)
        memset(sum, 0, base->slope_size * sizeof *sum);
    c->kernels->slope(&base->shape, chunk->count, x, dz, sum, chunk->scratch);
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
    static const dro__conv_class class = {.destroy = dro__conv_free,
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
    c->base.scratch = sizeof(float) * c->kernels->scratch(shape);
    *out = &c->base;
    return dro__conv_weights(ctx, *out, c->kernels->weights(shape));
}
