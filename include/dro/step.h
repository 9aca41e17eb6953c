/* step: steps on losses and gradients that the caller brings. Experimental: names may change.
 *
 * For callers that evaluate a model themselves, such as the Python package for PyTorch. The
 * library calls none of the problem's callbacks:
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
 * In host memory a call that fails leaves the state as it was before the step.
 *
 * On a device the state is in memory that the caller has allocated there, and the phases of a step
 * are a module's (libdro_step_cuda.so): they are queued on a stream, and nothing is copied to the
 * host. A step that meets a number that is not finite changes nothing, nor do those queued behind
 * it; a later dro_step_begin reports it. dro_optimizer_info, save and load copy the state, and
 * wait. */
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
    void *stream;            /* the device's, for the copy of the state */
    void *memory;            /* of the device, until the optimiser is destroyed */
    size_t bytes;            /* how large; where that is not enough it is set to what is needed */
    const float *w, *before; /* before: NULL where no batch is evaluated twice */
    float *gradient, *gradient_before;
} dro_lent;
/* Fills in the pointers. module with memory == NULL: fills in bytes only. */
DRO_API dro_status dro_step_lend(dro_optimizer *opt, dro_lent *lent);

/* A batch. In the device's memory if the vectors are there. */
typedef struct dro_step_batch {
    size_t count;          /* at most the setting `batch` */
    const float *losses;   /* (count) */
    const int64_t *labels; /* (count) classes or groups, where the tilt is over them; else NULL */
    float *coef;           /* (count) out */
} dro_step_batch;

/* twice: the batch is evaluated at the weights before, first. DRO_ERR_NUMBER, DRO_ERR_DATA: an
 * earlier step was refused; this one has not begun. */
DRO_API dro_status dro_step_begin(dro_optimizer *opt, void *stream, bool *twice);
DRO_API dro_status dro_step_weigh(dro_optimizer *opt, bool before, const dro_step_batch *batch);
DRO_API dro_status dro_step_end(dro_optimizer *opt);
/* Drops the step that has begun, if one has. */
DRO_API dro_status dro_step_cancel(dro_optimizer *opt);
/* Between steps: other weights. The estimator and all moments begin again. changed: NULL, or where
 * the device says whether it is so (a byte). */
DRO_API dro_status dro_step_replace(dro_optimizer *opt, const float *w, const void *changed,
                                    void *stream);

#ifdef __cplusplus
}
#endif
#endif
