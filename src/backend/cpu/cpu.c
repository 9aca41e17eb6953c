/* The cpu backend's table. */
#include "cpu.h"
#include "graph.h"

#include <string.h>

static bool works(void)
{
    return true;
}

static const char *copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return NULL;
}

void dro__cpu_for(dro__pool *pool, size_t work, size_t count, void (*body)(void *task, size_t k),
                  void *task)
{
    dro__pool_run(work < DRO__PARALLEL_MIN ? NULL : pool, count, body, task);
}

const dro__backend dro__backend_cpu = {
    .name = "cpu",
    .summary = "threads and SIMD; the instruction set is selected at run time",
    .works = works,
    .on_host = true,
    .alloc = dro__alloc,
    .free = dro__free,
    .copy_in = copy,
    .copy_out = copy,
    .weigh = dro__cpu_weigh,
    .move = dro__cpu_move,
    .settle = dro__cpu_settle,
    .first_bad = dro__cpu_first_bad,
    .block_shrink = dro__cpu_block_shrink,
    .rows_dot = dro__cpu_rows_dot,
    .rows_sum = dro__cpu_rows_sum,
    .loss = dro__cpu_loss,
    .net = &dro__cpu_net,
};
