/* The cuda backend: one NVIDIA GPU of compute capability 8.0 or later. Everything is queued on the
 * calling thread's own stream and waited for before the call returns, so that objects may go from
 * thread to thread. Only queue.c leaves steps behind, each with an event that whoever comes next
 * waits for. */
#ifndef DRO_CUDA_H
#define DRO_CUDA_H

#include "kernels.h"

#include "../graph.h"

extern const dro__net_backend dro__cuda_net;

/* The GPU of this process: ranks of one machine take one after the other. A thread that calls CUDA
 * uses it first. */
int dro__cuda_device(void);
void dro__cuda_use(void);
/* The stream that a thread's calls are queued on. */
#define DRO__STREAM (dro__cuda_use(), cudaStreamPerThread)

/* Zeroed device memory, NULL when there is none. */
void *dro__cuda_alloc(size_t count, size_t size);
void dro__cuda_free(void *memory);
/* Whether a pointer is the device's own memory. */
bool dro__cuda_is_device(const void *pointer);
/* Either way; waits. */
cudaError_t dro__cuda_copy(void *to, const void *from, size_t bytes);
/* Makes NaN of what could not be computed or copied, where there is no status to return: whoever
 * reads it next refuses it. */
void dro__cuda_poison(float *x, size_t n);
/* Memory that both sides see, not zeroed; freed with dro__cuda_host_free. */
void *dro__cuda_host_alloc(size_t bytes);
void dro__cuda_host_free(void *memory);

/* A failed call of the runtime as a status with its text. */
dro_status dro__cuda_check(dro_context *ctx, cudaError_t error, const char *what);
#define DRO__CUDA(ctx, call) DRO_TRY(dro__cuda_check((ctx), (call), #call))

#endif
