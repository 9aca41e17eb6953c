/* Concurrent shards of one rank. Each has its own thread, since they synchronise within a forward
 * (batch norm needs the moments of all shards). At any time as many run as the context has threads;
 * a shard that waits for the others lets another one run. */
#include "comm.h"

#include <pthread.h>
#include <string.h>

typedef struct member {
    dro__team *team;
    int index;
    pthread_t thread;
    double *values; /* at the barrier */
} member;

struct dro__team {
    dro_comm *comm;
    dro_context *ctx;
    int count, started;
    member *members;
    pthread_mutex_t lock;
    pthread_cond_t work, done, passed, free_place;
    void (*body)(void *task, int k);
    void *task;
    uint64_t round, barrier;
    int busy, arrived, places;
    bool stop;
    atomic_bool failed;
};

static void take_place(dro__team *t)
{
    while (t->places == 0)
        pthread_cond_wait(&t->free_place, &t->lock);
    t->places--;
}

static void leave_place(dro__team *t)
{
    t->places++;
    pthread_cond_signal(&t->free_place);
}

/* One shard has failed and will not arrive: all others are waiting for it. */
static void break_up(dro__team *t)
{
    atomic_store(&t->failed, true);
    t->arrived = 0;
    t->barrier++;
    pthread_cond_broadcast(&t->passed);
}

static void *live(void *arg)
{
    member *m = arg;
    dro__team *t = m->team;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->round == seen && !t->stop)
            pthread_cond_wait(&t->work, &t->lock);
        if (t->stop)
            break;
        seen = t->round;
        take_place(t);
        pthread_mutex_unlock(&t->lock);
        t->body(t->task, m->index);
        pthread_mutex_lock(&t->lock);
        leave_place(t);
        if (--t->busy == 0)
            pthread_cond_signal(&t->done);
        else if (t->busy == t->arrived)
            break_up(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

dro_status dro__team_create(dro_comm *comm, dro_context *ctx, int count, int threads,
                            dro__team **team)
{
    *team = NULL;
    dro__team *t = dro__alloc(1, sizeof *t);
    if (t)
        t->members = dro__alloc((size_t)count, sizeof *t->members);
    if (!t || !t->members) {
        dro__free(t);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %d shards", count);
    }
    t->comm = comm;
    t->ctx = ctx;
    t->count = count;
    t->places = threads;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    pthread_cond_init(&t->passed, NULL);
    pthread_cond_init(&t->free_place, NULL);
    for (int k = 0; k < count; k++) {
        t->members[k] = (member){.team = t, .index = k};
        if (pthread_create(&t->members[k].thread, NULL, live, &t->members[k]) != 0) {
            dro__team_destroy(t);
            return dro__fail(ctx, DRO_ERR_MEMORY, "no threads for %d shards", count);
        }
        t->started++;
    }
    *team = t;
    return DRO_OK;
}

void dro__team_destroy(dro__team *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int k = 0; k < t->started; k++)
        pthread_join(t->members[k].thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->passed);
    pthread_cond_destroy(&t->free_place);
    dro__free(t->members);
    dro__free(t);
}

void dro__team_run(dro__team *t, void (*body)(void *task, int k), void *task)
{
    pthread_mutex_lock(&t->lock);
    t->body = body;
    t->task = task;
    t->busy = t->count;
    t->round++;
    pthread_cond_broadcast(&t->work);
    while (t->busy)
        pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* The last shard to arrive merges the moments of all, in the tree, and then those of the other
 * ranks. */
static void merge_all(dro__team *t, size_t count, dro__merge merge)
{
    member *m = t->members;
    for (int d = 1; d < t->count; d *= 2)
        for (int k = 0; k < t->count; k += 2 * d)
            merge(m[k].values, m[k + d].values, count);
    if (dro__comm_merge(t->comm, m[0].values, count, merge) != DRO_OK)
        atomic_store(&t->failed, true);
    for (int k = 1; k < t->count; k++)
        memcpy(m[k].values, m[0].values, count * sizeof(double));
}

void dro__team_merge(dro__team *t, int k, double *values, size_t count, dro__merge merge)
{
    if (atomic_load(&t->failed))
        return;
    pthread_mutex_lock(&t->lock);
    uint64_t barrier = t->barrier;
    t->members[k].values = values;
    if (++t->arrived == t->count) {
        merge_all(t, count, merge);
        t->arrived = 0;
        t->barrier++;
        pthread_cond_broadcast(&t->passed);
    } else {
        leave_place(t);
        while (t->barrier == barrier)
            pthread_cond_wait(&t->passed, &t->lock);
        take_place(t);
    }
    pthread_mutex_unlock(&t->lock);
}

bool dro__team_failed(const dro__team *t)
{
    return t && atomic_load(&t->failed);
}
