/* Products on the tensor cores, their operands, and asynchronous copies, as functions. All inline
 * assembly is here and, for warp groups, in conv3_group.cuh. In tests on a CPU, tests/conv3/block.h
 * replaces this file. */
#ifndef DRO_CUDA_CONV3_MMA_CUH
#define DRO_CUDA_CONV3_MMA_CUH

#include <cuda_bf16.h>

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

/* Loads four matrices of 8 x 16 bytes; lane 8 m + i passes the address of row i of matrix m. */
static __device__ __forceinline__ void ldmatrix(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ __forceinline__ void ldmatrix_turned(unsigned (&r)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* Loads two words of 32 bits; the address is a multiple of 8. */
static __device__ __forceinline__ uint2 shared_pair(unsigned address)
{
    uint2 u;
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(u.x), "=r"(u.y) : "r"(address));
    return u;
}

/* d (16, 8) += a (16, 16) b (16, 8) */
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d (16, 8) += a (16, 8) b (8, 8) */
static __device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* A float as tf32: rounded to nearest, ties away from 0. */
static __device__ __forceinline__ unsigned to_tf32(float x)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

/* ReLU that propagates NaN. */
static __device__ __forceinline__ float relu_of(float x)
{
    asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));
    return x;
}

/* Copies 16 bytes to shared memory asynchronously. This thread sees them after fetch_wait, other
 * threads after a barrier that follows it. Both addresses are multiples of 16. */
static __device__ __forceinline__ void fetch16(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

static __device__ __forceinline__ void fetch_wait()
{
    asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
}

/* For a kernel that may begin before the previous one has ended: await_previous waits for that end,
 * admit_next lets the next kernel begin. Compute capabilities below 9.0 have no such overlap, and
 * kernels are not queued for it there (conv3_launch.cuh). */
static __device__ __forceinline__ void await_previous()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

static __device__ __forceinline__ void admit_next()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* threadIdx.x, hidden from the compiler: what is derived from it is recomputed where it is used and
 * occupies no registers elsewhere. */
static __device__ __forceinline__ int this_thread()
{
    int i = threadIdx.x;
    asm volatile("" : "+r"(i));
    return i;
}

/* Two floats as bfloat16, the first one in the low half. */
static __device__ __forceinline__ unsigned pack2(float x, float y)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}

/* The same after a ReLU that propagates NaN. */
static __device__ __forceinline__ unsigned pack2_relu(float x, float y)
{
    unsigned r;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}

/* A mask with all bits set in the halves that are above 0. */
static __device__ __forceinline__ unsigned positive2(unsigned x)
{
    __nv_bfloat162 h = *(const __nv_bfloat162 *)&x;
    return __hgt2_mask(h, __float2bfloat162_rn(0.0f));
}

/* The low or high bfloat16 of a word as a float. */
static __device__ __forceinline__ float low_of(unsigned w)
{
    return __uint_as_float(w << 16);
}

static __device__ __forceinline__ float high_of(unsigned w)
{
    return __uint_as_float(w & 0xffff0000u);
}

#endif
