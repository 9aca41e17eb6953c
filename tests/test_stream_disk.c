/* A run over a stream loses no line, whatever call on the disk fails and wherever it is killed. */
#include "bad_disk.h"

enum { ROWS = 208, BATCH = 16, EVERY = 48 };

static void write_rows(int count)
{
    FILE *f = fopen(in_dir("rows"), "w");
    assert_non_null(f);
    for (int i = 0; i < count; i++)
        fprintf(f, "%s 1:%.5f 3:1\n", cos(3.7 * i) > 0.2 ? "+1" : "-1", cos(3.7 * i));
    fclose(f);
}

static dro_status run_rows(const char *name, bool resume, uint64_t stop)
{
    dro_train *t;
    char settings[500], folder[300];
    stopper s = {.at = stop};
    dro_train_watch watch = watch_of(&s);
    OK(ctx, dro_train_create(ctx, &t));
    snprintf(settings, sizeof settings,
             "data=libsvm:%s,features=3 progressive=yes batch=%d report_every=%d optimizer=recover",
             in_dir("rows"), BATCH, EVERY);
    set_all(t, settings);
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    dro_status status = dro_train_run(t, folder, resume, &watch);
    dro_train_destroy(t);
    return status;
}

static void same_stream(const char *a, const char *b)
{
    static const char *const files[] = {"weights.safetensors", "metrics.jsonl", "result.json",
                                        "config.json", DRO__EVENTS_NAME};
    for (int k = 0; k < 5; k++)
        same_file(a, b, files[k]);
}

static int lines_of(const char *name)
{
    size_t size;
    int lines = 0;
    char *text = slurp(name, "metrics.jsonl", &size);
    for (size_t k = 0; k < size; k++)
        lines += text[k] == '\n';
    dro__free(text);
    return lines;
}

/* The k-th call fails, for every k; resumed, the run ends as the undisturbed one. */
static void test_no_line_lost(void **state)
{
    (void)state;
    int failures = 0;
    write_rows(ROWS);
    clear("whole");
    OK(ctx, run_rows("whole", false, UINT64_MAX));
    assert_int_equal(lines_of("whole"), (ROWS + EVERY - 1) / EVERY);
    for (int k = 1;; k++) {
        clear("parts");
        break_disk(k, k % 2 ? ENOSPC : EIO);
        dro_status status = run_rows("parts", false, UINT64_MAX);
        mend_disk();
        if (calls < k)
            break;
        failures += status == DRO_ERR_FILE;
        OK(ctx, run_rows("parts", true, UINT64_MAX));
        same_stream("whole", "parts");
    }
    assert_true(failures > 40);
}

/* The last window ends with a line, or with the input; resuming a finished run changes nothing. */
static void test_resume_finished(void **state)
{
    (void)state;
    static const int counts[] = {ROWS, 4 * EVERY, 4 * EVERY + BATCH, 10};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        size_t size;
        write_rows(counts[k]);
        clear("whole");
        clear("again");
        OK(ctx, run_rows("whole", false, UINT64_MAX));
        OK(ctx, run_rows("again", false, UINT64_MAX));
        OK(ctx, run_rows("again", true, UINT64_MAX));
        same_stream("whole", "again");
        char *result = slurp("again", "result.json", &size);
        assert_null(strstr(result, "\"examples\": 0,"));
        dro__free(result);
        /* Killed between the last checkpoint and the files that follow it. */
        unlink(in_dir("again/result.json"));
        unlink(in_dir("again/weights.safetensors"));
        OK(ctx, run_rows("again", true, UINT64_MAX));
        same_stream("whole", "again");
    }
}

/* More rows than there were: a new window begins with them. */
static void test_more_rows(void **state)
{
    (void)state;
    size_t size;
    write_rows(2 * EVERY);
    clear("more");
    OK(ctx, run_rows("more", false, UINT64_MAX));
    write_rows(3 * EVERY);
    OK(ctx, run_rows("more", true, UINT64_MAX));
    assert_int_equal(lines_of("more"), 3);
    char *result = slurp("more", "result.json", &size), *window = strstr(result, "\"window\": {");
    assert_non_null(window);
    assert_memory_equal(strstr(window, "\"examples\": "), "\"examples\": 48,", 15);
    dro__free(result);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_no_line_lost),
    cmocka_unit_test(test_resume_finished),
    cmocka_unit_test(test_more_rows),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
