/* Memory that runs out inside jansson: a call fails, or what it wrote and read is right. */
#include "train_runs.h"

#if DRO_WITH_JANSSON
#include <dro/report.h>
#include <jansson.h>

enum { STEP = 30 }; /* the more calls there are, the fewer of them fail */

static int calls, fails_at; /* 0: none does */

static void *failing(size_t size)
{
    return ++calls == fails_at ? NULL : malloc(size);
}

static void fail_at(int k)
{
    calls = 0;
    fails_at = k;
}

static const char *const SETTINGS = "optimizer=recover model=mlp:2 eta=0.1 steps=2 tilt=class";

/* Before the library wraps it. */
static int setup_memory(void **state)
{
    json_set_alloc_funcs(failing, free);
    return setup_train(state);
}

static void test_run(void **state)
{
    (void)state;
    int failed = 0;
    clear("whole");
    OK(ctx, run_to(SETTINGS, "whole", false, UINT64_MAX, NULL));
    for (int k = 1;; k += 1 + k / STEP) {
        clear("parts");
        fail_at(k);
        dro_status status = run_to(SETTINGS, "parts", false, UINT64_MAX, NULL);
        int made = calls;
        fail_at(0);
        if (made < k)
            break;
        failed += status != DRO_OK;
        if (status != DRO_OK) {
            assert_int_equal(status, DRO_ERR_MEMORY);
            assert_non_null(strstr(dro_context_error(ctx), "no memory"));
            OK(ctx, run_to(SETTINGS, "parts", true, UINT64_MAX, NULL));
        }
        same_run("whole", "parts");
    }
    assert_true(failed > 50);
}

static char *page_of(const char *name, dro_status *status, size_t *size)
{
    dro_report *report;
    char folder[300], *page = NULL;
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    *status = dro_report_create(ctx, &report);
    if (*status == DRO_OK)
        *status = dro_report_add(report, folder);
    if (*status == DRO_OK)
        *status = dro_report_html(report, in_dir("page.html"));
    dro_report_destroy(report);
    if (*status == DRO_OK)
        OK(ctx, dro__file_read(ctx, dir, "page.html", &page, size));
    return page;
}

static void test_page(void **state)
{
    (void)state;
    size_t size, other;
    dro_status status;
    clear("whole");
    OK(ctx, run_to(SETTINGS, "whole", false, UINT64_MAX, NULL));
    char *page = page_of("whole", &status, &size);
    OK(ctx, status);
    for (int k = 1;; k += 1 + k / STEP) {
        fail_at(k);
        char *again = page_of("whole", &status, &other);
        if (calls < k) {
            dro__free(again);
            break;
        }
        if (status == DRO_OK) {
            assert_int_equal(size, other);
            assert_memory_equal(page, again, size);
        } else {
            assert_int_equal(status, DRO_ERR_MEMORY);
        }
        dro__free(again);
    }
    fail_at(0);
    dro__free(page);
}

static void test_weights(void **state)
{
    (void)state;
    char weights[300];
    dro_predictor *p;
    float expected[30 * 3], logits[30 * 3];
    clear("whole");
    OK(ctx, run_to(SETTINGS, "whole", false, UINT64_MAX, NULL));
    snprintf(weights, sizeof weights, "%s/whole/weights.safetensors", dir);
    OK(ctx, dro_predictor_open(ctx, weights, DATA, &p));
    OK(ctx, dro_predictor_logits(p, DRO_TEST, 0, 30, expected, NULL));
    dro_predictor_close(p);
    for (int k = 1;; k += 1 + k / STEP) {
        fail_at(k);
        dro_status status = dro_predictor_open(ctx, weights, DATA, &p);
        if (calls < k) {
            dro_predictor_close(p);
            break;
        }
        if (status != DRO_OK) {
            assert_int_equal(status, DRO_ERR_MEMORY);
            continue;
        }
        OK(ctx, dro_predictor_logits(p, DRO_TEST, 0, 30, logits, NULL));
        assert_memory_equal(logits, expected, sizeof logits);
        for (int c = 0; c < 3; c++)
            assert_string_equal(dro_predictor_class_name(p, c),
                                ((const char *[]){"0", "1", "2"})[c]);
        dro_predictor_close(p);
    }
    fail_at(0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_run),
    cmocka_unit_test(test_page),
    cmocka_unit_test(test_weights),
};

CHECK_MAIN_WITH(tests, setup_memory, teardown)
#else
int main(void)
{
    puts("skipped: this build has no jansson");
    return 77;
}
#endif
