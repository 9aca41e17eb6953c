/* The cosine classifier: y (n, out) = gain <x, w> / (|x| |w|), in floats, with |x|^2 = sum of
 * squares + DRO__COSINE_EPS. A warp computes the product of one row of x and one of w. Sums
 * are added in a fixed order.
 *
 * With c = <x, w> / (|x| |w|):  dc/dx = (w/|w| - c x/|x|) / |x|, and the same for w. */
#include "device.cuh"

enum { WARPS = THREADS / 32, TILE = 512 };

typedef struct dots {
    float product, x, w; /* <x, w>, 1/|x|, 1/|w| */
} dots;

/* Called by all lanes of a warp. */
static __device__ dots dots_of(int in, const float *x, const float *w)
{
    float p = 0, a = 0, b = 0;
    for (int i = (int)threadIdx.x % 32; i < in; i += 32) {
        p += x[i] * w[i];
        a += x[i] * x[i];
        b += w[i] * w[i];
    }
    for (int o = 16; o; o >>= 1) {
        p += __shfl_xor_sync(~0u, p, o);
        a += __shfl_xor_sync(~0u, a, o);
        b += __shfl_xor_sync(~0u, b, o);
    }
    return {p, 1 / sqrtf(a + DRO__COSINE_EPS), 1 / sqrtf(b + DRO__COSINE_EPS)};
}

static __global__ void forward_kernel(const __grid_constant__ dro__cosine c, float *y)
{
    size_t all = (size_t)c.n * (size_t)c.out;
    for (size_t k = FIRST / 32; k < all; k += STEP / 32) {
        size_t n = divided(k, c.out), o = k - n * (size_t)c.out;
        dots d = dots_of(c.in, c.x + n * (size_t)c.in, c.w + o * (size_t)c.in);
        if (threadIdx.x % 32 == 0)
            y[k] = c.gain * d.product * d.x * d.w;
    }
}

/* One block for each example. Overwrites dy with dy/|w|. */
static __global__ void data_kernel(const __grid_constant__ dro__cosine c, dro__typed add, float *dx)
{
    __shared__ double scratch[WARPS];
    __shared__ float share, scale;
    size_t n = blockIdx.x;
    const float *x = c.x + n * (size_t)c.in;
    float *dy = c.dy + n * (size_t)c.out;
    double sum = 0;
    for (int o = (int)threadIdx.x / 32; o < c.out; o += WARPS) {
        dots d = dots_of(c.in, x, c.w + (size_t)o * (size_t)c.in);
        if (threadIdx.x % 32 == 0) {
            sum += (double)(dy[o] * d.product * d.x * d.w);
            dy[o] *= d.w;
            scale = d.x; /* the same for all outputs */
        }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0)
        share = (float)sum * scale;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < c.in; i += THREADS) {
        float slope = 0;
        for (int o = 0; o < c.out; o++)
            slope += dy[o] * c.w[(size_t)o * (size_t)c.in + i];
        size_t to = n * (size_t)c.in + i;
        dx[to] = read_or_0(add, to) + c.gain * scale * (slope - share * x[i]);
    }
}

/* One block for each output and part. */
static __global__ void weight_kernel(const __grid_constant__ dro__cosine c, float *grad0,
                                     float *grad1)
{
    __shared__ double scratch[WARPS];
    __shared__ float coef[TILE], share, scale;
    int o = blockIdx.x, part = blockIdx.y;
    const float *w = c.w + (size_t)o * (size_t)c.in;
    float *grad = (part ? grad1 : grad0) + (size_t)o * (size_t)c.in;
    int first = c.parts.first[part], end = c.parts.first[part + 1];
    double sum = 0;
    for (int from = first; from < end; from += TILE) {
        int count = end - from < TILE ? end - from : TILE;
        for (int k = (int)threadIdx.x / 32; k < count; k += WARPS) {
            size_t n = (size_t)(from + k);
            dots d = dots_of(c.in, c.x + n * (size_t)c.in, w);
            if (threadIdx.x % 32 == 0) {
                float dy = c.dy[n * (size_t)c.out + o];
                sum += (double)(dy * d.product * d.x * d.w);
                coef[k] = dy * d.x;
                scale = d.w; /* the same for all examples */
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < c.in; i += THREADS) {
            float slope = from > first ? grad[i] : 0;
            for (int k = 0; k < count; k++)
                slope += coef[k] * c.x[(size_t)(from + k) * (size_t)c.in + i];
            grad[i] = slope;
        }
        __syncthreads();
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0)
        share = (float)sum * scale;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < c.in; i += THREADS)
        grad[i] = c.gain * scale * (grad[i] - share * w[i]);
}

extern "C" void dro__gpu_cosine(cudaStream_t s, const dro__cosine *c, float *y)
{
    forward_kernel<<<blocks_for((size_t)c->n * (size_t)c->out * 32), THREADS, 0, s>>>(*c, y);
}

extern "C" void dro__gpu_cosine_data(cudaStream_t s, const dro__cosine *c, dro__typed add,
                                     float *dx)
{
    data_kernel<<<(unsigned)c->n, THREADS, 0, s>>>(*c, add, dx);
}

extern "C" void dro__gpu_cosine_weight(cudaStream_t s, const dro__cosine *c, float *const *grads)
{
    dim3 grid((unsigned)c->out, (unsigned)c->parts.count);
    weight_kernel<<<grid, THREADS, 0, s>>>(*c, grads[0], grads[1]);
}
