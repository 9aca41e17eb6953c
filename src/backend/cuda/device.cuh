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

/* clipped: ReLU, from 0 to cap; cap 0: none. closed: whether the ReLU blocks the slope. NaN is
 * passed on. */
static __device__ __forceinline__ float clipped(float x, float cap)
{
    x = (cap > 0) & (x <= 0) ? 0 : x;
    return (cap > 0) & (x > cap) ? cap : x;
}

static __device__ __forceinline__ bool closed(float x, float cap)
{
    return (cap > 0) & ((x <= 0) | (x >= cap));
}

/* for (size_t i = FIRST; i < count; i += STEP) */
#define FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((size_t)gridDim.x * blockDim.x)

/* i / by, in 32 bits where that is enough. */
static __device__ __forceinline__ size_t divided(size_t i, int by)
{
    return i >> 32 ? i / (unsigned)by : (unsigned)i / (unsigned)by;
}

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

/* ---- a value as rows of channels, some channels at a time ----
 *
 * How a kernel reads and writes: eight bfloat16 or four floats, 16 bytes either way, or one element
 * of either type. `sum` is the type in which a thread adds up. */

struct eights {
    enum { V = 8 };
    typedef uint4 raw;
    typedef float sum;
    static __device__ __forceinline__ raw load(const dro__typed &v, size_t i)
    {
        return *(const uint4 *)((const __nv_bfloat16 *)v.p + i);
    }
    static __device__ __forceinline__ void open(const raw &r, float *x) { open8(r, x); }
    static __device__ __forceinline__ void store(const dro__typed &v, size_t i, const float *x)
    {
        *(uint4 *)((__nv_bfloat16 *)v.p + i) = close8(x);
    }
};

struct fours {
    enum { V = 4 };
    typedef float4 raw;
    typedef double sum;
    static __device__ __forceinline__ raw load(const dro__typed &v, size_t i)
    {
        return *(const float4 *)((const float *)v.p + i);
    }
    static __device__ __forceinline__ void open(const raw &r, float *x)
    {
        x[0] = r.x, x[1] = r.y, x[2] = r.z, x[3] = r.w;
    }
    static __device__ __forceinline__ void store(const dro__typed &v, size_t i, const float *x)
    {
        *(float4 *)((float *)v.p + i) = make_float4(x[0], x[1], x[2], x[3]);
    }
};

struct ones {
    enum { V = 1 };
    typedef float raw;
    typedef double sum;
    static __device__ __forceinline__ raw load(const dro__typed &v, size_t i)
    {
        return read_at(v, i);
    }
    static __device__ __forceinline__ void open(const raw &r, float *x) { x[0] = r; }
    static __device__ __forceinline__ void store(const dro__typed &v, size_t i, const float *x)
    {
        write_at(v, i, x[0]);
    }
};

/* Whether a value, which may be none, can be read 16 bytes at a time. */
static inline bool in_words(const dro__typed &v, int bf16)
{
    int each = bf16 ? (int)eights::V : (int)fours::V;
    return !v.p || (v.bf16 == bf16 && v.stride % each == 0 && (size_t)v.p % 16 == 0);
}

/* Calls a kernel with the widest words that all its values (`fits`) and the number of channels
 * allow. */
#define WIDEST(call, channels, bf16, fits)                                                         \
    do {                                                                                           \
        if ((fits) && (bf16) && (channels) % eights::V == 0)                                       \
            call(eights);                                                                          \
        else if ((fits) && !(bf16) && (channels) % fours::V == 0)                                  \
            call(fours);                                                                           \
        else                                                                                       \
            call(ones);                                                                            \
    } while (0)

/* Makes the rows dense unless a stride is given. */
static inline void dense(dro__typed *v, int channels)
{
    v->stride = v->stride ? v->stride : channels;
}

/* How rows of channels are divided among blocks: a block has `wide` groups of V channels and
 * THREADS / wide rows at a time. `tiles` blocks cover the channels, `chunks` blocks divide the
 * rows. A thread keeps its channels. */
struct sharing {
    int wide, tiles, chunks;
};

template <typename W> static sharing share(size_t rows, int channels, int parts, int blocks)
{
    const int most = W::V == 1 ? 128 : 32, least = 4; /* least: rows that a thread should have */
    int groups = (channels + W::V - 1) / W::V;
    sharing s;
    s.tiles = (groups + most - 1) / most;
    s.wide = (groups + s.tiles - 1) / s.tiles;
    size_t each = (size_t)(THREADS / s.wide) * least, enough = (rows + each - 1) / each;
    int fit = blocks / (s.tiles * parts);
    s.chunks = fit < 1 ? 1 : enough < (size_t)fit ? (int)(enough < 1 ? 1 : enough) : fit;
    return s;
}

/* A thread's channels, from c on, and its rows: for (; i < to; i += step). */
struct walk {
    int c, row;
    bool on;
    size_t i, to, step;
};

template <typename W>
static __device__ __forceinline__ walk begin_walk(size_t from, size_t to, int channels, int wide)
{
    walk w;
    int tall = THREADS / wide;
    w.row = threadIdx.x / wide;
    w.c = (blockIdx.x * wide + threadIdx.x % wide) * W::V;
    w.on = w.row < tall && w.c < channels;
    w.i = from + (size_t)blockIdx.y * tall + w.row;
    w.to = w.on ? to : 0;
    w.step = (size_t)gridDim.y * tall;
    return w;
}

template <typename W>
static __device__ __forceinline__ walk walk_part(const dro__parts &parts, int area, int channels,
                                                 int wide)
{
    int part = blockIdx.z;
    return begin_walk<W>((size_t)parts.first[part] * area, (size_t)parts.first[part + 1] * area,
                         channels, wide);
}

/* A pixel of (examples, height, width): example n, row r, column c. */
struct pixel {
    size_t n;
    int r, c;
};

static __device__ __forceinline__ pixel pixel_of(size_t i, const dro__extent &e)
{
    size_t rows = divided(i, e.width), n = divided(rows, e.height);
    return {n, (int)(rows - n * e.height), (int)(i - rows * e.width)};
}

/* The sum over the block's threads, valid in thread 0; `smem` has a double for each warp. */
static __device__ __forceinline__ double block_sum(double x, double *smem)
{
    for (int o = 16; o; o >>= 1)
        x += __shfl_xor_sync(~0u, x, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        smem[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    if (threadIdx.x == 0)
        for (unsigned k = 0; k < blockDim.x / 32; k++)
            x += smem[k];
    return x;
}

/* The sum, and the maximum, over the block's threads, valid in all of them. */
static __device__ __forceinline__ double all_sum(double x)
{
    __shared__ double smem[32], total;
    x = block_sum(x, smem);
    if (threadIdx.x == 0)
        total = x;
    __syncthreads();
    x = total;
    __syncthreads();
    return x;
}

static __device__ __forceinline__ double all_max(double x)
{
    __shared__ double smem[32];
    for (int o = 16; o; o >>= 1)
        x = fmax(x, __shfl_xor_sync(~0u, x, o));
    if (threadIdx.x % 32 == 0)
        smem[threadIdx.x / 32] = x;
    __syncthreads();
    for (unsigned k = 0; k < blockDim.x / 32; k++)
        x = fmax(x, smem[k]);
    __syncthreads();
    return x;
}

#endif
