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

static __device__ __forceinline__ unsigned to_tf32(float x)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

/* ---- eight channels as they are in memory: 16 bytes of bfloat16 or 32 of floats ---- */

template <typename T>
struct raw8 {
    static const int WORDS = (int)sizeof(T) / 2;
    uint4 w[WORDS];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int k = 0; k < WORDS; k++)
            w[k] = make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void load(const void *from)
    {
#pragma unroll
        for (int k = 0; k < WORDS; k++)
            w[k] = ((const uint4 *)from)[k];
    }
    __device__ __forceinline__ void store(void *to) const
    {
#pragma unroll
        for (int k = 0; k < WORDS; k++)
            ((uint4 *)to)[k] = w[k];
    }
    __device__ __forceinline__ void open(float *x) const
    {
        if (WORDS == 1)
            open8(w[0], x);
        else
#pragma unroll
            for (int k = 0; k < 8; k++)
                x[k] = __uint_as_float(((const unsigned *)w)[k]);
    }
    /* rounded: to what the tensor cores take */
    __device__ __forceinline__ void close(const float *x, bool rounded)
    {
        if (WORDS == 1)
            w[0] = close8(x);
        else
#pragma unroll
            for (int k = 0; k < 8; k++)
                ((unsigned *)w)[k] = rounded ? to_tf32(x[k]) : __float_as_uint(x[k]);
    }
};

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

/* How eight channels become what is multiplied: out = a u + c + b v, then ReLU. u is z or g; v is a residual, or
 * z when there is a slope to make of g. The coefficients, (3, channels), are in shared memory. */
template <typename T>
struct reader {
    const float *a, *c, *b;
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
        a = room, c = room + k.in, b = room + 2 * k.in;
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
        a = room, c = room + k.out, b = room + 2 * k.out;
    }

    /* channels from `first` on */
    __device__ __forceinline__ void apply(float *x, const raw8<T> &v, int first) const
    {
        float k[8], y[8];
        if (change) {
            read8(a + first, k);
            read8(c + first, y);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = k[i] * x[i] + y[i];
        }
        if (two) {
            read8(b + first, k);
            v.open(y);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] += k[i] * y[i];
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = relu ? relu_of(x[i]) : x[i];
    }
};

/* ---- input tiles: WIDE x WIDE pixels of C channels of an image from (row, col) on; those outside are 0. With
 * SPREAD 2 every second pixel of both directions is 0 and the image half as fine. A thread has eight channels of
 * one column, and moves the same of them in all three functions. ---- */

struct image {
    int height, width, row, col;
};

template <typename T, int C, int WIDE, int SPREAD>
struct tile_of {
    static const int PARTS = C / 8, UNIT = 8 * (int)sizeof(T), ROW = C * (int)sizeof(T) + PAD_BYTES;
    static const int COLS = WIDE * PARTS, ROWS = CONV_THREADS / COLS, STRIDE = SPREAD;
    static const int RAW_BYTES = WIDE * COLS * UNIT;

    int first, col, part; /* row of the first pass (WIDE: none), column, eight channels */
    int raw_at, tile_at;

    __device__ __forceinline__ tile_of()
    {
        int q = threadIdx.x / COLS, rest = threadIdx.x % COLS;
        first = q < ROWS ? q : WIDE;
        col = rest / PARTS, part = rest % PARTS;
        raw_at = (q * COLS + rest) * UNIT;
        tile_at = (q * WIDE + col) * ROW + part * UNIT;
    }

    /* Whether a row of this thread's column is in the image; where its channels are. */
    __device__ __forceinline__ bool find(const image &m, int i, unsigned &at) const
    {
        int r = m.row + i, c = m.col + col;
        bool inside = r >= 0 && c >= 0;
        if (SPREAD == 2) {
            inside = inside && !((r | c) & 1);
            r >>= 1, c >>= 1;
        }
        at = (unsigned)(r * m.width + c) * C + part * 8;
        return inside && r < m.height && c < m.width;
    }

    /* What eight channels become, into the tile; and into `fill` where the pixel is one of the INNER ones of
     * both directions that are this block's own. */
    template <int INNER>
    __device__ __forceinline__ void put(char *to, const reader<T> &r, int i, unsigned at,
                                        bool inside, raw8<T> &u, const raw8<T> &v, T *fill) const
    {
        if (!inside) {
            u.clear();
        } else if (r.change || sizeof(T) == 4) {
            float x[8];
            u.open(x);
            r.apply(x, v, part * 8);
            if (fill && i >= 1 && col >= 1 && i <= INNER && col <= INNER) {
                u.close(x, false);
                u.store(fill + at);
            }
            u.close(x, true);
        }
        u.store(to);
    }

    /* From memory into the tile at once, DEEP rows in flight. */
    template <int INNER, int DEEP>
    __device__ __forceinline__ void load(char *to, const reader<T> &r, const T *u, const T *v,
                                         const image &m, T *fill) const
    {
        for (int base = first; base < WIDE; base += DEEP * ROWS) {
            raw8<T> x[DEEP], y[DEEP];
#pragma unroll
            for (int k = 0; k < DEEP; k++) {
                unsigned at;
                if (base + k * ROWS < WIDE && find(m, base + k * ROWS, at)) {
                    x[k].load(u + at);
                    if (r.two)
                        y[k].load(v + at);
                }
            }
#pragma unroll
            for (int k = 0; k < DEEP; k++) {
                unsigned at;
                int i = base + k * ROWS;
                bool inside = find(m, i, at);
                if (i < WIDE)
                    put<INNER>(to + tile_at + (i - first) * WIDE * ROW, r, i, at, inside, x[k],
                               y[k], fill);
            }
        }
    }

    /* From memory into `raw`, in the background; the second value RAW_BYTES behind. */
    __device__ __forceinline__ void fetch(char *raw, const reader<T> &r, const T *u, const T *v,
                                          const image &m) const
    {
        unsigned to = shared_address(raw) + raw_at;
        for (int i = first; i < WIDE; i += ROWS, to += ROWS * COLS * UNIT) {
            unsigned at;
            if (!find(m, i, at))
                continue;
#pragma unroll
            for (int k = 0; k < UNIT; k += 16) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + k),
                             "l"((const char *)(u + at) + k));
                if (r.two)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + k +
                                                                                   RAW_BYTES),
                                 "l"((const char *)(v + at) + k));
            }
        }
    }

    /* What this thread has fetched, into the tile. */
    template <int INNER>
    __device__ __forceinline__ void convert(char *to, const char *raw, const reader<T> &r,
                                            const image &m, T *fill) const
    {
        raw += raw_at, to += tile_at;
        for (int i = first; i < WIDE; i += ROWS, raw += ROWS * COLS * UNIT, to += ROWS * WIDE * ROW) {
            raw8<T> u, v;
            unsigned at;
            bool inside = find(m, i, at);
            if (inside)
                u.load(raw);
            if (inside && r.two)
                v.load(raw + RAW_BYTES);
            put<INNER>(to, r, i, at, inside, u, v, fill);
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
