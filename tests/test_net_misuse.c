/* Networks that cannot be built, calls that make no sense and weights files of other models: a
 * status and a text that names the place, and nothing has changed. Writes one temporary folder. */
#include "data_dir.h"
#include "safetensors.h"

#include <dro/net.h>
#include <math.h>

#define ARGUMENT(call) assert_int_equal(call, DRO_ERR_ARGUMENT)

static const dro_window one = {{1, 1}, {1, 1}, {0, 0}};

/* ---- layers ---- */

static dro_net *begin(void)
{
    dro_net *net;
    OK(ctx, dro_net_create(ctx, 2, 4, 4, &net));
    return net;
}

/* A layer was refused: so is the network, and what follows is ignored. */
static void refused(dro_net *net, dro_node made, const char *text)
{
    assert_int_equal(made, -1);
    assert_int_equal(dro_net_relu(net, 0), -1);
    assert_int_equal(dro_net_concat(net, (dro_node[]){0}, 1), -1);
    dro_net_output(net, 0);
    dro_status status = dro_net_ready(net);
    if (status == DRO_OK || !strstr(dro_context_error(ctx), text))
        fail_msg("%s, expected '%s'", dro_context_error(ctx), text);
    dro_net_destroy(net);
}

#define REFUSED(text, ...)                                                                         \
    do {                                                                                           \
        dro_net *net = begin();                                                                    \
        dro_node layer = __VA_ARGS__;                                                              \
        refused(net, layer, text);                                                                 \
    } while (0)

static void test_sizes(void **state)
{
    (void)state;
    static const int32_t shapes[][3] = {{0, 1, 1},       {1 << 24, 1, 1}, {1, 0, 1},
                                        {1, 1 << 24, 1}, {1, 1, 0},       {1, 1, 1 << 24}};
    dro_net *none;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        assert_int_equal(dro_net_create(ctx, shapes[k][0], shapes[k][1], shapes[k][2], &none),
                         DRO_ERR_RANGE);
    dro_net *wide;
    OK(ctx, dro_net_create(ctx, 1 << 10, 1 << 10, 2, &wide));
    dro_node flat = dro_net_flatten(wide, 0);
    refused(wide, flat, "1048576");
    OK(ctx, dro_net_create(ctx, 1 << 20, 1, 1, &wide)); /* more than there are outputs */
    dro_net_output(wide, 0);
    FAILS(ctx, dro_net_ready(wide), DRO_ERR_RANGE, "an output of 1048576 x 1 x 1: expected a flat");
    dro_net_destroy(wide);
}

/* Layers of one input: convolutions, norms, pools. */
static void test_windows(void **state)
{
    (void)state;
    REFUSED("", dro_net_relu(net, 1));
    REFUSED("", dro_net_relu(net, -1));
    REFUSED("", dro_net_conv(net, NULL, 0, 2, 1, 1, 0));
    REFUSED("cannot have 0 channels", dro_net_conv(net, "c", 0, 0, 1, 1, 0));
    REFUSED("cannot have 16777216 channels", dro_net_conv(net, "c", 0, 1 << 24, 1, 1, 0));
    REFUSED("larger input", dro_net_conv(net, "c", 0, 2, 5, 1, 0));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 0, 1, 0));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 1 << 24, 1, 0));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 1, 0, 0));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 1, 1 << 24, 0));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 1, 1, -1));
    REFUSED("a window needs", dro_net_conv(net, "c", 0, 2, 1, 1, 1));
    REFUSED("a window needs", dro_net_conv_window(net, "c", 0, 2, NULL, true));
    REFUSED("", dro_net_depthwise(net, "d", 7, &one, false));
    REFUSED("", dro_net_depthwise(net, NULL, 0, &one, false));
    REFUSED("eps above 0", dro_net_norm_eps(net, "n", 0, 0));
    REFUSED("eps above 0", dro_net_norm_eps(net, "n", 0, INFINITY));
    REFUSED("", dro_net_norm(net, NULL, 0));
    REFUSED("", dro_net_max_pool(net, 7, &one));
    REFUSED("at most half", dro_net_avg_pool(net, 0, &(dro_window){{3, 3}, {1, 1}, {2, 2}}));
    REFUSED("", dro_net_global_pool(net, 7));
    REFUSED("larger input",
            dro_net_max_pool(net, 0, &(dro_window){{1, 5}, {1, 1}, {0, 0}})); /* too narrow */
}

/* Layers of several inputs. */
static void test_joins(void **state)
{
    (void)state;
    REFUSED("", dro_net_add(net, 0, 7));
    REFUSED("", dro_net_add(net, 7, 0));
    REFUSED("adds 2 x 1 x 1 to 2 x 4 x 4", dro_net_add(net, 0, dro_net_global_pool(net, 0)));
    REFUSED("adds 1 x 4 x 4 to 2", dro_net_add(net, 0, dro_net_conv(net, "c", 0, 1, 1, 1, 0)));
    REFUSED("adds 2 x 4 x 2 to 2 x 4 x 4",
            dro_net_add(net, 0, dro_net_max_pool(net, 0, &(dro_window){{1, 1}, {1, 2}, {0, 0}})));
    REFUSED("1 to 8 inputs", dro_net_concat(net, NULL, 1));
    REFUSED("1 to 8 inputs", dro_net_concat(net, (dro_node[]){0}, 0));
    REFUSED("1 to 8 inputs", dro_net_concat(net, (dro_node[9]){0}, 9));
    REFUSED("", dro_net_concat(net, (dro_node[]){0, 7}, 2));
    REFUSED("concatenates 4 x 4 with 1 x 1",
            dro_net_concat(net, (dro_node[]){0, dro_net_global_pool(net, 0)}, 2));
    REFUSED("concatenates 4 x 4 with 4 x 2",
            dro_net_concat(
                net,
                (dro_node[]){0, dro_net_max_pool(net, 0, &(dro_window){{1, 1}, {1, 2}, {0, 0}})},
                2));
    REFUSED("", dro_net_shortcut(net, 7, 2, 1));
    REFUSED("a shortcut from 2 channels to 2 with stride 0", dro_net_shortcut(net, 0, 2, 0));
    REFUSED("a shortcut from 2 channels to 1", dro_net_shortcut(net, 0, 1, 1));
    REFUSED("a shortcut from 2 channels to 3", dro_net_shortcut(net, 0, 3, 1));
    REFUSED("a window needs", dro_net_shortcut(net, 0, 2, 1 << 24));
}

/* Flat layers, and what a network ends with. */
static void test_ends(void **state)
{
    (void)state;
    static const float scale[] = {1, 1};
    REFUSED("", dro_net_flatten(net, 7));
    REFUSED("", dro_net_linear(net, "l", 7, 2));
    REFUSED("", dro_net_linear(net, NULL, 0, 2));
    REFUSED("cannot have 0 outputs", dro_net_linear(net, "l", 0, 0));
    REFUSED("cannot have 16777216 outputs", dro_net_linear(net, "l", 0, 1 << 24));
    REFUSED("", dro_net_dropout(net, 7, 0.5f));
    REFUSED("dropout of 1", dro_net_dropout(net, 0, 1));
    REFUSED("dropout of -1", dro_net_dropout(net, 0, -1));
    REFUSED("", dro_net_affine(net, 7, scale, scale));
    REFUSED("a scale and a shift", dro_net_affine(net, 0, NULL, scale));
    REFUSED("a scale and a shift", dro_net_affine(net, 0, scale, NULL));
    REFUSED("expected a flat one", (dro_net_output(net, 0), -1));
    REFUSED("weight must be at least 0",
            (dro_net_auxiliary(net, dro_net_linear(net, "l", 0, 2), -1), -1));
    REFUSED("weight must be at least 0",
            (dro_net_auxiliary(net, dro_net_linear(net, "l", 0, 2), NAN), -1));
    REFUSED("weight must be at least 0",
            (dro_net_auxiliary(net, dro_net_linear(net, "l", 0, 2), INFINITY), -1));
    REFUSED("expected a flat one", (dro_net_auxiliary(net, 0, 1), -1));
}

/* The settings of a network's loss and classes. */
static void test_loss(void **state)
{
    (void)state;
    static const double shares[][2] = {{1, NAN}, {-1, 1}, {INFINITY, 1}, {0, 0}};
    static const char *const says[] = {"class 1 has a share of nan", "class 0 has a share of -1",
                                       "class 0 has a share of inf", "the prior is all zero"};
    dro_net *net = begin();
    FAILS(ctx, dro_net_prior(net, shares[0], 2), DRO_ERR_ARGUMENT, "one share for each output");
    dro_net_output(net, dro_net_relu(net, dro_net_linear(net, "fc", 0, 2)));
    FAILS(ctx, dro_net_prior(net, NULL, 2), DRO_ERR_ARGUMENT, "one share for each output");
    FAILS(ctx, dro_net_prior(net, shares[0], 3), DRO_ERR_ARGUMENT, "one share for each output");
    for (int k = 0; k < 4; k++)
        FAILS(ctx, dro_net_prior(net, shares[k], 2), DRO_ERR_RANGE, says[k]);
    OK(ctx, dro_net_set(net, "classifier", "cosine"));
    FAILS(ctx, dro_net_ready(net), DRO_ERR_UNSUPPORTED,
          "classifier=cosine: the output of this network is not a linear layer");
    dro_net_destroy(net);
    assert_string_equal(dro_loss_name(0), "cross-entropy");
    assert_null(dro_loss_name(-1));
    assert_null(dro_loss_name(1000));
    assert_null(dro_loss_summary(-1));
    assert_null(dro_loss_summary(1000));
    assert_true(dro_loss_has("focal", "focal_gamma") && !dro_loss_has("focal", "tau"));
    assert_false(dro_loss_has("none", "tau"));
    assert_true(dro_loss_proper("cross-entropy"));
    assert_false(dro_loss_proper("none"));
}

/* Batches that contradict themselves. */
static void test_batches(void **state)
{
    (void)state;
    float x[2 * 4 * 4] = {0}, targets[1] = {0}, losses[1];
    int32_t labels[1] = {0};
    int64_t ids[1] = {0};
    dro_mix mixes[2] = {{.label = 7}, {.label = -1}};
    uint8_t bytes[32] = {0};
    dro_net_images images = {.bytes = bytes};
    dro_net *net = begin();
    dro_net_output(net, dro_net_linear(net, "fc", 0, 2));
    OK(ctx, dro_net_ready(net));
    float *own = calloc(dro_net_dim(net), sizeof *own);
    assert_non_null(own);
    const struct {
        dro_net_batch batch;
        dro_status status;
        const char *says;
    } cases[] = {
        {{.count = 1, .labels = labels}, DRO_ERR_ARGUMENT, "part 0 of a batch is empty"},
        {{.count = 1, .x = x}, DRO_ERR_ARGUMENT, "part 0 of a batch has no labels"},
        {{.count = 1, .x = x, .targets = targets, .mixes = mixes},
         DRO_ERR_ARGUMENT,
         "is mixed: expected labels, not targets"},
        {{.count = 1, .x = x, .labels = labels, .mixes = mixes},
         DRO_ERR_RANGE,
         "an example is mixed with label 7: expected 0 to 1"},
        {{.count = 1, .x = x, .labels = labels, .mixes = mixes + 1},
         DRO_ERR_RANGE,
         "an example is mixed with label -1: expected 0 to 1"},
        {{.count = 1, .labels = labels, .images = &images, .ids = ids},
         DRO_ERR_UNSUPPORTED,
         "a batch of images in the backend's memory: expected the backend cuda"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        FAILS(ctx, dro_net_forward(net, own, &cases[k].batch, 1, losses), cases[k].status,
              cases[k].says);
    free(own);
    dro_net_destroy(net);
}

/* ---- calls ---- */

static dro_net *small(int32_t outputs)
{
    dro_net *net = begin();
    dro_node x = dro_net_norm(net, "n", dro_net_conv(net, "c", 0, 3, 1, 1, 0));
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_global_pool(net, x), outputs));
    return net;
}

static void test_nothing(void **state)
{
    (void)state;
    dro_net *net;
    dro_tensor tensor;
    float x[1] = {0};
    dro_net_batch batch = {0};
    dro_problem problem;
    dro_model_shape shape = dro_net_shape(NULL);
    ARGUMENT(dro_net_create(NULL, 1, 1, 1, &net));
    ARGUMENT(dro_net_create(ctx, 1, 1, 1, NULL));
    ARGUMENT(dro_net_ready(NULL));
    ARGUMENT(dro_net_init(NULL, 1));
    ARGUMENT(dro_net_set(NULL, "loss", "focal"));
    ARGUMENT(dro_net_prior(NULL, NULL, 0));
    ARGUMENT(dro_net_train_only(NULL, "c.*"));
    ARGUMENT(dro_net_set_weights(NULL, x));
    ARGUMENT(dro_net_statistics(NULL, x));
    ARGUMENT(dro_net_set_statistics(NULL, x));
    ARGUMENT(dro_net_tensor(NULL, 0, &tensor));
    ARGUMENT(dro_net_load(NULL, "x", NULL));
    ARGUMENT(dro_net_save(NULL, "x"));
    ARGUMENT(dro_net_forward(NULL, x, &batch, 1, x));
    ARGUMENT(dro_net_backward(NULL, x, x, (float *[]){x}));
    ARGUMENT(dro_net_evaluate(NULL, x, &batch, x, x));
    ARGUMENT(dro_net_problem(NULL, &(dro_net_source){0}, &problem));
    assert_int_equal(dro_net_input(NULL), -1);
    assert_int_equal(dro_net_relu(NULL, 0), -1);
    assert_int_equal(dro_net_concat(NULL, (dro_node[]){0}, 1), -1);
    assert_int_equal(dro_net_dim(NULL) + dro_net_parameters(NULL) + dro_net_tensor_count(NULL), 0);
    assert_int_equal(dro_net_statistics_count(NULL) + dro_net_multiply_adds(NULL), 0);
    assert_null(dro_net_weights(NULL));
    assert_int_equal(shape.channels + shape.outputs, 0);
    dro_net_accept(NULL);
    dro_net_destroy(NULL);
}

static void test_images(void **state)
{
    (void)state;
    dro_net_images images = {0};
    static const uint8_t pixels[4] = {1};
    static const float scale[3] = {1};
    ARGUMENT(dro_net_images_create(NULL, pixels, 4, scale, scale, &images));
    ARGUMENT(dro_net_images_create(ctx, NULL, 4, scale, scale, &images));
    ARGUMENT(dro_net_images_create(ctx, pixels, 4, NULL, scale, &images));
    ARGUMENT(dro_net_images_create(ctx, pixels, 4, scale, NULL, &images));
    ARGUMENT(dro_net_images_create(ctx, pixels, 4, scale, scale, NULL));
    FAILS(ctx, dro_net_images_create(ctx, pixels, 4, scale, scale, &images), DRO_ERR_UNSUPPORTED,
          "give x instead");
    assert_null(images.bytes);
    dro_net_images_free(NULL, &images);
    dro_net_images_free(ctx, NULL);
    dro_net_images_free(ctx, &images);
}

static void test_order(void **state)
{
    (void)state;
    dro_net *net = small(2);
    dro_tensor tensor;
    float w[100] = {0}, x[32] = {0}, losses[1], grad[100];
    int32_t labels[1] = {0};
    float *const grads[] = {grad};
    dro_net_batch batch = {.count = 1, .x = x, .labels = labels};
    dro_problem problem;
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_STATE, "dro_net_ready first");
    FAILS(ctx, dro_net_problem(net, &(dro_net_source){.size = sizeof(dro_net_source)}, &problem),
          DRO_ERR_ARGUMENT, "needs fetch");
    assert_int_equal(dro_net_load(net, "x", NULL), DRO_ERR_STATE);
    assert_int_equal(dro_net_save(net, "x"), DRO_ERR_STATE);
    assert_int_equal(dro_net_set_weights(net, w), DRO_ERR_STATE);
    assert_int_equal(dro_net_statistics(net, w), DRO_ERR_STATE);
    assert_int_equal(dro_net_set_statistics(net, w), DRO_ERR_STATE);
    assert_null(dro_net_weights(net));
    FAILS(ctx, dro_net_prior(net, (double[]){0.5}, 1), DRO_ERR_ARGUMENT, "one share for each");
    FAILS(ctx, dro_net_prior(net, (double[]){0.5, -1}, 2), DRO_ERR_RANGE, "-1");
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_ready(net));
    assert_true(dro_net_dim(net) <= 100);
    FAILS(ctx, dro_net_set(net, "loss", "focal"), DRO_ERR_STATE, "");
    ARGUMENT(dro_net_tensor(net, 1000, &tensor));
    ARGUMENT(dro_net_tensor(net, 0, NULL));
    ARGUMENT(dro_net_set_weights(net, NULL));
    ARGUMENT(dro_net_statistics(net, NULL));
    ARGUMENT(dro_net_set_statistics(net, NULL));
    ARGUMENT(dro_net_load(net, NULL, NULL));
    ARGUMENT(dro_net_save(net, NULL));
    ARGUMENT(dro_net_forward(net, NULL, &batch, 1, losses));
    ARGUMENT(dro_net_forward(net, w, NULL, 1, losses));
    ARGUMENT(dro_net_forward(net, w, &batch, 0, losses));
    ARGUMENT(dro_net_forward(net, w, &batch, 3, losses));
    ARGUMENT(dro_net_forward(net, w, &batch, 1, NULL));
    ARGUMENT(dro_net_backward(net, NULL, losses, grads));
    ARGUMENT(dro_net_backward(net, w, NULL, grads));
    ARGUMENT(dro_net_backward(net, w, losses, NULL));
    FAILS(ctx, dro_net_backward(net, w, losses, grads), DRO_ERR_STATE, "must follow a forward");
    batch.count = 0;
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_ARGUMENT, "part 0");
    batch = (dro_net_batch){.count = 1, .labels = labels};
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_ARGUMENT, "part 0");
    batch = (dro_net_batch){.count = 1, .labels = labels, .images = &(dro_net_images){0}};
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_UNSUPPORTED, "the backend cuda");
    batch = (dro_net_batch){.count = 1, .x = x};
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_ARGUMENT, "has no labels");
    FAILS(ctx, dro_net_evaluate(net, w, &batch, NULL, losses), DRO_ERR_ARGUMENT, "has no labels");
    batch.labels = labels;
    labels[0] = 2;
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_RANGE,
          "label 2: expected 0 to 1");
    labels[0] = -1;
    FAILS(ctx, dro_net_forward(net, w, &batch, 1, losses), DRO_ERR_RANGE, "label -1");
    dro_net_destroy(net);
}

/* ---- files ---- */

/* The weights of `net` as they are in memory, in a file of which one tensor is another one. */
static void save_changed(const dro_net *net, const char *prefix, const char *which,
                         const dro__file_tensor *other)
{
    dro__file_tensor all[16];
    char names[16][64];
    float zeros[64] = {0};
    size_t count = 0;
    dro_tensor t;
    for (size_t k = 0; k < dro_net_tensor_count(net); k++) {
        OK(ctx, dro_net_tensor(net, k, &t));
        if (strcmp(t.name, which) == 0 && !other)
            continue;
        snprintf(names[count], sizeof names[count], "%s%s", prefix, t.name);
        all[count] = (dro__file_tensor){.name = names[count], .rank = t.rank, .data = zeros};
        memcpy(all[count].shape, t.shape, sizeof t.shape);
        if (strcmp(t.name, which) == 0) {
            all[count] = *other;
            all[count].name = names[count];
        }
        count++;
    }
    if (other && !*which)
        all[count++] = *other;
    OK(ctx, dro__safetensors_write(ctx, in_dir("w.safetensors"), all, count, NULL));
}

static void test_files(void **state)
{
    (void)state;
    static const float values[64] = {-1};
    dro_net *net = small(2);
    size_t kept = 9;
    OK(ctx, dro_net_ready(net));
    char path[256];
    snprintf(path, sizeof path, "%s", in_dir("w.safetensors"));
    save_changed(net, "module.", "-", &(dro__file_tensor){0});
    OK(ctx, dro_net_load(net, path, &kept));
    assert_int_equal(kept, 0);
    save_changed(net, "", "c.weight", NULL);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "tensor 'c.weight' is missing");
    dro__file_tensor other = {.name = "more", .rank = 1, .shape = {3}, .data = values};
    save_changed(net, "", "", &other);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "'more' is not part of the model");
    other.name = "n.num_batches_tracked";
    save_changed(net, "", "", &other);
    OK(ctx, dro_net_load(net, path, NULL));
    other.name = "AuxLogits.fc.bias"; /* of a head that this network does not have */
    save_changed(net, "", "", &other);
    OK(ctx, dro_net_load(net, path, NULL));
    save_changed(net, "", "n.running_var", &other);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "a variance is at least 0");
    save_changed(net, "", "c.weight", &other);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "is 3, the model needs 3 x 2 x 1 x 1");
    other.rank = 0;
    save_changed(net, "", "c.weight", &other);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "is a single number");
    other = (dro__file_tensor){.rank = 2, .shape = {2, 4}, .data = values};
    save_changed(net, "", "fc.weight", &other);
    FAILS(ctx, dro_net_load(net, path, NULL), DRO_ERR_DATA, "is 2 x 4, the model needs 2 x 3");
    dro_net_destroy(net);
    net = small(5); /* another number of classes: the classifier is kept */
    OK(ctx, dro_net_ready(net));
    save_changed(net, "", "-", &other);
    dro_net *fewer = small(2);
    OK(ctx, dro_net_ready(fewer));
    OK(ctx, dro_net_load(fewer, path, &kept));
    assert_int_equal(kept, 2);
    dro_net_destroy(net);
    dro_net_destroy(fewer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sizes),   cmocka_unit_test(test_windows), cmocka_unit_test(test_joins),
    cmocka_unit_test(test_ends),    cmocka_unit_test(test_loss),    cmocka_unit_test(test_batches),
    cmocka_unit_test(test_nothing), cmocka_unit_test(test_images),  cmocka_unit_test(test_order),
    cmocka_unit_test(test_files),
};

CHECK_MAIN_WITH(tests, setup, teardown)
