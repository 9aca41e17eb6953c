/* The cuda backend's networks. A graph is compiled into a program: a list of operations over
 * values, walked by the host once for each shape of a call, recorded as a CUDA graph and replayed
 * from then on.
 *
 * A convolution and what follows it (bias, batch norm, a residual, ReLU) are one operation with a
 * TAIL, as on the CPU. In training the convolution's output z is kept and the tail is computed
 * into the value, or, when the only reader is one of our own convolutions, by that reader (the
 * value is LAZY). Backward, whoever writes a value's slope last also closes it: applies the ReLU's
 * mask and takes the sums that batch norm needs. A residual passes its slope on without copying it.
 *
 * Values are (examples, height, width, channels). With bf16 all of them are bfloat16 but those
 * behind a linear layer, a flattening or a global pooling. */
#ifndef DRO_CUDA_NET_H
#define DRO_CUDA_NET_H

#include "conv3.h"
#include "cuda.h"
#include "lower.h"

#include <cublas_v2.h>
#include <cudnn.h>
#include <math.h>

enum { DRO__FLOATS, DRO__BF16_VALUES }; /* forms */

typedef struct dro__gvalue {
    dro__value base;
    dro__extent extent;
    int stored;    /* channels in memory: more than there are for an input that is padded */
    int32_t whole; /* the concatenation that it is a slice of, from channel `at` on; -1: none */
    int at;
    size_t size;
    bool lazy;
    int32_t filler;    /* the operation that keeps it while reading it, -1: it is kept before */
    void *data, *grad; /* (capacity, size); a slice's data is inside the whole's */
    uint16_t *chosen;  /* (capacity, size) of a max pool: which element was the largest */
    /* while the backward pass is walked */
    int32_t left;     /* who write its slope and are still to come */
    dro__typed slope; /* what has come together so far; none: nothing */
} dro__gvalue;

typedef struct dro__gtail {
    dro__tail base;
    void *z;  /* the convolution's output; the value itself where it may be */
    void *dz; /* its slope, where the value's slope is passed on to a residual */
    dro__numbers numbers;
} dro__gtail;

typedef struct dro__gop {
    dro__operation base;
    bool own, folded;  /* own: a convolution of conv3.h; folded: of a folded image */
    bool bands;        /* own, and one that can go by bands */
    dro_window window; /* as the convolution sees it; a fold: of the convolution that reads it */
} dro__gop;

typedef enum dro__dnn_kind { DRO__DNN_FORWARD, DRO__DNN_DATA, DRO__DNN_WEIGHT } dro__dnn_kind;

/* What a plan of cuDNN was chosen for; compared as bytes. */
typedef struct dro__dnn_shape {
    int kind, count; /* dro__dnn_kind; examples */
    int in, height, width, out, out_height, out_width;
    int kernel[2], stride[2], pad[2];
    int add; /* data gradient: it is added to what is there */
} dro__dnn_shape;

typedef struct dro__dnn_plan {
    dro__dnn_shape shape;
    cudnnBackendDescriptor_t plan;
    size_t workspace;
} dro__dnn_plan;

/* A convolution through cuDNN: which plans it uses for the examples of one call; -1: none. */
typedef struct dro__gconv {
    int forward, data, data_add, weight[2];
    void *dw[2];          /* gradients as cuDNN writes them, by part */
    int ready, counts[3]; /* 1: evaluation, 2: training; examples in all and by part */
} dro__gconv;

typedef struct dro__gprogram {
    dro__program base;
    bool counted;        /* among dro__networks_alive() */
    dro__gvalue *values; /* the base's arrays */
    dro__gtail *tails;
    dro__gop *ops;
    size_t capacity; /* examples */
    void *memory;
    double *sums, *back; /* of all tails: what the two passes gather; behind: back of all ranks */
    void *tail_scratch;
    size_t sums_bytes;
} dro__gprogram;

/* A recorded pass. */
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
    cudaStream_t side, weights_stream; /* records; weight gradients */
    cudaEvent_t fork, join;
    void *blas_scratch;
    dro__gconv *convs; /* (graph count), those that cuDNN does */
    void **packed;     /* (graph count) weights as the convolutions read them */
    dro__packing *packings;
    int packing_count;
    size_t packing_largest;
    float **scales;           /* (graph count) affine: scale and shift, (2, channels) */
    dro__gprogram program[2]; /* evaluation, training */
    dro__recording recordings[DRO__RECORDINGS];
    int next_recording;
    float *w, *grads[DRO__PARTS], *taken, *constants;
    void *workspace, *scratch, *dw; /* cuDNN's; a slope on its way; all that is in dro__gconv.dw */
    dro__packing *unpackings; /* device (parts, those with a dw), the last operation's first */
    int unpacking_count, written, unpacked; /* by part: in all; of this pass so far */
    void *weights_workspace, *retired[64];  /* retired: outgrown blocks */
    size_t workspace_size, scratch_size, weights_workspace_size;
    int retired_count;
    float *partial; /* weight gradients of our own convolutions, by block */
    /* by example, row_capacity of them: what the host writes and reads */
    size_t rows, row_capacity;
    float *x;                  /* device (rows, input) */
    float *losses, *coef;      /* both sides */
    float *targets;            /* both sides (rows, outputs) */
    int32_t *labels;           /* both sides */
    uint64_t *keys;            /* both sides */
    dro__gpu_cut *cuts;        /* both sides */
    dro__gpu_mix *mixes;       /* both sides */
    float *slopes[DRO__HEADS]; /* device (rows, outputs) */
    bool has_targets, has_mixes;
    /* the call in progress */
    cudaStream_t stream;
    dro__parts parts;
    int share;   /* of how many parts of the GPU it takes one */
    bool forked; /* something is queued on weights_stream */
    int turns;   /* weight gradients by dro__gpu_conv3_back so far */
    bool pending, failed;
    struct dro__step_queue *queue; /* queue.c: asynchronous steps, or NULL */
    bool chained;                  /* the last kernel of the stream was one of conv3.h */
    double *host_sums;             /* (sums_bytes): where the host sums norms over ranks */
} dro__cuda_network;

/* compile.c */
dro_status dro__gprogram_create(dro__cuda_network *net, bool training);
void dro__gprogram_destroy(dro__gprogram *p);
/* Networks of this process that can be trained now. */
int dro__networks_alive(void);
/* place.c: gives the values memory for so many examples. */
dro_status dro__gprogram_place(dro__cuda_network *net, dro__gprogram *p, size_t capacity);

/* An operation of a pass, and what its kernels are given. */
typedef struct dro__gcall {
    dro__cuda_network *net;
    dro__gprogram *p;
    const dro__gop *op;
    dro__gvalue *in, *out; /* its first input and its value */
    cudaStream_t stream;
    dro__layer_pass k;
} dro__gcall;

/* What an operation is to this backend. */
typedef struct dro__gpu_layer {
    dro__traits traits;
    bool packs;   /* its weights are packed for it (weights.cu) */
    bool strided; /* it can write its value with a stride, and read its slope so */
    bool chooses; /* it keeps which element of a window it took */
    dro_status (*make)(dro__gprogram *p, dro__gop *op); /* (optional) when it is compiled */
    /* (optional) before the passes of a call */
    dro_status (*prepare)(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
    dro__layer_kernel *kernel, *slope; /* the two passes of a layer of one input, or ... */
    void (*forward)(const dro__gcall *c);
    void (*backward)(const dro__gcall *c); /* ... what else is to be done */
} dro__gpu_layer;

extern const dro__gpu_layer dro__gpu_layers[DRO__OP_ALL]; /* layers.c */

dro__gcall dro__gcall_of(dro__cuda_network *net, dro__gprogram *p, const dro__gop *op);

/* compile.c, forward.c, backward.c: convolutions and norms as layers */
dro_status dro__gconv_make(dro__gprogram *p, dro__gop *op);
void dro__gconv_forward(const dro__gcall *c);
void dro__gconv_backward(const dro__gcall *c);
void dro__gtail_forward(const dro__gcall *c); /* from z to the value */
void dro__gnorm_backward(const dro__gcall *c);

/* backward.c: the slope of a value is in its place, but `more`, which may be none, is still to be
 * added; or another slope is passed on to it as it is. */
void dro__slope_written(const dro__gcall *c, int32_t value, dro__typed more);
void dro__slope_pass(const dro__gcall *c, int32_t value, dro__typed slope);
/* Of an operation with a tail: dz, in memory that nobody else uses in this pass; and its residual
 * gets its slope. */
void *dro__slope_of_z(const dro__gcall *c);
void dro__slope_to_residual(const dro__gcall *c);
/* What is queued on net->weights_stream next runs after all that was queued on net->stream. */
void dro__branch_off(dro__cuda_network *net);

/* forward.c: the share that a call which begins now has, by the networks there are. */
int dro__share_of(const dro__cuda_network *net);
/* forward.c, backward.c: queue the whole pass on net->stream for net->parts and net->share */
void dro__gprogram_forward(dro__cuda_network *net, dro__gprogram *p);
void dro__gprogram_backward(dro__cuda_network *net, dro__gprogram *p);

/* net.c: what a kernel needs to know of images, their scale and shift copied */
dro__gpu_images dro__images_of(const dro__cuda_network *net, const dro__gprogram *p,
                               const dro_net_batch *part);
/* Example i of a part, for the GPU. */
dro__gpu_cut dro__gpu_cut_at(const dro_net_batch *part, size_t i);
dro__gpu_mix dro__gpu_mix_at(const dro_net_batch *part, size_t i);
/* net.c: memory and algorithms for a call of these parts; a pass queued on a stream. */
dro_status dro__net_prepare(dro__cuda_network *net, dro__gprogram *p, const dro_net_batch *parts,
                            int count);
typedef void (*dro__walk)(dro__cuda_network *net, dro__gprogram *p);
/* Records what `queue` puts on net->side; and dro__library_close, which no recording survives,
 * between recordings. */
typedef void (*dro__queuer)(dro__cuda_network *net, const void *what);
dro_status dro__net_record(dro__cuda_network *net, dro__queuer queue, const void *what,
                           cudaGraphExec_t *recorded);
void dro__net_end_libraries(dro__cuda_network *net);
void dro__net_walk(dro__cuda_network *net, dro__gprogram *p, dro__walk body, cudaStream_t stream);

/* norm_sync.c: batch norm over all ranks. dro__norms_place: where the sums go. dro__norms_begin:
 * before a pass that the host drives, whether or not this rank could begin. dro__norm_sync_*: after
 * a norm's own sums are known. */
void dro__norms_place(const dro__cuda_network *net, dro__gprogram *p);
bool dro__norms_sync_on_host(const dro__cuda_network *net, const dro__gprogram *p);
dro_status dro__norms_begin(dro__cuda_network *net, dro__gprogram *p, dro_status begun);
void dro__norm_sync_forward(dro__cuda_network *net, const dro__gtail *tail);
void dro__norm_sync_backward(dro__cuda_network *net, const dro__gtail *tail);

/* queue.c. Steps may have been queued by another thread, on another stream. _follow: what this
 * thread queues runs after them; _wait: the host waits for them. */
dro_status dro__step_queue_follow(dro__cuda_network *net);
dro_status dro__step_queue_wait(dro__cuda_network *net);
void dro__step_queue_close(dro__cuda_network *net);
void dro__step_queue_forget_graphs(struct dro__step_queue *queue); /* NULL is fine */
extern const dro__queue dro__cuda_queue;

/* dnn_choice.c: the place of the plan that another network found to be the fastest, -1: none has
 * yet; and what all agree on when this one has found `place`. */
int dro__dnn_chosen(const dro__cuda_network *net, const dro__dnn_shape *shape);
int dro__dnn_choose(const dro__cuda_network *net, const dro__dnn_shape *shape, int place);
/* dnn_plan.c: the plan of a shape, found again or chosen by running it on x, w and z; -1: there is
 * none */
dro_status dro__dnn_find(dro__cuda_network *net, const dro__dnn_shape *shape, const void *x,
                         const void *w, const void *z, int *index);
bool dro__dnn_execute(cudnnHandle_t handle, const dro__dnn_plan *p, const void *x, const void *w,
                      const void *z, void *workspace);
void dro__dnn_close(dro__cuda_network *net);

/* library.c and dnn.c: cuDNN and cuBLAS; a failure in a pass is kept in net->failed */
dro_status dro__net_refused(dro__cuda_network *net); /* net->failed as an error */
dro_status dro__library_open(dro__cuda_network *net);
void dro__library_close(dro__cuda_network *net);
/* A larger block when the old one is too small. */
dro_status dro__dnn_grow(dro__cuda_network *net, void **block, size_t *size, size_t need);
/* Chooses plans for the parts of the call and reserves their memory. */
dro_status dro__dnn_prepare(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
void dro__dnn_forward(dro__cuda_network *net, const dro__gop *op, const void *x, void *z);
/* Whether the data gradient can be added to what is there. */
bool dro__dnn_adds(const dro__cuda_network *net, const dro__gop *op);
void dro__dnn_data(dro__cuda_network *net, const dro__gop *op, const void *dz, void *dx, bool add);
void dro__dnn_weight(dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op,
                     cudaStream_t stream, const void *x, const void *dz);
/* Passes on the weight gradients that cuDNN has written and that were not yet passed on. */
void dro__dnn_unpack(dro__cuda_network *net, cudaStream_t stream);
void dro__blas_linear_forward(const dro__gcall *c);
void dro__blas_linear_backward(const dro__gcall *c);

/* library.c: how the weights of a convolution are packed, `to` apart. */
dro__packing dro__packing_of(const dro__cuda_network *net, const dro__gprogram *p,
                             const dro__gop *op);

/* ---- small things ---- */

/* Memory of a value's shape. */
static inline dro__typed dro__typed_of(const dro__gvalue *v, void *memory)
{
    return (dro__typed){memory, v->base.form, v->stored};
}

/* The value itself, which may be a slice. */
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

/* Examples of the call in progress. */
static inline int dro__call_size(const dro__cuda_network *net)
{
    return net->parts.first[net->parts.count];
}

/* Whether a convolution of conv3.h can compute a tail: its ReLU has no cap. */
static inline bool dro__conv3_knows(const dro__gtail *tail)
{
    return tail->base.cap == 0 || isinf(tail->base.cap);
}

/* The arguments of a conv3 operation: shapes, input and tail. */
dro__conv3 dro__conv3_of(const dro__cuda_network *net, const dro__gprogram *p, const dro__gop *op);
dro__norm_source dro__norm_source_of(const dro__cuda_network *net, const dro__gtail *tail);

#endif
