/* Whether this process is one of several, and the calls that wait for the others. */
#define _GNU_SOURCE
#include "comm.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the module ---- */

int dro_comm_started(int *rank, int *local)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    static const char *const locals[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                         "SLURM_TASKS_PER_NODE", NULL};
    int size =
        getenv("DRO_ALONE") ? 1 : dro__environment_number(sizes, 1); /* a child of a rank is none */
    size = size > 1 ? size : 1;
    if (rank)
        *rank = size > 1 ? dro__environment_number(ranks, 0) : 0;
    if (local)
        *local = size > 1 ? dro__environment_number(locals, 1) : 1;
    return size;
}

static const char module_name[] = "libdro_mpi.so";

/* Beside the library or the program where they were built, in the folder libdro of where libraries
 * are installed, or wherever the system looks. */
static void *open_module(char *why, size_t size)
{
    static const char *const places[] = {"/", "/../", "/libdro/", "/../" DRO_LIBDIR "/libdro/"};
    Dl_info self;
    char path[PATH_MAX];
    int length = 0;
    if (dladdr((const void *)&module_name, &self) && strrchr(self.dli_fname, '/'))
        length = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
    for (size_t k = 0; length && k < sizeof places / sizeof places[0]; k++) {
        snprintf(path, sizeof path, "%.*s%s%s", length, self.dli_fname, places[k], module_name);
        if (access(path, R_OK) != 0)
            continue;
        void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!module)
            snprintf(why, size, "%s", dlerror());
        return module;
    }
    void *module = dlopen(module_name, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        snprintf(why, size, "%s", dlerror());
    return module;
}

uint64_t dro__comm_build(void)
{
    enum { SOME = 1 << 16 };
    Dl_info self;
    uint64_t sum = 0;
    FILE *file = dladdr((const void *)&module_name, &self) ? fopen("/proc/self/exe", "rb") : NULL;
    if (file && strstr(self.dli_fname, "libdro")) { /* not in the program itself */
        fclose(file);
        file = fopen(self.dli_fname, "rb");
    }
    char *bytes = dro__alloc(SOME, 1);
    for (size_t got; file && bytes && (got = fread(bytes, 1, SOME, file)) > 0;)
        sum = dro__checksum(sum, bytes, got);
    if (file)
        fclose(file);
    dro__free(bytes);
    return sum;
}

static dro_status take_engine(dro_context *ctx, void *module, const dro__comm_engine **engine)
{
    *engine = dlsym(module, DRO__ENGINE_SYMBOL);
    if (!*engine || (*engine)->version != DRO__ENGINE_VERSION)
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED, "%s belongs to another version of libdro",
                         module_name);
    return DRO_OK;
}

/* ---- one rank, so that what happens between devices can be measured on one ---- */

static int alone_open(int seconds, int *rank, int *size, char *text, size_t text_size)
{
    (void)seconds, (void)text, (void)text_size;
    *rank = 0;
    *size = 1;
    return 0;
}

static void alone_close(void) {}

static int alone_gather(const void *mine, int bytes, void *all, const int *sizes, const int *at)
{
    (void)sizes;
    memcpy((char *)all + at[0], mine, (size_t)bytes);
    return 0;
}

static int alone_share(void *bytes, int size, int root)
{
    (void)bytes, (void)size, (void)root;
    return 0;
}

static int alone_exchange(int peer, const void *out, int out_bytes, void *in, int in_bytes)
{
    (void)peer, (void)out, (void)out_bytes, (void)in, (void)in_bytes;
    return -1;
}

static int alone_test(void)
{
    return 1;
}

static const dro__comm_engine alone = {.version = DRO__ENGINE_VERSION,
                                       .name = "one rank",
                                       .open = alone_open,
                                       .close = alone_close,
                                       .gather = alone_gather,
                                       .share = alone_share,
                                       .exchange = alone_exchange,
                                       .test = alone_test};

dro_status dro_comm_open(dro_context *ctx, dro_comm **comm)
{
    if (!ctx || !comm)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *comm = NULL;
    int ranks = dro_comm_started(NULL, NULL);
    char why[DRO__ERROR_SIZE / 2] = "";
    if (ranks == 1)
        return dro__device_wanted_alone() ? dro__comm_join(ctx, &alone, comm) : DRO_OK;
    void *module = open_module(why, sizeof why);
    if (!module)
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                         "started as one of %d ranks, which needs MPI and %s: %s", ranks,
                         module_name, why);
    const dro__comm_engine *engine;
    DRO_TRY(take_engine(ctx, module, &engine));
    DRO_TRY(dro__comm_join(ctx, engine, comm));
    (*comm)->module = module;
    if ((*comm)->size == ranks)
        return DRO_OK;
    int found = (*comm)->size;
    dro_comm_close(*comm);
    *comm = NULL;
    return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                     "started as one of %d ranks, but MPI found %d: use srun --mpi=pmix, or the "
                     "mpirun of the MPI that libdro was built with",
                     ranks, found);
}

/* ---- life ---- */

int dro__join_seconds(void)
{
    enum { USUAL = 60 };
    const char *given = getenv("DRO_JOIN_SECONDS");
    return given && atoi(given) > 0 ? atoi(given) : USUAL;
}

typedef struct joining {
    char host[DRO__HOST_SIZE];
    uint64_t build;
} joining;

/* Other builds may make other calls. */
static dro_status take_ranks(dro_comm *c, const joining *all)
{
    int other = 0;
    for (int r = 0; r < c->size; r++) {
        memcpy(c->hosts[r], all[r].host, sizeof c->hosts[r]);
        other = other == 0 && all[r].build != all[0].build ? r : other;
    }
    if (other == 0)
        return DRO_OK;
    return dro__fail(c->ctx, DRO_ERR_ARGUMENT,
                     "rank %d on %s: it has build=%016llx, rank 0 has build=%016llx: install the "
                     "same program everywhere",
                     other, c->hosts[other], (unsigned long long)all[other].build,
                     (unsigned long long)all[0].build);
}

static dro_status gather_ranks(dro_comm *c)
{
    joining mine = {.host = "?", .build = dro__comm_build()};
    int *sizes = dro__alloc((size_t)c->size, sizeof *sizes);
    joining *all = dro__alloc((size_t)c->size, sizeof *all);
    c->hosts = dro__alloc((size_t)c->size, sizeof *c->hosts);
    dro_status status = DRO_OK;
    if (!sizes || !all || !c->hosts)
        status = dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", c->size);
    gethostname(mine.host, sizeof mine.host - 1);
    for (int r = 0; status == DRO_OK && r < c->size; r++)
        sizes[r] = sizeof mine;
    if (status == DRO_OK)
        status = dro__comm_gather(c, &mine, all, sizes);
    if (status == DRO_OK)
        status = take_ranks(c, all);
    if (!c->broken) /* no operation may still write */
        dro__free(all);
    dro__free(sizes);
    return status;
}

dro_status dro__comm_join(dro_context *ctx, const dro__comm_engine *engine, dro_comm **comm)
{
    char why[DRO__ERROR_SIZE / 2] = "";
    *comm = NULL;
    dro_comm *c = dro__alloc(1, sizeof *c);
    if (!c)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for ranks");
    c->ctx = ctx;
    c->engine = engine;
    dro_status status = DRO_OK;
    if (engine->open(dro__join_seconds(), &c->rank, &c->size, why, sizeof why) != 0)
        status = dro__fail(ctx, DRO_ERR_UNSUPPORTED, "%s: %s", engine->name, why);
    if (status == DRO_OK)
        status = gather_ranks(c);
    if (status == DRO_OK && c->size > 1)
        status = dro__watch_open(c, &c->watch);
    c->joined = status == DRO_OK;
    if (status != DRO_OK) {
        c->broken = true;
        dro_comm_close(c);
        return status;
    }
    *comm = c;
    return DRO_OK;
}

void dro_comm_close(dro_comm *c)
{
    if (!c)
        return;
    bool clean = !c->broken && dro__comm_agree(c, DRO_OK) == DRO_OK;
    bool idle = !c->broken; /* no operation may still write */
    if (clean) {
        dro__comm_close_device(c);
        dro__watch_ending(c->watch);
        c->engine->close();
    }
    c->broken = true;
    dro__watch_close(c->watch, clean);
    if (idle) {
        dro__free(c->bytes);
        dro__free(c->staging);
    }
    if (atomic_load(&c->aborted)) /* its threads may still look at it */
        return;
    dro__free(c->hosts);
    dro__free(c);
}

int dro_comm_rank(const dro_comm *c)
{
    return c ? c->rank : 0;
}

int dro_comm_size(const dro_comm *c)
{
    return c ? c->size : 1;
}

dro_comm_traffic dro_comm_traffic_get(const dro_comm *c)
{
    return c ? c->traffic : (dro_comm_traffic){0};
}

bool dro_comm_prints(const dro_comm *c)
{
    return !c || (c->rank == 0 && !dro__watch_given_up(c->watch)) || dro__watch_speaks(c->watch);
}

void dro_comm_fail(dro_comm *c, const char *text)
{
    if (!c || c->broken)
        return;
    c->broken = true;
    if (c->size == 1)
        return;
    bool named = strncmp(text, "rank ", 5) == 0; /* a failure that all ranks have agreed on */
    if (named)
        snprintf(c->why, sizeof c->why, "%s", text);
    else
        snprintf(c->why, sizeof c->why, "rank %d on %s: %.400s", c->rank, c->hosts[c->rank], text);
    dro__watch_announce(c->watch, c->why);
    if (dro__watch_speaks(c->watch))
        dro__fail(c->ctx, DRO_ERR_STATE, "%s", c->why);
}

/* ---- waiting ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dro_status gone(dro_comm *c)
{
    char text[DRO__ERROR_SIZE];
    c->broken = true;
    if (!dro__watch_failed(c->watch, text)) {
        /* the engine was faster: the watch will know more in a moment */
        for (int k = 0; k < 100 && !dro__watch_failed(c->watch, text); k++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (!dro__watch_failed(c->watch, text))
            snprintf(text, sizeof text, "%s failed", c->engine->name);
    }
    memcpy(c->why, text, sizeof c->why);
    return dro__fail(c->ctx, DRO_ERR_STATE, "%s", text);
}

dro_status dro__comm_check(dro_comm *c)
{
    if (c->broken)
        return dro__fail(c->ctx, DRO_ERR_STATE, "%s", c->why);
    return dro__watch_failed(c->watch, NULL) ? gone(c) : DRO_OK;
}

dro_status dro_comm_check(dro_comm *c)
{
    return c && c->size > 1 ? dro__comm_check(c) : DRO_OK;
}

static dro_status late(dro_comm *c)
{
    c->broken = true;
    snprintf(c->why, sizeof c->why, "the other ranks did not join within %d s",
             dro__join_seconds());
    return dro__fail(c->ctx, DRO_ERR_STATE, "%s", c->why);
}

/* Spins, then lets others run, then sleeps a little: ranks may be more than processors. */
static void back_off(int turn)
{
    enum { SPIN = 200, YIELD = 1000, LONG = 50000 };
    if (turn > LONG) /* seconds: others may be at work for hours */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    else if (turn > YIELD)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    else if (turn > SPIN)
        sched_yield();
}

/* Until the operation that was started is done, or a rank is gone. */
static dro_status wait(dro_comm *c, int started)
{
    if (c->broken)
        return dro__fail(c->ctx, DRO_ERR_STATE, "%s", c->why);
    if (started != 0)
        return gone(c);
    double start = now();
    for (int turn = 0, done; (done = c->engine->test()) != 1; turn++) {
        if (done < 0 || (c->joined && dro__watch_failed(c->watch, NULL)))
            return gone(c);
        if (!c->joined && now() - start > dro__join_seconds())
            return late(c);
        back_off(turn);
    }
    c->traffic.seconds += now() - start;
    return DRO_OK;
}

void *dro__comm_buffer(dro_comm *c, size_t size)
{
    if (size <= c->capacity)
        return c->bytes;
    dro__free(c->bytes);
    c->bytes = dro__alloc(size, 1);
    c->capacity = c->bytes ? size : 0;
    return c->bytes;
}

dro_status dro__comm_gather(dro_comm *c, const void *mine, void *all, const int *sizes)
{
    enum { RANKS_USUAL = 256 };
    int usual[RANKS_USUAL];
    int *offsets = c->size <= RANKS_USUAL ? usual : dro__alloc((size_t)c->size, sizeof *offsets);
    if (!offsets)
        return dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", c->size);
    for (int r = 0, at = 0; r < c->size; at += sizes[r++])
        offsets[r] = at;
    dro_status status = wait(c, c->engine->gather(mine, sizes[c->rank], all, sizes, offsets));
    if (offsets != usual)
        dro__free(offsets);
    c->traffic.messages += (uint64_t)c->size - 1;
    c->traffic.bytes += ((uint64_t)c->size - 1) * (uint64_t)sizes[c->rank];
    return status;
}

enum { PIECE = 1 << 28 }; /* bytes: MPI counts in int */

dro_status dro__comm_share(dro_comm *c, void *bytes, size_t size, int root)
{
    for (size_t at = 0; at < size;) {
        size_t some = size - at < PIECE ? size - at : PIECE;
        DRO_TRY(wait(c, c->engine->share((char *)bytes + at, (int)some, root)));
        at += some;
        c->traffic.messages++;
        c->traffic.bytes += some;
    }
    return DRO_OK;
}

dro_status dro__comm_exchange(dro_comm *c, int peer, const void *out, size_t out_bytes, void *in,
                              size_t in_bytes)
{
    for (size_t at = 0; at < out_bytes || at < in_bytes; at += PIECE) {
        size_t send = at >= out_bytes ? 0 : out_bytes - at < PIECE ? out_bytes - at : PIECE;
        size_t take = at >= in_bytes ? 0 : in_bytes - at < PIECE ? in_bytes - at : PIECE;
        DRO_TRY(wait(c, c->engine->exchange(peer, (const char *)out + at, (int)send,
                                            (char *)in + at, (int)take)));
        c->traffic.messages++;
        c->traffic.bytes += send;
    }
    return DRO_OK;
}

/* ---- agreeing ---- */

dro__head dro__comm_head(dro_comm *c, dro_status status)
{
    return (dro__head){.call = ++c->calls, .status = status, .wants = c->wants};
}

/* The text of the rank that failed, to all. */
static dro_status failure_of(dro_comm *c, int rank, dro_status status, const char *own)
{
    char text[DRO__ERROR_SIZE] = "";
    if (rank == c->rank)
        snprintf(text, sizeof text, "%s", own);
    DRO_TRY(dro__comm_share(c, text, sizeof text, rank));
    return dro__fail(c->ctx, status, "rank %d on %s: %.400s", rank, c->hosts[rank], text);
}

dro_status dro__comm_heads(dro_comm *c, const char *all, const int *offsets, const char *text)
{
    c->decided = 0;
    for (int r = 0; r < c->size; r++) {
        dro__head head;
        memcpy(&head, all + offsets[r], sizeof head);
        if (head.call != c->calls)
            return dro__fail(c->ctx, DRO_ERR_STATE,
                             "rank %d on %s is at exchange %llu, rank %d at %llu: they have not "
                             "made the same calls",
                             r, c->hosts[r], (unsigned long long)head.call, c->rank,
                             (unsigned long long)c->calls);
        c->decided |= head.wants;
    }
    for (int r = 0; r < c->size; r++) {
        dro__head head;
        memcpy(&head, all + offsets[r], sizeof head);
        if (head.status != DRO_OK)
            return failure_of(c, r, (dro_status)head.status, text);
    }
    return DRO_OK;
}

dro_status dro__comm_agree(dro_comm *c, dro_status status)
{
    if (!c || c->size == 1)
        return status;
    char text[DRO__ERROR_SIZE];
    memcpy(text, c->ctx->error, sizeof text);
    size_t ranks = (size_t)c->size;
    int *sizes = dro__alloc(2 * ranks, sizeof *sizes), *offsets = sizes + ranks;
    char *all = dro__alloc(ranks, sizeof(dro__head));
    dro__head mine = dro__comm_head(c, status);
    for (size_t r = 0; sizes && r < ranks; r++) {
        sizes[r] = sizeof mine;
        offsets[r] = (int)(r * sizeof mine);
    }
    dro_status agreed = sizes && all
                            ? dro__comm_gather(c, &mine, all, sizes)
                            : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for %d ranks", c->size);
    if (agreed == DRO_OK)
        agreed = dro__comm_heads(c, all, offsets, text);
    if (!c->broken)
        dro__free(all);
    dro__free(sizes);
    return agreed;
}

static void take_larger(double *into, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        into[i] = from[i] > into[i] ? from[i] : into[i];
}

dro_status dro_comm_barrier(dro_comm *c, int *largest)
{
    double value = largest ? *largest : 0;
    DRO_TRY(dro__comm_merge(c, &value, 1, take_larger));
    if (largest)
        *largest = (int)value;
    return DRO_OK;
}

dro_status dro__comm_share_text(dro_comm *c, char **text)
{
    uint64_t size = c->rank == 0 ? strlen(*text) + 1 : 0;
    DRO_TRY(dro__comm_share(c, &size, sizeof size, 0));
    char *copy = dro__alloc(size, 1);
    dro_status status = copy ? DRO_OK : dro__fail(c->ctx, DRO_ERR_MEMORY, "no memory for a text");
    if (copy && c->rank == 0)
        memcpy(copy, *text, size);
    DRO_TRY(dro__comm_agree(c, status));
    DRO_TRY(dro__comm_share(c, copy, size, 0));
    *text = copy;
    return DRO_OK;
}
