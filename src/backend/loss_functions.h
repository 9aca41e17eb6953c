/* The losses of losses.h: the value of one example and its slopes by the logits. For the C compiler
 * an example is the caller's; for nvcc (after device.cuh) a block of threads shares it, each with
 * every so manieth output, and all_sum and all_max are over the block. */
#ifndef DRO_LOSS_FUNCTIONS_H
#define DRO_LOSS_FUNCTIONS_H

#include "losses.h"

#ifdef __CUDACC__
#define DRO__LOSS_CALL static __device__ double
#define DRO__LOSS_PUT  static __device__ void put
#define EACH_OUTPUT(j) for (int j = (int)threadIdx.x; j < l->outputs; j += (int)blockDim.x)
typedef float dro__loss_real; /* of logits and slopes */
#else
#include <math.h>
#define DRO__LOSS_CALL static double
#define DRO__LOSS_PUT  static void put
#define EACH_OUTPUT(j) for (int j = 0; j < l->outputs; j++)
typedef double dro__loss_real;
static inline double all_sum(double x)
{
    return x;
}
static inline double all_max(double x)
{
    return x;
}
#endif

/* An example, but for its logits (outputs). */
typedef struct dro__loss_example {
    int outputs;
    int label;              /* -1: none; it is not checked where only logits are wanted */
    const float *set;       /* (DRO__LOSS_SETTING_COUNT) */
    const float *constants; /* (2, outputs) of the classes: the loss's, and smoothing; or NULL */
    /* (outputs), or NULL: 1 for the label and 0 for the others; of one output the label itself */
    const float *targets;
    double weight; /* of the slopes */
    bool add;      /* slopes are added to those that are there */
} dro__loss_example;

DRO__LOSS_PUT(const dro__loss_example *l, dro__loss_real *slopes, int j, double slope)
{
    slopes[j] = (l->add ? slopes[j] : 0) + (dro__loss_real)(l->weight * slope);
}

/* A logit as a loss sees it: with a number for each class added to all, or taken from the
 * label's. */
DRO__LOSS_CALL shifted(const dro__loss_example *l, const dro__loss_real *z, int j,
                       const float *added, const float *margin)
{
    double x = (double)z[j];
    if (added)
        x += (double)added[j];
    return margin && j == l->label ? x - (double)margin[j] : x;
}

DRO__LOSS_CALL log_sum_exp(const dro__loss_example *l, const dro__loss_real *z, const float *added,
                           const float *margin)
{
    double top = -HUGE_VAL, sum = 0;
    EACH_OUTPUT (j)
        top = fmax(top, shifted(l, z, j, added, margin));
    top = all_max(top);
    EACH_OUTPUT (j)
        sum += exp(shifted(l, z, j, added, margin) - top);
    return top + log(all_sum(sum));
}

/* -sum_j t_j log p_j with p = softmax of the shifted logits and t = (1 - smoothing) one-hot +
 * smoothing / outputs; slope p - t. */
DRO__LOSS_CALL entropy(const dro__loss_example *l, const dro__loss_real *z, dro__loss_real *slopes,
                       double smoothing, const float *added, const float *margin)
{
    double log_sum = log_sum_exp(l, z, added, margin), rest = smoothing / (double)l->outputs;
    double loss = 0;
    EACH_OUTPUT (j) {
        double x = shifted(l, z, j, added, margin);
        double target = rest + (j == l->label ? 1 - smoothing : 0);
        if (target > 0)
            loss += target * (log_sum - x);
        put(l, slopes, j, exp(x - log_sum) - target);
    }
    return all_sum(loss);
}

DRO__LOSS_CALL smoothing_of(const dro__loss_example *l)
{
    bool known = l->label >= 0 && l->label < l->outputs;
    return l->constants && known ? (double)l->constants[l->outputs + l->label]
                                 : (double)l->set[DRO__SET_smoothing];
}

DRO__LOSS_CALL dro__loss_cross_entropy(const dro__loss_example *l, const dro__loss_real *z,
                                       dro__loss_real *slopes)
{
    return entropy(l, z, slopes, smoothing_of(l), NULL, NULL);
}

/* Menon et al. 2021: tau log(prior) is added to the logits. */
DRO__LOSS_CALL dro__loss_logit_adjusted(const dro__loss_example *l, const dro__loss_real *z,
                                        dro__loss_real *slopes)
{
    return entropy(l, z, slopes, smoothing_of(l), l->constants, NULL);
}

/* Label-distribution-aware margins, Cao et al. 2019, eq. 13: the label's logit must win by a margin
 * that is the larger the rarer the class. The paper normalises features and weights and multiplies
 * the logits by 30; our networks do neither, so that the margin is in the logits' own unit. */
DRO__LOSS_CALL dro__loss_ldam(const dro__loss_example *l, const dro__loss_real *z,
                              dro__loss_real *slopes)
{
    return entropy(l, z, slopes, 0, NULL, l->constants);
}

/* Lin et al. 2017: -(1 - p)^gamma log p of the label's p. */
DRO__LOSS_CALL dro__loss_focal(const dro__loss_example *l, const dro__loss_real *z,
                               dro__loss_real *slopes)
{
    double gamma = (double)l->set[DRO__SET_focal_gamma], others = 0, own = 0;
    double log_sum = log_sum_exp(l, z, NULL, NULL);
    EACH_OUTPUT (j) {
        others += j == l->label ? 0 : exp((double)z[j] - log_sum);
        own += j == l->label ? (double)z[j] - log_sum : 0;
    }
    double rest = all_sum(others), log_p = all_sum(own), p = exp(log_p);
    if (rest < 0.5)
        log_p = log1p(-rest);
    double power = pow(rest, gamma), ratio = rest > 0 ? log_p / rest : -1; /* -1 at p = 1 */
    /* d loss / d log p, over which the softmax's slope is (one-hot - p) */
    double slope = -power + gamma * power * p * ratio;
    EACH_OUTPUT (j)
        put(l, slopes, j, slope * ((j == l->label) - exp((double)z[j] - log_sum)));
    return -power * log_p;
}

DRO__LOSS_CALL target_of(const dro__loss_example *l, int j)
{
    if (l->targets)
        return (double)l->targets[j];
    return l->outputs == 1 ? (double)l->label : (double)(l->label == j);
}

DRO__LOSS_CALL dro__loss_squared(const dro__loss_example *l, const dro__loss_real *z,
                                 dro__loss_real *slopes)
{
    double loss = 0;
    EACH_OUTPUT (j) {
        double slope = (double)z[j] - target_of(l, j);
        loss += slope * slope / 2;
        put(l, slopes, j, slope);
    }
    return all_sum(loss);
}

/* log(1 + exp(-y z)), y = +1 where the target is above 1/2, else -1; summed over the outputs. */
DRO__LOSS_CALL dro__loss_logistic(const dro__loss_example *l, const dro__loss_real *z,
                                  dro__loss_real *slopes)
{
    double loss = 0;
    EACH_OUTPUT (j) {
        double y = target_of(l, j) > 0.5 ? 1 : -1, margin = y * (double)z[j];
        loss += margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
        put(l, slopes, j, -y / (1 + exp(margin)));
    }
    return all_sum(loss);
}

/* Of any kind. */
DRO__LOSS_CALL dro__loss_value(int kind, const dro__loss_example *l, const dro__loss_real *z,
                               dro__loss_real *slopes)
{
    switch (kind) {
#define DRO__LOSS_CASE(ID, id, name, of, link, settings, constants, proper, summary)               \
    case DRO__NET_##ID:                                                                            \
        return dro__loss_##id(l, z, slopes);
        DRO__LOSSES(DRO__LOSS_CASE)
#undef DRO__LOSS_CASE
    default:
        return NAN;
    }
}

/* The same of an example that is mixed: share of its label's loss, the rest of the other's. */
DRO__LOSS_CALL dro__loss_mixed(int kind, dro__loss_example *l, double share, int other,
                               const dro__loss_real *z, dro__loss_real *slopes)
{
    double weight = l->weight;
    l->weight = weight * share;
    double loss = share * dro__loss_value(kind, l, z, slopes);
    l->label = other, l->add = true, l->weight = weight * (1 - share);
    return loss + (1 - share) * dro__loss_value(kind, l, z, slopes);
}

#endif
