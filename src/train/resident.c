/* Small images that live in the backend's memory as bytes; batches are cut out of them there. */
#include "train.h"

static size_t image_size(const dro__task *t)
{
    return (size_t)t->shape.channels * (size_t)t->shape.height * (size_t)t->shape.width;
}

bool dro__resident_take(dro__task *t, dro_split split)
{
    const dro__backend *be = t->ctx->backend;
    dro__shelf *shelf = &t->shelf[split];
    const dro_examples *e = &shelf->examples;
    size_t bytes = (size_t)e->count * image_size(t);
    if (!be->images || !e->pixels || e->count < 1 || e->count > INT32_MAX ||
        t->shape.channels > DRO__IMAGE_COLOURS)
        return false;
    shelf->bytes = be->alloc(bytes, 1);
    if (shelf->bytes)
        be->copy_in(shelf->bytes, e->pixels, bytes);
    return shelf->bytes != NULL;
}

static dro_status make_room(dro__task *t, unsigned place, size_t count)
{
    const dro__backend *be = t->ctx->backend;
    if (count <= t->there_room[place])
        return DRO_OK;
    if (t->there[place])
        be->free(t->there[place]);
    t->there[place] = be->alloc(count * image_size(t), sizeof(float));
    t->there_room[place] = t->there[place] ? count : 0;
    return t->there[place]
               ? DRO_OK
               : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu images", count);
}

static dro_status cut(dro__task *t, dro_split split, unsigned place, const int64_t *ids,
                      const dro_cut *cuts, size_t count, const float **x)
{
    dro__images from = {.bytes = t->shelf[split].bytes,
                        .channels = t->shape.channels,
                        .height = t->shape.height,
                        .width = t->shape.width,
                        .scale = t->normal.scale,
                        .shift = t->normal.shift};
    DRO_TRY(make_room(t, place, count));
    if (!t->ctx->backend->images(&from, ids, cuts, count, t->there[place]))
        return dro__fail(t->ctx, DRO_ERR_DEVICE, "a batch of images could not be made");
    *x = t->there[place];
    return DRO_OK;
}

dro_status dro__resident_draw(dro__task *t, const dro_loaded *from, const float **x)
{
    return cut(t, DRO_TRAIN, t->there_turn++ % DRO__RING, from->ids, from->cuts, from->count, x);
}

dro_status dro__resident_walk(dro__task *t, dro_split split, int64_t first, size_t count,
                              const float **x)
{
    int64_t ids[DRO__EVAL_MOST];
    for (size_t i = 0; i < count; i++)
        ids[i] = first + (int64_t)i;
    return cut(t, split, DRO__RING, ids, NULL, count, x);
}

void dro__resident_close(dro__task *t)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        if (t->shelf[s].bytes)
            t->ctx->backend->free(t->shelf[s].bytes);
    for (int k = 0; k <= DRO__RING; k++)
        if (t->there[k])
            t->ctx->backend->free(t->there[k]);
}
