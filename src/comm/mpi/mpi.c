/* The engine on MPI: calls of MPI 3 only, so Open MPI, MPICH and srun all serve. */
#include "../engine.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static MPI_Comm world = MPI_COMM_NULL;
static MPI_Request requests[2];
static int pending;

/* ---- joining and leaving ---- */

/* MPI_Init and MPI_Comm_dup wait for all ranks, and cannot be interrupted: a rank that was stopped
 * or disconnected before would block the others for ever. */
typedef struct deadline {
    pthread_mutex_t lock;
    pthread_cond_t met;
    pthread_t thread;
    int seconds, is_met, watched;
} deadline;

static void *watch_deadline(void *arg)
{
    deadline *d = arg;
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += d->seconds;
    pthread_mutex_lock(&d->lock);
    while (!d->is_met && !late)
        late = pthread_cond_timedwait(&d->met, &d->lock, &until);
    if (!d->is_met) {
        fprintf(stderr, "dro: process %d: the other ranks did not join within %d s\n",
                (int)getpid(), d->seconds);
        _exit(1);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void deadline_begin(deadline *d, int seconds)
{
    *d = (deadline){.seconds = seconds};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->met, NULL);
    d->watched = pthread_create(&d->thread, NULL, watch_deadline, d) == 0;
}

static void deadline_end(deadline *d)
{
    pthread_mutex_lock(&d->lock);
    d->is_met = 1;
    pthread_cond_signal(&d->met);
    pthread_mutex_unlock(&d->lock);
    if (d->watched)
        pthread_join(d->thread, NULL);
}

/* A communicator of our own; the reason why not. */
static const char *join(void)
{
    int provided = MPI_THREAD_SERIALIZED, already = 0;
    MPI_Initialized(&already);
    if (!already && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided))
        return "MPI_Init_thread failed";
    if (provided < MPI_THREAD_SERIALIZED)
        return "MPI serves one thread only";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* some errors are its own */
    return MPI_Comm_dup(MPI_COMM_WORLD, &world) ? "MPI_Comm_dup failed" : NULL;
}

static int engine_open(int seconds, int *rank, int *size, char *text, size_t text_size)
{
    deadline d;
    deadline_begin(&d, seconds);
    const char *why = join();
    deadline_end(&d);
    if (why) {
        snprintf(text, text_size, "%s", why);
        return -1;
    }
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, rank);
    MPI_Comm_size(world, size);
    return 0;
}

static void engine_close(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (!done)
        MPI_Finalize();
}

/* ---- operations ---- */

static int began(int code, int count)
{
    pending = code == MPI_SUCCESS ? count : 0;
    return code == MPI_SUCCESS ? 0 : -1;
}

static int gather(const void *mine, int bytes, void *all, const int *sizes, const int *offsets)
{
    return began(
        MPI_Iallgatherv(mine, bytes, MPI_BYTE, all, sizes, offsets, MPI_BYTE, world, &requests[0]),
        1);
}

static int share(void *bytes, int size, int root)
{
    return began(MPI_Ibcast(bytes, size, MPI_BYTE, root, world, &requests[0]), 1);
}

static int exchange(int peer, const void *out, int out_bytes, void *in, int in_bytes)
{
    int code = MPI_Irecv(in, in_bytes, MPI_BYTE, peer, 0, world, &requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(out, out_bytes, MPI_BYTE, peer, 0, world, &requests[1]);
    return began(code, 2);
}

static int test(void)
{
    int done = 0;
    MPI_Status unused[2]; /* gcc warns about MPICH's MPI_STATUSES_IGNORE */
    if (MPI_Testall(pending, requests, &done, unused) != MPI_SUCCESS)
        return -1;
    return done;
}

__attribute__((visibility("default"))) extern const dro__comm_engine dro_engine;

const dro__comm_engine dro_engine = {
    .version = DRO__ENGINE_VERSION,
    .name = "MPI",
    .open = engine_open,
    .close = engine_close,
    .gather = gather,
    .share = share,
    .exchange = exchange,
    .test = test,
};
