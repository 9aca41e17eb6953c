/* Versions of the libraries that reading uses. */
#include "data_libraries.h"

#include <stddef.h>
#include <stdio.h>
#if DRO_WITH_ZLIB
#include <zlib.h>
#endif
#if DRO_WITH_ZSTD
#include <zstd.h>
#endif
#if DRO_WITH_JPEG
#include <jpeglib.h>
#endif
#if DRO_WITH_PNG
#include <png.h>
#endif
#if DRO_WITH_JANSSON
#include <jansson.h>
#endif

#define TEXT(x)    TEXT_OF(x)
#define TEXT_OF(x) #x

const char *dro__zlib_version(void)
{
#if DRO_WITH_ZLIB
    return zlibVersion();
#else
    return NULL;
#endif
}

const char *dro__zstd_version(void)
{
#if DRO_WITH_ZSTD
    return ZSTD_versionString();
#else
    return NULL;
#endif
}

const char *dro__jpeg_version(void)
{
#if DRO_WITH_JPEG && defined LIBJPEG_TURBO_VERSION
    return TEXT(LIBJPEG_TURBO_VERSION);
#elif DRO_WITH_JPEG
    return TEXT(JPEG_LIB_VERSION);
#else
    return NULL;
#endif
}

const char *dro__png_version(void)
{
#if DRO_WITH_PNG
    return png_get_libpng_ver(NULL);
#else
    return NULL;
#endif
}

const char *dro__jansson_version(void)
{
#if DRO_WITH_JANSSON
    return JANSSON_VERSION;
#else
    return NULL;
#endif
}
