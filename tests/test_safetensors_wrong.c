/* Weights files that must be refused with a line that says why, and writing that fails: an older
 * file stays, and nothing is left beside it. */
#include "tensors.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- headers ---- */

#define A    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define B    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
#define ONE  "{\"t\":{\"dtype\":\"F32\",\"shape\":"
#define U8   "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]"
#define META "{\"__metadata__\":"

static const struct {
    const char *header;
    size_t values; /* bytes after it */
    const char *what;
} wrong[] = {
    {"", 0, "f: its header does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"\"x\"", 0, "does not begin with '{'"},
    {"{", 0, "expected a name in quotes"},
    {"{}x", 0, "byte 2 of the header follows its '}'"},
    {"{} {}", 0, "byte 3 of the header"},
    {"{a:1}", 0, "expected a name in quotes"},
    {"{\"a\" 1}", 0, "expected ':'"},
    {"{\"a\":1}", 0, "tensor 'a': the header is not JSON at its byte 5: expected an object"},
    {"{\"a\":{" U8 "},}", 0, "expected a name in quotes"},
    {"{\"a\":{" U8 "}", 0, "expected ',' or '}'"},
    {"{\"a\":{" U8 "} \"b\"", 0, "expected ',' or '}'"},
    {"{\"a\":{" U8, 0, "tensor 'a': the header is not JSON at its byte 5: "},
    {"{\"a\":{" U8 ",}}", 0, "tensor 'a': "},
    {"{\"\":{" U8 "}}", 0, "an empty name"},
    {"{\"a\\u0000b\":{" U8 "}}", 0, "\\u0000 is not allowed"},
    {"{\"a\xff\":{" U8 "}}", 0, "unable to decode byte 0xff"},
    {"{\"a\\ud800\":{" U8 "}}", 0, "invalid Unicode"},
    {"{\"a\":{" U8 "},\"a\":{" U8 "}}", 0, "tensor 'a': is in the header twice"},
    {"{\"a\":{" U8 "},\"\\u0061\":{" U8 "}}", 0, "tensor 'a': is in the header twice"},
    {"{\"a\":{" U8 ",\"dtype\":\"U8\"}}", 0,
     "tensor 'a': the header is not JSON at its byte 5: dup"},
    {"{\"a\":{" U8 ",\"more\":1}}", 0, "tensor 'a': 4 fields"},
    {"{\"a\":{}}", 0, "tensor 'a': dtype is missing"},
    {"{\"a\":{\"dtype\":1}}", 0, "tensor 'a': dtype is not a string"},
    {"{\"a\":{\"dtype\":\"f32\"}}", 0, "tensor 'a': dtype 'f32': expected F32, F16"},
    {"{\"a\":{\"dtype\":\"F8_E4M3\"}}", 0, "tensor 'a': dtype 'F8_E4M3'"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor 'a': shape is missing"},
    {ONE "{}}}", 0, "tensor 't': shape is not an array"},
    {ONE "[-1],\"data_offsets\":[0,4]}}", 4, "tensor 't': shape[0] is negative"},
    {ONE "[1.0],\"data_offsets\":[0,4]}}", 4, "tensor 't': shape[0] is not a whole number"},
    {ONE "[1,true]}}", 4, "tensor 't': shape[1] is not a whole number"},
    {ONE "[9223372036854775808]}}", 0, "tensor 't': the header is not JSON at its byte 5: too big"},
    {ONE "[1,1,1,1,1,1,1,1,1]}}", 0, "tensor 't': shape has 9 numbers: expected at most 8"},
    {ONE "[4294967296,2147483648],\"data_offsets\":[0,0]}}", 0, "tensor 't': the product"},
    {ONE "[2305843009213693952],\"data_offsets\":[0,0]}}", 0, "tensor 't': the product"},
    {ONE "[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "tensor 't': the product"},
    {ONE "[1]}}", 4, "tensor 't': data_offsets is missing"},
    {ONE "[1],\"data_offsets\":[0]}}", 4, "tensor 't': data_offsets has 1 numbers: expected 2"},
    {ONE "[1],\"data_offsets\":[0,4,8]}}", 4, "tensor 't': data_offsets has 3 numbers"},
    {ONE "[1],\"data_offsets\":[-4,0]}}", 4, "tensor 't': data_offsets[0] is negative"},
    {ONE "[1],\"data_offsets\":[4,0]}}", 4,
     "data_offsets [4, 0]: expected 4 bytes, 1 values of F32"},
    {ONE "[1],\"data_offsets\":[0,3]}}", 3, "tensor 't': data_offsets [0, 3]: expected 4 bytes"},
    {ONE "[],\"data_offsets\":[0,0]}}", 0, "tensor 't': data_offsets [0, 0]: expected 4 bytes"},
    {ONE "[1],\"data_offsets\":[4,8]}}", 8,
     "'t': data_offsets begin at 4: expected 0, where the val"},
    {A "," B "\"data_offsets\":[12,16]}}", 16,
     "'b': data_offsets begin at 12: expected 8, where 'a'"},
    {A "," B "\"data_offsets\":[4,8]}}", 8,
     "'b': data_offsets begin at 4: expected 8, where 'a' ends"},
    {A "," B "\"data_offsets\":[0,4]}}", 8,
     "'a': data_offsets begin at 0: expected 4, where 'b' ends"},
    {A "," B "\"data_offsets\":[8,12]}}", 11,
     "'b': ends at byte 12 of the values, of which there are 11"},
    {A "," B "\"data_offsets\":[8,12]}}", 13, "f: 13 bytes of values: expected 12, where the last"},
    {"{}", 1, "f: 1 bytes of values: expected 0"},
    {META "[]}", 0, "expected an object: '{'"},
    {META "{\"k\":1}}", 0, "expected a string in __metadata__"},
    {META "{\"k\":\"\",\"k\":\"\"}}", 0, "'k' is in __metadata__ twice"},
    {META "{},\"__metadata__\":{}}", 0, "__metadata__ is there twice"},
};

static void refuse(const void *bytes, size_t size, const char *what)
{
    dro__safetensors *file = (dro__safetensors *)&file;
    FAILS(ctx, dro__safetensors_memory(ctx, "f", bytes, size, &file), DRO_ERR_DATA, what);
    assert_null(file);
    if (strncmp(dro_context_error(ctx), "f: ", 3) != 0 || strchr(dro_context_error(ctx), '\n') ||
        !strstr(dro_context_error(ctx), "expected"))
        fail_msg("'%s' is not a line on f that says what was expected", dro_context_error(ctx));
}

static void test_headers(void **state)
{
    (void)state;
    need_json();
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        size_t size;
        unsigned char *bytes = make(wrong[k].header, NULL, wrong[k].values, &size);
        refuse(bytes, size, wrong[k].what);
        free(bytes);
    }
}

/* A good file is refused at any other length, and with any other length of its header. */
static void test_lengths(void **state)
{
    (void)state;
    size_t size;
    dro__safetensors *file;
    need_json();
    unsigned char *bytes = make(A "," B "\"data_offsets\":[8,12]}}", NULL, 12 + 4, &size);
    size -= 4;
    OK(ctx, dro__safetensors_memory(ctx, "f", bytes, size, &file));
    dro__safetensors_close(file);
    for (size_t k = 0; k < size; k++) {
        refuse(bytes, k, "");
        write_file("w", bytes, k);
        FAILS(ctx, dro__safetensors_open(ctx, in_dir("w"), &file), DRO_ERR_DATA, "/w: ");
    }
    refuse(bytes, size + 1, "13 bytes of values: expected 12");
    unsigned char right = bytes[0];
    for (int k = 0; k < 256; k++) {
        bytes[0] = (unsigned char)k;
        if (k != right)
            refuse(bytes, size, "");
    }
    memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0", 8);
    refuse(bytes, size, "a header of 100000001 bytes: expected at most 100000000");
    memset(bytes, 0xff, 8);
    refuse(bytes, size, "a header of 18446744073709551615 bytes: expected at most 100000000");
    memcpy(bytes, "\0\xe1\xf5\x05\0\0\0", 8);
    refuse(bytes, size, "a header of 100000000 bytes, but only");
    refuse(bytes, 0, "has 0 bytes: expected 8");
    free(bytes);
}

/* A long description and deep nesting cost neither memory nor the stack. */
static void test_hostile(void **state)
{
    (void)state;
    enum { LONG = 1 << 22 };
    char *header = malloc(LONG + 1);
    size_t size;
    need_json();
    static const char *const parts[] = {"{\"a\":[", "{\"a\":{", "{\"a\":{\"shape\":[1,",
                                        "{\"__metadata__\":{\"a\":["};
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        memset(header, k == 1 ? ' ' : '[', LONG);
        memcpy(header, parts[k], strlen(parts[k]));
        header[LONG] = '\0';
        unsigned char *bytes = make(header, NULL, 0, &size);
        refuse(bytes, size, k == 1 ? "tensor 'a': a description of more than 4096 bytes" : "");
        free(bytes);
    }
    free(header);
}

/* Whatever a name is made of, an error is one line of UTF-8 within its bounds. */
static void test_one_line(void **state)
{
    (void)state;
    char header[1200], path[400];
    dro__safetensors *file;
    size_t size;
    need_json();
    unsigned char *bytes = make("{\"x\\n\\u001b[2Jy\xc3\xa9\":{}}", NULL, 0, &size);
    refuse(bytes, size, "tensor 'x??[2Jy\xc3\xa9': dtype is missing");
    free(bytes);
    for (int shift = 0; shift < 3; shift++) {
        strcpy(header, "{\"xx");
        header[2 + shift] = '\0';
        for (int k = 0; k < 300; k++)
            strcat(header, "\xe6\xbc\xa2");
        strcat(header, "\":{}}");
        memset(path, 'p', 390);
        strcpy(path + 390, "/w");
        bytes = make(header, NULL, 0, &size);
        FAILS(ctx, dro__safetensors_memory(ctx, path, bytes, size, &file), DRO_ERR_DATA,
              "ppp/w: tensor '");
        assert_non_null(strstr(dro_context_error(ctx), "...': dtype is missing: expected"));
        assert_true(strncmp(dro_context_error(ctx), "...ppp", 6) == 0);
        free(bytes);
    }
}

/* ---- files ---- */

static void test_files(void **state)
{
    (void)state;
    dro__safetensors *file;
    need_json();
    FAILS(ctx, dro__safetensors_open(ctx, in_dir("none"), &file), DRO_ERR_FILE, "No such file");
    assert_null(file);
    FAILS(ctx, dro__safetensors_open(ctx, dir, &file), DRO_ERR_FILE, "/weights.safetensors");
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    FAILS(ctx, dro__safetensors_open(ctx, in_dir("pipe"), &file), DRO_ERR_FILE,
          "not a regular file");
    /* A file that shrinks after it was opened. */
    static const float values[1000];
    float out[1000];
    dro__file_tensor t = {"t", 1, {1000}, values};
    OK(ctx, dro__safetensors_write(ctx, in_dir("w"), &t, 1, NULL));
    OK(ctx, dro__safetensors_open(ctx, in_dir("w"), &file));
    FAILS(ctx, dro__safetensors_read(file, 0, out, 999), DRO_ERR_ARGUMENT,
          "tensor 't': has 1000 values: expected 999");
    FAILS(ctx, dro__safetensors_read(file, 1, out, 1000), DRO_ERR_ARGUMENT,
          "tensor 1: expected one");
    OK(ctx, dro__safetensors_read(file, 0, out, 1000));
    cut_file("w", 2000);
    FAILS(ctx, dro__safetensors_read(file, 0, out, 1000), DRO_ERR_FILE,
          "tensor 't': cannot read: it has become shorter");
    dro__safetensors_close(file);
}

static void test_arguments(void **state)
{
    (void)state;
    static const float one[] = {1};
    static const struct {
        dro__file_tensor tensor;
        const char *what;
    } cases[] = {{{"", 0, {0}, one}, "without a name"},
                 {{NULL, 0, {0}, one}, "without a name"},
                 {{"__metadata__", 0, {0}, one}, "without a name"},
                 {{"a", 0, {0}, one}, "tensor 'a': is there twice"},
                 {{"t", 9, {0}, one}, "tensor 't': 9 dimensions"},
                 {{"t", -1, {0}, one}, "tensor 't': -1 dimensions"},
                 {{"t", 2, {1, -1}, one}, "tensor 't': shape[1] is negative"},
                 {{"t", 2, {INT64_MAX, 2}, one}, "tensor 't': the product"},
                 {{"t", 2, {1, 1}, NULL}, "tensor 't': has no data: expected 1 values"},
                 {{"t\xff", 1, {1}, one}, "tensor 't?': its name is not UTF-8"}};
    need_json();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro__file_tensor tensors[] = {{"a", 0, {0}, one}, cases[k].tensor};
        FAILS(ctx, dro__safetensors_write(ctx, in_dir("w"), tensors, 2, NULL), DRO_ERR_ARGUMENT,
              cases[k].what);
        assert_true(access(in_dir("w"), F_OK) != 0);
    }
    FAILS(ctx,
          dro__safetensors_write(ctx, in_dir("w"), NULL, 0,
                                 (const char *const[]){"k", "1", "k", "2", NULL}),
          DRO_ERR_ARGUMENT, "metadata 'k' is there twice");
    FAILS(
        ctx,
        dro__safetensors_write(ctx, in_dir("w"), NULL, 0, (const char *const[]){"k", "\xff", NULL}),
        DRO_ERR_ARGUMENT, "metadata 'k' is not UTF-8");
}

/* ---- replacement ---- */

enum { SIZE = 50000 };
static float weights[SIZE + 1];

static dro_status write_weights(const char *name, float first)
{
    weights[0] = first;
    dro__file_tensor tensors[] = {{"t", 1, {SIZE}, weights}, {"last", 0, {0}, weights + SIZE}};
    return dro__safetensors_write(ctx, in_dir(name), tensors, 2, NULL);
}

/* The file holds this number, and there are so many entries in the folder. */
static void expect_file(const char *name, float first, int entries)
{
    static float out[SIZE];
    dro__safetensors *file;
    OK(ctx, dro__safetensors_open(ctx, in_dir(name), &file));
    OK(ctx, dro__safetensors_read(file, 0, out, SIZE));
    assert_true(out[0] == first);
    dro__safetensors_close(file);
    DIR *folder = opendir(dir);
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    assert_int_equal(count - 2, entries);
}

static void test_replace(void **state)
{
    (void)state;
    struct rlimit limit, small;
    struct stat about;
    need_json();
    mode_t mask = umask(022);
    OK(ctx, write_weights("w", 1));
    umask(mask);
    assert_int_equal(stat(in_dir("w"), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0644);
    OK(ctx, write_weights("w", 2));
    expect_file("w", 2, 1);

    /* The disk is full in the middle. */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = SIZE;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    dro_status status = write_weights("w", 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    FAILS(ctx, status, DRO_ERR_FILE, "/w: cannot write '");
    expect_file("w", 2, 1);

    weights[SIZE] = NAN;
    FAILS(ctx, write_weights("w", 3), DRO_ERR_NUMBER, "tensor 'last': value 0 is nan: expected");
    weights[SIZE] = 0;
    FAILS(ctx, write_weights("w", INFINITY), DRO_ERR_NUMBER, "tensor 't': value 0 is inf");
    expect_file("w", 2, 1);

    assert_int_equal(symlink("w", in_dir("link")), 0);
    OK(ctx, write_weights("link", 4));
    assert_int_equal(lstat(in_dir("link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    expect_file("w", 4, 2);

    FAILS(ctx, write_weights("no/w", 5), DRO_ERR_FILE, "cannot open the folder");
    FAILS(ctx, write_weights("", 5), DRO_ERR_FILE, "not a regular file");
    FAILS(ctx, write_weights("w/w", 5), DRO_ERR_FILE, "cannot open the folder");
    expect_file("w", 4, 2);
}

/* A folder that may not be written; root has to become somebody else for that. */
static void test_unwritable(void **state)
{
    (void)state;
    need_json();
    bool root = geteuid() == 0;
    OK(ctx, write_weights("w", 1));
    assert_int_equal(chmod(dir, 0555), 0);
    if (root && seteuid(65534) != 0) {
        print_message("skipped: root cannot become another user here\n");
        skip();
    }
    dro_status status = write_weights("w", 2);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    FAILS(ctx, status, DRO_ERR_FILE, "/w: cannot create '");
    expect_file("w", 1, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
    cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
    cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
    cmocka_unit_test_setup_teardown(test_one_line, setup, teardown),
    cmocka_unit_test_setup_teardown(test_files, setup, teardown),
    cmocka_unit_test_setup_teardown(test_arguments, setup, teardown),
    cmocka_unit_test_setup_teardown(test_replace, setup, teardown),
    cmocka_unit_test_setup_teardown(test_unwritable, setup, teardown),
};

CHECK_MAIN(tests)
