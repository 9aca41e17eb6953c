/* The small matrix products of Winograd's method, one matrix of weights at a time.
 *
 * Zen 4 starts one 512-bit FMA (two of 256 bits) per cycle, which takes 4 cycles, and loads one
 * vector per cycle (two of 256 bits; a broadcast inside a 512-bit FMA is nearly free); a store
 * costs the FMAs more than a cycle.  So a kernel wants many accumulators, fewer loads than FMAs
 * and few stores.  Both kernels hold a block of the result in registers, rows (each a broadcast
 * scalar) times nb vectors of output channels. Of 32 registers: 16x1, 12x2 or 6x4 to multiply,
 * 16x1, 8x2 or 4x4 to accumulate; of 16: 12x1 or 6x2, and 8x1 or 4x2. */
#include "winograd_parts.h"

enum { WIDEST = REGISTERS == 32 ? 4 : 2 };

int winograd_group(int co)
{
    int vectors = co / WIDTH;
    if (WIDEST == 4 && vectors % 4 == 0)
        return 4;
    return vectors % 2 == 0 ? 2 : 1;
}

/* Where vector b of the output channels is. */
INLINE size_t vector_at(int b, size_t chan)
{
    return (size_t)(b / PARTS) * chan + (size_t)(b % PARTS) * WIDTH;
}

/* nt tiles x nb vectors of m.  nt and nb are constants after inlining. */
INLINE void tiles_kernel(int nt, int nb, int ci, const float *v, const float *u, float *m,
                         size_t chan)
{
    vec acc[16][4];
    UNROLL for (int t = 0; t < nt; t++) UNROLL for (int b = 0; b < nb; b++) acc[t][b] = ZERO;
    for (int i = 0; i < ci; i += LANES, v += chan)
        for (int k = 0; k < LANES; k++, u += nb * WIDTH) {
            vec w[4];
            UNROLL for (int b = 0; b < nb; b++) w[b] = LOAD(u + b * WIDTH);
            UNROLL for (int t = 0; t < nt; t++)
            {
                vec x = SET(v[t * LANES + k]);
                UNROLL for (int b = 0; b < nb; b++) acc[t][b] = FMA(x, w[b], acc[t][b]);
            }
        }
    UNROLL for (int b = 0; b < nb; b++) UNROLL for (int t = 0; t < nt; t++)
        STORE(m + vector_at(b, chan) + t * LANES, acc[t][b]);
}

/* Covers `tiles` with kernels of falling size. */
#define TILES(nt, nb)                                                                              \
    for (; t + nt <= tiles; t += nt)                                                               \
    tiles_kernel(nt, nb, ci, v + t * LANES, u, m + t * LANES, chan)

static void multiply_1(int tiles, int ci, const float *v, const float *u, float *m, size_t chan)
{
    int t = 0;
#if REGISTERS == 32
    TILES(16, 1);
#else
    TILES(12, 1);
#endif
    TILES(8, 1);
    TILES(4, 1);
    TILES(1, 1);
}

static void multiply_2(int tiles, int ci, const float *v, const float *u, float *m, size_t chan)
{
    int t = 0;
#if REGISTERS == 32
    TILES(12, 2);
    TILES(8, 2);
#else
    TILES(6, 2);
#endif
    TILES(4, 2);
    TILES(2, 2);
    TILES(1, 2);
}

#if REGISTERS == 32
static void multiply_4(int tiles, int ci, const float *v, const float *u, float *m, size_t chan)
{
    int t = 0;
    TILES(6, 4);
    TILES(4, 4);
    TILES(2, 4);
    TILES(1, 4);
}
#endif

void winograd_multiply(int tiles, int ci, int co, const float *v, const float *u, float *m,
                       size_t chan)
{
    int nb = winograd_group(co);
    for (int b = 0; b < co / WIDTH; b += nb, u += (size_t)ci * nb * WIDTH) {
        float *to = m + vector_at(b, chan);
#if REGISTERS == 32
        if (nb == 4)
            multiply_4(tiles, ci, v, u, to, chan);
        else
#endif
            if (nb == 2)
            multiply_2(tiles, ci, v, u, to, chan);
        else
            multiply_1(tiles, ci, v, u, to, chan);
    }
}

/* ni input channels x nb vectors of output channels of acc, SUMS registers.  The
 * sum starts from zero and is added to acc at the end: adding thousands of small
 * terms to a large accumulator would lose a digit. */
INLINE void grad_kernel(int ni, int nb, int count, int tiles, const float *v, const float *d,
                        size_t chan, float *acc)
{
    vec sum[16][4];
    UNROLL for (int i = 0; i < ni; i++) UNROLL for (int b = 0; b < nb; b++) sum[i][b] = ZERO;
    for (int q = 0; q < count; q++)
        for (int t = 0; t < tiles; t++) {
            const float *vt = v + q * STEP + t * LANES, *dt = d + q * STEP + t * LANES;
            vec g[4];
            UNROLL for (int b = 0; b < nb; b++) g[b] = LOAD(dt + vector_at(b, chan));
            UNROLL for (int i = 0; i < ni; i++)
            {
                vec x = SET(vt[i]);
                UNROLL for (int b = 0; b < nb; b++) sum[i][b] = FMA(x, g[b], sum[i][b]);
            }
        }
    UNROLL for (int i = 0; i < ni * nb; i++)
    {
        float *p = acc + i * WIDTH;
        STORE(p, ADD(LOAD(p), sum[i / nb][i % nb]));
    }
}

#define GRAD(ni, nb)                                                                               \
    for (int k = 0; k < LANES; k += ni, acc += ni * nb * WIDTH)                                    \
    grad_kernel(ni, nb, count, tiles, v + i * chan + k, d + vector_at(b, chan), chan, acc)

void winograd_accumulate(int count, int tiles, int ci, int co, const float *v, const float *d,
                         size_t chan, float *acc)
{
    int nb = winograd_group(co);
    for (int b = 0; b < co / WIDTH; b += nb)
        for (int i = 0; i < ci / LANES; i++)
#if REGISTERS == 32
            if (nb == 4)
                GRAD(4, 4);
            else
#endif
                if (nb == 2)
                GRAD(SUMS / 2, 2);
            else
                GRAD(LANES, 1);
}
