/* One array of NumPy, versions 1.0 to 3.0 of the format: the magic number, the length of the
 * header, the header (a Python dictionary: descr, fortran_order, shape), the values. */
#include "npy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEADER_MAX = 1 << 16, CHUNK = 1 << 14 };

/* ---- the header ---- */

typedef struct cursor {
    const dro__npy_source *source;
    const char *text;
    size_t size, at;
} cursor;

static dro_status bad(const cursor *c, const char *expected)
{
    return dro__fail(c->source->ctx, DRO_ERR_DATA, "%s: NumPy header, character %zu: expected %s",
                     c->source->name, c->at, expected);
}

static void skip_space(cursor *c)
{
    while (c->at < c->size && (c->text[c->at] == ' ' || c->text[c->at] == '\n'))
        c->at++;
}

/* Takes the character if it is next. */
static bool take(cursor *c, char what)
{
    skip_space(c);
    if (c->at >= c->size || c->text[c->at] != what)
        return false;
    c->at++;
    return true;
}

/* 'text' or "text" without escapes. */
static dro_status take_string(cursor *c, char *text, size_t size)
{
    skip_space(c);
    char quote = c->at < c->size ? c->text[c->at] : '\0';
    size_t length = 0;
    if (quote != '\'' && quote != '"')
        return bad(c, "a quoted word (structured arrays are not supported)");
    for (c->at++; c->at < c->size && c->text[c->at] != quote; c->at++) {
        if (c->text[c->at] < ' ' || c->text[c->at] == '\\' || length + 1 == size)
            return bad(c, "a short word without escapes");
        text[length++] = c->text[c->at];
    }
    text[length] = '\0';
    return take(c, quote) ? DRO_OK : bad(c, "a closing quote");
}

/* '<f4' and the like. */
static dro_status take_type(cursor *c, dro__npy *head)
{
    static const char *const known[] = {"u1", "i1", "b1", "u2", "i2", "f2",
                                        "u4", "i4", "f4", "u8", "i8", "f8"};
    char text[32];
    DRO_TRY(take_string(c, text, sizeof text));
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (text[0] && strcmp(text + 1, known[k]) == 0) {
            head->kind = known[k][0];
            head->size = known[k][1] - '0';
            head->big_endian = text[0] == '>';
            if (strchr(head->size == 1 ? "<>|" : "<>", text[0]))
                return DRO_OK;
        }
    bool texts = strpbrk(text, "USO") != NULL;
    return dro__fail(c->source->ctx, DRO_ERR_DATA,
                     "%s: type '%s': expected numbers: u1 i1 b1 u2 i2 f2 u4 i4 f4 u8 i8 f8 after < "
                     "or >%s",
                     c->source->name, text,
                     texts ? " (numpy.unique(y, return_inverse=True)[1] numbers texts)" : "");
}

static dro_status take_order(cursor *c, dro__npy *head)
{
    skip_space(c);
    const char *rest = c->text + c->at;
    size_t left = c->size - c->at;
    head->fortran = left >= 4 && memcmp(rest, "True", 4) == 0;
    if (!head->fortran && !(left >= 5 && memcmp(rest, "False", 5) == 0))
        return bad(c, "True or False");
    c->at += head->fortran ? 4 : 5;
    return DRO_OK;
}

static dro_status take_size(cursor *c, uint64_t *value)
{
    skip_space(c);
    size_t start = c->at;
    *value = 0;
    for (; c->at < c->size && c->text[c->at] >= '0' && c->text[c->at] <= '9'; c->at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(c->text[c->at] - '0'), value))
            return bad(c, "a size below 2^64");
    if (c->at == start || (c->text[start] == '0' && c->at > start + 1))
        return bad(c, "a size");
    return DRO_OK;
}

/* (), (3,), (3, 4) or (3, 4,) */
static dro_status take_shape(cursor *c, dro__npy *head)
{
    head->dims = 0;
    if (!take(c, '('))
        return bad(c, "the shape, in brackets");
    while (!take(c, ')')) {
        if (head->dims == DRO__NPY_DIMS)
            return bad(c, "no more than 8 dimensions");
        DRO_TRY(take_size(c, &head->shape[head->dims++]));
        if (!take(c, ',') && (head->dims == 1 || c->at >= c->size || c->text[c->at] != ')'))
            return bad(c, "a comma after a size");
    }
    return DRO_OK;
}

static dro_status parse(cursor *c, dro__npy *head)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    static dro_status (*const values[])(cursor *, dro__npy *) = {take_type, take_order, take_shape};
    bool seen[3] = {false, false, false};
    char key[32];
    if (!take(c, '{'))
        return bad(c, "{");
    while (!take(c, '}')) {
        int k = 0;
        DRO_TRY(take_string(c, key, sizeof key));
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3 || seen[k])
            return bad(c, "descr, fortran_order and shape, each once");
        seen[k] = true;
        if (!take(c, ':'))
            return bad(c, ":");
        DRO_TRY(values[k](c, head));
        if (!take(c, ',') && (c->at >= c->size || c->text[c->at] != '}'))
            return bad(c, ", or }");
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return bad(c, "descr, fortran_order and shape");
    skip_space(c);
    return c->at == c->size ? DRO_OK : bad(c, "nothing after }");
}

static dro_status exact(dro__npy_source *s, void *bytes, size_t size, const char *what)
{
    size_t got;
    DRO_TRY(s->read(s, bytes, size, &got));
    if (got < size)
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: ends too early: expected %s (%zu bytes)",
                         s->name, what, size);
    return DRO_OK;
}

/* The product of the shape, within the limit and what the source is known to hold. */
static dro_status check_size(const dro__npy_source *s, uint64_t used, dro__npy *head)
{
    bool empty = false;
    head->count = 1;
    for (int k = 0; k < head->dims; k++)
        empty |= head->shape[k] == 0;
    for (int k = 0; k < head->dims && !empty; k++)
        if (__builtin_mul_overflow(head->count, head->shape[k], &head->count) ||
            head->count > DRO__NPY_MAX)
            return dro__fail(s->ctx, DRO_ERR_DATA,
                             "%s: declares more than %llu values: expected no more", s->name,
                             (unsigned long long)DRO__NPY_MAX);
    head->count = empty ? 0 : head->count;
    uint64_t bytes = used + head->count * (uint64_t)head->size;
    if (s->size != UINT64_MAX && bytes != s->size)
        return dro__fail(s->ctx, DRO_ERR_DATA,
                         "%s: has %llu bytes: expected %llu, as its header declares", s->name,
                         (unsigned long long)s->size, (unsigned long long)bytes);
    return DRO_OK;
}

dro_status dro__npy_header(dro__npy_source *s, dro__npy *head)
{
    unsigned char start[8], length[4] = {0};
    char *text;
    *head = (dro__npy){0};
    DRO_TRY(exact(s, start, 8, "the magic number of NumPy"));
    if (memcmp(start, "\x93NUMPY", 6) != 0)
        return dro__fail(s->ctx, DRO_ERR_DATA,
                         "%s: does not begin with \\x93NUMPY: expected a file of numpy.save",
                         s->name);
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: version %d.%d: expected 1.0, 2.0 or 3.0",
                         s->name, start[6], start[7]);
    size_t width = start[6] == 1 ? 2 : 4;
    DRO_TRY(exact(s, length, width, "the length of the header"));
    size_t size =
        length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (size > HEADER_MAX)
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: a header of %zu bytes: expected at most %d",
                         s->name, size, HEADER_MAX);
    if (!(text = dro__alloc(size + 1, 1)))
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "%s: no memory for its header", s->name);
    cursor c = {.source = s, .text = text, .size = size};
    dro_status status = exact(s, text, size, "the header");
    if (status == DRO_OK)
        status = parse(&c, head);
    dro__free(text);
    return status == DRO_OK ? check_size(s, 8 + width + size, head) : status;
}

void dro__npy_print(const dro__npy *head, char *text, size_t size)
{
    const char *kind = head->kind == 'u'   ? "uint"
                       : head->kind == 'i' ? "int"
                       : head->kind == 'f' ? "float"
                                           : "bool";
    int used = snprintf(text, size, "%s%d (", kind, 8 * head->size);
    for (int k = 0; k < head->dims && used > 0 && (size_t)used < size; k++)
        used += snprintf(text + used, size - (size_t)used, "%s%llu", k ? ", " : "",
                         (unsigned long long)head->shape[k]);
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ")");
}

/* ---- values ---- */

/* The bits of one value; a bool is 0 or 1. */
static inline uint64_t load(const dro__npy *head, const uint8_t *p)
{
    bool swap = head->big_endian != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (head->size) {
    case 1:
        return head->kind == 'b' ? *p != 0 : *p;
    case 2:
        memcpy(&two, p, sizeof two);
        return swap ? __builtin_bswap16(two) : two;
    case 4:
        memcpy(&four, p, sizeof four);
        return swap ? __builtin_bswap32(four) : four;
    default:
        memcpy(&eight, p, sizeof eight);
        return swap ? __builtin_bswap64(eight) : eight;
    }
}

static double half(uint64_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction ? (double)NAN : HUGE_VAL)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -value : value;
}

static inline int64_t signed_value(uint64_t bits, int size)
{
    int shift = 64 - 8 * size;
    return (int64_t)(bits << shift) >> shift;
}

static inline double real_value(const dro__npy *head, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float single;
    double value;
    if (head->size == 2)
        return half(bits);
    memcpy(&single, &low, sizeof single);
    memcpy(&value, &bits, sizeof value);
    return head->size == 4 ? (double)single : value;
}

/* "row 3, column 5" of the value at `index` in the file. */
static void place(const dro__npy *head, uint64_t index, char *text, size_t size)
{
    uint64_t n = head->dims ? head->shape[0] : 1, width = head->count / n;
    uint64_t row = head->fortran ? index % n : index / width;
    uint64_t column = head->fortran ? index / n : index % width;
    int used = snprintf(text, size, "row %llu", (unsigned long long)row);
    if (head->dims > 1)
        snprintf(text + used, size - (size_t)used, ", column %llu", (unsigned long long)column);
}

typedef dro_status convert(const dro__npy_source *s, const dro__npy *head, const uint8_t *bytes,
                           uint64_t first, size_t count, void *out);

static dro_status to_floats(const dro__npy_source *s, const dro__npy *head, const uint8_t *bytes,
                            uint64_t first, size_t count, void *out)
{
    float *values = out;
    char where[64];
    for (size_t k = 0; k < count; k++) {
        uint64_t bits = load(head, bytes + k * (size_t)head->size);
        if (head->kind != 'f') {
            values[k] = head->kind == 'i' ? (float)signed_value(bits, head->size) : (float)bits;
            continue;
        }
        double value = real_value(head, bits);
        values[k] = (float)value;
        if (!isfinite(values[k])) {
            place(head, first + k, where, sizeof where);
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: %s: %g: expected a finite number%s",
                             s->name, where, value, isfinite(value) ? " in single precision" : "");
        }
    }
    return DRO_OK;
}

static dro_status to_integers(const dro__npy_source *s, const dro__npy *head, const uint8_t *bytes,
                              uint64_t first, size_t count, void *out)
{
    int64_t *values = out;
    char where[64];
    for (size_t k = 0; k < count; k++) {
        uint64_t bits = load(head, bytes + k * (size_t)head->size);
        double value = head->kind == 'f' ? real_value(head, bits) : (double)bits;
        bool whole = head->kind == 'f' ? fabs(value) <= 0x1p53 && value == floor(value)
                                       : head->kind == 'i' || bits <= INT64_MAX;
        if (!whole) {
            place(head, first + k, where, sizeof where);
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: %s: %.17g: expected a whole number%s",
                             s->name, where, value,
                             head->kind == 'f' ? " (target=real keeps any)" : " below 2^63");
        }
        values[k] = head->kind == 'f'   ? (int64_t)value
                    : head->kind == 'i' ? signed_value(bits, head->size)
                                        : (int64_t)bits;
    }
    return DRO_OK;
}

static dro_status to_bytes(const dro__npy_source *s, const dro__npy *head, const uint8_t *bytes,
                           uint64_t first, size_t count, void *out)
{
    (void)s, (void)head, (void)first;
    memcpy(out, bytes, count);
    return DRO_OK;
}

/* From the order of the file, first index fastest, to C order. */
static dro_status reorder(const dro__npy_source *s, const dro__npy *head, size_t element,
                          void **values)
{
    uint64_t at[DRO__NPY_DIMS] = {0}, from = 0, strides[DRO__NPY_DIMS] = {1};
    char *ordered = dro__alloc(head->count, element);
    if (!ordered)
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "%s: no memory for %llu values", s->name,
                         (unsigned long long)head->count);
    for (int k = 1; k < head->dims; k++)
        strides[k] = strides[k - 1] * head->shape[k - 1];
    for (uint64_t to = 0; to < head->count; to++) {
        memcpy(ordered + to * element, (const char *)*values + from * element, element);
        for (int k = head->dims - 1; k >= 0; k--) {
            from += strides[k];
            if (++at[k] < head->shape[k])
                break;
            from -= strides[k] * at[k];
            at[k] = 0;
        }
    }
    dro__free(*values);
    *values = ordered;
    return DRO_OK;
}

bool dro__npy_too_short(const dro__npy_source *s, const dro__npy *head)
{
    return s->plain && s->plain / (uint64_t)head->size < head->count;
}

/* Before it is read. count is at most 2^34. */
static dro_status fits(const dro__npy_source *s, const dro__npy *head, size_t element)
{
    uint64_t copies = head->fortran && head->dims > 1 ? 2 : 1;
    return dro__npy_too_short(s, head) ? DRO_OK
                                       : dro__fits(s->ctx, s->name, copies * element * head->count);
}

static dro_status read_values(dro__npy_source *s, const dro__npy *head, size_t element,
                              convert *to_values, void **values)
{
    uint8_t chunk[CHUNK];
    size_t capacity = 0, size = (size_t)head->size, most = CHUNK / size, got;
    uint64_t likely = s->guess / size < head->count ? s->guess / size : head->count;
    DRO_TRY(fits(s, head, element));
    DRO_TRY(dro__grow_file(s->ctx, s->name, values, &capacity, likely, element));
    for (uint64_t done = 0; done < head->count;) {
        uint64_t left = head->count - done;
        size_t count = left < most ? (size_t)left : most;
        DRO_TRY(s->read(s, chunk, count * size, &got));
        if (got < count * size)
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: ends after %llu values: expected %llu",
                             s->name, (unsigned long long)(done + got / size),
                             (unsigned long long)head->count);
        DRO_TRY(dro__grow_file(s->ctx, s->name, values, &capacity, done + count, element));
        DRO_TRY(to_values(s, head, chunk, done, count, (char *)*values + done * element));
        done += count;
    }
    DRO_TRY(s->read(s, chunk, 1, &got));
    if (got > 0)
        return dro__fail(s->ctx, DRO_ERR_DATA,
                         "%s: continues after its %llu values: expected the end", s->name,
                         (unsigned long long)head->count);
    return head->fortran && head->dims > 1 ? reorder(s, head, element, values) : DRO_OK;
}

static dro_status read_array(dro__npy_source *s, const dro__npy *head, size_t element,
                             convert *to_values, void **values)
{
    void *array = NULL;
    dro_status status = read_values(s, head, element, to_values, &array);
    if (status == DRO_OK)
        *values = array;
    else
        dro__free(array);
    return status;
}

dro_status dro__npy_floats(dro__npy_source *s, const dro__npy *head, float **values)
{
    return read_array(s, head, sizeof **values, to_floats, (void **)values);
}

dro_status dro__npy_integers(dro__npy_source *s, const dro__npy *head, int64_t **values)
{
    return read_array(s, head, sizeof **values, to_integers, (void **)values);
}

dro_status dro__npy_bytes(dro__npy_source *s, const dro__npy *head, uint8_t **values)
{
    if (head->kind != 'u' || head->size != 1)
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: expected values of type uint8", s->name);
    return read_array(s, head, 1, to_bytes, (void **)values);
}

/* ---- from an input ---- */

static dro_status read_input(dro__npy_source *s, void *bytes, size_t size, size_t *got)
{
    return dro__input_read(s->from, bytes, size, got);
}

dro__npy_source dro__npy_input(dro_context *ctx, dro__input *input, uint64_t guess)
{
    return (dro__npy_source){.ctx = ctx,
                             .name = dro__input_name(input),
                             .read = read_input,
                             .from = input,
                             .guess = guess,
                             .size = UINT64_MAX,
                             .plain = dro__input_plain_size(input)};
}
