/* Networks against PyTorch: tests/refs/nets.txt, made by tests/refs/make_nets.py, on every backend
 * of this build. Its cases say what is computed; weights, pixels and labels are hashes of names
 * (make_nets.py says how). Training mode with one and two parts, frozen layers, evaluation; all
 * losses. */
#include "check.h"
#include "nn.h"

/* Relative to the norm of a tensor; of losses, relative to 1 and their size. */
static const double TOLERANCE = 2e-4;

enum { LINE = 4096, TOTAL_MAX = 8, LOGITS = 12, WORDS = 32 };

/* ---- numbers by name ---- */

static uint64_t fnv(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static double number(uint64_t hash, size_t index)
{
    return 2 * dro__random_unit(hash, 0, index) - 1;
}

/* The value of element j of a tensor. */
static float initial(const dro__net_entry *t, uint64_t hash, size_t j)
{
    double u = number(hash, j);
    const char *what = strrchr(t->name, '.') + 1;
    if (t->rank > 1)
        return (float)(u * sqrt(6.0 / (double)(t->shape[1] * t->shape[2] * t->shape[3])));
    if (strcmp(what, "running_var") == 0)
        return (float)(1 + 0.5 * u);
    return (float)(strcmp(what, "weight") == 0 ? 1 + 0.25 * u : 0.125 * u);
}

/* ---- the networks ---- */

static dro_node unit(dro_net *net, const char *name, dro_node x, int32_t channels,
                     dro_window window, float eps)
{
    char full[64];
    snprintf(full, sizeof full, "%s.conv", name);
    x = dro_net_conv_window(net, full, x, channels, &window, false);
    snprintf(full, sizeof full, "%s.bn", name);
    return dro_net_norm_eps(net, full, x, eps);
}

#define WINDOW(kh, kw, stride, ph, pw)                                                             \
    (dro_window)                                                                                   \
    {                                                                                              \
        {kh, kw}, {stride, stride},                                                                \
        {                                                                                          \
            ph, pw                                                                                 \
        }                                                                                          \
    }
#define RELU(name, x, channels, window)                                                            \
    dro_net_relu(net, unit(net, name, x, channels, window, 1e-5f))

/* `branches` in make_nets.py is the same. */
static void build_branches(dro_net *net)
{
    const float scale[] = {0.5f, 0.75f, 1.25f}, shift[] = {-0.25f, 0.5f, 0.125f};
    const dro_window one = WINDOW(1, 1, 1, 0, 0), pool = WINDOW(3, 3, 2, 1, 1),
                     mean = WINDOW(3, 3, 1, 1, 1), wide = WINDOW(5, 5, 3, 0, 0);
    dro_node x = dro_net_affine(net, dro_net_input(net), scale, shift), y[3];
    x = dro_net_relu(net, unit(net, "stem", x, 8, WINDOW(3, 3, 2, 0, 0), 0.001f));
    x = dro_net_max_pool(net, x, &pool);
    y[0] = RELU("a", x, 4, one);
    y[1] = RELU("b1", x, 5, WINDOW(1, 7, 1, 0, 3));
    y[1] = RELU("b2", y[1], 6, WINDOW(7, 1, 1, 3, 0));
    y[2] = RELU("c", dro_net_avg_pool(net, x, &mean), 3, one);
    x = dro_net_concat(net, y, 3);
    dro_node aux =
        dro_net_conv_window(net, "aux.conv", dro_net_avg_pool(net, x, &wide), 6, &one, true);
    dro_net_auxiliary(net, dro_net_linear(net, "aux.fc", dro_net_relu(net, aux), 5), 0.4f);
    y[0] = RELU("d1", x, 4, one);
    y[0] = RELU("d2", y[0], 4, WINDOW(3, 3, 2, 1, 1));
    y[0] = unit(net, "d3", y[0], 16, one, 1e-5f);
    y[1] = unit(net, "down", x, 16, WINDOW(1, 1, 2, 0, 0), 1e-5f);
    x = dro_net_relu(net, dro_net_add(net, y[0], y[1]));
    y[0] = dro_net_conv(net, "last", x, 20, 3, 2, 1);
    y[1] = dro_net_shortcut(net, x, 20, 2);
    x = dro_net_relu(net, dro_net_add(net, y[0], y[1]));
    x = dro_net_dropout(net, dro_net_global_pool(net, x), 0.5f);
    assert_int_equal(x, 41); /* dropout's masks depend on it */
    dro_net_output(net, dro_net_linear(net, "fc", x, 5));
}

/* A norm's value times a constant. */
static dro_node times(dro_net *net, float factor, dro_node x)
{
    float scale[20], zero[20] = {0};
    for (int c = 0; c < 20; c++)
        scale[c] = factor;
    return dro_net_affine(net, x, scale, zero);
}

/* `inverted` in make_nets.py is the same. */
static void build_inverted(dro_net *net)
{
    const dro_window wide = {{2, 5}, {1, 2}, {1, 0}}, three = WINDOW(3, 3, 1, 1, 1),
                     half = WINDOW(3, 3, 2, 1, 1);
    dro_node x = unit(net, "stem", dro_net_input(net), 20, half, 1e-5f);
    x = times(net, 5, dro_net_relu6(net, times(net, 3, x)));
    dro_node y = dro_net_relu6(net, dro_net_depthwise(net, "deep1", x, &wide, true));
    y = dro_net_norm(net, "norm1", dro_net_depthwise(net, "deep2", y, &three, false));
    y = dro_net_relu6(net, y);
    dro_node z = dro_net_norm(net, "norm2", dro_net_conv(net, "last", y, 20, 1, 1, 0));
    y = dro_net_depthwise(net, "deep3", dro_net_add(net, y, z), &half, false);
    y = dro_net_relu6(net, times(net, 4, dro_net_norm(net, "norm3", y)));
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_global_pool(net, y), 5));
}

static dro_net *build(dro_context *ctx, const char *name)
{
    dro_net *net;
    if (strcmp(name, "branches") == 0) {
        OK(ctx, dro_net_create(ctx, 3, 27, 23, &net));
        build_branches(net);
    } else if (strcmp(name, "inverted") == 0) {
        OK(ctx, dro_net_create(ctx, 3, 21, 19, &net));
        build_inverted(net);
    } else {
        dro_model_shape shape = {3, 16, 16, 10};
        OK(ctx, dro_net_model(ctx, name, &shape, &net));
    }
    return net;
}

/* ---- one case ---- */

typedef struct torch_case {
    char text[256];
    dro_context *ctx;
    dro_net *net;
    size_t total, outputs;
    float *x, losses[TOTAL_MAX], coef[TOTAL_MAX], *grads[2];
    int32_t labels[TOTAL_MAX];
    uint64_t keys[TOTAL_MAX];
    dro_net_batch parts[2];
    int part_count;
    float *before, *after, *logits, evaluated[TOTAL_MAX]; /* running statistics; evaluation */
} torch_case;

static void finish(torch_case *c)
{
    dro_net_destroy(c->net);
    free(c->x);
    free(c->grads[0]);
    free(c->grads[1]);
    free(c->before);
    free(c->after);
    free(c->logits);
    *c = (torch_case){.ctx = c->ctx};
}

static void *zeros(size_t count)
{
    void *memory = calloc(count, sizeof(float));
    assert_non_null(memory);
    return memory;
}

static void set_weights(torch_case *c)
{
    dro_net *net = c->net;
    c->before = zeros(net->graph.statistics_size);
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        float *places[] = {net->weights, net->frozen, c->before};
        uint64_t hash = fnv(t->name);
        for (size_t j = 0; j < t->count; j++)
            places[t->place][t->offset + (int64_t)j] = initial(t, hash, j);
    }
    OK(c->ctx, dro_net_set_statistics(net, c->before)); /* and the frozen ones go with them */
}

static void make_batch(torch_case *c, const char *parts)
{
    dro_model_shape shape = dro_net_shape(c->net);
    size_t pixels = (size_t)(shape.channels * shape.height * shape.width), first = 0;
    c->outputs = (size_t)shape.outputs;
    c->part_count = strchr(parts, ',') ? 2 : 1;
    size_t counts[2] = {(size_t)atoi(parts), 0};
    if (c->part_count == 2)
        counts[1] = (size_t)atoi(strchr(parts, ',') + 1);
    c->total = counts[0] + counts[1];
    assert_true(counts[0] > 0 && c->total <= TOTAL_MAX);
    c->x = zeros(c->total * pixels);
    for (size_t j = 0; j < c->total * pixels; j++)
        c->x[j] = (float)(1.5 * number(fnv("x"), j));
    for (size_t i = 0; i < c->total; i++) {
        c->labels[i] = (int32_t)(dro__random(fnv("labels"), 0, i) % c->outputs);
        c->coef[i] = (float)(1 + 0.5 * number(fnv("coef"), i));
        c->keys[i] = 100 + i;
    }
    for (int k = 0; k < c->part_count; first += counts[k++])
        c->parts[k] = (dro_net_batch){.count = counts[k],
                                      .x = c->x + first * pixels,
                                      .labels = c->labels + first,
                                      .keys = c->keys + first};
}

/* case NET LOSS SETTING VALUE TRAINED PARTS */
static void begin(torch_case *c, char **words)
{
    const double share[] = {0.4, 0.3, 0.15, 0.1, 0.05};
    c->net = build(c->ctx, words[1]);
    OK(c->ctx, dro_net_set(c->net, "loss", words[2]));
    if (strcmp(words[3], "-") != 0)
        OK(c->ctx, dro_net_set(c->net, words[3], words[4]));
    if (strcmp(words[2], "logit-adjusted") == 0 || strcmp(words[2], "ldam") == 0)
        OK(c->ctx, dro_net_prior(c->net, share, 5));
    if (strcmp(words[5], "-") != 0)
        OK(c->ctx, dro_net_train_only(c->net, words[5]));
    OK(c->ctx, dro_net_ready(c->net));
    set_weights(c);
    make_batch(c, words[6]);
    const float *w = dro_net_weights(c->net);
    c->grads[0] = zeros(dro_net_dim(c->net));
    c->grads[1] = zeros(dro_net_dim(c->net));
    c->after = zeros(dro_net_statistics_count(c->net));
    c->logits = zeros(c->total * c->outputs);
    OK(c->ctx, dro_net_evaluate(c->net, w, c->parts, c->logits, c->evaluated));
    OK(c->ctx, dro_net_forward(c->net, w, c->parts, c->part_count, c->losses));
    OK(c->ctx, dro_net_backward(c->net, w, c->coef, c->grads));
    dro_net_accept(c->net);
    OK(c->ctx, dro_net_statistics(c->net, c->after));
}

/* ---- comparing ---- */

static void near(const torch_case *c, const char *what, const char *name, double value,
                 double expected, double within)
{
    if (!(fabs(value - expected) <= within))
        fail_msg("%s: %s of %s: %.9g, PyTorch %.9g (allowed %.2g)", c->text, what, name, value,
                 expected, within);
}

static void compare_numbers(const torch_case *c, const char *what, const float *values,
                            char **words, int count)
{
    for (int i = 0; i < count; i++) {
        double expected = atof(words[i]);
        near(c, what, "an example", (double)values[i], expected,
             TOLERANCE * fmax(1, fabs(expected)));
    }
}

/* words: NORM PROJECTION */
static void compare_tensor(const torch_case *c, const char *name, const float *values, size_t count,
                           char **words)
{
    char along[128];
    double norm = 0, product = 0, size = atof(words[0]);
    snprintf(along, sizeof along, "along %s", name);
    uint64_t hash = fnv(along);
    for (size_t j = 0; j < count; j++) {
        norm += (double)values[j] * (double)values[j];
        product += (double)values[j] * number(hash, j);
    }
    near(c, "norm", name, sqrt(norm), size, TOLERANCE * size);
    near(c, "projection", name, product, atof(words[1]), TOLERANCE * size);
}

static const dro__net_entry *find(const torch_case *c, const char *name)
{
    for (size_t k = 0; k < c->net->tensor_count; k++)
        if (strcmp(c->net->tensors[k].name, name) == 0)
            return &c->net->tensors[k];
    fail_msg("%s: there is no tensor %s", c->text, name);
    return NULL;
}

/* grad PART TENSOR NORM PROJECTION FIRST MIDDLE LAST */
static size_t compare_grad(const torch_case *c, char **words)
{
    const dro__net_entry *t = find(c, words[2]);
    assert_int_equal(t->place, DRO__IN_WEIGHTS);
    const float *grad = c->grads[atoi(words[1])] + t->offset;
    double norm = atof(words[3]);
    compare_tensor(c, t->name, grad, t->count, words + 3);
    const size_t places[] = {0, t->count / 2, t->count - 1};
    for (int k = 0; k < 3; k++)
        near(c, "an entry", t->name, (double)grad[places[k]], atof(words[5 + k]), TOLERANCE * norm);
    return t->count;
}

static int split(char *line, char **words)
{
    int count = 0;
    for (char *rest = line, *word; count < WORDS && (word = strtok_r(rest, " \n", &rest));)
        words[count++] = word;
    return count;
}

static void compare_line(torch_case *c, char **words, int count, size_t *compared)
{
    if (strcmp(words[0], "losses") == 0) {
        assert_int_equal(count - 1, c->total);
        compare_numbers(c, "the loss", c->losses, words + 1, count - 1);
    } else if (strcmp(words[0], "grad") == 0) {
        *compared += compare_grad(c, words);
    } else if (strcmp(words[0], "running") == 0) {
        const dro__net_entry *t = find(c, words[1]);
        compare_tensor(c, t->name, c->after + t->offset, t->count, words + 2);
    } else if (strcmp(words[0], "eval") == 0) {
        compare_numbers(c, "the evaluated loss", c->evaluated, words + 1, count - 1);
    } else {
        assert_string_equal(words[0], "logits");
        size_t all = c->parts[0].count * c->outputs;
        compare_tensor(c, "logits", c->logits, all, words + 1);
        compare_numbers(c, "a logit", c->logits, words + 3, LOGITS);
        assert_int_equal(*compared, dro_net_dim(c->net) * (size_t)c->part_count);
        *compared = 0;
    }
}

static void whole_file(const char *backend)
{
    torch_case c = {.ctx = check_context(backend, 2)};
    FILE *file = fopen(DRO_TEST_DIR "/refs/nets.txt", "r");
    char line[LINE], *words[WORDS];
    size_t compared = 0, cases = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        char text[128];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        int count = split(line, words);
        if (strcmp(words[0], "case") != 0) {
            compare_line(&c, words, count, &compared);
            continue;
        }
        finish(&c);
        snprintf(c.text, sizeof c.text, "%s: %s", backend, text);
        begin(&c, words);
        cases++;
    }
    finish(&c);
    fclose(file);
    assert_true(cases >= 10);
    dro_context_destroy(c.ctx);
}

static void same_as_torch(void **state)
{
    (void)state;
    for (int k = 0; dro_backend_name(k); k++)
        whole_file(dro_backend_name(k));
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_torch)};

CHECK_MAIN(tests)
