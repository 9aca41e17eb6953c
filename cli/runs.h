/* Many runs: `dro train` in processes of its own, several at a time, stopped and continued
 * together. What compare and sweep share. */
#ifndef DRO_CLI_RUNS_H
#define DRO_CLI_RUNS_H

#include "train.h"

#include <dro/report.h>
#include <sys/types.h>

typedef enum cli_state {
    CLI_WAITING,
    CLI_RUNNING,
    CLI_DONE, /* there is a result.json */
    CLI_DIVERGED,
    CLI_STOPPED, /* it has a checkpoint */
    CLI_FAILED,
    CLI_ELSEWHERE /* another rank runs it */
} cli_state;

typedef struct cli_one {
    char *name; /* of its folder, below the folder of all */
    const char *optimizer;
    dro_settings *settings;
    cli_state state;
    bool earlier;              /* was done before this command began */
    pid_t pid;                 /* its process, or */
    struct cli_thread *thread; /* its thread of this one (runs_thread.c) */
    int pipe;                  /* what it prints */
    char line[1024];
    size_t used;
    double share, before; /* of its steps: now, and when this command began */
    char about[160];      /* where it is, for the live line */
    char note[1024];      /* the last line that it said on stderr */
    int status;           /* its exit status */
    bool unstarted;       /* it could not be started, and a line has said so */
} cli_one;

typedef struct cli_runs {
    const cli_args *args;
    const char *folder;
    dro_context *ctx;
    json_t *config; /* of --config, or NULL */
    int lock, jobs, threads, count, capacity;
    dro_comm *comm; /* ranks that share the runs out, or NULL */
    cli_one *list;
    double began, ended; /* the running of them, in cli_seconds() */
} cli_runs;

/* The flags of a command that makes many runs, before its own. */
#define CLI_RUNS_OPTIONS(seeds)                                                                    \
    {"seeds", CLI_INTEGER, "N", seeds, 1, 1000, "runs of each, with seeds from --seed on"},        \
    {                                                                                              \
        "jobs", CLI_INTEGER, "J", "1", 1, 256, "runs at the same time; they share the threads"     \
    }

/* ---- making the list: 0 or the exit status after an error message ---- */

/* Names the folder of all (made when the runs begin), reads --config and makes the context. */
int cli_runs_open(cli_runs *runs, const cli_args *args, const char *folder);
void cli_runs_close(cli_runs *runs);
/* Every setting that is given must mean something to one of the optimisers; "--set NAME.x=1" is for
 * one. */
int cli_runs_check(const cli_runs *runs, const char *const *optimizers, int count);

enum { CLI_ARMS = 64, CLI_ARM_PAIRS = 24 };

/* An optimiser with settings of its own: an --arm of compare, a point of a sweep. */
typedef struct cli_arm {
    const char *name, *optimizer;
    const char *pairs[CLI_ARM_PAIRS + 1]; /* (count) "name=value"; with space for one more */
    int count;
} cli_arm;

/* One more run of the list, called NAME-seedK: the settings of the command, those of the arm over
 * them, and the seed-th seed after the first. */
int cli_runs_add(cli_runs *runs, const cli_arm *arm, int seed);
/* All runs report F with the same objective and tilt (runs_objective.c): those that the first
 * robust one ends with, by its settings, its files or its recipe. same: false where they name
 * different objectives, and each reports its own. */
int cli_runs_same_objective(cli_runs *runs, bool *same);
/* Before anything is started: the settings of each are right, and all are on the same data. */
int cli_runs_check_each(cli_runs *runs);
/* What was given for a run, as an object of names and texts. */
json_t *cli_runs_settings(const cli_runs *runs, const cli_one *one);
/* Splits a text at commas, into texts that are never freed; -1: none, or more than capacity. */
int cli_runs_split(const char *text, const char **parts, int capacity);

/* Those of the command line, checked; *count 0: none was given. */
int cli_arms_read(const cli_runs *runs, cli_arm *arms, int capacity, int *count);

/* Whether the arms' runs, the first of the list, had different values of a setting; text: a line
 * that says so. */
bool cli_arms_differ(const cli_runs *runs, const cli_arm *arms, int count, const char *name,
                     char *text, size_t size);

/* ---- running it ---- */

/* Runs what is not done, with a live line or a line for each that ends. 0: all are done or
 * diverged; else the exit status after an error message. */
int cli_runs_go(cli_runs *runs);
int cli_runs_train(cli_runs *runs); /* the last part of it, when the folder is ready */
/* Reads how those ended that other ranks have run; the exit status of all. */
int cli_runs_collect(cli_runs *runs);
/* Of a comparison that was killed a moment ago, a run may still be writing its last checkpoint: it
 * is waited for, with a line. */
void cli_runs_await(const cli_runs *runs, const cli_one *one);
/* Before the first context of a command whose runs may be threads. */
void cli_thread_ready(void);
/* A run in a thread: started; asked to stop; and, once its pipe is closed, its exit status. */
int cli_thread_start(const cli_runs *runs, cli_one *one);
void cli_thread_stop(cli_one *one);
int cli_thread_end(cli_one *one);
/* A file of the folder of all, written whole or not at all. Releases the document. */
int cli_runs_write(const cli_runs *runs, const char *name, json_t *document);
/* result.json of a run, or NULL. */
json_t *cli_runs_result(const cli_runs *runs, const cli_one *one);
/* Examples per second of all runs that this command made from beginning to end, together; 0: there
 * are none. */
double cli_runs_rate(const cli_runs *runs);
/* Whether its result says that it diverged. */
bool cli_runs_diverged(const cli_runs *runs, const cli_one *one);
/* All of them as a report with its page in the folder; NULL after an error message. path gets the
 * page's place. */
dro_report *cli_runs_report(const cli_runs *runs, char *path, size_t size);
/* [{"run": ..., "folder": ..., "state": ...}] */
json_t *cli_runs_json(const cli_runs *runs);

/* ---- tables of reports (report_show.c) ---- */

void cli_report_table(dro_report *report);
/* The table in Markdown, to its place in a document, "FILE#NAME" (report_into.c); words: its
 * columns. */
int cli_report_into(dro_report *report, const char *where, const char *words);
json_t *cli_report_methods(dro_report *report);
json_t *cli_report_notes(dro_report *report);
void cli_report_cell(cli_table *table, const dro_statistic *s, dro_measure measure);
dro_statistic cli_statistic(const double *values, int count);

#endif
