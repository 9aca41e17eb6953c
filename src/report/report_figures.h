/* The figures of a report: plots with the numbers that they show as a table. Each file that makes
 * some is one function here. */
#ifndef DRO_TRAIN_REPORT_FIGURES_H
#define DRO_TRAIN_REPORT_FIGURES_H

#include "plot.h"
#include "report.h"

typedef enum dro__section {
    DRO__SECTION_CURVES,
    DRO__SECTION_CLASSES,
    DRO__SECTION_CONFUSION,
    DRO__SECTION_WEIGHTS,
    DRO__SECTION_SHARES
} dro__section;

enum { DRO__MAPS_MOST = 12 }; /* methods that get heat maps of their own */

typedef struct dro__figure {
    dro__section section;
    int32_t method; /* that it is about, -1: all */
    dro__plot plot;
    dro__buffer table; /* a <table>, or empty */
} dro__figure;

typedef struct dro__figures {
    dro_report *report;
    bool alone; /* each is to be a file: headings and names go into the plots */
    dro__figure *items;
    size_t count, capacity;
    bool failed;     /* out of memory */
    char title[120]; /* of dro__figure_title() */
} dro__figures;

/* Prepared report in, all figures that there is data for out; free them also after a failure. */
dro_status dro__figures_make(dro_report *report, bool alone, dro__figures *figures);
void dro__figures_free(dro__figures *figures);

/* A new figure, or NULL: no memory. Its plot is begun. */
dro__figure *dro__figure_add(dro__figures *figures, dro__section section, const char *id,
                             const char *title);
/* "what, method" when there are several methods. Borrowed until the next call. */
const char *dro__figure_title(dro__figures *figures, const char *what, int32_t method);
/* "what-method" as an id. */
void dro__figure_id(const dro_report *report, const char *what, int32_t method, char out[80]);
/* The heading of a plot that stands alone, with so many of the methods' names; returns where to
 * begin. */
double dro__figure_top(dro__figures *figures, dro__plot *plot, int32_t names);

void dro__figures_curves(dro__figures *figures, dro__section section);
void dro__figures_bars(dro__figures *figures);
void dro__figures_confusion(dro__figures *figures);
void dro__figures_groups(dro__figures *figures);
/* Behind horizontal bars of shares: lines and percents; sets the plot's height. */
void dro__bars_grid(dro__plot *plot, const dro__plot_scale *x, double top, double bottom);
void dro__figures_quality(dro__figures *figures);
/* The mean of a list of numbers at place k over the runs of a method; NaN: none has it. */
double dro__quality_mean(const dro_report *report, int32_t method, dro__quality list, int32_t k);
void dro__figures_shares(dro__figures *figures);

/* ---- tables ---- */

void dro__table_open(dro__buffer *out, const char *caption, const char *const *headers, int count);
/* One row: the first cell is its heading. Texts are escaped; NULL ends the cells. */
void dro__table_row(dro__buffer *out, const char *first, ...) __attribute__((sentinel));
void dro__table_close(dro__buffer *out);

#endif
