/* Calls of one network, one after another: what a backend must not carry over from one to the next
 * (the cuda backend records its passes), against the reference. On the GPU where there is one, else
 * on the processor. */
#include "nets.h"

#include <dro/dro.h>
#include <dro/net.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT = 8, OUTPUTS = 3, PIXELS = 3 * 8 * 8 };

typedef struct pair {
    dro_context *ctx[2]; /* auto, ref */
    dro_net *net[2];
    float x[COUNT * PIXELS], targets[COUNT * OUTPUTS];
    int32_t labels[COUNT];
} pair;

/* A convolution, and a second head that reads the input itself: only training has that. */
static void headed(dro_net *net)
{
    dro_node x = dro_net_input(net);
    dro_node y = dro_net_relu(net, dro_net_norm(net, "n", dro_net_conv(net, "c", x, 16, 3, 1, 1)));
    dro_net_auxiliary(net, dro_net_linear(net, "aux", dro_net_global_pool(net, x), OUTPUTS), 0.3f);
    dro_net_output(net, dro_net_linear(net, "out", dro_net_global_pool(net, y), OUTPUTS));
}

static void begin(pair *p, const char *loss, const char *precision)
{
    subject s = {.build = headed, .shape = {3, 8, 8, OUTPUTS}, .loss = loss};
    uint64_t state = 4;
    for (int k = 0; k < 2; k++) {
        s.precision = k ? "fp32" : precision;
        p->ctx[k] = check_context(k ? "ref" : "auto", 1);
        p->net[k] = make(p->ctx[k], &s);
    }
    print_message("%s, on %s:\n", loss, dro_context_backend(p->ctx[0]));
    for (int i = 0; i < COUNT * PIXELS; i++)
        p->x[i] = (float)noise(&state);
    for (int i = 0; i < COUNT; i++) {
        p->labels[i] = i % OUTPUTS;
        for (int j = 0; j < OUTPUTS; j++)
            p->targets[i * OUTPUTS + j] = j != i % OUTPUTS; /* not what the labels say */
    }
}

static void end(pair *p)
{
    for (int k = 0; k < 2; k++) {
        dro_net_destroy(p->net[k]);
        dro_context_destroy(p->ctx[k]);
    }
}

static void near(const char *what, int call, size_t n, const float *a, const float *b, double bound)
{
    double off = distance(n, a, b);
    print_message("%s, call %d: %.1e\n", what, call, off);
    assert_true(off < bound);
}

/* Labels and targets in turn, forward and backward, then evaluations with logits only and with
 * losses. */
static void test_targets(void **state)
{
    (void)state;
    static const bool with_targets[] = {false, true, false, true, true, false};
    pair p;
    begin(&p, "logistic", "fp32");
    size_t dim = dro_net_dim(p.net[0]);
    float losses[2][COUNT], logits[2][COUNT * OUTPUTS], coef[COUNT];
    float *grads[2] = {malloc(dim * sizeof(float)), malloc(dim * sizeof(float))};
    for (int i = 0; i < COUNT; i++)
        coef[i] = 1.0f / COUNT;
    for (int call = 0; call < 6; call++) {
        dro_net_batch batch = {.count = COUNT, .x = p.x, .labels = p.labels};
        batch.targets = with_targets[call] ? p.targets : NULL;
        for (int k = 0; k < 2; k++) {
            const float *w = dro_net_weights(p.net[k]);
            OK(p.ctx[k], dro_net_forward(p.net[k], w, &batch, 1, losses[k]));
            OK(p.ctx[k], dro_net_backward(p.net[k], w, coef, &grads[k]));
        }
        near("losses", call, COUNT, losses[0], losses[1], 1e-5);
        near("gradients", call, dim, grads[0], grads[1], 1e-4);
    }
    for (int call = 0; call < 6; call++) {
        bool wanted = call == 2 || call == 4;
        dro_net_batch batch = {.count = COUNT, .x = p.x, .labels = p.labels};
        batch.targets = call == 4 ? p.targets : NULL;
        for (int k = 0; k < 2; k++)
            OK(p.ctx[k], dro_net_evaluate(p.net[k], dro_net_weights(p.net[k]), &batch, logits[k],
                                          wanted ? losses[k] : NULL));
        near("logits", call, COUNT * OUTPUTS, logits[0], logits[1], 1e-5);
        if (wanted)
            near("evaluated losses", call, COUNT, losses[0], losses[1], 1e-5);
    }
    free(grads[0]), free(grads[1]);
    end(&p);
}

/* Where only logits are wanted the labels are not read. */
static void test_labels(void **state)
{
    (void)state;
    pair p;
    begin(&p, "focal", "fp32");
    float logits[2][COUNT * OUTPUTS];
    int32_t wild[COUNT];
    for (int i = 0; i < COUNT; i++)
        wild[i] = i % 2 ? 1 << 30 : -(1 << 30);
    dro_net_batch batch = {.count = COUNT, .x = p.x, .labels = wild};
    for (int k = 0; k < 2; k++)
        OK(p.ctx[k],
           dro_net_evaluate(p.net[k], dro_net_weights(p.net[k]), &batch, logits[k], NULL));
    near("logits", 0, COUNT * OUTPUTS, logits[0], logits[1], 1e-5);
    end(&p);
}

/* Training and evaluation read the same weights in the same order, though the second head is in one
 * of them only. */
static void test_second_head(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "tf32", "bf16"};
    static const double bounds[] = {1e-5, 1e-2, 6e-2};
    for (int q = 0; q < 3; q++) {
        pair p;
        begin(&p, "cross-entropy", precisions[q]);
        float losses[2][COUNT], logits[2][COUNT * OUTPUTS];
        dro_net_batch batch = {.count = COUNT, .x = p.x, .labels = p.labels};
        for (int k = 0; k < 2; k++) {
            const float *w = dro_net_weights(p.net[k]);
            OK(p.ctx[k], dro_net_forward(p.net[k], w, &batch, 1, losses[k]));
            dro_net_accept(p.net[k]);
            OK(p.ctx[k], dro_net_evaluate(p.net[k], w, &batch, logits[k], NULL));
        }
        near(precisions[q], 0, COUNT, losses[0], losses[1], bounds[q]);
        near(precisions[q], 1, COUNT * OUTPUTS, logits[0], logits[1], bounds[q]);
        end(&p);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_targets),
                                          cmocka_unit_test(test_labels),
                                          cmocka_unit_test(test_second_head)};

CHECK_MAIN(tests)
