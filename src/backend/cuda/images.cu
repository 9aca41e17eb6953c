/* Makes the input of a network from small images that are kept in GPU memory as bytes: shifts,
 * mirrors, changes by operations, normalises, erases and mixes them. */
#include "device.cuh"

#include "pixels.h"

enum { IMAGE_THREADS = 512 };

/* An image: either as stored, or as bytes in shared memory, already shifted and mirrored. */
struct source {
    const uint8_t *p;
    const dro_cut *cut;
    bool stored;
};

static __device__ float byte_at(const dro__gpu_images &k, const source &s, int j, int row, int col)
{
    if (!s.stored)
        return (float)s.p[(j * k.e.height + row) * k.e.width + col];
    int r = row + s.cut->down, c = (s.cut->mirror ? k.e.width - 1 - col : col) + s.cut->right;
    bool inside = r >= 0 && r < k.e.height && c >= 0 && c < k.e.width;
    return inside ? (float)s.p[(j * k.e.height + r) * k.e.width + c] : 0.0f;
}

static __device__ bool within(const dro_box &b, int row, int col)
{
    return row >= b.top && row < b.bottom && col >= b.left && col < b.right;
}

static __device__ float value_at(const dro__gpu_images &k, const source &s, int j, int row, int col)
{
    return within(s.cut->erased, row, col) ? 0.0f
                                           : byte_at(k, s, j, row, col) * k.scale[j] + k.shift[j];
}

/* Prepares an image. If it has operations, applies them in shared memory, which takes two copies of
 * the image. */
static __device__ source open_image(const dro__gpu_images &k, const dro__gpu_cut *c,
                                    uint8_t *memory, uint8_t *spare, dro__pixel_tables *tables)
{
    int area = k.e.height * k.e.width, size = area * k.e.channels;
    source s = {k.bytes + (size_t)c->id * size, &c->cut, true};
    const dro_operation *o = c->cut.operations;
    if (!k.shared_bytes || !(o[0].kind | o[1].kind | o[2].kind))
        return s;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int pixel = i % area;
        memory[i] = (uint8_t)byte_at(k, s, i / area, pixel / k.e.width, pixel % k.e.width);
    }
    __syncthreads();
    dro__pixels image = {memory, spare, k.e.channels, k.e.height, k.e.width, 1, area};
    dro__pixels_change(&image, tables, o);
    s.p = image.p;
    s.stored = false;
    return s;
}

/* A thread makes W::V channels of a pixel. The image is blockIdx.x, because the grid can be largest
 * in x. */
template <typename W>
static __global__ void images_kernel(const __grid_constant__ dro__gpu_images k, int first,
                                     dro__typed to)
{
    extern __shared__ uint8_t memory[];
    __shared__ dro__pixel_tables tables;
    __shared__ dro__gpu_cut own;
    __shared__ dro__gpu_mix mix;
    int area = k.e.height * k.e.width, size = area * k.e.channels, groups = k.stored / W::V;
    int example = first + blockIdx.x;
    for (int i = threadIdx.x; i < (int)(sizeof own / 4); i += blockDim.x)
        ((int *)&own)[i] = ((const int *)&k.cuts[example])[i];
    for (int i = threadIdx.x; k.mixes && i < (int)(sizeof mix / 4); i += blockDim.x)
        ((int *)&mix)[i] = ((const int *)&k.mixes[example])[i];
    __syncthreads();
    bool mixed = k.mixes && mix.share < 1;
    bool boxed = mixed && mix.box.right > mix.box.left;
    source a = open_image(k, &own, memory, memory + size, &tables), b = a;
    uint8_t *left = a.p == memory ? memory + size : memory; /* not used by the first image */
    if (mixed)
        b = open_image(k, &mix.second, left, memory + 2 * size, &tables);
    size_t at = (size_t)example * area * k.stored;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < area * groups;
         i += gridDim.y * blockDim.x) {
        int pixel = i / groups, channel = i % groups * W::V;
        int row = pixel / k.e.width, col = pixel % k.e.width;
        bool second = boxed && within(mix.box, row, col);
        float x[W::V];
#pragma unroll
        for (int e = 0; e < W::V; e++) {
            int j = channel + e;
            x[e] = 0;
            if (j < k.e.channels) {
                x[e] = value_at(k, second ? b : a, j, row, col);
                if (mixed && !boxed)
                    x[e] = mix.share * x[e] + (1 - mix.share) * value_at(k, b, j, row, col);
            }
        }
        W::store(to, at + (size_t)i * W::V, x);
    }
}

/* Where images cannot have operations, several blocks share an image. */
template <typename W>
static void launch(cudaStream_t s, const dro__gpu_images *k, int first, int count, dro__typed to)
{
    int words = k->e.height * k->e.width * (k->stored / W::V);
    int across = k->shared_bytes ? 1 : (words + IMAGE_THREADS - 1) / IMAGE_THREADS;
    dim3 grid((unsigned)count, (unsigned)(across < 65535 ? across : 65535));
    if (k->shared_bytes > 40 << 10) /* plus static arrays: perhaps above the default of 48 KB */
        cudaFuncSetAttribute(images_kernel<W>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             k->shared_bytes);
    images_kernel<W><<<grid, IMAGE_THREADS, (size_t)k->shared_bytes, s>>>(*k, first, to);
}

extern "C" void dro__gpu_images_pass(cudaStream_t s, const dro__gpu_images *k, int first, int count,
                                     dro__typed to)
{
    dense(&to, k->stored);
    if (to.bf16 && in_words(to, 1))
        launch<eights>(s, k, first, count, to);
    else if (in_words(to, 0))
        launch<fours>(s, k, first, count, to);
    else
        launch<ones>(s, k, first, count, to);
}
