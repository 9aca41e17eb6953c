/* Matrix products of our own, and the table of an instruction set's kernels. An element of c is
 * summed in the same order whatever the number of rows. */
#include "simd.h"

#include <string.h>

enum { DEEP = 128, COLUMNS = 2 * WIDTH, TALL = REGISTERS == 32 ? 8 : 4, NARROW = 16 };

typedef float loose __attribute__((vector_size(WIDTH * sizeof(float)), may_alias, aligned(4)));
#define LOAD_ANY(from) ((vec)(*(const loose *)(from)))

static float element(const dro__matrix *m, size_t row, size_t column)
{
    return m->at[m->flip ? column * m->row + row : row * m->row + column];
}

/* rows x COLUMNS of c (+)= rows of a, from depth `from` on, times columns of b, whose rows are
 * `stride` apart. */
INLINE void block_kernel(int rows, const dro__matrix *a, size_t first, size_t from, size_t deep,
                         const float *b, size_t stride, float c[TALL][COLUMNS])
{
    vec acc[TALL][2];
    UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = ZERO;
    for (size_t k = 0; k < deep; k++, b += stride) {
        vec b0 = LOAD_ANY(b), b1 = LOAD_ANY(b + WIDTH);
        UNROLL for (int i = 0; i < rows; i++)
        {
            vec one = SET(element(a, first + (size_t)i, from + k));
            acc[i][0] = FMA(one, b0, acc[i][0]);
            acc[i][1] = FMA(one, b1, acc[i][1]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
    {
        STORE(c[i], acc[i][0]);
        STORE(c[i] + WIDTH, acc[i][1]);
    }
}

static void rows_kernel(int rows, const dro__matrix *a, size_t first, size_t from, size_t deep,
                        const float *b, size_t stride, float c[TALL][COLUMNS])
{
    if (rows == TALL)
        block_kernel(TALL, a, first, from, deep, b, stride, c);
    else
        for (int i = 0; i < rows; i++)
            block_kernel(1, a, first + (size_t)i, from, deep, b, stride, c + i);
}

/* The sum of a vector's places, in halves. */
INLINE float total(vec v)
{
    float at[WIDTH] __attribute__((aligned(64)));
    STORE(at, v);
    UNROLL for (int half = WIDTH / 2; half > 0; half /= 2) for (int l = 0; l < half; l++) at[l] +=
        at[l + half];
    return at[0];
}

INLINE vec load_some(const float *from, size_t count)
{
    vec v = ZERO;
    memcpy(&v, from, count * sizeof *from);
    return v;
}

/* c: rows of a times one row of b. Both are read as they are stored: nothing is packed. */
INLINE void dots_kernel(int rows, const float *a, size_t row_a, const float *b, size_t depth,
                        float *c, size_t row_c)
{
    vec acc[TALL];
    size_t k = 0;
    UNROLL for (int i = 0; i < rows; i++) acc[i] = ZERO;
    for (; k + WIDTH <= depth; k += WIDTH) {
        vec y = LOAD_ANY(b + k);
        UNROLL for (int i = 0; i < rows; i++) acc[i] =
            FMA(LOAD_ANY(a + (size_t)i * row_a + k), y, acc[i]);
    }
    vec rest = load_some(b + k, depth - k);
    UNROLL for (int i = 0; i < rows; i++)
    {
        vec x = load_some(a + (size_t)i * row_a + k, depth - k);
        c[(size_t)i * row_c] = total(FMA(x, rest, acc[i]));
    }
}

static void dots(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b, float *c,
                 size_t row_c)
{
    for (size_t j = 0; j < sizes[1]; j++) {
        const float *y = b->at + j * b->row;
        size_t i = 0;
        for (; i + TALL <= sizes[0]; i += TALL)
            dots_kernel(TALL, a->at + i * a->row, a->row, y, sizes[2], c + i * row_c + j, row_c);
        for (; i < sizes[0]; i++)
            dots_kernel(1, a->at + i * a->row, a->row, y, sizes[2], c + i * row_c + j, row_c);
    }
}

bool PART(product)(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b, float *c,
                   size_t row_c)
{
    size_t m = sizes[0], n = sizes[1], depth = sizes[2];
    float packed[DEEP * COLUMNS] __attribute__((aligned(64)));
    float part[TALL][COLUMNS] __attribute__((aligned(64)));
    if (n <= NARROW && !a->flip && b->flip) {
        dots(sizes, a, b, c, row_c);
        return true;
    }
    for (size_t j = 0; j < n; j += COLUMNS) {
        size_t columns = n - j < COLUMNS ? n - j : COLUMNS;
        bool in_place = columns == COLUMNS && !b->flip;
        for (size_t k = 0; k == 0 || k < depth; k += DEEP) {
            size_t deep = depth - k < DEEP ? depth - k : DEEP;
            const float *from = in_place ? b->at + k * b->row + j : packed;
            for (size_t q = 0; !in_place && q < deep; q++)
                for (size_t l = 0; l < COLUMNS; l++)
                    packed[q * COLUMNS + l] = l < columns ? element(b, k + q, j + l) : 0;
            for (size_t i = 0; i < m; i += TALL) {
                int rows = (int)(m - i < TALL ? m - i : TALL);
                rows_kernel(rows, a, i, k, deep, from, in_place ? b->row : COLUMNS, part);
                for (int r = 0; r < rows; r++)
                    for (size_t l = 0; l < columns; l++) {
                        float *to = c + (i + (size_t)r) * row_c + j + l;
                        *to = (k ? *to : 0) + part[r][l];
                    }
            }
        }
    }
    return true;
}

#define DRO__TEXT_(name) #name
#define DRO__TEXT(name)  DRO__TEXT_(name)

const dro__simd PART(simd) = {.name = DRO__TEXT(DRO__SIMD),
                              .block = LANES,
                              .winograd = &PART(winograd),
                              .direct = &PART(direct),
                              .product = PART(product)};
