/* The context: which hardware to use, and the text of the last error.
 *
 * Everything else is created from a context and must be destroyed before it. A context and what was
 * created from it may be used by one thread at a time; different contexts are independent.
 * Stable. */
#ifndef DRO_CONTEXT_H
#define DRO_CONTEXT_H

#include <dro/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_context dro_context;

/* backend: "ref" (plain C, the reference), "cpu" (threads and SIMD), "cuda" (an NVIDIA GPU, in a
 * build with CUDA), or "auto" or NULL (the fastest that works). threads: 0 means all processors
 * that the process may use. On failure *ctx is NULL and there is no error text, only the status:
 * DRO_ERR_NAME: no such backend in this build; DRO_ERR_RANGE: threads below 0 or above 4096;
 * DRO_ERR_DEVICE: the backend does not work on this machine (see dro_backend_missing()). */
DRO_API dro_status dro_context_create(const char *backend, int threads, dro_context **ctx);
DRO_API void dro_context_destroy(dro_context *ctx); /* NULL is fine */

/* One line about the last call if it failed, "" if it succeeded. Borrowed until the next call on
 * ctx or on what was created from it. */
DRO_API const char *dro_context_error(const dro_context *ctx);

DRO_API const char *dro_context_backend(const dro_context *ctx);
DRO_API int dro_context_threads(const dro_context *ctx);

/* The backends of this build: name and one-line description of the i-th, or NULL past the last. */
DRO_API const char *dro_backend_name(int index);
DRO_API const char *dro_backend_summary(int index);
/* Why a backend of this build does not work on this machine, in one line; NULL when it does, or
 * when there is no such backend. Borrowed until the thread's next call. */
DRO_API const char *dro_backend_missing(const char *name);
/* One line about the device that a backend uses and the kernels that run on it; NULL for a backend
 * that runs on the processor, or if there is no device. Borrowed until the thread's next call. */
DRO_API const char *dro_backend_device(const char *name);

#ifdef __cplusplus
}
#endif
#endif
