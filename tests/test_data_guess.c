/* data: SPECs without a format (src/data/guess.c). */
#include "data_text.h"

#include <sys/stat.h>

static void test_full(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *format;
    } files[] = {
        {"people.csv", "x,y\n1,a\n", "csv"},    {"PEOPLE.TSV", "x\ty\n1\ta\n", "csv"},
        {"table", "x;y\n1;a\n", "csv"},         {"rows", "+1 3:0.5 7:1\n", "libsvm"},
        {"rows.svm", "1 1:1\n", "libsvm"},      {"array", "\x93NUMPY\x01", "npy"},
        {"words", "nothing to see here", NULL}, {"empty", "", NULL},
    };
    char full[DRO__SPEC_MAX], spec[512], expected[600];
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        write_file(files[k].name, files[k].text, strlen(files[k].text));
        snprintf(spec, sizeof spec, "%s,label=y", in_dir(files[k].name));
        snprintf(expected, sizeof expected, "%s%s%s", files[k].format ? files[k].format : "",
                 files[k].format ? ":" : "", spec);
        OK(ctx, dro__spec_full(ctx, spec, full));
        assert_string_equal(full, expected);
    }
    OK(ctx, dro__spec_full(ctx, "nowhere.csv", full));
    assert_string_equal(full, "nowhere.csv"); /* not there: the error says what is expected */
    OK(ctx, dro__spec_full(ctx, "csv:nowhere", full));
    assert_string_equal(full, "csv:nowhere");
}

static void test_folders(void **state)
{
    (void)state;
    char full[DRO__SPEC_MAX], spec[512], path[80];
    static const char *const marks[][2] = {{"data_batch_1.bin", "cifar10:"},
                                           {"fine_label_names.txt", "cifar100:"},
                                           {"train-images-idx3-ubyte.gz", "idx:"},
                                           {"train_X.bin", "stl10:"}};
    for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++) {
        snprintf(spec, sizeof spec, "%s", in_dir(marks[k][1]));
        assert_int_equal(mkdir(spec, 0777), 0);
        OK(ctx, dro__spec_full(ctx, spec, full));
        assert_memory_equal(full, "images:", 7); /* empty */
        snprintf(path, sizeof path, "%s/%s", marks[k][1], marks[k][0]);
        write_file(path, "x", 1);
        OK(ctx, dro__spec_full(ctx, spec, full));
        assert_memory_equal(full, marks[k][1], strlen(marks[k][1]));
    }
    snprintf(spec, sizeof spec, "%s", in_dir("pictures"));
    assert_int_equal(mkdir(spec, 0777), 0);
    assert_int_equal(mkdir(in_dir("pictures/cats"), 0777), 0);
    OK(ctx, dro__spec_full(ctx, spec, full));
    assert_memory_equal(full, "images:", 7);
}

/* Files that a newcomer may bring along, and what is said. */
static void test_unknown(void **state)
{
    (void)state;
    static const char sheet[] = "PK\x03\x04______________________\x05\0\0\0x.xml";
    static const char array[] = "PK\x03\x04______________________\x05\0\0\0x.npy";
    char full[DRO__SPEC_MAX], spec[512];
    dro_data *data;
    write_file("sheet.xlsx", sheet, sizeof sheet - 1);
    snprintf(spec, sizeof spec, "%s,label=y", in_dir("sheet.xlsx"));
    FAILS(ctx, dro_data_open(ctx, spec, &data), DRO_ERR_NAME,
          "sheet.xlsx: its format is not known: save a table as CSV");
    write_file("array", array, sizeof array - 1);
    snprintf(spec, sizeof spec, "%s", in_dir("array"));
    OK(ctx, dro__spec_full(ctx, spec, full));
    assert_memory_equal(full, "npy:", 4);
    assert_int_equal(mkdir(in_dir("flat"), 0777), 0);
    write_file("flat/cat.png", "x", 1);
    snprintf(spec, sizeof spec, "%s", in_dir("flat"));
    FAILS(ctx, dro_data_open(ctx, spec, &data), DRO_ERR_DATA,
          "flat: no folders in it: expected a folder of images for each class");
}

/* And it is read so. */
static void test_opened(void **state)
{
    (void)state;
    dro_data *data;
    char spec[512];
    write_file("people.csv", "x,y\n1,a\n2,b\n", 12);
    snprintf(spec, sizeof spec, "%s,label=y", in_dir("people.csv"));
    OK(ctx, dro_data_open(ctx, spec, &data));
    assert_string_equal(info_of(data).format, "csv");
    dro_data_close(data);
    dro_stream *stream;
    OK(ctx, dro_stream_open(ctx, spec, &stream));
    dro_stream_close(stream);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_full, setup, teardown),
    cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
    cmocka_unit_test_setup_teardown(test_unknown, setup, teardown),
    cmocka_unit_test_setup_teardown(test_opened, setup, teardown),
};

CHECK_MAIN(tests)
