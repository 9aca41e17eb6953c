/* base: what every room uses. Status with text, allocation, counter-based random numbers, a
 * permutation without memory, described parameters, and the archive that saves and restores state.
 * Sees nothing of the other rooms. */
#ifndef DRO_BASE_H
#define DRO_BASE_H

#include <dro/context.h>
#include <dro/param.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRO_TRY(call)                                                                              \
    do {                                                                                           \
        dro_status try_status_ = (call);                                                           \
        if (try_status_ != DRO_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* ---- launch.c: what mpirun or srun says in the environment ---- */

/* The value of the first of these environment variables that is set; else `usual`. */
int dro__environment_number(const char *const *names, int usual);
/* The index of this process among the ranks of its machine; 0 when it was started alone. */
int dro__local_rank(void);

/* ---- context ---- */

struct dro__backend; /* src/backend */

enum { DRO__ERROR_SIZE = 512 };

struct dro_context {
    const struct dro__backend *backend;
    int threads;
    struct dro__pool *pool; /* NULL for one thread */
    char error[DRO__ERROR_SIZE];
    void *lent; /* arrays that are data (src/data/format_arrays.c), and what frees the list */
    void (*lent_free)(void *list);
    bool fixed_pieces; /* evaluations are cut alike whatever the number of threads: exact=yes */
    /* (optional) asked while a pipe is silent: true ends it */
    bool (*read_stop)(void *user);
    void *read_stop_user;
    double read_until; /* by CLOCK_MONOTONIC: inputs opened now end then; 0: they have no limit */
};

/* Writes the error text and returns status, so that a failure is one line: return
 * dro__fail(...). */
dro_status dro__fail(dro_context *ctx, dro_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A public call begins: clears the text of an earlier failure. */
static inline void dro__forget(dro_context *ctx)
{
    ctx->error[0] = '\0';
}
/* The end of a public call that succeeded although a call inside it may have failed. */
static inline dro_status dro__done(dro_context *ctx, dro_status status)
{
    if (status == DRO_OK)
        dro__forget(ctx);
    return status;
}

/* A struct that a user has filled, whose first member is its size: copied, members that a program
 * built with older headers does not know as zeros. Refused where the size is none, or that of newer
 * headers. */
dro_status dro__take_struct(dro_context *ctx, const char *type, const void *from, void *to,
                            size_t size);

/* ---- memory ---- */

/* Zeroed, 64-byte aligned, NULL when there is none or count*size overflows. */
void *dro__alloc(size_t count, size_t size);
void dro__free(void *pointer);
/* For code that continues with a partial result when an allocation fails. dro__memory_watch begins
 * to watch this thread, dro__memory_ran_out says whether an allocation has failed since,
 * dro__memory_lost records a failure outside of dro__alloc. */
void dro__memory_watch(void);
bool dro__memory_ran_out(void);
void dro__memory_lost(void);
/* dro__memory_watch() that sees jansson's allocations too. */
void dro__json_watch(void);
void dro__json_free(char *text); /* of json_dumps() */

/* ---- UTF-8 ---- */

/* Bytes of the letter at text, 0 if it is not UTF-8 (or the end). */
int dro__utf8_length(const char *text);
/* The first byte that is not UTF-8, or NULL. */
const char *dro__utf8_wrong(const char *text, size_t size);
/* A copy in UTF-8: other bytes become \xNN. NULL when there is no memory; dro__free() it. */
char *dro__utf8_show(const char *text);
/* In place, for a line on a terminal: control characters become \xNN, too. What does not fit is
 * cut. */
void dro__utf8_escape(char text[DRO__ERROR_SIZE]);

/* ---- random numbers: a value is a pure function of (seed, stream, counter) ---- */

uint64_t dro__random(uint64_t seed, uint64_t stream, uint64_t counter);
double dro__random_unit(uint64_t seed, uint64_t stream, uint64_t counter);   /* [0, 1) */
double dro__random_normal(uint64_t seed, uint64_t stream, uint64_t counter); /* N(0, 1) */
/* Uniform in 0..n-1. */
uint64_t dro__random_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n);
/* Example weights, normalised to mean 1, as sums: (n + 1) from 0 to n. False: a weight is negative
 * or not finite, or none is above 0. */
bool dro__weights_sum(const float *weights, int64_t n, double *sums);
/* The example in whose share of [0, n) a place falls. Places 0.3, 1.3, ... n - 0.7 take each as
 * often as its weight says, rounded up or down. */
int64_t dro__weights_pick(const double *sums, int64_t n, double place);
/* Where `index` goes in a pseudo-random permutation of 0..n-1 chosen by key; O(1) memory. */
uint64_t dro__permute(uint64_t n, uint64_t key, uint64_t index);

/* ---- lambda log mean exp(x / lambda), x by x ---- */

/* `less` keeps the result accurate for a large lambda, where all exponentials are nearly 1. */
typedef struct dro__tilted {
    double top, sum, less,
        mass; /* largest x; sums of w exp((x - top)/lambda), of w (exp(..) - 1), of w */
} dro__tilted;

void dro__tilted_add(dro__tilted *t, double lambda, double x, double w); /* begin with {0} */
double dro__tilted_mean(const dro__tilted *t, double lambda);

/* ---- threads ---- */

typedef struct dro__pool dro__pool;

/* *pool is NULL for one thread, and every call below takes NULL: it runs on the caller alone. */
dro_status dro__pool_create(int threads, dro__pool **pool);
void dro__pool_destroy(dro__pool *pool);
int dro__pool_threads(const dro__pool *pool);
/* body(task, k) for every k < count, in any order, on all threads; returns when all are done. Not
 * to be called from a body, nor from two threads at once. */
void dro__pool_run(dro__pool *pool, size_t count, void (*body)(void *task, size_t k), void *task);

/* ---- described parameters ---- */

enum { DRO__LIST_MAX = 16, DRO__TEXT_MAX = 4096 };

typedef struct dro__list {
    int count;
    double values[DRO__LIST_MAX];
} dro__list;

/* A row: the public description and where the value lives in the settings struct (a double, an
 * int64_t, an int32_t index into the choices, a dro__list, or DRO__TEXT_MAX characters). */
typedef struct dro__param_row {
    dro_param about;
    size_t offset;
} dro__param_row;

/* Up to this many tables are searched one after another; a table ends with a NULL name. A later
 * table may repeat a name of an earlier one to give it another default: the later row counts. */
enum { DRO__TABLE_MAX = 8 };

/* The row in force for the i-th distinct name, or NULL past the last. */
const dro__param_row *dro__param_at(const dro__param_row *const *tables, int index);
const dro__param_row *dro__param_find(const dro__param_row *const *tables, const char *name);
/* All defaults into settings. The tables' own defaults must parse (a test checks them all). */
dro_status dro__params_reset(dro_context *ctx, const dro__param_row *const *tables, void *settings);
dro_status dro__params_set(dro_context *ctx, const dro__param_row *const *tables, void *settings,
                           const char *owner, const char *name, const char *value);
/* Whether a row allows a value. owner: whose parameter it is, or NULL. */
dro_status dro__param_check(dro_context *ctx, const dro__param_row *row, const char *owner,
                            const char *value);
/* The same; text gets the value, whole numbers and times as plain numbers. */
dro_status dro__param_normal(dro_context *ctx, const dro__param_row *row, const char *owner,
                             const char *value, char text[DRO__TEXT_MAX]);
void dro__params_print(const dro__param_row *row, const void *settings, char *text, size_t size);

/* ---- archive: one walk over the fields serves measuring, saving and loading ---- */

typedef enum dro__archive_mode {
    DRO__ARCHIVE_MEASURE,
    DRO__ARCHIVE_SAVE,
    DRO__ARCHIVE_LOAD
} dro__archive_mode;

typedef struct dro__archive {
    dro__archive_mode mode;
    unsigned char *bytes; /* SAVE: written, LOAD: read */
    size_t size, used;
    bool failed;       /* ran past the end, or a copy failed: */
    dro_status status; /* of that */
    /* SAVE, optional: writes out `bytes` when it is full, and sets `used` to 0. */
    dro_status (*flush)(struct dro__archive *ar);
    void *user; /* of flush */
} dro__archive;

void dro__archive_bytes(dro__archive *ar, void *data, size_t size);
/* SAVE and LOAD: how many of `size` bytes can be copied at bytes + used; 0: it has failed. */
size_t dro__archive_some(dro__archive *ar, size_t size);
/* A truth value; anything but 0 and 1 fails the load. */
void dro__archive_flag(dro__archive *ar, bool *flag);
#define DRO__ARCHIVE(ar, object) dro__archive_bytes((ar), &(object), sizeof(object))
/* 64-bit FNV-1a, continued from `hash` (start with 0). */
uint64_t dro__checksum(uint64_t hash, const void *data, size_t size);
/* For megabytes: eight bytes at a time, in four lanes. Continued from `hash` (start with 0) where
 * every piece but the last has a multiple of DRO__SUM_BLOCK bytes. */
enum { DRO__SUM_BLOCK = 1 << 16 };
uint64_t dro__checksum_long(uint64_t hash, const void *data, size_t size);

#ifdef DRO_LINT /* analyzers see one file: this is what dro__fail() returns */
#define dro__fail(ctx, status, ...) (dro__fail(ctx, status, __VA_ARGS__), (status))
#endif

#endif
