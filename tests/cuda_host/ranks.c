/* Two ranks by fork, with stand-ins for MPI and NCCL between them. Every operation waits for both
 * ranks; an alarm ends a rank that waits forever. */
#include "ranks.h"
#include "stand_ins.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, MOST = 1 << 20, PATIENCE_SECONDS = 120 };
enum { YIELDS = 20, PAUSE_US = 20 }; /* ranks may be more than processors */

static struct meeting {
    atomic_uint arrived;
    char bytes[RANKS][MOST];
} * meeting;
static int own_rank;
static pid_t other;

static void *shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int two_ranks_begin(size_t size, void **bytes)
{
    meeting = shared(sizeof *meeting);
    *bytes = shared(size);
    if (!meeting || !*bytes)
        return -1;
    fflush(stdout);
    alarm(PATIENCE_SECONDS);
    other = fork();
    own_rank = other == 0;
    if (own_rank)
        alarm(PATIENCE_SECONDS);
    return other < 0 ? -1 : own_rank;
}

bool two_ranks_end(int rank)
{
    int status = 0;
    if (rank == 1) {
        fflush(stdout);
        _exit(0);
    }
    waitpid(other, &status, 0);
    alarm(0);
    munmap(meeting, sizeof *meeting);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void two_ranks_free(void *bytes, size_t size)
{
    munmap(bytes, size);
}

int two_ranks_own(void)
{
    return own_rank;
}

/* ---- meeting ---- */

/* Waits for the other rank; false: it was ended before. */
static bool meet(atomic_bool *ended)
{
    unsigned all = (atomic_fetch_add(&meeting->arrived, 1) / RANKS + 1) * RANKS;
    for (int turn = 0; atomic_load(&meeting->arrived) < all; turn++) {
        if (ended && atomic_load(ended))
            return false;
        if (turn < YIELDS)
            sched_yield();
        else
            usleep(PAUSE_US);
    }
    return true;
}

/* Both have put down theirs when this returns; until both meet again it stays. */
static bool put(const void *mine, size_t bytes, atomic_bool *ended)
{
    if (bytes > MOST)
        abort();
    memcpy(meeting->bytes[own_rank], mine, bytes);
    return meet(ended);
}

bool two_ranks_sum(const void *from, void *to, size_t count, bool doubles, atomic_bool *ended)
{
    const void *all[RANKS] = {meeting->bytes[0], meeting->bytes[1]};
    if (!put(from, count * (doubles ? sizeof(double) : sizeof(float)), ended))
        return false;
    for (size_t i = 0; i < count; i++)
        if (doubles)
            ((double *)to)[i] = ((const double *)all[0])[i] + ((const double *)all[1])[i];
        else
            ((float *)to)[i] = ((const float *)all[0])[i] + ((const float *)all[1])[i];
    return meet(ended);
}

void two_ranks_merge(void *user, double *values, size_t count, dro__net_merge how)
{
    (void)user;
    put(values, count * sizeof *values, NULL);
    memcpy(values, meeting->bytes[0], count * sizeof *values);
    how(values, (const double *)(const void *)meeting->bytes[1], count);
    meet(NULL);
}

/* ---- MPI ---- */

static int open_engine(int seconds, int *rank, int *size, char *text, size_t text_size)
{
    (void)seconds, (void)text, (void)text_size;
    *rank = own_rank;
    *size = RANKS;
    return 0;
}

static void close_engine(void) {}

static int gather(const void *mine, int bytes, void *all, const int *sizes, const int *offsets)
{
    put(mine, (size_t)bytes, NULL);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)all + offsets[r], meeting->bytes[r], (size_t)sizes[r]);
    return meet(NULL) ? 0 : -1;
}

static int share(void *bytes, int size, int root)
{
    put(bytes, (size_t)size, NULL);
    memcpy(bytes, meeting->bytes[root], (size_t)size);
    return meet(NULL) ? 0 : -1;
}

static int exchange(int peer, const void *out, int out_bytes, void *in, int in_bytes)
{
    put(out, (size_t)out_bytes, NULL);
    memcpy(in, meeting->bytes[peer], (size_t)in_bytes);
    return meet(NULL) ? 0 : -1;
}

static int test(void)
{
    return 1;
}

const dro__comm_engine two_ranks_engine = {.version = DRO__ENGINE_VERSION,
                                           .name = "two processes",
                                           .open = open_engine,
                                           .close = close_engine,
                                           .gather = gather,
                                           .share = share,
                                           .exchange = exchange,
                                           .test = test};
