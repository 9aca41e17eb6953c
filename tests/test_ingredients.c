/* Settings that can be added to any run: ema, sam, label-aware smoothing, the cosine classifier,
 * stage2. Each is compared with its definition, and a resumed run must end with the same bytes. */
#include "train_runs.h"

/* Batch norm, a constant step, and no best weights apart from the last. */
#define PLAIN "model=glyphnet best=none eta_schedule=constant data=" DATA

enum { STEPS = 5 };

/* Weights, then statistics, of a run of some steps; with steps 0 those that it begins with. */
static float *weights_after(const char *settings, int steps, size_t *dim, size_t *count)
{
    char text[400];
    snprintf(text, sizeof text, "%s steps=%d", settings, steps ? steps : 1);
    dro_train *t = make(text);
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    *dim = t->task.dim;
    *count = *dim + dro__task_statistics(&t->task);
    float *all = malloc(*count * sizeof *all);
    assert_non_null(all);
    memcpy(all, steps ? t->w : dro_net_weights(t->task.net), *dim * sizeof *all);
    memcpy(all + *dim, t->statistics, (*count - *dim) * sizeof *all);
    for (size_t k = 0; !steps && k < t->task.net->tensor_count; k++) {
        const dro__net_entry *one = &t->task.net->tensors[k];
        for (size_t i = 0; one->place == DRO__IN_STATISTICS && i < one->count; i++)
            all[*dim + (size_t)one->offset + i] = strstr(one->name, "running_var") ? 1 : 0;
    }
    dro_train_destroy(t);
    return all;
}

/* The average of the weights and statistics that the run without it has after each step. */
static void check_average(const char *optimizer)
{
    char settings[300];
    size_t dim, count;
    snprintf(settings, sizeof settings, PLAIN " optimizer=%s", optimizer);
    float *first = weights_after(settings, 0, &dim, &count);
    double *mean = malloc(count * sizeof *mean), off = 0, square = 0;
    assert_non_null(mean);
    for (size_t i = 0; i < count; i++)
        mean[i] = (double)first[i];
    free(first);
    for (int k = 1; k <= STEPS; k++) {
        float *now = weights_after(settings, k, &dim, &count);
        double keep = fmin(0.35, (double)k / (9 + k));
        for (size_t i = 0; i < count; i++)
            mean[i] = keep * mean[i] + (1 - keep) * (double)now[i];
        free(now);
    }
    snprintf(settings, sizeof settings, PLAIN " optimizer=%s ema=0.35", optimizer);
    float *average = weights_after(settings, STEPS, &dim, &count);
    for (size_t i = 0; i < count; i++) {
        off += ((double)average[i] - mean[i]) * ((double)average[i] - mean[i]);
        square += mean[i] * mean[i];
    }
    assert_true(sqrt(off / square) < 1e-5);
    free(average);
    free(mean);
}

static void test_ema(void **state)
{
    (void)state;
    check_average("sgd");
    check_average("recover");
}

/* What is evaluated during a run, kept as the best and written is one and the same. */
static void test_file(void **state)
{
    (void)state;
    static const char *const all[] = {"optimizer=sgd model=glyphnet ema=0.9 best=none",
                                      "optimizer=recover model=glyphnet ema=0.9",
                                      "optimizer=sgd model=glyphnet best=none loss=logit-adjusted "
                                      "classifier=cosine smoothing_head=0.3 stage2=1"};
    for (int k = 0; k < 3; k++) {
        char path[320];
        dro_predictor *p;
        const dro_metrics *m;
        dro_train *t = make(all[k]);
        clear("whole");
        snprintf(path, sizeof path, "%s/whole", dir);
        OK(ctx, dro_train_run(t, path, false, NULL));
        snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
        OK(ctx, dro_predictor_open(ctx, path, DATA, &p));
        OK(ctx, dro_predictor_evaluate(p, DRO_TEST, &m));
        check_near("loss", m->loss, dro_train_last(t)->test.loss, 1e-6);
        dro_predictor_close(p);
        dro_train_destroy(t);
    }
}

/* A run that was stopped twice ends as the one that was not. */
static void check_resumed(const char *settings)
{
    clear("whole");
    OK(ctx, run_to(settings, "whole", false, UINT64_MAX, NULL));
    for (uint64_t k = 0; k < 31; k += 6) {
        clear("parts");
        OK(ctx, run_to(settings, "parts", false, k, NULL));
        OK(ctx, run_to(settings, "parts", true, k + 4, NULL));
        OK(ctx, run_to(settings, "parts", true, UINT64_MAX, NULL));
        same_run("whole", "parts");
    }
}

static void test_resumes(void **state)
{
    (void)state;
    check_resumed("optimizer=recover model=glyphnet ema=0.99 sam=0.05 augment=yes");
    check_resumed("optimizer=sgd model=glyphnet loss=logit-adjusted classifier=cosine ema=0.8 "
                  "sam=0.1 sam_over=class smoothing_head=0.3 stage2=1 augment=crop,flip,cutout "
                  "mixup=0.5");
    check_resumed("optimizer=recover model=glyphnet loss=logit-adjusted classifier=cosine ema=0.8 "
                  "sam=0.1 sam_over=class smoothing_head=0.3 stage2=1 mixup=0.5 cutmix=1 "
                  "augment=crop,flip,autoaugment,cutout");
}

/* In the second stage the output layer moves and nothing else; classes are drawn alike. */
static void check_stage2(const char *optimizer)
{
    char settings[300];
    size_t dim, count;
    dro_batch batch;
    double drawn[3] = {0};
    snprintf(settings, sizeof settings, PLAIN ",imratio=0.2 warmup=0 optimizer=%s", optimizer);
    float *before = weights_after(settings, STEPS, &dim, &count);
    snprintf(settings, sizeof settings,
             PLAIN ",imratio=0.2 warmup=0 optimizer=%s stage2=1 steps=%d", optimizer, STEPS);
    dro_train *t = make(settings);
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    assert_int_equal(t->opt->run.step, STEPS + (int)t->task.epoch_steps);
    size_t first = t->opt->second.first, end = first + t->opt->second.count, moved = 0;
    assert_int_equal(end, dim); /* glyphnet's output layer is its last */
    assert_true(end - first < dim / 2);
    assert_memory_equal(before, t->w, first * sizeof *before);
    for (size_t i = first; i < end; i++)
        moved += before[i] != t->w[i];
    assert_true(moved > (end - first) / 2);
    for (uint64_t k = 0; k < 100; k++) {
        uint64_t at = t->task.balanced.from + k * t->task.batch;
        OK(ctx, t->task.problem.draw(t->task.problem.user, at, t->task.batch, &batch));
        for (size_t i = 0; i < batch.count; i++)
            drawn[batch.classes[i]]++;
    }
    for (int c = 0; c < 3; c++)
        check_near("share of a class", drawn[c] / (100 * (double)t->task.batch), 1.0 / 3, 0.04);
    free(before);
    dro_train_destroy(t);
}

static void test_stage2(void **state)
{
    (void)state;
    check_stage2("sgd");
    check_stage2("recover tilt=none");
    check_stage2("sgd objective=kl:1 tilt=class");
    FAILS(ctx, run_to("optimizer=rcivr model=glyphnet stage2=1", "refused", false, 1, NULL),
          DRO_ERR_UNSUPPORTED, "stage2 is for");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ema),
    cmocka_unit_test(test_file),
    cmocka_unit_test(test_resumes),
    cmocka_unit_test(test_stage2),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
