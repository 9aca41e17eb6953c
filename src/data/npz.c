/* A .npz: a ZIP archive (PKWARE's APPNOTE 6.3), with the 64-bit sizes that NumPy writes. Nothing in
 * it is believed: the directory must lie at the end of the file, names must be unique and agree
 * with the local headers, entries must lie before the directory and apart from each other (no
 * quine, no overlap bomb), the unpacked size must be one that deflate can reach, equal what the
 * array's header declares, and have the right CRC-32. */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef DRO_WITH_ZLIB
#define DRO_WITH_ZLIB 0
#endif
#if DRO_WITH_ZLIB
#include <zlib.h>
#endif

enum {
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    CENTRAL_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT_MAX = 65535,
    STORED = 0,
    DEFLATED = 8,
    RATIO_MAX = 1032, /* what deflate can reach */
    NAME_SHOWN = 256
};

typedef struct entry {
    const uint8_t *name;
    size_t name_size;
    uint64_t local, data; /* where its local header and its bytes begin */
    uint64_t packed, size;
    uint32_t crc;
    uint16_t flags, method;
} entry;

struct dro__npz {
    dro_context *ctx;
    char name[NAME_SHOWN];
    const uint8_t *bytes;
    uint64_t size;
    uint64_t directory, directory_end;
    size_t count;
    entry *entries;
};

static uint64_t little(const uint8_t *p, int size)
{
    uint64_t value = 0;
    for (int k = 0; k < size; k++)
        value |= (uint64_t)p[k] << 8 * k;
    return value;
}

static dro_status bad(const dro__npz *z, uint64_t at, const char *expected)
{
    return dro__fail(z->ctx, DRO_ERR_DATA, "%s: damaged ZIP archive at byte %llu: expected %s",
                     z->name, (unsigned long long)at, expected);
}

/* ---- the directory ---- */

/* The 64-bit record of the end, which lies before its locator at `locator`. */
static dro_status read_end64(dro__npz *z, uint64_t locator, uint64_t *count, uint64_t *size)
{
    const uint8_t *p = z->bytes + locator;
    uint64_t at = little(p + 8, 8);
    if (little(p + 4, 4) != 0 || little(p + 16, 4) != 1)
        return bad(z, locator, "an archive on one disk");
    if (locator < END64_SIZE || at > locator - END64_SIZE)
        return bad(z, locator, "the 64-bit end record before its locator");
    p = z->bytes + at;
    if (little(p, 4) != 0x06064b50 || little(p + 4, 8) != locator - at - 12)
        return bad(z, at, "a 64-bit end record");
    if (little(p + 16, 4) || little(p + 20, 4) || little(p + 24, 8) != little(p + 32, 8))
        return bad(z, at, "an archive on one disk");
    *count = little(p + 32, 8);
    *size = little(p + 40, 8);
    z->directory = little(p + 48, 8);
    z->directory_end = at;
    return DRO_OK;
}

static dro_status read_end(dro__npz *z, uint64_t end)
{
    const uint8_t *p = z->bytes + end;
    uint64_t count = little(p + 10, 2), size = little(p + 12, 4);
    z->directory = little(p + 16, 4);
    z->directory_end = end;
    bool locator = end >= LOCATOR_SIZE && little(p - LOCATOR_SIZE, 4) == 0x07064b50;
    if (locator)
        DRO_TRY(read_end64(z, end - LOCATOR_SIZE, &count, &size));
    else if (little(p + 4, 2) || little(p + 6, 2) || little(p + 8, 2) != count)
        return bad(z, end, "an archive on one disk");
    if (z->directory > z->directory_end || size != z->directory_end - z->directory)
        return bad(z, end, "a directory that ends where its end record begins");
    if (count > size / CENTRAL_SIZE)
        return bad(z, end, "no more entries than the directory can hold");
    z->count = (size_t)count;
    return DRO_OK;
}

static dro_status find_end(dro__npz *z)
{
    for (uint64_t back = END_SIZE; back <= END_SIZE + COMMENT_MAX && back <= z->size; back++) {
        const uint8_t *p = z->bytes + (z->size - back);
        if (little(p, 4) == 0x06054b50 && little(p + 20, 2) == back - END_SIZE)
            return read_end(z, z->size - back);
    }
    return bad(z, z->size, "the end record of a .npz (truncated?)");
}

/* Sizes that do not fit 32 bits are in the extra field 1, in this order. */
static dro_status read_extra(const dro__npz *z, const uint8_t *p, uint64_t size, uint64_t at,
                             entry *e)
{
    uint64_t *fields[] = {&e->size, &e->packed, &e->local};
    for (uint64_t used = 0; used + 4 <= size;) {
        uint64_t id = little(p + used, 2), length = little(p + used + 2, 2), taken = 0;
        used += 4;
        if (length > size - used)
            return bad(z, at, "an extra field within its entry");
        for (int k = 0; id == 1 && k < 3; k++) {
            if (*fields[k] != UINT32_MAX)
                continue;
            if (taken + 8 > length)
                return bad(z, at, "64-bit sizes in the extra field");
            *fields[k] = little(p + used + taken, 8);
            taken += 8;
        }
        used += length;
    }
    return DRO_OK;
}

/* The local header must agree; says where the bytes begin. */
static dro_status read_local(const dro__npz *z, entry *e)
{
    if (z->directory < LOCAL_SIZE || e->local > z->directory - LOCAL_SIZE)
        return bad(z, e->local, "entries before the directory");
    const uint8_t *p = z->bytes + e->local;
    uint64_t left = z->directory - e->local - LOCAL_SIZE;
    uint64_t before = little(p + 26, 2) + little(p + 28, 2);
    if (little(p, 4) != 0x04034b50 || little(p + 26, 2) != e->name_size || before > left ||
        memcmp(p + LOCAL_SIZE, e->name, e->name_size) != 0 || little(p + 8, 2) != e->method)
        return bad(z, e->local, "an entry as the directory describes it");
    if (e->packed > left - before)
        return bad(z, e->local, "entries before the directory");
    e->data = e->local + LOCAL_SIZE + before;
    return DRO_OK;
}

/* One entry of the directory at *at, which moves on. */
static dro_status read_central(const dro__npz *z, uint64_t *at, entry *e)
{
    uint64_t left = z->directory_end - *at;
    const uint8_t *p = z->bytes + *at;
    if (left < CENTRAL_SIZE || little(p, 4) != 0x02014b50)
        return bad(z, *at, "an entry of the directory");
    uint64_t name = little(p + 28, 2), extra = little(p + 30, 2), comment = little(p + 32, 2);
    if (name + extra + comment > left - CENTRAL_SIZE)
        return bad(z, *at, "an entry within the directory");
    *e = (entry){.name = p + CENTRAL_SIZE,
                 .name_size = (size_t)name,
                 .flags = (uint16_t)little(p + 8, 2),
                 .method = (uint16_t)little(p + 10, 2),
                 .crc = (uint32_t)little(p + 16, 4),
                 .packed = little(p + 20, 4),
                 .size = little(p + 24, 4),
                 .local = little(p + 42, 4)};
    DRO_TRY(read_extra(z, p + CENTRAL_SIZE + name, extra, *at, e));
    if (e->method == STORED ? e->size != e->packed : e->size / RATIO_MAX > e->packed)
        return bad(z, *at, "an uncompressed size that the compressed bytes can have");
    *at += CENTRAL_SIZE + name + extra + comment;
    return read_local(z, e);
}

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->local < y->local ? -1 : x->local > y->local;
}

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    size_t shorter = x->name_size < y->name_size ? x->name_size : y->name_size;
    int order = memcmp(x->name, y->name, shorter);
    return order ? order : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

static dro_status read_directory(dro__npz *z)
{
    DRO_TRY(find_end(z));
    uint64_t at = z->directory;
    z->entries = dro__alloc(z->count, sizeof *z->entries);
    if (!z->entries)
        return dro__fail(z->ctx, DRO_ERR_MEMORY, "%s: no memory for %zu entries", z->name,
                         z->count);
    for (size_t k = 0; k < z->count; k++)
        DRO_TRY(read_central(z, &at, &z->entries[k]));
    if (at != z->directory_end)
        return bad(z, at, "the end of the directory");
    qsort(z->entries, z->count, sizeof *z->entries, by_place);
    for (size_t k = 1; k < z->count; k++)
        if (z->entries[k - 1].data + z->entries[k - 1].packed > z->entries[k].local)
            return bad(z, z->entries[k].local, "entries that do not overlap");
    qsort(z->entries, z->count, sizeof *z->entries, by_name);
    for (size_t k = 1; k < z->count; k++)
        if (by_name(&z->entries[k - 1], &z->entries[k]) == 0)
            return bad(z, z->entries[k].local, "every name once");
    return DRO_OK;
}

dro_status dro__npz_open(dro_context *ctx, const char *name, const void *bytes, size_t size,
                         dro__npz **npz)
{
    dro__npz *z = dro__alloc(1, sizeof *z);
    if (!z)
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to read it", name);
    z->ctx = ctx;
    z->bytes = bytes;
    z->size = size;
    snprintf(z->name, sizeof z->name, "%s", name);
    dro_status status = read_directory(z);
    if (status == DRO_OK)
        *npz = z;
    else
        dro__npz_close(z);
    return status;
}

void dro__npz_close(dro__npz *z)
{
    if (z)
        dro__free(z->entries);
    dro__free(z);
}

/* ---- entries ---- */

typedef struct reader {
    dro__npy_source source; /* first: the source is the reader */
    char name[NAME_SHOWN + 64];
    const uint8_t *packed;
    uint64_t packed_left, left;
    uint32_t crc, expected;
    bool deflated, checked;
#if DRO_WITH_ZLIB
    z_stream stream;
    bool live;
#endif
} reader;

static uint32_t add_crc(uint32_t crc, const uint8_t *bytes, size_t size)
{
#if DRO_WITH_ZLIB
    return (uint32_t)crc32_z(crc, bytes, size);
#else
    crc = ~crc;
    for (size_t k = 0; k < size; k++) {
        crc ^= bytes[k];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
#endif
}

static dro_status damaged(const reader *r, const char *why)
{
    return dro__fail(r->source.ctx, DRO_ERR_DATA, "%s: damaged entry: %s", r->name, why);
}

#if DRO_WITH_ZLIB
/* Up to size bytes; *ended when the packed stream says so. */
static dro_status unpack(reader *r, uint8_t *bytes, size_t size, size_t *got, bool *ended)
{
    z_stream *s = &r->stream;
    *got = 0;
    *ended = false;
    while (*got < size && !*ended) {
        size_t space = size - *got;
        uInt out = space < 1u << 30 ? (uInt)space : 1u << 30;
        uInt in = r->packed_left < 1u << 30 ? (uInt)r->packed_left : 1u << 30;
        s->next_in = (Bytef *)r->packed; /* zlib does not write there */
        s->avail_in = in;
        s->next_out = bytes + *got;
        s->avail_out = out;
        int code = inflate(s, Z_NO_FLUSH);
        r->packed += in - s->avail_in;
        r->packed_left -= in - s->avail_in;
        *got += out - s->avail_out;
        *ended = code == Z_STREAM_END;
        if (code != Z_OK && !*ended)
            return damaged(r, s->msg ? s->msg : "the packed bytes end too early");
    }
    return DRO_OK;
}
#endif

/* All bytes were read: checks that this is the end of the entry, and their checksum. */
static dro_status check_end(reader *r)
{
    r->checked = true;
#if DRO_WITH_ZLIB
    uint8_t extra;
    size_t got = 0;
    bool ended = true;
    if (r->deflated)
        DRO_TRY(unpack(r, &extra, 1, &got, &ended));
    if (got > 0 || !ended)
        return damaged(r, "it unpacks to more than its size");
#endif
    if (r->packed_left > 0)
        return damaged(r, "packed bytes are left over");
    if (r->crc != r->expected)
        return damaged(r, "its checksum (CRC-32) is wrong");
    return DRO_OK;
}

static dro_status read_entry(dro__npy_source *source, void *bytes, size_t size, size_t *got)
{
    reader *r = (reader *)source;
    size_t count = r->left < size ? (size_t)r->left : size;
    *got = 0;
    if (!r->deflated) {
        memcpy(bytes, r->packed, count);
        r->packed += count;
        r->packed_left -= count;
    }
#if DRO_WITH_ZLIB
    size_t unpacked;
    bool ended;
    if (r->deflated) {
        DRO_TRY(unpack(r, bytes, count, &unpacked, &ended));
        if (unpacked < count)
            return damaged(r, "it unpacks to less than its size");
    }
#endif
    r->crc = add_crc(r->crc, bytes, count);
    r->left -= count;
    if (count < size && !r->checked)
        DRO_TRY(check_end(r));
    *got = count;
    return DRO_OK;
}

static const entry *find(const dro__npz *z, const char *key)
{
    size_t length = strlen(key);
    for (size_t k = 0; k < z->count; k++) {
        const entry *e = &z->entries[k];
        if (e->name_size == length + 4 && memcmp(e->name, key, length) == 0 &&
            memcmp(e->name + length, ".npy", 4) == 0)
            return e;
    }
    return NULL;
}

bool dro__npz_has(const dro__npz *z, const char *key)
{
    return find(z, key) != NULL;
}

void dro__npz_list(const dro__npz *z, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (size_t k = 0; k < z->count && used < size; k++) {
        const entry *e = &z->entries[k];
        size_t length = e->name_size >= 4 ? e->name_size - 4 : 0;
        used += (size_t)snprintf(text + used, size - used, " %.*s",
                                 (int)(length < 40 ? length : 40), (const char *)e->name);
    }
}

static dro_status no_such(const dro__npz *z, const char *key)
{
    char all[160];
    dro__npz_list(z, all, sizeof all);
    return dro__fail(z->ctx, DRO_ERR_DATA, "%s: no array '%.40s': expected one of%s", z->name, key,
                     all);
}

dro_status dro__npz_entry(dro__npz *z, const char *key, dro__npy_source **source)
{
    const entry *e = find(z, key);
    if (!e)
        return no_such(z, key);
    if (e->flags & 1)
        return dro__fail(z->ctx, DRO_ERR_UNSUPPORTED, "%s: %s is encrypted", z->name, key);
    if (e->method != STORED && !(e->method == DEFLATED && DRO_WITH_ZLIB))
        return dro__fail(z->ctx, DRO_ERR_UNSUPPORTED,
                         "%s: %s is compressed by method %d: expected stored%s", z->name, key,
                         e->method,
                         DRO_WITH_ZLIB ? " or deflated" : " (this libdro was built without zlib)");
    reader *r = dro__alloc(1, sizeof *r);
    if (!r)
        return dro__fail(z->ctx, DRO_ERR_MEMORY, "%s: no memory to read %s", z->name, key);
    snprintf(r->name, sizeof r->name, "%s: %.50s", z->name, key);
    r->packed = z->bytes + e->data;
    r->packed_left = e->packed;
    r->left = e->size;
    r->expected = e->crc;
    r->deflated = e->method == DEFLATED;
    r->source = (dro__npy_source){
        .ctx = z->ctx, .name = r->name, .read = read_entry, .guess = e->size, .size = e->size};
#if DRO_WITH_ZLIB
    r->live = r->deflated && inflateInit2(&r->stream, -15) == Z_OK;
    if (r->deflated && !r->live) {
        dro__free(r);
        return dro__fail(z->ctx, DRO_ERR_MEMORY, "%s: no memory to decompress %s", z->name, key);
    }
#endif
    *source = &r->source;
    return DRO_OK;
}

void dro__npz_entry_close(dro__npy_source *source)
{
    reader *r = (reader *)source;
#if DRO_WITH_ZLIB
    if (r && r->live)
        inflateEnd(&r->stream);
#endif
    dro__free(r);
}
