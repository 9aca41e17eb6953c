/* Plots as SVG (plot.h). Marks carry classes; the colours of the classes are rules of a style
 * sheet, the page's (light and dark) or the file's own. */
#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Okabe and Ito's palette, with the pale ones darkened on light paper and all of them lightened on
 * dark. */
const dro__theme dro__theme_light = {
    {0x1f2328, 0x626a73, 0xe3e1dc, 0xffffff, 0x0b5cab, 0},
    {0x0072b2, 0xd55e00, 0x008f68, 0xb8508c, 0xb58900, 0x3fa2d9, 0x6e5a48, 0x5b5f97},
};
const dro__theme dro__theme_dark = {
    {0xe8e6e1, 0xa3a9b1, 0x343a41, 0x1b1f24, 0x6cb2f5, 0},
    {0x5aaef0, 0xff8f4a, 0x3ecf9f, 0xe68fc4, 0xf0bd4b, 0x9bd7ff, 0xc9ab8e, 0xa9aef0},
};

static const char *const role_names[DRO__ROLES] = {"ink", "mut", "grd", "pap", "hot", "s"};

void dro__theme_css(dro__buffer *out, const dro__theme *theme)
{
    for (int k = 0; k < DRO__ROLE_SERIES; k++)
        dro__buffer_print(out, ".%s{fill:#%06x}.l.%s{stroke:#%06x}", role_names[k], theme->roles[k],
                          role_names[k], theme->roles[k]);
    for (int k = 0; k < DRO__PALETTE; k++)
        dro__buffer_print(out, ".s%d{fill:#%06x;background:#%06x}.l.s%d{stroke:#%06x}", k,
                          theme->series[k], theme->series[k], k, theme->series[k]);
}

static void print_number(dro__buffer *out, double value)
{
    char text[32];
    int size = snprintf(text, sizeof text, "%.1f", value);
    if (size > 2 && strcmp(text + size - 2, ".0") == 0)
        text[size - 2] = '\0';
    dro__buffer_add(out, strcmp(text, "-0") == 0 ? "0" : text);
}

static void attribute(dro__buffer *out, const char *name, double value)
{
    dro__buffer_print(out, " %s=\"", name);
    print_number(out, value);
    dro__buffer_add(out, "\"");
}

static void classes(dro__buffer *out, const dro__plot_mark *m)
{
    dro__buffer_print(out, " class=\"%s", m->kind == DRO__MARK_LINE ? "l " : "");
    if (m->kind == DRO__MARK_DOT && m->alpha == 0)
        dro__buffer_add(out, "p ");
    if (m->role == DRO__ROLE_SERIES)
        dro__buffer_print(out, "s%d%s\"", m->series % DRO__PALETTE,
                          m->series / DRO__PALETTE % 3 == 1   ? " da"
                          : m->series / DRO__PALETTE % 3 == 2 ? " do"
                                                              : "");
    else
        dro__buffer_print(out, "%s\"", role_names[m->role]);
    if (m->series >= 0)
        dro__buffer_print(out, " data-s=\"%d\"", m->series);
}

static void tip(dro__buffer *out, const dro__plot_mark *m, bool alone, const char *element)
{
    if (m->text && !alone) {
        dro__buffer_add(out, " data-t=\"");
        dro__buffer_escape(out, m->text);
        dro__buffer_add(out, "\"");
    } else if (m->text) {
        dro__buffer_add(out, "><title>");
        dro__buffer_escape(out, m->text);
        dro__buffer_print(out, "</title></%s>\n", element);
        return;
    }
    dro__buffer_add(out, "/>\n");
}

static void line(dro__buffer *out, const dro__plot_mark *m)
{
    dro__buffer_add(out, "<path");
    classes(out, m);
    if (m->alpha < 1)
        dro__buffer_print(out, " stroke-opacity=\"%.2g\"", m->alpha);
    attribute(out, "stroke-width", m->w);
    dro__buffer_add(out, " d=\"");
    for (size_t k = 0; k < m->count; k++) {
        dro__buffer_add(out, k ? "L" : "M");
        print_number(out, (double)m->points[2 * k]);
        dro__buffer_add(out, " ");
        print_number(out, (double)m->points[2 * k + 1]);
    }
    dro__buffer_add(out, "\"/>\n");
}

static void box(dro__buffer *out, const dro__plot_mark *m, bool alone)
{
    dro__buffer_add(out, "<rect");
    classes(out, m);
    attribute(out, "x", m->x);
    attribute(out, "y", m->y);
    attribute(out, "width", m->w);
    attribute(out, "height", m->h);
    if (m->alpha < 1)
        dro__buffer_print(out, " fill-opacity=\"%.3g\"", m->alpha);
    tip(out, m, alone, "rect");
}

static void dot(dro__buffer *out, const dro__plot_mark *m, bool alone)
{
    if (m->alpha == 0 && alone)
        return; /* a place to point at */
    dro__buffer_add(out, "<circle");
    classes(out, m);
    attribute(out, "cx", m->x);
    attribute(out, "cy", m->y);
    attribute(out, "r", m->w);
    tip(out, m, alone, "circle");
}

static void text(dro__buffer *out, const dro__plot_mark *m)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    dro__buffer_add(out, "<text");
    classes(out, m);
    attribute(out, "x", m->x);
    attribute(out, "y", m->y);
    attribute(out, "font-size", m->w);
    dro__buffer_print(out, "%s%s>", anchors[m->anchor], m->strong ? " font-weight=\"600\"" : "");
    dro__buffer_escape(out, m->text ? m->text : "");
    dro__buffer_add(out, "</text>\n");
}

static void open_svg(const dro__plot *plot, dro__buffer *out, bool alone)
{
    dro__buffer_print(out, "<svg%s viewBox=\"0 0 %d %.0f\"",
                      alone ? " xmlns=\"http://www.w3.org/2000/svg\"" : "", DRO__PLOT_WIDTH,
                      plot->height);
    if (alone)
        dro__buffer_print(out, " width=\"%d\" height=\"%.0f\"", 2 * DRO__PLOT_WIDTH,
                          2 * plot->height);
    dro__buffer_print(out, " role=\"img\" aria-labelledby=\"%s-t\"%s%s%s><title id=\"%s-t\">",
                      plot->id, plot->about ? " aria-describedby=\"" : "",
                      plot->about ? plot->id : "", plot->about ? "-d\"" : "", plot->id);
    dro__buffer_escape(out, plot->title);
    dro__buffer_add(out, "</title>");
    if (plot->about) {
        dro__buffer_print(out, "<desc id=\"%s-d\">", plot->id);
        dro__buffer_escape(out, plot->about);
        dro__buffer_add(out, "</desc>");
    }
    dro__buffer_add(out, "\n");
    if (!alone)
        return;
    dro__buffer_add(out, "<style>text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,"
                         "\"Helvetica Neue\",Arial,sans-serif}"
                         ".da{stroke-dasharray:7 4}.do{stroke-dasharray:2 4}");
    dro__theme_css(out, &dro__theme_light);
    dro__buffer_print(out,
                      ".l{fill:none!important;stroke-linejoin:round;stroke-linecap:round}</style>\n"
                      "<rect class=\"pap\" width=\"%d\" height=\"%.0f\"/>\n",
                      DRO__PLOT_WIDTH, plot->height);
}

void dro__plot_svg(const dro__plot *plot, dro__buffer *out, bool alone)
{
    if (plot->failed) {
        out->failed = true;
        return;
    }
    open_svg(plot, out, alone);
    for (size_t k = 0; k < plot->count; k++) {
        const dro__plot_mark *m = &plot->marks[k];
        switch (m->kind) {
        case DRO__MARK_LINE:
            line(out, m);
            break;
        case DRO__MARK_BOX:
            box(out, m, alone);
            break;
        case DRO__MARK_DOT:
            dot(out, m, alone);
            break;
        case DRO__MARK_TEXT:
            text(out, m);
            break;
        }
    }
    dro__buffer_add(out, "</svg>\n");
}
