/* npy: arrays and archives that NumPy wrote (refs/binary, made by refs/make_binary.py), every value
 * compared with what NumPy makes of it; headers and archives that are wrong. */
#include "data_dir.h"

#include "data.h"

#define NPZ "npy:" REFS

/* Every type, byte order and memory order, against NumPy's own conversion. */
static void test_npy_types(void **state)
{
    (void)state;
    static const char *const forms[] = {"le_C", "le_F", "be_C", "be_F"};
    char line[1024], spec[256];
    int types = 0;
    FILE *f = fopen(REFS "dtypes.txt", "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); types++)
        for (int k = 0; k < 4; k++) {
            dro_examples train, test;
            char *p = line + 2;
            snprintf(spec, sizeof spec, NPZ "dtypes.npz,x=%.2s_%s,labels=y", line, forms[k]);
            dro_data *data = opened(spec, &train, &test);
            assert_int_equal(info_of(data).kind, DRO_DATA_DENSE);
            assert_int_equal(info_of(data).features, 4);
            assert_true(train.count == 3 && test.count == 0);
            for (int j = 0; j < 12; j++)
                if (train.x[j] != strtof(p, &p))
                    fail_msg("%s: value %d is %a", spec, j, (double)train.x[j]);
            dro_data_close(data);
        }
    assert_int_equal(types, 12);
    fclose(f);
}

/* A model may be asked about rows without labels; nothing is trained on them. */
static void test_npy_unlabelled(void **state)
{
    (void)state;
    static const char both[] = NPZ "v1.npy,test=" REFS "v1.npy,test_labels=" REFS "y.npy";
    static const char none[] = "no labels: expected labels=FILE.npy";
    dro_data *data;
    FAILS(ctx, dro_data_open(ctx, NPZ "v1.npy", &data), DRO_ERR_ARGUMENT, none);
    FAILS(ctx, dro__data_open_given(ctx, both, "", &data), DRO_ERR_ARGUMENT, none);
    OK(ctx, dro__data_open_given(ctx, NPZ "v1.npy", "", &data));
    assert_true(data->unlabelled && data->classes == 1);
    assert_string_equal(data->class_names[0], "?");
    for (int i = 0; i < 3; i++)
        assert_int_equal(data->split[DRO_TRAIN].labels[i], 0);
    dro_data_close(data);
    OK(ctx, dro__data_open_given(ctx, NPZ "v1.npy,target=real", "", &data));
    assert_true(data->unlabelled && data->classes == 0);
    assert_true(data->split[DRO_TRAIN].targets[2] == 0);
    dro_data_close(data);
    OK(ctx, dro__data_open_given(ctx, NPZ "v1.npy,labels=" REFS "y.npy", "", &data));
    assert_true(!data->unlabelled && data->classes == 3);
    dro_data_close(data);
}

static void test_npy_versions(void **state)
{
    (void)state;
    char spec[512];
    fill_ramp();
    static const char *const files[] = {"v1.npy", "v2.npy", "v3.npy", "v1.npy.gz"};
    for (int k = 0; k < 4; k++) {
        dro_examples train, test;
        snprintf(spec, sizeof spec,
                 NPZ "%s,labels=" REFS "y.npy,test=" REFS "v1.npy,test_labels=" REFS
                     "y.npy,groups=" REFS "g.npy,test_groups=" REFS "g.npy",
                 files[k]);
        dro_data *data = opened(spec, &train, &test);
        dro_data_info info = info_of(data);
        assert_true(info.classes == 3 && info.groups == 2 && train.count == 3 && test.count == 3);
        for (int j = 0; j < 12; j++)
            assert_true(train.x[j] == (float)ramp[j] && test.x[j] == (float)ramp[j]);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(train.labels[i], "\2\0\1"[i]);
            assert_int_equal(test.labels[i], "\2\0\1"[i]);
            assert_int_equal(train.groups[i], "\1\0\1"[i]);
            assert_int_equal(test.groups[i], "\1\0\1"[i]);
        }
        dro_data_close(data);
    }
}

static void images(const char *key, int channels, int height, int width, bool planes)
{
    dro_examples train, test;
    char spec[256];
    snprintf(spec, sizeof spec, NPZ "arrays.npz,x=%s,labels=y", key);
    dro_data *data = opened(spec, &train, &test);
    dro_data_info info = info_of(data);
    if (info.kind != DRO_DATA_PIXELS || info.channels != channels || info.height != height ||
        info.width != width)
        fail_msg("%s: %d x %d x %d", key, info.channels, info.height, info.width);
    if (channels == 1)
        assert_memory_equal(train.pixels, ramp, 60);
    else if (height == 5)
        same_colours(train.pixels, 3, planes);
    else /* (3, 5, 3): channels last */
        for (int k = 0; k < 45; k++)
            assert_int_equal(train.pixels[k], ramp[k % 15 * 3 + k / 15]);
    dro_data_close(data);
}

static void test_npy_images(void **state)
{
    (void)state;
    fill_ramp();
    images("hwc", 3, 5, 4, false);
    images("hwc_f", 3, 5, 4, false);
    images("chw", 3, 5, 4, true);
    images("chw_f", 3, 5, 4, true);
    images("both", 3, 3, 5, false);
    images("hw1", 1, 5, 4, false);
    images("grey", 1, 5, 4, false);
}

/* Classes are the distinct values in rising order. */
static void labels(const char *key, int classes, const char *numbers, const char *first)
{
    dro_examples train, test;
    char spec[256];
    snprintf(spec, sizeof spec, NPZ "arrays.npz,x=rows,labels=%s", key);
    dro_data *data = opened(spec, &train, &test);
    assert_int_equal(info_of(data).classes, classes);
    assert_string_equal(info_of(data).class_names[0], first);
    for (int i = 0; i < 3; i++)
        if (train.labels[i] != numbers[i])
            fail_msg("%s: label %d is %d", key, i, train.labels[i]);
    dro_data_close(data);
}

static void test_npy_labels(void **state)
{
    (void)state;
    dro_examples train, test;
    labels("y", 3, "\2\0\1", "0");
    labels("y_column", 3, "\2\0\1", "0");
    labels("y_whole", 3, "\2\0\1", "0");
    labels("y_sign", 2, "\1\0\1", "-1");
    labels("y_bool", 2, "\1\0\1", "0");
    labels("y_far", 3, "\2\0\1", "-9223372036854775808");
    dro_data *data =
        opened(NPZ "arrays.npz,x=rows,labels=y_real,target=real,groups=g", &train, &test);
    assert_int_equal(info_of(data).classes, 0);
    assert_null(train.labels);
    assert_true(train.targets[0] == 0.5f && train.targets[1] == -1.25f && train.targets[2] == 3);
    assert_int_equal(info_of(data).groups, 2);
    assert_string_equal(info_of(data).group_names[0], "-3");
    assert_true(train.groups[0] == 1 && train.groups[1] == 1 && train.groups[2] == 0);
    dro_data_close(data);
}

static void test_npz(void **state)
{
    (void)state;
    static const char *const files[] = {NPZ "zip64.npz", NPZ "deflated.npz"};
    fill_ramp();
    for (int k = 0; k < 2; k++) {
        dro_examples train, test;
        dro_data *data = opened(files[k], &train, &test);
        dro_data_info info = info_of(data);
        assert_true(train.count == 4 && test.count == 2 && info.classes == 3);
        assert_string_equal(info.class_names[2], "3");
        same_colours(train.pixels, 4, false);
        same_colours(test.pixels, 2, false);
        for (int i = 0; i < 4; i++)
            assert_int_equal(train.labels[i], "\2\0\2\0"[i]);
        assert_true(test.labels[0] == 1 && test.labels[1] == 2);
        dro_data_close(data);
    }
}

/* Other usual names; labels are columns. */
static void test_npz_images(void **state)
{
    (void)state;
    dro_examples train, test;
    dro_data *data = opened(NPZ "images.npz", &train, &test);
    dro_data_info info = info_of(data);
    assert_true(train.count == 4 && test.count == 2 && info.classes == 2 && info.channels == 1);
    assert_true(train.labels[0] == 1 && test.labels[0] == 0);
    dro_data_close(data);
}

static void test_npy_values_bad(void **state)
{
    (void)state;
    const dro_status bad = DRO_ERR_DATA;
    refuses(NPZ "arrays.npz,x=nan,labels=y", bad, "arrays.npz: nan: row 1, column 2: ", "finite");
    refuses(NPZ "arrays.npz,x=inf,labels=y", bad, "arrays.npz: inf: row 2, column 1: -inf",
            "finite");
    refuses(NPZ "arrays.npz,x=big,labels=y", bad, "row 0, column 1: 1e+300", "single precision");
    refuses(NPZ "arrays.npz,x=neither,labels=y", bad, "5 x 4 x 2", "1 or 3 channels");
    refuses(NPZ "arrays.npz,x=cube,labels=y", bad, "is float64 (3, 2, 2)",
            "uint8 (numpy.uint8(255 * x), where x is from 0 to 1)");
    refuses(NPZ "arrays.npz,x=line,labels=y", bad, "is float64 (3)", "rows (n, d)");
    refuses(NPZ "arrays.npz,x=none,labels=y", bad, "is float64 (0, 4)", "no dimension of 0");
    refuses(NPZ "arrays.npz,x=narrow,labels=y", bad, "is float64 (3, 0)", "no dimension of 0");
    refuses(NPZ "arrays.npz,x=rows,labels=y_part", bad, "y_part: row 1: 0.5", "target=real");
    refuses(NPZ "arrays.npz,x=rows,labels=y_huge", bad, "y_huge: row 2: ", "below 2^63");
    refuses(NPZ "arrays.npz,x=rows,labels=y_short", bad, "is int64 (2)", "expected (3)");
    refuses(NPZ "arrays.npz,x=rows,labels=rows", bad, "is float64 (3, 4)",
            "expected (3), a number for each example (numpy.argmax(y, 1) gives");
    refuses(NPZ "arrays.npz,x=rows,labels=q", bad, "no array 'q'", "one of");
    refuses(NPZ "arrays.npz,labels=y", bad, "no array x_train, x, X, data or images",
            "x=NAME, one of big both chw");
    refuses(NPZ "arrays.npz,x=rows,labels=q,test=rows", DRO_ERR_ARGUMENT, "test=rows", "both");
    refuses(NPZ "dtypes.npz,x=u1_le_C,labels=y,test=u1_le_C", DRO_ERR_ARGUMENT, "test_labels",
            "both");
    refuses(NPZ "arrays.npz,x=rows,labels=y,test=hwc,test_labels=y", bad, "hwc: test examples",
            "the same");
    refuses(NPZ "arrays.npz,x=rows,labels=y,target=float", DRO_ERR_RANGE, "float", "class or real");
    refuses(NPZ "v1.npy", DRO_ERR_ARGUMENT, "v1.npy: no labels", "labels=FILE.npy");
    refuses(NPZ "v1.npy,x=a,labels=b", DRO_ERR_ARGUMENT, "x=a", "no .npz");
    refuses(NPZ "v1.npy,labels=" REFS "none.npy", DRO_ERR_FILE, "none.npy", "cannot open");
    refuses(NPZ "v1.npy,labels=" REFS "y.npy,test_groups=a", DRO_ERR_ARGUMENT, "test_groups",
            "groups");
}

/* A file of this header (its length in version 1.0) and `size` bytes of zeros. */
static void write_npy(const char *header, size_t size)
{
    char bytes[1024] = "\x93NUMPY\1";
    size_t length = strlen(header);
    assert_true(10 + length + size <= sizeof bytes);
    bytes[8] = (char)length;
    memcpy(bytes + 10, header, length);
    write_file("x.npy", bytes, 10 + length + size);
}

#define HEAD(descr, order, shape)                                                                  \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static void test_npy_header_bad(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t size;
        const char *part, *other;
    } cases[] = {
        {HEAD("'<f4'", "False", "(3, 2)"), 23, "ends after 5 values", "expected 6"},
        {HEAD("'<f4'", "False", "(3, 2)"), 25, "continues after its 6 values", "expected the end"},
        {HEAD("'<f4'", "False", "(1152921504606846976, 1)"), 24, "declares more than", "no more"},
        {HEAD("'<f4'", "False", "(4294967296, 4294967296)"), 24, "declares more than", "no more"},
        {HEAD("'|u1'", "True", "(17179869184, 1)"), 24, "ends after 24 values", "17179869184"},
        {HEAD("'<f4'", "False", "(99999999999999999999, 1)"), 24, "header, character",
         "below 2^64"},
        {HEAD("'<f4'", "False", "(-3, 2)"), 24, "header, character", "a size"},
        {HEAD("'<f4'", "False", "(03, 2)"), 24, "header, character", "a size"},
        {HEAD("'<f4'", "False", "(3 2)"), 24, "header, character", "a comma"},
        {HEAD("'<f4'", "False", "(6)"), 24, "header, character", "a comma"},
        {HEAD("'<f4'", "False", "(1,1,1,1,1,1,1,1,6)"), 24, "header, character", "8 dimensions"},
        {HEAD("'<f4'", "False", "[3, 2]"), 24, "header, character", "in brackets"},
        {HEAD("'<f4'", "false", "(3, 2)"), 24, "header, character", "True or False"},
        {HEAD("'|O'", "False", "(3, 2)"), 24, "type '|O'", "u1 i1"},
        {HEAD("'<c8'", "False", "(3, 2)"), 48, "type '<c8'", "u1 i1"},
        {HEAD("'|f4'", "False", "(3, 2)"), 24, "type '|f4'", "u1 i1"},
        {HEAD("'f4'", "False", "(3, 2)"), 24, "type 'f4'", "u1 i1"},
        {HEAD("[('a', '<f4')]", "False", "(3,)"), 24, "header, character", "structured"},
        {HEAD("'<f4", "False", "(3, 2)"), 24, "type '<f4, '", "u1 i1"},
        {"{'descr': '<f4", 0, "header, character", "a closing quote"},
        {"{'descr': '<\\x66", 0, "header, character", "without escapes"},
        {"{'descr': '<f4', 'shape': (3, 2)}\n", 24, "header, character", "fortran_order"},
        {"{'descr': '<f4', 'descr': '<f4'}\n", 24, "header, character", "each once"},
        {"{'descr': '<f4', 'size': 3}\n", 24, "header, character", "each once"},
        {HEAD("'<f4'", "False", "(3, 2)") "x", 24, "header, character", "nothing after }"},
        {"{'descr': '<f4'", 0, "header, character", ", or }"},
        {"", 0, "header, character 0", "{"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        write_npy(cases[k].header, cases[k].size);
        char spec[512];
        snprintf(spec, sizeof spec, "npy:%s,labels=" REFS "y.npy", in_dir("x.npy"));
        refuses(spec, DRO_ERR_DATA, cases[k].part, cases[k].other);
        assert_non_null(strstr(dro_context_error(ctx), "x.npy: "));
    }
}

static void test_npy_file_bad(void **state)
{
    (void)state;
    char spec[512];
    snprintf(spec, sizeof spec, "npy:%s,labels=" REFS "y.npy", in_dir("x.npy"));
    write_npy(HEAD("\"<f4\"", "False", "(3,2,)"), 24);
    dro_examples train, test;
    dro_data_close(opened(spec, &train, &test));
    poke_file("x.npy", 6, 4);
    refuses(spec, DRO_ERR_DATA, "x.npy: version 4.0", "expected 1.0");
    poke_file("x.npy", 6, 2);
    refuses(spec, DRO_ERR_DATA, "x.npy: a header of", "expected at most");
    poke_file("x.npy", 0, 'N');
    refuses(spec, DRO_ERR_DATA, "x.npy: does not begin with", "NUMPY");
    write_npy(HEAD("'<f4'", "False", "(3, 2)"), 24);
    cut_file("x.npy", 50);
    refuses(spec, DRO_ERR_DATA, "x.npy: ends too early", "the header");
    cut_file("x.npy", 0);
    refuses(spec, DRO_ERR_DATA, "x.npy: ends too early", "magic number");
    refuses(NPZ "none.npy,labels=y", DRO_ERR_FILE, "none.npy", "cannot open");
}

static void test_npz_bad(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"bad_overlap", "damaged ZIP archive", "as the directory describes it"},
        {"bad_inside", "damaged ZIP archive", "entries that do not overlap"},
        {"bad_twice", "damaged ZIP archive", "every name once"},
        {"bad_size", "damaged ZIP archive", "entries before the directory"},
    };
    char spec[256];
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        snprintf(spec, sizeof spec, NPZ "%s.npz", cases[k][0]);
        refuses(spec, DRO_ERR_DATA, cases[k][1], cases[k][2]);
    }
    refuses(NPZ "bad_crc.npz", DRO_ERR_DATA, "bad_crc.npz: y: damaged entry", "CRC-32");
    refuses(NPZ "bad_encrypted.npz", DRO_ERR_UNSUPPORTED, "bad_encrypted.npz", "encrypted");
    dro_data *data;
    if (dro_data_open(ctx, NPZ "bad_bomb.npz", &data) != DRO_ERR_UNSUPPORTED)
        refuses(NPZ "bad_bomb.npz", DRO_ERR_DATA, "x: has 1048716 bytes", "expected 140");
}

/* Every place at which an archive can be cut off is refused; so is a byte after its end. */
static void test_npz_cut(void **state)
{
    (void)state;
    static char bytes[4096];
    char spec[512];
    FILE *f = fopen(REFS "zip64.npz", "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(size > 1000 && size < sizeof bytes);
    snprintf(spec, sizeof spec, "npy:%s", in_dir("x.npz"));
    for (size_t k = 2; k <= size + 1; k++) {
        write_file("x.npz", bytes, k);
        if (k != size)
            refuses(spec, DRO_ERR_DATA, "x.npz: damaged ZIP archive", "end record");
    }
}

/* Records of archives with a wrong number in them, besides those of test_refusals. */
static const struct {
    char file;                /* of refs: deflated.npz, zip64.npz, arrays.npz */
    const char *record;       /* the first of these */
    unsigned at, value, size; /* size bytes of it */
    const char *part, *expected;
} wrong_records[] = {
    {'d', "PK\5\6", 6, 1, 2, "at byte 1149", "an archive on one disk"},
    {'d', "PK\5\6", 8, 0xff00ff, 4, "at byte 1149", "no more entries than the directory can hold"},
    {'d', "PK\5\6", 8, 0x10001, 4, "at byte 980", "the end of the directory"},
    {'d', "PK\1\2", 42, 4, 4, "at byte 4", "an entry as the directory describes it"},
    {'d', "PK\3\4", 61, 0xff, 1, "x_train: damaged entry", "invalid block type"},
    {'d', "PK\3\4", 61, 3, 2, "x_train: damaged entry", "it unpacks to less than its size"},
    {'d', "PK\1\2", 20, 3, 4, "x_train: damaged entry", "the packed bytes end too early"},
    {'a', "PK\1\2", 24, 9, 4, "at byte 6752",
     "an uncompressed size that the compressed bytes can have"},
    {'z', "PK\6\7", 4, 1, 4, "at byte 1548", "an archive on one disk"},
    {'z', "PK\6\7", 16, 2, 4, "at byte 1548", "an archive on one disk"},
    {'z', "PK\6\7", 8, 1540, 4, "at byte 1548", "the 64-bit end record before its locator"},
    {'z', "PK\6\7", 8, 1400, 4, "at byte 1400", "a 64-bit end record"},
    {'z', "PK\6\6", 4, 45, 4, "at byte 1492", "a 64-bit end record"},
    {'z', "PK\6\6", 16, 1, 4, "at byte 1492", "an archive on one disk"},
    {'z', "PK\6\6", 20, 1, 4, "at byte 1492", "an archive on one disk"},
    {'z', "PK\6\6", 24, 5, 4, "at byte 1492", "an archive on one disk"},
    {'z', "PK\1\2", 59, 60, 2, "at byte 1162", "an extra field within its entry"},
    {'z', "PK\1\2", 59, 8, 2, "at byte 1162", "64-bit sizes in the extra field"},
};

static void test_npz_records(void **state)
{
    (void)state;
    static char bytes[10000];
    char spec[512], path[256];
    snprintf(spec, sizeof spec, "npy:%s", in_dir("x.npz"));
    for (size_t k = 0; k < sizeof wrong_records / sizeof wrong_records[0]; k++) {
        char file = wrong_records[k].file, *record = bytes;
        const char *name = file == 'd' ? "deflated" : "arrays";
        snprintf(path, sizeof path, REFS "%s.npz", file == 'z' ? "zip64" : name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t size = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        while (memcmp(record, wrong_records[k].record, 4) != 0)
            assert_true(++record < bytes + size - 4);
        for (unsigned b = 0; b < wrong_records[k].size; b++)
            record[wrong_records[k].at + b] = (char)(wrong_records[k].value >> 8 * b);
        write_file("x.npz", bytes, size);
        dro_data *data;
        if (dro_data_open(ctx, spec, &data) != DRO_ERR_UNSUPPORTED) /* built without zlib */
            refuses(spec, DRO_ERR_DATA, wrong_records[k].part, wrong_records[k].expected);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_npy_types),
    TEST(test_npy_versions),
    TEST(test_npy_images),
    TEST(test_npy_labels),
    TEST(test_npz),
    TEST(test_npy_values_bad),
    TEST(test_npz_images),
    TEST(test_npy_header_bad),
    TEST(test_npy_file_bad),
    TEST(test_npz_bad),
    TEST(test_npz_cut),
    TEST(test_npz_records),
    TEST(test_npy_unlabelled),
};

CHECK_MAIN(tests)
