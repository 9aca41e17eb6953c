/* A run in a thread of this process, with its own context. Many runs share a GPU like this: streams
 * of one process run concurrently, while processes take turns. The run reports through the same
 * pipe, in the same lines, as a process does. */
#define _GNU_SOURCE
#include "runs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cli_thread {
    pthread_t id;
    dro_context *ctx;
    dro_train *train;
    char folder[4400];
    cli_show show;
    atomic_bool stop;
    int status;
};

/* A process has 8 hardware queues to the GPU unless it requests more (32 at most); further streams
 * share one, and their kernels wait for each other. CUDA reads this setting at its start, so it is
 * set before the first context; a value given by the user stays. */
void cli_thread_ready(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

static void release(struct cli_thread *t)
{
    if (t->show.to)
        fclose(t->show.to);
    dro_train_destroy(t->train);
    dro_context_destroy(t->ctx);
    free(t);
}

static void *work(void *user)
{
    struct cli_thread *t = user;
    dro_train_watch watch = cli_show_watch(&t->show);
    dro_status status = dro_train_run(t->train, t->folder, true, &watch);
    if (status != DRO_OK)
        cli_note(t->show.to, "%s", dro_context_error(t->ctx));
    else if (!dro_train_result(t->train))
        cli_note(t->show.to, "stopped after step %llu", (unsigned long long)t->show.step);
    t->status = status != DRO_OK || !dro_train_result(t->train);
    fclose(t->show.to); /* the reader sees the end of the pipe */
    t->show.to = NULL;
    return NULL;
}

static int prepare(struct cli_thread *t, const cli_runs *runs, const cli_one *one)
{
    const char *backend = dro_context_backend(runs->ctx);
    dro_status status = dro_context_create(backend, runs->threads, &t->ctx);
    if (status != DRO_OK) {
        cli_backend_fail(backend, status);
        return 1;
    }
    status = dro_train_create(t->ctx, &t->train);
    status = status ? status : dro_train_use(t->train, one->settings);
    return status ? cli_fail("%s", dro_context_error(t->ctx)) : 0;
}

static int begin(struct cli_thread *t, cli_one *one)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cli_fail("cannot start %s: %s", one->name, strerror(errno));
    t->show.to = fdopen(ends[1], "w");
    int wrong = t->show.to ? pthread_create(&t->id, NULL, work, t) : ENOMEM;
    if (wrong) {
        close(ends[0]);
        if (!t->show.to)
            close(ends[1]);
        return cli_fail("cannot start %s: %s", one->name, strerror(wrong));
    }
    one->pipe = ends[0];
    one->thread = t;
    one->state = CLI_RUNNING;
    return 0;
}

int cli_thread_start(const cli_runs *runs, cli_one *one)
{
    struct cli_thread *t = calloc(1, sizeof *t);
    if (!t)
        return cli_fail("no memory for a run");
    t->show.stop = &t->stop;
    snprintf(t->folder, sizeof t->folder, "%s/%s", runs->folder, one->name);
    int status = prepare(t, runs, one);
    if (status == 0)
        status = begin(t, one);
    if (status)
        release(t);
    return status;
}

void cli_thread_stop(cli_one *one)
{
    atomic_store(&one->thread->stop, true);
}

int cli_thread_end(cli_one *one)
{
    pthread_join(one->thread->id, NULL);
    int status = one->thread->status;
    release(one->thread);
    one->thread = NULL;
    return status;
}
