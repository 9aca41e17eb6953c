/* Measuring: how fast this machine moves memory, and how near the backend comes to that.
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
 * three arrays, without the line that a store fetches first. Then come the backend's operations in
 * the shapes that the optimisers use, an array that is updated in place counted as read and as
 * written. A round runs each of them once, so all see the same machine. length: floats per vector,
 * five of them; far more than the last-level cache holds, and no power of two (vectors that far
 * apart fall on the same cache sets). Fills at most `capacity` speeds and says in *count how many
 * there are. */
DRO_API dro_status dro_bench_vector(dro_context *ctx, size_t length, int rounds,
                                    dro_bench_speed *speeds, size_t capacity, size_t *count);

/* Reads x, (length), once over the context's threads: the least time in which anything can be done
 * with it. */
DRO_API dro_status dro_bench_read(dro_context *ctx, const float *x, size_t length, double *seconds);

/* The most floating-point operations per second (a multiply and an add are two) that the context's
 * threads reach in registers. */
DRO_API dro_status dro_bench_peak(dro_context *ctx, double *flops_per_s);

#ifdef __cplusplus
}
#endif
#endif
