/* The kernels of a step (step.cu): they copy the ticket, turn losses into coefficients, and move
 * the vectors. */
#ifndef DRO_CUDA_STEP_KERNELS_H
#define DRO_CUDA_STEP_KERNELS_H

#include "../step.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DRO__TICKETS = 4 };

/* Memory in which the sums of a move are reduced over the grid. */
typedef struct dro__gpu_sums {
    double *partial;   /* (DRO__GPU_BLOCKS, DRO__SUMS) */
    unsigned *counter; /* 0 between kernels */
    double *result;    /* (DRO__SUMS) mapped host memory; NULL: an asynchronous step */
} dro__gpu_sums;

/* Pointers refer to device memory unless noted otherwise. */
typedef struct dro__gpu_step {
    dro__step k;
    dro__gpu_sums sums;
    dro__scalars *snapshots; /* (DRO__TICKETS) scalars after each step; mapped memory in queue.c */
    uint64_t *turn;          /* steps finished, refused ones included */
    /* the tickets in mapped host memory: DRO__TICKETS slots, `capacity` examples in each */
    const dro__ticket *tickets;
    const dro__gpu_cut *ticket_cuts;
    const dro__gpu_mix *ticket_mixes;
    const int32_t *ticket_labels, *ticket_groups;
    const uint64_t *ticket_keys;
    size_t capacity;
    /* the current ticket, copied to the device */
    dro__ticket *ticket;
    dro__gpu_cut *cuts;
    dro__gpu_mix *mixes;
    int mixed; /* whether the step has mixes */
    int32_t *labels, *group_of;
    uint64_t *keys;
    /* several ranks: losses and coefficients of this rank's examples, part 0, then part 1; NULL:
     * one rank */
    float *own_losses, *own_coef;
    int own_first[2], own_counts[2]; /* this rank's slice of each whole part: begin, size */
    /* copies from before the step, restored when it is refused */
    dro__scalars *s_before;
    dro__group *groups_before;
    float *old_losses_before;
    size_t moved_first, moved_end; /* the moves change elements [first, end) */
    float *statistics;
    const float *taken;
    size_t statistics_size;
    unsigned long long *first; /* first bad gradient: part << 62 | index; else all ones */
    float *left;               /* form=two-point: receives w from before the move; or NULL */
} dro__gpu_step;

void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *g);
/* Several ranks: fills losses with this rank's values, and with 0 for the examples of other
 * ranks. */
void dro__gpu_step_place(cudaStream_t s, const dro__gpu_step *g);
/* first: whether this is the first phase of the step */
void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *g, dro__phase phase, int first);
/* sam: computes z from w and the gradient at w. */
void dro__gpu_step_ascend(cudaStream_t s, const dro__gpu_step *g);
/* Checks the gradients, moves the vectors, settles the scalars. */
void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *g);

/* One move, driven by the host. Its scalars and its ticket are kernel arguments. reg: with the
 * regulariser r(w). */
void dro__gpu_move(cudaStream_t s, const dro__step *host, dro__move_kind kind, int reg,
                   const dro__gpu_sums *sums);

#ifdef __cplusplus
}
#endif
#endif
