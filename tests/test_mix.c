/* mixup and CutMix: which examples, in which shares, what the loader makes of their pixels, and the
 * loss of a mixed example. */
#include "losses.h"
#include "mix.h"
#include "check.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/train.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, IMAGE = 3 * SIDE * SIDE };

#define GLYPHS "synth:glyphs,n=200,test=10,size=12"

/* ---- what is drawn ---- */

static dro_mix draw(uint64_t k, double mixup, double cutmix)
{
    dro__mix_random random = {.seed = 11, .stream = k};
    return dro__mix_draw(&random, mixup, cutmix, 20, 30);
}

/* Mean and variance of Beta(a, a): 1/2 and 1 / (4 (2 a + 1)). */
static void test_shares(void **state)
{
    (void)state;
    enum { DRAWS = 40000 };
    static const double shapes[] = {0.1, 0.4, 1, 3};
    for (int s = 0; s < 4; s++) {
        double sum = 0, squares = 0, expected = 1 / (4 * (2 * shapes[s] + 1));
        for (uint64_t k = 0; k < DRAWS; k++) {
            dro_mix m = draw(k, shapes[s], 0);
            assert_true(m.share >= 0 && m.share <= 1 && m.box.right == m.box.left);
            sum += (double)m.share, squares += pow((double)m.share - 0.5, 2);
        }
        assert_true(fabs(sum / DRAWS - 0.5) < 5 * sqrt(expected / DRAWS));
        assert_true(fabs(squares / DRAWS - expected) < 0.03 * expected);
    }
}

/* The share is that of the pixels outside the box; boxes are everywhere; with both ways on a batch
 * is mixed in either. */
static void test_boxes(void **state)
{
    (void)state;
    enum { DRAWS = 4000 };
    int boxed = 0, corner = 0;
    for (uint64_t k = 0; k < DRAWS; k++) {
        dro_mix m = draw(k, 0, 1), either = draw(k, 1, 1);
        int h = m.box.bottom - m.box.top, w = m.box.right - m.box.left;
        assert_true(m.box.top >= 0 && m.box.bottom <= 20 && m.box.left >= 0 && m.box.right <= 30);
        assert_true(fabs((double)m.share - (1 - h * w / 600.0)) < 1e-6);
        corner += m.box.top == 0 && m.box.left == 0 && h > 0;
        boxed += either.box.right > either.box.left;
    }
    assert_true(corner > DRAWS / 50);
    assert_in_range(boxed, 0.45 * DRAWS, 0.53 * DRAWS); /* few boxes are empty */
}

static void test_partners(void **state)
{
    (void)state;
    for (size_t batch = 1; batch < 9; batch++)
        for (size_t i = 0; i < batch; i++) {
            size_t j = dro__mix_partner(i, batch);
            assert_true(j < batch && (j != i || batch == 1));
            assert_true(dro__mix_partner(j, batch) == i || (i == batch - 1 && batch % 2));
        }
}

/* ---- the loader ---- */

typedef struct loading {
    dro_context *ctx;
    dro_data *data;
    dro_loader_options o;
} loading;

static loading open_loading(void)
{
    loading l = {.ctx = check_context("ref", 1), .o = dro_loader_options_default()};
    OK(l.ctx, dro_data_open(l.ctx, GLYPHS, &l.data));
    l.o.batch = 21, l.o.augment = true;
    l.o.ways = DRO_AUGMENT_CROP | DRO_AUGMENT_AUTOAUGMENT | DRO_AUGMENT_CUTOUT;
    return l;
}

static void close_loading(loading *l)
{
    dro_data_close(l->data);
    dro_context_destroy(l->ctx);
}

static dro_loader *make(loading *l)
{
    dro_loader *loader = NULL;
    OK(l->ctx, dro_loader_create(l->data, DRO_TRAIN, &l->o, &loader));
    return loader;
}

/* Mixed examples are what their halves, loaded alone, say. */
static void test_loaded(void **state)
{
    (void)state;
    loading l = open_loading();
    dro_loader *plain = make(&l);
    l.o.mixup = 0.5, l.o.cutmix = 1;
    dro_loader *mixer = make(&l);
    l.o.cuts = true;
    dro_loader *teller = make(&l);
    dro_loaded a, m, t;
    for (uint64_t k = 0; k < 20; k++) {
        OK(l.ctx, dro_loader_draw(plain, k * 21, &a));
        OK(l.ctx, dro_loader_draw(mixer, k * 21, &m));
        OK(l.ctx, dro_loader_draw(teller, k * 21, &t));
        assert_null(a.mixes);
        for (size_t i = 0; i < 21; i++) {
            const dro_mix *mix = &m.mixes[i];
            size_t j = i == 20 ? 0 : i ^ 1;
            assert_int_equal(m.labels[i], a.labels[i]);
            assert_int_equal(mix->label, a.labels[j]);
            assert_true(mix->id == a.ids[j] && t.mixes[i].id == a.ids[j]);
            assert_memory_equal(&t.mixes[i].cut, &t.cuts[j], sizeof(dro_cut));
            assert_memory_equal(&t.mixes[i].box, &mix->box, sizeof mix->box);
            assert_true(t.mixes[i].label == mix->label && t.mixes[i].share == mix->share);
            for (int p = 0; p < IMAGE; p++) {
                int y = p / SIDE % SIDE, x = p % SIDE;
                bool boxed = mix->box.right > mix->box.left;
                bool inside = y >= mix->box.top && y < mix->box.bottom && x >= mix->box.left &&
                              x < mix->box.right;
                float share = boxed ? (float)!inside : mix->share;
                float expected = share * a.pixels[i * IMAGE + (size_t)p] +
                                 (1 - share) * a.pixels[j * IMAGE + (size_t)p];
                assert_true(fabsf(m.pixels[i * IMAGE + (size_t)p] - expected) < 1e-5f);
            }
        }
    }
    dro_loader_destroy(plain);
    dro_loader_destroy(mixer);
    dro_loader_destroy(teller);
    close_loading(&l);
}

/* The same bytes with any number of threads, by a rank that reads a slice, and when the rest of
 * that batch is read later. */
static void test_slices(void **state)
{
    (void)state;
    loading l = open_loading();
    l.o.mixup = 0.5, l.o.cutmix = 1, l.o.threads = 1;
    dro_loader *whole = make(&l);
    static const size_t slices[][2] = {{0, 7}, {7, 14}, {5, 6}, {20, 21}};
    for (int s = 0; s < 4; s++) {
        size_t first = slices[s][0], end = slices[s][1];
        l.o.first = first, l.o.end = end, l.o.threads = 3;
        dro_loader *some = make(&l);
        dro_loaded a, b;
        for (uint64_t k = 0; k < 12; k++) {
            OK(l.ctx, dro_loader_draw(whole, k * 21, &a));
            OK(l.ctx, dro_loader_draw(some, k * 21, &b));
            assert_memory_equal(a.pixels + first * IMAGE, b.pixels + first * IMAGE,
                                (end - first) * IMAGE * sizeof(float));
            assert_memory_equal(a.mixes + first, b.mixes + first, (end - first) * sizeof *a.mixes);
            OK(l.ctx, dro_loader_complete(some, k * 21, &b));
            assert_memory_equal(a.pixels, b.pixels, 21 * IMAGE * sizeof(float));
            assert_memory_equal(a.mixes, b.mixes, 21 * sizeof *a.mixes);
        }
        dro_loader_destroy(some);
    }
    dro_loader_destroy(whole);
    close_loading(&l);
}

/* A run on arrays with mixing is refused. */
static void refused(dro_context *ctx, const dro_arrays *arrays, const char *setting,
                    const char *message)
{
    dro_train *train = NULL;
    OK(ctx, dro_arrays_lend(ctx, "mixed", arrays, NULL));
    OK(ctx, dro_train_create(ctx, &train));
    OK(ctx, dro_train_set(train, "data", "arrays:mixed"));
    OK(ctx, dro_train_set(train, "optimizer", "sgd"));
    OK(ctx, dro_train_set(train, setting, "0.5"));
    FAILS(ctx, dro_train_run(train, NULL, false, NULL), DRO_ERR_UNSUPPORTED, message);
    dro_train_destroy(train);
}

static void test_refused(void **state)
{
    (void)state;
    enum { N = 40 };
    loading l = open_loading();
    dro_loader *loader;
    uint8_t pixels[N * IMAGE];
    float x[N], y[N];
    int32_t labels[N];
    for (int k = 0; k < N; k++)
        x[k] = y[k] = (float)k, labels[k] = k % 2;
    for (int k = 0; k < N * IMAGE; k++)
        pixels[k] = (uint8_t)(7 * k);
    l.o.mixup = -1;
    FAILS(l.ctx, dro_loader_create(l.data, DRO_TRAIN, &l.o, &loader), DRO_ERR_RANGE, "mixup -1");
    dro_arrays rows = {
        .size = sizeof rows, .count = N, .x = x, .features = 1, .labels = labels, .classes = 2};
    refused(l.ctx, &rows, "mixup", "mixup and cutmix require images; arrays:mixed has none");
    dro_arrays images = {.size = sizeof images,
                         .count = N,
                         .pixels = pixels,
                         .channels = 3,
                         .height = SIDE,
                         .width = SIDE,
                         .targets = y};
    dro_data *data;
    OK(l.ctx, dro_data_from_arrays(l.ctx, &images, NULL, "", &data));
    l.o.mixup = 1;
    FAILS(l.ctx, dro_loader_create(data, DRO_TRAIN, &l.o, &loader), DRO_ERR_UNSUPPORTED,
          "expected images with classes, not real-valued targets");
    dro_data_close(data);
    refused(l.ctx, &images, "cutmix", "the label of images is a class: a real-valued target");
    close_loading(&l);
}

/* ---- the loss ---- */

enum { COUNT = 6 };

typedef struct evaluated {
    float losses[COUNT], *grads;
} evaluated;

static evaluated evaluate(dro_context *ctx, dro_net *net, const dro_net_batch *batch)
{
    static const float coef[COUNT] = {0.5f, 1, -0.25f, 2, 0.75f, 0.1f};
    evaluated e = {.grads = calloc(dro_net_dim(net), sizeof(float))};
    float *grads[1] = {e.grads};
    OK(ctx, dro_net_forward(net, dro_net_weights(net), batch, 1, e.losses));
    OK(ctx, dro_net_backward(net, dro_net_weights(net), coef, grads));
    return e;
}

/* Losses and gradients are those of the two labels, in their shares. */
static void check_loss(const char *backend, const char *loss)
{
    static const int32_t one[COUNT] = {0, 1, 2, 0, 1, 2}, two[COUNT] = {1, 1, 0, 2, 0, 1};
    static const float shares[COUNT] = {0.3f, 0.6f, 0.9f, 1, 0, 0.5f};
    static const double prior[3] = {0.7, 0.2, 0.1};
    dro_context *ctx = check_context(backend, 1);
    dro_model_shape shape = {3, 8, 8, 3};
    dro_net *net;
    dro_mix mixes[COUNT] = {{0}};
    float x[COUNT * 3 * 8 * 8];
    for (int i = 0; i < COUNT; i++)
        mixes[i].label = two[i], mixes[i].share = shares[i];
    for (size_t k = 0; k < sizeof x / sizeof x[0]; k++)
        x[k] = (float)sin(0.37 * (double)k);
    OK(ctx, dro_net_model(ctx, "mlp:9", &shape, &net));
    OK(ctx, dro_net_set(net, "loss", loss));
    OK(ctx, dro_net_prior(net, prior, 3));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 3));
    dro_net_batch batch = {.count = COUNT, .x = x, .labels = one};
    evaluated a = evaluate(ctx, net, &batch);
    batch.labels = two;
    evaluated b = evaluate(ctx, net, &batch);
    batch.labels = one, batch.mixes = mixes;
    evaluated m = evaluate(ctx, net, &batch);
    /* the gradient is linear in the coefficients: all of them at share 0.3, say */
    for (int i = 0; i < COUNT; i++) {
        float expected = shares[i] * a.losses[i] + (1 - shares[i]) * b.losses[i];
        assert_true(fabsf(m.losses[i] - expected) < 1e-5f * (1 + fabsf(expected)));
        mixes[i].share = 0.3f;
    }
    evaluated n = evaluate(ctx, net, &batch);
    double far = 0, size = 0;
    for (size_t k = 0; k < dro_net_dim(net); k++) {
        double expected = 0.3 * (double)a.grads[k] + 0.7 * (double)b.grads[k];
        far += pow((double)n.grads[k] - expected, 2), size += expected * expected;
    }
    assert_true(size > 0 && far < 1e-10 * size);
    mixes[2].label = 3;
    FAILS(ctx, dro_net_forward(net, dro_net_weights(net), &batch, 1, m.losses), DRO_ERR_RANGE,
          "mixed with label 3");
    free(a.grads);
    free(b.grads);
    free(m.grads);
    free(n.grads);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static void test_loss(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++)
        for (int k = 0; k < DRO__NET_LOSSES; k++)
            check_loss(backends[b], dro__net_losses[k].name);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_shares), cmocka_unit_test(test_boxes),  cmocka_unit_test(test_partners),
    cmocka_unit_test(test_loaded), cmocka_unit_test(test_slices), cmocka_unit_test(test_refused),
    cmocka_unit_test(test_loss)};

CHECK_MAIN(tests)
