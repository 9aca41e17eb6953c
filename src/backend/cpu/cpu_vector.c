/* Vector operations of the cpu backend: every one is a single pass over memory.
 *
 * A fused operation works on blocks that stay in the first-level cache: each input is fetched from
 * memory once, however many outputs and norms use it. Partial sums belong to blocks, not threads, and
 * are added in order, so results do not depend on the number of threads. */
#include "cpu.h"

#include <math.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { BLOCK = 512, CHUNK = 64 * BLOCK }; /* floats: in cache; per unit of parallel work */

/* acc = sum_k coef[k] * in[k][0..n) */
DRO__KERNEL void combine(size_t n, int inputs, const float *const *in, const double *coef,
                         float *restrict acc)
{
    bool first = true;
    for (int k = 0; k < inputs; k++) {
        if (coef[k] == 0)
            continue;
        const float *x = in[k];
        float c = (float)coef[k];
        if (first)
            for (size_t i = 0; i < n; i++)
                acc[i] = c * x[i];
        else
            for (size_t i = 0; i < n; i++)
                acc[i] += c * x[i];
        first = false;
    }
    if (first)
        memset(acc, 0, n * sizeof *acc);
}

/* For a block: sixteen sums in float, joined in double. */
DRO__KERNEL double square_sum(size_t n, const float *x)
{
    float part[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++)
            part[j] += x[i + j] * x[i + j];
    double sum = 0;
    for (size_t j = 0; j < 16; j++)
        sum += (double)part[j];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

DRO__KERNEL void prox_block(size_t n, const dro__prox *p, float *x)
{
    float threshold = (float)p->threshold, scale = (float)p->scale;
    float low = (float)p->low, high = (float)p->high;
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]) - threshold;
        float y = (size > 0 ? copysignf(size, x[i]) : 0) * scale;
        y = y < low ? low : y;
        x[i] = y > high ? high : y;
    }
}

/* One chunk: its outputs written, its share of the norms added to norm[]. */
static void fused_chunk(const dro__fused *f, size_t from, size_t to, double *norm)
{
    float acc[DRO__FUSED_OUT][BLOCK] __attribute__((aligned(64)));
    float probe[BLOCK] __attribute__((aligned(64)));
    for (size_t at = from; at < to; at += BLOCK) {
        size_t n = to - at < BLOCK ? to - at : BLOCK;
        const float *in[DRO__FUSED_IN];
        for (int k = 0; k < f->inputs; k++)
            in[k] = f->in[k] + at;
        for (int m = 0; m < f->norms; m++) {
            combine(n, f->inputs, in, f->norm_coef[m], probe);
            norm[m] += square_sum(n, probe);
        }
        for (int j = 0; j < f->outputs; j++) {
            combine(n, f->inputs, in, f->coef[j], acc[j]);
            if (j == f->prox_out)
                prox_block(n, &f->prox, acc[j]);
        }
        for (int j = 0; j < f->outputs; j++)
            memcpy(f->out[j] + at, acc[j], n * sizeof(float));
    }
}

enum { SLOTS = 256 }; /* partial sums: chunks are folded onto them in order */

typedef struct fused_task {
    const dro__fused *f;
    size_t chunks, per_slot;
    double partial[SLOTS][DRO__FUSED_NORM];
} fused_task;

static void fused_slot(void *arg, size_t slot)
{
    fused_task *task = arg;
    const dro__fused *f = task->f;
    for (int m = 0; m < DRO__FUSED_NORM; m++)
        task->partial[slot][m] = 0;
    size_t end = MIN(task->chunks, (slot + 1) * task->per_slot);
    for (size_t c = slot * task->per_slot; c < end; c++)
        fused_chunk(f, c * CHUNK, MIN(f->n, (c + 1) * CHUNK), task->partial[slot]);
}

void dro__cpu_fused(int threads, dro__fused *f)
{
    fused_task task;
    task.f = f;
    task.chunks = (f->n + CHUNK - 1) / CHUNK;
    task.per_slot = (task.chunks + SLOTS - 1) / SLOTS;
    size_t slots = task.chunks ? (task.chunks + task.per_slot - 1) / task.per_slot : 0;
    dro__cpu_for(threads, f->n, slots, fused_slot, &task);
    for (int m = 0; m < DRO__FUSED_NORM; m++) {
        f->norm[m] = 0;
        for (size_t s = 0; s < slots; s++)
            f->norm[m] += task.partial[s][m];
    }
}

/* An exponent of all ones marks NaN and infinity; integer compares vectorise. */
DRO__KERNEL bool any_bad(size_t n, const float *x)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return bad;
}

typedef struct bad_task {
    const float *x;
    size_t n;
    int64_t found; /* the smallest so far */
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
#pragma omp critical(dro__first_bad)
    if ((int64_t)i < task->found)
        task->found = (int64_t)i;
}

int64_t dro__cpu_first_bad(int threads, size_t n, const float *x)
{
    bad_task task = {.x = x, .n = n, .found = INT64_MAX};
    dro__cpu_for(threads, n, (n + CHUNK - 1) / CHUNK, bad_chunk, &task);
    return task.found == INT64_MAX ? -1 : task.found;
}

typedef struct shrink_task {
    float *x;
    const int64_t *offsets;
    double threshold;
} shrink_task;

static void shrink_block(void *arg, size_t k)
{
    const shrink_task *task = arg;
    float *block = task->x + task->offsets[k], out[BLOCK];
    size_t size = (size_t)(task->offsets[k + 1] - task->offsets[k]);
    double norm = 0;
    for (size_t at = 0; at < size; at += BLOCK)
        norm += square_sum(MIN(size - at, (size_t)BLOCK), block + at);
    norm = sqrt(norm);
    double scale = norm > task->threshold ? 1 - task->threshold / norm : 0;
    for (size_t at = 0; at < size; at += BLOCK) {
        size_t part = MIN(size - at, (size_t)BLOCK);
        const float *in[1] = {block + at};
        combine(part, 1, in, &scale, out);
        memcpy(block + at, out, part * sizeof *out);
    }
}

void dro__cpu_block_shrink(int threads, float *x, const int64_t *offsets, size_t blocks,
                           double threshold)
{
    shrink_task task = {.x = x, .offsets = offsets, .threshold = threshold};
    size_t n = blocks ? (size_t)(offsets[blocks] - offsets[0]) : 0;
    dro__cpu_for(threads, n, blocks, shrink_block, &task);
}
