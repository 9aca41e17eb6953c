/* Predictors: weights files whose description is wrong, data that does not fit the weights, class
 * shares and thresholds, example weights, and what an export says of each kind of layer. */
#define _GNU_SOURCE /* memmem */
#include "train_runs.h"

#include <dro/export.h>
#include <dro/net.h>
#include <dro/train.h>

#include "safetensors.h"

static const char *weights_of(const char *run)
{
    static char paths[2][200];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s/weights.safetensors", dir, run);
    return path;
}

/* A SPEC with the folder in place of %. */
static const char *in_folder(const char *spec)
{
    static char text[400];
    const char *at = strchr(spec, '%');
    snprintf(text, sizeof text, "%.*s%s%s", at ? (int)(at - spec) : (int)strlen(spec), spec,
             at ? dir : "", at ? at + 1 : "");
    return text;
}

/* Trains a few steps: settings "name=value ...", where % is the folder. */
static void train(const char *run, const char *settings)
{
    char text[600], folder[200];
    dro_train *t;
    snprintf(text, sizeof text, "%s", in_folder(settings));
    snprintf(folder, sizeof folder, "%s/%s", dir, run);
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, text);
    OK(ctx, dro_train_run(t, folder, false, NULL));
    dro_train_destroy(t);
}

static void refuses_to_open(const char *weights, const char *spec, dro_status status,
                            const char *says)
{
    dro_predictor *p = (dro_predictor *)&p;
    FAILS(ctx, dro_predictor_open(ctx, weights, in_folder(spec), &p), status, says);
    assert_null(p);
}

/* 60 rows; w.csv has weights 0, 1 and 2, again.csv each row as often as its weight says. */
static void write_tables(void)
{
    FILE *t = fopen(in_dir("t.csv"), "w"), *w = fopen(in_dir("w.csv"), "w");
    FILE *again = fopen(in_dir("again.csv"), "w"), *three = fopen(in_dir("three.csv"), "w");
    FILE *rows = fopen(in_dir("t.svm"), "w"), *few = fopen(in_dir("few.svm"), "w");
    FILE *none = fopen(in_dir("bare.csv"), "w");
    assert_true(t && w && again && three && rows && few && none);
    fputs("a,b,y\n", t);
    fputs("a,b,y,w\n", w);
    fputs("a,b,y,w\n", again);
    fputs("a,b,y\n", three);
    for (int i = 0; i < 60; i++) {
        double a = sin(i * i), b = cos(3.0 * i);
        const char *y = a + 0.5 * b > 0.4 ? "yes" : "no";
        fprintf(t, "%g,%g,%s\n", a, b, y);
        fprintf(w, "%g,%g,%s,%d\n", a, b, y, i % 3);
        for (int k = 0; k < i % 3; k++)
            fprintf(again, "%g,%g,%s,1\n", a, b, y);
        fprintf(three, "%g,%g,%c\n", a, b, i % 7 == 0 ? 'r' : 's' + i % 2);
        fprintf(rows, "%s 1:%g 4999:1\n", *y == 'y' ? "+1" : "-1", a);
        fprintf(few, "%s 1:%g 2:%g\n", *y == 'y' ? "+1" : "-1", a, 5 * b);
        fprintf(none, "%g,%g,%s\n", a, b, y);
    }
    fclose(t);
    fclose(w);
    fclose(again);
    fclose(three);
    fclose(rows);
    fclose(few);
    fclose(none);
}

#define TRAINED " model=linear optimizer=sgd steps=3 batch=16 eval_every=100"

/* ---- the description of the model ---- */

static void test_metadata(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"dro.model", NULL, "does not name its model: expected a file written by dro train"},
        {"dro.shape", NULL, "does not name its model: expected a file written by dro train"},
        {"dro.shape", "2,1,1", "does not name its model: expected a file written by dro train"},
        {"dro.kind", NULL, "does not name its model: expected a file written by dro train"},
        {"dro.classes", NULL, "does not name its model: expected a file written by dro train"},
        {"dro.classes", "{}", "its metadata dro.classes is not a list"},
        {"dro.classes", "[", "its metadata dro.classes is not a list"},
        {"dro.classes", "[\"no\"]", "has 2 outputs and the names of 1 classes: expected one"},
        {"dro.classes", "[]", "has 2 outputs and the names of 0 classes: expected one"},
        {"dro.shape", "2,1,1,3", "has 3 outputs and the names of 2 classes: expected one"},
        {"dro.prior", "[0.5]", "its metadata dro.prior is not one number a class"},
        {"dro.prior", "[0.5,\"a\"]", "its metadata dro.prior is not one number a class"},
        {"dro.prior", "0.5", "its metadata dro.prior is not one number a class"},
        {"dro.prior_shift", "[0,0,0]", "its metadata dro.prior_shift is not one number a class"},
        {"dro.threshold", "x", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "0.5", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "0.5 1", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "0 1 f1", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "1.5 1 f1", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "0.5 -1 f1", "its metadata dro.threshold is damaged"},
        {"dro.threshold", "0.5 2 f1", "its metadata dro.threshold is damaged"},
    };
    const char *spec = "csv:%/t.csv,label=y";
    write_tables();
    train("run", "data=csv:%/t.csv,label=y" TRAINED);
    size_t size;
    char *right = slurp("run", "weights.safetensors", &size);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        write_file("run/weights.safetensors", right, size);
        OK(ctx, dro__safetensors_set(ctx, weights_of("run"), cases[k][0], cases[k][1]));
        refuses_to_open(weights_of("run"), spec, DRO_ERR_DATA, cases[k][2]);
    }
    /* Without a loss it is cross-entropy. */
    const dro_metrics *m;
    double loss[2];
    for (int k = 0; k < 2; k++) {
        dro_predictor *p;
        write_file("run/weights.safetensors", right, size);
        if (k)
            OK(ctx, dro__safetensors_set(ctx, weights_of("run"), "dro.loss", NULL));
        OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder(spec), &p));
        OK(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m));
        loss[k] = m->loss;
        dro_predictor_close(p);
    }
    assert_true(loss[0] == loss[1]);
    /* One name of a class that is no text, and a file of a version that kept no shares. */
    dro_predictor *p;
    write_file("run/weights.safetensors", right, size);
    OK(ctx, dro__safetensors_set(ctx, weights_of("run"), "dro.classes", "[\"no\", 7]"));
    OK(ctx, dro__safetensors_set(ctx, weights_of("run"), "dro.prior", NULL));
    OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder(spec), &p));
    FAILS(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m), DRO_ERR_DATA,
          "the data has a class 'yes', which the model does not know");
    FAILS(ctx, dro_predictor_prior(p, "uniform"), DRO_ERR_DATA,
          "prior uniform: the weights file does not have the classes' shares");
    OK(ctx, dro_predictor_prior(p, "train"));
    dro_predictor_close(p);
    dro__free(right);
}

/* ---- data that is not like the training data ---- */

#define GLYPHS(more) "synth:glyphs,n=40,test=9,classes=3" more

static void test_shapes(void **state)
{
    (void)state;
    static const char images[] = "images", linear[] = "linear", sparse[] = "sparse";
    static const char *const cases[][3] = {
        {images, GLYPHS(",size=10"),
         "the weights are for images of 3 x 12 x 12, the data has 3 x 10"},
        {images, "csv:%/t.csv,label=y",
         "for images of 3 x 12 x 12, the data has rows of 2 features"},
        {linear, GLYPHS(",size=12"), "the weights are for rows of 2 features, the data has images"},
        {linear, "libsvm:%/t.svm,features=4999",
         "are for rows of 2 features, the data has rows of"},
        {sparse, "csv:%/t.csv,label=y", "the weights are for sparse rows of 4999 features"},
        {"signs", "libsvm:%/t.svm,features=4999",
         "is for a real-valued target, the data has classes"},
        {"real", "csv:%/t.csv,label=y", "column 'y': 'yes': expected a finite number"},
        {linear, "csv:%/t.csv,label=a,target=real",
         "the label is column 'a', which is a feature of the model: expected label=y"},
    };
    write_tables();
    train(images, "data=" GLYPHS(",size=12") " model=mlp:4 steps=2 batch=8");
    train(linear, "data=csv:%/t.csv,label=y" TRAINED);
    train(sparse, "data=libsvm:%/t.svm,features=4999" TRAINED);
    train("signs", "data=libsvm:%/t.svm,features=4999,target=real" TRAINED);
    train("real", "data=csv:%/t.csv,label=a,target=real,drop=y" TRAINED);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_predictor *p;
        if (dro_predictor_open(ctx, weights_of(cases[k][0]), in_folder(cases[k][1]), &p) == DRO_OK)
            fail_msg("%s, %s was accepted", cases[k][0], cases[k][1]);
        if (!strstr(dro_context_error(ctx), cases[k][2]))
            fail_msg("%s, %s: '%s' does not say '%s'", cases[k][0], cases[k][1],
                     dro_context_error(ctx), cases[k][2]);
    }
}

/* A name of data that is longer than any path. */
static void test_long_names(void **state)
{
    (void)state;
    static char spec[20000] = "csv:";
    dro_data *data;
    dro_predictor *p;
    memset(spec + 4, 'x', sizeof spec - 5);
    FAILS(ctx, dro_data_open(ctx, spec, &data), DRO_ERR_RANGE, "the SPEC is longer than 4095");
    train("run", "data=" GLYPHS(",size=12") " model=mlp:2 steps=1 batch=8");
    FAILS(ctx, dro_predictor_open(ctx, weights_of("run"), spec, &p), DRO_ERR_RANGE,
          "the SPEC is longer than 4095");
}

/* ---- class shares and thresholds ---- */

static void test_prior(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"yes,0.5\n", "has no line for the class 'no'"},
        {"yes,0.5\nno\n", "line 2: expected NAME,SHARE with a share above 0"},
        {"yes,0.5\nno,x\n", "line 2: expected NAME,SHARE with a share above 0"},
        {"yes,0.5\nno,1 2\n", "line 2: expected NAME,SHARE with a share above 0"},
        {"yes,0\nno,1\n", "line 1: expected NAME,SHARE with a share above 0"},
        {"yes,inf\nno,1\n", "line 1: expected NAME,SHARE with a share above 0"},
        {"yes,nan\nno,1\n", "line 1: expected NAME,SHARE with a share above 0"},
        {"\nyes,1\nmaybe,1\n", "line 3: the model has no class 'maybe'"},
        {",1\n", "line 1: the model has no class ''"},
    };
    dro_predictor *p;
    write_tables();
    train("run", "data=csv:%/t.csv,label=y" TRAINED);
    OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder("csv:%/t.csv,label=y"), &p));
    assert_false(dro_predictor_shifted(p));
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        write_file("prior.csv", cases[k][0], strlen(cases[k][0]));
        FAILS(ctx, dro_predictor_prior(p, in_dir("prior.csv")), DRO_ERR_DATA, cases[k][1]);
    }
    FAILS(ctx, dro_predictor_prior(p, in_dir("none.csv")), DRO_ERR_FILE, "none.csv");
    write_file("prior.csv", "yes,3\r\n\r\nno,1\r\n", 15);
    OK(ctx, dro_predictor_prior(p, in_dir("prior.csv")));
    assert_true(dro_predictor_shifted(p));
    OK(ctx, dro_predictor_prior(p, "train"));
    assert_false(dro_predictor_shifted(p));
    dro_predictor_close(p);
    train("real", "data=csv:%/t.csv,label=a,target=real,drop=y" TRAINED);
    const char *spec = "csv:%/t.csv,label=a,target=real,drop=y";
    OK(ctx, dro_predictor_open(ctx, weights_of("real"), in_folder(spec), &p));
    FAILS(ctx, dro_predictor_prior(p, "uniform"), DRO_ERR_ARGUMENT,
          "prior uniform: the model has a real-valued output");
    FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, "f1", NULL, false), DRO_ERR_ARGUMENT,
          "threshold: the model has a real-valued output");
    dro_predictor_close(p);
}

static void test_threshold(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",           "f2",       "recall:",   "recall:0",
                                        "recall:2",   "cost:1",   "cost:1:",   "cost:x:1",
                                        "cost:0:1",   "cost:1:0", "cost:1:1x", "cost:inf:1",
                                        "cost:1:inf", "0",        "1.5",       "0.5x"};
    dro_predictor *p;
    write_tables();
    train("run", "data=csv:%/three.csv,label=y" TRAINED);
    const char *spec = "csv:%/three.csv,label=y";
    OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder(spec), &p));
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++)
        FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, wrong[k], NULL, false), DRO_ERR_RANGE,
              ": expected f1, recall:R, cost:A:B");
    char precise[100] = "0.5";
    memset(precise + 3, '0', sizeof precise - 4);
    FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, precise, NULL, false), DRO_ERR_RANGE,
          ": expected f1, recall:R, cost:A:B");
    FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, "f1", "q", false), DRO_ERR_NAME,
          "threshold: the model has no class 'q'");
    OK(ctx, dro_predictor_threshold(p, DRO_TRAIN, "recall:0.9", NULL, false));
    assert_string_equal(dro_predictor_threshold_get(p).class_name, "r"); /* the rarest */
    assert_true(dro_predictor_threshold_get(p).recall >= 0.9);
    OK(ctx, dro_predictor_threshold(p, DRO_TRAIN, "none", NULL, false));
    const float logits[3] = {0, 0, 1};
    double shares[3];
    int32_t class;
    OK(ctx, dro_predictor_decide(p, logits, shares, &class));
    assert_true(class == 2 && fabs(shares[0] + shares[1] + shares[2] - 1) < 1e-12);
    assert_int_equal(dro_predictor_decide(p, NULL, shares, &class), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_predictor_decide(p, logits, NULL, &class), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_predictor_decide(p, logits, shares, NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_predictor_probabilities(p, 1, logits, NULL), DRO_ERR_ARGUMENT);
    assert_null(dro_predictor_threshold_get(p).class_name);
    dro_predictor_close(p);
    OK(ctx, dro__safetensors_set(ctx, weights_of("run"), "dro.prior", NULL));
    OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder(spec), &p));
    FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, "f1", NULL, false), DRO_ERR_ARGUMENT,
          "no class shares to find the rarest class: name the class");
    write_file("two.csv", "a,b,y\n1,2,s\n2,1,t\n", 18);
    OK(ctx, dro_predictor_threshold(p, DRO_TRAIN, "cost:5:1", "t", true));
    assert_string_equal(dro_predictor_threshold_get(p).class_name, "t");
    dro_predictor_close(p);
    OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder("csv:%/two.csv,label=y"), &p));
    FAILS(ctx, dro_predictor_threshold(p, DRO_TRAIN, "f1", "r", false), DRO_ERR_DATA,
          "threshold: there are no examples of class 'r' to choose it by");
    dro_predictor_close(p);
}

/* ---- example weights: the same as repeated rows ---- */

static void same(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(a)))
        fail_msg("%.17g instead of %.17g", b, a);
}

static void test_weights(void **state)
{
    (void)state;
    static const char *const objectives[] = {"kl:1", "cvar:0.2", "chi2:0.5", "mean"};
    dro_predictor *p[2];
    const dro_metrics *m;
    const dro_explanation *e;
    write_tables();
    train("run", "data=csv:%/w.csv,label=y,weight=w" TRAINED);
    for (int k = 0; k < 2; k++) {
        const char *spec = k ? "csv:%/again.csv,label=y,weight=w" : "csv:%/w.csv,label=y,weight=w";
        OK(ctx, dro_predictor_open(ctx, weights_of("run"), in_folder(spec), &p[k]));
    }
    for (size_t o = 0; o < sizeof objectives / sizeof objectives[0]; o++) {
        double value[2];
        for (int k = 0; k < 2; k++) {
            OK(ctx, dro_predictor_explain(p[k], DRO_TRAIN, objectives[o], "example", &e));
            value[k] = e->value;
            for (int64_t i = 0; k == 0 && i < 60; i += 3) /* of weight 0 */
                assert_true(e->weights[i] == 0);
        }
        same(value[1], value[0]);
    }
    double loss[2], accuracy[2];
    dro_threshold t[2];
    for (int k = 0; k < 2; k++) {
        OK(ctx, dro_predictor_evaluate(p[k], DRO_TRAIN, &m));
        loss[k] = m->loss, accuracy[k] = m->accuracy;
        OK(ctx, dro_predictor_threshold(p[k], DRO_TRAIN, "f1", "yes", false));
        t[k] = dro_predictor_threshold_get(p[k]);
    }
    same(loss[1], loss[0]);
    same(accuracy[1], accuracy[0]);
    same(t[1].probability, t[0].probability);
    same(t[1].f1, t[0].f1);
    dro_predictor_close(p[0]);
    dro_predictor_close(p[1]);
}

/* ---- images in files ---- */

/* Eight grey images of a class, width x height; `bad`: the last one is cut off. */
static void write_class(const char *folder, int width, int height, bool bad)
{
    char name[100], head[40];
    uint8_t bytes[40 + 300 * 20];
    snprintf(name, sizeof name, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
    mkdir(in_dir(name), 0777);
    mkdir(in_dir(folder), 0777);
    for (int k = 0; k < 8; k++) {
        size_t used = (size_t)snprintf(head, sizeof head, "P5 %d %d 255\n", width, height);
        memcpy(bytes, head, used);
        for (int i = 0; i < width * height; i++)
            bytes[used++] = (uint8_t)(i * (k + 3) + 100 * (folder[strlen(folder) - 1] == 'b'));
        snprintf(name, sizeof name, "%s/%d.pgm", folder, k);
        write_file(name, bytes, bad && k == 7 ? used - 5 : used);
    }
}

static void test_image_files(void **state)
{
    (void)state;
    dro_predictor *p;
    const dro_explanation *e;
    const dro_metrics *m;
    static dro_thumbnail small;
    write_class("img/a", 12, 9, false);
    write_class("img/b", 12, 9, false);
    write_class("long/a", 300, 2, false);
    write_class("long/b", 300, 1, true);
    /* Their own size, as arrays; so are the images that are predicted. */
    train("arrays", "data=images:%/img steps=1 batch=4");
    OK(ctx,
       dro_predictor_open(ctx, weights_of("arrays"), in_folder("images:%/long,skip_bad=1"), &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m));
    assert_int_equal(m->examples, 15); /* the bad one was left out when they were read */
    OK(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 0, &small));
    assert_true(small.width == 9 && small.height == 9);
    dro_predictor_close(p);
    train("grey", "data=images:%/img,channels=1,size=10 model=mlp:2 steps=1 batch=4");
    OK(ctx, dro_predictor_open(ctx, weights_of("grey"), in_folder("images:%/img"), &p));
    OK(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 3, &small));
    assert_true(small.width == 10 && small.height == 10);
    assert_true(small.rgb[30] == small.rgb[31] && small.rgb[30] == small.rgb[32]);
    dro_predictor_close(p);
    refuses_to_open(weights_of("grey"), GLYPHS(",size=10"), DRO_ERR_DATA,
                    "the weights are for images of 1 x 10 x 10, the data has 3 x 10 x 10");
    dro_train *t;
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, "optimizer=sgd model=mlp:2 size=97 batch=8 exact=yes");
    OK(ctx, dro_train_set(t, "data", in_folder("images:%/img,skip_bad=1")));
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_UNSUPPORTED,
          "exact=yes with skip_bad: each rank counts the bad images that it reads itself");
    dro_train_destroy(t);
    /* A model for images that stay in their files. */
    train("files", "data=images:%/img model=mlp:2 size=97 steps=1 batch=4 eta=1e-4");
    refuses_to_open(weights_of("files"), "images:%/img,size=97", DRO_ERR_ARGUMENT,
                    "was trained on images cut from their files: leave out size=");
    OK(ctx,
       dro_predictor_open(ctx, weights_of("files"), in_folder("images:%/long,skip_bad=1"), &p));
    OK(ctx, dro_predictor_explain(p, DRO_TRAIN, "kl:1", "example", &e));
    assert_true(isnan(e->losses[15]) && e->weights[15] == 0 && e->order[15] == 15);
    assert_true(isfinite(e->losses[14]) && e->weights[14] > 0);
    OK(ctx, dro_predictor_threshold(p, DRO_TRAIN, "f1", "b", false));
    OK(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 0, &small));
    assert_true(small.width == 96 && small.height == 1);
    FAILS(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 15, &small), DRO_ERR_DATA, "7.pgm");
    FAILS(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 16, &small), DRO_ERR_RANGE,
          "example 16: there are 16");
    assert_int_equal(remove(in_dir("long/a/2.pgm")), 0);
    FAILS(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 2, &small), DRO_ERR_FILE, "2.pgm");
    dro_predictor_close(p);
    write_tables();
    train("rows", "data=csv:%/t.csv,label=y" TRAINED);
    OK(ctx, dro_predictor_open(ctx, weights_of("rows"), in_folder("csv:%/t.csv,label=y"), &p));
    FAILS(ctx, dro_predictor_thumbnail(p, DRO_TRAIN, 0, &small), DRO_ERR_UNSUPPORTED,
          "the data has no images");
    dro_predictor_close(p);
}

/* ---- exports ---- */

static void has_all(const char *name, const char *const *words)
{
    size_t size;
    char *text = slurp(".", name, &size);
    for (; *words; words++)
        if (!memmem(text, size, *words, strlen(*words)))
            fail_msg("%s: no %s", name, *words);
    dro__free(text);
}

/* The model with the most kinds of layers, untrained. */
static inline void export_inception(void)
{
    static const char *const about[] = {
        "dro.model", "inception_v3", "dro.shape", "3,75,75,3",   "dro.kind",
        "network",   "dro.scale",    "1,1,1",     "dro.classes", "[\"a\",\"b\",\"c\"]",
        "dro.shift", "0,0,0",        NULL};
    static const char *const onnx[] = {"MaxPool", "AveragePool", "Concat", NULL};
    static const char *const torch[] = {"F.max_pool2d(", "F.avg_pool2d(",   "torch.cat([",
                                        "F.dropout(",    "_scale + self.x", NULL};
    dro_model_shape shape = {3, 75, 75, 3};
    dro_net *net;
    char path[300];
    snprintf(path, sizeof path, "%s", in_dir("inception.safetensors"));
    OK(ctx, dro_net_model(ctx, "inception_v3", &shape, &net));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_save_with(net, path, about));
    dro_net_destroy(net);
    OK(ctx, dro_export_onnx(ctx, path, in_dir("i.onnx")));
    OK(ctx, dro_export_torch(ctx, path, in_dir("i.py")));
    has_all("i.onnx", onnx);
    has_all("i.py", torch);
}

static void test_exports(void **state)
{
    (void)state;
    static const struct {
        const char *run, *settings, *onnx[4], *torch[4];
    } cases[] = {
        {"cosine",
         "data=" GLYPHS(",size=12") " model=mlp:4 classifier=cosine steps=1 batch=8",
         {"ReduceSum", "Sqrt", "Softmax"},
         {"* unit(x", ") @ unit(layer(", "torch.softmax(logits + prior, 1)"}},
        {"logistic",
         "data=" GLYPHS(",size=12") " model=mlp:4 loss=logistic steps=1 batch=8",
         {"Sigmoid", "Gemm", "Relu"},
         {"torch.sigmoid(logits)", "F.relu(", "nn.Linear("}},
        {"squared",
         "data=" GLYPHS(",size=12") " model=mlp:4 loss=squared steps=1 batch=8",
         {"Relu", "Gemm", "Relu"},
         {"F.relu(logits)", "nn.Linear(", "total > 0"}},
        {"mobile",
         "data=" GLYPHS(",size=32") " model=mobilenet_v2 steps=1 batch=2 eval_train=no",
         {"Clip", "group", "BatchNormalization"},
         {"torch.clamp(", "groups=", ", 0, 6)"}},
        {"robust",
         "data=csv:%/t.csv,label=y" TRAINED,
         {"limit_squared", "centre.1", "beyond.1"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"plain",
         "data=csv:%/t.csv,label=y,scale=none" TRAINED,
         {"IsNaN", "missing.0", "missing.1"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"headless",
         "data=csv:%/bare.csv,label=3,header=no,scale=standard" TRAINED,
         {"column.1", "column.2", "factor.1"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"words",
         "data=csv:%/three.csv,label=a,target=real,missing=NULL" TRAINED,
         {"LabelEncoder", "OneHot", "NULL"},
         {"def value(self, outputs)", "nn.Linear(", "class"}},
        {"refuse",
         "data=csv:%/three.csv,label=a,target=real,missing=refuse" TRAINED,
         {"LabelEncoder", "OneHot", "value"},
         {"def value(self, outputs)", "nn.Linear(", "class"}},
        {"svm",
         "data=libsvm:%/few.svm" TRAINED,
         {"limit_squared", "centre", "Where"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"svm-standard",
         "data=libsvm:%/few.svm,scale=standard" TRAINED,
         {"centre", "factor", "Gemm"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"svm-plain",
         "data=libsvm:%/few.svm,scale=none" TRAINED,
         {"features", "Gemm", "Softmax"},
         {"nn.Linear(", "torch.softmax", "class"}},
        {"real",
         "data=csv:%/t.csv,label=a,target=real,drop=y" TRAINED,
         {"value", "Mul", "Add"},
         {"def value(self, outputs)", "return outputs * ", "nn.Linear("}},
    };
    write_tables();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        train(cases[k].run, cases[k].settings);
        OK(ctx, dro_export_onnx(ctx, weights_of(cases[k].run), in_dir("x.onnx")));
        OK(ctx, dro_export_torch(ctx, weights_of(cases[k].run), in_dir("x.py")));
        has_all("x.onnx", cases[k].onnx);
        has_all("x.py", cases[k].torch);
    }
#if !defined(__SANITIZE_ADDRESS__) /* it takes long there */
    export_inception();
#endif
    assert_int_equal(dro_export_onnx(NULL, "a", "b"), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_export_onnx(ctx, "a", NULL), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_export_torch(ctx, NULL, "b"), DRO_ERR_ARGUMENT);
    assert_int_equal(dro_export_torch(ctx, "a", NULL), DRO_ERR_ARGUMENT);
}

/* Floats as an .npy file. */
static void write_npy(const char *name, int rows, int columns, const float *values)
{
    char head[140] = "\x93NUMPY\x01";
    char text[110];
    char width[16] = "";
    if (columns > 1)
        snprintf(width, sizeof width, " %d", columns);
    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,%s), }",
             rows, width);
    head[8] = 118;
    snprintf(head + 10, sizeof head - 10, "%-117s\n", text);
    write_file(name, head, 128);
    append_file(name, values, (size_t)rows * (size_t)columns * sizeof *values);
}

/* Rows without labels are of the kind that the model is of. */
static void test_unlabelled(void **state)
{
    (void)state;
    float x[120], y[60], values[60];
    dro_predictor *p;
    for (int i = 0; i < 60; i++) {
        x[2 * i] = (float)sin(i * i);
        x[2 * i + 1] = (float)cos(3.0 * i);
        y[i] = 100 + 7 * x[2 * i];
    }
    write_npy("x.npy", 60, 2, x);
    write_npy("y.npy", 60, 1, y);
    char settings[400];
    snprintf(settings, sizeof settings, "data=npy:%%/x.npy,labels=%s,target=real model=linear", //
             in_dir("y.npy"));
    train("real", settings);
    OK(ctx, dro_predictor_open(ctx, weights_of("real"), in_folder("npy:%/x.npy"), &p));
    assert_int_equal(dro_predictor_data(p)->classes, 0);
    OK(ctx, dro_predictor_logits(p, DRO_TRAIN, 0, 60, values, NULL));
    for (int i = 0; i < 60; i++)
        assert_float_equal(values[i], y[i], 0.5);
    const dro_metrics *m;
    assert_int_not_equal(dro_predictor_evaluate(p, DRO_TRAIN, &m), DRO_OK);
    assert_non_null(strstr(dro_predictor_error(), "the data has no labels to compare with"));
    dro_predictor_close(p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_train, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_metadata), TEST(test_shapes),      TEST(test_long_names),
    TEST(test_prior),    TEST(test_threshold),   TEST(test_weights),
    TEST(test_exports),  TEST(test_image_files), TEST(test_unlabelled),
};

CHECK_MAIN(tests)
