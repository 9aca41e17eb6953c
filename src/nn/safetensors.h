/* Weights files in the safetensors format, which Python's `safetensors` reads and writes.
 *
 *     dro__safetensors *file;
 *     DRO_TRY(dro__safetensors_open(ctx, "resnet18.safetensors", &file));
 *     int64_t k = dro__safetensors_find(file, "fc.weight");
 *     const dro__tensor_info *info = dro__safetensors_tensor(file, (size_t)k); // shape, count
 *     DRO_TRY(dro__safetensors_read(file, (size_t)k, out, (size_t)info->count));
 *     dro__safetensors_close(file);
 *
 * Opening checks all that the header says: the values of every tensor that it describes are in the
 * file. Values are read tensor by tensor, so a file may be larger than memory. Errors are one line
 * that names the file and the tensor. Needs jansson; without it all fails with
 * DRO_ERR_UNSUPPORTED. */
#ifndef DRO_SAFETENSORS_H
#define DRO_SAFETENSORS_H

#include "base.h"

enum {
    DRO__TENSOR_RANK = 8,
    DRO__SAFETENSORS_HEADER = 100000000 /* bytes of a header at most, as in Python */
};

/* A tensor to be written: float32, row-major. */
typedef struct dro__file_tensor {
    const char *name; /* UTF-8 */
    int rank;         /* 0: one value */
    int64_t shape[DRO__TENSOR_RANK];
    const float *data;
} dro__file_tensor;

/* Writes a temporary file in the same folder, fsyncs it and renames it: whatever fails, an older
 * file stays as it was. Numbers that are not finite are refused. metadata: key, value, key, value
 * ..., NULL; or NULL. With metadata comes one more, dro.checksum, of the tensors and of the keys
 * "dro.*". */
dro_status dro__safetensors_write(dro_context *ctx, const char *path,
                                  const dro__file_tensor *tensors, size_t count,
                                  const char *const *metadata);

typedef struct dro__safetensors dro__safetensors;

/* A tensor of a file; the texts live as long as the file is open. */
typedef struct dro__tensor_info {
    const char *name, *dtype; /* "F32" ... */
    int rank;
    int64_t shape[DRO__TENSOR_RANK];
    uint64_t count; /* of values: the product of the shape, which does not overflow */
} dro__tensor_info;

/* Reads and checks the header. Memory is about ten times the header at most. */
dro_status dro__safetensors_open(dro_context *ctx, const char *path, dro__safetensors **file);
/* The same of `size` bytes, borrowed until the file is closed. */
dro_status dro__safetensors_memory(dro_context *ctx, const char *name, const void *bytes,
                                   size_t size, dro__safetensors **file);
void dro__safetensors_close(dro__safetensors *file); /* takes NULL */

/* Tensors are numbered in the order of their values in the file. */
size_t dro__safetensors_count(const dro__safetensors *file);
const dro__tensor_info *dro__safetensors_tensor(const dro__safetensors *file, size_t index);
int64_t dro__safetensors_find(const dro__safetensors *file, const char *name);        /* -1: none */
const char *dro__safetensors_metadata(const dro__safetensors *file, const char *key); /* or NULL */
/* The index-th key of the metadata, or NULL. */
const char *dro__safetensors_key(const dro__safetensors *file, size_t index);
/* Writes the file again with another value of one key of its metadata; NULL: without it. */
dro_status dro__safetensors_set(dro_context *ctx, const char *path, const char *key,
                                const char *value);

/* Reads all of the file again where it has a dro.checksum: an error if it has another. */
dro_status dro__safetensors_check(dro__safetensors *file);

/* All values of a tensor, rounded to nearest where they are not floats; `count` must be its count.
 * Refuses numbers that are not finite in single precision, naming the first. `out` may be partly
 * written when it fails: read into memory of your own before you replace a model's weights. */
dro_status dro__safetensors_read(dro__safetensors *file, size_t index, float *out, size_t count);

#endif
