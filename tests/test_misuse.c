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
    assert_null(dro_report_note(NULL, 0));
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
        cmocka_unit_test(test_predictor), cmocka_unit_test(test_sparse_predictor),
        cmocka_unit_test(test_report),    cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_again),     cmocka_unit_test(test_many),
        cmocka_unit_test(test_rest),      cmocka_unit_test(test_no_error),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, setup_train, teardown);
}
