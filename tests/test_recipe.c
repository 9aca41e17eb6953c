/* Recipes: their settings are those of the run unless something else is given. */
#include "train_runs.h"

static void run_of(const char *settings)
{
    clear("run");
    OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
}

/* Whether config.json says so, of a number as of a text. */
static bool says(const char *name, const char *value)
{
    size_t size;
    char *config = slurp("run", "config.json", &size), text[160], number[160];
    snprintf(text, sizeof text, "\"%s\": \"%s\"", name, value);
    snprintf(number, sizeof number, "\"%s\": %.17g", name, atof(value));
    bool found = strstr(config, text) || strstr(config, number);
    dro__free(config);
    return found;
}

static const char *write_table(void)
{
    static char path[sizeof dir + 16];
    snprintf(path, sizeof path, "%s/table.csv", dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 64; i++)
        fprintf(file, "%d,%d,%s\n", i % 7, i % 5, i % 4 ? "often" : "seldom");
    fclose(file);
    return path;
}

static void test_every_setting_is_heard(void **state)
{
    (void)state;
    dro_recipe r;
    int heard = 0;
    for (int k = 0; dro_recipe_setting(k, &r) == DRO_OK; k++) {
        char settings[sizeof dir + 240], data[sizeof dir + 80] = "";
        const char *optimizer = r.optimizer ? r.optimizer : "recover";
        if (strcmp(optimizer, "lbfgs") == 0)
            snprintf(data, sizeof data, "data=csv:%s,label=2,holdout=0.25", write_table());
        snprintf(settings, sizeof settings, "optimizer=%s %s", optimizer, data);
        run_of(settings);
        bool already = says(r.name, r.value);
        snprintf(settings, sizeof settings, "optimizer=%s recipe=%s %s", optimizer, r.recipe, data);
        run_of(settings);
        if (!says(r.name, r.value))
            fail_msg("%s: %s=%s is ignored", r.recipe, r.name, r.value);
        heard += !already;
    }
    assert_true(heard > 0); /* or the recipe is nothing but the defaults */
    assert_int_equal(dro_recipe_setting(-1, &r), DRO_ERR_END);
}

static void test_what_is_given_wins(void **state)
{
    (void)state;
    run_of("optimizer=recover recipe=imbalanced loss=focal lambda=3 eta=0.05");
    assert_true(says("loss", "focal") && says("lambda", "3") && says("eta", "0.05"));
}

static void test_tables_are_not_images(void **state)
{
    (void)state;
    run_of("optimizer=sgd recipe=imbalanced");
    assert_true(says("tau", "1.5") && says("weight_decay", "1e-3"));
    char settings[sizeof dir + 160];
    snprintf(settings, sizeof settings,
             "optimizer=sgd recipe=imbalanced data=csv:%s,label=2,holdout=0.25", write_table());
    run_of(settings);
    assert_true(says("loss", "logit-adjusted") && says("tau", "1") && says("weight_decay", "0"));
}

static void test_each_optimiser_has_its_own(void **state)
{
    (void)state;
    run_of("optimizer=sgd recipe=imbalanced");
    assert_true(says("loss", "logit-adjusted"));
    run_of("optimizer=sgd");
    assert_true(says("loss", "cross-entropy"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_setting_is_heard),
    cmocka_unit_test(test_what_is_given_wins),
    cmocka_unit_test(test_tables_are_not_images),
    cmocka_unit_test(test_each_optimiser_has_its_own),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
