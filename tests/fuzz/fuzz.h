/* Small helpers of the fuzz targets: a context, the bytes as a file, a data set opened from them
 * and looked through. Each target is one fuzz_NAME.c with a seed corpus in corpus/NAME;
 * scripts/fuzz.sh builds and runs them all. */
#ifndef DRO_FUZZ_H
#define DRO_FUZZ_H

#include "data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A broken promise is a finding. */
#define FUZZ_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline dro_context *fuzz_context(void)
{
    static dro_context *ctx;
    if (!ctx)
        FUZZ_CHECK(dro_context_create("ref", 1, &ctx) == DRO_OK);
    ctx->error[0] = '\0';
    return ctx;
}

/* A failure must say what went wrong; success must not need to. */
static inline bool fuzz_ok(dro_context *ctx, dro_status status)
{
    FUZZ_CHECK(status <= 0);
    FUZZ_CHECK(status == DRO_OK || ctx->error[0] != '\0');
    return status == DRO_OK;
}

/* A path in the folder that scripts/fuzz.sh removes afterwards. */
static inline const char *fuzz_path(char path[200], const char *name)
{
    const char *folder = getenv("FUZZ_DIR");
    snprintf(path, 200, "%.150s/%.40s", folder ? folder : "/tmp", name);
    return path;
}

enum { FUZZ_FILES = 4 };

static struct {
    const uint8_t *bytes;
    size_t size;
} fuzz_files[FUZZ_FILES];

/* The bytes as a file; the path is good until the next call with this slot. */
static inline const char *fuzz_file(int slot, const uint8_t *bytes, size_t size)
{
    static const char *const paths[FUZZ_FILES] = {"/fuzz/0", "/fuzz/1", "/fuzz/2", "/fuzz/3"};
    FUZZ_CHECK(slot >= 0 && slot < FUZZ_FILES);
    fuzz_files[slot].bytes = bytes;
    fuzz_files[slot].size = size;
    return paths[slot];
}

/* The linker (--wrap) sends the library here: such a file costs no system call. */
dro_status __real_dro__input_open(dro_context *ctx, const char *path, dro__input **input);
dro_status __wrap_dro__input_open(dro_context *ctx, const char *path, dro__input **input);
dro_status __wrap_dro__input_open(dro_context *ctx, const char *path, dro__input **input)
{
    if (strncmp(path, "/fuzz/", 6) != 0)
        return __real_dro__input_open(ctx, path, input);
    int slot = path[6] - '0';
    FUZZ_CHECK(slot >= 0 && slot < FUZZ_FILES && path[7] == '\0');
    return dro__input_memory(ctx, path, fuzz_files[slot].bytes, fuzz_files[slot].size, input);
}

bool __wrap_dro__file_exists(const char *path);
bool __wrap_dro__file_exists(const char *path)
{
    (void)path;
    return false;
}

/* Cuts the bytes in two at the first `mark`: *first bytes, then those after it (0 if there is
 * none). */
static inline size_t fuzz_cut(const uint8_t *bytes, size_t size, uint8_t mark, size_t *first)
{
    const uint8_t *at = size ? memchr(bytes, mark, size) : NULL;
    *first = at ? (size_t)(at - bytes) : size;
    return at ? size - *first - 1 : 0;
}

static inline void fuzz_look_row(const dro_data_info *info, const dro_examples *e, int64_t i)
{
    FUZZ_CHECK(!e->labels || (e->labels[i] >= 0 && e->labels[i] < info->classes));
    FUZZ_CHECK(!e->groups || (e->groups[i] >= 0 && e->groups[i] < info->groups));
    FUZZ_CHECK(!e->targets || isfinite(e->targets[i]));
    for (size_t k = 0; e->x && k < info->features; k++)
        FUZZ_CHECK(isfinite(e->x[(size_t)i * info->features + k]));
    if (!e->starts)
        return;
    FUZZ_CHECK(e->starts[i] <= e->starts[i + 1] && (i > 0 || e->starts[0] == 0));
    for (int64_t k = e->starts[i]; k < e->starts[i + 1]; k++) {
        FUZZ_CHECK(e->columns[k] >= 0 && (size_t)e->columns[k] < info->features);
        FUZZ_CHECK(k == e->starts[i] || e->columns[k] > e->columns[k - 1]);
        FUZZ_CHECK(isfinite(e->values[k]));
    }
}

/* Everything that an opened data set promises of its rows. */
static inline void fuzz_look(const dro_data *data)
{
    dro_data_info info;
    dro_examples e;
    FUZZ_CHECK(dro_data_info_get(data, &info) == DRO_OK);
    for (int32_t k = 0; k < info.classes; k++)
        FUZZ_CHECK(info.class_names[k] != NULL);
    for (int s = 0; s < DRO_SPLITS; s++) {
        FUZZ_CHECK(dro_data_examples(data, (dro_split)s, &e) == DRO_OK);
        FUZZ_CHECK(e.count == info.examples[s]);
        for (int64_t i = 0; i < e.count; i++)
            fuzz_look_row(&info, &e, i);
    }
}

/* Opens a SPEC, looks through it, closes it. */
static inline void fuzz_spec(const char *spec)
{
    dro_context *ctx = fuzz_context();
    dro_data *data;
    if (!fuzz_ok(ctx, dro_data_open(ctx, spec, &data)))
        return;
    fuzz_look(data);
    dro_data_close(data);
}

#endif
