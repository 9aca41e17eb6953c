/* Runs that are refused, each with its line; models that are chosen; runs that diverge; objectives
 * that are reported; weights and groups in a sample of the training set. */
#include "train_runs.h"

/* ---- tables ---- */

/* t.csv: numbers a and b, three towns, two classes; one.csv: one class; wide.svm, wide3.svm,
 * real.svm: sparse rows of 4999 features with two and three classes and a number. */
static void write_tables(void)
{
    FILE *t = fopen(in_dir("t.csv"), "w"), *one = fopen(in_dir("one.csv"), "w");
    FILE *wide = fopen(in_dir("wide.svm"), "w"), *three = fopen(in_dir("wide3.svm"), "w");
    FILE *real = fopen(in_dir("real.svm"), "w");
    assert_true(t && one && wide && three && real);
    fputs("a,b,town,y\n", t);
    fputs("a,y\n", one);
    for (int i = 0; i < 60; i++) {
        double a = sin(i * i), b = cos(3.0 * i);
        fprintf(t, "%g,%g,%c,%s\n", a, b, 'r' + i % 3, a + b > 0.2 ? "yes" : "no");
        fprintf(one, "%g,same\n", a);
        fprintf(wide, "%s 1:%g 4999:1\n", a > 0.2 ? "+1" : "-1", a);
        fprintf(three, "%d 1:%g 4999:1\n", i % 3, a);
        fprintf(real, "%g 1:%g 4999:1\n", 1.37 * a, b);
    }
    fclose(t);
    fclose(one);
    fclose(wide);
    fclose(three);
    fclose(real);
}

static int setup_tables(void **state)
{
    int status = setup_train(state);
    if (status == 0)
        write_tables();
    return status;
}

/* Settings with the folder in place of each %. */
static dro_train *train_of(const char *settings)
{
    char text[512];
    size_t used = 0;
    dro_train *t;
    for (const char *p = settings; *p; p++)
        used += (size_t)snprintf(text + used, sizeof text - used, *p == '%' ? "%s" : "%.1s",
                                 *p == '%' ? dir : p);
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, text);
    return t;
}

#define TABLE  "data=csv:%/t.csv,label=y "
#define HELD   "data=csv:%/t.csv,label=y,holdout=0.3 "
#define REAL   "data=csv:%/t.csv,label=a,target=real,holdout=0.3 "
#define WIDE   "data=libsvm:%/wide.svm,features=4999 "
#define GLYPHS "data=synth:glyphs,n=60,test=20,size=12,classes=3 "

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {HELD "best=rmse", "best=rmse requires a real-valued target: choose another metric for"},
        {HELD "best=mae", "best=mae requires a real-valued target"},
        {HELD "best=r2", "best=r2 requires a real-valued target"},
        {REAL "best=accuracy", "best=accuracy requires classes: choose another metric"},
        {REAL "best=auroc", "best=auroc requires two classes: choose another metric"},
        {HELD "patience=2", "patience needs a metric: set best, as in best=balanced_accuracy"},
        {TABLE "best=loss", "best and patience need a holdout: write csv:"},
        {"data=csv:%/t.csv,label=y,holdout=0.001 best=loss", "is empty: write a larger share"},
        {REAL "optimizer=recover tilt=class", "the data has no classes: use tilt=example"},
        {TABLE "optimizer=recover tilt=group", "the data has no groups: add group=COLUMN"},
        {TABLE "optimizer=sgd mixup=1", "mixup and cutmix require images; csv:"},
        {TABLE "optimizer=sgd cutmix=1", "has none: leave them at 0"},
        {TABLE "optimizer=sgd stage2=1", "stage2 is for classes of images and for optimisers of"},
        {GLYPHS "optimizer=rcivr stage2=1", "use sgd, adamw, cover or recover, or leave it out"},
        {GLYPHS "optimizer=lbfgs model=linear stage2=1", "stage2 is for classes of images and for"},
        {GLYPHS "optimizer=sgd model=mlp:4 stage2=1 train_only=fc1.*",
         "stage2 trains the output layer, and train_only=fc1.* leaves it out"},
        {GLYPHS "size=32", "size 32: it is for images that stay in their files; these are arrays"},
        {TABLE "size=32", "size 32: it is for images that stay in their files; the data has none"},
        {GLYPHS "augment=foo",
         "augment=foo: expected auto, none, all, or some of crop,flip,jitter"},
        {TABLE "model=resnet20", "model resnet20 is for images, the data is a table of 6 features"},
        {TABLE "batch=100", "batch 100: there are 60 training examples"},
        {TABLE "optimizer=sgd model=mlp:4 exact=yes microbatch=4",
         "microbatch with exact=yes, which evaluates a batch as a whole: leave one of them out"},
        {TABLE "optimizer=sgd reg=l1", "the regulariser l1 does nothing without a strength"},
        {WIDE "model=mlp:4", "model mlp:4 on sparse rows of 5000 features: expected at most 4096"},
        {WIDE "init=x", "init: the linear model on sparse rows starts at zero"},
        {TABLE "optimizer=lbfgs loss=focal",
         "lbfgs requires a linear model with a convex loss, and all rows at once (no stream)"},
        {TABLE "optimizer=lbfgs model=mlp:4", "requires a linear model with a convex loss"},
        {TABLE "optimizer=newton model=linear classifier=cosine",
         "requires a linear model with a convex loss"},
        {TABLE "optimizer=lbfgs model=linear train_only=fc.bias",
         "train all of a layer or nothing"},
        {"data=libsvm:%/wide3.svm,features=4999", "sparse rows of 5000 features with 3 classes"},
        {"data=csv:%/one.csv,label=y", "one.csv,label=y: all examples are of one class"},
        {REAL "recipe=imbalanced", "recipes are for classes, the label is a real-valued target"},
        {WIDE "progressive=yes best=accuracy", "a stream has no holdout and starts at zero"},
        {WIDE "progressive=yes patience=2", "leave out best, patience, init"},
        {WIDE "progressive=yes init=x", "a stream has no holdout and starts at zero"},
        {WIDE "progressive=yes model=mlp", "model mlp on a stream: expected linear"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_train *t = train_of(cases[k][0]);
        if (dro_train_run(t, NULL, false, NULL) == DRO_OK)
            fail_msg("%s was accepted", cases[k][0]);
        if (!strstr(dro_context_error(ctx), cases[k][1]))
            fail_msg("%s: '%s' does not say '%s'", cases[k][0], dro_context_error(ctx),
                     cases[k][1]);
        dro_train_destroy(t);
    }
}

/* ---- robust objectives learn, too ---- */

static double trained(const char *table, const char *optimizer, const char *objective)
{
    char text[300];
    snprintf(text, sizeof text,
             "data=csv:%%/%s,label=y model=linear eval_train=yes eval_every=1000 "
             "optimizer=%s objective=%s",
             table, optimizer, objective);
    dro_train *t = train_of(text);
    dro_status status = dro_train_run(t, NULL, false, NULL);
    if (status != DRO_OK)
        fail_msg("%s %s: %s", optimizer, objective, dro_context_error(ctx));
    double value = dro_train_last(t)->train.objective;
    dro_train_destroy(t);
    return value;
}

/* All losses are equal where training begins, and few examples are of class 1. */
static void test_learns(void **state)
{
    (void)state;
    static const char *const objectives[] = {
        "cvar:0.99", "cvar:0.5", "chi2:1", "kl:0.2", "kl:0.1 tilt=class", "cvar:0.5 tilt=class"};
    static const char *const optimizers[] = {"sgd", "recover", "scent", "adamw"};
    FILE *f = fopen(in_dir("rare.csv"), "w");
    assert_non_null(f);
    fputs("a,b,c,y\n", f);
    for (uint64_t i = 0; i < 2000; i++) {
        double x[3];
        for (uint64_t j = 0; j < 3; j++)
            x[j] = check_uniform(71, 3 * i + j, -1, 1);
        bool one = x[0] + 0.5 * x[1] + check_uniform(72, i, -0.3, 0.3) > 1.05;
        fprintf(f, "%.4f,%.4f,%.4f,%d\n", x[0], x[1], x[2], one);
    }
    assert_int_equal(fclose(f), 0);
    for (size_t k = 0; k < sizeof objectives / sizeof objectives[0]; k++) {
        double least = trained("rare.csv", "lbfgs", objectives[k]),
               bound = least + (log(2) - least) / 3;
        for (size_t m = 0; m < sizeof optimizers / sizeof optimizers[0]; m++) {
            double value = trained("rare.csv", optimizers[m], objectives[k]);
            if (!(value < bound))
                fail_msg("%s %s: F %g, the minimum is %g", optimizers[m], objectives[k], value,
                         least);
        }
    }
}

/* Twelve classes, the last one with a twentieth of the first one's rows, and a lambda far below the
 * losses. */
static void test_many_classes(void **state)
{
    (void)state;
    enum { CLASSES = 12, FEATURES = 6, ROWS = 3000 };
    static const char *const optimizers[] = {"sgd", "recover", "scent", "adamw"};
    FILE *f = fopen(in_dir("many.csv"), "w");
    assert_non_null(f);
    fputs("a,b,c,d,e,f,y\n", f);
    for (uint64_t i = 0; i < ROWS; i++) {
        double u = check_uniform(73, i, 0, 1);
        uint64_t class = (uint64_t)(CLASSES * log(1 + 19 * u) / log(20)) % CLASSES;
        class = CLASSES - 1 - class;
        for (uint64_t j = 0; j < FEATURES; j++)
            fprintf(f, "%.4f,",
                    check_uniform(74, FEATURES * class + j, -2, 2) +
                        check_uniform(75, FEATURES * i + j, -1.5, 1.5));
        fprintf(f, "c%d\n", (int)class);
    }
    assert_int_equal(fclose(f), 0);
    double least = trained("many.csv", "lbfgs", "kl:0.1 tilt=class");
    for (size_t m = 0; m < sizeof optimizers / sizeof optimizers[0]; m++) {
        double value = trained("many.csv", optimizers[m], "kl:0.1 tilt=class");
        print_message("%s: %.3f above the minimum\n", optimizers[m], value - least);
        if (!(value < least + 0.15 * (log(CLASSES) - least)))
            fail_msg("%s: F %g, the minimum is %g", optimizers[m], value, least);
    }
}

/* ---- model=auto ---- */

/* A model that is better, but perhaps by chance, is said to be. */
static bool says_chance(const char *note)
{
    const char *figures = strstr(note, "holdout: linear ");
    double linear, mlp;
    if (!figures)
        return false;
    assert_int_equal(sscanf(figures, "holdout: linear %lf, mlp %lf", &linear, &mlp), 2);
    bool better = strstr(note, "(loss on") ? mlp < linear : mlp > linear;
    bool chance = strstr(note, ", which may be chance)") != NULL;
    assert_int_equal(chance, better && strstr(note, "model auto: linear") != NULL);
    return chance;
}

static void test_auto(void **state)
{
    (void)state;
    int by_chance = 0;
    static const char *const cases[][2] = {
        {REAL, "model auto: linear (loss on the holdout: linear "},
        {TABLE, "(AUROC on the holdout: linear "},
        {"data=csv:%/t.csv,label=town ", "(accuracy on the holdout: linear "},
        {"data=csv:%/t.csv,label=town recipe=imbalanced ", "(balanced accuracy on the holdout: "},
        {WIDE, ""}, /* linear is the only one */
        {GLYPHS, ""},
        {WIDE "progressive=yes ", ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char settings[300];
        stopper s = {.at = UINT64_MAX};
        dro_train_watch watch = watch_of(&s);
        snprintf(settings, sizeof settings, "%s model=auto batch=16%s", cases[k][0],
                 strstr(cases[k][0], "progressive") ? "" : " steps=3");
        dro_train *t = train_of(settings);
        OK(ctx, dro_train_run(t, NULL, false, &watch));
        if (!strstr(s.note, cases[k][1]) || (!*cases[k][1] && strstr(s.note, "model auto")))
            fail_msg("%s: '%s'", settings, s.note);
        by_chance += says_chance(s.note);
        dro_train_destroy(t);
    }
    assert_true(by_chance > 0);
    /* Stopped while the models are compared. */
    stopper s = {.at = 1};
    dro_train_watch watch = watch_of(&s);
    dro_train *t = train_of(TABLE "model=auto batch=16 steps=9 optimizer=sgd");
    FAILS(ctx, dro_train_run(t, NULL, false, &watch), DRO_ERR_STATE,
          "stopped while models were compared");
    dro_train_destroy(t);
}

/* ---- runs that diverge ---- */

static void test_diverged(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *says; /* of the error, or of the last note of a run that recovers */
        bool folder;
    } cases[] = {
        {REAL "steps=30 on_divergence=stop", "diverged at step 2: the loss rose from ", false},
        {REAL "steps=30 on_divergence=stop", "; weights.safetensors has those of step 0", true},
        {TABLE "model=mlp:4 steps=1 on_divergence=stop", "the loss on the training set rose",
         false},
        {HELD "model=mlp:4 steps=1 on_divergence=stop eval_train=no",
         "the loss on the holdout set rose from ", false},
        {GLYPHS "model=mlp:4 steps=1 on_divergence=stop eval_train=no",
         "the loss on the test set rose from ", false},
        {WIDE "steps=60 on_divergence=stop loss=squared", ", or on_divergence=halve", false},
        {REAL "steps=30", "back to step 0 with eta ", false},
        {REAL "steps=30", "back to step 0 with eta ", true},
        {TABLE "model=mlp:4 steps=30 init=%/first/weights.safetensors", "back to step 0", false},
        {"data=libsvm:%/real.svm,features=4999,target=real steps=30", "back to step 0", false},
    };
    char folder[200];
    dro_train *t = train_of(TABLE "model=mlp:4 optimizer=sgd steps=1 batch=16");
    snprintf(folder, sizeof folder, "%s/first", dir);
    OK(ctx, dro_train_run(t, folder, false, NULL));
    dro_train_destroy(t);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char settings[400];
        stopper s = {.at = UINT64_MAX};
        dro_train_watch watch = watch_of(&s);
        bool stops = strstr(cases[k].settings, "stop") != NULL;
        snprintf(settings, sizeof settings, "optimizer=sgd reg=none batch=16 eta=1e8 warmup=0 %s",
                 cases[k].settings);
        clear("run");
        snprintf(folder, sizeof folder, "%s/run", dir);
        t = train_of(settings);
        dro_status status = dro_train_run(t, cases[k].folder ? folder : NULL, false, &watch);
        const char *said = stops ? dro_context_error(ctx) : s.note;
        if (status != (stops ? DRO_ERR_NUMBER : DRO_OK) || !strstr(said, cases[k].says))
            fail_msg("%s: %d, '%s' does not say '%s'", settings, (int)status, said, cases[k].says);
        assert_int_equal(dro_train_ended(t), stops ? DRO_TRAIN_DIVERGED : DRO_TRAIN_DONE);
        if (!stops) /* the step is small enough in the end */
            assert_true(dro_train_last(t)->train.loss < 10);
        dro_train_destroy(t);
    }
}

/* ---- what is reported ---- */

/* Some objectives of a run's end are the mean loss: cvar of all examples, kl with a huge lambda. */
static void test_reported(void **state)
{
    (void)state;
    static const char *const data[] = {TABLE, REAL, WIDE, "data=csv:%/t.csv,label=y,group=town "};
    static const char *const objectives[] = {"report_objective=cvar:1", "report_objective=kl:1e9",
                                             "report_objective=mean", "report_lambda=1e9"};
    for (size_t d = 0; d < sizeof data / sizeof data[0]; d++)
        for (size_t k = 0; k < sizeof objectives / sizeof objectives[0]; k++) {
            char settings[300];
            snprintf(settings, sizeof settings, "%s optimizer=sgd reg=none batch=16 steps=3 %s",
                     data[d], objectives[k]);
            dro_train *t = train_of(settings);
            OK(ctx, dro_train_run(t, NULL, false, NULL));
            const dro_metrics *m = &dro_train_last(t)->train;
            if (!(fabs(m->objective - m->loss) <= 1e-6 * m->loss))
                fail_msg("%s: objective %.9g, loss %.9g", settings, m->objective, m->loss);
            dro_train_destroy(t);
        }
    /* The largest of all is that of the worst class or group. */
    static const char *const tilts[] = {"class", "group"};
    for (int k = 0; k < 2; k++) {
        char settings[300];
        snprintf(settings, sizeof settings,
                 "data=csv:%%/t.csv,label=y,group=town optimizer=sgd batch=16 steps=3 "
                 "report_objective=cvar:1e-6 report_tilt=%s",
                 tilts[k]);
        dro_train *t = train_of(settings);
        OK(ctx, dro_train_run(t, NULL, false, NULL));
        const dro_metrics *m = &dro_train_last(t)->train;
        assert_true(m->objective > m->loss && m->objective < 3 * m->loss);
        dro_train_destroy(t);
    }
}

/* A large training set is evaluated on 10000 of its examples, with their groups and targets. */
static void test_sample(void **state)
{
    (void)state;
    FILE *f = fopen(in_dir("long.csv"), "w");
    assert_non_null(f);
    fputs("a,town,y\n", f);
    for (int i = 0; i < 12000; i++)
        fprintf(f, "%d,%c,%s\n", i % 7, 'r' + i % 2, i % 7 > 3 ? "yes" : "no");
    fclose(f);
    static const char *const cases[] = {
        "data=csv:%/long.csv,label=y,group=town optimizer=sgd batch=64 steps=50",
        "data=csv:%/long.csv,label=a,target=real,group=town optimizer=sgd batch=64 steps=50",
    };
    for (int k = 0; k < 2; k++) {
        dro_train *t = train_of(cases[k]);
        OK(ctx, dro_train_run(t, NULL, false, NULL));
        const dro_metrics *m = &dro_train_last(t)->train;
        assert_int_equal(m->examples, 10000);
        if (k == 0)
            assert_true(m->worst_group_accuracy > 0.9 && m->groups == 2);
        else
            assert_true(m->r2 > 0.2 && m->rmse < 2);
        dro_train_destroy(t);
    }
}

/* ---- streams ---- */

/* Every optimiser learns a stream, or says why not. */
static void test_streams(void **state)
{
    (void)state;
    int learned = 0;
    for (int i = 0; dro_optimizer_name(i); i++) {
        char settings[200];
        snprintf(settings, sizeof settings,
                 "data=libsvm:%%/wide.svm,features=4999 progressive=yes batch=4 optimizer=%s",
                 dro_optimizer_name(i));
        dro_train *t = train_of(settings);
        dro_status status = dro_train_run(t, NULL, false, NULL);
        if (status != DRO_OK && !strstr(dro_context_error(ctx), ": use recover"))
            fail_msg("%s: '%s' does not say what to use", settings, dro_context_error(ctx));
        if (status == DRO_OK && !(dro_train_last(t)->train.loss < 2))
            fail_msg("%s: loss %g", settings, dro_train_last(t)->train.loss);
        learned += status == DRO_OK;
        dro_train_destroy(t);
    }
    assert_true(learned >= 7);
}

/* ---- images in arrays, with groups ---- */

static void write_array(const char *name, const char *type, const char *shape, const void *values,
                        size_t size)
{
    static uint8_t bytes[24 * 192 + 400];
    memset(bytes, ' ', 128);
    memcpy(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    int used = snprintf((char *)bytes + 10, 118,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    assert_true(used < 117 && size + 128 <= sizeof bytes);
    bytes[10 + used] = ' ';
    bytes[127] = '\n';
    memcpy(bytes + 128, values, size);
    write_file(name, bytes, size + 128);
}

static void test_image_arrays(void **state)
{
    (void)state;
    enum { N = 24, PIXELS = 3 * 8 * 8 };
    static const char *const settings[] = {
        "optimizer=recover tilt=group steps=4",
        "optimizer=civr mixup=1 steps=4",
        "optimizer=civr cutmix=1 microbatch=3 steps=4",
        "optimizer=sgd stage2=1 steps=6 microbatch=3 augment=all",
        "optimizer=rcivr steps=4 augment=randaugment,cutout",
        "optimizer=stoc-agda steps=4",
    };
    static uint8_t x[N * PIXELS];
    int64_t labels[N], groups[N];
    float targets[N];
    for (int i = 0; i < N; i++) {
        labels[i] = i % 2, groups[i] = i / 2 % 2, targets[i] = (float)(i % 2) + 0.25f;
        for (int k = 0; k < PIXELS; k++)
            x[i * PIXELS + k] = (uint8_t)(150 * labels[i] + (i * k) % 50);
    }
    write_array("x.npy", "|u1", "24, 3, 8, 8", x, sizeof x);
    write_array("y.npy", "<i8", "24,", labels, sizeof labels);
    write_array("g.npy", "<i8", "24,", groups, sizeof groups);
    write_array("t.npy", "<f4", "24,", targets, sizeof targets);
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        char text[400];
        snprintf(text, sizeof text,
                 "data=npy:%%/x.npy,labels=%%/y.npy,groups=%%/g.npy model=mlp:4 batch=6 %s",
                 settings[k]);
        dro_train *t = train_of(text);
        dro_status status = dro_train_run(t, NULL, false, NULL);
        if (status != DRO_OK)
            fail_msg("%s: %s", text, dro_context_error(ctx));
        const dro_metrics *m = &dro_train_last(t)->train;
        assert_true(m->examples == N && m->classes == 2 && m->groups == 2 && isfinite(m->loss));
        assert_true(m->group_counts[0] == N / 2 && m->group_counts[1] == N / 2);
        dro_train_destroy(t);
    }
    dro_train *t = train_of("data=npy:%/x.npy,labels=%/t.npy,target=real model=mlp:4");
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_UNSUPPORTED,
          "the label of images is a class: a real-valued target requires a table");
    dro_train_destroy(t);
}

static void find_unused(void *user, const char *text)
{
    bool *found = user;
    *found = *found || strstr(text, "microbatch has no effect on ");
}

/* A setting that the optimiser does not use. */
static void test_unused(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"lbfgs", "newton"};
    for (int k = 0; k < 2; k++) {
        char text[200];
        bool found = false;
        dro_train_watch watch = {.size = sizeof watch, .user = &found, .note = find_unused};
        snprintf(text, sizeof text, "%smodel=linear microbatch=4 optimizer=%s", TABLE,
                 optimizers[k]);
        dro_train *t = train_of(text);
        OK(ctx, dro_train_run(t, NULL, false, &watch));
        assert_true(found);
        dro_train_destroy(t);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_tables, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_refused),      TEST(test_learns),   TEST(test_many_classes), TEST(test_auto),
    TEST(test_diverged),     TEST(test_reported), TEST(test_sample),       TEST(test_streams),
    TEST(test_image_arrays), TEST(test_unused),
};

CHECK_MAIN(tests)
