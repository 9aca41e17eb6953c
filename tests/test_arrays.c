/* Arrays in memory as data: opened, trained on, predicted; wrong ones are refused. */
#include "train_runs.h"

#include <math.h>

enum { N = 60, FEATURES = 2, SIDE = 4 };

static float rows[N][FEATURES], weights[N];
static uint8_t pixels[N][SIDE * SIDE];
static int32_t labels[N], groups[N];

static dro_arrays make_rows(void)
{
    for (int i = 0; i < N; i++) {
        labels[i] = i % 3 == 0;
        groups[i] = i % 2;
        rows[i][0] = labels[i] ? 1 : -1;
        rows[i][1] = (float)((i * 7) % 10) / 10;
        weights[i] = i < N / 2 ? 1 : 0;
        for (int p = 0; p < SIDE * SIDE; p++)
            pixels[i][p] = (uint8_t)(labels[i] ? 200 - p : p);
    }
    return (dro_arrays){.size = sizeof(dro_arrays),
                        .count = N,
                        .x = rows[0],
                        .features = FEATURES,
                        .labels = labels,
                        .groups = groups};
}

static void test_open(void **state)
{
    (void)state;
    dro_arrays a = make_rows();
    dro_data *d;
    dro_data_info info;
    dro_examples e;
    const char *names[] = {"no", "yes"};
    a.weights = weights, a.classes = 2, a.class_names = names;
    OK(ctx, dro_data_from_arrays(ctx, &a, NULL, "holdout=0.25", &d));
    OK(ctx, dro_data_info_get(d, &info));
    assert_string_equal(info.class_names[1], "yes");
    assert_int_equal(info.kind, DRO_DATA_DENSE);
    assert_int_equal(info.classes, 2);
    assert_int_equal(info.groups, 2);
    assert_int_equal(info.examples[DRO_TRAIN] + info.examples[DRO_HOLDOUT], N);
    assert_int_equal(info.examples[DRO_HOLDOUT], 15);
    for (int s = 0; s < DRO_SPLITS; s++) { /* rows, labels, groups and weights stay together */
        OK(ctx, dro_data_examples(d, (dro_split)s, &e));
        for (int64_t i = 0; i < e.count; i++) {
            int64_t at = e.records[i];
            assert_int_equal(e.labels[i], labels[at]);
            assert_int_equal(e.groups[i], groups[at]);
            assert_true(e.weights[i] == weights[at]);
            assert_memory_equal(e.x + i * FEATURES, rows[at], sizeof rows[at]);
        }
    }
    dro_data_close(d);
}

static void test_refused(void **state)
{
    (void)state;
    dro_arrays a = make_rows(), b;
    dro_data *d;
    float bad[N] = {0};
    b = a, b.size = 4;
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_ARGUMENT,
          "set it to sizeof(dro_arrays)");
    b = a, b.pixels = pixels[0];
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_ARGUMENT, "either x or");
    b = a, b.labels = NULL;
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_ARGUMENT, "either labels");
    b = a, b.class_names = (const char *const[]){"one"}, b.classes = 1;
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_ARGUMENT, "every class");
    b = a, b.weights = bad;
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_ARGUMENT, "above 0");
    bad[3] = -1;
    FAILS(ctx, dro_data_from_arrays(ctx, &b, NULL, NULL, &d), DRO_ERR_DATA, "weight 3 is -1");
    b = a, b.features = 1;
    FAILS(ctx, dro_data_from_arrays(ctx, &a, &b, NULL, &d), DRO_ERR_ARGUMENT, "same shape");
    FAILS(ctx, dro_data_from_arrays(ctx, &a, NULL, "nonsense=1", &d), DRO_ERR_NAME, "nonsense");
    FAILS(ctx, dro_data_open(ctx, "arrays:nobody", &d), DRO_ERR_NAME, "nothing was lent");
    FAILS(ctx, dro_arrays_lend(ctx, "a,b", &a, NULL), DRO_ERR_ARGUMENT, "without comma");
}

static dro_status run(const char *settings)
{
    dro_train *t = make(settings);
    char folder[300];
    clear("arrays");
    snprintf(folder, sizeof folder, "%s/arrays", dir);
    dro_status status = dro_train_run(t, folder, false, NULL);
    dro_train_destroy(t);
    return status;
}

/* Training, prediction and metrics without a file of data. */
/* Whether the first bytes of a file have a text. */
static bool has(const char *path, const char *text)
{
    char head[4096] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(head, 1, sizeof head - 1, file), length = strlen(text);
    fclose(file);
    for (size_t k = 0; k + length <= size; k++)
        if (memcmp(head + k, text, length) == 0)
            return true;
    return false;
}

static void test_train(void **state)
{
    (void)state;
    dro_arrays a = make_rows(), images = a;
    char file[320];
    dro_predictor *p;
    const dro_metrics *m;
    images.x = NULL, images.pixels = pixels[0], images.groups = NULL;
    images.channels = 1, images.height = images.width = SIDE;
    OK(ctx, dro_arrays_lend(ctx, "images", &images, NULL));
    OK(ctx, dro_arrays_lend(ctx, "rows", &a, &a));
    OK(ctx, run("best=none data=arrays:images model=mlp:4 batch=10 steps=4"));
    OK(ctx, run("best=none data=arrays:images model=mlp:4 optimizer=civr batch=10 steps=12"));
    OK(ctx, run("best=none data=arrays:rows model=linear batch=10 steps=30 tilt=group"));
    snprintf(file, sizeof file, "%s/arrays/weights.safetensors", dir);
    OK(ctx, run("best=none data=arrays:rows,scale=none model=linear batch=10 steps=30"));
    assert_false(has(file, "dro.features"));
    OK(ctx, dro_predictor_open(ctx, file, "arrays:rows", &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    assert_true(fabs(m->accuracy - 1) < 1e-12);
    assert_int_equal(m->examples, N);
    dro_predictor_close(p);
    OK(ctx, run("best=none data=arrays:rows model=linear batch=10 steps=30"));
    char table[320], spec[340];
    snprintf(table, sizeof table, "%s/table.csv", dir);
    snprintf(spec, sizeof spec, "csv:%s,label=3", table);
    FILE *out = fopen(table, "wb");
    assert_non_null(out);
    fputs("1,2,0\n2,1,1\n", out);
    fclose(out);
    FAILS(ctx, dro_predictor_open(ctx, file, spec, &p), DRO_ERR_DATA, "arrays in memory");
    const char *columns[FEATURES] = {"the \"width\"", "depth"};
    a.feature_names = columns;
    OK(ctx, dro_arrays_lend(ctx, "rows", &a, &a));
    for (int k = 0; k < 2; k++) {
        OK(ctx, run(k ? "best=none data=arrays:rows model=mlp:4 batch=10 steps=3"
                      : "best=none data=arrays:rows model=linear batch=10 steps=30"));
        assert_true(has(file, "dro.features"));
        assert_true(has(file, "depth"));
    }
    for (int i = 0; i < N; i++) /* the second half is wrong, and has no weight */
        labels[i] = i < N / 2 ? labels[i] : 1 - labels[i];
    a.weights = weights;
    OK(ctx, dro_arrays_lend(ctx, "rows", &a, &a));
    OK(ctx, dro_predictor_open(ctx, file, "arrays:rows", &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    assert_true(fabs(m->accuracy - 1) < 1e-12);
    assert_true(fabs(m->average_precision - 1) < 1e-12);
    dro_predictor_close(p);
    OK(ctx, run("best=none data=arrays:rows model=linear optimizer=recover batch=10 steps=300"));
    OK(ctx, dro_predictor_open(ctx, file, "arrays:rows", &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    assert_true(fabs(m->accuracy - 1) < 1e-12); /* the half without weight was not learned */
    dro_predictor_close(p);
    a.weights = NULL, rows[3][1] = NAN; /* the evaluation of such scores ends, too */
    OK(ctx, dro_arrays_lend(ctx, "rows", &a, &a));
    FAILS(ctx, run("best=none data=arrays:rows model=linear optimizer=recover batch=10 steps=30"),
          DRO_ERR_NUMBER, "");
    OK(ctx, dro_arrays_lend(ctx, "rows", NULL, NULL));
    FAILS(ctx, run("best=none data=arrays:rows model=linear batch=10 steps=3"), DRO_ERR_NAME,
          "nothing");
}

/* Sparse rows are what the same rows are in full; wrong ones are refused. */
static void test_sparse(void **state)
{
    (void)state;
    dro_arrays a = make_rows(), s = a;
    int64_t starts[N + 1] = {0};
    int32_t columns[N * FEATURES];
    float values[N * FEATURES];
    for (int i = 0; i < N; i++) {
        starts[i + 1] = starts[i];
        for (int j = 0; j < FEATURES; j++)
            if (rows[i][j] != 0) {
                columns[starts[i + 1]] = j;
                values[starts[i + 1]++] = rows[i][j];
            }
    }
    assert_true(starts[N] < N * FEATURES);
    s.x = NULL, s.starts = starts, s.columns = columns, s.values = values;
    OK(ctx, dro_arrays_lend(ctx, "full", &a, NULL));
    OK(ctx, dro_arrays_lend(ctx, "sparse", &s, NULL));
    float logits[2][N][2];
    for (int k = 0; k < 2; k++) {
        char settings[200], file[320];
        dro_predictor *p;
        snprintf(settings, sizeof settings,
                 "best=none data=arrays:%s,scale=none model=linear lambda=1",
                 k ? "sparse" : "full");
        OK(ctx, run(settings));
        snprintf(file, sizeof file, "%s/arrays/weights.safetensors", dir);
        OK(ctx, dro_predictor_open(ctx, file, k ? "arrays:sparse" : "arrays:full", &p));
        OK(ctx, dro_predictor_logits(p, DRO_TRAIN, 0, N, logits[k][0], NULL));
        dro_predictor_close(p);
    }
    for (int i = 0; i < N; i++)
        assert_true(fabsf(logits[0][i][1] - logits[1][i][1]) < 1e-4f);
    dro_data *d;
    columns[3] = FEATURES;
    FAILS(ctx, dro_data_from_arrays(ctx, &s, NULL, NULL, &d), DRO_ERR_DATA, "below 2");
    columns[3] = 0, columns[2] = 0;
    FAILS(ctx, dro_data_from_arrays(ctx, &s, NULL, NULL, &d), DRO_ERR_DATA, "increasing");
    s.values = NULL;
    FAILS(ctx, dro_data_from_arrays(ctx, &s, NULL, NULL, &d), DRO_ERR_ARGUMENT, "with starts");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_open),
    cmocka_unit_test(test_refused),
    cmocka_unit_test(test_train),
    cmocka_unit_test(test_sparse),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
