/* Figures from logits, added up batch by batch. A metric is a row of DRO_METRIC_LIST and a
 * function of its name below.
 *
 * balanced accuracy  the mean of the classes' accuracies (classes without examples are left out)
 * macro F1           the mean of 2 tp / (2 tp + fp + fn) over the classes that occur, in truth or
 *                    prediction
 * AUROC              the share of pairs (one of each class) in the right order, ties counting half
 * average precision  of a class: sum over the thresholds, from the highest on, of (recall gained)
 *                    times precision. Scores are probabilities of the loss (of two classes the
 *                    difference of the logits), ties are one threshold
 * calibration error  sum over 15 equal bins of the predicted class's probability of (n_b/n)
 *                    |accuracy_b - mean_b|; the probabilities are those of the loss with the
 *                    training data's prior (probabilities.c)
 * R2                 1 - sum of squared errors / sum of squares around the targets' mean
 * objective          by its name (opt/objective.h); kl: lambda log mean exp(loss/lambda), or lambda
 *                    log sum_g prior_g exp(L_g/lambda) with L_g the mean loss of class or group g;
 *                    plus r(w)
 * class weights      the share of the examples of a class in sum exp(loss/lambda) */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limit on the scores of more than two classes that are kept for the average precision; above it,
 * there is none. */
enum { SCORES_MOST = 1 << 22 };

static int64_t capacity_for(int32_t classes, int64_t examples)
{
    bool fits = classes == 2 || (classes > 2 && examples <= SCORES_MOST / classes);
    return fits && examples > 0 ? examples : 0;
}

dro_status dro__measure_create(dro_context *ctx, int32_t classes, int64_t examples, int32_t groups,
                               dro__tally *m)
{
    size_t c = (size_t)(classes > 0 ? classes : 1), g = (size_t)groups + 1;
    *m = (dro__tally){.capacity = capacity_for(classes, examples),
                      .loss_capacity = examples > 0 ? examples : 0};
    size_t kept = (size_t)m->capacity, all = (size_t)m->loss_capacity;
    m->figures.classes = classes;
    m->figures.groups = groups;
    struct {
        void **block;
        size_t count, size;
    } blocks[] = {{(void **)&m->per_class, c, sizeof *m->per_class},
                  {(void **)&m->class_precision, c, sizeof *m->class_precision},
                  {(void **)&m->counts, c, sizeof *m->counts},
                  {(void **)&m->confusion, dro__tally_matrix(m), sizeof *m->confusion},
                  {(void **)&m->classes, c, sizeof *m->classes},
                  {(void **)&m->groups, g, sizeof *m->groups},
                  {(void **)&m->group_count, g, sizeof *m->group_count},
                  {(void **)&m->per_group, g, sizeof *m->per_group},
                  {(void **)&m->scores, kept * dro__tally_width(m), sizeof *m->scores},
                  {(void **)&m->truth, kept, sizeof *m->truth},
                  {(void **)&m->weights, all, sizeof *m->weights},
                  {(void **)&m->losses, all, sizeof *m->losses},
                  {(void **)&m->probabilities, c, sizeof *m->probabilities}};
    for (size_t k = 0; k < sizeof blocks / sizeof blocks[0]; k++) {
        *blocks[k].block = dro__alloc(blocks[k].count, blocks[k].size);
        if (*blocks[k].block)
            continue;
        dro__measure_free(m);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the metrics of %d classes", classes);
    }
    if (classes > 0) {
        m->figures.per_class = m->per_class;
        m->figures.counts = m->counts;
        m->figures.confusion = dro__tally_matrix(m) ? m->confusion : NULL;
    }
    if (groups > 0) {
        m->figures.per_group = m->per_group;
        m->figures.group_counts = m->group_count;
    }
    dro__measure_reset(m, &dro__mean_loss);
    return DRO_OK;
}

void dro__measure_free(dro__tally *m)
{
    void *all[] = {m->per_class, m->class_precision, m->counts, m->confusion, m->classes,
                   m->groups,    m->scores,          m->truth,  m->weights,   m->probabilities,
                   m->per_group, m->group_count,     m->losses};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        dro__free(all[k]);
    *m = (dro__tally){0};
}

const dro__robust dro__mean_loss = {
    .lambda = INFINITY, .weight_lambda = INFINITY, .level = DRO__TILT_EXAMPLE, .uniform = true};

void dro__measure_reset(dro__tally *m, const dro__robust *robust)
{
    size_t c = (size_t)m->figures.classes, g = (size_t)m->figures.groups;
    m->robust = *robust;
    m->figures.examples = 0;
    m->mass = m->loss_sum = 0;
    m->tilted = m->doubled = (dro__tilted){0};
    m->class_top = -HUGE_VAL;
    memset(m->counts, 0, c * sizeof *m->counts);
    memset(m->confusion, 0, dro__tally_matrix(m) * sizeof *m->confusion);
    memset(m->classes, 0, c * sizeof *m->classes);
    memset(m->groups, 0, g * sizeof *m->groups);
    memset(m->group_count, 0, g * sizeof *m->group_count);
    memset(m->bins, 0, sizeof m->bins);
    memset(&m->real, 0, sizeof m->real);
}

/* ---- adding ---- */

static void add_class_loss(dro__tally *m, double loss, double weight, int32_t label)
{
    double x = loss / m->robust.weight_lambda;
    m->classes[label].loss += weight * loss;
    if (x > m->class_top) {
        double fall = exp(m->class_top - x);
        for (int32_t k = 0; k < m->figures.classes; k++)
            m->classes[k].tilted *= fall;
        m->class_top = x;
    }
    m->classes[label].tilted += weight * exp(x - m->class_top);
}

static void keep_scores(dro__tally *m, const float *logits, int32_t label)
{
    int64_t at = m->figures.examples;
    size_t width = dro__tally_width(m);
    if (at >= m->capacity)
        return;
    float *to = m->scores + (size_t)at * width;
    for (size_t k = 0; k < width; k++)
        to[k] = width == 1 ? logits[1] - logits[0] : (float)m->probabilities[k];
    m->truth[at] = label;
}

/* Whether the prediction is right. */
static bool add_logits(dro__tally *m, const float *logits, int32_t label, double weight)
{
    int32_t classes = m->figures.classes;
    bool scored = m->figures.examples < m->capacity && dro__tally_width(m) > 1;
    double p;
    int32_t best = dro__decide(
        &m->decision, logits, classes, &p,
        scored || m->decision.probable || m->decision.threshold > 0 ? m->probabilities : NULL);
    int bin = p > 0 ? (int)ceil(p * DRO__BINS) - 1 : 0; /* NaN: the first */
    bin = bin < 0 ? 0 : bin >= DRO__BINS ? DRO__BINS - 1 : bin;
    m->bins[bin].mass += weight;
    m->bins[bin].sum += weight * p;
    m->bins[bin].right += best == label ? weight : 0;
    m->counts[label]++;
    if (m->figures.confusion)
        m->confusion[(size_t)label * (size_t)classes + (size_t)best]++;
    m->classes[label].mass += weight;
    m->classes[label].right += best == label ? weight : 0;
    m->classes[best].predicted += weight;
    keep_scores(m, logits, label);
    return best == label;
}

/* The weight of the example is counted already. */
static void add_real(dro__tally *m, double value, double target, double weight)
{
    double error = value - target, step = target - m->real.mean;
    m->real.squares += weight * error * error;
    m->real.sizes += weight * fabs(error);
    m->real.mean += m->mass > 0 ? step * weight / m->mass : 0;
    m->real.spread += weight * step * (target - m->real.mean);
}

void dro__measure_add(dro__tally *m, const dro__measured *e)
{
    size_t classes = (size_t)m->figures.classes;
    for (size_t i = 0; i < e->count; i++) {
        bool labelled = classes && e->labels, hit = false;
        int32_t g = e->groups && m->figures.groups ? e->groups[i] : -1;
        double weight = e->weights ? (double)e->weights[i] : 1;
        double loss = e->losses ? (double)e->losses[i] : 0;
        m->mass += weight;
        if (m->figures.examples < m->loss_capacity) {
            m->losses[m->figures.examples] = (float)loss;
            m->weights[m->figures.examples] = (float)weight;
        }
        if (e->losses) {
            m->loss_sum += weight * loss;
            dro__tilted_add(&m->tilted, m->robust.lambda, loss, weight);
            dro__tilted_add(&m->doubled, m->robust.lambda / 2, loss, weight);
        }
        if (e->values && e->targets)
            add_real(m, (double)e->values[i], (double)e->targets[i], weight);
        if (e->losses && labelled)
            add_class_loss(m, loss, weight, e->labels[i]);
        if (labelled && e->logits)
            hit = add_logits(m, e->logits + i * classes, e->labels[i], weight);
        if (g >= 0) {
            m->group_count[g]++;
            m->groups[g].mass += weight;
            m->groups[g].right += hit ? weight : 0;
            m->groups[g].loss += weight * loss;
        }
        m->figures.examples++;
    }
}

/* ---- scores in order ---- */

typedef struct scored {
    float score, weight;
    bool positive;
} scored;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x < y) - (x > y);
}

/* Scores of one class against the rest, highest first; examples without weight are left out. */
static size_t sort_scores(const dro__tally *m, int32_t class, scored *out)
{
    size_t count = 0, width = dro__tally_width(m);
    for (int64_t i = 0; i < m->figures.examples; i++) {
        float score = m->scores[(size_t)i * width + (width == 1 ? 0 : (size_t) class)];
        if (m->weights[i] > 0)
            out[count++] = (scored){width == 1 && class == 0 ? -score : score, m->weights[i],
                                    m->truth[i] == class};
    }
    qsort(out, count, sizeof *out, by_score);
    return count;
}

/* One pass over the thresholds, from the highest, gives both the area under the ROC curve and the
 * average precision. NaN if a score is NaN. */
static void areas(const scored *s, size_t count, double *roc, double *precision)
{
    double right = 0, wrong = 0, all = 0, under = 0, average = 0;
    *roc = *precision = NAN;
    for (size_t i = 0; i < count; i++) {
        if (isnan(s[i].score))
            return;
        all += s[i].positive ? (double)s[i].weight : 0;
    }
    for (size_t i = 0, end; i < count; i = end) {
        double hits = 0, misses = 0;
        for (end = i; end < count && s[end].score == s[i].score; end++)
            *(s[end].positive ? &hits : &misses) += (double)s[end].weight;
        under += misses * (right + hits / 2);
        right += hits;
        wrong += misses;
        average += hits * right / (right + wrong);
    }
    *roc = all > 0 && wrong > 0 ? under / (all * wrong) : NAN;
    *precision = all > 0 ? average / all : NAN;
}

/* ---- working out: one function for each metric; what does not apply is NaN ---- */

static double get_loss(dro__tally *m)
{
    return m->loss_sum / m->mass;
}

/* lambda log sum_g prior_g exp(L_g/lambda) over those that occur. */
static double over(const dro__tally *m, const dro__mass *of, int32_t count)
{
    dro__tilted t = {0};
    for (int32_t g = 0; g < count; g++)
        if (of[g].mass > 0)
            dro__tilted_add(&t, m->robust.lambda, of[g].loss / of[g].mass,
                            m->robust.uniform ? 1 : of[g].mass);
    return dro__tilted_mean(&t, m->robust.lambda);
}

/* kl-radius, cvar or chi2 of the examples' losses, or of the mean losses of classes or groups. */
static double other_objective(dro__tally *m)
{
    bool classes = m->robust.level == DRO__TILT_CLASS, groups = m->robust.level == DRO__TILT_GROUP;
    const dro__mass *of = classes ? m->classes : m->groups;
    size_t all = (size_t)(classes ? m->figures.classes : m->figures.groups), n = 0;
    if (!classes && !groups)
        all = m->figures.examples <= m->loss_capacity ? (size_t)m->figures.examples : 0;
    double *memory = dro__alloc(3 * all, sizeof *memory);
    if (!memory) {
        m->failed = true;
        return NAN;
    }
    double *losses = memory, *prior = memory + all, *weights = memory + 2 * all, total = 0;
    for (size_t k = 0; k < all; k++) {
        double mass = classes || groups ? of[k].mass : (double)m->weights[k];
        if (mass == 0)
            continue;
        losses[n] = classes || groups ? of[k].loss / mass : (double)m->losses[k];
        total += prior[n++] = m->robust.uniform && (classes || groups) ? 1 : mass;
    }
    for (size_t k = 0; k < n; k++)
        prior[k] /= total;
    if (n) {
        dro__objective_weigh(&m->robust.other, n, losses, prior, weights, &m->worst);
        dro__worst_case_measure(&m->robust.other, n, prior, weights, &m->worst);
    }
    dro__free(memory);
    return m->worst.value;
}

static double get_objective(dro__tally *m)
{
    double lambda = m->robust.lambda;
    m->worst = (dro__worst_case){NAN, NAN, NAN, false, NAN, NAN};
    if (m->robust.other.kind != DRO__OBJECTIVE_MEAN)
        return other_objective(m) + m->regulariser;
    if (isinf(m->robust.lambda))
        return m->loss_sum / m->mass + m->regulariser;
    if (m->robust.level == DRO__TILT_CLASS && m->figures.classes)
        return over(m, m->classes, m->figures.classes) + m->regulariser;
    if (m->robust.level == DRO__TILT_GROUP && m->figures.groups)
        return over(m, m->groups, m->figures.groups) + m->regulariser;
    m->worst.value = dro__tilted_mean(&m->tilted, lambda);
    m->worst.effective =
        exp(2 * (m->worst.value - dro__tilted_mean(&m->doubled, lambda / 2)) / lambda);
    return m->worst.value + m->regulariser;
}

static double get_accuracy(dro__tally *m)
{
    double right = 0;
    for (int32_t k = 0; k < m->figures.classes; k++)
        right += m->classes[k].right;
    return m->figures.classes ? right / m->mass : NAN;
}

/* Fills per_class, which the next one reads. */
static double get_balanced_accuracy(dro__tally *m)
{
    double sum = 0;
    int32_t present = 0;
    for (int32_t k = 0; k < m->figures.classes; k++) {
        const dro__mass *of = &m->classes[k];
        m->per_class[k] = of->mass > 0 ? of->right / of->mass : NAN;
        sum += of->mass > 0 ? m->per_class[k] : 0;
        present += of->mass > 0;
    }
    return present ? sum / present : NAN;
}

static double get_worst_class_accuracy(dro__tally *m)
{
    double worst = NAN;
    for (int32_t k = 0; k < m->figures.classes; k++)
        worst = fmin(worst, m->per_class[k]); /* NaN gives way */
    return worst;
}

static double get_worst_group_accuracy(dro__tally *m)
{
    double worst = NAN;
    for (int32_t g = 0; g < m->figures.groups; g++) {
        const dro__mass *of = &m->groups[g];
        m->per_group[g] = m->figures.classes && of->mass > 0 ? of->right / of->mass : NAN;
        worst = fmin(worst, m->per_group[g]);
    }
    return worst;
}

static double get_macro_f1(dro__tally *m)
{
    double sum = 0;
    int32_t occurring = 0;
    for (int32_t k = 0; k < m->figures.classes; k++) {
        const dro__mass *of = &m->classes[k];
        if (!(of->mass + of->predicted > 0))
            continue;
        sum += 2 * of->right / (of->mass + of->predicted);
        occurring++;
    }
    return occurring ? sum / occurring : NAN;
}

/* Fills class_precision; *roc is of the last class. NaN where the scores were not kept. */
static double precision_of(dro__tally *m, int32_t first, double *roc)
{
    int64_t n = m->figures.examples;
    double sum = 0;
    int32_t present = 0;
    *roc = NAN;
    if (n == 0 || n > m->capacity || !m->figures.classes)
        return NAN;
    scored *s = dro__alloc((size_t)n, sizeof *s);
    m->failed = m->failed || !s;
    for (int32_t k = first; s && k < m->figures.classes; k++) {
        areas(s, sort_scores(m, k, s), roc, &m->class_precision[k]);
        sum += isnan(m->class_precision[k]) ? 0 : m->class_precision[k];
        present += !isnan(m->class_precision[k]);
    }
    dro__free(s);
    return present ? sum / present : NAN;
}

static double get_auroc(dro__tally *m)
{
    double roc = NAN;
    if (m->figures.classes == 2)
        precision_of(m, 1, &roc);
    return roc;
}

static double get_average_precision(dro__tally *m)
{
    double roc, mean = precision_of(m, 0, &roc);
    m->figures.class_precision = isnan(mean) ? NULL : m->class_precision;
    return mean;
}

static double get_calibration_error(dro__tally *m)
{
    double error = 0;
    for (int k = 0; k < DRO__BINS; k++)
        error += fabs(m->bins[k].right - m->bins[k].sum);
    return m->figures.classes ? error / m->mass : NAN;
}

static double unit_of(const dro__tally *m)
{
    return m->figures.classes ? NAN : m->unit > 0 ? m->unit : 1;
}

static double get_rmse(dro__tally *m)
{
    return unit_of(m) * sqrt(m->real.squares / m->mass);
}

static double get_mae(dro__tally *m)
{
    return unit_of(m) * m->real.sizes / m->mass;
}

static double get_r2(dro__tally *m)
{
    bool known = !m->figures.classes && m->real.spread > 0;
    return known ? 1 - m->real.squares / m->real.spread : NAN;
}

/* ---- curves ---- */

static void fill_reliability(dro__tally *m)
{
    for (int k = 0; k < DRO__BINS; k++) {
        double mass = m->bins[k].mass;
        m->reliability[3 * k] = mass / m->mass;
        m->reliability[3 * k + 1] = mass > 0 ? m->bins[k].sum / mass : NAN;
        m->reliability[3 * k + 2] = mass > 0 ? m->bins[k].right / mass : NAN;
    }
    m->figures.reliability = m->figures.classes && m->mass > 0 ? m->reliability : NULL;
}

/* Precision at steps of recall, of the rarer of two classes. */
static void fill_curve(dro__tally *m)
{
    int64_t n = m->figures.examples;
    m->figures.curve = NULL;
    m->figures.curve_points = 0;
    if (m->figures.classes != 2 || n == 0 || n > m->capacity || isnan(m->figures.auroc))
        return;
    int32_t class = m->classes[1].mass <= m->classes[0].mass;
    scored *s = dro__alloc((size_t)n, sizeof *s);
    double right = 0, all = 0, most = m->classes[class].mass;
    m->failed = m->failed || !s;
    size_t count = s ? sort_scores(m, class, s) : 0;
    int32_t used = 0;
    for (size_t i = 0; i < count; i++) {
        right += s[i].positive ? (double)s[i].weight : 0;
        all += (double)s[i].weight;
        bool last = i + 1 == count || s[i + 1].score != s[i].score;
        double recall = fmin(right / most, 1);
        if (!last || right == 0 || recall * (DRO_CURVE_POINTS - 1) < used)
            continue;
        while (used < DRO_CURVE_POINTS && used <= recall * (DRO_CURVE_POINTS - 1)) {
            m->curve[2 * used] = (double)used / (DRO_CURVE_POINTS - 1);
            m->curve[2 * used++ + 1] = right / all;
        }
    }
    dro__free(s);
    m->figures.curve = used ? m->curve : NULL;
    m->figures.curve_points = used;
    m->figures.curve_class = class;
}

bool dro__measure_class_weights(const dro__tally *m, double *shares)
{
    double all = 0;
    if (m->robust.other.kind != DRO__OBJECTIVE_MEAN)
        return false; /* the sums are of kl's weights */
    for (int32_t k = 0; k < m->figures.classes; k++)
        all += m->classes[k].tilted;
    for (int32_t k = 0; k < m->figures.classes; k++)
        shares[k] = m->classes[k].tilted / all;
    return all > 0;
}

dro_status dro__measure_finish(dro_context *ctx, dro__tally *m, double r)
{
    bool any = m->mass > 0;
    m->regulariser = r;
    m->failed = false;
    m->figures.class_precision = NULL;
#define X(name, code, title, better, unit, meaning) m->figures.name = any ? get_##name(m) : NAN;
    DRO_METRIC_LIST(X)
#undef X
    fill_reliability(m);
    fill_curve(m);
    return m->failed ? dro__fail(ctx, DRO_ERR_MEMORY, "no memory to sort %lld scores",
                                 (long long)m->figures.examples)
                     : DRO_OK;
}
