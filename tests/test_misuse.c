/* What the library answers to calls that make no sense: a status, not a crash, and nothing that was
 * handed out changes. Writes one temporary folder. */
#include "train_runs.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/report.h>
#include <dro/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GLYPHS "synth:glyphs,n=200,test=50,size=12,classes="

static const char *trained(const char *name, const char *spec)
{
    static char path[100];
    dro_train *train;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(ctx, dro_train_create(ctx, &train));
    OK(ctx, dro_train_set(train, "data", spec));
    OK(ctx, dro_train_set(train, "epochs", "1"));
    OK(ctx, dro_train_run(train, path, false, NULL));
    dro_train_destroy(train);
    strcat(path, "/weights.safetensors");
    return path;
}

/* A predictor on data with fewer classes than the model has: ranges, and what dro_predictor_data()
 * gave. */
static void test_predictor(void **state)
{
    (void)state;
    const char *weights = trained("five", GLYPHS "5");
    dro_predictor *p = (dro_predictor *)dir;
    float logits[5 * 60];
    int32_t truth[60];
    assert_int_equal(dro_predictor_open(ctx, NULL, GLYPHS "3", &p), DRO_ERR_ARGUMENT);
    assert_null(p);
    OK(ctx, dro_predictor_open(ctx, weights, GLYPHS "3", &p));
    const dro_data_info *data = dro_predictor_data(p);
    const dro_metrics *m;
    OK(ctx, dro_predictor_logits(p, DRO_TEST, 40, 10, logits, truth));
    OK(ctx, dro_predictor_logits(p, DRO_TEST, 50, 0, logits, truth));
    static const int64_t starts[] = {41, 50, 51, 1000000, INT64_MAX};
    for (size_t k = 0; k < sizeof starts / sizeof starts[0]; k++)
        FAILS(ctx, dro_predictor_logits(p, DRO_TEST, starts[k], 10, logits, truth), DRO_ERR_RANGE,
              "there are 50");
    FAILS(ctx, dro_predictor_logits(p, DRO_TEST, 0, SIZE_MAX, logits, NULL), DRO_ERR_RANGE, "50");
    FAILS(ctx, dro_predictor_logits(p, DRO_HOLDOUT, 0, 1, logits, truth), DRO_ERR_RANGE, "are 0");
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    assert_int_equal(m->classes, 5);
    assert_int_equal(data->classes, 3);
    dro_predictor_close(p);
}

/* The same of rows that stay sparse. */
static void test_sparse_predictor(void **state)
{
    (void)state;
    char path[100], spec[140];
    snprintf(path, sizeof path, "%s/wide", dir);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 60; i++)
        fprintf(file, "%d %d:1 9000:0.5\n", i % 2 ? 1 : -1, i + 1);
    fclose(file);
    snprintf(spec, sizeof spec, "libsvm:%s", path);
    const char *weights = trained("sparse", spec);
    dro_predictor *p;
    float logits[2 * 60];
    OK(ctx, dro_predictor_open(ctx, weights, spec, &p));
    OK(ctx, dro_predictor_logits(p, DRO_TRAIN, 0, 60, logits, NULL));
    FAILS(ctx, dro_predictor_logits(p, DRO_TRAIN, 59, 3, logits, NULL), DRO_ERR_RANGE, "are 60");
    FAILS(ctx, dro_predictor_logits(p, DRO_HOLDOUT, 0, 1, logits, NULL), DRO_ERR_RANGE, "are 0");
    dro_predictor_close(p);
}

static void test_report(void **state)
{
    (void)state;
    char path[100];
    dro_report *r = (dro_report *)dir;
    dro_report_method m;
    dro_statistic s;
    assert_int_equal(dro_report_create(NULL, &r), DRO_ERR_ARGUMENT);
    assert_null(r);
    assert_int_equal(dro_report_create(ctx, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_report_runs(NULL), 0);
    assert_null(dro_nearest(NULL, (const char *[]){"eta"}, 1));
    assert_null(dro_nearest("eta", NULL, 1));
    assert_null(dro_report_remark(NULL, 0));
    assert_null(dro_report_objective(NULL));
    assert_int_equal(dro_report_method_get(NULL, 0, &m), DRO_ERR_ARGUMENT);
    OK(ctx, dro_report_create(ctx, &r));
    assert_int_equal(dro_report_add(r, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_report_html(r, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_report_svg(r, NULL, NULL), DRO_ERR_ARGUMENT);
    snprintf(path, sizeof path, "%s/five", dir);
    OK(ctx, dro_report_add(r, path));
    assert_int_equal(dro_report_method_get(r, 0, NULL), DRO_ERR_ARGUMENT);
    OK(ctx, dro_report_reach(r, 0, 1e9, false, DRO_MEASURE_EXAMPLES, &s));
    assert_int_equal(s.count, 1);
    OK(ctx, dro_report_reach(r, 0, -1, true, DRO_MEASURE_SECONDS, &s));
    assert_int_equal(s.count, 0);
    assert_int_equal(dro_report_reach(r, 0, 1, false, DRO_MEASURE_ACCURACY, &s), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_report_reach(r, 0, 1, false, DRO_MEASURE_SECONDS, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_report_reach(r, 99, 1, false, DRO_MEASURE_SECONDS, &s), DRO_ERR_END);
    dro_report_destroy(r);
}

static dro_status ends(void *user, const int64_t *ids, size_t count, int32_t *c, int32_t *g)
{
    (void)user, (void)ids, (void)count, (void)c, (void)g;
    return DRO_ERR_END;
}

/* A callback that fails is no end of training, whatever it says. */
static void test_optimizer(void **state)
{
    (void)state;
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt = (dro_optimizer *)dir;
    const float w[TOY_DIM] = {3};
    assert_int_equal(dro_optimizer_param("sgd", 0, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_optimizer_create(ctx, "sgd", NULL, &opt), DRO_ERR_ARGUMENT);
    assert_null(opt);
    p.labels = ends;
    OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
    check_set(ctx, opt, "tilt=class batch=2 reg=group reg_strength=1");
    assert_true(isnan(dro_optimizer_regulariser(opt, w)));
    OK(ctx, dro_optimizer_start(opt, NULL));
    assert_true(dro_optimizer_regulariser(opt, w) == 3);
    FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_CALLBACK, "labels callback failed");
    dro_optimizer_destroy(opt);
}

/* A callback that begins again what called it. */
static dro_optimizer *inner;
static dro_status answer;

static dro_status steps_again(void *user, const int64_t *ids, size_t count, int32_t *c, int32_t *g)
{
    (void)user, (void)ids, (void)g;
    answer = dro_optimizer_step(inner);
    for (size_t i = 0; c && i < count; i++)
        c[i] = 0;
    return DRO_OK;
}

static bool runs_again(void *user, const dro_train_progress *progress)
{
    (void)progress;
    answer = dro_train_run(user, NULL, false, NULL);
    return false;
}

static void test_again(void **state)
{
    (void)state;
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_train *train;
    char path[100];
    p.labels = steps_again;
    OK(ctx, dro_optimizer_create(ctx, "recover", &p, &inner));
    check_set(ctx, inner, "tilt=class batch=2");
    OK(ctx, dro_optimizer_start(inner, NULL));
    OK(ctx, dro_optimizer_step(inner));
    assert_int_equal(answer, DRO_ERR_STATE);
    dro_optimizer_destroy(inner);
    answer = DRO_OK;
    OK(ctx, dro_train_create(ctx, &train));
    OK(ctx, dro_train_set(train, "data", GLYPHS "3"));
    OK(ctx, dro_train_set(train, "epochs", "1"));
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = train, .step = runs_again};
    snprintf(path, sizeof path, "%s/again", dir);
    OK(ctx, dro_train_run(train, path, false, &watch));
    assert_int_equal(answer, DRO_ERR_STATE);
    strcat(path, "/result.json");
    assert_int_equal(access(path, R_OK), 0);
    dro_train_destroy(train);
}

/* As many examples as can be counted. */
static void test_many(void **state)
{
    (void)state;
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    p.n = INT64_MAX;
    OK(ctx, dro_optimizer_create(ctx, "stoc-agda", &p, &opt));
    assert_int_equal(dro_optimizer_start(opt, NULL), DRO_ERR_MEMORY);
    dro_optimizer_destroy(opt);
}

static void test_rest(void **state)
{
    (void)state;
    dro_model_shape shape = {3, 1, 1, 2};
    dro_net *net;
    int32_t c = 1, h = 1, w = 1;
    OK(ctx, dro_net_model(ctx, "linear", &shape, &net));
    assert_int_equal(dro_net_set(net, NULL, "1"), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_net_set(net, "loss", NULL), DRO_ERR_ARGUMENT);
    dro_net_destroy(net);
    dro_loader_shape(NULL, &c, &h, &w);
    assert_int_equal(c + h + w, 0);
    dro_loader_shape(NULL, NULL, NULL, NULL);
}

#define ARGUMENT(call) assert_int_equal(call, DRO_ERR_ARGUMENT)

static void test_data(void **state)
{
    (void)state;
    dro_data *data;
    dro_data_info info;
    dro_examples examples;
    for (int k = 0; k < 2; k++) {
        int index = k ? 1000 : -1;
        assert_null(dro_format_name(index));
        assert_null(dro_format_usage(index));
        assert_null(dro_format_summary(index));
        assert_null(dro_format_details(index));
    }
    assert_null(dro_format_likely(NULL));
    ARGUMENT(dro_data_open(NULL, GLYPHS "3", &data));
    ARGUMENT(dro_data_open(ctx, GLYPHS "3", NULL));
    ARGUMENT(dro_data_open(ctx, NULL, &data));
    OK(ctx, dro_data_open(ctx, GLYPHS "3", &data));
    ARGUMENT(dro_data_info_get(NULL, &info));
    ARGUMENT(dro_data_info_get(data, NULL));
    ARGUMENT(dro_data_examples(NULL, DRO_TRAIN, &examples));
    ARGUMENT(dro_data_examples(data, DRO_TRAIN, NULL));
    ARGUMENT(dro_data_examples(data, (dro_split)-1, &examples));
    ARGUMENT(dro_data_examples(data, DRO_SPLITS, &examples));
    assert_null(dro_data_skipped(NULL, 0));
    assert_null(dro_data_skipped(data, -1));
    assert_null(dro_data_remark(NULL, 0));
    assert_null(dro_data_remark(data, -1));
    dro_data_close(data);
    dro_data_close(NULL);
}

static void refused_loader(dro_data *data, dro_loader_options o, dro_status status,
                           const char *text)
{
    dro_loader *loader = (dro_loader *)dir;
    FAILS(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader), status, text);
    assert_null(loader);
}

static void test_loader(void **state)
{
    (void)state;
    dro_data *data, *rows;
    dro_loader *loader;
    dro_loaded batch;
    double speed;
    int64_t ids[11] = {0};
    dro_loader_options o = dro_loader_options_default(), wrong;
    o.batch = 10;
    OK(ctx, dro_data_open(ctx, GLYPHS "3", &data));
    OK(ctx, dro_data_open(ctx, "npy:" REFS "arrays.npz,x=rows,labels=y", &rows));
    ARGUMENT(dro_loader_create(NULL, DRO_TRAIN, &o, &loader));
    ARGUMENT(dro_loader_create(data, DRO_TRAIN, NULL, &loader));
    ARGUMENT(dro_loader_create(data, DRO_TRAIN, &o, NULL));
    ARGUMENT(dro_loader_create(data, (dro_split)-1, &o, &loader));
    ARGUMENT(dro_loader_create(data, DRO_SPLITS, &o, &loader));
    wrong = o, wrong.struct_size = 1;
    refused_loader(data, wrong, DRO_ERR_ARGUMENT, "dro_loader_options");
    wrong = o, wrong.batch = 0;
    refused_loader(data, wrong, DRO_ERR_RANGE, "batch 0: expected 1 to 200");
    wrong = o, wrong.batch = 201;
    refused_loader(data, wrong, DRO_ERR_RANGE, "batch 201: expected 1 to 200");
    wrong = o, wrong.first = 5, wrong.end = 4;
    refused_loader(data, wrong, DRO_ERR_RANGE, "examples 5 to 4 of a batch of 10");
    wrong = o, wrong.end = 11;
    refused_loader(data, wrong, DRO_ERR_RANGE, "examples 0 to 11 of a batch of 10");
    wrong = o, wrong.size = -1;
    refused_loader(data, wrong, DRO_ERR_RANGE, "size -1: expected 1 to 4096");
    wrong = o, wrong.size = 4097;
    refused_loader(data, wrong, DRO_ERR_RANGE, "size 4097: expected 1 to 4096");
    wrong = o, wrong.batch = 1, wrong.cuts = true;
    refused_loader(rows, wrong, DRO_ERR_UNSUPPORTED, "only small images");
    OK(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader));
    ARGUMENT(dro_loader_draw(NULL, 0, &batch));
    ARGUMENT(dro_loader_draw(loader, 0, NULL));
    ARGUMENT(dro_loader_gather(NULL, ids, 1, &batch));
    ARGUMENT(dro_loader_gather(loader, NULL, 1, &batch));
    ARGUMENT(dro_loader_gather(loader, ids, 1, NULL));
    FAILS(ctx, dro_loader_gather(loader, ids, 11, &batch), DRO_ERR_RANGE, "10");
    ids[1] = -1;
    FAILS(ctx, dro_loader_gather(loader, ids, 2, &batch), DRO_ERR_RANGE,
          "id -1: expected 0 to 199");
    ids[1] = 200;
    FAILS(ctx, dro_loader_gather(loader, ids, 2, &batch), DRO_ERR_RANGE, "id 200: expected 0");
    ARGUMENT(dro_loader_bare(NULL, 1, &speed));
    ARGUMENT(dro_loader_bare(loader, 1, NULL));
    FAILS(ctx, dro_loader_bare(loader, 1, &speed), DRO_ERR_UNSUPPORTED, "only images in files");
    assert_int_equal(dro_loader_epoch(NULL), 0);
    assert_int_equal(dro_loader_epoch(loader), 200);
    assert_true(dro_loader_waited(NULL) == 0);
    dro_loader_destroy(loader);
    dro_data_close(data);
    dro_data_close(rows);
}

static void refused_arrays(const dro_arrays *train, const dro_arrays *test, dro_status status,
                           const char *text)
{
    dro_data *data = (dro_data *)dir;
    FAILS(ctx, dro_data_from_arrays(ctx, train, test, NULL, &data), status, text);
    assert_null(data);
}

static void test_arrays(void **state)
{
    (void)state;
    static const float x[] = {1, 2, 3, 4}, bad_x[] = {1, NAN, 3, 4};
    static const uint8_t pixels[] = {1, 2};
    static const int32_t labels[] = {0, 1}, minus[] = {0, -1}, most[] = {INT32_MAX, 0};
    static const int32_t columns[] = {0, 1};
    static const int64_t starts[] = {0, 1, 2}, late[] = {1, 1, 2}, back[] = {0, 2, 1};
    static const char *const names[] = {"a", "b"};
    const dro_arrays rows = {
        .size = sizeof rows, .count = 2, .features = 2, .x = x, .labels = labels};
    const dro_arrays image = {.size = sizeof image,
                              .count = 2,
                              .pixels = pixels,
                              .labels = labels,
                              .channels = 1,
                              .height = 1,
                              .width = 1};
    const dro_arrays sparse = {.size = sizeof sparse,
                               .count = 2,
                               .features = 2,
                               .starts = starts,
                               .columns = columns,
                               .values = x,
                               .labels = labels};
    dro_arrays a;
    dro_data *data;
    ARGUMENT(dro_data_from_arrays(NULL, &rows, NULL, NULL, &data));
    ARGUMENT(dro_data_from_arrays(ctx, NULL, NULL, NULL, &data));
    ARGUMENT(dro_data_from_arrays(ctx, &rows, NULL, NULL, NULL));
    ARGUMENT(dro_arrays_lend(NULL, "a", &rows, NULL));
    ARGUMENT(dro_arrays_lend(ctx, NULL, &rows, NULL));
    FAILS(ctx, dro_arrays_lend(ctx, "", &rows, NULL), DRO_ERR_ARGUMENT, "expected a name");
#define REFUSED(base, change, status, text)                                                        \
    a = (base), change, refused_arrays(&a, NULL, status, text)
    REFUSED(rows, a.count = 0, DRO_ERR_ARGUMENT, "count examples");
    REFUSED(rows, a.features = 0, DRO_ERR_ARGUMENT, "the number of features");
    REFUSED(rows, a.features = (size_t)INT32_MAX + 1, DRO_ERR_ARGUMENT, "the number of features");
    REFUSED(rows, a.labels = minus, DRO_ERR_DATA, "label 1 is -1");
    REFUSED(rows, a.labels = most, DRO_ERR_DATA, "label 0 is 2147483647");
    REFUSED(rows, a.groups = minus, DRO_ERR_DATA, "group 1 is -1");
    REFUSED(rows, a.groups = most, DRO_ERR_DATA, "group 0 is 2147483647");
    REFUSED(rows, a.weights = bad_x, DRO_ERR_DATA, "weight 1 is nan");
    REFUSED(rows, (a.labels = NULL, a.targets = bad_x), DRO_ERR_DATA, "target 1 is not finite");
    REFUSED(rows, a.class_names = names, DRO_ERR_ARGUMENT, "the number of classes");
    REFUSED(image, a.channels = 0, DRO_ERR_ARGUMENT, "1 to 3 channels");
    REFUSED(image, a.channels = 4, DRO_ERR_ARGUMENT, "1 to 3 channels");
    REFUSED(image, a.height = 0, DRO_ERR_ARGUMENT, "1 to 3 channels");
    REFUSED(image, a.width = 0, DRO_ERR_ARGUMENT, "1 to 3 channels");
    REFUSED(sparse, a.values = NULL, DRO_ERR_ARGUMENT, "columns and values");
    REFUSED(sparse, a.starts = late, DRO_ERR_ARGUMENT, "begin with 0");
    REFUSED(sparse, a.starts = back, DRO_ERR_DATA, "row 1 ends before it starts");
    REFUSED(sparse, a.values = bad_x, DRO_ERR_DATA, "row 1, column 1 is not finite");
    a = image, a.width = 2;
    refused_arrays(&image, &a, DRO_ERR_ARGUMENT, "same shape");
    a = image, a.height = 2;
    refused_arrays(&image, &a, DRO_ERR_ARGUMENT, "same shape");
    a = image, a.channels = 2;
    refused_arrays(&image, &a, DRO_ERR_ARGUMENT, "same shape");
    a = rows, a.groups = labels;
    refused_arrays(&rows, &a, DRO_ERR_ARGUMENT, "same shape");
    refused_arrays(&rows, &sparse, DRO_ERR_ARGUMENT, "same shape");
    a = rows, a.count = 0;
    refused_arrays(&rows, &a, DRO_ERR_ARGUMENT, "count examples");
    a = rows, a.size = 1;
    refused_arrays(&rows, &a, DRO_ERR_ARGUMENT, "dro_arrays");
}

/* Nothing where a run or its settings should be. */
static void test_train(void **state)
{
    (void)state;
    dro_train *train;
    dro_settings *settings, *copy;
    dro_setting setting;
    dro_recipe recipe;
    dro_default fallback;
    const char *name, *value;
    char text[64];
    ARGUMENT(dro_train_create(NULL, &train));
    ARGUMENT(dro_train_create(ctx, NULL));
    ARGUMENT(dro_train_set(NULL, "epochs", "1"));
    ARGUMENT(dro_train_get(NULL, "epochs", text, sizeof text));
    ARGUMENT(dro_train_run(NULL, dir, false, NULL));
    ARGUMENT(dro_train_use(NULL, NULL));
    assert_null(dro_train_last(NULL));
    assert_null(dro_train_data(NULL));
    assert_null(dro_train_config(NULL));
    assert_null(dro_train_result(NULL));
    assert_int_equal(dro_train_ended(NULL), DRO_TRAIN_NOT_ENDED);
    OK(ctx, dro_train_create(ctx, &train));
    assert_null(dro_train_last(train));
    assert_null(dro_train_data(train));
    ARGUMENT(dro_train_set(train, NULL, "1"));
    ARGUMENT(dro_train_get(train, NULL, text, sizeof text));
    ARGUMENT(dro_train_get(train, "epochs", NULL, 9));
    ARGUMENT(dro_train_use(train, NULL));
    dro_train_destroy(train);
    dro_train_destroy(NULL);
    ARGUMENT(dro_settings_create(NULL, &settings));
    ARGUMENT(dro_settings_create(ctx, NULL));
    ARGUMENT(dro_settings_copy(NULL, &copy));
    ARGUMENT(dro_settings_set(NULL, "epochs", "1"));
    ARGUMENT(dro_settings_check(NULL));
    assert_false(dro_settings_given(NULL, "epochs"));
    OK(ctx, dro_settings_create(ctx, &settings));
    ARGUMENT(dro_settings_copy(settings, NULL));
    ARGUMENT(dro_settings_set(settings, NULL, "1"));
    assert_false(dro_settings_given(settings, NULL));
    assert_int_not_equal(dro_settings_item(settings, 0, &name, &value), DRO_OK);
    assert_int_not_equal(dro_settings_item(settings, -1, &name, &value), DRO_OK);
    OK(ctx, dro_settings_set(settings, "epochs", "1"));
    OK(ctx, dro_settings_item(settings, 0, &name, &value));
    assert_string_equal(name, "epochs");
    OK(ctx, dro_settings_set(settings, "epochs", NULL));
    assert_false(dro_settings_given(settings, "epochs"));
    FAILS(ctx, dro_settings_set(settings, "reg", "none:2"), DRO_ERR_RANGE, "has no strength");
    FAILS(ctx, dro_settings_set(settings, "reg", "l3:2"), DRO_ERR_RANGE, "l2");
    FAILS(ctx, dro_settings_set(settings, "reg", "l2:x"), DRO_ERR_RANGE, "x");
    dro_settings_destroy(settings);
    dro_settings_destroy(NULL);
    ARGUMENT(dro_setting_at(-1, &setting));
    ARGUMENT(dro_setting_at(0, NULL));
    assert_int_equal(dro_setting_at(10000, &setting), DRO_ERR_END);
    assert_int_not_equal(dro_recipe_setting(-1, &recipe), DRO_OK);
    assert_int_not_equal(dro_recipe_setting(10000, &recipe), DRO_OK);
    assert_int_not_equal(dro_train_default(-1, &fallback), DRO_OK);
    assert_int_not_equal(dro_train_default(10000, &fallback), DRO_OK);
    assert_null(dro_setting_name(NULL));
    assert_false(dro_setting_known(NULL, "epochs"));
    assert_false(dro_setting_known("sgd", NULL));
    assert_false(dro_setting_known("sgd", "colour"));
}

/* The same of a predictor, and of one that has no classes, images or groups. */
static void test_no_predictor(void **state)
{
    (void)state;
    dro_predictor *p;
    dro_examples examples;
    dro_cells *cells;
    dro_thumbnail picture;
    const dro_metrics *m;
    const dro_explanation *e;
    float logits[8] = {0};
    double shares[8];
    int32_t class_;
    const char table[] = "a,y\n1,2\n3,5\n2,3\n4,9\n5,11\n";
    write_file("t.csv", table, sizeof table - 1);
    char spec[300];
    snprintf(spec, sizeof spec, "csv:%s,label=y,target=real", in_dir("t.csv"));
    const char *weights = trained("real", spec);
    ARGUMENT(dro_predictor_open(NULL, weights, spec, &p));
    ARGUMENT(dro_predictor_open(ctx, weights, NULL, &p));
    ARGUMENT(dro_predictor_open(ctx, weights, spec, NULL));
    ARGUMENT(dro_predictor_logits(NULL, DRO_TRAIN, 0, 1, logits, NULL));
    ARGUMENT(dro_predictor_probabilities(NULL, 1, logits, shares));
    ARGUMENT(dro_predictor_decide(NULL, logits, shares, &class_));
    ARGUMENT(dro_predictor_prior(NULL, "train"));
    ARGUMENT(dro_predictor_threshold(NULL, DRO_TRAIN, "f1", NULL, false));
    ARGUMENT(dro_predictor_examples(NULL, DRO_TRAIN, &examples));
    ARGUMENT(dro_predictor_evaluate(NULL, DRO_TRAIN, &m));
    ARGUMENT(dro_predictor_explain(NULL, DRO_TRAIN, "mean", "example", &e));
    ARGUMENT(dro_predictor_thumbnail(NULL, DRO_TRAIN, 0, &picture));
    ARGUMENT(dro_predictor_cells(NULL, DRO_TRAIN, &(int64_t){0}, 1, 1, &cells));
    dro_cells_free(NULL);
    assert_null(dro_predictor_data(NULL));
    assert_null(dro_predictor_skipped(NULL, 0));
    assert_null(dro_predictor_remark(NULL, 0));
    assert_null(dro_predictor_model(NULL));
    assert_null(dro_predictor_loss(NULL));
    assert_null(dro_predictor_class_name(NULL, 0));
    assert_int_equal(dro_predictor_classes(NULL), 0);
    assert_null(dro_predictor_threshold_get(NULL).class_name);
    OK(ctx, dro_predictor_open(ctx, weights, spec, &p));
    assert_int_equal(dro_predictor_classes(p), 0);
    assert_null(dro_predictor_class_name(p, 0));
    assert_null(dro_predictor_class_name(p, -1));
    ARGUMENT(dro_predictor_logits(p, (dro_split)-1, 0, 1, logits, NULL));
    ARGUMENT(dro_predictor_logits(p, DRO_SPLITS, 0, 1, logits, NULL));
    ARGUMENT(dro_predictor_logits(p, DRO_TRAIN, -1, 1, logits, NULL));
    ARGUMENT(dro_predictor_logits(p, DRO_TRAIN, 0, 1, NULL, NULL));
    ARGUMENT(dro_predictor_evaluate(p, DRO_TRAIN, NULL));
    ARGUMENT(dro_predictor_evaluate(p, (dro_split)-1, &m));
    ARGUMENT(dro_predictor_evaluate(p, DRO_SPLITS, &m));
    ARGUMENT(dro_predictor_explain(p, DRO_TRAIN, NULL, "example", &e));
    ARGUMENT(dro_predictor_explain(p, DRO_TRAIN, "mean", NULL, &e));
    ARGUMENT(dro_predictor_explain(p, DRO_TRAIN, "mean", "example", NULL));
    ARGUMENT(dro_predictor_explain(p, (dro_split)-1, "mean", "example", &e));
    ARGUMENT(dro_predictor_explain(p, DRO_SPLITS, "mean", "example", &e));
    assert_int_not_equal(dro_predictor_explain(p, DRO_TRAIN, "mean", "class", &e), DRO_OK);
    assert_int_not_equal(dro_predictor_explain(p, DRO_TRAIN, "mean", "group", &e), DRO_OK);
    assert_int_not_equal(dro_predictor_evaluate(p, DRO_HOLDOUT, &m), DRO_OK);
    ARGUMENT(dro_predictor_thumbnail(p, DRO_TRAIN, 0, NULL));
    ARGUMENT(dro_predictor_cells(p, DRO_TRAIN, &(int64_t){0}, 1, 1, NULL));
    ARGUMENT(dro_predictor_cells(p, DRO_TRAIN, NULL, 1, 1, &cells));
    ARGUMENT(dro_predictor_cells(p, DRO_SPLITS, &(int64_t){0}, 1, 1, &cells));
    ARGUMENT(dro_predictor_thumbnail(p, (dro_split)-1, 0, &picture));
    ARGUMENT(dro_predictor_thumbnail(p, DRO_SPLITS, 0, &picture));
    assert_int_not_equal(dro_predictor_thumbnail(p, DRO_TRAIN, -1, &picture), DRO_OK);
    assert_int_not_equal(dro_predictor_thumbnail(p, DRO_TRAIN, 1000, &picture), DRO_OK);
    FAILS(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 0, &picture), DRO_ERR_UNSUPPORTED, "");
    ARGUMENT(dro_predictor_probabilities(p, 1, logits, shares));
    assert_int_not_equal(dro_predictor_threshold(p, DRO_TRAIN, "f1", NULL, false), DRO_OK);
    dro_predictor_close(p);
    dro_predictor_close(NULL);
}

/* Rules of a threshold that make no sense, and some that do. */
static void test_thresholds(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",           "f2",      "recall:",  "recall:0", "recall:1.1", "recall:x",
        "cost:1",     "cost:1:", "cost:0:1", "cost:1:0", "cost:x:1",   "cost:1:x",
        "cost:1:inf", "0",       "1.5",      "nan",      "0.5x"};
    static const char *const right[] = {"f1", "recall:0.5", "cost:5:1", "0.25"};
    const char *weights = trained("three", GLYPHS "3");
    dro_predictor *p;
    OK(ctx, dro_predictor_open(ctx, weights, GLYPHS "3", &p));
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        if (dro_predictor_threshold(p, DRO_TEST, wrong[k], NULL, false) == DRO_OK)
            fail_msg("'%s' is a rule", wrong[k]);
        assert_null(dro_predictor_threshold_get(p).class_name);
    }
    ARGUMENT(dro_predictor_threshold(p, DRO_TEST, NULL, NULL, false));
    ARGUMENT(dro_predictor_threshold(p, (dro_split)-1, "f1", NULL, false));
    ARGUMENT(dro_predictor_threshold(p, DRO_SPLITS, "f1", NULL, false));
    assert_int_not_equal(dro_predictor_threshold(p, DRO_HOLDOUT, "f1", NULL, false), DRO_OK);
    assert_int_not_equal(dro_predictor_threshold(p, DRO_TEST, "f1", "nobody", false), DRO_OK);
    for (size_t k = 0; k < sizeof right / sizeof right[0]; k++) {
        OK(ctx, dro_predictor_threshold(p, DRO_TEST, right[k], k % 2 ? "1" : NULL, false));
        dro_threshold t = dro_predictor_threshold_get(p);
        assert_string_equal(t.rule, right[k]);
        assert_true(t.probability > 0 && t.probability <= 1);
    }
    OK(ctx, dro_predictor_threshold(p, DRO_TEST, "none", NULL, false));
    assert_null(dro_predictor_threshold_get(p).class_name);
    dro_predictor_close(p);
}

/* After a failure, a call that succeeds leaves no error text. */
#define CLEAN(call)                                                                                \
    do {                                                                                           \
        FAILS(ctx, dro_data_open(ctx, "nonsense:x", &(dro_data *){NULL}), DRO_ERR_NAME,            \
              "nonsense");                                                                         \
        OK(ctx, call);                                                                             \
        assert_string_equal(dro_context_error(ctx), "");                                           \
    } while (0)

static void test_no_error(void **state)
{
    (void)state;
    static float w[32];
    char text[64];
    const dro_metrics *m;
    dro_data *data;
    dro_data_info info;
    dro_examples examples;
    dro_loader *loader;
    dro_loaded loaded;
    dro_train *train;
    dro_optimizer *opt;
    dro_predictor *p;
    dro_report *report;
    toy t = {0};
    dro_problem problem = toy_problem(&t);
    dro_loader_options options = dro_loader_options_default();
    options.batch = 10;
    CLEAN(dro_data_open(ctx, GLYPHS "3", &data));
    CLEAN(dro_data_info_get(data, &info));
    CLEAN(dro_data_examples(data, DRO_TRAIN, &examples));
    CLEAN(dro_loader_create(data, DRO_TRAIN, &options, &loader));
    CLEAN(dro_loader_draw(loader, 0, &loaded));
    CLEAN(dro_loader_gather(loader, loaded.ids, 2, &loaded));
    dro_loader_destroy(loader);
    dro_data_close(data);
    CLEAN(dro_optimizer_create(ctx, "recover", &problem, &opt));
    CLEAN(dro_optimizer_set(opt, "eta", "0.1"));
    CLEAN(dro_optimizer_set_real(opt, "eta", 0.2));
    CLEAN(dro_optimizer_get(opt, "eta", text, sizeof text));
    CLEAN(dro_optimizer_start(opt, NULL));
    CLEAN(dro_optimizer_step(opt));
    CLEAN(dro_optimizer_weights(opt, w));
    dro_optimizer_destroy(opt);
    const char *weights = trained("clean", GLYPHS "3");
    char folder[120];
    snprintf(folder, sizeof folder, "%s/clean again", dir);
    CLEAN(dro_train_create(ctx, &train));
    CLEAN(dro_train_set(train, "data", GLYPHS "3"));
    CLEAN(dro_train_set(train, "epochs", "1"));
    CLEAN(dro_train_get(train, "epochs", text, sizeof text));
    CLEAN(dro_train_run(train, folder, false, NULL));
    CLEAN(dro_train_run(train, folder, true, NULL));
    dro_train_destroy(train);
    CLEAN(dro_predictor_open(ctx, weights, GLYPHS "3", &p));
    CLEAN(dro_predictor_evaluate(p, DRO_TEST, &m));
    dro_predictor_close(p);
    CLEAN(dro_report_create(ctx, &report));
    CLEAN(dro_report_add(report, folder));
    dro_report_destroy(report);
}

/* Structs that users fill say how large they are: those of older headers are taken, those of newer
 * ones refused. */
static void test_sizes(void **state)
{
    (void)state;
    dro_optimizer *opt;
    toy t = {0};
    dro_problem p = toy_problem(&t);
    p.size = 0;
    FAILS(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt), DRO_ERR_ARGUMENT, "sizeof(dro_problem)");
    p.size = sizeof p + 8;
    FAILS(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt), DRO_ERR_ARGUMENT, "sizeof(dro_problem)");
    p.size = offsetof(dro_problem, library); /* what lies behind is not looked at */
    p.library = (const void *)&t;
    OK(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt));
    assert_null(opt->able.full);
    dro_optimizer_destroy(opt);
    dro_train *train;
    dro_train_watch watch = {0};
    OK(ctx, dro_train_create(ctx, &train));
    OK(ctx, dro_train_set(train, "data", GLYPHS "3"));
    FAILS(ctx, dro_train_run(train, NULL, false, &watch), DRO_ERR_ARGUMENT, "dro_train_watch");
    dro_train_destroy(train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predictor),  cmocka_unit_test(test_sparse_predictor),
        cmocka_unit_test(test_report),     cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_again),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_rest),       cmocka_unit_test(test_no_error),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_data),
        cmocka_unit_test(test_loader),     cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_train),      cmocka_unit_test(test_no_predictor),
        cmocka_unit_test(test_thresholds),
    };
    return cmocka_run_group_tests(tests, setup_train, teardown);
}
