/* From stored images to the floats of a batch: normalising, cropping, flipping, colour. Every
 * random choice comes from a stream of numbers that the caller addresses, so it can be made
 * again. */
#ifndef DRO_AUGMENT_H
#define DRO_AUGMENT_H

#include "data.h"

#include <dro/loader.h>

/* value -> value * scale + shift, per channel: (value/255 - mean) / std. */
typedef struct dro__normal {
    float scale[3], shift[3];
} dro__normal;

/* CIFAR's and ImageNet's figures where the format is one of those, otherwise measured on the
 * training images (at most 10,000 of them). */
dro__normal dro__normal_of(const dro_data *data);

/* Random numbers of one image: the k-th is a pure function of (seed, stream, k). */
typedef struct dro__augment_random {
    uint64_t seed, stream, counter;
    /* Ways of dro_augment_way that are left out. Their random numbers are drawn all the same. */
    unsigned without;
    int32_t reach; /* pixels that a small image is moved by, at most; 0: 4 */
} dro__augment_random;

/* The crop of a small image; random NULL: none. */
dro_cut dro__cut_of(dro__augment_random *random);

/* pixels of an image of the data (channels, height, width) -> out, normalised. random NULL: as it
 * is; otherwise padded by 4 with zeros before normalising, cropped at random, and flipped half of
 * the time. */
void dro__augment_small(const dro__normal *normal, const dro_data *data, const uint8_t *pixels,
                        dro__augment_random *random, float *out);

/* An image of any size -> out (3, size, size), normalised. random NULL: shorter side to size *
 * 256/224, centre crop; otherwise a random crop of 8% to 100% of the area and aspect 3/4 to 4/3,
 * resized, flipped, and changed in brightness, contrast and saturation by up to 40%. */
dro_status dro__augment_large(dro_context *ctx, const dro__normal *normal, const dro__image *image,
                              int32_t size, dro__augment_random *random, float *out);

#endif
