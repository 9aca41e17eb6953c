/* What a command does while data is read: at once on a terminal; elsewhere one line on stderr, if it takes longer than
 * a person waits in silence (DRO_PATIENCE seconds, 0.7). */
#define _GNU_SOURCE
#include "cli.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char what[300];
static bool silent; /* nothing has been said and the work goes on */

static void *speak_up(void *unused)
{
    const char *given = getenv("DRO_PATIENCE");
    double seconds = given ? atof(given) : 0.7;
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    if (silent)
        fprintf(stderr, "reading %s\n", what);
    silent = false;
    pthread_mutex_unlock(&lock);
    return unused;
}

void cli_reading(const char *text)
{
    pthread_t thread;
    if (isatty(STDERR_FILENO)) {
        cli_progress("reading %s", text);
        return;
    }
    pthread_mutex_lock(&lock);
    snprintf(what, sizeof what, "%s", text);
    silent = pthread_create(&thread, NULL, speak_up, NULL) == 0;
    if (silent)
        pthread_detach(thread);
    pthread_mutex_unlock(&lock);
}

void cli_read(void)
{
    cli_progress(NULL);
    pthread_mutex_lock(&lock);
    silent = false;
    pthread_mutex_unlock(&lock);
}
