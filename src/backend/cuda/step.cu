/* A step on the GPU: one block runs the phases of ../weigh.h, a grid runs the moves of ../moves.h.
 * All arithmetic is in double. */
#include "device.cuh"
#include "step_kernels.h"

#define FN                   static __device__ __forceinline__
#define APART                static __device__ __noinline__
#define EACH(i, n)           for (int i = threadIdx.x; i < (n); i += THREADS)
#define EACH_SUM(i, n, a, b) EACH (i, n)
#define ONE                  (threadIdx.x == 0)
#define SYNC()               __syncthreads()
#define ALL_SUM(x)           all_sum(x)
#define ALL_MAX(x)           all_max(x)
#define EXP(x)               exp(x)
#define ROOT(x)              sqrt(x)
#define ALONE                0
#define DRO__NO_GROUP        dro__group()
typedef double real;
/* clang-format off */
#include "../weigh.h"
#include "../moves.h"
/* clang-format on */

/* Copies a struct of eight-byte words. Called by a whole block. */
static __device__ void copy_words(void *to, const void *from, size_t bytes)
{
    EACH (i, (int)(bytes / sizeof(uint64_t)))
        ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
}
static_assert(sizeof(dro__scalars) % sizeof(uint64_t) == 0, "copy_words");
static_assert(sizeof(dro__ticket) % sizeof(uint64_t) == 0, "copy_words");

#ifndef DRO_STEP_MODULE
/* ---- the ticket ---- */

/* Copies 16-byte words. Accesses are coalesced and each thread has several loads in flight, because
 * reads of host memory are slow. */
static __device__ void take_words(const void *from, void *to, size_t bytes)
{
    enum { AT_A_TIME = 8 };
    int count = (int)(bytes / sizeof(uint4)), step = (int)blockDim.x;
    for (int i = (int)threadIdx.x; i < count; i += AT_A_TIME * step) {
        uint4 words[AT_A_TIME];
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++)
            if (i + k * step < count)
                words[k] = ((const uint4 *)from)[i + k * step];
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++)
            if (i + k * step < count)
                ((uint4 *)to)[i + k * step] = words[k];
    }
}

/* One block for the cuts, one for the ticket and the small arrays, and one for the mixes if there
 * are any, so that their reads of host memory overlap. */
static __global__ void take_kernel(const __grid_constant__ dro__gpu_step g)
{
    size_t slot = *g.turn % DRO__TICKETS, from = slot * g.capacity;
    int count = g.k.counts[0] + g.k.counts[1];
    switch (blockIdx.x) {
    case 0:
        take_words(g.ticket_cuts + from, g.cuts, count * sizeof *g.cuts);
        break;
    case 1:
        copy_words(g.ticket, &g.tickets[slot], sizeof *g.ticket);
        EACH (i, count) {
            g.labels[i] = g.ticket_labels[from + i];
            g.group_of[i] = g.ticket_groups[from + i];
            g.keys[i] = g.ticket_keys[from + i];
        }
        break;
    default:
        take_words(g.ticket_mixes + from, g.mixes, count * sizeof *g.mixes);
        break;
    }
}

extern "C" void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *g)
{
    take_kernel<<<g->mixed ? 3 : 2, THREADS, 0, s>>>(*g);
}
#endif

/* ---- saving the state, and restoring it after a refused step ---- */

static __device__ void copy_state(const dro__gpu_step &g, bool back)
{
    const dro__step &k = g.k;
    EACH (i, k.plan.group_capacity) {
        dro__group *of = &k.groups[i], *kept = &g.groups_before[i];
        *(back ? of : kept) = *(back ? kept : of);
    }
    EACH (i, k.plan.weigh == DRO__PHASE_STORM ? (int)k.plan.batch : 0) {
        float *of = &k.old_losses[i], *kept = &g.old_losses_before[i];
        *(back ? of : kept) = *(back ? kept : of);
    }
    copy_words(back ? k.s : g.s_before, back ? g.s_before : k.s, sizeof *k.s);
    __syncthreads();
}

/* Marks the step as refused. Called by one thread, once the state has been restored. */
static __device__ void refuse(const dro__gpu_step &g, int what, int part, int64_t index,
                              float value)
{
    dro__scalars *s = g.k.s;
    s->refused = what;
    s->refused_part = part;
    s->refused_index = index;
    s->refused_value = (double)value;
}

/* ---- losses ---- */

/* Refuses the step if a loss is not finite. */
static __device__ bool refuse_losses(const dro__gpu_step &g, int count, bool first)
{
    __shared__ int found;
    if (ONE)
        found = INT_MAX;
    __syncthreads();
    EACH (i, count)
        if (!isfinite(g.k.losses[i]))
            atomicMin(&found, i);
    __syncthreads();
    if (found == INT_MAX)
        return false;
    if (!first)
        copy_state(g, true);
    if (ONE) {
        int part = found >= g.k.counts[0];
        refuse(g, DRO__REFUSED_LOSS, part, found - part * g.k.counts[0], g.k.losses[found]);
    }
    return true;
}

/* The index among the examples of all ranks of this rank's i-th example. */
static __device__ int whole_index(const dro__gpu_step &g, int i)
{
    int part = i >= g.own_counts[0];
    return part ? g.k.counts[0] + g.own_first[1] + i - g.own_counts[0] : g.own_first[0] + i;
}

static __global__ void weigh_kernel(const __grid_constant__ dro__gpu_step g, dro__phase phase,
                                    bool first)
{
    int count = g.k.counts[0] + (phase == DRO__PHASE_AHEAD ? 0 : g.k.counts[1]);
    if (g.k.s->refused || refuse_losses(g, count, first)) {
        EACH (i, count)
            g.k.coef[i] = 0;
    } else {
        if (first) /* keep a copy: later losses or gradients may refuse the step */
            copy_state(g, false);
        run_phase(&g.k, phase);
    }
    if (!g.own_coef)
        return;
    __syncthreads();
    EACH (i, g.own_counts[0] + g.own_counts[1])
        g.own_coef[i] = g.k.coef[whole_index(g, i)];
}

static __global__ void place_kernel(const __grid_constant__ dro__gpu_step g)
{
    EACH (i, g.k.counts[0] + g.k.counts[1])
        g.k.losses[i] = 0;
    __syncthreads();
    EACH (i, g.own_counts[0] + g.own_counts[1])
        g.k.losses[whole_index(g, i)] = g.own_losses[i];
}

extern "C" void dro__gpu_step_place(cudaStream_t s, const dro__gpu_step *g)
{
    place_kernel<<<1, THREADS, 0, s>>>(*g);
}

extern "C" void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *g, dro__phase phase,
                                    int first)
{
    weigh_kernel<<<1, THREADS, 0, s>>>(*g, phase, first);
}

/* ---- sums over a grid ---- */

/* Whether this block is the last of the grid to arrive. If so, it sees the partial sums of all
 * blocks. */
static __device__ bool come_last(unsigned *counter)
{
    __shared__ bool last;
    if (ONE) {
        __threadfence();
        last = atomicAdd(counter, 1) == gridDim.x - 1;
        if (last)
            *counter = 0;
    }
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

/* Computes N sums over the block; all its threads see them in `to` afterwards. */
template <int N> static __device__ void sum_block(const double *x, double *to)
{
    __shared__ double scratch[N][THREADS / 32];
#pragma unroll
    for (int m = 0; m < N; m++) {
        double sum = x[m];
        for (int o = 16; o; o >>= 1)
            sum += __shfl_xor_sync(~0u, sum, o);
        if (threadIdx.x % 32 == 0)
            scratch[m][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < N) {
        double sum = 0;
        for (int k = 0; k < THREADS / 32; k++)
            sum += scratch[threadIdx.x][k];
        to[threadIdx.x] = sum;
    }
    __syncthreads();
}

/* Writes this block's sums to its row of the partial sums. */
template <int N> static __device__ void put_sums(const dro__gpu_sums &to, const double *sum)
{
    sum_block<N>(sum, &to.partial[blockIdx.x * N]);
}

/* Adds up the partial sums of all blocks. Called by the last block. */
template <int N> static __device__ void gather_sums(const dro__gpu_sums &from, double *to)
{
    double sum[N] = {0};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS)
#pragma unroll
        for (int m = 0; m < N; m++)
            sum[m] += ((volatile double *)from.partial)[b * N + m];
    sum_block<N>(sum, to);
}

/* ---- gradients ---- */

/* Refuses the step if a gradient is not finite. Also computes |G1|^2, which a fresh start needs. */
static __global__ void check_kernel(const __grid_constant__ dro__gpu_step g)
{
    const dro__step &k = g.k;
    if (k.s->refused)
        return;
    double square = 0;
    unsigned long long found = ~0ull;
    for (int p = 0; p < 2 && k.counts[p]; p++) {
        const float *grad = k.v[p ? DRO__NEXT : DRO__G];
        for (size_t i = FIRST; i < k.plan.dim; i += STEP) {
            float x = grad[i];
            if (!isfinite(x)) {
                unsigned long long key = (unsigned long long)p << 62 | i;
                found = key < found ? key : found;
            }
            square += p == 0 ? (double)x * (double)x : 0;
        }
    }
    if (found != ~0ull)
        atomicMin(g.first, found);
    put_sums<1>(g.sums, &square);
    if (!come_last(g.sums.counter))
        return;
    __shared__ double whole;
    __shared__ unsigned long long first;
    gather_sums<1>(g.sums, &whole);
    if (ONE) {
        first = atomicExch(g.first, ~0ull);
        if (k.s->fresh)
            k.s->square = whole;
    }
    __syncthreads();
    if (first == ~0ull)
        return;
    copy_state(g, true);
    if (ONE) {
        int part = (int)(first >> 62);
        int64_t index = (int64_t)(first & ~(3ull << 62));
        refuse(g, DRO__REFUSED_GRADIENT, part, index, k.v[part ? DRO__NEXT : DRO__G][index]);
    }
}

/* ---- moves ---- */

/* Ends a pass of an asynchronous step. Called by the last block. */
static __device__ void finish(const dro__gpu_step &g, bool refused, bool settles, bool last,
                              bool summed)
{
    __shared__ double sum[DRO__SUMS];
    if (settles && summed)
        gather_sums<DRO__SUMS>(g.sums, sum);
    if (ONE) {
        if (!refused && settles)
            settle(&g.k, sum);
        if (!refused && last)
            g.k.s->done++;
    }
    if (!last)
        return;
    __syncthreads();
    copy_words(&g.snapshots[*g.turn % DRO__TICKETS], g.k.s, sizeof *g.k.s);
    __syncthreads(); /* all threads have read the turn */
    if (ONE)
        ++*g.turn;
}

/* A move, as a template argument of the kernels below. */
#define MOVE(name)                                                                                 \
    struct move_##name {                                                                           \
        enum { sums = DRO__MOVE_SUMS(DRO__MOVE_##name) };                                          \
        static __device__ void prepare(const dro__step *k, coefs *c) { prepare_##name(k, c); }     \
        static __device__ void each(float *const *v, const coefs *c, size_t i, int reg, real *sum) \
        {                                                                                          \
            each_##name(v, c, i, reg, sum);                                                        \
        }                                                                                          \
    };
DRO__MOVES(MOVE)
#undef MOVE

/* Moves elements [first, end). Which thread handles an element does not depend on the range. */
template <class M, bool reg>
static __device__ void run_move(const dro__step &k, size_t first, size_t end, double *sum)
{
    coefs c = {};
    M::prepare(&k, &c);
    for (size_t i = FIRST; i < end; i += STEP)
        if (i >= first)
            M::each(k.v, &c, i, reg, sum);
}

/* sam: 1/|G|, or 0 if |G| is 0 or not finite. With 0, z is w, and a gradient that is not finite
 * there refuses the step. */
static __global__ void length_kernel(const __grid_constant__ dro__gpu_step g)
{
    const dro__step &k = g.k;
    double square = 0;
    if (k.s->refused)
        return;
    for (size_t i = FIRST; i < k.plan.dim; i += STEP)
        square += (double)k.v[DRO__G][i] * (double)k.v[DRO__G][i];
    put_sums<1>(g.sums, &square);
    if (!come_last(g.sums.counter))
        return;
    __shared__ double whole;
    gather_sums<1>(g.sums, &whole);
    if (ONE)
        k.s->ascent = whole > 0 && isfinite(whole) ? 1 / sqrt(whole) : 0;
}

static __global__ void ascend_kernel(const __grid_constant__ dro__gpu_step g)
{
    double none[DRO__SUMS];
    run_move<move_ascend, false>(g.k, 0, g.k.n, none);
}

/* Updates the averages of the weights and, if the optimiser has memory for it, of the statistics.
 * Each thread averages the elements that it moved itself. */
static __device__ void run_average(const dro__gpu_step &g)
{
    const dro__step &k = g.k;
    float *v[DRO__VECTOR_ROLES] = {};
    coefs c = {};
    prepare_average(&k, &c);
    for (size_t i = FIRST; i < k.n; i += STEP)
        each_average(k.v, &c, i, 0, NULL);
    v[DRO__W] = g.statistics;
    v[DRO__AVERAGE] = k.v[DRO__AVERAGE] + k.n;
    for (size_t i = FIRST; i < k.plan.statistics && i < g.statistics_size; i += STEP)
        each_average(v, &c, i, 0, NULL);
}

/* second: the pass after the scalars have been settled */
template <class M>
static __global__ void step_kernel(const __grid_constant__ dro__gpu_step g, bool second)
{
    const dro__step &k = g.k;
    double sum[DRO__SUMS] = {0};
    bool refused = k.s->refused;
    bool last = g.k.plan.then == DRO__MOVE_none || second;
    for (size_t i = FIRST; !refused && !second && g.left && i < k.n; i += STEP)
        g.left[i] = k.v[DRO__W][i];
    if (!refused) {
        if (k.plan.reg)
            run_move<M, true>(k, g.moved_first, g.moved_end, sum);
        else
            run_move<M, false>(k, g.moved_first, g.moved_end, sum);
    }
    if (!refused && last) {
        for (size_t i = FIRST; k.counts[1] && i < k.n; i += STEP)
            k.v[DRO__OLD][i] = k.v[DRO__NEXT][i]; /* the old gradient of the next step */
        for (size_t i = FIRST; i < g.statistics_size; i += STEP)
            g.statistics[i] = g.taken[i];
        if (k.v[DRO__AVERAGE])
            run_average(g);
    }
    if (M::sums)
        put_sums<DRO__SUMS>(g.sums, sum);
    if (come_last(g.sums.counter))
        finish(g, refused, !second, last, M::sums);
}

static unsigned blocks_of(size_t n)
{
    unsigned blocks = blocks_for(n), most = DRO__GPU_BLOCKS;
    return blocks < most ? blocks : most;
}

static void launch_move(cudaStream_t s, const dro__gpu_step *g, dro__move_kind kind, bool second)
{
    unsigned blocks = blocks_of(g->k.plan.dim);
    switch (kind) {
#define MOVE(name)                                                                                 \
    case DRO__MOVE_##name:                                                                         \
        step_kernel<move_##name><<<blocks, THREADS, 0, s>>>(*g, second);                           \
        break;
        DRO__MOVES(MOVE)
#undef MOVE
    default:
        break;
    }
}

extern "C" void dro__gpu_step_ascend(cudaStream_t s, const dro__gpu_step *g)
{
    unsigned blocks = blocks_of(g->k.plan.dim);
    length_kernel<<<blocks, THREADS, 0, s>>>(*g);
    ascend_kernel<<<blocks, THREADS, 0, s>>>(*g);
}

extern "C" void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *g)
{
    unsigned blocks = blocks_of(g->k.plan.dim);
    check_kernel<<<blocks, THREADS, 0, s>>>(*g);
    if (cudaPeekAtLastError() != cudaSuccess) /* never move by a gradient that was not checked */
        return;
    launch_move(s, g, g->k.plan.move, false);
    if (g->k.plan.then && cudaPeekAtLastError() == cudaSuccess)
        launch_move(s, g, g->k.plan.then, true);
}

#ifndef DRO_STEP_MODULE
/* ---- one move, driven by the host ---- */

typedef struct host_move {
    dro__step k;
    dro__scalars s;
    dro__ticket ticket;
    dro__gpu_sums sums;
    bool reg;
} host_move;

template <class M> static __global__ void host_kernel(const __grid_constant__ host_move h)
{
    double sum[DRO__SUMS] = {0};
    dro__step k = h.k;
    k.s = (dro__scalars *)&h.s; /* a move only reads it */
    k.ticket = &h.ticket;
    if (h.reg)
        run_move<M, true>(k, 0, k.n, sum);
    else
        run_move<M, false>(k, 0, k.n, sum);
    if (!h.sums.result)
        return;
    put_sums<DRO__SUMS>(h.sums, sum);
    if (come_last(h.sums.counter))
        gather_sums<DRO__SUMS>(h.sums, h.sums.result);
}

extern "C" void dro__gpu_move(cudaStream_t s, const dro__step *host, dro__move_kind kind, int reg,
                              const dro__gpu_sums *sums)
{
    host_move h = {*host, {}, {}, *sums, reg != 0};
    if (host->s)
        h.s = *host->s;
    if (host->ticket)
        h.ticket = *host->ticket;
    switch (kind) {
#define MOVE(name)                                                                                 \
    case DRO__MOVE_##name:                                                                         \
        host_kernel<move_##name><<<blocks_of(host->n), THREADS, 0, s>>>(h);                        \
        break;
        DRO__MOVES(MOVE)
#undef MOVE
    default:
        break;
    }
}
#endif
