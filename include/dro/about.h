/* The version of libdro, its instruction set and the libraries it was built with. Stable. */
#ifndef DRO_ABOUT_H
#define DRO_ABOUT_H

#include <dro/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the running library, "0.1.0". DRO_VERSION_MAJOR etc. are that of the headers. */
DRO_API const char *dro_version(void);

typedef struct dro_library {
    const char *name;
    const char *version; /* NULL: not in this build */
    const char *purpose; /* what needs it */
    const char *package; /* the Debian package to install before building */
} dro_library;

/* The i-th library, DRO_ERR_END past the last. */
DRO_API dro_status dro_library_get(int index, dro_library *library);

/* The instruction set in use: the best one of the machine among avx512, avx2 and sse (x86), neon
 * (ARM) and plain, or a lower one if the environment limits it (DRO_CPU=avx2). *wrong (optional) is
 * set to the value of DRO_CPU if that is invalid, else to NULL. */
DRO_API const char *dro_cpu_instructions(const char **wrong);

/* The valid values of DRO_CPU for this kind of processor, as a text: "avx512, avx2 or sse". */
DRO_API const char *dro_cpu_choices(void);

#ifdef __cplusplus
}
#endif
#endif
