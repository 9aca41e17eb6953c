/* Arrays in the memory of the program, as data. They are lent to a context under a name, and
 * arrays:NAME[,option=...] opens them like a file: copied, so that imbalance and holdout leave the
 * program's own as they are. Not in the list of formats: the program dro has no arrays to lend. */
#include "data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 64 };

/* What was lent: a list that the context owns. */
typedef struct lent {
    struct lent *next;
    char name[NAME_SIZE];
    dro_arrays train, test;
    bool has_test;
} lent;

static void free_all(void *list)
{
    for (lent *l = list, *next; l; l = next) {
        next = l->next;
        dro__free(l);
    }
}

static lent **find(dro_context *ctx, const char *name)
{
    lent **at = (lent **)&ctx->lent;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

/* ---- checks ---- */

static dro_status wrong(dro_context *ctx, const char *name, const char *expected)
{
    return dro__fail(ctx, DRO_ERR_ARGUMENT, "arrays:%s: expected %s", name, expected);
}

static dro_status check_shape(dro_context *ctx, const char *name, const dro_arrays *a)
{
    int forms = (a->x != NULL) + (a->pixels != NULL) + (a->starts != NULL);
    if (a->count < 1 || forms != 1)
        return wrong(ctx, name, "count examples, and either x or pixels or starts");
    if (a->starts && (!a->columns || !a->values))
        return wrong(ctx, name, "columns and values with starts");
    if (!a->pixels && (a->features < 1 || a->features > INT32_MAX))
        return wrong(ctx, name, "the number of features");
    if (a->pixels && (a->channels < 1 || a->channels > 3 || a->height < 1 || a->width < 1))
        return wrong(ctx, name, "1 to 3 channels, a height and a width");
    if (a->class_names && (!a->labels || a->classes < 1))
        return wrong(ctx, name, "labels and the number of classes with class_names");
    if ((a->labels != NULL) == (a->targets != NULL))
        return wrong(ctx, name, "either labels or targets");
    return DRO_OK;
}

static dro_status check_numbers(dro_context *ctx, const char *name, const dro_arrays *a)
{
    double mass = 0;
    for (int64_t i = 0; i < a->count; i++) {
        float weight = a->weights ? a->weights[i] : 1;
        if (a->targets && !isfinite(a->targets[i]))
            return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: target %lld is not finite", name,
                             (long long)i);
        if (!(weight >= 0) || !isfinite(weight))
            return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: weight %lld is %g: expected 0 or more",
                             name, (long long)i, (double)weight);
        if (a->groups && (a->groups[i] < 0 || a->groups[i] == INT32_MAX))
            return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: group %lld is %d: expected 0 or more",
                             name, (long long)i, a->groups[i]);
        if (a->labels && (a->labels[i] < 0 || a->labels[i] == INT32_MAX))
            return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: label %lld is %d: expected 0 or more",
                             name, (long long)i, a->labels[i]);
        mass += (double)weight;
    }
    return mass > 0 ? DRO_OK : wrong(ctx, name, "a weight above 0");
}

static dro_status check_sparse(dro_context *ctx, const char *name, const dro_arrays *a)
{
    if (a->starts && a->starts[0] != 0)
        return wrong(ctx, name, "starts that begin with 0");
    for (int64_t i = 0; a->starts && i < a->count; i++) {
        int64_t last = -1;
        if (a->starts[i + 1] < a->starts[i])
            return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: row %lld ends before it starts", name,
                             (long long)i);
        for (int64_t k = a->starts[i]; k < a->starts[i + 1]; k++) {
            if (a->columns[k] <= last || (size_t)a->columns[k] >= a->features)
                return dro__fail(ctx, DRO_ERR_DATA,
                                 "arrays:%s: row %lld has column %d after %lld: expected "
                                 "increasing columns below %zu",
                                 name, (long long)i, a->columns[k], (long long)last, a->features);
            if (!isfinite(a->values[k]))
                return dro__fail(ctx, DRO_ERR_DATA, "arrays:%s: row %lld, column %d is not finite",
                                 name, (long long)i, a->columns[k]);
            last = a->columns[k];
        }
    }
    return DRO_OK;
}

static dro_status check(dro_context *ctx, const char *name, const dro_arrays *a)
{
    DRO_TRY(check_shape(ctx, name, a));
    DRO_TRY(check_sparse(ctx, name, a));
    return check_numbers(ctx, name, a);
}

static dro_status check_alike(dro_context *ctx, const char *name, const dro_arrays *a,
                              const dro_arrays *b)
{
    bool alike =
        (a->x != NULL) == (b->x != NULL) && (a->starts != NULL) == (b->starts != NULL) &&
        (a->labels != NULL) == (b->labels != NULL) && (a->groups != NULL) == (b->groups != NULL) &&
        (!a->pixels ? a->features == b->features
                    : a->channels == b->channels && a->height == b->height && a->width == b->width);
    return alike ? DRO_OK : wrong(ctx, name, "a test set of the same shape as the training set");
}

dro_status dro_arrays_lend(dro_context *ctx, const char *name, const dro_arrays *train,
                           const dro_arrays *test)
{
    if (!ctx || !name)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    if (!*name || strlen(name) >= NAME_SIZE || strpbrk(name, ",:\\"))
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "arrays '%.60s': expected a name of 1 to %d "
                         "letters, without comma, colon and backslash",
                         name, NAME_SIZE - 1);
    dro_arrays own[2] = {{0}};
    if (train) {
        DRO_TRY(dro__take_struct(ctx, "dro_arrays", train, &own[0], sizeof own[0]));
        DRO_TRY(check(ctx, name, &own[0]));
    }
    if (train && test) {
        DRO_TRY(dro__take_struct(ctx, "dro_arrays", test, &own[1], sizeof own[1]));
        DRO_TRY(check(ctx, name, &own[1]));
        DRO_TRY(check_alike(ctx, name, &own[0], &own[1]));
    }
    lent **at = find(ctx, name), *old = *at;
    if (!train) { /* given back */
        *at = old ? old->next : NULL;
        dro__free(old);
        return DRO_OK;
    }
    if (!old) {
        old = dro__alloc(1, sizeof *old);
        if (!old)
            return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the arrays' names");
        snprintf(old->name, sizeof old->name, "%s", name);
        *at = old;
    }
    ctx->lent_free = free_all;
    old->train = own[0];
    old->test = own[1];
    old->has_test = test != NULL;
    return DRO_OK;
}

/* ---- opening ---- */

static dro_status copy(dro_context *ctx, const void *from, size_t size, int64_t count, void *to)
{
    void **out = to;
    if (!from)
        return DRO_OK;
    *out = dro__alloc((size_t)count, size);
    if (!*out)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)count);
    memcpy(*out, from, (size_t)count * size);
    return DRO_OK;
}

static dro_status take(dro_data *d, const dro_arrays *a, dro__table *t)
{
    size_t image = (size_t)a->channels * (size_t)a->height * (size_t)a->width;
    t->n = a->count;
    DRO_TRY(copy(d->ctx, a->x, a->features * sizeof *a->x, a->count, &t->x));
    DRO_TRY(copy(d->ctx, a->pixels, image, a->count, &t->pixels));
    if (a->starts) {
        int64_t entries = a->starts[a->count];
        DRO_TRY(copy(d->ctx, a->starts, sizeof *a->starts, a->count + 1, &t->starts));
        DRO_TRY(copy(d->ctx, a->columns, sizeof *a->columns, entries, &t->columns));
        DRO_TRY(copy(d->ctx, a->values, sizeof *a->values, entries, &t->values));
    }
    DRO_TRY(copy(d->ctx, a->labels, sizeof *a->labels, a->count, &t->labels));
    DRO_TRY(copy(d->ctx, a->targets, sizeof *a->targets, a->count, &t->targets));
    DRO_TRY(copy(d->ctx, a->groups, sizeof *a->groups, a->count, &t->groups));
    return copy(d->ctx, a->weights, sizeof *a->weights, a->count, &t->weights);
}

/* One more than the largest. */
static int32_t count_of(const int32_t *numbers, int64_t count, int32_t least)
{
    for (int64_t i = 0; numbers && i < count; i++)
        least = numbers[i] >= least ? numbers[i] + 1 : least;
    return least;
}

/* names NULL: numbers. */
static dro_status take_names(dro_data *d, const char *const *names, int32_t count, char ***out)
{
    enum { DIGITS = 12 };
    char **all = *out = dro__alloc((size_t)count, sizeof *all);
    for (int32_t k = 0; all && k < count; k++) {
        size_t size = names ? strlen(names[k]) + 1 : DIGITS;
        all[k] = dro__alloc(size, 1);
        if (!all[k])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for names");
        if (names)
            memcpy(all[k], names[k], size);
        else
            snprintf(all[k], size, "%d", k);
    }
    return all ? DRO_OK : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for names");
}

static dro_status open(dro_data *d)
{
    const lent *l = *find(d->ctx, d->spec.path);
    if (!l)
        return dro__fail(d->ctx, DRO_ERR_NAME, "arrays:%.60s: nothing was lent under that name",
                         d->spec.path);
    const dro_arrays *a = &l->train, *b = l->has_test ? &l->test : NULL;
    if (a->pixels) {
        d->kind = DRO_DATA_PIXELS;
        d->channels = a->channels;
        d->height = a->height;
        d->width = a->width;
    } else {
        d->kind = a->x ? DRO_DATA_DENSE : DRO_DATA_SPARSE;
        d->features = a->features;
    }
    d->classes = count_of(a->labels, a->count, a->labels ? a->classes : 0);
    d->classes = count_of(b ? b->labels : NULL, b ? b->count : 0, d->classes);
    d->groups = count_of(a->groups, a->count, 0);
    d->groups = count_of(b ? b->groups : NULL, b ? b->count : 0, d->groups);
    if (a->class_names && d->classes > a->classes)
        return wrong(d->ctx, l->name, "a name for every class");
    if (a->class_names)
        DRO_TRY(take_names(d, a->class_names, d->classes, &d->class_names));
    if (d->groups)
        DRO_TRY(take_names(d, NULL, d->groups, &d->group_names));
    if (a->feature_names && !a->pixels)
        DRO_TRY(take_names(d, a->feature_names, (int32_t)a->features, &d->feature_names));
    DRO_TRY(take(d, a, &d->split[DRO_TRAIN]));
    return b ? take(d, b, &d->split[DRO_TEST]) : DRO_OK;
}

static const char *const own_options[] = {"scale", NULL};

const dro__format dro__format_arrays = {
    .name = "arrays",
    .usage = "NAME[,scale=standard|none]",
    .summary = "arrays in memory, lent by dro_arrays_lend()",
    .options = own_options,
    .open = open,
};

dro_status dro_data_from_arrays(dro_context *ctx, const dro_arrays *train, const dro_arrays *test,
                                const char *options, dro_data **data)
{
    static const char name[] = " from arrays"; /* no caller's: it begins with a blank */
    char spec[DRO__SPEC_MAX];
    if (!ctx || !train || !data)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *data = NULL;
    if (snprintf(spec, sizeof spec, "arrays:%s%s%s", name, options && *options ? "," : "",
                 options ? options : "") >= (int)sizeof spec)
        return dro__fail(ctx, DRO_ERR_RANGE, "the options are longer than a SPEC may be");
    DRO_TRY(dro_arrays_lend(ctx, name, train, test));
    dro_status status = dro_data_open(ctx, spec, data);
    char error[DRO__ERROR_SIZE];
    memcpy(error, ctx->error, sizeof error);
    dro_arrays_lend(ctx, name, NULL, NULL);
    memcpy(ctx->error, error, sizeof error);
    return status;
}
