/* data: streams of CSV rows. They are the rows that data sets make of the same text, in bounded
 * memory. */
#include "data_text.h"

#include <dro/stream.h>
#include <sys/wait.h>

enum { ROWS = 3000, FIRST = 100 };

static void write_row(FILE *f, int64_t i)
{
    fprintf(f, i % 13 ? "%d.%d," : "NA,", (int)(i * i % 977), (int)(i % 10));
    if (i % 50 == 7)
        fprintf(f, "\"two\nlines, and a \"\"quote\"\" %d\",", (int)(i % 3));
    else
        fprintf(f, i % 40 ? "c%d," : "late%d,", (int)(i % 40 ? i % 4 : i));
    fprintf(f, i % 17 ? " %d" : "?", (int)(i % 31 ? i % 23 : 500 + i)); /* outliers in 3 % */
    fprintf(f, i % 3 ? ",yes\n" : ",no\r\n");
    if (i % 100 == 99)
        fprintf(f, "  \n");
}

/* Rows from..to of the table, with its header. */
static void write_table(const char *name, int64_t from, int64_t to)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fprintf(f, "\xef\xbb\xbf\"a \"\"b\"\"\",c,d,y\n");
    for (int64_t i = from; i < to; i++)
        write_row(f, i);
    assert_int_equal(fclose(f), 0);
}

static dro_stream *streamed(const char *spec)
{
    dro_stream *s;
    dro_status status = dro_stream_open(ctx, spec, &s);
    if (status == DRO_ERR_UNSUPPORTED && strstr(dro_context_error(ctx), "built without")) {
        print_message("skipped: %s\n", dro_context_error(ctx));
        skip();
    }
    if (status != DRO_OK)
        fail_msg("%s: %s", spec, dro_context_error(ctx));
    return s;
}

static const char *spec_with(const char *options)
{
    static char spec[512];
    snprintf(spec, sizeof spec, "csv:%s/%s", dir, options);
    return spec;
}

/* Row i of a batch is row k of the examples. */
static void same_row(const dro_rows *rows, size_t i, const dro_examples *e, int64_t k)
{
    const float *x = e->x + (size_t)k * rows->features;
    int64_t at = rows->starts[i];
    for (size_t j = 0; j < rows->features; j++) {
        bool here = at < rows->starts[i + 1] && (size_t)rows->columns[at] == j;
        float value = here ? rows->values[at] : 0;
        at += here;
        if (memcmp(&value, &x[j], sizeof value) != 0 && (value != 0 || x[j] != 0))
            fail_msg("row %d feature %d: %g, expected %g", (int)k, (int)j, (double)value,
                     (double)x[j]);
    }
    assert_int_equal(at, rows->starts[i + 1]);
    assert_true(rows->y[i] == (e->labels[k] ? 1.0f : -1.0f));
}

/* Every row once, those of training first and then those of the test split. */
static void every_row(dro_stream *s, const dro_examples *train, const dro_examples *test)
{
    static unsigned char seen[ROWS];
    dro_rows rows;
    dro_status status;
    memset(seen, 0, sizeof seen);
    while ((status = dro_stream_next(s, 8, &rows)) == DRO_OK)
        for (size_t i = 0; i < 8; i++) {
            int64_t k = rows.positions[i];
            assert_int_equal(seen[k]++, 0);
            if (k < train->count)
                same_row(&rows, i, train, k);
            else
                same_row(&rows, i, test, k - train->count);
        }
    FAILS(ctx, status, DRO_ERR_END, "the end, after 3000 rows");
    assert_int_equal(dro_stream_seen(s), ROWS);
}

/* With all rows to learn from, a stream and a data set agree. */
static void test_all_learned(void **state)
{
    (void)state;
    static const char *const shuffles[] = {",shuffle=0", ",shuffle=100", ""};
    dro_examples train, test;
    write_table("all", 0, ROWS);
    dro_data *data = opened(spec_with("all,label=y"), &train, &test);
    assert_int_equal(train.count, ROWS);
    for (int k = 0; k < 3; k++) {
        char options[64];
        snprintf(options, sizeof options, "all,label=y%s", shuffles[k]);
        dro_stream *s = streamed(spec_with(options));
        assert_int_equal(dro_stream_features(s), info_of(data).features);
        assert_string_equal(dro_stream_class(s, 0), "no");
        assert_string_equal(dro_stream_class(s, 1), "yes");
        assert_null(dro_stream_class(s, 2));
        every_row(s, &train, &test);
        dro_stream_close(s);
    }
    dro_data_close(data);
}

/* A column that counts the first rows is no feature, if it is named like an index. */
static void test_index(void **state)
{
    static const char *const names[] = {"Id", "day"};
    (void)state;
    for (int named = 0; named < 2; named++) {
        FILE *f = fopen(in_dir("counted"), "w");
        assert_non_null(f);
        fprintf(f, "%s,x,y\n", names[named]);
        for (int i = 0; i < 40; i++)
            fprintf(f, "%d,%d,%s\n", i + 1, i * i % 7, i % 3 ? "yes" : "no");
        assert_int_equal(fclose(f), 0);
        dro_stream *s = streamed(spec_with("counted,label=y,learn=20"));
        assert_int_equal(dro_stream_features(s), 1 + named);
        dro_stream_close(s);
    }
}

/* The first rows are a training file, the others its test file. */
static dro_data *apart(dro_examples *train, dro_examples *test)
{
    write_table("all", 0, ROWS);
    write_table("first", 0, FIRST);
    write_table("rest", FIRST, ROWS);
    char options[256];
    snprintf(options, sizeof options, "first,test=%s/rest,label=y", dir);
    dro_data *data = opened(spec_with(options), train, test);
    assert_int_equal(train->count, FIRST);
    assert_int_equal(test->count, ROWS - FIRST);
    return data;
}

static void test_first_learned(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data = apart(&train, &test);
    dro_stream *s = streamed(spec_with("all,label=y,learn=100,shuffle=0"));
    every_row(s, &train, &test);
    dro_stream_close(s);
    s = streamed(spec_with("all,label=4,header=yes,learn=100,shuffle=50,positive=yes"));
    assert_string_equal(dro_stream_class(s, 0), "other");
    assert_string_equal(dro_stream_class(s, 1), "yes");
    every_row(s, &train, &test);
    dro_stream_close(s);
    dro_data_close(data);
}

/* Down a pipe, in pieces that end anywhere; then packed. */
static void test_pipe(void **state)
{
    (void)state;
    static const char *const packers[] = {"cat", "dd bs=7 status=none", "gzip -c", "zstd -qc"};
    dro_examples train, test;
    dro_data *data = apart(&train, &test);
    int kept = dup(STDIN_FILENO);
    for (int k = 0; k < 4; k++) {
        char command[256];
        snprintf(command, sizeof command, "%s <%s/all 2>/dev/null", packers[k], dir);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        assert_true(dup2(fileno(pipe), STDIN_FILENO) >= 0);
        dro_stream *s = NULL;
        dro_status status = dro_stream_open(ctx, "csv:-,label=y,learn=100,shuffle=9", &s);
        bool there = status == DRO_OK || !strstr(dro_context_error(ctx), "is empty");
        if (there && status != DRO_ERR_UNSUPPORTED) {
            OK(ctx, status);
            every_row(s, &train, &test);
        }
        dro_stream_close(s);
        pclose(pipe);
    }
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    dro_data_close(data);
}

static void test_labels(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        float y[3];
    } cases[] = {{",labels=classes", {1, 2, 0}},    {"", {1, 2, 0}},
                 {",classes=10:7:8:-1", {1, 3, 0}}, {",labels=written", {7, 10, -1}},
                 {",target=real", {7, 10, -1}},     {",positive=7", {1, -1, -1}}};
    dro_rows rows;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char options[64];
        snprintf(options, sizeof options, ",label=2,shuffle=0%s", cases[k].options);
        dro_stream *s = streamed(spec_for("csv", "1,7\n2,10\n3,-1\n", options));
        OK(ctx, dro_stream_next(s, 3, &rows));
        assert_int_equal(rows.features, 1);
        assert_memory_equal(rows.y, cases[k].y, sizeof cases[k].y);
        FAILS(ctx, dro_stream_next(s, 1, &rows), DRO_ERR_END, "after 3 rows; 0 of them");
        dro_stream_close(s);
    }
}

/* Labels that a data set takes for real-valued targets are so of a stream too. */
static void test_numbers(void **state)
{
    (void)state;
    dro_rows rows;
    FILE *f = fopen(in_dir("numbers"), "w");
    assert_non_null(f);
    fprintf(f, "x,price,count,digit,word\n");
    for (int i = 0; i < 60; i++)
        fprintf(f, "%d,%d.5,%d,%d,w%d\n", i % 7, i % 11, 10 * i, i % 10, i);
    assert_int_equal(fclose(f), 0);
    for (int k = 0; k < 2; k++) {
        dro_stream *s = streamed(
            spec_with(k ? "numbers,label=count,shuffle=0" : "numbers,label=price,shuffle=0"));
        assert_null(dro_stream_class(s, 0));
        assert_int_equal(dro_stream_next(s, 8, &rows), DRO_OK);
        for (int i = 0; i < 8; i++)
            assert_true(rows.y[i] == (k ? 10.0f * (float)i : (float)i + 0.5f));
        dro_stream_close(s);
    }
    static const struct {
        const char *label;
        int classes;
    } of_classes[] = {{"digit", 10}, {"word", 60}, {"price,target=class", 11}};
    for (int k = 0; k < 3; k++) {
        char options[64];
        int classes = 0;
        snprintf(options, sizeof options, "numbers,label=%s", of_classes[k].label);
        dro_stream *s = streamed(spec_with(options));
        while (dro_stream_class(s, classes))
            classes++;
        assert_int_equal(classes, of_classes[k].classes);
        dro_stream_close(s);
    }
}

/* What goes wrong while opening, then what goes wrong later. */
static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options, *part, *other;
        int good; /* rows before it, -1: does not open */
    } cases[] = {
        {"", ",label=1", "data: is empty", "rows of cells", -1},
        {"x,y\n", ",label=y", "data: has a header and no rows", "rows", -1},
        {"x,y\n1,a\n", ",label=z", "no column label=z", "x y", -1},
        {"x,y\n1,a\n2,b\n", ",label=y,positive=c", "none of the first 2 rows has this label",
         "they have 'a' and 'b'", -1},
        {"x,y\n1,a\n2,a\n", ",label=y", "first 2 rows all have the label 'a'", "classes=", -1},
        {"x,y\n1,a\n2,b\n3,c\n", ",label=y,labels=sign", "3 different labels", "positive=a takes",
         -1},
        {"x,y\n1,a\n2,b\n3,c\n4,d\n", ",label=y,learn=3", "line 5: column 'y': 'd'",
         "classes=A:B:C", 3},
        {"x,y\n1,a\n2,b\n3,c\n", ",label=y,classes=a:b", "line 4: column 'y': 'c'",
         "classes= lists", 2},
        {"x,y\n1,a\n2,?\n3,c\n", ",label=y", "line 3: column 'y': '?'", "a label", -1},
        {"x,y\n1,a\n2,\"b\n3,c\n", ",label=y", "line 3: a quote begins here", "never ends", -1},
        {"x,y\n1,a\n2,b\n3,c\n", ",label=y,learn=2", "line 4: column 'y': 'c'", "learn=N", 2},
        {"x,y\n1,a\n2,b\nz,a\n", ",label=y,learn=2", "line 4: column 'x': 'z'", "learn=N", 2},
        {"x,y\n1,a\n2,b\n\n3,a,4\n", ",label=y,learn=2", "line 5: 3 cells", "as in line 1", 2},
        {"x,y\n1,a\n2,b\n3,\"a\n", ",label=y,learn=2", "line 4: a quote begins", "never ends", 2},
        {"x,y\n1,a\n2,b\n\"3\"x,a\n", ",label=y,learn=2", "line 4: 'x,a' after a", "doubled", 2},
        {"x,y\n1,1\n2,2\n3,inf\n", ",label=y,target=real,learn=2", "line 4", "finite", 2},
    };
    dro_rows rows;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char options[64];
        dro_stream *s = NULL;
        snprintf(options, sizeof options, ",shuffle=0%s", cases[k].options);
        dro_status status = dro_stream_open(ctx, spec_for("csv", cases[k].text, options), &s);
        assert_int_equal(status == DRO_OK, cases[k].good >= 0);
        for (int i = 0; i < cases[k].good; i++)
            OK(ctx, dro_stream_next(s, 1, &rows));
        if (cases[k].good >= 0)
            status = dro_stream_next(s, 1, &rows);
        FAILS(ctx, status, k == 2 ? DRO_ERR_NAME : DRO_ERR_DATA, cases[k].part);
        if (!strstr(dro_context_error(ctx), cases[k].other))
            fail_msg("'%s': expected '%s' in it", dro_context_error(ctx), cases[k].other);
        dro_stream_close(s);
    }
}

static void test_spec(void **state)
{
    (void)state;
    static const struct {
        const char *options, *part;
        dro_status status;
    } cases[] = {{"", "label=COLUMN", DRO_ERR_ARGUMENT},
                 {",label=y,learn=1", "learn=1", DRO_ERR_RANGE},
                 {",label=y,holdout=0.1", "holdout= needs the whole", DRO_ERR_UNSUPPORTED},
                 {",label=y,group=x", "no option 'group'", DRO_ERR_NAME},
                 {",label=y,labels=x", "sign or classes or written", DRO_ERR_RANGE},
                 {",label=y,classes=a", "expected two labels or more", DRO_ERR_RANGE},
                 {",label=y,classes=a:b,positive=a", "expected one of them", DRO_ERR_ARGUMENT},
                 {",label=y,target=real,positive=1", "expected one of them", DRO_ERR_ARGUMENT}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_stream *s = (dro_stream *)&s;
        FAILS(ctx, dro_stream_open(ctx, spec_for("csv", "x,y\n1,a\n", cases[k].options), &s),
              cases[k].status, cases[k].part);
        assert_null(s);
    }
}

/* A file of some megabytes passes through a buffer that never grows. */
static void test_memory(void **state)
{
    (void)state;
    dro_rows rows;
    dro_status status;
    uint64_t most = 0, late = 0;
    FILE *f = fopen(in_dir("all"), "w");
    for (int i = 0; i < 200000; i++)
        fprintf(f, "%d,category%d,%d,text\n", i * 7 % 1000, i % 20, i % 2);
    fclose(f);
    dro_stream *s = streamed(spec_with("all,label=3,learn=2000,shuffle=1000"));
    for (int k = 0; (status = dro_stream_next(s, 100, &rows)) == DRO_OK; k++) {
        uint64_t now = dro_stream_memory(s);
        most = now > most ? now : most;
        late = k > 100 && now > late ? now : late;
    }
    FAILS(ctx, status, DRO_ERR_END, "after 200000 rows");
    assert_true(most < (3 << 20));
    assert_true(late + 40000 < most); /* the first rows are forgotten */
    dro_stream_close(s);
}

static const struct CMUnitTest tests[] = {
    TEST(test_all_learned), TEST(test_index),  TEST(test_first_learned),
    TEST(test_pipe),        TEST(test_labels), TEST(test_bad),
    TEST(test_spec),        TEST(test_memory), TEST(test_numbers),
};

CHECK_MAIN(tests)
