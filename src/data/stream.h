/* Where the rows of a stream come from: one file stream_NAME.c per format. stream.c has the rest:
 * the shuffle buffer, the batches, what the options shuffle= and seed= say. */
#ifndef DRO_DATA_STREAM_INTERNAL_H
#define DRO_DATA_STREAM_INTERNAL_H

#include "data.h"

#include <dro/stream.h>

typedef struct dro__row_reader dro__row_reader;

typedef struct dro__rows_class {
    dro__format format;   /* name, usage and options of the SPEC */
    const char *expected; /* rows, in words: "lines of label index:value" */
    /* The input is open. Sets data.features and state. */
    dro_status (*open)(dro__row_reader *rows);
    /* The next row into `row`: n = 1, targets, starts, columns, values. *got is false at the
     * end. */
    dro_status (*next)(dro__row_reader *rows, bool *got);
    void (*close)(dro__row_reader *rows); /* frees state; called after a failed open too */
    uint64_t (*memory)(const dro__row_reader *rows);
    /* (optional) Right after open: how the features are made, into data.encoding. */
    dro_status (*keep)(dro__row_reader *rows);
    /* (optional) After the first rows were read: their targets become those of the classes that
     * they show. Called where open has set `learns`. */
    dro_status (*learn)(dro__row_reader *rows, dro__table *first);
} dro__rows_class;

struct dro__row_reader {
    const dro__rows_class *kind;
    dro_data data; /* the SPEC; holds no examples */
    dro__input *input;
    const char *name; /* of the input, for errors */
    dro__table row;
    int64_t lines;   /* read so far, of the file */
    size_t file;     /* that `row` is of: dro__input_file() */
    size_t longest;  /* line */
    size_t per_row;  /* features of a row that may differ from 0; 0: all */
    bool unfinished; /* `row` is the last line, without a newline */
    void *state;
    const char *const *classes; /* (class_count) names, or NULL */
    int32_t class_count;
    bool real;   /* csv: the label is a real-valued target */
    bool learns; /* the first rows show the classes */
};

extern const dro__rows_class dro__rows_libsvm, dro__rows_csv;

/* The value of an option that is one of a list, as its place in it: 0 if it is not given, 1 for the
 * first. */
dro_status dro__rows_choose(const dro__row_reader *rows, const char *name,
                            const char *const *values, int *chosen);

/* An error if more than one of labels=, positive=, classes= and target=real is given. */
dro_status dro__rows_one_way(const dro__row_reader *rows, bool labels, bool real);

#endif
