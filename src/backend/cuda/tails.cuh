/* Computes a batch norm's numbers from its sums, one channel at a time: in a separate kernel, or in
 * the kernel that reads the value or the slope first (every block for itself; one of them also
 * stores them). */
#ifndef DRO_CUDA_TAILS_CUH
#define DRO_CUDA_TAILS_CUH

#include "device.cuh"

/* ---- sums that do not depend on the order in which blocks add to them. A number is split into a
 * multiple of 2^-18 and a multiple of 2^-58. Doubles add such multiples exactly while the sums stay
 * below 2^35 and there are fewer than 2^14 blocks. Beyond that a sum is rounded as usual, and its
 * last bits depend on the order. The sums of the small multiples are stored after those of the
 * large ones, of all parts. ---- */

static __device__ __forceinline__ void add_sum(double *to, int channels, double x)
{
    const double HIGH = 1.5 * (1ll << 34), LOW = 1.5 / 64; /* 1.5 * 2^52 units */
    double high = (x + HIGH) - HIGH, low = ((x - high) + LOW) - LOW;
    atomicAdd(to, high);
    atomicAdd(to + 4 * channels, low);
}

static __device__ __forceinline__ double sum_at(const double *from, int channels)
{
    return from[0] + from[4 * channels];
}

static __device__ __forceinline__ double part_size(const dro__parts &parts, int part, int area)
{
    return (double)(parts.first[part + 1] - parts.first[part] + parts.others[part]) * area;
}

/* Returns mean, scale and shift. */
static __device__ __forceinline__ float3 affine_of(const dro__numbers &n,
                                                   const dro__norm_source &from, int part, int c,
                                                   double mean, double variance, bool keep)
{
    int at = part * n.channels + c;
    double inverse = rsqrt(variance + (double)from.eps);
    double scale = (double)from.gamma[c] * inverse;
    float3 f;
    f.x = (float)mean;
    f.y = (float)scale;
    /* corrects for rounding the mean to float */
    f.z = (float)((double)from.beta[c] - (mean - (double)f.x) * scale);
    if (keep) {
        n.mean[at] = f.x;
        n.inverse[at] = (float)inverse;
        n.scale[at] = n.p[at] = f.y;
        n.shift[at] = f.z;
    }
    return f;
}

/* Mean, scale and shift, from the forward pass's sums of z and z^2. */
static __device__ __forceinline__ float3 forward_numbers(const dro__parts &parts, int area,
                                                         const dro__numbers &n,
                                                         const dro__norm_source &from, int part,
                                                         int c, bool keep)
{
    const double *sums = n.sums + 2 * part * n.channels;
    double m = part_size(parts, part, area), one = 1 / m, sum = sum_at(sums + c, n.channels);
    double mean = sum * one, dev = sum_at(sums + n.channels + c, n.channels) - sum * mean;
    dev = dev > 0 || isnan(dev) ? dev : 0;
    if (keep && part == 0) {
        double old = 1 - from.momentum, bias = from.bias ? (double)from.bias[c] : 0;
        double unbiased = m > 1 ? dev / (m - 1) : dev * one;
        from.taken[c] = (float)(old * (double)from.running[c] + from.momentum * (mean + bias));
        from.taken[n.channels + c] =
            (float)(old * (double)from.running[n.channels + c] + from.momentum * unbiased);
    }
    return affine_of(n, from, part, c, mean, dev * one, keep);
}

/* p, q and r, from the backward pass's sums of g and g (z - mean) over all ranks; also the
 * parameters' gradients, from the sums of this rank's examples. */
static __device__ __forceinline__ float3 backward_numbers(const dro__parts &parts, int area,
                                                          int batch, const dro__numbers &n,
                                                          const dro__norm_grads &grads, int part,
                                                          int c, bool keep)
{
    int at = part * n.channels + c;
    const double *sums = n.back + 2 * part * n.channels, *all = n.all + 2 * part * n.channels;
    float one = 1 / (float)part_size(parts, part, area), inverse = n.inverse[at], p = n.p[at];
    float sum = (float)sum_at(all + c, n.channels);
    float dot = (float)sum_at(all + n.channels + c, n.channels);
    float3 f;
    f.x = p;
    f.y = batch ? -p * inverse * inverse * dot * one : 0;
    f.z = batch ? -p * sum * one : 0;
    if (keep) {
        sum = (float)sum_at(sums + c, n.channels);
        dot = (float)sum_at(sums + n.channels + c, n.channels);
        if (grads.gamma[part])
            grads.gamma[part][c] = dot * inverse;
        if (grads.beta[part])
            grads.beta[part][c] = sum;
        if (grads.bias[part])
            grads.bias[part][c] = batch ? 0 : p * sum;
        n.q[at] = f.y;
        n.r[at] = f.z;
    }
    return f;
}

#endif
