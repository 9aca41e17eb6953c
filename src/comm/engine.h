/* engine: what moves bytes between ranks. An engine is one table of functions in a shared module
 * of its own (libdro_mpi.so), which is opened when the process was started as one of several, so
 * that the same program runs where the engine's libraries are missing. The module sees this
 * header only.
 *
 * At most one operation is under way at a time. Starting it returns at once; `test` moves it on.
 * The memory belongs to the operation until `test` has said that it is done. Sizes are in bytes. */
#ifndef DRO_ENGINE_H
#define DRO_ENGINE_H

#include <stddef.h>

enum { DRO__ENGINE_VERSION = 1 };
#define DRO__ENGINE_SYMBOL "dro_engine"

typedef struct dro__comm_engine {
    int version;
    const char *name;
    /* Joins the other ranks, which must be there within `seconds`. 0, or the reason why not in
     * `text`. */
    int (*open)(int seconds, int *rank, int *size, char *text, size_t text_size);
    void (*close)(void); /* all ranks together; may wait for ever for a rank that is gone */

    /* 0, or negative when it cannot be started. */
    int (*gather)(const void *mine, int bytes, void *all, const int *sizes, const int *offsets);
    int (*share)(void *bytes, int size, int root);
    int (*exchange)(int peer, const void *out, int out_bytes, void *in, int in_bytes);
    /* 1: done, 0: not yet, negative: failed. */
    int (*test)(void);
} dro__comm_engine;

#endif
