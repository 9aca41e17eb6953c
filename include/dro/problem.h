/* The contract between an optimiser and a model with its data.
 *
 *     forward (w, batch)  ->  losses[i] = loss(w; z_i)
 *     backward(coef)      ->  grads[k]  = sum over i in part k of coef[i] * d loss(w; z_i) / dw
 *
 * A call may carry one or two PARTS: two batches evaluated at the same w, one gradient per part
 * (COVER also needs the next batch at the current point). losses and coef list the examples of
 * part 0, then those of part 1. All of these are host memory, and the optimiser then computes on
 * the processor, also in a context of "cuda": copies would cost more than its arithmetic. `memory`
 * may say that w and the gradients are in the backend's memory.
 *
 * An EXAMPLE is identified by its id in 0..n-1, or on a stream by its running number. Batches are
 * addressed by POSITION: position k is the k-th example ever drawn. The same position must always
 * give the same examples (and the same pixels, where there is augmentation); this makes runs
 * reproducible and resumable. If `draw` is NULL the library draws ids itself. Stable. */
#ifndef DRO_PROBLEM_H
#define DRO_PROBLEM_H

#include <dro/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_batch {
    uint64_t position;  /* of its first example in the drawing order (UINT64_MAX: gathered by id) */
    size_t count;       /* examples in it */
    const int64_t *ids; /* (count) which examples */
    const int32_t *classes; /* (count) the class of each, or NULL */
    const int32_t *groups;  /* (count) the group of each, or NULL */
    void *handle;           /* for the problem's use; NULL when the library draws */
} dro_batch;

/* Where the callbacks of a problem find w and leave gradients. */
typedef enum dro_memory {
    DRO_MEMORY_HOST,   /* ordinary memory */
    DRO_MEMORY_BACKEND /* the memory of the context's backend: device pointers on "cuda" */
} dro_memory;

typedef struct dro_problem {
    size_t size; /* sizeof(dro_problem) */
    void *user;  /* passed to every callback */
    size_t dim;  /* d: the number of weights */
    int64_t n;   /* how many examples there are; 0: a stream, not known */

    dro_status (*forward)(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses);
    /* Follows a forward with the same w and parts. grads[k] is (dim), overwritten. */
    dro_status (*backward)(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads);

    /* (optional) The examples at `position` .. `position + count - 1` of the training order. A
     * batch stays valid until the third draw or gather after it. DRO_ERR_END ends a stream; its
     * last batch (n = 0) may have fewer examples than asked for, but at least one. */
    dro_status (*draw)(void *user, uint64_t position, size_t count, dro_batch *batch);
    /* (optional) Given examples, for the methods that sample by p. Not needed when draw is NULL. */
    dro_status (*gather)(void *user, const int64_t *ids, size_t count, dro_batch *batch);
    /* (optional, for tilt=class and tilt=group when draw is NULL) The class and the group of
     * examples; either output is NULL when it is not wanted. */
    dro_status (*labels)(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups);

    /* (optional) Called after each accepted step: the problem may keep what its last forward
     * computed from part 0 (batch norm's running statistics). Not called for a refused step. */
    void (*accept)(void *user);

    int32_t classes;           /* number of classes, 0: unknown */
    int32_t groups;            /* number of groups, 0: unknown */
    const double *class_share; /* (optional) (classes) shares of the data; else counted */
    const double *group_share; /* (optional) (groups) */
    /* (optional) (n) example weights, 0 or more; only their ratios matter. Examples are drawn in
     * proportion, so class_share and group_share are shares of the total weight; a `draw` of the
     * problem must do the same. Methods that keep state for each example refuse example weights. */
    const float *example_weights;
    const int64_t *param_blocks; /* (optional) (param_block_count + 1) offsets into w: the blocks of
                                    the group lasso; else blocks of reg_block weights */
    size_t param_block_count;
    size_t max_batch; /* (optional) most examples in one forward call, parts together; 0: any */
    dro_memory memory;
    const struct dro__abilities *library; /* internal; leave it NULL */
    /* (optional) Weights, such as biases, that l1, l2 and elastic regularise with a thousandth of
     * their strength: reg_free_count of them, from reg_free_first on. */
    size_t reg_free_first, reg_free_count;
} dro_problem;

/* The general compositional problem  min_w  f( E g_z(w) ) + r(w),  g_z(w) in R^p. */
typedef struct dro_composite {
    size_t size; /* sizeof(dro_composite) */
    void *user;
    size_t dim;   /* d */
    size_t inner; /* p: the size of g */
    int64_t n;    /* examples, 0: a stream */

    /* Means over each part k: g + k*p is (p); jacobian[k] is (p, d) by rows. jacobian NULL: only g
     * is wanted. */
    dro_status (*evaluate)(void *user, const float *w, const dro_batch *parts, int part_count,
                           double *g, float *const *jacobian);
    /* f(u) and its gradient, (p). */
    dro_status (*outer)(void *user, const double *u, double *value, double *gradient);

    dro_status (*draw)(void *user, uint64_t position, size_t count,
                       dro_batch *batch); /* optional */
    size_t max_batch;                     /* optional */
    dro_memory memory;
} dro_composite;

#ifdef __cplusplus
}
#endif
#endif
