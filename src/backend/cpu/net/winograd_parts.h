/* What the Winograd files share: layout and the parts. */
#ifndef DRO_CPU_NET_WINOGRAD_PARTS_H
#define DRO_CPU_NET_WINOGRAD_PARTS_H

#include "simd.h"

/* A tile is 4x4 pixels (of the smaller image, if there is a stride).  A method
 * turns the inputs of a tile into some number of values, multiplies each by a
 * matrix (ci x co) of transformed weights, and turns the products into outputs.
 *
 * The values of up to BLOCK tiles are an array (channels/LANES, values, BLOCK + 1,
 * LANES).  Its inner strides are constants, so that the places of a tile need no
 * address arithmetic; the one spare tile makes the stride odd in cache lines, so
 * that they fall into different sets of the L1 cache. */
enum {
    TILE = 4,
    MATRICES = DRO__WINOGRAD_MATRICES,
    BLOCK = 32,
    STEP = (BLOCK + 1) * LANES /* floats from value to value */
};

/* Neighbouring tiles of one row of tiles: (ty, tx) .. (ty, tx + count - 1). */
typedef struct {
    int h, w; /* the image, in pixels */
    int ty, tx, count;
    const float *zeros; /* a row of w pixels */
} winograd_strip;

/* A transform of WIDTH channels of the tiles of a strip of one plane (h, w, LANES), from the
 * plane to `values` or back; `values` is the place of the first tile's first value. */
typedef void winograd_transform(const winograd_strip *s, float *plane, float *values);
/* WIDTH filters, one per lane, to their elements of u (`step` floats apart), and gradients back. */
typedef void winograd_filter(const vec taps[9], float *u, size_t step);
typedef void winograd_taps(const float *u, size_t step, vec taps[9]);

/* A method; which matrix serves which values: matrix i has values group[i].first
 * .. group[i].first + group[i].count - 1. */
typedef struct {
    int values; /* per tile */
    int tiles;  /* per block: what fits the L2 cache */
    struct {
        unsigned char first, count;
    } group[MATRICES];
    /* x to values; dy to values, for the gradient of the weights; products to y */
    winograd_transform *input, *grad, *output;
    winograd_transform *back_input, *back_output; /* dy to values; products to dx */
    winograd_filter *filter;
    winograd_taps *taps;
} winograd_method;

extern const winograd_method PART(stride1); /* winograd_tiles.c, 36 values */
extern const winograd_method PART(stride2); /* winograd2_tiles.c, 81 values */

#define winograd_group      PART(group)
#define winograd_multiply   PART(multiply)
#define winograd_accumulate PART(accumulate)

/* Vectors of output channels that the matrix kernels treat together: 4, 2 or 1. */
int winograd_group(int co);

/* m[t][o] = sum_i v[t][i] u[i][o] over `tiles` tiles of one value.  Channel
 * blocks lie `chan` floats apart in v and in m. */
void winograd_multiply(int tiles, int ci, int co, const float *v, const float *u, float *m,
                       size_t chan);
/* acc[i][o] += sum_t v[t][i] d[t][o] over `tiles` tiles of `count` values. */
void winograd_accumulate(int count, int tiles, int ci, int co, const float *v, const float *d,
                         size_t chan, float *acc);

#endif
