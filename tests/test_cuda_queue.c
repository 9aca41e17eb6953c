/* Steps on a GPU that are not waited for, against the same steps taken one by one; what happens
 * when one of them is refused. Skipped (77) where there is no GPU. */
#include "nets.h"

#include "augment.h"
#include "backend.h"

#include <dro/dro.h>
#include <dro/net.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ---- */

typedef struct kind {
    const char *model, *precision;
    int32_t side, examples;
    int64_t odd[2]; /* unless 0: these examples alone are of the last class, -1: none */
    bool mixed;     /* images are changed by operations and mixed */
} kind;

static const kind exact = {.model = "glyphnet", .precision = "fp32", .side = 16, .examples = 400},
                  mixed = {"glyphnet", "fp32", 16, 400, {0}, true},
                  small = {.model = "mlp:16", .precision = "fp32", .side = 16, .examples = 400},
                  narrow = {.model = "resnet20", .precision = "bf16", .side = 32, .examples = 32};

typedef struct run {
    dro_context *ctx;
    dro_data *data;
    dro_examples e;
    dro__normal normal;
    dro_net_images device_images;
    double share[4];
    int64_t odd[2];
    dro_net *net;
    dro_problem problem;
    dro_optimizer *opt;
    int32_t labels[2][64];
    dro_cut cuts[2][64];
    dro_mix mixes[2][64];
    int turn;
    bool mixed;
} run;

static int32_t label_of(const run *r, int64_t id)
{
    if (!r->odd[0])
        return r->e.labels[id];
    return id == r->odd[0] || id == r->odd[1] ? 3 : r->e.labels[id] % 3;
}

static dro_cut cut_of(int64_t id)
{
    dro__augment_random random = {.seed = 5,
                                  .stream = (uint64_t)id,
                                  .ways = DRO_AUGMENT_CROP | DRO_AUGMENT_AUTOAUGMENT |
                                          DRO_AUGMENT_CUTOUT};
    return dro__cut_of(&random, 16, 16);
}

/* Each image is mixed with the next, every third of them by a box. */
static dro_mix mix_of(const run *r, int64_t id)
{
    int64_t next = (id + 1) % r->e.count;
    dro_mix mix = {.id = next, .label = label_of(r, next), .share = 0.75f, .cut = cut_of(next)};
    if (id % 3 == 0)
        mix.box = (dro_box){4, 8, 12, 16};
    return mix;
}

static dro_status fetch(void *user, const dro_batch *batch, dro_net_batch *out)
{
    run *r = user;
    int turn = r->turn++ % 2;
    int32_t *labels = r->labels[turn];
    for (size_t i = 0; i < batch->count; i++)
        labels[i] = label_of(r, batch->ids[i]);
    *out = (dro_net_batch){
        .count = batch->count, .images = &r->device_images, .ids = batch->ids, .labels = labels};
    for (size_t i = 0; r->mixed && i < batch->count; i++) {
        r->cuts[turn][i] = cut_of(batch->ids[i]);
        r->mixes[turn][i] = mix_of(r, batch->ids[i]);
    }
    if (r->mixed)
        out->cuts = r->cuts[turn], out->mixes = r->mixes[turn];
    return DRO_OK;
}

static dro_status give_labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                              int32_t *groups)
{
    const run *r = user;
    (void)groups;
    for (size_t i = 0; classes && i < count; i++)
        classes[i] = label_of(r, ids[i]);
    return DRO_OK;
}

/* A last class of probability 0, so that nothing of it is learned from the other classes' examples.
 * Where an example is of this class its loss is finite and its slope, times a large weight, is
 * not. */
static void spoil(run *r)
{
    dro_tensor t;
    float *w = malloc(dro_net_dim(r->net) * sizeof *w);
    assert_non_null(w);
    memcpy(w, dro_net_weights(r->net), dro_net_dim(r->net) * sizeof *w);
    for (size_t k = 0; dro_net_tensor(r->net, k, &t) == DRO_OK; k++)
        for (int64_t j = 0; strcmp(t.name, "fc.weight") == 0 && j < t.shape[1]; j++)
            w[t.offset + 3 * t.shape[1] + j] = -1e15f;
    OK(r->ctx, dro_net_set_weights(r->net, w));
    r->share[3] = 1e-30;
    free(w);
}

static void start_run(run *r, const kind *k, bool queued, const char *optimizer,
                      const char *settings, const float *from)
{
    *r = (run){.ctx = check_context("cuda", 1), .odd = {k->odd[0], k->odd[1]}, .mixed = k->mixed};
    dro_model_shape shape = {3, k->side, k->side, 4};
    size_t image = 3 * (size_t)k->side * (size_t)k->side;
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "synth:glyphs,n=%d,test=8,classes=4,size=%d", k->examples, k->side);
    dro_net_source source = {.size = sizeof(dro_net_source),
                             .user = r,
                             .fetch = fetch,
                             .labels = give_labels,
                             .n = k->examples};
    OK(r->ctx, dro_data_open(r->ctx, text, &r->data));
    OK(r->ctx, dro_data_examples(r->data, DRO_TRAIN, &r->e));
    r->normal = dro__normal_of(r->data);
    OK(r->ctx, dro_net_images_create(r->ctx, r->e.pixels, (size_t)k->examples * image,
                                     r->normal.scale, r->normal.shift, &r->device_images));
    for (int64_t i = 0; i < k->examples; i++)
        r->share[k->odd[0] ? r->e.labels[i] % 3 : r->e.labels[i]] += 1.0 / k->examples;
    source.classes = 4, source.class_share = r->share, source.images = true;
    OK(r->ctx, dro_net_model(r->ctx, k->model, &shape, &r->net));
    OK(r->ctx, dro_net_set(r->net, "precision", k->precision));
    OK(r->ctx, dro_net_set(r->net, "deterministic", k == &narrow ? "no" : "yes"));
    OK(r->ctx, dro_net_ready(r->net));
    OK(r->ctx, dro_net_init(r->net, 3));
    if (k->odd[0])
        spoil(r);
    OK(r->ctx, dro_net_problem(r->net, &source, &r->problem));
    assert_non_null(r->problem.library);
    if (!queued)
        r->problem.library = NULL;
    OK(r->ctx, dro_optimizer_create(r->ctx, optimizer, &r->problem, &r->opt));
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
    dro_net_images_free(r->ctx, &r->device_images);
    dro_data_close(r->data);
    dro_context_destroy(r->ctx);
}

static void take_steps(run *r, int count)
{
    for (int k = 0; k < count; k++)
        OK(r->ctx, dro_optimizer_step(r->opt));
}

static void compare(const kind *k, const char *optimizer, const char *settings, int steps,
                    double tolerance)
{
    int look = steps * 23 / 40;
    run a, b;
    dro_info x, y;
    start_run(&a, k, true, optimizer, settings, NULL);
    start_run(&b, k, false, optimizer, settings, NULL);
    size_t dim = dro_net_dim(a.net), statistics = dro_net_statistics_count(a.net);
    float *u = malloc((dim + statistics) * sizeof *u), *v = malloc((dim + statistics) * sizeof *v);
    assert_true(u && v);
    take_steps(&a, look); /* then somebody looks, and it goes on */
    OK(a.ctx, dro_optimizer_info(a.opt, &x));
    take_steps(&b, look);
    OK(b.ctx, dro_optimizer_info(b.opt, &y));
    assert_true(fabs(x.log_u - y.log_u) < 1e-3 && fabs(x.eta - y.eta) <= 1e-3 * y.eta);
    size_t size = dro_optimizer_state_size(a.opt);
    void *state = malloc(size);
    OK(a.ctx, dro_optimizer_save(a.opt, state, size));
    take_steps(&a, 3); /* these are undone */
    OK(a.ctx, dro_optimizer_load(a.opt, state, size));
    take_steps(&a, steps - look);
    take_steps(&b, steps - look);
    OK(a.ctx, dro_optimizer_info(a.opt, &x));
    OK(b.ctx, dro_optimizer_info(b.opt, &y));
    assert_int_equal(x.step, y.step);
    assert_int_equal(x.examples, y.examples);
    assert_int_equal(x.caps, y.caps);
    assert_int_equal(x.fresh_starts, y.fresh_starts);
    OK(a.ctx, dro_optimizer_weights(a.opt, u));
    OK(b.ctx, dro_optimizer_weights(b.opt, v));
    double off = distance(dim, u, v);
    printf("  %s %s: %.1e away after %d steps, loss %.4f and %.4f, a %.3f and %.3f\n", optimizer,
           settings, off, steps, x.loss, y.loss, x.a, y.a);
    assert_true(off < tolerance);
    free(u), free(v), free(state);
    end_run(&a);
    end_run(&b);
}

/* Gentle ones: the recursion and larger steps amplify rounding, on any backend. */
static void every_queue(const kind *of, int steps)
{
    static const char *const kinds[][2] = {
        {"sgd", "eta=0.002"},
        {"sgd", "eta=0.002 nesterov=yes weight_decay=0.001 reg=l1 reg_strength=0.0001"},
        {"sgd", "eta=0.002 sam=0.05 sam_over=class"},
        {"adamw", "eta=0.0005 weight_decay=0.01 epsilon=1e-3"},
        {"adamw", "eta=0.0005 epsilon=1e-3 ema=0.9"},
        {"absgd", "eta=0.002 lambda=5 warmup=10"},
        {"absgd", "eta=0.002 tilt=class lambda=1 warmup=10"},
        {"scent", "eta=0.0005 lambda=5 warmup=10 epsilon=1e-3"},
        {"scent", "eta=0.01 lambda=1 tilt=class precondition=none momentum=0.9 warmup=10"},
        {"recover", "eta=0.0005 lambda=5 precondition=rms epsilon=1e-3 warmup=10"},
        {"ascpg", "eta=0.004 lambda=5"},
        {"ascpg", "eta=0.004 lambda=5 switch_step=20 switch_tilt=class reg=l2"},
        {"recover", "eta=0.004 lambda=5 warmup=10"},
        {"recover", "eta=0.004 lambda=5 warmup=10 sam=0.05 ema=0.9"},
        {"recover", "eta=0.004 lambda=0.5 warmup=10 weight_decay=0.0005"},
        {"recover", "eta=0.004 tilt=none a_rule=fixed a=0.5 warmup=0"},
        {"recover", "eta=0.004 tilt=class lambda=1 warmup=10"},
        {"recover", "eta=0.004 tilt=class a_rule=fixed a=0.3 group_prior=data warmup=0"},
        {"recover", "eta=0.004 lambda=5 switch_step=30 switch_tilt=class warmup=0"},
        {"cover", "eta=0.004 lambda=2 a_rule=eta2 a_c=1000 guard=0 cap=1 reg=l2 warmup=5"}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        compare(of, kinds[k][0], kinds[k][1], steps, strcmp(kinds[k][0], "sgd") == 0 ? 5e-4 : 5e-3);
}

static void test_queue(void **state)
{
    (void)state;
    every_queue(&exact, 40);
}

static void test_queue_mixed(void **state)
{
    (void)state;
    compare(&mixed, "sgd", "eta=0.002", 40, 5e-4);
    compare(&mixed, "recover", "eta=0.004 tilt=class lambda=1 warmup=10", 40, 5e-3);
    compare(&mixed, "ascpg", "eta=0.004 lambda=5", 40, 5e-3);
}

/* For compute-sanitizer, which cuDNN's fp32 convolutions would keep busy; the third step is the
 * first that is replayed. */
static void test_queue_short(void **state)
{
    (void)state;
    every_queue(&small, 4);
}

/* ---- steps that are refused ---- */

/* Steps until one is refused; how many were queued before that was known. */
static int until_refused(run *r)
{
    dro_status status = DRO_OK;
    int queued = 0;
    while (status == DRO_OK && queued < 20) {
        status = dro_optimizer_step(r->opt);
        queued += status == DRO_OK;
    }
    assert_int_equal(status, DRO_ERR_NUMBER);
    printf("  after %d: %s\n", queued, dro_context_error(r->ctx));
    return queued;
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
    assert_in_range(until_refused(&a), 1, 6);
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

static void *saved(run *r, size_t *size)
{
    *size = dro_optimizer_state_size(r->opt);
    void *state = malloc(*size);
    assert_non_null(state);
    OK(r->ctx, dro_optimizer_save(r->opt, state, *size));
    return state;
}

/* The weights after some more steps, and log_u; the last class's, which are huge, as 0. */
static float *go_on(run *r, double *log_u)
{
    dro_info info;
    float *w = malloc(dro_net_dim(r->net) * sizeof *w);
    assert_non_null(w);
    take_steps(r, 5);
    OK(r->ctx, dro_optimizer_info(r->opt, &info));
    OK(r->ctx, dro_optimizer_weights(r->opt, w));
    for (size_t j = 0; j < dro_net_dim(r->net); j++)
        w[j] = w[j] == -1e15f ? 0 : w[j];
    *log_u = info.log_u;
    return w;
}

/* The gradient of step 4's next batch is refused: the state is, byte for byte, that of a run that
 * has taken four steps; and when the example is mended and the batch tried again, the two go on as
 * one. */
static void refused_and_retried(const kind *spoiled, const char *settings)
{
    run a, b;
    size_t size, same;
    double x, y;
    start_run(&a, spoiled, true, "recover", settings, NULL);
    assert_in_range(until_refused(&a), 5, 10);
    assert_non_null(strstr(dro_context_error(a.ctx), "gradient entry"));
    assert_non_null(strstr(dro_context_error(a.ctx), "at step 4"));
    start_run(&b, spoiled, true, "recover", settings, NULL);
    a.odd[1] = b.odd[1] = -1;
    take_steps(&b, 4);
    void *refused = saved(&a, &size), *four = saved(&b, &same);
    assert_int_equal(size, same);
    assert_memory_equal(refused, four, size);
    float *u = go_on(&a, &x), *v = go_on(&b, &y);
    assert_memory_equal(u, v, dro_net_dim(a.net) * sizeof *u);
    assert_true(x == y);
    free(refused), free(four), free(u), free(v);
    end_run(&a);
    end_run(&b);
}

/* The batch is skipped, in a queue and with steps taken one by one. */
static void refused_and_skipped(const kind *spoiled, const char *settings)
{
    run r;
    double log_u[2];
    float *w[2];
    size_t dim = 0;
    for (int queued = 0; queued < 2; queued++) {
        start_run(&r, spoiled, queued, "recover", settings, NULL);
        dim = dro_net_dim(r.net);
        until_refused(&r);
        assert_non_null(strstr(dro_context_error(r.ctx), "at step 4"));
        OK(r.ctx, dro_optimizer_skip(r.opt));
        w[queued] = go_on(&r, &log_u[queued]);
        end_run(&r);
    }
    double off = distance(dim, w[1], w[0]);
    printf("  skipped: %.1e away, log_u %.6g and %.6g\n", off, log_u[1], log_u[0]);
    assert_true(off < 5e-3);
    assert_true(fabs(log_u[1] - log_u[0]) <= 1e-3 * fmax(1, fabs(log_u[0])));
    free(w[0]), free(w[1]);
}

/* Losses that are finite and a gradient that is not. Over classes the first odd example makes the
 * last class known, and the second, of a class that is said to be very rare, weighs too much. */
static void test_refused_gradient(void **state)
{
    (void)state;
    static const kind one = {"glyphnet", "fp32", 16, 400, {-1, 170}, false},
                      two = {"glyphnet", "fp32", 16, 400, {100, 170}, false};
    const char *examples = "order=sequential eta=0.004 lambda=5 warmup=0 cap=60";
    const char *classes = "order=sequential eta=0.004 lambda=5 warmup=0 tilt=class guard=0";
    refused_and_retried(&one, examples);
    refused_and_retried(&two, classes);
    refused_and_skipped(&one, examples);
    refused_and_skipped(&two, classes);
}

/* ---- a run that goes from thread to thread ---- */

enum { RELAY = 10 };

typedef struct relay {
    run r;
    float *w[2], *statistics; /* w: after RELAY steps and after twice as many */
    dro_status status;
    pthread_barrier_t gate;
} relay;

/* The first steps, and the last look: both while the other thread's steps may still be under
 * way. */
static void *begin_and_end(void *user)
{
    relay *k = user;
    for (int i = 0; i < RELAY && k->status == DRO_OK; i++)
        k->status = dro_optimizer_step(k->r.opt);
    pthread_barrier_wait(&k->gate);
    pthread_barrier_wait(&k->gate);
    if (k->status == DRO_OK)
        k->status = dro_optimizer_weights(k->r.opt, k->w[1]);
    return NULL;
}

static void run_relay(relay *k, bool threads)
{
    pthread_t other;
    *k = (relay){.status = DRO_OK};
    start_run(&k->r, &exact, true, "recover", "eta=0.004 lambda=5 warmup=0", NULL);
    size_t dim = dro_net_dim(k->r.net);
    for (int i = 0; i < 2; i++)
        k->w[i] = malloc(dim * sizeof(float));
    k->statistics = malloc(dro_net_statistics_count(k->r.net) * sizeof(float));
    assert_true(k->w[0] && k->w[1] && k->statistics);
    if (threads) {
        assert_int_equal(pthread_barrier_init(&k->gate, NULL, 2), 0);
        assert_int_equal(pthread_create(&other, NULL, begin_and_end, k), 0);
        pthread_barrier_wait(&k->gate);
    } else {
        take_steps(&k->r, RELAY);
    }
    OK(k->r.ctx, dro_net_statistics(k->r.net, k->statistics));
    OK(k->r.ctx, dro_optimizer_weights(k->r.opt, k->w[0]));
    take_steps(&k->r, RELAY);
    if (threads) {
        pthread_barrier_wait(&k->gate);
        pthread_join(other, NULL);
        pthread_barrier_destroy(&k->gate);
    } else {
        k->status = dro_optimizer_weights(k->r.opt, k->w[1]);
    }
    OK(k->r.ctx, k->status);
}

/* One thread queues steps and another reads, queues more, and the first reads: what one thread
 * alone gets. */
static void test_threads_in_turn(void **state)
{
    (void)state;
    relay one, two;
    run_relay(&one, false);
    run_relay(&two, true);
    size_t dim = dro_net_dim(one.r.net), count = dro_net_statistics_count(one.r.net);
    assert_memory_equal(one.statistics, two.statistics, count * sizeof(float));
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(one.w[i], two.w[i], dim * sizeof(float));
        free(one.w[i]), free(two.w[i]);
    }
    free(one.statistics), free(two.statistics);
    end_run(&one.r);
    end_run(&two.r);
}

/* A network has one queue: the optimiser that lost it says so and changes nothing of the other's,
 * also when that one is gone. */
static void test_one_at_a_time(void **state)
{
    (void)state;
    run r;
    dro_optimizer *other;
    dro_info info;
    start_run(&r, &exact, true, "sgd", "eta=0.004", NULL);
    size_t dim = dro_net_dim(r.net);
    float *before = malloc(dim * sizeof *before), *after = malloc(dim * sizeof *after);
    assert_true(before && after);
    take_steps(&r, 5);
    OK(r.ctx, dro_optimizer_create(r.ctx, "recover", &r.problem, &other));
    OK(r.ctx, dro_optimizer_set(other, "batch", "32"));
    OK(r.ctx, dro_optimizer_start(other, dro_net_weights(r.net)));
    OK(r.ctx, dro_optimizer_step(other));
    OK(r.ctx, dro_optimizer_weights(other, before));
    assert_int_equal(dro_optimizer_step(r.opt), DRO_ERR_STATE);
    assert_non_null(strstr(dro_context_error(r.ctx), "another optimiser was started"));
    OK(r.ctx, dro_optimizer_weights(other, after));
    assert_memory_equal(before, after, dim * sizeof *before);
    OK(r.ctx, dro_optimizer_step(other));
    OK(r.ctx, dro_optimizer_info(other, &info));
    dro_optimizer_destroy(other);
    assert_int_equal(dro_optimizer_step(r.opt), DRO_ERR_STATE);
    free(before), free(after);
    end_run(&r);
}

/* ---- other networks come and go ---- */

/* The losses of a run, looked at every few steps; visited: other networks come and go meanwhile, so
 * that its share of the GPU is a quarter, a half, all of it and a quarter again. */
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

/* Other kernels with weights in another order take over in the middle of a run, and it learns what
 * it learns alone: the same images in every step, so that the losses fall fast and rounding stays
 * small (0.01 in floats, with weights that begin 0.004 apart), where the wrong order would throw
 * them back. */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_queue),
                                       cmocka_unit_test(test_queue_mixed),
                                       cmocka_unit_test(test_queue_short),
                                       cmocka_unit_test(test_queue_refuses),
                                       cmocka_unit_test(test_refused_gradient),
                                       cmocka_unit_test(test_threads_in_turn),
                                       cmocka_unit_test(test_one_at_a_time),
                                       cmocka_unit_test(test_visited)};
    if (without_gpu())
        return 77;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
