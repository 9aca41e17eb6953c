/* What every optimiser does the same way: draw batches, call the problem, refuse bad numbers. */
#include "opt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM_ORDER = 0x6f72, STREAM_WEIGHT = 0x7765 };

/* ---- draws ---- */

static bool wants_labels(const dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    bool tilted = set->tilt >= DRO__TILT_CLASS || set->switch_tilt > DRO__TILT_CLASS;
    return o->cls->robust && (tilted || (set->sam > 0 && set->sam_over));
}

static bool library_draws(const dro_optimizer *o)
{
    return o->is_composite ? !o->composite.draw : !o->problem.draw;
}

dro_status dro__weights_create(dro_optimizer *o)
{
    const float *weights = o->is_composite ? NULL : o->problem.example_weights;
    if (!weights)
        return DRO_OK;
    if (o->cls->needs_n || o->n == 0)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         o->n ? "%s keeps a weight of its own for every example and takes no "
                                "example weights: use recover, cover, sgd or lbfgs"
                              : "%s: example weights need a known number of examples",
                         o->cls->name);
    DRO_TRY(dro__array(o, (size_t)o->n + 1, sizeof(double), 0, &o->weight_sums));
    if (!dro__weights_sum(weights, o->n, o->weight_sums))
        return dro__fail(o->ctx, DRO_ERR_NUMBER,
                         "example weights: expected finite numbers of 0 or more, not all 0");
    return DRO_OK;
}

dro_status dro__slots_create(dro_optimizer *o, size_t most)
{
    o->slot_size = most;
    bool ids = library_draws(o) || o->cls->needs_n;
    for (int k = 0; ids && k < DRO__SLOTS; k++) {
        o->slot_ids[k] = dro__alloc(most, sizeof(int64_t));
        if (!o->slot_ids[k])
            return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for batches of %zu", most);
        if (o->is_composite || !o->problem.labels || !wants_labels(o))
            continue;
        o->slot_classes[k] = dro__alloc(most, sizeof(int32_t));
        o->slot_groups[k] = dro__alloc(most, sizeof(int32_t));
        if (!o->slot_classes[k] || !o->slot_groups[k])
            return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for batches of %zu", most);
    }
    return DRO_OK;
}

/* The ids at position .. position + count - 1 of the library's own order. */
static void fill_ids(const dro_optimizer *o, uint64_t position, size_t count, int64_t *ids)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    uint64_t seed = (uint64_t)set->seed, n = (uint64_t)o->n;
    if (n == 0 || set->order == DRO__ORDER_SEQUENTIAL) {
        uint64_t at = n ? position % n : position;
        for (size_t i = 0; i < count; i++) {
            ids[i] = (int64_t)at++;
            at = n && at == n ? 0 : at;
        }
    } else if (set->order == DRO__ORDER_UNIFORM) {
        for (size_t i = 0; i < count; i++)
            ids[i] = (int64_t)dro__random_below(seed, STREAM_ORDER, position + i, n);
    } else {
        for (size_t i = 0; i < count; i++) {
            uint64_t epoch = (position + i) / n;
            ids[i] = (int64_t)dro__permute(n, dro__random(seed, STREAM_ORDER, epoch),
                                           (position + i) % n);
        }
    }
}

/* An epoch goes through the cumulative weights in steps of 1, from a random start: each example is
 * drawn as often as its weight says, rounded up or down. */
static void fill_weighted(const dro_optimizer *o, uint64_t position, size_t count, int64_t *ids)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = position + i,
                 walk = set->order == DRO__ORDER_UNIFORM ? at : at / (uint64_t)o->n;
        double start = dro__random_unit((uint64_t)set->seed, STREAM_WEIGHT, walk);
        ids[i] = dro__weights_pick(o->weight_sums, o->n, (double)ids[i] + start);
    }
}

/* The status of a failed callback; DRO_ERR_END would mean the end of the run. */
static dro_status of_callback(dro_status status)
{
    return status > 0 || status == DRO_ERR_END ? DRO_ERR_CALLBACK : status;
}

/* Fills in classes and groups of a batch whose ids are in a slot. */
static dro_status label_slot(dro_optimizer *o, int slot, dro_batch *batch)
{
    if (!o->slot_classes[slot])
        return DRO_OK;
    const dro_problem *p = &o->problem;
    int32_t *classes = p->classes ? o->slot_classes[slot] : NULL;
    int32_t *groups = p->groups ? o->slot_groups[slot] : NULL;
    batch->classes = classes;
    batch->groups = groups;
    dro_status status = p->labels(p->user, batch->ids, batch->count, classes, groups);
    if (status != DRO_OK)
        return dro__fail(o->ctx, of_callback(status), "the problem's labels callback failed");
    return DRO_OK;
}

dro_status dro__draw_again(dro_optimizer *o, uint64_t position, size_t count, dro_batch *batch)
{
    void *user = o->is_composite ? o->composite.user : o->problem.user;
    int slot = (int)(o->run.draws++ % DRO__SLOTS);
    *batch = (dro_batch){.position = position, .count = count};
    if (!library_draws(o)) {
        dro_status status =
            (o->is_composite ? o->composite.draw : o->problem.draw)(user, position, count, batch);
        bool stream = o->n == 0 && !o->async; /* its last batch may have fewer */
        bool fewer = stream && batch->count > 0 && batch->count < count;
        if (status == DRO_OK && batch->count != count && !fewer)
            return dro__fail(o->ctx, DRO_ERR_CALLBACK, "draw gave %zu examples instead of %zu",
                             batch->count, count);
        if (status != DRO_OK && status != DRO_ERR_END)
            return dro__fail(o->ctx, status > 0 ? DRO_ERR_CALLBACK : status,
                             "the problem's draw callback failed at position %llu",
                             (unsigned long long)position);
        batch->position = position;
        return status;
    }
    int64_t *ids = o->slot_ids[slot];
    fill_ids(o, position, count, ids);
    if (o->weight_sums)
        fill_weighted(o, position, count, ids);
    batch->ids = ids;
    return label_slot(o, slot, batch);
}

dro_status dro__draw_next(dro_optimizer *o, size_t count, dro_batch *batch)
{
    dro_status status = dro__draw_again(o, o->run.position, count, batch);
    if (status == DRO_ERR_END)
        return dro__fail(o->ctx, status, "the stream ended at example %llu",
                         (unsigned long long)o->run.position);
    DRO_TRY(status);
    o->run.position += batch->count;
    o->run.examples += batch->count;
    return DRO_OK;
}

dro_status dro__draw_whole(dro_optimizer *o, size_t count, dro_batch *batch)
{
    DRO_TRY(dro__draw_next(o, count, batch));
    if (batch->count != count)
        return dro__fail(o->ctx, DRO_ERR_END,
                         "the stream ended within a big batch, at example %llu",
                         (unsigned long long)o->run.position);
    return DRO_OK;
}

dro_status dro__gather(dro_optimizer *o, const int64_t *ids, size_t count, dro_batch *batch)
{
    int slot = (int)(o->run.draws++ % DRO__SLOTS);
    *batch = (dro_batch){.position = DRO__GATHERED, .count = count};
    if (!library_draws(o)) {
        if (!o->problem.gather)
            return dro__fail(
                o->ctx, DRO_ERR_UNSUPPORTED,
                "%s asks for examples by id and this data cannot seek: use recover, or "
                "data that can",
                o->cls->name);
        dro_status status = o->problem.gather(o->problem.user, ids, count, batch);
        if (status != DRO_OK)
            return dro__fail(o->ctx, of_callback(status), "the problem's gather callback failed");
        if (batch->count != count)
            return dro__fail(o->ctx, DRO_ERR_CALLBACK, "gather gave %zu examples instead of %zu",
                             batch->count, count);
        batch->position = DRO__GATHERED;
        return DRO_OK;
    }
    memcpy(o->slot_ids[slot], ids, count * sizeof *ids);
    batch->ids = o->slot_ids[slot];
    return label_slot(o, slot, batch);
}

dro_status dro__check_parts(dro_optimizer *o, size_t parts)
{
    size_t most = o->is_composite ? o->composite.max_batch : o->problem.max_batch;
    size_t batch = (size_t)dro__settings_of(o)->batch;
    if (!most || parts * batch <= most)
        return DRO_OK;
    return dro__fail(o->ctx, DRO_ERR_RANGE,
                     "%s evaluates %zu x %zu examples in one call, the problem takes %zu: use a "
                     "smaller batch",
                     o->cls->name, parts, batch, most);
}

size_t dro__chunk(const dro_optimizer *o, size_t want)
{
    size_t most = o->is_composite ? o->composite.max_batch : o->problem.max_batch;
    size_t limit = most ? most : 4096;
    return want < limit ? want : limit;
}

/* ---- evaluations ---- */

dro_status dro__refuse(dro_optimizer *o, const dro_batch *batch)
{
    o->refused = true;
    o->refused_position = batch->position;
    o->refused_count = batch->count;
    return DRO_ERR_NUMBER;
}

dro_status dro__big_size(dro_optimizer *o, size_t *total)
{
    o->big = *total;
    for (int k = 0; k < o->holes; k++)
        if (o->hole[k] >= o->run.position && o->hole[k] - o->run.position < o->big)
            *total -= o->hole_size[k];
    o->sweeping = *total > 0;
    if (*total > 0)
        return DRO_OK;
    dro__fail(o->ctx, DRO_ERR_NUMBER, "every part of a big batch of %zu was skipped: skip it too",
              o->big);
    return dro__refuse(o, &(dro_batch){.position = o->run.position, .count = o->big});
}

dro_status dro__big_skip(dro_optimizer *o)
{
    if (o->refused_count > 4 && o->refused_count * 16 > o->big) {
        o->fine = o->big / 16 > 4 ? o->big / 16 : 4;
        return DRO_OK;
    }
    if (o->holes == DRO__HOLES)
        return dro__fail(o->ctx, DRO_ERR_STATE,
                         "%d parts of a big batch were skipped: no more can be", DRO__HOLES);
    o->hole[o->holes] = o->refused_position;
    o->hole_size[o->holes++] = o->refused_count;
    return DRO_OK;
}

size_t dro__big_next(dro_optimizer *o, size_t *left)
{
    for (int k = 0; k < o->holes; k++)
        if (*left && o->hole[k] == o->run.position) {
            o->run.position += o->hole_size[k];
            *left -= o->hole_size[k];
            k = -1; /* another may begin here */
        }
    size_t size = dro__chunk(o, o->fine && o->fine < *left ? o->fine : *left);
    for (int k = 0; k < o->holes; k++)
        if (o->hole[k] > o->run.position && o->hole[k] - o->run.position < size)
            size = (size_t)(o->hole[k] - o->run.position);
    *left -= size;
    return size;
}

/* It is not known which part failed: the older one is refused, so that skip() reaches both in
 * turn. A problem of the library has said why. */
static dro_status callback_failed(dro_optimizer *o, dro_status status, const char *what,
                                  const dro_batch *batch)
{
    char why[DRO__ERROR_SIZE];
    snprintf(why, sizeof why, "%s", o->ctx->error);
    status = of_callback(status);
    if (batch)
        dro__refuse(o, batch);
    return dro__fail(o->ctx, status, "the problem's %s callback failed at step %llu: %s", what,
                     (unsigned long long)o->run.step, *why ? why : dro_status_text(status));
}

static int64_t first_bad_loss(size_t n, const float *losses)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(losses[i]))
            return (int64_t)i;
    return -1;
}

dro_status dro__check_losses(dro_optimizer *o, const dro_batch *batch, const float *losses)
{
    int64_t bad = first_bad_loss(batch->count, losses);
    char id[40] = "";
    if (bad < 0)
        return DRO_OK;
    if (batch->ids)
        snprintf(id, sizeof id, " (example id %lld)", (long long)batch->ids[bad]);
    dro__fail(o->ctx, DRO_ERR_NUMBER,
              "loss %lld of the batch%s is %g at step %llu: the step is refused and changes "
              "nothing",
              (long long)bad, id, (double)losses[bad], (unsigned long long)o->run.step);
    return dro__refuse(o, batch);
}

dro_status dro__forward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                        float *losses)
{
    dro_status status = o->problem.forward(o->problem.user, w, parts, count, losses);
    if (status != DRO_OK)
        return callback_failed(o, status, "forward", parts);
    for (int k = 0; k < count; k++) {
        DRO_TRY(dro__check_losses(o, &parts[k], losses));
        losses += parts[k].count;
        o->run.evaluations += parts[k].count;
    }
    return DRO_OK;
}

dro_status dro__check_gradient(dro_optimizer *o, const dro_batch *batch, const float *grad,
                               size_t n)
{
    int64_t bad = o->be->first_bad(o->ctx->pool, n, grad);
    if (bad < 0)
        return DRO_OK;
    float value = NAN; /* where it cannot be read */
    o->be->copy_out(&value, grad + bad, sizeof value);
    dro__fail(o->ctx, DRO_ERR_NUMBER,
              "gradient entry %lld is %g at step %llu (batch of %zu at position %llu): the step is "
              "refused and changes nothing",
              (long long)bad, (double)value, (unsigned long long)o->run.step, batch->count,
              (unsigned long long)batch->position);
    return dro__refuse(o, batch);
}

dro_status dro__backward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         const float *coef, float *const *grads)
{
    dro_status status = o->problem.backward(o->problem.user, w, parts, count, coef, grads);
    if (status != DRO_OK)
        return callback_failed(o, status, "backward", parts);
    for (int k = 0; k < count; k++)
        DRO_TRY(dro__check_gradient(o, &parts[k], grads[k], o->dim));
    return DRO_OK;
}

dro_status dro__evaluate(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         double *g, float *const *jacobian)
{
    const dro_composite *c = &o->composite;
    dro_status status = c->evaluate(c->user, w, parts, count, g, jacobian);
    if (status != DRO_OK)
        return callback_failed(o, status, "evaluate", parts);
    for (int k = 0; k < count; k++) {
        for (size_t j = 0; j < c->inner; j++) {
            if (isfinite(g[(size_t)k * c->inner + j]))
                continue;
            dro__fail(o->ctx, DRO_ERR_NUMBER,
                      "g[%zu] is %g at step %llu: the step is refused and changes nothing", j,
                      g[(size_t)k * c->inner + j], (unsigned long long)o->run.step);
            return dro__refuse(o, &parts[k]);
        }
        if (jacobian)
            DRO_TRY(dro__check_gradient(o, &parts[k], jacobian[k], c->inner * o->dim));
        o->run.evaluations += parts[k].count;
    }
    return DRO_OK;
}

dro_status dro__outer(dro_optimizer *o, const double *u, double *value, double *gradient)
{
    const dro_composite *c = &o->composite;
    dro_status status = c->outer(c->user, u, value, gradient);
    if (status != DRO_OK)
        return callback_failed(o, status, "outer", NULL);
    for (size_t j = 0; j < c->inner; j++)
        if (!isfinite(gradient[j]))
            return dro__fail(o->ctx, DRO_ERR_NUMBER,
                             "entry %zu of f'(u) is %g at step %llu: the step is refused", j,
                             gradient[j], (unsigned long long)o->run.step);
    return DRO_OK;
}

/* ---- memory ---- */

static dro_status add_row(dro_optimizer *o, void **data, size_t bytes, dro__row row)
{
    if (o->row_count == DRO__ROWS || !*data || (row.undone && !row.before)) {
        if (*data && row.on_host)
            dro__free(*data);
        else if (*data)
            o->be->free(*data);
        dro__free(row.before);
        *data = NULL;
        return dro__fail(o->ctx, DRO_ERR_MEMORY, "no memory for a vector of %zu bytes", bytes);
    }
    row.data = data;
    row.bytes = bytes;
    o->rows[o->row_count++] = row;
    return DRO_OK;
}

dro_status dro__vector(dro_optimizer *o, size_t n, bool saved, float **vector)
{
    *vector = o->be->alloc(n, sizeof **vector);
    return add_row(o, (void **)vector, n * sizeof **vector, (dro__row){.saved = saved});
}

dro_status dro__array(dro_optimizer *o, size_t n, size_t size, unsigned flags, void *array)
{
    dro__row row = {.on_host = true, .saved = flags & DRO__SAVED, .undone = flags & DRO__UNDONE};
    void **data = array;
    *data = dro__alloc(n, size);
    row.before = row.undone ? dro__alloc(n, size) : NULL;
    return add_row(o, data, n * size, row);
}

dro_status dro__losses_create(dro_optimizer *o, size_t most)
{
    DRO_TRY(dro__array(o, most, sizeof(float), 0, &o->k.losses));
    return dro__array(o, most, sizeof(float), 0, &o->k.coef);
}

void dro__rows_free(dro_optimizer *o)
{
    for (int r = 0; r < o->row_count; r++) {
        dro__row *row = &o->rows[r];
        (row->on_host ? dro__free : o->be->free)(*row->data);
        dro__free(row->before);
        *row->data = NULL;
    }
    o->row_count = 0;
}

void dro__rows_keep(dro_optimizer *o)
{
    for (int r = 0; r < o->row_count; r++)
        if (o->rows[r].undone)
            memcpy(o->rows[r].before, *o->rows[r].data, o->rows[r].bytes);
}

void dro__rows_undo(dro_optimizer *o)
{
    for (int r = 0; r < o->row_count; r++)
        if (o->rows[r].undone)
            memcpy(*o->rows[r].data, o->rows[r].before, o->rows[r].bytes);
}

static void archive_vector(dro_optimizer *o, dro__archive *ar, float *vector, size_t bytes)
{
    char *at = (char *)vector;
    size_t some = bytes;
    for (; ar->mode != DRO__ARCHIVE_MEASURE && bytes > 0; at += some, bytes -= some) {
        some = dro__archive_some(ar, bytes);
        if (some == 0)
            return;
        ar->status = ar->mode == DRO__ARCHIVE_SAVE
                         ? dro__vector_out(o, ar->bytes + ar->used, at, some)
                         : dro__vector_in(o, at, ar->bytes + ar->used, some);
        ar->failed = ar->status != DRO_OK;
        ar->used += some;
    }
    ar->used += bytes;
}

void dro__rows_archive(dro_optimizer *o, dro__archive *ar)
{
    for (int r = 0; r < o->row_count; r++) {
        const dro__row *row = &o->rows[r];
        if (row->saved && row->on_host)
            dro__archive_bytes(ar, *row->data, row->bytes);
        else if (row->saved)
            archive_vector(o, ar, *row->data, row->bytes);
    }
}
