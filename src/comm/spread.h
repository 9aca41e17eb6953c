/* What spread.c and spread_draw.c share. */
#ifndef DRO_SPREAD_H
#define DRO_SPREAD_H

#include "comm.h"
#include "full.h"
#include "step.h"

enum { PARTS = 2, RING = 4 };

/* One batch that was drawn: this rank's share, and what is known about all of it. */
typedef struct drawn {
    dro_batch mine;
    size_t count, capacity;
    int64_t *ids;
    int32_t *classes, *groups;
} drawn;

/* One slice of a call. */
typedef struct slice {
    const dro_problem *problem;
    dro_batch parts[PARTS];
    int part_count;      /* without the empty ones */
    int index[PARTS];    /* which part each is */
    float *losses;       /* (most examples of a call) of its parts, one after the other */
    float *coef;         /* likewise */
    float *grads[PARTS]; /* (dim) each, with shards */
    dro_status status;
} slice;

struct dro_spread {
    dro_comm *comm; /* NULL: one rank */
    dro_context *ctx;
    dro_problem mine;
    dro__spread_options options;
    bool device; /* gradients are in the backend's memory, which is not the host's */
    int rank, ranks, all_slices, own_slices;
    slice *slices; /* (own_slices) */
    size_t capacity;
    drawn ring[RING];
    unsigned turn;
    int *sizes, *offsets; /* (ranks) of a gather */
    char *block, *blocks; /* of this rank, of all */
    size_t block_capacity, blocks_capacity;
    char error[DRO__ERROR_SIZE];
    bool of_comm; /* the text of a failure is in the communicator's context */
    /* the call in progress */
    const float *w;
    float *const *grads;
    int call_parts;
    bool back, empty[PARTS]; /* no example of the part is this rank's (its last slice's) */
    /* asynchronous steps */
    dro__async async;
    dro__abilities able;
};

/* The sizes of all ranks' blocks: a head, and `each` bytes for every example of a part. */
dro_status dro__spread_lay_out(dro_spread *s, const dro_batch *parts, int part_count, size_t each);
/* This rank's block and status to all, theirs into blocks; the first failure of any is that of
 * all. */
dro_status dro__spread_gather(dro_spread *s, dro_status status);
/* Keeps the text of a failure; returns status. */
dro_status dro__spread_remember(dro_spread *s, dro_status status);

/* Slices that synchronise in a batch norm need an example in each; the same on all ranks. */
dro_status dro__spread_check(const dro_spread *s, const dro_batch *parts, int part_count);
/* The parts of this rank's slice k of a call. */
dro_status dro__spread_fill(const dro_spread *s, int k, const dro_batch *parts, int part_count);
/* What a problem with asynchronous steps offers over all ranks, or NULL. */
const dro__abilities *dro__spread_abilities(dro_spread *s);

/* The callbacks of the same names. */
dro_status dro__spread_draw(void *user, uint64_t position, size_t count, dro_batch *batch);
dro_status dro__spread_given(void *user, const int64_t *ids, size_t count, dro_batch *batch);

#endif
