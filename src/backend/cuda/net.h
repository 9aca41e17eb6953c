/* The cuda backend's networks. A graph is compiled into a program: a list of operations over
 * values. The first call of a given shape walks the program and queues its kernels; the second
 * records them as a CUDA graph, which later calls replay.
 *
 * A convolution and what follows it (bias, batch norm, a residual, ReLU) are one operation with a
 * TAIL, as on the CPU. Where batch norm uses the batch's statistics, the convolution's output z is
 * kept and the tail is computed into the value. If the only reader is one of our own convolutions
 * and there is no residual, that reader computes the tail instead (the value is LAZY). The SLOPE of
 * a value is the gradient of the loss with respect to it. In the backward pass, the last operation
 * that writes a value's slope also closes it: it applies the ReLU's mask and takes the sums that
 * batch norm needs. A residual passes its slope on without a copy.
 *
 * Values are (examples, height, width, channels). With bf16 all of them are bfloat16, except inputs
 * without height and width, the values of linear, cosine, flatten and global pooling layers, and
 * what follows these. */
#ifndef DRO_CUDA_NET_H
#define DRO_CUDA_NET_H

#include "conv3.h"
#include "cuda.h"
#include "lower.h"

#include <cublas_v2.h>
#include <cudnn.h>
#include <math.h>

enum { DRO__FLOATS, DRO__BF16_VALUES }; /* the forms of values (lower.h) */

typedef struct dro__gvalue {
    dro__value base;
    dro__extent extent;
    int stored;    /* channels in memory; more than extent.channels if it is padded */
    int32_t whole; /* the concatenation of which it is a slice, from channel `at` on; -1: none */
    int at;
    size_t size;
    bool lazy;
    int32_t filler;    /* the reader that also stores it; -1: none */
    void *data, *grad; /* (capacity, size); a slice's data is inside that of the whole */
    uint16_t *chosen;  /* (capacity, size) max pool: which element was the largest */
    /* during the backward pass */
    int32_t left;     /* operations that have yet to write its slope */
    dro__typed slope; /* the slope accumulated so far; none: nothing yet */
} dro__gvalue;

typedef struct dro__gtail {
    dro__tail base;
    void *z;  /* the convolution's output; the value's own memory where possible */
    void *dz; /* the slope of z, if the value's slope is passed on to a residual */
    dro__numbers numbers;
} dro__gtail;

typedef struct dro__gop {
    dro__operation base;
    bool own, folded;  /* own: by the kernels of conv3.h; folded: reads a folded image */
    bool bands;        /* own, and the kernels by bands support it */
    dro_window window; /* as executed; of a fold: the unfolded window of its reader */
} dro__gop;

typedef enum dro__dnn_kind { DRO__DNN_FORWARD, DRO__DNN_DATA, DRO__DNN_WEIGHT } dro__dnn_kind;

/* The problem for which a cuDNN plan was chosen; compared as bytes. */
typedef struct dro__dnn_shape {
    int kind, count; /* dro__dnn_kind; examples */
    int in, height, width, out, out_height, out_width;
    int kernel[2], stride[2], pad[2];
    int add; /* data gradient: it is added to dx instead of replacing it */
} dro__dnn_shape;

typedef struct dro__dnn_plan {
    dro__dnn_shape shape;
    cudnnBackendDescriptor_t plan;
    size_t workspace;
} dro__dnn_plan;

/* A convolution through cuDNN: the indices of its plans in a call; -1: none. */
typedef struct dro__gconv {
    int forward, data, data_add, weight[2];
    void *dw[2];          /* weight gradients in cuDNN's layout, by part */
    int ready, counts[3]; /* ready for 1: evaluation, 2: training; examples in all and by part */
} dro__gconv;

typedef struct dro__gprogram {
    dro__program base;
    bool counted;        /* in dro__networks_alive() */
    dro__gvalue *values; /* the base's arrays */
    dro__gtail *tails;
    dro__gop *ops;
    size_t capacity; /* examples */
    void *memory;
    double *sums, *back; /* of all tails: the sums of the two passes; then back over all ranks */
    void *tail_scratch;
    size_t sums_bytes;
} dro__gprogram;

/* The recorded passes for one shape of call. */
typedef struct dro__recording {
    bool used, training, targets, mixes, ran, ran_back;
    int share;
    dro__parts parts;
    cudaGraphExec_t forward, backward;
} dro__recording;

enum { DRO__RECORDINGS = 8 };

typedef struct dro__cuda_network {
    dro_context *ctx;
    const dro__graph *graph;
    dro__net_memory memory;
    bool bf16;
    cudnnHandle_t dnn, weights_dnn; /* the latter for weight gradients */
    dro__dnn_plan *plans;
    int plan_count, plan_capacity;
    cublasHandle_t blas;
    cudaStream_t side, weights_stream; /* side: for recording; weights_stream: weight gradients */
    cudaEvent_t fork, join;
    void *blas_scratch;
    dro__gconv *convs; /* (graph count), used by convolutions through cuDNN */
    void **packed;     /* (graph count) weights, packed for the convolutions */
    dro__packing *packings;
    int packing_count;
    size_t packing_largest;
    float **scales;           /* (graph count) affine: scale and shift, (2, channels) */
    dro__gprogram program[2]; /* evaluation, training */
    dro__recording recordings[DRO__RECORDINGS];
    int next_recording;
    float *w, *grads[DRO__PARTS], *taken, *constants;
    void *workspace, *scratch, *dw; /* cuDNN's; a slope not yet added; all dro__gconv.dw */
    dro__packing *unpackings; /* device (parts, convolutions with a dw), last operation first */
    int unpacking_count, written, unpacked; /* per part: all; in this pass so far */
    void *weights_workspace, *retired[64];  /* retired: outgrown blocks, freed at the end */
    size_t workspace_size, scratch_size, weights_workspace_size;
    int retired_count;
    float *partial; /* our own convolutions: the weight gradient of each block */
    /* arrays for row_capacity examples; `mapped`: host memory that the device can access */
    size_t rows, row_capacity;
    float *x;                  /* device (rows, input) */
    float *losses, *coef;      /* mapped */
    float *targets;            /* mapped (rows, outputs) */
    int32_t *labels;           /* mapped */
    uint64_t *keys;            /* mapped */
    dro__gpu_cut *cuts;        /* mapped */
    dro__gpu_mix *mixes;       /* mapped */
    float *slopes[DRO__HEADS]; /* device (rows, outputs) */
    bool has_targets, has_mixes;
    /* the call in progress */
    cudaStream_t stream;
    dro__parts parts;
    int share;   /* a kernel takes 1/share of the GPU */
    bool forked; /* work is queued on weights_stream */
    int turns;   /* weight gradients by dro__gpu_conv3_back in this pass so far */
    bool pending, failed;
    struct dro__step_queue *queue; /* queue.c: asynchronous steps, or NULL */
    bool chained;                  /* the last kernel queued on the stream is one of conv3.h */
    double *host_sums;             /* (sums_bytes) for batch norms that the host sums over ranks */
} dro__cuda_network;

/* compile.c */
dro_status dro__gprogram_create(dro__cuda_network *net, bool training);
void dro__gprogram_destroy(dro__gprogram *p);
/* Number of networks that exist in this process. */
int dro__networks_alive(void);
/* place.c: allocates the memory of the values for `capacity` examples. */
dro_status dro__gprogram_place(dro__cuda_network *net, dro__gprogram *p, size_t capacity);

/* An operation of a pass, and the arguments of its kernels. */
typedef struct dro__gcall {
    dro__cuda_network *net;
    dro__gprogram *p;
    const dro__gop *op;
    dro__gvalue *in, *out; /* its first input and its output */
    cudaStream_t stream;
    dro__layer_pass k;
} dro__gcall;

/* How this backend implements an operation. */
typedef struct dro__gpu_layer {
    dro__traits traits;
    bool packs;   /* its weights are packed (weights.cu) */
    bool strided; /* it can write its value and read its slope with a stride */
    bool chooses; /* it stores which element of a window it took */
    dro_status (*make)(dro__gprogram *p, dro__gop *op); /* (optional) at compilation */
    /* (optional) before the passes of a call */
    dro_status (*prepare)(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
    dro__layer_kernel *kernel, *slope; /* either the kernels of a layer with one input, ... */
    void (*forward)(const dro__gcall *c);
    void (*backward)(const dro__gcall *c); /* ... or functions for the two passes */
} dro__gpu_layer;

extern const dro__gpu_layer dro__gpu_layers[DRO__OP_ALL]; /* layers.c */

dro__gcall dro__gcall_of(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op);

/* compile.c, forward.c, backward.c: convolutions and norms as layers */
dro_status dro__gconv_make(dro__gprogram *p, dro__gop *op);
void dro__gconv_forward(const dro__gcall *c);
void dro__gconv_backward(const dro__gcall *c);
void dro__gtail_forward(const dro__gcall *c); /* from z to the value */
void dro__gnorm_backward(const dro__gcall *c);

/* backward.c: how a layer delivers the slope of one of its inputs. _written: it is in the value's
 * grad, except for `more`, which is still to be added and may be none. _pass: another slope is
 * passed on unchanged. */
void dro__slope_written(const dro__gcall *c, int32_t value, dro__typed more);
void dro__slope_pass(const dro__gcall *c, int32_t value, dro__typed slope);
/* Operations with a tail. _of_z: returns dz, in memory that nothing overwrites later in this pass.
 * _to_residual: passes the slope on to the residual. */
void *dro__slope_of_z(const dro__gcall *c);
void dro__slope_to_residual(const dro__gcall *c);
/* Work queued on net->weights_stream from now on runs after all work already queued on
 * net->stream. */
void dro__branch_off(dro__cuda_network *net);

/* forward.c: the share of a call that begins now; it depends on the number of networks. */
int dro__share_of(const dro__cuda_network *net);
/* forward.c, backward.c: queue the whole pass on net->stream for net->parts and net->share */
void dro__gprogram_forward(dro__cuda_network *net, dro__gprogram *p);
void dro__gprogram_backward(dro__cuda_network *net, dro__gprogram *p);

/* net.c: the images of a part as kernel arguments, with copies of their scale and shift */
dro__gpu_images dro__images_of(const dro__cuda_network *net, const dro__gprogram *p,
                               const dro_net_batch *part);
/* The cut and the mix of example i of a part, in the format of the kernels. */
dro__gpu_cut dro__gpu_cut_at(const dro_net_batch *part, size_t i);
dro__gpu_mix dro__gpu_mix_at(const dro_net_batch *part, size_t i);
/* net.c. _prepare: reserves memory and chooses algorithms for a call with these parts. _walk
 * (below): queues a pass on a stream. */
dro_status dro__net_prepare(dro__cuda_network *net, dro__gprogram *p, const dro_net_batch *parts,
                            int count);
typedef void (*dro__walk)(dro__cuda_network *net, dro__gprogram *p);
/* record.c. _record: records what `queue` puts on net->side. _end_libraries: calls
 * dro__library_close, which would invalidate a recording in progress, while there is none. */
typedef void (*dro__queuer)(dro__cuda_network *net, const void *what);
dro_status dro__net_record(dro__cuda_network *net, dro__queuer queue, const void *what,
                           cudaGraphExec_t *recorded);
void dro__net_end_libraries(dro__cuda_network *net);
void dro__net_walk(dro__cuda_network *net, dro__gprogram *p, dro__walk body, cudaStream_t stream);

/* norm_sync.c: batch norm over all ranks. dro__norms_place sets where the sums over ranks go.
 * dro__norms_begin precedes a pass that the host drives; every rank calls it, even if it could not
 * begin. dro__norm_sync_* follow the kernels that compute a norm's own sums. */
void dro__norms_place(const dro__cuda_network *net, dro__gprogram *p);
bool dro__norms_sync_on_host(const dro__cuda_network *net, const dro__gprogram *p);
dro_status dro__norms_begin(dro__cuda_network *net, dro__gprogram *p, dro_status begun);
void dro__norm_sync_forward(dro__cuda_network *net, const dro__gtail *tail);
void dro__norm_sync_backward(dro__cuda_network *net, const dro__gtail *tail);

/* queue.c. Another thread may have queued steps on another stream. _follow: what this thread queues
 * next runs after them. _wait: the host waits for them. */
dro_status dro__step_queue_follow(dro__cuda_network *net);
dro_status dro__step_queue_wait(dro__cuda_network *net);
void dro__step_queue_close(dro__cuda_network *net);
void dro__step_queue_forget_graphs(struct dro__step_queue *queue); /* NULL is fine */
extern const dro__queue dro__cuda_queue;

/* dnn_choice.c. _chosen: the index of the plan that another network found to be the fastest; -1:
 * none yet. _choose: this network found `place`; returns the index that all networks use. */
int dro__dnn_chosen(const dro__cuda_network *net, const dro__dnn_shape *shape);
int dro__dnn_choose(const dro__cuda_network *net, const dro__dnn_shape *shape, int place);
/* dnn_plan.c: the plan for a shape, either known or chosen by running candidates on x, w and z;
 * *index is -1 if there is none */
dro_status dro__dnn_find(dro__cuda_network *net, const dro__dnn_shape *shape, const void *x,
                         const void *w, const void *z, int *index);
bool dro__dnn_execute(cudnnHandle_t handle, const dro__dnn_plan *p, const void *x, const void *w,
                      const void *z, void *workspace);
void dro__dnn_close(dro__cuda_network *net);

/* library.c and dnn.c: cuDNN and cuBLAS; a failure during a pass sets net->failed */
dro_status dro__net_refused(dro__cuda_network *net); /* net->failed as an error */
dro_status dro__library_open(dro__cuda_network *net);
void dro__library_close(dro__cuda_network *net);
/* Replaces a block that is too small by a larger one. */
dro_status dro__dnn_grow(dro__cuda_network *net, void **block, size_t *size, size_t need);
/* Chooses plans for the parts of the call and reserves their memory. */
dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z);
/* Whether the data gradient can be added to dx in place. */
bool dro__dnn_adds(const dro__cuda_network *net, const dro__gop *op);
void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add);
void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     cudaStream_t stream, const void *x, const void *dz);
/* Unpacks the weight gradients that cuDNN has written since the last call. */
void dro__dnn_unpack(dro__cuda_network *net, cudaStream_t stream);
void dro__blas_linear_forward(const dro__gcall *c);
void dro__blas_linear_backward(const dro__gcall *c);

/* library.c: how the weights of a convolution are packed; `to` is left empty. */
dro__packing dro__packing_of(const dro__cuda_network *net, const dro__gprogram *p,
                             const dro__gop *op);

/* ---- helpers ---- */

/* `memory` as a dense array in the form of a value. */
static inline dro__typed dro__typed_of(const dro__gvalue *v, void *memory)
{
    return (dro__typed){memory, v->base.form, v->stored};
}

/* The value's data; a slice has the stride of its whole. */
static inline dro__typed dro__data_of(const dro__gprogram *p, const dro__gvalue *v)
{
    return (dro__typed){v->data, v->base.form,
                        v->whole < 0 ? v->stored : p->values[v->whole].stored};
}

static inline const float *dro__parameters(const dro__cuda_network *net,
                                           const dro__graph_node *node, int64_t offset)
{
    return offset < 0 ? NULL : (node->frozen ? net->memory.frozen : net->w) + offset;
}

/* The number of examples in the call in progress. */
static inline int dro__call_size(const dro__cuda_network *net)
{
    return net->parts.first[net->parts.count];
}

/* Whether the kernels of conv3.h can compute a tail: its ReLU, if any, must have no cap. */
static inline bool dro__conv3_knows(const dro__gtail *tail)
{
    return tail->base.cap == 0 || isinf(tail->base.cap);
}

/* The arguments of a conv3 operation: shapes, input and tail. */
dro__conv3 dro__conv3_of(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
dro__norm_source dro__norm_source_of(const dro__cuda_network *net, const dro__gtail *tail);

#endif
