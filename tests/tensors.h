/* Helpers of the tests of weights files. */
#ifndef DRO_TENSORS_H
#define DRO_TENSORS_H

#include "data_dir.h"

#include "safetensors.h"

/* Without JSON there is nothing to test but the line that says so. */
static inline void need_json(void)
{
    dro_status status = dro__safetensors_write(ctx, in_dir("probe"), NULL, 0, NULL);
    if (status == DRO_ERR_UNSUPPORTED && strstr(dro_context_error(ctx), "libjansson-dev")) {
        print_message("skipped: %s\n", dro_context_error(ctx));
        skip();
    }
    OK(ctx, status);
    remove_file("probe");
}

/* A header, with its length in front, and values; free() it. */
static inline unsigned char *make(const char *header, const void *values, size_t count,
                                  size_t *size)
{
    size_t length = strlen(header);
    unsigned char *bytes = calloc(1, 8 + length + count + 1);
    for (int k = 0; k < 8; k++)
        bytes[k] = (unsigned char)((uint64_t)length >> 8 * k);
    memcpy(bytes + 8, header, length);
    if (values)
        memcpy(bytes + 8 + length, values, count);
    *size = 8 + length + count;
    return bytes;
}

#endif
