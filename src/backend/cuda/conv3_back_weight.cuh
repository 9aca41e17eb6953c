/* The weight gradient of a block's tiles, accumulated in registers, and the sum over the blocks. */
#ifndef DRO_CUDA_CONV3_BACK_WEIGHT_CUH
#define DRO_CUDA_CONV3_BACK_WEIGHT_CUH

#include "conv3_back.cuh"

/* The taps of a warp: half 0 has the left column and two taps of the middle one, half 1 the right
 * column and the third tap of the middle one. Slots 0 to 2 are the rows of the outer column, the
 * others are in the middle column. */
static __host__ __device__ __forceinline__ int tap_of(int half, int slot)
{
    return slot < 3 ? slot * 3 + 2 * half : half ? 7 : (slot - 3) * 3 + 1;
}

/* The slot of a half for row er of its outer column (middle = 0) or of the middle column; -1:
 * none. */
static __host__ __device__ constexpr int slot_at(int half, int middle, int er)
{
    return !middle ? er : half ? (er == 2 ? 3 : -1) : (er < 2 ? 3 + er : -1);
}

/* ---- the operands of a product. Its rows are 16 channels of the input, its columns two groups of
 * 8 channels of the slope, and it sums over pixels. input_at, slope_at: where a lane reads in a
 * tile, in bytes from the first of 16 pixels, which take STEPS steps. in, out: to which channels
 * the four results of a lane belong, for column group n ---- */

template <class V>
struct turned;

/* All 16 pixels in one step; the matrices are transposed as they are loaded. */
template <>
struct turned<bf16_values> {
    typedef bf16_values V;
    static const int STEPS = 1;

    template <class T, int COLS, int HALF, int STRIDE>
    static __device__ __forceinline__ int input_at(int lane, int)
    {
        int pixel = lane / 16 * 8 + lane % 8;
        return lane / 8 % 2 * T::PLANE + lane_pixel<COLS, T::PITCH, HALF, STRIDE>(pixel) * PIXEL;
    }
    template <class T, int COLS, int HALF>
    static __device__ __forceinline__ int slope_at(int lane, int, int slice)
    {
        int pixel = lane / 8 % 2 * 8 + lane % 8;
        return (2 * slice + lane / 16) * T::PLANE +
               lane_pixel<COLS, T::PITCH, HALF, 1>(pixel) * PIXEL;
    }
    template <int STRIDE>
    static __device__ __forceinline__ void input(unsigned (&a)[4], unsigned at)
    {
        ldmatrix_turned(a, at);
    }
    static __device__ __forceinline__ void slope(unsigned (&d)[4], unsigned at)
    {
        ldmatrix_turned(d, at);
    }
    static __device__ __forceinline__ int in(int lane, int e)
    {
        return lane / 4 + e / 2 * 8;
    }
    static __device__ __forceinline__ int out(int lane, int e, int n, int slice, int)
    {
        return slice * 16 + n * 8 + lane % 4 * 2 + e % 2;
    }
};

/* Eight pixels per step. A lane reads two of them, four apart, with two channels each: those of
 * rows q and q + 8, or of column q of both groups. To avoid bank conflicts, half a warp reads from
 * two planes whose banks are 64 bytes apart. */
template <>
struct turned<tf32_values> {
    typedef tf32_values V;
    static const int STEPS = 2;

    /* the plane of row or column q of a slice; planes: of the whole tile */
    static __host__ __device__ constexpr int plane(int q, int slice, int planes)
    {
        return planes == 4 ? q / 4 + q / 2 % 2 * 2
                           : slice / 2 * 8 + slice % 2 * 2 + q / 4 + q / 2 % 2 * 4;
    }
    template <class T, int COLS, int HALF, int STRIDE>
    static __device__ __forceinline__ int input_at(int lane, int step)
    {
        int q = lane / 4, pixel = lane_pixel<COLS, T::PITCH, HALF, STRIDE>(step * 8 + lane % 4);
        return plane(q, 0, T::CH) * T::PLANE + pixel * PIXEL + q % 2 * 8;
    }
    template <class T, int COLS, int HALF>
    static __device__ __forceinline__ int slope_at(int lane, int step, int slice)
    {
        int q = lane / 4, pixel = lane_pixel<COLS, T::PITCH, HALF, 1>(step * 8 + lane % 4);
        return plane(q, slice, T::CH) * T::PLANE + pixel * PIXEL + q % 2 * 8;
    }
    template <int STRIDE>
    static __device__ __forceinline__ void input(unsigned (&a)[4], unsigned at)
    {
        uint2 u = shared_pair(at), v = shared_pair(at + 4 * STRIDE * PIXEL);
        a[0] = u.x, a[1] = u.y, a[2] = v.x, a[3] = v.y;
    }
    static __device__ __forceinline__ void slope(unsigned (&d)[4], unsigned at)
    {
        uint2 u = shared_pair(at), v = shared_pair(at + 4 * PIXEL);
        d[0] = u.x, d[1] = v.x, d[2] = u.y, d[3] = v.y;
    }
    static __device__ __forceinline__ int in(int lane, int e)
    {
        int q = lane / 4;
        return plane(q, 0, 4) * 4 + q % 2 * 2 + e / 2;
    }
    static __device__ __forceinline__ int out(int lane, int e, int n, int slice, int planes)
    {
        int q = lane % 4 * 2 + e % 2;
        return plane(q, slice, planes) * 4 + q % 2 * 2 + n;
    }
};

template <class V>
static __device__ __forceinline__ void add_product(float (&acc)[SLOTS][2][4], int slot,
                                                   const unsigned (&a)[4], const unsigned (&d)[4])
{
    V::multiply(acc[slot][0], a, d[0], d[1]);
    V::multiply(acc[slot][1], a, d[2], d[3]);
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather(float (&acc)[SLOTS][2][4], unsigned x, unsigned z)
{
    typedef typename X::values V;
    unsigned d[3][4];
#pragma unroll
    for (int i = 0; i < R + 2; i++) {
        if (i < R)
            turned<V>::slope(d[i % 3], z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int middle = 0; middle < 2; middle++) {
            unsigned a[4];
            if (!middle || !HALF || i >= 2)
                turned<V>::template input<1>(a,
                                             x + (i * X::PITCH + (middle ? 1 : 2 * HALF)) * PIXEL);
#pragma unroll
            for (int er = 0; er < 3; er++)
                if (i - er >= 0 && i - er < R && slot_at(HALF, middle, er) >= 0)
                    add_product<V>(acc, slot_at(HALF, middle, er), a, d[(i - er) % 3]);
        }
    }
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather_skip(float (&acc)[SLOTS][2][4], unsigned x,
                                                   unsigned z)
{
    typedef typename X::values V;
#pragma unroll
    for (int i = 0; i < R; i++) {
        unsigned d[4];
        turned<V>::slope(d, z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int slot = 0; slot < SLOTS - HALF; slot++) {
            unsigned a[4];
            int tap = tap_of(HALF, slot);
            turned<V>::template input<2>(a, x + ((2 * i + tap / 3) * X::PITCH + tap % 3) * PIXEL);
            add_product<V>(acc, slot, a, d);
        }
    }
}

/* The products of a warp. Its role is a slice of the slope's channels and a half of the taps; it
 * also has a share of the pixels. */
template <class S>
static __device__ __forceinline__ void weight_products(float (&acc)[SLOTS][2][4], const char *smem)
{
    typedef typename S::x_tile X;
    typedef typename S::z_tile Z;
    typedef turned<typename S::V> W;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int slice = warp / 2 % S::KS, share = warp / 2 / S::KS;
    int strip = share % S::STRIPS, row = share / S::STRIPS * S::RW;
    unsigned x0 =
        shared_address(smem + S::X) + (row * S::STRIDE * X::PITCH + strip * 16 * S::STRIDE) * PIXEL;
    unsigned z0 = shared_address(smem) + ((row + Z::TOP) * Z::PITCH + Z::LEFT + strip * 16) * PIXEL;
#pragma unroll
    for (int step = 0; step < W::STEPS; step++) {
        unsigned x = x0 + W::template input_at<X, S::TW, S::TH / 2, S::STRIDE>(lane, step);
        unsigned z = z0 + W::template slope_at<Z, S::TW, S::TH / 2>(lane, step, slice);
        if constexpr (S::STRIDE == 1) {
            if (warp % 2)
                gather<1, S::RW, X, Z>(acc, x, z);
            else
                gather<0, S::RW, X, Z>(acc, x, z);
        } else {
            if (warp % 2)
                gather_skip<1, S::RW, X, Z>(acc, x, z);
            else
                gather_skip<0, S::RW, X, Z>(acc, x, z);
        }
    }
}

/* Sums over the warps with the same role and writes the result to the block's place in k.partial:
 * (role, slot, 2, lane) float4s. */
template <class S>
static __device__ __forceinline__ void write_block(const dro__conv3 &k, float (&acc)[SLOTS][2][4],
                                                   float4 *smem, int part, int group)
{
    const int ROLES = 2 * S::KS;
    int lane = threadIdx.x % 32, role = threadIdx.x / 32 % ROLES, share = threadIdx.x / 32 / ROLES;
    float4 *mine = smem + ((share - 1) * ROLES + role) * ROLE + lane;
#pragma unroll
    for (int i = 0; i < 2 * SLOTS; i++) {
        const float(&a)[4] = acc[i / 2][i % 2];
        if (share)
            mine[i * 32] = make_float4(a[0], a[1], a[2], a[3]);
    }
    __syncthreads();
    if (share)
        return;
    float4 *out = (float4 *)(k.partial + (size_t)k.turn * PLACE) +
                  ((size_t)(part * S::GROUPS + group) * gridDim.x + blockIdx.x) * ROLES * ROLE +
                  role * ROLE + lane;
#pragma unroll
    for (int i = 0; i < 2 * SLOTS; i++) {
        const float(&a)[4] = acc[i / 2][i % 2];
        float4 sum = make_float4(a[0], a[1], a[2], a[3]);
#pragma unroll
        for (int s = 0; s < S::SHARES - 1; s++) {
            float4 f = smem[(s * ROLES + role) * ROLE + i * 32 + lane];
            sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
        }
        out[i * 32] = sum;
    }
}

/* grads (out, real_in, taps) = the sums over blocks; 8 threads share the blocks of a float4. */
template <class V>
static __global__ void sum_kernel(const __grid_constant__ dro__conv3 k, int blocks)
{
    extern __shared__ __align__(128) char smem[];
    int size = k.out / 16 * 2 * ROLE, lane = threadIdx.x % SUM_LANES;
    int role = blockIdx.x * SUM_LANES / ROLE, slot = blockIdx.x % (ROLE / 32) / 2;
    int n = blockIdx.x % 2, group = blockIdx.y, part = blockIdx.z;
    if (role % 2 && slot == SLOTS - 1)
        return; /* half 1 has one slot fewer */
    const float4 *from = (const float4 *)(k.partial + (size_t)k.turn * PLACE) +
                         (size_t)(part * gridDim.y + group) * blocks * size +
                         blockIdx.x * SUM_LANES + lane;
    float x[4];
    if (!sum_of_blocks(from, size, blocks, smem, x))
        return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int in = group * 16 + turned<V>::in(lane, e);
        int out = turned<V>::out(lane, e, n, role / 2, k.out / V::PER);
        if (in < k.real_in)
            k.grads[part][(out * k.real_in + in) * TAPS + tap_of(role % 2, slot)] = x[e];
    }
}

#endif
