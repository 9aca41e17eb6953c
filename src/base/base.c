/* Status texts, the error line of a context, and memory. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dro_status_text(dro_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        DRO_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

dro_status dro__fail(dro_context *ctx, dro_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ctx->error, sizeof ctx->error, format, args);
    va_end(args);
    return status;
}

const char *dro_context_error(const dro_context *ctx)
{
    return ctx ? ctx->error : "";
}

int dro_context_threads(const dro_context *ctx)
{
    return ctx ? ctx->threads : 0;
}

void *dro__alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - 64)
        return NULL;
    bytes = (bytes + 63) / 64 * 64;
    if (bytes == 0)
        bytes = 64;
    void *pointer = aligned_alloc(64, bytes);
    if (pointer)
        memset(pointer, 0, bytes);
    return pointer;
}

void dro__free(void *pointer)
{
    free(pointer);
}
