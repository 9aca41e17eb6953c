/* The cuda backend's networks. A graph is compiled into a program: a list of operations over values, walked by
 * the host once for each shape of a call, recorded as a CUDA graph and replayed from then on.
 *
 * A convolution and what follows it (bias, batch norm, a residual, ReLU) are one operation with a TAIL, as on the
 * CPU. In training the convolution's output z is kept and the tail is worked out into the value, or, when the
 * only reader is one of our own convolutions, by that reader (the value is LAZY). Backward, whoever writes a
 * value's slope last also closes it: applies the ReLU's mask and takes the sums that batch norm needs. A
 * residual passes its slope on without copying it.
 *
 * Values are (examples, height, width, channels). With bf16 all of them are bfloat16 but those behind a linear
 * layer, a flattening or a global pooling. */
#ifndef DRO_CUDA_NET_H
#define DRO_CUDA_NET_H

#include "conv3.h"
#include "cuda.h"

#include <cublas_v2.h>
#include <cudnn.h>

typedef struct dro__gvalue {
    dro__extent extent;
    int stored; /* channels in memory: more than there are for an input that is padded */
    size_t size;
    bool bf16, wants; /* wants: something trained is below, so it has a slope */
    int32_t tail;     /* the tail that makes it, -1 */
    bool lazy;
    int32_t filler; /* the operation that keeps it while reading it, -1: it is kept before */
    int32_t readers;
    void *data, *grad; /* (room, size) */
    /* while the backward pass is walked */
    int32_t writers, left; /* who write its slope, in all and still to come */
    dro__typed slope;      /* what has come together so far; none: nothing */
} dro__gvalue;

typedef struct dro__gtail {
    const dro__node *conv, *norm; /* either may be NULL */
    bool relu, deferred;          /* deferred: the moments are the batch's */
    int32_t residual, source;     /* values, -1; source: what z is when there is no convolution */
    void *z;                      /* deferred convolutions: their output */
    dro__numbers numbers;
} dro__gtail;

typedef enum dro__gkind { DRO__RUN_NODE, DRO__RUN_CONVERT, DRO__RUN_FLATTEN } dro__gkind;

typedef struct dro__gop {
    dro__gkind kind;
    int32_t index;         /* of the graph's node */
    const dro__node *node; /* NULL unless DRO__RUN_NODE */
    int32_t end;           /* the value it makes */
    int input_count;
    int32_t in[DRO__NODE_INPUTS];
    bool back, own; /* own: a convolution of conv3.h */
} dro__gop;

/* A convolution through cuDNN: descriptors and algorithms for the examples of one call. */
typedef struct dro__gconv {
    cudnnTensorDescriptor_t x, z, part_x[2], part_z[2];
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdDataAlgo_t data;
    cudnnConvolutionBwdFilterAlgo_t weight[2];
    int counts[3]; /* all, and each part: what the algorithms were chosen for */
} dro__gconv;

typedef struct dro__gprogram {
    bool training, counted; /* counted: among dro__networks_alive() */
    dro__gvalue *values;
    int32_t value_count;
    dro__gtail *tails;
    int32_t tail_count;
    dro__gop *ops;
    int32_t op_count;
    int32_t heads[DRO__HEADS];
    size_t room; /* examples */
    void *memory;
    double *sums, *back; /* of all tails: what the two passes gather */
    size_t sums_bytes;
} dro__gprogram;

/* A recorded pass. */
typedef struct dro__recording {
    bool used, training, ran, ran_back;
    dro__parts parts;
    cudaGraphExec_t forward, backward;
} dro__recording;

enum { DRO__RECORDINGS = 8, DRO__BESIDE = 1 };

typedef struct dro__cuda_network {
    dro_context *ctx;
    const dro__graph *graph;
    dro__net_memory memory;
    bool bf16;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    cudaStream_t side, other[DRO__BESIDE]; /* records; weight gradients beside the rest */
    cudaEvent_t fork, join;
    void *blas_room;
    dro__gconv *convs; /* (graph count), those that cuDNN does */
    void **packed;     /* (graph count) weights as the convolutions read them */
    dro__packing *packings;
    int packing_count;
    size_t packing_largest;
    float **scales;           /* (graph count) affine: scale and shift, (2, channels) */
    dro__gprogram program[2]; /* evaluation, training */
    dro__recording recordings[DRO__RECORDINGS];
    int next_recording;
    float *w, *grads[DRO__PARTS], *taken, *adjust;
    void *workspace, *scratch, *dw; /* cuDNN's; a slope of z; a gradient as cuDNN writes it */
    size_t workspace_size, scratch_size, dw_size;
    float *partial[DRO__BESIDE]; /* weight gradients of our own convolutions, by block */
    /* by example, room_rows of them: what the host hands over and reads */
    size_t rows, row_room;
    float *x;                  /* device (rows, input) */
    float *losses, *coef;      /* both sides */
    float *targets;            /* both sides (rows, outputs) */
    int32_t *labels;           /* both sides */
    uint64_t *keys;            /* both sides */
    float *slopes[DRO__HEADS]; /* device (rows, outputs) */
    bool has_targets;
    /* the call in progress */
    cudaStream_t stream;
    dro__parts parts;
    int forked;                 /* weight gradients queued beside the rest */
    int turns;                  /* of them, how many by dro__gpu_conv3_back */
    bool pending, failed, busy; /* busy: a backward pass may still run */
    bool chained;               /* the last kernel of the stream was one of conv3.h */
} dro__cuda_network;

/* compile.c */
dro_status dro__gprogram_create(dro__cuda_network *net, bool training);
void dro__gprogram_destroy(dro__gprogram *p);
/* Networks of this process that can be trained now. */
int dro__networks_alive(void);
/* Gives the values memory for so many examples. */
dro_status dro__gprogram_place(dro__cuda_network *net, dro__gprogram *p, size_t room);

/* forward.c, backward.c: queue the whole pass on net->stream for net->parts */
void dro__gprogram_forward(dro__cuda_network *net, dro__gprogram *p);
void dro__gprogram_backward(dro__cuda_network *net, dro__gprogram *p);

/* library.c: cuDNN and cuBLAS; a failure is kept in net->failed */
dro_status dro__library_open(dro__cuda_network *net);
void dro__library_close(dro__cuda_network *net);
/* Chooses algorithms for the parts of the call and makes room for them. */
dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z);
void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add);
void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     const void *x, const void *dz);
void dro__blas_linear_forward(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
void dro__blas_linear_back(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op,
                           const float *dy, float *dx);

/* ---- small things ---- */

static inline dro__typed dro__typed_of(const dro__gvalue *v, void *memory)
{
    return (dro__typed){memory, v->bf16};
}

static inline const float *dro__parameters(const dro__cuda_network *net, const dro__node *node,
                                           int64_t offset)
{
    return offset < 0 ? NULL : (node->frozen ? net->memory.frozen : net->w) + offset;
}

/* Examples of the call in progress. */
static inline int dro__call_size(const dro__cuda_network *net)
{
    return net->parts.first[net->parts.count];
}

/* What a conv3 operation is told of its shapes, input and tail. */
dro__conv3 dro__conv3_of(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
dro__norm_source dro__norm_source_of(const dro__cuda_network *net, const dro__gtail *tail);

#endif
