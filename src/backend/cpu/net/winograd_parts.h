/* What the conv3 files share: vector shorthands, layout, and the parts. */
#ifndef DRO_CPU_NET_WINOGRAD_PARTS_H
#define DRO_CPU_NET_WINOGRAD_PARTS_H

#include <immintrin.h>
#include <stddef.h>

#define AVX512        __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) static inline
#define UNROLL        _Pragma("GCC unroll 32")

typedef __m512 vec; /* 16 channels of one pixel, or of one value of a tile */

#define ADD  _mm512_add_ps
#define SUB  _mm512_sub_ps
#define MUL  _mm512_mul_ps
#define SET  _mm512_set1_ps
#define FMA  _mm512_fmadd_ps  /* a b + c */
#define FNMA _mm512_fnmadd_ps /* c - a b */

/* 0, step, ..., 15 step: the places of 16 filters, for gathers and scatters. */
AVX512_INLINE __m512i dro__winograd_lanes_times(int step)
{
    __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_mullo_epi32(lane, _mm512_set1_epi32(step));
}

/* A tile is 4x4 pixels (of the smaller image, if there is a stride).  A method
 * turns the inputs of a tile into some number of values, multiplies each by a
 * matrix (ci x co) of transformed weights, and turns the products into outputs.
 *
 * The values of up to BLOCK tiles are an array (channels/16, values, BLOCK + 1,
 * 16).  Its inner strides are constants, so that the places of a tile need no
 * address arithmetic; the one spare tile makes the stride odd in cache lines, so
 * that they fall into different sets of the L1 cache. */
enum {
    LANES = 16, /* channels in one block */
    TILE = 4,
    MATRICES = 36, /* transformed weights, in every method */
    BLOCK = 32,
    STEP = (BLOCK + 1) * LANES /* floats from value to value */
};

/* Neighbouring tiles of one row of tiles: (ty, tx) .. (ty, tx + count - 1). */
typedef struct {
    int h, w; /* the image, in pixels */
    int ty, tx, count;
    const float *zeros; /* a row of w pixels */
} dro__winograd_strip;

/* A transform of the tiles of a strip of one plane (h, w, 16), from the plane to
 * `values` or back; `values` is the place of the first tile's first value. */
typedef void dro__winograd_transform(const dro__winograd_strip *s, float *plane, float *values);

/* A method; which matrix serves which values: matrix i has values group[i].first
 * .. group[i].first + group[i].count - 1. */
typedef struct {
    int values; /* per tile */
    int tiles;  /* per block: what fits the L2 cache */
    struct {
        unsigned char first, count;
    } group[MATRICES];
} dro__winograd_method;

/* 3x3 with stride 1 (winograd_tiles.c), 36 values: `input` makes them from x, `grad`
 * from dy (for the gradient of the weights), `output` makes y of the products. */
extern const dro__winograd_method dro__winograd_stride1;
dro__winograd_transform dro__winograd_input, dro__winograd_grad, dro__winograd_output;

/* 3x3 with stride 2 (winograd2_tiles.c), 81 values; the `back` pair leads from dy to
 * dx. */
extern const dro__winograd_method dro__winograd_stride2;
dro__winograd_transform dro__winograd2_input, dro__winograd2_grad, dro__winograd2_output;
dro__winograd_transform dro__winograd2_back_input, dro__winograd2_back_output;

/* 16 filters, one per lane, to their 36 elements of u (`step` floats apart), and
 * gradients back. */
void dro__winograd_filter(const vec taps[9], float *u, size_t step);
void dro__winograd_filter_grad(const float *u, size_t step, vec taps[9]);
void dro__winograd2_filter(const vec taps[9], float *u, size_t step);
void dro__winograd2_filter_grad(const float *u, size_t step, vec taps[9]);

/* Output channel blocks that the matrix kernels treat together: 4, 2 or 1. */
int dro__winograd_group(int co);

/* m[t][o] = sum_i v[t][i] u[i][o] over `tiles` tiles of one value.  Channel
 * blocks lie `chan` floats apart in v and in m. */
void dro__winograd_multiply(int tiles, int ci, int co, const float *v, const float *u, float *m,
                            size_t chan);
/* acc[i][o] += sum_t v[t][i] d[t][o] over `tiles` tiles of `count` values. */
void dro__winograd_accumulate(int count, int tiles, int ci, int co, const float *v, const float *d,
                              size_t chan, float *acc);

#endif
