/* Caller-driven steps: the caller evaluates the model and passes losses and gradients to the
 * library, as the Python package does for PyTorch. The library calls none of the problem's
 * callbacks. Experimental.
 *
 *     dro_step_lend(opt, &lent);                       after dro_optimizer_start
 *     for (;;) {
 *         dro_step_begin(opt, stream, &twice);
 *         if (twice) {                                 recover and cover with form=two-point
 *             losses of the batch at lent.before;
 *             dro_step_weigh(opt, true, &batch);
 *             lent.gradient_before = sum_i coef_i grad loss_i at lent.before;
 *         }
 *         losses of the same batch at lent.w;
 *         dro_step_weigh(opt, false, &batch);
 *         lent.gradient = sum_i coef_i grad loss_i at lent.w;
 *         dro_step_end(opt);                           lent.before = lent.w, and lent.w moves
 *     }
 *
 * In host memory, a call that fails leaves the state as it was before the step.
 *
 * On a device, the state is in device memory that the caller has allocated, and a module
 * (libdro_step_cuda.so) runs the phases of a step. They are queued on a stream; no vector is copied
 * to the host. A step with a number that is not finite changes nothing, nor do the steps queued
 * behind it; a later dro_step_begin reports it. dro_optimizer_info, save and load wait for the
 * device and copy the state. */
#ifndef DRO_PUBLIC_STEP_H
#define DRO_PUBLIC_STEP_H

#include <dro/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the vectors of an optimiser are, (dim) each. */
typedef struct dro_lent {
    size_t size;             /* sizeof(dro_lent) */
    const void *module;      /* dro_step_cuda of libdro_step_cuda.so; NULL: host memory */
    void *stream;            /* of the device, for copying the state */
    void *memory;            /* of the device; borrowed until the optimiser is destroyed */
    size_t bytes;            /* size of `memory`; if it is too small, set to the size needed */
    const float *w, *before; /* before: NULL where no batch is evaluated twice */
    float *gradient, *gradient_before;
} dro_lent;
/* Fills in the pointers. With a module and memory == NULL it fills in `bytes` only. */
DRO_API dro_status dro_step_lend(dro_optimizer *opt, dro_lent *lent);

/* A batch. Its arrays are in device memory if the vectors are. */
typedef struct dro_step_batch {
    size_t count;          /* at most the setting `batch` */
    const float *losses;   /* (count) */
    const int64_t *labels; /* (count) classes or groups if the tilt is over them; else NULL */
    float *coef;           /* (count) out */
} dro_step_batch;

/* *twice: evaluate the batch at lent.before first, then at lent.w. DRO_ERR_NUMBER, DRO_ERR_DATA: an
 * earlier step was refused; this one has not begun. */
DRO_API dro_status dro_step_begin(dro_optimizer *opt, void *stream, bool *twice);
DRO_API dro_status dro_step_weigh(dro_optimizer *opt, bool before, const dro_step_batch *batch);
DRO_API dro_status dro_step_end(dro_optimizer *opt);
/* Cancels the step that has begun, if there is one. */
DRO_API dro_status dro_step_cancel(dro_optimizer *opt);
/* Between steps: replaces the weights by w and starts the estimator and all moments afresh. changed
 * (optional): a byte in device memory; if it is 0, nothing is replaced. */
DRO_API dro_status dro_step_replace(dro_optimizer *opt, const float *w, const void *changed,
                                    void *stream);

#ifdef __cplusplus
}
#endif
#endif
