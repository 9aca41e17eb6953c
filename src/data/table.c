/* Tables of examples: memory, and selecting rows. */
#include "data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

dro_status dro__grow(dro_context *ctx, void **array, size_t *capacity, size_t count, size_t size)
{
    if (count <= *capacity && *array)
        return DRO_OK;
    size_t more = *capacity ? *capacity + *capacity / 2 : 64, bytes;
    more = more < count ? count : more;
    if (__builtin_mul_overflow(more, size, &bytes))
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu x %zu bytes", more, size);
    void *grown =
        realloc(*array, bytes ? bytes : 1); /* from dro__alloc or from here: both free() */
    if (!grown)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu bytes", bytes);
    *array = grown;
    *capacity = more;
    return DRO_OK;
}

dro_status dro__grow_file(dro_context *ctx, const char *name, void **array, size_t *capacity,
                          size_t count, size_t size)
{
    dro_status status = dro__grow(ctx, array, capacity, count, size);
    if (status != DRO_OK)
        dro__fail(ctx, status, "%s: no memory for %zu x %zu bytes: expected a file that fits", name,
                  count, size);
    return status;
}

uint64_t dro__machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 40;
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited && limit.rlim_cur < bytes ? limit.rlim_cur : bytes;
}

dro_status dro__fits(dro_context *ctx, const char *name, uint64_t bytes)
{
    uint64_t most = dro__machine_memory() / 2;
    if (bytes <= most)
        return DRO_OK;
    return dro__fail(ctx, DRO_ERR_MEMORY,
                     "%s: takes more than %llu MB, half of the available memory: expected a file "
                     "that fits (a stream reads larger ones)",
                     name, (unsigned long long)(most / 1000000));
}

void dro__table_free(dro__table *t)
{
    void *arrays[] = {t->labels, t->targets, t->groups,  t->weights, t->records, t->pixels,
                      t->x,      t->starts,  t->columns, t->values,  t->text,    t->places};
    for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++)
        dro__free(arrays[k]);
    *t = (dro__table){0};
}

static size_t pixel_bytes(const dro_data *d)
{
    return (size_t)d->channels * (size_t)d->height * (size_t)d->width;
}

uint64_t dro__table_bytes(const dro_data *d, const dro__table *t)
{
    uint64_t n = (uint64_t)t->n, row = 0;
    row += t->labels ? sizeof *t->labels : 0;
    row += t->targets ? sizeof *t->targets : 0;
    row += t->groups ? sizeof *t->groups : 0;
    row += t->weights ? sizeof *t->weights : 0;
    row += t->records ? sizeof *t->records : 0;
    row += t->places ? sizeof *t->places : 0;
    row += t->pixels ? pixel_bytes(d) : 0;
    row += t->x ? d->features * sizeof *t->x : 0;
    uint64_t bytes = n * row + t->text_size;
    if (t->starts)
        bytes += (n + 1) * sizeof *t->starts +
                 (uint64_t)t->starts[t->n] * (sizeof *t->columns + sizeof *t->values);
    return bytes;
}

/* One array of fixed-size rows: rows[k] <- rows[keep[k]], keep rising. */
static void compact(void *array, size_t row, const int64_t *keep, int64_t count)
{
    char *bytes = array;
    for (int64_t k = 0; bytes && k < count; k++)
        if (keep[k] != k)
            memmove(bytes + (size_t)k * row, bytes + (size_t)keep[k] * row, row);
}

static void compact_sparse(dro__table *t, const int64_t *keep, int64_t count)
{
    int64_t at = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t from = t->starts[keep[k]], size = t->starts[keep[k] + 1] - from;
        memmove(t->columns + at, t->columns + from, (size_t)size * sizeof *t->columns);
        memmove(t->values + at, t->values + from, (size_t)size * sizeof *t->values);
        t->starts[k] = at;
        at += size;
    }
    t->starts[count] = at;
}

void dro__table_keep(const dro_data *d, dro__table *t, const int64_t *keep, int64_t count)
{
    compact(t->labels, sizeof *t->labels, keep, count);
    compact(t->targets, sizeof *t->targets, keep, count);
    compact(t->groups, sizeof *t->groups, keep, count);
    compact(t->weights, sizeof *t->weights, keep, count);
    compact(t->records, sizeof *t->records, keep, count);
    compact(t->places, sizeof *t->places, keep, count);
    compact(t->pixels, pixel_bytes(d), keep, count);
    compact(t->x, d->features * sizeof *t->x, keep, count);
    if (t->starts)
        compact_sparse(t, keep, count);
    t->n = count;
}

static dro_status copy_rows(dro_context *ctx, const void *from, size_t row, const int64_t *ids,
                            int64_t count, void **to)
{
    if (!from)
        return DRO_OK;
    *to = dro__alloc((size_t)count, row);
    if (!*to)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)count);
    for (int64_t k = 0; k < count; k++)
        memcpy((char *)*to + (size_t)k * row, (const char *)from + (size_t)ids[k] * row, row);
    return DRO_OK;
}

static dro_status copy_sparse(dro_context *ctx, const dro__table *t, const int64_t *ids,
                              int64_t count, dro__table *out)
{
    int64_t total = 0;
    for (int64_t k = 0; k < count; k++)
        total += t->starts[ids[k] + 1] - t->starts[ids[k]];
    out->starts = dro__alloc((size_t)count + 1, sizeof *out->starts);
    out->columns = dro__alloc((size_t)total, sizeof *out->columns);
    out->values = dro__alloc((size_t)total, sizeof *out->values);
    if (!out->starts || !out->columns || !out->values)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %lld values", (long long)total);
    for (int64_t k = 0; k < count; k++) {
        int64_t from = t->starts[ids[k]], size = t->starts[ids[k] + 1] - from, at = out->starts[k];
        memcpy(out->columns + at, t->columns + from, (size_t)size * sizeof *out->columns);
        memcpy(out->values + at, t->values + from, (size_t)size * sizeof *out->values);
        out->starts[k + 1] = at + size;
    }
    return DRO_OK;
}

dro_status dro__table_copy(const dro_data *d, const dro__table *t, const int64_t *ids,
                           int64_t count, dro__table *out)
{
    dro_context *ctx = d->ctx;
    out->n = count;
    DRO_TRY(copy_rows(ctx, t->labels, sizeof *t->labels, ids, count, (void **)&out->labels));
    DRO_TRY(copy_rows(ctx, t->targets, sizeof *t->targets, ids, count, (void **)&out->targets));
    DRO_TRY(copy_rows(ctx, t->groups, sizeof *t->groups, ids, count, (void **)&out->groups));
    DRO_TRY(copy_rows(ctx, t->weights, sizeof *t->weights, ids, count, (void **)&out->weights));
    DRO_TRY(copy_rows(ctx, t->records, sizeof *t->records, ids, count, (void **)&out->records));
    DRO_TRY(copy_rows(ctx, t->pixels, pixel_bytes(d), ids, count, (void **)&out->pixels));
    DRO_TRY(copy_rows(ctx, t->x, d->features * sizeof *t->x, ids, count, (void **)&out->x));
    if (t->starts)
        DRO_TRY(copy_sparse(ctx, t, ids, count, out));
    if (!t->places)
        return DRO_OK;
    size_t size = 0;
    for (int64_t k = 0; k < count; k++)
        size += strlen(t->text + t->places[ids[k]]) + 1;
    out->text = dro__alloc(size, 1);
    out->text_size = size;
    out->places = dro__alloc((size_t)count, sizeof *out->places);
    if (!out->text || !out->places)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %lld paths", (long long)count);
    size_t at = 0;
    for (int64_t k = 0; k < count; k++) {
        const char *path = t->text + t->places[ids[k]];
        out->places[k] = (int64_t)at;
        memcpy(out->text + at, path, strlen(path) + 1);
        at += strlen(path) + 1;
    }
    return DRO_OK;
}
