/* The worst-case distribution of an objective over the examples of a split
 * (dro_predictor_explain). */
#include "image_files.h"
#include "objective.h"
#include "predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The same arrays, writable. */
typedef struct arrays {
    double *losses, *weights;
    int32_t *labels, *predictions;
    float *outputs;
    int64_t *order;
    double *class_shares, *class_weights, *group_shares, *group_weights;
    const float *given; /* the example weights, or NULL: all 1 */
} arrays;

void dro__explanation_free(dro_predictor *p)
{
    dro_explanation *e = &p->explanation;
    const void *all[] = {e->losses,       e->weights,      e->labels,       e->predictions,
                         e->outputs,      e->order,        e->class_shares, e->class_weights,
                         e->group_shares, e->group_weights};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        dro__free((void *)all[k]);
    *e = (dro_explanation){0};
}

/* All arrays belong to the explanation at once, so that a failure frees them with it. */
static dro_status make_arrays(dro_predictor *p, dro_split split, arrays *a)
{
    dro_explanation *e = &p->explanation;
    const dro_examples *from = &p->task.feed[split].examples;
    size_t n = (size_t)from->count, classes = (size_t)p->about.classes;
    size_t groups = from->groups ? (size_t)p->task.info.groups : 0;
    *a = (arrays){.given = from->weights,
                  .losses = dro__alloc(n, sizeof(double)),
                  .weights = dro__alloc(n, sizeof(double)),
                  .labels = dro__alloc(n, sizeof(int32_t)),
                  .predictions = dro__alloc(n, sizeof(int32_t)),
                  .outputs = dro__alloc(n, sizeof(float)),
                  .order = dro__alloc(n, sizeof(int64_t)),
                  .class_shares = dro__alloc(classes, sizeof(double)),
                  .class_weights = dro__alloc(classes, sizeof(double)),
                  .group_shares = dro__alloc(groups, sizeof(double)),
                  .group_weights = dro__alloc(groups, sizeof(double))};
    *e = (dro_explanation){.examples = from->count,
                           .losses = a->losses,
                           .weights = a->weights,
                           .labels = a->labels,
                           .predictions = a->predictions,
                           .outputs = a->outputs,
                           .groups = from->groups,
                           .order = a->order,
                           .classes = p->about.classes,
                           .group_count = (int32_t)groups,
                           .class_shares = a->class_shares,
                           .class_weights = a->class_weights,
                           .group_shares = a->group_shares,
                           .group_weights = a->group_weights};
    bool fine = a->losses && a->weights && a->labels && a->predictions && a->outputs && a->order &&
                a->class_shares && a->class_weights && a->group_shares && a->group_weights;
    return fine ? DRO_OK
                : dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for the weights of %zu examples", n);
}

static dro_status evaluate(dro_predictor *p, dro_split split, const arrays *a)
{
    dro__task *t = &p->task;
    int64_t n = p->explanation.examples;
    size_t step = t->feed[split].batch, outputs = t->outputs;
    float *logits = dro__alloc(step * outputs, sizeof *logits);
    float *losses = dro__alloc(step, sizeof *losses);
    dro_status status =
        logits && losses ? DRO_OK : dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory to evaluate");
    for (int64_t first = 0; first < n && status == DRO_OK; first += (int64_t)step) {
        size_t count = n - first < (int64_t)step ? (size_t)(n - first) : step;
        status = dro__task_evaluate(t, (dro__range){split, first, count}, p->w, logits, losses);
        for (size_t i = 0; status == DRO_OK && i < count; i++) {
            const float *row = logits + i * outputs;
            int32_t best = 0;
            for (size_t k = 1; k < outputs; k++)
                best = row[k] > row[best] ? (int32_t)k : best;
            a->losses[first + (int64_t)i] = t->unread[i] ? NAN : (double)losses[i];
            a->labels[first + (int64_t)i] = t->labels ? t->labels[i] : -1;
            a->predictions[first + (int64_t)i] = best;
            a->outputs[first + (int64_t)i] =
                t->info.classes
                    ? row[0]
                    : (float)(t->info.target_centre + t->info.target_scale * (double)row[0]);
        }
    }
    dro__free(logits);
    dro__free(losses);
    return status;
}

/* ---- the weights ---- */

/* Examples that could be read: only those have a loss. */
typedef struct readable {
    size_t count;
    double *losses, *weights;
    double *prior; /* shares of the example weights */
    int32_t *of;   /* what the objective is over, if not examples */
    int64_t *ids;
} readable;

static void free_readable(readable *r)
{
    dro__free(r->losses);
    dro__free(r->weights);
    dro__free(r->prior);
    dro__free(r->of);
    dro__free(r->ids);
}

static dro_status collect(const dro_predictor *p, const int32_t *of, const arrays *a, readable *r)
{
    const dro_explanation *e = &p->explanation;
    double mass = 0;
    size_t n = (size_t)e->examples;
    *r = (readable){.losses = dro__alloc(n, sizeof(double)),
                    .weights = dro__alloc(n, sizeof(double)),
                    .prior = dro__alloc(n, sizeof(double)),
                    .of = dro__alloc(n, sizeof(int32_t)),
                    .ids = dro__alloc(n, sizeof(int64_t))};
    if (!r->losses || !r->weights || !r->prior || !r->of || !r->ids)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for the weights of %zu examples", n);
    for (int64_t i = 0; i < e->examples; i++) {
        double weight = a->given ? (double)a->given[i] : 1;
        if (isnan(e->losses[i]) || weight == 0)
            continue;
        if (!isfinite(e->losses[i]))
            return dro__fail(p->ctx, DRO_ERR_NUMBER, "the loss of example %lld is infinite",
                             (long long)i);
        r->losses[r->count] = e->losses[i];
        mass += r->prior[r->count] = weight;
        r->of[r->count] = of ? of[i] : 0;
        r->ids[r->count++] = i;
    }
    for (size_t i = 0; i < r->count; i++)
        r->prior[i] /= mass;
    return r->count ? DRO_OK : dro__fail(p->ctx, DRO_ERR_DATA, "no example has a loss");
}

static dro_status weigh(dro_predictor *p, const dro__objective *o, const int32_t *of,
                        int32_t groups, const arrays *a)
{
    dro_explanation *e = &p->explanation;
    readable r = {0};
    dro__groups g = {0};
    dro__worst_case worst = {0};
    dro_status status = collect(p, of, a, &r);
    const double *prior = a->given ? r.prior : NULL;
    g = (dro__groups){.n = r.count, .count = groups, .of = r.of, .example_prior = prior};
    if (status == DRO_OK && of)
        status = dro__groups_create(p->ctx, &g, true);
    if (status == DRO_OK && of) {
        dro__objective_weigh_groups(o, &g, r.losses, r.weights, &worst);
        dro__worst_case_measure(o, (size_t)groups, g.prior, g.q, &worst);
    } else if (status == DRO_OK) {
        dro__objective_weigh(o, r.count, r.losses, prior, r.weights, &worst);
        dro__worst_case_measure(o, r.count, prior, r.weights, &worst);
    }
    for (size_t i = 0; status == DRO_OK && i < r.count; i++) {
        a->weights[r.ids[i]] = r.weights[i];
        e->mean_loss += r.losses[i] * r.prior[i];
        if (e->classes) {
            a->class_shares[e->labels[r.ids[i]]] += r.prior[i];
            a->class_weights[e->labels[r.ids[i]]] += r.weights[i];
        }
        if (e->group_count) {
            a->group_shares[e->groups[r.ids[i]]] += r.prior[i];
            a->group_weights[e->groups[r.ids[i]]] += r.weights[i];
        }
    }
    e->value = worst.value;
    e->lambda = worst.lambda;
    e->threshold = worst.eta;
    e->divergence = worst.divergence;
    e->effective = worst.effective;
    dro__groups_free(&g);
    free_readable(&r);
    return status;
}

/* ---- the order ---- */

typedef struct ranked {
    double weight, loss;
    int64_t id;
} ranked;

static int heavier(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    if (a->loss != b->loss)
        return a->loss > b->loss ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static dro_status rank(const dro_predictor *p, const arrays *a)
{
    const dro_explanation *e = &p->explanation;
    ranked *all = dro__alloc((size_t)e->examples, sizeof *all);
    if (!all)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory to sort the examples");
    for (int64_t i = 0; i < e->examples; i++)
        all[i] = (ranked){e->weights[i], isnan(e->losses[i]) ? -HUGE_VAL : e->losses[i], i};
    qsort(all, (size_t)e->examples, sizeof *all, heavier);
    for (int64_t i = 0; i < e->examples; i++)
        a->order[i] = all[i].id;
    dro__free(all);
    return DRO_OK;
}

/* ---- the call ---- */

/* What the objective is over: NULL for examples. */
static dro_status over_what(const dro_predictor *p, const char *over, const int32_t **of,
                            int32_t *count)
{
    const dro_explanation *e = &p->explanation;
    bool classes = strcmp(over, "class") == 0, groups = strcmp(over, "group") == 0;
    *of = classes ? e->labels : groups ? e->groups : NULL;
    *count = classes ? e->classes : e->group_count;
    if (!classes && !groups && strcmp(over, "example") != 0)
        return dro__fail(p->ctx, DRO_ERR_NAME, "over '%.40s': expected example, class or group",
                         over);
    if ((classes || groups) && *count < 1)
        return dro__fail(p->ctx, DRO_ERR_DATA, "over %s: the data has no %s%s", over,
                         classes ? "classes" : "groups",
                         groups ? ": add group=COLUMN to the data" : "");
    return DRO_OK;
}

static dro_status explain(dro_predictor *p, dro_split split, const char *objective,
                          const char *over)
{
    dro__objective o;
    arrays a;
    const int32_t *of;
    int32_t count;
    DRO_TRY(dro__objective_parse(p->ctx, objective, &o));
    DRO_TRY(dro__predictor_labelled(p, split));
    DRO_TRY(make_arrays(p, split, &a));
    DRO_TRY(over_what(p, over, &of, &count));
    DRO_TRY(evaluate(p, split, &a));
    DRO_TRY(weigh(p, &o, of, count, &a));
    return rank(p, &a);
}

dro_status dro_predictor_explain(dro_predictor *p, dro_split split, const char *objective,
                                 const char *over, const dro_explanation **explanation)
{
    if (!p || !objective || !over || !explanation || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    dro__forget(p->ctx);
    dro__explanation_free(p);
    dro_status status = explain(p, split, objective, over);
    if (status != DRO_OK) {
        dro__explanation_free(p);
        return status;
    }
    *explanation = &p->explanation;
    return DRO_OK;
}

/* ---- pictures ---- */

/* Sizes that fit, in proportion. */
static void fit(int32_t width, int32_t height, dro_thumbnail *t)
{
    int32_t longest = width > height ? width : height, side = DRO_THUMBNAIL_SIDE;
    t->width = longest <= side ? width : (int32_t)((int64_t)width * side / longest);
    t->height = longest <= side ? height : (int32_t)((int64_t)height * side / longest);
    t->width = t->width ? t->width : 1;
    t->height = t->height ? t->height : 1;
}

static dro_status shrink(dro_context *ctx, const dro__image *image, dro_thumbnail *t)
{
    fit(image->width, image->height, t);
    return dro__image_resize(ctx, image, NULL, t->width, t->height, t->rgb);
}

/* An array (channels, height, width) as an image of three channels. */
static dro_status of_array(const dro_predictor *p, const uint8_t *pixels, dro_thumbnail *t)
{
    const dro_data_info *i = &p->task.info;
    size_t plane = (size_t)i->height * (size_t)i->width;
    dro__image image = {.width = i->width, .height = i->height, .channels = 3};
    image.pixels = dro__alloc(3 * plane, 1);
    if (!image.pixels)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for an image");
    for (size_t at = 0; at < plane; at++)
        for (size_t c = 0; c < 3; c++)
            image.pixels[3 * at + c] = pixels[(i->channels == 3 ? c * plane : 0) + at];
    dro_status status = shrink(p->ctx, &image, t);
    dro__free(image.pixels);
    return status;
}

dro_status dro_predictor_thumbnail(const dro_predictor *p, dro_split split, int64_t index,
                                   dro_thumbnail *t)
{
    if (!p || !t || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    dro__forget(p->ctx);
    const dro_data_info *i = &p->task.info;
    const dro_examples *e = &p->task.feed[split].examples;
    if (index < 0 || index >= e->count)
        return dro__fail(p->ctx, DRO_ERR_RANGE, "example %lld: there are %lld", (long long)index,
                         (long long)e->count);
    if (e->pixels)
        return of_array(p,
                        e->pixels + (size_t)index * (size_t)i->channels * (size_t)i->height *
                                        (size_t)i->width,
                        t);
    if (!e->paths)
        return dro__fail(p->ctx, DRO_ERR_UNSUPPORTED, "the data has no images");
    char *bytes = NULL;
    size_t size;
    uint64_t fetched;
    dro__image image;
    DRO_TRY(dro__files_read(p->ctx, e->paths[index], &bytes, &size, &fetched));
    dro_status status = dro__image_decode(p->ctx, e->paths[index], bytes, size, 3, &image);
    dro__free(bytes);
    DRO_TRY(status);
    status = shrink(p->ctx, &image, t);
    dro__image_free(&image);
    return status;
}
