/* The cuda backend's kernels as C functions. Each queues its work on a stream and returns at once;
 * the caller checks for launch errors (cudaGetLastError, or the end of a capture).
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
    int stride; /* elements from one pixel to the next; 0: the number of channels */
} dro__typed;

/* The examples of a call: part k is first[k] .. first[k+1] - 1. `others`: how many more examples of
 * the part are on other ranks, for batch norm. */
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
 * sums, back and all are (2, parts, 2, channels); the first 2 is for the two halves of each sum
 * (tails.cuh). sums: of the forward pass, back: of the backward pass, both zeroed before their
 * pass; all: back over all ranks, the same array as back if there is one rank. */
typedef struct dro__numbers {
    int channels;
    float *mean, *inverse, *scale, *shift, *p, *q, *r;
    double *sums, *back;
    const double *all;
    /* DRO__TAIL_SCRATCH bytes, for one stream, zeroed at first: partial sums and counters of the
     * blocks of a kernel */
    void *scratch;
} dro__numbers;

/* The scratch memory suffices for norms of up to DRO__TAIL_CHANNELS channels. */
enum { DRO__TAIL_SCRATCH = 2 << 20, DRO__TAIL_CHANNELS = 1 << 15 };

/* The inputs of a batch norm's numbers. Pointers are NULL where there is none. */
typedef struct dro__norm_source {
    const float *gamma, *beta, *bias; /* bias: of the convolution before it */
    const float *running;             /* (2, channels) */
    float *taken;                     /* (2, channels) running statistics after this batch */
    float eps;
    double momentum;
} dro__norm_source;

/* Where the gradients of a tail's own parameters are written, by part. */
typedef struct dro__norm_grads {
    float *gamma[2], *beta[2], *bias[2];
} dro__norm_grads;

/* ---- tails.cu ---- */

void dro__gpu_constants(cudaStream_t s, dro__numbers n, dro__norm_source from);
/* Computes the sums of z and z^2 and, if `from` is not NULL, the numbers. */
void dro__gpu_moments(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                      const dro__norm_source *from);
/* Computes the numbers from sums that are already known. */
void dro__gpu_finish_forward(cudaStream_t s, dro__parts parts, int area, dro__numbers n,
                             dro__norm_source from);
/* y = act((z - mean) * scale + shift + residual); act clips to [0, cap]; cap 0: no act */
void dro__gpu_apply(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                    dro__typed residual, float cap, dro__typed y);

/* Closes a slope: g = slope + more where the ReLU was open, else 0. Computes the sums of g and of g
 * (z - mean) and, if `finish` is set, the numbers. Values may be none; g none: it is not stored. */
typedef struct dro__closing {
    dro__typed slope, more, y, z, g;
    float cap;  /* above 0: a ReLU, open where 0 < y < cap; y none: it is recomputed from z */
    int finish; /* the numbers are computed here and not by a reader */
    int batch;  /* the norm used the statistics of the batch */
    dro__norm_grads grads;
} dro__closing;
void dro__gpu_close(cudaStream_t s, dro__parts parts, dro__extent e, const dro__closing *c,
                    dro__numbers n);
/* Computes the numbers from sums that are already known. */
void dro__gpu_finish_backward(cudaStream_t s, dro__parts parts, int area, int batch, dro__numbers n,
                              dro__norm_grads grads);
/* dz = p g + q (z - mean) + r + add. If cap is above 0, g counts only where the ReLU is open,
 * recomputed from z. z and add may be none. */
void dro__gpu_slope(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed g, dro__typed z,
                    float cap, dro__numbers n, dro__typed add, dro__typed dz);

/* ---- layers: y from x; back: dx from dy, plus add, which may be none ---- */

typedef struct dro__layer_pass {
    int n; /* examples */
    dro__extent in, out;
    dro__gpu_window k;
    dro__typed x, y, dy, add, dx;
    const float *scale;   /* affine: (2, channels), scale and shift */
    float cap, rate;      /* of ReLU, of dropout */
    int layer;            /* dropout: the index of its node */
    const uint64_t *keys; /* dropout: (examples) */
    /* max pool: which element of each window is the largest, in y's shape, or NULL. With NULL, the
     * backward pass is that of an average pool */
    uint16_t *chosen;
} dro__layer_pass;

typedef void dro__layer_kernel(cudaStream_t s, const dro__layer_pass *k);

/* layers.cu, pool.cu. Flatten: between (height, width, channels) and the parameters' order,
 * (channels, height, width). */
dro__layer_kernel dro__gpu_affine, dro__gpu_affine_back, dro__gpu_relu, dro__gpu_relu_back,
    dro__gpu_dropout, dro__gpu_dropout_back, dro__gpu_shortcut, dro__gpu_shortcut_back,
    dro__gpu_flatten, dro__gpu_flatten_back, dro__gpu_max_pool, dro__gpu_avg_pool,
    dro__gpu_pool_back, dro__gpu_global_pool, dro__gpu_global_pool_back;

/* x: (count, channels, height, width) floats. Writes the examples of y from `first` on; pads the
 * channels to `stored` with zeros. */
void dro__gpu_input(cudaStream_t s, int first, int count, dro__extent e, int stored, const float *x,
                    dro__typed y);
void dro__gpu_add(cudaStream_t s, size_t count, dro__typed a, dro__typed b, dro__typed y);
/* Copies the channels of `in` to channels `at` and up of `out`; back: the other way. */
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
/* grads: by part. partial: dro__gpu_depthwise_partial floats. */
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
/* dx = the slope of x, plus `add`. Overwrites dy. */
void dro__gpu_cosine_data(cudaStream_t s, const dro__cosine *c, dro__typed add, float *dx);
/* grads: by part. */
void dro__gpu_cosine_weight(cudaStream_t s, const dro__cosine *c, float *const *grads);

/* ---- images.cu ---- */

enum { DRO__GPU_COLOURS = 3 };

/* Both sizes are multiples of 16 bytes, the unit in which tickets are copied. */
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
    int stored; /* channels to write; those beyond e.channels are 0 */
    float scale[DRO__GPU_COLOURS], shift[DRO__GPU_COLOURS];
    int shared_bytes;          /* for images that operations may change; 0: none */
    int unused;                /* 0; avoids padding: queue.c compares bytes */
    const dro__gpu_cut *cuts;  /* (examples) */
    const dro__gpu_mix *mixes; /* (examples), or NULL */
} dro__gpu_images;

/* Writes `count` examples of `to`, from `first` on, with the cuts and mixes of the same indices.
 * These are in mapped host memory or in device memory. */
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

/* Adds weight * loss to losses, or (add is 0) stores it; slopes (examples, outputs): weight times
 * the gradient of the loss with respect to the logits. */
void dro__gpu_loss(cudaStream_t s, int n, dro__loss_args a, const float *logits, int add,
                   float *losses, float *slopes);
void dro__gpu_loss_back(cudaStream_t s, int n, int outputs, const float *coef, const float *slopes,
                        dro__typed add, dro__typed dx);

/* ---- weights.cu: between w and the packed weights that convolutions read ---- */

typedef enum dro__pack_kind {
    DRO__PACK_CUDNN,  /* (out, kernel, in) */
    DRO__PACK_FOLDED, /* the same for a folded image: fold.cu */
    /* 3 x 3: in the order in which the tensor cores take them (dro__conv3_weight_at). A second copy
     * follows for the data gradient: kernel rotated by 180 degrees, in and out exchanged */
    DRO__PACK_PRODUCTS,
    DRO__PACK_BANDS /* the same for products of warp groups (dro__conv3_band_at) */
} dro__pack_kind;

typedef struct dro__packing {
    dro__pack_kind kind;
    int bands;                         /* packed as DRO__PACK_BANDS if the call uses bands */
    int out, in, taps;                 /* in, out: of the parameters */
    int stored_in;                     /* input channels as packed; the extra ones are 0 */
    int kernel[2], folded[2], lead[2]; /* folded: see fold.cu; taps are of the folded kernel */
    const float *from;                 /* (out, in, taps) */
    dro__typed to;
} dro__packing;

/* table: (count) in device memory; largest: the largest number of channel pairs of an entry; bands:
 * whether the call uses the kernels by bands. */
void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest, int bands);
/* The reverse, for gradients: for each entry, from `to`, as packed, to `from`, in the order of the
 * parameters. */
void dro__gpu_unpack(cudaStream_t s, int count, const dro__packing *table);

/* ---- fold.cu ---- */

/* Folds x (n, height, width, channels) into y (n, out.height, out.width, 4 channels and padding).
 * before: how many folded rows and columns of zeros come first. */
void dro__gpu_fold(cudaStream_t s, int n, dro__extent in, dro__typed x, const int *before,
                   dro__extent out, dro__typed y);

/* ---- vector.cu ---- */

enum { DRO__GPU_BLOCKS = 528 }; /* at most, in grids that reduce sums */

/* Finds the lowest index of a number that is not finite; all ones: there is none. *first (device)
 * must be all ones; the last block moves the index from there to *result. */
void dro__gpu_first_bad(cudaStream_t s, size_t n, const float *x, unsigned long long *first,
                        unsigned *counter, unsigned long long *result);
void dro__gpu_block_shrink(cudaStream_t s, float *x, const int64_t *offsets, size_t blocks,
                           double threshold);

#ifdef __cplusplus
}
#endif
#endif
