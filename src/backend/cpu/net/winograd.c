/* 3x3 convolution by Winograd's method: blocking, and the entry points.
 *
 * A method (winograd_tiles.c, winograd2_tiles.c) makes the convolution of a tile, for
 * each of its values f, a matrix product
 *
 *     m[f][tile][co] = sum over ci of  v[f][tile][ci] * u[f][ci][co]
 *
 * We take a block of tiles at a time (of several images, if images are small),
 * transform its inputs into v, multiply, and transform m into outputs.  v and m
 * of a block stay in the L2 cache, one f of them in L1; of the large arrays x, y
 * and u only u is read again for every block.
 */
#include "winograd_parts.h"

#include <string.h>

/* Scratch holds a row of zero pixels, v and m, with channels apart by `chan`. */
static size_t chan_of(const winograd_method *m)
{
    return (size_t)m->values * STEP;
}

static const winograd_method *method_of(const dro__winograd_shape *s)
{
    return s->stride == 1 ? &PART(stride1) : &PART(stride2);
}

static size_t scratch_of(const dro__winograd_shape *s)
{
    return (size_t)(s->ci + s->co) / LANES * chan_of(method_of(s)) + (size_t)s->w * LANES;
}

/* One tensor of a call: n images (channels/LANES, h, w, LANES), seen as rows x cols
 * tiles each, numbered row by row, image after image, and its transform. */
typedef struct {
    int channels, h, w, rows, cols, tiles;
    float *data;
    winograd_transform *transform;
    const float *zeros;
    float *values;
    size_t chan;
} side;

/* Applies the transform to tiles first .. first + count - 1, strip by strip. */
static void transform(const side *s, int first, int count)
{
    size_t plane = (size_t)s->h * s->w * LANES;
    for (int t = 0, each; t < count; t += each) {
        int row = (first + t) / s->cols, tx = (first + t) % s->cols;
        each = s->cols - tx < count - t ? s->cols - tx : count - t;
        winograd_strip strip = {s->h, s->w, row % s->rows, tx, each, s->zeros};
        float *p = s->data + (size_t)(row / s->rows) * (s->channels / LANES) * plane;
        float *v = s->values + t * LANES;
        for (int c = 0; c < s->channels; c += LANES, p += plane, v += s->chan)
            for (int part = 0; part < LANES; part += WIDTH)
                s->transform(&strip, p + part, v + part);
    }
}

/* Tensors are used roughly in the order of memory.  Finds the cache lines of
 * tiles first .. first + count - 1, as far as there are so many. */
typedef struct {
    const float *from;
    int lines;
} range;

static range lines_of(const side *s, int first, int count)
{
    int last = first + count < s->tiles ? first + count : s->tiles;
    size_t image = (size_t)s->h * s->w * (s->channels / LANES);
    size_t from = image * first / (s->rows * s->cols);
    size_t to = image * last / (s->rows * s->cols);
    return (range){s->data + from * LANES, (int)(to - from)};
}

/* Asks for part i of MATRICES of a range: memory is read evenly while products
 * are computed.  (Of a burst of requests many find the fill buffers full and are
 * dropped.)  The empty asm keeps gcc from taking this for a function without
 * effects and dropping the calls. */
static void fetch(range r, int i)
{
    for (int k = r.lines * i / MATRICES; k < r.lines * (i + 1) / MATRICES; k++)
        __builtin_prefetch(r.from + k * LANES, 0, 2);
    __asm__ volatile("");
}

/* Both sides of a call; the image of `coarse`, one of them, counts tiles. */
static void open_sides(const winograd_method *m, side *a, side *b, int n, const side *coarse,
                       float *scratch)
{
    int widest = a->w > b->w ? a->w : b->w;
    memset(scratch, 0, (size_t)widest * LANES * sizeof *scratch);
    a->rows = b->rows = (coarse->h + TILE - 1) / TILE;
    a->cols = b->cols = (coarse->w + TILE - 1) / TILE;
    a->tiles = b->tiles = n * a->rows * a->cols;
    a->zeros = b->zeros = scratch;
    a->chan = b->chan = chan_of(m);
    a->values = scratch + (size_t)widest * LANES;
    b->values = a->values + a->channels / LANES * a->chan;
}

static void product(const winograd_method *m, const side *a, const side *b, const float *u)
{
    size_t matrix = (size_t)a->channels * b->channels;
    for (int first = 0; first < a->tiles; first += m->tiles) {
        int count = a->tiles - first < m->tiles ? a->tiles - first : m->tiles;
        transform(a, first, count);
        range next = lines_of(a, first + count, m->tiles), here = lines_of(b, first, count);
        for (int i = 0; i < MATRICES; i++) {
            int from = m->group[i].first, to = from + m->group[i].count;
            fetch(next, i);
            fetch(here, i);
            for (int k = from; k < to; k++)
                winograd_multiply(count, a->channels, b->channels, a->values + k * STEP,
                                  u + i * matrix, b->values + k * STEP, a->chan);
        }
        transform(b, first, count);
    }
}

static void gradient(const winograd_method *m, const side *a, const side *b, float *acc)
{
    size_t matrix = (size_t)a->channels * b->channels;
    for (int first = 0; first < a->tiles; first += m->tiles) {
        int count = a->tiles - first < m->tiles ? a->tiles - first : m->tiles;
        transform(a, first, count);
        transform(b, first, count);
        range nexta = lines_of(a, first + count, m->tiles);
        range nextb = lines_of(b, first + count, m->tiles);
        for (int i = 0; i < MATRICES; i++) {
            int from = m->group[i].first;
            fetch(nexta, i);
            fetch(nextb, i);
            winograd_accumulate(m->group[i].count, count, a->channels, b->channels,
                                a->values + from * STEP, b->values + from * STEP, a->chan,
                                acc + i * matrix);
        }
    }
}

/* The sides of x and of y. */
static side fine_side(const dro__winograd_shape *s, const float *data, winograd_transform *turn)
{
    return (side){
        .channels = s->ci, .h = s->h, .w = s->w, .data = (float *)data, .transform = turn};
}

static side coarse_side(const dro__winograd_shape *s, const float *data, winograd_transform *turn)
{
    int h = (s->h + s->stride - 1) / s->stride, w = (s->w + s->stride - 1) / s->stride;
    return (side){.channels = s->co, .h = h, .w = w, .data = (float *)data, .transform = turn};
}

static void forward(const dro__winograd_shape *s, int n, const float *x, const float *fwd, float *y,
                    float *scratch)
{
    const winograd_method *m = method_of(s);
    side a = fine_side(s, x, m->input), b = coarse_side(s, y, m->output);
    open_sides(m, &a, &b, n, &b, scratch);
    product(m, &a, &b, fwd);
}

static void backward(const dro__winograd_shape *s, int n, const float *dy, const float *bwd,
                     float *dx, float *scratch)
{
    const winograd_method *m = method_of(s);
    side a = coarse_side(s, dy, m->back_input), b = fine_side(s, dx, m->back_output);
    open_sides(m, &a, &b, n, &a, scratch);
    product(m, &a, &b, bwd);
}

static void weights(const dro__winograd_shape *s, int n, const float *x, const float *dy,
                    float *acc, float *scratch)
{
    const winograd_method *m = method_of(s);
    side a = fine_side(s, x, m->input), b = coarse_side(s, dy, m->grad);
    open_sides(m, &a, &b, n, &b, scratch);
    gradient(m, &a, &b, acc);
}

/* Where WIDTH outputs from o on of input i lie inside one matrix: groups of
 * `nb` vectors, in them (ci, nb * WIDTH). */
static size_t weight_place(int ci, int co, int i, int o)
{
    int width = winograd_group(co) * WIDTH;
    return (size_t)(o / width) * ci * width + (size_t)i * width + o % width;
}

/* The 3x3 filter of (i, o) is at oihw + i * si + o * so; back: filters are rotated, inputs and
 * outputs swapped. */
static void prepare_one(const dro__winograd_shape *s, bool back, const float *oihw, float *u)
{
    int ci = back ? s->co : s->ci, co = back ? s->ci : s->co;
    int si = back ? 9 * s->ci : 9, so = back ? 9 : 9 * s->ci;
    for (int i = 0; i < ci; i++)
        for (int o = 0; o < co; o += WIDTH) {
            const float *from = oihw + (size_t)i * si + (size_t)o * so;
            vec g[9];
            for (int k = 0; k < 9; k++)
                for (int l = 0; l < WIDTH; l++)
                    g[k][l] = from[(size_t)l * so + (back ? 8 - k : k)];
            method_of(s)->filter(g, u + weight_place(ci, co, i, o), (size_t)ci * co);
        }
}

static void prepare(const dro__winograd_shape *s, const float *oihw, float *fwd, float *bwd)
{
    if (fwd)
        prepare_one(s, false, oihw, fwd);
    if (bwd)
        prepare_one(s, true, oihw, bwd);
}

static void finish(const dro__winograd_shape *s, const float *acc, float *grad)
{
    int ci = s->ci, co = s->co;
    for (int i = 0; i < ci; i++)
        for (int o = 0; o < co; o += WIDTH) {
            vec g[9];
            method_of(s)->taps(acc + weight_place(ci, co, i, o), (size_t)ci * co, g);
            for (int k = 0; k < 9; k++)
                for (int l = 0; l < WIDTH; l++)
                    grad[((size_t)(o + l) * ci + i) * 9 + k] = g[k][l];
        }
}

const dro__winograd PART(winograd) = {.scratch = scratch_of,
                                      .prepare = prepare,
                                      .forward = forward,
                                      .backward = backward,
                                      .weights = weights,
                                      .finish = finish};
