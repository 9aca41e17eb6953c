/* Evaluates a whole split in evaluation mode, without augmentation. */
#include "train.h"

#include <math.h>
#include <string.h>

dro_status dro__evaluation_create(dro__task *t, int32_t classes, dro__evaluation *e)
{
    int32_t groups = t->info.groups;
    *e = (dro__evaluation){0};
    e->logits = dro__alloc(DRO__EVAL_MOST * t->outputs, sizeof(float));
    e->losses = dro__alloc(DRO__EVAL_MOST, sizeof(float));
    e->class_weights = dro__alloc((size_t)classes + 1, sizeof(double));
    e->group_weights = dro__alloc((size_t)groups + 1, sizeof(double));
    dro_status status = e->logits && e->losses && e->class_weights && e->group_weights
                            ? DRO_OK
                            : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory to evaluate");
    for (int s = 0; s < DRO_SPLITS && status == DRO_OK; s++) {
        status = dro__measure_create(t->ctx, classes, t->info.examples[s], groups, &e->splits[s]);
        e->splits[s].unit = t->data ? t->data->target.scale : 1;
        e->splits[s].decision = (dro__decision){.link = dro__link_of(t), .shift = t->shift};
    }
    if (status != DRO_OK)
        dro__evaluation_free(e);
    return status;
}

void dro__evaluation_free(dro__evaluation *e)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        dro__measure_free(&e->splits[s]);
    dro__free(e->logits);
    dro__free(e->losses);
    dro__free(e->class_weights);
    dro__free(e->group_weights);
    *e = (dro__evaluation){0};
}

/* The results of one batch. */
typedef struct batch_results {
    int64_t first;
    size_t count;
    const float *logits, *losses;
    const bool *unread;
} batch_results;

static void take(dro__task *t, dro__evaluation *e, dro_split split, const batch_results *b)
{
    dro__walk walk = dro__task_walk(t, (dro__range){split, b->first, b->count});
    for (size_t i = 0, end; i < b->count; i = end + 1) { /* runs of examples that were read */
        for (end = i; end < b->count && !b->unread[end]; end++)
            ;
        dro__measure_add(
            &e->splits[split],
            &(dro__measured){.count = end - i,
                             .logits = t->regression ? NULL : b->logits + i * t->outputs,
                             .labels = walk.labels ? walk.labels + i : NULL,
                             .losses = b->losses + i,
                             .groups = walk.groups ? walk.groups + i : NULL,
                             .weights = walk.weights ? walk.weights + i : NULL,
                             .values = t->regression ? b->logits + i : NULL,
                             .targets = walk.targets ? walk.targets + i : NULL});
    }
}

/* ---- divided among ranks: in each round a rank evaluates a contiguous range of batches ---- */

enum { ROUND_FLOATS = 1 << 23 };

typedef struct eval_round {
    int64_t first, end, own_first, own_end; /* examples */
    size_t each;                            /* bytes that an example takes */
    int *sizes, *offsets;                   /* (ranks) bytes that each sends */
    char *mine, *all;
} eval_round;

/* Where the share of a rank begins, in examples. */
static int64_t share_at(const eval_round *r, int64_t step, int rank, int ranks)
{
    int64_t batches = (r->end - r->first + step - 1) / step;
    int64_t at = r->first + batches * rank / ranks * step;
    return at < r->end ? at : r->end;
}

static void lay_out(eval_round *r, int64_t step, const dro_comm *c)
{
    for (int k = 0, at = 0; k < c->size; at += r->sizes[k++]) {
        int64_t count = share_at(r, step, k + 1, c->size) - share_at(r, step, k, c->size);
        r->sizes[k] = (int)(sizeof(dro__head) + (size_t)count * r->each);
        r->offsets[k] = at;
    }
    r->own_first = share_at(r, step, c->rank, c->size);
    r->own_end = share_at(r, step, c->rank + 1, c->size);
}

/* An example is sent as its logits, its loss, and whether it could be read. */
static dro_status own_share(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                            const eval_round *r, const dro__poll *poll)
{
    int64_t step = (int64_t)t->feed[split].batch;
    float *out = (float *)(void *)(r->mine + sizeof(dro__head));
    for (int64_t at = r->own_first; at < r->own_end; at += step) {
        size_t count = (size_t)(r->own_end - at < step ? r->own_end - at : step);
        DRO_TRY(dro__task_evaluate(t, (dro__range){split, at, count}, w, e->logits, e->losses));
        for (size_t i = 0; i < count; i++, out += t->outputs + 2) {
            memcpy(out, e->logits + i * t->outputs, t->outputs * sizeof *out);
            out[t->outputs] = e->losses[i];
            out[t->outputs + 1] = t->unread[i];
        }
        double share = (double)(at - r->own_first) / (double)(r->own_end - r->own_first);
        if (poll->ask && poll->ask(poll->user, share))
            poll->comm->wants |= DRO__WANT_STOP;
    }
    return DRO_OK;
}

/* All that a rank has sent, batch by batch. */
static void take_share(dro__task *t, dro__evaluation *e, dro_split split, const float *in,
                       const int64_t range[2])
{
    int64_t step = (int64_t)t->feed[split].batch;
    bool unread[DRO__EVAL_MOST];
    for (int64_t at = range[0]; at < range[1]; at += step) {
        size_t count = (size_t)(range[1] - at < step ? range[1] - at : step);
        for (size_t i = 0; i < count; i++, in += t->outputs + 2) {
            memcpy(e->logits + i * t->outputs, in, t->outputs * sizeof *in);
            e->losses[i] = in[t->outputs];
            unread[i] = in[t->outputs + 1] != 0;
        }
        take(t, e, split, &(batch_results){at, count, e->logits, e->losses, unread});
    }
}

static dro_status run_round(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                            eval_round *r, const dro__poll *poll)
{
    int64_t step = (int64_t)t->feed[split].batch;
    dro_comm *c = poll->comm;
    char why[DRO__ERROR_SIZE];
    lay_out(r, step, c);
    if (r->first == 0)
        t->feed[split].start = r->own_first;
    dro_status status = own_share(t, e, split, w, r, poll);
    memcpy(why, t->ctx->error, sizeof why);
    dro__head head = dro__comm_head(c, status);
    memcpy(r->mine, &head, sizeof head);
    DRO_TRY(dro__comm_gather(c, r->mine, r->all, r->sizes));
    DRO_TRY(dro__comm_heads(c, r->all, r->offsets, why));
    for (int k = 0; k < c->size; k++) {
        int64_t range[2] = {share_at(r, step, k, c->size), share_at(r, step, k + 1, c->size)};
        const char *from = r->all + r->offsets[k] + sizeof(dro__head);
        take_share(t, e, split, (const float *)(const void *)from, range);
    }
    return DRO_OK;
}

static dro_status evaluate_shared(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                                  const dro__poll *poll)
{
    int64_t n = t->feed[split].count, step = (int64_t)t->feed[split].batch;
    size_t ranks = (size_t)poll->comm->size, each = (t->outputs + 2) * sizeof(float);
    int64_t most = (ROUND_FLOATS / (int64_t)(t->outputs + 2) + step) / step * step;
    most = most < n ? most : n;
    size_t bytes = (size_t)most * each;
    eval_round r = {.each = each,
                    .sizes = dro__alloc(2 * ranks, sizeof(int)),
                    .mine = dro__alloc(bytes + sizeof(dro__head), 1),
                    .all = dro__alloc(bytes + ranks * sizeof(dro__head), 1)};
    r.offsets = r.sizes ? r.sizes + ranks : NULL;
    dro_status status = r.sizes && r.mine && r.all
                            ? DRO_OK
                            : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory to evaluate");
    for (; status == DRO_OK && r.first < n; r.first = r.end) {
        r.end = r.first + most < n ? r.first + most : n;
        status = run_round(t, e, split, w, &r, poll);
        if (poll->comm->decided & DRO__WANT_STOP)
            break;
    }
    dro__free(r.sizes);
    dro__free(r.mine);
    dro__free(r.all);
    return status;
}

dro_status dro__evaluate_split(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                               double r, const dro__poll *poll)
{
    int64_t n = t->feed[split].count, step = (int64_t)t->feed[split].batch;
    if (poll && dro_comm_size(poll->comm) > 1) {
        DRO_TRY(evaluate_shared(t, e, split, w, poll));
        return dro__measure_finish(t->ctx, &e->splits[split], r);
    }
    for (int64_t first = 0; first < n; first += step) {
        size_t count = (size_t)(n - first < step ? n - first : step);
        DRO_TRY(dro__task_evaluate(t, (dro__range){split, first, count}, w, e->logits, e->losses));
        take(t, e, split, &(batch_results){first, count, e->logits, e->losses, t->unread});
        if (poll && poll->ask(poll->user, (double)(first + (int64_t)count) / (double)n))
            return DRO_OK;
    }
    return dro__measure_finish(t->ctx, &e->splits[split], r);
}
