/* Backward in bfloat16: both gradients of a convolution in one kernel. A block has 16 of the input's channels and
 * walks over tiles of one part. It makes the slope of z (all channels) and the input (its own) in shared memory,
 * and from them
 *   - the data gradient: each warp sums over 16 channels of the slope; what the warps have of a pixel comes
 *     together in shared memory, where the ReLU's mask and the sums of the batch norm before are taken;
 *   - the weight gradient: each warp has half of the taps for its 16 channels of the slope, and keeps them until
 *     the block ends. Blocks write theirs one after another, and a second kernel adds them up in that order. */
#include "conv3_rows.cuh"

enum { WARPS = 8, THREADS_BACK = 32 * WARPS, SLOTS = 5, LANE_NUMBERS = SLOTS * 8 };
enum { ROLE = SLOTS * 2 * 32 /* float4s that a warp has of a weight gradient */ };
enum { BACK_BLOCKS = 264 }; /* of all parts together, at most */
enum { PLACE = BACK_BLOCKS * 8 * ROLE * 4 /* floats that they write */ };

/* CI channels became CO. TH x TW pixels of the slope at a time. */
template <int CI, int CO, int STRIDE_, bool EXACT_>
struct back_shape {
    static const int IN = CI, OUT = CO, STRIDE = STRIDE_;
    static const bool EXACT = EXACT_;
    static const int TH = STRIDE == 2 ? 4 : CO == 64 ? 8 : 16, TW = CO == 16 ? 32 : CO == 32 ? 16 : 8;
    static const int GROUPS = CI / 16, KS = CO / 16, STRIPS = TW >= 16 ? TW / 16 : 1;
    static const int ROWS = TW >= 16 ? TH : TH / 2;   /* of 16 pixels */
    static const int R = ROWS * KS * STRIPS / WARPS;  /* a warp's, for the data gradient */
    static const int SHARES = WARPS / 2 / KS;         /* of the pixels, for the weight gradient */
    static const int RW = ROWS * STRIPS / SHARES;
    typedef tile_of<CO / 8, STRIDE == 1 ? TH + 2 : TH + 1, TW, 2 - STRIDE, 2 - STRIDE, 1> z_tile;
    typedef tile_of<2, (TH - 1) * STRIDE + 3, TW * STRIDE, 1, 1, 2 - STRIDE> x_tile;
    static const int DH = TH * STRIDE, DW = TW * STRIDE, STAGE = DH * DW * 64; /* bytes, of 16 floats */
    static const int ITEMS = (DH * DW * 2 + THREADS_BACK - 1) / THREADS_BACK;
    static const int X = z_tile::BYTES, SUM = X + x_tile::BYTES, WEIGHTS = SUM + KS * STAGE;
    static const int MOMENTS = WEIGHTS + TAPS * KS * 512, COEF = MOMENTS + THREADS_BACK * 64;
    static const int BYTES = COEF + (3 * CO + 2 * CI) * 4;
    typedef held<z_tile, THREADS_BACK, 2, true> z_ahead;
    typedef held<x_tile, THREADS_BACK, column<x_tile, THREADS_BACK>::PASSES, false> x_ahead;
};

/* ---- reading ---- */

/* Where an example begins. */
static __device__ __forceinline__ const char *image_of(const void *all, int example, const place &p)
{
    return (const char *)all + (size_t)example * p.height * p.width * p.channels * 2;
}

/* The first loads of both tiles. */
template <class S>
static __device__ __forceinline__ void begin_tiles(const dro__conv3 &k, typename S::z_ahead &za,
                                                   typename S::x_ahead &xa, int example,
                                                   const place &p, const place &in, int group)
{
    xa.load(typename S::x_ahead::C(in, group * 16), 0, image_of(k.x, example, in), NULL);
    const char *g = image_of(k.g, example, p);
    za.load(typename S::z_ahead::C(p, 0), 0, g, k.norm ? image_of(k.z, example, p) : g);
}

template <class S, int MODE>
static __device__ __forceinline__ void make_slope(const dro__conv3 &k, char *room,
                                                  typename S::z_ahead &za, int example,
                                                  const place &p)
{
    typedef typename S::z_tile T;
    maker<MODE> m((const float *)(room + S::COEF), p.channels, threadIdx.x % T::CH * 8, false);
    const char *g = image_of(k.g, example, p), *z = MODE == SLOPE ? image_of(k.z, example, p) : g;
    za.fill(room, g, z, m, p, 0, NULL);
    if (p.width > T::COLS)
        fill_sides<T, THREADS_BACK>(room, g, z, m, p, 0);
}

template <class S, int MODE>
static __device__ __forceinline__ void make_input(const dro__conv3 &k, char *room,
                                                  typename S::x_ahead &xa, int example,
                                                  const place &p, int group)
{
    typedef typename S::x_tile T;
    maker<MODE> m((const float *)(room + S::COEF) + 3 * k.out, p.channels,
                  group * 16 + threadIdx.x % 2 * 8, k.x_relu);
    const char *x = image_of(k.x, example, p);
    xa.fill(room + S::X, x, NULL, m, p, group * 16, NULL);
    if (p.width > T::COLS)
        fill_sides<T, THREADS_BACK>(room + S::X, x, NULL, m, p, group * 16);
}

/* The slope and the input of a tile. */
template <class S>
static __device__ __forceinline__ void end_tiles(const dro__conv3 &k, char *room,
                                                 typename S::z_ahead &za, typename S::x_ahead &xa,
                                                 int example, const place &p, const place &in,
                                                 int group)
{
    if (k.lazy)
        make_input<S, SCALED>(k, room, xa, example, in, group);
    else
        make_input<S, AS_IS>(k, room, xa, example, in, group);
    if (k.norm)
        make_slope<S, SLOPE>(k, room, za, example, p);
    else
        make_slope<S, AS_IS>(k, room, za, example, p);
}

/* ---- the data gradient ---- */

/* Where four channels of a pixel are among the 16 of the stage, so that neither writing nor reading eight of them
 * meets in a bank. */
static __device__ __forceinline__ int stage_at(int pixel, int four)
{
    return pixel * 64 + (((four & 1) << 1 | four >> 1) ^ (pixel & 2)) * 16;
}

template <class S, int STRIDE>
struct stager {
    char *stage;
    int row, col; /* of the warp's first pixel, in the tile of dx */

    __device__ __forceinline__ void put(int y, int x, const float (&acc)[2][4], int h) const
    {
        *(float4 *)(stage + stage_at(y * S::DW + x, threadIdx.x % 4)) =
            make_float4(acc[0][2 * h], acc[0][2 * h + 1], acc[1][2 * h], acc[1][2 * h + 1]);
    }
    /* row i of this warp; with a stride its pixels are every second one from `odd` on */
    __device__ __forceinline__ void write(int i, int odd, const float (&acc)[2][4]) const
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++)
            put(row + i + (S::TW == 8 ? h * S::DH / 2 : 0),
                col + (lane / 4 + (S::TW == 8 ? 0 : h * 8)) * STRIDE + odd, acc, h);
    }
    __device__ __forceinline__ void operator()(int i, const float (&acc)[2][4]) const
    {
        write(i, 0, acc);
    }
};

/* One row of the kernel (er, turned) for the even and the odd columns of dx. */
static __device__ __forceinline__ void parity_row(float (&acc)[2][2][4], const unsigned (&here)[4],
                                                  const unsigned (&right)[4], const uint4 *b)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        mma_bf16(acc[0][n], here, n ? b[1].z : b[1].x, n ? b[1].w : b[1].y);
        mma_bf16(acc[1][n], here, n ? b[0].z : b[0].x, n ? b[0].w : b[0].y);
        mma_bf16(acc[1][n], right, n ? b[2].z : b[2].x, n ? b[2].w : b[2].y);
    }
}

/* A stride of 2: even rows and columns of dx see one tap, odd ones two. */
template <int R, class T, class W>
static __device__ __forceinline__ void parity(unsigned from, const uint4 (&b)[TAPS], const W &w)
{
    float odd[2][2][4];
#pragma unroll
    for (int i = 0; i <= R; i++) {
        unsigned here[4], right[4];
        ldmatrix(here, from + i * T::PITCH * PIXEL);
        ldmatrix(right, from + (i * T::PITCH + 1) * PIXEL);
        if (i > 0) {
            parity_row(odd, here, right, b + 6);
            w.write(2 * i - 1, 0, odd[0]);
            w.write(2 * i - 1, 1, odd[1]);
        }
        if (i == R)
            break;
        float even[2][2][4] = {{{0}}};
        parity_row(even, here, right, b + 3);
        w.write(2 * i, 0, even[0]);
        w.write(2 * i, 1, even[1]);
#pragma unroll
        for (int j = 0; j < 16; j++)
            odd[j / 8][j / 4 % 2][j % 4] = 0;
        parity_row(odd, here, right, b);
    }
}

/* The warp's share of the products, into the stage. */
template <class S, int STRIDE>
static __device__ __forceinline__ void data_products(char *room)
{
    typedef typename S::z_tile T;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, ks = warp % S::KS;
    int strip = warp / S::KS % S::STRIPS, row = warp / S::KS / S::STRIPS * S::R;
    const uint4 *weights = (const uint4 *)(room + S::WEIGHTS) + ks * 32 + lane;
    uint4 b[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++)
        b[i] = weights[i * S::KS * 32];
    unsigned from = shared_address(room) + (2 * ks + lane / 16) * T::PLANE +
                    (row * T::PITCH + strip * 16 +
                     lane_pixel<S::TW, T::PITCH, S::TH / 2, 1>(lane % 16)) *
                        PIXEL;
    stager<S, STRIDE> w = {room + S::SUM + ks * S::STAGE, row * STRIDE, strip * 16 * STRIDE};
    if constexpr (STRIDE == 1)
        roll<S::R, 1, T>(from, b, w);
    else
        parity<S::R, T>(from, b, w);
}

/* A thread's way down a tile of dx, eight channels of a column. */
template <class S>
struct walk {
    typedef typename S::x_tile T;
    static const int EACH = THREADS_BACK / 2 / S::DW;
    int row, rows;    /* in the tile; of them in the image */
    int x, low, high; /* in shared memory: the mask, the stage */
    int at, step;

    __device__ __forceinline__ walk(const place &p, int group)
    {
        int thread = this_thread(), ch = thread % 2, col = thread / 2 % S::DW;
        row = thread / 2 / S::DW;
        int left = p.height - p.row;
        rows = p.col + col >= p.width ? 0 : left < S::DH ? left : S::DH;
        x = S::X + ch * T::PLANE + ((row + 1) * T::PITCH + col + 1) * PIXEL;
        low = S::SUM + stage_at(row * S::DW + col, 2 * ch);
        high = S::SUM + stage_at(row * S::DW + col, 2 * ch + 1);
        at = (((p.row + row) * p.width + p.col + col) * p.channels + group * 16 + ch * 8) * 2;
        step = EACH * p.width * p.channels * 2;
    }
    __device__ __forceinline__ bool here(int i) const
    {
        return S::EXACT && S::DH * S::DW * 2 % THREADS_BACK == 0 || row + i * EACH < rows;
    }
};

/* What dx is made with: what was there already, and the z of the tail before. */
template <class S>
struct with {
    uint4 old[S::ITEMS], z[S::ITEMS];

    __device__ __forceinline__ void load(const dro__conv3 &k, int example, const place &p, int group)
    {
        const char *add = image_of(k.add, example, p), *from = image_of(k.x_z, example, p);
        walk<S> w(p, group);
#pragma unroll
        for (int i = 0; i < S::ITEMS; i++) {
            old[i] = z[i] = make_uint4(0, 0, 0, 0);
            if (k.add && w.here(i))
                old[i] = *(const uint4 *)(add + (w.at + i * w.step));
            if (k.close && w.here(i))
                z[i] = *(const uint4 *)(from + (w.at + i * w.step));
        }
    }
};

/* dx of a tile: what was there already, the mask of the ReLU before it, and the sums of g and g z that its batch
 * norm needs. p: the tile's place in the image of dx. */
template <class S>
static __device__ __forceinline__ void finish_tile(const dro__conv3 &k, const char *room,
                                                   const with<S> &a, int example, const place &p,
                                                   int group, float (&sums)[16])
{
    char *dx = (char *)image_of(k.dx, example, p);
    walk<S> w(p, group);
#pragma unroll
    for (int i = 0; i < S::ITEMS; i++) {
        if (!w.here(i))
            continue;
        float v[8], o[8];
        open(a.old[i], v);
#pragma unroll
        for (int ks = 0; ks < S::KS; ks++) {
            const char *from = room + i * (w.EACH * S::DW * 64) + ks * S::STAGE;
            float4 l = *(const float4 *)(from + w.low), h = *(const float4 *)(from + w.high);
            v[0] += l.x, v[1] += l.y, v[2] += l.z, v[3] += l.w;
            v[4] += h.x, v[5] += h.y, v[6] += h.z, v[7] += h.w;
        }
        uint4 g = pack8(v);
        if (k.close && k.x_relu) {
            uint4 m = *(const uint4 *)(room + w.x + i * (w.EACH * S::x_tile::PITCH * PIXEL));
            g.x &= positive2(m.x), g.y &= positive2(m.y);
            g.z &= positive2(m.z), g.w &= positive2(m.w);
        }
        *(uint4 *)(dx + (w.at + i * w.step)) = g;
        if (!k.close)
            continue;
        open(g, v);
        open(a.z[i], o);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sums[j] += v[j], sums[8 + j] += v[j] * o[j];
    }
}

/* A thread's sums between two tiles, so that they take no registers: 16 floats. */
static __device__ __forceinline__ void put_sums(char *room, const float (&sums)[16])
{
    float4 *to = (float4 *)room + this_thread();
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i * THREADS_BACK] =
            make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

static __device__ __forceinline__ void get_sums(const char *room, float (&sums)[16])
{
    const float4 *from = (const float4 *)room + this_thread();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 f = from[i * THREADS_BACK];
        sums[4 * i] = f.x, sums[4 * i + 1] = f.y, sums[4 * i + 2] = f.z, sums[4 * i + 3] = f.w;
    }
}

/* Adds the block's sums, for eight channels of each lane, to the part's. */
static __device__ __forceinline__ void flush(const dro__conv3 &k, float *room, float (&sums)[16],
                                             int part, int group)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int index = spread_sum<16, 2>(sums);
    room[warp * 32 + index / 8 * 16 + lane % 2 * 8 + index % 8] = sums[0];
    __syncthreads();
    if (warp)
        return;
    int c = group * 16 + lane % 16;
    double sum = 0, first;
    for (int w = 0; w < WARPS; w++)
        sum += (double)room[w * 32 + lane];
    first = __shfl_sync(~0u, sum, lane % 16);
    if (lane >= 16) /* of g (z - mean) */
        sum -= first * (double)k.x_numbers.mean[part * k.in + c];
    atomicAdd(&k.x_numbers.back[(2 * part + lane / 16) * k.in + c], sum);
}

/* ---- the weight gradient ---- */

/* The taps of a warp: half 0 has the left column and two of the middle one, half 1 the right column and one.
 * slot 0 .. 2: rows of the outer column; the rest: of the middle one. */
static __host__ __device__ __forceinline__ int tap_of(int half, int slot)
{
    return slot < 3 ? slot * 3 + 2 * half : half ? 7 : (slot - 3) * 3 + 1;
}

static __device__ __forceinline__ void add_product(float (&acc)[SLOTS][2][4], int slot,
                                                   const unsigned (&a)[4], const unsigned (&d)[4])
{
    mma_bf16(acc[slot][0], a, d[0], d[1]);
    mma_bf16(acc[slot][1], a, d[2], d[3]);
}

/* Which slot of a half has row er of its outer (0) or the middle column; -1: none. */
static __host__ __device__ constexpr int slot_at(int half, int middle, int er)
{
    return !middle ? er : half ? (er == 2 ? 3 : -1) : (er < 2 ? 3 + er : -1);
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather(float (&acc)[SLOTS][2][4], unsigned x, unsigned z)
{
    unsigned d[3][4];
#pragma unroll
    for (int i = 0; i < R + 2; i++) {
        if (i < R)
            ldmatrix_turned(d[i % 3], z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int middle = 0; middle < 2; middle++) {
            unsigned a[4];
            if (!middle || !HALF || i >= 2)
                ldmatrix_turned(a, x + (i * X::PITCH + (middle ? 1 : 2 * HALF)) * PIXEL);
#pragma unroll
            for (int er = 0; er < 3; er++)
                if (i - er >= 0 && i - er < R && slot_at(HALF, middle, er) >= 0)
                    add_product(acc, slot_at(HALF, middle, er), a, d[(i - er) % 3]);
        }
    }
}

template <int HALF, int R, class X, class Z>
static __device__ __forceinline__ void gather_skip(float (&acc)[SLOTS][2][4], unsigned x, unsigned z)
{
#pragma unroll
    for (int i = 0; i < R; i++) {
        unsigned d[4];
        ldmatrix_turned(d, z + i * Z::PITCH * PIXEL);
#pragma unroll
        for (int slot = 0; slot < SLOTS - HALF; slot++) {
            unsigned a[4];
            int tap = tap_of(HALF, slot);
            ldmatrix_turned(a, x + ((2 * i + tap / 3) * X::PITCH + tap % 3) * PIXEL);
            add_product(acc, slot, a, d);
        }
    }
}

/* A warp's role: its channels of the slope (ks), its half of the taps, its share of the pixels. */
template <class S, int STRIDE>
static __device__ __forceinline__ void weight_products(float (&acc)[SLOTS][2][4], const char *room)
{
    typedef typename S::x_tile X;
    typedef typename S::z_tile Z;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int ks = warp / 2 % S::KS, share = warp / 2 / S::KS;
    int strip = share % S::STRIPS, row = share / S::STRIPS * S::RW;
    int i = lane / 16 * 8 + lane % 8, j = lane / 8 % 2 * 8 + lane % 8; /* pixels of x and of z */
    unsigned x = shared_address(room + S::X) + lane / 8 % 2 * X::PLANE +
                 (row * STRIDE * X::PITCH + strip * 16 * STRIDE +
                  lane_pixel<S::TW, X::PITCH, S::TH / 2, STRIDE>(i)) *
                     PIXEL;
    unsigned z = shared_address(room) + (2 * ks + lane / 16) * Z::PLANE +
                 ((row + Z::TOP) * Z::PITCH + Z::LEFT + strip * 16 +
                  lane_pixel<S::TW, Z::PITCH, S::TH / 2, 1>(j)) *
                     PIXEL;
    if constexpr (STRIDE == 1) {
        if (warp % 2)
            gather<1, S::RW, X, Z>(acc, x, z);
        else
            gather<0, S::RW, X, Z>(acc, x, z);
    } else {
        if (warp % 2)
            gather_skip<1, S::RW, X, Z>(acc, x, z);
        else
            gather_skip<0, S::RW, X, Z>(acc, x, z);
    }
}

/* The sums of the warps of one role, into the block's place of k.partial: (role, slot, 2, lane) float4s. */
template <class S>
static __device__ __forceinline__ void write_block(const dro__conv3 &k, float (&acc)[SLOTS][2][4],
                                                   float4 *room, int part, int group)
{
    const int ROLES = 2 * S::KS;
    int lane = threadIdx.x % 32, role = threadIdx.x / 32 % ROLES, share = threadIdx.x / 32 / ROLES;
    float4 *mine = room + ((share - 1) * ROLES + role) * ROLE + lane;
#pragma unroll
    for (int i = 0; i < 2 * SLOTS; i++) {
        const float(&a)[4] = acc[i / 2][i % 2];
        if (share)
            mine[i * 32] = make_float4(a[0], a[1], a[2], a[3]);
    }
    __syncthreads();
    if (share)
        return;
    float4 *out = (float4 *)(k.partial + (size_t)k.turn * PLACE) +
                  ((size_t)(part * S::GROUPS + group) * gridDim.x + blockIdx.x) * ROLES * ROLE +
                  role * ROLE + lane;
#pragma unroll
    for (int i = 0; i < 2 * SLOTS; i++) {
        const float(&a)[4] = acc[i / 2][i % 2];
        float4 sum = make_float4(a[0], a[1], a[2], a[3]);
#pragma unroll
        for (int s = 0; s < S::SHARES - 1; s++) {
            float4 f = room[(s * ROLES + role) * ROLE + i * 32 + lane];
            sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
        }
        out[i * 32] = sum;
    }
}

/* ---- the kernel ---- */

/* What the block keeps: its weights, the coefficients, its sums. */
template <class S>
static __device__ __forceinline__ void start(const dro__conv3 &k, char *room, int group, int part)
{
    const float nothing[16] = {0};
    clear_sides<typename S::z_tile, THREADS_BACK>(room);
    clear_sides<typename S::x_tile, THREADS_BACK>(room + S::X);
    put_sums(room + S::MOMENTS, nothing);
    float *coef = (float *)(room + S::COEF);
    slope_coefficients(k, part, coef, THREADS_BACK, blockIdx.x == 0 && group == 0);
    input_coefficients(k, part, coef + 3 * k.out, THREADS_BACK);
    __syncthreads();
}

template <class S>
static __device__ __forceinline__ void take_weights(const dro__conv3 &k, char *room, int group)
{
    const uint4 *from = (const uint4 *)k.weights + (S::GROUPS + group) * S::KS * TAPS * 32;
    for (int i = threadIdx.x; i < S::KS * TAPS * 32; i += THREADS_BACK)
        ((uint4 *)(room + S::WEIGHTS))[i] = from[i];
}

template <class S>
static __global__ void __launch_bounds__(THREADS_BACK, 2)
    back_kernel(const __grid_constant__ dro__conv3 k)
{
    extern __shared__ __align__(128) char room[];
    int group = blockIdx.y, part = blockIdx.z;
    tiles t(k, part, S::TH, S::TW, out_place<S>(k));
    place in = in_place<S>(k, t.p);
    take_weights<S>(k, room, group);
    cudaGridDependencySynchronize(); /* nothing before this touches what the kernel before made */
    typename S::z_ahead za;
    typename S::x_ahead xa;
    begin_tiles<S>(k, za, xa, t.example, t.p, in, group);
    start<S>(k, room, group, part);
    float acc[SLOTS][2][4] = {{{0}}}, sums[16];
    while (t.left > 0) {
        with<S> more;
        end_tiles<S>(k, room, za, xa, t.example, t.p, in, group);
        __syncthreads();
        if (k.dx) {
            data_products<S, S::STRIDE>(room);
            more.load(k, t.example, in, group);
        }
        if (k.partial)
            weight_products<S, S::STRIDE>(acc, room);
        __syncthreads();
        if (k.dx) {
            get_sums(room + S::MOMENTS, sums);
            finish_tile<S>(k, room, more, t.example, in, group, sums);
            put_sums(room + S::MOMENTS, sums);
        }
        t.next(S::TH, S::TW);
        if (t.left <= 0)
            break;
        in = in_place<S>(k, t.p);
        begin_tiles<S>(k, za, xa, t.example, t.p, in, group);
        __syncthreads();
    }
    cudaTriggerProgrammaticLaunchCompletion();
    __syncthreads();
    if (k.partial)
        write_block<S>(k, acc, (float4 *)(room + S::SUM), part, group);
    if (!k.close)
        return;
    get_sums(room + S::MOMENTS, sums);
    flush(k, (float *)room, sums, part, group);
}

/* grads (out, real_in, taps) = the sums over blocks; 8 threads share the blocks of a float4. */
static __global__ void sum_kernel(const __grid_constant__ dro__conv3 k, int blocks)
{
    enum { NUMBERS = 32, SHARE = 8 };
    extern __shared__ __align__(128) char room[];
    float4(*rest)[NUMBERS] = (float4(*)[NUMBERS])room;
    int size = k.out / 16 * 2 * ROLE, lane = threadIdx.x % NUMBERS, share = threadIdx.x / NUMBERS;
    int role = blockIdx.x * NUMBERS / ROLE, slot = blockIdx.x % (ROLE / 32) / 2;
    int n = blockIdx.x % 2, group = blockIdx.y, part = blockIdx.z;
    if (role % 2 && slot == SLOTS - 1)
        return; /* half 1 has one slot less */
    const float4 *from = (const float4 *)(k.partial + (size_t)k.turn * PLACE) +
                         (size_t)(part * gridDim.y + group) * blocks * size +
                         blockIdx.x * NUMBERS + lane;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int b = share; b < blocks; b += SHARE) {
        float4 f = from[(size_t)b * size];
        sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
    }
    rest[share][lane] = sum;
    __syncthreads();
    if (share)
        return;
    for (int y = 1; y < SHARE; y++) {
        float4 f = rest[y][lane];
        sum.x += f.x, sum.y += f.y, sum.z += f.z, sum.w += f.w;
    }
    const float x[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int in = group * 16 + lane / 4 + e / 2 * 8;
        int out = role / 2 * 16 + n * 8 + lane % 4 * 2 + e % 2;
        if (in < k.real_in)
            k.grads[part][(out * k.real_in + in) * TAPS + tap_of(role % 2, slot)] = x[e];
    }
}

/* ---- launches ---- */

/* Blocks of each part and group: all have the same number of tiles, or one less. */
template <class S>
static int blocks_of(const dro__conv3 *k)
{
    static int resident = 0; /* found once for each kernel */
    if (!resident)
        resident = blocks_at_once((const void *)back_kernel<S>, THREADS_BACK, S::BYTES);
    int all = resident < BACK_BLOCKS ? resident : BACK_BLOCKS, most = 1;
    int each = all / (k->parts.count * S::GROUPS);
    for (int p = 0; p < k->parts.count; p++) {
        int count = (k->parts.first[p + 1] - k->parts.first[p]) *
                    ((k->out_height + S::TH - 1) / S::TH) * ((k->out_width + S::TW - 1) / S::TW);
        most = count > most ? count : most;
    }
    each = each > 0 ? each : 1;
    int turns = (most + each - 1) / each;
    return (most + turns - 1) / turns;
}

/* Both gradients, or the sum of the second over the blocks. */
template <class S>
static void launch_as(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    unsigned blocks = (unsigned)blocks_of<S>(k), parts = (unsigned)k->parts.count;
    if (sum)
        queue(s, sum_kernel, dim3(S::KS * 2 * ROLE / 32, S::GROUPS, parts), 256,
              8 * 32 * (int)sizeof(float4), 0, *k, (int)blocks);
    else
        queue(s, back_kernel<S>, dim3(blocks, S::GROUPS, parts), THREADS_BACK, S::BYTES, k->early,
              *k);
}

template <int CI, int CO, int STRIDE>
static void launch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    if (exact<back_shape<CI, CO, STRIDE, true>>(k))
        launch_as<back_shape<CI, CO, STRIDE, true>>(s, k, sum);
    else
        launch_as<back_shape<CI, CO, STRIDE, false>>(s, k, sum);
}

static void dispatch(cudaStream_t s, const dro__conv3 *k, bool sum)
{
    if (k->in == 16 && k->out == 16)
        launch<16, 16, 1>(s, k, sum);
    else if (k->in == 16)
        launch<16, 32, 2>(s, k, sum);
    else if (k->in == 32 && k->out == 32)
        launch<32, 32, 1>(s, k, sum);
    else if (k->in == 32)
        launch<32, 64, 2>(s, k, sum);
    else
        launch<64, 64, 1>(s, k, sum);
}

extern "C" void dro__gpu_conv3_back(cudaStream_t s, const dro__conv3 *k)
{
    dispatch(s, k, false);
}

extern "C" void dro__gpu_conv3_sum(cudaStream_t s, const dro__conv3 *k)
{
    dispatch(s, k, true);
}

extern "C" size_t dro__gpu_conv3_partial(int in, int out)
{
    size_t tf32 = dro__gpu_conv3_tf32_partial(in, out), bf16 = (size_t)DRO__CONV3_TURNS * PLACE;
    return tf32 > bf16 ? tf32 : bf16;
}
