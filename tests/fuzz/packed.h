/* Files packed with gzip or zstd are left to fuzz_input: there a few bytes can be a hundred
 * megabytes, all of them good. */
#ifndef DRO_FUZZ_PACKED_H
#define DRO_FUZZ_PACKED_H

#include "fuzz.h"

static inline bool fuzz_packed(const uint8_t *bytes, size_t size)
{
    return (size >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0) ||
           (size >= 4 && memcmp(bytes + 1, "\xb5\x2f\xfd", 3) == 0) ||
           (size >= 4 && memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0);
}

#endif
