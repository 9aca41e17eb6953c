/* What the targets of the program share: its messages are checked instead of printed. The linker
 * (--wrap) sends cli_fail and cli_usage here. */
#ifndef DRO_FUZZ_CLI_H
#define DRO_FUZZ_CLI_H

#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"
#include "runs.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

int __wrap_cli_fail(const char *format, ...);
int __wrap_cli_usage(const char *format, ...);

static bool fuzz_told; /* since somebody looked */

static void fuzz_tell(const char *format, va_list list)
{
    static char text[1 << 16];
    FUZZ_CHECK(vsnprintf(text, sizeof text, format, list) > 0);
    fuzz_told = true;
}

int __wrap_cli_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fuzz_tell(format, list);
    va_end(list);
    return 1;
}

int __wrap_cli_usage(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fuzz_tell(format, list);
    va_end(list);
    return 2;
}

/* What is not success has been told. */
static inline bool fuzz_fine(int status)
{
    FUZZ_CHECK(status >= 0 && status <= 2 && (status == 0 || fuzz_told));
    fuzz_told = false;
    return status == 0;
}

/* The bytes as a file of the system, good until the next call with this slot. */
static inline const char *fuzz_real_file(int slot, const uint8_t *bytes, size_t size)
{
    static int fds[FUZZ_FILES];
    static char paths[FUZZ_FILES][32];
    if (!fds[slot]) {
        fds[slot] = memfd_create("fuzz", 0);
        snprintf(paths[slot], sizeof paths[slot], "/proc/self/fd/%d", fds[slot]);
    }
    FUZZ_CHECK(fds[slot] > 0 && ftruncate(fds[slot], (off_t)size) == 0);
    FUZZ_CHECK(pwrite(fds[slot], bytes, size, 0) == (ssize_t)size);
    return paths[slot];
}

#endif
