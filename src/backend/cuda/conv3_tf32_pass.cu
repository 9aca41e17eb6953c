/* Forward and data gradient: pixels times weights, nine taps. A block keeps the weights in shared memory and
 * walks over tiles of one part; the data gradient is the same product with the kernel turned round, a stride of 2
 * being zeros between the pixels of the slope. */
#include "conv3_tf32.cuh"

/* K channels are summed over, N come out; TILE x TILE pixels at a time. */
template <int K, int N, int TILE, int STRIDE, bool BACK>
struct shape {
    static const int Z_SIDE = side_of(BACK ? K : N), X_SIDE = Z_SIDE * STRIDE; /* of exact images */
    static const int READ = BACK ? 1 : STRIDE, SPREAD = BACK ? STRIDE : 1;
    static const int WIDE = (TILE - 1) * READ + 3; /* pixels of the input tile */
    static const int ROW = K * 4 + PAD_BYTES;
    static const int ACROSS = TILE == 16 ? 1 : 2;     /* warps along N */
    static const int MT = TILE * TILE / 16 / (WARPS / ACROSS), NT = N / 8 / ACROSS;
    static const int STAGE = N * 4 + PAD_BYTES; /* a pixel of the result, in floats */
    static const int INPUT = WIDE * WIDE * ROW, RESULT = BACK ? (TILE * TILE * STAGE > 16384 ? TILE * TILE * STAGE : 16384) : 0;
    static const int TILE_BYTES = INPUT > RESULT ? INPUT : RESULT, WEIGHT_BYTES = TAPS * N * ROW;
    static const int SUM_BYTES = BACK ? 0 : WARPS * 2 * N * (int)sizeof(float);
    static const int COEF_BYTES = 3 * (K + N) * (int)sizeof(float);
    typedef tile_of<K, WIDE, SPREAD> tiles;
    static const int PLAIN_BYTES = TILE_BYTES + WEIGHT_BYTES + SUM_BYTES + COEF_BYTES;
    static const int FULL_BYTES = PLAIN_BYTES + 2 * tiles::RAW_BYTES;
    static const bool AHEAD = FULL_BYTES <= 112 * 1024; /* the next tile is fetched meanwhile */
    static const int BYTES = AHEAD ? FULL_BYTES : PLAIN_BYTES;
    static const int FIT = 224 * 1024 / (BYTES + 1024); /* blocks on a multiprocessor, by memory */
    static const int SMALL = K == 16 && N == 16 && FIT >= 4;
    static const int BLOCKS = SMALL ? (BACK ? 3 : 4) : FIT < 1 ? 1 : FIT < 2 ? FIT : 2;
};

template <int K, int N>
static __device__ void load_weights(char *to, const float *from)
{
    const int PARTS = K * 4 / 16, ROW = K * 4 + PAD_BYTES;
    for (int i = threadIdx.x; i < TAPS * N * PARTS; i += CONV_THREADS)
        *(uint4 *)(to + i / PARTS * ROW + i % PARTS * 16) = ((const uint4 *)from)[i];
}

template <int K, int N, int TILE, int STRIDE, bool BACK>
static __device__ __forceinline__ void
multiply(float (&acc)[shape<K, N, TILE, STRIDE, BACK>::MT]
                     [shape<K, N, TILE, STRIDE, BACK>::NT][4],
         unsigned tile, unsigned weights)
{
    typedef shape<K, N, TILE, STRIDE, BACK> S;
    const int STEPS = K * 4 / 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int across = warp % S::ACROSS, down = warp / S::ACROSS;
    unsigned from[S::MT];
#pragma unroll
    for (int m = 0; m < S::MT; m++) {
        int pixel = (down * S::MT + m) * 16 + lane % 16;
        int r = pixel / TILE * S::READ, c = pixel % TILE * S::READ;
        from[m] = tile + (r * S::WIDE + c) * S::ROW + lane / 16 * 16;
    }
    unsigned b_from = weights + (across * S::NT * 8 + lane / 16 * 8 + lane % 8) * S::ROW +
                      lane / 8 % 2 * 16;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            unsigned a[S::MT][4], b[S::NT / 2][4];
#pragma unroll
            for (int n = 0; n < S::NT / 2; n++)
                ldmatrix(b[n], b_from + (tap * N + n * 16) * S::ROW + step * 32);
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                ldmatrix(a[m], from[m] + (tap / 3 * S::WIDE + tap % 3) * S::ROW + step * 32);
#pragma unroll
            for (int m = 0; m < S::MT; m++)
#pragma unroll
                for (int n = 0; n < S::NT; n++)
                    mma_tf32(acc[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
}

/* The data gradient of a tile, eight channels of a pixel at a time: what was there already, the mask of the ReLU
 * before it, and the sums that its batch norm needs. */
template <int N, int TILE, bool EXACT>
static __device__ __forceinline__ void finish_tile(const dro__conv3 &k, const char *stage,
                                                   const spot &s, int height, int width,
                                                   const float *coef, float (&sums)[2][8])
{
    size_t image = (size_t)s.example * height * width * N;
    const int PARTS = N / 8, EACH = CONV_THREADS / PARTS, STAGE = N * 4 + PAD_BYTES;
    int first = threadIdx.x % PARTS * 8;
#pragma unroll
    for (int turn = 0; turn < TILE * TILE / EACH; turn++) {
        int pixel = threadIdx.x / PARTS + turn * EACH;
        int r = s.row + pixel / TILE, c = s.col + pixel % TILE;
        if (!EXACT && (r >= height || c >= width))
            continue;
        size_t at = image + (size_t)(r * width + c) * N + first;
        float x[8], y[8], z[8];
        read8((const float *)(stage + pixel * STAGE) + first, x);
        if (k.add) {
            read8((const float *)k.add + at, y);
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] += y[i];
        }
        if (k.close) {
            read8((const float *)k.x_z + at, z);
            if (k.x_relu && k.y)
                read8((const float *)k.y + at, y);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float out = k.y ? y[i] : coef[first + i] * z[i] + coef[N + first + i];
                x[i] = k.x_relu && out <= 0 ? 0 : x[i];
            }
        }
        raw8 to;
        to.close(x, false);
        to.store((float *)k.dx + at);
        to.open(x);
#pragma unroll
        for (int i = 0; k.close && i < 8; i++) {
            sums[0][i] += x[i];
            sums[1][i] += x[i] * (z[i] - coef[2 * N + first + i]);
        }
    }
}

/* Adds the sums of the block's threads, eight channels each, to the part's. */
template <int N>
static __device__ void flush_eights(float *room, const float (&sums)[2][8], double *to)
{
    const int PARTS = N / 8;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++)
        room[i * CONV_THREADS + threadIdx.x] = sums[i / 8][i % 8];
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * N; i += CONV_THREADS) {
        int c = i % N;
        const float *from = room + (i / N * 8 + c % 8) * CONV_THREADS;
        double sum = 0;
        for (int t = c / 8; t < CONV_THREADS; t += PARTS)
            sum += (double)from[t];
        add_sum(&to[i], N, sum);
    }
}

/* Adds the block's sums, (2, NT * 2) in each thread, to the part's. */
template <int N, int NT, int ACROSS>
static __device__ void flush_sums(float *room, float (&sums)[2][NT * 2], double *to)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int j = 0; j < NT * 2; j++) {
            float x = sums[s][j];
            x += __shfl_xor_sync(~0u, x, 4);
            x += __shfl_xor_sync(~0u, x, 8);
            x += __shfl_xor_sync(~0u, x, 16);
            if (lane < 4)
                room[(warp * 2 + s) * N + (warp % ACROSS * NT + j / 2) * 8 + lane * 2 + j % 2] = x;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * N; i += CONV_THREADS) {
        int s = i / N, c = i % N, across = c / (NT * 8);
        double sum = 0;
        for (int w = across; w < WARPS; w += ACROSS)
            sum += (double)room[(w * 2 + s) * N + c];
        add_sum(&to[i], N, sum);
    }
}

/* Forward: the products as they are, into z, and their sums. Backward: into the stage that finish_tile reads. */
template <int K, int N, int TILE, int STRIDE, bool BACK, bool EXACT>
static __device__ __forceinline__ void
write_tile(const dro__conv3 &k,
           const float (&acc)[shape<K, N, TILE, STRIDE, BACK>::MT]
                             [shape<K, N, TILE, STRIDE, BACK>::NT][4],
           char *stage, const spot &s, int height, int width,
           float (&sums)[2][shape<K, N, TILE, STRIDE, BACK>::NT * 2])
{
    typedef shape<K, N, TILE, STRIDE, BACK> S;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int first = warp % S::ACROSS * S::NT * 8 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int pixel = (warp / S::ACROSS * S::MT + m) * 16 + lane / 4 + half * 8;
            int row = s.row + pixel / TILE, col = s.col + pixel % TILE;
            size_t to = (((size_t)s.example * height + row) * width + col) * N + first;
#pragma unroll
            for (int n = 0; n < S::NT; n++) {
                float x = acc[m][n][half * 2], y = acc[m][n][half * 2 + 1];
                if (BACK) {
                    *(float2 *)(stage + pixel * S::STAGE + (first + n * 8) * 4) = make_float2(x, y);
                } else if (EXACT || (row < height && col < width)) {
                    *(float2 *)((float *)k.z + to + n * 8) = make_float2(x, y);
                    sums[0][n * 2] += x, sums[0][n * 2 + 1] += y;
                    sums[1][n * 2] += x * x, sums[1][n * 2 + 1] += y * y;
                }
            }
        }
}

/* a, c and mean of the tail that dx ends. */
template <int N>
static __device__ __forceinline__ void close_coef(const dro__conv3 &k, int part, float *coef)
{
    for (int i = threadIdx.x; i < N; i += CONV_THREADS) {
        int at = part * N + i;
        float mean = k.x_numbers.mean[at], scale = k.x_numbers.scale[at];
        coef[i] = scale;
        coef[N + i] = k.x_numbers.shift[at] - mean * scale;
        coef[2 * N + i] = mean;
    }
}

template <int K, int N, int TILE, int STRIDE, bool BACK, bool EXACT>
static __global__ void __launch_bounds__(CONV_THREADS, shape<K, N, TILE, STRIDE, BACK>::BLOCKS)
    pass_kernel(const __grid_constant__ dro__conv3 k)
{
    typedef shape<K, N, TILE, STRIDE, BACK> S;
    extern __shared__ __align__(128) char room[];
    char *tile = room, *weights = room + S::TILE_BYTES, *raw = room + S::PLAIN_BYTES;
    int part = blockIdx.y;
    const int x_height = EXACT ? S::X_SIDE : k.height, x_width = EXACT ? S::X_SIDE : k.width;
    const int z_height = EXACT ? S::Z_SIDE : k.out_height, z_width = EXACT ? S::Z_SIDE : k.out_width;
    const int height = BACK ? x_height : z_height, width = BACK ? x_width : z_width;
    const int in_height = BACK ? z_height : x_height, in_width = BACK ? z_width : x_width;
    int down = (height + TILE - 1) / TILE, across = (width + TILE - 1) / TILE;
    int tiles = (k.parts.first[part + 1] - k.parts.first[part]) * down * across;
    const float *u = (const float *)(BACK ? k.g : k.x), *v = (const float *)(BACK ? k.z : k.x_residual);
    load_weights<K, N>(weights, (const float *)k.weights + (BACK ? TAPS * K * N : 0));
    cudaGridDependencySynchronize(); /* nothing before this touches what the kernel before made */
    cudaTriggerProgrammaticLaunchCompletion();
    float *sum_room = (float *)(weights + S::WEIGHT_BYTES), *coef = sum_room + S::SUM_BYTES / 4;
    reader r;
    BACK ? r.slope(k, part, coef, false) : r.input(k, part, coef);
    coef += 3 * K; /* of the tail that dx ends: a, c, mean */
    if (BACK && k.close)
        close_coef<N>(k, part, coef);
    float sums[2][S::NT * 2] = {{0}}, eights[2][8] = {{0}};
    typename S::tiles lane_tile;
    size_t size = (size_t)in_height * in_width * K;
    if (S::AHEAD && (int)blockIdx.x < tiles) {
        spot s = spot_of(blockIdx.x, k.parts.first[part], down, across, TILE);
        image m = {in_height, in_width, s.row * S::READ - 1, s.col * S::READ - 1};
        lane_tile.fetch(raw, r, u + s.example * size, v + s.example * size, m);
    }
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        spot s = spot_of(t, k.parts.first[part], down, across, TILE);
        image m = {in_height, in_width, s.row * S::READ - 1, s.col * S::READ - 1};
        float *fill = BACK || !k.x_fill ? NULL : (float *)k.x_fill + s.example * size;
        if (S::AHEAD)
            fetch_wait();
        __syncthreads();
        if (S::AHEAD)
            lane_tile.template convert<TILE * S::READ>(tile, raw, r, m, fill);
        else
            lane_tile.template load<TILE * S::READ, 4>(tile, r, u + s.example * size,
                                                       v + s.example * size, m, fill);
        __syncthreads();
        if (S::AHEAD && t + (int)gridDim.x < tiles) {
            spot n = spot_of(t + gridDim.x, k.parts.first[part], down, across, TILE);
            m.row = n.row * S::READ - 1, m.col = n.col * S::READ - 1;
            lane_tile.fetch(raw, r, u + n.example * size, v + n.example * size, m);
        }
        float acc[S::MT][S::NT][4] = {{{0}}};
        multiply<K, N, TILE, STRIDE, BACK>(acc, shared_address(tile), shared_address(weights));
        if (BACK)
            __syncthreads(); /* the result takes the input's place */
        write_tile<K, N, TILE, STRIDE, BACK, EXACT>(k, acc, tile, s, height, width, sums);
        if (!BACK)
            continue;
        __syncthreads();
        finish_tile<N, TILE, EXACT>(k, tile, s, height, width, coef, eights);
    }
    if (BACK && k.close)
        flush_eights<N>((float *)tile, eights, k.x_numbers.back + 2 * part * N);
    else if (!BACK && k.sums)
        flush_sums<N, S::NT, S::ACROSS>(sum_room, sums, k.sums + 2 * part * N);
}

template <int K, int N, int TILE, int STRIDE, bool BACK, bool EXACT>
static void launch_as(cudaStream_t s, const dro__conv3 *k)
{
    typedef shape<K, N, TILE, STRIDE, BACK> S;
    int height = BACK ? k->height : k->out_height, width = BACK ? k->width : k->out_width, most = 0;
    for (int p = 0; p < k->parts.count; p++) {
        int tiles = (k->parts.first[p + 1] - k->parts.first[p]) * ((height + TILE - 1) / TILE) *
                    ((width + TILE - 1) / TILE);
        most = tiles > most ? tiles : most;
    }
    auto kernel = pass_kernel<K, N, TILE, STRIDE, BACK, EXACT>;
    static std::atomic<int> known;
    int resident =
        blocks_at_once(&known, (const void *)kernel, CONV_THREADS, S::BYTES);
    int each = resident / k->parts.count;
    queue(s, kernel, dim3(most < each ? most : each, k->parts.count), CONV_THREADS, S::BYTES,
          k->early, *k);
}

template <int K, int N, int TILE, int STRIDE, bool BACK>
static void launch(cudaStream_t s, const dro__conv3 *k)
{
    if (exact(k))
        launch_as<K, N, TILE, STRIDE, BACK, true>(s, k);
    else
        launch_as<K, N, TILE, STRIDE, BACK, false>(s, k);
}

template <bool BACK>
static void dispatch(cudaStream_t s, const dro__conv3 *k)
{
    if (k->in == 16 && k->out == 16)
        launch<16, 16, 16, 1, BACK>(s, k);
    else if (k->in == 16)
        launch<BACK ? 32 : 16, BACK ? 16 : 32, 16, 2, BACK>(s, k);
    else if (k->in == 32 && k->out == 32)
        launch<32, 32, 16, 1, BACK>(s, k);
    else if (k->in == 32)
        launch<BACK ? 64 : 32, BACK ? 32 : 64, BACK ? 16 : 8, 2, BACK>(s, k);
    else
        launch<64, 64, 8, 1, BACK>(s, k);
}

extern "C" void dro__gpu_conv3_tf32_forward(cudaStream_t s, const dro__conv3 *k)
{
    dispatch<false>(s, k);
}

extern "C" void dro__gpu_conv3_tf32_data(cudaStream_t s, const dro__conv3 *k)
{
    dispatch<true>(s, k);
}
