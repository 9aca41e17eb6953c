/* cuda_runs MODEL OPTIMIZER PRECISION BATCH STEPS RUNS [host] [deterministic] [cudnn]: several
 * training runs at once on one GPU, each in a thread with a context, a network and a stream of its
 * own, as `dro compare --jobs` has them; milliseconds per step of each and steps per second of all.
 * cuda_peer.h says what the words mean. Exit status 77 where there is no GPU. */
#define _GNU_SOURCE
#include "cuda_peer.h"

#include <pthread.h>

enum { RUNS = 64 };

typedef struct job {
    peer p;
    pthread_barrier_t *start;
    double from, to;
} job;

static dro_status train(job *j)
{
    dro_info info;
    DRO_TRY(peer_open(&j->p));
    pthread_barrier_wait(j->start); /* a step is recorded for as many networks as there are */
    for (int k = 0; k < PEER_WARM; k++)
        DRO_TRY(dro_optimizer_step(j->p.opt));
    DRO_TRY(dro_optimizer_info(j->p.opt, &info)); /* waits for what is in flight */
    pthread_barrier_wait(j->start);
    j->from = peer_now();
    for (int k = 0; k < j->p.steps; k++)
        DRO_TRY(dro_optimizer_step(j->p.opt));
    DRO_TRY(dro_optimizer_info(j->p.opt, &info));
    j->to = peer_now();
    return DRO_OK;
}

static void *thread(void *arg)
{
    job *j = arg;
    dro_status status = train(j);
    if (status != DRO_OK) { /* the others wait for it */
        peer_failed("cuda_runs", &j->p, status);
        exit(1);
    }
    pthread_barrier_wait(j->start); /* none gives its memory back while others are timed */
    peer_close(&j->p);
    return NULL;
}

static void report(const job *jobs, int runs)
{
    char name[200];
    double from = 1e300, to = 0, ms = 0;
    int steps = jobs[0].p.steps;
    for (int k = 0; k < runs; k++) {
        from = jobs[k].from < from ? jobs[k].from : from;
        to = jobs[k].to > to ? jobs[k].to : to;
        ms += (jobs[k].to - jobs[k].from) / steps / runs;
    }
    peer_name(&jobs[0].p, name);
    printf("%s, %d at once: %.3f ms per step of each, %.0f steps/s of all\n", name, runs, ms,
           runs * steps / (to - from) * 1e3);
}

int main(int argc, char **argv)
{
    static job jobs[RUNS];
    pthread_t threads[RUNS];
    pthread_barrier_t start;
    peer p;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* as cli/runs_thread.c does, which says why */
    int runs = argc > 6 ? atoi(argv[6]) : 0;
    if (runs < 1 || runs > RUNS || !peer_read(&p, argc, argv, 1)) {
        fprintf(stderr,
                "usage: cuda_runs MODEL OPTIMIZER PRECISION BATCH STEPS RUNS [host] "
                "[deterministic] [cudnn] (RUNS: 1 to %d)\n",
                RUNS);
        return 2;
    }
    if (!peer_gpu("cuda_runs"))
        return PEER_SKIPPED;
    pthread_barrier_init(&start, NULL, (unsigned)runs);
    for (int k = 0; k < runs; k++) {
        jobs[k] = (job){.p = p, .start = &start};
        if (pthread_create(&threads[k], NULL, thread, &jobs[k]) != 0) {
            fprintf(stderr, "cuda_runs: cannot start a thread\n");
            return 1;
        }
    }
    for (int k = 0; k < runs; k++)
        pthread_join(threads[k], NULL);
    report(jobs, runs);
    return 0;
}
