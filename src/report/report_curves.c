/* Curves of a report (report_figures.h): a value against seconds or examples, a colour for each
 * method, thin lines for its runs and a thick one for their mean. */
#include "report_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MOST = 400, HITS_MOST = 60, ROWS_MOST = 10, NAMED_MOST = 6 };

typedef struct curve_kind {
    dro__section section;
    const char *id, *title, *what;
    dro__report_column x, y;
    dro__plot_unit unit;
} curve_kind;

static const curve_kind kinds[] = {
    {DRO__SECTION_CURVES, "accuracy-seconds", "Test accuracy over time", "Test accuracy",
     DRO__COLUMN_SECONDS, DRO__COLUMN_ACCURACY, DRO__UNIT_SHARE},
    {DRO__SECTION_CURVES, "accuracy-examples", "Test accuracy over examples", "Test accuracy",
     DRO__COLUMN_EXAMPLES, DRO__COLUMN_ACCURACY, DRO__UNIT_SHARE},
    {DRO__SECTION_CURVES, "objective-seconds", "Objective F over time", "F on the training set",
     DRO__COLUMN_SECONDS, DRO__COLUMN_OBJECTIVE, DRO__UNIT_PLAIN},
    {DRO__SECTION_CURVES, "objective-examples", "Objective F over examples",
     "F on the training set", DRO__COLUMN_EXAMPLES, DRO__COLUMN_OBJECTIVE, DRO__UNIT_PLAIN},
    {DRO__SECTION_CURVES, "balanced-examples", "Balanced accuracy over examples",
     "Mean of the classes' test accuracies", DRO__COLUMN_EXAMPLES, DRO__COLUMN_BALANCED,
     DRO__UNIT_SHARE},
    {DRO__SECTION_CURVES, "worst-examples", "Worst class over examples",
     "Test accuracy of the worst class", DRO__COLUMN_EXAMPLES, DRO__COLUMN_WORST, DRO__UNIT_SHARE},
    {DRO__SECTION_WEIGHTS, "largest-weight", "Largest weight",
     "Largest weight of one example, as a multiple of the mean weight", DRO__COLUMN_EXAMPLES,
     DRO__COLUMN_LARGEST, DRO__UNIT_PLAIN},
    {DRO__SECTION_WEIGHTS, "effective", "Effective sample size",
     "Effective sample size as a share of the batch", DRO__COLUMN_EXAMPLES, DRO__COLUMN_EFFECTIVE,
     DRO__UNIT_SHARE},
};

typedef struct curves {
    const curve_kind *kind;
    const dro_report *report;
    dro__curve *trials; /* (report->trial_count) */
    dro__curve *means;  /* (report->method_count) */
    dro__plot_scale x, y;
    bool any;
} curves;

/* ---- what is shown ---- */

static bool mean_of(curves *c, int32_t method)
{
    size_t count = 0;
    const dro_report_method *m = &c->report->methods[method];
    dro__curve *own = dro__alloc(c->report->trial_count + 1, sizeof *own);
    if (!own)
        return false;
    for (size_t k = 0; k < c->report->trial_count; k++)
        if (c->report->trials[k]->method == method &&
            (!c->report->trials[k]->diverged || m->diverged == m->runs))
            own[count++] = c->trials[k]; /* borrowed */
    bool fine = dro__curve_mean(own, count, &c->means[method]);
    dro__free(own);
    return fine;
}

static void fit(curves *c)
{
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (size_t k = 0; k < c->report->trial_count; k++)
        for (size_t i = 0; i < c->trials[k].count; i++) {
            double at[2] = {c->trials[k].x[i], c->trials[k].y[i]};
            for (int d = 0; d < 2; d++) {
                low[d] = fmin(low[d], at[d]);
                high[d] = fmax(high[d], at[d]);
            }
            c->any = c->any || i > 0; /* a single point is no curve */
        }
    bool time = c->kind->x == DRO__COLUMN_SECONDS;
    c->x =
        dro__scale_fit(fmin(low[0], 0), high[0], time ? DRO__UNIT_SECONDS : DRO__UNIT_PLAIN, false);
    c->x.high = c->any && high[0] > c->x.low ? high[0] : c->x.high; /* no empty end */
    c->y = dro__scale_fit(low[1], high[1], c->kind->unit, c->kind->unit == DRO__UNIT_PLAIN);
}

static bool collect(curves *c)
{
    bool fine = c->trials && c->means;
    for (size_t k = 0; fine && k < c->report->trial_count; k++)
        fine = dro__curve_of(c->report->trials[k], c->kind->x, c->kind->y, &c->trials[k]);
    for (int32_t m = 0; fine && m < c->report->method_count; m++)
        fine = mean_of(c, m);
    if (fine)
        fit(c);
    return fine;
}

static void release(curves *c)
{
    for (size_t k = 0; c->trials && k < c->report->trial_count; k++)
        dro__curve_free(&c->trials[k]);
    for (int32_t m = 0; c->means && m < c->report->method_count; m++)
        dro__curve_free(&c->means[m]);
    dro__free(c->trials);
    dro__free(c->means);
}

/* ---- texts ---- */

static const char *value_text(const curves *c, double value, char out[DRO__NUMBER])
{
    if (c->kind->unit != DRO__UNIT_SHARE)
        return dro__show_real(out, value);
    dro__show_share(out, value);
    return strcat(out, "%");
}

static const char *place_text(const curves *c, double x, char out[DRO__NUMBER])
{
    return c->kind->x == DRO__COLUMN_SECONDS ? dro__show_time(out, x) : dro__show_count(out, x);
}

static void describe(const curves *c, dro__plot *plot)
{
    dro__buffer text = {0};
    char value[DRO__NUMBER], what[DRO__TITLE];
    int named = 0;
    for (int32_t m = 0; m < c->report->method_count && named < NAMED_MOST; m++) {
        const dro__curve *mean = &c->means[m];
        if (mean->count)
            dro__buffer_print(&text, "%s %.60s ends at %s", named++ ? "," : "",
                              c->report->methods[m].name,
                              value_text(c, mean->y[mean->count - 1], value));
    }
    dro__plot_about(plot, "%s against %s.%s%s", dro__report_title(c->report, c->kind->what, what),
                    c->kind->x == DRO__COLUMN_SECONDS ? "seconds of training"
                                                      : "training examples seen",
                    text.failed || !text.bytes ? "" : text.bytes, named ? "." : "");
    dro__buffer_free(&text);
}

static void tabulate(const curves *c, dro__buffer *out)
{
    const char *const headers[] = {"Method",
                                   c->kind->x == DRO__COLUMN_SECONDS ? "Time" : "Examples", "Mean"};
    char title[DRO__TITLE];
    dro__table_open(out, dro__report_title(c->report, c->kind->title, title), headers, 3);
    for (int32_t m = 0; m < c->report->method_count; m++) {
        const dro__curve *mean = &c->means[m];
        size_t rows = mean->count < ROWS_MOST ? mean->count : ROWS_MOST;
        for (size_t k = 0; k < rows; k++) {
            char x[DRO__NUMBER], y[DRO__NUMBER];
            size_t at = rows > 1 ? k * (mean->count - 1) / (rows - 1) : 0;
            dro__table_row(out, c->report->methods[m].name, place_text(c, mean->x[at], x),
                           value_text(c, mean->y[at], y), NULL);
        }
    }
    dro__table_close(out);
}

/* ---- drawing ---- */

/* To the plot's units, in place. */
static void place(const curves *c, dro__curve *curve)
{
    for (size_t k = 0; k < curve->count; k++) {
        curve->x[k] = dro__scale_at(&c->x, curve->x[k]);
        curve->y[k] = dro__scale_at(&c->y, curve->y[k]);
    }
}

static void draw_runs(curves *c, dro__plot *plot)
{
    for (size_t k = 0; k < c->report->trial_count; k++) {
        int32_t m = c->report->trials[k]->method;
        dro__paint paint = {DRO__ROLE_SERIES, m, 0.38};
        if (c->report->methods[m].runs < 2)
            continue;
        dro__curve_thin(&c->trials[k], LINE_MOST);
        place(c, &c->trials[k]);
        dro__plot_line(plot, paint, 1, c->trials[k].x, c->trials[k].y, c->trials[k].count);
    }
}

static void draw_hits(const curves *c, dro__plot *plot, int32_t m)
{
    const dro__curve *mean = &c->means[m];
    size_t hits = mean->count < HITS_MOST ? mean->count : HITS_MOST;
    dro__paint unseen = {DRO__ROLE_SERIES, m, 0};
    for (size_t k = 0; k < hits; k++) {
        char x[DRO__NUMBER], y[DRO__NUMBER], tip[200];
        size_t at = hits > 1 ? k * (mean->count - 1) / (hits - 1) : 0;
        snprintf(tip, sizeof tip, "%.80s: %s after %s%s", c->report->methods[m].name,
                 value_text(c, mean->y[at], y), place_text(c, mean->x[at], x),
                 c->kind->x == DRO__COLUMN_SECONDS ? "" : " examples");
        dro__plot_dot(plot, unseen, dro__scale_at(&c->x, mean->x[at]),
                      dro__scale_at(&c->y, mean->y[at]), 7, tip);
    }
}

static void draw_means(curves *c, dro__plot *plot)
{
    for (int32_t m = 0; m < c->report->method_count; m++)
        draw_hits(c, plot, m);
    for (int32_t m = c->report->method_count - 1; m >= 0; m--) {
        dro__curve *mean = &c->means[m];
        dro__curve_thin(mean, LINE_MOST);
        place(c, mean);
        dro__plot_line(plot, DRO__SERIES(m), 2.4, mean->x, mean->y, mean->count);
        if (mean->count)
            dro__plot_dot(plot, DRO__SERIES(m), mean->x[mean->count - 1], mean->y[mean->count - 1],
                          3.4, NULL);
    }
}

static void draw(dro__figures *f, curves *c)
{
    char title[DRO__TITLE];
    dro__figure *figure = dro__figure_add(f, c->kind->section, c->kind->id,
                                          dro__report_title(c->report, c->kind->title, title));
    if (!figure)
        return;
    dro__plot *plot = &figure->plot;
    double top = dro__figure_top(f, plot, f->report->method_count) + 12;
    bool time = c->kind->x == DRO__COLUMN_SECONDS;
    plot->height = top + 240;
    c->x.from = 58, c->x.to = DRO__PLOT_WIDTH - 14;
    c->y.from = top + 198, c->y.to = top;
    describe(c, plot);
    tabulate(c, &figure->table);
    dro__plot_axes(plot, &c->x, &c->y, time ? c->x.name : "examples");
    draw_runs(c, plot);
    draw_means(c, plot);
}

void dro__figures_curves(dro__figures *f, dro__section section)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && !f->failed; k++) {
        if (kinds[k].section != section)
            continue;
        curves c = {.kind = &kinds[k], .report = f->report};
        c.trials = dro__alloc(f->report->trial_count + 1, sizeof *c.trials);
        c.means = dro__alloc((size_t)f->report->method_count + 1, sizeof *c.means);
        if (!collect(&c))
            f->failed = true;
        else if (c.any)
            draw(f, &c);
        release(&c);
    }
}
