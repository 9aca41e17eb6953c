/* Two ranks: this process and one that it forks, with shared memory. */
#ifndef TESTS_CUDA_HOST_RANKS_H
#define TESTS_CUDA_HOST_RANKS_H

#include "engine.h"
#include "graph.h"

#include <stdatomic.h>
#include <stddef.h>

/* Forks; both share *bytes (size, zeroed). Returns this process's rank, or -1 on failure. */
int two_ranks_begin(size_t size, void **bytes);
/* The forked rank ends here; the other one waits for it and returns whether it succeeded. */
bool two_ranks_end(int rank);
void two_ranks_free(void *bytes, size_t size);
int two_ranks_own(void); /* this process's; 0 when it is alone */
/* As dro__net_sync's. */
void two_ranks_merge(void *user, double *values, size_t count, dro__net_merge how);
/* A sum as NCCL's; false: it was ended before the other rank came. Also called by nccl/fake.c. */
bool two_ranks_sum(const void *from, void *to, size_t count, bool doubles, atomic_bool *ended);

/* A stand-in for MPI between the two. */
extern const dro__comm_engine two_ranks_engine;

#endif
