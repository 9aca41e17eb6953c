/* The passes of kernels.h. Written for any block and compiled for 8 and 16, so that the innermost
 * loop is one vector; the area is walked four vectors at a time where sums would wait for each
 * other. */
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

/* ReLU that ends at cap; NaN stays. */
INLINE float clip(float x, float cap)
{
    x = x < 0 ? 0 : x;
    return x > cap ? cap : x;
}

/* Whether a ReLU of this value lets a slope through. */
INLINE bool open_at(float y, float cap)
{
    return (y > 0) & (y < cap);
}

/* ---- apply ---- */

INLINE void apply_body(const dro__chunk *c, const float *z, const float *residual, bool relu,
                       float *y, int B)
{
    const float cap = c->cap;
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B;
            const float *m = c->mean + b * (size_t)B, *s = c->scale + b * (size_t)B,
                        *t = c->shift + b * (size_t)B;
            const float *from = z + at, *more = residual ? residual + at : NULL;
            float *to = y + at;
            for (size_t p = 0; p < c->area; p++, from += B, to += B, more += more ? B : 0)
#pragma omp simd
                for (int l = 0; l < B; l++) {
                    float v = (from[l] - m[l]) * s[l] + t[l];
                    v = more ? v + more[l] : v;
                    to[l] = relu ? clip(v, cap) : v;
                }
        }
}

INLINE void apply_cases(const dro__chunk *c, const float *z, const float *residual, float *y, int B)
{
    if (residual && c->cap > 0)
        apply_body(c, z, residual, true, y, B);
    else if (residual)
        apply_body(c, z, residual, false, y, B);
    else if (c->cap > 0)
        apply_body(c, z, NULL, true, y, B);
    else
        apply_body(c, z, NULL, false, y, B);
}

DRO__KERNEL void apply_kernel(const dro__chunk *c, const float *z, const float *residual, float *y)
{
    DISPATCH(c, apply_cases(c, z, residual, y, 8), apply_cases(c, z, residual, y, 16));
}

DRO__EACH_ISA(void, apply, (const dro__chunk *c, const float *z, const float *residual, float *y),
              (c, z, residual, y))

void dro__chunk_apply(const dro__chunk *c, const float *z, const float *residual, float *y)
{
    apply(c, z, residual, y);
}

/* ---- moments ---- */

/* Sums of z and, in a second walk over the same cached numbers, of squares around the chunk's
 * mean. */
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

DRO__KERNEL void moments_of_kernel(const dro__chunk *c, const float *z, double *moments,
                                   double seen)
{
    DISPATCH(c, moments_body(c, z, moments, seen, 8), moments_body(c, z, moments, seen, 16));
}

DRO__EACH_ISA(void, moments_of, (const dro__chunk *c, const float *z, double *moments, double seen),
              (c, z, moments, seen))

void dro__chunk_moments(const dro__chunk *c, const float *z, double *moments, double *seen)
{
    moments_of(c, z, moments, *seen);
    *seen += (double)(c->count * c->area);
}

/* ---- close ---- */

/* One block of channels, from ch on, of one example, which is at `at`. */
INLINE void close_block(const dro__chunk *c, size_t at, size_t ch, float *g, const float *y,
                        const float *z, bool relu, bool dot, float *sums, int B)
{
    const float *m = c->mean + ch, *s = c->scale + ch, *t = c->shift + ch, cap = c->cap;
    float a[WIDEST] = {0}, d[WIDEST] = {0};
    for (size_t p = 0; p < c->area; p++, at += (size_t)B) {
        float *to = g + at;
#pragma omp simd
        for (int l = 0; l < B; l++) {
            float off = dot || (relu && !y) ? z[at + (size_t)l] - m[l] : 0;
            float v = to[l];
            if (relu)
                v = open_at(y ? y[at + (size_t)l] : off * s[l] + t[l], cap) ? v : 0;
            if (relu)
                to[l] = v;
            a[l] += v;
            d[l] += dot ? v * off : 0;
        }
    }
    for (int l = 0; l < B; l++) {
        sums[l] = a[l];
        sums[WIDEST + l] = d[l];
    }
}

INLINE void close_body(const dro__chunk *c, float *g, const float *y, const float *z, bool relu,
                       bool dot, double *sums, int B)
{
    size_t channels = c->blocks * (size_t)B;
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B, ch = b * (size_t)B;
            float part[2 * WIDEST];
            close_block(c, at, ch, g, y, z, relu, dot, part, B);
            for (int l = 0; l < B; l++) {
                sums[ch + (size_t)l] += (double)part[l];
                sums[channels + ch + (size_t)l] += (double)part[WIDEST + l];
            }
        }
}

INLINE void close_cases(const dro__chunk *c, float *g, const float *y, const float *z, double *sums,
                        int B)
{
    bool relu = c->cap > 0;
    if (relu && y && z)
        close_body(c, g, y, z, true, true, sums, B);
    else if (relu && y)
        close_body(c, g, y, NULL, true, false, sums, B);
    else if (relu)
        close_body(c, g, NULL, z, true, true, sums, B);
    else if (z)
        close_body(c, g, NULL, z, false, true, sums, B);
    else
        close_body(c, g, NULL, NULL, false, false, sums, B);
}

DRO__KERNEL void close_slope_kernel(const dro__chunk *c, float *g, const float *y, const float *z,
                                    double *sums)
{
    DISPATCH(c, close_cases(c, g, y, z, sums, 8), close_cases(c, g, y, z, sums, 16));
}

DRO__EACH_ISA(void, close_slope,
              (const dro__chunk *c, float *g, const float *y, const float *z, double *sums),
              (c, g, y, z, sums))

void dro__chunk_close(const dro__chunk *c, float *g, const float *y, const float *z, double *sums)
{
    close_slope(c, g, y, z, sums);
}

/* ---- slope ---- */

INLINE void slope_body(const dro__chunk *c, const float *g, const float *z, float *dz, int B)
{
    for (size_t n = 0; n < c->count; n++)
        for (size_t b = 0; b < c->blocks; b++) {
            size_t at = (n * c->blocks + b) * c->area * (size_t)B, ch = b * (size_t)B;
            const float *m = c->mean + ch, *p = c->p + ch, *q = c->q + ch, *r = c->r + ch;
            const float *from = g + at, *value = z ? z + at : NULL;
            float *to = dz + at;
            for (size_t k = 0; k < c->area; k++, from += B, to += B, value += value ? B : 0)
#pragma omp simd
                for (int l = 0; l < B; l++) {
                    float v = p[l] * from[l];
                    to[l] = value ? v + (q[l] * (value[l] - m[l]) + r[l]) : v;
                }
        }
}

INLINE void slope_cases(const dro__chunk *c, const float *g, const float *z, float *dz, int B)
{
    if (z)
        slope_body(c, g, z, dz, B);
    else
        slope_body(c, g, NULL, dz, B);
}

DRO__KERNEL void slope_of_kernel(const dro__chunk *c, const float *g, const float *z, float *dz)
{
    DISPATCH(c, slope_cases(c, g, z, dz, 8), slope_cases(c, g, z, dz, 16));
}

DRO__EACH_ISA(void, slope_of, (const dro__chunk *c, const float *g, const float *z, float *dz),
              (c, g, z, dz))

void dro__chunk_slope(const dro__chunk *c, const float *g, const float *z, float *dz)
{
    slope_of(c, g, z, dz);
}

/* ---- plain arrays ---- */

DRO__KERNEL void add_kernel(size_t n, float *restrict to, const float *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

DRO__EACH_ISA(void, add, (size_t n, float *restrict to, const float *restrict from), (n, to, from))

void dro__floats_add(size_t n, float *to, const float *from)
{
    add(n, to, from);
}

DRO__KERNEL void relu_of_kernel(size_t n, const float *x, float cap, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = clip(x[i], cap);
}

DRO__EACH_ISA(void, relu_of, (size_t n, const float *x, float cap, float *y), (n, x, cap, y))

void dro__floats_relu(size_t n, const float *x, float cap, float *y)
{
    relu_of(n, x, cap, y);
}

DRO__KERNEL void relu_slope_kernel(size_t n, const float *y, const float *dy, float cap, bool more,
                                   float *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = (more ? dx[i] : 0) + (open_at(y[i], cap) ? dy[i] : 0);
}

DRO__EACH_ISA(void, relu_slope,
              (size_t n, const float *y, const float *dy, float cap, bool more, float *dx),
              (n, y, dy, cap, more, dx))

void dro__floats_relu_slope(size_t n, const float *y, const float *dy, float cap, bool more,
                            float *dx)
{
    relu_slope(n, y, dy, cap, more, dx);
}
