#define PROCESSORS 2 /* so that blocks have several tiles */
#include "block.h"

#include "conv3_backward.cu"
