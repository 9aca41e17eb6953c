/* What the exporters share: the network of a weights file, and what of it leads to its outputs; or
 * the linear model on the sparse rows of a table. */
#ifndef DRO_EXPORT_INTERNAL_H
#define DRO_EXPORT_INTERNAL_H

#include "buffer.h"
#include "train.h"

typedef struct dro__export {
    dro_context *ctx;
    dro__weights_about about;
    dro_net *net; /* NULL: the model on sparse rows */
    float *rows;  /* (heads, features) its weights; one head for two classes */
    size_t heads;
    float *statistics;
    bool *needed; /* (nodes) the main head depends on it */
    double
        *shift; /* (classes) gives probabilities the training data's prior (dro__weights_shift) */
} dro__export;

/* Closed again when it fails. rows: whether a model on sparse rows will do. */
dro_status dro__export_open(dro_context *ctx, const char *weights, bool rows, dro__export *e);
void dro__export_close(dro__export *e);

#endif
