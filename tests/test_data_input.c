/* data: inputs (plain, gzip, zstd, stdin) with files of refs/make_text.py, and decimal numbers
 * against the C library. */
#include "data_dir.h"

#include "text.h"

#define TEXTS DRO_TEST_DIR "/refs/text/"

/* ---- inputs ---- */

static char *contents(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void equal_bytes(const char *what, const char *a, size_t size, const char *b, size_t other)
{
    if (size != other || memcmp(a, b, size) != 0)
        fail_msg("%s: %zu bytes, expected these %zu", what, size, other);
}

/* All lines, copied together. */
static dro_status all_lines(dro__input *in, char *out, size_t *size)
{
    char *begin, *end;
    *size = 0;
    for (;;) {
        DRO_TRY(dro__input_lines(in, &begin, &end));
        if (begin == end)
            return DRO_OK;
        assert_int_equal(end[-1], '\n');
        memcpy(out + *size, begin, (size_t)(end - begin));
        *size += (size_t)(end - begin);
    }
}

/* The bytes must come out as `expected` in pieces, as lines and at once. */
static void reads_as(const void *bytes, size_t size, const char *expected, size_t length)
{
    static const size_t pieces[] = {1, 7, 4096, 1 << 20};
    char *out = malloc(length + (1 << 20) + 2), *all;
    dro__input *in;
    size_t got, total;
    for (int k = 0; k < 4; k++) {
        OK(ctx, dro__input_memory(ctx, "memory", bytes, size, &in));
        for (total = 0, got = pieces[k]; got == pieces[k]; total += got)
            OK(ctx, dro__input_read(in, out + total, pieces[k], &got));
        equal_bytes("pieces", out, total, expected, length);
        assert_int_equal(dro__input_offset(in), length);
        assert_int_equal(dro__input_fetched(in), size);
        dro__input_close(in);
    }
    OK(ctx, dro__input_memory(ctx, "memory", bytes, size, &in));
    OK(ctx, all_lines(in, out, &total));
    bool ended = length == 0 || expected[length - 1] == '\n';
    equal_bytes("lines", out, total - !ended, expected, length);
    assert_int_equal(dro__input_offset(in), length);
    dro__input_close(in);
    OK(ctx, dro__input_memory(ctx, "memory", bytes, size, &in));
    OK(ctx, dro__input_all(in, length, &all, &total));
    equal_bytes("all", all, total, expected, length);
    assert_int_equal(all[total], 0);
    dro__free(all);
    dro__input_close(in);
    if (length > 0) {
        OK(ctx, dro__input_memory(ctx, "memory", bytes, size, &in));
        FAILS(ctx, dro__input_all(in, length - 1, &all, &total), DRO_ERR_DATA, "larger than");
        dro__input_close(in);
    }
    free(out);
}

static void test_input_plain(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "\n", "a\n", "a\nb", "\n\n", "a\n\nbc\n"};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        reads_as(texts[k], strlen(texts[k]), texts[k], strlen(texts[k]));
}

/* Lines of all lengths, some longer than a window, through memory and through a file. */
static void test_input_windows(void **state)
{
    (void)state;
    size_t size = 9 << 20, total;
    char *text = malloc(size), *out = malloc(size + 1);
    for (size_t k = 0; k < size; k++)
        text[k] = (char)('a' + k % 26);
    for (size_t k = 0, line = 0; k < size; k += line % 7 == 6 ? 3000000 : line * line % 1999 + 1)
        text[k] = '\n', line++;
    text[size - 1] = 'z';
    reads_as(text, size, text, size);
    write_file("long", text, size);
    dro__input *in;
    OK(ctx, dro__input_open(ctx, in_dir("long"), &in));
    OK(ctx, all_lines(in, out, &total));
    equal_bytes("file", out, total - 1, text, size);
    dro__input_close(in);
    free(text), free(out);
}

static void test_input_long_line(void **state)
{
    (void)state;
    size_t size = (64 << 20) + 10;
    char *text = malloc(size), *begin, *end;
    dro__input *in;
    memset(text, 'x', size);
    OK(ctx, dro__input_memory(ctx, "wide", text, size, &in));
    FAILS(ctx, dro__input_lines(in, &begin, &end), DRO_ERR_DATA,
          "wide: the line that begins at byte 0 is longer than 64 MiB");
    dro__input_close(in);
    free(text);
}

static void skip_without(const char *path)
{
    dro__input *in;
    dro_status status = dro__input_open(ctx, path, &in);
    if (status == DRO_ERR_UNSUPPORTED) {
        print_message("%s\n", dro_context_error(ctx));
        skip();
    }
    OK(ctx, status);
    dro__input_close(in);
}

/* Whole, then cut at every byte: an error or, at the end of the first half, a whole file. */
static void packed_file(const char *path, size_t halves)
{
    size_t size, length, got;
    char *bytes = contents(path, &size), *expected = contents(TEXTS "lines.txt", &length), *all;
    dro__input *in;
    int whole = 0;
    reads_as(bytes, size, expected, length);
    for (size_t cut = 4; cut < size; cut++) {
        OK(ctx, dro__input_memory(ctx, "cut", bytes, cut, &in));
        dro_status status = dro__input_all(in, 1 << 20, &all, &got);
        if (status == DRO_OK) {
            equal_bytes("half", all, got, expected, length / 2);
            dro__free(all);
            whole++;
        } else {
            assert_int_equal(status, DRO_ERR_DATA);
            assert_non_null(strstr(dro_context_error(ctx), "cut: damaged"));
        }
        dro__input_close(in);
    }
    assert_int_equal(whole, halves);
    free(bytes), free(expected);
}

static void test_input_gzip(void **state)
{
    (void)state;
    skip_without(TEXTS "lines.gz");
    packed_file(TEXTS "lines.gz", 1);
    size_t size, length, got;
    char *bytes = contents(TEXTS "lines.gz", &size), *more = malloc(size + 600), *all;
    char *expected = contents(TEXTS "lines.txt", &length);
    dro__input *in;
    memcpy(more, bytes, size);
    memset(more + size, 0, 600);
    reads_as(more, size + 600, expected, length);
    more[size + 99] = 'x';
    OK(ctx, dro__input_memory(ctx, "tail", more, size + 600, &in));
    FAILS(ctx, dro__input_all(in, 1 << 20, &all, &got), DRO_ERR_DATA, "another gzip member");
    dro__input_close(in);
    bytes[size - 6] ^= 1; /* the checksum */
    OK(ctx, dro__input_memory(ctx, "sum", bytes, size, &in));
    FAILS(ctx, dro__input_all(in, 1 << 20, &all, &got), DRO_ERR_DATA, "incorrect data check");
    dro__input_close(in);
    free(bytes), free(more), free(expected);
}

static void test_input_zstd(void **state)
{
    (void)state;
    static const unsigned char wide[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x90, 1, 0, 0}; /* 256 MiB */
    size_t got;
    char *all;
    dro__input *in;
    skip_without(TEXTS "lines.zst");
    packed_file(TEXTS "lines.zst", 2); /* with and without the skippable frame */
    OK(ctx, dro__input_memory(ctx, "wide", wide, sizeof wide, &in));
    FAILS(ctx, dro__input_all(in, 1 << 20, &all, &got), DRO_ERR_DATA, "too much memory");
    dro__input_close(in);
}

static void test_input_errors(void **state)
{
    (void)state;
    char name[400] = "/nowhere/", bytes[8];
    dro__input *in = NULL;
    FAILS(ctx, dro__input_open(ctx, "/nowhere/at/all", &in), DRO_ERR_FILE,
          "/nowhere/at/all: cannot open: No such file");
    FAILS(ctx, dro__input_open(ctx, dir, &in), DRO_ERR_FILE, "is a directory: expected a file");
    memset(name + 9, 'n', 380);
    FAILS(ctx, dro__input_open(ctx, name, &in), DRO_ERR_FILE, "nnn: cannot open: ");
    FAILS(ctx, dro__input_open(ctx, "/proc/self/mem", &in), DRO_ERR_FILE, "cannot read: ");
    assert_null(in);
    OK(ctx, dro__input_memory(ctx, "short", "abcde", 5, &in));
    OK(ctx, dro__input_exact(in, bytes, 3, "three"));
    FAILS(ctx, dro__input_exact(in, bytes, 4, "the label of record 17"), DRO_ERR_DATA,
          "short: ends at byte 5: expected the label of record 17 (4 bytes at byte 3)");
    dro__input_close(in);
    dro__input_close(NULL);
}

/* As if the text came down a pipe. */
static int feed_stdin(const char *text)
{
    int ends[2], old = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
    close(ends[1]);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    close(ends[0]);
    return old;
}

static void restore_stdin(int old)
{
    dup2(old, STDIN_FILENO);
    close(old);
}

static void test_input_stdin(void **state)
{
    (void)state;
    dro_examples train, test;
    int old = feed_stdin("1 1:2\n-1 2:3");
    dro_data *data = opened("libsvm:-", &train, &test);
    restore_stdin(old);
    assert_int_equal(train.count, 2);
    assert_int_equal(train.labels[0], 1);
    assert_true(train.values[1] == 3);
    assert_int_equal(info_of(data).bytes_read, 12);
    dro_data_close(data);
    refuses("libsvm:-,test=-", DRO_ERR_ARGUMENT, "stdin", "once");
    old = feed_stdin("1 1:2\n-1 2:x");
    refuses("libsvm:-", DRO_ERR_DATA, "stdin: line 2", "'2:x'");
    restore_stdin(old);
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "", "a"}, {"", "b", "b"}, {"/", "b", "/b"}};
    char *path;
    for (int k = 0; k < 5; k++) {
        OK(ctx, dro__path_join(ctx, cases[k][0], cases[k][1], &path));
        assert_string_equal(path, cases[k][2]);
        dro__free(path);
    }
    assert_true(dro__file_exists(TEXTS "lines.txt"));
    assert_false(dro__file_exists(TEXTS));
    assert_false(dro__file_exists(TEXTS "nothing"));
}

/* ---- numbers ---- */

static void same_number(const char *text)
{
    float single, expected_single = strtof(text, NULL);
    double wide, expected_wide = strtod(text, NULL);
    size_t length = strcspn(text, " \n");
    if (dro__number_float(text, &single) != text + length ||
        memcmp(&single, &expected_single, sizeof single) != 0)
        fail_msg("'%s' gave the float %.9g, expected %.9g", text, (double)single,
                 (double)expected_single);
    if (dro__number_double(text, &wide) != text + length ||
        memcmp(&wide, &expected_wide, sizeof wide) != 0)
        fail_msg("'%s' gave %.17g, expected %.17g", text, wide, expected_wide);
}

static void test_numbers_edges(void **state)
{
    (void)state;
    static const char *const good[] = {"0",
                                       "-0",
                                       "+1",
                                       "1.",
                                       ".5",
                                       "-.5e1",
                                       "00012",
                                       "1e0",
                                       "1E+5",
                                       "1e-5",
                                       "16777217",
                                       "16777219",
                                       "1.00000005960464477539",
                                       "1.00000017881393432617",
                                       "1.000000059604644776",
                                       "9007199254740993",
                                       "9007199254740992",
                                       "123456789012345678901234567890",
                                       "18446744073709551617",
                                       "1e22",
                                       "1e23",
                                       "1e-22",
                                       "1e-23",
                                       "3.4028235e38",
                                       "3.4028236e38",
                                       "3.40282357e38",
                                       "1e39",
                                       "-1e400",
                                       "1.17549435e-38",
                                       "1.17549421e-38",
                                       "1e-45",
                                       "7e-46",
                                       "7.1e-46",
                                       "1e-400",
                                       "0e999999999",
                                       "0.000000000000000000000000000000000000000000001e45",
                                       "1e99999999999999999999",
                                       "8.5899345e9",
                                       "0.1",
                                       "0.3",
                                       "2.2250738585072011e-308",
                                       "179769313486231580793e289"};
    static const char *const bad[] = {"",    "-",   "+",   ".",  "-.",  "e5", ".e1",
                                      "nan", "inf", "NaN", " 1", "--1", "x",  "+-1"};
    float single;
    double wide;
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++)
        same_number(good[k]);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_null(dro__number_float(bad[k], &single));
        assert_null(dro__number_double(bad[k], &wide));
    }
    const char *text = "1e+ 0x10 2e";
    assert_ptr_equal(dro__number_float(text, &single), text + 1);
    assert_ptr_equal(dro__number_float(text + 4, &single), text + 5);
    assert_ptr_equal(dro__number_double(text + 9, &wide), text + 10);
}

static uint64_t next_random(uint64_t *k, uint64_t n)
{
    return dro__random_below(77, 1, (*k)++, n);
}

/* Digits with a point somewhere and an exponent sometimes; and floats half-way to their
 * neighbours. */
static void random_text(uint64_t *k, char *text)
{
    uint64_t digits = 1 + next_random(k, next_random(k, 4) ? 9 : 24),
             point = next_random(k, digits + 1);
    char *p = text;
    if (next_random(k, 3) == 0)
        *p++ = "+-"[next_random(k, 2)];
    for (uint64_t d = 0; d < digits; d++) {
        if (d == point)
            *p++ = '.';
        *p++ = (char)('0' + next_random(k, 10));
    }
    *p = '\0';
    if (next_random(k, 2) == 0)
        sprintf(p, "e%d", (int)next_random(k, next_random(k, 3) ? 20 : 100) - 10);
}

static void test_numbers_random(void **state)
{
    (void)state;
    char text[80];
    uint64_t k = 0;
    for (int i = 0; i < 300000; i++) {
        random_text(&k, text);
        same_number(text);
    }
    for (int i = 0; i < 50000; i++) {
        uint32_t bits = (uint32_t)next_random(&k, 0x7f000000);
        float low, high;
        memcpy(&low, &bits, sizeof low);
        high = nextafterf(low, INFINITY);
        sprintf(text, "%.*g", (int)next_random(&k, 25) + 6, ((double)low + (double)high) / 2);
        same_number(text);
        sprintf(text, "%.9g", (double)low);
        same_number(text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_input_plain),    TEST(test_input_windows), TEST(test_input_long_line),
    TEST(test_input_gzip),     TEST(test_input_zstd),    TEST(test_input_errors),
    TEST(test_input_stdin),    TEST(test_paths),         TEST(test_numbers_edges),
    TEST(test_numbers_random),
};

CHECK_MAIN(tests)
