/* Stand-ins for tails.cu: a tail's numbers and what is done with them. Sums are in double and in
 * the first half of dro__numbers' alone. */
#include "stand_ins.h"

#include <math.h>

/* Channel c of pixel i. */
static float *at(dro__typed v, size_t i, int channels, int c)
{
    return (float *)v.p + i * (size_t)(v.stride ? v.stride : channels) + c;
}

static double or_0(dro__typed v, size_t i, int channels, int c)
{
    return v.p ? (double)*at(v, i, channels, c) : 0;
}

/* Whether a ReLU of this value holds back its slope. */
static bool closed(double value, float cap)
{
    return cap > 0 && (value <= 0 || value >= (double)cap);
}

static size_t first_pixel(dro__parts parts, int part, int area)
{
    return (size_t)parts.first[part] * (size_t)area;
}

static double part_size(dro__parts parts, int part, int area)
{
    return (double)(parts.first[part + 1] - parts.first[part] + parts.others[part]) * area;
}

static void affine_of(dro__numbers n, dro__norm_source from, int part, int c, double mean,
                      double variance)
{
    int to = part * n.channels + c;
    double inverse = 1 / sqrt(variance + (double)from.eps), scale = (double)from.gamma[c] * inverse;
    n.mean[to] = (float)mean;
    n.inverse[to] = (float)inverse;
    n.scale[to] = n.p[to] = (float)scale;
    n.shift[to] = (float)((double)from.beta[c] - (mean - (double)n.mean[to]) * scale);
}

static void forward_numbers(dro__parts parts, int area, dro__numbers n, dro__norm_source from,
                            int part, int c)
{
    const double *sums = n.sums + 2 * part * n.channels;
    double m = part_size(parts, part, area);
    double mean = sums[c] / m, dev = sums[n.channels + c] - sums[c] * mean;
    dev = dev < 0 ? 0 : dev;
    if (part == 0) {
        double old = 1 - from.momentum, bias = from.bias ? (double)from.bias[c] : 0;
        const float *was = from.running + n.channels;
        from.taken[c] = (float)(old * (double)from.running[c] + from.momentum * (mean + bias));
        from.taken[n.channels + c] =
            (float)(old * (double)was[c] + from.momentum * dev / (m > 1 ? m - 1 : m));
    }
    affine_of(n, from, part, c, mean, dev / m);
}

static void backward_numbers(dro__parts parts, int area, int batch, dro__numbers n,
                             dro__norm_grads grads, int part, int c)
{
    int to = part * n.channels + c;
    const double *own = n.back + 2 * part * n.channels, *all = n.all + 2 * part * n.channels;
    double m = part_size(parts, part, area);
    double p = (double)n.p[to], inverse = (double)n.inverse[to], sum = all[c],
           dot = all[n.channels + c];
    if (grads.gamma[part])
        grads.gamma[part][c] = (float)(own[n.channels + c] * inverse);
    if (grads.beta[part])
        grads.beta[part][c] = (float)own[c];
    if (grads.bias[part])
        grads.bias[part][c] = batch ? 0 : (float)(p * own[c]);
    n.q[to] = batch ? (float)(-p * inverse * inverse * dot / m) : 0;
    n.r[to] = batch ? (float)(-p * sum / m) : 0;
}

void dro__gpu_constants(cudaStream_t s, dro__numbers n, dro__norm_source from)
{
    (void)s;
    for (int part = 0; part < DRO__PARTS; part++)
        for (int c = 0; c < n.channels; c++) {
            int to = part * n.channels + c;
            double bias = from.bias ? (double)from.bias[c] : 0;
            n.q[to] = n.r[to] = 0;
            if (from.gamma) {
                affine_of(n, from, part, c, (double)from.running[c] - bias,
                          (double)from.running[n.channels + c]);
            } else {
                n.mean[to] = 0;
                n.inverse[to] = n.scale[to] = n.p[to] = 1;
                n.shift[to] = (float)bias;
            }
        }
}

void dro__gpu_finish_forward(cudaStream_t s, dro__parts parts, int area, dro__numbers n,
                             dro__norm_source from)
{
    (void)s;
    for (int part = 0; part < parts.count; part++)
        for (int c = 0; c < n.channels; c++)
            forward_numbers(parts, area, n, from, part, c);
}

void dro__gpu_finish_backward(cudaStream_t s, dro__parts parts, int area, int batch, dro__numbers n,
                              dro__norm_grads grads)
{
    (void)s;
    for (int part = 0; part < parts.count; part++)
        for (int c = 0; c < n.channels; c++)
            backward_numbers(parts, area, batch, n, grads, part, c);
}

void dro__gpu_moments(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                      const dro__norm_source *from)
{
    int area = e.height * e.width;
    for (int part = 0; part < parts.count; part++)
        for (int c = 0; c < n.channels; c++) {
            double sum = 0, square = 0, *to = n.sums + 2 * part * n.channels + c;
            for (size_t i = first_pixel(parts, part, area); i < first_pixel(parts, part + 1, area);
                 i++) {
                double x = (double)*at(z, i, e.channels, c);
                sum += x;
                square += x * x;
            }
            to[0] = sum, to[n.channels] = square;
        }
    if (from)
        dro__gpu_finish_forward(s, parts, area, n, *from);
}

void dro__gpu_apply(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed z, dro__numbers n,
                    dro__typed residual, float cap, dro__typed y)
{
    (void)s;
    int area = e.height * e.width;
    for (int part = 0; part < parts.count; part++)
        for (size_t i = first_pixel(parts, part, area); i < first_pixel(parts, part + 1, area); i++)
            for (int c = 0; c < e.channels; c++) {
                int k = part * n.channels + c;
                float x = (*at(z, i, e.channels, c) - n.mean[k]) * n.scale[k] + n.shift[k];
                x += (float)or_0(residual, i, e.channels, c);
                *at(y, i, e.channels, c) = cap > 0 ? fminf(fmaxf(x, 0), cap) : x;
            }
}

void dro__gpu_close(cudaStream_t s, dro__parts parts, dro__extent e, const dro__closing *k,
                    dro__numbers n)
{
    (void)s;
    int area = e.height * e.width, channels = e.channels;
    for (int part = 0; part < parts.count; part++)
        for (int c = 0; c < channels; c++) {
            int of = part * n.channels + c;
            double sum = 0, dot = 0, *to = n.back + 2 * part * n.channels + c;
            for (size_t i = first_pixel(parts, part, area); i < first_pixel(parts, part + 1, area);
                 i++) {
                double x = (double)*at(k->slope, i, channels, c) + or_0(k->more, i, channels, c);
                double off = or_0(k->z, i, channels, c) - (double)n.mean[of];
                double open = k->y.p ? (double)*at(k->y, i, channels, c)
                                     : off * (double)n.scale[of] + (double)n.shift[of];
                x = closed(open, k->cap) ? 0 : x;
                sum += x;
                dot += x * off;
                if (k->g.p)
                    *at(k->g, i, channels, c) = (float)x;
            }
            to[0] = sum, to[n.channels] = dot;
            if (k->finish)
                backward_numbers(parts, area, k->batch, n, k->grads, part, c);
        }
}

void dro__gpu_slope(cudaStream_t s, dro__parts parts, dro__extent e, dro__typed g, dro__typed z,
                    float cap, dro__numbers n, dro__typed add, dro__typed dz)
{
    (void)s;
    int area = e.height * e.width;
    for (int part = 0; part < parts.count; part++)
        for (size_t i = first_pixel(parts, part, area); i < first_pixel(parts, part + 1, area); i++)
            for (int c = 0; c < e.channels; c++) {
                int k = part * n.channels + c;
                double off = z.p ? (double)(*at(z, i, e.channels, c) - n.mean[k]) : 0;
                double value = off * (double)n.scale[k] + (double)n.shift[k];
                double x = closed(value, cap) ? 0 : (double)*at(g, i, e.channels, c);
                x = (double)n.p[k] * x + (double)n.q[k] * off + (double)n.r[k];
                *at(dz, i, e.channels, c) = (float)(x + or_0(add, i, e.channels, c));
            }
}
