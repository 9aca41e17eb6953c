/* Layers that are neither convolutions nor tails: one thread for each element that is written, so that the
 * order of every sum is fixed. */
#include "device.cuh"

#define SIZE(e) ((size_t)(e).channels * (e).height * (e).width)
#define RUN(kernel, count, ...) kernel<<<blocks_for(count), THREADS, 0, s>>>(count, __VA_ARGS__)

/* Where element i of (examples, height, width, channels) is. */
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

/* The same element in the parameters' order, within its example. */
static __device__ size_t plain(const place &p, const dro__extent &e)
{
    return ((size_t)p.ch * e.height + p.r) * e.width + p.c;
}

/* ---- input, affine, ReLU, dropout, add ---- */

static __global__ void input_kernel(size_t count, size_t first, dro__extent e, dro__extent stored,
                                    const float *x, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, stored);
        float v = p.ch < e.channels ? x[p.n * SIZE(e) + plain(p, e)] : 0;
        write_at(y, first * SIZE(stored) + i, v);
    }
}

/* A pixel of 16 channels to a thread: the planes are read side by side, the channels written at once. */
static __global__ void input16_kernel(size_t count, size_t first, dro__extent e, const float *x,
                                      dro__typed y)
{
    unsigned area = e.height * e.width;
    for (size_t i = FIRST; i < count; i += STEP) {
        unsigned n = (unsigned)i / area, p = (unsigned)i % area;
        float v[16] = {0};
#pragma unroll
        for (int c = 0; c < 16; c++)
            if (c < e.channels)
                v[c] = x[((size_t)n * e.channels + c) * area + p];
        size_t to = (first * area + i) * 16;
        if (!y.bf16) {
#pragma unroll
            for (int c = 0; c < 16; c += 4)
                *(float4 *)((float *)y.p + to + c) =
                    make_float4(v[c], v[c + 1], v[c + 2], v[c + 3]);
            continue;
        }
#pragma unroll
        for (int c = 0; c < 16; c += 8) {
            uint4 raw;
            __nv_bfloat162 *h = (__nv_bfloat162 *)&raw;
#pragma unroll
            for (int k = 0; k < 4; k++)
                h[k] = __floats2bfloat162_rn(v[c + 2 * k], v[c + 2 * k + 1]);
            *(uint4 *)((__nv_bfloat16 *)y.p + to + c) = raw;
        }
    }
}

extern "C" void dro__gpu_input(cudaStream_t s, int first, int count, dro__extent e, int stored,
                               const float *x, dro__typed y)
{
    dro__extent to = e;
    to.channels = stored;
    size_t total = count * SIZE(to);
    if (stored == 16)
        RUN(input16_kernel, total / 16, (size_t)first, e, x, y);
    else
        RUN(input_kernel, total, (size_t)first, e, to, x, y);
}

static __global__ void affine_kernel(size_t count, int channels, const float *scale,
                                     const float *shift, dro__typed x, dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        int c = (int)(i % channels);
        write_at(y, i, scale[c] * read_at(x, i) + (shift ? shift[c] : 0) + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_affine(cudaStream_t s, int n, dro__extent e, const float *scale,
                                const float *shift, dro__typed x, dro__typed add, dro__typed y)
{
    RUN(affine_kernel, n * SIZE(e), e.channels, scale, shift, x, add, y);
}

static __global__ void relu_kernel(size_t count, dro__typed x, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        float v = read_at(x, i);
        write_at(y, i, v <= 0 ? 0 : v);
    }
}

extern "C" void dro__gpu_relu(cudaStream_t s, size_t count, dro__typed x, dro__typed y)
{
    RUN(relu_kernel, count, x, y);
}

static __global__ void relu_back_kernel(size_t count, dro__typed x, dro__typed dy, dro__typed add,
                                        dro__typed dx)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(dx, i, (read_at(x, i) <= 0 ? 0 : read_at(dy, i)) + read_or_0(add, i));
}

extern "C" void dro__gpu_relu_back(cudaStream_t s, size_t count, dro__typed x, dro__typed dy,
                                   dro__typed add, dro__typed dx)
{
    RUN(relu_back_kernel, count, x, dy, add, dx);
}

static __global__ void add_kernel(size_t count, dro__typed a, dro__typed b, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(y, i, read_at(a, i) + read_or_0(b, i));
}

extern "C" void dro__gpu_add(cudaStream_t s, size_t count, dro__typed a, dro__typed b, dro__typed y)
{
    RUN(add_kernel, count, a, b, y);
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

extern "C" void dro__gpu_dropout(cudaStream_t s, int n, dro__extent e, float rate, int layer,
                                 const uint64_t *keys, dro__typed x, dro__typed add, dro__typed y)
{
    uint64_t stream = 0x64726f70 + ((uint64_t)(uint32_t)layer << 32); /* as net_loss.c */
    RUN(dropout_kernel, n * SIZE(e), e, rate, stream, keys, x, add, y);
}

/* ---- pooling ---- */

/* The value of one window, and in *best which element of the plane is the largest. */
static __device__ float window(const dro__typed &x, size_t n, int ch, int r, int c,
                               const dro__extent &in, const dro__gpu_window &k, int max, int *best)
{
    float top = -INFINITY, sum = 0;
    *best = -1;
    for (int ky = 0; ky < k.kernel[0]; ky++)
        for (int kx = 0; kx < k.kernel[1]; kx++) {
            int row = r * k.stride[0] + ky - k.pad[0], col = c * k.stride[1] + kx - k.pad[1];
            if (row < 0 || row >= in.height || col < 0 || col >= in.width)
                continue;
            float v = read_at(x, at(n, row, col, ch, in));
            sum += v;
            if (v > top || *best < 0 || isnan(v))
                top = v, *best = row * in.width + col;
        }
    return max ? top : sum / (float)(k.kernel[0] * k.kernel[1]);
}

static __global__ void pool_kernel(size_t count, dro__extent in, dro__extent out, dro__gpu_window k,
                                   int max, dro__typed x, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, out);
        int best;
        write_at(y, i, window(x, p.n, p.ch, p.r, p.c, in, k, max, &best));
    }
}

extern "C" void dro__gpu_pool(cudaStream_t s, int n, dro__extent in, dro__extent out,
                              dro__gpu_window k, int max, dro__typed x, dro__typed y)
{
    RUN(pool_kernel, n * SIZE(out), in, out, k, max, x, y);
}

/* Every window that holds the element gives its share. */
static __global__ void pool_back_kernel(size_t count, dro__extent in, dro__extent out,
                                        dro__gpu_window k, int max, dro__typed x, dro__typed dy,
                                        dro__typed add, dro__typed dx)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, in);
        float sum = 0;
        for (int ky = 0; ky < k.kernel[0]; ky++)
            for (int kx = 0; kx < k.kernel[1]; kx++) {
                int r = p.r + k.pad[0] - ky, c = p.c + k.pad[1] - kx, best;
                if (r < 0 || c < 0 || r % k.stride[0] || c % k.stride[1])
                    continue;
                r /= k.stride[0], c /= k.stride[1];
                if (r >= out.height || c >= out.width)
                    continue;
                float slope = read_at(dy, at(p.n, r, c, p.ch, out));
                if (!max)
                    sum += slope / (float)(k.kernel[0] * k.kernel[1]);
                else if (window(x, p.n, p.ch, r, c, in, k, 1, &best),
                         best == p.r * in.width + p.c)
                    sum += slope;
            }
        write_at(dx, i, sum + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_pool_back(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                   dro__gpu_window k, int max, dro__typed x, dro__typed dy,
                                   dro__typed add, dro__typed dx)
{
    RUN(pool_back_kernel, n * SIZE(in), in, out, k, max, x, dy, add, dx);
}

static __global__ void global_pool_kernel(size_t count, dro__extent in, dro__typed x, dro__typed y)
{
    int area = in.height * in.width;
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t n = i / in.channels, c = i % in.channels;
        float sum = 0;
#pragma unroll 8
        for (int p = 0; p < area; p++)
            sum += read_at(x, (n * area + p) * in.channels + c);
        write_at(y, i, sum / (float)area);
    }
}

/* The same for up to 64 channels: a block for each example, the pixels shared out. */
static __global__ void global_pool64_kernel(dro__extent in, dro__typed x, dro__typed y)
{
    __shared__ float room[THREADS];
    int area = in.height * in.width, each = THREADS / in.channels, c = threadIdx.x % in.channels;
    float sum = 0;
    for (int p = threadIdx.x / in.channels; p < area; p += each)
        sum += read_at(x, ((size_t)blockIdx.x * area + p) * in.channels + c);
    room[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= in.channels)
        return;
    for (int k = 1; k < each; k++)
        sum += room[k * in.channels + c];
    write_at(y, (size_t)blockIdx.x * in.channels + c, sum / (float)area);
}

extern "C" void dro__gpu_global_pool(cudaStream_t s, int n, dro__extent in, dro__typed x,
                                     dro__typed y)
{
    if (in.channels <= 64 && THREADS % in.channels == 0) {
        global_pool64_kernel<<<n, THREADS, 0, s>>>(in, x, y);
        return;
    }
    RUN(global_pool_kernel, (size_t)n * in.channels, in, x, y);
}

static __global__ void global_pool_back_kernel(size_t count, dro__extent in, dro__typed dy,
                                               dro__typed add, dro__typed dx)
{
    int area = in.height * in.width;
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t n = i / in.channels / area, c = i % in.channels;
        write_at(dx, i, read_at(dy, n * in.channels + c) / (float)area + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_global_pool_back(cudaStream_t s, int n, dro__extent in, dro__typed dy,
                                          dro__typed add, dro__typed dx)
{
    RUN(global_pool_back_kernel, n * SIZE(in), in, dy, add, dx);
}

/* ---- moving channels and pixels ---- */

static __global__ void concat_kernel(size_t count, int channels, int whole, int first, int back,
                                     dro__typed x, dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t far = i / channels * whole + first + i % channels;
        write_at(y, back ? i : far, read_at(x, back ? far : i) + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_concat(cudaStream_t s, int n, dro__extent part, int whole, int first,
                                dro__typed x, dro__typed y)
{
    dro__typed none = {NULL, 0};
    RUN(concat_kernel, n * SIZE(part), part.channels, whole, first, 0, x, none, y);
}

extern "C" void dro__gpu_concat_back(cudaStream_t s, int n, dro__extent part, int whole, int first,
                                     dro__typed dy, dro__typed add, dro__typed dx)
{
    RUN(concat_kernel, n * SIZE(part), part.channels, whole, first, 1, dy, add, dx);
}

static __global__ void shortcut_kernel(size_t count, dro__extent in, dro__extent out, int stride,
                                       dro__typed x, dro__typed y)
{
    int before = (out.channels - in.channels) / 2;
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, out);
        int c = p.ch - before;
        bool inside = c >= 0 && c < in.channels;
        write_at(y, i, inside ? read_at(x, at(p.n, p.r * stride, p.c * stride, c, in)) : 0);
    }
}

/* The same by eights of channels; in: of the output grid when forward, else of the input's. */
template <typename T>
static __global__ void shortcut8_kernel(size_t count, dro__extent in, dro__extent out, int stride,
                                        bool back, const T *x, const T *add, T *y)
{
    dro__extent near = back ? in : out;
    int before = (out.channels - in.channels) / 2;
    near.channels /= 8;
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find_as<unsigned>((unsigned)i, near);
        int c = p.ch * 8 + (back ? before : -before);
        bool there = back ? p.r % stride == 0 && p.c % stride == 0 && p.r / stride < out.height &&
                                p.c / stride < out.width
                          : c >= 0 && c < in.channels;
        size_t from = back ? at(p.n, p.r / stride, p.c / stride, c, out)
                           : at(p.n, p.r * stride, p.c * stride, c, in);
        float v[8] = {0}, more[8];
        if (there)
            read8(x + from, v);
        if (add) {
            read8(add + i * 8, more);
#pragma unroll
            for (int k = 0; k < 8; k++)
                v[k] += more[k];
        }
        write8(y + i * 8, v);
    }
}

/* Whether eights fit; then it is done. */
static bool shortcut8(cudaStream_t s, size_t count, dro__extent in, dro__extent out, int stride,
                      bool back, dro__typed x, dro__typed add, dro__typed y)
{
    if (in.channels % 8 || (out.channels - in.channels) % 16 || x.bf16 != y.bf16 ||
        (add.p && add.bf16 != y.bf16) || count >> 32)
        return false;
    if (y.bf16)
        RUN(shortcut8_kernel, count / 8, in, out, stride, back, (const __nv_bfloat16 *)x.p,
            (const __nv_bfloat16 *)add.p, (__nv_bfloat16 *)y.p);
    else
        RUN(shortcut8_kernel, count / 8, in, out, stride, back, (const float *)x.p,
            (const float *)add.p, (float *)y.p);
    return true;
}

extern "C" void dro__gpu_shortcut(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                  int stride, dro__typed x, dro__typed y)
{
    dro__typed none = {NULL, 0};
    if (!shortcut8(s, n * SIZE(out), in, out, stride, false, x, none, y))
        RUN(shortcut_kernel, n * SIZE(out), in, out, stride, x, y);
}

static __global__ void shortcut_back_kernel(size_t count, dro__extent in, dro__extent out,
                                            int stride, dro__typed dy, dro__typed add,
                                            dro__typed dx)
{
    int before = (out.channels - in.channels) / 2;
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, in);
        bool taken = p.r % stride == 0 && p.c % stride == 0 && p.r / stride < out.height &&
                     p.c / stride < out.width;
        float g = taken ? read_at(dy, at(p.n, p.r / stride, p.c / stride, p.ch + before, out)) : 0;
        write_at(dx, i, g + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_shortcut_back(cudaStream_t s, int n, dro__extent in, dro__extent out,
                                       int stride, dro__typed dy, dro__typed add, dro__typed dx)
{
    if (!shortcut8(s, n * SIZE(in), in, out, stride, true, dy, add, dx))
        RUN(shortcut_back_kernel, n * SIZE(in), in, out, stride, dy, add, dx);
}

static __global__ void flatten_kernel(size_t count, dro__extent e, int back, dro__typed x,
                                      dro__typed add, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        place p = find(i, e);
        size_t far = p.n * SIZE(e) + plain(p, e);
        write_at(y, back ? i : far, read_at(x, back ? far : i) + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_flatten(cudaStream_t s, int n, dro__extent e, dro__typed x, dro__typed y)
{
    dro__typed none = {NULL, 0};
    RUN(flatten_kernel, n * SIZE(e), e, 0, x, none, y);
}

extern "C" void dro__gpu_flatten_back(cudaStream_t s, int n, dro__extent e, dro__typed dy,
                                      dro__typed add, dro__typed dx)
{
    RUN(flatten_kernel, n * SIZE(e), e, 1, dy, add, dx);
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
    __shared__ double room[THREADS / 32];
    int c = blockIdx.x, part = blockIdx.y;
    double sum = 0;
    for (int i = parts.first[part] + threadIdx.x; i < parts.first[part + 1]; i += THREADS)
        sum += (double)dy[(size_t)i * outputs + c];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        (part ? sum1 : sum0)[c] = (float)sum;
}

extern "C" void dro__gpu_columns(cudaStream_t s, dro__parts parts, int outputs, const float *dy,
                                 float *const *sums)
{
    columns_kernel<<<dim3(outputs, parts.count), THREADS, 0, s>>>(parts, outputs, dy, sums[0],
                                                                  parts.count > 1 ? sums[1] : NULL);
}
