/* The probabilities of the classes, by the loss that made the outputs z:
 *
 * cross-entropy and its kin              softmax: exp z_k, normalised
 * logistic                               each output is a sigmoid of its class against the others: 1/(1 + exp -z_k),
 *                                        normalised. Two outputs that say the same (z_0 = -z_1) give the sigmoid of one.
 * squared                                an output estimates the probability itself: max(z_k, 0), normalised; all
 *                                        alike where none is above 0
 * one output for two classes             (sparse rows) logistic: its sigmoid. Squared on -1 and 1: (1 + z)/2, cut to
 *                                        0 .. 1 */
#include "train.h"

#include <math.h>

dro__link dro__link_of(const dro__task *t)
{
    if (!t->net)
        return t->row_loss == DRO__LOSS_SQUARED ? DRO__LINK_SIGNS : DRO__LINK_SOFTMAX;
    return dro__net_losses[t->net->graph.loss].link;
}

static double log_sigmoid(double z)
{
    return z > 0 ? -log1p(exp(-z)) : z - log1p(exp(z));
}

/* What is normalised; of logarithms, as a ratio to that of the largest output. NaN stays NaN. */
static double part(dro__link link, const float *z, int32_t k, int32_t best)
{
    double share = (double)z[k];
    if (link == DRO__LINK_SOFTMAX)
        return exp(share - (double)z[best]);
    if (link == DRO__LINK_LOGISTIC)
        return exp(log_sigmoid(share) - log_sigmoid((double)z[best]));
    if (link == DRO__LINK_SIGNS)
        share = (1 + share - (double)z[1 - k]) / 2;
    return share < 0 ? 0 : share;
}

double dro__probability(dro__link link, const float *z, int32_t classes, int32_t best, double *all)
{
    double sum = 0, top = part(link, z, best, best);
    for (int32_t k = 0; k < classes; k++) {
        double p = part(link, z, k, best);
        sum += p;
        if (all)
            all[k] = p;
    }
    bool none = sum == 0; /* the squared loss, and no output above 0 */
    for (int32_t k = 0; all && k < classes; k++)
        all[k] = none ? 1.0 / classes : all[k] / sum;
    return none ? 1.0 / classes : top / sum;
}
