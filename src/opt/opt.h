/* opt: the optimisers, written once over backend vectors. Sees base and backend only.
 *
 * An optimiser is one file opt_NAME.c that defines `dro__optimizer_NAME` and one line in
 * optimizers.def. Its settings struct begins with dro__settings, its state struct is plain data and
 * pointers: before a step it is copied, and when the step fails the copy is put back. That, and the
 * rule that vectors are written only after every number has been checked, is why a refused step
 * leaves no trace. */
#ifndef DRO_OPT_H
#define DRO_OPT_H

#include "backend.h"
#include "queue.h"

/* ---- settings shared by the optimisers; the tables are in settings.c ---- */

typedef enum dro__tilt_level {
    DRO__TILT_NONE,
    DRO__TILT_EXAMPLE,
    DRO__TILT_CLASS,
    DRO__TILT_GROUP
} dro__tilt_level;

enum {
    DRO__REG_NONE,
    DRO__REG_L2,
    DRO__REG_L1,
    DRO__REG_ELASTIC,
    DRO__REG_GROUP,
    DRO__REG_BOX,
    DRO__REG_BALL
};
enum { DRO__A_AUTO, DRO__A_FIXED, DRO__A_ETA2 };
enum { DRO__ORDER_SHUFFLE, DRO__ORDER_UNIFORM, DRO__ORDER_SEQUENTIAL };
enum { DRO__FORM_ONE_PASS, DRO__FORM_TWO_POINT };
enum { DRO__SAMPLE_BY_P, DRO__SAMPLE_UNIFORM };

typedef struct dro__schedule {
    double value;
    int32_t kind;  /* constant, poly, step, theory, cosine */
    double end;    /* cosine: the last value */
    double start;  /* warm-up: the first value */
    double warmup; /* steps; below 1 a share of the planned steps */
    double factor; /* step: the divisor per stage */
} dro__schedule;

typedef struct dro__settings {
    dro__schedule eta, lambda, a;
    int64_t steps;
    dro__list stages;
    double poly_start, poly_power, theory_mu, theory_factor;
    int64_t batch, seed;
    int32_t order, output;
    double weight_decay;
    int32_t reg;
    double reg_strength, reg_ratio, reg_low, reg_high, reg_radius;
    int64_t reg_block;
    /* tilt */
    int32_t tilt, group_prior, switch_tilt;
    double switch_step;
    double switch_lambda, cap;
    /* variance reduction */
    int32_t a_rule, form;
    double a_c, a_min, guard;
} dro__settings;

extern const dro__param dro__params_common[]; /* every optimiser */
extern const dro__param dro__params_tilt[];   /* those that solve the robust problem */
extern const dro__param dro__params_storm[];  /* cover, recover */

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

/* ---- the optimiser ---- */

/* What every run counts; saved with the state and put back when a step fails. */
typedef struct dro__run {
    uint64_t step, examples, evaluations, position, draws;
    double eta, lambda, a, loss, log_u, largest_weight, effective;
    uint64_t caps, floors, fresh_starts;
    uint64_t level; /* of the tilt */
} dro__run;

/* What a step on a device began with, for those that may still be under way (backend/queue.h). */
enum { DRO__TRAIL = 8 };

typedef struct dro__trail_part {
    uint64_t position;
    size_t count;
} dro__trail_part;

typedef struct dro__trail {
    dro__run run;
    bool waits; /* a batch had been seen at the old point already: parts[0] */
    dro__trail_part parts[2];
} dro__trail;

typedef struct dro__optimizer_class {
    const char *name, *summary;
    const dro__param *tables[DRO__TABLE_MAX];
    size_t settings_size, state_size;
    size_t vectors; /* as long as w that a run on a problem holds at most, w being one */
    bool composite; /* takes general compositional problems */
    bool robust;    /* has the tilt's settings */
    bool groups;    /* takes tilt=class and tilt=group */
    bool needs_n;   /* keeps something per example */

    /* (optional) Checks settings against each other, before anything is allocated. */
    dro_status (*check)(dro_optimizer *o);
    dro_status (*start)(dro_optimizer *o); /* allocates; on failure stop() is called */
    void (*stop)(dro_optimizer *o);
    /* One update of w. Vectors are written last, when nothing can fail any more. */
    dro_status (*step)(dro_optimizer *o);
    /* (optional) The steps that draw so many examples, where that is not one batch each. */
    uint64_t (*steps_for)(const dro_optimizer *o, uint64_t examples);
    /* (optional) Forget the batch that is waiting; it was refused. */
    void (*drop)(dro_optimizer *o);
    /* Walks over all of the state but o->run and o->w. */
    void (*archive)(dro_optimizer *o, dro__archive *ar);
    /* (optional, device.c) The state to the device and back; and back to before a step that was refused there. */
    dro_status (*push)(dro_optimizer *o);
    dro_status (*pull)(dro_optimizer *o, dro__step_state *state);
    void (*rewind)(dro_optimizer *o, const dro__trail *trail);
} dro__optimizer_class;

enum { DRO__SLOTS = 3, DRO__HOLES = 64 };
#define DRO__GATHERED UINT64_MAX /* the position of a batch that was gathered by id */

struct dro_optimizer {
    dro_context *ctx;
    const dro__optimizer_class *cls;
    dro_problem problem; /* unused when composite is set */
    dro_composite composite;
    bool is_composite;
    size_t dim;
    int64_t n;
    void *settings; /* begins with dro__settings */
    void *state, *backup;
    bool started, stepping; /* stepping: a callback of the problem is running */
    dro__run run, before;   /* before: as it was before the present step */
    float *w;               /* (dim) backend memory */
    uint64_t ends;          /* the planned number of steps after drawing tau, UINT64_MAX: no end */
    uint64_t boundaries[DRO__LIST_MAX]; /* the step at which each stage ends */
    int boundary_count;
    int64_t *blocks; /* group lasso: (block_count + 1) offsets */
    size_t block_count;
    /* ids of the batches in flight, when the library draws */
    size_t slot_size;
    int64_t *slot_ids[DRO__SLOTS];
    int32_t *slot_classes[DRO__SLOTS], *slot_groups[DRO__SLOTS];
    bool failed; /* the last step failed: batches in flight must be drawn again */
    /* the batch that was refused */
    bool refused;
    bool sweeping; /* it was one of many in a big batch, or in a pass over all examples */
    uint64_t refused_position;
    size_t refused_count;
    /* batches that skip() has taken out of the big batch of the step to come */
    uint64_t hole[DRO__HOLES];
    size_t hole_size[DRO__HOLES], big,
        fine; /* fine: chunks of this size, 0: as large as they may be */
    int holes;
    /* steps on a device (device.c): the state is there; steps since it went; an error that came late */
    const dro__queue *queue; /* NULL: steps are taken here */
    bool away;
    uint64_t queued;
    dro__trail trail[DRO__TRAIL];
    dro_status late;
    char late_text[DRO__ERROR_SIZE];
};

static inline dro__settings *dro__settings_of(const dro_optimizer *o)
{
    return (dro__settings *)o->settings;
}

/* The steps that draw so many examples. */
uint64_t dro__steps_for(const dro_optimizer *o, uint64_t examples);
/* The class's `vectors`; 0: there is none of this name. */
size_t dro__optimizer_vectors(const char *name);

#define OPTIMIZER(name) extern const dro__optimizer_class dro__optimizer_##name;
#include "optimizers.def"
#undef OPTIMIZER

/* ---- helpers.c: draws, evaluations with checks, memory ---- */

/* The most examples one draw may ask for; called once in start(). */
dro_status dro__slots_create(dro_optimizer *o, size_t most);
/* The next `count` examples, fewer at the end of a stream; advances run.position and run.examples. */
dro_status dro__draw_next(dro_optimizer *o, size_t count, dro_batch *batch);
/* All of them, or DRO_ERR_END: a part of a big batch, whose size is known beforehand. */
dro_status dro__draw_whole(dro_optimizer *o, size_t count, dro_batch *batch);
/* The same batch again, from its position; counts nothing. */
dro_status dro__draw_again(dro_optimizer *o, uint64_t position, size_t count, dro_batch *batch);
dro_status dro__gather(dro_optimizer *o, const int64_t *ids, size_t count, dro_batch *batch);
/* A big batch of `total` examples from here on: how many are left without those that skip() took out,
 * and the next chunk of the *left examples still to come (0: none), which passes over the holes. */
dro_status dro__big_size(dro_optimizer *o, size_t *total);
size_t dro__big_next(dro_optimizer *o, size_t *left);
/* Takes the refused chunk out, or first makes chunks finer. */
dro_status dro__big_skip(dro_optimizer *o);

/* Call the problem, count evaluations, refuse what is not finite. */
dro_status dro__forward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                        float *losses);
dro_status dro__backward(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         const float *coef, float *const *grads);
dro_status dro__evaluate(dro_optimizer *o, const float *w, const dro_batch *parts, int count,
                         double *g, float *const *jacobian);
/* Marks the batch as the one that skip() is to pass over; returns DRO_ERR_NUMBER. */
dro_status dro__refuse(dro_optimizer *o, const dro_batch *batch);
/* f and f'(u), refused when not finite. */
dro_status dro__outer(dro_optimizer *o, const double *u, double *value, double *gradient);

dro_status dro__vector(dro_optimizer *o, size_t n, float **vector); /* in the backend's memory */
/* Losses and coefficients: host memory on every backend; dro__free. */
dro_status dro__host_vector(dro_optimizer *o, size_t n, float **vector);
void dro__vector_free(dro_optimizer *o, float *vector);
void dro__archive_vector(dro_optimizer *o, dro__archive *ar, float *vector, size_t n);
/* The most examples one call may take: what the problem allows, or 4096. */
size_t dro__chunk(const dro_optimizer *o, size_t want);
/* Whether `parts` batches fit into one call; says what to do when they do not. */
dro_status dro__check_parts(dro_optimizer *o, size_t parts);

/* A pass in which out[which] becomes the new w:  prox( sum of its coefficients ), the step being
 * eta. Handles every regulariser. */
void dro__fused_step(dro_optimizer *o, dro__fused *f, int which, double eta);
dro_status dro__reg_create(dro_optimizer *o); /* (in prox.c) checks, block offsets */
double dro__reg_value(const dro_optimizer *o, const float *w);

/* ---- device.c ---- */

/* At the end of start(): from now on steps may go to the problem's queue, if it has one that can. */
void dro__device_open(dro_optimizer *o, const dro__step_plan *own);
/* Before anything of a step: an error of an earlier one, and the state back here when it must be. */
dro_status dro__device_begin(dro_optimizer *o);
dro_status dro__device_step(dro_optimizer *o, const dro_batch *parts, int count,
                            const dro__step_ticket *ticket);
/* What the step that was just queued began with. */
void dro__device_trail(dro_optimizer *o, const dro__trail *before);
/* Waits until the steps that were queued are done; w is then as they left it. */
dro_status dro__device_wait(const dro_optimizer *o);
/* Waits until the state is here. */
dro_status dro__device_settle(dro_optimizer *o);
void dro__device_tell(dro_optimizer *o, const dro__step_state *state); /* into o->run */
/* The other way: a state that tells what the run knew before the present step, for push. */
dro__step_state dro__device_told(const dro_optimizer *o);

/* ---- schedule.c ---- */

/* Fixes where stages and the run end (drawing tau for output=random). */
void dro__clock_start(dro_optimizer *o);
/* The value of a schedule at step t; power 2 for a, 1 otherwise (a goes as eta^2). */
double dro__schedule_at(const dro_optimizer *o, const dro__schedule *s, uint64_t t, int power);
/* A number of steps; below 1 it is a share of those planned. */
double dro__as_steps(const dro__settings *set, double value);
double dro__eta(const dro_optimizer *o);    /* of the present step */
double dro__lambda(const dro_optimizer *o); /* with the switch-over */
dro__tilt_level dro__level(const dro_optimizer *o);
double dro__lambda_at(const dro_optimizer *o, uint64_t t); /* of step t */
dro__tilt_level dro__level_at(const dro_optimizer *o, uint64_t t);
int dro__stage(const dro_optimizer *o, uint64_t t); /* how many stages ended before step t */
bool dro__last_step(const dro_optimizer *o);

/* Reads eta and lambda for this step into run. */
void dro__begin_step(dro_optimizer *o);

#endif
