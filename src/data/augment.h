/* From stored images to the floats of a batch: cropping, flipping, policies, colour, normalising,
 * cutout. Every random choice comes from a stream of numbers that the caller addresses, so it can
 * be made again. */
#ifndef DRO_AUGMENT_H
#define DRO_AUGMENT_H

#include "data.h"

#include <dro/loader.h>

/* value -> value * scale + shift, per channel: (value/255 - mean) / std. */
typedef struct dro__normal {
    float scale[3], shift[3];
} dro__normal;

/* What the data was given; CIFAR's and ImageNet's figures where the format is one of those,
 * otherwise measured on the training images (at most 10,000 of them). */
dro__normal dro__normal_of(const dro_data *data);

/* Random numbers of one image: the k-th is a pure function of (seed, stream, k). */
typedef struct dro__augment_random {
    uint64_t seed, stream, counter;
    unsigned ways; /* of dro_augment_way; the random numbers of crop and flip are drawn anyway */
    int32_t reach; /* pixels that a small image is moved by, at most; 0: 4 */
    int32_t operations, magnitude, cutout; /* as in dro_loader_options */
} dro__augment_random;

/* What is done with a small image of this size; random NULL: nothing. */
dro_cut dro__cut_of(dro__augment_random *random, int32_t height, int32_t width);

/* pixels of an image of the data (channels, height, width) -> out, cut and normalised. */
dro_status dro__augment_small(dro_context *ctx, const dro__normal *normal, const dro_data *data,
                              const uint8_t *pixels, const dro_cut *cut, float *out);

/* An image of any size -> out (3, size, size), normalised. random NULL: shorter side to size *
 * 256/224, centre crop; otherwise a random crop of 8% to 100% of the area and aspect 3/4 to 4/3,
 * resized, flipped, changed by the policy, changed in brightness, contrast and saturation by up to
 * 40%, and with a square cut out. */
dro_status dro__augment_large(dro_context *ctx, const dro__normal *normal, const dro__image *image,
                              int32_t size, dro__augment_random *random, float *out);

/* ---- policy.c ---- */

/* The operations of AutoAugment and RandAugment by their names there. */
typedef enum dro__change {
    DRO__SHEAR_X,
    DRO__SHEAR_Y,
    DRO__TRANSLATE_X,
    DRO__TRANSLATE_Y,
    DRO__ROTATE,
    DRO__BRIGHTNESS,
    DRO__COLOUR,
    DRO__CONTRAST,
    DRO__SHARPNESS,
    DRO__POSTERIZE,
    DRO__SOLARIZE,
    DRO__AUTOCONTRAST,
    DRO__EQUALIZE,
    DRO__IDENTITY, /* the last of RandAugment */
    DRO__INVERT,
    DRO__CHANGES
} dro__change;

/* The magnitude is torchvision's: a tangent, pixels, degrees anticlockwise, the share of the image
 * less 1, bits that are kept, the first byte that is inverted. */
dro_operation dro__operation_of(dro__change change, double magnitude, int32_t height,
                                int32_t width);

/* The operations of an image by the ways randaugment or autoaugment. */
void dro__policy_draw(const dro__augment_random *random, int32_t height, int32_t width,
                      dro_operation operations[DRO_OPERATIONS]);

#endif
