/* The kind of convolution that runs on our own kernels for windows of any size. */
#ifndef DRO_CPU_NET_CONV_DIRECT_H
#define DRO_CPU_NET_CONV_DIRECT_H

#include "simd_kernels.h"

dro_status dro__conv_direct(dro_context *ctx, const dro__conv_shape *shape, const dro__simd *simd,
                            dro__conv **conv);

#endif
