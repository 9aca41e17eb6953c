/* What the text formats share: numbers, and the rows of libsvm text over a window of lines. */
#ifndef DRO_DATA_TEXT_H
#define DRO_DATA_TEXT_H

#include "data.h"

/* ---- number.c ---- */

/* A decimal number at `text`: [+-]digits[.digits][e[+-]digits]. Returns the place after it, NULL if
 * there is none (nan, inf and hexadecimal are none). Correctly rounded, as strtof and strtod in the
 * "C" locale; too large a number gives an infinity. The text must end in something that is no part
 * of a number: a newline, a zero. */
const char *dro__number_float(const char *text, float *value);
const char *dro__number_double(const char *text, double *value);

/* What stands at `text`, for an error: the word in quotes, "byte 0x00", "the end of the line". */
const char *dro__text_show(const char *text, char *out, size_t size);

/* ---- format_libsvm.c ---- */

/* The classes of numeric labels. A spelling ("+1", "1") belongs to the class of its value; the
 * first spelling names the class. */
typedef struct dro__classes {
    dro__names spellings;
    size_t class_capacity, count, value_capacity, name_capacity;
    int32_t *class_of;    /* (spellings) */
    double *values;       /* (count) */
    int32_t *named_by;    /* (count) spelling */
    bool closed;          /* another value is an error */
    const char *expected; /* what is expected then, for the error; NULL: training's */
} dro__classes;

void dro__classes_free(dro__classes *classes);
/* Sorts the classes by value and closes the set: the new number of each, (count), free it. */
dro_status dro__classes_close(dro_context *ctx, dro__classes *classes, int32_t **rank);
/* The name of a class. */
const char *dro__classes_name(const dro__classes *classes, size_t number);

/* Rows of libsvm text: `label index:value ...`, appended to a table (labels or targets, starts,
 * columns, values). Zero it, set what comes first, then hand it window after window. */
typedef struct dro__libsvm {
    dro_context *ctx;
    const char *name;      /* of the file, for errors */
    dro__classes *classes; /* NULL: real-valued targets */
    dro__table *table;
    int32_t base;     /* of the indices: 1 or 0 */
    int32_t limit;    /* features may not exceed it, 0: no limit */
    bool skip_qid;    /* read past qid:N, which is an error otherwise */
    int32_t features; /* the largest seen, so far */
    int64_t widest;   /* the line with the largest, 0: none */
    int64_t lines;    /* before the window */
    size_t label_capacity, target_capacity, start_capacity, column_capacity, value_capacity;
} dro__libsvm;

/* The option base=; without it, that of the model that the data is read for, or 1. Another than the
 * model's is an error. Where the data is for no model, its encoding says base: "libsvm 1
 * base=0". */
dro_status dro__libsvm_base(dro_data *data, int32_t *base);

/* The option classes=, as in classes=-1:1, if it is given: the reader's classes are those. */
dro_status dro__libsvm_listed(dro_data *data, dro__libsvm *reader);

/* begin .. end as dro__input_lines gives them. */
dro_status dro__libsvm_rows(dro__libsvm *reader, const char *begin, const char *end);

#endif
