/* Vector operations of the cpu backend other than the moves of a step (cpu_step.c). */
#include "cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { LANES = 16, BLOCK = 512 }; /* floats: summed in float */
enum { CHUNK = 64 * BLOCK };      /* parallel work */

/* NaN and infinity have all exponent bits set: the largest magnitude, as an integer, shows them. */
DRO__KERNEL bool any_bad_kernel(size_t n, const float *x)
{
    typedef int32_t __attribute__((may_alias)) word;
    const word *bits = (const word *)x;
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        int32_t size = bits[i] & 0x7fffffff;
        most = size > most ? size : most;
    }
    return most >= 0x7f800000;
}

DRO__EACH_ISA(bool, any_bad, (size_t n, const float *x), (n, x))

typedef struct bad_task {
    const float *x;
    size_t n;
    _Atomic int64_t found; /* the smallest so far */
} bad_task;

static void bad_chunk(void *arg, size_t c)
{
    bad_task *task = arg;
    size_t from = c * CHUNK, size = MIN(task->n - from, (size_t)CHUNK);
    if (!any_bad(size, task->x + from))
        return;
    size_t i = from;
    while (isfinite(task->x[i]))
        i++;
    int64_t before = atomic_load(&task->found);
    while ((int64_t)i < before && !atomic_compare_exchange_weak(&task->found, &before, (int64_t)i))
        ;
}

int64_t dro__cpu_first_bad(dro__pool *pool, size_t n, const float *x)
{
    bad_task task = {.x = x, .n = n, .found = INT64_MAX};
    dro__cpu_for(pool, n, (n + CHUNK - 1) / CHUNK, bad_chunk, &task);
    return task.found == INT64_MAX ? -1 : task.found;
}

typedef struct shrink_task {
    float *x;
    const int64_t *offsets;
    size_t blocks;
    float threshold;
} shrink_task;

enum { SHRINK = 64 }; /* blocks per unit of parallel work */

DRO__KERNEL void shrink_one_kernel(float *x, size_t size, float threshold)
{
    double norm = 0;
    for (size_t at = 0; at < size; at += BLOCK) {
        size_t n = MIN(size - at, (size_t)BLOCK), i = 0;
        float sums[LANES] = {0}, rest = 0;
        for (; i + LANES <= n; i += LANES)
            for (size_t l = 0; l < LANES; l++)
                sums[l] += x[at + i + l] * x[at + i + l];
        for (; i < n; i++)
            rest += x[at + i] * x[at + i];
        for (size_t l = 0; l < LANES; l++)
            rest += sums[l];
        norm += (double)rest;
    }
    norm = sqrt(norm);
    float scale = norm > (double)threshold ? (float)(1 - (double)threshold / norm) : 0;
    for (size_t i = 0; i < size; i++)
        x[i] *= scale;
}

DRO__EACH_ISA(void, shrink_one, (float *x, size_t size, float threshold), (x, size, threshold))

static void shrink_blocks(void *arg, size_t c)
{
    const shrink_task *t = arg;
    for (size_t k = c * SHRINK; k < MIN(t->blocks, (c + 1) * SHRINK); k++)
        shrink_one(t->x + t->offsets[k], (size_t)(t->offsets[k + 1] - t->offsets[k]), t->threshold);
}

void dro__cpu_block_shrink(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                           double threshold)
{
    shrink_task task = {
        .x = x, .offsets = offsets, .blocks = blocks, .threshold = (float)threshold};
    size_t n = blocks ? (size_t)(offsets[blocks] - offsets[0]) : 0;
    dro__cpu_for(pool, n, (blocks + SHRINK - 1) / SHRINK, shrink_blocks, &task);
}
