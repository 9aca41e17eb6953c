/* Checkpoints: any bytes behind a checksum that fits. A whole one is read, anything else is an
 * error, and nothing is read beyond the file. The mutator seals what it has changed: sizes stay
 * what they became, the checksum is made again. */
#include "../../src/train/checkpoint.c"
#include "fuzz.h"

static const uint8_t *given;
static size_t given_size;

/* In place of disk.c: last.ckpt is the input, and there is no other. */
dro_status dro__file_read(dro_context *ctx, const char *folder, const char *name, char **bytes,
                          size_t *size)
{
    (void)ctx, (void)folder;
    *bytes = strcmp(name, "last.ckpt") == 0 ? dro__alloc(given_size + 1, 1) : NULL;
    *size = *bytes ? given_size : 0;
    if (*bytes)
        memcpy(*bytes, given, given_size);
    return DRO_OK;
}

dro_status dro__file_begin(dro_context *ctx, const char *folder, const char *name, const char *keep,
                           dro__new_file *file)
{
    (void)ctx, (void)folder, (void)name, (void)keep, (void)file;
    return DRO_OK;
}

dro_status dro__file_write(dro__new_file *file, const void *bytes, size_t size)
{
    (void)file, (void)bytes, (void)size;
    return DRO_OK;
}

dro_status dro__file_end(dro__new_file *file, dro_status status)
{
    (void)file;
    return status;
}

bool dro__file_at(const char *folder, const char *name, bool *plain)
{
    (void)folder, (void)name;
    if (plain)
        *plain = true;
    return true;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Nine times in ten the length fits the sizes of the parts, and the checksum the bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    header h;
    uint64_t sum;
    size = LLVMFuzzerMutate(data, size, most);
    if (seed % 10 == 0 || size < sizeof h + sizeof(dro__progress) + 2 + sizeof sum)
        return size;
    memcpy(&h, data, sizeof h);
    memcpy(h.magic, MAGIC, sizeof h.magic);
    h.version = VERSION;
    h.size = size;
    if (seed % 3) { /* the state takes what is left */
        h.has_best &= 1;
        h.settings = 1 + h.settings % 64;
        h.machine = 1 + h.machine % 64;
        h.more %= 128;
        h.dim %= 64;
        h.statistics %= 16;
        uint64_t fixed = sizeof h + sizeof(dro__progress) + h.settings + h.machine + h.more +
                         4 * (h.statistics + h.has_best * (h.dim + h.statistics)) + sizeof sum;
        h.state = size > fixed ? size - fixed : 0;
        size_t texts = sizeof h + sizeof(dro__progress);
        if (size > fixed) {
            data[texts + h.settings - 1] = '\0';
            data[texts + h.settings + h.machine - 1] = '\0';
        }
    }
    memcpy(data, &h, sizeof h);
    sum = dro__checksum_long(0, data, size - sizeof sum);
    memcpy(data + size - sizeof sum, &sum, sizeof sum);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__saved saved = {0};
    bool found;
    char note[DRO__ERROR_SIZE];
    given = data;
    given_size = size;
    dro_status status = dro__checkpoint_read(ctx, "", &saved, &found, note);
    FUZZ_CHECK(found == fuzz_ok(ctx, status));
    if (!found)
        return 0;
    /* All that it says is there. */
    volatile uint64_t sum = strlen(saved.settings) + strlen(saved.machine);
    sum += dro__checksum(0, saved.state, saved.state_size);
    sum += dro__checksum(0, saved.more, saved.more_size);
    sum += dro__checksum(0, saved.statistics, saved.statistics_count * sizeof(float));
    if (saved.best_w)
        sum += dro__checksum(0, saved.best_w, saved.dim * sizeof(float));
    (void)sum;
    dro__saved_free(&saved);
    return 0;
}
