/* A model sees images in files as it saw those that it was trained on: its logits of files are
 * those of the arrays that they hold, whichever of the two it was trained on, in grey too. Writes
 * one temporary folder. */
#include "train_runs.h"

#include <dro/dro.h>
#include <dro/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 12, EACH = 12, CLASSES = 2 };

/* Class 0 has a bright line at its upper edge, class 1 at its lower one: what is cut away shows. */
static int begin(void **state)
{
    char path[200];
    if (setup_train(state))
        return -1;
    snprintf(path, sizeof path, "%s/images", dir);
    mkdir(path, 0777);
    for (int k = 0; k < CLASSES; k++) {
        snprintf(path, sizeof path, "%s/images/%d", dir, k);
        mkdir(path, 0777);
        for (int i = 0; i < EACH; i++) {
            snprintf(path, sizeof path, "%s/images/%d/%02d.pgm", dir, k, i);
            FILE *file = fopen(path, "wb");
            fprintf(file, "P5 %d %d 255\n", SIDE, SIDE);
            for (int p = 0; p < SIDE * SIDE; p++)
                fputc(p / SIDE == (k ? SIDE - 1 : 0) ? 250 : (p * 7 + i * 31) % 50, file);
            fclose(file);
        }
    }
    return 0;
}

static const char *train(const char *name, const char *options, const char *size)
{
    static char path[200];
    char spec[200];
    dro_train *run;
    snprintf(spec, sizeof spec, "images:%s/images%s", dir, options);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(ctx, dro_train_create(ctx, &run));
    OK(ctx, dro_train_set(run, "data", spec));
    OK(ctx, dro_train_set(run, "model", "glyphnet"));
    OK(ctx, dro_train_set(run, "epochs", "2"));
    OK(ctx, dro_train_set(run, "size", size));
    OK(ctx, dro_train_run(run, path, false, NULL));
    dro_train_destroy(run);
    strcat(path, "/weights.safetensors");
    return path;
}

static void logits_of(const char *weights, const char *options, float *logits)
{
    char spec[200];
    dro_predictor *p;
    dro_examples e;
    snprintf(spec, sizeof spec, "images:%s/images%s", dir, options);
    OK(ctx, dro_predictor_open(ctx, weights, spec, &p));
    OK(ctx, dro_predictor_examples(p, DRO_TRAIN, &e));
    assert_int_equal(e.count, CLASSES * EACH);
    assert_non_null(strstr(e.paths[EACH], "/1/00.pgm"));
    OK(ctx, dro_predictor_logits(p, DRO_TRAIN, 0, CLASSES * EACH, logits, NULL));
    dro_predictor_close(p);
}

static void test_arrays(void **state)
{
    (void)state;
    static const char *const options[] = {",size=12", ",size=12,channels=1"};
    for (int k = 0; k < 2; k++) {
        float given[CLASSES * EACH * CLASSES], plain[CLASSES * EACH * CLASSES];
        const char *weights = train(k ? "grey" : "colour", options[k], "");
        logits_of(weights, options[k], given);
        logits_of(weights, "", plain);
        assert_memory_equal(given, plain, sizeof given);
    }
}

static void test_files(void **state)
{
    (void)state;
    char spec[200];
    dro_predictor *p;
    float logits[CLASSES * EACH * CLASSES];
    const char *weights = train("files", "", "97");
    logits_of(weights, "", logits);
    snprintf(spec, sizeof spec, "images:%s/images,size=97", dir);
    FAILS(ctx, dro_predictor_open(ctx, weights, spec, &p), DRO_ERR_ARGUMENT, "leave out size=");
}

static void test_size_twice(void **state)
{
    (void)state;
    char spec[200];
    dro_train *run;
    snprintf(spec, sizeof spec, "images:%s/images,size=12", dir);
    OK(ctx, dro_train_create(ctx, &run));
    OK(ctx, dro_train_set(run, "data", spec));
    OK(ctx, dro_train_set(run, "size", "24"));
    FAILS(ctx, dro_train_run(run, NULL, false, NULL), DRO_ERR_ARGUMENT, "these are arrays");
    OK(ctx, dro_train_set(run, "data", "synth:glyphs,n=60,test=10"));
    FAILS(ctx, dro_train_run(run, NULL, false, NULL), DRO_ERR_ARGUMENT, "these are arrays");
    dro_train_destroy(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_size_twice),
    };
    return cmocka_run_group_tests(tests, begin, teardown);
}
