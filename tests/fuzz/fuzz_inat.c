/* iNaturalist's JSON: 0xff separates the training file from the test file. */
#include "packed.h"

#include "image_files.h"

static void look(const dro_data *data)
{
    for (int32_t k = 0; k < data->classes; k++)
        FUZZ_CHECK(data->class_names[k]);
    for (int s = DRO_TRAIN; s <= DRO_TEST; s++)
        for (int64_t i = 0; i < data->split[s].n; i++) {
            const dro__table *t = &data->split[s];
            const char *path = t->text + t->places[i];
            FUZZ_CHECK(t->labels[i] >= 0 && t->labels[i] < data->classes);
            FUZZ_CHECK(strncmp(path, "root/", 5) == 0 && path[5] != '/' && !strstr(path, "/../"));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    size_t first, second = fuzz_cut(bytes, size, 0xff, &first);
    dro__input *train = NULL, *test = NULL;
    if (fuzz_packed(bytes, first) || fuzz_packed(bytes + size - second, second))
        return 0;
    dro_data *data = dro__alloc(1, sizeof *data);
    FUZZ_CHECK(data);
    data->ctx = ctx;
    bool ok = fuzz_ok(ctx, dro__input_memory(ctx, "fuzz", bytes, first, &train));
    if (ok && first < size)
        ok = fuzz_ok(ctx, dro__input_memory(ctx, "fuzz", bytes + first + 1, second, &test));
    if (ok && fuzz_ok(ctx, dro__inat_read(data, train, test, "root")))
        look(data);
    dro__input_close(train);
    dro__input_close(test);
    dro_data_close(data);
    return 0;
}
