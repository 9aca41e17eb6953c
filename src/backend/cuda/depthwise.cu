/* Depthwise convolutions: each channel is convolved with its own kernel. There is little arithmetic
 * per byte read, so tensor cores would not help. A thread keeps its channels and their weights and
 * loops over pixels of the output. All sums are added in a fixed order. */
#include "conv3_launch.cuh"
#include "device.cuh"

enum { DEPTHWISE_BLOCKS = 132 * 6, SUM_BLOCKS = 132 * 2 };

/* The weights of V channels: K x K taps in registers, or (K = 0) any number of them in memory. */
template <typename W, int K> struct kernels_of {
    float kept[K ? K * K : 1][W::V];
    const float *from;
    int taps, cols;

    __device__ __forceinline__ kernels_of(const dro__depthwise &d, int c)
        : from(d.w + (size_t)c * d.k.kernel[0] * d.k.kernel[1]),
          taps(d.k.kernel[0] * d.k.kernel[1]), cols(d.k.kernel[1])
    {
#pragma unroll
        for (int k = 0; k < K * K; k++)
#pragma unroll
            for (int v = 0; v < W::V; v++)
                kept[k][v] = from[v * K * K + k];
    }
    __device__ __forceinline__ float at(int ky, int kx, int v) const
    {
        return K ? kept[ky * K + kx][v] : from[v * taps + ky * cols + kx];
    }
};

/* FORWARD: computes z (pixels of `out`) from x. Otherwise dx (pixels of `in`) from dz, plus
 * `add`. */
template <typename W, int K, bool FORWARD>
static __global__ void __launch_bounds__(THREADS)
    depthwise_kernel(size_t count, int wide, dro__depthwise d, dro__typed from, dro__typed add,
                     dro__typed to)
{
    enum { V = W::V };
    const dro__extent &near = FORWARD ? d.out : d.in, &far = FORWARD ? d.in : d.out;
    const int rows = K ? K : d.k.kernel[0], cols = K ? K : d.k.kernel[1];
    walk w = begin_walk<W>(0, count, near.channels, wide);
    if (!w.on)
        return;
    kernels_of<W, K> weights(d, w.c);
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, near);
        float sum[V] = {0}, v[V];
#pragma unroll
        for (int ky = 0; ky < rows; ky++)
#pragma unroll
            for (int kx = 0; kx < cols; kx++) {
                int r = FORWARD ? p.r * d.k.stride[0] - d.k.pad[0] + ky : p.r + d.k.pad[0] - ky;
                int c = FORWARD ? p.c * d.k.stride[1] - d.k.pad[1] + kx : p.c + d.k.pad[1] - kx;
                if (!FORWARD && (r % d.k.stride[0] || c % d.k.stride[1]))
                    continue;
                r = FORWARD ? r : r / d.k.stride[0];
                c = FORWARD ? c : c / d.k.stride[1];
                if ((unsigned)r >= (unsigned)far.height || (unsigned)c >= (unsigned)far.width)
                    continue;
                size_t at = (p.n * far.height + r) * far.width + c;
                W::open(W::load(from, at * from.stride + w.c), v);
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += weights.at(ky, kx, j) * v[j];
            }
        if (add.p) {
            W::open(W::load(add, w.i * add.stride + w.c), v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[j] += v[j];
        }
        W::store(to, w.i * to.stride + w.c, sum);
    }
}

/* The weight gradient of one part (blockIdx.z % parts), by block: partial is (parts, chunks, taps,
 * channels) sums. K = 0: of one tap only, blockIdx.z / parts. */
template <typename W, int K>
static __global__ void __launch_bounds__(THREADS)
    weight_kernel(int wide, dro__depthwise d, dro__typed x, dro__typed dz, float *partial)
{
    extern __shared__ __align__(128) char smem[];
    enum { V = W::V, EACH = K ? K * K : 1 };
    typedef typename W::sum real;
    real *shared = (real *)smem; /* (rows of threads, wide, V) */
    const int taps = d.k.kernel[0] * d.k.kernel[1], area = d.out.height * d.out.width;
    const int part = blockIdx.z % d.parts.count, only = blockIdx.z / d.parts.count;
    const int tall = THREADS / wide, lane = threadIdx.x % wide;
    walk w = begin_walk<W>((size_t)d.parts.first[part] * area,
                           (size_t)d.parts.first[part + 1] * area, d.out.channels, wide);
    real sum[EACH][V] = {{0}};
    for (; w.i < w.to; w.i += w.step) {
        pixel p = pixel_of(w.i, d.out);
        float g[V], v[V];
        W::open(W::load(dz, w.i * dz.stride + w.c), g);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int tap = K ? k : only, ky = tap / (K ? K : d.k.kernel[1]),
                kx = tap % (K ? K : d.k.kernel[1]);
            int r = p.r * d.k.stride[0] - d.k.pad[0] + ky,
                c = p.c * d.k.stride[1] - d.k.pad[1] + kx;
            if ((unsigned)r >= (unsigned)d.in.height || (unsigned)c >= (unsigned)d.in.width)
                continue;
            size_t at = (p.n * d.in.height + r) * d.in.width + c;
            W::open(W::load(x, at * x.stride + w.c), v);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[k][j] += (real)g[j] * (real)v[j];
        }
    }
    for (int k = 0; k < EACH; k++) {
        __syncthreads();
        if (w.row < tall)
#pragma unroll
            for (int j = 0; j < V; j++)
                shared[(w.row * wide + lane) * V + j] = sum[k][j];
        __syncthreads();
        float *to = partial + (((size_t)part * gridDim.y + blockIdx.y) * taps + (K ? k : only)) *
                                  d.out.channels;
        for (int j = threadIdx.x; j < wide * V; j += THREADS) {
            int c = blockIdx.x * wide * V + j;
            double total = 0;
            for (int row = 0; row < tall; row++)
                total += (double)shared[row * wide * V + j];
            if (c < d.out.channels)
                to[c] = (float)total;
        }
    }
}

/* The sums over the chunks: (channels, taps) for each part. */
static __global__ void sum_kernel(dro__depthwise d, int chunks, const float *partial, float *grad0,
                                  float *grad1)
{
    const int taps = d.k.kernel[0] * d.k.kernel[1], size = taps * d.out.channels;
    for (int i = (int)FIRST; i < size * d.parts.count; i += (int)STEP) {
        int part = i / size, tap = i % size / d.out.channels, c = i % d.out.channels;
        double sum = 0;
        for (int k = 0; k < chunks; k++)
            sum += (double)partial[((size_t)part * chunks + k) * size + i % size];
        (part ? grad1 : grad0)[c * taps + tap] = (float)sum;
    }
}

/* 3 x 3 kernels use the widest words that fit, others one channel at a time. */
#define DEPTHWISE(call, d, fits, bf16)                                                             \
    do {                                                                                           \
        if ((d).k.kernel[0] != 3 || (d).k.kernel[1] != 3)                                          \
            call##_AS(ones, 0);                                                                    \
        else                                                                                       \
            WIDEST(call, (d).in.channels, bf16, fits);                                             \
    } while (0)

template <bool FORWARD>
static void run(cudaStream_t s, const dro__depthwise &d, dro__typed from, dro__typed add,
                dro__typed to)
{
    const dro__extent &near = FORWARD ? d.out : d.in;
    size_t count = (size_t)d.parts.first[d.parts.count] * near.height * near.width;
    dense(&from, d.in.channels), dense(&add, d.in.channels), dense(&to, d.in.channels);
    bool fits = in_words(from, to.bf16) && in_words(add, to.bf16) && in_words(to, to.bf16);
#define PASS(W) PASS_AS(W, 3)
#define PASS_AS(W, K)                                                                              \
    do {                                                                                           \
        sharing sh = share<W>(count, near.channels, 1, DEPTHWISE_BLOCKS);                          \
        queue(s, depthwise_kernel<W, K, FORWARD>, dim3(sh.tiles, sh.chunks), THREADS, 0, 0, count, \
              sh.wide, d, from, add, to);                                                          \
    } while (0)
    DEPTHWISE(PASS, d, fits, to.bf16);
}

extern "C" void dro__gpu_depthwise(cudaStream_t s, const dro__depthwise *d, dro__typed x,
                                   dro__typed z)
{
    dro__typed none = {NULL, 0, 0};
    run<true>(s, *d, x, none, z);
}

extern "C" void dro__gpu_depthwise_data(cudaStream_t s, const dro__depthwise *d, dro__typed dz,
                                        dro__typed add, dro__typed dx)
{
    run<false>(s, *d, dz, add, dx);
}

extern "C" size_t dro__gpu_depthwise_partial(const dro__depthwise *d)
{
    return (size_t)(SUM_BLOCKS + d->parts.count) * d->k.kernel[0] * d->k.kernel[1] *
           d->out.channels;
}

extern "C" void dro__gpu_depthwise_weight(cudaStream_t s, const dro__depthwise *d, dro__typed x,
                                          dro__typed dz, float *partial, float *const *grads)
{
    int taps = d->k.kernel[0] * d->k.kernel[1], count = d->parts.count;
    size_t rows = (size_t)d->parts.first[count] * d->out.height * d->out.width / count + 1;
    dense(&x, d->in.channels), dense(&dz, d->in.channels);
    bool fits = in_words(x, x.bf16) && in_words(dz, x.bf16);
    int chunks = 1;
#define WEIGHT(W) WEIGHT_AS(W, 3)
#define WEIGHT_AS(W, K)                                                                            \
    do {                                                                                           \
        sharing sh = share<W>(rows, d->out.channels, count, SUM_BLOCKS);                           \
        int bytes = THREADS * W::V * (int)sizeof(W::sum);                                          \
        chunks = sh.chunks;                                                                        \
        queue(s, weight_kernel<W, K>, dim3(sh.tiles, chunks, count * (K ? 1 : taps)), THREADS,     \
              bytes, 0, sh.wide, *d, x, dz, partial);                                              \
    } while (0)
    DEPTHWISE(WEIGHT, *d, fits, x.bf16);
    queue(s, sum_kernel, dim3(blocks_for((size_t)taps * d->out.channels * count)), THREADS, 0, 0,
          *d, chunks, (const float *)partial, grads[0], count > 1 ? grads[1] : (float *)NULL);
}
