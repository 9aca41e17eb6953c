/* Images: which decoder, limits, EXIF orientation, greyscale.
 *
 * Pixels equal what Pillow's ImageOps.exif_transpose(Image.open(f)).convert("RGB" or "L") gives,
 * with one deviation: Pillow clips 16-bit greyscale at 255, we keep the high byte (PNG) or scale
 * (PGM). A damaged or truncated file is an error, where Pillow and libjpeg fill in what is missing
 * in some cases. Only EXIF says how an image is turned; XMP is not read. */
#include "image.h"

#include <pthread.h>
#include <string.h>

const char *dro__path_tail(const char *path)
{
    size_t length = strlen(path);
    return length > DRO__IMAGE_NAME ? path + (length - DRO__IMAGE_NAME) : path;
}

/* ---- memory ---- */

static pthread_mutex_t budget_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t budget_freed = PTHREAD_COND_INITIALIZER;
static uint64_t budget_taken; /* pixels */

static void claim(uint64_t pixels)
{
    pthread_mutex_lock(&budget_lock);
    while (budget_taken > 0 && budget_taken + pixels > DRO__IMAGE_PIXELS_OPEN)
        pthread_cond_wait(&budget_freed, &budget_lock);
    budget_taken += pixels;
    pthread_mutex_unlock(&budget_lock);
}

static void unclaim(uint64_t pixels)
{
    if (pixels == 0)
        return;
    pthread_mutex_lock(&budget_lock);
    budget_taken -= pixels;
    pthread_cond_broadcast(&budget_freed);
    pthread_mutex_unlock(&budget_lock);
}

void dro__image_free(dro__image *image)
{
    unclaim(image->claimed);
    dro__free(image->pixels);
    *image = (dro__image){0};
}

static dro_status allocate(const dro__image_file *file, int32_t width, int32_t height, int channels,
                           dro__image *image)
{
    uint8_t *pixels = dro__alloc((size_t)width * (size_t)height, (size_t)channels);
    if (!pixels)
        return dro__fail(file->ctx, DRO_ERR_MEMORY, "%s: no memory for %d x %d pixels", file->name,
                         width, height);
    *image = (dro__image){width, height, channels, pixels, 0};
    return DRO_OK;
}

dro_status dro__image_create(const dro__image_file *file, uint64_t width, uint64_t height,
                             int channels, uint64_t least, dro__image *image)
{
    uint64_t most = DRO__IMAGE_PIXELS_MAX;
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    most = (uint64_t)1 << 18; /* large images only make the fuzzer slow */
#endif
    if (width < 1 || height < 1)
        return dro__fail(file->ctx, DRO_ERR_DATA, "%s: the image is empty, %llu x %llu pixels",
                         file->name, (unsigned long long)width, (unsigned long long)height);
    if (width > DRO__IMAGE_SIDE_MAX || height > DRO__IMAGE_SIDE_MAX || width * height > most)
        return dro__fail(file->ctx, DRO_ERR_DATA,
                         "%s: the image has %llu x %llu pixels: expected at most %d on a side and "
                         "%llu in all",
                         file->name, (unsigned long long)width, (unsigned long long)height,
                         DRO__IMAGE_SIDE_MAX, (unsigned long long)most);
    if (least > file->size)
        return dro__fail(
            file->ctx, DRO_ERR_DATA,
            "%s: ends after %zu bytes: %llu x %llu pixels need %llu or more (truncated?)",
            file->name, file->size, (unsigned long long)width, (unsigned long long)height,
            (unsigned long long)least);
    claim(width * height);
    dro_status status = allocate(file, (int32_t)width, (int32_t)height, channels, image);
    if (status == DRO_OK)
        image->claimed = width * height;
    else
        unclaim(width * height);
    return status;
}

/* Puts an image made of another one in its place. */
static void replace(dro__image *image, dro__image made)
{
    made.claimed = image->claimed;
    image->claimed = 0;
    dro__image_free(image);
    *image = made;
}

/* ---- EXIF ---- */

typedef struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big; /* big endian */
} tiff;

/* An unsigned number of 2 or 4 bytes; false if it lies outside. */
static bool tiff_number(const tiff *t, size_t at, int bytes, uint32_t *value)
{
    if (at > t->size || t->size - at < (size_t)bytes)
        return false;
    *value = 0;
    for (int k = 0; k < bytes; k++)
        *value |= (uint32_t)t->bytes[at + (size_t)k] << 8 * (t->big ? bytes - 1 - k : k);
    return true;
}

int dro__exif_orientation(const uint8_t *bytes, size_t size)
{
    enum { ORIENTATION = 274, SHORT = 3, LONG = 4 };
    tiff t = {bytes, size, size > 0 && bytes[0] == 'M'};
    uint32_t magic, at, entries, tag, type, count, value;
    if (size < 8 || (memcmp(bytes, "II", 2) != 0 && memcmp(bytes, "MM", 2) != 0) ||
        !tiff_number(&t, 2, 2, &magic) || magic != 42 || !tiff_number(&t, 4, 4, &at) ||
        !tiff_number(&t, at, 2, &entries))
        return 1;
    for (size_t k = 0; k < entries; k++) {
        size_t entry = (size_t)at + 2 + 12 * k;
        if (!tiff_number(&t, entry, 2, &tag) || !tiff_number(&t, entry + 2, 2, &type) ||
            !tiff_number(&t, entry + 4, 4, &count))
            return 1;
        if (tag != ORIENTATION)
            continue;
        if (count != 1 || (type != SHORT && type != LONG) ||
            !tiff_number(&t, entry + 8, type == SHORT ? 2 : 4, &value))
            return 1;
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* A pixel of the image that stands upright at (x, y) lies in the file at (x, y) or, from 5 on, at
 * (y, x), counted from the other end of its row or column for some. */
static dro_status turn(const dro__image_file *file, int orientation, dro__image *image)
{
    bool swap = orientation >= 5, back = orientation == 2 || orientation == 3 || orientation >= 7,
         up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    int32_t w = image->width, h = image->height, c = image->channels;
    dro__image out = {0};
    if (orientation == 1)
        return DRO_OK;
    DRO_TRY(allocate(file, swap ? h : w, swap ? w : h, c, &out));
    ptrdiff_t column = back ? -c : c, line = (ptrdiff_t)w * c * (up ? -1 : 1);
    const uint8_t *first =
        image->pixels + (back ? (ptrdiff_t)(w - 1) * c : 0) + (up ? (ptrdiff_t)(h - 1) * w * c : 0);
    uint8_t *to = out.pixels;
    for (int32_t y = 0; y < out.height; y++) {
        const uint8_t *from = first + y * (swap ? column : line);
        ptrdiff_t step = swap ? line : column;
        for (int32_t x = 0; x < out.width; x++)
            for (int32_t k = 0; k < c; k++)
                *to++ = from[x * step + k];
    }
    replace(image, out);
    return DRO_OK;
}

/* ---- channels ---- */

static dro_status change_channels(const dro__image_file *file, int channels, dro__image *image)
{
    size_t count = (size_t)image->width * (size_t)image->height;
    dro__image out = {0};
    if (image->channels == channels)
        return DRO_OK;
    DRO_TRY(allocate(file, image->width, image->height, channels, &out));
    const uint8_t *in = image->pixels;
    if (channels == 1)
        for (size_t i = 0; i < count; i++) /* ITU-R 601 in 16 bits, as Pillow */
            out.pixels[i] = (uint8_t)((in[3 * i] * 19595u + in[3 * i + 1] * 38470u +
                                       in[3 * i + 2] * 7471u + 0x8000u) >>
                                      16);
    else
        for (size_t i = 0; i < count; i++)
            out.pixels[3 * i] = out.pixels[3 * i + 1] = out.pixels[3 * i + 2] = in[i];
    replace(image, out);
    return DRO_OK;
}

/* ---- which decoder ---- */

static dro_status unknown(const dro__image_file *file)
{
    char start[16] = "";
    for (size_t k = 0; k < 4 && k < file->size; k++)
        for (int half = 0; half < 2; half++)
            start[3 * k + (size_t)half] =
                "0123456789abcdef"[half ? file->bytes[k] & 15 : file->bytes[k] >> 4];
    for (size_t k = 0; k + 1 < 4 && k + 1 < file->size; k++)
        start[3 * k + 2] = ' ';
    if (file->size == 0)
        return dro__fail(file->ctx, DRO_ERR_DATA, "%s: is empty: expected an image", file->name);
    return dro__fail(file->ctx, DRO_ERR_DATA,
                     "%s: expected a JPEG, PNG, PPM or PGM image; the file starts with %s (hex)",
                     file->name, start);
}

static dro_status decode(const dro__image_file *file, dro__image *image, int *orientation)
{
    const uint8_t *b = file->bytes;
    if (file->size >= 2 && b[0] == 0xff && b[1] == 0xd8)
        return dro__image_jpeg(file, image, orientation);
    if (file->size >= 4 && memcmp(b, "\x89PNG", 4) == 0)
        return dro__image_png(file, image, orientation);
    if (file->size >= 2 && b[0] == 'P' && strchr("2356", b[1]) && b[1])
        return dro__image_pnm(file, image);
    return unknown(file);
}

dro_status dro__image_decode(dro_context *ctx, const char *name, const void *bytes, size_t size,
                             int channels, dro__image *image)
{
    dro__image_file file = {ctx, dro__path_tail(name), bytes, size};
    dro__image made = {0};
    int orientation = 1;
    if (channels != 1 && channels != 3)
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "%d channels: expected 1 or 3", channels);
    dro_status status = decode(&file, &made, &orientation);
    if (status == DRO_OK)
        status = change_channels(&file, channels, &made);
    if (status == DRO_OK)
        status = turn(&file, orientation, &made);
    if (status != DRO_OK) {
        dro__image_free(&made);
        return status;
    }
    *image = made;
    return DRO_OK;
}
