/* Comma-separated values: numeric columns scaled, categorical ones one-hot, both by
 * what training saw (csv.h). Dense rows, or sparse ones where features are many.
 *
 * label= names the column of the classes, by name or by its number from 1. Classes are sorted, by
 * value if all of them are numbers. A test label must be one of training's; a '.' at its end is
 * dropped where that makes it one (the census files). group= names a column that gives each row its
 * group and stays a feature, unless drop= names it. Missing values ("", ?, NA and nan in any case,
 * and missing=TEXT): an indicator of their own in a categorical column; the mean in a numeric one,
 * and an indicator as well where training had DRO__CSV_MISSING of them; missing=refuse makes them
 * an error. A test file may have a header of its own: its columns are then found by name, in any
 * order.
 *
 * Read for a model, with the encoding that it keeps, a file is encoded by that, and may be without
 * labels.
 *
 * The encoding is learned when imbalance and holdout have taken their rows out: from those that
 * training will see, and from no others. */
#include "csv.h"
#include "stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DENSE_MAX = 4096 };

typedef struct reader {
    dro_data *d;
    dro__csv_form form;
    dro__csv train, test; /* test.text is NULL if there is none */
    dro__names classes, groups;
    dro__columns columns;
    dro__kept kept; /* of a model, when the file is read for one */
} reader;

/* ---- labels and groups ---- */

/* The number of a name in the training file, which may be new. */
static dro_status add_name(const dro__csv *csv, int64_t row, size_t column, const char *cell,
                           dro__names *names, int32_t *number)
{
    DRO_TRY(dro__names_add(csv->ctx, names, cell, strlen(cell), number));
    if (*number < DRO__CSV_CATEGORIES_MAX)
        return DRO_OK;
    return dro__csv_bad_cell(
        csv, row, column, cell,
        "at most 65536 different ones (target=real reads real-valued targets)");
}

/* The number of a name in another file, which the training file must have; -1: it has not. */
static int32_t find_name(const dro__names *names, const char *cell)
{
    size_t length = strlen(cell);
    int32_t number = dro__names_find(names, cell, length);
    bool dot = number < 0 && length > 1 && cell[length - 1] == '.';
    return dot ? dro__names_find(names, cell, length - 1) : number;
}

/* One number per row. A missing label is an error, a missing group is the group "?". */
static dro_status read_names(const reader *r, const dro__csv *csv, size_t column, bool label,
                             dro__names *names, int32_t *numbers)
{
    const char *cell = csv->cells;
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
            if (k != column)
                continue;
            bool gone = dro__csv_missing(&r->form.missing, cell);
            if (gone && label)
                return dro__csv_bad_cell(csv, i, k, cell, "a label");
            const char *name = gone ? "?" : cell;
            numbers[i] = csv == &r->train ? 0 : find_name(names, name);
            if (csv == &r->train)
                DRO_TRY(add_name(csv, i, k, name, names, &numbers[i]));
            double value;
            bool count = label && names->count > 2 && dro__csv_number(name, false, &value);
            if (numbers[i] < 0)
                return dro__csv_bad_cell(csv, i, k, name,
                                         count ? "one that the training file has, or target=real, "
                                                 "which reads numbers"
                                               : "one that the training file has");
        }
    return DRO_OK;
}

/* A column of numbers: targets, or example weights, which are 0 or more. All are formatted if one
 * is no plain number. */
static dro_status read_numbers(const reader *r, const dro__csv *csv, size_t column, bool formatted,
                               float *numbers)
{
    const char *cell = csv->cells;
    bool weights = column == r->form.weight, comma = dro__csv_commas(&r->form, csv);
    int unit = 0;
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
            if (k != column)
                continue;
            double value;
            bool number = formatted ? dro__csv_formatted(cell, comma, &unit, &value)
                                    : dro__csv_number(cell, comma, &value);
            if (!number && !formatted && dro__csv_formatted(cell, comma, &unit, &value))
                return read_numbers(r, csv, column, true, numbers);
            numbers[i] = number ? (float)value : NAN;
            if (!isfinite(numbers[i]) || (weights && numbers[i] < 0))
                return dro__csv_bad_cell(csv, i, k, cell,
                                         weights ? "a weight, a finite number of 0 or more"
                                                 : dro__csv_expected(cell, number));
        }
    return DRO_OK;
}

static dro_status read_split(reader *r, const dro__csv *csv, dro__table *t)
{
    size_t n = (size_t)csv->rows;
    t->n = csv->rows;
    if (r->form.real)
        t->targets = dro__alloc(n, sizeof *t->targets);
    else
        t->labels = dro__alloc(n, sizeof *t->labels);
    if (r->form.grouped)
        t->groups = dro__alloc(n, sizeof *t->groups);
    bool weighted = r->form.weight != DRO__CSV_NO_COLUMN;
    if (weighted)
        t->weights = dro__alloc(n, sizeof *t->weights);
    if ((!t->targets && !t->labels) || (r->form.grouped && !t->groups) || (weighted && !t->weights))
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "%s: no memory for %zu rows", csv->name, n);
    int32_t number;
    if (r->form.label == DRO__CSV_NO_COLUMN) /* all zeros, a class that no model has */
        DRO_TRY(dro__names_add(csv->ctx, &r->classes, "?", 1, &number));
    else if (r->form.real)
        DRO_TRY(read_numbers(r, csv, r->form.label, false, t->targets));
    else
        DRO_TRY(read_names(r, csv, r->form.label, true, &r->classes, t->labels));
    if (r->form.grouped)
        DRO_TRY(read_names(r, csv, r->form.group, false, &r->groups, t->groups));
    return weighted ? read_numbers(r, csv, r->form.weight, false, t->weights) : DRO_OK;
}

/* Without target=: classes, unless dro__csv_find_real(). */
static dro_status choose_target(reader *r)
{
    dro__table *t = &r->d->split[DRO_TRAIN];
    char name[64];
    bool real = false;
    dro__csv_column_name(&r->train, r->form.label, name, sizeof name);
    if (!r->form.real)
        DRO_TRY(dro__csv_find_real(&r->train, &r->form, &r->classes, &real));
    if (real) {
        DRO_TRY(dro__remark(r->d,
                            "%s: %zu different numbers: a real-valued target, as with target=real; "
                            "target=class makes each of them a class",
                            name, r->classes.count));
        dro__names_free(&r->classes);
        dro__names_free(&r->groups);
        dro__table_free(t);
        r->form.real = true;
        return read_split(r, &r->train, t);
    }
    return DRO_OK;
}

/* "Yes" and "yes" are two classes, perhaps by mistake. */
static dro_status remark_case(const reader *r)
{
    enum { CLASSES_MOST = 200 };
    char *const *names = r->classes.names;
    size_t count = r->classes.count;
    for (size_t k = 0; k < count && count <= CLASSES_MOST; k++)
        for (size_t j = 0; j < k; j++)
            if (strcasecmp(names[j], names[k]) == 0)
                return dro__remark(r->d,
                                   "the classes '%.60s' and '%.60s' differ only in upper and lower "
                                   "case: correct the file if they are one class",
                                   names[j], names[k]);
    return DRO_OK;
}

/* Moves the sorted names into the data set; the numbers are renumbered. */
static dro_status sort_names(reader *r, dro__names *names, bool label)
{
    dro_data *d = r->d;
    int32_t *rank;
    char **sorted = dro__alloc(names->count, sizeof *sorted);
    if (!sorted)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu names", names->count);
    dro_status status = dro__names_rank(d->ctx, names, true, &rank);
    if (status != DRO_OK) {
        dro__free(sorted);
        return status;
    }
    for (size_t k = 0; k < names->count; k++)
        sorted[rank[k]] = names->names[k];
    for (int s = DRO_TRAIN; s <= DRO_TEST; s++) {
        int32_t *numbers = label ? d->split[s].labels : d->split[s].groups;
        int64_t n = s == DRO_TRAIN ? r->train.rows : r->test.rows;
        for (int64_t i = 0; numbers && i < n; i++)
            numbers[i] = rank[numbers[i]];
    }
    *(label ? &d->class_names : &d->group_names) = sorted;
    *(label ? &d->classes : &d->groups) = (int32_t)names->count;
    names->count = 0;
    dro__free(rank);
    return DRO_OK;
}

/* ---- the format ---- */

static dro_status parse_file(reader *r, const char *path, dro__csv *csv)
{
    dro__input *input;
    csv->ctx = r->d->ctx;
    DRO_TRY(dro__input_open_all(csv->ctx, path, &input));
    dro__csv_source source = {
        .input = input, .separator = r->form.separator, .header = r->form.header};
    dro_status status = dro__csv_encoding(r->d, input);
    if (status == DRO_OK)
        status = dro__csv_parse(csv, &source);
    r->d->again[csv == &r->test] =
        (dro__again){.separator = source.separator, .repeats = r->form.header};
    dro__csv_source_free(&source);
    r->d->bytes_read += dro__input_fetched(input);
    dro__input_close(input);
    return status;
}

/* Dense, unless features are many, or nearly all of more than 256 MiB would be zeros. */
static bool choose_dense(const reader *r)
{
    double rows = (double)r->train.rows + (double)r->test.rows, width = (double)r->columns.features;
    return width <= DENSE_MAX && (rows * width <= 0x1p26 || width <= 16 * (double)r->columns.count);
}

/* Of a file to train on, or its test= file: rows without a label, and an index of the rows. */
static dro_status clean(reader *r, dro__csv *csv)
{
    bool train = csv == &r->train;
    if (r->d->given || r->form.label == DRO__CSV_NO_COLUMN)
        return DRO_OK;
    if (train)
        DRO_TRY(dro__csv_form_index(r->d, &r->form, csv));
    if (r->form.missing.refuse)
        return DRO_OK;
    DRO_TRY(dro__csv_note_gone(csv, r->form.label, &r->form.missing, &r->d->again[!train]));
    int64_t rows = csv->rows, gone = dro__csv_leave_out(csv, r->form.label, &r->form.missing);
    if (gone == rows)
        return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: no row has a label", csv->name);
    if (gone == 0)
        return DRO_OK;
    return dro__remark(r->d, "%lld of %lld %srows have no label: they are left out",
                       (long long)gone, (long long)rows, train ? "" : "test ");
}

static dro_status read_all(reader *r)
{
    dro_data *d = r->d;
    const char *test = dro__option(d, "test");
    double share;
    if (d->given) {
        DRO_TRY(dro__csv_kept_read(d->ctx, d->given, &r->kept));
        r->form.kept = &r->kept;
    }
    DRO_TRY(dro__csv_form_read(d, &r->form));
    if (test && !dro__file_exists(test) && dro__number_double(test, &share))
        return dro__fail(
            d->ctx, DRO_ERR_ARGUMENT,
            "test=%.40s: expected a file; holdout=%.40s sets a share of the rows aside", test,
            test);
    DRO_TRY(parse_file(r, d->spec.path, &r->train));
    if (test)
        DRO_TRY(parse_file(r, test, &r->test));
    DRO_TRY(dro__csv_form_fit(d, &r->form, &r->train));
    if (test)
        DRO_TRY(dro__csv_form_match(&r->form, &r->train, &r->test));
    d->again[0].header = r->train.first > 0;
    d->again[1].header = r->test.first > 0;
    DRO_TRY(clean(r, &r->train));
    if (test)
        DRO_TRY(clean(r, &r->test));
    d->unlabelled = r->form.label == DRO__CSV_NO_COLUMN ? "label=COLUMN" : NULL;
    DRO_TRY(read_split(r, &r->train, &d->split[DRO_TRAIN]));
    if (!d->given && !dro__option(d, "target"))
        DRO_TRY(choose_target(r));
    if (!d->given)
        DRO_TRY(remark_case(r));
    if (test)
        DRO_TRY(read_split(r, &r->test, &d->split[DRO_TEST]));
    if (!r->form.real)
        DRO_TRY(sort_names(r, &r->classes, true));
    if (r->form.grouped)
        DRO_TRY(sort_names(r, &r->groups, false));
    return DRO_OK;
}

static dro_status open_csv(dro_data *d)
{
    reader *r = d->state = dro__alloc(1, sizeof *r);
    if (!r)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory to read CSV");
    r->d = d;
    return read_all(r);
}

/* Cells with unknown categories are counted where this is of interest: in a test set, and for a
 * model. */
static dro_status encode_split(reader *r, int split, bool dense)
{
    dro_data *d = r->d;
    const dro__csv *csv = split == DRO_TEST ? &r->test : &r->train;
    dro__columns *cols = &r->columns;
    char name[64];
    bool count = split == DRO_TEST || d->given;
    cols->unseen = count ? dro__alloc(cols->count, sizeof *cols->unseen) : NULL;
    if (count && !cols->unseen)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", cols->count);
    DRO_TRY(
        dro__csv_encode(&(dro__csv_encoder){csv, &r->form.missing, cols}, dense, &d->split[split]));
    for (size_t k = 0; count && k < cols->count; k++)
        if (cols->unseen[k] > 0)
            DRO_TRY(dro__remark(
                d, "%s: %lld of %lld %srows have a value that training did not have%s",
                dro__csv_column_name(csv, k, name, sizeof name), (long long)cols->unseen[k],
                (long long)d->split[split].n, d->given ? "" : "test ",
                cols->at[k].categories.count < cols->at[k].different ? ", or only once" : ""));
    dro__free(cols->unseen);
    cols->unseen = NULL;
    return DRO_OK;
}

static dro_status fit_csv(dro_data *d)
{
    reader *r = d->state;
    const dro__table *train = &d->split[DRO_TRAIN];
    if (d->given)
        DRO_TRY(dro__csv_kept_fit(&r->kept, &r->train, r->form.label, &r->columns));
    else
        DRO_TRY(dro__csv_learn(&r->train, &r->form, train->records, train->n, &r->columns));
    if (!d->given)
        DRO_TRY(dro__csv_remark(d, &(dro__csv_learned){.csv = &r->train,
                                                       .form = &r->form,
                                                       .columns = &r->columns,
                                                       .rows = (size_t)train->n}));
    bool dense = d->given ? r->kept.dense : choose_dense(r);
    if (!d->given)
        DRO_TRY(dro__csv_keep(&r->train, &r->form, &r->columns, dense, &d->encoding));
    d->kind = dense ? DRO_DATA_DENSE : DRO_DATA_SPARSE;
    d->features = r->columns.features;
    for (int s = 0; s < DRO_SPLITS; s++)
        if (d->split[s].n > 0 || s == DRO_TRAIN)
            DRO_TRY(encode_split(r, s, dense));
    return DRO_OK;
}

static void release_csv(dro_data *d)
{
    reader *r = d->state;
    if (!r)
        return;
    dro__csv_free(&r->train);
    dro__csv_free(&r->test);
    dro__names_free(&r->classes);
    dro__names_free(&r->groups);
    dro__columns_free(&r->columns);
    dro__csv_kept_free(&r->kept);
    dro__csv_form_free(&r->form);
    dro__free(r);
    d->state = NULL;
}

static const char *const options[] = {"label",   "test",    "group",    "weight", "header",
                                      "sep",     "missing", "target",   "drop",   "categorical",
                                      "decimal", "scale",   "encoding", NULL};

static const char *const endings[] = {"csv", "tsv", NULL};

const dro__format dro__format_csv = {
    .name = "csv",
    .stream = &dro__rows_csv,
    .cells = dro__csv_cells,
    .endings = endings,
    .dotted = true,
    .usage = "FILE,label=COLUMN[,test=FILE][,group=COLUMN][,weight=COLUMN][,header=yes|no|auto][,"
             "sep=tab]"
             "[,missing=TEXT|refuse][,target=real|class][,drop=COLUMN:COLUMN][,categorical=COLUMN:"
             "COLUMN]"
             "[,decimal=comma][,scale=standard|none][,encoding=latin1]",
    .summary = "a table: numeric columns standardised, others one-hot",
    .details =
        "label=COLUMN    its name in the header, or its number from 1\n"
        "test=FILE       with a header its columns are found by name, in any order. Its labels are "
        "those of\n"
        "                training; a '.' at the end of one is dropped where that makes it so (the "
        "census\n"
        "                files). dro eval and dro predict read their files in the same way.\n"
        "group=COLUMN    gives each row its group, and stays a feature, unless drop= names it\n"
        "weight=COLUMN   how much each row counts, 0 or more; no feature. In F, in all metrics and "
        "in training,\n"
        "                where rows are drawn in proportion; features are scaled without it\n"
        "sep=            comma, semicolon, tab, pipe, space or one of ;|:!~^&%$#@*/; if not given, "
        "that of\n"
        "                , ; tab | which the first line has most of, or that of a line sep=; "
        "before it;\n"
        "                space (a run of spaces and tabs is one) where there are none of these "
        "and all lines have as\n"
        "                many cells\n"
        "missing=TEXT    one more text for a missing value. Empty and blank cells, ?, NA and nan "
        "(letters of\n"
        "                any case) always are. A missing number becomes\n"
        "                the column's mean, and where training has ten or more of them, a second "
        "feature\n"
        "                says so; a missing text is a category of its own. missing=refuse: an "
        "error\n"
        "target=         real: the label is a real-valued target; class: the name of a class; if "
        "not given, real\n"
        "                for more than 10 different numbers with fractions, or more than 20 whole "
        "ones of\n"
        "                which half occur fewer than ten times, or that begin elsewhere than at 0 "
        "or 1\n"
        "drop=A:B        columns that are no features, such as an id\n"
        "categorical=A:B columns of numbers that are names, such as a postcode\n"
        "decimal=        comma: 3,14 is a number; point: it is a text; if not given, comma where "
        "cells are\n"
        "                not separated by commas\n"
        "scale=          of numeric columns. robust (if not given): mean and standard deviation of "
        "values cut\n"
        "                at the column's fences; more than 3 deviations are compressed to less "
        "than 6; ten or\n"
        "                more outliers have a feature too; standard: none of this; none: numbers "
        "as "
        "they are\n"
        "encoding=latin1 the file is in Latin-1 (Windows-1252); if not given, it must be UTF-8\n"
        "A column is numeric if all its cells are numbers or missing. Thousands may be in groups "
        "of three (1,234),\n"
        "and a column may have one unit (62 %, $1,234.50), which is left out. Among numbers NULL, "
        "None, n/a, -\n"
        "and . are missing, too. Dates (2024-12-31, 31.12.2024, 12/31/2024, with a time or "
        "without), if there\n"
        "are more than 50 different ones, are the number of days from 1970-01-01 on. Of more than "
        "50\n"
        "categories those of a single row share a feature with those that training did not have; a "
        "column\n"
        "with more than 65536 is left out. A comma in a value is written \\, as in "
        "missing=1\\,234.",
    .encodes = "columns are standardised or one-hot",
    .options = options,
    .open = open_csv,
    .fit = fit_csv,
    .release = release_csv};
