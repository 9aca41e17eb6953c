/* Networks before they run: the builder and its errors, the models, initialisation, freezing. */
#include "check.h"
#include "nn.h"

/* ---- the builder ---- */

typedef struct wrong {
    void (*build)(dro_net *net, dro_node x);
    dro_status status;
    const char *part; /* of the error text */
} wrong;

static const dro_window three = {{3, 3}, {1, 1}, {1, 1}};

static void end(dro_net *net, dro_node x)
{
    dro_net_output(net, dro_net_linear(net, "fc", x, 3));
}

static void no_output(dro_net *net, dro_node x)
{
    dro_net_linear(net, "fc", x, 3);
}

static void no_name(dro_net *net, dro_node x)
{
    end(net, dro_net_conv(net, "", x, 4, 3, 1, 1));
}

static void null_name(dro_net *net, dro_node x)
{
    end(net, dro_net_norm(net, NULL, x));
}

static void same_name(dro_net *net, dro_node x)
{
    x = dro_net_conv(net, "a", x, 4, 3, 1, 1);
    end(net, dro_net_norm(net, "a", x));
}

static void same_bias(dro_net *net, dro_node x)
{
    x = dro_net_conv_window(net, "a", x, 4, &three, true);
    end(net, dro_net_linear(net, "a", x, 4));
}

static void no_channels(dro_net *net, dro_node x)
{
    end(net, dro_net_conv(net, "a", x, 0, 3, 1, 1));
}

static void no_stride(dro_net *net, dro_node x)
{
    end(net, dro_net_conv(net, "a", x, 4, 3, 0, 1));
}

static void much_padding(dro_net *net, dro_node x)
{
    end(net, dro_net_conv(net, "a", x, 4, 3, 1, 3));
}

static void large_kernel(dro_net *net, dro_node x)
{
    end(net, dro_net_conv(net, "a", x, 4, 9, 1, 0));
}

static void huge_kernel(dro_net *net, dro_node x)
{
    x = dro_net_conv(net, "a", x, 1 << 20, 1, 1, 0);
    end(net, dro_net_conv(net, "b", x, 1 << 20, 1 << 15, 1, (1 << 15) - 1));
}

static void no_window(dro_net *net, dro_node x)
{
    end(net, dro_net_max_pool(net, x, NULL));
}

static void pool_padding(dro_net *net, dro_node x)
{
    const dro_window window = {{3, 3}, {1, 1}, {2, 2}};
    end(net, dro_net_avg_pool(net, x, &window));
}

static void no_eps(dro_net *net, dro_node x)
{
    end(net, dro_net_norm_eps(net, "bn", x, 0));
}

static void other_shape(dro_net *net, dro_node x)
{
    end(net, dro_net_add(net, x, dro_net_conv(net, "a", x, 2, 3, 1, 1)));
}

static void other_side(dro_net *net, dro_node x)
{
    dro_node both[] = {x, dro_net_conv(net, "a", x, 2, 3, 2, 1)};
    end(net, dro_net_concat(net, both, 2));
}

static void concat_nothing(dro_net *net, dro_node x)
{
    end(net, dro_net_concat(net, &x, 0));
}

static void concat_many(dro_net *net, dro_node x)
{
    dro_node all[9] = {x, x, x, x, x, x, x, x, x};
    end(net, dro_net_concat(net, all, 9));
}

static void all_dropped(dro_net *net, dro_node x)
{
    end(net, dro_net_dropout(net, x, 1));
}

static void odd_shortcut(dro_net *net, dro_node x)
{
    end(net, dro_net_shortcut(net, x, 6, 2));
}

static void fewer_shortcut(dro_net *net, dro_node x)
{
    end(net, dro_net_shortcut(net, x, 1, 1));
}

static void no_scale(dro_net *net, dro_node x)
{
    end(net, dro_net_affine(net, x, NULL, NULL));
}

static void no_node(dro_net *net, dro_node x)
{
    (void)x;
    end(net, dro_net_relu(net, 99));
}

static void no_outputs(dro_net *net, dro_node x)
{
    dro_net_output(net, dro_net_linear(net, "fc", x, 0));
}

static void image_output(dro_net *net, dro_node x)
{
    dro_net_output(net, dro_net_conv(net, "a", x, 3, 3, 1, 1));
}

static void nothing_trained(dro_net *net, dro_node x)
{
    dro_net_output(net, dro_net_global_pool(net, x));
}

static void two_sizes(dro_net *net, dro_node x)
{
    dro_net_auxiliary(net, dro_net_linear(net, "second", x, 4), 0.4f);
    end(net, x);
}

static void bad_weight(dro_net *net, dro_node x)
{
    dro_net_auxiliary(net, dro_net_linear(net, "second", x, 3), -1);
    end(net, x);
}

static void one_output(dro_net *net, dro_node x)
{
    dro_net_output(net, dro_net_linear(net, "fc", x, 1));
}

static const wrong wrongs[] = {
    {no_output, DRO_ERR_STATE, "no output: call dro_net_output()"},
    {no_name, DRO_ERR_ARGUMENT, "layer 1 has parameters and no name"},
    {null_name, DRO_ERR_ARGUMENT, "layer 1 has parameters and no name"},
    {same_name, DRO_ERR_NAME, "two layers are called 'a'"},
    {same_bias, DRO_ERR_NAME, "two layers are called 'a'"},
    {no_channels, DRO_ERR_RANGE, "'a' cannot have 0 channels"},
    {no_stride, DRO_ERR_RANGE, "a window needs kernel and stride of at least 1"},
    {much_padding, DRO_ERR_RANGE, "padding below the kernel's size"},
    {large_kernel, DRO_ERR_RANGE, "layer 1 would give 4 x 0 x 0: use a larger input"},
    {huge_kernel, DRO_ERR_RANGE, "'b' would have 1.18e+21 parameters"},
    {no_window, DRO_ERR_RANGE, "layer 1: a window needs"},
    {pool_padding, DRO_ERR_RANGE, "a pooling's padding is at most half its kernel"},
    {no_eps, DRO_ERR_RANGE, "'bn' needs eps above 0"},
    {other_shape, DRO_ERR_RANGE, "layer 2 adds 2 x 8 x 8 to 3 x 8 x 8"},
    {other_side, DRO_ERR_RANGE, "layer 2 concatenates 8 x 8 with 4 x 4"},
    {concat_nothing, DRO_ERR_RANGE, "1 to 8 inputs can be concatenated"},
    {concat_many, DRO_ERR_RANGE, "1 to 8 inputs can be concatenated"},
    {all_dropped, DRO_ERR_RANGE, "dropout of 1, expected 0 to below 1"},
    {odd_shortcut, DRO_ERR_RANGE, "a shortcut from 3 channels to 6"},
    {fewer_shortcut, DRO_ERR_RANGE, "a shortcut from 3 channels to 1"},
    {no_scale, DRO_ERR_ARGUMENT, "layer 1 needs a scale and a shift per channel"},
    {no_node, DRO_ERR_ARGUMENT, "layer 1 takes node 99, which does not exist"},
    {no_outputs, DRO_ERR_RANGE, "'fc' cannot have 0 outputs"},
    {image_output, DRO_ERR_RANGE, "an output of 3 x 8 x 8: expected a flat one"},
    {nothing_trained, DRO_ERR_STATE, "nothing to train"},
    {two_sizes, DRO_ERR_RANGE, "the two heads have 3 and 4 outputs"},
    {bad_weight, DRO_ERR_RANGE, "an auxiliary head's weight must be at least 0"},
    {one_output, DRO_ERR_RANGE, "needs at least 2 outputs, the network has 1"},
};

/* Later calls pass the error on, and each text is one line. */
static void builder_errors(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (size_t k = 0; k < sizeof wrongs / sizeof wrongs[0]; k++) {
        dro_net *net;
        OK(ctx, dro_net_create(ctx, 3, 8, 8, &net));
        wrongs[k].build(net, dro_net_input(net));
        FAILS(ctx, dro_net_ready(net), wrongs[k].status, wrongs[k].part);
        assert_null(strchr(dro_context_error(ctx), '\n'));
        FAILS(ctx, dro_net_ready(net), wrongs[k].status, wrongs[k].part); /* again */
        assert_null(dro_net_weights(net));
        FAILS(ctx, dro_net_init(net, 1), DRO_ERR_STATE, "call dro_net_ready first");
        dro_net_destroy(net);
    }
    dro_net *net;
    FAILS(ctx, dro_net_create(ctx, 3, 0, 8, &net), DRO_ERR_RANGE, "cannot be 3 x 0 x 8");
    assert_null(net);
    dro_net_destroy(NULL);
    assert_int_equal(dro_net_relu(NULL, 0), -1);
    assert_int_equal(dro_net_ready(NULL), DRO_ERR_ARGUMENT);
    dro_context_destroy(ctx);
}

static dro_net *small(dro_context *ctx)
{
    dro_net *net;
    OK(ctx, dro_net_create(ctx, 2, 6, 6, &net));
    dro_node x = dro_net_conv(net, "layer1.conv", dro_net_input(net), 4, 3, 1, 1);
    x = dro_net_relu(net, dro_net_norm(net, "layer1.bn", x));
    x = dro_net_norm(net, "layer2.bn", dro_net_conv(net, "layer2.conv", x, 4, 3, 2, 1));
    end(net, dro_net_global_pool(net, dro_net_relu(net, x)));
    return net;
}

static void nothing_after_ready(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_net *net = small(ctx);
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_ready(net)); /* again is fine */
    FAILS(ctx, dro_net_set(net, "loss", "focal"), DRO_ERR_STATE, "its settings are fixed");
    FAILS(ctx, dro_net_train_only(net, "fc.*"), DRO_ERR_STATE, "its settings are fixed");
    assert_int_equal(dro_net_relu(net, dro_net_input(net)), -1);
    FAILS(ctx, dro_net_ready(net), DRO_ERR_STATE, "no layer can be added");
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

/* ---- the models ---- */

static void models(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    struct {
        const char *name;
        size_t parameters;
        double multiply_adds;
    } known[] = {
        {"resnet20", 269722, 40.55e6},       {"resnet110", 1727962, 252.89e6},
        {"resnet18", 11689512, 1.814e9},     {"resnet34", 21797672, 3.664e9},
        {"resnet50", 25557032, 4.089e9},     {"resnet101", 44549160, 7.801e9},
        {"resnet152", 60192808, 11.514e9},   {"inception_v3", 27161264, 5.713e9},
        {"mobilenet_v2", 3504872, 300.77e6},
    };
    size_t found = 0;
    for (int i = 0; dro_model_name(i); i++) {
        dro_model_shape shape = dro_model_usual(i);
        dro_net *net;
        OK(ctx, dro_net_model(ctx, dro_model_name(i), &shape, &net));
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(known[k].name, dro_model_name(i)) == 0) {
                found++;
                assert_int_equal(dro_net_parameters(net), known[k].parameters);
                check_near(known[k].name, (double)dro_net_multiply_adds(net),
                           known[k].multiply_adds, 2e-4 * known[k].multiply_adds);
            }
        dro_net_destroy(net);
    }
    assert_int_equal(found, sizeof known / sizeof known[0]);
    dro_context_destroy(ctx);
}

static void model_errors(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    struct {
        const char *name;
        dro_model_shape shape;
        dro_status status;
        const char *part;
    } bad[] = {
        {"resnet21", {3, 32, 32, 10}, DRO_ERR_NAME, "there is no model 'resnet21'"},
        {"", {3, 32, 32, 10}, DRO_ERR_NAME, "there is no model ''"},
        {"resnet50:3", {3, 32, 32, 10}, DRO_ERR_RANGE, "resnet50:3: it takes no numbers"},
        {"mobilenet_v2:3", {3, 32, 32, 10}, DRO_ERR_RANGE, "it takes no numbers"},
        {"inception_v3:3", {3, 99, 99, 10}, DRO_ERR_RANGE, "it takes no numbers"},
        {"inception_v3", {3, 75, 74, 10}, DRO_ERR_RANGE, "at least 75 x 75, not 75 x 74"},
        {"resnet18", {3, 32, 32, 0}, DRO_ERR_RANGE, "resnet18: 'fc' cannot have 0 outputs"},
        {"resnet18", {0, 32, 32, 2}, DRO_ERR_RANGE, "input cannot be 0 x 32 x 32"},
        {"mlp:", {4, 1, 1, 70000}, DRO_ERR_RANGE, "'fc' cannot have 70000 outputs"},
        {"mlp:12,", {4, 1, 1, 2}, DRO_ERR_RANGE, "as in mlp:128,64"},
        {"mlp:0", {4, 1, 1, 2}, DRO_ERR_RANGE, "as in mlp:128,64"},
        {"linear:4", {4, 1, 1, 2}, DRO_ERR_RANGE, "write just 'linear'"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        dro_net *net = NULL;
        FAILS(ctx, dro_net_model(ctx, bad[k].name, &bad[k].shape, &net), bad[k].status,
              bad[k].part);
        assert_null(net);
        assert_null(strchr(dro_context_error(ctx), '\n'));
    }
    dro_context_destroy(ctx);
}

static bool has_tensor(const dro_net *net, const char *name)
{
    dro_tensor t;
    for (size_t k = 0; dro_net_tensor(net, k, &t) == DRO_OK; k++)
        if (strcmp(t.name, name) == 0)
            return true;
    return false;
}

/* Other shapes than the usual: grey images, small ones, and the head that does not fit them. */
static void model_shapes(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    struct {
        const char *name;
        dro_model_shape shape;
        const char *tensor;
        bool auxiliary;
    } good[] = {
        {"resnet18", {1, 1, 1, 2}, "layer4.1.bn2.running_var", false},
        {"resnet50", {4, 33, 65, 7}, "layer4.0.downsample.1.bias", false},
        {"resnet20", {1, 28, 28, 10}, "linear.bias", false},
        {"mobilenet_v2", {1, 1, 5, 2}, "features.1.conv.2.running_mean", false},
        {"mobilenet_v2", {3, 33, 64, 2}, "features.17.conv.3.bias", false},
        {"mobilenet_v2", {3, 32, 32, 2}, "features.18.1.weight", false},
        {"inception_v3", {1, 75, 75, 5}, "Mixed_7c.branch3x3dbl_3b.bn.weight", false},
        {"inception_v3", {3, 298, 299, 5}, "Mixed_5b.branch1x1.conv.weight", false},
        {"inception_v3", {1, 299, 299, 5}, "AuxLogits.conv1.bn.running_mean", true},
        {"inception_v3", {3, 330, 299, 5}, "AuxLogits.fc.weight", true},
    };
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
        dro_net *net;
        OK(ctx, dro_net_model(ctx, good[k].name, &good[k].shape, &net));
        assert_true(has_tensor(net, good[k].tensor));
        assert_true(has_tensor(net, "AuxLogits.fc.bias") == good[k].auxiliary);
        dro_model_shape shape = dro_net_shape(net);
        assert_memory_equal(&shape, &good[k].shape, sizeof shape);
        bool own = false; /* its own normalisation, of colours only */
        for (int32_t i = 0; i < net->graph.count; i++)
            own = own || net->graph.nodes[i].op == DRO__OP_AFFINE;
        assert_true(own == (good[k].name[0] == 'i' && shape.channels == 3));
        dro_net_destroy(net);
    }
    dro_context_destroy(ctx);
}

/* ---- weights ---- */

static void init_is_seeded(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_net *a = small(ctx), *b = small(ctx);
    OK(ctx, dro_net_ready(a));
    OK(ctx, dro_net_train_only(b, "layer2.*,fc.*"));
    OK(ctx, dro_net_ready(b));
    size_t dim = dro_net_dim(a), rest = dro_net_dim(b), bytes = dim * sizeof(float);
    float *first = malloc(bytes);
    assert_non_null(first);
    OK(ctx, dro_net_init(a, 7));
    OK(ctx, dro_net_init(b, 7));
    memcpy(first, dro_net_weights(a), bytes);
    /* freezing changes nothing, and the trained ones are the last */
    assert_memory_equal(dro_net_weights(b), first + (dim - rest), rest * sizeof(float));
    OK(ctx, dro_net_init(a, 8));
    assert_memory_not_equal(dro_net_weights(a), first, bytes);
    OK(ctx, dro_net_init(a, 7));
    assert_memory_equal(dro_net_weights(a), first, bytes);

    dro_tensor t;
    double square = 0;
    OK(ctx, dro_net_tensor(a, 0, &t));
    assert_string_equal(t.name, "layer1.conv.weight");
    for (int64_t j = 0; j < 4 * 2 * 9; j++)
        square += (double)first[t.offset + j] * (double)first[t.offset + j];
    check_near("variance 2 / fan in", square / 72, 2 / 18.0, 0.06); /* of 72 numbers */
    OK(ctx, dro_net_tensor(a, 1, &t));
    assert_string_equal(t.name, "layer1.bn.weight");
    for (int64_t j = 0; j < 4; j++) {
        check_near("gamma", (double)first[t.offset + j], 1, 0);
        check_near("beta", (double)first[t.offset + 4 + j], 0, 0);
    }
    free(first);
    dro_net_destroy(a);
    dro_net_destroy(b);
    dro_context_destroy(ctx);
}

static void freezing(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_net *net = small(ctx);
    FAILS(ctx, (dro_net_train_only(net, "fc"), dro_net_ready(net)), DRO_ERR_NAME,
          "no layer matches 'fc': the first tensor is 'layer1.conv.weight'");
    FAILS(ctx, (dro_net_train_only(net, "fc.*,layer9.*"), dro_net_ready(net)), DRO_ERR_NAME,
          "no layer matches 'layer9.*'");
    FAILS(ctx, (dro_net_train_only(net, ""), dro_net_ready(net)), DRO_ERR_NAME,
          "no layer matches ''");
    FAILS(ctx, (dro_net_train_only(net, "*.weight"), dro_net_ready(net)), DRO_ERR_UNSUPPORTED,
          "train all of a layer or nothing");
    char letters[5000];
    memset(letters, 'a', sizeof letters);
    letters[sizeof letters - 1] = '\0';
    FAILS(ctx, dro_net_train_only(net, letters), DRO_ERR_RANGE, "patterns of 4999 characters");
    OK(ctx, dro_net_train_only(net, "fc.*,layer2.conv.*"));
    OK(ctx, dro_net_ready(net));
    assert_int_equal(dro_net_dim(net), 4 * 4 * 9 + 4 * 3 + 3);
    assert_int_equal(dro_net_parameters(net), 2 * 4 * 9 + 8 + 4 * 4 * 9 + 8 + 4 * 3 + 3);
    dro_tensor t;
    for (size_t k = 0; dro_net_tensor(net, k, &t) == DRO_OK; k++) {
        bool trained = strstr(t.name, "fc.") || strstr(t.name, "layer2.conv");
        assert_true(t.trained == trained);
        assert_true((t.offset >= 0) == trained);
    }
    assert_int_equal(dro_net_tensor(net, dro_net_tensor_count(net), &t), DRO_ERR_ARGUMENT);
    dro_net_destroy(net);

    net = small(ctx); /* a refused pattern leaves nothing frozen behind */
    FAILS(ctx, (dro_net_train_only(net, "fc.*,x"), dro_net_ready(net)), DRO_ERR_NAME, "'x'");
    OK(ctx, dro_net_train_only(net, NULL));
    OK(ctx, dro_net_ready(net));
    assert_int_equal(dro_net_dim(net), dro_net_parameters(net));
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(builder_errors), cmocka_unit_test(nothing_after_ready),
    cmocka_unit_test(models),         cmocka_unit_test(model_errors),
    cmocka_unit_test(model_shapes),   cmocka_unit_test(init_is_seeded),
    cmocka_unit_test(freezing),
};

CHECK_MAIN(tests)
