/* dro bench step: milliseconds per training step of a network, on synthetic images in memory; on a
 * GPU, small ones in its memory. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SOURCES = 4 }; /* batches used in rotation, as in a loader's ring */

typedef struct source {
    dro_net_batch batch[SOURCES];
    size_t size, count;
    float *pixels;
    int32_t *labels;
    dro_net_images device_images; /* on a GPU, instead of pixels */
    int64_t *ids;
} source;

/* The same images on a GPU, as bytes; where there is none they stay pixels. */
static bool source_send(source *s, dro_context *ctx, size_t batch)
{
    static const float scale[3] = {4.0f / 255, 4.0f / 255, 4.0f / 255}, shift[3] = {-2, -2, -2};
    size_t count = SOURCES * batch;
    uint8_t *bytes = malloc(count * s->size);
    s->ids = malloc(count * sizeof *s->ids);
    if (bytes && s->ids) {
        for (size_t j = 0; j < count * s->size; j++)
            bytes[j] = (uint8_t)((s->pixels[j] + 2) * 63.75f);
        for (size_t i = 0; i < count; i++)
            s->ids[i] = (int64_t)i;
    }
    bool on_device = bytes && s->ids &&
                     dro_net_images_create(ctx, bytes, count * s->size, scale, shift,
                                           &s->device_images) == DRO_OK;
    free(bytes);
    for (size_t k = 0; on_device && k < SOURCES; k++) {
        s->batch[k].x = NULL;
        s->batch[k].images = &s->device_images;
        s->batch[k].ids = s->ids + k * batch;
    }
    return on_device;
}

static bool source_make(source *s, const dro_model_shape *shape, size_t batch)
{
    s->size = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    s->count = batch;
    s->pixels = malloc(SOURCES * batch * s->size * sizeof *s->pixels);
    s->labels = malloc(SOURCES * batch * sizeof *s->labels);
    if (!s->pixels || !s->labels)
        return false;
    uint64_t state = 1;
    for (size_t j = 0; j < SOURCES * batch * s->size; j++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        s->pixels[j] = (float)(state >> 40) * (4.0f / (1 << 24)) - 2;
    }
    for (size_t i = 0; i < SOURCES * batch; i++)
        s->labels[i] = (int32_t)(i * 7 % (size_t)(shape->outputs > 1 ? shape->outputs : 2));
    for (size_t k = 0; k < SOURCES; k++)
        s->batch[k] = (dro_net_batch){
            .count = batch, .x = s->pixels + k * batch * s->size, .labels = s->labels + k * batch};
    return true;
}

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    source *s = user;
    *batch = (dro_batch){.position = position, .count = count};
    batch->handle = &s->batch[position / s->count % SOURCES];
    return DRO_OK;
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user;
    *out = *(const dro_net_batch *)batch->handle;
    return DRO_OK;
}

/* ---- measuring ---- */

typedef struct subject {
    dro_context *ctx;
    dro_net *net;
    dro_optimizer *opt; /* NULL: evaluation */
    source data;
    float *logits;
    uint64_t steps;
} subject;

static dro_status step(subject *s)
{
    if (s->opt)
        return dro_optimizer_step(s->opt);
    return dro_net_evaluate(s->net, dro_net_weights(s->net), &s->data.batch[s->steps++ % SOURCES],
                            s->logits, NULL);
}

static dro_status prepare(subject *s, const cli_args *args, const dro_model_shape *shape)
{
    char text[32];
    dro_problem problem;
    const char *optimizer = cli_text(args, "optimizer");
    size_t batch = (size_t)cli_integer(args, "batch");
    dro_status status = dro_net_model(s->ctx, cli_text(args, "model"), shape, &s->net);
    if (status == DRO_OK && cli_text(args, "precision"))
        status = dro_net_set(s->net, "precision", cli_text(args, "precision"));
    if (status == DRO_OK)
        status = dro_net_ready(s->net);
    if (status == DRO_OK)
        status = dro_net_init(s->net, 1);
    if (status != DRO_OK)
        return status;
    s->logits = malloc(batch * (size_t)shape->outputs * sizeof *s->logits);
    if (!s->logits || !source_make(&s->data, shape, batch))
        return DRO_ERR_MEMORY;
    bool on_device = shape->channels <= 3 && source_send(&s->data, s->ctx, batch);
    if (strcmp(optimizer, "eval") == 0)
        return DRO_OK;
    dro_net_source from = {.size = sizeof(dro_net_source),
                           .user = &s->data,
                           .fetch = fetch,
                           .draw = draw,
                           .images = on_device};
    snprintf(text, sizeof text, "%zu", batch);
    status = dro_net_problem(s->net, &from, &problem);
    if (status == DRO_OK)
        status = dro_optimizer_create(s->ctx, optimizer, &problem, &s->opt);
    if (status == DRO_OK)
        status = dro_optimizer_set(s->opt, "batch", text);
    if (status == DRO_OK)
        status = dro_optimizer_set(s->opt, "eta", "0.01");
    return status == DRO_OK ? dro_optimizer_start(s->opt, dro_net_weights(s->net)) : status;
}

static void subject_free(subject *s)
{
    dro_optimizer_destroy(s->opt);
    dro_net_destroy(s->net);
    dro_net_images_free(s->ctx, &s->data.device_images);
    free(s->data.ids);
    free(s->data.pixels);
    free(s->data.labels);
    free(s->logits);
    dro_context_destroy(s->ctx);
}

static bool on_gpu(const subject *s)
{
    return strcmp(dro_context_backend(s->ctx), "cuda") == 0;
}

static const char *precision_of(const cli_args *args, const subject *s)
{
    const char *word = cli_text(args, "precision");
    return word ? word : on_gpu(s) ? "tf32" : "fp32";
}

/* Multiply-adds of a step: a gradient costs about two more forward passes than the losses. */
static double work_of(const subject *s, double examples)
{
    return (s->opt ? 3 : 1) * examples * (double)dro_net_multiply_adds(s->net);
}

static int report(const cli_args *args, subject *s, double *ms, int count, double peak)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double median = cli_median(ms, count), batch = (double)cli_integer(args, "batch");
    dro_info info = {0};
    double evaluated = batch;
    if (s->opt && dro_optimizer_info(s->opt, &info) == DRO_OK && info.step)
        evaluated = (double)info.evaluations / (double)info.step;
    bool gpu = on_gpu(s); /* the peak is the processor's */
    double share = gpu ? NAN : 2 * work_of(s, evaluated) / (median * 1e-3) / peak;
    double peak_mib = (double)usage.ru_maxrss / 1024;
    if (cli_json(args))
        return cli_emit(json_pack(
            "{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:f}", "machine",
            cli_cpu(), "model", cli_text(args, "model"), "optimizer", cli_text(args, "optimizer"),
            "backend", dro_context_backend(s->ctx), "precision", precision_of(args, s), "threads",
            dro_context_threads(s->ctx), "batch", (json_int_t)batch, "ms_per_step", median,
            "ms_min", ms[0], "ms_max", ms[count - 1], "examples_per_s", batch / (median * 1e-3),
            "peak_gflops", cli_number(gpu ? NAN : peak * 1e-9), "share_of_peak", cli_number(share),
            "peak_mib", peak_mib));
    int digits = median < 10 ? 3 : 2;
    printf("%.*f ms per step (%.*f to %.*f)\n", digits, median, digits, ms[0], digits,
           ms[count - 1]);
    printf("%.0f examples/s, ", batch / (median * 1e-3));
    if (!gpu)
        printf("%.0f %% of the %.0f GFLOP/s that this machine does at its best%s, ", 100 * share,
               peak * 1e-9, share > 1 ? " (counted as the plain algorithm)" : "");
    printf("%.0f MiB at most\n", peak_mib);
    return 0;
}

static int run_rounds(const cli_args *args, subject *s)
{
    enum { MOST = 10000 };
    int rounds = (int)cli_integer(args, "rounds"), warm = on_gpu(s) ? 10 : 3;
    double *ms = malloc((size_t)rounds * sizeof *ms), peak = 0;
    dro_status status = ms ? dro_bench_peak(s->ctx, &peak) : DRO_ERR_MEMORY;
    for (int k = -warm; status == DRO_OK && k < rounds; k++) {
        double start = cli_seconds();
        status = step(s);
        if (k >= 0)
            ms[k] = (cli_seconds() - start) * 1e3;
        cli_progress("step %d of %d", k + 1, rounds);
    }
    cli_progress(NULL);
    int result = status == DRO_OK ? report(args, s, ms, rounds, peak)
                                  : cli_fail("bench step: %s", dro_context_error(s->ctx));
    free(ms);
    return result;
}

static dro_model_shape shape_of(const cli_args *args)
{
    const char *model = cli_text(args, "model");
    size_t length = strcspn(model, ":");
    dro_model_shape shape = {3, 32, 32, 10};
    for (int i = 0; dro_model_name(i); i++)
        if (strlen(dro_model_name(i)) == length && strncmp(dro_model_name(i), model, length) == 0)
            shape = dro_model_usual(i);
    if (cli_integer(args, "size"))
        shape.height = shape.width = (int32_t)cli_integer(args, "size");
    return shape;
}

static int run(const cli_args *args)
{
    subject s = {.ctx = cli_context(args)};
    dro_model_shape shape = shape_of(args);
    if (!s.ctx)
        return 1;
    int wrong = cli_precision(cli_name(args), "--precision ", cli_text(args, "precision"), s.ctx);
    if (wrong) {
        dro_context_destroy(s.ctx);
        return wrong;
    }
    dro_status status = prepare(&s, args, &shape);
    if (status == DRO_OK)
        cli_begin(args);
    if (status == DRO_OK && !cli_json(args))
        cli_print("%s, %s, batch %lld, backend %s, %d threads\n", cli_text(args, "model"),
                  cli_text(args, "optimizer"), cli_integer(args, "batch"),
                  dro_context_backend(s.ctx), dro_context_threads(s.ctx));
    fflush(stdout);
    int result = status == DRO_OK ? run_rounds(args, &s)
                                  : cli_fail("bench step: %s", status == DRO_ERR_MEMORY
                                                                   ? "out of memory"
                                                                   : dro_context_error(s.ctx));
    subject_free(&s);
    return result;
}

static const cli_option options[] = {
    {"model", CLI_TEXT, "NAME", "resnet20", 0, 0, "a model of `dro list models`"},
    {"optimizer", CLI_TEXT, "NAME", "recover", 0, 0, "an optimiser, or eval for evaluation alone"},
    {"batch", CLI_INTEGER, "N", "128", 1, 65536, "examples per batch"},
    {"size", CLI_INTEGER, "N", "0", 0, 4096,
     "height and width of the images; 0: the model's usual"},
    {"rounds", CLI_INTEGER, "N", "15", 1, 100000, "timed steps, after a warm-up"},
    {"precision", CLI_TEXT, "WORD", NULL, 0, 0, "fp32 (tf32 and bf16 need a GPU)"},
    CLI_OPTIONS_END,
};

const cli_command bench_step = {
    .name = "bench step",
    .usage = "[--model NAME] [--batch N] [--optimizer NAME] [--json]",
    .summary = "milliseconds per training step of a network",
    .details =
        "Trains on synthetic images in memory, so only the network and the optimiser are\n"
        "measured. The share of the peak compares the multiply-adds of the direct algorithm\n"
        "(forward once, backward twice that) with the machine's peak rate of multiplications in\n"
        "registers.",
    .options = options,
    .run = run,
};
