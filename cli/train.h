/* What the commands that train share: settings from the command line and from files, and what is shown. */
#ifndef DRO_CLI_TRAIN_H
#define DRO_CLI_TRAIN_H

#include "cli.h"

#include <stdatomic.h>

#define CLI_TRAIN_TEXT(name, value, meaning)                                                       \
    {                                                                                              \
        name, CLI_TEXT, value, NULL, 0, 0, meaning                                                 \
    }

/* The flags that mean the same in every command that trains. */
#define CLI_TRAIN_OPTIONS                                                                          \
    CLI_TRAIN_TEXT("data", "SPEC", "format:path[,option=value...] (default synth:glyphs)"),        \
        CLI_TRAIN_TEXT("model", "NAME", "the model; if not given, one that suits the data"),       \
        CLI_TRAIN_TEXT("epochs", "N", "passes over the data (default 15, more of few)"),           \
        CLI_TRAIN_TEXT("steps", "N", "steps instead of epochs"),                                   \
        CLI_TRAIN_TEXT("batch", "N", "examples in a batch (default 128, less on few)"),            \
        CLI_TRAIN_TEXT("lr", "X", "the step size eta"),                                            \
        CLI_TRAIN_TEXT("lambda", "X", "robustness: small chases the worst, large is the mean"),    \
        CLI_TRAIN_TEXT("weight-decay", "X", "added to the gradient, times w"),                     \
        CLI_TRAIN_TEXT("reg", "NAME:X", "a regulariser and its strength, as in l1:1e-5"),          \
        CLI_TRAIN_TEXT("tilt", "LEVEL", "what is robust: none, example, class or group"),          \
        CLI_TRAIN_TEXT("loss", "NAME", "cross-entropy, focal, logit-adjusted, squared, logistic"), \
        CLI_TRAIN_TEXT("recipe", "NAME", "settings that go together: `dro list recipes`"),         \
        CLI_TRAIN_TEXT("seed", "N", "of every random choice (default 1)"),                         \
        CLI_TRAIN_TEXT("init", "FILE", "weights to begin with"),                                   \
        CLI_TRAIN_TEXT("train-only", "NAMES", "tensors to train, as in layer4.*,fc.*"),            \
        CLI_TRAIN_TEXT("augment", "WORD", "crop and flip training images: auto, yes, no"),         \
        CLI_TRAIN_TEXT("size", "N", "side of images in files (default 224)"),                      \
        CLI_TRAIN_TEXT("eval-every", "E", "epochs between evaluations (default 1)"),               \
        CLI_TRAIN_TEXT("best", "MEASURE", "keep the best weights by a measure of the holdout"),    \
        CLI_TRAIN_TEXT("patience", "N", "stop after N evaluations without a better one"),          \
        CLI_TRAIN_TEXT("max-time", "T", "stop after this time: 90s, 30m, 2h"),                     \
        CLI_TRAIN_TEXT("on-divergence", "WORD", "stop, or halve: go back with half the step"),     \
        CLI_TRAIN_TEXT("set", "NAME=VALUE", "any parameter of optimiser or network; repeatable"),  \
        CLI_TRAIN_TEXT("config", "FILE", "settings: a run's config.json, or a .toml"),             \
        CLI_TRAIN_TEXT("precision", "WORD", "fp32 (tf32 and bf16 need a GPU)")

/* The settings of --config and of the flags, the command line winning; 0 or the exit status after a line. */
int cli_train_settings(const cli_args *args, dro_train *train);
/* Those of a file alone. optimizer: the one that will be used, or NULL: the file's. */
int cli_train_config(const char *command, dro_train *train, const char *path,
                     const char *optimizer);
/* One setting, checked as far as the run itself knows it; 0 or the exit status after a line. */
int cli_train_set(const char *command, dro_train *train, const char *name, const char *value);
/* Whether a value is right for a parameter of an optimiser; 0 or the exit status after a line. */
int cli_train_value(const char *command, const char *optimizer, const char *name,
                    const char *value);
/* The backend and threads that a config file names, where the command line does not. */
dro_context *cli_train_context(const cli_args *args, const char *config);
/* Names that neither the run, the network nor the optimiser has are wrong usage. */
int cli_train_check(const char *command, const dro_train *train, const char *name);

/* --reg NAME[:STRENGTH] (train_reg.c). */
int cli_reg_take(const char *command, dro_train *train, const char *value);
/* A regulariser without a strength, or a strength without a regulariser, does nothing: wrong usage. */
int cli_reg_check(const cli_args *args, const dro_train *train);

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
/* Until the run's first step, while its data is read, they end the program. */
void cli_stop_at_once(void);
int cli_stopped(void); /* the signal, or 0 */

/* A line on stderr for each remark on the data, and for each image that skip_bad passed over. */
void cli_tell_notes(const dro_predictor *predictor);
/* --split of a command, or the test set (training set if there is none); 0 or the exit status. */
int cli_split(const cli_args *args, const dro_data_info *info, dro_split *split);
/* The per-class table of a measured split. */
void cli_show_classes(const dro_metrics *m, const dro_data_info *info, bool train_counts);
/* "accuracy 93.2 %, balanced 92.9 %, ..."; loss: its name, or NULL. */
void cli_show_metrics(const char *name, const dro_metrics *m, const char *loss);

#endif
