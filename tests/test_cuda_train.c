/* Training on a GPU: the images that live there are the loader's, and a run goes as it does on the CPU. Skipped
 * (77) where there is no GPU. */
#include "check.h"

#include "augment.h"
#include "backend.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/train.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static dro_loader *make_loader(dro_context *ctx, dro_data *data, bool cuts)
{
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader = NULL;
    o.batch = 300, o.augment = true, o.cuts = cuts;
    if (dro_loader_create(data, DRO_TRAIN, &o, &loader) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    return loader;
}

/* The losses of a batch of images that are there, and of the same as the loader makes it. */
static void test_images(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    dro_context *ctx = check_context("cuda", 2);
    const dro__backend *be = ctx->backend;
    dro_data *data = NULL;
    dro_examples e;
    dro_loaded made, told;
    assert_int_equal(dro_data_open(ctx, "synth:glyphs,n=1000,test=10,size=24", &data), DRO_OK);
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    dro_loader *loader = make_loader(ctx, data, false), *cutter = make_loader(ctx, data, true);
    size_t image = 3 * 24 * 24;
    uint8_t *bytes = be->alloc((size_t)e.count * image, 1);
    assert_non_null(bytes);
    be->copy_in(bytes, e.pixels, (size_t)e.count * image);
    assert_int_equal(dro_loader_draw(loader, COUNT, &made), DRO_OK);
    assert_int_equal(dro_loader_draw(cutter, COUNT, &told), DRO_OK);
    dro__normal normal = dro__normal_of(data);
    dro_net_images there = {bytes, normal.scale, normal.shift};
    dro_net_batch one = {.count = COUNT, .x = made.pixels, .labels = made.labels};
    dro_net_batch two = {.count = COUNT, .labels = told.labels};
    two.images = &there, two.ids = told.ids, two.cuts = told.cuts;
    dro_model_shape shape = {3, 24, 24, 10};
    dro_net *net;
    float a[COUNT], b[COUNT], *w = NULL;
    assert_int_equal(dro_net_model(ctx, "glyphnet", &shape, &net), DRO_OK);
    assert_int_equal(dro_net_set(net, "precision", "fp32"), DRO_OK);
    assert_int_equal(dro_net_ready(net), DRO_OK);
    assert_int_equal(dro_net_init(net, 3), DRO_OK);
    w = be->alloc(dro_net_dim(net), sizeof *w);
    be->copy_in(w, dro_net_weights(net), dro_net_dim(net) * sizeof *w);
    assert_int_equal(dro_net_forward(net, w, &one, 1, a), DRO_OK);
    assert_int_equal(dro_net_forward(net, w, &two, 1, b), DRO_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-4f * (1 + fabsf(a[i])));
    be->free(bytes), be->free(w);
    dro_net_destroy(net);
    dro_loader_destroy(loader);
    dro_loader_destroy(cutter);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static double accuracy(const char *backend, const char *precision)
{
    dro_context *ctx = check_context(backend, 4);
    dro_train *train = NULL;
    assert_int_equal(dro_train_create(ctx, &train), DRO_OK);
    const char *set[][2] = {{"data", "synth:glyphs,n=2000,test=1000,classes=4,size=16"},
                            {"optimizer", "recover"},
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
    assert_true(cpu > 0.6);
    assert_true(fabs(accuracy("cuda", "fp32") - cpu) < 0.05);
    assert_true(fabs(accuracy("cuda", "tf32") - cpu) < 0.06);
    assert_true(fabs(accuracy("cuda", "bf16") - cpu) < 0.08);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_images), cmocka_unit_test(test_run)};
    dro_context *ctx;
    if (dro_context_create("cuda", 1, &ctx) != DRO_OK) {
        const char *why = dro_backend_missing("cuda");
        printf("skipped: %s\n", why ? why : "this build has no cuda backend");
        return 77;
    }
    dro_context_destroy(ctx);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
