/* The cuda backend: one NVIDIA GPU of compute capability 8.0 or later. A call queues its work on
 * the calling thread's own stream and waits for it before returning, so objects may be used by one
 * thread after another. Only queue.c leaves steps running. Each of them ends with an event, for
 * which the next call waits. */
#ifndef DRO_CUDA_H
#define DRO_CUDA_H

#include "kernels.h"

#include "../graph.h"

extern const dro__net_backend dro__cuda_net;

/* The GPU of this process: the rank within the machine modulo the number of GPUs. A thread calls
 * dro__cuda_use before other CUDA functions. */
int dro__cuda_device(void);
void dro__cuda_use(void);
/* The stream that a thread's calls are queued on. */
#define DRO__STREAM (dro__cuda_use(), cudaStreamPerThread)

/* Zeroed device memory; NULL if there is none left. */
void *dro__cuda_alloc(size_t count, size_t size);
void dro__cuda_free(void *memory);
/* Whether a pointer refers to device memory. */
bool dro__cuda_is_device(const void *pointer);
/* Copies in either direction and waits. */
cudaError_t dro__cuda_copy(void *to, const void *from, size_t bytes);
/* Fills x with NaN where something could not be computed or copied and the function returns no
 * status: the next reader of x refuses the NaN. */
void dro__cuda_poison(float *x, size_t n);
/* Mapped host memory, which host and device both access; not zeroed. Free it with
 * dro__cuda_host_free. */
void *dro__cuda_host_alloc(size_t bytes);
void dro__cuda_host_free(void *memory);

/* Turns an error of the CUDA runtime into a status with its text. */
dro_status dro__cuda_check(dro_context *ctx, cudaError_t error, const char *what);
#define DRO__CUDA(ctx, call) DRO_TRY(dro__cuda_check((ctx), (call), #call))

#endif
