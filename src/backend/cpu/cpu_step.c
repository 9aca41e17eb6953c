/* The phases of a step (../step.h) on the processor. Losses and scalars: one thread, exponentials
 * several at a time. Moves: a single pass over memory each, in float, on all threads. Partial
 * sums belong to chunks of the vectors, not to threads, and are added in order, so results do not
 * depend on the number of threads. */
#include "cpu.h"

#include <math.h>
#include <string.h>

/* exp(x) for x <= 600, to about 1e-15: 2^k exp(r), |r| <= log(2)/2, by the series to the 13th
 * power. Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits. Below -700 it is
 * as at -700. */
static inline double exp_double(double x)
{
    const double magic = 6755399441055744.0;
    double t = x < -700 ? -700 : x;
    double shifted = t * 1.4426950408889634 + magic, k = shifted - magic;
    double r = (t - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800, scale;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#define PRAGMA(text)         _Pragma(#text)
#define FN                   static inline __attribute__((always_inline))
#define APART                static __attribute__((noinline))
#define EACH(i, n)           for (int i = 0; i < (n); i++)
#define EACH_SUM(i, n, a, b) PRAGMA(omp simd reduction(+ : a, b)) EACH (i, n)
#define ONE                  1
#define SYNC()               ((void)0)
#define ALL_SUM(x)           (x)
#define ALL_MAX(x)           (x)
#define EXP(x)               exp_double(x)
#define ROOT(x)              sqrtf(x)
#define ALONE                1
#define DRO__NO_GROUP        ((dro__group){0})
typedef float real;
/* clang-format off */
#include "weigh.h"
#include "moves.h"
/* clang-format on */

DRO__KERNEL void weigh_kernel(const dro__step *k, dro__phase phase)
{
    run_phase(k, phase);
}

DRO__EACH_ISA(void, weigh, (const dro__step *k, dro__phase phase), (k, phase))

void dro__cpu_weigh(const dro__step *k, dro__phase phase)
{
    weigh(k, phase);
}

void dro__cpu_settle(const dro__step *k, const double *sums)
{
    settle(k, sums);
}

#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { BLOCK = 512, CHUNK = 64 * BLOCK }; /* floats: summed in float; parallel work */
enum { SLOTS = 256 };                     /* partial sums: chunks are folded onto them in order */

/* A move over [at, at + n); adds to sums. */
typedef void (*block_kernel)(const coefs *c, float *const *v, size_t n, double *sums);

#define LOOP(name, reg)                                                                            \
    PRAGMA(omp simd reduction(+ : sum0, sum1, sum2, sum3))                                         \
    for (size_t i = 0; i < n; i++) {                                                               \
        float sum[DRO__SUMS] = {0};                                                                \
        each_##name(v, c, i, reg, sum);                                                            \
        sum0 += sum[0];                                                                            \
        sum1 += sum[1];                                                                            \
        sum2 += sum[2];                                                                            \
        sum3 += sum[3];                                                                            \
    }

#define KERNEL(name, which, reg)                                                                   \
    DRO__KERNEL void name##_##which##_kernel(const coefs *c, float *const *v, size_t n,            \
                                             double *sums)                                         \
    {                                                                                              \
        float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;                                              \
        LOOP(name, reg)                                                                            \
        sums[0] += (double)sum0;                                                                   \
        sums[1] += (double)sum1;                                                                   \
        sums[2] += (double)sum2;                                                                   \
        sums[3] += (double)sum3;                                                                   \
    }                                                                                              \
    DRO__EACH_ISA(void, name##_##which, (const coefs *c, float *const *v, size_t n, double *sums), \
                  (c, v, n, sums))
#define MOVE(name) KERNEL(name, plain, 0) KERNEL(name, prox, 1)
DRO__MOVES(MOVE)
#undef MOVE

typedef struct move_task {
    block_kernel kernel;
    coefs c;
    const dro__step *k;
    size_t chunks, per_slot;
    double partial[SLOTS][DRO__SUMS];
} move_task;

static void move_slot(void *arg, size_t slot)
{
    move_task *task = arg;
    size_t n = task->k->n, end = MIN(task->chunks, (slot + 1) * task->per_slot);
    double *sums = task->partial[slot];
    memset(sums, 0, DRO__SUMS * sizeof *sums);
    for (size_t at = slot * task->per_slot * CHUNK; at < MIN(n, end * CHUNK); at += BLOCK) {
        float *v[DRO__VECTOR_ROLES];
        for (int r = 0; r < DRO__VECTOR_ROLES; r++)
            v[r] = task->k->v[r] ? task->k->v[r] + at : NULL;
        task->kernel(&task->c, v, MIN(n - at, (size_t)BLOCK), sums);
    }
}

void dro__cpu_move(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums)
{
    bool reg = dro__move_has_prox(k, kind);
    move_task task; /* its partial sums are set where they are used */
    task.k = k;
    task.c = (coefs){0};
    task.chunks = (k->n + CHUNK - 1) / CHUNK;
    task.per_slot = (task.chunks + SLOTS - 1) / SLOTS;
    switch (kind) {
#define MOVE(name)                                                                                 \
    case DRO__MOVE_##name:                                                                         \
        prepare_##name(k, &task.c);                                                                \
        task.kernel = reg ? name##_prox : name##_plain;                                            \
        break;
        DRO__MOVES(MOVE)
#undef MOVE
    default:
        return;
    }
    size_t slots = task.chunks ? (task.chunks + task.per_slot - 1) / task.per_slot : 0;
    dro__cpu_for(pool, k->n, slots, move_slot, &task);
    memset(sums, 0, DRO__SUMS * sizeof *sums);
    for (size_t s = 0; s < slots; s++)
        for (int m = 0; m < DRO__SUMS; m++)
            sums[m] += task.partial[s][m];
}
