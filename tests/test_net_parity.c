/* The cpu backend's networks against the reference: logits, losses and gradients, one part and two, training
 * and evaluation, for every model and for a network that has every layer. */
#include "nets.h"

#define TOLERANCE 2e-4

static void compare(const char *name, const subject *s, const size_t *counts, int parts,
                    int threads)
{
    outcome a = run_once("cpu", threads, s, counts, parts),
            b = run_once("ref", 1, s, counts, parts);
    double worst[5] = {distance(b.total, a.losses, b.losses),
                       distance(b.total * b.outputs, a.logits, b.logits),
                       distance(b.dim, a.grads[0], b.grads[0]),
                       parts > 1 ? distance(b.dim, a.grads[1], b.grads[1]) : 0,
                       distance(b.statistics, a.running, b.running)};
    print_message("%s, %d parts, %d threads: losses %.1e, logits %.1e, gradients %.1e %.1e, "
                  "statistics %.1e\n",
                  name, parts, threads, worst[0], worst[1], worst[2], worst[3], worst[4]);
    for (int k = 0; k < 5; k++)
        assert_true(worst[k] < TOLERANCE);
    outcome_free(&a);
    outcome_free(&b);
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
    size_t counts[] = {6, 6};
    subject subjects[] = {{.model = "linear", .shape = {30, 1, 1, 4}},
                          {.model = "mlp:33,17", .shape = {30, 1, 1, 4}},
                          {.model = "mlp:16", .shape = {3, 5, 7, 2}},
                          {.model = "resnet20", .shape = {3, 32, 32, 10}},
                          {.model = "resnet20", .shape = {1, 28, 28, 10}},
                          {.model = "resnet32", .shape = {3, 20, 20, 7}}};
    for (size_t k = 0; k < sizeof subjects / sizeof subjects[0]; k++)
        for (int parts = 1; parts <= 2; parts++)
            compare(subjects[k].model, &subjects[k], counts, parts, 1 + parts);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_layer),
    cmocka_unit_test(test_small_models),
};

CHECK_MAIN(tests)
