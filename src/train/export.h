/* What the exporters share: the network of a weights file, and what of it leads to its outputs. */
#ifndef DRO_EXPORT_INTERNAL_H
#define DRO_EXPORT_INTERNAL_H

#include "buffer.h"
#include "train.h"

typedef struct dro__export {
    dro_context *ctx;
    dro__weights_about about;
    dro_net *net;
    float *statistics;
    bool *needed; /* (nodes) the main head depends on it */
    double
        *shift; /* (classes) gives probabilities the training data's prior (dro__weights_shift) */
} dro__export;

/* Closed again when it fails. */
dro_status dro__export_open(dro_context *ctx, const char *weights, dro__export *e);
void dro__export_close(dro__export *e);

#endif
