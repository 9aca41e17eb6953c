/* No memory: what the library does when its k-th allocation fails, for many k. It says so with
 * DRO_ERR_MEMORY and a text, or it does without that memory and the result is the right one. The
 * linker (--wrap) sends the library's allocations here; other libraries keep theirs. Writes one
 * temporary folder. */
#include "train_runs.h"

#include <dro/dro.h>
#include <dro/export.h>
#include <dro/net.h>
#include <dro/report.h>
#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static atomic_long calls, fails_at; /* fails_at 0: none does */

static bool fails(void)
{
    return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fails_at);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* ---- what is done: *sum is the same whenever it succeeds ---- */

typedef dro_status work(const char *what, double *sum);

static dro_status open_data(const char *spec, double *sum)
{
    dro_data *data;
    dro_data_info info;
    DRO_TRY(dro_data_open(ctx, spec, &data));
    dro_status status = dro_data_info_get(data, &info);
    *sum = (double)info.examples[DRO_TRAIN] + 1000 * (double)info.features + 1e6 * info.classes;
    dro_data_close(data);
    return status;
}

static dro_status set_words(dro_train *t, const char *settings)
{
    char text[512], *rest = text, *word;
    snprintf(text, sizeof text, "%s", settings);
    dro_status status = DRO_OK;
    while (status == DRO_OK && (word = strtok_r(rest, " ", &rest))) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        status = dro_train_set(t, word, value);
    }
    return status;
}

static dro_status train(const char *settings, double *sum)
{
    char folder[100];
    dro_train *t;
    DRO_TRY(dro_train_create(ctx, &t));
    dro_status status = set_words(t, settings);
    snprintf(folder, sizeof folder, "%s/trained", dir);
    if (status == DRO_OK)
        status = dro_train_run(t, folder, false, NULL);
    if (status == DRO_OK) {
        const dro_train_record *r = dro_train_last(t);
        const dro_metrics *m = r->has_train ? &r->train : &r->test;
        *sum = m->loss + m->objective;
    }
    dro_train_destroy(t);
    return status;
}

static dro_status predict(const char *spec, double *sum)
{
    char weights[100];
    dro_predictor *p;
    const dro_metrics *m;
    float logits[3 * 30];
    double shares[3 * 30];
    snprintf(weights, sizeof weights, "%s/kept/weights.safetensors", dir);
    DRO_TRY(dro_predictor_open(ctx, weights, spec, &p));
    dro_status status = dro_predictor_logits(p, DRO_TEST, 0, 30, logits, NULL);
    if (status == DRO_OK)
        status = dro_predictor_probabilities(p, 30, logits, shares);
    if (status == DRO_OK)
        status = dro_predictor_evaluate(p, DRO_TEST, &m);
    if (status == DRO_OK)
        *sum = m->loss + shares[4];
    dro_predictor_close(p);
    return status;
}

static dro_status export(const char *name, double *sum)
{
    char weights[100], path[100];
    struct stat about;
    snprintf(weights, sizeof weights, "%s/kept/weights.safetensors", dir);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (strstr(name, ".onnx"))
        DRO_TRY(dro_export_onnx(ctx, weights, path));
    else
        DRO_TRY(dro_export_torch(ctx, weights, path));
    assert_int_equal(stat(path, &about), 0);
    *sum = (double)about.st_size;
    return DRO_OK;
}

static dro_status make_report(const char *name, double *sum)
{
    char path[100];
    struct stat about;
    dro_report *report;
    DRO_TRY(dro_report_create(ctx, &report));
    snprintf(path, sizeof path, "%s/kept", dir);
    dro_status status = dro_report_add(report, path);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (status == DRO_OK)
        status = dro_report_html(report, path);
    dro_report_destroy(report);
    *sum = status == DRO_OK && stat(path, &about) == 0 ? (double)about.st_size : 0;
    return status;
}

static dro_status build(const char *model, double *sum)
{
    char path[100];
    dro_model_shape shape = {3, 16, 16, 4};
    dro_net *net;
    snprintf(path, sizeof path, "%s/net.safetensors", dir);
    DRO_TRY(dro_net_model(ctx, model, &shape, &net));
    dro_status status = dro_net_ready(net);
    if (status == DRO_OK)
        status = dro_net_init(net, 1);
    if (status == DRO_OK)
        status = dro_net_save(net, path);
    if (status == DRO_OK)
        status = dro_net_load(net, path, NULL);
    *sum = status == DRO_OK ? (double)dro_net_dim(net) : 0;
    dro_net_destroy(net);
    return status;
}

/* ---- every k, or MOST of them where there are more ---- */

enum { MOST = 1200 };

static void all_fail(const char *name, work *f, const char *what)
{
    double right = 0, sum = 0;
    int refused = 0;
    clear("trained");
    OK(ctx, f(what, &right)); /* what is made once and kept is made */
    clear("trained");
    atomic_store(&calls, 0);
    OK(ctx, f(what, &sum));
    long count = atomic_load(&calls);
    assert_true(sum == right && count > 0);
    for (long k = 0; k < (count < MOST ? count : MOST); k++) {
        clear("trained");
        atomic_store(&calls, 0);
        atomic_store(&fails_at, 1 + (count < MOST ? k : k * count / MOST));
        dro_status status = f(what, &sum);
        long at = atomic_exchange(&fails_at, 0);
        if (status != DRO_OK && status != DRO_ERR_MEMORY)
            fail_msg("%s %s, allocation %ld of %ld: %s: %s", name, what, at, count,
                     dro_status_text(status), dro_context_error(ctx));
        if (status == DRO_OK && !(fabs(sum - right) <= 1e-5 * fabs(right))) /* pieces of batches */
            fail_msg("%s %s, allocation %ld of %ld: %.17g instead of %.17g", name, what, at, count,
                     sum, right);
        if (status != DRO_OK && !*dro_context_error(ctx))
            fail_msg("%s %s, allocation %ld of %ld: no text", name, what, at, count);
        refused += status != DRO_OK;
    }
    print_message("%s %s: %ld allocations, %d refused\n", name, what, count, refused);
    assert_true(refused > 0);
}

static const char *of(const char *format, const char *name)
{
    static char text[400];
    snprintf(text, sizeof text, format, in_dir(name));
    return text;
}

static void write_tables(void)
{
    FILE *table = fopen(in_dir("t.csv"), "w"), *rows = fopen(in_dir("t.svm"), "w");
    assert_true(table && rows);
    fputs("a,town,place,y\n", table);
    for (int i = 0; i < 60; i++) {
        fprintf(table, "%g,%s,%d,%s\n", sin(i * i), i % 3 ? "Oslo" : "Rome", i % 2,
                sin(i * i) > 0.2 ? "yes" : "no");
        fprintf(rows, "%s 1:%g 2:1\n", sin(i * i) > 0.2 ? "+1" : "-1", sin(i * i));
    }
    fclose(table);
    fclose(rows);
}

static void test_data(void **state)
{
    (void)state;
    write_tables();
    all_fail("data", open_data, of("csv:%s,label=y,group=place,holdout=0.2", "t.csv"));
    all_fail("data", open_data, of("csv:%s,label=a,target=real", "t.csv"));
    all_fail("data", open_data, of("libsvm:%s,holdout=0.2", "t.svm"));
    all_fail("data", open_data, of("libsvm:%s,features=5000", "t.svm"));
    all_fail("data", open_data, "npy:" REFS "arrays.npz,x=rows,labels=y");
    all_fail("data", open_data, "idx:" REFS "idx");
    all_fail("data", open_data, DATA);
}

static void test_train(void **state)
{
    (void)state;
    write_tables();
    all_fail("train", train, of("data=csv:%s,label=y,holdout=0.2 steps=3 best=accuracy", "t.csv"));
    all_fail("train", train, of("data=csv:%s,label=y,holdout=0.2 steps=3 model=auto", "t.csv"));
    all_fail("train", train,
             of("data=csv:%s,label=y steps=2 optimizer=lbfgs objective=cvar:0.2", "t.csv"));
    all_fail("train", train, of("data=libsvm:%s,features=5000 steps=3", "t.svm"));
    all_fail("train", train,
             of("data=libsvm:%s,features=2 progressive=yes batch=16 report_every=20", "t.svm"));
    all_fail("train", train,
             of("data=csv:%s,label=y,learn=20 progressive=yes batch=16 report_every=20", "t.csv"));
    all_fail("train", train, "data=" DATA " model=mlp:4 steps=3 batch=16");
}

static void test_trained(void **state)
{
    (void)state;
    clear("kept");
    OK(ctx, run_to("model=mlp:4 steps=5", "kept", false, UINT64_MAX, NULL));
    all_fail("predict", predict, DATA);
    all_fail("export", export, "m.onnx");
    all_fail("export", export, "m.py");
    all_fail("report", make_report, "page.html");
}

static void test_networks(void **state)
{
    (void)state;
    all_fail("network", build, "mlp:8,4");
    all_fail("network", build, "glyphnet");
    all_fail("network", build, "resnet20");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_data),
    cmocka_unit_test(test_train),
    cmocka_unit_test(test_trained),
    cmocka_unit_test(test_networks),
};

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup_train, teardown);
}
