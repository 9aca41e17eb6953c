/* cli: the program `dro`. Sees the public headers only. A command is one file cmd_NAME.c and one
 * line in commands.def; a benchmark one file bench_NAME.c and one line in benches.def. */
#ifndef DRO_CLI_H
#define DRO_CLI_H

#include <dro/dro.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- arguments: one parser for all; the help texts come from the same tables ---- */

/* A switch is yes without a value, and takes one as in --name=no. */
typedef enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_REAL, CLI_INTEGER, CLI_SWITCH } cli_kind;

typedef struct cli_option {
    const char *name; /* without the dashes */
    cli_kind kind;
    const char *value;    /* how the help names its value, "N"; NULL for a flag */
    const char *fallback; /* NULL: none */
    double low, high;     /* bounds of a number */
    const char *meaning;
} cli_option;

/* An option with a text, and one without a value. */
#define CLI_OPTION_TEXT(name, value, meaning)                                                      \
    {                                                                                              \
        name, CLI_TEXT, value, NULL, 0, 0, meaning                                                 \
    }
#define CLI_OPTION_FLAG(name, meaning)                                                             \
    {                                                                                              \
        name, CLI_FLAG, NULL, NULL, 0, 0, meaning                                                  \
    }

#define CLI_OPTIONS_END                                                                            \
    {                                                                                              \
        NULL, CLI_FLAG, NULL, NULL, 0, 0, NULL                                                     \
    }

typedef struct cli_args cli_args;

typedef struct cli_command {
    const char *name;          /* as typed: "bench rates" */
    const char *usage;         /* what follows the name: "[--json]" */
    const char *summary;       /* one line */
    const char *details;       /* more lines for --help, or NULL */
    const cli_option *options; /* --json, --help, --backend and --threads come by themselves */
    bool settings;             /* it has the settings of a run as options, too, */
    const char *without;       /* (optional) but for this one */
    bool ranks;                /* it divides its work among the ranks of mpirun */
    int least, most;           /* how many words without dashes it takes */
    int (*run)(const cli_args *args);
    void (*more)(FILE *to); /* (optional) prints more of --help, after details */
    const char *words;      /* (optional) what its first word may be, for completion */
    bool hidden;            /* not in the lists */
} cli_command;

/* Parsed and checked: a name must be in the command's table. NULL / 0 when there is no value. */
const char *cli_text(const cli_args *args, const char *name);
const char *cli_given(const cli_args *args, const char *name,
                      int k); /* its k-th value, NULL past the last */
/* The name of the k-th option that was given, in order, and its value; NULL past the last. */
const char *cli_given_at(const cli_args *args, int k, const char **value);
double cli_real(const cli_args *args, const char *name);
long long cli_integer(const cli_args *args, const char *name);
bool cli_flag(const cli_args *args, const char *name);
bool cli_json(const cli_args *args);
const char *cli_name(const cli_args *args); /* of the command */
const cli_command *cli_command_of(const cli_args *args);
const char *cli_word(const cli_args *args, int index); /* the i-th word, or NULL */

/* The optimisers' names, for dro_nearest and lists; returns how many. */
enum { CLI_NAMES = 64 };
int cli_optimizers(const char *names[CLI_NAMES]);

/* The i-th option of a command, its own first, then those of all; NULL past the last. */
const cli_option *cli_option_at(const cli_command *command, int index);
/* A setting of a run by any of its names, or NULL. */
const dro_setting *cli_setting(const char *name);
/* Whether it is a setting that --help and the manual page leave to `dro list settings`. */
bool cli_option_rare(const cli_option *option);

/* A context by --backend and --threads, or NULL after an error message (the caller returns 1). */
dro_context *cli_context(const cli_args *args);
/* That line: why no context of this backend could be made, and which backend works here. */
void cli_backend_fail(const char *backend, dro_status status);

/* Checks a precision, which only a GPU heeds, given as `option` and the word (NULL: none); 0 or the
 * exit status after an error message. */
int cli_precision(const char *command, const char *option, const char *word,
                  const dro_context *ctx);

/* ---- ranks.c ---- */

/* Joins the ranks, which must all run the same command; *comm is NULL for one process. 0 or the
 * exit status after an error message; *comm is to be closed in any case. */
int cli_ranks_join(const cli_args *args, dro_context *ctx, dro_comm **comm);
/* Before a rank ends with an error that the others perhaps do not have: joins them if it has not,
 * so that they end too and one line says which rank has failed. */
void cli_ranks_leave(const cli_args *args);

/* ---- output ---- */

/* "dro: ..." on stderr; returns 1, the exit status, so that a failure is one line. */
/* Of several ranks one prints: the others' lines, and what they write to standard output, are
 * dropped. */
void cli_mute(bool mute);
bool cli_muted(void);
const char *cli_error(void); /* the last message of cli_fail() or cli_usage(), printed or not */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for wrong usage; returns 2. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "dro: ..." there, of something that is no failure. */
void cli_note(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* printf, escaped, except for a newline at the end of the format. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line, escaped; on a terminal it is broken between words where it does not fit. */
void cli_wrapped(FILE *to, const char *text);
/* Ends the program with a line. */
_Noreturn void cli_no_memory(void);
/* Closes what open_memstream(text) has given; without memory the program ends with a line. */
void cli_close_text(FILE *memory, char *const *text);
/* A progress line on stderr when that is a terminal; NULL clears it. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_progress_width(void); /* letters that fit on it */
/* busy.c: says what the program is doing while it prints nothing: as a progress line on a terminal,
 * elsewhere as one line on stderr after a delay; and ends that. */
void cli_busy(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_ready(void);
/* The delay, in seconds. */
double cli_busy_delay(void);
/* A first line for what takes a while: the command and the machine; with --json by cli_busy. */
void cli_begin(const cli_args *args);
/* Prints one JSON document on stdout and releases it; returns 0, or 1 if stdout failed. */
int cli_emit(json_t *document);

/* A number, or null when it is not finite: JSON has no NaN. */
/* A share in per cent, for "%.1f": without the noise of its last bits, so that what is equal looks
 * equal. */
double cli_percent(double share);
json_t *cli_number(double value);
/* A text, or null; one that is not UTF-8 is escaped. */
json_t *cli_text_json(const char *text);
/* A path, or null, by cli_escape_exact. */
json_t *cli_path_json(const char *path);

/* A copy, to be freed, with bytes that are not UTF-8 and control characters as \xNN or \uNNNN, and
 * characters that are invisible or change the direction of writing as \uNNNN: a terminal obeys none
 * of them. All lines on stderr and all cells of tables are such copies. */
char *cli_escape(const char *text);
/* How the letter at `text` is written ("": as it is); returns its size in bytes. Different texts
 * stay different: \x becomes \x5cx. Tabs and newlines are kept. */
enum { CLI_ESCAPE_SIZE = 16 };
int cli_escape_exact(const char *text, char *escape, bool with_hidden);

/* A table with aligned columns: headers, then cells row by row (copied), then print and release. A
 * header that begins with '>' aligns its column to the right. On a terminal a last column that is
 * too wide is wrapped. */
typedef struct cli_table cli_table;
cli_table *cli_table_create(int columns, const char *const *headers);
/* Columns of a terminal that a text takes. */
int cli_width(const char *text);
void cli_table_cell(cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cli_table_print(cli_table *table);
/* A text and the end of its line, wrapped at spaces to at most `width` columns. It begins at column
 * `indent`, and so do the lines that follow. */
void cli_wrap(FILE *to, const char *text, int indent, int width);
enum { CLI_PAGE_WIDTH = 100 }; /* of help texts and lists */

/* A file that is written under a temporary name and renamed when it is complete; a pipe or a device
 * is written to directly. */
typedef struct cli_file {
    FILE *to;
    const char *name;
    char *target, *part; /* part: what becomes the target; NULL: it is written to */
} cli_file;
int cli_file_open(cli_file *file, const char *path); /* 0, or 1 after an error message */
/* status other than 0: leaves everything as it was. Returns status, or 1 after an error message. */
int cli_file_close(cli_file *file, int status);
/* A cell: quoted where it must be, with ' before what a spreadsheet takes for a formula, and
 * with control characters and bytes that are not UTF-8 as \xNN or \uNNNN. Different texts have
 * different cells: \x becomes \x5cx, and '=1 becomes ''=1. */
void cli_csv_text(FILE *to, char separator, const char *text);
/* The document in a file; NULL: there is none, or it is damaged, or it is a pipe. */
json_t *cli_file_json(const char *path);
bool cli_same_file(const char *a, const char *b);
/* Whether a file is named in a SPEC: its path, or an option's value. */
bool cli_spec_reads(const char *spec, const char *path);

double cli_seconds(void);                     /* a steady clock */
double cli_median(double *values, int count); /* sorts them */
const char *cli_cpu(void); /* the processor's name, for what a figure was measured on */

/* ---- main.c and cmd_bench.c: the lists, and running one of them ---- */

extern const cli_command *const cli_commands[]; /* both end with NULL */
extern const cli_command *const cli_benches[];

/* Parses what follows the command's name, runs it, and returns the exit status. */
int cli_run(const cli_command *command, int argc, char **argv);
void cli_help(FILE *to, const cli_command *command);
/* Lines "  name  summary" of a list; `skip` letters of each name are left out. */
void cli_help_list(FILE *to, const cli_command *const *list, size_t skip);
/* Flushes stdout. Returns status, or 1 after an error message if that failed. */
int cli_finish(int status);

#ifdef DRO_LINT /* analyzers see one file: this is what they return */
#define cli_fail(...)  (cli_fail(__VA_ARGS__), 1)
#define cli_usage(...) (cli_usage(__VA_ARGS__), 2)
#endif

#endif
