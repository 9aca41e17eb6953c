/* The tilt of the cpu backend: exponentials of a batch of losses, in double, several at a time. */
#include "cpu.h"

#include <string.h>

/* exp(x) for x <= 600, to about 1e-15: 2^k exp(r), |r| <= log(2)/2, by the series to the 13th power.
 * Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits. Below -700 it is as at -700. */
static inline double exp_double(double x)
{
    const double magic = 6755399441055744.0;
    double t = x < -700 ? -700 : x;
    double shifted = t * 1.4426950408889634 + magic, k = shifted - magic;
    double r = (t - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r + 1;
    uint64_t bits;
    double scale;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

DRO__KERNEL double tilt_kernel(size_t n, const float *losses, double scale, double log_u,
                               double cap, float *coef, uint64_t *caps)
{
    double sum = 0, share = 1 / (double)n;
    int64_t beyond = 0;
#pragma omp simd reduction(+ : sum, beyond)
    for (size_t i = 0; i < n; i++) {
        double x = (double)losses[i] * scale - log_u;
        double over = x > cap ? x - cap : 0, slope = exp_double(x > cap ? cap : x);
        beyond += x > cap ? 1 : 0;
        sum += slope * (1 + over);
        coef[i] = (float)(slope * share);
    }
    *caps += (uint64_t)beyond;
    return sum * share;
}

double dro__cpu_tilt(size_t n, const float *losses, double scale, double log_u, double cap,
                     float *coef, uint64_t *caps)
{
    return tilt_kernel(n, losses, scale, log_u, cap, coef, caps);
}
