/* Regularisers r(w). The elementwise ones are part of a move (backend/moves.h); here are those that
 * are not,
 *
 *   group    s sum_B |w_B|                x_B max(0, 1 - eta s / |x_B|)
 *   ball     |w| <= radius                x min(1, radius / |x|)
 *
 * and the values of all. */
#include "opt.h"

#include <math.h>

dro_status dro__reg_create(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    if (set->reg == DRO__REG_BOX && set->reg_low > set->reg_high)
        return dro__fail(o->ctx, DRO_ERR_RANGE, "%s: reg=box: reg_low %g is above reg_high %g",
                         o->cls->name, set->reg_low, set->reg_high);
    if (set->reg != DRO__REG_GROUP)
        return DRO_OK;
    const dro_problem *p = &o->problem;
    bool given = !o->is_composite && p->param_blocks;
    size_t size = (size_t)set->reg_block;
    o->block_count = given ? p->param_block_count : (o->dim + size - 1) / size;
    o->blocks = dro__alloc(o->block_count + 1, sizeof *o->blocks);
    if (!o->blocks)
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for %zu blocks", o->block_count);
    for (size_t k = 0; k <= o->block_count; k++) {
        size_t end = k * size < o->dim ? k * size : o->dim;
        o->blocks[k] = given ? p->param_blocks[k] : (int64_t)end;
        if (o->blocks[k] < (k ? o->blocks[k - 1] : 0) || o->blocks[k] > (int64_t)o->dim)
            return dro__fail(o->ctx, DRO_ERR_ARGUMENT,
                             "param_blocks[%zu] = %lld: offsets must increase from 0 to dim %zu", k,
                             (long long)o->blocks[k], o->dim);
    }
    return DRO_OK;
}

void dro__reg_blocks(dro_optimizer *o, float *w, double eta)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    const dro__backend *be = o->be;
    if (set->reg == DRO__REG_GROUP)
        be->block_shrink(o->ctx->pool, w, o->blocks, o->block_count, eta * set->reg_strength);
    if (set->reg != DRO__REG_BALL)
        return;
    /* A norm that is NaN, or could not be computed, refuses w. */
    double norm = sqrt(dro__norm2(o->be, o->ctx->pool, o->dim, w));
    if (norm <= set->reg_radius)
        return;
    dro__combination scale = {.out = w, .x = {w}};
    scale.c[0] = isfinite(norm) ? set->reg_radius / norm : NAN;
    dro__combine(o, &scale);
}

double dro__reg_value(const dro_optimizer *o, const float *of)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    if (set->reg == DRO__REG_NONE)
        return 0;
    enum { PART = 16384 }; /* from the backend in parts: no memory is needed */
    float w[PART];
    double l1 = 0, l2 = 0, groups = 0, norm = 0;
    size_t block = 0;
    for (size_t at = 0; at < o->dim; at += PART) {
        size_t count = o->dim - at < PART ? o->dim - at : PART;
        if (o->be->copy_out(w, of + at, count * sizeof *w))
            return NAN;
        for (size_t i = 0; i < count; i++) {
            double square = (double)w[i] * (double)w[i];
            double share = dro__reg_share(o, at + i);
            l1 += share * fabs((double)w[i]);
            l2 += share * square;
            for (; block < o->block_count && (int64_t)(at + i) >= o->blocks[block + 1]; norm = 0) {
                groups += sqrt(norm);
                block++;
            }
            if (block < o->block_count && (int64_t)(at + i) >= o->blocks[block])
                norm += square;
        }
    }
    groups += sqrt(norm);
    switch (set->reg) {
    case DRO__REG_L2:
        return set->reg_strength * l2 / 2;
    case DRO__REG_L1:
        return set->reg_strength * l1;
    case DRO__REG_ELASTIC:
        return set->reg_strength * (set->reg_ratio * l1 + (1 - set->reg_ratio) * l2 / 2);
    case DRO__REG_GROUP:
        return o->blocks ? set->reg_strength * groups : NAN; /* start() makes the blocks */
    default:
        return 0; /* box and ball are 0 where w can be */
    }
}
