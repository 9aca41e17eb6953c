/* Matrix products without oneDNN, and the table of an instruction set's kernels. */
#include "simd.h"

enum { DEEP = 128, COLUMNS = 2 * WIDTH, TALL = REGISTERS == 32 ? 8 : 4 };

static float element(const dro__matrix *m, size_t row, size_t column)
{
    return m->at[m->flip ? column * m->row + row : row * m->row + column];
}

/* rows x COLUMNS of c (+)= rows of a, from depth `from` on, times the packed columns of b. */
INLINE void block_kernel(int rows, const dro__matrix *a, size_t first, size_t from, size_t deep,
                         const float *packed, float c[TALL][COLUMNS])
{
    vec acc[TALL][2];
    UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = ZERO;
    for (size_t k = 0; k < deep; k++, packed += COLUMNS) {
        vec b0 = LOAD(packed), b1 = LOAD(packed + WIDTH);
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
                        const float *packed, float c[TALL][COLUMNS])
{
    if (rows == TALL)
        block_kernel(TALL, a, first, from, deep, packed, c);
    else
        for (int i = 0; i < rows; i++)
            block_kernel(1, a, first + (size_t)i, from, deep, packed, c + i);
}

void PART(product)(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b, float *c,
                   size_t row_c)
{
    size_t m = sizes[0], n = sizes[1], depth = sizes[2];
    float packed[DEEP * COLUMNS] __attribute__((aligned(64)));
    float part[TALL][COLUMNS] __attribute__((aligned(64)));
    for (size_t j = 0; j < n; j += COLUMNS) {
        size_t columns = n - j < COLUMNS ? n - j : COLUMNS;
        for (size_t k = 0; k == 0 || k < depth; k += DEEP) {
            size_t deep = depth - k < DEEP ? depth - k : DEEP;
            for (size_t q = 0; q < deep; q++)
                for (size_t l = 0; l < COLUMNS; l++)
                    packed[q * COLUMNS + l] = l < columns ? element(b, k + q, j + l) : 0;
            for (size_t i = 0; i < m; i += TALL) {
                int rows = (int)(m - i < TALL ? m - i : TALL);
                rows_kernel(rows, a, i, k, deep, packed, part);
                for (int r = 0; r < rows; r++)
                    for (size_t l = 0; l < columns; l++) {
                        float *to = c + (i + (size_t)r) * row_c + j + l;
                        *to = (k ? *to : 0) + part[r][l];
                    }
            }
        }
    }
}

#define DRO__TEXT_(name) #name
#define DRO__TEXT(name)  DRO__TEXT_(name)

const dro__simd PART(simd) = {.name = DRO__TEXT(DRO__SIMD),
                              .block = LANES,
                              .winograd = &PART(winograd),
                              .direct = &PART(direct),
                              .product = PART(product)};
