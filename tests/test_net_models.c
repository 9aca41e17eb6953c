/* Every model of the list on the cpu backend against the reference, on images as small as it
 * takes. */
#include "net_parity.h"

static void test_every_model(void **state)
{
    (void)state;
    for (int i = 0; dro_model_name(i); i++) {
        const char *name = dro_model_name(i);
        dro_model_shape usual = dro_model_usual(i);
        int32_t side = usual.height == 1     ? 1
                       : usual.height == 32  ? 8
                       : usual.height == 224 ? 33
                                             : 75;
        subject s = {.model = name, .shape = {usual.channels, side, side, 6}, .lift = 3};
        size_t few[] = {3, 2},
               more[] = {5, 4}; /* inception ends in 1 x 1: statistics of `count` numbers */
        size_t *counts = side == 75 ? more : few;
        compare(name, &s, counts, 2, 2);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_model),
};

CHECK_MAIN(tests)
