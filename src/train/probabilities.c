/* The probabilities of the classes, by the loss that made the outputs z:
 *
 * cross-entropy, focal and the like      softmax: exp z_k, normalised
 * logistic                               each output is a sigmoid of its class against the others:
 *                                        1/(1 + exp -z_k), normalised. Two outputs that say the
 *                                        same (z_0 = -z_1) give the sigmoid of one.
 * squared                                an output estimates the probability itself: max(z_k, 0),
 *                                        normalised; all alike where none is above 0
 * one output for two classes             (sparse rows) logistic: its sigmoid. Squared on -1 and 1:
 *                                        (1 + z)/2, cut to 0 .. 1
 *
 * To the logarithms a shift is added, which gives them the prior of the training data: with the
 * logit-adjusted loss tau log(share), as in the loss; where the classes have weights q in the
 * objective (tilt=class), log(share/q). Another prior adds log(new share/share). */
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

/* The logarithm of what is normalised, but for the shift. NaN stays NaN. */
static double log_part(dro__link link, const float *z, int32_t k)
{
    double share = (double)z[k];
    if (link == DRO__LINK_SOFTMAX)
        return share;
    if (link == DRO__LINK_LOGISTIC)
        return log_sigmoid(share);
    if (link == DRO__LINK_SIGNS)
        share = (1 + share - (double)z[1 - k]) / 2;
    return share < 0 ? -HUGE_VAL : log(share);
}

double dro__probability(dro__link link, const double *shift, const float *z, int32_t classes,
                        int32_t best, double *all)
{
    double sum = 0, top = -HUGE_VAL, of_best = 0;
    for (int32_t k = 0; k < classes; k++) {
        double part = log_part(link, z, k) + (shift ? shift[k] : 0);
        top = part > top ? part : top;
    }
    bool none = top == -HUGE_VAL; /* the squared loss, and no output above 0 */
    for (int32_t k = 0; k < classes; k++) {
        double p = exp(log_part(link, z, k) + (shift ? shift[k] : 0) - top);
        if (none && !isnan(z[k]))
            p = 1;
        sum += p;
        of_best = k == best ? p : of_best;
        if (all)
            all[k] = p;
    }
    for (int32_t k = 0; all && k < classes; k++)
        all[k] /= sum;
    return of_best / sum;
}

int32_t dro__decide(const dro__decision *d, const float *z, int32_t classes, double *p, double *all)
{
    int32_t best = 0;
    for (int32_t k = 1; k < classes; k++)
        best = z[k] > z[best] ? k : best;
    *p = dro__probability(d->link, d->shift, z, classes, best, all);
    if (!all || (!d->probable && !(d->threshold > 0)))
        return best;
    best = 0;
    for (int32_t k = 1; d->probable && k < classes; k++)
        best = all[k] > all[best] ? k : best;
    if (!d->probable) /* the rare class, or the largest output of the others */
        best = d->rare == 0 && classes > 1;
    for (int32_t k = 0; !d->probable && k < classes; k++)
        best = k != d->rare && z[k] > z[best] ? k : best;
    if (!d->probable && all[d->rare] >= d->threshold)
        best = d->rare;
    *p = all[best];
    return best;
}

/* ---- the prior ---- */

void dro__task_shift(dro__task *t, const double *class_weights)
{
    for (int32_t k = 0; t->shift && k < t->info.classes; k++) {
        bool shifts = t->net && dro__loss_shifts(t->net->graph.loss) && t->net->graph.constants;
        t->shift[k] = shifts ? (double)t->net->graph.constants[k] : 0;
        if (class_weights)
            t->shift[k] += log(fmax(t->class_share[k], DRO__LEAST_SHARE)) -
                           log(fmax(class_weights[k], DRO__LEAST_SHARE));
    }
}

void dro__weights_shift(const dro__weights_about *a, const dro_net *net, double *shift)
{
    bool shifts = net && dro__loss_shifts(net->graph.loss) && net->graph.constants;
    for (int32_t k = 0; k < a->classes; k++)
        if (a->prior_shift)
            shift[k] = a->prior_shift[k];
        else
            shift[k] = shifts ? (double)net->graph.constants[k] : 0;
}
