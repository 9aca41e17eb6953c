/* dro bench vector: the backend's vector operations against the memory bandwidth of the machine.
 * All measuring is the library's (dro/bench.h); this prints it. */
#include "cli.h"

#include <dro/bench.h>

enum { CAPACITY = 32 };

static int report(const cli_args *args, const dro_context *ctx, const dro_bench_speed *speeds,
                  size_t count)
{
    double triad = speeds[0].bytes_per_s;
    if (cli_json(args)) {
        json_t *rows = json_array();
        for (size_t k = 1; k < count; k++)
            json_array_append_new(rows,
                                  json_pack("{s:s, s:f, s:f}", "operation", speeds[k].operation,
                                            "gb_per_s", speeds[k].bytes_per_s / 1e9,
                                            "share_of_triad", speeds[k].bytes_per_s / triad));
        return cli_emit(json_pack("{s:s, s:s, s:i, s:I, s:f, s:o}", "machine", cli_cpu(), "backend",
                                  dro_context_backend(ctx), "threads", dro_context_threads(ctx),
                                  "length", (json_int_t)cli_integer(args, "length"),
                                  "triad_gb_per_s", triad / 1e9, "rows", rows));
    }
    const char *const headers[] = {"operation", ">GB/s", ">of the triad"};
    cli_table *table = cli_table_create(3, headers);
    for (size_t k = 0; k < count; k++) {
        cli_table_cell(table, "%s", speeds[k].operation);
        cli_table_cell(table, "%.1f", speeds[k].bytes_per_s / 1e9);
        cli_table_cell(table, "%.0f %%", 100 * speeds[k].bytes_per_s / triad);
    }
    cli_table_print(table);
    printf(
        "\n%s; backend %s, %d threads, %lld floats per vector.\n"
        "The best of %lld rounds. The triad is counted as STREAM does, three arrays, without the\n"
        "fetch before a store; an array updated in place counts as read and as written.\n",
        cli_cpu(), dro_context_backend(ctx), dro_context_threads(ctx), cli_integer(args, "length"),
        cli_integer(args, "rounds"));
    return 0;
}

static int run(const cli_args *args)
{
    dro_bench_speed speeds[CAPACITY];
    size_t count = 0;
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    cli_begin(args);
    cli_progress("measuring vector operations ...");
    dro_status status =
        dro_bench_vector(ctx, (size_t)cli_integer(args, "length"), (int)cli_integer(args, "rounds"),
                         speeds, CAPACITY, &count);
    cli_progress(NULL);
    int result = status == DRO_OK ? report(args, ctx, speeds, count < CAPACITY ? count : CAPACITY)
                                  : cli_fail("bench vector: %s", dro_context_error(ctx));
    dro_context_destroy(ctx);
    return result;
}

static const cli_option options[] = {
    {"length", CLI_INTEGER, "N", "32000000", 1, 1e11, "floats per vector; five vectors are used"},
    {"rounds", CLI_INTEGER, "N", "15", 1, 1000, "each operation runs once per round"},
    CLI_OPTIONS_END,
};

const cli_command bench_vector = {
    .name = "bench vector",
    .usage = "[--length N] [--rounds N] [--json]",
    .summary = "speed of the vector operations against the machine's memory bandwidth",
    .details =
        "Runs the triad a[i] = b[i] + s c[i] and every vector operation of the backend in the\n"
        "shapes that the optimisers use, one after another in each round, and prints the best\n"
        "time. To measure memory, the vectors must be far larger than the last-level cache.",
    .options = options,
    .run = run,
};
