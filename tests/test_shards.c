/* A network in shards: twins that share weights and running statistics and meet in their batch
 * norms give the losses, gradients and statistics of the whole batch, and the same bits for any
 * number of threads. */
#include "check.h"
#include "comm.h"
#include "nn.h"

enum { SHARDS = 8, SIDE = 6, CLASSES = 3, BATCH = 27, OTHER = 20, EXAMPLES = BATCH + OTHER };
enum { PIXELS = 2 * SIDE * SIDE };

static float x[EXAMPLES * PIXELS];
static int32_t labels[EXAMPLES];

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    (void)user;
    size_t first = (size_t)batch->position;
    *out =
        (dro_net_batch){.count = batch->count, .x = x + first * PIXELS, .labels = labels + first};
    return DRO_OK;
}

static const dro_net_source source = {
    .size = sizeof(dro_net_source), .fetch = fetch, .n = EXAMPLES};

/* Two norms after convolutions, one of its own, a residual. No ReLU: its input may be 0 up to
 * rounding. */
static dro_net *make_net(dro_context *ctx)
{
    dro_net *net;
    dro_window three = {.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}};
    OK(ctx, dro_net_create(ctx, 2, SIDE, SIDE, &net));
    dro_node in = dro_net_input(net);
    dro_node a = dro_net_norm(net, "n1", dro_net_conv(net, "c1", in, 8, 3, 1, 1));
    dro_node b = dro_net_norm(net, "n2", dro_net_conv_window(net, "c2", a, 8, &three, true));
    dro_node c = dro_net_norm(net, "n3", dro_net_add(net, a, b));
    dro_node pooled = dro_net_global_pool(net, c);
    dro_net_output(net, dro_net_linear(net, "fc", pooled, CLASSES));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 5));
    return net;
}

typedef struct outcome {
    float losses[EXAMPLES];
    float *grads[2], *statistics;
    size_t dim, statistics_count;
} outcome;

static void call(dro_context *ctx, const dro_net *net, const dro_problem *p, outcome *out)
{
    float coef[EXAMPLES];
    dro_batch parts[2] = {{.position = 0, .count = BATCH}, {.position = BATCH, .count = OTHER}};
    int64_t ids[EXAMPLES];
    for (int i = 0; i < EXAMPLES; i++) {
        coef[i] = (float)check_uniform(5, (uint64_t)i, 0, 1);
        ids[i] = i;
    }
    parts[0].ids = ids;
    parts[1].ids = ids + BATCH;
    out->dim = dro_net_dim(net);
    out->statistics_count = dro_net_statistics_count(net);
    for (int k = 0; k < 2; k++)
        out->grads[k] = calloc(out->dim, sizeof(float));
    out->statistics = calloc(out->statistics_count, sizeof(float));
    for (int turn = 0; turn < 2; turn++) {
        OK(ctx, p->forward(p->user, dro_net_weights(net), parts, 2, out->losses));
        OK(ctx, p->backward(p->user, dro_net_weights(net), parts, 2, coef, out->grads));
        p->accept(p->user);
    }
    OK(ctx, dro_net_statistics(net, out->statistics));
}

static void meet(void *user, double *values, size_t count, dro__net_merge how)
{
    void **pair = user;
    dro__team_merge(pair[0], (int)(intptr_t)pair[1], values, count, how);
}

static void run(const char *backend, int shards, int threads, outcome *out)
{
    dro_context *ctx = check_context(backend, 1), *contexts[SHARDS];
    dro_net *net = make_net(ctx), *twins[SHARDS];
    dro_problem whole, problems[SHARDS], problem;
    dro_spread *spread = NULL;
    dro__team *team = NULL;
    void *pairs[SHARDS][2];
    OK(ctx, dro_net_problem(net, &source, &whole));
    problem = whole;
    if (shards)
        OK(ctx, dro__team_create(NULL, ctx, shards, threads, &team));
    for (int k = 0; k < shards; k++) {
        contexts[k] = check_context(backend, 1);
        OK(contexts[k], dro__net_twin(net, contexts[k], &twins[k]));
        OK(contexts[k], dro_net_problem(twins[k], &source, &problems[k]));
        pairs[k][0] = team;
        pairs[k][1] = (void *)(intptr_t)k;
        twins[k]->sync = (dro__net_sync){.user = pairs[k], .merge = meet};
    }
    dro__spread_options o = {.shards = shards,
                             .problems = problems,
                             .contexts = contexts,
                             .team = team,
                             .together = true};
    if (shards)
        OK(ctx, dro__spread_create(NULL, ctx, &whole, &o, &spread, &problem));
    call(ctx, net, &problem, out);
    dro_comm_problem_free(spread);
    dro__team_destroy(team);
    for (int k = 0; k < shards; k++) {
        dro_net_destroy(twins[k]);
        dro_context_destroy(contexts[k]);
    }
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static void forget(outcome *out)
{
    free(out->grads[0]);
    free(out->grads[1]);
    free(out->statistics);
}

static void near(const char *what, const float *a, const float *b, size_t count)
{
    double top = 0;
    for (size_t i = 0; i < count; i++)
        top = fmax(top, fabs((double)b[i]));
    for (size_t i = 0; i < count; i++)
        check_near(what, (double)a[i], (double)b[i], 2e-5 * top);
}

static void test_as_a_whole(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (size_t k = 0; k < 2; k++) {
        outcome whole, shards;
        run(backends[k], 0, 1, &whole);
        run(backends[k], SHARDS, 2, &shards);
        near("losses", shards.losses, whole.losses, EXAMPLES);
        near("gradient", shards.grads[0], whole.grads[0], whole.dim);
        near("gradient of part 1", shards.grads[1], whole.grads[1], whole.dim);
        near("statistics", shards.statistics, whole.statistics, whole.statistics_count);
        forget(&whole);
        forget(&shards);
    }
}

static void test_threads(void **state)
{
    (void)state;
    outcome one, many;
    run("cpu", SHARDS, 1, &one);
    for (int threads = 2; threads < 10; threads += 3) {
        run("cpu", SHARDS, threads, &many);
        assert_memory_equal(one.losses, many.losses, sizeof one.losses);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(one.grads[k], many.grads[k], one.dim * sizeof(float));
        assert_memory_equal(one.statistics, many.statistics, one.statistics_count * sizeof(float));
        forget(&many);
    }
    forget(&one);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_a_whole),
        cmocka_unit_test(test_threads),
    };
    for (uint64_t i = 0; i < EXAMPLES * PIXELS; i++)
        x[i] = (float)check_uniform(9, i, -1, 1) + (float)(i / PIXELS % 5);
    for (uint64_t i = 0; i < EXAMPLES; i++)
        labels[i] = (int32_t)(i % CLASSES);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
