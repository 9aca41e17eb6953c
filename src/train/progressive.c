/* The loop over a stream: each batch is predicted by the present weights, then learned from. The
 * model is linear on sparse rows (logistic or squared loss; cross-entropy for more than two
 * classes). Memory does not grow, and the stream may be endless.
 *
 * The last batches are kept, and saved in the checkpoint, because an optimiser that looks ahead has
 * predicted a batch on which it has not trained yet. A resumed run reads a file, or a table from
 * standard input, again up to where it was; other standard input continues with the rows that
 * arrive. The last batch has the rows that are left: it is predicted and trained on too. */
#include "stream_run.h"

#include <math.h>
#include <string.h>

typedef dro__stream_run stream_run;

static dro__row_matrix rows_of(const dro_train *t, const dro__held *k)
{
    return (dro__row_matrix){
        .features = t->task.width, .starts = k->starts, .columns = k->columns, .values = k->values};
}

/* Each row is used once, so small batches give more steps. */
enum { STREAM_BATCH = 8 };

/* ---- the problem ---- */

/* The margins of a batch at the present weights; each rank computes its slice. */
static dro_status find_margins(dro_train *t, const dro__held *k)
{
    stream_run *s = t->stream;
    dro__row_matrix rows = rows_of(t, k);
    size_t first, end, heads = dro__row_heads(&t->task);
    dro__spread_slice(t->comm, 0, k->count, &first, &end);
    dro__row_margins(&t->task, &rows, &(dro__row_ids){s->order + first, end - first},
                     dro_optimizer_w(t->opt), s->column, s->margins + first * heads);
    if (dro_comm_size(t->comm) == 1)
        return DRO_OK;
    for (int r = 0; r < dro_comm_size(t->comm); r++) {
        dro_comm like = {.rank = r, .size = dro_comm_size(t->comm)};
        size_t r_first, r_end;
        dro__spread_slice(&like, 0, k->count, &r_first, &r_end);
        s->sizes[r] = (int)((r_end - r_first) * heads * sizeof *s->margins);
    }
    /* scaled is free between a backward and the next forward */
    memcpy(s->scaled, s->margins + first * heads, (end - first) * heads * sizeof *s->scaled);
    return dro__comm_gather(t->comm, s->scaled, s->margins, s->sizes);
}

/* Predicts a batch with the present weights, before training on it. */
static dro_status predict(dro_train *t, const dro__held *k)
{
    stream_run *s = t->stream;
    size_t outputs = t->task.outputs;
    DRO_TRY(find_margins(t, k));
    dro__row_losses(&t->task, k->count, s->margins, &(dro__row_truth){k->y, k->classes}, s->losses,
                    NULL);
    for (size_t i = 0; outputs == 2 && i < k->count; i++) {
        s->logits[2 * i] = 0;
        s->logits[2 * i + 1] = s->margins[i];
    }
    const float *of_classes = outputs == 2 ? s->logits : s->margins;
    const float *logits = t->task.regression ? NULL : of_classes;
    if (s->reported == s->next) /* after a line the last window stays until there are examples */
        dro__measure_reset(&s->window, &s->coming);
    dro__measured examples = {.count = k->count,
                              .logits = logits,
                              .labels = k->classes,
                              .losses = s->losses,
                              .values = logits ? NULL : s->margins,
                              .targets = k->y};
    dro__measure_add(&s->all, &examples);
    dro__measure_add(&s->window, &examples);
    return DRO_OK;
}

static dro__held *oldest(stream_run *s)
{
    dro__held *k = s->ring;
    for (int i = 1; i < DRO__RING; i++)
        if (s->ring[i].position + s->ring[i].count < k->position + k->count)
            k = &s->ring[i];
    return k;
}

static dro_status next_batch(dro_train *t, uint64_t position, size_t count, dro_batch *batch)
{
    stream_run *s = t->stream;
    dro__held *k = NULL;
    for (int i = 0; i < DRO__RING; i++)
        if (s->ring[i].count == count && s->ring[i].position == position)
            k = &s->ring[i];
    if (!k && (position != s->next || count != s->batch))
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "%s draws %zu examples at a time, a stream gives %zu: use recover, cover, "
                         "ascpg, absgd or sgd",
                         t->set.optimizer, count, s->batch);
    if (!k) {
        k = oldest(s);
        dro_status status = dro__stream_read(t, k);
        if (status == DRO_OK)
            status = predict(t, k);
        if (status != DRO_OK) {
            dro__held_clear(k, 0);
            return status;
        }
        s->next += k->count;
        for (size_t i = 0; s->files && i < k->count; i++)
            s->done[k->files[i]]++;
    }
    *batch = (dro_batch){.position = position,
                         .count = k->count,
                         .ids = k->ids,
                         .classes = t->task.regression ? NULL : k->classes,
                         .handle = k};
    return DRO_OK;
}

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    dro_train *t = user;
    return dro__task_remember(&t->task, next_batch(t, position, count, batch));
}

/* A part is a batch, or some neighbours of one. */
static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro_train *t = user;
    stream_run *s = t->stream;
    size_t heads = dro__row_heads(&t->task);
    for (size_t k = 0, at = 0; k < (size_t)part_count; at += parts[k++].count) {
        const dro__held *rows = parts[k].handle;
        size_t first = (size_t)(parts[k].position - rows->position), count = parts[k].count;
        dro__row_matrix r = rows_of(t, rows);
        float *margins = s->margins + at * heads;
        dro__row_margins(&t->task, &r, &(dro__row_ids){s->order + first, count}, w, s->column,
                         margins);
        dro__row_losses(&t->task, count, margins,
                        &(dro__row_truth){rows->y + first, rows->classes + first}, losses + at,
                        rows->slopes + first * heads);
    }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    dro_train *t = user;
    stream_run *s = t->stream;
    size_t heads = dro__row_heads(&t->task);
    (void)w;
    for (size_t k = 0, at = 0; k < (size_t)part_count; at += parts[k++].count) {
        const dro__held *rows = parts[k].handle;
        size_t first = (size_t)(parts[k].position - rows->position), count = parts[k].count;
        dro__row_matrix r = rows_of(t, rows);
        dro_batch part = {.ids = s->order + first, .count = count};
        for (size_t j = 0; j < heads; j++) {
            float *grad = grads[k] + j * t->task.width;
            for (size_t i = 0; i < count; i++)
                s->scaled[i] = coef[at + i] * rows->slopes[(first + i) * heads + j];
            t->ctx->backend->rows_sum(t->ctx->pool, &r, &part, 1, s->scaled, &grad);
        }
    }
    return DRO_OK;
}

/* ---- life ---- */

void dro__progressive_close(dro_train *t)
{
    stream_run *s = t->stream;
    t->stream = NULL;
    if (!s)
        return;
    for (int i = 0; i < DRO__RING; i++)
        dro__held_free(&s->ring[i]);
    dro__held_free(&s->mine);
    dro__measure_free(&s->all);
    dro__measure_free(&s->window);
    dro__free(s->margins), dro__free(s->scaled), dro__free(s->logits), dro__free(s->losses);
    dro__free(s->column), dro__free(s->order), dro__free(s->encoding), dro__free(s->done),
        dro__free(s->skip);
    dro__free(s->shares), dro__free(s->sizes);
    dro__free(s->names), dro__free(s->all_names);
    dro_stream_close(s->stream);
    dro__free(s);
}

static dro_status make_buffers(dro_train *t)
{
    stream_run *s = t->stream;
    size_t n = s->batch, heads = dro__row_heads(&t->task);
    for (int i = 0; i < DRO__RING; i++)
        DRO_TRY(dro__held_make(t->ctx, &s->ring[i], n, heads));
    DRO_TRY(dro__held_make(t->ctx, &s->mine, n, heads));
    s->margins = dro__alloc(2 * n, heads * sizeof(float));
    s->scaled = dro__alloc(n, heads * sizeof(float));
    s->column = dro__alloc(n, sizeof(float));
    s->logits = dro__alloc(2 * n, sizeof(float));
    s->losses = dro__alloc(n, sizeof(float));
    s->order = dro__alloc(n, sizeof(int64_t));
    if (!s->margins || !s->scaled || !s->column || !s->logits || !s->losses || !s->order)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for batches");
    for (size_t i = 0; i < n; i++)
        s->order[i] = (int64_t)i;
    return DRO_OK;
}

/* A task without a data set: the linear model on rows. */
static void fill_task(dro_train *t)
{
    stream_run *s = t->stream;
    const dro__stream_about *a = &s->about;
    dro__task *task = &t->task;
    task->ctx = t->ctx;
    strcpy(task->model, "linear");
    task->sparse = true;
    task->regression = a->class_count == 0;
    task->encoding = s->stream ? dro__stream_data(s->stream)->encoding : s->encoding;
    task->outputs = task->regression ? 1 : (size_t)a->class_count;
    task->width = (size_t)a->features;
    task->dim = task->width * dro__row_heads(task);
    task->norm = s->about.norm;
    task->batch = t->set.batch ? (size_t)t->set.batch : STREAM_BATCH;
    task->info = (dro_data_info){.format = a->format,
                                 .kind = DRO_DATA_STREAM,
                                 .features = task->width,
                                 .classes = a->class_count,
                                 .class_names = s->names,
                                 .target_centre = a->target.centre,
                                 .target_scale = a->target.scale,
                                 .target_fourth = a->target.fourth,
                                 .examples = {-1, 0, 0}};
    task->problem = (dro_problem){.size = sizeof(dro_problem),
                                  .user = t,
                                  .dim = task->dim,
                                  .forward = forward,
                                  .backward = backward,
                                  .draw = draw,
                                  .classes = task->info.classes,
                                  .memory = DRO_MEMORY_BACKEND};
}

void dro__stream_cut(void *user, const dro_batch *batch, size_t first, size_t count,
                     dro_batch *part)
{
    (void)user;
    *part = (dro_batch){.position = batch->position + first,
                        .count = count,
                        .ids = batch->ids + first,
                        .classes = batch->classes ? batch->classes + first : NULL,
                        .handle = batch->handle};
}

dro_status dro__progressive_open(dro_train *t)
{
    if (t->set.best || t->set.patience || *t->set.init)
        return dro__fail(
            t->ctx, DRO_ERR_UNSUPPORTED,
            "a stream has no holdout and starts at zero: leave out best, patience, init");
    if (*t->set.model && strcmp(t->set.model, "linear") != 0)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED, "model %s on a stream: expected linear",
                         t->set.model);
    t->stream = dro__alloc(1, sizeof *t->stream);
    if (!t->stream)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a stream");
    DRO_TRY(dro__stream_reader_open(t)); /* says what is wrong with the SPEC */
    fill_task(t);
    dro__model_choice choice = {.data = t->set.data,
                                .train = true,
                                .settings = t,
                                .comm = t->comm,
                                .shards = t->set.exact ? DRO__SHARDS : 0};
    DRO_TRY(dro__row_loss(&t->task, &choice));
    DRO_TRY(dro__model_fits(&t->task, &choice, t->task.dim));
    t->stream->batch = t->task.batch;
    t->steps = (uint64_t)t->set.steps;
    int32_t classes = t->task.info.classes;
    DRO_TRY(dro__measure_create(t->ctx, classes, 0, 0, &t->stream->all));
    DRO_TRY(dro__measure_create(t->ctx, classes, t->set.report_every + (int64_t)t->task.batch, 0,
                                &t->stream->window));
    t->stream->all.unit = t->stream->window.unit = t->stream->about.target.scale;
    t->stream->all.decision.link = t->stream->window.decision.link = dro__link_of(&t->task);
    DRO_TRY(make_buffers(t));
    return dro__ranks_open(&t->task, &choice);
}

/* ---- the loop ---- */

static dro_status fill_record(dro_train *t)
{
    stream_run *s = t->stream;
    dro_train_record *r = &t->evaluation.record;
    *r = (dro_train_record){.steps = t->steps,
                            .seconds = t->progress.seconds,
                            .wall = dro__wall(t),
                            .has_test = true,
                            .has_window = true};
    dro__stream_names(s);
    DRO_TRY(dro_optimizer_info(t->opt, &r->info));
    dro__record_weights(t, &s->window);
    double reg = dro_optimizer_regulariser(t->opt, dro_optimizer_w(t->opt));
    DRO_TRY(dro__measure_finish(t->ctx, &s->all, reg));
    DRO_TRY(dro__measure_finish(t->ctx, &s->window, reg));
    r->test = s->all.figures, t->evaluation.of_test = s->all.robust;
    r->window = s->window.figures, t->evaluation.of_window = s->window.robust;
    t->have_record = true;
    return DRO_OK;
}

/* Whether report number k (from 1 on) becomes a line: all of the first report_most, of the next
 * ones every second until there are as many lines again, then every fourth. */
static bool gets_line(const dro_train *t, uint64_t k)
{
    uint64_t most = (uint64_t)t->set.report_most, each = 1;
    for (; most && k > most * each; each *= 2)
        k -= most * each;
    return k % each == 0;
}

/* If a line could not be written it is not reported; a resumed run writes it first. */
static dro_status report(dro_train *t, bool last)
{
    DRO_TRY(fill_record(t));
    if (last || gets_line(t, t->progress.evaluated + 1))
        DRO_TRY(dro__run_write_line(t));
    t->progress.evaluated++;
    t->stream->reported = t->stream->next;
    return DRO_OK;
}

static dro_status report_due(dro_train *t)
{
    const stream_run *s = t->stream;
    return s->next >= s->reported + (uint64_t)t->set.report_every ? report(t, false) : DRO_OK;
}

static bool save_is_late(const dro_train *t)
{
    return dro__clock() - t->saved_at > t->set.checkpoint_every;
}

/* Requests from clocks and signals. The signal that stops a run also ends standard input. */
static unsigned decide(dro_train *t)
{
    bool stop = dro__report_progress(t, NULL, 0) && !t->stream->about.is_stdin;
    bool first = dro_comm_rank(t->comm) == 0;
    unsigned wants = (stop ? DRO__WANT_STOP : 0) |
                     (first && dro__time_is_over(t, dro__time_to_write(t)) ? DRO__WANT_TIME : 0) |
                     (first && save_is_late(t) ? DRO__WANT_SAVE : 0);
    return dro__ranks_decide(t, wants);
}

static dro_status learn(dro_train *t)
{
    stream_run *s = t->stream;
    DRO_TRY(report_due(t));
    while (t->ended == DRO_TRAIN_NOT_ENDED) {
        s->coming = dro__objective_of(t);
        unsigned decided = decide(t);
        if (decided & DRO__WANT_TIME) {
            t->ended = DRO_TRAIN_TIME;
            break;
        }
        if (decided & DRO__WANT_STOP) {
            t->ended = DRO_TRAIN_INTERRUPTED;
            break;
        }
        double start = dro__clock();
        dro_status status = dro__task_recall(&t->task, dro_optimizer_step(t->opt));
        t->progress.seconds += dro__clock() - start;
        if (status == DRO_ERR_END)
            t->ended = s->stream && dro__stream_late(s->stream) ? DRO_TRAIN_TIME : DRO_TRAIN_DONE;
        else
            DRO_TRY(status);
        t->progress.smooth_loss = t->opt->s.loss;
        DRO_TRY(report_due(t));
        if (t->comm ? dro__ranks_decide(t, 0) & DRO__WANT_SAVE : save_is_late(t))
            DRO_TRY(dro__run_save(t));
    }
    return DRO_OK;
}

dro_status dro__stream_train(dro_train *t)
{
    if (t->stream->next == 0) {
        dro__robust first = dro__objective_of(t);
        dro__measure_reset(&t->stream->all, &first);
        dro__measure_reset(&t->stream->window, &first);
    }
    dro__report_plan(t, NAN);
    if (t->stream->stream)
        dro__stream_until(t->stream->stream, dro__time_limit(t));
    dro_status status = learn(t);
    if (status == DRO_ERR_NUMBER)
        t->ended = DRO_TRAIN_DIVERGED;
    if (status != DRO_OK) { /* a line that cannot be read: what was learned is kept */
        char why[DRO__ERROR_SIZE];
        memcpy(why, t->ctx->error, sizeof why);
        t->begun =
            t->begun && t->stream->next == 0; /* rows that wait for their step are kept too */
        DRO_TRY(dro__run_save(t));
        return dro__fail(t->ctx, status, "%s", why);
    }
    bool new = t->stream->next > t->stream->reported;
    bool over = t->ended == DRO_TRAIN_DONE || t->ended == DRO_TRAIN_TIME;
    DRO_TRY(over && new ? report(t, true) : fill_record(t));
    dro__note_objective(t, &t->stream->all.robust);
    return dro__run_save(t);
}
