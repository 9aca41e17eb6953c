/* Imbalance and holdout at their edges: the draw of a holdout is pinned, its time does not grow
 * with the number of classes, and no class is emptied unsaid. */
#include "check.h"

#include <dro/dro.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t held_records(const char *spec, int64_t count)
{
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = NULL;
    dro_examples held;
    if (dro_data_open(ctx, spec, &data) != DRO_OK)
        fail_msg("%s: %s", spec, dro_context_error(ctx));
    assert_int_equal(dro_data_examples(data, DRO_HOLDOUT, &held), DRO_OK);
    assert_int_equal(held.count, count);
    uint64_t sum = dro__checksum(0, held.records, (size_t)held.count * sizeof *held.records);
    dro_data_close(data);
    dro_context_destroy(ctx);
    return sum;
}

/* n rows of `label 1:1`, the labels mixed: i * i % modulus. */
static void write_rows(const char *path, int64_t n, int64_t modulus)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int64_t i = 0; i < n; i++)
        fprintf(file, "%lld 1:1\n", (long long)(i * i % modulus));
    assert_int_equal(fclose(file), 0);
}

/* The same examples as ever for the same seed: results that were selected on them stay
 * comparable. */
static void test_same_draw(void **state)
{
    (void)state;
    char path[] = "/tmp/dro_held_XXXXXX", spec[128];
    close(mkstemp(path));
    write_rows(path, 1000, 31);
    static const struct {
        const char *options;
        int64_t count;
        uint64_t sum;
    } cases[] = {
        {",holdout=0.1", 100, UINT64_C(0xb265e38394e134a1)},
        {",holdout=0.37,seed=7", 372, UINT64_C(0x3b91858f92ee50d7)},
        {",holdout=0.9,imratio=0.5", 684, UINT64_C(0x5c96f007977f781e)},
        {",target=real,holdout=0.25", 250, UINT64_C(0x108cb1ef0204a48f)}, /* no classes */
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        snprintf(spec, sizeof spec, "libsvm:%s%s", path, cases[k].options);
        assert_int_equal(held_records(spec, cases[k].count), cases[k].sum);
    }
    remove(path);
    assert_int_equal(held_records("synth:glyphs,n=1000,test=10,size=8,holdout=0.25", 250),
                     UINT64_C(0x7308b1bad6910d1c));
}

/* One pass: with classes x examples, 50,000 x 200,000 comparisons take seconds. */
static void test_many_classes(void **state)
{
    (void)state;
    enum { ROWS = 200000, CLASSES = 50000 };
    char path[] = "/tmp/dro_many_XXXXXX", spec[128];
    close(mkstemp(path));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < ROWS; i++)
        fprintf(file, "%d 1:1\n", i % CLASSES);
    assert_int_equal(fclose(file), 0);
    double seconds[2];
    for (int k = 0; k < 2; k++) {
        clock_t start = clock();
        snprintf(spec, sizeof spec, "libsvm:%s%s", path, k ? ",holdout=0.25" : ",holdout=0");
        held_records(spec, k ? CLASSES : 0);
        seconds[k] = (double)(clock() - start) / CLOCKS_PER_SEC;
    }
    if (seconds[1] > 2 * seconds[0] + 1)
        fail_msg("%g s, and %g s without a holdout", seconds[1], seconds[0]);
    remove(path);
}

/* As longtail=exp: a class that would be empty is an error, and the ratio that it names works. */
static void test_empty_classes(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *data;
    FAILS(ctx, dro_data_open(ctx, "synth:glyphs,n=300,test=10,size=8,imratio=0.03", &data),
          DRO_ERR_RANGE,
          "imratio=0.03: class 0 would keep nothing of its 30 examples: expected 0.033334 or more");
    FAILS(ctx, dro_data_open(ctx, "synth:glyphs,n=300,test=10,size=8,imratio=0", &data),
          DRO_ERR_RANGE, "imratio=0: class 0 would keep nothing");
    assert_int_equal(
        dro_data_open(ctx, "synth:glyphs,n=300,test=10,size=8,imratio=0.033334", &data), DRO_OK);
    dro_data_info info;
    assert_int_equal(dro_data_info_get(data, &info), DRO_OK);
    assert_int_equal(info.counts[DRO_TRAIN][0], 1);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

/* flip= changes exactly so many labels of the training set, each into another class, and nothing
 * else. */
static void test_flip(void **state)
{
    (void)state;
    static const char spec[] = "synth:glyphs,n=1000,test=100,size=8,holdout=0.2";
    dro_context *ctx = check_context("ref", 1);
    char flipped[128];
    snprintf(flipped, sizeof flipped, "%s,flip=0.02", spec);
    for (int s = 0; s < DRO_SPLITS; s++) {
        dro_data *data[2];
        dro_examples e[2];
        assert_int_equal(dro_data_open(ctx, spec, &data[0]), DRO_OK);
        assert_int_equal(dro_data_open(ctx, flipped, &data[1]), DRO_OK);
        for (int k = 0; k < 2; k++)
            assert_int_equal(dro_data_examples(data[k], s, &e[k]), DRO_OK);
        int64_t changed = 0;
        assert_int_equal(e[0].count, e[1].count);
        for (int64_t i = 0; i < e[0].count; i++) {
            assert_int_equal(e[0].records[i], e[1].records[i]);
            assert_in_range(e[1].labels[i], 0, 9);
            changed += e[0].labels[i] != e[1].labels[i];
        }
        assert_int_equal(changed, s == DRO_TRAIN ? 16 : 0);
        for (int k = 0; k < 2; k++)
            dro_data_close(data[k]);
    }
    dro_data *data;
    FAILS(ctx, dro_data_open(ctx, "synth:glyphs,n=300,flip=2", &data), DRO_ERR_RANGE,
          "flip=2: expected a number from 0 to 1");
    char path[] = "/tmp/dro_flip_XXXXXX", real[128];
    close(mkstemp(path));
    write_rows(path, 20, 7);
    snprintf(real, sizeof real, "libsvm:%s,target=real,flip=0.5", path);
    FAILS(ctx, dro_data_open(ctx, real, &data), DRO_ERR_UNSUPPORTED, "flip needs two classes");
    remove(path);
    dro_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_draw),
        cmocka_unit_test(test_flip),
        cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_empty_classes),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
