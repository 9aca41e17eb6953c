/* data: the encoding of a file kept as a text, and other files read by it. */
#include "data_text.h"

#define TRAIN "a,job,y\n1,cook,p\n3,n%c o,q\n5,cook,q\n,?,p\n"

/* Opens the text as CSV with a kept encoding. */
static dro_status open_kept(const char *text, const char *options, const char *kept,
                            dro_data **data)
{
    return dro__data_open_given(ctx, spec_for("csv", text, options), kept, data);
}

static char *encoding_of(const char *text, const char *options)
{
    dro_data *data;
    OK(ctx, open_kept(text, options, NULL, &data));
    assert_non_null(data->encoding);
    char *copy = strdup(data->encoding);
    dro_data_close(data);
    return copy;
}

static void rows(const char *text, const char *options, const char *kept, const float *expected,
                 int64_t count, bool unlabelled)
{
    dro_data *data;
    dro_examples e;
    OK(ctx, open_kept(text, options, kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(e.count, count);
    assert_int_equal(info_of(data).features, 5);
    assert_int_equal(data->unlabelled != NULL, unlabelled);
    for (int64_t k = 0; k < 5 * count; k++)
        assert_true(fabsf(e.x[k] - expected[k]) < 1e-6f);
    dro_data_close(data);
}

/* a: mean 3, sd sqrt(8/3); job: cook, n% o, missing, unseen. */
#define S 0.61237244f
static void test_keep_csv(void **state)
{
    (void)state;
    char *kept = encoding_of(TRAIN, ",label=y");
    assert_string_equal(kept, "csv 1 3 2 header classes dense '\n"
                              "limited 'a 3 0.61237243569579447\n"
                              "words 'job missing 2 'cook 'n%25c%20o\n"
                              "label 'y");
    const float same[] = {-2 * S, 1, 0, 0, 0, 0, 0, 1, 0, 0, 2 * S, 1, 0, 0, 0, 0, 0, 0, 1, 0};
    rows(TRAIN, ",label=y", kept, same, 4, false);
    rows(TRAIN, "", kept, same, 4, false);
    const float other[] = {4 * S, 0, 1, 0, 0, -3 * S, 0, 0, 0, 1};
    rows("a,job\n7,n%c o\n0,clerk\n", "", kept, other, 2, true);
    rows("id,job,y,a\n9,n%c o,z,7\n8,clerk,z,0\n", "", kept, other, 2,
         false); /* names, no places */
    rows("7,n%c o\n0,clerk\n", ",header=no", kept, other, 2, true);
    rows("7,n%c o,p\n0,clerk,q\n", ",header=no", kept, other, 2, false);
    dro_data *data;
    FAILS(ctx, open_kept("job,y\ncook,p\n", "", kept, &data), DRO_ERR_DATA, "no column 'a'");
    FAILS(ctx, open_kept("a,job,y\nmany,cook,p\n", "", kept, &data), DRO_ERR_DATA,
          "a number, as in training");
    FAILS(ctx, open_kept("a,b,job\n1,2,cook\n", ",label=a", kept, &data), DRO_ERR_DATA,
          "'a', which is a feature of the model: expected label=y");
    FAILS(ctx, open_kept("1\n", ",header=no", kept, &data), DRO_ERR_DATA, "no column 'a'");
    free(kept);
}

/* From ten missing numbers on, a column has an indicator of them, dense and sparse. With scale=none
 * it has not. */
static void test_keep_missing(void **state)
{
    char text[200] = "a,y\n1,p\n5,q\n";
    static const char *const gone[] = {"", "?", "NA", "nan", " "};
    (void)state;
    for (int k = 0; k < 9; k++)
        sprintf(text + strlen(text), "%s,%s\n", gone[k % 5], k % 2 ? "p" : "q");
    char *kept = encoding_of(text, ",label=y");
    assert_string_equal(kept, "csv 1 2 1 header classes dense '\nlimited 'a 3 0.5\nlabel 'y");
    free(kept);
    strcat(text, "NaN,p\n");
    kept = encoding_of(text, ",label=y,scale=none");
    assert_string_equal(kept, "csv 1 2 1 header classes dense '\nplain 'a 3 0.5\nlabel 'y");
    free(kept);
    kept = encoding_of(text, ",label=y");
    assert_string_equal(kept, "csv 1 2 1 header classes dense '\nlimited? 'a 3 0.5\nlabel 'y");
    dro_data *data;
    dro_examples e;
    OK(ctx, open_kept("a,y\n7,p\n,q\n", "", kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(info_of(data).features, 2);
    assert_memory_equal(e.x, ((float[]){2, 0, 0, 1}), 4 * sizeof(float));
    dro_data_close(data);
    free(kept);
    static const char *const wrong[] = {"plain? 'a 3 0.5", "words? 'a whole 0", "label? 'a", "?"};
    for (int k = 0; k < 4; k++) {
        snprintf(text, sizeof text, "csv 1 2 1 header classes dense '\n%s\nlabel 'y", wrong[k]);
        FAILS(ctx, open_kept("a,y\n7,p\n", "", text, &data), DRO_ERR_DATA, "expected");
    }
}

/* From ten values beyond the fences on, a column has a feature of how far out a number is: dense,
 * sparse, and where the columns of a file are in another order. */
static void test_keep_tail(void **state)
{
    char text[4000] = "a,y\n";
    (void)state;
    for (int k = 0; k < 200; k++)
        sprintf(text + strlen(text), "%d,%c\n", k % 20, 'p' + k % 2);
    for (int k = 0; k < 9; k++)
        strcat(text, "1000,p\n");
    char *kept = encoding_of(text, ",label=y");
    assert_memory_equal(strchr(kept, '\n'), "\nlimited 'a ", 12);
    free(kept);
    strcat(text, "1000,p\n");
    kept = encoding_of(text, ",label=y,scale=standard");
    assert_memory_equal(strchr(kept, '\n'), "\nnumber 'a ", 11);
    free(kept);
    kept = encoding_of(text, ",label=y");
    assert_memory_equal(strchr(kept, '\n'), "\ntailed 'a ", 11);
    free(kept);
    const char *lines = "tailed? 'a 3 0.5\nwords 'b whole 1 'u\nlabel 'y";
    const float expected[] = {6 - 9 / 12.0f, 0, logf(4),  0, 1, 0, 1, 0, 0, 1,
                              -6 + 9 / 6.0f, 0, -logf(2), 1, 0};
    for (int sparse = 0; sparse < 2; sparse++) {
        dro_data *data;
        dro_examples e;
        snprintf(text, sizeof text, "csv 1 3 2 header classes %s '\n%s",
                 sparse ? "sparse" : "dense", lines);
        OK(ctx, open_kept("b,a\nv,27\n,\nu,-9\n", "", text, &data));
        OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
        assert_int_equal(info_of(data).features, 5);
        float x[15] = {0};
        const dro__table *t = &data->split[DRO_TRAIN];
        for (int i = 0; sparse && i < 3; i++)
            for (int64_t k = t->starts[i]; k < t->starts[i + 1]; k++) {
                assert_true(k == t->starts[i] || t->columns[k - 1] < t->columns[k]);
                x[5 * i + t->columns[k]] = t->values[k];
            }
        for (int k = 0; k < 15; k++)
            assert_float_equal(sparse ? x[k] : e.x[k], expected[k], 1e-6);
        dro_data_close(data);
    }
    FAILS(ctx,
          open_kept("a\n1\n", "", "csv 1 2 1 header classes dense '\ntailed 'a 3\nlabel 'y",
                    &(dro_data *){NULL}),
          DRO_ERR_DATA, "a number");
}

/* For a real-valued target one value beyond the fences is enough for a feature of what the limit
 * takes off: with the limited number it is the number. Rows beyond training's are cut to it. */
static void test_keep_excess(void **state)
{
    char text[4000] = "a,y\n";
    (void)state;
    for (int k = 0; k < 200; k++)
        sprintf(text + strlen(text), "%d,%d.5\n", k % 20, k);
    char *kept = encoding_of(text, ",label=y,target=real");
    assert_memory_equal(strchr(kept, '\n'), "\nlimited 'a ", 12);
    free(kept);
    strcat(text, "1000,7\n,8\n");
    kept = encoding_of(text, ",label=y,target=real");
    assert_memory_equal(strchr(kept, '\n'), "\nlimited+ 'a ", 13);
    dro_data *data;
    dro_examples e;
    OK(ctx, open_kept("a\n1000\n-1000\n2000\n40\n9\n\"\"\n", "", kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(info_of(data).features, 2);
    double centre, factor, unit, most;
    assert_int_equal(
        sscanf(strchr(kept, '\n'), "\nlimited+ 'a %lf %lf %lf %lf", &centre, &factor, &unit, &most),
        4);
    const double rows[] = {1000, -1000, 2000, 40, 9};
    for (int i = 0; i < 5; i++) {
        double x = (rows[i] - centre) * factor,
               sum = (double)e.x[2 * i] + unit * (double)e.x[2 * i + 1];
        if (i == 0 || i > 2)
            assert_float_equal(sum, x, 1e-5 * fabs(x));
        else
            assert_float_equal(e.x[2 * i + 1], copysign(most / unit, x), 1e-5);
    }
    assert_true(e.x[7] > 0 && e.x[9] == 0 && e.x[10] == 0 && e.x[11] == 0);
    assert_true(e.x[1] == 1 && unit == most); /* one outlier: its own excess is the unit */
    dro_data_close(data);
    free(kept);
    FAILS(ctx,
          open_kept("a\n1\n", "", "csv 1 2 1 header real dense '\nlimited+ 'a 3 1 0 2\nlabel 'y",
                    &(dro_data *){NULL}),
          DRO_ERR_DATA, "a positive number");
}

/* Real targets, a text for missing values, no header; the label in front. */
static void test_keep_plain(void **state)
{
    (void)state;
    dro_data *data;
    dro_examples e;
    char *kept =
        encoding_of("1.5,2,x\n2.5,4,none\n", ",label=1,header=no,target=real,missing=none");
    assert_string_equal(kept, "csv 1 3 0 plain real dense 'none\n"
                              "label '\n"
                              "limited ' 3 1\n"
                              "words ' missing 1 'x");
    OK(ctx, open_kept("9,5,none\n7,3,x\n", "", kept, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_true(e.targets[0] == 9 && e.x[0] == 2 && e.x[2] == 1 && e.x[4] == 0 && e.x[5] == 1);
    dro_data_close(data);
    OK(ctx, open_kept("5,none\n", "", kept, &data));
    assert_string_equal(data->unlabelled, "label=COLUMN");
    dro_data_close(data);
    free(kept);
}

/* What training refuses, the model refuses. */
static void test_keep_refuse(void **state)
{
    (void)state;
    dro_data *data;
    char *kept = encoding_of("a,y\n1,p\n2,q\n", ",label=y,missing=refuse");
    FAILS(ctx, open_kept("a,y\n1,p\n,q\n", "", kept, &data), DRO_ERR_DATA,
          "because of missing=refuse");
    OK(ctx, open_kept("a,y\n1,p\n,q\n", ",missing=none", kept, &data)); /* it may say otherwise */
    dro_data_close(data);
    free(kept);
}

/* Rows without index 0 are read from 0 on when the model's were. */
static void test_keep_libsvm(void **state)
{
    (void)state;
    static const char *const kept[] = {"libsvm 1 base=0", "libsvm 1 base=1"};
    static const char *const options[] = {",base=0", ",base=1"};
    dro_data *data;
    for (int base = 0; base < 2; base++) {
        OK(ctx, dro_data_open(ctx, spec_for("libsvm", "0 1:5\n1 2:1\n", options[base]), &data));
        assert_string_equal(data->encoding, kept[base]);
        dro_data_close(data);
        OK(ctx,
           dro__data_open_given(ctx, spec_for("libsvm", "0 1:5\n1 2:1\n", ""), kept[base], &data));
        assert_int_equal(data->split[DRO_TRAIN].columns[0], 1 - base);
        dro_data_close(data);
        const char *spec = spec_for("libsvm", "0 1:5\n", options[1 - base]);
        FAILS(ctx, dro__data_open_given(ctx, spec, kept[base], &data), DRO_ERR_ARGUMENT,
              base ? "base=0: the model was trained with base=1"
                   : "base=1: the model was trained with base=0");
    }
    FAILS(ctx,
          dro__data_open_given(ctx, spec_for("libsvm", "0 1:5\n", ""), "libsvm 1 base=2", &data),
          DRO_ERR_DATA, "is damaged: expected libsvm 1 base=0");
    /* Another format's encoding is not used, and that is reported where it matters. */
    OK(ctx, dro__data_open_given(ctx, spec_for("libsvm", "0 1:5\n", ""), "csv 1 2 0", &data));
    assert_int_equal(data->remarks.count, 1);
    assert_non_null(strstr(data->remarks.texts[0], "taken as they are"));
    dro_data_close(data);
    OK(ctx, open_kept("a,y\n1,p\n2,q\n", ",label=y", kept[0], &data));
    assert_int_equal(data->remarks.count, 1);
    assert_non_null(strstr(data->remarks.texts[0], "has no encoding of csv"));
    dro_data_close(data);
}

/* Cut anywhere, or with any byte changed, it is refused or still an encoding; nothing else
 * happens. */
static void test_keep_damage(void **state)
{
    (void)state;
    dro__kept back;
    char *kept = encoding_of(TRAIN, ",label=y"), changed[512];
    size_t size = strlen(kept);
    int refused = 0;
    for (size_t k = 0; k < size; k++) {
        memcpy(changed, kept, size + 1);
        changed[k] = '\0';
        refused += dro__csv_kept_read(ctx, changed, &back) != DRO_OK;
        dro__csv_kept_free(&back);
        memcpy(changed, kept, size + 1);
        changed[k] ^= 0x15;
        if (dro__csv_kept_read(ctx, changed, &back) != DRO_OK)
            assert_non_null(strstr(dro_context_error(ctx), "is damaged: expected"));
        dro__csv_kept_free(&back);
    }
    assert_true(refused > 100); /* a cut within the last name or number stays one */
    FAILS(ctx, dro__csv_kept_read(ctx, "csv 1 1000000 0 plain real dense '\nlabel '", &back),
          DRO_ERR_DATA, "a line for each column");
    free(kept);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_keep_csv, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_missing, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_tail, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_excess, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_plain, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_refuse, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_libsvm, setup, teardown),
    cmocka_unit_test_setup_teardown(test_keep_damage, setup, teardown),
};

CHECK_MAIN(tests)
