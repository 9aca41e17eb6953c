/* Drawing a plot into pixels (plot.h). A mark first leaves its cover, 0..255 for each pixel, the largest
 * of its parts, and is then blended once, so that a translucent line has no darker joints. */
#include "plot.h"

#include <math.h>
#include <string.h>

typedef struct brush {
    dro__raster *r;
    double scale;
    int left, top, right, bottom; /* what was covered */
    double x, y, size;            /* of a text */
    double width;                 /* of a line, in pixels */
} brush;

void dro__raster_free(dro__raster *raster)
{
    dro__free(raster->pixels);
    dro__free(raster->cover);
    *raster = (dro__raster){0};
}

/* ---- cover ---- */

static int clamp(double value, int most)
{
    return value <= 0 ? 0 : value >= most ? most : (int)value;
}

static void cover(brush *b, int x, int y, double share)
{
    uint8_t *c = &b->r->cover[(size_t)y * (size_t)b->r->width + (size_t)x];
    int value = (int)(255 * fmin(share, 1) + 0.5);
    *c = value > *c ? (uint8_t)value : *c;
}

/* Pixels from (x0, y0) to (x1, y1) may be covered; gives the range within the picture. */
static void range(brush *b, double x0, double y0, double x1, double y1, int box[4])
{
    box[0] = clamp(floor(x0), b->r->width);
    box[1] = clamp(floor(y0), b->r->height);
    box[2] = clamp(ceil(x1), b->r->width);
    box[3] = clamp(ceil(y1), b->r->height);
    b->left = box[0] < b->left ? box[0] : b->left;
    b->top = box[1] < b->top ? box[1] : b->top;
    b->right = box[2] > b->right ? box[2] : b->right;
    b->bottom = box[3] > b->bottom ? box[3] : b->bottom;
}

/* A segment with round ends, in pixels. */
static void cover_segment(brush *b, double x0, double y0, double x1, double y1)
{
    double half = b->width / 2, reach = half + 1, dx = x1 - x0, dy = y1 - y0;
    double length = dx * dx + dy * dy;
    int box[4];
    range(b, fmin(x0, x1) - reach, fmin(y0, y1) - reach, fmax(x0, x1) + reach, fmax(y0, y1) + reach,
          box);
    for (int y = box[1]; y < box[3]; y++)
        for (int x = box[0]; x < box[2]; x++) {
            double px = x + 0.5 - x0, py = y + 0.5 - y0;
            double t = length > 0 ? fmax(0, fmin(1, (px * dx + py * dy) / length)) : 0;
            double away = hypot(px - t * dx, py - t * dy), share = half + 0.5 - away;
            if (share > 0)
                cover(b, x, y, share);
        }
}

/* How much of the pixel at `at` lies between low and high. */
static double overlap(int at, double low, double high)
{
    return fmax(0, fmin(at + 1, high) - fmax(at, low));
}

static void cover_box(brush *b, const dro__mark *m)
{
    double x0 = m->x * b->scale, y0 = m->y * b->scale;
    double x1 = x0 + m->w * b->scale, y1 = y0 + m->h * b->scale;
    int box[4];
    range(b, x0, y0, x1, y1, box);
    for (int y = box[1]; y < box[3]; y++)
        for (int x = box[0]; x < box[2]; x++)
            cover(b, x, y, overlap(x, x0, x1) * overlap(y, y0, y1));
}

/* ---- lines and texts ---- */

/* Dashes of the methods past the palette, in units; 0: none. */
static void dashes(const dro__mark *m, double *on, double *off)
{
    int turn = m->role == DRO__ROLE_SERIES ? m->series / DRO__PALETTE % 3 : 0;
    *on = turn == 1 ? 7 : turn == 2 ? 2 : 0;
    *off = 4;
}

static void cover_line(brush *b, const dro__mark *m)
{
    double on, off, along = 0, s = b->scale;
    dashes(m, &on, &off);
    b->width = fmax(m->w * s, 1);
    for (size_t k = 0; k < m->count; k++) {
        const float *p = &m->points[2 * (k ? k - 1 : 0)], *q = &m->points[2 * k];
        double x = (double)p[0], y = (double)p[1], dx = (double)q[0] - x, dy = (double)q[1] - y;
        double length = hypot(dx, dy), at = 0;
        if (on == 0 || length == 0)
            cover_segment(b, x * s, y * s, (x + dx) * s, (y + dy) * s);
        while (on > 0 && at < length) {
            double phase = fmod(along + at, on + off);
            double step = fmax(1e-3, fmin(length - at, (phase < on ? on : on + off) - phase));
            double from = at / length, to = (at + step) / length;
            if (phase < on)
                cover_segment(b, (x + from * dx) * s, (y + from * dy) * s, (x + to * dx) * s,
                              (y + to * dy) * s);
            at += step;
        }
        along += length;
    }
}

static void draw_stroke(void *to, const double segment[4])
{
    brush *b = to;
    double width = b->width;
    if (segment[0] == segment[2] && segment[1] == segment[3])
        b->width *= 1.6; /* a dot */
    cover_segment(b, b->x + segment[0] * b->size, b->y + segment[1] * b->size,
                  b->x + segment[2] * b->size, b->y + segment[3] * b->size);
    b->width = width;
}

static void cover_text(brush *b, const dro__mark *m)
{
    const char *text = m->text ? m->text : "";
    b->size = m->w * b->scale;
    b->width = fmax(1.1, b->size * (m->strong ? 0.11 : 0.075));
    double width = dro__font_strokes(text, NULL, NULL) * b->size;
    b->x = m->x * b->scale - width * (m->anchor == DRO__RIGHT    ? 1
                                      : m->anchor == DRO__MIDDLE ? 0.5
                                                                 : 0);
    b->y = m->y * b->scale;
    dro__font_strokes(text, draw_stroke, b);
}

/* ---- paint ---- */

static uint32_t colour(const dro__mark *m)
{
    return m->role == DRO__ROLE_SERIES ? dro__theme_light.series[m->series % DRO__PALETTE]
                                       : dro__theme_light.roles[m->role];
}

/* Blends what is covered and clears the cover. */
static void blend(brush *b, uint32_t rgb, double alpha)
{
    dro__raster *r = b->r;
    for (int y = b->top; y < b->bottom; y++)
        for (int x = b->left; x < b->right; x++) {
            size_t at = (size_t)y * (size_t)r->width + (size_t)x;
            double share = r->cover[at] / 255.0 * alpha;
            for (int c = 0; share > 0 && c < 3; c++) {
                uint8_t *p = &r->pixels[3 * at + (size_t)c];
                double ink = rgb >> (16 - 8 * c) & 255;
                *p = (uint8_t)(*p + share * (ink - *p) + 0.5);
            }
            r->cover[at] = 0;
        }
}

static void draw(dro__raster *r, double scale, const dro__mark *m)
{
    brush b = {.r = r, .scale = scale, .left = r->width, .top = r->height};
    if (m->alpha <= 0)
        return;
    switch (m->kind) {
    case DRO__MARK_LINE:
        cover_line(&b, m);
        break;
    case DRO__MARK_BOX:
        cover_box(&b, m);
        break;
    case DRO__MARK_DOT:
        b.width = 2 * m->w * scale;
        cover_segment(&b, m->x * scale, m->y * scale, m->x * scale, m->y * scale);
        break;
    case DRO__MARK_TEXT:
        cover_text(&b, m);
        break;
    }
    blend(&b, colour(m), m->alpha);
}

bool dro__raster_draw(const dro__plot *plot, int scale, dro__raster *raster)
{
    *raster =
        (dro__raster){.width = DRO__PLOT_WIDTH * scale, .height = (int)ceil(plot->height) * scale};
    size_t size = (size_t)raster->width * (size_t)raster->height;
    raster->pixels = dro__alloc(size, 3);
    raster->cover = dro__alloc(size, 1);
    if (plot->failed || !raster->pixels || !raster->cover) {
        dro__raster_free(raster);
        return false;
    }
    memset(raster->pixels, 0xff, 3 * size);
    for (size_t k = 0; k < plot->count; k++)
        draw(raster, scale, &plot->marks[k]);
    return true;
}
