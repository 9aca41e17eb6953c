/* Time: max_time bounds a run with its evaluations, weights are there before the last of them, and
 * F of a large training set is that of a sample. */
#define _GNU_SOURCE
#include "graph.h"
#include "train_runs.h"

#include <sys/syscall.h>
#include <time.h>

/* The library's clock is ours, so that a busy machine does not matter: a step takes 1 ms. */
static _Atomic int64_t now_us = 1000000000;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, t);
    int64_t us = now_us;
    *t = (struct timespec){us / 1000000, us % 1000000 * 1000};
    return 0;
}

/* Evaluations that take their time. */
typedef struct slow {
    stopper notes;
    char first[512]; /* note */
    double each;     /* seconds for a batch of an evaluation */
    double share;    /* the largest that was reported */
    bool weights;    /* they were there in the last evaluation */
} slow;

static bool slow_step(void *user, const dro_train_progress *p)
{
    slow *s = user;
    char path[300];
    now_us += p->evaluating ? (int64_t)(1e6 * s->each) : 1000;
    if (!p->evaluating)
        return false;
    s->share = fmax(s->share, p->evaluated);
    snprintf(path, sizeof path, "%s/run/weights.safetensors", dir);
    s->weights = access(path, F_OK) == 0;
    return false;
}

static void note(void *user, const char *text)
{
    slow *s = user;
    if (s->notes.notes == 0)
        snprintf(s->first, sizeof s->first, "%s", text);
    count_note(&s->notes, text);
}

static double run_slowly(slow *s, const char *settings)
{
    dro_train_watch watch = {
        .size = sizeof(dro_train_watch), .user = s, .step = slow_step, .note = note};
    char folder[300];
    double start = dro__clock();
    snprintf(folder, sizeof folder, "%s/run", dir);
    clear("run");
    dro_train *t = make(settings);
    OK(ctx, dro_train_run(t, folder, false, &watch));
    dro_train_destroy(t);
    return dro__clock() - start;
}

#define MANY                                                                                       \
    "data=synth:glyphs,n=12000,test=2000,size=8,classes=3 optimizer=sgd model=mlp:2 best=none "

/* All of the first evaluation would take 1.7 s: 8 batches of test and 40 of train, 0.035 s each. */
static void test_bounded(void **state)
{
    (void)state;
    slow s = {.each = 0.035};
    size_t size;
    double seconds = run_slowly(&s, MANY "steps=1000000 eval_every=0.01 max_time=0.9");
    assert_true(seconds > 0.85 && seconds < 0.95);
    assert_non_null(strstr(s.notes.note, "the time of max_time is over: train not evaluated"));
    char *result = slurp("run", "result.json", &size);
    assert_non_null(strstr(result, "\"ended\": \"time\""));
    assert_non_null(strstr(result, "\"not_measured\": [\n    \"train\"\n  ]"));
    assert_non_null(strstr(result, "\"train\": null"));
    assert_null(strstr(result, "\"test\": null"));
    dro__free(result);
}

/* No time for any of it: the second batch would be ready at 0.7. Weights are there before. */
static void test_not_measured(void **state)
{
    (void)state;
    slow s = {.each = 0.3};
    size_t size;
    assert_true(run_slowly(&s, MANY "steps=100 max_time=0.5") < 0.5);
    assert_true(s.weights && s.share > 0 && s.share < 0.2);
    char *result = slurp("run", "result.json", &size);
    assert_non_null(strstr(result, "\"not_measured\": [\n    \"test\",\n    \"train\"\n  ]"));
    assert_non_null(strstr(result, "\"test\": null"));
    dro__free(result);
}

/* Which splits there are, and which are asked for. */
static void test_cut_splits(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"n=3000,test=600,holdout=0.2", "", " test holdout train not evaluated",
         "[\n    \"test\",\n    \"holdout\",\n    \"train\"\n  ]"},
        {"n=3000,test=600,holdout=0.2", "eval_train=no", " test holdout not evaluated",
         "[\n    \"test\",\n    \"holdout\"\n  ]"},
        {"n=3000,test=600", "eval_train=no", " test not evaluated", "[\n    \"test\"\n  ]"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        slow s = {.each = 0.3};
        char settings[300], said[100];
        size_t size;
        snprintf(settings, sizeof settings,
                 "data=synth:glyphs,size=8,classes=3,%s optimizer=sgd model=mlp:2 best=none "
                 "steps=1000000 eval_every=1e6 max_time=0.5 %s",
                 cases[k][0], cases[k][1]);
        run_slowly(&s, settings);
        snprintf(said, sizeof said, "max_time is over:%s", cases[k][2]);
        if (!strstr(s.notes.note, said))
            fail_msg("%s: '%s' does not say '%s'", settings, s.notes.note, said);
        char *result = slurp("run", "result.json", &size);
        assert_non_null(strstr(result, cases[k][3]));
        dro__free(result);
    }
}

/* ---- what is known to take long ---- */

static const dro__backend *plain_backend;

static int64_t slow_check(dro__pool *pool, size_t n, const float *x)
{
    now_us += 300000; /* once a step: a batch has one gradient */
    return plain_backend->first_bad(pool, n, x);
}

/* A step of 0.3 s and an evaluation of 0.25 s: a third step would end at 0.9. By the steps an
 * evaluation takes 0.19 s, but more than that is reserved. */
static void test_step_fits(void **state)
{
    (void)state;
    static const char *const limits[] = {"1", "1.1"};
    for (int k = 0; k < 2; k++) {
        slow s = {.each = 0.25};
        char settings[200];
        dro__backend slowed = *ctx->backend;
        plain_backend = ctx->backend;
        slowed.first_bad = slow_check;
        ctx->backend = &slowed;
        snprintf(settings, sizeof settings,
                 "data=synth:glyphs,n=200,test=30,size=8,classes=3 optimizer=sgd model=mlp:2 "
                 "best=none eval_train=no steps=1000000 eval_every=1e6 max_time=%s",
                 limits[k]);
        double seconds = run_slowly(&s, settings);
        ctx->backend = plain_backend;
        assert_true(s.share == 1 && seconds > 0.84 && seconds < 0.86);
        assert_true(number_in("run", "\"step\": ") == 2);
    }
}

static dro_status slow_evaluate(void *net, const float *w, const dro_net_batch *batch,
                                float *logits, float *losses)
{
    now_us += (int64_t)batch->count * 10000;
    return plain_backend->net->evaluate(net, w, batch, logits, losses);
}

/* An image takes 0.01 s, so that a step over a batch of 16 takes 0.32 s or more: one that would end
 * too late does not begin, and the run resumes as if it had not begun. */
static void test_first_step_fits(void **state)
{
    (void)state;
    enum { LIMITS = 2 };
    static const char *const limits[LIMITS] = {"max_time=0.45", "max_time=2"};
    const char *settings = "optimizer=recover model=glyphnet steps=4";
    size_t size, other;
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    char *whole = slurp("whole", "weights.safetensors", &size);
    for (int k = 0; k < LIMITS; k++) {
        slow s = {0};
        char text[200];
        dro__net_backend nets = *ctx->backend->net;
        dro__backend slowed = *ctx->backend;
        plain_backend = ctx->backend;
        nets.evaluate = slow_evaluate;
        slowed.net = &nets;
        ctx->backend = &slowed;
        snprintf(text, sizeof text, "%s %s", settings, limits[k]);
        double seconds = run_slowly(&s, text);
        ctx->backend = plain_backend;
        assert_int_equal(number_in("run", "\"step\": "), 4 * k);
        assert_true(seconds < (k ? 2.01 : 0.46));
        assert_int_equal(strstr(s.first, "max_time=0.45 leaves no time for a step: 0.02 s have "
                                         "passed, a step takes about 0.32 s, what follows") != NULL,
                         k == 0);
        OK(ctx, run_to(settings, "run", true, UINT64_MAX, NULL));
        char *resumed = slurp("run", "weights.safetensors", &other);
        assert_int_equal(size, other);
        assert_memory_equal(whole, resumed, size);
        dro__free(resumed);
    }
    dro__free(whole);
}

static size_t slow_above; /* bytes */

static ssize_t slow_write(int file, const void *bytes, size_t size)
{
    now_us += size > slow_above ? 200000 : 0;
    return write(file, bytes, size);
}

/* A checkpoint of 0.2 s, seen before: the last one is written before the end. */
static void test_writing_fits(void **state)
{
    (void)state;
    slow s = {0};
    slow_above = 10000;
    dro__disk.write = slow_write;
    double seconds = run_slowly(&s, "data=synth:glyphs,n=200,test=30,size=8,classes=3 "
                                    "optimizer=recover model=mlp:8 best=none eval_train=no "
                                    "steps=1000000 eval_every=1e6 checkpoint_every=0.3 max_time=3");
    dro__disk.write = write;
    assert_true(s.share == 1 && seconds > 2.4 && seconds < 3.01);
}

/* The start alone takes longer: one line says what is needed. */
static void test_no_step(void **state)
{
    (void)state;
    slow s = {0};
    slow_above = 1000; /* config.json, checkpoints and result.json */
    dro__disk.write = slow_write;
    double seconds = run_slowly(&s, MANY "steps=1000000 max_time=0.1");
    dro__disk.write = write;
    assert_true(seconds < 0.65);
    assert_true(s.share == 0 && number_in("run", "\"step\": ") == 0);
    assert_non_null(strstr(s.first, "max_time=0.1 leaves no time for a step: 0.4 s have "
                                    "passed, what follows takes about"));
    assert_non_null(strstr(s.first, "set it above 0.405 and the time of a step"));
}

static void test_sample(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        double examples;
    } cases[] = {{"", 10000}, {"eval_train=yes", 12000}, {"eval_train=last", 12000}};
    double loss[3];
    for (int k = 0; k < 3; k++) {
        slow s = {0};
        char settings[300];
        snprintf(settings, sizeof settings, MANY "steps=60 %s", cases[k].more);
        run_slowly(&s, settings);
        assert_true(s.share == 1);
        loss[k] = number_in("run", "\"loss\": ");
        assert_true(number_in("run", "\"examples\": ") == 60 * 16);
        dro_train *t = make(settings);
        OK(ctx, dro_train_run(t, NULL, false, NULL));
        assert_true((double)dro_train_last(t)->train.examples == cases[k].examples);
        dro_train_destroy(t);
    }
    assert_true(loss[0] != loss[1] && fabs(loss[0] / loss[1] - 1) < 0.05 && loss[1] == loss[2]);
}

/* Rows, sparse and dense, in memory: a sample of 10,000 has what those have that are in it. */
static void test_sampled_rows(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[sizeof dir + 300];
    snprintf(path, sizeof path, "%s/rows", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < 11000; i++) { /* sorted by class, and column 1 says which */
        double x = dro__random_normal(1, i, 0);
        fprintf(file, "%d 1:%d 2:%.4f\n", i < 1100 ? 1 : -1, i < 1100 ? 3 : -3, x);
    }
    fclose(file);
    static const char *const features[] = {"", ",features=5000"};
    for (int k = 0; k < 2; k++) {
        dro_train *t;
        OK(ctx, dro_train_create(ctx, &t));
        snprintf(settings, sizeof settings, "data=libsvm:%s%s optimizer=sgd epochs=3", path,
                 features[k]);
        set_all(t, settings);
        OK(ctx, dro_train_run(t, NULL, false, NULL));
        const dro_metrics *m = &dro_train_last(t)->train;
        assert_int_equal(m->examples, 10000);
        assert_true(m->counts[1] > 900 && m->counts[1] < 1100); /* a tenth, wherever they stand */
        assert_true(m->accuracy > 0.999);
        dro_train_destroy(t);
    }
    unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_bounded),         cmocka_unit_test(test_not_measured),
    cmocka_unit_test(test_cut_splits),      cmocka_unit_test(test_sample),
    cmocka_unit_test(test_sampled_rows),    cmocka_unit_test(test_step_fits),
    cmocka_unit_test(test_first_step_fits), cmocka_unit_test(test_writing_fits),
    cmocka_unit_test(test_no_step),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
