/* Forward by warp groups: z is written to memory directly from the accumulators, and its moments
 * stay in registers until the block ends. */
#include "conv3_bands.cuh"

template <int C>
struct forward_bands : band_shape<C> {
    typedef band_shape<C> B;
    static const int WEIGHTS_AT = B::all::BYTES, RAW = WEIGHTS_AT + B::WEIGHTS;
    static const int MORE = RAW + B::RAW_ROWS * BAND_ROW, GATES = MORE + B::RAW_ROWS * BAND_ROW;
    static const int COEF = GATES + 16, SUMS = COEF + 2 * C * 4;
    static const int BYTES = SUMS + B::THREADS / 32 * 2 * B::GN * 4;
    static const int BLOCKS = C == 16 ? 5 : 3;
};

/* Begins the copies of a tile's input. Called by the first thread. */
template <class S>
static __device__ __forceinline__ void begin_input(const dro__conv3 &k, char *smem,
                                                   const band_share<S> &t)
{
    gate *g = (gate *)(smem + S::GATES);
    gate_expect(g, copy_bytes<S>(t.row()) * (k.x_residual ? 2 : 1));
    copy_rows<S>(g, smem + S::RAW, t.image(k.x), t.row());
    if (k.x_residual)
        copy_rows<S>(g, smem + S::MORE, t.image(k.x_residual), t.row());
}

template <class S, int MODE>
static __device__ __forceinline__ void make_input(const dro__conv3 &k, char *smem,
                                                  const band_share<S> &t, int group)
{
    typedef typename S::all T;
    maker<bf16_values, MODE> m((const float *)(smem + S::COEF), S::CHANNELS,
                  T::plane_of(threadIdx.x % T::CHUNKS) * 8, k.x_relu);
    char *keep = k.x_fill && group == 0 ? (char *)t.image(k.x_fill) + t.row() * BAND_ROW : NULL;
    make_bands<S, T>(smem, smem + S::RAW, smem + S::MORE, m, t.row(), keep);
}

/* Writes a patch to memory and adds to the moments. */
template <class S>
static __device__ __forceinline__ void write_patch(char *z, const float (&acc)[S::N / 2],
                                                   float (&sums)[2 * S::HAS])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        words<S::HAS> w;
#pragma unroll
        for (int i = 0; i < S::HAS; i += 2) {
            float x = acc[2 * i + 2 * h], y = acc[2 * i + 2 * h + 1];
            w.w[i / 2] = pack2(x, y);
            sums[i] += x, sums[i + 1] += y;
            sums[S::HAS + i] += x * x, sums[S::HAS + i + 1] += y * y;
        }
        w.write(z + h * BAND_ROW);
    }
}

/* All patches of a warp group; the products of one overlap with writing the previous one. */
template <class S>
static __device__ __forceinline__ void all_patches(const dro__conv3 &k, const char *smem,
                                                   const band_share<S> &t, int group,
                                                   float (&sums)[2 * S::HAS])
{
    const char *weights = smem + S::WEIGHTS_AT;
    float acc[2][S::N / 2];
    char *z = (char *)t.image(k.z);
    products_begin();
    patch_products<S>(acc[0], smem, weights, patch_at<S>(0));
    products_end();
#pragma unroll
    for (int i = 0; i < S::OWN; i++) {
        if (i + 1 < S::OWN) {
            products_begin();
            patch_products<S>(acc[(i + 1) % 2], smem, weights, patch_at<S>(i + 1));
            products_end();
            products_wait<1>();
        } else {
            products_wait<0>();
        }
        settle(acc[i % 2]);
        write_patch<S>(z + pixel_at<S>(t.row(), patch_at<S>(i), group), acc[i % 2], sums);
    }
}

template <class S>
static __device__ __forceinline__ void start(const dro__conv3 &k, char *smem, int part, int group,
                                             const band_share<S> &t)
{
    gate *gates = (gate *)(smem + S::GATES);
    if (threadIdx.x == 0) {
        gate_open(&gates[0]), gate_open(&gates[1]);
        gates_ready();
        copy_weights<S>(&gates[1], smem + S::WEIGHTS_AT, k, 0, group);
    }
    clear_bands<S, typename S::all>(smem);
    await_previous(); /* up to here nothing uses results of the previous kernel */
    if (threadIdx.x == 0 && t.at < t.end) {
        show_to_copies();
        begin_input<S>(k, smem, t);
    }
    input_coefficients(k, part, (float *)(smem + S::COEF), S::THREADS, blockIdx.x == 0);
    __syncthreads();
    gate_wait(&gates[1], 0);
}

template <class S>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    forward_kernel(const __grid_constant__ dro__conv3 k)
{
#ifdef DRO_WARP_GROUPS
    extern __shared__ __align__(128) char smem[];
    int part = blockIdx.y, group = blockIdx.z;
    band_share<S> t(k, part);
    float sums[2 * S::HAS] = {0};
    start<S>(k, smem, part, group, t);
    for (int turn = 0; t.at < t.end; turn++) {
        gate_wait((gate *)(smem + S::GATES), turn);
        if (!k.lazy)
            make_input<S, AS_IS>(k, smem, t, group);
        else if (!k.x_residual)
            make_input<S, SCALED>(k, smem, t, group);
        else
            make_input<S, SCALED_PLUS>(k, smem, t, group);
        show_to_products();
        __syncthreads();
        band_share<S> now = t;
        if (++t.at < t.end && threadIdx.x == 0)
            begin_input<S>(k, smem, t);
        all_patches<S>(k, smem, now, group, sums);
        __syncthreads();
    }
    admit_next();
    if (!k.sums)
        return;
    float *all = (float *)(smem + S::SUMS);
    gather_sums<S>(all, sums);
    for (int i = threadIdx.x; i < 2 * S::GN; i += S::THREADS)
        add_sum(&k.sums[(2 * part + i / S::GN) * S::CHANNELS + group * S::GN + i % S::GN],
                S::CHANNELS, gathered<S>(all, i));
#endif
}

template <int C>
static void launch(cudaStream_t s, const dro__conv3 *k)
{
    typedef forward_bands<C> S;
    static std::atomic<int> known;
    int resident =
        blocks_at_once(&known, (const void *)forward_kernel<S>, S::THREADS, S::BYTES);
    queue(s, forward_kernel<S>, dim3(band_blocks<S>(k, resident), k->parts.count, S::GROUPS),
          S::THREADS, S::BYTES, k->early, *k);
}

extern "C" void dro__gpu_conv3_bands_forward(cudaStream_t s, const dro__conv3 *k)
{
    if (k->out == 16)
        launch<16>(s, k);
    else if (k->out == 32)
        launch<32>(s, k);
    else
        launch<64>(s, k);
}

/* The instructions exist in compute capability 9.0 only, not in later ones, and only in builds with
 * code for exactly that (90a). In other code the kernels are empty. */
extern "C" int dro__gpu_conv3_bands_fit(int in, int out, int stride, int height, int width)
{
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
#ifndef DRO_CUDA_WARP_GROUPS
    major = 0;
#endif
    return major == 9 && minor == 0 && stride == 1 && in == out &&
           (in == 16 || in == 32 || in == 64) && height == 512 / in && width == 512 / in;
}
