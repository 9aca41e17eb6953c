/* Cropping, flipping, policies, colour, normalising, cutout (augment.h). */
#include "augment.h"
#include "pixels.h"

#include <math.h>
#include <string.h>

enum { FIRST_OF_CUTOUT = 2000 }; /* of an image's random numbers */

static double draw(dro__augment_random *random)
{
    return dro__random_unit(random->seed, random->stream, random->counter++);
}

static double between(dro__augment_random *random, double low, double high)
{
    return low + (high - low) * draw(random);
}

/* ---- normalising ---- */

static dro__normal from_figures(const double *mean, const double *deviation)
{
    dro__normal n;
    for (int c = 0; c < 3; c++) {
        n.scale[c] = (float)(1 / (255 * deviation[c]));
        n.shift[c] = (float)(-mean[c] / deviation[c]);
    }
    return n;
}

static dro__normal measured(const dro_data *d)
{
    const dro__table *t = &d->split[DRO_TRAIN];
    size_t plane = (size_t)d->height * (size_t)d->width;
    const double usual = 0.25, one_level = 1. / 255;
    double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {usual, usual, usual};
    int64_t count = t->n < 10000 ? t->n : 10000;
    for (int c = 0; c < d->channels && count > 0; c++) {
        double sum = 0, squares = 0, total = (double)count * (double)plane;
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *p = t->pixels + ((size_t)i * (size_t)d->channels + (size_t)c) * plane;
            uint64_t s = 0, q = 0;
            for (size_t k = 0; k < plane; k++) {
                s += p[k];
                q += (uint64_t)p[k] * p[k];
            }
            sum += (double)s;
            squares += (double)q;
        }
        mean[c] = sum / total / 255;
        double measured = sqrt(fmax(squares / total / 65025 - mean[c] * mean[c], 0));
        /* of a constant channel it would make the black border of a crop enormous */
        deviation[c] = measured < one_level ? usual : measured;
    }
    return from_figures(mean, deviation);
}

dro__normal dro__normal_of(const dro_data *d)
{
    static const double cifar10[2][3] = {{.4914, .4822, .4465}, {.2023, .1994, .2010}};
    static const double cifar100[2][3] = {{.5071, .4867, .4408}, {.2675, .2565, .2761}};
    static const double imagenet[2][3] = {{.485, .456, .406}, {.229, .224, .225}};
    if (d->normal)
        return *d->normal;
    if (d->kind == DRO_DATA_FILES)
        return from_figures(imagenet[0], imagenet[1]);
    if (strcmp(d->format->name, "cifar10") == 0)
        return from_figures(cifar10[0], cifar10[1]);
    if (strcmp(d->format->name, "cifar100") == 0)
        return from_figures(cifar100[0], cifar100[1]);
    return measured(d);
}

/* ---- what small and large images share ---- */

static bool has_operations(const dro_cut *cut)
{
    for (int i = 0; i < DRO_OPERATIONS; i++)
        if (cut->operations[i].kind)
            return true;
    return false;
}

/* The square may reach over the border, so that its centre is anywhere. */
static dro_box random_square(dro__augment_random *random, int32_t height, int32_t width)
{
    int32_t side = random->cutout ? random->cutout : (height < width ? height : width) / 2;
    int32_t top = (int32_t)(draw(random) * height) - side / 2, bottom = top + side;
    int32_t left = (int32_t)(draw(random) * width) - side / 2, right = left + side;
    return (dro_box){(int16_t)(left < 0 ? 0 : left), (int16_t)(top < 0 ? 0 : top),
                     (int16_t)(right > width ? width : right),
                     (int16_t)(bottom > height ? height : bottom)};
}

/* Policy and cutout. Their random numbers do not depend on how many were drawn before. */
static void draw_rest(const dro__augment_random *random, int32_t height, int32_t width,
                      dro_cut *cut)
{
    dro__augment_random own = *random;
    if (own.ways & (DRO_AUGMENT_RANDAUGMENT | DRO_AUGMENT_AUTOAUGMENT))
        dro__policy_draw(&own, height, width, cut->operations);
    own.counter = FIRST_OF_CUTOUT;
    if (own.ways & DRO_AUGMENT_CUTOUT)
        cut->erased = random_square(&own, height, width);
}

static void erase(const dro_box *box, int32_t width, size_t plane, int32_t channels, float *out)
{
    for (int32_t c = 0; c < channels; c++)
        for (int32_t y = box->top; y < box->bottom; y++)
            for (int32_t x = box->left; x < box->right; x++)
                out[(size_t)c * plane + (size_t)y * (size_t)width + (size_t)x] = 0;
}

/* ---- small images ---- */

dro_cut dro__cut_of(dro__augment_random *random, int32_t height, int32_t width)
{
    dro_cut cut = {0};
    if (random) {
        int32_t reach = random->reach ? random->reach : 4, places = 2 * reach + 1;
        cut.down = (int8_t)((int32_t)(draw(random) * places) - reach);
        cut.right = (int8_t)((int32_t)(draw(random) * places) - reach);
        cut.mirror = draw(random) < 0.5 && random->ways & DRO_AUGMENT_FLIP;
        if (!(random->ways & DRO_AUGMENT_CROP))
            cut.down = cut.right = 0;
        draw_rest(random, height, width, &cut);
    }
    return cut;
}

/* One row of bytes: out[x] = in[x + cut->right], zeros where that is outside; in NULL: all of it;
 * mirrored if asked for. */
static void crop_row(const uint8_t *in, int32_t width, const dro_cut *cut, uint8_t *out)
{
    int32_t shift = cut->right, first = shift < 0 ? -shift : 0;
    int32_t last = shift > 0 ? width - shift : width;
    memset(out, 0, (size_t)width);
    if (in && !cut->mirror && last > first)
        memcpy(out + first, in + first + shift, (size_t)(last - first));
    else if (in)
        for (int32_t x = first; x < last; x++)
            out[width - 1 - x] = in[x + shift];
}

dro_status dro__augment_small(dro_context *ctx, const dro__normal *normal, const dro_data *data,
                              const uint8_t *pixels, const dro_cut *cut, float *out)
{
    int32_t height = data->height, width = data->width, channels = data->channels;
    size_t plane = (size_t)height * (size_t)width, size = (size_t)channels * plane;
    uint8_t *bytes = dro__alloc(2, size);
    if (!bytes)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an image");
    for (int32_t row = 0; row < channels * height; row++) {
        int32_t y = row % height, from = y + cut->down;
        bool inside = from >= 0 && from < height;
        crop_row(inside ? pixels + (size_t)(row - y + from) * (size_t)width : NULL, width, cut,
                 bytes + (size_t)row * (size_t)width);
    }
    dro__pixels image = {bytes, bytes + size, channels, height, width, 1, (int)plane};
    dro__pixel_tables tables;
    if (has_operations(cut))
        dro__pixels_change(&image, &tables, cut->operations);
    for (int32_t c = 0; c < channels; c++)
        for (size_t k = (size_t)c * plane; k < (size_t)(c + 1) * plane; k++)
            out[k] = (float)image.p[k] * normal->scale[c] + normal->shift[c];
    erase(&cut->erased, width, plane, channels, out);
    dro__free(bytes);
    return DRO_OK;
}

/* ---- large images ---- */

static dro__image_box box_of(double left, double top, double width, double height)
{
    return (dro__image_box){left, top, left + width, top + height};
}

static dro__image_box random_box(const dro__image *image, dro__augment_random *random)
{
    double w = image->width, h = image->height;
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = between(random, 0.08, 1) * w * h;
        double aspect = exp(between(random, log(3.0 / 4), log(4.0 / 3)));
        double bw = round(sqrt(area * aspect)), bh = round(sqrt(area / aspect));
        double u = draw(random), v = draw(random);
        if (bw >= 1 && bh >= 1 && bw <= w && bh <= h)
            return box_of(floor(u * (w - bw + 1)), floor(v * (h - bh + 1)), bw, bh);
    }
    double side = fmin(w, h);
    return box_of(floor((w - side) / 2), floor((h - side) / 2), side, side);
}

/* What resizing the shorter side and cropping the centre takes from the image. */
static dro__image_box centre_box(const dro__image *image, int32_t size)
{
    double w = image->width, h = image->height, shorter = fmin(w, h);
    double target = floor(size * 256.0 / 224 + 0.5);
    double to_w = floor(w * target / shorter), to_h = floor(h * target / shorter);
    double left = nearbyint((to_w - size) / 2), top = nearbyint((to_h - size) / 2);
    return box_of(left * w / to_w, top * h / to_h, size * w / to_w, size * h / to_h);
}

/* Colour as one linear map: out_c = own * in_c + grey * luma + base, clipped to 0..255. */
typedef struct colour {
    float own, grey, base;
} colour;

/* Brightness, then saturation, then contrast about the mean luma of the picture. */
static colour random_colour(const uint8_t *pixels, size_t count, dro__augment_random *random)
{
    double bright = between(random, 0.6, 1.4), contrast = between(random, 0.6, 1.4);
    double saturation = between(random, 0.6, 1.4);
    uint64_t sum[3] = {0};
    for (size_t i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            sum[c] += pixels[3 * i + (size_t)c];
    double mean = (0.299 * (double)sum[0] + 0.587 * (double)sum[1] + 0.114 * (double)sum[2]) /
                  (double)count * bright;
    return (colour){(float)(contrast * saturation * bright),
                    (float)(contrast * (1 - saturation) * bright), (float)(mean * (1 - contrast))};
}

/* One row of pixels (interleaved) into three rows of floats. */
static void finish_row(const dro__normal *normal, const colour *k, const uint8_t *row, int32_t size,
                       float *const out[3])
{
    for (int32_t x = 0; x < size; x++) {
        const uint8_t *p = row + 3 * x;
        float rgb[3] = {(float)p[0], (float)p[1], (float)p[2]};
        float rest = k->grey * (0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]) + k->base;
        for (int c = 0; c < 3; c++) {
            float value = k->own * rgb[c] + rest;
            value = value < 0 ? 0 : value > 255 ? 255 : value;
            out[c][x] = value * normal->scale[c] + normal->shift[c];
        }
    }
}

static void mirror_rows(uint8_t *pixels, int32_t size)
{
    for (int32_t y = 0; y < size; y++, pixels += 3 * (size_t)size)
        for (int32_t a = 0, b = size - 1; a < b; a++, b--)
            for (int c = 0; c < 3; c++) {
                uint8_t swap = pixels[3 * a + c];
                pixels[3 * a + c] = pixels[3 * b + c];
                pixels[3 * b + c] = swap;
            }
}

dro_status dro__augment_large(dro_context *ctx, const dro__normal *normal, const dro__image *image,
                              int32_t size, dro__augment_random *random, float *out)
{
    dro_cut cut = {0};
    dro__image_box box = random ? random_box(image, random) : centre_box(image, size);
    if (random && !(random->ways & DRO_AUGMENT_CROP))
        box = centre_box(image, size);
    if (random)
        draw_rest(random, size, size, &cut);
    size_t plane = (size_t)size * (size_t)size;
    uint8_t *scratch = dro__alloc(plane, has_operations(&cut) ? 6 : 3);
    dro__pixels pixels = {scratch, scratch ? scratch + 3 * plane : NULL, 3, size, size, 3, 1};
    dro__pixel_tables tables;
    dro_status status = scratch ? dro__image_resize(ctx, image, &box, size, size, scratch)
                                : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an image");
    colour k = {1, 0, 0};
    if (status == DRO_OK && random) {
        if (draw(random) < 0.5 && random->ways & DRO_AUGMENT_FLIP)
            mirror_rows(scratch, size);
        if (has_operations(&cut))
            dro__pixels_change(&pixels, &tables, cut.operations);
        if (random->ways & DRO_AUGMENT_JITTER)
            k = random_colour(pixels.p, plane, random);
    }
    for (int32_t y = 0; y < size && status == DRO_OK; y++) {
        size_t at = (size_t)y * (size_t)size;
        float *rows[3] = {out + at, out + plane + at, out + 2 * plane + at};
        finish_row(normal, &k, pixels.p + 3 * at, size, rows);
    }
    if (status == DRO_OK)
        erase(&cut.erased, size, plane, 3, out);
    dro__free(scratch);
    return status;
}
