/* How the convolutions are queued. */
#ifndef DRO_CUDA_CONV3_LAUNCH_CUH
#define DRO_CUDA_CONV3_LAUNCH_CUH

#include <cuda_runtime_api.h>

/* How many blocks of a kernel the GPU holds at a time. */
static int blocks_at_once(const void *kernel, int threads, int bytes)
{
    int each = 0, processors = 1, device = 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes);
    return (each > 0 ? each : 1) * processors;
}

/* Queues a kernel; early: it may begin while the one before ends. */
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
    how.numAttrs = early ? 1 : 0;
    cudaLaunchKernelEx(&how, kernel, more...);
}

#endif
