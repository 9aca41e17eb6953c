/* Training on a GPU: the images that live there are the loader's, and a run goes as it does on the CPU. Skipped
 * (77) where there is no GPU. */
#include "nets.h"

#include "augment.h"
#include "backend.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/train.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dro_loader *make_loader(dro_context *ctx, dro_data *data, bool cuts)
{
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader = NULL;
    o.batch = 300, o.augment = true, o.cuts = cuts;
    if (dro_loader_create(data, DRO_TRAIN, &o, &loader) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    return loader;
}

/* The losses of a batch of images that are there, and of the same as the loader makes it. */
static void test_images(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    dro_context *ctx = check_context("cuda", 2);
    const dro__backend *be = ctx->backend;
    dro_data *data = NULL;
    dro_examples e;
    dro_loaded made, told;
    assert_int_equal(dro_data_open(ctx, "synth:glyphs,n=1000,test=10,size=24", &data), DRO_OK);
    assert_int_equal(dro_data_examples(data, DRO_TRAIN, &e), DRO_OK);
    dro_loader *loader = make_loader(ctx, data, false), *cutter = make_loader(ctx, data, true);
    size_t image = 3 * 24 * 24;
    assert_int_equal(dro_loader_draw(loader, COUNT, &made), DRO_OK);
    assert_int_equal(dro_loader_draw(cutter, COUNT, &told), DRO_OK);
    dro__normal normal = dro__normal_of(data);
    dro_net_images there;
    OK(ctx, dro_net_images_create(ctx, e.pixels, (size_t)e.count * image, normal.scale,
                                  normal.shift, &there));
    dro_net_batch one = {.count = COUNT, .x = made.pixels, .labels = made.labels};
    dro_net_batch two = {.count = COUNT, .labels = told.labels};
    two.images = &there, two.ids = told.ids, two.cuts = told.cuts;
    dro_model_shape shape = {3, 24, 24, 10};
    dro_net *net;
    float a[COUNT], b[COUNT], *w = NULL;
    assert_int_equal(dro_net_model(ctx, "glyphnet", &shape, &net), DRO_OK);
    assert_int_equal(dro_net_set(net, "precision", "fp32"), DRO_OK);
    assert_int_equal(dro_net_ready(net), DRO_OK);
    assert_int_equal(dro_net_init(net, 3), DRO_OK);
    w = be->alloc(dro_net_dim(net), sizeof *w);
    be->copy_in(w, dro_net_weights(net), dro_net_dim(net) * sizeof *w);
    assert_int_equal(dro_net_forward(net, w, &one, 1, a), DRO_OK);
    assert_int_equal(dro_net_forward(net, w, &two, 1, b), DRO_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(a[i] - b[i]) < 1e-4f * (1 + fabsf(a[i])));
    dro_net_images_free(ctx, &there);
    be->free(w);
    dro_net_destroy(net);
    dro_loader_destroy(loader);
    dro_loader_destroy(cutter);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

/* ---- steps that are not waited for, against the same steps taken one by one ---- */

typedef struct kind {
    const char *model, *precision;
    int32_t side, examples;
} kind;

static const kind exact = {"glyphnet", "fp32", 16, 400}, narrow = {"resnet20", "bf16", 32, 32};

typedef struct run {
    dro_context *ctx;
    dro_data *data;
    dro_examples e;
    dro__normal normal;
    dro_net_images there;
    double share[4];
    dro_net *net;
    dro_optimizer *opt;
    int32_t labels[2][64];
    int turn;
} run;

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    run *r = user;
    int32_t *labels = r->labels[r->turn++ % 2];
    for (size_t i = 0; i < batch->count; i++)
        labels[i] = r->e.labels[batch->ids[i]];
    *out = (dro_net_batch){
        .count = batch->count, .images = &r->there, .ids = batch->ids, .labels = labels};
    return DRO_OK;
}

static dro_status give_labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                              int32_t *groups)
{
    const run *r = user;
    (void)groups;
    for (size_t i = 0; classes && i < count; i++)
        classes[i] = r->e.labels[ids[i]];
    return DRO_OK;
}

static void start_run(run *r, const kind *k, bool queued, const char *optimizer,
                      const char *settings, const float *from)
{
    *r = (run){.ctx = check_context("cuda", 1)};
    dro_model_shape shape = {3, k->side, k->side, 4};
    size_t image = 3 * (size_t)k->side * (size_t)k->side;
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "synth:glyphs,n=%d,test=8,classes=4,size=%d", k->examples, k->side);
    dro_net_source source = {.user = r, .fetch = fetch, .labels = give_labels, .n = k->examples};
    dro_problem problem;
    OK(r->ctx, dro_data_open(r->ctx, text, &r->data));
    OK(r->ctx, dro_data_examples(r->data, DRO_TRAIN, &r->e));
    r->normal = dro__normal_of(r->data);
    OK(r->ctx, dro_net_images_create(r->ctx, r->e.pixels, (size_t)k->examples * image,
                                     r->normal.scale, r->normal.shift, &r->there));
    for (int64_t i = 0; i < k->examples; i++)
        r->share[r->e.labels[i]] += 1.0 / k->examples;
    source.classes = 4, source.class_share = r->share, source.images = true;
    OK(r->ctx, dro_net_model(r->ctx, k->model, &shape, &r->net));
    OK(r->ctx, dro_net_set(r->net, "precision", k->precision));
    OK(r->ctx, dro_net_ready(r->net));
    OK(r->ctx, dro_net_init(r->net, 3));
    OK(r->ctx, dro_net_problem(r->net, &source, &problem));
    assert_non_null(problem.queue);
    if (!queued)
        problem.queue = NULL;
    OK(r->ctx, dro_optimizer_create(r->ctx, optimizer, &problem, &r->opt));
    OK(r->ctx, dro_optimizer_set(r->opt, "batch", "32"));
    snprintf(text, sizeof text, "%s", settings);
    for (char *pair = strtok_r(text, " ", &rest); pair; pair = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(pair, '=');
        *value++ = '\0';
        OK(r->ctx, dro_optimizer_set(r->opt, pair, value));
    }
    OK(r->ctx, dro_optimizer_start(r->opt, from ? from : dro_net_weights(r->net)));
}

static void end_run(run *r)
{
    dro_optimizer_destroy(r->opt);
    dro_net_destroy(r->net);
    dro_net_images_free(r->ctx, &r->there);
    dro_data_close(r->data);
    dro_context_destroy(r->ctx);
}

static void take_steps(run *r, int count)
{
    for (int k = 0; k < count; k++)
        OK(r->ctx, dro_optimizer_step(r->opt));
}

static void compare(const char *optimizer, const char *settings, double tolerance)
{
    enum { STEPS = 40 };
    run a, b;
    dro_info x, y;
    start_run(&a, &exact, true, optimizer, settings, NULL);
    start_run(&b, &exact, false, optimizer, settings, NULL);
    size_t dim = dro_net_dim(a.net), statistics = dro_net_statistics_count(a.net);
    float *u = malloc((dim + statistics) * sizeof *u), *v = malloc((dim + statistics) * sizeof *v);
    assert_true(u && v);
    take_steps(&a, 23); /* then somebody looks, and it goes on */
    OK(a.ctx, dro_optimizer_info(a.opt, &x));
    take_steps(&b, 23);
    OK(b.ctx, dro_optimizer_info(b.opt, &y));
    assert_true(fabs(x.log_u - y.log_u) < 1e-3 && fabs(x.eta - y.eta) <= 1e-3 * y.eta);
    size_t size = dro_optimizer_state_size(a.opt);
    void *state = malloc(size);
    OK(a.ctx, dro_optimizer_save(a.opt, state, size));
    take_steps(&a, 3); /* these are undone */
    OK(a.ctx, dro_optimizer_load(a.opt, state, size));
    take_steps(&a, STEPS - 23);
    take_steps(&b, STEPS - 23);
    OK(a.ctx, dro_optimizer_info(a.opt, &x));
    OK(b.ctx, dro_optimizer_info(b.opt, &y));
    assert_int_equal(x.step, y.step);
    assert_int_equal(x.examples, y.examples);
    assert_int_equal(x.caps, y.caps);
    assert_int_equal(x.fresh_starts, y.fresh_starts);
    OK(a.ctx, dro_optimizer_weights(a.opt, u));
    OK(b.ctx, dro_optimizer_weights(b.opt, v));
    double off = 0, all = 0;
    for (size_t i = 0; i < dim; i++) {
        off += ((double)u[i] - (double)v[i]) * ((double)u[i] - (double)v[i]);
        all += (double)v[i] * (double)v[i];
    }
    off = sqrt(off / all);
    printf("  %s %s: %.1e away after %d steps, loss %.4f and %.4f, a %.3f and %.3f\n", optimizer,
           settings, off, STEPS, x.loss, y.loss, x.a, y.a);
    assert_true(off < tolerance);
    free(u), free(v), free(state);
    end_run(&a);
    end_run(&b);
}

static void test_queue(void **state)
{
    (void)state;
    /* gentle ones: the recursion and larger steps amplify rounding, on any backend */
    compare("sgd", "eta=0.002", 5e-4);
    compare("sgd", "eta=0.002 nesterov=yes weight_decay=0.001 reg=l1 reg_strength=0.0001", 5e-4);
    compare("recover", "eta=0.004 lambda=5 warmup=10", 5e-3);
    compare("recover", "eta=0.004 lambda=0.5 warmup=10 weight_decay=0.0005", 5e-3);
    compare("recover", "eta=0.004 tilt=none a_rule=fixed a=0.5 warmup=0", 5e-3);
    compare("recover", "eta=0.004 tilt=class lambda=1 warmup=10", 5e-3);
    compare("recover", "eta=0.004 tilt=class a_rule=fixed a=0.3 group_prior=data warmup=0", 5e-3);
    compare("recover", "eta=0.004 lambda=5 switch_step=30 switch_tilt=class warmup=0", 5e-3);
    compare("cover", "eta=0.004 lambda=2 a_rule=eta2 a_c=1000 guard=0 cap=1 reg=l2 warmup=5", 5e-3);
}

/* A number that is not finite: found late, and nothing has happened. */
static void test_queue_refuses(void **state)
{
    (void)state;
    run a;
    dro_info info;
    start_run(&a, &exact, true, "recover", "eta=0.1 lambda=5 warmup=0", NULL);
    size_t dim = dro_net_dim(a.net);
    float *w = malloc(dim * sizeof *w), *after = malloc(dim * sizeof *after);
    assert_true(w && after);
    for (size_t i = 0; i < dim; i++)
        w[i] = i % 2 ? 3e38f : -3e38f;
    end_run(&a);
    start_run(&a, &exact, true, "recover", "eta=0.1 lambda=5 warmup=0", w);
    dro_status status = DRO_OK;
    int queued = 0;
    while (status == DRO_OK && queued < 20) {
        status = dro_optimizer_step(a.opt);
        queued += status == DRO_OK;
    }
    assert_int_equal(status, DRO_ERR_NUMBER);
    assert_in_range(queued, 1, 6);
    printf("  after %d: %s\n", queued, dro_context_error(a.ctx));
    assert_non_null(strstr(dro_context_error(a.ctx), "at step 0"));
    OK(a.ctx, dro_optimizer_info(a.opt, &info));
    assert_int_equal(info.step, 0);
    assert_int_equal(info.examples, 0);
    OK(a.ctx, dro_optimizer_weights(a.opt, after));
    assert_memory_equal(w, after, dim * sizeof *w);
    OK(a.ctx, dro_optimizer_skip(a.opt));
    free(w), free(after);
    end_run(&a);
}

/* The losses of a run, looked at every few steps; visited: other networks come and go meanwhile, so that its share of the
 * GPU is a quarter, a half, all of it and a quarter again. */
enum { STAGE = 8, LOOK = 4, VISITED = 4 * STAGE / LOOK };

static void visited_run(bool queued, bool visited, const char *optimizer, const char *settings,
                        double *losses)
{
    static const int beside[] = {COMPANY, 1, 0, COMPANY};
    run r;
    dro_info info;
    company others = {0};
    start_run(&r, &narrow, queued, optimizer, settings, NULL);
    for (int k = 0; k < VISITED; k++) {
        if (visited && k * LOOK % STAGE == 0)
            keep_company(&others, beside[k * LOOK / STAGE]);
        take_steps(&r, LOOK);
        OK(r.ctx, dro_optimizer_info(r.opt, &info));
        losses[k] = info.loss;
    }
    if (visited)
        keep_company(&others, 0);
    end_run(&r);
}

/* Other kernels with weights in another order take over in the middle of a run, and it learns what it learns alone: the
 * same images in every step, so that the losses fall fast and rounding stays small (0.01 in floats, with weights that
 * begin 0.004 apart), where the wrong order would throw them back. */
static void test_visited(void **state)
{
    (void)state;
    static const char *const optimizers[][2] = {{"sgd", "eta=0.02 momentum=0"},
                                                {"recover", "eta=0.02 lambda=5 warmup=0"}};
    for (int k = 0; k < 4; k++) {
        double alone[VISITED], beside[VISITED], worst = 0;
        const char *const *o = optimizers[k / 2];
        visited_run(k % 2, false, o[0], o[1], alone);
        visited_run(k % 2, true, o[0], o[1], beside);
        for (int i = 0; i < VISITED; i++)
            worst = fmax(worst, fabs(beside[i] - alone[i]));
        printf("  %s%s: loss %.4f to %.4f, off by %.1e at most\n", o[0], k % 2 ? ", queued" : "",
               alone[0], alone[VISITED - 1], worst);
        assert_true(alone[VISITED - 1] < 0.5 * alone[0]);
        assert_true(worst < 0.05);
    }
}

static double accuracy(const char *backend, const char *precision)
{
    dro_context *ctx = check_context(backend, 4);
    dro_train *train = NULL;
    assert_int_equal(dro_train_create(ctx, &train), DRO_OK);
    const char *set[][2] = {{"data", "synth:glyphs,n=2000,test=1000,classes=4,size=16"},
                            {"optimizer", "sgd"},
                            {"epochs", "6"},
                            {"precision", precision}};
    for (size_t k = 0; k < sizeof set / sizeof set[0]; k++)
        if (dro_train_set(train, set[k][0], set[k][1]) != DRO_OK)
            fail_msg("%s", dro_context_error(ctx));
    if (dro_train_run(train, NULL, false, NULL) != DRO_OK)
        fail_msg("%s", dro_context_error(ctx));
    double found = dro_train_last(train)->test.accuracy;
    printf("  %s %s: accuracy %.3f\n", backend, precision, found);
    dro_train_destroy(train);
    dro_context_destroy(ctx);
    return found;
}

static void test_run(void **state)
{
    (void)state;
    double cpu = accuracy("ref", "fp32");
    assert_true(cpu > 0.7);
    assert_true(fabs(accuracy("cuda", "fp32") - cpu) < 0.05);
    assert_true(fabs(accuracy("cuda", "tf32") - cpu) < 0.06);
    assert_true(fabs(accuracy("cuda", "bf16") - cpu) < 0.08);
}

/* Runs that begin and end while others train: none disturbs another. */
static void *short_runs(void *user)
{
    dro_context *ctx = NULL;
    bool *ok = user;
    *ok = true;
    for (int k = 0; k < 6 && *ok; k++) {
        dro_train *train = NULL;
        *ok = dro_context_create("cuda", 1, &ctx) == DRO_OK &&
              dro_train_create(ctx, &train) == DRO_OK &&
              dro_train_set(train, "data", "synth:glyphs,n=300,test=40,classes=4,size=16") ==
                  DRO_OK &&
              dro_train_set(train, "epochs", "2") == DRO_OK &&
              dro_train_run(train, NULL, false, NULL) == DRO_OK;
        if (!*ok)
            printf("  %s\n", ctx ? dro_context_error(ctx) : "no context");
        dro_train_destroy(train);
        dro_context_destroy(ctx);
        ctx = NULL;
    }
    return NULL;
}

static void test_runs_at_once(void **state)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    bool ok[THREADS];
    (void)state;
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&threads[k], NULL, short_runs, &ok[k]), 0);
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < THREADS; k++)
        assert_true(ok[k]);
}

static bool stop_after(void *user, const dro_train_progress *p)
{
    int *left = user;
    return p->step > 0 && !p->evaluating && --*left <= 0;
}

/* Twice the same, and once stopped in the middle and resumed: the same weights, bit for bit. */
static void train_once(const char *folder, const char *steps, bool resume, float *w, size_t *dim)
{
    dro_context *ctx = check_context("cuda", 2);
    dro_train *train = NULL;
    OK(ctx, dro_train_create(ctx, &train));
    const char *set[][2] = {{"data", "synth:glyphs,n=600,test=100,classes=4,size=32"},
                            {"model", "resnet20"},
                            {"optimizer", "recover"},
                            {"batch", "64"},
                            {"steps", "24"},
                            {"eval_every", "1"},
                            {"precision", "bf16"},
                            {"deterministic", "yes"}};
    for (size_t k = 0; k < sizeof set / sizeof set[0]; k++)
        OK(ctx, dro_train_set(train, set[k][0], set[k][1]));
    int left = atoi(steps);
    dro_train_watch watch = {.user = &left, .step = stop_after};
    OK(ctx, dro_train_run(train, folder, resume, &watch));
    if (w) {
        dro_net *net = NULL;
        dro_model_shape shape = {3, 32, 32, 4};
        char path[256];
        snprintf(path, sizeof path, "%s/weights.safetensors", folder);
        OK(ctx, dro_net_model(ctx, "resnet20", &shape, &net));
        OK(ctx, dro_net_ready(net));
        OK(ctx, dro_net_load(net, path, NULL));
        *dim = dro_net_dim(net);
        memcpy(w, dro_net_weights(net), *dim * sizeof *w);
        dro_net_destroy(net);
    }
    dro_train_destroy(train);
    dro_context_destroy(ctx);
}

static void test_deterministic(void **state)
{
    (void)state;
    char dir[] = "/tmp/dro-cuda-XXXXXX", folder[64];
    float *w[3];
    size_t dim = 0;
    assert_non_null(mkdtemp(dir));
    for (int k = 0; k < 3; k++) {
        w[k] = malloc(400000 * sizeof *w[k]);
        assert_non_null(w[k]);
        snprintf(folder, sizeof folder, "%s/%d", dir, k);
        if (k == 2)
            train_once(folder, "11", false, NULL, NULL);
        train_once(folder, "1000", k == 2, w[k], &dim);
    }
    assert_memory_equal(w[0], w[1], dim * sizeof(float));
    assert_memory_equal(w[0], w[2], dim * sizeof(float));
    for (int k = 0; k < 3; k++)
        free(w[k]);
    snprintf(folder, sizeof folder, "rm -rf %s", dir);
    assert_int_equal(system(folder), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_queue_refuses), cmocka_unit_test(test_visited),
        cmocka_unit_test(test_run),           cmocka_unit_test(test_runs_at_once),
        cmocka_unit_test(test_deterministic)};
    dro_context *ctx;
    if (dro_context_create("cuda", 1, &ctx) != DRO_OK) {
        const char *why = dro_backend_missing("cuda");
        printf("skipped: %s\n", why ? why : "this build has no cuda backend");
        return 77;
    }
    dro_context_destroy(ctx);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
