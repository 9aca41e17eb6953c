/* Some rows of CSV files that were read before, once more: row by row, with the memory of one. */
#include "cells.h"
#include "csv.h"

#include <stdio.h>
#include <string.h>

/* ---- what is noted when they are read first ---- */

dro_status dro__csv_note_gone(const dro__csv *csv, size_t column, const dro__missing *missing,
                              dro__again *again)
{
    const char *cell = csv->cells;
    size_t capacity = 0;
    for (int64_t i = 0; i < csv->rows; i++)
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell)) {
            if (k != column || !dro__csv_missing(missing, cell))
                continue;
            DRO_TRY(dro__grow(csv->ctx, (void **)&again->gone, &capacity, again->gone_count + 1,
                              sizeof *again->gone));
            again->gone[again->gone_count++] = i;
        }
    return DRO_OK;
}

/* ---- once more ---- */

static dro_status take_names(const dro__csv *csv, bool header, dro__cells *cells)
{
    char text[32];
    const char *cell = csv->cells;
    DRO_TRY(dro__cells_begin(cells, csv->columns));
    for (size_t k = 0; k < (size_t)cells->out.columns; k++, cell = dro__csv_next(cell)) {
        snprintf(text, sizeof text, "column %zu", k + 1);
        DRO_TRY(dro__cells_name(cells, k, header && *cell ? cell : text));
    }
    return DRO_OK;
}

static dro_status take_row(const dro__csv *csv, size_t place, dro__cells *cells)
{
    const char *cell = csv->cells;
    for (size_t k = 0; k < (size_t)cells->out.columns; k++, cell = dro__csv_next(cell))
        DRO_TRY(dro__cells_put(cells, place, k, cell));
    return DRO_OK;
}

/* record: of the rows that have a label; row: of all. */
static dro_status read_rows(const dro__again *again, dro__csv_source *s, dro__csv *csv,
                            const dro__wanted *wanted, dro__cells *cells)
{
    int64_t record = 0, row = again->header ? -1 : 0;
    size_t gone = 0;
    for (int64_t found = 0; found < cells->out.count; row++) {
        bool got;
        dro__csv_clear(csv);
        DRO_TRY(dro__csv_append(s, csv, &got));
        if (!got)
            return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: has changed since it was read",
                             csv->name);
        if (!cells->starts)
            DRO_TRY(take_names(csv, again->header, cells));
        if (gone < again->gone_count && again->gone[gone] == row) {
            gone++;
            continue;
        }
        for (; found < cells->out.count && wanted[found].record == record && row >= 0; found++)
            DRO_TRY(take_row(csv, wanted[found].place, cells));
        record += row >= 0;
    }
    return DRO_OK;
}

dro_status dro__csv_cells(const dro_data *d, bool test, const dro__wanted *wanted,
                          dro__cells *cells)
{
    const dro__again *again = &d->again[test];
    dro__csv csv = {.ctx = d->ctx};
    dro__input *input;
    DRO_TRY(dro__input_open_all(d->ctx, test ? dro__option(d, "test") : d->spec.path, &input));
    dro__csv_source source = {
        .input = input, .separator = again->separator, .header = again->repeats};
    snprintf(csv.name, sizeof csv.name, "%s", dro__input_name(input));
    dro_status status = dro__csv_encoding(d, input);
    if (status == DRO_OK)
        status = read_rows(again, &source, &csv, wanted, cells);
    dro__csv_source_free(&source);
    dro__csv_free(&csv);
    dro__input_close(input);
    return status;
}
