/* nn: networks over the contract: the builder, the models, weights and their files. Sees base and
 * backend.
 *
 * A model is one file model_NAME.c that adds layers through the public builder, and one line in
 * models.def. */
#ifndef DRO_NN_H
#define DRO_NN_H

#include "full.h"
#include "graph.h"

/* A named tensor of a network: a parameter, or a running statistic of a norm. */
typedef enum dro__tensor_place {
    DRO__IN_WEIGHTS,
    DRO__IN_FROZEN,
    DRO__IN_STATISTICS
} dro__tensor_place;

typedef struct dro__net_entry {
    char *name;
    int rank;
    int64_t shape[4];
    int32_t node;
    size_t count;
    dro__tensor_place place;
    int64_t offset; /* in its memory */
} dro__net_entry;

struct dro_net {
    dro_context *ctx;
    dro__graph graph;
    int32_t node_capacity;
    dro__net_entry *tensors;
    size_t tensor_count, tensor_capacity;
    char *trained; /* patterns, or NULL for all */

    dro_status failed; /* the first error of the building calls, its text in `error` */
    char error[DRO__ERROR_SIZE];
    bool ready;

    /* settings: params.c's table writes here */
    struct dro__net_settings {
        int32_t loss, precision, deterministic, convolutions, classifier;
        double classifier_scale;
        double loss_set[DRO__LOSS_SETTING_COUNT];
    } set;
    bool plain; /* dro__net_plain is in force, and these are the settings without it */
    double own_loss_set[DRO__LOSS_SETTING_COUNT];
    double *prior; /* (prior_count) or NULL */
    size_t prior_count;
    float *constants; /* (2, outputs) of the loss, in host memory */

    /* after ready */
    float *weights, *frozen; /* host: what was initialised, loaded or set */
    dro__net_memory memory;  /* in the backend's memory */
    dro__net_sync sync;      /* set before a call: batch norm over several networks */
    bool twin;               /* all but `live` and the keys is borrowed from another */
    void *live;              /* the backend's network */
    uint64_t seed;           /* of init: dropout masks derive from it */
    bool forwarded;          /* the backend holds a forward's values */

    dro_net_source source;
    dro__async async; /* of the problem, where the backend has asynchronous steps */
    dro__abilities able;
    uint64_t *keys[DRO__PARTS]; /* of the parts of a problem's call */
    size_t key_capacity;
};

/* Records the first error of the building calls; returns -1, the node of an error. */
dro_node dro__net_wrong(dro_net *net, dro_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same network once more, with what another context computes: it shares weights, frozen
 * parameters and running statistics with `net`, which must live longer. */
dro_status dro__net_twin(dro_net *net, dro_context *ctx, dro_net **twin);

/* After ready: makes the loss of classes plain cross-entropy (with its smoothing), by setting tau,
 * the margin and gamma to 0; or makes it again what it was. */
dro_status dro__net_plain(dro_net *net, bool plain);

/* Parts of a call: there, of the right kind, with labels in range. */
dro_status dro__net_check(dro_net *net, const dro_net_batch *parts, int part_count);

extern const dro__param_row dro__params_net[];

/* A model: adds its layers to a network whose input has been made, and marks its outputs.
 * `arguments` is what follows the colon of "mlp:128,64", or "". */
typedef struct dro__model {
    const char *name, *summary;
    dro_model_shape usual;
    void (*build)(dro_net *net, const char *arguments, int32_t outputs);
} dro__model;

/* An error with a suggestion where there is no such model. */
dro_status dro__model_check(dro_context *ctx, const char *name);
/* Whether it was made for rows of numbers, not for images. */
bool dro__model_of_rows(const char *name);

#define MODEL(name) extern const dro__model dro__model_##name;
#include "models.def"
#undef MODEL

#endif
