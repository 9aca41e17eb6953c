/* Remarks on the columns of a CSV file: legal but surprising cells, and the option that changes how
 * they are read. */
#include "csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A text as it is written in a SPEC. */
static const char *in_spec(const char *text, char out[96])
{
    size_t used = 0;
    for (; *text && used < 80; text++) {
        if (*text == ',')
            out[used++] = '\\';
        out[used++] = *text;
    }
    out[used] = '\0';
    return out;
}

/* A column's name, or its number where that is shorter. */
static const char *column_in_spec(const dro__csv *csv, size_t column, char out[96])
{
    enum { LONG = 40 };
    const char *name = csv->header;
    for (size_t k = 0; name && k < column; k++)
        name = dro__csv_next(name);
    if (name && *name && strlen(name) <= LONG)
        return in_spec(name, out);
    snprintf(out, 96, "%zu", column + 1);
    return out;
}

/* A text among numbers makes a column categorical, perhaps by mistake. */
static dro_status remark_text(dro_data *d, const dro__csv_learned *l, const dro__column *c,
                              const char *name, const char *cell)
{
    bool given = l->form->missing.also != NULL;
    char text[96];
    return dro__remark(d,
                       "%s: %lld of %lld values are numbers, but line %lld has '%.40s': "
                       "categorical, with %zu features; %s%s%s",
                       name, (long long)c->numbers, (long long)c->numbers + (long long)c->texts,
                       dro__csv_line(l->csv, c->text_row), cell, c->features,
                       given ? "correct the file if it is meant to be numeric" : "missing=",
                       given ? "" : in_spec(cell, text),
                       given ? "" : " takes this text for a missing number");
}

/* Texts that are nearly all different say little about a new row. */
static dro_status remark_values(dro_data *d, const dro__csv_learned *l, const dro__column *c,
                                const char *name, const char *cell)
{
    enum { FEW = 10, UNIT = 10 };
    size_t values = c->different, rows = l->rows;
    double value;
    char merged[64] = "", text[96], ending[160] = "decimal=comma reads such numbers";
    bool comma = dro__csv_number(cell, true, &value);
    if (!comma && (values <= FEW || 2 * values <= rows))
        return DRO_OK;
    const char *end = dro__number_double(cell, &value);
    if (end && !comma && strlen(end) <= UNIT && !strpbrk(end, "0123456789"))
        snprintf(ending, sizeof ending, "it would be a number without '%s' behind it", end);
    else if (!comma)
        snprintf(ending, sizeof ending, "drop=%s leaves the column out",
                 column_in_spec(l->csv, (size_t)(c - l->columns->at), text));
    if (values > c->categories.count)
        snprintf(merged, sizeof merged, " (the %zu that occur once share one)",
                 values - c->categories.count);
    return dro__remark(d,
                       "%s: %zu different texts in %s%zu rows, such as '%.40s': categorical, with "
                       "%zu feature%s%s; %s",
                       name, values, l->first ? "the first " : "", rows, cell, c->features,
                       c->features == 1 ? "" : "s", merged, ending);
}

static dro_status remark_date(dro_data *d, const dro__column *c, const char *name, const char *cell)
{
    static const char *const orders[] = {"", "year, month, day", "month, day, year", "",
                                         "day, month, year"};
    return dro__remark(d, "%s: dates, such as '%.40s' (%s): one feature, the number of days", name,
                       cell, orders[c->date]);
}

static dro_status remark_formatted(dro_data *d, const dro__csv_learned *l, const dro__column *c,
                                   const char *name, const char *cell)
{
    double value = 0, decimal = 0;
    char text[96], ending[64] = "";
    dro__csv_value(c, cell, &value);
    if (!c->commas && dro__csv_number(cell, true, &decimal))
        snprintf(ending, sizeof ending, ", decimal=comma reads it as %.10g", decimal);
    return dro__remark(
        d, "%s: '%.40s' is read as the number %.10g; categorical=%s keeps the texts%s", name, cell,
        value, column_in_spec(l->csv, (size_t)(c - l->columns->at), text), ending);
}

/* A text in the first row only, of a header of two lines perhaps, the second with units. */
static bool only_first(const dro__column *c)
{
    return !c->left_out && !c->numeric && c->may_count && c->text_row == 0 && c->texts == 1 &&
           c->numbers >= 9;
}

/* Whether such a row was remarked on, once for all its columns. */
static dro_status remark_first(dro_data *d, const dro__csv_learned *l, bool *done)
{
    size_t count = 0, first = 0;
    char name[64];
    for (size_t k = l->columns->count; k-- > 0;)
        if (only_first(&l->columns->at[k]))
            first = k, count++;
    *done = count > 1;
    if (!*done)
        return DRO_OK;
    return dro__remark(
        d,
        "line %lld has texts in %zu columns that are numbers in all other rows, such "
        "as '%.40s' in %s: they are categorical; if the line belongs to the header, "
        "remove it from the file",
        dro__csv_line(l->csv, 0), count, dro__csv_cell(l->csv, 0, first),
        dro__csv_column_name(l->csv, first, name, sizeof name));
}

dro_status dro__csv_remark(dro_data *d, const dro__csv_learned *l)
{
    bool header;
    DRO_TRY(remark_first(d, l, &header));
    for (size_t k = 0; k < l->columns->count; k++) {
        const dro__column *c = &l->columns->at[k];
        char name[64];
        dro__csv_column_name(l->csv, k, name, sizeof name);
        if (c->different > DRO__CSV_CATEGORIES_MAX)
            DRO_TRY(dro__remark(d, "%s: more than %d different texts: it is left out", name,
                                DRO__CSV_CATEGORIES_MAX));
        if (c->left_out || (c->numeric && !c->date && !c->formatted) || c->text_row < 0 ||
            (header && only_first(c)))
            continue;
        const char *cell = dro__csv_cell(l->csv, c->text_row, k);
        if (c->date)
            DRO_TRY(remark_date(d, c, name, cell));
        else if (c->numeric)
            DRO_TRY(remark_formatted(d, l, c, name, cell));
        else
            DRO_TRY(
                (c->numbers >= 9 * c->texts ? remark_text : remark_values)(d, l, c, name, cell));
    }
    return DRO_OK;
}
