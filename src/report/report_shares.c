/* The share of the weight that each class has over a run (report_figures.h): one heat map for each
 * method, rows the classes, columns the evaluations, all on one scale. */
#include "report_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MOST = 48, ROWS_MOST = 40 };

typedef struct shares {
    const dro_report *report;
    int32_t classes, rows, per;
    size_t evaluations, columns;
    int32_t *order;
    double *values;     /* (rows, columns) mean over the runs */
    double *known;      /* (columns) runs that have this column */
    double first, last; /* examples at the ends */
    double largest;
} shares;

/* How many classes a method's weights are of; 0: it has none. */
static int32_t class_count(const dro_report *report, int32_t method)
{
    for (size_t k = 0; k < report->trial_count; k++)
        for (size_t i = 0;
             report->trials[k]->method == method && i < report->trials[k]->evaluation_count; i++)
            if (report->trials[k]->evaluations[i].class_weights)
                return report->trials[k]->evaluations[i].class_count;
    return 0;
}

static void add_evaluation(shares *s, const dro__report_evaluation *e, size_t column)
{
    int32_t k = 0;
    for (; k < s->classes; k++) {
        double share = (double)e->class_weights[s->order[k]];
        if (isfinite(share))
            s->values[(size_t)(k / s->per) * s->columns + column] += share;
    }
    s->known[column]++;
}

static void add_trial(shares *s, const dro__trial *t)
{
    for (size_t i = 0; i < t->evaluation_count && i < s->evaluations; i++) {
        const dro__report_evaluation *e = &t->evaluations[i];
        double examples = e->values[DRO__COLUMN_EXAMPLES];
        if (e->class_count != s->classes || !e->class_weights)
            continue;
        add_evaluation(s, e, i * s->columns / s->evaluations);
        if (isfinite(examples)) {
            s->first = fmin(s->first, examples);
            s->last = fmax(s->last, examples);
        }
    }
}

/* Sums become means. */
static void finish(shares *s)
{
    for (size_t k = 0; k < (size_t)s->rows * s->columns; k++) {
        double known = s->known[k % s->columns];
        s->values[k] = known ? s->values[k] / known : NAN;
        if (isfinite(s->values[k]))
            s->largest = fmax(s->largest, s->values[k]);
    }
}

static void release(shares *s)
{
    dro__free(s->order);
    dro__free(s->values);
    dro__free(s->known);
    *s = (shares){0};
}

static bool collect(shares *s, const dro_report *report, int32_t method)
{
    const double *counts;
    *s = (shares){.report = report, .first = INFINITY, .last = -INFINITY};
    if ((s->classes = class_count(report, method)) == 0)
        return true;
    for (size_t k = 0; k < report->trial_count; k++)
        if (report->trials[k]->method == method &&
            report->trials[k]->evaluation_count > s->evaluations)
            s->evaluations = report->trials[k]->evaluation_count;
    s->per = (s->classes + ROWS_MOST - 1) / ROWS_MOST;
    s->rows = (s->classes + s->per - 1) / s->per;
    s->columns = s->evaluations < COLUMNS_MOST ? s->evaluations : COLUMNS_MOST;
    s->values = dro__alloc((size_t)s->rows * s->columns, sizeof *s->values);
    s->known = dro__alloc(s->columns, sizeof *s->known);
    if (!s->values || !s->known ||
        !dro__class_table_order(report, s->classes, &s->order, &counts)) {
        release(s);
        return false;
    }
    for (size_t k = 0; k < report->trial_count; k++)
        if (report->trials[k]->method == method)
            add_trial(s, report->trials[k]);
    finish(s);
    return true;
}

static const char *row_name(const shares *s, int32_t row, char out[64])
{
    char digits[16];
    int32_t first = row * s->per;
    int32_t last = first + s->per < s->classes ? first + s->per : s->classes;
    if (last - first == 1)
        snprintf(out, 64, "%.60s", dro__class_name(s->report, s->classes, s->order[first], digits));
    else
        snprintf(out, 64, "classes #%d\xe2\x80\x93%d", first + 1, last);
    return out;
}

static void draw_cells(const shares *s, dro__plot *plot, double left, double top, double high,
                       double largest)
{
    double wide = (DRO__PLOT_WIDTH - 8 - left) / (double)s->columns;
    double gap = high > 9 ? 1 : 0;
    for (int32_t row = 0; row < s->rows; row++) {
        char name[64], share[DRO__NUMBER], tip[160];
        row_name(s, row, name);
        if (row % (int32_t)ceil(12.5 / high) == 0)
            dro__plot_text(plot, (dro__text_style){DRO__INK, 12, DRO__RIGHT, 14}, left - 8,
                           top + (row + 0.5) * high + 4, name);
        for (size_t c = 0; c < s->columns; c++) {
            double value = s->values[(size_t)row * s->columns + c];
            if (!isfinite(value))
                continue;
            double strength = largest > 0 ? fmax(0, fmin(1, value / largest)) : 0;
            snprintf(tip, sizeof tip, "%s: %s%% of the weight, evaluation %zu of %zu", name,
                     dro__show_share(share, value),
                     1 + (c * s->evaluations + s->columns - 1) / s->columns, s->evaluations);
            dro__plot_box(plot, (dro__paint){DRO__ROLE_HEAT, -1, 0.05 + 0.95 * strength},
                          (dro__rectangle){left + (double)c * wide, top + row * high,
                                           wide - (wide > 4 && gap > 0 ? 0.6 : 0), high - gap},
                          tip);
        }
    }
}

static void tabulate(const shares *s, dro__buffer *out)
{
    const char *headers[] = {"Class", "First", "Last"};
    dro__table_open(out, "Share of the weight", headers, 3);
    for (int32_t row = 0; row < s->rows; row++) {
        char name[64], first[DRO__NUMBER], last[DRO__NUMBER];
        const double *values = s->values + (size_t)row * s->columns;
        dro__show_share(first, values[0]);
        dro__show_share(last, values[s->columns - 1]);
        dro__table_row(out, row_name(s, row, name), strcat(first, "%"), strcat(last, "%"), NULL);
    }
    dro__table_close(out);
}

static void add_map(dro__figures *f, const shares *s, int32_t method, double largest)
{
    char id[80], text[DRO__NUMBER], key[80];
    dro__figure_id(f->report, "class-weights", method, id);
    dro__figure *figure = dro__figure_add(f, DRO__SECTION_SHARES, id,
                                          dro__figure_title(f, "Weight of each class", method));
    if (!figure)
        return;
    dro__plot *plot = &figure->plot;
    figure->method = method;
    double top = dro__figure_top(f, plot, 0) + 8, left = 112;
    double high = fmin(18, 420.0 / s->rows), bottom = top + s->rows * high;
    dro__plot_about(plot,
                    "Share of the weight that each class had in training, from the first "
                    "evaluation (left) to the last (right); the darkest is %s percent.",
                    dro__show_share(text, largest));
    draw_cells(s, plot, left, top, high, largest);
    snprintf(key, sizeof key, "darkest %s%%", dro__show_share(text, largest));
    dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 20}, left - 8, bottom + 18,
                   key);
    if (s->first <= s->last) {
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__LEFT, 12}, left, bottom + 18,
                       dro__show_short(text, s->first));
        snprintf(key, sizeof key, "%s examples", dro__show_short(text, s->last));
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__RIGHT, 24}, DRO__PLOT_WIDTH - 8,
                       bottom + 18, key);
    }
    plot->height = bottom + 28;
    tabulate(s, &figure->table);
}

void dro__figures_shares(dro__figures *f)
{
    int32_t all_methods = f->report->method_count,
            methods = all_methods < DRO__MAPS_MOST ? all_methods : DRO__MAPS_MOST;
    double largest = 0;
    shares *all = dro__alloc((size_t)methods + 1, sizeof *all);
    bool fine = all != NULL;
    for (int32_t m = 0; fine && m < methods; m++) {
        fine = collect(&all[m], f->report, m);
        largest = fmax(largest, all[m].largest);
    }
    for (int32_t m = 0; all && m < methods; m++) {
        if (fine && all[m].values && all[m].evaluations > 1)
            add_map(f, &all[m], m, largest);
        release(&all[m]);
    }
    dro__free(all);
    f->failed = f->failed || !fine;
}
