/* Plots as PNG files, through libpng (plot.h). */
#include "plot.h"

#if DRO_WITH_PNG
#include <setjmp.h>
#include <string.h>

#include <png.h>

typedef struct writer {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    dro__buffer bytes;
    const dro__raster *raster;
    bool failed;
} writer;

static void on_error(png_structp png, png_const_charp text)
{
    writer *w = png_get_error_ptr(png);
    (void)text;
    w->failed = true;
    longjmp(w->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void on_write(png_structp png, png_bytep bytes, size_t size)
{
    writer *w = png_get_io_ptr(png);
    dro__buffer_bytes(&w->bytes, bytes, size);
    if (w->bytes.failed)
        png_error(png, "no memory");
}

static void on_flush(png_structp png)
{
    (void)png;
}

/* What a jump leaves behind is in *w. */
static void write_guarded(writer *w)
{
    const dro__raster *r = w->raster;
    if (setjmp(w->jump) != 0)
        return;
    png_set_write_fn(w->png, w, on_write, on_flush);
    png_set_IHDR(w->png, w->info, (png_uint_32)r->width, (png_uint_32)r->height, 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    for (int y = 0; y < r->height; y++)
        png_write_row(w->png, r->pixels + (size_t)y * (size_t)r->width * 3);
    png_write_end(w->png, w->info);
}

bool dro__raster_png(const dro__raster *raster, dro__buffer *out)
{
    writer w = {.raster = raster};
    w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning);
    w.info = w.png ? png_create_info_struct(w.png) : NULL;
    w.failed = !w.info;
    if (w.info)
        write_guarded(&w);
    png_destroy_write_struct(&w.png, &w.info);
    if (!w.failed)
        dro__buffer_bytes(out, w.bytes.bytes, w.bytes.size);
    dro__buffer_free(&w.bytes);
    return !w.failed && !out->failed;
}

dro_status dro__plot_png(dro_context *ctx, const dro__plot *plot, int scale, const char *path)
{
    dro__raster raster;
    dro__buffer bytes = {0};
    if (!dro__raster_draw(plot, scale, &raster))
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to draw it", path);
    dro_status status = dro__raster_png(&raster, &bytes)
                            ? dro__write_file(ctx, path, bytes.bytes, bytes.size)
                            : dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to draw it", path);
    dro__buffer_free(&bytes);
    dro__raster_free(&raster);
    return status;
}

#else

bool dro__raster_png(const dro__raster *raster, dro__buffer *out)
{
    (void)raster, (void)out;
    return false;
}

dro_status dro__plot_png(dro_context *ctx, const dro__plot *plot, int scale, const char *path)
{
    (void)plot, (void)scale;
    return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                     "%s: PNG files need libpng, which this libdro was built without: build with "
                     "the package libpng-dev, or write SVG files",
                     path);
}

#endif
