/* `dro bench data SPEC`: examples per second from the files to ready batches, and how long a
 * training loop would wait. Sees the public headers only. */
#include "cli.h"

#include <dro/data.h>
#include <dro/loader.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct outcome {
    double open_seconds, seconds;
    double loop_seconds, waited; /* of the loop that also takes steps */
    double bare;                 /* examples/s, decoding and resizing alone, 0: not images */
    uint64_t examples;
    size_t batch;
    int threads;
} outcome;

/* What is computed of it. */
typedef struct figures {
    bool rows;
    double speed, reading, bytes, wait, batch_ms;
} figures;

/* Draws for about `budget` seconds, and after each batch lets the time of a step pass: a step on a
 * device, which leaves the processor to the readers. Sets o->loop_seconds and o->examples. */
static dro_status loop(dro_loader *loader, double step, double budget, uint64_t *position,
                       outcome *o)
{
    uint64_t start_position = *position;
    dro_loaded loaded;
    dro_status status = DRO_OK;
    double start = cli_seconds();
    struct timespec pause = {(time_t)step, (long)(1e9 * (step - floor(step)))};
    for (; !status && cli_seconds() - start < budget; *position += o->batch) {
        status = dro_loader_draw(loader, *position, &loaded);
        if (step > 0)
            nanosleep(&pause, NULL);
    }
    o->loop_seconds = cli_seconds() - start;
    o->examples = *position - start_position;
    return status;
}

static dro_status measure(dro_loader *loader, const cli_args *args, bool files, outcome *o)
{
    double budget = cli_real(args, "time"), step = cli_real(args, "step-ms") / 1e3;
    uint64_t position = 0;
    dro_loaded batch;
    dro_status status = DRO_OK;
    int ring =
        2 * o->threads + 4; /* so that every slot of the ring has been used before the timing */
    for (int k = 0; !status && k < ring; k++, position += o->batch)
        status = dro_loader_draw(loader, position, &batch);
    double before = dro_loader_waited(loader);
    status = status ? status : loop(loader, 0, budget, &position, o);
    uint64_t examples = o->examples; /* of the loop without steps */
    o->seconds = o->loop_seconds;
    if (!status && step > 0) { /* two steps to reach a steady state, then the loop that counts */
        status = loop(loader, step, 2 * step, &position, o);
        before = dro_loader_waited(loader);
        status = status ? status : loop(loader, step, budget, &position, o);
    }
    o->examples = examples;
    o->waited = dro_loader_waited(loader) - before;
    if (!status && files)
        status = dro_loader_bare(loader, budget, &o->bare);
    return status;
}

/* A row format has no batches to prepare: reading is the work. */
static dro_status drive(dro_data *data, const dro_data_info *info, const cli_args *args, outcome *o)
{
    dro_loader_options options = dro_loader_options_default();
    dro_loader *loader = NULL;
    options.batch = o->batch;
    options.threads = o->threads;
    options.augment = !cli_flag(args, "plain");
    options.size = (int32_t)cli_integer(args, "size");
    dro_status status = dro_loader_create(data, DRO_TRAIN, &options, &loader);
    if (!status)
        status = measure(loader, args, info->kind == DRO_DATA_FILES, o);
    dro_loader_destroy(loader);
    return status;
}

/* The bytes of one image: in memory, or as a file (the mean of the first thousand). */
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

/* Rows stay in memory after reading, so a loop waits for them once. The share is over the first
 * epoch. */
static double rows_wait(const cli_args *args, const dro_data_info *info, const outcome *o)
{
    double batches = ceil((double)info->examples[DRO_TRAIN] / (double)cli_integer(args, "batch"));
    return o->open_seconds / (o->open_seconds + batches * cli_real(args, "step-ms") / 1e3);
}

static int report_json(const cli_args *args, const dro_data *data, const dro_data_info *info,
                       const outcome *o, const figures *f)
{
    json_t *skipped = json_array();
    for (int k = 0; dro_data_skipped(data, k); k++)
        json_array_append_new(skipped, cli_text_json(dro_data_skipped(data, k)));
    return cli_emit(json_pack(
        "{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "machine", cli_cpu(),
        "format", info->format, "threads", o->threads, "examples_per_s", f->speed, "bytes_per_s",
        f->bytes, "open_s", o->open_seconds, "open_bytes_per_s", f->reading, "step_ms",
        cli_real(args, "step-ms"), "batch_ms", f->batch_ms, "wait_share", f->wait,
        "bare_examples_per_s", o->bare > 0 ? json_real(o->bare) : json_null(), "skipped", skipped));
}

static void report_text(const cli_args *args, const dro_data *data, const outcome *o,
                        const figures *f)
{
    double step = cli_real(args, "step-ms");
    char loop[64] = "a loop that only drew";
    if (step > 0)
        snprintf(loop, sizeof loop, "a loop with steps of %g ms", step);
    for (int k = 0; dro_data_skipped(data, k); k++)
        cli_note(stderr, "skipped %s", dro_data_skipped(data, k));
    printf("opening   %.2f s, %.1f MB/s\n", o->open_seconds, f->reading / 1e6);
    if (f->rows)
        printf("parsing   %.0f examples/s on one thread; they stay in memory\n"
               "waiting   %s would wait for %.1f %% of its first epoch, while they are read\n",
               f->speed, loop, 100 * f->wait);
    else
        printf("batches   %.0f examples/s with %d reader thread%s, one batch every %.3g ms\n"
               "waiting   %s would wait %.1f %% of its time\n",
               f->speed, o->threads, o->threads == 1 ? "" : "s", f->batch_ms, loop, 100 * f->wait);
    if (o->bare > 0)
        printf("bare      %.0f examples/s decoded and resized on one thread; batches reach %.0f %% "
               "of it per thread\n",
               o->bare, 100 * f->speed / (o->bare * o->threads));
}

static int report(const cli_args *args, const dro_data *data, const dro_data_info *info,
                  const outcome *o)
{
    figures f = {.rows = info->kind != DRO_DATA_PIXELS && info->kind != DRO_DATA_FILES};
    double n = (double)(info->examples[DRO_TRAIN] + info->examples[DRO_TEST]);
    f.speed = f.rows ? n / o->open_seconds : (double)o->examples / o->seconds;
    f.reading = (double)info->bytes_read / o->open_seconds;
    f.bytes = f.rows ? f.reading : f.speed * bytes_per_image(data, info);
    f.wait = f.rows ? rows_wait(args, info, o) : o->waited / o->loop_seconds;
    f.batch_ms = 1e3 * (double)o->batch / f.speed;
    if (cli_json(args))
        return report_json(args, data, info, o, &f);
    report_text(args, data, o, &f);
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
    cli_busy("reading %s", cli_word(args, 0));
    dro_status status = dro_data_open(ctx, cli_word(args, 0), &data);
    cli_ready();
    o.open_seconds = cli_seconds() - start;
    status = status ? status : dro_data_info_get(data, &info);
    bool images = !status && (info.kind == DRO_DATA_PIXELS || info.kind == DRO_DATA_FILES);
    o.batch = (size_t)cli_integer(args, "batch");
    if (!status && (int64_t)o.batch > info.examples[DRO_TRAIN])
        o.batch = (size_t)info.examples[DRO_TRAIN];
    if (!status)
        cli_begin(args);
    if (images)
        status = drive(data, &info, args, &o);
    else
        o.threads = 1; /* one parser */
    int code = status ? cli_fail("%s", dro_context_error(ctx)) : report(args, data, &info, &o);
    dro_data_close(data);
    dro_context_destroy(ctx);
    return code;
}

static const cli_option options[] = {
    {"batch", CLI_INTEGER, "N", "128", 1, 1e6, "examples in a batch"},
    {"size", CLI_INTEGER, "N", "224", 8, 4096,
     "side of the square that image files are resized to"},
    {"time", CLI_REAL, "S", "3", 0.05, 3600, "seconds to run"},
    {"step-ms", CLI_REAL, "X", "0", 0, 60000, "milliseconds of a training step"},
    {"plain", CLI_FLAG, NULL, NULL, 0, 0, "no augmentation"},
    CLI_OPTIONS_END,
};

const cli_command bench_data = {
    .name = "bench data",
    .usage = "SPEC [--json] [--batch N] [--size N] [--time S] [--step-ms X] [--plain]",
    .summary = "examples per second from files to ready batches",
    .details =
        "Also measures how long a training loop would wait for data if its steps took --step-ms\n"
        "on a device; with 0 it only draws. A loop whose steps take longer than preparing one\n"
        "batch does not wait.",
    .options = options,
    .least = 1,
    .most = 1,
    .run = run,
};
