/* The instruction set that our own loops use: the best that this machine has, or less when the
 * environment says DRO_CPU=avx2 or DRO_CPU=sse. Decided once, when it is first asked for. */
#ifndef DRO_ISA_H
#define DRO_ISA_H

typedef enum dro__isa {
    DRO__ISA_BASE,   /* what every machine of this kind has: SSE2, NEON */
    DRO__ISA_AVX2,   /* x86-64-v3 */
    DRO__ISA_AVX512, /* x86-64-v4 */
} dro__isa;

dro__isa dro__cpu_isa(void);
const char *dro__cpu_isa_name(dro__isa isa); /* as DRO_CPU has it */
const char *dro__cpu_isa_choices(void);      /* the names, as a text */
const char *dro__cpu_isa_wrong(void); /* the value of DRO_CPU when it is not a name, or NULL */

/* A loop is compiled for each instruction set, and the right one is chosen when it is called:
 *
 *     DRO__KERNEL void add_kernel(size_t n, float *to, const float *from) { ... }
 *     DRO__EACH_ISA(void, add, (size_t n, float *to, const float *from), (n, to, from))
 *
 * makes the static function add. */
#define DRO__KERNEL static inline __attribute__((always_inline))
#if defined(__x86_64__) && !defined(DRO_ONE_ISA) /* the coverage preset: loops count once */
#define DRO__EACH_ISA(type, name, parameters, arguments)                                           \
    __attribute__((target("arch=x86-64-v4"))) static type name##_v4 parameters                     \
    {                                                                                              \
        return name##_kernel arguments;                                                            \
    }                                                                                              \
    __attribute__((target("arch=x86-64-v3"))) static type name##_v3 parameters                     \
    {                                                                                              \
        return name##_kernel arguments;                                                            \
    }                                                                                              \
    static type name##_v1 parameters                                                               \
    {                                                                                              \
        return name##_kernel arguments;                                                            \
    }                                                                                              \
    static type name parameters                                                                    \
    {                                                                                              \
        switch (dro__cpu_isa()) {                                                                  \
        case DRO__ISA_AVX512:                                                                      \
            return name##_v4 arguments;                                                            \
        case DRO__ISA_AVX2:                                                                        \
            return name##_v3 arguments;                                                            \
        default:                                                                                   \
            return name##_v1 arguments;                                                            \
        }                                                                                          \
    }
#else
#define DRO__EACH_ISA(type, name, parameters, arguments)                                           \
    static type name parameters                                                                    \
    {                                                                                              \
        return name##_kernel arguments;                                                            \
    }
#endif

#endif
