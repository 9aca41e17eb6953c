/* Figures from logits, added up batch by batch.
 *
 * balanced accuracy  the mean of the classes' accuracies (classes without examples are left out)
 * macro F1           the mean of 2 tp / (2 tp + fp + fn) over the classes that occur, in truth or prediction
 * AUROC              the share of pairs (one of each class) in the right order, ties counting half
 * calibration error  sum over 15 equal bins of the largest probability of (n_b/n) |accuracy_b - mean_b|
 * objective          lambda log mean exp(loss/lambda), or lambda log sum_g prior_g exp(L_g/lambda) with
 *                    L_g the mean loss of group g, as DESIGN's contract has it; plus r(w) */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dro_status dro__measure_create(dro_context *ctx, int32_t classes, int64_t examples, int32_t groups,
                               dro__measure *m)
{
    size_t c = (size_t)(classes > 0 ? classes : 1);
    *m = (dro__measure){.group_room = groups, .room = classes == 2 && examples > 0 ? examples : 0};
    m->figures.classes = classes;
    m->per_class = dro__alloc(c, sizeof *m->per_class);
    m->counts = dro__alloc(c, sizeof *m->counts);
    m->confusion = dro__alloc(c * c, sizeof *m->confusion);
    m->scores = dro__alloc((size_t)m->room, sizeof *m->scores);
    m->truth = dro__alloc((size_t)m->room, sizeof *m->truth);
    m->group_loss = dro__alloc((size_t)groups + 1, sizeof *m->group_loss);
    m->group_count = dro__alloc((size_t)groups + 1, sizeof *m->group_count);
    if (!m->per_class || !m->counts || !m->confusion || !m->scores || !m->truth || !m->group_loss ||
        !m->group_count) {
        dro__measure_free(m);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the figures of %d classes", classes);
    }
    if (classes > 0) {
        m->figures.per_class = m->per_class;
        m->figures.counts = m->counts;
        m->figures.confusion = m->confusion;
    }
    dro__measure_reset(m, INFINITY, 0, true);
    return DRO_OK;
}

void dro__measure_free(dro__measure *m)
{
    dro__free(m->per_class);
    dro__free(m->counts);
    dro__free(m->confusion);
    dro__free(m->scores);
    dro__free(m->truth);
    dro__free(m->group_loss);
    dro__free(m->group_count);
    *m = (dro__measure){0};
}

void dro__measure_reset(dro__measure *m, double lambda, int32_t groups, bool uniform)
{
    size_t c = (size_t)m->figures.classes;
    m->lambda = lambda;
    m->uniform = uniform;
    m->groups = groups < m->group_room ? groups : m->group_room;
    m->figures.examples = 0;
    m->loss_sum = m->sum = 0;
    m->top = -HUGE_VAL;
    memset(m->counts, 0, c * sizeof *m->counts);
    memset(m->confusion, 0, c * c * sizeof *m->confusion);
    memset(m->group_loss, 0, (size_t)m->groups * sizeof *m->group_loss);
    memset(m->group_count, 0, (size_t)m->groups * sizeof *m->group_count);
    memset(m->bin_sum, 0, sizeof m->bin_sum);
    memset(m->bin_hits, 0, sizeof m->bin_hits);
    memset(m->bin_n, 0, sizeof m->bin_n);
}

static void add_loss(dro__measure *m, double loss, int32_t group)
{
    double x = loss / m->lambda;
    m->loss_sum += loss;
    if (group >= 0 && group < m->groups) {
        m->group_loss[group] += loss;
        m->group_count[group]++;
    }
    if (x > m->top) {
        m->sum = m->sum * exp(m->top - x) + 1;
        m->top = x;
    } else {
        m->sum += exp(x - m->top);
    }
}

static void add_logits(dro__measure *m, const float *logits, int32_t label)
{
    int32_t classes = m->figures.classes, best = 0;
    double sum = 0;
    for (int32_t k = 1; k < classes; k++)
        if (logits[k] > logits[best])
            best = k;
    for (int32_t k = 0; k < classes; k++)
        sum += exp((double)logits[k] - (double)logits[best]);
    double p = 1 / sum; /* of the prediction */
    int bin = (int)ceil(p * DRO__BINS) - 1;
    bin = bin < 0 ? 0 : bin >= DRO__BINS ? DRO__BINS - 1 : bin;
    m->bin_sum[bin] += p;
    m->bin_n[bin]++;
    m->bin_hits[bin] += best == label;
    m->counts[label]++;
    m->confusion[(size_t)label * (size_t)classes + (size_t)best]++;
    if (m->figures.examples < m->room) {
        m->scores[m->figures.examples] = logits[1] - logits[0];
        m->truth[m->figures.examples] = (int8_t)label;
    }
}

void dro__measure_add(dro__measure *m, size_t count, const float *logits, const int32_t *labels,
                      const float *losses, const int32_t *groups)
{
    size_t classes = (size_t)m->figures.classes;
    for (size_t i = 0; i < count; i++) {
        if (losses)
            add_loss(m, (double)losses[i], groups ? groups[i] : -1);
        if (classes && logits && labels)
            add_logits(m, logits + i * classes, labels[i]);
        m->figures.examples++;
    }
}

/* ---- working out ---- */

typedef struct scored {
    float score;
    int8_t truth;
} scored;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

static dro_status auroc(dro_context *ctx, dro__measure *m)
{
    int64_t n = m->figures.examples, positive = m->counts[1];
    m->figures.auroc = NAN;
    if (positive == 0 || positive == n || n > m->room)
        return DRO_OK;
    scored *s = dro__alloc((size_t)n, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory to sort %lld scores", (long long)n);
    for (int64_t i = 0; i < n; i++)
        s[i] = (scored){m->scores[i], m->truth[i]};
    qsort(s, (size_t)n, sizeof *s, by_score);
    double ranks = 0; /* of the positive ones, from 1 on, ties sharing their mean */
    for (int64_t i = 0; i < n;) {
        int64_t end = i, hits = 0;
        for (; end < n && s[end].score == s[i].score; end++)
            hits += s[end].truth;
        ranks += (double)hits * ((double)(i + end + 1) / 2);
        i = end;
    }
    double p = (double)positive;
    m->figures.auroc = (ranks - p * (p + 1) / 2) / (p * (double)(n - positive));
    dro__free(s);
    return DRO_OK;
}

static void by_class(dro__measure *m)
{
    dro_metrics *f = &m->figures;
    int32_t c = f->classes, present = 0, occurring = 0;
    int64_t hits = 0;
    double recall = 0, f1 = 0;
    f->worst_class_accuracy = NAN;
    for (int32_t k = 0; k < c; k++) {
        int64_t right = m->confusion[k * (c + 1)], predicted = 0;
        for (int32_t j = 0; j < c; j++)
            predicted += m->confusion[(size_t)j * (size_t)c + (size_t)k];
        hits += right;
        m->per_class[k] = m->counts[k] ? (double)right / (double)m->counts[k] : NAN;
        if (m->counts[k]) {
            present++;
            recall += m->per_class[k];
            f->worst_class_accuracy = fmin(f->worst_class_accuracy, m->per_class[k]);
        }
        if (m->counts[k] + predicted) {
            occurring++;
            f1 += 2 * (double)right / (double)(m->counts[k] + predicted);
        }
    }
    f->accuracy = (double)hits / (double)f->examples;
    f->balanced_accuracy = recall / present;
    f->macro_f1 = f1 / occurring;
}

static double calibration(const dro__measure *m)
{
    double error = 0;
    for (int k = 0; k < DRO__BINS; k++)
        error += fabs((double)m->bin_hits[k] - m->bin_sum[k]);
    return error / (double)m->figures.examples;
}

static double objective(const dro__measure *m)
{
    double n = (double)m->figures.examples, top = -HUGE_VAL, sum = 0;
    int32_t present = 0;
    if (isinf(m->lambda))
        return m->loss_sum / n;
    if (m->groups == 0)
        return m->lambda * (m->top + log(m->sum / n));
    for (int32_t g = 0; g < m->groups; g++)
        if (m->group_count[g]) {
            present++;
            top = fmax(top, m->group_loss[g] / (double)m->group_count[g] / m->lambda);
        }
    for (int32_t g = 0; g < m->groups; g++)
        if (m->group_count[g]) {
            double count = (double)m->group_count[g];
            sum += (m->uniform ? 1.0 / present : count / n) *
                   exp(m->group_loss[g] / count / m->lambda - top);
        }
    return m->lambda * (top + log(sum));
}

dro_status dro__measure_finish(dro_context *ctx, dro__measure *m, double r)
{
    dro_metrics *f = &m->figures;
    f->accuracy = f->balanced_accuracy = f->worst_class_accuracy = f->macro_f1 = NAN;
    f->auroc = f->calibration_error = f->loss = f->objective = NAN;
    if (f->examples == 0)
        return DRO_OK;
    f->loss = m->loss_sum / (double)f->examples;
    f->objective = objective(m) + r;
    if (f->classes == 0)
        return DRO_OK;
    by_class(m);
    f->calibration_error = calibration(m);
    return f->classes == 2 ? auroc(ctx, m) : DRO_OK;
}
