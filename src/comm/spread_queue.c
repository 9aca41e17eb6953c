/* Asynchronous steps over all ranks whose devices sum without the host: each rank queues its slice
 * of the batch, and the graph of the step exchanges losses and sums gradients. The hosts exchange
 * only what each draw needs. */
#include "spread.h"

static const dro__async *own(const dro_spread *s)
{
    return s->mine.library->async;
}

/* The text of a rank that is gone is the communicator's. */
static dro_status ended(dro_spread *s, dro_status status)
{
    status = dro__comm_leave(s->comm, status);
    s->of_comm = s->comm->broken;
    return dro__spread_remember(s, status);
}

/* All ranks have a queue, or none has. */
static dro_status queue_open(void *net, const dro__step *host)
{
    dro_spread *s = net;
    dro_status status =
        host->plan.batch < (size_t)s->ranks
            ? dro__fail(s->ctx, DRO_ERR_UNSUPPORTED, "a batch has fewer examples than ranks")
            : own(s)->queue->open(own(s)->net, host);
    return dro__comm_agree(s->comm, status);
}

static dro_status queue_step(void *net, const dro__fetched *fetched, const dro__ticket *ticket,
                             const int32_t *const *group_of)
{
    dro_spread *s = net;
    dro__comm_enter(s->comm);
    dro_status status = own(s)->queue->step(own(s)->net, fetched, ticket, group_of);
    if (status == DRO_ERR_MEMORY && s->ranks > 1) /* no rank may leave the queue by itself */
        status = dro__fail(s->ctx, DRO_ERR_DEVICE,
                           "the GPU has no memory for this rank's share of a batch: set batch or "
                           "microbatch");
    return ended(s, status);
}

static void queue_snapshot(void *net, dro__scalars *to)
{
    const dro_spread *s = net;
    own(s)->queue->snapshot(own(s)->net, to);
}

static const float *queue_owner(void *net)
{
    const dro_spread *s = net;
    return own(s)->queue->owner(own(s)->net);
}

static dro_status queue_wait(void *net)
{
    dro_spread *s = net;
    dro__comm_enter(s->comm);
    return ended(s, own(s)->queue->wait(own(s)->net));
}

static dro_status queue_pull(void *net, const dro__step *host)
{
    dro_spread *s = net;
    dro__comm_enter(s->comm);
    return ended(s, own(s)->queue->pull(own(s)->net, host));
}

static dro_status queue_push(void *net, const dro__step *host)
{
    dro_spread *s = net;
    dro__comm_enter(s->comm);
    return ended(s, own(s)->queue->push(own(s)->net, host));
}

static const dro__queue queue = {.open = queue_open,
                                 .step = queue_step,
                                 .snapshot = queue_snapshot,
                                 .owner = queue_owner,
                                 .wait = queue_wait,
                                 .pull = queue_pull,
                                 .push = queue_push};

static dro_status fetch(void *user, const dro_batch *parts, int count, dro__fetched *fetched)
{
    dro_spread *s = user;
    s->of_comm = false;
    DRO_TRY(dro__spread_remember(s, dro__spread_check(s, parts, count)));
    DRO_TRY(dro__spread_remember(s, dro__spread_fill(s, 0, parts, count)));
    const slice *mine = &s->slices[0];
    if (mine->part_count != count)
        return dro__spread_remember(
            s, dro__fail(s->ctx, DRO_ERR_UNSUPPORTED, "a batch has fewer examples than ranks"));
    DRO_TRY(dro__spread_remember(s, own(s)->fetch(own(s)->user, mine->parts, count, fetched)));
    for (int p = 0; p < count; p++) {
        size_t end;
        dro__spread_slice(s->comm, 0, parts[p].count, &fetched->first[p], &end);
        fetched->whole[p] = parts[p].count;
    }
    return DRO_OK;
}

const dro__abilities *dro__spread_abilities(dro_spread *s)
{
    if (!s->comm || !s->comm->device || s->options.shards)
        return NULL; /* steps are driven by the host */
    s->async = (dro__async){.queue = &queue, .net = s, .user = s, .fetch = fetch};
    s->able = (dro__abilities){.async = &s->async};
    return &s->able;
}
