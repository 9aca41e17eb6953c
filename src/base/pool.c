/* A pool of threads that share one loop at a time.
 *
 * A loop's places are handed out by one number, `ticket`: how many there are, and the next one. Who
 * draws a place works on it, and the caller waits for the places that were drawn, not for the
 * threads: on a machine with other work the caller does it all alone before a sleeping worker is
 * given a processor.
 *
 * A worker that waits spins for a few microseconds, then yields the processor for a while, then
 * sleeps. Spinning keeps a step of a few hundred microseconds fast; yielding keeps it fast when
 * other work wants the same processors, where a pool that only spins loses a time slice per loop.
 * The caller takes part in the loop, and waits in the same way. */
#include "base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SPINS = 2000, YIELDS = 200, PLACES = 1 << 30 };

struct dro__pool {
    pid_t owner; /* a child after fork() has no workers: it runs alone */
    int workers; /* besides the caller */
    pthread_t *threads;
    int started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint round; /* counts loops; odd bits mean nothing, a change means work */
    atomic_int sleeping;
    atomic_bool stop;
    _Atomic uint64_t ticket; /* count << 32 | next; drawing adds 1 */
    atomic_size_t done;
    void (*body)(void *task, size_t k);
    void *task;
    size_t from;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Draws places until there are none. A place that was drawn belongs to the loop in progress: the
 * caller does not return before it is done, so body and task are that loop's. */
static void work(dro__pool *p)
{
    for (;;) {
        uint64_t drawn = atomic_fetch_add(&p->ticket, 1);
        uint32_t count = (uint32_t)(drawn >> 32), place = (uint32_t)drawn;
        if (place >= count)
            return;
        p->body(p->task, p->from + place);
        atomic_fetch_add(&p->done, 1);
    }
}

/* Until *value differs from `old`, or the time to spin has passed. */
static bool changed(atomic_uint *value, unsigned old)
{
    for (int t = 0; t < SPINS + YIELDS; t++) {
        if (atomic_load(value) != old)
            return true;
        if (t < SPINS)
            relax();
        else
            sched_yield();
    }
    return false;
}

static void *worker(void *arg)
{
    dro__pool *p = arg;
    unsigned seen = 0;
    for (;;) {
        if (!changed(&p->round, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleeping, 1);
            while (atomic_load(&p->round) == seen)
                pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleeping, 1);
            pthread_mutex_unlock(&p->lock);
        }
        seen = atomic_load(&p->round);
        if (atomic_load(&p->stop))
            return NULL;
        work(p);
    }
}

static void announce(dro__pool *p)
{
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->sleeping)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

/* One loop of at most PLACES places. */
static void run(dro__pool *p, size_t from, size_t count, void (*body)(void *task, size_t k),
                void *task)
{
    p->body = body;
    p->task = task;
    p->from = from;
    atomic_store(&p->done, 0);
    atomic_store(&p->ticket, (uint64_t)count << 32);
    announce(p);
    work(p);
    for (int t = 0; atomic_load(&p->done) < count; t++)
        t < SPINS ? relax() : (void)sched_yield();
}

void dro__pool_run(dro__pool *p, size_t count, void (*body)(void *task, size_t k), void *task)
{
    if (!p || count < 2 || getpid() != p->owner) {
        for (size_t k = 0; k < count; k++)
            body(task, k);
        return;
    }
    for (size_t from = 0; from < count; from += PLACES)
        run(p, from, count - from < PLACES ? count - from : PLACES, body, task);
}

int dro__pool_threads(const dro__pool *p)
{
    return p ? p->started + 1 : 1;
}

dro_status dro__pool_create(int threads, dro__pool **pool)
{
    *pool = NULL;
    if (threads <= 1)
        return DRO_OK;
    dro__pool *p = dro__alloc(1, sizeof *p);
    if (!p)
        return DRO_ERR_MEMORY;
    p->owner = getpid();
    p->workers = threads - 1;
    p->threads = dro__alloc((size_t)p->workers, sizeof *p->threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int k = 0; p->threads && k < p->workers; k++) {
        if (pthread_create(&p->threads[k], NULL, worker, p) != 0)
            break; /* fewer threads than asked for are fine */
        p->started++;
    }
    if (p->started == 0) {
        dro__pool_destroy(p);
        return DRO_ERR_MEMORY;
    }
    *pool = p;
    return DRO_OK;
}

void dro__pool_destroy(dro__pool *p)
{
    if (!p)
        return;
    if (getpid() == p->owner) {
        atomic_store(&p->stop, true);
        announce(p);
        for (int k = 0; k < p->started; k++)
            pthread_join(p->threads[k], NULL);
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->wake);
    }
    dro__free(p->threads);
    dro__free(p);
}
