/* What the tf32 convolutions share.
 *
 * Pixels are rows of channels in shared memory, padded by 16 bytes so that eight neighbouring rows fall on
 * different banks. A step of a product takes 32 bytes of a row, 8 floats; ldmatrix moves 16-byte rows whatever
 * they hold. */
#ifndef DRO_CUDA_CONV3_TF32_CUH
#define DRO_CUDA_CONV3_TF32_CUH

#include "conv3.h"
#include "conv3_launch.cuh"
#include "conv3_mma.cuh"
#include "tails.cuh"

enum { TAPS = 9, PAD_BYTES = 16, WARPS = 8, CONV_THREADS = 32 * WARPS };

/* The side of the images that a convolution with so many channels of output mostly makes: in the kernels for those
 * (EXACT) it is known to the compiler. */
static constexpr int side_of(int out)
{
    return out == 16 ? 32 : out == 32 ? 16 : 8;
}

static inline bool exact(const dro__conv3 *k)
{
    int side = side_of(k->out);
    return k->out_height == side && k->out_width == side && k->height == side * k->stride &&
           k->width == side * k->stride;
}

/* ---- eight channels as they are in memory ---- */

struct raw8 {
    uint4 w[2];

    __device__ __forceinline__ void clear()
    {
        w[0] = w[1] = make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void load(const void *from)
    {
        w[0] = ((const uint4 *)from)[0], w[1] = ((const uint4 *)from)[1];
    }
    __device__ __forceinline__ void store(void *to) const
    {
        ((uint4 *)to)[0] = w[0], ((uint4 *)to)[1] = w[1];
    }
    __device__ __forceinline__ void open(float *x) const
    {
#pragma unroll
        for (int k = 0; k < 8; k++)
            x[k] = __uint_as_float(((const unsigned *)w)[k]);
    }
    /* rounded: to what the tensor cores take */
    __device__ __forceinline__ void close(const float *x, bool rounded)
    {
#pragma unroll
        for (int k = 0; k < 8; k++)
            ((unsigned *)w)[k] = rounded ? to_tf32(x[k]) : __float_as_uint(x[k]);
    }
};

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
    __device__ __forceinline__ void apply(float *x, const raw8 &v, int first) const
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

template <int C, int WIDE, int SPREAD>
struct tile_of {
    static const int PARTS = C / 8, UNIT = 32, ROW = C * 4 + PAD_BYTES;
    static const int COLS = WIDE * PARTS, ROWS = CONV_THREADS / COLS, STRIDE = SPREAD;
    static const int PASSES = (WIDE + ROWS - 1) / ROWS;
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
        bool there = SPREAD == 1 || !((r | c) & 1);
        r >>= SPREAD - 1, c >>= SPREAD - 1;
        at = (unsigned)(r * m.width + c) * C + part * 8;
        return there && (unsigned)r < (unsigned)m.height && (unsigned)c < (unsigned)m.width;
    }

    /* What eight channels become, into the tile; and into `fill` where the pixel is one of the INNER ones of
     * both directions that are this block's own. */
    template <int INNER>
    __device__ __forceinline__ void put(char *to, const reader &r, int i, unsigned at,
                                        bool inside, raw8 &u, const raw8 &v, float *fill) const
    {
        if (!inside) {
            u.clear();
        } else {
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
    __device__ __forceinline__ void load(char *to, const reader &r, const float *u, const float *v,
                                         const image &m, float *fill) const
    {
        for (int base = first; base < WIDE; base += DEEP * ROWS) {
            raw8 x[DEEP], y[DEEP];
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

    /* From memory into `raw`, in the background, until fetch_wait; the second value RAW_BYTES behind. */
    __device__ __forceinline__ void fetch(char *raw, const reader &r, const float *u, const float *v,
                                          const image &m) const
    {
        unsigned to = shared_address(raw) + raw_at;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++, to += ROWS * COLS * UNIT) {
            unsigned at;
            int i = first + pass * ROWS;
            if (i >= WIDE || !find(m, i, at))
                continue;
#pragma unroll
            for (int k = 0; k < UNIT; k += 16) {
                fetch16(to + k, (const char *)(u + at) + k);
                if (r.two)
                    fetch16(to + k + RAW_BYTES, (const char *)(v + at) + k);
            }
        }
    }

    /* What this thread has fetched, into the tile. */
    template <int INNER>
    __device__ __forceinline__ void convert(char *to, const char *raw, const reader &r,
                                            const image &m, float *fill) const
    {
        raw += raw_at, to += tile_at;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            raw8 u, v;
            unsigned at;
            int i = first + pass * ROWS;
            bool inside = find(m, i, at);
            if (i >= WIDE)
                continue;
            if (inside)
                u.load(raw + pass * ROWS * COLS * UNIT);
            if (inside && r.two)
                v.load(raw + pass * ROWS * COLS * UNIT + RAW_BYTES);
            put<INNER>(to + pass * ROWS * WIDE * ROW, r, i, at, inside, u, v, fill);
        }
    }
};

#endif
