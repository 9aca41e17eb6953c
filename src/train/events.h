/* TensorBoard event files, as bytes: values of a run, for those who look at curves there.
 *
 *     dro__buffer out = {0};
 *     dro__events_begin(&out);                                              // a new file only
 *     dro__events_add(&out, step, seconds since 1970, values, count);       // one record
 *
 * The bytes go to the end of the file (dro__file_append). A failed allocation is in out.failed. */
#ifndef DRO_EVENTS_H
#define DRO_EVENTS_H

#include "buffer.h"

/* TensorBoard takes every file whose name contains "tfevents". */
#define DRO__EVENTS_NAME "events.out.tfevents.dro"

typedef struct dro__summary {
    const char *tag; /* "test/accuracy"; the part before the slash is the heading */
    double value;    /* stored as a float; NaN and infinities are kept */
} dro__summary;

/* The record that says what the file is. */
void dro__events_begin(dro__buffer *out);
void dro__events_add(dro__buffer *out, int64_t step, double wall_time, const dro__summary *values,
                     size_t count);

/* CRC-32C (Castagnoli) of some bytes; crc32c("123456789") is 0xe3069283. */
uint32_t dro__crc32c(const void *bytes, size_t size);

#endif
