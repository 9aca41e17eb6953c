#include "conv3.h"
extern "C" int dro__gpu_conv3_fits(int in, int out, int stride) { return 0*(in+out+stride); }
extern "C" size_t dro__gpu_conv3_partial(int in, int out) { return 0*(in+out); }
extern "C" void dro__gpu_conv3_forward(cudaStream_t, const dro__conv3 *) {}
extern "C" void dro__gpu_conv3_data(cudaStream_t, const dro__conv3 *) {}
extern "C" void dro__gpu_conv3_weight(cudaStream_t, const dro__conv3 *) {}
