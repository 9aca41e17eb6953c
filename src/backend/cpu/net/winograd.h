/* 3x3, pad 1, stride 1 or 2 float32 convolution for blocked activations.
 *
 * Activations are (n, C/16, H, W, 16) floats, 64-byte aligned, C a multiple of
 * 16; weights are plain (o, i, 3, 3).  The method is Winograd's F(4x4, 3x3):
 * winograd.c has the blocking, winograd_tiles.c (stride 1) and winograd2_tiles.c (stride 2)
 * the transforms, winograd_products.c the matrix products; dro__winograd_first.c is a direct
 * kernel for the first layer.
 *
 * Everything is single-threaded and allocates nothing: every thread brings its
 * own scratch, and threads work on different images.  All buffers but the plain
 * weights must be 64-byte aligned.  Needs a CPU with AVX-512 F, DQ, VL and BW.
 */
#ifndef DRO_CPU_NET_WINOGRAD_H
#define DRO_CPU_NET_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

bool dro__winograd_works(void); /* this machine has AVX-512 */

/* Floats of scratch one thread needs for any of the calls below. */
size_t dro__winograd_scratch(int ci, int co, int h, int w);

/* Floats of one transformed weight tensor (also of a gradient accumulator). */
size_t dro__winograd_prepared(int ci, int co);

/* Transforms weights once per training step.  `fwd` serves y = conv(x); `bwd`
 * holds the rotated filters with inputs and outputs swapped.  Either may be
 * NULL. */
void dro__winograd_prepare(int ci, int co, const float *oihw, float *fwd, float *bwd);

/* y = conv(x) for n images.  With the `bwd` weights and ci and co swapped the
 * same call computes the gradient of the input from the gradient of the output:
 * dro__winograd_forward(n, co, ci, h, w, dy, bwd, dx, scratch). */
void dro__winograd_forward(int n, int ci, int co, int h, int w, const float *x,
                           const float *prepared, float *y, float *scratch);

/* acc += the weight gradient of n images, in the Winograd domain.  Start with
 * dro__winograd_prepared(ci, co) zeros; accumulators of several threads may be added
 * element by element. */
void dro__winograd_weights(int n, int ci, int co, int h, int w, const float *x, const float *dy,
                           float *acc, float *scratch);

/* Turns an accumulator into the plain gradient, overwriting `grad`. */
void dro__winograd_weights_finish(int ci, int co, const float *acc, float *grad);

/* The same with stride 2: x is h x w, y is (h + 1) / 2 x (w + 1) / 2.  Prepared
 * weights and accumulators have dro__winograd_prepared(ci, co) floats, but their own
 * form.  dro__winograd2_backward takes the `bwd` weights; ci and co stay those of the
 * layer. */
size_t dro__winograd2_scratch(int ci, int co, int h, int w);
void dro__winograd2_prepare(int ci, int co, const float *oihw, float *fwd, float *bwd);
void dro__winograd2_forward(int n, int ci, int co, int h, int w, const float *x,
                            const float *prepared, float *y, float *scratch);
void dro__winograd2_backward(int n, int ci, int co, int h, int w, const float *dy,
                             const float *prepared, float *dx, float *scratch);
void dro__winograd2_weights(int n, int ci, int co, int h, int w, const float *x, const float *dy,
                            float *acc, float *scratch);
void dro__winograd2_weights_finish(int ci, int co, const float *acc, float *grad);

#endif
