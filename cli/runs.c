/* Running a list of runs: one process of this program for each (on a GPU one thread,
 * runs_thread.c), a limited number at a time. Their lines are read through pipes. A signal that
 * stops this program is passed on to them; each writes a checkpoint. */
#define _GNU_SOURCE
#include "runs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUIET = 60 }; /* seconds between plain lines of progress */

/* ---- starting one ---- */

static int make_actions(posix_spawn_file_actions_t *actions, int input, int end)
{
    int wrong = posix_spawn_file_actions_init(actions);
    if (!wrong)
        wrong = posix_spawn_file_actions_adddup2(actions, input, STDIN_FILENO);
    if (!wrong)
        wrong = posix_spawn_file_actions_adddup2(actions, end, STDOUT_FILENO);
    return wrong ? wrong : posix_spawn_file_actions_adddup2(actions, end, STDERR_FILENO);
}

static int spawn(cli_one *one, int input, char **words)
{
    int ends[2];
    char parent[32];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cli_fail("cannot start %s: %s", one->name, strerror(errno));
    snprintf(parent, sizeof parent, "%lld", (long long)getpid());
    setenv("DRO_PARENT", parent, 1);         /* main.c: it stops when this program is gone */
    setenv("DRO_ALONE", "1", 1);             /* it is not a rank, even if this program is one */
    setenv("OMP_WAIT_POLICY", "passive", 0); /* threads that wait leave their core to others */
    int wrong = make_actions(&actions, input, ends[1]);
    if (!wrong)
        wrong = posix_spawn(&one->pid, "/proc/self/exe", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (wrong) {
        close(ends[0]);
        return cli_fail("cannot start %s: %s", one->name, strerror(wrong));
    }
    one->pipe = ends[0];
    one->state = CLI_RUNNING;
    return 0;
}

/* The run's settings as a file in memory, which its process reads as standard input; -1 after a
 * line. */
static int settings_file(const cli_runs *runs, const cli_one *one)
{
    json_t *settings = cli_runs_settings(runs, one);
    int file = memfd_create("settings", MFD_CLOEXEC);
    bool fine = file >= 0 && json_dumpfd(settings, file, JSON_INDENT(2)) == 0;
    fine = fine && lseek(file, 0, SEEK_SET) == 0;
    json_decref(settings);
    if (fine)
        return file;
    cli_fail("cannot start %s: %s", one->name, strerror(errno));
    if (file >= 0)
        close(file);
    return -1;
}

static bool has_file(const cli_runs *runs, const cli_one *one, const char *name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s/%s", runs->folder, one->name, name);
    return access(path, R_OK) == 0;
}

static int start(const cli_runs *runs, cli_one *one)
{
    char out[4400], threads[40], backend[80];
    const char *name = dro_context_backend(runs->ctx);
    cli_runs_await(runs, one);
    if (strcmp(name, "cuda") == 0)
        return cli_thread_start(runs, one);
    snprintf(out, sizeof out, "--out=%s/%s", runs->folder, one->name);
    snprintf(threads, sizeof threads, "--threads=%d", runs->threads);
    snprintf(backend, sizeof backend, "--backend=%s", name);
    bool begun = has_file(runs, one, "config.json");
    const char *words[] = {
        "dro", "train", "--config=-", backend, threads, out, begun ? "--resume" : NULL, NULL};
    int input = settings_file(runs, one);
    if (input < 0)
        return 1;
    int status = spawn(one, input, (char **)words);
    close(input);
    return status;
}

/* ---- what it says ---- */

static void take_line(cli_one *one, const char *line)
{
    double epoch, epochs; /* or steps */
    char unit[8];
    if (sscanf(line, "%7[a-z] %lf/%lf", unit, &epoch, &epochs) == 3 && epochs > 0) {
        const char *accuracy = strstr(line, "  accuracy ");
        accuracy = accuracy ? accuracy : strstr(line, "  train accuracy ");
        if (one->share == 0) /* a resumed run does not start again */
            one->before = fmax(0, (epoch - 1) / epochs);
        one->share = fmin(1, epoch / epochs);
        snprintf(one->about, sizeof one->about, "%s %.4g/%.6g%.*s", unit, epoch, epochs,
                 accuracy ? (int)strcspn(accuracy, "%") : 0, accuracy ? accuracy + 1 : "");
    } else if (strncmp(line, "dro: ", 5) == 0) {
        snprintf(one->note, sizeof one->note, "%s", line + 5);
        if (strstr(line, "evaluated in pieces")) /* another rounding than that of other runs */
            cli_note(stderr, "%s: %s", one->name, one->note);
    }
}

/* False: its end of the pipe is closed. */
static bool take_bytes(cli_one *one)
{
    ssize_t size = read(one->pipe, one->line + one->used, sizeof one->line - 1 - one->used);
    if (size < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (size < 0) {
        snprintf(one->note, sizeof one->note, "its output cannot be read: %s", strerror(errno));
    }
    if (size <= 0)
        return false;
    one->used += (size_t)size;
    one->line[one->used] = '\0';
    char *begin = one->line, *end;
    while ((end = strchr(begin, '\n'))) {
        *end = '\0';
        take_line(one, begin);
        begin = end + 1;
    }
    one->used = strlen(begin);
    memmove(one->line, begin, one->used + 1);
    if (one->used + 1 == sizeof one->line) /* the beginning of a very long line is enough */
        one->used = 0;
    return true;
}

/* ---- what is shown ---- */

static int count_of(const cli_runs *runs, cli_state a, cli_state b)
{
    int count = 0;
    for (int k = 0; k < runs->count; k++)
        count += runs->list[k].state == a || runs->list[k].state == b;
    return count;
}

static void show_share(const char *name, const json_t *test)
{
    const json_t *value = json_object_get(test, name);
    if (json_is_number(value))
        printf("  %s %.1f %%",
               strcmp(name, "balanced_accuracy") == 0      ? "balanced"
               : strcmp(name, "worst_class_accuracy") == 0 ? "worst class"
                                                           : name,
               cli_percent(json_number_value(value)));
}

static void show_result(const cli_runs *runs, const cli_one *one)
{
    static const char *const splits[] = {"test", "holdout", "train"};
    json_t *result = cli_runs_result(runs, one), *test = NULL;
    int of = -1;
    while (!json_is_object(test) && ++of < 3)
        test = json_object_get(result, splits[of]);
    cli_progress(NULL);
    cli_print("%s:", one->name);
    if (one->state == CLI_DIVERGED) { /* the metrics of a checkpoint are not results */
        cli_print(" %s", one->note);
    } else if (json_is_number(json_object_get(test, "accuracy"))) {
        show_share("accuracy", test);
        show_share("balanced_accuracy", test);
        show_share("worst_class_accuracy", test);
    } else if (json_is_number(json_object_get(test, "loss"))) {
        printf("  %s loss %.4g", splits[of], json_number_value(json_object_get(test, "loss")));
    }
    printf("  %.1f s  (%d of %d)\n", json_number_value(json_object_get(result, "seconds")),
           count_of(runs, CLI_DONE, CLI_DIVERGED), runs->count);
    fflush(stdout);
    json_decref(result);
}

static void show_progress(const cli_runs *runs, double *shown)
{
    char text[512] = "", left[40] = "";
    double now = cli_seconds(), done = 0, todo = 0;
    bool live = isatty(STDERR_FILENO);
    if (now - *shown < (live ? 0.3 : QUIET))
        return;
    *shown = now;
    for (int k = 0; k < runs->count; k++) {
        const cli_one *one = &runs->list[k];
        size_t used = strlen(text);
        if (one->state == CLI_RUNNING)
            snprintf(text + used, sizeof text - used, "  %s %s", one->name, one->about);
        if (one->earlier)
            continue;
        double share = one->state == CLI_DONE || one->state == CLI_DIVERGED ? 1 : one->share;
        done += share - one->before;
        todo += 1 - share;
    }
    if (done > 0.02)
        snprintf(left, sizeof left, "  %.0f s left", (now - runs->began) / done * todo);
    if (live)
        cli_progress("%d of %d runs done%s%s", count_of(runs, CLI_DONE, CLI_DIVERGED), runs->count,
                     left, text);
    else if (!cli_json(runs->args))
        cli_print("%d of %d runs done%s%s\n", count_of(runs, CLI_DONE, CLI_DIVERGED), runs->count,
                  left, text);
    fflush(stdout);
}

/* ---- all of them ---- */

/* Handles the end of a process that has closed its pipe. */
static void end(const cli_runs *runs, cli_one *one)
{
    int status = 0;
    close(one->pipe);
    one->pipe = -1;
    if (one->thread)
        status = W_EXITCODE(cli_thread_end(one), 0);
    else
        while (waitpid(one->pid, &status, 0) < 0 && errno == EINTR)
            ;
    bool diverged = strncmp(one->note, "diverged", 8) == 0;
    one->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (!WIFEXITED(status) && !cli_stopped())
        snprintf(one->note, sizeof one->note, "the process was ended by signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    one->state = one->status && diverged                                   ? CLI_DIVERGED
                 : WIFEXITED(status) && one->status == 0                   ? CLI_DONE
                 : cli_stopped() || strncmp(one->note, "stopped ", 8) == 0 ? CLI_STOPPED
                                                                           : CLI_FAILED;
    if (one->state == CLI_FAILED && strstr(one->note, "another process is training there"))
        one->state = CLI_WAITING; /* it came between: start() waits for it */
    if (one->state == CLI_DONE && !has_file(runs, one, "result.json"))
        one->state = CLI_FAILED;
    if ((one->state == CLI_DONE || one->state == CLI_DIVERGED) && !cli_json(runs->args))
        show_result(runs, one);
}

static const cli_one *failed(const cli_runs *runs)
{
    for (int k = 0; k < runs->count; k++)
        if (runs->list[k].state == CLI_FAILED)
            return &runs->list[k];
    return NULL;
}

/* Whether no more runs start: a signal, a failure here, or another rank is gone. */
static bool ends_early(const cli_runs *runs)
{
    return cli_stopped() || failed(runs) || dro_comm_check(runs->comm) != DRO_OK;
}

/* Starts the runs that may start; after a stop or a failure none do, and running ones are asked to
 * stop. */
static int start_more(const cli_runs *runs, bool *reported)
{
    if (ends_early(runs)) {
        for (int k = 0; k < runs->count && !*reported; k++)
            if (runs->list[k].state != CLI_RUNNING)
                continue;
            else if (runs->list[k].thread)
                cli_thread_stop(&runs->list[k]);
            else
                kill(runs->list[k].pid, SIGTERM);
        *reported = true;
        return 0;
    }
    int running = count_of(runs, CLI_RUNNING, CLI_RUNNING);
    for (int k = 0; k < runs->count && running < runs->jobs; k++) {
        if (runs->list[k].state != CLI_WAITING)
            continue;
        if (start(runs, &runs->list[k])) {
            runs->list[k].state = CLI_FAILED;
            runs->list[k].unstarted = true;
            return 1;
        }
        running++;
    }
    return 0;
}

/* Waits for lines from running runs. */
static void read_pipes(const cli_runs *runs)
{
    struct pollfd ends[256];
    cli_one *whose[256];
    nfds_t count = 0;
    for (int k = 0; k < runs->count && count < 256; k++)
        if (runs->list[k].state == CLI_RUNNING) {
            ends[count] = (struct pollfd){.fd = runs->list[k].pipe, .events = POLLIN};
            whose[count++] = &runs->list[k];
        }
    if (poll(ends, count, 200) <= 0)
        return;
    for (nfds_t k = 0; k < count; k++)
        if (ends[k].revents && !take_bytes(whose[k]))
            end(runs, whose[k]);
}

/* Prints the error of a failed run, with the remedy for this command. */
static int print_failure(const cli_one *one)
{
    const char *way = strstr(one->note, ", then resume");
    int length = way ? (int)(way - one->note) : (int)strlen(one->note);
    cli_fail("%s: %.*s%s", one->name, length, one->note,
             way ? ", then run the same command again" : "");
    return one->status ? one->status : 1;
}

static int finish(const cli_runs *runs)
{
    const cli_one *wrong = failed(runs);
    int done = count_of(runs, CLI_DONE, CLI_DIVERGED);
    int elsewhere = count_of(runs, CLI_ELSEWHERE, CLI_ELSEWHERE);
    cli_progress(NULL);
    if (wrong)
        cli_mute(false); /* every rank reports its own runs */
    if (wrong && wrong->unstarted)
        return 1;
    if (wrong && *wrong->note)
        return print_failure(wrong);
    if (wrong)
        return cli_fail("%s: ended with status %d without an error message", wrong->name,
                        wrong->status);
    if (done + elsewhere == runs->count)
        return 0;
    return cli_fail("stopped: %d of %d runs are done: run the same command again to resume", done,
                    runs->count);
}

/* How a run that was done earlier, or elsewhere, ended; the exit status after a message. */
static int take_result(const cli_runs *runs, cli_one *one)
{
    json_t *result = cli_runs_result(runs, one);
    if (!json_is_object(result))
        return cli_fail("%s/%s/result.json cannot be read: remove that folder, and the same "
                        "command runs it again",
                        runs->folder, one->name);
    json_decref(result);
    one->state = cli_runs_diverged(runs, one) ? CLI_DIVERGED : CLI_DONE;
    one->share = 1;
    return 0;
}

int cli_runs_collect(cli_runs *runs)
{
    for (int k = 0; k < runs->count; k++) {
        cli_one *one = &runs->list[k];
        if (one->state != CLI_ELSEWHERE)
            continue;
        one->state = CLI_STOPPED;
        int wrong = has_file(runs, one, "result.json") ? take_result(runs, one) : 0;
        if (wrong)
            return wrong;
    }
    return finish(runs);
}

int cli_runs_train(cli_runs *runs)
{
    bool reported = false;
    double shown = cli_seconds() - 1;
    if (!isatty(STDERR_FILENO))
        shown = cli_seconds();
    for (int k = 0; k < runs->count; k++) {
        cli_one *one = &runs->list[k];
        one->earlier = has_file(runs, one, "result.json");
        bool own = k % dro_comm_size(runs->comm) == dro_comm_rank(runs->comm);
        one->state = own ? CLI_WAITING : CLI_ELSEWHERE;
        int wrong = one->earlier ? take_result(runs, one) : 0;
        if (wrong)
            return wrong;
    }
    if (cli_json(runs->args))
        cli_busy("training %d runs, into %s", count_of(runs, CLI_WAITING, CLI_WAITING),
                 runs->folder);
    cli_stop_on_signals(false);
    runs->began = cli_seconds();
    int status = 0;
    do {
        int wrong = start_more(runs, &reported);
        status = status ? status : wrong;
        show_progress(runs, &shown);
        read_pipes(runs);
    } while (count_of(runs, CLI_RUNNING, CLI_RUNNING) > 0 ||
             (!ends_early(runs) && count_of(runs, CLI_WAITING, CLI_WAITING) > 0));
    runs->ended = cli_seconds();
    if (dro_comm_check(runs->comm) != DRO_OK)
        return 1; /* the caller says which rank is gone */
    int ended = finish(runs);
    return status ? status : ended;
}
