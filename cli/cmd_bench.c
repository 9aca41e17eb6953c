/* dro bench: the list of benchmarks. main.c runs `dro bench NAME` directly; this is the rest. */
#include "cli.h"

#include <string.h>

#define BENCH(name) extern const cli_command bench_##name;
#include "benches.def"
#undef BENCH

const cli_command *const cli_benches[] = {
#define BENCH(name) &bench_##name,
#include "benches.def"
#undef BENCH
    NULL,
};

enum { SKIP = sizeof "bench " - 1 };

static void list(FILE *to)
{
    fprintf(to, "\nbenchmarks:\n");
    cli_help_list(to, cli_benches, SKIP);
}

static int run(const cli_args *args)
{
    const char *word = cli_word(args, 0), *names[CLI_NAMES];
    if (!word) {
        int status =
            cli_usage("bench: no name: expected 'dro bench NAME' with a name from this list");
        list(stderr);
        return status;
    }
    int count = 0;
    char all[256] = "";
    for (; cli_benches[count]; count++) {
        size_t used = strlen(all);
        names[count] = cli_benches[count]->name + SKIP;
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", names[count]);
    }
    const char *nearest = dro_nearest(word, names, count);
    if (nearest)
        return cli_usage("bench: no benchmark '%s': did you mean '%s'?", word, nearest);
    return cli_usage("bench: no benchmark '%s': expected one of %s", word, all);
}

const cli_command cmd_bench = {
    .name = "bench",
    .usage = "NAME",
    .summary = "measure convergence, memory and speed",
    .details = "`dro bench NAME --help` describes one benchmark.",
    .most = 1,
    .run = run,
    .more = list,
};
