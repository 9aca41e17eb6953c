/* Small images that are kept in the backend's memory as bytes; the network reads its batches from
 * there. They may use half of the free memory, as the network, which is created later, needs some
 * too. */
#include "train.h"

static bool takes_half(const dro__backend *backend, size_t bytes)
{
    void *twice = backend->alloc(bytes, 2);
    backend->free(twice);
    return twice != NULL;
}

bool dro__resident_take(dro__task *t, dro_split split, bool changed)
{
    dro__split_feed *feed = &t->feed[split];
    const dro_examples *e = &feed->examples;
    size_t image = (size_t)t->shape.channels * (size_t)t->shape.height * (size_t)t->shape.width;
    size_t bytes = (size_t)e->count * image;
    const struct dro__net_backend *backend = t->ctx->backend->net;
    if (!backend || !backend->images || !e->pixels || e->count < 1 || e->count > INT32_MAX ||
        t->shape.channels > DRO__IMAGE_COLOURS || (changed && image > DRO__IMAGE_CHANGED) ||
        !takes_half(t->ctx->backend, bytes))
        return false;
    return dro_net_images_create(t->ctx, e->pixels, bytes, t->normal.scale, t->normal.shift,
                                 &feed->device_images) == DRO_OK;
}

void dro__resident_close(dro__task *t)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        dro_net_images_free(t->ctx, &t->feed[s].device_images);
}
