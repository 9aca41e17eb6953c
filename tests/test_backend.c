/* Every backend against ref, and ref against sums in double or long double: each operation of the
 * table at odd sizes, with 1, 2 and 3 threads, which must not change a bit. */
#include "check.h"

#include "backend.h"

#include <float.h>

enum { MOST = 100003, THREADS = 3 };

static const size_t sizes[] = {0, 1, 15, 16, 17, 511, 513, 32768 + 7, MOST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static float *floats(size_t n, uint64_t stream)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)check_uniform(stream, i, -2, 2);
    return x;
}

static dro__pool *pool; /* of the number of threads under test */

/* Runs body(backend, threads, argument) for each backend of this build and each number of
 * threads. */
static void everywhere(void (*body)(const dro__backend *, int, void *), void *argument)
{
    for (int k = 0; dro_backend_name(k); k++)
        for (int threads = 1; threads <= THREADS; threads++) {
            if (strcmp(dro_backend_name(k), "cuda") == 0)
                continue; /* its memory is not ours: test_cuda.c */
            dro_context *ctx = check_context(dro_backend_name(k), threads);
            pool = ctx->pool;
            body(ctx->backend, threads, argument);
            dro_context_destroy(ctx);
        }
}

/* With one thread, keeps the bytes; with more, they must be the same. NULL begins again. */
static void same_bytes(int threads, const char *what, const void *bytes, size_t size)
{
    static unsigned char kept[16 << 20];
    static size_t at;
    at = bytes ? at : 0;
    assert_true(at + size <= sizeof kept);
    if (bytes && threads == 1)
        memcpy(kept + at, bytes, size);
    else if (bytes && memcmp(kept + at, bytes, size) != 0)
        fail_msg("%s: %d threads change the result", what, threads);
    at += size;
}

/* ---- memory ---- */

static void memory(const dro__backend *be, int threads, void *unused)
{
    (void)threads, (void)unused;
    static const char text[] = "thirteen chars";
    char back[sizeof text] = {0}, *p = be->alloc(sizeof text, 1);
    assert_non_null(p);
    be->copy_out(back, p, sizeof text);
    for (size_t i = 0; i < sizeof text; i++)
        assert_int_equal(back[i], 0);
    be->copy_in(p, text, sizeof text);
    be->copy_out(back, p, sizeof text);
    assert_string_equal(back, text);
    be->free(p);
    volatile size_t most = SIZE_MAX;
    assert_null(be->alloc(most, 4));
}

static void test_memory(void **state)
{
    (void)state;
    everywhere(memory, NULL);
}

/* ---- moves ---- */

/* A move with every vector of its own, none of them zero; the second moment is not negative. */
typedef struct moving {
    dro__scalars s;
    dro__ticket t;
    dro__step k;
} moving;

static void make_moving(moving *m, int variant, size_t n)
{
    *m = (moving){.s = {.level = DRO__TILT_EXAMPLE,
                        .eta = 0.03,
                        .lambda = 2,
                        .gain = 1.2,
                        .keep = variant % 2 ? 0.8 : 0,
                        .beta = 0.25,
                        .power1 = 0.81,
                        .power2 = 0.99},
                  .t = {.c = {0.5, -2, 0, 1e-3}, .prox_eta = 0.02, .plus = variant % 3 > 0}};
    m->t.prox = variant % 2;
    m->k = (dro__step){.plan = {.reg = variant % 6 == DRO__REG_GROUP ? DRO__REG_BALL : variant % 6,
                                .nesterov = variant % 2,
                                .reg_strength = 5,
                                .reg_ratio = 0.3,
                                .reg_low = -0.25,
                                .reg_high = 0.5,
                                .weight_decay = 0.1,
                                .momentum = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .guard = variant % 4 ? 0.25 : 0},
                       .ticket = &m->t,
                       .s = &m->s,
                       .n = n};
    m->s.square = variant % 5 ? 30 : 0;
    for (int r = 0; r < DRO__VECTOR_ROLES; r++) {
        m->k.v[r] = floats(n, (uint64_t)r);
        for (size_t i = 0; r == DRO__SECOND && i < n; i++)
            m->k.v[r][i] = fabsf(m->k.v[r][i]);
    }
    free(m->k.v[DRO__X + 2]);
    m->k.v[DRO__X + 2] = NULL; /* an input that combine does not have */
}

static void free_moving(moving *m)
{
    for (int r = 0; r < DRO__VECTOR_ROLES; r++)
        free(m->k.v[r]);
}

static void moves(const dro__backend *be, int threads, void *argument)
{
    int variant = *(int *)argument / DRO__MOVE_COUNT;
    dro__move_kind kind = (dro__move_kind)(*(int *)argument % DRO__MOVE_COUNT);
    same_bytes(threads, "", NULL, 0);
    for (int s = 0; s < (variant < 2 ? SIZES : SIZES - 2); s++) {
        moving truth, m;
        double expected[DRO__SUMS], sums[DRO__SUMS] = {7, 7, 7};
        make_moving(&truth, variant, sizes[s]);
        make_moving(&m, variant, sizes[s]);
        dro__backend_ref.move(NULL, &truth.k, kind, expected);
        be->move(pool, &m.k, kind, sums);
        for (int r = 0; r < DRO__VECTOR_ROLES; r++) {
            for (size_t i = 0; m.k.v[r] && i < sizes[s]; i++)
                if (!(fabs((double)m.k.v[r][i] - (double)truth.k.v[r][i]) <= 6e-6))
                    fail_msg("%s: move %d, variant %d, n %zu: vector %d[%zu] is %.9g, not %.9g",
                             be->name, (int)kind, variant, sizes[s], r, i, (double)m.k.v[r][i],
                             (double)truth.k.v[r][i]);
            if (r == DRO__W || r == DRO__D || r == DRO__OUT)
                same_bytes(threads, be->name, m.k.v[r], sizes[s] * sizeof(float));
        }
        for (int j = 0; j < DRO__SUMS; j++)
            check_near("sum", sums[j], expected[j],
                       4e-6 * ((double)sizes[s] + fabs(expected[j])) + 1e-5);
        same_bytes(threads, be->name, sums, sizeof sums);
        free_moving(&truth), free_moving(&m);
    }
}

/* One variant at every size and one at the small ones show all that threads share: enough for the
 * thread sanitizer, under which all of them take an hour. */
#if defined(__SANITIZE_THREAD__)
enum { FIRST_VARIANT = 1, VARIANTS = 3 };
#else
enum { FIRST_VARIANT = 0, VARIANTS = 24 };
#endif

static void test_moves(void **state)
{
    (void)state;
    for (int k = FIRST_VARIANT * DRO__MOVE_COUNT; k < VARIANTS * DRO__MOVE_COUNT; k++)
        everywhere(moves, &k);
}

/* ---- first_bad ---- */

static void first_bad(const dro__backend *be, int threads, void *unused)
{
    (void)threads, (void)unused;
    const float kinds[] = {(float)NAN, (float)-NAN, INFINITY, -INFINITY};
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s], places[] = {0,   1,     14,    15,    16,    510,   511,
                                         512, 32767, 32768, 65535, 65536, n / 2, n - 1};
        float *x = floats(n, 3);
        for (size_t i = 0; i < n; i += 97)
            x[i] = i % 2 ? FLT_MAX : FLT_MIN / 4; /* large and denormal are not bad */
        assert_int_equal(be->first_bad(pool, n, x), -1);
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++)
            for (size_t kind = 0; kind < 4 && places[k] < n; kind++) {
                float keep = x[places[k]], last = x[n - 1];
                x[n - 1] = INFINITY; /* a later one must not win */
                x[places[k]] = kinds[kind];
                assert_int_equal(be->first_bad(pool, n, x), places[k]);
                x[n - 1] = last;
                x[places[k]] = places[k] == n - 1 ? last : keep;
            }
        free(x);
    }
}

static void test_first_bad(void **state)
{
    (void)state;
    everywhere(first_bad, NULL);
}

/* ---- block_shrink ---- */

typedef struct blocks {
    const int64_t *offsets;
    size_t count;
    double threshold;
    bool constant; /* all values 0.1: rounding that does not average out */
} blocks;

static void block_shrink(const dro__backend *be, int threads, void *argument)
{
    const blocks *b = argument;
    size_t n = (size_t)b->offsets[b->count] + 5;
    float *x = floats(n, 4), *y = floats(n, 4);
    for (size_t i = 0; b->constant && i < n; i++)
        x[i] = y[i] = 0.1f;
    be->block_shrink(pool, y, b->offsets, b->count, b->threshold);
    for (size_t k = 0; k < b->count; k++) {
        double norm = 0;
        for (int64_t i = b->offsets[k]; i < b->offsets[k + 1]; i++)
            norm += (double)x[i] * (double)x[i];
        double scale = fmax(0, 1 - b->threshold / fmax(sqrt(norm), 1e-300));
        for (int64_t i = b->offsets[k]; i < b->offsets[k + 1]; i++)
            if (!(fabs((double)y[i] - scale * (double)x[i]) <= 2e-6 * fabs((double)x[i])))
                fail_msg("%s: block %zu of norm %g: %.9g became %.9g, not %.9g", be->name, k,
                         sqrt(norm), (double)x[i], (double)y[i], scale * (double)x[i]);
    }
    assert_memory_equal(y, x, (size_t)b->offsets[0] * sizeof *x);
    assert_memory_equal(y + n - 5, x + n - 5, 5 * sizeof *x);
    same_bytes(threads, "", NULL, 0);
    same_bytes(threads, be->name, y, n * sizeof *y);
    free(x);
    free(y);
}

static void test_block_shrink(void **state)
{
    (void)state;
    static const int64_t odd[] = {3, 3, 4, 19, 35, 52, 563, 1076, 33851}, one[] = {0, MOST};
    int64_t many[801];
    for (int k = 0; k <= 800; k++)
        many[k] = 125 * k;
    blocks cases[] = {{odd, 8, 2, false}, {one, 1, 100, false}, {many, 800, 13, false},
                      {odd, 0, 2, false}, {odd, 8, 0, false},   {one, 1, 1e9, false},
                      {one, 1, 16, true}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        everywhere(block_shrink, &cases[k]);
}

/* ---- rows ---- */

typedef struct table {
    size_t n, features, count;
    dro__row_matrix dense, sparse; /* the same numbers */
    float *x, *values, *w, *coef;
    int64_t *starts, *ids;
    int32_t *columns;
} table;

static table make_table(size_t n, size_t features, size_t count)
{
    table t = {.n = n, .features = features, .count = count};
    t.x = floats(n * features, 5);
    t.values = floats(n * features, 6);
    t.w = floats(features, 7);
    t.coef = floats(count, 8);
    t.starts = calloc(n + 1, sizeof *t.starts);
    t.columns = calloc(n * features + 1, sizeof *t.columns);
    t.ids = calloc(count + 1, sizeof *t.ids);
    assert_true(t.starts && t.columns && t.ids);
    for (size_t i = 0; i < n; i++) {
        int64_t at = t.starts[i];
        for (size_t j = 0; j < features; j++) {
            float *x = &t.x[i * features + j];
            if (i % 7 == 3 || dro__random_unit(1, 9, i * features + j) < 0.5)
                *x = 0; /* some rows are empty */
            if (*x != 0)
                t.values[at] = *x, t.columns[at++] = (int32_t)j;
        }
        t.starts[i + 1] = at;
    }
    for (size_t i = 0; i < count; i++)
        t.ids[i] = (int64_t)dro__random_below(1, 10, i, n);
    t.dense = (dro__row_matrix){.features = features, .x = t.x};
    t.sparse = (dro__row_matrix){
        .features = features, .starts = t.starts, .columns = t.columns, .values = t.values};
    return t;
}

static void free_table(table *t)
{
    free(t->x), free(t->values), free(t->w), free(t->coef);
    free(t->starts), free(t->columns), free(t->ids);
}

/* Each sum may be off by one rounding of the sum of magnitudes per term. */
static void check_sum(const char *name, const char *what, double value, double sum, double size,
                      size_t terms)
{
    if (!(fabs(value - sum) <= 6e-8 * size * sqrt((double)terms + 16) * 2))
        fail_msg("%s: %s is %.9g, not %.9g", name, what, value, sum);
}

/* margins against sums in double */
static void check_margins(const dro__backend *be, const table *t, const float *margins)
{
    for (size_t i = 0; i < t->count; i++) {
        double dot = 0, magnitude = 0;
        for (size_t j = 0; j < t->features; j++) {
            double term = (double)t->w[j] * (double)t->x[(size_t)t->ids[i] * t->features + j];
            dot += term;
            magnitude += fabs(term);
        }
        check_sum(be->name, "a margin", (double)margins[i], dot, magnitude, t->features);
    }
}

/* the gradient of examples from .. to - 1 */
static void check_gradient(const dro__backend *be, const table *t, size_t from, size_t to,
                           const float *grad)
{
    for (size_t j = 0; j < t->features; j++) {
        double sum = 0, size = 0;
        for (size_t i = from; i < to; i++) {
            double term = (double)t->coef[i] * (double)t->x[(size_t)t->ids[i] * t->features + j];
            sum += term;
            size += fabs(term);
        }
        check_sum(be->name, "a gradient", (double)grad[j], sum, size, to - from);
    }
}

static void rows(const dro__backend *be, int threads, void *argument)
{
    const table *t = argument;
    float *margins = floats(t->count, 11),
          *grads[] = {floats(t->features, 11), floats(t->features, 12)};
    same_bytes(threads, "", NULL, 0);
    for (int k = 0; k < 4; k++) {
        const dro__row_matrix *r = k % 2 ? &t->sparse : &t->dense;
        int parts = 1 + k / 2;
        size_t first = parts == 1 ? t->count : t->count / 3;
        const dro_batch both[] = {{.ids = t->ids, .count = first},
                                  {.ids = t->ids + first, .count = t->count - first}};
        be->rows_dot(pool, r, t->ids, t->count, t->w, margins);
        check_margins(be, t, margins);
        same_bytes(threads, be->name, margins, t->count * sizeof *margins);
        be->rows_sum(pool, r, both, parts, t->coef, grads);
        check_gradient(be, t, 0, first, grads[0]);
        same_bytes(threads, be->name, grads[0], t->features * sizeof(float));
        if (parts == 2) {
            check_gradient(be, t, first, t->count, grads[1]);
            same_bytes(threads, be->name, grads[1], t->features * sizeof(float));
        }
    }
    free(margins), free(grads[0]), free(grads[1]);
}

static void test_rows(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 15, 16, 17, 63, 64, 65, 513}, counts[] = {0, 1, 17, 65, 200};
    for (size_t f = 0; f < sizeof widths / sizeof widths[0]; f++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            table t = make_table(50, widths[f], counts[c]);
            everywhere(rows, &t);
            free_table(&t);
        }
}

/* ---- losses ---- */

static void check_loss(const char *name, const char *what, float m, double value, long double truth)
{
    long double off = fabsl((long double)value - truth);
    if (!(off <= 1e-6L * fabsl(truth) || off <= 3e-38L))
        fail_msg("%s: %s at margin %.9g is %.9g, not %.9g", name, what, (double)m, value,
                 (double)truth);
}

enum { MARGINS = 20011 };

static void losses(const dro__backend *be, int threads, void *argument)
{
    dro__loss_kind kind = *(dro__loss_kind *)argument;
    static float m[MARGINS], y[MARGINS], loss[MARGINS], slope[MARGINS], alone[MARGINS];
    for (int i = 0; i < MARGINS; i++) {
        double x = check_uniform(12, (uint64_t)i, -1, 1);
        m[i] = (float)(i % 3 == 0 ? 1e4 * x : i % 3 == 1 ? 100 * x : x);
        y[i] = kind == DRO__LOSS_SQUARED ? (float)(3 * x) : i % 2 ? 1.0f : -1.0f;
    }
    m[0] = 0, m[1] = -0.0f, m[2] = 87, m[3] = -87, m[4] = 88.5f, m[5] = -104, m[6] = 1e-30f;
    be->loss(kind, MARGINS, m, y, loss, slope);
    for (int i = 0; i < MARGINS; i++) {
        long double value, d, x = (long double)y[i] * (long double)m[i];
        if (kind == DRO__LOSS_LOGISTIC) {
            value = fmaxl(-x, 0) + log1pl(expl(-fabsl(x)));
            d = -(long double)y[i] / (1 + expl(x));
        } else {
            d = (long double)m[i] - (long double)y[i];
            value = d * d / 2;
            if (fabsl(d) < 1e-3L * fabsl((long double)m[i]))
                continue; /* the difference itself is all rounding */
        }
        check_loss(be->name, "loss", m[i], (double)loss[i], value);
        check_loss(be->name, "slope", m[i], (double)slope[i], d);
    }
    be->loss(kind, MARGINS, m, y, alone, NULL); /* either output may be left out */
    assert_memory_equal(alone, loss, sizeof loss);
    be->loss(kind, MARGINS, m, y, NULL, alone);
    assert_memory_equal(alone, slope, sizeof slope);
    be->loss(kind, 0, NULL, NULL, alone, alone);
    same_bytes(threads, "", NULL, 0);
    same_bytes(threads, be->name, loss, sizeof loss);
    same_bytes(threads, be->name, slope, sizeof slope);
    float bad[] = {(float)NAN, INFINITY, -INFINITY}, one[] = {1, 1, 1}, l[3], s[3];
    be->loss(kind, 3, bad, one, l, s);
    assert_true(isnan(l[0]) && isnan(s[0]));
    if (kind == DRO__LOSS_LOGISTIC)
        assert_true((double)l[1] <= 3e-38 && isinf(l[2]) && s[2] == -1 &&
                    fabs((double)s[1]) < 3e-38);
    else
        assert_true(isinf(l[1]) && isinf(l[2]));
}

static void test_losses(void **state)
{
    (void)state;
    dro__loss_kind kinds[] = {DRO__LOSS_LOGISTIC, DRO__LOSS_SQUARED};
    for (int k = 0; k < 2; k++)
        everywhere(losses, &kinds[k]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_memory),    cmocka_unit_test(test_moves),
    cmocka_unit_test(test_first_bad), cmocka_unit_test(test_block_shrink),
    cmocka_unit_test(test_rows),      cmocka_unit_test(test_losses),
};

CHECK_MAIN(tests)
