/* Measures vector operations against memory bandwidth (dro/bench.h). Sees base and the backends'
 * table; loops run on the context's threads. */
#include "backend.h"
#include "isa.h"

#include <dro/bench.h>
#include <math.h>
#include <time.h>

enum { VECTORS = 5, BLOCK_SIZE = 64 };

typedef struct bench {
    dro_context *ctx;
    size_t length, blocks;
    float *g_new, *g_old, *d, *w, *out; /* (length) */
    int64_t *offsets;                   /* (blocks + 1) */
    volatile double sink;               /* what was computed has been used */
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the limits ---- */

DRO__KERNEL void triad_range_kernel(size_t n, float *restrict a, const float *restrict b,
                                    const float *restrict c, float s)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + s * c[i];
}

DRO__EACH_ISA(void, triad_range,
              (size_t n, float *restrict a, const float *restrict b, const float *restrict c,
               float s),
              (n, a, b, c, s))

DRO__KERNEL double sum_range_kernel(size_t n, const float *x)
{
    enum { LANES = 64 };
    float part[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            part[k] += x[i + k];
    for (; i < n; i++)
        part[0] += x[i];
    double sum = 0;
    for (size_t k = 0; k < LANES; k++)
        sum += (double)part[k];
    return sum;
}

DRO__EACH_ISA(double, sum_range, (size_t n, const float *x), (n, x))

enum { PIECE = 1 << 16 }; /* floats handed to a kernel at a time */

static size_t piece_size(size_t length, size_t from)
{
    return length - from < PIECE ? length - from : PIECE;
}

static void triad_piece(void *task, size_t k)
{
    bench *b = task;
    size_t from = k * PIECE;
    triad_range(piece_size(b->length, from), b->out + from, b->g_new + from, b->g_old + from, 3);
}

static void run_triad(bench *b)
{
    dro__pool_run(b->ctx->pool, (b->length + PIECE - 1) / PIECE, triad_piece, b);
}

typedef struct read_task {
    const float *x;
    size_t length;
    _Atomic int used; /* what was read has been used */
} read_task;

static void read_piece(void *task, size_t k)
{
    read_task *t = task;
    size_t from = k * PIECE;
    t->used += sum_range(piece_size(t->length, from), t->x + from) != 0;
}

dro_status dro_bench_read(dro_context *ctx, const float *x, size_t length, double *seconds)
{
    if (!ctx || !x || length == 0 || !seconds)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    read_task task = {.x = x, .length = length};
    double start = now();
    dro__pool_run(ctx->pool, (length + PIECE - 1) / PIECE, read_piece, &task);
    *seconds = now() - start;
    return DRO_OK;
}

/* ---- the moves of the optimisers ---- */

static void run_move(bench *b, dro__move_kind kind, int32_t reg)
{
    dro__scalars s = {.eta = 0.01, .gain = 1, .keep = 0.9, .beta = 0.5};
    dro__ticket t = {.c = {0.9, 0.1}};
    double sums[DRO__SUMS];
    dro__step k = {.plan = {.momentum = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8,
                            .weight_decay = 1e-4,
                            .reg = reg,
                            .reg_strength = 1e-2},
                   .ticket = &t,
                   .s = &s,
                   .n = b->length,
                   .v = {[DRO__W] = b->w,
                         [DRO__G] = b->g_new,
                         [DRO__OLD] = b->g_old,
                         [DRO__D] = b->d,
                         [DRO__SECOND] = b->out,
                         [DRO__OUT] = b->out,
                         [DRO__X] = b->g_new,
                         [DRO__X + 1] = b->g_old}};
    b->ctx->backend->move(b->ctx->pool, &k, kind, sums);
    b->sink = sums[0];
}

static void run_sgd(bench *b)
{
    run_move(b, DRO__MOVE_momentum, DRO__REG_NONE);
}

static void run_adamw(bench *b)
{
    run_move(b, DRO__MOVE_adamw, DRO__REG_NONE);
}

static void run_recover(bench *b)
{
    run_move(b, DRO__MOVE_storm, DRO__REG_NONE);
}

static void run_axpby(bench *b)
{
    run_move(b, DRO__MOVE_combine, DRO__REG_NONE);
}

static void run_l1(bench *b)
{
    run_move(b, DRO__MOVE_storm, DRO__REG_L1);
}

static void run_norm(bench *b)
{
    b->sink = dro__norm2(b->ctx->backend, b->ctx->pool, b->length, b->w);
}

static void run_first_bad(bench *b)
{
    b->sink = (double)b->ctx->backend->first_bad(b->ctx->pool, b->length, b->g_new);
}

static void run_block_shrink(bench *b)
{
    b->ctx->backend->block_shrink(b->ctx->pool, b->w, b->offsets, b->blocks, 1e-4);
}

/* streams: arrays read plus arrays written. */
static const struct operation {
    const char *name;
    int streams;
    void (*run)(bench *b);
} operations[] = {
    {"triad: a = b + s c", 3, run_triad},
    {"sgd step: 3 in, 2 out in place", 5, run_sgd},
    {"adamw step: 4 in, 3 out in place", 7, run_adamw},
    {"recover step: 4 in, 2 out in place, 3 norms", 6, run_recover},
    {"axpby: 2 in, 1 out", 3, run_axpby},
    {"recover step with l1", 6, run_l1},
    {"norm: 1 in", 1, run_norm},
    {"first_bad: 1 in", 1, run_first_bad},
    {"block_shrink: 1 in place, blocks of 64", 2, run_block_shrink},
};

enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* ---- a run ---- */

static void release(bench *b)
{
    float *vectors[VECTORS] = {b->g_new, b->g_old, b->d, b->w, b->out};
    for (int k = 0; k < VECTORS; k++)
        if (vectors[k])
            b->ctx->backend->free(vectors[k]);
    dro__free(b->offsets);
}

static dro_status prepare(bench *b)
{
    float **vectors[VECTORS] = {&b->g_new, &b->g_old, &b->d, &b->w, &b->out};
    b->blocks = (b->length + BLOCK_SIZE - 1) / BLOCK_SIZE;
    b->offsets = dro__alloc(b->blocks + 1, sizeof *b->offsets);
    bool complete = b->offsets != NULL;
    for (int k = 0; k < VECTORS; k++) {
        *vectors[k] = b->ctx->backend->alloc(b->length, sizeof(float));
        complete = complete && *vectors[k];
    }
    if (!complete)
        return dro__fail(b->ctx, DRO_ERR_MEMORY, "no memory for %d vectors of %zu floats", VECTORS,
                         b->length);
    for (size_t k = 0; k <= b->blocks; k++)
        b->offsets[k] = (int64_t)(k * BLOCK_SIZE < b->length ? k * BLOCK_SIZE : b->length);
    for (size_t i = 0; i < b->length; i++) {
        float x = (float)(dro__random(1, 0, i) >> 40) * 0x1p-23f - 1;
        for (int k = 0; k < VECTORS; k++)
            (*vectors[k])[i] = x + (float)k * 0.25f;
    }
    return DRO_OK;
}

static void measure(bench *b, int rounds, dro_bench_speed *speeds, size_t capacity)
{
    double best[OPERATIONS];
    for (int k = 0; k < OPERATIONS; k++)
        best[k] = HUGE_VAL;
    for (int r = -1; r < rounds; r++) /* the first one warms up */
        for (int k = 0; k < OPERATIONS; k++) {
            double start = now();
            operations[k].run(b);
            double seconds = now() - start;
            if (r >= 0 && seconds < best[k])
                best[k] = seconds;
        }
    for (size_t k = 0; k < OPERATIONS && k < capacity; k++) {
        double bytes = 4.0 * (double)b->length * operations[k].streams;
        speeds[k] = (dro_bench_speed){operations[k].name, bytes, bytes / best[k]};
    }
}

dro_status dro_bench_vector(dro_context *ctx, size_t length, int rounds, dro_bench_speed *speeds,
                            size_t capacity, size_t *count)
{
    if (!ctx || (!speeds && capacity) || !count)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    if (length == 0 || rounds < 1)
        return dro__fail(ctx, DRO_ERR_RANGE, "length %zu, rounds %d: expected 1 or more", length,
                         rounds);
    bench b = {.ctx = ctx, .length = length};
    dro_status status = prepare(&b);
    if (status == DRO_OK) {
        measure(&b, rounds, speeds, capacity);
        *count = OPERATIONS;
    }
    release(&b);
    return status;
}
