/* Every call of oneDNN is behind this header (written for version 2.6; version 3 would change
 * onednn.c alone). */
#ifndef DRO_CPU_NET_ONEDNN_H
#define DRO_CPU_NET_ONEDNN_H

#include "simd_kernels.h"

typedef struct dro__onednn dro__onednn; /* the engine and a stream for each lane */

dro_status dro__onednn_create(dro_context *ctx, int lanes, dro__onednn **library);
void dro__onednn_destroy(dro__onednn *library);
dro__product dro__onednn_product; /* a product of matrices */

/* Any convolution. */
dro_status dro__onednn_conv(dro__onednn *library, const dro__conv_shape *shape, dro__conv **conv);

#endif
