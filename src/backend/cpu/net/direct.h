/* Convolutions with windows of any size, as sums over the window: what is used without oneDNN where
 * Winograd's method does not apply. Values are blocked; padded channels must be zero.
 * Single-threaded; scratch as for winograd.h. */
#ifndef DRO_CPU_NET_DIRECT_H
#define DRO_CPU_NET_DIRECT_H

#include "conv.h"

typedef struct dro__direct {
    size_t (*weights)(const dro__conv_shape *s); /* floats of a set of weights, or of a sum */
    size_t (*scratch)(const dro__conv_shape *s); /* floats */
    /* (out, in, kh, kw) to the layout of forward, or of backward; and a sum back. */
    void (*prepare)(const dro__conv_shape *s, const float *oihw, bool back, float *w);
    void (*finish)(const dro__conv_shape *s, const float *sum, float *oihw);
    void (*forward)(const dro__conv_shape *s, size_t n, const float *x, const float *w, float *z,
                    float *scratch);
    void (*backward)(const dro__conv_shape *s, size_t n, const float *dz, const float *w, float *dx,
                     float *scratch);
    /* sum += the gradient by the weights */
    void (*slope)(const dro__conv_shape *s, size_t n, const float *x, const float *dz, float *sum,
                  float *scratch);
} dro__direct;

#endif
