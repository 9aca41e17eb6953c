/* How the convolutions are queued. */
#ifndef DRO_CUDA_CONV3_LAUNCH_CUH
#define DRO_CUDA_CONV3_LAUNCH_CUH

#include <atomic>
#include <cuda_runtime_api.h>

/* How many blocks of a kernel the GPU holds at a time; sets the kernel's shared memory. `known`
 * keeps the number after the first success. After a failure (no memory for the kernel) the launch
 * reports the error, and the next launch tries again. */
static int blocks_at_once(std::atomic<int> *known, const void *kernel, int threads, int bytes)
{
    int each = 0, processors = 1, device = 0, blocks = known->load();
    if (blocks > 0)
        return blocks;
    bool accepted = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         bytes) == cudaSuccess;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes);
    blocks = (each > 0 ? each : 1) * processors;
    if (accepted && each > 0)
        known->store(blocks);
    return blocks;
}

/* The compute capability for which the code that the GPU runs was compiled, e.g. 90 for 9.0; 0: the
 * build has no code for this GPU; -1: unknown. It may be below the GPU's own: the driver may have
 * compiled older PTX. */
static int code_of(const void *kernel)
{
    static std::atomic<int> known;
    cudaFuncAttributes about;
    int code = known.load();
    if (code > 0)
        return code;
    cudaError_t error = cudaFuncGetAttributes(&about, kernel);
    if (error == cudaSuccess)
        known.store(code = about.ptxVersion);
    else
        code = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction
                   ? 0
                   : -1;
    return code;
}

/* Queues a kernel. early: it may begin while the previous kernel ends (programmatic dependent
 * launch). */
template <class KERNEL, class... MORE>
static void queue(cudaStream_t s, KERNEL kernel, dim3 grid, int threads, int bytes, int early,
                  MORE... more)
{
    cudaLaunchAttribute with;
    with.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    with.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid;
    how.blockDim = dim3((unsigned)threads);
    how.dynamicSmemBytes = (size_t)bytes;
    how.stream = s;
    how.attrs = &with;
    how.numAttrs = early && code_of((const void *)kernel) >= 90 ? 1 : 0;
    cudaLaunchKernelEx(&how, kernel, more...);
}

#endif
