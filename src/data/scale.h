/* The columns of tables, scaled. What is learned comes from training's rows only.
 *
 * A column is centred on its mean and divided by its standard deviation, both of values cut at the
 * column's fences: the 5 % and 95 % quantiles q of its values (of those that differ from the most
 * common one, where that is nearly all), moved outwards by their distance. A normal column has
 * nothing beyond them; in a column with a heavy tail they keep a few values from setting the scale
 * of all others. What is then more than DRO__LIMIT from 0 is compressed to less than twice that
 * (dro__limited): order is kept, and no value can dominate a linear model. Where a column of csv
 * has many values beyond its fences, a second feature grows with their logarithm (dro__beyond): the
 * model learns what a long tail says. Where the target is real-valued and the column has any, one
 * more is what the limit took off (dro__excess): the model can be linear in all of the column. A
 * constant column becomes 0.
 *
 * Sparse columns are divided and not centred, so zeros stay zeros: by the root of the mean square
 * over all rows, a value of the usual size counted once more. A rare feature is thus scaled up. */
#ifndef DRO_DATA_SCALE_H
#define DRO_DATA_SCALE_H

#include "data.h"

#define DRO__LIMIT 3.0

enum { DRO__SAMPLE_MOST = 4096 }; /* values of a column that its fences come from */

/* A sample of rows: every step-th, and how many those are at most. Fewer where columns are many. */
int64_t dro__sample_step(int64_t rows, size_t columns);
size_t dro__sample_most(int64_t rows, size_t columns);

/* x up to the limit L, beyond it L (2 - L/|x|) with the sign of x: smooth, rising, below 2 L. */
double dro__limited(double x);
/* log(|x| / L) with the sign of x beyond the limit L, 0 up to it: how far beyond x is. */
double dro__beyond(double x);
/* x - dro__limited(x): 0 up to the limit, and with the limited x as linear as x. */
double dro__excess(double x);

/* The range beyond which values are outliers; sorts the values. Without any, or if all are alike:
 * everything. */
void dro__fences(double *values, size_t count, double *low, double *high);

/* Count, mean and sum of squared deviations (Welford) of values, and the range that they have. */
typedef struct dro__column_spread {
    int64_t count;
    double mean, squares, least, most;
} dro__column_spread;
void dro__spread_add(dro__column_spread *spread, double value);
/* 1 / standard deviation; 0 for a column that is constant up to rounding. */
double dro__spread_scale(const dro__column_spread *spread);

typedef enum dro__scaling { DRO__SCALE_ROBUST, DRO__SCALE_STANDARD, DRO__SCALE_NONE } dro__scaling;
/* The option scale=; robust if it is not given. */
dro_status dro__scaling_read(const dro_data *data, dro__scaling *scaling);

/* What is done to the columns of rows without an encoding of their own. */
typedef struct dro__scale {
    size_t features; /* 0: nothing */
    bool dense, limited;
    float *centre, *factor; /* (features); centre is NULL for sparse rows */
    float rest;             /* the factor of a sparse column beyond */
} dro__scale;

/* From all rows of a table; dense: x, otherwise starts, columns and values. */
dro_status dro__scale_learn(dro_context *ctx, const dro__table *table, size_t features,
                            dro__scaling scaling, dro__scale *scale);
void dro__scale_row(const dro__scale *scale, size_t count, const int32_t *columns, float *values);
/* All rows of a table, in place. */
void dro__scale_table(const dro__scale *scale, dro__table *table);
void dro__scale_free(dro__scale *scale);

/* From a line that is kept with a model, "scale dense|sparse limited|plain FEATURES ...". */
dro_status dro__scale_read(dro_context *ctx, const char *text, dro__scale *scale);

/* After a format's fit(): scales rows that are for training, or for a model that keeps their scale,
 * and adds the constant feature that the linear model on sparse rows has as its bias. Extends the
 * data's encoding. */
dro_status dro__rows_prepare(dro_data *data);
/* The general part of an encoding: the lines after the format's own. */
const char *dro__rows_kept(const char *encoding);
/* A copy of the lines before those, which are the format's own; NULL: no memory. */
char *dro__format_kept(const char *encoding);
/* The mean and standard deviation of a table's targets; of targets that are all alike 0 and 1. */
void dro__unit_learn(const dro__table *table, dro__unit *unit);
float dro__in_unit(const dro__unit *unit, float value);
/* The unit of the targets among those lines; 0 and 1 without. */
dro_status dro__unit_read(dro_context *ctx, const char *kept, dro__unit *unit);
/* The column of the constant feature among those lines, 0: none. */
size_t dro__kept_bias(const char *kept);
/* Adds those lines to the data's encoding; bias: the column of the constant feature, 0: none. */
dro_status dro__rows_note(dro_data *data, const dro__scale *scale, size_t bias);

#endif
