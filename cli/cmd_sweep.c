/* dro sweep: one optimiser with many settings; the best one is chosen on a holdout. */
#include "sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

/* A folder's name from settings: "lambda=5,eta=0.1". */
static void folder_name(const cli_sweep *sweep, const cli_candidate *s, int number, char name[200])
{
    size_t used = 0;
    name[0] = '\0';
    for (int k = 0; k < sweep->axis_count; k++)
        used += (size_t)snprintf(name + (used < 200 ? used : 199), used < 200 ? 200 - used : 1,
                                 "%s%s", k ? "," : "", s->pairs[k]);
    if (used >= 150)
        snprintf(name, 200, "setting%d", number + 1);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '_' : *c;
}

/* The data of a run, with a holdout added if it has none. on_divergence=stop: a step size that is
 * too large is a bad choice, even if half of it would work. */
static int set_defaults(const cli_runs *runs, const cli_one *one)
{
    char given[4096], data[4200];
    cli_scope scope = {
        .command = cli_name(runs->args), .ctx = runs->ctx, .settings = one->settings};
    if (!dro_settings_given(one->settings, "on_divergence") &&
        cli_settings_set(&scope, "on_divergence", "stop"))
        return 1;
    dro_settings_get(one->settings, "data", given, sizeof given);
    snprintf(data, sizeof data, "%s,holdout=0.1", given);
    return strstr(given, ",holdout=") ? 0 : cli_settings_set(&scope, "data", data);
}

static int make_list(cli_sweep *sweep, cli_runs *runs, const char *optimizer)
{
    char folder[200];
    int status = 0;
    for (int k = 0; k < sweep->count; k++) {
        cli_arm arm = {.name = folder, .optimizer = optimizer, .count = sweep->axis_count};
        for (int i = 0; i < sweep->axis_count; i++)
            arm.pairs[i] = sweep->settings[k].pairs[i];
        folder_name(sweep, &sweep->settings[k], k, folder);
        for (int i = 0; i < sweep->seeds && status == 0; i++) {
            status = cli_runs_add(runs, &arm, i);
            status = status ? status : set_defaults(runs, &runs->list[runs->count - 1]);
        }
    }
    bool same = true;
    if (status == 0 && sweep->by == DRO_MEASURE_OBJECTIVE)
        status = cli_runs_same_objective(runs, &same);
    if (!same)
        return cli_usage("sweep: --by objective: it is not the same function for each objective: "
                         "name one with --set report_objective=NAME:X, or choose by another "
                         "metric, as in --by balanced_accuracy");
    return status ? status : cli_runs_check_each(runs);
}

/* ---- what came out ---- */

static double measure_of(const json_t *result, const char *split, const char *name)
{
    const json_t *value = json_object_get(json_object_get(result, split), name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* 0, or 1 after an error: no setting is skipped because its result could not be read. */
static int collect(cli_sweep *sweep, const cli_runs *runs)
{
    for (int k = 0; k < sweep->count; k++) {
        double values[CLI_SWEEP_SHOWN][1000];
        for (int i = 0; i < sweep->seeds; i++) {
            const cli_one *one = &runs->list[k * sweep->seeds + i];
            /* the metrics of a diverged run are those of its checkpoint, not results */
            json_t *result = one->state == CLI_DIVERGED ? NULL : cli_runs_result(runs, one);
            if (one->state == CLI_DONE && !result)
                return cli_fail("%s/%s/result.json cannot be read", runs->folder, one->name);
            const char *by = dro_measure_name(sweep->by);
            values[CLI_SWEEP_HOLDOUT][i] = measure_of(result, "holdout", by);
            values[CLI_SWEEP_TEST][i] = measure_of(result, "test", by);
            values[CLI_SWEEP_WORST][i] = measure_of(result, "test", "worst_class_accuracy");
            values[CLI_SWEEP_SECONDS][i] =
                result ? json_number_value(json_object_get(result, "seconds")) : NAN;
            json_decref(result);
        }
        for (int i = 0; i < CLI_SWEEP_SHOWN; i++)
            sweep->settings[k].shown[i] = cli_statistic(values[i], sweep->seeds);
    }
    return 0;
}

/* The best setting on the holdout; one with a missing run is excluded. -1: none. */
static int choose(const cli_sweep *sweep)
{
    int best = -1;
    for (int k = 0; k < sweep->count; k++) {
        const dro_statistic *s = &sweep->settings[k].shown[CLI_SWEEP_HOLDOUT];
        if (s->count < sweep->seeds)
            continue;
        double gain = best < 0 ? 1 : s->mean - sweep->settings[best].shown[CLI_SWEEP_HOLDOUT].mean;
        if (best < 0 || gain * sweep->better > 0)
            best = k;
    }
    return best;
}

/* The settings of the chosen one as a file for `dro train --config`. */
static int write_best(const cli_sweep *sweep, const cli_runs *runs, int best)
{
    const cli_candidate *s = &sweep->settings[best];
    char path[4700];
    snprintf(path, sizeof path, "%s/%s/config.json", runs->folder,
             runs->list[best * sweep->seeds].name);
    json_t *config = cli_file_json(path);
    if (!config)
        return cli_fail("cannot read %s", path);
    json_t *names = json_array();
    for (int k = 0; k < sweep->axis_count; k++)
        json_array_append_new(names, cli_text_json(sweep->axes[k].name));
    json_object_set_new(config, "sweep",
                        json_pack("{s:s, s:o, s:o, s:o, s:i, s:i}", "by",
                                  dro_measure_name(sweep->by), "names", names, "holdout",
                                  cli_number(s->shown[CLI_SWEEP_HOLDOUT].mean), "test",
                                  cli_number(s->shown[CLI_SWEEP_TEST].mean), "settings",
                                  sweep->count, "seeds", sweep->seeds));
    return cli_runs_write(runs, "best.json", config);
}

static void print_table(const cli_sweep *sweep, int best)
{
    char held[64], tested[64];
    const char *unit = dro_measure_unit(sweep->by), *name = dro_measure_name(sweep->by);
    snprintf(held, sizeof held, ">holdout %s%s%s", name, *unit ? " " : "", unit);
    snprintf(tested, sizeof tested, ">test %s%s%s", name, *unit ? " " : "", unit);
    const char *const headers[] = {"", "settings", held, tested, ">test worst class %", ">seconds"};
    const dro_measure kinds[] = {sweep->by, sweep->by, DRO_MEASURE_WORST, DRO_MEASURE_SECONDS};
    cli_table *table = cli_table_create(6, headers);
    for (int k = 0; k < sweep->count; k++) {
        char text[400] = "";
        for (int i = 0; i < sweep->axis_count; i++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                     sweep->settings[k].pairs[i]);
        }
        cli_table_cell(table, "%s", k == best ? "*" : "");
        cli_table_cell(table, "%s", text);
        for (int i = 0; i < CLI_SWEEP_SHOWN; i++)
            cli_report_cell(table, &sweep->settings[k].shown[i], kinds[i]);
    }
    cli_table_print(table);
}

static json_t *settings_json(const cli_sweep *sweep, int best)
{
    static const char *const names[] = {"holdout", "test", "test_worst_class_accuracy", "seconds"};
    json_t *list = json_array();
    for (int k = 0; k < sweep->count; k++) {
        const cli_candidate *s = &sweep->settings[k];
        json_t *row = json_object(), *values = json_object();
        for (int i = 0; i < sweep->axis_count; i++)
            json_object_set_new(values, sweep->axes[i].name,
                                cli_text_json(strchr(s->pairs[i], '=') + 1));
        json_object_set_new(row, "settings", values);
        json_object_set_new(row, "chosen", json_boolean(k == best));
        for (int i = 0; i < CLI_SWEEP_SHOWN; i++)
            json_object_set_new(row, names[i],
                                json_pack("{s:o, s:o, s:i}", "mean", cli_number(s->shown[i].mean),
                                          "error", cli_number(s->shown[i].error), "count",
                                          (int)s->shown[i].count));
        json_array_append_new(list, row);
    }
    return list;
}

/* The exit status if none was chosen, after a message; a special one if every setting has a run
 * that diverged. */
static int none_chosen(const cli_sweep *sweep, const cli_runs *runs)
{
    for (int k = 0; k < sweep->count; k++) {
        bool diverged = false;
        for (int i = 0; i < sweep->seeds; i++)
            diverged = diverged || runs->list[k * sweep->seeds + i].state == CLI_DIVERGED;
        if (!diverged)
            return cli_fail("no setting has a %s on the holdout, so none was chosen",
                            dro_measure_name(sweep->by));
    }
    cli_fail("every setting diverged, so none was chosen: try smaller step sizes");
    return CLI_SWEEP_NONE;
}

/* objective: the function F if the best is chosen by it, or NULL. */
static int show_all(const cli_sweep *sweep, const cli_runs *runs, int best, const char *page,
                    const char *objective)
{
    if (cli_json(runs->args)) {
        json_t *all = json_pack("{s:o, s:s, s:o, s:o}", "html", cli_path_json(page), "by",
                                dro_measure_name(sweep->by), "settings", settings_json(sweep, best),
                                "runs", cli_runs_json(runs));
        if (objective)
            json_object_set_new(all, "F", cli_text_json(objective));
        int status = cli_emit(all);
        return status || best >= 0 ? status : none_chosen(sweep, runs);
    }
    printf("\n");
    print_table(sweep, best);
    if (objective)
        printf("\n"), cli_print("objective is F, of every setting: %s\n", objective);
    if (best < 0)
        return none_chosen(sweep, runs);
    printf("\n");
    cli_print("* chosen by %s on the holdout: `dro train --config %s/best.json` runs it again\n",
              dro_measure_name(sweep->by), runs->folder);
    cli_print("report  %s\n", page);
    return 0;
}

static int show_end(cli_sweep *sweep, cli_runs *runs)
{
    char page[4400];
    int status = collect(sweep, runs), best = choose(sweep);
    if (status == 0 && best >= 0)
        status = write_best(sweep, runs, best);
    dro_report *report = status ? NULL : cli_runs_report(runs, page, sizeof page);
    if (!report)
        return 1;
    bool by_objective = sweep->by == DRO_MEASURE_OBJECTIVE;
    status = show_all(sweep, runs, best, page, by_objective ? dro_report_objective(report) : NULL);
    dro_report_destroy(report);
    return status;
}

/* ---- the command ---- */

static int go(cli_sweep *sweep, cli_runs *runs, const char *optimizer)
{
    char data[4096];
    int status = cli_runs_check(runs, &optimizer, 1);
    status = status ? status : cli_sweep_read(sweep, runs, optimizer);
    status = status ? status : make_list(sweep, runs, optimizer);
    if (status)
        return status;
    dro_settings_get(runs->list[0].settings, "data", data, sizeof data);
    if (!cli_json(runs->args)) {
        cli_print("sweep of %s on %s: %d setting%s, %d seed%s each, %d run%s at a time with %d "
                  "thread%s, into %s\n",
                  optimizer, data, sweep->count, sweep->count == 1 ? "" : "s", sweep->seeds,
                  sweep->seeds == 1 ? "" : "s", runs->jobs, runs->jobs == 1 ? "" : "s",
                  runs->threads, runs->threads == 1 ? "" : "s", runs->folder);
        fflush(stdout);
    }
    status = cli_runs_go(runs);
    return status ? status : show_end(sweep, runs);
}

static int run(const cli_args *args)
{
    cli_runs runs;
    static cli_sweep sweep; /* its values are never freed */
    sweep.seeds = (int)cli_integer(args, "seeds");
    int status = cli_runs_open(&runs, args, cli_text(args, "out"));
    if (status == 0)
        status = go(&sweep, &runs, cli_text(args, "optimizer"));
    cli_sweep_free(&sweep);
    cli_runs_close(&runs);
    return status;
}

static const cli_option options[] = {
    {"optimizer", CLI_TEXT, "NAME", "recover", 0, 0, "an optimiser of `dro list optimizers`"},
    CLI_OPTION_TEXT("grid", "NAME=A,B,...",
                    "values to try; if repeated, all combinations are tried"),
    {"random", CLI_INTEGER, "N", NULL, 1, 10000,
     "try N random settings instead; --grid NAME=LOW..HIGH is a range"},
    CLI_OPTION_TEXT("by", "METRIC",
                    "the metric on the holdout that decides (default balanced_accuracy)"),
    {"out", CLI_TEXT, "DIR", "dro-sweep", 0, 0, "the folder of all runs and of the report"},
    CLI_RUNS_OPTIONS("1"),
    CLI_SETTINGS_OPTIONS,
    CLI_OPTIONS_END,
};

const cli_command cmd_sweep = {
    .name = "sweep",
    .usage = "[--data SPEC] [--optimizer NAME] --grid NAME=A,B,... [--random N] [--out DIR]",
    .summary = "try many settings of one optimiser and choose the best on a holdout",
    .details =
        "Tries every combination of the --grid values, or N random ones (a range LOW..HIGH of\n"
        "positive numbers is sampled on a logarithmic scale). The best is chosen on a holdout,\n"
        "never on the test set; holdout=0.1 is added to SPEC if it has none. The table shows\n"
        "both. With --by objective all settings are measured with one F, that of the first robust\n"
        "one (or --set report_objective=NAME:X). A grid of losses, regularisers or objectives\n"
        "changes F itself and needs another metric (or, for objectives, report_objective). DIR\n"
        "gets best.json, for `dro train --config`, and report.html. Run the same command again to\n"
        "resume; finished runs are not repeated.\n"
        "A run that diverges stops: the default of --on-divergence is stop here.\n"
        "Exit status 3: every setting diverged, so none was chosen.",
    .options = options,
    .settings = true,
    .ranks = true,
    .run = run,
};
