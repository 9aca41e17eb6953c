/* Small images that live in the backend's memory as bytes; the network takes its batches out of them there. */
#include "train.h"

bool dro__resident_take(dro__task *t, dro_split split)
{
    const dro__backend *be = t->ctx->backend;
    dro__shelf *shelf = &t->shelf[split];
    const dro_examples *e = &shelf->examples;
    size_t bytes = (size_t)e->count * (size_t)t->shape.channels * (size_t)t->shape.height *
                   (size_t)t->shape.width;
    if (!be->net || !be->net->images || !e->pixels || e->count < 1 || e->count > INT32_MAX ||
        t->shape.channels > DRO__IMAGE_COLOURS)
        return false;
    uint8_t *there = be->alloc(bytes, 1);
    if (!there)
        return false;
    be->copy_in(there, e->pixels, bytes);
    shelf->there = (dro_net_images){there, t->normal.scale, t->normal.shift};
    return true;
}

void dro__resident_close(dro__task *t)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        if (t->shelf[s].there.bytes)
            t->ctx->backend->free((void *)t->shelf[s].there.bytes);
}
