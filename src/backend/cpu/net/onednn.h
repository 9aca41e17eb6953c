/* Every call of oneDNN is behind this header (written for version 2.6; version 3 would change onednn.c alone).
 *
 * A convolution is made once and then run on chunks of examples by several lanes at the same time, each with
 * one thread, its own scratch memory and its own accumulator. Values are blocked (examples, blocks, height,
 * width, B) except a plain first input; weights and their gradients go in and out as (out, in, kh, kw). */
#ifndef DRO_CPU_NET_ONEDNN_H
#define DRO_CPU_NET_ONEDNN_H

#include "graph.h"

typedef struct dro__onednn dro__onednn; /* the engine and a stream for each lane */
typedef struct dro__conv dro__conv;

typedef struct dro__conv_shape {
    int32_t in, in_height, in_width, out, height, width;
    dro_window window;
    bool plain;        /* the input is not blocked */
    bool data, weight; /* which gradients will be asked for */
} dro__conv_shape;

dro_status dro__onednn_create(dro_context *ctx, int lanes, dro__onednn **library);
void dro__onednn_destroy(dro__onednn *library);
int dro__onednn_block(void); /* channels side by side that suit this machine: 8 or 16 */
/* A lane's work is on one thread: call begin before it, end(begin's value) after it. */
int dro__onednn_begin(void);
void dro__onednn_end(int before);
/* c (m, n) = a b, row by row: a is (m, k), or (k, m) when flip_a; b (k, n), or (n, k) when flip_b; the
 * last three are the distances between rows. */
void dro__onednn_product(bool flip_a, bool flip_b, size_t m, size_t n, size_t k, const float *a,
                         const float *b, float *c, size_t row_a, size_t row_b, size_t row_c);

dro_status dro__conv_create(dro__onednn *library, const dro__conv_shape *shape, dro__conv **conv);
void dro__conv_destroy(dro__conv *conv);
/* Makes what chunks of `count` examples need; not in a lane. */
dro_status dro__conv_ready(dro__conv *conv, size_t count);
size_t dro__conv_scratch(const dro__conv *conv);    /* bytes of a lane's scratch, after ready */
size_t dro__conv_slope_size(const dro__conv *conv); /* floats of an accumulator */
/* Takes in weights: for forward, and for the gradient by the input. */
bool dro__conv_take(dro__conv *conv, const float *w, bool back);
bool dro__conv_forward(dro__conv *conv, size_t lane, size_t count, const float *x, float *z,
                       void *scratch);
bool dro__conv_data(dro__conv *conv, size_t lane, size_t count, const float *dz, float *dx,
                    void *scratch);
/* slope = this chunk's gradient by the weights, in the library's own layout. */
bool dro__conv_slope(dro__conv *conv, size_t lane, size_t count, const float *x, const float *dz,
                     float *slope, void *scratch);
bool dro__conv_slope_out(dro__conv *conv, const float *slope, float *dw);

#endif
