/* Reports as a table and as JSON. */
#include "runs.h"

#include <math.h>
#include <string.h>

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
    return json_pack("{s:o, s:i, s:i, s:i, s:o}", "method", cli_text_json(m->name), "runs",
                     (int)m->runs, "unfinished", (int)m->unfinished, "diverged", (int)m->diverged,
                     "measures", measures);
}

json_t *cli_report_methods(dro_report *report)
{
    dro_report_method m;
    json_t *methods = json_array();
    for (int32_t k = 0; dro_report_method_get(report, k, &m) == DRO_OK; k++)
        json_array_append_new(methods, method_json(&m));
    return methods;
}

json_t *cli_report_notes(dro_report *report)
{
    const char *note;
    json_t *notes = json_array();
    for (int32_t k = 0; (note = dro_report_remark(report, k)); k++)
        json_array_append_new(notes, cli_text_json(note));
    return notes;
}

dro_statistic cli_statistic(const double *values, int count)
{
    dro_statistic s = {.mean = NAN, .error = NAN};
    double sum = 0, squares = 0;
    for (int k = 0; k < count; k++)
        if (isfinite(values[k])) {
            sum += values[k];
            s.count++;
        }
    if (s.count)
        s.mean = sum / s.count;
    for (int k = 0; k < count; k++)
        if (isfinite(values[k]))
            squares += (values[k] - s.mean) * (values[k] - s.mean);
    if (s.count > 1)
        s.error = sqrt(squares / (s.count - 1) / s.count);
    return s;
}

void cli_report_cell(cli_table *table, const dro_statistic *s, dro_measure measure)
{
    double factor = strcmp(dro_measure_unit(measure), "%") == 0 ? 100 : 1;
    double mean = factor > 1 ? cli_percent(s->mean) : s->mean;
    if (!s->count)
        cli_table_cell(table, "-");
    else if (isfinite(s->error))
        cli_table_cell(table, factor > 1 ? "%.1f +- %.1f" : "%.4g +- %.2g", mean,
                       factor * s->error);
    else
        cli_table_cell(table, factor > 1 ? "%.1f" : "%.4g", mean);
}

/* Whether a method has a figure of this kind. */
static bool measured(dro_report *report, dro_measure measure)
{
    dro_report_method m;
    for (int32_t k = 0; dro_report_method_get(report, k, &m) == DRO_OK; k++)
        if (m.measures[measure].count)
            return true;
    return false;
}

void cli_report_table(dro_report *report)
{
    static const struct {
        const char *header;
        dro_measure measure;
    } all[] = {{">accuracy %", DRO_MEASURE_ACCURACY}, {">balanced %", DRO_MEASURE_BALANCED},
               {">worst class %", DRO_MEASURE_WORST}, {">worst group %", DRO_MEASURE_WORST_GROUP},
               {">F", DRO_MEASURE_OBJECTIVE},         {">seconds", DRO_MEASURE_SECONDS}};
    enum { COUNT = sizeof all / sizeof all[0] };
    const char *headers[COUNT + 2] = {"method", ">runs"};
    dro_measure shown[COUNT];
    int count = 0;
    dro_report_method m;
    for (int i = 0; i < COUNT; i++)
        if (all[i].measure != DRO_MEASURE_WORST_GROUP || measured(report, all[i].measure)) {
            headers[count + 2] = all[i].header;
            shown[count++] = all[i].measure;
        }
    cli_table *table = cli_table_create(count + 2, headers);
    for (int32_t k = 0; dro_report_method_get(report, k, &m) == DRO_OK; k++) {
        cli_table_cell(table, "%s", m.name);
        if (m.diverged)
            cli_table_cell(table, "%d (%d diverged)", (int)m.runs, (int)m.diverged);
        else
            cli_table_cell(table, "%d", (int)m.runs);
        for (int i = 0; i < count; i++)
            cli_report_cell(table, &m.measures[shown[i]], shown[i]);
    }
    cli_table_print(table);
    if (dro_report_objective(report))
        printf("\n"), cli_print("F, on the training set: %s\n", dro_report_objective(report));
}
