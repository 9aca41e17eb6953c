/* No memory, and files that cannot be read or written: what the library does when its k-th
 * allocation, or its k-th open(), read(), write(), fsync() or rename() fails, for many k. It fails
 * with DRO_ERR_MEMORY or DRO_ERR_FILE and a text, or it does without and the result is right. The
 * linker (--wrap) sends the library's calls here; other libraries keep theirs. Writes one temporary
 * folder. */
#include "train_runs.h"

#include <dro/dro.h>
#include <dro/export.h>
#include <dro/loader.h>
#include <dro/net.h>
#include <dro/report.h>
#include <dro/stream.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __real_open(const char *path, int flags, ...);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __real_pread64(int fd, void *bytes, size_t size, int64_t at);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __wrap_pread64(int fd, void *bytes, size_t size, int64_t at);
ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static atomic_long calls, fails_at; /* fails_at 0: none does */
static atomic_bool of_files;        /* calls are those of files, not of memory */

static bool is_next(bool files)
{
    return atomic_load(&of_files) == files &&
           atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fails_at);
}

static bool fails(void)
{
    return is_next(false);
}

static bool file_fails(void)
{
    bool next = is_next(true);
    errno = next ? EIO : errno;
    return next;
}

static int try_open(const char *path, int flags, va_list list)
{
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    return file_fails() ? -1 : __real_open(path, flags, mode);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int fd = try_open(path, flags, list);
    va_end(list);
    return fd;
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int fd = try_open(path, flags, list);
    va_end(list);
    return fd;
}

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    return file_fails() ? -1 : __real_read(fd, bytes, size);
}

ssize_t __wrap_pread64(int fd, void *bytes, size_t size, int64_t at)
{
    return file_fails() ? -1 : __real_pread64(fd, bytes, size, at);
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

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    return file_fails() ? -1 : __real_write(fd, bytes, size);
}

int __wrap_fsync(int fd)
{
    return file_fails() ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return file_fails() ? -1 : __real_rename(from, to);
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

/* A resumed run; "half" is a copy of it as it was stopped. */
static dro_status resume(const char *settings, double *sum)
{
    char command[300];
    dro_train *t;
    snprintf(command, sizeof command, "rm -rf %s/going && cp -r %s/half %s/going", dir, dir, dir);
    assert_int_equal(system(command), 0);
    DRO_TRY(dro_train_create(ctx, &t));
    dro_status status = set_words(t, settings);
    if (status == DRO_OK)
        status = dro_train_run(t, in_dir("going"), true, NULL);
    *sum = status == DRO_OK ? dro_train_last(t)->train.loss : 0;
    dro_train_destroy(t);
    return status;
}

/* Images and rows, batch by batch; then some of them as they are. */
static dro_status load(const char *spec, double *sum)
{
    static const int64_t ids[] = {1, 0};
    dro_loader_options options = dro_loader_options_default();
    dro_data *data;
    dro_loader *loader = NULL;
    dro_loaded batch;
    options.batch = 2;
    options.threads = 1;
    options.shuffle = options.augment = true;
    options.size = 16;
    *sum = 0;
    DRO_TRY(dro_data_open(ctx, spec, &data));
    dro_status status = dro_loader_create(data, DRO_TRAIN, &options, &loader);
    for (int k = 0; k < 4 && status == DRO_OK; k++) {
        status = dro_loader_draw(loader, 2 * (uint64_t)k, &batch);
        for (size_t i = 0; status == DRO_OK && i < batch.count; i++)
            *sum += (double)batch.ids[i] * (k + 1) + (batch.pixels ? (double)batch.pixels[i] : 0);
    }
    if (status == DRO_OK)
        status = dro_loader_gather(loader, ids, 2, &batch);
    if (status == DRO_OK)
        *sum += batch.pixels ? (double)batch.pixels[3] : 0;
    dro_loader_destroy(loader);
    dro_data_close(data);
    return status;
}

static dro_status stream(const char *spec, double *sum)
{
    dro_stream *s;
    dro_rows rows;
    *sum = 0;
    DRO_TRY(dro_stream_open(ctx, spec, &s));
    dro_status status;
    while ((status = dro_stream_next(s, 7, &rows)) == DRO_OK)
        for (size_t i = 0; i < rows.count; i++)
            *sum += (double)rows.values[rows.starts[i]] * (double)(i + 1);
    dro_stream_close(s);
    return status == DRO_ERR_END ? DRO_OK : status;
}

/* What a program lends, and what follows from it. */
static dro_status arrays(const char *kind, double *sum)
{
    static const float x[] = {1, 2, 3, 4, 5, 6}, targets[] = {1, 2, 4};
    static const uint8_t pixels[] = {1, 2, 3, 4, 5, 6};
    static const int32_t labels[] = {0, 1, 1}, groups[] = {1, 0, 1}, columns[] = {0, 1, 1, 0};
    static const int64_t starts[] = {0, 2, 3, 4};
    static const float weights[] = {1, 2, 0.5f};
    static const char *const names[] = {"no", "yes"};
    dro_arrays a = {.size = sizeof a, .count = 3, .features = 2, .groups = groups};
    a.weights = weights;
    if (strcmp(kind, "rows") == 0)
        a.x = x, a.labels = labels, a.class_names = names, a.classes = 2;
    else if (strcmp(kind, "sparse") == 0)
        a.starts = starts, a.columns = columns, a.values = x, a.targets = targets;
    else
        a.pixels = pixels, a.labels = labels, a.channels = 1, a.height = 1, a.width = 2;
    dro_data *data;
    dro_data_info info;
    DRO_TRY(dro_data_from_arrays(ctx, &a, &a, "", &data));
    dro_status status = dro_data_info_get(data, &info);
    *sum = (double)info.examples[DRO_TEST] + 10 * info.classes + 100 * (double)info.features;
    dro_data_close(data);
    return status;
}

/* A table's model with all that is asked of it. */
static dro_status ask(const char *spec, double *sum)
{
    dro_predictor *p;
    const dro_explanation *e;
    const dro_metrics *m;
    char weights[100], prior[100];
    snprintf(weights, sizeof weights, "%s/table/weights.safetensors", dir);
    snprintf(prior, sizeof prior, "%s/prior.csv", dir);
    *sum = 0;
    DRO_TRY(dro_predictor_open(ctx, weights, spec, &p));
    dro_status status = dro_predictor_explain(p, DRO_TRAIN, "chi2:0.5", "group", &e);
    *sum += status == DRO_OK ? e->value : 0;
    if (status == DRO_OK)
        status = dro_predictor_explain(p, DRO_TRAIN, "kl:1", "class", &e);
    *sum += status == DRO_OK ? e->value : 0;
    if (status == DRO_OK)
        status = dro_predictor_threshold(p, DRO_TRAIN, "f1", NULL, true);
    *sum += status == DRO_OK ? dro_predictor_threshold_get(p).probability : 0;
    if (status == DRO_OK)
        status = dro_predictor_prior(p, prior);
    if (status == DRO_OK)
        status = dro_predictor_evaluate(p, DRO_TRAIN, &m);
    *sum += status == DRO_OK ? m->loss : 0;
    dro_predictor_close(p);
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
    int from = name[0] == 'm' ? 0 : (int)strcspn(name, "."); /* m.py: of the run "kept" */
    snprintf(weights, sizeof weights, "%s/%.*s/weights.safetensors", dir, from ? from : 4,
             from ? name : "kept");
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

static void all_fail_of(bool files, const char *name, work *f, const char *what)
{
    dro_status expected = files ? DRO_ERR_FILE : DRO_ERR_MEMORY;
    double right = 0, sum = 0;
    int refused = 0;
    clear("trained");
    OK(ctx, f(what, &right)); /* what is made once and kept is made */
    clear("trained");
    atomic_store(&of_files, files);
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
        if (status != DRO_OK && status != expected)
            fail_msg("%s %s, call %ld of %ld: %s: %s", name, what, at, count,
                     dro_status_text(status), dro_context_error(ctx));
        if (status == DRO_OK && !(fabs(sum - right) <= 1e-5 * fabs(right))) /* pieces of batches */
            fail_msg("%s %s, call %ld of %ld: %.17g instead of %.17g", name, what, at, count, sum,
                     right);
        if (status != DRO_OK && !*dro_context_error(ctx))
            fail_msg("%s %s, call %ld of %ld: no text", name, what, at, count);
        refused += status != DRO_OK;
    }
    atomic_store(&of_files, false);
    print_message("%s %s: %ld %s, %d refused\n", name, what, count,
                  files ? "calls of files" : "allocations", refused);
    assert_true(refused > 0 || files); /* a run has two checkpoints */
}

static void all_fail(const char *name, work *f, const char *what)
{
    all_fail_of(false, name, f, what);
}

static void no_file(const char *name, work *f, const char *what)
{
    all_fail_of(true, name, f, what);
}

static const char *of(const char *format, const char *name)
{
    static char text[400];
    snprintf(text, sizeof text, format, in_dir(name));
    return text;
}

#define INAT                                                                                       \
    "{\"images\":[{\"id\":1,\"file_name\":\"a/1.pgm\"},{\"id\":2,\"file_name\":\"b/2.ppm\"}],"     \
    "\"annotations\":[{\"image_id\":1,\"category_id\":8},{\"image_id\":2,\"category_id\":3}],"     \
    "\"categories\":[{\"id\":8,\"name\":\"ant\"},{\"id\":3}]}"

/* Two classes of images in three formats. */
static void write_images(void)
{
    static const char *const files[][2] = {{"p5.pgm", "img/a/1.pgm"},
                                           {"jpeg_422.jpg", "img/a/3.jpg"},
                                           {"p6.ppm", "img/b/2.ppm"},
                                           {"jpeg_grey.jpg", "img/b/4.jpg"}};
    char from[300];
    mkdir(in_dir("img"), 0777);
    mkdir(in_dir("img/a"), 0777);
    mkdir(in_dir("img/b"), 0777);
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        snprintf(from, sizeof from, DRO_TEST_DIR "/refs/images/%s", files[k][0]);
        if (access(in_dir(files[k][1]), F_OK) != 0)
            assert_int_equal(symlink(from, in_dir(files[k][1])), 0);
    }
}

/* A SPEC with the folder three times. */
static const char *lists(const char *format)
{
    static char text[400];
    snprintf(text, sizeof text, format, dir, dir, dir);
    return text;
}

static void put(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static void write_tables(void)
{
    FILE *table = fopen(in_dir("t.csv"), "w"), *rows = fopen(in_dir("t.svm"), "w");
    assert_true(table && rows);
    fputs("a,town,place,y\n", table);
    put("prior.csv", "yes,0.3\nno,0.7\n");
    put("l.txt", "a/1.pgm 0\nb/2.ppm 1\na/3.jpg 0\n");
    put("j.json", INAT);
    put("p1.csv", "u,v,y\n1,Oslo,a\n2,,b\n");
    put("p2.csv", "u,v,y\n3,Rome,a\n4,Oslo,b\n");
    put("q1.svm", "1 1:1 2:0.5\n0 2:2\n");
    put("q2.svm", "1\n0 1:4\n");
    write_images();
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
    all_fail("data", open_data,
             of("csv:%s,label=y,weight=place,imratio=0.5,missing=NULL", "t.csv"));
    all_fail("data", open_data, of("csv:%s,label=y,encoding=latin1,longtail=exp:2", "t.csv"));
    all_fail("data", open_data, of("csv:%s,label=y", "p?.csv"));
    all_fail("data", open_data, of("libsvm:%s,classes=0:1", "q*.svm"));
    all_fail("data", open_data, "npy:" REFS "v1.npy.gz,labels=" REFS "y.npy,groups=" REFS "g.npy");
    all_fail("data", arrays, "rows");
    all_fail("data", arrays, "sparse");
    all_fail("data", arrays, "pixels");
    all_fail("loader", load, of("images:%s,holdout=0.5", "img"));
    all_fail("loader", load, of("images:%s,channels=1", "img"));
    all_fail("loader", load, DATA);
    all_fail("data", open_data, lists("list:%s/l.txt,root=%s/img,test=%s/l.txt"));
    all_fail("data", open_data, lists("inat:%s/j.json,root=%s/img,test=%s/j.json"));
    all_fail("stream", stream, of("libsvm:%s,features=3,shuffle=4", "q*.svm"));
    all_fail("stream", stream, of("csv:%s,label=y,learn=3,shuffle=8", "p?.csv"));
}

static void test_files(void **state)
{
    (void)state;
    write_tables();
    no_file("data", open_data, of("csv:%s,label=y,group=place,holdout=0.2", "t.csv"));
    no_file("data", open_data, of("csv:%s,label=y", "p?.csv"));
    no_file("data", open_data, of("libsvm:%s,holdout=0.2", "t.svm"));
    no_file("data", open_data, "npy:" REFS "arrays.npz,x=rows,labels=y");
    no_file("data", open_data, "npy:" REFS "deflated.npz");
    no_file("data", open_data, "npy:" REFS "v1.npy.gz,labels=" REFS "y.npy,groups=" REFS "g.npy");
    no_file("data", open_data, "idx:" REFS "idx");
    no_file("loader", load, of("images:%s", "img"));
    no_file("data", open_data, lists("list:%s/l.txt,root=%s/img,test=%s/l.txt"));
    no_file("data", open_data, lists("inat:%s/j.json,root=%s/img,test=%s/j.json"));
    no_file("stream", stream, of("libsvm:%s,features=3,shuffle=4", "q*.svm"));
    no_file("stream", stream, of("csv:%s,label=y,learn=3,shuffle=8", "p?.csv"));
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
    all_fail("train", train,
             "data=synth:glyphs,n=40,test=6,size=8,classes=2,holdout=0.2 model=mlp:2 optimizer=sgd "
             "steps=4 stage2=1 batch=16 best=loss mixup=1 ema=0.5");
    all_fail("train", train, of("data=images:%s model=mlp:2 size=97 steps=2 batch=2", "img"));
    all_fail("train", train,
             of("data=csv:%s,label=y steps=2 batch=16 optimizer=sgd exact=yes", "t.csv"));
    all_fail("train", train,
             of("data=libsvm:%s,features=5000 steps=2 batch=16 optimizer=sgd exact=yes", "t.svm"));
    no_file("train", train, "data=" DATA " model=mlp:4 steps=3 batch=16 best=accuracy");
    no_file("train", train,
            of("data=csv:%s,label=y,learn=20 progressive=yes batch=16 report_every=20", "t.csv"));
}

static void test_trained(void **state)
{
    (void)state;
    clear("kept");
    OK(ctx, run_to("model=mlp:4 steps=5", "kept", false, UINT64_MAX, NULL));
    all_fail("predict", predict, DATA);
    no_file("predict", predict, DATA);
    all_fail("export", export, "m.onnx");
    all_fail("export", export, "m.py");
    no_file("export", export, "m.onnx");
    no_file("report", make_report, "page.html");
    all_fail("report", make_report, "page.html");
}

static void test_networks(void **state)
{
    (void)state;
    all_fail("network", build, "mlp:8,4");
    all_fail("network", build, "glyphnet");
    all_fail("network", build, "resnet20");
    no_file("network", build, "mlp:8,4");
}

static void test_table(void **state)
{
    (void)state;
    write_tables();
    clear("table");
    OK(ctx, run_to(of("data=csv:%s,label=y,group=place model=linear steps=5 best=none", "t.csv"),
                   "table", false, UINT64_MAX, NULL));
    all_fail("ask", ask, of("csv:%s,label=y,group=place", "t.csv"));
    no_file("ask", ask, of("csv:%s,label=y,group=place", "t.csv"));
    all_fail("export", export, "table.onnx");
    all_fail("export", export, "table.py");
}

static bool stop_after_two(void *user, const dro_train_progress *p)
{
    (void)user;
    return !p->evaluating && p->step >= 2;
}

/* A stream that was stopped, of two files and of one. */
static void test_resume_stream(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "data=csv:%s,label=y,learn=20 progressive=yes batch=8 report_every=20",
        "data=libsvm:%s,features=3 progressive=yes batch=1 report_every=2"};
    static const char *const files[] = {"t.csv", "q*.svm"};
    write_tables();
    for (int k = 0; k < 2; k++) {
        dro_train_watch watch = {.size = sizeof watch, .step = stop_after_two};
        dro_train *t;
        clear("half");
        OK(ctx, dro_train_create(ctx, &t));
        OK(ctx, set_words(t, of(settings[k], files[k])));
        OK(ctx, dro_train_run(t, in_dir("half"), false, &watch));
        assert_int_equal(dro_train_ended(t), DRO_TRAIN_INTERRUPTED);
        dro_train_destroy(t);
        all_fail("resume", resume, of(settings[k], files[k]));
        no_file("resume", resume, of(settings[k], files[k]));
    }
}

/* Models of images and of rows, as programs of others. */
static void test_exports(void **state)
{
    (void)state;
    static const char *const runs[][2] = {
        {"resnet20", "model=resnet20 steps=1"},
        {"glyphnet", "model=glyphnet loss=logit-adjusted steps=1"},
        {"real", "data=csv:%s,label=a,target=real model=mlp:4 best=none steps=1"},
        {"rows", "data=libsvm:%s model=linear best=none steps=1"}};
    char name[40];
    write_tables();
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        clear(runs[k][0]);
        const char *settings = of(runs[k][1], k == 3 ? "t.svm" : "t.csv");
        OK(ctx, run_to(settings, runs[k][0], false, UINT64_MAX, NULL));
        snprintf(name, sizeof name, "%s.onnx", runs[k][0]);
        all_fail("export", export, name);
        snprintf(name, sizeof name, "%s.py", runs[k][0]);
        all_fail("export", export, name);
    }
}

static void test_resume(void **state)
{
    (void)state;
    clear("half");
    OK(ctx, run_to("model=mlp:4 optimizer=sgd", "half", false, 15, NULL));
    const char *settings =
        "data=" DATA " batch=16 steps=20 eval_every=0.5 best=balanced_accuracy model=mlp:4 "
        "optimizer=sgd";
    all_fail("resume", resume, settings);
    no_file("resume", resume, settings);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_data),    cmocka_unit_test(test_train),
    cmocka_unit_test(test_trained), cmocka_unit_test(test_networks),
    cmocka_unit_test(test_files),   cmocka_unit_test(test_table),
    cmocka_unit_test(test_resume),  cmocka_unit_test(test_resume_stream),
    cmocka_unit_test(test_exports),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
