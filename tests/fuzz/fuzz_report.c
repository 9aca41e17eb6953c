/* A run folder as a report reads it: metrics.jsonl, result.json and config.json, cut at bytes 0xff.
 * The page is written, and its figures are finite or missing. */
#include "fuzz.h"

#include <dro/report.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[200];

static void put(const char *name, const uint8_t *bytes, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/run/%s", folder, name);
    FILE *to = fopen(path, "w");
    FUZZ_CHECK(to && fwrite(bytes, 1, size, to) == size && fclose(to) == 0);
}

static void look(dro_report *report)
{
    dro_report_method method;
    for (int32_t k = 0; dro_report_method_get(report, k, &method) == DRO_OK; k++) {
        dro_statistic reach;
        FUZZ_CHECK(method.name && method.runs >= 1 && method.diverged <= method.runs);
        for (int m = 0; m < DRO_MEASURES; m++)
            FUZZ_CHECK(method.measures[m].count == 0 || isfinite(method.measures[m].mean));
        dro_report_reach(report, k, 0.5, true, DRO_MEASURE_SECONDS, &reach);
    }
    for (int32_t k = 0; dro_report_remark(report, k); k++)
        FUZZ_CHECK(*dro_report_remark(report, k));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const files[] = {"metrics.jsonl", "result.json", "config.json"};
    dro_context *ctx = fuzz_context();
    dro_report *report;
    char path[300];
    if (!*folder) {
        FUZZ_CHECK(mkdtemp((char *)fuzz_path(folder, "runs-XXXXXX")));
        snprintf(path, sizeof path, "%s/run", folder);
        FUZZ_CHECK(mkdir(path, 0777) == 0);
    }
    for (int k = 0; k < 3; k++) {
        size_t first, rest = k < 2 ? fuzz_cut(bytes, size, 0xff, &first) : 0;
        first = k < 2 ? first : size;
        put(files[k], bytes, first);
        bytes += size - rest;
        size = rest;
    }
    FUZZ_CHECK(dro_report_create(ctx, &report) == DRO_OK);
    if (fuzz_ok(ctx, dro_report_add(report, folder))) {
        look(report);
        snprintf(path, sizeof path, "%s/page.html", folder);
        fuzz_ok(ctx, dro_report_html(report, path));
    }
    dro_report_destroy(report);
    return 0;
}
