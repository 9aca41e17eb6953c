/* Whether all ranks have been told the same. */
#include "comm.h"

#include <string.h>

/* The first line in which this rank differs from rank 0. */
static dro_status compare(const dro_comm *c, const char *mine, const char *first)
{
    enum { MOST = 150 };
    static const char isa[] = "instruction set=";
    while (*mine || *first) {
        size_t a = strcspn(mine, "\n"), b = strcspn(first, "\n");
        bool of_isa = strncmp(mine, isa, sizeof isa - 1) == 0;
        if (a != b || memcmp(mine, first, a) != 0)
            return dro__fail(c->ctx, DRO_ERR_ARGUMENT, "it has %.*s, rank 0 has %.*s%s",
                             (int)(a < MOST ? a : MOST), mine, (int)(b < MOST ? b : MOST), first,
                             of_isa ? ": set DRO_CPU to the lesser one on all ranks" : "");
        mine += a + (mine[a] == '\n');
        first += b + (first[b] == '\n');
    }
    return DRO_OK;
}

/* Checksums of all ranks' texts first, which are of one size whatever the ranks are about to do. */
static dro_status compare_sums(dro_comm *c, const char *text, bool *same)
{
    size_t ranks = (size_t)c->size;
    uint64_t sum = dro__checksum(0, text, strlen(text));
    uint64_t *all = dro__alloc(ranks, sizeof *all);
    int *sizes = dro__alloc(ranks, sizeof *sizes);
    dro_status status = all && sizes
                            ? DRO_OK
                            : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", c->size);
    for (size_t r = 0; status == DRO_OK && r < ranks; r++)
        sizes[r] = sizeof sum;
    if (status == DRO_OK)
        status = dro__comm_gather(c, &sum, all, sizes);
    *same = true;
    for (size_t r = 0; status == DRO_OK && r < ranks; r++)
        *same = *same && all[r] == all[0];
    if (!c->broken) /* no operation may still write */
        dro__free(all);
    dro__free(sizes);
    return status;
}

dro_status dro__comm_same(dro_comm *c, char *text)
{
    bool same;
    if (!c || c->size == 1)
        return DRO_OK;
    DRO_TRY(compare_sums(c, text, &same));
    if (same)
        return DRO_OK;
    char *first = text;
    dro_status status = dro__comm_share_text(c, &first);
    if (status == DRO_OK)
        status = dro__comm_agree(c, compare(c, text, first));
    if (first != text)
        dro__free(first);
    return status;
}
