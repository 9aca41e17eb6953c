/* Reports (dro/report.h): finding runs in folders and grouping them into methods.
 *
 * Two runs belong to one method when their optimiser is the same and no setting differs but those
 * in `personal`. Where settings differ, as in a sweep, the method's name shows them: "recover
 * lambda=5". Runs of one label are one method whatever the optimiser's and the network's settings
 * are: each may be tuned. */
#define _GNU_SOURCE /* versionsort */
#include "report.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVELS = 2, RUNS_MOST = 10000, PATH_MOST = 4096, NAME_MOST = 200 };

/* Settings that may differ between runs of one method, or that do not affect the results. */
static const char *const personal[] = {"seed",    "out",  "folder",  "dir",     "resume",
                                       "threads", "jobs", "config",  "command", "version",
                                       "name",    "date", "started", "host",    "init"};

/* Nothing in a name may move a terminal's cursor. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* ---- the object ---- */

dro_status dro_report_create(dro_context *ctx, dro_report **report)
{
    if (report)
        *report = NULL;
    if (!ctx || !report)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    if (!(*report = dro__alloc(1, sizeof **report)))
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a report");
    (*report)->ctx = ctx;
    return DRO_OK;
}

static void forget_methods(dro_report *report)
{
    for (int32_t k = 0; k < report->method_count; k++)
        dro__free((char *)report->methods[k].name);
    dro__free(report->methods);
    report->methods = NULL;
    report->method_count = 0;
}

static void cut_notes(dro_report *report, size_t count)
{
    while (report->note_count > count)
        dro__free(report->notes[--report->note_count]);
}

static void cut_trials(dro_report *report, size_t count)
{
    while (report->trial_count > count)
        dro__trial_destroy(report->trials[--report->trial_count]);
}

void dro_report_destroy(dro_report *report)
{
    if (!report)
        return;
    forget_methods(report);
    cut_notes(report, 0);
    cut_trials(report, 0);
    free(report->notes);
    free(report->trials);
    dro__free(report);
}

dro_status dro__report_memory(dro_report *report)
{
    return dro__fail(report->ctx, DRO_ERR_MEMORY, "no memory for the report");
}

void dro__report_add_remark(dro_report *report, const char *format, ...)
{
    char text[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (report->note_count == report->note_capacity) {
        char **more = realloc(report->notes, (2 * report->note_capacity + 8) * sizeof *more);
        if (!more) {
            dro__memory_lost();
            return;
        }
        report->notes = more;
        report->note_capacity = 2 * report->note_capacity + 8;
    }
    make_printable(text);
    if ((report->notes[report->note_count] = dro__copy_text(text)))
        report->note_count++;
}

const char *dro_report_remark(const dro_report *report, int32_t index)
{
    return report && index >= 0 && (size_t)index < report->note_count ? report->notes[index] : NULL;
}

bool dro__report_stream(const dro_report *report)
{
    for (size_t k = 0; k < report->trial_count; k++) {
        const char *value = dro__trial_setting(report->trials[k], "progressive");
        if (!value || strcmp(value, "yes") != 0)
            return false;
    }
    return report->trial_count > 0;
}

/* The split of all metrics, as an adjective. */
static const char *set_of(const dro_report *report)
{
    if (dro__report_stream(report))
        return "stream";
    const char *one = NULL;
    for (size_t k = 0; k < report->trial_count; k++) {
        const char *split = report->trials[k]->diverged ? NULL : report->trials[k]->split;
        if (split && one && strcmp(one, split) != 0)
            return "evaluated"; /* different splits: remarks say which */
        one = split ? split : one;
    }
    return !one || strcmp(one, "test") == 0 ? "test" : strcmp(one, "train") == 0 ? "training" : one;
}

const char *dro__report_title(const dro_report *report, const char *text, char out[DRO__TITLE])
{
    const char *set = set_of(report), *at = strstr(text, "est ");
    bool named = at && at > text && (at[-1] == 't' || at[-1] == 'T');
    if (!named) {
        snprintf(out, DRO__TITLE, "%s", text);
        return out;
    }
    int before = (int)(at - 1 - text);
    at += strcmp(set, "stream") == 0 && strncmp(at + 3, " set", 4) == 0 ? 7 : 3;
    snprintf(out, DRO__TITLE, "%.*s%s%s", before, text, set, at);
    if (text[before] == 'T')
        out[before] = (char)toupper(set[0]);
    return out;
}

int32_t dro_report_runs(const dro_report *report)
{
    return report ? (int32_t)report->trial_count : 0;
}

/* ---- finding runs ---- */

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MOST + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static dro_status add_run(dro_report *report, const char *folder)
{
    dro__trial *trial = NULL;
    char *real = realpath(folder, NULL);
    dro_status status = !real && errno == ENOMEM ? dro__report_memory(report) : DRO_OK;
    for (size_t k = 0; real && k < report->trial_count; k++)
        if (report->trials[k]->real && strcmp(report->trials[k]->real, real) == 0) {
            free(real);
            return DRO_OK;
        }
    if (report->trial_count == RUNS_MOST)
        status = dro__fail(report->ctx, DRO_ERR_RANGE, "%s: more than %d runs in one report",
                           folder, RUNS_MOST);
    if (status == DRO_OK && report->trial_count == report->trial_capacity) {
        dro__trial **more =
            realloc(report->trials, (2 * report->trial_capacity + 8) * sizeof *more);
        report->trials = more ? more : report->trials;
        report->trial_capacity = more ? 2 * report->trial_capacity + 8 : report->trial_capacity;
        status = more ? DRO_OK : dro__report_memory(report);
    }
    if (status == DRO_OK)
        status = dro__trial_read(report, folder, &trial);
    if (status == DRO_OK) {
        trial->real = real ? dro__copy_text(real) : NULL;
        report->trials[report->trial_count++] = trial;
    }
    free(real);
    return status;
}

static int is_folder_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* A folder with metrics is a run. One without may hold runs; only if it holds none can a result or
 * settings alone make it one. *found counts those that were there, new or not. */
static dro_status scan(dro_report *report, const char *folder, int levels, int *found)
{
    struct dirent **entries = NULL;
    dro_status status = DRO_OK;
    int count = 0, before = *found;
    if (has_file(folder, "metrics.jsonl")) {
        ++*found;
        return add_run(report, folder);
    }
    if (levels > 0)
        count = scandir(folder, &entries, is_folder_name, versionsort);
    if (count < 0)
        return dro__fail(report->ctx, DRO_ERR_FILE, "%s: cannot read the folder: %s", folder,
                         strerror(errno));
    for (int k = 0; k < count; k++) {
        char path[PATH_MOST];
        int size = snprintf(path, sizeof path, "%s/%s", folder, entries[k]->d_name);
        if (status == DRO_OK && size < (int)sizeof path && is_folder(path))
            status = scan(report, path, levels - 1, found);
        free(entries[k]);
    }
    free(entries);
    if (status == DRO_OK && *found == before &&
        (has_file(folder, "result.json") || dro__trial_configured(report, folder, &status))) {
        ++*found;
        status = status == DRO_OK ? add_run(report, folder) : status;
    }
    return status;
}

static dro_status check_folder(dro_report *report, const char *folder)
{
    struct stat about;
    if (strlen(folder) >= PATH_MOST - 300)
        return dro__fail(report->ctx, DRO_ERR_ARGUMENT, "%.100s...: the path is too long", folder);
    if (stat(folder, &about) != 0)
        return dro__fail(report->ctx, DRO_ERR_FILE, "%s: %s", folder,
                         errno == ENOENT ? "no such folder" : strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return dro__fail(report->ctx, DRO_ERR_FILE,
                         "%s: is a file: expected a run folder, or a folder of run folders",
                         folder);
    return DRO_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* A remark if a run from `first` on names the same data as an earlier one, with the same seed, and
 * their training examples differ. */
static void remark_data(dro_report *report, size_t first)
{
    for (size_t k = first; k < report->trial_count; k++)
        for (size_t j = 0; j < k; j++) {
            const dro__trial *a = report->trials[j], *b = report->trials[k];
            if (!a->data_sum || !b->data_sum || !same_text(a->seed, b->seed) ||
                !same_text(dro__trial_setting(a, "data"), dro__trial_setting(b, "data")))
                continue;
            if (same_text(a->data_sum, b->data_sum))
                break;
            dro__report_add_remark(report,
                                   "%s, %s: the training data is not the same: it has changed "
                                   "between the runs, or their settings prepare it differently",
                                   a->path, b->path);
            return;
        }
}

dro_status dro_report_add(dro_report *report, const char *folder)
{
    char path[PATH_MOST];
    int found = 0;
    if (!report || !folder)
        return DRO_ERR_ARGUMENT;
    dro__forget(report->ctx);
    size_t trials = report->trial_count, notes = report->note_count;
    DRO_TRY(check_folder(report, folder));
    snprintf(path, sizeof path, "%s", folder);
    for (size_t size = strlen(path); size > 1 && path[size - 1] == '/'; size--)
        path[size - 1] = '\0';
    dro__json_watch(); /* no run is read by halves */
    dro_status status = scan(report, path, LEVELS, &found);
    if (status == DRO_OK && dro__memory_ran_out())
        status = dro__report_memory(report);
    if (status == DRO_OK && found == 0)
        status = dro__fail(report->ctx, DRO_ERR_DATA,
                           "%s: is not a run: expected metrics.jsonl or result.json in it, or in "
                           "the folders below it",
                           folder);
    if (status != DRO_OK) {
        cut_trials(report, trials);
        cut_notes(report, notes);
        return status;
    }
    forget_methods(report);
    dro__report_find_objective(report);
    remark_data(report, trials);
    return DRO_OK;
}

/* ---- methods ---- */

bool dro__setting_personal(const char *name, bool labelled)
{
    const char *dot = strrchr(name, '.');
    if (labelled && (strncmp(name, "optimizer_settings.", 19) == 0 ||
                     strncmp(name, "network_settings.", 17) == 0 || strcmp(name, "recipe") == 0))
        return true;
    name = dot ? dot + 1 : name;
    for (size_t k = 0; k < sizeof personal / sizeof personal[0]; k++)
        if (strcmp(name, personal[k]) == 0)
            return true;
    return false;
}

/* The settings in which runs of one optimiser differ. */
typedef struct difference {
    const char *optimizer;
    const dro__trial *first; /* the run that others are compared with */
    const char **names;      /* (count), borrowed */
    size_t count;
    bool failed;
} difference;

static bool is_listed(const difference *d, const char *name)
{
    for (size_t k = 0; k < d->count; k++)
        if (strcmp(d->names[k], name) == 0)
            return true;
    return false;
}

static void list_differing(difference *d, const dro__trial *a, const dro__trial *b)
{
    const char *label = dro__trial_label(a);
    for (size_t k = 0; k < a->setting_count; k++) {
        const char *name = a->settings[k].name, *its = dro__trial_setting(b, name);
        if ((its && strcmp(its, a->settings[k].value) == 0) ||
            dro__setting_personal(name, label && *label) || is_listed(d, name))
            continue;
        const char **more = realloc(d->names, (d->count + 1) * sizeof *more);
        d->failed = d->failed || !more;
        if (!more)
            return;
        d->names = more;
        d->names[d->count++] = name;
    }
}

/* Runs without settings are not compared. */
static difference difference_of(const dro_report *report, const char *optimizer)
{
    difference d = {.optimizer = optimizer};
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        if (strcmp(t->optimizer, optimizer) != 0 || t->setting_count == 0)
            continue;
        if (!d.first)
            d.first = t;
        list_differing(&d, d.first, t);
        list_differing(&d, t, d.first);
    }
    return d;
}

static void name_setting(dro__buffer *name, const char *setting, const char *value)
{
    if (value && name->size < NAME_MOST)
        dro__buffer_print(name, "%s%s=%.60s", name->size ? " " : "", setting, value);
}

/* The name of the method that a run belongs to. Runs of a sweep are named after the settings tried,
 * as in `dro sweep`. */
static char *method_name(const dro_report *report, const difference *d, const dro__trial *t)
{
    dro__buffer name = {0};
    int32_t tried = t->sweep ? t->sweep->count : 0;
    bool alone = tried > 0;
    for (size_t k = 0; alone && k < report->trial_count; k++)
        alone = strcmp(report->trials[k]->optimizer, t->optimizer) == 0;
    dro__buffer_add(&name, alone ? "" : t->optimizer);
    for (int32_t k = 0; k < tried; k++)
        name_setting(&name, t->sweep->names[k], dro__setting_value(t, t->sweep->names[k]));
    for (size_t k = 0; k < d->count; k++) {
        const char *own = dro__setting_short(d->names[k]);
        if (!dro__sweep_has(t->sweep, own))
            name_setting(&name, own, dro__trial_setting(t, d->names[k]));
    }
    if (name.size == 0)
        dro__buffer_add(&name, t->optimizer);
    char *copy = name.failed || d->failed ? NULL : dro__copy_text(name.bytes);
    dro__buffer_free(&name);
    if (copy)
        make_printable(copy);
    return copy;
}

static bool place_trial(dro_report *report, const difference *d, dro__trial *t)
{
    char *name = method_name(report, d, t);
    if (!name)
        return false;
    for (t->method = 0; t->method < report->method_count; t->method++)
        if (strcmp(report->methods[t->method].name, name) == 0)
            break;
    dro_report_method *m = &report->methods[t->method];
    if (t->method == report->method_count) {
        m->name = name;
        report->method_count++;
    } else {
        dro__free(name);
    }
    m->runs++;
    m->unfinished += !t->finished;
    m->diverged += t->diverged;
    return true;
}

/* Runs are ordered by optimiser, in the order in which these first appear. */
static bool place_all(dro_report *report)
{
    bool fine = true;
    for (size_t k = 0; k < report->trial_count; k++)
        report->trials[k]->method = -1;
    for (size_t k = 0; fine && k < report->trial_count; k++) {
        if (report->trials[k]->method >= 0)
            continue;
        difference d = difference_of(report, report->trials[k]->optimizer);
        for (size_t i = k; fine && i < report->trial_count; i++)
            if (strcmp(report->trials[i]->optimizer, d.optimizer) == 0)
                fine = place_trial(report, &d, report->trials[i]);
        free(d.names);
    }
    return fine;
}

dro_status dro__report_prepare(dro_report *report)
{
    if (report->methods)
        return DRO_OK;
    double *values = dro__alloc(report->trial_count + 1, sizeof *values);
    report->methods = dro__alloc(report->trial_count + 1, sizeof *report->methods);
    bool fine = values && report->methods;
    fine = fine && place_all(report);
    for (int32_t m = 0; fine && m < report->method_count; m++)
        for (int v = 0; v < DRO_MEASURES; v++) {
            size_t count = 0;
            for (size_t k = 0; k < report->trial_count; k++)
                if (report->trials[k]->method == m)
                    values[count++] = report->trials[k]->measures[v];
            report->methods[m].measures[v] = dro__report_statistic(values, count);
        }
    dro__free(values);
    if (fine)
        return DRO_OK;
    forget_methods(report);
    return dro__report_memory(report);
}

dro_status dro_report_method_get(dro_report *report, int32_t index, dro_report_method *method)
{
    if (!report || !method)
        return DRO_ERR_ARGUMENT;
    dro__forget(report->ctx);
    DRO_TRY(dro__report_prepare(report));
    if (index < 0 || index >= report->method_count)
        return dro__fail(report->ctx, DRO_ERR_END, "method %d: there are %d", index,
                         report->method_count);
    *method = report->methods[index];
    return DRO_OK;
}

/* ---- measures ---- */

static const struct {
    const char *name, *title, *unit;
} measures[DRO_MEASURES] = {
#define X(name, code, title, better, unit, meaning) {#name, title, unit},
    DRO_MEASURE_LIST(X)
#undef X
};

static bool is_measure(dro_measure measure)
{
    return (int)measure >= 0 && measure < DRO_MEASURES;
}

const char *dro_measure_name(dro_measure measure)
{
    return is_measure(measure) ? measures[measure].name : NULL;
}

const char *dro_measure_title(dro_measure measure)
{
    return is_measure(measure) ? measures[measure].title : NULL;
}

const char *dro_measure_unit(dro_measure measure)
{
    return is_measure(measure) ? measures[measure].unit : NULL;
}
