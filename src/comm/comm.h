/* comm: ranks, processes that train one model together. Sees base and backend; no optimiser
 * knows about it.
 *
 *   engine.h  what moves bytes, in a module of its own;  mpi/mpi.c: on MPI
 *   join.c    whether this process is one of several, and the calls that wait for the others
 *   same.c    whether all ranks have been told the same
 *   watch.c   heartbeats: who is gone, and why
 *   sum.c     sums in a fixed binary tree over shards and ranks
 *   device.c  sums between the ranks' devices, where each has one
 *   spread.c  a dro_problem over all ranks;  spread_draw.c: its batches;
 *             spread_queue.c: its asynchronous steps
 *   team.c    shards of one rank side by side
 *   pieces.c  a dro_problem whose batches are evaluated in pieces */
#ifndef DRO_COMM_INTERNAL_H
#define DRO_COMM_INTERNAL_H

#include "backend.h"
#include "engine.h"

#include <dro/comm.h>
#include <stdatomic.h>

/* ---- watch.c ---- */

enum { DRO__HOST_SIZE = 64 };

typedef struct dro__watch dro__watch;

/* Starts the heartbeats between rank 0 and all others. Collective. */
dro_status dro__watch_open(dro_comm *comm, dro__watch **watch);
/* All ranks have done their work. From now on, when a rank is gone, the thread of the heartbeats
 * reports it and ends the process. */
void dro__watch_ending(dro__watch *watch);
/* clean: waits until all ranks have made this call. */
void dro__watch_close(dro__watch *watch, bool clean);
/* Whether a rank is gone; *text (optional) says which and why. */
bool dro__watch_failed(dro__watch *watch, char text[DRO__ERROR_SIZE]);
/* Tells the others, as far as they can be reached, that this rank ends; text: which rank has
 * failed, and why. */
void dro__watch_announce(dro__watch *watch, const char *text);
bool dro__watch_speaks(dro__watch *watch); /* though it is not rank 0, which is gone or busy */
/* Whether this is rank 0, was stopped for so long that the others have ended, and wakes up. */
bool dro__watch_given_up(dro__watch *watch);

/* ---- join.c ---- */

struct dro_comm {
    dro_context *ctx;
    const dro__comm_engine *engine;
    void *module;
    int rank, size;
    char (*hosts)[DRO__HOST_SIZE]; /* (size) */
    dro__watch *watch;
    bool joined;         /* all ranks have been there, and are watched */
    _Atomic bool broken; /* a rank is gone: nothing more is sent */
    char why[DRO__ERROR_SIZE];
    dro_comm_traffic traffic;
    unsigned wants, decided; /* DRO__WANT_...: of this rank, and of all at the last forward */
    uint64_t calls;          /* gathers so far, to see that all ranks are at the same one */
    void *bytes;             /* for gathers and sums */
    size_t capacity;
    float *staging; /* gradients of a device, in host memory */
    size_t staging_capacity;
    /* device.c: a way between the devices, or NULL; whether it was ended; calls begun and ended */
    const struct dro__device_comms *devices;
    struct dro__device_comm *_Atomic device;
    atomic_bool aborted;
    atomic_uint inside;
};

/* What a rank may ask all others for; sent with the next gather, so that all do it after the
 * same step. */
enum { DRO__WANT_STOP = 1, DRO__WANT_TIME = 2, DRO__WANT_SAVE = 4 };

/* Joins ranks over the given engine: dro_comm_open() without the module. */
dro_status dro__comm_join(dro_context *ctx, const dro__comm_engine *engine, dro_comm **comm);

/* How long the others may take to start: 60 s, or DRO_JOIN_SECONDS of the environment. */
int dro__join_seconds(void);
/* A checksum of the file that this code is in: of the library, or of a program that holds it. */
uint64_t dro__comm_build(void);

/* Collective calls: all ranks make them in the same order. DRO_ERR_STATE with a text when a rank
 * is gone. */

/* `bytes` of each rank one after the other into all; sizes[r] is what rank r sends. */
dro_status dro__comm_gather(dro_comm *comm, const void *mine, void *all, const int *sizes);
dro_status dro__comm_share(dro_comm *comm, void *bytes, size_t size, int root);
dro_status dro__comm_exchange(dro_comm *comm, int peer, const void *out, size_t out_bytes, void *in,
                              size_t in_bytes);
/* The first rank's failure, with its text, is the result on all ranks. */
dro_status dro__comm_agree(dro_comm *comm, dro_status status);
/* Text of rank 0 to all; *text is freed with dro__free. */
dro_status dro__comm_share_text(dro_comm *comm, char **text);
/* All ranks must give the same text, lines "name=value": the error names the rank that has not, and
 * the first line in which it differs from rank 0. */
dro_status dro__comm_same(dro_comm *comm, char *text);
/* A buffer of the communicator's, until the next call. */
void *dro__comm_buffer(dro_comm *comm, size_t size);

/* What begins each rank's block of a gather. */
typedef struct dro__head {
    uint64_t call;
    int32_t status;
    uint32_t wants;
} dro__head;
dro__head dro__comm_head(dro_comm *comm, dro_status status);
/* Reads the heads at offsets[r] of `all`: the status of all ranks, `text` that of the failing
 * one's own. */
dro_status dro__comm_heads(dro_comm *comm, const char *all, const int *offsets, const char *text);

/* DRO_ERR_STATE with a text when a rank is gone; does not wait. */
dro_status dro__comm_check(dro_comm *comm);

/* ---- device.c ---- */

/* Collective. Opens a communicator of the ranks' devices; if there is none, *why (size) says why,
 * else it is "". fixed: sums are added in an order that never changes. */
dro_status dro__comm_open_device(dro_comm *comm, const dro__backend *backend, bool fixed, char *why,
                                 size_t size);
void dro__comm_close_device(dro_comm *comm);
bool dro__device_wanted_alone(void); /* DRO_NCCL of the environment: by one rank, too */
/* By the heartbeats, when a rank is gone. */
void dro__comm_abort_device(dro_comm *comm);
/* Around calls that may wait for other ranks on the device. */
void dro__comm_enter(dro_comm *comm);
dro_status dro__comm_leave(dro_comm *comm, dro_status status);
/* A vector of the backend's, summed between the devices. */
dro_status dro__comm_sum_device(dro_comm *comm, float *values, size_t count);

/* ---- sum.c ---- */

/* A vector's elements summed over all ranks, the same bits everywhere; for 2, 4, 8 ... ranks in
 * the order of the binary tree over the ranks. */
dro_status dro__comm_sum(dro_comm *comm, float *values, size_t count);
/* Mean over the ranks, in their order. */
dro_status dro__comm_mean(dro_comm *comm, float *values, size_t count);

/* Merges `from` into `into`: the lower of two neighbours in the tree. */
typedef void (*dro__merge)(double *into, const double *from, size_t count);
/* The same of a few doubles with any merge; any number of ranks. */
dro_status dro__comm_merge(dro_comm *comm, double *values, size_t count, dro__merge merge);

/* ---- spread.c ---- */

/* Examples first .. first + count - 1 of a batch that a problem's draw or gather gave. */
typedef void (*dro__batch_cutter)(void *user, const dro_batch *batch, size_t first, size_t count,
                                  dro_batch *part);
/* The same of a batch that the library drew. */
void dro__batch_cut(const dro_batch *batch, size_t first, size_t count, dro_batch *part);
/* Where slice k of `of` begins among `count` examples. */
size_t dro__cut_at(size_t count, size_t k, size_t of);

/* How a problem is spread. */
typedef struct dro__spread_options {
    /* 0: one slice per rank; else so many slices in all, a power of two, summed in a tree */
    int shards;
    /* shards: the problem of each of this rank's, (shards / size) */
    const dro_problem *problems;
    dro_context *const *contexts; /* (optional) theirs, with the texts of their errors */
    struct dro__team *team;       /* of those that run side by side, or NULL: one after the other */
    dro__batch_cutter cut;        /* (optional) where mine has draw or gather; whole: required */
    void *cut_user;
    bool whole;    /* mine->draw gives the whole batch, on all ranks: a stream */
    bool together; /* every slice must have an example: they synchronise in their batch norms */
} dro__spread_options;

dro_status dro__spread_create(dro_comm *comm, dro_context *ctx, const dro_problem *mine,
                              const dro__spread_options *options, dro_spread **spread,
                              dro_problem *problem);
/* After a failure of the problem: what it was, "" if it was nothing of the spread's. */
const char *dro__spread_error(const dro_spread *spread);
/* This rank's share of `count` examples. */
void dro__spread_slice(const dro_comm *comm, int shards, size_t count, size_t *first, size_t *end);

/* ---- pieces.c ---- */

typedef struct dro__pieces dro__pieces;

typedef struct dro__pieces_options {
    /* Most examples of a part in a piece. 0: batches are whole, unless the problem has no memory
     * for them: then pieces are halved until it has. */
    size_t most;
    dro__batch_cutter cut; /* (optional) where mine has draw or gather */
    void *cut_user;
} dro__pieces_options;

/* `mine` in pieces, as *problem; both are borrowed from *pieces. */
dro_status dro__pieces_create(dro_context *ctx, const dro_problem *mine,
                              const dro__pieces_options *options, dro__pieces **pieces,
                              dro_problem *problem);
void dro__pieces_free(dro__pieces *pieces);
/* Most examples of a part in a piece; 0: batches are whole. */
size_t dro__pieces_most(const dro__pieces *pieces);

/* ---- team.c ---- */

typedef struct dro__team dro__team;

/* `count` shards on threads of their own, of which `threads` work at a time. */
dro_status dro__team_create(dro_comm *comm, dro_context *ctx, int count, int threads,
                            dro__team **team);
void dro__team_destroy(dro__team *team);
/* body(task, k) for all shards k; returns when all are done. */
void dro__team_run(dro__team *team, void (*body)(void *task, int k), void *task);
/* Called by shard k from a body, by all shards of all ranks: values become those of all. `count`
 * as in dro__merge. */
void dro__team_merge(dro__team *team, int k, double *values, size_t count, dro__merge merge);
bool dro__team_failed(const dro__team *team);

#endif
