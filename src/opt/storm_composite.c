/* The recursive estimator (storm.h) for  min f(E g_z(w)) + r(w),  g in R^p: Algorithm 1 as it stands,
 *     u <- g(w';z) + (1-a)(u - g(w;z)),   v <- J(w';z) + (1-a)(v - J(w;z)),   d = v^T f'(u).
 * u may be negative, so u and v themselves are kept: u in double, v as p vectors. */
#include "storm.h"

#include <string.h>

/* direction = sum_j slope[j] * v_j, a few rows per pass */
static void contract(dro_optimizer *o, dro__storm *s)
{
    size_t inner = o->composite.inner;
    for (size_t j = 0; j < inner;) {
        dro__fused f = {.n = o->dim, .outputs = 1, .out = {s->direction}, .prox_out = -1};
        if (j > 0) {
            f.in[f.inputs] = s->direction;
            f.coef[0][f.inputs++] = 1;
        }
        for (; j < inner && f.inputs < DRO__FUSED_IN; j++) {
            f.in[f.inputs] = s->d + j * o->dim;
            f.coef[0][f.inputs++] = s->slope[j];
        }
        o->ctx->backend->fused(o->ctx->pool, &f);
    }
}

static void next_u(const dro__storm *s, size_t inner, const double *g, double a, bool fresh)
{
    for (size_t j = 0; j < inner; j++)
        s->u_working[j] = fresh ? g[j] : g[j] + (1 - a) * (s->u[j] - s->g_waiting[j]);
}

/* Moves u, v and w; nothing can fail here. The new w goes to `to`. */
static void move(dro_optimizer *o, dro__storm *s, double a, bool fresh, float *to)
{
    const dro__settings *set = dro__settings_of(o);
    o->run.a = fresh ? 1 : a;
    dro__fused v = {.n = o->composite.inner * o->dim,
                    .inputs = 3,
                    .outputs = 1,
                    .prox_out = -1,
                    .norms = fresh ? 0 : 2,
                    .in = {s->g_new, s->g_old, s->d},
                    .out = {s->d}};
    v.coef[0][0] = 1;
    v.coef[0][1] = fresh ? 0 : -(1 - a);
    v.coef[0][2] = fresh ? 0 : 1 - a;
    v.norm_coef[0][0] = v.norm_coef[1][1] = 1;
    v.norm_coef[0][1] = v.norm_coef[1][2] = -1;
    o->ctx->backend->fused(o->ctx->pool, &v);
    contract(o, s);
    dro__fused w = {
        .n = o->dim, .inputs = 2, .outputs = 1, .in = {s->direction, o->w}, .out = {to}};
    w.coef[0][0] = -o->run.eta;
    w.coef[0][1] = 1 - o->run.eta * set->weight_decay;
    dro__fused_step(o, &w, 0, o->run.eta);
    dro__storm_observe(o, s, fresh, v.norm);
    double *u = s->u;
    s->u = s->u_working;
    s->u_working = u;
    s->have = true;
}

static void keep_waiting(dro__storm *s, size_t inner, const double *g)
{
    memcpy(s->g_waiting_working, g, inner * sizeof *g);
    double *old = s->g_waiting;
    s->g_waiting = s->g_waiting_working;
    s->g_waiting_working = old;
}

static void trade(float **a, float **b)
{
    float *c = *a;
    *a = *b;
    *b = c;
}

dro_status dro__composite_step(dro_optimizer *o, dro__storm *s, double a, size_t batch, size_t next)
{
    size_t inner = o->composite.inner;
    dro_batch parts[2];
    bool drawn;
    int count = 1;
    DRO_TRY(dro__storm_current(o, s, batch, &drawn, &parts[0]));
    bool fresh = !s->have || drawn;
    if (next) {
        dro_status status = dro__draw_next(o, next, &parts[1]);
        if (status == DRO_OK)
            count = 2;
        else if (status != DRO_ERR_END)
            return status;
    }
    float *jacobians[2] = {s->g_new, s->g_next};
    DRO_TRY(dro__evaluate(o, o->w, parts, count, s->g_values, jacobians));
    next_u(s, inner, s->g_values, a, fresh);
    DRO_TRY(dro__outer(o, s->u_working, &o->run.loss, s->slope));
    move(o, s, a, fresh, o->w);
    if (count == 2)
        keep_waiting(s, inner, s->g_values + inner);
    trade(&s->g_old, &s->g_next);
    dro__storm_wait(s, count == 2 ? &parts[1] : NULL);
    return DRO_OK;
}

dro_status dro__composite_step_two_point(dro_optimizer *o, dro__storm *s, double a, size_t batch)
{
    size_t inner = o->composite.inner;
    bool fresh = !s->have;
    dro_batch z;
    DRO_TRY(dro__draw_next(o, batch, &z));
    if (!fresh) {
        DRO_TRY(dro__evaluate(o, s->w_old, &z, 1, s->g_values, &s->g_old));
        keep_waiting(s, inner, s->g_values);
    }
    DRO_TRY(dro__evaluate(o, o->w, &z, 1, s->g_values, &s->g_new));
    next_u(s, inner, s->g_values, a, fresh);
    DRO_TRY(dro__outer(o, s->u_working, &o->run.loss, s->slope));
    move(o, s, a, fresh, s->w_old);
    trade(&o->w, &s->w_old);
    return DRO_OK;
}

dro_status dro__composite_step_big(dro_optimizer *o, dro__storm *s, size_t total, size_t next)
{
    size_t inner = o->composite.inner, size = inner * o->dim;
    dro_batch part;
    memset(s->u_working, 0, inner * sizeof *s->u_working);
    dro__fused zero = {.n = size, .outputs = 1, .out = {s->g_old}, .prox_out = -1};
    o->ctx->backend->fused(o->ctx->pool, &zero);
    size_t left = total;
    DRO_TRY(dro__big_size(o, &total));
    for (size_t chunk; (chunk = dro__big_next(o, &left));) {
        DRO_TRY(dro__draw_whole(o, chunk, &part));
        DRO_TRY(dro__evaluate(o, o->w, &part, 1, s->g_values, &s->g_new));
        double weight = (double)part.count / (double)total;
        for (size_t j = 0; j < inner; j++)
            s->u_working[j] += weight * s->g_values[j];
        dro__fused add = {.n = size,
                          .inputs = 2,
                          .outputs = 1,
                          .in = {s->g_old, s->g_new},
                          .out = {s->g_old},
                          .prox_out = -1};
        add.coef[0][0] = 1;
        add.coef[0][1] = weight;
        o->ctx->backend->fused(o->ctx->pool, &add);
    }
    o->sweeping = false;
    DRO_TRY(dro__outer(o, s->u_working, &o->run.loss, s->slope));
    dro_batch ahead;
    dro_status status = next ? dro__draw_next(o, next, &ahead) : DRO_OK;
    if (status == DRO_ERR_END)
        next = 0;
    else
        DRO_TRY(status);
    if (next)
        DRO_TRY(dro__evaluate(o, o->w, &ahead, 1, s->g_values, &s->g_next));
    trade(&s->g_new, &s->g_old);
    move(o, s, 1, true, o->w);
    if (next)
        keep_waiting(s, inner, s->g_values);
    trade(&s->g_old, &s->g_next);
    dro__storm_wait(s, next ? &ahead : NULL);
    return DRO_OK;
}
