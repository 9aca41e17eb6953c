/* cifar10, cifar100, stl10 and idx: folders made here byte by byte (and gzip files of
 * refs/make_binary.py), every value compared; then everything that can be wrong with them. */
#include "data_dir.h"

/* A byte that depends on everything: file, image, channel, row, column. */
static uint8_t paint(int file, int i, int c, int row, int column)
{
    return (uint8_t)(file * 101 + i * 53 + c * 29 + row * 7 + column * 3);
}

/* ---- CIFAR ---- */

enum { SIDE = 32, IMAGE = 3 * SIDE * SIDE };

static void write_cifar(const char *name, int file, int count, int label_bytes)
{
    uint8_t record[IMAGE + 2];
    write_file(name, "", 0);
    for (int i = 0; i < count; i++) {
        record[0] = (uint8_t)((file + i) % (label_bytes == 2 ? 20 : 10));
        record[label_bytes - 1] = label_bytes == 2 ? (uint8_t)(99 - file - i) : record[0];
        uint8_t *p = record + label_bytes;
        for (int c = 0; c < 3; c++)
            for (int row = 0; row < SIDE; row++)
                for (int column = 0; column < SIDE; column++)
                    *p++ = paint(file, i, c, row, column);
        append_file(name, record, (size_t)(IMAGE + label_bytes));
    }
}

static void same_images(const uint8_t *pixels, int file, int count, int side)
{
    for (int i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            for (int row = 0; row < side; row++)
                for (int column = 0; column < side; column++)
                    if (*pixels++ != paint(file, i, c, row, column))
                        fail_msg("file %d, image %d, plane %d, row %d, column %d", file, i, c, row,
                                 column);
}

static void cifar10_folder(void)
{
    char name[64];
    for (int k = 1; k <= 5; k++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", k);
        write_cifar(name, k, k == 2 ? 40 : 3, 1);
    }
    write_cifar("test_batch.bin", 6, 2, 1);
}

static void test_cifar10(void **state)
{
    (void)state;
    dro_examples train, test;
    static const char names[] = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n";
    const int counts[] = {3, 40, 3, 3, 3};
    cifar10_folder();
    dro_data *data = opened(spec_of("cifar10", ""), &train, &test);
    assert_string_equal(info_of(data).class_names[9], "9");
    dro_data_close(data);
    write_file("batches.meta.txt", names, sizeof names - 1);
    data = opened(spec_of("cifar10", ""), &train, &test);
    dro_data_info info = info_of(data);
    assert_int_equal(info.kind, DRO_DATA_PIXELS);
    assert_true(info.channels == 3 && info.height == SIDE && info.width == SIDE);
    assert_int_equal(info.classes, 10);
    assert_string_equal(info.class_names[0], "a");
    assert_string_equal(info.class_names[9], "j");
    assert_int_equal(info.bytes_read, 54 * 3073 + sizeof names - 1);
    assert_int_equal(train.count, 52);
    for (int k = 0, at = 0; k < 5; at += counts[k++]) {
        same_images(train.pixels + at * IMAGE, k + 1, counts[k], SIDE);
        for (int i = 0; i < counts[k]; i++)
            assert_int_equal(train.labels[at + i], (k + 1 + i) % 10);
    }
    assert_int_equal(test.count, 2);
    same_images(test.pixels, 6, 2, SIDE);
    dro_data_close(data);
}

static void test_cifar10_subfolder(void **state)
{
    (void)state;
    dro_examples train, test;
    char outer[64];
    strcpy(outer, dir);
    assert_int_equal(mkdir(in_dir("cifar-10-batches-bin"), 0700), 0);
    strcat(dir, "/cifar-10-batches-bin");
    cifar10_folder();
    strcpy(dir, outer);
    dro_data *data = opened(spec_of("cifar10", ""), &train, &test);
    assert_int_equal(train.count, 52);
    dro_data_close(data);
}

static void test_cifar10_bad(void **state)
{
    (void)state;
    const char *spec = spec_of("cifar10", "");
    refuses(spec, DRO_ERR_FILE, dir, "data_batch_1.bin is missing");
    refuses("cifar10:/nowhere/at/all", DRO_ERR_FILE, "/nowhere/at/all", "no such folder");
    cifar10_folder();
    remove_file("test_batch.bin");
    refuses(spec, DRO_ERR_FILE, dir, "test_batch.bin is missing");
    remove_file("data_batch_3.bin");
    refuses(spec, DRO_ERR_FILE, dir, "data_batch_3.bin is missing");
    cifar10_folder();
    poke_file("data_batch_2.bin", 39 * 3073, 10);
    refuses(spec, DRO_ERR_DATA, "data_batch_2.bin: record 39: label 10", "expected 0 to 9");
    cifar10_folder();
    append_file("data_batch_5.bin", "x", 1);
    refuses(spec, DRO_ERR_DATA, "data_batch_5.bin: ends 1 bytes into record 3", "3073");
    cut_file("data_batch_5.bin", 3073 * 2 - 5);
    refuses(spec, DRO_ERR_DATA, "data_batch_5.bin: ends 3068 bytes into record 1", "3073");
    cut_file("data_batch_5.bin", 0);
    refuses(spec, DRO_ERR_DATA, "data_batch_5.bin: is empty", "3073");
    cifar10_folder();
    write_file("batches.meta.txt", "a\nb\n", 4);
    refuses(spec, DRO_ERR_DATA, "batches.meta.txt: 2 class names", "expected 10");
    write_file("batches.meta.txt", "a\n\nb\n", 5);
    refuses(spec, DRO_ERR_DATA, "batches.meta.txt: line 2", "one on each line");
    write_file("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n", 22);
    refuses(spec, DRO_ERR_DATA, "batches.meta.txt: line 11", "no more");
}

static void test_cifar100(void **state)
{
    (void)state;
    dro_examples train, test;
    write_cifar("train.bin", 4, 20, 2);
    write_cifar("test.bin", 5, 1, 2);
    dro_data *data = opened(spec_of("cifar100", ""), &train, &test);
    assert_int_equal(info_of(data).classes, 100);
    for (int i = 0; i < 20; i++)
        assert_int_equal(train.labels[i], 95 - i);
    same_images(train.pixels, 4, 20, SIDE);
    same_images(test.pixels, 5, 1, SIDE);
    dro_data_close(data);
    data = opened(spec_of("cifar100", ",labels=coarse"), &train, &test);
    assert_int_equal(info_of(data).classes, 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(train.labels[i], (4 + i) % 20);
    same_images(train.pixels, 4, 20, SIDE);
    dro_data_close(data);
    refuses(spec_of("cifar100", ",labels=middle"), DRO_ERR_RANGE, "middle", "fine or coarse");
    poke_file("train.bin", 3074 * 7, 20);
    refuses(spec_of("cifar100", ""), DRO_ERR_DATA, "train.bin: record 7: coarse label 20",
            "0 to 19");
    poke_file("train.bin", 3074 * 7, 19);
    poke_file("train.bin", 3074 * 7 + 1, 100);
    refuses(spec_of("cifar100", ",labels=coarse"), DRO_ERR_DATA, "record 7: fine label 100",
            "0 to 99");
    write_file("fine_label_names.txt", "apple\n", 6);
    refuses(spec_of("cifar100", ""), DRO_ERR_DATA, "fine_label_names.txt", "expected 100");
}

/* ---- STL-10 ---- */

static void write_stl10(const char *images, const char *labels, int file, int count)
{
    enum { N = 96 };
    uint8_t *image = malloc(3 * N * N), label;
    assert_non_null(image);
    write_file(images, "", 0);
    write_file(labels, "", 0);
    for (int i = 0; i < count; i++) {
        uint8_t *p = image;
        for (int c = 0; c < 3; c++)
            for (int column = 0; column < N; column++)
                for (int row = 0; row < N; row++)
                    *p++ = paint(file, i, c, row, column);
        append_file(images, image, 3 * N * N);
        label = (uint8_t)(1 + (file + 9 * i) % 10);
        append_file(labels, &label, 1);
    }
    free(image);
}

static void test_stl10(void **state)
{
    (void)state;
    dro_examples train, test;
    const char *spec = spec_of("stl10", "");
    write_stl10("train_X.bin", "train_y.bin", 1, 3);
    refuses(spec, DRO_ERR_FILE, dir, "test_X.bin is missing");
    write_stl10("test_X.bin", "test_y.bin", 2, 1);
    write_file("class_names.txt", "a\r\nb\r\nc\r\nd\r\ne\r\nf\r\ng\r\nh\r\ni\r\nj", 28);
    dro_data *data = opened(spec, &train, &test);
    dro_data_info info = info_of(data);
    assert_true(info.channels == 3 && info.height == 96 && info.width == 96 && info.classes == 10);
    assert_string_equal(info.class_names[0], "a");
    assert_string_equal(info.class_names[9], "j");
    assert_int_equal(train.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(train.labels[i], (1 + 9 * i) % 10);
    same_images(train.pixels, 1, 3, 96);
    same_images(test.pixels, 2, 1, 96);
    dro_data_close(data);
    poke_file("train_y.bin", 1, 0);
    refuses(spec, DRO_ERR_DATA, "train_y.bin: record 1: label 0", "1 to 10");
    poke_file("train_y.bin", 1, 11);
    refuses(spec, DRO_ERR_DATA, "train_y.bin: record 1: label 11", "1 to 10");
    poke_file("train_y.bin", 1, 10);
    append_file("train_y.bin", "\1", 1);
    refuses(spec, DRO_ERR_DATA, "train_X.bin: ends 0 bytes into image 3", "4 images");
    cut_file("train_y.bin", 2);
    refuses(spec, DRO_ERR_DATA, "train_X.bin: continues after byte 55296", "2 images");
    cut_file("train_y.bin", 0);
    refuses(spec, DRO_ERR_DATA, "train_y.bin: is empty", "a byte for each image");
}

/* ---- IDX ---- */

/* dims sizes follow. */
static void write_idx(const char *name, const void *bytes, size_t size, int dims, ...)
{
    uint8_t header[20] = {0, 0, 8, (uint8_t)dims};
    va_list args;
    va_start(args, dims);
    for (int k = 0; k < dims; k++) {
        uint32_t value = va_arg(args, uint32_t);
        for (int j = 0; j < 4; j++)
            header[4 + 4 * k + j] = (uint8_t)(value >> (24 - 8 * j));
    }
    va_end(args);
    write_file(name, header, 4 + 4 * (size_t)dims);
    append_file(name, bytes, size);
}

static void idx_folder(void)
{
    fill_ramp();
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 3u, 5u, 4u);
    write_idx("train-labels.idx1-ubyte", "\4\0\2", 3, 1, 3u);
    write_idx("t10k-images.idx3-ubyte", ramp, 40, 3, 2u, 5u, 4u);
    write_idx("t10k-labels-idx1-ubyte", "\5\1", 2, 1, 2u);
}

static void test_idx(void **state)
{
    (void)state;
    dro_examples train, test;
    idx_folder();
    dro_data *data = opened(spec_of("idx", ""), &train, &test);
    dro_data_info info = info_of(data);
    assert_true(info.channels == 1 && info.height == 5 && info.width == 4 && info.classes == 6);
    assert_int_equal(train.count, 3);
    assert_int_equal(test.count, 2);
    assert_memory_equal(train.pixels, ramp, 60);
    assert_memory_equal(test.pixels, ramp, 40);
    assert_true(train.labels[0] == 4 && train.labels[1] == 0 && train.labels[2] == 2);
    assert_true(test.labels[0] == 5 && test.labels[1] == 1);
    dro_data_close(data);
}

static void test_idx_gz(void **state)
{
    (void)state;
    dro_examples train, test;
    fill_ramp();
    dro_data *data = opened("idx:" REFS "idx", &train, &test);
    assert_memory_equal(train.pixels, ramp, 60);
    assert_memory_equal(test.pixels, ramp, 40);
    assert_true(train.count == 3 && train.labels[2] == 4 && test.labels[1] == 2);
    dro_data_close(data);
}

static void test_idx_colour(void **state)
{
    (void)state;
    dro_examples train, test;
    fill_ramp();
    write_idx("train-images-idx4-ubyte", ramp, 180, 4, 3u, 5u, 4u, 3u);
    write_idx("train-labels-idx1-ubyte", "\1\0\2", 3, 1, 3u);
    write_idx("t10k-images-idx4-ubyte", ramp, 120, 4, 2u, 3u, 5u, 4u);
    write_idx("t10k-labels-idx1-ubyte", "\1\0", 2, 1, 2u);
    dro_data *data = opened(spec_of("idx", ""), &train, &test);
    dro_data_info info = info_of(data);
    assert_true(info.channels == 3 && info.height == 5 && info.width == 4);
    same_colours(train.pixels, 3, false);
    same_colours(test.pixels, 2, true);
    dro_data_close(data);
}

static void test_idx_bad(void **state)
{
    (void)state;
    const char *spec = spec_of("idx", "");
    refuses(spec, DRO_ERR_FILE, dir, "train-images-idx3-ubyte is missing");
    idx_folder();
    poke_file("train-images-idx3-ubyte", 2, 0x0d);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: begins with 00 00 0d 03", "00 00 08 03");
    idx_folder();
    append_file("train-images-idx3-ubyte", "x", 1);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: continues after byte 76", "3 images");
    cut_file("train-images-idx3-ubyte", 70);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: ends at byte 70", "image 2 of 3");
    cut_file("train-images-idx3-ubyte", 10);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: ends at byte 10", "sizes");
    cut_file("train-images-idx3-ubyte", 0);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: ends at byte 0", "magic");
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 0xffffffffu, 28u, 28u);
    refuses(spec, DRO_ERR_DATA, "declares 4294967295 images of 784 bytes", "in all");
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 3u, 0xffffffffu, 28u);
    refuses(spec, DRO_ERR_DATA, "images of 4294967295 x 28", "expected sides");
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 3u, 0u, 28u);
    refuses(spec, DRO_ERR_DATA, "images of 0 x 28", "expected sides");
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 0u, 5u, 4u);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: declares 0 examples", "at least one");
    write_idx("train-images-idx3-ubyte", ramp, 60, 4, 3u, 5u, 2u, 2u);
    refuses(spec, DRO_ERR_DATA, "images of 5 x 2 x 2", "1 or 3 channels");
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 3u, 4u, 5u);
    refuses(spec, DRO_ERR_DATA, "test images are 1 x 5 x 4", "1 x 4 x 5 as in training");
    idx_folder();
    write_idx("train-labels.idx1-ubyte", "\4\0\2\1", 4, 1, 4u);
    refuses(spec, DRO_ERR_DATA, "train-labels.idx1-ubyte: declares 4 labels", "expected 3");
    write_idx("train-labels.idx1-ubyte", "\4\0", 2, 1, 3u);
    refuses(spec, DRO_ERR_DATA, "train-labels.idx1-ubyte: ends", "label 2 of 3");
    write_idx("train-labels.idx1-ubyte", "\4\0\1\2", 4, 1, 3u);
    refuses(spec, DRO_ERR_DATA, "train-labels.idx1-ubyte: continues after byte 11", "3 labels");
    /* Memory that a header declares is not allocated before the bytes arrive: 64 GiB here. */
    write_idx("train-images-idx3-ubyte", ramp, 60, 3, 4096u, 4096u, 4096u);
    write_idx("train-labels.idx1-ubyte", "\4\0\2\1", 4, 1, 4096u);
    refuses(spec, DRO_ERR_DATA, "train-images-idx3-ubyte: ends", "image 0 of 4096");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_cifar10),     TEST(test_cifar10_subfolder),
    TEST(test_cifar10_bad), TEST(test_cifar100),
    TEST(test_stl10),       TEST(test_idx),
    TEST(test_idx_gz),      TEST(test_idx_colour),
    TEST(test_idx_bad),
};

CHECK_MAIN(tests)
