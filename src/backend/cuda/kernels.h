/* The cuda backend's kernels as C functions. Each queues its work on a stream and returns at once;
 * errors of a launch are found by the caller (cudaGetLastError, or the end of a capture).
 *
 * Values are (examples, height, width, channels), of float or bfloat16: a dro__typed says which. */
#ifndef DRO_CUDA_KERNELS_H
#define DRO_CUDA_KERNELS_H

#include "losses.h"

#include <dro/loader.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro__typed {
    void *p; /* NULL: none */
    int bf16;
    int stride; /* elements from one pixel to the next; 0: as many as it has channels */
} dro__typed;

/* The examples of a call: part k is first[k] .. first[k+1] - 1; batch norm counts `others` more of
 * it, which other ranks have. */
typedef struct dro__parts {
    int count, first[3];
    int others[2];
} dro__parts;

typedef struct dro__extent {
    int channels, height, width;
} dro__extent;

typedef struct dro__gpu_window {
    int kernel[2], stride[2], pad[2];
} dro__gpu_window;

/* A tail's numbers, (parts, channels) each:
 *     y = (z - mean) * scale + shift,   dz = p g + q (z - mean) + r
 * sums, back and all are (2, parts, 2, channels): what the forward and the backward pass gather
 * (tails.cuh), 0 before; all: what `back` is over all ranks, back itself where there is one. */
typedef struct dro__numbers {
    int channels;
    float *mean, *inverse, *scale, *shift, *p, *q, *r;
    double *sums, *back;
    const double *all;
    /* DRO__TAIL_SCRATCH bytes of one stream, 0 before: what the blocks of a kernel gather */
    void *scratch;
} dro__numbers;

/* The scratch suffices for norms of so many channels. */
enum { DRO__TAIL_SCRATCH = 2 << 20, DRO__TAIL_CHANNELS = 1 << 15 };

/* What a batch norm's numbers are made of. Pointers are NULL where there is none. */
typedef struct dro__norm_source {
    const float *gamma, *beta, *bias; /* bias: of the convolution before it */
    const float *running;             /* (2, channels) */
    float *taken;                     /* (2, channels) running statistics after this batch */
    float eps;
    double momentum;
} dro__norm_source;

/* Where the gradients of a tail's own parameters go, by part. */
typedef struct dro__norm_grads {
    float *gamma[2], *beta[2], *bias[2];
} dro__norm_grads;

/* ---- tails.cu ---- */

void dro__gpu_constants(cudaStream_t s, dro__numbers n, dro__norm_source from);
/* The sums of z and z^2, and what follows from them when `from` is not NULL. */
void dro__gpu_moments(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                      const dro__norm_source *from);
/* The same from sums that are there already. */
void dro__gpu_finish_forward(cudaStream_t s, dro__parts parts, int area, dro__numbers n,
                             dro__norm_source from);
/* y = act((z - mean) * scale + shift + residual): from 0 to cap, or, when cap is 0, as it is */
void dro__gpu_apply(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                    dro__typed residual, float cap, dro__typed y);

/* Closes a slope: g = slope + more where the ReLU was open; the sums of g and of g (z - mean), and
 * what follows from them. Values may be none; g none: it is not kept. */
typedef struct dro__closing {
    dro__typed slope, more, y, z, g;
    float cap;  /* above 0: a ReLU, open where 0 < y < cap, or, without y, where the tail of z is */
    int finish; /* the numbers are made here and not by a reader */
    int batch;  /* the statistics were the batch's */
    dro__norm_grads grads;
} dro__closing;
void dro__gpu_close(cudaStream_t s, dro__parts parts, dro__extent e, const dro__closing *c,
                    dro__numbers n);
/* The same from sums that are there already. */
void dro__gpu_finish_backward(cudaStream_t s, dro__parts parts, int area, int batch, dro__numbers n,
                              dro__norm_grads grads);
/* dz = p g + q (z - mean) + r + add, g only where the tail of z is open (cap above 0); z, add may
 * be none. */
void dro__gpu_slope(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed g, dro__typed z,
                    float cap, dro__numbers n, dro__typed add, dro__typed dz);

/* ---- layers: y from x; and (back) dx = add + what dy gives, add may be none ---- */

typedef struct dro__layer_pass {
    int n; /* examples */
    dro__extent in, out;
    dro__gpu_window k;
    dro__typed x, y, dy, add, dx;
    const float *scale;   /* affine: (2, channels), scale and shift */
    float cap, rate;      /* of ReLU, of dropout */
    int layer;            /* dropout: its node */
    const uint64_t *keys; /* dropout: (examples) */
    /* max pool: which element of a window is the largest, in y's shape, or NULL; with NULL, back is
     * that of an average */
    uint16_t *chosen;
} dro__layer_pass;

typedef void dro__layer_kernel(cudaStream_t s, const dro__layer_pass *k);

/* layers.cu, pool.cu. Flatten: between (height, width, channels) and the parameters' order,
 * (channels, height, width). */
dro__layer_kernel dro__gpu_affine, dro__gpu_affine_back, dro__gpu_relu, dro__gpu_relu_back,
    dro__gpu_dropout, dro__gpu_dropout_back, dro__gpu_shortcut, dro__gpu_shortcut_back,
    dro__gpu_flatten, dro__gpu_flatten_back, dro__gpu_max_pool, dro__gpu_avg_pool,
    dro__gpu_pool_back, dro__gpu_global_pool, dro__gpu_global_pool_back;

/* x: (examples, channels, height, width) floats of the examples from `first` on; pads channels to
 * `stored`. */
void dro__gpu_input(cudaStream_t s, int first, int count, dro__extent e, int stored, const float *x,
                    dro__typed y);
void dro__gpu_add(cudaStream_t s, size_t count, dro__typed a, dro__typed b, dro__typed y);
/* Channels of `in` into those of `out` from `at` on; back the other way. */
void dro__gpu_concat(cudaStream_t s, const dro__layer_pass *k, int at, bool back);
void dro__gpu_rows_bias(cudaStream_t s, int n, int outputs, const float *bias, float *y);
void dro__gpu_columns(cudaStream_t s, dro__parts parts, int outputs, const float *dy,
                      float *const *sums);

/* ---- depthwise.cu ---- */

typedef struct dro__depthwise {
    dro__parts parts;
    dro__extent in, out;
    dro__gpu_window k;
    const float *w; /* (channels, kernel) */
} dro__depthwise;

void dro__gpu_depthwise(cudaStream_t s, const dro__depthwise *d, dro__typed x, dro__typed z);
void dro__gpu_depthwise_data(cudaStream_t s, const dro__depthwise *d, dro__typed dz, dro__typed add,
                             dro__typed dx);
/* grads: by part. partial: so many floats. */
size_t dro__gpu_depthwise_partial(const dro__depthwise *d);
void dro__gpu_depthwise_weight(cudaStream_t s, const dro__depthwise *d, dro__typed x, dro__typed dz,
                               float *partial, float *const *grads);

/* ---- cosine.cu ---- */

typedef struct dro__cosine {
    dro__parts parts;
    int n, in, out;
    float gain;
    const float *w, *x; /* (out, in), (n, in) */
    float *dy;          /* (n, out) */
} dro__cosine;

void dro__gpu_cosine(cudaStream_t s, const dro__cosine *c, float *y);
/* dx = slope of x, and `add`; dy is used up. */
void dro__gpu_cosine_data(cudaStream_t s, const dro__cosine *c, dro__typed add, float *dx);
/* grads: by part. */
void dro__gpu_cosine_weight(cudaStream_t s, const dro__cosine *c, float *const *grads);

/* ---- images.cu ---- */

enum { DRO__GPU_COLOURS = 3 };

/* The sizes of both are multiples of 16 bytes, in which tickets are copied. */
typedef struct dro__gpu_cut {
    int32_t id;
    dro_cut cut;
    int32_t unused[3];
} dro__gpu_cut;

typedef struct dro__gpu_mix {
    dro__gpu_cut second;
    int32_t label;
    float share;
    dro_box box;
} dro__gpu_mix;

typedef struct dro__gpu_images {
    const uint8_t *bytes; /* (any, channels, height, width) */
    dro__extent e;
    int stored; /* channels of what is made, the rest 0 */
    float scale[DRO__GPU_COLOURS], shift[DRO__GPU_COLOURS];
    int shared_bytes;          /* for images that operations change; 0: none */
    int unused;                /* 0, so that there is no padding: queue.c compares bytes */
    const dro__gpu_cut *cuts;  /* (examples) */
    const dro__gpu_mix *mixes; /* (examples), or NULL */
} dro__gpu_images;

/* `count` examples of `to` from `first` on, and of cuts and mixes, which are memory that both
 * see. */
void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k, int first, int count,
                          dro__typed to);

/* ---- loss.cu ---- */

typedef struct dro__loss_args {
    int kind, outputs; /* dro__net_loss */
    float weight;
    float set[DRO__LOSS_SETTING_COUNT];
    const float *constants;    /* (2, outputs) or NULL */
    const int32_t *labels;     /* (examples) or NULL */
    const float *targets;      /* (examples, outputs) or NULL */
    const dro__gpu_mix *mixes; /* (examples) or NULL */
} dro__loss_args;

/* losses (+)= weight * loss; slopes (examples, outputs) of the loss by the logits, times weight. */
void dro__gpu_loss(cudaStream_t s, int n, dro__loss_args a, const float *logits, int add,
                   float *losses, float *slopes);
void dro__gpu_loss_back(cudaStream_t s, int n, int outputs, const float *coef, const float *slopes,
                        dro__typed add, dro__typed dx);

/* ---- weights.cu: between w and what the convolutions read ---- */

typedef enum dro__pack_kind {
    DRO__PACK_CUDNN,  /* (out, kernel, in) */
    DRO__PACK_FOLDED, /* the same for a folded image, fold.cu */
    /* 3 x 3: as the tensor cores take them (dro__conv3_weight_at), and behind it for the data
     * gradient, the kernel turned, in and out exchanged */
    DRO__PACK_PRODUCTS,
    DRO__PACK_BANDS /* and as warp groups do (dro__conv3_band_at) */
} dro__pack_kind;

typedef struct dro__packing {
    dro__pack_kind kind;
    int bands;                         /* it is DRO__PACK_BANDS in a call that goes by bands */
    int out, in, taps;                 /* in, out: of the parameters */
    int stored_in;                     /* as packed, the rest 0 */
    int kernel[2], folded[2], lead[2]; /* folded: see fold.cu; taps are of the folded kernel */
    const float *from;                 /* (out, in, taps) */
    dro__typed to;
} dro__packing;

/* table: (count) in device memory; largest: the most pairs of channels of one of them; bands: the
 * call goes by bands. */
void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest, int bands);
/* Gradients the other way: of each, `to`, as packed, into `from`, as the parameters are. */
void dro__gpu_unpack(cudaStream_t s, int count, const dro__packing *table);

/* ---- fold.cu ---- */

/* x (n, height, width, channels) into y (n, out, 4 channels and zeros), `before` folded rows and
 * columns of zeros first. */
void dro__gpu_fold(cudaStream_t s, int n, dro__extent in, dro__typed x, const int *before,
                   dro__extent out, dro__typed y);

/* ---- vector.cu ---- */

enum { DRO__GPU_BLOCKS = 528 }; /* at most, where sums of a grid meet */

/* *first (device, all ones) the lowest bad index; the last block moves it to *result. */
void dro__gpu_first_bad(cudaStream_t s, size_t n, const float *x, unsigned long long *first,
                        unsigned *counter, unsigned long long *result);
void dro__gpu_block_shrink(cudaStream_t s, float *x, const int64_t *offsets, size_t blocks,
                           double threshold);

#ifdef __cplusplus
}
#endif
#endif
