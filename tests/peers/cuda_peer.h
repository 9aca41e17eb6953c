/* What cuda_step.c and cuda_runs.c share: a network and an optimiser on synthetic images that are
 * in a GPU's memory.
 *
 * Steps are those of `dro train`: the images are bytes on the GPU and a step is queued, not waited
 * for. With the word `host` they are floats on the GPU, and the host drives each step: forward,
 * wait, the tilt, backward, wait, the move. With `deterministic` the network is set so
 * (include/dro/net.h), with `cudnn` no convolution is our own. */
#ifndef DRO_CUDA_PEER_H
#define DRO_CUDA_PEER_H

#include "backend.h"

#include <dro/dro.h>
#include <dro/net.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PEER_SOURCES = 4, PEER_WARM = 10, PEER_SKIPPED = 77 };

typedef struct peer {
    const char *model, *optimizer, *precision;
    size_t batch;
    int steps;
    bool host, deterministic, cudnn;
    dro_context *ctx;
    dro_net *net;
    dro_optimizer *opt;
    dro_net_batch batches[PEER_SOURCES];
    dro_net_images images;
    int64_t *ids;
    int32_t *labels;
} peer;

static double peer_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Whether there is a GPU; else one line that says why not. */
static bool peer_gpu(const char *program)
{
    dro_context *ctx = NULL;
    bool works = dro_context_create("cuda", 1, &ctx) == DRO_OK;
    const char *why = works ? NULL : dro_backend_missing("cuda");
    if (!works)
        fprintf(stderr, "%s: skipped: %s\n", program, why ? why : "this build has no cuda backend");
    dro_context_destroy(ctx);
    return works;
}

/* MODEL OPTIMIZER PRECISION BATCH STEPS, then numbers (`more` of them, left to the caller), then
 * words. */
static bool peer_read(peer *p, int argc, char **argv, int more)
{
    if (argc < 6 + more)
        return false;
    *p = (peer){.model = argv[1], .optimizer = argv[2], .precision = argv[3]};
    int batch = atoi(argv[4]);
    p->batch = batch > 0 ? (size_t)batch : 0;
    p->steps = atoi(argv[5]);
    for (int k = 6 + more; k < argc; k++)
        if (strcmp(argv[k], "host") == 0)
            p->host = true;
        else if (strcmp(argv[k], "deterministic") == 0)
            p->deterministic = true;
        else if (strcmp(argv[k], "cudnn") == 0)
            p->cudnn = true;
        else
            return false;
    return p->batch > 0 && p->steps > 0;
}

/* "resnet20 recover bf16 batch 128, host-driven, deterministic" */
static void peer_name(const peer *p, char text[200])
{
    snprintf(text, 200, "%s %s %s batch %zu, %s%s%s", p->model, p->optimizer, p->precision,
             p->batch, p->host ? "host-driven" : "queued",
             p->deterministic ? ", deterministic" : "", p->cudnn ? ", cuDNN's convolutions" : "");
}

static dro_status peer_draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    peer *p = user;
    *batch = (dro_batch){.position = position, .count = count};
    batch->handle = &p->batches[position / p->batch % PEER_SOURCES];
    return DRO_OK;
}

static dro_status peer_fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user;
    *out = *(const dro_net_batch *)batch->handle;
    return DRO_OK;
}

static dro_model_shape peer_shape(const char *model)
{
    for (int k = 0; dro_model_name(k); k++)
        if (strcmp(dro_model_name(k), model) == 0)
            return dro_model_usual(k);
    return (dro_model_shape){3, 32, 32, 10};
}

/* The images as floats on the GPU. */
static dro_status peer_floats(peer *p, const uint8_t *bytes, size_t size)
{
    size_t some = p->batch * size;
    float *x = malloc(some * sizeof *x);
    if (!x)
        return DRO_ERR_MEMORY;
    for (int k = 0; k < PEER_SOURCES; k++) {
        for (size_t j = 0; j < some; j++)
            x[j] = (float)bytes[(size_t)k * some + j] * (4.0f / 255) - 2;
        float *there = p->ctx->backend->alloc(some, sizeof *x);
        if (!there) {
            free(x);
            return DRO_ERR_MEMORY;
        }
        p->ctx->backend->copy_in(there, x, some * sizeof *x);
        p->batches[k].x = there;
    }
    free(x);
    return DRO_OK;
}

static dro_status peer_images(peer *p, dro_model_shape shape)
{
    static const float scale[3] = {4.0f / 255, 4.0f / 255, 4.0f / 255}, shift[3] = {-2, -2, -2};
    size_t size = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    size_t count = PEER_SOURCES * p->batch;
    uint8_t *bytes = malloc(count * size);
    p->ids = malloc(count * sizeof *p->ids);
    p->labels = malloc(count * sizeof *p->labels);
    if (!bytes || !p->ids || !p->labels) {
        free(bytes);
        return DRO_ERR_MEMORY;
    }
    uint64_t state = 1;
    for (size_t j = 0; j < count * size; j++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[j] = (uint8_t)(state >> 56);
    }
    for (size_t i = 0; i < count; i++) {
        p->ids[i] = (int64_t)i;
        p->labels[i] = (int32_t)(i * 7 % (size_t)shape.outputs);
    }
    for (size_t k = 0; k < PEER_SOURCES; k++)
        p->batches[k] = (dro_net_batch){.count = p->batch,
                                        .labels = p->labels + k * p->batch,
                                        .images = p->host ? NULL : &p->images,
                                        .ids = p->host ? NULL : p->ids + k * p->batch};
    dro_status status =
        p->host ? peer_floats(p, bytes, size)
                : dro_net_images_create(p->ctx, bytes, count * size, scale, shift, &p->images);
    free(bytes);
    return status;
}

/* Up to a started optimiser. */
static dro_status peer_open(peer *p)
{
    dro_model_shape shape = peer_shape(p->model);
    dro_net_source source = {.size = sizeof(dro_net_source),
                             .user = p,
                             .fetch = peer_fetch,
                             .draw = peer_draw,
                             .images = !p->host};
    dro_problem problem;
    char batch[32];
    snprintf(batch, sizeof batch, "%zu", p->batch);
    DRO_TRY(dro_context_create("cuda", 1, &p->ctx));
    DRO_TRY(peer_images(p, shape));
    DRO_TRY(dro_net_model(p->ctx, p->model, &shape, &p->net));
    DRO_TRY(dro_net_set(p->net, "precision", p->precision));
    DRO_TRY(dro_net_set(p->net, "deterministic", p->deterministic ? "yes" : "no"));
    DRO_TRY(dro_net_set(p->net, "convolutions", p->cudnn ? "cudnn" : "own"));
    DRO_TRY(dro_net_ready(p->net));
    DRO_TRY(dro_net_init(p->net, 1));
    DRO_TRY(dro_net_problem(p->net, &source, &problem));
    DRO_TRY(dro_optimizer_create(p->ctx, p->optimizer, &problem, &p->opt));
    DRO_TRY(dro_optimizer_set(p->opt, "batch", batch));
    DRO_TRY(dro_optimizer_set(p->opt, "eta", "0.01"));
    return dro_optimizer_start(p->opt, dro_net_weights(p->net));
}

static void peer_close(peer *p)
{
    dro_optimizer_destroy(p->opt);
    dro_net_destroy(p->net);
    for (int k = 0; p->host && k < PEER_SOURCES; k++)
        if (p->batches[k].x)
            p->ctx->backend->free((void *)p->batches[k].x);
    if (p->ctx)
        dro_net_images_free(p->ctx, &p->images);
    free(p->ids);
    free(p->labels);
    dro_context_destroy(p->ctx);
}

static void peer_failed(const char *program, const peer *p, dro_status status)
{
    const char *text = p->ctx ? dro_context_error(p->ctx) : "";
    fprintf(stderr, "%s: %s%s%s\n", program, dro_status_text(status), *text ? ": " : "", text);
}

#endif
