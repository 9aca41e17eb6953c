/* The layers besides convolutions, on a chunk of examples. Each backward writes its inputs' slopes when it is
 * the first to do so, else adds to them. */
#include "net.h"

#include <math.h>
#include <string.h>

typedef struct sides {
    const dro__value *in, *out;
    size_t in_blocks, out_blocks, in_area, out_area, B;
} sides;

static sides sides_of(const dro__piece *piece)
{
    const dro__value *in = &piece->program->values[piece->op->in[0].value];
    const dro__value *out = &piece->program->values[piece->op->end];
    size_t B = (size_t)piece->net->block;
    return (sides){.in = in,
                   .out = out,
                   .in_blocks = ((size_t)in->channels + B - 1) / B,
                   .out_blocks = ((size_t)out->channels + B - 1) / B,
                   .in_area = (size_t)in->height * (size_t)in->width,
                   .out_area = (size_t)out->height * (size_t)out->width,
                   .B = B};
}

static float *output(const dro__piece *piece)
{
    const dro__value *v = &piece->program->values[piece->op->end];
    return dro__value_at(piece->net, v->data, v->size, piece->program->room, piece->first);
}

/* The slope of input k to add to, zeroed when nothing is in it yet; NULL when it has none. */
static float *input_slope(const dro__piece *piece, int k)
{
    const dro__use *use = &piece->op->in[k];
    const dro__value *v = &piece->program->values[use->value];
    if (!v->wants)
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

static taps taps_at(const dro_window *k, const dro__value *in, size_t row, size_t col)
{
    int64_t r = (int64_t)row * k->stride[0] - k->pad[0],
            c = (int64_t)col * k->stride[1] - k->pad[1];
    int64_t r1 = r + k->kernel[0], c1 = c + k->kernel[1];
    return (taps){.r0 = (size_t)(r < 0 ? 0 : r),
                  .r1 = (size_t)(r1 > in->height ? in->height : r1),
                  .c0 = (size_t)(c < 0 ? 0 : c),
                  .c1 = (size_t)(c1 > in->width ? in->width : c1)};
}

/* One plane of B channels forward: the largest of each window, or its mean. */
static inline __attribute__((always_inline)) void
pool_plane(const dro_window *k, const sides *s, bool max, const float *x, float *y, size_t B)
{
    float share = 1.0f / (float)(k->kernel[0] * k->kernel[1]);
    for (size_t p = 0; p < s->out_area; p++, y += B) {
        taps t = taps_at(k, s->in, p / (size_t)s->out->width, p % (size_t)s->out->width);
        for (size_t l = 0; l < B; l++)
            y[l] = max ? -HUGE_VALF : 0;
        for (size_t r = t.r0; r < t.r1; r++)
            for (size_t c = t.c0; c < t.c1; c++) {
                const float *from = x + (r * (size_t)s->in->width + c) * B;
                for (size_t l = 0; l < B; l++)
                    y[l] = max ? (from[l] <= y[l] ? y[l] : from[l]) : y[l] + from[l];
            }
        for (size_t l = 0; !max && l < B; l++)
            y[l] *= share;
    }
}

/* ... and backward: to the first of the largest, or to all alike. */
static inline __attribute__((always_inline)) void
pool_plane_back(const dro_window *k, const sides *s, bool max, const float *x, const float *y,
                const float *dy, float *dx, size_t B)
{
    float share = 1.0f / (float)(k->kernel[0] * k->kernel[1]), left[16];
    for (size_t p = 0; p < s->out_area; p++, y += B, dy += B) {
        taps t = taps_at(k, s->in, p / (size_t)s->out->width, p % (size_t)s->out->width);
        for (size_t l = 0; l < B; l++)
            left[l] = max ? dy[l] : dy[l] * share;
        for (size_t r = t.r0; r < t.r1; r++)
            for (size_t c = t.c0; c < t.c1; c++) {
                size_t at = (r * (size_t)s->in->width + c) * B;
                for (size_t l = 0; l < B; l++) {
                    bool here = !max || x[at + l] == y[l];
                    dx[at + l] += here ? left[l] : 0;
                    left[l] = max && here ? 0 : left[l];
                }
            }
    }
}

DRO__KERNEL void pool_run(const dro_window *k, const sides *s, bool max, size_t planes,
                          const float *x, const float *y, float *to, const float *dy, float *dx)
{
    for (size_t p = 0; p < planes; p++) {
        size_t in = p * s->in_area * s->B, out = p * s->out_area * s->B;
        if (dx && s->B == 16)
            pool_plane_back(k, s, max, x + in, y + out, dy + out, dx + in, 16);
        else if (dx)
            pool_plane_back(k, s, max, x + in, y + out, dy + out, dx + in, 8);
        else if (s->B == 16)
            pool_plane(k, s, max, x + in, to + out, 16);
        else
            pool_plane(k, s, max, x + in, to + out, 8);
    }
}

static void pool(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    float *dx = back ? input_slope(piece, 0) : NULL;
    pool_run(&piece->op->node->window, &s, piece->op->node->op == DRO__OP_MAX_POOL,
             piece->count * s.in_blocks, dro__piece_value(piece, piece->op->in[0].value, 0),
             output(piece), output(piece), back ? dro__piece_grad(piece, piece->op->end) : NULL,
             dx);
}

/* The mean of every channel: blocked in, plain out. */
DRO__KERNEL void global_run(const sides *s, size_t count, const float *x, float *y, const float *dy,
                            float *dx)
{
    float share = 1.0f / (float)s->in_area;
    size_t channels = (size_t)s->out->channels;
    for (size_t n = 0; n < count; n++)
        for (size_t b = 0; b < s->in_blocks; b++) {
            size_t at = (n * s->in_blocks + b) * s->in_area * s->B, c0 = b * s->B;
            size_t lanes = channels - c0 < s->B ? channels - c0 : s->B;
            float sum[16] = {0}, slope[16] = {0};
            for (size_t l = 0; dx && l < lanes; l++)
                slope[l] = dy[n * channels + c0 + l] * share;
            for (size_t p = 0; p < s->in_area; p++)
                for (size_t l = 0; l < s->B; l++) {
                    size_t e = at + p * s->B + l;
                    if (dx)
                        dx[e] += slope[l];
                    else
                        sum[l] += x[e];
                }
            for (size_t l = 0; !dx && l < lanes; l++)
                y[n * channels + c0 + l] = sum[l] * share;
        }
}

static void global_pool(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    if (back)
        global_run(&s, piece->count, NULL, NULL, dro__piece_grad(piece, piece->op->end),
                   input_slope(piece, 0));
    else
        global_run(&s, piece->count, dro__piece_value(piece, piece->op->in[0].value, 0),
                   output(piece), NULL, NULL);
}

/* ---- moving channels: shortcut and concat ---- */

/* Channels first .. first + count - 1 of `to` (blocks of B at `to_area`) are those of `from` from channel
 * `source` on, at every stride-th pixel; add: `from` += `to` instead. */
static void move_channels(size_t B, size_t first, size_t source, size_t count, float *to,
                          size_t to_width, size_t to_area, float *from, size_t from_width,
                          size_t from_area, size_t stride, bool add)
{
    for (size_t c = 0; c < count;) {
        size_t a = (first + c) % B, b = (source + c) % B, run = B - (a > b ? a : b);
        run = run < count - c ? run : count - c;
        float *t = to + (first + c) / B * to_area * B + a,
              *f = from + (source + c) / B * from_area * B + b;
        for (size_t p = 0; p < to_area; p++) {
            float *x = t + p * B;
            float *y = f + (p / to_width * stride * from_width + p % to_width * stride) * B;
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
    size_t before = (size_t)(s.out->channels - s.in->channels) / 2;
    size_t stride = (size_t)piece->op->node->window.stride[0];
    float *y = back ? dro__piece_grad(piece, piece->op->end) : output(piece);
    float *x =
        back ? input_slope(piece, 0) : (float *)dro__piece_value(piece, piece->op->in[0].value, 0);
    if (!back)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    for (size_t n = 0; n < piece->count; n++)
        move_channels(s.B, before, 0, (size_t)s.in->channels, y + n * s.out->size,
                      (size_t)s.out->width, s.out_area, x + n * s.in->size, (size_t)s.in->width,
                      s.in_area, stride, back);
}

static void concat(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    float *y = back ? dro__piece_grad(piece, piece->op->end) : output(piece);
    size_t at = 0;
    if (!back && (size_t)s.out->channels % s.B)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    for (int k = 0; k < piece->op->input_count; k++) {
        const dro__value *in = &piece->program->values[piece->op->in[k].value];
        float *x = back ? input_slope(piece, k)
                        : (float *)dro__piece_value(piece, piece->op->in[k].value, 0);
        for (size_t n = 0; x && n < piece->count; n++)
            move_channels(s.B, at, 0, (size_t)in->channels, y + n * s.out->size,
                          (size_t)s.out->width, s.out_area, x + n * in->size, (size_t)in->width,
                          s.out_area, 1, back);
        if (back && x)
            dro__piece_close(piece, &piece->op->in[k], k);
        at += (size_t)in->channels;
    }
}

/* ---- linear ---- */

static void linear(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__node *node = piece->op->node;
    size_t in = s.in->size, out = s.out->size;
    const float *w = dro__node_parameters(piece->net, node, node->weight);
    const float *b = dro__node_parameters(piece->net, node, node->bias);
    if (!back) {
        float *y = output(piece);
        dro__onednn_product(false, true, piece->count, out, in,
                            dro__piece_value(piece, piece->op->in[0].value, 0), w, y, in, in, out);
        for (size_t n = 0; b && n < piece->count; n++)
            dro__floats_add(out, y + n * out, b);
        return;
    }
    if (!s.in->wants)
        return;
    bool first = piece->op->in[0].first;
    float *dx = dro__piece_grad(piece, piece->op->in[0].value),
          *to = first ? dx : piece->lane->slots[0];
    dro__onednn_product(false, false, piece->count, in, out, dro__piece_grad(piece, piece->op->end),
                        w, to, out, in, in);
    if (!first)
        dro__floats_add(piece->count * in, dx, to);
}

/* The weights' gradient needs all examples of a part: each lane takes some of its rows. */
typedef struct linear_task {
    dro__cpu_network *net;
    dro__program *program;
    const dro__run *op;
    int part;
} linear_task;

static void linear_rows(void *arg, size_t lane)
{
    const linear_task *t = arg;
    const dro__value *in = &t->program->values[t->op->in[0].value],
                     *out = &t->program->values[t->op->end];
    dro__piece piece = {.net = t->net, .program = t->program, .part = t->part, .op_index = -1};
    piece.first = t->net->first[t->part];
    size_t rows = out->size, from = rows * lane / t->op->lanes,
           to = rows * (lane + 1) / t->op->lanes;
    size_t count = t->net->parts[t->part].count;
    const float *x = dro__piece_value(&piece, t->op->in[0].value, 0);
    const float *dy = dro__piece_grad(&piece, t->op->end);
    float *grad = t->net->grads[t->part];
    if (from == to)
        return;
    int before = dro__onednn_begin();
    dro__onednn_product(true, false, to - from, in->size, count, dy + from, x,
                        grad + t->op->node->weight + (int64_t)(from * in->size), rows, in->size,
                        in->size);
    dro__onednn_end(before);
    for (size_t o = from; t->op->node->bias >= 0 && o < to; o++) {
        double sum = 0;
        for (size_t n = 0; n < count; n++)
            sum += (double)dy[n * rows + o];
        grad[t->op->node->bias + (int64_t)o] = (float)sum;
    }
}

void dro__linear_finish(dro__cpu_network *net, dro__program *program, const dro__run *op)
{
    if (op->node->frozen)
        return;
    for (int part = 0; part < net->part_count; part++) {
        linear_task task = {net, program, op, part};
        dro__pool_run(net->ctx->pool, op->lanes, linear_rows, &task);
    }
}

/* ---- element by element ---- */

static void relu(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__use *use = &piece->op->in[0];
    size_t n = piece->count * s.out->size;
    if (!back)
        dro__floats_relu(n, dro__piece_value(piece, use->value, 0), output(piece));
    else if (s.in->wants)
        dro__floats_relu_slope(n, output(piece), dro__piece_grad(piece, piece->op->end),
                               !use->first, dro__piece_grad(piece, use->value));
}

static void add(const dro__piece *piece, bool back)
{
    size_t n = piece->count * sides_of(piece).out->size;
    float *y = back ? dro__piece_grad(piece, piece->op->end) : output(piece);
    for (int k = 0; k < 2; k++) {
        if (back) {
            float *dx = input_slope(piece, k);
            if (!dx)
                continue;
            dro__floats_add(n, dx, y);
            dro__piece_close(piece, &piece->op->in[k], k);
        } else if (k == 0) {
            memcpy(y, dro__piece_value(piece, piece->op->in[0].value, 0), n * sizeof *y);
        } else {
            dro__floats_add(n, y, dro__piece_value(piece, piece->op->in[1].value, 0));
        }
    }
}

/* y = factor * x + offset, plain: affine and dropout. */
static void scale(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__node *node = piece->op->node;
    const dro_net_batch *part = &piece->net->parts[piece->part];
    size_t begin = piece->first - piece->net->first[piece->part];
    const float *x = back ? dro__piece_grad(piece, piece->op->end)
                          : dro__piece_value(piece, piece->op->in[0].value, 0);
    float *y = back ? input_slope(piece, 0) : output(piece);
    bool dropout = node->op == DRO__OP_DROPOUT && piece->program->training;
    for (size_t n = 0; y && n < piece->count; n++) {
        uint64_t key = part->keys ? part->keys[begin + n] : begin + n;
        for (size_t e = 0; e < s.out->size; e++) {
            size_t j = n * s.out->size + e, c = e / s.out_area;
            float factor = 1, offset = 0;
            if (dropout)
                factor = dro__dropout_scale(node, piece->op->index, key, e);
            else if (node->op == DRO__OP_AFFINE)
                factor = node->scale[c], offset = node->shift[c];
            y[j] = back ? y[j] + factor * x[j] : factor * x[j] + offset;
        }
    }
}

/* Between plain and blocked, also flatten: the order of channel, row, column. */
static void convert(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const float *x = back ? NULL : dro__piece_value(piece, piece->op->in[0].value, 0);
    float *dx = back ? input_slope(piece, 0) : NULL;
    float *y = back ? dro__piece_grad(piece, piece->op->end) : output(piece);
    if (back && !dx)
        return;
    if (!back && s.out->blocked)
        memset(y, 0, piece->count * s.out->size * sizeof *y);
    size_t channels = (size_t)s.in->channels, area = s.in_area, B = s.B;
    for (size_t n = 0; n < piece->count; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < area; p++) {
                size_t plain = c * area + p, blocked = (c / B * area + p) * B + c % B;
                size_t from = n * s.in->size + (s.in->blocked ? blocked : plain);
                size_t to = n * s.out->size + (s.out->blocked ? blocked : plain);
                if (back)
                    dx[from] += y[to];
                else
                    y[to] = x[from];
            }
}

/* A norm that does not follow a convolution: gathers moments; backward gives the slope of its input. */
static void lone_norm(const dro__piece *piece, bool back)
{
    sides s = sides_of(piece);
    const dro__tail *tail = &piece->program->tails[s.out->tail];
    const dro__use *use = &piece->op->in[0];
    if (!back && tail->deferred) {
        dro__piece_moments(piece, dro__piece_value(piece, use->value, 0));
    } else if (!back) {
        dro__chunk chunk = dro__chunk_of(piece->net, s.out, piece->count);
        size_t at = (size_t)piece->part * tail->channels;
        const float *residual =
            tail->residual < 0 ? NULL : dro__piece_value(piece, tail->residual, 1);
        dro__chunk_apply(&chunk, dro__piece_value(piece, use->value, 0), tail->mean + at,
                         tail->scale + at, tail->shift + at, residual, tail->relu, output(piece));
    } else if (s.in->wants) {
        const float *dz = dro__piece_slope(piece, piece->op->end, 2);
        dro__floats_add(piece->count * s.in->size, input_slope(piece, 0), dz);
    }
}

/* ---- the two entrances ---- */

static void run(const dro__piece *piece, bool back)
{
    if (piece->op->kind == DRO__RUN_CONVERT) {
        convert(piece, back);
        return;
    }
    switch (piece->op->node->op) {
    case DRO__OP_MAX_POOL:
    case DRO__OP_AVG_POOL:
        pool(piece, back);
        return;
    case DRO__OP_GLOBAL_POOL:
        global_pool(piece, back);
        return;
    case DRO__OP_SHORTCUT:
        shortcut(piece, back);
        return;
    case DRO__OP_CONCAT:
        concat(piece, back);
        return;
    case DRO__OP_LINEAR:
        linear(piece, back);
        return;
    case DRO__OP_RELU:
        relu(piece, back);
        return;
    case DRO__OP_ADD:
        add(piece, back);
        return;
    case DRO__OP_FLATTEN:
        convert(piece, back);
        return;
    case DRO__OP_NORM:
        lone_norm(piece, back);
        return;
    default:
        scale(piece, back);
        return;
    }
}

void dro__layer_forward(const dro__piece *piece)
{
    run(piece, false);
}

void dro__layer_backward(const dro__piece *piece)
{
    run(piece, true);
    bool several = piece->op->node &&
                   (piece->op->node->op == DRO__OP_CONCAT || piece->op->node->op == DRO__OP_ADD);
    if (!several && piece->program->values[piece->op->in[0].value].wants)
        dro__piece_close(piece, &piece->op->in[0], 0);
}
