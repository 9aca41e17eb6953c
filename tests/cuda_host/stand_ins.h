/* What stands in for a GPU, its runtime, cuDNN and cuBLAS in test_cuda_host, so that the host code
 * of the cuda backend runs without them. Memory of the device is the host's. A kernel does its work
 * when it is queued; only what is queued on the stream beside the rest may be done late, when
 * somebody waits for it. Floats only: no bfloat16. */
#ifndef TESTS_CUDA_HOST_STAND_INS_H
#define TESTS_CUDA_HOST_STAND_INS_H

#include "net.h"

/* For the networks made from now on: whether cuDNN can add a data gradient to what is there;
 * whether work beside the rest is done late. What was queued and never waited for is forgotten. */
void stand_ins_begin(bool adds, bool late);
/* Fills what dro__cuda_alloc gave with NaN. */
void stand_ins_dirty(void *memory);
/* Does `work` on a copy of what is told, now or late. */
void stand_ins_queue(cudaStream_t s, void (*work)(const void *what), const void *what,
                     size_t bytes);

/* A loss of this step is NaN, once; -1: of none. */
void stand_ins_spoil(int64_t step);
/* The process is killed in this step, before it exchanges its losses; -1: never. */
void stand_ins_die(int64_t step);

/* A convolution by cuDNN as the shape says: x (count, height, width, in), w (out, kernel, in), z
 * like x; of the three the shape's kind is the one that is written. */
void stand_ins_conv(const dro__dnn_shape *s, float *x, float *w, float *z);

#endif
