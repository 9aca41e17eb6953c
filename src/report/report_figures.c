/* The list of a report's figures and their tables (report_figures.h), and writing each as a
 * file. */
#include "report_figures.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

dro__figure *dro__figure_add(dro__figures *f, dro__section section, const char *id,
                             const char *title)
{
    if (f->count == f->capacity) {
        dro__figure *more = realloc(f->items, (2 * f->capacity + 16) * sizeof *more);
        if (!more) {
            f->failed = true;
            return NULL;
        }
        f->items = more;
        f->capacity = 2 * f->capacity + 16;
    }
    dro__figure *figure = &f->items[f->count++];
    *figure = (dro__figure){.section = section, .method = -1};
    dro__plot_init(&figure->plot, id, title, 0);
    return figure;
}

const char *dro__figure_title(dro__figures *f, const char *what, int32_t method)
{
    bool many = f->report->method_count > 1;
    snprintf(f->title, sizeof f->title, "%s%s%.80s", what, many ? ", " : "",
             many ? f->report->methods[method].name : "");
    return f->title;
}

void dro__figure_id(const dro_report *report, const char *what, int32_t method, char out[80])
{
    dro__buffer slug = {0};
    dro__buffer_slug(&slug, report->methods[method].name);
    snprintf(out, 80, "%s-%d-%.40s", what, method + 1, slug.failed ? "" : slug.bytes);
    for (size_t size = strlen(out); size > 0 && out[size - 1] == '-'; size--)
        out[size - 1] = '\0';
    dro__buffer_free(&slug);
}

double dro__figure_top(dro__figures *f, dro__plot *plot, int32_t names)
{
    const char *list[24];
    int32_t count = 0;
    if (!f->alone)
        return 0;
    for (; f->report->method_count > 1 && count < names && count < 24; count++)
        list[count] = f->report->methods[count].name;
    return dro__plot_heading(plot, list, count);
}

dro_status dro__figures_make(dro_report *report, bool alone, dro__figures *f)
{
    *f = (dro__figures){.report = report, .alone = alone};
    DRO_TRY(dro__report_prepare(report));
    dro__figures_curves(f, DRO__SECTION_CURVES);
    dro__figures_bars(f);
    dro__figures_groups(f);
    dro__figures_quality(f);
    dro__figures_confusion(f);
    dro__figures_curves(f, DRO__SECTION_WEIGHTS);
    dro__figures_shares(f);
    for (size_t k = 0; k < f->count; k++)
        f->failed = f->failed || f->items[k].plot.failed || f->items[k].table.failed;
    return f->failed ? dro__report_memory(report) : DRO_OK;
}

void dro__figures_free(dro__figures *f)
{
    for (size_t k = 0; k < f->count; k++) {
        dro__plot_free(&f->items[k].plot);
        dro__buffer_free(&f->items[k].table);
    }
    free(f->items);
    *f = (dro__figures){0};
}

/* ---- tables ---- */

void dro__table_open(dro__buffer *out, const char *caption, const char *const *headers, int count)
{
    dro__buffer_add(out, "<table class=\"num\"><caption>");
    dro__buffer_escape(out, caption);
    dro__buffer_add(out, "</caption><thead><tr>");
    for (int k = 0; k < count; k++) {
        dro__buffer_add(out, "<th scope=\"col\">");
        dro__buffer_escape_cut(out, headers[k], 40);
        dro__buffer_add(out, "</th>");
    }
    dro__buffer_add(out, "</tr></thead><tbody>\n");
}

void dro__table_row(dro__buffer *out, const char *first, ...)
{
    va_list list;
    const char *cell;
    dro__buffer_add(out, "<tr><th scope=\"row\">");
    dro__buffer_escape_cut(out, first, 60);
    dro__buffer_add(out, "</th>");
    va_start(list, first);
    while ((cell = va_arg(list, const char *))) {
        dro__buffer_add(out, "<td>");
        dro__buffer_escape_cut(out, cell, 60);
        dro__buffer_add(out, "</td>");
    }
    va_end(list);
    dro__buffer_add(out, "</tr>\n");
}

void dro__table_close(dro__buffer *out)
{
    dro__buffer_add(out, "</tbody></table>\n");
}

/* ---- files ---- */

static dro_status make_folder(dro_context *ctx, const char *folder)
{
    struct stat about;
    if (mkdir(folder, 0777) == 0 ||
        (errno == EEXIST && stat(folder, &about) == 0 && S_ISDIR(about.st_mode)))
        return DRO_OK;
    return dro__fail(ctx, DRO_ERR_FILE, "%s: cannot make the folder: %s", folder, strerror(errno));
}

static dro_status write_svg(dro_context *ctx, const dro__plot *plot, const char *path)
{
    dro__buffer out = {0};
    dro__plot_svg(plot, &out, true);
    dro_status status = out.failed
                            ? dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to draw it", path)
                            : dro__write_file(ctx, path, out.bytes, out.size);
    dro__buffer_free(&out);
    return status;
}

dro_status dro_report_svg(dro_report *report, const char *folder, int32_t *count)
{
    dro__figures figures;
    if (!report || !folder)
        return DRO_ERR_ARGUMENT;
    dro__forget(report->ctx);
    dro__memory_watch(); /* no figure is left out */
    dro_status status = dro__figures_make(report, true, &figures);
    if (status == DRO_OK && dro__memory_ran_out())
        status = dro__report_memory(report);
    if (status == DRO_OK)
        status = make_folder(report->ctx, folder);
    for (size_t k = 0; status == DRO_OK && k < figures.count; k++) {
        const dro__plot *plot = &figures.items[k].plot;
        dro__buffer path = {0};
        dro__buffer_print(&path, "%s/%s.svg", folder, plot->id);
        status =
            path.failed ? dro__report_memory(report) : write_svg(report->ctx, plot, path.bytes);
        dro__buffer_free(&path);
    }
    if (count)
        *count = (int32_t)figures.count;
    dro__figures_free(&figures);
    return status;
}
