/* A set of names, numbered in the order in which they were first seen: a hash table with open
 * addressing over 64-bit checksums. And the names of files. */
#include "data.h"

#include <string.h>
#include <sys/stat.h>

static size_t slot_of(const dro__names *n, const char *text, size_t length)
{
    size_t mask = n->slot_count - 1, at = dro__checksum(0, text, length) & mask;
    while (n->slots[at] >= 0) {
        const char *name = n->names[n->slots[at]];
        if (strlen(name) == length && memcmp(name, text, length) == 0)
            break;
        at = (at + 1) & mask;
    }
    return at;
}

int32_t dro__names_find(const dro__names *n, const char *text, size_t length)
{
    return n->slot_count ? n->slots[slot_of(n, text, length)] : -1;
}

static dro_status rehash(dro_context *ctx, dro__names *n)
{
    size_t size = n->slot_count ? n->slot_count * 2 : 64;
    int32_t *slots = dro__alloc(size, sizeof *slots);
    if (!slots)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu names", n->count);
    memset(slots, -1, size * sizeof *slots);
    dro__free(n->slots);
    n->slots = slots;
    n->slot_count = size;
    for (size_t k = 0; k < n->count; k++)
        slots[slot_of(n, n->names[k], strlen(n->names[k]))] = (int32_t)k;
    return DRO_OK;
}

dro_status dro__names_add(dro_context *ctx, dro__names *n, const char *text, size_t length,
                          int32_t *number)
{
    int32_t found = dro__names_find(n, text, length);
    if (found >= 0) {
        *number = found;
        return DRO_OK;
    }
    if (n->count >= INT32_MAX / 2)
        return dro__fail(ctx, DRO_ERR_RANGE, "more than %d names", INT32_MAX / 2);
    if (2 * (n->count + 1) > n->slot_count)
        DRO_TRY(rehash(ctx, n));
    DRO_TRY(dro__grow(ctx, (void **)&n->names, &n->capacity, n->count + 1, sizeof *n->names));
    char *copy = dro__alloc(length + 1, 1);
    if (!copy)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a name of %zu characters", length);
    memcpy(copy, text, length);
    n->slots[slot_of(n, text, length)] = (int32_t)n->count;
    *number = (int32_t)n->count;
    n->names[n->count++] = copy;
    return DRO_OK;
}

void dro__names_free(dro__names *n)
{
    for (size_t k = 0; k < n->count; k++)
        dro__free(n->names[k]);
    dro__free(n->names);
    dro__free(n->slots);
    *n = (dro__names){0};
}

/* Each name is a block of its own, 64 bytes or more. */
uint64_t dro__names_bytes(const dro__names *n)
{
    uint64_t bytes = n->capacity * sizeof *n->names + n->slot_count * sizeof *n->slots;
    for (size_t k = 0; k < n->count; k++)
        bytes += strlen(n->names[k]) + 128;
    return bytes;
}

/* ---- paths ---- */

dro_status dro__path_join(dro_context *ctx, const char *dir, const char *name, char **path)
{
    size_t a = strlen(dir), b = strlen(name);
    char *text = dro__alloc(a + b + 2, 1);
    if (!text)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a path");
    memcpy(text, dir, a);
    if (a > 0 && b > 0 && dir[a - 1] != '/')
        text[a++] = '/';
    memcpy(text + a, name, b);
    *path = text;
    return DRO_OK;
}

bool dro__file_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && !S_ISDIR(about.st_mode);
}
