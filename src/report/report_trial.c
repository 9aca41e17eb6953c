/* Reading a run folder (report.h): config.json, metrics.jsonl, result.json. Nothing in them is
 * taken on trust: what is missing or of another kind is not known, what is damaged is skipped
 * with a note.
 *
 * metrics.jsonl is read line by line. The last line of a run that was killed may be cut short. A
 * step that comes again (a run that went on from an earlier checkpoint) replaces what was there
 * from it on. */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void free_names(char **names, int32_t count)
{
    for (int32_t k = 0; names && k < count; k++)
        dro__free(names[k]);
    dro__free(names);
}

void dro__trial_destroy(dro__trial *t)
{
    if (!t)
        return;
    for (size_t k = 0; k < t->setting_count; k++) {
        dro__free(t->settings[k].name);
        dro__free(t->settings[k].value);
    }
    for (size_t k = 0; k < t->evaluation_count; k++)
        dro__free(t->evaluations[k].class_weights);
    free_names(t->class_names, t->name_count);
    free_names(t->group_names, t->group_count);
    free(t->settings);
    free(t->evaluations);
    dro__free(t->per_class);
    dro__free(t->confusion);
    for (int k = 0; k < DRO__QUALITIES; k++)
        dro__free(t->quality[k]);
    dro__free(t->counts);
    dro__free(t->path);
    dro__free(t->real);
    dro__free(t->optimizer);
    dro__free(t->model);
    dro__free(t->backend);
    dro__free(t->seed);
    dro__free(t->objective);
    dro__free(t->data_sum);
    dro__sweep_destroy(t->sweep);
    dro__free(t);
}

const char *dro__trial_setting(const dro__trial *trial, const char *name)
{
    for (size_t k = 0; k < trial->setting_count; k++)
        if (strcmp(trial->settings[k].name, name) == 0)
            return trial->settings[k].value;
    return NULL;
}

const char *dro__trial_label(const dro__trial *trial)
{
    const char *name = dro__trial_setting(trial, "name");
    return name ? name : dro__trial_setting(trial, "label"); /* as it was called */
}

#if DRO_WITH_JANSSON
#include "report_json.h"

enum { SETTINGS_MOST = 1000, VALUE_MOST = 400, DEPTH_MOST = 4 };

static void set_confusion(dro__trial *t, const json_t *object, const char *path)
{
    const json_t *rows = dro__json_at(object, path);
    size_t size = json_array_size(rows);
    if (size == 0 || size > DRO__CONFUSION_MOST)
        return;
    double *found = dro__alloc(size * size, sizeof *found);
    for (size_t i = 0; found && i < size; i++)
        for (size_t j = 0; j < size; j++) {
            double value = dro__json_number(json_array_get(json_array_get(rows, i), j), "");
            found[i * size + j] = value > 0 ? value : 0;
        }
    if (!found)
        return;
    dro__free(t->confusion);
    t->confusion = found;
    t->matrix_count = (int32_t)size;
}

static void set_names(char ***names, int32_t *count, const json_t *array)
{
    size_t size = json_array_size(array);
    if (size == 0 || size > DRO__CLASSES_MOST || *names ||
        !(*names = dro__alloc(size, sizeof **names)))
        return;
    *count = (int32_t)size;
    for (size_t k = 0; k < size; k++) {
        (*names)[k] = dro__json_text(json_array_get(array, k), "");
        if (!(*names)[k])
            (*names)[k] = dro__copy_text("");
    }
}

/* ---- config.json ---- */

static void add_setting(dro__trial *t, const char *name, const json_t *value)
{
    char *text = json_is_string(value)
                     ? dro__copy_text(json_string_value(value))
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10));
    dro__report_setting *more = realloc(t->settings, (t->setting_count + 1) * sizeof *more);
    char *copy = dro__copy_text(name), *kept = dro__alloc(VALUE_MOST + 4, 1);
    t->settings = more ? more : t->settings;
    if (text && more && copy && kept) {
        size_t size = strlen(text), most = VALUE_MOST;
        while (size > most && (text[most] & 0xc0) == 0x80)
            most--; /* not in the middle of a letter */
        memcpy(kept, text, size > most ? most : size);
        strcat(kept, size > most ? "\xe2\x80\xa6" : "");
        more[t->setting_count++] = (dro__report_setting){copy, kept};
    } else {
        dro__memory_lost();
        dro__free(copy);
        dro__free(kept);
    }
    if (json_is_string(value))
        dro__free(text);
    else
        dro__json_free(text);
}

static void add_settings(dro__trial *t, const char *prefix, json_t *object, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        dro__buffer name = {0};
        dro__buffer_print(&name, "%s%s%.100s", prefix, *prefix ? "." : "", key);
        if (name.failed || t->setting_count >= SETTINGS_MOST)
            depth = DEPTH_MOST + 1;
        else if (json_is_object(value) && depth < DEPTH_MOST)
            add_settings(t, name.bytes, value, depth + 1);
        else if (!json_is_null(value))
            add_setting(t, name.bytes, value);
        dro__buffer_free(&name);
        if (depth > DEPTH_MOST)
            return;
    }
}

/* The split of the metrics: the test set, else the holdout, else the training set. */
static const char *split_of(const json_t *object)
{
    return json_is_object(dro__json_at(object, "test"))      ? "test"
           : json_is_object(dro__json_at(object, "holdout")) ? "holdout"
                                                             : "train";
}

/* What is at a path that may begin with "test.", in the object's split. */
static const char *path_in(const json_t *object, const char *path, char out[64])
{
    if (strncmp(path, "test.", 5) != 0)
        return path;
    snprintf(out, 64, "%s.%.40s", split_of(object), path + 5);
    return out;
}

/* ---- metrics.jsonl ---- */

static void drop_from(dro__trial *t, double step)
{
    while (t->evaluation_count > 0) {
        dro__report_evaluation *last = &t->evaluations[t->evaluation_count - 1];
        if (!(last->values[DRO__COLUMN_STEP] >= step))
            return;
        dro__free(last->class_weights);
        t->evaluation_count--;
    }
}

static bool add_evaluation(dro__trial *t, const json_t *object)
{
    static const char *const paths[] = {
#define X(code, path) path,
        DRO__COLUMN_LIST(X)
#undef X
    };
    dro__report_evaluation e = {.class_count = 0};
    char place[64];
    for (int k = 0; k < DRO__COLUMNS; k++)
        e.values[k] = dro__json_number(object, path_in(object, paths[k], place));
    drop_from(t, e.values[DRO__COLUMN_STEP]);
    const json_t *weights = dro__json_at(object, "class_weights");
    size_t size = json_array_size(weights);
    if (size > 0 && size <= DRO__CLASSES_MOST &&
        (e.class_weights = dro__alloc(size, sizeof *e.class_weights))) {
        e.class_count = (int32_t)size;
        for (size_t k = 0; k < size; k++)
            e.class_weights[k] = (float)dro__json_number(json_array_get(weights, k), "");
    }
    dro__report_evaluation *more =
        realloc(t->evaluations, (t->evaluation_count + 1) * sizeof *more);
    if (!more) {
        dro__free(e.class_weights);
        return false;
    }
    t->evaluations = more;
    more[t->evaluation_count++] = e;
    return true;
}

/* The final metrics: of result.json, or of the last evaluation. */
static void take_figures(dro__trial *t, const json_t *object, bool final)
{
    static const char *const names[] = {
#define X(name, code, title, better, unit, meaning) #name,
        DRO_MEASURE_LIST(X)
#undef X
    };
    for (int k = 0; k < DRO_MEASURES; k++) {
        char path[64], place[64];
        bool plain = k == DRO_MEASURE_SECONDS || k == DRO_MEASURE_EXAMPLES;
        snprintf(path, sizeof path, "%s%s",
                 plain                        ? ""
                 : k == DRO_MEASURE_OBJECTIVE ? "train."
                                              : "test.",
                 names[k]);
        if (k == DRO_MEASURE_HOLDOUT)
            strcpy(path, "holdout.balanced_accuracy");
        double value = dro__json_number(object, path_in(object, path, place));
        if (isfinite(value) || !final)
            t->measures[k] = value;
    }
    char place[64];
    dro__json_set_numbers(&t->per_class, &t->class_count, object,
                          path_in(object, "test.per_class", place));
    set_confusion(t, object, path_in(object, "test.confusion", place));
    static const char *const lists[] = {
#define X(code, path) path,
        DRO__QUALITY_LIST(X)
#undef X
    };
    for (int k = 0; k < DRO__QUALITIES; k++)
        dro__json_set_numbers(&t->quality[k], &t->quality_count[k], object,
                              path_in(object, lists[k], place));
    t->split = split_of(object);
    dro__json_set_numbers(&t->counts, &t->count_count, object, "train.counts");
    dro__json_set_numbers(&t->counts, &t->count_count, object, "class_counts");
}

/* Bytes and what to report about them. */
typedef struct lines {
    long number, damaged, first_damaged;
    bool cut;   /* the last line is incomplete */
    char *last; /* the last good line, whose arrays are read */
    size_t last_size;
} lines;

static bool take_line(dro__trial *t, lines *l, char *line, size_t size)
{
    l->number++;
    if (strspn(line, " \t\r\n") == size)
        return true;
    bool ended = line[size - 1] == '\n';
    json_t *object = dro__json_line(line, size);
    if (!object) {
        l->cut = !ended;
        l->damaged += ended;
        l->first_damaged = ended && !l->first_damaged ? l->number : l->first_damaged;
        return true;
    }
    bool fine = add_evaluation(t, object);
    json_decref(object);
    char *last = fine ? realloc(l->last, size + 1) : NULL;
    if (!last)
        return false;
    memcpy(last, line, size);
    l->last = last;
    l->last_size = size;
    return true;
}

static void say_lines(dro_report *report, const dro__trial *t, const lines *l)
{
    if (l->cut)
        dro__report_add_remark(
            report,
            "%s/metrics.jsonl: the last line is cut short (line %ld): the run was "
            "killed; the line is left out",
            t->path, l->number);
    if (l->damaged)
        dro__report_add_remark(report,
                               "%s/metrics.jsonl: %ld line%s not JSON (line %ld%s): left out",
                               t->path, l->damaged, l->damaged == 1 ? " is" : "s are",
                               l->first_damaged, l->damaged == 1 ? "" : " first");
}

/* Pipes and devices have no end. */
static FILE *open_file(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    bool plain = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    FILE *file = plain ? fdopen(fd, "rb") : NULL;
    int wrong = plain ? errno : EINVAL; /* as good as any */
    if (!file)
        close(fd);
    errno = wrong;
    return file;
}

/* Skips what does not exist, is not a file or is not readable for us; a failed read is an error, so
 * that no report lacks a part. */
static dro_status cannot_read(dro_report *report, const char *path, int wrong)
{
    if (wrong == ENOENT)
        return DRO_OK;
    if (wrong == ENOMEM)
        return dro__report_memory(report);
    if (wrong != EACCES && wrong != EINVAL && wrong != ELOOP && wrong != ENOTDIR)
        return dro__fail(report->ctx, DRO_ERR_FILE, "%s: cannot read it: %s", path,
                         strerror(wrong));
    dro__report_add_remark(report, "%s: cannot read it: %s", path, strerror(wrong));
    return DRO_OK;
}

static dro_status read_metrics(dro_report *report, dro__trial *t)
{
    char path[4200], *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    lines l = {0};
    bool fine = true;
    snprintf(path, sizeof path, "%s/metrics.jsonl", t->path);
    FILE *file = open_file(path);
    if (!file)
        return cannot_read(report, path, errno);
    while (fine && (size = getline(&line, &capacity, file)) > 0)
        fine = take_line(t, &l, line, (size_t)size);
    dro_status status = DRO_OK;
    if (fine && !feof(file)) /* a failed read, or no memory for a line */
        status = cannot_read(report, path, ferror(file) && errno ? errno : ENOMEM);
    fclose(file);
    json_t *last = l.last ? dro__json_line(l.last, l.last_size) : NULL;
    if (last)
        take_figures(t, last, false);
    json_decref(last);
    say_lines(report, t, &l);
    free(l.last);
    free(line);
    return fine ? status : dro__report_memory(report);
}

/* ---- the folder ---- */

/* 0, or errno. */
static int read_text(const char *path, dro__buffer *text)
{
    char block[1 << 14];
    size_t size;
    FILE *file = open_file(path);
    if (!file)
        return errno;
    while ((size = fread(block, 1, sizeof block, file)) > 0)
        dro__buffer_bytes(text, block, size);
    int wrong = ferror(file) ? (errno ? errno : EIO) : text->failed ? ENOMEM : 0;
    fclose(file);
    return wrong;
}

/* An object, or NULL if missing, or damaged (noted if `tell`); *status: the file could not be
 * read. */
static json_t *read_object(dro_report *report, const char *folder, const char *name, bool tell,
                           dro_status *status)
{
    char path[4300];
    json_error_t error = {0};
    dro__buffer text = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int wrong = *status == DRO_OK ? read_text(path, &text) : ENOENT;
    json_t *object = !wrong && text.size ? dro__json_line(text.bytes, text.size) : NULL;
    if (wrong && *status == DRO_OK)
        *status = cannot_read(report, path, wrong);
    if (!object && !wrong && tell) {
        if ((object = json_loadb(text.size ? text.bytes : "", text.size, 0, &error)))
            snprintf(error.text, sizeof error.text, "not a JSON object");
        dro__report_add_remark(report, "%s: %s: left out", path, error.text);
        json_decref(object);
        object = NULL;
    }
    dro__buffer_free(&text);
    return object;
}

static void take_config(dro__trial *t, json_t *config)
{
    add_settings(t, "", config, 0);
    dro__json_set_text(&t->optimizer, config, "optimizer");
    dro__json_set_text(&t->model, config, "model");
    dro__json_set_text(&t->backend, config, "backend");
    dro__json_set_text(&t->seed, config, "seed");
    dro__json_set_numbers(&t->counts, &t->count_count, config, "class_counts");
}

static void take_objective(dro__trial *t, const json_t *result)
{
    char text[200];
    const char *over = json_string_value(dro__json_at(result, "F.over"));
    const char *name = json_string_value(dro__json_at(result, "F.objective"));
    double lambda = dro__json_number(result, "F.lambda");
    if (!over)
        return;
    if (name)
        snprintf(text, sizeof text, "%.60s over %.100s", name, over);
    else if (isfinite(lambda))
        snprintf(text, sizeof text, "lambda %.6g over %.100s", lambda, over);
    else
        snprintf(text, sizeof text, "the mean loss");
    t->objective = dro__copy_text(text);
}

static void forget_measures(dro__trial *t)
{
    for (int k = 0; k < DRO_MEASURES; k++)
        t->measures[k] = NAN;
}

static void take_result(dro__trial *t, const json_t *result)
{
    const char *ended = json_string_value(dro__json_at(result, "ended"));
    t->finished = true;
    t->diverged = ended && strcmp(ended, "diverged") == 0;
    dro__json_set_text(&t->optimizer, result, "optimizer");
    dro__json_set_text(&t->model, result, "model");
    dro__json_set_text(&t->backend, result, "backend");
    dro__json_set_text(&t->seed, result, "seed");
    dro__json_set_text(&t->data_sum, result, "data_checksum");
    take_figures(t, result, true);
    take_objective(t, result);
    dro__trial_rare(t);
    if (t->diverged) /* these are its checkpoint's */
        forget_measures(t);
    set_names(&t->class_names, &t->name_count, dro__json_at(result, "classes"));
    set_names(&t->group_names, &t->group_count, dro__json_at(result, "groups"));
}

/* A run with a name is known by it. */
static void name_by_label(dro__trial *t)
{
    const char *label = dro__trial_label(t);
    char *copy = label && *label ? dro__copy_text(label) : NULL;
    if (!copy)
        return;
    dro__free(t->optimizer);
    t->optimizer = copy;
}

/* Without a file, the folder's name is used: recover-seed3. */
static void name_by_folder(dro__trial *t)
{
    const char *slash = strrchr(t->path, '/'), *name = slash && slash[1] ? slash + 1 : t->path;
    char *copy = t->optimizer && t->seed ? NULL : dro__copy_text(name);
    char *seed = copy ? strstr(copy, "-seed") : NULL;
    if (seed) {
        *seed = '\0';
        if (!t->seed)
            t->seed = dro__copy_text(seed + 5);
    }
    if (copy && !t->optimizer)
        t->optimizer = dro__copy_text(*copy ? copy : name);
    dro__free(copy);
}

bool dro__trial_configured(dro_report *report, const char *folder, dro_status *status)
{
    json_t *config = read_object(report, folder, "config.json", false, status);
    bool found = json_is_string(dro__json_at(config, "optimizer"));
    json_decref(config);
    return found;
}

dro_status dro__trial_read(dro_report *report, const char *folder, dro__trial **trial)
{
    dro__trial *t = dro__alloc(1, sizeof *t);
    *trial = NULL;
    if (!t || !(t->path = dro__copy_text(folder))) {
        dro__trial_destroy(t);
        return dro__report_memory(report);
    }
    forget_measures(t);
    dro_status status = DRO_OK;
    json_t *config = read_object(report, folder, "config.json", true, &status);
    if (config)
        take_config(t, config);
    if (status == DRO_OK)
        status = read_metrics(report, t);
    json_t *result = read_object(report, folder, "result.json", true, &status);
    json_t *best = read_object(report, folder, "../best.json", false, &status);
    json_t *settings = json_object_get(result, "settings");
    if (!config && settings) /* a result without the rest of its run */
        take_config(t, settings);
    if (result)
        take_result(t, result);
    t->sweep = dro__sweep_read(best, config ? config : settings, t->diverged ? NULL : result);
    if (config)
        set_names(&t->class_names, &t->name_count, dro__json_at(config, "classes"));
    if (status == DRO_OK && !config && !result && t->evaluation_count == 0)
        status = dro__fail(report->ctx, DRO_ERR_DATA,
                           "%s: nothing in this run can be read: its metrics.jsonl, result.json "
                           "and config.json are missing, empty or damaged",
                           folder);
    json_decref(config);
    json_decref(result);
    json_decref(best);
    name_by_label(t);
    name_by_folder(t);
    if (status == DRO_OK && !t->optimizer)
        status = dro__report_memory(report);
    if (status != DRO_OK) {
        dro__trial_destroy(t);
        return status;
    }
    if (!t->finished)
        dro__report_add_remark(report,
                               "%s: no result.json: the run has not ended; its last evaluation %s",
                               folder, t->evaluation_count ? "counts" : "is missing, too");
    if (t->diverged)
        dro__report_add_remark(report, "%s: diverged: its figures are left out", folder);
    else if (t->split && strcmp(t->split, "test") != 0)
        dro__report_add_remark(report, "%s: there is no test set: figures are of the %s set",
                               folder, t->split);
    *trial = t;
    return DRO_OK;
}

#else

bool dro__trial_configured(dro_report *report, const char *folder, dro_status *status)
{
    (void)report, (void)folder, (void)status;
    return false;
}

dro_status dro__trial_read(dro_report *report, const char *folder, dro__trial **trial)
{
    *trial = NULL;
    return dro__fail(report->ctx, DRO_ERR_UNSUPPORTED,
                     "%s: run folders hold JSON, which this libdro was built without: build with "
                     "the package libjansson-dev",
                     folder);
}

#endif
