/* Every model of the list on the cuda backend against the reference, in each precision, two parts,
 * on images as small as it takes. Slow: the reference is. Skipped (77) where there is no GPU.
 *
 *     test_cuda_models [MODEL]  */
#include "nets.h"

typedef struct bounds {
    const char *precision;
    double forward, gradient, tensor; /* the last: of each tensor of a gradient */
} bounds;

/* tf32 keeps 11 bits of a factor, bf16 8; gradients go through every layer twice. Their tensors by
 * themselves are looked at in fp32: with so few pixels, and norms that undo most of what a
 * convolution does, the others have no digit right (see `sharp` in test_cuda.c). Measured on an
 * H200, over all models: tf32 2e-3 and 9e-3, bf16 4e-2 and 6e-2. */
static const bounds precisions[] = {
    {"fp32", 1e-4, 1e-4, 1e-3}, {"tf32", 5e-3, 4e-2, INFINITY}, {"bf16", 1e-1, 2e-1, INFINITY}};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

static const char *only;

enum { WRONG, TIED, RIGHT };

/* TIED: only a gradient is off, in a precision in which that may be a tie. */
static int check(const char *name, const bounds *b, const outcome *x, const outcome *y)
{
    double off[] = {distance(y->total, x->losses, y->losses),
                    distance(y->total, x->eval_losses, y->eval_losses),
                    distance(y->total * y->outputs, x->logits, y->logits),
                    distance(y->statistics, x->running, y->running),
                    distance(y->dim, x->grads[0], y->grads[0]),
                    distance(y->dim, x->grads[1], y->grads[1])};
    bool forward = true, gradient = true;
    print_message("%s, %s: losses %.1e %.1e, logits %.1e, statistics %.1e, gradients %.1e %.1e\n",
                  name, b->precision, off[0], off[1], off[2], off[3], off[4], off[5]);
    for (int k = 0; k < 2; k++) {
        const char *whose;
        double worst = worst_piece(x, x->grads[k], y->grads[k], &whose);
        print_message("  the farthest tensor of part %d: %s, %.1e\n", k, whose, worst);
        gradient = gradient && worst < b->tensor;
    }
    for (int k = 0; k < 4; k++)
        forward = forward && off[k] < b->forward;
    for (int k = 4; k < 6; k++)
        gradient = gradient && off[k] < b->gradient;
    bool forgiven = strcmp(b->precision, "bf16") != 0;
    return forward && gradient ? RIGHT : forward && forgiven ? TIED : WRONG;
}

/* The worst of all precisions on the same images. */
static int right_on(const char *name, subject s, const size_t *counts, uint64_t seed)
{
    outcome x[PRECISIONS];
    int worst = RIGHT;
    for (int k = 0; k < PRECISIONS; k++) {
        s.precision = precisions[k].precision;
        x[k] = run_once("cuda", 1, &s, counts, 2, seed);
    }
    outcome y = run_once("ref", 1, &s, counts, 2, seed);
    for (int k = 0; k < PRECISIONS; k++) {
        int found = check(name, &precisions[k], &x[k], &y);
        worst = found < worst ? found : worst;
        outcome_free(&x[k]);
    }
    outcome_free(&y);
    return worst;
}

/* An input of a ReLU that is zero up to rounding, or a tie in a max pool, may fall on either side,
 * and one such flip moves a gradient by 1e-3; so images on which it happens are replaced, twice at
 * most. Nothing else is tried again: an error that comes and goes, a race, would pass sooner or
 * later. A flip moves neither what the forward pass gives nor, by as much as its bound, a gradient
 * in bf16; and the images that pass do so in every precision. Inception at 139 has 134,000 outputs
 * of max pools per image, about one tie within 1e-6 per seed: its three seeds were searched for,
 * and have no tie and no zero within 5e-6 (in double; they hold for these counts and this side
 * only). */
static bool model_is_right(int index)
{
    dro_model_shape usual = dro_model_usual(index);
    int32_t side = usual.height == 1 ? 1 : usual.height == 32 ? 8 : usual.height == 224 ? 33 : 139;
    subject s = {
        .model = dro_model_name(index), .shape = {usual.channels, side, side, 6}, .lift = 3};
    static const uint64_t seeds[2][3] = {{5, 6, 7}, {11, 968, 993}};
    bool inception = side == 139;
    int found = TIED;
    size_t counts[] = {inception ? 3 : 4, inception ? 2 : 3};
    for (int k = 0; k < 3 && found == TIED; k++)
        found = right_on(s.model, s, counts, seeds[inception][k]);
    return found == RIGHT;
}

static void test_every_model(void **state)
{
    (void)state;
    bool good = true;
    int tried = 0;
    for (int i = 0; dro_model_name(i); i++)
        if (!only || strcmp(only, dro_model_name(i)) == 0) {
            good = model_is_right(i) && good;
            tried++;
        }
    assert_true(tried > 0 && good);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_model),
};

int main(int argc, char **argv)
{
    if (without_gpu())
        return 77;
    only = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
