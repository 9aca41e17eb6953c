/* The reference network: plain loops over plain arrays (examples, channels, height, width), every
 * value kept. Sums are formed in double, but for slopes, which add up where they are. A test
 * compiles the same files with DRO__REF_REAL double to compare the gradients with finite
 * differences. */
#ifndef DRO_REF_NET_H
#define DRO_REF_NET_H

#include "graph.h"

#ifndef DRO__REF_REAL
#define DRO__REF_REAL float
#endif
typedef DRO__REF_REAL dro__real;

typedef struct dro__ref_state {
    dro_context *ctx;
    const dro__graph *graph;
    dro__net_memory memory;
    size_t capacity;   /* examples that the arrays hold */
    dro__real **value; /* (count) arrays of (capacity, size) */
    dro__real **slope; /* (count) gradients of the same shape */
    double *
        *moments; /* (count) norms: (parts, 2, channels) mean and variance used by the forward */
    double *norm_sums; /* (2, most channels) and one more: a norm's sums */
    double *plane;     /* (largest height * width) */
    double *row;       /* (2, DRO__OUTPUTS_MAX) logits of an example and their slopes */
    float *taken;      /* (statistics_size) running statistics after part 0, until accepted */
    /* the last forward */
    dro_net_batch parts[DRO__PARTS];
    int part_count;
    bool training, pending;
    const float *w;
} dro__ref_state;

/* One layer over examples first .. first + count - 1, which are all of part `part`. */
void dro__ref_layer_forward(dro__ref_state *s, int32_t index, int part, size_t first, size_t count);
/* Adds to the inputs' slopes, and to grad (dim) what the layer's own parameters get. */
void dro__ref_layer_backward(dro__ref_state *s, int32_t index, int part, size_t first, size_t count,
                             double *grad);

#endif
