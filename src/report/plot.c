/* Plots: collecting marks (plot.h). */
#include "plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dro__plot_init(dro__plot *plot, const char *id, const char *title, double height)
{
    *plot = (dro__plot){.height = height};
    plot->id = dro__copy_text(id);
    plot->title = dro__copy_text(title);
    plot->failed = !plot->id || !plot->title;
}

void dro__plot_about(dro__plot *plot, const char *format, ...)
{
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    dro__free(plot->about);
    plot->about = dro__copy_text(text);
    plot->failed = plot->failed || !plot->about;
}

void dro__plot_free(dro__plot *plot)
{
    for (size_t k = 0; k < plot->count; k++) {
        dro__free(plot->marks[k].points);
        dro__free(plot->marks[k].text);
    }
    free(plot->marks);
    dro__free(plot->id);
    dro__free(plot->title);
    dro__free(plot->about);
    *plot = (dro__plot){0};
}

static dro__plot_mark *add(dro__plot *plot, dro__mark_kind kind, dro__paint paint)
{
    if (plot->failed)
        return NULL;
    if (plot->count == plot->capacity) {
        dro__plot_mark *more = realloc(plot->marks, (2 * plot->capacity + 64) * sizeof *more);
        if (!more) {
            plot->failed = true;
            return NULL;
        }
        plot->marks = more;
        plot->capacity = 2 * plot->capacity + 64;
    }
    dro__plot_mark *mark = &plot->marks[plot->count++];
    *mark = (dro__plot_mark){
        .kind = kind, .role = paint.role, .series = paint.series, .alpha = paint.alpha};
    return mark;
}

static void set_text(dro__plot *plot, dro__plot_mark *mark, const char *text)
{
    if (text && !(mark->text = dro__copy_text(text)))
        plot->failed = true;
}

void dro__plot_line(dro__plot *plot, dro__paint paint, double width, const double *x,
                    const double *y, size_t count)
{
    dro__plot_mark *mark = count ? add(plot, DRO__MARK_LINE, paint) : NULL;
    if (!mark)
        return;
    mark->w = width;
    if (!(mark->points = dro__alloc(count, 2 * sizeof *mark->points))) {
        plot->failed = true;
        return;
    }
    mark->count = count;
    for (size_t k = 0; k < count; k++) {
        mark->points[2 * k] = (float)x[k];
        mark->points[2 * k + 1] = (float)y[k];
    }
}

void dro__plot_grid_line(dro__plot *plot, double x0, double y0, double x1, double y1)
{
    dro__plot_line(plot, DRO__GRID, 1, (double[]){x0, x1}, (double[]){y0, y1}, 2);
}

void dro__plot_box(dro__plot *plot, dro__paint paint, dro__rectangle r, const char *tip)
{
    dro__plot_mark *mark = add(plot, DRO__MARK_BOX, paint);
    if (!mark)
        return;
    mark->x = r.x, mark->y = r.y, mark->w = fmax(0, r.w), mark->h = fmax(0, r.h);
    set_text(plot, mark, tip);
}

void dro__plot_dot(dro__plot *plot, dro__paint paint, double x, double y, double radius,
                   const char *tip)
{
    dro__plot_mark *mark = add(plot, DRO__MARK_DOT, paint);
    if (!mark)
        return;
    mark->x = x, mark->y = y, mark->w = radius;
    set_text(plot, mark, tip);
}

/* Cuts the text to `letters` letters with an ellipsis if it is longer; the buffer has space for
 * it. */
static void cut_text(char *text, int letters)
{
    char *at = text;
    if (dro__utf8_count(text) <= letters)
        return;
    for (int k = 0; k < letters - 1; k++) {
        int size = dro__utf8_length(at);
        at += size ? size : 1;
    }
    strcpy(at, "\xe2\x80\xa6");
}

void dro__plot_text(dro__plot *plot, dro__text_style style, double x, double y, const char *text)
{
    dro__plot_mark *mark = add(plot, DRO__MARK_TEXT, style.paint);
    if (!mark)
        return;
    mark->x = x, mark->y = y, mark->w = style.size, mark->anchor = style.anchor;
    if (!(mark->text = dro__alloc(strlen(text) + 4, 1))) {
        plot->failed = true;
        return;
    }
    strcpy(mark->text, text);
    cut_text(mark->text, style.letters);
}

double dro__plot_heading(dro__plot *plot, const char *const *names, int32_t count)
{
    enum { MOST = 24, LETTERS = 28 };
    double x = 12, y = 22;
    dro__plot_text(plot, (dro__text_style){DRO__INK, 14, DRO__LEFT, 56}, x, y,
                   plot->title ? plot->title : "");
    if (plot->count)
        plot->marks[plot->count - 1].strong = true;
    y += 20;
    for (int32_t k = 0; k < count && k < MOST; k++) {
        int letters = dro__utf8_count(names[k]);
        double width = 20 + 6.6 * (letters < LETTERS ? letters : LETTERS) + 14;
        if (x > 12 && x + width > DRO__PLOT_WIDTH)
            x = 12, y += 17;
        dro__plot_line(plot, DRO__SERIES(k), 3, (double[]){x, x + 14}, (double[]){y - 4, y - 4}, 2);
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__LEFT, LETTERS}, x + 20, y,
                       names[k]);
        x += width;
    }
    return count ? y + 8 : y - 12;
}
