/* Batches in pieces (src/comm/pieces.c): every optimiser ends where it ends with whole batches, up
 * to rounding, and at the same bits where there is one piece; memory that does not suffice halves
 * the pieces; runs of networks give the same, and resume where they were. */
#include "train_runs.h"

enum { STEPS = 25 };

/* A toy problem without memory for more than `most` examples of a part. */
typedef struct small {
    toy t;
    size_t most; /* 0: any */
    int forwards, refused;
} small;

static bool too_many(small *s, const dro_batch *parts, int count)
{
    bool many = false;
    for (int k = 0; k < count; k++)
        many = many || (s->most && parts[k].count > s->most);
    s->refused += many;
    return many;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int count,
                          float *losses)
{
    small *s = user;
    s->forwards++;
    return too_many(s, parts, count) ? DRO_ERR_MEMORY : toy_forward(&s->t, w, parts, count, losses);
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int count,
                           const float *coef, float *const *grads)
{
    small *s = user;
    return too_many(s, parts, count) ? DRO_ERR_MEMORY
                                     : toy_backward(&s->t, w, parts, count, coef, grads);
}

static dro_status labels_of(void *user, const int64_t *ids, size_t count, int32_t *classes,
                            int32_t *groups)
{
    small *s = user;
    return toy_labels(&s->t, ids, count, classes, groups);
}

static dro_problem problem_of(small *s)
{
    dro_problem p = toy_problem(&s->t);
    p.user = s;
    p.forward = forward;
    p.backward = backward;
    p.labels = labels_of;
    return p;
}

/* The weights after some steps with pieces of `most`; those of the whole batch with -1. */
static void run_toy(dro_context *c, const instance *in, small *s, int most, float *w)
{
    dro_problem whole = problem_of(s), p = whole;
    dro__pieces *pieces = NULL;
    dro__pieces_options o = {.most = (size_t)most};
    if (most >= 0)
        OK(c, dro__pieces_create(c, &whole, &o, &pieces, &p));
    dro_optimizer *opt = create(c, in, p);
    OK(c, dro_optimizer_start(opt, w0));
    for (int k = 0; k < STEPS; k++)
        OK(c, dro_optimizer_step(opt));
    OK(c, dro_optimizer_weights(opt, w));
    dro_optimizer_destroy(opt);
    dro__pieces_free(pieces);
}

static void one(dro_context *c, const instance *in, int unused)
{
    float whole[TOY_DIM], w[TOY_DIM];
    (void)unused;
    if (in->composite || strcmp(in->variant, "output=random") == 0)
        return; /* a random number of steps may be less than STEPS */
    run_toy(c, in, &(small){0}, -1, whole);
    run_toy(c, in, &(small){0}, 1 << 20, w);
    assert_memory_equal(w, whole, sizeof w);
    for (int most = 1; most <= 5; most += 2) {
        small s = {0};
        run_toy(c, in, &s, most, w);
        assert_true(s.t.most <= 2 * (size_t)most);
        for (int j = 0; j < TOY_DIM; j++)
            check_near(in->text, (double)w[j], (double)whole[j], 2e-5);
    }
}

static void every_optimizer(void **state)
{
    (void)state;
    for_each(one, 0);
}

/* As many forwards as pieces, and again all but one. */
static void forwards(void **state)
{
    (void)state;
    float w[TOY_DIM];
    instance in = {"sgd", "", false, "sgd"};
    small whole = {0}, pieces = {0};
    run_toy(ctx, &in, &whole, 8, w);
    assert_int_equal(whole.forwards, STEPS);
    run_toy(ctx, &in, &pieces, 2, w); /* batches of 8 */
    assert_int_equal(pieces.forwards, STEPS * (4 + 3));
}

static void memory(void **state)
{
    (void)state;
    float halved[TOY_DIM], given[TOY_DIM];
    instance in = {"recover", "", false, "recover"};
    small s = {.most = 3}, other = {0}, none = {.most = 3};
    run_toy(ctx, &in, &s, 0, halved); /* 8, 4, 2 */
    assert_int_equal(s.refused, 2);
    run_toy(ctx, &in, &other, 2, given);
    assert_memory_equal(halved, given, sizeof given);
    /* a size that is given stays */
    dro__pieces *pieces;
    dro_optimizer *opt;
    dro_problem whole = problem_of(&none), p;
    OK(ctx, dro__pieces_create(ctx, &whole, &(dro__pieces_options){.most = 4}, &pieces, &p));
    opt = create(ctx, &in, p);
    OK(ctx, dro_optimizer_start(opt, w0));
    assert_int_equal(dro_optimizer_step(opt), DRO_ERR_MEMORY);
    dro_optimizer_destroy(opt);
    dro__pieces_free(pieces);
}

/* ---- runs ---- */

static double farthest(const char *a, const char *b)
{
    double far = 0;
    dro_net *nets[2];
    size_t dim = 0;
    for (int k = 0; k < 2; k++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s/weights.safetensors", dir, k ? b : a);
        dro_model_shape shape = {3, 12, 12, 3};
        OK(ctx, dro_net_model(ctx, "mlp", &shape, &nets[k]));
        OK(ctx, dro_net_ready(nets[k]));
        OK(ctx, dro_net_load(nets[k], path, NULL));
        dim = dro_net_dim(nets[k]);
    }
    const float *w[2] = {dro_net_weights(nets[0]), dro_net_weights(nets[1])};
    for (size_t i = 0; i < dim; i++)
        far = fmax(far, fabs((double)w[0][i] - (double)w[1][i]));
    for (int k = 0; k < 2; k++)
        dro_net_destroy(nets[k]);
    return far;
}

#define MLP "model=mlp best=none optimizer="

static void runs(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"recover", "sgd", "ascpg"};
    for (int k = 0; k < 3; k++) {
        char settings[3][120], names[3][40];
        static const char *const sizes[] = {"", " microbatch=16", " microbatch=5"};
        for (int i = 0; i < 3; i++) {
            snprintf(settings[i], sizeof settings[i], MLP "%s%s%s", optimizers[k], sizes[i],
                     k ? "" : " mixup=0.4 cutmix=1 augment=autoaugment");
            snprintf(names[i], sizeof names[i], "%s-%d", optimizers[k], i);
            OK(ctx, run_to(settings[i], names[i], false, UINT64_MAX, NULL));
        }
        assert_true(farthest(names[0], names[1]) == 0); /* the bits of one piece */
        double far = farthest(names[0], names[2]);
        assert_true(far > 0); /* it was cut: sums are rounded otherwise */
        assert_true(far < 1e-4);
    }
}

/* Batch norm, augmented images, two parts: the run ends the same when it is stopped. */
static void resumes(void **state)
{
    (void)state;
    const char *settings = "model=resnet20 optimizer=recover microbatch=6 mixup=0.4 cutmix=1 "
                           "augment=crop,randaugment,cutout";
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    run_to(settings, "parts", false, 7, NULL);
    stopper s;
    OK(ctx, run_to(settings, "parts", true, UINT64_MAX, &s));
    assert_true(s.went_on);
    same_file("whole", "parts", "weights.safetensors");
}

static void refuses_exact(void **state)
{
    (void)state;
    FAILS(ctx, run_to("exact=yes microbatch=4", "no", false, UINT64_MAX, NULL), DRO_ERR_UNSUPPORTED,
          "microbatch with exact=yes");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_optimizer), cmocka_unit_test(forwards),
    cmocka_unit_test(memory),          cmocka_unit_test(runs),
    cmocka_unit_test(resumes),         cmocka_unit_test(refuses_exact),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
