/* IDX, the format of MNIST and its family: two zero bytes, the type (8: unsigned byte), the number
 * of dimensions, a big-endian 32-bit size for each, then the bytes. Images are (n, height, width),
 * or with a fourth dimension of 1 or 3 channels, last or first; labels are (n). Headers are not
 * trusted: sizes are checked against limits, and memory grows only with the bytes that arrive. */
#include "binary.h"

#include <stdio.h>
#include <string.h>

enum { UBYTE = 8, IMAGE_MAX = 1 << 24, CHUNK_BYTES = 1 << 16 };

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Sizes of `low` to `high` dimensions; *dims is how many. */
static dro_status read_header(dro_context *ctx, dro__input *input, int low, int high,
                              uint64_t *sizes, int *dims)
{
    uint8_t bytes[16];
    DRO_TRY(dro__input_exact(input, bytes, 4, "the magic number of IDX"));
    if (bytes[0] || bytes[1] || bytes[2] != UBYTE || bytes[3] < low || bytes[3] > high)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: begins with %02x %02x %02x %02x: expected IDX, 00 00 08 %02x (bytes "
                         "in %d%s dimensions)",
                         dro__input_name(input), bytes[0], bytes[1], bytes[2], bytes[3], low, low,
                         low < high ? " or more" : "");
    *dims = bytes[3];
    DRO_TRY(dro__input_exact(input, bytes, 4 * (size_t)*dims, "the sizes of IDX"));
    for (int k = 0; k < *dims; k++)
        sizes[k] = big_endian(bytes + 4 * k);
    if (sizes[0] == 0)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: declares 0 examples: expected at least one",
                         dro__input_name(input));
    return DRO_OK;
}

static dro_status read_shape(dro_context *ctx, dro__input *images, dro__images_shape *shape)
{
    uint64_t sizes[4];
    int dims;
    DRO_TRY(read_header(ctx, images, 3, 4, sizes, &dims));
    if (dims == 3)
        sizes[3] = 1;
    DRO_TRY(dro__image_axes(ctx, dro__input_name(images), sizes + 1, shape));
    shape->count = sizes[0];
    uint64_t image = (uint64_t)shape->channels * (uint64_t)shape->height * (uint64_t)shape->width;
    if (image > IMAGE_MAX || shape->count > DRO__BINARY_MAX / image)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: declares %llu images of %llu bytes: expected at most %d bytes each "
                         "and %llu in all",
                         dro__input_name(images), (unsigned long long)shape->count,
                         (unsigned long long)image, IMAGE_MAX, (unsigned long long)DRO__BINARY_MAX);
    return DRO_OK;
}

/* A pair of files that is being read. */
typedef struct pair {
    dro__input *images, *labels;
    const dro__images_shape *shape;
    uint8_t *scratch; /* an image */
} pair;

/* Appends `count` images and labels. */
static dro_status read_some(dro_context *ctx, const pair *p, size_t count, dro__image_block *block)
{
    const dro__images_shape *shape = p->shape;
    dro__table *t = block->table;
    char what[80];
    uint8_t label;
    DRO_TRY(dro__image_block_reserve(ctx, block, p->images, count));
    for (size_t k = 0; k < count; k++) {
        uint8_t *image = t->pixels + (size_t)t->n * block->image;
        snprintf(what, sizeof what, "image %lld of %llu", (long long)t->n,
                 (unsigned long long)shape->count);
        DRO_TRY(dro__input_exact(p->images, image, block->image, what));
        if (!shape->planes_first)
            dro__planes(image, p->scratch, block->image / (size_t)shape->channels,
                        (size_t)shape->channels);
        snprintf(what, sizeof what, "label %lld of %llu", (long long)t->n,
                 (unsigned long long)shape->count);
        DRO_TRY(dro__input_exact(p->labels, &label, 1, what));
        t->labels[t->n] = label;
        dro__image_block_add(block, 1);
    }
    return DRO_OK;
}

dro_status dro__idx_read(dro_context *ctx, dro__input *images, dro__input *labels, uint64_t size,
                         dro__images_shape *shape, dro__table *table)
{
    uint64_t count;
    int dims;
    char after[64];
    DRO_TRY(read_shape(ctx, images, shape));
    DRO_TRY(read_header(ctx, labels, 1, 1, &count, &dims));
    if (count != shape->count)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: declares %llu labels: expected %llu, as %s has images",
                         dro__input_name(labels), (unsigned long long)count,
                         (unsigned long long)shape->count, dro__input_name(images));
    dro__image_block block = {.table = table};
    block.image = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    DRO_TRY(dro__image_block_check(ctx, &block, images, count));
    size_t chunk = block.image < CHUNK_BYTES ? CHUNK_BYTES / block.image : 1;
    pair p = {images, labels, shape, dro__alloc(shape->channels > 1 ? block.image : 1, 1)};
    dro_status status =
        p.scratch ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an image");
    size /= block.image;
    if (status == DRO_OK)
        status = dro__image_block_reserve(ctx, &block, images, size < count ? size : count);
    while (status == DRO_OK && (uint64_t)table->n < count) {
        uint64_t left = count - (uint64_t)table->n;
        status = read_some(ctx, &p, left < chunk ? (size_t)left : chunk, &block);
    }
    dro__free(p.scratch);
    DRO_TRY(status);
    snprintf(after, sizeof after, "the %llu images that it declares", (unsigned long long)count);
    DRO_TRY(dro__input_end(ctx, images, after));
    snprintf(after, sizeof after, "the %llu labels that it declares", (unsigned long long)count);
    return dro__input_end(ctx, labels, after);
}

static dro_status read_split(dro_data *data, const char *prefix, dro__images_shape *shape,
                             dro__table *table)
{
    static const char *const endings[2][5] = {
        {"images-idx3-ubyte", "images.idx3-ubyte", "images-idx4-ubyte", "images.idx4-ubyte", NULL},
        {"labels-idx1-ubyte", "labels.idx1-ubyte", NULL}};
    char text[2][4][40];
    dro__input *inputs[2] = {NULL, NULL};
    uint64_t sizes[2] = {0, 0};
    dro_status status = DRO_OK;
    for (int k = 0; k < 2 && status == DRO_OK; k++) {
        const char *names[5] = {NULL};
        for (int j = 0; endings[k][j]; j++) {
            snprintf(text[k][j], sizeof text[k][j], "%s-%s", prefix, endings[k][j]);
            names[j] = text[k][j];
        }
        status = dro__folder_open(data->ctx, data->spec.path, "raw", names, &inputs[k], &sizes[k]);
    }
    if (status == DRO_OK)
        status = dro__idx_read(data->ctx, inputs[0], inputs[1], sizes[0], shape, table);
    for (int k = 0; k < 2; k++)
        dro__folder_close(data, inputs[k]);
    return status;
}

static dro_status open_idx(dro_data *data)
{
    dro__images_shape a, b;
    DRO_TRY(read_split(data, "train", &a, &data->split[DRO_TRAIN]));
    DRO_TRY(read_split(data, "t10k", &b, &data->split[DRO_TEST]));
    if (a.channels != b.channels || a.height != b.height || a.width != b.width)
        return dro__fail(data->ctx, DRO_ERR_DATA,
                         "%s: test images are %d x %d x %d: expected %d x %d x %d as in training",
                         data->spec.path, b.channels, b.height, b.width, a.channels, a.height,
                         a.width);
    data->kind = DRO_DATA_PIXELS;
    data->channels = a.channels;
    data->height = a.height;
    data->width = a.width;
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < data->split[s].n; i++)
            if (data->split[s].labels[i] >= data->classes)
                data->classes = data->split[s].labels[i] + 1;
    return DRO_OK;
}

const dro__format dro__format_idx = {
    .name = "idx",
    .usage = "DIR",
    .summary =
        "the MNIST family: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., or .gz",
    .folder = true,
    .open = open_idx,
};
