/* Figures of how good probabilities are (report_figures.h): reliability, and precision against
 * recall of the rarest class. Both go from 0 to 1; a method's line is the mean over its runs. */
#include "report_figures.h"

#include <math.h>
#include <stdio.h>

enum { POINTS_MOST = 1000, ROWS_MOST = 11 };

static const double SHARE_LEAST = 0.01; /* bins with fewer examples are too noisy */

typedef struct quality_kind {
    dro__quality x, y;
    const char *id, *title, *about, *x_name, *y_name;
    bool diagonal; /* what is ideal */
} quality_kind;

static const quality_kind kinds[] = {
    {DRO__QUALITY_PROBABILITY, DRO__QUALITY_ACCURACY, "reliability", "Reliability",
     "Of the examples whose class was predicted with a probability, the share that is right. On "
     "the diagonal probabilities are exact; below it they are too high. Probabilities that fewer "
     "than 1 % of the examples have are left out.",
     "probability", "Share that is right", true},
    {DRO__QUALITY_RECALL, DRO__QUALITY_PRECISION, "precision-recall", "Precision and recall",
     "For the rarest class: the share of its examples that are found, and how many of those that "
     "are taken for it are of it, for every threshold.",
     "recall", "Precision", false},
};

typedef struct line {
    double x[POINTS_MOST], y[POINTS_MOST];
    int32_t count;
} line;

double dro__quality_mean(const dro_report *report, int32_t method, dro__quality list, int32_t k)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < report->trial_count; i++) {
        const dro__trial *t = report->trials[i];
        if (t->method != method || k >= t->quality_count[list] || isnan(t->quality[list][k]))
            continue;
        sum += t->quality[list][k];
        count++;
    }
    return sum / count;
}

static void line_of(const dro_report *report, const quality_kind *kind, int32_t method, line *out)
{
    int32_t most = 0;
    out->count = 0;
    for (size_t i = 0; i < report->trial_count; i++)
        if (report->trials[i]->method == method && report->trials[i]->quality_count[kind->x] > most)
            most = report->trials[i]->quality_count[kind->x];
    for (int32_t k = 0; k < most && k < POINTS_MOST; k++) {
        double x = dro__quality_mean(report, method, kind->x, k);
        double y = dro__quality_mean(report, method, kind->y, k);
        bool few = kind->diagonal &&
                   dro__quality_mean(report, method, DRO__QUALITY_SHARE, k) < SHARE_LEAST;
        if (few || !(x >= 0 && x <= 1 && y >= 0 && y <= 1))
            continue;
        out->x[out->count] = x;
        out->y[out->count++] = y;
    }
}

static void add_line(const dro_report *report, const quality_kind *kind, int32_t method, line *l,
                     dro__figure *figure, const dro__plot_scale scale[2])
{
    int32_t rows = l->count < ROWS_MOST ? l->count : ROWS_MOST;
    for (int32_t r = 0; r < rows; r++) {
        char x[DRO__NUMBER], y[DRO__NUMBER], tip[200];
        int32_t k = rows > 1 ? r * (l->count - 1) / (rows - 1) : 0;
        dro__show_share(x, l->x[k]);
        dro__show_share(y, l->y[k]);
        dro__table_row(&figure->table, report->methods[method].name, x, y, NULL);
        snprintf(tip, sizeof tip, "%.80s: %s%% at %s %s%%", report->methods[method].name, y,
                 kind->x_name, x);
        dro__plot_dot(&figure->plot, (dro__paint){DRO__ROLE_SERIES, method, 0},
                      dro__scale_at(&scale[0], l->x[k]), dro__scale_at(&scale[1], l->y[k]), 7, tip);
    }
    for (int32_t k = 0; k < l->count; k++) {
        l->x[k] = dro__scale_at(&scale[0], l->x[k]);
        l->y[k] = dro__scale_at(&scale[1], l->y[k]);
    }
    dro__plot_line(&figure->plot, DRO__SERIES(method), 2.4, l->x, l->y, (size_t)l->count);
}

static void draw(dro__figures *f, const quality_kind *kind, line *l)
{
    const char *const headers[] = {"Method", kind->x_name, kind->y_name};
    dro__figure *figure = dro__figure_add(f, DRO__SECTION_CLASSES, kind->id, kind->title);
    if (!figure)
        return;
    dro__plot *plot = &figure->plot;
    double top = dro__figure_top(f, plot, f->report->method_count) + 12;
    dro__plot_scale scale[2] = {dro__scale_fit(0, 1, DRO__UNIT_SHARE, false),
                                dro__scale_fit(0, 1, DRO__UNIT_SHARE, false)};
    plot->height = top + 240;
    scale[0].from = 50, scale[0].to = DRO__PLOT_WIDTH - 14;
    scale[1].from = top + 198, scale[1].to = top;
    dro__plot_about(plot, "%s", kind->about);
    dro__plot_axes(plot, &scale[0], &scale[1], kind->x_name);
    if (kind->diagonal)
        dro__plot_grid_line(plot, scale[0].from, scale[1].from, scale[0].to, scale[1].to);
    dro__table_open(&figure->table, kind->title, headers, 3);
    for (int32_t m = 0; m < f->report->method_count; m++) {
        line_of(f->report, kind, m, l);
        add_line(f->report, kind, m, l, figure, scale);
    }
    dro__table_close(&figure->table);
}

void dro__figures_quality(dro__figures *f)
{
    line *l = dro__alloc(1, sizeof *l);
    f->failed = f->failed || !l;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && !f->failed; k++) {
        int32_t longest = 0;
        for (int32_t m = 0; m < f->report->method_count; m++) {
            line_of(f->report, &kinds[k], m, l);
            longest = l->count > longest ? l->count : longest;
        }
        if (longest > 1)
            draw(f, &kinds[k], l);
    }
    dro__free(l);
}
