/* The defaults of a run for its optimiser. One table: runs use it, and dro_train_default() and `dro
 * list optimizers NAME` show it. docs/results.md has the measurements. */
#include "text.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    double (*rule)(const dro_train *t); /* its value; NaN: none here; or NULL */
    bool late; /* depends on what is given: set after that, if not itself given */
    dro_default about;
} row;

static bool is_given(const dro_train *t, const char *name)
{
    char text[40];
    return dro_train_get(t, name, text, sizeof text) == DRO_OK;
}

/* ---- rules ---- */

static double batch_of(const dro_train *t)
{
    return (double)t->task.batch;
}

/* A stream has no number of examples and of steps: the optimiser's own defaults stay. */
static double examples_of(const dro_train *t)
{
    int64_t n = t->task.info.examples[DRO_TRAIN];
    return n > 0 ? (double)n : NAN;
}

/* The methods with a p for each example change it by dual_eta n/b times its loss, and p is about
 * 1/n. With this value one visit changes p by a third, whether it is multiplied (PG-SMD2) or added
 * to. */
static double dual_times(const dro_train *t)
{
    return 0.3 * (double)t->task.batch / examples_of(t);
}

static double dual_plus(const dro_train *t)
{
    return dual_times(t) / examples_of(t);
}

static double half_of_steps(const dro_train *t)
{
    return t->steps ? (double)t->steps / 2 : NAN;
}

static double stream_warmup_of(const dro_train *t)
{
    return t->stream ? 0 : NAN;
}

static double warmup_of(const dro_train *t)
{
    double share = fmin(fmax(100 / (double)t->steps, 0.04), 0.25);
    return t->steps ? round(1e6 * share) / 1e6 : NAN;
}

static double lambda_warmup_of(const dro_train *t)
{
    enum { GENTLE = 20 };
    const dro__optimizer_settings *s = dro__settings_of(t->opt);
    bool small = s->tilt != DRO__TILT_NONE && s->lambda.value < GENTLE;
    return small && t->steps && !is_given(t, "lambda_schedule") ? 0.75 : NAN;
}

/* Examples of rare classes have larger weights: the variance of a batch's gradient grows by the
 * mean of 1 / (classes share), so that steps that are safe for a batch of 32 with equal classes
 * make a network diverge there. */
static double class_eta_of(const dro_train *t)
{
    const dro__optimizer_settings *s = dro__settings_of(t->opt);
    double classes = t->task.info.classes, rarity = 0, batch = fmax(32, (double)t->task.batch);
    for (int32_t c = 0; c < t->task.info.classes; c++)
        rarity += t->task.class_share[c] > 0 ? 1 / (classes * classes * t->task.class_share[c]) : 0;
    return s->tilt == DRO__TILT_CLASS ? s->eta.value * fmin(1, batch / (32 * rarity)) : NAN;
}

/* Between rare groups a direction changes from batch to batch. Over examples momentum would carry
 * on where one example of large weight led, until it is drawn again. A stream is seen once, and its
 * batches are small: momentum would make it learn later. */
static double group_momentum_of(const dro_train *t)
{
    return dro__settings_of(t->opt)->tilt >= DRO__TILT_CLASS && !t->stream ? 0.9 : NAN;
}

/* The direction has the noise of two batches, and a network's losses do not bear much of it: with
 * batches of 25, runs at eta 1 had collapses that those at half of that did not have. */
static double image_eta_of(const dro_train *t)
{
    return fmin(1, sqrt((double)t->task.batch / 128));
}

/* For tables: mild, and relative to the loss before training. */
static double lambda_of(const dro_train *t)
{
    double lambda = dro__gentle_lambda(t);
    return !t->task.images && lambda > 0 && isfinite(lambda) ? lambda : NAN;
}

/* For the exact solvers: worth one more example, as in LogisticRegression and Ridge of
 * scikit-learn. Two outputs for two classes share a weight, and half of its square is twice as
 * much. */
static double strength_of(const dro_train *t)
{
    return (t->task.net && t->task.outputs == 2 ? 2 : 1) / examples_of(t);
}

static bool has_hidden(const dro_train *t)
{
    return t->task.net && !t->task.images && strcmp(t->task.model, "linear") != 0;
}

static double prior_of(const dro_train *t)
{
    return 10 / examples_of(t);
}

/* A step along one row changes that row's output by eta |x|^2, so rows with many or large features
 * need short steps. */
static double step_divisor(const dro_train *t)
{
    enum { LARGE = 4, NORM = 500 };
    return fmax(t->task.square > LARGE ? t->task.square : 1, t->task.norm / NORM);
}

/* A scaled step moves w by about eta: in a run of few steps w would not arrive. */
static double short_run(const dro_train *t)
{
    enum { ENOUGH = 1000, MOST = 4 };
    return t->steps ? fmin(fmax(1, sqrt(ENOUGH / (double)t->steps)), MOST) : 1;
}

/* A scaled step along one row changes that row's output by about eta |x|^2. A row of a stream is
 * learned from once, so the step is as long as that allows. */
static double stream_eta_of(const dro_train *t)
{
    const double change = 2, least = 0.002, most = 0.1;
    return fmin(fmax(change / t->task.norm, least), most);
}

/* Momentum makes scent's steps longer than recover's. */
static double scent_eta_of(const dro_train *t)
{
    if (t->stream)
        return stream_eta_of(t) / 2;
    return strcmp(t->task.model, "linear") == 0 ? 0.02 * short_run(t) : 0.004;
}

/* A linear model allows longer steps than a network with hidden layers. */
static double scaled_eta_of(const dro_train *t)
{
    if (t->stream)
        return stream_eta_of(t);
    return strcmp(t->task.model, "linear") == 0 ? 0.04 * short_run(t) : 0.004;
}

/* Of a stream: the scaled steps know |x|^2 already (stream_eta_of()). */
static double stream_divisor(const dro_train *t)
{
    bool scaled = dro__settings_of(t->opt)->precondition || strcmp(t->set.optimizer, "adamw") == 0;
    return scaled ? 1 : fmax(1, sqrt(t->task.norm));
}

static double eta_of(const dro_train *t)
{
    const dro__optimizer_settings *s = dro__settings_of(t->opt);
    double by = step_divisor(t); /* a scaled step is of w, not of the gradient */
    if (t->stream)
        return s->eta.value / stream_divisor(t);
    return s->eta.value / (s->precondition ? sqrt(by) : by);
}

/* ---- the table: a later row hides an earlier one ---- */

#define ROW(rule, ...)                                                                             \
    {                                                                                              \
        rule, false,                                                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LATE(rule, ...)                                                                            \
    {                                                                                              \
        rule, true,                                                                                \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define OURS(row, rule, ...) row(rule, "cover", __VA_ARGS__), row(rule, "recover", __VA_ARGS__)

static const char visit[] = "a visit changes the weight of an example by about a third";

static const char scale_free[] = "one step size for features of any scale";

static const char short_runs[] = "for features of any scale; r: sqrt(1000 / steps), from 1 to 4, "
                                 "so that short runs get close to the minimum; |x|^2: of a row, 20 "
                                 "to 1000";

#define SCALED_ETA(own, change) own ", with hidden layers 0.004; streams: " change " / |x|^2"

static const char rare[] =
    "with tilt=class, if smaller; r: the mean over classes of 1 / (classes share)";

static const row rows[] = {
    ROW(batch_of, NULL, NULL, "batch", "128, or examples / 8 if that is less; streams: 8",
        "at least eight steps per epoch"),
    ROW(dual_plus, "stoc-agda", NULL, "dual_eta", "0.3 batch / examples^2", visit),
    ROW(dual_plus, "pes-sgda", NULL, "dual_eta", "0.3 batch / examples^2", visit),
    ROW(dual_times, "pg-smd2", NULL, "dual_eta", "0.3 batch / examples", visit),
    ROW(examples_of, "rcivr", NULL, "big_most", "examples",
        "a big batch is at most a pass over the data"),
    ROW(NULL, NULL, "networks", "stage_steps", "0.1", "the first stage is a tenth of the run"),
    ROW(half_of_steps, NULL, "networks", "tau1", "steps / 2",
        "eta halves by the middle of the run"),
    ROW(half_of_steps, NULL, "networks", "tau2", "steps / 2",
        "dual_eta halves by the middle of the run"),
    ROW(warmup_of, NULL, "networks", "warmup", "100 / steps, from 0.04 to 0.25",
        "long steps diverge on untrained weights"),
    ROW(stream_warmup_of, NULL, "tables", "warmup", "0 for streams, else the optimiser's own",
        "a linear model can start with long steps"),
    ROW(NULL, NULL, "networks", "eta_schedule", "cosine", "ends at a lower F than stages"),
    ROW(NULL, NULL, "networks", "stages", "0.5,0.75", "as in the experiments"),
    OURS(ROW, NULL, "networks", "eta", "0.5", "no momentum: five times that of SGD with 0.9"),
    OURS(ROW, NULL, "tables", "precondition", "rms", scale_free),
    OURS(ROW, scaled_eta_of, "tables", "eta", SCALED_ETA("0.04 r", "2"), short_runs),
    ROW(scent_eta_of, "scent", "tables", "eta", SCALED_ETA("0.02 r", "1"), short_runs),
    OURS(ROW, NULL, "tables", "eta_schedule", "auto", "ends at a lower F than stages"),
    ROW(NULL, "scent", NULL, "eta_schedule", "auto", "ends at a lower F than stages"),
    ROW(scaled_eta_of, "adamw", "tables", "eta", SCALED_ETA("0.04 r", "2"), short_runs),
    ROW(NULL, NULL, "tables", "reg", "l2",
        "the loss of separable classes has no minimum; output biases are spared"),
    ROW(strength_of, NULL, "tables", "reg_strength", "1 / examples, 2 / examples for two classes",
        "a prior worth one example"),
    ROW(NULL, NULL, "hidden", "reg", "l2", "networks overfit small tables"),
    ROW(prior_of, NULL, "hidden", "reg_strength", "10 / examples", "a prior worth ten examples"),
    ROW(lambda_of, NULL, "tables", "lambda",
        "50 log(classes); real-valued targets: 25, or more where their tail is heavy",
        "mild: probabilities stay calibrated; a smaller lambda is more robust"),
    ROW(NULL, NULL, "images", "lambda", "20",
        "mild: images with very high losses are often mislabelled"),
    ROW(NULL, NULL, "images", "weight_decay", "5e-4", "usual for networks on images"),
    OURS(ROW, NULL, "images", "momentum", "0.9", "usual for networks on images"),
    OURS(ROW, image_eta_of, "images", "eta", "sqrt(batch / 128), at most 1",
         "SGD's 0.1, of a direction that is averaged; smaller batches are noisier"),
    ROW(NULL, "scent", "images", "precondition", "none", "batch norm scales the layers"),
    ROW(NULL, "scent", "images", "momentum", "0.9", "usual for networks on images"),
    ROW(NULL, "scent", "images", "eta", "1",
        "corresponds to 0.1 of SGD: the direction is an average"),
    OURS(ROW, NULL, "images", "a_rule", "fixed", "see a below"),
    OURS(ROW, NULL, "images", "a", "0.9", "a longer memory ended at a higher F on CIFAR-10"),
    OURS(ROW, NULL, "images", "guard", "0.5",
         "needed for a small lambda at eta 1; no effect on a large one"),
    OURS(LATE, lambda_warmup_of, "images", "lambda_warmup", "0.75 where lambda is below 20",
         "a small lambda from the start would train on the highest losses only"),
    OURS(LATE, group_momentum_of, "tables", "momentum",
         "0.9 over classes or groups, not for streams",
         "batches without a rare group take steps of about the same direction"),
    OURS(LATE, class_eta_of, "images", "eta", "eta max(batch, 32) / (32 r)", rare),
    LATE(class_eta_of, "absgd", "images", "eta", "eta max(batch, 32) / (32 r)", rare),
    LATE(eta_of, NULL, "tables", "eta",
         "eta / max(s, |x|^2 / 500), or its root; streams: eta / |x|",
         "s: mean square of the features, if above 4; |x|^2: of a row; root: with precondition; a "
         "scaled step of a stream has its own rule"),
};

enum { COUNT = sizeof rows / sizeof rows[0] };

dro_status dro_train_default(int index, dro_default *setting)
{
    if (index < 0 || index >= COUNT || !setting)
        return index < 0 || index >= COUNT ? DRO_ERR_END : DRO_ERR_ARGUMENT;
    *setting = rows[index].about;
    return DRO_OK;
}

static bool is_for(const dro_default *d, const dro_train *t, const char *optimizer)
{
    bool images = t->task.images;
    bool data = !d->data                           ? true
                : strcmp(d->data, "networks") == 0 ? t->task.net != NULL
                : strcmp(d->data, "hidden") == 0   ? has_hidden(t)
                : strcmp(d->data, "images") == 0   ? images
                                                   : !images;
    return data && (!d->optimizer || strcmp(d->optimizer, optimizer) == 0);
}

static dro_status apply(dro_train *t, const row *r)
{
    if (!r->rule)
        return dro_optimizer_set(t->opt, r->about.name, r->about.value);
    double value = r->rule(t);
    return isnan(value) ? DRO_OK : dro_optimizer_set_real(t->opt, r->about.name, value);
}

/* Sets the run's defaults for its optimiser; then, late, those that depend on what the user
 * gave. */
static dro_status apply_defaults(dro_train *t, bool late)
{
    const char *optimizer = t->set.optimizer;
    for (const row *r = rows; r < rows + COUNT; r++)
        if (r->late == late && is_for(&r->about, t, optimizer) &&
            dro__optimizer_has(optimizer, r->about.name) &&
            !(r->late && is_given(t, r->about.name)))
            DRO_TRY(apply(t, r));
    return DRO_OK;
}

double dro__default_of(const dro_train *t, const char *optimizer, const char *name)
{
    double value = NAN;
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            dro__number_double(p.fallback, &value);
    for (const row *r = rows; r < rows + COUNT; r++)
        if (!r->late && strcmp(r->about.name, name) == 0 && is_for(&r->about, t, optimizer)) {
            double ruled = r->rule ? r->rule(t) : NAN;
            if (!r->rule)
                dro__number_double(r->about.value, &value);
            value = isnan(ruled) ? value : ruled;
        }
    return value;
}

void dro__note_divisor(const dro_train *t)
{
    double divisor = step_divisor(t);
    const char *scale = t->task.data ? dro__option(t->task.data, "scale") : NULL;
    bool scaled = !scale || strcmp(scale, "none") != 0;
    if (divisor <= 1 || scaled || t->task.square <= 4 || /* many features need no note */
        !dro__optimizer_has(t->set.optimizer, "eta"))
        return;
    if (is_given(t, "eta"))
        dro__note(t,
                  "the features are large (root mean square %.3g): leave scale=none out, and they "
                  "are scaled",
                  sqrt(t->task.square));
    else
        dro__note(t,
                  "the features are large (root mean square %.3g): the step is divided by %.3g; "
                  "without scale=none they are scaled, which trains faster",
                  sqrt(t->task.square), divisor);
}

/* ---- the optimiser of a run ---- */

/* So that dro_train_get() returns the run's defaults, too. */
static bool names_optimizer(const dro_train *t)
{
    for (size_t k = 0; k < t->settings->count; k++)
        if (strcmp(t->settings->items[k].name, "optimizer") == 0)
            return true;
    return false;
}

/* Settings that only apply to methods that take many steps. */
static bool is_stepwise(const char *name)
{
    static const char *const names[] = {"epochs",   "steps", "batch",      "eval_every",   "best",
                                        "patience", "init",  "train_only", "on_divergence"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(names[k], name) == 0)
            return true;
    return false;
}

/* The linear model on rows, with a convex loss. */
static bool is_convex(const dro_train *t)
{
    static const char *const losses[] = {"cross-entropy", "logit-adjusted", "logistic", "squared"};
    char loss[64], classifier[64];
    bool linear = !t->task.images && strcmp(t->task.model, "linear") == 0;
    if (!linear || dro_train_get(t, "loss", loss, sizeof loss) != DRO_OK)
        return linear;
    if (dro_train_get(t, "classifier", classifier, sizeof classifier) == DRO_OK &&
        strcmp(classifier, "linear") != 0)
        return false;
    for (size_t k = 0; k < sizeof losses / sizeof losses[0]; k++)
        if (strcmp(losses[k], loss) == 0)
            return true;
    return false;
}

void dro__choose_optimizer(dro_train *t)
{
    const dro_settings *s = t->settings;
    bool exact = is_convex(t);
    if (names_optimizer(t))
        return;
    for (size_t k = 0; k < s->count; k++) {
        const char *name = s->items[k].name;
        bool own = dro__param_find(dro__train_tables, name) != NULL;
        bool other = !own && !dro__net_has(name) && !dro__optimizer_has("lbfgs", name);
        exact = exact && !other && !(own && is_stepwise(name));
    }
    snprintf(t->set.optimizer, sizeof t->set.optimizer, exact ? "lbfgs" : "recover");
}

bool dro__reported_objective(const dro_train *t, dro__objective *o)
{
    const dro__train_settings *s = &t->set;
    double lambda = s->report_lambda;
    if (*s->report_objective)
        return dro__objective_parse(t->ctx, s->report_objective, o) == DRO_OK;
    if (lambda == 0 && *s->report_like)
        lambda = dro__default_of(t, s->report_like, "lambda");
    *o = (dro__objective){.kind = DRO__OBJECTIVE_KL, .argument = lambda};
    return lambda > 0 && isfinite(lambda);
}

static dro_status set_recipe(void *user, const char *name, const char *value)
{
    dro_train *t = user;
    if (!dro__optimizer_has(t->set.optimizer, name))
        return DRO_OK;
    return dro_optimizer_set(t->opt, name, value);
}

/* An epoch is the same number of examples for every optimiser, including those that do not draw a
 * batch in each step. Returns whether this changed the number of steps, on which some defaults
 * depend. */
static bool set_length(dro_train *t)
{
    uint64_t each = t->task.epoch_steps, batch = t->task.batch, before = t->steps;
    if (t->set.steps || !each)
        return false;
    uint64_t epochs = t->steps / each;
    uint64_t examples = epochs * ((uint64_t)t->task.info.examples[DRO_TRAIN] / batch) * batch;
    each = dro__steps_for(t->opt, examples) / epochs;
    t->task.epoch_steps = each ? each : 1;
    t->steps = epochs * t->task.epoch_steps;
    return t->steps != before;
}

/* The run's defaults, the recipe's, and what the user gave, over the optimiser's own. */
static dro_status set_all(dro_train *t)
{
    const dro_settings *s = t->settings;
    DRO_TRY(dro__optimizer_reset(t->opt));
    DRO_TRY(apply_defaults(t, false));
    DRO_TRY(dro__recipe_apply(t, set_recipe, t));
    for (size_t k = 0; k < s->count; k++)
        if (!dro__param_find(dro__train_tables, s->items[k].name) &&
            !dro__net_has(s->items[k].name))
            DRO_TRY(dro_optimizer_set(t->opt, s->items[k].name, s->items[k].value));
    DRO_TRY(apply_defaults(t, true));
    return dro_optimizer_set_real(t->opt, "seed", (double)t->set.seed);
}

/* stage2: how long it is, and that it moves the output layer. */
static dro_status set_second(dro_train *t)
{
    const dro_net *net = t->task.net;
    const dro__optimizer_class *cls = t->opt->cls;
    struct dro__second second = {0};
    if (!t->task.images || !t->task.info.classes || cls->needs_n || cls->steps_for || cls->exact)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "stage2 is for classes of images and for optimisers of one batch per "
                         "step: use sgd, adamw, cover or recover, or leave it out");
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *one = &net->tensors[k];
        if (one->node != net->graph.heads[0] || one->place != DRO__IN_WEIGHTS)
            continue;
        if (second.count == 0)
            second.first = (size_t)one->offset;
        second.count += one->count;
    }
    if (second.count == 0)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "stage2 trains the output layer, and "
                         "train_only=%s leaves it out",
                         t->set.train_only);
    t->second_steps = second.steps = (uint64_t)t->set.stage2 * t->task.epoch_steps;
    t->task.balanced.from = (t->steps - t->second_steps) * t->task.batch;
    dro__optimizer_second(t->opt, &second);
    return DRO_OK;
}

dro_status dro__make_optimizer(dro_train *t)
{
    dro_optimizer_destroy(t->opt);
    t->opt = NULL;
    DRO_TRY(dro_optimizer_create(t->ctx, t->set.optimizer, &t->task.problem, &t->opt));
    if (t->task.net)
        dro__optimizer_statistics(t->opt, t->task.net->memory.statistics,
                                  t->task.net->graph.statistics_size);
    DRO_TRY(set_all(t));
    if (set_length(t))
        DRO_TRY(set_all(t));
    if (t->set.stage2)
        DRO_TRY(set_second(t));
    return dro_optimizer_set_real(t->opt, "steps", (double)(t->steps - t->second_steps));
}
