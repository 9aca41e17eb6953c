/* IDX: the first byte is the length of the labels' file, which lies at the end, after the
 * images'. */
#include "packed.h"

#include "binary.h"

static void look(const dro__images_shape *shape, const dro__table *table)
{
    size_t image = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width, sum = 0;
    FUZZ_CHECK(shape->channels == 1 || shape->channels == 3);
    FUZZ_CHECK((uint64_t)table->n == shape->count);
    for (int64_t i = 0; i < table->n; i++) {
        FUZZ_CHECK(table->labels[i] >= 0 && table->labels[i] < 256 && table->records[i] == i);
        sum += table->pixels[(size_t)i * image] + table->pixels[(size_t)(i + 1) * image - 1];
    }
    FUZZ_CHECK(sum <= 510 * (size_t)table->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro__table table = {0};
    dro__images_shape shape = {0};
    dro__input *images, *labels;
    if (size < 1)
        return 0;
    size_t second = *bytes++;
    size--;
    second = second < size ? second : size;
    size -= second;
    if (fuzz_packed(bytes, size) || fuzz_packed(bytes + size, second))
        return 0;
    if (!fuzz_ok(ctx, dro__input_memory(ctx, "images", bytes, size, &images)))
        return 0;
    if (fuzz_ok(ctx, dro__input_memory(ctx, "labels", bytes + size, second, &labels))) {
        if (fuzz_ok(ctx, dro__idx_read(ctx, images, labels, size, &shape, &table)))
            look(&shape, &table);
        dro__input_close(labels);
    }
    dro__input_close(images);
    dro__table_free(&table);
    return 0;
}
