/* Sums between the devices of ranks that each have their own (backend/device_comm.h), without MPI
 * and host memory. MPI still sets this up, and carries everything else.
 *
 * An operation that waits for a rank on a device does not see the heartbeats. So when a rank is
 * gone, the heartbeat thread aborts these operations, and the thread that was waiting finds out
 * which rank is gone. */
#include "comm.h"
#include "device_comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WHY_SIZE = 160, STUCK_SECONDS = 4 };

/* ---- whether ---- */

bool dro__device_wanted_alone(void)
{
    const char *set = getenv("DRO_NCCL");
    return set && *set && strcmp(set, "0") != 0;
}

/* What each rank tells the others about its device. */
typedef struct offer {
    unsigned char key[DRO__DEVICE_KEY];
    char why[WHY_SIZE]; /* "": it can */
} offer;

static offer offer_of(const dro__device_comms *devices)
{
    offer o = {.why = ""};
    const char *set = getenv("DRO_NCCL"), *missing = devices->missing();
    if (set && strcmp(set, "0") == 0)
        missing = "DRO_NCCL=0";
    if (missing)
        snprintf(o.why, sizeof o.why, "%s", missing);
    devices->key(o.key);
    return o;
}

static void judge(const dro_comm *c, const offer *all, char *why, size_t size)
{
    *why = '\0';
    for (int r = 0; r < c->size && !*why; r++) {
        if (*all[r].why)
            snprintf(why, size, "rank %d on %s: %s", r, c->hosts[r], all[r].why);
        for (int q = 0; q < r && !*why; q++)
            if (memcmp(all[q].key, all[r].key, sizeof all[r].key) == 0)
                snprintf(why, size, "ranks %d and %d share a GPU", q, r);
    }
}

static dro_status compare_devices(dro_comm *c, char *why, size_t size)
{
    size_t ranks = (size_t)c->size;
    int *sizes = dro__alloc(ranks, sizeof *sizes);
    offer mine = offer_of(c->devices), *all = dro__alloc(ranks, sizeof *all);
    for (size_t r = 0; sizes && r < ranks; r++)
        sizes[r] = sizeof mine;
    dro_status status = dro__comm_agree(
        c, sizes && all ? DRO_OK
                        : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", c->size));
    if (status == DRO_OK)
        status = dro__comm_gather(c, &mine, all, sizes);
    if (status == DRO_OK && all)
        judge(c, all, why, size);
    if (!c->broken) /* else it may still be written */
        dro__free(all);
    dro__free(sizes);
    return status;
}

/* ---- opening ---- */

/* Opening waits for all ranks and cannot be cancelled. */
typedef struct opening {
    dro_comm *comm;
    dro_context ctx; /* for its text */
    unsigned char id[DRO__DEVICE_ID];
    bool fixed;
    dro__device_comm *made;
    dro_status status;
    atomic_bool done;
} opening;

static void *run_opening(void *arg)
{
    opening *o = arg;
    const dro_comm *c = o->comm;
    o->status = c->devices->open(&o->ctx, o->id, c->rank, c->size, o->fixed, &o->made);
    atomic_store(&o->done, true);
    return NULL;
}

static dro_status open_all(dro_comm *c, opening *o)
{
    enum { TURN_MS = 2 };
    pthread_t thread;
    DRO_TRY(dro__comm_agree(c, c->rank == 0 ? c->devices->name(c->ctx, o->id) : DRO_OK));
    DRO_TRY(dro__comm_share(c, o->id, sizeof o->id, 0));
    if (pthread_create(&thread, NULL, run_opening, o) != 0)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no thread to join the devices");
    for (long turn = 0; !atomic_load(&o->done); turn++) {
        bool late = turn * TURN_MS > 1000L * dro__join_seconds();
        dro_status status = dro__comm_check(c);
        if (status == DRO_OK && late)
            status = dro__fail(c->ctx, DRO_ERR_STATE,
                               "the GPUs of the ranks did not join within %d s; DRO_NCCL=0 in the "
                               "environment disables NCCL",
                               dro__join_seconds());
        if (status != DRO_OK) {
            pthread_detach(thread);
            return status;
        }
        nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000}, NULL);
    }
    pthread_join(thread, NULL);
    if (o->status != DRO_OK)
        return dro__fail(c->ctx, o->status, "%s (DRO_NCCL=0 in the environment disables NCCL)",
                         o->ctx.error);
    atomic_store(&c->device, o->made);
    return DRO_OK;
}

dro_status dro__comm_open_device(dro_comm *c, const dro__backend *backend, bool fixed, char *why,
                                 size_t size)
{
    *why = '\0';
    if (!c || !backend->comms || atomic_load(&c->device))
        return DRO_OK;
    c->devices = backend->comms;
    DRO_TRY(compare_devices(c, why, size));
    if (*why)
        return DRO_OK;
    opening *o = dro__alloc(1, sizeof *o);
    DRO_TRY(dro__comm_agree(
        c, o ? DRO_OK : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory to join the devices")));
    o->comm = c;
    o->ctx.backend = backend;
    o->fixed = fixed;
    dro_status status = open_all(c, o);
    if (atomic_load(&o->done)) /* else its thread still uses it */
        dro__free(o);
    return status;
}

void dro__comm_close_device(dro_comm *c)
{
    dro__device_comm *device = atomic_exchange(&c->device, NULL);
    if (device)
        c->devices->close(device);
}

/* ---- when a rank is gone ---- */

static void *run_abort(void *arg)
{
    dro_comm *c = arg;
    dro__device_comm *device = atomic_load(&c->device);
    if (device) /* it may have been closed since */
        c->devices->abort(device);
    return NULL;
}

/* A call that is still inside seconds later cannot be ended. */
static void *run_guard(void *arg)
{
    dro_comm *c = arg;
    char text[DRO__ERROR_SIZE];
    while (!c->broken) {
        unsigned before = atomic_load(&c->inside);
        sleep(STUCK_SECONDS);
        if (c->broken || before % 2 == 0 || atomic_load(&c->inside) != before)
            continue;
        if (dro__watch_failed(c->watch, text) && dro_comm_prints(c))
            fprintf(stderr, "dro: %s\n", text);
        _exit(1);
    }
    return NULL;
}

void dro__comm_abort_device(dro_comm *c)
{
    pthread_t thread;
    if (!atomic_load(&c->device) || atomic_exchange(&c->aborted, true))
        return;
    if (pthread_create(&thread, NULL, run_abort, c) == 0)
        pthread_detach(thread);
    if (pthread_create(&thread, NULL, run_guard, c) == 0)
        pthread_detach(thread);
}

/* ---- calls ---- */

void dro__comm_enter(dro_comm *c)
{
    atomic_fetch_add(&c->inside, 1);
}

dro_status dro__comm_leave(dro_comm *c, dro_status status)
{
    atomic_fetch_add(&c->inside, 1);
    dro_status alive = dro__comm_check(c);
    return alive == DRO_OK ? status : alive;
}

dro_status dro__comm_sum_device(dro_comm *c, float *values, size_t count)
{
    dro__comm_enter(c);
    dro_status status = c->devices->sum(c->ctx, atomic_load(&c->device), values, count);
    c->traffic.messages++;
    c->traffic.bytes += 2 * count * sizeof *values * ((size_t)c->size - 1) / (size_t)c->size;
    return dro__comm_leave(c, status);
}
