/* The small matrix products of conv3, one matrix of weights at a time.
 *
 * Zen 4 starts one 512-bit FMA per cycle, which takes 4 cycles, and loads one
 * vector per cycle (a broadcast inside an FMA is nearly free); a store costs the
 * FMAs more than a cycle.  So a kernel wants many accumulators, fewer loads than
 * FMAs and few stores.  Both kernels hold a block of the result in registers,
 * rows (each a broadcast scalar) times nb vectors of output channels: 16x1, 12x2
 * or 6x4 to multiply, 16x1, 8x2 or 4x4 to accumulate.
 */
#include "winograd_parts.h"

int dro__winograd_group(int co)
{
    int blocks = co / LANES;
    return blocks % 4 == 0 ? 4 : blocks % 2 == 0 ? 2 : 1;
}

/* nt tiles x nb channel blocks of m.  nt and nb are constants after inlining. */
AVX512_INLINE void tiles_kernel(int nt, int nb, int ci, const float *v, const float *u, float *m,
                                size_t chan)
{
    vec acc[16][4];
    UNROLL for (int t = 0; t < nt; t++) UNROLL for (int b = 0; b < nb; b++) acc[t][b] =
        _mm512_setzero_ps();
    for (int i = 0; i < ci; i += LANES, v += chan)
        for (int k = 0; k < LANES; k++, u += nb * LANES) {
            vec w[4];
            UNROLL for (int b = 0; b < nb; b++) w[b] = _mm512_load_ps(u + b * LANES);
            UNROLL for (int t = 0; t < nt; t++)
            {
                vec x = SET(v[t * LANES + k]);
                UNROLL for (int b = 0; b < nb; b++) acc[t][b] = FMA(x, w[b], acc[t][b]);
            }
        }
    UNROLL for (int b = 0; b < nb; b++) UNROLL for (int t = 0; t < nt; t++)
        _mm512_store_ps(m + b * chan + t * LANES, acc[t][b]);
}

/* Covers `tiles` with kernels of falling size. */
#define TILES(nt, nb)                                                                              \
    for (; t + nt <= tiles; t += nt)                                                               \
    tiles_kernel(nt, nb, ci, v + t * LANES, u, m + t * LANES, chan)

AVX512 static void multiply_1(int tiles, int ci, const float *v, const float *u, float *m,
                              size_t chan)
{
    int t = 0;
    TILES(16, 1);
    TILES(8, 1);
    TILES(4, 1);
    TILES(1, 1);
}

AVX512 static void multiply_2(int tiles, int ci, const float *v, const float *u, float *m,
                              size_t chan)
{
    int t = 0;
    TILES(12, 2);
    TILES(8, 2);
    TILES(4, 2);
    TILES(2, 2);
    TILES(1, 2);
}

AVX512 static void multiply_4(int tiles, int ci, const float *v, const float *u, float *m,
                              size_t chan)
{
    int t = 0;
    TILES(6, 4);
    TILES(4, 4);
    TILES(2, 4);
    TILES(1, 4);
}

void dro__winograd_multiply(int tiles, int ci, int co, const float *v, const float *u, float *m,
                            size_t chan)
{
    int nb = dro__winograd_group(co);
    for (int o = 0; o < co; o += nb * LANES) {
        if (nb == 4)
            multiply_4(tiles, ci, v, u, m, chan);
        else if (nb == 2)
            multiply_2(tiles, ci, v, u, m, chan);
        else
            multiply_1(tiles, ci, v, u, m, chan);
        u += (size_t)ci * nb * LANES;
        m += nb * chan;
    }
}

/* ni input channels x nb blocks of output channels of acc, 16 registers.  The
 * sum starts from zero and is added to acc at the end: adding thousands of small
 * terms to a large accumulator would lose a digit. */
AVX512_INLINE void grad_kernel(int ni, int nb, int count, int tiles, const float *v, const float *d,
                               size_t chan, float *acc)
{
    vec sum[16][4];
    UNROLL for (int i = 0; i < ni; i++) UNROLL for (int b = 0; b < nb; b++) sum[i][b] =
        _mm512_setzero_ps();
    for (int q = 0; q < count; q++)
        for (int t = 0; t < tiles; t++) {
            const float *vt = v + q * STEP + t * LANES, *dt = d + q * STEP + t * LANES;
            vec g[4];
            UNROLL for (int b = 0; b < nb; b++) g[b] = _mm512_load_ps(dt + b * chan);
            UNROLL for (int i = 0; i < ni; i++)
            {
                vec x = SET(vt[i]);
                UNROLL for (int b = 0; b < nb; b++) sum[i][b] = FMA(x, g[b], sum[i][b]);
            }
        }
    UNROLL for (int i = 0; i < ni * nb; i++)
    {
        float *p = acc + i * LANES;
        _mm512_store_ps(p, ADD(_mm512_load_ps(p), sum[i / nb][i % nb]));
    }
}

#define GRAD(ni, nb)                                                                               \
    for (int k = 0; k < LANES; k += ni, acc += ni * nb * LANES)                                    \
    grad_kernel(ni, nb, count, tiles, v + i * chan + k, d, chan, acc)

AVX512 void dro__winograd_accumulate(int count, int tiles, int ci, int co, const float *v,
                                     const float *d, size_t chan, float *acc)
{
    int nb = dro__winograd_group(co);
    for (int o = 0; o < co; o += nb * LANES, d += nb * chan)
        for (int i = 0; i < ci / LANES; i++)
            if (nb == 4)
                GRAD(4, 4);
            else if (nb == 2)
                GRAD(8, 2);
            else
                GRAD(16, 1);
}
