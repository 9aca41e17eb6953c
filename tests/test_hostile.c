/* What only an attacker or a rare fault does: saved states that were edited and signed again, a
 * process that forks, a locale that writes commas, a callback that gives more than was asked
 * for. */
#include "check.h"

#include <locale.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- edited states ---- */

/* Eight bytes changed and the checksum made right again: refused or run, never out of bounds. */
static void edited(dro_context *ctx, const instance *in, int argument)
{
    (void)argument;
    toy t = {0};
    dro_optimizer *opt = started(ctx, in, &t);
    size_t size;
    for (int k = 0; k < 7; k++)
        OK(ctx, dro_optimizer_step(opt));
    unsigned char *good = check_save(ctx, opt, &size), *bad = malloc(size);
    assert_non_null(bad);
    for (uint64_t k = 0; k < 60; k++) {
        size_t at = (size_t)dro__random_below(3, 1, k, size - 16);
        uint64_t kinds[] = {0, UINT64_MAX, dro__random(3, 2, k), INT64_MAX, 1, 1u << 20};
        memcpy(bad, good, size);
        memcpy(bad + at, &kinds[k % 6], 8);
        uint64_t sum = dro__checksum(0, bad, size - sizeof sum);
        memcpy(bad + size - sizeof sum, &sum, sizeof sum);
        toy again = {0};
        dro_optimizer *other = started(ctx, in, &again);
        bool staged = has_param(in->name, "big=") || has_param(in->name, "dual_eta=");
        dro_status status = dro_optimizer_load(other, bad, size);
        /* A forged size of a stage may make a step endless; it stays within bounds. */
        if (status == DRO_OK && !staged)
            for (int step = 0; step < 6; step++)
                (void)dro_optimizer_step(other);
        dro_optimizer_destroy(other);
    }
    free(good);
    free(bad);
    dro_optimizer_destroy(opt);
}

static void test_edited_states(void **state)
{
    (void)state;
    for_each(edited, 0);
}

/* ---- fork ---- */

static void test_fork(void **state)
{
    (void)state;
    enum { ROWS = 20000, COLUMNS = 32 };
    float *x = calloc(ROWS, COLUMNS * sizeof *x), *y = malloc(ROWS * sizeof *y);
    for (int i = 0; i < ROWS; i++)
        y[i] = i % 2 ? 1 : -1, x[i * COLUMNS + i % COLUMNS] = y[i];
    dro_context *ctx = check_context("auto", 2);
    dro_linear_data data = dro_linear_data_default();
    dro_linear *model;
    dro_problem problem;
    dro_optimizer *opt;
    data.n = ROWS, data.features = COLUMNS, data.x = x, data.y = y;
    OK(ctx, dro_linear_create(ctx, &data, &model));
    OK(ctx, dro_linear_problem(model, &problem));
    OK(ctx, dro_optimizer_create(ctx, "recover", &problem, &opt));
    OK(ctx, dro_optimizer_set(opt, "batch", "8192"));
    OK(ctx, dro_optimizer_start(opt, NULL));
    OK(ctx, dro_optimizer_step(opt)); /* large enough for the pool */
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(dro_optimizer_step(opt) == DRO_OK ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(ctx, dro_optimizer_step(opt));
    dro_optimizer_destroy(opt);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
    free(x);
    free(y);
}

/* ---- locale ---- */

static void test_comma_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    bool comma = false;
    for (size_t k = 0; k < sizeof names / sizeof names[0] && !comma; k++)
        comma = setlocale(LC_NUMERIC, names[k]) && strcmp(localeconv()->decimal_point, ",") == 0;
    if (!comma) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    toy t = {0};
    char text[32];
    dro_optimizer *opt;
    dro_context *ctx = check_context("ref", 1);
    dro_problem problem = toy_problem(&t);
    OK(ctx, dro_optimizer_create(ctx, "recover", &problem, &opt));
    OK(ctx, dro_optimizer_set(opt, "eta", "0.25"));
    OK(ctx, dro_optimizer_set_real(opt, "lambda", 2.5));
    OK(ctx, dro_optimizer_get(opt, "lambda", text, sizeof text));
    assert_string_equal(text, "2.5");
    assert_int_equal(dro_optimizer_set(opt, "eta", "0,25"), DRO_ERR_RANGE);
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
    setlocale(LC_NUMERIC, "C");
}

/* ---- a callback that gives too much ---- */

static dro_status greedy_gather(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    (void)user;
    batch->ids = ids;
    batch->count = count + 50000;
    return DRO_OK;
}

static void test_greedy_gather(void **state)
{
    (void)state;
    toy t = {0};
    dro_optimizer *opt;
    dro_context *ctx = check_context("ref", 1);
    dro_problem problem = toy_problem(&t);
    problem.draw = toy_draw;
    problem.gather = greedy_gather;
    OK(ctx, dro_optimizer_create(ctx, "stoc-agda", &problem, &opt));
    check_set(ctx, opt, "sampling=p batch=8");
    OK(ctx, dro_optimizer_start(opt, NULL));
    FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_CALLBACK,
          "gather gave 50008 examples instead of 8");
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_edited_states),
    cmocka_unit_test(test_fork),
    cmocka_unit_test(test_comma_locale),
    cmocka_unit_test(test_greedy_gather),
};

CHECK_MAIN(tests)
