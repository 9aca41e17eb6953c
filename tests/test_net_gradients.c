/* The reference network against finite differences: its sources are compiled here once more with
 * double values, every layer and every loss is built small, and every parameter's derivative is
 * compared with a central difference. Weights are floats, so the step is one that they represent
 * exactly. */
#define create check_create /* ref_net.c has a function of this name */
#include "check.h"
#undef create

#define DRO__REF_REAL           double
#define dro__ref_net            dro__ref_net_double
#define dro__ref_layer_forward  dro__ref_double_layer_forward
#define dro__ref_layer_backward dro__ref_double_layer_backward
#include "ref/ref_layers.c"
#include "ref/ref_net.c"
#undef dro__ref_net
extern const dro__net_backend dro__ref_net;

#include "nn.h"

enum { BATCH = 5, PIXELS_MAX = 200, OUTPUTS_MAX = 4, DIM_MAX = 1000 };
static const float STEP = 0x1p-20f;
static const double TOLERANCE = 2e-6; /* gradients are returned as floats */

/* ---- networks ---- */

typedef struct net_case {
    const char *name;
    dro_model_shape shape;
    void (*build)(dro_net *net, dro_node x, int32_t outputs);
    const char *loss, *set, *value; /* one more setting, or NULL */
    const char *train;              /* patterns, or NULL */
    bool targets;
} net_case;

static void finish(dro_net *net, dro_node x, int32_t outputs)
{
    dro_net_output(net, dro_net_linear(net, "fc", x, outputs));
}

static void net_plain(dro_net *net, dro_node x, int32_t outputs)
{
    finish(net, x, outputs);
}

static void net_conv(dro_net *net, dro_node x, int32_t outputs)
{
    const dro_window wide = {{2, 3}, {1, 2}, {1, 0}};
    x = dro_net_conv_window(net, "wide", x, 3, &wide, true);
    x = dro_net_conv(net, "strided", x, 2, 3, 2, 1);
    finish(net, x, outputs);
}

static void net_depthwise(dro_net *net, dro_node x, int32_t outputs)
{
    const dro_window wide = {{2, 3}, {1, 2}, {1, 0}}, strided = {{3, 3}, {2, 2}, {1, 1}};
    x = dro_net_depthwise(net, "wide", dro_net_conv(net, "conv", x, 3, 1, 1, 0), &wide, true);
    x = dro_net_depthwise(net, "strided", x, &strided, false);
    finish(net, x, outputs);
}

/* Some values are below 0, some above 6. */
static void net_relu6(dro_net *net, dro_node x, int32_t outputs)
{
    const float scale[] = {8, -12}, shift[] = {1, 3};
    x = dro_net_affine(net, dro_net_conv(net, "conv", x, 2, 3, 1, 1), scale, shift);
    finish(net, dro_net_relu6(net, x), outputs);
}

static void net_norm(dro_net *net, dro_node x, int32_t outputs)
{
    x = dro_net_norm_eps(net, "bn0", dro_net_conv(net, "conv", x, 3, 3, 1, 1), 0.01f);
    x = dro_net_norm(net, "bn1", dro_net_relu(net, x));
    finish(net, dro_net_global_pool(net, x), outputs);
}

static void net_norm_of_rows(dro_net *net, dro_node x, int32_t outputs)
{
    x = dro_net_norm(net, "bn", dro_net_linear(net, "hidden", x, 4));
    finish(net, dro_net_relu(net, x), outputs);
}

static void net_max_pool(dro_net *net, dro_node x, int32_t outputs)
{
    const dro_window window = {{3, 2}, {2, 1}, {1, 1}};
    x = dro_net_max_pool(net, dro_net_conv(net, "conv", x, 3, 3, 1, 1), &window);
    finish(net, dro_net_flatten(net, x), outputs);
}

static void net_avg_pool(dro_net *net, dro_node x, int32_t outputs)
{
    const dro_window window = {{3, 2}, {1, 2}, {1, 0}};
    x = dro_net_avg_pool(net, dro_net_conv(net, "conv", x, 3, 3, 1, 1), &window);
    finish(net, x, outputs);
}

static void net_residual(dro_net *net, dro_node x, int32_t outputs)
{
    x = dro_net_relu(net, dro_net_conv(net, "conv1", x, 2, 3, 1, 1));
    dro_node y = dro_net_conv(net, "conv2", x, 4, 3, 2, 1);
    x = dro_net_relu(net, dro_net_add(net, y, dro_net_shortcut(net, x, 4, 2)));
    x = dro_net_add(net, x, x);
    finish(net, dro_net_global_pool(net, x), outputs);
}

static void net_branches(dro_net *net, dro_node x, int32_t outputs)
{
    const dro_window window = {{3, 3}, {1, 1}, {1, 1}};
    dro_node y[3] = {dro_net_conv(net, "one", x, 2, 1, 1, 0), dro_net_avg_pool(net, x, &window)};
    y[2] = dro_net_conv(net, "three", dro_net_relu(net, y[0]), 3, 3, 1, 1);
    finish(net, dro_net_concat(net, y, 3), outputs);
}

static void net_dropout(dro_net *net, dro_node x, int32_t outputs)
{
    x = dro_net_dropout(net, dro_net_conv(net, "conv", x, 3, 3, 1, 1), 0.3f);
    x = dro_net_dropout(net, dro_net_linear(net, "hidden", x, 5), 0.5f);
    finish(net, x, outputs);
}

static void net_affine(dro_net *net, dro_node x, int32_t outputs)
{
    const float scale[] = {0.5f, -2}, shift[] = {0.25f, 1};
    x = dro_net_conv(net, "conv", dro_net_affine(net, x, scale, shift), 2, 3, 1, 1);
    finish(net, dro_net_affine(net, dro_net_relu(net, x), scale, shift), outputs);
}

static void net_auxiliary(dro_net *net, dro_node x, int32_t outputs)
{
    x = dro_net_relu(net, dro_net_norm(net, "bn1", dro_net_conv(net, "conv1", x, 3, 3, 1, 1)));
    dro_net_auxiliary(net, dro_net_linear(net, "second", dro_net_global_pool(net, x), outputs),
                      0.4f);
    x = dro_net_norm(net, "bn2", dro_net_conv(net, "conv2", x, 2, 3, 2, 1));
    finish(net, dro_net_dropout(net, dro_net_global_pool(net, x), 0.5f), outputs);
}

#define IMAGE                                                                                      \
    {                                                                                              \
        2, 5, 6, 3                                                                                 \
    }
#define ROWS(outputs)                                                                              \
    {                                                                                              \
        7, 1, 1, outputs                                                                           \
    }

static const net_case cases[] = {
    {.name = "conv", .shape = IMAGE, .build = net_conv},
    {.name = "depthwise", .shape = IMAGE, .build = net_depthwise},
    {.name = "relu6", .shape = IMAGE, .build = net_relu6},
    {.name = "norm", .shape = IMAGE, .build = net_norm},
    {.name = "norm of rows", .shape = ROWS(3), .build = net_norm_of_rows},
    {.name = "max pool", .shape = IMAGE, .build = net_max_pool},
    {.name = "avg pool", .shape = IMAGE, .build = net_avg_pool},
    {.name = "residual", .shape = IMAGE, .build = net_residual},
    {.name = "branches", .shape = IMAGE, .build = net_branches},
    {.name = "dropout", .shape = IMAGE, .build = net_dropout},
    {.name = "affine", .shape = IMAGE, .build = net_affine},
    {.name = "auxiliary", .shape = IMAGE, .build = net_auxiliary},
    {.name = "frozen below", .shape = IMAGE, .build = net_auxiliary, .train = "conv2.*,bn2.*,fc.*"},
    {.name = "frozen between", .shape = IMAGE, .build = net_auxiliary, .train = "conv1.*,fc.*"},
    {.name = "frozen norm", .shape = IMAGE, .build = net_norm, .train = "conv.*,bn1.*"},
    {.name = "frozen branch", .shape = IMAGE, .build = net_branches, .train = "three.*"},
    {.name = "frozen depthwise", .shape = IMAGE, .build = net_depthwise, .train = "conv.*,fc.*"},
    {.name = "frozen linear", .shape = IMAGE, .build = net_dropout, .train = "conv.*"},
    {"cosine", ROWS(4), net_plain, "cross-entropy", "classifier", "cosine", NULL, false},
    {"cosines", IMAGE, net_auxiliary, "cross-entropy", "classifier", "cosine", NULL, false},
    {"smoothing", ROWS(4), net_plain, "cross-entropy", "smoothing", "0.1", NULL, false},
    {"focal", ROWS(4), net_plain, "focal", "focal_gamma", "1.5", NULL, false},
    {"focal 0", ROWS(2), net_plain, "focal", "focal_gamma", "0", NULL, false},
    {"logit-adjusted", ROWS(4), net_plain, "logit-adjusted", "tau", "1.25", NULL, false},
    {"adjusted and smooth", ROWS(4), net_plain, "logit-adjusted", "smoothing", "0.2", NULL, false},
    {"label-aware", ROWS(4), net_plain, "logit-adjusted", "smoothing_head", "0.4", NULL, false},
    {"ldam", ROWS(4), net_plain, "ldam", "ldam_margin", "1.5", NULL, false},
    {"squared, labels", ROWS(3), net_plain, "squared", NULL, NULL, NULL, false},
    {"squared, targets", ROWS(3), net_plain, "squared", NULL, NULL, NULL, true},
    {"squared, one output", ROWS(1), net_plain, "squared", NULL, NULL, NULL, true},
    {"logistic", ROWS(1), net_plain, "logistic", NULL, NULL, NULL, false},
    {"logistic of many", ROWS(3), net_plain, "logistic", NULL, NULL, NULL, false},
    {"logistic, targets", ROWS(3), net_plain, "logistic", NULL, NULL, NULL, true},
    {.name = "focal in two heads", .shape = IMAGE, .build = net_auxiliary, .loss = "focal"},
};

static dro_net *make(dro_context *ctx, const net_case *c)
{
    dro_net *net;
    const double share[] = {0.5, 0.3, 0.15, 0.05};
    OK(ctx, dro_net_create(ctx, c->shape.channels, c->shape.height, c->shape.width, &net));
    c->build(net, dro_net_input(net), c->shape.outputs);
    if (c->loss)
        OK(ctx, dro_net_set(net, "loss", c->loss));
    if (c->set)
        OK(ctx, dro_net_set(net, c->set, c->value));
    if (c->shape.outputs == 4)
        OK(ctx, dro_net_prior(net, share, (size_t)c->shape.outputs));
    if (c->train)
        OK(ctx, dro_net_train_only(net, c->train));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 5));
    return net;
}

/* ---- a batch of two parts, and the sum of losses that is differentiated ---- */

typedef struct batch {
    float x[BATCH * PIXELS_MAX], targets[BATCH * OUTPUTS_MAX], coef[BATCH];
    int32_t labels[BATCH];
    dro_mix mixes[BATCH]; /* of the second part */
    uint64_t keys[BATCH];
    dro_net_batch parts[2];
} batch;

/* Part 0 has 3 examples, part 1 has 2. */
static void fill(batch *b, const net_case *c)
{
    size_t pixels = (size_t)(c->shape.channels * c->shape.height * c->shape.width);
    size_t outputs = (size_t)c->shape.outputs;
    assert_true(pixels <= PIXELS_MAX && outputs <= OUTPUTS_MAX);
    for (size_t j = 0; j < BATCH * pixels; j++)
        b->x[j] = (float)check_uniform(31, j, -1, 1);
    for (size_t j = 0; j < BATCH * outputs; j++)
        b->targets[j] = (float)check_uniform(32, j, -1, 2);
    for (size_t i = 0; i < BATCH; i++) {
        b->labels[i] = (int32_t)(i * 7 % 5 % (outputs > 1 ? outputs : 2));
        b->mixes[i] = (dro_mix){.label = (i + 1) % 2, .share = 0.125f * (float)(i + 1)};
        b->keys[i] = 1000 + 3 * i;
        b->coef[i] = (float)check_uniform(33, i, 0.5, 1.5);
    }
    for (size_t k = 0, first = 0; k < 2; first += b->parts[k++].count)
        b->parts[k] = (dro_net_batch){.count = 3 - k,
                                      .x = b->x + first * pixels,
                                      .labels = c->targets ? NULL : b->labels + first,
                                      .mixes = k && !c->targets ? b->mixes + first : NULL,
                                      .targets = c->targets ? b->targets + first * outputs : NULL,
                                      .keys = b->keys + first};
}

/* Weights that the step leaves exact: multiples of it, below 1. */
static void round_weights(const dro_net *net, float *w)
{
    assert_true(net->graph.dim <= DIM_MAX);
    for (size_t j = 0; j < net->graph.dim; j++)
        w[j] = STEP * (float)floor(check_uniform(34, j, -0.9, 0.9) / (double)STEP);
}

/* Sum over part k of coef * loss in double, by the values that a forward left behind. */
static double objective(const dro__ref_state *s, int k, size_t first, const float *coef)
{
    double sum = 0, slopes[OUTPUTS_MAX];
    for (int h = 0; h < DRO__HEADS; h++) {
        int32_t index = s->graph->heads[h];
        if (index < 0)
            continue;
        size_t outputs = dro__node_size(&s->graph->nodes[index]);
        double weight = h ? (double)s->graph->auxiliary_weight : 1;
        for (size_t n = 0; n < s->parts[k].count; n++)
            sum += weight * (double)coef[first + n] *
                   dro__net_loss_row(s->graph, outputs, &s->parts[k], n,
                                     s->value[index] + (first + n) * outputs, slopes);
    }
    return sum;
}

/* Both parts' objectives at w with w[j] moved by `by`. */
static void objectives(dro__ref_state *s, float *w, size_t j, float by, const batch *b,
                       int part_count, double *sums)
{
    float losses[BATCH], kept = w[j];
    w[j] += by;
    assert_true((double)w[j] == (double)kept + (double)by);
    assert_int_equal(dro__ref_net_double.forward(s, w, b->parts, part_count, losses), DRO_OK);
    w[j] = kept;
    for (int k = 0; k < part_count; k++)
        sums[k] = objective(s, k, k ? b->parts[0].count : 0, b->coef);
}

static void near(const char *name, size_t j, int part, double value, double expected, double within)
{
    if (!(fabs(value - expected) <= within * fmax(1, fabs(expected))))
        fail_msg("%s: parameter %zu, part %d: %.9g, expected %.9g", name, j, part, value, expected);
}

/* One network with one or two parts: every parameter. */
static void compare(dro_context *ctx, const net_case *c, int part_count)
{
    dro_net *net = make(ctx, c);
    batch b;
    fill(&b, c);
    float w[DIM_MAX], losses[BATCH], both[2][DIM_MAX], single[2][DIM_MAX];
    float *grads[2] = {both[0], both[1]}, *floats[2] = {single[0], single[1]};
    round_weights(net, w);
    float statistics[32];
    assert_true(net->graph.statistics_size <= 32);
    for (size_t j = 0; j < net->graph.statistics_size; j++)
        statistics[j] = (float)check_uniform(35, j, 0.2, 1.2);
    OK(ctx, dro_net_set_statistics(net, statistics));

    void *live;
    OK(ctx, dro__ref_net_double.create(ctx, &net->graph, &net->memory, &live));
    OK(ctx, dro__ref_net_double.forward(live, w, b.parts, part_count, losses));
    OK(ctx, dro__ref_net_double.backward(live, w, b.coef, grads));
    OK(ctx, dro_net_forward(net, w, b.parts, part_count, losses));
    OK(ctx, dro_net_backward(net, w, b.coef, floats));
    double largest = 0;
    for (size_t j = 0; j < net->graph.dim; j++) {
        double up[2], down[2];
        objectives(live, w, j, STEP, &b, part_count, up);
        objectives(live, w, j, -STEP, &b, part_count, down);
        for (int k = 0; k < part_count; k++) {
            double slope = (up[k] - down[k]) / (2 * (double)STEP);
            near(c->name, j, k, (double)grads[k][j], slope, TOLERANCE);
            near(c->name, j, k, (double)floats[k][j], slope, 1e-4);
            largest = fmax(largest, fabs(slope));
        }
    }
    if (!(largest > 0.01))
        fail_msg("%s: all derivatives are small: nothing was tested", c->name);
    dro__ref_net_double.destroy(live);
    dro_net_destroy(net);
}

static void all_layers_and_losses(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int parts = 1; parts <= 2; parts++)
            compare(ctx, &cases[k], parts);
    dro_context_destroy(ctx);
}

/* The cases above hold every kind of layer. */
static void no_layer_is_missing(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    bool seen[DRO__OP_COUNT] = {false};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_net *net = make(ctx, &cases[k]);
        for (int32_t i = 0; i < net->graph.count; i++)
            seen[net->graph.nodes[i].op] = true;
        dro_net_destroy(net);
    }
    for (int op = 0; op < DRO__OP_COUNT; op++)
        if (!seen[op])
            fail_msg("no network here has a layer of kind %d", op);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_layers_and_losses),
    cmocka_unit_test(no_layer_is_missing),
};

CHECK_MAIN(tests)
