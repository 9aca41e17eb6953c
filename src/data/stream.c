/* Streams: a shuffle buffer between the reader of rows (stream.h) and the batches.
 *
 * Each slot of the buffer owns one block for its row, which is exchanged when it is too small or
 * more than twice too large: the buffer is never larger than its rows ask for, whatever came before
 * them. A row goes out from a random place among those held, the last one held takes its place, and
 * the slot that is then free is refilled before the next draw (not sooner, so that a pipe is not
 * waited for early). */
#include "scale.h"
#include "stream.h"

#include <stdio.h>
#include <string.h>

enum {
    STREAM_SHUFFLE = 0x7368,
    SHUFFLE_DEFAULT = 10000,
    SHUFFLE_MAX = 1 << 28,
    ROW_MAX = 1 << 20,
    RING = 3,
    WINDOW_FIRST = 1 << 21, /* of dro__input_lines */
    LEARN_DEFAULT = 256,    /* few: a pipe may be slow */
    LEARN_MAX = 1 << 28,
    LEARN_BYTES = 1 << 26
};

typedef struct slot {
    int32_t *block; /* (capacity) columns, then (capacity) values */
    uint32_t capacity, count;
    int64_t position;
    size_t file;
    float y;
} slot;

typedef struct batch {
    int64_t *starts, *positions;
    int32_t *columns;
    float *values, *y;
    size_t start_capacity, position_capacity, column_capacity, value_capacity, y_capacity;
} batch;

struct dro_stream {
    dro__row_reader from;
    bool over;
    dro_status failed;

    dro__table
        first; /* rows that the scale was learned from, until they are sent; groups: their files */
    size_t start_capacity, column_capacity, value_capacity, target_capacity, file_capacity;
    int64_t sent; /* of them */
    bool first_unfinished;
    dro_status broken; /* what follows them: an error, and its text */
    char why[DRO__ERROR_SIZE];
    dro__scale scale;
    bool bias; /* an additional constant feature in every row, the last one */

    slot *slots; /* (made), of which the first `held` have a row */
    size_t made, held, slot_capacity, limit;
    uint64_t blocks; /* bytes */
    uint64_t seed, seen, drawn;
    uint64_t unfinished; /* the number of the row whose line lacks its newline, from 1 on; or 0 */

    int rank, ranks;      /* rows of files other than rank, rank + ranks, ... belong to others */
    const uint64_t *skip; /* (files) rows at the beginning of each that are skipped; or NULL */
    size_t file;          /* of the last row read */
    uint64_t in_file;     /* rows of it so far */
    bool passed_over;     /* some were */
    size_t last_file;     /* of the last row drawn */

    batch ring[RING];
    unsigned turn;
};

typedef struct row {
    const int32_t *columns;
    const float *values;
    size_t count, file;
    float y;
} row;

/* The next row of the input into from.row; *got is false at the end. */
static dro_status read_input(dro_stream *s, bool *got)
{
    *got = false;
    if (s->over)
        return DRO_OK;
    DRO_TRY(s->from.kind->next(&s->from, got));
    s->over = !*got;
    if (*got && s->from.row.starts[1] > ROW_MAX)
        return dro__fail(s->from.data.ctx, DRO_ERR_DATA,
                         "%s: line %lld: a row of %lld entries: expected at most %d in a stream",
                         s->from.name, (long long)s->from.lines, (long long)s->from.row.starts[1],
                         ROW_MAX);
    return DRO_OK;
}

/* The next row: one of the first ones, or of the input. */
static dro_status read_any(dro_stream *s, row *next, bool *got)
{
    dro__table *t = &s->first;
    if (s->sent < t->n) {
        int64_t start = t->starts[s->sent];
        *next =
            (row){t->columns + start, t->values + start, (size_t)(t->starts[s->sent + 1] - start),
                  (size_t)t->groups[s->sent], t->targets[s->sent]};
        s->from.unfinished = ++s->sent == t->n && s->first_unfinished;
        *got = true;
        return DRO_OK;
    }
    dro__table_free(t);
    s->sent = 0;
    s->start_capacity = s->column_capacity = s->value_capacity = s->target_capacity =
        s->file_capacity = 0;
    if (s->broken)
        return dro__fail(s->from.data.ctx, s->broken, "%s", s->why);
    DRO_TRY(read_input(s, got));
    if (*got)
        *next = (row){s->from.row.columns, s->from.row.values, (size_t)s->from.row.starts[1],
                      s->from.file, s->from.row.targets[0]};
    return DRO_OK;
}

/* The next row of this process that is not skipped. */
static dro_status read_row(dro_stream *s, row *next, bool *got)
{
    for (;;) {
        DRO_TRY(read_any(s, next, got));
        if (!*got)
            return DRO_OK;
        if (next->file != s->file)
            s->in_file = 0;
        s->file = next->file;
        bool own = next->file % (size_t)s->ranks == (size_t)s->rank;
        if (own && (!s->skip || s->in_file >= s->skip[s->file])) {
            s->in_file++;
            return DRO_OK;
        }
        s->in_file++;
        s->passed_over = true;
    }
}

/* ---- the first rows ---- */

static dro_status keep_first(dro_stream *s)
{
    dro_context *ctx = s->from.data.ctx;
    dro__table *t = &s->first;
    size_t n = (size_t)t->n, count = (size_t)s->from.row.starts[1];
    DRO_TRY(dro__grow(ctx, (void **)&t->starts, &s->start_capacity, n + 2, sizeof *t->starts));
    DRO_TRY(dro__grow(ctx, (void **)&t->targets, &s->target_capacity, n + 1, sizeof *t->targets));
    DRO_TRY(dro__grow(ctx, (void **)&t->groups, &s->file_capacity, n + 1, sizeof *t->groups));
    size_t at = n ? (size_t)t->starts[n] : 0;
    DRO_TRY(
        dro__grow(ctx, (void **)&t->columns, &s->column_capacity, at + count, sizeof *t->columns));
    DRO_TRY(dro__grow(ctx, (void **)&t->values, &s->value_capacity, at + count, sizeof *t->values));
    memcpy(t->columns + at, s->from.row.columns, count * sizeof *t->columns);
    memcpy(t->values + at, s->from.row.values, count * sizeof *t->values);
    t->starts[0] = 0;
    t->starts[n + 1] = (int64_t)(at + count);
    t->targets[n] = s->from.row.targets[0];
    t->groups[n] = (int32_t)s->from.file;
    t->n++;
    s->first_unfinished = s->from.unfinished;
    return DRO_OK;
}

/* Reads the first rows, unless they were read already. */
static dro_status read_first(dro_stream *s)
{
    dro_data *d = &s->from.data;
    int64_t learn;
    bool got = true;
    DRO_TRY(dro__option_integer(d, "learn", LEARN_DEFAULT, 2, LEARN_MAX, &learn));
    while (got && !s->broken && s->first.n < learn && s->column_capacity < LEARN_BYTES / 8) {
        s->broken = read_input(s, &got); /* a line is reported after the rows before it */
        if (s->broken && s->broken != DRO_ERR_DATA)
            return s->broken;
        if (s->broken)
            memcpy(s->why, d->ctx->error, sizeof s->why);
        else if (got)
            DRO_TRY(keep_first(s));
    }
    return DRO_OK;
}

/* Learns how columns without an own encoding, and real-valued targets, are scaled, from the first
 * rows. */
static dro_status learn_scale(dro_stream *s)
{
    dro_data *d = &s->from.data;
    dro__scaling scaling;
    bool own = s->from.kind->keep != NULL;
    bool real = s->from.real || (!own && dro__option(d, "target"));
    DRO_TRY(dro__scaling_read(d, &scaling));
    if (scaling == DRO__SCALE_NONE || (own && !real))
        return DRO_OK;
    DRO_TRY(read_first(s));
    if (real)
        dro__unit_learn(&s->first, &d->target);
    return own ? DRO_OK : dro__scale_learn(d->ctx, &s->first, d->features, scaling, &s->scale);
}

/* ---- the buffer ---- */

static void free_block(dro_stream *s, slot *of)
{
    dro__free(of->block);
    s->blocks -= (uint64_t)of->capacity * 8;
    of->block = NULL;
    of->capacity = 0;
}

static dro_status fit_block(dro_stream *s, slot *to, size_t count)
{
    if (to->block && to->capacity >= count && to->capacity <= 2 * count + 16)
        return DRO_OK;
    size_t capacity = (count + count / 4 + 15) / 8 * 8;
    free_block(s, to);
    to->block = dro__alloc(capacity, 8);
    if (!to->block)
        return dro__fail(
            s->from.data.ctx, DRO_ERR_MEMORY,
            "no memory for %zu rows in the shuffle buffer: expected a smaller shuffle=",
            s->held + 1);
    to->capacity = (uint32_t)capacity;
    s->blocks += (uint64_t)capacity * 8;
    return DRO_OK;
}

static dro_status fill(dro_stream *s)
{
    bool got = true;
    row next = {0};
    while (s->held < s->limit) {
        DRO_TRY(read_row(s, &next, &got));
        if (!got)
            break;
        DRO_TRY(dro__grow(s->from.data.ctx, (void **)&s->slots, &s->slot_capacity, s->held + 1,
                          sizeof *s->slots));
        slot *to = &s->slots[s->held];
        if (s->held == s->made) {
            *to = (slot){0};
            s->made++;
        }
        DRO_TRY(fit_block(s, to, next.count + s->bias));
        float *values = (float *)(void *)(to->block + to->capacity);
        memcpy(to->block, next.columns, next.count * sizeof *next.columns);
        memcpy(values, next.values, next.count * sizeof *next.values);
        dro__scale_row(&s->scale, next.count, to->block, values);
        if (s->bias) {
            to->block[next.count] = (int32_t)s->from.data.features - 1;
            values[next.count] = 1;
        }
        to->count = (uint32_t)(next.count + s->bias);
        to->y = dro__in_unit(&s->from.data.target, next.y);
        to->file = next.file;
        to->position = (int64_t)s->seen++;
        s->unfinished = s->from.unfinished ? s->seen : 0;
        s->held++;
    }
    return DRO_OK;
}

/* ---- batches ---- */

static dro_status append(dro_context *ctx, batch *b, size_t i, const slot *from)
{
    size_t start = i > 0 ? (size_t)b->starts[i] : 0, end = start + from->count;
    DRO_TRY(dro__grow(ctx, (void **)&b->starts, &b->start_capacity, i + 2, sizeof *b->starts));
    DRO_TRY(
        dro__grow(ctx, (void **)&b->positions, &b->position_capacity, i + 1, sizeof *b->positions));
    DRO_TRY(dro__grow(ctx, (void **)&b->y, &b->y_capacity, i + 1, sizeof *b->y));
    DRO_TRY(dro__grow(ctx, (void **)&b->columns, &b->column_capacity, end, sizeof *b->columns));
    DRO_TRY(dro__grow(ctx, (void **)&b->values, &b->value_capacity, end, sizeof *b->values));
    memcpy(b->columns + start, from->block, from->count * sizeof *b->columns);
    memcpy(b->values + start, from->block + from->capacity, from->count * sizeof *b->values);
    b->starts[0] = 0;
    b->starts[i + 1] = (int64_t)end;
    b->positions[i] = from->position;
    b->y[i] = from->y;
    return DRO_OK;
}

static dro_status no_more(dro_stream *s, size_t left, size_t count)
{
    if (s->seen == 0 && !s->passed_over && s->ranks == 1)
        return dro__fail(s->from.data.ctx, DRO_ERR_DATA, "%s: has no rows: expected %s",
                         s->from.name, s->from.kind->expected);
    return dro__fail(
        s->from.data.ctx, DRO_ERR_END,
        "%s: the end, after %llu rows; %zu of them, fewer than the %zu asked for, were "
        "dropped",
        s->from.name, (unsigned long long)s->seen, left, count);
}

static dro_status draw(dro_stream *s, size_t count, batch *b)
{
    for (size_t i = 0; i < count; i++) {
        DRO_TRY(fill(s));
        if (s->held == 0)
            return no_more(s, i, count);
        size_t k = (size_t)dro__random_below(s->seed, STREAM_SHUFFLE, s->drawn++, s->held);
        DRO_TRY(append(s->from.data.ctx, b, i, &s->slots[k]));
        s->last_file = s->slots[k].file;
        slot gone = s->slots[k];
        s->slots[k] = s->slots[--s->held];
        if (s->over)
            free_block(s, &gone);
        s->slots[s->held] = gone;
    }
    return DRO_OK;
}

dro_status dro_stream_next(dro_stream *s, size_t count, dro_rows *rows)
{
    if (!s || !rows)
        return DRO_ERR_ARGUMENT;
    dro__forget(s->from.data.ctx);
    *rows = (dro_rows){0};
    if (count == 0)
        return dro__fail(s->from.data.ctx, DRO_ERR_ARGUMENT, "0 rows: expected 1 or more");
    if (s->failed == DRO_ERR_END)
        return no_more(s, 0, count);
    if (s->failed)
        return dro__fail(s->from.data.ctx, s->failed,
                         "%s: an error ended the stream after line %lld", s->from.name,
                         (long long)s->from.lines);
    batch *b = &s->ring[s->turn++ % RING];
    s->failed = draw(s, count, b);
    if (s->failed)
        return s->failed;
    *rows = (dro_rows){.count = count,
                       .features = s->from.data.features,
                       .starts = b->starts,
                       .columns = b->columns,
                       .values = b->values,
                       .y = b->y,
                       .positions = b->positions};
    return DRO_OK;
}

/* ---- open and close ---- */

dro_status dro__rows_choose(const dro__row_reader *r, const char *name, const char *const *values,
                            int *chosen)
{
    const char *value = dro__option(&r->data, name);
    char all[128] = "";
    *chosen = 0;
    if (!value)
        return DRO_OK;
    for (size_t k = 0, used = 0; values[k] && used < sizeof all; k++) {
        if (strcmp(value, values[k]) == 0)
            *chosen = (int)k + 1;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k ? " or " : "", values[k]);
    }
    if (*chosen == 0)
        return dro__fail(r->data.ctx, DRO_ERR_RANGE, "%s=%.40s: expected %s=%s or nothing", name,
                         value, name, all);
    return DRO_OK;
}

dro_status dro__rows_one_way(const dro__row_reader *r, bool labels, bool real)
{
    bool positive = dro__option(&r->data, "positive"), classes = dro__option(&r->data, "classes");
    return labels + real + positive + classes <= 1
               ? DRO_OK
               : dro__fail(r->data.ctx, DRO_ERR_ARGUMENT,
                           "labels=, positive=, classes= and target=: expected one of them");
}

static dro_status read_options(dro_stream *s, int64_t usual)
{
    static const char *const whole[] = {"imratio", "longtail", "holdout", "flip", "skip_bad"};
    const dro_data *d = &s->from.data;
    int64_t shuffle, seed;
    for (size_t k = 0; k < sizeof whole / sizeof whole[0]; k++)
        if (dro__option(d, whole[k]))
            return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                             "%s= needs the whole data set, which a stream never has", whole[k]);
    DRO_TRY(dro__option_integer(d, "shuffle", usual, 0, SHUFFLE_MAX, &shuffle));
    DRO_TRY(dro__option_integer(d, "seed", 1, 0, INT64_MAX, &seed));
    s->limit = shuffle > 0 ? (size_t)shuffle : 1;
    s->seed = (uint64_t)seed;
    return DRO_OK;
}

static dro_status open_stream(dro_stream *s, const char *spec, int64_t shuffle)
{
    dro__row_reader *r = &s->from;
    char full[DRO__SPEC_MAX];
    DRO_TRY(dro__spec_full(r->data.ctx, spec, full));
    spec = full;
    const dro__format *format;
    char usages[400];
    size_t used = 0;
    for (int k = 0; (format = dro__format_at(k)); k++) {
        if (!format->stream)
            continue;
        if (used < sizeof usages)
            used +=
                (size_t)snprintf(usages + used, sizeof usages - used, "%s%s:%s", used ? " or " : "",
                                 format->name, format->stream->format.usage);
        if (strcspn(spec, ":") == strlen(format->name) &&
            strncmp(spec, format->name, strlen(format->name)) == 0)
            r->kind = format->stream;
    }
    if (!r->kind)
        return dro__fail(r->data.ctx, DRO_ERR_UNSUPPORTED, "%.60s: cannot be streamed: expected %s",
                         spec, usages);
    r->data.format = &r->kind->format;
    DRO_TRY(dro__spec_parse(&r->data, spec));
    r->data.kind = DRO_DATA_STREAM;
    DRO_TRY(read_options(s, shuffle));
    DRO_TRY(dro__input_open_all(r->data.ctx, r->data.spec.path, &r->input));
    r->name = dro__input_name(r->input);
    DRO_TRY(r->kind->open(r));
    if (!r->learns)
        return DRO_OK;
    DRO_TRY(read_first(s));
    return r->kind->learn(r, &s->first);
}

static dro_status make_stream(dro_context *ctx, const char *spec, int64_t shuffle,
                              dro_stream **stream)
{
    if (!ctx || !stream)
        return DRO_ERR_ARGUMENT;
    *stream = NULL;
    if (!spec)
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "no SPEC: expected libsvm:FILE,features=D or csv:FILE,label=COLUMN");
    dro_stream *s = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a stream");
    s->from.data.ctx = ctx;
    s->from.data.target.scale = 1;
    s->ranks = 1;
    dro_status status = open_stream(s, spec, shuffle);
    if (status != DRO_OK)
        dro_stream_close(s);
    else
        *stream = s;
    return dro__done(ctx, status);
}

dro_status dro_stream_open(dro_context *ctx, const char *spec, dro_stream **stream)
{
    return make_stream(ctx, spec, SHUFFLE_DEFAULT, stream);
}

dro_status dro__stream_for_model(dro_context *ctx, const char *spec, dro_stream **stream)
{
    DRO_TRY(make_stream(ctx, spec, 0, stream));
    dro_stream *s = *stream;
    dro__row_reader *r = &s->from;
    if (r->kind->keep)
        DRO_TRY(r->kind->keep(r));
    DRO_TRY(learn_scale(s));
    DRO_TRY(dro__rows_note(&r->data, &s->scale, r->data.features));
    r->data.features++;
    s->bias = true;
    return DRO_OK;
}

dro_status dro__stream_rescale(dro_stream *s, const char *encoding)
{
    const char *kept = dro__rows_kept(encoding);
    dro_data *d = &s->from.data;
    dro__scale scale = {0};
    DRO_TRY(dro__unit_read(d->ctx, kept, &d->target));
    if (kept && strncmp(kept, "scale ", 6) == 0)
        DRO_TRY(dro__scale_read(d->ctx, kept, &scale));
    char *text = dro__alloc(strlen(encoding) + 1, 1);
    if (!text) {
        dro__scale_free(&scale);
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    }
    strcpy(text, encoding);
    dro__free(d->encoding);
    d->encoding = text;
    dro__scale_free(&s->scale);
    s->scale = scale;
    return DRO_OK;
}

void dro_stream_close(dro_stream *s)
{
    if (!s)
        return;
    for (size_t k = 0; k < s->made; k++)
        dro__free(s->slots[k].block);
    for (int k = 0; k < RING; k++) {
        batch *b = &s->ring[k];
        dro__free(b->starts), dro__free(b->positions), dro__free(b->y);
        dro__free(b->columns), dro__free(b->values);
    }
    dro__free(s->slots);
    dro__table_free(&s->first);
    dro__scale_free(&s->scale);
    dro__free(s->from.data.encoding);
    dro__notes_free(&s->from.data.remarks);
    if (s->from.kind)
        s->from.kind->close(&s->from);
    dro__table_free(&s->from.row);
    dro__input_close(s->from.input);
    dro__free(s);
}

/* ---- several files, several processes ---- */

void dro__stream_share(dro_stream *s, int rank, int ranks)
{
    s->rank = rank;
    s->ranks = ranks;
    dro__input_share(s->from.input, rank, ranks);
}

void dro__stream_skip(dro_stream *s, const uint64_t *rows)
{
    s->skip = rows;
}

const char *dro__stream_path(const dro_stream *s, size_t index)
{
    return dro__input_path(s->from.input, index);
}

size_t dro__stream_file(const dro_stream *s)
{
    return s->last_file;
}

bool dro__stream_shuffles(const dro_stream *s)
{
    return s->limit > 1;
}

/* ---- asking ---- */

double dro__stream_norm(const dro_stream *s)
{
    return (double)(s->from.per_row ? s->from.per_row : s->from.data.features - s->bias);
}

const dro_data *dro__stream_data(const dro_stream *s)
{
    return &s->from.data;
}

bool dro__stream_unfinished(const dro_stream *s, int64_t position)
{
    return s->unfinished == (uint64_t)position + 1;
}

void dro__stream_until(dro_stream *s, double clock)
{
    dro__input_until(s->from.input, clock);
}

bool dro__stream_late(const dro_stream *s)
{
    return dro__input_late(s->from.input);
}

size_t dro_stream_features(const dro_stream *s)
{
    return s ? s->from.data.features : 0;
}

const char *dro_stream_class(const dro_stream *s, int index)
{
    return s && index >= 0 && index < s->from.class_count ? s->from.classes[index] : NULL;
}

uint64_t dro_stream_seen(const dro_stream *s)
{
    return s ? s->seen : 0;
}

uint64_t dro_stream_bytes(const dro_stream *s)
{
    return s && s->from.input ? dro__input_fetched(s->from.input) : 0;
}

uint64_t dro_stream_memory(const dro_stream *s)
{
    if (!s)
        return 0;
    /* The window of lines doubles only when one line fills it. */
    uint64_t line = 2 * s->from.longest + 4, bytes = line > WINDOW_FIRST ? line : WINDOW_FIRST;
    bytes += (s->column_capacity + s->value_capacity + s->target_capacity + s->file_capacity +
              s->scale.features) *
                 sizeof(float) +
             s->start_capacity * sizeof(int64_t);
    bytes += sizeof *s + s->blocks + s->slot_capacity * sizeof *s->slots +
             s->from.kind->memory(&s->from);
    for (int k = 0; k < RING; k++) {
        const batch *b = &s->ring[k];
        bytes += (b->start_capacity + b->position_capacity) * sizeof(int64_t) +
                 (b->column_capacity + b->value_capacity + b->y_capacity) * sizeof(float);
    }
    return bytes;
}
