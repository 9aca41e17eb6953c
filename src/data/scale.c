/* Scaling the columns of a table: learning the scale, and applying it (scale.h has the details). */
#include "scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ROUNDING: a deviation below it, relative to the mean, is none. SAMPLES_MOST: values held at the
 * same time. */
static const double ROUNDING = 1e-12;
enum { SAMPLES_MOST = 1 << 22, COLUMNS_MOST = 1 << 25 };

double dro__limited(double x)
{
    double size = fabs(x);
    return size > DRO__LIMIT ? copysign(DRO__LIMIT * (2 - DRO__LIMIT / size), x) : x;
}

double dro__beyond(double x)
{
    double size = fabs(x);
    return size > DRO__LIMIT ? copysign(log(size / DRO__LIMIT), x) : 0;
}

double dro__excess(double x)
{
    return x - dro__limited(x);
}

/* ---- outliers ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void dro__fences(double *v, size_t count, double *low, double *high)
{
    *low = -INFINITY;
    *high = INFINITY;
    if (count == 0)
        return;
    qsort(v, count, sizeof *v, by_value);
    size_t cut = count / 20;
    double q05 = v[cut], q95 = v[count - 1 - cut], common = v[count / 2];
    if (q05 == q95) { /* nearly all values are equal: use the others */
        size_t others = 0;
        for (size_t k = 0; k < count; k++)
            if (v[k] != common)
                v[others++] = v[k];
        if (others == 0)
            return;
        q05 = fmin(v[others / 20], common);
        q95 = fmax(v[others - 1 - others / 20], common);
    }
    *low = q05 - (q95 - q05);
    *high = q95 + (q95 - q05);
}

void dro__spread_add(dro__column_spread *s, double value)
{
    double step = value - s->mean;
    s->least = s->count == 0 || value < s->least ? value : s->least;
    s->most = s->count == 0 || value > s->most ? value : s->most;
    s->mean += step / (double)++s->count;
    s->squares += step * (value - s->mean);
}

double dro__spread_scale(const dro__column_spread *s)
{
    double sd = s->count ? sqrt(s->squares / (double)s->count) : 0;
    return sd > ROUNDING * fabs(s->mean) && isfinite(1 / sd) ? 1 / sd : 0;
}

/* ---- learning: dense columns ---- */

int64_t dro__sample_step(int64_t rows, size_t columns)
{
    int64_t most = (int64_t)(SAMPLES_MOST / (columns ? columns : 1));
    most = most > DRO__SAMPLE_MOST ? DRO__SAMPLE_MOST : most < 64 ? 64 : most;
    return rows <= most ? 1 : (rows + most - 1) / most;
}

size_t dro__sample_most(int64_t rows, size_t columns)
{
    return (size_t)(rows / dro__sample_step(rows, columns)) + 1;
}

static void learn_column(const dro__table *t, size_t features, size_t k, double *sample,
                         double *fences)
{
    size_t count = 0;
    int64_t step = dro__sample_step(t->n, 1);
    for (int64_t i = 0; i < t->n; i += step)
        sample[count++] = (double)t->x[(size_t)i * features + k];
    dro__fences(sample, count, &fences[0], &fences[1]);
}

static dro_status learn_dense(dro_context *ctx, const dro__table *t, dro__scaling scaling,
                              dro__scale *s)
{
    size_t d = s->features;
    double sample[DRO__SAMPLE_MOST + 1], *fences = dro__alloc(d, 2 * sizeof *fences);
    dro__column_spread *spreads = dro__alloc(d, sizeof *spreads);
    if (!fences || !spreads) {
        dro__free(fences), dro__free(spreads);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu columns", d);
    }
    for (size_t k = 0; k < d; k++) {
        fences[2 * k] = -INFINITY, fences[2 * k + 1] = INFINITY;
        if (scaling == DRO__SCALE_ROBUST)
            learn_column(t, d, k, sample, fences + 2 * k);
    }
    for (int64_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < d; k++)
            dro__spread_add(&spreads[k], fmin(fmax((double)t->x[(size_t)i * d + k], fences[2 * k]),
                                              fences[2 * k + 1]));
    for (size_t k = 0; k < d; k++) {
        s->centre[k] = (float)spreads[k].mean;
        s->factor[k] = (float)dro__spread_scale(&spreads[k]);
    }
    dro__free(fences);
    dro__free(spreads);
    return DRO_OK;
}

/* ---- learning: sparse columns ---- */

/* Three digits, which is how the factor is kept. */
static float rounded(double value)
{
    double digit = value > 0 ? pow(10, floor(log10(value)) - 2) : 1;
    return value > 0 && isfinite(value) ? (float)(round(value / digit) * digit) : 0;
}

/* The sum of squares of each column's values, none of which counts as more than FAR times the root
 * mean square of the pass before: a few outliers are cut down, pass by pass, until nothing
 * changes. */
static void sum_squares(const dro__table *t, size_t features, dro__scaling scaling, double *squares,
                        double *counts)
{
    enum { PASSES = 40, FAR = 4 };
    int64_t entries = t->starts[t->n];
    for (int64_t k = 0; k < entries; k++) {
        double v = (double)t->values[k];
        squares[t->columns[k]] += v * v;
        counts[t->columns[k]] += v != 0;
    }
    double *most = counts + features; /* the square that a value counts as, at most */
    bool changed = scaling == DRO__SCALE_ROBUST;
    for (int pass = 1; changed && pass < PASSES; pass++) {
        double *before = most + features;
        for (size_t k = 0; k < features; k++) {
            before[k] = squares[k];
            most[k] = counts[k] > 0 ? FAR * FAR * squares[k] / counts[k] : 0;
            squares[k] = 0;
        }
        for (int64_t k = 0; k < entries; k++) {
            double v = (double)t->values[k];
            squares[t->columns[k]] += fmin(v * v, most[t->columns[k]]);
        }
        changed = false;
        for (size_t k = 0; k < features && !changed; k++)
            changed = squares[k] < 0.99 * before[k];
    }
}

static dro_status learn_sparse(dro_context *ctx, const dro__table *t, dro__scaling scaling,
                               dro__scale *s)
{
    size_t d = s->features;
    double *squares = dro__alloc(d, 4 * sizeof *squares), all = 0, entries = 0;
    if (!squares)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu columns", d);
    double *counts = squares + d, rows = (double)t->n + 1;
    sum_squares(t, d, scaling, squares, counts);
    for (size_t k = 0; k < d; k++) {
        all += squares[k];
        entries += counts[k];
    }
    double usual = entries > 0 && all > 0 ? all / entries : 1;
    for (size_t k = 0; k < d; k++) {
        double own = counts[k] > 0 && squares[k] > 0 ? squares[k] / counts[k] : usual;
        s->factor[k] = rounded(1 / sqrt(own * (counts[k] + 1) / rows));
    }
    s->rest = rounded(1 / sqrt(usual / rows));
    dro__free(squares);
    return DRO_OK;
}

dro_status dro__scale_learn(dro_context *ctx, const dro__table *t, size_t features,
                            dro__scaling scaling, dro__scale *s)
{
    *s = (dro__scale){.dense = t->x != NULL, .limited = scaling == DRO__SCALE_ROBUST};
    if (scaling == DRO__SCALE_NONE || features == 0 || features > COLUMNS_MOST || t->n == 0)
        return DRO_OK;
    s->factor = dro__alloc(features, sizeof *s->factor);
    s->centre = s->dense ? dro__alloc(features, sizeof *s->centre) : NULL;
    if (!s->factor || (s->dense && !s->centre)) {
        dro__scale_free(s);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu columns", features);
    }
    s->features = features;
    dro_status status = (s->dense ? learn_dense : learn_sparse)(ctx, t, scaling, s);
    if (status != DRO_OK)
        dro__scale_free(s);
    return status;
}

void dro__scale_free(dro__scale *s)
{
    dro__free(s->centre);
    dro__free(s->factor);
    *s = (dro__scale){0};
}

/* ---- applying ---- */

static float scaled(const dro__scale *s, double value)
{
    return (float)(s->limited ? dro__limited(value) : value);
}

void dro__scale_row(const dro__scale *s, size_t count, const int32_t *columns, float *values)
{
    for (size_t k = 0; s->features && k < count; k++) {
        size_t column = (size_t)columns[k];
        double factor = (double)(column < s->features ? s->factor[column] : s->rest);
        values[k] = scaled(s, (double)values[k] * factor);
    }
}

void dro__scale_table(const dro__scale *s, dro__table *t)
{
    if (!s->features || t->n == 0)
        return;
    if (!t->x) {
        dro__scale_row(s, (size_t)t->starts[t->n], t->columns, t->values);
        return;
    }
    for (int64_t i = 0; i < t->n; i++) {
        float *row = t->x + (size_t)i * s->features;
        for (size_t k = 0; k < s->features; k++)
            row[k] = scaled(s, ((double)row[k] - (double)s->centre[k]) * (double)s->factor[k]);
    }
}
