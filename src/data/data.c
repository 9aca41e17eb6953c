/* Opening a data set: the SPEC, the format, then what is the same for all: labels checked, records
 * numbered, imbalance, holdout, what the format does after these, counts. */
#include "image.h"
#include "scale.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <strings.h>

static const dro__format *const formats[] = {
#define FORMAT(name) &dro__format_##name,
#include "formats.def"
#undef FORMAT
};

enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

const dro__format *dro__format_at(int index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index] : NULL;
}

static const char *const common_options[] = {"imratio", "longtail", "holdout",
                                             "flip",    "seed",     "skip_bad"};

enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0] };

const char *dro_format_name(int index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index]->name : NULL;
}

const char *dro_format_usage(int index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index]->usage : NULL;
}

const char *dro_format_summary(int index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index]->summary : NULL;
}

const char *dro_format_details(int index)
{
    return index >= 0 && index < FORMAT_COUNT ? formats[index]->details : NULL;
}

/* ---- the SPEC ---- */

static bool takes_option(const dro__format *format, const char *name)
{
    for (int k = 0; k < COMMON_COUNT; k++)
        if (strcmp(common_options[k], name) == 0)
            return true;
    for (const char *const *p = format->options; p && *p; p++)
        if (strcmp(*p, name) == 0)
            return true;
    return false;
}

static dro_status unknown_option(dro_data *d, const char *name)
{
    char all[256];
    size_t used = 0;
    bool folder = d->format == &dro__format_images;
    if (folder && takes_option(&dro__format_csv, name))
        return dro__fail(d->ctx, DRO_ERR_NAME,
                         "%s: images have no option '%.60s': expected the file of a table, as in "
                         "--data %.200s/FILE.csv",
                         d->spec.path, name, d->spec.path);
    for (const char *const *p = d->format->options; p && *p && used < sizeof all; p++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s ", *p);
    for (int k = 0; k < COMMON_COUNT && used < sizeof all; k++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", common_options[k],
                                 k + 1 < COMMON_COUNT ? " " : "");
    return dro__fail(d->ctx, DRO_ERR_NAME, "%s has no option '%.60s'; it has: %s", d->format->name,
                     name, all);
}

/* The format of a path by its ending (compressed or not), or of a word without a path; NULL:
 * unknown. */
static const char *likely_format(const char *text, size_t length)
{
    static const char *const packed[] = {".gz", ".zst"};
    for (size_t k = 0; k < sizeof packed / sizeof packed[0]; k++) {
        size_t size = strlen(packed[k]);
        length -= length > size && memcmp(text + length - size, packed[k], size) == 0 ? size : 0;
    }
    for (int k = 0; k < FORMAT_COUNT; k++)
        for (const char *const *e = formats[k]->endings; e && *e; e++) {
            size_t size = strlen(*e);
            if (length >= size && strncasecmp(text + length - size, *e, size) == 0 &&
                (length == size || text[length - size - 1] == '.'))
                return formats[k]->name;
        }
    return NULL;
}

const char *dro_format_likely(const char *path)
{
    return path ? likely_format(path, strlen(path)) : NULL;
}

/* Ends the word at its comma and returns what follows, NULL at the end. `\,` is a literal comma. */
static char *cut_word(char *word)
{
    char *to = word;
    for (; *word && *word != ','; word++) {
        word += word[0] == '\\' && word[1] == ',';
        *to++ = *word;
    }
    bool more = *word == ',';
    *to = '\0';
    return more ? word + 1 : NULL;
}

static bool names_format(const char *text, size_t length)
{
    for (int k = 0; k < FORMAT_COUNT; k++)
        if (strlen(formats[k]->name) == length && memcmp(formats[k]->name, text, length) == 0)
            return true;
    return false;
}

dro_status dro__spec_full(dro_context *ctx, const char *text, char full[DRO__SPEC_MAX])
{
    char path[DRO__SPEC_MAX];
    const char *colon = strchr(text, ':'), *format = NULL;
    if (strlen(text) >= sizeof path)
        return dro__fail(ctx, DRO_ERR_RANGE, "the SPEC is longer than %zu characters",
                         sizeof path - 1);
    if (!colon || !names_format(text, (size_t)(colon - text))) {
        strcpy(path, text);
        cut_word(path);
        format = dro__guess_format(ctx, path);
    }
    if (snprintf(full, DRO__SPEC_MAX, "%s%s%s", format ? format : "", format ? ":" : "", text) >=
        DRO__SPEC_MAX)
        return dro__fail(ctx, DRO_ERR_RANGE, "the SPEC is longer than %d characters",
                         DRO__SPEC_MAX - 1);
    return DRO_OK;
}

/* The format before the colon. Without one the text is a path, up to its options. */
static dro_status find_format(dro_data *d, const char *name, const char *colon)
{
    char all[256];
    size_t used = 0, length = colon ? (size_t)(colon - name) : strcspn(name, ",");
    const char *likely = likely_format(name, length);
    for (int k = 0; k < FORMAT_COUNT; k++) {
        if (strlen(formats[k]->name) == length && memcmp(formats[k]->name, name, length) == 0) {
            d->format = formats[k];
            return DRO_OK;
        }
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, " %s", formats[k]->name);
    }
    char path[DRO__SPEC_MAX];
    snprintf(path, sizeof path, "%.*s", (int)length, name);
    if (likely && !colon && access(path, F_OK) != 0)
        return dro__fail(d->ctx, DRO_ERR_FILE, "%s: there is no such file", dro__path_tail(path));
    if (likely)
        return dro__fail(d->ctx, DRO_ERR_NAME,
                         "no format '%.*s' (a SPEC is format:path): expected %s:%.200s",
                         (int)(length < 60 ? length : 60), name, likely, colon ? colon + 1 : name);
    if (!colon && access(path, F_OK) == 0)
        return dro__fail(d->ctx, DRO_ERR_NAME,
                         "%s: its format is not known: save a table as CSV, or name the format as "
                         "in format:path; expected one of%s",
                         dro__path_tail(path), all);
    return dro__fail(d->ctx, DRO_ERR_NAME,
                     "no format '%.*s' (a SPEC is format:path); expected one of%s",
                     (int)(length < 60 ? length : 60), name, all);
}

static dro_status check_names(dro_data *d)
{
    const dro__spec *spec = &d->spec;
    for (int k = 0; k < spec->count; k++) {
        if (!takes_option(d->format, spec->names[k]))
            return unknown_option(d, spec->names[k]);
        for (int j = 0; j < k; j++)
            if (strcmp(spec->names[j], spec->names[k]) == 0)
                return dro__fail(d->ctx, DRO_ERR_ARGUMENT, "option %s is given twice",
                                 spec->names[k]);
    }
    return DRO_OK;
}

dro_status dro__spec_parse(dro_data *d, const char *given)
{
    dro__spec *spec = &d->spec;
    char text[DRO__SPEC_MAX];
    DRO_TRY(dro__spec_full(d->ctx, given, text));
    const char *colon = strchr(text, ':');
    size_t length = strlen(text);
    if (!d->format && strncmp(text, "arrays:", 7) == 0)
        d->format = &dro__format_arrays;
    if (!d->format)
        DRO_TRY(find_format(d, text, colon));
    if (!colon)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT, "%s: expected %s:%s", text, d->format->name,
                         d->format->usage);
    memcpy(spec->text, text, length + 1);
    char *p = spec->text + (colon - text);
    *p++ = '\0';
    spec->format = spec->text;
    spec->path = p;
    while ((p = cut_word(p))) {
        p += strspn(p, " ");
        char *equals = p + strcspn(p, "=,");
        if (*equals != '=')
            return dro__fail(
                d->ctx, DRO_ERR_ARGUMENT,
                "'%.60s' in the SPEC: expected option=value (a comma that belongs to a path "
                "or a value is written \\,)",
                p);
        if (spec->count == DRO__OPTIONS_MAX)
            return dro__fail(d->ctx, DRO_ERR_RANGE, "more than %d options in the SPEC",
                             DRO__OPTIONS_MAX);
        *equals = '\0';
        spec->names[spec->count] = p;
        spec->values[spec->count++] = equals + 1;
        p = equals + 1;
    }
    DRO_TRY(check_names(d));
    if (spec->path[0] == '\0')
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT, "no path in the SPEC: expected %s:%s",
                         d->format->name, d->format->usage);
    return DRO_OK;
}

const char *dro__option(const dro_data *data, const char *name)
{
    for (int k = 0; k < data->spec.count; k++)
        if (strcmp(data->spec.names[k], name) == 0)
            return data->spec.values[k];
    return NULL;
}

dro_status dro__option_real(const dro_data *data, const char *name, double fallback, double low,
                            double high, double *value)
{
    const char *text = dro__option(data, name);
    double parsed = 0;
    *value = fallback;
    if (!text)
        return DRO_OK;
    const char *end = dro__number_double(text, &parsed);
    if (!end || *end || !(parsed >= low && parsed <= high))
        return dro__fail(data->ctx, DRO_ERR_RANGE, "%s=%.40s: expected a number from %g to %g",
                         name, text, low, high);
    *value = parsed;
    return DRO_OK;
}

dro_status dro__option_integer(const dro_data *data, const char *name, int64_t fallback,
                               int64_t low, int64_t high, int64_t *value)
{
    const char *text = dro__option(data, name);
    char *end;
    *value = fallback;
    if (!text)
        return DRO_OK;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end || errno || parsed < low || parsed > high)
        return dro__fail(data->ctx, DRO_ERR_RANGE,
                         "%s=%.40s: expected a whole number from %lld to %lld", name, text,
                         (long long)low, (long long)high);
    *value = parsed;
    return DRO_OK;
}

/* Checks the options that can be checked before anything is read. */
static dro_status check_options(const dro_data *d)
{
    static const char *const files[] = {"test", "labels", "groups", "test_labels", "test_groups"};
    int64_t whole;
    int count = strcmp(d->spec.path, "-") == 0;
    if (count && d->format->folder)
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                         "%s:-: the format reads a folder, not stdin: expected %s:DIR",
                         d->format->name, d->format->name);
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        const char *value = dro__option(d, files[k]);
        count += value && strcmp(value, "-") == 0;
    }
    if (count > 1)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "stdin can be read once: expected one - in the SPEC");
    DRO_TRY(dro__option_integer(d, "seed", 1, 0, INT64_MAX, &whole));
    DRO_TRY(dro__option_integer(d, "skip_bad", 0, 0, INT32_MAX, &whole));
    return dro__imbalance_check(d);
}

/* ---- after the format has read ---- */

static dro_status number_records(dro_data *d, dro__table *t)
{
    if (t->records || t->n == 0)
        return DRO_OK;
    t->records = dro__alloc((size_t)t->n, sizeof *t->records);
    if (!t->records)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)t->n);
    for (int64_t i = 0; i < t->n; i++)
        t->records[i] = i;
    return DRO_OK;
}

static dro_status check_labels(dro_data *d, const dro__table *t, const char *where)
{
    for (int64_t i = 0; t->labels && i < t->n; i++)
        if (t->labels[i] < 0 || t->labels[i] >= d->classes)
            return dro__fail(d->ctx, DRO_ERR_DATA,
                             "%s: %s example %lld has class %d: expected 0 to %d", d->spec.path,
                             where, (long long)i, t->labels[i], d->classes - 1);
    return DRO_OK;
}

static dro_status default_names(dro_data *d)
{
    if (d->class_names || d->classes == 0)
        return DRO_OK;
    d->class_names = dro__alloc((size_t)d->classes, sizeof *d->class_names);
    for (int32_t k = 0; d->class_names && k < d->classes; k++) {
        d->class_names[k] = dro__alloc(12, 1);
        if (!d->class_names[k])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for class names");
        snprintf(d->class_names[k], 12, "%d", k);
    }
    return d->class_names ? DRO_OK : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for class names");
}

dro_status dro__count_split(dro_data *d, int split)
{
    const dro__table *t = &d->split[split];
    if (d->classes == 0 || !t->labels)
        return DRO_OK;
    dro__free(d->counts[split]);
    d->counts[split] = dro__alloc((size_t)d->classes, sizeof(int64_t));
    if (!d->counts[split])
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %d classes", d->classes);
    for (int64_t i = 0; i < t->n; i++)
        d->counts[split][t->labels[i]]++;
    return DRO_OK;
}

static dro_status finish(dro_data *d)
{
    DRO_TRY(default_names(d));
    DRO_TRY(check_labels(d, &d->split[DRO_TRAIN], "training"));
    DRO_TRY(check_labels(d, &d->split[DRO_TEST], "test"));
    DRO_TRY(number_records(d, &d->split[DRO_TRAIN]));
    DRO_TRY(number_records(d, &d->split[DRO_TEST]));
    DRO_TRY(dro__count_split(d, DRO_TRAIN));
    DRO_TRY(dro__imbalance(d));
    DRO_TRY(dro__count_split(d, DRO_TRAIN));
    DRO_TRY(dro__holdout(d));
    DRO_TRY(dro__flip(d));
    if (d->format->fit)
        DRO_TRY(d->format->fit(d));
    DRO_TRY(dro__rows_prepare(d));
    for (int s = 0; s < DRO_SPLITS; s++)
        DRO_TRY(dro__count_split(d, s));
    return DRO_OK;
}

static bool is_of(const char *encoding, const dro__format *format)
{
    size_t length = strcspn(encoding, " \n");
    return strlen(format->name) == length && memcmp(format->name, encoding, length) == 0;
}

/* The format that an encoding is of, or NULL. */
static const dro__format *format_of(const char *encoding)
{
    for (int k = 0; k < FORMAT_COUNT; k++)
        if (is_of(encoding, formats[k]))
            return formats[k];
    return NULL;
}

/* Uses the encoding of a model's training data. That of another format is skipped: a model of csv
 * may get rows of libsvm, which are encoded already. */
static dro_status take_encoding(dro_data *d, const char *given, char **own)
{
    *own = NULL;
    if (!given)
        return DRO_OK;
    const dro__format *of = format_of(given);
    if (d->format->encodes && is_of(given, &dro__format_arrays))
        return dro__fail(d->ctx, DRO_ERR_DATA,
                         "the model was trained on arrays in memory, not on a file: read %s with "
                         "the program that made them, and give it the arrays",
                         d->spec.path);
    bool same =
        *given &&
        (!of || of == d->format); /* an encoding of no format is damaged: the format says so */
    const char *kept = dro__rows_kept(given);
    bool alike = same || (of && !of->encodes && !d->format->encodes); /* rows of numbers */
    *own = dro__format_kept(given);
    if (!*own)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    d->for_model = true;
    d->given = same ? *own : NULL;
    d->kept = alike ? kept : NULL;
    DRO_TRY(dro__unit_read(d->ctx, kept, &d->target));
    if (!same && d->format->encodes)
        return dro__remark(d, "the weights file has no encoding of %s: %s, from these rows alone",
                           d->format->name, d->format->encodes);
    if (!same && of && of->encodes)
        return dro__remark(d, "the model was trained on %s (%s): these rows are taken as they are",
                           of->name, of->encodes);
    return DRO_OK;
}

/* ---- public ---- */

dro_status dro_data_open(dro_context *ctx, const char *spec, dro_data **data)
{
    return dro__data_open_given(ctx, spec, NULL, data);
}

bool dro__names_files(const char *spec)
{
    for (int k = 0; k < FORMAT_COUNT; k++) {
        size_t length = strlen(formats[k]->name);
        if (strncmp(spec, formats[k]->name, length) == 0 && spec[length] == ':')
            return formats[k]->files;
    }
    return false;
}

static dro_status open_data(dro_data *d, const char *spec, const char *given)
{
    char *own = NULL;
    dro_status status = dro__spec_parse(d, spec);
    if (status == DRO_OK)
        status = take_encoding(d, given, &own);
    if (status == DRO_OK)
        status = check_options(d);
    if (status == DRO_OK)
        status = d->format->open(d);
    if (status == DRO_OK)
        status = finish(d);
    if (d->format && d->format->release)
        d->format->release(d);
    dro__free(own);
    d->given = d->kept = NULL;
    return status;
}

static dro_status make_data(dro_context *ctx, const char *spec, const char *given, bool training,
                            dro_data **data)
{
    if (!ctx || !data)
        return DRO_ERR_ARGUMENT;
    *data = NULL;
    if (!spec)
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "no SPEC: expected format:path");
    dro_data *d = dro__alloc(1, sizeof *d);
    if (!d)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a data set");
    d->ctx = ctx;
    d->for_training = training;
    d->target.scale = 1;
    dro_status status = open_data(d, spec, given);
    if (status != DRO_OK)
        dro_data_close(d);
    else
        *data = d;
    return dro__done(ctx, status);
}

dro_status dro__data_open_given(dro_context *ctx, const char *spec, const char *given,
                                dro_data **data)
{
    return make_data(ctx, spec, given, false, data);
}

dro_status dro__data_for_training(dro_context *ctx, const char *spec, dro_data **data)
{
    return make_data(ctx, spec, NULL, true, data);
}

static void free_names(char **names, int32_t count)
{
    for (int32_t k = 0; names && k < count; k++)
        dro__free(names[k]);
    dro__free(names);
}

dro_status dro__data_without_classes(dro_data *d)
{
    if (!d->unlabelled || d->classes == 0)
        return DRO_OK;
    for (int s = 0; s < DRO_SPLITS; s++) {
        dro__table *t = &d->split[s];
        if (!t->labels)
            continue;
        t->targets = dro__alloc((size_t)t->n + 1, sizeof *t->targets);
        if (!t->targets)
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld targets", (long long)t->n);
        dro__free(t->labels);
        dro__free(d->counts[s]);
        t->labels = NULL, d->counts[s] = NULL;
    }
    free_names(d->class_names, d->classes);
    d->class_names = NULL, d->classes = 0;
    return DRO_OK;
}

void dro_data_close(dro_data *d)
{
    if (!d)
        return;
    for (int s = 0; s < DRO_SPLITS; s++) {
        dro__table_free(&d->split[s]);
        dro__free(d->counts[s]);
        dro__free(d->lost[s]);
        dro__free(d->paths[s]);
    }
    dro__free(d->again[0].gone);
    dro__free(d->again[1].gone);
    dro__notes_free(&d->skipped);
    dro__notes_free(&d->remarks);
    dro__free(d->encoding);
    free_names(d->class_names, d->classes);
    free_names(d->group_names, d->groups);
    free_names(d->feature_names, (int32_t)d->features);
    dro__free(d);
}

dro_status dro_data_info_get(const dro_data *d, dro_data_info *info)
{
    if (!d || !info)
        return DRO_ERR_ARGUMENT;
    dro__forget(d->ctx);
    *info = (dro_data_info){.format = d->format->name,
                            .kind = d->kind,
                            .channels = d->channels,
                            .height = d->height,
                            .width = d->width,
                            .features = d->features,
                            .classes = d->classes,
                            .class_names = (const char *const *)d->class_names,
                            .groups = d->groups,
                            .group_names = (const char *const *)d->group_names,
                            .bytes_read = d->bytes_read,
                            .skipped = dro__skipped(d),
                            .target_centre = d->target.centre,
                            .target_scale = d->target.scale,
                            .target_fourth = d->target.fourth};
    for (int s = 0; s < DRO_SPLITS; s++) {
        info->examples[s] = d->split[s].n;
        info->counts[s] = d->split[s].n ? d->counts[s] : NULL;
        info->memory += dro__table_bytes(d, &d->split[s]);
    }
    return DRO_OK;
}

dro_status dro_data_examples(const dro_data *data, dro_split split, dro_examples *out)
{
    dro_data *d = (dro_data *)data; /* the list of paths is made on demand */
    if (!d || !out || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    dro__forget(data->ctx);
    const dro__table *t = &d->split[split];
    if (t->places && !d->paths[split]) {
        d->paths[split] = dro__alloc((size_t)t->n + 1, sizeof(char *));
        if (!d->paths[split])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld paths", (long long)t->n);
        for (int64_t i = 0; i < t->n; i++)
            d->paths[split][i] = t->text + t->places[i];
    }
    *out = (dro_examples){.count = t->n,
                          .labels = t->labels,
                          .targets = t->targets,
                          .groups = t->groups,
                          .weights = t->weights,
                          .records = t->records,
                          .pixels = t->pixels,
                          .x = t->x,
                          .starts = t->starts,
                          .columns = t->columns,
                          .values = t->values,
                          .paths = d->paths[split]};
    return DRO_OK;
}
