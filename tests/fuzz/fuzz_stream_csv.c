/* Streams of CSV rows: the first byte chooses options, the rest is the file. With all rows to learn
 * from, a stream and the data set of the same bytes have the same rows, or both refuse; with two,
 * whatever comes after them is safe. */
#include "packed.h"

#include <dro/stream.h>

static void same_row(const dro_rows *r, const dro_examples *e, int64_t k)
{
    int64_t at = 0;
    for (size_t j = 0; j < r->features; j++) {
        bool here = at < r->starts[1] && (size_t)r->columns[at] == j;
        float value = here ? r->values[at] : 0,
              other = e->x ? e->x[(size_t)k * r->features + j] : 0;
        for (int64_t p = e->starts ? e->starts[k] : 0; e->starts && p < e->starts[k + 1]; p++)
            other = (size_t)e->columns[p] == j ? e->values[p] : other;
        FUZZ_CHECK(value == other);
        at += here;
    }
    FUZZ_CHECK(at == r->starts[1]);
    FUZZ_CHECK(r->y[0] == (e->targets ? e->targets[k] : (float)e->labels[k]));
}

static void look(const dro_rows *r)
{
    FUZZ_CHECK(r->count == 1 && r->starts[0] == 0 && isfinite(r->y[0]));
    for (int64_t k = 0; k < r->starts[1]; k++)
        FUZZ_CHECK(r->columns[k] >= 0 && (size_t)r->columns[k] < r->features &&
                   (k == 0 || r->columns[k] > r->columns[k - 1]) && isfinite(r->values[k]));
}

/* All rows of a stream, those of e if it is not NULL: their number, or -1 for an error. */
static int64_t stream(const char *spec, const dro_examples *e)
{
    dro_context *ctx = fuzz_context();
    dro_stream *s;
    dro_rows rows;
    dro_status status;
    int64_t count = 0;
    if (!fuzz_ok(ctx, dro_stream_open(ctx, spec, &s)))
        return -1;
    while (fuzz_ok(ctx, status = dro_stream_next(s, 1, &rows))) {
        look(&rows);
        if (e) {
            FUZZ_CHECK(count < e->count && rows.positions[0] == count);
            same_row(&rows, e, count);
        }
        count++;
    }
    FUZZ_CHECK(dro_stream_memory(s) < (uint64_t)64 << 20);
    dro_stream_close(s);
    return status == DRO_ERR_END ? count : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const labels[] = {"1", "2", "y", "3"};
    static const char *const more[] = {"", ",sep=tab", ",header=yes", ",header=no,missing=x"};
    char common[128], spec[256];
    dro_data *data = NULL;
    dro_examples train;
    if (size == 0 || fuzz_packed(bytes + 1, size - 1))
        return 0;
    unsigned options = *bytes;
    bool real = options & 16;
    snprintf(common, sizeof common, "csv:%s,label=%s%s%s", fuzz_file(0, bytes + 1, size - 1),
             labels[options & 3], more[options >> 2 & 3], real ? ",target=real" : "");
    snprintf(spec, sizeof spec, "%s,shuffle=%d%s%s", common, options & 32 ? 3 : 0,
             real ? "" : ",labels=classes", options & 64 ? ",learn=2" : "");
    if (options & (32 | 64)) {
        stream(spec, NULL);
        return 0;
    }
    bool opens = dro_data_open(fuzz_context(), common, &data) == DRO_OK;
    if (opens)
        FUZZ_CHECK(dro_data_examples(data, DRO_TRAIN, &train) == DRO_OK);
    int64_t count = stream(spec, opens ? &train : NULL);
    FUZZ_CHECK(opens == (count >= 0));
    FUZZ_CHECK(!opens || count == train.count);
    dro_data_close(data);
    return 0;
}
