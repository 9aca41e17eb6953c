/* Divergence: how it is detected, and how a run recovers from it. */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* EXPLODED: multiple of the first loss. RETURNS_MOST: returns to one checkpoint before it is
 * considered bad. SETTLED: steps after which the running statistics of batch norms match the data;
 * before, no run is said to stay above its start. BELOW: one step below the start counts as this
 * many above. STAYS_MOST: halvings after which a run that stays above its start continues, as there
 * may be nothing to learn. */
enum {
    EXPLODED = 20,
    HALVINGS_MOST = 40,
    RETURNS_MOST = 2,
    SETTLED = 50,
    BELOW = 3,
    STAYS_MOST = 5
};
/* Multiple of the start: the sampling error of one batch. */
static const double ABOVE = 1.02;

/* Of real-valued targets, relative to their mean: the mean square and the largest square. */
typedef struct around {
    double square, farthest;
} around;

static bool around_mean(const dro_train *t, around *a)
{
    dro_examples e;
    double mean = 0;
    *a = (around){0};
    if (t->task.info.classes || !t->task.data ||
        dro_data_examples(t->task.data, DRO_TRAIN, &e) != DRO_OK || !e.targets)
        return false;
    for (int64_t i = 0; i < e.count; i++)
        mean += (double)e.targets[i] / (double)e.count;
    for (int64_t i = 0; i < e.count; i++) {
        double off = (double)e.targets[i] - mean, square = off * off;
        a->square += square / (double)e.count;
        a->farthest = fmax(a->farthest, square);
    }
    return true;
}

double dro__constant_loss(const dro_train *t)
{
    around a;
    around_mean(t, &a);
    return t->task.info.classes ? log((double)t->task.info.classes) : a.square / 2;
}

/* F of losses with these weights, NULL: equal ones; NaN without memory. */
static double robust_mean(const dro__robust *r, size_t n, double *losses, const float *given)
{
    dro__objective o = r->other;
    dro__worst_case worst = {.value = NAN};
    double *prior = dro__alloc(2 * n, sizeof *prior), mass = 0;
    if (!prior)
        return NAN;
    if (o.kind == DRO__OBJECTIVE_MEAN && isfinite(r->lambda))
        o = (dro__objective){.kind = DRO__OBJECTIVE_KL, .argument = r->lambda};
    for (size_t i = 0; i < n; i++)
        mass += prior[i] = given ? (double)given[i] : 1;
    for (size_t i = 0; i < n; i++)
        prior[i] /= mass;
    dro__objective_weigh(&o, n, losses, prior, prior + n, &worst);
    dro__free(prior);
    return worst.value;
}

double dro__constant_objective(const dro_train *t)
{
    dro_examples e;
    char loss[64] = "cross-entropy";
    dro__robust r = dro__objective_of(t);
    bool own = !dro__reported_objective(t, &(dro__objective){0}) && !t->set.report_tilt;
    dro_train_get(t, "loss", loss, sizeof loss);
    if (t->task.info.classes)
        return own && dro_loss_proper(loss) ? dro__constant_loss(t) : NAN;
    if (!t->task.data || r.level == DRO__TILT_GROUP ||
        dro_data_examples(t->task.data, DRO_TRAIN, &e) != DRO_OK || !e.targets)
        return NAN;
    if (dro_comm_size(t->comm) > 1 || t->task.feed[DRO_TRAIN].count != e.count)
        return NAN; /* F is that of more examples, or of fewer */
    size_t n = (size_t)e.count;
    double mean = 0, mass = 0, value = NAN, *losses = dro__alloc(n, sizeof *losses);
    for (size_t i = 0; i < n; i++) {
        double weight = e.weights ? (double)e.weights[i] : 1;
        mass += weight;
        mean += weight * (double)e.targets[i];
    }
    mean /= mass;
    for (size_t i = 0; losses && i < n; i++)
        losses[i] = pow((double)e.targets[i] - mean, 2) / 2;
    if (losses)
        value = robust_mean(&r, n, losses, e.weights);
    dro__free(losses);
    return value;
}

/* F is the mean loss + its variance / (2 lambda) + ...: with 25 variance / mean it is 2 % above the
 * mean. The loss of real-valued targets is half a square, of mean 1/2 and variance (fourth - 1) / 4
 * in their unit. */
double dro__gentle_lambda(const dro_train *t)
{
    const double times = 50;
    double fourth = t->task.info.target_fourth;
    if (t->task.info.classes || fourth == 0)
        return times * dro__constant_loss(t);
    return fmax(times / 2, times / 4 * (fourth - 1));
}

/* The loss of a batch that a constant predicts as well; for real-valued targets the worst batch,
 * which has the target farthest from the mean. The first batch may have no such target. */
static double constant_loss(const dro_train *t)
{
    around a;
    if (!around_mean(t, &a))
        return dro__constant_loss(t);
    return fmax(a.square, a.farthest / (double)t->task.batch) / 2;
}

static double step_size(const dro_train *t)
{
    return dro__settings_of(t->opt)->eta.value * t->opt->run.eta_scale;
}

/* F as the optimiser estimates it: the mean loss where nothing is tilted. */
static double estimate(const dro_train *t)
{
    return dro__is_tilted(t) ? dro__estimate(t->opt) : t->progress.smooth_loss;
}

/* Whether the loss and F stayed above their start for a quarter of the run; this takes twice the
 * halvings of other cases. */
static bool stays_above(const dro_train *t)
{
    uint64_t most = t->steps / 4 < SETTLED ? SETTLED : t->steps / 4;
    return t->set.on_divergence == DRO__DIVERGENCE_HALVE && t->progress.above >= most &&
           t->progress.halvings < STAYS_MOST;
}

dro_status dro__watch_step(dro_train *t)
{
    dro__progress *p = &t->progress;
    double loss = t->opt->s.loss;
    if (t->opt->run.step == 1) {
        p->first_loss = fmax(fmax(loss, constant_loss(t)), 1e-6);
        p->smooth_loss = loss;
        p->first_objective = fmax(p->first_loss, estimate(t));
    }
    p->smooth_loss += 0.1 * (loss - p->smooth_loss);
    bool above = p->smooth_loss > ABOVE * p->first_loss && estimate(t) > ABOVE * p->first_objective;
    if (above)
        p->above++;
    else
        p->above -= p->above < BELOW ? p->above : BELOW;
    if (stays_above(t))
        return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss stays at %.3g, above %.3g at its start",
                         p->smooth_loss, p->first_loss);
    if (p->smooth_loss <= EXPLODED * p->first_loss)
        return DRO_OK;
    return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss rose from %.3g to %.3g", p->first_loss,
                     p->smooth_loss);
}

/* The loss that a run should end below, and what it is the loss of. */
static double bound_of(const dro_train *t, bool of_objective, const char **what)
{
    char loss[64] = "cross-entropy";
    dro_train_get(t, "loss", loss, sizeof loss);
    *what = "predicting the same for every example";
    if (of_objective)
        return dro__constant_objective(t);
    if (t->task.info.classes && dro_loss_proper(loss))
        return dro__constant_loss(t);
    *what = "its start";
    return t->progress.first_loss;
}

const char *dro__lambda_words(const dro_train *t)
{
    return *dro__settings_of(t->opt)->objective ? "objective=kl:" : "lambda=";
}

void dro__advise_objective(const dro_train *t, char *text, size_t size)
{
    double lambda = dro__default_of(t, t->set.optimizer, "lambda");
    *text = '\0';
    switch (t->opt->objective.kind) {
    case DRO__OBJECTIVE_MEAN:
        break;
    case DRO__OBJECTIVE_KL:
        if (t->opt->s.lambda < lambda)
            snprintf(text, size, "a larger lambda (%s%.3g)", dro__lambda_words(t), lambda);
        break;
    case DRO__OBJECTIVE_CVAR:
        snprintf(text, size, "a larger ALPHA");
        break;
    case DRO__OBJECTIVE_KL_RADIUS:
    case DRO__OBJECTIVE_CHI2:
        snprintf(text, size, "a smaller RHO");
        break;
    }
}

/* A run that ends like this, without having diverged, has learned nothing. */
static void note_above(const dro_train *t)
{
    const dro_metrics *m = &t->evaluation.record.train;
    const char *optimizer = t->set.optimizer, *what;
    double at = m->loss, bound = bound_of(t, false, &what);
    bool loss = at > ABOVE * bound;
    if (!loss && dro__is_tilted(t)) {
        at = m->objective;
        bound = bound_of(t, true, &what);
    }
    if (!(at > ABOVE * bound) || t->opt->run.step < SETTLED)
        return;
    double eta = step_size(t), usual = dro__default_of(t, optimizer, "eta");
    char advice[160] = "";
    if (dro__is_tilted(t))
        dro__advise_objective(t, advice, sizeof advice / 2);
    size_t used = strlen(advice);
    if (used)
        used += (size_t)snprintf(advice + used, sizeof advice - used, " or ");
    if (dro__optimizer_has(optimizer, "eta"))
        snprintf(advice + used, sizeof advice - used, "a smaller step (eta=%.3g) or ",
                 eta > 4 * usual ? usual : eta / 4);
    dro__note(t, "%s ended at %.3g, above the %.3g of %s: try %smore epochs",
              loss ? "the training loss" : "F", at, bound, what, advice);
}

/* Uses the last evaluation, as the running statistics of batch norms may lag behind earlier. Real
 * targets may have a long tail, so a whole set is not compared with the first batch. */
dro_status dro__watch_record(dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    const dro_metrics *m = r->has_train ? &r->train : r->has_test ? &r->test : &r->holdout;
    bool any = r->has_train || r->has_test || r->has_holdout;
    bool last = t->opt->run.step >= t->steps || t->ended != DRO_TRAIN_NOT_ENDED;
    bool settled = t->opt->run.step >= SETTLED || dro__task_statistics(&t->task) == 0;
    double first = t->progress.first_loss;
    if (last && r->has_train && isfinite(m->loss))
        note_above(t);
    if (r->has_test && !isfinite(r->test.loss))
        return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss on the test set is not finite");
    if (!any || !last || !settled || !t->task.info.classes || t->opt->run.step == 0 ||
        m->loss <= EXPLODED * first)
        return DRO_OK;
    return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss on the %s set rose from %.3g to %.3g",
                     r->has_train  ? "training"
                     : r->has_test ? "test"
                                   : "holdout",
                     first, m->loss);
}

static dro_status give_up(dro_train *t, uint64_t step, double eta, const char *why, bool found)
{
    double usual = dro__default_of(t, t->set.optimizer, "eta");
    dro__objective_kind kind = t->opt->objective.kind;
    char kept[64] = "", milder[80] = "a larger lambda";
    if (kind != DRO__OBJECTIVE_KL || !dro__optimizer_has(t->set.optimizer, "lambda"))
        dro__advise_objective(t, milder, sizeof milder);
    if (found)
        snprintf(
            kept, sizeof kept, "; weights.safetensors has those of step %llu",
            (unsigned long long)(t->progress.have_best ? t->progress.best_step : t->opt->run.step));
    t->ended = DRO_TRAIN_DIVERGED;
    return dro__fail(t->ctx, DRO_ERR_NUMBER,
                     "diverged at step %llu: %s%s. Try a smaller step (eta=%g), %s%smore warm-up "
                     "(warmup=0.1)%s",
                     (unsigned long long)step, why, kept, eta > 4 * usual ? usual : eta / 4, milder,
                     *milder ? ", " : "", t->set.on_divergence ? "" : ", or on_divergence=halve");
}

static dro_status start_over(dro_train *t)
{
    t->progress = (dro__progress){0};
    DRO_TRY(dro__run_anew(t));
    return dro__run_begin_files(t);
}

/* Whether the run has returned to the checkpoint that was just read too often. */
static bool is_bad(dro_train *t)
{
    uint64_t step = t->opt->run.step;
    dro__progress *p = &t->progress;
    p->returns = step == p->returned_to ? p->returns + 1 : 1;
    p->returned_to = step;
    return step > 0 && p->returns > RETURNS_MOST;
}

dro_status dro__return_from_divergence(dro_train *t)
{
    char why[DRO__ERROR_SIZE / 2];
    snprintf(why, sizeof why, "%.200s", t->ctx->error);
    uint64_t step = t->opt->run.step;
    double eta = step_size(t);
    bool found = false, over = t->ended != DRO_TRAIN_NOT_ENDED; /* its time, or patience */
    bool anew = stays_above(t); /* the checkpoint is a part of that */
    bool halve = t->set.on_divergence == DRO__DIVERGENCE_HALVE && !over &&
                 dro__optimizer_has(t->set.optimizer, "eta") &&
                 t->progress.halvings < HALVINGS_MOST;
    uint64_t halvings = t->progress.halvings + 1 + anew;
    if (t->folder)
        DRO_TRY(dro__run_load(t, &found)); /* the optimiser is a new one from here on */
    if (!halve)
        return give_up(t, step, eta, why, found);
    if (dro__writes(t)) { /* weights of steps that are taken back */
        unlinkat(t->lock, "weights.safetensors", 0);
        unlinkat(t->lock, "last.safetensors", 0);
    }
    if (!found || anew || is_bad(t))
        DRO_TRY(start_over(t));
    t->progress.halvings = halvings;
    DRO_TRY(dro_optimizer_scale_eta(t->opt, ldexp(1, -(int)halvings)));
    dro__note(t, "diverged at step %llu (%s): back to step %llu with eta %g",
              (unsigned long long)step, why, (unsigned long long)t->opt->run.step, step_size(t));
    return dro__run_save(t);
}
