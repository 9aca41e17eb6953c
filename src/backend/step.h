/* step: the state of a step and its phases, as the optimisers, the backends and the GPU's kernels
 * see them. Plain data; nvcc includes this file too.
 *
 * A step is: draw, forward, WEIGH (the losses of the batch become coefficients), backward, MOVE
 * (element i of the direction, its moments and w), SETTLE (scalars). Weigh and settle are in
 * weigh.h, move in moves.h. Each is written once; a backend compiles it for its own team: one
 * thread in double (ref), threads with SIMD (cpu), a block or a grid (cuda). The scalars are one
 * struct of plain data that begins as zeros; vectors and arrays are rows of a table (opt.h). To
 * save a state, to roll it back or to send it to a device is to walk these two. */
#ifndef DRO_STEP_H
#define DRO_STEP_H

#include <stddef.h>
#include <stdint.h>

/* What r(w) counts of a free weight: next to nothing, but F keeps one minimum. */
#define DRO__REG_FREE 1e-3

enum { DRO__TILT_NONE, DRO__TILT_EXAMPLE, DRO__TILT_CLASS, DRO__TILT_GROUP };
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

/* What is minimised (opt/objective.h). */
typedef enum dro__objective_kind {
    DRO__OBJECTIVE_MEAN,
    DRO__OBJECTIVE_KL,
    DRO__OBJECTIVE_KL_RADIUS,
    DRO__OBJECTIVE_CVAR,
    DRO__OBJECTIVE_CHI2
} dro__objective_kind;

/* The phases that turn losses into coefficients. */
typedef enum dro__phase {
    DRO__PHASE_NONE,
    DRO__PHASE_MEAN,      /* the mean loss */
    DRO__PHASE_AVERAGE,   /* the tilt by a moving average of the batches */
    DRO__PHASE_BEFORE,    /* the tilt by an average that has not seen the batch yet */
    DRO__PHASE_AHEAD,     /* asc-pg: the average takes in the batch at the extrapolated point */
    DRO__PHASE_FOLLOW,    /* asc-pg: the tilt by that average */
    DRO__PHASE_ASCENT,    /* sam: the direction in which the loss of part 0 rises */
    DRO__PHASE_STORM,     /* cover: part 0 at the new point, part 1 at the point being left */
    DRO__PHASE_OLD,       /* cover, two-point: part 1 at the old point */
    DRO__PHASE_COMPOSITE, /* cover, compositional: a, and how much of the estimate is kept */
    DRO__PHASE_BIG_BEGIN, /* civr: a batch in several chunks; */
    DRO__PHASE_BIG_CHUNK, /* direction <- keep * direction + gain * (chunk's gradient) */
    DRO__PHASE_BIG_END
} dro__phase;

/* The elementwise moves (moves.h). */
/* clang-format off */
#define DRO__MOVES(X)                                                                              \
    X(none) X(momentum) X(storm) X(estimate) X(adamw) X(ascpg) X(moments) X(storm_moments)         \
    X(scaled) X(combine) X(norm) X(average) X(ascend)
/* clang-format on */

typedef enum dro__move_kind {
#define DRO__MOVE_KIND(name) DRO__MOVE_##name,
    DRO__MOVES(DRO__MOVE_KIND)
#undef DRO__MOVE_KIND
        DRO__MOVE_COUNT
} dro__move_kind;

/* Whether a move adds to the sums. */
#define DRO__MOVE_SUMS(kind)                                                                       \
    ((kind) == DRO__MOVE_storm || (kind) == DRO__MOVE_estimate || (kind) == DRO__MOVE_moments ||   \
     (kind) == DRO__MOVE_storm_moments || (kind) == DRO__MOVE_norm)

/* What a vector is to a move; (dim) each, NULL where a move has no use for it. */
typedef enum dro__vector_role {
    DRO__W,       /* the weights */
    DRO__G,       /* gradient of part 0 */
    DRO__NEXT,    /* gradient of part 1: of the next batch at the point that is being left */
    DRO__OLD,     /* gradient of the batch at its old point */
    DRO__D,       /* the direction, or its first moment */
    DRO__M,       /* first moment of the direction */
    DRO__SECOND,  /* second moment of the gradient */
    DRO__Z,       /* the extrapolated point; sam: where gradients are taken */
    DRO__AVERAGE, /* moving average of the weights; after it (dim), that of the statistics */
    DRO__OUT,     /* result of combine */
    DRO__X,       /* inputs of combine: X, X + 1, ... */
    DRO__INPUTS = 4,
    DRO__VECTOR_ROLES = DRO__X + DRO__INPUTS
} dro__vector_role;

/* One class or group of the tilt. */
typedef struct dro__group {
    double u;               /* estimate of the group's mean loss */
    double q, q_before;     /* weights: of the batch to come, and of the last direction */
    double old_sum;         /* of the waiting batch at the old point: sum of its losses */
    double sum;             /* scratch: of the present batch */
    uint64_t seen, counted; /* times u was set; examples drawn */
    int64_t old_count, count;
    uint64_t away;        /* updates since it was last present */
    double spread;        /* the variance of u as a multiple of one example's */
    double change, noise; /* averages of n (m1 - m0)^2 and n (m0 - u)^2, m the mean of n losses */
} dro__group;

enum { DRO__REFUSED_LOSS = 1, DRO__REFUSED_GRADIENT, DRO__REFUSED_LABEL };

/* All numbers that a step changes. */
typedef struct dro__scalars {
    int32_t level, have, fresh; /* have: there is an estimate; fresh: it began with this step */
    int32_t observed;           /* change and noise are known */
    int32_t group_count, refused, refused_part, pad;
    /* the tilt: log_u estimates log E exp(loss/lambda) */
    double log_u, log_u_lambda; /* the lambda of a moving average's log_u */
    double mean_old;            /* mean weight of the waiting batch, at its old point, over u */
    double gain, keep;          /* d <- gain * (G1 + keep * (d - G0)) */
    uint64_t counted;           /* examples counted in the groups */
    /* kl-radius, cvar, chi2 (objectives.h): the weight of a loss is a function of the first two */
    double threshold, multiplier;
    double off[2], off_old[2]; /* moments of the weights minus what they should be: the estimate;
                                * of the waiting batch, at its old point */
    double slope;              /* average: how fast off[0] falls */
    double excess;             /* average: F - E loss, by this threshold */
    double radius, value;      /* averages: divergence of the weights, E weight loss */
    double least;              /* multiplier and excess are never smaller */
    double eta_most;           /* the largest eta so far */
    uint64_t duals;            /* times the first two were set */
    /* the automatic a */
    double spread;        /* the variance of d as a multiple of one batch's */
    double change, noise; /* averages of |G1 - G0|^2 and |G0 - d|^2 */
    double eta_before, lambda_before;
    /* the guard */
    double pace;   /* mean square change of the log-weights per eta^2 */
    double square; /* |d|^2 of the last step */
    double fall;   /* how much that step should have lowered log_u, to first order */
    /* moments: products of their decays, how many there were; asc-pg: the beta of z */
    double power1, power2, beta;
    double shortened; /* momentum without a scale: the share of eta that the limits leave */
    double ascent;    /* sam: 1/|G| at w; 0 where |G| is 0 or not finite */
    uint64_t moments;
    /* what a step reports */
    double eta, lambda, a, loss, largest_weight, effective;
    uint64_t caps, floors, fresh_starts;
    /* asynchronous steps: those done since the state went to the device; what was refused */
    uint64_t done;
    int64_t refused_index;
    double refused_value;
} dro__scalars;

/* What stays the same for a run. */
typedef struct dro__plan {
    dro__phase ahead, weigh;
    dro__move_kind move, then; /* then: a second pass, after the scalars have settled */
    size_t dim, batch;
    int32_t group_capacity;
    int32_t reg, nesterov, a_rule, group_prior; /* group_prior: 1 the data's shares, 0 all equal */
    double reg_strength, reg_ratio, reg_low, reg_high;
    double prox_stretch;               /* the step of the prox over eta */
    size_t free_first, free_count;     /* weights that it counts a thousandth of */
    size_t second_first, second_count; /* those that the second stage moves */
    size_t statistics;                 /* numbers after the average of the weights */
    double weight_decay, momentum, beta2, epsilon, gamma;
    double longest,
        heaviest; /* at most: root mean square of a scaled step; mean weight of a batch */
    double a_c, a_min, a_least, guard, cap; /* a_least: a_min, or more where epochs are shuffled */
    double sam;                             /* how far from w gradients are taken, 0: at w */
    int32_t objective, sam_classes; /* dro__objective_kind; the way there is of all classes alike */
    double argument;                /* of the objective */
} dro__plan;

/* The host's input to a step. */
typedef struct dro__ticket {
    double eta, lambda, a, beta; /* a: by the schedule, where that is the rule */
    double average_keep;         /* of the average of the weights */
    double total;                /* civr: examples in the big batch */
    double c[DRO__INPUTS];       /* combine: out = prox(plus * x0 + sum of c[k] * x[k]), */
    double prox_eta;             /* the step of its prox */
    int32_t plus, prox;
    int32_t level, drawn; /* drawn: part 0 was not seen at the old point */
    int32_t ahead;        /* part 0 is evaluated at z first */
    int32_t group_count, shares_given;
    int32_t second; /* a step of the second stage */
} dro__ticket;

/* What the phases work on. Pointers are of the team's memory. */
typedef struct dro__step {
    dro__plan plan;
    const dro__ticket *ticket;
    dro__scalars *s;
    dro__group *groups;      /* (group_capacity) */
    const double *shares;    /* (group_count) of the data, where they are given */
    const int32_t *group_of; /* (examples of both parts) where the tilt is over classes or groups */
    float *losses, *coef;    /* (examples of both parts) */
    float *old_losses;       /* (batch) of the waiting batch at its old point */
    float *v[DRO__VECTOR_ROLES];
    size_t n;      /* elements of a move */
    int counts[2]; /* examples of the parts, 0: there is none */
} dro__step;

/* The examples of one phase (dro_step_batch), in the team's memory. */
typedef struct dro__phase_batch {
    const float *losses;
    const int64_t *labels;
    float *coef;
    int count;
} dro__phase_batch;

enum { DRO__SUMS = 4 }; /* sums over the elements that a move can ask for */

/* The phases of a step in the memory of a device that no backend drives: a module's table
 * (cuda/module/phases.cu). Functions queue their work on a stream; those that return text return
 * NULL, or what went wrong. */
typedef struct dro__phases {
    size_t step_size, ticket_size; /* of the structs: the module is of the same build */
    /* `k` with the pointers of the device. scratch: so many bytes of the device. */
    size_t (*scratch_size)(const dro__step *k);
    const char *(*open)(const dro__step *k, void *scratch, void **live);
    void (*close)(void *live);
    const char *(*begin)(void *live, const dro__ticket *ticket, void *stream);
    /* labels: NULL where the tilt is over examples. first: the first phase of the step. */
    const char *(*weigh)(void *live, dro__phase phase, int first, const dro__phase_batch *batch);
    /* left: where w goes that is being left, NULL: nowhere. */
    const char *(*move)(void *live, float *left, int twice);
    const char *(*undo)(void *live);
    /* w, where the byte `changed` (NULL: yes) says so; the vectors that are saved become 0. */
    const char *(*replace)(void *live, const float *w, const void *changed, void *stream);
    /* Waits. */
    const char *(*copy)(void *live, void *to, const void *from, size_t bytes);
    /* The scalars as they were after so many steps; does not wait. */
    uint64_t (*snapshot)(void *live, dro__scalars *s);
} dro__phases;

#ifndef __CUDACC__
#include <dro/net.h>
#include <dro/problem.h>

/* What a step evaluates. */
typedef struct dro__fetched {
    dro_net_batch parts[2]; /* this rank's slices */
    int part_count;
    /* of the parts over all ranks: their examples, and where this rank's begin */
    size_t whole[2], first[2];
} dro__fetched;

/* A backend's asynchronous steps of one of its networks (`net`). The state of a run is in one of
 * two places: an optimiser pushes it before its first step there and pulls it when somebody asks
 * (save, info, the end); in between the device alone moves it. A step that meets a number that is
 * not finite changes nothing, nor do those behind it, until the state is pulled. */
typedef struct dro__queue {
    /* Vectors of `host` are the backend's memory. DRO_ERR_UNSUPPORTED: steps are driven by the
     * host. What was open before is closed. */
    dro_status (*open)(void *net, const dro__step *host);
    /* group_of: (host) of each whole part, NULL where the tilt is over examples. */
    dro_status (*step)(void *net, const dro__fetched *fetched, const dro__ticket *ticket,
                       const int32_t *const *group_of);
    /* The scalars as they were some steps ago, always the same number of them, so that all ranks
     * see the same ones; does not wait. */
    void (*snapshot)(void *net, dro__scalars *s);
    /* The w of the plan that is open, NULL: none is. A network has one queue; who opened it last
     * has it. */
    const float *(*owner)(void *net);
    /* For all steps, whichever thread queued them. */
    dro_status (*wait)(void *net);
    /* Both wait. Scalars, groups and old_losses; push also takes the shares. */
    dro_status (*pull)(void *net, const dro__step *host);
    dro_status (*push)(void *net, const dro__step *host);
} dro__queue;

/* What a problem offers besides forward and backward where its backend has asynchronous steps. */
typedef struct dro__async {
    const dro__queue *queue;
    void *net; /* the backend's */
    void *user;
    dro_status (*fetch)(void *user, const dro_batch *parts, int part_count, dro__fetched *fetched);
} dro__async;
#endif

#endif
