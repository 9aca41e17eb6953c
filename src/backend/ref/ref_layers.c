/* The layers of the reference network: forward and backward of each, one loop nest after
 * another. */
#include "ref_net.h"

#include <math.h>

typedef dro__real real;

/* A call's view of one layer. */
typedef struct view {
    dro__ref_state *s;
    const dro__graph_node *node, *in; /* in: the first input's node */
    int32_t index;
    int part;
    size_t count, size, in_size;
    real *y, *dy;       /* the layer's values and slopes of these examples */
    const real *x;      /* the first input's */
    real *dx;           /* NULL when nothing below is trained */
    const float *w, *b; /* parameters, NULL when it has none */
    double *dw, *db;    /* their gradients, NULL when frozen or forward */
    size_t first;
} view;

static view look(dro__ref_state *s, int32_t index, int part, size_t first, size_t count)
{
    const dro__graph_node *node = &s->graph->nodes[index];
    const float *base = node->frozen ? s->memory.frozen : s->w;
    int32_t from = node->input_count ? node->inputs[0] : index;
    view v = {.s = s, .node = node, .in = &s->graph->nodes[from], .index = index, .part = part};
    v.count = count;
    v.first = first;
    v.size = dro__node_size(node);
    v.in_size = dro__node_size(v.in);
    v.y = s->value[index] + first * v.size;
    v.dy = s->slope[index] + first * v.size;
    v.x = s->value[from] + first * v.in_size;
    v.dx = v.in->grad ? s->slope[from] + first * v.in_size : NULL;
    v.w = node->weight >= 0 ? base + node->weight : NULL;
    v.b = node->bias >= 0 ? base + node->bias : NULL;
    return v;
}

/* ---- convolution ---- */

/* The part of 0..out-1 whose source place  o * stride + offset  lies in 0..in-1. */
static void span(int32_t in, int32_t out, int32_t stride, int32_t offset, int32_t *low,
                 int32_t *high)
{
    int32_t a = 0, b = out;
    while (a < out && a * stride + offset < 0)
        a++;
    while (b > a && (b - 1) * stride + offset >= in)
        b--;
    *low = a;
    *high = b;
}

/* What to do for one tap of the kernel: y += w x, dx += w dy, or the return value sum x dy. */
typedef enum tap_kind { TAP_FORWARD, TAP_DATA, TAP_WEIGHT } tap_kind;

/* The planes that a tap reads and writes; each kind needs two of them. */
typedef struct planes {
    const real *x;
    real *dx;
    double *y;
    const real *dy;
} planes;

static double tap(const view *v, tap_kind kind, double w, int32_t ky, int32_t kx, planes p)
{
    const dro_window *k = &v->node->window;
    int32_t top = ky - k->pad[0], left = kx - k->pad[1], r0, r1, c0, c1;
    int32_t in_width = v->in->width, width = v->node->width;
    double sum = 0;
    span(v->in->height, v->node->height, k->stride[0], top, &r0, &r1);
    span(in_width, width, k->stride[1], left, &c0, &c1);
    int32_t step = k->stride[1];
    for (int32_t r = r0; r < r1; r++) {
        ptrdiff_t from = (ptrdiff_t)(r * k->stride[0] + top) * in_width + left;
        ptrdiff_t to = (ptrdiff_t)r * width;
        if (kind == TAP_FORWARD)
            for (int32_t c = c0; c < c1; c++)
                p.y[to + c] += w * (double)p.x[from + c * step];
        else if (kind == TAP_DATA)
            for (int32_t c = c0; c < c1; c++)
                p.dx[from + c * step] += (real)(w * (double)p.dy[to + c]);
        else
            for (int32_t c = c0; c < c1; c++)
                sum += (double)p.x[from + c * step] * (double)p.dy[to + c];
    }
    return sum;
}

/* How many channels an output channel reads, and the first of them. */
static int32_t channels_read(const view *v)
{
    return v->in->channels / v->node->groups;
}

static size_t first_read(const view *v, int32_t o)
{
    int32_t group = o / (v->node->channels / v->node->groups);
    return (size_t)group * (size_t)channels_read(v);
}

/* Weights of one output channel. */
static size_t kernel_size(const view *v)
{
    const dro_window *k = &v->node->window;
    return (size_t)channels_read(v) * (size_t)k->kernel[0] * (size_t)k->kernel[1];
}

static void conv_forward(const view *v)
{
    const dro_window *k = &v->node->window;
    size_t area = (size_t)v->node->height * (size_t)v->node->width;
    size_t in_area = (size_t)v->in->height * (size_t)v->in->width;
    for (size_t n = 0; n < v->count; n++)
        for (int32_t o = 0; o < v->node->channels; o++) {
            const float *w = v->w + (size_t)o * kernel_size(v);
            const real *x = v->x + n * v->in_size + first_read(v, o) * in_area;
            for (size_t p = 0; p < area; p++)
                v->s->plane[p] = v->b ? (double)v->b[o] : 0;
            for (int32_t i = 0; i < channels_read(v); i++)
                for (int32_t ky = 0; ky < k->kernel[0]; ky++)
                    for (int32_t kx = 0; kx < k->kernel[1]; kx++)
                        tap(v, TAP_FORWARD, (double)*w++, ky, kx,
                            (planes){.x = x + (size_t)i * in_area, .y = v->s->plane});
            for (size_t p = 0; p < area; p++)
                v->y[n * v->size + (size_t)o * area + p] = (real)v->s->plane[p];
        }
}

static void conv_backward(const view *v)
{
    const dro_window *k = &v->node->window;
    size_t area = (size_t)v->node->height * (size_t)v->node->width;
    size_t in_area = (size_t)v->in->height * (size_t)v->in->width;
    for (size_t n = 0; n < v->count; n++)
        for (int32_t o = 0; o < v->node->channels; o++) {
            size_t at = (size_t)o * kernel_size(v);
            const real *dy = v->dy + n * v->size + (size_t)o * area;
            for (size_t p = 0; v->db && p < area; p++)
                v->db[o] += (double)dy[p];
            for (int32_t i = 0; i < channels_read(v); i++)
                for (int32_t ky = 0; ky < k->kernel[0]; ky++)
                    for (int32_t kx = 0; kx < k->kernel[1]; kx++, at++) {
                        size_t from = n * v->in_size + (first_read(v, o) + (size_t)i) * in_area;
                        if (v->dw)
                            v->dw[at] +=
                                tap(v, TAP_WEIGHT, 0, ky, kx, (planes){.x = v->x + from, .dy = dy});
                        if (v->dx)
                            tap(v, TAP_DATA, (double)v->w[at], ky, kx,
                                (planes){.dx = v->dx + from, .dy = dy});
                    }
        }
}

static void conv(const view *v, bool backward)
{
    if (backward)
        conv_backward(v);
    else
        conv_forward(v);
}

/* ---- linear ---- */

static void linear_forward(const view *v)
{
    for (size_t n = 0; n < v->count; n++)
        for (size_t o = 0; o < v->size; o++) {
            double sum = v->b ? (double)v->b[o] : 0;
            for (size_t i = 0; i < v->in_size; i++)
                sum += (double)v->w[o * v->in_size + i] * (double)v->x[n * v->in_size + i];
            v->y[n * v->size + o] = (real)sum;
        }
}

static void linear_backward(const view *v)
{
    for (size_t n = 0; n < v->count; n++)
        for (size_t o = 0; o < v->size; o++) {
            double dy = (double)v->dy[n * v->size + o];
            if (v->db)
                v->db[o] += dy;
            for (size_t i = 0; i < v->in_size; i++) {
                if (v->dw)
                    v->dw[o * v->in_size + i] += dy * (double)v->x[n * v->in_size + i];
                if (v->dx)
                    v->dx[n * v->in_size + i] += (real)(dy * (double)v->w[o * v->in_size + i]);
            }
        }
}

static void linear(const view *v, bool backward)
{
    if (backward)
        linear_backward(v);
    else
        linear_forward(v);
}

/* ---- cosine: y = gain <x, w> / (|x| |w|) ---- */

static void cosine(const view *v, bool backward)
{
    double gain = (double)v->node->gain;
    for (size_t n = 0; n < v->count; n++)
        for (size_t o = 0; o < v->size; o++) {
            const real *x = v->x + n * v->in_size;
            const float *w = v->w + o * v->in_size;
            double product = 0, xx = DRO__COSINE_EPS, ww = DRO__COSINE_EPS;
            for (size_t i = 0; i < v->in_size; i++) {
                product += (double)w[i] * (double)x[i];
                xx += (double)x[i] * (double)x[i];
                ww += (double)w[i] * (double)w[i];
            }
            double ix = 1 / sqrt(xx), iw = 1 / sqrt(ww), c = product * ix * iw;
            if (!backward)
                v->y[n * v->size + o] = (real)(gain * c);
            for (size_t i = 0; backward && i < v->in_size; i++) {
                double dy = gain * (double)v->dy[n * v->size + o];
                double ux = (double)x[i] * ix, uw = (double)w[i] * iw;
                if (v->dw)
                    v->dw[o * v->in_size + i] += dy * iw * (ux - c * uw);
                if (v->dx)
                    v->dx[n * v->in_size + i] += (real)(dy * ix * (uw - c * ux));
            }
        }
}

/* ---- batch norm: y = gamma (x - mean) / sqrt(var + eps) + beta ---- */

/* The moments of this batch: n, means, sums of squared deviations. */
static void norm_sums(const view *v, double *moments)
{
    size_t area = (size_t)v->node->height * (size_t)v->node->width,
           channels = (size_t)v->node->channels;
    double m = moments[0] = (double)(v->count * area);
    for (size_t c = 0; c < channels; c++) {
        double sum = 0, square = 0;
        for (size_t n = 0; n < v->count; n++)
            for (size_t p = 0; p < area; p++)
                sum += (double)v->x[n * v->size + c * area + p];
        for (size_t n = 0; n < v->count; n++)
            for (size_t p = 0; p < area; p++) {
                double off = (double)v->x[n * v->size + c * area + p] - sum / m;
                square += off * off;
            }
        moments[1 + c] = sum / m;
        moments[1 + channels + c] = square;
    }
}

static void norm_moments(const view *v, double *mean, double *var)
{
    size_t channels = (size_t)v->node->channels;
    double *moments = v->s->norm_sums;
    norm_sums(v, moments);
    if (dro__net_synced(&v->s->memory))
        v->s->memory.sync->merge(v->s->memory.sync->user, moments, 1 + 2 * channels,
                                 dro__moments_merge);
    double m = moments[0];
    for (size_t c = 0; c < channels; c++) {
        double square = moments[1 + channels + c];
        mean[c] = moments[1 + c];
        var[c] = square / m;
        if (v->part == 0) { /* the running variance is the unbiased one */
            float *run = v->s->taken + v->node->running;
            const float *old = v->s->memory.statistics + v->node->running;
            double share = 1.0 / DRO__NORM_MOMENTUM_INVERSE;
            double unbiased = m > 1 ? square / (m - 1) : var[c];
            run[c] = (float)((1 - share) * (double)old[c] + share * mean[c]);
            run[channels + c] = (float)((1 - share) * (double)old[channels + c] + share * unbiased);
        }
    }
}

static bool uses_batch(const view *v)
{
    return v->s->training && !v->node->frozen;
}

static void norm_forward(const view *v)
{
    size_t area = (size_t)v->node->height * (size_t)v->node->width,
           channels = (size_t)v->node->channels;
    double *mean = v->s->moments[v->index] + 2 * channels * (size_t)v->part, *var = mean + channels;
    const float *run = v->s->memory.statistics + v->node->running;
    if (uses_batch(v))
        norm_moments(v, mean, var);
    for (size_t c = 0; c < channels; c++) {
        if (!uses_batch(v))
            mean[c] = (double)run[c], var[c] = (double)run[channels + c];
        double scale = (double)v->w[c] / sqrt(var[c] + (double)v->node->eps);
        for (size_t n = 0; n < v->count; n++)
            for (size_t p = 0; p < area; p++) {
                size_t at = n * v->size + c * area + p;
                v->y[at] = (real)(((double)v->x[at] - mean[c]) * scale + (double)v->b[c]);
            }
    }
}

static void norm_backward(const view *v)
{
    size_t area = (size_t)v->node->height * (size_t)v->node->width,
           channels = (size_t)v->node->channels;
    const double *mean = v->s->moments[v->index] + 2 * channels * (size_t)v->part;
    const double *var = mean + channels;
    double *sums = v->s->norm_sums, *dots = sums + channels, *m = dots + channels;
    *m = (double)(v->count * area);
    for (size_t c = 0; c < channels; c++) {
        double inverse = 1 / sqrt(var[c] + (double)v->node->eps);
        sums[c] = dots[c] = 0;
        for (size_t n = 0; n < v->count; n++)
            for (size_t p = 0; p < area; p++) {
                size_t at = n * v->size + c * area + p;
                sums[c] += (double)v->dy[at];
                dots[c] += (double)v->dy[at] * ((double)v->x[at] - mean[c]) * inverse;
            }
        if (v->dw)
            v->dw[c] += dots[c], v->db[c] += sums[c];
        if (!uses_batch(v))
            sums[c] = dots[c] = 0; /* the statistics are constants */
    }
    if (uses_batch(v) && dro__net_synced(&v->s->memory))
        v->s->memory.sync->merge(v->s->memory.sync->user, sums, 1 + 2 * channels, dro__sums_merge);
    for (size_t c = 0; v->dx && c < channels; c++) {
        double inverse = 1 / sqrt(var[c] + (double)v->node->eps);
        for (size_t n = 0; n < v->count; n++)
            for (size_t p = 0; p < area; p++) {
                size_t at = n * v->size + c * area + p;
                double hat = ((double)v->x[at] - mean[c]) * inverse;
                double slope = (double)v->dy[at] - sums[c] / *m - hat * dots[c] / *m;
                v->dx[at] += (real)((double)v->w[c] * inverse * slope);
            }
    }
}

static void norm(const view *v, bool backward)
{
    if (backward)
        norm_backward(v);
    else
        norm_forward(v);
}

/* ---- pooling ---- */

/* One output of a pooling: forward gives the value; backward (dx not NULL) spreads dy. */
static double pool_one(const view *v, bool max, const real *x, real *dx, size_t p, double dy)
{
    const dro_window *k = &v->node->window;
    int32_t r = (int32_t)p / v->node->width, c = (int32_t)p % v->node->width;
    double best = -HUGE_VAL, sum = 0, share = 1.0 / ((double)k->kernel[0] * (double)k->kernel[1]);
    int64_t best_at = -1;
    for (int32_t ky = 0; ky < k->kernel[0]; ky++)
        for (int32_t kx = 0; kx < k->kernel[1]; kx++) {
            int32_t row = r * k->stride[0] + ky - k->pad[0],
                    col = c * k->stride[1] + kx - k->pad[1];
            if (row < 0 || row >= v->in->height || col < 0 || col >= v->in->width)
                continue;
            int64_t at = (int64_t)row * v->in->width + col;
            double value = (double)x[at];
            sum += value;
            if (value > best || best_at < 0 || isnan(value))
                best = value, best_at = at;
            if (dx && !max)
                dx[at] += (real)(dy * share);
        }
    if (dx && max && best_at >= 0)
        dx[best_at] += (real)dy;
    return max ? best : sum * share;
}

static void pool(const view *v, bool max, bool backward)
{
    size_t area = (size_t)v->node->height * (size_t)v->node->width;
    size_t in_area = (size_t)v->in->height * (size_t)v->in->width;
    for (size_t plane = 0; plane < v->count * (size_t)v->node->channels; plane++)
        for (size_t p = 0; p < area; p++) {
            real *dx = backward ? v->dx + plane * in_area : NULL;
            double dy = backward ? (double)v->dy[plane * area + p] : 0;
            double y = pool_one(v, max, v->x + plane * in_area, dx, p, dy);
            if (!backward)
                v->y[plane * area + p] = (real)y;
        }
}

static void max_pool(const view *v, bool backward)
{
    pool(v, true, backward);
}

static void avg_pool(const view *v, bool backward)
{
    pool(v, false, backward);
}

static void global_pool(const view *v, bool backward)
{
    size_t area = (size_t)v->in->height * (size_t)v->in->width;
    for (size_t plane = 0; plane < v->count * (size_t)v->node->channels; plane++) {
        double sum = 0;
        for (size_t p = 0; p < area; p++) {
            if (backward)
                v->dx[plane * area + p] += (real)((double)v->dy[plane] / (double)area);
            sum += (double)v->x[plane * area + p];
        }
        if (!backward)
            v->y[plane] = (real)(sum / (double)area);
    }
}

/* ---- the rest, element by element ---- */

static void concat(const view *v, bool backward)
{
    size_t at = 0;
    for (int k = 0; k < v->node->input_count; k++) {
        int32_t from = v->node->inputs[k];
        size_t size = dro__node_size(&v->s->graph->nodes[from]);
        bool grad = v->s->graph->nodes[from].grad;
        for (size_t n = 0; n < v->count; n++)
            for (size_t j = 0; j < size; j++) {
                size_t source = (v->first + n) * size + j, place = n * v->size + at + j;
                if (!backward)
                    v->y[place] = v->s->value[from][source];
                else if (grad)
                    v->s->slope[from][source] += v->dy[place];
            }
        at += size;
    }
}

static void add(const view *v, bool backward)
{
    for (int k = 0; k < 2; k++) {
        int32_t from = v->node->inputs[k];
        size_t base = v->first * v->size;
        bool grad = v->s->graph->nodes[from].grad;
        for (size_t j = 0; j < v->count * v->size; j++)
            if (!backward)
                v->y[j] = (k ? v->y[j] : 0) + v->s->value[from][base + j];
            else if (grad)
                v->s->slope[from][base + j] += v->dy[j];
    }
}

static void shortcut(const view *v, bool backward)
{
    int32_t before = (v->node->channels - v->in->channels) / 2, stride = v->node->window.stride[0];
    size_t area = (size_t)v->node->height * (size_t)v->node->width;
    size_t in_area = (size_t)v->in->height * (size_t)v->in->width;
    for (size_t j = 0; j < v->count * v->size; j++) {
        size_t n = j / v->size, p = j % area;
        int32_t c = (int32_t)(j % v->size / area) - before;
        size_t r = p / (size_t)v->node->width, q = p % (size_t)v->node->width;
        size_t from = n * v->in_size + (size_t)(c > 0 ? c : 0) * in_area +
                      r * (size_t)stride * (size_t)v->in->width + q * (size_t)stride;
        bool inside = c >= 0 && c < v->in->channels;
        if (!backward)
            v->y[j] = inside ? v->x[from] : 0;
        else if (inside)
            v->dx[from] += v->dy[j];
    }
}

static void affine(const view *v, bool backward)
{
    size_t area = (size_t)v->node->height * (size_t)v->node->width;
    for (size_t j = 0; j < v->count * v->size; j++) {
        size_t c = j % v->size / area;
        double factor = (double)v->node->scale[c], offset = (double)v->node->shift[c];
        if (backward)
            v->dx[j] += (real)(factor * (double)v->dy[j]);
        else
            v->y[j] = (real)(factor * (double)v->x[j] + offset);
    }
}

static void dropout(const view *v, bool backward)
{
    const uint64_t *keys = v->s->parts[v->part].keys;
    for (size_t j = 0; j < v->count * v->size; j++) {
        size_t n = j / v->size;
        double factor = 1;
        if (v->s->training)
            factor = (double)dro__dropout_scale(v->node, v->index, keys ? keys[n] : n, j % v->size);
        if (backward)
            v->dx[j] += (real)(factor * (double)v->dy[j]);
        else
            v->y[j] = (real)(factor * (double)v->x[j]);
    }
}

/* From 0 to cap; NaN stays. */
static void relu(const view *v, bool backward)
{
    for (size_t j = 0; j < v->count * v->size; j++) {
        double x = (double)v->x[j], cap = (double)v->node->cap;
        bool closed = x <= 0 || x >= cap;
        if (backward)
            v->dx[j] += closed ? 0 : v->dy[j];
        else
            v->y[j] = closed ? (real)(x <= 0 ? 0 : cap) : v->x[j];
    }
}

static void flatten(const view *v, bool backward)
{
    for (size_t j = 0; j < v->count * v->size; j++)
        if (backward)
            v->dx[j] += v->dy[j];
        else
            v->y[j] = v->x[j];
}

/* ---- the two entrances ---- */

/* The first five may be called with dx NULL: they have parameters of their own. */
static void (*const layers[DRO__OP_COUNT])(const view *v, bool backward) = {
    [DRO__OP_CONV] = conv,         [DRO__OP_DEPTHWISE] = conv,
    [DRO__OP_NORM] = norm,         [DRO__OP_LINEAR] = linear,
    [DRO__OP_COSINE] = cosine,     [DRO__OP_MAX_POOL] = max_pool,
    [DRO__OP_AVG_POOL] = avg_pool, [DRO__OP_GLOBAL_POOL] = global_pool,
    [DRO__OP_ADD] = add,           [DRO__OP_CONCAT] = concat,
    [DRO__OP_SHORTCUT] = shortcut, [DRO__OP_AFFINE] = affine,
    [DRO__OP_RELU] = relu,         [DRO__OP_DROPOUT] = dropout,
    [DRO__OP_FLATTEN] = flatten,
};

void dro__ref_layer_forward(dro__ref_state *s, int32_t index, int part, size_t first, size_t count)
{
    view v = look(s, index, part, first, count);
    layers[v.node->op](&v, false);
}

void dro__ref_layer_backward(dro__ref_state *s, int32_t index, int part, size_t first, size_t count,
                             double *grad)
{
    view v = look(s, index, part, first, count);
    if (!v.node->frozen) {
        v.dw = v.w ? grad + v.node->weight : NULL;
        v.db = v.b ? grad + v.node->bias : NULL;
    }
    layers[v.node->op](&v, true);
}
