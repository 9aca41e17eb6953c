/* The passes of kernels.h. Written for any block and compiled for 8 and 16, so that the innermost loop is one
 * vector; the area is walked four vectors at a time where sums would wait for each other. */
#include "kernels.h"

#include "../cpu.h"

#define INLINE static inline __attribute__((always_inline))

enum { WIDEST = 16 };

/* Instances for the two blocks: name(c, ...) calls name_body(c, ..., 8 or 16). */
#define DISPATCH(c, call8, call16)                                                                 \
    do {                                                                                           \
        if ((c)->block == 16)                                                                      \
            call16;                                                                                \
        else                                                                                       \
            call8;                                                                                 \
    } while (0)

/* ---- apply ---- */

INLINE void apply_body(const dro__chunk *c, const float *z, const float *mean, const float *scale,
                       const float *shift, const float *residual, bool relu, float *y, int B)
{
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B;
            const float *m = mean + b * (size_t)B, *s = scale + b * (size_t)B,
                        *t = shift + b * (size_t)B;
            const float *from = z + at, *more = residual ? residual + at : NULL;
            float *to = y + at;
            for (size_t p = 0; p < c->area; p++, from += B, to += B, more += more ? B : 0)
#pragma omp simd
                for (int l = 0; l < B; l++) {
                    float v = (from[l] - m[l]) * s[l] + t[l];
                    v = more ? v + more[l] : v;
                    to[l] = relu ? (v < 0 ? 0 : v) : v;
                }
        }
}

INLINE void apply_cases(const dro__chunk *c, const float *z, const float *mean, const float *scale,
                        const float *shift, const float *residual, bool relu, float *y, int B)
{
    if (residual && relu)
        apply_body(c, z, mean, scale, shift, residual, true, y, B);
    else if (residual)
        apply_body(c, z, mean, scale, shift, residual, false, y, B);
    else if (relu)
        apply_body(c, z, mean, scale, shift, NULL, true, y, B);
    else
        apply_body(c, z, mean, scale, shift, NULL, false, y, B);
}

DRO__KERNEL void apply(const dro__chunk *c, const float *z, const float *mean, const float *scale,
                       const float *shift, const float *residual, bool relu, float *y)
{
    DISPATCH(c, apply_cases(c, z, mean, scale, shift, residual, relu, y, 8),
             apply_cases(c, z, mean, scale, shift, residual, relu, y, 16));
}

void dro__chunk_apply(const dro__chunk *c, const float *z, const float *mean, const float *scale,
                      const float *shift, const float *residual, bool relu, float *y)
{
    apply(c, z, mean, scale, shift, residual, relu, y);
}

/* ---- moments ---- */

/* Sums of z and, in a second walk over the same cached numbers, of squares around the chunk's mean. */
INLINE void sum_body(const float *z, size_t area, const float *around, float *sums, int B)
{
    float s[4][WIDEST] = {{0}};
    size_t p = 0;
    for (; p + 4 <= area; p += 4)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
#pragma omp simd
            for (int l = 0; l < B; l++) {
                float v = z[(p + (size_t)u) * (size_t)B + (size_t)l];
                v = around ? v - around[l] : v;
                s[u][l] += around ? v * v : v;
            }
    for (; p < area; p++)
        for (int l = 0; l < B; l++) {
            float v = z[p * (size_t)B + (size_t)l];
            v = around ? v - around[l] : v;
            s[0][l] += around ? v * v : v;
        }
    for (int l = 0; l < B; l++)
        sums[l] = (s[0][l] + s[1][l]) + (s[2][l] + s[3][l]);
}

INLINE void moments_body(const dro__chunk *c, const float *z, double *moments, double seen, int B)
{
    size_t channels = c->blocks * (size_t)B;
    double m = (double)(c->count * c->area), all = seen + m;
    for (size_t b = 0; b < c->blocks; b++) {
        double sum[WIDEST] = {0}, square[WIDEST] = {0};
        float part[WIDEST], around[WIDEST];
        for (size_t n = 0; n < c->count; n++) {
            sum_body(z + (n * c->blocks + b) * c->area * (size_t)B, c->area, NULL, part, B);
            for (int l = 0; l < B; l++)
                sum[l] += (double)part[l];
        }
        for (int l = 0; l < B; l++)
            around[l] = (float)(sum[l] / m);
        for (size_t n = 0; n < c->count; n++) {
            sum_body(z + (n * c->blocks + b) * c->area * (size_t)B, c->area, around, part, B);
            for (int l = 0; l < B; l++)
                square[l] += (double)part[l];
        }
        for (int l = 0; l < B;
             l++) { /* two sets of numbers become one (Chan, Golub, LeVeque 1979) */
            double *mean = &moments[b * (size_t)B + (size_t)l], *dev = mean + channels;
            double here = sum[l] / m, off = here - (double)around[l], away = here - *mean;
            *dev += square[l] - m * off * off + away * away * seen * m / all;
            *mean += away * m / all;
        }
    }
}

DRO__KERNEL void moments_of(const dro__chunk *c, const float *z, double *moments, double seen)
{
    DISPATCH(c, moments_body(c, z, moments, seen, 8), moments_body(c, z, moments, seen, 16));
}

void dro__chunk_moments(const dro__chunk *c, const float *z, double *moments, double *seen)
{
    moments_of(c, z, moments, *seen);
    *seen += (double)(c->count * c->area);
}

/* ---- close ---- */

/* One channel block of one example. */
INLINE void close_block(size_t area, float *g, const float *y, const float *z, const float *m,
                        const float *s, const float *t, bool relu, bool dot, float *sums, int B)
{
    float a[2][WIDEST] = {{0}}, d[2][WIDEST] = {{0}};
    for (size_t p = 0; p < area; p++) {
        float *to = g + p * (size_t)B;
#pragma omp simd
        for (int l = 0; l < B; l++) {
            size_t at = p * (size_t)B + (size_t)l;
            float off = dot || (relu && !y) ? z[at] - m[l] : 0;
            float v = to[l];
            if (relu)
                v = (y ? y[at] : off * s[l] + t[l]) > 0 ? v : 0;
            if (relu)
                to[l] = v;
            a[0][l] += v;
            d[0][l] += dot ? v * off : 0;
        }
    }
    for (int l = 0; l < B; l++) {
        sums[l] = a[0][l] + a[1][l];
        sums[WIDEST + l] = d[0][l] + d[1][l];
    }
}

INLINE void close_body(const dro__chunk *c, float *g, const float *y, const float *z,
                       const float *mean, const float *scale, const float *shift, bool relu,
                       bool dot, double *sums, int B)
{
    size_t channels = c->blocks * (size_t)B;
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B, ch = b * (size_t)B;
            float part[2 * WIDEST];
            close_block(c->area, g + at, y ? y + at : NULL, z ? z + at : NULL, mean + ch,
                        scale + ch, shift + ch, relu, dot, part, B);
            for (int l = 0; l < B; l++) {
                sums[ch + (size_t)l] += (double)part[l];
                sums[channels + ch + (size_t)l] += (double)part[WIDEST + l];
            }
        }
}

INLINE void close_cases(const dro__chunk *c, float *g, const float *y, const float *z,
                        const float *mean, const float *scale, const float *shift, bool relu,
                        double *sums, int B)
{
    if (relu && y && z)
        close_body(c, g, y, z, mean, scale, shift, true, true, sums, B);
    else if (relu && y)
        close_body(c, g, y, NULL, mean, scale, shift, true, false, sums, B);
    else if (relu)
        close_body(c, g, NULL, z, mean, scale, shift, true, true, sums, B);
    else if (z)
        close_body(c, g, NULL, z, mean, scale, shift, false, true, sums, B);
    else
        close_body(c, g, NULL, NULL, mean, scale, shift, false, false, sums, B);
}

DRO__KERNEL void close_slope(const dro__chunk *c, float *g, const float *y, const float *z,
                             const float *mean, const float *scale, const float *shift, bool relu,
                             double *sums)
{
    DISPATCH(c, close_cases(c, g, y, z, mean, scale, shift, relu, sums, 8),
             close_cases(c, g, y, z, mean, scale, shift, relu, sums, 16));
}

void dro__chunk_close(const dro__chunk *c, float *g, const float *y, const float *z,
                      const float *mean, const float *scale, const float *shift, bool relu,
                      double *sums)
{
    close_slope(c, g, y, z, mean, scale, shift, relu, sums);
}

/* ---- slope ---- */

INLINE void slope_body(const dro__chunk *c, const float *g, const float *z, const float *mean,
                       const float *p, const float *q, const float *r, float *dz, int B)
{
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B, ch = b * (size_t)B;
            const float *from = g + at, *value = z ? z + at : NULL;
            float *to = dz + at;
            for (size_t k = 0; k < c->area; k++, from += B, to += B, value += value ? B : 0)
#pragma omp simd
                for (int l = 0; l < B; l++) {
                    float v = p[ch + (size_t)l] * from[l];
                    if (value)
                        v += q[ch + (size_t)l] * (value[l] - mean[ch + (size_t)l]) +
                             r[ch + (size_t)l];
                    to[l] = v;
                }
        }
}

INLINE void slope_cases(const dro__chunk *c, const float *g, const float *z, const float *mean,
                        const float *p, const float *q, const float *r, float *dz, int B)
{
    if (z)
        slope_body(c, g, z, mean, p, q, r, dz, B);
    else
        slope_body(c, g, NULL, mean, p, q, r, dz, B);
}

DRO__KERNEL void slope_of(const dro__chunk *c, const float *g, const float *z, const float *mean,
                          const float *p, const float *q, const float *r, float *dz)
{
    DISPATCH(c, slope_cases(c, g, z, mean, p, q, r, dz, 8),
             slope_cases(c, g, z, mean, p, q, r, dz, 16));
}

void dro__chunk_slope(const dro__chunk *c, const float *g, const float *z, const float *mean,
                      const float *p, const float *q, const float *r, float *dz)
{
    slope_of(c, g, z, mean, p, q, r, dz);
}

/* ---- plain arrays ---- */

DRO__KERNEL void add(size_t n, float *restrict to, const float *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

void dro__floats_add(size_t n, float *to, const float *from)
{
    add(n, to, from);
}

DRO__KERNEL void relu_of(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

void dro__floats_relu(size_t n, const float *x, float *y)
{
    relu_of(n, x, y);
}

DRO__KERNEL void relu_slope(size_t n, const float *y, const float *dy, bool more, float *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = (more ? dx[i] : 0) + (y[i] > 0 ? dy[i] : 0);
}

void dro__floats_relu_slope(size_t n, const float *y, const float *dy, bool more, float *dx)
{
    relu_slope(n, y, dy, more, dx);
}
