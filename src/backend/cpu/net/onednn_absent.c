/* onednn.h in a build without oneDNN: convolutions and products of our own. */
#include "onednn.h"

#include "conv_direct.h"

struct dro__onednn {
    dro_context *ctx;
};

void dro__onednn_destroy(dro__onednn *library)
{
    dro__free(library);
}

dro_status dro__onednn_create(dro_context *ctx, int lanes, dro__onednn **library)
{
    (void)lanes;
    *library = dro__alloc(1, sizeof **library);
    if (!*library)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    (*library)->ctx = ctx;
    return DRO_OK;
}

bool dro__onednn_product(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b,
                         float *c, size_t row_c)
{
    return dro__simd_best()->product(sizes, a, b, c, row_c);
}

dro_status dro__onednn_conv(dro__onednn *library, const dro__conv_shape *shape, dro__conv **conv)
{
    return dro__conv_direct(library->ctx, shape, dro__simd_best(), conv);
}
