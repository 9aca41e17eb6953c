/* The kind of convolution that runs on our own Winograd kernels. */
#ifndef DRO_CPU_NET_CONV_WINOGRAD_H
#define DRO_CPU_NET_CONV_WINOGRAD_H

#include "conv.h"

/* Whether there are kernels for the shape and for blocks of `block` channels on this machine. */
bool dro__conv_winograd_fits(const dro__conv_shape *shape, int block);
dro_status dro__conv_winograd(dro_context *ctx, const dro__conv_shape *shape, int block,
                              dro__conv **conv);

#endif
