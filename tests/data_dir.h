/* A temporary folder for the tests of the data room, files written into it, and opening what must
 * open and what must not. */
#ifndef DRO_DATA_DIR_H
#define DRO_DATA_DIR_H

#define _XOPEN_SOURCE 700 /* nftw */

#include "check.h"

#include <dro/data.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define REFS DRO_TEST_DIR "/refs/binary/"

/* ---- a folder of our own ---- */

static char dir[64];
static dro_context *ctx;

static inline int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/dro_binary_XXXXXX");
    ctx = check_context("ref", 1);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *about, int type, struct FTW *walk)
{
    (void)about, (void)type, (void)walk;
    return remove(path);
}

static inline int teardown(void **state)
{
    (void)state;
    dro_context_destroy(ctx);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline const char *in_dir(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void append_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(in_dir(name), "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline void cut_file(const char *name, long size)
{
    assert_int_equal(truncate(in_dir(name), size), 0);
}

static inline void poke_file(const char *name, long at, int byte)
{
    FILE *f = fopen(in_dir(name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, f), byte);
    assert_int_equal(fclose(f), 0);
}

static inline void remove_file(const char *name)
{
    assert_int_equal(unlink(in_dir(name)), 0);
}

static inline const char *spec_of(const char *format, const char *options)
{
    static char spec[512];
    snprintf(spec, sizeof spec, "%s:%s%s", format, dir, options);
    return spec;
}

/* Opens; the error must have this status and hold both parts. */
static inline void refuses(const char *spec, dro_status status, const char *part, const char *other)
{
    dro_data *data = (dro_data *)&data;
    FAILS(ctx, dro_data_open(ctx, spec, &data), status, part);
    if (!strstr(dro_context_error(ctx), other))
        fail_msg("'%s': expected '%s' in it", dro_context_error(ctx), other);
    assert_null(data);
}

static inline dro_data *opened(const char *spec, dro_examples *train, dro_examples *test)
{
    dro_data *data;
    dro_status status = dro_data_open(ctx, spec, &data);
    if (status == DRO_ERR_UNSUPPORTED && strstr(dro_context_error(ctx), "built without")) {
        print_message("skipped: %s\n", dro_context_error(ctx));
        skip();
    }
    if (status != DRO_OK)
        fail_msg("%s: %s", spec, dro_context_error(ctx));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, train));
    OK(ctx, dro_data_examples(data, DRO_TEST, test));
    for (int64_t i = 0; i < train->count; i++)
        assert_int_equal(train->records[i], i);
    for (int64_t i = 0; i < test->count; i++)
        assert_int_equal(test->records[i], i);
    return data;
}

static inline dro_data_info info_of(const dro_data *data)
{
    dro_data_info info;
    OK(ctx, dro_data_info_get(data, &info));
    return info;
}

/* Byte k of the arrays of refs/make_binary.py. */
static uint8_t ramp[4096];

static inline void fill_ramp(void)
{
    for (int k = 0; k < 4096; k++)
        ramp[k] = (uint8_t)((k * 37 + 11) % 251);
}

/* Images of 5 x 4 in 3 channels: value k of the array in file order is ramp[k]. */
static inline void same_colours(const uint8_t *pixels, int count, bool planes)
{
    for (int i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            for (int k = 0; k < 20; k++)
                if (*pixels++ != ramp[i * 60 + (planes ? c * 20 + k : k * 3 + c)])
                    fail_msg("image %d, plane %d, point %d", i, c, k);
}

#endif
