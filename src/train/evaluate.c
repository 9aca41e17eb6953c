/* A split from end to end in evaluation mode, without augmentation. */
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
        e->splits[s].link = dro__link_of(t);
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

/* One batch, as digests. */
static dro_status digest_batch(dro__task *t, dro__evaluation *e, dro_split split, int64_t first,
                               const float *w, dro__digest *digests)
{
    int64_t n = t->info.examples[split];
    size_t step = t->shelf[split].batch,
           count = n - first < (int64_t)step ? (size_t)(n - first) : step;
    const int32_t *labels;
    DRO_TRY(dro__task_evaluate(t, split, first, count, w, e->logits, e->losses, &labels));
    for (size_t i = 0; i < count; i++) {
        const float *logits = t->regression || !labels ? NULL : e->logits + i * t->outputs;
        dro__measure_digest(&e->splits[split], logits, e->losses + i, &digests[i]);
        digests[i].read = !t->unread[i];
    }
    return DRO_OK;
}

/* Examples first .. end - 1 of a split, in order, into its figures. */
static void take(dro__task *t, dro__evaluation *e, dro_split split, int64_t first, int64_t end,
                 const dro__digest *digests)
{
    const dro_examples *x = &t->shelf[split].examples;
    for (int64_t i = first; i < end; i++, digests++) {
        int32_t label = x->labels ? x->labels[i] : -1;
        if (label >= 0 && t->label_map)
            label = t->label_map[label];
        if (digests->read)
            dro__measure_take(&e->splits[split], digests, label, x->groups ? x->groups[i] : -1,
                              true);
    }
}

/* A round is so many examples, of which each rank has a share of neighbouring batches. */
enum { ROUND = 1 << 18 };

typedef struct eval_round {
    int64_t first, end; /* examples */
    int64_t own_first, own_end;
    int *sizes, *offsets; /* (ranks) bytes that each sends */
    char *mine, *all;
} eval_round;

/* Where the share of a rank begins, in examples. */
static int64_t share_at(const eval_round *r, size_t step, int rank, int ranks)
{
    int64_t batches = (r->end - r->first + (int64_t)step - 1) / (int64_t)step;
    int64_t at = r->first + batches * rank / ranks * (int64_t)step;
    return at < r->end ? at : r->end;
}

static void lay_out(eval_round *r, size_t step, const dro_comm *c)
{
    for (int k = 0, at = 0; k < c->size; at += r->sizes[k++]) {
        int64_t count = share_at(r, step, k + 1, c->size) - share_at(r, step, k, c->size);
        r->sizes[k] = (int)(sizeof(dro__head) + (size_t)count * sizeof(dro__digest));
        r->offsets[k] = at;
    }
    r->own_first = share_at(r, step, c->rank, c->size);
    r->own_end = share_at(r, step, c->rank + 1, c->size);
}

static dro_status run_round(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                            eval_round *r, const dro__poll *poll)
{
    size_t step = t->shelf[split].batch;
    dro_comm *c = poll->comm;
    dro__digest *out = (dro__digest *)(void *)(r->mine + sizeof(dro__head));
    dro_status status = DRO_OK;
    lay_out(r, step, c);
    if (r->first == 0)
        t->shelf[split].start = r->own_first;
    for (int64_t at = r->own_first; status == DRO_OK && at < r->own_end; at += (int64_t)step) {
        status = digest_batch(t, e, split, at, w, out + (at - r->own_first));
        if (poll->ask && poll->ask(poll->user))
            c->wants |= DRO__WANT_STOP;
    }
    char why[DRO__ERROR_SIZE];
    memcpy(why, t->ctx->error, sizeof why);
    dro__head head = dro__comm_head(c, status);
    memcpy(r->mine, &head, sizeof head);
    DRO_TRY(dro__comm_gather(c, r->mine, r->all, r->sizes));
    DRO_TRY(dro__comm_heads(c, r->all, r->offsets, why));
    for (int k = 0; k < c->size; k++)
        take(t, e, split, share_at(r, step, k, c->size), share_at(r, step, k + 1, c->size),
             (const dro__digest *)(const void *)(r->all + r->offsets[k] + sizeof(dro__head)));
    return DRO_OK;
}

static dro_status evaluate_shared(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                                  const dro__poll *poll)
{
    int64_t n = t->info.examples[split], step = (int64_t)t->shelf[split].batch;
    size_t ranks = (size_t)poll->comm->size;
    size_t most = ((size_t)(n < ROUND ? n : ROUND) + (size_t)step) * sizeof(dro__digest);
    eval_round r = {.sizes = dro__alloc(2 * ranks, sizeof(int)),
                    .mine = dro__alloc(most + sizeof(dro__head), 1),
                    .all = dro__alloc(most + ranks * sizeof(dro__head), 1)};
    r.offsets = r.sizes ? r.sizes + ranks : NULL;
    dro_status status = r.sizes && r.mine && r.all
                            ? DRO_OK
                            : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory to evaluate");
    for (; status == DRO_OK && r.first < n; r.first = r.end) {
        r.end = r.first + (ROUND + step - 1) / step * step;
        r.end = r.end < n ? r.end : n;
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
    dro__digest digests[DRO__EVAL_MOST];
    int64_t n = t->info.examples[split], step = (int64_t)t->shelf[split].batch;
    if (poll && dro_comm_size(poll->comm) > 1) {
        DRO_TRY(evaluate_shared(t, e, split, w, poll));
        return dro__measure_finish(t->ctx, &e->splits[split], r);
    }
    for (int64_t first = 0; first < n; first += step) {
        DRO_TRY(digest_batch(t, e, split, first, w, digests));
        take(t, e, split, first, n - first < step ? n : first + step, digests);
        if (poll && poll->ask(poll->user))
            return DRO_OK;
    }
    return dro__measure_finish(t->ctx, &e->splits[split], r);
}
