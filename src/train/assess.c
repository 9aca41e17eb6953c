/* What a run measures at an evaluation, and what follows: the line of metrics.jsonl, the event, the
 * best weights. */
#include "telemetry.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The setting `best`. */
enum {
    BEST_none,
#define X(name, code, title, better, unit, meaning) BEST_##name,
    DRO_METRIC_LIST(X)
#undef X
};

typedef struct polling {
    dro_train *t;
    const char *name;
    dro_split split;
    bool bounded;    /* by max_time */
    double at, done; /* the clock, and the share, after the last batch */
} polling;

/* Whether there is time for the next batch, as far as is known, and for what is written last. */
static bool fits(const polling *p)
{
    const dro__split_feed *feed = &p->t->task.feed[p->split];
    double left = (1 - p->done) * (double)feed->count;
    double batch = fmin((double)feed->batch, left) * dro__time_of_example(p->t);
    return !p->bounded || !dro__time_is_over(p->t, batch + dro__time_to_write(p->t));
}

/* Several ranks stop together, and evaluate to the end. */
static bool poll(void *user, double done)
{
    polling *p = user;
    bool stop = dro__report_progress(p->t, p->name, done);
    if (p->t->comm)
        return stop;
    double now = dro__clock(), count = (done - p->done) * (double)p->t->task.feed[p->split].count;
    p->t->costs.example = (now - p->at) / count;
    p->at = now;
    p->done = done;
    if (stop)
        p->t->ended = DRO_TRAIN_INTERRUPTED;
    else if (done < 1 && !fits(p))
        p->t->evaluation.cut = stop = true;
    return stop;
}

/* With best=objective the values of F are compared, so F uses the lambda and tilt of the last step
 * from the beginning, even if they change during the run. */
static void as_at_the_end(const dro_train *t, dro__robust *r)
{
    uint64_t end = t->opt->ends < t->steps ? t->opt->ends : t->steps, last = end ? end - 1 : 0;
    r->level = (int32_t)dro__level_at(t->opt, last);
    r->lambda = r->level == DRO__TILT_NONE ? INFINITY : dro__lambda_at(t->opt, last);
}

/* The optimiser's setting `objective`; without one, kl with the optimiser's lambda. */
static dro__objective named_objective(const dro_train *t)
{
    char text[64];
    dro__objective o = {.kind = DRO__OBJECTIVE_KL};
    if (dro__optimizer_has(t->set.optimizer, "objective") &&
        dro_optimizer_get(t->opt, "objective", text, sizeof text) == DRO_OK && *text)
        dro__objective_parse(t->ctx, text, &o);
    return o;
}

dro__objective dro__other_objective(const dro_train *t)
{
    dro__objective o = named_objective(t), reported;
    if (dro__reported_objective(t, &reported))
        o = reported;
    return o.kind > DRO__OBJECTIVE_KL ? o : (dro__objective){0};
}

/* F is `o`; the lambda of kl is its argument. */
static void report_as(dro__robust *r, const dro__objective *o)
{
    r->other = (dro__objective){0};
    r->lambda = INFINITY;
    if (o->kind == DRO__OBJECTIVE_KL)
        r->lambda = o->argument;
    else
        r->other = *o;
}

dro__robust dro__objective_of(const dro_train *t)
{
    const dro__optimizer_settings *s = dro__settings_of(t->opt);
    dro__robust r = dro__mean_loss;
    if (t->opt->cls->robust) {
        r.level = (int32_t)dro__level(t->opt);
        r.uniform = s->group_prior == 0;
        if (r.level != DRO__TILT_NONE)
            r.lambda = r.weight_lambda = t->opt->run.step ? t->opt->s.lambda : dro__lambda(t->opt);
        if (t->set.best == BEST_objective)
            as_at_the_end(t, &r);
    }
    dro__objective named = named_objective(t);
    if (named.kind == DRO__OBJECTIVE_MEAN)
        r.lambda = INFINITY;
    else if (named.kind != DRO__OBJECTIVE_KL && isfinite(r.lambda))
        r.other = named;
    if (dro__reported_objective(t, &named))
        report_as(&r, &named);
    if (t->set.report_tilt)
        r.level = DRO__TILT_EXAMPLE + t->set.report_tilt - 1;
    return r;
}

const char *dro__level_text(const dro__robust *r)
{
    return r->level == DRO__TILT_CLASS   ? "classes"
           : r->level == DRO__TILT_GROUP ? "groups"
                                         : "examples";
}

static void name_objective(const dro__robust *r, char text[64])
{
    char name[40];
    dro__objective_print(&r->other, name, sizeof name);
    if (r->other.kind != DRO__OBJECTIVE_MEAN)
        snprintf(text, 64, "%s over %s", name, dro__level_text(r));
    else if (isfinite(r->lambda))
        snprintf(text, 64, "lambda %.6g over %s", r->lambda, dro__level_text(r));
    else
        snprintf(text, 64, "the mean loss");
}

void dro__note_objective(const dro_train *t, const dro__robust *measured)
{
    char was[64], is[64];
    dro__robust now = dro__objective_of(t);
    name_objective(measured, was);
    name_objective(&now, is);
    if (strcmp(was, is) != 0)
        dro__note(t,
                  "F is that of the first step, %s; the last step has %s: report_objective "
                  "and report_tilt choose one for the whole stream",
                  was, is);
}

/* Whether classes have their own weights in the objective: then the probabilities are given the
 * prior of the training data. */
static void update_shift(dro_train *t)
{
    double *q = t->evaluation.class_weights;
    bool weighed = t->opt->cls->robust && dro__level(t->opt) == DRO__TILT_CLASS &&
                   dro_optimizer_group_weights(t->opt, q, (size_t)t->task.info.classes);
    dro__task_shift(&t->task, weighed ? q : NULL);
}

/* The weights that are evaluated: in host memory and in the backend's. */
typedef struct scored {
    const float *host, *w;
    bool bounded; /* by max_time */
} scored;

static dro_status evaluate(dro_train *t, dro_split split, const char *name, const scored *of)
{
    dro__evaluation *e = &t->evaluation;
    dro__robust robust = dro__objective_of(t);
    polling p = {t, name, split, of->bounded, dro__clock(), 0};
    dro__poll now_and_then = {poll, &p, t->comm};
    if (!t->comm && !fits(&p)) {
        e->cut = true;
        return DRO_OK;
    }
    dro__measure_reset(&e->splits[split], &robust);
    DRO_TRY(dro__evaluate_split(&t->task, e, split, of->w,
                                dro_optimizer_regulariser(t->opt, of->host), &now_and_then));
    if (dro__ranks_decide(t, 0) & DRO__WANT_STOP)
        t->ended = DRO_TRAIN_INTERRUPTED;
    return DRO_OK;
}

void dro__record_weights(dro_train *t, const dro__tally *over)
{
    dro__evaluation *e = &t->evaluation;
    dro_train_record *r = &e->record;
    int32_t level = t->opt->cls->robust ? (int32_t)dro__level(t->opt) : DRO__TILT_EXAMPLE;
    size_t classes = (size_t)t->task.info.classes, groups = (size_t)t->task.info.groups;
    r->class_weights = r->group_weights = NULL;
    if (level == DRO__TILT_GROUP) {
        if (dro_optimizer_group_weights(t->opt, e->group_weights, groups))
            r->group_weights = e->group_weights;
    } else if (level == DRO__TILT_CLASS) {
        if (dro_optimizer_group_weights(t->opt, e->class_weights, classes))
            r->class_weights = e->class_weights;
    } else if (classes && over && dro__measure_class_weights(over, e->class_weights)) {
        r->class_weights = e->class_weights;
    }
}

/* What the objective's worst case over the training set is, in place of the optimiser's estimates.
 * Not if F is another function than it minimises. */
static void take_worst(const dro_train *t, const dro__tally *m, dro_info *info)
{
    dro__objective other;
    const dro__worst_case *worst = &m->worst;
    if (dro__reported_objective(t, &other) || t->set.report_tilt || isnan(worst->value))
        return;
    info->effective = worst->effective;
    if (m->robust.other.kind == DRO__OBJECTIVE_MEAN)
        return;
    info->lambda = worst->lambda;
    info->threshold = worst->eta;
    info->radius = worst->divergence;
}

static bool is_last(const dro_train *t)
{
    return t->opt->run.step >= t->steps || t->ended != DRO_TRAIN_NOT_ENDED;
}

/* The splits that were not evaluated for lack of time. */
static void note_missing(const dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    bool train = !r->has_train && t->set.eval_train != DRO__EVAL_NO;
    dro__note(t, "the time of max_time is over:%s%s%s not evaluated; `dro eval` does that",
              !r->has_test && t->task.info.examples[DRO_TEST] ? " test" : "",
              !r->has_holdout && t->task.info.examples[DRO_HOLDOUT] ? " holdout" : "",
              train ? " train" : "");
}

/* The training set comes last, as the least important if time is short. When stopped, there is
 * no record. */
static dro_status evaluate_splits(dro_train *t, bool with_train, const scored *of)
{
    static const char *const names[] = {"train", "test", "holdout"};
    static const dro_split order[] = {DRO_TEST, DRO_HOLDOUT, DRO_TRAIN};
    dro__evaluation *e = &t->evaluation;
    dro_train_record *r = &e->record;
    bool *has[] = {&r->has_train, &r->has_test, &r->has_holdout};
    dro_metrics *to[] = {&r->train, &r->test, &r->holdout};
    double start = dro__clock();
    e->cut = t->have_record = r->has_train = r->has_test = r->has_holdout = false;
    for (int k = 0; k < DRO_SPLITS; k++) {
        dro_split s = order[k];
        if (e->cut || t->task.info.examples[s] == 0 || (s == DRO_TRAIN && !with_train))
            continue;
        DRO_TRY(evaluate(t, s, names[s], of));
        if (t->ended == DRO_TRAIN_INTERRUPTED)
            return DRO_OK;
        *has[s] = !e->cut;
        *to[s] = e->cut ? (dro_metrics){0} : e->splits[s].figures;
    }
    if (e->cut && t->ended == DRO_TRAIN_NOT_ENDED)
        t->ended = DRO_TRAIN_TIME;
    if (e->cut)
        note_missing(t);
    else
        t->assessed = dro__clock() - start;
    dro__record_weights(t, r->has_train ? &e->splits[DRO_TRAIN] : NULL);
    if (r->has_train)
        take_worst(t, &e->splits[DRO_TRAIN], &r->info);
    t->have_record = true;
    return DRO_OK;
}

/* The same for the optimiser's result. With ema, its statistics are in the network meanwhile. */
static dro_status evaluate_result(dro_train *t, bool with_train, const scored *of)
{
    dro_net *net = t->task.net;
    if (!net || !dro__optimizer_averages(t->opt))
        return evaluate_splits(t, with_train, of);
    float *own = dro__alloc(dro__task_statistics(&t->task) + 1, sizeof *own);
    if (!own)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the running statistics");
    dro_status status = dro_net_statistics(net, own);
    if (status == DRO_OK)
        status = dro__run_statistics(t, t->statistics);
    if (status == DRO_OK)
        status = dro_net_set_statistics(net, t->statistics);
    if (status == DRO_OK)
        status = evaluate_splits(t, with_train, of);
    if (status == DRO_OK) /* otherwise the run ends, or continues with those of a checkpoint */
        status = dro_net_set_statistics(net, own);
    dro__free(own);
    return status;
}

/* If stopped on the way, `ended` says so and there is no record. */
static dro_status fill_record(dro_train *t, bool with_train, bool bounded)
{
    dro_train_record *r = &t->evaluation.record;
    t->have_record = false;
    *r = (dro_train_record){.steps = t->steps,
                            .epochs = dro__epoch_of(t, t->steps),
                            .seconds = t->progress.seconds,
                            .wall = dro__wall(t)};
    DRO_TRY(dro_optimizer_info(t->opt, &r->info));
    DRO_TRY(dro__run_stage(t, r->info.step ? r->info.step - 1 : 0)); /* of the last step */
    DRO_TRY(dro_optimizer_weights(t->opt, t->w));
    r->epoch = dro__epoch_of(t, r->info.step);
    update_shift(t);
    if (is_last(t)) /* this may take long and can be stopped */
        DRO_TRY(dro__run_write_weights(t));
    scored of = {t->w, dro_optimizer_w(t->opt), bounded};
    return evaluate_result(t, with_train, &of);
}

/* Without max_time: the run had ended, and only its result is written again. */
static bool is_bounded(const dro_train *t)
{
    return !t->resuming || t->warm.examples > 0;
}

dro_status dro__run_score_best(dro_train *t)
{
    const dro__backend *be = t->ctx->backend;
    size_t size = t->task.dim * sizeof(float);
    if (!t->progress.have_best || t->progress.best_step == t->opt->run.step)
        return DRO_OK;
    dro__free(t->last);
    t->last = dro__figures_text(t);
    float *w = be->alloc(t->task.dim, sizeof(float));
    if (!t->last || !w) {
        be->free(w);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the best weights");
    }
    dro_status status = dro__copy_in(t->ctx, w, t->best_w, size);
    if (status == DRO_OK && t->task.net)
        status = dro_net_set_statistics(t->task.net, t->best_statistics);
    scored of = {t->best_w, w, is_bounded(t)};
    if (status == DRO_OK)
        status = evaluate_splits(t, t->set.eval_train != DRO__EVAL_NO, &of);
    if (t->task.net && status == DRO_OK)
        status = dro_net_set_statistics(t->task.net, t->statistics);
    be->free(w);
    return status;
}

static double measure_of(const dro_metrics *m, int32_t which, double *sign)
{
    const double values[][2] = {{0, 1},
#define X(name, code, title, better, unit, meaning) {m->name, better},
                                DRO_METRIC_LIST(X)
#undef X
    };
    *sign = values[which][1];
    return values[which][0];
}

static dro_status keep_best(dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    dro__progress *p = &t->progress;
    if (!t->set.best || !r->has_holdout)
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
    DRO_TRY(dro__run_statistics(t, t->best_statistics));
    if (!dro__writes(t))
        return DRO_OK;
    return dro__weights_save(&t->task, t->folder, "weights.safetensors", t->best_w,
                             t->best_statistics);
}

dro_status dro__run_evaluate(dro_train *t)
{
    int32_t when = t->set.eval_train;
    bool with_train = when == DRO__EVAL_LAST ? is_last(t) : when != DRO__EVAL_NO;
    DRO_TRY(dro__ranks_average(t));
    DRO_TRY(fill_record(t, with_train, true));
    if (!t->have_record)
        return DRO_OK;
    dro__progress *p = &t->progress;
    p->evaluated++;
    p->evaluated_step = t->opt->run.step;
    DRO_TRY(keep_best(t));
    return dro__run_write_line(t);
}

/* ---- metrics.jsonl and the event file ---- */

static dro_status append(dro_train *t, const char *name, uint64_t *length, const char *bytes,
                         size_t size)
{
    if (dro__writes(t))
        DRO_TRY(dro__file_append(t->ctx, t->folder, name, *length, bytes, size));
    *length += size;
    return DRO_OK;
}

static dro_status append_events(dro_train *t, dro__buffer *bytes)
{
    dro_status status = bytes->failed ? dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for an event")
                                      : append(t, DRO__EVENTS_NAME, &t->progress.events_bytes,
                                               bytes->bytes, bytes->size);
    dro__buffer_free(bytes);
    return status;
}

static dro_status begin_events(dro_train *t)
{
    dro__buffer bytes = {0};
    dro__events_begin(&bytes);
    t->progress.events_bytes = 0;
    return append_events(t, &bytes);
}

dro_status dro__run_begin_files(dro_train *t)
{
    if (!dro__writes(t))
        return DRO_OK;
    DRO_TRY(dro__file_append(t->ctx, t->folder, "metrics.jsonl", 0, "", 0));
    return begin_events(t);
}

/* If somebody has removed lines, the run does not need them and appends to the complete ones. */
static dro_status mend_metrics(dro_train *t)
{
    char *text = NULL, why[DRO__ERROR_SIZE];
    size_t size, whole = 0;
    unsigned long long lines = 0;
    memcpy(why, t->ctx->error, sizeof why);
    DRO_TRY(dro__file_read(t->ctx, t->folder, "metrics.jsonl", &text, &size));
    for (size_t k = 0; k < size; k++)
        if (text[k] == '\n') {
            whole = k + 1;
            lines++;
        }
    dro__free(text);
    dro__note(t, "%s: only the first %llu of its lines remain; the run continues after them", why,
              lines);
    t->progress.metrics_bytes = whole;
    return whole ? dro__file_append(t->ctx, t->folder, "metrics.jsonl", whole, "", 0) : DRO_OK;
}

dro_status dro__run_cut_files(dro_train *t)
{
    const dro__progress *p = &t->progress;
    if (!dro__writes(t))
        return DRO_OK;
    dro_status status =
        dro__file_append(t->ctx, t->folder, "metrics.jsonl", p->metrics_bytes, "", 0);
    DRO_TRY(status == DRO_ERR_FORMAT ? mend_metrics(t) : status);
    status = dro__file_append(t->ctx, t->folder, DRO__EVENTS_NAME, p->events_bytes, "", 0);
    if (status != DRO_ERR_FORMAT)
        return status;
    /* The event file is a copy of metrics.jsonl; if it is gone, it is begun anew. */
    dro__note(t, "%s: begun anew", t->ctx->error);
    return begin_events(t);
}

dro_status dro__run_write_line(dro_train *t)
{
    struct timespec now;
    dro__buffer events = {0};
    const uint64_t before = t->progress.metrics_bytes;
    char *line = dro__metrics_text(t);
    if (!line)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a line of metrics");
    dro_status status = append(t, "metrics.jsonl", &t->progress.metrics_bytes, line, strlen(line));
    dro__free(line);
    DRO_TRY(status);
    clock_gettime(CLOCK_REALTIME, &now);
    dro__telemetry(&events, &t->evaluation.record, &t->task.info,
                   (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    status = append_events(t, &events);
    if (status != DRO_OK) { /* both or none: the next checkpoint truncates the line again */
        t->progress.metrics_bytes = before;
        return status;
    }
    if (t->watch.evaluated)
        t->watch.evaluated(t->watch.user, &t->evaluation.record);
    return DRO_OK;
}

dro_status dro__run_record(dro_train *t)
{
    return fill_record(t, t->set.eval_train != DRO__EVAL_NO, is_bounded(t));
}
