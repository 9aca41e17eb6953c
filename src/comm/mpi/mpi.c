/* The engine on MPI: calls of MPI 3 only, so Open MPI, MPICH and srun all serve. */
#include "../engine.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static MPI_Comm world = MPI_COMM_NULL;
static MPI_Request requests[2];
static int pending;

/* ---- joining ---- */

/* MPI_Init waits for all ranks, and nothing can call it back: a rank that was stopped or cut off before it came
 * there would keep the others for ever. */
enum { JOIN_SECONDS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t joined = PTHREAD_COND_INITIALIZER;
static int is_joined;

static void *give_up(void *arg)
{
    const char *given = getenv("DRO_JOIN_SECONDS");
    int seconds = given && atoi(given) > 0 ? atoi(given) : JOIN_SECONDS, late = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&lock);
    while (!is_joined && !late)
        late = pthread_cond_timedwait(&joined, &lock, &until);
    if (!is_joined) {
        fprintf(stderr, "dro: process %d: the other ranks did not join within %d s\n",
                (int)getpid(), seconds);
        _exit(1);
    }
    pthread_mutex_unlock(&lock);
    return arg;
}

static int join(void)
{
    int provided, already = 0;
    MPI_Initialized(&already);
    if (already)
        return 0;
    pthread_t watchdog;
    int watched = pthread_create(&watchdog, NULL, give_up, NULL) == 0;
    int failed = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    pthread_mutex_lock(&lock);
    is_joined = 1;
    pthread_cond_signal(&joined);
    pthread_mutex_unlock(&lock);
    if (watched)
        pthread_join(watchdog, NULL);
    return failed || provided < MPI_THREAD_SERIALIZED;
}

static int engine_open(int *rank, int *size, char *text, size_t text_size)
{
    if (join()) {
        snprintf(text, text_size, "MPI_Init_thread failed, or serves one thread only");
        return -1;
    }
    if (MPI_Comm_dup(MPI_COMM_WORLD, &world)) {
        snprintf(text, text_size, "MPI_Comm_dup failed");
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
    if (MPI_Testall(pending, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        return -1;
    return done;
}

__attribute__((visibility("default"))) extern const dro__engine dro_engine;

const dro__engine dro_engine = {
    .version = DRO__ENGINE_VERSION,
    .name = "MPI",
    .open = engine_open,
    .close = engine_close,
    .gather = gather,
    .share = share,
    .exchange = exchange,
    .test = test,
};
