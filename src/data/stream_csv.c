/* Streams of CSV rows. What a data set learns from training (csv_encode.c) a stream learns from its
 * first rows, learn=N of them: which columns are numbers, their means and deviations, the
 * categories, the classes (classes= lists them instead). Those rows are kept as text, encoded and
 * sent first, then forgotten; the encoding never changes after that. A category that they did not
 * have is "unseen"; a text in a column of numbers, or another label, is an error that names
 * learn=. */
#include "csv.h"
#include "stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEARN_DEFAULT = 10000, LEARN_MIN = 2, LEARN_MAX = 1 << 28, LEARN_BYTES = 1 << 26 };

typedef enum labels { SIGN, CLASSES, WRITTEN, ONE } labels;

typedef struct source {
    dro__csv_form form;
    dro__csv_source lines;
    dro__csv learned; /* the first rows, until they are sent */
    int64_t sent;     /* of them */
    bool more;        /* rows follow them */
    const char *cell; /* the first of the next of them */
    dro__csv row;     /* one of the rows after them */
    char *header;
    dro__columns columns;
    labels labels;
    bool strict;          /* labels=sign: two classes, and no more */
    const char *positive; /* ONE: this label against all others */
    const char *listed;   /* classes=, or NULL */
    dro__names classes;
    int32_t *rank;       /* (classes) */
    const char **sorted; /* (classes) names, borrowed */
    const char *pair[2]; /* names with ONE */
    uint64_t encoding;   /* bytes of all that was learned */
} source;

/* ---- options ---- */

static dro_status read_options(const dro__row_reader *r, source *s, int64_t *learn)
{
    static const char *const kinds[] = {"sign", "classes", "written", NULL};
    int chosen;
    DRO_TRY(dro__csv_form_read(&r->data, &s->form));
    DRO_TRY(dro__rows_choose(r, "labels", kinds, &chosen));
    DRO_TRY(dro__option_integer(&r->data, "learn", LEARN_DEFAULT, LEARN_MIN, LEARN_MAX, learn));
    s->positive = dro__option(&r->data, "positive");
    DRO_TRY(dro__rows_one_way(r, chosen > 0, s->form.real));
    s->strict = chosen == 1;
    s->listed = dro__option(&r->data, "classes");
    s->labels = s->positive ? ONE : s->form.real ? WRITTEN : chosen ? (labels)(chosen - 1) : SIGN;
    s->lines = (dro__csv_source){
        .input = r->input, .separator = s->form.separator, .header = s->form.header};
    return DRO_OK;
}

/* ---- learning ---- */

static dro_status read_first(const dro__row_reader *r, source *s, int64_t learn)
{
    dro__csv *csv = &s->learned;
    bool got = true;
    while (got && csv->rows < learn && csv->used < LEARN_BYTES)
        DRO_TRY(dro__csv_append(&s->lines, csv, &got));
    if (csv->rows == 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: is empty: expected rows of cells", csv->name);
    DRO_TRY(dro__csv_form_fit(&r->data, &s->form, csv));
    s->lines.header = s->form.header;
    if (csv->header && got) /* it was one of them */
        DRO_TRY(dro__csv_append(&s->lines, csv, &got));
    s->more = got;
    return DRO_OK;
}

/* Copies the names of the columns, which are needed after the first rows. */
static dro_status keep_header(source *s)
{
    dro__csv *csv = &s->learned;
    if (!csv->header)
        return DRO_OK;
    size_t size = (size_t)(csv->cells - csv->header);
    s->header = dro__alloc(size, 1);
    if (!s->header)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
    memcpy(s->header, csv->header, size);
    csv->header = s->header;
    return DRO_OK;
}

static const char *label_of(const source *s, const char *cell)
{
    for (size_t k = 0; k < s->form.label; k++)
        cell = dro__csv_next(cell);
    return cell;
}

/* positive=LABEL: where the first rows have other labels, all of them of one kind, it may be a rare
 * one. */
static dro_status check_positive(const source *s)
{
    const dro__csv *csv = &s->learned;
    if (s->classes.count < 2 || dro__names_find(&s->classes, s->positive, strlen(s->positive)) >= 0)
        return DRO_OK;
    return dro__fail(csv->ctx, DRO_ERR_DATA,
                     "%s: positive=%.40s: none of the first %lld rows has this label, they have "
                     "'%.40s' and '%.40s'%s (learn=N reads more rows first)",
                     csv->name, s->positive, (long long)csv->rows, s->classes.names[0],
                     s->classes.names[1], s->classes.count > 2 ? " and others" : "");
}

static dro_status check_classes(const source *s)
{
    const dro__csv *csv = &s->learned;
    long long rows = (long long)csv->rows;
    if (s->labels == ONE)
        return check_positive(s);
    if (s->labels == CLASSES || s->classes.count == 2)
        return DRO_OK;
    if (s->classes.count < 2 && s->listed)
        return dro__fail(csv->ctx, DRO_ERR_RANGE,
                         "classes=%.60s: expected two labels or more, as in classes=A:B:C",
                         s->listed);
    if (s->classes.count < 2)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: the first %lld rows all have the label '%.40s': expected two classes "
                         "or more (learn=N reads more rows first, classes=A:B:C lists them)",
                         csv->name, rows, s->classes.count ? s->classes.names[0] : "");
    return dro__fail(csv->ctx, DRO_ERR_DATA,
                     "%s: %zu different labels in the first %lld rows: expected two classes "
                     "(positive=%.40s takes '%.40s' against all others, target=real reads numbers)",
                     csv->name, s->classes.count, rows, s->classes.names[0], s->classes.names[0]);
}

/* Without labels=, positive=, classes= and target=: classes, unless the labels are numbers to
 * predict. */
static dro_status choose_target(dro__row_reader *r, source *s)
{
    bool real = false;
    char name[64];
    if (s->labels != SIGN || s->strict || s->classes.count < 3)
        return DRO_OK;
    if (!s->listed && !dro__option(&r->data, "target"))
        DRO_TRY(dro__csv_find_real(&s->learned, &s->form, &s->classes, &real));
    s->labels = CLASSES;
    if (!real)
        return DRO_OK;
    dro__csv_column_name(&s->learned, s->form.label, name, sizeof name);
    DRO_TRY(dro__remark(&r->data,
                        "%s: %zu different numbers in the first %lld rows: a real-valued target, "
                        "as with target=real",
                        name, s->classes.count, (long long)s->learned.rows));
    dro__names_free(&s->classes);
    s->labels = WRITTEN;
    s->form.real = true;
    return DRO_OK;
}

/* classes=A:B:C */
static dro_status list_classes(source *s)
{
    int32_t number;
    for (const char *p = s->listed; *p;) {
        size_t length = strcspn(p, ":");
        DRO_TRY(dro__names_add(s->learned.ctx, &s->classes, p, length, &number));
        if (dro__csv_missing(&s->form.missing, s->classes.names[number]))
            return dro__fail(s->learned.ctx, DRO_ERR_RANGE,
                             "classes=%.60s: '%.40s' means a missing value, which is no class",
                             s->listed, s->classes.names[number]);
        p += length + (p[length] == ':');
    }
    return DRO_OK;
}

static dro_status see_classes(source *s)
{
    const dro__csv *csv = &s->learned;
    const char *cell = csv->cells;
    int32_t number;
    for (int64_t i = 0; i < csv->rows; i++) {
        const char *label = label_of(s, cell);
        if (dro__csv_missing(&s->form.missing, label))
            return dro__csv_bad_cell(csv, i, s->form.label, label, "a label");
        bool needed = s->labels != ONE || s->classes.count < 3 || strcmp(label, s->positive) == 0;
        number = 0;
        if (needed)
            DRO_TRY(dro__names_add(csv->ctx, &s->classes, label, strlen(label), &number));
        if (number >= DRO__CSV_CATEGORIES_MAX)
            return dro__csv_bad_cell(csv, i, s->form.label, label,
                                     "at most 65536 different ones (target=real reads numbers)");
        for (size_t k = 0; k < csv->columns; k++)
            cell = dro__csv_next(cell);
    }
    return DRO_OK;
}

static dro_status learn_classes(dro__row_reader *r, source *s)
{
    const dro__csv *csv = &s->learned;
    if (s->labels == WRITTEN)
        return DRO_OK;
    DRO_TRY(s->listed ? list_classes(s) : see_classes(s));
    DRO_TRY(choose_target(r, s));
    if (s->labels == WRITTEN)
        return DRO_OK;
    DRO_TRY(check_classes(s));
    if (s->labels == ONE)
        return DRO_OK;
    DRO_TRY(dro__names_rank(csv->ctx, &s->classes, true, &s->rank));
    s->sorted = dro__alloc(s->classes.count, sizeof *s->sorted);
    if (!s->sorted)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu classes", s->classes.count);
    for (size_t k = 0; k < s->classes.count; k++)
        s->sorted[s->rank[k]] = s->classes.names[k];
    return DRO_OK;
}

static dro_status learn_columns(source *s)
{
    const dro__csv *csv = &s->learned;
    int64_t *rows = dro__alloc((size_t)csv->rows, sizeof *rows);
    if (!rows)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %lld rows", (long long)csv->rows);
    for (int64_t i = 0; i < csv->rows; i++)
        rows[i] = i;
    s->columns.number = "a number, as in the first rows (learn=N reads more of them)";
    dro_status status = dro__csv_learn(csv, &s->form, rows, csv->rows, &s->columns);
    dro__free(rows);
    return status;
}

static dro_status open_rows(dro__row_reader *r)
{
    dro_context *ctx = r->data.ctx;
    int64_t learn;
    source *s = r->state = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a stream");
    s->learned.ctx = s->row.ctx = ctx;
    snprintf(s->learned.name, sizeof s->learned.name, "%s", r->name);
    snprintf(s->row.name, sizeof s->row.name, "%s", r->name);
    DRO_TRY(read_options(r, s, &learn));
    DRO_TRY(dro__csv_encoding(&r->data, r->input));
    DRO_TRY(read_first(r, s, learn));
    DRO_TRY(keep_header(s));
    DRO_TRY(dro__csv_form_index(&r->data, &s->form, &s->learned));
    DRO_TRY(learn_classes(r, s));
    r->real = s->form.real;
    DRO_TRY(learn_columns(s));
    s->cell = s->learned.cells;
    s->row.columns = s->learned.columns;
    s->row.columns_line = s->learned.columns_line;
    s->encoding = dro__columns_bytes(&s->columns) + dro__names_bytes(&s->classes) +
                  2 * s->columns.count * (sizeof *r->row.columns + sizeof *r->row.values);
    r->longest = s->lines.longest;
    r->data.features = s->columns.features;
    size_t most = dro__columns_entries(&s->columns);
    for (size_t k = 0; k < s->columns.count; k++)
        r->per_row += !s->columns.at[k].left_out;
    s->pair[0] = "other";
    s->pair[1] = s->positive;
    r->classes = s->labels == ONE ? s->pair : s->sorted;
    r->class_count = s->labels == ONE ? 2 : (int32_t)s->classes.count;
    r->row.targets = dro__alloc(1, sizeof *r->row.targets);
    r->row.starts = dro__alloc(2, sizeof *r->row.starts);
    r->row.columns = dro__alloc(most, sizeof *r->row.columns);
    r->row.values = dro__alloc(most, sizeof *r->row.values);
    if (!r->row.targets || !r->row.starts || !r->row.columns || !r->row.values)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu columns", s->columns.count);
    return DRO_OK;
}

/* ---- rows ---- */

static dro_status read_label(const source *s, const dro__csv *csv, int64_t row, const char *cell,
                             float *y)
{
    size_t length = strlen(cell), k = s->form.label;
    if (s->labels == WRITTEN) {
        double value;
        bool comma = dro__csv_commas(&s->form, csv);
        int unit = 0;
        bool number = comma ? dro__csv_number(cell, comma, &value)
                            : dro__csv_formatted(cell, comma, &unit, &value);
        *y = number ? (float)value : NAN;
        return isfinite(*y) ? DRO_OK
                            : dro__csv_bad_cell(csv, row, k, cell, dro__csv_expected(cell, number));
    }
    if (dro__csv_missing(&s->form.missing, cell))
        return dro__csv_bad_cell(csv, row, k, cell, "a label");
    if (s->labels == ONE) {
        *y = strcmp(cell, s->positive) == 0 ? 1 : -1;
        return DRO_OK;
    }
    int32_t number = dro__names_find(&s->classes, cell, length);
    if (number < 0)
        return dro__csv_bad_cell(csv, row, k, cell,
                                 s->listed ? "a label that classes= lists"
                                           : "a label that the first rows have (classes=A:B:C "
                                             "lists all, learn=N reads more rows first)");
    *y = s->labels == CLASSES ? (float)s->rank[number] : s->rank[number] ? 1 : -1;
    return DRO_OK;
}

static dro_status next_row(dro__row_reader *r, bool *got)
{
    source *s = r->state;
    dro__csv *csv = &s->learned;
    size_t count = 0;
    int64_t row = s->sent;
    *got = true;
    if (s->sent == csv->rows) {
        dro__csv_free(csv);
        s->sent = 0;
        row = 0;
        csv = &s->row;
        dro__csv_clear(csv);
        dro_status status = dro__csv_append(&s->lines, csv, got);
        csv->header = s->header;
        r->lines = s->lines.lines;
        DRO_TRY(status);
        s->cell = csv->cells;
    }
    r->longest = s->lines.longest;
    if (!*got)
        return DRO_OK;
    r->lines = csv == &s->row ? s->lines.lines : dro__csv_line(csv, row);
    r->file = csv == &s->row ? s->lines.file : dro__csv_file_of(csv, row);
    DRO_TRY(read_label(s, csv, row, label_of(s, s->cell), r->row.targets));
    DRO_TRY(dro__csv_encode_row(&(dro__csv_encoder){csv, &s->form.missing, &s->columns}, row,
                                &s->cell, NULL, &r->row, &count));
    s->sent += csv == &s->learned;
    bool last = csv == &s->row ? s->lines.line == s->lines.end : s->sent == csv->rows;
    r->unfinished = last && dro__input_unfinished(r->input);
    r->row.starts[1] = (int64_t)count;
    r->row.n = 1;
    return DRO_OK;
}

/* ---- the rest ---- */

static void close_rows(dro__row_reader *r)
{
    source *s = r->state;
    if (!s)
        return;
    dro__csv_free(&s->learned);
    dro__csv_free(&s->row);
    dro__csv_source_free(&s->lines);
    dro__columns_free(&s->columns);
    dro__csv_form_free(&s->form);
    dro__names_free(&s->classes);
    dro__free(s->rank);
    dro__free(s->sorted);
    dro__free(s->header);
    dro__free(s);
}

static dro_status keep(dro__row_reader *r)
{
    const source *s = r->state;
    r->data.learned = true;
    DRO_TRY(dro__csv_remark(&r->data, &(dro__csv_learned){.csv = &s->learned,
                                                          .form = &s->form,
                                                          .columns = &s->columns,
                                                          .rows = (size_t)s->learned.rows,
                                                          .first = s->more}));
    return dro__csv_keep(&s->learned, &s->form, &s->columns, false, &r->data.encoding);
}

static uint64_t memory_of(const dro__row_reader *r)
{
    const source *s = r->state;
    uint64_t bytes = sizeof *s + s->learned.capacity + s->row.capacity;
    bytes += (s->learned.line_capacity + s->row.line_capacity) * sizeof *s->row.lines;
    return bytes + s->encoding;
}

static const char *const options[] = {
    "label",   "learn",  "shuffle", "labels",  "positive", "classes",     "sep",      "header",
    "missing", "target", "drop",    "decimal", "scale",    "categorical", "encoding", NULL};

const dro__rows_class dro__rows_csv = {
    .format = {.name = "csv",
               .usage = "FILE,label=COLUMN[,learn=N][,shuffle=N][,seed=N]",
               .options = options},
    .expected = "rows of cells",
    .open = open_rows,
    .next = next_row,
    .close = close_rows,
    .memory = memory_of,
    .keep = keep};
