/* Data sets: point at files in the form they already are.
 *
 * * dro_data_open(ctx, "cifar10:DIR,imratio=0.1", &data); dro_data_info_get(data, &info); // what
 * is in it dro_data_close(data);
 *
 * * A SPEC is format:path[,option=value...]; a comma in a path or a value is written \, (backslash,
 * comma). A file or folder whose content is clear needs no format: people.csv,label=income. The
 * path of csv and libsvm may be a pattern, part-*.gz: the rows of all these files, in the order of
 * their names. A later CSV file may repeat the header of the first. dro_format_name() lists the
 * formats. Options that every format takes: imratio=R of each of the first half of the classes only
 * the last R of its examples. An R that would empty a class is refused longtail=exp:R the k-th
 * largest of C classes keeps m R^(-k/(C-1)), rounded down: the largest is R times the smallest. m
 * is as large as the classes allow, so on a balanced set the first class keeps all it has. An R
 * that would empty a class is refused longtail=pareto:P the same with m (1 - k/C)^P, one example at
 * least holdout=SHARE set examples aside, the same share of every class seed=N of the holdout
 * scale=WORD tables: columns brought to one scale, learned from training's rows. robust: each
 * column by its mean and standard deviation, of values cut at its fences, and what is more than 3
 * deviations away is compressed to less than 6; standard: without either; none: as they are. Sparse
 * columns are divided and not centred. csv is robust if nothing is given; npy, libsvm and arrays
 * are left as they are here, and are robust when a run reads them skip_bad=N tolerate that many
 * unreadable images; dro_data_note() names each An error names the file, the record or line in it,
 * and what was expected.
 *
 * * Memory is bounded whatever a file says. A line of text has at most 64 MiB, and so has a CSV row
 * of many lines; any file may take half of the memory there is (of what `ulimit -v` allows, if that
 * is less), JSON has at most a 32nd of it, and 256 MiB; an image file has at most 64 MiB, an image
 * 2^26 pixels, and all images that are being decoded, on however many threads, 2^27 pixels, some 2
 * GB. */
#ifndef DRO_DATA_H
#define DRO_DATA_H

#include <dro/context.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stable ---- */

typedef struct dro_data dro_data;

typedef enum dro_split { DRO_TRAIN, DRO_TEST, DRO_HOLDOUT, DRO_SPLITS } dro_split;

typedef enum dro_data_kind {
    DRO_DATA_PIXELS, /* images in memory, all of one size */
    DRO_DATA_FILES,  /* images in files, of any size */
    DRO_DATA_DENSE,  /* rows of floats */
    DRO_DATA_SPARSE, /* compressed sparse rows */
    DRO_DATA_STREAM  /* rows that come once and in order, n not known */
} dro_data_kind;

/* Everything is borrowed until close. */
typedef struct dro_data_info {
    const char *format;
    dro_data_kind kind;
    int32_t channels, height, width; /* images; height and width are 0 where sizes differ */
    size_t features;                 /* rows */
    int32_t classes;                 /* 0: a real-valued target */
    const char *const *class_names;  /* (classes) */
    int32_t groups;                  /* 0: no group column */
    const char *const *group_names;
    int64_t examples[DRO_SPLITS];      /* -1: a stream, not known */
    const int64_t *counts[DRO_SPLITS]; /* (classes) examples of each class, NULL if empty */
    uint64_t bytes_read;
    uint64_t memory; /* bytes that the data takes in memory */
    int32_t skipped; /* images passed over because of skip_bad */
    /* What a real-valued target is measured in: targets are (value - centre) / scale. fourth: the
     * mean of their fourth powers, 3 for a normal distribution; 0 where nothing was learned. */
    double target_centre, target_scale, target_fourth;
} dro_data_info;

DRO_API dro_status dro_data_open(dro_context *ctx, const char *spec, dro_data **data);
DRO_API void dro_data_close(dro_data *data); /* NULL is fine */
DRO_API dro_status dro_data_info_get(const dro_data *data, dro_data_info *info);

/* The examples of a split as they are, borrowed until close; what does not apply is NULL. ids of
 * the library's problems are places in these arrays. */
typedef struct dro_examples {
    int64_t count;
    const int32_t *labels;  /* (count), NULL for a real-valued target */
    const float *targets;   /* (count), for a real-valued target */
    const int32_t *groups;  /* (count) or NULL */
    const float *weights;   /* (count) of the examples, or NULL: all 1 */
    const int64_t *records; /* (count) which record of the source each one was, in file order */
    const uint8_t *pixels;  /* DRO_DATA_PIXELS: (count, channels, height, width) */
    const float *x;         /* DRO_DATA_DENSE: (count, features) */
    const int64_t *starts;  /* DRO_DATA_SPARSE: (count + 1) */
    const int32_t *columns;
    const float *values;
    const char *const *paths; /* of images in files: (count) */
} dro_examples;
DRO_API dro_status dro_data_examples(const dro_data *data, dro_split split, dro_examples *out);

/* What was passed over because of skip_bad, one line each with the file and the reason: the i-th,
 * or NULL past the last. Borrowed until close. A loader adds to it while it draws. */
DRO_API const char *dro_data_note(const dro_data *data, int index);
/* What was read otherwise than its owner may think, and is no error: a column of numbers that one
 * text makes categorical, files in a folder that are no images. The i-th, or NULL past the last.
 * Borrowed until close. */
DRO_API const char *dro_data_remark(const dro_data *data, int index);

/* The formats: name, what follows the colon, one line; NULL past the last. */
DRO_API const char *dro_format_name(int index);
DRO_API const char *dro_format_usage(int index);
DRO_API const char *dro_format_summary(int index);
/* The name of the format whose files have names like this one; NULL: not known, or images. */
DRO_API const char *dro_format_likely(const char *path);
/* Lines about its options; NULL where there are none. */
DRO_API const char *dro_format_details(int index);

/* ---- experimental: arrays in memory as data ---- */

/* The examples of a split: rows or images, labels or targets; the others may be NULL. Borrowed. */
typedef struct dro_arrays {
    size_t size; /* sizeof(dro_arrays) */
    int64_t count;
    const float *x; /* (count, features) */
    size_t features;
    const uint8_t *pixels; /* or (count, channels, height, width) */
    int32_t channels, height, width;
    const int32_t *labels;  /* (count) from 0 on */
    int32_t classes;        /* 0: one more than the largest label */
    const float *targets;   /* or (count) real values */
    const int32_t *groups;  /* (count) from 0 on */
    const float *weights;   /* (count) of the examples, 0 or more; only their ratios matter */
    const int64_t *starts;  /* or sparse rows: (count + 1) offsets into columns and values */
    const int32_t *columns; /* rising within a row, from 0 on */
    const float *values;
    const char *const *class_names; /* (classes) UTF-8, or NULL: numbers */
} dro_arrays;

/* Makes "arrays:NAME[,option=value...]" a SPEC of this context, for dro_data_open(), for training
 * ("data") and for prediction. The arrays stay the caller's and must stay until they are lent anew
 * under that name, or given back (train NULL), or the context is destroyed; what is opened has
 * copies. test may be NULL. */
DRO_API dro_status dro_arrays_lend(dro_context *ctx, const char *name, const dro_arrays *train,
                                   const dro_arrays *test);
/* The same as data at once. options: as behind the comma of a SPEC ("holdout=0.1"), or NULL. */
DRO_API dro_status dro_data_from_arrays(dro_context *ctx, const dro_arrays *train,
                                        const dro_arrays *test, const char *options,
                                        dro_data **data);

#ifdef __cplusplus
}
#endif
#endif
