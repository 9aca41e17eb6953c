/* Backward by rows: both gradients of a convolution in one kernel. A block has 16 of the input's
 * channels and loops over tiles of one part. It computes the slope of z (all channels) and the
 * input (its own channels) in shared memory, and from them
 *   - the data gradient: each warp sums over 16 channels of the slope. The results of the warps are
 *     added in shared memory, the mask of the input's ReLU is applied, and the sums that the
 *     input's batch norm needs are taken;
 *   - the weight gradient: each warp accumulates half of the taps for its 16 channels of the slope
 *     until the block ends. Each block writes its result to its own place in memory, and a second
 *     kernel adds these in the order of the blocks. */
#include "conv3_back_data.cuh"
#include "conv3_back_weight.cuh"

/* Sets up what a block keeps in shared memory: cleared borders, sums of 0, coefficients,
 * weights. */
template <class S>
static __device__ __forceinline__ void start(const dro__conv3 &k, char *smem, int group, int part)
{
    const float nothing[2 * S::V::PER] = {0};
    clear_sides<typename S::z_tile, THREADS_BACK>(smem);
    clear_sides<typename S::x_tile, THREADS_BACK>(smem + S::X);
    put_sums(smem + S::MOMENTS, nothing);
    float *coef = (float *)(smem + S::COEF);
    slope_coefficients(k, part, coef, THREADS_BACK, blockIdx.x == 0 && group == 0);
    input_coefficients(k, part, coef + 3 * k.out, THREADS_BACK, false);
    fetch_wait();
    __syncthreads();
}

template <class S>
static __device__ __forceinline__ void take_weights(const dro__conv3 &k, char *smem, int group)
{
    const int EACH = S::KS * S::DEPTH * TAPS * 32;
    fetch_words(smem + S::WEIGHTS, (const uint4 *)k.weights + (S::GROUPS + group) * EACH, EACH,
                THREADS_BACK);
}

template <class S>
static __global__ void __launch_bounds__(THREADS_BACK, 2)
    back_kernel(const __grid_constant__ dro__conv3 k)
{
    extern __shared__ __align__(128) char smem[];
    int group = blockIdx.y, part = blockIdx.z;
    tiles t(k, part, S::TH, S::TW, out_place<S>(k));
    place in = in_place<S>(k, t.p);
    take_weights<S>(k, smem, group);
    await_previous(); /* up to here nothing uses results of the previous kernel */
    typename S::z_ahead za;
    begin_slope<S>(k, za, t.example, t.p);
    start<S>(k, smem, group, part);
    float acc[SLOTS][2][4] = {{{0}}}, sums[2 * S::V::PER];
    while (t.left > 0) {
        with<S> more;
        end_tiles<S>(k, smem, za, t.example, t.p, in, group);
        __syncthreads();
        if (k.dx) {
            data_products<S>(smem);
            more.template load<0, 2>(k, t.example, in, group);
        }
        if (k.partial)
            weight_products<S>(acc, smem);
        __syncthreads();
        if (k.dx) {
            get_sums(smem + S::MOMENTS, sums);
            finish_tile<S>(k, smem, more, t.example, in, group, sums);
            put_sums(smem + S::MOMENTS, sums);
        }
        t.next(S::TH, S::TW);
        if (t.left <= 0)
            break;
        in = in_place<S>(k, t.p);
        begin_slope<S>(k, za, t.example, t.p);
        __syncthreads();
    }
    admit_next();
    __syncthreads();
    if (k.partial)
        write_block<S>(k, acc, (float4 *)(smem + S::X), part, group);
    if (!k.close)
        return;
    get_sums(smem + S::MOMENTS, sums);
    flush<S>(k, (float *)smem, sums, part, group);
}

/* ---- launches ---- */

/* The number of blocks for each part and group. All blocks get the same number of tiles, or one
 * less. */
template <class S>
static int blocks_of(const dro__conv3 *k)
{
    static std::atomic<int> known;
    int resident =
        blocks_at_once(&known, (const void *)back_kernel<S>, THREADS_BACK, S::BYTES);
    int all = resident < BACK_BLOCKS ? resident : BACK_BLOCKS, most = 1;
    int each = all / (k->parts.count * S::GROUPS * k->share);
    for (int p = 0; p < k->parts.count; p++) {
        int count = (k->parts.first[p + 1] - k->parts.first[p]) *
                    ((k->out_height + S::TH - 1) / S::TH) * ((k->out_width + S::TW - 1) / S::TW);
        most = count > most ? count : most;
    }
    each = each > 0 ? each : 1;
    int turns = (most + each - 1) / each;
    return (most + turns - 1) / turns;
}

/* Launches the kernel for both gradients, or (sum) the one that sums the weight gradient over the
 * blocks. */
template <class S>
static void launch_as(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    unsigned blocks = (unsigned)blocks_of<S>(k), parts = (unsigned)k->parts.count;
    if (sum)
        queue(s, sum_kernel<typename S::V>, dim3(S::KS * 2 * ROLE / 32, S::GROUPS, parts), 256,
              8 * 32 * (int)sizeof(float4), 0, *k, (int)blocks);
    else
        queue(s, back_kernel<S>, dim3(blocks, S::GROUPS, parts), THREADS_BACK, S::BYTES, k->early,
              *k);
}

template <class V, int CI, int CO, int STRIDE>
static void launch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    if (exact<back_shape<V, CI, CO, STRIDE, true>>(k))
        launch_as<back_shape<V, CI, CO, STRIDE, true>>(s, k, sum);
    else
        launch_as<back_shape<V, CI, CO, STRIDE, false>>(s, k, sum);
}

template <class V>
static void dispatch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    if (k->in == 16 && k->out == 16)
        launch<V, 16, 16, 1>(s, k, sum);
    else if (k->in == 16)
        launch<V, 16, 32, 2>(s, k, sum);
    else if (k->in == 32 && k->out == 32)
        launch<V, 32, 32, 1>(s, k, sum);
    else if (k->in == 32)
        launch<V, 32, 64, 2>(s, k, sum);
    else
        launch<V, 64, 64, 1>(s, k, sum);
}

extern "C" void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *k)
{
    if (k->bands)
        dro__gpu_conv3_bands_back(s, k);
    else if (k->bf16)
        dispatch<bf16_values>(s, k, false);
    else
        dispatch<tf32_values>(s, k, false);
}

extern "C" void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *k)
{
    if (k->bands)
        dro__gpu_conv3_bands_sum(s, k);
    else if (k->bf16)
        dispatch<bf16_values>(s, k, true);
    else
        dispatch<tf32_values>(s, k, true);
}

template <class V>
static int bytes_of(int in, int out)
{
    if (in == 16 && out == 16)
        return back_shape<V, 16, 16, 1, true>::BYTES;
    if (in == 16)
        return back_shape<V, 16, 32, 2, true>::BYTES;
    if (in == 32 && out == 32)
        return back_shape<V, 32, 32, 1, true>::BYTES;
    if (in == 32)
        return back_shape<V, 32, 64, 2, true>::BYTES;
    return back_shape<V, 64, 64, 1, true>::BYTES;
}

extern "C" int dro__gpu_conv3_back_bytes(int bf16, int in, int out)
{
    return bf16 ? bytes_of<bf16_values>(in, out) : bytes_of<tf32_values>(in, out);
}

extern "C" size_t dro__gpu_conv3_partial(void)
{
    return (size_t)DRO__CONV3_TURNS * PLACE;
}
