/* best: the weights of the best evaluation are the result, the last ones are beside them. */
#include "train_runs.h"

/* The loss of a weights file of the folder "run" on the test set. */
static double loss_of(const char *name)
{
    char path[300];
    const dro_metrics *m;
    dro_predictor *p;
    snprintf(path, sizeof path, "%s/run/%s", dir, name);
    OK(ctx, dro_predictor_open(ctx, path, DATA, &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    double loss = m->loss;
    dro_predictor_close(p);
    return loss;
}

/* The first loss in result.json behind `part`, and behind that `split`. */
static double figure(const char *part, const char *split)
{
    const char *words[] = {part, split, "\"loss\": "};
    size_t size, k = 0;
    char *result = slurp("run", "result.json", &size);
    double value = NAN;
    for (size_t i = 0; i < size && k < 3; i++)
        if (strncmp(result + i, words[k], strlen(words[k])) == 0 && ++k == 3)
            value = atof(result + i + strlen(words[2]));
    dro__free(result);
    return value;
}

/* Steps that are too long: it gets worse after its best. */
static const char falling[] = "optimizer=sgd model=mlp:8 best=loss eta=0.05 eta_schedule=constant "
                              "warmup=0 steps=40 eval_every=0.2 on_divergence=stop";

static void test_best_is_the_result(void **state)
{
    (void)state;
    stopper s;
    clear("run");
    OK(ctx, run_to(falling, "run", false, UINT64_MAX, &s));
    double best = figure("{", "\"test\""), last = figure("\"last\"", "\"test\"");
    assert_true(number_in("run", "\"best\": {\n    \"measure\": \"loss\",\n    \"value\": ") ==
                figure("{", "\"holdout\""));
    assert_true(best < last);
    assert_true(fabs(loss_of("weights.safetensors") - best) < 1e-6);
    assert_true(fabs(loss_of("last.safetensors") - last) < 1e-6);
}

/* Stopped and resumed anywhere, also after the end, it has the same files. */
static void test_best_resumed(void **state)
{
    (void)state;
    for (uint64_t stop = 3; stop < 40; stop += 9) {
        clear("parts");
        OK(ctx, run_to(falling, "parts", false, stop, NULL));
        OK(ctx, run_to(falling, "parts", true, UINT64_MAX, NULL));
        same_run("run", "parts");
    }
    OK(ctx, run_to(falling, "parts", true, UINT64_MAX, NULL));
    same_run("run", "parts");
}

/* The best weights are the last: nothing more to say. */
static void test_best_is_last(void **state)
{
    (void)state;
    clear("run");
    OK(ctx, run_to("optimizer=sgd model=mlp:8 best=loss eta=0.01 steps=10 eval_every=1", "run",
                   false, UINT64_MAX, NULL));
    assert_true(isnan(figure("\"last\"", "\"test\"")));
    same_file("run", "run", "last.safetensors");
    assert_true(loss_of("weights.safetensors") == loss_of("last.safetensors"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_best_is_the_result),
    cmocka_unit_test(test_best_resumed),
    cmocka_unit_test(test_best_is_last),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
