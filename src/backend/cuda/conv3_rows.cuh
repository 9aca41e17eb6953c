/* What the convolutions by rows share.
 *
 * A tile of pixels is stored in shared memory as planes of PER channels, 16 bytes a pixel. Eight
 * neighbouring pixels of a row, whichever is the first, are the 128 bytes of one matrix that
 * ldmatrix loads. A thread that fills a tile has the channels of one plane in one column and moves
 * down the rows, so its coefficients stay in registers and its addresses grow by constants. Its
 * first loads are issued before the coefficients are computed, or while the block completes the
 * previous tile.
 *
 * A product takes 16 pixels: of one row or, in tiles of eight columns, eight of one row and eight
 * of the row half a tile below. The products move down the rows too, and a row of the input that
 * was loaded once serves the three rows of the output that need it. */
#ifndef DRO_CUDA_CONV3_ROWS_CUH
#define DRO_CUDA_CONV3_ROWS_CUH

#include "conv3_launch.cuh"
#include "conv3_values.cuh"
#include "tails.cuh"

enum { TAPS = 9, PIXEL = 16 /* bytes */ };

/* ---- tiles ---- */

/* A tile: CH planes of ROWS rows of LEFT + COLS + RIGHT pixels. COLS of the columns are the tile's
 * own, and so are all rows but the first TOP and the last RIGHT. The distance of planes lets eight
 * neighbouring threads write to different banks. */
template <class V, int CH_, int ROWS_, int COLS_, int TOP_, int LEFT_, int RIGHT_>
struct tile_of {
    typedef V values;
    static const int CH = CH_, ROWS = ROWS_, COLS = COLS_, TOP = TOP_, LEFT = LEFT_, RIGHT = RIGHT_;
    static const int PITCH = LEFT + COLS + RIGHT, SIZE = ROWS * PITCH * PIXEL;
    static const int APART = CH < 8 ? 128 / CH : PIXEL;
    static const int PLANE = SIZE + ((APART - SIZE) % 128 + 128) % 128, BYTES = CH * PLANE;
};

/* Where a tile is: its first own pixel, and the size and channels of the image. In the EXACT
 * kernels, for images that are as wide and as high as their tiles are wide, the compiler knows all
 * but row and col, and so the distances between a thread's accesses. */
struct place {
    int row, col, height, width, channels;
};

/* The places of a tile: in the image of z, and in that of x, which is STRIDE times as large. */
template <class S>
static __device__ __forceinline__ place out_place(const dro__conv3 &k)
{
    place p = {0, 0, S::EXACT ? S::TW : k.out_height, S::EXACT ? S::TW : k.out_width, S::OUT};
    return p;
}

template <class S>
static __device__ __forceinline__ place in_place(const dro__conv3 &k, const place &out)
{
    place p = {out.row * S::STRIDE, out.col * S::STRIDE, S::EXACT ? S::TW * S::STRIDE : k.height,
               S::EXACT ? S::TW * S::STRIDE : k.width, S::IN};
    return p;
}

template <class S>
static bool exact(const dro__conv3 *k)
{
    return k->out_height == S::TW && k->out_width == S::TW && k->height == S::TW * S::STRIDE &&
           k->width == S::TW * S::STRIDE;
}

/* The address of an example. */
template <class V>
static __device__ __forceinline__ const char *image_of(const void *all, int example, const place &p)
{
    return (const char *)all + (size_t)example * p.height * p.width * p.channels * V::SIZE;
}

/* The tiles of a block: an even share of those of a part, one after another. */
struct tiles {
    int example, left;
    place p;

    /* rows x cols pixels each, in images of the size of `of` */
    __device__ __forceinline__ tiles(const dro__conv3 &k, int part, int rows, int cols, place of)
        : p(of)
    {
        int across = (p.width + cols - 1) / cols, down = (p.height + rows - 1) / rows;
        int first = k.parts.first[part], count = (k.parts.first[part + 1] - first) * across * down;
        int begin = (int)((long long)count * blockIdx.x / gridDim.x);
        left = (int)((long long)count * (blockIdx.x + 1) / gridDim.x) - begin;
        p.col = begin % across * cols;
        p.row = begin / across % down * rows;
        example = left > 0 ? first + begin / across / down : first;
    }
    __device__ __forceinline__ void next(int rows, int cols)
    {
        left--;
        p.col += cols;
        if (p.col < p.width)
            return;
        p.col = 0, p.row += rows;
        if (p.row < p.height)
            return;
        p.row = 0, example++;
    }
};

/* Reads N floats, a multiple of 4, from an address aligned to 16 bytes. */
template <int N>
static __device__ __forceinline__ void read_floats(const float *from, float *x)
{
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        float4 f = ((const float4 *)from)[i];
        x[4 * i] = f.x, x[4 * i + 1] = f.y, x[4 * i + 2] = f.z, x[4 * i + 3] = f.w;
    }
}

/* How a tile is computed from memory: as u, a u + c, a u + c + v, or a u + b v + c. */
enum { AS_IS, SCALED, SCALED_PLUS, SLOPE };

template <class V, int MODE>
struct maker {
    bool relu;
    float a[V::PER], b[V::PER], c[V::PER];

    /* smem: (3, channels) a, c, b */
    __device__ __forceinline__ maker(const float *smem, int channels, int first, bool relu_)
        : relu(relu_)
    {
        if (MODE != AS_IS)
            read_floats<V::PER>(smem + first, a), read_floats<V::PER>(smem + channels + first, c);
        if (MODE == SLOPE)
            read_floats<V::PER>(smem + 2 * channels + first, b);
    }
    __device__ __forceinline__ uint4 make(const uint4 &u, const uint4 &v) const
    {
        if (MODE == AS_IS)
            return u;
        float x[V::PER], y[V::PER];
        V::open(u, x);
#pragma unroll
        for (int i = 0; i < V::PER; i++)
            x[i] = a[i] * x[i] + c[i];
        if (MODE >= SCALED_PLUS)
            V::open(v, y);
#pragma unroll
        for (int i = 0; MODE >= SCALED_PLUS && i < V::PER; i++)
            x[i] = MODE == SLOPE ? b[i] * y[i] + x[i] : x[i] + y[i];
        return MODE != SLOPE && relu ? V::close_relu(x) : V::close(x);
    }
};

/* The part of a tile that a thread fills, row after row, from channel `first` of the image on. */
template <class T, int THREADS>
struct column {
    typedef typename T::values V;
    static const int EACH = THREADS / (T::CH * T::COLS), DOWN = EACH * T::PITCH * PIXEL;
    static const int PASSES = (T::ROWS + EACH - 1) / EACH;
    int row, y, height; /* row in the tile, row in the image; height: 0 outside of it */
    int ch, to;         /* the plane; offset in the tile, in bytes */
    int at, step;       /* offset in the image, in bytes, and its increment */

    __device__ __forceinline__ column(const place &p, int first)
    {
        int thread = this_thread(), col = thread / T::CH % T::COLS, x = p.col + col;
        ch = thread % T::CH;
        row = thread / (T::CH * T::COLS);
        y = p.row + row - T::TOP;
        height = x < p.width ? p.height : 0;
        to = ch * T::PLANE + (row * T::PITCH + T::LEFT + col) * PIXEL;
        at = ((y * p.width + x) * p.channels + first + ch * V::PER) * V::SIZE;
        step = EACH * p.width * p.channels * V::SIZE;
    }
    __device__ __forceinline__ bool ends(int pass) const
    {
        return (pass + 1) * EACH > T::ROWS && row + pass * EACH >= T::ROWS;
    }
    __device__ __forceinline__ bool inside(int pass) const
    {
        return (unsigned)(y + pass * EACH) < (unsigned)height;
    }
};

/* What a thread has loaded of a tile ahead of use: AHEAD pixels of one image, or of two. */
template <class T, int THREADS, int AHEAD, bool TWO>
struct held {
    typedef column<T, THREADS> C;
    typedef typename T::values V;
    static const int THEN_AT = C::PASSES < 3 ? C::PASSES - 1 : 2;
    uint4 u[AHEAD], v[TWO ? AHEAD : 1];

    /* loads the pixel of a pass; 0 outside of the image */
    __device__ __forceinline__ void load_one(const C &c, int pass, const void *from_u,
                                             const void *from_v)
    {
        uint4 &x = u[pass % AHEAD], &y = v[TWO ? pass % AHEAD : 0];
        x = y = make_uint4(0, 0, 0, 0); /* else they would stay live since the last tile */
        if (c.ends(pass) || !c.inside(pass))
            return;
        x = *(const uint4 *)((const char *)from_u + (c.at + pass * c.step));
        if (TWO)
            y = *(const uint4 *)((const char *)from_v + (c.at + pass * c.step));
    }
    __device__ __forceinline__ void load(const place &p, int first, const void *from_u,
                                         const void *from_v)
    {
        C c(p, first);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            load_one(c, k, from_u, from_v);
    }
    /* Fills the tile from what was loaded ahead and the rest. Own pixels are also stored at `keep`,
     * unless it is NULL. After the second pixel there are registers for other loads, which `then`
     * issues. */
    template <int MODE, class THEN>
    __device__ __forceinline__ void fill(char *tile, const void *from_u, const void *from_v,
                                         const maker<typename T::values, MODE> &m, const place &p,
                                         int first, void *keep, THEN then)
    {
        C c(p, first);
#pragma unroll
        for (int i = 0; i < C::PASSES; i++) {
            int line = c.row + i * C::EACH;
            if (i == THEN_AT)
                then();
            uint4 w = u[i % AHEAD], more = v[TWO ? i % AHEAD : 0];
            if (i + AHEAD < C::PASSES)
                load_one(c, i + AHEAD, from_u, from_v);
            if (c.ends(i))
                continue;
            if (MODE != AS_IS && c.inside(i)) {
                if (MODE == SCALED_PLUS)
                    more = *(const uint4 *)((const char *)from_v + (c.at + i * c.step));
                w = m.make(w, more);
                if (MODE != SLOPE && keep && line >= T::TOP && line < T::ROWS - T::RIGHT)
                    *(uint4 *)((char *)keep + (c.at + i * c.step)) = w;
            }
            *(uint4 *)(tile + c.to + i * C::DOWN) = V::taken(w);
        }
    }
};

/* Fills the columns that are not the tile's own, in one go. In tiles as wide as the image they stay
 * 0. */
template <class T, int THREADS, int MODE>
static __device__ void fill_sides(char *tile, const void *u, const void *v,
                                  const maker<typename T::values, MODE> &m, const place &p,
                                  int first)
{
    typedef typename T::values V;
    const int SIDES = T::LEFT + T::RIGHT;
#pragma unroll 1
    for (int i = this_thread(); i < T::ROWS * SIDES * T::CH; i += THREADS) {
        int ch = i % T::CH, side = i / T::CH % SIDES, row = i / T::CH / SIDES;
        int col = side < T::LEFT ? side : T::COLS + side;
        int y = p.row + row - T::TOP, x = p.col + col - T::LEFT;
        uint4 w = make_uint4(0, 0, 0, 0), more = w;
        if ((unsigned)y < (unsigned)p.height && (unsigned)x < (unsigned)p.width) {
            int at = ((y * p.width + x) * p.channels + first + ch * V::PER) * V::SIZE;
            w = *(const uint4 *)((const char *)u + at);
            if (MODE >= SCALED_PLUS)
                more = *(const uint4 *)((const char *)v + at);
            w = m.make(w, more);
        }
        *(uint4 *)(tile + ch * T::PLANE + (row * T::PITCH + col) * PIXEL) = V::taken(w);
    }
}

template <class T, int THREADS>
static __device__ __forceinline__ void clear_sides(char *tile)
{
    maker<typename T::values, AS_IS> nothing(NULL, 0, 0, false);
    place nowhere = {0, 0, 0, 0, 0};
    fill_sides<T, THREADS>(tile, NULL, NULL, nothing, nowhere, 0);
}

/* ---- coefficients, computed by the block's threads: (3, channels) a, c, b ---- */

static __device__ __forceinline__ void input_coefficients(const dro__conv3 &k, int part,
                                                          float *smem, int threads, bool keep)
{
#pragma unroll 1
    for (int i = threadIdx.x; k.lazy && i < k.in; i += threads) {
        int at = part * k.in + i;
        float3 f = k.x_finish ? forward_numbers(k.parts, k.height * k.width, k.x_numbers,
                                                k.x_source, part, i, keep)
                              : make_float3(k.x_numbers.mean[at], k.x_numbers.scale[at],
                                            k.x_numbers.shift[at]);
        smem[i] = f.y;
        smem[k.in + i] = f.z - f.x * f.y;
    }
}

static __device__ __forceinline__ void slope_coefficients(const dro__conv3 &k, int part,
                                                          float *smem, int threads, bool keep)
{
#pragma unroll 1
    for (int i = threadIdx.x; k.norm && i < k.out; i += threads) {
        int at = part * k.out + i;
        float3 f = k.finish ? backward_numbers(k.parts, k.out_height * k.out_width, 1, k.numbers,
                                               k.norm_grads, part, i, keep)
                            : make_float3(k.numbers.p[at], k.numbers.q[at], k.numbers.r[at]);
        smem[i] = f.x;
        smem[k.out + i] = f.z - k.numbers.mean[at] * f.y;
        smem[2 * k.out + i] = f.y;
    }
}

/* ---- products ---- */

/* The offset of a lane's pixel of a product in a tile, in pixels: it is the lane-th of 16 in a row,
 * or in two rows that are HALF apart. Pixels are STRIDE columns apart. */
template <int COLS, int PITCH, int HALF, int STRIDE>
static __device__ __forceinline__ int lane_pixel(int lane)
{
    return COLS == 8 ? (lane / 8 * HALF * STRIDE * PITCH) + lane % 8 * STRIDE : lane * STRIDE;
}

/* Computes R rows of 16 output pixels and 16 channels, from KS times two planes of input. b:
 * weights (tap, KS), in registers. Each row is passed to `done`. */
template <int R, int KS, class T, class DONE>
static __device__ __forceinline__ void roll(unsigned from, const uint4 (&b)[TAPS * KS], DONE done)
{
    typedef typename T::values V;
    float acc[3][2][4];
#pragma unroll
    for (int i = 0; i < R + 2; i++) {
#pragma unroll
        for (int j = 0; i < R && j < 8; j++)
            acc[i % 3][j / 4][j % 4] = 0;
#pragma unroll
        for (int ks = 0; ks < KS; ks++)
#pragma unroll
            for (int ec = 0; ec < 3; ec++) {
                unsigned a[4];
                ldmatrix(a, from + ks * 2 * T::PLANE + (i * T::PITCH + ec) * PIXEL);
#pragma unroll
                for (int er = 0; er < 3; er++) {
                    if (i - er < 0 || i - er >= R)
                        continue;
                    const uint4 &w = b[(er * 3 + ec) * KS + ks];
                    V::multiply(acc[(i - er) % 3][0], a, w.x, w.y);
                    V::multiply(acc[(i - er) % 3][1], a, w.z, w.w);
                }
            }
        if (i >= 2)
            done(i - 2, acc[(i - 2) % 3]);
    }
}

/* The same with a stride of 2. */
template <int R, int KS, class T, class DONE>
static __device__ __forceinline__ void skip(unsigned from, const uint4 (&b)[TAPS * KS], DONE done)
{
    typedef typename T::values V;
#pragma unroll
    for (int i = 0; i < R; i++) {
        float acc[2][4] = {{0}};
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int ks = 0; ks < KS; ks++) {
                unsigned a[4];
                ldmatrix(a, from + ks * 2 * T::PLANE +
                                ((2 * i + tap / 3) * T::PITCH + tap % 3) * PIXEL);
                V::multiply(acc[0], a, b[tap * KS + ks].x, b[tap * KS + ks].y);
                V::multiply(acc[1], a, b[tap * KS + ks].z, b[tap * KS + ks].w);
            }
        done(i, acc);
    }
}

/* Loads the weights of a warp's 16 channels for two planes of input. The taps are `apart` elements
 * apart. */
static __device__ __forceinline__ void take_taps(uint4 (&b)[TAPS], const uint4 *weights, int apart)
{
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
        b[tap] = weights[tap * apart];
}

/* Does the work of roll or skip where there are too many weights for registers: they are read from
 * shared memory, for two planes at a time, KS of the ALL that a tap has. */
template <int R, int STRIDE, int KS, int ALL, class T, class DONE>
static __device__ __forceinline__ void roll_deep(unsigned from, const uint4 *weights, DONE done)
{
    typedef typename T::values V;
    float acc[R][2][4] = {{{0}}};
#pragma unroll 1
    for (int ks = 0; ks < KS; ks++, from += 2 * T::PLANE, weights += 32) {
        uint4 b[TAPS];
        take_taps(b, weights, ALL * 32);
#pragma unroll
        for (int i = 0; i < 3 * ((R - 1) * STRIDE + 3); i++) {
            unsigned a[4];
            int row = i / 3, ec = i % 3;
            ldmatrix(a, from + (row * T::PITCH + ec) * PIXEL);
#pragma unroll
            for (int er = 0; er < 3; er++) {
                int down = row - er, to = down / STRIDE;
                if (down < 0 || down % STRIDE || to >= R)
                    continue;
                V::multiply(acc[to][0], a, b[er * 3 + ec].x, b[er * 3 + ec].y);
                V::multiply(acc[to][1], a, b[er * 3 + ec].z, b[er * 3 + ec].w);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        done(i, acc[i]);
}

/* Copies 16-byte words to shared memory asynchronously. */
static __device__ __forceinline__ void fetch_words(char *to, const uint4 *from, int count,
                                                   int threads)
{
    for (int i = threadIdx.x; i < count; i += threads)
        fetch16(shared_address(to) + i * 16, from + i);
}

/* ---- sums ---- */

/* Sums N of the COUNT numbers of each lane over the lanes that differ in the bits LOW .. LOW N / 2.
 * Each of those lanes ends up with one of the sums, in x[0]; its index is returned. */
template <int N, int LOW, int COUNT>
static __device__ __forceinline__ int spread_sum(float (&x)[COUNT])
{
    if constexpr (N == 1) {
        return 0;
    } else {
        const int HALF = N / 2, BIT = LOW * HALF;
        bool upper = threadIdx.x & BIT;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float give = upper ? x[i] : x[i + HALF], have = upper ? x[i + HALF] : x[i];
            x[i] = have + __shfl_xor_sync(~0u, give, BIT);
        }
        return (upper ? HALF : 0) + spread_sum<HALF, LOW>(x);
    }
}

#endif
