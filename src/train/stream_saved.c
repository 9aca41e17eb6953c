/* A stream in a checkpoint: the last batches, the metrics so far, and how far the input was
 * read. */
#include "stream_run.h"

#include <string.h>

typedef dro__stream_run stream_run;

static bool is_sane(const dro__tally *m)
{
    size_t c = (size_t)m->figures.classes;
    int64_t n = m->figures.examples;
    bool ok = n >= 0 && n < INT64_MAX / 2;
    for (size_t k = 0; ok && k < c; k++)
        ok = m->counts[k] >= 0 && m->counts[k] <= n;
    for (size_t k = 0; ok && k < dro__tally_matrix(m); k++)
        ok = m->confusion[k] >= 0 && m->confusion[k] <= n;
    return ok;
}

/* The settings name what F measures; with a lambda that became infinite it is the mean. Losses and
 * weights are kept for cvar and the like, scores and truths for the curves. */
static void archive_measure(const dro_train *t, dro__archive *ar, dro__tally *m)
{
    size_t c = (size_t)m->figures.classes;
    bool other = m->robust.other.kind != DRO__OBJECTIVE_MEAN;
    DRO__ARCHIVE(ar, m->figures.examples);
    DRO__ARCHIVE(ar, m->mass);
    DRO__ARCHIVE(ar, m->loss_sum);
    DRO__ARCHIVE(ar, m->robust.lambda);
    DRO__ARCHIVE(ar, m->robust.weight_lambda);
    DRO__ARCHIVE(ar, m->robust.level);
    dro__archive_flag(ar, &m->robust.uniform);
    dro__archive_flag(ar, &other);
    DRO__ARCHIVE(ar, m->tilted);
    DRO__ARCHIVE(ar, m->class_top);
    dro__archive_bytes(ar, m->classes, c * sizeof *m->classes);
    DRO__ARCHIVE(ar, m->bins);
    DRO__ARCHIVE(ar, m->real);
    dro__archive_bytes(ar, m->counts, c * sizeof *m->counts);
    dro__archive_bytes(ar, m->confusion, dro__tally_matrix(m) * sizeof *m->confusion);
    if (ar->mode == DRO__ARCHIVE_LOAD) {
        m->robust.other = other ? dro__other_objective(t) : (dro__objective){0};
        ar->failed = ar->failed || !is_sane(m);
        if (ar->failed)
            return;
    }
    int64_t n = m->figures.examples;
    size_t scored = (size_t)(n < m->capacity ? n : m->capacity);
    size_t kept = (size_t)(n < m->loss_capacity ? n : m->loss_capacity);
    dro__archive_bytes(ar, m->scores, scored * dro__tally_width(m) * sizeof *m->scores);
    dro__archive_bytes(ar, m->truth, scored * sizeof *m->truth);
    dro__archive_bytes(ar, m->losses, kept * sizeof *m->losses);
    dro__archive_bytes(ar, m->weights, kept * sizeof *m->weights);
}

/* Whether the rows of a checkpoint are such as dro__held_add() makes. */
static bool are_sane(const dro_train *t, const dro__held *k)
{
    bool ok = k->starts[0] == 0 && (uint64_t)k->starts[k->count] == k->entries;
    for (size_t i = 0; ok && i < k->count; i++)
        ok = k->starts[i] <= k->starts[i + 1] && k->classes[i] >= 0 &&
             (size_t)k->classes[i] < (t->task.outputs > 1 ? t->task.outputs : 2) &&
             k->ids[i] == (int64_t)(k->position + i);
    for (size_t e = 0; ok && e < k->entries; e++)
        ok = k->columns[e] >= 0 && (size_t)k->columns[e] < t->task.width;
    return ok;
}

static void archive_held(dro_train *t, dro__archive *ar, dro__held *k)
{
    uint64_t entries = k->entries;
    size_t batch = t->stream->batch;
    DRO__ARCHIVE(ar, k->position);
    DRO__ARCHIVE(ar, k->count);
    DRO__ARCHIVE(ar, entries);
    if (ar->mode == DRO__ARCHIVE_LOAD && !ar->failed) {
        bool fits = entries <= ar->size / 8 && k->count <= batch;
        if (fits && dro__held_grow(t->ctx, k, entries) != DRO_OK)
            dro__memory_lost();
        ar->failed = !fits || dro__memory_ran_out();
        if (ar->failed)
            return;
        k->entries = entries;
    }
    dro__archive_bytes(ar, k->starts, (batch + 1) * sizeof *k->starts);
    dro__archive_bytes(ar, k->ids, batch * sizeof *k->ids);
    dro__archive_bytes(ar, k->classes, batch * sizeof *k->classes);
    dro__archive_bytes(ar, k->y, batch * sizeof *k->y);
    dro__archive_bytes(ar, k->columns, entries * sizeof *k->columns);
    dro__archive_bytes(ar, k->values, entries * sizeof *k->values);
    if (ar->mode == DRO__ARCHIVE_LOAD && !ar->failed)
        ar->failed = k->count > 0 && !are_sane(t, k);
}

/* How columns are scaled: standard input that continues from where it was cannot be read again to
 * learn it. */
static void archive_encoding(dro_train *t, dro__archive *ar)
{
    stream_run *s = t->stream;
    char *own = s->stream && !s->about.columns ? dro__stream_data(s->stream)->encoding : NULL;
    uint64_t size = own ? strlen(own) : 0;
    DRO__ARCHIVE(ar, size);
    bool load = ar->mode == DRO__ARCHIVE_LOAD;
    if (size == 0 || (load && (ar->failed || size > ar->size)))
        return;
    char *text = load ? dro__alloc(size + 1, 1) : own;
    if (text)
        dro__archive_bytes(ar, text, size);
    bool rescale = load && s->about.is_stdin && s->stream;
    if (!text || (rescale && dro__stream_rescale(s->stream, text) != DRO_OK))
        ar->failed = true;
    if (load)
        dro__free(text);
}

/* How far a pattern of files has been read. */
static void archive_files(dro_train *t, dro__archive *ar)
{
    stream_run *s = t->stream;
    uint64_t files = s->files;
    s->saved_ranks = (uint64_t)dro_comm_size(t->comm);
    DRO__ARCHIVE(ar, s->saved_ranks);
    DRO__ARCHIVE(ar, files);
    DRO__ARCHIVE(ar, s->names_sum);
    if (files != s->files) /* dro__stream_load() says so */
        s->names_sum = 0;
    else
        dro__archive_bytes(ar, s->done, s->files * sizeof *s->done);
}

static void walk(dro_train *t, dro__archive *ar)
{
    stream_run *s = t->stream;
    archive_encoding(t, ar);
    if (s->files)
        archive_files(t, ar);
    DRO__ARCHIVE(ar, s->about.columns);
    DRO__ARCHIVE(ar, s->next);
    DRO__ARCHIVE(ar, s->reported);
    archive_measure(t, ar, &s->all);
    archive_measure(t, ar, &s->window);
    for (int i = 0; i < DRO__RING; i++)
        archive_held(t, ar, &s->ring[i]);
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

/* One file is read again up to where the run was. Standard input continues with what comes, unless
 * its first rows determine how it is read. */
static dro_status read_again(dro_train *t, uint64_t rows_done)
{
    stream_run *s = t->stream;
    dro_rows rows;
    for (uint64_t left = s->stream ? rows_done : 0; left > 0; left -= rows.count) {
        size_t count = left < s->batch ? (size_t)left : s->batch;
        dro_status status = dro_stream_next(s->stream, count, &rows);
        if (status == DRO_ERR_END)
            return dro__fail(t->ctx, DRO_ERR_DATA, "%s is shorter than it was", t->set.data);
        DRO_TRY(status);
    }
    return DRO_OK;
}

/* A pattern of files: rows that were already in batches are skipped, on whichever rank. A shuffled
 * order can be repeated only with the same number of ranks. */
static dro_status find_place(dro_train *t)
{
    stream_run *s = t->stream;
    int ranks = dro_comm_size(t->comm), rank = dro_comm_rank(t->comm);
    uint64_t rows = 0;
    if (!dro__stream_shuffles(s->stream)) {
        memcpy(s->skip, s->done, s->files * sizeof *s->skip);
        dro__stream_skip(s->stream, s->skip);
        return DRO_OK;
    }
    if (s->saved_ranks != (uint64_t)ranks)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "shuffle= with a pattern of files: the run was made by %d ranks, and only "
                         "as many can repeat the order of its rows",
                         (int)s->saved_ranks);
    for (size_t k = (size_t)rank; k < s->files; k += (size_t)ranks)
        rows += s->done[k];
    return read_again(t, rows);
}

dro_status dro__stream_load(dro_train *t, void *bytes, size_t size)
{
    stream_run *s = t->stream;
    dro__archive ar = {.mode = DRO__ARCHIVE_LOAD, .bytes = bytes, .size = size};
    uint64_t columns = s->about.columns, names = s->names_sum;
    dro__memory_watch();
    walk(t, &ar);
    if (dro__memory_ran_out())
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the rows of the checkpoint");
    if (s->names_sum != names)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "%s: it names other files than when the run began: resume with the same "
                         "files, or begin anew",
                         t->set.data);
    if (ar.failed || ar.used != size)
        return dro__fail(t->ctx, DRO_ERR_FORMAT, "the checkpoint is inconsistent");
    if (columns != s->about.columns)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "%s: its first rows, which determine the encoding, are not those that the "
                         "run started with: resume with the same rows, or start again",
                         t->set.data);
    if (s->stream)
        t->task.encoding = dro__stream_data(s->stream)->encoding;
    bool again = !s->about.is_stdin || columns;
    if (s->files)
        DRO_TRY(find_place(t));
    else if (again)
        DRO_TRY(read_again(t, s->next));
    if (s->about.is_stdin)
        dro__note(t, "standard input must start with row %llu of the stream",
                  again ? 1 : (unsigned long long)s->next + 1);
    return DRO_OK;
}
