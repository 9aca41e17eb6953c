/* Kernels on the CPU, to check the convolutions where there is no GPU: a block's threads are fibres
 * that take turns at barriers and at instructions of a whole warp, one block after another.
 * Included before a .cu file, in place of conv3_mma.cuh and conv3_group.cuh. So that a missing
 * barrier shows, a warp that is drawn goes on until it can no more, far ahead of the others; and it
 * is drawn whether a copy in the background is done at once or when it is waited for. */
#ifndef TESTS_CONV3_BLOCK_H
#define TESTS_CONV3_BLOCK_H

#define DRO_CUDA_CONV3_MMA_CUH /* below */
#define DRO_CUDA_CONV3_GROUP_CUH
#define DRO_WARP_GROUPS 1

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __shared__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n)

enum { WARP = 32, MOST = 1024, STACK = 65536, SHARED = 232448 };

/* Not static: functions of a header that several .cu files include are one function. */
inline dim3 threadIdx, blockIdx, gridDim, blockDim;
alignas(1024) inline char smem[SHARED]; /* the block's shared memory */
inline size_t room_used;

struct copy {
    unsigned to; /* in smem */
    const void *from;
};

struct fibre {
    ucontext_t context;
    std::vector<char> stack;
    std::vector<copy> copies; /* in the background */
    long behind;              /* waits at the block's barrier while so many are passed */
    bool done;
};

inline std::vector<fibre> fibres;
inline std::function<void()> body;
inline ucontext_t scheduler;
inline int current, left, waiting;        /* threads: which, not ended, at the block's barrier */
inline int warp_waiting[MOST / WARP];     /* at the warp's */
inline long turn, warp_turn[MOST / WARP]; /* barriers passed */
inline long moves;                        /* these, and threads ended */

static void take_turns()
{
    int me = current;
    swapcontext(&fibres[(size_t)me].context, &scheduler);
    current = me;
    threadIdx.x = (unsigned)me;
}

static void __syncthreads()
{
    long now = turn;
    fibres[(size_t)current].behind = now;
    if (++waiting == left)
        waiting = 0, turn++, moves++;
    while (turn == now)
        take_turns();
}

static void sync_warp()
{
    int w = current / WARP;
    long now = warp_turn[w];
    if (++warp_waiting[w] == WARP)
        warp_waiting[w] = 0, warp_turn[w]++, moves++;
    while (warp_turn[w] == now)
        take_turns();
}

static void wrong(const char *what)
{
    printf("%s\n", what);
    exit(1);
}

static void run_fibre()
{
    body();
    if (!fibres[(size_t)current].copies.empty())
        wrong("a copy that is not waited for");
    fibres[(size_t)current].done = true;
    left--, moves++;
    if (waiting && waiting == left)
        waiting = 0, turn++;
    swapcontext(&fibres[(size_t)current].context, &scheduler);
}

static void run_block(int threads)
{
    fibres.resize((size_t)threads);
    left = threads, waiting = 0;
    for (fibre &f : fibres) {
        f.stack.resize(STACK);
        f.done = false, f.behind = -1;
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = &scheduler;
        makecontext(&f.context, run_fibre, 0);
    }
    while (left > 0) {
        int warp = rand() % (threads / WARP), from = rand() % WARP;
        long before;
        do {
            before = moves;
            for (int k = 0; k < WARP; k++) {
                current = warp * WARP + (k + from) % WARP;
                threadIdx.x = (unsigned)current;
                fibre &f = fibres[(size_t)current];
                if (!f.done && f.behind != turn)
                    swapcontext(&scheduler, &f.context);
            }
        } while (moves != before);
    }
}

template <class KERNEL, class... MORE>
static int run_grid(const cudaLaunchConfig_t *how, KERNEL kernel, MORE... more)
{
    gridDim = how->gridDim, blockDim = how->blockDim, room_used = how->dynamicSmemBytes;
    if (room_used > SHARED)
        wrong("more shared memory than there is");
    for (unsigned i = 0; i < gridDim.x * gridDim.y * gridDim.z; i++) {
        blockIdx = dim3(i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y);
        memset(smem, 0x7f, sizeof smem);
        body = [&] { kernel(more...); };
        run_block((int)blockDim.x);
        for (size_t k = room_used; k < SHARED; k++)
            if (smem[k] != 0x7f)
                wrong("a write behind the shared memory");
    }
    return 0;
}

/* ---- the runtime: a GPU of so many multiprocessors with two blocks on each ---- */

#ifndef PROCESSORS
#define PROCESSORS 8
#endif

static int set_to(int *to, int value)
{
    *to = value;
    return 0;
}

#define cudaLaunchKernelEx        run_grid
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaGetDevice(to)         ((void)0)
#define cudaDeviceGetAttribute(to, which, of)                                                      \
    set_to(to, which == cudaDevAttrComputeCapabilityMajor         ? 9                              \
               : which == cudaDevAttrComputeCapabilityMinor       ? 0                              \
               : which == cudaDevAttrMaxSharedMemoryPerBlockOptin ? SHARED                         \
                                                                  : PROCESSORS)
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, ...) set_to(to, 2)
#define cudaFuncGetAttributes(to, kernel)                      ((to)->ptxVersion = 90, cudaSuccess)
#define DRO_CUDA_WARP_GROUPS                                   1

/* ---- instructions ---- */

/* Where the threads of a warp leave what the others read behind the warp's next barrier: two places
 * in turn, so that nobody writes where somebody still reads. */
inline unsigned (&exchange())[WARP][6]
{
    static unsigned all[MOST / WARP][2][WARP][6];
    int w = current / WARP;
    return all[w][warp_turn[w] % 2];
}

template <class T> static T from_lane(T x, int lane)
{
    unsigned(&all)[WARP][6] = exchange();
    memcpy(all[current % WARP], &x, sizeof x);
    sync_warp();
    memcpy(&x, all[lane], sizeof x);
    return x;
}

#define __shfl_sync(mask, x, lane)     from_lane(x, (int)(lane))
#define __shfl_xor_sync(mask, x, bits) from_lane(x, (current % WARP) ^ (int)(bits))

static inline float bits_float(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline unsigned float_bits(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#define __uint_as_float bits_float
#define __float_as_uint float_bits

static inline float low_of(unsigned w)
{
    return bits_float(w << 16);
}

static inline float high_of(unsigned w)
{
    return bits_float(w & 0xffff0000u);
}

static inline unsigned pack2(float x, float y)
{
    const float f[2] = {x, y};
    unsigned u[2];
    memcpy(u, f, sizeof u);
    for (unsigned &w : u)
        w = (w + 0x7fff + (w >> 16 & 1)) >> 16;
    return u[0] | u[1] << 16;
}

static inline unsigned pack2_relu(float x, float y)
{
    return pack2(x < 0 ? 0 : x, y < 0 ? 0 : y);
}

static inline unsigned positive2(unsigned x)
{
    return (low_of(x) > 0 ? 0xffffu : 0) | (high_of(x) > 0 ? 0xffff0000u : 0);
}

static inline unsigned to_tf32(float x)
{
    return (float_bits(x) + 0x1000) & ~0x1fffu;
}

static inline float relu_of(float x)
{
    return x < 0 ? 0 : x;
}

static inline int this_thread()
{
    return (int)threadIdx.x;
}

static inline unsigned shared_address(const void *p)
{
    return (unsigned)((const char *)p - smem);
}

static void load_matrices(unsigned (&r)[4], unsigned address, bool turned)
{
    unsigned(&all)[WARP][6] = exchange();
    int lane = current % WARP;
    if (address % 16 || address + 16 > room_used)
        wrong("a matrix outside of the shared memory");
    all[lane][0] = address;
    sync_warp();
    for (int m = 0; m < 4; m++) {
        unsigned short half[2];
        for (int k = 0; k < 2; k++) {
            int row = turned ? lane % 4 * 2 + k : lane / 4,
                col = turned ? lane / 4 : lane % 4 * 2 + k;
            memcpy(&half[k], smem + all[m * 8 + row][0] + col * 2, 2);
        }
        r[m] = half[0] | (unsigned)half[1] << 16;
    }
}

static inline void ldmatrix(unsigned (&r)[4], unsigned address)
{
    load_matrices(r, address, false);
}

static inline void ldmatrix_turned(unsigned (&r)[4], unsigned address)
{
    load_matrices(r, address, true);
}

static inline uint2 shared_pair(unsigned address)
{
    uint2 u;
    if (address % 8 || address + 8 > room_used)
        wrong("two words outside of the shared memory");
    memcpy(&u, smem + address, sizeof u);
    return u;
}

static inline void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    unsigned(&all)[WARP][6] = exchange();
    int lane = current % WARP;
    const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(all[lane], mine, sizeof mine);
    sync_warp();
    for (int e = 0; e < 4; e++) {
        int row = lane / 4 + e / 2 * 8, col = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 16; k++) {
            unsigned x = all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            unsigned y = all[col * 4 + k % 8 / 2][4 + k / 8];
            d[e] += (k % 2 ? high_of(x) : low_of(x)) * (k % 2 ? high_of(y) : low_of(y));
        }
    }
}

/* What a float has beyond tf32 is cut off. */
static inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    unsigned(&all)[WARP][6] = exchange();
    int lane = current % WARP;
    const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    for (int i = 0; i < 6; i++)
        all[lane][i] = mine[i] & ~0x1fffu;
    sync_warp();
    for (int e = 0; e < 4; e++) {
        int row = lane / 4 + e / 2 * 8, col = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 8; k++)
            d[e] += bits_float(all[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) *
                    bits_float(all[col * 4 + k % 4][4 + k / 4]);
    }
}

/* ---- copies of one thread ---- */

static inline void fetch16(unsigned to, const void *from)
{
    if (to % 16 || (size_t)from % 16 || to + 16 > room_used)
        wrong("a copy that is not aligned, or outside of the shared memory");
    if (rand() % 2)
        memcpy(smem + to, from, 16);
    else
        fibres[(size_t)current].copies.push_back({to, from});
}

static inline void fetch_wait()
{
    for (const copy &c : fibres[(size_t)current].copies)
        memcpy(smem + c.to, c.from, 16);
    fibres[(size_t)current].copies.clear();
}

/* ---- copies with a gate: done when they begin; a gate counts, as the machine's does ---- */

struct gate {
    short turns, expected; /* passed; announced in this turn */
    int bytes;             /* still to come */
};

static inline void gate_open(gate *g)
{
    *g = {0, 0, 0};
}

static void gate_count(gate *g, int bytes)
{
    g->bytes += bytes;
    if (g->expected && g->bytes == 0)
        g->turns++, g->expected = 0;
}

static inline void gate_expect(gate *g, unsigned bytes)
{
    if (g->expected)
        wrong("a gate is expected to open twice in a turn");
    g->expected = 1;
    gate_count(g, (int)bytes);
}

static inline void gate_copy(gate *g, void *to, const void *from, unsigned bytes)
{
    if (shared_address(to) % 16 || (size_t)from % 16 || bytes % 16 || bytes == 0 ||
        shared_address(to) + bytes > room_used)
        wrong("a copy that is not aligned, or outside of the shared memory");
    memcpy(to, from, bytes);
    gate_count(g, -(int)bytes);
}

static inline void gate_wait(gate *g, int turn)
{
    while (g->turns <= turn)
        take_turns();
}

static inline void gates_ready() {}

static inline void show_to_copies() {}

/* ---- products of a warp group: here each thread computes its own numbers, at once ---- */

typedef unsigned long long matrix;

static inline matrix matrix_at(unsigned address, unsigned next_k, unsigned next)
{
    if (address % 16 || next_k % 16 || next % 16)
        wrong("a matrix that is not aligned");
    return (matrix)(address >> 4) | (matrix)(next_k >> 4) << 16 | (matrix)(next >> 4) << 32;
}

static inline matrix moved(matrix m, unsigned bytes)
{
    return m + (bytes >> 4);
}

/* Row or column i of a matrix, at k of the summed dimension. */
static float element(matrix m, int turned, int i, int k)
{
    unsigned at = (unsigned)(m & 0x3fff) << 4, next_k = (unsigned)(m >> 16 & 0x3fff) << 4;
    unsigned next = (unsigned)(m >> 32 & 0x3fff) << 4;
    at += (unsigned)(k / 8) * next_k + (unsigned)(i / 8) * next +
          (unsigned)(turned ? k % 8 * 16 + i % 8 * 2 : i % 8 * 16 + k % 8 * 2);
    if (at + 2 > room_used)
        wrong("a product of what is outside of the shared memory");
    unsigned short half;
    memcpy(&half, smem + at, 2);
    return bits_float((unsigned)half << 16);
}

template <int TURNED, int COUNT> static void product(float (&d)[COUNT], matrix a, matrix b, int add)
{
    int lane = current % WARP, warp = current / WARP % 4;
    for (int n = 0; n < COUNT; n++) {
        int row = warp * 16 + lane / 4 + n / 2 % 2 * 8, col = n / 4 * 8 + lane % 4 * 2 + n % 2;
        d[n] = add ? d[n] : 0;
        for (int k = 0; k < 16; k++)
            d[n] += element(a, TURNED, row, k) * element(b, TURNED, col, k);
    }
}

static inline void show_to_products() {}

static inline void products_begin() {}

static inline void products_end() {}

template <int LEFT> static inline void products_wait() {}

template <int COUNT> static inline void settle(float (&)[COUNT]) {}

static inline double atomicAdd(double *to, double x)
{
    double old = *to;
    *to += x;
    return old;
}

static inline void await_previous() {}

static inline void admit_next() {}

static inline double inverse_root(double x)
{
    return 1 / sqrt(x);
}

#define rsqrt inverse_root

using std::isnan;

#endif
