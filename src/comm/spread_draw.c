/* Batches that the problem draws: each rank draws its share, and tells the others which examples it
 * got; or all have the whole batch. */
#include "spread.h"

#include <string.h>

enum { NO_LABEL = INT32_MIN };

typedef struct sent_example { /* of one example, as it is sent */
    int64_t id;
    int32_t class, group;
} sent_example;

static bool make_drawn(drawn *d, size_t count)
{
    if (count <= d->capacity)
        return true;
    dro__free(d->ids), dro__free(d->classes), dro__free(d->groups);
    d->ids = dro__alloc(count, sizeof *d->ids);
    d->classes = dro__alloc(count, sizeof *d->classes);
    d->groups = dro__alloc(count, sizeof *d->groups);
    d->capacity = d->ids && d->classes && d->groups ? count : 0;
    return d->capacity > 0;
}

static void pack(const dro_spread *s, const dro_batch *mine, size_t count)
{
    sent_example *out = (sent_example *)(void *)(s->block + sizeof(dro__head));
    for (size_t i = 0; i < count; i++)
        out[i] = (sent_example){mine->ids ? mine->ids[i] : -1,
                                mine->classes ? mine->classes[i] : NO_LABEL,
                                mine->groups ? mine->groups[i] : NO_LABEL};
}

/* Puts what all ranks have sent about the batch into d. */
static void take_told(const dro_spread *s, drawn *d, dro_batch *batch)
{
    size_t at = 0;
    bool classes = false, groups = false;
    for (int r = 0; r < s->ranks; r++) {
        size_t count = ((size_t)s->sizes[r] - sizeof(dro__head)) / sizeof(sent_example);
        const char *from = s->blocks + s->offsets[r] + sizeof(dro__head);
        for (size_t i = 0; i < count; i++, at++) {
            sent_example one;
            memcpy(&one, from + i * sizeof one, sizeof one);
            d->ids[at] = one.id;
            d->classes[at] = one.class;
            d->groups[at] = one.group;
            classes = classes || one.class != NO_LABEL;
            groups = groups || one.group != NO_LABEL;
        }
    }
    batch->ids = d->ids;
    batch->classes = classes ? d->classes : NULL;
    batch->groups = groups ? d->groups : NULL;
}

static dro_status fetch(dro_spread *s, const int64_t *ids, dro_batch *batch)
{
    size_t first, end, count = batch->count;
    drawn *d = &s->ring[s->turn++ % RING];
    dro__spread_slice(s->comm, s->options.shards, count, &first, &end);
    d->mine =
        (dro_batch){.position = ids ? UINT64_MAX : batch->position + first, .count = end - first};
    DRO_TRY(dro__spread_lay_out(s, batch, 1, sizeof(sent_example)));
    if (!make_drawn(d, count))
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", count);
    dro_status status = DRO_OK;
    if (end > first && ids)
        status = s->mine.gather(s->mine.user, ids + first, end - first, &d->mine);
    else if (end > first)
        status = s->mine.draw(s->mine.user, batch->position + first, end - first, &d->mine);
    if (status == DRO_OK && d->mine.count != end - first)
        status = dro__fail(s->ctx, DRO_ERR_CALLBACK, "draw gave %zu examples instead of %zu",
                           d->mine.count, end - first);
    if (end > first)
        d->mine.position = ids ? UINT64_MAX : batch->position + first;
    if (status == DRO_OK)
        pack(s, &d->mine, end - first);
    batch->handle = d;
    DRO_TRY(dro__spread_gather(s, status));
    take_told(s, d, batch);
    return DRO_OK;
}

dro_status dro__spread_draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    dro_spread *s = user;
    s->of_comm = false;
    *batch = (dro_batch){.position = position, .count = count};
    if (s->options.whole)
        return dro__spread_remember(s, s->mine.draw(s->mine.user, position, count, batch));
    return dro__spread_remember(s, fetch(s, NULL, batch));
}

dro_status dro__spread_given(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    ((dro_spread *)user)->of_comm = false;
    *batch = (dro_batch){.position = UINT64_MAX, .count = count};
    return dro__spread_remember(user, fetch(user, ids, batch));
}
