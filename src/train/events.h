/* TensorBoard event files: scalars of a run, for those who look at curves there.
 *
 *     dro__events_open(ctx, "runs/a/" DRO__EVENTS_NAME, 0, &events);
 *     dro__events_add(events, step, seconds since 1970, scalars, count);     // one record
 *     checkpoint.events = dro__events_offset(events);
 *     dro__events_close(events);
 *
 * A record is on its way to the disk when add returns, or the file is as it was before. A resumed run
 * opens the file at the offset of its checkpoint: what was written after it is cut off. */
#ifndef DRO_EVENTS_H
#define DRO_EVENTS_H

#include "base.h"

/* TensorBoard takes every file whose name contains "tfevents". */
#define DRO__EVENTS_NAME "events.out.tfevents.dro"

typedef struct dro__events dro__events;

typedef struct dro__scalar {
    const char *tag; /* "test/accuracy"; the part before the slash is the heading */
    double value;    /* stored as a float; NaN and infinities are kept */
} dro__scalar;

/* offset 0: the file is made anew, with the record that says what it is. Otherwise the file must be
 * there and hold at least that many bytes (DRO_ERR_FORMAT), and begin as an event file does. */
dro_status dro__events_open(dro_context *ctx, const char *path, uint64_t offset,
                            dro__events **events);
void dro__events_close(dro__events *events); /* NULL is fine */

dro_status dro__events_add(dro__events *events, int64_t step, double wall_time,
                           const dro__scalar *scalars, size_t count);
/* The size of the file, from which a resumed run goes on. */
uint64_t dro__events_offset(const dro__events *events);
/* Brings the file to the disk (fsync), before a checkpoint that names its offset. */
dro_status dro__events_sync(dro__events *events);

/* CRC-32C (Castagnoli) of some bytes; crc32c("123456789") is 0xe3069283. */
uint32_t dro__crc32c(const void *bytes, size_t size);

#endif
