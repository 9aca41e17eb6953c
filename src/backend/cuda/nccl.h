/* NCCL, where it is installed: sums over ranks that are queued on a stream, recorded or not. */
#ifndef DRO_CUDA_NCCL_H
#define DRO_CUDA_NCCL_H

#include "device_comm.h"

#include <cuda_runtime_api.h>

extern const dro__device_comms dro__cuda_comms;

/* Queue a sum over all ranks; false: it could not be queued. All ranks must queue the same sums in
 * the same order. */
bool dro__nccl_sum_doubles(dro__device_comm *c, cudaStream_t s, const double *from, double *to,
                           size_t count);
/* The same for one or two arrays, in place, as one operation. */
bool dro__nccl_sum_floats(dro__device_comm *c, cudaStream_t s, float *const *arrays,
                          int array_count, size_t count);
int dro__nccl_size(const dro__device_comm *c); /* number of ranks; NULL: 1 */

#endif
