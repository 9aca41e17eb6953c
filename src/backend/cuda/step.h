/* A step's own kernels (step_weigh.cu, step_move.cu): what was drawn comes in, losses become weights, gradients become a move. */
#ifndef DRO_CUDA_STEP_H
#define DRO_CUDA_STEP_H

#include "../queue.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DRO__TICKETS = 4 };

/* A ticket as the device sees it, followed in memory by the arrays of its examples. */
typedef struct dro__gpu_ticket {
    double eta, lambda, a;
    int32_t level, drawn, group_count, pad;
} dro__gpu_ticket;

/* The state as the host may read it while steps run. The numbers are those of the step: the first is written before the
 * state and the second after it, so that where they differ the state is half written. */
typedef struct dro__gpu_news {
    uint64_t begun, ended;
    dro__step_state state;
} dro__gpu_news;

/* Pointers are the device's memory unless said otherwise. */
typedef struct dro__gpu_step {
    dro__step_plan plan;
    dro__step_state *state;
    dro__gpu_news *news; /* memory that both see */
    dro__group *groups;  /* (group_room) */
    double *shares;      /* (group_room) */
    uint64_t *turn;      /* steps begun */
    /* tickets, (DRO__TICKETS) of each, in memory that both see; room examples in each */
    const dro__gpu_ticket *tickets;
    const dro__gpu_cut *ticket_cuts;
    const int32_t *ticket_labels, *ticket_groups;
    const uint64_t *ticket_keys;
    size_t room;
    /* the present one */
    dro__gpu_ticket *ticket;
    dro__gpu_cut *cuts;
    int32_t *labels, *group_of;
    uint64_t *keys;
    float *losses, *coef, *old_losses;
    /* as they were before the weighing: put back when a gradient is refused */
    dro__step_state *state_before;
    dro__group *groups_before;
    float *old_losses_before;
    const float *grads[2];
    float *statistics;
    const float *taken;
    size_t statistics_size;
    double *partial;           /* (DRO__GPU_BLOCKS, 3) */
    unsigned *counter;         /* 0 */
    unsigned long long *first; /* all ones */
    int counts[2];             /* examples of the parts, 0: there is none */
} dro__gpu_step;

void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *k);
void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *k);
void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *k);

#ifdef __cplusplus
}
#endif
#endif
