/* Saving a run in a checkpoint, and resuming it. */
#include "events.h"
#include "isa.h"
#include "train.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Files that have the names of a run's files, in a folder that holds no run, belong to the user.
 * Links, pipes and devices under these names do not belong to a run: it would overwrite what a link
 * points to, or block. */
static dro_status check_files(const dro_train *t, bool resume)
{
    static const char *const names[] = {"weights.safetensors", "last.safetensors", "result.json",
                                        "last.ckpt",           "previous.ckpt",    "metrics.jsonl",
                                        DRO__EVENTS_NAME};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bool plain, found = dro__file_at(t->folder, names[k], &plain);
        if (found && !resume)
            return dro__fail(t->ctx, DRO_ERR_FILE,
                             "%s has a file %s and no config.json: a run there would overwrite it; "
                             "choose another folder",
                             t->folder, names[k]);
        if (found && !plain)
            return dro__fail(t->ctx, DRO_ERR_FILE,
                             "%s/%s is not a regular file: expected one, or none", t->folder,
                             names[k]);
    }
    return DRO_OK;
}

dro_status dro__run_check_folder(const dro_train *t, bool resume)
{
    char *old = NULL;
    size_t size;
    const char *sign = resume ? "result.json" : "config.json";
    if (t->folder && (!resume || !dro__checkpoint_exists(t->folder)))
        DRO_TRY(dro__file_read(t->ctx, t->folder, sign, &old, &size));
    bool found = old != NULL;
    dro__free(old);
    if (found && resume)
        return dro__fail(t->ctx, DRO_ERR_FILE,
                         "%s: the run has ended, with a result.json, and has no checkpoint: "
                         "there is nothing to resume from; choose another folder to run it again",
                         t->folder);
    if (found)
        return dro__fail(t->ctx, DRO_ERR_FILE,
                         "%s already holds a run: resume it, or choose another folder", t->folder);
    return t->folder ? check_files(t, resume) : DRO_OK;
}

double dro__wall(const dro_train *t)
{
    return t->before + dro__clock() - t->began;
}

enum { MACHINE_SIZE = 128 };

/* Besides the settings, what determines the last bits of a step's results. */
static void describe_machine(const dro_train *t, char text[MACHINE_SIZE])
{
    char ranks[24] = ""; /* those of one process are as in earlier versions */
    if (dro_comm_size(t->comm) > 1)
        snprintf(ranks, sizeof ranks, " ranks=%d", dro_comm_size(t->comm));
    snprintf(text, MACHINE_SIZE, "backend=%.40s threads=%d instructions=%s%s",
             t->ctx->backend->name, t->ctx->threads, dro__cpu_isa_name(dro__cpu_isa()), ranks);
}

/* Removes the word that begins so. */
static void leave_out(char *text, const char *beginning)
{
    char *word = strstr(text, beginning);
    if (word)
        memmove(word, word + 1 + strcspn(word + 1, " "),
                strlen(word + 1 + strcspn(word + 1, " ")) + 1);
}

static void compare_machine(const dro_train *t, const char *saved)
{
    char now[MACHINE_SIZE], then[MACHINE_SIZE];
    describe_machine(t, now);
    snprintf(then, sizeof then, "%s", saved);
    for (int k = 0; k < 2 && t->set.exact; k++) { /* neither changes anything */
        leave_out(k ? now : then, " threads=");
        leave_out(k ? now : then, " ranks=");
    }
    if (strcmp(then, now) != 0)
        dro__note(t,
                  "note: the run was made with %s and resumes with %s: its weights may differ in "
                  "the last bits from those of an uninterrupted run",
                  then, now);
}

/* Whether the optimiser's state is that of dro__run_anew(), whatever happens to the files that the
 * settings name. */
static bool is_start(const dro_train *t)
{
    const dro__run *r = &t->opt->run;
    return r->step == 0 && r->examples == 0 && r->eta_scale == 1 && !*t->set.init;
}

dro_status dro__run_save(dro_train *t)
{
    char machine[MACHINE_SIZE];
    if (!t->folder)
        return DRO_OK;
    DRO_TRY(dro__ranks_average(t));
    dro__ranks_done(t, DRO__WANT_SAVE);
    t->saved_at = dro__clock();
    if (!dro__writes(t))
        return DRO_OK;
    describe_machine(t, machine);
    t->progress.wall = dro__wall(t);
    DRO_TRY(dro__async_pull(t->opt));
    if (t->task.net)
        DRO_TRY(dro_net_statistics(t->task.net, t->statistics));
    dro__saved saved = {.progress = t->progress,
                        .settings = t->identity,
                        .machine = machine,
                        .statistics = t->statistics,
                        .best_w = t->progress.have_best ? t->best_w : NULL,
                        .best_statistics = t->best_statistics,
                        .dim = t->task.dim,
                        .statistics_count = dro__task_statistics(&t->task),
                        .opt = is_start(t) ? NULL : t->opt};
    dro_status status = t->stream ? dro__stream_save(t, &saved.more, &saved.more_size) : DRO_OK;
    double start = dro__clock();
    if (status == DRO_OK)
        status = dro__checkpoint_write(t->ctx, t->folder, &saved);
    if (saved.opt)
        dro__count_written(t, (double)dro__optimizer_put_size(t->opt), start);
    dro__free(saved.more);
    t->saved_at = dro__clock();
    return status;
}

/* Settings are texts of lines "name=value". */
static const char *next_line(const char *line)
{
    size_t size = strcspn(line, "\n");
    return line + size + (line[size] == '\n');
}

/* The line of a text that has the name of another line, or NULL. */
static const char *find_line(const char *text, const char *like)
{
    size_t size = strcspn(like, "=\n") + 1;
    while (*text && strncmp(text, like, size) != 0)
        text = next_line(text);
    return *text ? text : NULL;
}

/* Whether the setting of a line is not given, or given as its default. */
static bool is_default(const dro_train *t, const char *line)
{
    char name[64], value[DRO__TEXT_MAX];
    dro_setting setting;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "="), line);
    if (!dro_settings_given(t->settings, name) ||
        dro_settings_get(t->settings, name, value, sizeof value) != DRO_OK)
        return true;
    for (int k = 0; dro_setting_at(k, &setting) == DRO_OK; k++)
        if (strcmp(setting.param.name, name) == 0)
            return strcmp(setting.param.fallback, value) == 0;
    return true;
}

static dro_status refuse(const dro_train *t, const char *saved, const char *now)
{
    enum { MOST = 150 };
    const char *line = saved ? saved : now;
    int size = (int)strcspn(line, "\n"), other = now ? (int)strcspn(now, "\n") : 0;
    size = size < MOST ? size : MOST;
    if (!saved)
        return dro__fail(t->ctx, DRO_ERR_FORMAT,
                         "%s: the run was made by a version without the setting %.*s: leave it "
                         "out, or start again in another folder",
                         t->folder, size, line);
    if (!now)
        return dro__fail(t->ctx, DRO_ERR_FORMAT,
                         "%s: the run was made with %.*s, which is not set here: restore that "
                         "setting, or start again in another folder",
                         t->folder, size, line);
    static const char sum[] = "checksum of the training examples=";
    if (strncmp(line, sum, sizeof sum - 1) == 0)
        return dro__fail(t->ctx, DRO_ERR_FORMAT,
                         "%s: the training data has changed since the run was started: restore the "
                         "data, or start again in another folder",
                         t->folder);
    return dro__fail(t->ctx, DRO_ERR_FORMAT,
                     "%s: the run was made with %.*s, not with %.*s: restore that setting, or "
                     "start again in another folder",
                     t->folder, size, line, other < MOST ? other : MOST, now);
}

/* A setting that the checkpoint of an earlier version does not have counts as its default. */
static dro_status compare_settings(const dro_train *t, const char *saved)
{
    for (const char *b = t->identity; *b; b = next_line(b)) {
        const char *a = find_line(saved, b);
        if (a ? strncmp(a, b, strcspn(b, "\n") + 1) != 0 : !is_default(t, b))
            return refuse(t, a, b);
    }
    for (const char *a = saved; *a; a = next_line(a))
        if (!find_line(t->identity, a))
            return refuse(t, a, NULL);
    return DRO_OK;
}

static dro_status take(dro_train *t, const dro__saved *s)
{
    size_t statistics = dro__task_statistics(&t->task);
    DRO_TRY(compare_settings(t, s->settings));
    if (s->dim != t->task.dim || s->statistics_count != statistics)
        return dro__fail(t->ctx, DRO_ERR_FORMAT, "%s: the checkpoint is of another model",
                         t->folder);
    if (s->state_size) {
        DRO_TRY(dro__run_begin(t));
        DRO_TRY(dro__optimizer_take(t->opt, s->state, s->state_size));
    } else {
        DRO_TRY(dro__run_anew(t));
    }
    if (t->stream || t->opt->run.step < t->steps)
        compare_machine(t, s->machine);
    if (t->task.net)
        DRO_TRY(dro_net_set_statistics(t->task.net, s->statistics));
    t->progress = s->progress;
    if (t->stream)
        DRO_TRY(dro__stream_load(t, s->more, s->more_size));
    if (s->best_w && t->best_w) {
        memcpy(t->best_w, s->best_w, t->task.dim * sizeof(float));
        memcpy(t->best_statistics, s->best_statistics, statistics * sizeof(float));
    }
    return dro__run_cut_files(t);
}

dro_status dro__run_load(dro_train *t, bool *found)
{
    dro__saved saved = {0};
    char note[DRO__ERROR_SIZE] = "";
    bool returning = t->opt->run.examples > 0; /* to what this process has written */
    t->written = (dro__written){0};
    dro_status read =
        dro__writes(t) ? dro__checkpoint_read(t->ctx, t->folder, &saved, found, note) : DRO_OK;
    if (read == DRO_OK && note[0] && returning) { /* previous.ckpt would make another run of it */
        dro__saved_free(&saved);
        read = dro__fail(t->ctx, DRO_ERR_FILE, "%s", note);
    }
    DRO_TRY(dro__ranks_share_saved(t, &saved, found, read));
    if (!*found)
        return DRO_OK;
    if (note[0])
        dro__note(t, "%s: resuming from previous.ckpt", note);
    dro_status status = take(t, &saved);
    dro__saved_free(&saved);
    return status;
}

void dro__run_forget(dro_train *t)
{
    static const char *const files[] = {"metrics.jsonl", DRO__EVENTS_NAME, "last.ckpt",
                                        "previous.ckpt", "config.json"};
    if (!t->begun || t->lock < 0 || !t->opt || t->opt->run.examples > 0 ||
        t->ended == DRO_TRAIN_DIVERGED) /* that run may have returned to its start */
        return;
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
        unlinkat(t->lock, files[k], 0);
    if (t->made)
        rmdir(t->folder); /* other files in the folder stay, and so does the folder */
}
