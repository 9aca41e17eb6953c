/* Reports on one or many runs: one page, plots and tables.
 *
 *     dro_report_create(ctx, &report);
 *     dro_report_add(report, "runs/compare");       // a run folder, or a folder of run folders
 *     dro_report_html(report, "report.html");
 *     dro_report_destroy(report);
 *
 * A run folder holds metrics.jsonl, result.json and config.json as dro_train_run() writes them; any
 * of these files, or parts of them, may be missing. Runs of one optimiser that differ only in the
 * seed form one *method*: its figures are means over the runs with standard errors.
 * Experimental. */
#ifndef DRO_REPORT_H
#define DRO_REPORT_H

#include <dro/context.h>
#include <dro/metrics.h>
#include <dro/train.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_report dro_report;

/* The columns of a report: the metrics of dro/metrics.h and these, as rows of the same form. A
 * class is rare if it has less than half the training examples of the most common class. */
#define DRO_MEASURE_LIST(X)                                                                        \
    DRO_METRIC_LIST(X)                                                                             \
    X(seconds, SECONDS, "Time", -1, "s", "of training")                                            \
    X(examples, EXAMPLES, "Examples", 0, "", "drawn")                                              \
    X(rare_accuracy, RARE, "Rare classes", 1, "%", "mean of the rare classes' accuracies")         \
    X(frequent_accuracy, FREQUENT, "Frequent classes", 1, "%", "mean of the others' accuracies")   \
    X(holdout_balanced_accuracy, HOLDOUT, "Holdout, balanced", 1, "%", "on the holdout")

typedef enum dro_measure {
#define X(name, code, title, better, unit, meaning) DRO_MEASURE_##code,
    DRO_MEASURE_LIST(X)
#undef X
        DRO_MEASURES
} dro_measure;

DRO_API const char *dro_measure_name(dro_measure measure);  /* "balanced_accuracy"; NULL: none */
DRO_API const char *dro_measure_title(dro_measure measure); /* "Balanced accuracy" */
DRO_API const char *dro_measure_unit(dro_measure measure);  /* "%": values are shares of 1 */

typedef struct dro_statistic {
    int32_t count; /* runs that have a finite value */
    double mean;   /* NaN: none has */
    double error;  /* standard error of the mean; NaN with fewer than two */
} dro_statistic;

/* Borrowed until the next dro_report_add() or destroy. */
typedef struct dro_report_method {
    const char *name;   /* the optimiser, and the settings in which its methods differ */
    int32_t runs;       /* how many */
    int32_t unfinished; /* runs without a result.json; their last evaluation counts */
    int32_t diverged;   /* runs that diverged; their figures do not count */
    dro_statistic measures[DRO_MEASURES];
} dro_report_method;

DRO_API dro_status dro_report_create(dro_context *ctx, dro_report **report);
DRO_API void dro_report_destroy(dro_report *report); /* NULL is fine */

/* Adds a run folder, or a folder with runs one or two levels below. A run is never added twice.
 * DRO_ERR_DATA: there is no run; the report is unchanged. */
DRO_API dro_status dro_report_add(dro_report *report, const char *folder);

DRO_API int32_t dro_report_runs(const dro_report *report);
/* The i-th method, DRO_ERR_END past the last. */
DRO_API dro_status dro_report_method_get(dro_report *report, int32_t index,
                                         dro_report_method *method);
/* The number of examples or seconds (`by`) until F over the training set was at most `objective`
 * (with `stay`: for the rest of the run), over the runs of the i-th method that reached it. The
 * resolution is one evaluation. */
DRO_API dro_status dro_report_reach(dro_report *report, int32_t index, double objective, bool stay,
                                    dro_measure by, dro_statistic *reach);
/* The i-th remark on what was read (a damaged line, an interrupted run), or NULL past the last. */
DRO_API const char *dro_report_remark(const dro_report *report, int32_t index);

/* Which function F is, "lambda 20 over examples", or that it differs between runs (in lambda, tilt,
 * loss, regulariser or prior). NULL: unknown. */
DRO_API const char *dro_report_objective(const dro_report *report);

/* Writes one self-contained page. The file is replaced completely or not at all. */
DRO_API dro_status dro_report_html(dro_report *report, const char *path);
/* Writes every plot as a file NAME.svg into a folder, which is created if necessary; *count
 * (optional) is their number. */
DRO_API dro_status dro_report_svg(dro_report *report, const char *folder, int32_t *count);

/* ---- the worst case of an objective ---- */

/* What an explanation (dro_predictor_explain()) is about. */
typedef struct dro_explanation_about {
    const char *objective, *over, *weights; /* weights: the file's name */
    dro_split split;
    int64_t top; /* examples on the page */
} dro_explanation_about;

/* Writes a page: the weight of classes and groups, and the examples with the largest weights:
 * images as thumbnails, rows of tables with their cells (dro_predictor_cells()). The file is
 * replaced completely or not at all. */
DRO_API dro_status dro_report_explanation(dro_context *ctx, const dro_predictor *predictor,
                                          const dro_explanation *explanation,
                                          const dro_explanation_about *about, const char *path);

#ifdef __cplusplus
}
#endif
#endif
