/* Asynchronous steps (queue.c) on one rank and on two. Returns how many of the checks failed. */
#ifndef TESTS_CUDA_HOST_STEPS_H
#define TESTS_CUDA_HOST_STEPS_H

int check_steps(void);

#endif
