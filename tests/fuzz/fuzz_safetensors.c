/* A weights file. What begins with '{' is a header, a zero byte and the values: its length is put
 * in front, so that mutations of the text stay whole files. */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"

#include "safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

/* Everything that an opened file promises; the sum of its values. */
static double look(dro_context *ctx, dro__safetensors *file)
{
    double sum = 0;
    FUZZ_CHECK(!dro__safetensors_tensor(file, dro__safetensors_count(file)));
    for (size_t i = 0; i < dro__safetensors_count(file); i++) {
        const dro__tensor_info *info = dro__safetensors_tensor(file, i);
        uint64_t count = 1;
        FUZZ_CHECK(*info->name && *info->dtype && info->rank >= 0 &&
                   info->rank <= DRO__TENSOR_RANK);
        for (int k = 0; k < info->rank; k++)
            count *= (uint64_t)info->shape[k];
        FUZZ_CHECK(count == info->count && count <= 4096);
        FUZZ_CHECK(dro__safetensors_find(file, info->name) == (int64_t)i);
        float *values = malloc((size_t)count * sizeof *values + 1);
        if (fuzz_ok(ctx, dro__safetensors_read(file, i, values, (size_t)count)))
            for (uint64_t k = 0; k < count; k++) {
                FUZZ_CHECK(isfinite(values[k]));
                sum += (double)values[k] * (double)(k + 1);
            }
        else
            FUZZ_CHECK(!strchr(ctx->error, '\n'));
        free(values);
    }
    dro__safetensors_metadata(file, "k");
    return sum;
}

/* A real file, in memory: weights files are read with pread. */
static const char *real_file(const uint8_t *bytes, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("weights", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    FUZZ_CHECK(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    return path;
}

static void look_both_ways(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__safetensors *file, *again;
    if (!fuzz_ok(ctx, dro__safetensors_memory(ctx, "fuzz", bytes, size, &file))) {
        FUZZ_CHECK(!file && strncmp(ctx->error, "fuzz: ", 6) == 0 && !strchr(ctx->error, '\n'));
        return;
    }
    FUZZ_CHECK(fuzz_ok(ctx, dro__safetensors_open(ctx, real_file(bytes, size), &again)));
    FUZZ_CHECK(dro__safetensors_count(file) == dro__safetensors_count(again));
    FUZZ_CHECK(look(ctx, file) == look(ctx, again));
    dro__safetensors_close(file);
    dro__safetensors_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t header;
    if (size < 2 || bytes[0] != '{' || bytes[1] == 0) {
        look_both_ways(bytes, size);
        return 0;
    }
    size_t values = fuzz_cut(bytes, size, 0, &header);
    uint8_t *whole = malloc(8 + header + values);
    for (int k = 0; k < 8; k++)
        whole[k] = (uint8_t)((uint64_t)header >> 8 * k);
    memcpy(whole + 8, bytes, header);
    memcpy(whole + 8 + header, bytes + size - values, values);
    look_both_ways(whole, 8 + header + values);
    free(whole);
    return 0;
}
