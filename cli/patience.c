/* Says what a command is doing while it has nothing to print: at once on a terminal; elsewhere one
 * line on stderr after DRO_PATIENCE seconds (0.7). */
#define _GNU_SOURCE
#include "cli.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char what[300];
static bool silent; /* nothing was printed and the work continues */
static bool said;   /* a command says it once */
static double patience;

double cli_patience(void)
{
    const char *given = getenv("DRO_PATIENCE");
    return given ? atof(given) : 0.7;
}

static void *speak_up(void *unused)
{
    pthread_mutex_lock(&lock);
    double seconds = patience;
    pthread_mutex_unlock(&lock);
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    pthread_mutex_lock(&lock);
    char *shown = cli_escape(what);
    if (silent)
        fprintf(stderr, "%s\n", shown);
    said = said || silent;
    silent = false;
    pthread_mutex_unlock(&lock);
    free(shown);
    return unused;
}

void cli_busy(const char *format, ...)
{
    pthread_t thread;
    va_list list;
    pthread_mutex_lock(&lock);
    patience = cli_patience(); /* not in the thread: others may change the environment */
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (isatty(STDERR_FILENO))
        cli_progress("%s", what);
    else if (!said && !silent && pthread_create(&thread, NULL, speak_up, NULL) == 0) {
        pthread_detach(thread);
        silent = true;
    }
    pthread_mutex_unlock(&lock);
}

void cli_ready(void)
{
    cli_progress(NULL);
    pthread_mutex_lock(&lock);
    silent = false;
    pthread_mutex_unlock(&lock);
}
