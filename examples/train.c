/* Training from C: synthetic images, a small network, a few passes; the figures class by class.
 * Nothing is written, because the folder is NULL. Build: cc train.c $(pkg-config --cflags --libs
 * libdro) */
#include <dro/dro.h>
#include <stdio.h>

static int fail(const dro_context *ctx)
{
    fprintf(stderr, "%s\n", dro_context_error(ctx));
    return 1;
}

static bool watch_step(void *user, const dro_train_progress *p)
{
    (void)user;
    (void)p;
    return false; /* true would stop the run */
}

static void show(void *user, const dro_train_record *r)
{
    (void)user;
    printf("epoch %.0f: loss %.3f, accuracy %.1f %%, worst class %.1f %%\n", r->epoch, r->test.loss,
           100 * r->test.accuracy, 100 * r->test.worst_class_accuracy);
}

int main(void)
{
    static const char *const settings[][2] = {
        {"data", "synth:glyphs,n=600,test=200,size=16,classes=4"},
        {"model", "glyphnet"},
        {"optimizer", "recover"},
        {"epochs", "12"},
        {"batch", "32"},
        {"lambda", "5"}, /* the optimiser's */
    };
    dro_context *ctx;
    dro_train *train;
    if (dro_context_create(NULL, 1, &ctx) != DRO_OK)
        return 1;
    int status = dro_train_create(ctx, &train) == DRO_OK ? 0 : fail(ctx);
    for (size_t k = 0; status == 0 && k < sizeof settings / sizeof settings[0]; k++)
        if (dro_train_set(train, settings[k][0], settings[k][1]) != DRO_OK)
            status = fail(ctx);
    dro_train_watch watch = {
        .size = sizeof(dro_train_watch), .step = watch_step, .evaluated = show};
    if (status == 0 && dro_train_run(train, NULL, false, &watch) != DRO_OK)
        status = fail(ctx);
    const dro_train_record *last = status == 0 ? dro_train_last(train) : NULL;
    for (int32_t k = 0; last && k < last->test.classes; k++)
        printf("class %s: %.1f %%\n", dro_train_data(train)->class_names[k],
               100 * last->test.per_class[k]);
    dro_train_destroy(train);
    dro_context_destroy(ctx);
    return status;
}
