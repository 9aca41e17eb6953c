/* Writes down every kernel that a program runs on a GPU: a library that the CUDA driver loads,
 *     cc -shared -fPIC -I$CUDA/include cuda_trace.c -o libcuda_trace.so -L$CUDA/lib64 -lcupti
 *     CUDA_INJECTION64_PATH=$PWD/libcuda_trace.so CUDA_TRACE=kernels.csv PROGRAM ...
 * One line for each: start and end in ns, stream, graph (0: not from one), name. table.py makes a
 * table. */
#include <cupti.h>

#include <stdio.h>
#include <stdlib.h>

enum { BUFFER = 8 << 20 };

static FILE *out;

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records)
{
    *buffer = aligned_alloc(8, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *records = 0;
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    while (out && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            continue;
        const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)record;
        fprintf(out, "%llu,%llu,%u,%u,%.400s\n", (unsigned long long)k->start,
                (unsigned long long)k->end, k->streamId, k->graphId, k->name);
    }
    free(buffer);
}

static void finish(void)
{
    cuptiActivityFlushAll(1);
    if (out)
        fclose(out);
    out = NULL;
}

int InitializeInjection(void);
int InitializeInjection(void)
{
    const char *path = getenv("CUDA_TRACE");
    out = path ? fopen(path, "w") : NULL;
    if (out && cuptiActivityRegisterCallbacks(give, take) == CUPTI_SUCCESS &&
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS)
        atexit(finish);
    return 1;
}
