/* A program that embeds the library has signal handlers of its own, on the ordinary stack: a storm
 * of signals during training changes nothing. (oneDNN's matrix product keeps its stack pointer
 * elsewhere for a while.) */
#define _GNU_SOURCE
#include "check.h"

#include <dro/dro.h>
#include <dro/net.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { BATCH = 64, SIDE = 12, PIXELS = 3 * SIDE * SIDE };

/* Under a sanitizer everything takes ten times as long. */
#if defined(__SANITIZE_THREAD__)
enum { LESS = 20 };
#elif defined(__SANITIZE_ADDRESS__)
enum { LESS = 5 };
#else
enum { LESS = 1 };
#endif

static atomic_int caught; /* in any thread */
static float x[2 * BATCH * PIXELS];
static int32_t labels[2 * BATCH];

static void on_alarm(int number)
{
    (void)number;
    caught++;
}

static void storm(bool on)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    enum {
        EVERY = LESS > 1 ? 500 : 50
    }; /* us; a handler that takes as long would be all there is */
    struct itimerval often = {{0, on ? EVERY : 0}, {0, on ? EVERY : 0}};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user;
    size_t first = batch->position % (2 * BATCH);
    *out =
        (dro_net_batch){.count = batch->count, .x = x + first * PIXELS, .labels = labels + first};
    return DRO_OK;
}

static void train(const char *model, int steps, int threads, bool stormy, float *w, size_t room)
{
    dro_context *ctx = check_context("auto", threads);
    dro_model_shape shape = {3, SIDE, SIDE, 5};
    dro_net_source source = {.size = sizeof(dro_net_source), .fetch = fetch, .n = 2 * BATCH};
    dro_problem problem;
    dro_optimizer *opt;
    dro_net *net;
    OK(ctx, dro_net_model(ctx, model, &shape, &net));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 1));
    assert_true(dro_net_dim(net) <= room);
    OK(ctx, dro_net_problem(net, &source, &problem));
    OK(ctx, dro_optimizer_create(ctx, "sgd", &problem, &opt));
    OK(ctx, dro_optimizer_set(opt, "batch", "64"));
    OK(ctx, dro_optimizer_set(opt, "order", "sequential"));
    OK(ctx, dro_optimizer_set(opt, "eta", "0.01"));
    OK(ctx, dro_optimizer_start(opt, dro_net_weights(net)));
    storm(stormy);
    for (int k = 0; k < steps; k++)
        OK(ctx, dro_optimizer_step(opt));
    storm(false);
    OK(ctx, dro_optimizer_weights(opt, w));
    dro_optimizer_destroy(opt);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static void test_storm(void **state)
{
    (void)state;
    enum { ROOM = 12 << 20 };
    float *calm = calloc(ROOM, sizeof *calm), *stormy = calloc(ROOM, sizeof *stormy);
    assert_true(calm && stormy);
    for (size_t j = 0; j < 2 * BATCH * PIXELS; j++)
        x[j] = (float)check_uniform(1, j, -1, 1);
    for (size_t i = 0; i < 2 * BATCH; i++)
        labels[i] = (int32_t)(i % 5);
    static const char *const models[] = {"mlp:64,32", "glyphnet", "resnet20", "resnet18"};
    static const int steps[] = {400, 150, 15, 2};
    for (int m = 0; m < 4; m++)
        for (int threads = 1; threads <= 2; threads++) {
            caught = 0;
            train(models[m], (steps[m] + LESS - 1) / LESS, threads, false, calm, ROOM);
            train(models[m], (steps[m] + LESS - 1) / LESS, threads, true, stormy, ROOM);
            assert_true(caught > (LESS > 1 ? 0 : 100));
            assert_memory_equal(calm, stormy, ROOM * sizeof *calm);
        }
    free(calm), free(stormy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_storm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
