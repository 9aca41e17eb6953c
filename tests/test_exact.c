/* The exact solvers: minima that SciPy found (refs/exact.txt, made by refs/make_exact.py),
 * derivatives against differences, the same bits on any number of threads and after a save, and
 * what they refuse; and the online methods with every objective, which come to the same minima. */
#include "check.h"
#include "exact.h"
#include "full_rows.h"
#include "nn.h"
#include "objective.h"

enum { MOST = 100, FEATURES = 6, CLASSES = 3 };

static struct {
    int64_t n;
    float x[MOST * FEATURES], sign[MOST], real[MOST], values[MOST * FEATURES];
    int64_t starts[MOST + 1];
    int32_t columns[MOST * FEATURES], label[MOST];
} table;

typedef struct model {
    char model[8], loss[20], over[10], objective[24];
    double l1, l2, minimum;
} model;

static model cases[32];
static int case_count;

static void add_row(int64_t i, const float *x)
{
    int64_t at = table.starts[i];
    for (int j = 0; j < FEATURES; j++) {
        table.x[i * FEATURES + j] = x[j];
        if (x[j] != 0)
            table.values[at] = x[j], table.columns[at++] = j;
    }
    table.starts[i + 1] = at;
    table.sign[i] = table.label[i] > 0 ? 1 : -1;
    table.real[i] = (float)table.label[i];
}

static int read_references(void **state)
{
    (void)state;
    FILE *file = fopen(DRO_TEST_DIR "/refs/exact.txt", "r");
    char line[200];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        model *c = &cases[case_count];
        long long rows;
        if (sscanf(line, "rows %lld", &rows) == 1)
            for (table.n = 0; table.n < rows; table.n++) {
                float x[FEATURES];
                assert_int_equal(fscanf(file, "%d", &table.label[table.n]), 1);
                for (int j = 0; j < FEATURES; j++)
                    assert_int_equal(fscanf(file, "%f", &x[j]), 1);
                add_row(table.n, x);
            }
        case_count += sscanf(line, "case %7s %19s %9s %23s %lf %lf %lf", c->model, c->loss, c->over,
                             c->objective, &c->l1, &c->l2, &c->minimum) == 7;
    }
    fclose(file);
    assert_int_equal(case_count, 26);
    return 0;
}

/* ---- a model of a case as a problem ---- */

typedef struct subject {
    dro_context *ctx;
    dro_linear *linear;
    dro_net *net;
    dro__full_rows full;
    dro_problem problem;
} subject;

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    (void)user, (void)groups;
    for (size_t i = 0; i < count; i++)
        classes[i] = table.label[ids[i]];
    return DRO_OK;
}

static dro_status no_forward(void *user, const float *w, const dro_batch *parts, int count,
                             float *losses)
{
    (void)user, (void)w, (void)parts, (void)count, (void)losses;
    return DRO_ERR_CALLBACK;
}

static dro_status no_backward(void *user, const float *w, const dro_batch *parts, int count,
                              const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)parts, (void)count, (void)coef, (void)grads;
    return DRO_ERR_CALLBACK;
}

static void open_rows(subject *s, const char *loss, bool sparse)
{
    dro_linear_data d = dro_linear_data_default();
    d.n = table.n;
    d.features = FEATURES;
    d.loss = loss;
    d.y = strcmp(loss, "squared") == 0 ? table.real : table.sign;
    if (sparse)
        d.starts = table.starts, d.columns = table.columns, d.values = table.values;
    else
        d.x = table.x;
    OK(s->ctx, dro_linear_create(s->ctx, &d, &s->linear));
    OK(s->ctx, dro_linear_problem(s->linear, &s->problem));
}

static void open_net(subject *s, const char *loss, bool sparse)
{
    dro_model_shape shape = {FEATURES, 1, 1, CLASSES};
    bool smoothed = strcmp(loss, "smoothed") == 0;
    double share[CLASSES] = {0};
    for (int64_t i = 0; i < table.n; i++)
        share[table.label[i]] += 1 / (double)table.n;
    OK(s->ctx, dro_net_model(s->ctx, "linear", &shape, &s->net));
    OK(s->ctx, dro_net_set(s->net, "loss", smoothed ? "cross-entropy" : loss));
    if (smoothed)
        OK(s->ctx, dro_net_set(s->net, "smoothing", "0.1"));
    OK(s->ctx, dro_net_prior(s->net, share, CLASSES));
    OK(s->ctx, dro_net_ready(s->net));
    assert_true(dro__full_rows_net(&s->net->graph, &s->full));
    s->full.ctx = s->ctx;
    s->full.n = table.n;
    s->full.all = (dro_net_batch){.labels = table.label};
    s->full.rows = (dro__row_matrix){.features = FEATURES, .x = table.x};
    if (sparse)
        s->full.rows = (dro__row_matrix){.features = FEATURES,
                                         .starts = table.starts,
                                         .columns = table.columns,
                                         .values = table.values};
    dro__full_rows_open(&s->full);
    s->problem = (dro_problem){.size = sizeof(dro_problem),
                               .dim = dro_net_dim(s->net),
                               .n = table.n,
                               .forward = no_forward,
                               .backward = no_backward,
                               .labels = labels,
                               .classes = CLASSES,
                               .library = &s->full.able};
}

static void open_model(subject *s, const model *m, bool sparse, int threads)
{
    *s = (subject){.ctx = check_context("auto", threads)};
    (strcmp(m->model, "net") == 0 ? open_net : open_rows)(s, m->loss, sparse);
}

static void close_model(subject *s)
{
    dro_linear_destroy(s->linear);
    dro__full_rows_close(&s->full);
    dro_net_destroy(s->net);
    dro_context_destroy(s->ctx);
}

static dro_optimizer *begun(const subject *s, const char *name, const model *m)
{
    dro_optimizer *opt;
    OK(s->ctx, dro_optimizer_create(s->ctx, name, &s->problem, &opt));
    OK(s->ctx, dro_optimizer_set(opt, "tilt", m->over));
    OK(s->ctx, dro_optimizer_set(opt, "objective", m->objective));
    check_set(s->ctx, opt, "?objective_smoothing=1e-6");
    OK(s->ctx, dro_optimizer_set(opt, "tolerance", "1e-9"));
    OK(s->ctx, dro_optimizer_set(opt, "reg", m->l1 > 0 || m->l2 > 0 ? "elastic" : "none"));
    if (m->l1 + m->l2 > 0) {
        OK(s->ctx, dro_optimizer_set_real(opt, "reg_strength", m->l1 + m->l2));
        OK(s->ctx, dro_optimizer_set_real(opt, "reg_ratio", m->l1 / (m->l1 + m->l2)));
    }
    OK(s->ctx, dro_optimizer_start(opt, NULL));
    return opt;
}

static void solve(const subject *s, dro_optimizer *opt)
{
    dro_status status;
    int steps = 0;
    while ((status = dro_optimizer_step(opt)) == DRO_OK && steps++ < 1000)
        ;
    if (status != DRO_ERR_END)
        fail_msg("%d steps: %s", steps, dro_context_error(s->ctx));
}

static void check_case(const model *m, const char *name, bool sparse)
{
    char what[120];
    dro_info info;
    subject s;
    open_model(&s, m, sparse, 1);
    dro_optimizer *opt = begun(&s, name, m);
    solve(&s, opt);
    OK(s.ctx, dro_optimizer_info(opt, &info));
    snprintf(what, sizeof what, "%s, %s %s %s %s l1 %g l2 %g (%llu steps, |g| %.1e)", name,
             m->model, m->loss, m->over, m->objective, m->l1, m->l2, (unsigned long long)info.step,
             info.gradient_norm);
    /* smoothing and the prior of the logit-adjusted loss are floats in a network */
    bool floats = strcmp(m->loss, "smoothed") == 0 || strcmp(m->loss, "logit-adjusted") == 0;
    /* minima at a kink: right up to the smoothing of 1e-6 */
    bool kink =
        strncmp(m->objective, "cvar", 4) == 0 || strcmp(m->objective, "kl-radius:0.05") == 0;
    check_near(what, info.objective, m->minimum, kink ? 2e-6 : floats ? 1e-7 : 2e-9);
    assert_true(isnan(info.gap) == (m->l2 == 0));
    if (strncmp(m->objective, "kl-radius", 9) == 0 && !kink)
        check_near(what, info.radius, atof(m->objective + 10), 1e-6);
    if (kink && m->l2 > 0) { /* the bound holds, and is no more than the smoothing's */
        assert_true(info.gap <= 9 * 1e-6 / 2);
        assert_true(info.objective - m->minimum <= info.gap + 1e-9);
    } else if (kink) { /* at the lowest F the gradient is one of many */
        assert_true(isfinite(info.gradient_norm));
    } else if (m->l2 > 0) { /* a bound, and a small one */
        assert_true(info.gap <= 1e-9);
        assert_true(floats || info.objective - m->minimum <= info.gap + 1e-11);
    } else {
        assert_true(info.gradient_norm <= 1e-7);
    }
    dro_optimizer_destroy(opt);
    close_model(&s);
}

static void test_lbfgs(void **state)
{
    (void)state;
    for (int k = 0; k < case_count; k++)
        for (int sparse = 0; sparse < 2; sparse++)
            check_case(&cases[k], "lbfgs", sparse);
}

/* Every row is there with both signs, so that the minimum is log 2, at w = 0, where all losses are
 * alike: the certificate says how near F is, and the end is no failure. */
static void check_kink(uint64_t seed, const char *objective, double l2, double slack)
{
    enum { ROWS = 300, WIDTH = 8 };
    static float x[ROWS * WIDTH], y[ROWS];
    float from[WIDTH];
    dro_info info;
    subject s = {.ctx = check_context("auto", 1)};
    for (int i = 0; i < ROWS; i++) {
        y[i] = i % 2 ? 1 : -1;
        for (int j = 0; j < WIDTH; j++)
            x[i * WIDTH + j] = (float)check_uniform(seed, (uint64_t)(i / 2 * WIDTH + j), -2, 2);
    }
    for (int j = 0; j < WIDTH; j++)
        from[j] = 0.5f - (float)(j % 2);
    dro_linear_data d = dro_linear_data_default();
    d.n = ROWS, d.features = WIDTH, d.loss = "logistic", d.y = y, d.x = x;
    OK(s.ctx, dro_linear_create(s.ctx, &d, &s.linear));
    OK(s.ctx, dro_linear_problem(s.linear, &s.problem));
    dro_optimizer *opt;
    OK(s.ctx, dro_optimizer_create(s.ctx, "lbfgs", &s.problem, &opt));
    OK(s.ctx, dro_optimizer_set(opt, "objective", objective));
    OK(s.ctx, dro_optimizer_set(opt, "reg", l2 > 0 ? "l2" : "none"));
    OK(s.ctx, dro_optimizer_set_real(opt, "reg_strength", l2));
    OK(s.ctx, dro_optimizer_start(opt, from));
    solve(&s, opt);
    const char *end = dro_context_error(s.ctx);
    if (!strstr(end, "solved") && !strstr(end, "converged"))
        fail_msg("%s, l2 %g: %s", objective, l2, end);
    OK(s.ctx, dro_optimizer_info(opt, &info));
    if (!(info.objective - log(2) <= slack) || (l2 > 0 && !(info.gap <= slack)))
        fail_msg("%s, l2 %g: F %.9g, gap %g: expected %g above log 2", objective, l2,
                 info.objective, info.gap, slack);
    dro_optimizer_destroy(opt);
    close_model(&s);
}

static void test_kinks(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        double l2 = k ? pow(10, -k - 1) : 0;
        check_kink(7, "cvar:0.1", l2, 4.5e-5);
        check_kink(7, "cvar:0.5", l2, 0.5e-5);
        check_kink(7, "chi2:1", l2, 1e-5);
        check_kink(7, "kl-radius:0.5", l2, 0.5e-5);
    }
    check_kink(2, "chi2:1", 0, 1e-5); /* the last smoothings do not move w */
}

static bool by_newton(const model *m)
{
    bool curved = strncmp(m->objective, "kl:", 3) == 0 || strcmp(m->objective, "mean") == 0;
    return curved && m->l1 == 0;
}

static void test_newton(void **state)
{
    (void)state;
    for (int k = 0; k < case_count; k++)
        for (int sparse = 0; by_newton(&cases[k]) && sparse < 2; sparse++)
            check_case(&cases[k], "newton", sparse);
}

/* ---- derivatives ---- */

enum { DIM_MOST = FEATURES * CLASSES + CLASSES };

static void gradient_at(const dro__full *f, const double *w, const double *weights, double *g)
{
    double losses[MOST];
    assert_int_equal(f->losses(f->user, w, losses), DRO_OK);
    f->gradient(f->user, weights, g);
}

static double sum_at(const dro__full *f, const double *w, const double *weights)
{
    double losses[MOST], sum = 0;
    assert_int_equal(f->losses(f->user, w, losses), DRO_OK);
    for (int64_t i = 0; i < table.n; i++)
        sum += weights[i] * losses[i];
    return sum;
}

/* The gradient by differences of the losses, the matrix by differences of the gradient (and the
 * tilt's part by the gradients of single examples). */
static void check_derivatives(const model *m, bool sparse)
{
    const double h = 1e-5, tilt = 0.7;
    static double matrix[DIM_MOST * DIM_MOST], part[DIM_MOST * DIM_MOST];
    double w[DIM_MOST], q[MOST], g[DIM_MOST], up[DIM_MOST], down[DIM_MOST];
    subject s;
    open_model(&s, m, sparse, 2);
    const dro__full *f = s.problem.library->full;
    size_t dim = s.problem.dim, n = (size_t)table.n;
    for (size_t j = 0; j < dim; j++)
        w[j] = check_uniform(5, j, -0.5, 0.5);
    for (size_t i = 0; i < n; i++)
        q[i] = i % 7 ? check_uniform(6, i, 0, 0.1) : 0;
    gradient_at(f, w, q, g);
    memset(matrix, 0, sizeof matrix);
    memset(part, 0, sizeof part);
    f->hessian(f->user, q, tilt, matrix);
    for (size_t i = 0; i < n; i++) {
        double one[MOST] = {0}, single[DIM_MOST];
        one[i] = 1;
        f->gradient(f->user, one, single);
        for (size_t j = 0; j < dim * dim; j++)
            part[j] += tilt * q[i] * single[j / dim] * single[j % dim];
    }
    for (size_t j = 0; j < dim; j++) {
        double was = w[j];
        w[j] = was + h;
        double above = sum_at(f, w, q);
        gradient_at(f, w, q, up);
        w[j] = was - h;
        double below = sum_at(f, w, q);
        gradient_at(f, w, q, down);
        w[j] = was;
        check_near(m->loss, g[j], (above - below) / (2 * h), 1e-7);
        for (size_t k = j; k < dim; k++)
            check_near(m->loss, matrix[k * dim + j],
                       (up[k] - down[k]) / (2 * h) + part[k * dim + j], 1e-6);
    }
    close_model(&s);
}

static void test_derivatives(void **state)
{
    (void)state;
    for (int k = 0; k < case_count; k++)
        for (int sparse = 0; sparse < 2; sparse++)
            check_derivatives(&cases[k], sparse);
}

/* ---- the solver alone ---- */

/* Rosenbrock's valley, which is not convex, and far from its minimum. */
static dro_status valley(void *user, const double *w, double *value, double *g)
{
    (void)user;
    double a = 1 - w[0], b = w[1] - w[0] * w[0];
    *value = a * a + 100 * b * b;
    g[0] = -2 * a - 400 * w[0] * b;
    g[1] = 200 * b;
    return DRO_OK;
}

/* sum_j (w_j - j)^2 / 2: with an l1 of 3.5 the minimum is max(j - 3.5, 0). */
static dro_status bowl(void *user, const double *w, double *value, double *g)
{
    (void)user;
    *value = 0;
    for (int j = 0; j < 8; j++) {
        g[j] = w[j] - j;
        *value += g[j] * g[j] / 2;
    }
    return DRO_OK;
}

static void test_solver(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro__exact e;
    dro__smooth f = {.value = valley};
    OK(ctx, dro__exact_create(ctx, &e, 2, 5, false));
    e.w[0] = -1.2, e.w[1] = 1;
    OK(ctx, dro__exact_begin(&e, &f));
    while (!e.stuck && dro__exact_gradient(&e, &f) > 1e-12 && e.evaluations < 500)
        OK(ctx, dro__exact_step(&e, &f));
    check_near("valley", e.w[0], 1, 1e-10);
    check_near("valley", e.w[1], 1, 1e-10);
    assert_true(e.evaluations < 100);
    dro__exact_free(&e);

    f = (dro__smooth){.value = bowl, .l1 = 3.5};
    OK(ctx, dro__exact_create(ctx, &e, 8, 5, false));
    e.w[0] = -4, e.w[7] = -2;
    OK(ctx, dro__exact_begin(&e, &f));
    while (!e.stuck && dro__exact_gradient(&e, &f) > 1e-12 && e.evaluations < 500)
        OK(ctx, dro__exact_step(&e, &f));
    for (int j = 0; j < 8; j++)
        check_near("bowl", e.w[j], fmax(j - 3.5, 0), 1e-12);
    assert_true(e.w[0] == 0 && e.w[3] == 0);
    dro__exact_free(&e);
    dro_context_destroy(ctx);
}

/* ---- threads, states, refusals ---- */

static void weights_after(const model *m, const char *name, int threads, int save_at, float *w)
{
    subject s;
    open_model(&s, m, true, threads);
    dro_optimizer *opt = begun(&s, name, m);
    for (int k = 0; k < 8; k++) {
        if (k == save_at) {
            size_t size;
            unsigned char *bytes = check_save(s.ctx, opt, &size);
            dro_optimizer_destroy(opt);
            opt = begun(&s, name, m);
            OK(s.ctx, dro_optimizer_load(opt, bytes, size));
            free(bytes);
        }
        dro_status status = dro_optimizer_step(opt);
        assert_true(status == DRO_OK || status == DRO_ERR_END);
    }
    OK(s.ctx, dro_optimizer_weights(opt, w));
    dro_optimizer_destroy(opt);
    close_model(&s);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < case_count; k++)
        for (int newton = 0; newton < 1 + by_newton(&cases[k]); newton++) {
            const char *name = newton ? "newton" : "lbfgs";
            float one[DIM_MOST] = {0}, many[DIM_MOST] = {0}, saved[DIM_MOST] = {0};
            weights_after(&cases[k], name, 1, -1, one);
            weights_after(&cases[k], name, 3, -1, many);
            weights_after(&cases[k], name, 1, 3, saved);
            assert_memory_equal(one, many, sizeof one);
            assert_memory_equal(one, saved, sizeof one);
        }
}

static void refuses(const subject *s, const char *name, const char *settings, const char *why)
{
    dro_optimizer *opt;
    OK(s->ctx, dro_optimizer_create(s->ctx, name, &s->problem, &opt));
    check_set(s->ctx, opt, settings);
    FAILS(s->ctx, dro_optimizer_start(opt, NULL), DRO_ERR_UNSUPPORTED, why);
    dro_optimizer_destroy(opt);
}

static void test_refusals(void **state)
{
    (void)state;
    subject s;
    dro_optimizer *opt;
    open_model(&s, &cases[0], true, 1);
    refuses(&s, "newton", "reg=l1 reg_strength=1", "use reg=l2, or lbfgs");
    refuses(&s, "lbfgs", "tilt=group", "no groups");
    refuses(&s, "newton", "objective=chi2:1", "use lbfgs");
    s.problem.library = NULL;
    refuses(&s, "lbfgs", "lambda=1", "a linear model");
    OK(s.ctx, dro_optimizer_create(s.ctx, "lbfgs", &s.problem, &opt));
    FAILS(s.ctx, dro_optimizer_set(opt, "eta", "0.1"), DRO_ERR_NAME, "eta");
    FAILS(s.ctx, dro_optimizer_set(opt, "reg", "box"), DRO_ERR_RANGE, "elastic");
    dro_optimizer_destroy(opt);
    close_model(&s);
}

/* A row that is not finite is refused, and nothing has changed. */
static void test_not_finite(void **state)
{
    (void)state;
    static const float x[] = {1, NAN, 2, 3}, y[] = {1, -1}, start[] = {0.5f, -0.5f};
    float w[2];
    dro_linear_data d = dro_linear_data_default();
    d.n = 2, d.features = 2, d.x = x, d.y = y;
    dro_context *ctx = check_context("auto", 1);
    dro_linear *linear;
    dro_problem p;
    dro_optimizer *opt;
    OK(ctx, dro_linear_create(ctx, &d, &linear));
    OK(ctx, dro_linear_problem(linear, &p));
    OK(ctx, dro_optimizer_create(ctx, "lbfgs", &p, &opt));
    OK(ctx, dro_optimizer_start(opt, start));
    FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_NUMBER, "not finite");
    OK(ctx, dro_optimizer_weights(opt, w));
    assert_memory_equal(w, start, sizeof w);
    dro_optimizer_destroy(opt);
    dro_linear_destroy(linear);
    dro_context_destroy(ctx);
}

/* ---- the online methods come to the same minima ---- */

/* F of w over all examples, by the exact weights. */
static double f_of(const subject *s, const dro_optimizer *opt, const model *m)
{
    const dro__full *full = s->problem.library->full;
    double w[FEATURES + 1], losses[MOST], q[MOST];
    float copy[FEATURES + 1];
    int32_t of[MOST];
    dro__objective o;
    dro__worst_case worst;
    OK(s->ctx, dro_optimizer_weights(opt, copy));
    for (size_t j = 0; j < s->problem.dim; j++)
        w[j] = (double)copy[j];
    OK(s->ctx, full->losses(full->user, w, losses));
    OK(s->ctx, dro__objective_parse(s->ctx, m->objective, &o));
    dro__groups g = {.n = (size_t)table.n, .count = 2, .of = of};
    for (int64_t i = 0; i < table.n; i++)
        of[i] = table.sign[i] > 0;
    OK(s->ctx, dro__groups_create(s->ctx, &g, true));
    if (strcmp(m->over, "class") == 0)
        dro__objective_weigh_groups(&o, &g, losses, q, &worst);
    else
        dro__objective_weigh(&o, (size_t)table.n, losses, NULL, q, &worst);
    dro__groups_free(&g);
    return worst.value + dro_optimizer_regulariser(opt, copy);
}

static void come_near(const model *m, const char *name, const char *settings, double within)
{
    enum { STEPS = 6000 };
    char what[120];
    subject s;
    dro_info info;
    dro_optimizer *opt;
    open_model(&s, m, false, 1);
    OK(s.ctx, dro_optimizer_create(s.ctx, name, &s.problem, &opt));
    check_set(s.ctx, opt, settings);
    check_set(s.ctx, opt, "steps=6000 batch=20 eta_schedule=cosine warmup=100");
    OK(s.ctx, dro_optimizer_set(opt, "tilt", m->over));
    OK(s.ctx, dro_optimizer_set(opt, "objective", m->objective));
    OK(s.ctx, dro_optimizer_set(opt, "reg", "elastic"));
    OK(s.ctx, dro_optimizer_set_real(opt, "reg_strength", m->l1 + m->l2));
    if (m->l1 + m->l2 > 0)
        OK(s.ctx, dro_optimizer_set_real(opt, "reg_ratio", m->l1 / (m->l1 + m->l2)));
    OK(s.ctx, dro_optimizer_start(opt, NULL));
    for (int t = 0; t < STEPS; t++) {
        OK(s.ctx, dro_optimizer_step(opt));
        OK(s.ctx, dro_optimizer_info(opt, &info)); /* estimates, but possible ones */
        assert_true(!(info.radius < 0) && !(info.radius > (double)table.n));
        assert_true(info.effective > 0 && info.effective <= 1);
    }
    snprintf(what, sizeof what, "%s, %s %s %s", name, m->loss, m->over, m->objective);
    check_near(what, f_of(&s, opt, m), m->minimum, within);
    dro_optimizer_destroy(opt);
    close_model(&s);
}

static void test_online(void **state)
{
    (void)state;
    for (int k = 0; k < case_count; k++) {
        const model *m = &cases[k];
        if (strcmp(m->model, "rows") != 0 || strcmp(m->objective, "mean") == 0)
            continue;
        bool tied = strcmp(m->over, "class") == 0, rough = strcmp(m->loss, "squared") == 0;
        double near = tied ? 3e-3 : 2e-4;
        come_near(m, "sgd", "eta=0.008", rough ? 1e-2 : 1e-3);
        come_near(m, "adamw", "eta=0.02 weight_decay=0", 1e-3);
        come_near(m, "cover", "eta=0.1", near);
        come_near(m, "recover", "eta=0.02 precondition=rms", near);
    }
}

/* The others refuse the objectives, each by name. */
static void test_only_kl(void **state)
{
    (void)state;
    static const char *const names[] = {"ascpg",     "civr",    "rcivr",    "absgd",
                                        "stoc-agda", "pg-smd2", "pes-sgda", NULL};
    subject s;
    open_model(&s, &cases[0], false, 1);
    for (int k = 0; names[k]; k++) {
        dro_optimizer *opt;
        OK(s.ctx, dro_optimizer_create(s.ctx, names[k], &s.problem, &opt));
        FAILS(s.ctx, dro_optimizer_set(opt, "objective", "cvar:0.1"), DRO_ERR_NAME, names[k]);
        dro_optimizer_destroy(opt);
    }
    dro_optimizer *opt;
    OK(s.ctx, dro_optimizer_create(s.ctx, "sgd", &s.problem, &opt));
    FAILS(s.ctx, dro_optimizer_set(opt, "objective", "cvr:0.1"), DRO_ERR_NAME, "cvar:ALPHA");
    FAILS(s.ctx, dro_optimizer_set(opt, "objective", "cvar:2"), DRO_ERR_RANGE, "1e-12 to 1");
    dro_optimizer_destroy(opt);
    refuses(&s, "sgd", "objective=cvar:0.1 nesterov=yes", "leave one of them out");
    close_model(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_solver),   cmocka_unit_test(test_derivatives),
    cmocka_unit_test(test_lbfgs),    cmocka_unit_test(test_kinks),
    cmocka_unit_test(test_newton),   cmocka_unit_test(test_same_bits),
    cmocka_unit_test(test_refusals), cmocka_unit_test(test_not_finite),
    cmocka_unit_test(test_online),   cmocka_unit_test(test_only_kl),
};

CHECK_MAIN_WITH(tests, read_references, NULL)
