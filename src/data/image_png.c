/* PNG through libpng: palettes expanded, 1, 2 and 4 bits spread over 0..255, the high byte of 16
 * bits, alpha and transparent colours dropped, no gamma, all as Pillow does (which clips 16-bit
 * greyscale: image.c). The checks of every critical chunk must hold, to the end of the file. */
#include "image.h"

#if DRO_WITH_PNG
#include <setjmp.h>
#include <string.h>

#include <png.h>

enum { DEFLATE_MOST = 1032 }; /* bytes that one byte of deflate can give */

typedef struct reader {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    const dro__image_file *file;
    size_t at;
    dro__image image;
    int orientation;
    dro_status status;
} reader;

/* ---- libpng's callbacks ---- */

static void on_error(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    if (r->status == DRO_OK)
        r->status = dro__fail(r->file->ctx, DRO_ERR_DATA, "%s: cannot decode the PNG: %.150s",
                              r->file->name, text);
    longjmp(r->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static dro_status ends_early(const dro__image_file *file)
{
    return dro__fail(file->ctx, DRO_ERR_DATA,
                     "%s: the PNG ends early, after %zu bytes (truncated?)", file->name,
                     file->size);
}

static void on_read(png_structp png, png_bytep bytes, size_t size)
{
    reader *r = png_get_io_ptr(png);
    if (size > r->file->size - r->at) {
        r->status = ends_early(r->file);
        png_error(png, "early end");
    }
    memcpy(bytes, r->file->bytes + r->at, size);
    r->at += size;
}

/* ---- decoding ---- */

/* libpng asks for memory by the length of a chunk before it has the bytes, so see first that all
 * chunks lie in the file. */
static dro_status check_chunks(const dro__image_file *file)
{
    enum { SIGNATURE = 8, AROUND = 12 }; /* a chunk: length, name, its bytes, check sum */
    size_t at = SIGNATURE;
    while (at <= file->size && file->size - at >= AROUND) {
        const uint8_t *b = file->bytes + at;
        uint32_t length = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
        if (length > file->size - at - AROUND)
            break;
        if (memcmp(b + 4, "IEND", 4) == 0)
            return DRO_OK;
        at += AROUND + (size_t)length;
    }
    return ends_early(file);
}

/* Texts and profiles would be unpacked for nothing. */
static void set_up(reader *r)
{
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
    static const png_byte unread[] = "iCCP\0tEXt\0zTXt\0iTXt\0sPLT\0hIST";
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, unread, sizeof unread / 5);
#endif
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours are checked below */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    png_set_crc_action(r->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
#endif
    png_set_read_fn(r->png, r, on_read);
}

static void read_exif(reader *r)
{
#ifdef PNG_eXIf_SUPPORTED
    png_uint_32 size;
    png_bytep bytes;
    if (png_get_eXIf_1(r->png, r->info, &size, &bytes))
        r->orientation = dro__exif_orientation(bytes, size);
#endif
}

/* Everything that may jump out. */
static void read_all(reader *r)
{
    png_structp png = r->png;
    set_up(r);
    png_read_info(png, r->info);
    png_uint_32 width = png_get_image_width(png, r->info),
                height = png_get_image_height(png, r->info);
    uint64_t packed = png_get_rowbytes(png, r->info) * (uint64_t)height;
    int color = png_get_color_type(png, r->info), depth = png_get_bit_depth(png, r->info);
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    else if (depth < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16)
        png_set_strip_16(png);
    png_set_strip_alpha(png);
    int passes = png_set_interlace_handling(png);
    r->status = dro__image_create(r->file, width, height, color & PNG_COLOR_MASK_COLOR ? 3 : 1,
                                  packed / DEFLATE_MOST, &r->image);
    if (r->status != DRO_OK)
        return;
    png_read_update_info(png, r->info);
    size_t row = png_get_rowbytes(png, r->info);
    if (row != (size_t)r->image.width * (size_t)r->image.channels)
        png_error(png, "rows of an unexpected size");
    for (int pass = 0; pass < passes; pass++)
        for (png_uint_32 y = 0; y < height; y++)
            png_read_row(png, r->image.pixels + y * row, NULL);
    png_read_end(png, r->info);
    read_exif(r);
}

/* What a jump leaves behind is in *r, not in variables of this function. */
static void read_guarded(reader *r)
{
    if (setjmp(r->jump) == 0)
        read_all(r);
}

dro_status dro__image_png(const dro__image_file *file, dro__image *image, int *orientation)
{
    reader r = {.file = file, .orientation = 1};
    DRO_TRY(check_chunks(file));
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    if (!r.info)
        r.status = dro__fail(file->ctx, DRO_ERR_MEMORY, "%s: no memory to decode it", file->name);
    else
        read_guarded(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (r.status != DRO_OK) {
        dro__image_free(&r.image);
        return r.status;
    }
    *image = r.image;
    *orientation = r.orientation;
    return DRO_OK;
}

#else

dro_status dro__image_png(const dro__image_file *file, dro__image *image, int *orientation)
{
    (void)image, (void)orientation;
    return dro__fail(file->ctx, DRO_ERR_UNSUPPORTED,
                     "%s: is a PNG, which this libdro was built without: build with the package "
                     "libpng-dev",
                     file->name);
}

#endif
