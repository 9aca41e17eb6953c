/* The instruction set that the cpu backend uses: the best that this machine has, or less when the environment
 * says DRO_CPU=avx2 or DRO_CPU=sse. Decided once, when it is first asked for. */
#ifndef DRO_CPU_ISA_H
#define DRO_CPU_ISA_H

typedef enum dro__isa {
    DRO__ISA_BASE,   /* what every machine of this kind has: SSE2, NEON */
    DRO__ISA_AVX2,   /* x86-64-v3 */
    DRO__ISA_AVX512, /* x86-64-v4 */
} dro__isa;

dro__isa dro__cpu_isa(void);
const char *dro__cpu_isa_name(dro__isa isa); /* as DRO_CPU has it */
const char *dro__cpu_isa_wrong(void); /* the value of DRO_CPU when it is not a name, or NULL */

#endif
