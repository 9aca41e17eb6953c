/* Stand-ins for layers.cu, pool.cu, fold.cu, loss.cu and images.cu. Where a kernel takes its values
 * to be dense, without looking at the stride, so does its stand-in. */
#include "stand_ins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *floats(dro__typed v)
{
    return v.p;
}

/* Of a dense value that may be none. */
static float or_0(dro__typed v, size_t i)
{
    return v.p ? floats(v)[i] : 0;
}

static size_t size_of(dro__extent e)
{
    return (size_t)e.channels * (size_t)e.height * (size_t)e.width;
}

/* An element of a dense value, and its pixel. */
typedef struct place {
    size_t n, pixel;
    int row, col, channel;
} place;

static place find(size_t i, dro__extent e)
{
    place p = {.n = i / size_of(e), .pixel = i / (size_t)e.channels};
    p.channel = (int)(i % (size_t)e.channels);
    p.col = (int)(p.pixel % (size_t)e.width);
    p.row = (int)(p.pixel / (size_t)e.width % (size_t)e.height);
    return p;
}

static size_t pixel_at(size_t n, int row, int col, dro__extent e)
{
    return (n * (size_t)e.height + (size_t)row) * (size_t)e.width + (size_t)col;
}

/* Where an element is in the parameters' order, (channels, height, width). */
static size_t plain(place p, dro__extent e)
{
    return ((size_t)p.channel * (size_t)e.height + (size_t)p.row) * (size_t)e.width + (size_t)p.col;
}

/* An element of a value that may have a stride. */
static float *at(dro__typed v, size_t pixel, dro__extent e, int channel)
{
    return floats(v) + pixel * (size_t)(v.stride ? v.stride : e.channels) + channel;
}

/* ---- layers ---- */

void dro__gpu_input(cudaStream_t s, int first, int count, dro__extent e, int stored, const float *x,
                    dro__typed y)
{
    (void)s;
    dro__extent wide = {stored, e.height, e.width};
    for (size_t i = 0; i < (size_t)count * size_of(wide); i++) {
        place p = find(i, wide);
        bool there = p.channel < e.channels;
        floats(y)[(size_t)first * size_of(wide) + i] =
            there ? x[p.n * size_of(e) + plain(p, e)] : 0;
    }
}

/* Padded channels become 0. */
static void affine(const dro__layer_pass *k, const float *shift, dro__typed x, dro__typed add,
                   dro__typed y)
{
    dro__extent wide = {x.stride ? x.stride : k->in.channels, k->in.height, k->in.width};
    for (size_t i = 0; i < (size_t)k->n * size_of(wide); i++) {
        int c = find(i, wide).channel;
        float v = c < k->in.channels ? k->scale[c] * floats(x)[i] + (shift ? shift[c] : 0) : 0;
        floats(y)[i] = v + or_0(add, i);
    }
}

void dro__gpu_affine(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    affine(k, k->scale + k->in.channels, k->x, (dro__typed){NULL, 0, 0}, k->y);
}

void dro__gpu_affine_back(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    affine(k, NULL, k->dy, k->add, k->dx);
}

void dro__gpu_relu(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++)
        floats(k->y)[i] = fminf(fmaxf(floats(k->x)[i], 0), k->cap);
}

void dro__gpu_relu_back(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++) {
        bool open = floats(k->x)[i] > 0 && floats(k->x)[i] < k->cap;
        floats(k->dx)[i] = (open ? floats(k->dy)[i] : 0) + or_0(k->add, i);
    }
}

static float dropped(const dro__layer_pass *k, size_t i)
{
    dro__graph_node node = {.rate = k->rate};
    place p = find(i, k->in);
    return dro__dropout_scale(&node, k->layer, k->keys[p.n], plain(p, k->in));
}

void dro__gpu_dropout(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++)
        floats(k->y)[i] = dropped(k, i) * floats(k->x)[i];
}

void dro__gpu_dropout_back(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++)
        floats(k->dx)[i] = dropped(k, i) * floats(k->dy)[i] + or_0(k->add, i);
}

void dro__gpu_add(cudaStream_t s, size_t count, dro__typed a, dro__typed b, dro__typed y)
{
    (void)s;
    for (size_t i = 0; i < count; i++)
        floats(y)[i] = floats(a)[i] + or_0(b, i);
}

void dro__gpu_concat(cudaStream_t s, const dro__layer_pass *k, int first, bool back)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++) {
        place p = find(i, k->in);
        size_t far = p.pixel * (size_t)k->out.channels + (size_t)(first + p.channel);
        if (back)
            floats(k->dx)[i] = floats(k->dy)[far] + or_0(k->add, i);
        else
            floats(k->y)[far] = floats(k->x)[i];
    }
}

void dro__gpu_shortcut(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    int stride = k->k.stride[0];
    for (size_t i = 0; i < (size_t)k->n * size_of(k->out); i++) {
        place p = find(i, k->out);
        int c = p.channel - (k->out.channels - k->in.channels) / 2;
        size_t from = pixel_at(p.n, p.row * stride, p.col * stride, k->in) * (size_t)k->in.channels;
        floats(k->y)[i] = c >= 0 && c < k->in.channels ? floats(k->x)[from + (size_t)c] : 0;
    }
}

void dro__gpu_shortcut_back(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    int stride = k->k.stride[0];
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++) {
        place p = find(i, k->in);
        int c = p.channel + (k->out.channels - k->in.channels) / 2;
        bool there = p.row % stride == 0 && p.col % stride == 0 && p.row / stride < k->out.height &&
                     p.col / stride < k->out.width;
        size_t from =
            pixel_at(p.n, p.row / stride, p.col / stride, k->out) * (size_t)k->out.channels;
        floats(k->dx)[i] = (there ? floats(k->dy)[from + (size_t)c] : 0) + or_0(k->add, i);
    }
}

void dro__gpu_flatten(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++) {
        place p = find(i, k->in);
        floats(k->y)[p.n * size_of(k->in) + plain(p, k->in)] = floats(k->x)[i];
    }
}

void dro__gpu_flatten_back(cudaStream_t s, const dro__layer_pass *k)
{
    (void)s;
    for (size_t i = 0; i < (size_t)k->n * size_of(k->in); i++) {
        place p = find(i, k->in);
        floats(k->dx)[i] = floats(k->dy)[p.n * size_of(k->in) + plain(p, k->in)] + or_0(k->add, i);
    }
}

void dro__gpu_rows_bias(cudaStream_t s, int n, int outputs, const float *bias, float *y)
{
    (void)s;
    for (int i = 0; i < n * outputs; i++)
        y[i] = bias ? bias[i % outputs] : 0;
}

void dro__gpu_columns(cudaStream_t s, dro__parts parts, int outputs, const float *dy,
                      float *const *sums)
{
    (void)s;
    for (int part = 0; part < parts.count; part++)
        for (int j = 0; j < outputs; j++) {
            double sum = 0;
            for (int i = parts.first[part]; i < parts.first[part + 1]; i++)
                sum += (double)dy[i * outputs + j];
            sums[part][j] = (float)sum;
        }
}

/* c = <x, w> / (|x| |w|) of one example and one output, and the lengths' inverses. */
static double cosine_of(const dro__cosine *k, int n, int o, double *ix, double *iw)
{
    double p = 0, a = DRO__COSINE_EPS, b = DRO__COSINE_EPS;
    for (int i = 0; i < k->in; i++) {
        double x = (double)k->x[n * k->in + i], w = (double)k->w[o * k->in + i];
        p += x * w, a += x * x, b += w * w;
    }
    *ix = 1 / sqrt(a), *iw = 1 / sqrt(b);
    return p * *ix * *iw;
}

void dro__gpu_cosine(cudaStream_t s, const dro__cosine *k, float *y)
{
    double ix, iw;
    (void)s;
    for (int j = 0; j < k->n * k->out; j++)
        y[j] = (float)((double)k->gain * cosine_of(k, j / k->out, j % k->out, &ix, &iw));
}

void dro__gpu_cosine_data(cudaStream_t s, const dro__cosine *k, dro__typed add, float *dx)
{
    double ix, iw;
    (void)s;
    for (int j = 0; j < k->n * k->in; j++) {
        int n = j / k->in;
        double sum = 0;
        for (int o = 0; o < k->out; o++) {
            double c = cosine_of(k, n, o, &ix, &iw);
            double w = (double)k->w[o * k->in + j % k->in];
            sum += (double)k->dy[n * k->out + o] * ix * (w * iw - c * (double)k->x[j] * ix);
        }
        dx[j] = (float)((double)k->gain * sum) + or_0(add, (size_t)j);
    }
    for (int j = 0; j < k->n * k->out; j++)
        k->dy[j] = NAN; /* used up */
}

void dro__gpu_cosine_weight(cudaStream_t s, const dro__cosine *k, float *const *grads)
{
    double ix, iw;
    (void)s;
    for (int part = 0; part < k->parts.count; part++)
        for (int j = 0; j < k->out * k->in; j++) {
            int o = j / k->in;
            double sum = 0;
            for (int n = k->parts.first[part]; n < k->parts.first[part + 1]; n++) {
                double c = cosine_of(k, n, o, &ix, &iw);
                double x = (double)k->x[n * k->in + j % k->in];
                sum += (double)k->dy[n * k->out + o] * iw * (x * ix - c * (double)k->w[j] * iw);
            }
            grads[part][j] = (float)((double)k->gain * sum);
        }
}

void dro__gpu_fold(cudaStream_t s, int n, dro__extent in, dro__typed x, const int *first,
                   dro__extent out, dro__typed y)
{
    (void)s;
    dro__extent wide = {y.stride, out.height, out.width};
    for (size_t i = 0; i < (size_t)n * size_of(wide); i++) {
        place p = find(i, wide);
        int shift = p.channel / in.channels, row = 2 * (p.row - first[0]) + shift / 2,
            col = 2 * (p.col - first[1]) + shift % 2;
        bool there = shift < 4 && row >= 0 && row < in.height && col >= 0 && col < in.width;
        floats(y)[i] = there ? *at(x, pixel_at(p.n, row, col, in), in, p.channel % in.channels) : 0;
    }
}

/* ---- pools ---- */

/* The pixel that element j of an output's window is, false: outside of the image. */
static bool window_pixel(place p, dro__gpu_window k, int j, dro__extent in, size_t *pixel)
{
    int row = p.row * k.stride[0] - k.pad[0] + j / k.kernel[1],
        col = p.col * k.stride[1] - k.pad[1] + j % k.kernel[1];
    if (row < 0 || row >= in.height || col < 0 || col >= in.width)
        return false;
    *pixel = pixel_at(p.n, row, col, in);
    return true;
}

/* The first of the largest. */
void dro__gpu_max_pool(cudaStream_t s, const dro__layer_pass *l)
{
    (void)s;
    dro__extent in = l->in, out = l->out;
    dro__gpu_window k = l->k;
    dro__typed x = l->x, y = l->y;
    int n = l->n;
    for (size_t i = 0, from; i < (size_t)n * size_of(out); i++) {
        place p = find(i, out);
        float best = 0;
        int which = -1;
        for (int j = 0; j < k.kernel[0] * k.kernel[1]; j++) {
            if (!window_pixel(p, k, j, in, &from))
                continue;
            float v = *at(x, from, in, p.channel);
            if (which < 0 || v > best || isnan(v))
                best = v, which = j;
        }
        *at(y, p.pixel, out, p.channel) = best;
        if (l->chosen)
            l->chosen[i] = (uint16_t)which;
    }
}

void dro__gpu_avg_pool(cudaStream_t s, const dro__layer_pass *l)
{
    (void)s;
    dro__extent in = l->in, out = l->out;
    dro__gpu_window k = l->k;
    dro__typed x = l->x, y = l->y;
    int n = l->n;
    int area = k.kernel[0] * k.kernel[1];
    for (size_t i = 0, from; i < (size_t)n * size_of(out); i++) {
        place p = find(i, out);
        double sum = 0;
        for (int j = 0; j < area; j++)
            if (window_pixel(p, k, j, in, &from))
                sum += (double)*at(x, from, in, p.channel);
        *at(y, p.pixel, out, p.channel) = (float)(sum / area);
    }
}

void dro__gpu_pool_back(cudaStream_t s, const dro__layer_pass *l)
{
    (void)s;
    dro__extent in = l->in, out = l->out;
    dro__gpu_window k = l->k;
    dro__typed dy = l->dy, add = l->add, dx = l->dx;
    const uint16_t *chosen = l->chosen;
    int n = l->n;
    int area = k.kernel[0] * k.kernel[1];
    double *sums = calloc((size_t)n * size_of(in), sizeof *sums);
    if (!sums)
        abort();
    for (size_t i = 0, to; i < (size_t)n * size_of(out); i++) {
        place p = find(i, out);
        double slope = (double)*at(dy, p.pixel, out, p.channel);
        for (int j = 0; j < area; j++)
            if ((!chosen || chosen[i] == j) && window_pixel(p, k, j, in, &to))
                sums[to * (size_t)in.channels + (size_t)p.channel] += chosen ? slope : slope / area;
    }
    for (size_t i = 0; i < (size_t)n * size_of(in); i++) {
        place p = find(i, in);
        double more = add.p ? (double)*at(add, p.pixel, in, p.channel) : 0;
        *at(dx, p.pixel, in, p.channel) = (float)(sums[i] + more);
    }
    free(sums);
}

void dro__gpu_global_pool(cudaStream_t s, const dro__layer_pass *l)
{
    (void)s;
    dro__extent in = l->in;
    dro__typed x = l->x, y = l->y;
    int n = l->n;
    int area = in.height * in.width;
    for (size_t i = 0; i < (size_t)n * (size_t)in.channels; i++) {
        size_t first = i / (size_t)in.channels * (size_t)area;
        double sum = 0;
        for (int j = 0; j < area; j++)
            sum += (double)*at(x, first + (size_t)j, in, (int)(i % (size_t)in.channels));
        floats(y)[i] = (float)(sum / area);
    }
}

void dro__gpu_global_pool_back(cudaStream_t s, const dro__layer_pass *l)
{
    (void)s;
    dro__extent in = l->in;
    dro__typed dy = l->dy, add = l->add, dx = l->dx;
    int n = l->n;
    float area = (float)(in.height * in.width);
    for (size_t i = 0; i < (size_t)n * size_of(in); i++) {
        place p = find(i, in);
        float slope = floats(dy)[p.n * (size_t)in.channels + (size_t)p.channel] / area;
        float more = add.p ? *at(add, p.pixel, in, p.channel) : 0;
        *at(dx, p.pixel, in, p.channel) = slope + more;
    }
}

/* ---- losses ---- */

void dro__gpu_loss(cudaStream_t s, int n, dro__loss_args a, const float *logits, int add,
                   float *losses, float *slopes)
{
    (void)s;
    enum { MOST = 64 };
    dro__graph g = {.loss = (dro__net_loss)a.kind, .constants = a.constants};
    memcpy(g.loss_set, a.set, sizeof g.loss_set);
    double z[MOST], slope[MOST];
    if (a.outputs > MOST)
        abort();
    for (int i = 0; i < n; i++, logits += a.outputs, slopes += a.outputs) {
        for (int j = 0; j < a.outputs; j++)
            z[j] = (double)logits[j];
        dro_mix mix = {.label = a.mixes ? a.mixes[i].label : 0,
                       .share = a.mixes ? a.mixes[i].share : 1};
        dro_net_batch one = {.count = 1,
                             .labels = a.labels + i,
                             .targets = a.targets ? a.targets + i * a.outputs : NULL,
                             .mixes = a.mixes ? &mix : NULL};
        double loss = dro__net_loss_row(&g, (size_t)a.outputs, &one, 0, z, slope);
        losses[i] = (add ? losses[i] : 0) + (float)((double)a.weight * loss);
        for (int j = 0; j < a.outputs; j++)
            slopes[j] = (float)((double)a.weight * slope[j]);
    }
}

void dro__gpu_loss_back(cudaStream_t s, int n, int outputs, const float *coef, const float *slopes,
                        dro__typed add, dro__typed dx)
{
    (void)s;
    for (size_t i = 0; i < (size_t)n * (size_t)outputs; i++)
        floats(dx)[i] = coef[i / (size_t)outputs] * slopes[i] + or_0(add, i);
}

/* As they are: no test here crops, changes or mixes images in the memory of a GPU. */
void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k, int first, int count,
                          dro__typed to)
{
    (void)s;
    int area = k->e.height * k->e.width, channels = k->e.channels;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < area; p++)
            for (int c = 0; c < k->stored; c++) {
                const uint8_t *from =
                    k->bytes + (size_t)k->cuts[first + i].id * (size_t)(channels * area);
                float *at = (float *)to.p +
                            ((size_t)(first + i) * (size_t)area + (size_t)p) * (size_t)k->stored;
                at[c] = c < channels ? (float)from[c * area + p] * k->scale[c] + k->shift[c] : 0;
            }
}
