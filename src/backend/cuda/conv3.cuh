/* What the tensor-core convolutions share.
 *
 * Pixels are rows of channels in shared memory, padded by 16 bytes so that eight neighbouring rows fall on
 * different banks. A step of a product takes 32 bytes of a row: 16 bfloat16 or 8 floats; ldmatrix moves 16-byte
 * rows whatever they hold, so both types go through the same code. */
#ifndef DRO_CUDA_CONV3_CUH
#define DRO_CUDA_CONV3_CUH

#include "conv3.h"
#include "device.cuh"

typedef __nv_bfloat16 bf16;

enum { TAPS = 9, PAD_BYTES = 16, WARPS = 8, CONV_THREADS = 32 * WARPS };

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ __forceinline__ void ldmatrix_turned(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* d (16, 8) += a (16, k) b (k, 8), k 16 or 8 */
template <typename T>
static __device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                           unsigned b1)
{
    if (sizeof(T) == 2)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- 16 bytes of channels ---- */

template <typename T>
struct pack {
    static const int SIZE = 16 / sizeof(T);
    float v[SIZE];
};

static __device__ __forceinline__ void open_pack(pack<bf16> &p, const uint4 &raw)
{
    const __nv_bfloat162 *h = (const __nv_bfloat162 *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 f = __bfloat1622float2(h[k]);
        p.v[2 * k] = f.x, p.v[2 * k + 1] = f.y;
    }
}

static __device__ __forceinline__ void open_pack(pack<float> &p, const uint4 &raw)
{
    const float *f = (const float *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++)
        p.v[k] = f[k];
}

static __device__ __forceinline__ uint4 close_pack(const pack<bf16> &p)
{
    uint4 raw;
    __nv_bfloat162 *h = (__nv_bfloat162 *)&raw;
#pragma unroll
    for (int k = 0; k < 4; k++)
        h[k] = __floats2bfloat162_rn(p.v[2 * k], p.v[2 * k + 1]);
    return raw;
}

static __device__ __forceinline__ unsigned to_tf32(float x)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

static __device__ __forceinline__ uint4 close_pack(const pack<float> &p)
{
    return make_uint4(to_tf32(p.v[0]), to_tf32(p.v[1]), to_tf32(p.v[2]), to_tf32(p.v[3]));
}

/* Two neighbouring channels of a value; stores what it keeps in x, y. */
static __device__ __forceinline__ void store2(bf16 *to, float &x, float &y)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
    *(__nv_bfloat162 *)to = h;
    float2 f = __bfloat1622float2(h);
    x = f.x, y = f.y;
}

static __device__ __forceinline__ void store2(float *to, float &x, float &y)
{
    *(float2 *)to = make_float2(x, y);
}

static __device__ __forceinline__ float2 load2(const bf16 *from)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)from);
}

static __device__ __forceinline__ float2 load2(const float *from)
{
    return *(const float2 *)from;
}

/* ---- tiles ---- */

/* The t-th tile of a part: its example and its first pixel. */
struct spot {
    int example, row, col;
};

static __device__ __forceinline__ spot spot_of(int t, int first, int down, int across, int tile)
{
    spot s;
    s.col = t % across * tile;
    t /= across;
    s.row = t % down * tile;
    s.example = first + t / down;
    return s;
}

/* How 16 bytes of channels become what is multiplied: out = a u + c + b v, then ReLU. u is z or g, v is z when
 * there is a slope to make of g. The coefficients, (3, channels), are in shared memory. */
template <typename T>
struct reader {
    static const int N = pack<T>::SIZE;
    const float *a, *c, *b; /* of this thread's channels */
    bool change, relu, two;

    /* the input of a convolution; the block's threads fill `room` together */
    __device__ void input(const dro__conv3 &k, int part, float *room)
    {
        change = k.lazy, relu = k.lazy && k.x_relu, two = false;
        for (int i = threadIdx.x; change && i < k.in; i += CONV_THREADS) {
            int at = part * k.in + i;
            float scale = k.x_numbers.scale[at];
            room[i] = scale;
            room[k.in + i] = k.x_numbers.shift[at] - k.x_numbers.mean[at] * scale;
        }
        point(room, k.in);
    }

    /* the slope of a convolution's output */
    __device__ void slope(const dro__conv3 &k, int part, float *room)
    {
        change = two = k.norm, relu = false;
        for (int i = threadIdx.x; change && i < k.out; i += CONV_THREADS) {
            int at = part * k.out + i;
            float q = k.numbers.q[at];
            room[i] = k.numbers.p[at];
            room[k.out + i] = k.numbers.r[at] - k.numbers.mean[at] * q;
            room[2 * k.out + i] = q;
        }
        point(room, k.out);
    }

    __device__ __forceinline__ void point(const float *room, int channels)
    {
        int first = threadIdx.x % (channels / N) * N;
        a = room + first, c = room + channels + first, b = room + 2 * channels + first;
    }

    __device__ __forceinline__ uint4 apply(const uint4 &u, const uint4 &v) const
    {
        if (!change && sizeof(T) == 2)
            return u;
        pack<T> x, y;
        open_pack(x, u);
        if (two)
            open_pack(y, v);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (change)
                x.v[i] = a[i] * x.v[i] + c[i];
            if (two)
                x.v[i] += b[i] * y.v[i];
            if (relu)
                x.v[i] = x.v[i] <= 0 ? 0 : x.v[i];
        }
        return close_pack(x);
    }
};

/* Fills `to`, (high, wide) pixels of C channels, with the pixels of an image of (height, width) from (row, col)
 * on; those outside are 0. `spread` 2: every second pixel of both directions is 0 and the image half as fine. */
template <typename T, int C, int DEEP>
static __device__ __forceinline__ void load_tile(char *to, int high, int wide, const reader<T> &r, const T *u,
                                 const T *v, int height, int width, int row, int col, int spread)
{
    const int PARTS = C * (int)sizeof(T) / 16, ROW = C * (int)sizeof(T) + PAD_BYTES;
    int part = threadIdx.x % PARTS, count = high * wide;
    for (int base = threadIdx.x / PARTS; base < count; base += DEEP * (CONV_THREADS / PARTS)) {
        uint4 x[DEEP], y[DEEP];
        bool inside[DEEP];
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            int pixel = base + k * (CONV_THREADS / PARTS);
            int i = row + pixel / wide, j = col + pixel % wide;
            inside[k] = pixel < count && i >= 0 && j >= 0;
            if (spread == 2) {
                inside[k] = inside[k] && !(i & 1) && !(j & 1);
                i >>= 1, j >>= 1;
            }
            inside[k] = inside[k] && i < height && j < width;
            x[k] = y[k] = make_uint4(0, 0, 0, 0);
            if (inside[k]) {
                size_t at = ((size_t)i * width + j) * PARTS + part;
                x[k] = ((const uint4 *)u)[at];
                if (r.two)
                    y[k] = ((const uint4 *)v)[at];
            }
        }
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            int pixel = base + k * (CONV_THREADS / PARTS);
            if (pixel < count)
                *(uint4 *)(to + pixel * ROW + part * 16) =
                    inside[k] ? r.apply(x[k], y[k]) : make_uint4(0, 0, 0, 0);
        }
    }
}

/* How many blocks of a kernel the GPU holds at a time. */
static int blocks_at_once(const void *kernel, int bytes)
{
    int each = 0, processors = 1, device = 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, CONV_THREADS, bytes);
    return (each > 0 ? each : 1) * processors;
}

#endif
