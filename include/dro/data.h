/* Data sets: read files in their original format.
 *
 *     dro_data_open(ctx, "cifar10:DIR,imratio=0.1", &data);
 *     dro_data_info_get(data, &info);                  // shapes, classes, counts
 *     dro_data_close(data);
 *
 * A SPEC is format:path[,option=value...]; a comma in a path or a value is written \, (backslash,
 * comma). The format may be left out where it can be recognised: people.csv,label=income. The path
 * of csv and libsvm may be a pattern, part-*.gz: the rows of all matching files, in the order of
 * their names. Later CSV files may repeat the header of the first. dro_format_name() lists the
 * formats. Options that every format takes:
 *     imratio=R             each class of the first half of the classes keeps only the last share R
 *                           of its examples. An R that would empty a class is refused
 *     longtail=exp:R        the k-th largest of C classes keeps m R^(-k/(C-1)), rounded down: the
 *                           largest has R times the examples of the smallest. m is as large as the
 *                           classes allow; on a balanced set the first class keeps everything. An R
 *                           that would empty a class is refused
 *     longtail=pareto:P     the same with m (1 - k/C)^P, at least one example
 *     holdout=SHARE         set this share of every class aside
 *     flip=SHARE            give this share of the training examples a wrong label, to test how a
 *                           method copes with that; holdout and test are unchanged
 *     seed=N                seed of the holdout and of flip
 *     scale=WORD            tables: how columns are scaled, by statistics of the training rows.
 *                           robust: by mean and standard deviation, both computed after clipping
 *                           outliers; values beyond 3 deviations are compressed to less than 6;
 *                           a csv column with ten or more outliers has a second feature that
 *                           grows with their logarithm.
 *                           standard: by plain mean and standard deviation. none: not at all.
 *                           Sparse columns are divided but not centred. The default is robust for
 *                           csv, and none for npy, libsvm and arrays, except in a training run,
 *                           where it is robust
 *     skip_bad=N            tolerate N unreadable images; dro_data_skipped() names each
 * An error names the file, the record or line in it, and what was expected.
 *
 * Memory is bounded whatever a file contains. Limits: 64 MiB for a line of text and for a CSV row
 * of several lines; half of the available memory for a file (or half of `ulimit -v` if that is
 * less); a 32nd of it, and 256 MiB, for JSON; 64 MiB for an image file; 2^26 pixels for an image;
 * 2^27 pixels (about 2 GB) for all images being decoded at a time on all threads. */
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
    DRO_DATA_STREAM  /* rows that are read once and in order, n unknown */
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
    int64_t examples[DRO_SPLITS];      /* -1: a stream, unknown */
    const int64_t *counts[DRO_SPLITS]; /* (classes) examples of each class, NULL if empty */
    uint64_t bytes_read;
    uint64_t memory; /* bytes that the data takes in memory */
    int32_t skipped; /* unreadable images that skip_bad tolerated */
    /* Real-valued targets are stored as (value - centre) / scale. fourth: the mean of their fourth
     * powers, 3 for a normal distribution; 0 where targets are not scaled. */
    double target_centre, target_scale, target_fourth;
} dro_data_info;

DRO_API dro_status dro_data_open(dro_context *ctx, const char *spec, dro_data **data);
DRO_API void dro_data_close(dro_data *data); /* NULL is fine */
DRO_API dro_status dro_data_info_get(const dro_data *data, dro_data_info *info);

/* The examples of a split, borrowed until close; arrays that do not apply are NULL. The ids of the
 * library's problems are indices into these arrays. */
typedef struct dro_examples {
    int64_t count;
    const int32_t *labels;  /* (count), NULL for a real-valued target */
    const float *targets;   /* (count), for a real-valued target */
    const int32_t *groups;  /* (count) or NULL */
    const float *weights;   /* (count) of the examples, or NULL: all 1 */
    const int64_t *records; /* (count) record number in the source, in file order */
    const uint8_t *pixels;  /* DRO_DATA_PIXELS: (count, channels, height, width) */
    const float *x;         /* DRO_DATA_DENSE: (count, features) */
    const int64_t *starts;  /* DRO_DATA_SPARSE: (count + 1) */
    const int32_t *columns;
    const float *values;
    const char *const *paths; /* of images in files: (count) */
} dro_examples;
DRO_API dro_status dro_data_examples(const dro_data *data, dro_split split, dro_examples *out);

/* The i-th image that was skipped because of skip_bad, one line with the file and the reason, or
 * NULL past the last. Borrowed until close. A loader adds to this list while it draws. */
DRO_API const char *dro_data_skipped(const dro_data *data, int index);
/* The i-th remark on legal but surprising input (a numeric column that one text makes categorical,
 * files in an image folder that are not images), or NULL past the last. Borrowed until close. */
DRO_API const char *dro_data_remark(const dro_data *data, int index);

/* The formats: name, what follows the colon, a one-line summary; NULL past the last. */
DRO_API const char *dro_format_name(int index);
DRO_API const char *dro_format_usage(int index);
DRO_API const char *dro_format_summary(int index);
/* The format that the file name suggests; NULL: unknown, or images. */
DRO_API const char *dro_format_likely(const char *path);
/* A description of the i-th format's options; NULL where there are none. */
DRO_API const char *dro_format_details(int index);

/* ---- experimental: rows of tables as text ---- */

/* Examples as text: the cells of a csv file's rows, with the names of its columns; of other tables
 * the features, as a model gets them. */
typedef struct dro_cells {
    int64_t count;            /* examples */
    int32_t columns;          /* that are here */
    int64_t more;             /* columns that are not */
    bool original;            /* cells of the file */
    const char *const *names; /* (columns) */
    const char *const *cells; /* (count, columns) shortened where they are long */
} dro_cells;

/* Of the examples (count) of a split, by their index: at most the first `columns` columns. csv
 * reads the file once more, in little memory, unless it is a pipe. DRO_ERR_UNSUPPORTED: images.
 * Free it with dro_cells_free(). */
DRO_API dro_status dro_data_cells(const dro_data *data, dro_split split, const int64_t *examples,
                                  size_t count, size_t columns, dro_cells **cells);
DRO_API void dro_cells_free(dro_cells *cells); /* NULL is fine */

/* ---- experimental: arrays in memory as data ---- */

/* The examples of a split: rows or images, with labels or targets; groups and weights are optional.
 * Borrowed. */
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
    const float *weights;   /* (count) example weights, 0 or more; only their ratios matter */
    const int64_t *starts;  /* or sparse rows: (count + 1) offsets into columns and values */
    const int32_t *columns; /* rising within a row, from 0 on */
    const float *values;
    const char *const *class_names; /* (classes) UTF-8, or NULL: numbers */
    /* (features) UTF-8, or NULL: the columns' names, which weights files keep */
    const char *const *feature_names;
} dro_arrays;

/* Makes "arrays:NAME[,option=value...]" a SPEC of this context, for dro_data_open(), training
 * ("data") and prediction. The arrays are borrowed until other arrays are lent under that name, or
 * train is NULL, or the context is destroyed. Opened data sets have copies. test may be NULL. */
DRO_API dro_status dro_arrays_lend(dro_context *ctx, const char *name, const dro_arrays *train,
                                   const dro_arrays *test);
/* Opens arrays as a data set directly. options: as after the comma of a SPEC ("holdout=0.1"), or
 * NULL. */
DRO_API dro_status dro_data_from_arrays(dro_context *ctx, const dro_arrays *train,
                                        const dro_arrays *test, const char *options,
                                        dro_data **data);

#ifdef __cplusplus
}
#endif
#endif
