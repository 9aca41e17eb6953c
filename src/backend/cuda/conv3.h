/* Convolutions of 3 x 3, padding 1, stride 1 or 2, between 16, 32 and 64 channels, on the tensor cores: what the
 * ResNets for small images are made of. They read their input through the tail that makes it, gather the
 * moments of what they write, and do a batch norm's backward pass where they read a slope. */
#ifndef DRO_CUDA_CONV3_H
#define DRO_CUDA_CONV3_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro__conv3 {
    dro__parts parts;
    int bf16; /* of all values: bfloat16, or floats that are rounded to tf32 */
    int in, out, stride;
    int height, width;         /* of the input */
    int out_height, out_width; /* of the output */
    const void *weights;       /* DRO__PACK_TAPS, or in bfloat16 DRO__PACK_PRODUCTS or _BANDS */
    int share; /* of how many parts of the GPU a kernel takes one, so that other networks' run beside it */
    int bands; /* done by warp groups, the weights DRO__PACK_BANDS; see dro__gpu_conv3_bands_fit */
    int early; /* the kernel queued before is one of these: this one may begin while that one ends */

    /* the input: as it is, or (lazy) worked out of the z of its tail and the residual, which may be NULL */
    const void *x, *x_residual;
    int lazy, x_relu;
    dro__numbers x_numbers;
    int x_finish; /* its numbers are still to be made from the sums */
    dro__norm_source x_source;
    void *x_fill; /* where the input is to be kept, or NULL */

    /* forward */
    void *z;
    double *sums; /* of z and z^2, as in dro__numbers, are added here; NULL: not wanted */

    /* backward: g is the slope of the tail's sum; dz = p g + q (z - mean) + r, or g without a norm */
    const void *g;
    int norm;
    dro__numbers numbers;
    int finish; /* its numbers are still to be made from the sums; the weight gradient keeps them */
    dro__norm_grads norm_grads;

    /* data gradient: dx = add + ..., closed (masked, its sums taken) when close is set */
    const void *add;
    void *dx;
    int close;     /* x is the end of a tail whose slope is complete with this */
    const void *y; /* the mask comes from y > 0; NULL: from the lazy tail */
    const void *x_z;

    /* weight gradient, (out, real_in, 9) by part */
    int real_in;
    float *partial; /* dro__gpu_conv3_partial() or _tf32_partial() floats; NULL: not wanted */
    int turn;       /* bfloat16: which of the DRO__CONV3_TURNS places of partial */
    float *grads[2];
} dro__conv3;

enum { DRO__CONV3_TURNS = 4, DRO__CONV3_SUMS = 2 };

/* tf32: weight gradients that are still to be summed over the blocks that made them. */
typedef struct dro__conv3_sums {
    int parts, count;
    size_t used; /* floats of dro__conv3.partial */
    struct {
        const float *from; /* (parts, blocks, 9, in, out) */
        int blocks, in, out, real_in;
        float *grads[2];
    } of[DRO__CONV3_SUMS];
} dro__conv3_sums;

/* DRO__PACK_PRODUCTS: where weight (n, k, tap) is, of k_count channels that are summed over: (n / 16, tap, k / 16,
 * lane, 2, 2) pairs of k. Lane q, t has k = 2 t and 2 t + 8, and n = q / 2 * 4 + q % 2 and two more. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline size_t
    dro__conv3_weight_at(unsigned n, unsigned k, unsigned tap, unsigned k_count)
{
    unsigned in16 = n % 16, lane = (in16 / 4 * 2 + in16 % 2) * 4 + k % 8 / 2;
    unsigned word = in16 / 2 % 2 * 2 + k % 16 / 8;
    return ((((size_t)(n / 16) * 9 + tap) * (k_count / 16) + k / 16) * 32 + lane) * 8 + word * 2 +
           k % 2;
}

/* DRO__PACK_BANDS: where weight (n, k, tap) is, of as many n as k: (n / g, tap, k / 8, n % g, k % 8), for g = 32 or all n
 * if fewer, in the order in which a thread that has every fourth pair of columns has neighbours. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline size_t
    dro__conv3_band_at(unsigned n, unsigned k, unsigned tap, unsigned count)
{
    unsigned g = count < 32 ? count : 32, each = g / 4, i = n % g % each;
    unsigned at = i / 2 * 8 + n % g / each * 2 + i % 2;
    return ((((size_t)(n / g) * 9 + tap) * (count / 8) + k / 8) * g + at) * 8 + k % 8;
}

int dro__gpu_conv3_fits(int in, int out, int stride);
void dro__gpu_conv3_forward(cudaStream_t s, const dro__conv3 *c);

/* bfloat16: dx (unless NULL) and the weight gradient by block; and the sum over the blocks, later. Floats of room. */
size_t dro__gpu_conv3_partial(void);
void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *c);

/* The same by warp groups, where the GPU has them and the shape is one of theirs. */
int dro__gpu_conv3_bands_fit(int in, int out, int stride, int height, int width);
void dro__gpu_conv3_bands_forward(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_sum(cudaStream_t s, const dro__conv3 *c);

/* tf32. Floats of room for DRO__CONV3_SUMS such convolutions. */
size_t dro__gpu_conv3_tf32_partial(int in, int out);
void dro__gpu_conv3_tf32_forward(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_tf32_data(cudaStream_t s, const dro__conv3 *c);
/* Puts what is to be summed, by dro__gpu_conv3_tf32_sum, behind what is in `sums` (fewer than DRO__CONV3_SUMS). */
void dro__gpu_conv3_tf32_weight(cudaStream_t s, const dro__conv3 *c, dro__conv3_sums *sums);
void dro__gpu_conv3_tf32_sum(cudaStream_t s, const dro__conv3_sums *sums);

#ifdef __cplusplus
}
#endif
#endif
