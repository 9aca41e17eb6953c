/* PGM and PPM, plain (P2, P3) and binary (P5, P6), with comments and any largest value up to 65535.
 *
 * A value v becomes round(v / maxval * 255), halves to even, as Pillow's; Pillow leaves PGM files
 * of 16 bits in 16 bits, we scale them the same way. As in Pillow a value above maxval is an error
 * in a plain file and 255 in a binary one. Only the first image of a file is read. */
#include "image.h"

#include <math.h>
#include <string.h>

enum { VALUE_MOST = 65535, DIGITS_MAX = 10 };

typedef struct reader {
    const dro__image_file *file;
    size_t at;
    unsigned maxval;
} reader;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A number after any space and comments; at ends behind its last digit. */
static dro_status number(reader *r, const char *what, uint64_t *value)
{
    const dro__image_file *f = r->file;
    while (r->at < f->size && (is_space(f->bytes[r->at]) || f->bytes[r->at] == '#'))
        if (f->bytes[r->at++] == '#')
            while (r->at < f->size && f->bytes[r->at] != '\n' && f->bytes[r->at] != '\r')
                r->at++;
    size_t first = r->at;
    *value = 0;
    for (; r->at < f->size && r->at - first < DIGITS_MAX && f->bytes[r->at] >= '0' &&
           f->bytes[r->at] <= '9';
         r->at++)
        *value = 10 * *value + (uint64_t)(f->bytes[r->at] - '0');
    bool ends = r->at == f->size || is_space(f->bytes[r->at]) || f->bytes[r->at] == '#';
    if (r->at > first && ends)
        return DRO_OK;
    return dro__fail(f->ctx, DRO_ERR_DATA, "%s: byte %zu: expected %s, a number%s", f->name, first,
                     what, first == f->size ? ", but the file ends (truncated?)" : "");
}

static dro_status fill_plain(reader *r, const uint8_t *scaled, size_t count, uint8_t *out)
{
    uint64_t value;
    for (size_t i = 0; i < count; i++) {
        DRO_TRY(number(r, "a pixel", &value));
        if (value > r->maxval)
            return dro__fail(r->file->ctx, DRO_ERR_DATA,
                             "%s: the value %llu before byte %zu is above the largest, %u",
                             r->file->name, (unsigned long long)value, r->at, r->maxval);
        out[i] = scaled[value];
    }
    return DRO_OK;
}

static void fill_binary(const reader *r, const uint8_t *scaled, size_t count, uint8_t *out)
{
    const uint8_t *in = r->file->bytes + r->at;
    if (r->maxval == 255)
        memcpy(out, in, count);
    else if (r->maxval < 256)
        for (size_t i = 0; i < count; i++)
            out[i] = scaled[in[i]];
    else
        for (size_t i = 0; i < count; i++)
            out[i] = scaled[in[2 * i] << 8 | in[2 * i + 1]];
}

static dro_status fill(reader *r, bool plain, dro__image *image)
{
    size_t count = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    size_t values = r->maxval < 256 ? 256 : VALUE_MOST + 1;
    uint8_t *scaled = dro__alloc(values, 1);
    if (!scaled)
        return dro__fail(r->file->ctx, DRO_ERR_MEMORY, "%s: no memory to decode it", r->file->name);
    for (size_t v = 0; v < values; v++)
        scaled[v] = v < r->maxval ? (uint8_t)nearbyint((double)v / r->maxval * 255) : 255;
    dro_status status = DRO_OK;
    if (plain)
        status = fill_plain(r, scaled, count, image->pixels);
    else
        fill_binary(r, scaled, count, image->pixels);
    dro__free(scaled);
    return status;
}

/* Passes the one space before the values, or the comment that takes its place. */
static void after_header(reader *r)
{
    const dro__image_file *f = r->file;
    if (r->at < f->size && f->bytes[r->at] == '#')
        while (r->at < f->size && f->bytes[r->at] != '\n' && f->bytes[r->at] != '\r')
            r->at++;
    r->at += r->at < f->size;
}

dro_status dro__image_pnm(const dro__image_file *file, dro__image *image)
{
    reader r = {.file = file, .at = 2};
    uint64_t width, height, maxval;
    bool plain = file->bytes[1] < '4';
    int channels = file->bytes[1] == '2' || file->bytes[1] == '5' ? 1 : 3;
    if (file->size > 2 && !is_space(file->bytes[2]) && file->bytes[2] != '#')
        return dro__fail(file->ctx, DRO_ERR_DATA, "%s: byte 2: expected space after P%c",
                         file->name, file->bytes[1]);
    DRO_TRY(number(&r, "the width", &width));
    DRO_TRY(number(&r, "the height", &height));
    DRO_TRY(number(&r, "the largest value", &maxval));
    if (maxval < 1 || maxval > VALUE_MOST)
        return dro__fail(file->ctx, DRO_ERR_DATA, "%s: the largest value is %llu: expected 1 to %d",
                         file->name, (unsigned long long)maxval, VALUE_MOST);
    r.maxval = (unsigned)maxval;
    after_header(&r);
    /* The sides are below 10^10: held to the limits first, the product cannot overflow. */
    uint64_t least = 0;
    if (width <= DRO__IMAGE_SIDE_MAX && height <= DRO__IMAGE_SIDE_MAX) {
        uint64_t count = width * height * (uint64_t)channels;
        least = r.at + (plain ? 2 * count - (count > 0) : maxval < 256 ? count : 2 * count);
    }
    dro__image made;
    DRO_TRY(dro__image_create(file, width, height, channels, least, &made));
    dro_status status = fill(&r, plain, &made);
    if (status != DRO_OK)
        dro__image_free(&made);
    else
        *image = made;
    return status;
}
