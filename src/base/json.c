/* Jansson's allocator. When an allocation fails, jansson's parser may return a shortened text as if
 * it were whole, or end the program in an assertion. So its allocations are watched like our own
 * (dro__memory_ran_out), and one that fails is served from a small reserve; the result is then
 * discarded. */
#include "base.h"

#if DRO_WITH_JANSSON
#include <jansson.h>
#include <pthread.h>

enum { RESERVE = 1 << 16, UNIT = 16 };

static json_malloc_t usual;
static json_free_t usual_free;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(UNIT) unsigned char reserve[RESERVE];
static size_t used, live; /* bytes; blocks that are not freed */

static void *from_reserve(size_t size)
{
    unsigned char *block = NULL;
    pthread_mutex_lock(&lock);
    if (size <= RESERVE - UNIT - used) {
        block = reserve + used;
        used += (size + UNIT - 1) / UNIT * UNIT;
        live++;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

static void *watched(size_t size)
{
    void *pointer = usual(size);
    if (pointer || size == 0)
        return pointer;
    dro__memory_lost();
    return from_reserve(size);
}

static void release(void *pointer)
{
    const unsigned char *block = pointer;
    if (block < reserve || block >= reserve + RESERVE) {
        usual_free(pointer);
        return;
    }
    pthread_mutex_lock(&lock);
    if (--live == 0)
        used = 0;
    pthread_mutex_unlock(&lock);
}

static void install(void)
{
    json_get_alloc_funcs(&usual, &usual_free);
    json_set_alloc_funcs(watched, release);
}

void dro__json_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    dro__memory_watch();
}

void dro__json_free(char *text)
{
    json_malloc_t make;
    json_free_t drop;
    json_get_alloc_funcs(&make, &drop);
    drop(text);
}

#else

void dro__json_watch(void)
{
    dro__memory_watch();
}

#endif
