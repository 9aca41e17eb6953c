/* The metrics of a model on a split of the data. Stable. */
#ifndef DRO_METRICS_H
#define DRO_METRICS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, CODE, title, better, unit, meaning): one row for each metric. better: 1 if larger values
 * are better, else -1. unit "%": a share of 1. Records, TensorBoard's tags, `best`, reports and
 * `dro sweep --by` come from this list; the function of the same name in src/train/metrics.c
 * computes a metric. */
#define DRO_METRIC_LIST(X)                                                                         \
    X(accuracy, ACCURACY, "Accuracy", 1, "%",                                                      \
      "share of the examples that are classified correctly")                                       \
    X(balanced_accuracy, BALANCED, "Balanced accuracy", 1, "%", "mean of the classes' accuracies") \
    X(worst_class_accuracy, WORST, "Worst class", 1, "%",                                          \
      "the smallest of the classes' accuracies")                                                   \
    X(worst_group_accuracy, WORST_GROUP, "Worst group", 1, "%",                                    \
      "the smallest of the groups' accuracies")                                                    \
    X(macro_f1, F1, "Macro F1", 1, "%", "mean of the classes' F1 scores")                          \
    X(auroc, AUROC, "AUROC", 1, "%", "two classes: area under the ROC curve")                      \
    X(average_precision, PRECISION, "Average precision", 1, "%",                                   \
      "mean over the classes of the area under their precision-recall curves")                     \
    X(calibration_error, CALIBRATION, "Calibration error", -1, "%",                                \
      "expected calibration error, 15 bins of the predicted class's probability")                  \
    X(rmse, RMSE, "RMSE", -1, "", "real-valued targets: root of the mean squared error")           \
    X(mae, MAE, "MAE", -1, "", "real-valued targets: mean absolute error")                         \
    X(r2, R2, "R2", 1, "", "real-valued targets: share of their variance that is explained")       \
    X(loss, LOSS, "Test loss", -1, "", "mean loss, in evaluation mode")                            \
    X(objective, OBJECTIVE, "F (training)", -1, "",                                                \
      "F = lambda log mean exp(loss/lambda) + r(w) over this split")

enum { DRO_RELIABILITY_BINS = 15, DRO_CURVE_POINTS = 101, DRO_CONFUSION_CLASSES = 1000 };

/* The metrics of one split. What does not apply is NaN or NULL. Borrowed like the record that
 * contains it. Example weights count in all of them except examples, counts and confusion. */
typedef struct dro_metrics {
    int64_t examples;
    int32_t classes; /* 0: a real-valued target */
    int32_t groups;  /* 0: the data has none */
#define X(name, code, title, better, unit, meaning) double name;
    DRO_METRIC_LIST(X)
#undef X
    const double *per_class;       /* (classes) accuracy, NaN for a class without examples */
    const double *class_precision; /* (classes) average precision of each, or NULL */
    const int64_t *counts;         /* (classes) */
    /* (classes, classes): row the truth, column the prediction; NULL above DRO_CONFUSION_CLASSES */
    const int64_t *confusion;
    const double *per_group;     /* (groups) accuracy, NaN for a group without examples */
    const int64_t *group_counts; /* (groups) */
    /* (DRO_RELIABILITY_BINS, 3) by the predicted class's probability: share of the examples, their
     * mean probability, their accuracy; NULL without classes */
    const double *reliability;
    /* (curve_points, 2) recall and precision of the class curve_class, the rarer of two; or NULL */
    const double *curve;
    int32_t curve_points, curve_class;
} dro_metrics;

#ifdef __cplusplus
}
#endif
#endif
