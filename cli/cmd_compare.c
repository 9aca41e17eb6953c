/* dro compare: several optimisers from the same weights and on the same batches, some seeds
 * each. */
#include "runs.h"

#include <string.h>

/* The arms of --optimizers: named after them, without their own settings. */
static int plain_arms(const cli_runs *runs, const char *given, cli_arm *arms, int *count)
{
    static const char *optimizers[CLI_ARMS]; /* copies that are never freed */
    *count = cli_runs_split(given, optimizers, CLI_ARMS);
    if (*count < 1)
        return cli_usage("compare: --optimizers %s: expected names with commas between them, as in "
                         "sgd,recover",
                         given);
    for (int k = 0; k < *count; k++)
        arms[k] = (cli_arm){.name = optimizers[k], .optimizer = optimizers[k]};
    return cli_runs_check(runs, optimizers, *count);
}

/* The arms of --arm, which are shown by their names, or of --optimizers. */
static int read_arms(const cli_runs *runs, cli_arm *arms, int *count)
{
    int status = cli_arms_read(runs, arms, CLI_ARMS, count);
    if (status == 0 && *count && cli_given(runs->args, "optimizers", 0))
        return cli_usage("compare: --arm and --optimizers exclude each other");
    if (status == 0 && *count == 0)
        return plain_arms(runs, cli_text(runs->args, "optimizers"), arms, count);
    for (int k = 0; k < *count && status == 0; k++) {
        char name[80];
        snprintf(name, sizeof name, "name=%s", arms[k].name);
        arms[k].pairs[arms[k].count++] = strdup(name);
        status = arms[k].pairs[arms[k].count - 1] ? 0 : cli_fail("no memory for the arms");
    }
    return status;
}

static int make_list(cli_runs *runs, const cli_arm *arms, int count, int seeds)
{
    int status = 0;
    for (int k = 0; k < seeds;
         k++) /* seed by seed, so that an interrupted comparison is balanced */
        for (int i = 0; i < count && status == 0; i++)
            status = cli_runs_add(runs, &arms[i], k);
    bool same;
    status = status ? status : cli_runs_same_objective(runs, &same);
    return status ? status : cli_runs_check_each(runs);
}

static void show_start(const cli_runs *runs, const cli_arm *arms, int count, int seeds)
{
    char data[4096];
    dro_settings_get(runs->list[0].settings, "data", data, sizeof data);
    printf("comparing ");
    for (int k = 0; k < count; k++)
        cli_print("%s%s", k ? "," : "", arms[k].name);
    cli_print(" on %s: %d seed%s each, %d run%s at a time with %d thread%s, into %s\n", data, seeds,
              seeds == 1 ? "" : "s", runs->jobs, runs->jobs == 1 ? "" : "s", runs->threads,
              runs->threads == 1 ? "" : "s", runs->folder);
    fflush(stdout);
}

/* What the report says, and which settings differ besides the optimisers. */
static json_t *all_notes(const cli_runs *runs, dro_report *report, const cli_arm *arms, int count)
{
    static const char *const names[] = {"model", "batch", "epochs", "steps"};
    char text[1024];
    json_t *list = cli_report_notes(report);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (cli_arms_differ(runs, arms, count, names[k], text, sizeof text))
            json_array_append_new(list, cli_text_json(text));
    return list;
}

static int show_end(cli_runs *runs, const cli_arm *arms, int count)
{
    char page[4400];
    dro_report *report = cli_runs_report(runs, page, sizeof page);
    if (!report)
        return 1;
    int status = 0;
    double rate = cli_runs_rate(runs);
    json_t *notes = all_notes(runs, report, arms, count);
    if (cli_json(runs->args)) {
        status =
            cli_emit(json_pack("{s:o, s:o, s:o, s:O, s:o}", "html", cli_path_json(page), "runs",
                               cli_runs_json(runs), "methods", cli_report_methods(report), "notes",
                               notes, "examples_per_s", rate > 0 ? json_real(rate) : json_null()));
    } else {
        printf("\n");
        cli_report_table(report);
        if (json_array_size(notes))
            printf("\n");
        for (size_t k = 0; k < json_array_size(notes); k++)
            cli_print("%s\n", json_string_value(json_array_get(notes, k)));
        printf("\n");
        if (runs->jobs > 1 && rate > 0)
            printf("speed   %.0f examples/s, all runs together\n", rate);
        cli_print("report  %s\n", page);
    }
    json_decref(notes);
    dro_report_destroy(report);
    return status;
}

static int run(const cli_args *args)
{
    cli_runs runs;
    static cli_arm arms[CLI_ARMS];
    int seeds = (int)cli_integer(args, "seeds"), count = 0;
    int status = cli_runs_open(&runs, args, cli_text(args, "out"));
    status = status ? status : read_arms(&runs, arms, &count);
    status = status ? status : make_list(&runs, arms, count, seeds);
    if (status == 0) {
        if (!cli_json(args))
            show_start(&runs, arms, count, seeds);
        status = cli_runs_go(&runs);
    }
    if (status == 0)
        status = show_end(&runs, arms, count);
    cli_runs_close(&runs);
    return status;
}

static const cli_option options[] = {
    {"optimizers", CLI_TEXT, "A,B,...", "sgd,recover", 0, 0, "optimisers of `dro list optimizers`"},
    CLI_OPTION_TEXT("arm", "TEXT",
                    "'NAME: OPTIMISER SETTING=VALUE ...' instead of --optimizers; repeatable"),
    {"out", CLI_TEXT, "DIR", "dro-compare", 0, 0, "the folder of all runs and of the report"},
    CLI_RUNS_OPTIONS("3"),
    CLI_SETTINGS_OPTIONS,
    CLI_OPTIONS_END,
};

const cli_command cmd_compare = {
    .name = "compare",
    .usage = "[--data SPEC] [--optimizers A,B,... | --arm ...] [--seeds N] [--out DIR] [--jobs J]",
    .summary = "compare optimisers on the same data, initial weights and batches",
    .details =
        "Each optimiser runs with N seeds, in folders DIR/OPTIMISER-seedK. Runs with the same\n"
        "seed start from the same weights and see the same batches. An option or --set NAME=VALUE\n"
        "applies to every optimiser that has the parameter; --set recover.lambda=5 applies to\n"
        "one. With --arm 'NAME: OPTIMISER SETTING=VALUE ...' an optimiser can take part several\n"
        "times; config=FILE in an arm uses the settings that a sweep chose. The table shows mean\n"
        "+- standard error over the seeds: metrics on the test set, F on the training set. So\n"
        "that F can be compared, all runs report it for the objective (or lambda) and the tilt\n"
        "of the first robust optimiser, but each with its own loss and regulariser. If the arms\n"
        "name different objectives, each reports its own F, unless --set report_objective=NAME:X\n"
        "chooses one. DIR also gets report.html. Run the same command again to resume; finished\n"
        "runs are not repeated.",
    .options = options,
    .settings = true,
    .ranks = true,
    .without = "optimizer",
    .run = run,
};
