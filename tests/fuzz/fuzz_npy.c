/* One array of NumPy: the first byte chooses floats, integers, bytes, or the whole format (then the
 * next two are the length of the labels' file, which lies at the end). */
#include "packed.h"

#include "npy.h"

static void read_one(unsigned mode, const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__input *input;
    dro__npy head;
    float *floats = NULL;
    int64_t *integers = NULL;
    uint8_t *plain = NULL;
    if (!fuzz_ok(ctx, dro__input_memory(ctx, "fuzz", bytes, size, &input)))
        return;
    dro__npy_source source = dro__npy_input(ctx, input, size);
    if (fuzz_ok(ctx, dro__npy_header(&source, &head))) {
        dro_status status = mode == 0   ? dro__npy_floats(&source, &head, &floats)
                            : mode == 1 ? dro__npy_integers(&source, &head, &integers)
                                        : dro__npy_bytes(&source, &head, &plain);
        fuzz_ok(ctx, status);
        FUZZ_CHECK((status == DRO_OK) == (floats || integers || plain));
        for (uint64_t k = 0; floats && k < head.count; k++)
            FUZZ_CHECK(isfinite(floats[k]));
        dro__free(floats);
        dro__free(integers);
        dro__free(plain);
    }
    dro__input_close(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char spec[128];
    if (size < 3)
        return 0;
    unsigned mode = bytes[0] & 7;
    size_t labels = bytes[1] | (size_t)bytes[2] << 8;
    bytes += 3, size -= 3;
    labels = labels < size ? labels : size;
    size -= labels;
    if (fuzz_packed(bytes, size) || fuzz_packed(bytes + size, labels))
        return 0;
    if (mode < 3) {
        read_one(mode, bytes, size);
        return 0;
    }
    const char *x = fuzz_file(0, bytes, size), *y = fuzz_file(1, bytes + size, labels);
    const char *more = mode == 4 ? ",target=real" : mode == 5 ? ",groups=" : "";
    snprintf(spec, sizeof spec, "npy:%s,labels=%s%s%s", x, y, more, mode == 5 ? y : "");
    if (mode >= 6)
        snprintf(spec, sizeof spec, "npy:%s,labels=%s,test=%s,test_labels=%s", x, y, x, y);
    fuzz_spec(spec);
    return 0;
}
