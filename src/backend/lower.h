/* lower: from a graph to a program, for the backends that compile networks.
 *
 * A program is a list of operations over values. An operation is a node of the graph, or a CHAIN: a
 * node that may have a TAIL (a convolution, a batch norm) and what follows it as long as nobody
 * else reads it: batch norm, adding a residual, ReLU. A value has a FORM, a number whose meaning is
 * the backend's: how it lies in memory. Where an operation wants another form than its input has, a
 * conversion (DRO__OP_CONVERT) comes before it.
 *
 * The structs here are the beginnings of the backend's own, whose sizes it states. */
#ifndef DRO_LOWER_H
#define DRO_LOWER_H

#include "graph.h"

enum { DRO__FORM_ANY = -1, DRO__FORM_COMMON = -2 }; /* common: the largest form of its inputs */

/* What an operation is to the lowering. */
typedef struct dro__traits {
    int in, out; /* the forms of its inputs and of its value; both at most dro__program.form_most */
    int few;     /* inputs of at most so many channels are taken in any form */
    bool tail;
} dro__traits;

typedef struct dro__value {
    int32_t channels, height, width;
    int form;
    bool wants;             /* something trained is below, so it has a slope */
    int32_t tail;           /* the tail that makes it, -1 */
    int32_t maker;          /* the operation that makes it, -1 for the input */
    int32_t readers, first; /* operations and heads that read it; the first operation, -1 */
    int32_t writers;        /* those that write its slope */
} dro__value;

typedef struct dro__tail {
    const dro__graph_node *conv, *norm; /* either may be NULL */
    float cap;                          /* ReLU: its largest value; 0: no ReLU */
    bool deferred; /* its moments are the batch's: known only after the whole operation */
    int32_t residual, source; /* values, -1; source: what z is when there is no convolution */
} dro__tail;

typedef struct dro__use {
    int32_t value;    /* -1: none */
    bool first, last; /* of those that write the value's slope, in the order of the backward pass */
} dro__use;

typedef struct dro__operation {
    dro__op op;
    int32_t index;               /* of the graph's node */
    const dro__graph_node *node; /* NULL: the operation is not in the graph */
    int32_t end;                 /* the value it makes */
    int input_count;
    dro__use in[DRO__NODE_INPUTS];
    dro__use residual; /* of the tail of `end` */
    bool back;         /* it takes part in the backward pass */
} dro__operation;

typedef struct dro__program dro__program;

typedef struct dro__lowering {
    size_t value_size, tail_size, operation_size;
    int extra; /* values that may be inserted for each node */
    const dro__traits *(*traits)(dro__op op);
    void (*value)(dro__program *p, int32_t value); /* completes what is in dro__value */
    dro_status (*operation)(dro__program *p, dro__operation *op);
    dro_status (*tail)(dro__program *p, dro__tail *tail, const dro__operation *op);
    /* (optional) what a node reads instead of its first input, in the right form already */
    int32_t (*input)(dro__program *p, const dro__graph_node *node, int32_t value);
} dro__lowering;

struct dro__program { /* a backend's programs begin with it */
    dro_context *ctx;
    void *net; /* the backend's */
    const dro__graph *graph;
    const dro__lowering *lowering;
    bool training;
    int form_most;
    void *values, *tails, *operations; /* values: the graph's nodes, then what was inserted */
    int32_t value_count, tail_count, operation_count;
    int32_t heads[DRO__HEADS]; /* values of form 0, -1 */
};

/* ctx to form_most are set. Allocates the arrays; lowers the graph into them; frees them. */
dro_status dro__program_begin(dro__program *p);
dro_status dro__program_lower(dro__program *p);
void dro__program_end(dro__program *p);

/* A value made of another by an operation that is not in the graph. */
dro__operation *dro__program_insert(dro__program *p, dro__op op, int32_t from,
                                    const dro__value *made);

#endif
