/* The libraries of this build (dro/about.h). */
#include <dro/about.h>

#include "data_libraries.h"
#include "isa.h"
#include "libraries.h"

#include <dro/version.h>
#include <stdbool.h>
#include <stddef.h>

#define TEXT(x)         #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *dro_version(void)
{
    return DOTTED(DRO_VERSION_MAJOR, DRO_VERSION_MINOR, DRO_VERSION_PATCH);
}

static const struct {
    const char *name;
    const char *(*version)(void);
    const char *purpose, *package;
} libraries[] = {
    {"oneDNN", dro__onednn_version, "fast networks on the cpu backend", "libdnnl-dev"},
    {"zlib", dro__zlib_version, "gzip, compressed .npz", "zlib1g-dev"},
    {"zstd", dro__zstd_version, "zstd files", "libzstd-dev"},
    {"libjpeg", dro__jpeg_version, "JPEG images", "libjpeg62-turbo-dev"},
    {"libpng", dro__png_version, "PNG images", "libpng-dev"},
    {"jansson", dro__jansson_version, "runs, reports, weights files", "libjansson-dev"},
    {"cuDNN", dro__cudnn_version, "networks on the cuda backend", "cudnn9-cuda-13"},
};

/* Libraries whose absence does not matter: oneDNN where it is never used, cuDNN without the cuda
 * backend. */
static bool missed(int index)
{
#if !defined(__x86_64__)
    if (libraries[index].version == dro__onednn_version)
        return false;
#endif
    return libraries[index].version != dro__cudnn_version || dro__cudnn_version();
}

dro_status dro_library_get(int index, dro_library *library)
{
    int all = (int)(sizeof libraries / sizeof libraries[0]), at = 0;
    for (int left = index; at < all && (left > 0 || !missed(at)); at++)
        left -= missed(at);
    if (index < 0 || at >= all)
        return DRO_ERR_END;
    if (!library)
        return DRO_ERR_ARGUMENT;
    *library = (dro_library){libraries[at].name, libraries[at].version(), libraries[at].purpose,
                             libraries[at].package};
    return DRO_OK;
}

const char *dro_cpu_instructions(const char **wrong)
{
    if (wrong)
        *wrong = dro__cpu_isa_wrong();
    return dro__cpu_isa_name(dro__cpu_isa());
}

const char *dro_cpu_choices(void)
{
    return dro__cpu_isa_choices();
}
