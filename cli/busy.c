/* Says what a command is doing while it has nothing to print: at once on a terminal; elsewhere one
 * line on stderr after DRO_BUSY_DELAY seconds (0.7). */
#define _GNU_SOURCE
#include "cli.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char what[300];
static bool waiting; /* nothing was printed and the work continues */
static bool printed; /* a command says it once */
static double delay;

double cli_busy_delay(void)
{
    const char *given = getenv("DRO_BUSY_DELAY");
    return given ? atof(given) : 0.7;
}

static void *print_later(void *unused)
{
    pthread_mutex_lock(&lock);
    double seconds = delay;
    pthread_mutex_unlock(&lock);
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    char *shown = cli_escape(what);
    if (waiting)
        fprintf(stderr, "%s\n", shown);
    printed = printed || waiting;
    waiting = false;
    pthread_mutex_unlock(&lock);
    free(shown);
    return unused;
}

void cli_busy(const char *format, ...)
{
    pthread_t thread;
    va_list list;
    pthread_mutex_lock(&lock);
    delay = cli_busy_delay(); /* not in the thread: others may change the environment */
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (isatty(STDERR_FILENO))
        cli_progress("%s", what);
    else if (!printed && !waiting && pthread_create(&thread, NULL, print_later, NULL) == 0) {
        pthread_detach(thread);
        waiting = true;
    }
    pthread_mutex_unlock(&lock);
}

void cli_ready(void)
{
    cli_progress(NULL);
    pthread_mutex_lock(&lock);
    waiting = false;
    pthread_mutex_unlock(&lock);
}
