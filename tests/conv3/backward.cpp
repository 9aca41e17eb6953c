#include "block.h"

#include "conv3_backward.cu"
