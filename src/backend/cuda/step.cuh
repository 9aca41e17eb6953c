/* What the kernels of a step share. What is done in them is written in opt/storm.c, opt/tilt.c and opt/opt_sgd.c; the tests
 * hold the two against each other. */
#ifndef DRO_CUDA_STEP_CUH
#define DRO_CUDA_STEP_CUH

#include "device.cuh"
#include "step.h"

enum { TILT_NONE, TILT_EXAMPLE, TILT_CLASS, TILT_GROUP };
enum { REG_NONE, REG_L2, REG_L1, REG_ELASTIC, REG_GROUP, REG_BOX };
enum { A_AUTO, A_FIXED, A_ETA2 };

#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += THREADS)
#define ONE if (threadIdx.x == 0)

/* |G1 - G0|^2 as a multiple of |G0 - d|^2 */
static __device__ __forceinline__ double drift_of(const dro__step_state *s)
{
    return s->observed && s->noise > 0 ? s->change / s->noise : 0;
}

#endif
