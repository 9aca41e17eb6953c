/* 3x3, pad 1, stride 1 or 2 float32 convolution for blocked activations.
 *
 * Activations are (n, C/block, H, W, block) floats, C a multiple of the block; weights are plain
 * (o, i, 3, 3).  The method is Winograd's F(4x4, 3x3): winograd.c has the blocking,
 * winograd_tiles.c (stride 1) and winograd2_tiles.c (stride 2) the transforms,
 * winograd_products.c the matrix products.
 *
 * Everything is single-threaded and allocates nothing: every thread brings its own scratch, and
 * threads work on different images.  All buffers but the plain weights must be 64-byte aligned. */
#ifndef DRO_CPU_NET_WINOGRAD_H
#define DRO_CPU_NET_WINOGRAD_H

#include <stddef.h>

/* y = conv(x): x is h x w with ci channels, y is ceil(h / stride) x ceil(w / stride) with co. */
typedef struct dro__winograd_shape {
    int stride, ci, co, h, w;
} dro__winograd_shape;

enum { DRO__WINOGRAD_MATRICES = 36 }; /* ci x co matrices of transformed weights */

/* Floats of one transformed weight tensor (also of a gradient accumulator). */
static inline size_t dro__winograd_prepared(const dro__winograd_shape *s)
{
    return (size_t)DRO__WINOGRAD_MATRICES * (size_t)s->ci * (size_t)s->co;
}

/* The kernels for one instruction set. */
typedef struct dro__winograd {
    /* Floats of scratch one thread needs for any of the calls below. */
    size_t (*scratch)(const dro__winograd_shape *s);
    /* Transforms weights once per training step.  `fwd` serves `forward`, `bwd` `backward`.
     * Either may be NULL. */
    void (*prepare)(const dro__winograd_shape *s, const float *oihw, float *fwd, float *bwd);
    void (*forward)(const dro__winograd_shape *s, int n, const float *x, const float *fwd, float *y,
                    float *scratch);
    /* The gradient of x from that of y. */
    void (*backward)(const dro__winograd_shape *s, int n, const float *dy, const float *bwd,
                     float *dx, float *scratch);
    /* acc += the weight gradient of n images, in the Winograd domain.  Start with
     * dro__winograd_prepared zeros; accumulators of several threads may be added
     * element by element. */
    void (*weights)(const dro__winograd_shape *s, int n, const float *x, const float *dy,
                    float *acc, float *scratch);
    /* Turns an accumulator into the plain gradient, overwriting `grad`. */
    void (*finish)(const dro__winograd_shape *s, const float *acc, float *grad);
} dro__winograd;

#endif
