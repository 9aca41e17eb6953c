/* What a model keeps of how rows were scaled, and rows that are prepared for training
 * or for a model.
 *
 * The encoding of a data set begins with the lines of its format ("libsvm 1 base=1", csv_keep.c).
 * More may follow:
 *
 *     scale dense|sparse limited|plain FEATURES ...     dense: CENTRE,FACTOR for each; sparse: REST
 *                                                       FACTOR ...
 *     target CENTRE SCALE                               what a real-valued target is measured in
 *     bias COLUMN                                       a constant feature, 1, in this column, the
 *                                                       last
 *
 * Nothing in a text is trusted. */
#include "scale.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 1 << 26, NUMBER = 40 }; /* bytes */

dro_status dro__scaling_read(const dro_data *d, dro__scaling *scaling)
{
    static const char *const words[] = {"robust", "standard", "none"};
    const char *value = dro__option(d, "scale");
    *scaling = DRO__SCALE_ROBUST;
    for (int k = 0; value && k < 3; k++)
        if (strcmp(value, words[k]) == 0) {
            *scaling = (dro__scaling)k;
            return DRO_OK;
        }
    return value ? dro__fail(d->ctx, DRO_ERR_RANGE,
                             "scale=%.40s: expected robust, standard or none", value)
                 : DRO_OK;
}

/* ---- writing ---- */

static size_t put_number(char *to, double value, int digits)
{
    int size = snprintf(to, NUMBER, "%.*g", digits, value);
    for (char *c = to; *c; c++)
        *c = *c == ',' ? '.' : *c; /* where the locale writes one */
    return (size_t)size;
}

/* The line of a scale; *text is NULL when it is too long to be kept. */
static dro_status keep_scale(dro_context *ctx, const dro__scale *s, char **text)
{
    size_t most = 64 + s->features * (s->dense ? 32 : 10), used;
    *text = NULL;
    if (!s->features || most > TEXT_MOST)
        return DRO_OK;
    char *to = dro__alloc(most + NUMBER, 1);
    if (!to)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    used = (size_t)snprintf(to, most, "scale %s %s %zu", s->dense ? "dense" : "sparse",
                            s->limited ? "limited" : "plain", s->features);
    if (!s->dense) {
        to[used++] = ' ';
        used += put_number(to + used, (double)s->rest, 3);
    }
    for (size_t k = 0; k < s->features; k++) {
        to[used++] = ' ';
        if (s->dense) {
            used += put_number(to + used, (double)s->centre[k], 9);
            to[used++] = ',';
        }
        used += put_number(to + used, (double)s->factor[k], s->dense ? 9 : 3);
    }
    *text = to;
    return DRO_OK;
}

/* ---- reading ---- */

static dro_status damaged(dro_context *ctx, const char *expected)
{
    return dro__fail(ctx, DRO_ERR_DATA, "the encoding in the weights file is damaged: expected %s",
                     expected);
}

/* A finite number after `before`. */
static bool next_number(const char **at, char before, float *value)
{
    if (**at != before)
        return false;
    const char *end = dro__number_float(*at + 1, value);
    *at = end ? end : *at;
    return end && isfinite(*value);
}

static bool next_word(const char **at, const char *word)
{
    size_t size = strlen(word);
    if (strncmp(*at, word, size) != 0)
        return false;
    *at += size;
    return true;
}

static dro_status read_numbers(dro_context *ctx, const char *at, dro__scale *s)
{
    bool fine = s->dense || next_number(&at, ' ', &s->rest);
    for (size_t k = 0; fine && k < s->features; k++)
        fine = s->dense
                   ? next_number(&at, ' ', &s->centre[k]) && next_number(&at, ',', &s->factor[k])
                   : next_number(&at, ' ', &s->factor[k]);
    return fine && (!*at || *at == '\n') ? DRO_OK : damaged(ctx, "a number for each column");
}

dro_status dro__scale_read(dro_context *ctx, const char *text, dro__scale *s)
{
    const char *at = text;
    char *end;
    *s = (dro__scale){0};
    if (!next_word(&at, "scale "))
        return damaged(ctx, "scale");
    s->dense = next_word(&at, "dense ");
    if (!s->dense && !next_word(&at, "sparse "))
        return damaged(ctx, "dense or sparse");
    s->limited = next_word(&at, "limited ");
    if (!s->limited && !next_word(&at, "plain "))
        return damaged(ctx, "limited or plain");
    unsigned long long features = strtoull(at, &end, 10);
    if (*at < '0' || *at > '9' || features > strlen(at) || features == 0)
        return damaged(ctx, "a number for each column");
    s->features = (size_t)features;
    s->factor = dro__alloc(s->features, sizeof *s->factor);
    s->centre = dro__alloc(s->features, sizeof *s->centre);
    dro_status status = s->factor && s->centre
                            ? read_numbers(ctx, end, s)
                            : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    if (status != DRO_OK)
        dro__scale_free(s);
    return status;
}

/* ---- a data set ---- */

const char *dro__rows_kept(const char *encoding)
{
    static const char *const lines[] = {"scale ", "target ", "bias "};
    for (const char *at = encoding; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++)
            if (strncmp(at, lines[k], strlen(lines[k])) == 0)
                return at;
    }
    return NULL;
}

char *dro__format_kept(const char *encoding)
{
    const char *rest = dro__rows_kept(encoding);
    size_t size = rest && rest > encoding ? (size_t)(rest - encoding) - 1 : strlen(encoding);
    char *own = dro__alloc(size + 1, 1);
    if (own)
        memcpy(own, encoding, size);
    return own;
}

/* What follows the first word of a line, NULL: there is no such line. */
static const char *kept_line(const char *kept, const char *word)
{
    while (kept && strncmp(kept, word, strlen(word)) != 0) {
        const char *end = strchr(kept, '\n');
        kept = end ? end + 1 : NULL;
    }
    return kept ? kept + strlen(word) : NULL;
}

size_t dro__kept_bias(const char *kept)
{
    const char *at = kept_line(kept, "bias ");
    return at ? (size_t)strtoull(at, NULL, 10) : 0;
}

dro_status dro__unit_read(dro_context *ctx, const char *kept, dro__unit *unit)
{
    const char *at = kept_line(kept, "target ");
    *unit = (dro__unit){0, 1, 0};
    if (!at)
        return DRO_OK;
    at = dro__number_double(at, &unit->centre);
    at = at && *at == ' ' ? dro__number_double(at + 1, &unit->scale) : NULL;
    bool fine = at && (!*at || *at == '\n') && isfinite(unit->centre) && unit->scale > 0 &&
                isfinite(unit->scale);
    return fine ? DRO_OK : damaged(ctx, "the target's centre and scale");
}

dro_status dro__rows_note(dro_data *d, const dro__scale *s, size_t bias)
{
    char *line, last[4 * NUMBER] = "";
    DRO_TRY(keep_scale(d->ctx, s, &line));
    bool target = d->target.centre != 0 || d->target.scale != 1;
    if (!line && !bias && !target)
        return DRO_OK;
    if (target) {
        size_t used = (size_t)snprintf(last, NUMBER, "\ntarget ");
        used += put_number(last + used, d->target.centre, 17);
        last[used++] = ' ';
        put_number(last + used, d->target.scale, 17);
    }
    if (bias)
        snprintf(last + strlen(last), NUMBER, "\nbias %zu", bias);
    const char *own = d->encoding ? d->encoding : d->format->name;
    size_t size = strlen(own) + (line ? strlen(line) : 0) + strlen(last) + 2;
    char *all = dro__alloc(size, 1);
    if (all)
        snprintf(all, size, "%s%s%s%s", own, line ? "\n" : "", line ? line : "", last);
    dro__free(line);
    if (!all)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    dro__free(d->encoding);
    d->encoding = all;
    return DRO_OK;
}

/* Whether sparse rows are nearly dense: at least half of the possible entries are there. */
static bool is_full(const dro_data *d)
{
    const dro__table *t = &d->split[DRO_TRAIN];
    double cells = (double)t->n * (double)d->features;
    return d->kind == DRO_DATA_SPARSE && d->features <= DRO__DENSE_MOST && t->n > 0 &&
           2 * (double)t->starts[t->n] >= cells;
}

static dro_status make_dense(dro_data *d, size_t features)
{
    for (int s = 0; s < DRO_SPLITS; s++) {
        dro__table *t = &d->split[s];
        if (t->n == 0)
            continue;
        DRO_TRY(dro__fits(d->ctx, d->spec.path, (uint64_t)t->n * features * sizeof(float)));
        t->x = dro__alloc((size_t)t->n * features, sizeof *t->x);
        if (!t->x)
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "%s: no memory for rows of %zu features",
                             d->spec.path, features);
        for (int64_t i = 0; i < t->n; i++)
            for (int64_t k = t->starts[i]; k < t->starts[i + 1]; k++)
                t->x[(size_t)i * features + (size_t)t->columns[k]] = t->values[k];
        dro__free(t->starts), dro__free(t->columns), dro__free(t->values);
        t->starts = NULL, t->columns = NULL, t->values = NULL;
    }
    d->kind = DRO_DATA_DENSE;
    d->features = features;
    return DRO_OK;
}

/* One more entry in every row, 1 in column `at`. */
static dro_status add_bias(dro_data *d, size_t at)
{
    for (int s = 0; s < DRO_SPLITS; s++) {
        dro__table *t = &d->split[s];
        if (t->n == 0)
            continue;
        size_t entries = (size_t)t->starts[t->n], all = entries + (size_t)t->n;
        size_t column_capacity = entries, value_capacity = entries;
        DRO_TRY(dro__grow_file(d->ctx, d->spec.path, (void **)&t->columns, &column_capacity, all,
                               sizeof *t->columns));
        DRO_TRY(dro__grow_file(d->ctx, d->spec.path, (void **)&t->values, &value_capacity, all,
                               sizeof *t->values));
        for (int64_t i = t->n - 1; i >= 0; i--) { /* from the back, as rows move backwards */
            int64_t first = t->starts[i], count = t->starts[i + 1] - first;
            memmove(t->columns + first + i, t->columns + first, (size_t)count * sizeof *t->columns);
            memmove(t->values + first + i, t->values + first, (size_t)count * sizeof *t->values);
            t->columns[first + i + count] = (int32_t)at;
            t->values[first + i + count] = 1;
            t->starts[i + 1] += i + 1;
        }
    }
    d->bias = at;
    d->features = at + 1;
    return DRO_OK;
}

/* ---- targets ---- */

void dro__unit_learn(const dro__table *t, dro__unit *unit)
{
    dro__column_spread spread = {0};
    for (int64_t i = 0; t->targets && i < t->n; i++)
        dro__spread_add(&spread, (double)t->targets[i]);
    double scale = dro__spread_scale(&spread);
    *unit = (dro__unit){spread.mean, scale > 0 ? 1 / scale : 1, 0};
    for (int64_t i = 0; scale > 0 && i < t->n; i++)
        unit->fourth += pow(((double)t->targets[i] - spread.mean) * scale, 4) / (double)t->n;
}

float dro__in_unit(const dro__unit *unit, float value)
{
    return (float)(((double)value - unit->centre) / unit->scale);
}

static void measure_targets(dro_data *d)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        for (int64_t i = 0; d->split[s].targets && i < d->split[s].n; i++)
            d->split[s].targets[i] = dro__in_unit(&d->target, d->split[s].targets[i]);
}

static dro_status too_wide(const dro_data *d, size_t features)
{
    if (d->kind != DRO_DATA_SPARSE && d->features == features)
        return dro__fail(d->ctx, DRO_ERR_DATA,
                         "the weights are for sparse rows of %zu features: expected data of the "
                         "format that they were trained on",
                         features);
    return dro__fail(d->ctx, DRO_ERR_DATA,
                     "the weights are for rows of %zu features, the data has rows of %zu features",
                     features, d->features);
}

/* Scales rows as the model's training rows were. */
static dro_status prepare_kept(dro_data *d)
{
    size_t bias = dro__kept_bias(d->kept);
    dro__scale scale = {0};
    if (strncmp(d->kept, "scale ", 6) == 0)
        DRO_TRY(dro__scale_read(d->ctx, d->kept, &scale));
    dro_status status = DRO_OK;
    if (scale.features &&
        (d->kind == DRO_DATA_SPARSE ? d->features > scale.features
                                    : d->features != scale.features || !scale.dense))
        status = too_wide(d, scale.features);
    if (status == DRO_OK && d->kind == DRO_DATA_SPARSE && scale.dense)
        status = make_dense(d, scale.features);
    for (int s = 0; status == DRO_OK && s < DRO_SPLITS; s++)
        dro__scale_table(&scale, &d->split[s]);
    dro__scale_free(&scale);
    if (status == DRO_OK && bias &&
        (d->kind != DRO_DATA_SPARSE || d->features > bias || bias >= INT32_MAX))
        return too_wide(d, bias);
    return status == DRO_OK && bias ? add_bias(d, bias) : status;
}

static dro_status prepare_training(dro_data *d, bool own)
{
    dro__scaling scaling;
    dro__scale scale = {0};
    DRO_TRY(dro__scaling_read(d, &scaling));
    bool apply = !own && scaling != DRO__SCALE_NONE;
    if (apply && is_full(d))
        DRO_TRY(make_dense(d, d->features));
    if (apply)
        DRO_TRY(dro__scale_learn(d->ctx, &d->split[DRO_TRAIN], d->features, scaling, &scale));
    for (int s = 0; s < DRO_SPLITS; s++)
        dro__scale_table(&scale, &d->split[s]);
    if (scaling != DRO__SCALE_NONE)
        dro__unit_learn(&d->split[DRO_TRAIN], &d->target);
    measure_targets(d);
    bool bias = d->for_training && d->kind == DRO_DATA_SPARSE && d->features > DRO__DENSE_MOST;
    dro_status status = dro__rows_note(d, &scale, bias ? d->features : 0);
    dro__scale_free(&scale);
    return status == DRO_OK && bias ? add_bias(d, d->features) : status;
}

dro_status dro__rows_prepare(dro_data *d)
{
    bool rows = d->kind == DRO_DATA_DENSE || d->kind == DRO_DATA_SPARSE;
    bool own = d->format->encodes != NULL;
    if (rows && d->for_model)
        measure_targets(d);
    if (rows && d->kept)
        return prepare_kept(d);
    if (!rows || d->for_model || !(d->for_training || (!own && dro__option(d, "scale"))))
        return DRO_OK;
    return prepare_training(d, own);
}
