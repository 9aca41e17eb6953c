/* The cpu backend's kernels of which there is a set for each instruction set. */
#ifndef DRO_CPU_NET_SIMD_KERNELS_H
#define DRO_CPU_NET_SIMD_KERNELS_H

#include "direct.h"
#include "winograd.h"

typedef struct dro__matrix {
    const float *at;
    size_t row; /* the distance between rows */
    bool flip;  /* it is stored transposed */
} dro__matrix;

/* c (m, n) = a (m, k) b (k, n), row by row; sizes: m, n, k. False: it was not computed. */
typedef bool dro__product(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b,
                          float *c, size_t row_c);

typedef struct dro__simd {
    const char *name;
    int block; /* channels side by side */
    const dro__winograd *winograd;
    const dro__direct *direct;
    dro__product *product;
} dro__simd;

extern const dro__simd dro__base_simd; /* what every machine of this kind has */
#if defined(__x86_64__)
extern const dro__simd dro__avx2_simd, dro__avx512_simd;
#endif

/* The best set for this machine; that with blocks of this size, or NULL. */
const dro__simd *dro__simd_best(void);
const dro__simd *dro__simd_for(int block);

#endif
