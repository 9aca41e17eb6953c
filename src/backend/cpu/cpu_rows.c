/* Linear models of the cpu backend: products with gathered rows, and their losses.
 *
 * Forward, a thread takes rows; backward, it takes columns and keeps a tile of the gradient in
 * registers while the rows stream by, so nothing is reduced across threads and the sums have one
 * order whatever the number of threads. */
#include "cpu.h"

#include <math.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

DRO__KERNEL void dot_dense(const float *x, size_t features, const int64_t *ids, size_t count,
                           const float *w, float *margins)
{
    enum { LANES = 16 };
    for (size_t i = 0; i < count; i++) {
        const float *row = x + (size_t)ids[i] * features;
        if (i + 4 < count) {
            const char *ahead = (const char *)(x + (size_t)ids[i + 4] * features);
            for (size_t byte = 0; byte < MIN(features * sizeof *x, 2048); byte += 64)
                __builtin_prefetch(ahead + byte);
        }
        float part[LANES] = {0};
        size_t j = 0;
        for (; j + LANES <= features; j += LANES)
            for (size_t k = 0; k < LANES; k++)
                part[k] += row[j + k] * w[j + k];
        float sum = 0;
        for (; j < features; j++)
            sum += row[j] * w[j];
        for (size_t k = 0; k < LANES; k++)
            sum += part[k];
        margins[i] = sum;
    }
}

static void dot_sparse(const dro__rows *rows, const int64_t *ids, size_t count, const float *w,
                       float *margins)
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
    const dro__rows *rows;
    const int64_t *ids;
    size_t count;
    const float *in; /* w, or the coefficients */
    float *out;      /* margins, or the gradient */
} rows_task;

static void dot_chunk(void *arg, size_t c)
{
    const rows_task *t = arg;
    size_t from = c * ROWS, size = MIN(t->count - from, (size_t)ROWS);
    if (t->rows->x)
        dot_dense(t->rows->x, t->rows->features, t->ids + from, size, t->in, t->out + from);
    else
        dot_sparse(t->rows, t->ids + from, size, t->in, t->out + from);
}

void dro__cpu_rows_dot(int threads, const dro__rows *rows, const int64_t *ids, size_t count,
                       const float *w, float *margins)
{
    rows_task task = {.rows = rows, .ids = ids, .count = count, .in = w, .out = margins};
    size_t work = rows->x ? count * rows->features : count * 64;
    dro__cpu_for(threads, work, (count + ROWS - 1) / ROWS, dot_chunk, &task);
}

enum { TILE = 64 };

/* grad[0..width) for one tile of columns; x points at the tile in row 0. */
DRO__KERNEL void sum_tile(const float *x, size_t features, const int64_t *ids, size_t count,
                          const float *coef, float *grad)
{
    float acc[TILE] = {0};
    for (size_t i = 0; i < count; i++) {
        const float *row = x + (size_t)ids[i] * features;
        float c = coef[i];
        for (size_t j = 0; j < TILE; j++)
            acc[j] += c * row[j];
    }
    memcpy(grad, acc, sizeof acc);
}

DRO__KERNEL void sum_tail(const float *x, size_t features, const int64_t *ids, size_t count,
                          const float *coef, size_t width, float *grad)
{
    float acc[TILE] = {0};
    for (size_t i = 0; i < count; i++) {
        const float *row = x + (size_t)ids[i] * features;
        float c = coef[i];
        for (size_t j = 0; j < width; j++)
            acc[j] += c * row[j];
    }
    memcpy(grad, acc, width * sizeof *acc);
}

static void sum_sparse(const dro__rows *rows, const int64_t *ids, size_t count, const float *coef,
                       float *grad)
{
    memset(grad, 0, rows->features * sizeof *grad);
    for (size_t i = 0; i < count; i++)
        for (int64_t k = rows->starts[ids[i]]; k < rows->starts[ids[i] + 1]; k++)
            grad[rows->columns[k]] += coef[i] * rows->values[k];
}

static void sum_columns(void *arg, size_t tile)
{
    const rows_task *t = arg;
    size_t features = t->rows->features, at = tile * TILE, width = MIN(features - at, (size_t)TILE);
    const float *x = t->rows->x + at;
    if (width == TILE)
        sum_tile(x, features, t->ids, t->count, t->in, t->out + at);
    else
        sum_tail(x, features, t->ids, t->count, t->in, width, t->out + at);
}

void dro__cpu_rows_sum(int threads, const dro__rows *rows, const int64_t *ids, size_t count,
                       const float *coef, float *grad)
{
    if (!rows->x) {
        sum_sparse(rows, ids, count, coef, grad);
        return;
    }
    rows_task task = {.rows = rows, .ids = ids, .count = count, .in = coef, .out = grad};
    dro__cpu_for(threads, count * rows->features, (rows->features + TILE - 1) / TILE, sum_columns,
                 &task);
}

/* exp(x) for x <= 0, to about 2 units in the last place: 2^k * 2^f, the fraction by a polynomial. */
static inline float exp_negative(float x)
{
    float t = x < -87.0f ? -87.0f : x;
    float k = floorf(t * 1.44269504f + 0.5f);
    float r = (t - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)k + 127) << 23;
    float scale;
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

DRO__KERNEL void logistic(size_t count, const float *margins, const float *y, float *losses,
                          float *slopes)
{
    for (size_t i = 0; i < count; i++) {
        float m = y[i] * margins[i];
        float z = exp_negative(-fabsf(m)); /* exp(-|m|) */
        float hinge = m < 0 ? -m : 0;
        losses[i] = m == m ? hinge + log1p_unit(z) : m; /* a NaN stays one */
        slopes[i] = -y[i] * (m > 0 ? z : 1.0f) / (1.0f + z);
    }
}

void dro__cpu_loss(int threads, dro__loss_kind kind, size_t count, const float *margins,
                   const float *y, float *losses, float *slopes)
{
    (void)threads;
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
