/* STL-10, the official binary version: train_X.bin, train_y.bin, test_X.bin, test_y.bin. An image
 * is 3 x 96 x 96 bytes, the red, green and blue planes, each column by column; it is turned to rows
 * here. Labels are bytes from 1 to 10. The unlabelled images are not read. */
#include "binary.h"

#include <stdio.h>
#include <string.h>

enum {
    SIDE = DRO__STL10_SIDE,
    PLANE = SIDE * SIDE,
    IMAGE = 3 * PLANE,
    CLASSES = 10,
    LABELS_MAX = 1 << 21
};

/* from is (3, column, row), to is (3, row, column). */
static void turn(const uint8_t *from, uint8_t *to)
{
    for (int c = 0; c < 3; c++, from += PLANE, to += PLANE)
        for (int row = 0; row < SIDE; row++)
            for (int column = 0; column < SIDE; column++)
                to[row * SIDE + column] = from[column * SIDE + row];
}

/* The bytes of a file of labels. */
typedef struct label_file {
    dro__input *input;
    uint8_t *bytes;
    size_t count;
} label_file;

static dro_status read_images(dro_context *ctx, dro__input *images, uint64_t size,
                              const label_file *labels, dro__table *table)
{
    uint8_t image[IMAGE];
    const uint8_t *bytes = labels->bytes;
    size_t got, count = labels->count;
    dro__image_block block = {.table = table, .image = IMAGE};
    DRO_TRY(dro__image_block_check(ctx, &block, images, count));
    DRO_TRY(
        dro__image_block_reserve(ctx, &block, images, size / IMAGE < count ? size / IMAGE : count));
    for (size_t k = 0; k < count; k++) {
        if (bytes[k] < 1 || bytes[k] > CLASSES)
            return dro__fail(ctx, DRO_ERR_DATA, "%s: record %zu: label %d: expected 1 to %d",
                             dro__input_name(labels->input), k, bytes[k], CLASSES);
        DRO_TRY(dro__input_read(images, image, IMAGE, &got));
        if (got < IMAGE)
            return dro__fail(ctx, DRO_ERR_DATA,
                             "%s: ends %zu bytes into image %zu: expected %zu images of %d bytes, "
                             "one for each label of %s",
                             dro__input_name(images), got, k, count, IMAGE,
                             dro__input_name(labels->input));
        DRO_TRY(dro__image_block_reserve(ctx, &block, images, 1));
        table->labels[k] = bytes[k] - 1;
        turn(image, table->pixels + k * IMAGE);
        dro__image_block_add(&block, 1);
    }
    return DRO_OK;
}

dro_status dro__stl10_read(dro_context *ctx, dro__input *images, dro__input *labels, uint64_t size,
                           dro__table *table)
{
    char *bytes, after[64];
    label_file all = {.input = labels};
    DRO_TRY(dro__input_all(labels, LABELS_MAX, &bytes, &all.count));
    dro_status status = DRO_OK;
    all.bytes = (uint8_t *)bytes;
    if (all.count == 0)
        status = dro__fail(ctx, DRO_ERR_DATA, "%s: is empty: expected a byte for each image",
                           dro__input_name(labels));
    if (status == DRO_OK)
        status = read_images(ctx, images, size, &all, table);
    dro__free(bytes);
    snprintf(after, sizeof after, "%zu images, one for each label", all.count);
    return status == DRO_OK ? dro__input_end(ctx, images, after) : status;
}

static dro_status read_split(dro_data *data, const char *images_name, const char *labels_name,
                             dro__table *table)
{
    static const char sub[] = "stl10_binary";
    const char *names[2][2] = {{images_name, NULL}, {labels_name, NULL}};
    dro__input *images = NULL, *labels = NULL;
    const char *dir = data->spec.path;
    uint64_t size;
    dro_status status = dro__folder_open(data->ctx, dir, sub, names[0], &images, &size);
    if (status == DRO_OK)
        status = dro__folder_open(data->ctx, dir, sub, names[1], &labels, NULL);
    if (status == DRO_OK)
        status = dro__stl10_read(data->ctx, images, labels, size, table);
    dro__folder_close(data, images);
    dro__folder_close(data, labels);
    return status;
}

static dro_status open_stl10(dro_data *data)
{
    data->kind = DRO_DATA_PIXELS;
    data->channels = 3;
    data->height = data->width = SIDE;
    DRO_TRY(dro__folder_names(data, "stl10_binary", "class_names.txt", CLASSES));
    DRO_TRY(read_split(data, "train_X.bin", "train_y.bin", &data->split[DRO_TRAIN]));
    return read_split(data, "test_X.bin", "test_y.bin", &data->split[DRO_TEST]);
}

const dro__format dro__format_stl10 = {
    .name = "stl10",
    .usage = "DIR",
    .summary = "STL-10, the binary version: train_X.bin, train_y.bin, test_X.bin, test_y.bin",
    .folder = true,
    .open = open_stl10,
};
