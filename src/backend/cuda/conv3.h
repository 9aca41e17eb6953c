/* Convolutions of 3 x 3, padding 1, stride 1 or 2, between 16, 32 and 64 channels, on the tensor
 * cores: what the ResNets for small images are made of. They read their input through the tail that
 * makes it, gather the moments of what they write, and do a batch norm's backward pass where they
 * read a slope. */
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
    const void *weights;       /* DRO__PACK_PRODUCTS or _BANDS */
    int share; /* a kernel takes 1/share of the GPU, so that other networks run at the same time */
    int bands; /* done by warp groups, the weights DRO__PACK_BANDS; see dro__gpu_conv3_bands_fit */
    int early; /* the kernel queued before is one of these: the two may overlap */

    /* the input: as it is, or (lazy) computed of the z of its tail and the residual, which may be
     * NULL */
    const void *x, *x_residual;
    int lazy, x_relu;
    dro__numbers x_numbers;
    int x_finish; /* its numbers are still to be made from the sums */
    dro__norm_source x_source;
    void *x_fill; /* where the input is to be kept, or NULL */

    /* forward */
    void *z;
    double *sums; /* of z and z^2, as in dro__numbers, are added here; NULL: not wanted */

    /* backward: g is the slope of the tail's sum; dz = p g + q (z - mean) + r, or g without a
     * norm */
    const void *g;
    int norm;
    dro__numbers numbers;
    int finish; /* its numbers are still to be made from the sums; the weight gradient keeps them */
    dro__norm_grads norm_grads;

    /* data gradient: dx = add + ..., closed (masked, its sums taken) when close is set */
    const void *add;
    void *dx;
    int close; /* x is the end of a tail whose slope is complete with this */
    const void *x_z;

    /* weight gradient, (out, real_in, 9) by part */
    int real_in;
    float *partial; /* dro__gpu_conv3_partial() floats; NULL: not wanted */
    int turn;       /* which of the DRO__CONV3_TURNS places of partial */
    float *grads[2];
} dro__conv3;

enum { DRO__CONV3_TURNS = 4 };

/* DRO__PACK_PRODUCTS: where weight (n, k, tap) is, of k_count channels that are summed over: (n /
 * 16, tap, k / 2 h, lane, 2, 2) words, of h = 8 channels in bfloat16 and 4 in tf32, and a word is a
 * pair of k there and one k here. Lane q, t has the t-th word of either h channels, and n = q / 2 *
 * 4 + q % 2 and two more. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline size_t
    dro__conv3_weight_at(int bf16, unsigned n, unsigned k, unsigned tap, unsigned k_count)
{
    unsigned h = bf16 ? 8 : 4, each = h / 4, in16 = n % 16;
    unsigned lane = (in16 / 4 * 2 + in16 % 2) * 4 + k % h / each;
    unsigned word = in16 / 2 % 2 * 2 + k % (2 * h) / h;
    size_t product = ((size_t)(n / 16) * 9 + tap) * (k_count / (2 * h)) + k / (2 * h);
    return ((product * 32 + lane) * 4 + word) * each + k % each;
}

/* DRO__PACK_BANDS: where weight (n, k, tap) is, of as many n as k: (n / g, tap, k / 8, n % g, k %
 * 8), for g = 32 or all n if fewer, in the order in which a thread that has every fourth pair of
 * columns has neighbours. */
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

/* The compute capability that the code in use was compiled for, as 90; 0: the build has none for
 * this GPU. From 90 on kernels overlap. */
int dro__gpu_code(void);
/* Whether there is one, and the GPU has the shared memory for both its kernels: in bfloat16 that of
 * every GPU (99 KB) is enough, in tf32 64 channels need 172 KB and 32 to 64 channels 110. Code for
 * 8.x uses at most the 163 KB of an 8.0 GPU on later ones too. */
int dro__gpu_conv3_fits(int bf16, int in, int out, int stride);
/* Bytes of shared memory that a block of the backward kernel takes. */
int dro__gpu_conv3_back_bytes(int bf16, int in, int out);
void dro__gpu_conv3_forward(cudaStream_t s, const dro__conv3 *c);

/* Floats of memory that the weight gradients of the blocks need. */
size_t dro__gpu_conv3_partial(void);
/* conv3_back computes dx (unless NULL) and the weight gradient of each block; conv3_sum, later, the
 * sum over the blocks. */
void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *c);

/* bfloat16: the same by warp groups, where the GPU has them and the shape is one of theirs. */
int dro__gpu_conv3_bands_fit(int in, int out, int stride, int height, int width);
void dro__gpu_conv3_bands_forward(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_sum(cudaStream_t s, const dro__conv3 *c);

#ifdef __cplusplus
}
#endif
#endif
