/* Tails: bias, batch norm, residual and ReLU. A value is rows (pixels) of channels. A thread keeps
 * its channels and moves down the rows, so it reads a channel's numbers once. Sums are added in a
 * fixed order: in each thread, in each block, and in the block that ends last. */
#include "tails.cuh"

/* ---- numbers ---- */

static __global__ void constants_kernel(dro__numbers n, dro__norm_source from)
{
    int c = blockIdx.x * THREADS + threadIdx.x, part = blockIdx.y, at = part * n.channels + c;
    if (c >= n.channels)
        return;
    double bias = from.bias ? (double)from.bias[c] : 0;
    n.q[at] = n.r[at] = 0;
    if (from.gamma) {
        affine_of(n, from, part, c, (double)from.running[c] - bias,
                  (double)from.running[n.channels + c], true);
    } else {
        n.mean[at] = 0;
        n.inverse[at] = n.scale[at] = n.p[at] = 1;
        n.shift[at] = (float)bias;
    }
}

extern "C" void dro__gpu_constants(cudaStream_t s, dro__numbers n, dro__norm_source from)
{
    dim3 grid((n.channels + THREADS - 1) / THREADS, 2);
    constants_kernel<<<grid, THREADS, 0, s>>>(n, from);
}

static __global__ void finish_forward_kernel(dro__parts parts, int area, dro__numbers n,
                                             dro__norm_source from)
{
    int c = blockIdx.x * 64 + threadIdx.x, part = blockIdx.y;
    if (c >= n.channels)
        return;
    forward_numbers(parts, area, n, from, part, c, true);
}

extern "C" void dro__gpu_finish_forward(cudaStream_t s, dro__parts parts, int area, dro__numbers n,
                                        dro__norm_source from)
{
    dim3 grid((n.channels + 63) / 64, parts.count);
    finish_forward_kernel<<<grid, 64, 0, s>>>(parts, area, n, from);
}

static __global__ void finish_backward_kernel(dro__parts parts, int area, int batch, dro__numbers n,
                                              dro__norm_grads grads)
{
    int c = blockIdx.x * 64 + threadIdx.x, part = blockIdx.y;
    if (c < n.channels)
        backward_numbers(parts, area, batch, n, grads, part, c, true);
}

extern "C" void dro__gpu_finish_backward(cudaStream_t s, dro__parts parts, int area, int batch,
                                         dro__numbers n, dro__norm_grads grads)
{
    dim3 grid((n.channels + 63) / 64, parts.count);
    finish_backward_kernel<<<grid, 64, 0, s>>>(parts, area, batch, n, grads);
}

/* ---- sums over the rows of a part ---- */

enum { SUM_BLOCKS = 132 * 2, COUNTERS = 2048, GROUP = 16 }; /* SUM_BLOCKS: as many as run at once */

/* The widest norm has WIDEST_TILES blocks side by side, both parts together, with two counters and
 * a row of sums each. Narrower norms have fewer than two rows for each of SUM_BLOCKS blocks. */
enum { WIDEST_TILES = 2 * DRO__TAIL_CHANNELS / 128, ROW_BYTES = 2 * THREADS * 4 };
static_assert(2 * WIDEST_TILES <= COUNTERS &&
                  COUNTERS * 4 + WIDEST_TILES * ROW_BYTES <= DRO__TAIL_SCRATCH &&
                  COUNTERS * 4 + 2 * SUM_BLOCKS * ROW_BYTES <= DRO__TAIL_SCRATCH,
              "smem for what the blocks gather");

/* Whether this block is the last of `blocks` to arrive; if so, it sees what the others wrote. */
static __device__ bool last_of(unsigned *counter, unsigned blocks)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1) == blocks - 1;
        if (last)
            *counter = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* Adds up `count` rows of `columns` numbers in the block's `total`. */
template <typename real>
static __device__ void sum_rows(const real *rows, int count, int columns, double *total)
{
    enum { DEEP = 16 };
    const int each = columns < THREADS ? THREADS / columns : 1; /* threads per column */
    const int j = threadIdx.x, c = j % columns;
    const int c2 = j + THREADS < columns ? j + THREADS : c; /* at most two columns per thread */
    double sum = 0, sum2 = 0;
    for (int k = j / columns; j < each * columns && k < count; k += DEEP * each) {
        real x[DEEP], y[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t row = k + d * each < count ? k + d * each : k;
            x[d] = __ldcg(&rows[row * columns + c]);
            y[d] = __ldcg(&rows[row * columns + c2]);
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            sum += k + d * each < count ? (double)x[d] : 0;
            sum2 += k + d * each < count ? (double)y[d] : 0;
        }
    }
    if (j < each * columns)
        total[j] = sum;
    if (j + THREADS < columns)
        total[j + THREADS] = sum2;
    __syncthreads();
    for (int k = 1; k < each && j < columns; k++)
        total[j] += total[k * columns + j];
    __syncthreads();
}

/* Each thread has two sums for each of its V channels. Adds them up over the block, then over
 * groups of blocks, then over all groups. The last block of these channels does the latter, writes
 * the sums to to[0, channels) and to[channels, 2 channels), and returns true. */
template <typename W>
static __device__ bool add_up(const dro__numbers &n, double *to, int wide, const walk &w,
                              const typename W::sum *a, const typename W::sum *b)
{
    typedef typename W::sum real;
    __shared__ real smem[2 * THREADS * W::V];
    __shared__ double total[2 * THREADS];
    const int across = wide * W::V, columns = 2 * across, tall = THREADS / wide;
    const int groups = (gridDim.y + GROUP - 1) / GROUP, group = blockIdx.y / GROUP;
    const int tile = blockIdx.z * gridDim.x + blockIdx.x, first = group * GROUP;
    const int members = min((int)gridDim.y - first, (int)GROUP);
    unsigned *counters = (unsigned *)n.scratch + tile * (groups + 1);
    real *kept = (real *)((unsigned *)n.scratch + COUNTERS);
    kept += (size_t)tile * (gridDim.y + (groups > 1 ? groups : 0)) * columns;
    real *of_groups = kept + (size_t)gridDim.y * columns;
    if (w.row < tall) {
        real *mine = smem + w.row * columns + threadIdx.x % wide * W::V;
#pragma unroll
        for (int v = 0; v < W::V; v++)
            mine[v] = a[v], mine[across + v] = b[v];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < columns; j += THREADS) {
        double sum = 0;
        for (int r = 0; r < tall; r++)
            sum += (double)smem[r * columns + j];
        kept[(size_t)blockIdx.y * columns + j] = (real)sum;
    }
    if (!last_of(&counters[1 + group], members))
        return false;
    sum_rows(kept + (size_t)first * columns, members, columns, total);
    if (groups > 1) {
        for (int j = threadIdx.x; j < columns; j += THREADS)
            of_groups[(size_t)group * columns + j] = (real)total[j];
        if (!last_of(&counters[0], groups))
            return false;
        sum_rows(of_groups, groups, columns, total);
    }
    for (int j = threadIdx.x; j < columns; j += THREADS) {
        int c = blockIdx.x * across + j % across;
        if (c < n.channels)
            to[(j >= across) * n.channels + c] = total[j];
    }
    __syncthreads();
    return true;
}

template <typename W>
static __global__ void __launch_bounds__(THREADS, 2)
    moments_kernel(dro__parts parts, int area, int wide, dro__typed z, dro__numbers n,
                   dro__norm_source from, bool finish)
{
    enum { V = W::V, DEEP = 8 };
    walk w = walk_part<W>(parts, area, n.channels, wide);
    typename W::sum sum[V] = {0}, square[V] = {0};
    for (; w.i < w.to; w.i += DEEP * w.step) {
        typename W::raw raw[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; d++)
            if (w.i + d * w.step < w.to)
                raw[d] = W::load(z, (w.i + d * w.step) * z.stride + w.c);
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            float x[V];
            if (w.i + d * w.step >= w.to)
                continue;
            W::open(raw[d], x);
#pragma unroll
            for (int v = 0; v < V; v++) {
                sum[v] += (typename W::sum)x[v];
                square[v] += (typename W::sum)x[v] * (typename W::sum)x[v];
            }
        }
    }
    int part = blockIdx.z, first = blockIdx.x * wide * V;
    if (!add_up<W>(n, n.sums + 2 * part * n.channels, wide, w, sum, square) || !finish)
        return;
    for (int c = first + threadIdx.x; c < first + wide * V && c < n.channels; c += THREADS)
        forward_numbers(parts, area, n, from, part, c, true);
}

#define ROWS_OF(parts, area) ((size_t)(area) * (size_t)((parts).first[1] - (parts).first[0]))
#define GRID(sh, parts)      dim3((sh).tiles, (sh).chunks, (parts).count)

extern "C" void dro__gpu_moments(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z,
                                 dro__numbers n, const dro__norm_source *from)
{
    int area = e.height * e.width;
    dro__norm_source source = {};
    if (from)
        source = *from;
    dense(&z, e.channels);
#define MOMENTS(W)                                                                                 \
    do {                                                                                           \
        sharing sh = share<W>(ROWS_OF(parts, area), n.channels, parts.count, SUM_BLOCKS);          \
        moments_kernel<W><<<GRID(sh, parts), THREADS, 0, s>>>(parts, area, sh.wide, z, n, source,  \
                                                              from != NULL);                       \
    } while (0)
    WIDEST(MOMENTS, n.channels, z.bf16, in_words(z, z.bf16));
}

/* Reads one of a tail's numbers for V channels. */
template <typename W>
static __device__ __forceinline__ void numbers_of(const float *from, int at, float *to)
{
#pragma unroll
    for (int v = 0; v < W::V; v++)
        to[v] = from[at + v];
}

/* LIGHT: the only inputs are slope and z, and g is not stored */
template <typename W, bool LIGHT>
static __global__ void __launch_bounds__(THREADS, 2)
    close_kernel(dro__parts parts, int area, int wide, dro__closing k, dro__numbers n)
{
    enum { V = W::V, DEEP = LIGHT ? 4 : 2 };
    walk w = walk_part<W>(parts, area, n.channels, wide);
    int part = blockIdx.z, first = blockIdx.x * wide * V;
    typename W::sum sum[V] = {0}, dot[V] = {0};
    float mean[V] = {0}, scale[V] = {0}, shift[V] = {0};
    if (w.on) {
        numbers_of<W>(n.mean, part * n.channels + w.c, mean);
        numbers_of<W>(n.scale, part * n.channels + w.c, scale);
        numbers_of<W>(n.shift, part * n.channels + w.c, shift);
    }
    for (; w.i < w.to; w.i += DEEP * w.step) {
        typename W::raw slope[DEEP], more[DEEP], y[DEEP], z[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            slope[d] = W::load(k.slope, i * k.slope.stride + w.c);
            if (!LIGHT && k.more.p)
                more[d] = W::load(k.more, i * k.more.stride + w.c);
            if (!LIGHT && k.y.p)
                y[d] = W::load(k.y, i * k.y.stride + w.c);
            if (LIGHT || k.z.p)
                z[d] = W::load(k.z, i * k.z.stride + w.c);
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            float x[V], off[V] = {0}, open[V];
            W::open(slope[d], x);
            if (!LIGHT && k.more.p) {
                W::open(more[d], open);
#pragma unroll
                for (int v = 0; v < V; v++)
                    x[v] += open[v];
            }
            if (LIGHT || k.z.p)
                W::open(z[d], off);
            if (!LIGHT && k.y.p)
                W::open(y[d], open);
#pragma unroll
            for (int v = 0; v < V; v++) {
                off[v] -= mean[v];
                if (LIGHT || !k.y.p)
                    open[v] = off[v] * scale[v] + shift[v];
                x[v] = closed(open[v], k.cap) ? 0 : x[v];
                sum[v] += (typename W::sum)x[v];
                dot[v] += (typename W::sum)x[v] * (typename W::sum)off[v];
            }
            if (!LIGHT && k.g.p)
                W::store(k.g, i * k.g.stride + w.c, x);
        }
    }
    if (!add_up<W>(n, n.back + 2 * part * n.channels, wide, w, sum, dot) || !k.finish)
        return;
    for (int c = first + threadIdx.x; c < first + wide * V && c < n.channels; c += THREADS)
        backward_numbers(parts, area, k.batch, n, k.grads, part, c, true);
}

extern "C" void dro__gpu_close(cudaStream_t s, dro__parts parts, dro__extent e,
                               const dro__closing *c, dro__numbers n)
{
    dro__closing k = *c;
    int area = e.height * e.width, type = k.slope.bf16;
    dro__typed *all[] = {&k.slope, &k.more, &k.y, &k.z, &k.g};
    bool fits = true;
    for (int i = 0; i < 5; i++) {
        dense(all[i], e.channels);
        fits = fits && in_words(*all[i], type);
    }
    bool light = k.z.p && !k.more.p && !k.y.p && !k.g.p;
#define CLOSE_AS(W, LIGHT)                                                                         \
    do {                                                                                           \
        sharing sh = share<W>(ROWS_OF(parts, area), n.channels, parts.count, SUM_BLOCKS);          \
        close_kernel<W, LIGHT><<<GRID(sh, parts), THREADS, 0, s>>>(parts, area, sh.wide, k, n);    \
    } while (0)
#define CLOSE(W)                                                                                   \
    do {                                                                                           \
        if (light)                                                                                 \
            CLOSE_AS(W, true);                                                                     \
        else                                                                                       \
            CLOSE_AS(W, false);                                                                    \
    } while (0)
    WIDEST(CLOSE, n.channels, type, fits);
}

/* ---- element by element ---- */

enum { APPLY_BLOCKS = 132 * 6, SLOPE_BLOCKS = 132 * 4 }; /* twice as many as run at once */

template <typename W>
static __global__ void __launch_bounds__(THREADS, 3)
    apply_kernel(dro__parts parts, int area, int wide, dro__typed z, dro__numbers n,
                 dro__typed residual, float cap, dro__typed y)
{
    enum { V = W::V, DEEP = 2 };
    walk w = walk_part<W>(parts, area, n.channels, wide);
    float mean[V], scale[V], shift[V];
    if (!w.on)
        return;
    numbers_of<W>(n.mean, blockIdx.z * n.channels + w.c, mean);
    numbers_of<W>(n.scale, blockIdx.z * n.channels + w.c, scale);
    numbers_of<W>(n.shift, blockIdx.z * n.channels + w.c, shift);
    for (; w.i < w.to; w.i += DEEP * w.step) {
        typename W::raw raw[DEEP], more[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            raw[d] = W::load(z, i * z.stride + w.c);
            if (residual.p)
                more[d] = W::load(residual, i * residual.stride + w.c);
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            float x[V], r[V] = {0};
            W::open(raw[d], x);
            if (residual.p)
                W::open(more[d], r);
#pragma unroll
            for (int v = 0; v < V; v++) {
                x[v] = clipped((x[v] - mean[v]) * scale[v] + shift[v] + r[v], cap);
            }
            W::store(y, i * y.stride + w.c, x);
        }
    }
}

extern "C" void dro__gpu_apply(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z,
                               dro__numbers n, dro__typed residual, float cap, dro__typed y)
{
    int area = e.height * e.width;
    dense(&z, e.channels);
    dense(&residual, e.channels);
    dense(&y, e.channels);
    bool fits = in_words(z, y.bf16) && in_words(residual, y.bf16) && in_words(y, y.bf16);
#define APPLY(W)                                                                                   \
    do {                                                                                           \
        sharing sh = share<W>(ROWS_OF(parts, area), n.channels, parts.count, APPLY_BLOCKS);        \
        apply_kernel<W><<<GRID(sh, parts), THREADS, 0, s>>>(parts, area, sh.wide, z, n, residual,  \
                                                            cap, y);                               \
    } while (0)
    WIDEST(APPLY, n.channels, y.bf16, fits);
}

template <typename W>
static __global__ void __launch_bounds__(THREADS, 2)
    slope_kernel(dro__parts parts, int area, int wide, dro__typed g, dro__typed z, float cap,
                 dro__numbers n, dro__typed add, dro__typed dz)
{
    enum { V = W::V, DEEP = 2 };
    walk w = walk_part<W>(parts, area, n.channels, wide);
    float mean[V] = {0}, scale[V], shift[V], q[V], r[V];
    if (!w.on)
        return;
    int at = blockIdx.z * n.channels + w.c;
    if (z.p)
        numbers_of<W>(n.mean, at, mean);
    numbers_of<W>(n.scale, at, scale); /* = p */
    numbers_of<W>(n.shift, at, shift);
    numbers_of<W>(n.q, at, q);
    numbers_of<W>(n.r, at, r);
    for (; w.i < w.to; w.i += DEEP * w.step) {
        typename W::raw slope[DEEP], from[DEEP], more[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            slope[d] = W::load(g, i * g.stride + w.c);
            if (z.p)
                from[d] = W::load(z, i * z.stride + w.c);
            if (add.p)
                more[d] = W::load(add, i * add.stride + w.c);
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            size_t i = w.i + d * w.step;
            if (i >= w.to)
                continue;
            float x[V], off[V] = {0}, more_of[V] = {0};
            W::open(slope[d], x);
            if (z.p)
                W::open(from[d], off);
            if (add.p)
                W::open(more[d], more_of);
#pragma unroll
            for (int v = 0; v < V; v++) {
                off[v] -= mean[v];
                x[v] = closed(off[v] * scale[v] + shift[v], cap) ? 0 : x[v];
                x[v] = scale[v] * x[v] + r[v] + q[v] * off[v] + more_of[v];
            }
            W::store(dz, i * dz.stride + w.c, x);
        }
    }
}

extern "C" void dro__gpu_slope(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed g,
                               dro__typed z, float cap, dro__numbers n, dro__typed add,
                               dro__typed dz)
{
    int area = e.height * e.width;
    dro__typed *all[] = {&g, &z, &add, &dz};
    bool fits = true;
    for (int i = 0; i < 4; i++) {
        dense(all[i], e.channels);
        fits = fits && in_words(*all[i], dz.bf16);
    }
#define SLOPE(W)                                                                                   \
    do {                                                                                           \
        sharing sh = share<W>(ROWS_OF(parts, area), n.channels, parts.count, SLOPE_BLOCKS);        \
        slope_kernel<W><<<GRID(sh, parts), THREADS, 0, s>>>(parts, area, sh.wide, g, z, cap, n,    \
                                                            add, dz);                              \
    } while (0)
    WIDEST(SLOPE, n.channels, dz.bf16, fits);
}
