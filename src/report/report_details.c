/* The end of a report's page: the runs one by one, and their settings. */
#include "report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs ---- */

static void run_row(dro__buffer *out, const dro_report *report, const dro__trial *t)
{
    char a[DRO__NUMBER], b[DRO__NUMBER], c[DRO__NUMBER];
    dro__buffer_print(out, "<li data-s=\"%d\"><strong>", t->method);
    dro__page_swatch(out, t->method);
    dro__buffer_escape_cut(out, report->methods[t->method].name, 80);
    if (t->seed) {
        dro__buffer_add(out, "<small> seed ");
        dro__buffer_escape_cut(out, t->seed, 30);
        dro__buffer_add(out, "</small>");
    }
    dro__buffer_add(out, "</strong><code>");
    dro__buffer_escape(out, t->path);
    dro__buffer_add(out, "</code><span>");
    if (t->diverged)
        dro__buffer_add(out, "diverged");
    else if (isfinite(t->measures[DRO_MEASURE_RMSE]))
        dro__buffer_print(out, "RMSE %s, R2 %s, %s",
                          dro__show_real(a, t->measures[DRO_MEASURE_RMSE]),
                          dro__show_real(b, t->measures[DRO_MEASURE_R2]),
                          dro__show_time(c, t->measures[DRO_MEASURE_SECONDS]));
    else
        dro__buffer_print(out, "accuracy %s%%, balanced %s%%, %s",
                          dro__show_share(a, t->measures[DRO_MEASURE_ACCURACY]),
                          dro__show_share(b, t->measures[DRO_MEASURE_BALANCED]),
                          dro__show_time(c, t->measures[DRO_MEASURE_SECONDS]));
    dro__buffer_print(out, ", %zu evaluation%s%s</span></li>\n", t->evaluation_count,
                      t->evaluation_count == 1 ? "" : "s", t->finished ? "" : ", not ended");
}

void dro__page_runs(dro__buffer *out, const dro_report *report)
{
    dro__buffer_print(out,
                      "<section id=\"runs\"><h2>Runs</h2><details%s><summary>%zu run%s</summary>"
                      "<ul class=\"runs\">\n",
                      report->trial_count <= 8 ? " open" : "", report->trial_count,
                      report->trial_count == 1 ? "" : "s");
    for (size_t k = 0; k < report->trial_count; k++)
        run_row(out, report, report->trials[k]);
    dro__buffer_add(out, "</ul></details></section>\n");
}

/* ---- settings ---- */

/* All names once, in the order of the first run that has them. */
typedef struct names {
    const char **list;
    size_t count;
    bool failed;
} names;

static names all_names(const dro_report *report)
{
    names n = {0};
    for (size_t k = 0; k < report->trial_count; k++)
        for (size_t i = 0; i < report->trials[k]->setting_count; i++) {
            const char *name = report->trials[k]->settings[i].name;
            bool known = false;
            for (size_t j = 0; j < n.count && !known; j++)
                known = strcmp(n.list[j], name) == 0;
            if (known)
                continue;
            const char **more = realloc(n.list, (n.count + 1) * sizeof *more);
            n.failed = n.failed || !more;
            if (!more)
                return n;
            n.list = more;
            n.list[n.count++] = name;
        }
    return n;
}

/* Whether all methods have the same value, or values. */
static bool is_common(const dro_report *report, const char *name)
{
    dro__buffer first = {0};
    bool common = true;
    dro__page_values(&first, report, 0, name);
    for (int32_t m = 1; m < report->method_count && common; m++) {
        dro__buffer other = {0};
        dro__page_values(&other, report, m, name);
        common = first.size == other.size &&
                 (first.size == 0 || memcmp(first.bytes, other.bytes, first.size) == 0);
        dro__buffer_free(&other);
    }
    dro__buffer_free(&first);
    return common;
}

static void setting(dro__buffer *out, const dro_report *report, const char *name, bool common)
{
    dro__buffer_add(out, "<div><dt>");
    dro__buffer_escape_cut(out, name, 80);
    dro__buffer_add(out, "</dt>");
    for (int32_t m = 0; m < (common ? 1 : report->method_count); m++) {
        dro__buffer values = {0};
        if (dro__page_values(&values, report, common ? -1 : m, name)) {
            dro__buffer_print(out, "<dd data-%s=\"%d\">", common ? "c" : "s", m);
            if (!common)
                dro__page_swatch(out, m);
            if (values.size)
                dro__buffer_bytes(out, values.bytes, values.size);
            dro__buffer_add(out, "</dd>");
        }
        out->failed = out->failed || values.failed;
        dro__buffer_free(&values);
    }
    dro__buffer_add(out, "</div>\n");
}

/* The path of a run is shown above. */
static bool is_place(const char *name)
{
    return strcmp(name, "out") == 0 || strcmp(name, "folder") == 0 || strcmp(name, "dir") == 0;
}

static void settings_list(dro__buffer *out, const dro_report *report, const names *n, bool common,
                          const char *title)
{
    bool begun = false;
    for (size_t k = 0; k < n->count; k++) {
        if (is_place(n->list[k]) || is_common(report, n->list[k]) != common)
            continue;
        if (!begun)
            dro__buffer_print(out, "%s%s%s<dl class=\"settings\">\n", *title ? "<h3>" : "", title,
                              *title ? "</h3>" : "");
        begun = true;
        setting(out, report, n->list[k], common);
    }
    dro__buffer_add(out, begun ? "</dl>\n" : "");
}

void dro__page_settings(dro__buffer *out, const dro_report *report)
{
    names n = all_names(report);
    out->failed = out->failed || n.failed;
    if (n.count) {
        dro__buffer_add(out, "<section id=\"settings\"><h2>Settings</h2>\n");
        if (report->method_count > 1)
            settings_list(out, report, &n, false, "Where the methods differ");
        settings_list(out, report, &n, true, report->method_count > 1 ? "The same for all" : "");
        dro__buffer_add(out, "</section>\n");
    }
    free(n.list);
}
