/* cuda_runs MODEL OPTIMIZER PRECISION BATCH STEPS RUNS: several training runs at once on one GPU, each in a thread with a
 * context, a network and a stream of its own; milliseconds per step of each and steps per second of all. */
#define _GNU_SOURCE
#include "backend.h"

#include <dro/dro.h>
#include <dro/net.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SOURCES = 4 };

typedef struct job {
    char **argv;
    pthread_barrier_t *start;
    dro_context *ctx;
    dro_net_batch batches[SOURCES];
    size_t batch;
    double ms, from, to;
    dro_status status;
} job;

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    job *j = user;
    *batch = (dro_batch){.position = position, .count = count};
    batch->handle = &j->batches[position / j->batch % SOURCES];
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

static void make_batches(job *j, dro_model_shape shape)
{
    size_t size = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    float *x = malloc(j->batch * size * sizeof *x);
    uint64_t state = 1;
    for (int k = 0; k < SOURCES; k++) {
        int32_t *labels = malloc(j->batch * sizeof *labels);
        for (size_t i = 0; i < j->batch * size; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[i] = (float)(state >> 40) * (4.0f / (1 << 24)) - 2;
        }
        for (size_t i = 0; i < j->batch; i++)
            labels[i] = (int32_t)(i * 7 % (size_t)shape.outputs);
        float *there = j->ctx->backend->alloc(j->batch * size, sizeof *x);
        j->ctx->backend->copy_in(there, x, j->batch * size * sizeof *x);
        j->batches[k] = (dro_net_batch){.count = j->batch, .x = there, .labels = labels};
    }
    free(x);
}

static dro_status train(job *j)
{
    dro_model_shape shape = {3, 32, 32, 10};
    dro_net_source source = {.user = j, .fetch = fetch, .draw = draw};
    dro_problem problem;
    dro_optimizer *opt;
    dro_net *net;
    int steps = atoi(j->argv[5]);
    DRO_TRY(dro_context_create("cuda", 1, &j->ctx));
    j->batch = (size_t)atoi(j->argv[4]);
    make_batches(j, shape);
    DRO_TRY(dro_net_model(j->ctx, j->argv[1], &shape, &net));
    DRO_TRY(dro_net_set(net, "precision", j->argv[3]));
    DRO_TRY(dro_net_ready(net));
    DRO_TRY(dro_net_init(net, 1));
    DRO_TRY(dro_net_problem(net, &source, &problem));
    DRO_TRY(dro_optimizer_create(j->ctx, j->argv[2], &problem, &opt));
    DRO_TRY(dro_optimizer_set(opt, "batch", j->argv[4]));
    DRO_TRY(dro_optimizer_set(opt, "eta", "0.01"));
    DRO_TRY(dro_optimizer_start(opt, dro_net_weights(net)));
    for (int k = 0; k < 10; k++)
        DRO_TRY(dro_optimizer_step(opt));
    pthread_barrier_wait(j->start);
    j->from = now();
    for (int k = 0; k < steps; k++)
        DRO_TRY(dro_optimizer_step(opt));
    j->to = now();
    j->ms = (j->to - j->from) / steps;
    dro_optimizer_destroy(opt);
    dro_net_destroy(net);
    return DRO_OK;
}

static void *thread(void *arg)
{
    job *j = arg;
    j->status = train(j);
    if (j->status != DRO_OK) {
        fprintf(stderr, "%s\n", j->ctx ? dro_context_error(j->ctx) : "no GPU");
        exit(1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int runs = argc == 7 ? atoi(argv[6]) : 0;
    if (runs < 1 || runs > 64) {
        fprintf(stderr, "usage: cuda_runs MODEL OPTIMIZER PRECISION BATCH STEPS RUNS, on a GPU\n");
        return 2;
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    job jobs[64] = {{0}};
    pthread_t threads[64];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)runs);
    for (int k = 0; k < runs; k++) {
        jobs[k] = (job){.argv = argv, .start = &start};
        pthread_create(&threads[k], NULL, thread, &jobs[k]);
    }
    double from = 1e300, to = 0, ms = 0;
    for (int k = 0; k < runs; k++) {
        pthread_join(threads[k], NULL);
        from = jobs[k].from < from ? jobs[k].from : from;
        to = jobs[k].to > to ? jobs[k].to : to;
        ms += jobs[k].ms / runs;
    }
    printf("%s %s %s batch %s, %d at once: %.3f ms per step of each, %.0f steps/s of all\n",
           argv[1], argv[2], argv[3], argv[4], runs, ms, runs * atoi(argv[5]) / (to - from) * 1e3);
    return 0;
}
