/* The transforms of a 3x3 convolution with stride 2.
 *
 * One dimension: y[i] = x[2i-1] g0 + x[2i] g1 + x[2i+1] g2.  The odd pixels meet a
 * filter of two taps (g0, g2) with stride 1, the even pixels one of one tap (g1).
 * Four outputs need 5 odd and 4 even pixels.  For the two taps we take Winograd's
 * F(4, 2) with the points 0, 1, -1, 2 and infinity: y = A^T [ (G g) . (B^T d) ],
 *
 *           2 -1 -2  1  0           1/2    0
 *           0 -2 -1  1  0          -1/2 -1/2            1  1  1  1  0
 *     B^T = 0  2 -3  1  0      G = -1/6  1/6      A^T = 0  1 -1  2  0
 *           0 -1  0  1  0           1/6  1/3            0  1  1  4  0
 *           0  2 -1 -2  1             0    1            0  1 -1  8  1
 *
 * and for the one tap plain products: 5 + 4 = 9 multiplications instead of 12, in
 * two dimensions 81 instead of 144.  We number the 9 values of a line 0-4 (odd
 * pixels, transformed) and 5-8 (even pixels, copied).  All even values share the
 * tap g1, so there are only 6x6 different matrices of weights.
 *
 * The gradient of x has the same form, dx[2i+1] = dy[i] g2 + dy[i+1] g0 and dx[2i] =
 * dy[i] g1: five pixels of dy give values 0-4, four of them also values 5-8, and
 * the products lead to 8 pixels of dx.
 */
#include "winograd_parts.h"

enum { ODD = 5, LINE = 9, FINE = 8 }; /* FINE: pixels of x under a tile of y */

INLINE int place_of(int r, int c)
{
    if (r < ODD)
        return c < ODD ? ODD * r + c : 25 + 4 * r + (c - ODD);
    return c < ODD ? 45 + 4 * c + (r - ODD) : 65 + 4 * (r - ODD) + (c - ODD);
}

INLINE void put(float *v, int r, int c, vec value)
{
    STORE(v + place_of(r, c) * STEP, value);
}

INLINE vec get(const float *v, int r, int c)
{
    return LOAD(v + place_of(r, c) * STEP);
}

static void rows_at(const winograd_strip *s, const float *plane, int y, int count,
                    const float *row[])
{
    for (int r = 0; r < count; r++, y++)
        row[r] = y >= 0 && y < s->h ? plane + (ptrdiff_t)y * s->w * LANES : s->zeros;
}

/* Pixel x of a row; `whole` (a constant) says that x cannot be outside. */
INLINE vec pixel(const float *row, int x, int w, int whole)
{
    if (!whole && (x < 0 || x >= w))
        return ZERO;
    return LOAD(row + (ptrdiff_t)x * LANES);
}

/* Value k of B^T d. */
INLINE vec input_point(int k, const vec d[ODD])
{
    vec p = SUB(d[3], d[1]);
    if (k == 0)
        return FMA(SET(2), SUB(d[0], d[2]), p);
    if (k == 1)
        return SUB(p, ADD(d[1], d[2]));
    if (k == 2)
        return FMA(SET(3), SUB(d[1], d[2]), p);
    if (k == 3)
        return p;
    return FNMA(SET(2), p, SUB(d[4], d[2]));
}

/* Where odd and even pixels lie: apart in x (step 2), the same in dy (step 1). */
INLINE int odd_at(int step, int k)
{
    return step * k;
}
INLINE int even_at(int step, int k)
{
    return step * k + step - 1;
}

/* Row r of the values, from its 9 (or 5) columns. */
INLINE void input_row(int step, int r, const vec d[LINE], float *v)
{
    vec odd[ODD];
    UNROLL for (int k = 0; k < ODD; k++) odd[k] = d[odd_at(step, k)];
    UNROLL for (int k = 0; k < ODD; k++) put(v, r, k, input_point(k, odd));
    UNROLL for (int k = 0; k < 4; k++) put(v, r, ODD + k, d[even_at(step, k)]);
}

/* Rows ra and rb of the values; both are made of the same pixels. */
INLINE void input_rows(int step, int ra, int rb, const float *const row[LINE], int x, int w,
                       int whole, float *v)
{
    int columns = step == 2 ? LINE : ODD;
    vec a[LINE], b[LINE];
    UNROLL for (int c = 0; c < columns; c++)
    {
        vec d[ODD];
        UNROLL for (int k = 0; k < ODD; k++) d[k] = pixel(row[odd_at(step, k)], x + c, w, whole);
        a[c] = input_point(ra, d);
        b[c] = input_point(rb, d);
    }
    input_row(step, ra, a, v);
    if (rb != ra)
        input_row(step, rb, b, v);
}

INLINE void input_tile(int step, const float *const row[LINE], int x, int w, int whole, float *v)
{
    int columns = step == 2 ? LINE : ODD;
    input_rows(step, 0, 4, row, x, w, whole, v);
    input_rows(step, 1, 2, row, x, w, whole, v);
    input_rows(step, 3, 3, row, x, w, whole, v);
    UNROLL for (int r = 0; r < 4; r++)
    {
        vec d[LINE];
        UNROLL for (int c = 0; c < columns; c++) d[c] =
            pixel(row[even_at(step, r)], x + c, w, whole);
        input_row(step, ODD + r, d, v);
    }
}

static void input_transform(const winograd_strip *s, float *plane, float *v)
{
    const float *row[LINE];
    rows_at(s, plane, s->ty * FINE - 1, LINE, row);
    int x = s->tx * FINE - 1;
    for (int t = 0; t < s->count; t++, x += FINE, v += LANES)
        if (x >= 0 && x + LINE <= s->w)
            input_tile(2, row, x, s->w, 1, v);
        else
            input_tile(2, row, x, s->w, 0, v);
}

static void back_input_transform(const winograd_strip *s, float *plane, float *v)
{
    const float *row[LINE]; /* five are used */
    rows_at(s, plane, s->ty * TILE, ODD, row);
    int x = s->tx * TILE;
    for (int t = 0; t < s->count; t++, x += TILE, v += LANES)
        if (x + ODD <= s->w)
            input_tile(1, row, x, s->w, 1, v);
        else
            input_tile(1, row, x, s->w, 0, v);
}

/* Value k of A d, or of the copies. */
INLINE vec grad_point(int k, const vec d[TILE])
{
    vec even = ADD(d[0], d[2]), odd = ADD(d[1], d[3]);
    if (k == 0)
        return d[0];
    if (k == 1)
        return ADD(even, odd);
    if (k == 2)
        return SUB(even, odd);
    if (k == 3)
        return FMA(SET(2), FMA(SET(4), d[3], d[1]), FMA(SET(4), d[2], d[0]));
    return k == 4 ? d[3] : d[k - ODD];
}

INLINE void grad_tile(const float *const row[TILE], int x, int w, int whole, float *v)
{
    UNROLL for (int r = 0; r < LINE; r++)
    {
        vec a[TILE];
        UNROLL for (int c = 0; c < TILE; c++)
        {
            vec d[TILE];
            UNROLL for (int k = 0; k < TILE; k++) d[k] = pixel(row[k], x + c, w, whole);
            a[c] = grad_point(r, d);
        }
        UNROLL for (int c = 0; c < LINE; c++) put(v, r, c, grad_point(c, a));
    }
}

static void grad_transform(const winograd_strip *s, float *plane, float *v)
{
    const float *row[TILE];
    rows_at(s, plane, s->ty * TILE, TILE, row);
    int x = s->tx * TILE;
    for (int t = 0; t < s->count; t++, x += TILE, v += LANES)
        if (x + TILE <= s->w)
            grad_tile(row, x, s->w, 1, v);
        else
            grad_tile(row, x, s->w, 0, v);
}

/* A^T m: outputs 0 and 2, or 1 and 3. */
INLINE void output_pair(int odd, const vec m[ODD], vec *a, vec *b)
{
    if (odd) {
        vec d = SUB(m[1], m[2]);
        *a = FMA(SET(2), m[3], d);
        *b = FMA(SET(8), m[3], ADD(d, m[4]));
    } else {
        vec s = ADD(m[1], m[2]);
        *a = ADD(ADD(m[0], s), m[3]);
        *b = FMA(SET(4), m[3], s);
    }
}

/* One row of products to 4 pixels of y (step 1) or 8 of dx (step 2), of which
 * `cols` exist. */
INLINE void output_row(int step, const vec m[LINE], int cols, float *y)
{
    vec r[TILE];
    output_pair(0, m, &r[0], &r[2]);
    output_pair(1, m, &r[1], &r[3]);
    UNROLL for (int c = 0; c < TILE; c++)
    {
        if (step == 1) {
            if (c < cols)
                STORE(y + c * LANES, ADD(r[c], m[ODD + c]));
        } else {
            if (2 * c < cols)
                STORE(y + 2 * c * LANES, m[ODD + c]);
            if (2 * c + 1 < cols)
                STORE(y + (2 * c + 1) * LANES, r[c]);
        }
    }
}

/* Rows k and k + 2 of y, or rows 2k + 1 and 2k + 5 of dx, for k = 0 and 1. */
INLINE void output_rows(int step, int k, const float *v, int rows, int cols, float *y,
                        ptrdiff_t line)
{
    vec a[LINE], b[LINE];
    UNROLL for (int c = 0; c < LINE; c++)
    {
        vec m[ODD];
        UNROLL for (int r = 0; r < ODD; r++) m[r] = get(v, r, c);
        output_pair(k, m, &a[c], &b[c]);
        if (step == 1) {
            a[c] = ADD(a[c], get(v, ODD + k, c));
            b[c] = ADD(b[c], get(v, ODD + k + 2, c));
        }
    }
    int first = even_at(step, k), second = even_at(step, k + 2);
    if (first < rows)
        output_row(step, a, cols, y + first * line);
    if (second < rows)
        output_row(step, b, cols, y + second * line);
}

INLINE void output_tile(int step, const float *v, int rows, int cols, float *y, ptrdiff_t line)
{
    output_rows(step, 0, v, rows, cols, y, line);
    output_rows(step, 1, v, rows, cols, y, line);
    for (int r = 0; step == 2 && r < 4 && 2 * r < rows; r++) { /* even rows of dx */
        vec m[LINE];
        UNROLL for (int c = 0; c < ODD; c++) m[c] = LOAD(v + (place_of(ODD, c) + r) * STEP);
        UNROLL for (int c = ODD; c < LINE; c++) m[c] = LOAD(v + (place_of(ODD, c) + 4 * r) * STEP);
        output_row(2, m, cols, y + 2 * r * line);
    }
}

INLINE void output_strip(int step, const winograd_strip *s, float *plane, float *v)
{
    int side = TILE * step, rows = s->h - s->ty * side, cols = s->w - s->tx * side;
    ptrdiff_t line = (ptrdiff_t)s->w * LANES;
    float *y = plane + s->ty * side * line + s->tx * side * LANES;
    int whole = rows < side ? 0 : cols / side < s->count ? cols / side : s->count;
    for (int t = 0; t < whole; t++, y += side * LANES, v += LANES)
        output_tile(step, v, side, side, y, line);
    for (int t = whole; t < s->count; t++, y += side * LANES, v += LANES)
        output_tile(step, v, rows, cols - t * side, y, line);
}

static void output_transform(const winograd_strip *s, float *plane, float *v)
{
    output_strip(1, s, plane, v);
}

static void back_output_transform(const winograd_strip *s, float *plane, float *v)
{
    output_strip(2, s, plane, v);
}

/* G g for both parts of a line of taps, 3 -> 6, and the transposed. */
INLINE void filter_line(vec g0, vec g1, vec g2, vec u[6])
{
    u[0] = MUL(SET(.5f), g0);
    u[1] = MUL(SET(-.5f), ADD(g0, g2));
    u[2] = MUL(SET(1.f / 6), SUB(g2, g0));
    u[3] = FMA(SET(1.f / 6), g0, MUL(SET(1.f / 3), g2));
    u[4] = g2;
    u[5] = g1;
}

INLINE void taps_line(const vec u[6], vec *g0, vec *g1, vec *g2)
{
    *g0 = FMA(SET(.5f), SUB(u[0], u[1]), MUL(SET(1.f / 6), SUB(u[3], u[2])));
    *g1 = u[5];
    *g2 = FMA(SET(-.5f), u[1], FMA(SET(1.f / 6), u[2], FMA(SET(1.f / 3), u[3], u[4])));
}

static int matrix_of(int r, int c)
{
    if (r < ODD)
        return c < ODD ? ODD * r + c : 25 + r;
    return 30 + c;
}

static void filter(const vec taps[9], float *u, size_t step)
{
    vec half[6][3], r[6];
    for (int c = 0; c < 3; c++) {
        filter_line(taps[c], taps[3 + c], taps[6 + c], r);
        for (int k = 0; k < 6; k++)
            half[k][c] = r[k];
    }
    for (int k = 0; k < 6; k++) {
        filter_line(half[k][0], half[k][1], half[k][2], r);
        for (int c = 0; c < 6; c++)
            STORE(u + matrix_of(k, c) * step, r[c]);
    }
}

static void filter_taps(const float *u, size_t step, vec taps[9])
{
    vec half[3][6];
    for (int c = 0; c < 6; c++) {
        vec m[6];
        for (int k = 0; k < 6; k++)
            m[k] = LOAD(u + matrix_of(k, c) * step);
        taps_line(m, &half[0][c], &half[1][c], &half[2][c]);
    }
    for (int k = 0; k < 3; k++)
        taps_line(half[k], &taps[3 * k], &taps[3 * k + 1], &taps[3 * k + 2]);
}

/* Values are numbered so that those of one matrix are neighbours. */
#define ONE(i)                                                                                     \
    {                                                                                              \
        i, 1                                                                                       \
    }
#define FIVE(i) ONE(i), ONE(i + 1), ONE(i + 2), ONE(i + 3), ONE(i + 4)
#define FOURS(i)                                                                                   \
    {i, 4}, {i + 4, 4}, {i + 8, 4}, {i + 12, 4},                                                   \
    {                                                                                              \
        i + 16, 4                                                                                  \
    }
const winograd_method PART(stride2) = {
    .values = LINE * LINE,
    .tiles = 16,
    .group = {FIVE(0), FIVE(5), FIVE(10), FIVE(15), FIVE(20), FOURS(25), FOURS(45), {65, 16}},
    .input = input_transform,
    .grad = grad_transform,
    .output = output_transform,
    .back_input = back_input_transform,
    .back_output = back_output_transform,
    .filter = filter,
    .taps = filter_taps,
};
