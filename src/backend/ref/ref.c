/* The reference backend: plain C, one loop per operation, sums in double (gradients of rows add up
 * in their floats). Obviously right before fast; the other backends are tested against it. */
#include "graph.h"

#include <math.h>
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

/* ---- steps: the team is one thread, in double ---- */

#define FN                   static
#define APART                static
#define EACH(i, n)           for (int i = 0; i < (n); i++)
#define EACH_SUM(i, n, a, b) EACH (i, n)
#define ONE                  1
#define SYNC()               ((void)0)
#define ALL_SUM(x)           (x)
#define ALL_MAX(x)           (x)
#define EXP(x)               exp(x)
#define ROOT(x)              sqrt(x)
#define ALONE                1
#define DRO__NO_GROUP        ((dro__group){0})
typedef double real;
/* clang-format off */
#include "weigh.h"
#include "moves.h"
/* clang-format on */

static void weigh(const dro__step *k, dro__phase phase)
{
    run_phase(k, phase);
}

static void move(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums)
{
    (void)pool;
    coefs c = {0};
    int reg = dro__move_has_prox(k, kind);
    memset(sums, 0, DRO__SUMS * sizeof *sums);
    switch (kind) {
#define MOVE(name)                                                                                 \
    case DRO__MOVE_##name:                                                                         \
        prepare_##name(k, &c);                                                                     \
        for (size_t i = 0; i < k->n; i++)                                                          \
            each_##name(k->v, &c, i, reg, sums);                                                   \
        break;
        DRO__MOVES(MOVE)
#undef MOVE
    default:
        break;
    }
}

static int64_t first_bad(dro__pool *pool, size_t n, const float *x)
{
    (void)pool;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return (int64_t)i;
    return -1;
}

static void block_shrink(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                         double threshold)
{
    (void)pool;
    for (size_t k = 0; k < blocks; k++) {
        double norm = 0;
        for (int64_t i = offsets[k]; i < offsets[k + 1]; i++)
            norm += (double)x[i] * (double)x[i];
        norm = sqrt(norm);
        double scale = norm > threshold ? 1 - threshold / norm : 0;
        for (int64_t i = offsets[k]; i < offsets[k + 1]; i++)
            x[i] = (float)(scale * (double)x[i]);
    }
}

static void rows_dot(dro__pool *pool, const dro__row_matrix *rows, const int64_t *ids, size_t count,
                     const float *w, float *margins)
{
    (void)pool;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        if (rows->x) {
            const float *row = rows->x + (size_t)ids[i] * rows->features;
            for (size_t j = 0; j < rows->features; j++)
                sum += (double)row[j] * (double)w[j];
        } else {
            for (int64_t k = rows->starts[ids[i]]; k < rows->starts[ids[i] + 1]; k++)
                sum += (double)rows->values[k] * (double)w[rows->columns[k]];
        }
        margins[i] = (float)sum;
    }
}

static void rows_sum(dro__pool *pool, const dro__row_matrix *rows, const dro_batch *parts,
                     int part_count, const float *coef, float *const *grads)
{
    (void)pool;
    for (int k = 0; k < part_count; k++) {
        const int64_t *ids = parts[k].ids;
        memset(grads[k], 0, rows->features * sizeof(float));
        for (size_t i = 0; i < parts[k].count; i++, ids++, coef++) {
            if (rows->x) {
                const float *row = rows->x + (size_t)*ids * rows->features;
                for (size_t j = 0; j < rows->features; j++)
                    grads[k][j] += *coef * row[j];
            } else {
                for (int64_t m = rows->starts[*ids]; m < rows->starts[*ids + 1]; m++)
                    grads[k][rows->columns[m]] += *coef * rows->values[m];
            }
        }
    }
}

static void loss(dro__loss_kind kind, size_t count, const float *margins, const float *y,
                 float *losses, float *slopes)
{
    for (size_t i = 0; i < count; i++) {
        double value, slope;
        if (kind == DRO__LOSS_LOGISTIC) {
            double m = (double)y[i] * (double)margins[i];
            value = m > 0 ? log1p(exp(-m)) : log1p(exp(m)) - m;
            slope = -(double)y[i] / (1 + exp(m));
        } else {
            slope = (double)margins[i] - (double)y[i];
            value = slope * slope / 2;
        }
        if (losses)
            losses[i] = (float)value;
        if (slopes)
            slopes[i] = (float)slope;
    }
}

const dro__backend dro__backend_ref = {
    .name = "ref",
    .summary = "plain C, one thread: the reference that the others are tested against",
    .works = works,
    .on_host = true,
    .alloc = dro__alloc,
    .free = dro__free,
    .copy_in = copy,
    .copy_out = copy,
    .weigh = weigh,
    .settle = settle,
    .move = move,
    .first_bad = first_bad,
    .block_shrink = block_shrink,
    .rows_dot = rows_dot,
    .rows_sum = rows_sum,
    .loss = loss,
    .net = &dro__ref_net,
};
