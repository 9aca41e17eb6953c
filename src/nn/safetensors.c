/* safetensors: reading files (safetensors.h). safetensors_header.c parses the header. */
#define _FILE_OFFSET_BITS 64
#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 14 }; /* bytes read at once */

struct dro__safetensors {
    dro_context *ctx;
    char *name;
    int fd; /* -1: memory */
    const unsigned char *memory;
    uint64_t size, data; /* of the whole file; where the values begin in it */
    dro__tensor_header header;
};

/* ---- bytes ---- */

static dro_status fetch(dro__safetensors *f, const char *tensor, uint64_t at, void *bytes,
                        size_t size)
{
    if (f->fd < 0) {
        memcpy(bytes, f->memory + at, size);
        return DRO_OK;
    }
    for (size_t got = 0; got < size;) {
        ssize_t count = pread(f->fd, (char *)bytes + got, size - got, (off_t)(at + got));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return dro__tensor_fail(f->ctx, DRO_ERR_FILE, f->name, tensor, "cannot read: %s",
                                    count ? strerror(errno) : "it has become shorter");
        got += (size_t)count;
    }
    return DRO_OK;
}

/* The bits of a little-endian number. */
static inline uint64_t little(const unsigned char *bytes, int size)
{
    uint64_t bits = 0;
    for (int k = 0; k < size; k++)
        bits |= (uint64_t)bytes[k] << 8 * k;
    return bits;
}

/* What torch.save writes: a zip archive, or in older files a pickle. */
static bool is_pickled(const unsigned char start[8], unsigned char first)
{
    return first != '{' && (memcmp(start, "PK\3\4", 4) == 0 || (start[0] == 0x80 && start[1] <= 5));
}

static dro_status read_header(dro__safetensors *f)
{
    enum { START = 8 };
    unsigned char start[START], first = 0;
    if (f->size < START)
        return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, NULL,
                                "has %d bytes: expected 8 for the length of the header",
                                (int)f->size);
    DRO_TRY(fetch(f, NULL, 0, start, START));
    uint64_t size = little(start, START), rest = f->size - START;
    if (rest > 0)
        DRO_TRY(fetch(f, NULL, START, &first, 1));
    if (is_pickled(start, first))
        return dro__fail(
            f->ctx, DRO_ERR_DATA,
            "%.60s: a PyTorch file, not safetensors: convert it with `python3 -c 'import sys, "
            "torch; from safetensors.torch import save_file; w = torch.load(sys.argv[1], "
            "map_location=\"cpu\"); save_file({k: v.contiguous() for k, v in w.get(\"state_dict\", "
            "w).items()}, \"weights.safetensors\")' %.160s`",
            f->name, f->name);
    if ((size > DRO__SAFETENSORS_HEADER || size > rest) && first != '{')
        return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, NULL,
                                "not a safetensors file: expected weights, as in "
                                "weights.safetensors of a run");
    if (size > DRO__SAFETENSORS_HEADER)
        return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, NULL,
                                "a header of %llu bytes: expected at most %d",
                                (unsigned long long)size, DRO__SAFETENSORS_HEADER);
    if (size > rest)
        return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, NULL,
                                "a header of %llu bytes, but only %llu follow: expected them all",
                                (unsigned long long)size, (unsigned long long)rest);
    char *text = dro__alloc((size_t)size, 1);
    if (!text)
        return dro__tensor_fail(f->ctx, DRO_ERR_MEMORY, f->name, NULL, "no memory for its header");
    f->data = START + size;
    f->header = (dro__tensor_header){.ctx = f->ctx, .name = f->name};
    dro_status status = fetch(f, NULL, START, text, (size_t)size);
    if (status == DRO_OK)
        status = dro__tensor_header_parse(&f->header, text, (size_t)size, rest - size);
    dro__free(text);
    return status;
}

/* ---- opening and closing ---- */

static dro_status create(dro_context *ctx, const char *name, dro__safetensors **file)
{
    dro__safetensors *f = dro__alloc(1, sizeof *f);
    char *copy = dro__alloc(strlen(name) + 1, 1);
    if (!f || !copy) {
        dro__free(f);
        dro__free(copy);
        return dro__tensor_fail(ctx, DRO_ERR_MEMORY, name, NULL, "no memory");
    }
    *f = (dro__safetensors){.ctx = ctx, .name = strcpy(copy, name), .fd = -1};
    *file = f;
    return DRO_OK;
}

static dro_status open_file(dro__safetensors *f)
{
    struct stat about;
    f->fd =
        open(f->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused without waiting */
    if (f->fd < 0 || fstat(f->fd, &about) != 0)
        return dro__tensor_fail(f->ctx, DRO_ERR_FILE, f->name, NULL, "cannot open: %s",
                                strerror(errno));
    if (S_ISDIR(about.st_mode))
        return dro__tensor_fail(f->ctx, DRO_ERR_FILE, f->name, NULL,
                                "a folder: expected a file, as in %s/weights.safetensors", f->name);
    if (!S_ISREG(about.st_mode))
        return dro__tensor_fail(f->ctx, DRO_ERR_FILE, f->name, NULL,
                                "not a regular file: expected one");
    f->size = (uint64_t)about.st_size;
    return read_header(f);
}

/* Returns the file, or closes it and passes the failure on. */
static dro_status finish(dro__safetensors *f, dro_status status, dro__safetensors **file)
{
    if (status == DRO_OK)
        *file = f;
    else
        dro__safetensors_close(f);
    return status;
}

dro_status dro__safetensors_open(dro_context *ctx, const char *path, dro__safetensors **file)
{
    dro__safetensors *f = NULL;
    *file = NULL;
    DRO_TRY(create(ctx, path, &f));
    return finish(f, open_file(f), file);
}

dro_status dro__safetensors_memory(dro_context *ctx, const char *name, const void *bytes,
                                   size_t size, dro__safetensors **file)
{
    dro__safetensors *f = NULL;
    *file = NULL;
    DRO_TRY(create(ctx, name, &f));
    f->memory = bytes;
    f->size = size;
    return finish(f, read_header(f), file);
}

void dro__safetensors_close(dro__safetensors *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    dro__tensor_header_clear(&f->header);
    dro__free(f->name);
    dro__free(f);
}

/* ---- what is in it ---- */

size_t dro__safetensors_count(const dro__safetensors *f)
{
    return f->header.count;
}

const dro__tensor_info *dro__safetensors_tensor(const dro__safetensors *f, size_t index)
{
    return index < f->header.count ? &f->header.entries[index].info : NULL;
}

static int match_name(const void *name, const void *element)
{
    return strcmp(name, (*(const dro__tensor_entry *const *)element)->info.name);
}

int64_t dro__safetensors_find(const dro__safetensors *f, const char *name)
{
    const dro__tensor_header *h = &f->header;
    const dro__tensor_entry **at =
        bsearch(name, h->by_name, h->count, sizeof *h->by_name, match_name);
    return at ? *at - h->entries : -1;
}

static int match_key(const void *key, const void *element)
{
    return strcmp(key, ((const dro__tensor_pair *)element)->key);
}

const char *dro__safetensors_metadata(const dro__safetensors *f, const char *key)
{
    const dro__tensor_header *h = &f->header;
    const dro__tensor_pair *at = NULL;
    if (h->pair_count)
        at = bsearch(key, h->pairs, h->pair_count, sizeof *h->pairs, match_key);
    return at ? at->value : NULL;
}

const char *dro__safetensors_key(const dro__safetensors *f, size_t index)
{
    return index < f->header.pair_count ? f->header.pairs[index].key : NULL;
}

static dro_status sum_tensor(dro__safetensors *f, const dro__tensor_entry *e, uint64_t *sum)
{
    unsigned char block[BLOCK];
    *sum = dro__tensor_sum(e->info.name, e->info.rank, e->info.shape);
    for (uint64_t at = e->begin; at < e->end; at += BLOCK) {
        size_t some = e->end - at < BLOCK ? (size_t)(e->end - at) : BLOCK;
        DRO_TRY(fetch(f, e->info.name, f->data + at, block, some));
        *sum = dro__checksum(*sum, block, some);
    }
    return DRO_OK;
}

dro_status dro__safetensors_check(dro__safetensors *f)
{
    const dro__tensor_header *h = &f->header;
    const char *stated = dro__safetensors_metadata(f, DRO__TENSOR_CHECKSUM);
    uint64_t sum = 0, one;
    char text[DRO__CHECKSUM_TEXT];
    if (!stated)
        return DRO_OK;
    for (size_t k = 0; k < h->pair_count; k++)
        sum += dro__tensor_pair_sum(h->pairs[k].key, h->pairs[k].value);
    for (size_t k = 0; k < h->count; k++) {
        DRO_TRY(sum_tensor(f, &h->entries[k], &one));
        sum += one;
    }
    dro__tensor_sum_text(sum, text);
    if (strcmp(text, stated) == 0)
        return DRO_OK;
    return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, NULL,
                            "is damaged: its checksum is %s, not %.40s (a program that changes a "
                            "tensor should leave out the metadata dro.checksum)",
                            text, stated);
}

/* ---- values ---- */

static float half(unsigned bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31  ? (fraction ? NAN : INFINITY)
                  : exponent == 0 ? ldexpf((float)fraction, -24)
                                  : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits >> 15 ? -value : value;
}

static inline float single(uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static inline float narrow(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static inline float whole(uint64_t bits, int size)
{
    int shift = 64 - 8 * size;
    return (float)((int64_t)(bits << shift) >> shift);
}

/* Rounded once, from the type itself. */
static inline float number(const dro__tensor_type *type, const unsigned char *p)
{
    switch (type->kind) {
    case DRO__TENSOR_FLOAT:
        return single(little(p, 4));
    case DRO__TENSOR_HALF:
        return half((unsigned)little(p, 2));
    case DRO__TENSOR_BRAIN:
        return single(little(p, 2) << 16);
    case DRO__TENSOR_DOUBLE:
        return narrow(little(p, 8));
    case DRO__TENSOR_SIGNED:
        return whole(little(p, type->size), type->size);
    case DRO__TENSOR_UNSIGNED:
        return (float)little(p, type->size);
    case DRO__TENSOR_TRUTH:
        return *p != 0;
    }
    return NAN;
}

dro_status dro__safetensors_read(dro__safetensors *f, size_t index, float *out, size_t count)
{
    unsigned char block[BLOCK];
    if (index >= f->header.count)
        return dro__tensor_fail(f->ctx, DRO_ERR_ARGUMENT, f->name, NULL,
                                "tensor %zu: expected one of %zu", index, f->header.count);
    const dro__tensor_entry *e = &f->header.entries[index];
    size_t size = (size_t)e->type->size, step = BLOCK / size;
    if (count != e->info.count)
        return dro__tensor_fail(f->ctx, DRO_ERR_ARGUMENT, f->name, e->info.name,
                                "has %llu values: expected %zu", (unsigned long long)e->info.count,
                                count);
    for (size_t first = 0; first < count; first += step) {
        size_t some = count - first < step ? count - first : step;
        DRO_TRY(fetch(f, e->info.name, f->data + e->begin + first * size, block, some * size));
        for (size_t k = 0; k < some; k++) {
            float value = number(e->type, block + k * size);
            if (!isfinite(value))
                return dro__tensor_fail(f->ctx, DRO_ERR_DATA, f->name, e->info.name,
                                        "value %zu is %g: expected a finite number%s", first + k,
                                        (double)value,
                                        e->type->size == 8 ? " in single precision" : "");
            out[first + k] = value;
        }
    }
    return DRO_OK;
}
