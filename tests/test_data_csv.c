/* data: CSV, against scikit-learn and Python's csv (refs/make_text.py) and on the real tables of
 * ../shared/data. */
#include "data_text.h"

static void test_csv_cells(void **state)
{
    (void)state;
    dro__csv csv = {.ctx = ctx};
    dro__input *in;
    char line[256], cell[256];
    FILE *f = fopen(TEXTS "quotes.txt", "r");
    assert_non_null(f);
    OK(ctx, dro__input_open(ctx, TEXTS "quotes.csv", &in));
    OK(ctx, dro__csv_parse(&csv, &(dro__csv_source){.input = in, .separator = ','}));
    dro__input_close(in);
    assert_int_equal(csv.rows, 5);
    assert_int_equal(csv.columns, 7);
    assert_int_equal(dro__csv_line(&csv, 4), 7); /* two cells hold a newline */
    const char *p = csv.cells;
    for (int k = 0; k < 35; k++, p = dro__csv_next(p)) {
        char *to = cell;
        for (const char *q = p; *q; q++)
            to += sprintf(to, *q == '\n' ? "\\n" : *q == '\r' ? "\\r" : "%c", *q);
        *to = '\0';
        assert_non_null(fgets(line, sizeof line, f));
        line[strcspn(line, "\n")] = '\0';
        assert_string_equal(cell, line);
    }
    fclose(f);
    dro__csv_free(&csv);
}

static void test_csv_scikit(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data =
        opened("csv:" TEXTS "table.csv,label=y,scale=standard,test=" TEXTS "table-test.csv", &train,
               &test);
    assert_int_equal(info_of(data).kind, DRO_DATA_DENSE);
    same_rows(data, &train, TEXTS "table.txt");
    same_rows(data, &test, TEXTS "table-test.txt");
    dro_data_close(data);
}

static void test_csv_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options;
        int rows, features;
        const char *classes;
    } cases[] = {
        {"x,y\n1,b\n2,a\n", ",label=y", 2, 1, "a b"},
        {"x,y\n1,b\n2,a\n", ",label=2", 2, 1, "a b"},
        {"x,y\n1,b\n2,a\n", ",label=2,header=no", 3, 4, "a b y"},
        {"1,b\n2,a\n", ",label=2", 2, 1, "a b"},
        {"1,b\n2,a\n", ",label=2,header=yes", 1, 1, "a"},
        {"p,b\nq,a\n", ",label=2", 2, 3, "a b"},
        {"\xef\xbb\xbfy;x\r\nb;1\r\n\r\na;2\r\n", ",label=y", 2, 1, "a b"},
        {"y\tx y\nb\t1\na\t\n", ",label=y", 2, 1, "a b"},
        {"a|b c|1\nd|e|2", ",label=1,sep=pipe", 2, 4, "a d"},
        {"10,x\n9,y\n-1,x\n", ",label=1", 3, 3, "-1 9 10"},
        {"10,x\n9,y\nz,x\n", ",label=1", 3, 3, "10 9 z"},
        {"a,1,none\nb,2,3\n", ",label=1,missing=none", 2, 2, "a b"},
        {"\"a,b\",1\n\"say \"\"x\"\"\",2\n", ",label=1", 2, 1, "a,b say \"x\""},
    };
    dro_examples train, test;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_data *data = opened(spec_for("csv", cases[k].text, cases[k].options), &train, &test);
        assert_int_equal(train.count, cases[k].rows);
        assert_int_equal(info_of(data).features, cases[k].features);
        classes_are(data, cases[k].classes);
        dro_data_close(data);
    }
}

/* Whether the first row holds names is decided by the first 200 rows: a text in the last of them
 * counts, one after them does not. Sparse rows are those of more than 4096 features. */
static void test_csv_limits(void **state)
{
    (void)state;
    dro_examples train, test;
    char *text = malloc(1 << 17);
    for (int at = 150; at <= 250; at += 100) {
        char *p = text + sprintf(text, "name,a\n");
        for (int i = 0; i < 300; i++)
            p += i == at ? sprintf(p, "none,b\n") : sprintf(p, "%d,b\n", i);
        dro_data *data = opened(spec_for("csv", text, ",label=2"), &train, &test);
        assert_int_equal(train.count, at < 200 ? 301 : 300);
        dro_data_close(data);
    }
    for (int values = 4095; values <= 4096; values++) { /* and one for what was not seen */
        char *p = text;
        for (int i = 0; i < values; i++)
            p += sprintf(p, "0,id%d\n1,id%d\n", i, i);
        dro_data *data = opened(spec_for("csv", text, ",label=1"), &train, &test);
        assert_int_equal(info_of(data).kind, values < 4096 ? DRO_DATA_DENSE : DRO_DATA_SPARSE);
        dro_data_close(data);
    }
    free(text);
}

static void row_is(const dro_data *data, const dro_examples *e, int64_t i, const char *expected)
{
    char all[256] = "";
    for (size_t k = 0; k < info_of(data).features; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%.4g", k ? " " : "",
                 (double)e->x[(size_t)i * info_of(data).features + k]);
    assert_string_equal(all, expected);
}

/* Features: number, b c ? (unseen), constant, m (unseen). */
static void test_csv_values(void **state)
{
    (void)state;
    const char *other = "y. ,,b,9,m\nn,7,?,9,n\nn,5,d,10,?\n";
    dro_examples train, test;
    write_file("other", other, strlen(other));
    dro_data *data =
        opened(spec_for("csv", "y,1,c,9,m\nn,5, b,9,m\nn,NA,nan,9,m\n", ",label=1,test=%T/other"),
               &train, &test);
    row_is(data, &train, 0, "-1 0 1 0 0 0 1 0");
    row_is(data, &train, 1, "1 1 0 0 0 0 1 0");
    row_is(data, &train, 2, "0 0 0 1 0 0 1 0");
    row_is(data, &test, 0, "0 1 0 0 0 0 1 0");
    row_is(data, &test, 1, "2 0 0 1 0 0 0 1");
    row_is(data, &test, 2, "1 0 0 0 1 0 0 1"); /* training's last column has nothing missing */
    assert_int_equal(test.labels[0], 1);
    dro_data_close(data);
}

static void test_csv_groups(void **state)
{
    (void)state;
    dro_examples train, test;
    write_file("other", "1,a,m\n", 6);
    write_file("wrong", "1,a,m\n1,a,x\n", 12);
    const char *text = "1,b,w\n2,a,m\n3,a,\n";
    dro_data *data = opened(spec_for("csv", text, ",label=2,group=3,test=%T/other"), &train, &test);
    names_are(info_of(data).group_names, info_of(data).groups, "? m w");
    assert_int_equal(train.groups[0], 2);
    assert_int_equal(train.groups[2], 0);
    assert_int_equal(test.groups[0], 1);
    assert_int_equal(info_of(data).features, 5); /* still a feature: m w ? (unseen) */
    dro_data_close(data);
    data = opened(spec_for("csv", text, ",label=2,group=3,drop=3,test=%T/other"), &train, &test);
    names_are(info_of(data).group_names, info_of(data).groups, "? m w");
    assert_true(train.groups[0] == 2 && test.groups[0] == 1);
    assert_int_equal(info_of(data).features, 1);
    dro_data_close(data);
    refuses(spec_for("csv", text, ",label=2,group=3,test=%T/wrong"), DRO_ERR_DATA,
            "wrong: line 2: column 3: 'x'", "training");
}

/* A test file may repeat the header. */
/* A column of example weights is no feature, and goes with its rows. */
static void test_csv_weights(void **state)
{
    (void)state;
    const char *text = "x,w,y\n1,2,a\n2,0,b\n3,0.5,a\n4,1,b\n";
    dro_examples train, test;
    write_file("later", "y,w,x\na,7,1\nb,8,2\n", 18);
    dro_data *data =
        opened(spec_for("csv", text, ",label=y,weight=w,test=%T/later"), &train, &test);
    assert_int_equal(info_of(data).features, 1);
    const float expected[] = {2, 0, 0.5f, 1};
    assert_memory_equal(train.weights, expected, sizeof expected);
    assert_true(test.weights[0] == 7 && test.weights[1] == 8);
    dro_data_close(data);
    OK(ctx, dro_data_open(ctx, spec_for("csv", text, ",label=y,weight=2,holdout=0.5"), &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &train));
    for (int64_t i = 0; i < train.count; i++)
        assert_true(train.weights[i] == expected[train.records[i]]);
    dro_data_close(data);
    const refusal wrong[] = {
        {"x,w,y\n1,2,a\n2,-1,b\n", ",label=y,weight=w", "line 3", "a finite number of 0 or more"},
        {"x,w,y\n1,2,a\n2,,b\n", ",label=y,weight=w", "line 3", "a finite number of 0 or more"},
    };
    refuses_all("csv", wrong, sizeof wrong / sizeof wrong[0]);
    refuses(spec_for("csv", text, ",label=y,weight=y"), DRO_ERR_ARGUMENT, "weight=y",
            "it is the label");
    refuses(spec_for("csv", text, ",label=y,weight=z"), DRO_ERR_NAME, "weight=z", "x w y");
}

static void test_csv_header_twice(void **state)
{
    (void)state;
    dro_examples train, test;
    write_file("other", "x,y\n3,a\n", 8);
    const char *text = "x,y\n1,b\n2,a\n";
    dro_data *data = opened(spec_for("csv", text, ",label=y,test=%T/other"), &train, &test);
    assert_int_equal(test.count, 1);
    row_is(data, &test, 0, "3");
    dro_data_close(data);
}

/* The columns of a test file are found by the names in its header. */
static void test_csv_header_order(void **state)
{
    (void)state;
    dro_examples train, test;
    const char *text = "x,Color,y\n1,red,b\n3,blue,a\n";
    static const char *const same[] = {"y,x,Color\na,3,red\n", "COLOR,Y,X\nred,a,3\n",
                                       "id,x,color,more,y\n7,3,red,8,a\n", "3,red,a\n"};
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        write_file("other", same[k], strlen(same[k]));
        dro_data *data = opened(spec_for("csv", text, ",label=y,test=%T/other"), &train, &test);
        assert_int_equal(test.count, 1);
        row_is(data, &test, 0, "1 0 1 0"); /* x of (1, 3), blue, red, another */
        assert_int_equal(test.labels[0], 0);
        dro_data_close(data);
    }
    write_file("other", "y,x,colour\na,3,red\n", 19);
    refuses(spec_for("csv", text, ",label=y,test=%T/other"), DRO_ERR_DATA,
            "other: line 1: no column 'Color'", "all columns of the training file, in any order");
    write_file("other", "p,q\na,3\n", 8); /* header=yes: it has one, whatever it says */
    refuses(spec_for("csv", text, ",label=y,header=yes,test=%T/other"), DRO_ERR_DATA,
            "other: line 1: no column 'x'", "all columns");
    refuses(spec_for("csv", text, ",label=y,test=%T/other"), DRO_ERR_DATA,
            "other: line 1: 2 cells: expected 3", "training file");
    write_file("other", "x,X,Color,y\n1,2,red,a\n", 22);
    refuses(spec_for("csv", text, ",label=y,test=%T/other"), DRO_ERR_DATA,
            "other: line 1: the header", "distinct names");
    write_file("other", "y,x,Color\n", 10);
    refuses(spec_for("csv", text, ",label=y,test=%T/other"), DRO_ERR_DATA, "other: has a header",
            "no rows");
    refuses(spec_for("csv", "y,x,y\n1,2,3\n", ",label=y"), DRO_ERR_NAME,
            "2 columns are called 'y', columns 1 and 3", "label=NUMBER (drop=NUMBER");
    refuses(spec_for("csv", "y,y,y\n1,2,3\n", ",label=y"), DRO_ERR_NAME,
            "3 columns are called 'y', columns 1, ..., 3", "label=NUMBER");
}

/* Other spellings of a number that is not there are missing values too, not texts. */
static void test_csv_nan(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data = opened(
        spec_for("csv", "x,y\n1,a\nNaN,b\n-nan,b\n+NAN,b\nna,b\n3,b\n", ",label=y"), &train, &test);
    assert_int_equal(info_of(data).features, 1);
    row_is(data, &train, 0, "-1");
    for (int k = 1; k < 5; k++)
        row_is(data, &train, k, "0");
    dro_data_close(data);
    /* Among numbers more words are; among texts they are categories. */
    data = opened(spec_for("csv", "x,z,y\n1,none,a\nNULL,p,b\n-,p,b\nn/a,p,b\n3,p,b\n", ",label=y"),
                  &train, &test);
    row_is(data, &train, 0, "-1 1 0 0");
    row_is(data, &train, 1, "0 0 1 0");
    row_is(data, &train, 3, "0 0 1 0");
    dro_data_close(data);
    refuses(spec_for("csv", "x,y\n1,a\n-nan,b\n", ",label=y,missing=refuse"), DRO_ERR_DATA,
            "line 3: column 'x': '-nan'", "missing=refuse");
}

/* Memory is bounded whatever comes: a line, and a row of many lines, have a limit. */
static void test_csv_endless(void **state)
{
    (void)state;
    write_file("zeros", "", 0);
    assert_int_equal(truncate(in_dir("zeros"), (off_t)1 << 32), 0); /* holes: takes no disk */
    char spec[300];
    snprintf(spec, sizeof spec, "csv:%s,label=1", in_dir("zeros"));
    refuses(spec, DRO_ERR_DATA, "zeros: the line that begins at byte 0 is longer than 64 MiB",
            "byte 0x00");
    snprintf(spec, sizeof spec, "libsvm:%s", in_dir("zeros"));
    refuses(spec, DRO_ERR_DATA, "longer than 64 MiB", "byte 0x00");
    size_t size = (64 << 20) + 4096;
    char *text = malloc(size);
    memset(text, 'x', size);
    for (size_t k = 0; k < size; k += 1000)
        text[k] = '\n';
    memcpy(text, "a,b\n1,\"", 7);
    write_file("quote", text, size);
    free(text);
    snprintf(spec, sizeof spec, "csv:%s,label=1", in_dir("quote"));
    refuses(spec, DRO_ERR_DATA, "a row of more than 64 MiB", "a quote that never ends?");
    remove(in_dir("quote"));
    remove(in_dir("zeros"));
}

static void test_csv_real(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data =
        opened(spec_for("csv", "p,t\n1,0.1\n2,-3e4\n", ",label=t,target=real"), &train, &test);
    assert_null(train.labels);
    assert_true(train.targets[0] == 0.1f && train.targets[1] == -3e4f);
    assert_int_equal(info_of(data).classes, 0);
    dro_data_close(data);
    /* Not stated: by the numbers. */
    static const char *const reals[] = {
        "p,t\n1,3\n2,-3.5\n3,0.1\n4,0.1\n", /* fractions, most of them different */
        "p;t\n1;3\n2;-3,5\n3;0,1\n4;0,1\n",
        "p,t\n1,1\n1,2\n1,3\n1,4\n1,5\n1,6\n1,7\n1,8\n1,9\n1,10\n1,11\n1,12\n1,13\n1,14\n1,15\n"
        "1,16\n1,17\n1,18\n1,19\n1,20\n1,21\n",
        /* whole numbers, each twice */
        "p,t\n1,1\n1,2\n1,3\n1,4\n1,5\n1,6\n1,7\n1,8\n1,9\n1,10\n1,11\n1,12\n1,13\n1,14\n1,15\n"
        "1,16\n1,17\n1,18\n1,19\n1,20\n1,21.0\n1,1\n1,2\n1,3\n1,4\n1,5\n1,6\n1,7\n1,8\n1,9\n1,10\n"
        "1,11\n1,12\n1,13\n1,14\n1,15\n1,16\n1,17\n1,18\n1,19\n1,20\n1,21.0\n"};
    for (size_t k = 0; k < sizeof reals / sizeof reals[0]; k++) {
        data = opened(spec_for("csv", reals[k], ",label=t"), &train, &test);
        assert_int_equal(info_of(data).classes, 0);
        assert_non_null(strstr(dro_data_remark(data, 0), "a real-valued target"));
        dro_data_close(data);
        OK(ctx, dro_data_open(ctx, spec_for("csv", reals[k], ",label=t,target=class"), &data));
        assert_true(info_of(data).classes > 2);
        dro_data_close(data);
    }
    static const char *const classes[] = {"p,t\n1,1\n2,2\n3,3\n", "p,t\n1,0.5\n2,1.5\n",
                                          "p,t\n1,0.5\n2,1.5\n3,a\n",
                                          "p,t\n1,.5\n2,1\n3,2\n4,.5\n5,1\n6,2\n"};
    for (size_t k = 0; k < sizeof classes / sizeof classes[0]; k++) {
        OK(ctx, dro_data_open(ctx, spec_for("csv", classes[k], ",label=t"), &data));
        assert_true(info_of(data).classes > 1);
        dro_data_close(data);
    }
    /* Many whole numbers, each of which many rows have: classes if they count from 0 or 1, or are
     * far apart. */
    static const int first[] = {0, 1, 2, -9, 100}, apart[] = {1, 1, 1, 1, 3};
    for (int k = 0; k < 5; k++) {
        char text[8000] = "p,t\n";
        for (int i = 0; i < 420; i++)
            sprintf(text + strlen(text), "%d,%d\n", i, first[k] + i % 21 * apart[k]);
        data = opened(spec_for("csv", text, ",label=t"), &train, &test);
        assert_int_equal(info_of(data).classes, k == 2 || k == 3 ? 0 : 21);
        dro_data_close(data);
    }
    refuses(spec_for("csv", "1,2\n3,4\n", ",label="), DRO_ERR_ARGUMENT, "label=: expected a column",
            "its number from 1");
    refuses(spec_for("csv", "1,2\n3,?\n", ",label=2,target=real,missing=refuse"), DRO_ERR_DATA,
            "line 2: column 2: '?'", "finite number");
}

/* Many categories make sparse rows; of too many the column is left out. */
static void test_csv_wide(void **state)
{
    (void)state;
    dro_examples train, test;
    char *text = malloc(1 << 21), *p = text;
    for (int k = 0; k < 10000; k++)
        p += sprintf(p, "%d,id%d,%d\n", k % 2, k / 2, k % 3);
    dro_data *data = opened(spec_for("csv", text, ",label=1"), &train, &test);
    assert_int_equal(info_of(data).kind, DRO_DATA_SPARSE);
    assert_int_equal(info_of(data).features, 5002);
    assert_int_equal(train.starts[10000], 20000);
    assert_int_equal(train.columns[19999], 5001);
    assert_true(train.values[19998] == 1);
    dro_data_close(data);
    for (int k = 5000; k < 65537; k++)
        p += sprintf(p, "%d,id%d,%d\n", k % 2, k, k % 3);
    data = opened(spec_for("csv", text, ",label=1"), &train, &test);
    assert_int_equal(info_of(data).features, 1);
    assert_string_equal(dro_data_remark(data, 0),
                        "column 2: more than 65536 different texts: it is left out");
    dro_data_close(data);
    refuses(spec_for("csv", text, ",label=2"), DRO_ERR_DATA, "column 2", "65536");
    free(text);
}

/* Of more than 50 categories those of one row share the feature of those that training did not
 * have. */
static void test_csv_single(void **state)
{
    (void)state;
    dro_examples train, test;
    for (int single = 40; single <= 49; single += 9) {
        char text[4096] = "w,y\n", *p = text + 4;
        for (int k = 0; k < 4; k++)
            p += sprintf(p, "often%d,a\noften%d,b\n", k / 2, k / 2);
        for (int k = 0; k < single; k++)
            p += sprintf(p, "once%d,%s\n", k, k % 2 ? "a" : "b");
        dro_data *data = opened(spec_for("csv", text, ",label=y"), &train, &test);
        size_t features = info_of(data).features;
        assert_int_equal(features, single == 40 ? 43 : 3);
        assert_true(train.x[9 * features + features - 1] == (single == 40 ? 0 : 1));
        dro_data_close(data);
    }
}

/* Many dates are days, in the order that all of them have; one that is none makes the column
 * categorical, and so do a few dates. */
static void test_csv_dates(void **state)
{
    (void)state;
    dro_examples train, test;
    static const struct {
        const char *text, *rest, *rows[3]; /* rest: of the rows behind, with a year */
    } cases[] = {
        {"1970-01-01,a\n1969-12-31,b\n1970-03-01,a\n", "%d-01-01,a\n", {"0", "-1", "59"}},
        {"1970-01-01T12:00,a\n1970-01-01 06:00:00.25Z,b\n1972-03-01,a\n",
         "%d-01-01,a\n",
         {"0.5", "0.25", "790"}},
        {"01.02.1970,a\n28.02.1970,b\n01.03.1970,a\n", "01.01.%d,a\n", {"31", "58", "59"}},
        {"2/1/1970,a\n2/28/1970,b\n3/1/1970,a\n", "1/1/%d,a\n", {"31", "58", "59"}},
        {"1/2/1970,a\n28/2/1970,b\n1/3/1970,a\n", "1/1/%d,a\n", {"31", "58", "59"}},
        {"1970-01-01,a\n1970-13-01,b\n1970-01-01,a\n", "%d-01-01,a\n", {NULL}},
        {"1970-01-01,a\n5,b\n1970-01-01,a\n", "%d-01-01,a\n", {NULL}},
        {"1970-01-01,a\n1970-01-02,b\n1970-01-02x,a\n", "%d-01-01,a\n", {NULL}},
        {"1970-01-01,a\n1970-01-02,b\n1970-01-03,a\n", "1970-01-01,%d\n", {NULL}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[4096];
        strcpy(text, cases[k].text);
        for (int i = 0; i < 50; i++)
            snprintf(text + strlen(text), 64, cases[k].rest, 1973 + i);
        dro_data *data =
            opened(spec_for("csv", text, ",label=2,header=no,scale=none"), &train, &test);
        const char *remark = dro_data_remark(data, 0);
        assert_int_equal(remark && strstr(remark, ": dates, such as"), cases[k].rows[0] != NULL);
        for (int i = 0; i < 3 && cases[k].rows[0]; i++)
            row_is(data, &train, i, cases[k].rows[i]);
        dro_data_close(data);
    }
}

static void test_csv_bad(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"", ",label=1", "data: is empty", "expected rows"},
        {"\n\r\n  \n", ",label=1", "data: is empty", "expected rows"},
        {"a,b\n", ",label=a", "a header and no rows", "expected rows"},
        {"a\nb\n", ",label=1", "line 1: one cell", "sep="},
        {"a,1\n\nb\n", ",label=1", "line 3: 1 cells", "expected 2, as in line 1"},
        {"a,\"1\n2\"\nb,1,2\n", ",label=1", "line 3: 3 cells", "expected 2"},
        {"a,1\nb,\"2\nc,3\n", ",label=1", "line 2: a quote", "never ends"},
        {"a,\"1\"x\n", ",label=1", "line 1: 'x' after a closing quote", "doubled"},
        {"a,1\n,2\n", ",label=1,missing=refuse", "line 2: column 1: ''", "a label"},
        {"y,x\n?,1\n,2\n", ",label=y", "no row has", "a label"},
        {"y,x\na,1\nb,nan\n", ",label=y,missing=refuse", "line 3: column 'x': 'nan'", "a value"},
        {"a,1\nb,inf\n", ",label=1", "line 2: column 2: an infinite", "finite"},
        {"a,1\nb,1e999\n", ",label=1", "line 2: column 2: an infinite", "finite"},
        {"a,1e200\nb,-1e200\n", ",label=1", "column 2: its numbers are too large", "1e154"},
        {"a,1\nb,2\n", ",label=1,test=%T/short", "short: line 1: 3 cells", "expected 2"},
        {"a,1\nb,2\n", ",label=1,test=%T/text", "text: line 2: column 2: 'x'", "as in training"},
        {"a,1\nb,2\n", ",label=1,test=%T/class", "class: line 1: column 1: 'c.'", "training"},
        {"a,1\nb,2\n", ",label=1,scale=standard,test=%T/large", "large: line 1: column 2: '1e200'",
         "finite"},
    };
    write_file("short", "a,1,2\n", 6);
    write_file("text", "a,1\nb,x\n", 8);
    write_file("class", "c.,1\n", 5);
    write_file("large", "a,1e200\n", 8);
    refuses_all("csv", cases, sizeof cases / sizeof cases[0]);
    const char *text = "y,x\na,1\nb,2\n";
    refuses(spec_for("csv", text, ""), DRO_ERR_ARGUMENT, "which column is the label",
            "label=COLUMN, one of y x");
    refuses(spec_for("csv", text, ",label=z"), DRO_ERR_NAME, "no column label=z", "one of y x");
    refuses(spec_for("csv", text, ",label=9"), DRO_ERR_NAME, "no column label=9", "one of y x");
    refuses(spec_for("csv", text, ",label=0,header=no"), DRO_ERR_NAME, "label=0", "from 1 to 2");
    refuses(spec_for("csv", text, ",label=1,header=x"), DRO_ERR_RANGE, "header=x", "auto");
    refuses(spec_for("csv", text, ",label=1,sep=e"), DRO_ERR_RANGE, "sep=e", "semicolon");
    refuses(spec_for("csv", text, ",label=1,target=e"), DRO_ERR_RANGE, "target=e", "real");
    refuses("csv:-,label=1,test=-", DRO_ERR_ARGUMENT, "stdin", "once");
    write_file("data", "a,1\nb,\0\n", 8);
    refuses(spec_of("csv", "/data,label=1"), DRO_ERR_DATA, "line 2: byte 0x00", "UTF-8");
}

enum { HELD_ROWS = 60 };

/* Numbers, a missing one now and then, categories of which some are rare, a label. */
static void write_held(const char *name, const int64_t *rows, int64_t count)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fprintf(f, "x,c,y\n");
    for (int64_t i = 0; i < count; i++) {
        long long r = (long long)rows[i];
        fprintf(f, r % 7 ? "%lld," : ",", r * r % 101);
        fprintf(f, r % 11 == 3 ? "?," : r % 5 ? "common%lld," : "rare%lld,", r % 5 ? r % 3 : r);
        fprintf(f, "%s\n", r % 2 ? "b" : "a");
    }
    assert_int_equal(fclose(f), 0);
}

static dro_data *thinned(const char *spec, dro_examples *train, dro_examples *held)
{
    dro_data *data;
    OK(ctx, dro_data_open(ctx, spec, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, train));
    OK(ctx, dro_data_examples(data, DRO_HOLDOUT, held));
    return data;
}

/* What is held out or left out shows nowhere: the rows are those that separate files would give. */
static void test_csv_holdout_unseen(void **state)
{
    (void)state;
    static const char *const options[] = {
        ",label=y,holdout=0.3", ",label=y,holdout=0.25,imratio=0.2", ",label=y,holdout=0.9,seed=5"};
    int64_t all[HELD_ROWS];
    for (int64_t i = 0; i < HELD_ROWS; i++)
        all[i] = i;
    for (int k = 0; k < 3; k++) {
        dro_examples train, held, train2, held2;
        char spec[512];
        write_held("all", all, HELD_ROWS);
        snprintf(spec, sizeof spec, "csv:%s/all%s", dir, options[k]);
        dro_data *data = thinned(spec, &train, &held);
        write_held("a", train.records, train.count);
        write_held("b", held.records, held.count);
        snprintf(spec, sizeof spec, "csv:%s/a,test=%s/b,label=y", dir, dir);
        dro_data *apart = opened(spec, &train2, &held2);
        size_t width = info_of(data).features * sizeof(float);
        assert_int_equal(info_of(data).features, info_of(apart).features);
        assert_int_equal(train.count, train2.count);
        assert_int_equal(held.count, held2.count);
        assert_true(train.count > 0 && held.count > 0);
        assert_memory_equal(train.x, train2.x, (size_t)train.count * width);
        assert_memory_equal(held.x, held2.x, (size_t)held.count * width);
        dro_data_close(data);
        dro_data_close(apart);
    }
}

/* Whether a column holds numbers is a matter of the file, not of the rows that training has. */
static void test_csv_holdout_kinds(void **state)
{
    (void)state;
    dro_examples train, held;
    const char *text = "x,y\n1,a\nword,a\n3,b\n4,b\n5,b\n6,b\n";
    for (int seed = 0; seed < 8; seed++) {
        char options[64];
        snprintf(options, sizeof options, ",label=y,holdout=0.5,seed=%d", seed);
        dro_data *data = thinned(spec_for("csv", text, options), &train, &held);
        assert_int_equal(info_of(data).features, 4); /* three categories and the unseen one */
        bool away = held.records[0] == 1;
        assert_true(held.x[3] == 1);
        assert_true(train.x[away ? 0 : 2] == 1);
        dro_data_close(data);
    }
}

static void test_shared_adult(void **state)
{
    (void)state;
    dro_examples train, test;
    skip_without_tables();
    dro_data *data =
        opened("csv:" TABLES "adult-train.csv,test=" TABLES "adult-test.csv,label=15,group=10",
               &train, &test);
    counts_are(data, 24720, 7841, 12435, 3846);
    classes_are(data, "<=50K >50K");
    names_are(info_of(data).group_names, info_of(data).groups, "Female Male");
    assert_int_equal(info_of(data).features, 118); /* two heavy tails */
    dro_data_close(data);
    data = opened("csv:" TABLES "mammography.csv,label=7", &train, &test);
    assert_int_equal(train.count, 11183);
    assert_int_equal(info_of(data).counts[DRO_TRAIN][1], 260);
    dro_data_close(data);
}

/* A column of numbers with one text is categorical, and that is reported; true categories are not,
 * nor is the label. */
static void test_csv_text_among_numbers(void **state)
{
    (void)state;
    char text[1024] = "age,town,y\n";
    static const struct {
        const char *options, *remark;
    } cases[] = {
        {",label=y",
         "column 'age': 29 of 30 values are numbers, but line 31 has 'n.a.': categorical, "
         "with 31 features; missing=n.a. takes this text for a missing number"},
        {",label=y,missing=none",
         "column 'age': 29 of 30 values are numbers, but line 31 has 'n.a.': categorical, "
         "with 31 features; correct the file if it is meant to be numeric"},
        {",label=y,missing=n.a.", NULL},
    };
    dro_examples train, test;
    for (int i = 0; i < 29; i++)
        snprintf(text + strlen(text), 64, "%d,%s,%s\n", i, i % 7 ? "b" : "9", i == 3 ? "a" : "1");
    strcat(text, "n.a.,b,1\n");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_data *data = opened(spec_for("csv", text, cases[k].options), &train, &test);
        if (cases[k].remark)
            assert_string_equal(dro_data_remark(data, 0), cases[k].remark);
        assert_null(dro_data_remark(data, cases[k].remark ? 1 : 0));
        dro_data_close(data);
    }
}

/* A header of two lines: one remark for all columns. */
static void test_csv_header_two_lines(void **state)
{
    (void)state;
    dro_examples train, test;
    char text[1024] = "v,a,town,y\nm/s,kg,text,p\n";
    for (int i = 0; i < 12; i++)
        snprintf(text + strlen(text), 64, "%d,%d,%c,%s\n", i, i % 3, 'a' + i % 2,
                 i % 2 ? "p" : "q");
    dro_data *data = opened(spec_for("csv", text, ",label=y"), &train, &test);
    assert_string_equal(dro_data_remark(data, 0),
                        "line 2 has texts in 2 columns that are numbers in all other rows, such as "
                        "'m/s' in column 'v': they are categorical; if the line belongs to the "
                        "header, remove it from the file");
    assert_null(dro_data_remark(data, 1));
    dro_data_close(data);
    data = opened(spec_for("csv", text, ",label=y,drop=v"), &train, &test); /* one column only */
    assert_non_null(strstr(dro_data_remark(data, 0), "column 'a': 12 of 13 values are numbers"));
    dro_data_close(data);
}

/* A text in nearly every row, and what to do about it; the number that stands for a missing one as
 * a SPEC has it. */
static void test_csv_many_texts(void **state)
{
    (void)state;
    static const struct {
        int rows, values;
        const char *form, *first, *remark;
    } cases[] = {
        {100, 100, "user%d,%d,%s\n", NULL,
         "column 'id': 100 different texts in 100 rows, such as 'user0': categorical, with 1 "
         "feature (the 100 that occur once share one); drop=id leaves the column out"},
        {104, 52, "user%d,%d,%s\n", NULL, NULL},
        {50, 50, "user%d,%d,%s\n", NULL,
         "column 'id': 50 different texts in 50 rows, such as 'user0': categorical, with 51 "
         "features; drop=id leaves the column out"},
        {9, 9, "user%d,%d,%s\n", NULL, NULL},
        {50, 50, "%d kg,%d,%s\n", NULL,
         "column 'id': 50 different texts in 50 rows, such as '0 kg': categorical, with 51 "
         "features; it would be a number without ' kg' behind it"},
        {104, 52, "\"-%d,5\",%d,%s\n", NULL,
         "column 'id': 52 different texts in 104 rows, such as '-0,5': categorical, with 53 "
         "features; decimal=comma reads such numbers"},
        {30, 30, "%d,%d,%s\n", "\"1,2345\",0,p\n",
         "column 'id': 30 of 31 values are numbers, but line 2 has '1,2345': categorical, with 32 "
         "features; missing=1\\,2345 takes this text for a missing number"},
        {30, 30, "%d,%d,%s\n", "\"1,234\",0,p\n",
         "column 'id': '1,234' is read as the number 1234; categorical=id keeps the texts, "
         "decimal=comma reads it as 1.234"},
    };
    dro_examples train, test;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char text[4096] = "id,x,y\n";
        strcat(text, cases[k].first ? cases[k].first : "");
        for (int i = 0; i < cases[k].rows; i++)
            snprintf(text + strlen(text), 64, cases[k].form, i % cases[k].values, i,
                     i % 3 ? "p" : "q");
        dro_data *data = opened(spec_for("csv", text, ",label=y"), &train, &test);
        if (cases[k].remark)
            assert_string_equal(dro_data_remark(data, 0), cases[k].remark);
        assert_null(dro_data_remark(data, cases[k].remark ? 1 : 0));
        dro_data_close(data);
    }
}

/* Cells between runs of spaces, where all lines have as many and no other separator is there; names
 * of a header in single quotes. */
static void test_csv_spaces(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options, *error; /* NULL: three rows of two features, 1.5 the first */
    } cases[] = {
        {"a   b y\n1.5 2  p\n 3  4   q\n\n5 6 p\n", ",label=y,scale=none", NULL},
        {"a b y  \r\n1.5 2 p \r\n   \r\n3 4 q\r\n5 6 p\r\n", ",label=y,scale=none", NULL},
        {"a \"b c\" y\n1.5 2 \"p  q\"\n3 4 q\n5 6 \"p  q\"", ",label=y,scale=none", NULL},
        {"1.5 2 p\n3 4 q\n5 6 p\n", ",label=3,scale=none", NULL},
        {"a\tb y\n1.5  2\t\"p\nq\"\n\t3\t \t4 q\t\r\n5 6\tq\n", ",label=y,scale=none,sep=space",
         NULL},
        {"a\tb\ty\n1.5  2\t\"p\"\n3 4\tq\n", ",label=y",
         "(sep=space takes runs of spaces and tabs"},
        {"a,b y\n1.5,2 p\n3,4 q\n5,6 p\n", ",label=y", "no column label=y"},
        {"a b y\n1.5 2 p\n3 4\n5 6 p\n", ",label=y", "no column label=y"},
        {"a b y\n1.5 2 p\n3 4\n5 6 p\n", ",label=y,sep=space", "line 3: 2 cells: expected 3"},
        {"'a','b','y'\n1.5,2,p\n3,4,q\n5,6,p\n", ",label=y,scale=none", NULL},
        {"'a','b','y'\n1.5,2,p\n3,4,q\n5,6,p\n", ",label='y',scale=none", NULL},
        {"'y',b,y\np,1.5,2\nq,3,4\np,5,6\n", ",label='y',scale=none", NULL},
        {"'y','b','y'\np,1.5,2\nq,3,4\np,5,6\n", ",label=y",
         "2 columns are called 'y', columns 1 and 3"},
    };
    dro_examples train, test;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *spec = spec_for("csv", cases[k].text, cases[k].options);
        dro_data *data = NULL;
        dro_data_info info;
        if (cases[k].error) {
            dro_status status = dro_data_open(ctx, spec, &data);
            assert_true(status != DRO_OK);
            FAILS(ctx, status, status, cases[k].error);
            continue;
        }
        data = opened(spec, &train, &test);
        OK(ctx, dro_data_info_get(data, &info));
        assert_int_equal(train.count, 3);
        assert_int_equal(info.features, 2);
        assert_int_equal(info.classes, 2);
        assert_true(train.x[0] == 1.5f && train.x[1] == 2 && train.x[5] == 6);
        dro_data_close(data);
    }
}

/* Excel names the separator in a first line; JSON is refused; classes that differ only in case. */
static void test_csv_first_line(void **state)
{
    (void)state;
    dro_examples train, test;
    const char *text = "\xef\xbb\xbfsep=;\r\na;b;y\r\n1,5;2;Yes\r\n2;3;yes\r\n";
    dro_data *data = opened(spec_for("csv", text, ",label=y"), &train, &test);
    dro_data_info info = info_of(data);
    assert_true(info.features == 2 && info.classes == 2 && train.count == 2);
    assert_string_equal(dro_data_remark(data, 0),
                        "the classes 'Yes' and 'yes' differ only in upper and lower case: correct "
                        "the file if they are one class");
    dro_data_close(data);
    const refusal wrong[] = {
        {"sep=;\na;y\n1;x\n2\n", ",label=y", "line 4", "expected 2, as in line 2"},
        {"{\"a\": 1, \"y\": 2}\n", ",label=y", "line 1", "it is JSON"},
        {"[{\"a\": 1}]\n", ",label=y", "line 1", "it is JSON"},
        {"a,y\r1,x\r2,z\r", ",label=y", "line 1", "lines that end with newlines"},
        {"# made by x\na,y\n1,x\n", ",label=y", "line 2", "remove lines before the table"},
    };
    refuses_all("csv", wrong, sizeof wrong / sizeof wrong[0]);
}

/* Latin-1 is refused with its line, or read as what it is; nothing is replaced. */
static void test_csv_bytes(void **state)
{
    (void)state;
    const char *text = "a,b,y\n1,2,th\xe9\n2,1,caf\xe9\n3,\x80 1\x93,caf\xe9\n";
    const refusal wrong[] = {
        {text, ",label=y", "line 2", "byte 0xe9 is not UTF-8: add encoding=latin1"},
        {"a,y\n1,x\n2,y\n\"1\n\xed\xa0\x80\",x\n", ",label=y", "line 5", "is not UTF-8"},
        {"a,y\n1,x\n2,\xc3", ",label=y", "line 3", "byte 0xc3 is not UTF-8"},
    };
    refuses_all("csv", wrong, sizeof wrong / sizeof wrong[0]);
    refuses(spec_for("csv", text, ",label=y,encoding=utf7"), DRO_ERR_RANGE, "encoding=utf7",
            "expected utf8 or latin1");
    dro_examples train, test;
    dro_data *data = opened(spec_for("csv", text, ",label=y,encoding=latin1"), &train, &test);
    dro_data_info info = info_of(data);
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.class_names[0], "caf\xc3\xa9");
    assert_string_equal(info.class_names[1], "th\xc3\xa9");
    assert_non_null(strstr(data->encoding, "%E2%82%AC%201%E2%80%9C")); /* a category */
    dro_data_close(data);
    data = opened(spec_for("csv", "a,y\n1,\xc3\xa9\n2,\xe2\x82\xac\n", ",label=y,encoding=utf8"),
                  &train, &test);
    assert_string_equal(info_of(data).class_names[0], "\xc3\xa9");
    dro_data_close(data);
}

/* A file of many windows, whose letters become longer on the way. */
static void test_csv_latin1_long(void **state)
{
    (void)state;
    enum { ROWS = 300000, ROW = 14 };
    char *text = malloc(4 + ROWS * ROW + 1), *at = text + 4;
    memcpy(text, "a,y\n", 4);
    for (int i = 0; i < ROWS; i++)
        at += sprintf(at, "%06d,\xe9\x80\xfc%c\n", i, 'a' + i % 3);
    dro_examples train, test;
    dro_data *data = opened(spec_for("csv", text, ",label=y,encoding=latin1"), &train, &test);
    assert_int_equal(train.count, ROWS);
    assert_int_equal(info_of(data).classes, 3);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(train.labels[i], i % 3);
    assert_string_equal(info_of(data).class_names[2], "\xc3\xa9\xe2\x82\xac\xc3\xbc"
                                                      "c");
    dro_data_close(data);
    free(text);
}

/* How many first columns of a table with these names are left out, where all columns but the last
 * two count the rows. */
static int indexes(const char *header, const char *options)
{
    dro_examples train, test;
    char text[1024];
    int columns = 1, before = 0;
    for (const char *c = header; *c; c++)
        columns += *c == ',';
    snprintf(text, sizeof text, "%s\n", header);
    for (int i = 0; i < 12; i++) {
        for (int k = 0; k < columns - 2; k++)
            snprintf(text + strlen(text), 40, "%d,", i + k);
        snprintf(text + strlen(text), 40, "%d,%s\n", i * i % 5, i % 2 ? "b" : "a");
    }
    char spec[64];
    snprintf(spec, sizeof spec, ",label=y,scale=none%s", options);
    dro_data *data = opened(spec_for("csv", text, spec), &train, &test);
    for (const char *remark; (remark = dro_data_remark(data, before)); before++)
        assert_non_null(strstr(remark, "counts the rows: it is left out"));
    if (!*options)
        assert_int_equal(info_of(data).features, columns - 1 - before);
    dro_data_close(data);
    return before;
}

static void test_csv_indexes(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",           "Unnamed: 0", "X",   "Id", "PassengerId", "row_id", "Row ID",
        "customerID", "RowNumber",  "obs", "#"};
    static const char *const others[] = {"t", "year", "paid", "PAID", "day", "id2", "grid"};
    char header[64];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        snprintf(header, sizeof header, "%s,x,y", names[k]);
        assert_int_equal(indexes(header, ""), 1);
    }
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        snprintf(header, sizeof header, "%s,x,y", others[k]);
        assert_int_equal(indexes(header, ""), 0);
    }
    assert_int_equal(indexes("Unnamed: 0.1,Unnamed: 0,id,x,y", ""), 3);
    assert_int_equal(indexes("id,day,row,x,y", ""), 1); /* the first columns only */
    assert_int_equal(indexes(",id,x,y", ",categorical=id"), 1);
}

/* The cells of three examples, as they are in the file. */
static void has_cells(const dro_data *data, dro_split split, const int64_t *ids, const char *wanted)
{
    dro_cells *cells;
    char text[256] = "";
    OK(ctx, dro_data_cells(data, split, ids, 3, 12, &cells));
    assert_true(cells->original && cells->count == 3 && cells->columns == 3 && cells->more == 0);
    assert_string_equal(cells->names[0], "column 1"); /* the header has none */
    assert_string_equal(cells->names[2], "y");
    for (size_t k = 0; k < 9; k++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", cells->cells[k],
                 k == 8       ? ""
                 : k % 3 == 2 ? " "
                              : ":");
    assert_string_equal(text, wanted);
    dro_cells_free(cells);
    assert_int_equal(dro_data_cells(data, split, (int64_t[]){99}, 1, 12, &cells), DRO_ERR_RANGE);
    assert_null(cells);
}

/* Rows without a label, and a first column that counts the rows. */
static void test_csv_left_out(void **state)
{
    (void)state;
    dro_examples train, test;
    char text[512] = ",x,y\n", other[512] = "id,x,y\n";
    for (int i = 0; i < 12; i++) {
        static const char *const labels[] = {"b", "a"};
        const char *label = i == 4 || i == 11 ? "" : labels[i % 2];
        snprintf(text + strlen(text), 40, "%d,%d,%s\n", i + 1, i * i, label);
        snprintf(other + strlen(other), 40, "%d,%d,%s\n", i == 7 ? 5 : i, i, label);
    }
    write_file("more", ",x,y\n5,1,\n6,2,a\n", 16);
    dro_data *data =
        opened(spec_for("csv", text, ",label=y,scale=none,test=%T/more"), &train, &test);
    assert_int_equal(info_of(data).features, 1);
    assert_int_equal(train.count, 10);
    assert_true(train.x[4] == 25 && train.x[9] == 100);
    assert_int_equal(test.count, 1);
    assert_string_equal(dro_data_remark(data, 0), "column 1 counts the rows: it is left out");
    assert_string_equal(dro_data_remark(data, 1), "2 of 12 rows have no label: they are left out");
    assert_string_equal(dro_data_remark(data, 2),
                        "1 of 2 test rows have no label: they are left out");
    has_cells(data, DRO_TRAIN, (int64_t[]){9, 0, 4}, "11:100:b 1:0:b 6:25:a");
    has_cells(data, DRO_TEST, (int64_t[]){0, 0, 0}, "6:2:a 6:2:a 6:2:a");
    dro_data_close(data);
    data = opened(spec_for("csv", other, ",label=y"), &train, &test);
    assert_int_equal(info_of(data).features, 2); /* it does not count: a feature */
    dro_data_close(data);
}

static const struct CMUnitTest tests[] = {
    TEST(test_csv_first_line),    TEST(test_csv_bytes),
    TEST(test_csv_latin1_long),   TEST(test_csv_cells),
    TEST(test_csv_scikit),        TEST(test_csv_forms),
    TEST(test_csv_limits),        TEST(test_csv_values),
    TEST(test_csv_groups),        TEST(test_csv_weights),
    TEST(test_csv_real),          TEST(test_csv_left_out),
    TEST(test_csv_indexes),       TEST(test_csv_header_twice),
    TEST(test_csv_header_order),  TEST(test_csv_endless),
    TEST(test_csv_nan),           TEST(test_csv_wide),
    TEST(test_csv_single),        TEST(test_csv_dates),
    TEST(test_csv_bad),           TEST(test_csv_text_among_numbers),
    TEST(test_csv_many_texts),    TEST(test_csv_header_two_lines),
    TEST(test_csv_spaces),        TEST(test_csv_holdout_unseen),
    TEST(test_csv_holdout_kinds), TEST(test_shared_adult),
};

CHECK_MAIN(tests)
