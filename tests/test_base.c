/* base: status texts, contexts, memory, random numbers, described parameters, the archive. */
#include "check.h"

/* ---- status and context ---- */

static void test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(dro_status_text(DRO_OK), "success");
    assert_string_equal(dro_status_text(DRO_ERR_NUMBER),
                        "a loss or a gradient is not a finite number");
    assert_string_equal(dro_status_text(DRO_ERR_END), "there are no more examples");
    assert_string_equal(dro_status_text((dro_status)1), "unknown status");
    assert_string_equal(dro_status_text((dro_status)-1000), "unknown status");
    for (int k = 0; k >= DRO_ERR_END; k--)
        for (int j = k - 1; j >= DRO_ERR_END; j--)
            assert_string_not_equal(dro_status_text((dro_status)k), dro_status_text((dro_status)j));
}

static void test_context(void **state)
{
    (void)state;
    dro_context *ctx = (dro_context *)1;
    assert_int_equal(dro_context_create("abacus", 1, &ctx), DRO_ERR_NAME);
    assert_null(ctx);
    assert_int_equal(dro_context_create("ref", -1, &ctx), DRO_ERR_RANGE);
    assert_int_equal(dro_context_create("ref", 1, NULL), DRO_ERR_ARGUMENT);
    dro_context_destroy(NULL);
    assert_string_equal(dro_context_error(NULL), "");
    int first = -1;
    for (int k = 0; dro_backend_name(k); k++) {
        if (dro_backend_missing(dro_backend_name(k))) { /* a GPU's, on a machine without one */
            assert_int_equal(dro_context_create(dro_backend_name(k), 1, &ctx), DRO_ERR_DEVICE);
            continue;
        }
        first = first < 0 ? k : first;
        assert_int_equal(dro_context_create(dro_backend_name(k), 3, &ctx), DRO_OK);
        assert_string_equal(dro_context_backend(ctx), dro_backend_name(k));
        assert_string_equal(dro_context_error(ctx), "");
        assert_int_equal(dro_context_threads(ctx), 3);
        assert_true(strlen(dro_backend_summary(k)) > 0);
        dro_context_destroy(ctx);
    }
    assert_int_equal(dro_context_create(NULL, 0, &ctx), DRO_OK);
    assert_string_equal(dro_context_backend(ctx), dro_backend_name(first));
    assert_true(dro_context_threads(ctx) >= 1);
    dro_context_destroy(ctx);
    assert_null(dro_backend_name(-1));
    assert_null(dro_backend_summary(1000));
}

static void test_fail_cuts(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    dro_context *ctx = check_context("ref", 1);
    assert_int_equal(dro__fail(ctx, DRO_ERR_RANGE, "a %s", text), DRO_ERR_RANGE);
    assert_int_equal(strlen(dro_context_error(ctx)), DRO__ERROR_SIZE - 1);
    memset(text, '\033', 300); /* four bytes each */
    dro__fail(ctx, DRO_ERR_RANGE, "%.300s", text);
    assert_int_equal(strlen(dro_context_error(ctx)), (DRO__ERROR_SIZE - 1) / 4 * 4);
    dro_context_destroy(ctx);
}

/* Bytes that are not UTF-8 and control characters, C1's too, are shown; letters stay. */
static void test_fail_escapes(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__fail(ctx, DRO_ERR_RANGE,
              "a\033[1mb\n\x7f \xe9 th\xc3\xa9 \xc2\x9b|\xc2 \xed\xa0\x80 \xc3");
    assert_string_equal(dro_context_error(ctx),
                        "a\\x1b[1mb\\x0a\\x7f \\xe9 th\xc3\xa9 \\x9b|\\xc2 \\xed\\xa0\\x80 \\xc3");
    dro_context_destroy(ctx);
}

static void test_alloc(void **state)
{
    (void)state;
    for (size_t count = 0; count < 300; count += 7) {
        unsigned char *p = dro__alloc(count, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < 3 * count; i++)
            assert_int_equal(p[i], 0);
        dro__free(p);
    }
    volatile size_t most = SIZE_MAX;
    assert_null(dro__alloc(most, 2));
    assert_null(dro__alloc(most / 8 + 2, 8));
    assert_null(dro__alloc(most - 8, 1));
    dro__free(NULL);
}

/* ---- random numbers ---- */

/* (sum (seen - n/bins)^2 / (n/bins) - (bins-1)) / sqrt(2 (bins-1)): about N(0, 1). */
static double chi_square(const int *seen, int bins, int n)
{
    double expected = (double)n / bins, sum = 0;
    for (int k = 0; k < bins; k++)
        sum += (seen[k] - expected) * (seen[k] - expected) / expected;
    return (sum - (bins - 1)) / sqrt(2.0 * (bins - 1));
}

static void test_random_unit(void **state)
{
    (void)state;
    enum { BINS = 256, N = 100000 };
    for (uint64_t seed = 0; seed < 4; seed++)
        for (uint64_t stream = 0; stream < 3; stream++) {
            int seen[BINS] = {0}, pairs[BINS] = {0}, low[BINS] = {0};
            for (uint64_t k = 0; k < N; k++) {
                double x = dro__random_unit(seed, stream, k);
                assert_true(x >= 0 && x < 1);
                double y = dro__random_unit(seed, stream, k + 1);
                seen[(int)(x * BINS)]++;
                pairs[(int)(x * 16) * 16 + (int)(y * 16)]++;
                low[dro__random(seed, stream, k) % BINS]++;
            }
            assert_true(fabs(chi_square(seen, BINS, N)) < 5);
            assert_true(fabs(chi_square(pairs, BINS, N)) < 5);
            assert_true(fabs(chi_square(low, BINS, N)) < 5);
        }
}

/* Neighbouring seeds and streams share nothing, and a value depends on its address only. */
static void test_random_streams(void **state)
{
    (void)state;
    enum { BINS = 256, N = 100000 };
    int by_seed[BINS] = {0}, by_stream[BINS] = {0};
    for (uint64_t k = 0; k < N; k++) {
        uint64_t x = dro__random(k, 5, 0) ^ dro__random(k + 1, 5, 0);
        uint64_t y = dro__random(5, k, 0) ^ dro__random(5, k + 1, 0);
        by_seed[x >> 56]++;
        by_stream[y >> 56]++;
    }
    assert_true(fabs(chi_square(by_seed, BINS, N)) < 5);
    assert_true(fabs(chi_square(by_stream, BINS, N)) < 5);
    uint64_t first = dro__random(1, 2, 3);
    assert_true(dro__random(1, 2, 4) != first && dro__random(1, 3, 3) != first);
    assert_true(dro__random(1, 2, 3) == first);
}

static void test_random_below(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 7, 100};
    enum { N = 100000 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int seen[100] = {0};
        for (uint64_t k = 0; k < N; k++) {
            uint64_t x = dro__random_below(1, 9, k, sizes[s]);
            assert_true(x < sizes[s]);
            seen[x]++;
        }
        assert_true(sizes[s] == 1 || fabs(chi_square(seen, (int)sizes[s], N)) < 5);
    }
    bool large = false; /* n above 2^63 reaches its upper half */
    for (uint64_t k = 0; k < 100; k++)
        large |= dro__random_below(1, 9, k, UINT64_MAX) > UINT64_MAX / 2;
    assert_true(large);
}

static void test_random_normal(void **state)
{
    (void)state;
    enum { N = 200000 };
    double moment[5] = {0};
    for (uint64_t k = 0; k < N; k++) {
        double x = dro__random_normal(3, 1, k);
        assert_true(isfinite(x));
        for (int m = 1; m <= 4; m++)
            moment[m] += pow(x, m) / N;
    }
    check_near("mean", moment[1], 0, 5 / sqrt(N));
    check_near("variance", moment[2], 1, 5 * sqrt(2.0 / N));
    check_near("skewness", moment[3], 0, 5 * sqrt(15.0 / N));
    check_near("kurtosis", moment[4], 3, 5 * sqrt(96.0 / N));
}

static void test_permutation(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint64_t n = sizes[s], fixed = 0;
        unsigned char *seen = calloc(n, 1);
        assert_non_null(seen);
        for (uint64_t key = 0; key < 3; key++) {
            for (uint64_t i = 0; i < n; i++) {
                uint64_t x = dro__permute(n, dro__random(key, 0, 0), i);
                assert_true(x < n);
                assert_int_equal(seen[x], key);
                seen[x]++;
                fixed += x == i;
            }
        }
        if (n >= 1000)
            assert_true(fixed < 30); /* not the identity: about one fixed point each */
        free(seen);
    }
}

/* Over keys, every place is as likely for the first as for the last element. Four rounds mix few
 * bits less well: below 64 elements a place may be taken up to 1.4 times as often as it should. */
static void test_permutation_uniform(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2, 3, 5, 6, 64, 100, 128};
    enum { N = 50000, MOST = 128 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int first[MOST] = {0}, last[MOST] = {0}, n = (int)sizes[s];
        for (uint64_t key = 0; key < N; key++) {
            first[dro__permute(sizes[s], dro__random(7, 7, key), 0)]++;
            last[dro__permute(sizes[s], dro__random(7, 7, key), sizes[s] - 1)]++;
        }
        for (int k = 0; k < n && n < 64; k++)
            assert_true(fmax(first[k], last[k]) < 1.4 * N / n &&
                        fmin(first[k], last[k]) > 0.8 * N / n);
        assert_true(n < 64 || fabs(chi_square(first, n, N)) < 5);
        assert_true(n < 64 || fabs(chi_square(last, n, N)) < 5);
    }
}

/* ---- described parameters ---- */

static dro_status nothing_forward(void *user, const float *w, const dro_batch *parts,
                                  int part_count, float *losses)
{
    (void)user, (void)w, (void)parts, (void)part_count, (void)losses;
    return DRO_OK;
}

static dro_status nothing_backward(void *user, const float *w, const dro_batch *parts,
                                   int part_count, const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)parts, (void)part_count, (void)coef, (void)grads;
    return DRO_OK;
}

static const dro_problem nothing = {.size = sizeof(dro_problem),
                                    .dim = 3,
                                    .n = 10,
                                    .forward = nothing_forward,
                                    .backward = nothing_backward};

/* The text of a number must be read back as the same number. */
static void check_number(dro_context *ctx, dro_optimizer *opt, const char *name, double value)
{
    char text[512];
    OK(ctx, dro_optimizer_set_real(opt, name, value));
    OK(ctx, dro_optimizer_get(opt, name, text, sizeof text));
    assert_true(strtod(text, NULL) == value);
}

static void check_param(dro_context *ctx, dro_optimizer *opt, const dro_param *p)
{
    char text[512];
    assert_true(strlen(p->meaning) > 3 && !strchr(p->meaning, '\n'));
    OK(ctx, dro_optimizer_set(opt, p->name, p->fallback));
    OK(ctx, dro_optimizer_get(opt, p->name, text, sizeof text));
    OK(ctx, dro_optimizer_set(opt, p->name, text));
    if (p->kind == DRO_PARAM_CHOICE) {
        assert_string_equal(text, p->fallback);
        FAILS(ctx, dro_optimizer_set(opt, p->name, "no such word"), DRO_ERR_RANGE, p->choices);
        return;
    }
    assert_true(p->low <= p->high && isfinite(p->low) && isfinite(p->high));
    if (p->kind == DRO_PARAM_LIST || p->kind == DRO_PARAM_TEXT)
        return;
    double fallback = strtod(p->fallback, NULL);
    assert_true(fallback >= p->low && fallback <= p->high);
    assert_true(strtod(text, NULL) == fallback);
    check_number(ctx, opt, p->name, p->low);
    check_number(ctx, opt, p->name, p->high);
    FAILS(ctx, dro_optimizer_set_real(opt, p->name, p->low - fmax(1, fabs(p->low))), DRO_ERR_RANGE,
          p->name);
    FAILS(ctx, dro_optimizer_set_real(opt, p->name, 2 * fabs(p->high) + 1), DRO_ERR_RANGE, p->name);
    OK(ctx, dro_optimizer_get(opt, p->name, text, sizeof text));
    assert_true(strtod(text, NULL) == p->high); /* a refused value changes nothing */
}

static void test_defaults(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    int optimizers = 0;
    for (const char *name; (name = dro_optimizer_name(optimizers)); optimizers++) {
        dro_optimizer *opt;
        dro_param p, q;
        OK(ctx, dro_optimizer_create(ctx, name, &nothing, &opt));
        assert_true(strlen(dro_optimizer_summary(optimizers)) > 3);
        int count = 0;
        for (; dro_optimizer_param(name, count, &p) == DRO_OK; count++) {
            for (int j = 0; j < count; j++) {
                OK(ctx, dro_optimizer_param(name, j, &q));
                assert_string_not_equal(p.name, q.name);
            }
            check_param(ctx, opt, &p);
        }
        assert_true(count > 8);
        assert_int_equal(dro_optimizer_param(name, count, &p), DRO_ERR_END);
        assert_int_equal(dro_optimizer_param(name, -1, &p), DRO_ERR_END);
        dro_optimizer_destroy(opt);
    }
    assert_true(optimizers >= 13);
    dro_param p;
    assert_int_equal(dro_optimizer_param("adam", 0, &p), DRO_ERR_NAME);
    assert_int_equal(dro_optimizer_param(NULL, 0, &p), DRO_ERR_NAME);
    assert_null(dro_optimizer_name(-1));
    assert_null(dro_optimizer_summary(1000));
    dro_context_destroy(ctx);
}

static void check_text(dro_optimizer *opt, dro_context *ctx, const char *name, const char *value,
                       dro_status status, const char *text)
{
    assert_int_equal(dro_optimizer_set(opt, name, value), status);
    assert_string_equal(dro_context_error(ctx), text);
}

static void test_error_texts(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_optimizer *opt;
    OK(ctx, dro_optimizer_create(ctx, "recover", &nothing, &opt));
    check_text(opt, ctx, "lambada", "1", DRO_ERR_NAME,
               "recover has no parameter 'lambada': did you mean 'lambda'?");
    check_text(opt, ctx, "eta", "-1", DRO_ERR_RANGE,
               "recover: eta=-1: expected a number from 0 to 1e+09");
    check_text(opt, ctx, "eta", "fast", DRO_ERR_RANGE,
               "recover: eta=fast: expected a number from 0 to 1e+09");
    check_text(opt, ctx, "batch", "2.5", DRO_ERR_RANGE,
               "recover: batch=2.5: expected a whole number from 1 to 1000000000");
    check_text(opt, ctx, "tilt", "Class", DRO_ERR_RANGE,
               "recover: tilt=Class: expected one of none|example|class|group");
    check_text(opt, ctx, "stages", "60,90,", DRO_ERR_RANGE,
               "recover: stages=60,90,: expected up to 16 numbers from 0 to 1e+15, as in 60,90");
    FAILS(ctx, dro_optimizer_set(opt, "colour", "red"), DRO_ERR_NAME,
          "recover has no parameter 'colour'; it has: eta eta_schedule ");
    dro_optimizer *other;
    FAILS(ctx, dro_optimizer_create(ctx, "adam", &nothing, &other), DRO_ERR_NAME,
          "no optimiser 'adam': expected one of sgd adamw cover recover scent ascpg civr");
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* Words that are no numbers, and numbers at the edge of the type. */
static void test_values(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "nan",   "NAN", "inf", "-inf", "infinity", "1e400",
                                      "-1e9", "0.1.2", "1,2", "1 ",  "0x",   "e5",       "--1"};
    dro_context *ctx = check_context("ref", 1);
    dro_optimizer *opt;
    char text[64], tiny[3], lengthy[4000];
    OK(ctx, dro_optimizer_create(ctx, "recover", &nothing, &opt));
    OK(ctx, dro_optimizer_set(opt, "eta", "0.25"));
    memset(lengthy, '9', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        FAILS(ctx, dro_optimizer_set(opt, "eta", bad[k]), DRO_ERR_RANGE, "expected a number");
        FAILS(ctx, dro_optimizer_set(opt, "batch", bad[k]), DRO_ERR_RANGE, "expected a whole");
    }
    FAILS(ctx, dro_optimizer_set(opt, "eta", lengthy), DRO_ERR_RANGE, "recover: eta=999");
    FAILS(ctx, dro_optimizer_set(opt, lengthy, "1"), DRO_ERR_NAME, "recover has no parameter '999");
    FAILS(ctx, dro_optimizer_set(opt, "", "1"), DRO_ERR_NAME, "recover has no parameter ''");
    FAILS(ctx, dro_optimizer_set_real(opt, "eta", (double)NAN), DRO_ERR_RANGE, "eta");
    FAILS(ctx, dro_optimizer_set_real(opt, "eta", HUGE_VAL), DRO_ERR_RANGE, "eta");
    FAILS(ctx, dro_optimizer_set_real(opt, "steps", 0.5), DRO_ERR_RANGE, "steps");
    OK(ctx, dro_optimizer_get(opt, "eta", text, sizeof text));
    assert_true(strtod(text, NULL) == 0.25);
    OK(ctx, dro_optimizer_set(opt, "eta", "1e-320")); /* underflows to a denormal: still a number */
    OK(ctx, dro_optimizer_get(opt, "tilt", tiny, sizeof tiny));
    assert_string_equal(tiny, "ex");
    FAILS(ctx, dro_optimizer_get(opt, "hue", text, sizeof text), DRO_ERR_NAME, "'hue'");
    assert_int_equal(dro_optimizer_get(opt, "eta", text, 0), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_get(opt, "eta", NULL, 4), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_set(opt, NULL, "1"), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_set(opt, "eta", NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_set(NULL, "eta", "1"), DRO_ERR_ARGUMENT);
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

static void test_lists(void **state)
{
    (void)state;
    static const char *const bad[] = {
        ",",     "60,,90", "60,90,",
        ",60",   "60;90",  "-1",
        "1,nan", "inf",    "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    dro_context *ctx = check_context("ref", 1);
    dro_optimizer *opt;
    char text[512], lengthy[300];
    OK(ctx, dro_optimizer_create(ctx, "sgd", &nothing, &opt));
    OK(ctx, dro_optimizer_set(opt, "stages", "0.5,60,1e3"));
    memset(lengthy, '0', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        FAILS(ctx, dro_optimizer_set(opt, "stages", bad[k]), DRO_ERR_RANGE, "as in 60,90");
    FAILS(ctx, dro_optimizer_set(opt, "stages", lengthy), DRO_ERR_RANGE, "sgd: stages=000");
    OK(ctx, dro_optimizer_get(opt, "stages", text, sizeof text));
    assert_string_equal(text, "0.5,60,1000");
    OK(ctx, dro_optimizer_get(opt, "stages", text, 6));
    assert_string_equal(text, "0.5,6");
    OK(ctx, dro_optimizer_set(opt, "stages", ""));
    OK(ctx, dro_optimizer_get(opt, "stages", text, sizeof text));
    assert_string_equal(text, "");
    OK(ctx, dro_optimizer_set(opt, "stages", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"));
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* ---- the archive ---- */

typedef struct fields {
    char a;
    double b;
    int32_t c[3];
} fields;

static void walk(dro__archive *ar, fields *f)
{
    DRO__ARCHIVE(ar, f->a);
    DRO__ARCHIVE(ar, f->b);
    dro__archive_bytes(ar, NULL, 0);
    DRO__ARCHIVE(ar, f->c);
}

static void test_archive(void **state)
{
    (void)state;
    fields f = {'x', 0.1, {1, -2, 3}}, g = {0};
    unsigned char bytes[64];
    dro__archive measure = {.mode = DRO__ARCHIVE_MEASURE};
    walk(&measure, &f);
    assert_int_equal(measure.used, 1 + 8 + 12);
    dro__archive save = {.mode = DRO__ARCHIVE_SAVE, .bytes = bytes, .size = measure.used};
    walk(&save, &f);
    assert_true(!save.failed && save.used == measure.used);
    dro__archive load = {.mode = DRO__ARCHIVE_LOAD, .bytes = bytes, .size = measure.used};
    walk(&load, &g);
    assert_true(!load.failed && g.a == f.a && g.b == f.b && memcmp(g.c, f.c, sizeof g.c) == 0);
    for (size_t size = 0; size < measure.used;
         size++) { /* too short: said, nothing beyond the end */
        memset(bytes, 0xee, sizeof bytes);
        save = (dro__archive){.mode = DRO__ARCHIVE_SAVE, .bytes = bytes, .size = size};
        walk(&save, &f);
        assert_true(save.failed && save.used <= size);
        for (size_t i = size; i < sizeof bytes; i++)
            assert_int_equal(bytes[i], 0xee);
        load = (dro__archive){.mode = DRO__ARCHIVE_LOAD, .bytes = bytes, .size = size};
        walk(&load, &g);
        assert_true(load.failed);
    }
}

/* An archive that goes elsewhere through a small block. */
typedef struct pieces {
    unsigned char bytes[64];
    size_t used, most; /* most: from then on it fails */
} pieces;

static dro_status take_piece(dro__archive *ar)
{
    pieces *p = ar->user;
    if (p->used + ar->used > p->most)
        return DRO_ERR_FILE;
    memcpy(p->bytes + p->used, ar->bytes, ar->used);
    p->used += ar->used;
    ar->used = 0;
    return DRO_OK;
}

static void test_archive_pieces(void **state)
{
    (void)state;
    fields f = {'x', 0.1, {1, -2, 3}};
    unsigned char flat[64], block[64];
    dro__archive save = {.mode = DRO__ARCHIVE_SAVE, .bytes = flat, .size = sizeof flat};
    walk(&save, &f);
    for (size_t size = 1; size < sizeof block; size++) {
        pieces p = {.most = sizeof p.bytes};
        dro__archive ar = {.mode = DRO__ARCHIVE_SAVE,
                           .bytes = block,
                           .size = size,
                           .flush = take_piece,
                           .user = &p};
        walk(&ar, &f);
        assert_true(!ar.failed && ar.used <= size);
        OK(NULL, take_piece(&ar));
        assert_int_equal(p.used, save.used);
        assert_memory_equal(p.bytes, flat, save.used);
        p = (pieces){.most = 4};
        ar.failed = false;
        walk(&ar, &f);
        assert_int_equal(ar.failed, size < save.used);
        assert_int_equal(ar.status, ar.failed ? DRO_ERR_FILE : DRO_OK);
    }
}

/* Every byte of messages that end anywhere in a stride, and in each of three blocks. */
static void test_checksum_long(void **state)
{
    (void)state;
    enum { SIZE = 2 * DRO__SUM_BLOCK + 40 };
    unsigned char *bytes = dro__alloc(SIZE, 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)dro__random(1, 2, i);
    for (size_t size = 0; size < 100; size++) {
        uint64_t sum = dro__checksum_long(0, bytes, size);
        assert_true(dro__checksum_long(0, bytes, size + 1) != sum);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(dro__checksum_long(0, bytes, size) != sum);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
    uint64_t whole = dro__checksum_long(0, bytes, SIZE);
    uint64_t part = dro__checksum_long(0, bytes, DRO__SUM_BLOCK);
    assert_true(dro__checksum_long(part, bytes + DRO__SUM_BLOCK, SIZE - DRO__SUM_BLOCK) == whole);
    for (size_t at = 0; at < SIZE; at += 1999) {
        bytes[at] ^= 1;
        assert_true(dro__checksum_long(0, bytes, SIZE) != whole);
        bytes[at] ^= 1;
    }
    for (size_t at = 8; at < 8 + 64; at += 8) { /* words in the wrong order */
        unsigned char word[8];
        memcpy(word, bytes, 8);
        memcpy(bytes, bytes + at, 8);
        memcpy(bytes + at, word, 8);
        assert_true(dro__checksum_long(0, bytes, SIZE) != whole);
        memcpy(bytes + at, bytes, 8);
        memcpy(bytes, word, 8);
    }
    memset(bytes, 0, SIZE);
    assert_true(dro__checksum_long(0, bytes, 40) != dro__checksum_long(0, bytes, 41));
    dro__free(bytes);
}

/* Zeros, in memory that was used and freed before, large and small. */
static void test_memory_is_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000000, 9000000, 9000001, 40000000};
    for (int round = 0; round < 3; round++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            unsigned char *small = dro__alloc(64, 1), *bytes = dro__alloc(sizes[k], 1);
            assert_true(small && bytes && (uintptr_t)bytes % 64 == 0);
            memset(small, 1, 64);
            for (size_t i = 0; i < sizes[k]; i += i < sizes[k] - 100 ? 61 : 1)
                assert_int_equal(bytes[i], 0);
            memset(bytes, 0xaa, sizes[k]);
            assert_int_equal(small[63], 1);
            dro__free(bytes);
            dro__free(small);
        }
}

static void test_checksum(void **state)
{
    (void)state;
    unsigned char bytes[32];
    assert_true(dro__checksum(0, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c)); /* FNV-1a's own vector */
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(7 * i);
    uint64_t sum = dro__checksum(0, bytes, sizeof bytes);
    assert_true(dro__checksum(dro__checksum(0, bytes, 5), bytes + 5, sizeof bytes - 5) == sum);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(dro__checksum(0, bytes, sizeof bytes) != sum);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int wrong; /* where, -1: nowhere */
        const char *shown;
    } cases[] = {
        {"", -1, ""},
        {"plain text of many letters", -1, "plain text of many letters"},
        {"caf\xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80, \xf4\x8f\xbf\xbf", -1,
         "caf\xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80, \xf4\x8f\xbf\xbf"},
        {"caf\xe9", 3, "caf\\xe9"},
        {"12345678\xff", 8, "12345678\\xff"},
        {"\xc0\x80", 0, "\\xc0\\x80"}, /* too long */
        {"\xe0\x9f\xbf", 0, "\\xe0\\x9f\\xbf"},
        {"\xf0\x8f\xbf\xbf", 0, "\\xf0\\x8f\\xbf\\xbf"},
        {"\xed\xa0\x80", 0, "\\xed\\xa0\\x80"},          /* a surrogate */
        {"\xf4\x90\x80\x80", 0, "\\xf4\\x90\\x80\\x80"}, /* past the last */
        {"a\xe2\x82", 1, "a\\xe2\\x82"},                 /* truncated */
        {"\xf5", 0, "\\xf5"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *text = cases[k].text, *wrong = dro__utf8_wrong(text, strlen(text));
        assert_int_equal(wrong ? wrong - text : -1, cases[k].wrong);
        char *shown = dro__utf8_show(text);
        assert_string_equal(shown, cases[k].shown);
        dro__free(shown);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_utf8),          cmocka_unit_test(test_status_texts),
    cmocka_unit_test(test_context),       cmocka_unit_test(test_fail_cuts),
    cmocka_unit_test(test_fail_escapes),  cmocka_unit_test(test_alloc),
    cmocka_unit_test(test_random_unit),   cmocka_unit_test(test_random_streams),
    cmocka_unit_test(test_random_below),  cmocka_unit_test(test_random_normal),
    cmocka_unit_test(test_permutation),   cmocka_unit_test(test_permutation_uniform),
    cmocka_unit_test(test_defaults),      cmocka_unit_test(test_error_texts),
    cmocka_unit_test(test_values),        cmocka_unit_test(test_lists),
    cmocka_unit_test(test_archive),       cmocka_unit_test(test_archive_pieces),
    cmocka_unit_test(test_checksum_long), cmocka_unit_test(test_memory_is_zero),
    cmocka_unit_test(test_checksum),
};

CHECK_MAIN(tests)
