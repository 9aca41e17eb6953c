/* The losses of loss_functions.h: one block for each example, arithmetic in double. */
#include "device.cuh"
#include "loss_functions.h"

enum { LOSS_THREADS = 128 };

static __global__ void loss_kernel(dro__loss_args a, const float *logits, int add, float *losses,
                                   float *slopes)
{
    size_t n = blockIdx.x;
    dro__loss_example example = {a.outputs, a.labels ? a.labels[n] : -1, a.set, a.constants,
                                 a.targets ? a.targets + n * a.outputs : NULL, (double)a.weight,
                                 false};
    float share = a.mixes ? a.mixes[n].share : 1;
    const float *z = logits + n * a.outputs;
    float *slope = slopes + n * a.outputs;
    double loss = share < 1 ? dro__loss_mixed(a.kind, &example, (double)share, a.mixes[n].label, z,
                                              slope)
                            : dro__loss_value(a.kind, &example, z, slope);
    if (threadIdx.x == 0)
        losses[n] = (add ? losses[n] : 0) + (float)((double)a.weight * loss);
}

extern "C" void dro__gpu_loss(cudaStream_t s, int n, dro__loss_args a, const float *logits, int add,
                              float *losses, float *slopes)
{
    loss_kernel<<<n, a.outputs <= 32 ? 32 : LOSS_THREADS, 0, s>>>(a, logits, add, losses, slopes);
}

static __global__ void loss_back_kernel(size_t count, int outputs, const float *coef,
                                        const float *slopes, dro__typed add, dro__typed dx)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(dx, i, coef[i / outputs] * slopes[i] + read_or_0(add, i));
}

extern "C" void dro__gpu_loss_back(cudaStream_t s, int n, int outputs, const float *coef,
                                   const float *slopes, dro__typed add, dro__typed dx)
{
    size_t count = (size_t)n * outputs;
    loss_back_kernel<<<blocks_for(count), THREADS, 0, s>>>(count, outputs, coef, slopes, add, dx);
}
