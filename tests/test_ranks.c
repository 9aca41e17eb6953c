/* A problem over ranks: the program starts itself with mpirun, as 2, 3, 4 and 8 processes. Every
 * optimiser ends where one process ends, all ranks have the same bits, and an error of one is an
 * error of all. With shards one process and 2, 4 and 8 end with the same bits. */
#define _GNU_SOURCE
#include "check.h"
#include "comm.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 203, D = 17, SHARDS = 8, MOST = 4096 };

static float x[N * D], y[N];
static int32_t groups[N];
static dro_comm *comm;
static dro_context *comm_ctx;

static void fill(void)
{
    for (uint64_t k = 0; k < N * D; k++)
        x[k] = (float)check_uniform(72, k, -2, 2);
    for (uint64_t i = 0; i < N; i++) {
        y[i] = dro__random_unit(3, 73, i) < 0.3 ? 1 : -1;
        groups[i] = (int32_t)(i % 3);
    }
}

static dro_linear *make_model(dro_context *ctx)
{
    dro_linear_data data = dro_linear_data_default();
    dro_linear *model;
    data.n = N;
    data.features = D;
    data.x = x;
    data.y = y;
    data.groups = groups;
    data.group_count = 3;
    OK(ctx, dro_linear_create(ctx, &data, &model));
    return model;
}

/* ---- a problem that draws: every third position of the table ---- */

static dro_problem rows;
static int64_t drawn[6][MOST];
static int32_t drawn_classes[6][MOST];
static int turn;

static dro_status hand_out(size_t count, dro_batch *batch)
{
    int slot = turn++ % 6;
    batch->count = count;
    batch->ids = drawn[slot];
    batch->classes = drawn_classes[slot];
    rows.labels(rows.user, drawn[slot], count, drawn_classes[slot], NULL);
    return DRO_OK;
}

static dro_status draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    (void)user;
    for (size_t i = 0; i < count; i++)
        drawn[turn % 6][i] = (int64_t)((position + i) * 3 % N);
    return hand_out(count, batch);
}

static dro_status gather(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    (void)user;
    memcpy(drawn[turn % 6], ids, count * sizeof *ids);
    return hand_out(count, batch);
}

/* ---- runs ---- */

typedef struct how {
    const char *optimizer, *settings;
    bool spread, draws;
    int shards, threads;
} how;

static void train(const how *h, float *w)
{
    dro_context *ctx = check_context("cpu", h->threads ? h->threads : 1);
    dro_linear *models[SHARDS] = {make_model(ctx)};
    dro_problem mine, problem, problems[SHARDS];
    dro_spread *spread = NULL;
    dro_optimizer *opt;
    OK(ctx, dro_linear_problem(models[0], &mine));
    rows = mine;
    if (h->draws)
        mine.draw = draw, mine.gather = gather;
    problem = problems[0] = mine;
    dro__spread_options o = {.shards = h->shards, .problems = problems};
    for (int k = 1; k < h->shards / dro_comm_size(comm); k++) {
        models[k] = make_model(ctx);
        OK(ctx, dro_linear_problem(models[k], &problems[k]));
    }
    if (h->spread)
        OK(ctx, dro__spread_create(comm, ctx, &mine, &o, &spread, &problem));
    OK(ctx, dro_optimizer_create(ctx, h->optimizer, &problem, &opt));
    check_set(ctx, opt, h->settings);
    OK(ctx, dro_optimizer_start(opt, NULL));
    for (int k = 0; k < 25; k++) {
        dro_status status = dro_optimizer_step(opt);
        if (status != DRO_OK)
            fail_msg("%s: %s", h->optimizer, dro_context_error(ctx));
    }
    OK(ctx, dro_optimizer_weights(opt, w));
    dro_optimizer_destroy(opt);
    dro_comm_problem_free(spread);
    for (int k = 0; k < SHARDS; k++)
        dro_linear_destroy(models[k]);
    dro_context_destroy(ctx);
}

/* The same bits on all ranks. */
static void check_same(const char *what, const float *w)
{
    float first[D];
    memcpy(first, w, sizeof first);
    OK(comm_ctx, dro__comm_share(comm, first, sizeof first, 0));
    if (memcmp(first, w, sizeof first) != 0)
        fail_msg("%s: rank %d has other weights than rank 0", what, dro_comm_rank(comm));
}

static const char *const settings[] = {
    "batch=24 eta=0.05 ?big_batch=60 ?period=5",
    "batch=3 eta=0.05 ?big_batch=60 ?period=5",
    "batch=25 eta=0.05 ?tilt=class ?big_batch=60 ?period=5",
};

/* The k-th optimiser that draws batches, or NULL past the last. */
static const char *optimizer_at(int k)
{
    const char *name;
    for (int i = 0; (name = dro_optimizer_name(i)); i++) {
        dro_param p;
        bool draws = false;
        for (int j = 0; dro_optimizer_param(name, j, &p) == DRO_OK; j++)
            draws = draws || strcmp(p.name, "batch") == 0;
        if (draws && k-- == 0)
            return name;
    }
    return NULL;
}

static bool has_tilt(const char *name)
{
    dro_param p;
    for (int j = 0; dro_optimizer_param(name, j, &p) == DRO_OK; j++)
        if (strcmp(p.name, "tilt") == 0)
            return strstr(name, "agda") == NULL && strstr(name, "smd") == NULL &&
                   strstr(name, "sgda") == NULL;
    return false;
}

static void test_optimizers(void **state)
{
    (void)state;
    const char *name;
    for (int k = 0; (name = optimizer_at(k)); k++)
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
            for (int draws = 0; draws < 2; draws++) {
                float alone[D], together[D];
                if (strstr(settings[i], "tilt") && !has_tilt(name))
                    continue;
                train(&(how){.optimizer = name, .settings = settings[i], .draws = draws}, alone);
                train(
                    &(how){
                        .optimizer = name, .settings = settings[i], .spread = true, .draws = draws},
                    together);
                check_same(name, together);
                for (int j = 0; j < D; j++)
                    check_near(name, (double)together[j], (double)alone[j],
                               2e-5 * (1 + fabs((double)alone[j])));
            }
}

/* One process makes the file, the others compare with it. */
static void test_shards(void **state)
{
    (void)state;
    const char *path = getenv("DRO_RANKS_FILE"), *name;
    bool makes = dro_comm_size(comm) == 1;
    if (SHARDS % dro_comm_size(comm))
        return;
    FILE *file = fopen(path, makes ? "wb" : "rb");
    assert_non_null(file);
    for (int k = 0; (name = optimizer_at(k)); k++)
        for (int i = 0; i < 2; i++) {
            float w[D], before[D];
            train(&(how){.optimizer = name,
                         .settings = settings[i],
                         .spread = true,
                         .shards = SHARDS,
                         .threads = 1 + dro_comm_size(comm) % 3},
                  w);
            if (makes) {
                assert_int_equal(fwrite(w, sizeof w, 1, file), 1);
                continue;
            }
            assert_int_equal(fread(before, sizeof before, 1, file), 1);
            if (memcmp(w, before, sizeof w) != 0)
                fail_msg("%s, %s: %d ranks end with other bytes than 1", name, settings[i],
                         dro_comm_size(comm));
        }
    fclose(file);
}

static dro_status fails(void *user, const float *w, const dro_batch *parts, int part_count,
                        float *losses)
{
    if (dro_comm_rank(comm) == 1 && parts[0].position >= 90)
        return dro__fail(((dro_context **)user)[1], DRO_ERR_DATA, "the third disk is full");
    return rows.forward(((void **)user)[0], w, parts, part_count, losses);
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    return rows.backward(((void **)user)[0], w, parts, part_count, coef, grads);
}

/* That of rows, with another forward. */
static dro_problem failing(dro_context *ctx, dro_linear *model, void *user[2],
                           dro_status (*forward)(void *user, const float *w, const dro_batch *parts,
                                                 int part_count, float *losses))
{
    OK(ctx, dro_linear_problem(model, &rows));
    user[0] = rows.user, user[1] = ctx;
    return (dro_problem){.size = sizeof(dro_problem),
                         .user = user,
                         .dim = D,
                         .n = N,
                         .forward = forward,
                         .backward = backward};
}

static void test_error_of_one(void **state)
{
    (void)state;
    dro_context *ctx = check_context("cpu", 1);
    dro_linear *model = make_model(ctx);
    dro_spread *spread;
    dro_optimizer *opt;
    void *user[2];
    dro_problem problem, mine = failing(ctx, model, user, fails);
    OK(ctx, dro_comm_problem(comm, ctx, &mine, &spread, &problem));
    OK(ctx, dro_optimizer_create(ctx, "sgd", &problem, &opt));
    check_set(ctx, opt, "batch=30 eta=0.1");
    OK(ctx, dro_optimizer_start(opt, NULL));
    for (int k = 0; k < 3; k++)
        OK(ctx, dro_optimizer_step(opt));
    assert_int_equal(dro_optimizer_step(opt), DRO_ERR_DATA);
    assert_non_null(strstr(dro__spread_error(spread), "rank 1 on "));
    assert_non_null(strstr(dro__spread_error(spread), "the third disk is full"));
    dro_info info;
    OK(ctx, dro_optimizer_info(opt, &info));
    assert_int_equal(info.step, 3);
    dro_optimizer_destroy(opt);
    dro_comm_problem_free(spread);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
}

static void test_sums(void **state)
{
    (void)state;
    float values[MOST];
    for (size_t count = 0; count < 1000; count = 2 * count + 1) {
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(i + 1) * (float)(dro_comm_rank(comm) + 1);
        OK(comm_ctx, dro__comm_sum(comm, values, count));
        int n = dro_comm_size(comm);
        for (size_t i = 0; i < count; i++)
            assert_true(values[i] == (float)(i + 1) * (float)(n * (n + 1) / 2));
    }
}

/* ---- one rank fails where all wait for each other within a forward ---- */

static void take_first(double *into, const double *from, size_t count)
{
    (void)into, (void)from, (void)count;
}

/* As a network whose batch norm is over all ranks; rank 1 fails before the third one. */
static dro_status waits(void *user, const float *w, const dro_batch *parts, int part_count,
                        float *losses)
{
    double value = 0;
    if (dro_comm_rank(comm) == 1 && parts[0].position >= 60)
        return dro__fail(((dro_context **)user)[1], DRO_ERR_MEMORY, "no memory for this test");
    (void)!dro__comm_merge(comm, &value, 1, take_first);
    return rows.forward(((void **)user)[0], w, parts, part_count, losses);
}

enum { ALONE = 7, ALONE_SECONDS = 60 };

/* Ends the process: the ranks cannot meet again. */
static void test_alone(void **state)
{
    (void)state;
    alarm(ALONE_SECONDS);
    dro_context *ctx = check_context("cpu", 1);
    dro_linear *model = make_model(ctx);
    dro_spread *spread;
    dro_optimizer *opt;
    void *user[2];
    dro_problem problem, mine = failing(ctx, model, user, waits);
    dro__spread_options o = {.together = true};
    OK(ctx, dro__spread_create(comm, ctx, &mine, &o, &spread, &problem));
    OK(ctx, dro_optimizer_create(ctx, "sgd", &problem, &opt));
    check_set(ctx, opt, "batch=30 eta=0.1");
    OK(ctx, dro_optimizer_start(opt, NULL));
    /* The others may hear of the failure while they are still in the second step. */
    int steps = 0;
    while (dro_optimizer_step(opt) == DRO_OK)
        steps++;
    assert_true(steps == 2 || (steps == 1 && dro_comm_rank(comm) != 1));
    assert_non_null(strstr(dro__spread_error(spread), "rank 1 on "));
    assert_non_null(strstr(dro__spread_error(spread), "no memory for this test"));
    if (dro_comm_rank(comm) == 0)
        _exit(ALONE);
    sleep(ALONE_SECONDS); /* mpirun ends it */
}

/* A batch that is too small is refused by all ranks alike. */
static void test_too_small(void **state)
{
    (void)state;
    dro_context *ctx = check_context("cpu", 1);
    dro_linear *model = make_model(ctx);
    dro_problem mine, problem;
    dro_spread *spread;
    dro_optimizer *opt;
    int ranks = dro_comm_size(comm);
    OK(ctx, dro_linear_problem(model, &mine));
    dro__spread_options o = {.together = true};
    OK(ctx, dro__spread_create(comm, ctx, &mine, &o, &spread, &problem));
    OK(ctx, dro_optimizer_create(ctx, "sgd", &problem, &opt));
    char batch[32];
    snprintf(batch, sizeof batch, "batch=%d eta=0.1", ranks - 1);
    check_set(ctx, opt, batch);
    OK(ctx, dro_optimizer_start(opt, NULL));
    assert_int_equal(dro_optimizer_step(opt), DRO_ERR_RANGE);
    assert_non_null(strstr(dro__spread_error(spread), "needs an example in each"));
    assert_null(strstr(dro__spread_error(spread), "rank "));
    dro_optimizer_destroy(opt);
    dro_comm_problem_free(spread);
    dro_linear_destroy(model);
    dro_context_destroy(ctx);
}

/* ---- a rank is stopped while all leave ---- */

enum { LEAVE_SECONDS = 60 };

static const dro__comm_engine *usual;

static void close_stopped(void)
{
    raise(SIGSTOP);
    usual->close();
}

static void close_and_stop(void)
{
    usual->close();
    raise(SIGSTOP);
}

/* Rank 1 is stopped when rank 0 waits for it in the engine's close, or rank 0 just after that. */
static void leave(bool before)
{
    dro__comm_engine engine = *(usual = comm->engine);
    alarm(LEAVE_SECONDS);
    if (dro_comm_rank(comm) == (before ? 1 : 0))
        engine.close = before ? close_stopped : close_and_stop;
    comm->engine = &engine;
    dro_comm_close(comm);
}

/* ---- starting ---- */

/* This program again as so many ranks; its exit status. */
static int start(const char *self, const char *ranks, const char *filter)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("mpirun", "mpirun", "--oversubscribe", "-n", ranks, self, "ranks", filter,
               (char *)NULL);
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int run_ranks(const char *filter)
{
    const struct CMUnitTest many[] = {
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_error_of_one), cmocka_unit_test(test_too_small),
        cmocka_unit_test(test_shards),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(test_shards)};
    const struct CMUnitTest last[] = {cmocka_unit_test(test_alone)};
    bool alone = filter && strcmp(filter, "test_alone") == 0;
    fill();
    if (filter)
        cmocka_set_test_filter(filter);
    comm_ctx = check_context("cpu", 1);
    if (dro_comm_open(comm_ctx, &comm) != DRO_OK) {
        fprintf(stderr, "%s\n", dro_context_error(comm_ctx));
        return 1;
    }
    if (filter && (strcmp(filter, "stop_before") == 0 || strcmp(filter, "stop_after") == 0)) {
        leave(strcmp(filter, "stop_before") == 0);
        return 0;
    }
    int failed = alone  ? cmocka_run_group_tests(last, NULL, NULL)
                 : comm ? cmocka_run_group_tests(many, NULL, NULL)
                        : cmocka_run_group_tests(one, NULL, NULL);
    if (failed)
        dro_comm_fail(comm, "a test failed");
    dro_comm_close(comm);
    dro_context_destroy(comm_ctx);
    return failed != 0;
}

int main(int argc, char **argv)
{
    static const char *const ranks[] = {"1", "2", "3", "4", "8"};
    char path[64], module[4096];
    const char *slash = strrchr(argv[0], '/');
    if (argc > 1 && strcmp(argv[1], "ranks") == 0)
        return run_ranks(argc > 2 ? argv[2] : NULL);
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        printf("skipped: there is no mpirun (openmpi-bin)\n");
        return 77;
    }
    snprintf(module, sizeof module, "%.*s../libdro_mpi.so", slash ? (int)(slash + 1 - argv[0]) : 0,
             argv[0]);
    if (access(module, R_OK) != 0) {
        printf("skipped: libdro_mpi.so is not built (libopenmpi-dev)\n");
        return 77;
    }
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI's own */
    snprintf(path, sizeof path, "/tmp/dro_ranks_%d", (int)getpid());
    setenv("DRO_RANKS_FILE", path, 1);
    const char *filter = argc > 1 ? argv[1] : NULL;
    int failed = 0;
    for (size_t k = 0; !failed && k < sizeof ranks / sizeof ranks[0]; k++)
        failed = start(argv[0], ranks[k], strcmp(ranks[k], "8") == 0 ? "test_shards" : filter);
    unlink(path);
    if (!failed && start(argv[0], "2", "test_alone") != ALONE) {
        fprintf(stderr, "a rank that fails alone within a forward: the others did not end\n");
        return 1;
    }
    if (!failed &&
        (start(argv[0], "2", "stop_before") != 1 || start(argv[0], "3", "stop_after") != 1)) {
        fprintf(stderr, "a rank is stopped while all leave: the others did not end\n");
        return 1;
    }
    return failed;
}
