/* Asynchronous steps over two ranks (queue.c, norm_sync.c, comm/spread_queue.c, comm/device.c).
 * With batch norm over both ranks, they end with the weights of one rank. Both ranks have the same
 * bits. If the loss of one rank makes a step refused, both ranks refuse it at the same step as a
 * single rank does. When a rank is killed, the other one, which waits for it in NCCL, ends with an
 * error that names it. */
#include "steps.h"
#include "comm.h"
#include "nn.h"
#include "ranks.h"
#include "stand_ins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXAMPLES = 40, CLASSES = 4, SIDE = 6, IMAGE = 3 * SIDE * SIDE, STEPS = 14, DIM_MOST = 4096 };
enum { BATCH = 7, RING = 8 };

typedef struct result {
    float w[DIM_MOST];
    size_t dim;
    int refused_at; /* the call that said so; -1: none */
    bool queued, ended;
    char error[DRO__ERROR_SIZE];
} result;

typedef struct task {
    dro_context *ctx;
    dro_net *net;
    uint8_t pixels[EXAMPLES * IMAGE];
    dro_net_images images;
    int64_t ids[RING][2 * BATCH];
    int32_t classes[RING][2 * BATCH], labels[RING][2 * BATCH];
    unsigned drawn, fetched;
    dro_problem problem;
} task;

typedef struct plan {
    const char *optimizer, *settings;
    int64_t spoilt; /* a step; -1: none */
    bool synced;    /* batch norm is over both ranks */
    int64_t killed; /* the step in which rank 1 is; 0: none */
} plan;

static dro_status draw_batch(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    task *t = user;
    unsigned slot = t->drawn++ % RING;
    for (size_t i = 0; i < count; i++) {
        t->ids[slot][i] = (int64_t)((position + i) * 7 % EXAMPLES);
        t->classes[slot][i] = (int32_t)(t->ids[slot][i] % CLASSES);
    }
    batch->count = count;
    batch->ids = t->ids[slot];
    batch->classes = t->classes[slot];
    return DRO_OK;
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    task *t = user;
    int32_t *labels = t->labels[t->fetched++ % RING];
    for (size_t i = 0; i < batch->count; i++)
        labels[i] = (int32_t)(batch->ids[i] % CLASSES);
    *out = (dro_net_batch){
        .count = batch->count, .images = &t->images, .ids = batch->ids, .labels = labels};
    return DRO_OK;
}

static dro_status make(task *t)
{
    static const float scale[3] = {1 / 64.0f, 1 / 64.0f, 1 / 64.0f}, shift[3] = {-2, -2, -2};
    static const double shares[CLASSES] = {0.25, 0.25, 0.25, 0.25};
    uint64_t state = 5;
    for (size_t i = 0; i < sizeof t->pixels; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        t->pixels[i] = (uint8_t)(state >> 56);
    }
    DRO_TRY(dro_net_create(t->ctx, 3, SIDE, SIDE, &t->net));
    dro_node x = dro_net_conv(t->net, "a", dro_net_input(t->net), 16, 3, 1, 1);
    dro_node y = dro_net_relu(t->net, dro_net_norm(t->net, "an", x));
    x = dro_net_norm(t->net, "bn", dro_net_conv(t->net, "b", y, 16, 3, 1, 1));
    x = dro_net_global_pool(t->net, dro_net_relu(t->net, dro_net_add(t->net, x, y)));
    dro_net_output(t->net, dro_net_linear(t->net, "fc", x, CLASSES));
    DRO_TRY(dro_net_set(t->net, "deterministic", "yes"));
    DRO_TRY(dro_net_ready(t->net));
    DRO_TRY(dro_net_init(t->net, 3));
    DRO_TRY(dro_net_images_create(t->ctx, t->pixels, sizeof t->pixels, scale, shift, &t->images));
    dro_net_source source = {.size = sizeof source,
                             .user = t,
                             .fetch = fetch,
                             .draw = draw_batch,
                             .n = EXAMPLES,
                             .classes = CLASSES,
                             .class_share = shares,
                             .images = true};
    return dro_net_problem(t->net, &source, &t->problem);
}

static dro_status take_steps(dro_optimizer *opt, result *out)
{
    out->refused_at = -1;
    for (int k = 0; k < STEPS; k++) {
        dro_status status = dro_optimizer_step(opt);
        if (status == DRO_ERR_NUMBER && out->refused_at < 0) {
            out->refused_at = k;
            status = dro_optimizer_skip(opt);
        }
        DRO_TRY(status);
    }
    return dro_optimizer_weights(opt, out->w);
}

static dro_status optimise(task *t, const plan *p, const dro_problem *problem, result *out)
{
    dro_optimizer *opt = NULL;
    char text[128], *rest = NULL;
    dro_status status = dro_optimizer_create(t->ctx, p->optimizer, problem, &opt);
    snprintf(text, sizeof text, "batch=7 eta=0.01 %s", p->settings);
    for (char *pair = strtok_r(text, " ", &rest); status == DRO_OK && pair;
         pair = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(pair, '=');
        *value++ = '\0';
        status = dro_optimizer_set(opt, pair, value);
    }
    if (status == DRO_OK)
        status = dro_optimizer_start(opt, dro_net_weights(t->net));
    out->dim = dro_net_dim(t->net);
    out->queued = problem->library != NULL;
    if (status == DRO_OK)
        status = take_steps(opt, out);
    dro_optimizer_destroy(opt);
    return status;
}

static void merge(void *user, double *values, size_t count, dro__net_merge how)
{
    (void)!dro__comm_merge(user, values, count, how);
}

static dro_status spread_out(task *t, const plan *p, dro_comm *comm, result *out)
{
    char why[200];
    dro_spread *spread = NULL;
    dro_problem problem;
    DRO_TRY(dro__comm_open_device(comm, t->ctx->backend, true, why, sizeof why));
    if (*why)
        return dro__fail(t->ctx, DRO_ERR_STATE, "no way between the devices: %s", why);
    t->net->sync = (dro__net_sync){.device = comm->device};
    if (p->synced)
        t->net->sync.user = comm, t->net->sync.merge = merge;
    dro__spread_options o = {.together = p->synced};
    dro_status status = dro__spread_create(comm, t->ctx, &t->problem, &o, &spread, &problem);
    if (status == DRO_OK)
        status = optimise(t, p, &problem, out);
    dro_comm_problem_free(spread);
    return status;
}

/* One run, alone or as one of the two ranks. */
static void train(const plan *p, bool alone, int rank, result *out)
{
    task *t = calloc(1, sizeof *t);
    dro_comm *comm = NULL;
    if (!t)
        abort();
    stand_ins_begin(false, false);
    stand_ins_spoil(alone || rank == 1 ? p->spoilt : -1);
    stand_ins_die(!alone && rank == 1 && p->killed ? p->killed : -1);
    dro_context_create("cuda", 1, &t->ctx);
    dro_status status = make(t);
    if (status == DRO_OK && !alone)
        status = dro__comm_join(t->ctx, &two_ranks_engine, &comm);
    if (status == DRO_OK)
        status = alone ? optimise(t, p, &t->problem, out) : spread_out(t, p, comm, out);
    snprintf(out->error, sizeof out->error, "%s", dro_context_error(t->ctx));
    if (status != DRO_OK && !p->killed)
        printf("  %s, rank %d: %s\n", p->optimizer, rank, out->error);
    out->ended = status == DRO_OK;
    dro_net_destroy(t->net);
    dro_net_images_free(t->ctx, &t->images);
    dro_comm_close(comm);
    dro_context_destroy(t->ctx);
    free(t);
}

static bool apart(const result *a, const result *b, double bound)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < b->dim; i++) {
        difference += pow((double)a->w[i] - (double)b->w[i], 2);
        size += pow((double)b->w[i], 2);
    }
    if (sqrt(difference) <= bound * sqrt(size))
        return false;
    printf("  weights differ by %.3g of %.3g\n", sqrt(difference), sqrt(size));
    return true;
}

static bool check(const plan *p)
{
    static result one;
    void *bytes;
    train(p, true, 0, &one);
    int rank = two_ranks_begin(2 * sizeof(result), &bytes);
    if (rank < 0)
        return false;
    result *of = bytes;
    train(p, false, rank, &of[rank]);
    bool ok = two_ranks_end(rank) && one.ended && of[0].ended && of[1].ended;
    ok = ok && one.queued && of[0].queued && of[1].queued;
    ok = ok && memcmp(of[0].w, of[1].w, sizeof of[0].w) == 0;
    ok = ok && of[0].refused_at == one.refused_at && of[1].refused_at == one.refused_at;
    ok = ok && (one.refused_at >= 0) == (p->spoilt >= 0);
    ok = ok && (!p->synced || !apart(&of[0], &one, 1e-5));
    if (!ok)
        printf("%s %s on two ranks: ended %d %d %d, queued %d %d %d, the same bits %d, refused at "
               "call %d, %d, %d\n",
               p->optimizer, p->settings, one.ended, of[0].ended, of[1].ended, one.queued,
               of[0].queued, of[1].queued, memcmp(of[0].w, of[1].w, sizeof of[0].w) == 0,
               one.refused_at, of[0].refused_at, of[1].refused_at);
    two_ranks_free(bytes, 2 * sizeof(result));
    return ok;
}

static bool check_killed(void)
{
    enum { LIMIT_SECONDS = 10 };
    static const plan p = {"sgd", "", -1, true, 6};
    void *bytes;
    int rank = two_ranks_begin(2 * sizeof(result), &bytes);
    if (rank < 0)
        return false;
    result *of = bytes;
    time_t began = time(NULL);
    train(&p, false, rank, &of[rank]);
    long took = (long)(time(NULL) - began);
    bool well = two_ranks_end(rank), named = strstr(of[0].error, "rank 1 on ") != NULL;
    bool ok = !well && !of[0].ended && named && took <= LIMIT_SECONDS;
    if (!ok)
        printf("a rank that is killed: the other one %s after %ld s: %s\n",
               of[0].ended ? "ended well" : "failed", took, of[0].error);
    two_ranks_free(bytes, 2 * sizeof(result));
    return ok;
}

int check_steps(void)
{
    static const plan plans[] = {
        {"sgd", "", -1, true, 0},
        {"recover", "", -1, true, 0},
        {"recover", "tilt=class", -1, true, 0},
        {"ascpg", "", -1, true, 0},
        {"adamw", "", -1, false, 0},
        {"sgd", "sam=0.05", -1, true, 0},
        {"sgd", "", 5, true, 0},
        {"recover", "", 3, true, 0},
        {"recover", "tilt=class", 0, false, 0},
    };
    int failures = 0, count = sizeof plans / sizeof plans[0];
    for (int k = 0; k < count; k++)
        failures += !check(&plans[k]);
    failures += !check_killed();
    printf("%d runs of asynchronous steps on two ranks, and one of them killed; "
           "%d failures\n",
           count, failures);
    return failures;
}
