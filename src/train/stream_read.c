/* Where the rows of a stream come from. One process reads all of them. On several ranks rank 0
 * reads one file, or a pipe, for all; the files of a pattern are divided over the ranks. Every rank
 * then gets all rows of a batch (stream_batch.c). The encoding of columns is learned from the first
 * rows of the first files, which every rank reads for this purpose. */
#include "stream_run.h"

#include <stdio.h>
#include <string.h>

typedef dro__stream_run stream_run;

/* ---- reading ---- */

static dro_status keep_row(dro_train *t, dro__held *k, const dro_rows *row)
{
    float y = row->y[0], sign = y > 0 ? 1 : -1;
    int32_t class = t->task.outputs > 2 ? (int32_t)y : y > 0;
    return dro__held_add(t->ctx, k,
                         &(dro__held_row){.columns = row->columns,
                                          .values = row->values,
                                          .count = (size_t)row->starts[1],
                                          .y = t->task.regression ? y : sign,
                                          .class = class,
                                          .file = (int32_t)dro__stream_file(t->stream->stream)});
}

/* A request to stop closes standard input, and max_time ends a silent pipe, perhaps within a line;
 * that line is dropped. */
static bool was_stopped(const dro_train *t)
{
    if (dro__stream_late(t->stream->stream))
        return true;
    return t->stream->about.is_stdin && dro__report_progress(t, NULL, 0);
}

/* Up to `count` rows: fewer at the end of the input. One at a time, so that none of those is
 * lost. */
static dro_status read_rows(dro_train *t, dro__held *k, size_t count, bool *over)
{
    stream_run *s = t->stream;
    dro_rows row;
    while (k->count < count) {
        dro_status status = dro_stream_next(s->stream, 1, &row);
        *over = status == DRO_ERR_END || (status == DRO_ERR_DATA && was_stopped(t));
        if (*over)
            return DRO_OK;
        DRO_TRY(status);
        if (dro__stream_unfinished(s->stream, row.positions[0]) && was_stopped(t))
            continue;
        DRO_TRY(keep_row(t, k, &row));
    }
    return DRO_OK;
}

/* This rank's share of a batch: the ranks that still have rows divide it evenly. */
static size_t own_share(const dro_train *t)
{
    const stream_run *s = t->stream;
    size_t reading = 0, before = 0;
    int rank = dro_comm_rank(t->comm);
    for (int r = 0; r < dro_comm_size(t->comm); r++) {
        before += r < rank && !s->shares[r].over;
        reading += !s->shares[r].over;
    }
    if (s->shares[rank].over)
        return 0;
    return s->batch * (before + 1) / reading - s->batch * before / reading;
}

/* Each rank reads its share, and all ranks get all rows. */
static dro_status read_shares(dro_train *t, dro__held *k)
{
    stream_run *s = t->stream;
    int rank = dro_comm_rank(t->comm);
    bool over = s->shares[rank].over;
    dro__held_clear(&s->mine, 0);
    dro_status status = over ? DRO_OK : read_rows(t, &s->mine, own_share(t), &over);
    s->shares[rank].over = over;
    s->shares[rank].note = *s->names && strcmp(*s->names, "0") == 0;
    DRO_TRY(dro__held_gather(t, &s->mine, s->shares, k, status));
    for (int r = 0; r < dro_comm_size(t->comm); r++)
        if (s->shares[r].note && strcmp(*s->names, "-1") == 0)
            *s->names = "0"; /* libsvm: its labels are 1 and 0, as another rank has seen */
    return DRO_OK;
}

static bool all_over(const dro_train *t)
{
    for (int r = 0; r < dro_comm_size(t->comm); r++)
        if (!t->stream->shares[r].over)
            return false;
    return true;
}

/* A batch is empty only at the end: a rank may reach the end of its files before others. */
dro_status dro__stream_read(dro_train *t, dro__held *k)
{
    stream_run *s = t->stream;
    bool over = false;
    dro__held_clear(k, s->next);
    if (dro_comm_size(t->comm) == 1)
        DRO_TRY(read_rows(t, k, s->batch, &over));
    else
        while (k->count == 0 && !all_over(t))
            DRO_TRY(read_shares(t, k));
    return k->count ? DRO_OK : DRO_ERR_END;
}

/* ---- opening ---- */

void dro__stream_names(stream_run *s)
{
    for (int k = 0; s->stream && k < s->about.class_count; k++)
        if (!s->names[k] || strcmp(s->names[k], "0") != 0) /* another rank has seen a 0 */
            s->names[k] = dro_stream_class(s->stream, k);
}

static dro_status make_names(dro_train *t)
{
    stream_run *s = t->stream;
    int32_t count = s->about.class_count;
    s->names = dro__alloc((size_t)count + 1, sizeof *s->names);
    if (!s->names)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %d classes", (int)count);
    dro__stream_names(s);
    return DRO_OK;
}

static dro_status check_classes(dro_train *t)
{
    const dro__stream_about *a = &t->stream->about;
    if (a->class_count == 1)
        return dro__fail(t->ctx, DRO_ERR_DATA, "%s has one class, '%.60s': expected two or more",
                         t->set.data, dro_stream_class(t->stream->stream, 0));
    if (a->class_count > DRO__OUTPUTS_MAX)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED, "%s has %d classes: expected at most %d",
                         t->set.data, (int)a->class_count, DRO__OUTPUTS_MAX);
    return DRO_OK;
}

/* The files of a pattern are divided over the ranks. */
static dro_status share_files(dro_train *t)
{
    stream_run *s = t->stream;
    for (const char *path; (path = dro__stream_path(s->stream, s->files)); s->files++)
        s->names_sum = dro__checksum(s->names_sum, path, strlen(path) + 1);
    if (s->files == 0)
        return DRO_OK;
    if (t->set.exact)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "exact=yes with a pattern of files: the order of the rows depends on the "
                         "number of ranks; leave out exact=yes, or stream one file");
    s->done = dro__alloc(s->files, sizeof *s->done);
    s->skip = dro__alloc(s->files, sizeof *s->skip);
    if (!s->done || !s->skip)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %zu files", s->files);
    dro__stream_share(s->stream, dro_comm_rank(t->comm), dro_comm_size(t->comm));
    if ((size_t)dro_comm_size(t->comm) > s->files)
        dro__note(t, "note: %zu files for %d ranks: %d of them read nothing", s->files,
                  dro_comm_size(t->comm), dro_comm_size(t->comm) - (int)s->files);
    return DRO_OK;
}

static dro_status open_reader(dro_train *t)
{
    stream_run *s = t->stream;
    dro__stream_about *a = &s->about;
    double limit = dro__time_limit(t); /* half of the time is for training */
    t->ctx->read_until = limit > 0 ? limit - t->set.max_time / 2 : 0;
    dro_status status = dro__stream_for_model(t->ctx, t->set.data, &s->stream);
    t->ctx->read_until = 0;
    DRO_TRY(status);
    const dro_data *data = dro__stream_data(s->stream);
    for (int k = 0; dro_data_remark(data, k); k++)
        dro__note(t, "note: %s", dro_data_remark(data, k));
    a->is_stdin = strcmp(data->spec.path, "-") == 0;
    a->columns = data->learned ? dro__checksum(0, data->encoding, strlen(data->encoding)) : 0;
    a->features = dro_stream_features(s->stream);
    a->norm = dro__stream_norm(s->stream);
    a->target = data->target;
    snprintf(a->format, sizeof a->format, "%s", data->format->name);
    for (const char *name; (name = dro_stream_class(s->stream, a->class_count)); a->class_count++)
        if (data->learned)
            a->columns = dro__checksum(a->columns, name, strlen(name) + 1);
    DRO_TRY(check_classes(t));
    DRO_TRY(make_names(t));
    return share_files(t);
}

/* The names of the classes, one behind the other, go to the ranks that do not read. */
static dro_status share_names(dro_train *t)
{
    stream_run *s = t->stream;
    int32_t count = s->about.class_count;
    uint64_t size = 0;
    char *to;
    for (int32_t k = 0; s->stream && k < count; k++)
        size += strlen(s->names[k]) + 1;
    DRO_TRY(dro__comm_share(t->comm, &size, sizeof size, 0));
    dro_status status = s->stream ? DRO_OK : make_names(t);
    to = s->all_names = dro__alloc(size + 1, 1);
    if (status == DRO_OK && !to)
        status = dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %d classes", (int)count);
    for (int32_t k = 0; status == DRO_OK && s->stream && k < count; k++)
        to = stpcpy(to, s->names[k]) + 1;
    DRO_TRY(dro__comm_agree(t->comm, status));
    DRO_TRY(dro__comm_share(t->comm, s->all_names, size, 0));
    to = s->all_names;
    for (int32_t k = 0; !s->stream && k < count; k++, to += strlen(to) + 1)
        s->names[k] = to;
    return DRO_OK;
}

/* Rank 0 reads one file, or a pipe, and sends the others what they need. */
static dro_status share_description(dro_train *t)
{
    stream_run *s = t->stream;
    char none[] = "", *text = s->stream ? dro__stream_data(s->stream)->encoding : NULL;
    text = text ? text : none;
    DRO_TRY(dro__comm_share(t->comm, &s->about, sizeof s->about, 0));
    DRO_TRY(dro__comm_share_text(t->comm, &text));
    s->encoding = text;
    return share_names(t);
}

dro_status dro__stream_reader_open(dro_train *t)
{
    stream_run *s = t->stream;
    int ranks = dro_comm_size(t->comm), rank = dro_comm_rank(t->comm);
    uint64_t files = 0;
    if (ranks == 1)
        return open_reader(t);
    s->shares = dro__alloc((size_t)ranks, sizeof *s->shares);
    s->sizes = dro__alloc((size_t)ranks, sizeof *s->sizes);
    dro_status status = s->shares && s->sizes
                            ? DRO_OK
                            : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", ranks);
    if (status == DRO_OK && rank == 0)
        status = open_reader(t);
    DRO_TRY(dro__comm_agree(t->comm, status));
    files = s->files;
    DRO_TRY(dro__comm_share(t->comm, &files, sizeof files, 0));
    if (files == 0)
        DRO_TRY(share_description(t));
    else
        DRO_TRY(dro__comm_agree(t->comm, rank > 0 ? open_reader(t) : DRO_OK));
    for (int r = 0; r < ranks; r++)
        s->shares[r].over = (uint64_t)r >= (files ? files : 1);
    return DRO_OK;
}
