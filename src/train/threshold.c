/* Chooses the probability from which a rare class is predicted, on examples with labels: of all
 * thresholds between two of their probabilities (with the training data's prior), the best by a
 * rule. The weights file keeps it. */
#include "predictor.h"
#include "safetensors.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum rule_kind { F1, RECALL, COST, NUMBER, NONE } rule_kind;

typedef struct rule {
    rule_kind kind;
    double a, b; /* RECALL, NUMBER: a; COST: of a missed example, of a false alarm */
} rule;

#define COST_MOST 1e100 /* sums of costs are finite */

static bool read_rule(const char *text, rule *r)
{
    const char *colon = strchr(text, ':'), *end = NULL;
    *r = (rule){0};
    if (strcmp(text, "f1") == 0 || strcmp(text, "none") == 0) {
        r->kind = *text == 'f' ? F1 : NONE;
        return true;
    }
    if (strncmp(text, "cost:", 5) == 0) {
        r->kind = COST;
        end = dro__number_double(colon + 1, &r->a);
        end = end && *end == ':' ? dro__number_double(end + 1, &r->b) : NULL;
        return end && !*end && r->a > 0 && r->b > 0 && r->a <= COST_MOST && r->b <= COST_MOST;
    }
    bool recall = strncmp(text, "recall:", 7) == 0;
    r->kind = recall ? RECALL : NUMBER;
    end = dro__number_double(recall ? colon + 1 : text, &r->a);
    return end && !*end && r->a > 0 && r->a <= 1;
}

/* ---- the examples ---- */

typedef struct scored {
    double p, weight;
    bool is;
} scored;

static int by_probability(const void *a, const void *b)
{
    double x = ((const scored *)a)->p, y = ((const scored *)b)->p;
    return (x < y) - (x > y);
}

static dro_status score(dro_predictor *p, dro_split split, int32_t class, scored *out,
                        size_t *count)
{
    enum { CHUNK = 256 };
    int32_t classes = p->about.classes, truth[CHUNK];
    const dro_examples *e = &p->task.feed[split].examples;
    float *logits = dro__alloc(CHUNK * (size_t)classes, sizeof *logits);
    double *all = dro__alloc((size_t)classes, sizeof *all);
    dro_status status =
        logits && all ? DRO_OK : dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for a threshold");
    *count = 0;
    for (int64_t first = 0; first < e->count && status == DRO_OK; first += CHUNK) {
        size_t some = e->count - first < CHUNK ? (size_t)(e->count - first) : CHUNK;
        status = dro_predictor_logits(p, split, first, some, logits, truth);
        if (status == DRO_OK)
            for (size_t i = 0; i < some; i++) {
                const float *row = logits + i * (size_t)classes;
                dro__probability(dro__link_of(&p->task), p->task.shift, row, classes, 0, all);
                double weight = e->weights ? (double)e->weights[first + (int64_t)i] : 1;
                if (!isnan(all[class]) && weight > 0)
                    out[(*count)++] = (scored){all[class], weight, truth[i] == class};
            }
    }
    dro__free(logits);
    dro__free(all);
    return status;
}

/* ---- the choice ---- */

typedef struct choice {
    double threshold, value, hits, alarms;
} choice;

/* More is better. */
static double value_of(const rule *r, double hits, double alarms, double all)
{
    if (r->kind == COST)
        return -(r->a * (all - hits) + r->b * alarms);
    if (r->kind == RECALL) /* the first that reaches it, or the largest recall */
        return fmin(hits / all, r->a);
    return 2 * hits / (all + hits + alarms);
}

/* Goes down the probabilities, equal ones together. */
static choice choose(const rule *r, const scored *s, size_t count, double all)
{
    choice best = {.threshold = 1, .value = r->kind == COST ? -r->a * all : -1};
    double hits = 0, alarms = 0;
    bool given = r->kind == NUMBER;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && s[end].p == s[i].p; end++)
            *(s[end].is ? &hits : &alarms) += s[end].weight;
        double between = end < count ? (s[i].p + s[end].p) / 2 : s[i].p / 2;
        double value = given ? (double)(s[i].p >= r->a) : value_of(r, hits, alarms, all);
        if (given ? value > 0 : value > best.value)
            best = (choice){given ? r->a : fmax(between, 1e-12), value, hits, alarms};
    }
    best.threshold = given ? r->a : best.threshold;
    return best;
}

static dro_status choose_by(dro_predictor *p, dro_split split, const rule *r, int32_t class)
{
    size_t count = 0, most = (size_t)p->task.info.examples[split];
    double all = 0;
    scored *s = dro__alloc(most + 1, sizeof *s);
    dro_status status =
        s ? score(p, split, class, s, &count)
          : dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory to sort %zu examples", most);
    for (size_t i = 0; status == DRO_OK && i < count; i++)
        all += s[i].is ? s[i].weight : 0;
    if (status == DRO_OK && !(all > 0))
        status = dro__fail(p->ctx, DRO_ERR_DATA,
                           "threshold: there are no examples of class '%.200s' to choose it by",
                           p->about.names[class]);
    if (status == DRO_OK) {
        qsort(s, count, sizeof *s, by_probability);
        choice c = choose(r, s, count, all);
        p->about.threshold = c.threshold;
        p->about.rare = class;
        p->precision = c.hits + c.alarms > 0 ? c.hits / (c.hits + c.alarms) : NAN;
        p->recall = c.hits / all;
        p->f1 = 2 * c.hits / (all + c.hits + c.alarms);
    }
    dro__free(s);
    return status;
}

static dro_status keep_it(const dro_predictor *p)
{
    char text[160];
    snprintf(text, sizeof text, "%.17g", p->about.threshold);
    text[strcspn(text, ",")] = text[strcspn(text, ",")] ? '.' : '\0'; /* of the locale */
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " %d %s", p->about.rare, p->about.rule);
    return dro__safetensors_set(p->ctx, p->path, "dro.threshold",
                                p->about.threshold > 0 ? text : NULL);
}

static dro_status find_class(const dro_predictor *p, const char *name, int32_t *class)
{
    const dro__weights_about *a = &p->about;
    *class = a->classes == 2;
    for (int32_t k = 0; !name && a->prior && k < a->classes; k++)
        *class = a->prior[k] < a->prior[*class] ? k : *class;
    for (int32_t k = 0; name && k < a->classes; k++)
        if (strcmp(a->names[k], name) == 0) {
            *class = k;
            return DRO_OK;
        }
    if (name)
        return dro__fail(p->ctx, DRO_ERR_NAME, "threshold: the model has no class '%.200s'", name);
    return a->prior || a->classes == 2
               ? DRO_OK
               : dro__fail(p->ctx, DRO_ERR_ARGUMENT,
                           "threshold: the weights file has no class shares to find the rarest "
                           "class: name the class");
}

dro_status dro_predictor_threshold(dro_predictor *p, dro_split split, const char *text,
                                   const char *class_name, bool keep)
{
    rule r;
    int32_t class;
    if (!p || !text || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    if (!read_rule(text, &r) || strlen(text) >= sizeof p->about.rule)
        return dro__fail(
            p->ctx, DRO_ERR_RANGE,
            "threshold %.60s: expected f1, recall:R, cost:A:B (of a missed example and "
            "of a false alarm), a probability, or none",
            text);
    if (!p->about.classes)
        return dro__fail(p->ctx, DRO_ERR_ARGUMENT, "threshold: the model has a real-valued output");
    DRO_TRY(find_class(p, class_name, &class));
    if (r.kind == NONE) {
        p->about.threshold = 0;
    } else {
        DRO_TRY(dro__predictor_labelled(p, split));
        DRO_TRY(choose_by(p, split, &r, class));
        snprintf(p->about.rule, sizeof p->about.rule, "%s", text);
        p->probable = false;
    }
    return keep ? keep_it(p) : DRO_OK;
}

dro_threshold dro_predictor_threshold_get(const dro_predictor *p)
{
    if (!p || !(p->about.threshold > 0) || p->probable)
        return (dro_threshold){.precision = NAN, .recall = NAN, .f1 = NAN};
    return (dro_threshold){.class_name = p->about.names[p->about.rare],
                           .rule = p->about.rule,
                           .probability = p->about.threshold,
                           .precision = p->precision,
                           .recall = p->recall,
                           .f1 = p->f1};
}
