/* What the files about streams share: progressive.c has the loop and the problem, stream_read.c
 * where the rows come from, stream_batch.c the batches, stream_saved.c the checkpoint. */
#ifndef DRO_TRAIN_STREAM_RUN_H
#define DRO_TRAIN_STREAM_RUN_H

#include "train.h"

/* ---- stream_batch.c ---- */

/* A batch: sparse rows that are kept until no step needs them. On several ranks every rank has all
 * rows of it; who has read which does not matter once they are here. */
typedef struct dro__held {
    uint64_t position, count, entries;
    int64_t *starts, *ids;
    int32_t *columns, *classes;
    int32_t *files; /* of a pattern, that each row is of */
    float *values, *y;
    float *slopes; /* (count, heads) of the loss by the margins, between forward and backward */
    size_t column_capacity, value_capacity;
} dro__held;

/* For at most `count` rows, each with so many margins. */
dro_status dro__held_make(dro_context *ctx, dro__held *batch, size_t count, size_t heads);
void dro__held_free(dro__held *batch);
void dro__held_clear(dro__held *batch, uint64_t position);
/* Room for so many entries in all. */
dro_status dro__held_grow(dro_context *ctx, dro__held *batch, size_t entries);

typedef struct dro__held_row {
    const int32_t *columns;
    const float *values;
    size_t count;
    float y;
    int32_t class, file;
} dro__held_row;
dro_status dro__held_add(dro_context *ctx, dro__held *batch, const dro__held_row *row);

/* What a rank says of the rows that it has read. */
typedef struct dro__share {
    dro__head head;
    uint64_t rows, entries;
    uint32_t over; /* it has no more */
    uint32_t note; /* of the caller's, `or`ed over all ranks */
} dro__share;

/* Collective: the rows that each rank has read (mine, with its status), one rank after the other,
 * into `all`. shares (ranks) is what they said. The first failure of any is that of all. */
dro_status dro__held_gather(dro_train *t, const dro__held *mine, dro__share *shares, dro__held *all,
                            dro_status status);

/* ---- the run ---- */

enum { DRO__STREAM_FORMAT = 16 };

/* What a rank that reads no rows itself must know about them. */
typedef struct dro__stream_about {
    char format[DRO__STREAM_FORMAT];
    uint64_t features, columns; /* columns: a checksum of how they were encoded */
    double norm;                /* dro__stream_norm() */
    dro__unit target;
    int32_t is_stdin, class_count;
} dro__stream_about;

typedef struct dro__stream_run {
    dro_stream *stream; /* NULL: another rank reads */
    dro__stream_about about;
    size_t batch;
    const char **names; /* (classes), and NULL; of a real-valued target none */
    char *all_names;    /* sent by rank 0 to ranks that do not read */
    dro__held ring[DRO__RING];
    uint64_t next; /* position of the next new batch */
    dro__tally all, window;
    uint64_t reported;  /* examples at the last line */
    dro__robust coming; /* what the next window is measured by */
    /* two batches long; margins (rows, heads): heads is 1, or the number of classes if more than
     * two */
    float *margins, *scaled, *logits, *losses;
    float *column;  /* (rows) margins of one class */
    int64_t *order; /* 0, 1, 2, ... */
    char *encoding; /* of a rank that does not read */

    /* a pattern of files */
    size_t files;         /* 0: there is none */
    uint64_t names_sum;   /* a checksum of their names */
    uint64_t *done;       /* (files) rows that went into batches */
    uint64_t *skip;       /* (files) rows that went into batches before the run was resumed */
    uint64_t saved_ranks; /* ranks of the run that was resumed */

    /* several ranks */
    dro__held mine;     /* rows that this rank has read */
    dro__share *shares; /* (ranks) */
    int *sizes;         /* (ranks) */
} dro__stream_run;

/* ---- stream_read.c ---- */

/* Opens the stream on the ranks that read; `about`, names and files are known to all then. */
dro_status dro__stream_reader_open(dro_train *t);
/* The names of the classes; a stream of 0 and 1 knows that once a row had a 0. */
void dro__stream_names(dro__stream_run *s);
/* The next batch, the same on all ranks; DRO_ERR_END at the end. */
dro_status dro__stream_read(dro_train *t, dro__held *batch);

#endif
