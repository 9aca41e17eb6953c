/* Runs that go astray: how that is seen, and the way back. */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* EXPLODED: times the first loss. RETURNS_MOST: to one checkpoint; after them it is taken for a bad one. SETTLED: steps
 * after which the running statistics of batch norms are those of the data. */
enum { EXPLODED = 20, HALVINGS_MOST = 40, RETURNS_MOST = 2, SETTLED = 50 };

/* Real targets: their variance, and the square of the one that is farthest from their mean. */
static void spread_of_targets(const dro_examples *e, double *square, double *farthest)
{
    double mean = 0;
    *square = *farthest = 0;
    for (int64_t i = 0; i < e->count; i++)
        mean += (double)e->targets[i] / (double)e->count;
    for (int64_t i = 0; i < e->count; i++) {
        double off = (double)e->targets[i] - mean;
        *square += off * off / (double)e->count;
        *farthest = fmax(*farthest, off * off);
    }
}

double dro__constant_loss(const dro_train *t)
{
    dro_examples e;
    double square, farthest;
    if (t->task.info.classes)
        return log((double)t->task.info.classes);
    if (!t->task.data || dro_data_examples(t->task.data, DRO_TRAIN, &e) != DRO_OK || !e.targets)
        return 0;
    spread_of_targets(&e, &square, &farthest);
    return square / 2;
}

/* The loss of a batch that is predicted no better than by a constant: of real targets that of the worst batch, with the
 * one that is farthest from their mean in it. A first batch may have none of the targets that count. */
static double constant_loss(const dro_train *t)
{
    dro_examples e;
    double square, farthest;
    if (t->task.info.classes || !t->task.data ||
        dro_data_examples(t->task.data, DRO_TRAIN, &e) != DRO_OK || !e.targets)
        return dro__constant_loss(t);
    spread_of_targets(&e, &square, &farthest);
    return fmax(square, farthest / (double)t->task.batch) / 2;
}

dro_status dro__watch_step(dro_train *t)
{
    dro__progress *p = &t->progress;
    double loss = t->opt->s.loss;
    if (t->opt->run.step == 1) {
        p->first_loss = fmax(fmax(loss, constant_loss(t)), 1e-6);
        p->smooth_loss = loss;
    }
    p->smooth_loss += 0.1 * (loss - p->smooth_loss);
    if (p->smooth_loss <= EXPLODED * p->first_loss)
        return DRO_OK;
    return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss is %.3g after %.3g at first", p->smooth_loss,
                     p->first_loss);
}

/* Of the last one: before, the running statistics of batch norms may lag behind. Real targets may have a long tail: a
 * whole set of them is not held against the first batch. */
dro_status dro__watch_record(dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    const dro_metrics *m = r->has_train ? &r->train : r->has_test ? &r->test : &r->holdout;
    bool any = r->has_train || r->has_test || r->has_holdout;
    bool last = t->opt->run.step >= t->steps || t->ended != DRO_TRAIN_NOT_ENDED;
    bool settled = t->opt->run.step >= SETTLED || dro__task_statistics(&t->task) == 0;
    double first = t->progress.first_loss;
    if (r->has_test && !isfinite(r->test.loss))
        return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss on the test set is not finite");
    if (!any || !last || !settled || !t->task.info.classes || t->opt->run.step == 0 ||
        m->loss <= EXPLODED * first)
        return DRO_OK;
    return dro__fail(t->ctx, DRO_ERR_NUMBER, "the loss on the %s set is %.3g after %.3g at first",
                     r->has_train  ? "training"
                     : r->has_test ? "test"
                                   : "holdout",
                     m->loss, first);
}

static dro_status give_up(dro_train *t, uint64_t step, double eta, const char *why, bool found)
{
    double usual = dro__default_of(t, t->set.optimizer, "eta");
    char kept[64] = "";
    if (found)
        snprintf(kept, sizeof kept, "; weights.safetensors has those of step %llu",
                 (unsigned long long)t->opt->run.step);
    t->ended = DRO_TRAIN_DIVERGED;
    return dro__fail(t->ctx, DRO_ERR_NUMBER,
                     "diverged at step %llu: %s%s. Try a smaller step (eta=%g), %smore warm-up "
                     "(warmup=0.1)%s",
                     (unsigned long long)step, why, kept, eta > 4 * usual ? usual : eta / 4,
                     t->opt->cls->robust ? "a larger lambda, " : "",
                     t->set.on_divergence ? "" : ", or on_divergence=halve");
}

/* The run as it was before its first step. */
static dro_status start_over(dro_train *t)
{
    t->progress = (dro__progress){.halvings = t->progress.halvings};
    if (t->task.net)
        DRO_TRY(dro_net_init(t->task.net, (uint64_t)t->set.seed));
    if (t->task.net && *t->set.init)
        DRO_TRY(dro_net_load(t->task.net, t->set.init, NULL));
    DRO_TRY(dro__run_begin(t));
    return dro__run_begin_files(t);
}

/* Whether the checkpoint that was just read was tried often enough. */
static bool is_bad(dro_train *t)
{
    uint64_t step = t->opt->run.step;
    dro__progress *p = &t->progress;
    p->returns = step == p->returned_to ? p->returns + 1 : 1;
    p->returned_to = step;
    return step > 0 && p->returns > RETURNS_MOST;
}

dro_status dro__astray(dro_train *t)
{
    char why[DRO__ERROR_SIZE / 2];
    snprintf(why, sizeof why, "%.200s", t->ctx->error);
    uint64_t step = t->opt->run.step;
    double eta = dro__settings_of(t->opt)->eta.value;
    bool found = false;
    if (t->folder)
        DRO_TRY(dro__run_load(t, &found));       /* another optimiser from here on */
    bool over = t->ended != DRO_TRAIN_NOT_ENDED; /* its time, or patience */
    if (t->set.on_divergence != DRO__DIVERGENCE_HALVE || !found || over ||
        t->progress.halvings >= HALVINGS_MOST)
        return give_up(t, step, eta, why, found);
    if (is_bad(t))
        DRO_TRY(start_over(t));
    t->progress.halvings++;
    dro__settings_of(t->opt)->eta.value = eta / 2;
    dro__note(t, "diverged at step %llu (%s): back to step %llu with eta %g",
              (unsigned long long)step, why, (unsigned long long)t->opt->run.step, eta / 2);
    return dro__run_save(t);
}
