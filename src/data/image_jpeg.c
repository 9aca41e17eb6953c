/* JPEG through libjpeg-turbo, with its defaults (slow integer DCT, smooth upsampling), which are
 * Pillow's.
 *
 * Greyscale stays one channel; YCbCr and RGB give RGB. Four components are CMYK or YCCK with
 * Adobe's inverted values, whether an Adobe marker says so or not (as Pillow), and become R = K -
 * C' K / 255 with C' = 255 - C, rounded. libjpeg goes on after damage with a warning and makes up
 * what is missing; warnings that mean lost pixels are errors here, and so is an early end. */
#include "image.h"

#if DRO_WITH_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

enum { SCANS_MAX = 100, ROWS = 16 }; /* a bomb of tiny scans; rows asked for at a time */
#define MEMORY_MAX ((long)1 << 30)   /* libjpeg's own, for progressive files */

typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    const dro__image_file *file;
    dro__image image;
    uint8_t *row; /* CMYK, (width, 4) */
    int orientation;
    dro_status status;
} reader;

/* ---- libjpeg's callbacks ---- */

static void on_error(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    bool memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    r->status = jpeg->err->msg_code == JERR_INPUT_EOF
                    ? dro__fail(r->file->ctx, DRO_ERR_DATA,
                                "%s: the JPEG ends early, after %zu bytes (truncated?)",
                                r->file->name, r->file->size)
                    : dro__fail(r->file->ctx, memory ? DRO_ERR_MEMORY : DRO_ERR_DATA,
                                "%s: cannot decode the JPEG: %.150s", r->file->name, text);
    longjmp(r->jump, 1);
}

/* level < 0: a warning. */
static void on_message(j_common_ptr jpeg, int level)
{
    static const int lost[] = {JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE,
                               JWRN_MUST_RESYNC, JWRN_JPEG_EOF};
    for (size_t k = 0; level < 0 && k < sizeof lost / sizeof lost[0]; k++)
        if (jpeg->err->msg_code == lost[k])
            on_error(jpeg);
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void on_progress(j_common_ptr jpeg)
{
    if (jpeg->is_decompressor && ((j_decompress_ptr)jpeg)->input_scan_number > SCANS_MAX) {
        reader *r = jpeg->client_data;
        r->status = dro__fail(r->file->ctx, DRO_ERR_DATA, "%s: the JPEG has more than %d scans",
                              r->file->name, SCANS_MAX);
        longjmp(r->jump, 1);
    }
}

static void source_begin(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static boolean source_more(j_decompress_ptr jpeg)
{
    ERREXIT(jpeg, JERR_INPUT_EOF);
    return FALSE;
}

static void source_skip(j_decompress_ptr jpeg, long count)
{
    if (count <= 0)
        return;
    if ((size_t)count > jpeg->src->bytes_in_buffer)
        ERREXIT(jpeg, JERR_INPUT_EOF);
    jpeg->src->next_input_byte += count;
    jpeg->src->bytes_in_buffer -= (size_t)count;
}

/* ---- decoding ---- */

static void set_up(reader *r)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg->err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
    jpeg->client_data = r;
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = MEMORY_MAX;
    r->source = (struct jpeg_source_mgr){.next_input_byte = r->file->bytes,
                                         .bytes_in_buffer = r->file->size,
                                         .init_source = source_begin,
                                         .fill_input_buffer = source_more,
                                         .skip_input_data = source_skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = source_begin};
    jpeg->src = &r->source;
    r->progress.progress_monitor = on_progress;
    jpeg->progress = &r->progress;
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
}

static void read_exif(reader *r)
{
    static const uint8_t magic[6] = "Exif\0";
    for (jpeg_saved_marker_ptr m = r->jpeg.marker_list; m; m = m->next)
        if (m->data_length > sizeof magic && memcmp(m->data, magic, sizeof magic) == 0) {
            r->orientation =
                dro__exif_orientation(m->data + sizeof magic, m->data_length - sizeof magic);
            return;
        }
}

static void read_direct(reader *r)
{
    size_t row = (size_t)r->image.width * (size_t)r->image.channels;
    JSAMPROW rows[ROWS];
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JDIMENSION at = r->jpeg.output_scanline, count = r->jpeg.output_height - at;
        count = count < ROWS ? count : ROWS;
        for (JDIMENSION k = 0; k < count; k++)
            rows[k] = r->image.pixels + (at + k) * row;
        jpeg_read_scanlines(&r->jpeg, rows, count);
    }
}

static void read_cmyk(reader *r)
{
    size_t row = (size_t)r->image.width;
    r->row = dro__alloc(row, 4);
    if (!r->row)
        ERREXIT1(&r->jpeg, JERR_OUT_OF_MEMORY, 0);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        uint8_t *out = r->image.pixels + r->jpeg.output_scanline * row * 3;
        jpeg_read_scanlines(&r->jpeg, &r->row, 1);
        for (size_t x = 0; x < row; x++)
            for (size_t c = 0; c < 3; c++) {
                unsigned k = r->row[4 * x + 3], product = (255u - r->row[4 * x + c]) * k + 128;
                out[3 * x + c] = (uint8_t)(k - ((product + (product >> 8)) >> 8));
            }
    }
}

/* Everything that may jump out. */
static void read_all(reader *r)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    set_up(r);
    jpeg_read_header(jpeg, TRUE);
    int parts = jpeg->num_components;
    if (parts != 1 && parts != 3 && parts != 4) {
        r->status =
            dro__fail(r->file->ctx, DRO_ERR_DATA,
                      "%s: the JPEG has %d components: expected 1, 3 or 4", r->file->name, parts);
        return;
    }
    jpeg->out_color_space = parts == 1 ? JCS_GRAYSCALE : parts == 3 ? JCS_RGB : JCS_CMYK;
    read_exif(r);
    r->status = dro__image_create(r->file, jpeg->image_width, jpeg->image_height,
                                  parts == 1 ? 1 : 3, 0, &r->image);
    if (r->status != DRO_OK)
        return;
    jpeg_start_decompress(jpeg);
    if (parts == 4)
        read_cmyk(r);
    else
        read_direct(r);
    jpeg_finish_decompress(jpeg);
}

/* What a jump leaves behind is in *r, not in variables of this function. */
static void read_guarded(reader *r)
{
    if (setjmp(r->jump) == 0)
        read_all(r);
}

dro_status dro__image_jpeg(const dro__image_file *file, dro__image *image, int *orientation)
{
    reader r = {.file = file, .orientation = 1};
    read_guarded(&r);
    jpeg_destroy_decompress(&r.jpeg);
    dro__free(r.row);
    if (r.status != DRO_OK) {
        dro__image_free(&r.image);
        return r.status;
    }
    *image = r.image;
    *orientation = r.orientation;
    return DRO_OK;
}

#else

dro_status dro__image_jpeg(const dro__image_file *file, dro__image *image, int *orientation)
{
    (void)image, (void)orientation;
    return dro__fail(file->ctx, DRO_ERR_UNSUPPORTED,
                     "%s: is a JPEG, which this libdro was built without: build with the package "
                     "libjpeg62-turbo-dev",
                     file->name);
}

#endif
