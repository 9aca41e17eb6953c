/* Which instruction set the kernels use. */
#include "isa.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

#if defined(__x86_64__)
static const char *const names[] = {"sse", "avx2", "avx512"};
static const char choices[] = "avx512, avx2 or sse";
#elif defined(__aarch64__)
static const char *const names[] = {"neon"};
static const char choices[] = "neon";
#else
static const char *const names[] = {"plain"};
static const char choices[] = "plain";
#endif

enum { NAMES = sizeof names / sizeof names[0] };

static dro__isa chosen;
static const char *wrong;

static dro__isa best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd"))
        return DRO__ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        return DRO__ISA_AVX2;
#endif
    return DRO__ISA_BASE;
}

static void choose(void)
{
    const char *limit = getenv("DRO_CPU");
    chosen = best();
    if (!limit || *limit == '\0')
        return;
    for (int k = 0; k < NAMES; k++)
        if (strcasecmp(limit, names[k]) == 0) {
            chosen = (dro__isa)k < chosen ? (dro__isa)k : chosen;
            return;
        }
    wrong = limit;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

dro__isa dro__cpu_isa(void)
{
    pthread_once(&once, choose);
    return chosen;
}

const char *dro__cpu_isa_name(dro__isa isa)
{
    return names[isa];
}

const char *dro__cpu_isa_choices(void)
{
    return choices;
}

const char *dro__cpu_isa_wrong(void)
{
    pthread_once(&once, choose);
    return wrong;
}
