/* Checkpoints that survive damage, and a disk that fails at any call. */
#include "bad_disk.h"

#include <fcntl.h>

/* ---- damage ---- */

static void damage(const char *name, size_t at, bool cut)
{
    char path[300];
    snprintf(path, sizeof path, "%s/parts/%s", dir, name);
    if (cut) {
        assert_int_equal(truncate(path, (off_t)at), 0);
        return;
    }
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void test_damage(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:2 eta=0.02";
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    for (int k = 0; k < 24; k++) {
        stopper s;
        size_t size;
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, 15, NULL));
        dro__free(slurp("parts", "last.ckpt", &size));
        damage("last.ckpt", k % 2 ? size * (size_t)k / 24 : (size_t)k * 37 % size, k % 2);
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, &s));
        assert_int_equal(s.notes, 1);
        assert_non_null(strstr(s.note, "last.ckpt"));
        assert_true(s.went_on && s.step > 0 && s.step <= 15 && s.examples == 16 * s.step);
        same_run("whole", "parts");
    }
    clear("parts");
    OK(ctx, run_to(settings, "parts", false, 15, NULL));
    damage("last.ckpt", 100, false);
    damage("previous.ckpt", 10, true);
    FAILS(ctx, run_to(settings, "parts", true, 20, NULL), DRO_ERR_FORMAT, "no whole checkpoint");
}

/* ---- a disk that fails ---- */

/* Whatever call fails while checkpoint 2 is written, 1 or 2 is there and whole. */
static void test_disk_checkpoint(void **state)
{
    (void)state;
    char folder[300], note[DRO__ERROR_SIZE], settings[] = "a=1\n", machine[] = "none",
                                             blob[3000] = "state";
    float statistics[100] = {1};
    snprintf(folder, sizeof folder, "%s/disk", dir);
    int k = 1;
    for (bool failed = true; failed; k++) {
        clear("disk");
        OK(ctx, dro__folder_make(ctx, folder, &(bool){false}));
        dro__saved saved = {.settings = settings,
                            .machine = machine,
                            .statistics = statistics,
                            .statistics_count = 100,
                            .state = blob,
                            .state_size = sizeof blob};
        for (uint64_t step = 0; step < 2; step++) {
            saved.progress.evaluated = step;
            OK(ctx, dro__checkpoint_write(ctx, folder, &saved));
        }
        break_disk(k, k % 2 ? ENOSPC : EIO);
        saved.progress.evaluated = 2;
        dro_status status = dro__checkpoint_write(ctx, folder, &saved);
        mend_disk();
        failed = calls >= k;
        assert_true(failed == (status == DRO_ERR_FILE) || calls >= k);
        dro__saved back;
        bool found;
        OK(ctx, dro__checkpoint_read(ctx, folder, &back, &found, note));
        assert_true(found && note[0] == '\0');
        assert_in_range(back.progress.evaluated, 1, 2);
        assert_memory_equal(back.state, blob, sizeof blob);
        dro__saved_free(&back);
    }
    assert_true(k > 6); /* open, write, fsync, close, two renames, the folder */
}

/* A run whose k-th call on the disk fails says so; resumed on a sound disk it ends as it should. */
static void test_disk_run(void **state)
{
    (void)state;
    const char *settings = "optimizer=recover model=mlp:2 eta=0.1 eval_every=1";
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    int failures = 0;
    for (int k = 1;; k++) {
        clear("parts");
        break_disk(k, ENOSPC);
        dro_status status = run_to(settings, "parts", false, UINT64_MAX, NULL);
        mend_disk();
        if (calls < k)
            break;
        failures += status == DRO_ERR_FILE;
        if (status == DRO_ERR_FILE)
            assert_non_null(strstr(dro_context_error(ctx), "No space left on device: make room, "));
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
        same_run("whole", "parts");
    }
    assert_true(failures > 20);
}

static void test_disk_folder(void **state)
{
    (void)state;
    write_file("plain", "x", 1);
    FAILS(ctx, run_to("model=mlp:2", "plain", false, 1, NULL), DRO_ERR_FILE, "plain");
    FAILS(ctx, run_to("model=mlp:2", "plain/below", false, 1, NULL), DRO_ERR_FILE, "plain");
    dro_train *t = make("model=mlp:2 data=csv:/nowhere/at/all.csv,label=y");
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_FILE, "/nowhere/at/all.csv");
    dro_train_destroy(t);
}

/* Another number of threads, or another backend, is told; the same machine is not. */
static void test_other_machine(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:2 eta=0.02 best=none";
    dro_context *usual = ctx, *other = check_context(NULL, 2), *plain = check_context("ref", 1);
    stopper s;
    clear("moved");
    OK(ctx, run_to(settings, "moved", false, 5, NULL));
    OK(ctx, run_to(settings, "moved", true, 8, &s));
    assert_int_equal(s.notes, 0);
    ctx = other;
    OK(ctx, run_to(settings, "moved", true, 11, &s));
    assert_int_equal(s.notes, 1);
    assert_non_null(strstr(s.note, "threads=1 "));
    assert_non_null(strstr(s.note, "goes on with backend="));
    assert_non_null(strstr(s.note, "threads=2 "));
    ctx = plain;
    OK(ctx, run_to(settings, "moved", true, UINT64_MAX, &s));
    assert_int_equal(s.notes, 1);
    assert_non_null(strstr(s.note, "backend=ref threads=1"));
    ctx = other; /* it has ended: nothing goes on */
    OK(ctx, run_to(settings, "moved", true, UINT64_MAX, &s));
    assert_int_equal(s.notes, 0);
    ctx = usual;
    dro_context_destroy(other);
    dro_context_destroy(plain);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_other_machine),   cmocka_unit_test(test_damage),
    cmocka_unit_test(test_disk_checkpoint), cmocka_unit_test(test_disk_run),
    cmocka_unit_test(test_disk_folder),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup_train, teardown);
}
