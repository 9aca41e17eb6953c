/* Inputs, plain and packed: read in pieces, as lines and as a whole; all three must agree. The first byte
 * is the root of the size of the pieces. */
#include "fuzz.h"

enum { LIMIT = 1 << 17, PIECE_MAX = 1 + 255 * 255 };

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

static void compare(const outcome *a, const outcome *b, bool lines)
{
    if (a->size > LIMIT || b->size > LIMIT)
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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__input *in;
    outcome o[3] = {{0}};
    char *all = NULL;
    if (size == 0)
        return 0;
    size_t piece = 1 + (size_t)bytes[0] * bytes[0];
    for (int way = 0; way < 3; way++) {
        if (!fuzz_ok(ctx, dro__input_memory(ctx, "fuzz", bytes + 1, size - 1, &in)))
            break;
        o[way] = way == 0 ? by_pieces(in, piece) : way == 1 ? by_lines(in) : at_once(ctx, in, &all);
        fuzz_ok(ctx, o[way].status);
        dro__input_close(in);
    }
    compare(&o[0], &o[1], true);
    compare(&o[0], &o[2], false);
    dro__free(all);
    return 0;
}
