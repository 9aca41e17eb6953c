/* Several threads at the same time: what may be shared is shared, what is each thread's own is
 * independent. Meant for the thread sanitizer (preset tsan). */
#include "train_runs.h"

#include <pthread.h>

enum { THREADS = 4, TURNS = 6, COUNT = 30 };

/* ---- one predictor for all ---- */

typedef struct asker {
    pthread_t thread;
    dro_predictor *p;
    const float *expected;
    int number, wrong;
} asker;

static void *ask(void *user)
{
    asker *a = user;
    float logits[COUNT * 3];
    double shares[COUNT * 3];
    for (int turn = 0; turn < TURNS; turn++) {
        int first = (a->number * 7 + turn * 3) % COUNT;
        size_t count = (size_t)(COUNT - first);
        if (dro_predictor_logits(a->p, DRO_TEST, first, count, logits, NULL) != DRO_OK)
            a->wrong++;
        for (size_t k = 0; k < 3 * count;
             k++) /* how many there are in a call decides on the last bits */
            a->wrong += !(fabsf(logits[k] - a->expected[first * 3 + (int)k]) < 1e-4f);
        if (dro_predictor_probabilities(a->p, count, logits, shares) != DRO_OK)
            a->wrong++;
        char part[40]; /* beyond the end: each thread reads of its own mistake */
        snprintf(part, sizeof part, "1 examples from %d on", 100 + a->number);
        if (dro_predictor_logits(a->p, DRO_TEST, 100 + a->number, 1, logits, NULL) !=
                DRO_ERR_RANGE ||
            !strstr(dro_predictor_error(), part))
            a->wrong++;
    }
    return NULL;
}

static void share_predictor(int threads, const char *model)
{
    char settings[64], weights[300];
    float expected[COUNT * 3];
    asker askers[THREADS];
    dro_predictor *p;
    dro_context *own = check_context(NULL, threads);
    clear("shared");
    snprintf(settings, sizeof settings, "model=%s eta=0.02 steps=3", model);
    OK(ctx, run_to(settings, "shared", false, UINT64_MAX, NULL));
    snprintf(weights, sizeof weights, "%s/shared/weights.safetensors", dir);
    OK(own, dro_predictor_open(own, weights, DATA, &p));
    OK(own, dro_predictor_logits(p, DRO_TEST, 0, COUNT, expected, NULL));
    for (int k = 0; k < THREADS; k++) {
        askers[k] = (asker){.p = p, .expected = expected, .number = k};
        assert_int_equal(pthread_create(&askers[k].thread, NULL, ask, &askers[k]), 0);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(askers[k].thread, NULL);
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(askers[k].wrong, 0);
    dro_predictor_close(p);
    dro_context_destroy(own);
}

static void test_predictor(void **state)
{
    (void)state;
    share_predictor(1, "mlp:4");
    share_predictor(2, "mlp:4");
    share_predictor(2, "resnet20");
}

/* ---- a loader whose readers begin while its owner makes a mistake ---- */

static void test_loader_error(void **state)
{
    (void)state;
    dro_data *data;
    OK(ctx, dro_data_open(ctx, DATA, &data));
    for (int turn = 0; turn < TURNS; turn++) {
        dro_loader *loader;
        dro_loaded batch;
        dro_loader_options options = dro_loader_options_default();
        options.batch = 16;
        options.threads = THREADS;
        OK(ctx, dro_loader_create(data, DRO_TRAIN, &options, &loader));
        FAILS(ctx, dro_loader_draw(loader, 1, &batch), DRO_ERR_ARGUMENT, "not a multiple");
        OK(ctx, dro_loader_draw(loader, 0, &batch));
        dro_loader_destroy(loader);
    }
    dro_data_close(data);
}

/* ---- runs side by side, each with its own context ---- */

typedef struct trainer {
    pthread_t thread;
    int number;
    dro_status status;
    char error[512], folder[300];
} trainer;

static void *train_one(void *user)
{
    trainer *t = user;
    dro_context *own;
    dro_train *train = NULL;
    t->status = dro_context_create(NULL, 2, &own);
    if (t->status != DRO_OK)
        return NULL;
    t->status = dro_train_create(own, &train);
    static const char *const settings[][2] = {
        {"data", DATA}, {"batch", "16"}, {"steps", "3"}, {"model", "resnet20"}};
    for (size_t k = 0; k < 4 && t->status == DRO_OK; k++)
        t->status = dro_train_set(train, settings[k][0], settings[k][1]);
    if (t->status == DRO_OK)
        t->status = dro_train_run(train, t->folder, false, NULL);
    snprintf(t->error, sizeof t->error, "%s", dro_context_error(own));
    dro_train_destroy(train);
    dro_context_destroy(own);
    return NULL;
}

static void test_runs(void **state)
{
    (void)state;
    trainer all[THREADS];
    for (int k = 0; k < THREADS; k++) {
        char name[20];
        all[k] = (trainer){.number = k};
        snprintf(name, sizeof name, "run%d", k);
        clear(name);
        snprintf(all[k].folder, sizeof all[k].folder, "%s/%s", dir, name);
        assert_int_equal(pthread_create(&all[k].thread, NULL, train_one, &all[k]), 0);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(all[k].thread, NULL);
    for (int k = 0; k < THREADS; k++) {
        if (all[k].status != DRO_OK)
            fail_msg("run %d: %s", k, all[k].error);
    }
    for (int k = 1; k < THREADS; k++) {
        char name[20];
        snprintf(name, sizeof name, "run%d", k);
        same_file("run0", name, "weights.safetensors");
        same_file("run0", name, "metrics.jsonl");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_predictor),
    cmocka_unit_test(test_loader_error),
    cmocka_unit_test(test_runs),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
