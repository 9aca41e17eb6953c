/* `dro report DIR...`: what came out of runs, as a page, plots and a table. Sees the public headers only. */
#include "cli.h"

#include <dro/report.h>
#include <math.h>
#include <string.h>

/* What was written, for the last lines and for --json. */
typedef struct written {
    const char *html, *svg, *png;
    int32_t svg_count, png_count;
} written;

/* ---- printing ---- */

static json_t *method_json(const dro_report_method *m)
{
    json_t *measures = json_object();
    for (int k = 0; k < DRO_MEASURES; k++) {
        const dro_statistic *s = &m->measures[k];
        if (s->count)
            json_object_set_new(measures, dro_measure_name((dro_measure)k),
                                json_pack("{s:o, s:o, s:i}", "mean", cli_number(s->mean), "error",
                                          cli_number(s->error), "count", (int)s->count));
    }
    json_t *name = json_string(m->name);
    return json_pack("{s:o, s:i, s:i, s:o}", "method", name ? name : json_string("(not UTF-8)"),
                     "runs", (int)m->runs, "unfinished", (int)m->unfinished, "measures", measures);
}

/* A path that is not UTF-8 has no place in JSON. */
static json_t *path_json(const char *path)
{
    json_t *text = path ? json_string(path) : json_null();
    return text ? text : json_string("(not UTF-8)");
}

static int print_json(dro_report *report, const written *w)
{
    dro_report_method m;
    const char *note;
    json_t *methods = json_array(), *notes = json_array();
    for (int32_t k = 0; dro_report_method_get(report, k, &m) == DRO_OK; k++)
        json_array_append_new(methods, method_json(&m));
    for (int32_t k = 0; (note = dro_report_note(report, k)); k++)
        json_array_append_new(notes, path_json(note));
    return cli_emit(json_pack("{s:o, s:o, s:o, s:i, s:o, s:o}", "html", path_json(w->html), "svg",
                              path_json(w->svg), "png", path_json(w->png), "runs",
                              (int)dro_report_runs(report), "methods", methods, "notes", notes));
}

static void print_cell(cli_table *table, const dro_report_method *m, dro_measure measure)
{
    const dro_statistic *s = &m->measures[measure];
    double factor = strcmp(dro_measure_unit(measure), "%") == 0 ? 100 : 1;
    if (!s->count)
        cli_table_cell(table, "-");
    else if (isfinite(s->error))
        cli_table_cell(table, factor > 1 ? "%.1f +- %.1f" : "%.4g +- %.2g", factor * s->mean,
                       factor * s->error);
    else
        cli_table_cell(table, factor > 1 ? "%.1f" : "%.4g", factor * s->mean);
}

static void print_table(dro_report *report)
{
    static const char *const headers[] = {"method",         ">runs", ">accuracy %", ">balanced %",
                                          ">worst class %", ">F",    ">seconds"};
    static const dro_measure shown[] = {DRO_MEASURE_ACCURACY, DRO_MEASURE_BALANCED,
                                        DRO_MEASURE_WORST, DRO_MEASURE_OBJECTIVE,
                                        DRO_MEASURE_SECONDS};
    dro_report_method m;
    cli_table *table = cli_table_create(7, headers);
    for (int32_t k = 0; dro_report_method_get(report, k, &m) == DRO_OK; k++) {
        cli_table_cell(table, "%s", m.name);
        cli_table_cell(table, "%d", (int)m.runs);
        for (int i = 0; i < 5; i++)
            print_cell(table, &m, shown[i]);
    }
    cli_table_print(table);
}

static int print_text(dro_report *report, const written *w)
{
    const char *note;
    print_table(report);
    for (int32_t k = 0; (note = dro_report_note(report, k)); k++)
        printf("%s%s\n", k ? "" : "\n", note);
    printf("\nreport  %s\n", w->html);
    if (w->svg)
        printf("plots   %s (%d SVG files)\n", w->svg, (int)w->svg_count);
    if (w->png)
        printf("plots   %s (%d PNG files)\n", w->png, (int)w->png_count);
    return 0;
}

/* ---- running ---- */

/* The page's place when --out does not say: beside what it is about, if that is one folder. */
static const char *default_out(const cli_args *args, char *path, size_t size)
{
    const char *folder = cli_word(args, 0);
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    if (cli_word(args, 1) || length + 16 > size)
        return "report.html";
    snprintf(path, size, "%.*s/report.html", (int)length, folder);
    return path;
}

static dro_status write_all(dro_report *report, const cli_args *args, written *w)
{
    dro_status status = DRO_OK;
    for (int k = 0; cli_word(args, k) && status == DRO_OK; k++)
        status = dro_report_add(report, cli_word(args, k));
    if (status == DRO_OK)
        status = dro_report_html(report, w->html);
    if (status == DRO_OK && w->svg)
        status = dro_report_svg(report, w->svg, &w->svg_count);
    if (status == DRO_OK && w->png)
        status = dro_report_png(report, w->png, &w->png_count);
    return status;
}

static int run(const cli_args *args)
{
    char path[4096];
    written w = {
        .html = cli_text(args, "out"), .svg = cli_text(args, "svg"), .png = cli_text(args, "png")};
    dro_report *report = NULL;
    dro_context *ctx = cli_context(args);
    int status;
    if (!ctx)
        return 1;
    if (!w.html)
        w.html = default_out(args, path, sizeof path);
    if (dro_report_create(ctx, &report) != DRO_OK || write_all(report, args, &w) != DRO_OK)
        status = cli_fail("%s", dro_context_error(ctx));
    else
        status = cli_json(args) ? print_json(report, &w) : print_text(report, &w);
    dro_report_destroy(report);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    {"out", CLI_TEXT, "FILE", NULL, 0, 0, "the page; DIR/report.html when not given"},
    {"svg", CLI_TEXT, "FOLDER", NULL, 0, 0, "also write every plot as an SVG file"},
    {"png", CLI_TEXT, "FOLDER", NULL, 0, 0, "also write every plot as a PNG file"},
    CLI_OPTIONS_END,
};

const cli_command cmd_report = {
    .name = "report",
    .usage = "DIR... [--out FILE.html] [--svg FOLDER] [--png FOLDER] [--json]",
    .summary = "one self-contained page with plots and tables of one run or many",
    .details =
        "DIR is a run folder (metrics.jsonl, result.json, config.json), or a folder that holds "
        "run\nfolders. Runs of one optimiser that differ in nothing but the seed are shown as "
        "one method,\nas mean +- standard error. With several DIRs the page is report.html in "
        "this folder.",
    .options = options,
    .least = 1,
    .most = 64,
    .run = run,
};
