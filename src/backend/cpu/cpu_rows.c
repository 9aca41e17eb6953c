/* Linear models of the cpu backend: products with gathered rows, and their losses.
 *
 * Forward, a thread takes rows; backward, it takes columns and keeps a tile of the gradient in
 * registers while the rows stream by, so nothing is reduced across threads and the sums have one
 * order whatever the number of threads. */
#include "cpu.h"

#include <math.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Sixteen columns at a time. The last sixteen of a row begin at features - 16: where they overlap
 * the ones before, a product counts once (the copy of w there is zero) and a sum is computed twice,
 * alike. */
enum { LANES = 16, TILE = 8 }; /* floats in a vector, vectors in a tile */
enum { AHEAD = 24 };           /* rows that are fetched in advance */
typedef float lanes __attribute__((vector_size(64)));
typedef float row_lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* Where vector v of a row begins. */
static inline size_t column(size_t features, size_t v)
{
    return MIN(v * LANES, features - LANES);
}

/* Dense rows that are used together. */
typedef struct gathered {
    const float *x; /* (n, features) */
    size_t features;
    const int64_t *ids; /* (count), and up to `known` to fetch rows in advance */
    size_t count, known;
} gathered;

/* margins of the rows over vectors first .. first + T - 1, added to what is there */
static inline __attribute__((always_inline)) void dot_body(const gathered *g, const float *w,
                                                           size_t first, size_t T, float *margins)
{
    const float *x = g->x;
    const int64_t *ids = g->ids;
    size_t features = g->features, count = g->count, known = g->known;
    lanes weight[TILE];
    size_t at[TILE];
    for (size_t v = 0; v < T; v++) {
        size_t begin = column(features, first + v), own = (first + v) * LANES;
        float copy[LANES];
        for (size_t l = 0; l < LANES; l++)
            copy[l] = begin + l >= own ? w[begin + l] : 0;
        memcpy(&weight[v], copy, sizeof copy);
        at[v] = begin;
    }
    for (size_t i = 0; i < count; i++) {
        const float *row = x + (size_t)ids[i] * features;
        if (i + AHEAD < known)
            for (size_t v = 0; v < T; v++)
                __builtin_prefetch(x + (size_t)ids[i + AHEAD] * features + at[v], 0, 2);
        lanes sum = {0};
#pragma GCC unroll 8
        for (size_t v = 0; v < T; v++)
            sum += weight[v] * *(const row_lanes *)(row + at[v]);
        float part[LANES], total = margins[i];
        memcpy(part, &sum, sizeof part);
        for (size_t half = LANES / 2; half > 0; half /= 2)
            for (size_t l = 0; l < half; l++)
                part[l] += part[l + half];
        margins[i] = total + part[0];
    }
}

/* grad of vectors first .. first + T - 1, kept in registers while the rows stream by */
static inline __attribute__((always_inline)) void sum_body(const gathered *g, const float *coef,
                                                           size_t first, size_t T, float *grad)
{
    const float *x = g->x;
    const int64_t *ids = g->ids;
    size_t features = g->features, count = g->count;
    lanes sum[TILE] = {{0}};
    size_t at[TILE];
    for (size_t v = 0; v < T; v++)
        at[v] = column(features, first + v);
    for (size_t i = 0; i < count; i++) {
        const float *row = x + (size_t)ids[i] * features;
        float c = coef[i];
#pragma GCC unroll 8
        for (size_t v = 0; v < T; v++)
            sum[v] += c * *(const row_lanes *)(row + at[v]);
    }
    for (size_t v = 0; v < T; v++)
        memcpy(grad + at[v], &sum[v], sizeof sum[v]);
}

/* clang-format off */
#define EACH_SIZE(body, ...)                                                                       \
    switch (T) {                                                                                   \
    case 1: body(__VA_ARGS__, 1, out); break;                                                      \
    case 2: body(__VA_ARGS__, 2, out); break;                                                      \
    case 3: body(__VA_ARGS__, 3, out); break;                                                      \
    case 4: body(__VA_ARGS__, 4, out); break;                                                      \
    case 5: body(__VA_ARGS__, 5, out); break;                                                      \
    case 6: body(__VA_ARGS__, 6, out); break;                                                      \
    case 7: body(__VA_ARGS__, 7, out); break;                                                      \
    default: body(__VA_ARGS__, 8, out); break;                                                     \
    }
/* clang-format on */

DRO__KERNEL void dot_tile_kernel(const gathered *g, const float *w, size_t first, size_t T,
                                 float *out)
{
    EACH_SIZE(dot_body, g, w, first);
}

DRO__EACH_ISA(void, dot_tile,
              (const gathered *g, const float *w, size_t first, size_t T, float *out),
              (g, w, first, T, out))

DRO__KERNEL void sum_tile_kernel(const gathered *g, const float *coef, size_t first, size_t T,
                                 float *out)
{
    EACH_SIZE(sum_body, g, coef, first);
}

DRO__EACH_ISA(void, sum_tile,
              (const gathered *g, const float *coef, size_t first, size_t T, float *out),
              (g, coef, first, T, out))

static size_t vectors_of(size_t features)
{
    return (features + LANES - 1) / LANES;
}

static void dot_dense(const gathered *g, const float *w, float *margins)
{
    size_t features = g->features;
    memset(margins, 0, g->count * sizeof *margins);
    if (features < LANES) {
        for (size_t i = 0; i < g->count; i++)
            for (size_t j = 0; j < features; j++)
                margins[i] += g->x[(size_t)g->ids[i] * features + j] * w[j];
        return;
    }
    size_t vectors = vectors_of(features);
    for (size_t first = 0; first < vectors; first += TILE)
        dot_tile(g, w, first, MIN(vectors - first, (size_t)TILE), margins);
}

static void dot_sparse(const dro__row_matrix *rows, const int64_t *ids, size_t count,
                       const float *w, float *margins)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int64_t k = rows->starts[ids[i]]; k < rows->starts[ids[i] + 1]; k++)
            sum += rows->values[k] * w[rows->columns[k]];
        margins[i] = sum;
    }
}

enum { ROWS = 64 }; /* rows per unit of parallel work */

typedef struct rows_task {
    const dro__row_matrix *rows;
    const int64_t *ids;
    size_t count;
    const float *in; /* w, or the coefficients */
    float *out;      /* margins, or the gradient */
} rows_task;

static void dot_chunk(void *arg, size_t c)
{
    const rows_task *t = arg;
    size_t from = c * ROWS, size = MIN(t->count - from, (size_t)ROWS);
    gathered g = {t->rows->x, t->rows->features, t->ids + from, size, t->count - from};
    if (t->rows->x)
        dot_dense(&g, t->in, t->out + from);
    else
        dot_sparse(t->rows, t->ids + from, size, t->in, t->out + from);
}

/* In floats touched; a row is also an exponential and a few cache misses. */
static size_t row_work(const dro__row_matrix *rows, size_t count)
{
    return count * (rows->x ? rows->features + 32 : 64);
}

void dro__cpu_rows_dot(dro__pool *pool, const dro__row_matrix *rows, const int64_t *ids,
                       size_t count, const float *w, float *margins)
{
    rows_task task = {.rows = rows, .ids = ids, .count = count, .in = w, .out = margins};
    dro__cpu_for(pool, row_work(rows, count), (count + ROWS - 1) / ROWS, dot_chunk, &task);
}

static void sum_sparse(const dro__row_matrix *rows, const int64_t *ids, size_t count,
                       const float *coef, float *grad)
{
    for (size_t i = 0; i < count; i++)
        for (int64_t k = rows->starts[ids[i]]; k < rows->starts[ids[i] + 1]; k++)
            grad[rows->columns[k]] += coef[i] * rows->values[k];
}

typedef struct sum_task {
    const dro__row_matrix *rows;
    const dro_batch *parts;
    const float *coef;
    float *const *grads;
    size_t tiles, width; /* per part; vectors per tile */
} sum_task;

/* One tile of columns of one part; sparse and narrow rows are one tile. */
static void sum_columns(void *arg, size_t k)
{
    const sum_task *t = arg;
    size_t part = k / t->tiles, first = k % t->tiles * t->width, features = t->rows->features;
    size_t count = t->parts[part].count;
    const int64_t *ids = t->parts[part].ids;
    const float *coef = t->coef + (part ? t->parts[0].count : 0);
    float *grad = t->grads[part];
    if (t->rows->x && features >= LANES) {
        size_t size = MIN(vectors_of(features) - first, t->width);
        sum_tile(&(gathered){t->rows->x, features, ids, count, count}, coef, first, size, grad);
        return;
    }
    memset(grad, 0, features * sizeof *grad);
    for (size_t i = 0; t->rows->x && i < count; i++)
        for (size_t j = 0; j < features; j++)
            grad[j] += coef[i] * t->rows->x[(size_t)ids[i] * features + j];
    if (!t->rows->x)
        sum_sparse(t->rows, ids, count, coef, grad);
}

void dro__cpu_rows_sum(dro__pool *pool, const dro__row_matrix *rows, const dro_batch *parts,
                       int part_count, const float *coef, float *const *grads)
{
    sum_task task = {.rows = rows, .parts = parts, .coef = coef, .grads = grads, .tiles = 1};
    size_t total = parts[0].count + (part_count > 1 ? parts[1].count : 0);
    size_t vectors = vectors_of(rows->features), count = (size_t)part_count;
    task.width = TILE;
    if (rows->x && rows->features >= LANES) {
        /* A tile for every thread; a column's sum is the same in any tile. */
        size_t least = ((size_t)dro__pool_threads(pool) + count - 1) / count;
        task.width = MIN((vectors + least - 1) / least, (size_t)TILE);
        task.tiles = (vectors + task.width - 1) / task.width;
    }
    dro__cpu_for(pool, row_work(rows, total), task.tiles * count, sum_columns, &task);
}

/* exp(x) for x <= 0, to about 2 units in the last place: 2^k * exp(r), |r| <= log(2)/2, the latter
 * by its series. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. NaN stays
 * NaN. */
static inline float exp_negative(float x)
{
    const float magic = 12582912.0f;
    float t = x < -87.0f ? -87.0f : x;
    float shifted = t * 1.44269504f + magic, k = shifted - magic;
    float r = (t - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    float scale;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* log(1 + z) for z in [0, 1] by 2 atanh(z / (2 + z)). */
static inline float log1p_unit(float z)
{
    float s = z / (2.0f + z), q = s * s; /* s <= 1/3 */
    float p = 2.0f / 15;
    p = p * q + 2.0f / 13;
    p = p * q + 2.0f / 11;
    p = p * q + 2.0f / 9;
    p = p * q + 2.0f / 7;
    p = p * q + 2.0f / 5;
    p = p * q + 2.0f / 3;
    p = p * q + 2.0f;
    return p * s;
}

/* loss log(1 + exp(-m)), m = y margin, as max(-m, 0) + log(1 + exp(-|m|)) */
DRO__KERNEL void logistic_kernel(size_t count, const float *restrict margins,
                                 const float *restrict y, float *restrict losses,
                                 float *restrict slopes)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float m = y[i] * margins[i], size = fabsf(m);
        float z = exp_negative(-size);
        float below = m < 0 ? -m : 0;
        float share = m > 0 ? z : 1.0f;
        losses[i] = below + log1p_unit(z);
        slopes[i] = -y[i] * share / (1.0f + z);
    }
}

DRO__EACH_ISA(void, logistic,
              (size_t count, const float *restrict margins, const float *restrict y,
               float *restrict losses, float *restrict slopes),
              (count, margins, y, losses, slopes))

void dro__cpu_loss(dro__loss_kind kind, size_t count, const float *margins, const float *y,
                   float *losses, float *slopes)
{
    enum { BLOCK = 256 };
    float spare[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = MIN(count - at, (size_t)BLOCK);
        float *l = losses ? losses + at : spare, *s = slopes ? slopes + at : spare;
        if (kind == DRO__LOSS_LOGISTIC) {
            logistic(n, margins + at, y + at, l, s);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            float slope = margins[at + i] - y[at + i];
            l[i] = slope * slope / 2;
            s[i] = slope;
        }
    }
}
