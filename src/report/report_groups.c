/* The accuracy of each group (report_figures.h): bars, one for each method, the mean over its
 * runs. */
#include "report_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS_MOST = 40, METHODS_MOST = 8 };

static const dro__plot_scale x = {
    .high = 1, .from = 112, .to = 368, .unit = DRO__UNIT_SHARE, .divisor = 1};

/* The first run whose groups have names, NULL: none. */
static const dro__trial *named(const dro_report *report)
{
    for (size_t k = 0; k < report->trial_count; k++)
        if (report->trials[k]->group_names && report->trials[k]->quality_count[DRO__QUALITY_GROUP])
            return report->trials[k];
    return NULL;
}

static void draw_group(const dro_report *report, const dro__trial *t, int32_t group, double y,
                       dro__figure *figure)
{
    int32_t shown = report->method_count < METHODS_MOST ? report->method_count : METHODS_MOST;
    char count[DRO__NUMBER], value[DRO__NUMBER], tip[300];
    double bar = shown == 1 ? 13 : 7;
    dro__plot *plot = &figure->plot;
    dro__plot_text(plot, (dro__text_style){DRO__INK, 12, DRO__RIGHT, 14}, x.from - 8,
                   y + bar * shown / 2 + 4, t->group_names[group]);
    dro__show_count(count, dro__quality_mean(report, t->method, DRO__QUALITY_GROUP_COUNT, group));
    dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 12}, DRO__PLOT_WIDTH - 6,
                   y + bar * shown / 2 + 4, count);
    for (int32_t m = 0; m < report->method_count; m++) {
        double share = dro__quality_mean(report, m, DRO__QUALITY_GROUP, group);
        if (!isfinite(share))
            continue;
        dro__show_share(value, share);
        snprintf(tip, sizeof tip, "%.80s, %.100s: %s%%", report->methods[m].name,
                 t->group_names[group], value);
        if (m < shown)
            dro__plot_box(
                plot, DRO__SERIES(m),
                (dro__rectangle){x.from, y + m * bar,
                                 fmax(1, dro__scale_at(&x, fmin(fmax(share, 0), 1)) - x.from),
                                 bar - 1},
                tip);
        dro__table_row(&figure->table, t->group_names[group], count, report->methods[m].name,
                       strcat(value, "%"), NULL);
    }
}

void dro__figures_groups(dro__figures *f)
{
    const char *const headers[] = {"Group", "Examples", "Method", "Accuracy"};
    const dro_report *report = f->report;
    const dro__trial *t = named(report);
    char title[DRO__TITLE];
    if (!t)
        return;
    int32_t count = t->quality_count[DRO__QUALITY_GROUP];
    count = count < t->group_count ? count : t->group_count;
    int32_t rows = count < GROUPS_MOST ? count : GROUPS_MOST;
    int32_t shown = report->method_count < METHODS_MOST ? report->method_count : METHODS_MOST;
    size_t size = strlen(dro__report_title(report, "Test accuracy of each group", title));
    if (rows < count)
        snprintf(title + size, sizeof title - size, ", %d of %d groups", rows, count);
    dro__figure *figure = dro__figure_add(f, DRO__SECTION_CLASSES, "per-group", title);
    if (!figure)
        return;
    double top = dro__figure_top(f, &figure->plot, shown) + 16;
    double row = (shown == 1 ? 13 : 7) * shown + 8;
    dro__plot_about(&figure->plot, "%s.", title);
    dro__plot_text(&figure->plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 20},
                   DRO__PLOT_WIDTH - 6, top - 6, "examples");
    dro__bars_grid(&figure->plot, &x, top, top + rows * row + 2);
    dro__table_open(&figure->table, title, headers, 4);
    for (int32_t g = 0; g < rows; g++)
        draw_group(report, t, g, top + 3 + g * row, figure);
    dro__table_close(&figure->table);
}
