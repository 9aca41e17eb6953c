/* The cpu backend's networks against the reference: a network that has every layer, and the small models. The
 * large ones are in test_net_models.c. */
#include "net_parity.h"

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
