/* Folding: each 2 x 2 pixels of an image become one pixel with four times the channels. Thus a
 * convolution of stride 2 over few channels becomes one of stride 1 over more channels, which suits
 * the tensor cores. Channel (2 i + j) channels + c of the folded pixel (r, s) is channel c of the
 * pixel (2 (r - before) + i, 2 (s - before) + j). With a padding of p, before = ceil(p / 2), and
 * the kernel begins `lead` = p mod 2 rows and columns later. */
#include "device.cuh"

template <typename W>
static __global__ void fold_kernel(size_t count, dro__extent in, dro__typed x, int above, int left,
                                   dro__extent out, dro__typed y)
{
    unsigned groups = y.stride / W::V;
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t pixel = divided(i, groups), line = divided(pixel, out.width),
               n = divided(line, out.height);
        unsigned first = (unsigned)(i - pixel * groups) * W::V;
        unsigned col = (unsigned)(pixel - line * out.width),
                 row = (unsigned)(line - n * out.height);
        float v[W::V];
#pragma unroll
        for (int k = 0; k < W::V; k++) {
            int shift = (first + k) / in.channels, c = (first + k) % in.channels;
            int r = 2 * ((int)row - above) + shift / 2, s = 2 * ((int)col - left) + shift % 2;
            bool inside = shift < 4 && r >= 0 && r < in.height && s >= 0 && s < in.width;
            v[k] = inside ? read_at(x, ((n * in.height + r) * in.width + s) * x.stride + c) : 0;
        }
        W::store(y, pixel * y.stride + first, v);
    }
}

extern "C" void dro__gpu_fold(cudaStream_t s, int n, dro__extent in, dro__typed x,
                              const int *before, dro__extent out, dro__typed y)
{
    size_t count = (size_t)n * out.height * out.width * y.stride;
    dense(&x, in.channels);
    if (in_words(y, 1)) {
        count /= eights::V;
        fold_kernel<eights>
            <<<blocks_for(count), THREADS, 0, s>>>(count, in, x, before[0], before[1], out, y);
    } else if (in_words(y, 0)) {
        count /= fours::V;
        fold_kernel<fours>
            <<<blocks_for(count), THREADS, 0, s>>>(count, in, x, before[0], before[1], out, y);
    } else {
        fold_kernel<ones>
            <<<blocks_for(count), THREADS, 0, s>>>(count, in, x, before[0], before[1], out, y);
    }
}
