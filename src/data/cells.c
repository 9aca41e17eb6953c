/* Cells of examples as text: those of the file where its format reads it once more, row by row;
 * else the features. */
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CELL_MOST = 240, ENTRIES_MOST = 12, ENTRY = 40 };

/* ---- texts ---- */

dro_status dro__cells_begin(dro__cells *c, size_t columns)
{
    size_t shown = columns < c->most ? columns : c->most;
    c->out.columns = (int32_t)shown;
    c->out.more = (int64_t)(columns - shown);
    c->starts = dro__alloc(shown * ((size_t)c->out.count + 1) + 1, sizeof *c->starts);
    return c->starts ? DRO_OK : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for cells");
}

static dro_status put(dro__cells *c, size_t at, const char *text)
{
    size_t size = strlen(text);
    bool cut = size > CELL_MOST;
    size = cut ? CELL_MOST : size;
    while (cut && size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--; /* not inside a letter */
    DRO_TRY(dro__grow(c->ctx, (void **)&c->text, &c->capacity, c->used + size + 1, 1));
    memcpy(c->text + c->used, text, size);
    c->text[c->used + size] = '\0';
    c->starts[at] = c->used;
    c->used += size + 1;
    return DRO_OK;
}

dro_status dro__cells_name(dro__cells *c, size_t column, const char *text)
{
    return column < (size_t)c->out.columns ? put(c, column, text) : DRO_OK;
}

dro_status dro__cells_put(dro__cells *c, size_t place, size_t column, const char *text)
{
    size_t columns = (size_t)c->out.columns;
    return column < columns ? put(c, (place + 1) * columns + column, text) : DRO_OK;
}

/* The texts do not move any more. */
static dro_status finish(dro__cells *c)
{
    size_t columns = (size_t)c->out.columns, all = columns * ((size_t)c->out.count + 1);
    const char **list = dro__alloc(all + 1, sizeof *list);
    if (!list)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for cells");
    for (size_t k = 0; k < all; k++)
        list[k] = c->text + c->starts[k];
    c->out.names = list;
    c->out.cells = list + columns;
    return DRO_OK;
}

/* ---- features ---- */

static dro_status dense(dro__cells *c, const dro_data *d, const dro__table *t, const int64_t *ids)
{
    char text[ENTRY];
    size_t width = d->features - (d->bias > 0);
    DRO_TRY(dro__cells_begin(c, width));
    for (size_t k = 0; k < (size_t)c->out.columns; k++) {
        snprintf(text, sizeof text, "feature %zu", k + 1);
        DRO_TRY(dro__cells_name(c, k, d->feature_names ? d->feature_names[k] : text));
    }
    for (size_t i = 0; i < (size_t)c->out.count; i++)
        for (size_t k = 0; k < (size_t)c->out.columns; k++) {
            snprintf(text, sizeof text, "%.4g", (double)t->x[(size_t)ids[i] * d->features + k]);
            DRO_TRY(dro__cells_put(c, i, k, text));
        }
    return DRO_OK;
}

/* One cell: the first entries, with columns from 1 on. */
static dro_status sparse(dro__cells *c, const dro_data *d, const dro__table *t, const int64_t *ids)
{
    DRO_TRY(dro__cells_begin(c, 1));
    DRO_TRY(dro__cells_name(c, 0, "features"));
    for (size_t i = 0; i < (size_t)c->out.count; i++) {
        char text[ENTRIES_MOST * ENTRY] = "";
        size_t used = 0, count = 0;
        for (int64_t at = t->starts[ids[i]]; at < t->starts[ids[i] + 1]; at++) {
            if (d->bias > 0 && (size_t)t->columns[at] == d->bias)
                continue;
            if (count++ == ENTRIES_MOST)
                break;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d:%.4g", used ? " " : "",
                                     t->columns[at] + 1, (double)t->values[at]);
        }
        if (count > ENTRIES_MOST)
            snprintf(text + used, sizeof text - used, " ...");
        DRO_TRY(dro__cells_put(c, i, 0, text));
    }
    return DRO_OK;
}

/* ---- the file ---- */

/* Not a pipe, which was read once. */
static bool can_be_read_again(const dro_data *d, bool test)
{
    struct stat about;
    const char *path = test ? dro__option(d, "test") : d->spec.path;
    return d->format->cells && path && strcmp(path, "-") != 0 &&
           (dro__is_pattern(path) || (stat(path, &about) == 0 && S_ISREG(about.st_mode)));
}

static int by_record(const void *a, const void *b)
{
    int64_t x = ((const dro__wanted *)a)->record, y = ((const dro__wanted *)b)->record;
    return (x > y) - (x < y);
}

static dro_status of_file(dro__cells *c, const dro_data *d, dro_split split, const int64_t *ids)
{
    size_t count = (size_t)c->out.count;
    dro__wanted *wanted = dro__alloc(count, sizeof *wanted);
    if (!wanted)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for cells");
    for (size_t k = 0; k < count; k++)
        wanted[k] = (dro__wanted){d->split[split].records[ids[k]], k};
    qsort(wanted, count, sizeof *wanted, by_record);
    dro_status status = d->format->cells(d, split == DRO_TEST, wanted, c);
    dro__free(wanted);
    return status;
}

static dro_status collect(dro__cells *c, const dro_data *d, dro_split split, const int64_t *ids)
{
    const dro__table *t = &d->split[split];
    for (int64_t k = 0; k < c->out.count; k++)
        if (ids[k] < 0 || ids[k] >= t->n)
            return dro__fail(d->ctx, DRO_ERR_RANGE, "example %lld: there are %lld",
                             (long long)ids[k], (long long)t->n);
    c->out.original = can_be_read_again(d, split == DRO_TEST);
    if (c->out.original)
        DRO_TRY(of_file(c, d, split, ids));
    else if (t->x)
        DRO_TRY(dense(c, d, t, ids));
    else if (t->starts)
        DRO_TRY(sparse(c, d, t, ids));
    else
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED, "the data is no table");
    return finish(c);
}

/* ---- public ---- */

dro_status dro_data_cells(const dro_data *d, dro_split split, const int64_t *examples, size_t count,
                          size_t columns, dro_cells **cells)
{
    if (cells)
        *cells = NULL;
    if (!d || !examples || !cells || split < 0 || split >= DRO_SPLITS || columns > INT32_MAX ||
        count < 1 || count > INT32_MAX)
        return DRO_ERR_ARGUMENT;
    dro__forget(d->ctx);
    dro__cells *c = dro__alloc(1, sizeof *c);
    if (!c)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for cells");
    c->ctx = d->ctx;
    c->most = columns;
    c->out.count = (int64_t)count;
    dro_status status = collect(c, d, split, examples);
    if (status == DRO_OK)
        *cells = &c->out;
    else
        dro_cells_free(&c->out);
    return dro__done(d->ctx, status);
}

void dro_cells_free(dro_cells *cells)
{
    dro__cells *c = (dro__cells *)cells;
    if (!c)
        return;
    dro__free((void *)c->out.names);
    dro__free(c->starts);
    dro__free(c->text);
    dro__free(c);
}
