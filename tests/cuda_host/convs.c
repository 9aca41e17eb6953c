/* Stand-ins for convolutions, cuDNN's and our own (conv3.h), and for what packs their weights.
 * Packed weights are (out, kernel, in), also those of our own; both passes read those, so there is
 * no second copy for the data gradient. */
#include "stand_ins.h"

#include <stdio.h>
#include <stdlib.h>

static double *doubles(size_t count)
{
    double *made = calloc(count ? count : 1, sizeof *made);
    if (!made)
        abort();
    return made;
}

static int taps_of(const dro__dnn_shape *s)
{
    return s->kernel[0] * s->kernel[1];
}

static size_t x_size(const dro__dnn_shape *s)
{
    return (size_t)s->count * (size_t)s->height * (size_t)s->width * (size_t)s->in;
}

static size_t w_size(const dro__dnn_shape *s)
{
    return (size_t)s->out * (size_t)taps_of(s) * (size_t)s->in;
}

/* Where the channels are that tap k of output pixel i reads; false: outside of the image. */
static bool reads(const dro__dnn_shape *s, size_t i, int k, size_t *at)
{
    int area = s->out_height * s->out_width, pixel = (int)(i % (size_t)area);
    int row = pixel / s->out_width * s->stride[0] - s->pad[0] + k / s->kernel[1];
    int col = pixel % s->out_width * s->stride[1] - s->pad[1] + k % s->kernel[1];
    size_t n = i / (size_t)area;
    if (row < 0 || row >= s->height || col < 0 || col >= s->width)
        return false;
    *at = ((n * (size_t)s->height + (size_t)row) * (size_t)s->width + (size_t)col) * (size_t)s->in;
    return true;
}

static size_t out_pixels(const dro__dnn_shape *s)
{
    return (size_t)s->count * (size_t)s->out_height * (size_t)s->out_width;
}

/* Where the weights of an output channel and a tap are. */
static size_t weights_at(const dro__dnn_shape *s, int o, int k)
{
    return (size_t)(o * taps_of(s) + k) * (size_t)s->in;
}

static void forward(const dro__dnn_shape *s, const float *x, const float *w, float *z)
{
    double *row = doubles((size_t)s->out);
    for (size_t i = 0; i < out_pixels(s); i++) {
        for (int o = 0; o < s->out; o++)
            row[o] = 0;
        for (int k = 0; k < taps_of(s); k++) {
            size_t at;
            if (!reads(s, i, k, &at))
                continue;
            for (int o = 0; o < s->out; o++) {
                const float *weights = w + weights_at(s, o, k);
                for (int c = 0; c < s->in; c++)
                    row[o] += (double)x[at + (size_t)c] * (double)weights[c];
            }
        }
        for (int o = 0; o < s->out; o++)
            z[i * (size_t)s->out + (size_t)o] = (float)row[o];
    }
    free(row);
}

/* Adds up both gradients, or one of them (the other NULL): dx needs w, dw needs x. */
static void gradients(const dro__dnn_shape *s, const float *dz, const float *w, double *dx,
                      const float *x, double *dw)
{
    for (size_t i = 0; i < out_pixels(s); i++)
        for (int k = 0; k < taps_of(s); k++) {
            size_t at;
            if (!reads(s, i, k, &at))
                continue;
            for (int o = 0; o < s->out; o++) {
                double slope = (double)dz[i * (size_t)s->out + (size_t)o];
                size_t weights = weights_at(s, o, k);
                for (size_t c = 0; dx && c < (size_t)s->in; c++)
                    dx[at + c] += slope * (double)w[weights + c];
                for (size_t c = 0; dw && c < (size_t)s->in; c++)
                    dw[weights + c] += slope * (double)x[at + c];
            }
        }
}

void stand_ins_conv(const dro__dnn_shape *s, float *x, float *w, float *z)
{
    if (s->kind == DRO__DNN_FORWARD) {
        forward(s, x, w, z);
        return;
    }
    bool data = s->kind == DRO__DNN_DATA;
    size_t count = data ? x_size(s) : w_size(s);
    double *made = doubles(count);
    float *to = data ? x : w;
    gradients(s, z, w, data ? made : NULL, x, data ? NULL : made);
    for (size_t i = 0; i < count; i++)
        to[i] = (float)(made[i] + (s->add ? (double)to[i] : 0));
    free(made);
}

/* ---- our own ---- */

int dro__gpu_conv3_fits(int bf16, int in, int out, int stride)
{
    (void)bf16;
    return (stride == 1 && in == out && (in == 16 || in == 32 || in == 64)) ||
           (stride == 2 && out == 2 * in && (in == 16 || in == 32));
}

int dro__gpu_conv3_bands_fit(int in, int out, int stride, int height, int width)
{
    (void)in, (void)out, (void)stride, (void)height, (void)width;
    return 0;
}

/* The examples of one part. */
static dro__dnn_shape shape_of(const dro__conv3 *k, int part)
{
    return (dro__dnn_shape){.count = k->parts.first[part + 1] - k->parts.first[part],
                            .in = k->in,
                            .height = k->height,
                            .width = k->width,
                            .out = k->out,
                            .out_height = k->out_height,
                            .out_width = k->out_width,
                            .kernel = {3, 3},
                            .stride = {k->stride, k->stride},
                            .pad = {1, 1}};
}

/* Elements before those of a part, of so many by example. */
static size_t before(const dro__conv3 *k, int part, int height, int width, int channels)
{
    return (size_t)k->parts.first[part] * (size_t)height * (size_t)width * (size_t)channels;
}

static size_t x_before(const dro__conv3 *k, int part)
{
    return before(k, part, k->height, k->width, k->in);
}

static size_t z_before(const dro__conv3 *k, int part)
{
    return before(k, part, k->out_height, k->out_width, k->out);
}

/* The tail of z at a channel of a part. */
static float tail_of(dro__numbers n, int part, int c, float z)
{
    int at = part * n.channels + c;
    return (z - n.mean[at]) * n.scale[at] + n.shift[at];
}

/* A part's input, computed where it is lazy; free() it. */
static float *input_of(const dro__conv3 *k, int part)
{
    dro__dnn_shape s = shape_of(k, part);
    float *x = malloc((x_size(&s) + 1) * sizeof *x);
    const float *from = (const float *)k->x + x_before(k, part);
    if (!x)
        abort();
    for (size_t i = 0; i < x_size(&s); i++) {
        x[i] = from[i];
        if (!k->lazy)
            continue;
        x[i] = tail_of(k->x_numbers, part, (int)(i % (size_t)k->in), from[i]);
        if (k->x_residual)
            x[i] += ((const float *)k->x_residual)[x_before(k, part) + i];
        x[i] = k->x_relu && x[i] <= 0 ? 0 : x[i];
    }
    return x;
}

static void add_moments(const dro__conv3 *k, int part)
{
    dro__dnn_shape s = shape_of(k, part);
    const float *z = (const float *)k->z + z_before(k, part);
    double *sums = k->sums + 2 * part * k->out;
    for (size_t i = 0; i < out_pixels(&s); i++)
        for (int c = 0; c < k->out; c++) {
            double x = (double)z[i * (size_t)k->out + (size_t)c];
            sums[c] += x;
            sums[k->out + c] += x * x;
        }
}

void dro__gpu_conv3_forward(cudaStream_t s, const dro__conv3 *k)
{
    if (k->lazy && k->x_finish)
        dro__gpu_finish_forward(s, k->parts, k->height * k->width, k->x_numbers, k->x_source);
    for (int part = 0; part < k->parts.count; part++) {
        dro__dnn_shape shape = shape_of(k, part);
        float *x = input_of(k, part), *fill = k->x_fill;
        for (size_t i = 0; fill && i < x_size(&shape); i++)
            fill[x_before(k, part) + i] = x[i];
        forward(&shape, x, k->weights, (float *)k->z + z_before(k, part));
        if (k->sums)
            add_moments(k, part);
        free(x);
    }
}

/* A part's dz, from numbers that are there; free() it. */
static float *slope_of(const dro__conv3 *k, int part)
{
    dro__numbers n = k->numbers;
    dro__dnn_shape s = shape_of(k, part);
    size_t count = out_pixels(&s) * (size_t)k->out;
    float *dz = malloc((count + 1) * sizeof *dz);
    const float *g = (const float *)k->g + z_before(k, part),
                *z = (const float *)k->z + z_before(k, part);
    if (!dz)
        abort();
    for (size_t i = 0; i < count; i++) {
        int at = part * k->out + (int)(i % (size_t)k->out);
        dz[i] = k->norm ? n.p[at] * g[i] + n.q[at] * (z[i] - n.mean[at]) + n.r[at] : g[i];
    }
    return dz;
}

/* What weight gradients leave to be summed, as if by one block: (turns, parts, out, kernel, in). */
enum { LEFT = 9 * 64 * 64 };

size_t dro__gpu_conv3_partial(void)
{
    return DRO__CONV3_TURNS * DRO__PARTS * LEFT;
}

static float *left_at(const dro__conv3 *k, int part)
{
    return k->partial + (k->turn * DRO__PARTS + part) * LEFT;
}

/* One part of dx: what was there, the mask, and the sums for the norm before it. */
static void write_slope(const dro__conv3 *k, int part, const float *x, const double *made)
{
    dro__dnn_shape s = shape_of(k, part);
    size_t first = x_before(k, part);
    double *sums = k->x_numbers.back + 2 * part * k->in;
    for (size_t i = 0; i < x_size(&s); i++) {
        int c = (int)(i % (size_t)k->in);
        double add = k->add ? (double)((const float *)k->add)[first + i] : 0;
        float g = (float)(made[i] + add);
        if (k->close) {
            float z = ((const float *)k->x_z)[first + i];
            g = k->x_relu && x[i] <= 0 ? 0 : g;
            sums[c] += (double)g;
            sums[k->in + c] += (double)g * (double)(z - k->x_numbers.mean[part * k->in + c]);
        }
        ((float *)k->dx)[first + i] = g;
    }
}

void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *k)
{
    if (k->norm && k->finish) /* and kept */
        dro__gpu_finish_backward(s, k->parts, k->out_height * k->out_width, 1, k->numbers,
                                 k->norm_grads);
    for (int part = 0; part < k->parts.count; part++) {
        dro__dnn_shape shape = shape_of(k, part);
        float *x = input_of(k, part), *dz = slope_of(k, part);
        double *dx = k->dx ? doubles(x_size(&shape)) : NULL;
        double *dw = k->partial ? doubles(w_size(&shape)) : NULL;
        gradients(&shape, dz, k->weights, dx, x, dw);
        for (size_t i = 0; dw && i < w_size(&shape); i++) /* to be summed */
            left_at(k, part)[i] = (float)dw[i];
        if (dx)
            write_slope(k, part, x, dx);
        free(x), free(dz), free(dx), free(dw);
    }
}

static void sum_up(const void *what)
{
    const dro__conv3 *k = what;
    for (int part = 0; part < k->parts.count; part++) {
        dro__dnn_shape s = shape_of(k, part);
        for (int o = 0; o < k->out; o++)
            for (int i = 0; i < 9 * k->real_in; i++) /* channel, tap */
                k->grads[part][o * 9 * k->real_in + i] =
                    left_at(k, part)[weights_at(&s, o, i % 9) + (size_t)(i / 9)];
    }
}

void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *k)
{
    stand_ins_queue(s, sum_up, k, sizeof *k);
}

/* ---- depthwise ---- */

/* Of so many examples. */
static dro__dnn_shape deep_shape(const dro__depthwise *d, int count)
{
    const dro__gpu_window *k = &d->k;
    return (dro__dnn_shape){.count = count,
                            .in = d->in.channels,
                            .height = d->in.height,
                            .width = d->in.width,
                            .out = d->out.channels,
                            .out_height = d->out.height,
                            .out_width = d->out.width,
                            .kernel = {k->kernel[0], k->kernel[1]},
                            .stride = {k->stride[0], k->stride[1]},
                            .pad = {k->pad[0], k->pad[1]}};
}

/* Of z, x and w one is NULL: its sums, from the other two. */
static void deep_sums(const dro__dnn_shape *s, const float *z, const float *x, const float *w,
                      double *sums)
{
    size_t channels = (size_t)s->in, taps = (size_t)taps_of(s);
    for (size_t i = 0, at; i < out_pixels(s); i++)
        for (size_t k = 0; k < taps; k++) {
            if (!reads(s, i, (int)k, &at))
                continue;
            for (size_t c = 0; c < channels; c++)
                if (!z)
                    sums[i * channels + c] += (double)w[c * taps + k] * (double)x[at + c];
                else if (!x)
                    sums[at + c] += (double)w[c * taps + k] * (double)z[i * channels + c];
                else
                    sums[c * taps + k] += (double)z[i * channels + c] * (double)x[at + c];
        }
}

void dro__gpu_depthwise(cudaStream_t s, const dro__depthwise *d, dro__typed x, dro__typed z)
{
    (void)s;
    dro__dnn_shape shape = deep_shape(d, d->parts.first[d->parts.count]);
    size_t count = out_pixels(&shape) * (size_t)shape.out;
    double *sums = doubles(count);
    deep_sums(&shape, NULL, x.p, d->w, sums);
    for (size_t i = 0; i < count; i++)
        ((float *)z.p)[i] = (float)sums[i];
    free(sums);
}

void dro__gpu_depthwise_data(cudaStream_t s, const dro__depthwise *d, dro__typed dz, dro__typed add,
                             dro__typed dx)
{
    (void)s;
    dro__dnn_shape shape = deep_shape(d, d->parts.first[d->parts.count]);
    double *sums = doubles(x_size(&shape));
    deep_sums(&shape, dz.p, NULL, d->w, sums);
    for (size_t i = 0; i < x_size(&shape); i++)
        ((float *)dx.p)[i] = (float)(sums[i] + (add.p ? (double)((float *)add.p)[i] : 0));
    free(sums);
}

size_t dro__gpu_depthwise_partial(const dro__depthwise *d)
{
    (void)d;
    return 1;
}

typedef struct deep_work {
    dro__depthwise d;
    const float *x, *dz;
    float *partial, *grads[DRO__PARTS];
} deep_work;

static void deep_weights(const void *what)
{
    const deep_work *k = what;
    *k->partial = 0;
    for (int part = 0; part < k->d.parts.count; part++) {
        int first = k->d.parts.first[part];
        dro__dnn_shape before = deep_shape(&k->d, first),
                       s = deep_shape(&k->d, k->d.parts.first[part + 1] - first);
        size_t count = (size_t)s.in * (size_t)taps_of(&s);
        double *sums = doubles(count);
        deep_sums(&s, k->dz + out_pixels(&before) * (size_t)s.out, k->x + x_size(&before), NULL,
                  sums);
        for (size_t i = 0; i < count; i++)
            k->grads[part][i] = (float)sums[i];
        free(sums);
    }
}

void dro__gpu_depthwise_weight(cudaStream_t s, const dro__depthwise *d, dro__typed x, dro__typed dz,
                               float *partial, float *const *grads)
{
    deep_work k = {*d, x.p, dz.p, partial, {grads[0], grads[1]}};
    stand_ins_queue(s, deep_weights, &k, sizeof k);
}

/* ---- weights ---- */

/* Where the parameter of tap k and folded channel c is among (in, kernel), -1: nowhere. */
static int unfolded(const dro__packing *t, int c, int k)
{
    int shift = c / t->in, row = k / t->folded[1] * 2 + shift / 2 - t->lead[0],
        col = k % t->folded[1] * 2 + shift % 2 - t->lead[1];
    bool there = shift < 4 && row >= 0 && row < t->kernel[0] && col >= 0 && col < t->kernel[1];
    return there ? (c % t->in * t->kernel[0] + row) * t->kernel[1] + col : -1;
}

/* Where packed weight (o, k, c) is among the parameters, (out, in, kernel); -1: it is 0. */
static int parameter_of(const dro__packing *t, int o, int k, int c)
{
    if (t->kind != DRO__PACK_FOLDED)
        return c < t->in ? (o * t->in + c) * t->taps + k : -1;
    int at = unfolded(t, c, k);
    return at < 0 ? -1 : o * t->in * t->kernel[0] * t->kernel[1] + at;
}

static int packed_at(const dro__packing *t, int o, int k, int c)
{
    return (o * t->taps + k) * t->stored_in + c;
}

void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest, int bands)
{
    (void)s, (void)largest, (void)bands;
    for (const dro__packing *t = table; t < table + count; t++)
        for (int o = 0; o < t->out; o++)
            for (int k = 0; k < t->taps; k++)
                for (int c = 0; c < t->stored_in; c++) {
                    int from = parameter_of(t, o, k, c);
                    ((float *)t->to.p)[packed_at(t, o, k, c)] = from < 0 ? 0 : t->from[from];
                }
}

typedef struct unpack_work {
    int count;
    const dro__packing *table;
} unpack_work;

static void unpack(const void *what)
{
    const unpack_work *w = what;
    for (const dro__packing *t = w->table; t < w->table + w->count; t++)
        for (int o = 0; o < t->out; o++)
            for (int k = 0; k < t->taps; k++)
                for (int c = 0; c < t->stored_in; c++) {
                    int to = parameter_of(t, o, k, c);
                    if (to >= 0)
                        ((float *)t->from)[to] = ((float *)t->to.p)[packed_at(t, o, k, c)];
                }
}

void dro__gpu_unpack(cudaStream_t s, int count, const dro__packing *table)
{
    unpack_work w = {count, table};
    stand_ins_queue(s, unpack, &w, sizeof w);
}
