/* Training: data, a model and an optimiser become a run, and a run a folder of files.
 *
 *     dro_train *train;
 *     dro_train_create(ctx, &train);
 *     dro_train_set(train, "data", "cifar10:DIR,imratio=0.1,holdout=0.1");
 *     dro_train_set(train, "model", "resnet20");
 *     dro_train_set(train, "optimizer", "recover");
 *     dro_train_set(train, "lambda", "20");               // the optimiser's own, or the network's
 *     dro_train_run(train, "runs/1", false, NULL);        // again with true: goes on where it was
 *     const dro_train_record *last = dro_train_last(train);
 *     dro_train_destroy(train);
 *
 * The settings are one list of names (dro/settings.h).
 *
 * The folder holds
 *     config.json          everything needed to run it again; written first
 *     metrics.jsonl        one object per evaluation
 *     result.json          the final figures
 *     weights.safetensors  the weights; when "best" names a measure the best ones, and
 *                          last.safetensors the last
 *     events.out.tfevents.dro  the same as metrics.jsonl, for TensorBoard
 *     last.ckpt, previous.ckpt
 * A run that was stopped or killed at any moment goes on from the newest whole checkpoint and ends
 * with the same weights, byte for byte (the same build, backend and number of threads). */
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
    double wall;    /* with evaluations and checkpoints */
    dro_info info;
    /* The share of the weight that each class has in the method's objective, (classes): its own
     * estimate with tilt=class, otherwise over the training set, where that is evaluated. NULL: not
     * known. */
    const double *class_weights;
    const double *group_weights; /* (groups), tilt=group: the method's estimate; or NULL */
    bool has_train, has_test, has_holdout, has_window;
    dro_metrics train, test, holdout;
    /* a stream: test is of all examples so far, each predicted before it was learned from, and
     * window of those since the last record. Each objective has the lambda and tilt with which its
     * measurement began, and r(w) of the present w; metrics.jsonl and result.json name both */
    dro_metrics window;
} dro_train_record;

/* ---- a run ---- */

DRO_API dro_status dro_train_create(dro_context *ctx, dro_train **train);
DRO_API void dro_train_destroy(dro_train *train); /* NULL is fine */
/* The settings of the next run, as of dro_settings_set() and dro_settings_get(). Not while a run is
 * under way. */
DRO_API dro_status dro_train_set(dro_train *train, const char *name, const char *value);
DRO_API dro_status dro_train_get(const dro_train *train, const char *name, char *text, size_t size);
/* All of them at once, copied. */
DRO_API dro_status dro_train_use(dro_train *train, const dro_settings *settings);

/* What a recipe ("recipe" of a run) sets where nothing else is given. */
typedef struct dro_recipe {
    const char *recipe;
    const char *optimizer; /* NULL: for every one that has the parameter, and for the network */
    const char *data;      /* "images", or NULL: for all */
    const char *name, *value, *why;
} dro_recipe;

/* The i-th setting of all recipes, or DRO_ERR_END. */
DRO_API dro_status dro_recipe_setting(int index, dro_recipe *setting);

/* What a run uses for a parameter of its optimiser where neither the user nor a recipe says
 * otherwise, and which is not the optimiser's own default (dro_optimizer_param()). */
typedef struct dro_default {
    const char *optimizer; /* NULL: for every one that has the parameter */
    /* "networks": all models but the linear one on a stream and on sparse rows of many features;
     * "images", which come after it; "tables"; "hidden": networks with hidden layers on tables;
     * NULL: for all */
    const char *data;
    const char *name;
    const char *value; /* or a rule in words, as in "steps / 2" */
    const char *why;
} dro_default;

/* The i-th of them all, or DRO_ERR_END; of two for the same parameter the later one is used. */
DRO_API dro_status dro_train_default(int index, dro_default *setting);

/* Once per step, and while a split is evaluated. */
typedef struct dro_train_progress {
    uint64_t step, steps;
    double epoch, epochs, seconds, left; /* left: seconds to go, NaN: not known yet */
    double examples_per_s, loss, objective, effective;
    const char *evaluating; /* the split's name, or NULL */
    double evaluated;       /* the share of it that is done, 0 to 1 */
} dro_train_progress;

typedef struct dro_train_watch {
    size_t size; /* sizeof(dro_train_watch) */
    void *user;
    /* (optional) True: write a checkpoint and stop. An evaluation that is stopped gives no figures;
     * a run that is resumed does it first. */
    bool (*step)(void *user, const dro_train_progress *progress);
    void (*evaluated)(void *user, const dro_train_record *record); /* (optional) */
    /* (optional) One line about something that was mended or decided on the way, or where a run
     * goes on. */
    void (*note)(void *user, const char *text);
} dro_train_watch;

/* How a run ended. */
typedef enum dro_train_end {
    DRO_TRAIN_NOT_ENDED,
    DRO_TRAIN_DONE,        /* all planned steps */
    DRO_TRAIN_PATIENCE,    /* no better for `patience` evaluations */
    DRO_TRAIN_TIME,        /* max_time is over */
    DRO_TRAIN_INTERRUPTED, /* the watch said so; there is a checkpoint */
    DRO_TRAIN_DIVERGED
} dro_train_end;

/* The next runs are shared out over these ranks (dro/comm.h), each of which makes the same calls;
 * rank 0 writes the folder. NULL: this process alone. Borrowed until the last run. A run that fails
 * ends all ranks. */
DRO_API dro_status dro_train_ranks(dro_train *train, dro_comm *comm);
/* Trains from the start, or with resume from the newest whole checkpoint in the folder (from the
 * start if there is none). folder NULL: nothing is written. May be called many times, with
 * different settings between. An interrupted run is DRO_OK; a diverged one DRO_ERR_NUMBER. */
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

/* Weights that a run has written: the file says which model it is, its classes and how images are
 * normalised. Opened together with the data that it is to see.
 *
 * Several threads may share a predictor: dro_predictor_logits(), _probabilities() and the calls
 * that only say what it is may be made at the same time. Logits take turns (each call uses all
 * threads of the context); meanwhile nothing else may use the context, its error text included: ask
 * dro_predictor_error(). */
DRO_API dro_status dro_predictor_open(dro_context *ctx, const char *weights, const char *spec,
                                      dro_predictor **predictor);
DRO_API void dro_predictor_close(dro_predictor *predictor); /* NULL is fine */
/* One line about the calling thread's last failure with a predictor that was open, "" if there was
 * none. Borrowed until the thread's next failure. */
DRO_API const char *dro_predictor_error(void);
DRO_API const dro_data_info *dro_predictor_data(const dro_predictor *predictor);
/* As dro_data_note(): the images that skip_bad has passed over so far. They are in no figure, and
 * their logits are NaN. */
DRO_API const char *dro_predictor_note(const dro_predictor *predictor, int index);
/* As dro_data_remark(). */
DRO_API const char *dro_predictor_remark(const dro_predictor *predictor, int index);
DRO_API const char *dro_predictor_model(const dro_predictor *predictor);
DRO_API const char *
dro_predictor_loss(const dro_predictor *predictor); /* that it was trained with */
/* The model's classes: how many (0: a real-valued output) and their names. */
DRO_API int32_t dro_predictor_classes(const dro_predictor *predictor);
DRO_API const char *dro_predictor_class_name(const dro_predictor *predictor, int32_t index);
/* Logits of examples first .. first + count - 1 of a split, (count, outputs); truth (count),
 * optional: the label among the model's classes, -1 for a real-valued target. DRO_ERR_RANGE beyond
 * the split. A model with one output and two classes gives 0 and its margin. */
DRO_API dro_status dro_predictor_logits(dro_predictor *predictor, dro_split split, int64_t first,
                                        size_t count, float *logits, int32_t *truth);
/* The classes' probabilities, (count, classes), of logits (count, classes), as the loss that the
 * model was trained with has it: a softmax; of the logistic loss each output's sigmoid, normalised;
 * of the squared loss the outputs themselves, at least 0, normalised. Where the loss or the tilt
 * has taken the classes' shares out of the outputs (logit-adjusted, tilt=class) the prior is put
 * back. NaN where a logit is. */
DRO_API dro_status dro_predictor_probabilities(const dro_predictor *predictor, size_t count,
                                               const float *logits, double *probabilities);
/* The class of one example, and the probabilities (classes), of its logits (classes). The class is
 * that of the largest logit; after dro_predictor_prior() the most probable one. */
DRO_API dro_status dro_predictor_decide(const dro_predictor *predictor, const float *logits,
                                        double *probabilities, int32_t *class_);
/* The prior of probabilities and decisions, also of an evaluation: "train", the classes' shares of
 * the training data, which probabilities have after opening; "uniform"; or a file with a line
 * NAME,SHARE for each class. Not while others use the predictor. */
DRO_API dro_status dro_predictor_prior(dro_predictor *predictor, const char *prior);
/* From which probability on one class is taken, whatever the others have: for a rare one. */
typedef struct dro_threshold {
    const char *class_name; /* NULL: there is no threshold; borrowed until close */
    const char *rule;       /* by which it was chosen */
    double probability;
    /* of the class, on the examples by which it was chosen; NaN where it was not chosen now */
    double precision, recall, f1;
} dro_threshold;
/* Chooses one by the examples of a split. rule: "f1", the largest; "recall:R", the highest
 * threshold with at least this recall; "cost:A:B", the least cost of A for a missed example and B
 * for a false alarm; a probability; "none". class_name NULL: the class with the smallest share of
 * the training data. Decisions and evaluations follow it, unless dro_predictor_prior() is called
 * later. With keep it is written into the weights file, where predictors find it. */
DRO_API dro_status dro_predictor_threshold(dro_predictor *predictor, dro_split split,
                                           const char *rule, const char *class_name, bool keep);
DRO_API dro_threshold dro_predictor_has_threshold(const dro_predictor *predictor);
/* Whether the prior moves probabilities: the most probable class need not have the largest
 * logit. */
DRO_API bool dro_predictor_shifted(const dro_predictor *predictor);
/* The examples of a split: paths of images, places in the source. Borrowed until close. */
DRO_API dro_status dro_predictor_examples(const dro_predictor *predictor, dro_split split,
                                          dro_examples *examples);
/* How good it is on a split; borrowed until the next call, so for one thread at a time. */
DRO_API dro_status dro_predictor_evaluate(dro_predictor *predictor, dro_split split,
                                          const dro_metrics **metrics);

/* ---- experimental: what a model finds hard ---- */

/* The worst-case distribution of a robust objective over the examples of a split, and what has its
 * weight. Arrays of examples are in the order of the split. */
typedef struct dro_explanation {
    double value;      /* of the objective, without r(w) */
    double mean_loss;  /* of the same examples */
    double lambda;     /* kl, kl-radius: of the tilt; 0: only the largest losses count; else NaN */
    double eta;        /* cvar, chi2: losses below it have no weight; else NaN */
    double divergence; /* KL(q|p), for chi2 E(q/p - 1)^2 / 2 */
    double effective;  /* effective sample size / examples (or classes, or groups), in (0, 1] */
    int64_t examples;
    const double *losses;  /* (examples) as trained with; NaN: an image that skip_bad passed over */
    const double *weights; /* (examples) sum 1 */
    const int32_t *labels; /* (examples) among the model's classes; -1: a real-valued target */
    const int32_t *predictions; /* (examples) the class with the largest output */
    const float *outputs;       /* (examples) the first output: that of a real-valued target */
    const int32_t *groups;      /* (examples) or NULL */
    const int64_t *order; /* (examples) from the largest weight to the smallest, then by loss */
    int32_t classes, group_count;
    const double *class_shares, *class_weights; /* (classes) of the examples and of the weight */
    const double *group_shares, *group_weights; /* (group_count) */
} dro_explanation;

/* objective: "kl:LAMBDA", "kl-radius:RHO", "cvar:ALPHA", "chi2:RHO" or "mean". over: "examples", or
 * "classes" or "groups", of which all that occur have the same share of the prior. Borrowed until
 * the next call. */
DRO_API dro_status dro_predictor_explain(dro_predictor *predictor, dro_split split,
                                         const char *objective, const char *over,
                                         const dro_explanation **explanation);
/* A small picture of an image example. */
enum { DRO_THUMBNAIL_SIDE = 96 };
typedef struct dro_thumbnail {
    int32_t width, height; /* at most DRO_THUMBNAIL_SIDE; smaller images are as they are */
    uint8_t rgb[DRO_THUMBNAIL_SIDE * DRO_THUMBNAIL_SIDE * 3]; /* (height, width, 3) */
} dro_thumbnail;
/* DRO_ERR_UNSUPPORTED: the data has no images. */
DRO_API dro_status dro_predictor_thumbnail(const dro_predictor *predictor, dro_split split,
                                           int64_t index, dro_thumbnail *thumbnail);

#ifdef __cplusplus
}
#endif
#endif
