/* Linear models over rows in memory as a problem (dro/linear.h). Everything heavy is the
 * backend's. */
#include "full_rows.h"

#include <dro/linear.h>
#include <math.h>
#include <string.h>

enum { OBJECTIVE_BATCH = 4096 };

struct dro_linear {
    dro_context *ctx;
    dro__row_matrix rows;
    dro_linear_data data;
    dro__loss_kind loss;
    double share[2]; /* of the two classes */
    size_t capacity; /* examples that the buffers below hold */
    float *margins, *y, *slopes, *scaled;
    float *losses; /* for dro_linear_objective */
    int64_t *ids;
    int64_t rows_in_order[OBJECTIVE_BATCH];
    dro__full_rows full;
};

dro_linear_data dro_linear_data_default(void)
{
    return (dro_linear_data){.size = sizeof(dro_linear_data), .loss = "logistic"};
}

static dro_status check(dro_context *ctx, const dro_linear_data *data, dro__loss_kind *loss)
{
    if (data->n <= 0 || data->features == 0 || !data->y)
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "a linear model needs n > 0 rows, features and y");
    if (!data->x && !(data->starts && data->columns && data->values))
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "a linear model needs x, or starts, columns and values");
    if (data->loss && strcmp(data->loss, "logistic") == 0)
        *loss = DRO__LOSS_LOGISTIC;
    else if (data->loss && strcmp(data->loss, "squared") == 0)
        *loss = DRO__LOSS_SQUARED;
    else
        return dro__fail(ctx, DRO_ERR_NAME, "loss '%.40s': expected logistic or squared",
                         data->loss ? data->loss : "(null)");
    for (int64_t i = 0; *loss == DRO__LOSS_LOGISTIC && i < data->n; i++)
        if (data->y[i] != 1 && data->y[i] != -1)
            return dro__fail(ctx, DRO_ERR_RANGE, "y[%lld] is %g: the logistic loss needs -1 or 1",
                             (long long)i, (double)data->y[i]);
    for (int64_t i = 0; !data->x && i < data->n; i++) {
        if (data->starts[i] < 0 || data->starts[i + 1] < data->starts[i])
            return dro__fail(ctx, DRO_ERR_RANGE, "starts[%lld] is below the one before",
                             (long long)i + 1);
        for (int64_t k = data->starts[i]; k < data->starts[i + 1]; k++)
            if (data->columns[k] < 0 || (size_t)data->columns[k] >= data->features)
                return dro__fail(ctx, DRO_ERR_RANGE, "row %lld has column %d: expected 0 to %zu",
                                 (long long)i, data->columns[k], data->features - 1);
    }
    return DRO_OK;
}

dro_status dro_linear_create(dro_context *ctx, const dro_linear_data *given, dro_linear **model)
{
    if (!ctx || !given || !model)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *model = NULL;
    dro_linear_data own, *data = &own;
    DRO_TRY(dro__take_struct(ctx, "dro_linear_data", given, &own, sizeof own));
    dro__loss_kind loss = DRO__LOSS_LOGISTIC;
    DRO_TRY(check(ctx, data, &loss));
    dro_linear *m = dro__alloc(1, sizeof *m);
    if (!m)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a linear model");
    m->ctx = ctx;
    m->data = *data;
    m->loss = loss;
    m->rows = (dro__row_matrix){.features = data->features,
                                .x = data->x,
                                .starts = data->starts,
                                .columns = data->columns,
                                .values = data->values};
    int64_t positive = 0;
    for (int64_t i = 0; i < data->n; i++)
        positive += data->y[i] > 0;
    m->share[1] = (double)positive / (double)data->n;
    m->share[0] = 1 - m->share[1];
    dro__net_loss kind = loss == DRO__LOSS_SQUARED ? DRO__NET_SQUARED : DRO__NET_LOGISTIC;
    m->full = (dro__full_rows){.ctx = ctx,
                               .rows = m->rows,
                               .n = data->n,
                               .all = {.targets = data->y},
                               .loss = {.loss = kind},
                               .outputs = 1,
                               .bias = -1,
                               .dim = data->features};
    dro__full_rows_open(&m->full);
    *model = m;
    return DRO_OK;
}

static void free_buffers(dro_linear *m)
{
    dro__free(m->margins);
    dro__free(m->y);
    dro__free(m->slopes);
    dro__free(m->scaled);
    dro__free(m->losses);
    dro__free(m->ids);
}

void dro_linear_destroy(dro_linear *m)
{
    if (!m)
        return;
    free_buffers(m);
    dro__full_rows_close(&m->full);
    dro__free(m);
}

/* Buffers grow with the largest batch so far: in the first steps, then never. */
static dro_status reserve(dro_linear *m, size_t count)
{
    if (count <= m->capacity)
        return DRO_OK;
    free_buffers(m);
    m->capacity = 0;
    m->margins = dro__alloc(count, sizeof(float));
    m->y = dro__alloc(count, sizeof(float));
    m->slopes = dro__alloc(count, sizeof(float));
    m->scaled = dro__alloc(count, sizeof(float));
    m->losses = dro__alloc(count, sizeof(float));
    m->ids = dro__alloc(count, sizeof(int64_t));
    if (!m->margins || !m->y || !m->slopes || !m->scaled || !m->losses || !m->ids)
        return dro__fail(m->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", count);
    m->capacity = count;
    return DRO_OK;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro_linear *m = user;
    const dro__backend *be = m->ctx->backend;
    size_t total = 0, at = 0;
    for (int k = 0; k < part_count; k++)
        total += parts[k].count;
    DRO_TRY(reserve(m, total));
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++, at++) {
            m->ids[at] = parts[k].ids[i];
            m->y[at] = m->data.y[m->ids[at]];
        }
    be->rows_dot(m->ctx->pool, &m->rows, m->ids, total, w, m->margins);
    be->loss(m->loss, total, m->margins, m->y, losses, m->slopes);
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    dro_linear *m = user;
    size_t total = parts[0].count + (part_count > 1 ? parts[1].count : 0);
    (void)w;
    for (size_t i = 0; i < total; i++)
        m->scaled[i] = coef[i] * m->slopes[i];
    m->ctx->backend->rows_sum(m->ctx->pool, &m->rows, parts, part_count, m->scaled, grads);
    return DRO_OK;
}

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    const dro_linear *m = user;
    for (size_t i = 0; classes && i < count; i++)
        classes[i] = m->data.y[ids[i]] > 0;
    for (size_t i = 0; groups && m->data.groups && i < count; i++)
        groups[i] = m->data.groups[ids[i]];
    return DRO_OK;
}

dro_status dro_linear_problem(dro_linear *m, dro_problem *problem)
{
    if (!m || !problem)
        return DRO_ERR_ARGUMENT;
    dro__forget(m->ctx);
    bool two_classes = m->loss == DRO__LOSS_LOGISTIC;
    *problem = (dro_problem){
        .size = sizeof *problem,
        .user = m,
        .dim = m->data.features,
        .n = m->data.n,
        .forward = forward,
        .backward = backward,
        .labels = labels,
        .classes = two_classes ? 2 : 0,
        .class_share = two_classes ? m->share : NULL,
        .groups = m->data.groups ? m->data.group_count : 0,
        .memory = DRO_MEMORY_BACKEND,
        .library = &m->full.able,
    };
    return DRO_OK;
}

dro_status dro_linear_objective(dro_linear *m, const float *w, double lambda, double *value)
{
    if (!m || !w || !value)
        return DRO_ERR_ARGUMENT;
    dro__forget(m->ctx);
    if (!(lambda > 0))
        return dro__fail(m->ctx, DRO_ERR_RANGE, "lambda is %g: expected more than 0", lambda);
    DRO_TRY(reserve(m, OBJECTIVE_BATCH));
    dro__tilted tilted = {0};
    double mean = 0;
    for (int64_t at = 0; at < m->data.n; at += OBJECTIVE_BATCH) {
        int64_t left = m->data.n - at;
        dro_batch batch = {.count = (size_t)(left < OBJECTIVE_BATCH ? left : OBJECTIVE_BATCH),
                           .ids = m->rows_in_order};
        for (size_t i = 0; i < batch.count; i++)
            m->rows_in_order[i] = at + (int64_t)i;
        DRO_TRY(forward(m, w, &batch, 1, m->losses));
        for (size_t i = 0; i < batch.count; i++) {
            mean += (double)m->losses[i];
            dro__tilted_add(&tilted, lambda, (double)m->losses[i], 1);
        }
    }
    double result = isinf(lambda) ? mean / (double)m->data.n : dro__tilted_mean(&tilted, lambda);
    if (!isfinite(result))
        return dro__fail(m->ctx, DRO_ERR_NUMBER,
                         "the objective is %g: w or the rows are not finite", result);
    *value = result;
    return DRO_OK;
}
