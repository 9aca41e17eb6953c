/* Linear models over rows in memory, dense or sparse, as a dro_problem: the fast path for tables.
 *
 *     dro_linear_data data = dro_linear_data_default();
 *     data.n = n, data.features = d, data.x = rows, data.y = labels;
 *     dro_linear_create(ctx, &data, &model);
 *     dro_linear_problem(model, &problem);            // pass it to dro_optimizer_create()
 *
 * loss "logistic": log(1 + exp(-y * <x, w>)), y in {-1, +1};  "squared": (<x, w> - y)^2 / 2.
 * Stable. */
#ifndef DRO_LINEAR_H
#define DRO_LINEAR_H

#include <dro/context.h>
#include <dro/problem.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_linear dro_linear;

typedef struct dro_linear_data {
    size_t size;           /* sizeof(dro_linear_data); dro_linear_data_default() sets it */
    int64_t n;             /* rows */
    size_t features;       /* columns = weights */
    const float *x;        /* dense: (n, features) by rows */
    const int64_t *starts; /* sparse instead of x: (n + 1) offsets into columns and values */
    const int32_t *columns;
    const float *values;
    const float *y;        /* (n) */
    const int32_t *groups; /* (n) or NULL: the group of each row, for tilt=group */
    int32_t group_count;
    const char *loss; /* "logistic" or "squared" */
} dro_linear_data;

DRO_API dro_linear_data dro_linear_data_default(void);

/* The arrays are borrowed until destroy. tilt=class works for the logistic loss: class 1 is y >
 * 0. */
DRO_API dro_status dro_linear_create(dro_context *ctx, const dro_linear_data *data,
                                     dro_linear **model);
DRO_API void dro_linear_destroy(dro_linear *model); /* NULL is fine */
/* *problem is valid until the model is destroyed. */
DRO_API dro_status dro_linear_problem(dro_linear *model, dro_problem *problem);
/* lambda * log(mean exp(loss/lambda)) over all rows, in double; lambda = INFINITY: the mean
 * loss. */
DRO_API dro_status dro_linear_objective(dro_linear *model, const float *w, double lambda,
                                        double *value);

#ifdef __cplusplus
}
#endif
#endif
