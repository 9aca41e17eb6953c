/* The dual variable in a tree over blocks (dual.h). A node covers 2^level blocks and holds, of the
 * weights below it, the sum, the smallest, how many are smallest, and the second smallest. Updates
 * of a whole node are lazy: two numbers in the node stand for them, `add` (to every weight below
 * it) and `low` (weights below that are raised to it). */
#include "dual.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64 };

typedef struct node {
    double sum, low, second; /* second: HUGE_VAL when all are equal */
    double add;              /* pending for the children */
    int64_t low_count, count;
} node;

struct dro__dual {
    int64_t n, blocks, leaves; /* leaves: blocks rounded up to a power of two */
    double *values;            /* (n) */
    node *nodes;               /* (2 * leaves), root at 1, leaf of block k at leaves + k */
};

/* One after the last weight of block k. */
static int64_t end_of(const dro__dual *t, int64_t k)
{
    return (k + 1) * BLOCK < t->n ? (k + 1) * BLOCK : t->n;
}

static void scan_block(dro__dual *t, int64_t k)
{
    node *leaf = &t->nodes[t->leaves + k];
    *leaf = (node){.low = HUGE_VAL, .second = HUGE_VAL};
    for (int64_t i = k * BLOCK; i < end_of(t, k); i++) {
        double x = t->values[i];
        leaf->sum += x;
        leaf->count++;
        if (x < leaf->low) {
            leaf->second = leaf->low;
            leaf->low = x;
            leaf->low_count = 1;
        } else if (x == leaf->low) {
            leaf->low_count++;
        } else if (x < leaf->second) {
            leaf->second = x;
        }
    }
}

static void pull(dro__dual *t, int64_t k)
{
    const node *a = &t->nodes[2 * k], *b = &t->nodes[2 * k + 1];
    node *up = &t->nodes[k];
    up->sum = a->sum + b->sum;
    up->count = a->count + b->count;
    up->low = fmin(a->low, b->low);
    up->low_count = (a->low == up->low ? a->low_count : 0) + (b->low == up->low ? b->low_count : 0);
    up->second =
        fmin(a->low == up->low ? a->second : a->low, b->low == up->low ? b->second : b->low);
}

/* Updates one node: adds `add` to every weight, then raises the smallest ones to `low`. What is
 * raised back is not first subtracted from the sum: with many weights at the floor the cancellation
 * would cost digits. */
static void apply(node *x, double add, double low)
{
    if (x->count == 0)
        return;
    double lifted = fmax(x->low + add, low);
    x->sum += add * (double)(x->count - x->low_count) + (lifted - x->low) * (double)x->low_count;
    x->low = lifted;
    x->second += add;
    x->add += add;
}

static void push_block(dro__dual *t, int64_t k)
{
    node *leaf = &t->nodes[t->leaves + k];
    for (int64_t i = k * BLOCK; i < end_of(t, k); i++) {
        double x = t->values[i] + leaf->add;
        t->values[i] = x < leaf->low ? leaf->low : x;
    }
    leaf->add = 0;
}

/* Passes the pending changes of node k to its children. The low of the node bounds theirs. */
static void push(dro__dual *t, int64_t k)
{
    node *x = &t->nodes[k];
    for (int side = 0; side < 2; side++)
        apply(&t->nodes[2 * k + side], x->add, x->low);
    x->add = 0;
}

/* Every weight + add, then all below the floor raised to it. */
static void shift_raise(dro__dual *t, int64_t k, double add, double floor)
{
    node *x = &t->nodes[k];
    if (x->count == 0 || x->low + add >= floor || x->second + add > floor) {
        apply(x, add, floor);
        return;
    }
    if (k >= t->leaves) {
        push_block(t, k - t->leaves);
        for (int64_t i = (k - t->leaves) * BLOCK; i < end_of(t, k - t->leaves); i++)
            t->values[i] = fmax(t->values[i] + add, floor);
        scan_block(t, k - t->leaves);
        return;
    }
    push(t, k);
    shift_raise(t, 2 * k, add, floor);
    shift_raise(t, 2 * k + 1, add, floor);
    pull(t, k);
}

/* Passes changes down from the root to the leaf of block k, so that its values are current. */
static void reach(dro__dual *t, int64_t block)
{
    int64_t leaf = t->leaves + block;
    int depth = 63 - __builtin_clzll((unsigned long long)t->leaves);
    for (int shift = depth; shift > 0; shift--)
        push(t, leaf >> shift);
    push_block(t, block);
}

dro_status dro__dual_create(dro_context *ctx, int64_t n, dro__dual **dual)
{
    const int64_t most = (int64_t)1 << 36; /* half a terabyte */
    dro__dual *t = n <= most ? dro__alloc(1, sizeof *t) : NULL;
    *dual = NULL;
    if (!t)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a dual variable of %lld examples",
                         (long long)n);
    t->n = n;
    t->blocks = (n + BLOCK - 1) / BLOCK;
    for (t->leaves = 1; t->leaves < t->blocks;)
        t->leaves *= 2;
    t->values = dro__alloc((size_t)n, sizeof *t->values);
    t->nodes = dro__alloc((size_t)t->leaves * 2, sizeof *t->nodes);
    if (!t->values || !t->nodes) {
        dro__dual_destroy(t);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a dual variable of %lld examples",
                         (long long)n);
    }
    for (int64_t i = 0; i < n; i++)
        t->values[i] = 1 / (double)n;
    dro__dual_rebuild(t);
    *dual = t;
    return DRO_OK;
}

void dro__dual_destroy(dro__dual *t)
{
    if (!t)
        return;
    dro__free(t->values);
    dro__free(t->nodes);
    dro__free(t);
}

/* Node x with the pending updates of the nodes above it applied; so has `above` already. */
static node seen_from(const node *above, node x)
{
    apply(&x, above->add, above->low);
    return x;
}

/* Weight i of a leaf without pending changes. */
static double weight_in(const dro__dual *t, const node *leaf, int64_t i)
{
    return fmax(t->values[i] + leaf->add, leaf->low);
}

double dro__dual_get(const dro__dual *t, int64_t i)
{
    int64_t leaf = t->leaves + i / BLOCK;
    int depth = 63 - __builtin_clzll((unsigned long long)t->leaves);
    node x = t->nodes[1];
    for (int shift = depth - 1; shift >= 0; shift--)
        x = seen_from(&x, t->nodes[leaf >> shift]);
    return weight_in(t, &x, i);
}

void dro__dual_set(dro__dual *t, int64_t i, double weight)
{
    int64_t block = i / BLOCK;
    reach(t, block);
    t->values[i] = weight;
    scan_block(t, block);
    for (int64_t k = (t->leaves + block) / 2; k >= 1; k /= 2)
        pull(t, k);
}

double dro__dual_total(const dro__dual *t)
{
    return t->nodes[1].sum;
}

int64_t dro__dual_find(const dro__dual *t, double u)
{
    node x = t->nodes[1];
    double rest = u * x.sum;
    int64_t k = 1;
    while (k < t->leaves) {
        k *= 2;
        node left = seen_from(&x, t->nodes[k]);
        if (rest >= left.sum && t->nodes[k + 1].count > 0) {
            rest -= left.sum;
            x = seen_from(&x, t->nodes[++k]);
        } else {
            x = left;
        }
    }
    int64_t i = (k - t->leaves) * BLOCK, last = end_of(t, k - t->leaves) - 1;
    for (double w; i < last && rest >= (w = weight_in(t, &x, i)); i++)
        rest -= w;
    return i;
}

void dro__dual_project(dro__dual *t, double floor)
{
    node *root = &t->nodes[1];
    /* Michelot's algorithm: shift all weights equally so that their sum is 1, and raise those below
     * the floor to it; then subtract the excess equally from the weights above the floor, until
     * there is none. A weight at the floor stays there, because every further shift is
     * downwards. */
    shift_raise(t, 1, (1 - root->sum) / (double)root->count, floor);
    for (int round = 0; round < 100; round++) {
        double excess = root->sum - 1;
        int64_t above = root->count - (root->low <= floor ? root->low_count : 0);
        if (excess <= 1e-15 || above == 0)
            break;
        shift_raise(t, 1, -excess / (double)above, floor);
    }
}

/* Whether the counts are those of a tree over n weights: other ones lead out of the arrays. */
static bool valid(const dro__dual *t)
{
    bool good = true;
    for (int64_t k = 2 * t->leaves - 1; k >= 1 && good; k--) {
        const node *x = &t->nodes[k], *below = k < t->leaves ? &t->nodes[2 * k] : NULL;
        int64_t block = k - t->leaves, count = end_of(t, block) - block * BLOCK;
        if (below)
            count = below[0].count + below[1].count;
        else if (count < 0) /* a leaf behind the last block */
            count = 0;
        good = x->count == count && x->low_count >= 0 && x->low_count <= count;
    }
    return good;
}

void dro__dual_archive(dro__dual *t, dro__archive *ar)
{
    dro__archive_bytes(ar, t->values, (size_t)t->n * sizeof *t->values);
    dro__archive_bytes(ar, t->nodes, (size_t)t->leaves * 2 * sizeof *t->nodes);
    ar->failed = ar->failed || (ar->mode == DRO__ARCHIVE_LOAD && !valid(t));
}

double *dro__dual_values(dro__dual *t)
{
    for (int64_t k = 1; k < t->leaves; k++)
        push(t, k);
    for (int64_t k = 0; k < t->blocks; k++)
        push_block(t, k);
    return t->values;
}

void dro__dual_rebuild(dro__dual *t)
{
    memset(t->nodes, 0, (size_t)t->leaves * 2 * sizeof *t->nodes);
    for (int64_t k = 0; k < t->leaves; k++) {
        if (k < t->blocks)
            scan_block(t, k);
        else
            t->nodes[t->leaves + k] = (node){.low = HUGE_VAL, .second = HUGE_VAL};
    }
    for (int64_t k = t->leaves - 1; k >= 1; k--)
        pull(t, k);
}
