/* Command lines: words that end with a newline, the first one a command. All is parsed and checked
 * as the command does it, and nothing is run. */
#include "fuzz_cli.h"
#include "sweep.h"

#include <sanitizer/lsan_interface.h>

enum { WORDS = 60 };

static const cli_command *current;

static void look_options(const cli_args *args)
{
    const char *name, *value;
    for (int k = 0; (name = cli_given_at(args, k, &value)); k++) {
        cli_text(args, name);
        cli_flag(args, name);
    }
    for (int k = 0; cli_word(args, k); k++)
        FUZZ_CHECK(k < WORDS);
}

static int take_settings(const cli_args *args)
{
    static dro_settings *settings;
    static unsigned uses;
    if (uses++ % 64 == 0) { /* those of earlier inputs stay: making them takes long */
        dro_settings_destroy(settings);
        FUZZ_CHECK(dro_settings_create(fuzz_context(), &settings) == DRO_OK);
    }
    cli_scope scope = {.command = current->name, .ctx = fuzz_context(), .settings = settings};
    scope.optimizer = cli_given(args, "optimizer", 0);
    int status = scope.optimizer ? cli_settings_set(&scope, "optimizer", scope.optimizer) : 0;
    status = status ? status : cli_settings_take(&scope, args);
    status = status ? status : cli_settings_check(&scope);
    return status;
}

/* --arm of compare, --grid of sweep: their texts live as long as the program. */
static int take_runs(const cli_args *args)
{
    static cli_sweep sweep;
    cli_arm arms[CLI_ARMS];
    cli_runs runs = {.args = args, .folder = "", .ctx = fuzz_context(), .lock = -1};
    int count, status;
    __lsan_disable();
    if (strcmp(current->name, "sweep") == 0) {
        sweep = (cli_sweep){.seeds = 1};
        status = cli_sweep_read(&sweep, &runs, "sgd");
        cli_sweep_free(&sweep);
    } else {
        status = cli_arms_read(&runs, arms, CLI_ARMS, &count);
    }
    __lsan_enable();
    return status;
}

static int look(const cli_args *args)
{
    char spec[256];
    look_options(args);
    if (!current->settings)
        return 0;
    int status = take_settings(args);
    if (status == 0 && cli_given(args, "label", 0))
        status = cli_label_spec(args, "csv:t.csv", spec, sizeof spec);
    bool many = strcmp(current->name, "sweep") == 0 || strcmp(current->name, "compare") == 0;
    return status == 0 && many ? take_runs(args) : status;
}

static const cli_command *find(const char *word)
{
    for (int k = 0; cli_commands[k]; k++)
        if (strcmp(cli_commands[k]->name, word) == 0)
            return cli_commands[k];
    for (int k = 0; cli_benches[k]; k++)
        if (strcmp(cli_benches[k]->name, word) == 0)
            return cli_benches[k];
    return cli_commands[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool quiet;
    char *text = malloc(size + 1), *words[WORDS], *rest = text, *word;
    int count = 0;
    if (!quiet)
        FUZZ_CHECK(freopen("/dev/null", "w", stdout)); /* where --help goes */
    quiet = true;
    FUZZ_CHECK(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    while (count < WORDS - 1 && (word = strsep(&rest, "\n")))
        words[count++] = word;
    words[count] = NULL;
    cli_command copy = *find(words[0]);
    copy.run = look;
    current = &copy;
    fuzz_fine(cli_run(&copy, count - 1, words + 1));
    free(text);
    return 0;
}
