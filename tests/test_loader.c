/* Opening, imbalance, holdout, and the loader: the same (seed, epoch, position) gives the same
 * bytes with any number of threads, in any order of asking, and after a restart in mid-epoch. */
#include "check.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GLYPHS "synth:glyphs,n=1000,test=100,size=16"

static dro_data *open_data(dro_context *ctx, const char *spec)
{
    dro_data *data = NULL;
    if (dro_data_open(ctx, spec, &data) != DRO_OK)
        fail_msg("%s: %s", spec, dro_context_error(ctx));
    return data;
}

static uint64_t sum_of(uint64_t hash, const dro_loaded *b, size_t image)
{
    hash = dro__checksum(hash, b->ids, b->count * sizeof *b->ids);
    hash = dro__checksum(hash, b->labels, b->count * sizeof *b->labels);
    return dro__checksum(hash, b->pixels, b->count * image * sizeof *b->pixels);
}

static dro_loader *make_loader(dro_context *ctx, dro_data *data, int threads, bool augment)
{
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader = NULL;
    o.batch = 64;
    o.threads = threads;
    o.augment = augment;
    if (dro_loader_create(data, DRO_TRAIN, &o, &loader) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    return loader;
}

/* Checksums of `count` batches from batch `from` on. */
static void sums(dro_data *data, dro_context *ctx, int threads, uint64_t from, int count,
                 uint64_t *out)
{
    dro_loader *loader = make_loader(ctx, data, threads, true);
    dro_loaded batch;
    for (int k = 0; k < count; k++) {
        assert_int_equal(dro_loader_draw(loader, (from + (uint64_t)k) * 64, &batch), DRO_OK);
        out[k] = sum_of(0, &batch, 3 * 16 * 16);
    }
    dro_loader_destroy(loader);
}

static void test_threads_and_restarts(void **state)
{
    (void)state;
    enum { COUNT = 40 }; /* 15 batches an epoch: more than two epochs */
    uint64_t one[COUNT], many[COUNT], late[COUNT];
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS);
    sums(data, ctx, 1, 0, COUNT, one);
    for (int threads = 2; threads <= 8; threads += 3) {
        sums(data, ctx, threads, 0, COUNT, many);
        assert_memory_equal(one, many, sizeof one);
    }
    sums(data, ctx, 3, 23, COUNT - 23, late); /* as after a restart in mid-epoch */
    assert_memory_equal(one + 23, late, (COUNT - 23) * sizeof *late);
    for (int k = 1; k < COUNT; k++)
        assert_true(one[k] != one[k - 1]);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

/* What a cut makes of a pixel, by hand, is what the loader makes of it. */
static void test_cuts(void **state)
{
    (void)state;
    enum { SIDE = 16, IMAGE = 3 * SIDE * SIDE };
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS);
    dro_examples e;
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    dro_loader_options o = dro_loader_options_default();
    o.batch = 64, o.augment = o.cuts = true;
    dro_loader *loader = make_loader(ctx, data, 2, true), *cutter = NULL;
    assert_int_equal(dro_loader_create(data, DRO_TRAIN, &o, &cutter), DRO_OK);
    dro_loaded made, told;
    assert_int_equal(dro_loader_draw(loader, 64, &made), DRO_OK);
    assert_int_equal(dro_loader_draw(cutter, 64, &told), DRO_OK);
    assert_null(told.pixels);
    assert_memory_equal(made.ids, told.ids, 64 * sizeof *made.ids);
    int mirrored = 0, moved = 0;
    for (size_t i = 0; i < 64; i++) {
        dro_cut cut = told.cuts[i];
        mirrored += cut.mirror, moved += cut.down != 0 || cut.right != 0;
        const uint8_t *from = e.pixels + (size_t)told.ids[i] * IMAGE;
        float zero = INFINITY, step = 0; /* of the red plane: what 0 and 255 become */
        for (int k = 0; k < SIDE * SIDE; k++) {
            int r = k / SIDE + cut.down, c = k % SIDE;
            c = (cut.mirror ? SIDE - 1 - c : c) + cut.right;
            bool inside = r >= 0 && r < SIDE && c >= 0 && c < SIDE;
            float value = inside ? from[r * SIDE + c] : 0, got = made.pixels[i * IMAGE + (size_t)k];
            if (value == 0)
                zero = got;
            else if (zero != INFINITY && step == 0)
                step = (got - zero) / value;
            if (zero != INFINITY && step > 0)
                assert_true(fabsf(got - (zero + step * value)) < 1e-3f);
        }
    }
    assert_in_range(mirrored, 15, 49);
    assert_in_range(moved, 55, 64);
    dro_loader_destroy(loader);
    dro_loader_destroy(cutter);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static void test_any_order(void **state)
{
    (void)state;
    static const int order[] = {0, 1, 2, 30, 31, 2, 3, 4, 5, 6, 7, 8, 9, 0, 39, 38, 1};
    uint64_t expected[40];
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS);
    dro_loaded batch, kept;
    sums(data, ctx, 2, 0, 40, expected);
    dro_loader *loader = make_loader(ctx, data, 4, true);
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        assert_int_equal(dro_loader_draw(loader, (uint64_t)order[k] * 64, &batch), DRO_OK);
        assert_true(sum_of(0, &batch, 768) == expected[order[k]]);
    }
    /* a batch outlives two more draws */
    assert_int_equal(dro_loader_draw(loader, 0, &kept), DRO_OK);
    assert_int_equal(dro_loader_draw(loader, 64, &batch), DRO_OK);
    assert_int_equal(dro_loader_draw(loader, 128, &batch), DRO_OK);
    assert_true(sum_of(0, &kept, 768) == expected[0]);
    assert_int_equal(dro_loader_draw(loader, 65, &batch), DRO_ERR_ARGUMENT);
    dro_loader_destroy(loader);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static void test_epochs_and_gather(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS);
    dro_loader *loader = make_loader(ctx, data, 2, false);
    dro_examples e;
    dro_loaded batch;
    int seen[1000] = {0}, total = 0;
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    assert_int_equal(dro_loader_epoch(loader), 960);
    for (uint64_t at = 0; at < 960; at += 64) {
        assert_int_equal(dro_loader_draw(loader, at, &batch), DRO_OK);
        for (size_t i = 0; i < batch.count; i++) {
            assert_int_equal(seen[batch.ids[i]]++, 0); /* each example at most once an epoch */
            assert_int_equal(batch.labels[i], e.labels[batch.ids[i]]);
            total++;
        }
    }
    assert_int_equal(total, 960);
    /* without augmentation a pixel is its byte, normalised; gather gives the same */
    int64_t ids[3] = {5, 999, 5};
    assert_int_equal(dro_loader_gather(loader, ids, 3, &batch), DRO_OK);
    assert_memory_equal(batch.pixels, batch.pixels + 2 * 768, 768 * sizeof(float));
    double low = 1e9, high = -1e9;
    for (int k = 0; k < 768; k++) {
        double slope = (double)batch.pixels[k];
        low = fmin(low, slope);
        high = fmax(high, slope);
    }
    assert_true(low > -6 && high < 6 && high > low);
    ids[1] = 1000;
    assert_int_equal(dro_loader_gather(loader, ids, 3, &batch), DRO_ERR_RANGE);
    dro_loader_destroy(loader);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

/* ---- bad images ---- */

static void write_file(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void test_skip_bad(void **state)
{
    (void)state;
    char dir[] = "/tmp/dro_loader_XXXXXX", path[64], spec[96];
    assert_non_null(mkdtemp(dir));
    for (int k = 0; k < 8; k++) { /* tiny grey images, two of them broken */
        snprintf(path, sizeof path, "%s/c", dir);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/c/%d.pgm", dir, k);
        write_file(path, "P5 2 2 255\n\1\2\3\4", k == 2 || k == 5 ? 13 : 15);
    }
    dro_context *ctx = check_context("ref", 1);
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader;
    dro_loaded batch;
    o.batch = 8, o.size = 8, o.shuffle = false;
    for (int tolerated = 1; tolerated <= 2; tolerated++) {
        snprintf(spec, sizeof spec, "images:%s,skip_bad=%d", dir, tolerated);
        dro_data *data = open_data(ctx, spec);
        OK(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader));
        dro_status status = dro_loader_draw(loader, 0, &batch);
        assert_int_equal(status, tolerated == 2 ? DRO_OK : DRO_ERR_DATA);
        if (status == DRO_OK) { /* each is replaced by the one after it, and reported once */
            assert_int_equal(batch.ids[2], 3);
            assert_int_equal(batch.ids[5], 6);
            assert_non_null(strstr(dro_data_skipped(data, 0), "2.pgm"));
            assert_non_null(dro_data_skipped(data, 1));
            OK(ctx, dro_loader_draw(loader, 8, &batch));
            assert_null(dro_data_skipped(data, 2));
        }
        double speed;
        int32_t shape[3];
        assert_int_equal(dro_loader_bare(loader, 0.01, &speed), status);
        assert_true(speed > 0); /* two good ones are before the first bad one */
        dro_loader_shape(loader, &shape[0], &shape[1], &shape[2]);
        assert_true(shape[0] == 3 && shape[1] == 8 && shape[2] == 8);
        dro_loader_destroy(loader);
        dro_data_close(data);
    }
    for (int k = 0; k < 8; k++) {
        snprintf(path, sizeof path, "%s/c/%d.pgm", dir, k);
        remove(path);
    }
    snprintf(path, sizeof path, "%s/c", dir);
    rmdir(path);
    rmdir(dir);
    dro_context_destroy(ctx);
}

/* ---- imbalance and holdout ---- */

static void check_counts(const char *spec, dro_split split, const int64_t *expected)
{
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, spec);
    dro_data_info info;
    assert_int_equal(dro_data_info_get(data, &info), DRO_OK);
    for (int k = 0; k < info.classes; k++)
        if (info.counts[split][k] != expected[k])
            fail_msg("%s: class %d has %lld, expected %lld", spec, k,
                     (long long)info.counts[split][k], (long long)expected[k]);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static void test_imbalance(void **state)
{
    (void)state;
    const int64_t ratio[] = {10, 10, 10, 10, 10, 100, 100, 100, 100, 100};
    const int64_t tail[] = {100, 59, 35, 21, 12, 7, 4, 2, 1, 1}; /* 100^(-k/9) */
    const int64_t odd[] = {60, 60, 200, 200, 200};               /* five classes: the first two */
    const int64_t whole[] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10};
    check_counts(GLYPHS ",imratio=0.1", DRO_TRAIN, ratio);
    check_counts(GLYPHS ",imratio=0.1", DRO_TEST, whole);
    check_counts(GLYPHS ",longtail=exp:100", DRO_TRAIN, tail);
    check_counts(GLYPHS ",classes=5,imratio=0.3", DRO_TRAIN, odd);
}

/* Rows `label 1:1`, counts[k] of class k. */
static void write_classes(const char *path, const int *counts, int classes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int k = 0; k < classes; k++)
        for (int i = 0; i < counts[k]; i++)
            fprintf(file, "%d 1:1\n", k);
    assert_int_equal(fclose(file), 0);
}

/* The largest class is R times the smallest, whatever the set was before, and no class gives what
 * it does not have. */
static void test_longtail(void **state)
{
    (void)state;
    char path[] = "/tmp/dro_tail_XXXXXX", spec[96];
    close(mkstemp(path));
    static const int balanced[10] = {5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000};
    static const int64_t cifar[10] = {5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50};
    write_classes(path, balanced, 10); /* the sizes of CIFAR-10: 12,406 in all at 100 */
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:100", path);
    check_counts(spec, DRO_TRAIN, cifar);
    static const int uneven[3] = {20, 400, 90};
    write_classes(path, uneven, 3); /* 400, 90, 20: m = min(400, 90 sqrt(R), 20 R) */
    static const int64_t ten[3] = {20, 200, 63}, four[3] = {20, 80, 40}, hundred[3] = {4, 400, 40};
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:10", path);
    check_counts(spec, DRO_TRAIN, ten);
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:4", path);
    check_counts(spec, DRO_TRAIN, four);
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:100", path);
    check_counts(spec, DRO_TRAIN, hundred);
    static const int64_t pareto[3] = {20, 180, 80}; /* 1, 4/9, 1/9: m = min(400, 202.5, 180) */
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=pareto:2", path);
    check_counts(spec, DRO_TRAIN, pareto);
    dro_context *ctx = check_context("ref", 1);
    dro_data *data;
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:1000", path);
    FAILS(ctx, dro_data_open(ctx, spec, &data), DRO_ERR_RANGE,
          "class 0 would keep nothing: expected R of at most 400");
    static const int two_small[3] = {100, 2, 2};
    static const int64_t one[3] = {4, 2, 1};
    write_classes(path, two_small, 3); /* what the second can give goes down with R */
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:100", path);
    FAILS(ctx, dro_data_open(ctx, spec, &data), DRO_ERR_RANGE, "expected R of at most 4");
    snprintf(spec, sizeof spec, "libsvm:%s,longtail=exp:4", path);
    check_counts(spec, DRO_TRAIN, one);
    dro_context_destroy(ctx);
    remove(path);
}

static void test_last_are_kept(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *all = open_data(ctx, GLYPHS), *part = open_data(ctx, GLYPHS ",imratio=0.07");
    dro_examples a, b;
    assert_int_equal(dro_data_examples(all, DRO_TRAIN, &a), DRO_OK);
    assert_int_equal(dro_data_examples(part, DRO_TRAIN, &b), DRO_OK);
    int64_t last = -1;
    for (int64_t i = 0; i < b.count; i++) {
        int64_t r = b.records[i];
        assert_true(r > last); /* still in file order */
        last = r;
        assert_int_equal(b.labels[i], a.labels[r]);
        assert_memory_equal(b.pixels + i * 768, a.pixels + r * 768, 768);
        if (b.labels[i] < 5) /* 7 of 100: the last seven of its class, 10 apart */
            assert_true(r >= 930);
    }
    dro_data_close(all);
    dro_data_close(part);
    dro_context_destroy(ctx);
}

static void test_holdout(void **state)
{
    (void)state;
    const int64_t held[] = {1, 1, 1, 1, 1, 10, 10, 10, 10, 10};
    check_counts(GLYPHS ",imratio=0.1,holdout=0.1", DRO_HOLDOUT, held);
    const int64_t kept[] = {0, 0, 0, 0, 0, 90, 90, 90, 90, 90}; /* the only one stays */
    check_counts(GLYPHS ",imratio=0.01,holdout=0.9", DRO_HOLDOUT, kept);
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS ",holdout=0.25"),
             *again = open_data(ctx, GLYPHS ",holdout=0.25");
    dro_data *other = open_data(ctx, GLYPHS ",holdout=0.25,seed=2");
    dro_examples train, held1, held2;
    bool seen[1000] = {0};
    dro_data_examples(data, DRO_TRAIN, &train);
    dro_data_examples(data, DRO_HOLDOUT, &held1);
    dro_data_examples(again, DRO_HOLDOUT, &held2);
    assert_int_equal(train.count, 750);
    assert_int_equal(held1.count, 250);
    assert_memory_equal(held1.records, held2.records, 250 * sizeof(int64_t));
    for (int64_t i = 0; i < 1000; i++) {
        int64_t r = i < 750 ? train.records[i] : held1.records[i - 750];
        assert_false(seen[r]);
        seen[r] = true;
    }
    dro_data_examples(other, DRO_HOLDOUT, &held2);
    assert_memory_not_equal(held1.records, held2.records, 250 * sizeof(int64_t));
    dro_data_close(data);
    dro_data_close(again);
    dro_data_close(other);
    dro_context_destroy(ctx);
}

static void test_bad_specs(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *says;
    } cases[] = {
        {"glyphs", "no format 'glyphs'"},
        {"nothing:x", "no format 'nothing'"},
        {"synth:", "no path"},
        {"synth", "expected synth:"},
        {"synth:glyph", "expected synth:glyphs"},
        {GLYPHS ",clases=3", "has no option 'clases'"},
        {GLYPHS ",classes=99", "from 2 to 36"},
        {GLYPHS ",classes", "expected option=value"},
        {GLYPHS ",noise=x", "expected a number"},
        {GLYPHS ",seed=1,seed=2", "given twice"},
        {GLYPHS ",imratio=2", "from 0 to 1"},
        {GLYPHS ",longtail=exp:0.5", "expected exp:R"},
        {GLYPHS ",longtail=foo", "expected exp:R"},
        {GLYPHS ",imratio=0.1,longtail=exp:5", "exclude each other"},
        {GLYPHS ",holdout=1", "from 0 to 0.9"},
    };
    dro_context *ctx = check_context("ref", 1);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_data *data = (dro_data *)&data;
        if (dro_data_open(ctx, cases[k].spec, &data) == DRO_OK || data)
            fail_msg("%s was accepted", cases[k].spec);
        if (!strstr(dro_context_error(ctx), cases[k].says))
            fail_msg("%s: '%s' does not say '%s'", cases[k].spec, dro_context_error(ctx),
                     cases[k].says);
    }
    dro_context_destroy(ctx);
}

/* A linear model cannot tell the glyphs apart; the classes are there all the same (a nearest mean
 * of the same class after alignment would be a network's work). Here: same seed same bytes, other
 * seed other. */
static void test_glyphs(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *a = open_data(ctx, GLYPHS), *b = open_data(ctx, GLYPHS),
             *c = open_data(ctx, GLYPHS ",seed=2");
    dro_examples x, y, z, test;
    dro_data_examples(a, DRO_TRAIN, &x);
    dro_data_examples(b, DRO_TRAIN, &y);
    dro_data_examples(c, DRO_TRAIN, &z);
    dro_data_examples(a, DRO_TEST, &test);
    assert_memory_equal(x.pixels, y.pixels, 1000 * 768);
    assert_memory_not_equal(x.pixels, z.pixels, 768);
    assert_memory_not_equal(x.pixels, test.pixels, 768);
    dro_data_close(a);
    dro_data_close(b);
    dro_data_close(c);
    dro_context_destroy(ctx);
}

/* Of the ways in which images are changed each can be left out; small images are moved by an eighth
 * of their side. */
static void test_ways(void **state)
{
    (void)state;
    static const unsigned ways[] = {DRO_AUGMENT_CROP, DRO_AUGMENT_FLIP, 0};
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = open_data(ctx, GLYPHS);
    for (int k = 0; k < 3; k++) {
        dro_loader_options o = dro_loader_options_default();
        o.batch = 64, o.augment = o.cuts = true, o.ways = ways[k];
        dro_loader *loader;
        dro_loaded batch;
        assert_int_equal(dro_loader_create(data, DRO_TRAIN, &o, &loader), DRO_OK);
        assert_int_equal(dro_loader_draw(loader, 0, &batch), DRO_OK);
        int mirrored = 0, moved = 0, most = 0;
        for (size_t i = 0; i < 64; i++) {
            dro_cut cut = batch.cuts[i];
            mirrored += cut.mirror, moved += cut.down != 0 || cut.right != 0;
            most = abs(cut.down) > most ? abs(cut.down) : most;
        }
        assert_true((mirrored > 0) == (ways[k] != DRO_AUGMENT_CROP));
        assert_true((moved > 0) == (ways[k] != DRO_AUGMENT_FLIP));
        assert_true(most <= 2); /* 16 pixels */
        dro_loader_destroy(loader);
    }
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static void test_bad_options(void **state)
{
    (void)state;
    const unsigned randaugment = DRO_AUGMENT_RANDAUGMENT, cutout = DRO_AUGMENT_CUTOUT;
    const struct {
        bool rows;
        dro_loader_options o; /* batch and struct_size are set below */
        const char *says;
    } cases[] = {
        {false, {.batch = 2000}, "batch 2000: expected 1 to 1000, the examples there are"},
        {false, {.batch = SIZE_MAX}, "batch 0: expected 1 to 1000, the examples there are"},
        {false, {.first = 5, .end = 4}, "examples 5 to 4 of a batch of 10"},
        {false, {.end = 11}, "examples 0 to 11 of a batch of 10"},
        {false, {.size = -1}, "size -1: expected 1 to 4096"},
        {false, {.size = 4097}, "size 4097: expected 1 to 4096"},
        {false, {.ways = randaugment | DRO_AUGMENT_AUTOAUGMENT}, "randaugment or autoaugment"},
        {false, {.ways = randaugment}, "0 operations of magnitude 0: expected 1 to 3 operations"},
        {false, {.ways = randaugment, .operations = 4}, "4 operations of magnitude 0: expected"},
        {false, {.ways = randaugment, .operations = 1, .magnitude = -1}, "a magnitude of 0 to 30"},
        {false, {.ways = randaugment, .operations = 1, .magnitude = 31}, "of magnitude 31"},
        {false, {.ways = cutout, .cutout = -1}, "cutout: a square of -1: expected 0 to 4096"},
        {false, {.ways = cutout, .cutout = 5000}, "cutout: a square of 5000: expected 0 to 4096"},
        {false, {.mixup = -1}, "mixup -1, cutmix 0: expected 0 to 1e6"},
        {false, {.mixup = NAN}, "mixup nan, cutmix 0: expected 0 to 1e6"},
        {false, {.mixup = 2e6}, "mixup 2e+06, cutmix 0: expected 0 to 1e6"},
        {false, {.cutmix = -1}, "mixup 0, cutmix -1: expected 0 to 1e6"},
        {false, {.cutmix = 2e6}, "mixup 0, cutmix 2e+06: expected 0 to 1e6"},
        {true, {.mixup = 1}, "mixup and cutmix: expected images with classes, not rows"},
        {true, {.cuts = true}, "cuts: only small images have them"},
    };
    dro_context *ctx = check_context("ref", 1);
    static const float x[20];
    static const int32_t labels[20] = {1};
    dro_arrays a = {.size = sizeof a, .count = 20, .features = 1, .x = x, .labels = labels};
    dro_data *images = open_data(ctx, GLYPHS), *rows;
    OK(ctx, dro_data_from_arrays(ctx, &a, NULL, "", &rows));
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_loader_options o = cases[k].o;
        dro_loader *loader = (dro_loader *)&loader;
        o.struct_size = sizeof o;
        o.batch = o.batch ? o.batch + (o.batch == SIZE_MAX) : 10;
        dro_status status =
            dro_loader_create(cases[k].rows ? rows : images, DRO_TRAIN, &o, &loader);
        if (status == DRO_OK || loader)
            fail_msg("'%s' was accepted", cases[k].says);
        if (!strstr(dro_context_error(ctx), cases[k].says))
            fail_msg("'%s' does not say '%s'", dro_context_error(ctx), cases[k].says);
    }
    dro_data_close(images);
    dro_data_close(rows);
    dro_context_destroy(ctx);
}

/* An epoch draws examples in proportion to their weights. */
static void test_weights(void **state)
{
    (void)state;
    static const float x[] = {1, 2, 3, 4}, weights[] = {0, 1, 3, 0};
    static const int32_t labels[] = {0, 1, 1, 0};
    dro_arrays a = {.size = sizeof a, .count = 4, .features = 1, .x = x, .labels = labels};
    a.weights = weights;
    dro_context *ctx = check_context("ref", 1);
    dro_loader_options o = dro_loader_options_default();
    dro_data *data;
    dro_loader *loader;
    dro_loaded batch;
    int counts[4] = {0}, in_order[4] = {0};
    o.batch = 4;
    OK(ctx, dro_data_from_arrays(ctx, &a, NULL, "", &data));
    for (int pass = 0; pass < 2; pass++) {
        o.shuffle = pass == 0;
        OK(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader));
        for (uint64_t k = 0; k < 100; k++) {
            OK(ctx, dro_loader_draw(loader, 4 * k, &batch));
            assert_null(batch.pixels);
            for (size_t i = 0; i < 4; i++)
                (pass ? in_order : counts)[batch.ids[i]]++;
        }
        int32_t shape[3] = {9, 9, 9};
        dro_loader_shape(loader, &shape[0], &shape[1], &shape[2]);
        assert_true(shape[0] == 0 && shape[1] == 0 && shape[2] == 0);
        assert_true(dro_loader_waited(loader) >= 0);
        dro_loader_destroy(loader);
    }
    assert_true(counts[0] == 0 && counts[3] == 0);
    assert_in_range(counts[1], 70, 130);
    for (int i = 0; i < 4; i++)
        assert_int_equal(in_order[i], 100);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_restarts),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_epochs_and_gather),
        cmocka_unit_test(test_imbalance),
        cmocka_unit_test(test_last_are_kept),
        cmocka_unit_test(test_holdout),
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_glyphs),
        cmocka_unit_test(test_skip_bad),
        cmocka_unit_test(test_longtail),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
