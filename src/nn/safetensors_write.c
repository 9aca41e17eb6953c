/* safetensors: writing (safetensors.h), so that a file is either the old one or the new one.
 *
 * The header is padded with spaces so that the values begin at a multiple of 8; they follow in the
 * order given. A link is followed: the file that it names is replaced. */
#define _FILE_OFFSET_BITS 64
#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if DRO_WITH_JANSSON
#include <jansson.h>
#endif

enum { BLOCK = 1 << 12, ATTEMPTS = 100 };

typedef struct writer {
    dro_context *ctx;
    const char *path; /* as given, for errors */
    const dro__file_tensor *tensors;
    size_t count;
    unsigned char *header; /* with its length in front */
    size_t header_size;
    char *target, *folder, *temporary;
} writer;

static dro_status cannot(const writer *w, const char *what, const char *path)
{
    int error = errno;
    return dro__tensor_fail(w->ctx, DRO_ERR_FILE, w->path, NULL, "cannot %s '%.150s': %s", what,
                            path, strerror(error));
}

static dro_status no_memory(const writer *w)
{
    return dro__tensor_fail(w->ctx, DRO_ERR_MEMORY, w->path, NULL, "no memory to write it");
}

static void put_little(unsigned char *bytes, uint64_t bits, int size)
{
    for (int k = 0; k < size; k++)
        bytes[k] = (unsigned char)(bits >> 8 * k);
}

static void put_floats(unsigned char *bytes, const float *values, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        uint32_t bits;
        memcpy(&bits, &values[k], sizeof bits);
        put_little(bytes + k * sizeof bits, bits, sizeof bits);
    }
}

/* ---- the header ---- */

#if DRO_WITH_JANSSON

#define REFUSE(w, tensor, ...)                                                                     \
    dro__tensor_fail((w)->ctx, DRO_ERR_ARGUMENT, (w)->path, tensor, __VA_ARGS__)

static dro_status check_tensor(const writer *w, const dro__file_tensor *t, const json_t *root,
                               uint64_t *bytes)
{
    uint64_t count;
    if (!t->name || !*t->name || strcmp(t->name, DRO__TENSOR_METADATA) == 0)
        return REFUSE(w, t->name, "a tensor without a name of its own: expected one");
    if (dro__utf8_wrong(t->name, strlen(t->name)))
        return REFUSE(w, t->name, "its name is not UTF-8: expected UTF-8");
    if (json_object_get(root, t->name))
        return REFUSE(w, t->name, "is there twice: expected every name once");
    if (t->rank < 0 || t->rank > DRO__TENSOR_RANK)
        return REFUSE(w, t->name, "%d dimensions: expected at most %d", t->rank, DRO__TENSOR_RANK);
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] < 0)
            return REFUSE(w, t->name, "shape[%d] is negative: expected at least 0", k);
    if (!dro__tensor_measure(t->shape, t->rank, sizeof(float), &count, bytes))
        return REFUSE(w, t->name, "the product of its shape overflows: expected fewer values");
    if (count && !t->data)
        return REFUSE(w, t->name, "has no data: expected %llu values", (unsigned long long)count);
    return DRO_OK;
}

static dro_status add_tensor(const writer *w, json_t *root, const dro__file_tensor *t,
                             uint64_t *offset)
{
    uint64_t bytes;
    json_int_t end;
    DRO_TRY(check_tensor(w, t, root, &bytes));
    if (__builtin_add_overflow(*offset, bytes, &end))
        return REFUSE(w, t->name, "more than 2^63 bytes in all: expected less");
    json_t *shape = json_array();
    for (int k = 0; k < t->rank; k++)
        json_array_append_new(shape, json_integer(t->shape[k]));
    json_t *about = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                              "data_offsets", (json_int_t)*offset, end);
    if (!about || json_array_size(shape) != (size_t)t->rank) {
        json_decref(about);
        return no_memory(w);
    }
    if (json_object_set_new(root, t->name, about) != 0)
        return no_memory(w);
    *offset = (uint64_t)end;
    return DRO_OK;
}

static uint64_t sum_of(const dro__file_tensor *t)
{
    unsigned char block[BLOCK * sizeof(float)];
    uint64_t count = 0, bytes, sum = dro__tensor_sum(t->name, t->rank, t->shape);
    dro__tensor_measure(t->shape, t->rank, sizeof(float), &count, &bytes);
    for (uint64_t first = 0; first < count; first += BLOCK) {
        size_t some = count - first < BLOCK ? (size_t)(count - first) : BLOCK;
        put_floats(block, t->data + first, some);
        sum = dro__checksum(sum, block, some * sizeof(float));
    }
    return sum;
}

static dro_status add_metadata(const writer *w, json_t *root, const char *const *metadata)
{
    uint64_t sum = 0;
    char text[DRO__CHECKSUM_TEXT];
    json_t *pairs = json_object_get(root, DRO__TENSOR_METADATA);
    for (; *metadata; metadata += 2) {
        if (json_object_get(pairs, metadata[0]))
            return REFUSE(w, NULL, "metadata '%.100s' is there twice: expected every key once",
                          metadata[0]);
        if (dro__utf8_wrong(metadata[0], strlen(metadata[0])) ||
            dro__utf8_wrong(metadata[1], strlen(metadata[1])))
            return REFUSE(w, NULL, "metadata '%.100s' is not UTF-8: expected UTF-8", metadata[0]);
        if (json_object_set_new(pairs, metadata[0], json_string(metadata[1])) != 0)
            return no_memory(w);
        sum += dro__tensor_pair_sum(metadata[0], metadata[1]);
    }
    for (size_t k = 0; k < w->count; k++)
        sum += sum_of(&w->tensors[k]);
    dro__tensor_sum_text(sum, text);
    return json_object_set_new(pairs, DRO__TENSOR_CHECKSUM, json_string(text)) == 0 ? DRO_OK
                                                                                    : no_memory(w);
}

static dro_status print_header(writer *w, const json_t *root)
{
    size_t size = json_dumpb(root, NULL, 0, JSON_COMPACT), padded = (size + 7) / 8 * 8;
    if (size == 0 || padded > DRO__SAFETENSORS_HEADER)
        return REFUSE(w, NULL, "a header of %zu bytes: expected at most %d", padded,
                      DRO__SAFETENSORS_HEADER);
    w->header_size = 8 + padded;
    if (!(w->header = dro__alloc(w->header_size, 1)))
        return no_memory(w);
    put_little(w->header, padded, 8);
    memset(w->header + 8, ' ', padded);
    if (json_dumpb(root, (char *)w->header + 8, size, JSON_COMPACT) != size)
        return no_memory(w);
    return DRO_OK;
}

static dro_status make_header(writer *w, const char *const *metadata)
{
    uint64_t offset = 0;
    json_t *root = json_object();
    dro_status status = root ? DRO_OK : no_memory(w);
    if (status == DRO_OK && metadata && /* which stands first */
        json_object_set_new(root, DRO__TENSOR_METADATA, json_object()) != 0)
        status = no_memory(w);
    for (size_t k = 0; k < w->count && status == DRO_OK; k++)
        status = add_tensor(w, root, &w->tensors[k], &offset);
    if (status == DRO_OK && metadata) /* the checksum covers tensors that are correct */
        status = add_metadata(w, root, metadata);
    if (status == DRO_OK)
        status = print_header(w, root);
    json_decref(root);
    return status;
}

#else

static dro_status make_header(writer *w, const char *const *metadata)
{
    (void)metadata;
    return dro__tensor_fail(w->ctx, DRO_ERR_UNSUPPORTED, w->path, NULL, DRO__TENSOR_NO_JSON);
}

#endif

/* ---- the file ---- */

/* Where to write: the file behind a link, its folder, and space for the name of the temporary
 * file. */
static dro_status find_target(writer *w)
{
    struct stat about;
    char *real = realpath(w->path, NULL);
    const char *path = real ? real : w->path, *slash = strrchr(path, '/');
    size_t length = strlen(path), folder = slash ? (size_t)(slash - path) : 0;
    bool fine = !real || (stat(real, &about) == 0 && S_ISREG(about.st_mode));
    w->target = dro__alloc(length + 1, 1);
    w->folder = dro__alloc(folder + 2, 1);
    w->temporary = dro__alloc(length + 64, 1);
    if (w->target && w->folder && w->temporary) {
        memcpy(w->target, path, length);
        memcpy(w->folder, slash ? (folder ? path : "/") : ".", folder ? folder : 1);
    }
    free(real);
    if (!w->target || !w->folder || !w->temporary)
        return no_memory(w);
    if (!fine)
        return dro__tensor_fail(w->ctx, DRO_ERR_FILE, w->path, NULL,
                                "not a regular file: expected one, or none");
    return DRO_OK;
}

static dro_status write_bytes(const writer *w, int fd, const unsigned char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = write(fd, bytes, size);
        if (count < 0 && errno != EINTR)
            return cannot(w, "write", w->temporary);
        bytes += count > 0 ? count : 0;
        size -= count > 0 ? (size_t)count : 0;
    }
    return DRO_OK;
}

static dro_status write_tensor(const writer *w, int fd, const dro__file_tensor *t)
{
    unsigned char block[BLOCK * sizeof(float)];
    uint64_t count = 0, bytes;
    dro__tensor_measure(t->shape, t->rank, sizeof(float), &count, &bytes);
    for (uint64_t first = 0; first < count; first += BLOCK) {
        size_t some = count - first < BLOCK ? (size_t)(count - first) : BLOCK;
        for (size_t k = 0; k < some; k++)
            if (!isfinite(t->data[first + k]))
                return dro__tensor_fail(
                    w->ctx, DRO_ERR_NUMBER, w->path, t->name,
                    "value %llu is %g: expected a finite number; nothing is written",
                    (unsigned long long)(first + k), (double)t->data[first + k]);
        put_floats(block, t->data + first, some);
        DRO_TRY(write_bytes(w, fd, block, some * sizeof(float)));
    }
    return DRO_OK;
}

static dro_status fill(const writer *w, int fd)
{
    DRO_TRY(write_bytes(w, fd, w->header, w->header_size));
    for (size_t k = 0; k < w->count; k++)
        DRO_TRY(write_tensor(w, fd, &w->tensors[k]));
    return fsync(fd) == 0 ? DRO_OK : cannot(w, "write", w->temporary);
}

/* With the permissions of a newly created file, which mkstemp() would not give. */
static dro_status open_temporary(writer *w, int *fd)
{
    for (int k = 0; k < ATTEMPTS; k++) {
        sprintf(w->temporary, "%s.%ld-%d.tmp", w->target, (long)getpid(), k);
        *fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0)
            return DRO_OK;
        if (errno != EEXIST)
            break;
    }
    return cannot(w, "create", w->temporary);
}

static dro_status replace(writer *w)
{
    int fd;
    DRO_TRY(open_temporary(w, &fd));
    dro_status status = fill(w, fd);
    if (close(fd) != 0 && status == DRO_OK)
        status = cannot(w, "write", w->temporary);
    if (status == DRO_OK && rename(w->temporary, w->target) != 0)
        status = cannot(w, "replace", w->target);
    if (status != DRO_OK)
        unlink(w->temporary);
    return status;
}

/* Opens the folder first: a new name must be fsynced, too. */
static dro_status write_file(writer *w)
{
    DRO_TRY(find_target(w));
    int folder = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return cannot(w, "open the folder", w->folder);
    dro_status status = replace(w);
    if (status == DRO_OK && fsync(folder) != 0 && errno != EINVAL) /* EINVAL: not on this system */
        status = cannot(w, "write the folder", w->folder);
    close(folder);
    return status;
}

dro_status dro__safetensors_write(dro_context *ctx, const char *path,
                                  const dro__file_tensor *tensors, size_t count,
                                  const char *const *metadata)
{
    writer w = {.ctx = ctx, .path = path, .tensors = tensors, .count = count};
    dro__json_watch();
    dro_status status = make_header(&w, metadata);
    if (dro__memory_ran_out())
        status = no_memory(&w);
    if (status == DRO_OK)
        status = write_file(&w);
    dro__free(w.header);
    dro__free(w.target);
    dro__free(w.folder);
    dro__free(w.temporary);
    return status;
}

/* ---- another value in the metadata ---- */

typedef struct copy {
    dro__file_tensor *tensors;
    float **values;     /* (count) */
    const char **pairs; /* borrowed from the file */
    size_t count;
} copy;

static dro_status read_copy(dro__safetensors *file, copy *c)
{
    for (size_t k = 0; k < c->count; k++) {
        const dro__tensor_info *info = dro__safetensors_tensor(file, k);
        c->values[k] = dro__alloc((size_t)info->count + 1, sizeof(float));
        if (!c->values[k])
            return DRO_ERR_MEMORY;
        DRO_TRY(dro__safetensors_read(file, k, c->values[k], (size_t)info->count));
        c->tensors[k] =
            (dro__file_tensor){.name = info->name, .rank = info->rank, .data = c->values[k]};
        memcpy(c->tensors[k].shape, info->shape, sizeof info->shape);
    }
    return DRO_OK;
}

dro_status dro__safetensors_set(dro_context *ctx, const char *path, const char *key,
                                const char *value)
{
    dro__safetensors *file;
    DRO_TRY(dro__safetensors_open(ctx, path, &file));
    size_t keys = 0, used = 0;
    while (dro__safetensors_key(file, keys))
        keys++;
    copy c = {.count = dro__safetensors_count(file)};
    c.tensors = dro__alloc(c.count + 1, sizeof *c.tensors);
    c.values = dro__alloc(c.count + 1, sizeof *c.values);
    c.pairs = dro__alloc(2 * keys + 3, sizeof *c.pairs);
    dro_status status = c.tensors && c.values && c.pairs ? DRO_OK : DRO_ERR_MEMORY;
    if (status == DRO_OK)
        status = dro__safetensors_check(file);
    if (status == DRO_OK)
        status = read_copy(file, &c);
    for (size_t k = 0; c.pairs && k < keys; k++) {
        const char *name = dro__safetensors_key(file, k);
        if (strcmp(name, key) == 0 || strcmp(name, DRO__TENSOR_CHECKSUM) == 0)
            continue;
        c.pairs[used++] = name;
        c.pairs[used++] = dro__safetensors_metadata(file, name);
    }
    if (c.pairs && value) {
        c.pairs[used++] = key;
        c.pairs[used++] = value;
    }
    if (status == DRO_ERR_MEMORY)
        dro__fail(ctx, status, "%s: no memory to write it again", path);
    if (status == DRO_OK)
        status = dro__safetensors_write(ctx, path, c.tensors, c.count, c.pairs);
    for (size_t k = 0; c.values && k < c.count; k++)
        dro__free(c.values[k]);
    dro__free(c.tensors);
    dro__free(c.values);
    dro__free(c.pairs);
    dro__safetensors_close(file);
    return status;
}
