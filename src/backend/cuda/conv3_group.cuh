/* Hopper's asynchronous operations as functions: bulk copies into shared memory, and matrix
 * products of a warp group (four warps) with operands there. All inline assembly is here and in
 * conv3_mma.cuh.
 *
 * Copies: one thread announces a number of bytes at a gate (an mbarrier) and begins the copies;
 * every thread waits at the gate. A gate is used in turns, whose parity alternates.
 *
 * Products: call products_begin, the products, products_end; then products_wait before their
 * results are read or their operands are overwritten. */
#ifndef DRO_CUDA_CONV3_GROUP_CUH
#define DRO_CUDA_CONV3_GROUP_CUH

#include "conv3_mma.cuh"

/* Set when compiling for a GPU that has them. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define DRO_WARP_GROUPS 1
#endif

typedef unsigned long long gate;

static __device__ __forceinline__ void gate_open(gate *g)
{
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(g)) : "memory");
}

/* Makes gates that were just opened visible, before they are used. */
static __device__ __forceinline__ void gates_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* After this, bulk copies see what other kernels have written. */
static __device__ __forceinline__ void show_to_copies()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

static __device__ __forceinline__ void gate_expect(gate *g, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(g)),
                 "r"(bytes)
                 : "memory");
}

/* bytes and both addresses are multiples of 16 */
static __device__ __forceinline__ void gate_copy(gate *g, void *to, const void *from,
                                                 unsigned bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(g))
        : "memory");
}

static __device__ __forceinline__ void gate_wait(gate *g, int turn)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(shared_address(g)),
                 "r"(turn & 1)
                 : "memory");
}

typedef unsigned long long matrix;

/* The descriptor of an operand made of matrices of 8 x 16 bytes, each 128 contiguous bytes: the
 * address of the first, the distance to the next along the summed dimension, and the distance to
 * the next along the other dimension. All in bytes. */
static __device__ __forceinline__ matrix matrix_at(unsigned address, unsigned next_k, unsigned next)
{
    return (matrix)(address >> 4) | (matrix)(next_k >> 4) << 16 | (matrix)(next >> 4) << 32;
}

static __device__ __forceinline__ matrix moved(matrix m, unsigned bytes)
{
    return m + (bytes >> 4);
}

/* After this and a barrier, products see what the thread has written to shared memory. */
static __device__ __forceinline__ void show_to_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the last LEFT groups of products are done. */
template <int LEFT>
static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from reading d earlier. */
template <int COUNT>
static __device__ __forceinline__ void settle(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* d (64, 16) = a (64, 16) b (16, 16), plus d unless `add` is 0. TURNED: both operands are
 * transposed; the summed dimension is not the contiguous one. A thread has rows lane / 4 and lane /
 * 4 + 8 of its warp's 16, and columns 8 j + lane % 4 * 2 and the next one. */
template <int TURNED>
static __device__ __forceinline__ void product(float (&d)[8], matrix a, matrix b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, %11, %11;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(add), "n"(TURNED));
}

/* The same with 32 columns. */
template <int TURNED>
static __device__ __forceinline__ void product(float (&d)[16], matrix a, matrix b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, "
                 "%19, %19;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b), "r"(add), "n"(TURNED));
}

#endif
