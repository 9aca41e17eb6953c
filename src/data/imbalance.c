/* Making a training set imbalanced, setting examples aside, and giving some a wrong label.
 *
 *   imratio=R          of each of the first half of the classes (floor(C/2)) the LAST floor(R
 *                      count) examples in file order are kept, of the others all; the test set is
 *                      untouched (the COVER paper's experiments). A class that would keep nothing
 *                      is refused.
 *   longtail=exp:R     the k-th largest class keeps floor(m R^(-k/(C-1))): the largest is R times
 *                      the smallest
 *   longtail=pareto:P  the k-th largest class keeps floor(m (1 - k/C)^P), and at least one Both
 *                      keep the last examples in file order. Classes of the same size are taken in
 *                      their own order, so of a balanced set the first class keeps all. m is as
 *                      large as can be: no class is asked for more than it has, however unbalanced
 *                      the set was before; with exp and a largest class that cannot keep all
 *                      anyway, m/R is whole. C counts the classes that have examples.
 *   holdout=S          of every class round(S count) examples, drawn by seed, become the holdout
 *                      split; one of each class stays
 *   flip=S             of the remaining training examples round(S n), drawn by seed, get another
 *                      class, drawn evenly from the others; holdout and test keep their labels */
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_HOLDOUT = 0x686f, STREAM_FLIP = 0x666c };

/* What is asked for: ratio is below 0 if imratio is not given, tail is 0 if longtail is not. */
typedef struct request {
    double ratio, value, holdout, flip;
    char tail; /* 'e' exp, 'p' pareto */
} request;

static dro_status read_request(const dro_data *d, request *w)
{
    const char *longtail = dro__option(d, "longtail"), *end = NULL;
    *w = (request){0};
    DRO_TRY(dro__option_real(d, "imratio", -1, 0, 1, &w->ratio));
    DRO_TRY(dro__option_real(d, "holdout", 0, 0, 0.9, &w->holdout));
    DRO_TRY(dro__option_real(d, "flip", 0, 0, 1, &w->flip));
    if (!longtail)
        return DRO_OK;
    if (w->ratio >= 0)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT, "imratio and longtail exclude each other");
    if (strncmp(longtail, "exp:", 4) == 0 || strncmp(longtail, "pareto:", 7) == 0) {
        w->tail = *longtail;
        end = dro__number_double(strchr(longtail, ':') + 1, &w->value);
    }
    if (!end || *end || !(w->value >= (w->tail == 'p' ? 0 : 1)) || w->value > 1e9)
        return dro__fail(d->ctx, DRO_ERR_RANGE,
                         "longtail=%.40s: expected exp:R with R >= 1, or pareto:POWER", longtail);
    return DRO_OK;
}

dro_status dro__imbalance_check(const dro_data *d)
{
    request w;
    return read_request(d, &w);
}

static double share_of(const request *w, double k, double classes)
{
    if (w->tail == 'p')
        return pow(1 - k / classes, w->value);
    return classes > 1 ? pow(w->value, -k / (classes - 1)) : 1;
}

typedef struct ranked {
    int64_t count;
    int32_t class;
} ranked;

static int by_size(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->class < y->class ? -1 : x->class > y->class;
}

/* A hair up: 0.1 * 5000 must not become 499. */
static int64_t floor_up(double value)
{
    return (int64_t)floor(value * (1 + 1e-12));
}

/* How many the largest class keeps, so that no class needs more than it has. */
static double most_kept(const request *w, const ranked *order, int32_t classes)
{
    double most = INFINITY;
    for (int32_t k = 0; k < classes; k++)
        most = fmin(most, (double)order[k].count / share_of(w, k, classes));
    if (w->tail == 'e' && most < (double)order[0].count && most >= w->value)
        most = w->value * (double)floor_up(most / w->value); /* the smallest is whole */
    return most;
}

/* The largest whole R with which every class keeps one. */
static double largest_ratio(request w, const ranked *order, int32_t classes)
{
    double most = most_kept(&w, order, classes);
    while (w.value > 1 && floor_up(most * share_of(&w, classes - 1, classes)) < 1) {
        w.value = fmax(1, fmin(floor(most), ceil(w.value) - 1));
        most = most_kept(&w, order, classes);
    }
    return w.value;
}

/* The profile of longtail= over the classes that have examples. */
static dro_status plan_tail(const dro_data *d, const request *w, ranked *order, int64_t *keep)
{
    int32_t classes = 0;
    for (int32_t k = 0; k < d->classes; k++)
        if (d->counts[DRO_TRAIN][k] > 0)
            order[classes++] = (ranked){d->counts[DRO_TRAIN][k], k};
    qsort(order, (size_t)classes, sizeof *order, by_size);
    double most = most_kept(w, order, classes);
    for (int32_t k = 0; k < classes; k++) {
        int64_t wanted = floor_up(most * share_of(w, k, classes));
        if (wanted < 1 && w->tail == 'e')
            return dro__fail(d->ctx, DRO_ERR_RANGE,
                             "longtail=exp:%g: class %.60s would keep nothing: expected R of at "
                             "most %.0f",
                             w->value, d->class_names[order[k].class],
                             largest_ratio(*w, order, classes));
        keep[order[k].class] = wanted < 1 ? 1 : wanted;
    }
    return DRO_OK;
}

/* imratio=: an error names the ratio at which each class that has examples keeps one. */
static dro_status plan_ratio(const dro_data *d, const request *w, int64_t *keep)
{
    const int64_t *counts = d->counts[DRO_TRAIN];
    int32_t smallest = -1;
    for (int32_t k = 0; w->ratio >= 0 && k < d->classes / 2; k++) {
        keep[k] = floor_up(w->ratio * (double)counts[k]);
        if (counts[k] > 0 && keep[k] < 1 && (smallest < 0 || counts[k] < counts[smallest]))
            smallest = k;
    }
    if (smallest < 0)
        return DRO_OK;
    return dro__fail(d->ctx, DRO_ERR_RANGE,
                     "imratio=%g: class %.60s would keep nothing of its %lld examples: expected "
                     "%g or more",
                     w->ratio, d->class_names[smallest], (long long)counts[smallest],
                     ceil(1e6 / (double)counts[smallest]) / 1e6);
}

/* How many examples each class keeps. */
static dro_status plan(const dro_data *d, int64_t *keep)
{
    request w;
    DRO_TRY(read_request(d, &w));
    memcpy(keep, d->counts[DRO_TRAIN], (size_t)d->classes * sizeof *keep);
    if (!w.tail)
        return plan_ratio(d, &w, keep);
    ranked *order = dro__alloc((size_t)d->classes, sizeof *order);
    dro_status status =
        order ? plan_tail(d, &w, order, keep)
              : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %d classes", d->classes);
    dro__free(order);
    return status;
}

dro_status dro__imbalance(dro_data *d)
{
    dro__table *t = &d->split[DRO_TRAIN];
    if (!dro__option(d, "imratio") && !dro__option(d, "longtail"))
        return DRO_OK;
    if (d->classes == 0 || !t->labels || t->n < 0)
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                         "imratio and longtail need classes and a known number of examples");
    int64_t *left = dro__alloc((size_t)d->classes, sizeof *left);
    int64_t *ids = dro__alloc((size_t)t->n, sizeof *ids), count = 0;
    dro_status status = DRO_OK;
    if (!left || !ids)
        status = dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)t->n);
    if (status == DRO_OK)
        status = plan(d, left);
    if (status == DRO_OK) {
        /* From the end, so that the last ones are kept; then in rising order again. */
        for (int64_t i = t->n - 1; i >= 0; i--)
            if (left[t->labels[i]]-- > 0)
                ids[count++] = i;
        for (int64_t a = 0, b = count - 1; a < b; a++, b--) {
            int64_t swap = ids[a];
            ids[a] = ids[b];
            ids[b] = swap;
        }
        dro__table_keep(d, t, ids, count);
    }
    dro__free(left);
    dro__free(ids);
    return status;
}

/* Marks the examples of one class that are set aside. */
static void draw_class(const int64_t *members, int64_t count, double share, uint64_t seed,
                       int32_t k, bool *aside)
{
    int64_t want = (int64_t)llround(share * (double)count);
    want = want < count ? want : count - 1; /* one stays to be trained on */
    uint64_t key = dro__random(seed, STREAM_HOLDOUT, (uint64_t)k);
    for (int64_t i = 0; i < want; i++)
        aside[members[dro__permute((uint64_t)count, key, (uint64_t)i)]] = true;
}

/* The examples in the order of their classes: counted, then placed. starts is (classes + 1)
 * zeros. */
static void draw_all(const dro_data *d, double share, uint64_t seed, int64_t *starts,
                     int64_t *members, bool *aside)
{
    const dro__table *t = &d->split[DRO_TRAIN];
    int32_t classes = d->classes ? d->classes : 1;
    const int32_t *labels = d->classes ? t->labels : NULL;
    for (int64_t i = 0; i < t->n; i++)
        starts[(labels ? labels[i] : 0) + 1]++;
    for (int32_t k = 0; k < classes; k++)
        starts[k + 1] += starts[k];
    for (int64_t i = 0; i < t->n; i++)
        members[starts[labels ? labels[i] : 0]++] = i; /* starts[k] ends where class k does */
    for (int32_t k = 0; k < classes; k++) {
        int64_t first = k ? starts[k - 1] : 0, count = starts[k] - first;
        if (count)
            draw_class(members + first, count, share, seed, k, aside);
    }
}

dro_status dro__holdout(dro_data *d)
{
    dro__table *t = &d->split[DRO_TRAIN];
    request w;
    int64_t seed;
    DRO_TRY(read_request(d, &w));
    DRO_TRY(dro__option_integer(d, "seed", 1, 0, INT64_MAX, &seed));
    if (w.holdout == 0 || t->n <= 0)
        return DRO_OK;
    int64_t *ids = dro__alloc((size_t)t->n, sizeof *ids),
            *members = dro__alloc((size_t)t->n, sizeof *members),
            *starts = dro__alloc((size_t)d->classes + 2, sizeof *starts);
    bool *aside = dro__alloc((size_t)t->n, sizeof *aside);
    dro_status status = DRO_OK;
    if (!ids || !members || !starts || !aside) {
        status = dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)t->n);
    } else {
        int64_t out = 0, in = 0;
        draw_all(d, w.holdout, (uint64_t)seed, starts, members, aside);
        for (int64_t i = 0; i < t->n; i++)
            if (aside[i])
                ids[out++] = i;
        status = dro__table_copy(d, t, ids, out, &d->split[DRO_HOLDOUT]);
        for (int64_t i = 0; i < t->n; i++)
            if (!aside[i])
                ids[in++] = i;
        if (status == DRO_OK)
            dro__table_keep(d, t, ids, in);
    }
    dro__free(ids);
    dro__free(members);
    dro__free(starts);
    dro__free(aside);
    return status;
}

dro_status dro__flip(dro_data *d)
{
    dro__table *t = &d->split[DRO_TRAIN];
    request w;
    int64_t seed;
    DRO_TRY(read_request(d, &w));
    DRO_TRY(dro__option_integer(d, "seed", 1, 0, INT64_MAX, &seed));
    if (w.flip == 0)
        return DRO_OK;
    if (d->classes < 2 || !t->labels || t->n < 0)
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                         "flip needs two classes and a known number of examples");
    uint64_t key = dro__random((uint64_t)seed, STREAM_FLIP, 0), others = (uint64_t)d->classes - 1;
    int64_t count = llround(w.flip * (double)t->n);
    for (int64_t i = 0; i < count; i++) {
        int32_t *label = &t->labels[dro__permute((uint64_t)t->n, key, (uint64_t)i)];
        uint64_t by = dro__random((uint64_t)seed, STREAM_FLIP, (uint64_t)i + 1) % others + 1;
        *label = (int32_t)(((uint64_t)*label + by) % (others + 1));
    }
    return DRO_OK;
}
