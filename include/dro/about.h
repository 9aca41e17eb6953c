/* What this build of libdro stands on. Stable. */
#ifndef DRO_ABOUT_H
#define DRO_ABOUT_H

#include <dro/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is running, "0.1.0"; that of the headers is DRO_VERSION_MAJOR and
 * so on. */
DRO_API const char *dro_version(void);

typedef struct dro_library {
    const char *name;
    const char *version; /* NULL: this build is without it */
    const char *purpose; /* what needs it */
    const char *package; /* Debian's name of what to install before building */
} dro_library;

/* The i-th library, DRO_ERR_END past the last. */
DRO_API dro_status dro_library_get(int index, dro_library *library);

/* The instruction set that is used: the best that the machine has of avx512, avx2 and sse (x86),
 * neon (ARM) or plain, or less where the environment limits it (DRO_CPU=avx2). *wrong (may be NULL)
 * becomes the value of DRO_CPU when it is none of these, else NULL. */
DRO_API const char *dro_cpu_instructions(const char **wrong);

#ifdef __cplusplus
}
#endif
#endif
