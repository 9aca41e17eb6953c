/* Batches of a data set, prefetched by reader threads.
 *
 *     dro_loader_options o = dro_loader_options_default();
 *     o.batch = 128, o.augment = true;
 *     dro_loader_create(data, DRO_TRAIN, &o, &loader);
 *     dro_loader_draw(loader, position, &batch);       // position 0, 128, 256, ...
 *
 * The order and every random choice (crop, flip, colour) are pure functions of (seed, epoch, place
 * in the epoch): they do not depend on the number of threads, and drawing may start anywhere. An
 * epoch is n / batch whole batches; the remaining examples are dropped. */
#ifndef DRO_LOADER_H
#define DRO_LOADER_H

#include <dro/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stable ---- */

typedef struct dro_loader dro_loader;

/* Augmentation, in this order. Small images are shifted by up to 4 pixels, or an eighth of the
 * shorter side, and have no jitter; of large images a random part is cropped and resized. */
typedef enum dro_augment_way {
    DRO_AUGMENT_CROP = 1,
    DRO_AUGMENT_FLIP = 2,   /* left to right, half of the images */
    DRO_AUGMENT_JITTER = 4, /* brightness, contrast, saturation; follows the next two */
    DRO_AUGMENT_RANDAUGMENT = 8,
    DRO_AUGMENT_AUTOAUGMENT = 16, /* CIFAR-10's policy; not with randaugment */
    DRO_AUGMENT_CUTOUT = 32       /* a square of the mean colour, its centre anywhere */
} dro_augment_way;

typedef struct dro_loader_options {
    size_t struct_size; /* set by dro_loader_options_default() */
    size_t batch;
    int threads; /* readers; 0: as many as the context has */
    uint64_t seed;
    bool shuffle;  /* a new random order every epoch; otherwise in order */
    bool augment;  /* augment training images, in the ways of `ways` */
    bool cuts;     /* small images: give crops instead of pixels (dro_loaded.cuts) */
    int32_t size;  /* image files: the side of the square they are resized to; 0: 224 */
    int32_t ahead; /* batches to prefetch; 0: two per thread */
    bool sent;     /* the readers also copy the pixels to the backend's memory (device_pixels) */
    unsigned ways; /* of dro_augment_way; 0: crop, flip and jitter */
    size_t first, end;  /* of each batch only examples first .. end - 1 are read; 0, 0: all */
    int32_t operations; /* randaugment: operations for an image, 1 to 3; default 2 */
    int32_t magnitude;  /* randaugment: their strength, 0 to 30; default 9 */
    int32_t cutout;     /* the side of cutout's square; 0: half of the image's shorter side */
    /* Above 0: each example is mixed with another one of its batch, in shares drawn from
     * Beta(mixup, mixup), by blending (mixup) or by replacing a box (cutmix). With both, each
     * batch is mixed in one of the two ways, chosen at random. */
    double mixup, cutmix;
} dro_loader_options;

DRO_API dro_loader_options dro_loader_options_default(void);

/* An operation on an image's bytes, as the loader draws it: its kind (0: none) and parameters. */
typedef struct dro_operation {
    int32_t kind, p[6];
} dro_operation;

/* Columns left .. right - 1 of rows top .. bottom - 1. */
typedef struct dro_box {
    int16_t left, top, right, bottom;
} dro_box;

enum { DRO_OPERATIONS = 3 };

/* The crop of a small image and what follows it: shifted down and right by this many pixels (the
 * new border is 0 before normalising), mirrored left to right, changed by the operations,
 * normalised, and set to 0 in a box. */
typedef struct dro_cut {
    int8_t down, right, mirror;
    dro_box erased;
    dro_operation operations[DRO_OPERATIONS];
} dro_cut;

/* The second image of a mixed example. CutMix: the second image replaces the first one in the box.
 * mixup: the box is empty, and pixels are share * first + (1 - share) * second. The loss of the
 * example is share * loss(label of the first) + (1 - share) * loss(label of the second). */
typedef struct dro_mix {
    int64_t id; /* of the second, as in dro_loaded.ids */
    int32_t label;
    float share; /* of the first */
    dro_box box;
    dro_cut cut; /* of the second, with options.cuts */
} dro_mix;

/* A batch, valid until the third draw or gather after it, or until a draw out of sequence. Rows of
 * tables are not copied: row i is at ids[i] of dro_data_examples(). */
typedef struct dro_loaded {
    uint64_t position;
    size_t count;
    const int64_t *ids;         /* (count) indices in the split */
    const int32_t *labels;      /* (count) or NULL */
    const int32_t *groups;      /* (count) or NULL */
    const float *pixels;        /* (count, channels, height, width), normalised; NULL for rows */
    const dro_cut *cuts;        /* (count) with options.cuts */
    const float *device_pixels; /* with options.sent: pixels in GPU memory; NULL without a GPU, or
                                   if there was no memory */
    const dro_mix *mixes;       /* (count) with options.mixup or cutmix; the pixels are mixed */
} dro_loaded;

DRO_API dro_status dro_loader_create(dro_data *data, dro_split split,
                                     const dro_loader_options *options, dro_loader **loader);
DRO_API void dro_loader_destroy(dro_loader *loader); /* NULL is fine */
/* The batch at a position, a multiple of the batch size. */
DRO_API dro_status dro_loader_draw(dro_loader *loader, uint64_t position, dro_loaded *batch);
/* The given examples, without augmentation; at most as many as the batch size. */
DRO_API dro_status dro_loader_gather(dro_loader *loader, const int64_t *ids, size_t count,
                                     dro_loaded *batch);
/* Examples in an epoch (whole batches); the shape of a batch's pixels (zeros for rows and cuts);
 * seconds that draws have waited so far. */
DRO_API uint64_t dro_loader_epoch(const dro_loader *loader);
DRO_API void dro_loader_shape(const dro_loader *loader, int32_t *channels, int32_t *height,
                              int32_t *width);
DRO_API double dro_loader_waited(const dro_loader *loader);

/* ---- experimental: also the options cuts, sent, first and end ---- */

/* With options.end: the batch at a position with all of its examples; the calling thread reads
 * those that the readers left out. */
DRO_API dro_status dro_loader_complete(dro_loader *loader, uint64_t position, dro_loaded *batch);
/* For benchmarks: the rate of reading, decoding and resizing on this thread, without threads,
 * batches or augmentation. Images in files only. */
DRO_API dro_status dro_loader_bare(dro_loader *loader, double seconds, double *examples_per_s);

#ifdef __cplusplus
}
#endif
#endif
