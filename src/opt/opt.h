/* opt: the optimisers. Sees base and backend only.
 *
 * An optimiser is one file opt_NAME.c that defines `dro__optimizer_NAME` and one line in
 * optimizers.def. Its arithmetic is phases (backend/step.h), which the backends run: the losses of
 * a batch become coefficients, elements of vectors move, scalars settle. Here is what the host
 * does: settings, schedules, draws, calls of the problem, and the state.
 *
 * The state is two structs of plain data (dro__run, which the host alone changes, and dro__scalars,
 * which the phases change) and a table of rows (vectors and arrays). Saving and loading, rolling
 * back a step and sending the state to a device walk these; the dual variable of the
 * primal-dual methods and the exact solvers have an `archive` of their own. A refused step changes
 * nothing: structs and small rows are copied before a step and restored; vectors are written only
 * after every number has been checked. */
#ifndef DRO_OPT_H
#define DRO_OPT_H

#include "backend.h"
#include "full.h"
#include "objective.h"

#include <dro/optimizer.h>

/* ---- settings shared by the optimisers; the tables are in settings.c ---- */

typedef int32_t dro__tilt_level; /* DRO__TILT_NONE ... */

enum { DRO__ORDER_SHUFFLE, DRO__ORDER_UNIFORM, DRO__ORDER_SEQUENTIAL };
enum { DRO__PRECONDITION_NONE, DRO__PRECONDITION_RMS, DRO__PRECONDITION_ADAM };
enum { DRO__FORM_ONE_PASS, DRO__FORM_TWO_POINT };
enum { DRO__OUTPUT_LAST, DRO__OUTPUT_RANDOM };
enum { /* the words of eta_schedule, lambda_schedule and a_schedule, in order */
       DRO__SCHEDULE_CONSTANT,
       DRO__SCHEDULE_POLY,
       DRO__SCHEDULE_STEP,
       DRO__SCHEDULE_THEORY,
       DRO__SCHEDULE_COSINE,
       DRO__SCHEDULE_AUTO
};
enum { DRO__SWITCH_SAME, DRO__SWITCH_FIRST }; /* switch_tilt: same, then the words of tilt */
enum { DRO__SAMPLE_BY_P, DRO__SAMPLE_UNIFORM };

typedef struct dro__schedule {
    double value;
    int32_t kind;  /* constant, poly, step, theory, cosine */
    double end;    /* cosine: the last value */
    double start;  /* warm-up: the first value */
    double warmup; /* steps; below 1 a share of the planned steps */
    double factor; /* step: the divisor per stage */
} dro__schedule;

typedef struct dro__optimizer_settings {
    dro__schedule eta, lambda, a;
    int64_t steps;
    dro__list stages;
    double poly_start, poly_power, theory_mu, theory_factor;
    int64_t batch, seed;
    int32_t order, output;
    double weight_decay, ema;
    int32_t reg;
    double reg_strength, reg_ratio, reg_low, reg_high, reg_radius;
    int64_t reg_block;
    /* tilt */
    int32_t tilt, group_prior, switch_tilt;
    double switch_step;
    double switch_lambda, cap;
    char objective[DRO__TEXT_MAX];
    double gamma, heaviest;
    /* variance reduction */
    int32_t a_rule, form;
    double a_c, a_min, guard;
    /* momentum and preconditioner */
    int32_t precondition;
    double momentum, beta2, epsilon, longest;
    /* sharpness-aware steps */
    double sam;
    int32_t sam_over;
} dro__optimizer_settings;

extern const dro__param_row dro__params_common[];    /* every optimiser */
extern const dro__param_row dro__params_tilt[];      /* those that solve the robust problem */
extern const dro__param_row dro__params_objective[]; /* those that take every objective */
extern const dro__param_row dro__params_batch[];     /* and weigh a batch by an average */
extern const dro__param_row dro__params_storm[];     /* cover, recover */
extern const dro__param_row dro__params_scale[];     /* those with momentum and a preconditioner */
extern const dro__param_row dro__params_sam[];       /* sgd, recover */

#define DRO__REAL(name, field, type, fallback, low, high, meaning)                                 \
    {                                                                                              \
        {name, DRO_PARAM_REAL, fallback, low, high, NULL, meaning}, offsetof(type, field)          \
    }
#define DRO__INTEGER(name, field, type, fallback, low, high, meaning)                              \
    {                                                                                              \
        {name, DRO_PARAM_INTEGER, fallback, low, high, NULL, meaning}, offsetof(type, field)       \
    }
#define DRO__CHOICE(name, field, type, fallback, choices, meaning)                                 \
    {                                                                                              \
        {name, DRO_PARAM_CHOICE, fallback, 0, 0, choices, meaning}, offsetof(type, field)          \
    }
#define DRO__LIST(name, field, type, fallback, low, high, meaning)                                 \
    {                                                                                              \
        {name, DRO_PARAM_LIST, fallback, low, high, NULL, meaning}, offsetof(type, field)          \
    }
#define DRO__PARAMS_END                                                                            \
    {                                                                                              \
        {NULL, DRO_PARAM_REAL, NULL, 0, 0, NULL, NULL}, 0                                          \
    }

/* Rows whose default differs between optimisers. */
#define DRO__SCHEDULES "constant|poly|step|theory|cosine|auto"
#define DRO__ETA_SCHEDULE(usual)                                                                   \
    DRO__CHOICE("eta_schedule", eta.kind, dro__optimizer_settings, usual, DRO__SCHEDULES,          \
                "schedule of eta: poly is COVER's (Theorem 1), theory RECOVER's (Theorem 2), "     \
                "auto: cosine where steps is set, else poly")
#define DRO__WARMUP(usual)                                                                         \
    DRO__REAL("warmup", eta.warmup, dro__optimizer_settings, usual, 0, 1e15,                       \
              "steps in which eta rises linearly from 0; below 1, a share of steps")
#define DRO__STAGES(usual)                                                                         \
    DRO__LIST("stages", stages, dro__optimizer_settings, usual, 0, 1e15,                           \
              "steps at which a new stage begins; below 1, shares of steps (none if steps is 0)")

/* ---- the optimiser ---- */

/* What the host counts; saved with the state and put back when a step fails. Plain data that
 * begins as zeros. */
typedef struct dro__run {
    uint64_t step, examples, evaluations, position, draws;
    uint64_t waits; /* 1: a batch waits that was evaluated at the old point already */
    uint64_t waiting_position, waiting_count;
    uint64_t within, stages,
        big; /* methods in stages: steps in this one, stages so far; civr: its big batch */
    uint64_t drawn, p_terms, keep_p; /* primal-dual methods (primal_dual.h) */
    double eta_scale;                /* eta is its schedule's times this */
    double value, gradient, gap;     /* of the exact solvers: F and how near it is to the minimum */
} dro__run;

/* A vector in the backend's memory, or an array in the host's. */
typedef struct dro__row {
    void **data; /* where the pointer is: two rows may swap theirs */
    size_t bytes;
    bool on_host, saved,
        undone;   /* saved: part of the state, else scratch; undone: by a refused step */
    void *before; /* undone: (bytes) its value before the current step */
} dro__row;

enum { DRO__ROWS = 24 };

/* What an asynchronous step began with, for those that may still be under way. */
enum { DRO__PAST_STEPS = 8 };

typedef struct dro__past_step {
    dro__run run;
    uint64_t positions[2], counts[2]; /* of the parts */
} dro__past_step;

/* Steps on losses and gradients that the caller brings (lent.c). */
typedef struct dro__lent {
    const dro__phases *phases; /* the module's, NULL: host memory */
    void *live;                /* the module's */
    void *stream;
    char *scalars;                /* of the device */
    void *device_rows[DRO__ROWS]; /* of the device, for each row */
    double *shares;               /* of the device: (group_capacity) */
    int32_t shares_level;         /* the level that they are of */
    bool open, twice;             /* a step has begun; it evaluates its batch twice */
    int weighed;                  /* how often it was weighed, which changes the state */
    bool have;                    /* there is an estimate, */
    int32_t level;                /* at this level */
    size_t count;                 /* examples of the batch, once they are known */
    uint64_t queued;              /* steps since the state went to the device */
    uint64_t ended, reported;     /* all steps; those whose refusals have been reported */
} dro__lent;

typedef struct dro__optimizer_class {
    const char *name, *summary;
    const dro__param_row *tables[DRO__TABLE_MAX];
    size_t settings_size;
    size_t vectors; /* vectors as long as w that a run needs at most, w included */
    bool composite; /* takes general compositional problems */
    bool robust;    /* has the tilt's settings */
    bool groups;    /* takes tilt=class and tilt=group */
    bool needs_n;   /* keeps something per example */
    bool async;     /* its steps can be asynchronous */
    bool exact;     /* each step is over all examples, and the method stops at the minimum */

    /* (optional) Checks settings against each other, before anything is allocated. */
    dro_status (*check)(dro_optimizer *o);
    /* Fills o->k.plan, makes the rows. */
    dro_status (*start)(dro_optimizer *o);
    void (*stop)(dro_optimizer *o); /* (optional) frees what is not a row */
    /* One update of w. Vectors are written last, when nothing can fail any more. */
    dro_status (*step)(dro_optimizer *o);
    /* (optional) How many steps draw so many examples, if that is not one batch for each step. */
    uint64_t (*steps_for)(const dro_optimizer *o, uint64_t examples);
    /* (optional) Forget the batch that is waiting; it was refused. */
    void (*drop)(dro_optimizer *o);
    /* (optional) Walks over what is neither o->run, o->s nor a row, and checks what was loaded. */
    void (*archive)(dro_optimizer *o, dro__archive *ar);
    /* (optional) Weights of the classes or groups, where the phases do not have them. */
    size_t (*weights)(const dro_optimizer *o, double *q, size_t count);
} dro__optimizer_class;

enum { DRO__SLOTS = 3, DRO__HOLES = 64 };
#define DRO__GATHERED UINT64_MAX /* the position of a batch that was gathered by id */

struct dro_optimizer {
    dro_context *ctx;
    const dro__backend *be; /* of the vectors: dro__backend_for() */
    const dro__optimizer_class *cls;
    dro_problem problem; /* unused when composite is set */
    dro_composite composite;
    dro__abilities able; /* of the problem */
    bool is_composite;
    size_t dim;
    int64_t n;
    dro__objective objective; /* of the settings */
    double stretch;           /* factor of eta, for a direction that averages gradients */
    void *settings;           /* begins with dro__optimizer_settings */
    bool started, stepping;   /* stepping: a callback of the problem is running */
    /* the state */
    dro__run run, run_before; /* before: its value before the current step */
    dro__scalars s, s_before;
    dro__row rows[DRO__ROWS];
    int row_count;
    void *extra; /* what an optimiser has besides rows */
    /* what the phases see; its vectors, groups and losses are rows */
    dro__step k;
    dro__ticket ticket;
    int32_t *group_of; /* (2 * slot_size) */
    float *w_old;      /* form=two-point: (dim) */
    float *statistics; /* (statistics_count) in the backend's memory: averaged with w; or NULL */
    size_t statistics_count;
    struct dro__second {
        uint64_t steps;      /* of the second stage */
        size_t first, count; /* the weights that it moves */
    } second;
    uint64_t second_begins; /* its first step */
    uint64_t ends;          /* the planned number of steps after drawing tau, UINT64_MAX: no end */
    uint64_t boundaries[DRO__LIST_MAX]; /* the step at which each stage ends */
    int boundary_count;
    int64_t *blocks; /* group lasso: (block_count + 1) offsets */
    size_t block_count;
    /* ids of the batches in flight, when the library draws */
    double *weight_sums; /* (n + 1) of the example weights, or NULL */
    size_t slot_size;
    int64_t *slot_ids[DRO__SLOTS];
    int32_t *slot_classes[DRO__SLOTS], *slot_groups[DRO__SLOTS];
    dro_batch waiting; /* the batch that waits, */
    bool live;         /* if it can be used; otherwise it is drawn again */
    bool failed;       /* the last step failed: batches in flight must be drawn again */
    /* the batch that was refused */
    bool refused;
    bool sweeping; /* it was one of many in a big batch, or in a pass over all examples */
    uint64_t refused_position;
    size_t refused_count;
    /* batches that skip() has taken out of the big batch of the step to come */
    uint64_t hole[DRO__HOLES];
    size_t hole_size[DRO__HOLES], big;
    size_t fine; /* chunks of this size, 0: as large as they may be */
    int holes;
    /* asynchronous steps (async.c): the state is on the device; steps since it went; an error
     * that came late */
    const dro__async *async; /* NULL: steps are driven by the host */
    bool away;
    dro__tilt_level pushed_level;
    uint64_t queued;
    dro__past_step past[DRO__PAST_STEPS];
    dro_status late;
    char late_text[DRO__ERROR_SIZE];
    dro__lent lent;
};

static inline dro__optimizer_settings *dro__settings_of(const dro_optimizer *o)
{
    return (dro__optimizer_settings *)o->settings;
}

/* The running estimate of the objective, without r(w). */
double dro__estimate(const dro_optimizer *o);
/* The present lambda, threshold and radius of the objective, as in dro_info; NaN where it has
 * none. */
typedef struct dro__reached {
    double lambda, threshold, radius;
} dro__reached;
dro__reached dro__reached_of(const dro_optimizer *o);
/* The effective sample size of the last batch, a share, at least what the objective allows. */
double dro__effective_of(const dro_optimizer *o);
/* The steps that draw so many examples. */
uint64_t dro__steps_for(const dro_optimizer *o, uint64_t examples);
/* The class's `vectors`; 0: there is none of this name. */
size_t dro__optimizer_vectors(const char *name);
/* Its tables of parameters, NULL if there is no such optimiser. */
const dro__param_row *const *dro__optimizer_tables(const char *name);
/* Before start: numbers in the backend's memory that the problem changes with each step and that
 * `ema` averages as it does w (running statistics). */
void dro__optimizer_statistics(dro_optimizer *o, float *numbers, size_t count);
/* Before start: requests a second stage after the planned steps. It updates only some of the
 * weights, on the mean loss; its step size starts again at eta and follows a cosine. */
void dro__optimizer_second(dro_optimizer *o, const struct dro__second *second);
/* Whether dro_optimizer_weights() are an average; if so, the average of the statistics: read, and
 * replace. */
bool dro__optimizer_averages(const dro_optimizer *o);
dro_status dro__optimizer_statistics_get(const dro_optimizer *o, float *average);
dro_status dro__optimizer_statistics_set(dro_optimizer *o, const float *average);
/* Before start: all settings at their defaults again. */
dro_status dro__optimizer_reset(dro_optimizer *o);
bool dro__optimizer_exact(const char *name); /* the class's `exact` */

#define OPTIMIZER(name) extern const dro__optimizer_class dro__optimizer_##name;
#include "optimizers.def"
#undef OPTIMIZER

/* ---- helpers.c: draws, evaluations with checks, memory ---- */

/* Checks the example weights, and makes what they are drawn by. */
dro_status dro__weights_create(dro_optimizer *o);
/* The most examples one draw may ask for; called once in start(). */
dro_status dro__slots_create(dro_optimizer *o, size_t most);
/* The next `count` examples, fewer at the end of a stream; advances run.position and
 * run.examples. */
dro_status dro__draw_next(dro_optimizer *o, size_t count, dro_batch *batch);
/* All of them, or DRO_ERR_END: a part of a big batch, whose size is known beforehand. */
dro_status dro__draw_whole(dro_optimizer *o, size_t count, dro_batch *batch);
/* The same batch again, from its position; counts nothing. */
dro_status dro__draw_again(dro_optimizer *o, uint64_t position, size_t count, dro_batch *batch);
dro_status dro__gather(dro_optimizer *o, const int64_t *ids, size_t count, dro_batch *batch);
/* A big batch begins at the current position. dro__big_size subtracts the examples that skip() has
 * removed from its *total. dro__big_next returns the size of the next chunk of the *left examples
 * that remain (0: none), and moves the position past removed ones. */
dro_status dro__big_size(dro_optimizer *o, size_t *total);
size_t dro__big_next(dro_optimizer *o, size_t *left);
/* Removes the refused chunk from the big batch; a large chunk is first divided. */
dro_status dro__big_skip(dro_optimizer *o);

/* Call the problem, count evaluations, refuse what is not finite. */
dro_status dro__forward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                        float *losses);
dro_status dro__backward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         const float *coef, float *const *grads);
dro_status dro__evaluate(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         double *g, float *const *jacobian);
/* Refuses what is not finite: a batch's losses at its position, a gradient. */
dro_status dro__check_losses(dro_optimizer *o, const dro_batch *batch, const float *losses);
dro_status dro__check_gradient(dro_optimizer *o, const dro_batch *batch, const float *grad,
                               size_t n);
/* Marks the batch as the one that skip() is to pass over; returns DRO_ERR_NUMBER. */
dro_status dro__refuse(dro_optimizer *o, const dro_batch *batch);
/* f and f'(u), refused when not finite. */
dro_status dro__outer(dro_optimizer *o, const double *u, double *value, double *gradient);

/* Copies between a vector and host memory. */
static inline dro_status dro__vector_in(const dro_optimizer *o, void *to, const void *from,
                                        size_t bytes)
{
    return dro__copied(o->ctx, o->be, o->be->copy_in(to, from, bytes));
}

static inline dro_status dro__vector_out(const dro_optimizer *o, void *to, const void *from,
                                         size_t bytes)
{
    return dro__copied(o->ctx, o->be, o->be->copy_out(to, from, bytes));
}

/* A row of the table: a vector of n floats in the backend's memory, or n elements of `size` bytes
 * in the host's; zeros. saved: part of the state. undone: put back when a step is refused (arrays
 * of the host only). */
dro_status dro__vector(dro_optimizer *o, size_t n, bool saved, float **vector);
dro_status dro__array(dro_optimizer *o, size_t n, size_t size, unsigned flags, void *array);
enum { DRO__SAVED = 1, DRO__UNDONE = 2 };
void dro__rows_free(dro_optimizer *o);
void dro__rows_keep(dro_optimizer *o); /* before a step */
void dro__rows_undo(dro_optimizer *o); /* it was refused */
void dro__rows_archive(dro_optimizer *o, dro__archive *ar);
/* The state without the checksum that dro_optimizer_save() adds: for a file that has its own. A
 * failure to save is in the archive. */
void dro__optimizer_put(dro_optimizer *o, dro__archive *ar);
size_t dro__optimizer_put_size(dro_optimizer *o);
dro_status dro__optimizer_take(dro_optimizer *o, const void *bytes, size_t size);
/* Losses and coefficients of at most `most` examples. */
dro_status dro__losses_create(dro_optimizer *o, size_t most);
/* The most examples one call may take: what the problem allows, or 4096. */
size_t dro__chunk(const dro_optimizer *o, size_t want);
/* Whether `parts` batches fit into one call; says what to do when they do not. */
dro_status dro__check_parts(dro_optimizer *o, size_t parts);

/* ---- step.c: the phases, driven by the host or handed to the device ---- */

/* The whole of a step of o->k.plan over parts that were drawn. */
dro_status dro__take_step(dro_optimizer *o, const dro_batch *parts, int count);
/* Its end, from gradients that were checked. */
void dro__finish_step(dro_optimizer *o);
/* After a step that the host has driven: updates the average of the weights and of the
 * statistics. */
void dro__average(dro_optimizer *o);
/* A step of one batch, and what it needs: slots, losses, groups, the gradient. */
dro_status dro__plain_step(dro_optimizer *o);
dro_status dro__plain_start(dro_optimizer *o, dro__phase weigh, dro__move_kind move);
/* The same with weights by an average of the batches before, and a guarded step (backend/weigh.h):
 * sgd's and adamw's way to a robust objective. scaled: by the second moment. */
dro_status dro__tilted_start(dro_optimizer *o, bool scaled);
/* Momentum and preconditioner as the settings ask: `moments`, then the scaled step. Where they ask
 * for neither, the plan stays as it is. */
dro_status dro__scale_create(dro_optimizer *o, dro__move_kind moments);
void dro__swap(float **a, float **b);
/* One phase over losses: the parts it is about, whose classes or groups are checked. */
dro_status dro__weigh(dro_optimizer *o, dro__phase phase, const dro_batch *parts, int count);
/* out = prox( plus x[0] + sum of c[k] x[k] ); prox: with r(w), for a step of eta. */
typedef struct dro__combination {
    float *out;
    const float *x[DRO__INPUTS];
    double c[DRO__INPUTS], eta;
    bool plus, prox;
} dro__combination;
void dro__combine(dro_optimizer *o, const dro__combination *c);
/* w - eta (direction + weight_decay w), with r(w), into `to`. */
void dro__descend(dro_optimizer *o, const float *direction, float *to);

dro_status dro__reg_create(dro_optimizer *o); /* (prox.c) checks, block offsets */
/* The part of r(w) that is not elementwise, in place. */
void dro__reg_blocks(dro_optimizer *o, float *w, double eta);
double dro__reg_value(const dro_optimizer *o, const float *w);
/* What r(w) counts of weight i. */
static inline double dro__reg_share(const dro_optimizer *o, size_t i)
{
    return i - o->problem.reg_free_first < o->problem.reg_free_count ? DRO__REG_FREE : 1;
}

/* ---- tilt.c: the levels of the tilt ---- */

/* o->objective, from the settings. */
dro_status dro__objective_update(dro_optimizer *o);
/* Whether it is the mean loss that is minimised. */
bool dro__is_mean(const dro_optimizer *o);
/* Checks what the settings ask of the problem; makes the groups. */
dro_status dro__tilt_create(dro_optimizer *o);
/* Puts the tilt's level of this step into the ticket. */
void dro__tilt_ticket(dro_optimizer *o);
/* The class or group of each example of a part, checked; NULL where the tilt is over examples. */
dro_status dro__tilt_labels(dro_optimizer *o, const dro_batch *batch, const int32_t **labels);
/* q of the groups, at most count; how many there are, 0 when the tilt is not over groups. */
size_t dro__tilt_weights(const dro_optimizer *o, double *q, size_t count);

/* ---- async.c ---- */

/* At the end of start(): from now on steps may run on the device, if the problem and the plan allow
 * it. */
void dro__async_open(dro_optimizer *o);
/* At the beginning of a step: reports the error of an earlier one, and copies the state back to the
 * host where that is needed. */
dro_status dro__async_begin(dro_optimizer *o);
dro_status dro__async_step(dro_optimizer *o, const dro_batch *parts, int count);
/* Waits until the steps that were queued are done; w is then as they left it. */
dro_status dro__async_wait(const dro_optimizer *o);
/* Waits until the state is here. */
dro_status dro__async_pull(dro_optimizer *o);
/* Settles; from here on steps are driven by the host. */
dro_status dro__async_leave(dro_optimizer *o);

/* ---- lent.c ---- */

/* Copy the state from the device, if it is there (only the scalars, or all of it), and to it. */
dro_status dro__lent_pull(dro_optimizer *o, bool all);
dro_status dro__lent_push(dro_optimizer *o);
void dro__lent_close(dro_optimizer *o);

/* ---- schedule.c ---- */

/* Fixes where stages and the run end (drawing tau for output=random). */
void dro__clock_start(dro_optimizer *o);
/* A number of steps; below 1 it is a share of those planned. */
double dro__as_steps(const dro__optimizer_settings *set, double value);
double dro__lambda(const dro_optimizer *o); /* of the present step */
dro__tilt_level dro__level(const dro_optimizer *o);
double dro__lambda_at(const dro_optimizer *o, uint64_t t); /* of step t */
dro__tilt_level dro__level_at(const dro_optimizer *o, uint64_t t);
bool dro__last_step(const dro_optimizer *o);

/* Reads the schedules for this step into the ticket. */
void dro__begin_step(dro_optimizer *o);

#endif
