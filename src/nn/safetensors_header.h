/* Inside the safetensors files: the header as C structs, and the line of an error. */
#ifndef DRO_SAFETENSORS_HEADER_H
#define DRO_SAFETENSORS_HEADER_H

#include "safetensors.h"

#define DRO__TENSOR_METADATA "__metadata__"
#define DRO__TENSOR_NO_JSON                                                                        \
    "safetensors needs JSON, which this libdro was built without: build with the package "         \
    "libjansson-dev"

/* How the bytes of a value are to be taken. */
typedef enum dro__tensor_kind {
    DRO__TENSOR_FLOAT,
    DRO__TENSOR_HALF,
    DRO__TENSOR_BRAIN,
    DRO__TENSOR_DOUBLE,
    DRO__TENSOR_SIGNED,
    DRO__TENSOR_UNSIGNED,
    DRO__TENSOR_TRUTH
} dro__tensor_kind;

typedef struct dro__tensor_type {
    const char *name;
    dro__tensor_kind kind;
    int size; /* bytes of a value */
} dro__tensor_type;

typedef struct dro__tensor_entry {
    dro__tensor_info info;
    const dro__tensor_type *type;
    uint64_t begin, end; /* bytes, counted from where the values begin */
} dro__tensor_entry;

typedef struct dro__tensor_pair {
    const char *key, *value;
} dro__tensor_pair;

typedef struct dro__tensor_header {
    dro_context *ctx;
    const char *name; /* of the file, for errors; borrowed */
    char *texts;      /* all names, keys and values of metadata; no longer than the header */
    size_t texts_used;
    dro__tensor_entry *entries; /* by their place in the file */
    size_t count, capacity;
    const dro__tensor_entry **by_name;
    dro__tensor_pair *pairs; /* metadata, by key */
    size_t pair_count, pair_capacity;
    bool has_metadata;
} dro__tensor_header;

/* Parses and checks the text of a header, which `bytes` of values follow. ctx and name are set, all
 * else is zero; to be cleared in every case. */
dro_status dro__tensor_header_parse(dro__tensor_header *h, const char *text, size_t size,
                                    uint64_t bytes);
void dro__tensor_header_clear(dro__tensor_header *h);

/* The values of a shape without negative numbers, and their bytes at `size` each. False if that is
 * too much; a dimension of 0 counts as 1 there, so that no product of some of the dimensions
 * overflows. */
bool dro__tensor_measure(const int64_t *shape, int rank, int size, uint64_t *count,
                         uint64_t *bytes);

/* The checksum of a file is the sum of those of its tensors (this, continued over their bytes) and
 * of its keys "dro.*", in any order. */
#define DRO__TENSOR_CHECKSUM "dro.checksum"
enum { DRO__CHECKSUM_TEXT = 17 };
uint64_t dro__tensor_sum(const char *name, int rank, const int64_t *shape);
uint64_t dro__tensor_pair_sum(const char *key, const char *value); /* 0: it does not count */
void dro__tensor_sum_text(uint64_t sum, char text[DRO__CHECKSUM_TEXT]);

/* "FILE: tensor 'NAME': ..." without control characters, shortened where it must be. tensor: or
 * NULL. */
dro_status dro__tensor_fail(dro_context *ctx, dro_status status, const char *file,
                            const char *tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
#ifdef DRO_LINT /* as dro__fail */
#define dro__tensor_fail(ctx, status, ...) (dro__tensor_fail(ctx, status, __VA_ARGS__), (status))
#endif

#endif
