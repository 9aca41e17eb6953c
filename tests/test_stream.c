/* data: streams. Every row once, in a real shuffle that the seed decides, in bounded memory. */
#include "data_text.h"

#include <dro/stream.h>
#include <malloc.h>
#include <sys/wait.h>

static const char *spec_with(const char *options)
{
    static char spec[512];
    snprintf(spec, sizeof spec, "libsvm:%s/rows%s", dir, options);
    return spec;
}

/* A file of rows of 0 .. 9 entries, every 500th of them long; values tell rows apart. */
static void make_rows(int64_t rows, int longest)
{
    FILE *f = fopen(in_dir("rows"), "w");
    assert_non_null(f);
    for (int64_t i = 0; i < rows; i++) {
        int count = i % 500 == 7 ? longest : (int)dro__random_below(1, 2, (uint64_t)i, 10);
        fprintf(f, i % 3 ? "+1" : "-1");
        for (int k = 0; k < count; k++)
            fprintf(f, " %d:%lld.%02d", 3 * k + 1 + (int)(i % 3), (long long)i, k % 100);
        fprintf(f, i % 100 == 99 ? "\n\n# nothing\n" : "\n");
    }
    assert_int_equal(fclose(f), 0);
}

static dro_stream *streamed(const char *spec)
{
    dro_stream *s;
    OK(ctx, dro_stream_open(ctx, spec, &s));
    return s;
}

/* The positions of all rows in the order in which they come (batches of `count`), up to n. */
static int64_t order_of(const char *spec, size_t count, int64_t *order, int64_t n)
{
    dro_stream *s = streamed(spec);
    dro_rows rows;
    dro_status status;
    int64_t got = 0;
    while ((status = dro_stream_next(s, count, &rows)) == DRO_OK) {
        assert_true(got + (int64_t)count <= n);
        memcpy(order + got, rows.positions, count * sizeof *order);
        got += (int64_t)count;
    }
    FAILS(ctx, status, DRO_ERR_END, "the end");
    dro_stream_close(s);
    return got;
}

/* Row i of a batch is the row of the data set that its position names. */
static void same_row(const dro_rows *rows, size_t i, const dro_examples *e)
{
    int64_t p = rows->positions[i], from = rows->starts[i], count = rows->starts[i + 1] - from;
    assert_true(p >= 0 && p < e->count);
    assert_int_equal(count, e->starts[p + 1] - e->starts[p]);
    assert_memory_equal(rows->columns + from, e->columns + e->starts[p], (size_t)count * 4);
    assert_memory_equal(rows->values + from, e->values + e->starts[p], (size_t)count * 4);
    assert_true(rows->y[i] == (e->labels[p] ? 1.0f : -1.0f));
}

/* All rows of a stream, in batches of `count`, are those of the data set, once each. */
static void every_row_once(dro_stream *s, size_t count, const dro_examples *e)
{
    unsigned char *seen = calloc((size_t)e->count, 1);
    dro_rows rows;
    int64_t total = 0;
    dro_status status;
    while ((status = dro_stream_next(s, count, &rows)) == DRO_OK) {
        assert_int_equal(rows.count, count);
        assert_int_equal(rows.starts[0], 0);
        for (size_t i = 0; i < count; i++) {
            same_row(&rows, i, e);
            assert_int_equal(seen[rows.positions[i]]++, 0);
        }
        total += (int64_t)count;
    }
    FAILS(ctx, status, DRO_ERR_END, "the end");
    assert_int_equal(total, e->count / (int64_t)count * (int64_t)count);
    assert_int_equal(dro_stream_seen(s), e->count);
    free(seen);
}

enum { ROWS = 2500 };

static void test_stream_rows(void **state)
{
    (void)state;
    static const char *const shuffles[] = {",shuffle=0", ",shuffle=1",    ",shuffle=2",
                                           ",shuffle=7", ",shuffle=2500", ""};
    static const size_t counts[] = {1, 7, 128, ROWS};
    dro_examples train, test;
    char options[64];
    make_rows(ROWS, 300);
    dro_data *data = opened(spec_with(""), &train, &test);
    assert_int_equal(train.count, ROWS);
    for (size_t k = 0; k < sizeof shuffles / sizeof shuffles[0]; k++)
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            snprintf(options, sizeof options, ",features=1000%s", shuffles[k]);
            dro_stream *s = streamed(spec_with(options));
            every_row_once(s, counts[j], &train);
            dro_stream_close(s);
        }
    dro_data_close(data);
}

static void test_stream_order(void **state)
{
    (void)state;
    static int64_t a[ROWS], b[ROWS];
    size_t size = sizeof a;
    double moved = 0;
    make_rows(ROWS, 20);
    assert_int_equal(order_of(spec_with(",features=99,shuffle=0"), 1, a, ROWS), ROWS);
    for (int64_t i = 0; i < ROWS; i++)
        assert_int_equal(a[i], i);
    /* The seed decides, the batch size does not. */
    assert_int_equal(order_of(spec_with(",features=99,seed=3"), 1, a, ROWS), ROWS);
    assert_int_equal(order_of(spec_with(",features=99,seed=3"), 500, b, ROWS), ROWS);
    assert_memory_equal(a, b, size);
    order_of(spec_with(",features=99,seed=4"), 500, b, ROWS);
    assert_memory_not_equal(a, b, size);
    order_of(spec_with(",features=99"), 500, a, ROWS);
    order_of(spec_with(",features=99,seed=1,shuffle=10000"), 500, b, ROWS);
    assert_memory_equal(a, b, size); /* the defaults */
    /* All in the buffer: a random permutation moves a row by n / 3 on average. */
    for (int64_t i = 0; i < ROWS; i++)
        moved += fabs((double)(a[i] - i)) / ROWS;
    check_near("moved", moved, ROWS / 3.0, 0.05 * ROWS);
    /* A buffer of 100: no row before its time, and later by 100 or so. */
    order_of(spec_with(",features=99,shuffle=100"), 1, a, ROWS);
    moved = 0;
    for (int64_t i = 0; i < ROWS; i++) {
        assert_true(a[i] < i + 100);
        moved += fabs((double)(a[i] - i)) / ROWS;
    }
    assert_true(moved > 40 && moved < 100);
}

/* The first row out of a buffer of 10, and the last out of all, are uniform. */
static void test_stream_uniform(void **state)
{
    (void)state;
    enum { SEEDS = 4000 };
    int64_t first[10] = {0}, last[10] = {0}, order[10];
    char options[64];
    make_rows(10, 3);
    for (int seed = 0; seed < SEEDS; seed++) {
        snprintf(options, sizeof options, ",features=99,shuffle=10,seed=%d", seed);
        assert_int_equal(order_of(spec_with(options), 1, order, 10), 10);
        first[order[0]]++;
        last[order[9]]++;
    }
    for (int k = 0; k < 10; k++) { /* five standard deviations */
        check_near("first", (double)first[k], SEEDS / 10.0, 95);
        check_near("last", (double)last[k], SEEDS / 10.0, 95);
    }
}

/* What malloc has handed out; 0 where that is not known (sanitizers, other C libraries). */
static uint64_t allocated(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* 50 buffers of rows, some of them 200 times as long as the others. */
static void test_stream_memory(void **state)
{
    (void)state;
    enum { BUFFER = 1000, COUNT = 50 };
    dro_examples train, test;
    dro_rows rows;
    uint64_t most = 0, out = 0, widest = 0;
    make_rows(50 * BUFFER, 1000);
    dro_data *data = opened(spec_with(""), &train, &test);
    uint64_t before = allocated();
    dro_stream *s = streamed(spec_with(",features=4000,shuffle=1000"));
    uint64_t total = (uint64_t)train.starts[train.count];
    for (;;) {
        dro_status status = dro_stream_next(s, COUNT, &rows);
        uint64_t now = dro_stream_memory(s), real = allocated();
        if (status == DRO_ERR_END)
            break;
        OK(ctx, status);
        uint64_t entries = (uint64_t)rows.starts[COUNT];
        uint64_t last = entries - (uint64_t)rows.starts[COUNT - 1];
        widest = entries > widest ? entries : widest;
        out += entries;
        /* The bound of stream.h; a line has 12 bytes an entry or less. */
        uint64_t held = (uint64_t)train.starts[dro_stream_seen(s)] - out + last;
        uint64_t bound = BUFFER * 176 + 16 * held + 3 * (30 * COUNT + 12 * widest) + (2 << 20) +
                         3 * 12 * 1000 + (16 << 10);
        if (now > bound || real > before + now + BUFFER * 48)
            fail_msg("%d bytes, %d from malloc, expected at most %d", (int)now,
                     (int)(real - before), (int)bound);
        most = now > most ? now : most;
    }
    assert_int_equal(out, total);
    assert_true(most < (4 << 20));
    assert_true(dro_stream_memory(s) < most); /* the buffer is empty */
    dro_stream_close(s);
    dro_data_close(data);
}

/* A batch stays as it is until the third call after it. */
static void test_stream_ring(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_rows rows[4];
    make_rows(ROWS, 300);
    dro_data *data = opened(spec_with(""), &train, &test);
    dro_stream *s = streamed(spec_with(",features=1000,shuffle=50"));
    for (int k = 0; k < 100; k++) {
        OK(ctx, dro_stream_next(s, (size_t)(1 + k % 20), &rows[k % 3]));
        for (int j = k < 2 ? 0 : k - 2; j <= k; j++)
            for (size_t i = 0; i < rows[j % 3].count; i++)
                same_row(&rows[j % 3], i, &train);
    }
    dro_stream_close(s);
    dro_data_close(data);
}

static void test_stream_end(void **state)
{
    (void)state;
    dro_rows rows;
    const char *text = "1 1:1\n-1 2:1\n1 3:1\n\n-1 4:1\n+1\n";
    dro_stream *s = streamed(spec_for("libsvm", text, ",features=4,shuffle=0"));
    FAILS(ctx, dro_stream_next(s, 0, &rows), DRO_ERR_ARGUMENT, "expected 1 or more");
    OK(ctx, dro_stream_next(s, 3, &rows));
    assert_int_equal(rows.features, 4);
    assert_int_equal(dro_stream_seen(s), 3);
    FAILS(ctx, dro_stream_next(s, 3, &rows), DRO_ERR_END, "after 5 rows; 2 of them");
    assert_int_equal(rows.count, 0);
    FAILS(ctx, dro_stream_next(s, 1, &rows), DRO_ERR_END, "after 5 rows; 0 of them");
    dro_stream_close(s);
    s = streamed(spec_for("libsvm", text, ",features=4"));
    FAILS(ctx, dro_stream_next(s, SIZE_MAX, &rows), DRO_ERR_END, "after 5 rows; 5 of them");
    dro_stream_close(s);
    dro_stream_close(NULL);
}

static void test_stream_labels(void **state)
{
    (void)state;
    static const struct {
        const char *text, *options;
        float first, second;
    } cases[] = {{"0 1:1\n1 1:1\n", "", -1, 1},
                 {"2 1:1\n10 1:1\n", "", -1, 1},
                 {"2 1:1\n+1 1:1\n", ",labels=classes", 1, 0},
                 {"7 1:1\n5 1:1\n", ",classes=7:5:6", 2, 0},
                 {"5 1:1\n5.0 1:1\n", ",classes=5:6", -1, -1},
                 {"-1 1:1\n+1.0 1:1\n", ",labels=sign", -1, 1},
                 {"0 1:1\n7 1:1\n", ",labels=written", 0, 7},
                 {"3 1:1\n2 1:1\n", ",positive=2", -1, 1},
                 {"-0.5 0:1\n1e3 qid:1 1:1\n", ",target=real,base=0,qid=ignore", -0.5f, 1000}};
    dro_rows rows;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char options[64];
        snprintf(options, sizeof options, ",features=9,shuffle=0%s", cases[k].options);
        dro_stream *s = streamed(spec_for("libsvm", cases[k].text, options));
        OK(ctx, dro_stream_next(s, 2, &rows));
        assert_true(rows.y[0] == cases[k].first && rows.y[1] == cases[k].second);
        dro_stream_close(s);
    }
}

/* More than two classes: those of the first rows, by value, in any spelling. */
static void test_stream_classes(void **state)
{
    (void)state;
    static const float y[] = {2, 0, 1, 1, 2, 0, 1};
    static const char *const names[] = {"-1", "0", "1.0"};
    dro_rows rows;
    dro_stream *s =
        streamed(spec_for("libsvm", "1.0 1:1\n-1 1:1\n0 1:1\n+0 1:1\n+1 1:1\n-1.0 1:1\n0e5 1:1\n",
                          ",features=1,shuffle=0,learn=4"));
    for (int k = 0; k < 3; k++)
        assert_string_equal(dro_stream_class(s, k), names[k]);
    assert_null(dro_stream_class(s, 3));
    for (int k = 0; k < 7; k++) {
        OK(ctx, dro_stream_next(s, 1, &rows));
        assert_true(rows.y[0] == y[k] && rows.positions[0] == k);
    }
    dro_stream_close(s);
}

static void test_stream_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part, *other, *options;
    } cases[] = {{"", "data: has no rows", "label index:value", ""},
                 {"# none\n\n", "data: has no rows", "label index:value", ""},
                 {"1 1:1\n\n1 2:1 2:1\n", "data: line 3: index 2 after 2", "increasing", ""},
                 {"1 1:1\n# c\n1 6:1\n", "data: line 3: index of '6:1'", "as features=5 says", ""},
                 {"1 1:1\n1 1:x\n", "data: line 2: value of '1:x'", "finite number", ""},
                 {"1 1:1\nx 1:1\n", "data: line 2: label 'x'", "one number", ""},
                 {"1 1:1\nx 1:1\n", "data: line 2: target 'x'", "finite number", ",labels=sign"},
                 {"1 1:1\n0.5 1:1\n", "data: line 2: label '0.5'", "target=real", ""},
                 {"1 1:1\n2 1:1\n", "data: line 2: label 2", "positive=2 takes it", ",labels=sign"},
                 {"1 1:1\n0 1:1\n2 1:1\n", "line 3: label 2", "classes=A:B:C lists", ",learn=2"},
                 {"1 1:1\n2 1:1\n3 1:1\n", "line 3: label '3'", "learn=N", ",learn=2"},
                 {"1 1:1\n2 1:1\n3 1:1\n", "line 3: label '3'", "classes= lists", ",classes=1:2"},
                 {"0 1:1\n\n-1 1:1\n", "line 3: label -1", "two classes", ",labels=sign"}};
    dro_rows rows;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char options[64];
        snprintf(options, sizeof options, ",features=5%s", cases[k].options);
        dro_stream *s = streamed(spec_for("libsvm", cases[k].text, options));
        FAILS(ctx, dro_stream_next(s, 1, &rows), DRO_ERR_DATA, cases[k].part);
        if (!strstr(dro_context_error(ctx), cases[k].other))
            fail_msg("'%s': expected '%s' in it", dro_context_error(ctx), cases[k].other);
        dro_status again = dro_stream_next(s, 1, &rows);
        assert_int_equal(again, DRO_ERR_DATA);
        dro_stream_close(s);
    }
}

static void stream_refuses(const char *spec, dro_status status, const char *part)
{
    dro_stream *s = (dro_stream *)&s;
    FAILS(ctx, dro_stream_open(ctx, spec, &s), status, part);
    assert_null(s);
}

static void test_stream_spec(void **state)
{
    (void)state;
    make_rows(10, 3);
    stream_refuses(NULL, DRO_ERR_ARGUMENT, "no SPEC");
    stream_refuses("cifar10:/tmp", DRO_ERR_UNSUPPORTED, "expected libsvm:FILE,features=D");
    stream_refuses("libsvmx:-", DRO_ERR_UNSUPPORTED, "expected libsvm:FILE");
    stream_refuses("libsvm", DRO_ERR_ARGUMENT, "expected libsvm:FILE");
    stream_refuses("libsvm:,features=3", DRO_ERR_ARGUMENT, "no path");
    stream_refuses("libsvm:/nowhere,features=3", DRO_ERR_FILE, "/nowhere: cannot open");
    stream_refuses(spec_with(""), DRO_ERR_ARGUMENT, "no features=");
    stream_refuses(spec_with(",features=3,positive=cat"), DRO_ERR_RANGE, "positive=cat");
    stream_refuses(spec_with(",features=3,positive=2,labels=sign"), DRO_ERR_ARGUMENT,
                   "expected one of them");
    stream_refuses(spec_with(",features=0"), DRO_ERR_RANGE, "features=0");
    stream_refuses(spec_with(",features=3,shuffle=-1"), DRO_ERR_RANGE, "shuffle=-1");
    stream_refuses(spec_with(",features=3,test=x"), DRO_ERR_NAME, "no option 'test'");
    stream_refuses(spec_with(",features=3,imratio=0.1"), DRO_ERR_UNSUPPORTED, "imratio= needs");
    stream_refuses(spec_with(",features=3,labels=x"), DRO_ERR_RANGE, "labels=sign or classes or");
    stream_refuses(spec_with(",features=3,classes=2"), DRO_ERR_RANGE, "expected two or more");
    stream_refuses(spec_with(",features=3,classes=a:b"), DRO_ERR_RANGE, "expected whole numbers");
    stream_refuses(spec_with(",features=3,classes=1:2,labels=sign"), DRO_ERR_ARGUMENT, "one of");
    stream_refuses(spec_for("libsvm", "3 1:1\n3 1:1\n", ",features=1"), DRO_ERR_DATA,
                   "the first 2 rows all have the label 3");
    stream_refuses(spec_with(",features=3,target=x"), DRO_ERR_RANGE, "target=real");
    stream_refuses(spec_with(",features=3,target=real,labels=sign"), DRO_ERR_ARGUMENT, "one");
    dro_stream_close(streamed(spec_with(",features=3,shuffle=268435456"))); /* takes nothing yet */
}

/* 2^20 entries are fine, one more is not. */
static void test_stream_long_row(void **state)
{
    (void)state;
    dro_rows rows;
    FILE *f = fopen(in_dir("rows"), "w");
    for (int row = 0; row < 2; row++) {
        fprintf(f, "1");
        for (int k = 1; k <= (1 << 20) + row; k++)
            fprintf(f, " %d:1", k);
        fprintf(f, "\n");
    }
    fclose(f);
    dro_stream *s = streamed(spec_with(",features=2000000,shuffle=0"));
    OK(ctx, dro_stream_next(s, 1, &rows));
    assert_int_equal(rows.starts[1], 1 << 20);
    FAILS(ctx, dro_stream_next(s, 1, &rows), DRO_ERR_DATA, "rows: line 2: a row of 1048577");
    dro_stream_close(s);
}

/* Down a pipe that is smaller than the file. */
static void test_stream_stdin(void **state)
{
    (void)state;
    int ends[2], kept = dup(STDIN_FILENO), status = -1;
    dro_examples train, test;
    make_rows(50000, 300);
    dro_data *data = opened(spec_with(""), &train, &test);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]), close(ends[1]);
        execlp("cat", "cat", in_dir("rows"), (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    dro_stream *s = streamed("libsvm:-,features=1000,shuffle=100");
    every_row_once(s, 8, &train);
    dro_stream_close(s);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dro_data_close(data);
}

static void test_stream_gzip(void **state)
{
    (void)state;
    char command[512];
    dro_examples train, test;
    dro_stream *s;
    make_rows(5000, 300);
    dro_data *data = opened(spec_with(""), &train, &test);
    snprintf(command, sizeof command, "gzip -c %s/rows >%s/rows.gz", dir, dir);
    if (system(command) != 0) {
        print_message("skipped: there is no gzip to pack with\n");
        skip();
    }
    dro_status status = dro_stream_open(ctx, spec_with(".gz,features=1000,shuffle=100"), &s);
    if (status != DRO_ERR_UNSUPPORTED) {
        OK(ctx, status);
        every_row_once(s, 8, &train);
        dro_stream_close(s);
    }
    dro_data_close(data);
}

static const struct CMUnitTest tests[] = {
    TEST(test_stream_rows),   TEST(test_stream_order),   TEST(test_stream_uniform),
    TEST(test_stream_memory), TEST(test_stream_ring),    TEST(test_stream_end),
    TEST(test_stream_labels), TEST(test_stream_classes), TEST(test_stream_bad),
    TEST(test_stream_spec),   TEST(test_stream_stdin),   TEST(test_stream_long_row),
    TEST(test_stream_gzip),
};

CHECK_MAIN(tests)
