/* TensorBoard event files: bytes as TensorBoard's own writer gives them.
 * tests/peers/events_check.py lets TensorBoard read those of a run. */
#include "data_dir.h"
#include "events.h"

static const dro__summary two[] = {{.tag = "test/accuracy", .value = 0.75},
                                   {.tag = "F", .value = -2}};

/* What tensorboard.summary.writer.record_writer writes for Event(file_version="brain.Event:2") and
 * Event(wall_time=1.5, step=300, summary=[test/accuracy: 0.75, F: -2]). */
static const unsigned char expected[] = {
    0x0f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6d, 0x53, 0x2b, 0x09, 0x1a, 0x0d, 0x62, 0x72,
    0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0xfc, 0x98, 0x51, 0x29, 0x2e,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc5, 0xcb, 0x57, 0xfa, 0x09, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0xf8, 0x3f, 0x10, 0xac, 0x02, 0x2a, 0x20, 0x0a, 0x14, 0x0a, 0x0d, 0x74, 0x65, 0x73,
    0x74, 0x2f, 0x61, 0x63, 0x63, 0x75, 0x72, 0x61, 0x63, 0x79, 0x15, 0x00, 0x00, 0x40, 0x3f, 0x0a,
    0x08, 0x0a, 0x01, 0x46, 0x15, 0x00, 0x00, 0x00, 0xc0, 0x77, 0x78, 0xec, 0x5f};
enum { HEADER = 31 };

static void crc32c(void **state)
{
    unsigned char zeros[32] = {0};
    (void)state;
    assert_int_equal(dro__crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(dro__crc32c(zeros, 32), 0x8a9136aau); /* RFC 3720 */
    assert_int_equal(dro__crc32c("", 0), 0);
}

static void known_bytes(void **state)
{
    dro__buffer out = {0};
    (void)state;
    dro__events_begin(&out);
    assert_int_equal(out.size, HEADER);
    dro__events_add(&out, 300, 1.5, two, 2);
    assert_int_equal(out.size, sizeof expected);
    assert_memory_equal(out.bytes, expected, sizeof expected);
    dro__buffer_free(&out);
}

static void long_tags(void **state)
{
    dro__summary many[300];
    char tag[1000];
    dro__buffer out = {0};
    (void)state;
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    for (int k = 0; k < 300; k++)
        many[k] = (dro__summary){.tag = tag, .value = k % 2 ? (double)NAN : (double)-INFINITY};
    dro__events_add(&out, -1, 0, many, 300); /* ten bytes of step */
    dro__events_add(&out, 1, 0, NULL, 0);
    /* 300 values of 1010 bytes, the 9 + 11 + 4 in front, the record's 16; then 9 + 2 + 2 and 16. */
    assert_int_equal(out.size, 300 * 1010 + 24 + 16 + 13 + 16);
    assert_false(out.failed);
    dro__buffer_free(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(crc32c, setup, teardown),
    cmocka_unit_test_setup_teardown(known_bytes, setup, teardown),
    cmocka_unit_test_setup_teardown(long_tags, setup, teardown),
};

CHECK_MAIN(tests)
