/* Status texts, the error line of a context, and memory. */
#define _GNU_SOURCE /* madvise */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

dro_status(dro__fail)(dro_context *ctx, dro_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ctx->error, sizeof ctx->error, format, args);
    va_end(args);
    dro__utf8_escape(ctx->error); /* a text may quote a file */
    return status;
}

dro_status dro__take_struct(dro_context *ctx, const char *type, const void *from, void *to,
                            size_t size)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given < sizeof given || given > size)
        return dro__fail(
            ctx, DRO_ERR_ARGUMENT,
            "%s: size is %zu: set it to sizeof(%s); the headers must not be newer than the library",
            type, given, type);
    memset(to, 0, size);
    memcpy(to, from, given);
    return DRO_OK;
}

const char *dro_context_error(const dro_context *ctx)
{
    return ctx ? ctx->error : "";
}

int dro_context_threads(const dro_context *ctx)
{
    return ctx ? ctx->threads : 0;
}

static _Thread_local bool ran_out;

void dro__memory_watch(void)
{
    ran_out = false;
}

bool dro__memory_ran_out(void)
{
    return ran_out;
}

void dro__memory_lost(void)
{
    ran_out = true;
}

/* Gives the pages back. The system zeroes them when they are first used, by whichever thread that
 * is; pages that are never used cost nothing. False: they are as they were (locked memory). */
static bool new_pages(void *pointer, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(pointer, bytes, MADV_HUGEPAGE);
#endif
    return madvise(pointer, bytes, MADV_DONTNEED) == 0;
}

static void *allocate(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    /* Large blocks are made of large pages, where the system has them: fewer misses of the page
     * tables. */
    enum { LINE = 64, HUGE_PAGE = 1 << 21 };
    size_t unit = bytes < 4 * (size_t)HUGE_PAGE ? LINE : HUGE_PAGE;
    if (bytes > SIZE_MAX - unit)
        return NULL;
    bytes = bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
    void *pointer = aligned_alloc(unit, bytes);
    if (!pointer || (unit == HUGE_PAGE && new_pages(pointer, bytes)))
        return pointer;
    memset(pointer, 0, bytes);
    return pointer;
}

void *dro__alloc(size_t count, size_t size)
{
    void *pointer = allocate(count, size);
    if (!pointer)
        ran_out = true;
    return pointer;
}

void dro__free(void *pointer)
{
    free(pointer);
}
