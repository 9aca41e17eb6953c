/* STL-10: the content of an image does not matter, so the first byte says how many there
 * are and the second how many bytes are cut off the last; the rest is the file of labels. */
#include "packed.h"

#include "binary.h"

enum { IMAGE = 3 * DRO__STL10_SIDE * DRO__STL10_SIDE, IMAGES_MAX = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static uint8_t file[IMAGES_MAX * IMAGE];
    dro_context *ctx = fuzz_context();
    dro__table table = {0};
    dro__input *images, *labels;
    if (size < 2 || fuzz_packed(bytes + 2, size - 2))
        return 0;
    size_t length = (bytes[0] & 3) * (size_t)IMAGE, cut = bytes[1] < length ? bytes[1] : length;
    memset(file, bytes[0], 64);
    if (!fuzz_ok(ctx, dro__input_memory(ctx, "images", file, length - cut, &images)))
        return 0;
    if (fuzz_ok(ctx, dro__input_memory(ctx, "labels", bytes + 2, size - 2, &labels))) {
        if (fuzz_ok(ctx, dro__stl10_read(ctx, images, labels, length, &table))) {
            FUZZ_CHECK((size_t)table.n * IMAGE == length - cut);
            for (int64_t i = 0; i < table.n; i++)
                FUZZ_CHECK(table.labels[i] >= 0 && table.labels[i] < 10 && table.records[i] == i);
        }
        dro__input_close(labels);
    }
    dro__input_close(images);
    dro__table_free(&table);
    return 0;
}
