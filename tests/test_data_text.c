/* data: libsvm text, against scikit-learn (refs/make_text.py) and on the real a9a of
 * ../shared/data. */
#include "data_text.h"

static void test_libsvm_scikit(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data = opened("libsvm:" TEXTS "small.svm,features=40", &train, &test);
    assert_int_equal(info_of(data).kind, DRO_DATA_SPARSE);
    assert_int_equal(test.count, 0);
    same_rows(data, &train, TEXTS "small.txt");
    classes_are(data, "-1 +1 3 10");
    dro_data_close(data);
}

static void test_libsvm_classes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options, *names;
    } cases[] = {{"1 1:1\n-1 1:1\n+1 1:1\n", "", "-1 1"},
                 {"+1 1:1\n-1 1:1\n1 1:1\n", "", "-1 +1"},
                 {"10 1:1\n9 1:1\n-3 1:1\n", "", "-3 9 10"},
                 {"0 1:1\n1 1:1\n0.0 1:1\n1.000 1:1\n-0 1:1", "", "0 1"},
                 {"1e2 1:1\n100 1:1\n", "", "1e2"},
                 {"1 1:1\n", ",classes=7:-1:1", "-1 1 7"}};
    dro_examples train, test;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_data *data = opened(spec_for("libsvm", cases[k].text, cases[k].options), &train, &test);
        classes_are(data, cases[k].names);
        dro_data_close(data);
    }
}

static void test_libsvm_options(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data = opened(spec_for("libsvm", "0 0:5 3:2\n1 1:1\n", ",base=0"), &train, &test);
    assert_int_equal(info_of(data).features, 4);
    assert_int_equal(train.columns[0], 0);
    dro_data_close(data);
    data = opened(spec_for("libsvm", "0.5 1:1\n-2e3\n", ",target=real,features=7"), &train, &test);
    assert_null(train.labels);
    assert_true(train.targets[0] == 0.5f && train.targets[1] == -2000);
    assert_int_equal(info_of(data).features, 7);
    assert_int_equal(info_of(data).classes, 0);
    dro_data_close(data);
    data = opened(spec_for("libsvm", "2 qid:4 1:1\n3 qid:5 1:7\n", ",qid=ignore"), &train, &test);
    assert_true(train.values[1] == 7 && train.starts[2] == 2);
    dro_data_close(data);
    data = opened(spec_for("libsvm", "\xef\xbb\xbf+1 1:1\n-1 1:2\n", ""), &train, &test);
    assert_int_equal(train.count, 2); /* a byte-order mark */
    dro_data_close(data);
    data = opened(spec_for("libsvm", "1 2147483646:1\n2 1:1", ""), &train, &test);
    assert_int_equal(train.columns[0], 2147483645);
    dro_data_close(data);
    const char *text = "1 1:1\n";
    refuses(spec_for("libsvm", text, ",base=2"), DRO_ERR_RANGE, "base=2", "from 0 to 1");
    refuses(spec_for("libsvm", text, ",target=x"), DRO_ERR_RANGE, "target=x", "target=real");
    refuses(spec_for("libsvm", text, ",qid=x"), DRO_ERR_RANGE, "qid=x", "qid=ignore");
    refuses(spec_for("libsvm", text, ",classes=a:b"), DRO_ERR_RANGE, "classes=a:b", "-1:1");
    refuses(spec_for("libsvm", text, ",label=1"), DRO_ERR_NAME, "label", "features");
}

/* FILE.t beside FILE; features over both; a label that training does not have. */
static void test_libsvm_test_split(void **state)
{
    (void)state;
    dro_examples train, test;
    const char *text = "1 1:1\n-1 2:1\n";
    write_file("data.t", "-1 9:1\n", 7);
    write_file("other", "+1 4:1\n", 7);
    write_file("wrong", "1 4:1\n\n0 1:1\n", 13);
    dro_data *data = opened(spec_for("libsvm", text, ""), &train, &test);
    assert_int_equal(test.count, 1);
    assert_int_equal(test.labels[0], 0);
    assert_int_equal(info_of(data).features, 9);
    assert_int_equal(info_of(data).bytes_read, 20);
    dro_data_close(data);
    data = opened(spec_for("libsvm", text, ",test=%T/other"), &train, &test);
    assert_int_equal(test.labels[0], 1);
    assert_int_equal(info_of(data).features, 4);
    dro_data_close(data);
    refuses(spec_for("libsvm", text, ",test=%T/wrong"), DRO_ERR_DATA, "wrong: line 3: label '0'",
            "training");
    refuses(spec_for("libsvm", text, ",features=5"), DRO_ERR_DATA, "data.t: line 1: index of '9:1'",
            "at most 5, as features=5 says");
    refuses(spec_for("libsvm", text, ",test=%T/no"), DRO_ERR_FILE, "no: cannot open", "No such");
}

static void test_libsvm_bad(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"", "", "data: has no rows", "label index:value"},
        {"# nothing\n\n", "", "has no rows", "label"},
        {"1\n-1\n", "", "no row has a feature", "index:value"},
        {"1 1:1\n\n# c\nx 1:1\n", "", "line 4: label 'x'", "one number"},
        {"1,2 1:1\n", "", "line 1: label '1,2'", "one number"},
        {"1.5 1:1\n", "", "line 1: label '1.5'", "target=real"},
        {"1e300 1:1\n", "", "line 1: label '1e300'", "whole number"},
        {"nan 1:1\n", ",target=real", "line 1: target 'nan'", "finite number"},
        {"1e39 1:1\n", ",target=real", "line 1: target '1e39'", "finite number"},
        {"1 1:1\r\n1 2:1 2:1\n", "", "line 2: index 2 after 2", "increasing"},
        {"1 3:1 2:1\n", "", "line 1: index 2 after 3", "increasing"},
        {"1 0:1\n", "", "line 1: index of '0:1'", "base=0"},
        {"1 2147483647:1\n", "", "line 1: index of '2147483647:1'", "at most 2147483646"},
        {"1 3000000000:1\n", "", "'3000000000:1'", "at most 2147483646"},
        {"1 4294967297:1\n", "", "'4294967297:1'", "at most 2147483646"},
        {"1 99999999999999999999:1\n", "", "'99999999999999999999:1'", "at most 2147483646"},
        {"1 1:nan\n", "", "line 1: value of '1:nan'", "finite number"},
        {"1 1:-inf\n", "", "value of '1:-inf'", "finite number"},
        {"1 1:1e39\n", "", "value of '1:1e39'", "finite number"},
        {"1 1:0x10\n", "", "value of '1:0x10'", "finite number"},
        {"1 1:\n", "", "value of '1:'", "finite number"},
        {"1 1:1:1\n", "", "value of '1:1:1'", "finite number"},
        {"1 a:1\n", "", "found 'a:1'", "index:value"},
        {"1 -1:1\n", "", "found '-1:1'", "index:value"},
        {"1 5\n", "", "found '5'", "index:value"},
        {"1 :5\n", "", "found ':5'", "index:value"},
        {"1 qid:3 1:1\n", "", "line 1: found 'qid:3'", "qid=ignore"},
        {"1 1:1 \xc3\xa9\n", "", "found byte 0xc3", "index:value"},
        {"1 5:1\n", ",features=4", "index of '5:1'", "features=4"},
        {"2 1:1\n", ",classes=0:1", "line 1: label '2'", "training"},
    };
    refuses_all("libsvm", cases, sizeof cases / sizeof cases[0]);
    spec_for("libsvm", "", "");
    write_file("data", "1 1:1\n1 2:\0001\n", 13);
    refuses(spec_of("libsvm", "/data"), DRO_ERR_DATA, "line 2: value of '2:'", "finite");
    write_file("data", "1 1:1\n\0 2:1\n", 12);
    refuses(spec_of("libsvm", "/data"), DRO_ERR_DATA, "line 2: label byte 0x00", "number");
    refuses(spec_of("libsvm", ""), DRO_ERR_FILE, "is a directory", "expected a file");
}

static void test_libsvm_many_labels(void **state)
{
    (void)state;
    char *text = malloc(1 << 20), *p = text;
    for (int k = 0; k < 65537; k++)
        p += sprintf(p, "%d 1:1\n", k);
    refuses(spec_for("libsvm", text, ""), DRO_ERR_DATA, "line 65537: one more label '65536'",
            "target=real");
    free(text);
}

/* Rows window by window are the same as rows at once, and their sum is what was written. */
static void test_libsvm_windows(void **state)
{
    (void)state;
    enum { ROWS = 200000 };
    char *text = malloc(ROWS * 40), *p = text;
    double sum = 0, total = 0;
    for (int k = 0; k < ROWS; k++) {
        p += sprintf(p, "%d %d:%d %d:0.%d\n", k % 3, 1 + k % 50, k % 1000, 60 + k % 7, k % 90 + 10);
        sum += k % 1000 + (k % 90 + 10) / 100.0;
    }
    dro_examples e, none;
    dro_data *data = opened(spec_for("libsvm", text, ""), &e, &none);
    assert_int_equal(e.count, ROWS);
    dro__classes classes = {0};
    dro__table table = {0};
    dro__libsvm reader = {
        .ctx = ctx, .name = "rows", .classes = &classes, .table = &table, .base = 1};
    for (const char *line = text; line < p; line = strchr(line, '\n') + 1)
        OK(ctx, dro__libsvm_rows(&reader, line, strchr(line, '\n') + 1));
    assert_int_equal(table.n, ROWS);
    assert_int_equal(reader.lines, ROWS);
    assert_int_equal(reader.features, 66);
    assert_memory_equal(table.starts, e.starts, (ROWS + 1) * sizeof *e.starts);
    assert_memory_equal(table.columns, e.columns, 2 * ROWS * sizeof *e.columns);
    assert_memory_equal(table.values, e.values, 2 * ROWS * sizeof *e.values);
    for (int64_t k = 0; k < 2 * ROWS; k++)
        total += (double)e.values[k];
    check_near("sum", total, sum, 1e-3 * sum);
    dro__classes_free(&classes);
    dro__table_free(&table);
    dro_data_close(data);
    free(text);
}

static void test_shared_a9a(void **state)
{
    (void)state;
    dro_examples train, test;
    skip_without_tables();
    dro_data *data = opened("libsvm:" TABLES "a9a", &train, &test);
    counts_are(data, 24720, 7841, 12435, 3846);
    classes_are(data, "-1 +1");
    assert_int_equal(info_of(data).features, 123);
    dro_data_close(data);
}

static const struct CMUnitTest tests[] = {
    TEST(test_libsvm_scikit),     TEST(test_libsvm_classes), TEST(test_libsvm_options),
    TEST(test_libsvm_test_split), TEST(test_libsvm_bad),     TEST(test_libsvm_many_labels),
    TEST(test_libsvm_windows),    TEST(test_shared_a9a),
};

CHECK_MAIN(tests)
