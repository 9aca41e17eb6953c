/* The transforms of Winograd's F(4x4, 3x3).
 *
 * One dimension: the 4 outputs of a 3-tap filter g over 6 inputs d are
 *
 *     y = A^T [ (G g) . (B^T d) ]          (. is element by element)
 *
 * with 6 multiplications instead of 12.  It is polynomial multiplication by
 * values at the points 0, 1, -1, 2, -2 and infinity:
 *
 *           4  0 -5  0  1  0              1/4    0    0
 *           0 -4 -4  1  1  0             -1/6 -1/6 -1/6         1  1  1  1  1  0
 *     B^T = 0  4 -4 -1  1  0      G =    -1/6  1/6 -1/6   A^T = 0  1 -1  2 -2  0
 *           0 -2 -1  2  1  0             1/24 1/12  1/6         0  1  1  4  4  0
 *           0  2 -1 -2  1  0             1/24 -1/12 1/6         0  1 -1  8 -8  1
 *           0  4  0 -5  0  1                0    0    1
 *
 * Two dimensions apply it to columns, then rows: 36 multiplications for 16
 * outputs instead of 144.  A vector holds channels of a pixel, so every
 * transform is plain arithmetic between whole vectors, no shuffles.
 *
 * The gradient of the filter is the transposed formula:
 * dg = G^T [ sum over tiles of (A dy A^T) . (B^T d B) ] G.
 */
#include "winograd_parts.h"

enum { SIDE = TILE + 2 };

INLINE void put(float *tile, int f, vec value)
{
    STORE(tile + f * STEP, value);
}

INLINE vec get(const float *tile, int f)
{
    return LOAD(tile + f * STEP);
}

/* Pointers to `count` rows of pixels from row y on; rows outside are zeros. */
static void rows_at(const winograd_strip *s, const float *plane, int y, int count,
                    const float *row[])
{
    for (int r = 0; r < count; r++, y++)
        row[r] = y >= 0 && y < s->h ? plane + (ptrdiff_t)y * s->w * LANES : s->zeros;
}

/* B^T d comes in pairs of outputs that share their work, (1, 2), (3, 4), (0, 5),
 * 12 operations in all.  A pair is named by its first output. */
typedef enum { PAIR_12 = 1, PAIR_34 = 3, PAIR_05 = 0 } pair;

INLINE void input_pair(pair p, const vec d[SIDE], vec *a, vec *b)
{
    if (p == PAIR_12) {
        vec even = FNMA(SET(4), d[2], d[4]), odd = FNMA(SET(4), d[1], d[3]);
        *a = ADD(even, odd);
        *b = SUB(even, odd);
    } else if (p == PAIR_34) {
        vec even = SUB(d[4], d[2]), odd = SUB(d[3], d[1]);
        *a = FMA(SET(2), odd, even);
        *b = FNMA(SET(2), odd, even);
    } else {
        *a = FMA(SET(4), SUB(d[0], d[2]), SUB(d[4], d[2]));
        *b = FMA(SET(4), SUB(d[1], d[3]), SUB(d[5], d[3]));
    }
}

/* Two outputs of column x; columns outside the image are zero. */
INLINE void input_column(pair p, const float *const row[SIDE], int x, int inside, vec *a, vec *b)
{
    if (!inside) {
        *a = *b = ZERO;
        return;
    }
    vec d[SIDE];
    UNROLL for (int r = 0; r < SIDE; r++) d[r] = LOAD(row[r] + (ptrdiff_t)x * LANES);
    input_pair(p, d, a, b);
}

INLINE void input_row(const vec d[SIDE], int first, float *v)
{
    vec r[SIDE];
    input_pair(PAIR_12, d, &r[1], &r[2]);
    input_pair(PAIR_34, d, &r[3], &r[4]);
    input_pair(PAIR_05, d, &r[0], &r[5]);
    UNROLL for (int c = 0; c < SIDE; c++) put(v, first + c, r[c]);
}

/* Two rows of the result for all tiles of the strip: all six (36 values) would
 * not fit the registers.  Neighbours share two columns, which stay in
 * registers from tile to tile. */
INLINE void input_rows(pair p, const winograd_strip *s, const float *const row[SIDE], float *v)
{
    int first = SIDE * p, second = SIDE * (p == PAIR_05 ? 5 : p + 1);
    int x = s->tx * TILE - 1;
    vec a[SIDE], b[SIDE];
    input_column(p, row, x, x >= 0, &a[4], &b[4]);
    input_column(p, row, x + 1, 1, &a[5], &b[5]);
    for (int t = 0; t < s->count; t++, x += TILE, v += LANES) {
        a[0] = a[4], a[1] = a[5], b[0] = b[4], b[1] = b[5];
        if (x + SIDE <= s->w)
            UNROLL for (int c = 2; c < SIDE; c++) input_column(p, row, x + c, 1, &a[c], &b[c]);
        else
            UNROLL for (int c = 2; c < SIDE; c++)
                input_column(p, row, x + c, x + c < s->w, &a[c], &b[c]);
        input_row(a, first, v);
        input_row(b, second, v);
    }
}

static void input_transform(const winograd_strip *s, float *plane, float *v)
{
    const float *row[SIDE];
    rows_at(s, plane, s->ty * TILE - 1, SIDE, row);
    input_rows(PAIR_12, s, row, v);
    input_rows(PAIR_34, s, row, v);
    input_rows(PAIR_05, s, row, v);
}

/* A d, 4 values -> 6, again in pairs. */
INLINE void grad_pair(pair p, const vec d[TILE], vec *a, vec *b)
{
    if (p == PAIR_12) {
        vec even = ADD(d[0], d[2]), odd = ADD(d[1], d[3]);
        *a = ADD(even, odd);
        *b = SUB(even, odd);
    } else if (p == PAIR_34) {
        vec even = FMA(SET(4), d[2], d[0]), odd = FMA(SET(4), d[3], d[1]);
        *a = FMA(SET(2), odd, even);
        *b = FNMA(SET(2), odd, even);
    } else {
        *a = d[0];
        *b = d[3];
    }
}

INLINE void grad_row(const vec d[TILE], int first, float *v)
{
    vec r[SIDE];
    grad_pair(PAIR_12, d, &r[1], &r[2]);
    grad_pair(PAIR_34, d, &r[3], &r[4]);
    grad_pair(PAIR_05, d, &r[0], &r[5]);
    UNROLL for (int c = 0; c < SIDE; c++) put(v, first + c, r[c]);
}

INLINE void grad_rows(pair p, const float *const row[TILE], int x, int cols, float *v)
{
    int first = SIDE * p, second = SIDE * (p == PAIR_05 ? 5 : p + 1);
    vec a[TILE], b[TILE];
    UNROLL for (int c = 0; c < TILE; c++)
    {
        vec d[TILE];
        UNROLL for (int r = 0; r < TILE; r++) d[r] =
            c < cols ? LOAD(row[r] + (ptrdiff_t)(x + c) * LANES) : ZERO;
        grad_pair(p, d, &a[c], &b[c]);
    }
    grad_row(a, first, v);
    grad_row(b, second, v);
}

INLINE void grad_tile(const float *const row[TILE], int x, int cols, float *v)
{
    grad_rows(PAIR_12, row, x, cols, v);
    grad_rows(PAIR_34, row, x, cols, v);
    grad_rows(PAIR_05, row, x, cols, v);
}

static void grad_transform(const winograd_strip *s, float *plane, float *v)
{
    const float *row[TILE];
    rows_at(s, plane, s->ty * TILE, TILE, row);
    int x = s->tx * TILE;
    for (int t = 0; t < s->count; t++, x += TILE, v += LANES)
        if (x + TILE <= s->w)
            grad_tile(row, x, TILE, v);
        else
            grad_tile(row, x, s->w - x, v);
}

/* A^T m, 6 values -> 4, as pairs too: outputs 0 and 2, or 1 and 3. */
INLINE void output_pair(int odd, const vec m[SIDE], vec *a, vec *b)
{
    if (odd) {
        vec d1 = SUB(m[1], m[2]), d2 = SUB(m[3], m[4]);
        *a = FMA(SET(2), d2, d1);
        *b = FMA(SET(8), d2, ADD(d1, m[5]));
    } else {
        vec s1 = ADD(m[1], m[2]), s2 = ADD(m[3], m[4]);
        *a = ADD(ADD(m[0], s1), s2);
        *b = FMA(SET(4), s2, s1);
    }
}

INLINE void output_row(const vec m[SIDE], int cols, float *y)
{
    vec r[TILE];
    output_pair(0, m, &r[0], &r[2]);
    output_pair(1, m, &r[1], &r[3]);
    UNROLL for (int c = 0; c < TILE; c++) if (c < cols) STORE(y + c * LANES, r[c]);
}

/* Rows 0 and 2, or 1 and 3, of a tile; only `rows` x `cols` of its pixels exist. */
INLINE void output_rows(int odd, const float *m, int rows, int cols, float *y, ptrdiff_t line)
{
    vec a[SIDE], b[SIDE];
    UNROLL for (int c = 0; c < SIDE; c++)
    {
        vec d[SIDE];
        UNROLL for (int k = 0; k < SIDE; k++) d[k] = get(m, SIDE * k + c);
        output_pair(odd, d, &a[c], &b[c]);
    }
    if (odd < rows)
        output_row(a, cols, y + odd * line);
    if (odd + 2 < rows)
        output_row(b, cols, y + (odd + 2) * line);
}

INLINE void output_tile(const float *m, int rows, int cols, float *y, ptrdiff_t line)
{
    output_rows(0, m, rows, cols, y, line);
    output_rows(1, m, rows, cols, y, line);
}

static void output_transform(const winograd_strip *s, float *plane, float *m)
{
    int rows = s->h - s->ty * TILE, cols = s->w - s->tx * TILE;
    ptrdiff_t line = (ptrdiff_t)s->w * LANES;
    float *y = plane + s->ty * TILE * line + s->tx * TILE * LANES;
    int whole = rows < TILE ? 0 : cols / TILE < s->count ? cols / TILE : s->count;
    for (int t = 0; t < whole; t++, y += TILE * LANES, m += LANES)
        output_tile(m, TILE, TILE, y, line);
    for (int t = whole; t < s->count; t++, y += TILE * LANES, m += LANES)
        output_tile(m, rows, cols - t * TILE, y, line);
}

/* G g: 3 taps -> 6 values, and G^T u: 6 values -> 3 taps. */
INLINE void filter_line(vec g0, vec g1, vec g2, vec u[SIDE])
{
    vec even = MUL(SET(-1.f / 6), ADD(g0, g2)), odd = MUL(SET(1.f / 6), g1);
    vec even2 = FMA(SET(1.f / 24), g0, MUL(SET(1.f / 6), g2)), odd2 = MUL(SET(1.f / 12), g1);
    u[0] = MUL(SET(.25f), g0);
    u[1] = SUB(even, odd);
    u[2] = ADD(even, odd);
    u[3] = ADD(even2, odd2);
    u[4] = SUB(even2, odd2);
    u[5] = g2;
}

INLINE void taps_line(const vec u[SIDE], vec *g0, vec *g1, vec *g2)
{
    vec s = MUL(SET(-1.f / 6), ADD(u[1], u[2])), d = SUB(u[2], u[1]);
    vec s2 = ADD(u[3], u[4]), d2 = SUB(u[3], u[4]);
    *g0 = FMA(SET(.25f), u[0], FMA(SET(1.f / 24), s2, s));
    *g1 = FMA(SET(1.f / 6), d, MUL(SET(1.f / 12), d2));
    *g2 = ADD(FMA(SET(1.f / 6), s2, s), u[5]);
}

/* Filters of WIDTH outputs at once; u's values lie `step` floats apart. */
static void filter(const vec taps[9], float *u, size_t step)
{
    vec half[SIDE][3], r[SIDE];
    for (int c = 0; c < 3; c++) {
        filter_line(taps[c], taps[3 + c], taps[6 + c], r);
        for (int k = 0; k < SIDE; k++)
            half[k][c] = r[k];
    }
    for (int k = 0; k < SIDE; k++) {
        filter_line(half[k][0], half[k][1], half[k][2], r);
        for (int c = 0; c < SIDE; c++)
            STORE(u + (SIDE * k + c) * step, r[c]);
    }
}

static void filter_taps(const float *u, size_t step, vec taps[9])
{
    vec half[3][SIDE];
    for (int c = 0; c < SIDE; c++) {
        vec m[SIDE];
        for (int k = 0; k < SIDE; k++)
            m[k] = LOAD(u + (SIDE * k + c) * step);
        taps_line(m, &half[0][c], &half[1][c], &half[2][c]);
    }
    for (int k = 0; k < 3; k++)
        taps_line(half[k], &taps[3 * k], &taps[3 * k + 1], &taps[3 * k + 2]);
}

#define ONE(i)                                                                                     \
    {                                                                                              \
        i, 1                                                                                       \
    }
#define SIX(i) ONE(i), ONE(i + 1), ONE(i + 2), ONE(i + 3), ONE(i + 4), ONE(i + 5)
const winograd_method PART(stride1) = {
    .values = SIDE * SIDE,
    .tiles = 32,
    .group = {SIX(0), SIX(6), SIX(12), SIX(18), SIX(24), SIX(30)},
    .input = input_transform,
    .grad = grad_transform,
    .output = output_transform,
    .back_input = input_transform,
    .back_output = output_transform,
    .filter = filter,
    .taps = filter_taps,
};
