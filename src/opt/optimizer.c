/* The public functions of the optimisers: creating and destroying, settings, steps (which change
 * nothing when they fail), and the state as a flat buffer. */
#include "opt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const dro__optimizer_class *const classes[] = {
#define OPTIMIZER(name) &dro__optimizer_##name,
#include "optimizers.def"
#undef OPTIMIZER
};

enum { CLASS_COUNT = sizeof classes / sizeof classes[0] };

static const dro__optimizer_class *find_class(const char *name)
{
    for (int i = 0; i < CLASS_COUNT; i++)
        if (strcmp(classes[i]->name, name) == 0)
            return classes[i];
    return NULL;
}

const dro__param_row *const *dro__optimizer_tables(const char *name)
{
    const dro__optimizer_class *cls = find_class(name);
    return cls ? cls->tables : NULL;
}

size_t dro__optimizer_vectors(const char *name)
{
    const dro__optimizer_class *cls = find_class(name);
    return cls ? cls->vectors : 0;
}

bool dro__optimizer_exact(const char *name)
{
    const dro__optimizer_class *cls = find_class(name);
    return cls && cls->exact;
}

uint64_t dro__steps_for(const dro_optimizer *o, uint64_t examples)
{
    return o->cls->steps_for ? o->cls->steps_for(o, examples)
                             : examples / (uint64_t)dro__settings_of(o)->batch;
}

const char *dro_optimizer_name(int index)
{
    return index >= 0 && index < CLASS_COUNT ? classes[index]->name : NULL;
}

const char *dro_optimizer_summary(int index)
{
    return index >= 0 && index < CLASS_COUNT ? classes[index]->summary : NULL;
}

dro_status dro_optimizer_param(const char *optimizer, int index, dro_param *param)
{
    const dro__optimizer_class *cls = optimizer ? find_class(optimizer) : NULL;
    if (!cls)
        return DRO_ERR_NAME;
    const dro__param_row *row = index >= 0 ? dro__param_at(cls->tables, index) : NULL;
    if (!row || !param)
        return row ? DRO_ERR_ARGUMENT : DRO_ERR_END;
    *param = row->about;
    return DRO_OK;
}

/* ---- life ---- */

/* The names of the optimisers, for error texts. */
static void list_names(char *text, size_t size, bool composite_only)
{
    size_t used = 0;
    for (int i = 0; i < CLASS_COUNT && used < size; i++)
        if (!composite_only || classes[i]->composite)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "",
                                     classes[i]->name);
}

dro_status dro__optimizer_reset(dro_optimizer *o)
{
    DRO_TRY(dro__params_reset(o->ctx, o->cls->tables, o->settings));
    dro__settings_of(o)->a.start = 1; /* a warms up from 1, eta from 0 */
    return dro__objective_update(o);
}

static dro_status create(dro_context *ctx, const char *name, bool composite, size_t dim,
                         dro_optimizer **opt)
{
    char names[256];
    *opt = NULL;
    const dro__optimizer_class *cls = name ? find_class(name) : NULL;
    list_names(names, sizeof names, composite);
    if (!cls)
        return dro__fail(ctx, DRO_ERR_NAME, "no optimiser '%.60s': expected one of %s",
                         name ? name : "(null)", names);
    if (composite && !cls->composite)
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                         "%s cannot solve a general compositional problem: use one of %s", name,
                         names);
    if (dim == 0 || dim > SIZE_MAX / 64)
        return dro__fail(ctx, DRO_ERR_RANGE, "dim is %zu: expected the number of weights", dim);
    dro_optimizer *o = dro__alloc(1, sizeof *o);
    if (!o)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an optimiser");
    o->ctx = ctx;
    o->cls = cls;
    o->dim = dim;
    o->is_composite = composite;
    o->settings = dro__alloc(1, cls->settings_size);
    dro_status status = !o->settings ? dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an optimiser")
                                     : dro__optimizer_reset(o);
    if (status != DRO_OK) {
        dro_optimizer_destroy(o);
        return status;
    }
    *opt = o;
    return DRO_OK;
}

dro_status dro_optimizer_create(dro_context *ctx, const char *name, const dro_problem *problem,
                                dro_optimizer **opt)
{
    if (!ctx || !opt)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *opt = NULL;
    dro_problem p = {.size = sizeof p};
    DRO_TRY(problem ? dro__take_struct(ctx, "dro_problem", problem, &p, sizeof p) : DRO_OK);
    if (!p.forward || !p.backward || p.n < 0)
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "a problem needs forward and backward, and n >= 0 (0: a stream)");
    DRO_TRY(create(ctx, name, false, p.dim, opt));
    (*opt)->problem = p;
    (*opt)->be = dro__backend_for(ctx, p.memory == DRO_MEMORY_HOST);
    (*opt)->n = p.n;
    if (p.library)
        (*opt)->able = *p.library;
    return DRO_OK;
}

dro_status dro_optimizer_create_composite(dro_context *ctx, const char *name,
                                          const dro_composite *composite, dro_optimizer **opt)
{
    if (!ctx || !opt)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *opt = NULL;
    dro_composite c = {.size = sizeof c};
    DRO_TRY(composite ? dro__take_struct(ctx, "dro_composite", composite, &c, sizeof c) : DRO_OK);
    if (!c.evaluate || !c.outer || c.inner == 0 || c.n < 0)
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "a compositional problem needs evaluate, outer, inner >= 1 and n >= 0");
    if (c.inner > 1000000 || c.dim > SIZE_MAX / 64 / c.inner)
        return dro__fail(ctx, DRO_ERR_RANGE, "inner is %zu: too large", c.inner);
    DRO_TRY(create(ctx, name, true, c.dim, opt));
    (*opt)->composite = c;
    (*opt)->be = dro__backend_for(ctx, c.memory == DRO_MEMORY_HOST);
    (*opt)->n = c.n;
    return DRO_OK;
}

/* Everything that start() made. */
static void unstart(dro_optimizer *o)
{
    if (o->cls->stop)
        o->cls->stop(o);
    dro__lent_close(o);
    dro__rows_free(o);
    dro__free(o->extra); /* after its rows */
    o->extra = NULL;
    for (int k = 0; k < DRO__SLOTS; k++) {
        dro__free(o->slot_ids[k]);
        dro__free(o->slot_classes[k]);
        dro__free(o->slot_groups[k]);
        o->slot_ids[k] = NULL;
        o->slot_classes[k] = o->slot_groups[k] = NULL;
    }
    dro__free(o->blocks);
    o->blocks = NULL;
    o->block_count = 0;
    o->async = NULL;
    o->k = (dro__step){0};
}

void dro_optimizer_destroy(dro_optimizer *o)
{
    if (!o)
        return;
    dro__async_wait(o); /* steps under way write to its vectors */
    unstart(o);
    dro__free(o->settings);
    dro__free(o);
}

/* ---- settings ---- */

dro_status dro_optimizer_set(dro_optimizer *o, const char *name, const char *value)
{
    if (!o || !name || !value)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "%s: %s cannot be set after the start",
                         o->cls->name, name);
    DRO_TRY(dro__params_set(o->ctx, o->cls->tables, o->settings, o->cls->name, name, value));
    return strcmp(name, "objective") == 0 ? dro__objective_update(o) : DRO_OK;
}

dro_status dro_optimizer_set_real(dro_optimizer *o, const char *name, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    char *comma = strchr(text, ','); /* where the locale writes one */
    if (comma)
        *comma = '.';
    return dro_optimizer_set(o, name, text);
}

dro_status dro_optimizer_get(const dro_optimizer *o, const char *name, char *text, size_t size)
{
    if (!o || !name || !text || size == 0)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    const dro__param_row *row = dro__param_find(o->cls->tables, name);
    if (!row)
        return dro__fail(o->ctx, DRO_ERR_NAME, "%s has no parameter '%.60s'", o->cls->name, name);
    dro__params_print(row, o->settings, text, size);
    return DRO_OK;
}

/* Settings that contradict each other or the problem. */
static dro_status check(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    const char *name = o->cls->name;
    if (o->cls->needs_n && o->n == 0)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s keeps a weight for every example and must know n; a stream has none: "
                         "use recover, cover, ascpg or absgd",
                         name);
    if (o->cls->robust && !o->cls->groups && (set->tilt != DRO__TILT_EXAMPLE || set->switch_tilt))
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s is robust over examples only: leave tilt=example, or use recover",
                         name);
    if (set->output && !set->steps)
        return dro__fail(o->ctx, DRO_ERR_RANGE,
                         "%s: output=random needs a planned number of steps: set steps", name);
    bool cosine = set->eta.kind == DRO__SCHEDULE_COSINE ||
                  set->lambda.kind == DRO__SCHEDULE_COSINE || set->a.kind == DRO__SCHEDULE_COSINE;
    bool share = (set->eta.warmup > 0 && set->eta.warmup < 1) ||
                 (set->lambda.warmup > 0 && set->lambda.warmup < 1) ||
                 (set->a.warmup > 0 && set->a.warmup < 1);
    if ((cosine || share) && !set->steps)
        return dro__fail(o->ctx, DRO_ERR_RANGE,
                         "%s: a cosine schedule and a warm-up below 1 need to know steps", name);
    for (int k = 1; k < set->stages.count; k++)
        if (set->stages.values[k] <= set->stages.values[k - 1])
            return dro__fail(o->ctx, DRO_ERR_RANGE, "%s: stages must increase: %g after %g", name,
                             set->stages.values[k], set->stages.values[k - 1]);
    if (set->sam > 0 && (o->is_composite || set->form == DRO__FORM_TWO_POINT))
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED, "%s: sam is not for %s", name,
                         o->is_composite ? "compositional problems" : "form=two-point");
    bool groups =
        set->tilt == DRO__TILT_GROUP || set->switch_tilt == DRO__SWITCH_FIRST + DRO__TILT_GROUP;
    if (set->sam > 0 && set->sam_over && groups)
        return dro__fail(o->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: sam_over=class needs the classes and tilt=group the groups of a "
                         "batch: leave one of them out",
                         name);
    DRO_TRY(dro__check_parts(o, 1));
    DRO_TRY(dro__objective_update(o));
    return o->cls->check ? o->cls->check(o) : DRO_OK;
}

/* ---- steps ---- */

/* The lower limit of the automatic a. The noise of batches cancels over a shuffled epoch; an
 * estimate with a longer memory would undo that. */
static double least_a(const dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    bool epochs = o->n > 0 && set->order == DRO__ORDER_SHUFFLE;
    return fmax(set->a_min, epochs ? fmin(1.0, (double)set->batch / (double)o->n) : 0);
}

/* What all optimisers put into the plan; start() adds its own. */
static void make_plan(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    o->k = (dro__step){.ticket = &o->ticket, .s = &o->s, .n = o->dim};
    o->k.plan = (dro__plan){.dim = o->dim,
                            .batch = (size_t)set->batch,
                            .reg = set->reg,
                            .reg_strength = set->reg_strength,
                            .reg_ratio = set->reg_ratio,
                            .reg_low = set->reg_low,
                            .reg_high = set->reg_high,
                            .prox_stretch = 1,
                            .free_first = o->problem.reg_free_first,
                            .free_count = o->problem.reg_free_count,
                            .second_first = o->second.first,
                            .second_count = o->second.count,
                            .statistics = o->statistics_count,
                            .weight_decay = set->weight_decay,
                            .group_prior = set->group_prior,
                            .a_rule = set->a_rule,
                            .a_c = set->a_c,
                            .a_min = set->a_min,
                            .a_least = least_a(o),
                            .guard = set->guard,
                            .cap = set->cap,
                            .sam = set->sam,
                            .sam_classes = set->sam > 0 && set->sam_over,
                            .objective = o->objective.kind,
                            .argument = o->objective.argument,
                            .gamma = set->gamma,
                            .heaviest = set->heaviest};
    o->stretch = 1;
}

dro_status dro_optimizer_start(dro_optimizer *o, const float *w0)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "the optimiser has been started already");
    DRO_TRY(check(o));
    for (size_t i = 0; w0 && i < o->dim; i++)
        if (!isfinite(w0[i]))
            return dro__fail(o->ctx, DRO_ERR_NUMBER, "w0[%zu] is %g", i, (double)w0[i]);
    make_plan(o);
    dro__clock_start(o); /* `start` asks what the first step is like */
    o->run.eta_scale = 1;
    dro_status status = dro__reg_create(o);
    if (status == DRO_OK)
        status = dro__vector(o, o->dim, true, &o->k.v[DRO__W]);
    if (status == DRO_OK)
        status = dro__weights_create(o);
    if (status == DRO_OK)
        status = o->cls->start(o);
    if (status == DRO_OK && o->k.plan.sam > 0)
        status = dro__vector(o, o->dim, false, &o->k.v[DRO__Z]);
    if (status == DRO_OK && dro__settings_of(o)->ema > 0)
        status = dro__vector(o, o->dim + o->statistics_count, true, &o->k.v[DRO__AVERAGE]);
    if (status == DRO_OK && w0)
        status = dro__vector_in(o, o->k.v[DRO__W], w0, o->dim * sizeof *w0);
    if (status != DRO_OK) { /* as if it had not been called */
        unstart(o);
        return status;
    }
    o->ticket = (dro__ticket){0}; /* the average begins as the weights */
    dro__average(o);
    dro__async_open(o);
    o->started = true;
    return DRO_OK;
}

dro_status dro_optimizer_step(dro_optimizer *o)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (!o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_optimizer_start first");
    if (o->stepping)
        return dro__fail(o->ctx, DRO_ERR_STATE,
                         "a step is in progress: a callback cannot take another");
    if (o->lent.open || o->lent.phases)
        return dro__fail(o->ctx, DRO_ERR_STATE, "the caller takes the steps (dro/step.h)");
    if (o->run.step >= o->ends)
        return dro__fail(o->ctx, DRO_ERR_END, "all %llu planned steps are done",
                         (unsigned long long)o->ends);
    DRO_TRY(dro__async_begin(o));
    o->run_before = o->run;
    o->s_before = o->s;
    dro__rows_keep(o);
    o->refused = o->sweeping = false;
    dro__begin_step(o);
    o->stepping = true;
    dro_status status = o->cls->step(o);
    o->stepping = false;
    o->failed = status != DRO_OK;
    if (o->failed) {
        o->run = o->run_before;
        o->s = o->s_before;
        dro__rows_undo(o);
        if (status != DRO_ERR_MEMORY || !o->async)
            return status;
        DRO_TRY(dro__async_leave(o)); /* from the host a batch can be evaluated in pieces */
        return dro_optimizer_step(o);
    }
    if (!o->is_composite && o->problem.accept)
        o->problem.accept(o->problem.user);
    if (!o->async)
        dro__average(o);
    o->run.step++;
    o->holes = 0;
    o->fine = 0;
    return DRO_OK;
}

static bool is_positive(double x) /* or 0 */
{
    return x >= 0 && isfinite(x);
}

/* The state may be read and changed between steps only. */
static dro_status check_between(const dro_optimizer *o)
{
    dro__forget(o->ctx);
    if (!o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_optimizer_start first");
    return o->stepping || o->lent.open
               ? dro__fail(o->ctx, DRO_ERR_STATE, "a step is in progress: call this between steps")
               : DRO_OK;
}

dro_status dro_optimizer_scale_eta(dro_optimizer *o, double factor)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    DRO_TRY(check_between(o));
    if (!is_positive(factor))
        return dro__fail(o->ctx, DRO_ERR_RANGE, "the factor of eta is %g: expected 0 or more",
                         factor);
    DRO_TRY(dro__async_pull(o));
    o->run.eta_scale = factor;
    return DRO_OK;
}

dro_status dro_optimizer_skip(dro_optimizer *o)
{
    if (!o)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (!o->refused)
        return dro__fail(o->ctx, DRO_ERR_STATE, "no batch has been refused");
    o->refused = false;
    if (o->sweeping && o->refused_position != DRO__GATHERED)
        return dro__big_skip(o);
    if (o->refused_position != DRO__GATHERED && o->refused_position >= o->run.position)
        o->run.position = o->refused_position + o->refused_count;
    else if (o->cls->drop)
        o->cls->drop(o);
    return DRO_OK;
}

/* The result of a run: the moving average (ema), or the weights themselves. */
static float *result_of(const dro_optimizer *o)
{
    return o->k.v[DRO__AVERAGE] ? o->k.v[DRO__AVERAGE] : o->k.v[DRO__W];
}

dro_status dro_optimizer_weights(const dro_optimizer *o, float *w)
{
    if (!o || !w)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (!o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_optimizer_start first");
    DRO_TRY(dro__async_wait(o));
    DRO_TRY(dro__lent_pull((dro_optimizer *)o, true));
    return dro__vector_out(o, w, result_of(o), o->dim * sizeof *w);
}

const float *dro_optimizer_w(const dro_optimizer *o)
{
    return o && dro__async_wait(o) == DRO_OK ? result_of(o) : NULL;
}

void dro__optimizer_statistics(dro_optimizer *o, float *numbers, size_t count)
{
    o->statistics = numbers;
    o->statistics_count = count;
}

void dro__optimizer_second(dro_optimizer *o, const struct dro__second *second)
{
    o->second = *second;
}

bool dro__optimizer_averages(const dro_optimizer *o)
{
    return o->k.v[DRO__AVERAGE] != NULL;
}

dro_status dro__optimizer_statistics_get(const dro_optimizer *o, float *average)
{
    DRO_TRY(dro__async_wait(o));
    return dro__vector_out(o, average, o->k.v[DRO__AVERAGE] + o->dim,
                           o->statistics_count * sizeof *average);
}

dro_status dro__optimizer_statistics_set(dro_optimizer *o, const float *average)
{
    DRO_TRY(dro__async_wait(o));
    return dro__vector_in(o, o->k.v[DRO__AVERAGE] + o->dim, average,
                          o->statistics_count * sizeof *average);
}

double dro_optimizer_regulariser(const dro_optimizer *o, const float *w)
{
    return !o || !w ? 0 : dro__async_wait(o) == DRO_OK ? dro__reg_value(o, w) : NAN;
}

double dro__estimate(const dro_optimizer *o)
{
    const dro__scalars *s = &o->s;
    bool tilted = o->cls->robust && !o->cls->needs_n && !o->is_composite && s->level;
    if (!tilted)
        return s->loss;
    return o->objective.kind > DRO__OBJECTIVE_KL ? s->value : s->lambda * s->log_u;
}

dro__reached dro__reached_of(const dro_optimizer *o)
{
    const dro__scalars *s = &o->s;
    dro__objective_kind kind = o->objective.kind;
    dro__reached r = {NAN, NAN, NAN};
    bool dual = kind > DRO__OBJECTIVE_KL, linear = dual && kind != DRO__OBJECTIVE_KL_RADIUS;
    if (!o->cls->robust || !s->level)
        return r;
    if (kind != DRO__OBJECTIVE_CVAR)
        r.lambda = dual ? s->multiplier : s->lambda;
    if (linear)
        r.threshold = s->threshold;
    double n = o->n < 1 ? HUGE_VAL : (double)o->n, most = kind == DRO__OBJECTIVE_CHI2 ? n : log(n);
    if (dual) /* an average over batches can leave what is possible */
        r.radius = fmin(fmax(s->radius, 0), most);
    return r;
}

double dro__effective_of(const dro_optimizer *o)
{
    const dro__scalars *s = &o->s;
    const dro__objective *of = &o->objective;
    double least = 0;
    if (of->kind == DRO__OBJECTIVE_CVAR)
        least = of->argument;
    if (of->kind == DRO__OBJECTIVE_CHI2)
        least = 1 / (1 + 2 * of->argument);
    bool known = o->cls->robust && s->level == DRO__TILT_EXAMPLE && o->run.step;
    return known ? fmin(fmax(s->effective, least), 1) : s->effective;
}

dro_status dro_optimizer_info(const dro_optimizer *o, dro_info *info)
{
    if (!o || !info)
        return DRO_ERR_ARGUMENT;
    dro__forget(o->ctx);
    if (!o->started)
        return dro__fail(o->ctx, DRO_ERR_STATE, "call dro_optimizer_start first");
    DRO_TRY(dro__async_pull((dro_optimizer *)o));
    DRO_TRY(dro__lent_pull((dro_optimizer *)o, dro__settings_of(o)->reg));
    const dro__run *r = &o->run;
    const dro__scalars *s = &o->s;
    dro__reached reached = dro__reached_of(o);
    double reg = dro__settings_of(o)->reg ? dro__reg_value(o, o->k.v[DRO__W]) : 0;
    *info = (dro_info){
        .step = r->step,
        .examples = r->examples,
        .evaluations = r->evaluations,
        .eta = s->eta,
        .lambda = reached.lambda,
        .a = s->a,
        .loss = s->loss,
        .log_u = s->log_u,
        .objective = o->cls->exact ? r->value : dro__estimate(o) + reg,
        .regulariser = reg,
        .largest_weight = s->largest_weight,
        .effective = dro__effective_of(o),
        .caps = s->caps,
        .floors = s->floors,
        .fresh_starts = s->fresh_starts,
        .gradient_norm = o->cls->exact ? r->gradient : NAN,
        .gap = o->cls->exact ? r->gap : NAN,
        .threshold = reached.threshold,
        .radius = reached.radius,
    };
    return DRO_OK;
}

size_t dro_optimizer_group_weights(const dro_optimizer *o, double *q, size_t count)
{
    if (!o || !o->started || !o->cls->groups || o->is_composite)
        return 0;
    if (dro__async_pull((dro_optimizer *)o) != DRO_OK)
        return 0;
    if (o->cls->weights)
        return o->cls->weights(o, q, count);
    return dro__tilt_weights(o, q, count);
}

/* ---- state ---- */

typedef struct header {
    char magic[8];
    uint64_t version, dim, settings; /* settings: a checksum of their values */
    uint64_t inner, slot_size;       /* inner: 0 unless compositional */
    int64_t n;
    char optimizer[16];
} header;

static uint64_t settings_checksum(const dro_optimizer *o)
{
    const dro__param_row *row;
    uint64_t sum = 0;
    for (int i = 0; (row = dro__param_at(o->cls->tables, i)); i++) {
        char text[512];
        dro__params_print(row, o->settings, text, sizeof text);
        sum = dro__checksum(sum, row->about.name, strlen(row->about.name));
        sum = dro__checksum(sum, text, strlen(text));
    }
    return sum;
}

static header make_header(const dro_optimizer *o)
{
    header h = {.magic = "drostat",
                .version = 7, /* 6: groups had no gain of their own */
                .dim = o->dim,
                .n = o->n,
                .settings = settings_checksum(o),
                .inner = o->is_composite ? o->composite.inner : 0,
                .slot_size = o->slot_size};
    snprintf(h.optimizer, sizeof h.optimizer, "%s", o->cls->name);
    return h;
}

static bool is_flag(uint64_t x)
{
    return x <= 1;
}

/* Whether a loaded state is one that a run can have: a file with a correct checksum may still be
 * forged. */
static bool valid(const dro_optimizer *o, const dro__run *r, const dro__scalars *s)
{
    double positive[] = {s->spread,       s->change, s->noise,  s->eta_before,     s->lambda_before,
                         s->pace,         s->square, s->eta,    s->lambda,         s->a,
                         s->log_u_lambda, s->gain,   s->keep,   s->largest_weight, s->effective,
                         s->multiplier,   s->slope,  s->excess, s->least,          s->eta_most,
                         s->ascent};
    double shares[] = {s->keep, s->a, s->power1, s->power2, s->beta, s->shortened};
    double any[] = {s->log_u,  s->mean_old,   s->fall,       s->loss,   s->threshold, s->off[0],
                    s->off[1], s->off_old[0], s->off_old[1], s->radius, s->value};
    bool good = is_flag(r->waits) && is_flag(r->keep_p) && r->waiting_count <= o->slot_size;
    good = good && (!r->waits || (r->waiting_count > 0 && s->have));
    good = good && is_positive(r->eta_scale) && is_flag((uint64_t)s->have) &&
           is_flag((uint64_t)s->fresh) && is_flag((uint64_t)s->observed) && s->refused == 0 &&
           s->refused_part == 0;
    good = good && s->level >= DRO__TILT_NONE && s->level <= DRO__TILT_GROUP;
    good = good && s->group_count >= 0 && s->group_count <= o->k.plan.group_capacity;
    good = good && (!s->duals || (s->multiplier > 0 && s->least > 0 && s->excess >= s->least));
    for (size_t k = 0; k < sizeof positive / sizeof positive[0]; k++)
        good = good && is_positive(positive[k]);
    for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++)
        good = good && shares[k] >= 0 && shares[k] <= 1;
    for (size_t k = 0; k < sizeof any / sizeof any[0]; k++)
        good = good && isfinite(any[k]);
    return good;
}

static void walk(dro_optimizer *o, dro__archive *ar)
{
    dro__run run = o->run;
    dro__scalars s = o->s;
    DRO__ARCHIVE(ar, run);
    DRO__ARCHIVE(ar, s);
    ar->failed = ar->failed || (ar->mode == DRO__ARCHIVE_LOAD && !valid(o, &run, &s));
    if (!ar->failed) {
        o->run = run;
        o->s = s;
    }
    dro__rows_archive(o, ar);
    if (o->cls->archive)
        o->cls->archive(o, ar);
}

void dro__optimizer_put(dro_optimizer *o, dro__archive *ar)
{
    if (ar->mode == DRO__ARCHIVE_SAVE && !ar->failed) {
        ar->status = dro__async_pull(o);
        if (ar->status == DRO_OK)
            ar->status = dro__lent_pull(o, true);
        ar->failed = ar->status != DRO_OK;
    }
    header h = make_header(o);
    DRO__ARCHIVE(ar, h);
    walk(o, ar);
}

size_t dro__optimizer_put_size(dro_optimizer *o)
{
    dro__archive ar = {.mode = DRO__ARCHIVE_MEASURE};
    dro__optimizer_put(o, &ar);
    return ar.used;
}

size_t dro_optimizer_state_size(const dro_optimizer *o)
{
    if (!o || !o->started)
        return 0;
    return dro__optimizer_put_size((dro_optimizer *)o) + sizeof(uint64_t); /* changes nothing */
}

dro_status dro_optimizer_save(const dro_optimizer *o, void *buffer, size_t size)
{
    if (!o || !buffer)
        return DRO_ERR_ARGUMENT;
    DRO_TRY(check_between(o));
    uint64_t sum;
    size_t needed = dro_optimizer_state_size(o);
    if (size < needed)
        return dro__fail(o->ctx, DRO_ERR_RANGE, "the buffer has %zu bytes, the state needs %zu",
                         size, needed);
    dro__archive ar = {.mode = DRO__ARCHIVE_SAVE, .bytes = buffer, .size = needed - sizeof sum};
    dro__optimizer_put((dro_optimizer *)o, &ar);
    DRO_TRY(ar.status);
    sum = dro__checksum(0, buffer, needed - sizeof sum);
    memcpy((unsigned char *)buffer + needed - sizeof sum, &sum, sizeof sum);
    return DRO_OK;
}

/* Whether a state is one of this optimiser's, with these settings. */
static dro_status check_header(const dro_optimizer *o, const void *buffer, size_t size)
{
    header mine = make_header(o), h;
    if (size < sizeof h)
        return dro__fail(o->ctx, DRO_ERR_FORMAT, "a saved state has at least %zu bytes, not %zu",
                         sizeof h, size);
    memcpy(&h, buffer, sizeof h);
    if (memcmp(h.magic, mine.magic, sizeof h.magic) != 0)
        return dro__fail(o->ctx, DRO_ERR_FORMAT, "this is not a saved state of an optimiser");
    if (h.version != mine.version)
        return dro__fail(o->ctx, DRO_ERR_FORMAT,
                         "the state was saved by another version of libdro (layout %llu, this is "
                         "%llu): finish the run with that version, or start again",
                         (unsigned long long)h.version, (unsigned long long)mine.version);
    h.optimizer[sizeof h.optimizer - 1] = '\0';
    if (strcmp(h.optimizer, mine.optimizer) != 0)
        return dro__fail(o->ctx, DRO_ERR_FORMAT, "the state was saved by %s, this is %s",
                         h.optimizer, mine.optimizer);
    if (h.dim != mine.dim || h.n != mine.n)
        return dro__fail(o->ctx, DRO_ERR_FORMAT,
                         "the state has %llu weights and n = %lld, this problem %zu and %lld",
                         (unsigned long long)h.dim, (long long)h.n, o->dim, (long long)o->n);
    if (h.inner != mine.inner || h.slot_size != mine.slot_size)
        return dro__fail(o->ctx, DRO_ERR_FORMAT,
                         "the state belongs to a problem with another max_batch or g");
    if (h.settings != mine.settings)
        return dro__fail(o->ctx, DRO_ERR_FORMAT, "the state was saved with other settings");
    return DRO_OK;
}

static dro_status check_size(const dro_optimizer *o, size_t size, size_t needed)
{
    if (size == needed)
        return DRO_OK;
    return dro__fail(o->ctx, DRO_ERR_FORMAT, "the state has %zu bytes instead of %zu", size,
                     needed);
}

dro_status dro__optimizer_take(dro_optimizer *o, const void *bytes, size_t size)
{
    DRO_TRY(dro__async_pull(o));
    o->late = DRO_OK;
    DRO_TRY(check_header(o, bytes, size));
    DRO_TRY(check_size(o, size, dro__optimizer_put_size(o)));
    dro__archive ar = {.mode = DRO__ARCHIVE_LOAD,
                       .bytes = (unsigned char *)bytes + sizeof(header),
                       .size = size - sizeof(header)};
    walk(o, &ar);
    DRO_TRY(ar.status);
    if (ar.failed) /* the checksum is correct, so the file was edited */
        return dro__fail(o->ctx, DRO_ERR_FORMAT,
                         "the state is inconsistent: destroy the optimiser");
    o->failed = o->refused = o->live = false;
    o->holes = 0;
    o->fine = 0;
    return dro__lent_push(o);
}

dro_status dro_optimizer_load(dro_optimizer *o, const void *buffer, size_t size)
{
    uint64_t sum;
    if (!o || !buffer)
        return DRO_ERR_ARGUMENT;
    DRO_TRY(check_between(o));
    DRO_TRY(check_header(o, buffer, size));
    DRO_TRY(check_size(o, size, dro_optimizer_state_size(o)));
    memcpy(&sum, (const char *)buffer + size - sizeof sum, sizeof sum);
    if (sum != dro__checksum(0, buffer, size - sizeof sum))
        return dro__fail(o->ctx, DRO_ERR_FORMAT, "the state is damaged: its checksum is wrong");
    return dro__optimizer_take(o, buffer, size - sizeof sum);
}
