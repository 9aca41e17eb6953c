/* `dro report DIR...`: the results of runs as a page, plots and a table. Sees the public headers
 * only. */
#include "runs.h"

#include <string.h>

/* What was written, for the last lines and for --json. */
typedef struct written {
    const char *html, *svg;
    int32_t svg_count;
} written;

/* ---- printing ---- */

static int print_json(dro_report *report, const written *w)
{
    return cli_emit(json_pack("{s:o, s:o, s:i, s:o, s:o}", "html", cli_path_json(w->html), "svg",
                              cli_path_json(w->svg), "runs", (int)dro_report_runs(report),
                              "methods", cli_report_methods(report), "notes",
                              cli_report_notes(report)));
}

static int print_text(dro_report *report, const written *w)
{
    const char *note;
    cli_report_table(report);
    if (dro_report_remark(report, 0))
        printf("\n");
    for (int32_t k = 0; (note = dro_report_remark(report, k)); k++)
        cli_print("%s\n", note);
    printf("\n");
    cli_print("report  %s\n", w->html);
    if (w->svg)
        cli_print("plots   %s (%d SVG file%s)\n", w->svg, (int)w->svg_count,
                  w->svg_count == 1 ? "" : "s");
    return 0;
}

/* ---- running ---- */

/* The default path of the page: next to the runs, if they are in one folder. */
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
    return status;
}

static int run(const cli_args *args)
{
    char path[4096];
    written w = {.html = cli_text(args, "out"), .svg = cli_text(args, "svg")};
    dro_report *report = NULL;
    dro_context *ctx = cli_context(args);
    int status;
    if (!ctx)
        return 1;
    if (!w.html)
        w.html = default_out(args, path, sizeof path);
    cli_busy("reading %s%s", cli_word(args, 0), cli_word(args, 1) ? " and others" : "");
    if (dro_report_create(ctx, &report) != DRO_OK || write_all(report, args, &w) != DRO_OK)
        status = cli_fail("%s", dro_context_error(ctx));
    else if (cli_text(args, "into") &&
             (status = cli_report_into(report, cli_text(args, "into"), cli_text(args, "columns"))))
        ;
    else {
        cli_ready();
        status = cli_json(args) ? print_json(report, &w) : print_text(report, &w);
    }
    dro_report_destroy(report);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    {"out", CLI_TEXT, "OUT.html", NULL, 0, 0, "the page; if not given, DIR/report.html"},
    {"svg", CLI_TEXT, "FOLDER", NULL, 0, 0, "also write every plot as an SVG file"},
    {"into", CLI_TEXT, "FILE#NAME", NULL, 0, 0,
     "also write the table as Markdown between <!-- NAME --> and <!-- end -->"},
    {"columns", CLI_TEXT, "A,B,...", "accuracy,balanced_accuracy,worst_class_accuracy,seconds", 0,
     0,
     "columns of --into: metrics; examples:F, seconds:F: the cost until F was reached (F:stay: for "
     "good)"},
    CLI_OPTIONS_END,
};

const cli_command cmd_report = {
    .name = "report",
    .usage = "DIR... [--out FILE.html] [--svg FOLDER] [--json]",
    .summary = "make one self-contained page with plots and tables of one or more runs",
    .details =
        "DIR is a run folder (metrics.jsonl, result.json, config.json) or a folder of run\n"
        "folders. Runs of one optimiser that differ only in the seed are shown as one method, as\n"
        "mean +- standard error. With several DIRs the page is report.html in the current folder.",
    .options = options,
    .least = 1,
    .most = 64,
    .run = run,
};
