/* Operations on the bytes of an image: those of AutoAugment and RandAugment. The C compiler and
 * nvcc both compile this file. In C one thread changes the caller's image; on a GPU a block of
 * threads changes an image in shared memory. All arithmetic is in integers, so both give the same
 * bytes.
 *
 * The results are Pillow's (which torchvision calls for images), up to rounding: where Pillow
 * computes in floating point and truncates, a byte may differ by 1. Affine maps take the nearest
 * pixel, in 16.16 fixed point as Pillow does, and fill with zeros. */
#ifndef DRO_PIXELS_H
#define DRO_PIXELS_H

#include <dro/loader.h>

/* Kinds of dro_operation, and what its numbers are. */
typedef enum dro__operation_kind {
    DRO__PIXELS_KEEP,
    /* p: output pixel (x, y) is input pixel (p0 x + p1 y + p2, p3 x + p4 y + p5), in 1/65536 */
    DRO__PIXELS_AFFINE,
    /* p0: the share of the image, in 1/DRO__PIXELS_ONE; the rest is ... */
    DRO__PIXELS_BRIGHTNESS, /* black */
    DRO__PIXELS_COLOUR,     /* the image in grey */
    DRO__PIXELS_CONTRAST,   /* its mean grey */
    DRO__PIXELS_SHARPNESS,  /* the image smoothed */
    DRO__PIXELS_POSTERIZE,  /* p0: a mask */
    DRO__PIXELS_SOLARIZE,   /* p0: bytes from here on are inverted */
    DRO__PIXELS_AUTOCONTRAST,
    DRO__PIXELS_EQUALIZE,
    DRO__PIXELS_INVERT
} dro__operation_kind;

enum { DRO__PIXELS_ONE = 1 << 20, DRO__PIXELS_COLOURS = 3 };

/* An image and as much memory for its next version; they change places. */
typedef struct dro__pixels {
    uint8_t *p, *spare;
    int channels, height, width;
    int step, plane; /* from a pixel to the next, from a channel to the next */
} dro__pixels;

typedef struct dro__pixel_tables {
    uint32_t count[DRO__PIXELS_COLOURS][256];                /* how often each byte occurs */
    uint8_t to[DRO__PIXELS_COLOURS][256];                    /* what a byte becomes */
    uint32_t grey;                                           /* the sum of the image in grey */
    int low[DRO__PIXELS_COLOURS], high[DRO__PIXELS_COLOURS]; /* the darkest and brightest byte */
    uint32_t step[DRO__PIXELS_COLOURS]; /* pixels that have one byte, if as many had each */
} dro__pixel_tables;

#ifdef __CUDACC__
#define PIXEL_CALL          static __device__
#define EACH_PIXEL(i, size) for (int i = (int)threadIdx.x; i < (size); i += (int)blockDim.x)
#define PIXELS_TOGETHER()   __syncthreads()
#define PIXEL_ADD(to, x)    atomicAdd(to, x)
#else
#define PIXEL_CALL          static inline
#define EACH_PIXEL(i, size) for (int i = 0; i < (size); i++)
#define PIXELS_TOGETHER()   ((void)0)
#define PIXEL_ADD(to, x)    (*(to) += (x))
#endif

PIXEL_CALL void pixels_swap(dro__pixels *k)
{
    uint8_t *was = k->p;
    k->p = k->spare;
    k->spare = was;
}

/* `other` where share is 0, `own` where it is 1, beyond it above. The small number keeps what is a
 * whole number in exact arithmetic from being truncated to the one below. */
PIXEL_CALL uint8_t pixels_blend(int other, int own, int share)
{
    int value = other * DRO__PIXELS_ONE + share * (own - other) + DRO__PIXELS_ONE / 4096;
    value = value < 0 ? 0 : value / DRO__PIXELS_ONE;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* Of three channels the luma; otherwise their mean. */
PIXEL_CALL int pixels_grey(const dro__pixels *k, const uint8_t *p)
{
    if (k->channels == 3)
        return (19595 * p[0] + 38470 * p[k->plane] + 7471 * p[2 * k->plane] + 32768) >> 16;
    int sum = 0;
    for (int c = 0; c < k->channels; c++)
        sum += p[c * k->plane];
    return sum / k->channels;
}

/* ---- what looks at neighbours or at other channels ---- */

PIXEL_CALL void pixels_affine(dro__pixels *k, const int32_t *p)
{
    EACH_PIXEL(i, k->height * k->width)
    {
        int x = i % k->width, y = i / k->width;
        int u = p[0] * x + p[1] * y + p[2], v = p[3] * x + p[4] * y + p[5];
        int column = u < 0 ? -1 : u >> 16, row = v < 0 ? -1 : v >> 16;
        int inside = column >= 0 && column < k->width && row >= 0 && row < k->height;
        int from = inside ? (row * k->width + column) * k->step : 0;
        for (int c = 0; c < k->channels; c++)
            k->spare[i * k->step + c * k->plane] = inside ? k->p[from + c * k->plane] : 0;
    }
    PIXELS_TOGETHER();
    pixels_swap(k);
}

PIXEL_CALL void pixels_colour(dro__pixels *k, int share)
{
    EACH_PIXEL(i, k->height * k->width)
    {
        uint8_t *p = k->p + i * k->step;
        int grey = pixels_grey(k, p);
        for (int c = 0; c < k->channels; c++)
            p[c * k->plane] = pixels_blend(grey, p[c * k->plane], share);
    }
    PIXELS_TOGETHER();
}

/* Smoothed: the mean of 3 x 3 pixels, the centre five times; the border stays as it is. */
PIXEL_CALL void pixels_sharpness(dro__pixels *k, int share)
{
    int row = k->width * k->step;
    EACH_PIXEL(i, k->height * k->width)
    {
        int x = i % k->width, y = i / k->width;
        int border = x == 0 || y == 0 || x == k->width - 1 || y == k->height - 1;
        for (int c = 0; c < k->channels; c++) {
            int at = i * k->step + c * k->plane, own = k->p[at], sum = 4 * own;
            for (int d = 0; d < 9 && !border; d++)
                sum += k->p[at + (d / 3 - 1) * row + (d % 3 - 1) * k->step];
            int smooth = border ? own : (2 * sum + 13) / 26;
            k->spare[at] = pixels_blend(smooth, own, share);
        }
    }
    PIXELS_TOGETHER();
    pixels_swap(k);
}

/* ---- what maps bytes to bytes, for each channel ---- */

PIXEL_CALL void pixels_count(const dro__pixels *k, dro__pixel_tables *t)
{
    EACH_PIXEL(i, 256 * k->channels)
    t->count[i / 256][i % 256] = 0;
    PIXELS_TOGETHER();
    EACH_PIXEL(i, k->height * k->width)
    for (int c = 0; c < k->channels; c++)
        PIXEL_ADD(&t->count[c][k->p[i * k->step + c * k->plane]], 1u);
    PIXELS_TOGETHER();
}

/* One thread for a channel: its counts become those of darker pixels. */
PIXEL_CALL void pixels_survey(dro__pixel_tables *t, int c)
{
    uint32_t sum = 0, below = 0;
    int low = -1, high = 0;
    for (int v = 0; v < 256; v++) {
        uint32_t count = t->count[c][v];
        t->count[c][v] = sum;
        if (count) {
            low = low < 0 ? v : low;
            high = v, below = sum;
        }
        sum += count;
    }
    t->low[c] = low, t->high[c] = high;
    t->step[c] = below / 255;
}

PIXEL_CALL int pixels_mean(const dro__pixels *k, dro__pixel_tables *t)
{
    uint64_t area = (uint64_t)k->height * (uint64_t)k->width;
    EACH_PIXEL(i, 1)
    t->grey = 0;
    PIXELS_TOGETHER();
    uint32_t sum = 0;
    EACH_PIXEL(i, k->height * k->width)
    sum += (uint32_t)pixels_grey(k, k->p + i * k->step);
    PIXEL_ADD(&t->grey, sum);
    PIXELS_TOGETHER();
    return (int)((2 * (uint64_t)t->grey + area) / (2 * area));
}

/* From the darkest byte to the brightest becomes 0 to 255. */
PIXEL_CALL int pixels_stretched(int low, int high, int v)
{
    if (high <= low)
        return v;
    int inside = v < low ? low : v;
    return inside > high ? 255 : (inside - low) * 255 / (high - low);
}

/* As many pixels of each brightness, as far as bytes that are the same allow. */
PIXEL_CALL int pixels_levelled(uint32_t step, uint32_t darker, int v)
{
    uint32_t value = step ? (step / 2 + darker) / step : (uint32_t)v;
    return (int)(value > 255 ? 255 : value);
}

/* What byte v of channel c becomes. */
PIXEL_CALL int pixels_mapped(const dro_operation *o, const dro__pixel_tables *t, int mean, int c,
                             int v)
{
    switch (o->kind) {
    case DRO__PIXELS_BRIGHTNESS:
    case DRO__PIXELS_CONTRAST:
        return pixels_blend(mean, v, o->p[0]);
    case DRO__PIXELS_POSTERIZE:
        return v & o->p[0];
    case DRO__PIXELS_SOLARIZE:
        return v < o->p[0] ? v : 255 - v;
    case DRO__PIXELS_AUTOCONTRAST:
        return pixels_stretched(t->low[c], t->high[c], v);
    case DRO__PIXELS_EQUALIZE:
        return pixels_levelled(t->step[c], t->count[c][v], v);
    default:
        return 255 - v; /* inverted */
    }
}

PIXEL_CALL void pixels_by_table(dro__pixels *k, dro__pixel_tables *t, const dro_operation *o)
{
    int mean = o->kind == DRO__PIXELS_CONTRAST ? pixels_mean(k, t) : 0;
    if (o->kind == DRO__PIXELS_AUTOCONTRAST || o->kind == DRO__PIXELS_EQUALIZE) {
        pixels_count(k, t);
        EACH_PIXEL(c, k->channels)
        pixels_survey(t, c);
        PIXELS_TOGETHER();
    }
    EACH_PIXEL(i, 256 * k->channels)
    t->to[i / 256][i % 256] = (uint8_t)pixels_mapped(o, t, mean, i / 256, i % 256);
    PIXELS_TOGETHER();
    EACH_PIXEL(i, k->height * k->width)
    for (int c = 0; c < k->channels; c++) {
        uint8_t *p = &k->p[i * k->step + c * k->plane];
        *p = t->to[c][*p];
    }
    PIXELS_TOGETHER();
}

/* All of an image's operations, in order. */
PIXEL_CALL void dro__pixels_change(dro__pixels *k, dro__pixel_tables *t, const dro_operation *o)
{
    for (int i = 0; i < DRO_OPERATIONS; i++, o++)
        switch (o->kind) {
        case DRO__PIXELS_KEEP:
            break;
        case DRO__PIXELS_AFFINE:
            pixels_affine(k, o->p);
            break;
        case DRO__PIXELS_COLOUR:
            pixels_colour(k, o->p[0]);
            break;
        case DRO__PIXELS_SHARPNESS:
            pixels_sharpness(k, o->p[0]);
            break;
        default:
            pixels_by_table(k, t, o);
        }
}

#endif
