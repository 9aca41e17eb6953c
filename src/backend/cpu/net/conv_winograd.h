/* The kind of convolution that runs on our own Winograd kernels. */
#ifndef DRO_CPU_NET_CONV_WINOGRAD_H
#define DRO_CPU_NET_CONV_WINOGRAD_H

#include "conv.h"

bool dro__conv_winograd_fits(const dro__conv_shape *shape); /* the shape, and this machine */
dro_status dro__conv_winograd(dro_context *ctx, const dro__conv_shape *shape, dro__conv **conv);

#endif
