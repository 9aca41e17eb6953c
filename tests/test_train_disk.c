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
    FAILS(ctx, run_to(settings, "parts", true, 20, NULL), DRO_ERR_FORMAT, "no valid checkpoint");
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
        bool matters = failed && k != 10; /* all is on the disk when the folder is closed */
        assert_int_equal(status, matters ? DRO_ERR_FILE : DRO_OK);
        dro__saved back;
        bool found;
        OK(ctx, dro__checkpoint_read(ctx, folder, &back, &found, note));
        assert_true(found && note[0] == '\0');
        assert_in_range(back.progress.evaluated, 1, 2);
        assert_memory_equal(back.state, blob, sizeof blob);
        dro__saved_free(&back);
    }
    assert_string_equal(made, "OWWSCRRODC");
    break_disk(7, EINVAL); /* a system that cannot sync a folder */
    OK(ctx, dro__file_replace(ctx, folder, "last.ckpt", blob, sizeof blob));
    mend_disk();
    break_disk(0, 0);
    OK(ctx, dro__file_append(ctx, folder, "lines", 0, "one\n", 4));
    mend_disk();
    assert_string_equal(made, "OWSC");
}

/* What is written in blocks, from the optimiser's vectors, are the bytes of one piece. A run that
 * has not begun keeps no state (test_train.c resumes it). */
static void test_checkpoint_state(void **state)
{
    (void)state;
    for (uint64_t stop = 0; stop < 2; stop++) {
        dro__saved saved;
        char note[DRO__ERROR_SIZE], *bytes, *packed;
        bool found;
        size_t size, packed_size;
        clear("parts");
        OK(ctx, run_to("optimizer=recover model=mlp:400", "parts", false, stop, NULL));
        OK(ctx, dro__checkpoint_read(ctx, in_dir("parts"), &saved, &found, note));
        assert_true(found && (saved.state_size > 0) == (stop > 0));
        assert_true(stop == 0 || saved.state_size > (size_t)8 * DRO__SUM_BLOCK);
        bytes = slurp("parts", "last.ckpt", &size);
        OK(ctx, dro__checkpoint_pack(ctx, &saved, &packed, &packed_size));
        assert_int_equal(size, packed_size);
        assert_memory_equal(bytes, packed, size);
        dro__free(packed);
        dro__free(bytes);
        dro__saved_free(&saved);
    }
}

/* A checkpoint of another version, and one with bytes behind its end. */
static void test_checkpoint_form(void **state)
{
    (void)state;
    char settings[] = "a=1\n", machine[] = "none", *bytes, longer[4096];
    size_t size;
    float statistics[1] = {1};
    dro__saved back, saved = {.settings = settings,
                              .machine = machine,
                              .statistics = statistics,
                              .statistics_count = 1};
    OK(ctx, dro__checkpoint_pack(ctx, &saved, &bytes, &size));
    assert_true(size < sizeof longer);
    memcpy(longer, bytes, size);
    memset(longer + size, 0, sizeof longer - size);
    OK(ctx, dro__checkpoint_unpack(ctx, "c", longer, size, &back));
    dro__saved_free(&back);
    FAILS(ctx, dro__checkpoint_unpack(ctx, "c", longer, size + 8, &back), DRO_ERR_FORMAT,
          "too long");
    FAILS(ctx, dro__checkpoint_unpack(ctx, "c", longer, size - 8, &back), DRO_ERR_FORMAT,
          "truncated");
    longer[8]++; /* the version, with the right checksum */
    uint64_t sum = dro__checksum_long(0, longer, size - sizeof sum);
    memcpy(longer + size - sizeof sum, &sum, sizeof sum);
    FAILS(ctx, dro__checkpoint_unpack(ctx, "c", longer, size, &back), DRO_ERR_FORMAT, "version");
    dro__free(bytes);
}

/* Numbers in a checkpoint's header that do not fit each other, with the right checksum. */
static void test_checkpoint_sizes(void **state)
{
    (void)state;
    enum { SETTINGS = 3, MACHINE, STATE, MORE, DIM, STATISTICS, BEST, HEADER }; /* words of it */
    static const uint64_t cases[][2] = {
        {SETTINGS, 0},
        {SETTINGS, UINT64_MAX},
        {SETTINGS, 3},
        {MACHINE, 0},
        {MACHINE, UINT64_MAX},
        {MACHINE, 4},
        {STATE, UINT64_MAX},
        {STATE, 1},
        {MORE, UINT64_MAX},
        {MORE, 1},
        {DIM, UINT64_MAX},
        {STATISTICS, 0},
        {STATISTICS, 2},
        {STATISTICS, UINT64_MAX},
        {BEST, 1},
        {BEST, 2},
    };
    char settings[] = "a=1\n", machine[] = "none", *bytes;
    size_t size;
    float statistics[1] = {1};
    uint64_t sum;
    dro__saved back, saved = {.settings = settings,
                              .machine = machine,
                              .statistics = statistics,
                              .statistics_count = 1};
    for (size_t k = 0; k <= sizeof cases / sizeof cases[0] + 1; k++) {
        OK(ctx, dro__checkpoint_pack(ctx, &saved, &bytes, &size));
        char *texts = bytes + HEADER * sizeof sum + sizeof(dro__progress);
        if (k < sizeof cases / sizeof cases[0])
            memcpy(bytes + 8 * cases[k][0], &cases[k][1], 8);
        else /* a text without its end */
            texts[k == sizeof cases / sizeof cases[0] ? 4 : 9] = 'x';
        sum = dro__checksum_long(0, bytes, size - sizeof sum);
        memcpy(bytes + size - sizeof sum, &sum, sizeof sum);
        FAILS(ctx, dro__checkpoint_unpack(ctx, "c", bytes, size, &back), DRO_ERR_FORMAT,
              "c is inconsistent");
        dro__free(bytes);
    }
}

/* Paths that are too long, and folders and pipes in the place of files. */
static void test_paths(void **state)
{
    (void)state;
    static char folder[9000];
    char *bytes;
    size_t size;
    bool fresh;
    const char *too_long = "is too long";
    memset(folder, 'x', sizeof folder - 1);
    FAILS(ctx, dro__folder_make(ctx, folder, &fresh), DRO_ERR_FILE, "is empty or too long");
    FAILS(ctx, dro__folder_make(ctx, "", &fresh), DRO_ERR_FILE, "is empty or too long");
    FAILS(ctx, dro__file_read(ctx, folder, "a", &bytes, &size), DRO_ERR_FILE, too_long);
    FAILS(ctx, dro__file_append(ctx, folder, "a", 0, "", 0), DRO_ERR_FILE, too_long);
    FAILS(ctx, dro__file_replace(ctx, folder, "a", "", 0), DRO_ERR_FILE, too_long);
    assert_false(dro__file_at(folder, "a", NULL));
    clear("odd");
    OK(ctx, dro__folder_make(ctx, in_dir("odd/last.ckpt"), &fresh));
    assert_int_equal(mkfifo(in_dir("odd/previous.ckpt"), 0600), 0);
    char path[300];
    snprintf(path, sizeof path, "%s", in_dir("odd"));
    FAILS(ctx, dro__file_read(ctx, path, "last.ckpt", &bytes, &size), DRO_ERR_FORMAT,
          "last.ckpt is not a regular file: expected one");
    FAILS(ctx, dro__file_read(ctx, path, "previous.ckpt", &bytes, &size), DRO_ERR_FORMAT,
          "previous.ckpt is not a regular file: expected one");
    OK(ctx, dro__file_append(ctx, path, "lines", 0, "one\n", 4));
    FAILS(ctx, dro__file_append(ctx, path, "lines", 9, "two\n", 4), DRO_ERR_FORMAT, "lines");
}

/* One process at a time; what a killed one has left half-written is removed, nothing else. */
static void test_lock(void **state)
{
    (void)state;
    static const char *const files[] = {"last.ckpt.tmp", "last.safetensors.12-3.tmp",
                                        "config.json.tmp", "my.tmp", "last.ckpt"};
    char folder[300], path[400];
    int lock, other;
    snprintf(folder, sizeof folder, "%s/locked", dir);
    OK(ctx, dro__folder_make(ctx, folder, &(bool){false}));
    for (int k = 0; k < 5; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[k]);
        close(open(path, O_WRONLY | O_CREAT, 0666));
    }
    OK(ctx, dro__folder_lock(ctx, folder, &lock));
    for (int k = 0; k < 5; k++)
        assert_int_equal(dro__file_at(folder, files[k], NULL), k > 2);
    FAILS(ctx, dro__folder_lock(ctx, folder, &other), DRO_ERR_FILE, "another process");
    close(lock);
    OK(ctx, dro__folder_lock(ctx, folder, &lock));
    close(lock);
}

/* The step that a run continues from when the last checkpoint is damaged. */
static unsigned long long previous_step(const char *settings)
{
    stopper s;
    clear("parts");
    OK(ctx, run_to(settings, "parts", false, 13, NULL));
    damage("last.ckpt", 100, false);
    OK(ctx, run_to(settings, "parts", true, 14, &s));
    assert_true(s.went_on);
    return s.step;
}

/* Checkpoints are those of evaluations (every 5 steps) and of the stop, or of every step where none
 * may be missed. */
static void test_checkpoint_every(void **state)
{
    (void)state;
    assert_int_equal(previous_step("optimizer=sgd model=mlp:2 checkpoint_every=1h"), 10);
    assert_int_equal(previous_step("optimizer=sgd model=mlp:2 checkpoint_every=0"), 13);
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
            assert_non_null(
                strstr(dro_context_error(ctx), "No space left on device: free some space, "));
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

/* Another number of threads, or another backend, is reported; the same machine is not. */
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
    assert_non_null(strstr(s.note, "resumes with backend="));
    assert_non_null(strstr(s.note, "threads=2 "));
    ctx = plain;
    OK(ctx, run_to(settings, "moved", true, UINT64_MAX, &s));
    assert_int_equal(s.notes, 1);
    assert_non_null(strstr(s.note, "backend=ref threads=1"));
    ctx = other; /* it has ended: there is nothing to resume */
    OK(ctx, run_to(settings, "moved", true, UINT64_MAX, &s));
    assert_int_equal(s.notes, 0);
    ctx = usual;
    dro_context_destroy(other);
    dro_context_destroy(plain);
}

/* The checkpoint of run "older" without, or with, a line of its settings. */
static void edit_settings(const char *line, bool add)
{
    dro__saved saved = {0};
    char note[DRO__ERROR_SIZE];
    bool found;
    OK(ctx, dro__checkpoint_read(ctx, in_dir("older"), &saved, &found, note));
    assert_true(found);
    char *before = saved.settings, after[8000] = "";
    for (const char *at = before; *at; at += strcspn(at, "\n") + 1)
        if (strncmp(at, line, strlen(line)) != 0)
            strncat(after, at, strcspn(at, "\n") + 1);
    assert_int_equal(strlen(after) < strlen(before), !add);
    if (add)
        strcat(after, line);
    saved.settings = after;
    OK(ctx, dro__checkpoint_write(ctx, in_dir("older"), &saved));
    saved.settings = before;
    dro__saved_free(&saved);
}

/* A checkpoint of a version that had fewer settings, or others. */
static void test_older_settings(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:2 eta=0.02";
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    clear("older");
    OK(ctx, run_to(settings, "older", false, 15, NULL));
    edit_settings("microbatch=", false);
    edit_settings("sync_norm=", false);
    edit_settings("eta=", false);
    FAILS(ctx, run_to("optimizer=sgd model=mlp:2 eta=0.02 microbatch=4", "older", true, 20, NULL),
          DRO_ERR_FORMAT, "made by a version without the setting microbatch=4: leave it out");
    FAILS(ctx, run_to(settings, "older", true, 20, NULL), DRO_ERR_FORMAT,
          "made by a version without the setting eta=0.02");
    edit_settings("eta=0.02\n", true);
    edit_settings("colour=1\n", true);
    FAILS(ctx, run_to(settings, "older", true, 20, NULL), DRO_ERR_FORMAT,
          "made with colour=1, which is not set here: restore that setting");
    edit_settings("colour=", false);
    FAILS(ctx, run_to("optimizer=sgd model=mlp:2 eta=0.2", "older", true, 20, NULL), DRO_ERR_FORMAT,
          "made with eta=0.02, not with eta=0.2");
    OK(ctx,
       run_to("optimizer=sgd model=mlp:2 eta=0.02 sync_norm=no", "older", true, UINT64_MAX, NULL));
    same_run("whole", "older");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_older_settings),
    cmocka_unit_test(test_other_machine),
    cmocka_unit_test(test_damage),
    cmocka_unit_test(test_disk_checkpoint),
    cmocka_unit_test(test_disk_run),
    cmocka_unit_test(test_disk_folder),
    cmocka_unit_test(test_checkpoint_form),
    cmocka_unit_test(test_checkpoint_state),
    cmocka_unit_test(test_checkpoint_sizes),
    cmocka_unit_test(test_paths),
    cmocka_unit_test(test_lock),
    cmocka_unit_test(test_checkpoint_every),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
