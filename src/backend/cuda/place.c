/* Places the values of a program in GPU memory. */
#include "net.h"

/* Takes the next piece of a block; with base NULL it only counts bytes. */
static void *take(char *base, size_t *used, size_t bytes)
{
    enum { ALIGN = 256 };
    void *at = base ? base + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static size_t lay_out(dro__gprogram *p, size_t capacity, char *base)
{
    size_t used = 0;
    for (int32_t i = -1; i < p->base.operation_count; i++) {
        const dro__gop *op = i < 0 ? NULL : &p->ops[i];
        dro__gvalue *v = &p->values[op ? op->base.end : 0]; /* the input first */
        dro__gtail *tail = v->base.tail < 0 ? NULL : &p->tails[v->base.tail];
        size_t bytes = capacity * v->size * (v->base.form ? 2 : 4);
        bool apart = v->lazy || v->whole >= 0; /* stored elsewhere, or not at all */
        bool back = op && op->base.back && v->base.wants;
        v->data = apart ? NULL : take(base, &used, bytes);
        v->grad = p->base.training && v->base.wants ? take(base, &used, bytes) : NULL;
        if (back && dro__gpu_layers[op->base.op].chooses)
            v->chosen = take(base, &used, capacity * v->size * sizeof *v->chosen);
        if (!tail || !tail->base.conv)
            continue;
        tail->z = tail->base.deferred || apart ? take(base, &used, bytes) : v->data;
        tail->dz = back && tail->base.residual >= 0 && !op->own ? take(base, &used, bytes) : NULL;
    }
    for (int32_t i = p->base.operation_count - 1; base && i >= 0;
         i--) { /* slices: a whole comes before its slices */
        dro__gvalue *v = &p->values[p->ops[i].base.end];
        if (v->whole >= 0)
            v->data = (char *)p->values[v->whole].data + (size_t)v->at * (v->base.form ? 2 : 4);
    }
    return used;
}

dro_status dro__gprogram_place(dro__cuda_network *net, dro__gprogram *p, size_t capacity)
{
    if (capacity <= p->capacity)
        return DRO_OK;
    dro__cuda_free(p->memory);
    p->capacity = 0;
    size_t bytes = lay_out(p, capacity, NULL);
    p->memory = dro__cuda_alloc(bytes, 1);
    if (!p->memory)
        return dro__fail(net->ctx, DRO_ERR_MEMORY,
                         "the GPU has no memory for a batch of %zu: %zu MiB are needed", capacity,
                         bytes >> 20);
    lay_out(p, capacity, p->memory);
    p->capacity = capacity;
    return DRO_OK;
}
