/* Bytes of a file, of stdin or of memory; gzip (several members) and zstd (several frames) are
 * recognised by their first bytes and unpacked on the way. Memory is bounded: one block of packed
 * bytes, one window of lines, and the decompressor's own window (zstd: 128 MiB at most).
 *
 * * One input is read either by lines or by bytes, not by both. A pipe hands over what it has: a
 * window of lines never waits for more than one line. Several files are read by lines. */
#define _GNU_SOURCE /* memrchr */
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if DRO_WITH_ZLIB
#include <zlib.h>
#endif
#if DRO_WITH_ZSTD
#include <zstd.h>
#endif

enum {
    NAME_SIZE = 200,
    PEEK_SIZE = 4,
    WINDOW_FIRST = 1 << 21,
    WINDOW_MIN = 1 << 12,
    LINE_MAX_BYTES = 1 << 26,
    PIPE_MOMENTS = 150, /* of 20 ms */
    UTF8_MOST = 3,      /* bytes that a letter of Windows-1252 becomes */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    PACKED_SIZE = 1 << 9, /* inputs are small there: several blocks each, and no large window */
    ZSTD_WINDOW_LOG = 13
#else
    PACKED_SIZE = 1 << 18,
    ZSTD_WINDOW_LOG = 27
#endif
};

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct dro__input {
    dro_context *ctx;
    char name[NAME_SIZE]; /* for errors; the end of a long path */
    int fd;               /* -1: memory */
    packing packing;
    uint64_t hint; /* bytes that are likely to come, 0: not known */
    uint64_t offset, fetched;

    /* Bytes as the file has them: in peek, in `packed`, or in the caller's memory. */
    unsigned char peek[PEEK_SIZE], *packed;
    const unsigned char *raw;
    size_t raw_left;
    bool raw_end; /* nothing comes after raw_left */
    bool whole;   /* between two members or frames: the end may come here */
#if DRO_WITH_ZLIB
    z_stream gzip;
    bool gzip_live;
#endif
#if DRO_WITH_ZSTD
    ZSTD_DStream *zstd;
#endif

    char *window; /* lines: [taken, used) is the part that was not handed out */
    size_t capacity, taken, used;
    bool unfinished; /* the last line had no newline */
    double until;    /* a pipe that is silent at this time ends, 0: it is waited for */
    bool late;       /* it did */
    bool latin1;     /* lines become UTF-8 on the way into the window */

    char **files; /* (file_count) of a pattern, or NULL */
    size_t file_count, file;
    int rank, ranks; /* this process reads the files rank, rank + ranks, ... */
};

/* ---- the bytes as the file has them ---- */

/* Waits for bytes, or for the end of the time that there is, or until nobody needs them. */
static bool await_bytes(const dro__input *in)
{
    enum { ASK_MS = 500 };
    struct pollfd end = {.fd = in->fd, .events = POLLIN};
    struct timespec now;
    const dro_context *ctx = in->ctx;
    int count = 1;
    while (in->until > 0 || ctx->read_stop) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        double left = in->until > 0 ? in->until - seconds : INFINITY;
        double most = ctx->read_stop ? ASK_MS : 1e6;
        count = poll(&end, 1, left > 0 ? (int)fmin(1000 * left + 1, most) : 0);
        if (count > 0 || (count == 0 && left <= 0) || (count < 0 && errno != EINTR))
            break;
        if (ctx->read_stop && ctx->read_stop(ctx->read_stop_user))
            return false;
    }
    return count != 0;
}

/* One read of up to size bytes; *got is 0 only at the end. */
static dro_status fetch(dro__input *in, void *bytes, size_t size, size_t *got)
{
    ssize_t count;
    *got = 0;
    if (in->raw_end || size == 0)
        return DRO_OK;
    if (!await_bytes(in)) {
        in->raw_end = in->late = true;
        return in->fetched
                   ? DRO_OK
                   : dro__fail(in->ctx, DRO_ERR_FILE, "%s: nothing came in max_time", in->name);
    }
    do
        count = read(in->fd, bytes, size);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return dro__fail(in->ctx, DRO_ERR_FILE, "%s: cannot read: %s", in->name, strerror(errno));
    in->raw_end = count == 0;
    in->fetched += (uint64_t)count;
    *got = (size_t)count;
    return DRO_OK;
}

static dro_status plain_some(dro__input *in, void *bytes, size_t size, size_t *got)
{
    if (in->raw_left == 0)
        return fetch(in, bytes, size, got);
    *got = in->raw_left < size ? in->raw_left : size;
    memcpy(bytes, in->raw, *got);
    in->raw += *got;
    in->raw_left -= *got;
    return DRO_OK;
}

#if DRO_WITH_ZLIB || DRO_WITH_ZSTD
static dro_status refill(dro__input *in)
{
    if (in->raw_left > 0 || in->raw_end)
        return DRO_OK;
    in->raw = in->packed;
    return fetch(in, in->packed, PACKED_SIZE, &in->raw_left);
}

static dro_status damaged(dro__input *in, const char *kind, const char *why)
{
    return dro__fail(in->ctx, DRO_ERR_DATA, "%s: damaged %s data at byte %llu: %s", in->name, kind,
                     (unsigned long long)(in->fetched - in->raw_left), why);
}
#endif

#if !DRO_WITH_ZLIB || !DRO_WITH_ZSTD
static dro_status missing(dro__input *in, const char *kind, const char *package)
{
    return dro__fail(
        in->ctx, DRO_ERR_UNSUPPORTED,
        "%s: is compressed with %s, which this libdro was built without: decompress the file, "
        "or build with the package %s",
        in->name, kind, package);
}
#endif

/* ---- gzip ---- */

#if DRO_WITH_ZLIB
static dro_status gzip_open(dro__input *in)
{
    if (inflateInit2(&in->gzip, 15 + 16) != Z_OK)
        return dro__fail(in->ctx, DRO_ERR_MEMORY, "%s: no memory to decompress gzip", in->name);
    in->gzip_live = true;
    return DRO_OK;
}

/* Between two members: begins the next one, or passes over the zeros that may pad the end. */
static dro_status gzip_next(dro__input *in, bool *more)
{
    for (;;) {
        DRO_TRY(refill(in));
        if (in->raw_left == 0) {
            *more = false;
            return DRO_OK;
        }
        if (*in->raw != 0)
            break;
        in->raw++;
        in->raw_left--;
    }
    if (*in->raw != 0x1f)
        return damaged(in, "gzip", "expected the end or another gzip member");
    inflateReset(&in->gzip);
    *more = true;
    return DRO_OK;
}

static dro_status gzip_some(dro__input *in, void *bytes, size_t size, size_t *got)
{
    *got = 0;
    while (*got == 0) {
        if (in->whole) {
            bool more;
            DRO_TRY(gzip_next(in, &more));
            if (!more)
                return DRO_OK;
        }
        DRO_TRY(refill(in));
        in->whole = false;
        uInt given = in->raw_left < PACKED_SIZE ? (uInt)in->raw_left : PACKED_SIZE;
        uInt wanted = size < LINE_MAX_BYTES ? (uInt)size : LINE_MAX_BYTES;
        in->gzip.next_in = (z_const Bytef *)in->raw;
        in->gzip.avail_in = given;
        in->gzip.next_out = bytes;
        in->gzip.avail_out = wanted;
        int code = inflate(&in->gzip, Z_NO_FLUSH);
        in->raw += given - in->gzip.avail_in;
        in->raw_left -= given - in->gzip.avail_in;
        *got = wanted - in->gzip.avail_out;
        if (code == Z_MEM_ERROR)
            return dro__fail(in->ctx, DRO_ERR_MEMORY, "%s: no memory to decompress gzip", in->name);
        if (code == Z_BUF_ERROR && given == 0)
            return damaged(in, "gzip", "the file ends in the middle (truncated?)");
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return damaged(in, "gzip", in->gzip.msg ? in->gzip.msg : "expected a gzip member");
        in->whole = code == Z_STREAM_END;
    }
    return DRO_OK;
}
#else
#define gzip_open(in) missing(in, "gzip", "zlib1g-dev")
#endif

/* ---- zstd ---- */

#if DRO_WITH_ZSTD
static dro_status zstd_open(dro__input *in)
{
    in->zstd = ZSTD_createDStream();
    if (!in->zstd ||
        ZSTD_isError(ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
        return dro__fail(in->ctx, DRO_ERR_MEMORY, "%s: no memory to decompress zstd", in->name);
    return DRO_OK;
}

static dro_status zstd_some(dro__input *in, void *bytes, size_t size, size_t *got)
{
    *got = 0;
    while (*got == 0) {
        DRO_TRY(refill(in));
        if (in->raw_left == 0 && in->whole)
            return DRO_OK;
        ZSTD_inBuffer from = {in->raw, in->raw_left, 0};
        ZSTD_outBuffer to = {bytes, size, 0};
        size_t code = ZSTD_decompressStream(in->zstd, &to, &from);
        if (ZSTD_isError(code))
            return damaged(in, "zstd", ZSTD_getErrorName(code));
        if (in->raw_left == 0 && to.pos == 0 && code != 0)
            return damaged(in, "zstd", "the file ends in the middle (truncated?)");
        in->raw += from.pos;
        in->raw_left -= from.pos;
        in->whole = code == 0;
        *got = to.pos;
    }
    return DRO_OK;
}
#else
#define zstd_open(in) missing(in, "zstd", "libzstd-dev")
#endif

/* ---- open and close ---- */

static packing recognise(const unsigned char *bytes, size_t size)
{
    static const unsigned char gzip[2] = {0x1f, 0x8b}, zstd[4] = {0x28, 0xb5, 0x2f, 0xfd},
                               skip[3] = {0x2a, 0x4d, 0x18}; /* after 0x50 .. 0x5f */
    if (size >= 2 && memcmp(bytes, gzip, 2) == 0)
        return GZIP;
    if (size >= 4 && memcmp(bytes, zstd, 4) == 0)
        return ZSTD;
    if (size >= 4 && bytes[0] >> 4 == 5 && memcmp(bytes + 1, skip, 3) == 0)
        return ZSTD;
    return PLAIN;
}

/* The first bytes are in raw: what packing is it? */
static dro_status begin(dro__input *in)
{
    in->packing = recognise(in->raw, in->raw_left);
    if (in->packing == PLAIN)
        return DRO_OK;
    in->hint = in->hint < UINT64_MAX / 4 ? 4 * in->hint : 0; /* a guess */
    if (in->fd >= 0) {
        in->packed = dro__alloc(PACKED_SIZE, 1);
        if (!in->packed)
            return dro__fail(in->ctx, DRO_ERR_MEMORY, "%s: no memory to read it", in->name);
    }
    return in->packing == GZIP ? gzip_open(in) : zstd_open(in);
}

static dro_status peek(dro__input *in)
{
    size_t got;
    do {
        DRO_TRY(fetch(in, in->peek + in->raw_left, PEEK_SIZE - in->raw_left, &got));
        in->raw_left += got;
    } while (got > 0 && in->raw_left < PEEK_SIZE);
    in->raw = in->peek;
    return begin(in);
}

/* A pipe with a name, opened without waiting: if nobody writes to it for a while, nobody is going
 * to. */
static dro_status await_writer(dro__input *in)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    for (int k = 0; k < PIPE_MOMENTS; k++) {
        ssize_t count =
            read(in->fd, in->peek, 1); /* 0: no writer; EAGAIN: one that is silent yet */
        if (count > 0)
            in->raw_left = in->fetched = 1;
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return dro__fail(in->ctx, DRO_ERR_FILE, "%s: cannot read: %s", in->name,
                             strerror(errno));
        if (count != 0)
            return DRO_OK;
        nanosleep(&moment, NULL);
    }
    return dro__fail(in->ctx, DRO_ERR_FILE,
                     "%s: is a pipe without a writer: expected a file, or start the writer first",
                     in->name);
}

static dro_status open_file(dro__input *in, const char *path)
{
    struct stat about;
    bool is_stdin = strcmp(path, "-") == 0;
    in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (in->fd < 0)
        return dro__fail(in->ctx, DRO_ERR_FILE, "%s: cannot open: %s", in->name, strerror(errno));
    if (fstat(in->fd, &about) != 0)
        return dro__fail(in->ctx, DRO_ERR_FILE, "%s: cannot read: %s", in->name, strerror(errno));
    if (S_ISDIR(about.st_mode))
        return dro__fail(in->ctx, DRO_ERR_FILE, "%s: is a directory: expected a file", in->name);
    in->hint = S_ISREG(about.st_mode) && about.st_size > 0 ? (uint64_t)about.st_size : 0;
    if (!is_stdin && S_ISFIFO(about.st_mode))
        DRO_TRY(await_writer(in));
    if (!is_stdin && fcntl(in->fd, F_SETFL, 0) != 0) /* reading waits */
        return dro__fail(in->ctx, DRO_ERR_FILE, "%s: cannot read: %s", in->name, strerror(errno));
    return peek(in);
}

static void set_name(dro__input *in, const char *name)
{
    size_t length = strlen(name);
    if (length < NAME_SIZE)
        memcpy(in->name, name, length + 1);
    else
        snprintf(in->name, NAME_SIZE, "...%s", name + length - (NAME_SIZE - 4));
}

static dro_status create(dro_context *ctx, const char *name, dro__input **input)
{
    dro__input *in = dro__alloc(1, sizeof *in);
    if (!in)
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to read it", name);
    set_name(in, name);
    in->ctx = ctx;
    in->fd = -1;
    in->ranks = 1;
    in->until = ctx->read_until;
    *input = in;
    return DRO_OK;
}

static dro_status finish(dro__input *in, dro_status status, dro__input **input)
{
    if (status != DRO_OK)
        dro__input_close(in);
    else
        *input = in;
    return status;
}

dro_status dro__input_open(dro_context *ctx, const char *path, dro__input **input)
{
    dro__input *in = NULL;
    DRO_TRY(create(ctx, strcmp(path, "-") == 0 ? "stdin" : path, &in));
    return finish(in, open_file(in, path), input);
}

dro_status dro__input_memory(dro_context *ctx, const char *name, const void *bytes, size_t size,
                             dro__input **input)
{
    dro__input *in = NULL;
    DRO_TRY(create(ctx, name, &in));
    in->raw = bytes;
    in->raw_left = size;
    in->raw_end = true;
    in->fetched = size;
    in->hint = size > 0 ? size : 1;
    return finish(in, begin(in), input);
}

static void close_file(dro__input *in)
{
#if DRO_WITH_ZLIB
    if (in->gzip_live)
        inflateEnd(&in->gzip);
    in->gzip_live = false;
#endif
#if DRO_WITH_ZSTD
    ZSTD_freeDStream(in->zstd);
    in->zstd = NULL;
#endif
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    in->fd = -1;
    dro__free(in->packed);
    in->packed = NULL;
}

void dro__input_close(dro__input *in)
{
    if (!in)
        return;
    close_file(in);
    dro__shards_free(in->files, in->file_count);
    dro__free(in->window);
    dro__free(in);
}

/* ---- several files ---- */

dro_status dro__input_open_all(dro_context *ctx, const char *path, dro__input **input)
{
    dro__input *in = NULL;
    if (!dro__is_pattern(path))
        return dro__input_open(ctx, path, input);
    DRO_TRY(create(ctx, path, &in));
    dro_status status = dro__shards_find(ctx, path, &in->files, &in->file_count);
    if (status == DRO_OK) {
        set_name(in, in->files[0]);
        status = open_file(in, in->files[0]);
    }
    return finish(in, status, input);
}

const char *dro__input_path(const dro__input *in, size_t index)
{
    return in->files && index < in->file_count ? in->files[index] : NULL;
}

size_t dro__input_file(const dro__input *in)
{
    return in->file;
}

void dro__input_share(dro__input *in, int rank, int ranks)
{
    in->rank = rank;
    in->ranks = ranks;
}

static bool is_own(const dro__input *in, size_t file)
{
    return file % (size_t)in->ranks == (size_t)in->rank;
}

static bool has_more_files(const dro__input *in)
{
    for (size_t k = in->file + 1; k < in->file_count; k++)
        if (is_own(in, k))
            return true;
    return false;
}

/* The next file of this process; none: the input is at its end. */
static dro_status next_file(dro__input *in)
{
    do
        in->file++;
    while (in->file < in->file_count && !is_own(in, in->file));
    close_file(in);
    in->taken = in->used = in->raw_left = 0;
    in->offset = in->hint = 0;
    in->whole = false;
    in->packing = PLAIN;
    in->raw_end = in->file >= in->file_count;
    if (in->raw_end)
        return DRO_OK;
    set_name(in, in->files[in->file]);
    return open_file(in, in->files[in->file]);
}

/* ---- bytes ---- */

/* At least one byte, unless it is the end or size is 0. */
static dro_status some(dro__input *in, char *bytes, size_t size, size_t *got)
{
    *got = 0;
    if (size == 0)
        return DRO_OK;
#if DRO_WITH_ZLIB
    if (in->packing == GZIP)
        return gzip_some(in, bytes, size, got);
#endif
#if DRO_WITH_ZSTD
    if (in->packing == ZSTD)
        return zstd_some(in, bytes, size, got);
#endif
    return plain_some(in, bytes, size, got);
}

dro_status dro__input_read(dro__input *in, void *bytes, size_t size, size_t *got)
{
    size_t total = 0, part;
    do {
        DRO_TRY(some(in, (char *)bytes + total, size - total, &part));
        total += part;
    } while (part > 0 && total < size);
    in->offset += total;
    *got = total;
    return DRO_OK;
}

dro_status dro__input_exact(dro__input *in, void *bytes, size_t size, const char *what)
{
    size_t got;
    uint64_t start = in->offset;
    DRO_TRY(dro__input_read(in, bytes, size, &got));
    if (got < size)
        return dro__fail(in->ctx, DRO_ERR_DATA,
                         "%s: ends at byte %llu: expected %s (%zu bytes at byte %llu)", in->name,
                         (unsigned long long)in->offset, what, size, (unsigned long long)start);
    return DRO_OK;
}

const char *dro__input_name(const dro__input *in)
{
    return in->name;
}

uint64_t dro__input_offset(const dro__input *in)
{
    return in->offset;
}

uint64_t dro__input_fetched(const dro__input *in)
{
    return in->fetched;
}

uint64_t dro__input_plain_size(const dro__input *in)
{
    return in->packing == PLAIN ? in->hint : 0;
}

static dro_status all(dro__input *in, uint64_t limit, char **bytes, size_t *capacity, size_t *used)
{
    size_t got;
    uint64_t first = in->hint < limit ? in->hint + 1 : limit;
    DRO_TRY(dro__grow_file(in->ctx, in->name, (void **)bytes, capacity,
                           first < WINDOW_MIN ? WINDOW_MIN : first, 1));
    for (;;) {
        if (*used + 1 >= *capacity) /* one byte stays free for the zero */
            DRO_TRY(dro__grow_file(in->ctx, in->name, (void **)bytes, capacity,
                                   *capacity + *capacity / 2, 1));
        DRO_TRY(some(in, *bytes + *used, *capacity - 1 - *used, &got));
        *used += got;
        in->offset += got;
        if (*used > limit)
            return dro__fail(in->ctx, DRO_ERR_DATA, "%s: is larger than %llu bytes, the limit here",
                             in->name, (unsigned long long)limit);
        if (got == 0)
            return DRO_OK;
    }
}

dro_status dro__input_all(dro__input *in, uint64_t limit, char **bytes, size_t *size)
{
    char *text = NULL;
    size_t capacity = 0, used = 0;
    dro_status status = all(in, limit, &text, &capacity, &used);
    if (status != DRO_OK) {
        dro__free(text);
        return status;
    }
    text[used] = '\0';
    *bytes = text;
    *size = used;
    return DRO_OK;
}

/* ---- lines ---- */

/* Room for more than what is left of the last window, which moves to the front. */
static dro_status reserve(dro__input *in)
{
    if (!in->window) {
        uint64_t first = in->hint > 0 && in->hint < WINDOW_FIRST ? in->hint + 2 : WINDOW_FIRST;
        return dro__grow_file(in->ctx, in->name, (void **)&in->window, &in->capacity,
                              first < WINDOW_MIN ? WINDOW_MIN : (size_t)first, 1);
    }
    if (in->taken > 0)
        memmove(in->window, in->window + in->taken, in->used - in->taken);
    in->used -= in->taken;
    in->taken = 0;
    if (in->used + 1 + UTF8_MOST <= in->capacity)
        return DRO_OK;
    return dro__grow_file(in->ctx, in->name, (void **)&in->window, &in->capacity, in->capacity * 2,
                          1);
}

void dro__input_latin1(dro__input *in)
{
    in->latin1 = true;
}

/* Unicode of 0x80 to 0x9f, as browsers read them (encoding.spec.whatwg.org); the rest is
 * Latin-1. */
static unsigned unicode_of(unsigned char byte)
{
    static const unsigned short special[32] = {
        0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
        0x2039, 0x0152, 0x8d,   0x017d, 0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};
    return byte >= 0x80 && byte < 0xa0 ? special[byte - 0x80] : byte;
}

/* Reads a third of the room to its end, and writes the letters of it to its beginning: these never
 * overtake it. */
static dro_status some_latin1(dro__input *in, char *bytes, size_t size, size_t *got)
{
    size_t most = size / UTF8_MOST, count;
    const unsigned char *from = (unsigned char *)bytes + size - most;
    char *to = bytes;
    DRO_TRY(some(in, bytes + size - most, most, &count));
    for (size_t k = 0; k < count; k++) {
        unsigned letter = unicode_of(from[k]);
        if (letter >= 0x800)
            *to++ = (char)(0xe0 | letter >> 12);
        if (letter >= 0x80)
            *to++ = (char)(letter >= 0x800 ? 0x80 | (letter >> 6 & 0x3f) : 0xc0 | letter >> 6);
        *to++ = (char)(letter >= 0x80 ? 0x80 | (letter & 0x3f) : letter);
    }
    *got = (size_t)(to - bytes);
    return DRO_OK;
}

bool dro__input_unfinished(const dro__input *in)
{
    return in->unfinished;
}

void dro__input_until(dro__input *in, double clock)
{
    in->until = clock;
}

bool dro__input_late(const dro__input *in)
{
    return in->late;
}

/* A window of the file that is open; empty at its end. */
static dro_status lines_of_file(dro__input *in, char **begin_, char **end_)
{
    size_t got, stop = 0;
    do {
        DRO_TRY(reserve(in));
        /* One byte stays free for the newline that the last line may lack. */
        DRO_TRY((in->latin1 ? some_latin1 : some)(in, in->window + in->used,
                                                  in->capacity - 1 - in->used, &got));
        in->offset += got;
        size_t old = in->used;
        in->used += got;
        if (got == 0 && in->used > 0)
            in->window[in->used++] = '\n', in->unfinished = !has_more_files(in);
        char *last = memrchr(in->window + old, '\n', in->used - old);
        stop = last ? (size_t)(last - in->window) + 1 : 0;
        if (stop == 0 && in->used > LINE_MAX_BYTES)
            return dro__fail(
                in->ctx, DRO_ERR_DATA,
                "%s: the line that begins at byte %llu is longer than %d MiB: expected "
                "lines of text%s",
                in->name, (unsigned long long)(in->offset - in->used), LINE_MAX_BYTES >> 20,
                memchr(in->window, '\0', in->used) ? ", found byte 0x00" : "");
    } while (stop == 0 && got > 0);
    in->taken = stop;
    *begin_ = in->window;
    *end_ = in->window + stop;
    return DRO_OK;
}

dro_status dro__input_lines(dro__input *in, char **begin_, char **end_)
{
    if (in->files && in->file < in->file_count && !is_own(in, in->file))
        DRO_TRY(next_file(in));
    DRO_TRY(lines_of_file(in, begin_, end_));
    while (*begin_ == *end_ && in->file < in->file_count) {
        DRO_TRY(next_file(in));
        DRO_TRY(lines_of_file(in, begin_, end_));
    }
    return DRO_OK;
}
