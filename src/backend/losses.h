/* The losses of a network's outputs, as a list. A new loss is a row here and a function of its name
 * in loss_functions.h, which the C compiler and nvcc both compile. */
#ifndef DRO_LOSSES_H
#define DRO_LOSSES_H

#include <stdbool.h>
#include <stddef.h>

/* Added to the squares under the roots of a cosine classifier. */
#define DRO__COSINE_EPS 1e-8f

/* X(name, default, low, high, meaning): the numbers that losses are set by. */
#define DRO__LOSS_SETTINGS(X)                                                                      \
    X(smoothing, "0", 0, 1, "label smoothing of cross-entropy and logit-adjusted")                 \
    X(smoothing_head, "0", 0, 1,                                                                   \
      "label-aware smoothing: that of the most frequent class; the rarest one has `smoothing`; "   \
      "0: off")                                                                                    \
    X(focal_gamma, "2", 0, 100, "focal: the power of 1 - p")                                       \
    X(tau, "1", 0, 100, "logit-adjusted: how many times log(prior) is added to the logits")        \
    X(ldam_margin, "0.5", 0, 100, "ldam: the rarest class's margin, in logits")

#define DRO__LOSS_ENUM(name, fallback, low, high, meaning) DRO__SET_##name,
enum { DRO__LOSS_SETTINGS(DRO__LOSS_ENUM) DRO__LOSS_SETTING_COUNT };
#undef DRO__LOSS_ENUM

#define DRO__SET(name) (1u << DRO__SET_##name)

/* How outputs become probabilities. SIGNS: one output, trained to be -1 or 1. */
typedef enum dro__link {
    DRO__LINK_SOFTMAX,
    DRO__LINK_LOGISTIC,
    DRO__LINK_SQUARED,
    DRO__LINK_SIGNS
} dro__link;

/* What an example is compared with: the number of its class, or a value for each output. */
typedef enum dro__loss_of { DRO__OF_CLASS, DRO__OF_TARGETS } dro__loss_of;

/* X(NAME, name, "name", of, link, settings, constants, proper, summary). constants: a function of
 * net_loss.c that computes a number for each class from its share of the training data, or NULL.
 * proper: the probabilities that minimise it are the true ones. */
#define DRO__LOSSES(X)                                                                             \
    X(CROSS_ENTROPY, cross_entropy, "cross-entropy", CLASS, SOFTMAX,                               \
      DRO__SET(smoothing) | DRO__SET(smoothing_head), NULL, 1,                                     \
      "classes: -log of the probability of the true class")                                        \
    X(FOCAL, focal, "focal", CLASS, SOFTMAX, DRO__SET(focal_gamma), NULL, 0,                       \
      "classes: cross-entropy times (1 - p)^focal_gamma, p the probability of the true class")     \
    X(LOGIT_ADJUSTED, logit_adjusted, "logit-adjusted", CLASS, SOFTMAX,                            \
      DRO__SET(smoothing) | DRO__SET(smoothing_head) | DRO__SET(tau), prior_shift, 0,              \
      "classes: cross-entropy after tau log(prior) is added to each logit; for rare classes")      \
    X(SQUARED, squared, "squared", TARGETS, SQUARED, 0, NULL, 1,                                   \
      "real-valued targets, or classes as 0 and 1: half the squared error, summed over outputs")   \
    X(LOGISTIC, logistic, "logistic", TARGETS, LOGISTIC, 0, NULL, 1,                               \
      "classes, each output by itself: log(1 + exp(-z)) for the true one, else log(1 + exp(z))")   \
    X(LDAM, ldam, "ldam", CLASS, SOFTMAX, DRO__SET(ldam_margin), class_margin, 0,                  \
      "classes: cross-entropy with a margin that is larger for rarer classes")

#define DRO__LOSS_ENUM(ID, id, name, of, link, settings, constants, proper, summary) DRO__NET_##ID,
typedef enum dro__net_loss { DRO__LOSSES(DRO__LOSS_ENUM) DRO__NET_LOSSES } dro__net_loss;
#undef DRO__LOSS_ENUM

/* A row of the list. */
typedef struct dro__loss_about {
    const char *name;
    dro__loss_of of;
    dro__link link;
    unsigned settings; /* those that affect it, one bit each */
    /* (optional) the number of a class by its share; least: the smallest share that is not 0 */
    float (*constant)(const double *set, double share, double least);
    bool proper;
    const char *summary;
} dro__loss_about;

#ifndef __CUDACC__
/* The label smoothing of a class: MiSLAS, Zhong et al. 2021, the concave form. Shares from that of
 * the rarest to that of the most frequent class become smoothing to smoothing_head. */
float dro__loss_smoothing(const double *set, double share, double least, double most);
extern const dro__loss_about dro__net_losses[DRO__NET_LOSSES];
extern const char *const dro__loss_settings[DRO__LOSS_SETTING_COUNT]; /* their names */
/* Whether its constants are added to the logits: with them they are those of the training data's
 * prior. */
bool dro__loss_shifts(dro__net_loss loss);
#endif

#endif
