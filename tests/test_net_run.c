/* Networks that run: settings and losses, the calls' order and checks, running statistics, dropout,
 * and a network as a problem. Over every backend of this build. */
#include "check.h"
#include "nn.h"

static void each_backend(void (*body)(dro_context *ctx))
{
    for (int k = 0; dro_backend_name(k); k++) {
        dro_context *ctx = check_context(dro_backend_name(k), 2);
        body(ctx);
        dro_context_destroy(ctx);
    }
}

/* ---- settings and losses ---- */

static void settings(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    dro_model_shape shape = {2, 1, 1, 3};
    dro_net *net;
    dro_param p;
    int count = 0;
    while (dro_net_param(count, &p) == DRO_OK)
        count++;
    assert_int_equal(count, 6 + DRO__LOSS_SETTING_COUNT);
    assert_int_equal(dro_net_param(count, &p), DRO_ERR_END);
    assert_int_equal(dro_net_param(-1, &p), DRO_ERR_END);
    OK(ctx, dro_net_model(ctx, "linear", &shape, &net));
    FAILS(ctx, dro_net_set(net, "loss", "hinge"), DRO_ERR_RANGE, "loss");
    FAILS(ctx, dro_net_set(net, "los", "focal"), DRO_ERR_NAME, "los");
    FAILS(ctx, dro_net_set(net, "smoothing", "2"), DRO_ERR_RANGE, "smoothing");
    OK(ctx, dro_net_set(net, "loss", "logit-adjusted"));
    FAILS(ctx, dro_net_ready(net), DRO_ERR_STATE, "the share of each of the 3 classes");
    const double zero[3] = {0}, negative[3] = {1, -1, 1}, share[3] = {2, 1, 1};
    FAILS(ctx, dro_net_prior(net, share, 2), DRO_ERR_ARGUMENT, "one share for each output");
    FAILS(ctx, dro_net_prior(net, zero, 3), DRO_ERR_RANGE, "all zero");
    FAILS(ctx, dro_net_prior(net, negative, 3), DRO_ERR_RANGE, "class 1 has a share of -1");
    OK(ctx, dro_net_prior(net, share, 3));
    OK(ctx, dro_net_ready(net));
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

/* One example with logits (1, -2, 0.5), as the biases of a linear layer on zeros. */
static double loss_of(dro_context *ctx, const char *loss, const char *name, const char *value,
                      int32_t label, const float *targets)
{
    const double share[3] = {0.7, 0.2, 0.1};
    const float w[9] = {0, 0, 0, 0, 0, 0, 1, -2, 0.5f}, x[2] = {0};
    dro_model_shape shape = {2, 1, 1, 3};
    dro_net_batch batch = {
        .count = 1, .x = x, .labels = targets ? NULL : &label, .targets = targets};
    dro_net *net;
    float train, evaluated, logits[3];
    OK(ctx, dro_net_model(ctx, "linear", &shape, &net));
    OK(ctx, dro_net_set(net, "loss", loss));
    if (name)
        OK(ctx, dro_net_set(net, name, value));
    OK(ctx, dro_net_prior(net, share, 3));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_forward(net, w, &batch, 1, &train));
    OK(ctx, dro_net_evaluate(net, w, &batch, logits, &evaluated));
    check_near("training and evaluation", (double)train, (double)evaluated, 1e-6);
    for (int j = 0; j < 3; j++)
        check_near("logit", (double)logits[j], (double)w[6 + j], 1e-6);
    dro_net_destroy(net);
    return (double)train;
}

static void check_losses(dro_context *ctx)
{
    double e[3] = {exp(1), exp(-2), exp(0.5)}, sum = e[0] + e[1] + e[2];
    double tilted = 0.7 * e[0] + 0.2 * e[1] + 0.1 * e[2], p = e[2] / sum;
    const float targets[3] = {0.5f, 0, 1};
    check_near("cross-entropy", loss_of(ctx, "cross-entropy", NULL, NULL, 1, NULL),
               -log(e[1] / sum), 1e-6);
    check_near("smoothing", loss_of(ctx, "cross-entropy", "smoothing", "0.3", 0, NULL),
               -0.7 * log(e[0] / sum) - 0.1 * log(e[0] * e[1] * e[2] / (sum * sum * sum)), 1e-6);
    check_near("focal", loss_of(ctx, "focal", "focal_gamma", "2", 2, NULL),
               -(1 - p) * (1 - p) * log(p), 1e-6);
    check_near("logit-adjusted", loss_of(ctx, "logit-adjusted", NULL, NULL, 2, NULL),
               -log(0.1 * e[2] / tilted), 1e-6);
    double shrunk =
        exp(-2 - 0.5 * pow(0.1 / 0.2, 0.25)); /* the rarest class has 0.1, this one 0.2 */
    check_near("ldam", loss_of(ctx, "ldam", NULL, NULL, 1, NULL),
               -log(shrunk / (e[0] + shrunk + e[2])), 1e-6);
    check_near("squared", loss_of(ctx, "squared", NULL, NULL, 0, NULL), (4 + 0.25) / 2, 1e-6);
    check_near("squared", loss_of(ctx, "squared", NULL, NULL, 0, targets), (0.25 + 4 + 0.25) / 2,
               1e-6);
    check_near("logistic", loss_of(ctx, "logistic", NULL, NULL, 0, NULL),
               log1p(exp(-1)) + log1p(exp(-2)) + log1p(exp(0.5)), 1e-6);
    check_near("logistic", loss_of(ctx, "logistic", NULL, NULL, 0, targets),
               log1p(exp(1)) + log1p(exp(-2)) + log1p(exp(-0.5)), 1e-6);
}

static void losses(void **state)
{
    (void)state;
    each_backend(check_losses);
}

/* Very sure and very wrong outputs: losses and slopes stay finite. */
static void extreme_logits(void **state)
{
    (void)state;
    const double gammas[] = {0, 0.001, 0.5, 2}, far[] = {700, 40, -40, -1e4};
    for (size_t g = 0; g < 4; g++)
        for (size_t k = 0; k < 4; k++) {
            dro__graph graph = {.loss = DRO__NET_FOCAL};
            graph.loss_set[DRO__SET_focal_gamma] = (float)gammas[g];
            int32_t label = 0;
            dro_net_batch batch = {.count = 1, .labels = &label};
            double z[2] = {far[k], 0}, slopes[2];
            double loss = dro__net_loss_row(&graph, 2, &batch, 0, z, slopes);
            assert_true(isfinite(loss) && loss >= 0);
            assert_true(isfinite(slopes[0]) && slopes[0] <= 0 && isfinite(slopes[1]));
            if (far[k] < 0) {
                check_near("wrong", loss, -far[k], 1e-3);
                check_near("slope", slopes[0], -1, 1e-3);
            }
        }
}

/* ---- calls ---- */

enum { PIXELS = 2 * 4 * 4, COUNT = 6 };

/* Images of 2 x 4 x 4, a norm on them, then a linear layer. */
static dro_net *normed(dro_context *ctx, const char *train)
{
    dro_net *net;
    OK(ctx, dro_net_create(ctx, 2, 4, 4, &net));
    dro_node x = dro_net_norm(net, "bn", dro_net_input(net));
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_relu(net, x), 3));
    if (train)
        OK(ctx, dro_net_train_only(net, train));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 3));
    return net;
}

typedef struct images {
    float x[COUNT * PIXELS];
    int32_t labels[COUNT];
    dro_net_batch parts[2]; /* 4 and 2 examples */
} images;

static void fill(images *m)
{
    for (size_t j = 0; j < COUNT * PIXELS; j++)
        m->x[j] = (float)check_uniform(51, j, -1, 3);
    for (int32_t i = 0; i < COUNT; i++)
        m->labels[i] = i % 3;
    m->parts[0] = (dro_net_batch){.count = 4, .x = m->x, .labels = m->labels};
    m->parts[1] = (dro_net_batch){.count = 2, .x = m->x + 4 * PIXELS, .labels = m->labels + 4};
}

static void check_calls(dro_context *ctx)
{
    dro_net *net = normed(ctx, NULL);
    images m;
    fill(&m);
    const float *w = dro_net_weights(net);
    float got[COUNT], coef[COUNT] = {1, 1, 1, 1, 1, 1};
    float *grad = calloc(dro_net_dim(net), sizeof *grad), *grads[] = {grad, grad};
    assert_non_null(grad);
    FAILS(ctx, dro_net_backward(net, w, coef, grads), DRO_ERR_STATE, "must follow a forward");
    OK(ctx, dro_net_forward(net, w, m.parts, 1, got));
    OK(ctx, dro_net_backward(net, w, coef, grads));
    OK(ctx, dro_net_evaluate(net, w, m.parts, NULL, got));
    FAILS(ctx, dro_net_backward(net, w, coef, grads), DRO_ERR_STATE, "must follow a forward");
    dro_net_batch empty = {.count = 0, .x = m.x, .labels = m.labels};
    FAILS(ctx, dro_net_forward(net, w, &empty, 1, got), DRO_ERR_ARGUMENT, "part 0 of a batch");
    dro_net_batch unlabelled = {.count = 1, .x = m.x};
    FAILS(ctx, dro_net_forward(net, w, &unlabelled, 1, got), DRO_ERR_ARGUMENT, "no labels");
    OK(ctx, dro_net_evaluate(net, w, &unlabelled, got, NULL));
    m.labels[5] = 3;
    FAILS(ctx, dro_net_forward(net, w, m.parts, 2, got), DRO_ERR_RANGE, "label 3: expected 0 to 2");
    assert_int_equal(dro_net_forward(net, w, m.parts, 3, got), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_net_forward(net, NULL, m.parts, 1, got), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_net_forward(net, w, m.parts, 1, NULL), DRO_ERR_ARGUMENT);
    free(grad);
    dro_net_destroy(net);
}

static void calls(void **state)
{
    (void)state;
    each_backend(check_calls);
}

/* ---- running statistics ---- */

/* 0.9 * (0, 1) + 0.1 * (mean, unbiased variance) of channel c of examples 0 .. 3 */
static void expected(const images *m, size_t c, double *mean, double *var)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < 4 * 16; i++)
        sum += (double)m->x[i / 16 * PIXELS + c * 16 + i % 16];
    for (size_t i = 0; i < 4 * 16; i++) {
        double off = (double)m->x[i / 16 * PIXELS + c * 16 + i % 16] - sum / 64;
        square += off * off;
    }
    *mean = 0.1 * sum / 64;
    *var = 0.9 + 0.1 * square / 63;
}

static void check_statistics(dro_context *ctx)
{
    dro_net *net = normed(ctx, NULL), *frozen = normed(ctx, "fc.*");
    images m;
    fill(&m);
    float got[COUNT], now[4], coef[COUNT] = {1, 1, 1, 1, 1, 1};
    const float start[4] = {0, 0, 1, 1};
    assert_int_equal(dro_net_statistics_count(net), 4);
    float *a = calloc(dro_net_dim(net), sizeof *a), *b = calloc(dro_net_dim(net), sizeof *b);
    float *grads[] = {a, b};
    OK(ctx, dro_net_forward(net, dro_net_weights(net), m.parts, 2, got));
    OK(ctx, dro_net_backward(net, dro_net_weights(net), coef, grads));
    OK(ctx, dro_net_statistics(net, now));
    assert_memory_equal(now, start, sizeof now);
    dro_net_accept(net);
    dro_net_accept(net); /* counts once */
    OK(ctx, dro_net_statistics(net, now));
    for (size_t c = 0; c < 2; c++) {
        double mean, var;
        expected(&m, c, &mean, &var);
        check_near("running mean", (double)now[c], mean, 1e-6);
        check_near("running variance", (double)now[2 + c], var, 1e-6);
    }
    float kept[4];
    OK(ctx, dro_net_evaluate(net, dro_net_weights(net), m.parts, NULL, got));
    dro_net_accept(net);
    OK(ctx, dro_net_statistics(net, kept));
    assert_memory_equal(kept, now, sizeof now);
    OK(ctx, dro_net_set_statistics(net, start));
    OK(ctx, dro_net_statistics(net, kept));
    assert_memory_equal(kept, start, sizeof kept);

    /* a frozen norm: evaluation's losses in training too, and it does not move */
    float evaluated[COUNT];
    OK(ctx, dro_net_evaluate(frozen, dro_net_weights(frozen), m.parts, NULL, evaluated));
    OK(ctx, dro_net_forward(frozen, dro_net_weights(frozen), m.parts, 1, got));
    dro_net_accept(frozen);
    OK(ctx, dro_net_statistics(frozen, now));
    assert_memory_equal(now, start, sizeof now);
    for (size_t i = 0; i < 4; i++)
        check_near("frozen", (double)got[i], (double)evaluated[i], 1e-5);
    free(a);
    free(b);
    dro_net_destroy(net);
    dro_net_destroy(frozen);
}

static void running_statistics(void **state)
{
    (void)state;
    each_backend(check_statistics);
}

/* ---- dropout, and the network as a problem ---- */

enum { WIDTH = 400 };

static dro_net *dropping(dro_context *ctx)
{
    dro_net *net;
    OK(ctx, dro_net_create(ctx, WIDTH, 1, 1, &net));
    dro_node x = dro_net_dropout(net, dro_net_input(net), 0.25f);
    dro_net_output(net, dro_net_linear(net, "fc", x, 1));
    OK(ctx, dro_net_set(net, "loss", "squared"));
    OK(ctx, dro_net_ready(net));
    return net;
}

/* With targets 0 the loss is z^2 / 2, z = sum over what was kept of w x / 0.75. */
static void check_dropout(dro_context *ctx)
{
    dro_net *net = dropping(ctx);
    float x[2 * WIDTH], w[WIDTH + 1], twice[WIDTH + 1], targets[2] = {0}, a[2], b[2];
    uint64_t keys[2] = {11, 12}, same[2] = {11, 11}, others[2] = {13, 14};
    for (size_t j = 0; j < WIDTH + 1; j++) {
        w[j] = j < WIDTH ? 1 : 0;
        twice[j] = 2 * w[j];
    }
    for (size_t j = 0; j < 2 * WIDTH; j++)
        x[j] = 1;
    dro_net_batch batch = {.count = 2, .x = x, .targets = targets, .keys = keys};
    OK(ctx, dro_net_forward(net, w, &batch, 1, a));
    check_near("what is kept", sqrt(2 * (double)a[0]), WIDTH, 50); /* 5.8 standard deviations */
    assert_true(fabs((double)(a[0] - a[1])) > 1);
    OK(ctx, dro_net_forward(net, twice, &batch, 1, b)); /* the same mask at another point */
    check_near("twice", (double)b[0], 4 * (double)a[0], 1e-3 * (double)b[0]);
    check_near("twice", (double)b[1], 4 * (double)a[1], 1e-3 * (double)b[1]);
    batch.keys = same;
    OK(ctx, dro_net_forward(net, w, &batch, 1, b));
    assert_true((double)b[0] == (double)b[1]);
    batch.keys = others;
    OK(ctx, dro_net_forward(net, w, &batch, 1, b));
    assert_true(fabs((double)(a[0] - b[0])) > 1);
    OK(ctx, dro_net_evaluate(net, w, &batch, b, NULL));
    check_near("evaluation", (double)b[0], WIDTH, 1e-3);
    dro_net_destroy(net);
}

static void dropout(void **state)
{
    (void)state;
    each_backend(check_dropout);
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    const images *m = user;
    static float x[2][COUNT * PIXELS];
    static int32_t labels[2][COUNT];
    static int next;
    next = !next;
    for (size_t i = 0; i < batch->count; i++) {
        memcpy(x[next] + i * PIXELS, m->x + (size_t)batch->ids[i] * PIXELS, PIXELS * sizeof(float));
        labels[next][i] = m->labels[batch->ids[i]];
    }
    *out = (dro_net_batch){.count = batch->count, .x = x[next], .labels = labels[next]};
    return DRO_OK;
}

static void check_problem(dro_context *ctx)
{
    static const char *const names[] = {"sgd", "recover", "pes-sgda", "absgd"};
    images m;
    fill(&m);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        dro_net *net = normed(ctx, NULL);
        dro_net_source source = {
            .size = sizeof(dro_net_source), .user = &m, .fetch = fetch, .n = COUNT};
        dro_problem problem;
        dro_optimizer *opt;
        OK(ctx, dro_net_problem(net, &source, &problem));
        OK(ctx, dro_optimizer_create(ctx, names[k], &problem, &opt));
        check_set(ctx, opt, "batch=3 eta=0.05 seed=2 steps=60 ?warmup=0");
        OK(ctx, dro_optimizer_start(opt, dro_net_weights(net)));
        float before[COUNT], after[COUNT], start[4], now[4];
        dro_net_batch all = {.count = COUNT, .x = m.x, .labels = m.labels};
        OK(ctx, dro_net_forward(net, dro_optimizer_w(opt), &all, 1, before));
        OK(ctx, dro_net_statistics(net, start));
        for (int t = 0; t < 60; t++)
            OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_net_forward(net, dro_optimizer_w(opt), &all, 1, after));
        OK(ctx, dro_net_statistics(net, now));
        assert_memory_not_equal(start, now, sizeof now);
        double sum[2] = {0};
        for (size_t i = 0; i < COUNT; i++)
            sum[0] += (double)before[i], sum[1] += (double)after[i];
        if (!(sum[1] < 0.5 * sum[0]))
            fail_msg("%s: losses went from %g to %g", names[k], sum[0], sum[1]);
        dro_optimizer_destroy(opt);
        dro_net_destroy(net);
    }
}

static void as_a_problem(void **state)
{
    (void)state;
    each_backend(check_problem);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(settings),     cmocka_unit_test(losses),  cmocka_unit_test(extreme_logits),
    cmocka_unit_test(calls),        cmocka_unit_test(dropout), cmocka_unit_test(running_statistics),
    cmocka_unit_test(as_a_problem),
};

CHECK_MAIN(tests)
