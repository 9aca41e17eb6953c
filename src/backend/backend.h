/* backend: memory and operations of one kind of hardware. A backend is one table of functions;
 * the optimisers and models are written once over it. `ref` is plain C and the reference that the
 * others are tested against. To add one: a folder with its table, and a line in backends.def.
 *
 * Vectors as long as w are float32 in the backend's memory. `pool` is the context's threads, NULL
 * for one. */
#ifndef DRO_BACKEND_H
#define DRO_BACKEND_H

#include "base.h"
#include "step.h"

/* Rows of a table: dense (x) or compressed sparse rows (starts, columns, values). */
typedef struct dro__row_matrix {
    size_t features;
    const float *x; /* (n, features), NULL when sparse */
    const int64_t *starts;
    const int32_t *columns;
    const float *values;
} dro__row_matrix;

typedef enum dro__loss_kind { DRO__LOSS_LOGISTIC, DRO__LOSS_SQUARED } dro__loss_kind;

typedef struct dro__backend {
    const char *name, *summary;
    bool (*works)(void);          /* on this machine */
    const char *(*missing)(void); /* (optional) why it does not, in one line */
    const char *(*device)(void);  /* (optional) what it runs on and how, in one line, or NULL */

    bool on_host;                              /* its memory is the host's */
    void *(*alloc)(size_t count, size_t size); /* zeroed; NULL when there is none */
    void (*free)(void *memory);
    /* (optional) Host memory that the backend copies from at full speed and without the host. */
    void *(*host_alloc)(size_t bytes);
    void (*host_free)(void *memory);
    /* NULL, or why it could not, in words that stay. */
    const char *(*copy_in)(void *to, const void *host_from, size_t bytes);
    const char *(*copy_out)(void *host_to, const void *from, size_t bytes);

    /* The phases of a step (step.h). `weigh` and `settle` work on host memory on every backend,
     * `move` on the backend's vectors; its sums are over the elements. */
    void (*weigh)(const dro__step *k, dro__phase phase);
    void (*move)(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums);
    void (*settle)(const dro__step *k, const double *sums);
    /* The first index whose value is NaN or infinite, -1 if there is none. */
    int64_t (*first_bad)(dro__pool *pool, size_t n, const float *x);
    /* x_B <- max(0, 1 - threshold / |x_B|) x_B for each block B = [offsets[k], offsets[k+1]). */
    void (*block_shrink)(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                         double threshold);

    /* Losses, coefficients, margins and rows are host memory on every backend; w and gradients
     * are the backend's. */

    /* margins[i] = <row ids[i], w>, i < count */
    void (*rows_dot)(dro__pool *pool, const dro__row_matrix *rows, const int64_t *ids, size_t count,
                     const float *w, float *margins);
    /* grads[k] = sum of coef[i] * row ids[i], (features), over the examples i of part k;
     * coef lists part 0, then part 1 */
    void (*rows_sum)(dro__pool *pool, const dro__row_matrix *rows, const dro_batch *parts,
                     int part_count, const float *coef, float *const *grads);
    /* loss[i] and slope[i] = d loss / d margin; losses may be NULL or slopes may be. */
    void (*loss)(dro__loss_kind kind, size_t count, const float *margins, const float *y,
                 float *losses, float *slopes);

    const struct dro__net_backend *net; /* networks: graph.h */
    /* (optional) sums over ranks between their devices: device_comm.h */
    const struct dro__device_comms *comms;
} dro__backend;

#define BACKEND(name) extern const dro__backend dro__backend_##name;
#include "backends.def"
#undef BACKEND

/* The backend that computes on the vectors of a problem: the context's, but where the callbacks use
 * host memory and the context's backend does not, the fastest that does. Copies between them would
 * cost more than a step. */
const dro__backend *dro__backend_for(const dro_context *ctx, bool on_host);

/* What a copy of a backend said. */
dro_status dro__copied(dro_context *ctx, const dro__backend *be, const char *trouble);
/* Copies that report failure. */
dro_status dro__copy_in(dro_context *ctx, void *to, const void *host_from, size_t bytes);
dro_status dro__copy_out(dro_context *ctx, void *host_to, const void *from, size_t bytes);

/* to += from */
void dro__add(const dro__backend *be, dro__pool *pool, size_t n, float *to, const float *from);
/* |x|^2 */
double dro__norm2(const dro__backend *be, dro__pool *pool, size_t n, const float *x);

/* Whether a move ends with the proximal operator of an elementwise regulariser. */
static inline int dro__move_has_prox(const dro__step *k, dro__move_kind kind)
{
    int32_t reg = k->plan.reg;
    bool asked = kind != DRO__MOVE_combine || k->ticket->prox;
    return asked && reg != DRO__REG_NONE && reg != DRO__REG_GROUP && reg != DRO__REG_BALL;
}

#endif
