/* Tails: bias, batch norm, residual and ReLU. Sums are taken in double. */
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

/* ---- sums over the rows of a part: 32 channels and 8 rows at a time ---- */

enum { LANES = 32, ROWS = 8 };

/* Adds what the block has found for its channels. */
static __device__ void add_sums(const dro__numbers &n, double *to, int part, int c, double a,
                                double b)
{
    __shared__ double room[2][ROWS][LANES];
    room[0][threadIdx.y][threadIdx.x] = a;
    room[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y > 1 || c >= n.channels)
        return;
    double sum = 0;
    for (int k = 0; k < ROWS; k++)
        sum += room[threadIdx.y][k][threadIdx.x];
    add_sum(&to[(2 * part + threadIdx.y) * n.channels + c], n.channels, sum);
}

static __global__ void sums_kernel(dro__parts parts, int area, dro__typed z, dro__numbers n)
{
    int c = blockIdx.x * LANES + threadIdx.x, part = blockIdx.z;
    size_t from = (size_t)parts.first[part] * area, to = (size_t)parts.first[part + 1] * area;
    double sum = 0, square = 0;
    if (c < n.channels)
        for (size_t i = from + blockIdx.y * ROWS + threadIdx.y; i < to; i += gridDim.y * ROWS) {
            double x = (double)read_at(z, i * n.channels + c);
            sum += x;
            square += x * x;
        }
    add_sums(n, n.sums, part, c, sum, square);
}

static dim3 sums_grid(dro__parts parts, size_t area, int channels)
{
    size_t rows = area * (size_t)(parts.first[1] - parts.first[0]), most = (rows + 63) / 64;
    return dim3((channels + LANES - 1) / LANES, (unsigned)(most < 256 ? most : 256), parts.count);
}

extern "C" void dro__gpu_sums(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z,
                              dro__numbers n)
{
    int area = e.height * e.width;
    sums_kernel<<<sums_grid(parts, area, n.channels), dim3(LANES, ROWS), 0, s>>>(parts, area, z, n);
}

static __global__ void close_kernel(dro__parts parts, int area, dro__typed slope, dro__typed y,
                                    dro__typed z, int relu, dro__numbers n, dro__typed g)
{
    int c = blockIdx.x * LANES + threadIdx.x, part = blockIdx.z;
    size_t from = (size_t)parts.first[part] * area, to = (size_t)parts.first[part + 1] * area;
    double sum = 0, dot = 0;
    if (c < n.channels) {
        float mean = n.mean[part * n.channels + c], scale = n.scale[part * n.channels + c],
              shift = n.shift[part * n.channels + c];
        for (size_t i = from + blockIdx.y * ROWS + threadIdx.y; i < to; i += gridDim.y * ROWS) {
            size_t at = i * n.channels + c;
            float x = read_at(slope, at), off = read_or_0(z, at) - mean;
            if (relu) {
                float out = y.p ? read_at(y, at) : off * scale + shift;
                x = out > 0 || isnan(out) ? x : 0;
            }
            write_at(g, at, x);
            sum += (double)x;
            dot += (double)x * (double)off;
        }
    }
    add_sums(n, n.back, part, c, sum, dot);
}

extern "C" void dro__gpu_close(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed slope,
                               dro__typed y, dro__typed z, int relu, dro__numbers n, dro__typed g)
{
    int area = e.height * e.width;
    close_kernel<<<sums_grid(parts, area, n.channels), dim3(LANES, ROWS), 0, s>>>(
        parts, area, slope, y, z, relu, n, g);
}

/* ---- element by element; eight channels to a thread where they fill whole words ---- */

/* count: of eights; border: the first eight of the second part */
template <typename T>
static __global__ void apply8_kernel(unsigned count, unsigned border, const T *z, dro__numbers n,
                                     const T *residual, int relu, T *y)
{
    unsigned eights = n.channels / 8;
    for (unsigned i = FIRST; i < count; i += STEP) {
        int at = (i >= border ? n.channels : 0) + i % eights * 8;
        float x[8], mean[8], scale[8], shift[8], more[8] = {0};
        read8(z + (size_t)i * 8, x);
        if (residual)
            read8(residual + (size_t)i * 8, more);
        read8(n.mean + at, mean);
        read8(n.scale + at, scale);
        read8(n.shift + at, shift);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            x[k] = (x[k] - mean[k]) * scale[k] + shift[k] + more[k];
            x[k] = relu && x[k] <= 0 ? 0 : x[k];
        }
        write8(y + (size_t)i * 8, x);
    }
}


static __global__ void apply_kernel(dro__parts parts, size_t count, size_t size, dro__typed z,
                                    dro__numbers n, dro__typed residual, int relu, dro__typed y)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        int at = part_of(parts, i / size) * n.channels + (int)(i % n.channels);
        float x = (read_at(z, i) - n.mean[at]) * n.scale[at] + n.shift[at] + read_or_0(residual, i);
        write_at(y, i, relu && x <= 0 ? 0 : x);
    }
}

extern "C" void dro__gpu_apply(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z,
                               dro__numbers n, dro__typed residual, int relu, dro__typed y)
{
    size_t size = (size_t)e.channels * e.height * e.width, count = size * parts.first[parts.count];
    bool whole = n.channels % 8 == 0 && z.bf16 == y.bf16 && count / 8 < 1u << 31 &&
                 (!residual.p || residual.bf16 == y.bf16);
    unsigned border = (unsigned)(size / 8 * parts.first[1]), eights = (unsigned)(count / 8);
    if (!whole)
        apply_kernel<<<blocks_for(count), THREADS, 0, s>>>(parts, count, size, z, n, residual, relu,
                                                           y);
    else if (y.bf16)
        apply8_kernel<<<blocks_for(eights), THREADS, 0, s>>>(
            eights, border, (const __nv_bfloat16 *)z.p, n, (const __nv_bfloat16 *)residual.p, relu,
            (__nv_bfloat16 *)y.p);
    else
        apply8_kernel<<<blocks_for(eights), THREADS, 0, s>>>(eights, border, (const float *)z.p, n,
                                                             (const float *)residual.p, relu,
                                                             (float *)y.p);
}

static __global__ void slope_kernel(dro__parts parts, size_t count, size_t size, dro__typed g,
                                    dro__typed z, dro__numbers n, dro__typed add, dro__typed dz)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        int at = part_of(parts, i / size) * n.channels + (int)(i % n.channels);
        float x = n.p[at] * read_at(g, i) + n.r[at];
        if (z.p)
            x += n.q[at] * (read_at(z, i) - n.mean[at]);
        write_at(dz, i, x + read_or_0(add, i));
    }
}

extern "C" void dro__gpu_slope(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed g,
                               dro__typed z, dro__numbers n, dro__typed add, dro__typed dz)
{
    size_t size = (size_t)e.channels * e.height * e.width, count = size * parts.first[parts.count];
    slope_kernel<<<blocks_for(count), THREADS, 0, s>>>(parts, count, size, g, z, n, add, dz);
}
