/* Which examples of a batch are mixed, and how (mix.c). */
#ifndef DRO_MIX_H
#define DRO_MIX_H

#include "base.h"

#include <dro/loader.h>

/* Random numbers of a batch: the k-th is a pure function of (seed, stream, k). */
typedef struct dro__mix_random {
    uint64_t seed, stream, counter;
} dro__mix_random;

typedef struct dro__mix_shape {
    size_t channels, height, width;
} dro__mix_shape;

/* The example of the batch that example i is mixed with. Two examples are each other's partners,
 * except for the last of an odd batch. */
size_t dro__mix_partner(size_t i, size_t batch);

/* Share and box of a batch of images of this size; the rest is 0. */
dro_mix dro__mix_draw(dro__mix_random *random, double mixup, double cutmix, int32_t height,
                      int32_t width);

/* a = a mixed with b; and, with both, b = b mixed with a. */
void dro__mix_pixels(const dro_mix *mix, dro__mix_shape shape, float *a, float *b, bool both);

#endif
