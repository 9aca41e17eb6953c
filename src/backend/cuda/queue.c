/* Asynchronous steps of a network (../step.h). The host writes the inputs of a step to a ticket.
 * The step itself is one recorded CUDA graph, from the images to the new weights.
 *
 * There are DRO__TICKETS tickets; the host waits only when all of them are in use. The scalars that
 * it then reports are those of DRO__TICKETS steps ago, on every rank. With several ranks a step
 * also exchanges the losses and sums the gradients, directly between the devices. A graph is
 * recorded for each shape of step (its parts, this rank's slices of them, whether it looks ahead,
 * net->share) when that shape occurs for the second time, as for other passes. */
#include "nccl.h"
#include "net.h"
#include "step_kernels.h"

#include <string.h>

enum { SHAPES = 8 }; /* net->share has three values; each may occur with two shapes */

/* Sizes of the parts over all ranks, and where this rank's slice of each begins. */
typedef struct slices {
    int whole[2], first[2];
} slices;

typedef struct shape {
    bool used, ran, ahead;
    int share;
    dro__parts parts;
    slices cut;
    cudaGraphExec_t graph;
} shape;

struct dro__step_queue {
    dro__gpu_step step;
    dro__gpu_images seen;  /* image arguments in the recorded graphs; compared as bytes */
    dro__scalars reported; /* the scalars of DRO__TICKETS steps ago */
    uint64_t begun;
    bool ahead, second;      /* of the current step */
    slices cut;              /* of the current step */
    dro__device_comm *ranks; /* NULL: one rank */
    cudaEvent_t done[DRO__TICKETS];
    shape shapes[SHAPES];
    int next_shape;
    bool ok;
};

/* ---- waiting ---- */

/* The event at the end of the last queued step; NULL: no step was queued. */
static cudaEvent_t last_of(const struct dro__step_queue *queue)
{
    return queue && queue->begun ? queue->done[(queue->begun - 1) % DRO__TICKETS] : NULL;
}

dro_status dro__step_queue_follow(dro__cuda_network *net)
{
    cudaEvent_t last = last_of(net->queue);
    return last ? dro__cuda_check(net->ctx, cudaStreamWaitEvent(DRO__STREAM, last, 0),
                                  "cudaStreamWaitEvent")
                : DRO_OK;
}

dro_status dro__step_queue_wait(dro__cuda_network *net)
{
    cudaEvent_t last = last_of(net->queue);
    if (last)
        DRO_TRY(dro__cuda_check(net->ctx, cudaEventSynchronize(last), "a queue of steps"));
    return dro__cuda_check(net->ctx, cudaStreamSynchronize(DRO__STREAM), "a queue of steps");
}

/* ---- memory ---- */

static void *device(struct dro__step_queue *queue, size_t count, size_t size)
{
    void *memory = dro__cuda_alloc(count ? count : 1, size);
    queue->ok = queue->ok && memory;
    return memory;
}

static void *both(struct dro__step_queue *queue, size_t count, size_t size)
{
    void *memory = dro__cuda_host_alloc((count ? count : 1) * size);
    if (memory)
        memset(memory, 0, (count ? count : 1) * size);
    queue->ok = queue->ok && memory;
    return memory;
}

void dro__step_queue_forget_graphs(struct dro__step_queue *queue)
{
    for (int k = 0; queue && k < SHAPES; k++) {
        if (queue->shapes[k].graph)
            cudaGraphExecDestroy(queue->shapes[k].graph);
        queue->shapes[k] = (shape){0};
    }
}

void dro__step_queue_close(dro__cuda_network *net)
{
    struct dro__step_queue *queue = net->queue;
    if (!queue)
        return;
    dro__step_queue_wait(net);
    dro__step_queue_forget_graphs(queue);
    dro__gpu_step *k = &queue->step;
    void *device[] = {k->k.s,
                      k->k.groups,
                      k->k.losses,
                      k->k.coef,
                      k->k.old_losses,
                      (void *)k->k.shares,
                      k->turn,
                      k->ticket,
                      k->cuts,
                      k->labels,
                      k->keys,
                      k->group_of,
                      k->mixes,
                      k->sums.partial,
                      k->sums.counter,
                      k->first,
                      k->s_before,
                      k->groups_before,
                      k->old_losses_before,
                      k->own_losses,
                      k->own_coef};
    const void *shared[] = {k->snapshots,     k->tickets,       k->ticket_cuts, k->ticket_mixes,
                            k->ticket_labels, k->ticket_groups, k->ticket_keys};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        dro__cuda_free(device[i]);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        dro__cuda_host_free((void *)shared[i]);
    for (int i = 0; i < DRO__TICKETS; i++)
        if (queue->done[i])
            cudaEventDestroy(queue->done[i]);
    dro__free(queue);
    net->queue = NULL;
}

static void make_tickets(struct dro__step_queue *queue)
{
    dro__gpu_step *k = &queue->step;
    size_t all = DRO__TICKETS * k->capacity;
    k->tickets = both(queue, DRO__TICKETS, sizeof *k->tickets);
    k->ticket_cuts = both(queue, all, sizeof *k->cuts);
    k->ticket_mixes = both(queue, all, sizeof *k->mixes);
    k->ticket_labels = both(queue, all, sizeof *k->labels);
    k->ticket_groups = both(queue, all, sizeof *k->group_of);
    k->ticket_keys = both(queue, all, sizeof *k->keys);
    k->ticket = device(queue, 1, sizeof *k->ticket);
    k->cuts = device(queue, k->capacity, sizeof *k->cuts);
    k->mixes = device(queue, k->capacity, sizeof *k->mixes);
    k->labels = device(queue, k->capacity, sizeof *k->labels);
    k->group_of = device(queue, k->capacity, sizeof *k->group_of);
    k->keys = device(queue, k->capacity, sizeof *k->keys);
}

static dro_status line_open(void *live, const dro__step *host)
{
    dro__cuda_network *net = live;
    dro__step_queue_close(net);
    struct dro__step_queue *queue = net->queue = dro__alloc(1, sizeof *queue);
    if (!queue)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a queue of steps");
    queue->ok = true;
    dro__gpu_step *g = &queue->step;
    size_t groups = (size_t)host->plan.group_capacity, batch = host->plan.batch;
    *g = (dro__gpu_step){.k = *host,
                         .capacity = 2 * batch,
                         .moved_end = host->n,
                         .statistics = net->memory.statistics,
                         .taken = net->taken,
                         .statistics_size = net->graph->statistics_size};
    make_tickets(queue);
    queue->ranks = net->memory.sync ? net->memory.sync->device : NULL;
    if (queue->ranks) {
        g->own_losses = device(queue, g->capacity, sizeof(float));
        g->own_coef = device(queue, g->capacity, sizeof(float));
    }
    g->k.v[DRO__G] = net->grads[0];
    g->k.v[DRO__NEXT] = net->grads[1];
    g->k.ticket = g->ticket;
    g->k.group_of = g->group_of;
    g->k.s = device(queue, 1, sizeof *g->k.s);
    g->k.groups = device(queue, groups, sizeof *g->k.groups);
    g->k.shares = device(queue, groups, sizeof *g->k.shares);
    g->k.losses = device(queue, g->capacity, sizeof(float));
    g->k.coef = device(queue, g->capacity, sizeof(float));
    g->k.old_losses = device(queue, batch, sizeof(float));
    g->s_before = device(queue, 1, sizeof *g->s_before);
    g->groups_before = device(queue, groups, sizeof *g->groups_before);
    g->old_losses_before = device(queue, batch, sizeof(float));
    g->snapshots = both(queue, DRO__TICKETS, sizeof *g->snapshots);
    g->turn = device(queue, 1, sizeof *g->turn);
    g->sums.partial = device(queue, DRO__GPU_BLOCKS * DRO__SUMS, sizeof(double));
    g->sums.counter = device(queue, 1, sizeof *g->sums.counter);
    g->first = device(queue, 1, sizeof *g->first);
    for (int i = 0; i < DRO__TICKETS && queue->ok; i++)
        queue->ok =
            cudaEventCreateWithFlags(&queue->done[i], cudaEventDisableTiming) == cudaSuccess;
    if (!queue->ok) {
        dro__step_queue_close(net);
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    }
    cudaMemsetAsync(g->first, 0xff, sizeof *g->first, DRO__STREAM);
    return dro__step_queue_wait(net);
}

/* ---- a step ---- */

static void write_ticket(struct dro__step_queue *queue, const dro__fetched *f,
                         const dro__ticket *ticket, const int32_t *const *group_of)
{
    dro__gpu_step *g = &queue->step;
    size_t slot = queue->begun % DRO__TICKETS, at = slot * g->capacity;
    dro__gpu_cut *cuts = (dro__gpu_cut *)g->ticket_cuts + at;
    dro__gpu_mix *mixes = (dro__gpu_mix *)g->ticket_mixes + at;
    int32_t *labels = (int32_t *)g->ticket_labels + at;
    int32_t *groups = (int32_t *)g->ticket_groups + at;
    uint64_t *keys = (uint64_t *)g->ticket_keys + at;
    ((dro__ticket *)g->tickets)[slot] = *ticket;
    for (int p = 0; p < f->part_count; p++) {
        const dro_net_batch *b = &f->parts[p];
        for (size_t i = 0; i < b->count; i++) {
            cuts[i] = dro__gpu_cut_at(b, i);
            if (g->mixed)
                mixes[i] = dro__gpu_mix_at(b, i);
            keys[i] = b->keys ? b->keys[i] : i;
        }
        memcpy(labels, b->labels, b->count * sizeof *labels);
        if (group_of[p])
            memcpy(groups, group_of[p], f->whole[p] * sizeof *groups);
        cuts += b->count, keys += b->count, labels += b->count, groups += f->whole[p];
        mixes += b->count;
    }
}

/* Queues a forward pass of the step, at the weights `w`. */
static void walk_forward(dro__cuda_network *net, const dro__gpu_step *g, const float *w,
                         cudaStream_t stream)
{
    dro__gprogram *p = &net->program[1];
    dro__gpu_images_pass(stream, &net->queue->seen, 0, dro__call_size(net),
                         dro__typed_of(&p->values[0], p->values[0].data));
    cudaMemcpyAsync(net->w, w, g->k.plan.dim * sizeof *w, cudaMemcpyDeviceToDevice, stream);
    dro__net_walk(net, p, dro__gprogram_forward, stream);
    struct dro__step_queue *queue = net->queue;
    if (!queue->ranks)
        return;
    dro__gpu_step_place(stream, g);
    net->failed = !dro__nccl_sum_floats(queue->ranks, stream, &g->k.losses, 1,
                                        (size_t)(g->k.counts[0] + g->k.counts[1])) ||
                  net->failed;
}

/* Sums the gradients over all ranks. */
static void sum_gradients(dro__cuda_network *net, cudaStream_t stream)
{
    struct dro__step_queue *queue = net->queue;
    if (queue->ranks &&
        !dro__nccl_sum_floats(queue->ranks, stream, net->grads, net->parts.count, net->graph->dim))
        net->failed = true;
}

/* sam: computes the point at which the step takes its gradients. The second part is evaluated too,
 * with coefficients of 0. */
static bool walk_ascent(dro__cuda_network *net, const dro__gpu_step *g, cudaStream_t stream)
{
    walk_forward(net, g, g->k.v[DRO__W], stream);
    bool failed = net->failed;
    dro__gpu_step_weigh(stream, g, DRO__PHASE_ASCENT, 1);
    dro__net_walk(net, &net->program[1], dro__gprogram_backward, stream);
    sum_gradients(net, stream);
    failed = failed || net->failed;
    dro__gpu_step_ascend(stream, g);
    return failed;
}

/* Queues the whole step on a stream. Meanwhile the arrays of net that ordinary passes use are
 * replaced by the queue's own. */
static void walk_step(dro__cuda_network *net, cudaStream_t stream)
{
    struct dro__step_queue *queue = net->queue;
    dro__gpu_step g = queue->step;
    for (int i = 0; i < net->parts.count; i++) {
        g.k.counts[i] = queue->cut.whole[i];
        g.own_first[i] = queue->cut.first[i];
        g.own_counts[i] = net->parts.first[i + 1] - net->parts.first[i];
    }
    float *losses = net->losses, *coef = net->coef;
    int32_t *labels = net->labels;
    uint64_t *keys = net->keys;
    dro__gpu_mix *mixes = net->mixes;
    bool failed = false;
    net->losses = queue->ranks ? g.own_losses : g.k.losses;
    net->coef = queue->ranks ? g.own_coef : g.k.coef;
    net->labels = g.labels, net->keys = g.keys;
    net->mixes = g.mixes;
    dro__gpu_step_take(stream, &g);
    if (queue->ahead) {
        walk_forward(net, &g, g.k.v[DRO__Z], stream);
        failed = net->failed;
        dro__gpu_step_weigh(stream, &g, g.k.plan.ahead, 1);
    }
    bool sam = g.k.plan.sam > 0;
    if (sam)
        failed = walk_ascent(net, &g, stream);
    walk_forward(net, &g, g.k.v[sam ? DRO__Z : DRO__W], stream);
    dro__gpu_step_weigh(stream, &g, g.k.plan.weigh, !queue->ahead && !sam);
    failed = failed || net->failed;
    dro__net_walk(net, &net->program[1], dro__gprogram_backward, stream);
    sum_gradients(net, stream);
    net->failed = net->failed || failed || cudaPeekAtLastError() != cudaSuccess;
    if (queue->second) {
        g.moved_first = g.k.plan.second_first;
        g.moved_end = g.moved_first + g.k.plan.second_count;
    }
    if (!net->failed) /* never move w by a gradient that lacks a layer */
        dro__gpu_step_move(stream, &g);
    net->losses = losses, net->coef = coef, net->labels = labels, net->keys = keys;
    net->mixes = mixes;
}

static shape *shape_of(struct dro__step_queue *queue, const dro__cuda_network *net)
{
    for (int k = 0; k < SHAPES; k++) {
        shape *s = &queue->shapes[k];
        if (s->used && s->share == net->share && s->ahead == queue->ahead &&
            memcmp(&s->parts, &net->parts, sizeof s->parts) == 0 &&
            memcmp(&s->cut, &queue->cut, sizeof s->cut) == 0)
            return s;
    }
    shape *s = &queue->shapes[queue->next_shape++ % SHAPES];
    if (s->graph)
        cudaGraphExecDestroy(s->graph);
    *s = (shape){.used = true,
                 .ahead = queue->ahead,
                 .share = net->share,
                 .parts = net->parts,
                 .cut = queue->cut};
    return s;
}

/* Saves the state, or restores it, by copies rather than a kernel: these also work when there was
 * no memory to launch one. */
static cudaError_t keep(const struct dro__step_queue *queue, bool back)
{
    const dro__gpu_step *g = &queue->step;
    void *of[] = {g->k.s, g->k.groups, g->k.old_losses};
    void *kept[] = {g->s_before, g->groups_before, g->old_losses_before};
    size_t sizes[] = {sizeof *g->k.s, (size_t)g->k.plan.group_capacity * sizeof *g->k.groups,
                      g->k.plan.batch * sizeof(float)};
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaMemcpyAsync(back ? of[i] : kept[i], back ? kept[i] : of[i], sizes[i],
                                cudaMemcpyDeviceToDevice, DRO__STREAM);
    if (back && error == cudaSuccess)
        error = cudaMemcpyAsync(g->turn, &queue->begun, sizeof queue->begun, cudaMemcpyHostToDevice,
                                DRO__STREAM);
    return error;
}

/* Queues a step that is not recorded yet. If part of it cannot be queued, w does not move and the
 * state is restored. */
static dro_status walk_once(dro__cuda_network *net, shape *s)
{
    DRO__CUDA(net->ctx, keep(net->queue, false));
    walk_step(net, DRO__STREAM);
    cudaError_t error = cudaGetLastError();
    s->ran = error == cudaSuccess && !net->failed;
    if (s->ran)
        return DRO_OK;
    dro_status status =
        error != cudaSuccess ? dro__cuda_check(net->ctx, error, "a step") : dro__net_refused(net);
    if (keep(net->queue, true) == cudaSuccess)
        cudaStreamSynchronize(DRO__STREAM);
    return status;
}

static void walk_side(dro__cuda_network *net, const void *what)
{
    (void)what;
    walk_step(net, net->side);
}

static dro_status launch(dro__cuda_network *net, const dro_net_batch *part)
{
    struct dro__step_queue *queue = net->queue;
    dro__gpu_images now = dro__images_of(net, &net->program[1], part);
    now.cuts = queue->step.cuts;
    now.mixes = queue->step.mixed ? queue->step.mixes : NULL;
    if (memcmp(&queue->seen, &now, sizeof now) != 0) {
        DRO_TRY(dro__step_queue_wait(net));
        dro__step_queue_forget_graphs(queue);
        queue->seen = now;
    }
    shape *s = shape_of(queue, net);
    if (!s->graph && s->ran)
        DRO_TRY(dro__net_record(net, walk_side, NULL, &s->graph));
    if (s->graph)
        return dro__cuda_check(net->ctx, cudaGraphLaunch(s->graph, DRO__STREAM), "cudaGraphLaunch");
    return walk_once(net, s);
}

/* Sets this rank's slices. Batch norms over all ranks also count the other ranks' examples. */
static void take_slices(dro__cuda_network *net, const dro__fetched *f)
{
    struct dro__step_queue *queue = net->queue;
    queue->cut = (slices){{0}, {0}};
    for (int k = 0; k < f->part_count; k++) {
        queue->cut.whole[k] = (int)f->whole[k];
        queue->cut.first[k] = (int)f->first[k];
        if (dro__net_synced(&net->memory))
            net->parts.others[k] = (int)(f->whole[k] - f->parts[k].count);
    }
}

static dro_status line_step(void *live, const dro__fetched *f, const dro__ticket *ticket,
                            const int32_t *const *group_of)
{
    dro__cuda_network *net = live;
    struct dro__step_queue *queue = net->queue;
    const dro_net_batch *parts = f->parts;
    size_t slot = queue->begun % DRO__TICKETS;
    net->pending = false;
    DRO_TRY(dro__net_prepare(net, &net->program[1], parts, f->part_count));
    take_slices(net, f);
    if (net->has_targets)
        return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED, "a queued step with real-valued targets");
    for (int k = 0; k < f->part_count; k++)
        if (!parts[k].images || parts[k].images->bytes != parts[0].images->bytes)
            return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                             "a queued step takes all its examples from the same images in the "
                             "GPU's memory");
    if (queue->begun >= DRO__TICKETS) {
        DRO__CUDA(net->ctx, cudaEventSynchronize(queue->done[slot]));
        queue->reported = queue->step.snapshots[slot];
    }
    queue->ahead = ticket->ahead;
    queue->step.mixed = net->has_mixes;
    queue->second = ticket->second; /* when stage two begins, reset() discards the recordings */
    write_ticket(queue, f, ticket, group_of);
    DRO_TRY(launch(net, &parts[0]));
    queue->begun++;
    cudaError_t error = cudaEventRecord(queue->done[slot], DRO__STREAM);
    if (error != cudaSuccess) { /* without an event, wait for the step here */
        cudaGetLastError();
        error = cudaStreamSynchronize(DRO__STREAM);
    }
    return dro__cuda_check(net->ctx, error, "a step");
}

/* ---- the state ---- */

static void snapshot(void *live, dro__scalars *to)
{
    *to = ((const dro__cuda_network *)live)->queue->reported;
}

static const float *owner(void *live)
{
    const dro__cuda_network *net = live;
    return net->queue ? net->queue->step.k.v[DRO__W] : NULL;
}

static dro_status wait(void *live)
{
    return dro__step_queue_wait(live);
}

/* Copies the scalars, the groups and the old losses to the device, or back. */
static dro_status exchange(dro__cuda_network *net, const dro__step *host, bool push)
{
    const dro__step *k = &net->queue->step.k;
    size_t groups = (size_t)k->plan.group_capacity * sizeof *k->groups;
    void *here[] = {host->s, host->groups, host->old_losses};
    void *device[] = {k->s, k->groups, k->old_losses};
    size_t sizes[] = {sizeof *k->s, groups, k->plan.batch * sizeof(float)};
    DRO_TRY(dro__step_queue_wait(net));
    for (int i = 0; i < 3; i++)
        if (here[i] && sizes[i])
            DRO__CUDA(net->ctx, dro__cuda_copy(push ? device[i] : here[i],
                                               push ? here[i] : device[i], sizes[i]));
    return DRO_OK;
}

static dro_status pull(void *live, const dro__step *host)
{
    return exchange(live, host, false);
}

static dro_status push(void *live, const dro__step *host)
{
    dro__cuda_network *net = live;
    struct dro__step_queue *queue = net->queue;
    DRO_TRY(exchange(net, host, true));
    queue->reported = *host->s;
    for (int k = 0; k < DRO__TICKETS; k++)
        queue->step.snapshots[k] = *host->s;
    if (host->shares)
        DRO__CUDA(net->ctx, dro__cuda_copy((void *)queue->step.k.shares, host->shares,
                                           (size_t)host->ticket->group_count * sizeof(double)));
    return DRO_OK;
}

const dro__queue dro__cuda_queue = {.open = line_open,
                                    .step = line_step,
                                    .snapshot = snapshot,
                                    .owner = owner,
                                    .wait = wait,
                                    .pull = pull,
                                    .push = push};
