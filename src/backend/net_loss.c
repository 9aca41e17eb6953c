/* The losses of a network's outputs, one example at a time, in double, and dropout's masks. */
#include "graph.h"

#include <math.h>

/* p = softmax(z + adjust); returns log sum exp. */
static double softmax(size_t outputs, const double *z, const float *adjust, double *p)
{
    double top = -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < outputs; j++) {
        p[j] = z[j] + (adjust ? (double)adjust[j] : 0);
        top = p[j] > top ? p[j] : top;
    }
    for (size_t j = 0; j < outputs; j++)
        sum += exp(p[j] - top);
    double log_sum = top + log(sum);
    for (size_t j = 0; j < outputs; j++)
        p[j] = exp(p[j] - log_sum);
    return log_sum;
}

/* -sum_j t_j log p_j, t = (1 - smoothing) one-hot + smoothing / outputs; slope p - t. */
static double cross_entropy(const dro__graph *g, size_t outputs, size_t label, const double *z,
                            double *slopes)
{
    const float *adjust = g->loss == DRO__NET_LOGIT_ADJUSTED ? g->adjust : NULL;
    double log_sum = softmax(outputs, z, adjust, slopes),
           rest = (double)g->smoothing / (double)outputs;
    double loss = 0;
    for (size_t j = 0; j < outputs; j++) {
        double target = rest + (j == label ? 1 - (double)g->smoothing : 0);
        if (target > 0)
            loss += target * (log_sum - z[j] - (adjust ? (double)adjust[j] : 0));
        slopes[j] -= target;
    }
    return loss;
}

/* -(1 - p)^gamma log p of the label's p. */
static double focal(const dro__graph *g, size_t outputs, size_t label, const double *z,
                    double *slopes)
{
    double log_sum = softmax(outputs, z, NULL, slopes), gamma = (double)g->gamma;
    double p = slopes[label], rest = 0;
    for (size_t j = 0; j < outputs; j++)
        rest += j == label ? 0 : slopes[j];
    double log_p = rest < 0.5 ? log1p(-rest) : z[label] - log_sum;
    double power = pow(rest, gamma), ratio = rest > 0 ? log_p / rest : -1; /* -1 at p = 1 */
    /* d loss / d log p, over which the softmax's slope is (one-hot - p) */
    double slope = -power + gamma * power * p * ratio;
    for (size_t j = 0; j < outputs; j++)
        slopes[j] = slope * ((j == label) - slopes[j]);
    return -power * log_p;
}

static double target_of(const dro_net_batch *batch, size_t outputs, size_t n, size_t j)
{
    if (batch->targets)
        return (double)batch->targets[n * outputs + j];
    return outputs == 1 ? (double)batch->labels[n] : (double)((size_t)batch->labels[n] == j);
}

static double squared(size_t outputs, const dro_net_batch *batch, size_t n, const double *z,
                      double *slopes)
{
    double loss = 0;
    for (size_t j = 0; j < outputs; j++) {
        slopes[j] = z[j] - target_of(batch, outputs, n, j);
        loss += slopes[j] * slopes[j] / 2;
    }
    return loss;
}

/* log(1 + exp(-y z)), y = +1 where the target is above 1/2, else -1; summed over the outputs. */
static double logistic(size_t outputs, const dro_net_batch *batch, size_t n, const double *z,
                       double *slopes)
{
    double loss = 0;
    for (size_t j = 0; j < outputs; j++) {
        double y = target_of(batch, outputs, n, j) > 0.5 ? 1 : -1, margin = y * z[j];
        loss += margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
        slopes[j] = -y / (1 + exp(margin));
    }
    return loss;
}

double dro__net_loss_row(const dro__graph *graph, size_t outputs, const dro_net_batch *batch,
                         size_t n, const double *logits, double *slopes)
{
    switch (graph->loss) {
    case DRO__NET_CROSS_ENTROPY:
    case DRO__NET_LOGIT_ADJUSTED:
        return cross_entropy(graph, outputs, (size_t)batch->labels[n], logits, slopes);
    case DRO__NET_FOCAL:
        return focal(graph, outputs, (size_t)batch->labels[n], logits, slopes);
    case DRO__NET_SQUARED:
        return squared(outputs, batch, n, logits, slopes);
    case DRO__NET_LOGISTIC:
        return logistic(outputs, batch, n, logits, slopes);
    }
    return NAN;
}

enum { STREAM_DROPOUT = 0x64726f70 };

float dro__dropout_scale(const dro__node *node, int32_t layer, uint64_t key, size_t element)
{
    uint64_t stream = STREAM_DROPOUT + ((uint64_t)(uint32_t)layer << 32);
    double u = dro__random_unit(key, stream, element);
    return u < (double)node->rate ? 0.0f : 1.0f / (1.0f - node->rate);
}
