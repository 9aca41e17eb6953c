/* Versions of the libraries that the backends use. */
#include "libraries.h"

#include <stddef.h>
#include <stdio.h>

#if DRO_WITH_ONEDNN
#include <dnnl.h>

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

#if DRO_WITH_CUDA
#include <cudnn.h>

const char *dro__cudnn_version(void)
{
    static char text[48];
    int v = (int)cudnnGetVersion(); /* what is loaded, not what was compiled with */
    snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}
#else
const char *dro__cudnn_version(void)
{
    return NULL;
}
#endif
