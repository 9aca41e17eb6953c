/* What a CSV file is: the options of its SPEC, its header, its label and group columns.
 *
 * header=auto: there is a header if label= or group= is a name, or if no cell of the first row is a number
 * and some column below has nothing but numbers. */
#include "csv.h"

#include <stdio.h>
#include <string.h>

enum { NONE = -1, GUESS_ROWS = 200 };

/* ---- options ---- */

static dro_status read_separator(const dro_data *d, char *separator)
{
    static const struct {
        const char *word;
        char byte;
    } words[] = {{"auto", 0},   {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"pipe", '|'},
                 {"\\t", '\t'}, {"", 0}};
    const char *value = dro__option(d, "sep");
    *separator = 0;
    for (size_t k = 0; value && k < sizeof words / sizeof words[0]; k++)
        if (strcmp(value, words[k].word) == 0) {
            *separator = words[k].byte;
            return DRO_OK;
        }
    if (value && (strlen(value) != 1 || !strchr("\t;|:!~^&%$#@*/", *value)))
        return dro__fail(d->ctx, DRO_ERR_RANGE,
                         "sep=%.40s: expected comma, semicolon, tab, pipe or one of ;|:!~^&%%$#@*/",
                         value);
    *separator = value ? *value : 0;
    return DRO_OK;
}

dro_status dro__csv_form_read(const dro_data *d, dro__csv_form *f)
{
    const char *header = dro__option(d, "header"), *target = dro__option(d, "target");
    const char *missing = dro__option(d, "missing");
    f->header = NONE;
    if (!dro__option(d, "label") && !f->kept)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "csv: expected label=COLUMN, a name of the header or a number from 1");
    if (header && strcmp(header, "yes") == 0)
        f->header = 1;
    else if (header && strcmp(header, "no") == 0)
        f->header = 0;
    else if (header && strcmp(header, "auto") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "header=%.40s: expected yes, no or auto", header);
    if (target && strcmp(target, "real") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "target=%.40s: expected target=real or nothing",
                         target);
    f->real = target != NULL || (f->kept && f->kept->real);
    missing = missing || !f->kept || !*f->kept->missing ? missing : f->kept->missing;
    f->missing.refuse = missing && strcmp(missing, "refuse") == 0;
    f->missing.also = f->missing.refuse ? NULL : missing;
    return read_separator(d, &f->separator);
}

/* ---- header and columns ---- */

static bool is_number(const char *cell)
{
    double value;
    const char *end = dro__number_double(cell, &value);
    return end && *end == '\0';
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

/* No number in the first row, and a column below it with nothing but numbers (in its first rows). */
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

static dro_status no_column(const dro__csv *csv, const char *option, const char *text)
{
    char all[256];
    size_t used = 0;
    const char *cell = csv->header;
    for (size_t k = 0; cell && k < csv->columns && used < sizeof all - 1; k++) {
        used += (size_t)snprintf(all + used, sizeof all - used, " %.40s", cell);
        cell = dro__csv_next(cell);
    }
    if (!cell)
        snprintf(all, sizeof all, " a number from 1 to %zu (there is no header)", csv->columns);
    return dro__fail(csv->ctx, DRO_ERR_NAME, "%s: no column %s=%.40s: expected%s%s%s", csv->name,
                     option, text, csv->header ? " one of" : "", all,
                     used >= sizeof all - 1 ? " ..." : "");
}

/* By name first: a header may hold numbers. */
static dro_status find_column(const dro_data *d, const dro__csv *csv, const char *option,
                              size_t *column)
{
    const char *text = dro__option(d, option), *cell = csv->header;
    for (size_t k = 0; cell && k < csv->columns; k++, cell = dro__csv_next(cell))
        if (strcmp(cell, text) == 0) {
            *column = k;
            return DRO_OK;
        }
    size_t number = column_number(text);
    if (number == 0 || number > csv->columns)
        return no_column(csv, option, text);
    *column = number - 1;
    return DRO_OK;
}

dro_status dro__csv_form_fit(const dro_data *d, dro__csv_form *f, dro__csv *csv)
{
    const char *label = dro__option(d, "label"), *group = dro__option(d, "group");
    if (f->header == NONE && f->kept && !label)
        f->header = f->kept->header;
    if (f->header == NONE && label[strspn(label, "0")] == '\0')
        return dro__fail(csv->ctx, DRO_ERR_ARGUMENT,
                         "label=%s: columns are counted from 1 (header=yes if one is called so)",
                         label);
    if (f->header == NONE && (column_number(label) == 0 || (group && column_number(group) == 0)))
        f->header = 1;
    if (f->header == NONE)
        DRO_TRY(looks_like_header(f, csv, &f->header));
    if (f->header)
        dro__csv_take_header(csv);
    if (label)
        DRO_TRY(find_column(d, csv, "label", &f->label));
    else
        f->label = dro__csv_kept_label(f->kept, csv);
    f->grouped = group != NULL;
    if (group)
        DRO_TRY(find_column(d, csv, "group", &f->group));
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
