/* The cpu backend's networks. A graph is compiled into a program: a list of operations, each of
 * which walks over the examples in chunks that stay in the second-level cache, on several lanes at
 * the same time.
 *
 * What makes it fast is what is NOT a pass over memory. A convolution's TAIL (bias, batch norm,
 * adding a residual, ReLU) is applied by whoever reads the value, chunk by chunk: in training the
 * batch's moments are gathered while the convolution's output z is still in the cache, and the next
 * convolution turns z into its input, in the cache again. Such a value is kept only when more than
 * one reads it. Backward, the last operation that adds to a value's slope also closes it: applies
 * the ReLU's mask and sums what batch norm needs; so a slope in memory is always the one by the
 * tail's sum, a residual needs no pass at all (both slopes are the same memory), and batch norm's
 * own backward happens where the slope is read.
 *
 * Parts are run one after the other, each through all operations: what one operation writes, the
 * next one then finds in the last-level cache.
 *
 * Values are blocked, (examples, blocks, height, width, B), or plain, (examples, channels, height,
 * width). Which chunks a lane takes is fixed by the threads and the parts' sizes, so results do not
 * depend on timing. */
#ifndef DRO_CPU_NET_H
#define DRO_CPU_NET_H

#include "kernels.h"
#include "lower.h"
#include "onednn.h"

#include "../cpu.h"

#include <stdatomic.h>

enum { DRO__PLAIN, DRO__BLOCKED }; /* forms */

typedef struct dro__cpu_value {
    dro__value base;
    size_t size;   /* floats per example as stored */
    int64_t data;  /* where: floats per example from the arena's start; -1: not kept */
    int64_t grad;  /* likewise its slope; -1: none */
    int32_t fill;  /* a deferred tail that is kept: the operation that writes it; else -1 */
    int32_t alias; /* shares the slope of this value, -1 */
} dro__cpu_value;

typedef struct dro__cpu_tail {
    dro__tail base;
    int64_t z;       /* deferred: where the convolution's output is kept, -1 */
    size_t channels; /* padded to blocks */
    /* (parts, channels) each: y = (z - mean) * scale + shift; dz = p g + q (z - mean) + r */
    float *mean, *inverse, *scale, *shift, *p, *q, *r;
} dro__cpu_tail;

typedef struct dro__cpu_op {
    dro__operation base;
    dro__conv *conv;    /* borrowed from the network */
    size_t chunk, most; /* examples: of a chunk now, and where the cache ends */
    size_t lanes;
} dro__cpu_op;

enum { DRO__SLOTS_PER_LANE = 4, DRO__USES = DRO__NODE_INPUTS + 1 };

typedef struct dro__lane_sizes { /* sizes in floats, scratch in bytes */
    size_t slot, sum, spare, scratch;
} dro__lane_sizes;

typedef struct dro__lane {
    dro__lane_sizes capacity;
    float *slots[DRO__SLOTS_PER_LANE]; /* a chunk each */
    float *sum;                        /* of the chunks' gradients by the weights */
    float *spare;
    bool any; /* is in the sum */
    void *scratch;
    double *moments; /* (uses, 2, channels) */
    double seen;
    double *row; /* (2, outputs) */
} dro__lane;

typedef struct dro__cpu_program {
    dro__program base;
    dro__cpu_value *values; /* the base's arrays */
    dro__cpu_tail *tails;
    dro__cpu_op *ops;
    size_t arena; /* floats per example */
} dro__cpu_program;

typedef struct dro__cpu_network {
    dro_context *ctx;
    const dro__graph *graph;
    dro__net_memory memory;
    dro__onednn *library;
    int block;
    size_t lane_count;
    dro__lane *lanes;
    dro__conv **convs;           /* (graph count) */
    dro__cpu_program program[2]; /* evaluation, training */
    float *arena;
    size_t arena_size;
    size_t channels;     /* the most, padded */
    double *norm_sums;   /* (2, channels) and one more: a norm's sums */
    float *taken;        /* (statistics) after part 0 of the last forward */
    bool pending, stray; /* stray: a trained layer that no head depends on */
    /* the call in progress */
    const float *w;
    dro_net_batch parts[DRO__PARTS];
    int part_count, part; /* how many, and which one is being run */
    size_t first[DRO__PARTS + 1];
    float *const *grads;
    float *losses;
    const float *coef;
    atomic_bool failed;
} dro__cpu_network;

/* compile.c: the program of a graph. plan.c: where its values are. */
dro_status dro__cpu_program_create(dro__cpu_network *net, bool training);
void dro__cpu_program_destroy(dro__cpu_program *program);
bool dro__cpu_program_plan(dro__cpu_program *program); /* false: no memory */

/* memory.c: makes the network ready for a call with these parts. */
dro_status dro__network_reserve(dro__cpu_network *net, dro__cpu_program *program,
                                const dro_net_batch *parts, int count);
void dro__lane_free(dro__lane *lane);

/* A chunk of examples of one part, on one lane. */
typedef struct dro__piece {
    dro__cpu_network *net;
    dro__cpu_program *program;
    dro__cpu_op *op;
    int32_t op_index;
    int part;
    size_t first, count; /* examples, counted over all parts */
    dro__lane *lane;
    size_t lane_index;
} dro__piece;

/* tails.c */
const float *dro__piece_value(const dro__piece *piece, int32_t value, int slot);
/* The value y of a tail from z; a residual that is not kept goes into the slot. */
void dro__piece_apply(const dro__piece *piece, const dro__cpu_value *v, const float *z, int slot,
                      float *y);
float *dro__piece_grad(const dro__piece *piece, int32_t value);
void dro__piece_close(const dro__piece *piece, const dro__use *use, int use_index);
/* The slope of z from that of the tail's sum; may be the slope itself. */
const float *dro__piece_slope(const dro__piece *piece, int32_t value, int slot);
void dro__piece_moments(const dro__piece *piece, const float *z);
void dro__tail_forward(dro__cpu_network *net, dro__cpu_program *program, dro__cpu_op *op);
void dro__tail_backward(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op,
                        const dro__use *use, int use_index);
void dro__lane_clear(const dro__cpu_network *net, dro__lane *lane, size_t channels, int use_index);
void dro__tail_constants(dro__cpu_network *net, dro__cpu_tail *tail);
const float *dro__node_parameters(const dro__cpu_network *net, const dro__graph_node *node,
                                  int64_t offset);

/* What an operation is to this backend. */
typedef struct dro__cpu_layer {
    dro__traits traits;
    /* A chunk of examples. Back: writes its inputs' slopes where it is the first to do so, else
     * adds to them. */
    void (*run)(const dro__piece *piece, bool back);
    /* (optional) when it is compiled; and when all chunks of the backward pass have been run: the
     * weights' gradient */
    dro_status (*make)(dro__cpu_program *program, dro__cpu_op *op);
    void (*finish)(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op);
} dro__cpu_layer;

extern const dro__cpu_layer dro__cpu_layers[DRO__OP_ALL]; /* layers.c */

/* conv.c */
void dro__conv_run(const dro__piece *piece, bool back);
dro_status dro__conv_make(dro__cpu_program *program, dro__cpu_op *op);
void dro__conv_finish(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op);
/* Hands all convolutions their weights: for forward, or for the gradient by the input. */
void dro__conv_take(dro__cpu_network *net, dro__cpu_program *program, bool back);

/* Where an example of the part being run has the value at this place of the plan. Every part has an
 * arena of its own: the plan's times are those of one part. */
static inline float *dro__value_at(const dro__cpu_network *net, const dro__cpu_program *program,
                                   int64_t place, size_t size, size_t example)
{
    size_t first = net->first[net->part], count = net->parts[net->part].count;
    return net->arena + program->arena * first + (size_t)place * count + size * (example - first);
}

#endif
