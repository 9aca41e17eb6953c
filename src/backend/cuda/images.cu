/* The input of a network out of small images that live on the GPU as bytes: moved, mirrored, normalised. */
#include "device.cuh"

/* One thread for each pixel; an image for each blockIdx.x, of which there may be more than of the others. */
static __global__ void images_kernel(dro__gpu_images k, const dro__gpu_cut *cuts, int first,
                                     dro__typed to)
{
    int area = k.e.height * k.e.width;
    const dro__gpu_cut cut = cuts[blockIdx.x];
    const uint8_t *from = k.bytes + (size_t)cut.id * k.e.channels * area;
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < area; i += gridDim.y * THREADS) {
        int col = i % k.e.width, r = i / k.e.width + cut.down;
        int c = (cut.mirror ? k.e.width - 1 - col : col) + cut.right;
        bool inside = r >= 0 && r < k.e.height && c >= 0 && c < k.e.width;
        size_t at = ((size_t)(first + blockIdx.x) * area + i) * k.stored;
        float x[DRO__GPU_COLOURS];
        for (int j = 0; j < k.e.channels; j++) {
            float value = inside ? (float)from[j * area + r * k.e.width + c] : 0.0f;
            x[j] = value * k.scale[j] + k.shift[j];
        }
        for (int j = 0; j < k.stored; j++)
            write_at(to, at + j, j < k.e.channels ? x[j] : 0.0f);
    }
}

extern "C" void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k,
                                     const dro__gpu_cut *cuts, int first, int count, dro__typed to)
{
    int across = (k->e.height * k->e.width + THREADS - 1) / THREADS;
    dim3 grid((unsigned)count, (unsigned)across);
    images_kernel<<<grid, THREADS, 0, s>>>(*k, cuts, first, to);
}
