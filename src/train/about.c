/* What this build stands on (dro/about.h). */
#include <dro/about.h>

#include "data_libraries.h"
#include "libraries.h"

#include <stddef.h>

static const struct {
    const char *name;
    const char *(*version)(void);
    const char *purpose, *package;
} libraries[] = {
    {"oneDNN", dro__onednn_version, "fast networks on the cpu backend", "libdnnl-dev"},
    {"zlib", dro__zlib_version, "gzip, compressed .npz", "zlib1g-dev"},
    {"zstd", dro__zstd_version, "zstd files", "libzstd-dev"},
    {"libjpeg", dro__jpeg_version, "JPEG images", "libjpeg62-turbo-dev"},
    {"libpng", dro__png_version, "PNG images and plots", "libpng-dev"},
    {"jansson", dro__jansson_version, "runs, reports, weights files", "libjansson-dev"},
    {"cuDNN", dro__cudnn_version, "networks on the cuda backend", "cudnn9-cuda-13"},
};

/* A build without the cuda backend does not miss the last. */
static int count(void)
{
    int all = (int)(sizeof libraries / sizeof libraries[0]);
    return dro__cudnn_version() ? all : all - 1;
}

dro_status dro_library_get(int index, dro_library *library)
{
    if (index < 0 || index >= count())
        return DRO_ERR_END;
    if (!library)
        return DRO_ERR_ARGUMENT;
    *library = (dro_library){libraries[index].name, libraries[index].version(),
                             libraries[index].purpose, libraries[index].package};
    return DRO_OK;
}
