/* Pooling. A thread keeps its channels and goes from pixel to pixel of what is written, so that the order of every
 * sum is fixed. */
#include "device.cuh"

enum { POOL_BLOCKS = 132 * 8 };

/* Pixel i of (examples, height, width). */
struct pixel {
    size_t n;
    int r, c;
};

static __device__ __forceinline__ pixel pixel_of(size_t i, const dro__extent &e)
{
    pixel p;
    size_t rows = i >> 32 ? i / e.width : (unsigned)i / (unsigned)e.width;
    p.c = (int)(i - rows * e.width);
    p.n = rows >> 32 ? rows / e.height : (unsigned)rows / (unsigned)e.height;
    p.r = (int)(rows - p.n * e.height);
    return p;
}

static __device__ __forceinline__ size_t at(size_t n, int r, int c, const dro__extent &e)
{
    return (n * e.height + r) * e.width + c;
}

/* ---- windows ---- */

template <typename W, bool MAX>
static __global__ void __launch_bounds__(THREADS)
    pool_kernel(size_t count, int wide, dro__extent in, dro__extent out, dro__gpu_window k,
                dro__typed x, dro__typed y, uint16_t *chosen)
{
    enum { V = W::V };
    walk w = begin_walk<W>(0, count, out.channels, wide);
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, out);
        float best[V], v[V];
        int which[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            best[j] = MAX ? -INFINITY : 0, which[j] = -1;
        for (int ky = 0; ky < k.kernel[0]; ky++)
            for (int kx = 0; kx < k.kernel[1]; kx++) {
                int r = p.r * k.stride[0] + ky - k.pad[0], c = p.c * k.stride[1] + kx - k.pad[1];
                if (r < 0 || r >= in.height || c < 0 || c >= in.width)
                    continue;
                W::open(W::load(x, at(p.n, r, c, in) * x.stride + w.c), v);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (!MAX)
                        best[j] += v[j];
                    else if (v[j] > best[j] || which[j] < 0 || isnan(v[j]))
                        best[j] = v[j], which[j] = ky * k.kernel[1] + kx;
                }
            }
#pragma unroll
        for (int j = 0; j < V; j++)
            if (!MAX)
                best[j] /= (float)(k.kernel[0] * k.kernel[1]);
        W::store(y, w.i * y.stride + w.c, best);
        if (MAX && chosen)
#pragma unroll
            for (int j = 0; j < V; j++)
                chosen[w.i * out.channels + w.c + j] = (uint16_t)which[j];
    }
}

#define POOL(W, MAX)                                                                               \
    do {                                                                                           \
        sharing sh = share<W>(count, out.channels, 1, POOL_BLOCKS);                                \
        pool_kernel<W, MAX><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(count, sh.wide, in, out, \
                                                                          k, x, y, chosen);        \
    } while (0)

template <bool MAX>
static void pool(cudaStream_t s, int n, dro__extent in, dro__extent out, dro__gpu_window k,
                 dro__typed x, dro__typed y, uint16_t *chosen)
{
    size_t count = (size_t)n * out.height * out.width;
    dense(&x, in.channels);
    dense(&y, out.channels);
    bool fits = in_words(x, y.bf16) && in_words(y, y.bf16);
    if (fits && y.bf16 && out.channels % eights::V == 0)
        POOL(eights, MAX);
    else if (fits && !y.bf16 && out.channels % fours::V == 0)
        POOL(fours, MAX);
    else
        POOL(ones, MAX);
}

extern "C" void dro__gpu_max_pool(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                  dro__gpu_window k, dro__typed x, dro__typed y, uint16_t *chosen)
{
    pool<true>(s, n, in, out, k, x, y, chosen);
}

extern "C" void dro__gpu_avg_pool(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                  dro__gpu_window k, dro__typed x, dro__typed y)
{
    pool<false>(s, n, in, out, k, x, y, NULL);
}

/* Every window that holds the pixel gives its share. */
template <typename W>
static __global__ void __launch_bounds__(THREADS)
    pool_back_kernel(size_t count, int wide, dro__extent in, dro__extent out, dro__gpu_window k,
                     const uint16_t *chosen, dro__typed dy, dro__typed add, dro__typed dx)
{
    enum { V = W::V };
    walk w = begin_walk<W>(0, count, in.channels, wide);
    float share = 1 / (float)(k.kernel[0] * k.kernel[1]);
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, in);
        float sum[V] = {0}, v[V];
        /* the windows' rows and columns: ky = bottom - r * stride within the kernel */
        int bottom = p.r + k.pad[0], right = p.c + k.pad[1];
        int last_r = min(bottom / k.stride[0], out.height - 1);
        int last_c = min(right / k.stride[1], out.width - 1);
        for (int r = last_r; r >= 0 && bottom - r * k.stride[0] < k.kernel[0]; r--)
            for (int c = last_c; c >= 0 && right - c * k.stride[1] < k.kernel[1]; c--) {
                size_t from = at(p.n, r, c, out);
                int tap = (bottom - r * k.stride[0]) * k.kernel[1] + right - c * k.stride[1];
                W::open(W::load(dy, from * dy.stride + w.c), v);
#pragma unroll
                for (int j = 0; j < V; j++)
                    if (!chosen || chosen[from * in.channels + w.c + j] == tap)
                        sum[j] += v[j];
            }
        if (add.p)
            W::open(W::load(add, w.i * add.stride + w.c), v);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] = (chosen ? sum[j] : sum[j] * share) + (add.p ? v[j] : 0);
        W::store(dx, w.i * dx.stride + w.c, sum);
    }
}

#define POOL_BACK(W)                                                                               \
    do {                                                                                           \
        sharing sh = share<W>(count, in.channels, 1, POOL_BLOCKS);                                 \
        pool_back_kernel<W><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(                         \
            count, sh.wide, in, out, k, chosen, dy, add, dx);                                      \
    } while (0)

extern "C" void dro__gpu_pool_back(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                   dro__gpu_window k, const uint16_t *chosen, dro__typed dy,
                                   dro__typed add, dro__typed dx)
{
    size_t count = (size_t)n * in.height * in.width;
    dense(&dy, in.channels);
    dense(&add, in.channels);
    dense(&dx, in.channels);
    bool fits = in_words(dy, dx.bf16) && in_words(add, dx.bf16) && in_words(dx, dx.bf16);
    if (fits && dx.bf16 && in.channels % eights::V == 0)
        POOL_BACK(eights);
    else if (fits && !dx.bf16 && in.channels % fours::V == 0)
        POOL_BACK(fours);
    else
        POOL_BACK(ones);
}

/* ---- the whole plane: a block for an example and some channels, the pixels shared out ---- */

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    global_pool_kernel(dro__extent in, int wide, dro__typed x, dro__typed y)
{
    enum { V = W::V };
    __shared__ float room[THREADS * V];
    int area = in.height * in.width, tall = THREADS / wide, row = threadIdx.x / wide;
    int lane = threadIdx.x % wide, c = (blockIdx.x * wide + lane) * V;
    size_t n = blockIdx.y;
    float sum[V] = {0}, v[V];
    if (row < tall && c < in.channels)
#pragma unroll 4
        for (int p = row; p < area; p += tall) {
            W::open(W::load(x, (n * area + p) * x.stride + c), v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[j] += v[j];
        }
#pragma unroll
    for (int j = 0; j < V; j++)
        room[threadIdx.x * V + j] = sum[j];
    __syncthreads();
    if (row > 0 || c >= in.channels)
        return;
    for (int k = 1; k < tall; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] += room[(k * wide + lane) * V + j];
#pragma unroll
    for (int j = 0; j < V; j++)
        write_at(y, n * in.channels + c + j, sum[j] / (float)area);
}

extern "C" void dro__gpu_global_pool(cudaStream_t s, int n, dro__extent in, dro__typed x,
                                     dro__typed y)
{
    dense(&x, in.channels);
#define GLOBAL(W)                                                                                  \
    do {                                                                                           \
        sharing sh = share<W>(1, in.channels, 1, 1);                                               \
        global_pool_kernel<W><<<dim3(sh.tiles, n), THREADS, 0, s>>>(in, sh.wide, x, y);            \
    } while (0)
    if (x.bf16 && in.channels % eights::V == 0 && in_words(x, 1))
        GLOBAL(eights);
    else if (!x.bf16 && in.channels % fours::V == 0 && in_words(x, 0))
        GLOBAL(fours);
    else
        GLOBAL(ones);
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    global_pool_back_kernel(size_t count, int wide, dro__extent in, dro__typed dy, dro__typed add,
                            dro__typed dx)
{
    enum { V = W::V };
    walk w = begin_walk<W>(0, count, in.channels, wide);
    int area = in.height * in.width;
    for (; w.i < w.to; w.i += w.step) {
        size_t n = w.i / area;
        float v[V] = {0};
        if (add.p)
            W::open(W::load(add, w.i * add.stride + w.c), v);
#pragma unroll
        for (int j = 0; j < V; j++)
            v[j] += read_at(dy, n * in.channels + w.c + j) / (float)area;
        W::store(dx, w.i * dx.stride + w.c, v);
    }
}

extern "C" void dro__gpu_global_pool_back(cudaStream_t s, int n, dro__extent in, dro__typed dy,
                                          dro__typed add, dro__typed dx)
{
    size_t count = (size_t)n * in.height * in.width;
    dense(&add, in.channels);
    dense(&dx, in.channels);
    bool fits = in_words(add, dx.bf16) && in_words(dx, dx.bf16);
#define GLOBAL_BACK(W)                                                                             \
    do {                                                                                           \
        sharing sh = share<W>(count, in.channels, 1, POOL_BLOCKS);                                 \
        global_pool_back_kernel<W><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(                  \
            count, sh.wide, in, dy, add, dx);                                                      \
    } while (0)
    if (fits && dx.bf16 && in.channels % eights::V == 0)
        GLOBAL_BACK(eights);
    else if (fits && !dx.bf16 && in.channels % fours::V == 0)
        GLOBAL_BACK(fours);
    else
        GLOBAL_BACK(ones);
}
