/* Training: a run trains a model on data with an optimiser, and writes a folder of files.
 *
 *     dro_train *train;
 *     dro_train_create(ctx, &train);
 *     dro_train_set(train, "data", "cifar10:DIR,imratio=0.1,holdout=0.1");
 *     dro_train_set(train, "model", "resnet20");
 *     dro_train_set(train, "optimizer", "recover");
 *     dro_train_set(train, "lambda", "20");               // optimiser and network too
 *     dro_train_run(train, "runs/1", false, NULL);        // true: resume
 *     const dro_train_record *last = dro_train_last(train);
 *     dro_train_destroy(train);
 *
 * dro/settings.h describes the settings.
 *
 * The folder holds
 *     config.json          everything needed to run it again; written first
 *     metrics.jsonl        one object per evaluation
 *     result.json          the final figures
 *     weights.safetensors  the weights; if "best" names a metric, the best ones, and
 *                          last.safetensors has the last ones
 *     events.out.tfevents.dro  the same as metrics.jsonl, for TensorBoard
 *     last.ckpt, previous.ckpt
 * A run that was stopped or killed at any moment resumes from the newest valid checkpoint and ends
 * with the same weights, byte for byte (with the same build, backend and number of threads). */
#ifndef DRO_TRAIN_H
#define DRO_TRAIN_H

#include <dro/data.h>
#include <dro/comm.h>
#include <dro/metrics.h>
#include <dro/net.h>
#include <dro/optimizer.h>
#include <dro/settings.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stable ---- */

typedef struct dro_train dro_train;

/* ---- what is measured: dro/metrics.h ---- */

typedef struct dro_train_record {
    uint64_t steps; /* planned */
    double epoch, epochs;
    double seconds; /* of training */
    double wall;    /* including evaluations and checkpoints */
    dro_info info;
    /* The share of the weight that each class has in the method's objective, (classes): its own
     * estimate with tilt=class, otherwise over the training set, where that is evaluated. NULL: not
     * known. */
    const double *class_weights;
    const double *group_weights; /* (groups), tilt=group: the method's estimate; or NULL */
    bool has_train, has_test, has_holdout, has_window;
    dro_metrics train, test, holdout;
    /* On a stream, test covers all examples so far, each predicted before training on it, and
     * window those since the last record. Each objective keeps the lambda and tilt with which its
     * measurement began, with r(w) of the current w; metrics.jsonl and result.json name both. */
    dro_metrics window;
} dro_train_record;

/* ---- a run ---- */

DRO_API dro_status dro_train_create(dro_context *ctx, dro_train **train);
DRO_API void dro_train_destroy(dro_train *train); /* NULL is fine */
/* The settings of the next run, as in dro_settings_set() and dro_settings_get(). Not allowed while
 * a run is in progress. */
DRO_API dro_status dro_train_set(dro_train *train, const char *name, const char *value);
DRO_API dro_status dro_train_get(const dro_train *train, const char *name, char *text, size_t size);
/* All of them at once, copied. */
DRO_API dro_status dro_train_use(dro_train *train, const dro_settings *settings);

/* One setting of a recipe (setting "recipe"). It applies unless the user sets another value. */
typedef struct dro_recipe {
    const char *recipe;
    const char *optimizer; /* NULL: every optimiser that has the parameter, and the network */
    const char *data;      /* "images", or NULL: for all */
    const char *name, *value, *why;
} dro_recipe;

/* The i-th setting of all recipes, or DRO_ERR_END. */
DRO_API dro_status dro_recipe_setting(int index, dro_recipe *setting);

/* A default of a run for a parameter of its optimiser that differs from the optimiser's own default
 * (dro_optimizer_param()). The user and recipes override it. */
typedef struct dro_default {
    const char *optimizer; /* NULL: every optimiser that has the parameter */
    /* "networks": all models except the linear one on a stream or on sparse rows of many features;
     * "images" (overrides "networks"); "tables"; "hidden": networks with hidden layers on tables;
     * NULL: all data */
    const char *data;
    const char *name;
    const char *value; /* or a rule in words, as in "steps / 2" */
    const char *why;
} dro_default;

/* The i-th default, or DRO_ERR_END. Of two for the same parameter the later one applies. */
DRO_API dro_status dro_train_default(int index, dro_default *setting);

/* Reported after each step, and while a split is evaluated. */
typedef struct dro_train_progress {
    uint64_t step, steps;
    double epoch, epochs, seconds, left; /* left: remaining seconds, NaN: not known yet */
    double examples_per_s, loss, objective, effective;
    const char *evaluating; /* the split's name, or NULL */
    double evaluated;       /* the share of it that is done, 0 to 1 */
    /* as in dro_info: NaN where the objective has none */
    double lambda, threshold, radius;
} dro_train_progress;

typedef struct dro_train_watch {
    size_t size; /* sizeof(dro_train_watch) */
    void *user;
    /* (optional) Return true to write a checkpoint and stop. A stopped evaluation gives no figures;
     * a resumed run repeats it first. */
    bool (*step)(void *user, const dro_train_progress *progress);
    void (*evaluated)(void *user, const dro_train_record *record); /* (optional) */
    /* (optional) One line about a decision or correction during the run, or where it resumes. */
    void (*note)(void *user, const char *text);
    /* (optional) One line about the run, after its second step: model, objective, how the data is
     * prepared, how long it should take. */
    void (*plan)(void *user, const char *text);
} dro_train_watch;

/* How a run ended. */
typedef enum dro_train_end {
    DRO_TRAIN_NOT_ENDED,
    DRO_TRAIN_DONE,        /* all planned steps */
    DRO_TRAIN_PATIENCE,    /* no improvement for `patience` evaluations */
    DRO_TRAIN_TIME,        /* max_time reached */
    DRO_TRAIN_INTERRUPTED, /* the watch requested it; there is a checkpoint */
    DRO_TRAIN_DIVERGED
} dro_train_end;

/* Distributes the next runs over these ranks (dro/comm.h), all of which make the same calls; rank 0
 * writes the folder. NULL: this process only. Borrowed until the last run. A run that fails ends
 * all ranks. */
DRO_API dro_status dro_train_ranks(dro_train *train, dro_comm *comm);
/* Trains from the start, or with resume from the newest valid checkpoint in the folder (from the
 * start if there is none). folder NULL: nothing is written. May be called many times, also with
 * changed settings. Returns DRO_OK for an interrupted run and DRO_ERR_NUMBER for a diverged one. */
DRO_API dro_status dro_train_run(dro_train *train, const char *folder, bool resume,
                                 const dro_train_watch *watch);
/* Of the last run: how it ended, its last evaluation (NULL if there was none; with "best" that of
 * the best weights), the data it was on; borrowed until the next run. */
DRO_API dro_train_end dro_train_ended(const dro_train *train);
DRO_API const dro_train_record *dro_train_last(const dro_train *train);
DRO_API const dro_data_info *dro_train_data(const dro_train *train);
/* Its config.json and result.json as text, NULL if there is none; borrowed until the next run. */
DRO_API const char *dro_train_config(const dro_train *train);
DRO_API const char *dro_train_result(const dro_train *train);

/* ---- a trained model ---- */

typedef struct dro_predictor dro_predictor;

/* Opens the weights file of a run, which describes the model, its classes and how images are
 * normalised, together with the data to predict.
 *
 * Several threads may share a predictor: dro_predictor_logits(), _probabilities() and the calls
 * that only describe it may run at the same time. Calls for logits take turns (each uses all
 * threads of the context). Meanwhile nothing else may use the context, not even its error text: use
 * dro_predictor_error(). */
DRO_API dro_status dro_predictor_open(dro_context *ctx, const char *weights, const char *spec,
                                      dro_predictor **predictor);
DRO_API void dro_predictor_close(dro_predictor *predictor); /* NULL is fine */
/* One line about the calling thread's last failure with an open predictor, "" if there was none.
 * Borrowed until the thread's next failure. */
DRO_API const char *dro_predictor_error(void);
DRO_API const dro_data_info *dro_predictor_data(const dro_predictor *predictor);
/* As dro_data_skipped(): the images that skip_bad has skipped so far. No metric counts them, and
 * their logits are NaN. */
DRO_API const char *dro_predictor_skipped(const dro_predictor *predictor, int index);
/* As dro_data_remark(). */
DRO_API const char *dro_predictor_remark(const dro_predictor *predictor, int index);
DRO_API const char *dro_predictor_model(const dro_predictor *predictor);
/* The loss that the model was trained with. */
DRO_API const char *dro_predictor_loss(const dro_predictor *predictor);
/* The model's classes: how many (0: a real-valued output) and their names. */
DRO_API int32_t dro_predictor_classes(const dro_predictor *predictor);
DRO_API const char *dro_predictor_class_name(const dro_predictor *predictor, int32_t index);
/* Logits of examples first .. first + count - 1 of a split, (count, outputs). truth (count),
 * optional, receives the labels as classes of the model, -1 for a real-valued target. DRO_ERR_RANGE
 * beyond the split. A model with one output and two classes gives 0 and its margin. */
DRO_API dro_status dro_predictor_logits(dro_predictor *predictor, dro_split split, int64_t first,
                                        size_t count, float *logits, int32_t *truth);
/* The class probabilities, (count, classes), of logits (count, classes). They follow from the loss
 * that the model was trained with: a softmax; for the logistic loss the sigmoids, normalised; for
 * the squared loss the outputs, at least 0, normalised. If the loss or the tilt removes the class
 * prior from the outputs (logit-adjusted, tilt=class), it is restored. NaN where a logit is NaN. */
DRO_API dro_status dro_predictor_probabilities(const dro_predictor *predictor, size_t count,
                                               const float *logits, double *probabilities);
/* The class and the probabilities (classes) of one example from its logits (classes). The class has
 * the largest logit; after dro_predictor_prior() it is the most probable one. */
DRO_API dro_status dro_predictor_decide(const dro_predictor *predictor, const float *logits,
                                        double *probabilities, int32_t *class_);
/* Sets the class prior of probabilities, decisions and evaluations: "train" (the class shares of
 * the training data, the initial prior), "uniform", or a file with a line NAME,SHARE for each
 * class. Not allowed while other threads use the predictor. */
DRO_API dro_status dro_predictor_prior(dro_predictor *predictor, const char *prior);
/* A class, usually a rare one, is predicted whenever its probability reaches this threshold. */
typedef struct dro_threshold {
    const char *class_name; /* NULL: there is no threshold; borrowed until close */
    const char *rule;       /* how it was chosen */
    double probability;
    /* of the class, on the examples on which it was chosen; NaN if it was not chosen by this
     * predictor */
    double precision, recall, f1;
} dro_threshold;
/* Chooses a threshold on the examples of a split. rule: "f1" (the largest F1), "recall:R" (the
 * highest threshold with at least this recall), "cost:A:B" (the least cost, A for a missed example
 * and B for a false alarm), a probability, or "none". class_name NULL: the class with the smallest
 * share of the training data. Decisions and evaluations use it until dro_predictor_prior() is
 * called. With keep it is saved in the weights file, for later predictors. */
DRO_API dro_status dro_predictor_threshold(dro_predictor *predictor, dro_split split,
                                           const char *rule, const char *class_name, bool keep);
/* The threshold in use; class_name is NULL if there is none. */
DRO_API dro_threshold dro_predictor_threshold_get(const dro_predictor *predictor);
/* Whether the prior shifts the probabilities, so that the most probable class may not have the
 * largest logit. */
DRO_API bool dro_predictor_shifted(const dro_predictor *predictor);
/* The examples of a split. Borrowed until close. */
DRO_API dro_status dro_predictor_examples(const dro_predictor *predictor, dro_split split,
                                          dro_examples *examples);
/* Evaluates the model on a split. Borrowed until the next call; for one thread at a time. */
DRO_API dro_status dro_predictor_evaluate(dro_predictor *predictor, dro_split split,
                                          const dro_metrics **metrics);

/* ---- experimental: worst-case weights ---- */

/* The worst-case weights of a robust objective over the examples of a split. Arrays of examples are
 * in the order of the split. */
typedef struct dro_explanation {
    double value;     /* of the objective, without r(w) */
    double mean_loss; /* of the same examples */
    double lambda; /* kl, kl-radius: of the tilt; chi2: of the penalty; 0: only the largest losses
                    * count; else NaN */
    double threshold;  /* cvar, chi2: losses below it have no weight; else NaN */
    double divergence; /* KL(q|p), for chi2 E(q/p - 1)^2 / 2 */
    double effective;  /* effective sample size / examples (or classes, or groups), in (0, 1] */
    int64_t examples;
    const double *losses;       /* (examples) of the training loss; NaN: skipped by skip_bad */
    const double *weights;      /* (examples) sum 1 */
    const int32_t *labels;      /* (examples) among the model's classes; -1: a real-valued target */
    const int32_t *predictions; /* (examples) the class with the largest output */
    const float *outputs;       /* (examples) the first output: that of a real-valued target */
    const int32_t *groups;      /* (examples) or NULL */
    const int64_t *order; /* (examples) from the largest weight to the smallest, then by loss */
    int32_t classes, group_count;
    const double *class_shares, *class_weights; /* (classes) of the examples and of the weight */
    const double *group_shares, *group_weights; /* (group_count) */
} dro_explanation;

/* objective: "kl:LAMBDA", "kl-radius:RHO", "cvar:ALPHA", "chi2:RHO" or "mean". over: "example",
 * "class" or "group" (with a uniform prior over those that occur). Borrowed until the next
 * call. */
DRO_API dro_status dro_predictor_explain(dro_predictor *predictor, dro_split split,
                                         const char *objective, const char *over,
                                         const dro_explanation **explanation);
/* dro_data_cells() of the predictor's data. */
DRO_API dro_status dro_predictor_cells(const dro_predictor *predictor, dro_split split,
                                       const int64_t *examples, size_t count, size_t columns,
                                       dro_cells **cells);
/* A small picture of an image example. */
enum { DRO_THUMBNAIL_SIDE = 96 };
typedef struct dro_thumbnail {
    int32_t width, height; /* at most DRO_THUMBNAIL_SIDE; smaller images keep their size */
    uint8_t rgb[DRO_THUMBNAIL_SIDE * DRO_THUMBNAIL_SIDE * 3]; /* (height, width, 3) */
} dro_thumbnail;
/* DRO_ERR_UNSUPPORTED: the data has no images. */
DRO_API dro_status dro_predictor_thumbnail(const dro_predictor *predictor, dro_split split,
                                           int64_t index, dro_thumbnail *thumbnail);

#ifdef __cplusplus
}
#endif
#endif
