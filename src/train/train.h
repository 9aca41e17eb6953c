/* train: joins data, models and optimisers. Sees every other room.
 *
 *   settings.c    the settings of a run: their table, and the value that holds them
 *   defaults.c    what the optimiser gets where nothing is given; recipe.c: settings that go
 *                 together
 *   choose.c      model=auto;  hints.c: settings that would serve the data better
 *   plan.c        the line that a run says about itself
 *   task.c        a data set and a model as a problem to train and a function to evaluate
 *   feed.c        examples as batches: images through the loader, rows from memory
 *   sparse.c      the linear model on sparse rows with many features
 *   metrics.c     figures from logits; probabilities.c: of the classes; decision.c: of a predictor
 *   evaluate.c    figures over a split
 *   disk.c        files that are replaced completely or not at all; checkpoint.c: to resume a run
 *   record.c      config.json, metrics.jsonl, result.json
 *   telemetry.c   records for TensorBoard;  events.c: as the bytes of its files
 *   weights.c     weights files that describe their model; predictor.c: using them
 *   ranks.c       one run on several processes
 *   run.c         the loop;  assess.c: its evaluations;  resume.c: its folder and checkpoints
 *   divergence.c  detection of divergence, and recovery from it
 *   progressive.c the loop over a stream */
#ifndef DRO_TRAIN_INTERNAL_H
#define DRO_TRAIN_INTERNAL_H

#include "augment.h"
#include "comm.h"
#include "data.h"
#include "full_rows.h"
#include "nn.h"
#include "objective.h"
#include "opt.h"

#include <dro/linear.h>
#include <dro/loader.h>
#include <dro/train.h>

/* ---- settings.c ---- */

enum { DRO__DIVERGENCE_STOP, DRO__DIVERGENCE_HALVE };
enum { DRO__EVAL_YES, DRO__EVAL_NO, DRO__EVAL_LAST, DRO__EVAL_SAMPLE }; /* eval_train */

/* The run's own settings: a field for each line of settings.def. */
typedef struct dro__train_settings {
#define TEXT(name, value, fallback, meaning)          char name[DRO__TEXT_MAX];
#define TIME(name, fallback, meaning)                 double name;
#define INTEGER(name, fallback, least, most, meaning) int64_t name;
#define REAL(name, fallback, least, most, meaning)    double name;
#define CHOICE(name, fallback, words, meaning)        int32_t name;
#include "settings.def"
#undef TEXT
#undef TIME
#undef INTEGER
#undef REAL
#undef CHOICE
} dro__train_settings;

extern const dro__param_row *const dro__train_tables[DRO__TABLE_MAX];

/* One setting that was given. */
typedef struct dro__given {
    const char *name; /* of its table */
    char *value;
} dro__given;

struct dro_settings {
    dro_context *ctx;
    dro__given *items; /* all that was given, in order, each name once */
    size_t count, capacity;
};

dro_status dro__settings_assign(dro_settings *to, const dro_settings *from);
/* The run's own, those that were not given at their defaults. */
dro_status dro__settings_parse(const dro_settings *settings, dro__train_settings *out);

/* Whether the run, the network or the optimiser has a parameter of this name. */
bool dro__net_has(const char *name);
bool dro__optimizer_has(const char *optimizer, const char *name);
/* The default of an optimiser's parameter in this run; NaN: it has none. */
double dro__default_of(const dro_train *t, const char *optimizer, const char *name);
/* Says so where the features are so large that the usual step is divided. */
void dro__note_divisor(const dro_train *t);
/* Whether the F that is reported was chosen apart from the optimiser's, and which it is. */
bool dro__reported_objective(const dro_train *t, dro__objective *o);
/* The optimiser of a run that names none: recover, and for the linear model on rows in memory
 * lbfgs, where the loss is convex and nothing was given that lbfgs does not have. */
void dro__choose_optimizer(dro_train *t);
/* The loss of a model that predicts the same for every example: log(classes), or half the variance
 * of real-valued targets. */
double dro__constant_loss(const dro_train *t);
/* Of which F is about 2 % above the mean loss of such a model, and 50 times that loss at least. */
double dro__gentle_lambda(const dro_train *t);
/* recipe.c: hands the settings of the run's recipe that are for its optimiser, or for all, to
 * `set`. */
dro_status dro__recipe_apply(const dro_train *t,
                             dro_status (*set)(void *user, const char *name, const char *value),
                             void *user);
/* Sets those that are the run's own, once it is known whether the data are images. */
dro_status dro__recipe_set_own(dro_train *t);
/* Sets the recipe's and what the user gave for the network. */
dro_status dro__apply_net(const dro_train *t, dro_net *net);

/* choose.c: model=auto becomes the one that is better on a holdout. */
dro_status dro__choose_model(dro_train *t);
/* plan.c: one line about the run; left: the seconds that it should take, NaN: not known. */
void dro__report_plan(const dro_train *t, double left);
/* hints.c: notes on settings that would serve the data better. */
dro_status dro__hints(dro_train *t);

/* ---- task.c ---- */

enum { DRO__RING = 3, DRO__EVAL_MOST = 1024 };

/* A training image: its floats, or how the backend cuts it; and what it is mixed with, or NULL. */
typedef struct dro__fed_image {
    const float *x;
    const dro_cut *cut;
    const dro_mix *mix;
} dro__fed_image;

/* Examples of one split, in order, for evaluation. */
typedef struct dro__split_feed {
    dro_examples examples;
    dro_loader *loader; /* images */
    dro_net_images
        device_images; /* small images in the backend's memory instead; bytes NULL: none */
    size_t batch;      /* of the loader, or of a call */
    uint64_t turn;     /* how often the split was walked through */
    int64_t start;     /* where a walk begins: this rank's share */
    int64_t count;     /* examples that are evaluated: all, or a sample of them */
} dro__split_feed;

/* Some of the examples that are evaluated, and what is known of them, as the model has it; what
 * there is not is NULL. */
typedef struct dro__walk {
    const dro_examples *rows; /* of the split */
    const int64_t *ids;       /* places in it */
    const int32_t *labels, *groups;
    const float *targets, *weights;
} dro__walk;

/* Examples first .. first + count - 1 of those of a split that are evaluated. */
typedef struct dro__range {
    dro_split split;
    int64_t first;
    size_t count;
} dro__range;

typedef struct dro__task {
    dro_context *ctx;
    dro_data *data;
    dro_data_info info;
    char model[DRO__TEXT_MAX];
    bool images, regression, sparse; /* sparse: the linear model on compressed rows */
    dro_model_shape shape;           /* of the network */
    size_t outputs;                  /* logits per example as dro__task_evaluate gives them */
    size_t width; /* of rows, as the model has them: sparse ones may be narrower */
    size_t dim, batch;
    size_t slice_first, slice_end; /* of a batch: what this rank reads of images */
    uint64_t epoch_steps;
    struct {                 /* of stage2: draws of all classes alike */
        uint64_t from, seed; /* from this position on */
        int64_t *images;     /* (n) the training images class by class; NULL: there is no stage2 */
        int64_t *first;      /* (classes + 2) of each class in that */
        int32_t *classes;    /* those that have images */
        uint64_t count;
    } balanced;
    dro_problem problem;
    dro__pieces *pieces;      /* its batches are evaluated in pieces */
    struct dro__ranks *ranks; /* the problem is spread over ranks or shards; or NULL */
    char
        why[DRO__ERROR_SIZE]; /* the error of a callback: the optimiser only knows that it failed */
    double *class_share, *group_share;
    double *shift; /* (classes of the model) of the logarithms of probabilities */
    double square; /* of rows: the mean square of the values that are not 0 */
    double norm;   /* of rows: the mean of |x|^2 */

    dro_net *net;
    dro_linear *linear;  /* instead of net, for sparse */
    dro__full_rows full; /* of a linear net on rows */
    dro__loss_kind row_loss;
    float *y;             /* sparse: labels as -1 and 1 of the training rows */
    const char *encoding; /* of the columns of a stream, borrowed; or NULL */

    dro__split_feed feed[DRO_SPLITS];
    dro_loader *loader;     /* of the training images */
    float *ring[DRO__RING]; /* rows, or batches that do not fit the loader's */
    int64_t *ring_ids[DRO__RING];
    int32_t *ring_labels[DRO__RING], *ring_groups[DRO__RING];
    float *ring_targets[DRO__RING];
    dro_cut *ring_cuts[DRO__RING];
    dro_mix *ring_mixes[DRO__RING];
    dro__fed_image *ring_images[DRO__RING]; /* of images, what the handle of a batch points to */
    size_t ring_capacity;
    unsigned turn;

    /* evaluation */
    int64_t walk_ids[DRO__EVAL_MOST]; /* of the last dro__task_walk(): copied where not in order */
    int32_t walk_labels[DRO__EVAL_MOST], walk_groups[DRO__EVAL_MOST];
    float walk_targets[DRO__EVAL_MOST];
    float *rows;                 /* (DRO__EVAL_MOST, features) where rows must be made dense */
    dro__normal normal;          /* of the images */
    int32_t side;                /* of the arrays that images in files became, or 0 */
    int32_t *label_map;          /* (data's classes) to the model's, NULL: the same */
    bool unread[DRO__EVAL_MOST]; /* of the last batch: images that skip_bad skipped */
    const int32_t *labels;       /* of the batch that was evaluated last, or NULL */
} dro__task;

enum { DRO__LOSS_SIZE = 64 }; /* of its name */

/* What a weights file says about itself. */
typedef struct dro__weights_about {
    char model[DRO__TEXT_MAX], loss[DRO__LOSS_SIZE], loss_settings[256]; /* "tau=1,..." */
    double *prior;    /* (classes) shares of the training data, or NULL: not known */
    double threshold; /* of class `rare`, 0: none */
    int32_t rare;
    char rule[64];       /* by which it was chosen */
    double *prior_shift; /* (classes) that gives probabilities this prior, or NULL: by the loss */
    dro_model_shape shape;
    bool sparse, regression, has_normal;
    bool files, arrays; /* images: cut from files, or arrays (size= makes them too); or not known */
    dro__normal normal;
    char **names;
    int32_t classes;
    char *encoding; /* of the rows that it was trained on, or NULL */
} dro__weights_about;

/* What a model is made from: the run's settings, or a weights file. */
typedef struct dro__model_choice {
    const char *data, *model; /* model "": by the data */
    size_t batch;             /* 0: by the data; not used without training */
    size_t microbatch;        /* 0: by the available memory */
    uint64_t seed;
    int32_t size;
    const char *augment; /* the setting; NULL: none */
    bool train;          /* prepare for training too */
    bool rows;           /* the linear model on sparse rows, however many features */
    const char *train_only;
    dro_model_shape shape;           /* of a weights file; channels 0: by the data */
    dro_train *settings;             /* of the run, or NULL */
    const char *encoding;            /* of a weights file, "" if it has none; NULL: of no file */
    const dro__weights_about *about; /* whose loss and normalisation are meant, or NULL */
    const dro__weights_about *start; /* of the weights file that training starts from, or NULL */
    dro_comm *comm;                  /* the ranks that train together, or NULL */
    int shards;                      /* exact: of a batch; else 0 */
    bool sync_norm;
} dro__model_choice;

/* Before the weights are made: an error if they, and what training keeps in addition, take more
 * than half of the available memory. */
dro_status dro__model_fits(const dro__task *task, const dro__model_choice *choice,
                           size_t parameters);
dro_status dro__task_open(dro_context *ctx, const dro__model_choice *choice, dro__task *task);
void dro__task_close(dro__task *task);
/* Borrowed until the next call. */
dro__walk dro__task_walk(dro__task *task, dro__range range);
/* Logits (count, outputs) and losses (count), which may be NULL, of at most feed.batch examples.
 * task->labels are theirs until the next call. */
dro_status dro__task_evaluate(dro__task *task, dro__range range, const float *w, float *logits,
                              float *losses);
size_t dro__task_statistics(const dro__task *task); /* floats besides w */
/* How many weights do not train; *sum (optional) is their checksum. */
size_t dro__task_frozen(const dro__task *task, uint64_t *sum);
/* Keeps the error text of a callback; returns status. */
dro_status dro__task_remember(dro__task *task, dro_status status);
/* After the optimiser has passed a failure on: the text that was kept. */
dro_status dro__task_recall(dro__task *task, dro_status status);

/* ---- resident.c ---- */

/* Takes a split's small images into the backend's memory; changed: by operations. false: they come
 * from the loader. */
bool dro__resident_take(dro__task *task, dro_split split, bool changed);
void dro__resident_close(dro__task *task);

/* ---- feed.c ---- */

enum {
    DRO__AUGMENT_ALL = DRO_AUGMENT_CROP | DRO_AUGMENT_FLIP | DRO_AUGMENT_JITTER,
    DRO__AUGMENT_POLICIES = DRO_AUGMENT_RANDAUGMENT | DRO_AUGMENT_AUTOAUGMENT
};
/* The words of the setting `augment`; those of one way come first. The last has none. */
typedef struct dro__augment_word {
    const char *word;
    unsigned ways;
} dro__augment_word;
extern const dro__augment_word dro__augment_words[];
/* What the setting `augment` means for this data. */
dro_status dro__augment_ways(const dro__task *task, const char *text, unsigned *ways);
dro_status dro__feed_training(dro__task *task, const dro__model_choice *choice,
                              dro_net_source *source);
/* stage2: prepares balanced draws. */
dro_status dro__feed_balance(dro__task *task, uint64_t seed);
dro_status dro__feed_split(dro__task *task, dro_split split, const dro__model_choice *choice);
dro_status dro__feed_batch(dro__task *task, dro__range range, dro_net_batch *batch);
void dro__feed_close(dro__task *task);
/* Some examples of a batch of images that was drawn; user is the task. */
void dro__feed_cut(void *user, const dro_batch *batch, size_t first, size_t count, dro_batch *part);
/* The rows of a batch copied together: (count, width) and their labels or targets. */
typedef struct dro__row_buffer {
    float *x, *targets;
    int32_t *labels;
} dro__row_buffer;
void dro__feed_rows(const dro__task *task, const dro_batch *batch, const dro__row_buffer *to,
                    dro_net_batch *out);

/* ---- ranks.c ---- */

enum { DRO__SHARDS = 8 }; /* of a batch with exact=yes: so many ranks at most */

/* Spreads the task's problem over ranks, or over shards for exact sums; nothing where there are
 * neither. */
dro_status dro__ranks_open(dro__task *task, const dro__model_choice *choice);
void dro__ranks_close(dro__task *task);
/* What went wrong on another rank, or "". */
const char *dro__ranks_error(const dro__task *task);
/* Before anything else, what determines the calls that follow: the settings as given. */
dro_status dro__ranks_begin(dro_train *t, bool resume);
/* All ranks must have the same build, settings and data: the error names the one that has not. */
dro_status dro__ranks_compare(dro_train *t);
/* Batch norm per rank: the running statistics become the mean of all ranks'. */
dro_status dro__ranks_average(dro_train *t);
/* Whether this process writes the folder: rank 0, where there is one. */
bool dro__writes(const dro_train *t);
/* Asks all ranks for something of DRO__WANT_..., and says which of it all of them have agreed on in
 * the last step; one process agrees at once. */
unsigned dro__ranks_decide(dro_train *t, unsigned wants);
void dro__ranks_done(dro_train *t, unsigned wants);

/* ---- sparse.c ---- */

/* The linear model on rows, of a stream or sparse: sets row_loss by what was given and the recipe.
 * An error where that is a loss, or a setting of one, that the rows have not. */
dro_status dro__row_loss(dro__task *task, const dro__model_choice *choice);
/* Weight vectors of the linear model on rows, one behind the other: one for each class; two
 * classes, or a real-valued target, have one. */
static inline size_t dro__row_heads(const dro__task *task)
{
    return task->outputs > 2 ? task->outputs : 1;
}
typedef struct dro__row_ids {
    const int64_t *ids; /* (count) */
    size_t count;
} dro__row_ids;
/* margins (count, heads); column (count) is overwritten. */
void dro__row_margins(const dro__task *task, const dro__row_matrix *rows, const dro__row_ids *of,
                      const float *w, float *column, float *margins);
typedef struct dro__row_truth {
    const float *y;         /* -1 and 1 of two classes, or the target */
    const int32_t *classes; /* of more than two */
} dro__row_truth;
/* losses (count); slopes (count, heads) by the margins, or NULL. */
void dro__row_losses(const dro__task *task, size_t count, const float *margins,
                     const dro__row_truth *truth, float *losses, float *slopes);
dro_status dro__sparse_open(dro__task *task, const dro__model_choice *choice);
/* One more linear model on the training rows. */
dro_status dro__sparse_model(const dro__task *task, dro_linear **model);
dro_status dro__sparse_evaluate(dro__task *task, const dro__walk *walk, size_t count,
                                const float *w, float *logits, float *losses);

/* ---- probabilities.c ---- */

dro__link dro__link_of(const dro__task *task);
/* That of the class `best`; all (classes), optional: of every class. shift: (classes) or NULL. */
double dro__probability(dro__link link, const double *shift, const float *logits, int32_t classes,
                        int32_t best, double *all);
/* From outputs to probabilities and a class. */
typedef struct dro__decision {
    dro__link link;
    const double *shift; /* (classes), borrowed, or NULL */
    bool probable;       /* the class is the most probable one; else that of the largest output */
    double threshold;    /* class `rare` is taken from this probability on; 0: there is none */
    int32_t rare;
} dro__decision;
/* The class, and its probability p; all (classes): of every class, needed where the class depends
 * on them. */
int32_t dro__decide(const dro__decision *d, const float *logits, int32_t classes, double *p,
                    double *all);
#define DRO__LEAST_SHARE 1e-12 /* of a class without examples */
/* The task's shift, by its loss and the weights of the classes in the objective (classes), or
 * NULL. */
void dro__task_shift(dro__task *task, const double *class_weights);
/* That of a weights file; net: with its loss, or NULL. */
void dro__weights_shift(const dro__weights_about *about, const dro_net *net, double *shift);

/* ---- metrics.c ---- */

enum { DRO__BINS = DRO_RELIABILITY_BINS };

/* Which objective is meant: over what it is robust, and how much. */
typedef struct dro__robust {
    double lambda;        /* of the objective; INFINITY: the mean loss */
    double weight_lambda; /* of the classes' shares of the weight */
    int32_t level;        /* DRO__TILT_EXAMPLE, _CLASS or _GROUP */
    bool uniform;         /* the prior of classes or groups */
    dro__objective other; /* kl-radius, cvar or chi2 instead of kl with lambda; mean: no */
} dro__robust;
extern const dro__robust dro__mean_loss;

/* What is added up for a class or a group; sums are over the examples' weights. */
typedef struct dro__mass {
    double mass, right, predicted; /* of all, of those predicted right, of those predicted as it */
    double loss, tilted;           /* of the losses, of exp(loss/lambda) */
} dro__mass;

typedef struct dro__tally {
    dro_metrics figures; /* points into the arrays below */
    dro__robust robust;
    dro__decision decision; /* a softmax and the largest output, where nothing else is set */
    double *per_class, *class_precision, *per_group;
    int64_t *counts, *confusion, *group_count;
    dro__mass *classes, *groups;
    double mass, loss_sum; /* of all */
    double regulariser;
    dro__tilted tilted, doubled; /* losses, with lambda and with half of it */
    dro__worst_case worst; /* after measure_finish(): of the objective; NaN where it is not known */
    double class_top;      /* of the classes' tilted */
    struct {
        double mass, sum, right; /* of all, of probabilities, of predictions that are right */
    } bins[DRO__BINS];
    double reliability[3 * DRO__BINS], curve[2 * DRO_CURVE_POINTS];
    struct {
        double squares, sizes; /* of the errors */
        double mean, spread;   /* of the targets: their mean, and the sum of squares around it */
    } real;
    double unit;             /* of real-valued targets, 0: 1 */
    float *losses, *weights; /* (loss_capacity) of the first examples */
    int64_t loss_capacity;
    /* the first examples' scores: of two classes the difference of the logits, else each class's
     * probability */
    int64_t capacity;
    float *scores;
    int32_t *truth;
    double *probabilities; /* (classes) of the example at hand */
    bool failed;           /* no memory */
} dro__tally;

/* Examples to be added: logits (count, classes) or NULL for a real-valued target; the others
 * (count), each may be NULL. */
typedef struct dro__measured {
    size_t count;
    const float *logits;
    const int32_t *labels;
    const float *losses;
    const int32_t *groups;
    const float *weights;          /* NULL: all 1 */
    const float *values, *targets; /* real-valued: predicted, and true */
} dro__measured;

/* Kept scores of an example: one number suffices for two classes. */
static inline size_t dro__tally_width(const dro__tally *m)
{
    return m->figures.classes == 2 ? 1 : (size_t)m->figures.classes;
}

/* Entries of the confusion matrix; 0: there are too many classes for one. */
static inline size_t dro__tally_matrix(const dro__tally *m)
{
    size_t classes = (size_t)m->figures.classes;
    return classes <= DRO_CONFUSION_CLASSES ? classes * classes : 0;
}

dro_status dro__measure_create(dro_context *ctx, int32_t classes, int64_t examples, int32_t groups,
                               dro__tally *m);
void dro__measure_free(dro__tally *m);
/* Forgets what was added. */
void dro__measure_reset(dro__tally *m, const dro__robust *robust);
void dro__measure_add(dro__tally *m, const dro__measured *examples);
/* The classes' shares of the weight, (classes); false when nothing was added. */
bool dro__measure_class_weights(const dro__tally *m, double *shares);
/* Computes the metrics; r is the regulariser's part of the objective. */
dro_status dro__measure_finish(dro_context *ctx, dro__tally *m, double r);

/* ---- evaluate.c ---- */

/* Called repeatedly while a split is evaluated, with the share that is done; if it returns true,
 * the evaluation ends without figures. */
typedef struct dro__poll {
    bool (*ask)(void *user, double done);
    void *user;
    dro_comm *comm; /* the ranks that share the work, or NULL */
} dro__poll;

typedef struct dro__evaluation {
    float *logits, *losses; /* (DRO__EVAL_MOST, outputs), (DRO__EVAL_MOST) */
    dro__tally splits[DRO_SPLITS];
    double *class_weights, *group_weights; /* (classes), (groups) */
    bool cut;                       /* the time was over: what the record lacks was not evaluated */
    dro__robust of_test, of_window; /* a stream's: which objectives those figures are of */
    dro_train_record record;
} dro__evaluation;

dro_status dro__evaluation_create(dro__task *task, int32_t classes, dro__evaluation *e);
void dro__evaluation_free(dro__evaluation *e);
/* Evaluates one split, divided among comm's ranks (NULL: this process alone). poll is optional. */
dro_status dro__evaluate_split(dro__task *task, dro__evaluation *e, dro_split split, const float *w,
                               double r, const dro__poll *poll);

/* ---- disk.c ---- */

#include <sys/types.h>

/* The system calls on files; tests replace them by calls that fail. */
typedef struct dro__disk_calls {
    int (*open)(const char *path, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *bytes, size_t size);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
} dro__disk_calls;
extern dro__disk_calls dro__disk;

/* Makes the folder, and those above it, where they are missing. */
dro_status dro__folder_make(dro_context *ctx, const char *folder, bool *made);
/* Locks the folder until *lock is closed, and removes the temporary files of a killed process. */
dro_status dro__folder_lock(dro_context *ctx, const char *folder, int *lock);
enum { DRO__PATH_SIZE = 4352 };
/* Replaces folder/name by what is written between begin and end: a temporary file, fsync, rename,
 * fsync of the folder. keep (optional): the old file is renamed to folder/keep first. Whatever
 * fails, a whole old file is there. After begin, end is always called; status: of the writing. */
typedef struct dro__new_file {
    dro_context *ctx;
    const char *folder; /* borrowed until the end */
    int fd;
    bool keep;
    char path[DRO__PATH_SIZE], kept[DRO__PATH_SIZE], temporary[DRO__PATH_SIZE + 8];
} dro__new_file;
dro_status dro__file_begin(dro_context *ctx, const char *folder, const char *name, const char *keep,
                           dro__new_file *file);
dro_status dro__file_write(dro__new_file *file, const void *bytes, size_t size);
dro_status dro__file_end(dro__new_file *file, dro_status status);
/* All three, without keep. */
dro_status dro__file_replace(dro_context *ctx, const char *folder, const char *name,
                             const void *bytes, size_t size);
/* Truncates the file to `offset`, appends, and fsyncs. DRO_ERR_FORMAT: the file is shorter than
 * `offset`, or does not exist. */
dro_status dro__file_append(dro_context *ctx, const char *folder, const char *name, uint64_t offset,
                            const void *bytes, size_t size);
/* plain, if not NULL: it is a file and no link, pipe or device. */
bool dro__file_at(const char *folder, const char *name, bool *plain);
/* All of it, freed with dro__free. *bytes is NULL when there is no such file. */
dro_status dro__file_read(dro_context *ctx, const char *folder, const char *name, char **bytes,
                          size_t *size);

/* ---- checkpoint.c ---- */

/* The run's own state, besides the optimiser's: plain data. */
typedef struct dro__progress {
    uint64_t evaluated, evaluated_step; /* evaluations so far, and the step of the last one */
    uint64_t metrics_bytes;             /* length of metrics.jsonl */
    uint64_t events_bytes;              /* of TensorBoard's file */
    double seconds, wall;
    double first_loss, first_objective, smooth_loss; /* of batches, to see divergence */
    uint64_t above;    /* steps with the loss and F above their start, less those below */
    uint64_t halvings; /* of eta */
    uint64_t returned_to,
        returns; /* the step of the checkpoint gone back to last, how often in a row */
    uint64_t have_best, best_step, since_best;
    double best, best_epoch;
} dro__progress;

typedef struct dro__saved {
    dro__progress progress;
    char *settings; /* what the run was made with */
    char *machine;  /* "backend=cpu threads=2 instructions=x86-64-v4", at the checkpoint */
    float *statistics, *best_w, *best_statistics; /* host memory */
    size_t dim, statistics_count;                 /* best_w: NULL when there is none */
    void *state; /* the optimiser's; of a run that has not begun, as in a file: none */
    size_t state_size;
    dro_optimizer *opt; /* to write its state without a copy; NULL: `state` */
    void *more;         /* the progressive run's */
    size_t more_size;
} dro__saved;

dro_status dro__checkpoint_write(dro_context *ctx, const char *folder, const dro__saved *saved);
/* A checkpoint as bytes, freed with dro__free, and back. */
dro_status dro__checkpoint_pack(dro_context *ctx, const dro__saved *saved, char **bytes,
                                size_t *size);
dro_status dro__checkpoint_unpack(dro_context *ctx, const char *name, const char *bytes,
                                  size_t size, dro__saved *saved);
/* The newest whole one of last.ckpt and previous.ckpt; *found is false when there is none at all.
 * note: what was wrong with the newer one, or "". */
dro_status dro__checkpoint_read(dro_context *ctx, const char *folder, dro__saved *saved,
                                bool *found, char note[DRO__ERROR_SIZE]);
void dro__saved_free(dro__saved *saved);
/* (ranks.c) Rank 0's to all; status: of its reading. */
dro_status dro__ranks_share_saved(dro_train *t, dro__saved *saved, bool *found, dro_status status);
bool dro__checkpoint_exists(const char *folder);

/* ---- record.c ---- */

char *dro__config_text(const dro_train *t);
/* "name=value" lines of all that decides what the weights will be. */
char *dro__identity_text(const dro_train *t);
/* Checksum of all that a split holds; 0 where it is not in memory (streams, image files). */
uint64_t dro__sum_of_split(const dro__task *task, dro_split split);
char *dro__metrics_text(const dro_train *t);
char *dro__result_text(const dro_train *t);
char *dro__figures_text(const dro_train *t); /* of the splits */
bool dro__json_works(void);
char *dro__names_text(const char *const *names, int32_t count); /* a JSON list */

/* ---- weights.c ---- */

void dro__loss_text(const dro__task *task, char *text, size_t size);

/* The task's weights (dim) and the network's statistics to a file with its metadata. */
dro_status dro__weights_save(dro__task *task, const char *folder, const char *name, const float *w,
                             const float *statistics);
dro_status dro__weights_about_read(dro_context *ctx, const char *path, dro__weights_about *about);
void dro__weights_about_free(dro__weights_about *about);
/* The tensor of a linear model on sparse rows, `count` numbers. */
dro_status dro__weights_rows(dro_context *ctx, const char *path, float *w, size_t count);
/* The loss that the weights were trained with, for a network before it is ready. */
dro_status dro__weights_loss(const dro__weights_about *about, dro_net *net);

/* ---- run.c ---- */

/* A moment of a run. */
typedef struct dro__mark {
    uint64_t examples; /* drawn until then */
    double seconds;    /* of training */
} dro__mark;

/* Durations that this process has measured; what max_time leaves out depends on them. */
typedef struct dro__costs {
    double step;    /* seconds of the last step; 0: none yet */
    double example; /* of an example that was evaluated; 0: none yet */
    double byte;    /* of a byte of the checkpoint or weights written last; 0: none yet */
} dro__costs;

/* Which weights are in weights.safetensors and last.safetensors. */
typedef struct dro__written {
    bool any;
    uint64_t step, best_step;
} dro__written;

struct dro_train {
    dro_context *ctx;
    dro_comm *comm;          /* borrowed, or NULL */
    dro_settings *settings;  /* of the next run, or of the one under way */
    dro__train_settings set; /* the run's own of them, since it began */

    /* of the run */
    dro__task task;
    dro_optimizer *opt;
    dro__evaluation evaluation;
    dro__progress progress;
    float *w, *statistics, *best_w, *best_statistics; /* host memory */
    uint64_t steps;                                   /* of both stages */
    uint64_t second_steps;                            /* of the second */
    const char *folder;
    int lock; /* of the folder, during a run; else -1 */
    bool running;
    dro_train_watch watch;
    double began, before; /* the clock when this process began, and the wall time before it */
    double saved_at;      /* the clock at the last checkpoint */
    dro__mark warm;       /* after this process's first step, which takes longer than others */
    dro__written written; /* by this process */
    dro__costs costs;
    double assessed; /* seconds that the last whole evaluation took, 0: there was none */
    dro_train_end ended;
    bool open, have_record, resuming; /* resuming: from a checkpoint */
    bool made, begun;                 /* by this call: the folder, its files */
    bool planned;                     /* by this call: the plan was reported */
    bool trial;                       /* model=auto: one of the runs that decide */
    int reported;                     /* notes of the data */
    size_t reported_pieces;           /* the size of pieces that was reported */
    char *config, *result, *identity;
    char *last; /* figures of the last weights, where the record is of the best; or NULL */
    struct dro__stream_run *stream; /* progressive */
};

double dro__clock(void);
/* Whether a run may begin, or be resumed, in its folder. */
dro_status dro__run_check_folder(const dro_train *t, bool resume);
double dro__wall(const dro_train *t);
double dro__epoch_of(const dro_train *t, uint64_t step);
/* evaluating: a split, of which `done` is evaluated; or NULL. True: stop. */
bool dro__report_progress(const dro_train *t, const char *evaluating, double done);
bool dro__is_tilted(const dro_train *t); /* log_u is that of the objective */
/* stage2: gives the network the loss of that step. */
dro_status dro__run_stage(dro_train *t, uint64_t step);
/* The time of dro__clock() at which max_time has passed, 0: there is none. */
double dro__time_limit(const dro_train *t);
/* max_time has passed, or will when `seconds` more have. */
bool dro__time_is_over(const dro_train *t, double seconds);
/* Seconds to write what a run that ends here has to write yet. */
double dro__time_to_write(const dro_train *t);
/* Seconds to evaluate an example, from what was evaluated or else from the steps; 0: not known. */
double dro__time_of_example(const dro_train *t);
/* Counts what was written since `start`. */
void dro__count_written(dro_train *t, double bytes, double start);
dro_status dro__run_begin(dro_train *t);  /* a fresh optimiser, started */
dro_status dro__run_anew(dro_train *t);   /* and the network as before the first step */
dro_status dro__run_record(dro_train *t); /* evaluates, writes nothing */
/* The objective that F is reported for. */
dro__robust dro__objective_of(const dro_train *t);
/* kl-radius, cvar or chi2, where the settings say that F is that; mean: no. */
dro__objective dro__other_objective(const dro_train *t);
/* Adds a note if F was measured with another objective than that of the last step. */
void dro__note_objective(const dro_train *t, const dro__robust *measured);
const char *dro__level_text(const dro__robust *robust); /* "examples", "classes" or "groups" */
/* The record's class_weights and group_weights; over: what the classes' are counted over, or
 * NULL. */
void dro__record_weights(dro_train *t, const dro__tally *over);
void dro__note(const dro_train *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The optimiser with the run's defaults and the user's settings. */
dro_status dro__make_optimizer(dro_train *t);
dro_status dro__run_save(dro_train *t);
dro_status dro__run_load(dro_train *t, bool *found);
/* After a failure before the first example: removes the files of a run that this call began, so
 * that the next try can use the folder. */
void dro__run_forget(dro_train *t);
dro_status dro__run_write_weights(dro_train *t);
/* The running statistics that belong to dro_optimizer_weights(): the network's or, with ema, their
 * average. */
dro_status dro__run_statistics(const dro_train *t, float *to);
/* With best: the record becomes that of the best weights, unless they are the last. */
dro_status dro__run_score_best(dro_train *t);
/* Both leave have_record false when the watch stops them. */
dro_status dro__run_evaluate(dro_train *t);
/* Writes evaluation.record as a line of metrics.jsonl and as an event, and reports it. */
dro_status dro__run_write_line(dro_train *t);
/* A new metrics.jsonl and a new event file; both cut to where the checkpoint was. */
dro_status dro__run_begin_files(dro_train *t);
dro_status dro__run_cut_files(dro_train *t);

/* ---- divergence.c ---- */

/* DRO_ERR_NUMBER: the last batch's loss, or the last evaluation, shows that the run has
 * diverged. */
dro_status dro__watch_step(dro_train *t);
dro_status dro__watch_record(dro_train *t);
/* F of predicting the same for every example: equal probabilities, or the mean of the targets; NaN
 * where it is not known. */
double dro__constant_objective(const dro_train *t);
/* What sets kl's lambda: "lambda=", or "objective=kl:" where the objective was given. */
const char *dro__lambda_words(const dro_train *t);
/* A milder objective, as in "a larger ALPHA"; "" where it is mild. */
void dro__advise_objective(const dro_train *t, char *text, size_t size);
/* After a DRO_ERR_NUMBER: back to the last checkpoint, or to the start when that one is bad, with
 * half the step; or the end of the run. */
dro_status dro__return_from_divergence(dro_train *t);

/* ---- progressive.c ---- */

dro_status dro__progressive_open(dro_train *t); /* the stream and a task for it */
void dro__progressive_close(dro_train *t);
dro_status dro__stream_save(dro_train *t, void **bytes, size_t *size);
dro_status dro__stream_load(dro_train *t, void *bytes, size_t size);
dro_status dro__stream_train(dro_train *t);
/* As dro__spread_options.cut, of a stream's batch. */
void dro__stream_cut(void *user, const dro_batch *batch, size_t first, size_t count,
                     dro_batch *part);

#endif
