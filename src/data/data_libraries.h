/* Versions of the libraries that reading uses; NULL: this build is without it. */
#ifndef DRO__DATA_LIBRARIES_H
#define DRO__DATA_LIBRARIES_H

const char *dro__zlib_version(void);
const char *dro__zstd_version(void);
const char *dro__jpeg_version(void);
const char *dro__png_version(void);
const char *dro__jansson_version(void);

#endif
