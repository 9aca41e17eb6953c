/* The folder of a comparison: plan.json up to the first 0xff, and behind it the result.json of a
 * run. What is there is accepted or refused with a line; what is accepted is a plan again. */
#define _GNU_SOURCE
#include "../../cli/runs_folder.c"
#include "fuzz_cli.h"

static const char *name = "sgd-seed1";

static void put(const char *folder, const char *file, const uint8_t *bytes, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *to = fopen(path, "w");
    FUZZ_CHECK(to && fwrite(bytes, 1, size, to) == size && fclose(to) == 0);
}

/* A folder with one run that has begun. */
static cli_runs *one_run(void)
{
    static char folder[200], path[300];
    static cli_one one;
    static cli_runs runs;
    if (runs.folder)
        return &runs;
    FUZZ_CHECK(mkdtemp((char *)fuzz_path(folder, "plan-XXXXXX")));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FUZZ_CHECK(mkdir(path, 0777) == 0);
    put(path, "config.json", (const uint8_t *)"{}", 2);
    one = (cli_one){.name = (char *)name, .optimizer = "sgd"};
    FUZZ_CHECK(dro_settings_create(fuzz_context(), &one.settings) == DRO_OK);
    FUZZ_CHECK(dro_settings_set(one.settings, "optimizer", "sgd") == DRO_OK);
    FUZZ_CHECK(dro_settings_set(one.settings, "epochs", "2") == DRO_OK);
    runs = (cli_runs){.folder = folder, .ctx = fuzz_context(), .list = &one, .count = 1};
    return &runs;
}

static int look(const cli_args *args)
{
    cli_runs *runs = one_run();
    runs->args = args;
    if (fuzz_fine(make_plan(runs)))
        FUZZ_CHECK(fuzz_fine(make_plan(runs)));
    runs->ended = runs->began + 1;
    cli_runs_rate(runs);
    cli_runs_diverged(runs, &runs->list[0]);
    return 0;
}

static const cli_command *compare(void)
{
    int k = 0;
    while (strcmp(cli_commands[k]->name, "compare") != 0)
        k++;
    return cli_commands[k];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const cli_runs *runs = one_run();
    size_t first, second = fuzz_cut(bytes, size, 0xff, &first);
    char folder[300], *words[] = {NULL};
    snprintf(folder, sizeof folder, "%s/%s", runs->folder, name);
    put(runs->folder, "plan.json", bytes, first);
    put(folder, "result.json", bytes + size - second, second);
    cli_command command = *compare();
    command.run = look;
    FUZZ_CHECK(fuzz_fine(cli_run(&command, 0, words)));
    return 0;
}
