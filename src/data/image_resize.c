/* Resizing a box of an image with the triangle filter, widened by the reduction so that every pixel
 * of the box counts (antialiasing). The numbers are Pillow's resize(size, BILINEAR, box=box): the
 * box in single precision, weights normalised in double and rounded to 22 bits, columns first, each
 * pass rounded to 8 bits. Pixels just outside of the box take part, as there. Equal to Pillow 11 in
 * every value that was tried; Pillow 13 takes rows first for some shapes, which changes values by
 * one at most. */
#include "image.h"
#include "isa.h"

#include <math.h>
#include <string.h>

enum { BITS = 22, HALF = 1 << (BITS - 1), BLOCK = 128 };

/* One direction: output i is the sum of weights[i * taps + k] * input[first[i] + k], k <
 * count[i]. */
typedef struct axis {
    int32_t size, taps, *first, *count, *weights;
    bool same; /* the output is the input */
} axis;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* in: length of the input; low .. high: the part of it that becomes size outputs. */
static dro_status axis_create(dro_context *ctx, int32_t in, float low, float high, int32_t size,
                              axis *a)
{
    double scale = (double)(high - low) / size, width = scale < 1 ? 1 : scale;
    a->size = size;
    a->same = size == in && low == 0 && high == (float)size;
    a->taps = 2 * (int32_t)ceil(width) + 1;
    a->first = dro__alloc((size_t)size, sizeof *a->first);
    a->count = dro__alloc((size_t)size, sizeof *a->count);
    a->weights = dro__alloc((size_t)size * (size_t)a->taps, sizeof *a->weights);
    double *exact = dro__alloc((size_t)a->taps, sizeof *exact);
    if (!a->first || !a->count || !a->weights || !exact) {
        dro__free(exact);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory to resize an image");
    }
    for (int32_t i = 0; i < size; i++) {
        double center = (double)low + (i + 0.5) * scale, sum = 0;
        int32_t from = (int32_t)(center - width + 0.5), to = (int32_t)(center + width + 0.5);
        from = from < 0 ? 0 : from;
        to = to > in ? in : to;
        for (int32_t k = 0; k < to - from; k++)
            sum += exact[k] = triangle((k + from - center + 0.5) * (1 / width));
        a->first[i] = from;
        a->count[i] = to - from;
        for (int32_t k = 0; k < to - from; k++)
            a->weights[(size_t)i * (size_t)a->taps + (size_t)k] =
                (int32_t)(0.5 + (sum != 0 ? exact[k] / sum : exact[k]) * (1 << BITS));
    }
    dro__free(exact);
    return DRO_OK;
}

static void axis_free(axis *a)
{
    dro__free(a->first);
    dro__free(a->count);
    dro__free(a->weights);
}

/* Weights are not negative, but thousands of them may add up to a little more than one. */
static inline uint8_t to_byte(int32_t sum)
{
    sum >>= BITS;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

/* ---- columns ---- */

typedef int32_t quad __attribute__((vector_size(16)));

/* One row of three channels. They are the first three lanes of vectors at any place of a row of
 * integers; the fourth lane is the next pixel's, in the sums too, where the next pixel overwrites
 * it. */
DRO__KERNEL void across_rgb_kernel(const uint8_t *in, const axis *a, int32_t *wide, int32_t *sums,
                                   uint8_t *out)
{
    int32_t from = a->first[0], to = a->first[a->size - 1] + a->count[a->size - 1];
    size_t used = (size_t)(to - from) * 3, made = (size_t)a->size * 3;
    in += (size_t)from * 3;
    for (size_t k = 0; k < used; k++)
        wide[k] = in[k];
    for (int32_t i = 0; i < a->size; i++) {
        const int32_t *weight = a->weights + (size_t)i * (size_t)a->taps;
        const int32_t *p = wide + (size_t)(a->first[i] - from) * 3;
        quad sum = {HALF, HALF, HALF, HALF}, pixel;
        for (int32_t k = 0; k < a->count[i]; k++) {
            memcpy(&pixel, p + 3 * k, sizeof pixel);
            sum += pixel * weight[k];
        }
        memcpy(sums + 3 * i, &sum, sizeof sum);
    }
    for (size_t k = 0; k < made; k++)
        out[k] = to_byte(sums[k]);
}

DRO__EACH_ISA(void, across_rgb,
              (const uint8_t *in, const axis *a, int32_t *wide, int32_t *sums, uint8_t *out),
              (in, a, wide, sums, out))

static void across_grey(const uint8_t *in, const axis *a, uint8_t *out)
{
    for (int32_t i = 0; i < a->size; i++) {
        const int32_t *weight = a->weights + (size_t)i * (size_t)a->taps;
        const uint8_t *p = in + a->first[i];
        int32_t sum = HALF;
        for (int32_t k = 0; k < a->count[i]; k++)
            sum += p[k] * weight[k];
        out[i] = to_byte(sum);
    }
}

/* Rows first .. end - 1 of the image to (rows, a->size, channels). wide holds a row of input and
 * one of output, and one number more each. */
static void across(const dro__image *image, int32_t first, int32_t end, const axis *a,
                   int32_t *wide, uint8_t *out)
{
    size_t channels = (size_t)image->channels, in_row = (size_t)image->width * channels;
    const uint8_t *in = image->pixels + (size_t)first * in_row;
    for (int32_t y = first; y < end; y++, in += in_row, out += (size_t)a->size * channels)
        if (channels == 3)
            across_rgb(in, a, wide, wide + in_row + 1, out);
        else
            across_grey(in, a, out);
}

/* ---- rows ---- */

static inline __attribute__((always_inline)) void down_block(const uint8_t *in, size_t row,
                                                             int32_t count, const int32_t *weight,
                                                             size_t n, uint8_t *out)
{
    int32_t sum[BLOCK];
    for (size_t x = 0; x < n; x++)
        sum[x] = HALF;
    for (int32_t k = 0; k < count; k++)
        for (size_t x = 0; x < n; x++)
            sum[x] += in[(size_t)k * row + x] * weight[k];
    for (size_t x = 0; x < n; x++)
        out[x] = to_byte(sum[x]);
}

/* in begins with row `skipped` of the input; row: bytes of a row, in and out. */
DRO__KERNEL void down_kernel(const uint8_t *in, int32_t skipped, const axis *a, size_t row,
                             uint8_t *out)
{
    for (int32_t i = 0; i < a->size; i++, out += row) {
        const uint8_t *from = in + (size_t)(a->first[i] - skipped) * row;
        const int32_t *weight = a->weights + (size_t)i * (size_t)a->taps;
        size_t x = 0;
        for (; x + BLOCK <= row; x += BLOCK)
            down_block(from + x, row, a->count[i], weight, BLOCK, out + x);
        down_block(from + x, row, a->count[i], weight, row - x, out + x);
    }
}

DRO__EACH_ISA(void, down,
              (const uint8_t *in, int32_t skipped, const axis *a, size_t row, uint8_t *out),
              (in, skipped, a, row, out))

/* ---- both ---- */

static dro_status resize(dro_context *ctx, const dro__image *image, const axis *columns,
                         const axis *rows, uint8_t *out)
{
    size_t in_row = (size_t)image->width * (size_t)image->channels,
           out_row = (size_t)columns->size * (size_t)image->channels;
    int32_t first = rows->same ? 0 : rows->first[0],
            end = rows->same ? image->height
                             : rows->first[rows->size - 1] + rows->count[rows->size - 1];
    const uint8_t *in = image->pixels + (size_t)first * in_row;
    if (columns->same && rows->same)
        memcpy(out, in, in_row * (size_t)image->height);
    else if (columns->same)
        down(in, first, rows, out_row, out);
    if (columns->same)
        return DRO_OK;
    int32_t *wide = dro__alloc(in_row + out_row + 2, sizeof *wide);
    uint8_t *narrow = rows->same ? out : dro__alloc((size_t)(end - first), out_row);
    dro_status status = DRO_OK;
    if (!wide || !narrow)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory to resize an image");
    else {
        across(image, first, end, columns, wide, narrow);
        if (!rows->same)
            down(narrow, first, rows, out_row, out);
    }
    if (narrow != out)
        dro__free(narrow);
    dro__free(wide);
    return status;
}

dro_status dro__image_resize(dro_context *ctx, const dro__image *image, const dro__image_box *box,
                             int32_t width, int32_t height, uint8_t *out)
{
    const dro__image_box all = {0, 0, image->width, image->height}, *k = box ? box : &all;
    axis columns = {0}, rows = {0};
    float l = (float)k->left, t = (float)k->top, r = (float)k->right, b = (float)k->bottom;
    if (width < 1 || height < 1 || width > DRO__IMAGE_SIDE_MAX || height > DRO__IMAGE_SIDE_MAX)
        return dro__fail(ctx, DRO_ERR_RANGE, "resize to %d x %d: expected 1 to %d", width, height,
                         DRO__IMAGE_SIDE_MAX);
    if (!(l >= 0 && l < r && r <= (float)image->width && t >= 0 && t < b &&
          b <= (float)image->height))
        return dro__fail(ctx, DRO_ERR_RANGE,
                         "resize the box (%g, %g) .. (%g, %g) of an image of %d x %d", k->left,
                         k->top, k->right, k->bottom, image->width, image->height);
    dro_status status = axis_create(ctx, image->width, l, r, width, &columns);
    if (status == DRO_OK)
        status = axis_create(ctx, image->height, t, b, height, &rows);
    if (status == DRO_OK)
        status = resize(ctx, image, &columns, &rows, out);
    axis_free(&columns);
    axis_free(&rows);
    return status;
}
