/* Backward by warp groups: both gradients of a convolution in one kernel. A block computes the
 * slope of z (all channels) and the input (its group of channels) in bands. It issues the products
 * for the data gradient of some patches, then some of those for the weight gradient. While the
 * latter run, the threads complete the patches: they add the slope accumulated before, apply the
 * ReLU's mask and take the sums that the input's batch norm needs. The weight gradient stays in
 * registers until the block ends. Each block writes its result to its own place in memory, and a
 * second kernel adds these in the order of the blocks. */
#include "conv3_back.cuh"
#include "conv3_bands.cuh"

/* Gates: for the slope, the input, the other inputs of dx, and the weights. */
enum { SLOPES, INPUTS, OTHERS, WEIGHS, GATE_COUNT };

template <int C>
struct back_bands : band_shape<C> {
    typedef band_shape<C> B;
    static const int ROUND = C == 16 ? 2 : 1, ROUNDS = B::OWN / ROUND; /* patches at a time */
    static const int SUMMED = C == 64 ? 5 : 3; /* products of a warp group per 16 pixels */
    static const int STEPS = OWN_ROWS * B::SIDE / 16;   /* per tile, of 16 pixels each */
    static const int X = B::all::BYTES, WEIGHTS_AT = X + B::own::BYTES;
    static const int RAW_G = WEIGHTS_AT + B::WEIGHTS, RAW_Z = RAW_G + B::RAW_ROWS * BAND_ROW;
    static const int RAW_X = RAW_Z + B::RAW_ROWS * BAND_ROW;
    static const int RAW_ADD = RAW_X + B::RAW_ROWS * BAND_ROW;
    static const int RAW_XZ = RAW_ADD + OWN_ROWS * BAND_ROW;
    static const int GATES = RAW_XZ + OWN_ROWS * BAND_ROW, COEF = GATES + 8 * GATE_COUNT;
    static const int SUMS = COEF + 5 * C * 4, BYTES = SUMS + B::THREADS / 32 * 2 * B::GN * 4;
    static const int EACH = B::TEAMS * SUMMED * B::GN / 8 * 128; /* float4s of a block's dw */
    static const int BLOCKS = C == 16 ? 3 : 2;
};

/* ---- reading ---- */

/* Begin the copies of a tile: of the slope, of the input, and of the other inputs of dx. Called by
 * the first thread. */
template <class S>
static __device__ __forceinline__ void begin_slope(const dro__conv3 &k, char *smem,
                                                   const band_share<S> &t)
{
    gate *g = (gate *)(smem + S::GATES) + SLOPES;
    gate_expect(g, copy_bytes<S>(t.row()) * (k.norm ? 2 : 1));
    copy_rows<S>(g, smem + S::RAW_G, t.image(k.g), t.row());
    if (k.norm)
        copy_rows<S>(g, smem + S::RAW_Z, t.image(k.z), t.row());
}

template <class S>
static __device__ __forceinline__ void begin_input(const dro__conv3 &k, char *smem,
                                                   const band_share<S> &t)
{
    gate *g = (gate *)(smem + S::GATES) + INPUTS;
    gate_expect(g, copy_bytes<S>(t.row()));
    copy_rows<S>(g, smem + S::RAW_X, t.image(k.x), t.row());
}

template <class S>
static __device__ __forceinline__ void begin_others(const dro__conv3 &k, char *smem,
                                                    const band_share<S> &t)
{
    gate *g = (gate *)(smem + S::GATES) + OTHERS;
    bool z = k.close && !k.lazy;
    gate_expect(g, (unsigned)(OWN_ROWS * BAND_ROW * ((k.add != NULL) + z)));
    if (k.add)
        copy_own(g, smem + S::RAW_ADD, t.image(k.add), t.row());
    if (z)
        copy_own(g, smem + S::RAW_XZ, t.image(k.x_z), t.row());
}

template <class S, int MODE>
static __device__ __forceinline__ void make_slope(char *smem, const band_share<S> &t)
{
    typedef typename S::all T;
    maker<bf16_values, MODE> m((const float *)(smem + S::COEF), S::CHANNELS,
                  T::plane_of(threadIdx.x % T::CHUNKS) * 8, false);
    make_bands<S, T>(smem, smem + S::RAW_G, smem + S::RAW_Z, m, t.row(), NULL);
}

template <class S, int MODE>
static __device__ __forceinline__ void make_input(const dro__conv3 &k, char *smem,
                                                  const band_share<S> &t, int group)
{
    typedef typename S::own T;
    maker<bf16_values, MODE> m((const float *)(smem + S::COEF) + 3 * S::CHANNELS, S::CHANNELS,
                  group * S::GN + T::plane_of(threadIdx.x % T::CHUNKS) * 8, k.x_relu);
    make_bands<S, T>(smem + S::X, smem + S::RAW_X + group * S::GN * 2, NULL, m, t.row(), NULL);
}

template <class S>
static __device__ __forceinline__ void make_tiles(const dro__conv3 &k, char *smem,
                                                  const band_share<S> &t, int group, int turn)
{
    gate *gates = (gate *)(smem + S::GATES);
    gate_wait(&gates[SLOPES], turn);
    if (k.norm)
        make_slope<S, SLOPE>(smem, t);
    else
        make_slope<S, AS_IS>(smem, t);
    gate_wait(&gates[INPUTS], turn);
    if (k.lazy)
        make_input<S, SCALED>(k, smem, t, group);
    else
        make_input<S, AS_IS>(k, smem, t, group);
    show_to_products();
    __syncthreads();
}

/* ---- the weight gradient ---- */

/* The products of a warp group over some steps of 16 pixels, for 16 and 32 channels. The 64 rows
 * are the input's channels in four rows of pixels, or (32 channels, where each warp group has one
 * half) in two. The three products are the taps of a row of the kernel. */
template <class S>
static __device__ __forceinline__ void row_products(float (&acc)[S::SUMMED][S::GN / 2],
                                                    const char *smem, int from)
{
    typedef typename S::all Z;
    typedef typename S::own X;
    const int PER = S::STEPS / S::ROUNDS, ROW = S::SIDE / 16;
    matrix x =
        matrix_at(shared_address(smem + S::X) + team_of_thread<S>() * 2 * X::BAND, 128, X::PLANE);
    matrix z = matrix_at(shared_address(smem) + Z::BAND + PIXEL, 128, Z::PLANE);
#pragma unroll
    for (int i = 0; i < PER * S::SUMMED; i++) {
        int n = i % S::SUMMED, step = from + i / S::SUMMED, at = step % ROW * 16 * PIXEL;
        product<1>(acc[n], moved(x, step / ROW * X::BAND + at + n * PIXEL),
                   moved(z, step / ROW * Z::BAND + at), 1);
    }
}

/* The same for 64 channels. The 64 rows are the slope's channels, a step is two rows of pixels, and
 * the products are taps: five in one warp group and four in the other. */
template <class S, int TEAM>
static __device__ __forceinline__ void tap_products(float (&acc)[S::SUMMED][S::GN / 2],
                                                    const char *smem)
{
    typedef typename S::all Z;
    typedef typename S::own X;
    matrix x = matrix_at(shared_address(smem + S::X), X::BAND, X::PLANE);
    matrix z = matrix_at(shared_address(smem) + Z::BAND + PIXEL, Z::BAND, Z::PLANE);
#pragma unroll
    for (int i = 0; i < S::STEPS * S::SUMMED; i++) {
        int step = i / S::SUMMED, n = i % S::SUMMED, tap = TEAM * S::SUMMED + n;
        if (tap < TAPS)
            product<1>(acc[n], moved(z, step * 2 * Z::BAND),
                       moved(x, (step * 2 + tap / 3) * X::BAND + tap % 3 * PIXEL), 1);
    }
}

template <class S>
static __device__ __forceinline__ void weight_products(float (&acc)[S::SUMMED][S::GN / 2],
                                                       const char *smem, int from)
{
    if constexpr (S::SIDE > 8)
        row_products<S>(acc, smem, from);
    else if (team_of_thread<S>())
        tap_products<S, 1>(acc, smem);
    else
        tap_products<S, 0>(acc, smem);
}

/* The weight to which a number of the gradient belongs; tap 9 or more: none. */
struct weight_place {
    int tap, in, out;
};

template <class S>
static __device__ __forceinline__ weight_place weight_of(int team, int n, int row, int col,
                                                         int group)
{
    weight_place p = {n + row / S::GN * 3 + team * 6, row % S::GN, col};
    if (S::SIDE == 8)
        p.tap = team * S::SUMMED + n, p.in = group * S::GN + col, p.out = row;
    return p;
}

template <class S>
static __device__ __forceinline__ void write_block(const dro__conv3 &k,
                                                   const float (&acc)[S::SUMMED][S::GN / 2],
                                                   int part, int group)
{
    float4 *to = (float4 *)(k.partial + (size_t)k.turn * PLACE) +
                 ((size_t)(part * S::GROUPS + group) * gridDim.x + blockIdx.x) * S::EACH +
                 threadIdx.x / 128 * S::SUMMED * S::GN / 8 * 128 + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < S::SUMMED * S::GN / 8; i++) {
        const float *a = acc[i / (S::GN / 8)] + i % (S::GN / 8) * 4;
        to[i * 128] = make_float4(a[0], a[1], a[2], a[3]);
    }
}

/* grads (out, real_in, taps) = the sums over blocks; 8 threads share the blocks of a float4. */
template <class S>
static __global__ void sum_kernel(const __grid_constant__ dro__conv3 k, int blocks)
{
    extern __shared__ __align__(128) char smem[];
    int lane = threadIdx.x % SUM_LANES;
    int warp = blockIdx.x % 4, j = blockIdx.x / 4 % (S::GN / 8), n = blockIdx.x / 4 / (S::GN / 8);
    int group = blockIdx.y, part = blockIdx.z;
    if (weight_of<S>(n / S::SUMMED, n % S::SUMMED, warp * 16, 0, 0).tap >= TAPS)
        return;
    const float4 *from = (const float4 *)(k.partial + (size_t)k.turn * PLACE) +
                         (size_t)(part * S::GROUPS + group) * blocks * S::EACH +
                         blockIdx.x * SUM_LANES + lane;
    float x[4];
    if (!sum_of_blocks(from, S::EACH, blocks, smem, x))
        return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        weight_place p =
            weight_of<S>(n / S::SUMMED, n % S::SUMMED, warp * 16 + lane / 4 + e / 2 * 8,
                         j * 8 + lane % 4 * 2 + e % 2, group);
        if (p.in < k.real_in)
            k.grads[part][(p.out * k.real_in + p.in) * TAPS + p.tap] = x[e];
    }
}

/* ---- the data gradient ---- */

/* The offset of the ReLU's mask for a thread's first pixel of a patch: it is the input, in
 * bands. */
template <class S>
static __device__ __forceinline__ int mask_at(int patch)
{
    typedef typename S::own T;
    int c = channel_of_thread<S>();
    return S::X + c / 8 * T::PLANE + c % 8 * 2 + (row_of_thread() + 1) * T::BAND +
           (patch + column_of_thread() + 1) * PIXEL;
}

/* Completes dx of a patch and adds to the sums of g and g z. */
template <class S>
static __device__ __forceinline__ void
finish_patch(const dro__conv3 &k, const char *smem, char *dx, int patch, int group,
             const float (&acc)[S::N / 2], float (&sums)[2 * S::HAS])
{
    const char *mask_from = smem + mask_at<S>(patch), *copied = smem + pixel_at<S>(0, patch, group);
    const char *add = copied + S::RAW_ADD;
    const char *z_from = copied + (k.lazy ? S::RAW_X + S::HALO * BAND_ROW : S::RAW_XZ);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        words<S::HAS> g, mask, old, z;
        if (k.add)
            old.read(add + h * BAND_ROW);
        if (k.close)
            z.read(z_from + h * BAND_ROW), mask.read(mask_from + h * S::own::BAND);
#pragma unroll
        for (int i = 0; i < S::HAS / 2; i++) {
            float x = acc[4 * i + 2 * h], y = acc[4 * i + 2 * h + 1];
            if (k.add)
                x += low_of(old.w[i]), y += high_of(old.w[i]);
            g.w[i] = pack2(x, y);
            if (!k.close)
                continue;
            if (k.x_relu)
                g.w[i] &= positive2(mask.w[i]);
            x = low_of(g.w[i]), y = high_of(g.w[i]);
            sums[2 * i] += x, sums[2 * i + 1] += y;
            sums[S::HAS + 2 * i] += x * low_of(z.w[i]);
            sums[S::HAS + 2 * i + 1] += y * high_of(z.w[i]);
        }
        g.write(dx + h * BAND_ROW);
    }
}

/* Adds the block's sums to those of the part. */
template <class S>
static __device__ __forceinline__ void flush(const dro__conv3 &k, float *smem,
                                             float (&sums)[2 * S::HAS], int part, int group)
{
    gather_sums<S>(smem, sums);
    int i = threadIdx.x, c = group * S::GN + i % S::GN;
    if (i >= 2 * S::GN)
        return;
    double sum = gathered<S>(smem, i);
    if (i >= S::GN) /* of g (z - mean) */
        sum -= gathered<S>(smem, i - S::GN) * (double)k.x_numbers.mean[part * S::CHANNELS + c];
    add_sum(&k.x_numbers.back[(2 * part + i / S::GN) * S::CHANNELS + c], S::CHANNELS, sum);
}

/* ---- the kernel ---- */

template <class S, bool DATA>
static __device__ __forceinline__ void start(const dro__conv3 &k, char *smem,
                                             const band_share<S> &t, int group, int part)
{
    gate *gates = (gate *)(smem + S::GATES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < GATE_COUNT; i++)
            gate_open(&gates[i]);
        gates_ready();
        if (DATA)
            copy_weights<S>(&gates[WEIGHS], smem + S::WEIGHTS_AT, k, 1, group);
    }
    clear_bands<S, typename S::all>(smem);
    clear_bands<S, typename S::own>(smem + S::X);
    __syncthreads();
    await_previous(); /* up to here nothing uses results of the previous kernel */
    if (threadIdx.x == 0 && t.at < t.end) {
        show_to_copies();
        begin_slope<S>(k, smem, t);
        begin_input<S>(k, smem, t);
        if (DATA)
            begin_others<S>(k, smem, t);
    }
    float *coef = (float *)(smem + S::COEF);
    slope_coefficients(k, part, coef, S::THREADS, blockIdx.x == 0 && group == 0);
    input_coefficients(k, part, coef + 3 * S::CHANNELS, S::THREADS, false);
    __syncthreads();
    if (DATA)
        gate_wait(&gates[WEIGHS], 0);
}

/* Issues the products of a tile and completes its data gradient. */
template <class S, bool DATA, bool WEIGHT>
static __device__ __forceinline__ void rounds(const dro__conv3 &k, const char *smem,
                                              const band_share<S> &t, int group, int turn,
                                              float (&acc)[S::SUMMED][S::GN / 2],
                                              float (&sums)[2 * S::HAS])
{
    char *dx = (char *)t.image(k.dx);
#pragma unroll
    for (int r = 0; r < S::ROUNDS; r++) {
        float d[S::ROUND][S::N / 2];
        products_begin();
#pragma unroll
        for (int i = 0; DATA && i < S::ROUND; i++)
            patch_products<S>(d[i], smem, smem + S::WEIGHTS_AT, patch_at<S>(r * S::ROUND + i));
        products_end();
        if (WEIGHT)
            weight_products<S>(acc, smem, r * (S::STEPS / S::ROUNDS));
        products_end();
        if (DATA && r == 0)
            gate_wait((gate *)(smem + S::GATES) + OTHERS, turn);
        if (DATA)
            products_wait<1>();
#pragma unroll
        for (int i = 0; DATA && i < S::ROUND; i++) {
            int patch = patch_at<S>(r * S::ROUND + i);
            settle(d[i]);
            finish_patch<S>(k, smem, dx + pixel_at<S>(t.row(), patch, group), patch, group, d[i],
                            sums);
        }
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < S::SUMMED; i++)
        settle(acc[i]);
}

template <class S, bool DATA, bool WEIGHT>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    back_kernel(const __grid_constant__ dro__conv3 k)
{
#ifdef DRO_WARP_GROUPS
    extern __shared__ __align__(128) char smem[];
    int group = blockIdx.y, part = blockIdx.z;
    band_share<S> t(k, part);
    start<S, DATA>(k, smem, t, group, part);
    float acc[S::SUMMED][S::GN / 2], sums[2 * S::HAS] = {0};
#pragma unroll
    for (int i = 0; i < S::SUMMED * S::GN / 2; i++)
        acc[i / (S::GN / 2)][i % (S::GN / 2)] = 0;
    for (int turn = 0; t.at < t.end; turn++) {
        make_tiles<S>(k, smem, t, group, turn);
        band_share<S> now = t;
        bool more = ++t.at < t.end && threadIdx.x == 0;
        if (more) {
            begin_slope<S>(k, smem, t);
            if (!DATA || !k.lazy)
                begin_input<S>(k, smem, t);
        }
        rounds<S, DATA, WEIGHT>(k, smem, now, group, turn, acc, sums);
        if (DATA) /* reads of the copied rows come before the next bulk copies into them */
            show_to_products();
        __syncthreads();
        if (more && DATA) {
            if (k.lazy) /* until here its copy was also the z of the tail */
                begin_input<S>(k, smem, t);
            begin_others<S>(k, smem, t);
        }
    }
    admit_next();
    if (WEIGHT)
        write_block<S>(k, acc, part, group);
    if (DATA && k.close)
        flush<S>(k, (float *)(smem + S::SUMS), sums, part, group);
#endif
}

/* ---- launches ---- */

template <class S>
static int blocks_of(const dro__conv3 *k)
{
    static std::atomic<int> known;
    int resident =
        blocks_at_once(&known, (const void *)back_kernel<S, true, true>, S::THREADS, S::BYTES);
    return band_blocks<S>(k, resident < PLACE / 4 / S::EACH ? resident : PLACE / 4 / S::EACH);
}

template <class S, bool DATA, bool WEIGHT>
static void launch_back(cudaStream_t s, const dro__conv3 *k)
{
    static std::atomic<int> known;
    blocks_at_once(&known, (const void *)back_kernel<S, DATA, WEIGHT>, S::THREADS, S::BYTES);
    queue(s, back_kernel<S, DATA, WEIGHT>, dim3(blocks_of<S>(k), S::GROUPS, k->parts.count),
          S::THREADS, S::BYTES, k->early, *k);
}

/* Launches the kernel for both gradients, or (sum) the one that sums the weight gradient over the
 * blocks. */
template <int C>
static void launch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    typedef back_bands<C> S;
    if (sum)
        queue(s, sum_kernel<S>, dim3(S::EACH / 32, S::GROUPS, k->parts.count), 256,
              8 * 32 * (int)sizeof(float4), 0, *k, blocks_of<S>(k));
    else if (k->dx && k->partial)
        launch_back<S, true, true>(s, k);
    else if (k->dx)
        launch_back<S, true, false>(s, k);
    else
        launch_back<S, false, true>(s, k);
}

static void dispatch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    if (k->out == 16)
        launch<16>(s, k, sum);
    else if (k->out == 32)
        launch<32>(s, k, sum);
    else
        launch<64>(s, k, sum);
}

extern "C" void dro__gpu_conv3_bands_back(cudaStream_t s, const dro__conv3 *k)
{
    dispatch(s, k, false);
}

extern "C" void dro__gpu_conv3_bands_sum(cudaStream_t s, const dro__conv3 *k)
{
    dispatch(s, k, true);
}
