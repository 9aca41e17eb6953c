/* A dro_problem whose batches are evaluated in pieces, for batches that do not fit in memory.
 *
 * forward evaluates one piece after the other and keeps only the losses, so that the optimiser
 * weighs the whole batch together. backward evaluates each piece again and sums the pieces'
 * gradients, with the coefficients of the whole batch. forward goes from the last piece to the
 * first, backward from the first to the last: so the first piece need not be evaluated twice, and a
 * batch of one piece costs nothing extra.
 *
 * The result is that of the whole batch up to the order of its sums, where the losses of examples
 * do not depend on each other. Batch norm uses the statistics of each piece; the running statistics
 * are updated from the last piece. */
#include "comm.h"
#include "full.h"

#include <string.h>

enum { PARTS = 2 };

/* Piece k of a call. */
typedef struct piece {
    dro_batch parts[PARTS]; /* without the empty ones */
    int part_count;
    int index[PARTS];    /* which part of the call each is */
    size_t place[PARTS]; /* where the losses of each begin in those of the call */
} piece;

struct dro__pieces {
    dro_context *ctx;
    const dro__backend *be; /* of the vectors */
    dro_problem mine;
    dro__pieces_options options;
    size_t most;          /* examples of a part in a piece, 0: all */
    bool ready;           /* the first piece was evaluated last */
    float *losses, *coef; /* (capacity) of a piece */
    size_t capacity;
    float *grads[PARTS]; /* (dim) of a piece, in the memory of `mine` */
};

/* ---- pieces ---- */

static size_t largest(const dro_batch *parts, int part_count)
{
    size_t most = 0;
    for (int p = 0; p < part_count; p++)
        most = parts[p].count > most ? parts[p].count : most;
    return most;
}

static size_t count_pieces(const dro__pieces *s, const dro_batch *parts, int part_count)
{
    size_t most = largest(parts, part_count);
    return s->most && s->most < most ? (most + s->most - 1) / s->most : 1;
}

/* Examples first .. first + count - 1 of a batch. */
static dro_status cut(const dro__pieces *s, const dro_batch *b, size_t first, size_t count,
                      dro_batch *part)
{
    if (count == b->count)
        *part = *b;
    else if (!b->handle)
        dro__batch_cut(b, first, count, part);
    else if (s->options.cut)
        s->options.cut(s->options.cut_user, b, first, count, part);
    else
        return dro__fail(s->ctx, DRO_ERR_UNSUPPORTED, "this problem's batches cannot be cut");
    return DRO_OK;
}

/* Piece k of `of`: about as many examples in each, and some of every part in the last. */
static dro_status take_piece(const dro__pieces *s, const dro_batch *parts, int part_count, size_t k,
                             size_t of, piece *one)
{
    size_t place = 0;
    one->part_count = 0;
    for (int p = 0; p < part_count; place += parts[p++].count) {
        size_t first = dro__cut_at(parts[p].count, k, of);
        size_t count = dro__cut_at(parts[p].count, k + 1, of) - first;
        int at = one->part_count;
        if (count == 0)
            continue;
        one->index[at] = p;
        one->place[at] = place + first;
        DRO_TRY(cut(s, &parts[p], first, count, &one->parts[at]));
        one->part_count++;
    }
    return DRO_OK;
}

static dro_status make_buffers(dro__pieces *s, size_t count)
{
    if (count <= s->capacity)
        return DRO_OK;
    dro__free(s->losses);
    dro__free(s->coef);
    s->losses = dro__alloc(count, sizeof(float));
    s->coef = dro__alloc(count, sizeof(float));
    s->capacity = s->losses && s->coef ? count : 0;
    return s->capacity ? DRO_OK
                       : dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", count);
}

static dro_status make_gradients(dro__pieces *s, int part_count)
{
    for (int p = 0; p < part_count; p++) {
        if (!s->grads[p])
            s->grads[p] = s->be->alloc(s->mine.dim, sizeof(float));
        if (!s->grads[p])
            return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a gradient of %zu",
                             s->mine.dim);
    }
    return DRO_OK;
}

/* Whether the call can be tried again in smaller pieces. */
static bool halve(dro__pieces *s, const dro_batch *parts, int part_count, dro_status status)
{
    size_t all = largest(parts, part_count), most = s->most && s->most < all ? s->most : all;
    if (status != DRO_ERR_MEMORY || s->options.most || most < 2)
        return false;
    s->most = (most + 1) / 2;
    s->ready = false;
    return true;
}

/* ---- evaluating ---- */

static dro_status evaluate(dro__pieces *s, const float *w, const piece *one, float *losses)
{
    size_t total = 0;
    for (int i = 0; i < one->part_count; i++)
        total += one->parts[i].count;
    DRO_TRY(make_buffers(s, total));
    DRO_TRY(s->mine.forward(s->mine.user, w, one->parts, one->part_count, s->losses));
    const float *from = s->losses;
    for (int i = 0; losses && i < one->part_count; from += one->parts[i++].count)
        memcpy(losses + one->place[i], from, one->parts[i].count * sizeof *losses);
    return DRO_OK;
}

static dro_status forward_pieces(dro__pieces *s, const float *w, const dro_batch *parts,
                                 int part_count, float *losses)
{
    size_t of = count_pieces(s, parts, part_count);
    s->ready = false;
    if (of == 1)
        return s->mine.forward(s->mine.user, w, parts, part_count, losses);
    for (size_t k = of; k-- > 0;) {
        piece one;
        DRO_TRY(take_piece(s, parts, part_count, k, of, &one));
        DRO_TRY(evaluate(s, w, &one, losses));
    }
    s->ready = true;
    return DRO_OK;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro__pieces *s = user;
    dro_status status;
    do
        status = forward_pieces(s, w, parts, part_count, losses);
    while (halve(s, parts, part_count, status));
    return status;
}

/* ---- gradients ---- */

/* The gradient of one piece, written to grads, or added where `begun` says that the part has one
 * already. */
static dro_status differentiate(dro__pieces *s, const float *w, const piece *one, const float *coef,
                                float *const *grads, bool *begun)
{
    float *to[PARTS] = {NULL}, *at = s->coef;
    for (int i = 0; i < one->part_count; at += one->parts[i++].count) {
        memcpy(at, coef + one->place[i], one->parts[i].count * sizeof *at);
        to[i] = begun[one->index[i]] ? s->grads[one->index[i]] : grads[one->index[i]];
    }
    DRO_TRY(s->mine.backward(s->mine.user, w, one->parts, one->part_count, s->coef, to));
    for (int i = 0; i < one->part_count; i++) {
        if (begun[one->index[i]])
            dro__add(s->be, s->ctx->pool, s->mine.dim, grads[one->index[i]], to[i]);
        begun[one->index[i]] = true;
    }
    return DRO_OK;
}

static dro_status backward_pieces(dro__pieces *s, const float *w, const dro_batch *parts,
                                  int part_count, const float *coef, float *const *grads)
{
    size_t of = count_pieces(s, parts, part_count);
    bool begun[PARTS] = {false};
    if (of == 1)
        return s->mine.backward(s->mine.user, w, parts, part_count, coef, grads);
    DRO_TRY(make_gradients(s, part_count));
    for (size_t k = 0; k < of; k++) {
        piece one;
        DRO_TRY(take_piece(s, parts, part_count, k, of, &one));
        if (!s->ready)
            DRO_TRY(evaluate(s, w, &one, NULL));
        s->ready = false;
        DRO_TRY(differentiate(s, w, &one, coef, grads, begun));
    }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    dro__pieces *s = user;
    dro_status status;
    do
        status = backward_pieces(s, w, parts, part_count, coef, grads);
    while (halve(s, parts, part_count, status));
    return status;
}

/* ---- the other callbacks are those of `mine` ---- */

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    const dro__pieces *s = user;
    return s->mine.draw(s->mine.user, position, count, batch);
}

static dro_status gather(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    const dro__pieces *s = user;
    return s->mine.gather(s->mine.user, ids, count, batch);
}

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    const dro__pieces *s = user;
    return s->mine.labels(s->mine.user, ids, count, classes, groups);
}

static void accept(void *user)
{
    const dro__pieces *s = user;
    s->mine.accept(s->mine.user);
}

/* ---- life ---- */

dro_status dro__pieces_create(dro_context *ctx, const dro_problem *mine,
                              const dro__pieces_options *options, dro__pieces **pieces,
                              dro_problem *problem)
{
    dro__pieces *s = *pieces = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a problem in pieces");
    s->ctx = ctx;
    s->mine = *mine;
    s->be = dro__backend_for(ctx, mine->memory == DRO_MEMORY_HOST);
    s->options = *options;
    s->most = options->most;
    *problem = s->mine;
    problem->user = s;
    problem->forward = forward;
    problem->backward = backward;
    problem->draw = s->mine.draw ? draw : NULL;
    problem->gather = s->mine.gather ? gather : NULL;
    problem->labels = s->mine.labels ? labels : NULL;
    problem->accept = s->mine.accept ? accept : NULL;
    if (options->most && s->mine.library && s->mine.library->async)
        problem->library = NULL; /* steps are driven by the host */
    return DRO_OK;
}

void dro__pieces_free(dro__pieces *s)
{
    if (!s)
        return;
    for (int p = 0; p < PARTS; p++)
        s->be->free(s->grads[p]);
    dro__free(s->losses);
    dro__free(s->coef);
    dro__free(s);
}

size_t dro__pieces_most(const dro__pieces *s)
{
    return s ? s->most : 0;
}
