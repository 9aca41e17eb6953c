/* The data gradient of a block's tile: products into the stage, and from there to memory. */
#ifndef DRO_CUDA_CONV3_BACK_DATA_CUH
#define DRO_CUDA_CONV3_BACK_DATA_CUH

#include "conv3_back.cuh"

/* Where four channels of a pixel are among the 16 of the stage, so that neither writing nor reading eight of them
 * meets in a bank. */
static __device__ __forceinline__ int stage_at(int pixel, int four)
{
    return pixel * 64 + (((four & 1) << 1 | four >> 1) ^ (pixel & 2)) * 16;
}

template <class S, int STRIDE>
struct stager {
    char *stage;
    int row, col; /* of the warp's first pixel, in the tile of dx */

    __device__ __forceinline__ void put(int y, int x, const float (&acc)[2][4], int h) const
    {
        *(float4 *)(stage + stage_at(y * S::DW + x, threadIdx.x % 4)) =
            make_float4(acc[0][2 * h], acc[0][2 * h + 1], acc[1][2 * h], acc[1][2 * h + 1]);
    }
    /* row i of this warp; with a stride its pixels are every second one from `odd` on */
    __device__ __forceinline__ void write(int i, int odd, const float (&acc)[2][4]) const
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++)
            put(row + i + (S::TW == 8 ? h * S::DH / 2 : 0),
                col + (lane / 4 + (S::TW == 8 ? 0 : h * 8)) * STRIDE + odd, acc, h);
    }
    __device__ __forceinline__ void operator()(int i, const float (&acc)[2][4]) const
    {
        write(i, 0, acc);
    }
};

/* One row of the kernel (er, turned) for the even and the odd columns of dx. */
static __device__ __forceinline__ void parity_row(float (&acc)[2][2][4], const unsigned (&here)[4],
                                                  const unsigned (&right)[4], const uint4 *b)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        mma_bf16(acc[0][n], here, n ? b[1].z : b[1].x, n ? b[1].w : b[1].y);
        mma_bf16(acc[1][n], here, n ? b[0].z : b[0].x, n ? b[0].w : b[0].y);
        mma_bf16(acc[1][n], right, n ? b[2].z : b[2].x, n ? b[2].w : b[2].y);
    }
}

/* A stride of 2: even rows and columns of dx see one tap, odd ones two. */
template <int R, class T, class W>
static __device__ __forceinline__ void parity(unsigned from, const uint4 (&b)[TAPS], const W &w)
{
    float odd[2][2][4];
#pragma unroll
    for (int i = 0; i <= R; i++) {
        unsigned here[4], right[4];
        ldmatrix(here, from + i * T::PITCH * PIXEL);
        ldmatrix(right, from + (i * T::PITCH + 1) * PIXEL);
        if (i > 0) {
            parity_row(odd, here, right, b + 6);
            w.write(2 * i - 1, 0, odd[0]);
            w.write(2 * i - 1, 1, odd[1]);
        }
        if (i == R)
            break;
        float even[2][2][4] = {{{0}}};
        parity_row(even, here, right, b + 3);
        w.write(2 * i, 0, even[0]);
        w.write(2 * i, 1, even[1]);
#pragma unroll
        for (int j = 0; j < 16; j++)
            odd[j / 8][j / 4 % 2][j % 4] = 0;
        parity_row(odd, here, right, b);
    }
}

/* The warp's share of the products, into the stage. */
template <class S, int STRIDE>
static __device__ __forceinline__ void data_products(char *room)
{
    typedef typename S::z_tile T;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, ks = warp % S::KS;
    int strip = warp / S::KS % S::STRIPS, row = warp / S::KS / S::STRIPS * S::R;
    const uint4 *weights = (const uint4 *)(room + S::WEIGHTS) + ks * 32 + lane;
    uint4 b[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        b[i] = weights[i * S::KS * 32];
    unsigned from = shared_address(room) + (2 * ks + lane / 16) * T::PLANE +
                    (row * T::PITCH + strip * 16 +
                     lane_pixel<S::TW, T::PITCH, S::TH / 2, 1>(lane % 16)) *
                        PIXEL;
    stager<S, STRIDE> w = {room + S::SUM + ks * S::STAGE, row * STRIDE, strip * 16 * STRIDE};
    if constexpr (STRIDE == 1)
        roll<S::R, 1, T>(from, b, w);
    else
        parity<S::R, T>(from, b, w);
}

/* A thread's way down a tile of dx, eight channels of a column. */
template <class S>
struct route {
    typedef typename S::x_tile T;
    static const int EACH = THREADS_BACK / 2 / S::DW;
    int row, rows;    /* in the tile; of them in the image */
    int x, low, high; /* in shared memory: the mask, the stage */
    int at, step;

    __device__ __forceinline__ route(const place &p, int group)
    {
        int thread = this_thread(), ch = thread % 2, col = thread / 2 % S::DW;
        row = thread / 2 / S::DW;
        int left = p.height - p.row;
        rows = p.col + col >= p.width ? 0 : left < S::DH ? left : S::DH;
        x = S::X + ch * T::PLANE + ((row + 1) * T::PITCH + col + 1) * PIXEL;
        low = S::SUM + stage_at(row * S::DW + col, 2 * ch);
        high = S::SUM + stage_at(row * S::DW + col, 2 * ch + 1);
        at = (((p.row + row) * p.width + p.col + col) * p.channels + group * 16 + ch * 8) * 2;
        step = EACH * p.width * p.channels * 2;
    }
    __device__ __forceinline__ bool here(int i) const
    {
        return S::EXACT && S::DH * S::DW * 2 % THREADS_BACK == 0 || row + i * EACH < rows;
    }
};

/* What dx is made with: what was there already, and the z of the tail before. */
template <class S>
struct with {
    uint4 old[S::ITEMS], z[S::ITEMS];

    /* items FROM .. TO - 1 */
    template <int FROM, int TO>
    __device__ __forceinline__ void load(const dro__conv3 &k, int example, const place &p, int group)
    {
        const char *add = image_of(k.add, example, p), *from = image_of(k.x_z, example, p);
        route<S> w(p, group);
#pragma unroll
        for (int i = FROM; i < TO && i < S::ITEMS; i++) {
            old[i] = z[i] = make_uint4(0, 0, 0, 0);
            if (k.add && w.here(i))
                old[i] = *(const uint4 *)(add + (w.at + i * w.step));
            if (k.close && w.here(i))
                z[i] = *(const uint4 *)(from + (w.at + i * w.step));
        }
    }
};

/* dx of a tile: what was there already, the mask of the ReLU before it, and the sums of g and g z that its batch
 * norm needs. p: the tile's place in the image of dx. */
template <class S>
static __device__ __forceinline__ void finish_tile(const dro__conv3 &k, const char *room,
                                                   with<S> &a, int example, const place &p,
                                                   int group, float (&sums)[16])
{
    char *dx = (char *)image_of(k.dx, example, p);
    route<S> w(p, group);
    a.template load<2, S::ITEMS>(k, example, p, group);
#pragma unroll
    for (int i = 0; i < S::ITEMS; i++) {
        if (!w.here(i))
            continue;
        float v[8], o[8];
        open(a.old[i], v);
#pragma unroll
        for (int ks = 0; ks < S::KS; ks++) {
            const char *from = room + i * (w.EACH * S::DW * 64) + ks * S::STAGE;
            float4 l = *(const float4 *)(from + w.low), h = *(const float4 *)(from + w.high);
            v[0] += l.x, v[1] += l.y, v[2] += l.z, v[3] += l.w;
            v[4] += h.x, v[5] += h.y, v[6] += h.z, v[7] += h.w;
        }
        uint4 g = pack8(v);
        if (k.close && k.x_relu) {
            uint4 m = *(const uint4 *)(room + w.x + i * (w.EACH * S::x_tile::PITCH * PIXEL));
            g.x &= positive2(m.x), g.y &= positive2(m.y);
            g.z &= positive2(m.z), g.w &= positive2(m.w);
        }
        *(uint4 *)(dx + (w.at + i * w.step)) = g;
        if (!k.close)
            continue;
        open(g, v);
        open(a.z[i], o);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sums[j] += v[j], sums[8 + j] += v[j] * o[j];
    }
}

/* A thread's sums between two tiles, so that they take no registers: 16 floats. */
static __device__ __forceinline__ void put_sums(char *room, const float (&sums)[16])
{
    float4 *to = (float4 *)room + this_thread();
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i * THREADS_BACK] =
            make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

static __device__ __forceinline__ void get_sums(const char *room, float (&sums)[16])
{
    const float4 *from = (const float4 *)room + this_thread();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 f = from[i * THREADS_BACK];
        sums[4 * i] = f.x, sums[4 * i + 1] = f.y, sums[4 * i + 2] = f.z, sums[4 * i + 3] = f.w;
    }
}

/* Adds the block's sums, for eight channels of each lane, to the part's. */
static __device__ __forceinline__ void flush(const dro__conv3 &k, float *room, float (&sums)[16],
                                             int part, int group)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int index = spread_sum<16, 2>(sums);
    room[warp * 32 + index / 8 * 16 + lane % 2 * 8 + index % 8] = sums[0];
    __syncthreads();
    if (warp)
        return;
    int c = group * 16 + lane % 16;
    double sum = 0, first;
    for (int w = 0; w < WARPS; w++)
        sum += (double)room[w * 32 + lane];
    first = __shfl_sync(~0u, sum, lane % 16);
    if (lane >= 16) /* of g (z - mean) */
        sum -= first * (double)k.x_numbers.mean[part * k.in + c];
    add_sum(&k.x_numbers.back[(2 * part + lane / 16) * k.in + c], k.in, sum);
}

#endif
