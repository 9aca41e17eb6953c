/* Vector operations: one pass over memory each, sums in double and always in the same order. */
#include "device.cuh"

static __device__ double combine(const dro__gpu_fused &f, const double *coef, const double *x)
{
    double sum = 0;
#pragma unroll
    for (int k = 0; k < DRO__GPU_IN; k++)
        if (k < f.inputs && coef[k] != 0)
            sum += coef[k] * x[k];
    return sum;
}

static __device__ double prox(const dro__gpu_fused &f, double x)
{
    double size = fabs(x) - f.threshold;
    x = (size > 0 ? copysign(size, x) : 0) * f.scale;
    return x < f.low ? f.low : x > f.high ? f.high : x;
}

/* Adds up the blocks' norms once all have written theirs; the last block to come does it. */
static __device__ void gather_norms(const dro__gpu_fused &f, const double *norm)
{
    __shared__ double room[THREADS / 32];
    __shared__ bool last;
    for (int m = 0; m < f.norms; m++) {
        double sum = block_sum(norm[m], room);
        if (threadIdx.x == 0)
            f.partial[blockIdx.x * f.norms + m] = sum;
    }
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(f.counter, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (int m = 0; m < f.norms; m++) {
        double x = 0;
        for (unsigned k = threadIdx.x; k < gridDim.x; k += THREADS)
            x += ((volatile double *)f.partial)[k * f.norms + m];
        double sum = block_sum(x, room);
        if (threadIdx.x == 0)
            f.result[m] = sum;
    }
    if (threadIdx.x == 0)
        *f.counter = 0;
}

static __global__ void fused_kernel(const __grid_constant__ dro__gpu_fused f)
{
    double norm[DRO__GPU_NORM] = {0};
    for (size_t i = FIRST; i < f.n; i += STEP) {
        double x[DRO__GPU_IN], out[DRO__GPU_OUT];
#pragma unroll
        for (int k = 0; k < DRO__GPU_IN; k++)
            x[k] = k < f.inputs && f.used[k] ? (double)f.in[k][i] : 0;
#pragma unroll
        for (int m = 0; m < DRO__GPU_NORM; m++)
            if (m < f.norms) {
                double y = combine(f, f.norm_coef[m], x);
                norm[m] += y * y;
            }
#pragma unroll
        for (int j = 0; j < DRO__GPU_OUT; j++)
            if (j < f.outputs)
                out[j] = combine(f, f.coef[j], x);
#pragma unroll
        for (int j = 0; j < DRO__GPU_OUT; j++)
            if (j < f.outputs)
                f.out[j][i] = (float)(j == f.prox_out ? prox(f, out[j]) : out[j]);
    }
    if (f.norms)
        gather_norms(f, norm);
}

extern "C" void dro__gpu_fused_pass(cudaStream_t s, const dro__gpu_fused *f)
{
    unsigned blocks = blocks_for(f->n), most = DRO__GPU_BLOCKS;
    fused_kernel<<<blocks < most ? blocks : most, THREADS, 0, s>>>(*f);
}

static __global__ void bad_kernel(size_t n, const float *x, unsigned long long *first,
                                  unsigned *counter, unsigned long long *result)
{
    unsigned long long found = ~0ull;
    for (size_t i = FIRST; i < n; i += STEP)
        if (!isfinite(x[i]) && i < found)
            found = i;
    if (found != ~0ull)
        atomicMin(first, found);
    __syncthreads();
    if (threadIdx.x)
        return;
    __threadfence();
    if (atomicAdd(counter, 1) == gridDim.x - 1) {
        __threadfence();
        *result = atomicExch(first, ~0ull);
        *counter = 0;
    }
}

extern "C" void dro__gpu_first_bad(cudaStream_t s, size_t n, const float *x,
                                   unsigned long long *first, unsigned *counter,
                                   unsigned long long *result)
{
    bad_kernel<<<blocks_for(n), THREADS, 0, s>>>(n, x, first, counter, result);
}

static __global__ void shrink_kernel(float *x, const int64_t *offsets, double threshold)
{
    __shared__ double room[THREADS / 32], scale;
    int64_t from = offsets[blockIdx.x], to = offsets[blockIdx.x + 1];
    double sum = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += THREADS)
        sum += (double)x[i] * (double)x[i];
    double norm = sqrt(block_sum(sum, room));
    if (threadIdx.x == 0)
        scale = norm > threshold ? 1 - threshold / norm : 0;
    __syncthreads();
    for (int64_t i = from + threadIdx.x; i < to; i += THREADS)
        x[i] = (float)(scale * (double)x[i]);
}

extern "C" void dro__gpu_block_shrink(cudaStream_t s, float *x, const int64_t *offsets,
                                      size_t blocks, double threshold)
{
    if (blocks)
        shrink_kernel<<<(unsigned)blocks, THREADS, 0, s>>>(x, offsets, threshold);
}
