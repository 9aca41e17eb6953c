/* The cpu backend's networks against the reference: a network that has every layer, and the small models. The
 * large ones are in test_net_models.c. */
#include "net_parity.h"

/* Every layer, odd sizes, channels that do not fill a block, a residual without a norm, a norm without a
 * convolution, a value read three times, an auxiliary head. */
static void zoo(dro_net *net)
{
    float scale[3] = {0.5f, 2, -1}, shift[3] = {1, 0, 0.25f};
    dro_window three = {{3, 3}, {2, 2}, {1, 1}}, flat = {{1, 5}, {1, 2}, {0, 2}},
               two = {{2, 2}, {1, 1}, {1, 1}};
    dro_node x = dro_net_affine(net, dro_net_input(net), scale, shift);
    x = dro_net_conv_window(net, "a", x, 10, &flat, true);
    x = dro_net_relu(net, dro_net_norm(net, "an", x));
    dro_node y = dro_net_conv(net, "b", x, 10, 3, 1, 1);
    x = dro_net_add(net, y, x); /* no norm */
    dro_node p = dro_net_max_pool(net, x, &three), q = dro_net_avg_pool(net, x, &three);
    dro_node r = dro_net_relu(net, dro_net_norm(net, "cn", dro_net_conv(net, "c", x, 20, 3, 2, 1)));
    dro_node all[3] = {p, q, r};
    x = dro_net_concat(net, all, 3);
    x = dro_net_norm(net, "dn", x); /* no convolution before it */
    dro_node left = dro_net_conv(net, "e", x, 48, 1, 1, 0);
    dro_node right = dro_net_norm(net, "fn", dro_net_conv(net, "f", x, 48, 3, 1, 1));
    left = dro_net_norm(net, "en", left);
    x = dro_net_relu(net, dro_net_add(net, left, right));
    dro_node aux = dro_net_linear(net, "aux", dro_net_max_pool(net, x, &two), 5);
    x = dro_net_add(net, dro_net_shortcut(net, x, 64, 2),
                    dro_net_norm(net, "gn", dro_net_conv(net, "g", x, 64, 3, 2, 1)));
    x = dro_net_relu(net, dro_net_add(net, x, x));
    x = dro_net_dropout(net, dro_net_global_pool(net, x), 0.3f);
    x = dro_net_relu(net, dro_net_linear(net, "h", x, 24));
    dro_net_output(net, dro_net_linear(net, "out", x, 5));
    dro_net_auxiliary(net, aux, 0.4f);
}

static void test_every_layer(void **state)
{
    (void)state;
    const char *losses[] = {"cross-entropy", "focal", "logit-adjusted", "squared", "logistic"};
    size_t counts[] = {5, 4};
    for (size_t k = 0; k < 5; k++) {
        subject s = {.build = zoo, .shape = {3, 11, 13, 5}, .loss = losses[k]};
        compare(losses[k], &s, counts, 2, 2);
    }
    subject s = {.build = zoo, .shape = {3, 11, 13, 5}};
    compare("every layer", &s, counts, 1, 1);
    s.trained = "f.*,fn.*,g.*,gn.*,h.*,out.*";
    compare("frozen below", &s, counts, 2, 2);
    s.trained = "b.*,cn.*";
    compare("frozen above", &s, counts, 2, 3);
}

static void test_small_models(void **state)
{
    (void)state;
    size_t counts[] = {4, 3};
    subject subjects[] = {{.model = "linear", .shape = {30, 1, 1, 4}},
                          {.model = "mlp:33,17", .shape = {30, 1, 1, 4}},
                          {.model = "mlp:16", .shape = {3, 5, 7, 2}},
                          {.model = "resnet20", .shape = {3, 16, 16, 10}},
                          {.model = "resnet20", .shape = {1, 14, 14, 10}},
                          {.model = "resnet32", .shape = {3, 11, 13, 7}}};
    for (size_t k = 0; k < sizeof subjects / sizeof subjects[0]; k++)
        for (int parts = 1; parts <= 2; parts++)
            compare(subjects[k].model, &subjects[k], counts, parts, 1 + parts);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_layer),
    cmocka_unit_test(test_small_models),
};

CHECK_MAIN(tests)
