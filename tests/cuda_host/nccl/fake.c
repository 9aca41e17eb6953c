/* A stand-in for NCCL, which src/backend/cuda/nccl.c opens, between the two ranks of ../ranks.c. A
 * sum is computed when it is queued. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID = 4, REMOTE = 6, FLOAT = 7, DOUBLE = 8 };
enum { NAME = 7, ID = 128 };

typedef struct unique_id {
    char internal[ID];
} unique_id;

typedef struct comm {
    int rank;
    atomic_bool ended;
} comm;

/* ../ranks.c */
bool two_ranks_sum(const void *from, void *to, size_t count, bool doubles, atomic_bool *ended);

int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id *id);
int ncclCommInitRank(void **made, int ranks, unique_id id, int rank);
int ncclCommDestroy(void *c);
int ncclCommAbort(void *c);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *c, void *s);
int ncclGroupStart(void);
int ncclGroupEnd(void);
const char *ncclGetErrorString(int code);

int ncclGetVersion(int *version)
{
    *version = 22803;
    return SUCCESS;
}

int ncclGetUniqueId(unique_id *id)
{
    memset(id->internal, NAME, sizeof id->internal);
    return SUCCESS;
}

/* Only with sums in a fixed order, which is what the test asks for. */
int ncclCommInitRank(void **made, int ranks, unique_id id, int rank)
{
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    comm *c = calloc(1, sizeof *c);
    if (!c || ranks != 2 || id.internal[ID - 1] != NAME || !nvls || strcmp(nvls, "0") != 0) {
        free(c);
        return INVALID;
    }
    c->rank = rank;
    *made = c;
    return SUCCESS;
}

int ncclCommDestroy(void *c)
{
    free(c);
    return SUCCESS;
}

int ncclCommAbort(void *c)
{
    atomic_store(&((comm *)c)->ended, true);
    return SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *c, void *s)
{
    (void)s;
    if (op != 0 || (type != FLOAT && type != DOUBLE))
        return INVALID;
    return two_ranks_sum(from, to, count, type == DOUBLE, &((comm *)c)->ended) ? SUCCESS : REMOTE;
}

static int depth;

int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    return depth-- > 0 ? SUCCESS : SYSTEM_ERROR;
}

const char *ncclGetErrorString(int code)
{
    return code == REMOTE ? "remote process exited" : "invalid argument";
}
