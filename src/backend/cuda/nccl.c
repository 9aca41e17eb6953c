/* NCCL is opened at run time, so the same program also runs without it. The part of its interface
 * that is used (stable since NCCL 2.4) is declared here. The environment variable DRO_NCCL may give
 * the path of the library. */
#include "nccl.h"
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct unique_id {
    char internal[DRO__DEVICE_ID];
} unique_id;

enum { SUCCESS = 0, SUM = 0, FLOAT = 7, DOUBLE = 8 };

typedef struct library {
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(unique_id *id);
    int (*ncclCommInitRank)(void **comm, int ranks, unique_id id, int rank);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommAbort)(void *comm);
    int (*ncclAllReduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                         cudaStream_t s);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    const char *(*ncclGetErrorString)(int code);
} library;

struct dro__device_comm {
    void *nccl;
    int size;
    pthread_mutex_t lock; /* one NCCL call at a time; abort waits for it at most a second */
    bool aborted;
};

static library nccl;
static char problem[200], version[40];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the library ---- */

static void load(void)
{
    const char *given = getenv("DRO_NCCL"), *name = "libnccl.so.2";
    if (given && strchr(given, '/'))
        name = given;
    void *module = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    struct {
        const char *name;
        void *to;
    } wanted[] = {
#define WANTED(name) {#name, &nccl.name}
        WANTED(ncclGetVersion),  WANTED(ncclGetUniqueId), WANTED(ncclCommInitRank),
        WANTED(ncclCommDestroy), WANTED(ncclCommAbort),   WANTED(ncclAllReduce),
        WANTED(ncclGroupStart),  WANTED(ncclGroupEnd),    WANTED(ncclGetErrorString),
#undef WANTED
    };
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
        void *found = dlsym(module, wanted[k].name);
        if (!found) {
            snprintf(problem, sizeof problem, "%s has no %s", name, wanted[k].name);
            return;
        }
        memcpy(wanted[k].to, &found, sizeof found);
    }
    int number = 0;
    nccl.ncclGetVersion(&number);
    snprintf(version, sizeof version, "NCCL %d.%d.%d", number / 10000, number / 100 % 100,
             number % 100);
}

static const char *missing(void)
{
    pthread_once(&once, load);
    return *problem ? problem : NULL;
}

static const char *about(void)
{
    return missing() ? NULL : version;
}

static dro_status refused(dro_context *ctx, const char *what, int code)
{
    return dro__fail(ctx, DRO_ERR_DEVICE, "%s: %s", what, nccl.ncclGetErrorString(code));
}

/* ---- creation and destruction ---- */

static void key(unsigned char to[DRO__DEVICE_KEY])
{
    struct cudaDeviceProp p;
    int device = 0;
    memset(to, 0, DRO__DEVICE_KEY);
    dro__cuda_use();
    if (cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&p, device) == cudaSuccess)
        memcpy(to, p.uuid.bytes, sizeof p.uuid.bytes);
    cudaGetLastError();
}

static dro_status name(dro_context *ctx, unsigned char id[DRO__DEVICE_ID])
{
    unique_id made;
    int code = nccl.ncclGetUniqueId(&made);
    if (code != SUCCESS)
        return refused(ctx, "ncclGetUniqueId", code);
    memcpy(id, made.internal, sizeof made.internal);
    return DRO_OK;
}

static dro_status open_comm(dro_context *ctx, const unsigned char id[DRO__DEVICE_ID], int rank,
                            int size, bool fixed, dro__device_comm **comm)
{
    unique_id given;
    dro__device_comm *c = dro__alloc(1, sizeof *c);
    if (!c)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a communicator");
    memcpy(given.internal, id, sizeof given.internal);
    dro__cuda_use();
    if (fixed) /* sums inside the NVLink switch are added in a varying order */
        setenv("NCCL_NVLS_ENABLE", "0", 0);
    c->size = size;
    pthread_mutex_init(&c->lock, NULL);
    int code = nccl.ncclCommInitRank(&c->nccl, size, given, rank);
    if (code != SUCCESS) {
        pthread_mutex_destroy(&c->lock);
        dro__free(c);
        return refused(ctx, "ncclCommInitRank", code);
    }
    *comm = c;
    return DRO_OK;
}

static void close_comm(dro__device_comm *c)
{
    if (!c)
        return;
    nccl.ncclCommDestroy(c->nccl);
    pthread_mutex_destroy(&c->lock);
    dro__free(c);
}

/* A call that waits for a lost rank holds the lock until the abort ends that call, so the lock is
 * awaited for one second only. */
static void abort_comm(dro__device_comm *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    bool locked = pthread_mutex_timedlock(&c->lock, &until) == 0;
    c->aborted = true;
    if (locked)
        pthread_mutex_unlock(&c->lock);
    nccl.ncclCommAbort(c->nccl);
}

int dro__nccl_size(const dro__device_comm *c)
{
    return c ? c->size : 1;
}

/* ---- sums ---- */

typedef struct reduction {
    const void *from;
    void *to;
} reduction;

static int reduce(dro__device_comm *c, cudaStream_t s, const reduction *all, int all_count,
                  size_t count, int type)
{
    enum { ABORTED = 1 };
    int code = SUCCESS;
    pthread_mutex_lock(&c->lock);
    if (c->aborted) {
        pthread_mutex_unlock(&c->lock);
        return ABORTED;
    }
    if (all_count > 1)
        code = nccl.ncclGroupStart();
    for (int k = 0; k < all_count && code == SUCCESS; k++)
        code = nccl.ncclAllReduce(all[k].from, all[k].to, count, type, SUM, c->nccl, s);
    if (all_count > 1) {
        int end = nccl.ncclGroupEnd();
        code = code == SUCCESS ? end : code;
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

bool dro__nccl_sum_doubles(dro__device_comm *c, cudaStream_t s, const double *from, double *to,
                           size_t count)
{
    return reduce(c, s, &(reduction){from, to}, 1, count, DOUBLE) == SUCCESS;
}

bool dro__nccl_sum_floats(dro__device_comm *c, cudaStream_t s, float *const *arrays,
                          int array_count, size_t count)
{
    reduction all[2];
    for (int k = 0; k < array_count && k < 2; k++)
        all[k] = (reduction){arrays[k], arrays[k]};
    return reduce(c, s, all, array_count, count, FLOAT) == SUCCESS;
}

static dro_status sum(dro_context *ctx, dro__device_comm *c, float *values, size_t count)
{
    int code = reduce(c, DRO__STREAM, &(reduction){values, values}, 1, count, FLOAT);
    if (code != SUCCESS)
        return refused(ctx, "ncclAllReduce", code);
    return dro__cuda_check(ctx, cudaStreamSynchronize(DRO__STREAM), "a sum over ranks");
}

const dro__device_comms dro__cuda_comms = {
    .missing = missing,
    .about = about,
    .key = key,
    .name = name,
    .open = open_comm,
    .sum = sum,
    .abort = abort_comm,
    .close = close_comm,
};
