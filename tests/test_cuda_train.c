/* Training on a GPU: the images that live there are the loader's, and a run goes as it does on the CPU. Skipped
 * (77) where there is no GPU. */
#include "check.h"

#include "backend.h"

#include <dro/dro.h>
#include <dro/loader.h>
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

static void test_images(void **state)
{
    (void)state;
    dro_context *ctx = check_context("cuda", 2);
    const dro__backend *be = ctx->backend;
    dro_data *data = NULL;
    dro_examples e;
    dro_data_info info;
    dro_loaded made, told;
    assert_int_equal(dro_data_open(ctx, "synth:glyphs,n=1000,test=10,size=24", &data), DRO_OK);
    assert_int_equal(dro_data_info_get(data, &info), DRO_OK);
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    dro_loader *loader = make_loader(ctx, data, false), *cutter = make_loader(ctx, data, true);
    size_t image = 3 * 24 * 24, count = 300;
    uint8_t *bytes = be->alloc((size_t)e.count * image, 1);
    float *x = be->alloc(count * image, sizeof *x), *back = malloc(count * image * sizeof *back);
    assert_true(bytes && x && back);
    be->copy_in(bytes, e.pixels, (size_t)e.count * image);
    assert_int_equal(dro_loader_draw(loader, 300, &made), DRO_OK);
    assert_int_equal(dro_loader_draw(cutter, 300, &told), DRO_OK);
    /* what normalises: from two pixels of each plane that differ */
    float scale[3], shift[3];
    for (size_t c = 0; c < 3; c++) {
        size_t i = 0;
        while (told.cuts[i].down || told.cuts[i].right || told.cuts[i].mirror)
            i = (i + 1) % count;
        const uint8_t *from = e.pixels + (size_t)told.ids[i] * image + c * 576;
        const float *to = made.pixels + i * image + c * 576;
        size_t low = 0, high = 0;
        for (size_t k = 0; k < 576; k++)
            low = from[k] < from[low] ? k : low, high = from[k] > from[high] ? k : high;
        scale[c] = (to[high] - to[low]) / (float)(from[high] - from[low]);
        shift[c] = to[low] - scale[c] * (float)from[low];
    }
    dro__images from = {bytes, 3, 24, 24, scale, shift};
    assert_true(be->images(&from, told.ids, told.cuts, count, x));
    be->copy_out(back, x, count * image * sizeof *back);
    for (size_t i = 0; i < count * image; i++)
        if (fabsf(back[i] - made.pixels[i]) > 1e-4f)
            fail_msg("image %zu, element %zu: %g instead of %g", i / image, i % image,
                     (double)back[i], (double)made.pixels[i]);
    dro_loader_destroy(loader);
    dro_loader_destroy(cutter);
    dro_data_close(data);
    be->free(bytes), be->free(x), free(back);
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
