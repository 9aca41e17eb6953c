/* dro train: trains a model on data and writes a run folder. */
#include "train.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* Without --out, makes the first of dro-run, dro-run-2, ... that does not exist: runs that start
 * together have different folders. Returns the folder, or NULL if none was made. */
static const char *claim_folder(const cli_args *args, dro_comm *comm, char *folder)
{
    if (cli_text(args, "out") || cli_flag(args, "resume") || dro_comm_rank(comm) > 0)
        return NULL;
    int made = mkdir(folder, 0777);
    for (int k = 2; made != 0 && errno == EEXIST; k++) {
        snprintf(folder, PATH_SIZE, "dro-run-%d", k);
        made = mkdir(folder, 0777);
    }
    return made == 0 ? folder : NULL; /* dro_train_run says why it cannot be made */
}

/* --resume without settings uses those of the run. */
static bool own_config(const cli_args *args, const char *folder, char *path)
{
    struct stat about;
    snprintf(path, PATH_SIZE + 16, "%s/config.json", folder);
    return cli_flag(args, "resume") && stat(path, &about) == 0;
}

/* Whether --resume finds neither a checkpoint nor the result of a run that has ended. */
static bool is_beginning(const char *folder)
{
    static const char *const names[] = {"last.ckpt", "previous.ckpt", "result.json"};
    struct stat about;
    char path[PATH_SIZE + 16];
    for (int k = 0; k < 3; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[k]);
        if (stat(path, &about) == 0)
            return false;
    }
    return true;
}

/* --best: which weights the metrics belong to, and those of the last weights. */
static void show_best(const dro_train *train, const char *folder)
{
    json_t *result = json_loads(dro_train_result(train), 0, NULL);
    json_t *best = json_object_get(result, "best");
    json_t *last = json_object_get(json_object_get(result, "last"), "test");
    const char *measure = json_string_value(json_object_get(best, "measure"));
    if (json_is_object(best))
        cli_print("%-8s %s %.5g on the holdout after epoch %.6g: these weights are in "
                  "%s/weights.safetensors\n",
                  "best", measure, json_number_value(json_object_get(best, "value")),
                  json_number_value(json_object_get(best, "epoch")), folder);
    if (json_is_object(last))
        cli_print("%-8s %s %.5g on the test set: %s/last.safetensors\n", "last", measure,
                  json_number_value(json_object_get(last, measure)), folder);
    json_decref(result);
}

/* The metrics of the training set; if there is no other, says so and how to get one. */
static void show_train(const dro_train_record *r, int64_t examples)
{
    enum { SAMPLE = 10000 }; /* of eval_train=sample */
    bool alone = !r->has_test && !r->has_holdout;
    printf("%-8s F %.5f  loss %.5f", "train", r->train.objective, r->train.loss);
    if (r->train.classes)
        printf("  accuracy %.2f %%", cli_percent(r->train.accuracy));
    if (r->train.classes && alone)
        printf("  balanced %.2f %%  worst class %.2f %%", cli_percent(r->train.balanced_accuracy),
               cli_percent(r->train.worst_class_accuracy));
    if (!r->train.classes && alone)
        printf("  RMSE %.5g  MAE %.5g  R2 %.4f", r->train.rmse, r->train.mae, r->train.r2);
    if (r->train.examples <= SAMPLE && examples > SAMPLE)
        printf("  (a sample of %lld; --eval-train yes: all)", (long long)r->train.examples);
    printf("\n");
    if (alone)
        cli_wrapped(stdout,
                    "note     there is no test set: these figures are of the training data; "
                    "holdout=0.2 in --data sets a fifth aside");
}

static void show_end(const dro_train *train, const char *folder)
{
    static const char *const why[] = {
        [DRO_TRAIN_PATIENCE] = "stopped: no better for as long as --patience says\n",
        [DRO_TRAIN_TIME] = "stopped: the time of --max-time is over\n",
        [DRO_TRAIN_DIVERGED] = "",
    };
    const dro_train_record *r = dro_train_last(train);
    dro_train_end ended = dro_train_ended(train);
    char loss[64] = "";
    cli_progress(NULL);
    dro_train_get(train, "loss", loss, sizeof loss);
    if (ended < sizeof why / sizeof why[0] && why[ended])
        fputs(why[ended], stdout);
    if (!r)
        return;
    const dro_metrics *m = r->has_test ? &r->test : r->has_holdout ? &r->holdout : &r->train;
    printf("\n");
    cli_show_classes(m, dro_train_data(train), dro_train_data(train)->counts[DRO_TRAIN] != NULL);
    if (m->classes)
        printf("\n");
    if (r->has_train)
        show_train(r, dro_train_data(train)->examples[DRO_TRAIN]);
    if (r->has_test)
        cli_show_metrics("test", &r->test, *loss ? loss : NULL);
    if (r->has_holdout)
        cli_show_metrics("holdout", &r->holdout, *loss ? loss : NULL);
    show_best(train, folder);
    printf("%-8s %.1f s, %llu step%s, %llu example%s\n", "time", r->seconds,
           (unsigned long long)r->info.step, r->info.step == 1 ? "" : "s",
           (unsigned long long)r->info.examples, r->info.examples == 1 ? "" : "s");
    cli_print("%-8s %s/weights.safetensors, result.json, metrics.jsonl, config.json, TensorBoard's "
              "events\n",
              "files", folder);
}

static int finish(const cli_args *args, dro_context *ctx, const dro_train *train, dro_status status,
                  const char *folder, const cli_show *show)
{
    cli_progress(NULL);
    if (status != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    if (dro_train_ended(train) == DRO_TRAIN_INTERRUPTED && !dro_train_result(train))
        return cli_fail(
            "stopped after step %llu, with a checkpoint: `dro train --resume --out %s` continues",
            (unsigned long long)show->step, folder);
    if (!cli_json(args)) {
        show_end(train, folder);
        return 0;
    }
    json_t *result = json_loads(dro_train_result(train), 0, NULL);
    if (result)
        json_object_set_new(result, "folder", cli_path_json(folder));
    return cli_emit(result);
}

/* Says which backend is used, and why not the fastest of this build. */
static const char *machine(const cli_args *args, const dro_context *ctx, char *out, size_t size)
{
    const char *fastest = dro_backend_name(0), *why = dro_backend_missing(fastest);
    char instead[300] = "";
    int threads = dro_context_threads(ctx);
    if (why && !cli_given(args, "backend", 0))
        snprintf(instead, sizeof instead, " (not %s: %s)", fastest, why);
    char ranks[32] = "";
    if (dro_comm_started(NULL, NULL) > 1)
        snprintf(ranks, sizeof ranks, "%d ranks of ", dro_comm_started(NULL, NULL));
    snprintf(out, size, "backend %s%s, %s%d thread%s", dro_context_backend(ctx), instead, ranks,
             threads, threads == 1 ? "" : "s");
    return out;
}

/* The settings of files, those of the run's own folder first, and then those of the command
 * line. */
static int take_settings(cli_scope *scope, const cli_args *args, const char *own, json_t *config)
{
    int status = 0;
    json_t *theirs = own ? cli_config_load(own) : NULL;
    if (own)
        status = theirs ? cli_config_take(scope, own, theirs) : 1;
    json_decref(theirs);
    if (status == 0 && config)
        status = cli_config_take(scope, cli_text(args, "config"), config);
    if (status == 0 && scope->optimizer)
        status = cli_settings_set(scope, "optimizer", scope->optimizer);
    status = status ? status : cli_settings_take(scope, args);
    return status ? status : cli_settings_check(scope);
}

static int train_in(const cli_args *args, dro_context *ctx, dro_train *train, dro_comm *comm,
                    char *folder, bool goes_on)
{
    char data[4096], progressive[8];
    const char *claimed = claim_folder(args, comm, folder);
    dro_train_get(train, "data", data, sizeof data);
    if (!cli_json(args)) {
        char with[400];
        if (cli_flag(args, "resume") && is_beginning(folder))
            cli_print("no checkpoint in %s: starting at step 0\n", folder);
        cli_print("%s %s, %s, into %s\n", goes_on ? "going on with" : "training on", data,
                  machine(args, ctx, with, sizeof with), folder);
        fflush(stdout);
    }
    if (cli_json(args))
        cli_busy("training on %s, into %s", data, folder);
    cli_show show = {.quiet = cli_json(args) || dro_comm_rank(comm) > 0};
    dro_train_watch watch = cli_show_watch(&show);
    dro_train_get(train, "progressive", progressive, sizeof progressive);
    bool stream = strcmp(progressive, "yes") == 0;
    if (!stream)
        cli_stop_at_once(claimed);
    cli_stop_on_signals(stream);
    dro_status status = dro_train_run(train, folder, cli_flag(args, "resume"), &watch);
    cli_mute(!dro_comm_prints(comm));
    if (status != DRO_OK && claimed)
        rmdir(claimed); /* if nothing is in it */
    return finish(args, ctx, train, status, folder, &show);
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("out", "DIR", "the run's folder (default dro-run, dro-run-2, ...)"),
    CLI_OPTION_FLAG("resume", "continue from the newest checkpoint in the folder"),
    CLI_SETTINGS_OPTIONS,
    CLI_OPTIONS_END,
};

/* config: --config, or NULL; own: the config.json of the run to resume, or NULL. */
static int train(const cli_args *args, char *folder, const char *own, json_t *config)
{
    json_t *machines = own ? cli_config_load(own) : json_incref(config);
    if (own && !machines) /* not with another number of threads, which it may name */
        return 1;
    dro_context *ctx = cli_config_context(args, machines);
    dro_train *train = NULL;
    json_decref(machines);
    if (!ctx)
        return 1;
    cli_scope scope = {.command = "train", .ctx = ctx};
    if (cli_given(args, "optimizer", 0))
        scope.optimizer = cli_text(args, "optimizer");
    dro_comm *comm = NULL;
    int status = cli_ranks_join(args, ctx, &comm);
    dro_status made = status ? DRO_OK : dro_settings_create(ctx, &scope.settings);
    if (status == 0 && made == DRO_OK)
        status = take_settings(&scope, args, own, config);
    if (status == 0 && made == DRO_OK) {
        made = dro_train_create(ctx, &train);
        made = made ? made : dro_train_use(train, scope.settings);
        made = made ? made : dro_train_ranks(train, comm);
    }
    if (made != DRO_OK)
        status = cli_fail("%s", dro_context_error(ctx));
    if (status == 0)
        status = train_in(args, ctx, train, comm, folder, own != NULL);
    dro_train_destroy(train);
    if (status != 0)
        dro_comm_fail(comm, cli_error());
    dro_comm_close(comm);
    dro_settings_destroy(scope.settings);
    dro_context_destroy(ctx);
    return status;
}

static int run(const cli_args *args)
{
    static char folder[PATH_SIZE], config[PATH_SIZE + 16];
    const char *file = cli_text(args, "config"), *out = cli_text(args, "out");
    bool ranks = dro_comm_started(NULL, NULL) > 1;
    snprintf(folder, PATH_SIZE, "%s", out ? out : "dro-run");
    bool own = own_config(args, folder, config);
    if (cli_flag(args, "resume") && !own && !cli_given(args, "data", 0) && !file)
        return cli_fail("nothing to resume in %s: it has no config.json%s", folder,
                        ranks ? " (every rank reads it: share the folder, or repeat the settings)"
                              : "");
    json_t *document = file ? cli_config_load(file) : NULL;
    if (file && !document)
        return 1;
    int status = train(args, folder, own ? config : NULL, document);
    json_decref(document);
    return status;
}

const cli_command cmd_train = {
    .name = "train",
    .usage = "[--data SPEC] [--model NAME] [--optimizer NAME] [--out DIR] [--set NAME=VALUE ...]",
    .summary = "train a model and write its weights and metrics",
    .details =
        "Without --data it trains on synth:glyphs, synthetic images, in under two minutes. The\n"
        "run's folder gets config.json, metrics.jsonl, result.json, weights.safetensors, an event\n"
        "file for TensorBoard, and checkpoints. --resume --out DIR continues a run that was\n"
        "stopped or killed; it ends with the same weights.",
    .options = options,
    .settings = true,
    .ranks = true,
    .run = run,
};
