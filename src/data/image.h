/* image: what the decoders share. A decoder gives an image of one or three channels as the file has
 * it; image.c turns it to the channels asked for and the right way up. */
#ifndef DRO_IMAGE_H
#define DRO_IMAGE_H

#include "data.h"

typedef struct dro__image_file {
    dro_context *ctx;
    const char *name; /* for errors, not longer than DRO__IMAGE_NAME */
    const uint8_t *bytes;
    size_t size;
} dro__image_file;

enum { DRO__IMAGE_NAME = 250 };

/* The end of a path, which distinguishes files, short enough that a reason fits behind it. */
const char *dro__path_tail(const char *path);

/* Checks the size against the limits, waits for its share of the budget, then allocates; least is
 * the number of bytes that a file of this size must have. */
dro_status dro__image_create(const dro__image_file *file, uint64_t width, uint64_t height,
                             int channels, uint64_t least, dro__image *image);

/* TIFF's tag 274 in a block of EXIF: 1..8, and 1 when there is none or it makes no sense. */
int dro__exif_orientation(const uint8_t *tiff, size_t size);

/* Each fills *image on success only. orientation comes in as 1. */
dro_status dro__image_jpeg(const dro__image_file *file, dro__image *image, int *orientation);
dro_status dro__image_png(const dro__image_file *file, dro__image *image, int *orientation);
dro_status dro__image_pnm(const dro__image_file *file, dro__image *image);

#endif
