/* A report inside: the runs that were read, the methods they make, curves and means. Reading is in
 * report_trial.c, finding runs and grouping them in report.c, which F they have in
 * report_objective.c, statistics in report_stats.c, what a sweep adds in report_sweep.c; figures
 * are made in the files that report_figures.h names, the page in those of report_page.h. */
#ifndef DRO_TRAIN_REPORT_H
#define DRO_TRAIN_REPORT_H

#include "buffer.h"

#include <dro/report.h>

/* What is kept of every evaluation, and where it lies in a line of metrics.jsonl. */
#define DRO__COLUMN_LIST(X)                                                                        \
    X(DRO__COLUMN_STEP, "step")                                                                    \
    X(DRO__COLUMN_EXAMPLES, "examples")                                                            \
    X(DRO__COLUMN_SECONDS, "seconds")                                                              \
    X(DRO__COLUMN_LARGEST, "largest_weight")                                                       \
    X(DRO__COLUMN_EFFECTIVE, "effective")                                                          \
    X(DRO__COLUMN_OBJECTIVE, "train.objective")                                                    \
    X(DRO__COLUMN_ACCURACY, "test.accuracy")                                                       \
    X(DRO__COLUMN_BALANCED, "test.balanced_accuracy")                                              \
    X(DRO__COLUMN_WORST, "test.worst_class_accuracy")

typedef enum dro__report_column {
#define X(code, path) code,
    DRO__COLUMN_LIST(X)
#undef X
        DRO__COLUMNS
} dro__report_column;

/* Lists of numbers about probabilities and groups, and where they lie in result.json. */
#define DRO__QUALITY_LIST(X)                                                                       \
    X(DRO__QUALITY_SHARE, "test.reliability.share")                                                \
    X(DRO__QUALITY_PROBABILITY, "test.reliability.probability")                                    \
    X(DRO__QUALITY_ACCURACY, "test.reliability.accuracy")                                          \
    X(DRO__QUALITY_RECALL, "test.precision_recall.recall")                                         \
    X(DRO__QUALITY_PRECISION, "test.precision_recall.precision")                                   \
    X(DRO__QUALITY_GROUP, "test.per_group")                                                        \
    X(DRO__QUALITY_GROUP_COUNT, "test.group_counts")

typedef enum dro__quality {
#define X(code, path) code,
    DRO__QUALITY_LIST(X)
#undef X
        DRO__QUALITIES
} dro__quality;

enum { DRO__CLASSES_MOST = 100000, DRO__CONFUSION_MOST = 4000 };

typedef struct dro__report_evaluation {
    double values[DRO__COLUMNS]; /* NaN: not known */
    int32_t class_count;         /* of class_weights */
    float *class_weights;        /* (class_count) shares of the weight, NULL: not known */
} dro__report_evaluation;

typedef struct dro__report_setting {
    char *name, *value;
} dro__report_setting;

/* The sweep that a run is part of. */
typedef struct dro__sweep {
    int by;       /* the metric that chose */
    double held;  /* it, on the holdout, NaN: not known */
    bool chosen;  /* the run has the settings that were chosen */
    char **names; /* (count) of the settings that were tried, in their order */
    int32_t count;
} dro__sweep;

/* A run. */
typedef struct dro__trial {
    char *path, *real;                        /* as found, and without links */
    char *optimizer, *model, *backend, *seed; /* NULL: not known */
    const char *split;                        /* that the figures are of, NULL: none */
    char *objective;                          /* "lambda 20 over examples", NULL: not known */
    char *data_sum;                           /* checksum of the training data, NULL: not known */
    dro__report_setting *settings;            /* (setting_count) config.json, flat */
    size_t setting_count;
    dro__report_evaluation *evaluations; /* (evaluation_count) in order */
    size_t evaluation_count;
    double measures[DRO_MEASURES];
    bool finished, diverged;
    int32_t name_count;              /* of class_names */
    char **class_names;              /* NULL: not known */
    int32_t group_count;             /* of group_names */
    char **group_names;              /* NULL: not known */
    int32_t class_count;             /* of per_class */
    double *per_class;               /* NULL: not known */
    int32_t matrix_count;            /* confusion is (matrix_count, matrix_count), row the truth */
    double *confusion;               /* NULL: not known */
    int32_t count_count;             /* of counts */
    double *counts;                  /* training examples of each class, NULL: not known */
    double *quality[DRO__QUALITIES]; /* (quality_count) each */
    int32_t quality_count[DRO__QUALITIES];
    int32_t method;
    dro__sweep *sweep; /* NULL: none */
} dro__trial;

struct dro_report {
    dro_context *ctx;
    dro__trial **trials;
    size_t trial_count, trial_capacity;
    char **notes;
    size_t note_count, note_capacity;
    dro_report_method *methods; /* remade by dro__report_prepare(), NULL: to be made */
    int32_t method_count;
    char objective[400];            /* which function F is, "": not known */
    bool same_loss, same_objective; /* the same functions in all runs */
};

/* ---- report_trial.c ---- */

/* Reads a run folder. Damage becomes notes; DRO_ERR_DATA when nothing could be read. */
dro_status dro__trial_read(dro_report *report, const char *folder, dro__trial **trial);
void dro__trial_destroy(dro__trial *trial); /* NULL is fine */
/* Whether the folder's config.json is that of a run. */
bool dro__trial_configured(dro_report *report, const char *folder, dro_status *status);
const char *dro__trial_setting(const dro__trial *trial, const char *name); /* or NULL */
/* What the run is called, NULL or "": nothing. */
const char *dro__trial_label(const dro__trial *trial);

/* ---- report.c ---- */

void dro__report_add_remark(dro_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Groups the runs into methods and computes their statistics. */
dro_status dro__report_prepare(dro_report *report);
dro_status dro__report_memory(dro_report *report);
enum { DRO__TITLE = 200 };
/* Whether all runs are of streams: each row is predicted before it is learned from. */
bool dro__report_stream(const dro_report *report);
/* A text that names the test set ("Test accuracy"), with the set that the figures are of in its
 * place. */
const char *dro__report_title(const dro_report *report, const char *text, char out[DRO__TITLE]);

/* ---- report_objective.c ---- */

/* Which function F is in the runs that were read. */
void dro__report_find_objective(dro_report *report);

/* Whether a setting may differ between runs of one method: the seed, settings that do not affect
 * the results, and for runs with a label those that may have been tuned. */
bool dro__setting_personal(const char *name, bool labelled);

/* ---- report_sweep.c ---- */

#if DRO_WITH_JANSSON
struct json_t;
/* By best.json, or NULL; NULL: none, or no memory. */
dro__sweep *dro__sweep_read(const struct json_t *best, struct json_t *config,
                            const struct json_t *result);
#endif
void dro__sweep_destroy(dro__sweep *sweep); /* NULL is fine */
/* The metric that chose when all runs are of a sweep, -1: they are not. */
int dro__report_sweep(const dro_report *report);
bool dro__sweep_has(const dro__sweep *sweep, const char *name); /* among its names */
const char *dro__setting_short(const char *name); /* without the group of settings that it is in */
const char *dro__setting_value(const dro__trial *trial,
                               const char *name); /* by its short name, or NULL */

/* ---- report_stats.c ---- */

dro_statistic dro__report_statistic(const double *values,
                                    size_t count); /* of those that are finite */
/* The mean accuracy of rare classes and of the others, where there are rare ones. */
void dro__trial_rare(dro__trial *t);

/* Points with increasing x; all finite. */
typedef struct dro__curve {
    size_t count;
    double *x, *y;
} dro__curve;

void dro__curve_free(dro__curve *curve);
/* One run's curve; empty when it has none. False: no memory. */
bool dro__curve_of(const dro__trial *trial, dro__report_column x, dro__report_column y,
                   dro__curve *curve);
/* The mean place and the mean value of some curves at equal shares of their evaluations: runs of a
 * method evaluate equally often, and take different times. It ends at the mean of their last
 * values. */
bool dro__curve_mean(const dro__curve *curves, size_t count, dro__curve *mean);
/* At most `most` points that keep the extremes. */
void dro__curve_thin(dro__curve *curve, size_t most);

/* What is known of a method's classes, over its runs. */
typedef struct dro__class_table {
    int32_t count;     /* 0: nothing */
    double *per_class; /* (count) mean accuracy, NaN where not known */
    double *confusion; /* (count, count) rows sum to 1 or 0; NULL: not known */
} dro__class_table;

void dro__class_table_free(dro__class_table *classes);
bool dro__class_table_of(const dro_report *report, int32_t method, dro__class_table *classes);
/* Whether the largest of some counts is more than half as large again as the smallest. */
bool dro__counts_unequal(const double *counts, int32_t count);
/* The order to show `count` classes in: by how many examples they have, most first, where these are
 * known and unequal; *counts is borrowed, or NULL. False: no memory. */
bool dro__class_table_order(const dro_report *report, int32_t count, int32_t **order,
                            const double **counts);
const char *dro__class_name(const dro_report *report, int32_t count, int32_t index, char out[16]);

#endif
