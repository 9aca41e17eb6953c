/* Vector operations of the cpu backend: every one is a single pass over memory.
 *
 * A fused operation is one loop, written once for any number of inputs, outputs and
 * norms and compiled for the shapes that the optimisers use; other shapes go the same way with the
 * counts left open. Partial sums belong to chunks of the vector, not to threads, and are added in
 * order, so results do not depend on the number of threads. */
#include "cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { LANES = 16, BLOCK = 512, CHUNK = 64 * BLOCK }; /* floats: summed in float; parallel work */

/* A fused operation with the unread inputs taken out and the coefficients as floats. */
typedef struct pass {
    const float *in[DRO__FUSED_IN];
    float *out[DRO__FUSED_OUT];
    float coef[DRO__FUSED_OUT][DRO__FUSED_IN], norm_coef[DRO__FUSED_NORM][DRO__FUSED_IN];
    int inputs, outputs, norms, prox_out;
    float threshold, shrink, low,
        high; /* shrink: 1 - scale, which a float next to 1 would round off */
} pass;

static inline float prox_one(const pass *p, float x)
{
    float size = fabsf(x) - p->threshold;
    float y = size > 0 ? copysignf(size, x) : 0;
    y -= y * p->shrink;
    y = y < p->low ? p->low : y;
    return y > p->high ? p->high : y;
}

/* The pass over [at, at + n): K inputs, J outputs, M norms; prox: one output gets the proximal map.
 * Counts are constants where it matters, so the inner loops unroll. */
static inline __attribute__((always_inline)) void
fused_body(const pass *p, size_t at, size_t n, int K, int J, int M, bool prox, double *norm)
{
    const float *in[DRO__FUSED_IN];
    float *out[DRO__FUSED_OUT], sum0 = 0, sum1 = 0, sum2 = 0;
    for (int k = 0; k < K; k++)
        in[k] = p->in[k] + at;
    for (int j = 0; j < J; j++)
        out[j] = p->out[j] + at;
#pragma omp simd reduction(+ : sum0, sum1, sum2)
    for (size_t i = 0; i < n; i++) {
        float v[DRO__FUSED_NORM] = {0}, y[DRO__FUSED_OUT] = {0};
#pragma GCC unroll 6
        for (int k = 0; k < K; k++) {
            float x = in[k][i];
#pragma GCC unroll 3
            for (int m = 0; m < M; m++)
                v[m] += p->norm_coef[m][k] * x;
#pragma GCC unroll 3
            for (int j = 0; j < J; j++)
                y[j] += p->coef[j][k] * x;
        }
        sum0 += v[0] * v[0];
        sum1 += v[1] * v[1];
        sum2 += v[2] * v[2];
#pragma GCC unroll 3
        for (int j = 0; j < J; j++)
            out[j][i] = prox && j == p->prox_out ? prox_one(p, y[j]) : y[j];
    }
    float sums[DRO__FUSED_NORM] = {sum0, sum1, sum2};
    for (int m = 0; m < M; m++)
        norm[m] += (double)sums[m];
}

/* Norms alone: more sums side by side, because nothing but the additions' latency holds it up. */
static inline __attribute__((always_inline)) void norm_body(const pass *p, size_t at, size_t n,
                                                            int K, double *norm)
{
    float sums[4 * LANES] = {0}, rest = 0;
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t l = 0; l < 4 * LANES; l++) {
            float v = 0;
            for (int k = 0; k < K; k++)
                v += p->norm_coef[0][k] * p->in[k][at + i + l];
            sums[l] += v * v;
        }
    for (; i < n; i++) {
        float v = 0;
        for (int k = 0; k < K; k++)
            v += p->norm_coef[0][k] * p->in[k][at + i];
        rest += v * v;
    }
    for (size_t l = 0; l < 4 * LANES; l++)
        rest += sums[l];
    norm[0] += (double)rest;
}

/* The shapes that the optimisers use: inputs, outputs, norms, prox. */
/* clang-format off */
#define SHAPES(X)                                                                                  \
    X(1, 0, 1, 0) X(1, 1, 0, 0) X(2, 0, 1, 0) X(2, 1, 0, 0) X(2, 1, 0, 1) X(2, 2, 1, 0)            \
    X(3, 1, 0, 0) X(3, 1, 2, 0) X(3, 2, 0, 0) X(3, 2, 0, 1) X(4, 2, 0, 0) X(4, 2, 0, 1)            \
    X(4, 2, 3, 0) X(4, 2, 3, 1) X(5, 2, 3, 0) X(5, 2, 3, 1)
/* clang-format on */

#define X(K, J, M, P)                                                                              \
    DRO__KERNEL void pass_##K##J##M##P(const pass *p, size_t at, size_t n, double *norm)           \
    {                                                                                              \
        if (J == 0 && M == 1)                                                                      \
            norm_body(p, at, n, K, norm);                                                          \
        else                                                                                       \
            fused_body(p, at, n, K, J, M, P, norm);                                                \
    }
SHAPES(X)
#undef X

DRO__KERNEL void pass_any(const pass *p, size_t at, size_t n, double *norm)
{
    fused_body(p, at, n, p->inputs, p->outputs, p->norms, p->prox_out >= 0, norm);
}

typedef void (*pass_kernel)(const pass *p, size_t at, size_t n, double *norm);

static pass_kernel choose(const pass *p)
{
    int shape = p->inputs * 1000 + p->outputs * 100 + p->norms * 10 + (p->prox_out >= 0);
    switch (shape) {
#define X(K, J, M, P)                                                                              \
    case K * 1000 + J * 100 + M * 10 + P:                                                          \
        return pass_##K##J##M##P;
        SHAPES(X)
#undef X
    default:
        return pass_any;
    }
}

static bool is_read(const dro__fused *f, int k)
{
    for (int j = 0; j < f->outputs; j++)
        if (f->coef[j][k] != 0)
            return true;
    for (int m = 0; m < f->norms; m++)
        if (f->norm_coef[m][k] != 0)
            return true;
    return false;
}

static pass make_pass(const dro__fused *f)
{
    pass p = {.outputs = f->outputs, .norms = f->norms, .prox_out = f->prox_out};
    for (int k = 0; k < f->inputs; k++) {
        if (!is_read(f, k))
            continue;
        for (int j = 0; j < f->outputs; j++)
            p.coef[j][p.inputs] = (float)f->coef[j][k];
        for (int m = 0; m < f->norms; m++)
            p.norm_coef[m][p.inputs] = (float)f->norm_coef[m][k];
        p.in[p.inputs++] = f->in[k];
    }
    for (int j = 0; j < f->outputs; j++)
        p.out[j] = f->out[j];
    p.threshold = (float)f->prox.threshold;
    p.shrink = (float)(1 - f->prox.scale);
    p.low = (float)f->prox.low;
    p.high = (float)f->prox.high;
    return p;
}

enum { SLOTS = 256 }; /* partial sums: chunks are folded onto them in order */

typedef struct fused_task {
    pass p;
    pass_kernel kernel;
    size_t n, chunks, per_slot;
    double partial[SLOTS][DRO__FUSED_NORM];
} fused_task;

static void fused_slot(void *arg, size_t slot)
{
    fused_task *task = arg;
    double *norm = task->partial[slot];
    for (int m = 0; m < DRO__FUSED_NORM; m++)
        norm[m] = 0;
    size_t end = MIN(task->chunks, (slot + 1) * task->per_slot);
    for (size_t c = slot * task->per_slot; c < end; c++)
        for (size_t at = c * CHUNK; at < MIN(task->n, (c + 1) * CHUNK); at += BLOCK)
            task->kernel(&task->p, at, MIN(task->n - at, (size_t)BLOCK), norm);
}

void dro__cpu_fused(dro__pool *pool, dro__fused *f)
{
    fused_task task;
    task.p = make_pass(f);
    task.kernel = choose(&task.p);
    task.n = f->n;
    task.chunks = (f->n + CHUNK - 1) / CHUNK;
    task.per_slot = (task.chunks + SLOTS - 1) / SLOTS;
    size_t slots = task.chunks ? (task.chunks + task.per_slot - 1) / task.per_slot : 0;
    dro__cpu_for(pool, f->n, slots, fused_slot, &task);
    for (int m = 0; m < DRO__FUSED_NORM; m++) {
        f->norm[m] = 0;
        for (size_t s = 0; s < slots; s++)
            f->norm[m] += task.partial[s][m];
    }
}

/* NaN and infinity have all exponent bits set: the largest magnitude, as an integer, shows them. */
DRO__KERNEL bool any_bad(size_t n, const float *x)
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

DRO__KERNEL void shrink_one(float *x, size_t size, float threshold)
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
