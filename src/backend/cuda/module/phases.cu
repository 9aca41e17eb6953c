/* libdro_step_cuda.so: the phases of a step (../step.cu), in memory that the caller has allocated
 * and on the caller's stream. The Python package uses it for PyTorch's tensors. At run time it
 * needs only the driver: the CUDA runtime is linked in. It exports one symbol, the table
 * dro_step_cuda (../../step.h). */
#define DRO_STEP_MODULE 1
#include "../step.cu"

#include <stdlib.h>

/* The scalars in mapped host memory. begun is written before them and ended after them: if the two
 * differ, the scalars are incomplete. */
typedef struct copied_back {
    uint64_t begun, ended;
    dro__scalars s;
} copied_back;

typedef struct live {
    dro__gpu_step g;
    copied_back *copied_back;
    cudaStream_t stream;
    int device;
    uint64_t read; /* the step of `last`, the newest complete scalars */
    dro__scalars last;
} live;

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Places `*p` at offset `*used` of the scratch memory; with scratch NULL it only counts. */
template <class T> static void take(T **p, size_t count, char *scratch, size_t *used)
{
    *p = scratch ? (T *)(scratch + *used) : NULL;
    *used += aligned((count ? count : 1) * sizeof(T));
}

static size_t place(dro__gpu_step *g, char *scratch)
{
    size_t used = 0, groups = (size_t)g->k.plan.group_capacity;
    take(&g->ticket, 1, scratch, &used);
    take(&g->turn, 1, scratch, &used);
    take(&g->snapshots, DRO__TICKETS, scratch, &used);
    take(&g->s_before, 1, scratch, &used);
    take(&g->groups_before, groups, scratch, &used);
    take(&g->old_losses_before, g->k.plan.batch, scratch, &used);
    take(&g->sums.partial, DRO__GPU_BLOCKS * DRO__SUMS, scratch, &used);
    take(&g->sums.counter, 1, scratch, &used);
    take(&g->first, 1, scratch, &used);
    return used;
}

static size_t scratch_size(const dro__step *k)
{
    dro__gpu_step g = {};
    g.k.plan = k->plan;
    return place(&g, NULL);
}

static const char *said(cudaError_t error)
{
    if (error == cudaSuccess)
        return NULL;
    cudaGetLastError();
    return cudaGetErrorString(error);
}

static void close_step(void *p)
{
    live *l = (live *)p;
    if (l->copied_back) { /* queued steps may still write to it */
        cudaStreamSynchronize(l->stream);
        cudaFreeHost(l->copied_back);
    }
    free(l);
}

static const char *open_step(const dro__step *k, void *scratch, void **to)
{
    live *l = (live *)calloc(1, sizeof *l);
    if (!l)
        return "no memory";
    cudaPointerAttributes where = {};
    cudaError_t error = cudaPointerGetAttributes(&where, scratch);
    l->device = where.device;
    l->g.k = *k;
    place(&l->g, (char *)scratch);
    l->g.labels = l->g.group_of = (int32_t *)k->group_of;
    l->g.k.ticket = l->g.ticket;
    size_t bytes = scratch_size(k);
    if (error == cudaSuccess)
        error = cudaSetDevice(l->device);
    if (error == cudaSuccess)
        error = cudaHostAlloc(&l->copied_back, sizeof *l->copied_back,
                              cudaHostAllocMapped | cudaHostAllocPortable);
    if (error == cudaSuccess) { /* the caller's stream may still be writing to the memory */
        memset(l->copied_back, 0, sizeof *l->copied_back);
        error = cudaDeviceSynchronize();
    }
    if (error == cudaSuccess)
        error = cudaMemset(scratch, 0, bytes);
    if (error == cudaSuccess)
        error = cudaMemset(l->g.first, 0xff, sizeof *l->g.first);
    if (error == cudaSuccess) /* other streams do not wait for this one */
        error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        close_step(l);
        return said(error);
    }
    *to = l;
    return NULL;
}

/* ---- a step ---- */

static __global__ void ticket_kernel(const __grid_constant__ dro__ticket ticket, dro__ticket *to)
{
    *to = ticket;
}

static const char *begin_step(void *p, const dro__ticket *ticket, void *stream)
{
    live *l = (live *)p;
    l->stream = (cudaStream_t)stream;
    cudaError_t error = cudaSetDevice(l->device);
    if (error != cudaSuccess)
        return said(error);
    ticket_kernel<<<1, 1, 0, l->stream>>>(*ticket, l->g.ticket);
    return said(cudaGetLastError());
}

/* Converts labels to the type that the phases read. A label out of range refuses the step before it
 * changes anything. */
static __global__ void labels_kernel(const __grid_constant__ dro__gpu_step g,
                                     const int64_t *labels, int count)
{
    __shared__ int found;
    if (ONE)
        found = INT_MAX;
    __syncthreads();
    int groups = g.ticket->group_count;
    EACH (i, count) {
        bool inside = labels[i] >= 0 && labels[i] < groups;
        g.labels[i] = inside ? (int32_t)labels[i] : 0;
        if (!inside)
            atomicMin(&found, i);
    }
    __syncthreads();
    if (ONE && found != INT_MAX && !g.k.s->refused)
        refuse(g, DRO__REFUSED_LABEL, 0, found, (float)labels[found]);
}

static const char *weigh_step(void *p, dro__phase phase, int first, const dro__phase_batch *batch)
{
    live *l = (live *)p;
    dro__gpu_step g = l->g;
    g.k.losses = (float *)batch->losses;
    g.k.coef = batch->coef;
    g.k.counts[0] = g.k.counts[1] = 0;
    g.k.counts[phase == DRO__PHASE_OLD] = batch->count;
    if (batch->labels && first)
        labels_kernel<<<1, THREADS, 0, l->stream>>>(g, batch->labels, batch->count);
    dro__gpu_step_weigh(l->stream, &g, phase, first);
    l->g.k.counts[0] = batch->count;
    return said(cudaGetLastError());
}

static __global__ void copy_back_kernel(const __grid_constant__ dro__gpu_step g, copied_back *to)
{
    volatile copied_back *t = to;
    t->begun = *g.turn;
    __threadfence_system();
    to->s = *g.k.s;
    __threadfence_system();
    t->ended = *g.turn;
}

static const char *move_step(void *p, float *left, int twice)
{
    live *l = (live *)p;
    dro__gpu_step g = l->g;
    g.moved_end = g.k.n;
    g.left = left;
    if (twice) { /* both gradients are checked */
        g.k.v[DRO__NEXT] = g.k.v[DRO__OLD];
        g.k.counts[1] = g.k.counts[0];
    }
    dro__gpu_step_move(l->stream, &g);
    if (cudaPeekAtLastError() == cudaSuccess)
        copy_back_kernel<<<1, 1, 0, l->stream>>>(g, l->copied_back);
    return said(cudaGetLastError());
}

/* Restores the state, unless a refused step has already done so. */
static __global__ void undo_kernel(const __grid_constant__ dro__gpu_step g)
{
    if (!g.k.s->refused)
        copy_state(g, true);
}

static const char *undo_step(void *p)
{
    live *l = (live *)p;
    undo_kernel<<<1, THREADS, 0, l->stream>>>(l->g);
    return said(cudaGetLastError());
}

/* ---- the state ---- */

static __global__ void replace_kernel(const __grid_constant__ dro__gpu_step g, const float *w,
                                      const bool *changed)
{
    const dro__step &k = g.k;
    if (changed && !*changed)
        return;
    for (size_t i = FIRST; i < k.n; i += STEP) {
        k.v[DRO__W][i] = w[i];
        for (int role = DRO__D; role <= DRO__SECOND; role++)
            if (k.v[role])
                k.v[role][i] = 0;
        if (k.v[DRO__AVERAGE])
            k.v[DRO__AVERAGE][i] = w[i];
    }
    if (blockIdx.x > 0)
        return;
    EACH (i, k.plan.group_capacity)
        k.groups[i] = DRO__NO_GROUP;
    if (ONE) {
        uint64_t done = k.s->done;
        *k.s = dro__scalars();
        k.s->done = done;
    }
}

static const char *replace(void *p, const float *w, const void *changed, void *stream)
{
    live *l = (live *)p;
    l->stream = (cudaStream_t)stream;
    cudaError_t error = cudaSetDevice(l->device);
    if (error != cudaSuccess)
        return said(error);
    replace_kernel<<<blocks_of(l->g.k.n), THREADS, 0, l->stream>>>(l->g, w, (const bool *)changed);
    return said(cudaGetLastError());
}

static const char *copy(void *p, void *to, const void *from, size_t bytes)
{
    live *l = (live *)p;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, l->stream);
    return said(error == cudaSuccess ? cudaStreamSynchronize(l->stream) : error);
}

static uint64_t snapshot(void *p, dro__scalars *s)
{
    live *l = (live *)p;
    volatile copied_back *now = l->copied_back;
    uint64_t ended = now->ended;
    __sync_synchronize();
    dro__scalars seen = l->copied_back->s;
    __sync_synchronize();
    if (now->begun == ended && ended > l->read) {
        l->last = seen;
        l->read = ended;
    }
    *s = l->last;
    return l->read;
}

extern "C" __attribute__((visibility("default"))) const dro__phases dro_step_cuda = {
    sizeof(dro__step), sizeof(dro__ticket), scratch_size, open_step, close_step, begin_step,
    weigh_step,        move_step,           undo_step,    replace,   copy,       snapshot};
