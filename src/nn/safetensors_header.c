/* The header of a safetensors file: from JSON to structs, strictly.
 *
 *     8 bytes   N, the length of the header, little-endian
 *     N bytes   JSON, padded with spaces:
 *               {"__metadata__": {"key": "value", ...},                           (optional)
 *                "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *     the rest  the values, little-endian and row-major; offsets count from here
 *
 * As Python demands, the values of all tensors lie one after another, without holes, to the end of
 * the file. Stricter than Python: no name twice, no empty name, no other field in a description, at
 * most 8 dimensions, no type below one byte. The header is not parsed as one tree, which could take
 * fifty times its size, but member by member: jansson sees one string or one description at a
 * time. */
#include "safetensors_header.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if DRO_WITH_JANSSON
#include <jansson.h>
#endif

enum {
    FILE_SHOWN = 160,      /* bytes of a file's name, in errors */
    NAME_SHOWN = 120,      /* of a tensor's */
    TEXT_SHOWN = 215,      /* of what is wrong; together they fit DRO__ERROR_SIZE */
    DESCRIPTION_MAX = 4096 /* bytes of JSON */
};

typedef dro__tensor_entry entry;
typedef dro__tensor_pair pair;

/* ---- errors of one line ---- */

/* Bytes of the character of UTF-8 at p, 0 if it is not a whole one that can be shown. */
static size_t character(const char *p, size_t capacity)
{
    unsigned char c = (unsigned char)*p;
    size_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (size > capacity || c < 32 || c == 127)
        return 0;
    for (size_t k = 1; k < size; k++)
        if ((p[k] & 0xc0) != 0x80)
            return 0;
    return size;
}

/* Copies what can be shown; a text that is too long is cut to its beginning, or to its `tail`. */
static void shorten(const char *text, bool tail, char *out, size_t size)
{
    size_t length = strlen(text), keep = length < size ? length : size - 4;
    bool cut = keep < length;
    const char *at = tail ? text + length - keep : text, *end = at + keep;
    while (cut && tail && at < end && (*at & 0xc0) == 0x80)
        at++;
    out = stpcpy(out, cut && tail ? "..." : "");
    while (at < end) {
        size_t some = character(at, (size_t)(end - at));
        if (some)
            memcpy(out, at, some);
        else
            *out = '?', some = 1;
        at += some;
        out += some;
    }
    strcpy(out, cut && !tail ? "..." : "");
}

dro_status(dro__tensor_fail)(dro_context *ctx, dro_status status, const char *file,
                             const char *tensor, const char *format, ...)
{
    char raw[DRO__ERROR_SIZE], what[TEXT_SHOWN], name[NAME_SHOWN], where[FILE_SHOWN];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    shorten(raw, false, what, sizeof what);
    shorten(tensor ? tensor : "", false, name, sizeof name);
    shorten(file, true, where, sizeof where);
    return dro__fail(ctx, status, "%s: %s%s%s%s", where, tensor ? "tensor '" : "", name,
                     tensor ? "': " : "", what);
}

bool dro__tensor_measure(const int64_t *shape, int rank, int size, uint64_t *count, uint64_t *bytes)
{
    int64_t product = size;
    bool empty = false;
    for (int k = 0; k < rank; k++) {
        empty |= shape[k] == 0;
        if (__builtin_mul_overflow(product, shape[k] ? shape[k] : 1, &product))
            return false;
    }
    *bytes = empty ? 0 : (uint64_t)product;
    *count = *bytes / (uint64_t)size;
    return *count <= SIZE_MAX / sizeof(float);
}

/* ---- JSON ---- */

#if DRO_WITH_JANSSON

static const dro__tensor_type dtypes[] = {
    {"F32", DRO__TENSOR_FLOAT, 4},    {"F16", DRO__TENSOR_HALF, 2},
    {"BF16", DRO__TENSOR_BRAIN, 2},   {"F64", DRO__TENSOR_DOUBLE, 8},
    {"I64", DRO__TENSOR_SIGNED, 8},   {"I32", DRO__TENSOR_SIGNED, 4},
    {"I16", DRO__TENSOR_SIGNED, 2},   {"I8", DRO__TENSOR_SIGNED, 1},
    {"U64", DRO__TENSOR_UNSIGNED, 8}, {"U32", DRO__TENSOR_UNSIGNED, 4},
    {"U16", DRO__TENSOR_UNSIGNED, 2}, {"U8", DRO__TENSOR_UNSIGNED, 1},
    {"BOOL", DRO__TENSOR_TRUTH, 1}};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

typedef struct cursor {
    dro__tensor_header *h;
    const char *text;
    size_t size, at;
    const char *tensor; /* whose description is being read, or NULL */
} cursor;

#define REFUSE(c, ...)                                                                             \
    dro__tensor_fail((c)->h->ctx, DRO_ERR_DATA, (c)->h->name, (c)->tensor, __VA_ARGS__)

/* The next byte after white space, 0 at the end. */
static char next(cursor *c)
{
    while (c->at < c->size && c->text[c->at] && strchr(" \t\r\n", c->text[c->at]))
        c->at++;
    return c->at < c->size ? c->text[c->at] : '\0';
}

/* Goes past `wanted`. */
static dro_status expect(cursor *c, char wanted, const char *what)
{
    if (next(c) != wanted)
        return REFUSE(c, "the header is not JSON at its byte %zu: expected %s", c->at, what);
    c->at++;
    return DRO_OK;
}

/* One value of JSON that begins with `first`. */
static dro_status take(cursor *c, char first, const char *what, json_t **value)
{
    json_error_t error;
    DRO_TRY(expect(c, first, what));
    size_t rest = c->size - --c->at;
    bool cut = first == '{' && rest > DESCRIPTION_MAX;
    *value = json_loadb(c->text + c->at, cut ? DESCRIPTION_MAX : rest,
                        JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
    if (*value) {
        c->at += (size_t)error.position;
        return DRO_OK;
    }
    if (cut && json_error_code(&error) == json_error_premature_end_of_input)
        return REFUSE(c, "a description of more than %d bytes: expected less", DESCRIPTION_MAX);
    return REFUSE(c, "the header is not JSON at its byte %zu: %.120s: expected %s", c->at,
                  error.text, what);
}

/* A string, kept in `texts`: it is never longer than its JSON, quotes included. */
static dro_status take_string(cursor *c, const char *what, const char **text)
{
    json_t *value;
    DRO_TRY(take(c, '"', what, &value));
    size_t size = json_string_length(value) + 1;
    *text = memcpy(c->h->texts + c->h->texts_used, json_string_value(value), size);
    c->h->texts_used += size;
    json_decref(value);
    return DRO_OK;
}

/* {"key": VALUE, ...}: member(c, key) reads each value. */
static dro_status walk(cursor *c, dro_status (*member)(cursor *c, const char *key))
{
    const char *key;
    DRO_TRY(expect(c, '{', "an object: '{'"));
    if (next(c) == '}')
        return expect(c, '}', "'}'");
    do {
        DRO_TRY(take_string(c, "a name in quotes", &key));
        DRO_TRY(expect(c, ':', "':' after a name"));
        DRO_TRY(member(c, key));
    } while (next(c) == ',' && expect(c, ',', "','") == DRO_OK);
    return expect(c, '}', "',' or '}'");
}

/* Makes space for one more element of an array. */
static dro_status grow(cursor *c, void **array, size_t count, size_t *capacity, size_t size)
{
    size_t wanted = count < 16 ? 16 : 2 * count;
    if (count < *capacity)
        return DRO_OK;
    void *larger = dro__alloc(wanted, size);
    if (!larger)
        return dro__tensor_fail(c->h->ctx, DRO_ERR_MEMORY, c->h->name, NULL,
                                "no memory for its header");
    if (count)
        memcpy(larger, *array, count * size);
    dro__free(*array);
    *array = larger;
    *capacity = wanted;
    return DRO_OK;
}

static dro_status add_metadata(cursor *c, const char *key)
{
    dro__tensor_header *h = c->h;
    void *array = h->pairs;
    DRO_TRY(grow(c, &array, h->pair_count, &h->pair_capacity, sizeof(pair)));
    h->pairs = array;
    h->pairs[h->pair_count].key = key;
    return take_string(c, "a string in " DRO__TENSOR_METADATA, &h->pairs[h->pair_count++].value);
}

/* An array of whole numbers, none below zero. */
static dro_status read_numbers(cursor *c, const char *field, const json_t *array, size_t least,
                               size_t most, int64_t *numbers)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array))
        return REFUSE(c, "%s is %s: expected an array", field, array ? "not an array" : "missing");
    if (count < least || count > most)
        return REFUSE(c, "%s has %zu numbers: expected %s%zu", field, count,
                      least < most ? "at most " : "", most);
    for (size_t k = 0; k < count; k++) {
        const json_t *value = json_array_get(array, k);
        numbers[k] = json_integer_value(value);
        if (!json_is_integer(value) || numbers[k] < 0)
            return REFUSE(c, "%s[%zu] is %s: expected a whole number of at least 0", field, k,
                          json_is_integer(value) ? "negative" : "not a whole number");
    }
    return DRO_OK;
}

static dro_status read_dtype(cursor *c, const json_t *value, entry *e)
{
    const char *name = json_string_value(value);
    if (!name)
        return REFUSE(c, "dtype is %s: expected a string", value ? "not a string" : "missing");
    for (int k = 0; k < DTYPES && !e->type; k++)
        if (strcmp(dtypes[k].name, name) == 0)
            e->type = &dtypes[k];
    if (!e->type)
        return REFUSE(c,
                      "dtype '%.20s': expected F32, F16, BF16, F64, I64, I32, I16, I8, U64, U32, "
                      "U16, U8 or BOOL",
                      name);
    e->info.dtype = e->type->name;
    return DRO_OK;
}

static dro_status read_description(cursor *c, const json_t *about, entry *e)
{
    const json_t *shape = json_object_get(about, "shape");
    int64_t offsets[2] = {0};
    uint64_t bytes;
    DRO_TRY(read_dtype(c, json_object_get(about, "dtype"), e));
    DRO_TRY(read_numbers(c, "shape", shape, 0, DRO__TENSOR_RANK, e->info.shape));
    DRO_TRY(read_numbers(c, "data_offsets", json_object_get(about, "data_offsets"), 2, 2, offsets));
    if (json_object_size(about) != 3)
        return REFUSE(c, "%zu fields: expected dtype, shape and data_offsets",
                      json_object_size(about));
    e->info.rank = (int)json_array_size(shape);
    if (!dro__tensor_measure(e->info.shape, e->info.rank, e->type->size, &e->info.count, &bytes))
        return REFUSE(c, "the product of its shape overflows: expected fewer values");
    e->begin = (uint64_t)offsets[0];
    e->end = (uint64_t)offsets[1];
    if (e->end < e->begin || e->end - e->begin != bytes)
        return REFUSE(c, "data_offsets [%lld, %lld]: expected %llu bytes, %llu values of %s",
                      (long long)offsets[0], (long long)offsets[1], (unsigned long long)bytes,
                      (unsigned long long)e->info.count, e->type->name);
    return DRO_OK;
}

static dro_status add_tensor(cursor *c, const char *key)
{
    dro__tensor_header *h = c->h;
    void *array = h->entries;
    json_t *about;
    if (strcmp(key, DRO__TENSOR_METADATA) == 0) {
        if (h->has_metadata)
            return REFUSE(c, DRO__TENSOR_METADATA " is there twice: expected one");
        h->has_metadata = true;
        return walk(c, add_metadata);
    }
    if (!*key)
        return REFUSE(c, "an empty name before byte %zu of the header: expected a tensor's name",
                      c->at);
    DRO_TRY(grow(c, &array, h->count, &h->capacity, sizeof(entry)));
    h->entries = array;
    c->tensor = key;
    entry *e = &h->entries[h->count++];
    e->info.name = key;
    DRO_TRY(take(c, '{', "an object: '{'", &about));
    dro_status status = read_description(c, about, e);
    json_decref(about);
    c->tensor = NULL;
    return status;
}

static dro_status parse(dro__tensor_header *h, const char *text, size_t size)
{
    cursor c = {.h = h, .text = text, .size = size};
    if (size == 0 || *text != '{')
        return REFUSE(&c, "its header does not begin with '{': expected a safetensors file");
    DRO_TRY(walk(&c, add_tensor));
    next(&c);
    if (c.at < size)
        return REFUSE(&c, "byte %zu of the header follows its '}': expected spaces", c.at);
    return DRO_OK;
}

#else

static dro_status parse(dro__tensor_header *h, const char *text, size_t size)
{
    (void)text, (void)size;
    return dro__tensor_fail(h->ctx, DRO_ERR_UNSUPPORTED, h->name, NULL, DRO__TENSOR_NO_JSON);
}

#endif

/* ---- the tensors together ---- */

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->info.name, y->info.name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const entry *const *)a)->info.name, (*(const entry *const *)b)->info.name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const pair *)a)->key, ((const pair *)b)->key);
}

/* Sorts, and refuses duplicates. */
static dro_status arrange(dro__tensor_header *h)
{
    if (h->count)
        qsort(h->entries, h->count, sizeof *h->entries, by_place);
    if (h->pair_count)
        qsort(h->pairs, h->pair_count, sizeof *h->pairs, by_key);
    if (!(h->by_name = dro__alloc(h->count, sizeof *h->by_name)))
        return dro__tensor_fail(h->ctx, DRO_ERR_MEMORY, h->name, NULL, "no memory for its names");
    for (size_t k = 0; k < h->count; k++)
        h->by_name[k] = &h->entries[k];
    qsort(h->by_name, h->count, sizeof *h->by_name, by_name);
    for (size_t k = 1; k < h->count; k++)
        if (by_name(&h->by_name[k - 1], &h->by_name[k]) == 0)
            return dro__tensor_fail(h->ctx, DRO_ERR_DATA, h->name, h->by_name[k]->info.name,
                                    "is in the header twice: expected every name once");
    for (size_t k = 1; k < h->pair_count; k++)
        if (by_key(&h->pairs[k - 1], &h->pairs[k]) == 0)
            return dro__tensor_fail(h->ctx, DRO_ERR_DATA, h->name, NULL,
                                    "'%.100s' is in " DRO__TENSOR_METADATA
                                    " twice: expected every key once",
                                    h->pairs[k].key);
    return DRO_OK;
}

/* The values of all tensors, one after another, are the rest of the file. */
static dro_status check_places(const dro__tensor_header *h, uint64_t size)
{
    uint64_t end = 0;
    for (size_t k = 0; k < h->count; k++) {
        const entry *e = &h->entries[k];
        const char *before = k ? h->entries[k - 1].info.name : NULL;
        if (e->begin != end)
            return dro__tensor_fail(h->ctx, DRO_ERR_DATA, h->name, e->info.name,
                                    "data_offsets begin at %llu: expected %llu, where %s%.100s%s",
                                    (unsigned long long)e->begin, (unsigned long long)end,
                                    before ? "'" : "the values begin", before ? before : "",
                                    before ? "' ends" : "");
        if (e->end > size)
            return dro__tensor_fail(h->ctx, DRO_ERR_DATA, h->name, e->info.name,
                                    "ends at byte %llu of the values, of which there are %llu: "
                                    "expected the whole file",
                                    (unsigned long long)e->end, (unsigned long long)size);
        end = e->end;
    }
    if (end != size)
        return dro__tensor_fail(h->ctx, DRO_ERR_DATA, h->name, NULL,
                                "%llu bytes of values: expected %llu, where the last tensor ends",
                                (unsigned long long)size, (unsigned long long)end);
    return DRO_OK;
}

dro_status dro__tensor_header_parse(dro__tensor_header *h, const char *text, size_t size,
                                    uint64_t bytes)
{
    if (!(h->texts = dro__alloc(size, 1)))
        return dro__tensor_fail(h->ctx, DRO_ERR_MEMORY, h->name, NULL, "no memory for its header");
    dro__json_watch();
    dro_status status = parse(h, text, size);
    if (dro__memory_ran_out()) /* jansson would continue with less */
        status =
            dro__tensor_fail(h->ctx, DRO_ERR_MEMORY, h->name, NULL, "no memory for its header");
    DRO_TRY(status);
    DRO_TRY(arrange(h));
    return check_places(h, bytes);
}

void dro__tensor_header_clear(dro__tensor_header *h)
{
    dro__free(h->texts);
    dro__free(h->entries);
    dro__free(h->by_name);
    dro__free(h->pairs);
    *h = (dro__tensor_header){0};
}

/* ---- the checksum ---- */

uint64_t dro__tensor_sum(const char *name, int rank, const int64_t *shape)
{
    uint64_t sum = dro__checksum(0, name, strlen(name) + 1);
    for (int k = 0; k < rank; k++) {
        unsigned char bytes[8];
        for (int b = 0; b < 8; b++)
            bytes[b] = (unsigned char)((uint64_t)shape[k] >> 8 * b);
        sum = dro__checksum(sum, bytes, sizeof bytes);
    }
    return sum;
}

uint64_t dro__tensor_pair_sum(const char *key, const char *value)
{
    if (strncmp(key, "dro.", 4) != 0 || strcmp(key, DRO__TENSOR_CHECKSUM) == 0)
        return 0;
    return dro__checksum(dro__checksum(0, key, strlen(key) + 1), value, strlen(value) + 1);
}

void dro__tensor_sum_text(uint64_t sum, char text[DRO__CHECKSUM_TEXT])
{
    snprintf(text, DRO__CHECKSUM_TEXT, "%016llx", (unsigned long long)sum);
}
