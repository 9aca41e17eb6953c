/* Layers that are neither convolutions nor tails. They use no atomics, so the order of every sum is
 * fixed. */
#include "device.cuh"

#define SIZE(e) ((size_t)(e).channels * (e).height * (e).width)
#define RUN(kernel, count, ...) kernel<<<blocks_for(count), THREADS, 0, s>>>(count, __VA_ARGS__)

static const dro__typed none = {NULL, 0, 0};

/* The coordinates of an element of (examples, height, width, channels). */
struct place {
    size_t n;
    int r, c, ch;
};

template <typename U>
static __device__ __forceinline__ place find_as(U i, const dro__extent &e)
{
    place p;
    p.ch = (int)(i % (U)e.channels);
    i /= (U)e.channels;
    p.c = (int)(i % (U)e.width);
    i /= (U)e.width;
    p.r = (int)(i % (U)e.height);
    p.n = i / (U)e.height;
    return p;
}

static __device__ __forceinline__ place find(size_t i, const dro__extent &e)
{
    return i >> 32 ? find_as<size_t>(i, e) : find_as<unsigned>((unsigned)i, e);
}

static __device__ size_t at(size_t n, int r, int c, int ch, const dro__extent &e)
{
    return ((n * e.height + r) * e.width + c) * e.channels + ch;
}

/* The index of the same element in the parameters' order, within its example. */
static __device__ size_t plain(const place &p, const dro__extent &e)
{
    return ((size_t)p.ch * e.height + p.r) * e.width + p.c;
}

/* ---- input, affine, ReLU, dropout, add ---- */

static __global__ void input_kernel(size_t count, size_t first, dro__extent e, const float *x,
                                    dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, e);
        write_at(y, first * SIZE(e) + i, x[p.n * SIZE(e) + plain(p, e)]);
    }
}

/* One thread for each pixel of few channels: neighbouring threads read neighbouring elements of the
 * planes. */
static __global__ void input_few_kernel(size_t count, size_t first, dro__extent e, int stored,
                                        const float *x, dro__typed y)
{
    int area = e.height * e.width;
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t n = divided(i, area), p = i - n * area;
        for (int c = 0; c < stored; c++) {
            float v = c < e.channels ? x[(n * e.channels + c) * area + p] : 0;
            write_at(y, (first * area + i) * stored + c, v);
        }
    }
}

/* The same with S channels, stored in words. */
template <typename W, int S>
static __global__ void input_pixels_kernel(size_t count, size_t first, dro__extent e,
                                           const float *x, dro__typed y)
{
    int area = e.height * e.width;
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t n = divided(i, area), p = i - n * area;
        float v[S];
#pragma unroll
        for (int c = 0; c < S; c++)
            v[c] = c < e.channels ? x[(n * e.channels + c) * area + p] : 0;
#pragma unroll
        for (int c = 0; c < S; c += W::V)
            W::store(y, (first * area + i) * S + c, v + c);
    }
}

#define INPUT(W, S) input_pixels_kernel<W, S>

extern "C" void dro__gpu_input(cudaStream_t s, int first, int count, dro__extent e, int stored,
                               const float *x, dro__typed y)
{
    size_t pixels = (size_t)count * e.height * e.width, at = (size_t)first;
    if (stored == 16 && y.bf16)
        RUN(INPUT(eights, 16), pixels, at, e, x, y);
    else if (stored == 16)
        RUN(INPUT(fours, 16), pixels, at, e, x, y);
    else if (stored == 8 && y.bf16)
        RUN(INPUT(eights, 8), pixels, at, e, x, y);
    else if (stored == 4 && !y.bf16)
        RUN(INPUT(fours, 4), pixels, at, e, x, y);
    else if (stored <= 16)
        RUN(input_few_kernel, pixels, at, e, stored, x, y);
    else
        RUN(input_kernel, count * SIZE(e), at, e, x, y);
}

/* Padded channels, if there are any, become 0. */
template <typename W>
static __global__ void affine_kernel(size_t count, int channels, int stored, const float *scale,
                                     const float *shift, dro__typed x, dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t at = i * W::V;
        int c = (int)(at >> 32 ? at % stored : (unsigned)at % (unsigned)stored);
        float v[W::V], more[W::V] = {0};
        W::open(W::load(x, at), v);
        if (add.p)
            W::open(W::load(add, at), more);
#pragma unroll
        for (int k = 0; k < W::V; k++) {
            v[k] = (c < channels ? scale[c] * v[k] + (shift ? shift[c] : 0) : 0) + more[k];
            c = c + 1 < stored ? c + 1 : 0;
        }
        W::store(y, at, v);
    }
}

static void affine(cudaStream_t s, const dro__layer_pass *k, const float *shift, dro__typed x,
                   dro__typed add, dro__typed y)
{
    int stored = x.stride ? x.stride : k->in.channels, channels = k->in.channels;
    size_t count = (size_t)k->n * k->in.height * k->in.width * stored;
    x.stride = y.stride = add.stride = 8; /* dense; a multiple of 8 passes in_words */
#define AFFINE(W) RUN(affine_kernel<W>, count / W::V, channels, stored, k->scale, shift, x, add, y)
    WIDEST(AFFINE, count, y.bf16,
           in_words(x, y.bf16) && in_words(y, y.bf16) && in_words(add, y.bf16));
}

extern "C" void dro__gpu_affine(cudaStream_t s, const dro__layer_pass *k)
{
    affine(s, k, k->scale + k->in.channels, k->x, none, k->y);
}

extern "C" void dro__gpu_affine_back(cudaStream_t s, const dro__layer_pass *k)
{
    affine(s, k, NULL, k->dy, k->add, k->dx);
}

static __global__ void relu_kernel(size_t count, dro__typed x, float cap, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(y, i, clipped(read_at(x, i), cap));
}

extern "C" void dro__gpu_relu(cudaStream_t s, const dro__layer_pass *k)
{
    RUN(relu_kernel, k->n * SIZE(k->in), k->x, k->cap, k->y);
}

static __global__ void relu_back_kernel(size_t count, dro__typed x, float cap, dro__typed dy,
                                        dro__typed add, dro__typed dx)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(dx, i, (closed(read_at(x, i), cap) ? 0 : read_at(dy, i)) + read_or_0(add, i));
}

extern "C" void dro__gpu_relu_back(cudaStream_t s, const dro__layer_pass *k)
{
    RUN(relu_back_kernel, k->n * SIZE(k->in), k->x, k->cap, k->dy, k->add, k->dx);
}

template <typename W>
static __global__ void add_kernel(size_t count, dro__typed a, dro__typed b, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        float v[W::V], more[W::V] = {0};
        W::open(W::load(a, i * W::V), v);
        if (b.p)
            W::open(W::load(b, i * W::V), more);
#pragma unroll
        for (int k = 0; k < W::V; k++)
            v[k] += more[k];
        W::store(y, i * W::V, v);
    }
}

extern "C" void dro__gpu_add(cudaStream_t s, size_t count, dro__typed a, dro__typed b, dro__typed y)
{
    a.stride = b.stride = y.stride = 8; /* dense; a multiple of 8 passes in_words */
#define ADD(W) RUN(add_kernel<W>, count / W::V, a, b, y)
    WIDEST(ADD, count, y.bf16, in_words(a, y.bf16) && in_words(b, y.bf16) && in_words(y, y.bf16));
}

/* As dro__random: see src/base/random.c. */
static __device__ uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static __device__ double random_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + stream * 0xd1342543de82ef95u);
    return (double)(mix(key + (counter + 1) * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-53;
}

static __global__ void dropout_kernel(size_t count, dro__extent e, float rate, uint64_t stream,
                                      const uint64_t *keys, dro__typed x, dro__typed add,
                                      dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, e);
        double u = random_unit(keys[p.n], stream, plain(p, e));
        float scale = u < (double)rate ? 0.0f : 1.0f / (1.0f - rate);
        write_at(y, i, scale * read_at(x, i) + read_or_0(add, i));
    }
}

static void dropout(cudaStream_t s, const dro__layer_pass *k, dro__typed x, dro__typed add,
                    dro__typed y)
{
    uint64_t stream = 0x64726f70 + ((uint64_t)(uint32_t)k->layer << 32); /* as in net_loss.c */
    RUN(dropout_kernel, k->n * SIZE(k->in), k->in, k->rate, stream, k->keys, x, add, y);
}

extern "C" void dro__gpu_dropout(cudaStream_t s, const dro__layer_pass *k)
{
    dropout(s, k, k->x, none, k->y);
}

extern "C" void dro__gpu_dropout_back(cudaStream_t s, const dro__layer_pass *k)
{
    dropout(s, k, k->dy, k->add, k->dx);
}

/* ---- moving channels and pixels ---- */

static __global__ void concat_kernel(size_t count, int channels, int whole, int first, bool back,
                                     dro__typed x, dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t far = i / channels * whole + first + i % channels;
        write_at(y, back ? i : far, read_at(x, back ? far : i) + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_concat(cudaStream_t s, const dro__layer_pass *k, int first, bool back)
{
    RUN(concat_kernel, k->n * SIZE(k->in), k->in.channels, k->out.channels, first, back,
        back ? k->dy : k->x, back ? k->add : none, back ? k->dx : k->y);
}

/* V channels of the output, or (back) of the input, for each thread. */
template <typename W>
static __global__ void shortcut_kernel(size_t count, dro__extent in, dro__extent out, int stride,
                                       bool back, dro__typed x, dro__typed add, dro__typed y)
{
    enum { V = W::V };
    dro__extent near = back ? in : out;
    int before = (out.channels - in.channels) / 2;
    near.channels /= V;
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, near);
        int c = p.ch * V + (back ? before : -before);
        bool inside = back ? p.r % stride == 0 && p.c % stride == 0 && p.r / stride < out.height &&
                                p.c / stride < out.width
                          : c >= 0 && c < in.channels;
        size_t from = back ? at(p.n, p.r / stride, p.c / stride, c, out)
                           : at(p.n, p.r * stride, p.c * stride, c, in);
        float v[V] = {0}, more[V] = {0};
        if (inside)
            W::open(W::load(x, from), v);
        if (add.p)
            W::open(W::load(add, i * V), more);
#pragma unroll
        for (int k = 0; k < V; k++)
            v[k] += more[k];
        W::store(y, i * V, v);
    }
}

static void shortcut(cudaStream_t s, const dro__layer_pass *k, bool back, dro__typed x,
                     dro__typed add, dro__typed y)
{
    size_t count = k->n * SIZE(back ? k->in : k->out);
    int before = (k->out.channels - k->in.channels) / 2, all = k->in.channels | before;
    x.stride = y.stride = add.stride = 8; /* dense; a multiple of 8 passes in_words */
#define SHORTCUT(W)                                                                                \
    RUN(shortcut_kernel<W>, count / W::V, k->in, k->out, k->k.stride[0], back, x, add, y)
    WIDEST(SHORTCUT, all, y.bf16,
           in_words(x, y.bf16) && in_words(y, y.bf16) && in_words(add, y.bf16));
}

extern "C" void dro__gpu_shortcut(cudaStream_t s, const dro__layer_pass *k)
{
    shortcut(s, k, false, k->x, none, k->y);
}

extern "C" void dro__gpu_shortcut_back(cudaStream_t s, const dro__layer_pass *k)
{
    shortcut(s, k, true, k->dy, k->add, k->dx);
}

static __global__ void flatten_kernel(size_t count, dro__extent e, bool back, dro__typed x,
                                      dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, e);
        size_t far = p.n * SIZE(e) + plain(p, e);
        write_at(y, back ? i : far, read_at(x, back ? far : i) + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_flatten(cudaStream_t s, const dro__layer_pass *k)
{
    RUN(flatten_kernel, k->n * SIZE(k->in), k->in, false, k->x, none, k->y);
}

extern "C" void dro__gpu_flatten_back(cudaStream_t s, const dro__layer_pass *k)
{
    RUN(flatten_kernel, k->n * SIZE(k->in), k->in, true, k->dy, k->add, k->dx);
}

/* ---- linear layers' biases ---- */

static __global__ void rows_kernel(size_t count, int outputs, const float *bias, float *y)
{
    for (size_t i = FIRST; i < count; i += STEP)
        y[i] = bias ? bias[i % outputs] : 0;
}

extern "C" void dro__gpu_rows_bias(cudaStream_t s, int n, int outputs, const float *bias, float *y)
{
    RUN(rows_kernel, (size_t)n * outputs, outputs, bias, y);
}

static __global__ void columns_kernel(dro__parts parts, int outputs, const float *dy, float *sum0,
                                      float *sum1)
{
    __shared__ double smem[THREADS / 32];
    int c = blockIdx.x, part = blockIdx.y;
    double sum = 0;
    for (int i = parts.first[part] + threadIdx.x; i < parts.first[part + 1]; i += THREADS)
        sum += (double)dy[(size_t)i * outputs + c];
    sum = block_sum(sum, smem);
    if (threadIdx.x == 0)
        (part ? sum1 : sum0)[c] = (float)sum;
}

extern "C" void dro__gpu_columns(cudaStream_t s, dro__parts parts, int outputs, const float *dy,
                                 float *const *sums)
{
    columns_kernel<<<dim3(outputs, parts.count), THREADS, 0, s>>>(parts, outputs, dy, sums[0],
                                                                  parts.count > 1 ? sums[1] : NULL);
}
