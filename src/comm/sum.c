/* Sums in a fixed binary tree.
 *
 * With 2, 4, 8 ... ranks, rank r and its neighbour r ^ 1 add first, then those two ranks apart,
 * then four: the tree over the ranks, and the upper part of the tree over shards. Each exchange
 * halves the part for which a rank is responsible, so 2 (1 - 1/N) times the vector travels in all;
 * then the sums go back the same way. Other numbers of ranks fold the ranks beyond the largest
 * power of two onto the first ones. Both partners add the same two numbers, and a + b = b + a, so
 * all ranks end with the same bits. */
#include "comm.h"

#include <string.h>

static void add(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static int largest_power(int size)
{
    int power = 1;
    while (2 * power <= size)
        power *= 2;
    return power;
}

/* The part that a rank is responsible for after the exchanges at distances 1, 2, .. distance/2. */
static void part_of(int rank, int distance, size_t count, size_t *first, size_t *end)
{
    *first = 0;
    *end = count;
    for (int d = 1; d < distance; d *= 2) {
        size_t middle = *first + (*end - *first) / 2;
        if (rank & d)
            *first = middle;
        else
            *end = middle;
    }
}

static dro_status reduce(dro_comm *c, float *values, size_t count, int ranks, float *spare)
{
    for (int d = 1; d < ranks; d *= 2) {
        size_t first, end, to_first, to_end;
        part_of(c->rank, 2 * d, count, &first, &end);
        part_of(c->rank ^ d, 2 * d, count, &to_first, &to_end);
        DRO_TRY(dro__comm_exchange(c, c->rank ^ d, values + to_first,
                                   (to_end - to_first) * sizeof *values, spare,
                                   (end - first) * sizeof *values));
        add(values + first, spare, end - first);
    }
    return DRO_OK;
}

static dro_status spread_out(dro_comm *c, float *values, size_t count, int ranks)
{
    for (int d = ranks / 2; d >= 1; d /= 2) {
        size_t first, end, other_first, other_end;
        part_of(c->rank, 2 * d, count, &first, &end);
        part_of(c->rank ^ d, 2 * d, count, &other_first, &other_end);
        DRO_TRY(dro__comm_exchange(c, c->rank ^ d, values + first, (end - first) * sizeof *values,
                                   values + other_first,
                                   (other_end - other_first) * sizeof *values));
    }
    return DRO_OK;
}

dro_status dro__comm_sum(dro_comm *c, float *values, size_t count)
{
    if (!c || c->size == 1 || count == 0)
        return DRO_OK;
    size_t bytes = count * sizeof *values;
    int ranks = largest_power(c->size), beyond = c->size - ranks;
    float *spare = dro__comm_buffer(c, bytes);
    if (!spare)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for a sum of %zu numbers", count);
    if (c->rank >= ranks) {
        DRO_TRY(dro__comm_exchange(c, c->rank - ranks, values, bytes, NULL, 0));
        return dro__comm_exchange(c, c->rank - ranks, NULL, 0, values, bytes);
    }
    if (c->rank < beyond) {
        DRO_TRY(dro__comm_exchange(c, c->rank + ranks, NULL, 0, spare, bytes));
        add(values, spare, count);
    }
    DRO_TRY(reduce(c, values, count, ranks, spare));
    DRO_TRY(spread_out(c, values, count, ranks));
    if (c->rank < beyond)
        DRO_TRY(dro__comm_exchange(c, c->rank + ranks, values, bytes, NULL, 0));
    return DRO_OK;
}

dro_status dro__comm_mean(dro_comm *c, float *values, size_t count)
{
    DRO_TRY(dro__comm_sum(c, values, count));
    for (size_t i = 0; c && c->size > 1 && i < count; i++)
        values[i] = (float)((double)values[i] / c->size);
    return DRO_OK;
}

dro_status dro__comm_merge(dro_comm *c, double *values, size_t count, dro__merge merge)
{
    size_t bytes = count * sizeof *values;
    if (!c || c->size == 1)
        return DRO_OK;
    int ranks = largest_power(c->size), beyond = c->size - ranks;
    double *other = dro__comm_buffer(c, bytes);
    if (!other)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %zu numbers", count);
    if (c->rank >= ranks) {
        DRO_TRY(dro__comm_exchange(c, c->rank - ranks, values, bytes, NULL, 0));
        return dro__comm_exchange(c, c->rank - ranks, NULL, 0, values, bytes);
    }
    if (c->rank < beyond) {
        DRO_TRY(dro__comm_exchange(c, c->rank + ranks, NULL, 0, other, bytes));
        merge(values, other, count);
    }
    for (int d = 1; d < ranks; d *= 2) {
        DRO_TRY(dro__comm_exchange(c, c->rank ^ d, values, bytes, other, bytes));
        if (c->rank & d) { /* the lower half first */
            merge(other, values, count);
            memcpy(values, other, bytes);
        } else {
            merge(values, other, count);
        }
    }
    if (c->rank < beyond)
        DRO_TRY(dro__comm_exchange(c, c->rank + ranks, values, bytes, NULL, 0));
    return DRO_OK;
}
