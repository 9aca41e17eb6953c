/* Networks drawn from a seed, of every layer that the builder has. */
#ifndef TESTS_CUDA_HOST_NETWORKS_H
#define TESTS_CUDA_HOST_NETWORKS_H

#include <dro/dro.h>

enum { OUTPUTS = 5, LAYERS_TEXT = 4096 };

typedef struct drawn {
    uint64_t state; /* of what is drawn next */
    int32_t channels, height, width;
    bool targets; /* the loss has some */
    char text[LAYERS_TEXT];
} drawn;

/* 0 .. below - 1 */
int draw(uint64_t *state, int below);
/* -1 .. 1 */
float draw_real(uint64_t *state);

/* The network of a seed, ready and initialised; NULL, and what is wrong in the context's error. It
 * is the same on every backend and in every precision. */
dro_net *draw_network(dro_context *ctx, uint64_t seed, const char *precision, drawn *about);

#endif
