/* The weight gradient of a block's tiles: products that stay in registers, and the sum over the blocks. */
#ifndef DRO_CUDA_CONV3_BACK_WEIGHT_CUH
#define DRO_CUDA_CONV3_BACK_WEIGHT_CUH

#include "conv3_back.cuh"

/* The taps of a warp: half 0 has the left column and two of the middle one, half 1 the right column and one.
 * slot 0 .. 2: rows of the outer column; the rest: of the middle one. */
static __host__ __device__ __forceinline__ int tap_of(int half, int slot)
{
    return slot < 3 ? slot * 3 + 2 * half : half ? 7 : (slot - 3) * 3 + 1;
}

static __device__ __forceinline__ void add_product(float (&acc)[SLOTS][2][4], int slot,
                                                   const unsigned (&a)[4], const unsigned (&d)[4])
{
    mma_bf16(acc[slot][0], a, d[0], d[1]);
    mma_bf16(acc[slot][1], a, d[2], d[3]);
}

/* Which slot of a half has row er of its outer (0) or the middle column; -1: none. */
static __host__ __device__ constexpr int slot_at(int half, int middle, int er)
{
    return !middle ? er : half ? (er == 2 ? 3 : -1) : (er < 2 ? 3 + er : -1);
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather(float (&acc)[SLOTS][2][4], unsigned x, unsigned z)
{
    unsigned d[3][4];
#pragma unroll
    for (int i = 0; i < R + 2; i++) {
        if (i < R)
            ldmatrix_turned(d[i % 3], z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int middle = 0; middle < 2; middle++) {
            unsigned a[4];
            if (!middle || !HALF || i >= 2)
                ldmatrix_turned(a, x + (i * X::PITCH + (middle ? 1 : 2 * HALF)) * PIXEL);
#pragma unroll
            for (int er = 0; er < 3; er++)
                if (i - er >= 0 && i - er < R && slot_at(HALF, middle, er) >= 0)
                    add_product(acc, slot_at(HALF, middle, er), a, d[(i - er) % 3]);
        }
    }
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather_skip(float (&acc)[SLOTS][2][4], unsigned x, unsigned z)
{
#pragma unroll
    for (int i = 0; i < R; i++) {
        unsigned d[4];
        ldmatrix_turned(d, z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int slot = 0; slot < SLOTS - HALF; slot++) {
            unsigned a[4];
            int tap = tap_of(HALF, slot);
            ldmatrix_turned(a, x + ((2 * i + tap / 3) * X::PITCH + tap % 3) * PIXEL);
            add_product(acc, slot, a, d);
        }
    }
}

/* A warp's role: its channels of the slope (ks), its half of the taps, its share of the pixels. */
template <class S, int STRIDE>
static __device__ __forceinline__ void weight_products(float (&acc)[SLOTS][2][4], const char *room)
{
    typedef typename S::x_tile X;
    typedef typename S::z_tile Z;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int ks = warp / 2 % S::KS, share = warp / 2 / S::KS;
    int strip = share % S::STRIPS, row = share / S::STRIPS * S::RW;
    int i = lane / 16 * 8 + lane % 8, j = lane / 8 % 2 * 8 + lane % 8; /* pixels of x and of z */
    unsigned x = shared_address(room + S::X) + lane / 8 % 2 * X::PLANE +
                 (row * STRIDE * X::PITCH + strip * 16 * STRIDE +
                  lane_pixel<S::TW, X::PITCH, S::TH / 2, STRIDE>(i)) *
                     PIXEL;
    unsigned z = shared_address(room) + (2 * ks + lane / 16) * Z::PLANE +
                 ((row + Z::TOP) * Z::PITCH + Z::LEFT + strip * 16 +
                  lane_pixel<S::TW, Z::PITCH, S::TH / 2, 1>(j)) *
                     PIXEL;
    if constexpr (STRIDE == 1) {
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

/* The sums of the warps of one role, into the block's place of k.partial: (role, slot, 2, lane) float4s. */
template <class S>
static __device__ __forceinline__ void write_block(const dro__conv3 &k, float (&acc)[SLOTS][2][4],
                                                   float4 *room, int part, int group)
{
    const int ROLES = 2 * S::KS;
    int lane = threadIdx.x % 32, role = threadIdx.x / 32 % ROLES, share = threadIdx.x / 32 / ROLES;
    float4 *mine = room + ((share - 1) * ROLES + role) * ROLE + lane;
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
            float4 f = room[(s * ROLES + role) * ROLE + i * 32 + lane];
            sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
        }
        out[i * 32] = sum;
    }
}

/* grads (out, real_in, taps) = the sums over blocks; 8 threads share the blocks of a float4. */
static __global__ void sum_kernel(const __grid_constant__ dro__conv3 k, int blocks)
{
    extern __shared__ __align__(128) char room[];
    int size = k.out / 16 * 2 * ROLE, lane = threadIdx.x % SUM_LANES;
    int role = blockIdx.x * SUM_LANES / ROLE, slot = blockIdx.x % (ROLE / 32) / 2;
    int n = blockIdx.x % 2, group = blockIdx.y, part = blockIdx.z;
    if (role % 2 && slot == SLOTS - 1)
        return; /* half 1 has one slot less */
    const float4 *from = (const float4 *)(k.partial + (size_t)k.turn * PLACE) +
                         (size_t)(part * gridDim.y + group) * blocks * size +
                         blockIdx.x * SUM_LANES + lane;
    float x[4];
    if (!sum_of_blocks(from, size, blocks, room, x))
        return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int in = group * 16 + lane / 4 + e / 2 * 8;
        int out = role / 2 * 16 + n * 8 + lane % 4 * 2 + e % 2;
        if (in < k.real_in)
            k.grads[part][(out * k.real_in + in) * TAPS + tap_of(role % 2, slot)] = x[e];
    }
}

#endif
