/* Rows that are read once: data larger than memory, or a pipe. Their number need not be known.
 *
 *     dro_stream_open(ctx, "libsvm:-,features=123,shuffle=50000,seed=1", &stream);
 *     while ((status = dro_stream_next(stream, 128, &rows)) == DRO_OK)
 *         ...                                          // rows stay sparse
 *     dro_stream_close(stream);                        // status is DRO_ERR_END
 *
 * A SPEC is libsvm:FILE or csv:FILE, where FILE may be - (stdin), plain, gzip or zstd, or a pattern
 * of files (part-*.gz), read file by file in the order of their names. Options of both:
 *     shuffle=N         rows in the shuffle buffer, default 10000; 0: in the order of the file
 *     seed=N            seed of the shuffle, default 1; the order is a pure function of (rows, N,
 *                       seed)
 *     target=real       y is the number in the file. csv: also without it, where a data set of the
 *                       first rows takes the label for a number, unless labels=, classes= or
 *                       positive= is given
 * libsvm:
 *     features=D        required: the number of features. A larger index is an error
 *     learn=N           opening reads the first N rows (default 256). Their labels, which must be
 *                       whole numbers, are the classes. If these are 1 and -1, or 1 and 0, or only
 *                       one of them, the rest is read with labels=sign. In a training run these
 *                       rows also determine the scale of the columns
 *     labels=sign       labels are 1 and -1 or 1 and 0, y is 1 or -1; others are an error
 *     labels=classes labels=written positive=LABEL classes=A:B:C    as for csv, below
 *     base=0|1          the first index, default 1
 *     qid=ignore        ignore the qid:N of ranking data
 *     scale=            in a training run: as for a data set
 * csv:
 *     label=COLUMN      required: a name of the header, or a number from 1
 *     learn=N           the first N rows (default 10000), or the first 64 MiB of cells if that is
 *                       less, determine the encoding (which columns are numeric, their means and
 *                       deviations, the categories) and the classes. Opening reads those rows; they
 *                       are also the first to be drawn from. A category that appears later becomes
 *                       the feature "unseen" of its column; text in a numeric column, or another
 *                       label, is an error. Without labels= and positive=, y is -1 for the first
 *                       and 1 for the second of two classes, and 0, 1, 2 ... for more, in the order
 *                       of dro_stream_class(): by value if all are numbers, else by bytes
 *     classes=A:B:C     these labels are the classes, whatever the first rows have
 *     labels=sign       two classes as above; more are an error
 *     labels=classes    any number of classes, y is 0, 1, 2 ... of two, too
 *     labels=written    y is the number in the file
 *     positive=LABEL    y is 1 for this label and -1 for all others. Refused if the first rows have
 *                       two or more labels and none is this one
 *     header= sep= missing= drop= categorical= decimal= scale=    as for a data set
 * Other options need the whole data set and are refused.
 *
 * The shuffle buffer is filled with N rows. Then each row is drawn from it uniformly and replaced
 * with the next row of the input. At the end of the input the buffer is emptied in random order.
 * Every row is drawn exactly once.
 *
 * Memory is bounded, however long the stream. It is at most the sum of
 *     the buffer    176 bytes for each of its N rows and 16 for each entry of the rows currently in
 *                   it
 *     the batches   three of the largest asked for, 30 bytes a row and 12 an entry
 *     the reader    2 MiB, or twice the longest line if that is more; and three times the longest
 *                   line. A line of more than 64 MiB is refused, and a row of more than 2^20
 *                   entries
 *     CSV           1.5 times the text of the first rows until they have moved into the buffer; the
 *                   text of each category and 150 bytes; 200 bytes for each column
 *     decompression 0.3 MiB for gzip; for zstd its window, at most 128 MiB
 * and some 16 KiB. dro_stream_memory() says what a stream takes now, without decompression.
 * Experimental. */
#ifndef DRO_STREAM_H
#define DRO_STREAM_H

#include <dro/context.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_stream dro_stream;

/* Compressed sparse rows, valid until the third dro_stream_next() after the one that gave them. */
typedef struct dro_rows {
    size_t count;
    size_t features;       /* as dro_stream_features() says */
    const int64_t *starts; /* (count + 1) offsets into columns and values, from 0 on */
    const int32_t *columns;
    const float *values;
    const float *y;           /* (count) */
    const int64_t *positions; /* (count) which row of the input each one was, from 0 on */
} dro_rows;

DRO_API dro_status dro_stream_open(dro_context *ctx, const char *spec, dro_stream **stream);
DRO_API void dro_stream_close(dro_stream *stream); /* NULL is fine */
/* The number of features of a row. */
DRO_API size_t dro_stream_features(const dro_stream *stream);
/* The label of a class, in the order of y (-1 and 1, or 0, 1, 2 ...); NULL past the last, and where
 * y is a number of the file. libsvm with labels 1 and -1, or 1 and 0: "-1" ("0" once a row had that
 * label) and "1"; with positive=LABEL: "other" and LABEL. */
DRO_API const char *dro_stream_class(const dro_stream *stream, int index);
/* The next count rows. When fewer are left they are dropped and the call returns DRO_ERR_END, also
 * from then on; the error text says how many were dropped (none with count = 1). An error in the
 * data names the file and the line; an input without rows is an error. After an error the stream
 * can only be closed. */
DRO_API dro_status dro_stream_next(dro_stream *stream, size_t count, dro_rows *rows);
/* Rows read from the input so far, those in the buffer included: all of them after DRO_ERR_END. */
DRO_API uint64_t dro_stream_seen(const dro_stream *stream);
/* Bytes read from the file so far (compressed bytes, if it is compressed). */
DRO_API uint64_t dro_stream_bytes(const dro_stream *stream);
/* An upper bound on the bytes in use now: buffer, batches and reader, without decompression. */
DRO_API uint64_t dro_stream_memory(const dro_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
