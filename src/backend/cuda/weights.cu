/* Weights: from w, (out, in, taps) floats, into what the convolutions read, for all of them at once; and a
 * gradient the other way. */
#include "device.cuh"

static __device__ void pack_one(const dro__packing &t, size_t i)
{
    size_t size = (size_t)t.out * t.taps * t.stored_in;
    int o, k, c;
    bool second = t.kind == DRO__PACK_TAPS && i >= size; /* (taps turned, in, out) */
    size_t j = second ? i - size : i;
    if (t.kind == DRO__PACK_CUDNN) {
        c = (int)(j % t.stored_in), k = (int)(j / t.stored_in % t.taps);
        o = (int)(j / t.stored_in / t.taps);
    } else if (!second) {
        c = (int)(j % t.stored_in), o = (int)(j / t.stored_in % t.out);
        k = (int)(j / t.stored_in / t.out);
    } else {
        o = (int)(j % t.out), c = (int)(j / t.out % t.stored_in);
        k = t.taps - 1 - (int)(j / t.out / t.stored_in);
    }
    float x = c < t.in ? t.from[((size_t)o * t.in + c) * t.taps + k] : 0;
    if (t.kind == DRO__PACK_TAPS && !t.to.bf16) {
        unsigned rounded;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
        x = __uint_as_float(rounded);
    }
    write_at(t.to, i, x);
}

static __global__ void pack_kernel(const dro__packing *table)
{
    dro__packing t = table[blockIdx.y];
    size_t count = (size_t)t.out * t.taps * t.stored_in * (t.kind == DRO__PACK_TAPS ? 2 : 1);
    for (size_t i = FIRST; i < count; i += STEP)
        pack_one(t, i);
}

extern "C" void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest)
{
    unsigned blocks = blocks_for(largest);
    if (count)
        pack_kernel<<<dim3(blocks < 64 ? blocks : 64, count), THREADS, 0, s>>>(table);
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
