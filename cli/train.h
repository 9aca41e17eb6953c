/* What the commands that train share: settings from the command line and from files, and what is
 * shown. */
#ifndef DRO_CLI_TRAIN_H
#define DRO_CLI_TRAIN_H

#include "cli.h"

#include <stdatomic.h>

/* The options of every command that trains, besides the settings themselves. */
#define CLI_SETTINGS_OPTIONS                                                                       \
    CLI_OPTION_TEXT("set", "NAME=VALUE", "a setting by its name; repeatable"),                     \
        CLI_OPTION_TEXT("label", "COLUMN",                                                         \
                        "the label column of a csv table; same as label= in --data"),              \
        CLI_OPTION_TEXT("config", "FILE", "settings: a run's config.json, or another JSON object")

/* ---- settings.c: 0 or the exit status after an error message ---- */

/* Whose settings are taken. */
typedef struct cli_scope {
    const char *command; /* for messages */
    dro_context *ctx;
    dro_settings *settings;
    const char *optimizer; /* of the command line, or NULL */
    /* the optimiser of one run of several: settings that it does not have are skipped; NULL:
     * none are */
    const char *only;
} cli_scope;

/* "lambda=5", or "recover.lambda=5" for one of several optimisers. */
typedef struct cli_pair {
    char optimizer[64], name[64];
    const char *value;
} cli_pair;

/* A file of settings, - for standard input; NULL after an error message. */
json_t *cli_config_load(const char *path);
int cli_config_take(cli_scope *scope, const char *path, json_t *document);
/* The context by --backend and --threads, or else as the file (or NULL) says; NULL after an error
 * message. */
dro_context *cli_config_context(const cli_args *args, const json_t *document);
/* The SPEC with --label in it; 0 or the exit status. */
int cli_label_spec(const cli_args *args, const char *data, char *spec, size_t size);
/* All that the command line gives. */
int cli_settings_take(cli_scope *scope, const cli_args *args);
int cli_settings_set(const cli_scope *scope, const char *name, const char *value);
/* An objective that was given later than lambda: forgets lambda. */
void cli_settings_objective(const cli_scope *scope);
int cli_settings_pair(const char *command, const char *pair, cli_pair *out);
/* The k-th option that was given, as a setting, name "" if it is none; false past the last. */
bool cli_settings_given(const cli_args *args, int k, cli_pair *out, int *status);
int cli_settings_check(const cli_scope *scope);

/* What a run shows: a live line on a terminal, plain lines otherwise. */
typedef struct cli_show {
    bool quiet;
    FILE *to;          /* plain lines there, whatever the terminal; NULL: stdout */
    atomic_bool *stop; /* (optional) another reason to stop than a signal */
    double last;       /* when the line was drawn */
    uint64_t step;
    double accuracy, worst;
    bool evaluated, of_train; /* of_train: the figures are of the training set */
} cli_show;
dro_train_watch cli_show_watch(cli_show *show);
/* SIGINT, SIGTERM and SIGHUP stop the run at the next step; a second SIGINT ends the program. */
void cli_stop_on_signals(bool ends_input); /* ends_input: and end standard input */
/* Until the run's first step, while its data is read, they end the program and remove this folder
 * (or NULL) if it is empty. */
void cli_stop_at_once(const char *folder);
int cli_stopped(void); /* the signal, or 0 */

/* A line on stderr for each remark on the data, and for each image that skip_bad skipped. */
void cli_print_remarks(const dro_predictor *predictor);
/* A line on stderr about the threshold that decisions follow; where: by what it was chosen. */
void cli_print_threshold(const dro_predictor *predictor, const char *where);
/* --split of a command, or the test set (training set if there is none); 0 or the exit status. */
int cli_split(const cli_args *args, const dro_data_info *info, dro_split *split);
/* The per-class table of a measured split. */
void cli_show_classes(const dro_metrics *m, const dro_data_info *info, bool train_counts);
/* "accuracy 93.2 %, balanced 92.9 %, ..."; loss: its name, or NULL. */
void cli_show_metrics(const char *name, const dro_metrics *m, const char *loss);

#endif
