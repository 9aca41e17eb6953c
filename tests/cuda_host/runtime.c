/* Stand-ins for memory, streams, events, the backend's table, cuBLAS and cuDNN's plans. A second
 * call of the same shape would be recorded on a GPU; here it is refused. */
#include "nccl.h"
#include "ranks.h"
#include "stand_ins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool can_add, goes_late;

/* ---- memory: its size lies before it ---- */

enum { HEAD = 256 };

void *dro__cuda_alloc(size_t count, size_t size)
{
    size_t bytes = (count * size + HEAD - 1) / HEAD * HEAD;
    char *memory = aligned_alloc(HEAD, HEAD + bytes);
    if (!memory)
        return NULL;
    memset(memory, 0, HEAD + bytes);
    *(size_t *)memory = bytes;
    return memory + HEAD;
}

void dro__cuda_free(void *memory)
{
    if (memory)
        free((char *)memory - HEAD);
}

void stand_ins_dirty(void *memory)
{
    if (memory)
        memset(memory, 0xff, *(size_t *)((char *)memory - HEAD));
}

void *dro__cuda_host_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void dro__cuda_host_free(void *memory)
{
    free(memory);
}

bool dro__cuda_is_device(const void *pointer)
{
    (void)pointer;
    return false;
}

cudaError_t dro__cuda_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

void dro__cuda_poison(float *x, size_t n)
{
    memset(x, 0xff, n * sizeof *x);
}

dro_status dro__cuda_check(dro_context *ctx, cudaError_t error, const char *what)
{
    return error == cudaSuccess ? DRO_OK : dro__fail(ctx, DRO_ERR_DEVICE, "%s", what);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    return dro__cuda_copy(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    (void)kind, (void)s;
    return dro__cuda_copy(to, from, bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    (void)s;
    memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- streams and events: one stream may be late, that of the lowest priority ---- */

struct CUstream_st {
    int priority;
};
struct CUevent_st {
    size_t after; /* works of the late stream */
};

typedef struct late_work {
    void (*work)(const void *what);
    void *what;
} late_work;

enum { LOWEST = 0, HIGHEST = -1, LATE = 256 };
static late_work works[LATE]; /* number k is works[k % LATE] */
static size_t queued, done;

void stand_ins_begin(bool adds, bool late)
{
    can_add = adds;
    goes_late = late;
    for (; done < queued; done++)
        free(works[done % LATE].what);
}

static bool is_late(cudaStream_t s)
{
    return s != NULL && s != DRO__STREAM && s->priority == LOWEST;
}

void stand_ins_queue(cudaStream_t s, void (*work)(const void *what), const void *what, size_t bytes)
{
    if (!goes_late || !is_late(s)) {
        work(what);
        return;
    }
    late_work *one = &works[queued % LATE];
    one->work = work;
    one->what = malloc(bytes);
    if (!one->what || queued - done == LATE) {
        fprintf(stderr, "too much is queued\n");
        abort();
    }
    memcpy(one->what, what, bytes);
    queued++;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    e->after = is_late(s) ? queued : 0;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    for (; !is_late(s) && done < e->after; done++) {
        late_work *one = &works[done % LATE];
        one->work(one->what);
        free(one->what);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = LOWEST, *high = HIGHEST;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)flags;
    *s = calloc(1, sizeof **s);
    if (!*s)
        return cudaErrorMemoryAllocation;
    (*s)->priority = priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof **e);
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    (void)e;
    return cudaSuccess;
}

/* ---- record.c and cuda.c: a recording of a step is walked again; of a pass, it is refused ---- */

struct CUgraphExec_st {
    dro__cuda_network *net;
    dro__queuer queue;
};

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s)
{
    (void)s;
    graph->queue(graph->net, NULL);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    free(graph);
    return cudaSuccess;
}

dro_status dro__net_record(dro__cuda_network *net, dro__queuer queue, const void *what,
                           cudaGraphExec_t *recorded)
{
    if (what)
        return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                         "two calls of one shape: they are recorded");
    *recorded = malloc(sizeof **recorded);
    if (!*recorded)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory");
    **recorded = (struct CUgraphExec_st){net, queue};
    return DRO_OK;
}

void dro__net_end_libraries(dro__cuda_network *net)
{
    dro__library_close(net);
}

void dro__cuda_use(void) {}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

/* Each rank has a GPU of its own. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    (void)device;
    memset(p, 0, sizeof *p);
    memset(p->uuid.bytes, 1 + two_ranks_own(), sizeof p->uuid.bytes);
    return cudaSuccess;
}

static bool works_here(void)
{
    return true;
}

static const char *copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return NULL;
}

/* Vectors as the reference's. */
static void weigh(const dro__step *k, dro__phase phase)
{
    dro__backend_ref.weigh(k, phase);
}

static void move(dro__pool *pool, const dro__step *k, dro__move_kind kind, double *sums)
{
    dro__backend_ref.move(pool, k, kind, sums);
}

static void settle(const dro__step *k, const double *sums)
{
    dro__backend_ref.settle(k, sums);
}

static int64_t first_bad(dro__pool *pool, size_t n, const float *x)
{
    return dro__backend_ref.first_bad(pool, n, x);
}

/* What networks and optimisers need of it. */
const dro__backend dro__backend_cuda = {
    .name = "cuda",
    .summary = "stand-ins on the processor",
    .works = works_here,
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
    .net = &dro__cuda_net,
    .comms = &dro__cuda_comms,
};

/* ---- cuBLAS ---- */

struct cublasContext {
    cudaStream_t stream;
};

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    (void)handle, (void)workspace, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    (void)handle, (void)mode;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "fine" : "not fine";
}

/* c (m, n) = alpha a b + beta c, by columns; a matrix that is not kept (beta 0) may hold
 * anything. */
cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t turn_a,
                           cublasOperation_t turn_b, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc)
{
    (void)handle;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float *to = &c[(size_t)j * (size_t)ldc + (size_t)i];
            double sum = 0;
            for (int l = 0; l < k; l++) {
                size_t at_a = turn_a == CUBLAS_OP_N ? (size_t)l * (size_t)lda + (size_t)i
                                                    : (size_t)i * (size_t)lda + (size_t)l;
                size_t at_b = turn_b == CUBLAS_OP_N ? (size_t)j * (size_t)ldb + (size_t)l
                                                    : (size_t)l * (size_t)ldb + (size_t)j;
                sum += (double)a[at_a] * (double)b[at_b];
            }
            double kept = *beta != 0 ? (double)*beta * (double)*to : 0;
            *to = (float)((double)*alpha * sum + kept);
        }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuDNN, behind dnn_plan.c's functions ---- */

struct cudnnContext {
    cudaStream_t stream;
};

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "fine" : "not fine";
}

dro_status dro__dnn_find(dro__cuda_network *net, const dro__dnn_shape *shape, const void *x,
                         const void *w, const void *z, int *index)
{
    enum { ROOM = 1024 };
    (void)x, (void)w, (void)z;
    *index = -1;
    if (shape->add && !can_add)
        return DRO_OK;
    if (!net->plans)
        net->plans = dro__alloc(ROOM, sizeof *net->plans);
    if (!net->plans || net->plan_count == ROOM)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a plan");
    net->plans[net->plan_count].shape = *shape;
    *index = net->plan_count++;
    return DRO_OK;
}

void dro__dnn_close(dro__cuda_network *net)
{
    dro__free(net->plans);
    for (int k = 0; k < net->retired_count; k++)
        dro__cuda_free(net->retired[k]);
    dro__cuda_free(net->weights_workspace);
    dro__cuda_free(net->unpackings);
}

typedef struct execution {
    dro__dnn_shape shape;
    float *x, *w, *z;
} execution;

static void execute(const void *what)
{
    const execution *e = what;
    stand_ins_conv(&e->shape, e->x, e->w, e->z);
}

bool dro__dnn_execute(cudnnHandle_t handle, const dro__dnn_plan *p, const void *x, const void *w,
                      const void *z, void *workspace)
{
    (void)workspace;
    execution e = {p->shape, (float *)x, (float *)w, (float *)z};
    stand_ins_queue(handle->stream, execute, &e, sizeof e);
    return true;
}
