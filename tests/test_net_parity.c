/* The cpu backend's networks against the reference: a network that has every layer, and the small
 * models. The large ones are in test_net_models.c. */
#include "net_parity.h"

static void test_every_layer(void **state)
{
    (void)state;
    size_t counts[] = {5, 4};
    for (int k = 0; dro_loss_name(k); k++) {
        subject s = {.build = zoo, .shape = {3, 11, 13, 5}, .loss = dro_loss_name(k)};
        compare(dro_loss_name(k), &s, counts, 2, 2);
    }
    subject s = {.build = zoo, .shape = {3, 11, 13, 5}};
    compare("every layer", &s, counts, 1, 1);
    s.trained = "f.*,fn.*,g.*,gn.*,h.*,out.*";
    compare("frozen below", &s, counts, 2, 2);
    s.trained = "h.*,out.*"; /* nothing of the auxiliary head */
    compare("frozen head", &s, counts, 2, 2);
    s.trained = "b.*,cn.*";
    compare("frozen above", &s, counts, 2, 3);
    s = (subject){.build = zoo_cosine, .shape = {3, 11, 13, 5}};
    compare("cosine", &s, counts, 2, 2);
    s.trained = "out.*";
    compare("cosine alone", &s, counts, 2, 2);
    s.trained = "h.*";
    compare("frozen cosine", &s, counts, 2, 3);
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

/* One network, batches of many sizes in turn: each gives what a new network gives, to the bit. */
static void test_any_size(void **state)
{
    (void)state;
    enum { MOST = 24, SIZE = 3 * 8 * 8 };
    static float x[2 * MOST * SIZE];
    static int32_t labels[2 * MOST];
    float losses[2 * MOST], fresh[2 * MOST], logits[2 * MOST * 10];
    dro_context *ctx = check_context("cpu", 2);
    subject s = {.model = "resnet18", .shape = {3, 8, 8, 10}};
    dro_net *net = make(ctx, &s);
    uint64_t seed = 1;
    for (size_t j = 0; j < 2 * MOST * SIZE; j++)
        x[j] = (float)noise(&seed);
    for (size_t n = 1; n <= MOST; n++) {
        size_t first = n % 5 ? n : 2, second = MOST - n + 1;
        dro_net_batch parts[2] = {{.count = first, .x = x, .labels = labels},
                                  {.count = second, .x = x + first * SIZE, .labels = labels}};
        const float *w = dro_net_weights(net);
        OK(ctx, dro_net_evaluate(net, w, &parts[1], logits, NULL));
        OK(ctx, dro_net_forward(net, w, parts, 1 + n % 2, losses));
        if (n % 6)
            continue;
        dro_net *other = make(ctx, &s);
        OK(ctx, dro_net_forward(other, w, parts, 1 + n % 2, fresh));
        assert_memory_equal(losses, fresh, first * sizeof *losses);
        dro_net_destroy(other);
    }
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_any_size),
    cmocka_unit_test(test_every_layer),
    cmocka_unit_test(test_small_models),
};

CHECK_MAIN(tests)
