/* Versions of the libraries that the backends use; NULL: this build is without it. */
#ifndef DRO__BACKEND_LIBRARIES_H
#define DRO__BACKEND_LIBRARIES_H

const char *dro__onednn_version(void);
const char *dro__cudnn_version(void);
/* The cpu backend's instruction set, and what is wrong with DRO_CPU; NULL without that backend. */
const char *dro__instructions(void);
const char *dro__instructions_wrong(void);

#endif
