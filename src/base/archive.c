/* The archive: a flat buffer that one walk over the fields measures, writes or reads. */
#include "base.h"

#include <string.h>

void dro__archive_bytes(dro__archive *ar, void *data, size_t size)
{
    if (ar->mode != DRO__ARCHIVE_MEASURE) {
        if (ar->failed || size > ar->size - ar->used) {
            ar->failed = true;
            return;
        }
        if (size == 0)
            return;
        if (ar->mode == DRO__ARCHIVE_SAVE)
            memcpy(ar->bytes + ar->used, data, size);
        else
            memcpy(data, ar->bytes + ar->used, size);
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
