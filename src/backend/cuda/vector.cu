/* Vector operations other than the moves of a step (step.cu): one kernel each. */
#include "device.cuh"

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
    __shared__ double smem[THREADS / 32], scale;
    int64_t from = offsets[blockIdx.x], to = offsets[blockIdx.x + 1];
    double sum = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += THREADS)
        sum += (double)x[i] * (double)x[i];
    double norm = sqrt(block_sum(sum, smem));
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
