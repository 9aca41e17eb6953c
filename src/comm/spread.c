/* A dro_problem over all ranks.
 *
 * A batch is cut into slices of neighbouring positions: one for each rank, or with `shards` a fixed
 * number of them, of which each rank has its share. forward evaluates this rank's slices and
 * gathers the losses and the status of every rank; backward takes this rank's coefficients and sums
 * the gradients. Where the problem draws, ids, classes and groups are gathered when a batch is
 * drawn: an example that cannot be read is replaced by another one.
 *
 * With shards the sum is a tree: each shard has a gradient of its own, neighbours are added,
 * then neighbours of those, first on this rank and then over the ranks (sum.c). So the result is
 * the same for every number of ranks and threads. -0 becomes 0 at the leaves: shards without
 * examples count as 0, and -0 + 0 is not -0. */
#include "spread.h"

#include <string.h>

/* ---- slices ---- */

size_t dro__cut_at(size_t count, size_t k, size_t of)
{
    return count / of * k + count % of * k / of;
}

void dro__spread_slice(const dro_comm *c, int shards, size_t count, size_t *first, size_t *end)
{
    size_t size = (size_t)dro_comm_size(c), rank = (size_t)dro_comm_rank(c);
    size_t all = shards ? (size_t)shards : size, own = all / size;
    *first = dro__cut_at(count, rank * own, all);
    *end = dro__cut_at(count, (rank + 1) * own, all);
}

/* Slice k of this rank's, of a part of `count` examples. */
static void slice_at(const dro_spread *s, int k, size_t count, size_t *first, size_t *end)
{
    size_t at = (size_t)s->rank * (size_t)s->own_slices + (size_t)k, all = (size_t)s->all_slices;
    *first = dro__cut_at(count, at, all);
    *end = dro__cut_at(count, at + 1, all);
}

void dro__batch_cut(const dro_batch *b, size_t first, size_t count, dro_batch *part)
{
    *part = (dro_batch){.position = b->position == UINT64_MAX ? UINT64_MAX : b->position + first,
                        .count = count,
                        .ids = b->ids + first,
                        .classes = b->classes ? b->classes + first : NULL,
                        .groups = b->groups ? b->groups + first : NULL};
}

/* Examples first .. first + count - 1 of a part. */
static dro_status cut(const dro_spread *s, const dro_batch *b, size_t first, size_t count,
                      dro_batch *part)
{
    const drawn *d = b->handle;
    size_t own_first, own_end;
    if (s->options.whole) {
        s->options.cut(s->options.cut_user, b, first, count, part);
        return DRO_OK;
    }
    if (!d) {
        dro__batch_cut(b, first, count, part);
        return DRO_OK;
    }
    dro__spread_slice(s->comm, s->options.shards, b->count, &own_first, &own_end);
    if (count == d->mine.count)
        *part = d->mine;
    else if (s->options.cut)
        s->options.cut(s->options.cut_user, &d->mine, first - own_first, count, part);
    else
        return dro__fail(s->ctx, DRO_ERR_UNSUPPORTED, "this problem's batches cannot be cut");
    return DRO_OK;
}

dro_status dro__spread_fill(const dro_spread *s, int k, const dro_batch *parts, int part_count)
{
    slice *one = &s->slices[k];
    one->part_count = 0;
    for (int p = 0; p < part_count; p++) {
        size_t first, end;
        slice_at(s, k, parts[p].count, &first, &end);
        if (first == end)
            continue;
        one->index[one->part_count] = p;
        DRO_TRY(cut(s, &parts[p], first, end - first, &one->parts[one->part_count++]));
    }
    return DRO_OK;
}

/* ---- memory ---- */

static bool grow(void **memory, size_t *capacity, size_t size)
{
    if (size <= *capacity)
        return true;
    dro__free(*memory);
    *memory = dro__alloc(size, 1);
    *capacity = *memory ? size : 0;
    return *memory != NULL;
}

static void free_slices(dro_spread *s)
{
    for (int k = 0; s->slices && k < s->own_slices; k++) {
        dro__free(s->slices[k].losses);
        dro__free(s->slices[k].coef);
        s->slices[k].losses = s->slices[k].coef = NULL;
    }
    s->capacity = 0;
}

/* Buffers grow with the largest batch so far. */
static dro_status make_slices(dro_spread *s, size_t total)
{
    if (total <= s->capacity)
        return DRO_OK;
    free_slices(s);
    size_t most = total / (size_t)s->all_slices + PARTS;
    for (int k = 0; k < s->own_slices; k++) {
        slice *one = &s->slices[k];
        one->losses = dro__alloc(most, sizeof(float));
        one->coef = dro__alloc(most, sizeof(float));
        if (!one->losses || !one->coef)
            return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", total);
    }
    s->capacity = total;
    return DRO_OK;
}

static dro_status make_blocks(dro_spread *s, size_t all)
{
    if (!grow((void **)&s->block, &s->block_capacity, (size_t)s->sizes[s->rank]) ||
        !grow((void **)&s->blocks, &s->blocks_capacity, all))
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory to gather %zu bytes", all);
    return DRO_OK;
}

dro_status dro__spread_lay_out(dro_spread *s, const dro_batch *parts, int part_count, size_t each)
{
    size_t at = 0;
    for (int r = 0; r < s->ranks; r++) {
        dro_comm like = {.rank = r, .size = s->ranks};
        size_t examples = 0;
        for (int p = 0; p < part_count; p++) {
            size_t first, end;
            dro__spread_slice(&like, s->options.shards, parts[p].count, &first, &end);
            examples += end - first;
        }
        s->sizes[r] = (int)(sizeof(dro__head) + examples * each);
        s->offsets[r] = (int)at;
        at += (size_t)s->sizes[r];
        if (at > INT32_MAX)
            return dro__fail(s->ctx, DRO_ERR_RANGE, "the batch is too large to be gathered");
    }
    return make_blocks(s, at);
}

dro_status dro__spread_remember(dro_spread *s, dro_status status)
{
    if (status != DRO_OK && s->of_comm && s->comm->ctx != s->ctx)
        dro__fail(s->ctx, status, "%s", s->comm->ctx->error);
    if (status != DRO_OK)
        memcpy(s->error, s->ctx->error, sizeof s->error);
    return status;
}

/* Sends this rank's block and status to all, and receives theirs; the first failure of any rank is
 * that of all. */
dro_status dro__spread_gather(dro_spread *s, dro_status status)
{
    if (!s->comm) {
        memcpy(s->blocks, s->block, (size_t)s->sizes[0]);
        return status;
    }
    char text[DRO__ERROR_SIZE];
    memcpy(text, s->ctx->error, sizeof text);
    dro__head head = dro__comm_head(s->comm, status);
    memcpy(s->block, &head, sizeof head);
    s->of_comm = true;
    DRO_TRY(dro__comm_gather(s->comm, s->block, s->blocks, s->sizes));
    DRO_TRY(dro__comm_heads(s->comm, s->blocks, s->offsets, text));
    s->of_comm = false;
    return DRO_OK;
}

const char *dro__spread_error(const dro_spread *s)
{
    return s ? s->error : "";
}

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    const dro_spread *s = user;
    return s->mine.labels(s->mine.user, ids, count, classes, groups);
}

static void accept(void *user)
{
    const dro_spread *s = user;
    for (int k = 0; k < s->own_slices; k++) {
        const slice *one = &s->slices[k];
        if (one->part_count && one->index[0] == 0)
            one->problem->accept(one->problem->user);
    }
}

/* ---- evaluating ---- */

static void run_slice(void *task, int k)
{
    dro_spread *s = task;
    slice *one = &s->slices[k];
    const dro_problem *p = one->problem;
    float *grads[PARTS] = {NULL};
    one->status = DRO_OK;
    for (int i = 0; s->back && i < one->part_count; i++)
        grads[i] = s->options.shards ? one->grads[one->index[i]] : s->grads[one->index[i]];
    if (one->part_count && s->back)
        one->status = p->backward(p->user, s->w, one->parts, one->part_count, one->coef, grads);
    else if (one->part_count)
        one->status = p->forward(p->user, s->w, one->parts, one->part_count, one->losses);
}

static dro_status run(dro_spread *s)
{
    if (s->options.team)
        dro__team_run(s->options.team, run_slice, s);
    else
        for (int k = 0; k < s->own_slices; k++)
            run_slice(s, k);
    for (int k = 0; k < s->own_slices; k++)
        if (s->slices[k].status != DRO_OK && s->options.contexts)
            return dro__fail(s->ctx, s->slices[k].status, "%s", s->options.contexts[k]->error);
        else if (s->slices[k].status != DRO_OK)
            return s->slices[k].status;
    return dro__team_failed(s->options.team) ? DRO_ERR_STATE : DRO_OK;
}

/* The losses of this rank's slices into its block: part 0, then part 1. */
static void place_losses(const dro_spread *s)
{
    float *out = (float *)(void *)(s->block + sizeof(dro__head));
    for (int p = 0; p < s->call_parts; p++)
        for (int k = 0; k < s->own_slices; k++) {
            const slice *one = &s->slices[k];
            const float *from = one->losses;
            for (int i = 0; i < one->part_count; from += one->parts[i++].count)
                if (one->index[i] == p) {
                    memcpy(out, from, one->parts[i].count * sizeof *out);
                    out += one->parts[i].count;
                }
        }
}

static void take_losses(const dro_spread *s, const dro_batch *parts, float *losses)
{
    for (int r = 0; r < s->ranks; r++) {
        dro_comm like = {.rank = r, .size = s->ranks};
        const char *from = s->blocks + s->offsets[r] + sizeof(dro__head);
        float *to = losses;
        for (int p = 0; p < s->call_parts; to += parts[p++].count) {
            size_t first, end;
            dro__spread_slice(&like, s->options.shards, parts[p].count, &first, &end);
            memcpy(to + first, from, (end - first) * sizeof *to);
            from += (end - first) * sizeof *to;
        }
    }
}

dro_status dro__spread_check(const dro_spread *s, const dro_batch *parts, int part_count)
{
    for (int p = 0; p < part_count && s->options.together; p++)
        if (parts[p].count < (size_t)s->all_slices)
            return dro__fail(s->ctx, DRO_ERR_RANGE,
                             "a batch of %zu examples over %d slices: batch norm over all of them "
                             "needs an example in each",
                             parts[p].count, s->all_slices);
    return DRO_OK;
}

/* Where slices synchronise, the others wait in a batch norm for a rank that has failed alone: it
 * cannot meet them in a gather. */
static void leave_others(const dro_spread *s, dro_status status)
{
    if (status != DRO_OK && s->options.together)
        dro_comm_fail(s->comm, s->ctx->error);
}

static dro_status evaluate(dro_spread *s, const dro_batch *parts, float *losses)
{
    size_t total = 0;
    for (int p = 0; p < s->call_parts; p++)
        total += parts[p].count;
    DRO_TRY(dro__spread_check(s, parts, s->call_parts));
    DRO_TRY(dro__spread_lay_out(s, parts, s->call_parts, sizeof(float)));
    dro_status status = make_slices(s, total);
    for (int k = 0; status == DRO_OK && k < s->own_slices; k++)
        status = dro__spread_fill(s, k, parts, s->call_parts);
    if (status == DRO_OK)
        status = run(s);
    if (status == DRO_OK)
        place_losses(s);
    leave_others(s, status);
    DRO_TRY(dro__spread_gather(s, status));
    take_losses(s, parts, losses);
    return DRO_OK;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro_spread *s = user;
    s->w = w;
    s->back = s->of_comm = false;
    s->call_parts = part_count;
    return dro__spread_remember(s, evaluate(s, parts, losses));
}

/* ---- gradients ---- */

static void place_coef(dro_spread *s, const dro_batch *parts, const float *coef)
{
    for (int k = 0; k < s->own_slices; k++) {
        slice *one = &s->slices[k];
        float *to = one->coef;
        for (int i = 0; i < one->part_count; to += one->parts[i++].count) {
            size_t first, end, at = one->index[i] ? parts[0].count : 0;
            slice_at(s, k, parts[one->index[i]].count, &first, &end);
            memcpy(to, coef + at + first, (end - first) * sizeof *to);
        }
    }
}

typedef struct adding {
    const dro_spread *s;
    int part;
    float *to;
} adding;

enum { PIECE = 1 << 14 };

/* The tree over this rank's shards, for some elements; -0 becomes 0 first. */
static void add_piece(void *arg, size_t piece)
{
    const adding *a = arg;
    const dro_spread *s = a->s;
    size_t from = piece * PIECE, end = from + PIECE < s->mine.dim ? from + PIECE : s->mine.dim;
    for (int k = 0; k < s->own_slices; k++)
        for (size_t i = from; i < end; i++)
            s->slices[k].grads[a->part][i] += 0.0f;
    for (int d = 1; d < s->own_slices; d *= 2)
        for (int k = 0; k < s->own_slices; k += 2 * d) {
            float *to = s->slices[k].grads[a->part];
            const float *other = s->slices[k + d].grads[a->part];
            for (size_t i = from; i < end; i++)
                to[i] += other[i];
        }
    memcpy(a->to + from, s->slices[0].grads[a->part] + from, (end - from) * sizeof *a->to);
}

static void add_shards(const dro_spread *s, int part, float *to)
{
    adding a = {s, part, to};
    dro__pool_run(s->ctx->pool, (s->mine.dim + PIECE - 1) / PIECE, add_piece, &a);
}

/* Slices without examples of a part have no gradient there. */
static void clear_empty(dro_spread *s, float *const *grads)
{
    for (int k = 0; k < s->own_slices; k++)
        for (int p = 0; p < s->call_parts; p++) {
            const slice *one = &s->slices[k];
            float *grad = s->options.shards ? one->grads[p] : grads[p];
            s->empty[p] = !(one->part_count > 0 && one->index[0] == p) &&
                          !(one->part_count > 1 && one->index[1] == p);
            if (s->empty[p] && !s->device)
                memset(grad, 0, s->mine.dim * sizeof *grad);
        }
}

/* Gradients of a device. A part that this rank has no example of counts as 0. */
static dro_status sum_device(dro_spread *s, int part, float *grad)
{
    dro_comm *c = s->comm;
    size_t dim = s->mine.dim, bytes = dim * sizeof *grad;
    bool direct = atomic_load(&c->device);
    if ((!direct || s->empty[part]) && !grow((void **)&c->staging, &c->staging_capacity, bytes))
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a gradient of %zu", dim);
    if (s->empty[part])
        memset(c->staging, 0, bytes);
    else if (!direct)
        DRO_TRY(dro__copy_out(s->ctx, c->staging, grad, bytes));
    if (direct && s->empty[part])
        DRO_TRY(dro__copy_in(s->ctx, grad, c->staging, bytes));
    s->of_comm = true;
    DRO_TRY(direct ? dro__comm_sum_device(c, grad, dim) : dro__comm_sum(c, c->staging, dim));
    s->of_comm = false;
    return direct ? DRO_OK : dro__copy_in(s->ctx, grad, c->staging, bytes);
}

static dro_status sum_ranks(dro_spread *s, int part, float *grad)
{
    dro_comm *c = s->comm;
    if (!c || (c->size == 1 && !c->device))
        return DRO_OK;
    if (s->device)
        return sum_device(s, part, grad);
    s->of_comm = true;
    return dro__comm_sum(c, grad, s->mine.dim);
}

static dro_status differentiate(dro_spread *s, const dro_batch *parts, const float *coef,
                                float *const *grads)
{
    place_coef(s, parts, coef);
    clear_empty(s, grads);
    DRO_TRY(run(s));
    for (int p = 0; p < s->call_parts; p++) {
        if (s->options.shards)
            add_shards(s, p, grads[p]);
        DRO_TRY(sum_ranks(s, p, grads[p]));
    }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    dro_spread *s = user;
    s->w = w;
    s->of_comm = false;
    s->back = true;
    s->grads = grads;
    s->call_parts = part_count;
    return dro__spread_remember(s, differentiate(s, parts, coef, grads));
}

/* ---- life ---- */

void dro_comm_problem_free(dro_spread *s)
{
    if (!s)
        return;
    free_slices(s);
    for (int k = 0; s->slices && k < s->own_slices; k++)
        for (int p = 0; p < PARTS; p++)
            dro__free(s->slices[k].grads[p]);
    for (int k = 0; k < RING; k++) {
        dro__free(s->ring[k].ids);
        dro__free(s->ring[k].classes);
        dro__free(s->ring[k].groups);
    }
    dro__free(s->slices);
    dro__free(s->sizes);
    dro__free(s->block);
    dro__free(s->blocks);
    dro__free(s);
}

static dro_status make(dro_spread *s)
{
    s->slices = dro__alloc((size_t)s->own_slices, sizeof *s->slices);
    s->sizes = dro__alloc(2 * (size_t)s->ranks, sizeof *s->sizes);
    s->offsets = s->sizes ? s->sizes + s->ranks : NULL;
    bool complete = s->slices && s->sizes;
    for (int k = 0; complete && k < s->own_slices; k++) {
        slice *one = &s->slices[k];
        one->problem = s->options.shards ? &s->options.problems[k] : &s->mine;
        for (int p = 0; complete && s->options.shards && p < PARTS; p++) {
            one->grads[p] = dro__alloc(s->mine.dim, sizeof(float));
            complete = one->grads[p] != NULL;
        }
    }
    return complete ? DRO_OK
                    : dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for %d gradients of %zu",
                                PARTS * s->own_slices, s->mine.dim);
}

static dro_status check(const dro_spread *s)
{
    int shards = s->options.shards, ranks = s->ranks;
    if (s->mine.n <= 0 && s->mine.draw && !s->options.whole)
        return dro__fail(s->ctx, DRO_ERR_UNSUPPORTED,
                         "a stream is not cut into slices: every rank reads its own rows");
    if (!shards)
        return DRO_OK;
    if (s->device)
        return dro__fail(s->ctx, DRO_ERR_UNSUPPORTED,
                         "exact sums are those of the backends cpu and ref");
    if (shards % ranks || (ranks & (ranks - 1)))
        return dro__fail(s->ctx, DRO_ERR_RANGE,
                         "exact sums over %d shards: expected 1, 2, 4, .. %d ranks, there are %d",
                         shards, shards, ranks);
    return DRO_OK;
}

dro_status dro__spread_create(dro_comm *comm, dro_context *ctx, const dro_problem *mine,
                              const dro__spread_options *options, dro_spread **spread,
                              dro_problem *problem)
{
    *spread = NULL;
    dro_spread *s = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a problem over ranks");
    s->comm = comm;
    s->ctx = ctx;
    s->mine = *mine;
    s->options = *options;
    s->device = mine->memory == DRO_MEMORY_BACKEND && ctx->backend->host_alloc;
    s->rank = dro_comm_rank(comm);
    s->ranks = dro_comm_size(comm);
    s->all_slices = options->shards ? options->shards : s->ranks;
    s->own_slices = s->all_slices / s->ranks;
    dro_status status = check(s);
    if (status == DRO_OK)
        status = make(s);
    if (status != DRO_OK) {
        dro_comm_problem_free(s);
        return status;
    }
    *problem = *mine;
    problem->user = s;
    problem->forward = forward;
    problem->backward = backward;
    problem->draw = mine->draw ? dro__spread_draw : NULL;
    problem->gather = mine->gather ? dro__spread_given : NULL;
    problem->labels = mine->labels ? labels : NULL;
    problem->accept = mine->accept ? accept : NULL;
    if (mine->library && mine->library->async)
        problem->library = dro__spread_abilities(s);
    *spread = s;
    return DRO_OK;
}

dro_status dro_comm_problem(dro_comm *comm, dro_context *ctx, const dro_problem *mine,
                            dro_spread **spread, dro_problem *problem)
{
    if (!ctx || !mine || !spread || !problem)
        return DRO_ERR_ARGUMENT;
    dro_problem own;
    DRO_TRY(dro__take_struct(ctx, "dro_problem", mine, &own, sizeof own));
    return dro__spread_create(comm, ctx, &own, &(dro__spread_options){0}, spread, problem);
}
