/* Figures from logits, added up batch by batch.
 *
 * balanced accuracy  the mean of the classes' accuracies (classes without examples are left out)
 * macro F1           the mean of 2 tp / (2 tp + fp + fn) over the classes that occur, in truth or prediction
 * AUROC              the share of pairs (one of each class) in the right order, ties counting half
 * calibration error  sum over 15 equal bins of the largest probability of (n_b/n) |accuracy_b - mean_b|; the
 *                    probabilities are those of the loss (probabilities.c)
 * objective          by its name (opt/objective.h); kl:
 *                    lambda log mean exp(loss/lambda), or lambda log sum_g prior_g exp(L_g/lambda) with
 *                    L_g the mean loss of class or group g; plus r(w)
 * class weights      the share of the examples of a class in sum exp(loss/lambda) */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dro_status dro__measure_create(dro_context *ctx, int32_t classes, int64_t examples, int32_t groups,
                               dro__measure *m)
{
    size_t c = (size_t)(classes > 0 ? classes : 1), g = (size_t)groups + 1;
    *m = (dro__measure){.room = classes == 2 && examples > 0 ? examples : 0,
                        .losses_room = examples > 0 ? examples : 0};
    m->figures.classes = classes;
    m->figures.groups = groups;
    m->per_class = dro__alloc(c, sizeof *m->per_class);
    m->counts = dro__alloc(c, sizeof *m->counts);
    m->confusion = dro__alloc(c * c, sizeof *m->confusion);
    m->class_loss = dro__alloc(c, sizeof *m->class_loss);
    m->class_sum = dro__alloc(c, sizeof *m->class_sum);
    m->scores = dro__alloc((size_t)m->room, sizeof *m->scores);
    m->truth = dro__alloc((size_t)m->room, sizeof *m->truth);
    m->losses = dro__alloc((size_t)m->losses_room, sizeof *m->losses);
    m->per_group = dro__alloc(g, sizeof *m->per_group);
    m->group_loss = dro__alloc(g, sizeof *m->group_loss);
    m->group_count = dro__alloc(g, sizeof *m->group_count);
    m->group_hits = dro__alloc(g, sizeof *m->group_hits);
    if (!m->per_class || !m->counts || !m->confusion || !m->class_loss || !m->class_sum ||
        !m->scores || !m->truth || !m->losses || !m->per_group || !m->group_loss ||
        !m->group_count || !m->group_hits) {
        dro__measure_free(m);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the figures of %d classes", classes);
    }
    if (classes > 0) {
        m->figures.per_class = m->per_class;
        m->figures.counts = m->counts;
        m->figures.confusion = m->confusion;
    }
    if (groups > 0) {
        m->figures.per_group = m->per_group;
        m->figures.group_counts = m->group_count;
    }
    dro__measure_reset(m, &dro__mean_loss);
    return DRO_OK;
}

void dro__measure_free(dro__measure *m)
{
    void *all[] = {m->per_class,  m->counts,      m->confusion,  m->class_loss,
                   m->class_sum,  m->scores,      m->truth,      m->per_group,
                   m->group_loss, m->group_count, m->group_hits, m->losses};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        dro__free(all[k]);
    *m = (dro__measure){0};
}

const dro__robust dro__mean_loss = {
    .lambda = INFINITY, .weight_lambda = INFINITY, .level = DRO__TILT_EXAMPLE, .uniform = true};

void dro__measure_reset(dro__measure *m, const dro__robust *robust)
{
    size_t c = (size_t)m->figures.classes, g = (size_t)m->figures.groups;
    m->robust = *robust;
    m->figures.examples = 0;
    m->loss_sum = 0;
    m->tilted = (dro__tilted){0};
    m->class_top = -HUGE_VAL;
    memset(m->counts, 0, c * sizeof *m->counts);
    memset(m->confusion, 0, c * c * sizeof *m->confusion);
    memset(m->class_loss, 0, c * sizeof *m->class_loss);
    memset(m->class_sum, 0, c * sizeof *m->class_sum);
    memset(m->group_loss, 0, g * sizeof *m->group_loss);
    memset(m->group_count, 0, g * sizeof *m->group_count);
    memset(m->group_hits, 0, g * sizeof *m->group_hits);
    memset(m->bin_sum, 0, sizeof m->bin_sum);
    memset(m->bin_hits, 0, sizeof m->bin_hits);
    memset(m->bin_n, 0, sizeof m->bin_n);
}

static void add_class_loss(dro__measure *m, double loss, int32_t label)
{
    double x = loss / m->robust.weight_lambda;
    m->class_loss[label] += loss;
    if (x > m->class_top) {
        double fall = exp(m->class_top - x);
        for (int32_t k = 0; k < m->figures.classes; k++)
            m->class_sum[k] *= fall;
        m->class_top = x;
    }
    m->class_sum[label] += exp(x - m->class_top);
}

/* Whether the prediction is right. */
static bool add_prediction(dro__measure *m, const dro__digest *d, int32_t label)
{
    int bin = (int)ceil(d->p * DRO__BINS) - 1;
    bin = bin < 0 ? 0 : bin >= DRO__BINS ? DRO__BINS - 1 : bin;
    m->bin_sum[bin] += d->p;
    m->bin_n[bin]++;
    m->bin_hits[bin] += d->best == label;
    m->counts[label]++;
    m->confusion[(size_t)label * (size_t)m->figures.classes + (size_t)d->best]++;
    if (m->figures.examples < m->room) {
        m->scores[m->figures.examples] = d->score;
        m->truth[m->figures.examples] = (int8_t)label;
    }
    return d->best == label;
}

void dro__measure_digest(const dro__measure *m, const float *logits, const float *loss,
                         dro__digest *d)
{
    int32_t classes = m->figures.classes, best = 0;
    *d = (dro__digest){.best = -1, .read = 1, .loss = loss ? *loss : 0};
    if (!classes || !logits)
        return;
    for (int32_t k = 1; k < classes; k++)
        if (logits[k] > logits[best])
            best = k;
    d->best = best;
    d->p = dro__probability(m->link, logits, classes, best, NULL);
    d->score = classes > 1 ? logits[1] - logits[0] : 0;
}

void dro__measure_take(dro__measure *m, const dro__digest *d, int32_t label, int32_t group,
                       bool has_loss)
{
    bool labelled = m->figures.classes && label >= 0, hit = false;
    if (has_loss) {
        m->loss_sum += (double)d->loss;
        if (m->figures.examples < m->losses_room)
            m->losses[m->figures.examples] = d->loss;
        dro__tilted_add(&m->tilted, m->robust.lambda, (double)d->loss, 1);
    }
    if (has_loss && labelled)
        add_class_loss(m, (double)d->loss, label);
    if (labelled && d->best >= 0)
        hit = add_prediction(m, d, label);
    if (group >= 0 && m->figures.groups) {
        m->group_count[group]++;
        m->group_hits[group] += hit;
        m->group_loss[group] += has_loss ? (double)d->loss : 0;
    }
    m->figures.examples++;
}

void dro__measure_add(dro__measure *m, size_t count, const float *logits, const int32_t *labels,
                      const float *losses, const int32_t *groups)
{
    size_t classes = (size_t)m->figures.classes;
    for (size_t i = 0; i < count; i++) {
        dro__digest d;
        dro__measure_digest(m, logits && labels ? logits + i * classes : NULL,
                            losses ? losses + i : NULL, &d);
        dro__measure_take(m, &d, labels ? labels[i] : -1, groups ? groups[i] : -1, losses != NULL);
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

static void by_group(dro__measure *m)
{
    dro_metrics *f = &m->figures;
    for (int32_t g = 0; g < f->groups; g++) {
        m->per_group[g] = f->classes && m->group_count[g]
                              ? (double)m->group_hits[g] / (double)m->group_count[g]
                              : NAN;
        f->worst_group_accuracy =
            fmin(f->worst_group_accuracy, m->per_group[g]); /* NaN gives way */
    }
}

/* lambda log sum_g prior_g exp(L_g/lambda) over those that occur. */
static double over_groups(const dro__measure *m, const double *loss, const int64_t *count,
                          int32_t groups)
{
    dro__tilted t = {0};
    for (int32_t g = 0; g < groups; g++)
        if (count[g])
            dro__tilted_add(&t, m->robust.lambda, loss[g] / (double)count[g],
                            m->robust.uniform ? 1 : (double)count[g]);
    return dro__tilted_mean(&t, m->robust.lambda);
}

/* kl-radius, cvar or chi2 of the examples' losses, or of the mean losses of classes or groups. */
static double other_objective(const dro__measure *m)
{
    bool classes = m->robust.level == DRO__TILT_CLASS, groups = m->robust.level == DRO__TILT_GROUP;
    const double *sums = classes ? m->class_loss : m->group_loss;
    const int64_t *counts = classes ? m->counts : m->group_count;
    size_t all = (size_t)(classes ? m->figures.classes : m->figures.groups), n = 0;
    if (!classes && !groups)
        all = (size_t)m->figures.examples;
    dro__worst_case worst = {.value = NAN};
    double *memory = dro__alloc(3 * all, sizeof *memory);
    double *losses = memory, *prior = memory + all, *weights = memory + 2 * all, total = 0;
    if (!memory || (!classes && !groups && m->figures.examples > m->losses_room))
        all = 0;
    for (size_t k = 0; k < all; k++) {
        double count = classes || groups ? (double)counts[k] : 1;
        if (count == 0)
            continue;
        losses[n] = classes || groups ? sums[k] / count : (double)m->losses[k];
        total += prior[n++] = m->robust.uniform ? 1 : count;
    }
    for (size_t k = 0; k < n; k++)
        prior[k] /= total;
    if (n)
        dro__objective_weigh(&m->robust.other, n, losses, prior, weights, &worst);
    dro__free(memory);
    return worst.value;
}

static double objective(const dro__measure *m)
{
    if (m->robust.other.kind != DRO__OBJECTIVE_MEAN)
        return other_objective(m);
    if (isinf(m->robust.lambda))
        return m->loss_sum / (double)m->figures.examples;
    if (m->robust.level == DRO__TILT_CLASS && m->figures.classes)
        return over_groups(m, m->class_loss, m->counts, m->figures.classes);
    if (m->robust.level == DRO__TILT_GROUP && m->figures.groups)
        return over_groups(m, m->group_loss, m->group_count, m->figures.groups);
    return dro__tilted_mean(&m->tilted, m->robust.lambda);
}

bool dro__measure_class_weights(const dro__measure *m, double *shares)
{
    double all = 0;
    if (m->robust.other.kind != DRO__OBJECTIVE_MEAN)
        return false; /* the sums are of kl's weights */
    for (int32_t k = 0; k < m->figures.classes; k++)
        all += m->class_sum[k];
    for (int32_t k = 0; k < m->figures.classes; k++)
        shares[k] = m->class_sum[k] / all;
    return all > 0;
}

dro_status dro__measure_finish(dro_context *ctx, dro__measure *m, double r)
{
    dro_metrics *f = &m->figures;
    f->accuracy = f->balanced_accuracy = f->worst_class_accuracy = f->macro_f1 = NAN;
    f->auroc = f->calibration_error = f->loss = f->objective = f->worst_group_accuracy = NAN;
    if (f->examples == 0)
        return DRO_OK;
    f->loss = m->loss_sum / (double)f->examples;
    f->objective = objective(m) + r;
    by_group(m);
    if (f->classes == 0)
        return DRO_OK;
    by_class(m);
    f->calibration_error = calibration(m);
    return f->classes == 2 ? auroc(ctx, m) : DRO_OK;
}
