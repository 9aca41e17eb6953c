/* What the convolutions by warp groups share. They are for bfloat16 with a stride of 1, and 16
 * channels of 32 x 32 pixels, 32 of 16 x 16 or 64 of 8 x 8: the layers of a ResNet for CIFAR. In
 * all three a row of pixels has 1024 bytes.
 *
 * A block loops over tiles of eight rows of an image. Bulk copies bring these rows to shared memory
 * as they are, while the block still works on the previous tile. The threads compute the operands
 * of the products from them and store these as bands: row after row, each row as planes of eight
 * channels, 16 bytes a pixel. Eight neighbouring pixels by eight channels are thus a matrix of 128
 * contiguous bytes, whichever pixel is the first, and there are constant distances to the next
 * matrix along a plane, in the next plane and in the next row. Hence
 *   - forward, and for the data gradient, the 64 rows of a product are a patch of 8 x 8 pixels,
 *     shifted by the tap;
 *   - for the weight gradient, a product sums over pixels, and its 64 rows are channels. With fewer
 *     channels they are the channels of several rows of pixels, that is several taps at once. */
#ifndef DRO_CUDA_CONV3_BANDS_CUH
#define DRO_CUDA_CONV3_BANDS_CUH

#include "conv3_group.cuh"
#include "conv3_rows.cuh"

enum { BAND_ROW = 1024 /* bytes of a row of pixels */, OWN_ROWS = 8, ALL_ROWS = OWN_ROWS + 2 };

/* The bands of a tile: CH planes; its rows plus one above and one below; COLS columns plus one on
 * each side. */
template <int CH_, int COLS_>
struct bands {
    static const int CH = CH_, COLS = COLS_, SIZE = (COLS + 2) * PIXEL, CHUNKS = CH * COLS;
    static const int APART = 128 / (CH < 4 ? CH : 4);
    static const int PLANE = SIZE + ((APART - SIZE) % 128 + 128) % 128, BAND = CH * PLANE;
    static const int BYTES = ALL_ROWS * BAND;

    /* The plane and the column of the i-th 16 bytes of a row that a thread takes. Eight
     * neighbouring threads have no bank conflicts, neither in the order of memory, (column, plane),
     * nor in the bands. */
    static __device__ __forceinline__ int plane_of(int i)
    {
        return CH == 8 ? i % 4 + (i / 4 ^ i / 8) % 2 * 4 : i % CH;
    }
    static __device__ __forceinline__ int column_of(int i)
    {
        return CH == 8 ? i / 16 * 2 + i / 4 % 2 : i / CH;
    }
};

/* The shapes for C channels. A block computes a group of GN of them. Its warp groups divide the
 * patches of a tile or, with 64 channels, where a tile is one patch, the channels of the group. */
template <int C>
struct band_shape {
    static const int CHANNELS = C, SIDE = 512 / C, TILES = SIDE / OWN_ROWS, KS = C / 16;
    static const int HALO = TILES > 1, RAW_ROWS = OWN_ROWS + 2 * HALO;
    static const int TEAMS = C == 16 ? 1 : 2, THREADS = 128 * TEAMS, SPLIT = C == 64 ? 2 : 1;
    static const int GN = C == 16 ? 16 : 32, GROUPS = C / GN, N = GN / SPLIT, HAS = N / 4;
    static const int OWN = SIDE / 8 * SPLIT / TEAMS; /* patches of a warp group in a tile */
    static const int IMAGE = SIDE * BAND_ROW, WEIGHTS = TAPS * C * GN * 2; /* bytes */
    typedef bands<C / 8, SIDE> all;  /* of all channels */
    typedef bands<GN / 8, SIDE> own; /* of the group's */
};

/* ---- which thread handles what ---- */

/* The warp group of a thread. The shuffle tells the compiler that it is the same in a whole
 * warp. */
template <class S>
static __device__ __forceinline__ int team_of_thread()
{
    return S::TEAMS == 1 ? 0 : __shfl_sync(~0u, (int)threadIdx.x / 128, 0);
}

/* The first column of a warp group's i-th patch. */
template <class S>
static __device__ __forceinline__ int patch_at(int i)
{
    return ((S::SPLIT == 1 ? team_of_thread<S>() * S::OWN : 0) + i) * 8;
}

/* A thread's first channel, within the group; the row and the column of its first pixel, within a
 * patch. */
template <class S>
static __device__ __forceinline__ int channel_of_thread()
{
    int fourth = threadIdx.x % 4;
    return S::SPLIT == 1 ? fourth * S::HAS : fourth * 8 + (int)threadIdx.x / 128 * 4;
}

static __device__ __forceinline__ int row_of_thread()
{
    return threadIdx.x / 32 % 4 * 2;
}

static __device__ __forceinline__ int column_of_thread()
{
    return threadIdx.x % 32 / 4;
}

/* ---- a block's share of a part ---- */

template <class S>
struct band_share {
    int at, end, first;

    __device__ __forceinline__ band_share(const dro__conv3 &k, int part)
        : first(k.parts.first[part])
    {
        int count = (k.parts.first[part + 1] - first) * S::TILES;
        at = (int)((long long)count * blockIdx.x / gridDim.x);
        end = (int)((long long)count * (blockIdx.x + 1) / gridDim.x);
    }
    __device__ __forceinline__ int row() const
    {
        return at % S::TILES * OWN_ROWS;
    }
    __device__ __forceinline__ const char *image(const void *all) const
    {
        return (const char *)all + (size_t)(first + at / S::TILES) * S::IMAGE;
    }
};

/* The number of blocks for each part and group, of `all` blocks in total. All blocks get the same
 * number of tiles, or one less. */
template <class S>
static int band_blocks(const dro__conv3 *k, int all)
{
    int most = 1, each = all / (k->parts.count * S::GROUPS * k->share);
    for (int p = 0; p < k->parts.count; p++) {
        int count = (k->parts.first[p + 1] - k->parts.first[p]) * S::TILES;
        most = count > most ? count : most;
    }
    each = each > 0 ? each : 1;
    int turns = (most + each - 1) / each;
    return (most + turns - 1) / turns;
}

/* ---- copies ---- */

/* The rows of a tile, all channels, with the rows above and below if they exist: their size, and
 * their copy. One thread begins the copies. */
template <class S>
static __device__ __forceinline__ unsigned copy_bytes(int row)
{
    int from = S::HALO && row ? row - 1 : row;
    int to = S::HALO && row + OWN_ROWS < S::SIDE ? row + OWN_ROWS + 1 : row + OWN_ROWS;
    return (unsigned)(to - from) * BAND_ROW;
}

template <class S>
static __device__ __forceinline__ void copy_rows(gate *g, char *raw, const char *image, int row)
{
    int from = S::HALO && row ? row - 1 : row;
    gate_copy(g, raw + (from - row + S::HALO) * BAND_ROW, image + from * BAND_ROW,
              copy_bytes<S>(row));
}

/* Copies the tile's own rows only. */
static __device__ __forceinline__ void copy_own(gate *g, char *raw, const char *image, int row)
{
    gate_copy(g, raw, image + row * BAND_ROW, OWN_ROWS * BAND_ROW);
}

/* Copies the weights of a group; which: 0 for the forward pass, 1 for the data gradient. */
template <class S>
static __device__ __forceinline__ void copy_weights(gate *g, char *smem, const dro__conv3 &k,
                                                    int which, int group)
{
    gate_expect(g, S::WEIGHTS);
    gate_copy(g, smem, (const char *)k.weights + (which * S::GROUPS + group) * S::WEIGHTS,
              S::WEIGHTS);
}

/* ---- bands ---- */

/* Makes the bands of a tile from the copied rows: u, and v if the mode takes two inputs, from the
 * first of T's channels on. The tile's own rows are also stored at `keep`, the address of its first
 * pixel in global memory, unless that is NULL. */
template <class S, class T, int MODE>
static __device__ __forceinline__ void make_bands(char *tile, const char *u, const char *v,
                                                  const maker<bf16_values, MODE> &m, int row,
                                                  char *keep)
{
    const int PASSES = (ALL_ROWS * T::CHUNKS + S::THREADS - 1) / S::THREADS;
    const int EACH = S::THREADS / T::CHUNKS; /* rows per pass */
    int i = threadIdx.x % T::CHUNKS, line = threadIdx.x / T::CHUNKS;
    int from = T::column_of(i) * S::CHANNELS * 2 + T::plane_of(i) * 16;
    char *to = tile + T::plane_of(i) * T::PLANE + (T::column_of(i) + 1) * PIXEL + line * T::BAND;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++, line += EACH) {
        if ((pass + 1) * EACH > ALL_ROWS && line >= ALL_ROWS)
            break;
        uint4 w = make_uint4(0, 0, 0, 0);
        if ((unsigned)(row + line - 1) < (unsigned)S::SIDE) {
            int at = (line - 1 + S::HALO) * BAND_ROW + from;
            w = *(const uint4 *)(u + at);
            w = m.make(w, MODE >= SCALED_PLUS ? *(const uint4 *)(v + at) : w);
            if (keep && line >= 1 && line <= OWN_ROWS)
                *(uint4 *)(keep + (line - 1) * BAND_ROW + from) = w;
        }
        *(uint4 *)(to + pass * EACH * T::BAND) = w;
    }
}

/* Zeroes the columns to the left and right of the image, once per block. */
template <class S, class T>
static __device__ __forceinline__ void clear_bands(char *tile)
{
    for (int i = threadIdx.x; i < ALL_ROWS * T::CH * 2; i += S::THREADS)
        *(uint4 *)(tile + i / 2 * T::PLANE + i % 2 * (T::COLS + 1) * PIXEL) =
            make_uint4(0, 0, 0, 0);
}

/* ---- products ---- */

/* Issues the products of a patch with all taps. */
template <class S>
static __device__ __forceinline__ void patch_products(float (&acc)[S::N / 2], const char *tile,
                                                      const char *weights, int patch)
{
    typedef typename S::all T;
    matrix a = matrix_at(shared_address(tile) + patch * PIXEL, T::PLANE, T::BAND);
    matrix b = matrix_at(shared_address(weights) + (S::SPLIT == 1 ? 0 : team_of_thread<S>() * 256),
                         S::GN * PIXEL, 128);
#pragma unroll
    for (int i = 0; i < TAPS * S::KS; i++) {
        int tap = i / S::KS, ks = i % S::KS;
        product<0>(acc, moved(a, tap / 3 * T::BAND + tap % 3 * PIXEL + 2 * ks * T::PLANE),
                   moved(b, i * 2 * S::GN * PIXEL), i);
    }
}

/* HAS channels of a thread, in pairs. */
template <int HAS>
struct words {
    unsigned w[HAS / 2];

    __device__ __forceinline__ void read(const void *from)
    {
        if (HAS == 4) {
            uint2 u = *(const uint2 *)from;
            w[0] = u.x, w[1] = u.y;
        } else {
            uint4 u = *(const uint4 *)from;
            w[0] = u.x, w[1] = u.y, w[HAS / 2 - 2] = u.z, w[HAS / 2 - 1] = u.w;
        }
    }
    __device__ __forceinline__ void write(void *to) const
    {
        if (HAS == 4)
            *(uint2 *)to = make_uint2(w[0], w[1]);
        else
            *(uint4 *)to = make_uint4(w[0], w[1], w[HAS / 2 - 2], w[HAS / 2 - 1]);
    }
};

/* The offset of a thread's first pixel of a patch from the beginning of an image, or of the copied
 * rows; the second pixel is BAND_ROW further. */
template <class S>
static __device__ __forceinline__ int pixel_at(int row, int patch, int group)
{
    return (row + row_of_thread()) * BAND_ROW +
           ((patch + column_of_thread()) * S::CHANNELS + group * S::GN + channel_of_thread<S>()) *
               2;
}

/* ---- sums ---- */

/* Adds up two sums for each of a thread's channels over the pixels of the warp, and writes them to
 * smem: (2, GN) for each warp. */
template <class S>
static __device__ __forceinline__ void gather_sums(float *smem, float (&sums)[2 * S::HAS])
{
    float *to = smem + threadIdx.x / 32 * 2 * S::GN + channel_of_thread<S>();
#pragma unroll
    for (int i = 0; i < 2 * S::HAS; i += 8) {
        float(&eight)[8] = *(float(*)[8])(sums + i);
        int n = i + spread_sum<8, 4>(eight);
        to[n / S::HAS * S::GN + n % S::HAS] = eight[0];
    }
    __syncthreads();
}

/* The i-th of the (2, GN) sums, added over the warps that have it. */
template <class S>
static __device__ __forceinline__ double gathered(const float *smem, int i)
{
    const int WARPS_EACH = S::THREADS / 32 / S::SPLIT;
    int first = S::SPLIT == 1 ? 0 : i % 8 / 4 * 4;
    double sum = 0;
    for (int w = 0; w < WARPS_EACH; w++)
        sum += (double)smem[(first + w) * 2 * S::GN + i];
    return sum;
}

#endif
