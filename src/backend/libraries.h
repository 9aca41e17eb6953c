/* Versions of the libraries that the backends use; NULL: this build is without it. */
#ifndef DRO__BACKEND_LIBRARIES_H
#define DRO__BACKEND_LIBRARIES_H

const char *dro__onednn_version(void);
const char *dro__cudnn_version(void);

#endif
