/* safetensors_copy IN OUT: reads every tensor of a weights file as floats and writes them again,
 * with the metadata "format" and "note". Called by safetensors_check.py. Exit status 1, with the
 * error's line on stderr, if IN is refused. */
#include "safetensors.h"

#include <stdio.h>
#include <string.h>

static dro_status read_tensor(dro__safetensors *file, size_t k, dro__file_tensor *t, float **values)
{
    const dro__tensor_info *info = dro__safetensors_tensor(file, k);
    *t = (dro__file_tensor){.name = info->name, .rank = info->rank};
    memcpy(t->shape, info->shape, sizeof t->shape);
    if (!(*values = dro__alloc((size_t)info->count, sizeof **values)))
        return DRO_ERR_MEMORY;
    t->data = *values;
    return dro__safetensors_read(file, k, *values, (size_t)info->count);
}

static dro_status copy(dro_context *ctx, dro__safetensors *file, const char *path)
{
    size_t count = dro__safetensors_count(file);
    dro__file_tensor *tensors = dro__alloc(count, sizeof *tensors);
    float **values = dro__alloc(count, sizeof *values);
    const char *metadata[5] = {NULL}, *keys[] = {"format", "note"};
    dro_status status = tensors && values ? DRO_OK : DRO_ERR_MEMORY;
    for (size_t k = 0; k < count && status == DRO_OK; k++)
        status = read_tensor(file, k, &tensors[k], &values[k]);
    for (int k = 0, used = 0; k < 2; k++)
        if (dro__safetensors_metadata(file, keys[k])) {
            metadata[used++] = keys[k];
            metadata[used++] = dro__safetensors_metadata(file, keys[k]);
        }
    if (status == DRO_OK)
        status = dro__safetensors_write(ctx, path, tensors, count, *metadata ? metadata : NULL);
    for (size_t k = 0; values && k < count; k++)
        dro__free(values[k]);
    dro__free(values);
    dro__free(tensors);
    return status;
}

int main(int argc, char **argv)
{
    dro_context *ctx;
    dro__safetensors *file;
    if (argc != 3 || dro_context_create("ref", 1, &ctx) != DRO_OK)
        return 2;
    dro_status status = dro__safetensors_open(ctx, argv[1], &file);
    if (status == DRO_OK)
        status = copy(ctx, file, argv[2]);
    if (status != DRO_OK)
        fprintf(stderr, "%s\n", dro_context_error(ctx));
    dro__safetensors_close(file);
    dro_context_destroy(ctx);
    return status != DRO_OK;
}
