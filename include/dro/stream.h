/* Rows that come once: data larger than memory, or a pipe. Their number need not be known.
 *
 *     dro_stream_open(ctx, "libsvm:-,features=123,shuffle=50000,seed=1", &stream);
 *     while ((status = dro_stream_next(stream, 128, &rows)) == DRO_OK)
 *         ...                                          // rows stay sparse
 *     dro_stream_close(stream);                        // status is DRO_ERR_END
 *
 * A SPEC is libsvm:FILE or csv:FILE, where FILE may be - (stdin), plain, gzip or zstd, or a pattern
 * of files: part-*.gz is read file by file, in the order of their names. Options of both:
 *     shuffle=N         rows held in the shuffle buffer, 10000 if not given; 0: in the order of the
 *                       file
 *     seed=N            of the shuffle, 1 if not given; the order is a pure function of (rows, N,
 *                       seed)
 *     target=real       y is the number that is written
 * libsvm:
 *     features=D        the width, which a stream cannot find out by itself: required. A larger
 *                       index is an error
 *     labels=sign       (if not given) labels are 1 and -1 or 1 and 0, y is 1 or -1; others are an
 *                       error
 *     labels=written    y is the number that is written
 *     base=0|1          the first index, 1 if not given
 *     qid=ignore        read past the qid:N of ranking data
 *     learn=N           when a run reads the stream: columns are scaled by the first N rows, 256 if
 *                       not given
 *     scale=            when a run reads the stream: as for a data set
 * csv:
 *     label=COLUMN      a name of the header, or a number from 1: required
 *     learn=N           the encoding (which columns are numbers, their means and deviations, the
 *                       categories) and the classes come from the first N rows, 10000 if not given,
 *                       or the first 64 MiB of cells if that is less, and do not change afterwards.
 *                       Opening reads those rows; they are also the first to be drawn from. A
 *                       category that comes later is the feature "unseen" of its column; a text in
 *                       a column of numbers, or another label, is an error
 *     labels=sign       (if not given) two classes, y is -1 for the first and 1 for the second, in
 *                       the order of dro_stream_class(): by value if both are numbers, otherwise by
 *                       their bytes
 *     labels=classes    any number of classes, y is 0, 1, 2 ...
 *     labels=written    y is the number that is written
 *     positive=LABEL    y is 1 for this label and -1 for all others. Refused when the first rows
 *                       have two labels or more and this is none of them
 *     header= sep= missing= drop= categorical= decimal= scale=    as for a data set
 * Other options need the whole data set and are refused.
 *
 * The shuffle buffer is filled with N rows; then each row that goes out is drawn from it uniformly
 * and the next row read takes its place; at the end of the input the buffer is emptied in random
 * order. Every row comes out exactly once.
 *
 * Memory is bounded, however long the stream. It is at most the sum of
 *     the buffer    176 bytes for each of its N rows and 16 for each entry of the rows that are in
 *                   it, however long others were that were in it before
 *     the batches   three of the largest asked for, 30 bytes a row and 12 an entry
 *     the reader    2 MiB, or twice the longest line if that is more; and three times the longest
 *                   line. A line of more than 64 MiB is refused, and a row of more than 2^20
 *                   entries
 *     CSV           the text of the first rows and half as much again, until they have gone into
 *                   the buffer; the text of each category and 150 bytes; 200 bytes for each column
 *     unpacking     0.3 MiB for gzip; for zstd its window, at most 128 MiB
 * and some 16 KiB. dro_stream_memory() says what a stream takes now, without unpacking.
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
/* The width of the rows. */
DRO_API size_t dro_stream_features(const dro_stream *stream);
/* The label of a class, in the order of y (-1 and 1, or 0, 1, 2 ...); NULL past the last, and where
 * y is a number that is written. libsvm with labels=sign: "-1", or "0" once a row had that, and
 * "1"; csv with positive=LABEL: "other" and LABEL. */
DRO_API const char *dro_stream_class(const dro_stream *stream, int index);
/* The next count rows. DRO_ERR_END, now and ever after, when fewer than that are left: those are
 * dropped, and the error text says how many (count = 1 loses none). An error in the data names the
 * file and the line, an input without any row is one; after it the stream is of no more use. */
DRO_API dro_status dro_stream_next(dro_stream *stream, size_t count, dro_rows *rows);
/* Rows read from the input so far, those in the buffer included: all of them after DRO_ERR_END. */
DRO_API uint64_t dro_stream_seen(const dro_stream *stream);
/* Bytes read from the file so far, as they are in it (packed, if it is). */
DRO_API uint64_t dro_stream_bytes(const dro_stream *stream);
/* Bytes in use now, never less: buffer, batches and reader, without what unpacking takes. */
DRO_API uint64_t dro_stream_memory(const dro_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
