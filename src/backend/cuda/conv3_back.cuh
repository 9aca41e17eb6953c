/* Backward by rows: the shape of a block, and how it reads its tiles. */
#ifndef DRO_CUDA_CONV3_BACK_CUH
#define DRO_CUDA_CONV3_BACK_CUH

#include "conv3_rows.cuh"

enum { WARPS = 8, THREADS_BACK = 32 * WARPS, SLOTS = 5, LANE_NUMBERS = SLOTS * 8 };
enum { ROLE = SLOTS * 2 * 32 /* float4s of a weight gradient that a warp holds */ };
enum { BACK_BLOCKS = 264 }; /* at most, all parts and groups together */
enum { PLACE = BACK_BLOCKS * 3072 * 4 /* floats that these write, at most */ };

/* The shape of a block, for a convolution from CI to CO channels. A tile is TH x TW pixels of the
 * slope, so that two blocks fit on a multiprocessor. A slice is 16 channels of the slope, a group
 * is 16 channels of the input. Both are PARTS planes; a slice takes DEPTH products of two planes
 * each. */
template <class V_, int CI, int CO, int STRIDE_, bool EXACT_>
struct back_shape {
    typedef V_ V;
    static const int IN = CI, OUT = CO, STRIDE = STRIDE_;
    static const bool EXACT = EXACT_;
    static const int TH = STRIDE == 2 ? 4 : CO == 64 || V::PER == 4 ? 8 : 16;
    static const int TW = CO == 16 ? 32 : CO == 32 ? 16 : 8;
    static const int GROUPS = CI / 16, KS = CO / 16, PARTS = 16 / V::PER, DEPTH = PARTS / 2;
    static const int STRIPS = TW >= 16 ? TW / 16 : 1;
    static const int ROWS = TW >= 16 ? TH : TH / 2;   /* of 16 pixels */
    static const int R = ROWS * KS * STRIPS / WARPS;  /* rows per warp, data gradient */
    static const int SHARES = WARPS / 2 / KS;         /* shares of the pixels, weight gradient */
    static const int RW = ROWS * STRIPS / SHARES;
    typedef tile_of<V, CO / V::PER, STRIDE == 1 ? TH + 2 : TH + 1, TW, 2 - STRIDE, 2 - STRIDE, 1>
        z_tile;
    typedef tile_of<V, PARTS, (TH - 1) * STRIDE + 3, TW * STRIDE, 1, 1, 2 - STRIDE> x_tile;
    static const int DH = TH * STRIDE, DW = TW * STRIDE,
                     STAGE = DH * DW * 64; /* bytes: 16 floats per pixel */
    static const int ITEMS = (DH * DW * PARTS + THREADS_BACK - 1) / THREADS_BACK;
    static const int X = z_tile::BYTES, SUM = X + x_tile::BYTES, WEIGHTS = SUM + KS * STAGE;
    static const int MOMENTS = WEIGHTS + TAPS * KS * DEPTH * 512;
    static const int COEF = MOMENTS + THREADS_BACK * 2 * V::PER * 4;
    static const int BYTES = COEF + (3 * CO + 2 * CI) * 4;
    static const int Z_PASSES = column<z_tile, THREADS_BACK>::PASSES, Z_MOST = 3;
    static const int X_PASSES = column<x_tile, THREADS_BACK>::PASSES, X_MOST = 3;
    typedef held<z_tile, THREADS_BACK, Z_PASSES < Z_MOST ? Z_PASSES : Z_MOST, true> z_ahead;
    typedef held<x_tile, THREADS_BACK, X_PASSES < X_MOST ? X_PASSES : X_MOST, false> x_ahead;
};

/* ---- reading ---- */

/* Issues the first loads of the slope. */
template <class S>
static __device__ __forceinline__ void begin_slope(const dro__conv3 &k, typename S::z_ahead &za,
                                                   int example, const place &p)
{
    typedef typename S::V V;
    const char *g = image_of<V>(k.g, example, p);
    za.load(p, 0, g, k.norm ? image_of<V>(k.z, example, p) : g);
}

template <class S, int MODE>
static __device__ __forceinline__ void make_slope(const dro__conv3 &k, char *smem,
                                                  typename S::z_ahead &za,
                                                  typename S::x_ahead &xa, int example,
                                                  const place &p, const place &in, int group)
{
    typedef typename S::z_tile T;
    typedef typename S::V V;
    maker<V, MODE> m((const float *)(smem + S::COEF), p.channels, threadIdx.x % T::CH * V::PER,
                     false);
    const char *g = image_of<V>(k.g, example, p);
    const char *z = MODE == SLOPE ? image_of<V>(k.z, example, p) : g;
    za.fill(smem, g, z, m, p, 0, NULL, [&] {
        xa.load(in, group * 16, image_of<V>(k.x, example, in), NULL);
    });
    if (p.width > T::COLS)
        fill_sides<T, THREADS_BACK>(smem, g, z, m, p, 0);
}

template <class S, int MODE>
static __device__ __forceinline__ void make_input(const dro__conv3 &k, char *smem,
                                                  typename S::x_ahead &xa, int example,
                                                  const place &p, int group)
{
    typedef typename S::x_tile T;
    typedef typename S::V V;
    maker<V, MODE> m((const float *)(smem + S::COEF) + 3 * k.out, p.channels,
                     group * 16 + threadIdx.x % T::CH * V::PER, k.x_relu);
    const char *x = image_of<V>(k.x, example, p);
    xa.fill(smem + S::X, x, NULL, m, p, group * 16, NULL, [] {});
    if (p.width > T::COLS)
        fill_sides<T, THREADS_BACK>(smem + S::X, x, NULL, m, p, group * 16);
}

/* Fills the tiles of the slope and of the input. */
template <class S>
static __device__ __forceinline__ void end_tiles(const dro__conv3 &k, char *smem,
                                                 typename S::z_ahead &za, int example,
                                                 const place &p, const place &in, int group)
{
    typename S::x_ahead xa;
    if (k.norm)
        make_slope<S, SLOPE>(k, smem, za, xa, example, p, in, group);
    else
        make_slope<S, AS_IS>(k, smem, za, xa, example, p, in, group);
    if (k.lazy)
        make_input<S, SCALED>(k, smem, xa, example, in, group);
    else
        make_input<S, AS_IS>(k, smem, xa, example, in, group);
}

/* Sums a float4 over the blocks, which stored theirs at `from`, `size` float4s apart. Called by 32
 * x 8 threads; returns true in the first 32, which have the sum in x. smem: (8, 32) float4s of
 * shared memory. */
enum { SUM_LANES = 32, SUM_SHARES = 8 };

static __device__ bool sum_of_blocks(const float4 *from, int size, int blocks, char *smem,
                                     float x[4])
{
    float4(*rest)[SUM_LANES] = (float4(*)[SUM_LANES])smem;
    int lane = threadIdx.x % SUM_LANES, share = threadIdx.x / SUM_LANES;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int b = share; b < blocks; b += SUM_SHARES) {
        float4 f = from[(size_t)b * size];
        sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
    }
    rest[share][lane] = sum;
    __syncthreads();
    if (share)
        return false;
    for (int y = 1; y < SUM_SHARES; y++) {
        float4 f = rest[y][lane];
        sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
    }
    x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
    return true;
}

#endif
