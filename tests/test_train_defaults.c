/* What dro_train_default() lists is what a run has: every parameter of every optimiser in
 * config.json is the last default that is listed for it, or the optimiser's own. */
#include "train_runs.h"

#include <math.h>

typedef struct facts {
    const char *settings;
    bool images, net, hidden;
    double examples, batch, steps, square, lambda; /* lambda 0: not given */
    double rarity;                                 /* 0: the tilt is not over classes */
} facts;

static const facts images = {"steps=20", true, true, false, 161, 20, 20, 0, 0, 0};

/* Rows of two features; sparse rows are those of many. */
static void write_table(const char *name, int rows, double size, int last)
{
    char path[sizeof dir + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < rows; i++)
        fprintf(file, "%s 1:%g %d:%g\n", i % 3 ? "+1" : "-1", i % 3 ? size : -size, last,
                i % 2 ? size : -size);
    fclose(file);
}

/* The listed rules; `usual` is what the parameter is without them. NaN: no rule, a value. */
static double by_rule(const char *words, const facts *f, double usual)
{
    double steps = f->steps, n = f->examples;
    if (strcmp(words, "128, or examples / 8 if that is less; streams: 8") == 0)
        return fmin(128, floor(n / 8));
    if (strcmp(words, "0.3 batch / examples^2") == 0)
        return 0.3 * f->batch / (n * n);
    if (strcmp(words, "0.3 batch / examples") == 0)
        return 0.3 * f->batch / n;
    if (strcmp(words, "sqrt(batch / 128), at most 1") == 0)
        return fmin(1, sqrt(f->batch / 128));
    if (strcmp(words, "examples") == 0)
        return n;
    if (strcmp(words, "steps / 10") == 0)
        return steps / 10;
    if (strcmp(words, "steps / 2") == 0)
        return steps / 2;
    if (strcmp(words, "100 / steps, from 0.04 to 0.25") == 0)
        return fmax(0.04, fmin(0.25, 100 / steps));
    if (strcmp(words, "0 for streams, else the optimiser's own") == 0)
        return usual;
    if (strcmp(words, "0.75 where lambda is below 20") == 0)
        return f->lambda > 0 && f->lambda < 20 ? 0.75 : usual;
    if (strcmp(words, "0.9 over classes or groups, not for streams") == 0)
        return strstr(f->settings, "tilt=class") ? 0.9 : usual;
    if (strcmp(words, "eta max(batch, 32) / (32 r)") == 0)
        return f->rarity > 0 ? usual * fmin(1, fmax(f->batch, 32) / (32 * f->rarity)) : usual;
    double few = steps > 0 ? fmin(fmax(1, sqrt(1000 / steps)), 4) : 1;
    if (strcmp(words, "0.04 r, with hidden layers 0.004; streams: 2 / |x|^2") == 0)
        return 0.04 * few;
    if (strcmp(words, "0.02 r, with hidden layers 0.004; streams: 1 / |x|^2") == 0)
        return 0.02 * few;
    if (strcmp(words, "eta / max(s, |x|^2 / 500), or its root; streams: eta / |x|") == 0)
        return f->square > 4 ? usual / f->square : usual;
    if (strcmp(words,
               "50 log(classes); real-valued targets: 25, or more where their tail is heavy") == 0)
        return 50 * log(2);
    if (strcmp(words, "10 / examples") == 0)
        return 10 / n;
    if (strcmp(words, "1 / examples, 2 / examples for two classes") == 0)
        return (f->net ? 2 : 1) / n;
    return NAN;
}

static bool is_for(const dro_default *d, const facts *f, const char *optimizer)
{
    if (d->optimizer && strcmp(d->optimizer, optimizer) != 0)
        return false;
    if (!d->data)
        return true;
    if (strcmp(d->data, "networks") == 0)
        return f->net;
    if (strcmp(d->data, "hidden") == 0)
        return f->hidden;
    assert_true(strcmp(d->data, "images") == 0 || strcmp(d->data, "tables") == 0);
    return (strcmp(d->data, "images") == 0) == f->images;
}

/* What the lists say that the run has. */
static void listed_value(const dro_param *p, const facts *f, const char *optimizer, char *text,
                         size_t size)
{
    dro_default d;
    snprintf(text, size, "%s", p->fallback);
    for (int k = 0; dro_train_default(k, &d) == DRO_OK; k++) {
        if (strcmp(d.name, p->name) != 0 || !is_for(&d, f, optimizer))
            continue;
        bool ours = strcmp(optimizer, "cover") == 0 || strcmp(optimizer, "recover") == 0 ||
                    strcmp(optimizer, "scent") == 0;
        double value = by_rule(d.value, f, atof(text));
        if (ours && strstr(d.value, "or its root"))
            value = sqrt(value * atof(text)); /* eta / sqrt(x) from eta and eta / x */
        if (isnan(value))
            snprintf(text, size, "%s", d.value);
        else
            snprintf(text, size, "%.17g", value);
    }
    if (f->lambda > 0 && strcmp(p->name, "lambda") == 0)
        snprintf(text, size, "%.17g", f->lambda);
    if (f->rarity > 0 && strcmp(p->name, "tilt") == 0)
        snprintf(text, size, "class");
    if (f->rarity > 0 && strcmp(p->name, "batch") == 0)
        snprintf(text, size, "%g", f->batch);
}

/* The value of a name in config.json, without quotation marks. */
static void value_in(const char *config, const char *name, char *text, size_t size)
{
    char key[80];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(config, key);
    if (!at)
        fail_msg("config.json has no %s", name);
    at += strlen(key);
    bool quoted = *at == '"';
    at += quoted;
    snprintf(text, size, "%.*s", (int)strcspn(at, quoted ? "\"" : ",\n"), at);
}

static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    if (*a && *b && !*end_a && !*end_b)
        return fabs(x - y) <= 2e-5 * fabs(x); /* a warm-up has six places */
    return strcmp(a, b) == 0;
}

static void check_run(const char *optimizer, const facts *f)
{
    char settings[400], listed[160], has[160];
    size_t size;
    snprintf(settings, sizeof settings, "optimizer=%s batch= eval_every=1e6 best=none %s",
             optimizer, f->settings);
    clear("run");
    OK(ctx, run_to(settings, "run", false, UINT64_MAX, NULL));
    char *config = slurp("run", "config.json", &size);
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++) {
        if (strcmp(p.name, "steps") == 0 || strcmp(p.name, "seed") == 0)
            continue;
        listed_value(&p, f, optimizer, listed, sizeof listed);
        value_in(config, p.name, has, sizeof has);
        if (!same_value(listed, has))
            fail_msg("%s, %s: %s is listed as %s, a run has %s", optimizer, f->settings, p.name,
                     listed, has);
    }
    dro__free(config);
}

static void check_all(const facts *f)
{
    for (int k = 0; check_optimizer(k); k++)
        check_run(check_optimizer(k), f);
}

static void test_images(void **state)
{
    (void)state;
    check_all(&images);
}

static void test_lambda(void **state)
{
    (void)state;
    static const char *const ours[] = {"recover", "cover"};
    for (int k = 0; k < 2; k++) {
        facts f = images;
        f.settings = "steps=20 lambda=1";
        f.lambda = 1;
        check_run(ours[k], &f);
        f.settings = "steps=20 lambda=20";
        f.lambda = 20;
        check_run(ours[k], &f);
    }
}

/* 11 examples of the first class, 110 of the second. */
static void test_classes(void **state)
{
    (void)state;
    static const char *const methods[] = {"recover", "cover", "absgd"};
    facts f = images;
    f.examples = 121, f.batch = 15;
    f.rarity = (121.0 / 11 + 121.0 / 110) / 4;
    f.settings =
        "steps=20 tilt=class data=synth:glyphs,n=220,test=30,size=12,classes=2,imratio=0.1";
    for (int k = 0; k < 3; k++)
        check_run(methods[k], &f);
    f.batch = 100; /* enough for such classes */
    f.settings = "steps=20 tilt=class batch=100 "
                 "data=synth:glyphs,n=220,test=30,size=12,classes=2,imratio=0.1";
    check_run("recover", &f);
}

static void test_tables(void **state)
{
    (void)state;
    char settings[sizeof dir + 80];
    facts f = {settings, false, true, false, 1600, 128, 1000, 1, 0, 0};
    write_table("rows", 1600, 1, 2);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows steps=1000", dir);
    check_all(&f);
    f.rarity = 1;
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows steps=1000 tilt=class", dir);
    check_run("recover", &f);
    f.rarity = 0, f.steps = 5000;
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows steps=5000", dir);
    check_run("sgd", &f);
    f = (facts){settings, false, true, false, 80, 10, 20, 9, 0, 0};
    write_table("rows", 80, 3, 2);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows,scale=none steps=20", dir);
    check_all(&f);
}

/* Hidden layers on a table: a prior. */
static void test_hidden(void **state)
{
    (void)state;
    char settings[sizeof dir + 80];
    facts f = {settings, false, true, true, 1600, 128, 1000, 1, 0, 0};
    write_table("rows", 1600, 1, 2);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows model=mlp:4 steps=1000", dir);
    check_run("sgd", &f);
}

/* Not a network: the library's own defaults, but for what the number of examples says. */
static void test_sparse(void **state)
{
    (void)state;
    char settings[sizeof dir + 80];
    facts f = {settings, false, false, false, 80, 10, 20, 1, 0, 0};
    write_table("rows", 80, 1, 5000);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows steps=20", dir);
    check_all(&f);
}

/* ---- how long a run is ---- */

/* The steps at which a run was evaluated. */
typedef struct evaluations {
    int count;
    uint64_t first, last;
} evaluations;

static void note_step(void *user, const dro_train_record *r)
{
    evaluations *e = user;
    e->first = e->count++ ? e->first : r->info.step;
    e->last = r->info.step;
}

static evaluations evaluated(const char *settings)
{
    evaluations e = {0};
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = &e, .evaluated = note_step};
    dro_train *t = make("best=none steps= eval_every=1000");
    set_all(t, settings);
    OK(ctx, dro_train_run(t, NULL, false, &watch));
    dro_train_destroy(t);
    return e;
}

/* 600 steps, but 15 epochs at least and 100 at most, of 161 examples; of the exact solvers an epoch
 * is a step, and 100 of them are one between evaluations. */
static void test_length(void **state)
{
    (void)state;
    char settings[sizeof dir + 80];
    assert_int_equal(evaluated("optimizer=sgd eta=0.01 model=mlp:2 batch=16").last, 60 * 10);
    assert_int_equal(evaluated("optimizer=sgd eta=0.01 model=mlp:2 batch=40").last, 100 * 4);
    assert_int_equal(evaluated("optimizer=sgd eta=0.01 model=mlp:2 batch=3").last, 15 * 53);
    write_table("rows", 80, 1, 2);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows optimizer=lbfgs eval_every=0.02", dir);
    assert_int_equal(evaluated(settings).first, 2);
}

/* The value of a setting in config.json. */
static double configured(const char *settings, const char *name)
{
    char text[64];
    dro_train *t = make("best=none steps=1");
    set_all(t, settings);
    OK(ctx, dro_train_run(t, NULL, false, NULL));
    value_in(dro_train_config(t), name, text, sizeof text);
    dro_train_destroy(t);
    return atof(text);
}

/* Rows of a square of 600: the step is divided by 600 / 500. */
static void test_long_rows(void **state)
{
    (void)state;
    char settings[sizeof dir + 80];
    FILE *file = fopen(in_dir("wide"), "w");
    assert_non_null(file);
    for (int i = 0; i < 80; i++) {
        fprintf(file, "%d", i % 2);
        for (int k = 1; k <= 600; k++)
            fprintf(file, " %d:%d", k, (i + k) % 3 ? 1 : -1);
        fprintf(file, "\n");
    }
    fclose(file);
    write_table("rows", 80, 1, 2);
    snprintf(settings, sizeof settings, "data=libsvm:%s/rows,scale=none optimizer=sgd", dir);
    double usual = configured(settings, "eta");
    strcpy(strstr(settings, "sgd"), "lbfgs"); /* two classes */
    assert_float_equal(configured(settings, "reg_strength"), 2 / 80.0, 1e-9);
    snprintf(settings, sizeof settings, "data=libsvm:%s/wide,scale=none optimizer=sgd", dir);
    assert_float_equal(configured(settings, "eta"), usual / 1.2, 1e-6 * usual);
}

/* The default regulariser spares the biases: where no column helps, the loss of the linear model is
 * the entropy of the classes, 4 in 40, with each optimiser. */
static void test_free_bias(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"lbfgs", "newton", "recover"};
    const double entropy = -0.1 * log(0.1) - 0.9 * log(0.9);
    char settings[sizeof dir + 120];
    FILE *file = fopen(in_dir("rare"), "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++)
        fprintf(file, "%d 1:%d\n", i % 20 < 2, i % 2 ? 1 : -1);
    fclose(file);
    for (size_t k = 0; k < sizeof optimizers / sizeof optimizers[0]; k++) {
        snprintf(settings, sizeof settings,
                 "data=libsvm:%s/rare optimizer=%s best=none lambda=1e6 steps=400", dir,
                 optimizers[k]);
        dro_train *t = make("best=none");
        set_all(t, settings);
        OK(ctx, dro_train_run(t, NULL, false, NULL));
        assert_float_equal(dro_train_last(t)->train.loss, entropy, k < 2 ? 1e-4 : 5e-3);
        dro_train_destroy(t);
    }
}

/* A stream is learned from once: steps are long from the first on, and as long as the number of
 * features allows. */
static void test_stream(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer;
        int features;
        double eta;
    } cases[] = {{"recover", 2, 0.1},   {"recover", 100, 0.02}, {"recover", 5000, 0.002},
                 {"adamw", 100, 0.02},  {"scent", 100, 0.01},   {"sgd", 100, 0.01},
                 {"absgd", 400, 0.005}, {"sgd", 4, 0.05}};
    char settings[sizeof dir + 120];
    write_table("rows", 80, 1, 2);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        snprintf(settings, sizeof settings,
                 "data=libsvm:%s/rows,features=%d progressive=yes optimizer=%s", dir,
                 cases[k].features, cases[k].optimizer);
        check_near(cases[k].optimizer, configured(settings, "eta"), cases[k].eta, 1e-9);
        assert_true(configured(settings, "warmup") == 0);
    }
    FILE *file = fopen(in_dir("cells.csv"), "w"); /* of the indicators of a column one is 1 */
    fputs("a,b,word,y\n", file);
    for (int i = 0; i < 60; i++)
        fprintf(file, "%d,%d,%c,%d\n", i, i * i % 7, 'p' + i % 9, i % 2);
    fclose(file);
    snprintf(settings, sizeof settings,
             "data=csv:%s/cells.csv,label=y progressive=yes optimizer=sgd", dir);
    check_near("csv", configured(settings, "eta"), 0.1 / sqrt(3), 1e-9);
}

static void test_ends(void **state)
{
    (void)state;
    dro_default d;
    dro_param p;
    int count = 0;
    for (; dro_train_default(count, &d) == DRO_OK; count++) {
        bool found = false;
        for (int k = 0; dro_optimizer_name(k); k++)
            for (int i = 0; dro_optimizer_param(dro_optimizer_name(k), i, &p) == DRO_OK; i++)
                found |= strcmp(p.name, d.name) == 0 &&
                         (!d.optimizer || strcmp(d.optimizer, dro_optimizer_name(k)) == 0);
        if (!found)
            fail_msg("no optimiser has %s", d.name);
        assert_true(*d.value && *d.why);
    }
    assert_true(count > 0);
    assert_int_equal(dro_train_default(-1, &d), DRO_ERR_END);
    assert_int_equal(dro_train_default(count, &d), DRO_ERR_END);
    assert_int_equal(dro_train_default(0, NULL), DRO_ERR_ARGUMENT);
}

/* ---- best=objective where lambda and the tilt move ---- */

typedef struct values {
    int count;
    double held[16], train[16];
} values;

static void keep_values(void *user, const dro_train_record *r)
{
    values *v = user;
    assert_true(v->count < 16);
    v->held[v->count] = r->holdout.objective;
    v->train[v->count++] = r->train.objective;
}

/* F at every evaluation of a run whose weights stand still. */
static values still(const char *settings, char *result, size_t size)
{
    values v = {0};
    dro_train_watch watch = {.size = sizeof(dro_train_watch), .user = &v, .evaluated = keep_values};
    dro_train *t = make("optimizer=recover model=mlp:8 eta=0 lambda=0.5");
    set_all(t, settings);
    OK(ctx, dro_train_run(t, NULL, false, &watch));
    assert_true(v.count >= 3);
    snprintf(result, size, "%s", dro_train_result(t));
    dro_train_destroy(t);
    return v;
}

/* Weights that stand still are as good at every evaluation, by the F that the run ends with. */
static void test_best_objective(void **state)
{
    static const char *const moves[][3] = {
        {"", "report_lambda=0.5", "\"lambda\": 0.5,"}, /* a small one comes last by default */
        {"lambda_schedule=cosine lambda_end=3", "report_lambda=3", "\"lambda\": 3.0,"},
        {"switch_step=0.6 switch_lambda=4 switch_tilt=class", "report_lambda=4 report_tilt=class",
         "\"over\": \"classes\""},
        {"output=random", NULL, "\"lambda\": "}, /* it ends where it was drawn to */
        {"report_lambda=7", "report_lambda=7", "\"lambda\": 7.0,"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof moves / sizeof moves[0]; k++) {
        char settings[200], result[1 << 15];
        snprintf(settings, sizeof settings, "%s best=none", moves[k][0]);
        values own = still(settings, result, sizeof result);
        bool moved = false;
        for (int i = 1; i < own.count; i++)
            moved = moved || own.held[i] != own.held[0];
        assert_int_equal(moved, !strstr(moves[k][0], "report_lambda"));
        snprintf(settings, sizeof settings, "%s best=objective", moves[k][0]);
        values best = still(settings, result, sizeof result);
        for (int i = 1; i < best.count; i++)
            if (best.held[i] != best.held[0] || best.train[i] != best.train[0])
                fail_msg("%s: F %.9g, then %.9g", moves[k][0], best.held[0], best.held[i]);
        assert_non_null(strstr(strstr(result, "\"F\""), moves[k][2]));
        assert_true(best.held[0] == own.held[own.count - 1]);
        if (!moves[k][1])
            continue;
        snprintf(settings, sizeof settings, "%s best=none", moves[k][1]);
        values wanted = still(settings, result, sizeof result);
        assert_true(best.held[0] == wanted.held[0] && best.train[0] == wanted.train[0]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_hidden),    cmocka_unit_test(test_images),
    cmocka_unit_test(test_lambda),    cmocka_unit_test(test_classes),
    cmocka_unit_test(test_tables),    cmocka_unit_test(test_sparse),
    cmocka_unit_test(test_ends),      cmocka_unit_test(test_best_objective),
    cmocka_unit_test(test_length),    cmocka_unit_test(test_long_rows),
    cmocka_unit_test(test_free_bias), cmocka_unit_test(test_stream),
};

CHECK_MAIN_WITH(tests, setup_train, teardown)
