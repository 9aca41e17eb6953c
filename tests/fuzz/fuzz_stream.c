/* Streams of libsvm rows: the first byte chooses options, the second the batch size. Every row
 * comes out once, and there are as many as the data set of the same bytes has. */
#include "fuzz.h"

#include <dro/stream.h>

enum { ROWS_MAX = 4096 };

static void look(const dro_rows *rows, size_t count, unsigned char *seen)
{
    FUZZ_CHECK(rows->count == count && rows->starts[0] == 0);
    for (size_t i = 0; i < count; i++) {
        int64_t place = rows->positions[i]; /* packed bytes may hold more rows than ROWS_MAX */
        FUZZ_CHECK(place >= 0 && (place >= ROWS_MAX || seen[place]++ == 0));
        FUZZ_CHECK(isfinite(rows->y[i]));
        FUZZ_CHECK(rows->starts[i] <= rows->starts[i + 1]);
        for (int64_t k = rows->starts[i]; k < rows->starts[i + 1]; k++) {
            FUZZ_CHECK(rows->columns[k] >= 0 && (size_t)rows->columns[k] < rows->features);
            FUZZ_CHECK(k == rows->starts[i] || rows->columns[k] > rows->columns[k - 1]);
            FUZZ_CHECK(isfinite(rows->values[k]));
        }
    }
}

/* A whole stream: its rows, or -1 for an error. */
static int64_t stream(const char *spec, size_t count)
{
    static unsigned char seen[ROWS_MAX];
    dro_context *ctx = fuzz_context();
    dro_stream *s;
    dro_rows rows;
    dro_status status;
    int64_t total = 0;
    memset(seen, 0, sizeof seen);
    if (!fuzz_ok(ctx, dro_stream_open(ctx, spec, &s)))
        return -1;
    while (fuzz_ok(ctx, status = dro_stream_next(s, count, &rows))) {
        look(&rows, count, seen);
        total += (int64_t)count;
    }
    FUZZ_CHECK(dro_stream_next(s, count, &rows) == status && rows.count == 0);
    uint64_t read = dro_stream_seen(s);
    FUZZ_CHECK(status != DRO_ERR_END || (uint64_t)total == read / count * count);
    FUZZ_CHECK(dro_stream_memory(s) < (uint64_t)400 << 20);
    dro_stream_close(s);
    return status == DRO_ERR_END ? (int64_t)read : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const labels[] = {"", ",labels=sign", ",labels=written", ",target=real"};
    char spec[256];
    dro_data *data;
    if (size < 2 || size > ROWS_MAX)
        return 0;
    unsigned options = bytes[0], count = bytes[1] % 16 + 1;
    const char *path = fuzz_file(0, bytes + 2, size - 2);
    const char *common = options & 1 ? "features=100,base=0" : "features=100";
    snprintf(spec, sizeof spec, "libsvm:%s,%s%s%s,shuffle=%u,seed=%u", path, common,
             labels[options >> 1 & 3], options & 8 ? ",qid=ignore" : "", options >> 4,
             (unsigned)bytes[1]);
    int64_t rows = stream(spec, count);
    /* With labels as they are written a stream takes what a data set takes. */
    if ((options >> 1 & 3) != 3)
        return 0;
    snprintf(spec, sizeof spec, "libsvm:%s,%s,target=real%s", path, common,
             options & 8 ? ",qid=ignore" : "");
    bool opens = dro_data_open(fuzz_context(), spec, &data) == DRO_OK;
    FUZZ_CHECK(opens == (rows >= 0));
    if (opens)
        FUZZ_CHECK(data->split[DRO_TRAIN].n == rows);
    dro_data_close(data);
    return 0;
}
