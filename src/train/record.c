/* What a run writes about itself: config.json, metrics.jsonl, result.json. */
#include "train.h"

#include <dro/version.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A checksum of the data; if it is large, of PIECES evenly spread pieces. */
static uint64_t sum_some(uint64_t sum, const void *data, size_t size)
{
    enum { PIECE = 4096, PIECES = 4096 };
    if (!data || size <= (size_t)PIECE * PIECES)
        return data ? dro__checksum(sum, data, size) : sum;
    for (size_t k = 0; k < PIECES; k++)
        sum = dro__checksum(sum, (const char *)data + (size - PIECE) / (PIECES - 1) * k, PIECE);
    return sum;
}

/* Checksum of a split; 0 where it is not in memory (streams, image files). */
static uint64_t sum_of_examples(const dro__task *task, dro_split split)
{
    const dro_data_info *i = &task->info;
    dro_examples e;
    uint64_t sum = 0;
    if (!task->data || i->examples[split] < 0 || dro_data_examples(task->data, split, &e) != DRO_OK)
        return 0;
    size_t n = (size_t)e.count, entries = e.starts ? (size_t)e.starts[n] : 0;
    size_t image = (size_t)i->channels * (size_t)i->height * (size_t)i->width;
    for (int32_t k = 0; k < i->classes; k++)
        sum = dro__checksum(sum, i->class_names[k], strlen(i->class_names[k]) + 1);
    sum = sum_some(sum, e.labels, n * sizeof *e.labels);
    sum = sum_some(sum, e.targets, n * sizeof *e.targets);
    sum = sum_some(sum, e.groups, n * sizeof *e.groups);
    sum = sum_some(sum, e.pixels, n * image);
    sum = sum_some(sum, e.x, n * i->features * sizeof *e.x);
    sum = sum_some(sum, e.columns, entries * sizeof *e.columns);
    return sum_some(sum, e.values, entries * sizeof *e.values);
}

uint64_t dro__sum_of_split(const dro__task *task, dro_split split)
{
    dro_examples e;
    uint64_t sum = sum_of_examples(task, split);
    if (sum && dro_data_examples(task->data, split, &e) == DRO_OK)
        sum = sum_some(sum, e.weights, (size_t)e.count * sizeof *e.weights);
    if (sum)
        sum = sum_some(sum, e.starts, ((size_t)e.count + 1) * sizeof *e.starts);
    return sum;
}

#if DRO_WITH_JANSSON
#include <jansson.h>

enum { CONFUSION_MOST = 100 }; /* classes up to which metrics.jsonl has the confusion matrix */

bool dro__json_works(void)
{
    return true;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* A note may end within a letter; names are refused where they are read. */
static json_t *text(const char *value)
{
    char *shown = dro__utf8_wrong(value, strlen(value)) ? dro__utf8_show(value) : NULL;
    json_t *string = json_string(shown ? shown : value);
    dro__free(shown);
    return string;
}

/* If a value could not be allocated or inserted this is noted; dump() then returns no text. */
static void put(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        dro__memory_lost();
}

static void append(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        dro__memory_lost();
}

static char *dump(json_t *document, bool lines)
{
    size_t flags = JSON_REAL_PRECISION(17) | (lines ? JSON_COMPACT : JSON_INDENT(2));
    char *made = json_dumps(document, flags), *copy = NULL;
    size_t size = made ? strlen(made) : 0;
    if (made)
        copy = dro__alloc(size + 2, 1);
    if (copy) {
        memcpy(copy, made, size);
        copy[size] = '\n';
    }
    dro__json_free(made);
    json_decref(document);
    if (dro__memory_ran_out()) {
        dro__free(copy);
        return NULL;
    }
    return copy;
}

/* ---- settings ---- */

/* A value that params.c printed, as JSON. */
static json_t *value_json(const dro_param *about, const char *value)
{
    if (about->kind == DRO_PARAM_INTEGER)
        return json_integer(strtoll(value, NULL, 10));
    if (about->kind == DRO_PARAM_REAL || about->kind == DRO_PARAM_TIME) {
        bool number = *value && !value[strspn(value, "0123456789.e+-")]; /* no inf, no nan */
        return number ? json_loads(value, JSON_DECODE_ANY, NULL)         /* a point in any locale */
                      : text(value);
    }
    return text(value);
}

static json_t *own_json(const dro_train *t)
{
    json_t *object = json_object();
    const dro__param_row *row;
    char value[DRO__TEXT_MAX];
    for (int i = 0; (row = dro__param_at(dro__train_tables, i)); i++) {
        dro__params_print(row, &t->set, value, sizeof value);
        put(object, row->about.name, value_json(&row->about, value));
    }
    return object;
}

/* The optimiser's current values, without those that follow from the run. */
static json_t *optimizer_json(const dro_train *t)
{
    json_t *object = json_object();
    dro_param p;
    char value[512];
    for (int i = 0; dro_optimizer_param(t->set.optimizer, i, &p) == DRO_OK; i++)
        if (!dro__param_find(dro__train_tables, p.name) &&
            dro_optimizer_get(t->opt, p.name, value, sizeof value) == DRO_OK)
            put(object, p.name, value_json(&p, value));
    return object;
}

static json_t *network_json(const dro_train *t)
{
    json_t *object = json_object();
    const dro__param_row *const tables[DRO__TABLE_MAX] = {dro__params_net};
    const dro__param_row *row;
    char value[512];
    for (int i = 0; t->task.net && (row = dro__param_at(tables, i)); i++) {
        dro__params_print(row, &t->task.net->set, value, sizeof value);
        put(object, row->about.name, value_json(&row->about, value));
    }
    const dro_settings *s = t->settings;
    for (size_t k = 0; !t->task.net && k < s->count; k++)
        if (dro__net_has(s->items[k].name))
            put(object, s->items[k].name, text(s->items[k].value));
    return object;
}

static json_t *config_json(const dro_train *t)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", DRO_VERSION_MAJOR, DRO_VERSION_MINOR,
             DRO_VERSION_PATCH);
    json_t *object = own_json(t);
    put(object, "model", text(t->task.model)); /* as chosen */
    put(object, "batch", json_integer((json_int_t)t->task.batch));
    if (t->task.side || (t->task.info.kind == DRO_DATA_FILES && *t->set.init))
        put(object, "size", json_integer(t->task.shape.height));
    if (!t->set.epochs && !t->set.steps && t->task.epoch_steps)
        put(object, "epochs",
            json_integer((json_int_t)((t->steps - t->second_steps) / t->task.epoch_steps)));
    put(object, "optimizer_settings", optimizer_json(t));
    put(object, "network_settings", network_json(t));
    put(object, "backend", text(t->ctx->backend->name));
    put(object, "threads", json_integer(t->ctx->threads));
    put(object, "version", text(version));
    return object;
}

char *dro__config_text(const dro_train *t)
{
    dro__json_watch();
    return dump(config_json(t), false);
}

/* Settings that may change when a run is resumed: they do not affect the weights, except
 * on_divergence, which applies after a bad step. */
static bool may_change(const char *name)
{
    static const char *const names[] = {
        "max_time", "checkpoint_every", "patience",   "report_every",
        "backend",  "threads",          "version",    "init",
        "name",     "on_divergence",    "report_most"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(names[k], name) == 0)
            return true;
    return false;
}

static void add_lines(json_t *object, char *out, size_t size, size_t *used)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (json_is_object(value)) {
            add_lines(value, out, size, used);
        } else if (!may_change(key)) {
            char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
            if (!shown)
                dro__memory_lost();
            int count = snprintf(out ? out + *used : NULL, out ? size - *used : 0, "%s=%s\n", key,
                                 shown ? shown : "");
            *used += count > 0 ? (size_t)count : 0;
            dro__json_free(shown);
        }
    }
}

/* As text: a number of JSON may lose its last digits. */
static json_t *checksum_json(const dro__task *task)
{
    char digits[20];
    uint64_t sum = sum_of_examples(task, DRO_TRAIN);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
    return sum ? text(digits) : json_null();
}

static json_t *normal_json(const dro__normal *n)
{
    char all[128];
    snprintf(all, sizeof all, "%.9g %.9g %.9g, %.9g %.9g %.9g", (double)n->scale[0],
             (double)n->scale[1], (double)n->scale[2], (double)n->shift[0], (double)n->shift[1],
             (double)n->shift[2]);
    return text(all);
}

char *dro__identity_text(const dro_train *t)
{
    dro__json_watch();
    json_t *config = config_json(t);
    const dro_data_info *i = &t->task.info;
    uint64_t sum = 0;
    put(config, "training examples", json_integer(i->examples[DRO_TRAIN]));
    put(config, "classes", json_integer(i->classes));
    put(config, "weights", json_integer((json_int_t)t->task.dim));
    put(config, "checksum of the training examples",
        json_integer((json_int_t)sum_of_examples(&t->task, DRO_TRAIN)));
    if (t->task.images && *t->set.init)
        put(config, "normalisation of init", normal_json(&t->task.normal));
    if (dro__task_frozen(&t->task, &sum))
        put(config, "checksum of the weights that do not train", json_integer((json_int_t)sum));
    size_t size = 0, used = 0;
    add_lines(config, NULL, 0, &size);
    char *out = dro__memory_ran_out() ? NULL : dro__alloc(size + 1, 1);
    if (out)
        add_lines(config, out, size + 1, &used);
    json_decref(config);
    if (dro__memory_ran_out()) {
        dro__free(out);
        return NULL;
    }
    return out;
}

char *dro__names_text(const char *const *names, int32_t count)
{
    dro__json_watch();
    json_t *list = json_array();
    for (int32_t k = 0; k < count; k++)
        append(list, text(names[k]));
    return dump(list, true);
}

/* ---- figures ---- */

static json_t *list_json(const double *values, int32_t count)
{
    json_t *list = json_array();
    for (int32_t k = 0; k < count; k++)
        append(list, number(values[k]));
    return list;
}

/* The columns of a table of numbers, by their names. */
static json_t *columns_json(const double *rows, int32_t count, const char *const *names)
{
    json_t *o = json_object();
    int32_t width = 0;
    while (names[width])
        width++;
    for (int32_t k = 0; k < width; k++) {
        json_t *list = json_array();
        for (int32_t i = 0; i < count; i++)
            append(list, number(rows[i * width + k]));
        put(o, names[k], list);
    }
    return o;
}

/* At the end of a run only: reliability, and precision against recall. */
static void put_curves(json_t *o, const dro_metrics *m)
{
    static const char *const bins[] = {"share", "probability", "accuracy", NULL};
    static const char *const curve[] = {"recall", "precision", NULL};
    if (m->reliability)
        put(o, "reliability", columns_json(m->reliability, DRO_RELIABILITY_BINS, bins));
    if (!m->curve)
        return;
    json_t *columns = columns_json(m->curve, m->curve_points, curve);
    put(columns, "class", json_integer(m->curve_class));
    put(o, "precision_recall", columns);
}

static void put_groups(json_t *o, const dro_metrics *m)
{
    json_t *counts = json_array();
    for (int32_t k = 0; k < m->groups; k++)
        append(counts, json_integer(m->group_counts[k]));
    put(o, "per_group", list_json(m->per_group, m->groups));
    put(o, "group_counts", counts);
}

static json_t *split_json(const dro_metrics *m, bool confusion)
{
    static const char *const real[] = {"rmse", "mae", "r2"};
    json_t *o = json_object(), *matrix = json_array();
    confusion = confusion && m->classes <= DRO_CONFUSION_CLASSES;
    put(o, "examples", json_integer(m->examples));
#define X(name, code, title, better, unit, meaning) put(o, #name, number(m->name));
    DRO_METRIC_LIST(X)
#undef X
    if (m->groups)
        put_groups(o, m);
    else
        json_object_del(o, "worst_group_accuracy");
    for (size_t k = 0; m->classes && k < sizeof real / sizeof real[0]; k++)
        json_object_del(o, real[k]);
    if (m->class_precision)
        put(o, "class_precision", list_json(m->class_precision, m->classes));
    for (int32_t k = 0; k < m->classes; k++) {
        json_t *row = json_array();
        for (int32_t j = 0; confusion && j < m->classes; j++)
            append(row, json_integer(m->confusion[k * m->classes + j]));
        append(matrix, row);
    }
    put(o, "per_class", list_json(m->per_class, m->classes));
    if (confusion)
        put(o, "confusion", matrix);
    else
        json_decref(matrix);
    return o;
}

/* train: only what is measured at every evaluation. */
static json_t *train_json(const dro_metrics *m)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I}", "objective", number(m->objective), "loss",
                     number(m->loss), "accuracy", number(m->accuracy), "balanced_accuracy",
                     number(m->balanced_accuracy), "worst_class_accuracy",
                     number(m->worst_class_accuracy), "examples", (json_int_t)m->examples);
}

/* Which function `objective` is: lambda null for the mean loss. */
static json_t *objective_json(const dro__robust *r)
{
    char name[40];
    bool other = r->other.kind != DRO__OBJECTIVE_MEAN;
    json_t *o = json_pack("{s:o, s:s}", "lambda", other ? json_null() : number(r->lambda), "over",
                          dro__level_text(r));
    dro__objective_print(&r->other, name, sizeof name);
    if (other)
        put(o, "objective", json_string(name));
    return o;
}

/* Where lambda or tilt change, the two measurements of a stream began with different ones. */
static json_t *streamed_json(const dro_metrics *m, bool confusion, const dro__robust *of)
{
    json_t *o = split_json(m, confusion);
    put(o, "F", objective_json(of));
    return o;
}

static void put_splits(json_t *o, const dro_train *t, bool confusion)
{
    const dro__evaluation *e = &t->evaluation;
    const dro_train_record *r = &e->record;
    put(o, "train", r->has_train ? train_json(&r->train) : json_null());
    put(o, "test",
        r->has_window ? streamed_json(&r->test, confusion, &e->of_test)
        : r->has_test ? split_json(&r->test, confusion)
                      : json_null());
    if (r->has_holdout)
        put(o, "holdout", split_json(&r->holdout, confusion));
    if (r->has_window)
        put(o, "window", streamed_json(&r->window, confusion, &e->of_window));
}

/* How near an exact solver is to the minimum. */
static void put_certificate(json_t *o, const dro_train *t)
{
    const dro_info *i = &t->evaluation.record.info;
    if (!t->opt->cls->exact)
        return;
    put(o, "gradient_norm", number(i->gradient_norm));
    put(o, "gap", number(i->gap));
}

/* The present values of the objective's scalars, and how evenly the last batch was weighted. */
static void put_reached(json_t *o, const dro_train *t)
{
    const dro_info *i = &t->evaluation.record.info;
    put(o, "lambda", number(i->lambda));
    if (t->opt->objective.kind > DRO__OBJECTIVE_KL) {
        put(o, "threshold", number(i->threshold));
        put(o, "radius", number(i->radius));
    }
    put(o, "effective", number(i->effective));
}

char *dro__metrics_text(const dro_train *t)
{
    dro__json_watch();
    const dro_train_record *r = &t->evaluation.record;
    const dro_info *i = &r->info;
    json_t *o = json_object();
    put(o, "step", json_integer((json_int_t)i->step));
    put(o, "epoch", number(r->epoch));
    put(o, "examples", json_integer((json_int_t)i->examples));
    put(o, "evaluations", json_integer((json_int_t)i->evaluations));
    put(o, "seconds", number(r->seconds));
    put(o, "wall", number(r->wall));
    put(o, "eta", number(i->eta));
    put_reached(o, t);
    put(o, "a", number(i->a));
    put(o, "log_u", number(i->log_u));
    put(o, "loss", number(i->loss));
    put(o, "objective", number(i->objective));
    put(o, "largest_weight", number(i->largest_weight));
    put(o, "caps", json_integer((json_int_t)i->caps));
    put(o, "floors", json_integer((json_int_t)i->floors));
    put(o, "fresh_starts", json_integer((json_int_t)i->fresh_starts));
    put_certificate(o, t);
    put(o, "class_weights",
        r->class_weights ? list_json(r->class_weights, t->task.info.classes) : json_null());
    if (t->task.info.groups)
        put(o, "group_weights",
            r->group_weights ? list_json(r->group_weights, t->task.info.groups) : json_null());
    put_splits(o, t, t->task.info.classes <= CONFUSION_MOST);
    return dump(o, true);
}

static const char *const ends[] = {
    [DRO_TRAIN_NOT_ENDED] = "running",       [DRO_TRAIN_DONE] = "done",
    [DRO_TRAIN_PATIENCE] = "patience",       [DRO_TRAIN_TIME] = "time",
    [DRO_TRAIN_INTERRUPTED] = "interrupted", [DRO_TRAIN_DIVERGED] = "diverged",
};

/* The splits that were not evaluated because of max_time. */
static json_t *missing_json(const dro_train *t)
{
    const dro_train_record *r = &t->evaluation.record;
    const dro_data_info *i = &t->task.info;
    json_t *list = json_array();
    if (i->examples[DRO_TEST] > 0 && !r->has_test)
        append(list, text("test"));
    if (i->examples[DRO_HOLDOUT] > 0 && !r->has_holdout)
        append(list, text("holdout"));
    if (!r->has_train && t->set.eval_train != DRO__EVAL_NO)
        append(list, text("train"));
    return list;
}

static json_t *best_json(const dro_train *t)
{
    const dro__progress *p = &t->progress;
    char measure[64];
    if (!p->have_best)
        return json_null();
    dro_train_get(t, "best", measure, sizeof measure);
    return json_pack("{s:s, s:o, s:I, s:o}", "measure", measure, "value", number(p->best), "step",
                     (json_int_t)p->best_step, "epoch", number(p->best_epoch));
}

/* What rank 0 has sent, and how long it waited. */
static json_t *ranks_json(const dro_comm *comm)
{
    dro_comm_traffic traffic = dro_comm_traffic_get(comm);
    return json_pack("{s:i, s:I, s:I, s:o}", "count", dro_comm_size(comm), "messages",
                     (json_int_t)traffic.messages, "bytes", (json_int_t)traffic.bytes, "waited",
                     number(traffic.seconds));
}

char *dro__figures_text(const dro_train *t)
{
    dro__json_watch();
    json_t *o = json_object();
    put_splits(o, t, false);
    return dump(o, true);
}

char *dro__result_text(const dro_train *t)
{
    dro__json_watch();
    const dro_train_record *r = &t->evaluation.record;
    const dro_data_info *info = &t->task.info;
    /* the training examples of each class; those of a stream are what it has seen */
    const int64_t *of_class = t->stream ? r->test.counts : info->counts[DRO_TRAIN];
    json_t *o = json_object(), *names = json_array(), *counts = json_array();
    put(o, "optimizer", text(t->set.optimizer));
    put(o, "model", text(t->task.model));
    put(o, "data", text(t->set.data));
    put(o, "backend", text(t->ctx->backend->name));
    put(o, "threads", json_integer(t->ctx->threads));
    if (dro_comm_size(t->comm) > 1)
        put(o, "ranks", ranks_json(t->comm));
    put(o, "seed", json_integer(t->set.seed));
    put(o, "ended", text(ends[t->ended]));
    put(o, "step", json_integer((json_int_t)r->info.step));
    put(o, "epochs", number(r->epoch));
    put(o, "examples", json_integer((json_int_t)r->info.examples));
    put(o, "evaluations", json_integer((json_int_t)r->info.evaluations));
    put(o, "seconds", number(r->seconds));
    put(o, "wall", number(r->wall));
    put(o, "parameters", json_integer((json_int_t)t->task.dim));
    put_certificate(o, t);
    put_reached(o, t);
    put(o, "halvings", json_integer((json_int_t)t->progress.halvings));
    put_splits(o, t, true);
    if (t->evaluation.cut)
        put(o, "not_measured", missing_json(t));
    if (r->has_test)
        put_curves(json_object_get(o, "test"), &r->test);
    if (r->has_holdout)
        put_curves(json_object_get(o, "holdout"), &r->holdout);
    dro__robust of = t->stream ? t->evaluation.of_test : dro__objective_of(t);
    put(o, "F", objective_json(&of));
    put(o, "best", best_json(t));
    if (t->last)
        put(o, "last", json_loads(t->last, 0, NULL));
    for (int32_t k = 0; k < info->classes; k++) {
        append(names, text(info->class_names[k]));
        append(counts, json_integer(of_class ? of_class[k] : 0));
    }
    put(o, "classes", names);
    put(o, "class_counts", counts);
    put(o, "data_checksum", checksum_json(&t->task));
    json_t *skipped = json_array();
    for (int k = 0; dro_data_skipped(t->task.data, k); k++)
        append(skipped, text(dro_data_skipped(t->task.data, k)));
    put(o, "skipped", skipped);
    if (info->groups) {
        json_t *groups = json_array();
        for (int32_t k = 0; k < info->groups; k++)
            append(groups, text(info->group_names[k]));
        put(o, "groups", groups);
    }
    put(o, "settings", config_json(t));
    return dump(o, false);
}

#else /* without jansson */

bool dro__json_works(void)
{
    return false;
}

char *dro__config_text(const dro_train *t)
{
    (void)t;
    return NULL;
}

char *dro__identity_text(const dro_train *t)
{
    return dro__config_text(t);
}

char *dro__metrics_text(const dro_train *t)
{
    return dro__config_text(t);
}

char *dro__result_text(const dro_train *t)
{
    return dro__config_text(t);
}

char *dro__figures_text(const dro_train *t)
{
    return dro__config_text(t);
}

char *dro__names_text(const char *const *names, int32_t count)
{
    (void)names;
    (void)count;
    return NULL;
}

#endif
