/* The encoding of a table's columns (src/data/csv.h) as ONNX operators: a number becomes
 * (x - centre) * factor, limited, and 0 where it is NaN, with an indicator of that beside it if
 * training had many, how far beyond the limit it is, if many were, and what the limit takes off; a
 * word the place of its category, one-hot. Up to the limit numbers are double: an id or a time in
 * milliseconds is large, and its deviation small. */
#include "csv.h"
#include "onnx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 64 };

static const char *one(char out[NAME], const char *what, size_t column)
{
    snprintf(out, NAME, "%s.%zu", what, column);
    return out;
}

static void scalar(dro__buffer *graph, const char *name, double value)
{
    dro__onnx_constant_double(graph, name, value);
}

static void to_float(dro__buffer *graph, const char *from, const char *to)
{
    dro__buffer type = {0};
    dro__onnx_int(&type, "to", DRO__ONNX_FLOAT);
    dro__onnx_node(graph, "Cast", DRO__NAMES(from), to, &type);
}

/* x up to the limit L, beyond it L (2 - L/|x|) with its sign (dro__limited). */
static void limit(dro__buffer *graph, size_t k, const char *from, const char *to)
{
    char size[NAME], within[NAME], ratio[NAME], rest[NAME], sign[NAME], beyond[NAME];
    dro__onnx_node(graph, "Abs", DRO__NAMES(from), one(size, "size", k), NULL);
    dro__onnx_node(graph, "LessOrEqual", DRO__NAMES(size, "limit"), one(within, "within", k), NULL);
    dro__onnx_node(graph, "Div", DRO__NAMES("limit_squared", size), one(ratio, "ratio", k), NULL);
    dro__onnx_node(graph, "Sub", DRO__NAMES("limit_twice", ratio), one(rest, "rest", k), NULL);
    dro__onnx_node(graph, "Sign", DRO__NAMES(from), one(sign, "sign", k), NULL);
    dro__onnx_node(graph, "Mul", DRO__NAMES(sign, rest), one(beyond, "beyond", k), NULL);
    dro__onnx_node(graph, "Where", DRO__NAMES(within, from, beyond), to, NULL);
}

/* log(|x| / L) with the sign of x beyond the limit L, 0 up to it and where x is NaN
 * (dro__beyond). */
static void beyond(dro__buffer *graph, size_t k, const char *from, const char *to)
{
    char size[NAME], within[NAME], ratio[NAME], log[NAME], sign[NAME], rest[NAME], zero[NAME];
    scalar(graph, one(zero, "zero", k), 0);
    dro__onnx_node(graph, "Abs", DRO__NAMES(from), one(size, "away_size", k), NULL);
    dro__onnx_node(graph, "Greater", DRO__NAMES(size, "limit"), one(within, "outside", k), NULL);
    dro__onnx_node(graph, "Div", DRO__NAMES(size, "limit"), one(ratio, "times", k), NULL);
    dro__onnx_node(graph, "Log", DRO__NAMES(ratio), one(log, "log", k), NULL);
    dro__onnx_node(graph, "Sign", DRO__NAMES(from), one(sign, "side", k), NULL);
    dro__onnx_node(graph, "Mul", DRO__NAMES(sign, log), one(rest, "past", k), NULL);
    dro__onnx_node(graph, "Where", DRO__NAMES(within, rest, zero), to, NULL);
}

/* What the limit takes off, in its unit, and 0 where x is NaN: x - limited, of at most the size of
 * training's. */
static void excess(dro__buffer *graph, const dro__column *c, size_t k, const char *from[2],
                   const char *to)
{
    char over[NAME], least[NAME], most[NAME], cut[NAME], unit[NAME], ratio[NAME], gone[NAME],
        zero[NAME];
    scalar(graph, one(least, "excess_least", k), -c->excess_most);
    scalar(graph, one(most, "excess_most", k), c->excess_most);
    scalar(graph, one(unit, "excess_unit", k), c->excess_unit);
    scalar(graph, one(zero, "excess_zero", k), 0);
    dro__onnx_node(graph, "Sub", DRO__NAMES(from[0], from[1]), one(over, "excess_all", k), NULL);
    dro__onnx_node(graph, "Min", DRO__NAMES(over, most), one(cut, "excess_below", k), NULL);
    dro__onnx_node(graph, "Max", DRO__NAMES(cut, least), one(over, "excess_cut", k), NULL);
    dro__onnx_node(graph, "Div", DRO__NAMES(over, unit), one(ratio, "excess_ratio", k), NULL);
    dro__onnx_node(graph, "IsNaN", DRO__NAMES(from[0]), one(gone, "excess_gone", k), NULL);
    dro__onnx_node(graph, "Where", DRO__NAMES(gone, zero, ratio), to, NULL);
}

/* A column of numbers: (batch, 1), NaN where missing. */
static void number(dro__buffer *graph, const dro__column *c, const char *input, size_t k,
                   const char *to)
{
    char centre[NAME], factor[NAME], away[NAME], scaled[NAME], cut[NAME], gone[NAME], none[NAME],
        whole[NAME], filled[NAME], mark[NAME], past[NAME], tail[NAME], over[NAME], rest[NAME];
    const char *parts[5] = {one(filled, "filled", k)};
    size_t count = 1;
    float gap = (float)(c->plain ? c->centre : 0);
    dro__onnx_input(graph, input, DRO__ONNX_DOUBLE, DRO__INTS(1), 1);
    dro__onnx_constant(graph, one(none, "missing", k), DRO__INTS(1, 1), 2, &gap);
    const char *value = input;
    if (!c->plain) {
        scalar(graph, one(centre, "centre", k), c->centre);
        scalar(graph, one(factor, "factor", k), c->factor);
        dro__onnx_node(graph, "Sub", DRO__NAMES(input, centre), one(away, "away", k), NULL);
        dro__onnx_node(graph, "Mul", DRO__NAMES(away, factor), one(scaled, "scaled", k), NULL);
        value = scaled;
    }
    if (c->limited) {
        limit(graph, k, value, one(cut, "limited", k));
        value = cut;
    }
    to_float(graph, value, one(whole, "number", k));
    dro__onnx_node(graph, "IsNaN", DRO__NAMES(input), one(gone, "gone", k), NULL);
    dro__onnx_node(graph, "Where", DRO__NAMES(gone, none, whole),
                   c->missing || c->tail || c->excess ? filled : to, NULL);
    if (c->missing) {
        to_float(graph, gone, one(mark, "mark", k));
        parts[count++] = mark;
    }
    if (c->tail) {
        beyond(graph, k, scaled, one(past, "far", k));
        to_float(graph, past, one(tail, "tail", k));
        parts[count++] = tail;
    }
    if (c->excess) {
        excess(graph, c, k, (const char *[]){scaled, cut}, one(over, "excess", k));
        to_float(graph, over, one(rest, "over", k));
        parts[count++] = rest;
    }
    if (count > 1) {
        dro__buffer axis = {0};
        dro__onnx_int(&axis, "axis", 1);
        dro__onnx_node(graph, "Concat", parts, to, &axis);
    }
}

/* The texts of a missing value, in every case of their letters. */
enum { MISSING = 40, MISSING_SIZE = 8 };

static size_t missing_texts(char out[MISSING][MISSING_SIZE])
{
    static const char *const texts[] = {"", "?", "na", "nan", "+nan", "-nan"};
    size_t count = 0;
    for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        size_t length = strlen(texts[t]), letters = 0;
        for (const char *p = texts[t]; *p; p++)
            letters += *p >= 'a' && *p <= 'z';
        for (unsigned bits = 0; bits < 1u << letters; bits++, count++) {
            unsigned left = bits;
            for (size_t i = 0; i <= length; i++) {
                bool letter = texts[t][i] >= 'a' && texts[t][i] <= 'z';
                out[count][i] = (char)(texts[t][i] - (letter && (left & 1) ? 'a' - 'A' : 0));
                left >>= letter ? 1 : 0;
            }
        }
    }
    return count;
}

/* A column of words: (batch, 1). */
static dro_status words(dro_context *ctx, dro__buffer *graph, const dro__kept *kept, size_t k,
                        const char *input, const char *to)
{
    const dro__column *c = &kept->columns.at[k];
    char texts[MISSING][MISSING_SIZE], place[NAME], hot[NAME], depth[NAME];
    size_t gone = missing_texts(texts), known = c->categories.count, count = 0;
    const char **keys = dro__alloc(known + gone + 1, sizeof *keys);
    int64_t *values = dro__alloc(known + gone + 1, sizeof *values);
    if (!keys || !values) {
        dro__free(keys);
        dro__free(values);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the columns");
    }
    for (size_t i = 0; i < known; i++, count++)
        keys[count] = c->categories.names[i], values[count] = c->rank[i];
    for (size_t i = 0; i < gone; i++, count++)
        keys[count] = texts[i], values[count] = (int64_t)known;
    if (kept->missing[0] && strcmp(kept->missing, "refuse") != 0)
        keys[count] = kept->missing, values[count++] = (int64_t)known;
    dro__buffer a = {0}, axis = {0}, flat = {0};
    dro__onnx_texts(&a, "keys_strings", keys, count);
    dro__onnx_ints(&a, "values_int64s", values, count);
    dro__onnx_int(&a, "default_int64", (int64_t)(known + c->missing)); /* never seen */
    dro__onnx_input(graph, input, DRO__ONNX_STRING, DRO__INTS(1), 1);
    dro__onnx_node(graph, "ml:LabelEncoder", DRO__NAMES(input), one(place, "place", k), &a);
    dro__onnx_constant_ints(graph, one(depth, "depth", k), DRO__INTS((int64_t)c->features), 1);
    dro__onnx_int(&axis, "axis", -1);
    dro__onnx_node(graph, "OneHot", DRO__NAMES(place, depth, "off_on"), one(hot, "hot", k), &axis);
    dro__onnx_int(&flat, "axis", 1);
    dro__onnx_node(graph, "Flatten", DRO__NAMES(hot), to, &flat);
    dro__free(keys);
    dro__free(values);
    return DRO_OK;
}

/* ---- the names of the inputs ---- */

/* Whether column k can have this name outside: it is none of an output or of the inside, and not
 * that of another column without a name. */
static bool usable(const char *name, size_t k)
{
    static const char *const taken[] = {"", "label", "probabilities", "value"};
    char own[NAME];
    for (size_t t = 0; t < sizeof taken / sizeof taken[0]; t++)
        if (strcmp(name, taken[t]) == 0)
            return false;
    bool numbered = strncmp(name, "column.", 7) == 0 && !name[7 + strspn(name + 7, "0123456789")];
    return strncmp(name, "dro/", 4) != 0 && (!numbered || !strcmp(name, one(own, "column", k + 1)));
}

/* counts[k]: how many columns have the name of column k. */
static dro_status count_names(dro_context *ctx, const dro__kept *kept, int32_t *counts)
{
    size_t columns = kept->columns.count;
    dro__names all = {0};
    int32_t *number = dro__alloc(columns + 1, sizeof *number), *of = NULL;
    dro_status status = number ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory");
    for (size_t k = 0; status == DRO_OK && k < columns; k++)
        if (!kept->columns.at[k].left_out)
            status = dro__names_add(ctx, &all, kept->names[k], strlen(kept->names[k]), &number[k]);
    if (status == DRO_OK && !(of = dro__alloc(all.count + 1, sizeof *of)))
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory");
    for (size_t k = 0; status == DRO_OK && k < columns; k++)
        of[number[k]] += !kept->columns.at[k].left_out;
    for (size_t k = 0; status == DRO_OK && k < columns; k++)
        counts[k] = of[number[k]];
    dro__names_free(&all);
    dro__free(number);
    dro__free(of);
    return status;
}

/* ---- all columns ---- */

static dro_status column(dro_context *ctx, dro__buffer *graph, const dro__kept *kept, size_t k,
                         bool alone, const char *to)
{
    const dro__column *c = &kept->columns.at[k];
    const char *name = kept->names[k];
    char own[NAME];
    dro__buffer input = {0};
    if (!alone || !usable(name, k))
        name = one(own, "column", k + 1);
    dro__buffer_print(&input, ":%s", name);
    dro_status status = DRO_OK;
    if (input.failed)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the columns");
    else if (c->numeric)
        number(graph, c, input.bytes, k, to);
    else
        status = words(ctx, graph, kept, k, input.bytes, to);
    dro__buffer_free(&input);
    return status;
}

static dro_status columns(dro_context *ctx, dro__buffer *graph, const dro__kept *kept)
{
    size_t count = kept->columns.count, used = 0;
    char(*names)[NAME] = dro__alloc(count + 1, sizeof *names);
    const char **list = dro__alloc(count + 1, sizeof *list);
    int32_t *counts = dro__alloc(count + 1, sizeof *counts);
    dro_status status =
        names && list && counts ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory");
    if (status == DRO_OK)
        status = count_names(ctx, kept, counts);
    scalar(graph, "limit", DRO__LIMIT);
    scalar(graph, "limit_twice", 2 * DRO__LIMIT);
    scalar(graph, "limit_squared", DRO__LIMIT * DRO__LIMIT);
    dro__onnx_constant(graph, "off_on", DRO__INTS(2), 1, (float[]){0, 1});
    for (size_t k = 0; status == DRO_OK && k < count; k++) {
        if (kept->columns.at[k].left_out)
            continue;
        list[used++] = one(names[k], "feature", k);
        status = column(ctx, graph, kept, k, counts[k] == 1, names[k]);
    }
    if (status == DRO_OK) {
        dro__buffer axis = {0};
        dro__onnx_int(&axis, "axis", 1);
        dro__onnx_node(graph, "Concat", list, "features", &axis);
    }
    dro__free(names);
    dro__free(list);
    dro__free(counts);
    return status;
}

dro_status dro__export_columns(dro_context *ctx, const char *encoding, dro__buffer *graph,
                               size_t *features)
{
    dro__kept kept;
    *features = 0;
    if (!encoding || strncmp(encoding, "csv ", 4) != 0)
        return DRO_OK;
    char *own = dro__format_kept(encoding);
    dro_status status = own ? dro__csv_kept_read(ctx, own, &kept)
                            : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    dro__free(own);
    if (status != DRO_OK)
        return status;
    status = columns(ctx, graph, &kept);
    *features = kept.columns.features;
    dro__csv_kept_free(&kept);
    return status;
}
