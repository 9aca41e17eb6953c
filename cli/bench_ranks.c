/* dro bench ranks: the cost of a step's exchanges between ranks. A problem that computes nothing is
 * spread over them, so that forward only gathers losses and backward only sums a gradient. */
#include "cli.h"

#include <dro/comm.h>
#include <math.h>
#include <stdlib.h>

enum { ROUNDS_MOST = 10000, SIZES = 3, BATCH = 128 };

/* Gradients of the linear model on a small table, of resnet20 and of resnet18. */
static const size_t sizes[SIZES] = {256, 269722, 11180616};

typedef struct timings {
    double gather, sum[SIZES]; /* seconds, the best of the rounds */
} timings;

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    (void)user, (void)w;
    for (size_t i = 0; i < parts[0].count * (size_t)part_count; i++)
        losses[i] = 1;
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)parts, (void)part_count, (void)coef, (void)grads;
    return DRO_OK;
}

/* Gradients of `dim` numbers. */
static dro_status measure(dro_context *ctx, dro_comm *comm, size_t dim, int rounds, double *gather,
                          double *sum)
{
    int64_t ids[BATCH];
    float losses[BATCH], coef[BATCH] = {0}, *grad = calloc(dim, sizeof *grad);
    dro_batch batch = {.count = BATCH, .ids = ids};
    dro_problem problem,
        mine = {
            .size = sizeof mine, .dim = dim, .n = BATCH, .forward = forward, .backward = backward};
    dro_spread *spread = NULL;
    dro_status status = grad ? DRO_OK : DRO_ERR_MEMORY;
    *gather = *sum = INFINITY;
    for (int i = 0; i < BATCH; i++)
        ids[i] = i;
    if (status == DRO_OK)
        status = dro_comm_problem(comm, ctx, &mine, &spread, &problem);
    for (int k = 0; status == DRO_OK && k < rounds; k++) {
        status = dro_comm_barrier(comm, NULL);
        double start = cli_seconds();
        if (status == DRO_OK)
            status = problem.forward(problem.user, grad, &batch, 1, losses);
        double middle = cli_seconds();
        if (status == DRO_OK)
            status = problem.backward(problem.user, grad, &batch, 1, coef, &grad);
        *gather = fmin(*gather, middle - start);
        *sum = fmin(*sum, cli_seconds() - middle);
    }
    dro_comm_problem_free(spread);
    free(grad);
    return status;
}

static int report(const cli_args *args, const dro_comm *comm, const timings *t)
{
    int ranks = dro_comm_size(comm);
    double moved[SIZES];
    for (int k = 0; k < SIZES; k++) /* sent by a rank, by recursive halving and doubling */
        moved[k] = 8.0 * (double)sizes[k] * (1 - 1.0 / ranks);
    if (cli_json(args)) {
        json_t *rows = json_array();
        for (int k = 0; k < SIZES; k++)
            json_array_append_new(rows,
                                  json_pack("{s:I, s:f, s:f}", "numbers", (json_int_t)sizes[k],
                                            "seconds", t->sum[k], "bytes", moved[k]));
        return cli_emit(json_pack("{s:s, s:i, s:i, s:f, s:o}", "machine", cli_cpu(), "ranks", ranks,
                                  "losses", BATCH, "gather_seconds", t->gather, "sums", rows));
    }
    const char *const headers[] = {"exchange", ">ms", ">MB/s sent by a rank"};
    cli_table *table = cli_table_create(3, headers);
    cli_table_cell(table, "losses of a batch of %d", BATCH);
    cli_table_cell(table, "%.3f", 1000 * t->gather);
    cli_table_cell(table, "-");
    for (int k = 0; k < SIZES; k++) {
        cli_table_cell(table, "sum of a gradient of %zu", sizes[k]);
        cli_table_cell(table, "%.3f", 1000 * t->sum[k]);
        cli_table_cell(table, "%.0f", moved[k] / t->sum[k] / 1e6);
    }
    cli_table_print(table);
    printf("\n%s; %d ranks, the best of %lld rounds.\n", cli_cpu(), ranks,
           cli_integer(args, "rounds"));
    return 0;
}

static int run(const cli_args *args)
{
    timings t = {0};
    int rounds = (int)cli_integer(args, "rounds"), result = 0;
    dro_comm *comm = NULL;
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    dro_status status = DRO_OK;
    result = cli_ranks_join(args, ctx, &comm);
    if (!result && dro_comm_size(comm) == 1)
        result = cli_usage("bench ranks needs several ranks: expected mpirun -n 2 dro bench ranks");
    for (int k = 0; status == DRO_OK && !result && k < SIZES; k++)
        status = measure(ctx, comm, sizes[k], rounds, &t.gather, &t.sum[k]);
    if (status != DRO_OK)
        result = cli_fail("bench ranks: %s", dro_context_error(ctx));
    else if (!result && dro_comm_rank(comm) == 0)
        result = report(args, comm, &t);
    dro_comm_close(comm);
    dro_context_destroy(ctx);
    return result;
}

static const cli_option options[] = {
    {"rounds", CLI_INTEGER, "N", "100", 1, ROUNDS_MOST, "rounds; the best one is printed"},
    CLI_OPTIONS_END,
};

const cli_command bench_ranks = {
    .name = "bench ranks",
    .usage = "[--rounds N] [--json]",
    .summary = "time of the communication in a step, under mpirun",
    .details =
        "mpirun -n 4 dro bench ranks times the communication in a step of a run on several\n"
        "ranks: gathering the losses of a batch, and summing gradients as long as those of a\n"
        "linear model, of resnet20 and of resnet18.",
    .options = options,
    .ranks = true,
    .run = run,
};
