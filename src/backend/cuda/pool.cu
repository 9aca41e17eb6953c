/* Pooling. A thread keeps its channels and loops over pixels of the output, so that the order of
 * every sum is fixed. */
#include "device.cuh"

enum { POOL_BLOCKS = 132 * 8 };

/* ---- windows: K x K with a stride of S, or (K = 0) of a size known at run time ---- */

/* Which element of its window each of V channels took. */
template <int V> struct __align__(2 * V) choices {
    uint16_t of[V];
};

template <int K, int S> struct shape_of {
    const dro__gpu_window &k;
    __device__ __forceinline__ int kernel(int d) const { return K ? K : k.kernel[d]; }
    __device__ __forceinline__ int stride(int d) const { return K ? S : k.stride[d]; }
};

template <typename W, int K, int S, bool MAX>
static __global__ void __launch_bounds__(THREADS)
    pool_kernel(size_t count, int wide, dro__extent in, dro__extent out, dro__gpu_window window,
                dro__typed x, dro__typed y, uint16_t *chosen)
{
    enum { V = W::V };
    shape_of<K, S> k = {window};
    walk w = begin_walk<W>(0, count, out.channels, wide);
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, out);
        int top = p.r * k.stride(0) - window.pad[0], left = p.c * k.stride(1) - window.pad[1];
        long long corner = ((long long)p.n * in.height + top) * in.width + left;
        float best[V], v[V];
        int which[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            best[j] = MAX ? -INFINITY : 0, which[j] = -1;
#pragma unroll
        for (int ky = 0; ky < k.kernel(0); ky++)
#pragma unroll
            for (int kx = 0; kx < k.kernel(1); kx++) {
                if ((unsigned)(top + ky) >= (unsigned)in.height ||
                    (unsigned)(left + kx) >= (unsigned)in.width)
                    continue;
                W::open(W::load(x, (corner + ky * in.width + kx) * x.stride + w.c), v);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    if (!MAX)
                        best[j] += v[j];
                    else if (v[j] > best[j] || which[j] < 0 || isnan(v[j]))
                        best[j] = v[j], which[j] = ky * k.kernel(1) + kx;
                }
            }
        choices<V> taken;
#pragma unroll
        for (int j = 0; j < V; j++) {
            best[j] = MAX ? best[j] : best[j] / (float)(k.kernel(0) * k.kernel(1));
            taken.of[j] = (uint16_t)which[j];
        }
        W::store(y, w.i * y.stride + w.c, best);
        if (MAX && chosen)
            *(choices<V> *)(chosen + w.i * out.channels + w.c) = taken;
    }
}

/* Runs a kernel with the widest words that fit, and in a version for the usual windows. */
#define BY_WINDOW(call, W, k)                                                                      \
    do {                                                                                           \
        bool three = (k).kernel[0] == 3 && (k).kernel[1] == 3 && (k).stride[0] == (k).stride[1];   \
        if (three && (k).stride[0] == 1)                                                           \
            call(W, 3, 1);                                                                         \
        else if (three && (k).stride[0] == 2)                                                      \
            call(W, 3, 2);                                                                         \
        else                                                                                       \
            call(W, 0, 0);                                                                         \
    } while (0)
#define BY_WIDTH(call, fits, bf16, channels, k)                                                    \
    do {                                                                                           \
        if ((fits) && (bf16) && (channels) % eights::V == 0)                                       \
            BY_WINDOW(call, eights, k);                                                            \
        else if ((fits) && !(bf16) && (channels) % fours::V == 0)                                  \
            BY_WINDOW(call, fours, k);                                                             \
        else                                                                                       \
            call(ones, 0, 0);                                                                      \
    } while (0)

#define POOL(W, K, S)                                                                              \
    do {                                                                                           \
        sharing sh = share<W>(count, out.channels, 1, POOL_BLOCKS);                                \
        pool_kernel<W, K, S, MAX><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(                   \
            count, sh.wide, in, out, k, x, y, chosen);                                             \
    } while (0)

template <bool MAX> static void pool(cudaStream_t s, const dro__layer_pass *p, uint16_t *chosen)
{
    dro__extent in = p->in, out = p->out;
    dro__gpu_window k = p->k;
    dro__typed x = p->x, y = p->y;
    size_t count = (size_t)p->n * out.height * out.width;
    dense(&x, in.channels);
    dense(&y, out.channels);
    bool fits = in_words(x, y.bf16) && in_words(y, y.bf16);
    BY_WIDTH(POOL, fits, y.bf16, out.channels, k);
}

extern "C" void dro__gpu_max_pool(cudaStream_t s, const dro__layer_pass *p)
{
    pool<true>(s, p, p->chosen);
}

extern "C" void dro__gpu_avg_pool(cudaStream_t s, const dro__layer_pass *p)
{
    pool<false>(s, p, NULL);
}

/* Adds up the shares of all windows that contain the pixel. */
template <typename W, int K, int S>
static __global__ void __launch_bounds__(THREADS)
    pool_back_kernel(size_t count, int wide, dro__extent in, dro__extent out,
                     dro__gpu_window window, const uint16_t *chosen, dro__typed dy, dro__typed add,
                     dro__typed dx)
{
    enum { V = W::V };
    shape_of<K, S> k = {window};
    walk w = begin_walk<W>(0, count, in.channels, wide);
    float share = 1 / (float)(k.kernel(0) * k.kernel(1));
    int rows = (k.kernel(0) - 1) / k.stride(0) + 1, cols = (k.kernel(1) - 1) / k.stride(1) + 1;
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, in);
        float sum[V] = {0}, v[V];
        /* the window (r, c) has this pixel as element (bottom - r stride, right - c stride) */
        int bottom = p.r + window.pad[0], right = p.c + window.pad[1];
        int last_r = bottom / k.stride(0), last_c = right / k.stride(1);
        long long last = ((long long)p.n * out.height + last_r) * out.width + last_c;
#pragma unroll
        for (int a = 0; a < rows; a++)
#pragma unroll
            for (int b = 0; b < cols; b++) {
                int r = last_r - a, c = last_c - b;
                int ky = bottom - r * k.stride(0), kx = right - c * k.stride(1);
                if ((unsigned)r >= (unsigned)out.height || (unsigned)c >= (unsigned)out.width ||
                    ky >= k.kernel(0) || kx >= k.kernel(1))
                    continue;
                size_t from = last - a * out.width - b;
                choices<V> taken;
                if (chosen)
                    taken = *(const choices<V> *)(chosen + from * in.channels + w.c);
                W::open(W::load(dy, from * dy.stride + w.c), v);
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += !chosen || taken.of[j] == ky * k.kernel(1) + kx ? v[j] : 0;
            }
        if (add.p)
            W::open(W::load(add, w.i * add.stride + w.c), v);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] = (chosen ? sum[j] : sum[j] * share) + (add.p ? v[j] : 0);
        W::store(dx, w.i * dx.stride + w.c, sum);
    }
}

#define POOL_BACK(W, K, S)                                                                         \
    do {                                                                                           \
        sharing sh = share<W>(count, in.channels, 1, POOL_BLOCKS);                                 \
        pool_back_kernel<W, K, S><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(                   \
            count, sh.wide, in, out, k, chosen, dy, add, dx);                                      \
    } while (0)

extern "C" void dro__gpu_pool_back(cudaStream_t s, const dro__layer_pass *p)
{
    dro__extent in = p->in, out = p->out;
    dro__gpu_window k = p->k;
    dro__typed dy = p->dy, add = p->add, dx = p->dx;
    const uint16_t *chosen = p->chosen;
    size_t count = (size_t)p->n * in.height * in.width;
    dense(&dy, in.channels);
    dense(&add, in.channels);
    dense(&dx, in.channels);
    bool fits = in_words(dy, dx.bf16) && in_words(add, dx.bf16) && in_words(dx, dx.bf16);
    BY_WIDTH(POOL_BACK, fits, dx.bf16, in.channels, k);
}

/* ---- the whole plane: one block for an example and some channels, threads share the pixels
 * ---- */

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    global_pool_kernel(dro__extent in, int wide, dro__typed x, dro__typed y)
{
    enum { V = W::V };
    __shared__ float smem[THREADS * V];
    int area = in.height * in.width, tall = THREADS / wide, row = threadIdx.x / wide;
    int lane = threadIdx.x % wide, c = (blockIdx.y * wide + lane) * V;
    size_t n = blockIdx.x; /* there may be more examples than blockIdx.y can count */
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
        smem[threadIdx.x * V + j] = sum[j];
    __syncthreads();
    if (row > 0 || c >= in.channels)
        return;
    for (int k = 1; k < tall; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
            sum[j] += smem[(k * wide + lane) * V + j];
#pragma unroll
    for (int j = 0; j < V; j++)
        write_at(y, n * in.channels + c + j, sum[j] / (float)area);
}

extern "C" void dro__gpu_global_pool(cudaStream_t s, const dro__layer_pass *p)
{
    dro__typed x = p->x;
    dense(&x, p->in.channels);
#define GLOBAL(W)                                                                                  \
    do {                                                                                           \
        sharing sh = share<W>(1, p->in.channels, 1, 1);                                            \
        global_pool_kernel<W><<<dim3(p->n, sh.tiles), THREADS, 0, s>>>(p->in, sh.wide, x, p->y);   \
    } while (0)
    WIDEST(GLOBAL, p->in.channels, x.bf16, in_words(x, x.bf16));
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

extern "C" void dro__gpu_global_pool_back(cudaStream_t s, const dro__layer_pass *p)
{
    dro__extent in = p->in;
    dro__typed add = p->add, dx = p->dx;
    size_t count = (size_t)p->n * in.height * in.width;
    dense(&add, in.channels);
    dense(&dx, in.channels);
#define GLOBAL_BACK(W)                                                                             \
    do {                                                                                           \
        sharing sh = share<W>(count, in.channels, 1, POOL_BLOCKS);                                 \
        global_pool_back_kernel<W><<<dim3(sh.tiles, sh.chunks), THREADS, 0, s>>>(                  \
            count, sh.wide, in, p->dy, add, dx);                                                   \
    } while (0)
    WIDEST(GLOBAL_BACK, in.channels, dx.bf16, in_words(add, dx.bf16) && in_words(dx, dx.bf16));
}
