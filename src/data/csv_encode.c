/* Turns cells into features, as learned from the training rows: numeric columns are scaled
 * (scale.h), all others become one indicator per category (csv.h has the details). */
#include "csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *dro__csv_column_name(const dro__csv *csv, size_t column, char *out, size_t size)
{
    const char *cell = csv->header;
    for (size_t k = 0; cell && k < column; k++)
        cell = dro__csv_next(cell);
    if (cell && *cell)
        snprintf(out, size, "column '%.40s'", cell);
    else
        snprintf(out, size, "column %zu", column + 1);
    return out;
}

dro_status dro__csv_bad_cell(const dro__csv *csv, int64_t row, size_t column, const char *cell,
                             const char *expected)
{
    char name[64];
    return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: line %lld: %s: '%.40s': expected %s",
                     dro__csv_name(csv, row), dro__csv_line(csv, row),
                     dro__csv_column_name(csv, column, name, sizeof name), cell, expected);
}

/* ---- sorted names ---- */

typedef struct sorted_name {
    const char *text;
    double value;
    int32_t number;
} sorted_name;

static int by_bytes(const void *a, const void *b)
{
    return strcmp(((const sorted_name *)a)->text, ((const sorted_name *)b)->text);
}

static int by_number(const void *a, const void *b)
{
    double x = ((const sorted_name *)a)->value, y = ((const sorted_name *)b)->value;
    return x < y ? -1 : x > y ? 1 : by_bytes(a, b);
}

dro_status dro__names_rank(dro_context *ctx, const dro__names *names, bool by_value, int32_t **rank)
{
    sorted_name *list = dro__alloc(names->count, sizeof *list);
    int32_t *to = dro__alloc(names->count, sizeof *to);
    if (!list || !to) {
        dro__free(list), dro__free(to);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu names", names->count);
    }
    for (size_t k = 0; k < names->count; k++) {
        list[k] = (sorted_name){names->names[k], 0, (int32_t)k};
        const char *end = by_value ? dro__number_double(list[k].text, &list[k].value) : NULL;
        by_value = end && *end == '\0';
    }
    qsort(list, names->count, sizeof *list, by_value ? by_number : by_bytes);
    for (size_t k = 0; k < names->count; k++)
        to[list[k].number] = (int32_t)k;
    dro__free(list);
    *rank = to;
    return DRO_OK;
}

/* ---- learning ---- */

/* Is it a number? One that is not makes the column categorical, unless all are dates. */
static void look_at(dro__column *c, const char *cell, int64_t row)
{
    double value;
    bool number = dro__csv_number(cell, c->commas, &value);
    bool infinite = number ? !isfinite(value) : dro__csv_infinite(cell);
    c->dates &= dro__csv_dates(cell);
    c->formatted = c->formatted && ((number && !c->commas) ||
                                    dro__csv_formatted(cell, c->commas, &c->unit, &value));
    if (infinite && c->odd_row < 0)
        c->odd_row = row;
    bool text = !infinite && !number;
    if (text && c->numeric)
        c->text_row = row;
    c->numeric = c->numeric && !text;
    c->texts += text;
    c->numbers += !text;
}

static dro_status find_kinds(const dro__csv *csv, const dro__missing *missing, dro__columns *cols)
{
    const char *cell = csv->cells;
    int32_t number;
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < cols->count; k++, cell = dro__csv_next(cell)) {
            dro__column *c = &cols->at[k];
            bool gone = !c->left_out && dro__csv_missing(missing, cell);
            if (gone && missing->refuse)
                return dro__csv_bad_cell(csv, i, k, cell, "a value, because of missing=refuse");
            if (gone || c->left_out || (c->blanks && dro__csv_blank(cell)))
                continue;
            look_at(c, cell, i);
            if (c->dates && c->categories.count <= DRO__CSV_MANY)
                DRO_TRY(dro__names_add(csv->ctx, &c->categories, cell, strlen(cell), &number));
        }
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        bool many = c->categories.count > DRO__CSV_MANY;
        bool dated = c->texts > 0 && c->dates && c->may_count && many;
        dro__names_free(&c->categories);
        c->date = dated ? c->dates & -c->dates : 0; /* the first order that fits */
        c->formatted = c->formatted && c->texts > 0;
        c->numeric = c->may_count && (dated || c->formatted || c->texts == 0);
        c->blanks = c->blanks && c->numeric;
    }
    return DRO_OK;
}

/* The first cell of row `to`, from that of row `from` on. */
static const char *walk(const dro__csv *csv, const char *cell, int64_t from, int64_t to)
{
    for (; from < to; from++)
        for (size_t k = 0; k < csv->columns; k++)
            cell = dro__csv_next(cell);
    return cell;
}

const char *dro__csv_cell(const dro__csv *csv, int64_t row, size_t column)
{
    const char *cell = walk(csv, csv->cells, 0, row);
    for (size_t k = 0; k < column; k++)
        cell = dro__csv_next(cell);
    return cell;
}

/* A value of the first pass: adds it to the mean and, every so often, to the sample. */
static void take_number(dro__column *c, const char *cell, bool sample)
{
    double value;
    if (!dro__csv_value(c, cell, &value) || !isfinite(value))
        return;
    dro__spread_add(&c->spread, value);
    if (sample && c->sample)
        c->sample[c->sampled++] = value;
}

static dro_status take_cell(const dro__csv *csv, const char *cell, dro__column *c)
{
    int32_t number;
    DRO_TRY(dro__names_add(csv->ctx, &c->categories, cell, strlen(cell), &number));
    DRO_TRY(dro__grow(csv->ctx, (void **)&c->tally, &c->tally_room, c->categories.count,
                      sizeof *c->tally));
    c->tally[number] = (size_t)number < c->different ? c->tally[number] + 1 : 1;
    c->different = c->categories.count;
    c->left_out = c->dropped = number >= DRO__CSV_CATEGORIES_MAX;
    return DRO_OK;
}

/* Where there are many categories, those of a single row share one feature with categories that
 * training did not have: nothing can be learned about one of them, but something about rare ones in
 * general. */
static dro_status merge_single(const dro__csv *csv, dro__column *c)
{
    dro__names all = c->categories;
    dro_status status = DRO_OK;
    int32_t number;
    if (c->different <= DRO__CSV_MANY)
        return DRO_OK;
    c->categories = (dro__names){0};
    for (size_t k = 0; status == DRO_OK && k < c->different; k++)
        if (c->tally[k] > 1)
            status = dro__names_add(csv->ctx, &c->categories, all.names[k], strlen(all.names[k]),
                                    &number);
    dro__names_free(&all);
    return status;
}

static dro_status finish_column(const dro__csv *csv, dro__column *c, size_t k)
{
    char name[64];
    if (!c->numeric) {
        DRO_TRY(merge_single(csv, c));
        c->missing = c->gone > 0;
        c->features = c->categories.count + c->missing + 1;
        return dro__names_rank(csv->ctx, &c->categories, false, &c->rank);
    }
    if (c->odd_row >= 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: %s: an infinite number: expected finite ones",
                         dro__csv_name(csv, c->odd_row), dro__csv_line(csv, c->odd_row),
                         dro__csv_column_name(csv, k, name, sizeof name));
    double sd = sqrt(c->spread.squares);
    if (!isfinite(c->spread.mean) || !isfinite(sd))
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: %s: its numbers are too large to standardise: expected a standard "
                         "deviation below 1e154",
                         csv->name, dro__csv_column_name(csv, k, name, sizeof name));
    c->centre = c->spread.mean;
    c->factor = dro__spread_scale(&c->spread);
    c->missing = !c->plain && c->gone >= DRO__CSV_MISSING;
    c->tail = c->outliers >= DRO__CSV_TAIL;
    c->features = 1 + c->missing + c->tail + c->excess;
    return DRO_OK;
}

/* Values beyond the limit in a column of outliers: their excess. */
typedef struct excess {
    int64_t count;
    double squares, most;
} excess;

static void take_excess(const dro__column *c, double value, excess *to)
{
    double over = fabs(dro__excess((value - c->spread.mean) * dro__spread_scale(&c->spread)));
    to->count += over > 0;
    to->squares += over * over;
    to->most = fmax(to->most, over);
}

/* For a real-valued target: one more pass, over the columns that have outliers. */
static dro_status learn_excess(const dro__csv *csv, const dro__csv_form *form, const int64_t *rows,
                               int64_t count, dro__columns *cols)
{
    const char *cell = csv->cells;
    double value;
    excess *all = dro__alloc(cols->count, sizeof *all);
    if (!all)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", cols->count);
    for (int64_t i = 0; i < count; i++) {
        cell = walk(csv, cell, i > 0 ? rows[i - 1] + 1 : 0, rows[i]);
        for (size_t k = 0; k < cols->count; k++, cell = dro__csv_next(cell)) {
            const dro__column *c = &cols->at[k];
            if (c->outliers > 0 && !dro__csv_missing(&form->missing, cell) &&
                !(c->blanks && dro__csv_blank(cell)) && dro__csv_value(c, cell, &value))
                take_excess(c, value, &all[k]);
        }
    }
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        double usual = sqrt(all[k].squares / (double)(all[k].count + !all[k].count));
        c->excess_most = all[k].most;
        c->excess_unit = fmax(usual, all[k].most / (2 * DRO__LIMIT));
        c->excess = c->excess_unit > 0 && isfinite(c->excess_unit);
    }
    dro__free(all);
    return DRO_OK;
}

/* Sets what is known about the columns before their cells are read. */
static dro_status begin_columns(const dro__csv *csv, const dro__csv_form *form, int64_t count,
                                dro__columns *cols)
{
    size_t most = dro__sample_most(count, csv->columns);
    cols->at = dro__alloc(csv->columns, sizeof *cols->at);
    if (!cols->at)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
    cols->count = csv->columns;
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        int mark = form->marks ? form->marks[k] : 0;
        c->numeric = c->may_count = c->formatted = mark != DRO__MARK_CATEGORICAL;
        c->dates = DRO__DATE_ALL;
        c->blanks = !form->missing.refuse;
        c->odd_row = c->text_row = -1;
        c->dropped = mark == DRO__MARK_DROP;
        c->left_out = k == form->label || c->dropped;
        c->plain = form->scaling == DRO__SCALE_NONE;
        c->limited = form->scaling == DRO__SCALE_ROBUST;
        c->commas = dro__csv_commas(form, csv);
    }
    DRO_TRY(find_kinds(csv, &form->missing, cols));
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        if (c->left_out || !c->numeric || !c->limited)
            continue;
        c->sample = dro__alloc(most, sizeof *c->sample);
        if (!c->sample)
            return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", cols->count);
    }
    return DRO_OK;
}

/* One pass over the rows: the first collects everything, the second the numbers again, limited to
 * the fences. */
static dro_status take_rows(const dro__csv *csv, const dro__csv_form *form, const int64_t *rows,
                            int64_t count, bool second, dro__columns *cols)
{
    const char *cell = csv->cells;
    int64_t step = dro__sample_step(count, csv->columns);
    double value;
    for (int64_t i = 0; i < count; i++) {
        cell = walk(csv, cell, i > 0 ? rows[i - 1] + 1 : 0, rows[i]);
        for (size_t k = 0; k < cols->count; k++, cell = dro__csv_next(cell)) {
            dro__column *c = &cols->at[k];
            if (c->left_out)
                continue;
            if (dro__csv_missing(&form->missing, cell) || (c->blanks && dro__csv_blank(cell))) {
                c->gone += !second;
                continue;
            }
            if (!c->numeric && !second)
                DRO_TRY(take_cell(csv, cell, c));
            else if (c->numeric && !second)
                take_number(c, cell, i % step == 0);
            else if (c->numeric && c->sample && dro__csv_value(c, cell, &value)) {
                dro__spread_add(&c->spread, fmin(fmax(value, c->low), c->high));
                c->outliers += value < c->low || value > c->high;
            }
        }
    }
    return DRO_OK;
}

/* Whether a column has values beyond its fences; those without need no second pass, and lose their
 * sample. */
static bool find_outliers(dro__columns *cols)
{
    bool any = false;
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        if (!c->sample)
            continue;
        dro__fences(c->sample, c->sampled, &c->low, &c->high);
        if (c->spread.least < c->low || c->spread.most > c->high) {
            c->spread = (dro__column_spread){0};
            any = true;
            continue;
        }
        dro__free(c->sample);
        c->sample = NULL;
    }
    return any;
}

dro_status dro__csv_learn(const dro__csv *csv, const dro__csv_form *form, const int64_t *rows,
                          int64_t count, dro__columns *cols)
{
    DRO_TRY(begin_columns(csv, form, count, cols));
    DRO_TRY(take_rows(csv, form, rows, count, false, cols));
    bool any = find_outliers(cols);
    if (any)
        DRO_TRY(take_rows(csv, form, rows, count, true, cols));
    if (any && form->real)
        DRO_TRY(learn_excess(csv, form, rows, count, cols));
    for (size_t k = 0; k < cols->count; k++) {
        dro__column *c = &cols->at[k];
        dro__free(c->sample);
        c->sample = NULL;
        if (c->left_out)
            continue;
        DRO_TRY(finish_column(csv, c, k));
        c->feature = cols->features;
        cols->features += c->features;
        if (cols->features >= INT32_MAX)
            return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: expected fewer than 2^31 features",
                             csv->name);
    }
    return DRO_OK;
}

void dro__columns_free(dro__columns *cols)
{
    for (size_t k = 0; k < cols->count; k++) {
        dro__names_free(&cols->at[k].categories);
        dro__free(cols->at[k].rank);
        dro__free(cols->at[k].sample);
        dro__free(cols->at[k].tally);
    }
    dro__free(cols->at);
    dro__free(cols->unseen);
    *cols = (dro__columns){0};
}

uint64_t dro__columns_bytes(const dro__columns *cols)
{
    uint64_t bytes = cols->count * sizeof *cols->at;
    for (size_t k = 0; k < cols->count; k++)
        bytes += dro__names_bytes(&cols->at[k].categories) +
                 cols->at[k].categories.count * sizeof *cols->at[k].rank;
    return bytes;
}

/* ---- encoding ---- */

/* What a cell makes of its column's features: one of them, the others are 0; of a number beyond the
 * limit the last ones too. */
typedef struct encoded {
    size_t feature, tail;
    float value, beyond, excess; /* 0: none */
} encoded;

static float excess_of(const dro__column *c, double number)
{
    double over = dro__excess(number);
    return (float)(copysign(fmin(fabs(over), c->excess_most), over) / c->excess_unit);
}

static dro_status encode_number(const dro__csv_encoder *e, int64_t row, size_t k, const char *cell,
                                encoded *to)
{
    const dro__columns *cols = e->columns;
    const dro__column *c = &cols->at[k];
    const char *expected = cols->number ? cols->number : "a number, as in training";
    double number;
    if (!dro__csv_value(c, cell, &number))
        return dro__csv_bad_cell(e->csv, row, k, cell,
                                 c->date ? "a date, as in training" : expected);
    number = c->plain ? number : (number - c->centre) * c->factor;
    to->value = (float)(c->limited ? dro__limited(number) : number);
    to->beyond = (float)(c->tail ? dro__beyond(number) : 0);
    to->excess = c->excess ? excess_of(c, number) : 0;
    if (!isfinite(to->value) || !isfinite(to->beyond) || !isfinite(to->excess))
        return dro__csv_bad_cell(e->csv, row, k, cell, "a finite number near those of training");
    return DRO_OK;
}

static dro_status encode_cell(const dro__csv_encoder *e, int64_t row, size_t k, const char *cell,
                              encoded *to)
{
    const dro__csv *csv = e->csv;
    const dro__missing *missing = e->missing;
    const dro__columns *cols = e->columns;
    const dro__column *c = &cols->at[k];
    bool gone = dro__csv_missing(missing, cell) || (c->blanks && dro__csv_blank(cell));
    *to = (encoded){.feature = c->feature, .tail = c->feature + 1 + c->missing};
    if (gone && missing->refuse)
        return dro__csv_bad_cell(csv, row, k, cell, "a value, because of missing=refuse");
    if (c->numeric && !gone)
        return encode_number(e, row, k, cell, to);
    if (c->numeric) { /* a missing number: the mean, which is 0 when scaled, and its indicator */
        to->feature += c->missing;
        to->value = c->missing ? 1.0f : c->plain ? (float)c->centre : 0.0f;
        return DRO_OK;
    }
    int32_t known = gone ? -1 : dro__names_find(&c->categories, cell, strlen(cell));
    size_t unseen = c->categories.count + c->missing;
    size_t place = known >= 0 ? (size_t)c->rank[known] : gone ? c->categories.count : unseen;
    to->feature += place;
    to->value = 1;
    if (cols->unseen && place == unseen && !(gone && c->missing))
        cols->unseen[k]++;
    return DRO_OK;
}

size_t dro__columns_entries(const dro__columns *cols)
{
    size_t entries = 0;
    for (size_t k = 0; k < cols->count; k++)
        entries += cols->at[k].left_out ? 0 : 1 + (size_t)cols->at[k].tail + cols->at[k].excess;
    return entries;
}

static dro_status reserve(const dro__csv *csv, const dro__columns *cols, bool dense, dro__table *t)
{
    size_t n = (size_t)t->n, cells, most = dro__columns_entries(cols);
    double bytes = (double)n * (dense ? 4.0 * (double)cols->features : 8.0 * (double)most);
    DRO_TRY(dro__fits(csv->ctx, csv->name, bytes < 0x1p63 ? (uint64_t)bytes : UINT64_MAX));
    if (dense) {
        if (!__builtin_mul_overflow(n, cols->features, &cells))
            t->x = dro__alloc(cells, sizeof *t->x);
    } else if (!__builtin_mul_overflow(n, most, &cells)) {
        t->starts = dro__alloc(n + 1, sizeof *t->starts);
        t->columns = dro__alloc(cells, sizeof *t->columns);
        t->values = dro__alloc(cells, sizeof *t->values);
    }
    if (!t->x && (!t->starts || !t->columns || !t->values))
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "%s: no memory for %zu rows of %zu features",
                         csv->name, n, cols->features);
    return DRO_OK;
}

static void put_entry(dro__table *t, size_t feature, float value, size_t *count)
{
    t->columns[*count] = (int32_t)feature;
    t->values[(*count)++] = value;
}

dro_status dro__csv_encode_row(const dro__csv_encoder *e, int64_t row, const char **cell, float *x,
                               dro__table *t, size_t *count)
{
    const dro__columns *cols = e->columns;
    const char *p = *cell;
    encoded c;
    for (size_t k = 0; k < cols->count; k++, p = dro__csv_next(p)) {
        if (cols->at[k].left_out)
            continue;
        DRO_TRY(encode_cell(e, row, k, p, &c));
        const size_t at[] = {c.feature, c.tail, c.tail + cols->at[k].tail};
        const float values[] = {c.value, c.beyond, c.excess};
        for (int i = 0; i < 3; i++)
            if (x && values[i] != 0)
                x[at[i]] = values[i];
            else if (values[i] != 0)
                put_entry(t, at[i], values[i], count);
    }
    *cell = p;
    return DRO_OK;
}

typedef struct entry {
    int32_t column;
    float value;
} entry;

static int by_column(const void *a, const void *b)
{
    int32_t x = ((const entry *)a)->column, y = ((const entry *)b)->column;
    return (x > y) - (x < y);
}

/* Sorts the entries from `first` on. */
static void sort_row(dro__table *t, size_t first, size_t end, entry *scratch)
{
    for (size_t k = first; k < end; k++)
        scratch[k - first] = (entry){t->columns[k], t->values[k]};
    qsort(scratch, end - first, sizeof *scratch, by_column);
    for (size_t k = first; k < end; k++) {
        t->columns[k] = scratch[k - first].column;
        t->values[k] = scratch[k - first].value;
    }
}

dro_status dro__csv_encode(const dro__csv_encoder *e, bool dense, dro__table *t)
{
    const dro__csv *csv = e->csv;
    const dro__columns *cols = e->columns;
    const char *cell = csv->cells;
    size_t count = 0;
    DRO_TRY(reserve(csv, cols, dense, t));
    size_t most = dro__columns_entries(cols);
    entry *scratch = cols->mixed && !dense ? dro__alloc(most, sizeof *scratch) : NULL;
    if (cols->mixed && !dense && !scratch)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "%s: no memory to sort its columns", csv->name);
    dro_status status = DRO_OK;
    for (int64_t i = 0; i < t->n && status == DRO_OK; i++) {
        float *x = dense ? t->x + (size_t)i * cols->features : NULL;
        size_t first = count;
        cell = walk(csv, cell, i > 0 ? t->records[i - 1] + 1 : 0, t->records[i]);
        status = dro__csv_encode_row(e, t->records[i], &cell, x, t, &count);
        if (status == DRO_OK && scratch)
            sort_row(t, first, count, scratch);
        if (!dense)
            t->starts[i + 1] = (int64_t)count;
    }
    dro__free(scratch);
    return status;
}
