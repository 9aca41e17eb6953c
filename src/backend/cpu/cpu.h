/* Shared by the files of the cpu backend. */
#ifndef DRO_CPU_H
#define DRO_CPU_H

#include "backend.h"
#include "isa.h"

/* Below this many floats a second thread costs more than it saves. */
enum { DRO__PARALLEL_MIN = 131072 };

/* body(task, k) for k < count, on all threads when the work (in floats) is worth it. */
void dro__cpu_for(dro__pool *pool, size_t work, size_t count, void (*body)(void *task, size_t k),
                  void *task);

void dro__cpu_weigh(const dro__step *k, dro__phase phase);
void dro__cpu_move(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums);
void dro__cpu_settle(const dro__step *k, const double *sums);
int64_t dro__cpu_first_bad(dro__pool *pool, size_t n, const float *x);
void dro__cpu_block_shrink(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                           double threshold);
void dro__cpu_rows_dot(dro__pool *pool, const dro__row_matrix *rows, const int64_t *ids,
                       size_t count, const float *w, float *margins);
void dro__cpu_rows_sum(dro__pool *pool, const dro__row_matrix *rows, const dro_batch *parts,
                       int part_count, const float *coef, float *const *grads);
void dro__cpu_loss(dro__loss_kind kind, size_t count, const float *margins, const float *y,
                   float *losses, float *slopes);

#endif
