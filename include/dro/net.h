/* Networks: build one, or take one by name; give it weights; hand it to an optimiser.
 *
 *     dro_net *net;
 *     dro_net_create(ctx, 3, 32, 32, &net);                    // images of 3 x 32 x 32
 *     dro_node x = dro_net_input(net);
 *     x = dro_net_conv(net, "conv1", x, 16, 3, 1, 1);          // channels, kernel, stride, padding
 *     x = dro_net_norm(net, "bn1", x);
 *     x = dro_net_relu(net, x);
 *     x = dro_net_global_pool(net, x);
 *     x = dro_net_linear(net, "fc", x, 10);
 *     dro_net_output(net, x);
 *     dro_net_ready(net);                                      // reports errors of the calls above
 *     dro_net_init(net, seed);
 *     dro_net_problem(net, &source, &problem);                 // for dro_optimizer_create()
 *     dro_optimizer_start(opt, dro_net_weights(net));
 *
 * Errors while building are deferred: a wrong call returns node -1, later calls pass it on, and
 * dro_net_ready() returns the first error. Rows of a table are images of features x 1 x 1.
 *
 * The trained parameters are one flat vector w in the order in which their layers were added, each
 * in PyTorch's layout: (out, in, kernel height, kernel width), (out, in), gamma, beta. Batch norm's
 * running statistics are not part of w: the network keeps them, and updates them from the first
 * part of a step when the optimiser has accepted the step. */
#ifndef DRO_NET_H
#define DRO_NET_H

#include <dro/loader.h>
#include <dro/optimizer.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stable, except for the last section ---- */

typedef struct dro_net dro_net;
typedef int32_t dro_node; /* the value of one layer; -1 after an error */

/* ---- build ---- */

DRO_API dro_status dro_net_create(dro_context *ctx, int32_t channels, int32_t height, int32_t width,
                                  dro_net **net);
DRO_API void dro_net_destroy(dro_net *net); /* NULL is fine */

typedef struct dro_window { /* of a convolution or a pooling: height, width */
    int32_t kernel[2], stride[2], pad[2];
} dro_window;

/* `name` is the tensors' name in weights files, without ".weight" and ".bias"; borrowed only for
 * the call. */
DRO_API dro_node dro_net_input(dro_net *net);
DRO_API dro_node dro_net_conv(dro_net *net, const char *name, dro_node x, int32_t channels,
                              int32_t kernel, int32_t stride, int32_t pad); /* no bias */
DRO_API dro_node dro_net_conv_window(dro_net *net, const char *name, dro_node x, int32_t channels,
                                     const dro_window *window, bool bias);
/* Each channel with a kernel of its own: PyTorch's Conv2d with as many groups as channels. */
DRO_API dro_node dro_net_depthwise(dro_net *net, const char *name, dro_node x,
                                   const dro_window *window, bool bias);
DRO_API dro_node dro_net_norm(dro_net *net, const char *name,
                              dro_node x); /* batch norm, eps 1e-5 */
DRO_API dro_node dro_net_norm_eps(dro_net *net, const char *name, dro_node x, float eps);
DRO_API dro_node dro_net_relu(dro_net *net, dro_node x);
DRO_API dro_node dro_net_relu6(dro_net *net, dro_node x); /* at most 6 */
DRO_API dro_node dro_net_max_pool(dro_net *net, dro_node x, const dro_window *window);
DRO_API dro_node dro_net_avg_pool(dro_net *net, dro_node x,
                                  const dro_window *window);    /* padding counts */
DRO_API dro_node dro_net_global_pool(dro_net *net, dro_node x); /* the mean over each channel */
DRO_API dro_node dro_net_add(dro_net *net, dro_node x, dro_node y);
DRO_API dro_node dro_net_concat(dro_net *net, const dro_node *x,
                                int count); /* channels, at most 8 */
DRO_API dro_node dro_net_flatten(dro_net *net, dro_node x);
DRO_API dro_node dro_net_linear(dro_net *net, const char *name, dro_node x, int32_t outputs);
DRO_API dro_node dro_net_dropout(dro_net *net, dro_node x, float rate);
/* The CIFAR ResNets' parameter-free shortcut: every stride-th pixel, zero channels on both
 * sides. */
DRO_API dro_node dro_net_shortcut(dro_net *net, dro_node x, int32_t channels, int32_t stride);
/* x[c] * scale[c] + shift[c] with constants, (channels) each. */
DRO_API dro_node dro_net_affine(dro_net *net, dro_node x, const float *scale, const float *shift);

DRO_API void dro_net_output(dro_net *net, dro_node logits);
/* A second head: training adds `weight` times its loss. */
DRO_API void dro_net_auxiliary(dro_net *net, dro_node logits, float weight);

/* ---- or by name: the models of `dro list models` ---- */

typedef struct dro_model_shape {
    int32_t channels, height, width, outputs;
} dro_model_shape;

/* "resnet20", "mlp:128,64", ... The network is built; it can still be configured
 * (dro_net_set(), dro_net_train_only()) before dro_net_ready(). */
DRO_API dro_status dro_net_model(dro_context *ctx, const char *name, const dro_model_shape *shape,
                                 dro_net **net);
/* The i-th model: name, one line about it and the shape it was made for; NULL past the last. */
DRO_API const char *dro_model_name(int index);
DRO_API const char *dro_model_summary(int index);
DRO_API dro_model_shape dro_model_usual(int index);

/* ---- choose, before dro_net_ready() ---- */

/* "loss" and the settings of losses; for a GPU "precision", "deterministic" and "convolutions".
 * dro_net_param() lists them. */
DRO_API dro_status dro_net_set(dro_net *net, const char *name, const char *value);
DRO_API dro_status dro_net_param(int index, dro_param *param); /* DRO_ERR_END past the last */
/* The i-th loss and a line about it; NULL past the last. */
DRO_API const char *dro_loss_name(int index);
DRO_API const char *dro_loss_summary(int index);
/* Whether a setting ("tau") affects a loss; loss NULL: any loss. */
DRO_API bool dro_loss_has(const char *loss, const char *setting);
/* Whether a loss is proper: the probabilities that minimise it are the true ones. */
DRO_API bool dro_loss_proper(const char *loss);
/* The classes' shares of the training data, (outputs), for the losses logit-adjusted and ldam;
 * copied. */
DRO_API dro_status dro_net_prior(dro_net *net, const double *share, size_t count);
/* Trains only the tensors whose name matches one of the patterns ("layer4.*,fc.*"); the others are
 * frozen: not in w, no gradient, and their batch norms use the running statistics. Each pattern
 * must match a tensor, and a layer is trained as a whole or not at all. NULL: trains everything. */
DRO_API dro_status dro_net_train_only(dro_net *net, const char *patterns);
/* Returns the first error of building or configuring. After a wrong setting, correct it and call
 * again; a wrong layer cannot be corrected. */
DRO_API dro_status dro_net_ready(dro_net *net);

/* ---- weights ---- */

/* Kaiming normal (fan in), zero biases, gamma 1, beta 0; a function of the seed only. The weights
 * of a linear model, whose loss is convex, are 0. */
DRO_API dro_status dro_net_init(dro_net *net, uint64_t seed);
DRO_API size_t dro_net_dim(const dro_net *net);             /* trained parameters */
DRO_API size_t dro_net_parameters(const dro_net *net);      /* all of them */
DRO_API uint64_t dro_net_multiply_adds(const dro_net *net); /* of one example, evaluation */
DRO_API dro_model_shape dro_net_shape(const dro_net *net);
/* The trained parameters as they were initialised, loaded or set: (dim), host memory, borrowed. */
DRO_API const float *dro_net_weights(const dro_net *net);
DRO_API dro_status dro_net_set_weights(dro_net *net, const float *w);
/* Running statistics: (count) floats in host memory. */
DRO_API size_t dro_net_statistics_count(const dro_net *net);
DRO_API dro_status dro_net_statistics(const dro_net *net, float *statistics);
DRO_API dro_status dro_net_set_statistics(dro_net *net, const float *statistics);
/* The i-th tensor: its name, its shape and its offset in w; -1 if it is not in w (frozen, or a
 * running statistic). DRO_ERR_ARGUMENT past the last. */
typedef struct dro_tensor {
    const char *name;
    int rank;
    int64_t shape[4];
    int64_t offset;
    bool trained;
} dro_tensor;
DRO_API size_t dro_net_tensor_count(const dro_net *net);
DRO_API dro_status dro_net_tensor(const dro_net *net, size_t index, dro_tensor *tensor);

/* Safetensors files with PyTorch's names. Load changes everything or, on failure, nothing. A
 * classifier with another number of outputs is not loaded; *kept (optional) counts such tensors. */
DRO_API dro_status dro_net_load(dro_net *net, const char *path, size_t *kept);
DRO_API dro_status dro_net_save(const dro_net *net, const char *path);
/* The same with the file's metadata: key, value, key, value ..., NULL (UTF-8). NULL: "format",
 * "pt". */
DRO_API dro_status dro_net_save_with(const dro_net *net, const char *path,
                                     const char *const *metadata);

/* ---- use ---- */

/* Small images in the backend's memory, as bytes (any, channels, height, width); scale and shift
 * (channels), in host memory, normalise them. */
typedef struct dro_net_images {
    const uint8_t *bytes;
    const float *scale, *shift;
} dro_net_images;

/* One part of a call. All arrays are in host memory, except that on a GPU backend x may be in GPU
 * memory, or may be replaced by images, their ids and how to crop them. */
typedef struct dro_net_batch {
    size_t count;
    const float *x;        /* (count, channels, height, width) */
    const int32_t *labels; /* (count), or NULL when there are targets */
    const float *targets;  /* (count, outputs), for the squared and the logistic loss; else NULL */
    const uint64_t *keys;  /* (count) seeds of the dropout masks; NULL: 0, 1, 2, ... */
    const dro_net_images *images; /* instead of x, on a GPU backend */
    const int64_t *ids;           /* (count) of images */
    const dro_cut *cuts;          /* (count) of images; NULL: as they are */
    const dro_mix *mixes;         /* (count) labels and shares of mixed examples, and the second
                                     images where there are images; NULL: not mixed */
} dro_net_batch;

/* The contract of dro/problem.h, for writing your own dro_problem. A backward follows a forward
 * with the same w; the arrays of the parts are borrowed until then. w, losses, coef and grads may
 * be in host memory or in the backend's memory; for the parts see dro_net_batch. */
DRO_API dro_status dro_net_forward(dro_net *net, const float *w, const dro_net_batch *parts,
                                   int part_count, float *losses);
DRO_API dro_status dro_net_backward(dro_net *net, const float *w, const float *coef,
                                    float *const *grads);
/* Updates the running statistics from part 0 of the last forward. */
DRO_API void dro_net_accept(dro_net *net);
/* Evaluation mode: running statistics, no dropout. logits (count, outputs) or losses (count) may be
 * NULL. */
DRO_API dro_status dro_net_evaluate(dro_net *net, const float *w, const dro_net_batch *batch,
                                    float *logits, float *losses);

/* Where a problem's examples come from. `fetch` fills in a drawn batch (ids, position); its arrays
 * must stay valid while the other part of the call is fetched and until the backward. The network
 * fills in the keys. The other fields are passed to the problem (dro/problem.h); draw may be
 * NULL. */
typedef struct dro_net_source {
    size_t size; /* sizeof(dro_net_source) */
    void *user;
    dro_status (*fetch)(void *user, const dro_batch *batch, dro_net_batch *out);
    dro_status (*draw)(void *user, uint64_t position, size_t count, dro_batch *batch);
    dro_status (*gather)(void *user, const int64_t *ids, size_t count, dro_batch *batch);
    dro_status (*labels)(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups);
    int64_t n;
    int32_t classes, groups;
    const double *class_share, *group_share;
    bool images; /* fetch gives images in the backend's memory, never x */
    /* The most examples that fetch can hold in one call, both parts together; 0: any number. Some
     * optimisers request more than a batch: civr and rcivr at the start of a stage, and the
     * primal-dual methods at the beginning. */
    size_t max_batch;
} dro_net_source;
/* The source is copied; *problem is valid until the network is destroyed. */
DRO_API dro_status dro_net_problem(dro_net *net, const dro_net_source *source,
                                   dro_problem *problem);

/* ---- experimental: images in a GPU's memory, also `images` of batches and sources ---- */

/* Copies images to the memory of a GPU backend; DRO_ERR_UNSUPPORTED on others. scale and shift are
 * borrowed until free and read with every batch. */
DRO_API dro_status dro_net_images_create(dro_context *ctx, const uint8_t *pixels, size_t bytes,
                                         const float *scale, const float *shift,
                                         dro_net_images *images);
DRO_API void dro_net_images_free(dro_context *ctx, dro_net_images *images); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
