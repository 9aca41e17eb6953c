/* Batches of small images out of bytes that live on the GPU: moved, mirrored and normalised. */
#include "device.cuh"

static __global__ void images_kernel(const __grid_constant__ dro__gpu_images k)
{
    int area = k.e.height * k.e.width, size = k.e.channels * area;
    const dro__gpu_cut cut = k.cuts[blockIdx.y];
    const uint8_t *from = k.bytes + (size_t)cut.id * size;
    float *to = k.x + (size_t)blockIdx.y * size;
    for (int i = FIRST; i < size; i += STEP) {
        int channel = i / area, row = i % area / k.e.width, col = i % k.e.width;
        int r = row + cut.down, c = (cut.mirror ? k.e.width - 1 - col : col) + cut.right;
        bool inside = r >= 0 && r < k.e.height && c >= 0 && c < k.e.width;
        float value = inside ? (float)from[channel * area + r * k.e.width + c] : 0.0f;
        to[i] = value * k.scale[channel] + k.shift[channel];
    }
}

extern "C" void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k, int count)
{
    int size = k->e.channels * k->e.height * k->e.width;
    int across = (size + 4 * THREADS - 1) / (4 * THREADS);
    images_kernel<<<dim3((unsigned)(across < 64 ? across : 64), (unsigned)count), THREADS, 0, s>>>(*k);
}
