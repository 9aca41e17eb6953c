/* The loop: steps, evaluations, checkpoints, and the ways in which a run ends. */
#include "train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Default epochs: 15, or more for few examples, to give about 600 steps. */
enum { EPOCHS = 15, EPOCHS_MOST = 100, STEPS = 600 };
/* The exact solvers: an epoch is a step, and most runs converge much earlier. */
enum { EXACT_EPOCHS = 2000, EXACT_EVERY = 100 };

double dro__clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void dro__note(const dro_train *t, const char *format, ...)
{
    char text[DRO__ERROR_SIZE];
    if (!t->watch.note || dro_comm_rank(t->comm) > 0)
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    t->watch.note(t->watch.user, text);
}

/* ---- life ---- */

dro_status dro_train_create(dro_context *ctx, dro_train **train)
{
    if (!ctx || !train)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *train = NULL;
    dro_train *t = dro__alloc(1, sizeof *t);
    if (!t)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a run");
    t->ctx = ctx;
    dro_status status = dro_settings_create(ctx, &t->settings);
    if (status != DRO_OK) {
        dro_train_destroy(t);
        return status;
    }
    *train = t;
    return DRO_OK;
}

static void close_run(dro_train *t)
{
    dro_optimizer_destroy(t->opt);
    dro__evaluation_free(&t->evaluation);
    dro__progressive_close(t);
    dro__task_close(&t->task);
    float **vectors[] = {&t->w, &t->statistics, &t->best_w, &t->best_statistics};
    for (size_t k = 0; k < sizeof vectors / sizeof vectors[0]; k++) {
        dro__free(*vectors[k]);
        *vectors[k] = NULL;
    }
    dro__free(t->config);
    dro__free(t->result);
    dro__free(t->identity);
    dro__free(t->last);
    t->config = t->result = t->identity = t->last = NULL;
    t->opt = NULL;
    t->open = t->have_record = false;
    t->reported = 0;
    t->ended = DRO_TRAIN_NOT_ENDED;
    t->progress = (dro__progress){0};
    t->warm = (dro__mark){0};
    t->assessed = 0;
    t->second_steps = 0;
}

void dro_train_destroy(dro_train *t)
{
    if (!t)
        return;
    close_run(t);
    dro_settings_destroy(t->settings);
    dro__free(t);
}

dro_status dro_train_ranks(dro_train *t, dro_comm *comm)
{
    if (!t)
        return DRO_ERR_ARGUMENT;
    dro__forget(t->ctx);
    t->comm = comm;
    return DRO_OK;
}

dro_train_end dro_train_ended(const dro_train *t)
{
    return t ? t->ended : DRO_TRAIN_NOT_ENDED;
}

const dro_train_record *dro_train_last(const dro_train *t)
{
    return t && t->have_record ? &t->evaluation.record : NULL;
}

const dro_data_info *dro_train_data(const dro_train *t)
{
    return t && t->open ? &t->task.info : NULL;
}

const char *dro_train_config(const dro_train *t)
{
    return t ? t->config : NULL;
}

const char *dro_train_result(const dro_train *t)
{
    return t ? t->result : NULL;
}

/* ---- opening ---- */

static dro_status make_vectors(dro_train *t)
{
    size_t dim = t->task.dim, statistics = dro__task_statistics(&t->task);
    t->w = dro__alloc(dim, sizeof(float));
    t->statistics = dro__alloc(statistics + 1, sizeof(float));
    if (t->set.best) {
        t->best_w = dro__alloc(dim, sizeof(float));
        t->best_statistics = dro__alloc(statistics + 1, sizeof(float));
    }
    if (!t->w || !t->statistics || (t->set.best && (!t->best_w || !t->best_statistics)))
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for %zu weights", dim);
    return DRO_OK;
}

/* What a metric requires but the data lacks; NULL: nothing. */
static const char *best_needs(const char *best, const dro_data_info *i)
{
    if (strcmp(best, "loss") == 0 || strcmp(best, "objective") == 0)
        return NULL;
    if (strcmp(best, "rmse") == 0 || strcmp(best, "mae") == 0 || strcmp(best, "r2") == 0)
        return i->classes ? "a real-valued target" : NULL;
    if (strcmp(best, "auroc") == 0 && i->classes != 2)
        return "two classes";
    if (strstr(best, "group") && !i->groups)
        return "groups (group=COLUMN)";
    return i->classes ? NULL : "classes";
}

static dro_status check_settings(dro_train *t)
{
    const dro__train_settings *s = &t->set;
    if ((s->best || s->patience) && t->task.info.examples[DRO_HOLDOUT] == 0)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         strstr(s->data, "holdout=")
                             ? "best and patience need a holdout, and that of %s is empty: write a "
                               "larger share, as in holdout=0.1"
                             : "best and patience need a holdout: write %s,holdout=0.1",
                         s->data);
    if (s->patience && !s->best)
        return dro__fail(t->ctx, DRO_ERR_STATE,
                         "patience needs a metric: set best, as in best=balanced_accuracy");
    char best[64];
    dro_train_get(t, "best", best, sizeof best);
    const char *needs = s->best ? best_needs(best, &t->task.info) : NULL;
    if (needs)
        return dro__fail(t->ctx, DRO_ERR_DATA, "best=%s requires %s: choose another metric for %s",
                         best, needs, s->data);
    return DRO_OK;
}

/* Translates errors into terms of the data, as the optimiser only sees a problem. */
static dro_status check_tilt(dro_train *t)
{
    char tilt[64];
    if (!dro__optimizer_has(t->set.optimizer, "tilt"))
        return DRO_OK;
    DRO_TRY(dro_optimizer_get(t->opt, "tilt", tilt, sizeof tilt));
    if (strcmp(tilt, "group") == 0 && !t->task.problem.groups)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "tilt=group: the data has no groups: add group=COLUMN to the data's SPEC");
    if (strcmp(tilt, "class") == 0 && !t->task.problem.classes)
        return dro__fail(t->ctx, DRO_ERR_DATA,
                         "tilt=class: the data has no classes: use tilt=example");
    return DRO_OK;
}

dro_status dro__run_begin(dro_train *t)
{
    const float *w0 = t->task.net ? dro_net_weights(t->task.net) : NULL;
    DRO_TRY(dro__make_optimizer(t));
    DRO_TRY(check_tilt(t));
    return dro_optimizer_start(t->opt, w0);
}

dro_status dro__run_anew(dro_train *t)
{
    if (t->task.net)
        DRO_TRY(dro_net_init(t->task.net, (uint64_t)t->set.seed));
    if (t->task.net && *t->set.init)
        DRO_TRY(dro_net_load(t->task.net, t->set.init, NULL));
    return dro__run_begin(t);
}

/* Loads weights from a file; a classifier with another number of outputs keeps its random
 * weights. */
static dro_status load_init(dro_train *t)
{
    const dro_net *net = t->task.net;
    size_t kept = 0, used = 0, listed = 0;
    char names[256] = "";
    DRO_TRY(dro_net_load(t->task.net, t->set.init, &kept));
    for (size_t k = 0; k < net->tensor_count && used < sizeof names; k++) {
        const dro__net_entry *one = &net->tensors[k];
        if (one->node != net->graph.heads[0] && one->node != net->graph.heads[1])
            continue;
        listed++;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 one->name);
    }
    if (kept)
        dro__note(t, "%s is for another number of classes: %s%s are initialised randomly",
                  t->set.init, kept < listed ? "some of " : "", names);
    return DRO_OK;
}

/* init: a file that dro train wrote also says which model it is for and how images are prepared;
 * what is wrong with the file is said when its weights are loaded. */
static dro_status open_task(dro_train *t, dro__model_choice choice)
{
    dro__weights_about start = {0};
    const char *init = t->set.init;
    if (*init && dro__weights_about_read(t->ctx, init, &start) == DRO_OK)
        choice.start = &start;
    dro_status status = dro__task_open(t->ctx, &choice, &t->task);
    dro__weights_about_free(&start);
    return status;
}

static dro_status open_data(dro_train *t)
{
    const dro__train_settings *s = &t->set;
    dro__model_choice choice = {.data = s->data,
                                .model = s->model,
                                .batch = (size_t)s->batch,
                                .microbatch = (size_t)s->microbatch,
                                .seed = (uint64_t)s->seed,
                                .size = (int32_t)s->size,
                                .augment = s->augment,
                                .train = true,
                                .train_only = s->train_only,
                                .settings = t,
                                .comm = t->comm,
                                .shards = s->exact ? DRO__SHARDS : 0,
                                .sync_norm = s->sync_norm};
    DRO_TRY(open_task(t, choice));
    for (int k = 0; dro_data_remark(t->task.data, k); k++)
        dro__note(t, "note: %s", dro_data_remark(t->task.data, k));
    DRO_TRY(check_settings(t));
    if (s->microbatch && dro__optimizer_exact(s->optimizer))
        dro__note(t, "note: microbatch has no effect on %s, which passes over all rows at once",
                  s->optimizer);
    uint64_t per_epoch = t->task.epoch_steps, usual = (STEPS + per_epoch - 1) / per_epoch;
    usual = usual < EPOCHS ? EPOCHS : usual > EPOCHS_MOST ? EPOCHS_MOST : usual;
    usual = dro__optimizer_exact(s->optimizer) ? EXACT_EPOCHS : usual;
    t->steps =
        s->steps ? (uint64_t)s->steps : (s->epochs ? (uint64_t)s->epochs : usual) * per_epoch;
    t->second_steps = (uint64_t)s->stage2 * per_epoch;
    t->steps += t->second_steps;
    if (s->stage2 && t->task.images && t->task.info.classes)
        DRO_TRY(dro__feed_balance(&t->task, (uint64_t)s->seed));
    if (*s->init && t->resuming && !dro__task_frozen(&t->task, NULL))
        return DRO_OK; /* the checkpoint has all of it */
    if (*s->init && t->task.net)
        return load_init(t);
    if (*s->init)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "init: the linear model on sparse rows starts at zero");
    return DRO_OK;
}

static dro_status open_run(dro_train *t)
{
    DRO_TRY(t->set.progressive ? dro__progressive_open(t) : open_data(t));
    if ((t->set.mixup > 0 || t->set.cutmix > 0) && !t->task.images)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "mixup and cutmix require images; %s has none: leave them at 0",
                         t->set.data);
    t->open = true;
    DRO_TRY(dro__run_begin(t));
    dro__note_divisor(t);
    DRO_TRY(make_vectors(t));
    DRO_TRY(dro__evaluation_create(&t->task, t->task.info.classes, &t->evaluation));
    t->config = dro__config_text(t);
    t->identity = dro__identity_text(t);
    if (!t->config || !t->identity)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the settings");
    return dro__ranks_compare(t);
}

/* ---- the loop ---- */

double dro__epoch_of(const dro_train *t, uint64_t step)
{
    return t->task.epoch_steps ? (double)step / (double)t->task.epoch_steps : 0;
}

bool dro__is_tilted(const dro_train *t)
{
    const dro_optimizer *o = t->opt;
    return o->cls->robust && !o->cls->needs_n && o->s.level != DRO__TILT_NONE;
}

static dro_train_progress progress_of(const dro_train *t)
{
    const dro__run *r = &t->opt->run;
    dro__reached reached = dro__reached_of(t->opt);
    double per_step = r->step ? t->progress.seconds / (double)r->step : NAN;
    return (dro_train_progress){
        .step = r->step,
        .steps = t->steps,
        .epoch = dro__epoch_of(t, r->step),
        .epochs = dro__epoch_of(t, t->steps),
        .seconds = t->progress.seconds,
        .left = t->steps ? per_step * (double)(t->steps - r->step) : NAN,
        .examples_per_s = (double)t->task.batch / per_step,
        .loss = t->progress.smooth_loss,
        .objective = dro__estimate(t->opt),
        .effective = dro__effective_of(t->opt),
        .lambda = reached.lambda,
        .threshold = reached.threshold,
        .radius = reached.radius,
    };
}

bool dro__report_progress(const dro_train *t, const char *evaluating, double done)
{
    dro_train_progress p = progress_of(t);
    p.evaluating = evaluating;
    p.evaluated = done;
    return t->watch.step && t->watch.step(t->watch.user, &p);
}

/* The step after which evaluation number k (from 1 on) takes place. */
static uint64_t evaluation_step(const dro_train *t, uint64_t k)
{
    double every = t->set.eval_every * (t->opt->cls->exact ? EXACT_EVERY : 1);
    double at = round((double)k * every * (double)t->task.epoch_steps);
    return at < (double)k ? k : (uint64_t)at;
}

dro_status dro__run_stage(dro_train *t, uint64_t step)
{
    bool second = t->second_steps && step >= t->steps - t->second_steps;
    if (!t->task.net || second == t->task.net->plain)
        return DRO_OK;
    DRO_TRY(dro__async_pull(t->opt));
    return dro__net_plain(t->task.net, second);
}

/* One step, timed as training. */
static dro_status step(dro_train *t)
{
    double start = dro__clock();
    dro_status status = dro__run_stage(t, t->opt->run.step);
    if (status == DRO_OK)
        status = dro__task_recall(&t->task, dro_optimizer_step(t->opt));
    t->costs.step = dro__clock() - start;
    t->progress.seconds += t->costs.step;
    if (!t->warm.examples)
        t->warm = (dro__mark){t->opt->run.examples, t->progress.seconds};
    if (status == DRO_OK)
        status = dro__watch_step(t);
    return status == DRO_ERR_NUMBER ? dro__return_from_divergence(t) : status;
}

static bool out_of_patience(const dro_train *t)
{
    return t->set.patience && t->progress.since_best >= (uint64_t)t->set.patience;
}

/* ---- max_time ---- */

double dro__time_limit(const dro_train *t)
{
    return t->set.max_time > 0 ? fmax(t->began + t->set.max_time - t->before, 1e-9) : 0;
}

bool dro__time_is_over(const dro_train *t, double seconds)
{
    return t->set.max_time > 0 && dro__wall(t) + seconds >= t->set.max_time;
}

void dro__count_written(dro_train *t, double bytes, double start)
{
    t->costs.byte = (dro__clock() - start) / bytes;
}

/* Weights, and a checkpoint. With best, weights are written up to three times, and the checkpoint
 * has the best ones. */
double dro__time_to_write(const dro_train *t)
{
    const double usual = 1 / 2e8; /* seconds for a byte */
    bool written = t->written.any && t->written.step == t->opt->run.step;
    int vectors = (written ? 0 : 1) + (t->set.best ? 3 : 0);
    if (!dro__writes(t))
        return 0;
    double bytes = (double)vectors * (double)t->task.dim * sizeof(float) +
                   (double)dro__optimizer_put_size(t->opt);
    return bytes * (t->costs.byte > 0 ? t->costs.byte : usual);
}

/* Seconds of training for each example that was drawn, without this process's first step where
 * there are more: it takes longer. 0: not known. */
static double drawn_time(const dro_train *t)
{
    dro__mark from = t->warm;
    if (t->opt->run.examples == from.examples)
        from = (dro__mark){0};
    double seen = (double)(t->opt->run.examples - from.examples);
    return seen > 0 ? (t->progress.seconds - from.seconds) / seen : 0;
}

/* A forward pass is a third of a step over as many examples. */
double dro__time_of_example(const dro_train *t)
{
    const dro__run *r = &t->opt->run;
    double passes = (double)r->evaluations / fmax((double)r->examples, 1);
    return t->costs.example > 0 ? t->costs.example : drawn_time(t) / 3 / fmax(passes, 1);
}

/* The expected time of the last evaluation: as long as the previous one, or a forward pass for each
 * of its examples, and more, since without it nobody knows what the weights are worth and a busy
 * machine is slow at times. The first step alone would say too much. At most half of the time limit
 * is reserved for it. */
static double evaluation_time(const dro_train *t)
{
    bool one = t->warm.examples && t->opt->run.examples == t->warm.examples;
    double examples = 0;
    for (int s = 0; s < DRO_SPLITS && !one; s++)
        if (s != DRO_TRAIN || t->set.eval_train != DRO__EVAL_NO)
            examples += (double)t->task.feed[s].count;
    double seconds = t->assessed > 0 ? t->assessed : dro__time_of_example(t) * examples;
    seconds *= t->set.best ? 2 : 1; /* the best weights are evaluated once more */
    seconds = 1.5 * seconds + fmin(0.5, t->set.max_time / 20);
    return fmin(seconds, t->set.max_time / 2);
}

/* The expected time of the next step: asynchronous steps show theirs only in the mean. Before the
 * first one: at least twice that of an evaluation of its batch. 0: not known. */
static double step_time(const dro_train *t)
{
    const dro__run *r = &t->opt->run;
    double drawn = (double)r->examples / fmax((double)r->step, 1);
    double first = r->examples ? 0 : 2 * t->costs.example * (double)t->task.batch;
    return fmax(fmax(t->costs.step, first), drawn_time(t) * drawn);
}

/* What has to follow the next step. */
static double end_time(const dro_train *t)
{
    return evaluation_time(t) + dro__time_to_write(t);
}

/* Whether there is no time for another step. */
static bool is_time(const dro_train *t)
{
    return t->set.max_time > 0 && dro__time_is_over(t, step_time(t) + end_time(t));
}

/* Before a first step that may take longer than max_time, evaluates one example, or more if these
 * take no time, to see what a step takes. Each twice: the first time takes longer. */
static dro_status try_examples(dro_train *t)
{
    const double most_time = t->set.max_time / 50;
    size_t batch = t->task.feed[DRO_TRAIN].batch, most = t->task.batch;
    bool fits = false;
    double took = 0;
    most = most < batch ? most : batch;
    for (size_t n = 1; n <= most && !fits && took < most_time; n *= 2) {
        for (int k = 0; k < 2; k++) {
            double start = dro__clock();
            dro__range some = {DRO_TRAIN, 0, n};
            DRO_TRY(dro__task_evaluate(&t->task, some, dro_optimizer_w(t->opt),
                                       t->evaluation.logits, NULL));
            took = dro__clock() - start;
        }
        t->costs.example = took / (double)n;
        fits = !is_time(t);
    }
    if (fits) /* evaluations of more examples take less time for each */
        t->costs.example = 0;
    return DRO_OK;
}

/* max_time has ended this process before its first step. */
static void note_no_step(const dro_train *t)
{
    double step = step_time(t), end = end_time(t), wall = dro__wall(t);
    char what[64] = "", more[32] = " and the time of a step";
    if (step > 0) {
        snprintf(what, sizeof what, "a step takes about %.2g s, ", step);
        *more = '\0';
    }
    dro__note(
        t,
        "max_time=%.6g leaves no time for a step: %.2g s have passed, %swhat follows takes about "
        "%.2g s: set it above %.3g%s",
        t->set.max_time, wall, what, end, wall + step + end, more);
}

/* Waits for asynchronous steps: they are part of the training time, and may have failed. */
static dro_status wait_for_steps(dro_train *t)
{
    double start = dro__clock();
    dro_status status = dro__async_pull(t->opt);
    t->progress.seconds += dro__clock() - start;
    return status == DRO_OK ? dro__async_begin(t->opt) : status;
}

static dro_status assess(dro_train *t)
{
    dro_status status = wait_for_steps(t);
    if (status != DRO_OK)
        return status == DRO_ERR_NUMBER ? dro__return_from_divergence(t) : status;
    DRO_TRY(dro__run_evaluate(t));
    if (!t->have_record)
        return DRO_OK;
    return dro__watch_record(t) == DRO_OK ? dro__run_save(t) : dro__return_from_divergence(t);
}

/* Reports the images that skip_bad has skipped since the last report. */
static void note_skipped(dro_train *t)
{
    for (const char *note; (note = dro_data_skipped(t->task.data, t->reported)); t->reported++) {
        char text[DRO__ERROR_SIZE];
        snprintf(text, sizeof text, "skipped %s", note);
        if (t->watch.note) /* every rank reports what it has skipped */
            t->watch.note(t->watch.user, text);
    }
}

/* Memory was not sufficient for whole batches, or for the present pieces. */
static void note_pieces(dro_train *t)
{
    size_t most = dro__pieces_most(t->task.pieces);
    if (t->set.microbatch || most == t->reported_pieces)
        return;
    t->reported_pieces = most;
    dro__note(t,
              "there is no memory for a batch of %zu: it is evaluated in pieces of at most %zu "
              "(microbatch=%zu)",
              t->task.batch, most, most);
}

/* Whether to evaluate now: after a step, or because a stop interrupted an evaluation. */
static bool due(const dro_train *t)
{
    uint64_t step = t->opt->run.step;
    return step != t->progress.evaluated_step &&
           (step >= t->steps || step >= evaluation_step(t, t->progress.evaluated + 1));
}

static bool save_is_late(const dro_train *t)
{
    return t->folder && dro__clock() - t->saved_at > t->set.checkpoint_every;
}

/* All ranks follow the clocks and signals of any rank after the same step. */
static void decide(dro_train *t)
{
    bool first = dro_comm_rank(t->comm) == 0;
    unsigned wants = (dro__report_progress(t, NULL, 0) ? DRO__WANT_STOP : 0) |
                     (first && is_time(t) ? DRO__WANT_TIME : 0) |
                     (first && save_is_late(t) ? DRO__WANT_SAVE : 0);
    unsigned decided = dro__ranks_decide(t, wants);
    if (decided & DRO__WANT_TIME)
        t->ended = DRO_TRAIN_TIME;
    else if (decided & DRO__WANT_STOP)
        t->ended = DRO_TRAIN_INTERRUPTED;
}

/* Once two steps have shown how long the rest should take. */
static void report_plan(dro_train *t)
{
    const dro__run *r = &t->opt->run;
    bool exact = t->opt->cls->exact, early = !t->warm.examples || r->examples == t->warm.examples;
    if (t->planned || (!exact && r->step < t->steps && early))
        return;
    t->planned = true;
    double seen = (double)(r->examples - t->warm.examples), took = t->progress.seconds;
    double each = (took - t->warm.seconds) / seen * (double)r->examples / (double)r->step;
    dro__report_plan(t, exact || early ? NAN : each * (double)t->steps);
}

/* Whether the run ends before the next step. */
static bool over(dro_train *t)
{
    note_skipped(t);
    note_pieces(t);
    report_plan(t);
    if (t->ended != DRO_TRAIN_NOT_ENDED)
        return true;
    if (t->opt->run.step >= t->steps)
        t->ended = DRO_TRAIN_DONE;
    else if (out_of_patience(t))
        t->ended = DRO_TRAIN_PATIENCE;
    else if (!t->comm && is_time(t))
        t->ended = DRO_TRAIN_TIME;
    else if (!t->comm && dro__report_progress(t, NULL, 0))
        t->ended = DRO_TRAIN_INTERRUPTED;
    else if (t->comm)
        decide(t);
    return t->ended != DRO_TRAIN_NOT_ENDED;
}

static dro_status train(dro_train *t)
{
    uint64_t first = t->opt->run.step;
    bool bounded = t->set.max_time > 0 && !t->comm && t->task.net && !t->opt->cls->exact;
    if (bounded && t->opt->run.examples == 0)
        DRO_TRY(try_examples(t));
    while (!over(t)) {
        DRO_TRY(dro__trainable(t->task.data)); /* the loader may have lost a class */
        dro_status status = due(t) ? DRO_OK : step(t);
        if (status == DRO_ERR_END && t->opt->cls->exact)
            dro__note(t, "%s", t->ctx->error);
        if (status == DRO_ERR_END) /* output=random: the drawn number of steps; or the minimum */
            t->steps = t->opt->run.step;
        else
            DRO_TRY(status);
        if (status == DRO_ERR_END && t->progress.evaluated_step == t->steps) {
            t->have_record = false; /* evaluated, but not yet as the last one */
            continue;
        }
        if (due(t))
            DRO_TRY(assess(t));
        else if (t->comm ? dro__ranks_decide(t, 0) & DRO__WANT_SAVE : save_is_late(t))
            DRO_TRY(dro__run_save(t));
    }
    if (t->ended == DRO_TRAIN_TIME && t->opt->run.step == first)
        note_no_step(t);
    if (t->ended != DRO_TRAIN_INTERRUPTED && t->progress.evaluated_step != t->opt->run.step)
        DRO_TRY(assess(t));
    if (t->ended != DRO_TRAIN_INTERRUPTED)
        return DRO_OK;
    dro__report_progress(
        t, NULL, 0); /* an evaluation of several ranks may have stopped the run in silence */
    return dro__run_save(t);
}

/* ---- the end ---- */

dro_status dro__run_statistics(const dro_train *t, float *to)
{
    if (!t->task.net)
        return DRO_OK;
    return dro__optimizer_averages(t->opt) ? dro__optimizer_statistics_get(t->opt, to)
                                           : dro_net_statistics(t->task.net, to);
}

dro_status dro__run_write_weights(dro_train *t)
{
    DRO_TRY(dro_optimizer_weights(t->opt, t->w));
    DRO_TRY(dro__run_statistics(t, t->statistics));
    double start = dro__clock(), bytes = (double)t->task.dim * sizeof(float);
    dro__written now = {true, t->opt->run.step, t->progress.best_step};
    bool best = t->progress.have_best, same = t->written.any && t->written.step == now.step &&
                                              t->written.best_step == now.best_step;
    if (!dro__writes(t) || same)
        return DRO_OK;
    if (t->set.best)
        DRO_TRY(dro__weights_save(&t->task, t->folder, "last.safetensors", t->w, t->statistics));
    DRO_TRY(dro__weights_save(&t->task, t->folder, "weights.safetensors", best ? t->best_w : t->w,
                              best ? t->best_statistics : t->statistics));
    dro__count_written(t, bytes * (t->set.best ? 2 : 1), start);
    t->written = now;
    return DRO_OK;
}

static dro_status finish_run(dro_train *t)
{
    if (!t->have_record) /* resumed after the last step */
        DRO_TRY(dro__run_record(t));
    if (!t->have_record)
        return DRO_OK;
    DRO_TRY(dro__run_write_weights(t));
    if (t->task.net) /* with ema: those of the average, as no step follows */
        DRO_TRY(dro_net_set_statistics(t->task.net, t->statistics));
    DRO_TRY(dro__run_score_best(t));
    if (!t->have_record)
        return DRO_OK;
    dro__free(t->result);
    t->result = dro__result_text(t);
    if (!t->result)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the result");
    if (!dro__writes(t))
        return DRO_OK;
    return dro__file_replace(t->ctx, t->folder, "result.json", t->result, strlen(t->result));
}

static dro_status take_folder(dro_train *t, bool resume)
{
    if (!dro__writes(t))
        return DRO_OK;
    DRO_TRY(dro__folder_make(t->ctx, t->folder, &t->made));
    DRO_TRY(dro__folder_lock(t->ctx, t->folder, &t->lock));
    return dro__run_check_folder(t, resume); /* re-check under the lock */
}

static dro_status open_folder(dro_train *t, bool resume)
{
    bool found = false;
    if (!t->folder)
        return DRO_OK;
    DRO_TRY(dro__comm_agree(t->comm, take_folder(t, resume)));
    t->begun = !resume;
    if (resume)
        DRO_TRY(dro__run_load(t, &found));
    t->before = t->progress.wall;
    const dro__run *r = &t->opt->run;
    if (found && (t->stream || r->step < t->steps))
        dro__note(t, "resuming after step %llu (%llu examples)", (unsigned long long)r->step,
                  (unsigned long long)r->examples);
    if (found)
        return DRO_OK;
    if (dro__writes(t))
        DRO_TRY(dro__file_replace(t->ctx, t->folder, "config.json", t->config, strlen(t->config)));
    DRO_TRY(dro__run_begin_files(t));
    return dro__run_save(t);
}

static dro_status run(dro_train *t, bool resume)
{
    DRO_TRY(dro__ranks_begin(t, resume));
    /* before spending a long time on reading data */
    DRO_TRY(dro__comm_agree(t->comm, dro__writes(t) ? dro__run_check_folder(t, resume) : DRO_OK));
    t->resuming = resume && dro__writes(t) && dro__checkpoint_exists(t->folder);
    if (dro_comm_size(t->comm) > 1)
        DRO_TRY(dro__comm_share(t->comm, &t->resuming, sizeof t->resuming, 0));
    DRO_TRY(dro__choose_model(t));
    DRO_TRY(open_run(t));
    DRO_TRY(open_folder(t, resume));
    dro_status status = t->stream ? dro__stream_train(t) : train(t);
    note_skipped(t);
    if (status == DRO_OK && !t->stream)
        status = dro__trainable(t->task.data);
    if (t->ended == DRO_TRAIN_DIVERGED && t->folder && !t->stream) { /* back at the checkpoint */
        char why[DRO__ERROR_SIZE];
        memcpy(why, t->ctx->error, sizeof why);
        t->have_record = t->have_record && t->evaluation.record.info.step == t->opt->run.step;
        DRO_TRY(finish_run(t));
        if (t->ended == DRO_TRAIN_INTERRUPTED)
            return DRO_OK; /* when resumed, it would diverge again */
        return dro__fail(t->ctx, status, "%s", why);
    }
    if (status != DRO_OK || (t->ended == DRO_TRAIN_INTERRUPTED && !t->stream))
        return status;
    DRO_TRY(finish_run(t));
    return dro__hints(t);
}

/* While rank 0 waits for a pipe, and so is in no call that would notice it. */
static bool others_are_gone(void *user)
{
    return dro__comm_check(user) != DRO_OK;
}

/* With what the context does differently during this run. */
static dro_status run_with(dro_train *t, bool resume)
{
    dro_context *ctx = t->ctx, before = *ctx;
    ctx->fixed_pieces = t->set.exact;
    if (dro_comm_size(t->comm) > 1) {
        ctx->read_stop = others_are_gone;
        ctx->read_stop_user = t->comm;
    }
    dro_status status = run(t, resume);
    ctx->fixed_pieces = before.fixed_pieces;
    ctx->read_stop = before.read_stop;
    ctx->read_stop_user = before.read_stop_user;
    return status;
}

dro_status dro_train_run(dro_train *t, const char *folder, bool resume,
                         const dro_train_watch *watch)
{
    if (!t)
        return DRO_ERR_ARGUMENT;
    if (t->running)
        return dro__fail(t->ctx, DRO_ERR_STATE,
                         "this run is in progress: a callback cannot start it");
    if (!dro__json_works())
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED, "this build of libdro has no jansson");
    DRO_TRY(dro_settings_check(t->settings));
    dro_train_watch own = {0};
    DRO_TRY(watch ? dro__take_struct(t->ctx, "dro_train_watch", watch, &own, sizeof own) : DRO_OK);
    close_run(t);
    DRO_TRY(dro__settings_parse(t->settings, &t->set));
    t->running = true;
    t->folder = folder;
    t->lock = -1;
    t->watch = own;
    if (dro_comm_rank(t->comm) > 0)
        t->watch.evaluated = NULL;
    t->began = t->saved_at = dro__clock();
    t->before = 0;
    t->made = t->begun = t->planned = false;
    t->written = (dro__written){0};
    t->costs = (dro__costs){0};
    dro_status status = run_with(t, resume);
    if (status != DRO_OK && !t->trial) /* all ranks diverge together, and go on */
        dro_comm_fail(t->comm, t->ctx->error);
    if (status != DRO_OK && status != DRO_ERR_FILE)
        dro__run_forget(t);
    if (t->lock >= 0)
        close(t->lock);
    t->lock = -1;
    t->running = false;
    return dro__done(t->ctx, status);
}
