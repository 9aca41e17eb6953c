#include "block.h"

#include "conv3_bands_backward.cu"
