/* The settings of a run as one value. */
#include "train_runs.h"

static dro_settings *made(void)
{
    dro_settings *s;
    OK(ctx, dro_settings_create(ctx, &s));
    return s;
}

static void refused(dro_settings *s, const char *name, const char *value, const char *says)
{
    assert_int_not_equal(dro_settings_set(s, name, value), DRO_OK);
    if (!strstr(dro_context_error(ctx), says))
        fail_msg("%s=%s: '%s' does not say '%s'", name, value, dro_context_error(ctx), says);
    assert_false(dro_settings_given(s, name));
}

static void is(const dro_settings *s, const char *name, const char *value)
{
    char text[128];
    OK(ctx, dro_settings_get(s, name, text, sizeof text));
    assert_string_equal(text, value);
}

/* A name means one thing: each is in the list once, and its default is allowed. */
static void test_the_list(void **state)
{
    (void)state;
    dro_setting a, b;
    dro_settings *s = made();
    int count = 0;
    for (; dro_setting_at(count, &a) == DRO_OK; count++) {
        for (int k = 0; k < count; k++) {
            OK(ctx, dro_setting_at(k, &b));
            assert_string_not_equal(a.param.name, b.param.name);
        }
        OK(ctx, dro_settings_set(s, a.param.name, a.param.fallback));
        assert_string_equal(dro_setting_name(a.param.name), a.param.name);
    }
    assert_true(count > 60);
    assert_int_equal(dro_setting_at(-1, &a), DRO_ERR_ARGUMENT);
    dro_settings_destroy(s);
}

static void test_unknown_names_are_refused_at_once(void **state)
{
    (void)state;
    dro_settings *s = made();
    dro_train *t;
    refused(s, "lamda", "3", "did you mean 'lambda'?");
    refused(s, "batchsize", "3", "did you mean 'batch'?");
    refused(s, "learning_rate", "3", "did you mean 'eta'?");
    refused(s, "lrr", "3", "`dro list settings`");
    refused(s, "zzzzzz", "3", "`dro list settings`");
    refused(s, "optimizer", "recovr", "did you mean 'recover'?");
    refused(s, "lambda", "many", "lambda=many: expected a number");
    refused(s, "epochs", "0", "epochs=0: expected a whole number from 1");
    refused(s, "max_time", "soon", "expected a time");
    refused(s, "loss", "fokal", "expected one of cross-entropy");
    OK(ctx, dro_train_create(ctx, &t));
    assert_int_equal(dro_train_set(t, "lamda", "3"), DRO_ERR_NAME);
    assert_int_equal(dro_train_set(t, "dual_eta", "-1"), DRO_ERR_RANGE);
    dro_train_destroy(t);
    dro_settings_destroy(s);
}

static void test_names_and_values(void **state)
{
    (void)state;
    dro_settings *s = made();
    OK(ctx, dro_settings_set(s, "lr", "0.1"));
    is(s, "eta", "0.1");
    OK(ctx, dro_settings_set(s, "weight-decay", "1e-4"));
    is(s, "weight_decay", "1e-4");
    OK(ctx, dro_settings_set(s, "max_time", "2h"));
    is(s, "max_time", "7200");
    OK(ctx, dro_settings_set(s, "steps", "1e3"));
    is(s, "steps", "1000");
    OK(ctx, dro_settings_set(s, "epochs", "2")); /* the later one wins */
    assert_false(dro_settings_given(s, "steps"));
    OK(ctx, dro_settings_set(s, "reg", "l1:1e-5"));
    is(s, "reg", "l1");
    is(s, "reg_strength", "1e-5");
    OK(ctx, dro_settings_set(s, "reg", "none"));
    assert_false(dro_settings_given(s, "reg_strength"));
    OK(ctx, dro_settings_set(s, "reg", "ball:2.5"));
    is(s, "reg_radius", "2.5");
    FAILS(ctx, dro_settings_set(s, "reg", "ball:x"), DRO_ERR_RANGE, "reg_radius");
    FAILS(ctx, dro_settings_set(s, "reg", "box:1"), DRO_ERR_RANGE,
          "box has no strength: write reg=box, with reg_low=A and reg_high=B");
    is(s, "reg", "ball");
    OK(ctx, dro_settings_set(s, "epochs", NULL));
    is(s, "epochs", "");
    dro_settings_destroy(s);
}

/* A copy is of its own. */
static void test_copy(void **state)
{
    (void)state;
    const char *name, *value;
    dro_settings *s = made(), *copy;
    OK(ctx, dro_settings_set(s, "lambda", "5"));
    OK(ctx, dro_settings_set(s, "data", "synth:glyphs,n=50"));
    OK(ctx, dro_settings_copy(s, &copy));
    OK(ctx, dro_settings_set(s, "lambda", "6"));
    OK(ctx, dro_settings_set(copy, "seed", "2"));
    is(copy, "lambda", "5");
    is(s, "seed", "1");
    dro_settings_destroy(s);
    is(copy, "data", "synth:glyphs,n=50");
    OK(ctx, dro_settings_item(copy, 1, &name, &value));
    assert_string_equal(name, "data");
    assert_string_equal(value, "synth:glyphs,n=50");
    assert_int_equal(dro_settings_item(copy, 3, &name, &value), DRO_ERR_END);
    dro_settings_destroy(copy);
}

/* Whether they fit together is seen when all are there, in whatever order they came. */
static void test_check(void **state)
{
    (void)state;
    dro_settings *s = made();
    OK(ctx, dro_settings_set(s, "dual_eta", "0.1"));
    assert_int_equal(dro_settings_check(s), DRO_ERR_NAME);
    assert_non_null(strstr(dro_context_error(ctx), "recover has no parameter 'dual_eta'"));
    assert_non_null(strstr(dro_context_error(ctx), "stoc-agda"));
    OK(ctx, dro_settings_set(s, "optimizer", "stoc-agda"));
    OK(ctx, dro_settings_check(s));
    OK(ctx, dro_settings_set(s, "reg", "l1"));
    assert_int_equal(dro_settings_check(s), DRO_ERR_RANGE);
    assert_null(strstr(dro_context_error(ctx), "--")); /* the library has no flags */
    OK(ctx, dro_settings_set(s, "reg_strength", "0"));
    OK(ctx, dro_settings_check(s));
    OK(ctx, dro_settings_set(s, "reg", "none"));
    OK(ctx, dro_settings_set(s, "reg_strength", "5"));
    assert_int_equal(dro_settings_check(s), DRO_ERR_RANGE);
    dro_settings_destroy(s);
}

/* An objective and a lambda that it does not have; config.json of kl:LAMBDA has both. */
static void test_objective_and_lambda(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"cvar:0.1", "lambda=2", "has no lambda: leave out lambda=2, or write objective=kl:2"},
        {"mean", "lambda=2", "objective=mean has no lambda"},
        {"kl:3", "lambda=2", "objective=kl:3 has its own lambda: leave out lambda=2"},
        {"kl:3", "lambda=3.0", NULL},
        {"kl:3", "over=none", "kl:3 over none is the mean loss: leave out over=none"},
        {"chi2:1", "tilt=class", NULL},
        {"mean", "tilt=none", NULL},
        {"", "lambda=2", NULL}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char name[16] = "";
        const char *equals = strchr(cases[k][1], '=');
        dro_settings *s = made();
        memcpy(name, cases[k][1], (size_t)(equals - cases[k][1]));
        OK(ctx, dro_settings_set(s, name, equals + 1));
        OK(ctx, dro_settings_set(s, "objective", cases[k][0]));
        if (cases[k][2])
            FAILS(ctx, dro_settings_check(s), DRO_ERR_RANGE, cases[k][2]);
        else
            OK(ctx, dro_settings_check(s));
        dro_settings_destroy(s);
    }
}

static bool change(void *user, const dro_train_progress *p)
{
    (void)p;
    assert_int_equal(dro_train_set(user, "seed", "9"), DRO_ERR_STATE);
    dro_settings *other = made();
    assert_int_equal(dro_train_use(user, other), DRO_ERR_STATE);
    dro_settings_destroy(other);
    return false;
}

/* The settings of a run are fixed while it is under way. */
static void test_a_run_uses_a_copy(void **state)
{
    (void)state;
    dro_settings *s = made();
    dro_train *t;
    OK(ctx, dro_settings_set(s, "data", "synth:glyphs,n=60,test=20,size=8,classes=3"));
    OK(ctx, dro_settings_set(s, "model", "mlp:4"));
    OK(ctx, dro_settings_set(s, "steps", "2"));
    OK(ctx, dro_train_create(ctx, &t));
    OK(ctx, dro_train_use(t, s));
    dro_settings_destroy(s);
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = t, .step = change};
    OK(ctx, dro_train_run(t, NULL, false, &watch));
    assert_int_equal(dro_train_last(t)->info.step, 2);
    assert_non_null(strstr(dro_train_config(t), "\"seed\": 1"));
    dro_train_destroy(t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_list),
    cmocka_unit_test(test_unknown_names_are_refused_at_once),
    cmocka_unit_test(test_names_and_values),
    cmocka_unit_test(test_copy),
    cmocka_unit_test(test_objective_and_lambda),
    cmocka_unit_test(test_check),
    cmocka_unit_test(test_a_run_uses_a_copy),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
