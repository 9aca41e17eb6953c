/* Stand-ins for step.cu: the phases and moves are the reference's. */
#include "step_kernels.h"
#include "stand_ins.h"

#include "backend.h"

#include <math.h>
#include <signal.h>
#include <string.h>

static int64_t spoilt = -1, last = -1;

void stand_ins_spoil(int64_t step)
{
    spoilt = step;
}

void stand_ins_die(int64_t step)
{
    last = step;
}

void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *g)
{
    (void)s;
    size_t slot = *g->turn % DRO__TICKETS, from = slot * g->capacity;
    size_t count = (size_t)(g->k.counts[0] + g->k.counts[1]);
    memcpy(g->cuts, g->ticket_cuts + from, count * sizeof *g->cuts);
    memcpy(g->labels, g->ticket_labels + from, count * sizeof *g->labels);
    memcpy(g->group_of, g->ticket_groups + from, count * sizeof *g->group_of);
    memcpy(g->keys, g->ticket_keys + from, count * sizeof *g->keys);
    memcpy(g->mixes, g->ticket_mixes + from, count * sizeof *g->mixes);
    *g->ticket = g->tickets[slot];
}

static size_t whole_index(const dro__gpu_step *g, int i)
{
    int part = i >= g->own_counts[0];
    return (size_t)(g->own_first[part] + i + part * (g->k.counts[0] - g->own_counts[0]));
}

static void spoil(const dro__gpu_step *g, float *losses)
{
    if ((int64_t)*g->turn != spoilt)
        return;
    losses[0] = NAN;
    spoilt = -1;
}

void dro__gpu_step_place(cudaStream_t s, const dro__gpu_step *g)
{
    (void)s;
    if ((int64_t)*g->turn == last)
        raise(SIGKILL);
    spoil(g, g->own_losses);
    memset(g->k.losses, 0, (size_t)(g->k.counts[0] + g->k.counts[1]) * sizeof(float));
    for (int i = 0; i < g->own_counts[0] + g->own_counts[1]; i++)
        g->k.losses[whole_index(g, i)] = g->own_losses[i];
}

static void copy_state(const dro__gpu_step *g, bool back)
{
    size_t groups = (size_t)g->k.plan.group_capacity * sizeof *g->k.groups;
    size_t losses = g->k.plan.batch * sizeof(float);
    memcpy(back ? g->k.groups : g->groups_before, back ? g->groups_before : g->k.groups, groups);
    memcpy(back ? g->k.old_losses : g->old_losses_before,
           back ? g->old_losses_before : g->k.old_losses, losses);
    *(back ? g->k.s : g->s_before) = *(back ? g->s_before : g->k.s);
}

static bool refuse_losses(const dro__gpu_step *g, int count, int first)
{
    for (int i = 0; i < count; i++) {
        int part = i >= g->k.counts[0];
        if (isfinite(g->k.losses[i]))
            continue;
        if (!first)
            copy_state(g, true);
        g->k.s->refused = DRO__REFUSED_LOSS;
        g->k.s->refused_part = part;
        g->k.s->refused_index = i - part * g->k.counts[0];
        g->k.s->refused_value = (double)g->k.losses[i];
        return true;
    }
    return false;
}

void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *g, dro__phase phase, int first)
{
    (void)s;
    int count = g->k.counts[0] + (phase == DRO__PHASE_AHEAD ? 0 : g->k.counts[1]);
    if (!g->own_coef)
        spoil(g, g->k.losses + g->k.counts[0] / 2); /* where rank 1's begin */
    if (g->k.s->refused || refuse_losses(g, count, first)) {
        memset(g->k.coef, 0, (size_t)count * sizeof(float));
    } else {
        if (first)
            copy_state(g, false);
        dro__backend_ref.weigh(&g->k, phase);
    }
    for (int i = 0; g->own_coef && i < g->own_counts[0] + g->own_counts[1]; i++)
        g->own_coef[i] = g->k.coef[whole_index(g, i)];
}

static double square_of(const dro__step *k)
{
    double square = 0;
    for (size_t i = 0; i < k->n; i++)
        square += (double)k->v[DRO__G][i] * (double)k->v[DRO__G][i];
    return square;
}

void dro__gpu_step_ascend(cudaStream_t s, const dro__gpu_step *g)
{
    (void)s;
    dro__step k = g->k;
    double sums[DRO__SUMS];
    k.n = k.plan.dim;
    k.s->ascent = square_of(&k) > 0 ? 1 / sqrt(square_of(&k)) : 0;
    dro__backend_ref.move(NULL, &k, DRO__MOVE_ascend, sums);
}

static void move(const dro__gpu_step *g)
{
    dro__step k = g->k;
    double sums[DRO__SUMS];
    k.n = k.plan.dim;
    if (k.s->fresh)
        k.s->square = square_of(&k);
    dro__backend_ref.move(NULL, &k, k.plan.move, sums);
    dro__backend_ref.settle(&k, sums);
    if (k.plan.then)
        dro__backend_ref.move(NULL, &k, k.plan.then, sums);
    if (k.counts[1])
        memcpy(k.v[DRO__OLD], k.v[DRO__NEXT], k.n * sizeof(float));
    memcpy(g->statistics, g->taken, g->statistics_size * sizeof(float));
    k.s->done++;
}

void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *g)
{
    (void)s;
    if (!g->k.s->refused)
        move(g);
    g->snapshots[*g->turn % DRO__TICKETS] = *g->k.s;
    ++*g->turn;
}
