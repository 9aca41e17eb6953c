/* What the readers of small images in fixed-size records share (cifar, stl10, idx). Each reads one
 * pair of opened files in one function, which is also what its fuzz target calls. */
#ifndef DRO_BINARY_H
#define DRO_BINARY_H

#include "data.h"

/* These formats live in memory: what one split may take there. */
#define DRO__BINARY_MAX ((uint64_t)1 << 36)

/* A table of images that grows as they arrive, whatever a header declares: memory stays within a
 * small multiple of what the file has delivered. */
typedef struct dro__image_block {
    dro__table *table;
    size_t image;         /* bytes of one image */
    size_t capacities[3]; /* of labels and records in examples, of pixels in bytes */
} dro__image_block;

/* Room for `more` examples after the table's n, within half of the available memory; input is named
 * in the error. */
dro_status dro__image_block_reserve(dro_context *ctx, dro__image_block *block,
                                    const dro__input *input, uint64_t more);
/* Before the `count` examples that a header or the labels announce are read: an error if they do
 * not fit into memory. A plain file that is too short for them is not refused here: the error of
 * reading it says more. */
dro_status dro__image_block_check(dro_context *ctx, const dro__image_block *block,
                                  const dro__input *input, uint64_t count);
/* Counts `count` examples that were written behind the table's n, and numbers them. */
void dro__image_block_add(dro__image_block *block, size_t count);

/* Opens the first of names (NULL terminated) that is there: in dir or in dir/sub (sub may be NULL),
 * as it is or with ".gz". *size (or NULL) is its length on disk: a first guess of the memory to ask
 * for. */
dro_status dro__folder_open(dro_context *ctx, const char *dir, const char *sub,
                            const char *const *names, dro__input **input, uint64_t *size);
/* Closes it and counts its bytes; input may be NULL. */
void dro__folder_close(dro_data *data, dro__input *input);
/* Class names, one a line, blank lines at the end. No such file: the classes keep their numbers. */
dro_status dro__folder_names(dro_data *data, const char *sub, const char *name, int32_t classes);

/* Nothing may follow. */
dro_status dro__input_end(dro_context *ctx, dro__input *input, const char *after);

/* One image of (points, channels) to (channels, points); scratch is as large as the image. */
void dro__planes(uint8_t *image, uint8_t *scratch, size_t points, size_t channels);
typedef struct dro__images_shape {
    uint64_t count;
    int32_t channels, height, width;
    bool planes_first; /* else channels are the last axis */
} dro__images_shape;

/* The shape of each image (not count) of an array (n, a, b, c); sizes: a, b, c. 1 or 3 channels are
 * the last axis, and the first only where the last cannot be. */
dro_status dro__image_axes(dro_context *ctx, const char *name, const uint64_t *sizes,
                           dro__images_shape *shape);

typedef struct dro__cifar_layout {
    int label_count;     /* bytes before an image */
    int32_t classes[2];  /* of each of them */
    const char *kind[2]; /* what each is called in an error */
    int chosen;          /* the one that counts */
} dro__cifar_layout;

extern const dro__cifar_layout dro__cifar_layouts[3]; /* CIFAR-10, CIFAR-100 fine, coarse */

/* Appends all records; `size` is a guess of the bytes to come, here and in the files after it. */
dro_status dro__cifar_read(dro_context *ctx, const dro__cifar_layout *layout, dro__input *input,
                           uint64_t size, dro__image_block *block);
/* Pixels look all alike to the fuzz target, and there are many. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { DRO__STL10_SIDE = 8 };
#else
enum { DRO__STL10_SIDE = 96 };
#endif

/* Into an empty table; `size` is the length of the images' file or a guess. */
dro_status dro__stl10_read(dro_context *ctx, dro__input *images, dro__input *labels, uint64_t size,
                           dro__table *table);

dro_status dro__idx_read(dro_context *ctx, dro__input *images, dro__input *labels, uint64_t size,
                         dro__images_shape *shape, dro__table *table);

#endif
