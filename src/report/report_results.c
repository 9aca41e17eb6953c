/* The head of a report's page: what was run, remarks, and the results as tiles or as a table. */
#include "report_page.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VALUES_MOST = 6, NOTES_MOST = 12 };

static const struct {
    const char *title, *unit;
    int better;
} measures[DRO_MEASURES] = {
#define X(name, code, title, better, unit, meaning) {title, unit, better},
    DRO_MEASURE_LIST(X)
#undef X
};

/* Whether all methods have the same value: then it needs no column. */
static bool is_same(const dro_report *report, int measure)
{
    for (int32_t m = 1; m < report->method_count; m++)
        if (report->methods[m].measures[measure].mean != report->methods[0].measures[measure].mean)
            return false;
    return true;
}

/* ---- what was run ---- */

static const char *value_of(const dro__trial *t, const char *name)
{
    if (strcmp(name, "model") == 0)
        return t->model;
    if (strcmp(name, "backend") == 0)
        return t->backend;
    if (strcmp(name, "seed") == 0)
        return t->seed;
    const char *value = dro__trial_setting(t, name);
    bool unset = strcmp(name, "epochs") == 0 && value && strcmp(value, "0") == 0;
    return unset ? NULL : value;
}

bool dro__page_values(dro__buffer *out, const dro_report *report, int32_t method, const char *name)
{
    const char *seen[VALUES_MOST];
    int count = 0;
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        const char *value = method < 0 || t->method == method ? value_of(t, name) : NULL;
        bool known = !value;
        for (int i = 0; !known && i < count; i++)
            known = strcmp(seen[i], value) == 0;
        if (known)
            continue;
        if (count == VALUES_MOST) {
            dro__buffer_add(out, ", \xe2\x80\xa6");
            return true;
        }
        dro__buffer_add(out, count ? ", " : "");
        dro__buffer_escape_cut(out, value, 200);
        seen[count++] = value;
    }
    return count > 0;
}

static void fact(dro__buffer *out, const dro_report *report, const char *label, const char *name)
{
    dro__buffer values = {0};
    if (dro__page_values(&values, report, -1, name) && values.size) {
        dro__buffer_print(out, "<li><span>%s</span> ", label);
        dro__buffer_bytes(out, values.bytes, values.size);
        dro__buffer_add(out, "</li>");
    }
    out->failed = out->failed || values.failed;
    dro__buffer_free(&values);
}

/* The number of runs, if equal for all methods; otherwise it is in the table. */
static void examples(dro__buffer *out, const dro_report *report)
{
    char text[DRO__NUMBER];
    if (is_same(report, DRO_MEASURE_EXAMPLES) && report->method_count &&
        report->methods[0].measures[DRO_MEASURE_EXAMPLES].count)
        dro__buffer_print(
            out, "<li><span>examples seen</span> %s</li>",
            dro__show_count(text, report->methods[0].measures[DRO_MEASURE_EXAMPLES].mean));
}

static void notes(dro__buffer *out, const dro_report *report)
{
    if (report->note_count == 0)
        return;
    dro__buffer_add(out, "<aside class=\"notes\" aria-label=\"Remarks\"><ul>\n");
    for (size_t k = 0; k < report->note_count && k < NOTES_MOST; k++) {
        dro__buffer_add(out, "<li>");
        dro__buffer_escape(out, report->notes[k]);
        dro__buffer_add(out, "</li>\n");
    }
    if (report->note_count > NOTES_MOST)
        dro__buffer_print(out, "<li>and %zu more remarks</li>\n", report->note_count - NOTES_MOST);
    dro__buffer_add(out, "</ul></aside>\n");
}

/* The optimisers: "absgd, recover and sgd", "recover, 11 settings". */
static void headline(dro__buffer *out, const dro_report *report)
{
    enum { NAMED = 5 };
    const char *seen[NAMED + 1];
    int32_t count = 0, all = 0;
    for (size_t k = 0; k < report->trial_count; k++) {
        bool known = false;
        for (size_t i = 0; i < k && !known; i++)
            known = strcmp(report->trials[i]->optimizer, report->trials[k]->optimizer) == 0;
        if (!known && all++ < NAMED)
            seen[count++] = report->trials[k]->optimizer;
    }
    for (int32_t k = 0; k < count; k++) {
        dro__buffer_add(out, k == 0 ? "" : k + 1 == all ? " and " : ", ");
        dro__buffer_escape_cut(out, seen[k], 48);
    }
    if (all > count)
        dro__buffer_print(out, " and %d more", all - count);
    if (report->method_count > all)
        dro__buffer_print(out, ", %d settings", report->method_count);
}

void dro__page_header(dro__buffer *out, const dro_report *report)
{
    dro__buffer_add(out, "<header><p class=\"eyebrow\">Training report</p><h1>");
    headline(out, report);
    dro__buffer_add(out, "</h1>\n<ul class=\"facts\">");
    fact(out, report, "data", "data");
    fact(out, report, "model", "model");
    dro__buffer_print(out, "<li><span>runs</span> %zu</li>", report->trial_count);
    fact(out, report, "seeds", "seed");
    fact(out, report, "epochs", "epochs");
    examples(out, report);
    fact(out, report, "backend", "backend");
    dro__buffer_add(out, "</ul>\n");
    notes(out, report);
    dro__buffer_add(out, "</header>\n");
}

/* ---- results ---- */

/* Decimals for four significant digits. */
static int digits_of(double value)
{
    int digits = 3 - (int)floor(log10(value != 0 ? fabs(value) : 1));
    return digits < 0 ? 0 : digits > 9 ? 9 : digits;
}

static void print_value(dro__buffer *out, int measure, double value)
{
    char text[DRO__NUMBER];
    if (measure == DRO_MEASURE_SECONDS)
        dro__buffer_add(out, dro__show_time(text, value));
    else if (measure == DRO_MEASURE_EXAMPLES)
        dro__buffer_add(out, dro__show_count(text, value));
    else if (strcmp(measures[measure].unit, "%") == 0)
        dro__buffer_add(out, dro__show_share(text, value));
    else if (fabs(value) < 1e6 && (value == 0 || fabs(value) >= 1e-4))
        dro__buffer_print(out, "%.*f", digits_of(value), value);
    else
        dro__buffer_add(out, dro__show_real(text, value));
}

/* The error with as many decimals as the mean. */
static void print_error(dro__buffer *out, int measure, const dro_statistic *s)
{
    double factor = strcmp(measures[measure].unit, "%") == 0 ? 100 : 1;
    double error = factor * s->error;
    int digits = factor > 1 ? (error < 0.05 ? 2 : 1) : digits_of(s->mean);
    if (measure == DRO_MEASURE_SECONDS)
        digits = error < 10 ? 1 : 0;
    dro__buffer_print(out, "<small> \xc2\xb1\xe2\x80\x89%.*f%s</small>", digits, error,
                      measure == DRO_MEASURE_SECONDS ? " s" : "");
}

static void print_statistic(dro__buffer *out, int measure, const dro_statistic *s)
{
    if (isfinite(s->mean))
        dro__buffer_print(out, "<span data-v=\"%.9g\">", s->mean);
    else
        dro__buffer_add(out, "<span>");
    print_value(out, measure, s->mean);
    if (isfinite(s->error) && s->error < 1e9 && measure != DRO_MEASURE_EXAMPLES)
        print_error(out, measure, s);
    dro__buffer_add(out, "</span>");
}

/* Whether a measure is worth a column. */
static bool is_known(const dro_report *report, int measure)
{
    if (measure == DRO_MEASURE_EXAMPLES && is_same(report, measure))
        return false; /* in the header */
    if (measure == DRO_MEASURE_HOLDOUT)
        return false; /* for choosing, not for showing */
    for (int32_t m = 0; m < report->method_count; m++)
        if (report->methods[m].measures[measure].count)
            return true;
    return false;
}

/* Whether methods can be compared in a column; in a sweep, only the holdout counts. */
static bool is_comparable(const dro_report *report, int measure)
{
    if (dro__report_sweep(report) >= 0)
        return false;
    return measure == DRO_MEASURE_LOSS        ? report->same_loss
           : measure == DRO_MEASURE_OBJECTIVE ? report->same_objective
                                              : true;
}

/* The best mean of a column, NaN if it has no meaning. */
static double best_of(const dro_report *report, int measure)
{
    double best = NAN;
    if (report->method_count < 2 || measures[measure].better == 0 || is_same(report, measure) ||
        !is_comparable(report, measure))
        return NAN;
    for (int32_t m = 0; m < report->method_count; m++) {
        double mean = report->methods[m].measures[measure].mean;
        if (isfinite(mean) && !((mean - best) * measures[measure].better <= 0))
            best = mean;
    }
    return best;
}

static void tiles(dro__buffer *out, const dro_report *report)
{
    char title[DRO__TITLE];
    dro__buffer_add(out, "<dl class=\"tiles\">");
    for (int k = 0; k < DRO_MEASURES; k++)
        if (is_known(report, k)) {
            dro__buffer_print(out, "<div><dt>%s</dt><dd>",
                              dro__report_title(report, measures[k].title, title));
            print_statistic(out, k, &report->methods[0].measures[k]);
            dro__buffer_print(out, "%s</dd></div>",
                              strcmp(measures[k].unit, "%") == 0 ? "<small>\xe2\x80\x89%</small>"
                                                                 : "");
        }
    dro__buffer_add(out, "</dl>\n");
}

/* ---- a sweep ---- */

static dro_statistic held_of(const dro_report *report, int32_t method)
{
    size_t count = 0;
    double *values = dro__alloc(report->trial_count + 1, sizeof *values);
    for (size_t k = 0; values && k < report->trial_count; k++)
        if (report->trials[k]->method == method)
            values[count++] = report->trials[k]->sweep->held;
    dro_statistic s = dro__report_statistic(values, count);
    dro__free(values);
    return s;
}

static bool was_chosen(const dro_report *report, int32_t method)
{
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        if (t->method == method && t->sweep && t->sweep->chosen)
            return true;
    }
    return false;
}

/* "Holdout, balanced accuracy, %" */
static const char *held_title(int by, bool wide, char out[DRO__TITLE])
{
    const char *title = strcmp(measures[by].title, "Test loss") == 0 ? "loss" : measures[by].title;
    bool lower = title[0] && title[1] >= 'a' && title[1] <= 'z';
    snprintf(out, DRO__TITLE, "Holdout, %c%s%s", lower ? tolower(title[0]) : title[0], title + 1,
             strcmp(measures[by].unit, "%") != 0 ? ""
             : wide                              ? ",\xc2\xa0%"
                                                 : ", %");
    return out;
}

static void held_cell(dro__buffer *out, const dro_report *report, int by, int32_t m)
{
    char title[DRO__TITLE];
    dro_statistic s = held_of(report, m);
    dro__buffer_print(out, "<td role=\"cell\" data-l=\"%s\"%s>", held_title(by, false, title),
                      was_chosen(report, m) ? " class=\"best\"" : "");
    print_statistic(out, by, &s);
    dro__buffer_add(out, "</td>");
}

/* ---- the table ---- */

static void table_row(dro__buffer *out, const dro_report *report, int32_t m)
{
    const dro_report_method *method = &report->methods[m];
    int by = dro__report_sweep(report);
    char title[DRO__TITLE];
    dro__buffer_print(out, "<tr role=\"row\" data-s=\"%d\"><th scope=\"row\" role=\"rowheader\">",
                      m);
    dro__page_swatch(out, m);
    dro__buffer_escape_cut(out, method->name, 80);
    dro__buffer_add(out, by >= 0 && was_chosen(report, m) ? " (chosen)" : "");
    dro__buffer_print(out, "</th><td role=\"cell\" data-l=\"Runs\"><span>%d", method->runs);
    if (method->unfinished)
        dro__buffer_print(out, "<small> (%d not ended)</small>", method->unfinished);
    if (method->diverged)
        dro__buffer_print(out, "<small> (%d diverged)</small>", method->diverged);
    dro__buffer_add(out, "</span></td>");
    if (by >= 0)
        held_cell(out, report, by, m);
    for (int k = 0; k < DRO_MEASURES; k++)
        if (is_known(report, k)) {
            const dro_statistic *s = &method->measures[k];
            bool percent = strcmp(measures[k].unit, "%") == 0;
            dro__buffer_print(out, "<td role=\"cell\" data-l=\"%s%s\"%s>",
                              dro__report_title(report, measures[k].title, title),
                              percent ? ", %" : "",
                              s->count && s->mean == best_of(report, k) ? " class=\"best\"" : "");
            print_statistic(out, k, s);
            dro__buffer_add(out, "</td>");
        }
    dro__buffer_add(out, "</tr>\n");
}

static void table(dro__buffer *out, const dro_report *report)
{
    enum { MANY = 6 }; /* with more columns, errors go below the means */
    char title[DRO__TITLE];
    int by = dro__report_sweep(report), count = by >= 0;
    for (int k = 0; k < DRO_MEASURES; k++)
        count += is_known(report, k);
    dro__buffer_print(out,
                      "<div class=\"scroll\"><table class=\"results%s\" role=\"table\"><thead "
                      "role=\"rowgroup\"><tr role=\"row\"><th scope=\"col\" role=\"columnheader\">"
                      "Method</th><th scope=\"col\" role=\"columnheader\">Runs</th>",
                      count > MANY ? " many" : "");
    if (by >= 0)
        dro__buffer_print(out, "<th scope=\"col\" role=\"columnheader\">%s</th>",
                          held_title(by, true, title));
    for (int k = 0; k < DRO_MEASURES; k++)
        if (is_known(report, k))
            dro__buffer_print(out, "<th scope=\"col\" role=\"columnheader\">%s%s</th>",
                              dro__report_title(report, measures[k].title, title),
                              strcmp(measures[k].unit, "%") == 0 ? ",\xc2\xa0%" : "");
    dro__buffer_add(out, "</tr></thead><tbody role=\"rowgroup\">\n");
    for (int32_t m = 0; m < report->method_count; m++)
        table_row(out, report, m);
    dro__buffer_add(out, "</tbody></table></div>\n");
}

/* Says what is bold, and what is not compared. */
static const char *bold_text(const dro_report *report)
{
    if (report->method_count < 2)
        return ".";
    if (dro__report_sweep(report) >= 0)
        return ". The setting that was chosen has the best figure on the holdout, in bold; nothing "
               "is "
               "chosen by the test set.";
    if (!report->same_loss)
        return ". The best of each column is bold, but for the loss and F: the methods' losses are "
               "not the same function.";
    return report->same_objective ? ". The best of each column is bold."
                                  : ". The best of each column is bold, but for F.";
}

/* With which weights the figures were measured. */
static const char *when(const dro_report *report)
{
    size_t best = 0;
    for (size_t k = 0; k < report->trial_count; k++) {
        const char *by = dro__trial_setting(report->trials[k], "best");
        best += by && strcmp(by, "none") != 0;
    }
    return best == 0                     ? "At the end of training"
           : best == report->trial_count ? "With the best weights of the run"
                                         : "With the last weights of a run, or its best ones";
}

void dro__page_results(dro__buffer *out, const dro_report *report)
{
    bool known = false, errors = false, diverged = false;
    char set[DRO__TITLE];
    for (int k = 0; k < DRO_MEASURES; k++)
        known = known || is_known(report, k);
    for (int32_t m = 0; m < report->method_count; m++) {
        errors = errors || report->methods[m].runs - report->methods[m].diverged > 1;
        diverged = diverged || report->methods[m].diverged;
    }
    dro__buffer_add(out, "<section id=\"results\"><h2>Results</h2>\n");
    if (!known)
        dro__buffer_print(out, "<p class=\"lead\">%s</p>\n",
                          diverged ? "All runs diverged: there are no results."
                                   : "There is no evaluation yet.");
    else
        dro__buffer_print(out, "<p class=\"lead\">%s, %s%s%s", when(report),
                          dro__report_title(report, "on the test set", set),
                          errors ? "; mean \xc2\xb1 standard error over the runs" : "",
                          bold_text(report));
    if (known && dro_report_objective(report)) {
        dro__buffer_add(out, " F: ");
        dro__buffer_escape(out, dro_report_objective(report));
        dro__buffer_add(out, ".");
    }
    if (known)
        dro__buffer_add(out, "</p>\n");
    if (known && report->method_count == 1)
        tiles(out, report);
    else if (known)
        table(out, report);
    dro__buffer_add(out, "</section>\n");
}
