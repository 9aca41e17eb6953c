/* Steps of a network that nobody waits for (../queue.h): what a step needs is written on a ticket, the step itself is
 * one recorded graph from the images to the new weights.
 *
 * There are DRO__TICKETS tickets; the host waits only when all of them are in use. A graph is recorded for each shape
 * of step (two parts, and one at the end; net->share) when it is seen for the second time, as the other passes are. */
#include "net.h"
#include "step.h"

#include <string.h>

enum { SHAPES = 8 }; /* the shares are three, and each may have a step of one and of two parts */

typedef struct shape {
    bool used, ran;
    int share;
    dro__parts parts;
    cudaGraphExec_t graph;
} shape;

struct dro__line {
    dro__gpu_step step;
    dro__gpu_images seen; /* what the recorded graphs read; compared as bytes */
    dro__step_state heard;
    uint64_t begun;
    cudaEvent_t done[DRO__TICKETS];
    shape shapes[SHAPES];
    int next_shape;
    bool ok;
};

/* ---- waiting ---- */

/* What the last step that was queued ends with; NULL: there was none. */
static cudaEvent_t last_of(const struct dro__line *line)
{
    return line && line->begun ? line->done[(line->begun - 1) % DRO__TICKETS] : NULL;
}

dro_status dro__line_follow(dro__cuda_network *net)
{
    cudaEvent_t last = last_of(net->line);
    return last ? dro__cuda_check(net->ctx, cudaStreamWaitEvent(DRO__STREAM, last, 0),
                                  "cudaStreamWaitEvent")
                : DRO_OK;
}

dro_status dro__line_wait(dro__cuda_network *net)
{
    cudaEvent_t last = last_of(net->line);
    if (last)
        DRO_TRY(dro__cuda_check(net->ctx, cudaEventSynchronize(last), "a queue of steps"));
    return dro__cuda_check(net->ctx, cudaStreamSynchronize(DRO__STREAM), "a queue of steps");
}

/* ---- memory ---- */

static void *device(struct dro__line *line, size_t count, size_t size)
{
    void *memory = dro__cuda_alloc(count ? count : 1, size);
    line->ok = line->ok && memory;
    return memory;
}

static void *both(struct dro__line *line, size_t count, size_t size)
{
    void *memory = dro__cuda_host_alloc((count ? count : 1) * size);
    if (memory)
        memset(memory, 0, (count ? count : 1) * size);
    line->ok = line->ok && memory;
    return memory;
}

void dro__line_forget(struct dro__line *line)
{
    for (int k = 0; line && k < SHAPES; k++) {
        if (line->shapes[k].graph)
            cudaGraphExecDestroy(line->shapes[k].graph);
        line->shapes[k] = (shape){0};
    }
}

void dro__line_close(dro__cuda_network *net)
{
    struct dro__line *line = net->line;
    if (!line)
        return;
    dro__line_wait(net);
    dro__line_forget(line);
    dro__gpu_step *k = &line->step;
    void *there[] = {k->state,        k->groups,        k->shares,
                     k->turn,         k->ticket,        k->cuts,
                     k->labels,       k->keys,          k->group_of,
                     k->losses,       k->coef,          k->partial,
                     k->counter,      k->old_losses,    k->first,
                     k->state_before, k->groups_before, k->old_losses_before};
    const void *shared[] = {k->news,          k->tickets,       k->ticket_cuts,
                            k->ticket_labels, k->ticket_groups, k->ticket_keys};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++)
        dro__cuda_free(there[i]);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        dro__cuda_host_free((void *)shared[i]);
    for (int i = 0; i < DRO__TICKETS; i++)
        if (line->done[i])
            cudaEventDestroy(line->done[i]);
    dro__free(line);
    net->line = NULL;
}

static void make_tickets(struct dro__line *line)
{
    dro__gpu_step *k = &line->step;
    size_t all = DRO__TICKETS * k->room;
    k->tickets = both(line, DRO__TICKETS, sizeof *k->tickets);
    k->ticket_cuts = both(line, all, sizeof *k->cuts);
    k->ticket_labels = both(line, all, sizeof *k->labels);
    k->ticket_groups = both(line, all, sizeof *k->group_of);
    k->ticket_keys = both(line, all, sizeof *k->keys);
    k->ticket = device(line, 1, sizeof *k->ticket);
    k->cuts = device(line, k->room, sizeof *k->cuts);
    k->labels = device(line, k->room, sizeof *k->labels);
    k->group_of = device(line, k->room, sizeof *k->group_of);
    k->keys = device(line, k->room, sizeof *k->keys);
}

static dro_status line_open(void *live, const dro__step_plan *plan)
{
    dro__cuda_network *net = live;
    dro__line_close(net);
    struct dro__line *line = net->line = dro__alloc(1, sizeof *line);
    if (!line)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a queue of steps");
    line->ok = true;
    dro__gpu_step *k = &line->step;
    size_t rooms = (size_t)plan->group_room;
    *k = (dro__gpu_step){.plan = *plan,
                         .room = 2 * plan->batch,
                         .statistics = net->memory.statistics,
                         .taken = net->taken,
                         .statistics_size = net->graph->statistics_size,
                         .grads = {net->grads[0], net->grads[1]}};
    make_tickets(line);
    k->state = device(line, 1, sizeof *k->state);
    k->news = both(line, 1, sizeof *k->news);
    k->groups = device(line, rooms, sizeof *k->groups);
    k->shares = device(line, rooms, sizeof *k->shares);
    k->turn = device(line, 1, sizeof *k->turn);
    k->losses = device(line, k->room, sizeof(float));
    k->coef = device(line, k->room, sizeof(float));
    k->old_losses = device(line, plan->batch, sizeof(float));
    k->state_before = device(line, 1, sizeof *k->state);
    k->groups_before = device(line, rooms, sizeof *k->groups);
    k->old_losses_before = device(line, plan->batch, sizeof(float));
    k->partial = device(line, DRO__GPU_BLOCKS * 3, sizeof(double));
    k->counter = device(line, 1, sizeof *k->counter);
    k->first = device(line, 1, sizeof *k->first);
    for (int i = 0; i < DRO__TICKETS && line->ok; i++)
        line->ok = cudaEventCreateWithFlags(&line->done[i], cudaEventDisableTiming) == cudaSuccess;
    if (!line->ok) {
        dro__line_close(net);
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    }
    cudaMemsetAsync(k->first, 0xff, sizeof *k->first, DRO__STREAM);
    return dro__line_wait(net);
}

/* ---- a step ---- */

static void write_ticket(struct dro__line *line, const dro_net_batch *parts, int count,
                         const dro__step_ticket *t)
{
    dro__gpu_step *k = &line->step;
    size_t slot = line->begun % DRO__TICKETS, at = slot * k->room;
    dro__gpu_ticket *head = (dro__gpu_ticket *)k->tickets + slot;
    dro__gpu_cut *cuts = (dro__gpu_cut *)k->ticket_cuts + at;
    int32_t *labels = (int32_t *)k->ticket_labels + at;
    int32_t *groups = (int32_t *)k->ticket_groups + at;
    uint64_t *keys = (uint64_t *)k->ticket_keys + at;
    *head = (dro__gpu_ticket){.eta = t->eta,
                              .lambda = t->lambda,
                              .a = t->a,
                              .level = t->level,
                              .drawn = t->drawn,
                              .group_count = t->group_count};
    for (int p = 0; p < count; p++) {
        const dro_net_batch *b = &parts[p];
        for (size_t i = 0; i < b->count; i++) {
            dro_cut cut = b->cuts ? b->cuts[i] : (dro_cut){0};
            cuts[i] = (dro__gpu_cut){(int32_t)b->ids[i], cut.down, cut.right, cut.mirror};
            keys[i] = b->keys ? b->keys[i] : i;
        }
        memcpy(labels, b->labels, b->count * sizeof *labels);
        if (t->groups[p])
            memcpy(groups, t->groups[p], b->count * sizeof *groups);
        cuts += b->count, keys += b->count, labels += b->count, groups += b->count;
    }
}

/* Queues the whole step on a stream. The arrays of the plain passes give way to the queue's own meanwhile. */
static void walk_step(dro__cuda_network *net, cudaStream_t stream)
{
    struct dro__line *line = net->line;
    dro__gpu_step k = line->step;
    dro__gprogram *p = &net->program[1];
    for (int i = 0; i < net->parts.count; i++)
        k.counts[i] = net->parts.first[i + 1] - net->parts.first[i];
    float *losses = net->losses, *coef = net->coef;
    int32_t *labels = net->labels;
    uint64_t *keys = net->keys;
    net->losses = k.losses, net->coef = k.coef, net->labels = k.labels, net->keys = k.keys;
    dro__gpu_step_take(stream, &k);
    dro__gpu_images_pass(stream, &line->seen, k.cuts, 0, dro__call_size(net),
                         dro__typed_of(&p->values[0], p->values[0].data));
    cudaMemcpyAsync(net->w, k.plan.w, k.plan.dim * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    dro__net_walk(net, p, dro__gprogram_forward, stream);
    dro__gpu_step_weigh(stream, &k);
    bool failed = net->failed;
    dro__net_walk(net, p, dro__gprogram_backward, stream);
    net->failed = net->failed || failed || cudaPeekAtLastError() != cudaSuccess;
    if (!net->failed) /* w does not move by a gradient that lacks a layer */
        dro__gpu_step_move(stream, &k);
    net->losses = losses, net->coef = coef, net->labels = labels, net->keys = keys;
}

static shape *shape_of(struct dro__line *line, const dro__cuda_network *net)
{
    for (int k = 0; k < SHAPES; k++) {
        shape *s = &line->shapes[k];
        if (s->used && s->share == net->share &&
            memcmp(&s->parts, &net->parts, sizeof s->parts) == 0)
            return s;
    }
    shape *s = &line->shapes[line->next_shape++ % SHAPES];
    if (s->graph)
        cudaGraphExecDestroy(s->graph);
    *s = (shape){.used = true, .share = net->share, .parts = net->parts};
    return s;
}

/* The state to its copies, or back: by copying alone, which also works where there was no room for a kernel. */
static cudaError_t keep(const struct dro__line *line, bool back)
{
    const dro__gpu_step *k = &line->step;
    size_t groups = (size_t)k->plan.group_room * sizeof *k->groups;
    void *of[] = {k->state, k->groups, k->old_losses};
    void *kept[] = {k->state_before, k->groups_before, k->old_losses_before};
    size_t sizes[] = {sizeof *k->state, groups, k->plan.batch * sizeof(float)};
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 3 && error == cudaSuccess; i++)
        error = cudaMemcpyAsync(back ? of[i] : kept[i], back ? kept[i] : of[i], sizes[i],
                                cudaMemcpyDeviceToDevice, DRO__STREAM);
    if (back && error == cudaSuccess)
        error = cudaMemcpyAsync(k->turn, &line->begun, sizeof line->begun, cudaMemcpyHostToDevice,
                                DRO__STREAM);
    return error;
}

/* A step that is not recorded yet. One that cannot be queued whole does not move w, and leaves the state as it was. */
static dro_status walk_once(dro__cuda_network *net, shape *s)
{
    DRO__CUDA(net->ctx, keep(net->line, false));
    walk_step(net, DRO__STREAM);
    cudaError_t error = cudaGetLastError();
    s->ran = error == cudaSuccess && !net->failed;
    if (s->ran)
        return DRO_OK;
    dro_status status =
        error != cudaSuccess ? dro__cuda_check(net->ctx, error, "a step") : dro__net_refused(net);
    if (keep(net->line, true) == cudaSuccess)
        cudaStreamSynchronize(DRO__STREAM);
    return status;
}

static void walk_beside(dro__cuda_network *net, const void *what)
{
    (void)what;
    walk_step(net, net->side);
}

static dro_status launch(dro__cuda_network *net, const dro_net_images *images)
{
    struct dro__line *line = net->line;
    dro__gpu_images now = dro__images_of(net, &net->program[1], images);
    if (memcmp(&line->seen, &now, sizeof now) != 0) {
        DRO_TRY(dro__line_wait(net));
        dro__line_forget(line);
        line->seen = now;
    }
    shape *s = shape_of(line, net);
    if (!s->graph && s->ran)
        DRO_TRY(dro__net_record(net, walk_beside, NULL, &s->graph));
    if (s->graph)
        return dro__cuda_check(net->ctx, cudaGraphLaunch(s->graph, DRO__STREAM), "cudaGraphLaunch");
    return walk_once(net, s);
}

static dro_status line_step(void *live, const dro_net_batch *parts, int count,
                            const dro__step_ticket *ticket)
{
    dro__cuda_network *net = live;
    struct dro__line *line = net->line;
    size_t slot = line->begun % DRO__TICKETS;
    net->pending = false;
    DRO_TRY(dro__net_prepare(net, &net->program[1], parts, count));
    if (net->has_targets)
        return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED, "a queued step with real-valued targets");
    for (int k = 0; k < count; k++)
        if (!parts[k].images || parts[k].images->bytes != parts[0].images->bytes)
            return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                             "a queued step takes all its examples from the same images in the "
                             "GPU's memory");
    if (line->begun >= DRO__TICKETS)
        DRO__CUDA(net->ctx, cudaEventSynchronize(line->done[slot]));
    write_ticket(line, parts, count, ticket);
    DRO_TRY(launch(net, parts[0].images));
    line->begun++;
    cudaError_t error = cudaEventRecord(line->done[slot], DRO__STREAM);
    if (error != cudaSuccess) { /* nobody can wait for the step by its event: here, then */
        cudaGetLastError();
        error = cudaStreamSynchronize(DRO__STREAM);
    }
    return dro__cuda_check(net->ctx, error, "a step");
}

/* ---- the state ---- */

/* Where the device is just writing, what was heard before is news enough. */
static void news(void *live, dro__step_state *state)
{
    const dro__cuda_network *net = live;
    struct dro__line *line = net->line;
    const dro__gpu_news *from = line->step.news;
    uint64_t ended = __atomic_load_n(&from->ended, __ATOMIC_ACQUIRE);
    *state = from->state;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&from->begun, __ATOMIC_RELAXED) == ended)
        line->heard = *state;
    *state = line->heard;
}

static const float *owner(void *live)
{
    const dro__cuda_network *net = live;
    return net->line ? net->line->step.plan.w : NULL;
}

static dro_status wait(void *live)
{
    return dro__line_wait(live);
}

static dro_status pull(void *live, dro__step_state *state, dro__group *groups, float *old_losses)
{
    dro__cuda_network *net = live;
    const dro__gpu_step *k = &net->line->step;
    size_t rooms = (size_t)k->plan.group_room;
    DRO_TRY(dro__line_wait(net));
    DRO__CUDA(net->ctx, dro__cuda_copy(state, k->state, sizeof *state));
    if (rooms)
        DRO__CUDA(net->ctx, dro__cuda_copy(groups, k->groups, rooms * sizeof *groups));
    if (old_losses)
        DRO__CUDA(net->ctx,
                  dro__cuda_copy(old_losses, k->old_losses, k->plan.batch * sizeof(float)));
    return DRO_OK;
}

static dro_status push(void *live, const dro__step_state *state, const dro__group *groups,
                       const float *old_losses, const double *shares, int32_t share_count)
{
    dro__cuda_network *net = live;
    const dro__gpu_step *k = &net->line->step;
    size_t rooms = (size_t)k->plan.group_room;
    DRO_TRY(dro__line_wait(net));
    k->news->state = net->line->heard = *state;
    DRO__CUDA(net->ctx, dro__cuda_copy(k->state, state, sizeof *state));
    if (rooms)
        DRO__CUDA(net->ctx, dro__cuda_copy(k->groups, groups, rooms * sizeof *groups));
    if (shares)
        DRO__CUDA(net->ctx,
                  dro__cuda_copy(k->shares, shares, (size_t)share_count * sizeof *shares));
    if (old_losses)
        DRO__CUDA(net->ctx,
                  dro__cuda_copy(k->old_losses, old_losses, k->plan.batch * sizeof(float)));
    return DRO_OK;
}

const dro__net_queue dro__cuda_queue = {.open = line_open,
                                        .step = line_step,
                                        .news = news,
                                        .owner = owner,
                                        .wait = wait,
                                        .pull = pull,
                                        .push = push};
