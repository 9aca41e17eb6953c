/* TensorBoard event files (events.h).
 *
 * A file is a row of TFRecords: the length (8 bytes, little endian), its check, the bytes, their
 * check. A check is the CRC-32C, rotated right by 15 bits plus 0xa282ead8, so that the check of
 * bytes that hold a check is not trivial. The bytes are a protocol buffer, tensorflow.Event:
 *
 *     1 double wall_time, 2 int64 step, 3 string file_version (first record only),
 *     5 Summary { repeated 1 Value { 1 string tag, 2 float simple_value,
 *                                    4 Image { 1 int32 height, 2 int32 width, 3 int32 colorspace,
 *                                              4 bytes encoded_image_string } } }
 */
#include "events.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_DOUBLE = 1, WIRE_BYTES = 2, WIRE_FLOAT = 5 };

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

/* ---- the parts of a message ---- */

static void put_little(dro__buffer *out, uint64_t bits, int size)
{
    unsigned char bytes[8];
    for (int k = 0; k < size; k++)
        bytes[k] = (unsigned char)(bits >> 8 * k);
    dro__buffer_bytes(out, bytes, (size_t)size);
}

static void put_varint(dro__buffer *out, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        put_little(out, (value & 0x7f) | 0x80, 1);
    put_little(out, value, 1);
}

static void put_key(dro__buffer *out, int field, int wire)
{
    put_varint(out, (uint64_t)(field << 3 | wire));
}

static void put_integer(dro__buffer *out, int field, int64_t value)
{
    put_key(out, field, WIRE_VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_bytes(dro__buffer *out, int field, const void *bytes, size_t size)
{
    put_key(out, field, WIRE_BYTES);
    put_varint(out, size);
    dro__buffer_bytes(out, bytes, size);
}

/* A message inside another; it is freed. */
static void put_message(dro__buffer *out, int field, dro__buffer *inside)
{
    put_bytes(out, field, inside->bytes, inside->size);
    out->failed = out->failed || inside->failed;
    dro__buffer_free(inside);
}

static void put_value(dro__buffer *out, const dro__summary *s)
{
    dro__buffer value = {0};
    float number = (float)s->value;
    uint32_t bits;
    put_bytes(&value, 1, s->tag, strlen(s->tag));
    memcpy(&bits, &number, sizeof bits);
    put_key(&value, 2, WIRE_FLOAT);
    put_little(&value, bits, 4);
    put_message(out, 1, &value);
}

/* ---- records ---- */

static void put_check(dro__buffer *out, const void *bytes, size_t size)
{
    uint32_t crc = dro__crc32c(bytes, size);
    put_little(out, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

/* The message becomes a record; it is freed. */
static void put_record(dro__buffer *out, dro__buffer *message)
{
    unsigned char length[8];
    for (int k = 0; k < 8; k++)
        length[k] = (unsigned char)((uint64_t)message->size >> 8 * k);
    dro__buffer_bytes(out, length, sizeof length);
    put_check(out, length, sizeof length);
    dro__buffer_bytes(out, message->bytes, message->size);
    put_check(out, message->bytes, message->size);
    out->failed = out->failed || message->failed;
    dro__buffer_free(message);
}

/* Without a time, so that a run done again leaves the same bytes. */
void dro__events_begin(dro__buffer *out)
{
    static const char version[] = "brain.Event:2";
    dro__buffer message = {0};
    put_bytes(&message, 3, version, sizeof version - 1);
    put_record(out, &message);
}

void dro__events_add(dro__buffer *out, int64_t step, double wall_time, const dro__summary *values,
                     size_t count)
{
    dro__buffer message = {0}, summary = {0};
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    put_key(&message, 1, WIRE_DOUBLE);
    put_little(&message, bits, 8);
    put_integer(&message, 2, step);
    for (size_t k = 0; k < count; k++)
        put_value(&summary, &values[k]);
    put_message(&message, 5, &summary);
    put_record(out, &message);
}
