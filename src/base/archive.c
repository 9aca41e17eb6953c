/* The archive: a flat buffer that one walk over the fields measures, writes or reads; and the
 * checksums of such buffers. */
#include "base.h"

#include <string.h>

size_t dro__archive_some(dro__archive *ar, size_t size)
{
    if (!ar->failed && size > 0 && ar->used == ar->size && ar->flush) {
        ar->status = ar->flush(ar);
        ar->failed = ar->status != DRO_OK;
    }
    size_t left = ar->size - ar->used;
    ar->failed = ar->failed || (size > left && !ar->flush);
    if (ar->failed)
        return 0;
    return size < left ? size : left;
}

void dro__archive_bytes(dro__archive *ar, void *data, size_t size)
{
    unsigned char *at = data;
    size_t some = size;
    for (; ar->mode != DRO__ARCHIVE_MEASURE && size > 0; at += some, size -= some) {
        some = dro__archive_some(ar, size);
        if (some == 0)
            return;
        if (ar->mode == DRO__ARCHIVE_SAVE)
            memcpy(ar->bytes + ar->used, at, some);
        else
            memcpy(at, ar->bytes + ar->used, some);
        ar->used += some;
    }
    ar->used += size;
}

void dro__archive_flag(dro__archive *ar, bool *flag)
{
    unsigned char byte = *flag;
    dro__archive_bytes(ar, &byte, sizeof byte);
    if (byte > 1)
        ar->failed = true;
    else
        *flag = byte;
}

uint64_t dro__checksum(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    if (hash == 0)
        hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* Each step is invertible in the lane and in the word, so a change of a single word always changes
 * the sum. */
static uint64_t stir(uint64_t lane, uint64_t word)
{
    lane ^= word;
    return (lane << 27 | lane >> 37) * 0x9e3779b97f4a7c15u;
}

static uint64_t sum_block(uint64_t hash, const unsigned char *bytes, size_t size)
{
    enum { LANES = 4, STRIDE = LANES * sizeof(uint64_t) };
    uint64_t lanes[LANES], words[LANES] = {0};
    size_t whole = size / STRIDE * STRIDE;
    for (int k = 0; k < LANES; k++)
        lanes[k] = hash + (uint64_t)k;
    for (size_t at = 0; at < whole; at += STRIDE) {
        memcpy(words, bytes + at, STRIDE);
        for (int k = 0; k < LANES; k++)
            lanes[k] = stir(lanes[k], words[k]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, bytes + whole, size - whole);
    hash = stir(hash, size);
    for (int k = 0; k < LANES; k++)
        hash = stir(hash, stir(lanes[k], words[k]));
    return hash ^ hash >> 32;
}

uint64_t dro__checksum_long(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t at = 0; at < size; at += DRO__SUM_BLOCK)
        hash = sum_block(hash, bytes + at, size - at < DRO__SUM_BLOCK ? size - at : DRO__SUM_BLOCK);
    return hash;
}
