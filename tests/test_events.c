/* TensorBoard event files: bytes as TensorBoard's own writer gives them, going on at an offset, refusals.
 * tests/peers/events_check.py lets TensorBoard read what we write. */
#include "data_dir.h"
#include "events.h"

static const dro__scalar two[] = {{"test/accuracy", 0.75}, {"F", -2}};

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

static size_t read_all(const char *name, unsigned char *bytes, size_t room)
{
    FILE *f = fopen(in_dir(name), "rb");
    assert_non_null(f);
    size_t size = fread(bytes, 1, room, f);
    fclose(f);
    return size;
}

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
    unsigned char bytes[256];
    dro__events *events;
    (void)state;
    OK(ctx, dro__events_open(ctx, in_dir("e"), 0, &events));
    assert_int_equal(dro__events_offset(events), HEADER);
    OK(ctx, dro__events_add(events, 300, 1.5, two, 2));
    OK(ctx, dro__events_sync(events));
    assert_int_equal(dro__events_offset(events), sizeof expected);
    assert_int_equal(read_all("e", bytes, sizeof bytes), sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
    dro__events_close(events);
    dro__events_close(NULL);
}

/* A run that goes on from an earlier record leaves what one without a break leaves. */
static void going_on(void **state)
{
    unsigned char whole[4096], again[4096];
    dro__events *events;
    uint64_t offset = 0;
    (void)state;
    OK(ctx, dro__events_open(ctx, in_dir("a"), 0, &events));
    for (int64_t k = 0; k < 20; k++) {
        offset = k == 7 ? dro__events_offset(events) : offset;
        OK(ctx, dro__events_add(events, k, (double)k, two, 2));
    }
    dro__events_close(events);
    size_t size = read_all("a", whole, sizeof whole);
    append_file("a", "half a record", 13);
    OK(ctx, dro__events_open(ctx, in_dir("a"), offset, &events));
    assert_int_equal(read_all("a", again, sizeof again), offset);
    for (int64_t k = 7; k < 20; k++)
        OK(ctx, dro__events_add(events, k, (double)k, two, 2));
    dro__events_close(events);
    assert_int_equal(read_all("a", again, sizeof again), size);
    assert_memory_equal(whole, again, size);
}

static void long_tags(void **state)
{
    dro__scalar many[300];
    char tag[1000];
    dro__events *events;
    (void)state;
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    for (int k = 0; k < 300; k++)
        many[k] = (dro__scalar){tag, k % 2 ? (double)NAN : (double)-INFINITY};
    OK(ctx, dro__events_open(ctx, in_dir("l"), 0, &events));
    OK(ctx, dro__events_add(events, -1, 0, many, 300)); /* ten bytes of step */
    OK(ctx, dro__events_add(events, 1, 0, NULL, 0));
    /* 300 values of 1010 bytes, the 9 + 11 + 4 in front, the record's 16; then 9 + 2 + 2 and 16. */
    assert_int_equal(dro__events_offset(events), HEADER + 300 * 1010 + 24 + 16 + 13 + 16);
    many[4].tag = NULL;
    FAILS(ctx, dro__events_add(events, 1, 0, many, 5), DRO_ERR_ARGUMENT, "scalar 4");
    dro__events_close(events);
}

static void refusals(void **state)
{
    dro__events *events = (dro__events *)&events;
    (void)state;
    FAILS(ctx, dro__events_open(ctx, in_dir("none/e"), 0, &events), DRO_ERR_FILE, "cannot create");
    assert_null(events);
    FAILS(ctx, dro__events_open(ctx, in_dir("none"), 40, &events), DRO_ERR_FILE, "cannot open");
    write_file("short", expected, HEADER);
    FAILS(ctx, dro__events_open(ctx, in_dir("short"), 80, &events), DRO_ERR_FORMAT,
          "31 bytes, expected at least 80");
    write_file("other", "a text that is long enough to be one", 36);
    FAILS(ctx, dro__events_open(ctx, in_dir("other"), 31, &events), DRO_ERR_FORMAT,
          "not an event file");
    char text[64];
    assert_int_equal(read_all("other", (unsigned char *)text, sizeof text), 36); /* untouched */
    if (access("/dev/full", W_OK) == 0)
        FAILS(ctx, dro__events_open(ctx, "/dev/full", 0, &events), DRO_ERR_FILE, "cannot write");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(crc32c, setup, teardown),
    cmocka_unit_test_setup_teardown(known_bytes, setup, teardown),
    cmocka_unit_test_setup_teardown(going_on, setup, teardown),
    cmocka_unit_test_setup_teardown(long_tags, setup, teardown),
    cmocka_unit_test_setup_teardown(refusals, setup, teardown),
};

CHECK_MAIN(tests)
