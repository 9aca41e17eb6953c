/* A kept encoding: the bytes up to the first 0xff, and behind it a CSV file that is read by it. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro_data *data;
    char spec[64], *text;
    size_t first, second = fuzz_cut(bytes, size, 0xff, &first);
    FUZZ_CHECK((text = calloc(first + 1, 1)) != NULL);
    if (first)
        memcpy(text, bytes, first);
    snprintf(spec, sizeof spec, "csv:%s",
             fuzz_file(0, first < size ? bytes + first + 1 : bytes, second));
    if (fuzz_ok(ctx, dro__data_open(ctx, spec, text, &data))) {
        fuzz_look(data);
        dro_data_close(data);
    }
    free(text);
    return 0;
}
