/* Weight gradients: channels of the input times channels of the slope, summed over the pixels of a part, for nine
 * taps at once. A warp has 16 input channels and some output channels; warps that have the same take different
 * pixels. Blocks write their sums one after another, and a second kernel adds them up in that order. */
#include "conv3_tf32.cuh"

enum { MOST_BLOCKS = 264 };

template <int CI, int CO, int TILE, int STRIDE>
struct weight_shape {
    static const int SIDE = side_of(CO); /* of exact images */
    static const int WIDE = (TILE - 1) * STRIDE + 3;
    static const int ROW_X = CI * 4 + PAD_BYTES, ROW_Z = CO * 4 + PAD_BYTES;
    static const int WM = CI / 16, NT = CI == 64 ? 4 : 2, WN = CO / 8 / NT, WK = WARPS / (WM * WN);
    static const int X_BYTES = WIDE * WIDE * ROW_X, Z_BYTES = TILE * TILE * ROW_Z;
    static const int SUM_BYTES = WK > 1 ? TAPS * CI * CO * (int)sizeof(float) : 0;
    static const int COEF_BYTES = 3 * (CI + CO) * (int)sizeof(float);
    static const int TILES = X_BYTES + Z_BYTES > SUM_BYTES ? X_BYTES + Z_BYTES : SUM_BYTES;
    typedef tile_of<CI, WIDE, 1> x_tiles;
    typedef tile_of<CO, TILE, 1> z_tiles;
    static const int PLAIN_BYTES = TILES + COEF_BYTES;
    static const int FULL_BYTES = PLAIN_BYTES + x_tiles::RAW_BYTES + 2 * z_tiles::RAW_BYTES;
    static const bool AHEAD = FULL_BYTES <= 112 * 1024; /* the next tile is fetched meanwhile */
    static const int BYTES = AHEAD ? FULL_BYTES : PLAIN_BYTES;
    static const int BLOCKS = CI == 64 || BYTES > 110 * 1024 ? 1 : 2; /* on a multiprocessor */
    static const int DEEP = 32 / 4; /* pixels of one product */
};

static __device__ __forceinline__ unsigned word(const char *p)
{
    return *(const unsigned *)p;
}

template <int CI, int CO, int TILE, int STRIDE>
static __device__ __forceinline__ void
gather(float (&acc)[TAPS][weight_shape<CI, CO, TILE, STRIDE>::NT][4], const char *x, const char *z)
{
    typedef weight_shape<CI, CO, TILE, STRIDE> S;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int wm = warp % S::WM, wn = warp / S::WM % S::WN, wk = warp / (S::WM * S::WN);
    for (int step = wk; step < TILE * TILE / S::DEEP; step += S::WK) {
        unsigned b[S::NT / 2][4], a[4];
        int p0 = step * S::DEEP + lane % 4, p1 = p0 + 4, g = lane / 4;
        const char *z0 = z + p0 * S::ROW_Z + (wn * S::NT * 8 + g) * 4, *z1 = z0 + 4 * S::ROW_Z;
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            b[n / 2][n % 2 * 2] = word(z0 + n * 32);
            b[n / 2][n % 2 * 2 + 1] = word(z1 + n * 32);
        }
        const char *x0 = x + (p0 / TILE * S::WIDE + p0 % TILE) * STRIDE * S::ROW_X;
        const char *x1 = x + (p1 / TILE * S::WIDE + p1 % TILE) * STRIDE * S::ROW_X;
        x0 += (wm * 16 + g) * 4, x1 += (wm * 16 + g) * 4;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            int off = (tap / 3 * S::WIDE + tap % 3) * S::ROW_X;
            a[0] = word(x0 + off), a[1] = word(x0 + off + 32);
            a[2] = word(x1 + off), a[3] = word(x1 + off + 32);
#pragma unroll
            for (int n = 0; n < S::NT; n++)
                mma_tf32(acc[tap][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
}

/* Where a thread's number is among (taps, in, out). */
template <int CI, int CO, int TILE, int STRIDE>
static __device__ __forceinline__ int index_of(int tap, int n, int e)
{
    typedef weight_shape<CI, CO, TILE, STRIDE> S;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int in = warp % S::WM * 16 + lane / 4 + e / 2 * 8;
    int out = (warp / S::WM % S::WN * S::NT + n) * 8 + lane % 4 * 2 + e % 2;
    return (tap * CI + in) * CO + out;
}

/* The sums of all warps into the block's place of k.partial; `room` is the tiles' memory. */
template <int CI, int CO, int TILE, int STRIDE>
static __device__ __forceinline__ void
write_block(const dro__conv3 &k,
            float (&acc)[TAPS][weight_shape<CI, CO, TILE, STRIDE>::NT][4], char *room)
{
    typedef weight_shape<CI, CO, TILE, STRIDE> S;
    int part = blockIdx.y, wk = threadIdx.x / 32 / (S::WM * S::WN);
    float *sum = (float *)room;
    for (int w = 1; w < S::WK; w++) { /* the warps of other pixels, one after another */
        __syncthreads();
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int n = 0; n < S::NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (wk == w)
                        sum[index_of<CI, CO, TILE, STRIDE>(tap, n, e)] = acc[tap][n][e];
        __syncthreads();
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int n = 0; n < S::NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (wk == 0)
                        acc[tap][n][e] += sum[index_of<CI, CO, TILE, STRIDE>(tap, n, e)];
    }
    float *out = k.partial + ((size_t)part * gridDim.x + blockIdx.x) * (TAPS * CI * CO);
    if (wk)
        return;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
        for (int n = 0; n < S::NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e += 2)
                *(float2 *)&out[index_of<CI, CO, TILE, STRIDE>(tap, n, e)] =
                    make_float2(acc[tap][n][e], acc[tap][n][e + 1]);
}

template <int CI, int CO, int TILE, int STRIDE, bool EXACT>
static __global__ void
    __launch_bounds__(CONV_THREADS, weight_shape<CI, CO, TILE, STRIDE>::BLOCKS)
    weight_kernel(const __grid_constant__ dro__conv3 k)
{
    typedef weight_shape<CI, CO, TILE, STRIDE> S;
    extern __shared__ __align__(128) char room[];
    char *x = room, *z = room + S::X_BYTES;
    int part = blockIdx.y;
    const int height = EXACT ? S::SIDE * STRIDE : k.height, width = EXACT ? S::SIDE * STRIDE : k.width;
    const int out_height = EXACT ? S::SIDE : k.out_height, out_width = EXACT ? S::SIDE : k.out_width;
    int down = (out_height + TILE - 1) / TILE, across = (out_width + TILE - 1) / TILE;
    int tiles = (k.parts.first[part + 1] - k.parts.first[part]) * down * across;
    reader rx, rz;
    float *coef = (float *)(room + S::TILES);
    rx.input(k, part, coef);
    rz.slope(k, part, coef + 3 * CI, blockIdx.x == 0);
    float acc[TAPS][S::NT][4] = {{{0}}};
    typename S::x_tiles x_tile;
    typename S::z_tiles z_tile;
    size_t in_size = (size_t)height * width * CI, out_size = (size_t)out_height * out_width * CO;
    char *raw = room + S::PLAIN_BYTES, *raw_z = raw + S::x_tiles::RAW_BYTES;
    for (int t = (int)blockIdx.x - (S::AHEAD ? gridDim.x : 0); t < tiles; t += gridDim.x) {
        spot s = spot_of(t < 0 ? 0 : t, k.parts.first[part], down, across, TILE);
        image mx = {height, width, s.row * STRIDE - 1, s.col * STRIDE - 1};
        image mz = {out_height, out_width, s.row, s.col};
        if (S::AHEAD)
            fetch_wait();
        __syncthreads();
        if (!S::AHEAD) {
            x_tile.template load<0, 2>(x, rx, (const float *)k.x + s.example * in_size, NULL, mx,
                                            NULL);
            z_tile.template load<0, 2>(z, rz, (const float *)k.g + s.example * out_size,
                                            (const float *)k.z + s.example * out_size, mz, NULL);
        } else if (t >= 0) {
            x_tile.template convert<0>(x, raw, rx, mx, NULL);
            z_tile.template convert<0>(z, raw_z, rz, mz, NULL);
        }
        __syncthreads();
        if (S::AHEAD && t + (int)gridDim.x < tiles) {
            spot n = spot_of(t + gridDim.x, k.parts.first[part], down, across, TILE);
            mx.row = n.row * STRIDE - 1, mx.col = n.col * STRIDE - 1;
            mz.row = n.row, mz.col = n.col;
            x_tile.fetch(raw, rx, (const float *)k.x + n.example * in_size, NULL, mx);
            z_tile.fetch(raw_z, rz, (const float *)k.g + n.example * out_size,
                              (const float *)k.z + n.example * out_size, mz);
        }
        if (t < 0)
            continue;
        gather<CI, CO, TILE, STRIDE>(acc, x, z);
    }
    write_block<CI, CO, TILE, STRIDE>(k, acc, room);
}

/* grad (out, real_in, taps) = the sum over blocks of (taps, in, out), of one weight gradient after another; 8 threads
 * share the blocks of a number. */
enum { NUMBERS = 32, SHARE = 8 };

static __global__ void weight_sum_kernel(const __grid_constant__ dro__conv3_sums k)
{
    extern __shared__ __align__(128) char room[];
    float(*rest)[NUMBERS] = (float(*)[NUMBERS])room;
    int number = threadIdx.x % NUMBERS, share = threadIdx.x / NUMBERS;
    int which = 0, block = blockIdx.x, part = blockIdx.y;
    while (block >= TAPS * k.of[which].in * k.of[which].out / NUMBERS)
        block -= TAPS * k.of[which].in * k.of[which].out / NUMBERS, which++;
    const auto &one = k.of[which];
    int size = TAPS * one.in * one.out, i = block * NUMBERS + number;
    const float *from = one.from + (size_t)part * one.blocks * size + i;
    float sum = 0;
#pragma unroll 8
    for (int b = share; b < one.blocks; b += SHARE)
        sum += from[(size_t)b * size];
    rest[share][number] = sum;
    __syncthreads();
    int out = i % one.out, in = i / one.out % one.in, tap = i / one.out / one.in;
    if (share || in >= one.real_in)
        return;
    for (int y = 1; y < SHARE; y++)
        sum += rest[y][number];
    one.grads[part][(out * one.real_in + in) * TAPS + tap] = sum;
}

/* ---- launches ---- */

/* Of all parts together, at most: more numbers to a block's place, fewer blocks. */
static int most_blocks(int in, int out)
{
    return in == 64 ? MOST_BLOCKS / 4 : in * out >= 1024 ? MOST_BLOCKS / 2 : MOST_BLOCKS;
}

/* Returns the blocks of each part. */
template <int CI, int CO, int TILE, int STRIDE, bool EXACT>
static int launch_as(cudaStream_t s, const dro__conv3 *k)
{
    typedef weight_shape<CI, CO, TILE, STRIDE> S;
    auto kernel = weight_kernel<CI, CO, TILE, STRIDE, EXACT>;
    static std::atomic<int> known;
    int resident = blocks_at_once(&known, (const void *)kernel, CONV_THREADS, S::BYTES);
    int most = most_blocks(CI, CO), blocks = (resident < most ? resident : most) / k->parts.count;
    queue(s, kernel, dim3(blocks, k->parts.count), CONV_THREADS, S::BYTES, 0, *k);
    return blocks;
}

template <int CI, int CO, int TILE, int STRIDE>
static int launch(cudaStream_t s, const dro__conv3 *k)
{
    return exact(k) ? launch_as<CI, CO, TILE, STRIDE, true>(s, k)
                    : launch_as<CI, CO, TILE, STRIDE, false>(s, k);
}

static int dispatch(cudaStream_t s, const dro__conv3 *k)
{
    if (k->in == 16)
        return k->out == 16 ? launch<16, 16, 16, 1>(s, k) : launch<16, 32, 16, 2>(s, k);
    if (k->in == 32)
        return k->out == 32 ? launch<32, 32, 16, 1>(s, k) : launch<32, 64, 8, 2>(s, k);
    return launch<64, 64, 8, 1>(s, k);
}

extern "C" void dro__gpu_conv3_tf32_weight(cudaStream_t s, const dro__conv3 *k, dro__conv3_sums *sums)
{
    dro__conv3 here = *k;
    here.partial += sums->used;
    int blocks = dispatch(s, &here), parts = k->parts.count;
    sums->parts = parts;
    sums->used += (size_t)parts * blocks * TAPS * k->in * k->out;
    sums->of[sums->count++] = {here.partial,    blocks, k->in, k->out, k->real_in,
                               {k->grads[0], k->grads[1]}};
}

extern "C" void dro__gpu_conv3_tf32_sum(cudaStream_t s, const dro__conv3_sums *sums)
{
    int blocks = 0;
    for (int k = 0; k < sums->count; k++)
        blocks += TAPS * sums->of[k].in * sums->of[k].out / NUMBERS;
    queue(s, weight_sum_kernel, dim3(blocks, sums->parts), NUMBERS * SHARE,
          NUMBERS * SHARE * (int)sizeof(float), 0, *sums);
}

extern "C" size_t dro__gpu_conv3_tf32_partial(int in, int out)
{
    return (size_t)DRO__CONV3_SUMS * most_blocks(in, out) * TAPS * in * out;
}
