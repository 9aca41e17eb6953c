/* Runs over a stream: exact resuming, the last rows, tables, paths that look like options; its loss
 * and its F. */
#include "train_runs.h"

#include "safetensors.h"

#include <math.h>

#define SIGNS "libsvm:%s,features=5"

/* Rows of two classes; with `gap`, one of them cannot be read. */
static void write_rows(const char *name, int count, int gap)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        double x = cos(3.7 * i), y = sin(1.3 * i * i);
        fprintf(f, "%s 1:%.5f 3:%.5f 5:1\n",
                i == gap            ? "what"
                : x + 0.3 * y > 0.2 ? "+1"
                                    : "-1",
                x, y);
    }
    fclose(f);
}

static void write_table(const char *name, int count)
{
    static const char *const places[] = {"here", "there", "far away"};
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    fprintf(f, "size,place,kind\n");
    for (int i = 0; i < count; i++)
        fprintf(f, "%.3f,%s,%s\n", 50 + 20 * cos(3.7 * i), places[i % 3],
                cos(3.7 * i) > 0.2 ? "large" : "small");
    fclose(f);
}

static dro_train *make_stream(const char *spec, const char *file, const char *more)
{
    dro_train *t;
    char data[400], settings[500];
    OK(ctx, dro_train_create(ctx, &t));
    snprintf(data, sizeof data, spec, in_dir(file));
    snprintf(settings, sizeof settings, "data=%s progressive=yes batch=16 report_every=48 %s", data,
             more);
    set_all(t, settings);
    return t;
}

/* record (optional): the last one. */
static dro_status run_stream(const char *spec, const char *file, const char *more, const char *name,
                             bool resume, uint64_t stop, dro_train_record *record)
{
    char folder[300];
    stopper s = {.at = stop};
    dro_train_watch watch = watch_of(&s);
    dro_train *t = make_stream(spec, file, more);
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    dro_status status = dro_train_run(t, folder, resume, &watch);
    if (record && status == DRO_OK)
        *record = *dro_train_last(t);
    dro_train_destroy(t);
    return status;
}

/* result.json counts, of each class, the examples that came. */
static void check_counts(const char *name, const dro_metrics *m)
{
    size_t size;
    int64_t sum = 0;
    char *result = slurp(name, "result.json", &size), *at = strstr(result, "\"class_counts\": [");
    assert_non_null(at);
    at = strchr(at, '[') + 1;
    for (int32_t k = 0; k < m->classes; k++, at = strchr(at, ',') + 1) {
        assert_true(strtoll(at, NULL, 10) > 0);
        sum += strtoll(at, NULL, 10);
    }
    assert_int_equal(sum, m->classes ? m->examples : 0);
    dro__free(result);
}

/* Stopped before any step and resumed, a run ends as the whole one did: with every row. */
static void resumes(const char *spec, const char *file, const char *more, int count)
{
    size_t size;
    dro_train_record r = {0};
    clear("whole");
    OK(ctx, run_stream(spec, file, more, "whole", false, UINT64_MAX, &r));
    assert_int_equal(r.test.examples, count);
    assert_int_equal(r.info.examples, count);
    assert_int_equal(r.info.step, (count + 15) / 16);
    char *metrics = slurp("whole", "metrics.jsonl", &size);
    assert_non_null(strstr(metrics, "\"window\""));
    check_counts("whole", &r.test);
    dro__free(metrics);
    for (uint64_t k = 0; k <= r.info.step; k += k + 3 < r.info.step ? 3 : 1) {
        clear("parts");
        OK(ctx, run_stream(spec, file, more, "parts", false, k, NULL));
        dro__free(slurp("parts", "result.json", &size));
        OK(ctx, run_stream(spec, file, more, "parts", true, UINT64_MAX, NULL));
        same_file("whole", "parts", "weights.safetensors");
        same_file("whole", "parts", "metrics.jsonl");
        same_file("whole", "parts", DRO__EVENTS_NAME);
    }
}

static void test_resume(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"recover eta=0.5", "cover", "ascpg", "absgd", "sgd"};
    write_rows("rows", 400, -1);
    resumes(SIGNS, "rows", "optimizer=recover eta=0.5", 400);
    resumes(SIGNS, "rows", /* its lines name the F of the whole and of the window */
            "lambda=100 switch_step=8 switch_lambda=0.5 switch_tilt=class reg=l1 reg_strength=0.01",
            400);
    static const char *const objectives[] = {"objective=cvar:0.3", "objective=chi2:1 tilt=class",
                                             "optimizer=cover objective=kl-radius:0.1",
                                             "lambda=2 report_objective=cvar:0.2"};
    for (size_t k = 0; k < sizeof objectives / sizeof objectives[0]; k++)
        resumes(SIGNS, "rows", objectives[k], 400);
    for (size_t k = 0; k < sizeof optimizers / sizeof optimizers[0]; k++) {
        char more[64];
        snprintf(more, sizeof more, "optimizer=%s", optimizers[k]);
        write_rows("rows", 409, -1);
        resumes(SIGNS, "rows", more, 409);
        write_rows("rows", 5, -1);
        resumes(SIGNS, "rows", more, 5);
        strcat(more, " batch=5"); /* a short batch is learned from as one of its size */
        clear("parts");
        OK(ctx, run_stream(SIGNS, "rows", more, "parts", false, UINT64_MAX, NULL));
        same_file("whole", "parts", "weights.safetensors");
    }
}

static int lines_of(const char *name, const char *steps)
{
    size_t size;
    int lines = 0;
    char *text = slurp(name, "metrics.jsonl", &size), *rest = text, *line;
    for (; (line = strtok_r(rest, "\n", &rest)); lines++) {
        char start[32];
        snprintf(start, sizeof start, "{\"step\":%d,", (int)strtol(steps, (char **)&steps, 10));
        assert_memory_equal(line, start, strlen(start));
    }
    dro__free(text);
    return lines;
}

/* 25 reports: lines for all of the first four, every second of the next eight, every fourth then.
 * All windows are measured, so the last figures are the same; a resumed run continues to count. */
static void test_report_most(void **state)
{
    (void)state;
    dro_train_record all, few;
    write_rows("rows", 400, -1);
    clear("all");
    clear("few");
    OK(ctx,
       run_stream(SIGNS, "rows", "report_every=16 report_most=0", "all", false, UINT64_MAX, &all));
    OK(ctx,
       run_stream(SIGNS, "rows", "report_every=16 report_most=4", "few", false, UINT64_MAX, &few));
    assert_int_equal(lines_of("few", "1 2 3 4 6 8 10 12 16 20 24"), 11);
    assert_true(few.window.examples == 16 && few.window.loss == all.window.loss);
    resumes(SIGNS, "rows", "report_every=16 report_most=4", 400);
}

/* The last rows change the weights, and a file that has grown is read on after them. */
static void test_last_rows(void **state)
{
    (void)state;
    dro_train_record r = {0};
    size_t size, short_size;
    const char *more = "optimizer=sgd eta=0.5 warmup=0";
    clear("whole");
    clear("parts");
    write_rows("rows", 96, -1);
    OK(ctx, run_stream(SIGNS, "rows", more, "whole", false, UINT64_MAX, NULL));
    write_rows("rows", 103, -1);
    OK(ctx, run_stream(SIGNS, "rows", more, "parts", false, UINT64_MAX, NULL));
    char *w = slurp("whole", "weights.safetensors", &size);
    char *longer = slurp("parts", "weights.safetensors", &short_size);
    assert_true(size != short_size || memcmp(w, longer, size) != 0);
    dro__free(w), dro__free(longer);
    for (int more_rows = 150; more_rows <= 300; more_rows += 150) {
        write_rows("rows", more_rows, -1);
        OK(ctx, run_stream(SIGNS, "rows", more, "parts", true, UINT64_MAX, &r));
        assert_int_equal(r.test.examples, more_rows);
        assert_int_equal(r.info.examples, more_rows);
    }
    write_rows("rows", 200, -1);
    FAILS(ctx, run_stream(SIGNS, "rows", more, "parts", true, UINT64_MAX, NULL), DRO_ERR_DATA,
          "shorter than it was");
}

static void test_refuses(void **state)
{
    (void)state;
    size_t size;
    write_rows("rows", 400, 200);
    clear("parts");
    FAILS(ctx, run_stream(SIGNS, "rows", "", "parts", false, UINT64_MAX, NULL), DRO_ERR_DATA,
          "line 201");
    dro__free(slurp("parts", "last.ckpt", &size));
    dro_train *t = make_stream(SIGNS, "rows", "model=mlp");
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_UNSUPPORTED, "expected linear");
    dro_train_destroy(t);
    t = make_stream("libsvm:%s,features=4", "rows", "");
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_DATA,
          "line 1: index of '5:1': expected at most 4, as features=4 says");
    dro_train_destroy(t);
    write_table("table", 60);
    t = make_stream("csv:%s,label=place", "table", "loss=squared");
    FAILS(ctx, dro_train_run(t, NULL, false, NULL), DRO_ERR_UNSUPPORTED,
          "loss squared on a stream of 3 classes: expected cross-entropy");
    dro_train_destroy(t);
}

/* A run that has learned nothing is no run: its folder takes the next one, and keeps what was not
 * the run's. */
static void test_nothing_learned(void **state)
{
    (void)state;
    size_t size;
    char path[400];
    write_rows("bad", 40, 3);
    write_rows("none", 0, -1);
    write_rows("rows", 40, -1);
    clear("parts");
    FAILS(ctx, run_stream(SIGNS, "bad", "", "parts", false, UINT64_MAX, NULL), DRO_ERR_DATA,
          "line 4");
    assert_int_not_equal(access(in_dir("parts"), F_OK), 0);
    assert_int_equal(mkdir(in_dir("parts"), 0777), 0);
    write_file("parts/mine", "text", 4);
    FAILS(ctx, run_stream(SIGNS, "none", "", "parts", false, UINT64_MAX, NULL), DRO_ERR_DATA,
          "has no rows");
    OK(ctx, run_stream(SIGNS, "rows", "", "parts", false, UINT64_MAX, NULL));
    dro__free(slurp("parts", "mine", &size));
    dro__free(slurp("parts", "result.json", &size));
    /* One that has learned something is left alone, also by a try that fails. */
    FAILS(ctx, run_stream(SIGNS, "bad", "", "parts", false, UINT64_MAX, NULL), DRO_ERR_FILE,
          "already holds a run");
    write_rows("late", 40, 30);
    clear("late_run");
    FAILS(ctx, run_stream(SIGNS, "late", "", "late_run", false, UINT64_MAX, NULL), DRO_ERR_DATA,
          "line 31");
    snprintf(path, sizeof path, "%s", in_dir("late_run/last.ckpt"));
    assert_int_equal(access(path, F_OK), 0);
    FAILS(ctx, run_stream(SIGNS, "bad", "", "late_run", true, UINT64_MAX, NULL), DRO_ERR_FORMAT,
          "the run was made with");
    assert_int_equal(access(path, F_OK), 0);
}

/* What a file is called says nothing of how it is read. */
static void test_path_is_no_option(void **state)
{
    (void)state;
    static const char *const names[] = {"features=1", "target=real", "labels=written", "shuffle=99",
                                        "features=1;target=real;shuffle=99"};
    write_rows("rows", 100, -1);
    clear("whole");
    OK(ctx, run_stream(SIGNS, "rows", "", "whole", false, UINT64_MAX, NULL));
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        write_rows(names[k], 100, -1);
        clear("parts");
        OK(ctx, run_stream(SIGNS, names[k], "", "parts", false, UINT64_MAX, NULL));
        same_file("whole", "parts", "weights.safetensors");
        same_file("whole", "parts", "metrics.jsonl");
    }
    clear("parts");
    OK(ctx, run_stream(SIGNS ",shuffle=99", "rows", "", "parts", false, UINT64_MAX, NULL));
    size_t a, b;
    char *x = slurp("whole", "weights.safetensors", &a);
    char *y = slurp("parts", "weights.safetensors", &b);
    assert_true(a != b || memcmp(x, y, a) != 0); /* in another order: another result */
    dro__free(x), dro__free(y);
}

static void test_table(void **state)
{
    (void)state;
    const char *more = "optimizer=recover eta=0.5";
    char path[300], data[300];
    dro_predictor *p;
    const dro_metrics *m;
    write_table("table", 409);
    resumes("csv:%s,label=kind,learn=50", "table", more, 409);
    resumes("csv:%s,label=kind,labels=classes", "table", more, 409);
    resumes("csv:%s,label=size,target=real", "table", "optimizer=sgd eta=0.0001", 409);
    resumes("csv:%s,label=place,positive=here", "table", more, 409);
    clear("whole");
    OK(ctx, run_stream("csv:%s,label=3", "table", more, "whole", false, UINT64_MAX, NULL));
    snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
    write_table("other", 30); /* read as the model was trained, not by its own means */
    snprintf(data, sizeof data, "csv:%s,label=kind", in_dir("other"));
    OK(ctx, dro_predictor_open(ctx, path, data, &p));
    OK(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m));
    assert_int_equal(m->examples, 30);
    assert_true(m->accuracy > 0.9);
    dro_predictor_close(p);
    FILE *f = fopen(in_dir("table"), "w"); /* other first rows, other features */
    assert_non_null(f);
    fprintf(f, "size,place,kind\n1,here,large\n2,there,small\n3,far away,small\n");
    fclose(f);
    FAILS(ctx, run_stream("csv:%s,label=3", "table", more, "whole", true, UINT64_MAX, NULL),
          DRO_ERR_DATA, "are not those that the run started with");
}

/* ---- more than two classes ---- */

enum { MANY = 3, WIDTH = 4 }; /* three features and the constant */

/* The class depends on two of the three features. */
static void write_many(bool csv, int count)
{
    static const char *const names[] = {"5", "7", "12"};
    FILE *f = fopen(in_dir("many"), "w");
    assert_non_null(f);
    fprintf(f, csv ? "a,b,c,kind\n" : "");
    for (int i = 0; i < count; i++) {
        double x[] = {cos(3.7 * i), sin(1.3 * i * i), cos(0.9 * i * i)};
        int class = x[0] > 0.3 ? 0 : x[1] > 0 ? 1 : 2;
        if (csv)
            fprintf(f, "%.4f,%.4f,%.4f,class %s\n", x[0], x[1], x[2], names[class]);
        else
            fprintf(f, "%s 1:%.4f 2:%.4f 3:%.4f\n", names[class], x[0], x[1], x[2]);
    }
    fclose(f);
}

/* The mean gradient of cross-entropy over 16 rows, w (MANY, WIDTH), taken off w. */
static void descend(double w[MANY][WIDTH], int first, double eta)
{
    double slope[MANY][WIDTH] = {{0}};
    for (int i = first; i < first + 16; i++) {
        double x[] = {cos(3.7 * i), sin(1.3 * i * i), cos(0.9 * i * i), 1}, p[MANY], sum = 0;
        int class = x[0] > 0.3 ? 0 : x[1] > 0 ? 1 : 2;
        for (int k = 0; k < MANY; k++) {
            double z = 0;
            for (int j = 0; j < WIDTH; j++)
                z += w[k][j] * x[j];
            sum += p[k] = exp(z);
        }
        for (int k = 0; k < MANY; k++)
            for (int j = 0; j < WIDTH; j++)
                slope[k][j] += (p[k] / sum - (k == class)) * x[j] / 16;
    }
    for (int k = 0; k < MANY; k++)
        for (int j = 0; j < WIDTH; j++)
            w[k][j] -= eta * slope[k][j];
}

/* Steps of plain gradient descent are those of softmax regression. */
static void test_many_steps(void **state)
{
    (void)state;
    double w[MANY][WIDTH] = {{0}};
    float got[MANY * WIDTH];
    dro__safetensors *file;
    write_many(false, 320);
    clear("whole");
    OK(ctx,
       run_stream("libsvm:%s,features=3,scale=none", "many",
                  "optimizer=sgd momentum=0 eta=0.5 warmup=0", "whole", false, UINT64_MAX, NULL));
    for (int i = 0; i < 320; i += 16)
        descend(w, i, 0.5);
    OK(ctx, dro__safetensors_open(ctx, in_dir("whole/weights.safetensors"), &file));
    int64_t at = dro__safetensors_find(file, "fc.weight");
    assert_true(at >= 0);
    OK(ctx, dro__safetensors_read(file, (size_t)at, got, MANY * WIDTH));
    dro__safetensors_close(file);
    for (int k = 0; k < MANY * WIDTH; k++)
        check_near("weight", (double)got[k], w[k / WIDTH][k % WIDTH], 2e-3);
}

/* Resumed exactly, with every optimiser; predicted and evaluated, also where a table has its
 * classes in another order. */
static void test_many(void **state)
{
    (void)state;
    static const char *const specs[] = {"csv:%s,label=kind", "libsvm:%s,features=3",
                                        "libsvm:%s,features=3,classes=12:7:5"};
    static const char *const settings[] = {"",
                                           "tilt=class lambda=0.5",
                                           "optimizer=cover",
                                           "optimizer=ascpg",
                                           "optimizer=absgd",
                                           "optimizer=sgd"};
    char path[300], data[300];
    dro_predictor *p;
    const dro_metrics *m;
    dro_train_record plain = {0}, tilted = {0};
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        write_many(k % 2 == 0, 409);
        resumes(specs[k % 2], "many", settings[k], 409);
    }
    resumes(specs[2], "many", "", 409);
    for (int k = 0; k < 2; k++) {
        write_many(k == 0, 2000);
        clear("whole");
        OK(ctx, run_stream(specs[k], "many", "", "whole", false, UINT64_MAX, &plain));
        assert_true(plain.test.classes == 3 && plain.window.accuracy > 0.85);
        assert_true(plain.window.average_precision > 0.85);
        snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
        snprintf(data, sizeof data, k ? "libsvm:%s" : "csv:%s,label=kind", in_dir("many"));
        OK(ctx, dro_predictor_open(ctx, path, data, &p));
        assert_string_equal(dro_predictor_loss(p), "cross-entropy");
        assert_string_equal(dro_predictor_class_name(p, 2), k ? "12" : "class 7");
        OK(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m));
        assert_int_equal(m->examples, 2000);
        assert_true(m->accuracy > 0.88 && fabs(m->loss - plain.test.loss) < 0.3);
        dro_predictor_close(p);
    }
    clear("whole"); /* the robust objective weighs the classes */
    OK(ctx,
       run_stream(specs[1], "many", "tilt=class lambda=0.1", "whole", false, UINT64_MAX, &tilted));
    assert_true(tilted.test.worst_class_accuracy > plain.test.worst_class_accuracy);
}

/* Rows whose first ones have other classes are not those of the run, however many classes there
 * are. */
static void test_other_classes(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *begins, *kinds[2][3];
    } runs[] = {
        {"csv:%s,label=kind,learn=60", "size,kind\n", {{"p", "q", "q"}, {"q", "r", "r"}}},
        {"csv:%s,label=kind,learn=60", "size,kind\n", {{"p", "q", "r"}, {"q", "r", "s"}}},
        {"libsvm:%s,features=2,learn=60", "", {{"1", "2", "2"}, {"2", "3", "3"}}},
        {"libsvm:%s,features=2,learn=60,scale=none", "", {{"1", "2", "4"}, {"1", "2", "5"}}}};
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++)
        for (int other = 0; other < 2; other++) {
            bool csv = *runs[k].begins;
            FILE *f = fopen(in_dir("other"), "w");
            fputs(runs[k].begins, f);
            for (int i = 0; i < 200; i++) {
                const char *kind = runs[k].kinds[other][i % 3];
                if (csv)
                    fprintf(f, "%.3f,%s\n", cos(i), kind);
                else
                    fprintf(f, "%s 1:%.3f\n", kind, cos(i));
            }
            fclose(f);
            if (other) {
                FAILS(ctx, run_stream(runs[k].spec, "other", "", "parts", true, UINT64_MAX, NULL),
                      DRO_ERR_DATA, "are not those that the run started with");
                continue;
            }
            clear("parts");
            OK(ctx, run_stream(runs[k].spec, "other", "", "parts", false, 6, NULL));
        }
}

/* A checkpoint that somebody has changed, checksum and all: wherever it is changed, the run goes on
 * or says that it cannot. */
static void test_forged(void **state)
{
    (void)state;
    static const uint32_t words[] = {UINT32_MAX, INT32_MAX, 3, 0x7fc00000};
    char folder[300], note[DRO__ERROR_SIZE];
    dro__saved saved;
    bool found;
    int refused = 0;
    write_many(true, 100);
    clear("forged");
    OK(ctx, run_stream("csv:%s,label=kind,learn=60", "many", "batch=4 report_every=12", "forged",
                       false, 8, NULL));
    snprintf(folder, sizeof folder, "%s/forged", dir);
    OK(ctx, dro__checkpoint_read(ctx, folder, &saved, &found, note));
    char *more = saved.more;
    for (size_t at = 0, k = 0; at + 4 <= saved.more_size; at += 4, k++) {
        uint32_t kept;
        memcpy(&kept, more + at, 4);
        memcpy(more + at, &words[k % 4], 4);
        OK(ctx, dro__checkpoint_write(ctx, folder, &saved));
        memcpy(more + at, &kept, 4);
        dro_status status = run_stream("csv:%s,label=kind,learn=60", "many",
                                       "batch=4 report_every=12", "forged", true, 9, NULL);
        if (status != DRO_OK)
            assert_true(*dro_context_error(ctx));
        refused += status != DRO_OK;
    }
    assert_true(refused > 20);
    dro__saved_free(&saved);
}

/* Labels 0 and 1, and 1 without its sign: the weights know the classes of the rows they came
 * from. */
static void test_names(void **state)
{
    (void)state;
    static const char *const signs[][2] = {{"-1", "1"}, {"-1", "+1"}, {"0", "1"}};
    char path[300], data[300];
    dro_predictor *p;
    const dro_metrics *m;
    for (int k = 0; k < 3; k++) {
        FILE *f = fopen(in_dir("rows"), "w");
        assert_non_null(f);
        for (int i = 0; i < 100; i++)
            fprintf(f, "%s 1:%d 2:1\n", signs[k][i % 3 == 0], i % 3 == 0 ? 1 : -1);
        fclose(f);
        clear("whole");
        OK(ctx, run_stream("libsvm:%s,features=2", "rows", "optimizer=sgd", "whole", false,
                           UINT64_MAX, NULL));
        snprintf(path, sizeof path, "%s/whole/weights.safetensors", dir);
        snprintf(data, sizeof data, "libsvm:%s", in_dir("rows"));
        OK(ctx, dro_predictor_open(ctx, path, data, &p));
        OK(ctx, dro_predictor_evaluate(p, DRO_TRAIN, &m));
        assert_int_equal(m->examples, 100);
        assert_true(m->accuracy == 1);
        dro_predictor_close(p);
    }
}

/* ---- the loss of rows, on a stream and on many sparse features: what is trained, or an error
 * ---- */

static dro_status train_rows(bool stream, bool real, const char *more, dro_metrics *test)
{
    char settings[400];
    snprintf(settings, sizeof settings, "data=libsvm:%s%s%s %s batch=16 optimizer=sgd %s",
             in_dir("wide"), stream ? ",features=5000" : "", real ? ",target=real" : "",
             stream ? "progressive=yes" : "steps=20", more);
    dro_train *t;
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, settings);
    dro_status status = dro_train_run(t, NULL, false, NULL);
    if (status == DRO_OK)
        *test = stream ? dro_train_last(t)->test : dro_train_last(t)->train;
    dro_train_destroy(t);
    return status;
}

static void write_wide(bool real)
{
    FILE *f = fopen(in_dir("wide"), "w");
    assert_non_null(f);
    for (int i = 0; i < 200; i++) {
        double x = cos(3.7 * i);
        fprintf(f, real ? "%.3f 1:%.5f 5000:1\n" : "%+.0f 1:%.5f 5000:1\n",
                real         ? 0.5 * x
                : i % 10 < 3 ? 1.0
                             : -1.0,
                x);
    }
    fclose(f);
}

static void test_loss(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"loss=focal", "loss focal on %s: expected logistic or squared"},
        {"loss=logit-adjusted", "loss logit-adjusted on %s: expected logistic or squared"},
        {"recipe=imbalanced",
         "recipe imbalanced on %s: its loss, logit-adjusted, is not supported: "
         "use tilt=class with recover instead, or set loss=logistic"},
        {"recipe=imbalanced loss=focal", "loss focal on %s: expected logistic or squared"},
        {"smoothing=0.3", "smoothing=0.3 on %s: the loss, logistic, has no smoothing"},
        {"tau=3", "tau=3 on %s: the loss, logistic, has no tau: leave it out"},
        {"loss=squared focal_gamma=1", "focal_gamma=1 on %s: the loss, squared, has no"},
    };
    dro_metrics plain = {0}, other = {0};
    char text[300];
    write_wide(false);
    for (int stream = 0; stream < 2; stream++) {
        const char *place = stream ? "a stream" : "sparse rows of 5000 features";
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            snprintf(text, sizeof text, "%.*s%s%s", (int)strcspn(wrong[k][1], "%"), wrong[k][1],
                     place, strstr(wrong[k][1], "%s") + 2);
            FAILS(ctx, train_rows(stream, false, wrong[k][0], &other), DRO_ERR_UNSUPPORTED, text);
        }
        OK(ctx, train_rows(stream, false, "", &plain));
        OK(ctx, train_rows(stream, false, "loss=cross-entropy tau=1.0 smoothing=0", &other));
        assert_true(other.loss == plain.loss);
        OK(ctx, train_rows(stream, false, "loss=logistic recipe=imbalanced", &other));
        assert_true(other.loss == plain.loss);
        OK(ctx, train_rows(stream, false, "loss=squared", &other));
        assert_true(fabs(other.loss - plain.loss) > 0.05);
    }
    write_wide(true);
    for (int stream = 0; stream < 2; stream++) {
        FAILS(ctx, train_rows(stream, true, "loss=logistic", &other), DRO_ERR_UNSUPPORTED,
              "with a real-valued target: expected squared");
        FAILS(ctx, train_rows(stream, true, "loss=cross-entropy", &other), DRO_ERR_UNSUPPORTED,
              "with a real-valued target: expected squared");
        FAILS(ctx, train_rows(stream, true, "recipe=imbalanced", &other), DRO_ERR_UNSUPPORTED,
              "for classes");
        OK(ctx, train_rows(stream, true, "", &plain));
        OK(ctx, train_rows(stream, true, "loss=squared", &other));
        assert_true(other.loss == plain.loss);
    }
}

/* Probabilities follow the loss: rows that the squared one fits are as sure as they should be. */
static void test_squared_is_calibrated(void **state)
{
    (void)state;
    dro_train_record r = {0};
    FILE *f = fopen(in_dir("rows"), "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++)
        fprintf(f, "%s 1:%d\n", i % 3 ? "+1" : "-1", i % 3 ? 1 : -1);
    fclose(f);
    clear("whole");
    OK(ctx, run_stream("libsvm:%s,features=1", "rows",
                       "optimizer=sgd loss=squared momentum=0 eta=0.2 warmup=0", "whole", false,
                       UINT64_MAX, &r));
    assert_true(r.window.loss < 1e-4 && r.window.accuracy == 1);
    assert_true(r.window.calibration_error < 0.02);
}

/* ---- F ---- */

/* The last record of a run over "rows", and its result.json; note: what was said, or "". */
static dro_train_record streamed(const char *more, char *note, char **result)
{
    size_t size;
    char folder[300];
    stopper s = {.at = UINT64_MAX};
    dro_train_watch watch = watch_of(&s);
    clear("parts");
    dro_train *t = make_stream(SIGNS, "rows", more);
    snprintf(folder, sizeof folder, "%s/parts", dir);
    OK(ctx, dro_train_run(t, folder, false, &watch));
    dro_train_record record = *dro_train_last(t);
    dro_train_destroy(t);
    strcpy(note, s.note);
    *result = slurp("parts", "result.json", &size);
    return record;
}

/* What result.json calls F, that of the whole or of the window. */
static void says(const char *result, bool window, const char *lambda, const char *over)
{
    char text[200];
    const char *at = window ? strstr(strstr(result, "\"window\": {"), "    \"F\": {")
                            : strstr(result, "\n  \"F\": {");
    snprintf(text, sizeof text, "\"lambda\": %s,", lambda);
    assert_non_null(at);
    const char *end = strchr(at, '}'), *found = strstr(at, text);
    if (!found || found > end)
        fail_msg("not %s in %.200s", text, at);
    snprintf(text, sizeof text, "\"over\": \"%s\"", over);
    found = strstr(at, text);
    if (!found || found > end)
        fail_msg("not %s in %.200s", text, at);
}

/* What F is called is what it is: where lambda or tilt change, that of the beginning. */
static void test_objective_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *same; /* the same run, with the named objective asked for */
        const char *lambda, *window_lambda, *over, *window_over;
        bool told;
    } runs[] = {
        {"lambda=100", "lambda=100 report_lambda=100", "100.0", "100.0", "examples", "examples",
         false},
        {"lambda=100 switch_step=24 switch_lambda=0.5",
         "lambda=100 switch_step=24 switch_lambda=0.5 report_lambda=100", "100.0", "100.0",
         "examples", "examples", true},
        {"lambda=100 switch_step=8 switch_lambda=0.5",
         "lambda=100 switch_step=8 switch_lambda=0.5 report_lambda=100", "100.0", "0.5", "examples",
         "examples", true},
        {"lambda=2 switch_step=8 switch_tilt=class",
         "lambda=2 switch_step=8 switch_tilt=class report_lambda=2 report_tilt=example", "2.0",
         "2.0", "examples", "classes", true},
        {"steps=25 lambda=2 lambda_warmup=0.4 lambda_start=12",
         "steps=25 lambda=2 lambda_warmup=0.4 lambda_start=12 report_lambda=11", "11.0", "2.0",
         "examples", "examples", true},
    };
    char note[512], other[512], *result;
    write_rows("rows", 400, -1);
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        double f = streamed(runs[k].settings, note, &result).test.objective;
        says(result, false, runs[k].lambda, runs[k].over);
        says(result, true, runs[k].window_lambda, runs[k].window_over);
        assert_true((strstr(note, "F is that of the first step, lambda ") != NULL) == runs[k].told);
        dro__free(result);
        double asked = streamed(runs[k].same, other, &result).test.objective;
        assert_string_equal(other, "");
        dro__free(result);
        assert_true(f == asked);
    }
}

/* F has r(w), at the weights that the run ends with. */
static void test_objective_has_r(void **state)
{
    (void)state;
    char note[512], path[300], *result;
    float w[6]; /* five features and the bias */
    write_rows("rows", 400, -1);
    dro_train_record r = streamed("optimizer=sgd reg=l1 reg_strength=0.05", note, &result);
    dro__free(result);
    snprintf(path, sizeof path, "%s/parts/weights.safetensors", dir);
    dro__safetensors *file;
    OK(ctx, dro__safetensors_open(ctx, path, &file));
    OK(ctx, dro__safetensors_read(file, 0, w, 6));
    dro__safetensors_close(file);
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum += fabs((double)w[i]);
    assert_true(sum > 0.1);
    assert_float_equal(r.test.objective, r.test.loss + 0.05 * sum, 1e-9);
    assert_float_equal(r.window.objective, r.window.loss + 0.05 * sum, 1e-9);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_resume),
    cmocka_unit_test(test_report_most),
    cmocka_unit_test(test_last_rows),
    cmocka_unit_test(test_refuses),
    cmocka_unit_test(test_path_is_no_option),
    cmocka_unit_test(test_table),
    cmocka_unit_test(test_other_classes),
    cmocka_unit_test(test_forged),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_loss),
    cmocka_unit_test(test_squared_is_calibrated),
    cmocka_unit_test(test_objective_is_named),
    cmocka_unit_test(test_objective_has_r),
    cmocka_unit_test(test_nothing_learned),
    cmocka_unit_test(test_many_steps),
    cmocka_unit_test(test_many),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
