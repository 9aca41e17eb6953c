/* Packs the weights of all convolutions at once, from w, (out, in, taps) floats, into the order in
 * which they are read; unpacks gradients. */
#include "conv3.h"
#include "conv3_mma.cuh"
#include "device.cuh"

static __device__ __forceinline__ float rounded(const dro__packing &t, float x)
{
    return t.kind == DRO__PACK_PRODUCTS && !t.to.bf16 ? __uint_as_float(to_tf32(x)) : x;
}

/* The index in (in, kernel) of the parameter for tap k and folded channel c; -1: none. */
static __device__ __forceinline__ int unfolded(const dro__packing &t, int c, int k)
{
    int shift = c / t.in, row = k / t.folded[1] * 2 + shift / 2 - t.lead[0],
        col = k % t.folded[1] * 2 + shift % 2 - t.lead[1];
    bool inside = shift < 4 && row >= 0 && row < t.kernel[0] && col >= 0 && col < t.kernel[1];
    return inside ? (c % t.in * t.kernel[0] + row) * t.kernel[1] + col : -1;
}

/* Whether there is a second copy, for the data gradient. */
static __device__ __forceinline__ bool twice(const dro__packing &t)
{
    return t.kind == DRO__PACK_PRODUCTS || t.kind == DRO__PACK_BANDS;
}

/* Packs all taps of one pair of channels. second: the copy for the data gradient, with the kernel
 * rotated by 180 degrees. */
static __device__ void pack_pair(const dro__packing &t, unsigned pair, bool second)
{
    unsigned c = second ? pair / t.out : pair % t.stored_in;
    unsigned o = second ? pair % t.out : pair / t.stored_in;
    size_t size = (size_t)t.out * t.stored_in;
    for (int k = 0; k < t.taps; k++) {
        float x = 0;
        if (t.kind == DRO__PACK_FOLDED) {
            int from = unfolded(t, c, k), each = t.in * t.kernel[0] * t.kernel[1];
            x = from < 0 ? 0 : t.from[(size_t)o * each + from];
        } else if (c < (unsigned)t.in) {
            x = t.from[((size_t)o * t.in + c) * t.taps + k];
        }
        size_t to = ((size_t)o * t.taps + k) * t.stored_in + c;
        if (t.kind == DRO__PACK_PRODUCTS)
            to = second
                     ? size * t.taps + dro__conv3_weight_at(t.to.bf16, c, o, t.taps - 1 - k, t.out)
                     : dro__conv3_weight_at(t.to.bf16, o, c, k, t.stored_in);
        else if (t.kind == DRO__PACK_BANDS)
            to = second ? size * t.taps + dro__conv3_band_at(c, o, t.taps - 1 - k, t.out)
                        : dro__conv3_band_at(o, c, k, t.out);
        write_at(t.to, to, rounded(t, x));
    }
}

/* Whether packed and unpacked weights are in the same order, so that eight of them can be converted
 * at a time. */
static __device__ __forceinline__ bool plain(const dro__packing &t)
{
    return t.kind == DRO__PACK_CUDNN && t.taps == 1 && t.stored_in == t.in && t.to.bf16 &&
           t.in % 8 == 0;
}

static __global__ void pack_kernel(const dro__packing *table, int bands)
{
    dro__packing t = table[blockIdx.y];
    if (bands && t.bands)
        t.kind = DRO__PACK_BANDS;
    unsigned pairs = t.out * t.stored_in, count = pairs * (twice(t) ? 2 : 1);
    if (plain(t) && (size_t)t.from % 16 == 0) {
        for (unsigned i = FIRST; i < pairs / 8; i += STEP) {
            float x[8];
            read8(t.from + (size_t)i * 8, x);
            write8((__nv_bfloat16 *)t.to.p + (size_t)i * 8, x);
        }
        return;
    }
    for (unsigned i = FIRST; i < count; i += STEP)
        pack_pair(t, i < pairs ? i : i - pairs, i >= pairs);
}

extern "C" void dro__gpu_pack(cudaStream_t s, int count, const dro__packing *table, size_t largest,
                              int bands)
{
    unsigned blocks = blocks_for(largest), most = 128;
    if (count)
        pack_kernel<<<dim3(blocks < most ? blocks : most, count), THREADS, 0, s>>>(table, bands);
}

/* The gradient of one parameter; i is its index in (out, in, kernel). */
static __device__ float unpacked(const dro__packing &t, unsigned i)
{
    unsigned taps = t.kernel[0] * t.kernel[1], k = i % taps, c = i / taps % t.in,
             o = i / taps / t.in;
    if (t.kind == DRO__PACK_FOLDED) {
        unsigned row = k / t.kernel[1] + t.lead[0], col = k % t.kernel[1] + t.lead[1];
        c += (row % 2 * 2 + col % 2) * t.in;
        k = row / 2 * t.folded[1] + col / 2;
    }
    return read_at(t.to, ((size_t)o * t.taps + k) * t.stored_in + c);
}

static __global__ void unpack_kernel(const dro__packing *table)
{
    dro__packing t = table[blockIdx.y];
    float *grad = (float *)t.from;
    unsigned count = t.out * t.in * t.kernel[0] * t.kernel[1];
    if (plain(t) && (size_t)grad % 16 == 0) {
        for (unsigned i = FIRST; i < count / 8; i += STEP) {
            float x[8];
            read8((const __nv_bfloat16 *)t.to.p + (size_t)i * 8, x);
            write8(grad + (size_t)i * 8, x);
        }
        return;
    }
    for (unsigned i = FIRST; i < count; i += STEP)
        grad[i] = unpacked(t, i);
}

extern "C" void dro__gpu_unpack(cudaStream_t s, int count, const dro__packing *table)
{
    if (count)
        unpack_kernel<<<dim3(64, count), THREADS, 0, s>>>(table);
}
