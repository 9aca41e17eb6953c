/* The kernels of direct.h.
 *
 * An example's input is first copied with its padding, (blocks, tall, wide, LANES), so that no
 * window leaves it. One kernel then serves forward and the gradient by the input: a few
 * neighbouring pixels of one block of channels, in registers, are a sum over blocks, taps and
 * channels. Weights are (to, from, taps, LANES of from, LANES of to), where `from` are only those
 * blocks that the groups of a block `to` can reach (its band); 0 between groups. */
#include "simd.h"

#include <string.h>

enum { PIXELS = (REGISTERS == 32 ? 16 : 12) / PARTS, SQUARE = LANES * LANES, TERMS = 128 };

typedef struct sizes {
    size_t in, out;    /* blocks */
    size_t tall, wide; /* the padded input */
    size_t taps;
    size_t band_in,
        band_out; /* blocks of x that a block of z depends on at most, and the reverse */
    bool copied;  /* the input needs padding or blocks */
} sizes;

/* The first of `band` blocks of the `from` channels that the groups of block `to` have, and one
 * past the last. */
static size_t reach(size_t groups, size_t from, size_t to, size_t block, size_t *past)
{
    size_t last = (block + 1) * LANES <= to ? (block + 1) * LANES - 1 : to - 1;
    size_t each = from / groups, first = block * LANES / (to / groups) * each;
    *past = ((last / (to / groups) + 1) * each + LANES - 1) / LANES;
    return first / LANES;
}

/* The most blocks that one block reaches. */
static size_t band_of(size_t groups, size_t from, size_t to)
{
    size_t band = 0;
    for (size_t b = 0; b * LANES < to; b++) {
        size_t past, first = reach(groups, from, to, b, &past);
        band = past - first > band ? past - first : band;
    }
    return band;
}

/* Where the band of a block begins: so that it ends within the blocks there are. */
static size_t band_at(const dro__conv_shape *s, size_t block, size_t band, bool back)
{
    size_t from = (size_t)(back ? s->out : s->in), to = (size_t)(back ? s->in : s->out), past;
    size_t first = reach((size_t)s->groups, from, to, block, &past);
    size_t most = (from + LANES - 1) / LANES - band;
    return first < most ? first : most;
}

static sizes sizes_of(const dro__conv_shape *s)
{
    const dro_window *k = &s->window;
    sizes z = {.in = ((size_t)s->in + LANES - 1) / LANES,
               .out = ((size_t)s->out + LANES - 1) / LANES,
               .tall = (size_t)((s->height - 1) * k->stride[0] + k->kernel[0]),
               .wide = (size_t)((s->width - 1) * k->stride[1] + k->kernel[1]),
               .taps = (size_t)(k->kernel[0] * k->kernel[1])};
    z.band_in = band_of((size_t)s->groups, (size_t)s->in, (size_t)s->out);
    z.band_out = band_of((size_t)s->groups, (size_t)s->out, (size_t)s->in);
    z.copied = s->plain || z.tall != (size_t)s->in_height || z.wide != (size_t)s->in_width ||
               k->pad[0] || k->pad[1];
    return z;
}

static size_t weights_of(const dro__conv_shape *s)
{
    sizes z = sizes_of(s);
    size_t forward = z.out * z.band_in, back = z.in * z.band_out;
    return (forward > back ? forward : back) * z.taps * SQUARE;
}

static size_t scratch_of(const dro__conv_shape *s)
{
    sizes z = sizes_of(s);
    return z.in * z.tall * z.wide * LANES;
}

/* Where the weight from channel i to channel o lies; back: from o to i. */
static size_t place(const dro__conv_shape *s, const sizes *z, size_t i, size_t o, bool back)
{
    size_t from = back ? o : i, to = back ? i : o, band = back ? z->band_out : z->band_in;
    size_t square = to / LANES * band + from / LANES - band_at(s, to / LANES, band, back);
    return square * z->taps * SQUARE + from % LANES * LANES + to % LANES;
}

/* Between (out, in / groups, kh, kw) and the layout of weights. */
static void reorder(const dro__conv_shape *s, float *oihw, float *w, bool back, bool out)
{
    sizes z = sizes_of(s);
    size_t each = (size_t)(s->in / s->groups), outs = (size_t)(s->out / s->groups);
    for (size_t o = 0; o < (size_t)s->out; o++)
        for (size_t i = 0; i < each; i++) {
            float *at = w + place(s, &z, o / outs * each + i, o, back);
            for (size_t t = 0; t < z.taps; t++, oihw++, at += SQUARE)
                if (out)
                    *oihw = *at;
                else
                    *at = *oihw;
        }
}

static void prepare(const dro__conv_shape *s, const float *oihw, bool back, float *w)
{
    memset(w, 0, weights_of(s) * sizeof *w);
    reorder(s, (float *)oihw, w, back, false);
}

static void finish(const dro__conv_shape *s, const float *sum, float *oihw)
{
    reorder(s, oihw, (float *)sum, false, true);
}

/* One example between its own layout and the padded one. What no window reaches is not copied;
 * back, it is 0. */
static void copy_example(const dro__conv_shape *s, const sizes *z, float *x, float *padded,
                         bool back)
{
    size_t height = (size_t)s->in_height, width = (size_t)s->in_width;
    if (!back)
        memset(padded, 0, scratch_of(s) * sizeof *padded);
    else
        memset(x, 0, (s->plain ? (size_t)s->in : z->in * LANES) * height * width * sizeof *x);
    size_t top = (size_t)s->window.pad[0], left = (size_t)s->window.pad[1];
    size_t columns = z->wide - left < width ? z->wide - left : width;
    for (size_t c = 0; c < (s->plain ? (size_t)s->in : z->in); c++)
        for (size_t y = 0; y < height && y + top < z->tall; y++) {
            size_t row = s->plain ? c / LANES : c;
            float *to = padded + ((row * z->tall + y + top) * z->wide + left) * LANES;
            float *from = x + (c * height + y) * width * (s->plain ? 1 : LANES);
            if (!s->plain && back)
                memcpy(from, to, columns * LANES * sizeof *to);
            else if (!s->plain)
                memcpy(to, from, columns * LANES * sizeof *to);
            for (size_t k = 0; s->plain && k < columns; k++)
                if (back)
                    from[k] = to[k * LANES + c % LANES];
                else
                    to[k * LANES + c % LANES] = from[k];
        }
}

/* What the kernel sums over: blocks, and kh x kw taps of each. Distances are in floats. */
typedef struct region {
    size_t blocks, kh, kw;
    size_t block, row, pixel; /* distances in the values read: of blocks, rows and pixels summed */
    size_t square;            /* distance of a block's weights */
    size_t to_pixel;          /* distance of the pixels written */
    bool add;                 /* to what is there */
} region;

/* np pixels of one block. np is a constant after inlining. */
INLINE void pixels_kernel(int np, const region *r, const float *x, const float *w, float *to)
{
    vec acc[PIXELS][PARTS];
    UNROLL for (int p = 0; p < np; p++) UNROLL for (int b = 0; b < PARTS; b++) acc[p][b] = ZERO;
    for (size_t i = 0; i < r->blocks; i++)
        for (size_t tap = 0; tap < r->kh * r->kw; tap++) {
            const float *at = x + i * r->block + tap / r->kw * r->row + tap % r->kw * LANES;
            const float *u = w + i * r->square + tap * SQUARE;
            for (int k = 0; k < LANES; k++, u += LANES) {
                vec v[PARTS];
                UNROLL for (int b = 0; b < PARTS; b++) v[b] = LOAD(u + b * WIDTH);
                UNROLL for (int p = 0; p < np; p++)
                {
                    vec one = SET(at[(size_t)p * r->pixel + (size_t)k]);
                    UNROLL for (int b = 0; b < PARTS; b++) acc[p][b] = FMA(one, v[b], acc[p][b]);
                }
            }
        }
    UNROLL for (int p = 0; p < np; p++) UNROLL for (int b = 0; b < PARTS; b++)
    {
        float *out = to + (size_t)p * r->to_pixel + b * WIDTH;
        if (r->add)
            STORE(out, ADD(LOAD(out), acc[p][b]));
        else
            STORE(out, acc[p][b]);
    }
}

static void chunk(const region *r, size_t count, const float *x, const float *w, float *to)
{
    size_t p = 0;
    for (; p + PIXELS <= count; p += PIXELS)
        pixels_kernel(PIXELS, r, x + p * r->pixel, w, to + p * r->to_pixel);
    for (; p + 4 <= count; p += 4)
        pixels_kernel(4, r, x + p * r->pixel, w, to + p * r->to_pixel);
    for (; p < count; p++)
        pixels_kernel(1, r, x + p * r->pixel, w, to + p * r->to_pixel);
}

/* A row of pixels. A long sum is made of shorter ones, so that it loses fewer digits. */
static void pixels(const region *r, size_t count, const float *x, const float *w, float *to)
{
    size_t most = 1 + TERMS / (r->kh * r->kw * LANES);
    for (size_t i = 0; i < r->blocks; i += most) {
        region part = *r;
        part.blocks = r->blocks - i < most ? r->blocks - i : most;
        part.add = r->add || i > 0;
        chunk(&part, count, x + i * r->block, w + i * r->square, to);
    }
}

static size_t example_size(const dro__conv_shape *s, const sizes *z)
{
    return (s->plain ? (size_t)s->in : z->in * LANES) * (size_t)s->in_height * (size_t)s->in_width;
}

static void forward(const dro__conv_shape *s, size_t n, const float *x, const float *w, float *y,
                    float *scratch)
{
    sizes z = sizes_of(s);
    const dro_window *k = &s->window;
    size_t height = (size_t)s->height, width = (size_t)s->width;
    region r = {.blocks = z.band_in,
                .kh = (size_t)k->kernel[0],
                .kw = (size_t)k->kernel[1],
                .block = z.tall * z.wide * LANES,
                .row = z.wide * LANES,
                .pixel = (size_t)k->stride[1] * LANES,
                .square = z.taps * SQUARE,
                .to_pixel = LANES};
    for (size_t e = 0; e < n; e++, x += example_size(s, &z)) {
        if (z.copied)
            copy_example(s, &z, (float *)x, scratch, false);
        const float *from = z.copied ? scratch : x;
        for (size_t o = 0; o < z.out; o++) {
            const float *band = from + band_at(s, o, z.band_in, false) * r.block;
            for (size_t row = 0; row < height; row++, y += width * LANES)
                pixels(&r, width, band + row * (size_t)k->stride[0] * r.row,
                       w + o * z.band_in * r.square, y);
        }
    }
}

static void backward(const dro__conv_shape *s, size_t n, const float *dz, const float *w, float *dx,
                     float *scratch)
{
    sizes z = sizes_of(s);
    const dro_window *k = &s->window;
    size_t height = (size_t)s->height, width = (size_t)s->width, row = z.wide * LANES;
    region r = {.blocks = z.band_out,
                .kh = 1,
                .kw = 1,
                .block = height * width * LANES,
                .pixel = LANES,
                .square = z.taps * SQUARE,
                .to_pixel = (size_t)k->stride[1] * LANES,
                .add = true};
    for (size_t e = 0; e < n; e++, dz += z.out * r.block, dx += example_size(s, &z)) {
        float *sum = z.copied ? scratch : dx;
        memset(sum, 0, scratch_of(s) * sizeof *sum);
        for (size_t i = 0; i < z.in; i++)
            for (size_t tap = 0; tap < z.taps; tap++)
                for (size_t y = 0; y < height; y++) {
                    size_t ky = tap / (size_t)k->kernel[1], kx = tap % (size_t)k->kernel[1];
                    size_t line = i * z.tall + y * (size_t)k->stride[0] + ky;
                    pixels(&r, width,
                           dz + band_at(s, i, z.band_out, true) * r.block + y * width * LANES,
                           w + (i * z.band_out * z.taps + tap) * SQUARE,
                           sum + line * row + kx * LANES);
                }
        if (z.copied)
            copy_example(s, &z, dx, scratch, true);
    }
}

enum { ROWS = SUMS / PARTS }; /* input channels at a time, for the gradient by the weights */

/* ROWS input channels x one block of output channels: a sum over all pixels of an example. */
static void slope_kernel(const dro__conv_shape *s, size_t wide, const float *x, const float *dz,
                         float *sum)
{
    vec acc[ROWS][PARTS];
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int b = 0; b < PARTS; b++) acc[i][b] = ZERO;
    size_t pixel = (size_t)s->window.stride[1] * LANES;
    for (int32_t y = 0; y < s->height; y++) {
        const float *at = x + (size_t)(y * s->window.stride[0]) * wide * LANES;
        for (int32_t c = 0; c < s->width; c++, at += pixel, dz += LANES) {
            vec g[PARTS];
            UNROLL for (int b = 0; b < PARTS; b++) g[b] = LOAD(dz + b * WIDTH);
            UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int b = 0; b < PARTS; b++) acc[i][b] =
                FMA(SET(at[i]), g[b], acc[i][b]);
        }
    }
    UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int b = 0; b < PARTS; b++)
    {
        float *p = sum + i * LANES + b * WIDTH;
        STORE(p, ADD(LOAD(p), acc[i][b]));
    }
}

static void slope(const dro__conv_shape *s, size_t n, const float *x, const float *dz, float *sum,
                  float *scratch)
{
    sizes z = sizes_of(s);
    size_t area = (size_t)s->height * (size_t)s->width * LANES, kw = (size_t)s->window.kernel[1];
    for (size_t e = 0; e < n; e++, x += example_size(s, &z), dz += z.out * area) {
        if (z.copied)
            copy_example(s, &z, (float *)x, scratch, false);
        const float *from = z.copied ? scratch : x;
        for (size_t square = 0; square < z.out * z.band_in * z.taps; square++) {
            size_t tap = square % z.taps, o = square / z.taps / z.band_in;
            size_t i = square / z.taps % z.band_in + band_at(s, o, z.band_in, false);
            const float *at = from + ((i * z.tall + tap / kw) * z.wide + tap % kw) * (size_t)LANES;
            for (int k = 0; k < LANES; k += ROWS)
                slope_kernel(s, z.wide, at + k, dz + o * area, sum + square * SQUARE + k * LANES);
        }
    }
}

const dro__direct PART(direct) = {.weights = weights_of,
                                  .scratch = scratch_of,
                                  .prepare = prepare,
                                  .finish = finish,
                                  .forward = forward,
                                  .backward = backward,
                                  .slope = slope};
