#include "block.h"

#include "conv3_forward.cu"
