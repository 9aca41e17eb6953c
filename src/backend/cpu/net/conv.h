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

/* Examples that one lane runs, and its memory. */
typedef struct dro__conv_chunk {
    size_t lane, count;
    void *scratch; /* dro__conv.scratch bytes */
    float *spare;  /* dro__conv.spare floats */
} dro__conv_chunk;

typedef struct dro__conv_class {
    void (*destroy)(dro__conv *conv);
    /* Makes what chunks of `count` examples need; not in a lane. NULL: nothing. */
    dro_status (*ready)(dro__conv *conv, size_t count);
    /* Takes in weights: for forward, or for the gradient by the input. */
    bool (*take)(dro__conv *conv, const float *w, bool back);
    bool (*forward)(dro__conv *conv, const dro__conv_chunk *chunk, const float *x, float *z);
    bool (*data)(dro__conv *conv, const dro__conv_chunk *chunk, const float *dz, float *dx);
    /* sum += this chunk's gradient by the weights, in a layout of its own; `first`: sum holds
     * nothing yet. Sums of several lanes may be added element by element. */
    bool (*slope)(dro__conv *conv, const dro__conv_chunk *chunk, const float *x, const float *dz,
                  bool first, float *sum);
    bool (*slope_out)(dro__conv *conv, const float *sum, float *dw);
} dro__conv_class;

struct dro__conv { /* every kind's struct begins with it */
    const dro__conv_class *cls;
    dro__conv_shape shape;
    size_t scratch;    /* bytes of a lane's scratch, after ready */
    size_t slope_size; /* floats of a sum, after ready */
    size_t spare;      /* floats that slope wants besides */
    float *weights[2]; /* as `take` stores them: for forward, for the gradient by the input */
};

/* Memory for weights of `floats` floats, which is also the size of a sum. */
dro_status dro__conv_weights(dro_context *ctx, dro__conv *conv, size_t floats);
void dro__conv_free(dro__conv *conv); /* the `destroy` of a kind that has nothing else */

#endif
