/* 3 x 3 convolutions with padding 1, stride 1 or 2, and 16, 32 or 64 channels, on the tensor cores:
 * those of the ResNets for small images. The kernels compute the tail of their input when they read
 * it, accumulate the moments of their output when they write it, and apply a batch norm's backward
 * pass when they read a slope. */
#ifndef DRO_CUDA_CONV3_H
#define DRO_CUDA_CONV3_H

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro__conv3 {
    dro__parts parts;
    int bf16; /* all values are bfloat16; 0: floats, rounded to tf32 for the products */
    int in, out, stride;
    int height, width;         /* of the input */
    int out_height, out_width; /* of the output */
    const void *weights;       /* DRO__PACK_PRODUCTS or _BANDS */
    int share; /* a kernel takes 1/share of the GPU, so that other networks run at the same time */
    int bands; /* use the kernels by bands, with DRO__PACK_BANDS; see dro__gpu_conv3_bands_fit */
    int early; /* the previous kernel on the stream is one of these; the two may overlap */

    /* the input: x as stored; or (lazy) x is the z of its tail, and the input is computed from it
     * and from the residual, which may be NULL */
    const void *x, *x_residual;
    int lazy, x_relu;
    dro__numbers x_numbers;
    int x_finish; /* its numbers must be computed from the sums */
    dro__norm_source x_source;
    void *x_fill; /* where to store the computed input, or NULL */

    /* forward */
    void *z;
    double *sums; /* where the sums of z and z^2 are added, as in dro__numbers; NULL: nowhere */

    /* backward: g is the closed slope of the output; dz = p g + q (z - mean) + r, or g without a
     * norm */
    const void *g;
    int norm;
    dro__numbers numbers;
    int finish; /* its numbers must be computed from the sums; one block per part stores them */
    dro__norm_grads norm_grads;

    /* data gradient: dx = add + ...; closed, that is masked and its sums taken, if close is set */
    const void *add;
    void *dx;
    int close; /* x ends a tail, and this is the last write to its slope */
    const void *x_z;

    /* weight gradient, (out, real_in, 9) by part */
    int real_in;
    float *partial; /* dro__gpu_conv3_partial() floats; NULL: no weight gradient */
    int turn;       /* which of the DRO__CONV3_TURNS slots of partial to use */
    float *grads[2];
} dro__conv3;

enum { DRO__CONV3_TURNS = 4 };

/* DRO__PACK_PRODUCTS: the position of weight (n, k, tap), where the product sums over k_count
 * channels k. The layout is (n / 16, tap, k / 2 h, lane, 2, 2) words of 32 bits, with h = 8
 * channels in bfloat16 and 4 in tf32; a word is a pair of k in bfloat16 and one k in tf32. Within a
 * block of 16 n and 2 h k, lane 4 q + t has word t of each of the two groups of h channels, for n =
 * q / 2 * 4 + q % 2 and for n + 2. */
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

/* DRO__PACK_BANDS: the position of weight (n, k, tap), with `count` n and as many k. The layout is
 * (n / g, tap, k / 8, n % g, k % 8), where g is 32, or count if that is less. The n of a group are
 * permuted: a thread gets every fourth pair of a product's columns, and with this order those are
 * neighbouring channels. */
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

/* The compute capability for which the code in use was compiled, e.g. 90 for 9.0; 0: the build has
 * no code for this GPU; -1: unknown. From 90 on kernels overlap. */
int dro__gpu_code(void);
/* Whether there are kernels for this shape, and the GPU has enough shared memory for forward and
 * backward. bfloat16 needs no more than the 99 KB that every GPU has; in tf32, 64 channels need 172
 * KB, and 32 to 64 channels 110 KB. Code for 8.x uses at most the 163 KB of an 8.0 GPU on later
 * ones too. */
int dro__gpu_conv3_fits(int bf16, int in, int out, int stride);
/* Bytes of shared memory that a block of the backward kernel takes. */
int dro__gpu_conv3_back_bytes(int bf16, int in, int out);
void dro__gpu_conv3_forward(cudaStream_t s, const dro__conv3 *c);

/* The size of dro__conv3.partial, in floats. */
size_t dro__gpu_conv3_partial(void);
/* conv3_back computes dx (unless NULL) and the weight gradient of each block; conv3_sum, called
 * later, sums the latter over the blocks. */
void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *c);

/* The same in bfloat16 by warp groups. _fit: whether GPU and shape allow it. */
int dro__gpu_conv3_bands_fit(int in, int out, int stride, int height, int width);
void dro__gpu_conv3_bands_forward(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_back(cudaStream_t s, const dro__conv3 *c);
void dro__gpu_conv3_bands_sum(cudaStream_t s, const dro__conv3 *c);

#ifdef __cplusplus
}
#endif
#endif
