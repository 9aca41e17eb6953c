/* A network and a source of examples as a dro_problem. */
#include "nn.h"

enum { STREAM_KEYS = 0x6b657973 };

static dro_status make_keys(dro_net *net, size_t most)
{
    if (most <= net->key_capacity)
        return DRO_OK;
    net->key_capacity = 0;
    for (int k = 0; k < DRO__PARTS; k++) {
        dro__free(net->keys[k]);
        net->keys[k] = dro__alloc(most, sizeof(uint64_t));
        if (!net->keys[k])
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", most);
    }
    net->key_capacity = most;
    return DRO_OK;
}

/* The same example drawn at the same position has the same key, so the same dropout mask at both
 * points of a step; gathered examples go by their id. */
static uint64_t key_of(const dro_net *net, const dro_batch *batch, size_t i)
{
    bool gathered = batch->position == UINT64_MAX;
    uint64_t at = gathered ? (uint64_t)batch->ids[i] : batch->position + i;
    return dro__random(net->seed, STREAM_KEYS + gathered, at);
}

static dro_status fetch(dro_net *net, const dro_batch *parts, int part_count,
                        dro_net_batch *fetched)
{
    size_t total = 0;
    for (int k = 0; k < part_count; k++) {
        total += parts[k].count;
        DRO_TRY(make_keys(net, parts[k].count));
    }
    if (net->source.max_batch && total > net->source.max_batch)
        return dro__fail(net->ctx, DRO_ERR_RANGE, "%zu examples in a call, the source takes %zu",
                         total, net->source.max_batch);
    for (int k = 0; k < part_count; k++) {
        DRO_TRY(net->source.fetch(net->source.user, &parts[k], &fetched[k]));
        if (fetched[k].count != parts[k].count)
            return dro__fail(net->ctx, DRO_ERR_CALLBACK, "fetch gave %zu examples instead of %zu",
                             fetched[k].count, parts[k].count);
        for (size_t i = 0; i < parts[k].count; i++)
            net->keys[k][i] = key_of(net, &parts[k], i);
        fetched[k].keys = net->keys[k];
    }
    return DRO_OK;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro_net *net = user;
    dro_net_batch fetched[DRO__PARTS] = {{0}};
    DRO_TRY(fetch(net, parts, part_count, fetched));
    return dro_net_forward(net, w, fetched, part_count, losses);
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    (void)parts;
    (void)part_count;
    return dro_net_backward(user, w, coef, grads);
}

static void accept(void *user)
{
    dro_net_accept(user);
}

/* The source's own callbacks get its own user. */
static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    const dro_net *net = user;
    return net->source.draw(net->source.user, position, count, batch);
}

static dro_status gather(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    const dro_net *net = user;
    return net->source.gather(net->source.user, ids, count, batch);
}

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    const dro_net *net = user;
    return net->source.labels(net->source.user, ids, count, classes, groups);
}

static dro_status fetch_async(void *user, const dro_batch *parts, int part_count,
                              dro__fetched *fetched)
{
    dro_net *net = user;
    DRO_TRY(fetch(net, parts, part_count, fetched->parts));
    fetched->part_count = part_count;
    for (int k = 0; k < part_count; k++)
        fetched->whole[k] = parts[k].count;
    net->forwarded = false;
    return dro__net_check(net, fetched->parts, part_count);
}

dro_status dro_net_problem(dro_net *net, const dro_net_source *source, dro_problem *problem)
{
    dro_net_source from;
    if (!net || !source || !problem)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    DRO_TRY(dro__take_struct(net->ctx, "dro_net_source", source, &from, sizeof from));
    if (!from.fetch)
        return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "a source needs fetch");
    if (!net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "call dro_net_ready first");
    net->source = from;
    source = &net->source;
    const dro__queue *queue = net->ctx->backend->net->queue;
    net->async = (dro__async){.queue = queue, .net = net->live, .user = net, .fetch = fetch_async};
    bool queued = source->images && queue && dro__net_losses[net->graph.loss].of == DRO__OF_CLASS;
    net->able = (dro__abilities){.async = &net->async};
    *problem = (dro_problem){
        .size = sizeof *problem,
        .user = net,
        .dim = net->graph.dim,
        .n = source->n,
        .forward = forward,
        .backward = backward,
        .draw = source->draw ? draw : NULL,
        .gather = source->gather ? gather : NULL,
        .labels = source->labels ? labels : NULL,
        .accept = accept,
        .classes = source->classes,
        .groups = source->groups,
        .max_batch = source->max_batch,
        .class_share = source->class_share,
        .group_share = source->group_share,
        .memory = DRO_MEMORY_BACKEND,
        .library = queued ? &net->able : NULL,
    };
    return DRO_OK;
}
