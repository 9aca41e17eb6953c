/* Runs a model of the library on numbers that came from elsewhere, for the comparison with PyTorch
 * (nets_check.py). Numbers are raw float32 or int32 in the files of one folder.
 *
 *     net_dump BACKEND MODEL CHANNELS HEIGHT WIDTH OUTPUTS FOLDER WHAT ...
 *
 *     tensors              prints each tensor's name, role (trained or running) and shape
 *     gradients N0 [N1]    reads weights.f32 (the tensors in that order), x.f32, labels.i32,
 *                          coef.f32; one part of N0 examples, or two. Writes losses.f32 (training),
 *                          grads.f32 (dim, per part), running.f32 (after it was accepted),
 *                          evaluated.f32 and logits.f32 (evaluation of part 0, before), mask.f32
 *                          (the last dropout layer)
 *     train OPTIMIZER STEPS BATCH [name=value ...]
 *                          reads weights.f32, x.f32, labels.i32; batches are drawn in the order of
 *                          the files. Writes losses.f32: each step's losses of its own batch, and
 *                          running.f32 */
#include "nn.h"

#include <dro/dro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dro_context *ctx;
static dro_net *net;
static const char *folder;

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "net_dump: %s: %s\n", what, why);
    exit(1);
}

static void need(const char *what, dro_status status)
{
    if (status != DRO_OK)
        give_up(what, ctx && dro_context_error(ctx)[0] ? dro_context_error(ctx)
                                                       : dro_status_text(status));
}

static FILE *open_file(const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, mode);
    if (!file)
        give_up(path, "cannot be opened");
    return file;
}

/* Numbers of four bytes. */
static void *room(size_t count)
{
    void *memory = calloc(count ? count : 1, 4);
    if (!memory)
        give_up("memory", "there is none");
    return memory;
}

static void *read_file(const char *name, size_t count)
{
    FILE *file = open_file(name, "rb");
    void *numbers = room(count);
    if (fread(numbers, 4, count, file) != count)
        give_up(name, "is too short");
    fclose(file);
    return numbers;
}

static void write_file(const char *name, const void *numbers, size_t count)
{
    FILE *file = open_file(name, "wb");
    if (fwrite(numbers, 4, count, file) != count || fclose(file) != 0)
        give_up(name, "cannot be written");
}

static void print_tensors(void)
{
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        printf("%s %s", t->name, t->place == DRO__IN_STATISTICS ? "running" : "trained");
        for (int d = 0; d < t->rank; d++)
            printf(" %lld", (long long)t->shape[d]);
        putchar('\n');
    }
}

/* weights.f32 into the weights (returned) and the running statistics. */
static float *take_weights(void)
{
    size_t total = net->graph.dim + net->graph.statistics_size, at = 0;
    float *all = read_file("weights.f32", total), *w = room(net->graph.dim);
    float *running = room(net->graph.statistics_size);
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        float *to = t->place == DRO__IN_STATISTICS ? running : w;
        memcpy(to + t->offset, all + at, t->count * sizeof *all);
        at += t->count;
    }
    need("weights", dro_net_set_weights(net, w));
    need("statistics", dro_net_set_statistics(net, running));
    free(all);
    free(running);
    return w;
}

static void write_statistics(void)
{
    float *running = room(net->graph.statistics_size);
    need("statistics", dro_net_statistics(net, running));
    write_file("running.f32", running, net->graph.statistics_size);
    free(running);
}

static size_t pixels(void)
{
    return dro__node_size(&net->graph.nodes[0]);
}

/* ---- gradients ---- */

/* What the last dropout layer multiplies by, (count, size) per part; keys are 0, 1, 2, ... in
 * each. */
static void write_masks(const size_t *counts, int part_count)
{
    int32_t layer = -1;
    for (int32_t i = 0; i < net->graph.count; i++)
        layer = net->graph.nodes[i].op == DRO__OP_DROPOUT ? i : layer;
    if (layer < 0)
        return;
    const dro__graph_node *node = &net->graph.nodes[layer];
    size_t size = dro__node_size(node), at = 0;
    float *mask = room((counts[0] + counts[1]) * size);
    for (int k = 0; k < part_count; k++)
        for (size_t n = 0; n < counts[k]; n++)
            for (size_t e = 0; e < size; e++)
                mask[at++] = dro__dropout_scale(node, layer, n, e);
    write_file("mask.f32", mask, at);
    free(mask);
}

static void gradients(int argc, char **argv)
{
    size_t counts[2] = {argc > 0 ? (size_t)atoi(argv[0]) : 0, argc > 1 ? (size_t)atoi(argv[1]) : 0};
    size_t total = counts[0] + counts[1], dim = dro_net_dim(net);
    size_t outputs = (size_t)dro_net_shape(net).outputs;
    int part_count = counts[1] ? 2 : 1;
    float *w = take_weights(), *x = read_file("x.f32", total * pixels());
    float *coef = read_file("coef.f32", total), *losses = room(total), *grads = room(2 * dim);
    float *logits = room(counts[0] * outputs), *both[2] = {grads, grads + dim};
    int32_t *labels = read_file("labels.i32", total);
    dro_net_batch parts[2] = {
        {.count = counts[0], .x = x, .labels = labels},
        {.count = counts[1], .x = x + counts[0] * pixels(), .labels = labels + counts[0]},
    };
    need("evaluate", dro_net_evaluate(net, w, parts, logits, losses));
    write_file("logits.f32", logits, counts[0] * outputs);
    write_file("evaluated.f32", losses, counts[0]);
    need("forward", dro_net_forward(net, w, parts, part_count, losses));
    need("backward", dro_net_backward(net, w, coef, both));
    dro_net_accept(net);
    write_file("losses.f32", losses, total);
    write_file("grads.f32", grads, (size_t)part_count * dim);
    write_masks(counts, part_count);
    write_statistics();
    void *all[] = {w, x, coef, losses, grads, logits, labels};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        free(all[k]);
}

/* ---- training ---- */

static struct {
    float *x;
    int32_t *labels;
    dro_problem inner;
    float *latest; /* (batch) losses of the last forward's first part */
} run;

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user; /* in the files' order the examples of a batch lie together */
    size_t first = (size_t)batch->ids[0];
    *out = (dro_net_batch){
        .count = batch->count, .x = run.x + first * pixels(), .labels = run.labels + first};
    return DRO_OK;
}

static dro_status watched(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    DRO_TRY(run.inner.forward(user, w, parts, part_count, losses));
    memcpy(run.latest, losses, parts[0].count * sizeof *losses);
    return DRO_OK;
}

static void train(int argc, char **argv)
{
    if (argc < 3)
        give_up("train", "an optimiser, steps and a batch are needed");
    size_t steps = (size_t)atoi(argv[1]), batch = (size_t)atoi(argv[2]), n = (steps + 1) * batch;
    float *w = take_weights();
    run.x = read_file("x.f32", n * pixels());
    run.labels = read_file("labels.i32", n);
    run.latest = room(batch);
    dro_net_source source = {.size = sizeof(dro_net_source), .fetch = fetch, .n = (int64_t)n};
    dro_optimizer *opt;
    need("problem", dro_net_problem(net, &source, &run.inner));
    dro_problem problem = run.inner;
    problem.forward = watched;
    need(argv[0], dro_optimizer_create(ctx, argv[0], &problem, &opt));
    need("order", dro_optimizer_set(opt, "order", "sequential"));
    need("batch", dro_optimizer_set(opt, "batch", argv[2]));
    for (int k = 3; k < argc; k++) {
        char *value = strchr(argv[k], '=');
        if (!value)
            give_up(argv[k], "is not name=value");
        *value = '\0';
        need(argv[k], dro_optimizer_set(opt, argv[k], value + 1));
    }
    need("start", dro_optimizer_start(opt, w));
    float *losses = room(steps * batch);
    for (size_t t = 0; t < steps; t++) {
        need("step", dro_optimizer_step(opt));
        memcpy(losses + t * batch, run.latest, batch * sizeof *losses);
    }
    write_file("losses.f32", losses, steps * batch);
    write_statistics();
    dro_optimizer_destroy(opt);
    void *all[] = {w, run.x, run.labels, run.latest, losses};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        free(all[k]);
}

int main(int argc, char **argv)
{
    if (argc < 9)
        give_up("usage", "net_dump BACKEND MODEL CHANNELS HEIGHT WIDTH OUTPUTS FOLDER WHAT ...");
    dro_model_shape shape = {atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6])};
    folder = argv[7];
    need(argv[1], dro_context_create(argv[1], 0, &ctx));
    need(argv[2], dro_net_model(ctx, argv[2], &shape, &net));
    if (strcmp(argv[8], "tensors") == 0) {
        print_tensors();
    } else {
        need("ready", dro_net_ready(net));
        if (strcmp(argv[8], "gradients") == 0)
            gradients(argc - 9, argv + 9);
        else if (strcmp(argv[8], "train") == 0)
            train(argc - 9, argv + 9);
        else
            give_up(argv[8], "is not one of tensors, gradients, train");
    }
    dro_net_destroy(net);
    dro_context_destroy(ctx);
    return 0;
}
