/* graph: a network as the backends see it, and what a backend must do with one.
 *
 * Nodes are in topological order: a node's inputs come before it. Shapes are per example. A backend
 * compiles the whole graph (`create`), so that it may choose layouts, fuse layers and plan memory
 * as suits its hardware; `ref` evaluates it node by node and is the reference.
 *
 * Parameters: a trained tensor is at an offset of w, which comes with every call; a frozen one at
 * an offset of `frozen`, which does not change while the network lives. Batch norm's running
 * statistics (mean, then variance) are at an offset of `statistics`. A norm whose parameters are
 * frozen uses them in training too. */
#ifndef DRO_GRAPH_H
#define DRO_GRAPH_H

#include "backend.h"
#include "losses.h"

#include <dro/net.h>

typedef enum dro__op {
    DRO__OP_INPUT,
    DRO__OP_AFFINE,
    DRO__OP_CONV,
    DRO__OP_DEPTHWISE,
    DRO__OP_NORM,
    DRO__OP_RELU,
    DRO__OP_MAX_POOL,
    DRO__OP_AVG_POOL,
    DRO__OP_GLOBAL_POOL,
    DRO__OP_ADD,
    DRO__OP_CONCAT,
    DRO__OP_FLATTEN,
    DRO__OP_LINEAR,
    DRO__OP_COSINE, /* of an example and each output's weights, times gain; an output only */
    DRO__OP_DROPOUT,
    DRO__OP_SHORTCUT,
    DRO__OP_COUNT,
    /* not in a graph: what a backend's program has besides (lower.h) */
    DRO__OP_CONVERT = DRO__OP_COUNT,
    DRO__OP_FOLD, /* two by two pixels become one of four times the channels: see cuda/fold.cu */
    DRO__OP_ALL
} dro__op;

enum { DRO__NODE_INPUTS = 8, DRO__HEADS = 2, DRO__PARTS = 2 };

typedef struct dro__graph_node {
    dro__op op;
    int input_count;
    int32_t inputs[DRO__NODE_INPUTS];
    int32_t channels, height, width; /* of the output */
    dro_window window;               /* convolutions, pools; shortcut: its stride */
    int32_t groups; /* convolutions: each reads as many of the input's channels as it makes */
    float eps;      /* norm */
    float rate;     /* dropout */
    float gain;     /* cosine */
    float cap;      /* relu: its largest value, or INFINITY */
    const float *scale, *shift; /* affine: (channels) */
    bool has_bias;
    bool frozen;     /* where its parameters are, and that they have no gradient */
    int64_t weight;  /* convolutions: (out, in / groups, kh, kw), linear; norm: gamma. -1: none */
    int64_t bias;    /* convolutions, linear: (out); norm: beta. -1: none */
    int64_t running; /* norm: mean at this offset of the statistics, variance `channels` later */
    bool grad;       /* a trained parameter is here or below: the backward pass reaches it */
} dro__graph_node;

/* How a GPU multiplies; the other backends compute in float throughout. */
typedef enum dro__precision { DRO__TF32, DRO__FP32, DRO__BF16 } dro__precision;

typedef struct dro__graph {
    dro__graph_node *nodes;
    int32_t count;
    int32_t heads[DRO__HEADS]; /* logits; the auxiliary head's or -1 */
    float auxiliary_weight;
    size_t dim, frozen_size, statistics_size;
    dro__net_loss loss;
    float loss_set[DRO__LOSS_SETTING_COUNT]; /* its settings */
    dro__precision precision;
    bool deterministic;     /* results may depend neither on timings nor on other networks */
    bool only_cudnn;        /* no convolution is our own */
    const float *constants; /* (2, outputs) of each class: the loss's number, smoothing; or NULL */
} dro__graph;

/* Elements of a node's output per example. */
static inline size_t dro__node_size(const dro__graph_node *node)
{
    return (size_t)node->channels * (size_t)node->height * (size_t)node->width;
}

/* Batch norm over the batches of several networks that run side by side with the same weights. Each
 * calls `merge` with its own sums, in the order of the layers, and continues with those of all. */
typedef void (*dro__net_merge)(double *into, const double *from, size_t count);
typedef struct dro__net_sync {
    void *user;
    void (*merge)(void *user, double *values, size_t count, dro__net_merge how); /* NULL: alone */
    /* (optional) the ranks' devices have a way of their own: norms meet there, and the sums of
     * asynchronous steps */
    struct dro__device_comm *device;
} dro__net_sync;
/* Of n, means (channels), sums of squared deviations (channels). */
void dro__moments_merge(double *into, const double *from, size_t count);
void dro__sums_merge(double *into, const double *from, size_t count);

/* What the network keeps in the backend's memory, and lends to it. */
typedef struct dro__net_memory {
    const float *frozen;
    float *statistics;
    const dro__net_sync *sync; /* NULL: alone */
} dro__net_memory;

static inline bool dro__net_synced(const dro__net_memory *memory)
{
    return memory->sync && memory->sync->merge;
}

/* Images in the backend's memory: their channels, and the bytes of one that operations change. */
enum { DRO__IMAGE_COLOURS = 3, DRO__IMAGE_CHANGED = 30 << 10 };

typedef struct dro__net_backend {
    bool images;             /* takes dro_net_batch.images */
    const dro__queue *queue; /* (optional) asynchronous steps of such batches (step.h) */
    /* Borrows the graph and the memory until destroy. */
    dro_status (*create)(dro_context *ctx, const dro__graph *graph, const dro__net_memory *memory,
                         void **net);
    void (*destroy)(void *net);
    /* Training mode: batch statistics per part, dropout. losses: part 0, then part 1. */
    dro_status (*forward)(void *net, const float *w, const dro_net_batch *parts, int part_count,
                          float *losses);
    /* Follows a forward: grads[k] (dim), overwritten, of the sum over part k of coef[i] *
     * losses[i]. */
    dro_status (*backward)(void *net, const float *w, const float *coef, float *const *grads);
    /* Moves the running statistics by those of part 0 of the last forward. */
    void (*accept)(void *net);
    dro_status (*evaluate)(void *net, const float *w, const dro_net_batch *batch, float *logits,
                           float *losses);
    /* (optional) The graph's loss_set and constants have changed. */
    dro_status (*reset)(void *net);
} dro__net_backend;

extern const dro__net_backend dro__ref_net;
extern const dro__net_backend dro__cpu_net; /* where oneDNN is */

/* The loss of example n of a batch from its logits (outputs), and its gradient by them. */
double dro__net_loss_row(const dro__graph *graph, size_t outputs, const dro_net_batch *batch,
                         size_t n, const double *logits, double *slopes);

/* The share of an element of a dropout layer that is kept: 0 or 1/(1 - rate). A pure function of
 * the example's key, the layer and the element. */
float dro__dropout_scale(const dro__graph_node *node, int32_t layer, uint64_t key, size_t element);

/* Most outputs of a network. */
enum { DRO__OUTPUTS_MAX = 1 << 15 };

enum {
    DRO__NORM_MOMENTUM_INVERSE = 10
}; /* running <- 0.9 running + 0.1 new, as PyTorch's default */

#endif
