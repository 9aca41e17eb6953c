/* What a run measures at an evaluation, and what follows: the line of metrics.jsonl, the best weights. */
#include "train.h"

#include <math.h>
#include <string.h>

typedef struct polling {
    const dro_train *t;
    const char *split;
} polling;

static void poll(void *user)
{
    const polling *p = user;
    dro__tell(p->t, p->split);
}

/* The lambda and the level at which F is reported. */
static void objective_of(const dro_train *t, double *lambda, int32_t *level, bool *uniform)
{
    const dro__settings *s = dro__settings_of(t->opt);
    const dro__run *r = &t->opt->run;
    bool robust = t->opt->cls->robust;
    *level = robust ? (int32_t)dro__level(t->opt) : DRO__TILT_EXAMPLE;
    *uniform = !robust || s->group_prior == 0;
    *lambda = INFINITY;
    if (robust && *level != DRO__TILT_NONE)
        *lambda = r->step ? r->lambda : dro__lambda(t->opt);
    if (t->set.report_lambda > 0)
        *lambda = t->set.report_lambda;
}

static dro_status evaluate(dro_train *t, dro_split split, const char *name)
{
    double lambda;
    int32_t level;
    bool uniform;
    const dro_examples *x = &t->task.shelf[split].examples;
    dro__evaluation *e = &t->evaluation;
    objective_of(t, &lambda, &level, &uniform);
    const int32_t *groups = level == DRO__TILT_CLASS   ? x->labels
                            : level == DRO__TILT_GROUP ? x->groups
                                                       : NULL;
    int32_t count = level == DRO__TILT_CLASS ? t->task.info.classes : t->task.info.groups;
    polling p = {t, name};
    dro__measure_reset(&e->splits[split], lambda, groups ? count : 0, uniform);
    return dro__evaluate_split(&t->task, e, split, dro_optimizer_w(t->opt), groups,
                               dro_optimizer_regulariser(t->opt, t->w), poll, &p);
}

static dro_status fill_record(dro_train *t, bool with_train)
{
    static const char *const names[] = {"train", "test", "holdout"};
    dro_train_record *r = &t->evaluation.record;
    *r = (dro_train_record){.steps = t->steps,
                            .epochs = dro__epoch_of(t, t->steps),
                            .seconds = t->progress.seconds,
                            .wall = dro__wall(t)};
    DRO_TRY(dro_optimizer_info(t->opt, &r->info));
    DRO_TRY(dro_optimizer_weights(t->opt, t->w));
    r->epoch = dro__epoch_of(t, r->info.step);
    r->group_count = dro_optimizer_group_weights(t->opt, t->evaluation.q,
                                                 (size_t)(t->task.info.classes > t->task.info.groups
                                                              ? t->task.info.classes
                                                              : t->task.info.groups));
    r->group_weights = t->evaluation.q;
    bool *has[] = {&r->has_train, &r->has_test, &r->has_holdout};
    dro_metrics *to[] = {&r->train, &r->test, &r->holdout};
    for (int s = 0; s < DRO_SPLITS; s++) {
        *has[s] = t->task.info.examples[s] > 0 && (s != DRO_TRAIN || with_train);
        if (!*has[s])
            continue;
        DRO_TRY(evaluate(t, (dro_split)s, names[s]));
        *to[s] = t->evaluation.splits[s].figures;
    }
    t->have_record = true;
    return DRO_OK;
}

static double measure_of(const dro_metrics *m, int32_t which, double *sign)
{
    const double values[] = {0,
                             m->accuracy,
                             m->balanced_accuracy,
                             m->worst_class_accuracy,
                             m->macro_f1,
                             m->auroc,
                             m->loss,
                             m->calibration_error,
                             m->objective};
    *sign = which >= 6 ? -1 : 1; /* the last ones are better when they are small */
    return values[which];
}

static dro_status keep_best(dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    dro__progress *p = &t->progress;
    if (!t->set.best)
        return DRO_OK;
    double sign, value = measure_of(&r->holdout, t->set.best, &sign);
    if (p->have_best && !(sign * value > sign * p->best)) {
        p->since_best++;
        return DRO_OK;
    }
    p->have_best = 1;
    p->best = value;
    p->best_step = r->info.step;
    p->best_epoch = r->epoch;
    p->since_best = 0;
    memcpy(t->best_w, t->w, t->task.dim * sizeof(float));
    if (t->task.net)
        DRO_TRY(dro_net_statistics(t->task.net, t->best_statistics));
    if (!t->folder)
        return DRO_OK;
    return dro__weights_save(&t->task, t->folder, "best.safetensors", t->best_w,
                             t->best_statistics);
}

dro_status dro__run_evaluate(dro_train *t)
{
    bool last = t->opt->run.step >= t->steps || t->ended != DRO_TRAIN_NOT_ENDED;
    DRO_TRY(fill_record(t, t->set.eval_train == 0 || (t->set.eval_train == 2 && last)));
    dro__progress *p = &t->progress;
    p->evaluated++;
    p->evaluated_step = t->opt->run.step;
    DRO_TRY(keep_best(t));
    return dro__run_write_line(t);
}

dro_status dro__run_write_line(dro_train *t)
{
    dro__progress *p = &t->progress;
    char *line = dro__metrics_text(t);
    if (!line)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a line of metrics");
    dro_status status = DRO_OK;
    if (t->folder)
        status = dro__file_append(t->ctx, t->folder, "metrics.jsonl", p->metrics_bytes, line,
                                  strlen(line));
    if (status == DRO_OK)
        p->metrics_bytes += strlen(line);
    dro__free(line);
    if (status == DRO_OK && t->watch.evaluated)
        t->watch.evaluated(t->watch.user, &t->evaluation.record);
    return status;
}

dro_status dro__run_record(dro_train *t)
{
    return fill_record(t, t->set.eval_train != 1);
}
