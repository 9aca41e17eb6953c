/* CIFAR-10 and CIFAR-100, the official binary versions. A record is the label (CIFAR-100: the
 * coarse, then the fine one) in a byte each and 3 x 32 x 32 bytes: the red, green and blue planes,
 * row by row. The batches of the training set are read one after another as if they were one
 * file. */
#include "binary.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 32, IMAGE = 3 * SIDE * SIDE, CHUNK = 16 };

const dro__cifar_layout dro__cifar_layouts[3] = {
    {1, {10, 0}, {"label", NULL}, 0},
    {2, {20, 100}, {"coarse label", "fine label"}, 1},
    {2, {20, 100}, {"coarse label", "fine label"}, 0},
};

/* A file that is being read. */
typedef struct reader {
    dro_context *ctx;
    const dro__cifar_layout *layout;
    dro__input *input;
    dro__image_block *block;
    uint64_t number; /* records so far */
} reader;

/* Takes `count` whole records. */
static dro_status take(reader *r, const uint8_t *records, size_t count)
{
    const dro__cifar_layout *layout = r->layout;
    dro__table *t = r->block->table;
    DRO_TRY(dro__image_block_reserve(r->ctx, r->block, r->input, count));
    for (size_t k = 0; k < count; k++, records += IMAGE) {
        for (int j = 0; j < layout->label_count; j++)
            if (records[j] >= layout->classes[j])
                return dro__fail(r->ctx, DRO_ERR_DATA, "%s: record %llu: %s %d: expected 0 to %d",
                                 dro__input_name(r->input), (unsigned long long)(r->number + k),
                                 layout->kind[j], records[j], layout->classes[j] - 1);
        t->labels[t->n + (int64_t)k] = records[layout->chosen];
        records += layout->label_count;
        memcpy(t->pixels + ((size_t)t->n + k) * IMAGE, records, IMAGE);
    }
    dro__image_block_add(r->block, count);
    r->number += count;
    return DRO_OK;
}

dro_status dro__cifar_read(dro_context *ctx, const dro__cifar_layout *layout, dro__input *input,
                           uint64_t size, dro__image_block *block)
{
    uint8_t records[CHUNK * (IMAGE + 2)];
    size_t record = IMAGE + (size_t)layout->label_count, got;
    reader r = {.ctx = ctx, .layout = layout, .input = input, .block = block};
    DRO_TRY(dro__image_block_reserve(ctx, block, input, size / record));
    do {
        DRO_TRY(dro__input_read(input, records, CHUNK * record, &got));
        DRO_TRY(take(&r, records, got / record));
        if (got % record)
            return dro__fail(ctx, DRO_ERR_DATA,
                             "%s: ends %zu bytes into record %llu: expected whole records of %zu "
                             "bytes (the binary version of CIFAR)",
                             dro__input_name(input), got % record, (unsigned long long)r.number,
                             record);
    } while (got == CHUNK * record);
    if (r.number == 0)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: is empty: expected records of %zu bytes",
                         dro__input_name(input), record);
    return DRO_OK;
}

/* One of `alike` files that are still to come into this table, probably all of one size. */
static dro_status read_file(dro_data *data, const char *sub, const dro__cifar_layout *layout,
                            const char *name, uint64_t alike, dro__image_block *block)
{
    const char *names[] = {name, NULL};
    dro__input *input;
    uint64_t size;
    DRO_TRY(dro__folder_open(data->ctx, data->spec.path, sub, names, &input, &size));
    dro_status status = dro__cifar_read(data->ctx, layout, input, size * alike, block);
    dro__folder_close(data, input);
    return status;
}

static dro_status read_all(dro_data *data, const char *sub, const dro__cifar_layout *layout,
                           const char *const *train, const char *test)
{
    dro__image_block blocks[2] = {{.table = &data->split[DRO_TRAIN], .image = IMAGE},
                                  {.table = &data->split[DRO_TEST], .image = IMAGE}};
    data->kind = DRO_DATA_PIXELS;
    data->channels = 3;
    data->height = data->width = SIDE;
    uint64_t count = 0;
    while (train[count])
        count++;
    for (uint64_t k = 0; k < count; k++)
        DRO_TRY(read_file(data, sub, layout, train[k], count - k, &blocks[0]));
    return read_file(data, sub, layout, test, 1, &blocks[1]);
}

static dro_status open_cifar10(dro_data *data)
{
    static const char sub[] = "cifar-10-batches-bin";
    static const char *const train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", NULL};
    DRO_TRY(dro__folder_names(data, sub, "batches.meta.txt", 10));
    return read_all(data, sub, &dro__cifar_layouts[0], train, "test_batch.bin");
}

static dro_status open_cifar100(dro_data *data)
{
    static const char sub[] = "cifar-100-binary";
    static const char *const train[] = {"train.bin", NULL};
    const char *labels = dro__option(data, "labels");
    bool coarse = labels && strcmp(labels, "coarse") == 0;
    if (labels && !coarse && strcmp(labels, "fine") != 0)
        return dro__fail(data->ctx, DRO_ERR_RANGE, "labels=%.40s: expected fine or coarse", labels);
    DRO_TRY(dro__folder_names(data, sub, coarse ? "coarse_label_names.txt" : "fine_label_names.txt",
                              coarse ? 20 : 100));
    return read_all(data, sub, &dro__cifar_layouts[coarse ? 2 : 1], train, "test.bin");
}

static const char *const cifar100_options[] = {"labels", NULL};

const dro__format dro__format_cifar10 = {
    .name = "cifar10",
    .usage = "DIR",
    .summary = "CIFAR-10, the binary version: data_batch_1..5.bin and test_batch.bin",
    .folder = true,
    .open = open_cifar10,
};

const dro__format dro__format_cifar100 = {
    .name = "cifar100",
    .usage = "DIR[,labels=fine|coarse]",
    .summary = "CIFAR-100, the binary version: train.bin and test.bin",
    .options = cifar100_options,
    .folder = true,
    .open = open_cifar100,
};
