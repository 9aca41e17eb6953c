/* The layers besides convolutions, on a chunk of examples. Each backward writes its inputs' slopes
 * when it is the first to do so, else adds to them. */
#include "net.h"

#include <math.h>
#include <string.h>

typedef struct sides {
    const dro__cpu_value *in, *out;
    size_t in_blocks, in_area, out_area, B;
} sides;

static sides sides_of(const dro__piece *piece)
{
    const dro__cpu_value *in = &piece->program->values[piece->op->base.in[0].value];
    const dro__cpu_value *out = &piece->program->values[piece->op->base.end];
    size_t B = (size_t)piece->net->block;
    return (sides){.in = in,
                   .out = out,
                   .in_blocks = ((size_t)in->base.channels + B - 1) / B,
                   .in_area = (size_t)in->base.height * (size_t)in->base.width,
                   .out_area = (size_t)out->base.height * (size_t)out->base.width,
                   .B = B};
}

static float *output(const dro__piece *piece)
{
    const dro__cpu_value *v = &piece->program->values[piece->op->base.end];
    return dro__value_at(piece->net, piece->program, v->data, v->size, piece->first);
}

/* The slope of input k to add to, zeroed when nothing is in it yet; NULL when it has none. */
static float *input_slope(const dro__piece *piece, int k)
{
    const dro__use *use = &piece->op->base.in[k];
    const dro__cpu_value *v = &piece->program->values[use->value];
    if (!v->base.wants)
        return NULL;
    float *dx = dro__piece_grad(piece, use->value);
    if (use->first)
        memset(dx, 0, piece->count * v->size * sizeof *dx);
    return dx;
}

/* ---- pooling, blocked ---- */

typedef struct taps { /* of one output pixel: rows and columns of the input inside the image */
    size_t r0, r1, c0, c1;
} taps;

static taps taps_at(const dro_window *k, const dro__cpu_value *in, size_t row, size_t col)
{
    int64_t r = (int64_t)row * k->stride[0] - k->pad[0],
            c = (int64_t)col * k->stride[1] - k->pad[1];
    int64_t r1 = r + k->kernel[0], c1 = c + k->kernel[1];
    return (taps){.r0 = (size_t)(r < 0 ? 0 : r),
                  .r1 = (size_t)(r1 > in->base.height ? in->base.height : r1),
                  .c0 = (size_t)(c < 0 ? 0 : c),
                  .c1 = (size_t)(c1 > in->base.width ? in->base.width : c1)};
}

/* One plane of B channels forward: the largest of each window, or its mean. */
static inline __attribute__((always_inline)) void
pool_plane(const dro_window *k, const sides *s, bool max, const float *x, float *y, size_t B)
{
    float share = 1.0f / (float)(k->kernel[0] * k->kernel[1]);
    for (size_t p = 0; p < s->out_area; p++, y += B) {
        taps t = taps_at(k, s->in, p / (size_t)s->out->base.width, p % (size_t)s->out->base.width);
        for (size_t l = 0; l < B; l++)
            y[l] = max ? -HUGE_VALF : 0;
        for (size_t r = t.r0; r < t.r1; r++)
            for (size_t c = t.c0; c < t.c1; c++) {
                const float *from = x + (r * (size_t)s->in->base.width + c) * B;
                for (size_t l = 0; l < B; l++)
                    y[l] = max ? (from[l] <= y[l] ? y[l] : from[l]) : y[l] + from[l];
            }
        for (size_t l = 0; !max && l < B; l++)
            y[l] *= share;
    }
}

/* What a pooling layer reads and writes: dx NULL forward. */
typedef struct pooling {
    const float *x, *dy;
    float *y, *dx;
} pooling;

/* ... and backward: to the first of the largest, or to all alike. */
static inline __attribute__((always_inline)) void
pool_plane_back(const dro_window *k, const sides *s, bool max, const pooling *d, size_t B)
{
    const float *x = d->x, *y = d->y, *dy = d->dy;
    float *dx = d->dx;
    float share = 1.0f / (float)(k->kernel[0] * k->kernel[1]), left[16];
    for (size_t p = 0; p < s->out_area; p++, y += B, dy += B) {
        taps t = taps_at(k, s->in, p / (size_t)s->out->base.width, p % (size_t)s->out->base.width);
        for (size_t l = 0; l < B; l++)
            left[l] = max ? dy[l] : dy[l] * share;
        for (size_t r = t.r0; r < t.r1; r++)
            for (size_t c = t.c0; c < t.c1; c++) {
                size_t at = (r * (size_t)s->in->base.width + c) * B;
                for (size_t l = 0; l < B; l++) {
                    bool here = !max || x[at + l] == y[l];
                    dx[at + l] += here ? left[l] : 0;
                    left[l] = max && here ? 0 : left[l];
                }
            }
    }
}

DRO__KERNEL void pool_run_kernel(const dro_window *k, const sides *s, bool max, size_t planes,
                                 const pooling *d)
{
    for (size_t p = 0; p < planes; p++) {
        size_t in = p * s->in_area * s->B, out = p * s->out_area * s->B;
        pooling plane = {d->x + in, d->dx ? d->dy + out : NULL, d->y + out,
                         d->dx ? d->dx + in : NULL};
        if (d->dx && s->B == 16)
            pool_plane_back(k, s, max, &plane, 16);
        else if (d->dx)
            pool_plane_back(k, s, max, &plane, 8);
        else if (s->B == 16)
            pool_plane(k, s, max, plane.x, plane.y, 16);
        else
            pool_plane(k, s, max, plane.x, plane.y, 8);
    }
}

DRO__EACH_ISA(void, pool_run,
              (const dro_window *k, const sides *s, bool max, size_t planes, const pooling *d),
              (k, s, max, planes, d))

static void pool(const dro__piece *piece, bool max, bool back)
{
    sides s = sides_of(piece);
    float *dx = back ? input_slope(piece, 0) : NULL;
    if (back && !dx)
        return;
    pooling d = {.x = dro__piece_value(piece, piece->op->base.in[0].value, 0),
                 .dy = back ? dro__piece_grad(piece, piece->op->base.end) : NULL,
                 .y = output(piece),
                 .dx = dx};
    pool_run(&piece->op->base.node->window, &s, max, piece->count * s.in_blocks, &d);
}

static void max_pool(const dro__piece *piece, bool back)
{
    pool(piece, true, back);
}

static void avg_pool(const dro__piece *piece, bool back)
{
    pool(piece, false, back);
}

/* The mean of every channel: blocked in, plain out. */
DRO__KERNEL void global_mean_kernel(const sides *s, size_t count, const float *x, float *y)
{
    float share = 1.0f / (float)s->in_area;
    size_t channels = (size_t)s->out->base.channels;
    for (size_t n = 0; n < count; n++)
        for (size_t b = 0; b < s->in_blocks; b++, x += s->in_area * s->B) {
            size_t c0 = b * s->B, lanes = channels - c0 < s->B ? channels - c0 : s->B;
            float sum[16] = {0};
            for (size_t p = 0; p < s->in_area; p++)
                for (size_t l = 0; l < s->B; l++)
                    sum[l] += x[p * s->B + l];
            for (size_t l = 0; l < lanes; l++)
                y[n * channels + c0 + l] = sum[l] * share;
        }
}

/* ... and backward */
DRO__KERNEL void global_slope_kernel(const sides *s, size_t count, const float *dy, float *dx)
{
    float share = 1.0f / (float)s->in_area;
    size_t channels = (size_t)s->out->base.channels;
    for (size_t n = 0; n < count; n++)
        for (size_t b = 0; b < s->in_blocks; b++, dx += s->in_area * s->B) {
            size_t c0 = b * s->B, lanes = channels - c0 < s->B ? channels - c0 : s->B;
            float slope[16] = {0};
            for (size_t l = 0; l < lanes; l++)
                slope[l] = dy[n * channels + c0 + l] * share;
            for (size_t p = 0; p < s->in_area; p++)
                for (size_t l = 0; l < s->B; l++)
                    dx[p * s->B + l] += slope[l];
        }
}

DRO__EACH_ISA(void, global_mean, (const sides *s, size_t count, const float *x, float *y),
              (s, count, x, y))
DRO__EACH_ISA(void, global_slope, (const sides *s, size_t count, const float *dy, float *dx),
              (s, count, dy, dx))

static void global_pool(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    float *dx = back ? input_slope(piece, 0) : NULL;
    if (dx)
        global_slope(&s, piece->count, dro__piece_grad(piece, piece->op->base.end), dx);
    if (!back)
        global_mean(&s, piece->count, dro__piece_value(piece, piece->op->base.in[0].value, 0),
                    output(piece));
}

/* ---- moving channels: shortcut and concat ---- */

/* Blocked channels, from `channel` on. */
typedef struct channel_run {
    float *at;
    size_t channel, width, area;
} channel_run;

/* count channels of `to` are those of `from` at every stride-th pixel; add: `from` += `to`
 * instead. */
static void move_channels(size_t B, size_t count, const channel_run *to, const channel_run *from,
                          size_t stride, bool add)
{
    for (size_t c = 0; c < count;) {
        size_t a = (to->channel + c) % B, b = (from->channel + c) % B, run = B - (a > b ? a : b);
        run = run < count - c ? run : count - c;
        float *t = to->at + (to->channel + c) / B * to->area * B + a,
              *f = from->at + (from->channel + c) / B * from->area * B + b;
        for (size_t p = 0; p < to->area; p++) {
            size_t row = p / to->width, column = p % to->width;
            float *x = t + p * B, *y = f + (row * from->width + column) * stride * B;
            for (size_t l = 0; l < run; l++)
                if (add)
                    y[l] += x[l];
                else
                    x[l] = y[l];
        }
        c += run;
    }
}

static void shortcut(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    size_t before = (size_t)(s.out->base.channels - s.in->base.channels) / 2;
    size_t stride = (size_t)piece->op->base.node->window.stride[0];
    float *y = back ? dro__piece_grad(piece, piece->op->base.end) : output(piece);
    float *x = back ? input_slope(piece, 0)
                    : (float *)dro__piece_value(piece, piece->op->base.in[0].value, 0);
    if (!back)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    channel_run to = {y, before, (size_t)s.out->base.width, s.out_area},
                from = {x, 0, (size_t)s.in->base.width, s.in_area};
    for (size_t n = 0; n < piece->count; n++, to.at += s.out->size, from.at += s.in->size)
        move_channels(s.B, (size_t)s.in->base.channels, &to, &from, stride, back);
}

static void concat(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    float *y = back ? dro__piece_grad(piece, piece->op->base.end) : output(piece);
    size_t at = 0;
    if (!back && (size_t)s.out->base.channels % s.B)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    for (int k = 0; k < piece->op->base.input_count; k++) {
        const dro__cpu_value *in = &piece->program->values[piece->op->base.in[k].value];
        float *x = back ? input_slope(piece, k)
                        : (float *)dro__piece_value(piece, piece->op->base.in[k].value, 0);
        channel_run to = {y, at, (size_t)s.out->base.width, s.out_area},
                    from = {x, 0, (size_t)in->base.width, s.out_area};
        for (size_t n = 0; x && n < piece->count; n++, to.at += s.out->size, from.at += in->size)
            move_channels(s.B, (size_t)in->base.channels, &to, &from, 1, back);
        at += (size_t)in->base.channels;
    }
}

/* ---- linear ---- */

enum { FEW_OUTPUTS = 16 };

/* oneDNN compiles its products when the first one is asked for: that takes longer than many a run
 * on a table. For few outputs our own product is as fast. */
static void product(dro__cpu_network *net, size_t outputs, const size_t sizes[3],
                    const dro__matrix ab[2], float *c)
{
    dro__product *run = outputs <= FEW_OUTPUTS ? dro__simd_best()->product : dro__onednn_product;
    if (!run(sizes, &ab[0], &ab[1], c, sizes[1]))
        atomic_store(&net->failed, true);
}

static void linear(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__graph_node *node = piece->op->base.node;
    size_t in = s.in->size, out = s.out->size;
    const float *w = dro__node_parameters(piece->net, node, node->weight);
    const float *b = node->has_bias ? dro__node_parameters(piece->net, node, node->bias) : NULL;
    if (!back) {
        float *y = output(piece);
        const float *x = dro__piece_value(piece, piece->op->base.in[0].value, 0);
        product(piece->net, out, (size_t[]){piece->count, out, in},
                (dro__matrix[]){{x, in, false}, {w, in, true}}, y);
        for (size_t n = 0; b && n < piece->count; n++)
            dro__floats_add(out, y + n * out, b);
        return;
    }
    if (!s.in->base.wants)
        return;
    bool first = piece->op->base.in[0].first;
    float *dx = dro__piece_grad(piece, piece->op->base.in[0].value),
          *to = first ? dx : piece->lane->slots[0];
    const float *dy = dro__piece_grad(piece, piece->op->base.end);
    product(piece->net, out, (size_t[]){piece->count, in, out},
            (dro__matrix[]){{dy, out, false}, {w, in, false}}, to);
    if (!first)
        dro__floats_add(piece->count * in, dx, to);
}

/* The weights' gradient needs all examples of a part: each lane takes some of its rows. */
typedef struct linear_task {
    dro__cpu_network *net;
    dro__cpu_program *program;
    const dro__cpu_op *op;
    int part;
} linear_task;

static void linear_rows(void *arg, size_t lane)
{
    const linear_task *t = arg;
    const dro__cpu_value *in = &t->program->values[t->op->base.in[0].value],
                         *out = &t->program->values[t->op->base.end];
    dro__piece piece = {.net = t->net, .program = t->program, .part = t->part, .op_index = -1};
    piece.first = t->net->first[t->part];
    size_t rows = out->size, from = rows * lane / t->op->lanes,
           to = rows * (lane + 1) / t->op->lanes;
    size_t count = t->net->parts[t->part].count;
    const float *x = dro__piece_value(&piece, t->op->base.in[0].value, 0);
    const float *dy = dro__piece_grad(&piece, t->op->base.end);
    float *grad = t->net->grads[t->part];
    if (from == to)
        return;
    product(t->net, rows, (size_t[]){to - from, in->size, count},
            (dro__matrix[]){{dy + from, rows, true}, {x, in->size, false}},
            grad + t->op->base.node->weight + (int64_t)(from * in->size));
    for (size_t o = from; t->op->base.node->bias >= 0 && o < to; o++) {
        double sum = 0;
        for (size_t n = 0; n < count; n++)
            sum += (double)dy[n * rows + o];
        grad[t->op->base.node->bias + (int64_t)o] = (float)sum;
    }
}

static void linear_finish(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op)
{
    if (op->base.node->frozen)
        return;
    linear_task task = {net, program, op, net->part};
    dro__pool_run(net->ctx->pool, op->lanes, linear_rows, &task);
}

/* ---- cosine: y = gain <x, w> / (|x| |w|) ---- */

typedef struct dots {
    float product, x, w; /* <x, w>, 1/|x|, 1/|w| */
} dots;

static dots dots_of(size_t n, const float *x, const float *w)
{
    float p = 0, a = 0, b = 0;
    for (size_t i = 0; i < n; i++) {
        p += x[i] * w[i];
        a += x[i] * x[i];
        b += w[i] * w[i];
    }
    return (dots){p, 1 / sqrtf(a + DRO__COSINE_EPS), 1 / sqrtf(b + DRO__COSINE_EPS)};
}

static void cosine(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__graph_node *node = piece->op->base.node;
    size_t in = s.in->size, out = s.out->size;
    const float *weights = dro__node_parameters(piece->net, node, node->weight);
    const float *x = dro__piece_value(piece, piece->op->base.in[0].value, 0);
    const float *dy = back ? dro__piece_grad(piece, piece->op->base.end) : NULL;
    float *y = back ? NULL : output(piece), *dx = back ? input_slope(piece, 0) : NULL;
    for (size_t k = 0; (!back || dx) && k < piece->count * out; k++) {
        const float *row = x + k / out * in, *w = weights + k % out * in;
        dots d = dots_of(in, row, w);
        float c = d.product * d.x * d.w;
        if (!back) {
            y[k] = node->gain * c;
            continue;
        }
        float *to = dx + k / out * in, of_w = node->gain * dy[k] * d.x * d.w,
              of_x = node->gain * dy[k] * c * d.x * d.x;
        for (size_t i = 0; i < in; i++)
            to[i] += of_w * w[i] - of_x * row[i];
    }
}

static void cosine_rows(void *arg, size_t lane)
{
    const linear_task *t = arg;
    const dro__graph_node *node = t->op->base.node;
    size_t in = t->program->values[t->op->base.in[0].value].size,
           out = t->program->values[t->op->base.end].size, count = t->net->parts[t->part].count;
    dro__piece piece = {.net = t->net, .program = t->program, .part = t->part, .op_index = -1};
    piece.first = t->net->first[t->part];
    const float *x = dro__piece_value(&piece, t->op->base.in[0].value, 0);
    const float *dy = dro__piece_grad(&piece, t->op->base.end);
    for (size_t o = out * lane / t->op->lanes; o < out * (lane + 1) / t->op->lanes; o++) {
        const float *w = dro__node_parameters(t->net, node, node->weight) + o * in;
        float *grad = t->net->grads[t->part] + node->weight + (int64_t)(o * in);
        memset(grad, 0, in * sizeof *grad);
        for (size_t n = 0; n < count; n++) {
            dots d = dots_of(in, x + n * in, w);
            float slope = node->gain * dy[n * out + o] * d.w, of_x = slope * d.x,
                  of_w = slope * d.product * d.x * d.w * d.w;
            for (size_t i = 0; i < in; i++)
                grad[i] += of_x * x[n * in + i] - of_w * w[i];
        }
    }
}

static void cosine_finish(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op)
{
    linear_task task = {net, program, op, net->part};
    if (!op->base.node->frozen)
        dro__pool_run(net->ctx->pool, op->lanes, cosine_rows, &task);
}

/* ---- element by element ---- */

static void relu(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__use *use = &piece->op->base.in[0];
    size_t n = piece->count * s.out->size;
    float cap = piece->op->base.node->cap;
    if (!back)
        dro__floats_relu(n, dro__piece_value(piece, use->value, 0), cap, output(piece));
    else if (s.in->base.wants)
        dro__floats_relu_slope(n, output(piece), dro__piece_grad(piece, piece->op->base.end), cap,
                               !use->first, dro__piece_grad(piece, use->value));
}

static void add(const dro__piece *piece, bool back)
{
    size_t n = piece->count * sides_of(piece).out->size;
    float *y = back ? dro__piece_grad(piece, piece->op->base.end) : output(piece);
    for (int k = 0; k < 2; k++) {
        if (back) {
            float *dx = input_slope(piece, k);
            if (!dx)
                continue;
            dro__floats_add(n, dx, y);
        } else if (k == 0) {
            memcpy(y, dro__piece_value(piece, piece->op->base.in[0].value, 0), n * sizeof *y);
        } else {
            dro__floats_add(n, y, dro__piece_value(piece, piece->op->base.in[1].value, 0));
        }
    }
}

/* Plain values: what is read and written, y NULL when there is nothing to do. */
typedef struct rows {
    const float *x;
    float *y;
    size_t count, size, area;
} rows;

static rows rows_of(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    return (rows){.x = back ? dro__piece_grad(piece, piece->op->base.end)
                            : dro__piece_value(piece, piece->op->base.in[0].value, 0),
                  .y = back ? input_slope(piece, 0) : output(piece),
                  .count = piece->count,
                  .size = s.out->size,
                  .area = s.out_area};
}

static void affine(const dro__piece *piece, bool back)
{
    rows r = rows_of(piece, back);
    const dro__graph_node *node = piece->op->base.node;
    for (size_t j = 0; r.y && j < r.count * r.size; j++) {
        size_t c = j % r.size / r.area;
        r.y[j] = node->scale[c] * r.x[j] + (back ? r.y[j] : node->shift[c]);
    }
}

static void dropout(const dro__piece *piece, bool back)
{
    rows r = rows_of(piece, back);
    const dro_net_batch *part = &piece->net->parts[piece->part];
    size_t begin = piece->first - piece->net->first[piece->part];
    for (size_t n = 0; r.y && n < r.count; n++) {
        uint64_t key = part->keys ? part->keys[begin + n] : begin + n;
        for (size_t e = 0; e < r.size; e++) {
            size_t j = n * r.size + e;
            float factor = 1;
            if (piece->program->base.training)
                factor = dro__dropout_scale(piece->op->base.node, piece->op->base.index, key, e);
            r.y[j] = back ? r.y[j] + factor * r.x[j] : factor * r.x[j];
        }
    }
}

/* Between plain and blocked, also flatten: the order of channel, row, column. */
static void convert(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const float *x = back ? NULL : dro__piece_value(piece, piece->op->base.in[0].value, 0);
    float *dx = back ? input_slope(piece, 0) : NULL;
    float *y = back ? dro__piece_grad(piece, piece->op->base.end) : output(piece);
    if (back && !dx)
        return;
    if (!back && s.out->base.form)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    size_t channels = (size_t)s.in->base.channels, area = s.in_area, B = s.B;
    for (size_t n = 0; n < piece->count; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < area; p++) {
                size_t plain = c * area + p, blocked = (c / B * area + p) * B + c % B;
                size_t from = n * s.in->size + (s.in->base.form ? blocked : plain);
                size_t to = n * s.out->size + (s.out->base.form ? blocked : plain);
                if (back)
                    dx[from] += y[to];
                else
                    y[to] = x[from];
            }
}

/* A norm that does not follow a convolution: gathers moments; backward gives the slope of its
 * input. */
static void lone_norm(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__cpu_tail *tail = &piece->program->tails[s.out->base.tail];
    const dro__use *use = &piece->op->base.in[0];
    if (!back && tail->base.deferred) {
        dro__piece_moments(piece, dro__piece_value(piece, use->value, 0));
    } else if (!back) {
        dro__piece_apply(piece, s.out, dro__piece_value(piece, use->value, 0), 1, output(piece));
    } else if (s.in->base.wants) {
        const float *dz = dro__piece_slope(piece, piece->op->base.end, 2);
        dro__floats_add(piece->count * s.in->size, input_slope(piece, 0), dz);
    }
}

/* ---- the table ---- */

const dro__cpu_layer dro__cpu_layers[DRO__OP_ALL] = {
    [DRO__OP_INPUT] = {.traits = {.out = DRO__PLAIN}},
    [DRO__OP_AFFINE] = {{DRO__PLAIN, DRO__PLAIN}, .run = affine},
    [DRO__OP_CONV] = {{DRO__BLOCKED, DRO__BLOCKED, .few = 4, .tail = true},
                      .run = dro__conv_run,
                      .make = dro__conv_make,
                      .finish = dro__conv_finish},
    [DRO__OP_DEPTHWISE] = {{DRO__BLOCKED, DRO__BLOCKED, .tail = true},
                           .run = dro__conv_run,
                           .make = dro__conv_make,
                           .finish = dro__conv_finish},
    [DRO__OP_NORM] = {{DRO__BLOCKED, DRO__BLOCKED, .tail = true}, .run = lone_norm},
    [DRO__OP_RELU] = {{DRO__FORM_ANY, DRO__FORM_COMMON}, .run = relu},
    [DRO__OP_MAX_POOL] = {{DRO__BLOCKED, DRO__BLOCKED}, .run = max_pool},
    [DRO__OP_AVG_POOL] = {{DRO__BLOCKED, DRO__BLOCKED}, .run = avg_pool},
    [DRO__OP_GLOBAL_POOL] = {{DRO__BLOCKED, DRO__PLAIN}, .run = global_pool},
    [DRO__OP_ADD] = {{DRO__FORM_COMMON, DRO__FORM_COMMON}, .run = add},
    [DRO__OP_CONCAT] = {{DRO__BLOCKED, DRO__BLOCKED}, .run = concat},
    [DRO__OP_FLATTEN] = {{DRO__FORM_ANY, DRO__PLAIN}, .run = convert},
    [DRO__OP_LINEAR] = {{DRO__PLAIN, DRO__PLAIN}, .run = linear, .finish = linear_finish},
    [DRO__OP_COSINE] = {{DRO__PLAIN, DRO__PLAIN}, .run = cosine, .finish = cosine_finish},
    [DRO__OP_DROPOUT] = {{DRO__PLAIN, DRO__PLAIN}, .run = dropout},
    [DRO__OP_SHORTCUT] = {{DRO__BLOCKED, DRO__BLOCKED}, .run = shortcut},
    [DRO__OP_CONVERT] = {.run = convert},
};
