/* Growing text, escaping, numbers for people, and writing a file as a whole (buffer.h). */
#define _GNU_SOURCE /* realpath */
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- growing ---- */

void dro__buffer_free(dro__buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (dro__buffer){0};
}

/* Room for `more` bytes and the NUL. */
static bool reserve(dro__buffer *buffer, size_t more)
{
    if (buffer->failed || more > SIZE_MAX / 4 - buffer->size) {
        buffer->failed = true;
        return false;
    }
    if (buffer->size + more + 1 <= buffer->capacity)
        return true;
    size_t capacity = 2 * (buffer->size + more) + 256;
    char *bytes = realloc(buffer->bytes, capacity);
    buffer->failed = !bytes;
    if (!bytes)
        dro__memory_lost();
    if (bytes) {
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    return bytes != NULL;
}

void dro__buffer_bytes(dro__buffer *buffer, const void *bytes, size_t size)
{
    if (!reserve(buffer, size))
        return;
    if (size)
        memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    buffer->bytes[buffer->size] = '\0';
}

void dro__buffer_add(dro__buffer *buffer, const char *text)
{
    dro__buffer_bytes(buffer, text, strlen(text));
}

void dro__buffer_print(dro__buffer *buffer, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int size = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (size >= 0 && reserve(buffer, (size_t)size)) {
        vsnprintf(buffer->bytes + buffer->size, (size_t)size + 1, format, again);
        buffer->size += (size_t)size;
    }
    va_end(again);
}

char *dro__copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = dro__alloc(size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* ---- letters ---- */

int dro__utf8_count(const char *text)
{
    int count = 0;
    for (; *text; count++) {
        int size = dro__utf8_length(text);
        text += size ? size : 1;
    }
    return count;
}

/* Characters that XML does not allow, or that change the direction of writing. */
static bool forbidden(const char *text, int size)
{
    const unsigned char *b = (const unsigned char *)text;
    if (size == 0 || b[0] < 0x20 || b[0] == 0x7f)
        return true;
    if (size == 2)
        return b[0] == 0xc2 && b[1] < 0xa0;
    if (size == 3 && b[0] == 0xe2 &&
        ((b[1] == 0x80 && b[2] >= 0xaa && b[2] <= 0xae) ||
         (b[1] == 0x81 && b[2] >= 0xa6 && b[2] <= 0xa9)))
        return true;
    return size == 3 && b[0] == 0xef && b[1] == 0xbf && b[2] >= 0xbe;
}

void dro__buffer_escape_cut(dro__buffer *buffer, const char *text, int letters)
{
    bool cut = dro__utf8_count(text) > letters;
    for (int k = 0; *text && k < (cut ? letters - 1 : letters); k++) {
        int size = dro__utf8_length(text);
        if (forbidden(text, size))
            dro__buffer_add(buffer, *text == '\n' || *text == '\t' ? " " : "\xef\xbf\xbd");
        else if (*text == '<')
            dro__buffer_add(buffer, "&lt;");
        else if (*text == '>')
            dro__buffer_add(buffer, "&gt;");
        else if (*text == '&')
            dro__buffer_add(buffer, "&amp;");
        else if (*text == '"')
            dro__buffer_add(buffer, "&quot;");
        else if (*text == '\'')
            dro__buffer_add(buffer, "&#39;");
        else
            dro__buffer_bytes(buffer, text, (size_t)size);
        text += size ? size : 1;
    }
    if (cut)
        dro__buffer_add(buffer, "\xe2\x80\xa6");
}

void dro__buffer_escape(dro__buffer *buffer, const char *text)
{
    dro__buffer_escape_cut(buffer, text, 1 << 30);
}

void dro__buffer_slug(dro__buffer *buffer, const char *text)
{
    bool dash = true;
    for (int k = 0; *text && k < 40; text++, k++) {
        char c = (char)(*text >= 'A' && *text <= 'Z' ? *text + 32 : *text);
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (plain || !dash)
            dro__buffer_bytes(buffer, plain ? &c : "-", 1);
        dash = !plain;
    }
}

/* ---- numbers ---- */

const char *dro__show_real(char out[DRO__NUMBER], double value)
{
    snprintf(out, DRO__NUMBER, isfinite(value) ? "%.4g" : "\xe2\x80\x93", value);
    return out;
}

const char *dro__show_share(char out[DRO__NUMBER], double value)
{
    if (!(fabs(value) < 1e6)) /* not a share: no digits to spare */
        return dro__show_real(out, 100 * value);
    /* without the noise of its last bits: what is equal looks equal */
    snprintf(out, DRO__NUMBER, "%.1f", round(1e11 * value) / 1e9);
    return out;
}

const char *dro__show_count(char out[DRO__NUMBER], double value)
{
    char digits[DRO__NUMBER];
    if (!(fabs(value) < 1e12))
        return dro__show_real(out, value);
    int size = snprintf(digits, sizeof digits, "%.0f", fabs(value)), used = 0;
    if (value < 0 && strcmp(digits, "0") != 0)
        out[used++] = '-';
    for (int k = 0; k < size; k++) {
        if (k && (size - k) % 3 == 0 && size > 4) {
            memcpy(out + used, "\xe2\x80\x89", 3);
            used += 3;
        }
        out[used++] = digits[k];
    }
    out[used] = '\0';
    return out;
}

const char *dro__show_short(char out[DRO__NUMBER], double value)
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++)
        if (fabs(value) >= units[k].size && fabs(value) < 1e15) {
            snprintf(out, DRO__NUMBER, "%.6g%s", value / units[k].size, units[k].name);
            return out;
        }
    snprintf(out, DRO__NUMBER, "%.6g", fabs(value) < 1e-12 ? 0 : value);
    return out;
}

const char *dro__show_time(char out[DRO__NUMBER], double seconds)
{
    double whole = floor(seconds + 0.5);
    if (!isfinite(seconds) || seconds < 0 || seconds >= 1e12)
        return dro__show_real(out, seconds < 0 ? NAN : seconds);
    if (whole < 120)
        snprintf(out, DRO__NUMBER, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
    else if (whole < 7200)
        snprintf(out, DRO__NUMBER, "%.0f min %.0f s", floor(whole / 60), fmod(whole, 60));
    else
        snprintf(out, DRO__NUMBER, "%.0f h %.0f min", floor(whole / 3600),
                 floor(fmod(whole, 3600) / 60));
    return out;
}

/* ---- a file ---- */

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = write(fd, bytes, size);
        if (count < 0 && errno != EINTR)
            return false;
        bytes += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* Where the bytes are written first: a temporary file, which then replaces the file; or the device
 * or pipe itself, which may not be replaced. NULL: no memory. */
static char *first_path(const char *path, bool direct)
{
    enum { LONGEST = 200 }; /* bytes of a name to which a process number and .tmp are added */
    char *made = dro__alloc(strlen(path) + 32, 1);
    const char *slash = strrchr(path, '/');
    int most = LONGEST + (slash ? (int)(slash + 1 - path) : 0);
    if (made && direct)
        strcpy(made, path);
    else if (made)
        sprintf(made, "%.*s.%ld.tmp", most, path, (long)getpid());
    return made;
}

dro_status dro__write_file(dro_context *ctx, const char *path, const void *bytes, size_t size)
{
    struct stat about;
    bool exists = stat(path, &about) == 0, direct = exists && !S_ISREG(about.st_mode);
    if (!exists && lstat(path, &about) == 0)
        return dro__fail(ctx, DRO_ERR_FILE,
                         "%s: cannot write it: it is a link to a file that does not exist", path);
    char *real = direct ? NULL : realpath(path, NULL); /* what a link points to */
    const char *target = real ? real : path;
    char *first = first_path(target, direct);
    if (!first) {
        free(real);
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to write it", path);
    }
    int fd = open(first, O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_TRUNC), 0666);
    bool fine = fd >= 0 && write_all(fd, bytes, size) && (direct || fsync(fd) == 0);
    int error = fine ? 0 : errno;
    if (fd >= 0 && close(fd) != 0 && fine)
        fine = false, error = errno;
    if (fine && !direct && rename(first, target) != 0)
        fine = false, error = errno;
    if (!fine && !direct && fd >= 0)
        unlink(first);
    dro__free(first);
    free(real);
    if (!fine)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: cannot write it: %s", path, strerror(error));
    return DRO_OK;
}
