/* Lists of `path label`: 0xff separates the training file from the test file. */
#include "packed.h"

#include "image_files.h"

static bool read_part(dro_data *data, const uint8_t *bytes, size_t size, dro_split split)
{
    dro__input *input;
    if (!fuzz_ok(data->ctx, dro__input_memory(data->ctx, "fuzz", bytes, size, &input)))
        return false;
    bool ok = fuzz_ok(data->ctx, dro__list_read(data, input, "root", split));
    dro__input_close(input);
    const dro__table *t = &data->split[split];
    for (int64_t i = 0; ok && i < t->n; i++) {
        const char *path = t->text + t->places[i];
        FUZZ_CHECK(t->labels[i] >= 0 && t->labels[i] < data->classes);
        FUZZ_CHECK(strncmp(path, "root/", 5) == 0 && path[5] != '/' && !strstr(path, "/../"));
    }
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t first, second = fuzz_cut(bytes, size, 0xff, &first);
    if (fuzz_packed(bytes, first) || fuzz_packed(bytes + size - second, second))
        return 0;
    dro_data *data = dro__alloc(1, sizeof *data);
    FUZZ_CHECK(data);
    data->ctx = fuzz_context();
    if (read_part(data, bytes, first, DRO_TRAIN) && first < size)
        read_part(data, bytes + first + 1, second, DRO_TEST);
    data->classes = 0; /* they have no names here */
    dro_data_close(data);
    return 0;
}
