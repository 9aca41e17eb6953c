/* Training on a GPU: the images that live there are the loader's, and a run goes as it does on the
 * CPU. Skipped (77) where there is no GPU. */
#include "nets.h"

#include "augment.h"
#include "backend.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/train.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Augmentation beside crop and flip. */
typedef struct more {
    unsigned ways;
    double mixup, cutmix;
} more;

static dro_loader *make_loader(dro_context *ctx, dro_data *data, bool cuts, bool sent,
                               const more *with)
{
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader = NULL;
    o.batch = 300, o.augment = true, o.cuts = cuts, o.sent = sent;
    if (with) {
        o.ways = DRO_AUGMENT_CROP | DRO_AUGMENT_FLIP | with->ways;
        o.operations = 3, o.magnitude = 25;
        o.mixup = with->mixup, o.cutmix = with->cutmix;
    }
    if (dro_loader_create(data, DRO_TRAIN, &o, &loader) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    return loader;
}

enum { COUNT = 300 };

/* The losses of two batches of the same images. */
static void same_losses(dro_context *ctx, const char *model, const char *precision, float tolerance,
                        const dro_net_batch *one, const dro_net_batch *two)
{
    const dro__backend *be = ctx->backend;
    dro_model_shape shape = {3, 24, 24, 10};
    dro_net *net;
    float a[COUNT], b[COUNT], worst = 0;
    OK(ctx, dro_net_model(ctx, model, &shape, &net));
    OK(ctx, dro_net_set(net, "precision", precision));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 3));
    float *w = be->alloc(dro_net_dim(net), sizeof *w);
    assert_non_null(w);
    be->copy_in(w, dro_net_weights(net), dro_net_dim(net) * sizeof *w);
    OK(ctx, dro_net_forward(net, w, one, 1, a));
    OK(ctx, dro_net_forward(net, w, two, 1, b));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        worst = fmaxf(worst, fabsf(a[i] - b[i]) / (1 + fabsf(a[i])));
    }
    print_message("%s, %s: losses off by %.1e at most\n", model, precision, (double)worst);
    assert_true(worst < tolerance);
    be->free(w);
    dro_net_destroy(net);
}

/* The pixels that the GPU makes, which a linear model that changes nothing gives back, are the
 * loader's within 1 of 255; a byte is more than that in normalised units. */
static void same_pixels(dro_context *ctx, const dro_net_batch *batch, const float *expected)
{
    enum { SIZE = 3 * 24 * 24 };
    dro_model_shape shape = {3, 24, 24, SIZE};
    dro_net *net;
    dro_tensor t;
    float worst = 0, *got = malloc(COUNT * SIZE * sizeof *got);
    assert_non_null(got);
    OK(ctx, dro_net_model(ctx, "linear", &shape, &net));
    OK(ctx, dro_net_set(net, "precision", "fp32"));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 1));
    size_t dim = dro_net_dim(net);
    const dro__backend *be = ctx->backend;
    float *w = calloc(dim, sizeof *w), *device_w = be->alloc(dim, sizeof *w);
    assert_true(w && device_w);
    OK(ctx, dro_net_tensor(net, 0, &t));
    for (size_t k = 0; k < SIZE; k++)
        w[(size_t)t.offset + k * SIZE + k] = 1;
    be->copy_in(device_w, w, dim * sizeof *w);
    OK(ctx, dro_net_evaluate(net, device_w, batch, got, NULL));
    for (size_t k = 0; k < COUNT * SIZE; k++)
        worst = fmaxf(worst, fabsf(got[k] - expected[k]));
    print_message("pixels off by %.1e at most\n", (double)worst);
    assert_true(worst < 1.0f / 255);
    be->free(device_w);
    free(w), free(got);
    dro_net_destroy(net);
}

/* Images that are there and cut there, and the same as the loader makes them: written in words of
 * eight bfloat16, of four floats, and one by one. */
static void compare_images(const more *with)
{
    static const char *const models[] = {"resnet20", "glyphnet", "mlp:16"};
    dro_context *ctx = check_context("cuda", 2);
    dro_data *data = NULL;
    dro_examples e;
    dro_loaded made, told;
    assert_int_equal(dro_data_open(ctx, "synth:glyphs,n=1000,test=10,size=24", &data), DRO_OK);
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    dro_loader *loader = make_loader(ctx, data, false, false, with);
    dro_loader *cutter = make_loader(ctx, data, true, false, with);
    assert_int_equal(dro_loader_draw(loader, COUNT, &made), DRO_OK);
    assert_int_equal(dro_loader_draw(cutter, COUNT, &told), DRO_OK);
    dro__normal normal = dro__normal_of(data);
    dro_net_images device_images;
    OK(ctx, dro_net_images_create(ctx, e.pixels, (size_t)e.count * 3 * 24 * 24, normal.scale,
                                  normal.shift, &device_images));
    dro_net_batch one = {.count = COUNT, .x = made.pixels, .labels = made.labels};
    dro_net_batch two = {.count = COUNT, .labels = told.labels};
    two.images = &device_images, two.ids = told.ids, two.cuts = told.cuts;
    one.mixes = made.mixes, two.mixes = told.mixes;
    same_pixels(ctx, &two, made.pixels);
    for (int k = 0; k < 3; k++) {
        same_losses(ctx, models[k], "fp32", 1e-4f, &one, &two);
        same_losses(ctx, models[k], "tf32", 5e-3f, &one, &two);
        same_losses(ctx, models[k], "bf16", 5e-2f, &one, &two);
    }
    dro_net_images_free(ctx, &device_images);
    dro_loader_destroy(loader);
    dro_loader_destroy(cutter);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static void test_images(void **state)
{
    (void)state;
    compare_images(NULL);
}

static void test_policies(void **state)
{
    (void)state;
    unsigned randomly = DRO_AUGMENT_RANDAUGMENT, automatic = DRO_AUGMENT_AUTOAUGMENT;
    compare_images(&(more){.ways = randomly});
    compare_images(&(more){.ways = automatic | DRO_AUGMENT_CUTOUT});
    compare_images(&(more){.ways = automatic, .mixup = 1});
    compare_images(&(more){.ways = randomly | DRO_AUGMENT_CUTOUT, .cutmix = 1});
    compare_images(&(more){.mixup = 0.2});
}

/* The kernel refuses to read what is not the host's memory. */
static bool on_host(const void *memory)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool read = write(ends[1], memory, 4) == 4;
    close(ends[0]);
    close(ends[1]);
    return read;
}

/* What the readers copied to the GPU is what they made, at every place of the ring and gathered. */
static void test_sent(void **state)
{
    (void)state;
    enum { BATCH = 300, IMAGE = 3 * 24 * 24 };
    dro_context *ctx = check_context("cuda", 3);
    dro_data *data = NULL;
    OK(ctx, dro_data_open(ctx, "synth:glyphs,n=1000,test=10,size=24", &data));
    dro_loader *here = make_loader(ctx, data, false, false, NULL);
    dro_loader *there = make_loader(ctx, data, false, true, NULL);
    float *back = calloc(BATCH * IMAGE, sizeof *back);
    dro_loaded a, b;
    for (uint64_t k = 0; k < 24; k++) {
        size_t bytes = BATCH * IMAGE * sizeof *back;
        OK(ctx, dro_loader_draw(here, k * BATCH, &a));
        OK(ctx, dro_loader_draw(there, k * BATCH, &b));
        assert_null(a.device_pixels);
        assert_true(on_host(b.pixels) && !on_host(b.device_pixels));
        OK(ctx, dro__copy_out(ctx, back, b.device_pixels, bytes));
        assert_memory_equal(back, a.pixels, bytes);
        assert_memory_equal(a.ids, b.ids, BATCH * sizeof *a.ids);
    }
    OK(ctx, dro_loader_gather(here, a.ids, 7, &a));
    OK(ctx, dro_loader_gather(there, a.ids, 7, &b));
    OK(ctx, dro__copy_out(ctx, back, b.device_pixels, 7 * IMAGE * sizeof *back));
    assert_memory_equal(back, a.pixels, 7 * IMAGE * sizeof *back);
    free(back);
    dro_loader_destroy(here);
    dro_loader_destroy(there);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static double accuracy(const char *backend, const char *precision)
{
    dro_context *ctx = check_context(backend, 4);
    dro_train *train = NULL;
    assert_int_equal(dro_train_create(ctx, &train), DRO_OK);
    const char *set[][2] = {{"data", "synth:glyphs,n=2000,test=1000,classes=4,size=16"},
                            {"optimizer", "sgd"},
                            {"epochs", "6"},
                            {"precision", precision}};
    for (size_t k = 0; k < sizeof set / sizeof set[0]; k++)
        if (dro_train_set(train, set[k][0], set[k][1]) != DRO_OK)
            fail_msg("%s", dro_context_error(ctx));
    if (dro_train_run(train, NULL, false, NULL) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    double found = dro_train_last(train)->test.accuracy;
    printf("  %s %s: accuracy %.3f\n", backend, precision, found);
    dro_train_destroy(train);
    dro_context_destroy(ctx);
    return found;
}

static void test_run(void **state)
{
    (void)state;
    double cpu = accuracy("ref", "fp32");
    assert_true(cpu > 0.7);
    assert_true(fabs(accuracy("cuda", "fp32") - cpu) < 0.05);
    assert_true(fabs(accuracy("cuda", "tf32") - cpu) < 0.06);
    assert_true(fabs(accuracy("cuda", "bf16") - cpu) < 0.08);
}

/* Runs that begin and end while others train: none disturbs another. */
static void *short_runs(void *user)
{
    dro_context *ctx = NULL;
    bool *ok = user;
    *ok = true;
    for (int k = 0; k < 6 && *ok; k++) {
        dro_train *train = NULL;
        *ok = dro_context_create("cuda", 1, &ctx) == DRO_OK &&
              dro_train_create(ctx, &train) == DRO_OK &&
              dro_train_set(train, "data", "synth:glyphs,n=300,test=40,classes=4,size=16") ==
                  DRO_OK &&
              dro_train_set(train, "epochs", "2") == DRO_OK &&
              dro_train_run(train, NULL, false, NULL) == DRO_OK;
        if (!*ok)
            printf("  %s\n", ctx ? dro_context_error(ctx) : "no context");
        dro_train_destroy(train);
        dro_context_destroy(ctx);
        ctx = NULL;
    }
    return NULL;
}

static void test_runs_at_once(void **state)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    bool ok[THREADS];
    (void)state;
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, short_runs, &ok[k]), 0);
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < THREADS; k++)
        assert_true(ok[k]);
}

static bool stop_after(void *user, const dro_train_progress *p)
{
    int *left = user;
    return p->step > 0 && !p->evaluating && --*left <= 0;
}

/* Twice the same, and once stopped in the middle and resumed: the same weights, bit for bit. */
static void train_once(const char *folder, const char *steps, bool resume, float *w, size_t *dim)
{
    dro_context *ctx = check_context("cuda", 2);
    dro_train *train = NULL;
    OK(ctx, dro_train_create(ctx, &train));
    const char *set[][2] = {{"data", "synth:glyphs,n=600,test=100,classes=4,size=32"},
                            {"model", "resnet20"},
                            {"optimizer", "recover"},
                            {"batch", "64"},
                            {"steps", "24"},
                            {"eval_every", "1"},
                            {"precision", "bf16"},
                            {"augment", "crop,flip,autoaugment,cutout"},
                            {"mixup", "0.2"},
                            {"cutmix", "1"},
                            {"deterministic", "yes"}};
    for (size_t k = 0; k < sizeof set / sizeof set[0]; k++)
        OK(ctx, dro_train_set(train, set[k][0], set[k][1]));
    int left = atoi(steps);
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = &left, .step = stop_after};
    OK(ctx, dro_train_run(train, folder, resume, &watch));
    if (w) {
        dro_net *net = NULL;
        dro_model_shape shape = {3, 32, 32, 4};
        char path[256];
        snprintf(path, sizeof path, "%s/weights.safetensors", folder);
        OK(ctx, dro_net_model(ctx, "resnet20", &shape, &net));
        OK(ctx, dro_net_ready(net));
        OK(ctx, dro_net_load(net, path, NULL));
        *dim = dro_net_dim(net);
        memcpy(w, dro_net_weights(net), *dim * sizeof *w);
        dro_net_destroy(net);
    }
    dro_train_destroy(train);
    dro_context_destroy(ctx);
}

static void test_deterministic(void **state)
{
    (void)state;
    char dir[] = "/tmp/dro-cuda-XXXXXX", folder[64];
    float *w[3];
    size_t dim = 0;
    assert_non_null(mkdtemp(dir));
    for (int k = 0; k < 3; k++) {
        w[k] = malloc(400000 * sizeof *w[k]);
        assert_non_null(w[k]);
        snprintf(folder, sizeof folder, "%s/%d", dir, k);
        if (k == 2)
            train_once(folder, "11", false, NULL, NULL);
        train_once(folder, "1000", k == 2, w[k], &dim);
    }
    assert_memory_equal(w[0], w[1], dim * sizeof(float));
    assert_memory_equal(w[0], w[2], dim * sizeof(float));
    for (int k = 0; k < 3; k++)
        free(w[k]);
    snprintf(folder, sizeof folder, "rm -rf %s", dir);
    assert_int_equal(system(folder), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),       cmocka_unit_test(test_policies),
        cmocka_unit_test(test_sent),         cmocka_unit_test(test_run),
        cmocka_unit_test(test_runs_at_once), cmocka_unit_test(test_deterministic)};
    if (without_gpu())
        return 77;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
