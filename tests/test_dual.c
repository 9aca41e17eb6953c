/* The dual variable's tree (dual.h) against plain arrays: thousands of random changes, projections
 * by sorting, searches by running sums. */
#include "check.h"

#include "dual.h"

enum { MOST = 3001 };
static const double tolerance = 1e-12;

/* ---- the plain version ---- */

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Onto { sum = 1, every x >= floor }: x - theta above the floor, theta from the sorted values. */
static void project(double *x, int64_t n, double floor)
{
    static double sorted[MOST];
    double mass = 1 - (double)n * floor, sum = 0, theta = 0;
    for (int64_t i = 0; i < n; i++)
        sorted[i] = x[i] - floor;
    qsort(sorted, (size_t)n, sizeof *sorted, falling);
    for (int64_t k = 0; k < n; k++) {
        sum += sorted[k];
        if (sorted[k] - (sum - mass) / (double)(k + 1) > 0)
            theta = (sum - mass) / (double)(k + 1);
    }
    if (mass <= 1e-15)
        theta = HUGE_VAL;
    for (int64_t i = 0; i < n; i++)
        x[i] = floor + fmax(x[i] - floor - theta, 0);
}

static double total(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static void compare(dro__dual *t, const double *x, int64_t n, const char *after)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(dro__dual_get(t, i) - x[i]) <= tolerance))
            fail_msg("n %d after %s: weight %d is %.17g, not %.17g", (int)n, after, (int)i,
                     dro__dual_get(t, i), x[i]);
    check_near("total", dro__dual_total(t), total(x, n), tolerance * fmax(1, total(x, n)));
}

/* The index found must be one whose stretch of the running sum holds u * total. */
static void check_find(dro__dual *t, const double *x, int64_t n, double u)
{
    int64_t found = dro__dual_find(t, u);
    assert_true(found >= 0 && found < n);
    double before = total(x, found), want = u * total(x, n), slack = 1e-11 * fmax(1, want);
    if (!(before <= want + slack && want <= before + x[found] + slack))
        fail_msg("n %d: find(%.17g) gave %d, [%.17g, %.17g], not around %.17g", (int)n, u,
                 (int)found, before, before + x[found], want);
}

/* ---- the tests ---- */

static double random_at(uint64_t *k, double low, double high)
{
    return check_uniform(31, (*k)++, low, high);
}

/* A new value for one weight: small changes, large ones, below zero, or equal to another's. */
static double new_weight(uint64_t *k, const double *x, int64_t n)
{
    double kind = random_at(k, 0, 1), share = 1 / (double)n;
    if (kind < 0.4)
        return fmax(0, x[(int64_t)random_at(k, 0, (double)n)] + share * random_at(k, -1, 1));
    if (kind < 0.6)
        return share * random_at(k, 0, 10);
    if (kind < 0.8)
        return random_at(k, -1, 1);
    if (kind < 0.9)
        return random_at(k, -50, 50);
    return x[(int64_t)random_at(k, 0, (double)n)];
}

static void exercise(dro_context *ctx, int64_t n, int operations)
{
    static double x[MOST];
    static const double floors[] = {0, 0.01, 0.3, 0.999, 1};
    dro__dual *t;
    uint64_t k = (uint64_t)n << 32;
    OK(ctx, dro__dual_create(ctx, n, &t));
    for (int64_t i = 0; i < n; i++)
        x[i] = 1 / (double)n;
    compare(t, x, n, "create");
    for (int op = 0; op < operations; op++) {
        int changes = (int)random_at(&k, 1, 9);
        for (int c = 0; c < changes; c++) {
            int64_t i = (int64_t)random_at(&k, 0, (double)n);
            double weight = new_weight(&k, x, n);
            dro__dual_set(t, i, weight);
            x[i] = weight;
            assert_true(dro__dual_get(t, i) == weight);
        }
        if (op % 50 == 7)
            compare(t, x, n, "set");
        double floor = floors[op % 97 == 0 ? 4 : op / 64 % 4] / (double)n;
        dro__dual_project(t, floor);
        project(x, n, floor);
        check_near("sum after project", dro__dual_total(t), 1, tolerance);
        for (int c = 0; c < 3; c++)
            check_find(t, x, n, random_at(&k, 0, 1));
        if (op % 20 == 3 || op == operations - 1)
            compare(t, x, n, "project");
    }
    check_find(t, x, n, 0);
    check_find(t, x, n, 1 - 0x1p-53);
    dro__dual_destroy(t);
}

static void test_against_plain(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 63, 64, 65, 127, 128, 129, 500, 1024, 3000};
    dro_context *ctx = check_context("ref", 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        exercise(ctx, sizes[s], sizes[s] < 1000 ? 1500 : 400);
    dro__dual_destroy(NULL);
    dro_context_destroy(ctx);
}

/* As the primal-dual methods do: many small pushes and projections, almost all weights at rest or
 * at the floor. Lazy changes pile up in the tree; nothing may drift. */
static void test_long_run(void **state)
{
    (void)state;
    enum { N = 2500, STEPS = 4000 };
    static double x[N];
    dro_context *ctx = check_context("ref", 1);
    dro__dual *t;
    uint64_t k = 7;
    OK(ctx, dro__dual_create(ctx, N, &t));
    for (int i = 0; i < N; i++)
        x[i] = 1.0 / N;
    for (int step = 0; step < STEPS; step++) {
        for (int c = 0; c < 4; c++) {
            int64_t i = (int64_t)random_at(&k, 0, N);
            double add = random_at(&k, -0.3, 1) / N * (i % 10 == 0 ? 10 : 1);
            dro__dual_set(t, i, dro__dual_get(t, i) + add);
            x[i] += add;
        }
        dro__dual_project(t, 0.01 / N);
        project(x, N, 0.01 / N);
    }
    compare(t, x, N, "a long run");
    double low = HUGE_VAL;
    for (int i = 0; i < N; i++)
        low = fmin(low, dro__dual_get(t, i));
    check_near("smallest", low, 0.01 / N, 1e-15);
    dro__dual_destroy(t);
    dro_context_destroy(ctx);
}

/* values() is the truth of all weights, and what is written there counts after rebuild(). */
static void test_values(void **state)
{
    (void)state;
    enum { N = 200 };
    dro_context *ctx = check_context("ref", 1);
    dro__dual *t;
    double x[N];
    OK(ctx, dro__dual_create(ctx, N, &t));
    for (int i = 0; i < N; i++)
        x[i] = 1.0 / N;
    dro__dual_set(t, 3, 0.4);
    x[3] = 0.4;
    dro__dual_project(t, 0.0005);
    project(x, N, 0.0005);
    double *values = dro__dual_values(t);
    for (int i = 0; i < N; i++) {
        check_near("value", values[i], x[i], tolerance);
        x[i] = values[i] = (double)((i * 37) % N);
    }
    dro__dual_rebuild(t);
    compare(t, x, N, "rebuild");
    for (int i = 0; i < 100; i++)
        check_find(t, x, N, i / 100.0);
    dro__dual_destroy(t);
    dro_context_destroy(ctx);
}

/* How often each index is found is its weight; an index of weight 0 never is. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { N = 150, DRAWS = 200000 };
    static int seen[N];
    dro_context *ctx = check_context("ref", 1);
    dro__dual *t;
    OK(ctx, dro__dual_create(ctx, N, &t));
    for (int i = 0; i < N; i++)
        dro__dual_set(t, i, i % 5 == 0 ? 0 : i + 1);
    memset(seen, 0, sizeof seen);
    for (uint64_t k = 0; k < DRAWS; k++)
        seen[dro__dual_find(t, check_uniform(41, k, 0, 1))]++;
    double sum = 0, chi = 0;
    for (int i = 0; i < N; i++) {
        double expected = DRAWS * dro__dual_get(t, i) / dro__dual_total(t);
        assert_true(expected > 0 || seen[i] == 0);
        sum += seen[i];
        if (expected > 0)
            chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    assert_true(sum == DRAWS);
    double free = N - N / 5 - 1;
    assert_true(fabs(chi - free) < 5 * sqrt(2 * free));
    dro__dual_destroy(t);
    dro_context_destroy(ctx);
}

/* A saved tree, with its pending updates, continues with the same bits. */
static void test_archive(void **state)
{
    (void)state;
    enum { N = 700 };
    dro_context *ctx = check_context("ref", 1);
    dro__dual *t, *u;
    uint64_t k = 11;
    OK(ctx, dro__dual_create(ctx, N, &t));
    OK(ctx, dro__dual_create(ctx, N, &u));
    dro__archive measure = {.mode = DRO__ARCHIVE_MEASURE};
    dro__dual_archive(t, &measure);
    unsigned char *bytes = malloc(measure.used);
    assert_non_null(bytes);
    for (int step = 0; step < 300; step++) {
        int64_t i = (int64_t)random_at(&k, 0, N);
        double weight = random_at(&k, 0, 0.01);
        dro__dual_set(t, i, weight);
        dro__dual_project(t, 0.1 / N);
        if (step == 150) {
            dro__archive save = {.mode = DRO__ARCHIVE_SAVE, .bytes = bytes, .size = measure.used};
            dro__dual_archive(t, &save);
            dro__archive load = {.mode = DRO__ARCHIVE_LOAD, .bytes = bytes, .size = measure.used};
            dro__dual_archive(u, &load);
            assert_true(!save.failed && !load.failed && load.used == measure.used);
        } else if (step > 150) {
            dro__dual_set(u, i, weight);
            dro__dual_project(u, 0.1 / N);
        }
    }
    for (int64_t i = 0; i < N; i++)
        assert_true(dro__dual_get(t, i) == dro__dual_get(u, i));
    free(bytes);
    dro__dual_destroy(t);
    dro__dual_destroy(u);
    dro_context_destroy(ctx);
}

/* Nodes with impossible counts, as in a forged checkpoint, are refused. With other impossible
 * numbers nothing is read or written outside of the arrays (the sanitizers watch). */
static void test_forged(void **state)
{
    (void)state;
    enum { N = 1000, NODES = 32, WORDS = 6 }; /* sum low second add low_count count */
    static const double values[] = {0, 1e300, -1, HUGE_VAL};
    static const int64_t counts[] = {INT64_MAX, 65, 1 << 20, -1};
    dro_context *ctx = check_context("ref", 1);
    dro__dual *t;
    OK(ctx, dro__dual_create(ctx, N, &t));
    dro__archive ar = {.mode = DRO__ARCHIVE_MEASURE};
    dro__dual_archive(t, &ar);
    size_t size = ar.used;
    unsigned char *good = malloc(size), *bad = malloc(size);
    assert_true(good && bad && size == (N + NODES * WORDS) * sizeof(double));
    ar = (dro__archive){.mode = DRO__ARCHIVE_SAVE, .bytes = good, .size = size};
    dro__dual_archive(t, &ar);
    for (size_t k = 0; k < NODES * WORDS * 4; k++) {
        size_t word = k / 4;
        bool count = word % WORDS >= 4;
        memcpy(bad, good, size);
        memcpy(bad + (N + word) * sizeof(double),
               count ? (const void *)&counts[k % 4] : (const void *)&values[k % 4], 8);
        ar = (dro__archive){.mode = DRO__ARCHIVE_LOAD, .bytes = bad, .size = size};
        dro__dual_archive(t, &ar);
        if (word % WORDS == 5 && word >= WORDS) /* the root is node 1 */
            assert_true(ar.failed);
        assert_true(count || !ar.failed);
        for (int u = 0; u < 10 && !ar.failed; u++) {
            int64_t found = dro__dual_find(t, 0.1 * u);
            assert_true(found >= 0 && found < N);
        }
        if (!ar.failed)
            dro__dual_project(t, 0.5 / N);
    }
    free(good);
    free(bad);
    dro__dual_destroy(t);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_against_plain), cmocka_unit_test(test_long_run),
    cmocka_unit_test(test_values),        cmocka_unit_test(test_frequencies),
    cmocka_unit_test(test_archive),       cmocka_unit_test(test_forged),
};

CHECK_MAIN(tests)
