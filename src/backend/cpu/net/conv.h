/* A convolution as the cpu backend's networks use it, and the kinds of them.
 *
 * It is made once and then run on chunks of examples by several lanes at the same time, each with
 * one thread, its own scratch memory and its own sum of gradients. Values are blocked (examples,
 * blocks, height, width, B) except a plain first input; weights and their gradients go in and out
 * as (out, in / groups, kh, kw). */
#ifndef DRO_CPU_NET_CONV_H
#define DRO_CPU_NET_CONV_H

#include "graph.h"

typedef struct dro__conv_shape {
    int32_t in, in_height, in_width, out, height, width, groups;
    dro_window window;
    bool plain;        /* the input is not blocked */
    bool data, weight; /* which gradients will be asked for */
} dro__conv_shape;

typedef struct dro__conv dro__conv;

typedef struct dro__conv_class {
    void (*destroy)(dro__conv *conv);
    /* Makes what chunks of `count` examples need; not in a lane. */
    dro_status (*ready)(dro__conv *conv, size_t count);
    /* Takes in weights: for forward, or for the gradient by the input. */
    bool (*take)(dro__conv *conv, const float *w, bool back);
    bool (*forward)(dro__conv *conv, size_t lane, size_t count, const float *x, float *z,
                    void *scratch);
    bool (*data)(dro__conv *conv, size_t lane, size_t count, const float *dz, float *dx,
                 void *scratch);
    /* sum += this chunk's gradient by the weights, in a layout of its own; `first`: sum holds
     * nothing yet. spare holds `spare` floats. Sums of several lanes may be added element by
     * element. */
    bool (*slope)(dro__conv *conv, size_t lane, size_t count, const float *x, const float *dz,
                  bool first, float *sum, float *spare, void *scratch);
    bool (*slope_out)(dro__conv *conv, const float *sum, float *dw);
} dro__conv_class;

struct dro__conv { /* every kind's struct begins with it */
    const dro__conv_class *cls;
    dro__conv_shape shape;
    size_t scratch;    /* bytes of a lane's scratch, after ready */
    size_t slope_size; /* floats of a sum, after ready */
    size_t spare;      /* floats that slope wants besides */
};

#endif
