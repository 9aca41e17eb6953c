/* The folder of many runs: plan.json lists its runs and how each was started, so that the same
 * command resumes and another one is refused; report.html shows them. */
#include "runs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_SIZE = 4352, AWAIT_NS = 50000000 };

static int make_folder(const char *folder)
{
    char path[PATH_SIZE];
    if (!*folder || strlen(folder) > PATH_SIZE - 300)
        return cli_usage("--out: the path of the folder is empty or too long");
    strcpy(path, folder);
    for (char *at = path + 1;; at++) {
        char now = *at;
        if (now && now != '/')
            continue;
        *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return cli_fail("cannot make the folder %s: %s", path, strerror(errno));
        *at = now;
        if (!now)
            return 0;
    }
}

static int lock_folder(cli_runs *runs)
{
    runs->lock = open(runs->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (runs->lock < 0)
        return cli_fail("cannot open the folder %s: %s", runs->folder, strerror(errno));
    if (flock(runs->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0;
    return cli_fail("%s: another process is making runs there", runs->folder);
}

int cli_runs_write(const cli_runs *runs, const char *name, json_t *document)
{
    char path[PATH_SIZE], part[PATH_SIZE + 8];
    snprintf(path, sizeof path, "%s/%s", runs->folder, name);
    snprintf(part, sizeof part, "%s.tmp", path);
    FILE *file = document ? fopen(part, "w") : NULL;
    bool fine = file && json_dumpf(document, file, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) == 0;
    fine = file && fputc('\n', file) != EOF && fine;
    fine = file && fflush(file) == 0 && fsync(fileno(file)) == 0 && fine;
    int wrong = errno;
    fine = file && fclose(file) == 0 && fine;
    json_decref(document);
    if (fine && rename(part, path) == 0)
        return 0;
    wrong = fine ? errno : wrong;
    remove(part);
    return cli_fail("cannot write %s: %s", path, strerror(wrong));
}

/* ---- the plan ---- */

/* A setting that differs between both, or NULL; preferably one that the user gave. */
static const char *differing(json_t *a, json_t *b)
{
    const char *found = NULL, *name, *follows = "report_";
    for (int turn = 0; turn < 2; turn++) {
        json_t *one = turn ? b : a, *other = turn ? a : b, *value;
        json_object_foreach(one, name, value)
        {
            if (!json_equal(value, json_object_get(other, name)) &&
                (!found || strncmp(found, follows, strlen(follows)) == 0))
                found = name;
        }
    }
    return found;
}

static bool has_run(const cli_runs *runs, const cli_one *one)
{
    char path[PATH_SIZE + 300];
    snprintf(path, sizeof path, "%s/%s/config.json", runs->folder, one->name);
    return access(path, F_OK) == 0;
}

static int check_plan(const cli_runs *runs, json_t *plan)
{
    for (int k = 0; k < runs->count; k++) {
        const cli_one *one = &runs->list[k];
        json_t *old = json_object_get(plan, one->name);
        if (!has_run(runs, one))
            continue;
        if (!json_is_object(old))
            return cli_fail("%s/%s holds a run that this command did not start: choose another "
                            "folder with --out",
                            runs->folder, one->name);
        json_t *now = cli_runs_settings(runs, one);
        const char *other = differing(now, old);
        int status = 0;
        if (other)
            status = cli_fail("%s/%s holds a run with other settings (at %s): give the same ones, "
                              "or choose another folder with --out",
                              runs->folder, one->name, other);
        json_decref(now);
        if (status)
            return status;
    }
    return 0;
}

static int make_plan(cli_runs *runs)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/config.json", runs->folder);
    if (access(path, F_OK) == 0)
        return cli_fail("%s already holds a run of `dro train`: choose another folder with --out",
                        runs->folder);
    snprintf(path, sizeof path, "%s/plan.json", runs->folder);
    json_t *plan = cli_file_json(path);
    if (!json_is_object(plan)) {
        json_decref(plan);
        plan = json_object();
    }
    int status = check_plan(runs, plan);
    for (int k = 0; k < runs->count && status == 0; k++)
        json_object_set_new(plan, runs->list[k].name, cli_runs_settings(runs, &runs->list[k]));
    if (status == 0)
        return cli_runs_write(runs, "plan.json", plan);
    json_decref(plan);
    return status;
}

void cli_runs_await(const cli_runs *runs, const cli_one *one)
{
    char path[PATH_SIZE + 300];
    snprintf(path, sizeof path, "%s/%s", runs->folder, one->name);
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool reported = false;
    while (lock >= 0 && !cli_stopped() && flock(lock, LOCK_EX | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK) {
        if (!reported)
            cli_fail("%s: another process is training there: waiting for it", path);
        reported = true;
        nanosleep(&(struct timespec){.tv_nsec = AWAIT_NS}, NULL);
    }
    if (lock >= 0)
        close(lock);
}

static int prepare(cli_runs *runs)
{
    int status = make_folder(runs->folder);
    status = status ? status : lock_folder(runs);
    return status ? status : make_plan(runs);
}

/* Another rank has failed, or is gone. */
static int broken(const cli_runs *runs)
{
    cli_mute(!dro_comm_prints(runs->comm));
    return cli_fail("%s: run the same command again to resume", dro_context_error(runs->ctx));
}

/* Every rank runs its share; then rank 0 continues alone. */
static int share_out(cli_runs *runs)
{
    int rank = dro_comm_rank(runs->comm), status = rank == 0 ? prepare(runs) : 0;
    if (dro_comm_barrier(runs->comm, &status) != DRO_OK)
        return broken(runs);
    if (status)
        return status;
    status = cli_runs_train(runs);
    if (dro_comm_barrier(runs->comm, &status) != DRO_OK)
        return broken(runs);
    if (rank == 0 && status == 0)
        status = cli_runs_collect(runs);
    return status;
}

int cli_runs_go(cli_runs *runs)
{
    int status = cli_ranks_join(runs->args, runs->ctx, &runs->comm);
    if (status == 0 && !runs->comm) {
        status = prepare(runs);
        return status ? status : cli_runs_train(runs);
    }
    int rank = dro_comm_rank(runs->comm);
    status = status ? status : share_out(runs);
    dro_comm_close(runs->comm);
    runs->comm = NULL;
    if (rank > 0)
        exit(status);
    return status;
}

void cli_runs_close(cli_runs *runs)
{
    for (int k = 0; k < runs->count; k++) {
        dro_settings_destroy(runs->list[k].settings);
        free(runs->list[k].name);
    }
    free(runs->list);
    if (runs->lock >= 0)
        close(runs->lock);
    json_decref(runs->config);
    dro_context_destroy(runs->ctx);
}

/* ---- what came out ---- */

json_t *cli_runs_result(const cli_runs *runs, const cli_one *one)
{
    char path[PATH_SIZE + 300];
    snprintf(path, sizeof path, "%s/%s/result.json", runs->folder, one->name);
    return cli_file_json(path);
}

double cli_runs_rate(const cli_runs *runs)
{
    double examples = 0;
    for (int k = 0; k < runs->count; k++) {
        const cli_one *one = &runs->list[k];
        if (one->earlier || one->before > 0)
            continue;
        json_t *result = cli_runs_result(runs, one);
        examples += json_number_value(json_object_get(result, "examples"));
        json_decref(result);
    }
    return runs->ended > runs->began ? examples / (runs->ended - runs->began) : 0;
}

bool cli_runs_diverged(const cli_runs *runs, const cli_one *one)
{
    json_t *result = cli_runs_result(runs, one);
    const char *ended = json_string_value(json_object_get(result, "ended"));
    bool diverged = ended && strcmp(ended, "diverged") == 0;
    json_decref(result);
    return diverged;
}

json_t *cli_runs_json(const cli_runs *runs)
{
    static const char *const states[] = {"waiting",  "running", "done",
                                         "diverged", "stopped", "failed"};
    json_t *list = json_array();
    for (int k = 0; k < runs->count; k++) {
        const cli_one *one = &runs->list[k];
        char folder[PATH_SIZE + 300];
        snprintf(folder, sizeof folder, "%s/%s", runs->folder, one->name);
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:b}", "optimizer", one->optimizer,
                                              "folder", cli_path_json(folder), "state",
                                              states[one->state], "earlier", (int)one->earlier));
    }
    return list;
}

dro_report *cli_runs_report(const cli_runs *runs, char *path, size_t size)
{
    dro_report *report = NULL;
    dro_status status = dro_report_create(runs->ctx, &report);
    for (int k = 0; k < runs->count && status == DRO_OK; k++) {
        char folder[PATH_SIZE + 300];
        snprintf(folder, sizeof folder, "%s/%s", runs->folder, runs->list[k].name);
        if (access(folder, F_OK) == 0)
            status = dro_report_add(report, folder);
    }
    snprintf(path, size, "%s/report.html", runs->folder);
    if (status == DRO_OK)
        status = dro_report_html(report, path);
    if (status == DRO_OK)
        return report;
    cli_fail("%s", dro_context_error(runs->ctx));
    dro_report_destroy(report);
    return NULL;
}
