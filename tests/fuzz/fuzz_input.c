/* Inputs, plain and packed: read in pieces, as lines and as a whole; all three must agree. The
 * first byte is the root of the size of the pieces; if it is one more than a multiple of 4 the
 * bytes are in a file, otherwise in memory. */
#define _GNU_SOURCE /* memfd_create, memmem */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT = 1 << 13, PIECE_MAX = 65 + 255 * 255 / 16 };

/* What reading in one way gave; a size beyond the limit means more than was kept. */
typedef struct outcome {
    dro_status status;
    const char *bytes;
    size_t size;
} outcome;

static void append(outcome *o, char *store, const char *bytes, size_t size)
{
    if (o->size + size <= LIMIT)
        memcpy(store + o->size, bytes, size);
    o->bytes = store;
    o->size += size;
}

static outcome by_pieces(dro__input *in, size_t piece)
{
    outcome o = {DRO_OK, NULL, 0};
    static char buffer[PIECE_MAX], store[LIMIT];
    size_t got = piece;
    while (o.status == DRO_OK && got == piece && o.size <= LIMIT) {
        o.status = dro__input_read(in, buffer, piece, &got);
        if (o.status == DRO_OK)
            append(&o, store, buffer, got);
    }
    return o;
}

static outcome by_lines(dro__input *in)
{
    static char store[LIMIT];
    outcome o = {DRO_OK, NULL, 0};
    char *begin, *end;
    do {
        o.status = dro__input_lines(in, &begin, &end);
        if (o.status == DRO_OK && begin < end) {
            FUZZ_CHECK(end[-1] == '\n');
            append(&o, store, begin, (size_t)(end - begin));
        }
    } while (o.status == DRO_OK && begin < end && o.size <= LIMIT);
    FUZZ_CHECK(o.status != DRO_OK || o.size > LIMIT || dro__input_offset(in) == o.size ||
               dro__input_offset(in) + 1 == o.size);
    return o;
}

/* A zstd frame that promises bytes and ends in an empty block: libzstd sees it in one pass, but not
 * in pieces. Either answer is right. */
static void compare(const outcome *a, const outcome *b, bool lines, bool zstd)
{
    if (a->size > LIMIT || b->size > LIMIT || (zstd && a->status != b->status))
        return;
    FUZZ_CHECK(a->status == b->status);
    if (a->status != DRO_OK)
        return;
    FUZZ_CHECK(a->size == b->size || (lines && b->size == a->size + 1));
    FUZZ_CHECK(a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

static outcome at_once(dro_context *ctx, dro__input *in, char **bytes)
{
    outcome o = {DRO_OK, NULL, 0};
    o.status = dro__input_all(in, LIMIT, bytes, &o.size);
    if (o.status != DRO_OK)
        o.size = strstr(ctx->error, "larger than") ? LIMIT + 1 : 0;
    o.bytes = *bytes;
    return o;
}

static dro_status open_one(dro_context *ctx, const uint8_t *bytes, size_t size, bool file,
                           dro__input **in)
{
    static int fd = -1;
    char path[32];
    if (!file)
        return dro__input_memory(ctx, "fuzz", bytes, size, in);
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return dro__input_open(ctx, path, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__input *in;
    outcome o[3] = {{0}};
    char *all = NULL;
    if (size == 0)
        return 0;
    bool file = bytes[0] % 4 == 1; /* not byte by byte: each would be a system call */
    size_t piece = (file ? 65 : 1) + (size_t)bytes[0] * bytes[0] / 16;
    for (int way = 0; way < 3; way++) {
        if (!fuzz_ok(ctx, open_one(ctx, bytes + 1, size - 1, file, &in)))
            break;
        o[way] = way == 0 ? by_pieces(in, piece) : way == 1 ? by_lines(in) : at_once(ctx, in, &all);
        fuzz_ok(ctx, o[way].status);
        dro__input_close(in);
    }
    bool zstd = memmem(bytes, size, "\x28\xb5\x2f\xfd", 4) != NULL;
    compare(&o[0], &o[1], true, zstd);
    compare(&o[0], &o[2], false, zstd);
    dro__free(all);
    return 0;
}
