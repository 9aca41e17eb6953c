/* The dual variable p of the primal-dual methods: n non-negative weights in a tree over blocks.
 *
 * Changing one weight and drawing one by its weight cost O(log n). Lowering all weights by the same
 * amount and raising those that fell below a floor back to it, which is what a Euclidean projection
 * onto the simplex does, costs amortised O(log n): a node remembers its smallest and its second
 * smallest value, so a floor that lies between them changes only the smallest (a "segment tree
 * beats"). 8 bytes per weight, and 3 per weight for the tree. */
#ifndef DRO_DUAL_H
#define DRO_DUAL_H

#include "opt.h"

typedef struct dro__dual dro__dual;

/* All weights 1/n. */
dro_status dro__dual_create(dro_context *ctx, int64_t n, dro__dual **dual);
void dro__dual_destroy(dro__dual *dual);
double dro__dual_get(const dro__dual *dual, int64_t i);
void dro__dual_set(dro__dual *dual, int64_t i, double weight);
double dro__dual_total(const dro__dual *dual);
/* The first i whose running sum of weights exceeds u * total, u in [0, 1). */
int64_t dro__dual_find(const dro__dual *dual, double u);
/* Euclidean projection onto { sum = 1, every weight >= floor }, floor <= 1/n. */
void dro__dual_project(dro__dual *dual, double floor);
/* The weights as a plain array: to read (applies all pending updates), and to replace. */
double *dro__dual_values(dro__dual *dual);
void dro__dual_rebuild(dro__dual *dual); /* after writing into dro__dual_values() */
void dro__dual_archive(dro__dual *dual, dro__archive *ar);

#endif
