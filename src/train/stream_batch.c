/* Batches of a stream, and how all ranks get their rows: first the sizes of each rank's rows, then
 * the rows. */
#include "stream_run.h"

#include <string.h>

dro_status dro__held_make(dro_context *ctx, dro__held *b, size_t count, size_t heads)
{
    b->starts = dro__alloc(count + 1, sizeof *b->starts);
    b->ids = dro__alloc(count, sizeof *b->ids);
    b->classes = dro__alloc(count, sizeof *b->classes);
    b->files = dro__alloc(count, sizeof *b->files);
    b->y = dro__alloc(count, sizeof *b->y);
    b->slopes = dro__alloc(count, heads * sizeof *b->slopes);
    if (!b->starts || !b->ids || !b->classes || !b->files || !b->y || !b->slopes)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for batches");
    return DRO_OK;
}

void dro__held_free(dro__held *b)
{
    dro__free(b->starts), dro__free(b->ids), dro__free(b->columns), dro__free(b->classes);
    dro__free(b->files), dro__free(b->values), dro__free(b->y), dro__free(b->slopes);
    *b = (dro__held){0};
}

void dro__held_clear(dro__held *b, uint64_t position)
{
    b->position = position;
    b->count = b->entries = 0;
}

dro_status dro__held_grow(dro_context *ctx, dro__held *b, size_t entries)
{
    DRO_TRY(dro__grow(ctx, (void **)&b->columns, &b->column_capacity, entries, sizeof *b->columns));
    return dro__grow(ctx, (void **)&b->values, &b->value_capacity, entries, sizeof *b->values);
}

dro_status dro__held_add(dro_context *ctx, dro__held *b, const dro__held_row *row)
{
    size_t i = b->count, start = b->entries;
    DRO_TRY(dro__held_grow(ctx, b, start + row->count));
    memcpy(b->columns + start, row->columns, row->count * sizeof *b->columns);
    memcpy(b->values + start, row->values, row->count * sizeof *b->values);
    b->count++;
    b->entries += row->count;
    b->starts[0] = 0;
    b->starts[i + 1] = (int64_t)b->entries;
    b->classes[i] = row->class;
    b->files[i] = row->file;
    b->y[i] = row->y;
    b->ids[i] = (int64_t)(b->position + i);
    return DRO_OK;
}

/* ---- several ranks ---- */

/* A row as it is sent; its columns and values follow. */
typedef struct packed_row {
    float y;
    int32_t class, file;
    uint32_t count;
} packed_row;

static size_t packed_size(const dro__share *s)
{
    return (size_t)s->rows * sizeof(packed_row) + (size_t)s->entries * 8;
}

static void pack(const dro__held *b, char *to)
{
    for (size_t i = 0; i < b->count; i++) {
        size_t start = (size_t)b->starts[i], count = (size_t)b->starts[i + 1] - start;
        packed_row row = {b->y[i], b->classes[i], b->files[i], (uint32_t)count};
        memcpy(to, &row, sizeof row);
        memcpy(to + sizeof row, b->columns + start, count * 4);
        memcpy(to + sizeof row + count * 4, b->values + start, count * 4);
        to += sizeof row + count * 8;
    }
}

static dro_status unpack(dro_context *ctx, const char *from, uint64_t rows, dro__held *b)
{
    for (uint64_t i = 0; i < rows; i++) {
        packed_row row;
        memcpy(&row, from, sizeof row);
        const void *columns = from + sizeof row;
        const void *values = from + sizeof row + (size_t)row.count * 4;
        DRO_TRY(dro__held_add(ctx, b,
                              &(dro__held_row){.columns = columns,
                                               .values = values,
                                               .count = row.count,
                                               .y = row.y,
                                               .class = row.class,
                                               .file = row.file}));
        from += sizeof row + (size_t)row.count * 8;
    }
    return DRO_OK;
}

/* The sizes of the ranks' packed rows and their sum, which MPI counts in int. */
static dro_status lay_out(dro_train *t, const dro__share *shares, int *sizes, size_t *total)
{
    *total = 0;
    for (int r = 0; r < dro_comm_size(t->comm); r++) {
        size_t size = packed_size(&shares[r]);
        *total += size;
        if (*total > INT32_MAX)
            return dro__fail(t->ctx, DRO_ERR_RANGE, "a batch of more than 2 GiB: expected less");
        sizes[r] = (int)size;
    }
    return DRO_OK;
}

static dro_status gather_rows(dro_train *t, const dro__held *mine, const dro__share *shares,
                              int *sizes, dro__held *all)
{
    size_t total, own = packed_size(&shares[dro_comm_rank(t->comm)]);
    DRO_TRY(lay_out(t, shares, sizes, &total));
    if (total == 0)
        return DRO_OK;
    char *bytes = dro__comm_buffer(t->comm, own + total);
    if (!bytes)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a batch");
    pack(mine, bytes);
    DRO_TRY(dro__comm_gather(t->comm, bytes, bytes + own, sizes));
    const char *from = bytes + own;
    for (int r = 0; r < dro_comm_size(t->comm); from += sizes[r++])
        DRO_TRY(unpack(t->ctx, from, shares[r].rows, all));
    return DRO_OK;
}

dro_status dro__held_gather(dro_train *t, const dro__held *mine, dro__share *shares, dro__held *all,
                            dro_status status)
{
    size_t ranks = (size_t)dro_comm_size(t->comm);
    dro__share own = shares[dro_comm_rank(t->comm)];
    char why[DRO__ERROR_SIZE];
    memcpy(why, t->ctx->error, sizeof why);
    own.head = dro__comm_head(t->comm, status);
    own.rows = mine->count;
    own.entries = mine->entries;
    int *sizes = dro__alloc(2 * ranks, sizeof *sizes), *offsets = sizes + ranks;
    for (size_t r = 0; sizes && r < ranks; r++) {
        sizes[r] = sizeof own;
        offsets[r] = (int)(r * sizeof own);
    }
    if (!sizes)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %zu ranks", ranks);
    status = dro__comm_gather(t->comm, &own, shares, sizes);
    if (status == DRO_OK)
        status = dro__comm_heads(t->comm, (const char *)shares, offsets, why);
    if (status == DRO_OK)
        status = gather_rows(t, mine, shares, sizes, all);
    dro__free(sizes);
    return status;
}
