/* A kept encoding: the bytes up to the first 0xff, and behind it a file that is read by it, as CSV
 * and as libsvm. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro_data *data;
    const char *file;
    char spec[64], *text;
    size_t first, second = fuzz_cut(bytes, size, 0xff, &first);
    FUZZ_CHECK((text = calloc(first + 1, 1)) != NULL);
    if (first)
        memcpy(text, bytes, first);
    file = fuzz_file(0, first < size ? bytes + first + 1 : bytes, second);
    for (int k = 0; k < 2; k++) {
        snprintf(spec, sizeof spec, "%s:%s", k ? "libsvm" : "csv", file);
        if (fuzz_ok(ctx, dro__data_open_given(ctx, spec, text, &data))) {
            fuzz_look(data);
            dro_data_close(data);
        }
    }
    free(text);
    return 0;
}
