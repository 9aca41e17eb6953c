/* The training room: metrics against values computed by hand, runs that resume byte for byte, and
 * how runs end. */
#include "train_runs.h"

/* ---- metrics ---- */

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) < 1e-6))
        fail_msg("%.9g instead of %.9g", value, wanted);
}

/* Six examples of three classes; predictions 0 0 1 1 2 0. */
static void test_metrics_three(void **state)
{
    (void)state;
    const float logits[] = {2, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0};
    const int32_t labels[] = {0, 0, 1, 0, 2, 2};
    const float losses[] = {0.5f, 1, 0.25f, 2, 0.75f, 1.5f};
    dro__tally m;
    dro__robust robust = {0.5, 0.5, DRO__TILT_EXAMPLE, true, {0}};
    OK(ctx, dro__measure_create(ctx, 3, 6, 0, &m));
    dro__measure_reset(&m, &robust);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, NULL, NULL, NULL, NULL});
    dro__measure_add(
        &m, &(dro__measured){2, logits + 12, labels + 4, losses + 4, NULL, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0.125));
    near(m.figures.loss, 1);
    near(m.figures.accuracy, 4.0 / 6);
    near(m.figures.balanced_accuracy, (2.0 / 3 + 1 + 0.5) / 3);
    near(m.figures.worst_class_accuracy, 0.5);
    near(m.figures.macro_f1, (4.0 / 6 + 2.0 / 3 + 2.0 / 3) / 3);
    near(m.figures.per_class[1], 1);
    assert_int_equal(m.figures.confusion[0 * 3 + 1], 1);
    assert_int_equal(m.figures.confusion[2 * 3 + 0], 1);
    double sum = exp(1) + exp(2) + exp(0.5) + exp(4) + exp(1.5) + exp(3);
    near(m.figures.objective, 0.5 * log(sum / 6) + 0.125);
    assert_true(isnan(m.figures.auroc));
    near(m.figures.average_precision, ((1 + 2 / 3.0 + 3 / 4.0) / 3 + 1 + 0.75) / 3);
    near(m.figures.class_precision[2], 0.75); /* three examples tie */
    /* probabilities of the predictions: three of p1, two of p2, one of p3, each in a bin of its
     * own */
    double p1 = exp(1) / (exp(1) + 2), p2 = exp(2) / (exp(2) + 2), p3 = exp(3) / (exp(3) + 2);
    near(m.figures.calibration_error, (fabs(1 - 3 * p1) + fabs(2 - 2 * p2) + fabs(1 - p3)) / 6);
    dro__measure_free(&m);
}

/* The confusion matrix is left out where it would take megabytes. */
static void test_metrics_many(void **state)
{
    (void)state;
    static float logits[DRO_CONFUSION_CLASSES + 1];
    const int32_t label = DRO_CONFUSION_CLASSES - 1;
    logits[label] = 1;
    for (int32_t classes = DRO_CONFUSION_CLASSES; classes <= DRO_CONFUSION_CLASSES + 1; classes++) {
        dro__tally m;
        OK(ctx, dro__measure_create(ctx, classes, 1, 0, &m));
        dro__measure_add(&m, &(dro__measured){.count = 1, .logits = logits, .labels = &label});
        OK(ctx, dro__measure_finish(ctx, &m, 0));
        near(m.figures.accuracy, 1);
        assert_int_equal(m.figures.confusion != NULL, classes == DRO_CONFUSION_CLASSES);
        dro__measure_free(&m);
    }
}

/* An example of weight 2 is two examples, one of weight 0 is none. */
static void test_metrics_weights(void **state)
{
    (void)state;
    const float logits[] = {2, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 0};
    const int32_t labels[] = {0, 0, 1, 0, 2, 2, 2}, groups[] = {0, 1, 1, 0, 0, 1, 1};
    const float losses[] = {0.5f, 1, 0.25f, 2, 0.75f, 1.5f, 9}, weights[] = {1, 2, 1, 2, 1, 1, 0};
    dro__tally one, two;
    for (int level = DRO__TILT_EXAMPLE; level <= DRO__TILT_GROUP; level++) {
        dro__robust robust = {
            .lambda = 0.5, .weight_lambda = 0.5, .level = level, .uniform = false};
        double a[3], b[3];
        OK(ctx, dro__measure_create(ctx, 3, 8, 2, &one));
        OK(ctx, dro__measure_create(ctx, 3, 8, 2, &two));
        dro__measure_reset(&one, &robust);
        dro__measure_reset(&two, &robust);
        dro__measure_add(&one,
                         &(dro__measured){7, logits, labels, losses, groups, weights, NULL, NULL});
        dro__measure_add(&two,
                         &(dro__measured){6, logits, labels, losses, groups, NULL, NULL, NULL});
        dro__measure_add(&two, &(dro__measured){1, logits + 3, labels + 1, losses + 1, groups + 1,
                                                NULL, NULL, NULL});
        dro__measure_add(&two, &(dro__measured){1, logits + 9, labels + 3, losses + 3, groups + 3,
                                                NULL, NULL, NULL});
        OK(ctx, dro__measure_finish(ctx, &one, 0.5));
        OK(ctx, dro__measure_finish(ctx, &two, 0.5));
#define X(name, code, title, better, unit, meaning)                                                \
    if (!isnan(two.figures.name) || !isnan(one.figures.name))                                      \
        near(one.figures.name, two.figures.name);
        DRO_METRIC_LIST(X)
#undef X
        assert_true(dro__measure_class_weights(&one, a) && dro__measure_class_weights(&two, b));
        for (int k = 0; k < 3; k++)
            near(a[k], b[k]);
        dro__measure_free(&one);
        dro__measure_free(&two);
    }
}

/* Groups and classes: their accuracies, objectives over them with both priors, their shares of the
 * weight. */
static void test_metrics_groups(void **state)
{
    (void)state;
    const float logits[] = {1, 0, 1, 0, 0, 1, 1, 0}, losses[] = {1, 3, 0.5f, 2};
    const int32_t labels[] = {0, 0, 1, 1}, groups[] = {0, 0, 2, 0};
    dro__robust over = {2, 1, DRO__TILT_GROUP, true, {0}};
    double shares[2];
    dro__tally m;
    OK(ctx, dro__measure_create(ctx, 2, 4, 3, &m));
    assert_false(dro__measure_class_weights(&m, shares));
    dro__measure_reset(&m, &over);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 2 * log((exp(2 / 2.0) + exp(0.5 / 2.0)) / 2));
    near(m.figures.worst_group_accuracy, 2.0 / 3);
    near(m.figures.per_group[2], 1);
    assert_true(isnan(m.figures.per_group[1]));
    assert_int_equal(m.figures.group_counts[0], 3);
    assert_true(dro__measure_class_weights(&m, shares)); /* at lambda 1 */
    near(shares[0], (exp(1) + exp(3)) / (exp(1) + exp(3) + exp(0.5) + exp(2)));
    near(shares[0] + shares[1], 1);
    over.uniform = false;
    dro__measure_reset(&m, &over);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 2 * log(0.75 * exp(2 / 2.0) + 0.25 * exp(0.5 / 2.0)));
    over.level = DRO__TILT_CLASS;
    dro__measure_reset(&m, &over);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 2 * log((exp(2 / 2.0) + exp(1.25 / 2)) / 2));
    over.lambda = 1e12; /* nearly the mean of the classes, 2 and 1.25 */
    dro__measure_reset(&m, &over);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 1.625);
    over.level = DRO__TILT_EXAMPLE;
    dro__measure_reset(&m, &over);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 1.625);
    dro__measure_reset(&m, &dro__mean_loss);
    dro__measure_add(&m, &(dro__measured){4, logits, labels, losses, groups, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.objective, 1.625);
    assert_true(dro__measure_class_weights(&m, shares)); /* the shares of the examples */
    near(shares[0], 0.5);
    /* scores -1 -1 (class 0), 1 -1 (class 1): pairs in order 2 of 4, two ties */
    near(m.figures.auroc, (2 + 0.5 * 2) / 4);
    dro__measure_free(&m);
}

/* A class without examples is left out of the means; no example at all gives no figures. */
static void test_metrics_absent(void **state)
{
    (void)state;
    const float logits[] = {1, 0, 0, 0, 1, 0};
    const int32_t labels[] = {0, 0};
    dro__tally m;
    OK(ctx, dro__measure_create(ctx, 3, 2, 0, &m));
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    assert_true(isnan(m.figures.accuracy) && isnan(m.figures.loss));
    dro__measure_add(&m, &(dro__measured){2, logits, labels, NULL, NULL, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.balanced_accuracy, 0.5);
    near(m.figures.macro_f1, (2.0 / 3 + 0) / 2); /* classes 0 and 1 occur */
    assert_true(isnan(m.figures.per_class[2]));
    dro__measure_free(&m);
}

/* Fifteen bins: probabilities of 0.65 and 0.68 are in two of them. */
static void test_metrics_bins(void **state)
{
    (void)state;
    const float logits[] = {0, logf(0.65f / 0.35f), 0, logf(0.68f / 0.32f)};
    const int32_t labels[] = {1, 0};
    dro__tally m;
    OK(ctx, dro__measure_create(ctx, 2, 2, 0, &m));
    dro__measure_add(&m, &(dro__measured){2, logits, labels, NULL, NULL, NULL, NULL, NULL});
    OK(ctx, dro__measure_finish(ctx, &m, 0));
    near(m.figures.calibration_error, (0.35 + 0.68) / 2);
    dro__measure_free(&m);
}

/* metrics.jsonl has the confusion matrix of up to 100 classes. */
static void test_metrics_confusion(void **state)
{
    (void)state;
    size_t size;
    for (int classes = 100; classes <= 101; classes++) {
        char text[2048], settings[400];
        size_t used = 0;
        for (int i = 0; i < classes; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%d,c%d\n", i, i);
        write_file("many.csv", text, used);
        snprintf(settings, sizeof settings,
                 "data=csv:%s/many.csv,label=2,test=%s/many.csv optimizer=sgd steps=1 best=none",
                 dir, dir);
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, UINT64_MAX, NULL));
        char *lines = slurp("parts", "metrics.jsonl", &size);
        assert_int_equal(strstr(lines, "\"confusion\"") != NULL, classes == 100);
        dro__free(lines);
    }
}

/* A run that was stopped before any of its 20 steps ends as the one that was not. */
static void resume_at_every_step(const char *settings)
{
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    for (uint64_t k = 0; k < 20; k++) {
        stopper s;
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, k, NULL));
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, &s));
        same_run("whole", "parts");
    }
    OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL)); /* a finished one, once more */
    same_run("whole", "parts");
}

static void test_resume_recover(void **state)
{
    (void)state;
    dro_context_destroy(ctx);
    ctx = check_context(NULL, 2);
    resume_at_every_step("optimizer=recover model=glyphnet tilt=class lambda=1 augment=yes");
}

/* Every way of augmentation at once. */
static void test_resume_augmented(void **state)
{
    (void)state;
    resume_at_every_step("optimizer=recover model=glyphnet tilt=class mixup=0.3 cutmix=1 "
                         "augment=all,autoaugment,cutout");
}

static void test_resume_sgd(void **state)
{
    (void)state;
    resume_at_every_step("optimizer=sgd model=mlp:8 eta=0.02");
}

static void test_resume_all(void **state)
{
    (void)state;
    for (int i = 0; check_optimizer(i); i++) {
        char settings[128];
        snprintf(settings, sizeof settings, "optimizer=%s model=mlp:4 eta=0.001",
                 check_optimizer(i));
        clear("whole");
        clear("parts");
        OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
        OK(ctx, run_to(settings, "parts", false, 7, NULL));
        OK(ctx, run_to(settings, "parts", true, 13, NULL));
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
        same_run("whole", "parts");
    }
}

/* A run that begins with weights of a file, some of which do not train: resumed exactly, and only
 * with that file; where all of them train, the checkpoint is enough. */
static void test_resume_frozen(void **state)
{
    (void)state;
    char path[320], settings[512];
    clear("begin");
    OK(ctx, run_to("optimizer=sgd model=mlp:8 seed=5", "begin", false, UINT64_MAX, NULL));
    snprintf(path, sizeof path, "%s/begin/weights.safetensors", dir);
    snprintf(settings, sizeof settings,
             "optimizer=recover model=mlp:8 eta=0.02 init=%s train_only=fc.*", path);
    resume_at_every_step(settings);
    clear("parts");
    OK(ctx, run_to(settings, "parts", false, 7, NULL));
    clear("begin"); /* other weights in the same file */
    OK(ctx, run_to("optimizer=sgd model=mlp:8 seed=6", "begin", false, UINT64_MAX, NULL));
    FAILS(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL), DRO_ERR_FORMAT,
          "weights that do not train");
    *strstr(settings, " train_only") = '\0';
    clear("whole");
    clear("parts");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    OK(ctx, run_to(settings, "parts", false, 7, NULL));
    assert_int_equal(unlink(path), 0);
    OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
    same_run("whole", "parts");
}

static bool stop_in_evaluation(void *user, const dro_train_progress *p)
{
    int *left = user;
    return p->evaluating && --*left == 0;
}

/* A run that was stopped within an evaluation, at each place of each, ends as the one that was
 * not. */
static void test_resume_evaluation(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:4 eta=0.02";
    char folder[300];
    snprintf(folder, sizeof folder, "%s/parts", dir);
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    int stops = 0;
    for (bool stopped = true; stopped; stops += stopped) {
        int left = stops + 1;
        dro_train_watch watch = {
            .size = sizeof(dro_train_watch), .user = &left, .step = stop_in_evaluation};
        dro_train *t = make(settings);
        clear("parts");
        OK(ctx, dro_train_run(t, folder, false, &watch));
        stopped = dro_train_ended(t) == DRO_TRAIN_INTERRUPTED;
        assert_true(stopped == (left == 0));
        assert_true(stopped == !dro_train_last(t));
        dro_train_destroy(t);
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
        same_run("whole", "parts");
    }
    assert_true(stops >= 12); /* four evaluations of three splits */
}

/* Without the event file, which is a copy of what metrics.jsonl has, a run resumes all the same. */
static void test_events_gone(void **state)
{
    (void)state;
    stopper s;
    char path[320];
    size_t size;
    clear("parts");
    OK(ctx, run_to("optimizer=sgd model=mlp:4", "parts", false, 15, NULL));
    snprintf(path, sizeof path, "%s/parts/%s", dir, DRO__EVENTS_NAME);
    assert_int_equal(unlink(path), 0);
    OK(ctx, run_to("optimizer=sgd model=mlp:4", "parts", true, UINT64_MAX, &s));
    assert_int_equal(s.notes, 1);
    assert_non_null(strstr(s.note, "begun anew"));
    char *events = slurp("parts", DRO__EVENTS_NAME, &size);
    without_event_times(events, size); /* walks it to its end */
    assert_true(size > 400);
    dro__free(events);
}

/* Lines of metrics.jsonl that somebody has taken away stay lost: the others, and the run, do not
 * suffer. */
static void test_metrics_gone(void **state)
{
    (void)state;
    const char *settings = "optimizer=sgd model=mlp:4";
    char path[320];
    snprintf(path, sizeof path, "%s/parts/metrics.jsonl", dir);
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    for (int cut = 0; cut < 2; cut++) {
        stopper s;
        size_t size;
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, 15, NULL)); /* three lines */
        char *old = slurp("parts", "metrics.jsonl", &size);
        size_t first = strcspn(old, "\n") + 1;
        dro__free(old);
        assert_int_equal(cut ? truncate(path, (off_t)first + 20) : unlink(path), 0);
        OK(ctx, run_to(settings, "parts", true, 16, &s));
        assert_int_equal(s.notes, 1);
        assert_non_null(
            strstr(s.note, cut ? "shorter than recorded in the checkpoint" : "is gone"));
        assert_non_null(strstr(s.note, cut ? "only the first 1 of" : "only the first 0 of"));
        assert_true(cut || access(path, F_OK) != 0); /* no empty file */
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, &s));
        assert_int_equal(s.notes, 0);
        assert_true(s.went_on && s.step == 16 && s.examples == 16 * 16);
        same_file("whole", "parts", "weights.safetensors");
        char *text = slurp("parts", "metrics.jsonl", &size);
        int lines = 0;
        for (char *c = text; (c = strchr(c, '\n')); c++)
            lines++;
        assert_int_equal(lines, cut ? 2 : 1);
        assert_non_null(strstr(text, "\"step\":20,"));
        dro__free(text);
    }
}

/* What may not change between the parts of a run, and what may not be overwritten. */
static void test_resume_refuses(void **state)
{
    (void)state;
    clear("parts");
    OK(ctx, run_to("optimizer=sgd model=mlp:4", "parts", false, 5, NULL));
    FAILS(ctx, run_to("optimizer=sgd model=mlp:4", "parts", false, 5, NULL), DRO_ERR_FILE,
          "already holds a run");
    FAILS(ctx, run_to("optimizer=sgd model=mlp:4 eta=0.3", "parts", true, 9, NULL), DRO_ERR_FORMAT,
          "eta=");
    FAILS(ctx, run_to("optimizer=recover model=mlp:4", "parts", true, 9, NULL), DRO_ERR_FORMAT,
          "optimizer=\"sgd\"");
    FAILS(ctx, run_to("optimizer=sgd model=mlp:5", "parts", true, 9, NULL), DRO_ERR_FORMAT,
          "model=");
    OK(ctx, run_to("optimizer=sgd model=mlp:4 max_time=1000", "parts", true, 9, NULL));
    FAILS(ctx, run_to("optimizer=sgd model=mlp:4 lambda=3", "more", false, 5, NULL), DRO_ERR_NAME,
          "sgd has no parameter 'lambda'");
}

/* ---- how runs end ---- */

static void test_patience_and_time(void **state)
{
    (void)state;
    size_t size;
    clear("parts");
    OK(ctx, run_to("optimizer=sgd model=mlp:2 eta=0 weight_decay=0 patience=2 steps=200", "parts",
                   false, UINT64_MAX, NULL));
    char *result = slurp("parts", "result.json", &size);
    assert_non_null(strstr(result, "\"ended\": \"patience\""));
    assert_non_null(strstr(result, "\"step\": 15,")); /* evaluated after 5, 10 and 15 */
    dro__free(result);
    clear("parts");
    OK(ctx, run_to("optimizer=sgd model=mlp:2 max_time=0.05 steps=1000000 eval_every=1000000",
                   "parts", false, UINT64_MAX, NULL));
    result = slurp("parts", "result.json", &size);
    assert_non_null(strstr(result, "\"ended\": \"time\""));
    dro__free(result);
    FAILS(ctx, run_to("data=synth:glyphs,n=200,size=12", "more", false, 5, NULL), DRO_ERR_DATA,
          "holdout=0.1");
    FAILS(ctx, run_to("best=auroc", "more", false, 5, NULL), DRO_ERR_DATA, "two classes");
    FAILS(ctx, run_to("best=worst_group_accuracy", "more", false, 5, NULL), DRO_ERR_DATA,
          "group=COLUMN");
}

/* Many runs in one process, without a folder, and the weights seen again by the predictor. */
static void test_predictor(void **state)
{
    (void)state;
    char path[320];
    dro_predictor *p;
    const dro_metrics *m;
    dro_train *t = make("optimizer=sgd model=glyphnet loss=focal");
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    OK(ctx, dro_train_set(t, "loss", "cross-entropy"));
    clear("whole");
    snprintf(path, sizeof path, "%s/whole", dir);
    OK(ctx, dro_train_run(t, path, false, NULL));
    const dro_metrics *test = &dro_train_last(t)->test;
    snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
    OK(ctx, dro_predictor_open(ctx, path, DATA, &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    near(m->loss, test->loss);
    near(m->accuracy, test->accuracy);
    assert_string_equal(dro_predictor_loss(p), "cross-entropy");
    assert_memory_equal(m->confusion, test->confusion, 9 * sizeof(int64_t));
    dro_predictor_close(p);
    /* other data, normalised by the training's figures; classes are matched by name */
    OK(ctx,
       dro_predictor_open(ctx, path, "synth:glyphs,n=20,test=20,size=12,classes=2,seed=9", &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
    assert_int_equal(m->classes, 3);
    assert_int_equal(m->counts[2], 0);
    dro_predictor_close(p);
    OK(ctx, dro_predictor_open(ctx, path, "synth:glyphs,n=20,test=20,size=12,classes=4", &p));
    FAILS(ctx, dro_predictor_evaluate(p, DRO_TEST, &m), DRO_ERR_DATA, "does not know");
    dro_predictor_close(p);
    FAILS(ctx, dro_predictor_open(ctx, path, "synth:glyphs,n=20,size=16", &p), DRO_ERR_DATA,
          "12 x 12");
    dro_train_destroy(t);
}

/* The loss that a model was trained with, its settings and its prior, are in its file. */
static void test_predictor_loss(void **state)
{
    (void)state;
    static const char *const losses[] = {"loss=focal focal_gamma=3.5",
                                         "loss=logit-adjusted tau=0.7", "smoothing=0.1"};
    char path[320], settings[128];
    dro_predictor *p;
    const dro_metrics *m;
    for (int k = 0; k < 3; k++) {
        snprintf(settings, sizeof settings, "optimizer=sgd model=mlp:4 data=%s,imratio=0.2 %s",
                 DATA, losses[k]);
        dro_train *t = make(settings);
        clear("whole");
        snprintf(path, sizeof path, "%s/whole", dir);
        OK(ctx, dro_train_run(t, path, false, NULL));
        snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
        OK(ctx, dro_predictor_open(ctx, path, DATA, &p));
        OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
        near(m->loss, dro_train_last(t)->test.loss);
        assert_non_null(strstr(k == 2 ? "loss=cross-entropy" : losses[k], dro_predictor_loss(p)));
        dro_predictor_close(p);
        dro_train_destroy(t);
    }
}

/* Every optimiser's run continues from where it was stopped, by default settings of which some
 * depend on the number of steps. */
static bool stop_at_once(void *user, const dro_train_progress *p)
{
    (void)user;
    return p->step >= 3;
}

static void test_every_optimizer_resumes(void **state)
{
    (void)state;
    char folder[300];
    for (int o = 0; check_optimizer(o); o++) {
        dro_train *run;
        dro_train_watch watch = {.size = sizeof(dro_train_watch), .step = stop_at_once};
        clear("every");
        snprintf(folder, sizeof folder, "%s/every", dir);
        OK(ctx, dro_train_create(ctx, &run));
        set_all(run,
                "data=synth:glyphs,n=80,test=20,size=8,classes=3 model=mlp:4 batch=2 epochs=12");
        OK(ctx, dro_train_set(run, "optimizer", check_optimizer(o)));
        OK(ctx, dro_train_set(run, "eta", "0.001"));
        OK(ctx, dro_train_run(run, folder, false, &watch));
        OK(ctx, dro_train_run(run, folder, true, NULL));
        assert_int_equal(dro_train_ended(run), DRO_TRAIN_DONE);
        dro_train_destroy(run);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_optimizer_resumes),
    cmocka_unit_test(test_metrics_three),
    cmocka_unit_test(test_metrics_groups),
    cmocka_unit_test(test_metrics_many),
    cmocka_unit_test(test_metrics_weights),
    cmocka_unit_test(test_metrics_absent),
    cmocka_unit_test(test_resume_sgd),
    cmocka_unit_test(test_resume_all),
    cmocka_unit_test(test_resume_refuses),
    cmocka_unit_test(test_metrics_bins),
    cmocka_unit_test(test_metrics_confusion),
    cmocka_unit_test(test_patience_and_time),
    cmocka_unit_test(test_predictor),
    cmocka_unit_test(test_resume_recover),
    cmocka_unit_test(test_resume_augmented),
    cmocka_unit_test(test_events_gone),
    cmocka_unit_test(test_resume_frozen),
    cmocka_unit_test(test_predictor_loss),
    cmocka_unit_test(test_resume_evaluation),
    cmocka_unit_test(test_metrics_gone),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
