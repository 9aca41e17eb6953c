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
