/* The problems of `dro bench rates` (rates.h). */
#include "rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1000, FEATURES = 10, CHUNK = 4096 };

const char *const rates_names[RATES_KINDS] = {"pl", "nonconvex", "data"};

/* ---- rows ---- */

/* A small generator: the data must not depend on the library's. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 33;
    x *= 0xff51afd7ed558ccdu;
    return (double)((x ^ x >> 29) >> 11) * 0x1p-53;
}

static void generate(float *x, float *y)
{
    uint64_t state = 20210617;
    double truth[FEATURES], other[FEATURES];
    for (int j = 0; j < FEATURES; j++) {
        truth[j] = 2 * uniform(&state) - 1;
        other[j] = 2 * uniform(&state) - 1;
    }
    for (int i = 0; i < ROWS; i++) {
        const double *rule = i % 10 ? truth : other;
        double target = uniform(&state) - 0.5;
        for (int j = 0; j < FEATURES; j++) {
            double value = 2 * uniform(&state) - 1;
            x[i * FEATURES + j] = (float)value;
            target += rule[j] * value;
        }
        y[i] = (float)target;
    }
}

/* The rows as a run sees them: scaled. */
static dro_status read_table(dro_context *ctx, const char *spec, rates_problem *p)
{
    char scaled[4096];
    dro_examples e;
    dro_data_info info;
    snprintf(scaled, sizeof scaled, "%s,scale=robust", spec);
    dro_status status = dro_data_open(ctx, scaled, &p->data);
    status = status ? status : dro_data_info_get(p->data, &info);
    status = status ? status : dro_data_examples(p->data, DRO_TRAIN, &e);
    if (status)
        return status;
    if (info.classes != 2 || (!e.x && !e.starts))
        return DRO_ERR_UNSUPPORTED;
    p->y = malloc((size_t)e.count * sizeof *p->y);
    if (!p->y)
        return DRO_ERR_MEMORY;
    for (int64_t i = 0; i < e.count; i++)
        p->y[i] = e.labels[i] ? 1 : -1;
    p->rows = dro_linear_data_default();
    p->rows.n = e.count;
    p->rows.features = info.features;
    p->rows.x = e.x;
    p->rows.starts = e.starts;
    p->rows.columns = e.columns;
    p->rows.values = e.values;
    p->rows.y = p->y;
    p->rows.loss = "logistic";
    return DRO_OK;
}

dro_status rates_create(dro_context *ctx, rates_kind kind, const char *spec, rates_problem *p)
{
    *p = (rates_problem){.kind = kind, .spec = kind == RATES_DATA ? spec : "arrays:rates"};
    if (kind == RATES_DATA)
        return read_table(ctx, spec, p);
    p->x = malloc(sizeof *p->x * ROWS * FEATURES);
    p->y = malloc(sizeof *p->y * ROWS);
    if (!p->x || !p->y)
        return DRO_ERR_MEMORY;
    generate(p->x, p->y);
    p->rows = dro_linear_data_default();
    p->rows.n = ROWS;
    p->rows.features = FEATURES;
    p->rows.x = p->x;
    p->rows.y = p->y;
    p->rows.loss = "squared";
    return DRO_OK;
}

void rates_destroy(rates_problem *p)
{
    free(p->x);
    free(p->y);
    dro_data_close(p->data);
    *p = (rates_problem){0};
}

dro_status rates_lend(const rates_problem *p, dro_context *ctx)
{
    dro_arrays arrays = {.size = sizeof arrays,
                         .count = p->rows.n,
                         .x = p->x,
                         .features = p->rows.features,
                         .targets = p->y};
    return p->kind == RATES_DATA ? DRO_OK : dro_arrays_lend(ctx, "rates", &arrays, NULL);
}

/* ---- the non-convex problem as a dro_problem ---- */

static dro_status forward(void *user, const float *w, const dro_batch *parts, int count,
                          float *losses)
{
    const rates_view *view = user;
    double *slope = view->slopes;
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            const float *x = view->from->x + parts[k].ids[i] * FEATURES;
            double r = -(double)view->from->y[parts[k].ids[i]];
            for (int j = 0; j < FEATURES; j++)
                r += (double)x[j] * (double)w[j];
            double q = 1 + r * r;
            *slope++ = 2 * r / (q * q);
            *losses++ = (float)(r * r / q);
        }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int count,
                           const float *coef, float *const *grads)
{
    const rates_view *view = user;
    const double *slope = view->slopes;
    (void)w;
    for (int k = 0; k < count; k++) {
        double sum[FEATURES] = {0};
        for (size_t i = 0; i < parts[k].count; i++) {
            const float *x = view->from->x + parts[k].ids[i] * FEATURES;
            double c = (double)*coef++ * *slope++;
            for (int j = 0; j < FEATURES; j++)
                sum[j] += c * (double)x[j];
        }
        for (int j = 0; j < FEATURES; j++)
            grads[k][j] = (float)sum[j];
    }
    return DRO_OK;
}

/* ---- views ---- */

dro_status rates_open(const rates_problem *p, rates_view *v)
{
    size_t n = (size_t)p->rows.n;
    *v = (rates_view){.from = p};
    dro_status status = dro_context_create("cpu", 1, &v->ctx);
    if (status == DRO_ERR_NAME)
        status = dro_context_create("ref", 1, &v->ctx);
    v->losses = malloc(n * sizeof *v->losses);
    v->weights = malloc(n * sizeof *v->weights);
    v->ids = malloc(n * sizeof *v->ids);
    v->slopes = malloc(2 * CHUNK * sizeof *v->slopes);
    v->some = malloc(CHUNK * sizeof *v->some);
    v->w = calloc(p->rows.features, sizeof *v->w);
    if (!v->losses || !v->weights || !v->ids || !v->slopes || !v->some || !v->w)
        return DRO_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        v->ids[i] = (int64_t)i;
    if (p->kind == RATES_NONCONVEX) {
        v->problem = (dro_problem){.size = sizeof(dro_problem),
                                   .user = v,
                                   .dim = p->rows.features,
                                   .n = p->rows.n,
                                   .forward = forward,
                                   .backward = backward,
                                   .max_batch = 2 * CHUNK};
        return status;
    }
    status = status ? status : dro_linear_create(v->ctx, &p->rows, &v->model);
    return status ? status : dro_linear_problem(v->model, &v->problem);
}

void rates_close(rates_view *v)
{
    dro_linear_destroy(v->model);
    dro_context_destroy(v->ctx);
    free(v->losses);
    free(v->weights);
    free(v->ids);
    free(v->slopes);
    free(v->some);
    free(v->w);
    *v = (rates_view){0};
}

double rates_value(rates_view *v, const float *w, const char *objective)
{
    size_t n = (size_t)v->from->rows.n;
    double value = NAN;
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t count = n - at < CHUNK ? n - at : CHUNK;
        dro_batch all = {.position = UINT64_MAX, .count = count, .ids = v->ids + at};
        if (v->problem.forward(v->problem.user, w, &all, 1, v->some) != DRO_OK)
            return 1e30;
        for (size_t i = 0; i < count; i++)
            v->losses[at + i] = (double)v->some[i];
    }
    if (dro_objective_value(v->ctx, objective, v->losses, n, v->weights, &value) != DRO_OK)
        return 1e30;
    return isfinite(value) ? value : 1e30;
}

/* F at the end of a run of one optimiser. */
static double end_of(rates_view *v, const char *optimizer, const char *objective,
                     const char *const settings[][2])
{
    dro_optimizer *opt = NULL;
    double value = 1e30;
    dro_status status = dro_optimizer_create(v->ctx, optimizer, &v->problem, &opt);
    status = status ? status : dro_optimizer_set(opt, "objective", objective);
    for (int k = 0; !status && settings[k][0]; k++)
        status = dro_optimizer_set(opt, settings[k][0], settings[k][1]);
    status = status ? status : dro_optimizer_start(opt, NULL);
    while (status == DRO_OK)
        status = dro_optimizer_step(opt);
    if (status == DRO_ERR_END && dro_optimizer_weights(opt, v->w) == DRO_OK)
        value = rates_value(v, v->w, objective);
    dro_optimizer_destroy(opt);
    return value;
}

double rates_minimum(rates_view *v, const char *objective)
{
    static const char *const exact[][2] = {{"steps", "1000"}, {NULL}};
    static const char *const etas[] = {"0.003", "0.01", "0.03", "0.1"};
    double least = 1e30;
    if (v->model)
        return end_of(v, "lbfgs", objective, exact);
    for (int k = 0; k < 4; k++) {
        const char *const slow[][2] = {{"batch", "500"},        {"eta", etas[k]},
                                       {"steps", "6000"},       {"eta_schedule", "cosine"},
                                       {"precondition", "rms"}, {NULL}};
        least = fmin(least, end_of(v, "recover", objective, slow));
        least = fmin(least, end_of(v, "scent", objective, slow));
    }
    return least;
}
