/* A trained model with the data that it sees: shared by predictor.c and explain.c. */
#ifndef DRO_PREDICTOR_H
#define DRO_PREDICTOR_H

#include <pthread.h>
#include "train.h"

struct dro_predictor {
    dro_context *ctx;
    dro__task task;
    dro__weights_about about;
    dro__evaluation evaluation;
    char *path;                   /* of the weights file */
    double precision, recall, f1; /* of the threshold, where it was chosen */
    bool probable;                /* a prior was chosen: the class is the most probable one */
    bool measured;                /* the evaluation's memory is there */
    float *w;                     /* in the backend's memory */
    char unknown[128];            /* a class of the data that the model does not know, or "" */
    dro_explanation explanation;
    pthread_mutex_t lock; /* of the task, the evaluation and the context's error text */
};

/* An error where the split has no examples, or no labels that the model knows. */
dro_status dro__predictor_labelled(dro_predictor *p, dro_split split);
dro__decision dro__predictor_decision(const dro_predictor *p);
void dro__explanation_free(dro_predictor *p);

#endif
