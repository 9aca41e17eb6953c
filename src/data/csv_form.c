/* What a CSV file is: the options of its SPEC, its header, its label and group columns.
 *
 * header=auto: there is a header if label= or group= is a name, or if no cell of the first row is a
 * number and some column below has nothing but numbers.
 *
 * A test file has a header if header=yes says so, or if at least half of its first cells are names
 * of the training file's header. */
#include "csv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NONE = -1, GUESS_ROWS = 200 };

/* ---- options ---- */

static dro_status read_separator(const dro_data *d, char *separator)
{
    static const struct {
        const char *word;
        char byte;
    } words[] = {{"auto", 0},   {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'},
                 {"pipe", '|'}, {"space", ' '}, {"\\t", '\t'},      {"", 0}};
    const char *value = dro__option(d, "sep");
    *separator = 0;
    for (size_t k = 0; value && k < sizeof words / sizeof words[0]; k++)
        if (strcmp(value, words[k].word) == 0) {
            *separator = words[k].byte;
            return DRO_OK;
        }
    if (value && (strlen(value) != 1 || !strchr("\t;|:!~^&%$#@*/", *value)))
        return dro__fail(d->ctx, DRO_ERR_RANGE,
                         "sep=%.40s: expected comma, semicolon, tab, pipe, space or one of "
                         ";|:!~^&%%$#@*/",
                         value);
    *separator = value ? *value : 0;
    return DRO_OK;
}

static dro_status read_decimal(const dro_data *d, int *decimal)
{
    static const char *const words[] = {"auto", "point", "comma"};
    const char *value = dro__option(d, "decimal");
    *decimal = DRO__DECIMAL_AUTO;
    for (int k = 0; value && k < 3; k++)
        if (strcmp(value, words[k]) == 0) {
            *decimal = k;
            return DRO_OK;
        }
    return value ? dro__fail(d->ctx, DRO_ERR_RANGE, "decimal=%.40s: expected point, comma or auto",
                             value)
                 : DRO_OK;
}

bool dro__csv_commas(const dro__csv_form *f, const dro__csv *csv)
{
    return f->decimal == DRO__DECIMAL_COMMA ||
           (f->decimal == DRO__DECIMAL_AUTO && csv->separator != ',');
}

void dro__csv_form_free(dro__csv_form *f)
{
    dro__free(f->marks);
    f->marks = NULL;
}

dro_status dro__csv_encoding(const dro_data *d, dro__input *input)
{
    const char *value = dro__option(d, "encoding");
    if (value && strcmp(value, "utf8") != 0 && strcmp(value, "latin1") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "encoding=%.40s: expected utf8 or latin1", value);
    if (value && *value == 'l')
        dro__input_latin1(input);
    return DRO_OK;
}

dro_status dro__csv_form_read(const dro_data *d, dro__csv_form *f)
{
    const char *header = dro__option(d, "header"), *target = dro__option(d, "target");
    const char *missing = dro__option(d, "missing"), *label = dro__option(d, "label");
    f->header = NONE;
    if (!label && !f->kept && d->for_model)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "csv: the weights were not trained on csv and know no columns: expected "
                         "data of the format that they were trained on (with label=COLUMN columns "
                         "become features by these rows alone)");
    if (label && !*label)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "label=: expected a column, its name in the header or its number from 1");
    if (header && strcmp(header, "yes") == 0)
        f->header = f->stated = 1;
    else if (header && strcmp(header, "no") == 0)
        f->header = 0;
    else if (header && strcmp(header, "auto") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "header=%.40s: expected yes, no or auto", header);
    if (target && strcmp(target, "real") != 0 && strcmp(target, "class") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "target=%.40s: expected real or class", target);
    f->real = (target && *target == 'r') || (f->kept && f->kept->real);
    missing = missing || !f->kept || !*f->kept->missing ? missing : f->kept->missing;
    f->missing.refuse = missing && strcmp(missing, "refuse") == 0;
    f->missing.also = f->missing.refuse ? NULL : missing;
    DRO_TRY(dro__scaling_read(d, &f->scaling));
    DRO_TRY(read_decimal(d, &f->decimal));
    return read_separator(d, &f->separator);
}

/* ---- header and columns ---- */

static bool is_number(const char *cell)
{
    double value;
    int unit = 0;
    return dro__csv_formatted(cell, false, &unit, &value);
}

/* A column number in the text, from 1; 0 if it is a name. */
static size_t column_number(const char *text)
{
    size_t value = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || value > DRO__CSV_COLUMNS_MAX)
            return 0;
        value = 10 * value + (size_t)(*p - '0');
    }
    return value;
}

/* No number in the first row, and a column below it with nothing but numbers (in its first
 * rows). */
static dro_status looks_like_header(const dro__csv_form *f, const dro__csv *csv, int *header)
{
    const char *cell = csv->cells;
    for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell))
        if (is_number(cell)) {
            *header = 0;
            return DRO_OK;
        }
    unsigned char *seen = dro__alloc(csv->columns, 1); /* 1: a number, 2: something else */
    if (!seen)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
    for (int64_t i = 1; i < csv->rows && i < GUESS_ROWS; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell))
            if (!dro__csv_missing(&f->missing, cell))
                seen[k] |= is_number(cell) ? 1 : 2;
    *header = memchr(seen, 1, csv->columns) != NULL;
    dro__free(seen);
    return DRO_OK;
}

/* The names of the header, as many as fit; false if there is none. */
static bool list_columns(const dro__csv *csv, char *all, size_t size)
{
    size_t used = 0;
    const char *cell = csv->header;
    all[0] = '\0';
    for (size_t k = 0; cell && k < csv->columns; k++, cell = dro__csv_next(cell)) {
        if (used + strlen(cell) + 6 > size) {
            snprintf(all + used, size - used, " ...");
            break;
        }
        used += (size_t)snprintf(all + used, size - used, " %.40s", cell);
    }
    return cell != NULL || used > 0;
}

static dro_status no_label(const dro__csv *csv)
{
    char all[256];
    if (list_columns(csv, all, sizeof all))
        return dro__fail(csv->ctx, DRO_ERR_ARGUMENT,
                         "%s: which column is the label? Expected label=COLUMN, one of%s",
                         csv->name, all);
    return dro__fail(csv->ctx, DRO_ERR_ARGUMENT,
                     "%s: which column is the label? Expected label=N, a number from 1 to %zu "
                     "(there is no header; the last one is label=%zu)",
                     csv->name, csv->columns, csv->columns);
}

static const char *nearest_column(const dro__csv *csv, const char *text)
{
    enum { NAMES = 256 };
    const char *names[NAMES], *cell = csv->header;
    int count = 0;
    for (size_t k = 0; cell && k < csv->columns && count < NAMES; k++, cell = dro__csv_next(cell))
        names[count++] = cell;
    return dro_nearest(text, names, count);
}

static dro_status no_column(const dro__csv *csv, const char *option, const char *text)
{
    char all[256];
    const char *nearest = nearest_column(csv, text);
    if (nearest)
        return dro__fail(csv->ctx, DRO_ERR_NAME, "%s: no column %s=%.40s: did you mean %.60s?",
                         csv->name, option, text, nearest);
    if (!list_columns(csv, all, sizeof all))
        return dro__fail(csv->ctx, DRO_ERR_NAME,
                         "%s: no column %s=%.40s: expected a number from 1 to %zu (there is no "
                         "header)",
                         csv->name, option, text, csv->columns);
    return dro__fail(csv->ctx, DRO_ERR_NAME,
                     "%s: no column %s=%.40s: expected one of%s (the first row was read as the "
                     "header), or a column's number from 1 to %zu",
                     csv->name, option, text, all, csv->columns);
}

/* How many columns have this name, the first of them in *column and the last in *last. bare: also
 * 'name' in single quotes, as some programs write headers. */
static size_t count_columns(const dro__csv *csv, const char *text, bool bare, size_t *column,
                            size_t *last)
{
    const char *cell = csv->header;
    size_t found = 0, length = strlen(text);
    for (size_t k = 0; cell && k < csv->columns; k++, cell = dro__csv_next(cell)) {
        bool quoted = strlen(cell) == length + 2 && *cell == '\'' && cell[length + 1] == '\'' &&
                      memcmp(cell + 1, text, length) == 0;
        if (bare ? quoted : strcmp(cell, text) == 0) {
            *column = found ? *column : k;
            *last = k;
            found++;
        }
    }
    return found;
}

/* By name first: a header may hold numbers. */
static dro_status find_column(const dro__csv *csv, const char *option, const char *text,
                              size_t *column)
{
    size_t last = 0, number = column_number(text);
    size_t found = count_columns(csv, text, false, column, &last);
    if (found == 0)
        found = count_columns(csv, text, true, column, &last);
    if (found > 1)
        return dro__fail(csv->ctx, DRO_ERR_NAME,
                         "%s: %zu columns are called '%.40s', columns %zu%s%zu: expected "
                         "%s=NUMBER (drop=NUMBER leaves another one out)",
                         csv->name, found, text, *column + 1, found == 2 ? " and " : ", ..., ",
                         last + 1, option);
    if (found)
        return DRO_OK;
    if (number == 0 || number > csv->columns)
        return no_column(csv, option, text);
    *column = number - 1;
    return DRO_OK;
}

/* drop=A:B and categorical=A:B: columns between colons; a name that has one itself is found as a
 * whole. */
static dro_status mark_columns(const dro_data *d, dro__csv_form *f, const dro__csv *csv,
                               const char *option, int mark)
{
    const char *list = dro__option(d, option);
    char name[256];
    size_t column;
    if (!list)
        return DRO_OK;
    if (!f->marks)
        f->marks = dro__alloc(csv->columns, 1);
    if (!f->marks)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
    for (const char *p = list; *p || p == list;) {
        size_t length = strcspn(p, ":");
        const char *whole = csv->header;
        for (size_t k = 0; p == list && whole && k < csv->columns;
             k++, whole = dro__csv_next(whole))
            if (strcmp(whole, list) == 0)
                length = strlen(list);
        snprintf(name, sizeof name, "%.*s", (int)(length < 255 ? length : 255), p);
        DRO_TRY(find_column(csv, option, name, &column));
        if (column == f->label)
            return dro__fail(csv->ctx, DRO_ERR_ARGUMENT, "%s=%.60s: it is the label", option, name);
        f->marks[column] = f->marks[column] ? f->marks[column] : (unsigned char)mark;
        p += length + (p[length] == ':');
    }
    return DRO_OK;
}

/* Names that programs and people give to a number of the row: PassengerId and row_id, too. */
static bool names_index(const char *name)
{
    static const char *const names[] = {"",  "index", "id", "row", "rowid", "rownames", "rownumber",
                                        "x", "#",     "no", "no.", "nr",    "obs",      "...1"};
    size_t length = strlen(name);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcasecmp(name, names[k]) == 0)
            return true;
    if (strncasecmp(name, "unnamed:", 8) == 0)
        return true;
    if (length < 3 || strcasecmp(name + length - 2, "id") != 0)
        return false;
    char before = name[length - 3];
    return strchr("_ -.", before) || (islower((unsigned char)before) && name[length - 2] == 'I');
}

static bool counts_rows(const dro__csv *csv, size_t column)
{
    enum { ROWS_LEAST = 10 };
    const char *cell = csv->cells;
    double first = 0, value;
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
            if (k != column)
                continue;
            if (!dro__csv_number(cell, false, &value) || (i > 0 && value != first + (double)i))
                return false;
            first = i == 0 ? value : first;
        }
    return csv->rows >= ROWS_LEAST;
}

dro_status dro__csv_form_index(dro_data *d, dro__csv_form *f, const dro__csv *csv)
{
    const char *name = csv->header;
    char shown[64];
    for (size_t k = 0; name && k + 2 < csv->columns; k++, name = dro__csv_next(name)) {
        bool used = k == f->label || k == f->weight || (f->grouped && k == f->group) ||
                    (f->marks && f->marks[k]);
        if (used || !names_index(name) || !counts_rows(csv, k))
            return DRO_OK;
        if (!f->marks)
            f->marks = dro__alloc(csv->columns, 1);
        if (!f->marks)
            return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
        f->marks[k] = DRO__MARK_DROP;
        DRO_TRY(dro__remark(d, "%s counts the rows: it is left out",
                            dro__csv_column_name(csv, k, shown, sizeof shown)));
    }
    return DRO_OK;
}

/* First rows that repeat in several files were left out as headers; checks that they are. */
static dro_status check_repeats(dro__csv *csv, bool header)
{
    if (csv->file_count > 0) /* the following applies to all of them */
        memcpy(csv->name, csv->files[0].name, sizeof csv->name);
    if (header || csv->repeats == 0)
        return DRO_OK;
    return dro__fail(csv->ctx, DRO_ERR_DATA,
                     "%s: %zu more files begin with the same row, which does not look like a "
                     "header: expected header=yes (it is one) or header=no (it is not)",
                     csv->name, csv->repeats);
}

dro_status dro__csv_form_fit(const dro_data *d, dro__csv_form *f, dro__csv *csv)
{
    const char *label = dro__option(d, "label"), *group = dro__option(d, "group");
    const char *weight = dro__option(d, "weight");
    f->weight = DRO__CSV_NO_COLUMN;
    if (f->header == NONE && f->kept && !label)
        f->header = f->kept->header;
    if (f->header == NONE && label && label[strspn(label, "0")] == '\0')
        return dro__fail(csv->ctx, DRO_ERR_ARGUMENT,
                         "label=%s: columns are counted from 1 (header=yes if one is called so)",
                         label);
    if (f->header == NONE &&
        ((label && column_number(label) == 0) || (group && column_number(group) == 0) ||
         (weight && column_number(weight) == 0)))
        f->header = 1;
    if (f->header == NONE)
        DRO_TRY(looks_like_header(f, csv, &f->header));
    DRO_TRY(check_repeats(csv, f->header));
    if (f->header)
        dro__csv_take_header(csv);
    if (!label && !f->kept)
        return no_label(csv);
    if (label)
        DRO_TRY(find_column(csv, "label", label, &f->label));
    else
        f->label = dro__csv_kept_label(f->kept, csv);
    f->grouped = group != NULL;
    if (group)
        DRO_TRY(find_column(csv, "group", group, &f->group));
    if (weight)
        DRO_TRY(find_column(csv, "weight", weight, &f->weight));
    if (!f->kept) {
        DRO_TRY(mark_columns(d, f, csv, "weight", DRO__MARK_DROP));
        DRO_TRY(mark_columns(d, f, csv, "drop", DRO__MARK_DROP));
        DRO_TRY(mark_columns(d, f, csv, "categorical", DRO__MARK_CATEGORICAL));
    }
    if (csv->rows == 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: has a header and no rows: expected rows",
                         csv->name);
    if (csv->columns < 2 && f->label != DRO__CSV_NO_COLUMN)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: one cell: expected a label and at least one feature (is "
                         "the separator right? sep=)",
                         csv->name, dro__csv_line(csv, 0));
    return DRO_OK;
}

/* ---- a second file ---- */

static bool same_header(const dro__csv *a, const dro__csv *b)
{
    const char *p = a->header, *q = b->cells;
    if (a->columns != b->columns)
        return false;
    for (size_t k = 0; k < a->columns; k++, p = dro__csv_next(p), q = dro__csv_next(q))
        if (strcmp(p, q) != 0)
            return false;
    return true;
}

/* The names of a row of cells in small letters, each with the number of its column. */
static dro_status small_names(const dro__csv *csv, const char *cell, dro__names *names, bool *twice)
{
    int32_t number;
    *twice = false;
    for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
        size_t length = strlen(cell);
        char *small = dro__alloc(length + 1, 1);
        if (!small)
            return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for a name");
        for (size_t i = 0; i < length; i++)
            small[i] = (char)tolower((unsigned char)cell[i]);
        dro_status status = dro__names_add(csv->ctx, names, small, length, &number);
        dro__free(small);
        if (status != DRO_OK)
            return status;
        *twice = *twice || (size_t)number != k;
    }
    return DRO_OK;
}

/* order[k]: the place of column k of the first file. */
static dro_status order_columns(const dro__csv *first, const dro__names *wanted,
                                const dro__csv *csv, const dro__names *present, size_t *order)
{
    char name[64];
    for (size_t k = 0; k < first->columns; k++) {
        int32_t at = dro__names_find(present, wanted->names[k], strlen(wanted->names[k]));
        if (at < 0)
            return dro__fail(csv->ctx, DRO_ERR_DATA,
                             "%s: line %lld: no %s: expected all columns of the training file, in "
                             "any order",
                             csv->name, dro__csv_line(csv, 0),
                             dro__csv_column_name(first, k, name, sizeof name));
        order[k] = (size_t)at;
    }
    return DRO_OK;
}

/* Writes all rows again, `columns` cells each, in a new order. */
static dro_status rearrange(dro__csv *csv, const size_t *order, size_t columns)
{
    const char **cells = dro__alloc(csv->columns, sizeof *cells), *cell = csv->cells;
    char *text = dro__alloc(csv->used + 1, 1), *to = text;
    if (!cells || !text) {
        dro__free(cells), dro__free(text);
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "%s: no memory to order its columns", csv->name);
    }
    for (int64_t i = 0; i < csv->rows; i++) {
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell))
            cells[k] = cell;
        for (size_t k = 0; k < columns; k++) {
            size_t size = strlen(cells[order[k]]) + 1;
            memcpy(to, cells[order[k]], size);
            to += size;
        }
    }
    dro__free(cells);
    dro__free(csv->text);
    csv->text = text;
    csv->cells = text;
    csv->capacity = csv->used + 1;
    csv->used = (size_t)(to - text);
    csv->columns = columns;
    return DRO_OK;
}

static dro_status match_names(const dro__csv *first, dro__csv *csv, const dro__names *wanted,
                              const dro__names *present)
{
    size_t *order = dro__alloc(first->columns, sizeof *order);
    dro_status status =
        order ? order_columns(first, wanted, csv, present, order)
              : dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", first->columns);
    if (status == DRO_OK) {
        dro__csv_take_header(csv);
        status = rearrange(csv, order, first->columns);
    }
    dro__free(order);
    return status;
}

/* Is the first row a header? Then the columns are found by its names. */
static dro_status match_header(const dro__csv_form *f, const dro__csv *first, dro__csv *csv)
{
    dro__names wanted = {0}, present = {0};
    bool first_twice, twice;
    size_t known = 0;
    if (same_header(first, csv)) {
        dro__csv_take_header(csv);
        return DRO_OK;
    }
    dro_status status = small_names(first, first->header, &wanted, &first_twice);
    if (status == DRO_OK)
        status = small_names(csv, csv->cells, &present, &twice);
    for (size_t k = 0; status == DRO_OK && k < present.count; k++)
        known += dro__names_find(&wanted, present.names[k], strlen(present.names[k])) >= 0;
    bool header = status == DRO_OK && (f->stated || 2 * known >= csv->columns);
    if (header && (twice || first_twice))
        status = dro__fail(csv->ctx, DRO_ERR_DATA,
                           "%s: line %lld: the header differs from the training file's, and one of "
                           "them has the same name twice: expected distinct names",
                           csv->name, dro__csv_line(csv, 0));
    else if (header)
        status = match_names(first, csv, &wanted, &present);
    dro__names_free(&wanted);
    dro__names_free(&present);
    return status;
}

dro_status dro__csv_form_match(const dro__csv_form *f, const dro__csv *first, dro__csv *csv)
{
    DRO_TRY(check_repeats(csv, first->header));
    if (first->header)
        DRO_TRY(match_header(f, first, csv));
    if (csv->columns != first->columns)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: %zu cells: expected %zu, as in the training file",
                         csv->name, dro__csv_line(csv, 0), csv->columns, first->columns);
    csv->header = first->header; /* the names, for errors */
    if (csv->rows == 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: has a header and no rows: expected rows",
                         csv->name);
    return DRO_OK;
}

/* ---- the label ---- */

/* Whether half of the values occur fewer than ten times. */
static dro_status mostly_few(const dro__csv *csv, size_t column, const dro__names *names,
                             bool *mostly)
{
    enum { FEW = 10 };
    const char *cell = csv->cells;
    size_t few = 0, *counts = dro__alloc(names->count, sizeof *counts);
    if (!counts)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu labels", names->count);
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
            int32_t number = k == column ? dro__names_find(names, cell, strlen(cell)) : -1;
            if (number >= 0)
                counts[number]++;
        }
    for (size_t k = 0; k < names->count; k++)
        few += counts[k] < FEW;
    dro__free(counts);
    *mostly = 2 * few >= names->count;
    return DRO_OK;
}

dro_status dro__csv_find_real(const dro__csv *csv, const dro__csv_form *form,
                              const dro__names *names, bool *real)
{
    const size_t FRACTIONS = 10, WHOLE = 20;
    double least = INFINITY, most = -INFINITY;
    bool whole = true, plain = true, formatted = true, comma = dro__csv_commas(form, csv);
    int unit = 0;
    double value = 0;
    *real = false;
    for (size_t k = 0; k < names->count; k++) {
        formatted = formatted && dro__csv_formatted(names->names[k], comma, &unit, &value);
        plain = plain && dro__csv_number(names->names[k], comma, &value);
        if (!plain && !formatted)
            return DRO_OK;
        whole = whole && value == floor(value);
        least = fmin(least, value), most = fmax(most, value);
    }
    bool numbered = least == 0 || least == 1 || most - least >= 2 * (double)names->count;
    bool many = names->count > (whole ? WHOLE : FRACTIONS);
    if (whole && many && numbered)
        return mostly_few(csv, form->label, names, real);
    *real = many || (!whole && names->count > 2 && 2 * names->count > (size_t)csv->rows);
    return DRO_OK;
}
