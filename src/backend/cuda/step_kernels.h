/* The kernels of a step (step.cu): what was drawn comes in, losses become coefficients, vectors
 * move. */
#ifndef DRO_CUDA_STEP_KERNELS_H
#define DRO_CUDA_STEP_KERNELS_H

#include "../step.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DRO__TICKETS = 4 };

/* Where the sums of a move meet. */
typedef struct dro__gpu_sums {
    double *partial;   /* (DRO__GPU_BLOCKS, DRO__SUMS) */
    unsigned *counter; /* 0 */
    double *result;    /* (DRO__SUMS) memory that both see; NULL: an asynchronous step */
} dro__gpu_sums;

/* Pointers are the device's memory unless said otherwise. */
typedef struct dro__gpu_step {
    dro__step k;
    dro__gpu_sums sums;
    dro__scalars *snapshots; /* (DRO__TICKETS) as each step left them; memory that both see */
    uint64_t *turn;          /* steps ended */
    /* tickets, (DRO__TICKETS) of each, in memory that both see; `capacity` examples in each */
    const dro__ticket *tickets;
    const dro__gpu_cut *ticket_cuts;
    const dro__gpu_mix *ticket_mixes;
    const int32_t *ticket_labels, *ticket_groups;
    const uint64_t *ticket_keys;
    size_t capacity;
    /* the present one */
    dro__ticket *ticket;
    dro__gpu_cut *cuts;
    dro__gpu_mix *mixes;
    int mixed; /* whether there are any */
    int32_t *labels, *group_of;
    uint64_t *keys;
    /* several ranks: this one's losses and coefficients, part 0, then part 1; NULL: alone */
    float *own_losses, *own_coef;
    int own_first[2], own_counts[2]; /* where they are among those of a whole part */
    /* as they were before the step: put back when it is refused */
    dro__scalars *s_before;
    dro__group *groups_before;
    float *old_losses_before;
    size_t moved_first, moved_end; /* the elements that the moves change */
    float *statistics;
    const float *taken;
    size_t statistics_size;
    unsigned long long *first; /* all ones */
    float *left;               /* form=two-point: where w goes that is being left; or NULL */
} dro__gpu_step;

void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *g);
/* Several ranks: losses <- this rank's, and 0 where those of others are. */
void dro__gpu_step_place(cudaStream_t s, const dro__gpu_step *g);
/* first: the first phase of the step */
void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *g, dro__phase phase, int first);
/* sam: z from w and the gradient there. */
void dro__gpu_step_ascend(cudaStream_t s, const dro__gpu_step *g);
/* Checks the gradients, moves, settles. */
void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *g);

/* One move, driven by the host: its scalars and its ticket are copied. reg: with r(w). */
void dro__gpu_move(cudaStream_t s, const dro__step *host, dro__move_kind kind, int reg,
                   const dro__gpu_sums *sums);

#ifdef __cplusplus
}
#endif
#endif
