/* Passes over a chunk of blocked values: (count, blocks, area, B), B channels side by side. Arrays
 * by channel are padded to whole blocks. */
#ifndef DRO_CPU_NET_KERNELS_H
#define DRO_CPU_NET_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* A chunk, and the numbers of its tail, by channel:
 *     y = clip((z - mean) scale + shift),   dz = p g + q (z - mean) + r */
typedef struct dro__chunk {
    size_t count, blocks, area;
    int block; /* B: 8 or 16 */
    const float *mean, *scale, *shift, *p, *q, *r;
    float cap; /* ReLU's largest value; 0: no ReLU */
} dro__chunk;

/* y = (z - mean) * scale + shift [+ residual], then [ReLU]; y may be z. */
void dro__chunk_apply(const dro__chunk *c, const float *z, const float *residual, float *y);
/* Count, mean and sum of squared deviations of each channel, merged into those of earlier chunks:
 * moments is (2, channels), *seen the numbers per channel so far. */
void dro__chunk_moments(const dro__chunk *c, const float *z, double *moments, double *seen);
/* What remains to be done when the slope g of a value is complete: where the value's ReLU was
 * closed it becomes 0 (value y, or when NULL (z - mean) * scale + shift); and sums (2, channels) +=
 * sum of g, sum of g * (z - mean), the second only when z is given. */
void dro__chunk_close(const dro__chunk *c, float *g, const float *y, const float *z, double *sums);
/* dz = p * g + q * (z - mean) + r; z NULL: dz = p * g. */
void dro__chunk_slope(const dro__chunk *c, const float *g, const float *z, float *dz);
void dro__floats_add(size_t n, float *to, const float *from);
void dro__floats_relu(size_t n, const float *x, float cap, float *y);
/* dx (+)= dy where 0 < y < cap */
void dro__floats_relu_slope(size_t n, const float *y, const float *dy, float cap, bool add,
                            float *dx);

#endif
