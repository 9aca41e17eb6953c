/* Vectors for the kernels that are compiled once for each instruction set (cmake/Cpu.cmake: the
 * files simd_NAME.c and winograd*.c), with DRO__SIMD as its name: what they export is called
 * dro__NAME_*. The vectors are the compiler's own (vector_size), so that one source serves all;
 * products and sums become fused where the machine can. */
#ifndef DRO_CPU_NET_SIMD_H
#define DRO_CPU_NET_SIMD_H

#include "simd_kernels.h"

#define DRO__GLUE_(set, name) dro__##set##_##name
#define DRO__GLUE(set, name)  DRO__GLUE_(set, name)
#define PART(name)            DRO__GLUE(DRO__SIMD, name)

#define INLINE __attribute__((always_inline)) static inline
#define UNROLL _Pragma("GCC unroll 32")

/* LANES: channels of a block, which lie side by side in memory. WIDTH: those that one vector holds.
 * REGISTERS: how many vectors the machine holds. */
#if defined(__AVX512F__)
enum { LANES = 16, WIDTH = 16 };
#define REGISTERS 32
#elif defined(__AVX2__)
enum { LANES = 8, WIDTH = 8 };
#define REGISTERS 16
#elif defined(__aarch64__)
enum { LANES = 8, WIDTH = 4 };
#define REGISTERS 32
#else
enum { LANES = 8, WIDTH = 4 };
#define REGISTERS 16
#endif

typedef float vec __attribute__((vector_size(WIDTH * sizeof(float)), may_alias));

#define LOAD(from)    (*(const vec *)(from))
#define STORE(to, v)  ((void)(*(vec *)(to) = (v)))
#define SET(x)        ((float)(x) - (vec){0}) /* x in all places */
#define ZERO          ((vec){0})
#define ADD(a, b)     ((a) + (b))
#define SUB(a, b)     ((a) - (b))
#define MUL(a, b)     ((a) * (b))
#define FMA(a, b, c)  ((a) * (b) + (c))
#define FNMA(a, b, c) ((c) - (a) * (b))

enum { PARTS = LANES / WIDTH, SUMS = REGISTERS / 2 };

extern const dro__winograd PART(winograd);
extern const dro__direct PART(direct);
dro__product PART(product);

#endif
