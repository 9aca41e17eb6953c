/* Whole trajectories in fp32 against the reference: on the GPU where there is one, else on the
 * processor. */
#include "nets.h"

#include <dro/dro.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 64, STEPS = 100 };

typedef struct images {
    dro_model_shape shape;
    float *x;
    int32_t *labels, classes[4][IMAGES];
    float *rows[4];
    int next;
} images;

/* The images of a batch, in order; the last four stay. */
static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    images *im = user;
    size_t size = (size_t)im->shape.channels * (size_t)im->shape.height * (size_t)im->shape.width;
    int slot = im->next++ % 4;
    for (size_t i = 0; i < batch->count; i++) {
        memcpy(im->rows[slot] + i * size, im->x + (size_t)batch->ids[i] * size,
               size * sizeof(float));
        im->classes[slot][i] = im->labels[batch->ids[i]];
    }
    *out = (dro_net_batch){.count = batch->count, .x = im->rows[slot], .labels = im->classes[slot]};
    return DRO_OK;
}

static images make_images(dro_model_shape shape)
{
    images im = {.shape = shape};
    size_t size = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    im.x = malloc(IMAGES * size * sizeof *im.x);
    im.labels = malloc(IMAGES * sizeof *im.labels);
    for (int i = 0; i < IMAGES; i++) {
        im.labels[i] = i * 7 % shape.outputs;
        for (size_t j = 0; j < size; j++) /* something to learn */
            im.x[(size_t)i * size + j] = (float)check_uniform(31, (size_t)i * size + j, -2, 2) +
                                         (float)((j + (size_t)im.labels[i]) % 5) * 0.3f;
    }
    for (int k = 0; k < 4; k++)
        im.rows[k] = malloc(IMAGES * size * sizeof(float));
    return im;
}

/* How far w has moved, and the losses after each of the steps. */
static float *train(const char *backend, const char *model, float by, const char *optimizer,
                    const char *settings, double *losses, size_t *dim)
{
    dro_context *ctx = check_context(backend, 1);
    images im = make_images((dro_model_shape){3, 8, 8, 5});
    dro_net *net;
    dro_problem problem;
    dro_optimizer *opt;
    dro_info info;
    dro_net_source source = {
        .size = sizeof(dro_net_source), .user = &im, .fetch = fetch, .n = IMAGES};
    OK(ctx, dro_net_model(ctx, model, &im.shape, &net));
    OK(ctx, dro_net_set(net, "precision", "fp32"));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 3));
    OK(ctx, dro_net_problem(net, &source, &problem));
    problem.max_batch = IMAGES;
    OK(ctx, dro_optimizer_create(ctx, optimizer, &problem, &opt));
    check_set(ctx, opt, settings);
    *dim = dro_net_dim(net);
    float *w = malloc(*dim * sizeof *w), *from = malloc(*dim * sizeof *from);
    memcpy(from, dro_net_weights(net), *dim * sizeof *from);
    lift(net, by, from);
    OK(ctx, dro_optimizer_start(opt, from));
    for (int t = 0; t < STEPS; t++) {
        OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_optimizer_info(opt, &info));
        losses[t] = info.loss;
    }
    OK(ctx, dro_optimizer_weights(opt, w));
    for (size_t j = 0; j < *dim; j++)
        w[j] -= from[j];
    dro_optimizer_destroy(opt);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
    free(im.x), free(im.labels), free(from);
    for (int k = 0; k < 4; k++)
        free(im.rows[k]);
    return w;
}

/* The last loss as a share of the first. Losses are off relative to 1 + the loss: some that start
 * badly are in the hundreds. */
static double trajectory(const char *model, float by, const char *optimizer, const char *settings,
                         double tolerance)
{
    double a[STEPS], b[STEPS], worst = 0;
    size_t dim;
    float *x = train("auto", model, by, optimizer, settings, a, &dim);
    float *y = train("ref", model, by, optimizer, settings, b, &dim);
    for (int t = 0; t < STEPS; t++)
        worst = fmax(worst, fabs(a[t] - b[t]) / (1 + b[t]));
    double off = distance(dim, x, y);
    dro_context *ctx = check_context("auto", 1);
    print_message("%s: %s %s, %d steps: loss %.4f to %.4f, losses off by %.1e, w by %.1e\n",
                  dro_context_backend(ctx), optimizer, model, STEPS, b[0], b[STEPS - 1], worst,
                  off);
    assert_true(off < tolerance && worst < tolerance);
    dro_context_destroy(ctx);
    free(x), free(y);
    return b[STEPS - 1] / b[0];
}

/* With biases lifted: an input of a ReLU that is zero up to rounding falls on either side, and from
 * the first that does the run goes elsewhere (RECOVER, one backend, a last digit of w: losses 1e-2
 * away after 20 steps). */
static void test_trajectory_sgd(void **state)
{
    (void)state;
    assert_true(trajectory("resnet20", 3, "sgd", "batch=8 eta=0.00003 seed=1", 1e-4) < 0.7);
}

static void test_trajectory_recover(void **state)
{
    (void)state;
    static const char settings[] = "batch=8 eta=0.005 seed=1 lambda=5 warmup=10";
    assert_true(trajectory("resnet20", 3, "recover", settings, 1e-4) < 0.7);
}

/* Every optimiser takes its steps with w in the GPU's memory. */
static void test_optimizers(void **state)
{
    (void)state;
    for (int k = 0; check_optimizer(k); k++)
        trajectory("mlp:16", 0, check_optimizer(k),
                   "batch=8 eta=0.1 seed=5 ?lambda=5 ?warmup=0 ?big=20 ?inner=4 "
                   "?big_growth=1.1 ?stage_steps=50 ?dual_eta=0.0001",
                   1e-3);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_optimizers),
                                          cmocka_unit_test(test_trajectory_sgd),
                                          cmocka_unit_test(test_trajectory_recover)};

CHECK_MAIN(tests)
