/* CIFAR: the first byte chooses the layout; the rest is a file. With bit 2 of that byte the rest is
 * stretched, since real records are long: the second byte is how much to cut off the end, the
 * others are the label bytes of as many records. */
#include "packed.h"

#include "binary.h"

enum { IMAGE = 3072, RECORDS_MAX = 4 };

static size_t stretch(const dro__cifar_layout *layout, const uint8_t *bytes, size_t size,
                      uint8_t *file)
{
    size_t each = (size_t)layout->label_count, used = 0, cut = bytes[0];
    for (size_t at = 1; at + each <= size && at <= RECORDS_MAX; at += each) {
        memcpy(file + used, bytes + at, each);
        memset(file + used + each, (int)at, IMAGE);
        used += each + IMAGE;
    }
    return used > cut ? used - cut : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static uint8_t file[(RECORDS_MAX + 1) * (IMAGE + 2)];
    dro_context *ctx = fuzz_context();
    dro__table table = {0};
    dro__input *input;
    if (size < 2 || fuzz_packed(bytes + 1, size - 1))
        return 0;
    const dro__cifar_layout *layout = &dro__cifar_layouts[(bytes[0] & 3) % 3];
    dro__image_block block = {.table = &table, .image = IMAGE};
    bool stretched = bytes[0] & 4;
    size_t length = stretched ? stretch(layout, bytes + 1, size - 1, file) : size - 1;
    const uint8_t *from = stretched ? file : bytes + 1;
    if (fuzz_ok(ctx, dro__input_memory(ctx, "fuzz", from, length, &input))) {
        if (fuzz_ok(ctx, dro__cifar_read(ctx, layout, input, length, &block)))
            for (int64_t i = 0; i < table.n; i++)
                FUZZ_CHECK(table.labels[i] < layout->classes[layout->chosen] &&
                           table.records[i] == i);
        dro__input_close(input);
    }
    dro__table_free(&table);
    return 0;
}
