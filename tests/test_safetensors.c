/* Weights files: what was written comes back, what Python wrote is read, and nothing that is wrong
 * is taken. python_* are files of Python's safetensors (refs/make_safetensors.py). */
#include "tensors.h"

#include <float.h>
#include <sys/stat.h>
#include <unistd.h>

#define CORPUS DRO_TEST_DIR "/fuzz/corpus/safetensors/"

static dro__safetensors *open_one(const char *name)
{
    dro__safetensors *file;
    OK(ctx, dro__safetensors_open(ctx, name, &file));
    return file;
}

static void same_values(dro__safetensors *file, const char *name, const float *values, size_t count)
{
    int64_t k = dro__safetensors_find(file, name);
    float *out = malloc(count * sizeof *out + 1);
    if (k < 0)
        fail_msg("there is no '%s'", name);
    OK(ctx, dro__safetensors_read(file, (size_t)k, out, count));
    for (size_t j = 0; j < count; j++)
        if (memcmp(&out[j], &values[j], sizeof *out) != 0)
            fail_msg("'%s'[%zu] is %a, expected %a", name, j, (double)out[j], (double)values[j]);
    free(out);
}

/* ---- writing and reading ---- */

enum { MANY = 10007 };

static const dro__file_tensor samples[] = {
    {"scalar", 0, {0}, NULL},
    {"vector", 1, {MANY}, NULL},
    {"empty", 3, {4, 0, 1000000}, NULL},
    {"rank 8", 8, {1, 2, 1, 3, 1, 2, 2, 1}, NULL},
    {"\"quotes\" \\ / \b\f\n\r\t\x01 \x7f", 2, {3, 2}, NULL},
    {"\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80", 1, {1}, NULL},
    {" ", 1, {0}, NULL},
    {"[1]{}:,", 2, {1, 1}, NULL},
};
enum { SAMPLES = sizeof samples / sizeof samples[0] };

static size_t count_of(const dro__file_tensor *t)
{
    size_t count = 1;
    for (int k = 0; k < t->rank; k++)
        count *= (size_t)t->shape[k];
    return count;
}

static void test_round_trip(void **state)
{
    (void)state;
    static float values[MANY];
    static const char *const pairs[] = {"format", "pt", "\"\n\xc3\xbc", "\\\xf0\x9f\x98\x80\t", "",
                                        "",       NULL};
    dro__file_tensor tensors[SAMPLES];
    need_json();
    for (int k = 0; k < MANY; k++)
        values[k] = (float)check_uniform(1, (uint64_t)k, -3, 3);
    memcpy(values, (float[]){-0.0f, FLT_TRUE_MIN, FLT_MAX, -FLT_MIN, 1 / 3.0f}, 20);
    for (int k = 0; k < SAMPLES; k++) {
        tensors[k] = samples[k];
        tensors[k].data = count_of(&samples[k]) ? values + (k == 1 ? 0 : k) : NULL;
    }
    OK(ctx, dro__safetensors_write(ctx, in_dir("w"), tensors, SAMPLES, pairs));
    dro__safetensors *file = open_one(in_dir("w"));
    assert_int_equal(dro__safetensors_count(file), SAMPLES);
    assert_null(dro__safetensors_tensor(file, SAMPLES));
    for (size_t k = 0; k < SAMPLES; k++) {
        const dro__file_tensor *t = &tensors[k];
        const dro__tensor_info *info =
            dro__safetensors_tensor(file, (size_t)dro__safetensors_find(file, t->name));
        assert_string_equal(info->name, t->name);
        assert_string_equal(info->dtype, "F32");
        assert_int_equal(info->rank, t->rank);
        assert_memory_equal(info->shape, t->shape, sizeof t->shape);
        assert_int_equal(info->count, count_of(t));
        same_values(file, t->name, t->data, count_of(t));
    }
    for (int k = 0; pairs[k]; k += 2)
        assert_string_equal(dro__safetensors_metadata(file, pairs[k]), pairs[k + 1]);
    assert_null(dro__safetensors_metadata(file, "forma"));
    assert_int_equal(dro__safetensors_find(file, "vecto"), -1);
    assert_int_equal(dro__safetensors_find(file, "__metadata__"), -1);
    dro__safetensors_close(file);
    dro__safetensors_close(NULL);
}

/* Every byte of a small file. */
static void test_layout(void **state)
{
    (void)state;
    static const char *const pairs[] = {"k", "v", NULL};
    static const float values[] = {1, -2};
    static const char expected[] =
        "{\"__metadata__\":{\"k\":\"v\",\"dro.checksum\":\"34326e10618e4af4\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]}}"
        "\0\0\x80\x3f\0\0\0\xc0\0\0\x80\x3f";
    unsigned char bytes[512];
    dro__file_tensor tensors[] = {{"a", 2, {2, 1}, values}, {"b", 0, {0}, values}};
    need_json();
    OK(ctx, dro__safetensors_write(ctx, in_dir("w"), tensors, 2, pairs));
    FILE *f = fopen(in_dir("w"), "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_int_equal(size, 8 + sizeof expected - 1);
    assert_memory_equal(bytes, ((unsigned char[8]){sizeof expected - 1 - 12}), 8);
    assert_memory_equal(bytes + 8, expected, sizeof expected - 1);
    assert_int_equal((size - 12) % 8, 0);
}

/* ---- on the disk ---- */

static int synced_files, synced_folders;

/* In place of the C library's. */
int fsync(int fd)
{
    struct stat about;
    bool folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
    synced_folders += folder;
    synced_files += !folder;
    return 0;
}

/* The bytes are on the disk before the name is theirs, then the name is. */
static void test_durable(void **state)
{
    (void)state;
    static const float values[] = {1, -2};
    dro__file_tensor tensors[] = {{"a", 1, {2}, values}};
    need_json();
    synced_files = synced_folders = 0;
    OK(ctx, dro__safetensors_write(ctx, in_dir("w"), tensors, 1, NULL));
    assert_int_equal(synced_files, 1);
    assert_int_equal(synced_folders, 1);
}

/* A bit that has turned over is noticed, wherever it is in the values. */
static void test_flipped(void **state)
{
    (void)state;
    static const char *const pairs[] = {"format", "pt", "dro.model", "mlp:4", NULL};
    static const float values[] = {1, -2, 0.25f, 3e-9f, 7, 0};
    dro__file_tensor tensors[] = {{"a", 2, {2, 2}, values}, {"b", 1, {2}, values + 4}};
    unsigned char bytes[1024];
    dro__safetensors *file;
    need_json();
    OK(ctx, dro__safetensors_write(ctx, in_dir("flip"), tensors, 2, pairs));
    FILE *f = fopen(in_dir("flip"), "rb");
    size_t size = fread(bytes, 1, sizeof bytes, f), noticed = 0, read = 0;
    fclose(f);
    OK(ctx, dro__safetensors_memory(ctx, "flip", bytes, size, &file));
    OK(ctx, dro__safetensors_check(file));
    dro__safetensors_close(file);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (dro__safetensors_memory(ctx, "flip", bytes, size, &file) == DRO_OK) {
            bool kept = dro__safetensors_metadata(file, "dro.checksum") != NULL;
            bool wrong = dro__safetensors_check(file) != DRO_OK;
            const char *model = dro__safetensors_metadata(file, "dro.model");
            bool format =
                model && strcmp(model, "mlp:4") == 0 && dro__safetensors_find(file, "a") >= 0;
            noticed += wrong;
            read++;
            if (kept && !wrong && (bit / 8 >= size - sizeof values || !format))
                fail_msg("bit %zu of %zu is not noticed", bit, 8 * size);
            if (wrong)
                assert_non_null(strstr(dro_context_error(ctx), "is damaged: its checksum is "));
            dro__safetensors_close(file);
        }
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(noticed >= 8 * sizeof values && read > noticed);
}

/* Names are found, and nothing takes long, among many. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static char names[COUNT][16];
    static dro__file_tensor tensors[COUNT];
    static float values[COUNT];
    need_json();
    for (int k = 0; k < COUNT; k++) {
        snprintf(names[k], sizeof names[k], "t%d", k * 7919 % COUNT);
        values[k] = (float)k;
        tensors[k] = (dro__file_tensor){names[k], 1, {1}, &values[k]};
    }
    OK(ctx, dro__safetensors_write(ctx, in_dir("w"), tensors, COUNT, NULL));
    dro__safetensors *file = open_one(in_dir("w"));
    for (int k = 0; k < COUNT; k++)
        assert_int_equal(dro__safetensors_find(file, names[k]), k);
    for (int k = 0; k < COUNT; k += 997)
        same_values(file, names[k], &values[k], 1);
    dro__safetensors_close(file);
}

/* ---- what Python wrote ---- */

static void test_python(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dtype;
        float values[6];
    } types[] = {
        {"float32", "F32", {0, 1, 2, 0x1p-149f, 1 - 0x1p-23f, FLT_MAX}},
        {"float16", "F16", {0, 1, 2, 0x1p-24f, 1 - 0x1p-10f, 65504}},
        {"bfloat16", "BF16", {0, 1, 2, 0x1p-133f, 1 - 0x1p-7f, 0x1.fep127f}},
        {"float64", "F64", {0, 1, 2, 0x1p-149f, 1, -1e38f}},
        {"int64", "I64", {0, 1, 2, -0x1p63f, 0x1p63f, 0x1p63f}},
        {"int32", "I32", {0, 1, 2, -0x1p31f, 0x1p31f, 0x1p31f}},
        {"int16", "I16", {0, 1, 2, -32768, 32766, 32767}},
        {"int8", "I8", {0, 1, 2, -128, 126, 127}},
        {"uint8", "U8", {0, 1, 2, 0, 254, 255}},
        {"bool", "BOOL", {0, 1, 1, 1, 0, 1}},
    };
    enum { COUNT = sizeof types / sizeof types[0] };
    need_json();
    dro__safetensors *file = open_one(CORPUS "python_types");
    assert_int_equal(dro__safetensors_count(file), COUNT + 2);
    assert_string_equal(dro__safetensors_metadata(file, "format"), "pt");
    for (int k = 0; k < COUNT; k++) {
        const dro__tensor_info *info =
            dro__safetensors_tensor(file, (size_t)dro__safetensors_find(file, types[k].name));
        assert_string_equal(info->dtype, types[k].dtype);
        assert_true(info->rank == 2 && info->shape[0] == 2 && info->shape[1] == 3);
        same_values(file, types[k].name, types[k].values, 6);
    }
    same_values(file, "scalar.num_batches_tracked", (float[]){12345}, 1);
    same_values(file, "empty", NULL, 0);
    dro__safetensors_close(file);
    file = open_one(CORPUS "python_names");
    same_values(file, "a\"b\\c/d\n", (float[]){1, 1}, 2);
    same_values(file, "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80", (float[]){0}, 1);
    same_values(file, " ", (float[]){0, 1, 2}, 3);
    assert_string_equal(dro__safetensors_metadata(file, "\xc3\xbc"), "\xc3\x9f\"\n");
    dro__safetensors_close(file);
    file = open_one(CORPUS "python_none");
    assert_int_equal(dro__safetensors_count(file), 0);
    assert_null(dro__safetensors_metadata(file, ""));
    dro__safetensors_close(file);
}

/* ---- files in memory ---- */

/* One tensor 't' of this type whose value is these bytes. */
static dro_status read_one(const char *dtype, const void *bytes, size_t size, float *value)
{
    char header[128];
    dro__safetensors *file;
    size_t whole;
    snprintf(header, sizeof header,
             "{\"t\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%zu]}} ", dtype, 2 * size);
    unsigned char two[16] = {0}, *made;
    float out[2];
    memcpy(two + size, bytes, size);
    made = make(header, two, 2 * size, &whole);
    OK(ctx, dro__safetensors_memory(ctx, "memory", made, whole, &file));
    dro_status status = dro__safetensors_read(file, 0, out, 2);
    dro__safetensors_close(file);
    free(made);
    if (status == DRO_OK)
        *value = out[1];
    return status;
}

static void check_value(const char *dtype, uint64_t bits, size_t size, float expected)
{
    unsigned char bytes[8];
    float value = 77;
    for (size_t k = 0; k < 8; k++)
        bytes[k] = (unsigned char)(bits >> 8 * k);
    if (!isfinite(expected)) {
        FAILS(ctx, read_one(dtype, bytes, size, &value), DRO_ERR_DATA,
              "memory: tensor 't': value 1 is");
        return;
    }
    OK(ctx, read_one(dtype, bytes, size, &value));
    if (memcmp(&value, &expected, sizeof value) != 0)
        fail_msg("%s %llx is %a, expected %a", dtype, (unsigned long long)bits, (double)value,
                 (double)expected);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_values(void **state)
{
    (void)state;
    need_json();
    for (unsigned k = 0; k < 65536; k += k < 2048 ? 1 : 37) { /* all subnormal halves, and some */
        int exponent = k >> 10 & 31;
        double value = ldexp((exponent ? 1024 : 0) + (k & 1023), (exponent ? exponent : 1) - 25);
        check_value("F16", k, 2, exponent == 31 ? NAN : (float)(k >> 15 ? -value : value));
    }
    check_value("BF16", 0x8001, 2, -0x1p-133f);
    check_value("BF16", 0x3f81, 2, 1 + 0x1p-7f);
    check_value("BF16", 0x7f80, 2, INFINITY);
    check_value("BF16", 0xffc1, 2, NAN);
    check_value("F32", 0x80000001, 4, -0x1p-149f);
    check_value("F32", 0x80000000, 4, -0.0f);
    check_value("F32", 0xff800000, 4, -INFINITY);
    check_value("F32", 0x7f800001, 4, NAN);
    check_value("F64", bits_of(1 / 3.0), 8, (float)(1 / 3.0));
    check_value("F64", bits_of(0x1.8p-150), 8, 0x1p-149f);
    check_value("F64", bits_of(-0x1p-150), 8, -0.0f);
    check_value("F64", bits_of(0x1.ffffffp127), 8, INFINITY);
    check_value("F64", bits_of(1e300), 8, INFINITY);
    check_value("F64", bits_of((double)NAN), 8, NAN);
    /* Rounded once: by way of double it would be a tie. */
    check_value("I64", (UINT64_C(1) << 60) + (UINT64_C(1) << 36) + 1, 8, 0x1p60f + 0x1p37f);
    check_value("I64", UINT64_MAX, 8, -1);
    check_value("U64", UINT64_MAX, 8, 0x1p64f);
    check_value("U32", UINT32_MAX, 4, 0x1p32f);
    check_value("U16", 65535, 2, 65535);
    check_value("I16", 65535, 2, -1);
    check_value("I8", 0x80, 1, -128);
    check_value("BOOL", 1, 1, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
    cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
    cmocka_unit_test_setup_teardown(test_durable, setup, teardown),
    cmocka_unit_test_setup_teardown(test_flipped, setup, teardown),
    cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    cmocka_unit_test_setup_teardown(test_python, setup, teardown),
    cmocka_unit_test_setup_teardown(test_values, setup, teardown),
};

CHECK_MAIN(tests)
