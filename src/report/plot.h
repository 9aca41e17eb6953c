/* Plots: a list of marks (lines, boxes, dots, texts) that is written as SVG. What a
 * mark is painted with is a role, not a colour: the page's style sheet knows light and dark.
 *
 * Units are pixels of a small drawing (DRO__PLOT_WIDTH wide); it is scaled to where it is shown. */
#ifndef DRO_TRAIN_PLOT_H
#define DRO_TRAIN_PLOT_H

#include "buffer.h"

enum { DRO__PLOT_WIDTH = 420, DRO__PALETTE = 8 };

typedef enum dro__role {
    DRO__ROLE_INK,    /* text */
    DRO__ROLE_MUTED,  /* less important text */
    DRO__ROLE_GRID,   /* lines behind */
    DRO__ROLE_PAPER,  /* what is behind everything */
    DRO__ROLE_HEAT,   /* a heat map's cell: alpha is its value */
    DRO__ROLE_SERIES, /* the index-th method */
    DRO__ROLES
} dro__role;

typedef enum dro__mark_kind {
    DRO__MARK_LINE,
    DRO__MARK_BOX,
    DRO__MARK_DOT,
    DRO__MARK_TEXT
} dro__mark_kind;

typedef enum dro__anchor { DRO__LEFT, DRO__MIDDLE, DRO__RIGHT } dro__anchor;

typedef struct dro__plot_mark {
    dro__mark_kind kind;
    dro__role role;
    int32_t series; /* the method that it belongs to, -1: none */
    double alpha;   /* 1: opaque, 0: seen only when pointed at */
    double x, y;    /* BOX: corner, DOT: centre, TEXT: foot */
    double w, h;    /* BOX: size; LINE: w is its width; DOT: w is its radius; TEXT: w is its size */
    dro__anchor anchor;
    bool strong;   /* TEXT: bold */
    float *points; /* LINE: (count, 2) */
    size_t count;
    char *text; /* TEXT: what it says; others: shown when pointed at, or NULL */
} dro__plot_mark;

typedef struct dro__plot {
    char *id, *title, *about; /* a name for files and links; a heading; one or two sentences */
    double height;
    dro__plot_mark *marks;
    size_t count, capacity;
    bool failed; /* out of memory */
} dro__plot;

void dro__plot_init(dro__plot *plot, const char *id, const char *title, double height);
void dro__plot_about(dro__plot *plot, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dro__plot_free(dro__plot *plot);

/* What a mark is painted with. */
typedef struct dro__paint {
    dro__role role;
    int32_t series;
    double alpha;
} dro__paint;

#define DRO__INK       ((dro__paint){DRO__ROLE_INK, -1, 1})
#define DRO__MUTED     ((dro__paint){DRO__ROLE_MUTED, -1, 1})
#define DRO__GRID      ((dro__paint){DRO__ROLE_GRID, -1, 1})
#define DRO__PAPER     ((dro__paint){DRO__ROLE_PAPER, -1, 1})
#define DRO__SERIES(k) ((dro__paint){DRO__ROLE_SERIES, (k), 1})

void dro__plot_line(dro__plot *plot, dro__paint paint, double width, const double *x,
                    const double *y, size_t count);
void dro__plot_grid_line(dro__plot *plot, double x0, double y0, double x1, double y1);

typedef struct dro__rectangle {
    double x, y, w, h; /* corner and size */
} dro__rectangle;

/* tip: shown when pointed at, or NULL. */
void dro__plot_box(dro__plot *plot, dro__paint paint, dro__rectangle r, const char *tip);
void dro__plot_dot(dro__plot *plot, dro__paint paint, double x, double y, double radius,
                   const char *tip);

typedef struct dro__text_style {
    dro__paint paint;
    double size;
    dro__anchor anchor;
    int letters; /* longer texts are cut, with an ellipsis */
} dro__text_style;

void dro__plot_text(dro__plot *plot, dro__text_style style, double x, double y, const char *text);
/* The heading and the methods' names above a plot that stands alone; returns where the plot may
 * begin. */
double dro__plot_heading(dro__plot *plot, const char *const *names, int32_t count);

/* ---- scales ---- */

typedef enum dro__plot_unit { DRO__UNIT_PLAIN, DRO__UNIT_SHARE, DRO__UNIT_SECONDS } dro__plot_unit;

typedef struct dro__plot_scale {
    double low, high; /* values at the ends */
    bool log;
    double from, to; /* where the ends lie in the plot */
    dro__plot_unit unit;
    double divisor;   /* of values, for ticks in minutes or hours */
    const char *name; /* "seconds", "minutes" */
} dro__plot_scale;

enum { DRO__TICKS = 12 };

/* Fits values between low and high with round ends. */
dro__plot_scale dro__scale_fit(double low, double high, dro__plot_unit unit, bool may_log);
double dro__scale_at(const dro__plot_scale *scale, double value);
int dro__scale_ticks(const dro__plot_scale *scale, int wanted, double ticks[DRO__TICKS]);
const char *dro__scale_text(const dro__plot_scale *scale, double value, char out[DRO__NUMBER]);

/* Grid and numbers of a plot between (x.from, y.to) and (x.to, y.from). */
void dro__plot_axes(dro__plot *plot, const dro__plot_scale *x, const dro__plot_scale *y,
                    const char *x_name);

/* ---- output ---- */

typedef struct dro__theme {
    uint32_t roles[DRO__ROLES]; /* 0xrrggbb */
    uint32_t series[DRO__PALETTE];
} dro__theme;

extern const dro__theme dro__theme_light, dro__theme_dark;

/* The rules that give the marks of an SVG their colours. */
void dro__theme_css(dro__buffer *out, const dro__theme *theme);
/* The SVG element. alone: a file of its own, with its own (light) style. */
void dro__plot_svg(const dro__plot *plot, dro__buffer *out, bool alone);

#endif
