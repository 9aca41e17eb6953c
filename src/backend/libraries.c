/* Versions of the libraries that the backends use. */
#include "libraries.h"

#include <stddef.h>

#if DRO_WITH_ONEDNN
#include <dnnl.h>
#include <stdio.h>

const char *dro__onednn_version(void)
{
    static char text[48];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}
#else
const char *dro__onednn_version(void)
{
    return NULL;
}
#endif
