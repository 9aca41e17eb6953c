/* Images: pixels equal to Pillow's on odd files (tests/refs/make_images.py), resizing to one grey
 * level, damaged files and bombs refused. */
#include "check.h"
#include "data.h"
#include "image.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define IMAGES DRO_TEST_DIR "/refs/images/"

typedef struct bytes {
    uint8_t *at;
    size_t size;
} bytes;

static bytes load(const char *name)
{
    char path[512];
    bytes b = {0};
    snprintf(path, sizeof path, "%s%s", IMAGES, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    b.at = malloc(1 << 20);
    assert_non_null(b.at);
    b.size = fread(b.at, 1, 1 << 20, file);
    assert_true(b.size < 1 << 20);
    fclose(file);
    b.at = realloc(b.at, b.size + 1); /* so that a read past the end is seen */
    return b;
}

/* A build without libjpeg or libpng leaves its files out. */
static bool left_out(const char *name, dro_status status)
{
    if (status != DRO_ERR_UNSUPPORTED)
        return false;
    print_message("left out: %s\n", name);
    return true;
}

static dro_status decode(dro_context *ctx, const char *name, int channels, dro__image *image)
{
    bytes b = load(name);
    dro_status status = dro__image_decode(ctx, name, b.at, b.size, channels, image);
    free(b.at);
    return status;
}

/* ---- pixels ---- */

static void same_pixels(const char *name, const dro__image *image, const uint8_t *expected)
{
    size_t count = (size_t)(image->width * image->height * image->channels);
    for (size_t i = 0; i < count; i++)
        if (image->pixels[i] != expected[i])
            fail_msg("%s, %d channels: value %zu of %zu is %d, Pillow has %d", name,
                     image->channels, i, count, image->pixels[i], expected[i]);
}

static void test_pixels(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    bytes all = load("pixels.bin");
    int files = 0;
    for (size_t at = 0; at < all.size; files++) {
        char name[64];
        int channels, width, height, used;
        assert_int_equal(
            sscanf((char *)all.at + at, "%63s %d %d %d%n", name, &channels, &width, &height, &used),
            4);
        const uint8_t *expected = all.at + at + used + 1;
        at += (size_t)(used + 1 + width * height * channels);
        dro__image image = {0};
        dro_status status = decode(ctx, name, channels, &image);
        if (left_out(name, status))
            continue;
        OK(ctx, status);
        if (image.width != width || image.height != height || image.channels != channels)
            fail_msg("%s: %d x %d, %d channels: expected %d x %d, %d", name, image.width,
                     image.height, image.channels, width, height, channels);
        same_pixels(name, &image, expected);
        dro__image_free(&image);
    }
    assert_true(files > 110);
    free(all.at);
    dro_context_destroy(ctx);
}

/* ---- resizing ---- */

static void test_resize(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    bytes all = load("resize.bin");
    size_t values = 0, differ = 0;
    for (size_t at = 0; at < all.size;) {
        char name[64];
        double l, t, r, b;
        int channels, width, height, used;
        assert_int_equal(sscanf((char *)all.at + at, "%63s %lf %lf %lf %lf %d %d %d%n", name, &l,
                                &t, &r, &b, &channels, &width, &height, &used),
                         8);
        const uint8_t *expected = all.at + at + used + 1;
        size_t count = (size_t)(width * height * channels);
        at += (size_t)used + 1 + count;
        dro__image image = {0};
        dro_status status = decode(ctx, name, channels, &image);
        if (left_out(name, status))
            continue;
        OK(ctx, status);
        uint8_t *out = malloc(count);
        OK(ctx, dro__image_resize(ctx, &image, &(dro__image_box){l, t, r, b}, width, height, out));
        for (size_t i = 0; i < count; i++) {
            int off = abs(out[i] - expected[i]);
            differ += off != 0;
            if (off > 1)
                fail_msg("%s to %d x %d: value %zu is %d, Pillow has %d", name, width, height, i,
                         out[i], expected[i]);
        }
        values += count;
        free(out);
        dro__image_free(&image);
    }
    print_message("resize: %zu of %zu values differ from Pillow, none by more than 1\n", differ,
                  values);
    assert_true(values > 5000 && differ * 1000 <= values);
    free(all.at);
    dro_context_destroy(ctx);
}

static void test_resize_limits(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    uint8_t pixels[4 * 3 * 3], out[64];
    memset(pixels, 255, sizeof pixels);
    dro__image image = {4, 3, 3, pixels, 0};
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){0, 0, 5, 3}, 2, 2, out),
          DRO_ERR_RANGE, "box");
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){-1, 0, 4, 3}, 2, 2, out),
          DRO_ERR_RANGE, "box");
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){2, 0, 2, 3}, 2, 2, out),
          DRO_ERR_RANGE, "box");
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){(double)NAN, 0, 2, 3}, 2, 2, out),
          DRO_ERR_RANGE, "box");
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){0, 0, 4, 3}, 0, 2, out),
          DRO_ERR_RANGE, "0 x 2");
    FAILS(ctx, dro__image_resize(ctx, &image, &(dro__image_box){0, 0, 4, 3}, 2, 40000, out),
          DRO_ERR_RANGE, "40000");
    OK(ctx, dro__image_resize(ctx, &image, &(dro__image_box){3.999, 2.999, 4, 3}, 2, 2, out));
    for (int i = 0; i < 12; i++)
        assert_int_equal(out[i], 255);
    dro_context_destroy(ctx);
}

static void *make_one(void *done)
{
    dro_context *ctx = check_context("ref", 1);
    dro__image image;
    OK(ctx, dro__image_create(&(dro__image_file){ctx, "third", NULL, 0}, 8192, 8192, 1, 0, &image));
    atomic_store((atomic_bool *)done, true);
    dro__image_free(&image);
    dro_context_destroy(ctx);
    return NULL;
}

/* Two of the largest images fill the budget: a third waits until one is gone, a fourth is too
 * large. */
static void test_image_budget(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__image_file file = {ctx, "f", NULL, 0};
    dro__image one, two, no;
    pthread_t thread;
    atomic_bool done = false;
    FAILS(ctx, dro__image_create(&file, 8192, 8193, 1, 0, &no), DRO_ERR_DATA, "67108864 in all");
    OK(ctx, dro__image_create(&file, 8192, 8192, 1, 0, &one));
    OK(ctx, dro__image_create(&file, 8192, 8192, 1, 0, &two));
    assert_int_equal(pthread_create(&thread, NULL, make_one, &done), 0);
    nanosleep(&(struct timespec){0, 100000000}, NULL);
    assert_false(atomic_load(&done));
    dro__image_free(&one);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&done));
    dro__image_free(&two);
    dro_context_destroy(ctx);
}

/* The widest reduction: weights that add up to a little more than one must not wrap white to
 * black. */
static void test_resize_wide(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__image image = {DRO__IMAGE_SIDE_MAX, 2, 3, malloc(DRO__IMAGE_SIDE_MAX * 2 * 3), 0};
    uint8_t out[9];
    memset(image.pixels, 255, DRO__IMAGE_SIDE_MAX * 2 * 3);
    for (int width = 1; width <= 3; width++) {
        OK(ctx,
           dro__image_resize(ctx, &image, &(dro__image_box){0, 0, image.width, 2}, width, 1, out));
        for (int i = 0; i < 3 * width; i++)
            assert_int_equal(out[i], 255);
    }
    free(image.pixels);
    dro_context_destroy(ctx);
}

/* ---- damage ---- */

/* Every file that is cut short is an error, whatever the place. */
static void test_truncated(void **state)
{
    static const char *const names[] = {"jpeg_420.jpg",   "jpeg_progressive.jpg",
                                        "jpeg_cmyk.jpg",  "jpeg_restart.jpg",
                                        "jpeg_exif6.jpg", "png_interlaced_17x16.png",
                                        "png_rgb.png",    "png_palette_trns.png",
                                        "png_grey16.png", "p6.ppm",
                                        "p5.pgm",         "p6_max65535.ppm"};
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bytes b = load(names[k]);
        dro__image image = {0};
        for (size_t size = 0; size < b.size; size++) {
            uint8_t *cut = malloc(size + !size);
            memcpy(cut, b.at, size);
            dro_status status = dro__image_decode(ctx, "cut", cut, size, 3, &image);
            free(cut);
            if (status != DRO_ERR_DATA && status != DRO_ERR_UNSUPPORTED)
                fail_msg("%s cut to %zu of %zu bytes: %d", names[k], size, b.size, (int)status);
            assert_null(image.pixels);
            assert_true(strncmp(dro_context_error(ctx), "cut: ", 5) == 0);
        }
        free(b.at);
    }
    dro_context_destroy(ctx);
}

/* Files with one byte changed must neither crash nor make up a size. */
static void test_corrupt(void **state)
{
    static const char *const names[] = {
        "jpeg_progressive.jpg",       "jpeg_ycck.jpg", "png_filters.png",
        "png_palette_interlaced.png", "p3.ppm",        "jpeg_exif8.jpg"};
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bytes b = load(names[k]);
        for (size_t at = 0; at < b.size; at++) {
            dro__image image = {0};
            uint8_t old = b.at[at];
            b.at[at] = (uint8_t)(old + 1 + dro__random_below(3, k, at, 255));
            dro_status status = dro__image_decode(ctx, names[k], b.at, b.size, 1, &image);
            b.at[at] = old;
            assert_true((status == DRO_OK) == (image.pixels != NULL));
            if (status == DRO_OK && strstr(names[k], ".png") && !strstr(names[k], "inter"))
                fail_msg("%s: a change of byte %zu was not seen", names[k], at);
            dro__image_free(&image);
        }
        free(b.at);
    }
    dro_context_destroy(ctx);
}

/* A change inside the compressed pixels of a JPEG that libjpeg would paper over. */
static void test_lost_segment(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    bytes b = load("photo.jpg");
    dro__image image = {0};
    b.at[b.size / 2] = 0xff; /* an end of image in mid-scan */
    b.at[b.size / 2 + 1] = 0xd9;
    dro_status status = dro__image_decode(ctx, "photo", b.at, b.size, 3, &image);
    if (!left_out("photo.jpg", status))
        FAILS(ctx, status, DRO_ERR_DATA, "photo: cannot decode the JPEG: Corrupt");
    free(b.at);
    dro_context_destroy(ctx);
}

static void patch(uint8_t *at, size_t count, uint32_t value)
{
    for (size_t k = 0; k < count; k++)
        at[k] = (uint8_t)(value >> 8 * (count - 1 - k));
}

static void test_bombs(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__image image = {0};
    static const char pnm[] = "P6 32768 32768 255\nxxxx", wide[] = "P5 9999999999 1 255\nx",
                      none[] = "P5 0 4 255\n", big[] = "P2 8192 8192 255\n1 2";
    FAILS(ctx, dro__image_decode(ctx, "a", pnm, sizeof pnm, 3, &image), DRO_ERR_DATA, "67108864");
    FAILS(ctx, dro__image_decode(ctx, "a", wide, sizeof wide, 3, &image), DRO_ERR_DATA,
          "9999999999 x 1");
    FAILS(ctx, dro__image_decode(ctx, "a", none, sizeof none, 3, &image), DRO_ERR_DATA, "empty");
    FAILS(ctx, dro__image_decode(ctx, "a", big, sizeof big, 3, &image), DRO_ERR_DATA, "truncated");
    bytes b = load("jpeg_444.jpg");
    uint8_t *frame = NULL;
    for (size_t k = 0; k + 9 < b.size && !frame; k++)
        if (b.at[k] == 0xff && b.at[k + 1] == 0xc0)
            frame = b.at + k;
    assert_non_null(frame);
    patch(frame + 5, 2, 60000);
    patch(frame + 7, 2, 60000);
    dro_status status = dro__image_decode(ctx, "a", b.at, b.size, 3, &image);
    if (!left_out("jpeg_444.jpg", status))
        FAILS(ctx, status, DRO_ERR_DATA, "60000 x 60000");
    free(b.at);
    b = load("png_rgb.png");
    patch(b.at + 16, 4, 8000);
    patch(b.at + 20, 4, 8000);
    patch(b.at + 29, 4, 0x89933aa3); /* the right check sum of that header */
    status = dro__image_decode(ctx, "a", b.at, b.size, 3, &image);
    if (!left_out("png_rgb.png", status))
        FAILS(ctx, status, DRO_ERR_DATA, "8000 x 8000 pixels need");
    free(b.at);
    assert_null(image.pixels);
    dro_context_destroy(ctx);
}

static void test_not_images(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__image image = {0};
    FAILS(ctx, dro__image_decode(ctx, "f", "", 0, 3, &image), DRO_ERR_DATA, "f: is empty");
    FAILS(ctx, dro__image_decode(ctx, "f", "GIF89a", 6, 3, &image), DRO_ERR_DATA, "47 49 46 38");
    FAILS(ctx, dro__image_decode(ctx, "f", "P4 1 1\n1", 8, 3, &image), DRO_ERR_DATA, "50 34");
    FAILS(ctx, dro__image_decode(ctx, "f", "P", 1, 3, &image), DRO_ERR_DATA, "50 (hex)");
    FAILS(ctx, dro__image_decode(ctx, "f", "P2 2 1 7 3 8", 12, 3, &image), DRO_ERR_DATA,
          "the value 8");
    FAILS(ctx, dro__image_decode(ctx, "f", "P2 2 1 7 3 x", 12, 3, &image), DRO_ERR_DATA, "byte 11");
    FAILS(ctx, dro__image_decode(ctx, "f", "P2 2 1 0 3 1", 12, 3, &image), DRO_ERR_DATA,
          "1 to 65535");
    FAILS(ctx, dro__image_decode(ctx, "f", "P5", 2, 2, &image), DRO_ERR_ARGUMENT, "1 or 3");
    char name[1000];
    memset(name, 'x', sizeof name);
    strcpy(name + sizeof name - 6, ".jpeg");
    FAILS(ctx, dro__image_decode(ctx, name, "?", 1, 3, &image), DRO_ERR_DATA,
          ".jpeg: expected a JPEG, PNG, PPM or PGM image; the file starts with 3f");
    dro_context_destroy(ctx);
}

/* ---- EXIF ---- */

static void test_exif(void **state)
{
    static const uint8_t little[] = "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0",
                         far_off[] = "MM\0*\xff\xff\xff\xf0", many[] = "MM\0*\0\0\0\x08\xff\xff";
    (void)state;
    assert_int_equal(dro__exif_orientation(little, sizeof little), 6);
    for (size_t size = 0; size < 20; size++) {
        uint8_t *cut = malloc(size + !size);
        memcpy(cut, little, size);
        assert_int_equal(dro__exif_orientation(cut, size), 1);
        free(cut);
    }
    assert_int_equal(dro__exif_orientation(far_off, 8), 1);
    assert_int_equal(dro__exif_orientation(many, 10), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_pixels),        cmocka_unit_test(test_resize),
    cmocka_unit_test(test_resize_limits), cmocka_unit_test(test_resize_wide),
    cmocka_unit_test(test_image_budget),  cmocka_unit_test(test_truncated),
    cmocka_unit_test(test_corrupt),       cmocka_unit_test(test_lost_segment),
    cmocka_unit_test(test_bombs),         cmocka_unit_test(test_not_images),
    cmocka_unit_test(test_exif),
};

CHECK_MAIN(tests)
