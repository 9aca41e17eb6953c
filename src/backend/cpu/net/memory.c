/* Memory of a network: the arena that holds its values, and the lanes' buffers, made when a larger
 * batch comes than ever before and then kept. */
#include "net.h"

void dro__lane_free(dro__lane *lane)
{
    for (int k = 0; k < DRO__SLOTS_PER_LANE; k++) {
        dro__free(lane->slots[k]);
        lane->slots[k] = NULL;
    }
    dro__free(lane->sum);
    dro__free(lane->spare);
    dro__free(lane->scratch);
    lane->sum = lane->spare = NULL;
    lane->scratch = NULL;
    lane->capacity = (dro__lane_sizes){0};
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A lane's buffers, at least of the given sizes. */
static dro_status make_lane(dro_context *ctx, dro__lane *lane, const dro__lane_sizes *need)
{
    dro__lane_sizes capacity = lane->capacity;
    if (need->slot <= capacity.slot && need->sum <= capacity.sum && need->spare <= capacity.spare &&
        need->scratch <= capacity.scratch)
        return DRO_OK;
    dro__lane_free(lane);
    capacity.slot = larger(capacity.slot, need->slot);
    capacity.sum = larger(capacity.sum, need->sum);
    capacity.spare = larger(capacity.spare, need->spare);
    capacity.scratch = larger(capacity.scratch, need->scratch);
    bool ok = true;
    for (int k = 0; k < DRO__SLOTS_PER_LANE; k++)
        ok = ok && (lane->slots[k] = dro__alloc(capacity.slot, sizeof(float)));
    ok = ok && (!capacity.sum || (lane->sum = dro__alloc(capacity.sum, sizeof(float))));
    ok = ok && (!capacity.spare || (lane->spare = dro__alloc(capacity.spare, sizeof(float))));
    ok = ok && (!capacity.scratch || (lane->scratch = dro__alloc(capacity.scratch, 1)));
    if (!ok) {
        dro__lane_free(lane);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the lanes of a network");
    }
    lane->capacity = capacity;
    return DRO_OK;
}

/* What an operation needs of each of its lanes. */
static void need_of(const dro__cpu_program *p, const dro__cpu_op *op, dro__lane_sizes *need)
{
    size_t most = p->values[op->base.end].size;
    for (int k = 0; k < op->base.input_count; k++)
        most = larger(most, p->values[op->base.in[k].value].size);
    need->slot = larger(need->slot, most * op->chunk);
    if (!op->conv)
        return;
    need->scratch = larger(need->scratch, op->conv->scratch);
    if (op->base.back && !op->base.node->frozen) {
        need->sum = larger(need->sum, op->conv->slope_size);
        need->spare = larger(need->spare, op->conv->spare);
    }
}

enum { FIXED = 8 };

/* Convolutions for the chunks that these parts fall into, and the lanes' buffers. */
static dro_status ready_chunks(dro__cpu_network *net, dro__cpu_program *p,
                               const dro_net_batch *parts, int count)
{
    size_t most = parts[0].count, threads = (size_t)dro__pool_threads(net->ctx->pool);
    for (int k = 1; k < count; k++)
        most = larger(most, parts[k].count);
    if (net->ctx->fixed_pieces && p == &net->program[0]) /* oneDNN's sums depend on the rows */
        threads = FIXED;
    size_t share = (most + threads - 1) / threads; /* no thread shall be without work */
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        dro__cpu_op *op = &p->ops[i];
        op->chunk = op->most < share ? op->most : share;
        for (int k = 0; op->conv && op->conv->cls->ready && k < count; k++) {
            size_t rest = parts[k].count % op->chunk;
            if (parts[k].count >= op->chunk)
                DRO_TRY(op->conv->cls->ready(op->conv, op->chunk));
            if (rest)
                DRO_TRY(op->conv->cls->ready(op->conv, rest));
        }
    }
    for (size_t l = 0; l < net->lane_count; l++) {
        dro__lane_sizes need = {.slot = 1};
        for (int32_t i = 0; i < p->base.operation_count; i++)
            if (l < p->ops[i].lanes)
                need_of(p, &p->ops[i], &need);
        DRO_TRY(make_lane(net->ctx, &net->lanes[l], &need));
    }
    return DRO_OK;
}

dro_status dro__network_reserve(dro__cpu_network *net, dro__cpu_program *p,
                                const dro_net_batch *parts, int count)
{
    DRO_TRY(ready_chunks(net, p, parts, count));
    size_t total = net->first[count];
    if (p->arena * total <= net->arena_size)
        return DRO_OK;
    dro__free(net->arena);
    net->arena_size = 0;
    net->arena = dro__alloc(p->arena * total, sizeof(float));
    if (!net->arena)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu: it needs %zu MiB",
                         total, p->arena * total * sizeof(float) >> 20);
    net->arena_size = p->arena * total;
    return DRO_OK;
}
