/* A step as a list of phases (backend/step.h), driven by the host. */
#include "opt.h"

#include <math.h>
#include <string.h>

dro_status dro__weigh(dro_optimizer *o, dro__phase phase, const dro_batch *parts, int count)
{
    dro__step *k = &o->k;
    size_t at = 0;
    for (int p = 0; p < 2; p++) {
        const int32_t *labels = NULL;
        k->counts[p] = p < count ? (int)parts[p].count : 0;
        if (k->counts[p])
            DRO_TRY(dro__tilt_labels(o, &parts[p], &labels));
        if (labels)
            memcpy(o->group_of + at, labels, parts[p].count * sizeof *labels);
        at += (size_t)k->counts[p];
    }
    k->group_of = o->group_of;
    o->be->weigh(k, phase);
    return DRO_OK;
}

void dro__combine(dro_optimizer *o, const dro__combination *c)
{
    dro__step *k = &o->k;
    double sums[DRO__SUMS];
    for (int j = 0; j < DRO__INPUTS; j++) {
        k->v[DRO__X + j] = (float *)c->x[j];
        o->ticket.c[j] = c->c[j];
    }
    k->v[DRO__OUT] = c->out;
    o->ticket.plus = c->plus;
    o->ticket.prox = c->prox;
    o->ticket.prox_eta = c->eta;
    o->be->move(o->ctx->pool, k, DRO__MOVE_combine, sums);
    if (c->prox)
        dro__reg_blocks(o, c->out, c->eta);
}

void dro__descend(dro_optimizer *o, const float *direction, float *to)
{
    double eta = o->s.eta;
    dro__combination c = {.out = to,
                          .x = {o->k.v[DRO__W], direction},
                          .c = {-eta * dro__settings_of(o)->weight_decay, -eta},
                          .eta = eta,
                          .plus = true,
                          .prox = true};
    dro__combine(o, &c);
}

void dro__swap(float **a, float **b)
{
    float *c = *a;
    *a = *b;
    *b = c;
}

/* The step as its moves see it: all of the vectors, or the part that the second stage moves. */
static dro__step moved(const dro_optimizer *o)
{
    dro__step k = o->k;
    if (!o->ticket.second)
        return k;
    k.n = o->second.count;
    for (int r = 0; r < DRO__VECTOR_ROLES; r++)
        k.v[r] = k.v[r] ? k.v[r] + o->second.first : NULL;
    return k;
}

/* The end of a step, where nothing can fail: vectors move, scalars settle. */
void dro__finish_step(dro_optimizer *o)
{
    dro__step all = moved(o), *k = &all;
    double sums[DRO__SUMS];
    bool guarded = k->plan.move == DRO__MOVE_storm && k->plan.guard > 0;
    if (guarded && o->s.fresh && o->s.level != DRO__TILT_NONE)
        o->s.square = dro__norm2(o->be, o->ctx->pool, k->n, k->v[DRO__G]);
    o->be->move(o->ctx->pool, k, k->plan.move, sums);
    o->be->settle(k, sums);
    if (k->plan.then)
        o->be->move(o->ctx->pool, k, k->plan.then, sums);
    if (!o->ticket.second)
        dro__reg_blocks(o, k->v[DRO__W], o->s.eta * k->plan.prox_stretch);
}

void dro__average(dro_optimizer *o)
{
    dro__step k = o->k;
    double sums[DRO__SUMS];
    if (!k.v[DRO__AVERAGE])
        return;
    o->be->move(o->ctx->pool, &k, DRO__MOVE_average, sums);
    k.n = o->statistics_count;
    k.v[DRO__W] = o->statistics;
    k.v[DRO__AVERAGE] += o->dim;
    if (k.n)
        o->be->move(o->ctx->pool, &k, DRO__MOVE_average, sums);
}

/* sam: the point at which the step takes its gradients. */
static dro_status ascend(dro_optimizer *o, const dro_batch *batch)
{
    dro__step *k = &o->k;
    double sums[DRO__SUMS];
    DRO_TRY(dro__forward(o, k->v[DRO__W], batch, 1, k->losses));
    DRO_TRY(dro__weigh(o, DRO__PHASE_ASCENT, batch, 1));
    DRO_TRY(dro__backward(o, k->v[DRO__W], batch, 1, k->coef, &k->v[DRO__G]));
    double square = dro__norm2(o->be, o->ctx->pool, k->n, k->v[DRO__G]);
    o->s.ascent = square > 0 ? 1 / sqrt(square) : 0;
    o->be->move(o->ctx->pool, k, DRO__MOVE_ascend, sums);
    return DRO_OK;
}

dro_status dro__take_step(dro_optimizer *o, const dro_batch *parts, int count)
{
    dro__step *k = &o->k;
    const float *at = k->v[k->plan.sam > 0 ? DRO__Z : DRO__W];
    if (o->async)
        return dro__async_step(o, parts, count);
    if (k->plan.sam > 0)
        DRO_TRY(ascend(o, parts));
    if (o->ticket.ahead) {
        DRO_TRY(dro__forward(o, k->v[DRO__Z], parts, 1, k->losses));
        DRO_TRY(dro__weigh(o, k->plan.ahead, parts, 1));
    }
    DRO_TRY(dro__forward(o, at, parts, count, k->losses));
    DRO_TRY(dro__weigh(o, k->plan.weigh, parts, count));
    float *grads[2] = {k->v[DRO__G], k->v[DRO__NEXT]};
    DRO_TRY(dro__backward(o, at, parts, count, k->coef, grads));
    dro__finish_step(o);
    if (count == 2)
        dro__swap(&k->v[DRO__OLD], &k->v[DRO__NEXT]);
    return DRO_OK;
}

dro_status dro__plain_step(dro_optimizer *o)
{
    dro_batch batch;
    DRO_TRY(dro__draw_next(o, (size_t)dro__settings_of(o)->batch, &batch));
    return dro__take_step(o, &batch, 1);
}

dro_status dro__scale_create(dro_optimizer *o, dro__move_kind moments)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    dro__plan *p = &o->k.plan;
    bool adam = set->precondition == DRO__PRECONDITION_ADAM;
    p->momentum = adam && set->momentum == 0 ? 0.9 : set->momentum;
    p->beta2 = set->beta2;
    p->epsilon = set->epsilon;
    p->longest = set->precondition ? set->longest : 0;
    if (!set->precondition && p->momentum == 0)
        return DRO_OK;
    p->move = moments;
    p->then = DRO__MOVE_scaled;
    if (p->momentum > 0)
        DRO_TRY(dro__vector(o, o->dim, true, &o->k.v[DRO__M]));
    return set->precondition ? dro__vector(o, o->dim, true, &o->k.v[DRO__SECOND]) : DRO_OK;
}

dro_status dro__tilted_start(dro_optimizer *o, bool scaled)
{
    dro__step *k = &o->k;
    DRO_TRY(dro__plain_start(o, DRO__PHASE_BEFORE, DRO__MOVE_moments));
    k->plan.then = DRO__MOVE_scaled;
    if (k->plan.momentum > 0)
        DRO_TRY(dro__vector(o, o->dim, true, &k->v[DRO__M]));
    return scaled ? dro__vector(o, o->dim, true, &k->v[DRO__SECOND]) : DRO_OK;
}

dro_status dro__plain_start(dro_optimizer *o, dro__phase weigh, dro__move_kind move)
{
    size_t batch = (size_t)dro__settings_of(o)->batch;
    o->k.plan.weigh = weigh;
    o->k.plan.move = move;
    DRO_TRY(dro__slots_create(o, batch));
    if (o->cls->robust)
        DRO_TRY(dro__tilt_create(o));
    DRO_TRY(dro__losses_create(o, batch));
    return dro__vector(o, o->dim, false, &o->k.v[DRO__G]);
}
