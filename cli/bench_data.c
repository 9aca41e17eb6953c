/* `dro bench data SPEC`: examples per second from the files to ready batches, and how long a training
 * loop would wait. Sees the public headers only. */
#include "cli.h"

#include <dro/data.h>
#include <dro/loader.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct outcome {
    double open_seconds, seconds, waited,
        bare; /* bare: decoding and resizing alone, 0: not images */
    uint64_t examples, bytes;
    int threads;
} outcome;

/* Draws for about `budget` seconds. A row format has no batches to prepare: reading is the work. */
static dro_status drive(dro_data *data, const cli_args *args, outcome *o)
{
    dro_loader_options options = dro_loader_options_default();
    dro_data_info info;
    dro_loader *loader;
    dro_loaded batch;
    dro_status status = dro_data_info_get(data, &info);
    options.batch = (size_t)cli_integer(args, "batch");
    if (!status && (int64_t)options.batch > info.examples[DRO_TRAIN])
        options.batch = (size_t)info.examples[DRO_TRAIN];
    options.threads = o->threads;
    options.augment = !cli_flag(args, "plain");
    options.size = (int32_t)cli_integer(args, "size");
    status = status ? status : dro_loader_create(data, DRO_TRAIN, &options, &loader);
    if (status)
        return status;
    uint64_t position = 0;
    for (int k = 0; !status && k < 4; k++, position += options.batch) /* fill the ring first */
        status = dro_loader_draw(loader, position, &batch);
    double start = cli_seconds(), waited = dro_loader_waited(loader),
           budget = cli_real(args, "time");
    uint64_t first = position;
    while (!status && cli_seconds() - start < budget) {
        status = dro_loader_draw(loader, position, &batch);
        position += options.batch;
    }
    o->seconds = cli_seconds() - start;
    if (!status && info.kind == DRO_DATA_FILES)
        status = dro_loader_bare(loader, budget, &o->bare);
    o->waited = dro_loader_waited(loader) - waited;
    o->examples = position - first;
    dro_loader_destroy(loader);
    return status;
}

/* What one image takes: in memory, or as a file (the mean of the first thousand). */
static double bytes_per_image(const dro_data *data, const dro_data_info *info)
{
    enum { SAMPLE = 1000 };
    dro_examples e;
    double sum = 0;
    int64_t count = 0;
    if (info->kind == DRO_DATA_PIXELS)
        return (double)info->channels * info->height * info->width;
    if (dro_data_examples(data, DRO_TRAIN, &e) != DRO_OK || !e.paths)
        return 0;
    for (int64_t i = 0; i < e.count && i < SAMPLE; i++) {
        struct stat about;
        if (stat(e.paths[i], &about) == 0) {
            sum += (double)about.st_size;
            count++;
        }
    }
    return count ? sum / (double)count : 0;
}

static int report(const cli_args *args, const dro_data *data, const dro_data_info *info,
                  const outcome *o)
{
    bool rows = info->kind != DRO_DATA_PIXELS && info->kind != DRO_DATA_FILES;
    double n = (double)(info->examples[DRO_TRAIN] + info->examples[DRO_TEST]);
    double speed = rows ? n / o->open_seconds : (double)o->examples / o->seconds;
    double reading = (double)info->bytes_read / o->open_seconds;
    double bytes = rows ? reading : speed * bytes_per_image(data, info);
    double wait = rows ? 0 : o->waited / o->seconds;
    if (cli_json(args))
        return cli_emit(json_pack(
            "{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:o}", "machine", cli_cpu(), "format",
            info->format, "threads", o->threads, "examples_per_s", speed, "bytes_per_s", bytes,
            "open_s", o->open_seconds, "open_bytes_per_s", reading, "wait_share", wait,
            "bare_examples_per_s", o->bare > 0 ? json_real(o->bare) : json_null()));
    printf("opening   %.2f s, %.1f MB/s\n", o->open_seconds, reading / 1e6);
    if (rows)
        printf("parsing   %.0f examples/s (one thread)\n", speed);
    else
        printf(
            "batches   %.0f examples/s with %d reader thread%s; a loop that only drew would wait "
            "%.0f %%\n",
            speed, o->threads, o->threads == 1 ? "" : "s", 100 * wait);
    if (o->bare > 0)
        printf("bare      %.0f examples/s decoded and resized on one thread; batches reach %.0f %% "
               "of it "
               "per thread\n",
               o->bare, 100 * speed / (o->bare * o->threads));
    printf("%s\n", cli_cpu());
    return 0;
}

static int run(const cli_args *args)
{
    dro_context *ctx = cli_context(args);
    dro_data *data = NULL;
    dro_data_info info;
    outcome o = {0};
    if (!ctx)
        return 1;
    o.threads = dro_context_threads(ctx);
    double start = cli_seconds();
    dro_status status = dro_data_open(ctx, cli_word(args, 0), &data);
    o.open_seconds = cli_seconds() - start;
    status = status ? status : dro_data_info_get(data, &info);
    bool images = !status && (info.kind == DRO_DATA_PIXELS || info.kind == DRO_DATA_FILES);
    if (images)
        status = drive(data, args, &o);
    int code = status ? cli_fail("%s", dro_context_error(ctx)) : report(args, data, &info, &o);
    dro_data_close(data);
    dro_context_destroy(ctx);
    return code;
}

static const cli_option options[] = {
    {"batch", CLI_INTEGER, "N", "128", 1, 1e6, "examples in a batch"},
    {"size", CLI_INTEGER, "N", "224", 8, 4096, "images in files: the side they become"},
    {"time", CLI_REAL, "S", "3", 0.05, 3600, "seconds to draw for"},
    {"plain", CLI_FLAG, NULL, NULL, 0, 0, "no augmentation"},
    CLI_OPTIONS_END,
};

const cli_command bench_data = {
    .name = "bench data",
    .usage = "SPEC [--json] [--batch N] [--size N] [--time S] [--plain]",
    .summary = "examples per second from files to ready batches",
    .options = options,
    .least = 1,
    .most = 1,
    .run = run,
};
