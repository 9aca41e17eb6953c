/* What differs between the precisions of the convolutions by rows: bfloat16, and floats that are
 * rounded to tf32 for the products. In both, 16 bytes are PER channels of a pixel, and a product
 * sums over two times 16 bytes. */
#ifndef DRO_CUDA_CONV3_VALUES_CUH
#define DRO_CUDA_CONV3_VALUES_CUH

#include "conv3.h"
#include "conv3_mma.cuh"

struct bf16_values {
    static const int PER = 8, SIZE = 2;

    static __device__ __forceinline__ void open(const uint4 &w, float *x)
    {
        const unsigned u[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[2 * i] = low_of(u[i]), x[2 * i + 1] = high_of(u[i]);
    }
    static __device__ __forceinline__ uint4 close(const float *x)
    {
        return make_uint4(pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]),
                          pack2(x[6], x[7]));
    }
    static __device__ __forceinline__ uint4 close_relu(const float *x)
    {
        return make_uint4(pack2_relu(x[0], x[1]), pack2_relu(x[2], x[3]), pack2_relu(x[4], x[5]),
                          pack2_relu(x[6], x[7]));
    }
    /* the form in which a product takes a value from memory */
    static __device__ __forceinline__ uint4 taken(const uint4 &w) { return w; }
    /* g where m is above 0, else 0 */
    static __device__ __forceinline__ uint4 masked(const uint4 &g, const uint4 &m)
    {
        return make_uint4(g.x & positive2(m.x), g.y & positive2(m.y), g.z & positive2(m.z),
                          g.w & positive2(m.w));
    }
    /* stores four channels */
    static __device__ __forceinline__ void store4(char *to, const float (&v)[4])
    {
        *(unsigned long long *)to = (unsigned long long)pack2(v[2], v[3]) << 32 | pack2(v[0], v[1]);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                                    unsigned b0, unsigned b1)
    {
        mma_bf16(d, a, b0, b1);
    }
};

struct tf32_values {
    static const int PER = 4, SIZE = 4;

    static __device__ __forceinline__ void open(const uint4 &w, float *x)
    {
        x[0] = __uint_as_float(w.x), x[1] = __uint_as_float(w.y);
        x[2] = __uint_as_float(w.z), x[3] = __uint_as_float(w.w);
    }
    static __device__ __forceinline__ uint4 close(const float *x)
    {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                          __float_as_uint(x[3]));
    }
    static __device__ __forceinline__ uint4 close_relu(const float *x)
    {
        const float y[4] = {relu_of(x[0]), relu_of(x[1]), relu_of(x[2]), relu_of(x[3])};
        return close(y);
    }
    static __device__ __forceinline__ uint4 taken(const uint4 &w)
    {
        return make_uint4(to_tf32(__uint_as_float(w.x)), to_tf32(__uint_as_float(w.y)),
                          to_tf32(__uint_as_float(w.z)), to_tf32(__uint_as_float(w.w)));
    }
    static __device__ __forceinline__ uint4 masked(const uint4 &g, const uint4 &m)
    {
        return make_uint4(__uint_as_float(m.x) > 0 ? g.x : 0, __uint_as_float(m.y) > 0 ? g.y : 0,
                          __uint_as_float(m.z) > 0 ? g.z : 0, __uint_as_float(m.w) > 0 ? g.w : 0);
    }
    static __device__ __forceinline__ void store4(char *to, const float (&v)[4])
    {
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                                    unsigned b0, unsigned b1)
    {
        mma_tf32(d, a, b0, b1);
    }
};

#endif
