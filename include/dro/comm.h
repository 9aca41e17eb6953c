/* Ranks: several processes, on one machine or many, that train one model together.
 *
 *     mpirun -n 4 ./program                       // or srun; each process calls:
 *
 *     dro_comm_open(ctx, &comm);                  // NULL when the process was started alone
 *     dro_comm_problem(comm, ctx, &mine, &spread, &problem); // a dro_problem like any other
 *     dro_optimizer_create(ctx, "recover", &problem, &opt) ...
 *     dro_comm_close(comm);
 *
 * Every rank makes the same calls with the same settings and data. Each rank evaluates its share of
 * a batch; losses are gathered and gradients summed. So every optimiser works unchanged, and all
 * ranks have bitwise the same state. An error of one rank is an error of all. When a rank is
 * killed, stopped or disconnected, the calls of the others fail within a few seconds, with a text
 * that names the rank.
 *
 * Experimental. */
#ifndef DRO_COMM_H
#define DRO_COMM_H

#include <dro/context.h>
#include <dro/problem.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_comm dro_comm;

/* What mpirun or srun says about this process, before it has joined: how many ranks were started
 * (1: this one alone), which one this is, and how many are on this machine (each may be NULL). */
DRO_API int dro_comm_started(int *rank, int *local);
/* Joins the ranks that mpirun or srun has started together with this process; *comm is NULL when
 * it was started alone (unless DRO_NCCL in the environment requests NCCL for a single rank). Once
 * per process. ctx receives the error texts and must outlive *comm. */
DRO_API dro_status dro_comm_open(dro_context *ctx, dro_comm **comm);
/* All ranks must call it; it waits for them. A rank that is killed or stopped meanwhile ends the
 * processes of the others with exit status 1 and a line on standard error, since MPI_Finalize
 * cannot be interrupted. After a failure it returns at once. NULL is fine. */
DRO_API void dro_comm_close(dro_comm *comm);
DRO_API int dro_comm_rank(const dro_comm *comm); /* NULL: 0 */
DRO_API int dro_comm_size(const dro_comm *comm); /* NULL: 1 */
/* Makes the calls of all ranks fail with this text and the number of this rank. */
DRO_API void dro_comm_fail(dro_comm *comm, const char *text);
/* Whether this rank should print: rank 0, or if that is gone, the first remaining one. */
DRO_API bool dro_comm_prints(const dro_comm *comm);

/* DRO_OK, or a failure that names the rank that is gone; does not wait. NULL is fine. */
DRO_API dro_status dro_comm_check(dro_comm *comm);
/* Waits until all ranks have made this call; *largest (optional) becomes the largest value that any
 * rank passed. */
DRO_API dro_status dro_comm_barrier(dro_comm *comm, int *largest);

/* What this rank has sent, and how long it has waited. */
typedef struct dro_comm_traffic {
    uint64_t messages, bytes;
    double seconds;
} dro_comm_traffic;
DRO_API dro_comm_traffic dro_comm_traffic_get(const dro_comm *comm);

/* *problem distributes `mine` over the ranks; both are borrowed from *spread, which
 * dro_comm_problem_free() frees. mine->draw and mine->gather, if set, are called for this rank's
 * share. */
typedef struct dro_spread dro_spread;
DRO_API dro_status dro_comm_problem(dro_comm *comm, dro_context *ctx, const dro_problem *mine,
                                    dro_spread **spread, dro_problem *problem);
DRO_API void dro_comm_problem_free(dro_spread *spread); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
