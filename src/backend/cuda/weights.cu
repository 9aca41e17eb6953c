/* Weights: from w, (out, in, taps) floats, into what the convolutions read, for all of them at once; and a
 * gradient the other way. */
#include "conv3.h"
#include "device.cuh"

static __device__ __forceinline__ float rounded(const dro__packing &t, float x)
{
    if (t.kind == DRO__PACK_TAPS) {
        unsigned r;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
        x = __uint_as_float(r);
    }
    return x;
}

/* All taps of one pair of channels. second: what the data gradient reads, the taps turned. */
static __device__ void pack_pair(const dro__packing &t, unsigned pair, bool second)
{
    unsigned c = second ? pair / t.out : pair % t.stored_in;
    unsigned o = second ? pair % t.out : pair / t.stored_in;
    size_t size = (size_t)t.out * t.stored_in;
    for (int k = 0; k < t.taps; k++) {
        float x = c < (unsigned)t.in ? t.from[((size_t)o * t.in + c) * t.taps + k] : 0;
        size_t to = size * (second ? 2 * t.taps - 1 - k : k) + pair;
        if (t.kind == DRO__PACK_CUDNN)
            to = ((size_t)o * t.taps + k) * t.stored_in + c;
        else if (t.kind == DRO__PACK_PRODUCTS)
            to = second ? size * t.taps + dro__conv3_weight_at(c, o, t.taps - 1 - k, t.out)
                        : dro__conv3_weight_at(o, c, k, t.stored_in);
        write_at(t.to, to, rounded(t, x));
    }
}

static __global__ void pack_kernel(const dro__packing *table)
{
    dro__packing t = table[blockIdx.y];
    unsigned pairs = t.out * t.stored_in, count = pairs * (t.kind == DRO__PACK_CUDNN ? 1 : 2);
    for (unsigned i = FIRST; i < count; i += STEP)
        pack_pair(t, i < pairs ? i : i - pairs, i >= pairs);
}

extern "C" void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest)
{
    unsigned blocks = blocks_for(largest), most = 128;
    if (count)
        pack_kernel<<<dim3(blocks < most ? blocks : most, count), THREADS, 0, s>>>(table);
}

static __global__ void unpack_kernel(size_t count, int in, int taps, dro__typed dw, float *grad)
{
    for (size_t i = FIRST; i < count; i += STEP) {
        size_t k = i % taps, c = i / taps % in, o = i / taps / in;
        grad[i] = read_at(dw, (o * taps + k) * in + c);
    }
}

extern "C" void dro__gpu_unpack(cudaStream_t s, int out, int in, int taps, dro__typed dw,
                                float *grad)
{
    size_t count = (size_t)out * in * taps;
    unpack_kernel<<<blocks_for(count), THREADS, 0, s>>>(count, in, taps, dw, grad);
}
