/* Forward by rows. A warp computes 16 output channels and moves down some rows of a tile. z is
 * written to memory directly from the accumulators, and its moments stay in registers until the
 * block ends. The weights are in the warp's registers (bfloat16) or in the block's shared memory
 * (tf32, twice as large). */
#include "conv3_rows.cuh"

/* By precision: the size of a block, how much of a tile its threads load ahead, and the bytes of
 * weights in shared memory. */
template <class V, int K, int N, int STRIDE>
struct forward_size;

template <int K, int N, int STRIDE>
struct forward_size<bf16_values, K, N, STRIDE> {
    static const int TH = N == 64 || STRIDE == 2 ? 8 : 16;
    static const int WARPS = K == 32 && N == 32 ? 8 : 4;
    static const int BLOCKS = K == 64 || WARPS == 8 ? 2 : K == 32 ? 3 : 4;
    static const int AHEAD = K == 32 ? 3 : 9, SHARED = 0;
};

template <int K, int N, int STRIDE>
struct forward_size<tf32_values, K, N, STRIDE> {
    static const int TH = N == 16 ? 16 : 8;
    static const int WARPS = K == 32 && N == 32 ? 4 : 8;
    static const int BLOCKS = K == 64 ? 1 : 2;
    static const int AHEAD = 10, SHARED = TAPS * K * N * 4;
};

/* The shape of a block, for a convolution from K to N channels. A tile is TH x TW pixels of the
 * output; a warp has R rows of 16 pixels. */
template <class V_, int K, int N, int STRIDE_, bool EXACT_>
struct forward_shape : forward_size<V_, K, N, STRIDE_> {
    typedef V_ V;
    typedef forward_size<V_, K, N, STRIDE_> Z;
    static const int IN = K, OUT = N, STRIDE = STRIDE_;
    static const bool EXACT = EXACT_;
    static const int TW = N == 16 ? 32 : N == 32 ? 16 : 8;
    static const int THREADS = 32 * Z::WARPS, KS = K / (2 * V::PER);
    static const int GROUPS = N / 16, STRIPS = TW >= 16 ? TW / 16 : 1;
    static const int DOWN = Z::WARPS / (GROUPS * STRIPS), R = (TW >= 16 ? Z::TH : Z::TH / 2) / DOWN;
    typedef tile_of<V, K / V::PER, (Z::TH - 1) * STRIDE + 3, TW * STRIDE, 1, 1, 2 - STRIDE> tile;
    static const int ALL = column<tile, THREADS>::PASSES;
    typedef held<tile, THREADS, ALL < Z::AHEAD ? ALL : Z::AHEAD, false> ahead;
    static const int COEF = tile::BYTES, SUMS = COEF + 2 * K * 4,
                     WEIGHTS = SUMS + Z::WARPS * 32 * 4;
    static const int BYTES = WEIGHTS + Z::SHARED;
};

/* The weights of a warp's 16 channels, those of `group`. */
template <class S>
struct held_weights {
    uint4 b[TAPS * S::KS];

    __device__ __forceinline__ void begin(char *, const uint4 *packed, int group)
    {
#pragma unroll
        for (int i = 0; i < TAPS * S::KS; i++)
            b[i] = packed[(group * TAPS * S::KS + i) * 32 + threadIdx.x % 32];
    }
    __device__ __forceinline__ void end() {}
    template <class W>
    __device__ __forceinline__ void products(const char *, int, unsigned from, W w) const
    {
        if constexpr (S::STRIDE == 1)
            roll<S::R, S::KS, typename S::tile>(from, b, w);
        else
            skip<S::R, S::KS, typename S::tile>(from, b, w);
    }
};

template <class S>
struct shared_weights {
    __device__ __forceinline__ void begin(char *smem, const uint4 *packed, int)
    {
        fetch_words(smem + S::WEIGHTS, packed, S::SHARED / 16, S::THREADS);
    }
    __device__ __forceinline__ void end() { fetch_wait(); }
    template <class W>
    __device__ __forceinline__ void products(const char *smem, int group, unsigned from, W w) const
    {
        const uint4 *mine =
            (const uint4 *)(smem + S::WEIGHTS) + group * TAPS * S::KS * 32 + threadIdx.x % 32;
        roll_deep<S::R, S::STRIDE, S::KS, S::KS, typename S::tile>(from, mine, w);
    }
};

template <class S, bool SHARED = (S::SHARED > 0)>
struct weights_of {
    typedef held_weights<S> type;
};

template <class S>
struct weights_of<S, true> {
    typedef shared_weights<S> type;
};

/* Computes the input of a tile in shared memory. */
template <class S, int MODE>
static __device__ __forceinline__ void fill_as(const dro__conv3 &k, char *smem,
                                               typename S::ahead &ahead, int example,
                                               const place &p)
{
    typedef typename S::tile T;
    typedef typename S::V V;
    maker<V, MODE> m((const float *)(smem + S::COEF), p.channels, threadIdx.x % T::CH * V::PER,
                     k.x_relu);
    const char *u = image_of<V>(k.x, example, p), *v = image_of<V>(k.x_residual, example, p);
    void *keep = k.x_fill ? (void *)image_of<V>(k.x_fill, example, p) : NULL;
    ahead.fill(smem, u, v, m, p, 0, keep, [] {});
    if (p.width > T::COLS)
        fill_sides<T, S::THREADS>(smem, u, v, m, p, 0);
}

template <class S>
static __device__ __forceinline__ void fill_input(const dro__conv3 &k, char *smem,
                                                  typename S::ahead &ahead, int example,
                                                  const place &p)
{
    if (!k.lazy)
        fill_as<S, AS_IS>(k, smem, ahead, example, p);
    else if (!k.x_residual)
        fill_as<S, SCALED>(k, smem, ahead, example, p);
    else
        fill_as<S, SCALED_PLUS>(k, smem, ahead, example, p);
}

/* Stores a lane's four channels of two pixels (h) of a row, and adds to its sums. rows[h]: how many
 * of its rows are inside the image. */
template <class S>
struct writer {
    typedef typename S::V V;
    static const int PIXEL_BYTES = S::OUT * V::SIZE;
    char *z; /* its first pixel */
    float (&sums)[8];
    int rows[2], row_bytes;

    /* p: the tile's place; row and col are relative to it */
    __device__ __forceinline__ writer(const dro__conv3 &k, int example, const place &p, int row,
                                      int col, int first, float (&to)[8])
        : sums(to)
    {
        int y = p.row + row, x = p.col + col;
        row_bytes = p.width * PIXEL_BYTES;
        z = (char *)image_of<V>(k.z, example, p) + y * row_bytes + x * PIXEL_BYTES +
            first * V::SIZE;
        for (int h = 0; h < 2; h++)
            rows[h] = x + (S::TW == 8 ? 0 : h * 8) < p.width
                          ? p.height - y - (S::TW == 8 ? h * S::TH / 2 : 0)
                          : 0;
    }
    __device__ __forceinline__ void operator()(int i, const float (&acc)[2][4]) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (!S::EXACT && i >= rows[h])
                continue;
            char *to = z + row_bytes * (S::TW == 8 ? i + h * S::TH / 2 : i) +
                       (S::TW == 8 ? 0 : h * 8 * PIXEL_BYTES);
            const float v[4] = {acc[0][2 * h], acc[0][2 * h + 1], acc[1][2 * h], acc[1][2 * h + 1]};
            V::store4(to, v);
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[j] += v[j], sums[4 + j] += v[j] * v[j];
        }
    }
};

/* Adds the block's sums, of z and of z^2 for four channels of each lane, to those of the part. */
template <class S>
static __device__ __forceinline__ void flush(float *smem, float (&sums)[8], double *to)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int index = spread_sum<8, 4>(sums);
    smem[warp * 32 + index / 4 * 16 + lane % 4 * 4 + index % 4] = sums[0];
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * S::OUT; i += S::THREADS) {
        int c = i % S::OUT;
        double sum = 0;
        for (int w = c / 16; w < S::WARPS; w += S::GROUPS)
            sum += (double)smem[w * 32 + i / S::OUT * 16 + c % 16];
        add_sum(&to[i], S::OUT, sum);
    }
}

template <class S>
static __global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    forward_kernel(const __grid_constant__ dro__conv3 k)
{
    typedef typename S::tile T;
    typedef typename S::V V;
    const int STRIDE = S::STRIDE;
    extern __shared__ __align__(128) char smem[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = blockIdx.y;
    int group = warp % S::GROUPS, strip = warp / S::GROUPS % S::STRIPS;
    int down = warp / S::GROUPS / S::STRIPS * S::R;
    typename weights_of<S>::type weights;
    weights.begin(smem, (const uint4 *)k.weights, group);
    await_previous(); /* up to here nothing uses results of the previous kernel */
    tiles t(k, part, S::TH, S::TW, out_place<S>(k));
    place in = in_place<S>(k, t.p);
    typename S::ahead ahead;
    ahead.load(in, 0, image_of<V>(k.x, t.example, in), NULL);
    clear_sides<T, S::THREADS>(smem);
    input_coefficients(k, part, (float *)(smem + S::COEF), S::THREADS, blockIdx.x == 0);
    float sums[8] = {0};
    unsigned from = shared_address(smem) + lane / 16 * T::PLANE +
                    (down * STRIDE * T::PITCH + strip * 16 * STRIDE +
                     lane_pixel<S::TW, T::PITCH, S::TH / 2, STRIDE>(lane % 16)) *
                        PIXEL;
    weights.end();
    __syncthreads();
    while (t.left > 0) {
        fill_input<S>(k, smem, ahead, t.example, in);
        __syncthreads();
        writer<S> w(k, t.example, t.p, down, strip * 16 + lane / 4, group * 16 + lane % 4 * 4,
                    sums);
        weights.products(smem, group, from, w);
        t.next(S::TH, S::TW);
        if (t.left <= 0)
            break;
        in = in_place<S>(k, t.p);
        ahead.load(in, 0, image_of<V>(k.x, t.example, in), NULL);
        __syncthreads();
    }
    admit_next();
    if (k.sums)
        flush<S>((float *)(smem + S::SUMS), sums, k.sums + 2 * part * S::OUT);
}

template <class S>
static void launch_as(cudaStream_t s, const dro__conv3 *k)
{
    auto kernel = forward_kernel<S>;
    static std::atomic<int> known;
    int resident =
        blocks_at_once(&known, (const void *)kernel, S::THREADS, S::BYTES);
    int most = 1, each = resident / (k->parts.count * k->share);
    for (int p = 0; p < k->parts.count; p++) {
        int count = (k->parts.first[p + 1] - k->parts.first[p]) *
                    ((k->out_height + S::TH - 1) / S::TH) * ((k->out_width + S::TW - 1) / S::TW);
        most = count > most ? count : most;
    }
    each = each > 0 ? each : 1;
    queue(s, kernel, dim3(most < each ? most : each, k->parts.count), S::THREADS, S::BYTES,
          k->early, *k);
}

template <class V, int K, int N, int STRIDE>
static void launch(cudaStream_t s, const dro__conv3 *k)
{
    if (exact<forward_shape<V, K, N, STRIDE, true>>(k))
        launch_as<forward_shape<V, K, N, STRIDE, true>>(s, k);
    else
        launch_as<forward_shape<V, K, N, STRIDE, false>>(s, k);
}

template <class V>
static void dispatch(cudaStream_t s, const dro__conv3 *k)
{
    if (k->in == 16 && k->out == 16)
        launch<V, 16, 16, 1>(s, k);
    else if (k->in == 16)
        launch<V, 16, 32, 2>(s, k);
    else if (k->in == 32 && k->out == 32)
        launch<V, 32, 32, 1>(s, k);
    else if (k->in == 32)
        launch<V, 32, 64, 2>(s, k);
    else
        launch<V, 64, 64, 1>(s, k);
}

extern "C" void dro__gpu_conv3_forward(cudaStream_t s, const dro__conv3 *k)
{
    if (k->bands)
        dro__gpu_conv3_bands_forward(s, k);
    else if (k->bf16)
        dispatch<bf16_values>(s, k);
    else
        dispatch<tf32_values>(s, k);
}

extern "C" int dro__gpu_code(void)
{
    return code_of((const void *)forward_kernel<forward_shape<bf16_values, 16, 16, 1, true>>);
}

template <class V>
static int bytes_of(int in, int out)
{
    if (in == 16 && out == 16)
        return forward_shape<V, 16, 16, 1, true>::BYTES;
    if (in == 16)
        return forward_shape<V, 16, 32, 2, true>::BYTES;
    if (in == 32 && out == 32)
        return forward_shape<V, 32, 32, 1, true>::BYTES;
    if (in == 32)
        return forward_shape<V, 32, 64, 2, true>::BYTES;
    return forward_shape<V, 64, 64, 1, true>::BYTES;
}

/* The most shared memory that a block may use. Code for 8.x uses no more than an 8.0 GPU has, on
 * later GPUs too: a build with only PTX for 8.0 takes the path of an 8.0 GPU everywhere. */
static int most_shared(void)
{
    const int ampere = 163 * 1024;
    int device = 0, shared = 0, code = dro__gpu_code();
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return code > 0 && code < 90 && shared > ampere ? ampere : shared;
}

extern "C" int dro__gpu_conv3_fits(int bf16, int in, int out, int stride)
{
    int shared = most_shared();
    bool known = (stride == 1 && in == out && (in == 16 || in == 32 || in == 64)) ||
                 (stride == 2 && out == 2 * in && (in == 16 || in == 32));
    return known && shared >= dro__gpu_conv3_back_bytes(bf16, in, out) &&
           shared >= (bf16 ? bytes_of<bf16_values>(in, out) : bytes_of<tf32_values>(in, out));
}
