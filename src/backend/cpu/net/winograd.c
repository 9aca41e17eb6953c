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
#include "winograd.h"

#include <string.h>

#include "winograd_parts.h"

bool dro__winograd_works(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}

/* Scratch holds a row of zero pixels, v and m, with channels apart by `chan`. */
static size_t chan_of(const dro__winograd_method *m)
{
    return (size_t)m->values * STEP;
}

static size_t scratch_of(const dro__winograd_method *m, int ci, int co, int w)
{
    return (size_t)(ci + co) / LANES * chan_of(m) + (size_t)w * LANES;
}

size_t dro__winograd_scratch(int ci, int co, int h, int w)
{
    (void)h;
    return scratch_of(&dro__winograd_stride1, ci, co, w);
}

size_t dro__winograd2_scratch(int ci, int co, int h, int w)
{
    (void)h;
    return scratch_of(&dro__winograd_stride2, ci, co, w);
}

size_t dro__winograd_prepared(int ci, int co)
{
    return (size_t)MATRICES * ci * co;
}

/* One tensor of a call: n images (channels/16, h, w, 16), seen as rows x cols
 * tiles each, numbered row by row, image after image, and its transform. */
typedef struct {
    int channels, h, w, rows, cols, tiles;
    float *data;
    dro__winograd_transform *transform;
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
        dro__winograd_strip strip = {s->h, s->w, row % s->rows, tx, each, s->zeros};
        float *p = s->data + (size_t)(row / s->rows) * (s->channels / LANES) * plane;
        float *v = s->values + t * LANES;
        for (int c = 0; c < s->channels; c += LANES, p += plane, v += s->chan)
            s->transform(&strip, p, v);
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
        _mm_prefetch((const char *)(r.from + k * LANES), _MM_HINT_T1);
    __asm__ volatile("");
}

/* Both sides of a call; h x w is the size of the image that counts tiles. */
static void open_sides(const dro__winograd_method *m, side *a, side *b, int n, int h, int w,
                       float *scratch)
{
    int widest = a->w > b->w ? a->w : b->w;
    memset(scratch, 0, (size_t)widest * LANES * sizeof *scratch);
    a->rows = b->rows = (h + TILE - 1) / TILE;
    a->cols = b->cols = (w + TILE - 1) / TILE;
    a->tiles = b->tiles = n * a->rows * a->cols;
    a->zeros = b->zeros = scratch;
    a->chan = b->chan = chan_of(m);
    a->values = scratch + (size_t)widest * LANES;
    b->values = a->values + a->channels / LANES * a->chan;
}

static void product(const dro__winograd_method *m, const side *a, const side *b, const float *u)
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
                dro__winograd_multiply(count, a->channels, b->channels, a->values + k * STEP,
                                       u + i * matrix, b->values + k * STEP, a->chan);
        }
        transform(b, first, count);
    }
}

static void gradient(const dro__winograd_method *m, const side *a, const side *b, float *acc)
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
            dro__winograd_accumulate(m->group[i].count, count, a->channels, b->channels,
                                     a->values + from * STEP, b->values + from * STEP, a->chan,
                                     acc + i * matrix);
        }
    }
}

void dro__winograd_forward(int n, int ci, int co, int h, int w, const float *x,
                           const float *prepared, float *y, float *scratch)
{
    side a = {.channels = ci, .h = h, .w = w, .data = (float *)x, .transform = dro__winograd_input};
    side b = {.channels = co, .h = h, .w = w, .data = y, .transform = dro__winograd_output};
    open_sides(&dro__winograd_stride1, &a, &b, n, h, w, scratch);
    product(&dro__winograd_stride1, &a, &b, prepared);
}

void dro__winograd_weights(int n, int ci, int co, int h, int w, const float *x, const float *dy,
                           float *acc, float *scratch)
{
    side a = {.channels = ci, .h = h, .w = w, .data = (float *)x, .transform = dro__winograd_input};
    side b = {.channels = co, .h = h, .w = w, .data = (float *)dy, .transform = dro__winograd_grad};
    open_sides(&dro__winograd_stride1, &a, &b, n, h, w, scratch);
    gradient(&dro__winograd_stride1, &a, &b, acc);
}

void dro__winograd2_forward(int n, int ci, int co, int h, int w, const float *x,
                            const float *prepared, float *y, float *scratch)
{
    int oh = (h + 1) / 2, ow = (w + 1) / 2;
    side a = {
        .channels = ci, .h = h, .w = w, .data = (float *)x, .transform = dro__winograd2_input};
    side b = {.channels = co, .h = oh, .w = ow, .data = y, .transform = dro__winograd2_output};
    open_sides(&dro__winograd_stride2, &a, &b, n, oh, ow, scratch);
    product(&dro__winograd_stride2, &a, &b, prepared);
}

void dro__winograd2_backward(int n, int ci, int co, int h, int w, const float *dy,
                             const float *prepared, float *dx, float *scratch)
{
    int oh = (h + 1) / 2, ow = (w + 1) / 2;
    side a = {.channels = co,
              .h = oh,
              .w = ow,
              .data = (float *)dy,
              .transform = dro__winograd2_back_input};
    side b = {.channels = ci, .h = h, .w = w, .data = dx, .transform = dro__winograd2_back_output};
    open_sides(&dro__winograd_stride2, &a, &b, n, oh, ow, scratch);
    product(&dro__winograd_stride2, &a, &b, prepared);
}

void dro__winograd2_weights(int n, int ci, int co, int h, int w, const float *x, const float *dy,
                            float *acc, float *scratch)
{
    int oh = (h + 1) / 2, ow = (w + 1) / 2;
    side a = {
        .channels = ci, .h = h, .w = w, .data = (float *)x, .transform = dro__winograd2_input};
    side b = {
        .channels = co, .h = oh, .w = ow, .data = (float *)dy, .transform = dro__winograd2_grad};
    open_sides(&dro__winograd_stride2, &a, &b, n, oh, ow, scratch);
    gradient(&dro__winograd_stride2, &a, &b, acc);
}

/* Where 16 outputs o .. o + 15 of input i lie inside one matrix: groups of
 * `nb` channel blocks, in them (ci, nb * 16). */
static size_t weight_place(int ci, int co, int i, int o)
{
    int width = dro__winograd_group(co) * LANES;
    return (size_t)(o / width) * ci * width + (size_t)i * width + o % width;
}

typedef void filter_transform(const vec taps[9], float *u, size_t step);

/* ci inputs, co outputs; the 3x3 filter of (i, o) is at oihw + i * si + o * so. */
AVX512 static void prepare(int ci, int co, const float *oihw, int si, int so, int rotate,
                           filter_transform *filter, float *u)
{
    __m512i place = dro__winograd_lanes_times(so);
    for (int i = 0; i < ci; i++)
        for (int o = 0; o < co; o += LANES) {
            const float *from = oihw + (size_t)i * si + (size_t)o * so;
            vec g[9];
            for (int k = 0; k < 9; k++)
                g[k] = _mm512_i32gather_ps(place, from + (rotate ? 8 - k : k), 4);
            filter(g, u + weight_place(ci, co, i, o), (size_t)ci * co);
        }
}

void dro__winograd_prepare(int ci, int co, const float *oihw, float *fwd, float *bwd)
{
    if (fwd)
        prepare(ci, co, oihw, 9, 9 * ci, 0, dro__winograd_filter, fwd);
    if (bwd)
        prepare(co, ci, oihw, 9 * ci, 9, 1, dro__winograd_filter, bwd);
}

void dro__winograd2_prepare(int ci, int co, const float *oihw, float *fwd, float *bwd)
{
    if (fwd)
        prepare(ci, co, oihw, 9, 9 * ci, 0, dro__winograd2_filter, fwd);
    if (bwd)
        prepare(co, ci, oihw, 9 * ci, 9, 1, dro__winograd2_filter, bwd);
}

typedef void taps_transform(const float *u, size_t step, vec taps[9]);

AVX512 static void finish(int ci, int co, const float *acc, taps_transform *taps, float *grad)
{
    __m512i place = dro__winograd_lanes_times(9 * ci);
    for (int i = 0; i < ci; i++)
        for (int o = 0; o < co; o += LANES) {
            vec g[9];
            taps(acc + weight_place(ci, co, i, o), (size_t)ci * co, g);
            for (int k = 0; k < 9; k++)
                _mm512_i32scatter_ps(grad + ((size_t)o * ci + i) * 9 + k, place, g[k], 4);
        }
}

void dro__winograd_weights_finish(int ci, int co, const float *acc, float *grad)
{
    finish(ci, co, acc, dro__winograd_filter_grad, grad);
}

void dro__winograd2_weights_finish(int ci, int co, const float *acc, float *grad)
{
    finish(ci, co, acc, dro__winograd2_filter_grad, grad);
}
