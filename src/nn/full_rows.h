/* A linear model over rows as a dro__full: one linear layer, its outputs' loss, any number of
 * threads with the same results. */
#ifndef DRO_FULL_ROWS_H
#define DRO_FULL_ROWS_H

#include "full.h"
#include "graph.h"

enum { DRO__FULL_OUTPUTS = 1024 }; /* most outputs */

typedef struct dro__full_rows {
    dro__full full;
    dro__abilities able; /* of the problem */
    dro_context *ctx;
    dro__row_matrix rows;
    int64_t n;
    dro_net_batch all; /* labels or targets of all examples */
    dro__graph loss;   /* of this only what says which loss it is */
    size_t outputs;
    int64_t weight, bias; /* where they are in w: (outputs, features), (outputs); bias -1: none */
    size_t dim;
    /* made by the first call */
    double *by_column; /* sparse: (features, outputs) the weights, and sums of gradients */
    double *bias_now;  /* (outputs) */
    double *slopes;    /* (n, outputs) */
    double *parts;     /* (part_count, dim) */
    size_t part_count;
    const double *w;
} dro__full_rows;

/* Fills in `full`; all else has been set. */
void dro__full_rows_open(dro__full_rows *f);
void dro__full_rows_close(dro__full_rows *f);
/* Whether a network is one linear layer with a loss that is convex; fills in all but the rows and
 * their labels. */
bool dro__full_rows_net(const dro__graph *graph, dro__full_rows *f);

#endif
