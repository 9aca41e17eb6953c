/* The machine's peak rate of multiply-adds of floats in registers (dro/bench.h). */
#include "backend.h"
#include "isa.h"

#include <dro/bench.h>
#include <time.h>

enum { CHAINS = 12, WIDTH = 16, TURNS = 100000, ROUNDS = 9 };

/* Independent chains of multiply-adds, each as wide as the widest vectors. */
DRO__KERNEL void spin_kernel(float *data)
{
    float x[CHAINS][WIDTH], scale = data[0], shift = data[1];
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < WIDTH; l++)
            x[c][l] = data[c] + (float)l;
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            for (int l = 0; l < WIDTH; l++)
                x[c][l] = x[c][l] * scale + shift;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < WIDTH; l++)
            data[2] += x[c][l];
}

DRO__EACH_ISA(void, spin, (float *data), (data))

static void body(void *task, size_t k)
{
    float data[CHAINS] = {0.5f, 0.25f, (float)k};
    spin(data);
    *(volatile float *)task = data[2];
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

dro_status dro_bench_peak(dro_context *ctx, double *flops_per_s)
{
    if (!ctx || !flops_per_s)
        return DRO_ERR_ARGUMENT;
    size_t threads = (size_t)dro__pool_threads(ctx->pool);
    float sink = 0;
    double best = 0;
    for (int r = 0; r < ROUNDS; r++) {
        double start = now();
        dro__pool_run(ctx->pool, threads, body, &sink);
        double flops = 2.0 * CHAINS * WIDTH * TURNS * (double)threads / (now() - start);
        best = flops > best ? flops : best;
    }
    *flops_per_s = best;
    return DRO_OK;
}
