/* Runs that go astray: they stop, or go back with half the step; those that end above their start
 * say so. */
#include "train_runs.h"

#define ROWS "data=libsvm:%s/rows best=none "

/* Two classes that a plane separates but for one row in ten. */
static void write_rows(void)
{
    char path[sizeof dir + 16];
    snprintf(path, sizeof path, "%s/rows", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < 600; i++) {
        double z = 0, x[8];
        for (uint64_t j = 0; j < 8; j++) {
            x[j] = dro__random_normal(1, i, j);
            z += x[j] * ((double)(j % 3) - 1);
        }
        fprintf(file, "%s", (z > 0) == (i % 10 > 0) ? "+1" : "-1");
        for (int j = 0; j < 8; j++)
            fprintf(file, " %d:%.6g", j + 1, x[j]);
        fprintf(file, "\n");
    }
    fclose(file);
}

static void test_divergence(void **state)
{
    (void)state;
    stopper s;
    size_t size;
    const char *settings =
        "optimizer=sgd model=mlp:8 eta=1e6 warmup=0 eval_every=0.4 on_divergence=stop";
    clear("parts");
    FAILS(ctx, run_to(settings, "parts", false, UINT64_MAX, NULL), DRO_ERR_NUMBER, "smaller step");
    clear("parts");
    char halving[256];
    snprintf(halving, sizeof halving, "%s on_divergence=halve eta=200", settings);
    OK(ctx, run_to(halving, "parts", false, UINT64_MAX, &s));
    assert_true(s.notes > 2 && !s.went_on);
    clear("whole"); /* as if halve had been set from the start */
    snprintf(halving, sizeof halving, "%s eta=200", settings);
    FAILS(ctx, run_to(halving, "whole", false, UINT64_MAX, NULL), DRO_ERR_NUMBER, "halve");
    snprintf(halving, sizeof halving, "%s on_divergence=halve eta=200", settings);
    OK(ctx, run_to(halving, "whole", true, UINT64_MAX, NULL));
    same_file("parts", "whole", "weights.safetensors");
    unsigned long long back = 99;
    assert_non_null(strstr(s.note, "back to step "));
    assert_int_equal(sscanf(strstr(s.note, "back to step "), "back to step %llu with eta", &back),
                     1);
    assert_true(back < 20);
    char *result = slurp("parts", "result.json", &size);
    assert_non_null(strstr(result, "\"ended\": \"done\""));
    assert_null(strstr(result, "\"halvings\": 0"));
    dro__free(result);
}

/* What counts as divergence: a smoothed loss of more than 20 times the first, which is no less than
 * a constant's. */
static void test_exploded(void **state)
{
    (void)state;
    dro_train *t = make("optimizer=sgd model=mlp:2 steps=2 best=none");
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    dro__progress *p = &t->progress;
    p->first_loss = 1;
    p->smooth_loss = t->opt->s.loss = 20;
    OK(ctx, dro__watch_step(t));
    t->opt->s.loss = 21;
    FAILS(ctx, dro__watch_step(t), DRO_ERR_NUMBER, "the loss rose from 1 to 20.1");
    t->opt->run.step = 1;
    t->opt->s.loss = 0;
    OK(ctx, dro__watch_step(t));
    assert_true(fabs(p->first_loss - log(3)) < 1e-12);
    dro_train_destroy(t);
}

/* The step is halved each time, forty times at most; the advice is the usual step where it was far
 * from it. */
static void test_halvings(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:8 warmup=0 eta=1e9 weight_decay=1e6 steps=20 "
                           "eval_every=1000 best=none on_divergence=halve";
    stopper s;
    double eta;
    clear("parts");
    FAILS(ctx, run_to(settings, "parts", false, UINT64_MAX, &s), DRO_ERR_NUMBER, "(eta=");
    assert_int_equal(s.notes, 40);
    assert_int_equal(sscanf(strstr(s.note, "with eta "), "with eta %lf", &eta), 1);
    assert_true(fabs(eta * ldexp(1, 40) / 1e9 - 1) < 1e-4);
    clear("parts");
    FAILS(ctx,
          run_to("optimizer=sgd objective=cvar:0.5 model=mlp:8 warmup=0 eta=1e6 guard=0 "
                 "on_divergence=stop",
                 "parts", false, UINT64_MAX, &s),
          DRO_ERR_NUMBER, "(eta=0.1), a larger ALPHA, more warm-up");
    clear("parts");
    FAILS(ctx,
          run_to("optimizer=sgd model=mlp:8 warmup=0 eta=1e6 on_divergence=stop", "parts", false,
                 UINT64_MAX, &s),
          DRO_ERR_NUMBER, "(eta=0.1)");
}

/* A run that stays above its start, too little to have exploded, begins again with half the step;
 * stopped anywhere on the way it ends with the same weights. */
static void test_stays_above(void **state)
{
    (void)state;
    stopper s;
    char settings[300];
    write_rows();
    const char *form = ROWS "optimizer=sgd steps=240 eta=4 warmup=0 eta_schedule=constant";
    snprintf(settings, sizeof settings, form, dir);
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
    assert_non_null(strstr(s.note, "above 0.693 at its start): back to step 0 with eta"));
    assert_true(number_in("whole", "\"halvings\": ") > 0);
    assert_true(number_in("whole", "\"loss\": ") < 0.693);
    for (uint64_t stop = 7; stop < 240; stop += 51) {
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, stop, NULL));
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
        same_file("whole", "parts", "weights.safetensors");
    }
    clear("parts"); /* with stop it only reports */
    snprintf(settings, sizeof settings,
             ROWS "optimizer=sgd steps=240 eta=4 warmup=0 "
                  "eta_schedule=constant on_divergence=stop",
             dir);
    OK(ctx, run_to(settings, "parts", false, UINT64_MAX, &s));
    assert_non_null(strstr(s.note, "the training loss ended at"));
    assert_non_null(strstr(s.note, "try a smaller step (eta=0.1)"));
}

/* Without a folder there is no checkpoint: from the start. */
static void test_no_folder(void **state)
{
    (void)state;
    stopper s = {.at = UINT64_MAX};
    dro_train_watch watch = watch_of(&s);
    dro_train *t = make("optimizer=sgd model=mlp:8 eta=200 warmup=0 best=none");
    OK(ctx, dro_train_run(t, NULL, false, &watch));
    assert_non_null(strstr(s.note, "back to step 0 with eta"));
    assert_int_equal(dro_train_ended(t), DRO_TRAIN_DONE);
    dro_train_destroy(t);
}

/* lambda 0.001 chases the hardest example only: worse than a constant, and nothing explodes. */
static void test_ends_above(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        bool tells;
    } cases[] = {{"lambda=0.001 steps=100", true},
                 {"lambda=0.001 steps=40", false}, /* few */
                 {"steps=100", false}};
    char settings[300];
    write_rows();
    for (int k = 0; k < 3; k++) {
        stopper s;
        snprintf(settings, sizeof settings, ROWS "optimizer=recover model=mlp:32 %s", dir,
                 cases[k].more);
        clear("whole");
        OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
        bool told = strstr(s.note, "above the 0.693 of predicting the same for every example: try "
                                   "a larger lambda (lambda=34.7)") != NULL;
        assert_true(told == cases[k].tells);
    }
}

/* F is compared with that of a constant whatever the objective, for real targets too; the cure is
 * the objective's. */
static void test_no_better_than_a_constant(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"optimizer=recover objective=cvar:0.05 steps=600", "lowest there; try a larger ALPHA"},
        {"optimizer=lbfgs objective=cvar:0.05 steps=200", "lowest there; try a larger ALPHA"},
        {"optimizer=sgd objective=chi2:9 steps=600", "lowest there; try a smaller RHO"},
        {"optimizer=sgd objective=mean steps=100", NULL},
        {"optimizer=recover steps=100", NULL},
        {"optimizer=recover objective=cvar:0.05 steps=20", NULL}, /* few */
        {"optimizer=recover objective=cvar:0.2 eta=30 model=mlp:32 steps=100",
         "of predicting the same for every example: try a larger ALPHA or a smaller step"},
    };
    char settings[300];
    write_rows();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        stopper s;
        snprintf(settings, sizeof settings, ROWS "on_divergence=stop %s", dir, cases[k].more);
        clear("whole");
        OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
        bool told = strstr(s.note, cases[k].says ? cases[k].says : "constant prediction") != NULL;
        if (told != (cases[k].says != NULL))
            fail_msg("%s: '%s'", cases[k].more, s.note);
    }
}

/* One target far from the others: F of the mean of the targets by hand. */
static void test_real_constant(void **state)
{
    (void)state;
    char path[sizeof dir + 16], settings[300];
    stopper s;
    snprintf(path, sizeof path, "%s/real", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t i = 0; i < 400; i++)
        fprintf(file, "%.6g 1:%.6g 2:1\n", i == 7 ? 100.0 : dro__random_normal(2, i, 0),
                dro__random_normal(2, i, 1));
    fclose(file);
    const char *form = "data=libsvm:%s/real,target=real best=none optimizer=adamw steps=60 "
                       "eta=1e-6 objective=%s";
    snprintf(settings, sizeof settings, form, dir, "kl:1");
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
    if (!strstr(s.note, "lowest there; try a larger lambda (objective=kl:"))
        fail_msg("'%s'", s.note);
    snprintf(settings, sizeof settings, form, dir, "mean");
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
    assert_null(strstr(s.note, "constant prediction"));
    snprintf(settings, sizeof settings, form, dir, "cvar:0.1 eta=3 eta_schedule=constant");
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, &s));
    if (!strstr(s.note, "F ended at ") || !strstr(s.note, "same for every example: try a larger A"))
        fail_msg("'%s'", s.note);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_divergence),
    cmocka_unit_test(test_exploded),
    cmocka_unit_test(test_halvings),
    cmocka_unit_test(test_stays_above),
    cmocka_unit_test(test_no_folder),
    cmocka_unit_test(test_ends_above),
    cmocka_unit_test(test_no_better_than_a_constant),
    cmocka_unit_test(test_real_constant),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
