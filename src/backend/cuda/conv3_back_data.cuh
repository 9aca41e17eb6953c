/* The data gradient of a block's tile: products are written to a stage in shared memory, and from
 * there to global memory. */
#ifndef DRO_CUDA_CONV3_BACK_DATA_CUH
#define DRO_CUDA_CONV3_BACK_DATA_CUH

#include "conv3_back.cuh"

/* The offset in the stage of four of a pixel's 16 channels. They are permuted so that neither
 * writes nor reads of eight such groups have bank conflicts. */
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
    /* row i of this warp; with a stride of 2, every second pixel, beginning with `odd` */
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

/* One row of the rotated kernel (er), for the even and the odd columns of dx. */
template <class V>
static __device__ __forceinline__ void parity_row(float (&acc)[2][2][4], const unsigned (&here)[4],
                                                  const unsigned (&right)[4], const uint4 *b)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        V::multiply(acc[0][n], here, n ? b[1].z : b[1].x, n ? b[1].w : b[1].y);
        V::multiply(acc[1][n], here, n ? b[0].z : b[0].x, n ? b[0].w : b[0].y);
        V::multiply(acc[1][n], right, n ? b[2].z : b[2].x, n ? b[2].w : b[2].y);
    }
}

/* Stride 2: even rows and columns of dx get one tap, odd ones two. */
template <class S, class W>
static __device__ __forceinline__ void parity(unsigned from, const uint4 *weights, const W &w)
{
    typedef typename S::z_tile T;
    typedef typename S::V V;
    float acc[2 * S::R][2][2][4] = {{{{0}}}};
#pragma unroll
    for (int d = 0; d < S::DEPTH; d++) {
        uint4 b[TAPS];
        take_taps(b, weights + d * 32, S::KS * S::DEPTH * 32);
#pragma unroll
        for (int i = 0; i <= S::R; i++) {
            unsigned here[4], right[4];
            ldmatrix(here, from + 2 * d * T::PLANE + i * T::PITCH * PIXEL);
            ldmatrix(right, from + 2 * d * T::PLANE + (i * T::PITCH + 1) * PIXEL);
            if (i > 0)
                parity_row<V>(acc[2 * i - 1], here, right, b + 6);
            if (i < S::R)
                parity_row<V>(acc[2 * i], here, right, b + 3);
#pragma unroll
            for (int row = 2 * i - 1; row <= 2 * i; row++)
                if (d == S::DEPTH - 1 && row >= 0 && row < 2 * S::R)
                    w.write(row, 0, acc[row][0]), w.write(row, 1, acc[row][1]);
            if (i < S::R)
                parity_row<V>(acc[2 * i + 1], here, right, b);
        }
    }
}

/* Computes the warp's share of the products and writes it to the stage. */
template <class S>
static __device__ __forceinline__ void data_products(char *smem)
{
    typedef typename S::z_tile T;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, ks = warp % S::KS;
    int strip = warp / S::KS % S::STRIPS, row = warp / S::KS / S::STRIPS * S::R;
    const uint4 *weights = (const uint4 *)(smem + S::WEIGHTS) + ks * S::DEPTH * 32 + lane;
    unsigned from = shared_address(smem) + (S::PARTS * ks + lane / 16) * T::PLANE +
                    (row * T::PITCH + strip * 16 +
                     lane_pixel<S::TW, T::PITCH, S::TH / 2, 1>(lane % 16)) *
                        PIXEL;
    stager<S, S::STRIDE> w = {smem + S::SUM + ks * S::STAGE, row * S::STRIDE,
                              strip * 16 * S::STRIDE};
    if constexpr (S::STRIDE == 2) {
        parity<S>(from, weights, w);
    } else if constexpr (S::DEPTH == 1) {
        uint4 b[TAPS];
        take_taps(b, weights, S::KS * 32);
        roll<S::R, 1, T>(from, b, w);
    } else {
        roll_deep<S::R, 1, S::DEPTH, S::KS * S::DEPTH, T>(from, weights, w);
    }
}

/* The part of a tile of dx that a thread completes: PER channels of one column, row after row. */
template <class S>
struct route {
    typedef typename S::x_tile T;
    typedef typename S::V V;
    static const int EACH = THREADS_BACK / S::PARTS / S::DW;
    int row, rows;          /* first row in the tile; rows inside the image */
    int x, stage[V::PER / 4]; /* shared memory: the mask, four channels each */
    int at, step;

    __device__ __forceinline__ route(const place &p, int group)
    {
        int thread = this_thread(), ch = thread % S::PARTS, col = thread / S::PARTS % S::DW;
        row = thread / S::PARTS / S::DW;
        int left = p.height - p.row;
        rows = p.col + col >= p.width ? 0 : left < S::DH ? left : S::DH;
        x = S::X + ch * T::PLANE + ((row + 1) * T::PITCH + col + 1) * PIXEL;
        for (int i = 0; i < V::PER / 4; i++)
            stage[i] = S::SUM + stage_at(row * S::DW + col, V::PER / 4 * ch + i);
        at = (((p.row + row) * p.width + p.col + col) * p.channels + group * 16 + ch * V::PER) *
             V::SIZE;
        step = EACH * p.width * p.channels * V::SIZE;
    }
    __device__ __forceinline__ bool here(int i) const
    {
        return S::EXACT && S::DH * S::DW * S::PARTS % THREADS_BACK == 0 || row + i * EACH < rows;
    }
};

/* The other inputs of dx: the slope accumulated before, and the z of the input's tail. */
template <class S>
struct with {
    uint4 old[S::ITEMS], z[S::ITEMS];

    /* items FROM .. TO - 1 */
    template <int FROM, int TO>
    __device__ __forceinline__ void load(const dro__conv3 &k, int example, const place &p,
                                         int group)
    {
        typedef typename S::V V;
        const char *add = image_of<V>(k.add, example, p), *from = image_of<V>(k.x_z, example, p);
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

/* Completes dx of a tile: adds the slope accumulated before, applies the mask of the input's ReLU,
 * and adds to the sums of g and g z that the input's batch norm needs. p: the tile's place in the
 * image of dx. */
template <class S>
static __device__ __forceinline__ void finish_tile(const dro__conv3 &k, const char *smem,
                                                   with<S> &a, int example, const place &p,
                                                   int group, float (&sums)[2 * S::V::PER])
{
    typedef typename S::V V;
    char *dx = (char *)image_of<V>(k.dx, example, p);
    route<S> w(p, group);
    a.template load<2, S::ITEMS>(k, example, p, group);
#pragma unroll
    for (int i = 0; i < S::ITEMS; i++) {
        if (!w.here(i))
            continue;
        float v[V::PER], o[V::PER];
        V::open(a.old[i], v);
#pragma unroll
        for (int q = 0; q < S::KS * V::PER / 4; q++) {
            int ks = q / (V::PER / 4), four = q % (V::PER / 4);
            float4 f =
                *(const float4 *)(smem + i * (w.EACH * S::DW * 64) + ks * S::STAGE + w.stage[four]);
            v[4 * four] += f.x, v[4 * four + 1] += f.y, v[4 * four + 2] += f.z,
                v[4 * four + 3] += f.w;
        }
        uint4 g = V::close(v);
        if (k.close && k.x_relu)
            g = V::masked(g,
                          *(const uint4 *)(smem + w.x + i * (w.EACH * S::x_tile::PITCH * PIXEL)));
        *(uint4 *)(dx + (w.at + i * w.step)) = g;
        if (!k.close)
            continue;
        V::open(g, v);
        V::open(a.z[i], o);
#pragma unroll
        for (int j = 0; j < V::PER; j++)
            sums[j] += v[j], sums[V::PER + j] += v[j] * o[j];
    }
}

/* Keeps a thread's sums in shared memory between tiles, to save registers. */
template <int COUNT>
static __device__ __forceinline__ void put_sums(char *smem, const float (&sums)[COUNT])
{
    float4 *to = (float4 *)smem + this_thread();
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
        to[i * THREADS_BACK] =
            make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

template <int COUNT>
static __device__ __forceinline__ void get_sums(const char *smem, float (&sums)[COUNT])
{
    const float4 *from = (const float4 *)smem + this_thread();
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        float4 f = from[i * THREADS_BACK];
        sums[4 * i] = f.x, sums[4 * i + 1] = f.y, sums[4 * i + 2] = f.z, sums[4 * i + 3] = f.w;
    }
}

/* Adds the block's sums, for PER channels of each lane, to those of the part. */
template <class S>
static __device__ __forceinline__ void flush(const dro__conv3 &k, float *smem,
                                             float (&sums)[2 * S::V::PER], int part, int group)
{
    const int PER = S::V::PER;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int index = spread_sum<2 * PER, S::PARTS>(sums);
    smem[warp * 32 + index / PER * 16 + lane % S::PARTS * PER + index % PER] = sums[0];
    __syncthreads();
    if (warp)
        return;
    int c = group * 16 + lane % 16;
    double sum = 0, first;
    for (int w = 0; w < WARPS; w++)
        sum += (double)smem[w * 32 + lane];
    first = __shfl_sync(~0u, sum, lane % 16);
    if (lane >= 16) /* of g (z - mean) */
        sum -= first * (double)k.x_numbers.mean[part * k.in + c];
    add_sum(&k.x_numbers.back[(2 * part + lane / 16) * k.in + c], k.in, sum);
}

#endif
