/* backend: memory and operations of one kind of hardware. A backend is one table of functions; the
 * optimisers and models are written once over it. `ref` is plain C and the truth that the others are
 * tested against. To add one: a folder with its table, and a line in backends.def.
 *
 * Vectors as long as w are float32 in the backend's memory. `pool` is the context's threads, NULL for one. */
#ifndef DRO_BACKEND_H
#define DRO_BACKEND_H

#include "base.h"

/* Elementwise proximal map:  x -> clip( soft(x, threshold) * scale, low, high ). */
typedef struct dro__prox {
    double threshold, scale, low, high;
} dro__prox;

#define DRO__PROX_NONE                                                                             \
    (dro__prox)                                                                                    \
    {                                                                                              \
        0, 1, -HUGE_VAL, HUGE_VAL                                                                  \
    }

/* One pass over memory:  out[j] = sum_k coef[j][k] * in[k]  and  norm[m] = | sum_k norm_coef[m][k] *
 * in[k] |^2, the norms taken of the inputs as they were. An output may be one of the inputs. An
 * input all of whose coefficients are 0 is not read, so it may hold anything. */
enum { DRO__FUSED_IN = 6, DRO__FUSED_OUT = 3, DRO__FUSED_NORM = 3 };

typedef struct dro__fused {
    size_t n;
    int inputs, outputs, norms;
    const float *in[DRO__FUSED_IN];
    float *out[DRO__FUSED_OUT];
    double coef[DRO__FUSED_OUT][DRO__FUSED_IN];
    double norm_coef[DRO__FUSED_NORM][DRO__FUSED_IN];
    double norm[DRO__FUSED_NORM]; /* results */
    int prox_out;                 /* the output that prox is applied to, -1 for none */
    dro__prox prox;
} dro__fused;

/* Rows of a table: dense (x) or compressed sparse rows (starts, columns, values). */
typedef struct dro__rows {
    size_t features;
    const float *x; /* (n, features), NULL when sparse */
    const int64_t *starts;
    const int32_t *columns;
    const float *values;
} dro__rows;

typedef enum dro__loss_kind { DRO__LOSS_LOGISTIC, DRO__LOSS_SQUARED } dro__loss_kind;

typedef struct dro__backend {
    const char *name, *summary;
    bool (*works)(void);          /* on this machine */
    const char *(*missing)(void); /* (optional) why it does not, in one line */

    void *(*alloc)(size_t count, size_t size); /* zeroed; NULL when there is none */
    void (*free)(void *memory);
    /* (optional) Host memory that the backend copies from at full speed and without the host. */
    void *(*host_alloc)(size_t bytes);
    void (*host_free)(void *memory);
    /* NULL, or why it could not, in words that stay. */
    const char *(*copy_in)(void *to, const void *host_from, size_t bytes);
    const char *(*copy_out)(void *host_to, const void *from, size_t bytes);

    void (*fused)(dro__pool *pool, dro__fused *f);
    /* The first index whose value is NaN or infinite, -1 if there is none. */
    int64_t (*first_bad)(dro__pool *pool, size_t n, const float *x);
    /* x_B <- max(0, 1 - threshold / |x_B|) x_B for each block B = [offsets[k], offsets[k+1]). */
    void (*block_shrink)(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                         double threshold);

    /* Losses, coefficients, margins and rows are host memory on every backend; w and gradients are the
     * backend's.
     *
     * The tilt of one batch: x_i = losses[i] * scale - log_u in double, and E(x) = exp(x) up to the cap,
     * its tangent beyond. coef[i] = E'(x_i) / n; returns the mean of E(x_i), adds to *caps how many
     * were beyond. */
    double (*tilt)(size_t n, const float *losses, double scale, double log_u, double cap,
                   float *coef, uint64_t *caps);

    /* margins[i] = <row ids[i], w>, i < count */
    void (*rows_dot)(dro__pool *pool, const dro__rows *rows, const int64_t *ids, size_t count,
                     const float *w, float *margins);
    /* grads[k] = sum of coef[i] * row ids[i], (features), over the examples i of part k; ids and coef
     * list part 0, then part 1 */
    void (*rows_sum)(dro__pool *pool, const dro__rows *rows, const int64_t *ids,
                     const size_t *counts, int parts, const float *coef, float *const *grads);
    /* loss[i] and slope[i] = d loss / d margin; losses may be NULL or slopes may be. */
    void (*loss)(dro__pool *pool, dro__loss_kind kind, size_t count, const float *margins,
                 const float *y, float *losses, float *slopes);

    const struct dro__net_backend *net; /* networks: graph.h */
} dro__backend;

#define BACKEND(name) extern const dro__backend dro__backend_##name;
#include "backends.def"
#undef BACKEND

/* Copies whose failure is told. */
dro_status dro__copy_in(dro_context *ctx, void *to, const void *host_from, size_t bytes);
dro_status dro__copy_out(dro_context *ctx, void *host_to, const void *from, size_t bytes);

/* Squared norm of a combination c0*x + c1*y (y may be NULL), through fused. */
double dro__norm2(const dro_context *ctx, size_t n, double c0, const float *x, double c1,
                  const float *y);

#endif
