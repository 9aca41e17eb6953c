/* data: readers, imbalance, augmentation, batching. Sees base and backend only.
 *
 * A format is one file format_NAME.c that defines `dro__format_NAME` and one line in formats.def.
 * It reads everything it is pointed at into one or two tables of examples (train and test, in file
 * order); imbalance, holdout and counting happen afterwards and are the same for all (data.c).
 * Parsers take nothing on trust: every size is checked before memory is asked for, every error
 * names the file and the place in it, and each parser has a fuzz target (tests/fuzz). */
#ifndef DRO_DATA_INTERNAL_H
#define DRO_DATA_INTERNAL_H

#include "base.h"

#include <dro/data.h>
#include <dro/stream.h>

/* ---- growing arrays ---- */

/* Room for at least `count` elements of `size`; the new part is not set. Limits that a file may not
 * exceed are the caller's to check. */
dro_status dro__grow(dro_context *ctx, void **array, size_t *capacity, size_t count, size_t size);
/* The same for what a file holds: an error names it. */
dro_status dro__grow_file(dro_context *ctx, const char *name, void **array, size_t *capacity,
                          size_t count, size_t size);

/* Bytes of memory that this process can have: the machine's, or what `ulimit -v` leaves of it. */
uint64_t dro__machine_memory(void);
/* An error if what a file takes so far is more than half of that. */
dro_status dro__fits(dro_context *ctx, const char *name, uint64_t bytes);

/* ---- a table of examples: one split as the source has it ---- */

typedef struct dro__table {
    int64_t n;
    int32_t *labels;  /* (n) */
    float *targets;   /* (n) real-valued target instead of labels */
    int32_t *groups;  /* (n) or NULL */
    float *weights;   /* (n) of the examples, or NULL: all 1 */
    int64_t *records; /* (n) place in the source */
    uint8_t *pixels;  /* (n, channels * height * width), planes R G B */
    float *x;         /* (n, features) */
    int64_t *starts;  /* (n + 1) */
    int32_t *columns;
    float *values;
    char *text; /* the characters of all paths, zero terminated */
    size_t text_size;
    int64_t *places; /* (n) where each path begins in text */
} dro__table;

void dro__table_free(dro__table *table);
/* Bytes in use; keep only the rows ids (rising), in place; copy rows into an empty table. */
uint64_t dro__table_bytes(const dro_data *data, const dro__table *table);
void dro__table_keep(const dro_data *data, dro__table *table, const int64_t *ids, int64_t count);
dro_status dro__table_copy(const dro_data *data, const dro__table *table, const int64_t *ids,
                           int64_t count, dro__table *out);

/* ---- what a format fills in ---- */

enum {
    DRO__OPTIONS_MAX = 16,
    DRO__SPEC_MAX = 4096,
    DRO__DENSE_MOST = 4096 /* features up to which sparse rows are made dense for a network */
};

typedef struct dro__spec {
    char text[DRO__SPEC_MAX]; /* the SPEC, cut into words */
    const char *format, *path;
    int count;
    const char *names[DRO__OPTIONS_MAX], *values[DRO__OPTIONS_MAX];
} dro__spec;

typedef struct dro__notes {
    char **texts;
    size_t count, capacity;
} dro__notes;

/* What numbers are measured in: value = centre + scale * number. fourth: the mean fourth power of
 * the numbers that it was learned from, 3 if they are normal; 0: not learned here. */
typedef struct dro__unit {
    double centre, scale, fourth;
} dro__unit;

/* What reading a file's rows once more takes, of the file itself and of test=. */
typedef struct dro__again {
    char separator;
    int repeats;   /* as dro__csv_source.header */
    bool header;   /* the first row is one */
    int64_t *gone; /* (gone_count) rows that were left out, rising */
    size_t gone_count;
} dro__again;

struct dro_data {
    dro_context *ctx;
    const struct dro__format *format;
    dro__spec spec;
    dro_data_kind kind;
    int32_t channels, height, width;
    size_t features;
    int32_t classes, groups;
    char **class_names, **group_names; /* each its own allocation */
    char **feature_names;              /* (features), or NULL */
    dro__table split[DRO_SPLITS];
    int64_t *counts[DRO_SPLITS];
    int64_t *lost[DRO_SPLITS];      /* (classes) images skipped, or NULL; under a lock of notes.c */
    _Atomic int32_t emptied;        /* 1 + a class that has lost all its training images, or 0 */
    const char **paths[DRO_SPLITS]; /* made on demand */
    uint64_t bytes_read;
    int64_t widest; /* libsvm: the line with the highest index, of the split's file; 0: none */
    dro_split widest_in;
    void *state;       /* of the format, between open and release */
    const char *given; /* while it is opened: how a model's training data was encoded, or NULL */
    const char *kept; /* while it is opened: the part of that which is not the format's (scale.h) */
    size_t bias;      /* the column of the constant feature, 0: there is none */
    dro__unit target; /* of real-valued targets; the targets of the splits are in it */
    const struct dro__normal *normal; /* of images, by a model; NULL: their own */
    bool for_training;                /* opened to train a model on it: columns are scaled */
    bool for_model;                   /* opened to ask one, so that labels may be missing */
    char *encoding;                   /* how the features were made, for a model to keep; or NULL */
    bool learned;                     /* a stream's encoding, from its first rows */
    const char *untrained;  /* the remark that says why a class has no training example, or NULL */
    const char *unlabelled; /* how labels are named, where there are none and all are 0; or NULL */
    dro__again again[2];    /* of the format: for cells() */
    dro__notes skipped;     /* images and why; under a lock of notes.c */
    dro__notes remarks;
};

struct dro__wanted; /* cells.h */
struct dro__cells;

typedef struct dro__format {
    const char *name, *usage, *summary;
    const char *const *options; /* names of its own options, NULL terminated; or NULL */
    bool folder;                /* the path is one: not stdin */
    bool files;                 /* of images, by dro__files_open() */
    const char *record;         /* (optional) what a record is called in errors about its image */
    const char *details;        /* (optional) what its options mean, lines of at most 100 */
    const char *const *endings; /* (optional) of its files' names, NULL terminated: to suggest it */
    bool dotted;                /* a label may end in a '.' that is none of it */
    const char *encodes;        /* (optional) what becomes of its columns, which a model keeps */
    /* Fills kind, shape, classes, class_names (optional: numbers otherwise) and split[0],
     * split[1]. */
    dro_status (*open)(dro_data *data);
    /* (optional) After imbalance and holdout: learns what must be learned from the training rows
     * only. The splits have labels, groups and records already, the format fills in the rest. */
    dro_status (*fit)(dro_data *data);
    void (*release)(dro_data *data); /* (optional) frees state; called once, after a failure too */
    const struct dro__rows_class *stream; /* (optional) its rows one by one (stream.h) */
    /* (optional) The cells of the cells->out.count wanted records (rising) of its file, or of
     * test=, which it reads once more. */
    dro_status (*cells)(const dro_data *data, bool test, const struct dro__wanted *wanted,
                        struct dro__cells *cells);
} dro__format;

/* The i-th format of the list, NULL past the last. */
const dro__format *dro__format_at(int index);

/* imbalance.c: what the options imratio, longtail, holdout and flip ask for. */
dro_status dro__imbalance_check(const dro_data *data); /* before anything is read */
dro_status dro__imbalance(dro_data *data);
dro_status dro__holdout(dro_data *data);
dro_status dro__flip(dro_data *data);

/* Examples of each class in a split, into counts. */
dro_status dro__count_split(dro_data *data, int split);

/* Whether a SPEC is of images in files. */
bool dro__names_files(const char *spec);

/* dro_data_open for a model: given is the `encoding` of its training data, "" if that had none;
 * NULL: for no model. Formats without one do not look at it. */
dro_status dro__data_open_given(dro_context *ctx, const char *spec, const char *given,
                                dro_data **data);
/* Data without labels, for a model of a real-valued target: it has targets, all 0, and no class. */
dro_status dro__data_without_classes(dro_data *data);
/* dro_data_open to train a model: rows are scaled (scale.h), which the encoding
 * says. */
dro_status dro__data_for_training(dro_context *ctx, const char *spec, dro_data **data);

/* dro_stream_open for a model: in the order of the input unless the SPEC has shuffle=, with
 * `encoding`, columns at one scale by the first rows (learn=), and a constant feature behind the
 * others. */
dro_status dro__stream_for_model(dro_context *ctx, const char *spec, dro_stream **stream);
/* Rows from here on are scaled as this encoding says, of a stream that went before. */
dro_status dro__stream_rescale(dro_stream *stream, const char *encoding);
/* The stream's SPEC, format, features and encoding; it holds no examples. */
const dro_data *dro__stream_data(const dro_stream *stream);
/* About the mean of |x|^2 over its rows, without the bias: a scaled column has a mean square of 1,
 * an indicator is 1. */
double dro__stream_norm(const dro_stream *stream);
/* Whether a row's line is the last and lacks its newline: it may be truncated. */
bool dro__stream_unfinished(const dro_stream *stream, int64_t position);
/* dro__input_until() and dro__input_late() of its input. */
void dro__stream_until(dro_stream *stream, double clock);
bool dro__stream_late(const dro_stream *stream);

/* A pattern of files, after it was opened: the path of one of them, NULL past the last and where
 * there is no pattern. */
const char *dro__stream_path(const dro_stream *stream, size_t index);
/* Only rows of the files rank, rank + ranks, ...: what was learned from the first rows stays that
 * of all. */
void dro__stream_share(dro_stream *stream, int rank, int ranks);
/* Passes over rows[k] rows at the beginning of file k; borrowed. */
void dro__stream_skip(dro_stream *stream, const uint64_t *rows);
size_t dro__stream_file(const dro_stream *stream); /* that the last row drawn is of */
bool dro__stream_shuffles(
    const dro_stream *stream); /* rows come in another order than in the files */

/* ---- notes.c ---- */

/* After a failure with image i of a table, whose text is in ctx: DRO_OK if skip_bad tolerates it,
 * else the failure, with a remedy added to the text. */
dro_status dro__pass_over(dro_data *data, dro_context *ctx, const dro__table *table, int64_t i,
                          dro_status status);
/* What training asks of data beyond that it can be read: an error if a class has no training image,
 * or has lost all of them. */
dro_status dro__trainable(const dro_data *data);
/* The example at a place of a loader's first epoch. */
struct dro_loader;
int64_t dro__loader_example(const struct dro_loader *loader, uint64_t place);
int32_t dro__skipped(const dro_data *data);
/* One line more for dro_data_remark(). */
dro_status dro__remark(dro_data *data, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dro__notes_free(dro__notes *notes);

/* A SPEC with its format: `text` itself, or, where its path is there and what it holds is clear,
 * that format and it. */
dro_status dro__spec_full(dro_context *ctx, const char *text, char full[DRO__SPEC_MAX]);
/* guess.c: the format of a file or folder by what it holds; NULL: not known. */
const char *dro__guess_format(dro_context *ctx, const char *path);
/* Cuts format:path,option=value,... into the words of d->spec; finds d->format, unless it is
 * set. */
dro_status dro__spec_parse(dro_data *d, const char *text);
/* The value of an option, or NULL. */
const char *dro__option(const dro_data *data, const char *name);
dro_status dro__option_integer(const dro_data *data, const char *name, int64_t fallback,
                               int64_t low, int64_t high, int64_t *value);
dro_status dro__option_real(const dro_data *data, const char *name, double fallback, double low,
                            double high, double *value);

/* Names: number of an existing name, or a new one at the end. */
typedef struct dro__names {
    char **names;
    size_t count, capacity;
    int32_t *slots; /* a hash table of numbers, -1: empty */
    size_t slot_count;
} dro__names;
dro_status dro__names_add(dro_context *ctx, dro__names *names, const char *text, size_t length,
                          int32_t *number);
int32_t dro__names_find(const dro__names *names, const char *text, size_t length); /* or -1 */
void dro__names_free(dro__names *names);
uint64_t dro__names_bytes(const dro__names *names);

/* ---- input.c: bytes of a file or of stdin ("-"), plain, gzip or zstd ---- */

typedef struct dro__input dro__input;

dro_status dro__input_open(dro_context *ctx, const char *path, dro__input **input);
/* The same, or all files that a pattern names (shards.c), to be read by lines, one file after the
 * other. */
dro_status dro__input_open_all(dro_context *ctx, const char *path, dro__input **input);
/* The path of file `index`, from 0 on; NULL past the last, and where there is no pattern. */
const char *dro__input_path(const dro__input *input, size_t index);
/* The file that the last window of lines is of. Each window is of one file. */
size_t dro__input_file(const dro__input *input);
/* From the next window on: only every `ranks`-th file, beginning with file `rank`. */
void dro__input_share(dro__input *input, int rank, int ranks);
/* For fuzz targets and tests: bytes in memory, borrowed; recognises gzip and zstd too. */
dro_status dro__input_memory(dro_context *ctx, const char *name, const void *bytes, size_t size,
                             dro__input **input);
void dro__input_close(dro__input *input);
/* Up to size bytes; *got < size only at the end. */
dro_status dro__input_read(dro__input *input, void *bytes, size_t size, size_t *got);
/* Exactly size bytes, or an error that says what was expected ("label of record 17"). */
dro_status dro__input_exact(dro__input *input, void *bytes, size_t size, const char *what);
const char *dro__input_name(const dro__input *input);
uint64_t dro__input_offset(const dro__input *input);  /* bytes delivered */
uint64_t dro__input_fetched(const dro__input *input); /* bytes read from the file itself */
/* Bytes of a plain file or of plain memory; 0: packed, or not known. */
uint64_t dro__input_plain_size(const dro__input *input);
/* The whole rest into memory (zero terminated), refused beyond limit. Freed with dro__free. */
dro_status dro__input_all(dro__input *input, uint64_t limit, char **bytes, size_t *size);
/* Text: a window of whole lines. *begin .. *end (exclusive) holds at least one line, each ended by
 * '\n' (added to the last one when it is missing); *begin == *end at the end. The caller may write
 * into the window. A line longer than 64 MiB is refused. */
dro_status dro__input_lines(dro__input *input, char **begin, char **end);
/* Before the first line: the text is in Windows-1252, of which Latin-1 is a part. Lines become
 * UTF-8. */
void dro__input_latin1(dro__input *input);
/* The last line lacks its newline, and has been given out. */
bool dro__input_unfinished(const dro__input *input);
/* A pipe that is silent at this time of CLOCK_MONOTONIC ends then, 0: it is waited for; and whether
 * it has ended so. */
void dro__input_until(dro__input *input, double clock);
bool dro__input_late(const dro__input *input);

/* ---- shards.c ---- */

/* It has one of * ? [ and is no file's name. */
bool dro__is_pattern(const char *path);
/* The files that a pattern names, sorted; none is an error. */
dro_status dro__shards_find(dro_context *ctx, const char *pattern, char ***paths, size_t *count);
void dro__shards_free(char **paths, size_t count);

/* DIR/NAME as a path that is freed with dro__free; name may be "". */
dro_status dro__path_join(dro_context *ctx, const char *dir, const char *name, char **path);
bool dro__file_exists(const char *path);

/* ---- image.c: decoding and resizing ---- */

typedef struct dro__image {
    int32_t width, height, channels; /* 1 or 3 */
    uint8_t *pixels;                 /* (height, width, channels), interleaved */
    uint64_t claimed;                /* pixels, of the budget below */
} dro__image;

/* Bounded memory, whatever the files say: an image file of at most 64 MiB, an image of at most 2^26
 * pixels, and 2^27 pixels (some 2 GB while they are decoded) in all images that are open at the
 * same time: a thread with one more waits until another has freed its own. So a thread that holds
 * an image must not decode another. */
enum { DRO__IMAGE_SIDE_MAX = 32768, DRO__IMAGE_FILE_MAX = 1 << 26 };
#define DRO__IMAGE_PIXELS_MAX  ((uint64_t)1 << 26)
#define DRO__IMAGE_PIXELS_OPEN ((uint64_t)1 << 27)

/* JPEG, PNG, PPM, PGM by content. Always gives `channels` (1 or 3): greyscale is repeated, colour
 * is turned to luma as Pillow's convert("L"), CMYK and YCCK JPEGs to RGB as Pillow does, 16 bits to
 * their high byte (PNG) or scaled (PPM, PGM), alpha dropped, palettes expanded, EXIF rotation
 * applied. name is for errors. */
dro_status dro__image_decode(dro_context *ctx, const char *name, const void *bytes, size_t size,
                             int channels, dro__image *image);
void dro__image_free(dro__image *image);
/* A part of an image, in pixels from its upper left corner. */
typedef struct dro__image_box {
    double left, top, right, bottom;
} dro__image_box;

/* Antialiased bilinear (triangle filter) of a box of the image (NULL: all of it), the way Pillow's
 * resize((w, h), BILINEAR, box=...) computes it, to one grey level. out is (height, width,
 * channels). */
dro_status dro__image_resize(dro_context *ctx, const dro__image *image, const dro__image_box *box,
                             int32_t width, int32_t height, uint8_t *out);

extern const dro__format dro__format_arrays; /* of the library's users, not in the list */
#define FORMAT(name) extern const dro__format dro__format_##name;
#include "formats.def"
#undef FORMAT

#endif
