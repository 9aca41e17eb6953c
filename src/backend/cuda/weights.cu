/* Weights: from w, (out, in, taps) floats, into what the convolutions read, for all of them at once; and a
 * gradient the other way. */
#include "device.cuh"

static __device__ __forceinline__ float rounded(const dro__packing &t, float x)
{
    if (t.kind == DRO__PACK_TAPS && !t.to.bf16) {
        unsigned r;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
        x = __uint_as_float(r);
    }
    return x;
}

/* All taps of one pair of channels. second: (taps turned, in, out) behind (taps, out, in). */
static __device__ void pack_pair(const dro__packing &t, unsigned pair, bool second)
{
    unsigned c = second ? pair / t.out : pair % t.stored_in;
    unsigned o = second ? pair % t.out : pair / t.stored_in;
    size_t size = (size_t)t.out * t.stored_in;
    for (int k = 0; k < t.taps; k++) {
        float x = c < (unsigned)t.in ? t.from[((size_t)o * t.in + c) * t.taps + k] : 0;
        size_t to = second                        ? size * (2 * t.taps - 1 - k) + pair
                    : t.kind == DRO__PACK_CUDNN ? ((size_t)o * t.taps + k) * t.stored_in + c
                                                  : size * k + pair;
        write_at(t.to, to, rounded(t, x));
    }
}

static __global__ void pack_kernel(const dro__packing *table)
{
    dro__packing t = table[blockIdx.y];
    unsigned pairs = t.out * t.stored_in, count = pairs * (t.kind == DRO__PACK_TAPS ? 2 : 1);
    for (unsigned i = FIRST; i < count; i += STEP)
        pack_pair(t, i < pairs ? i : i - pairs, i >= pairs);
}

extern "C" void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest)
{
    unsigned blocks = blocks_for(largest), most = 128;
    if (count)
        pack_kernel<<<dim3(blocks < most ? blocks : most, count), THREADS, 0, s>>>(table);
}

/* A pair of channels to a thread. */
static __global__ void unpack_kernel(unsigned pairs, int in, int stored, int taps, dro__typed dw,
                                     float *grad)
{
    for (unsigned i = FIRST; i < pairs; i += STEP) {
        unsigned o = i / in, c = i % in;
        for (int k = 0; k < taps; k++)
            grad[(size_t)i * taps + k] = read_at(dw, ((size_t)o * taps + k) * stored + c);
    }
}

extern "C" void dro__gpu_unpack(cudaStream_t s, int out, int in, int stored, int taps,
                                dro__typed dw, float *grad)
{
    size_t pairs = (size_t)out * in;
    unpack_kernel<<<blocks_for(pairs), THREADS, 0, s>>>((unsigned)pairs, in, stored, taps, dw,
                                                        grad);
}
