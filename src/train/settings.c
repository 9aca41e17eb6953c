/* The run's described parameters. Every other name goes on to the network or the optimiser. */
#include "text.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define S dro__train_settings
#define TEXT(name, fallback, meaning)                                                              \
    {                                                                                              \
        {#name, DRO_PARAM_TEXT, fallback, 0, 0, NULL, meaning}, offsetof(S, name)                  \
    }

static const dro__param own[] = {
    TEXT(data, "synth:glyphs", "the data's SPEC, format:path[,option=value...]"),
    TEXT(model, "", "the model; if not given, one that suits the data"),
    TEXT(optimizer, "recover", "the optimiser"),
    DRO__CHOICE("recipe", recipe, S, "none", "none|imbalanced",
                "settings that go together, under those that are given; dro_recipe_setting()"),
    TEXT(label, "", "what reports call the run; if not given, its optimiser"),
    TEXT(init, "", "a weights file to begin with"),
    TEXT(train_only, "", "patterns of tensors to train, as in layer4.*,fc.*; all if not given"),
    DRO__INTEGER("epochs", epochs, S, "0", 0, 1e6,
                 "passes over the data; 0: 15, more of few examples"),
    DRO__INTEGER("steps", steps, S, "0", 0, 1e15, "steps instead of epochs"),
    DRO__INTEGER("batch", batch, S, "0", 0, 1e9, "examples in a batch; 0: 128, less on few"),
    DRO__INTEGER("seed", seed, S, "1", 0, 9e15, "of every random choice"),
    DRO__REAL("eval_every", eval_every, S, "1", 1e-6, 1e6, "epochs between evaluations"),
    DRO__CHOICE("eval_train", eval_train, S, "yes", "yes|no|last",
                "whether F is worked out over the training set at evaluations"),
    DRO__CHOICE("best", best, S, "none",
                "none|accuracy|balanced_accuracy|worst_class_accuracy|worst_group_accuracy|"
                "macro_f1|auroc|loss|calibration_error|objective",
                "the holdout's measure by which the best weights are kept"),
    DRO__INTEGER("patience", patience, S, "0", 0, 1e9,
                 "stop after so many evaluations without a better one; 0: never"),
    DRO__REAL("max_time", max_time, S, "0", 0, 1e9, "stop after so many seconds; 0: never"),
    DRO__REAL("checkpoint_every", checkpoint_every, S, "60", 0, 1e9,
              "seconds between checkpoints, besides those at evaluations"),
    DRO__CHOICE("on_divergence", on_divergence, S, "stop", "stop|halve",
                "halve: go back to the last checkpoint with half the step"),
    DRO__CHOICE("augment", augment, S, "auto", "auto|yes|no",
                "crop and flip training images; auto: not those of characters"),
    DRO__INTEGER("size", size, S, "0", 0, 4096, "side of images in files; 0: 224"),
    DRO__REAL("report_lambda", report_lambda, S, "0", 0, 1e12,
              "the lambda of the F that is reported; 0: the optimiser's"),
    TEXT(report_like, "", "with report_lambda 0: that optimiser's default lambda instead"),
    DRO__CHOICE("report_tilt", report_tilt, S, "own", "own|example|class|group",
                "what the F that is reported is robust over; own: the optimiser's"),
    DRO__CHOICE("progressive", progressive, S, "no", "no|yes",
                "a stream: predict each batch before learning from it"),
    DRO__INTEGER("report_every", report_every, S, "10000", 1, 1e15,
                 "progressive: examples between two lines"),
    DRO__PARAMS_END,
};

const dro__param *const dro__train_tables[DRO__TABLE_MAX] = {own};

dro_status dro_train_param(int index, dro_param *param)
{
    const dro__param *row = index < 0 ? NULL : dro__param_at(dro__train_tables, index);
    if (!row || !param)
        return row ? DRO_ERR_ARGUMENT : DRO_ERR_END;
    *param = row->about;
    return DRO_OK;
}

bool dro__net_has(const char *name)
{
    dro_param p;
    for (int i = 0; dro_net_param(i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

bool dro__optimizer_has(const char *optimizer, const char *name)
{
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = dro__alloc(size, 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static dro_status set_extra(dro_train *t, const char *name, const char *value)
{
    char *copy = copy_text(value);
    for (size_t k = 0; copy && k < t->extra_count; k++)
        if (strcmp(t->extras[k].name, name) == 0) {
            dro__free(t->extras[k].value);
            t->extras[k].value = copy;
            return DRO_OK;
        }
    if (!copy || dro__grow(t->ctx, (void **)&t->extras, &t->extra_room, t->extra_count + 1,
                           sizeof *t->extras) != DRO_OK) {
        dro__free(copy);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a setting");
    }
    char *own_name = copy_text(name);
    if (!own_name) {
        dro__free(copy);
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a setting");
    }
    t->extras[t->extra_count++] = (dro__extra){own_name, copy};
    return DRO_OK;
}

dro_status dro_train_set(dro_train *t, const char *name, const char *value)
{
    if (!t || !name || !value)
        return DRO_ERR_ARGUMENT;
    if (dro__param_find(dro__train_tables, name))
        return dro__params_set(t->ctx, dro__train_tables, &t->set, "train", name, value);
    return set_extra(t, name, value);
}

dro_status dro_train_get(const dro_train *t, const char *name, char *text, size_t size)
{
    if (!t || !name || !text || size == 0)
        return DRO_ERR_ARGUMENT;
    const dro__param *row = dro__param_find(dro__train_tables, name);
    if (row) {
        dro__params_print(row, &t->set, text, size);
        return DRO_OK;
    }
    for (size_t k = 0; k < t->extra_count; k++)
        if (strcmp(t->extras[k].name, name) == 0) {
            snprintf(text, size, "%s", t->extras[k].value);
            return DRO_OK;
        }
    return dro__fail(t->ctx, DRO_ERR_NAME, "'%.60s' was not set", name);
}

static dro_status set_net(void *net, const char *name, const char *value)
{
    return dro__net_has(name) ? dro_net_set(net, name, value) : DRO_OK;
}

dro_status dro__apply_net(const dro_train *t, dro_net *net)
{
    DRO_TRY(dro__recipe_apply(t, set_net, net));
    for (size_t k = 0; k < t->extra_count; k++)
        if (dro__net_has(t->extras[k].name))
            DRO_TRY(dro_net_set(net, t->extras[k].name, t->extras[k].value));
    return DRO_OK;
}

/* ---- the optimiser ---- */

typedef struct choice {
    const char *optimizer, *name, *value; /* optimizer NULL: all that have the parameter */
} choice;

/* For networks: as in the experiments, with warm-up and a step / 10 at one half and three quarters. RECOVER
 * has no momentum: its eta is ten times that of SGD with momentum 0.9. */
static const choice for_nets[] = {
    {NULL, "eta_schedule", "step"}, {NULL, "stages", "0.5,0.75"}, {"sgd", "eta", "0.1"},
    {"absgd", "eta", "0.1"},        {"recover", "eta", "0.5"},    {"cover", "eta", "0.5"},
};

/* For images, besides: a gentle lambda, because single hard images are often the unlearnable ones; a close to 1,
 * because a long memory cost accuracy (CIFAR-10, 120 epochs: docs/results.md); a guard that a small lambda needs at
 * eta 1 and a gentle one does not notice. */
static const choice for_images[] = {
    {NULL, "lambda", "20"},    {NULL, "weight_decay", "5e-4"}, {"recover", "eta", "1"},
    {"cover", "eta", "1"},     {"recover", "a_rule", "fixed"}, {"cover", "a_rule", "fixed"},
    {"recover", "a", "0.9"},   {"cover", "a", "0.9"},          {"recover", "guard", "0.5"},
    {"cover", "guard", "0.5"},
};

double dro__default_of(const dro_train *t, const char *optimizer, const char *name)
{
    const choice *lists[] = {for_nets, for_images};
    size_t counts[] = {t->task.net ? sizeof for_nets / sizeof for_nets[0] : 0,
                       t->task.images ? sizeof for_images / sizeof for_images[0] : 0};
    double value = NAN;
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            dro__number_double(p.fallback, &value);
    for (int l = 0; l < 2; l++)
        for (size_t k = 0; k < counts[l]; k++)
            if (strcmp(lists[l][k].name, name) == 0 &&
                (!lists[l][k].optimizer || strcmp(lists[l][k].optimizer, optimizer) == 0))
                dro__number_double(lists[l][k].value, &value);
    return value;
}

double dro__report_lambda(const dro_train *t)
{
    if (t->set.report_lambda > 0)
        return t->set.report_lambda;
    return *t->set.report_like ? dro__default_of(t, t->set.report_like, "lambda") : NAN;
}

static dro_status set_default(void *user, const char *name, const char *value)
{
    dro_train *t = user;
    if (!dro__optimizer_has(t->set.optimizer, name))
        return DRO_OK;
    return dro_optimizer_set(t->opt, name, value);
}

static dro_status set_defaults(dro_train *t, const choice *list, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (!list[k].optimizer || strcmp(list[k].optimizer, t->set.optimizer) == 0)
            DRO_TRY(set_default(t, list[k].name, list[k].value));
    return DRO_OK;
}

/* A hundred steps, but at least a 25th and at most a quarter of them all; a stream has no end. */
static dro_status set_warmup(dro_train *t)
{
    char text[40];
    double share = t->steps ? fmin(fmax(100 / (double)t->steps, 0.04), 0.25) : 0;
    snprintf(text, sizeof text, "%.6f", share);
    return t->steps ? set_default(t, "warmup", text) : DRO_OK;
}

/* The usual steps are for features of about 1: those of larger ones are shorter by the square. */
static double step_divisor(const dro_train *t)
{
    enum { LARGE = 4 };
    return t->task.square > LARGE ? t->task.square : 1;
}

void dro__tell_step(const dro_train *t)
{
    char given[40];
    double divisor = step_divisor(t);
    if (divisor <= 1)
        return;
    if (dro_train_get(t, "eta", given, sizeof given) == DRO_OK)
        dro__note(t, "the features are large (root mean square %.3g): scale them to about 1",
                  sqrt(t->task.square));
    else
        dro__note(t,
                  "the features are large (root mean square %.3g): the step is divided by %.3g; "
                  "scale them to about 1 to train faster, or use csv:, which does",
                  sqrt(t->task.square), divisor);
}

/* An epoch is as many examples for every optimiser, also for those that do not draw a batch in each step. */
static void set_length(dro_train *t)
{
    uint64_t each = t->task.epoch_steps, batch = t->task.batch;
    if (t->set.steps || !each)
        return;
    uint64_t epochs = t->steps / each;
    uint64_t examples = epochs * ((uint64_t)t->task.info.examples[DRO_TRAIN] / batch) * batch;
    each = dro__steps_for(t->opt, examples) / epochs;
    t->task.epoch_steps = each ? each : 1;
    t->steps = epochs * t->task.epoch_steps;
}

static dro_status set_default_real(dro_train *t, const char *name, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.6g", value);
    return set_default(t, name, text);
}

/* What depends on the number of examples. RCIVR's batches grow up to a pass over the data. The methods with a p for
 * each example move it by dual_eta n/b times its loss, p being about 1/n: so that one visit changes it by a
 * third of itself, whether it is added to or (PG-SMD2) multiplied. */
static dro_status set_by_count(dro_train *t)
{
    double n = (double)t->task.info.examples[DRO_TRAIN], share = 0.3 * (double)t->task.batch / n;
    bool multiplied = strcmp(t->set.optimizer, "pg-smd2") == 0;
    if (n == 0) /* a stream */
        return DRO_OK;
    DRO_TRY(set_default_real(t, "big_most", n));
    return set_default_real(t, "dual_eta", multiplied ? share : share / n);
}

/* And what depends on the number of steps, for networks: stages, and how soon Stoc-AGDA's steps get small. */
static dro_status set_by_steps(dro_train *t)
{
    double steps = (double)t->steps;
    DRO_TRY(set_default_real(t, "stage_steps", fmax(1, round(steps / 10))));
    DRO_TRY(set_default_real(t, "tau1", steps / 2));
    return set_default_real(t, "tau2", steps / 2);
}

static bool is_given(const dro_train *t, const char *name)
{
    char text[40];
    return dro_train_get(t, name, text, sizeof text) == DRO_OK;
}

/* A small lambda over examples comes last. From the beginning it chases the few images that are hardest before the
 * network knows any, with steps that the guard must keep short; as the end of a gentle one it costs nothing
 * (docs/results.md, lambda). */
static dro_status set_lambda_warmup(dro_train *t)
{
    enum { GENTLE = 20 };
    const dro__settings *s = dro__settings_of(t->opt);
    bool ours = strcmp(t->set.optimizer, "recover") == 0 || strcmp(t->set.optimizer, "cover") == 0;
    bool small = s->tilt == DRO__TILT_EXAMPLE && s->lambda.value < GENTLE;
    if (!ours || !small || !t->task.images || !t->steps || is_given(t, "lambda_warmup") ||
        is_given(t, "lambda_schedule"))
        return DRO_OK;
    return set_default(t, "lambda_warmup", "0.75");
}

dro_status dro__make_optimizer(dro_train *t)
{
    dro_optimizer_destroy(t->opt);
    t->opt = NULL;
    DRO_TRY(dro_optimizer_create(t->ctx, t->set.optimizer, &t->task.problem, &t->opt));
    DRO_TRY(set_by_count(t));
    if (t->task.net && t->steps)
        DRO_TRY(set_by_steps(t));
    if (t->task.net)
        DRO_TRY(set_warmup(t));
    if (t->task.net)
        DRO_TRY(set_defaults(t, for_nets, sizeof for_nets / sizeof for_nets[0]));
    if (t->task.images)
        DRO_TRY(set_defaults(t, for_images, sizeof for_images / sizeof for_images[0]));
    DRO_TRY(dro__recipe_apply(t, set_default, t));
    dro__settings_of(t->opt)->eta.value /= step_divisor(t);
    for (size_t k = 0; k < t->extra_count; k++)
        if (!dro__net_has(t->extras[k].name))
            DRO_TRY(dro_optimizer_set(t->opt, t->extras[k].name, t->extras[k].value));
    DRO_TRY(set_lambda_warmup(t));
    DRO_TRY(dro_optimizer_set_real(t->opt, "seed", (double)t->set.seed));
    DRO_TRY(dro_optimizer_set_real(t->opt, "batch", (double)t->task.batch));
    set_length(t);
    return dro_optimizer_set_real(t->opt, "steps", (double)t->steps);
}
