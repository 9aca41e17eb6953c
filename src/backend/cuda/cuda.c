/* The cuda backend's table: memory and vector operations on the GPU.
 *
 * Losses, coefficients, margins and the rows of a table are in host memory, as on every backend, so
 * operations on them are those of ref. w and all vectors of its length are in GPU memory. */
#include "conv3.h"
#include "cuda.h"
#include "nccl.h"
#include "step_kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- choosing the GPU ---- */

int dro__cuda_device(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        cudaGetLastError();
    return count > 1 ? dro__local_rank() % count : 0;
}

void dro__cuda_use(void)
{
    static _Thread_local bool used;
    if (used)
        return;
    used = true;
    int device = dro__cuda_device();
    if (device)
        cudaSetDevice(device);
}

/* ---- availability ---- */

static const char *missing(void)
{
    static _Thread_local char text[160];
    int count = 0, major = 0, minor = 0;
    dro__cuda_use();
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        error =
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dro__cuda_device());
    if (error == cudaSuccess && count > 0)
        error =
            cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, dro__cuda_device());
    cudaGetLastError(); /* clears the error */
    if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary)
        return "no NVIDIA driver, or one older than CUDA 13 needs (580)";
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return "no NVIDIA GPU on this machine";
    if (error != cudaSuccess) {
        snprintf(text, sizeof text, "the NVIDIA driver says: %s", cudaGetErrorString(error));
        return text;
    }
    if (major < 8)
        return "the GPU is older than compute capability 8.0 (Ampere)";
    if (dro__gpu_code() != 0)
        return NULL;
    cudaGetLastError();
    snprintf(text, sizeof text,
             "this build has no code for compute capability %d.%d: configure it with "
             "-DCMAKE_CUDA_ARCHITECTURES=%d%d",
             major, minor, major, minor);
    return text;
}

/* Describes the GPU and the kernels that it runs. */
static const char *device(void)
{
    static _Thread_local char text[400];
    struct cudaDeviceProp p;
    if (missing() || cudaGetDeviceProperties(&p, dro__cuda_device()) != cudaSuccess)
        return NULL;
    bool groups = dro__gpu_conv3_bands_fit(16, 16, 1, 32, 32),
         deep = dro__gpu_conv3_fits(0, 64, 64, 1);
    int code = dro__gpu_code();
    snprintf(
        text, sizeof text,
        "%.80s, compute capability %d.%d, %zu KB of shared memory, code for %d.%d: convolutions "
        "by rows%s%s%s; %s",
        p.name, p.major, p.minor, p.sharedMemPerBlockOptin / 1024, code / 10, code % 10,
        groups ? " and by warp groups" : "", deep ? "" : " (tf32 with 64 channels: cuDNN)",
        code >= 90 ? ", overlapping" : "",
        dro__cuda_comms.missing() ? "no NCCL: several ranks sum through host memory"
                                  : dro__cuda_comms.about());
    return text;
}

static bool works(void)
{
    return missing() == NULL;
}

dro_status dro__cuda_check(dro_context *ctx, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return DRO_OK;
    cudaGetLastError();
    if (error == cudaErrorMemoryAllocation)
        return dro__fail(ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    return dro__fail(ctx, DRO_ERR_DEVICE, "%.60s: %s", what, cudaGetErrorString(error));
}

/* ---- memory ---- */

void *dro__cuda_alloc(size_t count, size_t size)
{
    void *memory = NULL;
    if (size && count > SIZE_MAX / size)
        return NULL;
    size_t bytes = count > 0 && size > 0 ? count * size : 1;
    dro__cuda_use();
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    if (cudaMemsetAsync(memory, 0, bytes, DRO__STREAM) == cudaSuccess &&
        cudaStreamSynchronize(DRO__STREAM) == cudaSuccess)
        return memory;
    cudaFree(memory);
    cudaGetLastError();
    return NULL;
}

void dro__cuda_free(void *memory)
{
    if (memory)
        cudaFree(memory);
}

void *dro__cuda_host_alloc(size_t bytes)
{
    void *memory = NULL;
    dro__cuda_use();
    if (cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocMapped) == cudaSuccess)
        return memory;
    cudaGetLastError();
    return NULL;
}

void dro__cuda_host_free(void *memory)
{
    if (memory)
        cudaFreeHost(memory);
}

bool dro__cuda_is_device(const void *pointer)
{
    struct cudaPointerAttributes about;
    if (cudaPointerGetAttributes(&about, pointer) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return about.type == cudaMemoryTypeDevice;
}

cudaError_t dro__cuda_copy(void *to, const void *from, size_t bytes)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, DRO__STREAM);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(DRO__STREAM);
    return error;
}

void dro__cuda_poison(float *x, size_t n)
{
    if (cudaMemsetAsync(x, 0xff, n * sizeof *x, DRO__STREAM) == cudaSuccess)
        cudaStreamSynchronize(DRO__STREAM);
    cudaGetLastError(); /* the NaNs report it */
}

static const char *copy(void *to, const void *from, size_t bytes)
{
    cudaError_t error = dro__cuda_copy(to, from, bytes);
    if (error == cudaSuccess)
        return NULL;
    cudaGetLastError(); /* clears it: it is reported here */
    return cudaGetErrorString(error);
}

/* ---- vectors ---- */

/* Memory for the results of a pass over vectors. Each thread has its own, as it has its own stream;
 * after the thread has ended, another one may reuse it. */
typedef struct scratch {
    double *partial;
    unsigned *counter;
    unsigned long long *first;
    double *result; /* mapped host memory */
    struct scratch *next;
} scratch;

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static scratch *idle; /* the scratch memory of threads that have ended */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t mine;

static void leave(void *user)
{
    scratch *s = user;
    pthread_mutex_lock(&idle_lock);
    s->next = idle;
    idle = s;
    pthread_mutex_unlock(&idle_lock);
}

static void make_key(void)
{
    pthread_key_create(&mine, leave);
}

static void scratch_free(scratch *s)
{
    dro__cuda_free(s->partial);
    dro__cuda_free(s->counter);
    dro__cuda_free(s->first);
    dro__cuda_host_free(s->result);
    dro__free(s);
}

static scratch *scratch_create(void)
{
    scratch *s = dro__alloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->partial = dro__cuda_alloc(DRO__GPU_BLOCKS * DRO__SUMS, sizeof *s->partial);
    s->counter = dro__cuda_alloc(1, sizeof *s->counter);
    s->first = dro__cuda_alloc(1, sizeof *s->first);
    s->result = dro__cuda_host_alloc(DRO__SUMS * sizeof *s->result);
    if (s->partial && s->counter && s->first && s->result &&
        cudaMemsetAsync(s->first, 0xff, sizeof *s->first, DRO__STREAM) == cudaSuccess &&
        cudaStreamSynchronize(DRO__STREAM) == cudaSuccess)
        return s;
    scratch_free(s);
    return NULL;
}

static scratch *scratch_of_thread(void)
{
    pthread_once(&once, make_key);
    scratch *s = pthread_getspecific(mine);
    if (s)
        return s;
    pthread_mutex_lock(&idle_lock);
    s = idle;
    idle = s ? s->next : NULL;
    pthread_mutex_unlock(&idle_lock);
    s = s ? s : scratch_create();
    if (s && pthread_setspecific(mine, s) != 0) {
        leave(s);
        return NULL;
    }
    return s;
}

/* Whether the kernel just queued was accepted and finished without an error. */
static bool ended(void)
{
    bool taken = cudaGetLastError() == cudaSuccess;
    return cudaStreamSynchronize(DRO__STREAM) == cudaSuccess && taken;
}

/* If a move fails, the vectors that it writes are poisoned. */
static void move(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums)
{
    (void)pool;
    scratch *s = scratch_of_thread();
    for (int m = 0; m < DRO__SUMS; m++)
        sums[m] = s ? 0 : HUGE_VAL; /* no memory: an infinite sum makes the step fail */
    if (k->n == 0)
        return;
    dro__gpu_sums meet = {0};
    if (s) {
        meet = (dro__gpu_sums){s->partial, s->counter, s->result};
        for (int m = 0; m < DRO__SUMS; m++)
            s->result[m] = HUGE_VAL; /* overwritten by a pass that succeeds */
    }
    cudaGetLastError(); /* clears an error of an earlier call */
    dro__gpu_move(DRO__STREAM, k, kind, dro__move_has_prox(k, kind), &meet);
    bool done = ended();
    for (int m = 0; m < DRO__SUMS && s; m++)
        sums[m] = done ? s->result[m] : HUGE_VAL;
    static const dro__vector_role written[] = {DRO__W,      DRO__D,   DRO__M,      DRO__Z,
                                               DRO__SECOND, DRO__OUT, DRO__AVERAGE};
    for (size_t r = 0; r < sizeof written / sizeof written[0] && !done && kind != DRO__MOVE_norm;
         r++)
        if (k->v[written[r]] && (written[r] == DRO__AVERAGE) == (kind == DRO__MOVE_average))
            dro__cuda_poison(k->v[written[r]], k->n);
}

/* Losses and scalars are in host memory. */
static void weigh(const dro__step *k, dro__phase phase)
{
    dro__backend_ref.weigh(k, phase);
}

static void settle(const dro__step *k, const double *sums)
{
    dro__backend_ref.settle(k, sums);
}

static int64_t first_bad(dro__pool *pool, size_t n, const float *x)
{
    (void)pool;
    scratch *s = scratch_of_thread();
    if (n == 0)
        return -1;
    if (!s)
        return 0;
    unsigned long long *found = (unsigned long long *)s->result;
    *found = 0; /* overwritten by a pass that succeeds: a GPU that fails counts as bad */
    dro__gpu_first_bad(DRO__STREAM, n, x, s->first, s->counter, found);
    if (cudaStreamSynchronize(DRO__STREAM) != cudaSuccess)
        return 0;
    return *found == ~0ull ? -1 : (int64_t)*found;
}

static void block_shrink(dro__pool *pool, float *x, const int64_t *offsets, size_t blocks,
                         double threshold)
{
    (void)pool;
    int64_t *device = dro__cuda_alloc(blocks + 1, sizeof *device);
    bool done =
        device && dro__cuda_copy(device, offsets, (blocks + 1) * sizeof *device) == cudaSuccess;
    if (done) {
        cudaGetLastError(); /* clears an error of an earlier call */
        dro__gpu_block_shrink(DRO__STREAM, x, device, blocks, threshold);
        done = ended();
    }
    if (!done)
        dro__cuda_poison(x + offsets[0], (size_t)(offsets[blocks] - offsets[0]));
    dro__cuda_free(device);
}

/* ---- linear models: their rows are in host memory, and reading them is the dominant cost ---- */

static void rows_dot(dro__pool *pool, const dro__row_matrix *rows, const int64_t *ids, size_t count,
                     const float *w, float *margins)
{
    float *here = dro__alloc(rows->features, sizeof *here);
    if (here && dro__cuda_copy(here, w, rows->features * sizeof *here) == cudaSuccess)
        dro__backend_ref.rows_dot(pool, rows, ids, count, here, margins);
    else
        for (size_t i = 0; i < count; i++)
            margins[i] = NAN; /* a NaN is refused */
    dro__free(here);
}

static void rows_sum(dro__pool *pool, const dro__row_matrix *rows, const dro_batch *parts,
                     int part_count, const float *coef, float *const *grads)
{
    float *here = dro__alloc(2 * rows->features, sizeof *here),
          *both[2] = {here, here + rows->features};
    if (here)
        dro__backend_ref.rows_sum(pool, rows, parts, part_count, coef, both);
    for (int k = 0; k < part_count; k++)
        if (!here ||
            dro__cuda_copy(grads[k], both[k], rows->features * sizeof *here) != cudaSuccess)
            dro__cuda_poison(grads[k], rows->features);
    dro__free(here);
}

static void loss(dro__loss_kind kind, size_t count, const float *margins, const float *y,
                 float *losses, float *slopes)
{
    dro__backend_ref.loss(kind, count, margins, y, losses, slopes);
}

const dro__backend dro__backend_cuda = {
    .name = "cuda",
    .summary = "one NVIDIA GPU: cuDNN, cuBLAS and our own kernels",
    .works = works,
    .missing = missing,
    .device = device,
    .alloc = dro__cuda_alloc,
    .free = dro__cuda_free,
    .host_alloc = dro__cuda_host_alloc,
    .host_free = dro__cuda_host_free,
    .copy_in = copy,
    .copy_out = copy,
    .weigh = weigh,
    .move = move,
    .settle = settle,
    .first_bad = first_bad,
    .block_shrink = block_shrink,
    .rows_dot = rows_dot,
    .rows_sum = rows_sum,
    .loss = loss,
    .net = &dro__cuda_net,
    .comms = &dro__cuda_comms,
};
