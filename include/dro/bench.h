/* Benchmarks: the machine's memory bandwidth, and what share of it the backend reaches.
 *
 * An optimiser's step is a few passes over vectors as long as the weights, so memory bandwidth is
 * its limit. These calls measure that limit and the backend's vector operations in one run.
 * Experimental. */
#ifndef DRO_BENCH_H
#define DRO_BENCH_H

#include <dro/context.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_bench_speed {
    const char *operation; /* a static text */
    double bytes;          /* of one call: 4 per float read and 4 per float written */
    double bytes_per_s;    /* the best of the rounds, as STREAM reports it */
} dro_bench_speed;

/* speeds[0] is the triad a[i] = b[i] + s * c[i] over the context's threads, counted as STREAM does:
 * three arrays, without the cache line that a store reads first. The others are the backend's
 * operations in the shapes that the optimisers use; an array that is updated in place counts as
 * read and as written. A round runs each of them once, so that all run under the same conditions.
 * length: floats per vector (there are five); far more than the last-level cache holds, and not a
 * power of two (such vectors share cache sets). Fills at most `capacity` speeds; *count is their
 * number. */
DRO_API dro_status dro_bench_vector(dro_context *ctx, size_t length, int rounds,
                                    dro_bench_speed *speeds, size_t capacity, size_t *count);

/* Reads x, (length), once with the context's threads: a lower bound on the time of any operation on
 * it. */
DRO_API dro_status dro_bench_read(dro_context *ctx, const float *x, size_t length, double *seconds);

/* The most floating-point operations per second (a multiply and an add are two) that the context's
 * threads reach in registers. */
DRO_API dro_status dro_bench_peak(dro_context *ctx, double *flops_per_s);

#ifdef __cplusplus
}
#endif
#endif
