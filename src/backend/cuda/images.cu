/* The input of a network out of small images that live on the GPU as bytes: moved, mirrored,
 * normalised. */
#include "device.cuh"

/* One thread for some channels of a pixel; an image for each blockIdx.x, of which there may be more
 * than of the others. */
template <typename W>
static __global__ void images_kernel(dro__gpu_images k, const dro__gpu_cut *cuts, int first,
                                     dro__typed to)
{
    int area = k.e.height * k.e.width, groups = k.stored / W::V;
    const dro__gpu_cut cut = cuts[blockIdx.x];
    const uint8_t *from = k.bytes + (size_t)cut.id * k.e.channels * area;
    size_t at = (size_t)(first + blockIdx.x) * area * k.stored;
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < area * groups; i += gridDim.y * THREADS) {
        int pixel = i / groups, channel = i % groups * W::V;
        int col = pixel % k.e.width, r = pixel / k.e.width + cut.down;
        int c = (cut.mirror ? k.e.width - 1 - col : col) + cut.right;
        bool inside = r >= 0 && r < k.e.height && c >= 0 && c < k.e.width;
        float x[W::V];
#pragma unroll
        for (int e = 0; e < W::V; e++) {
            int j = channel + e;
            x[e] = 0;
            if (j < k.e.channels) {
                float value = inside ? (float)from[j * area + r * k.e.width + c] : 0.0f;
                x[e] = value * k.scale[j] + k.shift[j];
            }
        }
        W::store(to, at + (size_t)i * W::V, x);
    }
}

template <typename W>
static void launch(cudaStream_t s, const dro__gpu_images *k, const dro__gpu_cut *cuts, int first,
                   int count, dro__typed to)
{
    int across = (k->e.height * k->e.width * (k->stored / W::V) + THREADS - 1) / THREADS;
    dim3 grid((unsigned)count, (unsigned)(across < 65535 ? across : 65535));
    images_kernel<W><<<grid, THREADS, 0, s>>>(*k, cuts, first, to);
}

extern "C" void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k,
                                     const dro__gpu_cut *cuts, int first, int count, dro__typed to)
{
    dense(&to, k->stored);
    if (to.bf16 && in_words(to, 1))
        launch<eights>(s, k, cuts, first, count, to);
    else if (in_words(to, 0))
        launch<fours>(s, k, cuts, first, count, to);
    else
        launch<ones>(s, k, cuts, first, count, to);
}
