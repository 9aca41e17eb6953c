/* data: columns scaled (src/data/scale.h). */
#include "data_text.h"

#include "scale.h"

#include <math.h>

static void test_limit(void **state)
{
    (void)state;
    assert_true(dro__limited(2.9) == 2.9 && dro__limited(-3) == -3);
    assert_float_equal(dro__limited(74), 6 - 9.0 / 74, 1e-12);
    assert_float_equal(dro__limited(-1e6), -6 + 9e-6, 1e-12);
    for (double x = 2; x < 1e5; x *= 1.1) /* order is kept */
        assert_true(dro__limited(1.1 * x) > dro__limited(x));
}

static void test_fences(void **state)
{
    (void)state;
    double v[100], low, high;
    for (int k = 0; k < 100; k++)
        v[k] = k; /* 5 and 94 are the quantiles */
    dro__fences(v, 100, &low, &high);
    assert_true(low == 5 - 89 && high == 94 + 89);
    for (int k = 0; k < 100; k++)
        v[k] = k < 97 ? 0 : 1e6 * k; /* of those that are not 0 */
    dro__fences(v, 100, &low, &high);
    assert_true(low == -99e6 && high == 198e6);
    for (int k = 0; k < 100; k++)
        v[k] = 3;
    dro__fences(v, 100, &low, &high);
    assert_true(isinf(low) && isinf(high));
    dro__fences(v, 0, &low, &high);
    assert_true(isinf(low) && isinf(high));
}

/* Rows of a heavy tail, a constant, a rare 1, and a column of 1e-6: as a text with this separator
 * before each. */
static void write_awkward(const char *name, const char *format)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++) {
        double u = (i + 0.5) / 1000;
        fprintf(f, format, i % 2, tan(3.141592653589793 * (u - 0.5)), 7.0, i % 250 == 0,
                1e-6 * ((i * 7) % 13));
    }
    fclose(f);
}

/* The four columns of rows with so many features, the others of which are in between: those of the
 * first column. */
static void check_columns(const dro_examples *e, size_t width)
{
    double square[4] = {0}, sum[4] = {0}, most[4] = {0};
    assert_int_equal(e->count, 1000);
    for (int i = 0; i < 1000; i++)
        for (int k = 0; k < 4; k++) {
            size_t feature = k == 0 ? 0 : width - 4 + (size_t)k;
            double x = (double)e->x[(size_t)i * width + feature];
            sum[k] += x / 1000;
            square[k] += x * x / 1000;
            most[k] = fmax(most[k], fabs(x));
        }
    assert_true(most[0] > 5 &&
                most[0] < 6); /* some 64 deviations without the fences' and the limit */
    assert_true(square[0] > 0.3 && square[0] < 2);
    assert_true(most[1] == 0);
    assert_float_equal(most[2], 6 - 9 / sqrt(249), 0.01); /* a rare 1 is scaled up */
    assert_float_equal(square[3], 1, 1e-4);
    assert_float_equal(sum[3], 0, 1e-4);
}

/* The second feature of a heavy tail in csv: the logarithm of what is beyond the limit, which the
 * first one shows as its distance from 6. */
static void check_tail(const dro_examples *e, size_t width)
{
    int beyond = 0;
    for (size_t i = 0; i < 1000; i++) {
        double x = (double)e->x[i * width], tail = (double)e->x[i * width + 1];
        double most = 2 - fabs(x) / 3; /* limit / value */
        if (fabs(x) <= 3)
            assert_true(tail == 0);
        else
            assert_float_equal(tail, copysign(-log(most), x), 1e-3);
        beyond += tail != 0;
    }
    assert_in_range(beyond, 20, 200);
}

/* The same rows in two formats have the same features; csv has one more for a heavy tail. */
static void test_formats(void **state)
{
    (void)state;
    char spec[512];
    dro_data *data;
    dro_examples e[3];
    write_awkward("rows.csv", "%d,%.9g,%g,%d,%.9g\n");
    write_awkward("rows.svm", "%d 1:%.9g 2:%g 3:%d 4:%.9g\n");
    snprintf(spec, sizeof spec, "csv:%s,label=1", in_dir("rows.csv"));
    OK(ctx, dro_data_open(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e[0]));
    assert_int_equal(data->features, 5);
    check_columns(&e[0], 5);
    check_tail(&e[0], 5);
    float first[4000];
    for (int i = 0; i < 4000; i++)
        first[i] = e[0].x[i / 4 * 5 + (i % 4 ? i % 4 + 1 : 0)];
    dro_data_close(data);
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("rows.svm"));
    OK(ctx, dro__data_for_training(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e[1]));
    assert_int_equal(data->kind, DRO_DATA_DENSE);
    check_columns(&e[1], 4);
    for (int i = 0; i < 4000; i++)
        assert_float_equal(first[i], e[1].x[i], 1e-4 * (1 + fabsf(first[i])));
    /* another file, for the model: by what was kept, whatever it holds */
    char *kept = strdup(data->encoding);
    dro_data_close(data);
    write_file("few", "1 1:0.5 3:1\n0 4:1e-6\n", 21);
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("few"));
    OK(ctx, dro__data_open_given(ctx, spec, kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e[2]));
    assert_int_equal(data->features, 4);
    assert_float_equal(e[2].x[2], 6 - 9 / sqrt(249), 0.01);
    assert_float_equal(e[2].x[1], 0, 0);
    dro_data_close(data);
    write_file("wide", "1 1:0.5 9:1\n0 4:1e-6\n", 21);
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("wide"));
    FAILS(ctx, dro__data_open_given(ctx, spec, kept, &data), DRO_ERR_DATA, "rows of 4 features");
    free(kept);
}

/* scale=: as the file has it, and with neither fences nor limit. */
static void test_option(void **state)
{
    (void)state;
    char spec[512];
    dro_data *data;
    dro_examples e;
    write_awkward("rows.csv", "%d,%.9g,%g,%d,%.9g\n");
    write_awkward("rows.svm", "%d 1:%.9g 2:%g 3:%d 4:%.9g\n");
    snprintf(spec, sizeof spec, "csv:%s,label=1,scale=none", in_dir("rows.csv"));
    OK(ctx, dro_data_open(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_true(e.x[1] == 7 && e.x[2] == 1);
    dro_data_close(data);
    snprintf(spec, sizeof spec, "csv:%s,label=1,scale=standard", in_dir("rows.csv"));
    OK(ctx, dro_data_open(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_float_equal(e.x[2], sqrt(249), 1e-3);
    assert_true(fabsf(e.x[0]) > 20);
    dro_data_close(data);
    snprintf(spec, sizeof spec, "libsvm:%s,scale=none", in_dir("rows.svm"));
    OK(ctx, dro__data_for_training(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_true(e.values[1] == 7);
    dro_data_close(data);
    snprintf(spec, sizeof spec, "libsvm:%s,scale=big", in_dir("rows.svm"));
    FAILS(ctx, dro__data_for_training(ctx, spec, &data), DRO_ERR_RANGE, "robust, standard or none");
}

/* Sparse columns stay sparse: divided by their root mean square, a rare one scaled up, an outlier
 * cut. */
static void test_sparse(void **state)
{
    (void)state;
    char spec[512];
    dro_data *data;
    dro_examples e;
    FILE *f = fopen(in_dir("sparse"), "w");
    assert_non_null(f);
    for (int i = 0; i < 2000; i++)
        fprintf(f, "%d%s%s%s 5000:1\n", i % 2, i % 4 == 0 ? " 1:1e-3" : "",
                i % 500 == 0 ? " 2:3" : "",
                i == 0       ? " 3:1e9"
                : i % 2 == 0 ? " 3:2"
                             : "");
    fclose(f);
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("sparse"));
    OK(ctx, dro__data_for_training(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(data->kind, DRO_DATA_SPARSE);
    assert_int_equal(data->features, 5001);
    assert_int_equal(e.starts[1], 5);
    assert_int_equal(e.columns[4], 5000); /* the bias */
    assert_float_equal(e.values[4], 1, 0);
    assert_float_equal(e.values[0], 2, 0.02); /* 1 / sqrt(1/4) */
    assert_float_equal(e.values[1], 6 - 9 / sqrt(400), 0.1);
    assert_true(e.values[2] <= 6);                          /* 1e9 */
    assert_float_equal(e.values[e.starts[2]], 1.404, 0.01); /* the others: 1e9 counts as 4 rms */
    assert_float_equal(e.values[3], 1, 0.01);
    char *kept = strdup(data->encoding);
    dro_data_close(data);
    write_file("few", "1 1:1e-3 4:1\n0\n", 15); /* column 4 was never seen */
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("few"));
    OK(ctx, dro__data_open_given(ctx, spec, kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(data->features, 5001);
    assert_int_equal(e.starts[1], 3);
    assert_float_equal(e.values[0], 2, 0.02);
    assert_true(e.values[1] > 5 && e.values[1] < 6);
    assert_int_equal(e.columns[e.starts[1]], 5000);
    dro_data_close(data);
    free(kept);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "libsvm 1 base=1\nscale odd limited 1 1,1",    "libsvm 1 base=1\nscale dense odd 1 1,1",
        "libsvm 1 base=1\nscale dense limited 9 1,1",  "libsvm 1 base=1\nscale dense limited 1 1",
        "libsvm 1 base=1\nscale dense limited 0",      "libsvm 1 base=1\nscale sparse plain 1 1 x",
        "libsvm 1 base=1\nscale dense limited 1 1,1x", "libsvm 1 base=1\nscale dense plain -1 1,1",
    };
    char spec[512];
    dro_data *data;
    write_file("rows", "1 1:1\n0 1:2\n", 12);
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("rows"));
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        FAILS(ctx, dro__data_open_given(ctx, spec, texts[k], &data), DRO_ERR_DATA, "damaged");
}

/* drop=, categorical=, decimal commas, a label that is missing, values that training did not
 * have. */
static void test_csv_options(void **state)
{
    (void)state;
    dro_examples train, test;
    const char *text = "id;zip;size;y\n17;100;1,5;a\n18;200;2,5;b\n19;100;3;a\n";
    dro_data *data =
        opened(spec_for("csv", text, ",label=y,drop=id,categorical=zip"), &train, &test);
    assert_int_equal(info_of(data).features, 4); /* 100, 200, unseen, size */
    assert_float_equal(train.x[0], 1, 0);
    assert_true(train.x[3] < 0 && train.x[7] > 0);
    assert_non_null(strstr(data->encoding, "dropped 'id"));
    char *kept = strdup(data->encoding);
    dro_data_close(data);
    write_file("other", "zip;size\n300;9,5\n100;1,5\n", 25); /* no id, no label */
    char spec[512];
    snprintf(spec, sizeof spec, "csv:%s", in_dir("other"));
    OK(ctx, dro__data_open_given(ctx, spec, kept, &data));
    assert_string_equal(dro_data_remark(data, 0),
                        "column 'zip': 1 of 2 rows have a value that training did not have");
    dro_data_close(data);
    free(kept);
    refuses(spec_for("csv", text, ",label=y,decimal=odd"), DRO_ERR_RANGE, "decimal=odd", "comma");
    refuses(spec_for("csv", text, ",label=y,drop=what"), DRO_ERR_NAME, "no column drop=what",
            "id zip size y");
    refuses(spec_for("csv", text, ",label=y,drop=id:y"), DRO_ERR_ARGUMENT, "drop=y", "the label");
    refuses(spec_for("csv", text, ""), DRO_ERR_ARGUMENT, "which column is the label",
            "one of id zip size y");
    data = opened(spec_for("csv", text, ",label=y,drop=1:2,decimal=point"), &train, &test);
    assert_int_equal(info_of(data).features, 4); /* 1,5 is a text */
    dro_data_close(data);
    data = opened(spec_for("csv", "y,x\na,\"1,5\"\nb,\"2,5\"\n", ",label=y,decimal=comma"), &train,
                  &test);
    assert_int_equal(info_of(data).features, 1);
    dro_data_close(data);
}

/* Numbers as people write them: one feature, its mean 0; the weights keep how they are read. */
static void test_formatted(void **state)
{
    (void)state;
    static const struct {
        const char *cells[4]; /* three to train on, one to predict */
        double value;         /* of the last, in deviations from the mean of the first three */
        const char *options;
    } good[] = {
        {{"\"$1,000\"", "$2000", "\"$ 3,000.00\"", "\"$4,000\""}, 2, ""},
        {{"\"1,000\"", "\"2,000\"", "3000", "4e3"}, 2, ""},
        {{"10 %", "20%", "30 %", "40%"}, 2, ""},
        {{"\u20ac 1", "2\u00a0\u20ac", "\u20ac3", "-\u20ac4"}, -6, ""},
        {{"1 000", "2'000", "3\u202f000", "4000"}, 2, ""},
        {{"\"1.000,5\"", "\"2.000,5\"", "3.000", "4.000"}, 2, ",decimal=comma"},
    };
    static const char *const bad[][3] = {
        {"$1", "\u20ac2", "$3"},         {"\"1,5\"", "\"2,5\"", "3"},
        {"\"0,500\"", "\"1,500\"", "3"}, {"\"1,00\"", "\"1,000\"", "3"},
        {"\"1,000'000\"", "2", "3"},     {"$", "$$", "$$$"},
        {"12 kg", "13 kg", "14 kg"},     {"%", "1%", "2%"}};
    char text[256], spec[512];
    dro_examples train, test;
    dro_data *data;
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
        const char *const *c = good[k].cells;
        snprintf(text, sizeof text, "x,y\n%s,a\n%s,b\n%s,a\n", c[0], c[1], c[2]);
        snprintf(spec, sizeof spec, ",label=y,scale=standard%s", good[k].options);
        data = opened(spec_for("csv", text, spec), &train, &test);
        assert_int_equal(info_of(data).features, 1);
        assert_non_null(strstr(dro_data_remark(data, 0), "is read as the number"));
        char *kept = strdup(data->encoding);
        double step = train.x[2] - (double)train.x[1];
        dro_data_close(data);
        snprintf(text, sizeof text, "x\n%s\n", c[3]);
        write_file("other", text, strlen(text));
        snprintf(spec, sizeof spec, "csv:%s,header=yes", in_dir("other"));
        OK(ctx, dro__data_open_given(ctx, spec, kept, &data));
        OK(ctx, dro_data_examples(data, DRO_TRAIN, &train));
        /* 3.000 is 1999.5 above 1.000,5 where commas are decimal, 2000 elsewhere */
        assert_float_equal(train.x[0] / step, good[k].value, 2e-3);
        dro_data_close(data);
        free(kept);
    }
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        snprintf(text, sizeof text, "x,y\n%s,a\n%s,b\n%s,a\n", bad[k][0], bad[k][1], bad[k][2]);
        data = opened(spec_for("csv", text, ",label=y"), &train, &test);
        assert_int_equal(info_of(data).features, 4); /* categories */
        dro_data_close(data);
    }
    data = opened(spec_for("csv", "x,y\n$1,a\n$2,b\n", ",label=y"), &train, &test);
    char *dollars = strdup(data->encoding);
    dro_data_close(data);
    write_file("other", "x,y\n3,a\n4 %,b\n", 14);
    FAILS(ctx, dro__data_open_given(ctx, spec, dollars, &data), DRO_ERR_DATA, "'4 %': expected a");
    *strchr(dollars, '$') = '%';
    FAILS(ctx, dro__data_open_given(ctx, spec, dollars, &data), DRO_ERR_DATA, "damaged");
    free(dollars);
    snprintf(text, sizeof text, "x,y\n1,\"$1,000.50\"\n2,$5\n3,$7.25\n");
    data = opened(spec_for("csv", text, ",label=y"), &train, &test);
    assert_true(info_of(data).classes == 0 && train.targets);
    dro_data_close(data);
    data = opened(spec_for("csv", "x,y\n$1,a\n$2,b\n", ",label=y,categorical=x"), &train, &test);
    assert_int_equal(info_of(data).features, 3);
    dro_data_close(data);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
    cmocka_unit_test_setup_teardown(test_fences, setup, teardown),
    cmocka_unit_test_setup_teardown(test_formats, setup, teardown),
    cmocka_unit_test_setup_teardown(test_option, setup, teardown),
    cmocka_unit_test_setup_teardown(test_sparse, setup, teardown),
    cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
    cmocka_unit_test_setup_teardown(test_csv_options, setup, teardown),
    cmocka_unit_test_setup_teardown(test_formatted, setup, teardown),
};

CHECK_MAIN(tests)
