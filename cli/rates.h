/* The problems of `dro bench rates`: F of any objective at any w, and its minimum. */
#ifndef DRO_RATES_H
#define DRO_RATES_H

#include <dro/dro.h>
#include <stdbool.h>

typedef enum rates_kind {
    RATES_PL,        /* least squares, loss r^2/2, r = <x, w> - y: F is PL (Lemma 1 of the paper) */
    RATES_NONCONVEX, /* loss r^2/(1 + r^2) of the same rows: smooth, bounded, not convex */
    RATES_DATA,      /* logistic loss of a table with two classes */
    RATES_KINDS
} rates_kind;

extern const char *const rates_names[RATES_KINDS];

typedef struct rates_problem {
    rates_kind kind;
    const char *spec;     /* of `dro train`: the table, or lent arrays */
    dro_linear_data rows; /* arrays that belong to `data`, or to the next two */
    float *x, *y;
    dro_data *data;
} rates_problem;

/* Generated rows come from a fixed seed; one in ten follows another rule. spec: the table of
 * RATES_DATA. */
dro_status rates_create(dro_context *ctx, rates_kind kind, const char *spec,
                        rates_problem *problem);
void rates_destroy(rates_problem *problem);
/* The generated rows become "arrays:rates" of a context. */
dro_status rates_lend(const rates_problem *problem, dro_context *ctx);

/* One thread's view of a problem. */
typedef struct rates_view {
    const rates_problem *from;
    dro_context *ctx;
    dro_linear *model; /* NULL for the non-convex problem */
    dro_problem problem;
    double *losses, *weights, *slopes; /* (n), (n), (2 batches) */
    float *some, *w;                   /* losses of a chunk; (d) */
    int64_t *ids;                      /* (n) 0, 1, 2 ... */
} rates_view;

dro_status rates_open(const rates_problem *problem, rates_view *view);
void rates_close(rates_view *view);
/* F of the objective at w, (d); 1e30 where it is not finite. */
double rates_value(rates_view *view, const float *w, const char *objective);
/* F at its minimum. Convex problems: by lbfgs. Otherwise: the lowest F of long runs. */
double rates_minimum(rates_view *view, const char *objective);

#endif
