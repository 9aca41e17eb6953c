/* What the kernels share: typed reads and writes, grids, sums over a block. */
#ifndef DRO_CUDA_DEVICE_CUH
#define DRO_CUDA_DEVICE_CUH

#include "kernels.h"

#include <cuda_bf16.h>

enum { THREADS = 256 };

static __device__ __forceinline__ float read_at(const dro__typed &v, size_t i)
{
    return v.bf16 ? __bfloat162float(((const __nv_bfloat16 *)v.p)[i]) : ((const float *)v.p)[i];
}

static __device__ __forceinline__ float read_or_0(const dro__typed &v, size_t i)
{
    return v.p ? read_at(v, i) : 0.0f;
}

static __device__ __forceinline__ void write_at(const dro__typed &v, size_t i, float x)
{
    if (v.bf16)
        ((__nv_bfloat16 *)v.p)[i] = __float2bfloat16(x);
    else
        ((float *)v.p)[i] = x;
}

/* for (size_t i = FIRST; i < count; i += STEP) */
#define FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((size_t)gridDim.x * blockDim.x)

static inline unsigned blocks_for(size_t count)
{
    size_t blocks = (count + THREADS - 1) / THREADS, most = 132 * 16;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* The part that an example belongs to. */
static __device__ __forceinline__ int part_of(const dro__parts &parts, size_t example)
{
    return parts.count > 1 && example >= (size_t)parts.first[1];
}

/* ---- eight channels at a time ---- */

static __device__ __forceinline__ void open8(const uint4 &raw, float *x)
{
    const __nv_bfloat162 *h = (const __nv_bfloat162 *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 f = __bfloat1622float2(h[k]);
        x[2 * k] = f.x, x[2 * k + 1] = f.y;
    }
}

static __device__ __forceinline__ uint4 close8(const float *x)
{
    uint4 raw;
    __nv_bfloat162 *h = (__nv_bfloat162 *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++)
        h[k] = __floats2bfloat162_rn(x[2 * k], x[2 * k + 1]);
    return raw;
}

static __device__ __forceinline__ void read8(const __nv_bfloat16 *from, float *x)
{
    open8(*(const uint4 *)from, x);
}

static __device__ __forceinline__ void read8(const float *from, float *x)
{
    float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

static __device__ __forceinline__ void write8(__nv_bfloat16 *to, const float *x)
{
    *(uint4 *)to = close8(x);
}

static __device__ __forceinline__ void write8(float *to, const float *x)
{
    ((float4 *)to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* ReLU that lets NaN through. */
static __device__ __forceinline__ float relu_of(float x)
{
    asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));
    return x;
}

/* The sum over the block's threads, in thread 0; `room` holds a double for each warp. */
static __device__ __forceinline__ double block_sum(double x, double *room)
{
    for (int o = 16; o; o >>= 1)
        x += __shfl_xor_sync(~0u, x, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    if (threadIdx.x == 0)
        for (unsigned k = 0; k < blockDim.x / 32; k++)
            x += room[k];
    return x;
}

#endif
