/* A pool of threads that share one loop at a time.
 *
 * A worker that waits spins for a few microseconds, then yields the processor for a while, then sleeps.
 * Spinning keeps a step of a few hundred microseconds fast; yielding keeps it fast when other work
 * wants the same processors, where a pool that only spins loses a time slice per loop. The caller takes
 * part in the loop, and waits in the same way. */
#include "base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SPINS = 2000, YIELDS = 200 };

struct dro__pool {
    pid_t owner; /* a child after fork() has no workers: it runs alone */
    int workers; /* besides the caller */
    pthread_t *threads;
    int started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint round; /* counts loops; odd bits mean nothing, a change means work */
    atomic_int sleeping, busy;
    atomic_bool stop;
    atomic_size_t next;
    size_t count;
    void (*body)(void *task, size_t k);
    void *task;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work(dro__pool *p)
{
    size_t k;
    while ((k = atomic_fetch_add(&p->next, 1)) < p->count)
        p->body(p->task, k);
}

/* Until *value differs from `old`, or the patience is over. */
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
        atomic_fetch_sub(&p->busy, 1);
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

void dro__pool_run(dro__pool *p, size_t count, void (*body)(void *task, size_t k), void *task)
{
    if (!p || count < 2 || getpid() != p->owner) {
        for (size_t k = 0; k < count; k++)
            body(task, k);
        return;
    }
    p->body = body;
    p->task = task;
    p->count = count;
    atomic_store(&p->next, 0);
    atomic_store(&p->busy, p->started);
    announce(p);
    work(p);
    for (int t = 0; atomic_load(&p->busy) > 0; t++)
        t < SPINS ? relax() : (void)sched_yield();
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
