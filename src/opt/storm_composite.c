/* The recursive estimator (storm.h) for min f(E g_z(w)) + r(w), g in R^p: Algorithm 1 as printed,
 *     u <- g(w';z) + (1-a)(u - g(w;z)),   v <- J(w';z) + (1-a)(v - J(w;z)),   d = v^T f'(u).
 * u may be negative, so u and v themselves are kept: u in double, v as p vectors. */
#include "storm.h"

#include <string.h>

dro_status dro__composite_create(dro_optimizer *o)
{
    size_t inner = o->composite.inner;
    dro__composite_state *s = o->extra = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for a compositional problem");
    o->k.n = inner * o->dim;
    DRO_TRY(dro__array(o, inner, sizeof(double), DRO__SAVED | DRO__UNDONE, &s->u));
    DRO_TRY(dro__array(o, inner, sizeof(double), DRO__SAVED | DRO__UNDONE, &s->waiting));
    DRO_TRY(dro__array(o, 2 * inner, sizeof(double), 0, &s->values));
    DRO_TRY(dro__array(o, inner, sizeof(double), 0, &s->slope));
    return dro__vector(o, o->dim, false, &s->direction);
}

/* A pass over vectors of `n` elements. */
static void combine_of(dro_optimizer *o, size_t n, const dro__combination *c)
{
    size_t usual = o->k.n;
    o->k.n = n;
    dro__combine(o, c);
    o->k.n = usual;
}

void dro__composite_contract(dro_optimizer *o, const double *slope, const float *rows,
                             float *direction)
{
    for (size_t j = 0; j < o->composite.inner;) {
        dro__combination c = {.out = direction, .plus = j > 0};
        int inputs = 0;
        if (j > 0)
            c.x[inputs++] = direction;
        for (; j < o->composite.inner && inputs < DRO__INPUTS; j++) {
            c.x[inputs] = rows + j * o->dim;
            c.c[inputs++] = slope[j];
        }
        combine_of(o, o->dim, &c);
    }
}

/* u from g of part 0, and the slope of f there. */
static dro_status next_u(dro_optimizer *o, dro__composite_state *s)
{
    DRO_TRY(dro__weigh(o, DRO__PHASE_COMPOSITE, NULL, 0));
    for (size_t j = 0; j < o->composite.inner; j++)
        s->u[j] = s->values[j] + (o->s.fresh ? 0 : o->s.keep * (s->u[j] - s->waiting[j]));
    return dro__outer(o, s->u, &o->s.loss, s->slope);
}

/* Moves v and w; nothing can fail here. */
static void move(dro_optimizer *o, dro__composite_state *s)
{
    dro__finish_step(o);
    dro__composite_contract(o, s->slope, o->k.v[DRO__D], s->direction);
    size_t usual = o->k.n;
    o->k.n = o->dim;
    dro__descend(o, s->direction, o->k.v[DRO__W]);
    o->k.n = usual;
}

dro_status dro__composite_step(dro_optimizer *o, const dro_batch *parts, int count, bool drawn)
{
    dro__composite_state *s = o->extra;
    dro__step *k = &o->k;
    size_t inner = o->composite.inner;
    float *jacobians[2] = {k->v[DRO__G], k->v[DRO__NEXT]};
    (void)drawn;
    DRO_TRY(dro__evaluate(o, k->v[DRO__W], parts, count, s->values, jacobians));
    DRO_TRY(next_u(o, s));
    move(o, s);
    if (count == 2) {
        memcpy(s->waiting, s->values + inner, inner * sizeof *s->waiting);
        dro__swap(&k->v[DRO__OLD], &k->v[DRO__NEXT]);
    }
    return DRO_OK;
}

dro_status dro__composite_step_two_point(dro_optimizer *o, size_t batch)
{
    dro__composite_state *s = o->extra;
    dro__step *k = &o->k;
    dro_batch z;
    DRO_TRY(dro__draw_next(o, batch, &z));
    o->ticket.drawn = !o->s.have;
    if (o->s.have) {
        DRO_TRY(dro__evaluate(o, o->w_old, &z, 1, s->values, &k->v[DRO__OLD]));
        memcpy(s->waiting, s->values, o->composite.inner * sizeof *s->waiting);
    }
    DRO_TRY(dro__evaluate(o, k->v[DRO__W], &z, 1, s->values, &k->v[DRO__G]));
    DRO_TRY(next_u(o, s));
    combine_of(o, o->dim, &(dro__combination){.out = o->w_old, .x = {k->v[DRO__W]}, .plus = true});
    move(o, s);
    return DRO_OK;
}

dro_status dro__composite_step_big(dro_optimizer *o, size_t total, size_t next)
{
    dro__composite_state *s = o->extra;
    dro__step *k = &o->k;
    size_t inner = o->composite.inner, left = total;
    dro_batch part, ahead;
    memset(s->u, 0, inner * sizeof *s->u);
    dro__combine(o, &(dro__combination){.out = k->v[DRO__NEXT]});
    DRO_TRY(dro__big_size(o, &total));
    for (size_t chunk; (chunk = dro__big_next(o, &left));) {
        DRO_TRY(dro__draw_whole(o, chunk, &part));
        DRO_TRY(dro__evaluate(o, k->v[DRO__W], &part, 1, s->values, &k->v[DRO__G]));
        double weight = (double)part.count / (double)total;
        for (size_t j = 0; j < inner; j++)
            s->u[j] += weight * s->values[j];
        dro__combine(o, &(dro__combination){.out = k->v[DRO__NEXT],
                                            .x = {k->v[DRO__NEXT], k->v[DRO__G]},
                                            .c = {0, weight},
                                            .plus = true});
    }
    o->sweeping = false;
    memcpy(s->values, s->u, inner * sizeof *s->u);
    o->ticket.drawn = 1;
    DRO_TRY(next_u(o, s));
    dro__swap(&k->v[DRO__G], &k->v[DRO__NEXT]);
    dro_status status = next ? dro__draw_next(o, next, &ahead) : DRO_OK;
    if (status == DRO_ERR_END)
        next = 0;
    else
        DRO_TRY(status);
    if (next)
        DRO_TRY(dro__evaluate(o, k->v[DRO__W], &ahead, 1, s->values, &k->v[DRO__NEXT]));
    move(o, s);
    if (next) {
        memcpy(s->waiting, s->values, inner * sizeof *s->waiting);
        dro__swap(&k->v[DRO__OLD], &k->v[DRO__NEXT]);
    }
    dro__storm_wait(o, next ? &ahead : NULL);
    return DRO_OK;
}
