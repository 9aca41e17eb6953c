/* What the tensor-core convolutions share.
 *
 * Pixels are rows of channels in shared memory, padded by 16 bytes so that eight neighbouring rows fall on
 * different banks. A step of a product takes 32 bytes of a row: 16 bfloat16 or 8 floats; ldmatrix moves 16-byte
 * rows whatever they hold, so both types go through the same code. */
#ifndef DRO_CUDA_CONV3_CUH
#define DRO_CUDA_CONV3_CUH

#include "conv3.h"
#include "tails.cuh"

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
        change = k.lazy, relu = k.lazy && k.x_relu, two = k.x_residual != NULL;
        for (int i = threadIdx.x; change && i < k.in; i += CONV_THREADS) {
            int at = part * k.in + i;
            float3 f = k.x_finish ? forward_numbers(k.parts, k.height * k.width, k.x_numbers,
                                                    k.x_source, part, i, blockIdx.x == 0)
                                  : make_float3(k.x_numbers.mean[at], k.x_numbers.scale[at],
                                                k.x_numbers.shift[at]);
            room[i] = f.y;
            room[k.in + i] = f.z - f.x * f.y;
            room[2 * k.in + i] = 1;
        }
        point(room, k.in);
    }

    /* the slope of a convolution's output */
    __device__ void slope(const dro__conv3 &k, int part, float *room, bool keep)
    {
        change = two = k.norm, relu = false;
        for (int i = threadIdx.x; change && i < k.out; i += CONV_THREADS) {
            int at = part * k.out + i;
            float3 f = k.finish ? backward_numbers(k.parts, k.out_height * k.out_width, 1, k.numbers,
                                                   k.norm_grads, part, i, keep)
                                : make_float3(k.numbers.p[at], k.numbers.q[at], k.numbers.r[at]);
            room[i] = f.x;
            room[k.out + i] = f.z - k.numbers.mean[at] * f.y;
            room[2 * k.out + i] = f.y;
        }
        point(room, k.out);
    }

    __device__ __forceinline__ void point(const float *room, int channels)
    {
        int first = threadIdx.x % (channels / N) * N;
        a = room + first, c = room + channels + first, b = room + 2 * channels + first;
    }

    __device__ __forceinline__ pack<T> apply(const uint4 &u, const uint4 &v) const
    {
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
        return x;
    }
};

static __device__ __forceinline__ uint4 keep_pack(const pack<bf16> &p)
{
    return close_pack(p);
}

static __device__ __forceinline__ uint4 keep_pack(const pack<float> &p)
{
    return make_uint4(__float_as_uint(p.v[0]), __float_as_uint(p.v[1]), __float_as_uint(p.v[2]),
                      __float_as_uint(p.v[3]));
}

/* ---- input tiles: WIDE x WIDE pixels of C channels of an image from (row, col) on; those outside are 0. With
 * SPREAD 2 every second pixel of both directions is 0 and the image half as fine. A thread moves the same 16
 * bytes of a pixel in all three functions. ---- */

struct image {
    int height, width, row, col;
};

template <typename T, int C, int WIDE, int SPREAD>
struct tile_of {
    static const int PARTS = C * (int)sizeof(T) / 16, ROW = C * (int)sizeof(T) + PAD_BYTES;
    static const int COUNT = WIDE * WIDE, EACH = CONV_THREADS / PARTS;
    static const int RAW_BYTES = COUNT * PARTS * 16;

    /* Whether a pixel of the tile is in the image; where its 16 bytes of this thread are. */
    static __device__ __forceinline__ bool find(const image &m, int pixel, unsigned &at)
    {
        int i = m.row + pixel / WIDE, j = m.col + pixel % WIDE;
        bool inside = pixel < COUNT && i >= 0 && j >= 0;
        if (SPREAD == 2) {
            inside = inside && !(i & 1) && !(j & 1);
            i >>= 1, j >>= 1;
        }
        at = (unsigned)(i * m.width + j) * PARTS + threadIdx.x % PARTS;
        return inside && i < m.height && j < m.width;
    }

    /* What a pixel becomes, into the tile; and into `fill` where it is one of the INNER pixels of both
     * directions that are this block's own. */
    template <int INNER>
    static __device__ __forceinline__ void put(char *to, const reader<T> &r, int pixel,
                                               unsigned at, bool inside, const uint4 &u,
                                               const uint4 &v, T *fill)
    {
        uint4 out = make_uint4(0, 0, 0, 0);
        if (inside && !r.change && sizeof(T) == 2) {
            out = u;
        } else if (inside) {
            pack<T> x = r.apply(u, v);
            out = close_pack(x);
            int i = pixel / WIDE, j = pixel % WIDE;
            if (fill && i >= 1 && j >= 1 && i <= INNER && j <= INNER)
                ((uint4 *)fill)[at] = keep_pack(x);
        }
        *(uint4 *)(to + pixel * ROW + threadIdx.x % PARTS * 16) = out;
    }

    /* From memory into the tile at once. */
    template <int INNER, int DEEP>
    static __device__ __forceinline__ void load(char *to, const reader<T> &r, const T *u, const T *v,
                                                const image &m, T *fill)
    {
        for (int base = threadIdx.x / PARTS; base < COUNT; base += DEEP * EACH) {
            uint4 x[DEEP], y[DEEP];
#pragma unroll
            for (int k = 0; k < DEEP; k++) {
                unsigned at;
                if (find(m, base + k * EACH, at)) {
                    x[k] = ((const uint4 *)u)[at];
                    if (r.two)
                        y[k] = ((const uint4 *)v)[at];
                }
            }
#pragma unroll
            for (int k = 0; k < DEEP; k++) {
                unsigned at;
                bool inside = find(m, base + k * EACH, at);
                if (base + k * EACH < COUNT)
                    put<INNER>(to, r, base + k * EACH, at, inside, x[k], y[k], fill);
            }
        }
    }

    /* From memory into `raw`, in the background; the second value RAW_BYTES behind. */
    static __device__ __forceinline__ void fetch(char *raw, const reader<T> &r, const T *u,
                                                 const T *v, const image &m)
    {
        for (int pixel = threadIdx.x / PARTS; pixel < COUNT; pixel += EACH) {
            unsigned at, to = shared_address(raw) + (pixel * PARTS + threadIdx.x % PARTS) * 16;
            if (!find(m, pixel, at))
                continue;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                         "l"((const uint4 *)u + at));
            if (r.two)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + RAW_BYTES),
                             "l"((const uint4 *)v + at));
        }
    }

    /* What this thread has fetched, into the tile. */
    template <int INNER>
    static __device__ __forceinline__ void convert(char *to, const char *raw, const reader<T> &r,
                                                   const image &m, T *fill)
    {
        for (int pixel = threadIdx.x / PARTS; pixel < COUNT; pixel += EACH) {
            const char *from = raw + (pixel * PARTS + threadIdx.x % PARTS) * 16;
            unsigned at;
            bool inside = find(m, pixel, at);
            uint4 u = *(const uint4 *)from, v = u;
            if (r.two)
                v = *(const uint4 *)(from + RAW_BYTES);
            put<INNER>(to, r, pixel, at, inside, u, v, fill);
        }
    }
};

static __device__ __forceinline__ void fetch_wait()
{
    asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
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
