/* TensorBoard event files (events.h).
 *
 * A file is a row of TFRecords: the length (8 bytes, little endian), its check, the bytes, their check.
 * A check is the CRC-32C, rotated right by 15 bits plus 0xa282ead8, so that the check of bytes that
 * hold a check is not trivial. The bytes are a protocol buffer, tensorflow.Event:
 *
 *     1 double wall_time, 2 int64 step, 3 string file_version (first record only),
 *     5 Summary { repeated 1 Value { 1 string tag, 2 float simple_value } }
 */
#define _FILE_OFFSET_BITS 64
#include "events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEAD = 12, /* length and its check */
    TAIL = 4,  /* check of the bytes */
    TAG_MOST = 1 << 16,
    VARINT_MOST = 10
};

static const char version[] = "brain.Event:2";

struct dro__events {
    dro_context *ctx;
    char *path;
    int fd;
    uint64_t offset;
    unsigned char *record;
    size_t room;
};

uint32_t dro__crc32c(const void *bytes, size_t size)
{
    const unsigned char *b = bytes;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* ---- a record, byte by byte ---- */

static unsigned char *put_little(unsigned char *at, uint64_t bits, int size)
{
    for (int k = 0; k < size; k++)
        *at++ = (unsigned char)(bits >> 8 * k);
    return at;
}

static unsigned char *put_check(unsigned char *at, const unsigned char *bytes, size_t size)
{
    uint32_t crc = dro__crc32c(bytes, size);
    return put_little(at, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

static unsigned char *put_varint(unsigned char *at, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        *at++ = (unsigned char)(value | 0x80);
    *at++ = (unsigned char)value;
    return at;
}

static size_t varint_size(uint64_t value)
{
    unsigned char bytes[VARINT_MOST];
    return (size_t)(put_varint(bytes, value) - bytes);
}

static unsigned char *put_double(unsigned char *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_little(at, bits, 8);
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t size = strlen(text);
    at = put_varint(at, size);
    memcpy(at, text, size);
    return at + size;
}

/* Value: the tag's field and length, the tag, a float with its field. */
static size_t value_size(const dro__scalar *scalar)
{
    size_t size = strlen(scalar->tag);
    return 1 + varint_size(size) + size + 1 + 4;
}

static unsigned char *put_value(unsigned char *at, const dro__scalar *scalar)
{
    float value = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    *at++ = 1 << 3 | 2;
    at = put_varint(at, value_size(scalar));
    *at++ = 1 << 3 | 2;
    at = put_text(at, scalar->tag);
    *at++ = 2 << 3 | 5;
    return put_little(at, bits, 4);
}

/* ---- the file ---- */

static dro_status cannot(const dro__events *e, const char *what)
{
    int error = errno;
    return dro__fail(e->ctx, DRO_ERR_FILE, "%s: cannot %s the event file: %s", e->path, what,
                     strerror(error));
}

/* Room for a record with `size` bytes inside. */
static dro_status reserve(dro__events *e, size_t size)
{
    if (HEAD + size + TAIL <= e->room)
        return DRO_OK;
    unsigned char *record = dro__alloc(2 * (HEAD + size + TAIL), 1);
    if (!record)
        return dro__fail(e->ctx, DRO_ERR_MEMORY, "%s: no memory for an event", e->path);
    dro__free(e->record);
    e->record = record;
    e->room = 2 * (HEAD + size + TAIL);
    return DRO_OK;
}

/* Closes the record whose bytes end at `end` and appends it; the file is as before on failure. */
static dro_status append(dro__events *e, const unsigned char *end)
{
    size_t inside = (size_t)(end - e->record) - HEAD, size = HEAD + inside + TAIL, done = 0;
    put_little(e->record, inside, 8);
    put_check(e->record + 8, e->record, 8);
    put_check(e->record + HEAD + inside, e->record + HEAD, inside);
    while (done < size) {
        ssize_t count = pwrite(e->fd, e->record + done, size - done, (off_t)(e->offset + done));
        if (count > 0) {
            done += (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            errno = count == 0 ? ENOSPC : errno;
            dro_status status = cannot(e, "write");
            /* Where this fails, too, half a record stays: TensorBoard waits for its end, and the next
             * record is written over it. */
            int cut = ftruncate(e->fd, (off_t)e->offset);
            (void)cut;
            return status;
        }
    }
    e->offset += size;
    return DRO_OK;
}

/* Without a time, so that a run done again leaves the same bytes. */
static dro_status begin_file(dro__events *e)
{
    DRO_TRY(reserve(e, 1 + sizeof version));
    unsigned char *at = e->record + HEAD;
    *at++ = 3 << 3 | 2;
    return append(e, put_text(at, version));
}

/* Cuts the file at the offset, if it is an event file that reaches so far. */
static dro_status continue_file(dro__events *e, uint64_t offset)
{
    struct stat about;
    unsigned char head[HEAD], check[4];
    if (fstat(e->fd, &about) != 0 || pread(e->fd, head, HEAD, 0) < 0)
        return cannot(e, "read");
    if ((uint64_t)about.st_size < offset || offset < HEAD)
        return dro__fail(e->ctx, DRO_ERR_FORMAT,
                         "%s: %lld bytes, expected at least %llu: not the event file of this run",
                         e->path, (long long)about.st_size, (unsigned long long)offset);
    put_check(check, head, 8);
    if (memcmp(check, head + 8, 4) != 0)
        return dro__fail(e->ctx, DRO_ERR_FORMAT, "%s: not an event file: expected TensorBoard's",
                         e->path);
    if (ftruncate(e->fd, (off_t)offset) != 0)
        return cannot(e, "cut");
    e->offset = offset;
    return DRO_OK;
}

dro_status dro__events_open(dro_context *ctx, const char *path, uint64_t offset,
                            dro__events **events)
{
    dro__events *e = dro__alloc(1, sizeof *e);
    size_t size = strlen(path) + 1;
    char *copy = dro__alloc(size, 1);
    *events = NULL;
    if (!e || !copy) {
        dro__free(e);
        dro__free(copy);
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory for the event file", path);
    }
    memcpy(copy, path, size);
    *e = (dro__events){.ctx = ctx, .path = copy};
    e->fd = open(path, O_RDWR | O_CLOEXEC | (offset ? 0 : O_CREAT | O_TRUNC), 0666);
    dro_status status = e->fd < 0 ? cannot(e, offset ? "open" : "create")
                        : offset  ? continue_file(e, offset)
                                  : begin_file(e);
    if (status != DRO_OK) {
        dro__events_close(e);
        return status;
    }
    *events = e;
    return DRO_OK;
}

void dro__events_close(dro__events *events)
{
    if (!events)
        return;
    if (events->fd >= 0)
        close(events->fd);
    dro__free(events->record);
    dro__free(events->path);
    dro__free(events);
}

dro_status dro__events_add(dro__events *events, int64_t step, double wall_time,
                           const dro__scalar *scalars, size_t count)
{
    size_t summary = 0;
    for (size_t k = 0; k < count; k++) {
        if (!scalars[k].tag || strlen(scalars[k].tag) > TAG_MOST)
            return dro__fail(events->ctx, DRO_ERR_ARGUMENT,
                             "%s: scalar %zu: expected a tag of at most %d bytes", events->path, k,
                             TAG_MOST);
        size_t value = value_size(&scalars[k]);
        summary += 1 + varint_size(value) + value;
    }
    DRO_TRY(reserve(events, 9 + 1 + VARINT_MOST + 1 + VARINT_MOST + summary));
    unsigned char *at = events->record + HEAD;
    *at++ = 1 << 3 | 1;
    at = put_double(at, wall_time);
    *at++ = 2 << 3 | 0;
    at = put_varint(at, (uint64_t)step);
    *at++ = 5 << 3 | 2;
    at = put_varint(at, summary);
    for (size_t k = 0; k < count; k++)
        at = put_value(at, &scalars[k]);
    return append(events, at);
}

uint64_t dro__events_offset(const dro__events *events)
{
    return events->offset;
}

dro_status dro__events_sync(dro__events *events)
{
    return fsync(events->fd) == 0 ? DRO_OK : cannot(events, "write");
}
