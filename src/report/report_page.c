/* The page of a report (dro/report.h): one HTML file without anything from outside. */
#include "report_page.h"

#include <dro/version.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    dro__section sections[2];
    const char *id, *title, *about;
} parts[] = {
    {{DRO__SECTION_CURVES, DRO__SECTION_CURVES},
     "curves",
     "Curves",
     "F is the objective over the whole "
     "training "
     "set."},
    {{DRO__SECTION_CLASSES, DRO__SECTION_CONFUSION},
     "classes",
     "Classes",
     "Measured on the test set."},
    {{DRO__SECTION_WEIGHTS, DRO__SECTION_SHARES},
     "weights",
     "Weights",
     "How unevenly the method weighs examples while it trains: with equal weights the largest is 1 "
     "and "
     "the effective sample size 100%."},
};

void dro__page_swatch(dro__buffer *out, int32_t method)
{
    int turn = method / DRO__PALETTE % 3;
    dro__buffer_print(out, "<i class=\"sw s%d%s\"></i>", method % DRO__PALETTE,
                      turn == 1   ? " da"
                      : turn == 2 ? " do"
                                  : "");
}

static void figure(dro__buffer *out, const dro__figure *f, bool many)
{
    dro__buffer_print(out, "<figure id=\"%s\"><figcaption>", f->plot.id);
    if (f->method >= 0 && many)
        dro__page_swatch(out, f->method);
    dro__buffer_escape(out, f->plot.title);
    dro__buffer_add(out, "</figcaption>\n");
    dro__plot_svg(&f->plot, out, false);
    if (f->table.size) {
        dro__buffer_add(out, "<details><summary>Numbers</summary><div class=\"wide\">");
        dro__buffer_bytes(out, f->table.bytes, f->table.size);
        dro__buffer_add(out, "</div></details>");
    }
    dro__buffer_add(out, "</figure>\n");
}

static void part(dro__buffer *out, const dro__figures *figures, size_t index)
{
    static const char thin[] =
        " Thin lines are single runs, thick ones their mean at each evaluation.";
    static const char few[] = " Heat maps are of the first methods only.";
    const dro_report *report = figures->report;
    char about[DRO__TITLE];
    const char *text = index == 0 && dro__report_stream(report)
                           ? "Over all rows so far; each is predicted before it is learned from."
                           : parts[index].about;
    bool begun = false, repeated = report->trial_count > (size_t)report->method_count;
    for (int s = 0; s < 2; s++)
        for (size_t k = 0; k < figures->count; k++) {
            if (figures->items[k].section != parts[index].sections[s] ||
                (s && parts[index].sections[0] == parts[index].sections[1]))
                continue;
            if (!begun)
                dro__buffer_print(out,
                                  "<section id=\"%s\"><h2>%s</h2><p class=\"lead\">%s%s</p>"
                                  "<div class=\"grid\">\n",
                                  parts[index].id, parts[index].title,
                                  dro__report_title(report, text, about),
                                  index == 0 && repeated                           ? thin
                                  : index && report->method_count > DRO__MAPS_MOST ? few
                                                                                   : "");
            begun = true;
            figure(out, &figures->items[k], figures->report->method_count > 1);
        }
    dro__buffer_add(out, begun ? "</div></section>\n" : "");
}

/* Buttons that show and hide a method everywhere; they are the legend, too. */
static void legend(dro__buffer *out, const dro_report *report)
{
    if (report->method_count < 2)
        return;
    dro__buffer_add(out, "<nav class=\"legend\" aria-label=\"Methods\">");
    for (int32_t m = 0; m < report->method_count; m++) {
        dro__buffer_print(out, "<button type=\"button\" data-k=\"%d\" aria-pressed=\"true\">", m);
        dro__page_swatch(out, m);
        dro__buffer_escape_cut(out, report->methods[m].name, 48);
        dro__buffer_add(out, "</button>");
    }
    dro__buffer_add(out, "</nav>\n");
}

static void page(dro__buffer *out, const dro_report *report, const dro__figures *figures)
{
    dro__buffer title = {0};
    for (int32_t m = 0; m < report->method_count && m < 4; m++)
        dro__buffer_print(&title, "%s%.60s", m ? ", " : "", report->methods[m].name);
    dro__page_head(out, title.bytes ? title.bytes : "");
    out->failed = out->failed || title.failed;
    dro__buffer_free(&title);
    dro__page_header(out, report);
    dro__buffer_add(out, "<main>\n");
    dro__page_results(out, report);
    if (figures->count)
        legend(out, report);
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        part(out, figures, k);
    dro__page_runs(out, report);
    dro__page_settings(out, report);
    dro__buffer_print(out, "</main>\n<footer>Made by dro %d.%d.%d</footer>\n", DRO_VERSION_MAJOR,
                      DRO_VERSION_MINOR, DRO_VERSION_PATCH);
    dro__page_script(out, report->method_count);
    dro__buffer_add(out, "</body>\n</html>\n");
}

/* The page may lie in a run's folder, but not in the place of one of its files. */
static dro_status check_path(const dro_report *report, const char *path)
{
    static const char *const names[] = {"config.json",         "metrics.jsonl",    "result.json",
                                        "weights.safetensors", "last.safetensors", "last.ckpt",
                                        "previous.ckpt"};
    struct stat page, other;
    if (stat(path, &page) != 0)
        return DRO_OK;
    for (size_t k = 0; k < report->trial_count; k++)
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            char name[4400];
            snprintf(name, sizeof name, "%s/%s", report->trials[k]->path, names[n]);
            if (stat(name, &other) == 0 && other.st_dev == page.st_dev &&
                other.st_ino == page.st_ino)
                return dro__fail(report->ctx, DRO_ERR_FILE,
                                 "%s is a file of the run: write the page to another, as in "
                                 "report.html",
                                 path);
        }
    return DRO_OK;
}

dro_status dro_report_html(dro_report *report, const char *path)
{
    if (!report || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(report->ctx);
    DRO_TRY(check_path(report, path));
    dro__figures figures;
    dro__buffer out = {0};
    dro__memory_watch(); /* no figure is left out */
    dro_status status = dro__figures_make(report, false, &figures);
    if (status == DRO_OK) {
        page(&out, report, &figures);
        status = out.failed || dro__memory_ran_out()
                     ? dro__report_memory(report)
                     : dro__write_file(report->ctx, path, out.bytes, out.size);
    }
    dro__buffer_free(&out);
    dro__figures_free(&figures);
    return status;
}
