/* What a run says at its end where another setting would serve the data better, one line each:
 *
 * unequal classes   the rarest class has less than half of an equal share, and is predicted worse
 *                   than the most common.
 * a small lambda    leaves probabilities nearly equal: only the largest losses count, and equal
 *                   probabilities make them smallest. The mean loss then is above what it can be
 *                   for calibrated probabilities with the same accuracy (Fano's inequality).
 * F of a constant   is where F ended: the objective may be lowest there.
 * a linear model    leaves residuals that squares and products of its columns explain (a score
 *                   test: the largest squared correlation of the residuals with x_j x_k, what is
 *                   linear in x_j and x_k taken out), and is not nearly always right. */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- unequal classes ---- */

static bool is_given(const dro_train *t, const char *name)
{
    return dro_settings_given(t->settings, name);
}

static void hint_classes(const dro_train *t)
{
    const double RARE = 0.5, WORSE = 0.1;
    const dro_train_record *r = &t->evaluation.record;
    const dro_metrics *m = r->has_test ? &r->test : r->has_holdout ? &r->holdout : &r->train;
    const double *share = t->task.class_share;
    int32_t classes = t->task.info.classes, rare = 0, common = 0;
    if (classes < 2 || m->classes != classes || t->set.recipe || is_given(t, "tilt") ||
        is_given(t, "loss") || !t->task.info.class_names)
        return;
    for (int32_t k = 1; k < classes; k++) {
        rare = share[k] < share[rare] ? k : rare;
        common = share[k] > share[common] ? k : common;
    }
    if (share[rare] * classes >= RARE || !(m->per_class[rare] < m->per_class[common] - WORSE))
        return;
    dro__note(t,
              "hint: class '%.60s' has %.2g %% of the examples and %.1f %% accuracy: "
              "recipe=imbalanced gives all classes the same weight",
              t->task.info.class_names[rare], 100 * share[rare], 100 * m->per_class[rare]);
}

/* ---- a lambda that is too small ---- */

/* The largest mean cross-entropy of calibrated probabilities with this accuracy. */
static double calibrated_loss(double accuracy, int32_t classes)
{
    double wrong = 1 - accuracy;
    double right = accuracy > 0 ? -accuracy * log(accuracy) : 0;
    return right + (wrong > 0 ? -wrong * log(wrong / (classes - 1)) : 0);
}

static bool hint_lambda(const dro_train *t)
{
    const double ABOVE = 1.05;
    const dro_metrics *m = &t->evaluation.record.train;
    int32_t classes = t->task.info.classes;
    double lambda = t->opt->s.lambda, usual = dro__default_of(t, t->set.optimizer, "lambda");
    char loss[64] = "cross-entropy";
    dro_train_get(t, "loss", loss, sizeof loss);
    if (classes < 2 || !t->evaluation.record.has_train || !dro__is_tilted(t) ||
        t->opt->s.level != DRO__TILT_EXAMPLE || strcmp(loss, "cross-entropy") != 0 ||
        is_given(t, "smoothing") || is_given(t, "smoothing_head") || !(lambda < usual) ||
        t->opt->k.plan.objective > DRO__OBJECTIVE_KL)
        return false;
    double most = calibrated_loss(m->accuracy, classes);
    if (!(m->loss > ABOVE * most) ||
        m->loss > dro__constant_loss(t)) /* that has a note of its own */
        return false;
    bool named = *dro__settings_of(t->opt)->objective;
    dro__note(t,
              "hint: probabilities are too close to uniform: with %.1f %% accuracy the training "
              "loss should be below %.3g, and it is %.3g, because lambda is only %.3g: %s%s%.3g%s",
              100 * m->accuracy, most, m->loss, lambda, named ? "try " : "", dro__lambda_words(t),
              usual, named ? "" : " is the default");
    return true;
}

/* ---- nothing was learned ---- */

static void hint_constant(const dro_train *t)
{
    const double BELOW = 0.99, ABOVE = 1.02; /* above that, divergence.c has a note */
    enum { FEW = 50 };                       /* steps, which may be too few to learn anything */
    char advice[80];
    if (!t->evaluation.record.has_train || !dro__is_tilted(t) ||
        (t->opt->run.step < FEW && !t->opt->cls->exact))
        return;
    dro__advise_objective(t, advice, sizeof advice);
    double bound = dro__constant_objective(t), value = t->evaluation.record.train.objective;
    if (*advice && value >= BELOW * bound && value <= ABOVE * bound)
        dro__note(t,
                  "hint: F ended at that of a constant prediction: this objective may be lowest "
                  "there; try %s",
                  advice);
}

/* ---- a linear model that is not enough ---- */

enum { ROWS_MOST = 16384, COLUMNS_MOST = 64, RESIDUALS_MOST = 10 };

typedef struct sample {
    size_t rows, columns, residuals;
    float *x; /* (columns, rows), each with mean 0 */
    float *r; /* (residuals, rows) of outputs, each with mean 0 */
    float *q; /* (rows) a product */
} sample;

static void centre(float *v, size_t n)
{
    double mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += (double)v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        v[i] -= (float)mean;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The residuals of the rows of a walk, whose logits are z. */
static void take_residuals(const dro__task *t, sample *s, size_t at, const dro__walk *walk,
                           size_t count, const float *z)
{
    dro__link link = dro__link_of(t);
    double p[RESIDUALS_MOST + 1];
    for (size_t i = 0; i < count; i++)
        if (t->regression) {
            s->r[at + i] = walk->targets[i] - z[i];
        } else {
            dro__probability(link, t->shift, z + i * t->outputs, (int32_t)t->outputs, 0, p);
            for (size_t k = 0; k < s->residuals; k++)
                s->r[k * s->rows + at + i] = (float)((walk->labels[i] == (int32_t)k) - p[k]);
        }
}

/* Fills the sample with batches from all over the part of the training set that is evaluated. */
static dro_status fill(dro_train *t, sample *s, float *logits)
{
    dro__task *k = &t->task;
    const dro__split_feed *feed = &k->feed[DRO_TRAIN];
    size_t batch = feed->batch, width = k->info.features;
    batch = batch < DRO__EVAL_MOST ? batch : DRO__EVAL_MOST;
    for (size_t at = 0; at < s->rows;) {
        size_t count = s->rows - at < batch ? s->rows - at : batch;
        int64_t first = (int64_t)((double)at / (double)s->rows * (double)feed->count);
        first = first + (int64_t)count > feed->count ? feed->count - (int64_t)count : first;
        dro__range rows = {DRO_TRAIN, first, count};
        DRO_TRY(dro__task_evaluate(k, rows, dro_optimizer_w(t->opt), logits, NULL));
        dro__walk walk = dro__task_walk(k, rows);
        take_residuals(k, s, at, &walk, count, logits);
        for (size_t j = 0; j < s->columns; j++)
            for (size_t i = 0; i < count; i++)
                s->x[j * s->rows + at + i] =
                    walk.rows->x[(size_t)walk.ids[i] * width + j * width / s->columns];
        at += count;
    }
    for (size_t j = 0; j < s->columns; j++)
        centre(s->x + j * s->rows, s->rows);
    for (size_t k2 = 0; k2 < s->residuals; k2++)
        centre(s->r + k2 * s->rows, s->rows);
    return DRO_OK;
}

/* The squared correlation of the residuals with x_j x_k, the largest over the outputs. */
static double explained(sample *s, size_t j, size_t k)
{
    size_t n = s->rows;
    const float *a = s->x + j * n, *b = s->x + k * n;
    double most = 0;
    for (size_t i = 0; i < n; i++)
        s->q[i] = a[i] * b[i];
    centre(s->q, n);
    double aa = dot(a, a, n), bb = dot(b, b, n), ab = dot(a, b, n), scale = dot(s->q, s->q, n);
    double qa = dot(s->q, a, n), qb = dot(s->q, b, n), det = aa * bb - ab * ab;
    bool alone = !(det > 1e-6 * aa * bb); /* one column, or two that are proportional */
    double u = alone ? (aa > 0 ? qa / aa : 0) : (qa * bb - qb * ab) / det;
    double v = alone ? 0 : (qb * aa - qa * ab) / det;
    for (size_t i = 0; i < n; i++)
        s->q[i] -= (float)(u * (double)a[i] + v * (double)b[i]);
    double qq = dot(s->q, s->q, n);
    for (size_t o = 0; qq > 1e-6 * scale && o < s->residuals; o++) {
        const float *r = s->r + o * n;
        double rr = dot(r, r, n), qr = dot(s->q, r, n);
        most = rr > 0 ? fmax(most, qr * qr / (qq * rr)) : most;
    }
    return most;
}

static dro_status hint_model(dro_train *t)
{
    const double EXPLAINED = 0.02, CHANCE = 40; /* of the residuals' variance; as chi-squared */
    const double RIGHT = 0.98;
    const dro__task *k = &t->task;
    const dro_examples *e = &k->feed[DRO_TRAIN].examples;
    double most = 0;
    if (k->images || strcmp(k->model, "linear") != 0 || is_given(t, "model") || !k->net || !e->x ||
        k->outputs > RESIDUALS_MOST ||
        (t->evaluation.record.has_train && t->evaluation.record.train.accuracy > RIGHT))
        return DRO_OK;
    int64_t rows = k->feed[DRO_TRAIN].count;
    sample s = {.rows = rows < ROWS_MOST ? (size_t)rows : ROWS_MOST,
                .columns = k->info.features < COLUMNS_MOST ? k->info.features : COLUMNS_MOST,
                .residuals = k->outputs};
    s.x = dro__alloc(s.rows * s.columns, sizeof *s.x);
    s.r = dro__alloc(s.rows * s.residuals, sizeof *s.r);
    s.q = dro__alloc(s.rows, sizeof *s.q);
    bool complete = s.x && s.r && s.q;
    dro_status status = complete ? fill(t, &s, t->evaluation.logits) : DRO_OK; /* only a hint */
    for (size_t j = 0; complete && status == DRO_OK && j < s.columns; j++)
        for (size_t i = j; i < s.columns; i++)
            most = fmax(most, explained(&s, j, i));
    dro__free(s.x);
    dro__free(s.r);
    dro__free(s.q);
    if (most > EXPLAINED && most * (double)s.rows > CHANCE)
        dro__note(t, "hint: squares or products of columns explain what the linear model leaves: "
                     "model=auto also tries an mlp, on a holdout");
    return status;
}

dro_status dro__hints(dro_train *t)
{
    if (t->stream || !t->have_record || !t->watch.note)
        return DRO_OK;
    hint_classes(t);
    if (!hint_lambda(t))
        hint_constant(t);
    return dro_comm_size(t->comm) > 1 ? DRO_OK : hint_model(t);
}
