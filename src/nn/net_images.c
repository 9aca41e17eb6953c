/* Small images in the backend's memory (dro_net_images). */
#include "nn.h"

dro_status dro_net_images_create(dro_context *ctx, const uint8_t *pixels, size_t bytes,
                                 const float *scale, const float *shift, dro_net_images *images)
{
    if (!ctx || !pixels || !scale || !shift || !images)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *images = (dro_net_images){0};
    const dro__backend *be = ctx->backend;
    if (!be->net || !be->net->images)
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                         "the backend %s has no memory of its own: give x instead", be->name);
    uint8_t *device = be->alloc(bytes, 1);
    if (!device)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for images of %zu bytes", bytes);
    dro_status status = dro__copy_in(ctx, device, pixels, bytes);
    if (status != DRO_OK) {
        be->free(device);
        return status;
    }
    *images = (dro_net_images){device, scale, shift};
    return DRO_OK;
}

void dro_net_images_free(dro_context *ctx, dro_net_images *images)
{
    if (!ctx || !images || !images->bytes)
        return;
    ctx->backend->free((void *)images->bytes);
    *images = (dro_net_images){0};
}
