/* The loop over a stream: each batch is predicted by the present weights, then learned from. The
 * model is linear on sparse rows (logistic or squared loss), memory does not grow, and there need
 * be no end.
 *
 * The last batches are kept, and go into the checkpoint: an optimiser that looks ahead has
 * predicted a batch that it has yet to learn from. A file, or a table from standard input, is read
 * again up to where the run was; other standard input goes on with what comes. The last batch is as
 * long as there are rows: it is predicted and learned from too. */
#include "train.h"

#include <string.h>

typedef struct kept { /* one batch */
    uint64_t position, count, entries;
    int64_t *starts, *ids;
    int32_t *columns, *classes;
    float *values, *y;
    size_t column_room, value_room;
} kept;

typedef struct dro__stream_run {
    dro_stream *stream;
    bool is_stdin;
    size_t batch;
    const char *names[2]; /* of the classes, borrowed from the stream */
    uint64_t columns;     /* a checksum of how they were encoded */
    kept ring[DRO__RING];
    uint64_t next; /* position of the next new batch */
    dro__measure all, window;
    uint64_t reported;                                  /* examples at the last line */
    dro__robust coming;                                 /* what the next window is measured by */
    float *margins, *slopes, *scaled, *logits, *losses; /* two batches long */
    int64_t *order;                                     /* 0, 1, 2, ... */
} stream_run;

static dro__rows rows_of(const dro_train *t, const kept *k)
{
    return (dro__rows){
        .features = t->task.dim, .starts = k->starts, .columns = k->columns, .values = k->values};
}

/* ---- the problem ---- */

static dro_status make_room(dro_train *t, kept *k, size_t entries)
{
    DRO_TRY(dro__grow(t->ctx, (void **)&k->columns, &k->column_room, entries, sizeof *k->columns));
    return dro__grow(t->ctx, (void **)&k->values, &k->value_room, entries, sizeof *k->values);
}

static dro_status keep_row(dro_train *t, kept *k, const dro_rows *row)
{
    size_t i = k->count++, start = k->entries, count = (size_t)row->starts[1];
    DRO_TRY(make_room(t, k, start + count));
    memcpy(k->columns + start, row->columns, count * sizeof *k->columns);
    memcpy(k->values + start, row->values, count * sizeof *k->values);
    k->entries += count;
    k->starts[0] = 0;
    k->starts[i + 1] = (int64_t)k->entries;
    k->classes[i] = row->y[0] > 0;
    k->y[i] = t->task.regression ? row->y[0] : k->classes[i] ? 1 : -1;
    k->ids[i] = (int64_t)(k->position + i);
    return DRO_OK;
}

/* Standard input is ended by whoever asked to stop, perhaps within a line: that one is not
 * taken. */
static bool was_stopped(const dro_train *t)
{
    return t->stream->is_stdin && dro__tell(t, NULL, 0);
}

/* Up to s->batch rows: fewer at the end of the input. One at a time, so that none of those is
 * lost. */
static dro_status read_rows(dro_train *t, kept *k)
{
    stream_run *s = t->stream;
    dro_rows row;
    k->position = s->next;
    k->count = k->entries = 0;
    while (k->count < s->batch) {
        dro_status status = dro_stream_next(s->stream, 1, &row);
        if (status == DRO_ERR_END || (status == DRO_ERR_DATA && was_stopped(t)))
            return k->count ? DRO_OK : DRO_ERR_END;
        DRO_TRY(status);
        if (dro__stream_unfinished(s->stream, row.positions[0]) && was_stopped(t))
            continue;
        DRO_TRY(keep_row(t, k, &row));
    }
    return DRO_OK;
}

/* Before it is learned from: what do the present weights make of it? */
static void predict(dro_train *t, const kept *k)
{
    stream_run *s = t->stream;
    const dro__backend *be = t->ctx->backend;
    dro__rows rows = rows_of(t, k);
    be->rows_dot(t->ctx->pool, &rows, s->order, k->count, dro_optimizer_w(t->opt), s->margins);
    be->loss(t->ctx->pool, t->task.row_loss, k->count, s->margins, k->y, s->losses, NULL);
    for (size_t i = 0; i < k->count; i++) {
        s->logits[2 * i] = 0;
        s->logits[2 * i + 1] = s->margins[i];
    }
    const float *logits = t->task.regression ? NULL : s->logits;
    if (s->reported == s->next) /* after a line: until there are examples, the last window stays */
        dro__measure_reset(&s->window, &s->coming);
    dro__measured examples = {.count = k->count,
                              .logits = logits,
                              .labels = k->classes,
                              .losses = s->losses,
                              .values = logits ? NULL : s->margins,
                              .targets = k->y};
    dro__measure_add(&s->all, &examples);
    dro__measure_add(&s->window, &examples);
}

static kept *oldest(stream_run *s)
{
    kept *k = s->ring;
    for (int i = 1; i < DRO__RING; i++)
        if (s->ring[i].position + s->ring[i].count < k->position + k->count)
            k = &s->ring[i];
    return k;
}

static dro_status next_batch(dro_train *t, uint64_t position, size_t count, dro_batch *batch)
{
    stream_run *s = t->stream;
    kept *k = NULL;
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
        dro_status status = read_rows(t, k);
        if (status != DRO_OK) {
            k->position = k->count = k->entries = 0;
            return status;
        }
        predict(t, k);
        s->next += k->count;
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

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    dro_train *t = user;
    stream_run *s = t->stream;
    const dro__backend *be = t->ctx->backend;
    for (size_t k = 0, at = 0; k < (size_t)part_count; at += parts[k++].count) {
        const kept *rows = parts[k].handle;
        dro__rows r = rows_of(t, rows);
        be->rows_dot(t->ctx->pool, &r, s->order, rows->count, w, s->margins + at);
        be->loss(t->ctx->pool, t->task.row_loss, rows->count, s->margins + at, rows->y, losses + at,
                 s->slopes + at);
    }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    dro_train *t = user;
    stream_run *s = t->stream;
    (void)w;
    for (size_t k = 0, at = 0; k < (size_t)part_count; at += parts[k++].count) {
        const kept *rows = parts[k].handle;
        dro__rows r = rows_of(t, rows);
        for (size_t i = 0; i < rows->count; i++)
            s->scaled[i] = coef[at + i] * s->slopes[at + i];
        t->ctx->backend->rows_sum(t->ctx->pool, &r, s->order, &parts[k].count, 1, s->scaled,
                                  &grads[k]);
    }
    return DRO_OK;
}

/* ---- life ---- */

void dro__stream_close(dro_train *t)
{
    stream_run *s = t->stream;
    t->stream = NULL;
    if (!s)
        return;
    for (int i = 0; i < DRO__RING; i++) {
        kept *k = &s->ring[i];
        dro__free(k->starts), dro__free(k->ids), dro__free(k->columns);
        dro__free(k->classes), dro__free(k->values), dro__free(k->y);
    }
    dro__measure_free(&s->all);
    dro__measure_free(&s->window);
    dro__free(s->margins), dro__free(s->slopes), dro__free(s->scaled);
    dro__free(s->logits), dro__free(s->losses), dro__free(s->order);
    dro_stream_close(s->stream);
    dro__free(s);
}

static bool make_buffers(stream_run *s)
{
    size_t n = s->batch;
    bool fine = true;
    for (int i = 0; i < DRO__RING; i++) {
        kept *k = &s->ring[i];
        k->starts = dro__alloc(n + 1, sizeof *k->starts);
        k->ids = dro__alloc(n, sizeof *k->ids);
        k->classes = dro__alloc(n, sizeof *k->classes);
        k->y = dro__alloc(n, sizeof *k->y);
        fine = fine && k->starts && k->ids && k->classes && k->y;
    }
    s->margins = dro__alloc(2 * n, sizeof(float));
    s->slopes = dro__alloc(2 * n, sizeof(float));
    s->scaled = dro__alloc(n, sizeof(float));
    s->logits = dro__alloc(2 * n, sizeof(float));
    s->losses = dro__alloc(n, sizeof(float));
    s->order = dro__alloc(n, sizeof(int64_t));
    fine = fine && s->margins && s->slopes && s->scaled && s->logits && s->losses && s->order;
    for (size_t i = 0; fine && i < n; i++)
        s->order[i] = (int64_t)i;
    return fine;
}

/* The names of the classes; a stream of 0 and 1 knows that once a row had a 0. */
static void take_names(stream_run *s)
{
    for (int k = 0; k < 2; k++)
        s->names[k] = dro_stream_class(s->stream, k);
}

static dro_status open_stream(dro_train *t)
{
    stream_run *s = t->stream;
    DRO_TRY(dro__stream_for_model(t->ctx, t->set.data, &s->stream));
    s->is_stdin = strcmp(dro__stream_data(s->stream)->spec.path, "-") == 0;
    const dro_data *data = dro__stream_data(s->stream);
    s->columns = data->learned ? dro__checksum(0, data->encoding, strlen(data->encoding)) : 0;
    take_names(s);
    if (s->names[0] && (!s->names[1] || dro_stream_class(s->stream, 2)))
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "%s has %s: the model of a stream tells two classes apart "
                         "(positive=LABEL takes one against the others)",
                         t->set.data, s->names[1] ? "more than two classes" : "one class");
    return DRO_OK;
}

/* A task without a data set: the linear model on rows. */
static void fill_task(dro_train *t)
{
    const dro_data *data = dro__stream_data(t->stream->stream);
    dro__task *task = &t->task;
    task->ctx = t->ctx;
    strcpy(task->model, "linear");
    task->sparse = true;
    task->regression = !t->stream->names[0];
    task->encoding = data->encoding;
    task->outputs = task->regression ? 1 : 2;
    task->dim = dro_stream_features(t->stream->stream);
    task->batch = t->set.batch ? (size_t)t->set.batch : 128;
    task->info = (dro_data_info){.format = data->format->name,
                                 .kind = DRO_DATA_STREAM,
                                 .features = task->dim,
                                 .classes = task->regression ? 0 : 2,
                                 .class_names = t->stream->names,
                                 .target_centre = data->target.centre,
                                 .target_scale = data->target.scale,
                                 .target_fourth = data->target.fourth,
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

dro_status dro__stream_open(dro_train *t)
{
    if (dro_comm_size(t->comm) > 1 || t->set.exact)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "a stream is read by one process: leave out %s, or read the data as a "
                         "table",
                         t->set.exact ? "exact=yes" : "mpirun");
    if (t->set.best || t->set.patience || *t->set.init)
        return dro__fail(
            t->ctx, DRO_ERR_UNSUPPORTED,
            "a stream has no holdout and begins at zero: leave out best, patience, init");
    if (*t->set.model && strcmp(t->set.model, "linear") != 0)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED, "model %s on a stream: expected linear",
                         t->set.model);
    t->stream = dro__alloc(1, sizeof *t->stream);
    if (!t->stream)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a stream");
    DRO_TRY(open_stream(t)); /* says what is wrong with the SPEC */
    fill_task(t);
    dro__model_choice choice = {.data = t->set.data, .train = true, .settings = t};
    DRO_TRY(dro__row_loss(&t->task, &choice));
    DRO_TRY(dro__model_fits(&t->task, &choice, t->task.dim));
    t->stream->batch = t->task.batch;
    t->steps = (uint64_t)t->set.steps;
    int32_t classes = t->task.info.classes;
    DRO_TRY(dro__measure_create(t->ctx, classes, 0, 0, &t->stream->all));
    DRO_TRY(dro__measure_create(t->ctx, classes, t->set.report_every + (int64_t)t->task.batch, 0,
                                &t->stream->window));
    t->stream->all.decision.link = t->stream->window.decision.link = dro__link_of(&t->task);
    return make_buffers(t->stream) ? DRO_OK
                                   : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for batches");
}

/* ---- checkpoints ---- */

static void archive_measure(dro__archive *ar, dro__measure *m)
{
    size_t c = (size_t)m->figures.classes;
    DRO__ARCHIVE(ar, m->figures.examples);
    DRO__ARCHIVE(ar, m->mass);
    DRO__ARCHIVE(ar, m->loss_sum);
    DRO__ARCHIVE(ar, m->robust.lambda);
    DRO__ARCHIVE(ar, m->robust.weight_lambda);
    DRO__ARCHIVE(ar, m->robust.level);
    DRO__ARCHIVE(ar, m->robust.uniform);
    DRO__ARCHIVE(ar, m->tilted);
    DRO__ARCHIVE(ar, m->class_top);
    dro__archive_bytes(ar, m->classes, c * sizeof *m->classes);
    DRO__ARCHIVE(ar, m->bins);
    DRO__ARCHIVE(ar, m->real);
    dro__archive_bytes(ar, m->counts, c * sizeof *m->counts);
    dro__archive_bytes(ar, m->confusion, c * c * sizeof *m->confusion);
    dro__archive_bytes(ar, m->scores, (size_t)m->capacity * sizeof *m->scores);
    dro__archive_bytes(ar, m->truth, (size_t)m->capacity * sizeof *m->truth);
    dro__archive_bytes(ar, m->weights, (size_t)m->capacity * sizeof *m->weights);
}

static void archive_kept(dro_train *t, dro__archive *ar, kept *k)
{
    uint64_t entries = k->entries;
    size_t batch = t->stream->batch;
    DRO__ARCHIVE(ar, k->position);
    DRO__ARCHIVE(ar, k->count);
    DRO__ARCHIVE(ar, entries);
    if (ar->mode == DRO__ARCHIVE_LOAD && !ar->failed) {
        if (entries > ar->size / 8 || k->count > batch || make_room(t, k, entries) != DRO_OK) {
            ar->failed = true;
            return;
        }
        k->entries = entries;
    }
    dro__archive_bytes(ar, k->starts, (batch + 1) * sizeof *k->starts);
    dro__archive_bytes(ar, k->ids, batch * sizeof *k->ids);
    dro__archive_bytes(ar, k->classes, batch * sizeof *k->classes);
    dro__archive_bytes(ar, k->y, batch * sizeof *k->y);
    dro__archive_bytes(ar, k->columns, entries * sizeof *k->columns);
    dro__archive_bytes(ar, k->values, entries * sizeof *k->values);
}

/* How columns are scaled. Standard input that goes on from where it was cannot be learned from
 * again. */
static void archive_encoding(dro_train *t, dro__archive *ar)
{
    stream_run *s = t->stream;
    const dro_data *data = dro__stream_data(s->stream);
    uint64_t size = data->encoding && !data->learned ? strlen(data->encoding) : 0;
    DRO__ARCHIVE(ar, size);
    bool load = ar->mode == DRO__ARCHIVE_LOAD;
    if (size == 0 || (load && (ar->failed || size > ar->size)))
        return;
    char *text = load ? dro__alloc(size + 1, 1) : data->encoding;
    if (text)
        dro__archive_bytes(ar, text, size);
    if (!text || (load && s->is_stdin && dro__stream_rescale(s->stream, text) != DRO_OK))
        ar->failed = true;
    if (load)
        dro__free(text);
}

static void walk(dro_train *t, dro__archive *ar)
{
    stream_run *s = t->stream;
    archive_encoding(t, ar);
    DRO__ARCHIVE(ar, s->columns);
    DRO__ARCHIVE(ar, s->next);
    DRO__ARCHIVE(ar, s->reported);
    archive_measure(ar, &s->all);
    archive_measure(ar, &s->window);
    for (int i = 0; i < DRO__RING; i++)
        archive_kept(t, ar, &s->ring[i]);
}

dro_status dro__stream_save(dro_train *t, void **bytes, size_t *size)
{
    dro__archive ar = {.mode = DRO__ARCHIVE_MEASURE};
    walk(t, &ar);
    *size = ar.used;
    *bytes = dro__alloc(ar.used, 1);
    if (!*bytes)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a checkpoint");
    ar = (dro__archive){.mode = DRO__ARCHIVE_SAVE, .bytes = *bytes, .size = *size};
    walk(t, &ar);
    return DRO_OK;
}

dro_status dro__stream_load(dro_train *t, void *bytes, size_t size)
{
    stream_run *s = t->stream;
    dro__archive ar = {.mode = DRO__ARCHIVE_LOAD, .bytes = bytes, .size = size};
    uint64_t columns = s->columns;
    walk(t, &ar);
    if (ar.failed || ar.used != size)
        return dro__fail(t->ctx, DRO_ERR_FORMAT, "the checkpoint contradicts itself");
    if (columns != s->columns)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "%s: its first rows, which say how columns become features, are not those "
                         "that the run began with: resume with the same rows, or begin anew",
                         t->set.data);
    t->task.encoding = dro__stream_data(s->stream)->encoding;
    dro_rows rows;
    bool again = !s->is_stdin || columns; /* a table's first rows say how it is read */
    for (uint64_t left = again ? s->next : 0; left > 0; left -= rows.count) { /* where it was */
        size_t count = left < s->batch ? (size_t)left : s->batch;
        dro_status status = dro_stream_next(s->stream, count, &rows);
        if (status == DRO_ERR_END)
            return dro__fail(t->ctx, DRO_ERR_DATA, "%s is shorter than it was", t->set.data);
        DRO_TRY(status);
    }
    if (s->is_stdin)
        dro__note(t, "standard input is to begin with row %llu of the stream",
                  again ? 1 : (unsigned long long)s->next + 1);
    return DRO_OK;
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
    take_names(s);
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

/* What could not be written is not reported: a run that goes on from here writes it first. */
static dro_status report(dro_train *t)
{
    DRO_TRY(fill_record(t));
    DRO_TRY(dro__run_write_line(t));
    t->stream->reported = t->stream->next;
    return DRO_OK;
}

static dro_status report_due(dro_train *t)
{
    const stream_run *s = t->stream;
    return s->next >= s->reported + (uint64_t)t->set.report_every ? report(t) : DRO_OK;
}

static dro_status learn(dro_train *t)
{
    stream_run *s = t->stream;
    DRO_TRY(report_due(t));
    while (t->ended == DRO_TRAIN_NOT_ENDED) {
        s->coming = dro__objective_of(t);
        bool stop = dro__tell(t, NULL, 0);
        if (dro__late(t)) {
            t->ended = DRO_TRAIN_TIME;
            break;
        }
        if (stop && !s->is_stdin) { /* standard input is ended by whoever asked to stop */
            t->ended = DRO_TRAIN_INTERRUPTED;
            break;
        }
        double start = dro__clock();
        dro_status status = dro__task_recall(&t->task, dro_optimizer_step(t->opt));
        t->progress.seconds += dro__clock() - start;
        if (status == DRO_ERR_END)
            t->ended = DRO_TRAIN_DONE;
        else
            DRO_TRY(status);
        t->progress.smooth_loss = t->opt->s.loss;
        DRO_TRY(report_due(t));
        if (dro__clock() - t->saved_at > t->set.checkpoint_every)
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
    dro_status status = learn(t);
    if (status == DRO_ERR_NUMBER)
        t->ended = DRO_TRAIN_DIVERGED;
    if (status != DRO_OK) { /* a line that cannot be read: what was learned is kept */
        char why[DRO__ERROR_SIZE];
        memcpy(why, t->ctx->error, sizeof why);
        t->begun =
            t->begun && t->stream->next == 0; /* rows that wait for their step are kept, too */
        DRO_TRY(dro__run_save(t));
        return dro__fail(t->ctx, status, "%s", why);
    }
    bool new = t->stream->next > t->stream->reported;
    bool over = t->ended == DRO_TRAIN_DONE || t->ended == DRO_TRAIN_TIME;
    DRO_TRY(over && new ? report(t) : fill_record(t));
    dro__tell_objective(t, &t->stream->all.robust);
    return dro__run_save(t);
}
