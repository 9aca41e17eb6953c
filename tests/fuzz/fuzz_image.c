/* Images: the first byte chooses channels and a box to resize, the rest is the file. In this build
 * image.c takes smaller images only, and PNG check sums need not hold. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__image image = {0};
    uint8_t out[8 * 8 * 3];
    if (size == 0)
        return 0;
    unsigned choice = *bytes++;
    int channels = choice & 1 ? 3 : 1, width = 1 + (int)(choice >> 1 & 7), height = 4;
    if (!fuzz_ok(ctx, dro__image_decode(ctx, "fuzz", bytes, size - 1, channels, &image))) {
        FUZZ_CHECK(!image.pixels);
        return 0;
    }
    FUZZ_CHECK(image.width > 0 && image.height > 0 && image.channels == channels);
    double left = image.width * (choice >> 4) / 20.0, top = image.height * (choice >> 5) / 9.0;
    const dro__image_box box = {left, top, image.width, image.height};
    FUZZ_CHECK(dro__image_resize(ctx, &image, &box, width, height, out) == DRO_OK);
    dro__image_free(&image);
    return 0;
}
