/* cuda_step MODEL OPTIMIZER PRECISION BATCH STEPS: milliseconds per training step on a GPU, the images, of the size
 * that is usual for the model, in its memory; compare with a PyTorch step on the same machine. */
#define _GNU_SOURCE
#include "backend.h"

#include <dro/dro.h>
#include <dro/net.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SOURCES = 4 };

static dro_net_batch batches[SOURCES];
static size_t batch_size;

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    (void)user;
    *batch = (dro_batch){.position = position, .count = count};
    batch->handle = &batches[position / batch_size % SOURCES];
    return DRO_OK;
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user;
    *out = *(const dro_net_batch *)batch->handle;
    return DRO_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void make_batches(const dro_context *ctx, dro_model_shape shape)
{
    size_t size = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    float *x = malloc(batch_size * size * sizeof *x);
    uint64_t state = 1;
    for (int k = 0; k < SOURCES; k++) {
        int32_t *labels = malloc(batch_size * sizeof *labels);
        for (size_t j = 0; j < batch_size * size; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[j] = (float)(state >> 40) * (4.0f / (1 << 24)) - 2;
        }
        for (size_t i = 0; i < batch_size; i++)
            labels[i] = (int32_t)(i * 7 % (size_t)shape.outputs);
        float *there = ctx->backend->alloc(batch_size * size, sizeof *x);
        ctx->backend->copy_in(there, x, batch_size * size * sizeof *x);
        batches[k] = (dro_net_batch){.count = batch_size, .x = there, .labels = labels};
    }
    free(x);
}

/* The passes without an optimiser. */
static dro_status passes(dro_context *ctx, dro_net *net, int parts, int steps)
{
    size_t dim = dro_net_dim(net);
    float *w = ctx->backend->alloc(dim, sizeof *w), *grads[2], first;
    float *losses = malloc(2 * batch_size * sizeof *losses);
    for (int k = 0; k < 2; k++)
        grads[k] = ctx->backend->alloc(dim, sizeof *w);
    ctx->backend->copy_in(w, dro_net_weights(net), dim * sizeof *w);
    double forward = 0, backward = 0;
    for (int k = -5; k < steps; k++) {
        double a = now();
        DRO_TRY(dro_net_forward(net, w, batches, parts, losses));
        double b = now();
        DRO_TRY(dro_net_backward(net, w, losses, grads));
        ctx->backend->copy_out(&first, grads[0], sizeof first);
        forward += k < 0 ? 0 : b - a;
        backward += k < 0 ? 0 : now() - b;
    }
    printf("  forward %.3f ms, backward %.3f ms, %d parts\n", forward / steps, backward / steps,
           parts);
    free(losses);
    return DRO_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static dro_model_shape usual(const char *model)
{
    for (int k = 0; dro_model_name(k); k++)
        if (strcmp(dro_model_name(k), model) == 0)
            return dro_model_usual(k);
    return (dro_model_shape){3, 32, 32, 10};
}

static dro_status run(dro_context *ctx, char **argv)
{
    dro_model_shape shape = usual(argv[1]);
    dro_net_source source = {.fetch = fetch, .draw = draw};
    dro_problem problem;
    dro_optimizer *opt;
    dro_net *net;
    dro_info info;
    int steps = atoi(argv[5]), warm = 10;
    batch_size = (size_t)atoi(argv[4]);
    make_batches(ctx, shape);
    DRO_TRY(dro_net_model(ctx, argv[1], &shape, &net));
    DRO_TRY(dro_net_set(net, "precision", argv[3]));
    DRO_TRY(dro_net_ready(net));
    DRO_TRY(dro_net_init(net, 1));
    DRO_TRY(dro_net_problem(net, &source, &problem));
    DRO_TRY(dro_optimizer_create(ctx, argv[2], &problem, &opt));
    DRO_TRY(dro_optimizer_set(opt, "batch", argv[4]));
    DRO_TRY(dro_optimizer_set(opt, "eta", "0.01"));
    DRO_TRY(dro_optimizer_start(opt, dro_net_weights(net)));
    double *ms = malloc((size_t)steps * sizeof *ms), begin = 0, created = now();
    for (int k = -warm; k < steps; k++) {
        double start = now();
        begin = k == 0 ? start : begin;
        DRO_TRY(dro_optimizer_step(opt));
        if (k == -warm)
            printf("%s %s %s: first step %.0f ms\n", argv[1], argv[2], argv[3], now() - created);
        if (k >= 0)
            ms[k] = now() - start;
    }
    double mean = (now() - begin) / steps;
    DRO_TRY(dro_optimizer_info(opt, &info));
    qsort(ms, (size_t)steps, sizeof *ms, compare);
    printf("%s %s %s batch %s: %.3f ms per step (median; mean %.3f, best %.3f), loss %.4f\n",
           argv[1], argv[2], argv[3], argv[4], ms[steps / 2], mean, ms[0], info.loss);
    free(ms);
    DRO_TRY(passes(ctx, net, strcmp(argv[2], "sgd") ? 2 : 1, steps));
    dro_optimizer_destroy(opt);
    dro_net_destroy(net);
    return DRO_OK;
}

int main(int argc, char **argv)
{
    dro_context *ctx;
    if (argc != 6 || dro_context_create("cuda", 1, &ctx) != DRO_OK) {
        fprintf(stderr, "usage: cuda_step MODEL OPTIMIZER PRECISION BATCH STEPS, on a GPU\n");
        return 2;
    }
    dro_status status = run(ctx, argv);
    if (status != DRO_OK)
        fprintf(stderr, "%s: %s\n", dro_status_text(status), dro_context_error(ctx));
    dro_context_destroy(ctx);
    return status != DRO_OK;
}
